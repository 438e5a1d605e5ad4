//! What programs do under `poundlock check`: fork, become others, go to the background, hang, crash, are killed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{Checked, Example, checked, frames, text};
use crate::support::{
    LIMIT, await_sleep, compile_c, expect_status, list, parsed, poundlock, scratch, start, stderr,
};

/// Takes two locks in both orders, one after the other, in two threads; or in one, so that nothing is wrong.
const ORDERS: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *unused) {
    pthread_mutex_lock(&a);
    pthread_mutex_lock(&b); /* ONE */
    pthread_mutex_unlock(&b);
    pthread_mutex_unlock(&a);
    return unused;
}

static void *other(void *unused) {
    pthread_mutex_lock(&b);
    pthread_mutex_lock(&a); /* OTHER */
    pthread_mutex_unlock(&a);
    pthread_mutex_unlock(&b);
    return unused;
}

static void orders(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, one, NULL)) abort();
    pthread_join(thread, NULL);
    if (pthread_create(&thread, NULL, other, NULL)) abort();
    pthread_join(thread, NULL);
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}
"#;

fn program(main: &str) -> std::path::PathBuf {
    compile_c(&format!("{ORDERS}{main}"), &[])
}

fn line_of(mark: &str) -> String {
    let at = ORDERS.lines().position(|line| line.contains(mark)).expect("marked") + 1;
    format!("program.c:{at})")
}

#[track_caller]
fn run(program: &Path, arguments: &[&str], options: &[&str]) -> Checked {
    let line: Vec<&OsStr> =
        std::iter::once(program.as_os_str()).chain(arguments.iter().map(OsStr::new)).collect();
    checked(&mut poundlock(), options, &line)
}

/// The finding is that of [`ORDERS`].
#[track_caller]
fn is_orders(finding: &Value) {
    assert_eq!(finding["kind"], "order", "{finding:#}");
    for mark in ["/* ONE */", "/* OTHER */"] {
        let line = line_of(mark);
        assert!(frames(finding).iter().any(|frame| frame.ends_with(&line)), "{line}: {finding:#}");
    }
}

#[test]
fn output_input_and_status_are_the_programs() {
    let program = program(
        r#"int main(void) {
            char line[16];
            if (!fgets(line, sizeof line, stdin)) abort();
            printf("read %s", line);
            fputs("an error\n", stderr);
            orders();
            return 3;
        }"#,
    );
    let mut cmd = poundlock();
    cmd.args(["check", "--"]).arg(&program);
    let output = crate::support::run_limited_with_input(&mut cmd, b"a line\n", LIMIT);
    expect_status(&output, 3);
    assert_eq!(crate::support::stdout(&output), "read a line\n");
    assert!(stderr(&output).contains("an error\n") && stderr(&output).contains(&line_of("/* ONE */")));
}

/// A finding is told at once, while the program runs. The end has a line for it.
#[test]
fn a_finding_is_told_when_it_is_found() {
    let program = program("int main(void) { orders(); for (;;) pause(); }");
    let json = scratch().join("check.json");
    let mut cmd = poundlock();
    cmd.arg("check").arg("--json").arg(&json).arg("--").arg(&program);
    let mut running = start(&mut cmd);
    running.wait_for_error(&line_of("/* OTHER */"), LIMIT);
    running.kill(libc::SIGTERM);
    let output = running.finish(LIMIT);
    expect_status(&output, 143);
    let text = stderr(&output);
    let [found, end] =
        text.match_indices("are taken in both orders").map(|(at, _)| at).collect::<Vec<_>>()[..]
    else {
        panic!("{text}")
    };
    // The stacks come once.
    assert_eq!(text.matches("while it held").count(), 2, "{text}");
    let line = text[end..].lines().next().expect("a line");
    assert!(
        found < end && line.contains(&line_of("/* ONE */")) && line.contains(&line_of("/* OTHER */")),
        "{text}"
    );
    is_orders(&list(&parsed(&json), "findings")[0]);
}

