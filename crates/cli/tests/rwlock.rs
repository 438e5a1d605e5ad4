//! Readers-writer locks under `run` and `stat`: whose they are, and what is counted of them.

use std::ffi::OsStr;
use std::process::Command;

use crate::support::{
    LIMIT, compile_c, expect_status, line_of, list, measured, number, poundlock, poundlock_bare,
    preload_library, program, run_limited, stack, stderr,
};
use poundlock_core::events::{Event, Family};
use serde_json::Value;

/// Two readers-writer locks with known figures. `guarded` is read 4 x 1000 times and written 4 x 100 times;
/// then the main thread reads it twice over until the kernel says that a writer sleeps; and writes it until a
/// reader sleeps. One made by a call is written once, and a forked child reads it three times. One that
/// processes share is not counted.
const PROGRAM: &str = r#"
static pthread_rwlock_t guarded = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t *made, shared;
static volatile pid_t waiter_tid;

static void *many(void *unused) {
    for (int i = 0; i < 1000; i++) {
        while (pthread_rwlock_tryrdlock(&guarded)) sched_yield();
        pthread_rwlock_unlock(&guarded);
        if (i % 10) continue;
        while (pthread_rwlock_trywrlock(&guarded)) sched_yield();
        pthread_rwlock_unlock(&guarded);
    }
    return unused;
}

__attribute__((noinline)) static void write_it(void) {
    pthread_rwlock_wrlock(&guarded); /* WRITES */
    pthread_rwlock_unlock(&guarded);
}

__attribute__((noinline)) static void read_it(void) {
    pthread_rwlock_rdlock(&guarded); /* READS */
    pthread_rwlock_unlock(&guarded);
}

static void *waiter(void *does) {
    announce(&waiter_tid);
    ((void (*)(void))does)();
    return NULL;
}

static pthread_t sleeper(void (*does)(void)) {
    waiter_tid = 0;
    pthread_t thread = spawn(waiter, (void *)does);
    await_asleep(&waiter_tid);
    return thread;
}

int main(void) {
    crowd(4, many);

    pthread_rwlock_rdlock(&guarded);
    pthread_t thread = sleeper(write_it);
    pthread_rwlock_rdlock(&guarded);
    pthread_rwlock_unlock(&guarded);
    pthread_rwlock_unlock(&guarded);
    join(thread);

    pthread_rwlock_wrlock(&guarded);
    thread = sleeper(read_it);
    pthread_rwlock_unlock(&guarded);
    join(thread);

    made = malloc(sizeof *made);
    pthread_rwlock_init(made, NULL); /* INIT */
    pthread_rwlock_wrlock(made);
    pthread_rwlock_unlock(made);
    pid_t child = fork_limited(60);
    if (child == 0) {
        for (int i = 0; i < 3; i++) {
            pthread_rwlock_rdlock(made);
            pthread_rwlock_unlock(made);
        }
        exit(0);
    }
    await_child(child);
    pthread_rwlock_destroy(made);

    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_init(&shared, &attributes);
    pthread_rwlock_wrlock(&shared);
    pthread_rwlock_unlock(&shared);
    return 0;
}
"#;

fn stat(arguments: &[&str]) -> (String, Value) {
    let program = program(PROGRAM);
    let (_, table, document) =
        measured(poundlock().arg("stat").args(arguments), &[OsStr::new("--"), program.as_os_str()], 0);
    (table, document)
}

const READERS: &str = "readers-writer lock, readers";
const WRITERS: &str = "readers-writer lock, writers";

/// The one row of this kind of which `wanted` is true.
#[track_caller]
fn row<'a>(document: &'a Value, kind: &str, wanted: impl Fn(&Value) -> bool) -> &'a Value {
    let rows: Vec<&Value> =
        list(document, "locks").iter().filter(|row| row["kind"] == kind && wanted(row)).collect();
    assert_eq!(rows.len(), 1, "{} rows for {kind} in {document:#}", rows.len());
    rows[0]
}

