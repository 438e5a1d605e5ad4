//! `poundlock stat --pid` and `stat --futex`: what programs wait for that need no preparation, and that they
//! notice nothing of it.

mod harmless;
pub(crate) mod languages;
mod refusals;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{
    LIMIT, compile_c, expect_status, list, number, parsed, poundlock, poundlock_bare, run_limited, scratch,
    stderr, stdout,
};
use crate::who::{Target, kinds};

/// Waits for a lock that is always contended for, and sums up by itself how long they took.
const CONTENDED: &str = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdio.h>\n#include <time.h>\n\
    #include <unistd.h>\n\
    static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;\n\
    static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);\n\
    \treturn t.tv_sec * 1000000000L + t.tv_nsec; }\n\
    __attribute__((noinline)) static void take(void) { pthread_mutex_lock(&busy); } // waits\n\
    __attribute__((noinline)) static void give(void) { pthread_mutex_unlock(&busy); } // wakes\n\
    static void *work(void *sum) { for (int n = 0; n < 40; n++) {\n\
    \tlong begin = now(); take(); *(long *)sum += now() - begin; usleep(500); give(); }\n\
    \treturn sum; }\n\
    int main(void) { pthread_t threads[4]; long sums[4] = {0}, sum = 0;\n\
    \tfor (int n = 0; n < 4; n++) pthread_create(&threads[n], 0, work, &sums[n]);\n\
    \tfor (int n = 0; n < 4; n++) { pthread_join(threads[n], 0); sum += sums[n]; }\n\
    \tprintf(\"%ld\\n\", sum); }\n";

/// Whether futex calls can be seen here; says what is missing.
pub(crate) fn can_watch() -> bool {
    let output =
        run_limited(poundlock_bare().args(["stat", "--futex", "-o", "/dev/null", "--", "true"]), LIMIT);
    if output.status.success() {
        return true;
    }
    eprintln!("SKIPPED: needs the kernel's tracepoints: {}", stderr(&output).trim_end());
    false
}

/// The report on a process, after a moment.
#[track_caller]
pub(crate) fn watched(pid: u32) -> Value {
    let file = scratch().join("report.json");
    let mut command = poundlock_bare();
    command
        .args(["stat", "--pid", &pid.to_string(), "--seconds", "0.1", "-o", "/dev/null", "--json"])
        .arg(&file);
    expect_status(&run_limited(&mut command, LIMIT), 0);
    parsed(&file)
}

/// The report on a command, and what that printed.
#[track_caller]
pub(crate) fn ran(options: &[&str], program: &Path) -> (Value, String) {
    let file = scratch().join("report.json");
    let mut command = poundlock_bare();
    command.args(["stat", "--futex", "-o", "/dev/null"]).args(options).arg("--json").arg(&file);
    let output = run_limited(command.arg("--").arg(program), LIMIT);
    expect_status(&output, 0);
    (parsed(&file), stdout(&output))
}

/// The class whose name has this in it.
#[track_caller]
pub(crate) fn class<'a>(report: &'a Value, name: &str) -> &'a Value {
    let named = |class: &&Value| class["name"].as_str().is_some_and(|of| of.contains(name));
    let found = list(report, "classes").iter().find(named);
    found.unwrap_or_else(|| panic!("no {name} in {:#}", report["classes"]))
}

/// Whether a stack has a line of the program with this mark.
fn leads_to(stack: &Value, source: &str, mark: &str) -> bool {
    let line = source.lines().position(|line| line.contains(mark)).expect("the source has the mark") + 1;
    let end = format!("program.c:{line})");
    stack.as_array().is_some_and(|frames| {
        frames.iter().any(|frame| frame.as_str().is_some_and(|text| text.ends_with(&end)))
    })
}