/// What was found stays found, however the program ends.
#[test]
fn a_program_that_is_killed_has_its_findings() {
    let program = program(
        r#"int main(int argc, char **argv) {
            orders();
            raise(argc > 1 ? atoi(argv[1]) : SIGKILL);
            return 0;
        }"#,
    );
    for signal in [libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT] {
        let checked = run(&program, &[&signal.to_string()], &[]);
        assert_eq!(checked.status, Some(128 + signal), "{}", checked.report);
        is_orders(checked.only("order"));
    }
}

#[test]
fn children_are_checked_each_by_itself() {
    let program = program(
        r#"int main(int argc, char **argv) {
            (void)argv;
            if (argc > 1) {
                /* One order in the parent, and one in the child: they are not the same locks. */
                one(NULL);
                if (fork() == 0) { other(NULL); _exit(0); }
                wait(NULL);
                return 0;
            }
            for (int i = 0; i < 2; i++)
                if (fork() == 0) { orders(); _exit(0); }
            while (wait(NULL) > 0) {}
            return 0;
        }"#,
    );
    // The same lines in two processes are one finding, that was made twice.
    let checked = run(&program, &[], &[]);
    let finding = checked.only("order");
    is_orders(finding);
    assert_eq!(finding["count"], 2, "{finding:#}");
    run(&program, &["split"], &[]).nothing();
}

/// What a parent holds as it forks is the child's, unless processes share it: a gate at which children wait
/// is right.
#[test]
fn a_lock_that_processes_share_stays_the_parents() {
    let source = r#"#define _GNU_SOURCE
        #include <pthread.h>
        #include <semaphore.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/wait.h>
        #include <unistd.h>
        struct gate { pthread_mutex_t mutex; pthread_rwlock_t rwlock; sem_t semaphore; };
        int main(int argc, char **argv) {
            struct gate *gate = mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            const char *kind = argc > 1 ? argv[1] : "";
            pthread_mutexattr_t of_mutex;
            pthread_mutexattr_init(&of_mutex);
            pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
            if (!strcmp(kind, "robust")) pthread_mutexattr_setrobust(&of_mutex, PTHREAD_MUTEX_ROBUST);
            if (!strcmp(kind, "inherit")) pthread_mutexattr_setprotocol(&of_mutex, PTHREAD_PRIO_INHERIT);
            if (!strcmp(kind, "checked")) pthread_mutexattr_settype(&of_mutex, PTHREAD_MUTEX_ERRORCHECK);
            pthread_mutex_init(&gate->mutex, &of_mutex);
            pthread_rwlockattr_t of_rwlock;
            pthread_rwlockattr_init(&of_rwlock);
            pthread_rwlockattr_setpshared(&of_rwlock, PTHREAD_PROCESS_SHARED);
            pthread_rwlock_init(&gate->rwlock, &of_rwlock);
            sem_init(&gate->semaphore, 1, 1);
            int writes = !strcmp(kind, "writes"), reads = !strcmp(kind, "reads"), sems = !strcmp(kind, "semaphore");
            if (writes) pthread_rwlock_wrlock(&gate->rwlock);
            else if (reads) pthread_rwlock_rdlock(&gate->rwlock);
            else if (sems) sem_wait(&gate->semaphore);
            else pthread_mutex_lock(&gate->mutex);
            int ready[2];
            if (pipe(ready)) abort();
            for (int i = 0; i < 2; i++)
                if (fork() == 0) {
                    if (write(ready[1], "", 1) != 1) abort();
                    if (writes || reads) pthread_rwlock_wrlock(&gate->rwlock), pthread_rwlock_unlock(&gate->rwlock);
                    else if (sems) sem_wait(&gate->semaphore), sem_post(&gate->semaphore);
                    else if (pthread_mutex_lock(&gate->mutex) || pthread_mutex_unlock(&gate->mutex)) abort();
                    _exit(0);
                }
            for (int i = 0; i < 2; i++) { char byte; if (read(ready[0], &byte, 1) != 1) abort(); }
            /* Long enough for a standstill to be told. */
            usleep(300000);
            if (writes || reads) pthread_rwlock_unlock(&gate->rwlock);
            else if (sems) sem_post(&gate->semaphore);
            else pthread_mutex_unlock(&gate->mutex);
            for (int i = 0; i < 2; i++) { int status; if (wait(&status) < 0 || status) abort(); }
            return 0;
        }"#;
    let program = compile_c(source, &["-Wno-misleading-indentation", "-Wno-unused-value"]);
    for kind in ["plain", "robust", "inherit", "checked", "writes", "reads", "semaphore"] {
        let checked = run(&program, &[kind], &["--on-deadlock", "end"]);
        assert_eq!(checked.status, Some(0), "{kind}: {}", checked.report);
        assert!(checked.findings().is_empty(), "{kind}: {}", checked.report);
    }
}