#[test]
fn readers_and_writers_are_counted_apart() {
    for arguments in [
        // (Read again behind a waiting writer, which phase-fair locks do not allow, this program would hang.)
        &[][..],
        &["--rwlock", "by-kind"],
        &["--lock", "poundlock"],
        &["--lock", "poundlock", "--rwlock", "glibc"],
        &["--lock", "handoff"],
    ] {
        let (table, document) = stat(arguments);
        let guarded = |row: &Value| row["variable"] == "guarded (in program)";
        let readers = row(&document, READERS, guarded);
        let writers = row(&document, WRITERS, guarded);
        assert_eq!(readers["address"], writers["address"], "{document:#}");
        assert_eq!(number(readers, "acquisitions"), 4000 + 2 + 1, "{arguments:?}: {document:#}");
        assert_eq!(number(writers, "acquisitions"), 400 + 1 + 1, "{arguments:?}: {document:#}");
        for (row, mark) in [(readers, "/* READS */"), (writers, "/* WRITES */")] {
            assert_eq!(number(row, "contended"), 1, "{arguments:?}: {document:#}");
            // The waiter was seen asleep three times, 200 us apart; its wait began before.
            assert!(number(&row["wait_ns"], "total") > 600_000, "{row:#}");
            assert!(number(&row["hold_ns"], "total") > 0, "{row:#}");
            let stack = stack(&document, &list(row, "sites")[0]);
            assert!(stack[0].ends_with(&line_of(PROGRAM, mark)), "{row:#}: {stack:?}");
        }
        // The writer held it while the reader was seen asleep.
        assert!(number(&writers["hold_ns"], "max") > 600_000, "{writers:#}");
        let made = |row: &Value| {
            row["created_at"].as_str().is_some_and(|at| at.ends_with(&line_of(PROGRAM, "/* INIT */")))
        };
        let made = row(&document, WRITERS, made);
        assert_eq!(number(made, "acquisitions"), 1, "{document:#}");
        let in_child = row(&document, READERS, |row| row["address"] == made["address"]);
        assert_eq!(number(in_child, "acquisitions"), 3, "{document:#}");
        assert_ne!(in_child["pid"], made["pid"], "{document:#}");
        let shared = row(&document, "readers-writer lock, process-shared, writers", |row| {
            row["variable"] == "shared (in program)"
        });
        assert_eq!(number(shared, "acquisitions"), 1, "{document:#}");

        let glibcs = arguments.is_empty() || arguments.contains(&"glibc");
        let whose = if glibcs { "glibc" } else { "by-kind" };
        assert_eq!(document["rwlock"], whose);
        assert!(table.contains(&format!(", rwlock {whose}")), "{table}");
        assert!(
            table.contains("guarded (in program), readers") && table.contains(" a readers-writer lock"),
            "{table}"
        );
        assert_eq!(table.contains("readers-writer lock events"), !glibcs, "{table}");
        for event in Event::ALL.iter().filter(|event| event.family() == Family::ReadersWriter) {
            let counted = list(&document, "events").iter().find(|row| row["name"] == event.name());
            let count = counted.map_or(0, |row| number(row, "count"));
            // A writer queued, and a reader; both as the head; nobody ran out of time.
            let expected = match event {
                Event::ReaderQueued | Event::WriterQueued => u64::from(!glibcs),
                Event::QueueLeft | Event::QueueSleep => 0,
                _ => continue,
            };
            assert_eq!(count, expected, "{event:?}, {arguments:?}: {document:#}");
        }
    }
}

/// A program that says on whose code its locks are: glibc's notes the writer's thread id.
const WHOSE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_rwlock_wrlock(&lock);
    puts(lock.__data.__cur_writer == gettid() ? "glibc" : "ours");
    return pthread_rwlock_unlock(&lock);
}
"#;

#[test]
fn a_readers_writer_lock_is_whose_it_was_asked_to_be() {
    let program = compile_c(WHOSE, &["-O1", "-pthread"]);
    let said = |cmd: &mut Command| {
        let output = run_limited(cmd.arg(&program), LIMIT);
        expect_status(&output, 0);
        String::from_utf8_lossy(&output.stdout).trim_end().to_string()
    };
    for (arguments, whose) in [
        (&[][..], "ours"),
        (&["--rwlock", "by-kind"], "ours"),
        (&["--rwlock", "phase-fair"], "ours"),
        (&["--rwlock", "glibc"], "glibc"),
        (&["--lock", "qspin"], "ours"),
        (&["--lock", "glibc"], "glibc"),
        (&["--lock", "glibc,qspin"], "glibc"),
        (&["--lock", "glibc", "--rwlock", "glibc"], "glibc"),
        // Who names some gets them, whatever the mutexes are.
        (&["--lock", "glibc", "--rwlock", "phase-fair"], "ours"),
        (&["--lock", "glibc,qspin", "--rwlock", "by-kind"], "ours"),
        (&["--lock", "qspin", "--rwlock", "glibc"], "glibc"),
    ] {
        assert_eq!(said(poundlock().arg("run").args(arguments).arg("--")), whose, "{arguments:?}");
        // What is around it says nothing.
        let mut cmd = poundlock();
        cmd.env("POUNDLOCK_RWLOCK", "glibc").arg("run").args(arguments).arg("--");
        assert_eq!(said(&mut cmd), whose, "{arguments:?}");
    }
    // The library by itself asks the environment.
    for (value, whose) in
        [(None, "ours"), (Some("glibc"), "glibc"), (Some("phase-fair"), "ours"), (Some("nonsense"), "ours")]
    {
        let mut cmd = Command::new("env");
        cmd.arg(format!("LD_PRELOAD={}", preload_library().display()));
        cmd.args(value.map(|value| format!("POUNDLOCK_RWLOCK={value}")));
        assert_eq!(said(&mut cmd), whose, "{value:?}");
    }
}

#[test]
fn a_choice_that_is_none_is_refused_in_one_line() {
    for command in ["run", "stat", "torture"] {
        for name in ["nonesuch", "", "by-kind,phase-fair"] {
            let mut cmd = poundlock_bare();
            cmd.args([command, "--rwlock", name]);
            if command != "torture" {
                cmd.args(["--", "true"]);
            }
            let output = run_limited(&mut cmd, LIMIT);
            expect_status(&output, 2);
            let text = stderr(&output);
            assert_eq!(
                text,
                format!(
                    "poundlock: unknown readers-writer lock '{name}': choose from by-kind, phase-fair, \
                        glibc\n"
                )
            );
        }
    }
}