/// Of a program with frame pointers and of one without, linked to the C library and with it.
#[test]
fn a_command_is_seen_with_names_waits_and_wakers() {
    if !can_watch() {
        return;
    }
    for (flags, options) in [
        (&["-O1"][..], &[][..]),
        (&["-O1", "-fno-omit-frame-pointer"], &[]),
        (&["-O1", "-static"], &["--stacks", "dwarf"]),
    ] {
        let (report, printed) = ran(options, &compile_c(CONTENDED, flags));
        let truth: f64 = printed.trim().parse().expect("it prints its sum");
        let lock = class(&report, "busy (in program)");
        let about = format!("{flags:?}: {truth} {lock:#} {}", report["futex_calls"]);
        assert_eq!(report["futex_calls"]["lost"], 0, "{about}");
        assert_eq!(lock["kind"], "mutex", "{about}");
        let waited = number(&lock["wait_ns"], "total") as f64;
        // What it measures itself has its own calls and the way back from the kernel in it.
        assert!(waited > truth * 0.7 && waited < truth * 1.02, "{about}");
        assert!(
            lock["acquisitions"].is_null() && lock["hold_ns"].is_null(),
            "what is not seen is no zero: {about}"
        );
        assert!(
            list(lock, "sites").iter().any(|site| leads_to(&site["stack"], CONTENDED, "// waits")),
            "{about}"
        );
        let woken = list(lock, "woken_by");
        assert!(leads_to(&woken[0]["stack"], CONTENDED, "// wakes"), "{about}");
        let told: u64 = woken.iter().map(|waker| number(waker, "waited_ns")).sum();
        assert!(told as f64 > waited * 0.8, "{about}");
    }
}

/// Waits that began before, and go on.
#[test]
fn a_running_process_is_seen_as_it_waits() {
    if !can_watch() {
        return;
    }
    let target = Target::ready(&mut Command::new(kinds(&[])));
    crate::who::until_who(target.pid(), "all asleep", |document| crate::who::steady(document) >= 23);
    let report = watched(target.pid());
    let kinds: Vec<&str> =
        list(&report, "classes").iter().filter_map(|class| class["kind"].as_str()).collect();
    for kind in [
        "mutex",
        "mutex, priority-inheriting",
        "readers-writer lock, readers",
        "readers-writer lock, writers",
        "condition variable",
        "semaphore",
        "barrier",
        "end of a thread",
    ] {
        assert!(kinds.contains(&kind), "no {kind} in {kinds:?} {report:#}");
    }
    assert_eq!(report["ending"], "still running");
    let text = run_limited(
        poundlock_bare().args(["stat", "--pid", &target.pid().to_string(), "--for", "0.05"]),
        LIMIT,
    );
    expect_status(&text, 0);
    for part in ["not seen: acquisitions that do not sleep", "futex call", "Sleeping for locks took"] {
        assert!(stderr(&text).contains(part), "{part} is not in {}", stderr(&text));
    }
    assert!(!stderr(&text).contains("held avg"), "{}", stderr(&text));
}

/// A process that counts by itself is read.
#[test]
fn a_process_under_stat_is_read_and_exact() {
    let program = compile_c(
        "#include <pthread.h>\n#include <stdio.h>\n\
         static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n\
         int main(void) { char line[8]; pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); puts(\"ready\");\n\
         fflush(stdout); while (fgets(line, 8, stdin)) { for (int n = 0; n < 1000; n++) {\n\
         pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); } puts(\"again\"); fflush(stdout); } }\n",
        &[],
    );
    let mut command = poundlock();
    command.args(["stat", "-o", "/dev/null", "--"]).arg(program);
    let mut target = Target::ready(&mut command);
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let child = std::fs::read_to_string(children).expect("it lives");
    let child: u32 = child.split_whitespace().next().expect("a child").parse().expect("a number");
    let file = scratch().join("report.json");
    let mut stat = poundlock_bare();
    stat.args(["stat", "--pid", &child.to_string(), "-o", "/dev/null", "--json"]).arg(&file);
    stat.args(["--for", "1000"]);
    let mut watching = Target::start(&mut stat);
    // Until it has read what was there before, the process does nothing more.
    crate::support::until("a look", || {
        std::fs::read_dir(format!("/proc/{}/task", watching.pid())).is_ok_and(|tasks| tasks.count() > 1)
    });
    for _ in 0..3 {
        assert_eq!(target.ask(), "again");
    }
    // SAFETY: takes two numbers.
    assert_eq!(unsafe { libc::kill(watching.pid() as libc::pid_t, libc::SIGINT) }, 0);
    watching.end();
    let report = parsed(&file);
    assert!(report["futex_calls"].is_null(), "{report:#}");
    let acquired = number(class(&report, "lock (in program)"), "acquisitions");
    assert!((2000..=3001).contains(&acquired), "{acquired}: {report:#}");
}
