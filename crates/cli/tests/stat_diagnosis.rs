//! `poundlock stat`: what it says is wrong with programs that have one thing wrong, two of each kind, and
//! with their twins, which have not (`tests/stat`).

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::attach::can_watch;
use crate::support::{
    LIMIT, build, compile_c, expect_status, list, number, parsed, poundlock, run_limited, scratch, start,
    stderr, stdout, until,
};

/// The source of this name and its program, compiled.
fn compiled(name: &str) -> (String, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stat").join(name);
    let source = source.canonicalize().expect("the source is there");
    let program = scratch().join("program");
    let (compiler, standard) =
        if name.ends_with(".c") { ("cc", "-std=gnu11") } else { ("c++", "-std=gnu++17") };
    let mut compile = Command::new(compiler);
    compile.args([standard, "-O1", "-g", "-Wall", "-Wextra", "-pthread"]).arg(&source);
    build(&mut compile, &source, &program);
    (std::fs::read_to_string(source).expect("the source"), program)
}

/// Leaves a command two CPUs: how many threads they are too few for is no matter of the machine then.
fn on_two_cpus(cmd: &mut Command) {
    // SAFETY: both calls are made between fork and exec with a set of the thread's own.
    unsafe {
        cmd.pre_exec(|| {
            let size = size_of::<libc::cpu_set_t>();
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size, &raw mut set);
            let (all, mut kept) = (set, 0);
            for cpu in (0..8 * size).filter(|&cpu| libc::CPU_ISSET(cpu, &all)) {
                kept += 1;
                if kept > 2 {
                    libc::CPU_CLR(cpu, &mut set);
                }
            }
            libc::sched_setaffinity(0, size, &raw const set);
            Ok(())
        })
    };
}

/// The kinds of the findings with the lines that they name, and the whole report.
#[track_caller]
fn findings(program: &Path, which: &str, options: &[&str]) -> (Vec<(String, String)>, String) {
    let json = scratch().join("report.json");
    let mut cmd = poundlock();
    on_two_cpus(&mut cmd);
    cmd.env("COLUMNS", "2000").arg("stat").args(options).arg("--json").arg(&json).arg("--").arg(program);
    let output = run_limited(cmd.arg(which), LIMIT);
    expect_status(&output, 0);
    let (document, report) = (parsed(&json), stderr(&output));
    let found = list(&document, "diagnosis");
    assert!(found.len() <= 3, "{document:#}");
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    for finding in found {
        assert!(report.contains(&text(&finding["text"])), "{report}");
    }
    (found.iter().map(|one| (text(&one["kind"]), text(&one["line"]))).collect(), report)
}

/// The program gets the finding that it is named for, at a line that is marked with its name; the twin does
/// not.
#[track_caller]
fn check(kind: &str, source: &str, which: &str, options: &[&str]) {
    let (text, program) = compiled(source);
    let (found, report) = findings(&program, which, options);
    let finding = found.iter().find(|(found, _)| found == kind);
    let (_, line) = finding.unwrap_or_else(|| panic!("{which} in {source}: {found:?}\n{report}"));
    let marked: Vec<String> = (1..)
        .zip(text.lines())
        .filter(|(_, text)| {
            text.rsplit_once("/* ").is_some_and(|(_, mark)| mark.split(' ').any(|word| word == which))
        })
        .map(|(number, _)| format!("{source}:{number})"))
        .collect();
    assert!(
        marked.iter().any(|marked| line.contains(marked)) || marked.is_empty(),
        "{line}: {marked:?}\n{report}"
    );
    let (found, report) = findings(&program, &format!("{which}_not"), options);
    assert!(!found.iter().any(|(found, _)| found == kind), "{which}_not in {source}: {found:?}\n{report}");
}

macro_rules! programs {
    ($($test:ident: $kind:literal $source:literal $which:literal $($option:literal)*;)*) => {$(
        #[test]
        fn $test() {
            check($kind, $source, $which, &[$($option),*]);
        }
    )*};
}

