//! `poundlock stat`: what its table and its JSON say about programs whose locks are known.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::{
    LIMIT, await_sleep, compile_c, compile_cpp, expect_status, list, number, parsed, poundlock, run_limited,
    scratch, stack, stderr,
};
use serde_json::Value;

const LOCKS: [&str; 5] = ["poundlock", "any-negative", "baseline", "handoff", "glibc"];

/// A program with known locks. `static_lock` is taken 4 x 1000 times, one on the heap 4 x 500 times. Then the
/// main thread holds `static_lock` until the kernel says that a second thread sleeps, which is how a wait
/// looks.
///
/// Its first argument tells how to end: with an exit status, or by that signal if it is negative. With a
/// second one it first says so and waits for a signal.
const PROGRAM: &str = concat!(
    await_sleep!(),
    r#"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static pthread_mutex_t static_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { int id; union { struct { int n; pthread_mutex_t lock; }; char bytes[64]; } part[2][3]; } parts;
static pthread_mutex_t *heap_lock;
static int waiter_tid;

static void make_heap_lock(void) {
    heap_lock = malloc(sizeof *heap_lock);
    pthread_mutex_init(heap_lock, NULL); /* INIT */
}

static void *many(void *unused) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&static_lock);
        pthread_mutex_unlock(&static_lock);
        if (i % 2) {
            pthread_mutex_lock(heap_lock);
            pthread_mutex_unlock(heap_lock);
        }
    }
    return unused;
}

__attribute__((noinline)) static void wait_for_it(void) {
    pthread_mutex_lock(&static_lock); /* WAIT */
    pthread_mutex_unlock(&static_lock);
}

static void *waiter(void *unused) {
    __atomic_store_n(&waiter_tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    wait_for_it();
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread[4];
    make_heap_lock();
    pthread_mutex_lock(&parts.part[1][2].lock);
    pthread_mutex_unlock(&parts.part[1][2].lock);
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, many, NULL);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);

    pthread_mutex_lock(&static_lock);
    pthread_create(&thread[0], NULL, waiter, NULL);
    await_sleep(&waiter_tid);
    pthread_mutex_unlock(&static_lock);
    pthread_join(thread[0], NULL);

    int end = argc > 1 ? atoi(argv[1]) : 0;
    if (argc > 2) {
        puts("ready");
        fflush(stdout);
        for (;;) pause();
    }
    if (end == -SIGABRT) abort();
    if (end == -SIGSEGV) *(volatile int *)0 = 0;
    if (end < 0) raise(-end);
    return end;
}
"#
);

/// Acquisitions of `static_lock`: the four threads', main's and the waiter's.
const STATIC_ACQUISITIONS: u64 = 4 * 1000 + 2;
const HEAP_ACQUISITIONS: u64 = 4 * 500;

fn line_of(mark: &str) -> String {
    let line = PROGRAM.lines().position(|line| line.contains(mark)).expect("the program has the mark") + 1;
    format!("program.c:{line})")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is no text in {value}"))
}

fn locks(document: &Value) -> &[Value] {
    document["locks"].as_array().unwrap_or_else(|| panic!("no locks in {document}"))
}

#[track_caller]
fn only<'a>(document: &'a Value, what: &str, wanted: impl Fn(&Value) -> bool) -> &'a Value {
    let found: Vec<&Value> = locks(document).iter().filter(|lock| wanted(lock)).collect();
    assert_eq!(found.len(), 1, "{} locks are {what} in {document:#}", found.len());
    found[0]
}

fn variable_is(name: &str) -> impl Fn(&Value) -> bool {
    move |lock| lock["variable"].as_str().is_some_and(|variable| variable == format!("{name} (in program)"))
}

/// The keys that the format promises, with their types.
#[track_caller]
fn check_schema(document: &Value) {
    assert!(
        document["command"].as_array().is_some_and(|words| words.iter().all(Value::is_string)),
        "{document}"
    );
    assert_eq!(number(document, "version"), 5);
    text(document, "lock");
    text(document, "spinlock");
    text(document, "rwlock");
    number(document, "wall_ns");
    let threads = number(document, "threads");
    assert!(number(document, "locking_threads") <= threads, "{document:#}");
    // glibc's locks have no events; all others do, once they have gone their slow paths.
    for key in ["events", "durations"] {
        let empty = document[key].as_array().map(Vec::is_empty);
        assert!(
            empty.is_some() && (empty == Some(true) || text(document, "lock") != "glibc"),
            "{document:#}"
        );
    }
    let ran_on = document["ran_on"].as_array().unwrap_or_else(|| panic!("no ran_on in {document}"));
    for on in ran_on {
        for key in ["mutex", "spinlock", "rwlock"] {
            text(on, key);
        }
        assert!(on["programs"].as_array().is_some_and(|names| names.iter().all(Value::is_string)), "{on}");
    }
    // Nor are there semaphore arrays (`semaphores.rs`).
    assert_eq!(
        (&document["arrays"], &document["dropped_arrays"]),
        (&Value::Array(Vec::new()), &Value::from(false))
    );
    for lock in locks(document) {
        let address = text(lock, "address").strip_prefix("0x").expect("addresses are hexadecimal");
        u64::from_str_radix(address, 16).expect("addresses are hexadecimal");
        text(lock, "kind");
        text(lock, "created_at");
        let (acquisitions, contended) = (number(lock, "acquisitions"), number(lock, "contended"));
        assert!(acquisitions > 0 || contended > 0, "{lock}");
        for key in ["wait_ns", "hold_ns"] {
            assert!(number(&lock[key], "total") >= number(&lock[key], "max"), "{lock}");
        }
        if contended == 0 {
            assert_eq!(number(&lock["wait_ns"], "total"), 0, "{lock}");
        }
        let sites = lock["sites"].as_array().unwrap_or_else(|| panic!("no sites in {lock}"));
        for site in sites {
            assert!(!stack(document, site).is_empty(), "{site}");
            number(site, "contended");
            number(site, "wait_ns");
        }
    }
    let classes = list(document, "classes");
    let waits: Vec<u64> = classes.iter().map(|class| number(&class["wait_ns"], "total")).collect();
    assert!(waits.is_sorted_by(|a, b| a >= b), "not most waiting first: {waits:?}");
    // Each lock is in a class.
    for key in ["acquisitions", "contended"] {
        let sum = |of: &[Value]| of.iter().map(|one| number(one, key)).sum::<u64>();
        assert_eq!(sum(classes), sum(locks(document)), "{key}: {document:#}");
    }
}