/// A child that goes where the directory for findings cannot be reached has its file by then.
#[test]
fn a_child_that_locks_itself_in_is_checked() {
    let source = format!(
        "{ORDERS}{}",
        r#"#include <sched.h>
        int main(int argc, char **argv) {
            (void)argc;
            char jail[] = "/tmp/poundlock-jail-XXXXXX";
            if (!mkdtemp(jail)) abort();
            pid_t child = fork();
            if (child == 0) {
                if (geteuid() != 0 && unshare(CLONE_NEWUSER)) _exit(77);
                if (!strcmp(argv[1], "chroot") && (chroot(jail) || chdir("/"))) _exit(77);
                if (!strcmp(argv[1], "setuid") && setuid(65534)) _exit(77);
                if (!strcmp(argv[1], "setresuid") && setresuid(65534, 65534, 65534)) _exit(77);
                orders();
                _exit(0);
            }
            int status;
            if (waitpid(child, &status, 0) != child) abort();
            rmdir(jail);
            return WEXITSTATUS(status);
        }"#
    );
    let program = compile_c(&source, &["-D_GNU_SOURCE"]);
    for way in ["chroot", "setuid", "setresuid"] {
        let checked = run(&program, &[way], &[]);
        if checked.status == Some(77) {
            eprintln!("SKIPPED: {way} needs root, or user namespaces");
            continue;
        }
        assert_eq!(checked.status, Some(0), "{way}: {}", checked.report);
        is_orders(checked.only("order"));
    }
}

#[test]
fn a_program_that_becomes_another_keeps_its_findings() {
    let program = program(
        r#"int main(int argc, char **argv) {
            if (argc > 1) {
                if (!strcmp(argv[1], "first")) orders();
                execl(argv[0], argv[0], (char *)NULL);
                abort();
            }
            one(NULL);
            return 4;
        }"#,
    );
    let checked = run(&program, &["first"], &[]);
    assert_eq!(checked.status, Some(4), "{}", checked.report);
    is_orders(checked.only("order"));
    run(&program, &["nothing"], &[]).nothing();
}

#[test]
fn a_program_that_is_started_by_a_shell_is_checked() {
    let program = program("int main(void) { orders(); return 0; }");
    let script = format!("{} && {} && exit 5", program.display(), program.display());
    let checked = run(Path::new("sh"), &["-c", &script], &[]);
    assert_eq!(checked.status, Some(5), "{}", checked.report);
    let finding = checked.only("order");
    is_orders(finding);
    assert_eq!(finding["count"], 2, "{finding:#}");
}

