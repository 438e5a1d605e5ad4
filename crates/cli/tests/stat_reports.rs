//! `poundlock stat`: what its table and its JSON say about programs whose locks are known.

mod support;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use support::{LIMIT, compile_c, compile_cpp, expect_status, poundlock, run_limited, scratch};

const LOCKS: [&str; 5] = ["poundlock", "any-negative", "baseline", "handoff", "glibc"];

/// A program with known locks. `static_lock` is taken 4 x 1000 times, one on the heap 4 x 500 times. Then the main
/// thread holds `static_lock` until the kernel says that a second thread sleeps, which is how a wait looks.
///
/// Its first argument tells how to end: with an exit status, or by that signal if it is negative. With a second one it
/// first says so and waits for a signal.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

static int sleeps(int tid) {
    char name[64], text[512] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(name, "r");
    if (!file) return 0;
    char *end = fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
    fclose(file);
    return end && end[2] == 'S';
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
    /* Twice in a row, so that a sleep on the way to the lock is not taken for the wait. */
    for (int seen = 0; seen < 2; usleep(1000)) {
        int tid = __atomic_load_n(&waiter_tid, __ATOMIC_SEQ_CST);
        seen = tid && sleeps(tid) ? seen + 1 : 0;
    }
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
"#;

/// Acquisitions of `static_lock`: the four threads', main's and the waiter's.
const STATIC_ACQUISITIONS: u64 = 4 * 1000 + 2;
const HEAP_ACQUISITIONS: u64 = 4 * 500;

fn line_of(mark: &str) -> String {
    let line = PROGRAM.lines().position(|line| line.contains(mark)).expect("the program has the mark") + 1;
    format!("program.c:{line})")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn parsed(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the JSON is there");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {value}"))
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
    text(document, "lock");
    text(document, "spinlock");
    text(document, "rwlock");
    number(document, "wall_ns");
    number(document, "threads");
    // There are no spinlocks here (`spin.rs` has more), and mutexes have events only if they are hand-off ones.
    for key in ["events", "durations"] {
        let empty = document[key].as_array().map(Vec::is_empty);
        assert!(
            empty.is_some() && (empty == Some(true) || text(document, "lock") == "handoff"),
            "{document:#}"
        );
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
            let stack = site["stack"].as_array().unwrap_or_else(|| panic!("no stack in {lock}"));
            assert!(!stack.is_empty() && stack.iter().all(Value::is_string), "{site}");
            number(site, "contended");
            number(site, "wait_ns");
        }
    }
    let waits: Vec<u64> = locks(document).iter().map(|lock| number(&lock["wait_ns"], "total")).collect();
    assert!(waits.is_sorted_by(|a, b| a >= b), "not most waiting first: {waits:?}");
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
    let frame = |site: &Value, index: usize| site["stack"][index].as_str().unwrap_or_default().to_string();
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