/// Checks the figures of [`PROGRAM`], all of which are known but for the times.
#[track_caller]
fn check_program(document: &Value, lock: &str) {
    check_schema(document);
    assert_eq!(text(document, "lock"), lock);
    // Four threads, the waiter and main.
    assert_eq!(number(document, "threads"), 6, "{document:#}");
    assert!(number(document, "wall_ns") > 0);

    let fixed = only(document, "static_lock", variable_is("static_lock"));
    assert_eq!(text(fixed, "kind"), "mutex");
    assert_eq!(number(fixed, "acquisitions"), STATIC_ACQUISITIONS);
    assert!(number(fixed, "contended") >= 1, "{fixed:#}");
    // Main saw the waiter sleep twice, a millisecond apart, and held the lock all the while.
    assert!(number(&fixed["wait_ns"], "max") >= 1_000_000, "{fixed:#}");
    assert!(number(&fixed["hold_ns"], "max") >= 1_000_000, "{fixed:#}");
    let declared_at = PROGRAM.lines().position(|line| line.contains(" static_lock =")).expect("declared") + 1;
    assert!(text(fixed, "created_at").ends_with(&format!("program.c:{declared_at}")), "{fixed:#}");
    let frame = |site: &Value, index: usize| stack(document, site)[index].to_owned();
    let waited = fixed["sites"].as_array().expect("checked").iter().find(|site| {
        frame(site, 0).starts_with("wait_for_it (") && frame(site, 0).ends_with(&line_of("/* WAIT */"))
    });
    let waited = waited.unwrap_or_else(|| panic!("no wait in wait_for_it: {fixed:#}"));
    assert!(frame(waited, 1).starts_with("waiter ("), "{waited:#}");
    assert_eq!(number(waited, "contended"), 1);
    assert!(number(waited, "wait_ns") >= 1_000_000, "{waited:#}");

    let made = only(document, "made by make_heap_lock", |lock| {
        lock["created_at"]
            .as_str()
            .is_some_and(|at| at.starts_with("make_heap_lock (") && at.ends_with(&line_of("/* INIT */")))
    });
    assert_eq!(number(made, "acquisitions"), HEAP_ACQUISITIONS);

    let part = only(document, "a part", variable_is("parts.part[1][2].lock"));
    assert_eq!((number(part, "acquisitions"), number(part, "contended")), (1, 0));
}

fn json_path() -> PathBuf {
    scratch().join("report.json")
}

/// Runs a command under `stat`, which is to end so: its output, and the JSON.
#[track_caller]
fn measured(options: &[&str], command: &[&OsStr], code: i32) -> (Output, Value) {
    let json = json_path();
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "400")
        .args(["stat", "--each", "--events", "--json"])
        .arg(&json)
        .args(options)
        .arg("--")
        .args(command);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, code);
    let document = parsed(&json);
    check_schema(&document);
    (output, document)
}

/// Runs a program under `stat`: its report for a reader, and the JSON.
#[track_caller]
fn stat(options: &[&str], program: &Path) -> (String, Value) {
    let (output, document) = measured(options, &[program.as_os_str()], 0);
    (stderr(&output), document)
}