programs! {
    too_long: "too_long" "sections.c" "too_long";
    too_long_in_objects: "too_long" "objects.cpp" "too_long";
    too_often: "too_often" "sections.c" "too_often";
    too_often_in_a_pool: "too_often" "objects.cpp" "too_often";
    preempted: "preempted" "sections.c" "preempted";
    preempted_by_spinners: "preempted" "sections.c" "preempted_by_spinners";
    blocked: "blocked" "sections.c" "blocked";
    blocked_by_a_request: "blocked" "sections.c" "blocked_by_request";
    convoy_in_the_kernel: "convoy" "sections.c" "convoy";
    convoy_of_a_lock_that_is_handed_over: "convoy" "objects.cpp" "convoy" "--lock" "handoff";
    writing_readers: "writing_readers" "sections.c" "writing_readers";
    writing_readers_of_an_object: "writing_readers" "objects.cpp" "writing_readers";
    storm: "storm" "storm.c" "storm";
    storm_in_a_ring: "storm" "objects.cpp" "storm";
    false_alarm: "false_alarm" "sections.c" "false_alarm";
    asleep_for_an_eventfd: "asleep" "sleeps.c" "eventfd";
    asleep_for_a_pipe: "asleep" "sleeps.c" "pipe";
    asleep_in_epoll: "asleep" "sleeps.c" "epoll";
    asleep_beside_an_idle_pool: "asleep" "sleeps.c" "pool";
    false_alarm_between_two: "false_alarm" "objects.cpp" "false_alarm";
}

/// What a program knows of its own waits lies within the bounds that it prints, by any way of looking at it,
/// and all that a report shows of it are the same figures.
#[test]
fn what_a_program_measures_by_itself_is_what_reports_say() {
    let (_, program) = compiled("truth.c");
    for options in [&[][..], &["--lock", "poundlock"], &["--futex"]] {
        if options == ["--futex"] && !can_watch() {
            continue;
        }
        let (json, page) = (scratch().join("report.json"), scratch().join("report.html"));
        let mut cmd = poundlock();
        cmd.env("COLUMNS", "400").arg("stat").args(options).arg("--json").arg(&json).arg("--html").arg(&page);
        let output = run_limited(cmd.arg("--").arg(&program), LIMIT);
        expect_status(&output, 0);
        let printed = stdout(&output);
        let bounds: Vec<f64> =
            printed.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let (document, report) = (parsed(&json), stderr(&output));
        let about = || format!("{options:?}: {printed}{report}");
        let lock = list(&document, "classes").iter().find(|class| class["name"] == "lock (in program)");
        let lock = lock.unwrap_or_else(|| panic!("{}", about()));
        // Their clocks are not quite the same.
        let waited = number(&lock["wait_ns"], "total") as f64;
        assert!(waited >= bounds[0] * 0.99 && waited <= bounds[1] * 1.01, "{}", about());
        let (lost, busy) = (number(&document, "wait_ns"), number(&document, "busy_ns"));
        let lives = number(&document, "threads") * number(&document, "wall_ns");
        assert!(lost as f64 >= waited && lost <= busy && busy <= lives, "{lost} {busy} {lives} {}", about());
        let share = document["share"].as_f64().expect("a share");
        assert!((share - lost as f64 / busy as f64).abs() < 1e-9, "{}", about());
        for class in list(&document, "classes") {
            let is_lock = class["kind"] == "mutex";
            assert_eq!(class["share"].is_number(), is_lock, "{class:#}");
        }
        let said = format!(": {:.1} % of the time in which ", share * 100.0);
        let page = std::fs::read_to_string(page).expect("the page is there");
        assert!(report.contains(&said) && page.contains(&said), "{said} {}", about());
    }
}