/// A daemon is followed until it ends: its last thread, which need not be the first.
#[test]
fn daemons_are_followed() {
    let program = program(
        r#"static void *rest(void *go) {
            char state = 0;
            while (state != 'Z' || access(go, F_OK) != 0) {
                FILE *file = fopen("/proc/self/stat", "r");
                if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) abort();
                fclose(file);
                usleep(1000);
            }
            orders();
            return NULL;
        }

        int main(int argc, char **argv) {
            pthread_t thread;
            for (int i = 0; i < 5; i++) if (fork() > 0) _exit(0);
            setsid();
            if (fork() > 0) _exit(0);
            if (argc > 1) {
                pthread_create(&thread, NULL, rest, argv[1]);
                pthread_exit(NULL);
            }
            orders();
            return 0;
        }"#,
    );
    let checked = run(&program, &[], &[]);
    assert_eq!(checked.status, Some(0), "{}", checked.report);
    is_orders(checked.only("order"));

    let (go, json) = (scratch().join("go"), scratch().join("check.json"));
    let mut cmd = poundlock();
    cmd.args(["check", "--json"]).arg(&json).arg("--").arg(&program).arg(&go);
    let mut running = start(&mut cmd);
    running.wait_for_error("goes on in the background and is followed", LIMIT);
    std::fs::write(&go, "").expect("a file");
    expect_status(&running.finish(LIMIT), 0);
    let document = parsed(&json);
    let findings = list(&document, "findings");
    assert_eq!(findings.len(), 1, "{document:#}");
    is_orders(&findings[0]);
}

/// Two threads that wait for each other are told of while they do, and the program goes on.
#[test]
fn a_deadlock_is_told_at_once() {
    let example = Example::compile("deadlock");
    let json = scratch().join("check.json");
    let mut cmd = poundlock();
    cmd.args(["check", "--on-deadlock", "report", "--json"]).arg(&json).arg("--").arg(&example.program);
    let mut running = start(&mut cmd);
    running.wait_for_error("check: deadlock:", LIMIT);
    running.kill(libc::SIGINT);
    let output = running.finish(LIMIT);
    expect_status(&output, 130);
    let document = parsed(&json);
    let kinds: Vec<_> = list(&document, "findings").iter().map(|finding| text(&finding["kind"])).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "deadlock").count(), 1, "{document:#}");
}

/// With `--on-deadlock end` the command ends the program, with a status of its own.
#[test]
fn a_deadlock_ends_the_program_if_that_is_asked_for() {
    for name in ["deadlock", "deadlock-join", "relock"] {
        let checked = Example::compile(name).check(&[]);
        assert_eq!(checked.status, Some(DEADLOCKED), "{name}: {}", checked.report);
    }
}

/// The status of a program that was ended.
const DEADLOCKED: i32 = 98;

/// More threads than two, readers and writers, and waits that end by themselves.
const RINGS: &str = concat!(
    "#define _GNU_SOURCE\n",
    await_sleep!(),
    r#"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t lock[4] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER };
static pthread_rwlock_t shared[2] = { PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER };
static pthread_barrier_t all;
static int count, timed;

static struct timespec soon(void) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 300 * 1000 * 1000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return end;
}

static void *link_of(void *argument) {
    int me = (int)(long)argument;
    pthread_mutex_lock(&lock[me]); /* HELD */
    pthread_barrier_wait(&all);
    if (timed && me == 0) {
        struct timespec end = soon();
        if (pthread_mutex_timedlock(&lock[1 % count], &end) != ETIMEDOUT) abort();
    } else {
        pthread_mutex_lock(&lock[(me + 1) % count]); /* WANTED */
        pthread_mutex_unlock(&lock[(me + 1) % count]);
    }
    pthread_mutex_unlock(&lock[me]);
    return NULL;
}

static void *writer_of(void *argument) {
    int me = (int)(long)argument;
    pthread_rwlock_rdlock(&shared[me]); /* HELD */
    pthread_barrier_wait(&all);
    if (timed && me == 0) {
        struct timespec end = soon();
        if (pthread_rwlock_timedwrlock(&shared[!me], &end) != ETIMEDOUT) abort();
    } else {
        pthread_rwlock_wrlock(&shared[!me]); /* WANTED */
        pthread_rwlock_unlock(&shared[!me]);
    }
    pthread_rwlock_unlock(&shared[me]);
    return NULL;
}

static void *taker(void *unused) {
    pthread_mutex_lock(&lock[0]);
    pthread_mutex_unlock(&lock[0]);
    return unused;
}

static void ring(void *body(void *)) {
    pthread_t thread[4];
    pthread_barrier_init(&all, NULL, (unsigned)count);
    for (long i = 0; i < count; i++) pthread_create(&thread[i], NULL, body, (void *)i);
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
}