#[test]
fn every_figure_of_a_known_program_is_right() {
    let program = compile_c(PROGRAM, &[]);
    for lock in LOCKS {
        let json = json_path();
        let mut cmd = poundlock();
        cmd.env("COLUMNS", "400")
            .args(["stat", "--each", "--events", "--lock", lock, "--json"])
            .arg(&json)
            .arg("--")
            .arg(&program);
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        assert!(output.stdout.is_empty(), "stat wrote to standard output");
        let document = parsed(&json);
        check_program(&document, lock);
        assert_eq!(document["command"], serde_json::json!([program]));
        // The table says the same.
        let table = stderr(&output);
        for expected in [
            "static_lock (in program)",
            "parts.part[1][2].lock (in program)",
            "make_heap_lock (",
            "4002",
            "wait_for_it (",
        ] {
            assert!(table.contains(expected), "no {expected:?} in\n{table}");
        }
        // The one wait was ended by handing over, or by waking the sleeper; nobody else may have waited.
        let events = document["events"].as_array().map_or(&[][..], Vec::as_slice);
        let count = |name: &str| {
            events.iter().find(|event| event["name"] == name).map_or(0, |event| number(event, "count"))
        };
        assert_eq!(count("hand-overs") > 0, lock == "handoff", "{document:#}");
        assert_eq!(table.contains("hand-off mutex events"), lock == "handoff", "{table}");
        let wakes = ["poundlock", "any-negative", "baseline"].contains(&lock);
        assert_eq!(table.lines().any(|line| line.starts_with("mutex events ")), wakes, "{table}");
        for name in ["calls that found it held", "sleeps until woken"] {
            assert_eq!(count(name) > 0, wakes, "{lock}, {name:?}: {document:#}");
        }
        let served = count("sleepers woken") + count("handed to a sleeper");
        assert_eq!(served > 0, wakes, "{lock}: {document:#}");
        // Nothing but the JSON was left beside it.
        let names: Vec<_> =
            std::fs::read_dir(json.parent().expect("a directory")).expect("it is there").collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}

#[test]
fn a_lock_inside_templates_is_shown_at_the_programs_own_line() {
    let source = concat!(
        await_sleep!(),
        r#"
        #include <mutex>
        #include <thread>
        namespace app {
        template <class T> struct Store {
            T value;
            std::mutex lock;
            __attribute__((noinline)) void put(T v) {
                std::lock_guard<std::mutex> guard(lock); // WAIT
                value = v;
            }
        };
        Store<long> stores[4];
        }
        static int tid;
        int main() {
            app::stores[2].lock.lock();
            std::thread waiter([] { __atomic_store_n(&tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST); app::stores[2].put(1); });
            await_sleep(&tid);
            app::stores[2].lock.unlock();
            waiter.join();
        }
    "#
    );
    let line = source.lines().position(|line| line.contains("// WAIT")).expect("marked") + 1;
    let (table, document) = stat(&[], &compile_cpp(source, &[]));
    let lock = only(&document, "app::stores[2].lock", variable_is("app::stores[2].lock"));
    assert_eq!(number(lock, "contended"), 1);
    let stack = stack(&document, &lock["sites"][0]);
    let own = stack.iter().position(|frame| frame.starts_with("app::Store<long>::put ("));
    let own = own.unwrap_or_else(|| panic!("{stack:#?}"));
    assert!(stack[own].ends_with(&format!("program.cpp:{line})")), "{stack:#?}");
    assert!(own > 0, "what was inlined into it comes before it: {stack:#?}");
    // In the table it comes first.
    assert!(table.contains(" in 1 wait, at app::Store<long>::put ("), "{table}");
    assert!(!table.contains("lock_guard"), "{table}");
}

#[test]
fn the_table_is_as_long_as_it_was_asked_for_and_the_json_is_whole() {
    let program = compile_c(PROGRAM, &[]);
    let (table, document) = stat(&["--top", "1"], &program);
    assert!(table.contains("static_lock (in program)"), "{table}");
    assert!(!table.contains("parts.part[1][2].lock"), "{table}");
    check_program(&document, "glibc");
    let more = locks(&document).iter().filter(|lock| lock["kind"] == "mutex").count() - 1;
    assert!(table.contains(&format!("and {more} more lock")), "{table}");

    let (all, _) = stat(&["--top", "0"], &program);
    assert!(all.contains("parts.part[1][2].lock") && !all.contains(" more lock"), "{all}");
}

#[test]
fn a_command_that_dies_leaves_its_report() {
    let program = compile_c(PROGRAM, &[]);
    for lock in ["poundlock", "any-negative", "glibc"] {
        for (end, code, words) in [
            ("7", 7, "exit status 7"),
            ("-6", 134, "killed by SIGABRT"),
            ("-11", 139, "killed by SIGSEGV"),
            ("-9", 137, "killed by SIGKILL"),
            ("-15", 143, "killed by SIGTERM"),
        ] {
            let command = [program.as_os_str(), end.as_ref()];
            let (output, document) = measured(&["--lock", lock], &command, code);
            assert!(stderr(&output).contains(words), "no {words:?} in\n{}", stderr(&output));
            check_program(&document, lock);
        }
    }
}

#[test]
fn a_signal_to_stat_ends_the_command_and_not_the_report() {
    let program = compile_c(PROGRAM, &[]);
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        for whole_group in [false, true] {
            let json = json_path();
            let mut cmd = poundlock();
            cmd.args(["stat", "--each", "--json"]).arg(&json).arg("--").arg(&program).args(["0", "wait"]);
            let mut running = crate::support::start(&mut cmd);
            running.wait_for_output("ready", LIMIT);
            if whole_group {
                running.kill_group(signal)
            } else {
                running.kill(signal)
            }
            let output = running.finish(LIMIT);
            expect_status(&output, code);
            assert_eq!(output.stdout, b"ready\n");
            check_program(&parsed(&json), "glibc");
        }
    }
}

#[test]
fn all_processes_of_a_command_are_in_one_report() {
    let program = compile_c(PROGRAM, &[]);
    let script = r#""$0"; "$0" 3"#;
    let command = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str()];
    let (output, document) = measured(&[], &command, 3);
    let fixed: Vec<&Value> =
        locks(&document).iter().filter(|lock| variable_is("static_lock")(lock)).collect();
    assert_eq!(fixed.len(), 2, "{document:#}");
    let pids: Vec<u64> = fixed.iter().map(|lock| number(lock, "pid")).collect();
    assert_ne!(pids[0], pids[1]);
    for lock in fixed {
        assert_eq!(number(lock, "acquisitions"), STATIC_ACQUISITIONS);
    }
    let table = stderr(&output);
    for pid in pids {
        assert!(table.contains(&format!("static_lock (in program) [pid {pid}]")), "{table}");
    }
    assert_eq!(list(&document, "processes").len() as u64, 3, "the shell and both programs");
}