/// Who had a lock that processes share is not known where another process had it: that is said, and nothing
/// is advised that cannot be done.
#[test]
fn a_lock_that_another_process_holds() {
    let program = compile_c(
        r#"#define _GNU_SOURCE
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            pthread_mutex_t *mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            pthread_mutexattr_t shared;
            pthread_mutexattr_init(&shared);
            pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
            pthread_mutex_init(mutex, &shared);
            int has[2];
            if (pipe(has)) abort();
            char byte = 0;
            if (fork() == 0) {
                for (int i = 0; i < 30; i++) {
                    if (read(has[0], &byte, 1) != 1) abort();
                    pthread_mutex_lock(mutex);
                    pthread_mutex_unlock(mutex);
                }
                _exit(0);
            }
            for (int i = 0; i < 30; i++) {
                pthread_mutex_lock(mutex);
                if (write(has[1], &byte, 1) != 1) abort();
                /* The child sleeps for it from here on. */
                while (*(volatile int *)mutex != 2) usleep(100);
                usleep(20000);
                pthread_mutex_unlock(mutex);
            }
            int status;
            return wait(&status) < 0 || status;
        }"#,
        &[],
    );
    let (found, report) = findings(&program, "", &[]);
    let kinds: Vec<&str> = found.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds.first(), Some(&"other_process"), "{report}");
    assert!(!kinds.contains(&"convoy") && !kinds.contains(&"keep_locks"), "{report}");
    assert!(!report.contains("--compare") && !report.contains("nobody"), "{report}");
}

/// A program that hangs and one that waits for work look alike: the one has nobody left to wake its threads.
/// What is said of them is the only finding, in the last report as in those before.
#[test]
fn threads_that_nobody_will_wake_are_told_from_idle_ones() {
    let (_, program) = compiled("sleeps.c");
    let (stuck, idle) =
        ("every thread has waited for another one for the last ", "threads had nothing to do for ");
    for (which, kind, words) in [
        (
            "stuck",
            "stuck",
            [stuck, " waiting for condition variables at consume (", "nobody of this program"],
        ),
        ("stuck_eventfd", "stuck", [stuck, " asleep in read() at take_turns (", "nobody of this program"]),
        (
            "idle_epoll",
            "idle",
            [idle, " asleep in epoll_wait() at serve (", "comes from outside of this program"],
        ),
        ("idle_read", "idle", [idle, " asleep in read() at serve (", "comes from outside of this program"]),
    ] {
        let json = scratch().join("report.json");
        let mut cmd = poundlock();
        cmd.env("COLUMNS", "2000").args(["stat", "--every", "0.2", "--json"]).arg(&json).arg("--");
        let running = start(cmd.arg(&program).arg(which).stdin(Stdio::piped()));
        // What is said first in the last report, and nothing else.
        let said = |text: &str| {
            let last = text.rsplit_once("\npoundlock stat: ")?.1;
            let mut findings = last.lines().filter_map(|line| line.strip_prefix("* "));
            let first = findings.next()?.to_owned();
            (findings.next().is_none() && words.iter().all(|word| first.contains(word))).then_some(first)
        };
        // Idle for long, so that a slow end makes no difference.
        let is_clear = |first: &str| {
            let share = first.strip_prefix(idle).and_then(|rest| rest.split(' ').next()?.parse().ok());
            kind == "stuck" || share.is_some_and(|share: f64| share > 98.0)
        };
        until(&format!("{which} is told"), || {
            said(&running.errors_so_far()).is_some_and(|one| is_clear(&one))
        });
        running.kill(libc::SIGTERM);
        let output = running.finish(LIMIT);
        expect_status(&output, 143);
        let (document, report) = (parsed(&json), stderr(&output));
        let first = said(&report).unwrap_or_else(|| panic!("{which}: {report}"));
        let [finding] = list(&document, "diagnosis") else { panic!("{which}: {document:#}") };
        assert!(finding["kind"] == kind && finding["text"] == first, "{which}: {finding:#}\n{report}");
    }
}