int main(int argc, char **argv) {
    if (argc < 3) abort();
    timed = !strcmp(argv[1], "timed");
    count = atoi(argv[2]);
    ring(!strcmp(argv[1], "writers") ? writer_of : link_of);
    if (timed) {
        count = 2;
        ring(writer_of);
        pthread_t thread;
        pthread_mutex_lock(&lock[0]);
        pthread_create(&thread, NULL, taker, NULL);
        struct timespec end = soon();
        if (pthread_timedjoin_np(thread, NULL, &end) != ETIMEDOUT) abort();
        pthread_mutex_unlock(&lock[0]);
        pthread_join(thread, NULL);
    }
    return 0;
}
"#
);

#[test]
fn deadlocks_of_every_size_and_sort_are_told() {
    let program = compile_c(RINGS, &["-Wno-unused-function"]);
    for (sort, threads) in [("mutexes", "2"), ("mutexes", "3"), ("mutexes", "4"), ("writers", "2")] {
        let checked = run(&program, &[sort, threads], &["--kind", "deadlock", "--on-deadlock", "end"]);
        assert_eq!(checked.status, Some(DEADLOCKED), "{sort} {threads}: {}", checked.report);
        let finding = checked.only("deadlock");
        let at = |mark: &str| {
            // Mutexes come before readers-writer locks.
            let mut lines = RINGS.lines().zip(1..).filter(|(line, _)| line.contains(mark)).map(|(_, at)| at);
            let line = if sort == "writers" { lines.last() } else { lines.next() }.expect("marked");
            format!("program.c:{line})")
        };
        for mark in ["/* HELD */", "/* WANTED */"] {
            let named = frames(finding).iter().filter(|frame| frame.ends_with(&at(mark))).count();
            assert_eq!(named.to_string(), threads, "{sort}: {mark} {}: {finding:#}", at(mark));
        }
    }
    // It is no deadlock if one of them gives up; that the order is wrong stays true.
    let locks = [
        &[][..],
        &["--lock", "poundlock"],
        &["--lock", "any-negative", "--rwlock", "phase-fair"],
        &["--lock", "handoff", "--rwlock", "glibc"],
    ];
    for locks in locks {
        let checked = run(&program, &["timed", "3"], &[&["--on-deadlock", "end"], locks].concat());
        assert_eq!(checked.status, Some(0), "{locks:?}: {}", checked.report);
        assert!(!checked.kinds().contains(&"deadlock"), "{locks:?}: {}", checked.report);
    }
}