#[test]
fn the_commands_own_output_is_untouched() {
    let mut cmd = poundlock();
    cmd.args(["stat", "--", "sh", "-c", "printf out; printf err >&2; exit 5"]);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 5);
    assert_eq!(output.stdout, b"out");
    assert!(stderr(&output).starts_with("err\npoundlock stat: sh -c "), "{}", stderr(&output));
}

#[test]
fn a_command_that_is_not_started_has_no_report() {
    let json = json_path();
    for (command, code) in [("no-such-command", 127), ("/", 126)] {
        let mut cmd = poundlock();
        cmd.args(["stat", "--json"]).arg(&json).args(["--", command]);
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, code);
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).starts_with("poundlock: "), "{}", stderr(&output));
    }
    let left: Vec<_> = std::fs::read_dir(json.parent().expect("a directory")).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_report_that_cannot_be_written_is_found_out_before_the_command_runs() {
    let dir = scratch();
    let trace = dir.join("ran");
    let file = dir.join("file");
    std::fs::write(&file, "").expect("a file can be written");
    for json in [dir.join("no/such/directory.json"), dir.clone(), file.join("below-a-file.json")] {
        let mut cmd = poundlock();
        cmd.args(["stat", "--json"]).arg(&json).args(["--", "touch"]).arg(&trace);
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 125);
        assert!(!trace.exists(), "the command ran");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(
            stderr(&output).starts_with("poundlock: ")
                && stderr(&output).contains(json.to_str().expect("UTF-8"))
        );
    }
}

#[test]
fn an_old_report_stays_until_the_new_one_is_whole() {
    let dir = scratch();
    let (json, link) = (dir.join("report.json"), dir.join("link.json"));
    std::fs::write(&json, "old").expect("a file can be written");
    std::os::unix::fs::symlink("report.json", &link).expect("a link can be made");
    let mut cmd = poundlock();
    cmd.args(["stat", "--each", "--json"]).arg(&link).args(["--", "cat"]).arg(&json);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    assert_eq!(output.stdout, b"old", "while the command ran");
    check_schema(&parsed(&json));
    assert!(link.symlink_metadata().expect("it is still there").is_symlink());

    // A pipe is written to, not replaced.
    let output =
        run_limited(poundlock().args(["stat", "--each", "--json", "/dev/stdout", "--", "true"]), LIMIT);
    expect_status(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).expect("the report");
    check_schema(&document);
}

#[test]
fn what_was_not_measured_is_said() {
    // It starts, and then becomes a program that our library is kept from.
    let script = r#"unset LD_PRELOAD; exec "$0""#;
    let program = compile_c(PROGRAM, &[]);
    let command = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str()];
    let (output, document) = measured(&[], &command, 0);
    let table = stderr(&output);
    assert!(table.contains("No lock that is counted was used."), "{table}");
    // Whoever slept long for its locks has the view from outside instead.
    let says = table.contains("never counted: ") && table.contains("programs without our library");
    assert!(says || table.contains("Seen from outside"), "{table}");
    assert!(locks(&document).is_empty());

    // A library that is none of ours records nothing.
    let other = compile_c("int poundlock_test_other;", &["-shared", "-fPIC"]);
    let json = json_path();
    let mut cmd = poundlock();
    cmd.args(["stat", "--json"])
        .arg(&json)
        .args(["--each", "--", "sh", "-c", "exit 4"])
        .env("POUNDLOCK_PRELOAD_LIB", &other);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 4);
    let text = stderr(&output);
    assert!(text.starts_with("poundlock: sh did not load our library: nothing was measured"), "{text}");
    check_schema(&parsed(&json));
}

/// Two threads, and what they do.
fn two_threads(globals: &str, start: &str, each: &str) -> PathBuf {
    let source = format!(
        r#"
        #include <pthread.h>
        #include <semaphore.h>
        #include <stdlib.h>
        {globals}
        static void *thread(void *unused) {{
            for (int i = 0; i < 100000; i++) {{ {each} }}
            return unused;
        }}
        int main(void) {{
            pthread_t threads[2];
            {start}
            for (int i = 0; i < 2; i++) if (pthread_create(&threads[i], NULL, thread, NULL)) abort();
            for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
            return 0;
        }}
        "#
    );
    compile_c(&source, &[])
}

#[test]
fn locks_that_stay_the_c_librarys_are_counted_as_what_they_are() {
    let shared_mutex = "pthread_mutexattr_t a; pthread_mutexattr_init(&a);
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED); pthread_mutex_init(&lock, &a);";
    let robust = "pthread_mutexattr_t a; pthread_mutexattr_init(&a);
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST); pthread_mutex_init(&lock, &a);";
    let inheriting = "pthread_mutexattr_t a; pthread_mutexattr_init(&a);
        pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT); pthread_mutex_init(&lock, &a);";
    let shared_rwlock = "pthread_rwlockattr_t a; pthread_rwlockattr_init(&a);
        pthread_rwlockattr_setpshared(&a, PTHREAD_PROCESS_SHARED); pthread_rwlock_init(&lock, &a);";
    let by_mutex = "pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock);";
    let by_rwlock = "pthread_rwlock_rdlock(&lock); pthread_rwlock_unlock(&lock);";
    let mutex = "static pthread_mutex_t lock;";
    for (globals, start, each, kind) in [
        (mutex, shared_mutex, by_mutex, "mutex, process-shared"),
        (mutex, robust, by_mutex, "mutex, robust"),
        (mutex, inheriting, by_mutex, "mutex, priority-inheriting"),
        (
            "static pthread_rwlock_t lock;",
            shared_rwlock,
            by_rwlock,
            "readers-writer lock, process-shared, readers",
        ),
    ] {
        let program = two_threads(globals, start, each);
        for lock in ["poundlock", "any-negative", "glibc"] {
            let (table, document) = stat(&["--lock", lock], &program);
            let row = only(&document, "lock", variable_is("lock"));
            assert_eq!((number(row, "acquisitions"), &row["kind"]), (200_000, &kind.into()), "{document:#}");
            assert_eq!(number(&document, "threads"), 3, "{document:#}");
            assert!(!table.contains("No lock"), "{table}");
        }
    }
}

