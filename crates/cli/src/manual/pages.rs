//! The words of the manual that no option has.

/// What belongs to a command beside its options.
pub(super) struct Page {
    /// As it is typed.
    pub(super) path: &'static str,
    /// Paragraphs behind what `--help` says of it.
    pub(super) description: &'static [&'static str],
    /// A command line, and what it does.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Further sections.
    pub(super) sections: &'static [(&'static str, &'static [Part])],
    /// Further pages to look at.
    pub(super) see: &'static [&'static str],
}

pub(super) enum Part {
    Text(&'static str),
    Tagged(&'static str, &'static str),
    /// An exit status, with what it means in every command.
    Status(u8),
}

use Part::{Status, Tagged, Text};

use crate::message::status;

/// A page of which the options and examples say all. It has the sections of the page above it.
const fn brief(path: &'static str, examples: &'static [(&'static str, &'static str)]) -> Page {
    Page { path, description: &[], examples, sections: &[], see: &[] }
}

const OURS: &[Part] = &[
    Status(0),
    Status(status::NO),
    Status(status::USAGE),
    Status(status::OURS),
    Status(status::INTERRUPTED),
];

const PROGRAMS: &[Part] = &[
    Text("That of the program, and:"),
    Status(status::USAGE),
    Status(status::OURS),
    Status(status::NOT_EXECUTABLE),
    Status(status::NOT_FOUND),
    SIGNAL,
];

const SIGNAL: Part = Tagged("128 + n", "Signal n ended the program.");

const PRELOAD_LIB: Part = Tagged(
    "POUNDLOCK_PRELOAD_LIB",
    "The preload library to use rather than the one that belongs to the command.",
);

const IPC_DIR: Part = Tagged(
    "POUNDLOCK_IPC_DIR",
    "The directory of the semaphore arrays that are ours, an absolute path. It has to belong to the user, and be \
     closed to others.",
);

const ENVIRONMENT: &[Part] = &[
    PRELOAD_LIB,
    Tagged(
        "LD_PRELOAD",
        "The libraries that are named there stay, behind ours. A ThreadSanitizer's comes before it.",
    ),
    IPC_DIR,
    Text(
        "The library in the program reads `POUNDLOCK_LOCK`, `POUNDLOCK_RWLOCK`, `POUNDLOCK_SEMAPHORES` and \
         `POUNDLOCK_STAT_DIR`, which the command sets for it, by its options. Of a program that is started without \
         the command, `POUNDLOCK_STATS` names a directory for its figures, an absolute path: see `--read` in \
         poundlock-stat(1).",
    ),
];

pub(super) const PAGES: &[Page] = &[
    Page {
        path: "poundlock",
        description: &[
            "A program that was not built for it runs on scalable locks: its pthread and C11 mutexes, condition \
             variables, readers-writer locks and spinlocks, and its System V semaphores. Or it runs on its own, and \
             where it waits for them is reported. It is neither rebuilt nor patched: a library is loaded into it \
             (`LD_PRELOAD`).",
            "Programs that are linked statically, change their user as they start, or use another C library than \
             glibc cannot be helped, and are not started. Locks that a language makes itself of atomic \
             instructions and futexes (Rust's standard library, Go) stay as they are.",
        ],
        examples: &[
            ("poundlock stat -- server", "Which locks does it wait for, from which lines, for how long?"),
            ("poundlock run -- server", "And how fast is it on better ones?"),
            ("poundlock top -- server", "Which does it wait for now? Live, in the terminal"),
            ("poundlock check -- server", "Does it take them in one order, and use them rightly?"),
            ("poundlock stat --compare -- server --requests 100000", "Measure both in turns"),
            ("poundlock who 4711", "It hangs: who waits for what, and who holds it?"),
        ],
        sections: &[
            (
                "OVERHEAD",
                &[
                    Text("Seen on an AMD EPYC with two CPUs; `poundlock-bench`(1) has what shows yours."),
                    Tagged(
                        "poundlock run",
                        "Some 2 ms when the program starts, 0.3 ms for each of its children.",
                    ),
                    Tagged(
                        "poundlock stat",
                        "Some 7 ns for each lock and unlock that nobody waits for, and one hundredth of a CPU. Real \
                         programs kept 95 % of their speed and more.",
                    ),
                ],
            ),
            (
                "EXIT STATUS",
                &[
                    Text(
                        "The same failure has the same status in every command. Those that run a program pass its \
                         status on. Else:",
                    ),
                    Status(0),
                    Status(status::NO),
                    Status(status::USAGE),
                    Status(status::DEADLOCK),
                    Status(status::OURS),
                    Status(status::NOT_EXECUTABLE),
                    Status(status::NOT_FOUND),
                    Status(status::INTERRUPTED),
                    SIGNAL,
                ],
            ),
            ("ENVIRONMENT", ENVIRONMENT),
            (
                "FILES",
                &[
                    Tagged("/dev/shm/poundlock-stat-*", "What is counted, while `poundlock stat` runs."),
                    Tagged("/dev/shm/poundlock-ipc-*", "The semaphore arrays of a user."),
                ],
            ),
        ],
        see: &["poundlock(3)", "ld.so(8)", "pthreads(7)", "perf(1)"],
    },
    Page {
        path: "poundlock run",
        description: &[
            "The command becomes the program, under the same process id: input, output, signals and the end are the \
             program's own. Children inherit the locks. (Only where the library's path cannot stand in `LD_PRELOAD` \
             does it wait, to remove a link at the end.)",
        ],
        examples: &[
            ("poundlock run -- server --port 80", "On the default locks"),
            (
                "poundlock run --lock handoff -- server",
                "On a mutex that passes from its owner to its oldest waiter",
            ),
            ("poundlock run --lock mcs-queue,qspin -- server", "On a mutex and a spinlock of these names"),
            ("poundlock run --semaphores kernel -- postgres", "With the kernel's semaphore arrays"),
        ],
        sections: &[
            (
                "OVERHEAD",
                &[Text(
                    "Some 2 ms when the program starts, 0.3 ms for each of its children (`poundlock bench start-up`). \
                     A lock that nobody waits for costs no more than glibc's.",
                )],
            ),
            ("EXIT STATUS", PROGRAMS),
            ("ENVIRONMENT", ENVIRONMENT),
        ],
        see: &["poundlock-locks(1)", "poundlock-stat(1)", "ld.so(8)"],
    },
    Page {
        path: "poundlock check",
        description: &[
            "Findings are printed on standard error as they are found, and once more at the end, with the threads, \
             the locks by name, and both places where there are two. An order of locks that contradicts another one \
             is found the first time that both were seen: the threads need not collide.",
            "Compile the program with `-g` for lines. Without, there are names of functions.",
            "The program runs on its own locks, unless `--lock` names others. What was found survives any end of the \
             program. Children are checked too, each by itself, and a daemon that goes on in the background is \
             followed until it ends.",
            "Looked at are pthread's and C11's locks, and those of `libpoundlock` and of the crate `poundlock` (with \
             its feature `stats`) in a program that is linked with them.",
        ],
        examples: &[
            ("poundlock check -- server", "What is wrong with its use of locks?"),
            (
                "poundlock check --error-exitcode 9 --suppressions known.supp -- ./tests",
                "In a continuous build: fail if there is anything that is not known",
            ),
            (
                "poundlock check --gen-suppressions -o report -- server",
                "The same, with what to put into a file of suppressions",
            ),
            (
                "poundlock check --sarif check.sarif -- ./tests",
                "For a code host; run it at the root of the sources",
            ),
            (
                "poundlock check --on-deadlock end -- ./tests",
                "End a program whose threads wait for each other",
            ),
            (
                "poundlock check --held-over 100 -- server",
                "Also tell of locks that are held for 0.1 s or more",
            ),
        ],
        sections: &[
            (
                "SUPPRESSIONS",
                &[
                    Text(
                        "A file of stanzas. Between a line `{` and a line `}`: a name of your choice; the kind of the \
                         finding, or `*`; and what it has to have, a line each:",
                    ),
                    Tagged("lock:NAME", "A lock, or a sort of locks, that it is about."),
                    Tagged("fun:NAME", "A function: the innermost one of a stack comes first."),
                    Tagged("obj:FILE", "A frame of a program or library."),
                    Tagged("at:TEXT", "A frame as it is printed."),
                    Tagged("...", "Any frames, or none."),
                    Tagged("--", "The next stack."),
                    Text(
                        "`*` stands for any letters, `?` for one. A line that begins with `#` is a comment.",
                    ),
                ],
            ),
            (
                "OVERHEAD",
                &[Text(
                    "That of `poundlock stat`, and a look into a table for each lock that is taken with another one \
                     held. Two locks that are seen in an order for the first time are written to a log, which the \
                     command searches. `poundlock bench check` measures it on your machine.",
                )],
            ),
            (
                "EXIT STATUS",
                &[
                    Text("That of the program, unless --error-exitcode names another for findings, and:"),
                    Status(status::INCOMPLETE),
                    Status(status::DEADLOCK),
                    Status(status::USAGE),
                    Status(status::OURS),
                    Status(status::NOT_EXECUTABLE),
                    Status(status::NOT_FOUND),
                    SIGNAL,
                ],
            ),
            (
                "ENVIRONMENT",
                &[
                    PRELOAD_LIB,
                    Tagged("NO_COLOR", "No colours, whatever its value."),
                    Tagged("TMPDIR", "Where the log is kept if that is not possible in /dev/shm."),
                ],
            ),
            ("FILES", &[Tagged("/dev/shm/poundlock-check-*", "The log of a run. It vanishes at the end.")]),
        ],
        see: &["poundlock-stat(1)", "poundlock-run(1)", "valgrind(1)"],
    },
    Page {
        path: "poundlock stat",
        description: &[
            "The report goes to standard error. It opens with the share of the threads' time that was lost, and up \
             to three findings: what to change, on which line. A table of locks follows, those with most waiting \
             first; then where threads waited, and who held the lock meanwhile; condition variables, barriers, \
             semaphores and joins; and where the time of the threads went.",
            "Compile the program with `-g` for lines. Without, there are names of functions.",
            "The figures survive any end of the program. A daemon that goes on in the background is followed until \
             it ends. `SIGUSR2` has the command report on the running program.",
            "`--compare` ends a command that does not end by itself: after `--for`, or when its `--client` has ended, \
             by SIGTERM to all its processes, and by SIGKILL 10 seconds later. The next run begins when all of them \
             have ended and its ports are free.",
            "`--pid` watches processes that run, and `--futex` a command, from outside: nothing is loaded into them, \
             and the locks may be of any language. Seen are waits that sleep, by the kernel's tracepoints of futex \
             calls, with the stacks of those who waited and of those who woke them. Not seen are acquisitions that \
             do not sleep, and how long locks are held. A process under `stat` is read instead, which is exact.",
        ],
        examples: &[
            ("poundlock stat -- server", "Run it on its own locks, and report where it waited"),
            ("poundlock stat --short -- server", "Only what is wrong, and the table of locks"),
            ("poundlock stat --lock poundlock -- server", "The same on ours"),
            (
                "poundlock stat --compare --rounds 7 -- server",
                "On its own and on ours in turns, with a verdict",
            ),
            (
                "poundlock stat --compare --client 'wrk http://localhost/' --metric 'Requests/sec: *([0-9.]+)' -- server",
                "Servers in turns, by the requests a second that a client measures",
            ),
            (
                "poundlock stat --delay 10 --for 60 --html report.html -- server",
                "One minute of it, as a page",
            ),
            (
                "poundlock stat --json before.json -- server",
                "All figures, for `stat diff` or a program of yours",
            ),
            (
                "sudo poundlock stat --pid $(pidof server) --seconds 10",
                "A running process, on locks of any language: what its threads sleep for",
            ),
            (
                "sudo poundlock stat --futex --html report.html -- ./static-server",
                "A command in the same way, with nothing loaded into it",
            ),
        ],
        sections: &[
            (
                "OVERHEAD",
                &[
                    Text(
                        "Some 7 ns for each lock and unlock that nobody waits for, on an AMD EPYC of 2022. Real \
                         programs kept 95 % of their speed and more; one that took 100,000 locks at random, and did \
                         nothing else, took 8 times as long. `poundlock bench stat` measures this on your machine.",
                    ),
                    Text(
                        "The command looks at the threads from outside, for one hundredth of a CPU, and for 3 % with \
                         3,000 threads. A thread's count of a lock takes half a cache line.",
                    ),
                ],
            ),
            (
                "RIGHTS",
                &[
                    Text(
                        "None, for a command on pthread locks. For `--pid`, `--futex`, static programs, and locks of a \
                         language beside pthread's:",
                    ),
                    Tagged("sudo", "Sees every process."),
                    Tagged(
                        "sudo mount -o remount,mode=750,gid=$(id -g) /sys/kernel/tracing",
                        "Lets your group read where the tracepoints are; then you see processes of your own, if \
                         `kernel.perf_event_paranoid` is 2 or less.",
                    ),
                    Tagged(
                        "Containers",
                        "From outside, as root: names come from the files of the container. From inside, `docker run \
                         --cap-add=PERFMON --cap-add=SYS_PTRACE -v /sys/kernel/tracing:/sys/kernel/tracing:ro`.",
                    ),
                    Text("A command that is installed set-user-id refuses."),
                ],
            ),
            ("EXIT STATUS", PROGRAMS),
            (
                "ENVIRONMENT",
                &[
                    PRELOAD_LIB,
                    Tagged("COLUMNS", "The width of the report where standard error is no terminal."),
                    Tagged("NO_COLOR", "No colours, whatever its value."),
                    Tagged("TMPDIR", "Where the figures are kept if that is not possible in /dev/shm."),
                ],
            ),
            (
                "FILES",
                &[Tagged(
                    "/dev/shm/poundlock-stat-*",
                    "What is counted. It vanishes at the end; if the command itself was killed, `--read` reports on \
                     it.",
                )],
            ),
        ],
        see: &["poundlock-run(1)", "perf-lock(1)", "perf-sched(1)"],
    },
    Page {
        path: "poundlock stat diff",
        description: &[],
        examples: &[("poundlock stat diff before.json after.json", "What changed between two runs")],
        sections: &[("EXIT STATUS", OURS)],
        see: &[],
    },
    Page {
        path: "poundlock locks",
        description: &[],
        examples: &[("poundlock locks", "The names that `--lock` takes, and the defaults of this machine")],
        sections: &[("EXIT STATUS", OURS)],
        see: &[],
    },
    Page {
        path: "poundlock bench",
        description: &[
            "Each figure is from processes that are started anew, in turns. Figures have their spread.",
        ],
        examples: &[
            ("poundlock bench uncontended", "A lock and an unlock that nobody contends for"),
            (
                "poundlock bench programs -- make -j8",
                "A program of yours, as it is and under `poundlock run`",
            ),
            ("poundlock bench grid --quick --out results", "Every lock, over threads and work"),
        ],
        sections: &[("EXIT STATUS", OURS), ("ENVIRONMENT", &[PRELOAD_LIB])],
        see: &["poundlock-sim(1)"],
    },
    brief(
        "poundlock bench uncontended",
        &[("poundlock bench uncontended --locks poundlock,glibc", "Only these two")],
    ),
    brief(
        "poundlock bench handover",
        &[("poundlock bench handover --threads 2,16 --critical 1", "Sections of a microsecond")],
    ),
    brief("poundlock bench spin", &[("poundlock bench spin --threads 16 --json -", "One crowd, as JSON")]),
    brief(
        "poundlock bench rwlock",
        &[("poundlock bench rwlock --writers 1", "One of a hundred operations writes")],
    ),
    brief("poundlock bench misc-mutex", &[("poundlock bench misc-mutex --threads 4", "With four threads")]),
    brief(
        "poundlock bench sembench",
        &[("poundlock bench sembench --no-sleepers", "Without the part with thousands of sleepers")],
    ),
    brief(
        "poundlock bench start-up",
        &[("poundlock bench start-up --program /bin/ls", "Of another program")],
    ),
    brief(
        "poundlock bench check",
        &[("poundlock bench check --helgrind 0", "Without helgrind, in less time")],
    ),
    brief("poundlock bench stat", &[("poundlock bench stat --rounds 3 --waits 1000", "In less time")]),
    brief(
        "poundlock bench programs",
        &[
            ("poundlock bench programs -- make -j8", "A command of yours"),
            ("poundlock bench programs --rounds 5", "Those known programs that are installed"),
        ],
    ),
    brief(
        "poundlock bench grid",
        &[
            ("poundlock bench grid --quick --out results", "In minutes; without `--quick` it takes hours"),
            ("poundlock bench grid --resume results", "Go on with a run that was interrupted"),
        ],
    ),
    brief(
        "poundlock bench floor",
        &[("poundlock bench floor", "Atomics, a cache line's way, a sleep and a wake-up")],
    ),
    brief(
        "poundlock bench figures",
        &[("poundlock bench figures --out FIGURES.md", "All benchmarks, as one page")],
    ),
    brief(
        "poundlock bench report",
        &[
            ("poundlock bench report results --out results.html", "A page for a browser"),
            ("poundlock bench report results --markdown", "Tables"),
        ],
    ),
    Page {
        path: "poundlock sim",
        description: &[
            "The code of the locks is that which programs run. Machine, scheduler and hypervisor are simulated. A \
             seed fixes a run, on every host.",
        ],
        examples: &[
            ("poundlock sim list", "Which machines, workloads, tables and locks there are"),
            (
                "poundlock sim run --machine westmere-ex-8s --workload grid --lock poundlock,mcs --threads 10-80:10",
                "Two locks on a machine with 80 cores",
            ),
        ],
        sections: &[("EXIT STATUS", OURS)],
        see: &["poundlock-bench(1)"],
    },
    brief(
        "poundlock sim list",
        &[
            ("poundlock sim list", "What there is"),
            ("poundlock sim list westmere-ex-8s", "A machine's numbers, with their sources"),
        ],
    ),
    brief(
        "poundlock sim run",
        &[
            (
                "poundlock sim run --machine westmere-ex-8s --workload grid --lock poundlock,mcs --threads 10-80:10",
                "Two locks on a machine with 80 cores",
            ),
            (
                "poundlock sim run --machine here --workload grid --lock poundlock --threads 4 --profile",
                "On this machine, and why cache lines move",
            ),
        ],
    ),
    brief("poundlock sim targets", &[("poundlock sim targets --machine westmere-ex-8s", "On one machine")]),
    brief(
        "poundlock sim reproduce",
        &[(
            "poundlock sim reproduce qspinlock_numaconnect_compute --plot page.html",
            "One table, drawn as well",
        )],
    ),
    brief(
        "poundlock sim fit",
        &[(
            "poundlock sim fit --tables qspinlock_numaconnect_compute --rounds 2",
            "From one table, in two rounds",
        )],
    ),
    brief(
        "poundlock sim check",
        &[
            ("poundlock sim check --lock poundlock --seeds 0..10000", "Ten thousand schedules of one lock"),
            ("poundlock sim check --lock poundlock --seeds 4711..4712", "One of them again"),
        ],
    ),
    brief("poundlock sim validate", &[("poundlock sim validate --lock poundlock,glibc", "Two locks")]),
    brief(
        "poundlock sim measure",
        &[("poundlock sim measure > here.toml", "A file for `sim run --machine here.toml`")],
    ),
    Page {
        path: "poundlock record",
        description: &[
            "The program runs on its own locks, or on those that `--lock` names, and what each of its threads does \
             with them is written down in short stretches of all threads at once, spread over its run: which lock, \
             when acquired and released, from which line, waits, condition variables, barriers, and CPU time. \
             `poundlock predict` replays that.",
            "The stretches are 10 ms long at first, and come every 100 ms; later ones are longer and come less often. \
             Only processes that run to their end, or crash, under the command are in the file: it is written when \
             the command ends.",
        ],
        examples: &[
            ("poundlock record -- server --requests 100000", "Into ./poundlock.recording"),
            (
                "poundlock record -o busy.recording --room 256 -- server",
                "More of a long run, in a file of its own",
            ),
        ],
        sections: &[
            (
                "OVERHEAD",
                &[Text(
                    "Between stretches that of poundlock-stat(1); in them some 0.1 us for each lock and unlock, which the \
                     prediction takes away again. Before the program starts two seconds are spent on measuring this \
                     machine.",
                )],
            ),
            ("EXIT STATUS", PROGRAMS),
            ("ENVIRONMENT", ENVIRONMENT),
        ],
        see: &["poundlock-predict(1)", "poundlock-stat(1)"],
    },
    Page {
        path: "poundlock predict",
        description: &[
            "A program that `poundlock record` has written down is replayed on a simulated machine, with the very locks \
             that `poundlock run` has: first as it was, which shows how far to trust the rest, and then with one thing \
             changed. Said is how much work it would do in the same time, of what it does, with the least and the \
             most over several stretches and chances.",
            "`gone` is a lock that nobody waits for: no change can give more. `half` halves all that is done with it held. \
             `split N` makes several of it. `rw` lets all who acquire it read, `rw FILE:LINE,..` those at these \
             places. `is NAME` is another lock.",
            "If the replay is off by more than 15 % every line says so; by more than 40 %, nothing is predicted. That work \
             does not depend on what others wrote, and that data are where they were, are assumptions: see the \
             document PREDICTING.",
        ],
        examples: &[
            ("poundlock predict", "All questions about ./poundlock.recording"),
            ("poundlock predict --html page.html busy.recording", "And a page for a browser"),
            (
                "poundlock predict --what-if 'cache.lock: split 16' --what-if 'log: half'",
                "Two changes together",
            ),
            ("poundlock predict --cpus 2,8,64 --threads 64", "The curve for another size"),
            ("poundlock predict --machine epyc-9654-2s --cpus 96", "On another machine"),
            ("poundlock predict --validate", "Is it right, on this machine?"),
        ],
        sections: &[(
            "EXIT STATUS",
            &[
                Tagged("0", "It was answered, or said why nothing can be predicted."),
                Tagged("2", "The command line makes no sense, or the file cannot be used."),
                Tagged("125", "Poundlock itself failed, in a way that it says in a line."),
            ],
        )],
        see: &["poundlock-record(1)", "poundlock-sim(1)", "poundlock-run(1)"],
    },
    Page {
        path: "poundlock top",
        description: &[
            "Locks come by the share of the threads' time that was lost for them since the last look, with how many \
             threads waited on average, how long waits took, and holds that others waited for. Enter shows the \
             stacks of those who waited and of those who made them wait, `t` threads and what each does now, `?` \
             all keys.",
            "A command that it starts, and a process that runs under `stat` or `top`, are known by their own \
             records, which are exact. Of any other process there are its futex calls: waits that slept, whatever \
             locks it uses, and who ended them.",
            "While the screen is up a command has no terminal: what it prints goes to a file, which `o` shows, and \
             to the terminal when the screen is gone; its standard input is empty if that is a terminal. If it \
             ends, the last table stays until `q`. Where standard error is no terminal, or with `--plain`, tables \
             are printed there instead, and the command has all of its streams. Without a command tables go to \
             standard output.",
        ],
        examples: &[
            ("poundlock top -- server", "Run it, and see where it waits now"),
            ("poundlock top --pid $(pidof server)", "A process that runs, on any locks"),
            ("poundlock top", "All that runs under `stat` or `top`"),
            (
                "poundlock top --pid 4711 --interval 5 --count 12 | tee log",
                "A minute of it, as tables of five seconds each",
            ),
            ("poundlock top --plain --threads --pid 4711", "Its threads, as text"),
        ],
        sections: &[
            (
                "OVERHEAD",
                &[Text(
                    "Looks become rarer, down to one in ten seconds, where one a second took more than 2 % of a CPU; \
                     `--interval` says otherwise. Of a process that keeps records it costs nothing to be looked at; \
                     what keeping them costs is in poundlock-stat(1).",
                )],
            ),
            (
                "RIGHTS",
                &[
                    Text("Your own processes that run under `stat` or `top` need none. Others:"),
                    Tagged(
                        "sudo",
                        "For processes of others, and for futex calls unless the system allows them.",
                    ),
                    Tagged(
                        "Containers",
                        "From outside, as root: names come from the files of the container.",
                    ),
                ],
            ),
            (
                "EXIT STATUS",
                &[
                    Text("Of a command its own, also if `q` has left the screen before its end; and:"),
                    Tagged("0", "Without a command: all went well."),
                    Tagged("2", "The command line makes no sense."),
                    Tagged("125", "Poundlock itself failed, in a way that it says in a line."),
                    Tagged("126", "The program was found, but cannot be run, or not with our library."),
                    Tagged("127", "The program was not found."),
                    Tagged("128 + n", "Signal n ended the program."),
                ],
            ),
            (
                "ENVIRONMENT",
                &[
                    PRELOAD_LIB,
                    Tagged("NO_COLOR", "No colours, whatever its value."),
                    Tagged("TERM", "If it is empty or `dumb` tables are printed."),
                    Tagged("TMPDIR", "Where a command's output is kept while the screen is up."),
                ],
            ),
        ],
        see: &["poundlock-stat(1)", "poundlock-who(1)", "top(1)"],
    },
    Page {
        path: "poundlock who",
        description: &[
            "Who hangs, and why: every thread that waits for another one, what it waits for, and who holds it, with \
             the stacks of both. Threads that wait for each other in a circle come first, in a sentence. The \
             process needs no preparation: any program on any locks, as far as those say who holds them. Holders \
             are known of glibc's mutexes (all kinds), of the writers of its readers-writer locks, of joined \
             threads, and of what runs under `poundlock stat`. Of condition variables, semaphores, barriers, \
             readers, and of the locks of Rust, Go and Java there are the waiters; it says so.",
            "Compile the program with `-g` for lines and variables. Without, there are names of functions.",
        ],
        examples: &[
            ("poundlock who 4711", "Who waits for what in this process, and who holds it?"),
            ("poundlock who $(pidof server)", "By its name: one process or several"),
            ("poundlock who --tree 4711", "A process and all that it started"),
            ("sudo poundlock who --all 4711", "Another user's process: all threads, whole stacks"),
            ("poundlock who --json - 4711 | jq .sentences", "Its deadlocks, for programs"),
            (
                "poundlock who --core core.4711 --exe ./server",
                "In a core file, made by the kernel or by `gcore`",
            ),
        ],
        sections: &[
            (
                "RIGHTS",
                &[
                    Text(
                        "What a debugger needs: your own processes, if the system lets users trace them; else:",
                    ),
                    Tagged("sudo", "For processes of others, and of programs with more rights than you."),
                    Tagged(
                        "kernel.yama.ptrace_scope",
                        "If it is 1 or 2, users may not look into processes that they did not start: use sudo, or \
                         set it to 0.",
                    ),
                    Tagged(
                        "Containers",
                        "From outside, as root: names come from the files of the container. From inside, \
                         `docker run --cap-add=SYS_PTRACE`.",
                    ),
                    Text("A command that is installed set-user-id refuses."),
                ],
            ),
            (
                "OVERHEAD",
                &[Text(
                    "Each thread stands still for some microseconds, one after the other, while its registers and its \
                     stack are copied; the second line says how long. Nothing runs in the process that is not its \
                     own. A thread in a system call that a stop would end (`epoll_wait`, `semop` and others: see \
                     signal(7)) is not stopped. If the command is killed, the process goes on.",
                )],
            ),
            ("EXIT STATUS", OURS),
        ],
        see: &["poundlock-stat(1)", "gcore(1)", "ptrace(2)", "core(5)", "jstack(1)"],
    },
    Page {
        path: "poundlock torture",
        description: &[],
        examples: &[
            ("poundlock torture --lock poundlock --seconds 60", "One minute of it"),
            ("poundlock torture --lock poundlock,qspin-pv", "A mutex and a spinlock"),
            ("poundlock torture --semaphores ours", "Arrays, with processes killed at random"),
            ("poundlock torture --seed 0x5eed --backtrace threads.txt", "The choices of an earlier run"),
        ],
        sections: &[("EXIT STATUS", OURS), ("ENVIRONMENT", &[PRELOAD_LIB])],
        see: &["poundlock-run(1)"],
    },
    Page {
        path: "poundlock ipcs",
        description: &["Those of programs under `poundlock run`. The kernel's are listed by `ipcs`(1)."],
        examples: &[
            ("poundlock ipcs", "Which there are, and who sleeps"),
            ("poundlock ipcs --report", "How contended each one's lock is"),
            ("poundlock ipcs --json", "All of it, for programs"),
        ],
        sections: &[("EXIT STATUS", OURS), ("ENVIRONMENT", &[IPC_DIR])],
        see: &["poundlock-ipcrm(1)", "ipcs(1)", "sysvipc(7)"],
    },
    Page {
        path: "poundlock ipcrm",
        description: &["Who sleeps in them is told, as by the kernel (`EIDRM`)."],
        examples: &[
            ("poundlock ipcrm 1073741824", "One, by its id"),
            ("poundlock ipcrm --key 0x706c", "One, by its key"),
            ("poundlock ipcrm --all --yes", "All that there are, without a question"),
        ],
        sections: &[("EXIT STATUS", OURS), ("ENVIRONMENT", &[IPC_DIR])],
        see: &["poundlock-ipcs(1)", "ipcrm(1)"],
    },
    Page {
        path: "poundlock generate",
        description: &[
            "Packages have them. This is for who has built the command, with cargo: man, bash and fish look into \
             ~/.local/share by themselves; zsh does if ~/.local/share/zsh/site-functions is in `fpath`.",
        ],
        examples: &[("poundlock generate ~/.local/share", "For one user")],
        sections: &[("EXIT STATUS", OURS)],
        see: &["man(1)"],
    },
];