/// However soon they end; and those of a parent that forked.
#[test]
fn threads_are_called_by_their_names() {
    let source = format!(
        "#define _GNU_SOURCE\n{ORDERS}{}",
        r#"#include <errno.h>
        static pthread_mutex_t lent = PTHREAD_MUTEX_INITIALIZER, kept = PTHREAD_MUTEX_INITIALIZER;
        static pthread_barrier_t both;
        static void *named_one(void *unused) {
            pthread_setname_np(pthread_self(), "giver");
            return one(unused);
        }
        static void *named_other(void *unused) {
            pthread_setname_np(pthread_self(), "taker");
            return other(unused);
        }
        // Has done nothing that is told of, but to have two locks.
        static void *lender(void *unused) {
            pthread_setname_np(pthread_self(), "lender");
            pthread_mutex_lock(&lent);
            pthread_barrier_wait(&both);
            pthread_barrier_wait(&both);
            return unused;
        }
        static void *keeper(void *unused) {
            pthread_setname_np(pthread_self(), "keeper");
            pthread_mutex_lock(&kept);
            pthread_barrier_wait(&both);
            pthread_barrier_wait(&both);
            pthread_mutex_unlock(&kept);
            return unused;
        }
        static void begin(void *body(void *), pthread_t *thread) {
            if (pthread_create(thread, NULL, body, NULL)) abort();
        }
        int main(void) {
            pthread_t thread;
            begin(named_one, &thread);
            pthread_join(thread, NULL);
            begin(named_other, &thread);
            pthread_join(thread, NULL);
            pthread_barrier_init(&both, NULL, 2);
            begin(lender, &thread);
            pthread_barrier_wait(&both);
            pthread_mutex_unlock(&lent);
            pthread_barrier_wait(&both);
            pthread_join(thread, NULL);
            begin(keeper, &thread);
            pthread_barrier_wait(&both);
            pid_t child = fork();
            if (child == 0) {
                struct timespec past = { 0 };
                _exit(pthread_mutex_timedlock(&kept, &past) != ETIMEDOUT);
            }
            int status;
            if (waitpid(child, &status, 0) != child || status) abort();
            pthread_barrier_wait(&both);
            pthread_join(thread, NULL);
            return 0;
        }"#
    );
    let program = compile_c(&source, &["-Wno-unused-function"]);
    let checked = run(&program, &[], &[]);
    assert_eq!(checked.status, Some(0), "{}", checked.report);
    for (kind, names) in
        [("order", &["giver", "taker"][..]), ("unlock-other", &["lender"]), ("fork-held", &["keeper"])]
    {
        let of_kind = |finding: &&Value| finding["kind"] == kind;
        let finding = checked.findings().iter().find(of_kind).unwrap_or_else(|| panic!("{}", checked.report));
        let threads: Vec<&str> =
            list(finding, "threads").iter().map(|thread| text(&thread["name"])).collect();
        for name in names {
            assert!(threads.contains(name), "{kind}: {threads:?}\n{}", checked.report);
        }
    }
}