#[test]
fn semaphores_and_barriers_of_a_program_are_counted() {
    let program = two_threads(
        "static sem_t semaphore; static pthread_barrier_t barrier;",
        "sem_init(&semaphore, 0, 1); pthread_barrier_init(&barrier, NULL, 2);",
        "sem_wait(&semaphore); sem_post(&semaphore); if (i % 1000 == 0) pthread_barrier_wait(&barrier);",
    );
    let (_, document) = stat(&[], &program);
    assert_eq!(number(&document, "threads"), 3, "{document:#}");
    for (kind, name, calls) in [("semaphore", "semaphore", 200_000), ("barrier", "barrier", 200)] {
        let class = class(&document, |of| of == format!("{name} (in program)"));
        assert_eq!((text(class, "kind"), number(class, "acquisitions")), (kind, calls), "{class:#}");
    }
}

#[test]
fn threads_of_every_sort_are_counted() {
    // Threads of C11; one that uses a counted lock; and those of a forked child, which are its own.
    let program = compile_c(
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <threads.h>
        #include <unistd.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static int locks(void *unused) {
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
            return unused != NULL;
        }
        static int idles(void *unused) { return unused != NULL; }
        static void join(thrd_start_t start) {
            thrd_t thread;
            if (thrd_create(&thread, start, NULL) != thrd_success) abort();
            if (thrd_join(thread, NULL) != thrd_success) abort();
        }
        int main(void) {
            join(locks);
            join(idles);
            pid_t child = fork();
            if (child == 0) {
                join(idles);
                join(idles);
                join(idles);
                exit(0);
            }
            int status;
            if (waitpid(child, &status, 0) != child || status != 0) abort();
            return 0;
        }
        "#,
        &[],
    );
    let (table, document) = stat(&[], &program);
    assert_eq!(number(&document, "threads"), 3 + 4, "{document:#}");
    // The one that locks, and both that join.
    assert_eq!(number(&document, "locking_threads"), 3, "{document:#}");
    assert_eq!(list(&document, "processes").len() as u64, 2, "{document:#}");
    // Whether looks have seen them all, or they were over too soon.
    let said = ["the time in which 7 threads had", "the time in which the 3 threads that used a lock had"];
    assert!(said.iter().any(|said| table.contains(said)), "{table}");
}

#[test]
fn locks_of_a_language_are_not_said_to_be_none() {
    let dir = scratch();
    let source = dir.join("program.rs");
    std::fs::write(
        &source,
        r#"
        use std::sync::{Arc, Mutex};
        fn main() {
            let sum = Arc::new(Mutex::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let sum = Arc::clone(&sum);
                    std::thread::spawn(move || (0..1000).for_each(|_| *sum.lock().unwrap() += 1))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*sum.lock().unwrap(), 2000);
        }
        "#,
    )
    .expect("the source can be written");
    let program = dir.join("program");
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let mut cmd = std::process::Command::new(rustc);
    cmd.args(["--edition", "2021", "-O", "-o"]).arg(&program).arg(&source);
    expect_status(&run_limited(&mut cmd, LIMIT), 0);
    let (table, document) = stat(&[], &program);
    assert_eq!(number(&document, "threads"), 3, "{document:#}");
    assert!(!table.contains("No lock was used."), "{table}");
    // The main thread waits for the others; whether they wait for the lock is chance.
    only(&document, "a wait for a thread", |lock| lock["kind"] == "end of a thread");
}