#[test]
fn every_figure_of_a_known_program_is_right() {
    let program = compile_c(PROGRAM, &[]);
    for lock in LOCKS {
        let json = json_path();
        let mut cmd = poundlock();
        cmd.args(["stat", "--lock", lock, "--json"]).arg(&json).arg("--").arg(&program);
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
        // The one wait was ended by handing over; nobody else may have waited.
        let events = document["events"].as_array().map_or(&[][..], Vec::as_slice);
        let handed = events.iter().find(|event| event["name"] == "hand-overs");
        assert_eq!(handed.is_some_and(|event| number(event, "count") > 0), lock == "handoff", "{document:#}");
        assert_eq!(table.contains("hand-off mutex events"), lock == "handoff", "{table}");
        // Nothing but the JSON was left beside it.
        let names: Vec<_> =
            std::fs::read_dir(json.parent().expect("a directory")).expect("it is there").collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}

#[test]
fn a_lock_inside_templates_is_shown_at_the_programs_own_line() {
    let source = r#"
        #include <atomic>
        #include <cstdio>
        #include <cstring>
        #include <mutex>
        #include <thread>
        #include <sys/syscall.h>
        #include <unistd.h>
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
        static std::atomic<int> tid;
        static bool sleeps(int tid) {
            char name[64], text[512] = "";
            snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
            FILE *file = fopen(name, "r");
            if (!file) return false;
            char *end = fgets(text, sizeof text, file) ? strrchr(text, ')') : nullptr;
            fclose(file);
            return end && end[2] == 'S';
        }
        int main() {
            app::stores[2].lock.lock();
            std::thread waiter([] { tid = syscall(SYS_gettid); app::stores[2].put(1); });
            for (int seen = 0; seen < 2; usleep(1000)) seen = tid && sleeps(tid) ? seen + 1 : 0;
            app::stores[2].lock.unlock();
            waiter.join();
        }
    "#;
    let line = source.lines().position(|line| line.contains("// WAIT")).expect("marked") + 1;
    let program = compile_cpp(source, &[]);
    let json = json_path();
    let mut cmd = poundlock();
    cmd.args(["stat", "--json"]).arg(&json).arg("--").arg(&program);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let document = parsed(&json);
    check_schema(&document);
    let lock = only(&document, "app::stores[2].lock", variable_is("app::stores[2].lock"));
    assert_eq!(number(lock, "contended"), 1);
    let stack: Vec<&str> =
        lock["sites"][0]["stack"].as_array().expect("checked").iter().filter_map(Value::as_str).collect();
    let own = stack.iter().position(|frame| frame.starts_with("app::Store<long>::put(long) ("));
    let own = own.unwrap_or_else(|| panic!("{stack:#?}"));
    assert!(stack[own].ends_with(&format!("program.cpp:{line})")), "{stack:#?}");
    assert!(own > 0, "what was inlined into it comes before it: {stack:#?}");
    // In the table it comes first.
    let table = stderr(&output);
    let after = table.lines().skip_while(|line| !line.ends_with("in 1 wait, at")).nth(1);
    assert!(
        after.is_some_and(|frame| frame.trim_start().starts_with("app::Store<long>::put(long) (")),
        "{table}"
    );
    assert!(!table.contains("lock_guard"), "{table}");
}

#[test]
fn the_table_is_as_long_as_it_was_asked_for_and_the_json_is_whole() {
    let program = compile_c(PROGRAM, &[]);
    let json = json_path();
    let mut cmd = poundlock();
    cmd.args(["stat", "--top", "1", "--json"]).arg(&json).arg("--").arg(&program);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let table = stderr(&output);
    assert!(table.contains("static_lock (in program)"), "{table}");
    assert!(!table.contains("parts.part[1][2].lock"), "{table}");
    let document = parsed(&json);
    check_program(&document, "poundlock");
    let more = locks(&document).len() - 1;
    assert!(table.contains(&format!("and {more} more lock")), "{table}");

    let all = run_limited(poundlock().args(["stat", "--top", "0", "--"]).arg(&program), LIMIT);
    assert!(
        stderr(&all).contains("parts.part[1][2].lock") && !stderr(&all).contains(" more lock"),
        "{}",
        stderr(&all)
    );
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
            let json = json_path();
            let mut cmd = poundlock();
            cmd.args(["stat", "--lock", lock, "--json"]).arg(&json).arg("--").arg(&program).arg(end);
            let output = run_limited(&mut cmd, LIMIT);
            expect_status(&output, code);
            assert!(stderr(&output).contains(words), "no {words:?} in\n{}", stderr(&output));
            check_program(&parsed(&json), lock);
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
            cmd.args(["stat", "--json"]).arg(&json).arg("--").arg(&program).args(["0", "wait"]);
            let mut running = support::start(&mut cmd);
            running.wait_for_output("ready", LIMIT);
            if whole_group {
                running.kill_group(signal)
            } else {
                running.kill(signal)
            }
            let output = running.finish(LIMIT);
            expect_status(&output, code);
            assert_eq!(output.stdout, b"ready\n");
            check_program(&parsed(&json), "poundlock");
        }
    }
}

#[test]
fn all_processes_of_a_command_are_in_one_report() {
    let program = compile_c(PROGRAM, &[]);
    let json = json_path();
    let mut cmd = poundlock();
    cmd.args(["stat", "--json"]).arg(&json).args(["--", "sh", "-c", r#""$0"; "$0" 3"#]).arg(&program);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 3);
    let document = parsed(&json);
    check_schema(&document);
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
    assert_eq!(number(&document, "processes"), 3, "the shell and both programs");
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
    cmd.args(["stat", "--json"]).arg(&link).args(["--", "cat"]).arg(&json);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    assert_eq!(output.stdout, b"old", "while the command ran");
    check_schema(&parsed(&json));
    assert!(link.symlink_metadata().expect("it is still there").is_symlink());

    // A pipe is written to, not replaced.
    let output = run_limited(poundlock().args(["stat", "--json", "/dev/stdout", "--", "true"]), LIMIT);
    expect_status(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).expect("the report");
    check_schema(&document);
}

#[test]
fn what_was_not_measured_is_said() {
    // It starts, and then becomes a program that our library is kept from.
    let script = r#"unset LD_PRELOAD; exec "$0""#;
    let program = compile_c(PROGRAM, &[]);
    let json = json_path();
    let mut cmd = poundlock();
    cmd.args(["stat", "--json"]).arg(&json).args(["--", "sh", "-c", script]).arg(&program);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    assert!(stderr(&output).contains("No lock was used."), "{}", stderr(&output));
    assert!(locks(&parsed(&json)).is_empty());

    // A library that is none of ours records nothing.
    let other = compile_c("int poundlock_test_other;", &["-shared", "-fPIC"]);
    let mut cmd = poundlock();
    cmd.args(["stat", "--json"])
        .arg(&json)
        .args(["--", "sh", "-c", "exit 4"])
        .env("POUNDLOCK_PRELOAD_LIB", &other);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 4);
    let text = stderr(&output);
    assert!(text.starts_with("poundlock: sh did not load our library: nothing was measured"), "{text}");
    check_schema(&parsed(&json));
}