/// A library that is gone when it is told of has the names that it had, wherever it was each time. In between
/// are locks that lie in no file, so that there was nothing to be found about the last ones.
#[test]
fn a_library_that_was_closed_has_names() {
    let dir = scratch();
    let library = dir.join("libplugin.so");
    let source = dir.join("plugin.c");
    std::fs::write(&source, format!("{ORDERS}void plugin(void) {{ orders(); }}\n")).expect("written");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-g", "-shared", "-fPIC", "-pthread", "-Wno-unused-function"]).arg(&source);
    crate::support::build(&mut cc, &source, &library);
    let program = compile_c(
        r#"#include <dlfcn.h>
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        int main(int argc, char **argv) {
            if (argc < 2) abort();
            for (int i = 0; i < 3; i++) {
                pthread_mutex_t *lock = malloc(sizeof *lock);
                pthread_mutex_init(lock, NULL);
                pthread_mutex_lock(lock);
                pthread_mutex_unlock(lock);
                void *library = dlopen(argv[1], RTLD_NOW);
                if (!library) abort();
                void (*plugin)(void) = (void (*)(void))dlsym(library, "plugin");
                plugin();
                Dl_info info;
                if (!dladdr(plugin, &info) || dlclose(library)) abort();
                mmap(info.dli_fbase, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            }
            return 0;
        }"#,
        &["-ldl", "-D_GNU_SOURCE"],
    );
    let checked = run(&program, &[library.to_str().expect("UTF-8")], &[]);
    let finding = checked.only("order");
    let line = line_of("/* ONE */").replace("program.c", "plugin.c");
    assert!(frames(finding).iter().any(|frame| frame.ends_with(&line)), "{line}: {finding:#}");
}

/// Locks come and go, threads too; nothing is wrong, and nothing is left out.
#[test]
fn many_threads_and_many_locks() {
    let program = compile_c(
        r#"#include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        enum { THREADS = 2000, EACH = 50 };
        static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
        static void *body(void *unused) {
            pthread_mutex_t *inner = malloc(EACH * sizeof *inner);
            for (int i = 0; i < EACH; i++) pthread_mutex_init(&inner[i], NULL);
            for (int i = 0; i < EACH; i++) {
                pthread_mutex_lock(&outer);
                pthread_mutex_lock(&inner[i]);
                pthread_mutex_unlock(&inner[i]);
                pthread_mutex_unlock(&outer);
            }
            for (int i = 0; i < EACH; i++) pthread_mutex_destroy(&inner[i]);
            free(inner);
            return unused;
        }
        int main(void) {
            for (int i = 0; i < THREADS; i++) {
                pthread_t thread;
                if (pthread_create(&thread, NULL, body, NULL)) abort();
                pthread_join(thread, NULL);
            }
            return 0;
        }"#,
        &[],
    );
    let checked = run(&program, &[], &[]);
    assert_eq!(checked.status, Some(0), "{}", checked.report);
    checked.nothing();
    let unseen = checked.json["unseen"].as_object().expect("what found no room");
    let is_nothing = |what: &Value| what.as_u64() == Some(0) || what.as_array().is_some_and(Vec::is_empty);
    assert!(unseen.values().all(is_nothing), "{unseen:?}");
}

/// What cannot be helped is not started, as under the other commands.
#[test]
fn a_program_that_cannot_be_helped_is_not_started() {
    let program =
        compile_c("#include <stdio.h>\nint main(void) { puts(\"ran\"); return 0; }\n", &["-static"]);
    let mut cmd = poundlock();
    cmd.args(["check", "--"]).arg(&program).stdin(Stdio::null());
    let output = crate::support::run_limited(&mut cmd, LIMIT);
    expect_status(&output, 126);
    assert!(output.stdout.is_empty());
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    let output = crate::support::run_limited(poundlock().args(["check", "--", "/no/such/program"]), LIMIT);
    expect_status(&output, 127);
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

/// Locks that are no pthread locks are not checked: the verdict says so, and what shows them.
#[test]
fn a_program_whose_locks_are_not_seen_gets_no_verdict() {
    let nothing = checked(&mut poundlock(), &[], &[OsStr::new("true")]);
    assert!(
        nothing.report.contains("no verdict: no lock that can be checked was used"),
        "{}",
        nothing.report
    );
    assert_eq!(nothing.status, Some(0));

    let own_lock = compile_c(include_str!("../../../../tests/stat/ownlock.c"), &[]);
    let rust = std::env::current_exe().expect("it is there");
    let of_rust = ["--exact", "who::languages::rust_target", "--nocapture", "--test-threads=1"];
    let json = scratch().join("check.json");
    let run = |line: &[&OsStr], ended: i32, lasts: std::time::Duration| {
        let mut cmd = poundlock();
        cmd.env("COLUMNS", "1000").env(crate::who::languages::TARGET, "1");
        cmd.args(["check", "--error-exitcode", "9", "--json"]).arg(&json).arg("--").args(line);
        let mut running = start(cmd.stdin(Stdio::piped()));
        std::thread::sleep(lasts);
        if ended == 0 {
            running.write_input(b"");
        } else {
            running.kill(ended);
        }
        (running.finish(LIMIT), parsed(&json))
    };
    let arguments = of_rust.map(OsStr::new);
    let rust = [&[rust.as_os_str()][..], &arguments].concat();
    for (line, ended, status, locks) in [
        (&[own_lock.as_os_str()][..], 0, 97, "locks of its own"),
        (&rust, libc::SIGTERM, 143, "the locks of Rust's std"),
    ] {
        // How soon the sleeps are seen depends on the machine: it runs longer until they are.
        let mut lasts = std::time::Duration::from_millis(500);
        let (output, report) = loop {
            let (output, report) = run(line, ended, lasts);
            let seen = list(&report["unseen"], "locks_of").iter().any(|of| of["sleepers"].as_u64() > Some(1));
            if seen {
                break (output, report);
            }
            lasts *= 2;
            assert!(lasts.as_secs() < LIMIT, "{report:#}");
        };
        expect_status(&output, status);
        let text = stderr(&output);
        for part in ["no verdict: some locks are not checked", locks, "poundlock who PID", "stat --futex -- "]
        {
            assert!(text.contains(part), "{part} is not in {text}\n{report:#}");
        }
        assert!(list(&report, "findings").is_empty() && !text.contains("check: nothing found"), "{text}");
    }
}