#[test]
fn a_limit_on_file_sizes_is_not_taken_for_a_missing_library() {
    let trace = scratch().join("ran");
    let limited = |limit: u64, script: &str| {
        let mut cmd = poundlock();
        cmd.args(["stat", "--", "sh", "-c", script]).arg(&trace);
        let set = move || {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: reads our own variable.
            match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: `setrlimit` may be called between fork and exec.
        unsafe { std::os::unix::process::CommandExt::pre_exec(&mut cmd, set) };
        run_limited(&mut cmd, LIMIT)
    };
    // Ours: then there would be no report, and the program is not run for nothing.
    let output = limited(1000 << 10, r#": >"$0""#);
    expect_status(&output, 125);
    let text = stderr(&output);
    assert!(
        text.contains("the limit on file sizes (ulimit -f) is 1024000 bytes") && text.contains("MiB"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!trace.exists(), "it ran");
    // One that a program sets itself.
    let output = limited(libc::RLIM_INFINITY, r#"ulimit -f 1000; exec sh -c 'exit 4'"#);
    expect_status(&output, 4);
    let text = stderr(&output);
    assert!(text.contains("the limit on file sizes is too low"), "by the library: {text}");
    assert!(!text.contains("did not load our library"), "{text}");
    let child = limited(libc::RLIM_INFINITY, r#"(ulimit -f 1000; exec sh -c 'exit 4'); exit $?"#);
    expect_status(&child, 4);
    let text = stderr(&child);
    assert!(text.contains(" was not measured: no file could be made for its figures"), "{text}");
}

/// Kills a process when it is dropped.
struct Killed(i32);

impl Drop for Killed {
    fn drop(&mut self) {
        // SAFETY: kill takes two numbers; this process is a sleep that nobody has waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

#[test]
fn a_process_that_goes_on_is_named_once_and_as_what_it_is() {
    let pid_file = scratch().join("pid");
    // Through two programs that load the library to one that does not.
    let script = r#"
        sh -c 'exec sh -c "unset LD_PRELOAD; exec sleep 1000"' >/dev/null 2>&1 </dev/null &
        echo $! >"$0"
        until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done
    "#;
    let mut cmd = poundlock();
    cmd.args(["stat", "--", "sh", "-c", script]).arg(&pid_file);
    let output = run_limited(&mut cmd, LIMIT);
    let pid = std::fs::read_to_string(&pid_file).expect("it was started").trim().parse().expect("a number");
    let _killed = Killed(pid);
    expect_status(&output, 0);
    let text = stderr(&output);
    let said: Vec<&str> = text.lines().filter(|line| line.contains(" is still running")).collect();
    assert_eq!(said.len(), 1, "{text}");
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it is still there");
    let name = exe.file_name().and_then(|name| name.to_str()).expect("UTF-8");
    assert!(said[0].starts_with(&format!("poundlock: process {pid} ({name}) is still running")), "{text}");
    assert_ne!(name, "sh");
}

#[test]
fn a_lock_that_a_process_chose_for_its_child_is_said() {
    let program = compile_c(PROGRAM, &[]);
    let run = |inner: &[&str]| {
        let words = [&[env!("CARGO_BIN_EXE_poundlock"), "run"], inner, &["--"]].concat();
        let words = words.into_iter().map(OsStr::new).chain([program.as_os_str()]);
        let (output, document) = measured(&["--lock", "baseline"], &words.collect::<Vec<_>>(), 0);
        (stderr(&output), document)
    };
    let on = |document: &Value| {
        let all = document["ran_on"].as_array().expect("checked").clone();
        let found = all.into_iter().find(|on| on["programs"] == serde_json::json!(["program"]));
        found.unwrap_or_else(|| panic!("{document:#}"))
    };
    let (table, document) = run(&["--lock", "handoff"]);
    assert!(
        table.contains("\nlocks measured: mutex baseline, ")
            && table.contains("\nlocks measured: mutex handoff, "),
        "{table}"
    );
    assert_eq!((text(&document, "lock"), text(&document, "mutex")), ("baseline", "baseline"));
    assert_eq!((text(&on(&document), "mutex"), text(&on(&document), "rwlock")), ("handoff", "by-kind"));
    let (table, document) = run(&["--lock", "baseline,qspin", "--rwlock", "phase-fair"]);
    assert!(
        table.contains(", rwlock phase-fair (Poundlock's, in place of the program's own): program\n"),
        "{table}"
    );
    assert_eq!((text(&on(&document), "spinlock"), text(&on(&document), "rwlock")), ("qspin", "phase-fair"));
    // One lock for all is not said program by program.
    let (table, _) = run(&["--lock", "baseline"]);
    assert!(
        table.contains("\nlocks measured: mutex baseline, ") && !table.contains(": program\n"),
        "{table}"
    );
}

/// Runs a program under `stat` without single locks: its report, and the JSON.
#[track_caller]
fn classes(options: &[&str], program: &Path) -> (String, Value) {
    let json = json_path();
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "400").args(["stat", "--json"]).arg(&json).args(options).arg("--").arg(program);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    (stderr(&output), parsed(&json))
}

/// The one class that this is true of.
#[track_caller]
fn class(document: &Value, wanted: impl Fn(&str) -> bool) -> &Value {
    let all = list(document, "classes");
    let found: Vec<&Value> = all.iter().filter(|class| wanted(text(class, "name"))).collect();
    assert_eq!(found.len(), 1, "{document:#}");
    found[0]
}

/// Locks that are made on one line are of one sort, and so are the elements of an array; what a function makes
/// for others is told apart by them.
#[test]
fn locks_of_one_sort_are_one_row() {
    let source = r#"
        #include <pthread.h>
        #include <stdlib.h>
        struct part { int id; pthread_mutex_t lock; };
        static struct part parts[100];
        static pthread_mutex_t *made[1000];
        struct wrapped { pthread_mutex_t mutex; int owner; };
        __attribute__((noinline)) void my_mutex_init(struct wrapped *w) {
            pthread_mutex_init(&w->mutex, NULL); /* WRAPPER */
            w->owner = 0;
        }
        __attribute__((noinline)) struct wrapped *queue_new(void) {
            struct wrapped *w = malloc(sizeof *w);
            my_mutex_init(w); /* QUEUE */
            return w;
        }
        __attribute__((noinline)) struct wrapped *cache_new(void) {
            struct wrapped *w = malloc(sizeof *w);
            my_mutex_init(w); /* CACHE */
            return w;
        }
        __attribute__((noinline)) struct wrapped *cache_of(int n) { return n ? cache_new() : NULL; }
        static void use(pthread_mutex_t *lock) { pthread_mutex_lock(lock); pthread_mutex_unlock(lock); }
        int main(void) {
            for (int i = 0; i < 1000; i++) {
                made[i] = malloc(sizeof *made[i]);
                pthread_mutex_init(made[i], NULL); /* MADE */
                use(made[i]);
            }
            for (int i = 0; i < 100; i++) use(&parts[i].lock);
            for (int i = 0; i < 3; i++) use(&queue_new()->mutex);
            for (int i = 0; i < 4; i++) use(&cache_of(1)->mutex);
            for (int i = 0; i < 5; i++) use(&cache_new()->mutex);
            return 0;
        }
    "#;
    let line = |mark: &str| {
        let at = source.lines().position(|line| line.contains(mark)).expect("marked") + 1;
        format!("program.c:{at})")
    };
    let program = compile_c(source, &[]);
    let (table, document) = classes(&["--top", "0"], &program);
    assert!(document.get("locks").is_none(), "{document:#}");
    let count = |class: &Value| (number(class, "locks"), number(class, "acquisitions"));
    let made = class(&document, |name| name.ends_with(&line("/* MADE */")));
    assert_eq!((count(made), text(made, "origin")), ((1000, 1000), "initialised"));
    assert!(list(made, "stack")[0].as_str().is_some_and(|frame| frame.starts_with("main (")), "{made:#}");
    assert_eq!(count(class(&document, |name| name == "parts[].lock (in program)")), (100, 100));
    for (mark, locks) in [("/* QUEUE */", 3), ("/* CACHE */", 4 + 5)] {
        let class = class(&document, |name| name.ends_with(&line(mark)));
        assert_eq!(
            (count(class), text(class, "created_at")),
            ((locks, locks), "by my_mutex_init"),
            "{class:#}"
        );
        assert!(
            list(class, "stack")[0].as_str().is_some_and(|frame| frame.ends_with(&line("/* WRAPPER */")))
        );
        assert_eq!(list(class, "modules"), ["program"]);
    }
    assert!(
        !list(&document, "classes").iter().any(|class| text(class, "name").ends_with(&line("/* WRAPPER */")))
    );
    assert!(table.contains("1000 locks") && table.contains("100 locks") && !table.contains("0x"), "{table}");
}

#[test]
fn processes_of_one_program_share_their_classes() {
    let program = compile_c(PROGRAM, &[]);
    let json = json_path();
    let mut cmd = poundlock();
    let script = r#""$0"; "$0"; "$0""#;
    cmd.args(["stat", "--json"]).arg(&json).args(["--", "sh", "-c", script]).arg(&program);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let document = parsed(&json);
    let fixed = class(&document, |name| name == "static_lock (in program)");
    assert_eq!((number(fixed, "locks"), number(fixed, "acquisitions")), (3, 3 * STATIC_ACQUISITIONS));
    assert_eq!(list(fixed, "processes").len(), 3, "{fixed:#}");
    let waits = list(fixed, "sites").iter().map(|site| number(site, "contended")).sum::<u64>();
    assert!(waits >= 3, "{fixed:#}");
    let heap = class(&document, |name| name.ends_with(&line_of("/* INIT */")));
    assert_eq!((number(heap, "locks"), number(heap, "acquisitions")), (3, 3 * HEAP_ACQUISITIONS));
    assert!(stderr(&output).contains("3 locks static_lock (in program)"), "{}", stderr(&output));
}

#[test]
fn locks_of_unknown_origin_are_known_by_the_lines_that_take_them() {
    // Zero bytes on the heap: nobody initialised them.
    let source = r#"
        #include <pthread.h>
        #include <stdlib.h>
        static pthread_mutex_t *locks[4];
        static pthread_barrier_t barrier;
        __attribute__((noinline)) static void take(pthread_mutex_t *lock) {
            pthread_mutex_lock(lock); /* TAKE */
            pthread_mutex_unlock(lock);
        }
        static void *waiter(void *lock) {
            pthread_barrier_wait(&barrier);
            take(lock);
            return NULL;
        }
        int main(void) {
            struct timespec pause = {0, 50 * 1000 * 1000};
            pthread_barrier_init(&barrier, NULL, 2);
            for (int i = 0; i < 4; i++) {
                pthread_t thread;
                locks[i] = calloc(1, sizeof *locks[i]);
                pthread_mutex_lock(locks[i]);
                if (pthread_create(&thread, NULL, waiter, locks[i])) abort();
                pthread_barrier_wait(&barrier);
                do nanosleep(&pause, NULL); while (((int *)locks[i])[0] != 2);
                pthread_mutex_unlock(locks[i]);
                pthread_join(thread, NULL);
            }
            return 0;
        }
    "#;
    let at = source.lines().position(|line| line.contains("/* TAKE */")).expect("marked") + 1;
    let (_, document) = classes(&[], &compile_c(source, &[]));
    let taken = class(&document, |name| name.ends_with(&format!("program.c:{at})")));
    assert_eq!(
        (text(taken, "origin"), number(taken, "locks"), number(taken, "waited_locks")),
        ("taken", 4, 4)
    );
    assert!(text(taken, "name").starts_with("taken in take ("), "{taken:#}");
}

#[test]
fn members_of_objects_are_known_by_their_classes() {
    let source = concat!(
        await_sleep!(),
        r#"
        #include <atomic>
        #include <mutex>
        #include <thread>
        namespace app {
        class Session {
            int count = 0;
            std::mutex lock;
        public:
            __attribute__((noinline)) void add() {
                std::lock_guard<std::mutex> guard(lock);
                count++;
            }
            __attribute__((noinline)) void hold(std::atomic<int> &holds, std::atomic<int> &until) {
                std::lock_guard<std::mutex> guard(lock);
                holds = 1;
                while (!until) usleep(1000);
            }
        };
        }
        int main() {
            for (int i = 0; i < 3; i++) {
                app::Session *session = new app::Session;
                std::atomic<int> done(0), holds(0);
                int tid = 0;
                std::thread holder([&] { session->hold(holds, done); });
                while (!holds) usleep(1000);
                std::thread waiter([&] { __atomic_store_n(&tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST); session->add(); });
                await_sleep(&tid);
                done = 1;
                waiter.join();
                holder.join();
            }
        }
    "#
    );
    let (_, document) = classes(&[], &compile_cpp(source, &[]));
    let locks = class(&document, |name| name == "app::Session::lock");
    assert_eq!((text(locks, "origin"), number(locks, "locks")), ("member", 3), "{locks:#}");
    assert!(text(locks, "created_at").starts_with("taken in app::Session::"), "{locks:#}");
}

#[test]
fn locks_in_the_objects_that_a_function_is_given_have_the_name_of_their_member() {
    let source = concat!(
        await_sleep!(),
        r#"
        #include <mutex>
        #include <thread>
        struct Account { std::mutex m; long balance = 100; };
        __attribute__((noinline)) void transfer(Account &from, Account &to, long amount) {
            std::lock_guard<std::mutex> of(from.m);
            std::lock_guard<std::mutex> and_of(to.m);
            from.balance -= amount, to.balance += amount;
        }
        int main() {
            auto *accounts = new Account[2];
            int tid = 0;
            accounts[1].m.lock();
            std::thread waiter([&] {
                __atomic_store_n(&tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
                transfer(accounts[0], accounts[1], 5);
            });
            await_sleep(&tid);
            accounts[1].m.unlock();
            waiter.join();
        }
    "#
    );
    let (_, document) = classes(&[], &compile_cpp(source, &[]));
    let locks = class(&document, |name| name == "Account::m");
    assert_eq!(text(locks, "origin"), "member", "{locks:#}");
}

#[test]
fn names_are_those_of_programmers_and_whole_in_json() {
    let source = concat!(
        await_sleep!(),
        r#"
        #include <atomic>
        #include <map>
        #include <mutex>
        #include <string>
        #include <thread>
        namespace app {
        template <class K, class V> class Registry {
            mutable std::mutex mutex_;
            std::map<K, V> map_;
        public:
            template <class F> __attribute__((noinline)) V with(const K &key, F make) {
                std::lock_guard<std::mutex> guard(mutex_); /* TAKE */
                return map_[key] = make();
            }
        };
        }
        int main() {
            auto *registry = new app::Registry<std::string, int>;
            std::atomic<int> done(0), holds(0);
            int tid = 0;
            std::thread holder([&] {
                registry->with("a", [&] { holds = 1; while (!done) usleep(1000); return 1; }); /* HOLD */
            });
            while (!holds) usleep(1000);
            std::thread waiter([&] { /* WAITER */
                __atomic_store_n(&tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
                registry->with("b", [] { return 2; }); /* WAIT */
            });
            await_sleep(&tid);
            done = 1;
            waiter.join();
            holder.join();
        }
    "#
    );
    let line = |mark: &str| {
        source.lines().position(|line| line.contains(&format!("/* {mark} */"))).expect("marked") + 1
    };
    for level in ["-O0", "-O2"] {
        let (report, document) = classes(&[], &compile_cpp(source, &[level]));
        let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "app::Registry<std::string, int>::mutex_ taken in ".to_owned(),
            format!("app::Registry<std::string, int>::with<{{lambda at program.cpp:{}}}> (", line("WAIT")),
            format!("program.cpp:{}) < {{lambda at program.cpp:{}}}", line("TAKE"), line("WAITER")),
            format!(
                "it at app::Registry<std::string, int>::with<{{lambda at program.cpp:{}}}>",
                line("HOLD")
            ),
        ] {
            assert!(words.contains(&expected), "no {expected:?} in {report}");
        }
        assert!(!report.contains("basic_string") && !report.contains("std::allocator"), "{report}");
        let lock = class(&document, |name| name.ends_with("::mutex_"));
        assert!(text(lock, "name").contains("basic_string<char, std::char_traits<char>"), "{lock:#}");
        assert_eq!(text(lock, "shown"), "app::Registry<std::string, int>::mutex_");
    }
}

#[test]
fn members_of_structs_are_known_if_no_others_can_be_meant() {
    let source = concat!(
        "#define _GNU_SOURCE\n",
        await_sleep!(),
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        typedef struct { int count; pthread_mutex_t lock; pthread_rwlock_t other; } session_t;
        struct node { session_t *session; };
        #ifdef TWO
        static struct pool { pthread_mutex_t lock; } *pool;
        #endif
        static int tid;
        static __attribute__((noinline)) void take(struct node *node) {
            pthread_mutex_lock(&node->session->lock);
            node->session->count++;
            pthread_mutex_unlock(&node->session->lock);
        }
        static void *waiter(void *node) {
            __atomic_store_n(&tid, gettid(), __ATOMIC_SEQ_CST);
            take(node);
            return node;
        }
        int main(void) {
            struct node node = { calloc(1, sizeof(session_t)) };
            pthread_t thread;
        #ifdef TWO
            pool = calloc(1, sizeof *pool);
            pthread_mutex_lock(&pool->lock);
        #endif
            pthread_mutex_lock(&node.session->lock);
            pthread_create(&thread, 0, waiter, &node);
            await_sleep(&tid);
            pthread_mutex_unlock(&node.session->lock);
            return pthread_join(thread, 0);
        }
    "#
    );
    for level in ["-O0", "-O2"] {
        let (_, document) = classes(&[], &compile_c(source, &[level]));
        let lock = class(&document, |name| name == "session_t::lock");
        assert_eq!((text(lock, "origin"), number(lock, "contended")), ("member", 1), "{lock:#}");
        assert!(text(lock, "created_at").starts_with("taken in take ("), "{lock:#}");
        let (_, document) = classes(&[], &compile_c(source, &[level, "-DTWO"]));
        class(&document, |name| name.starts_with("taken in take ("));
    }
}
