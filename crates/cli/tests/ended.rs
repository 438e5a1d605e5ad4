//! Threads that end while they hold locks: what `stat`, `who`, `top` and `check` say of those who wait then.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use poundlock_testing::{LIMIT, expect_status, start, until};
use serde_json::Value;

use crate::attach::can_watch;
use crate::stat_ways::only_child;
use crate::support::{line_of, list, parsed, poundlock, poundlock_bare, program, scratch, stderr, stdout};

const SOURCE: &str = concat!(crate::support::await_sleep!(), include_str!("../../../tests/stat/ended.c"));

fn ended() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program(SOURCE))
}

/// A way to end with a lock held.
struct Case {
    kind: &'static str,
    way: &'static str,
    /// Whose locks it is under `stat`.
    lock: &'static str,
    /// As reports call the lock, and how it was held.
    named: &'static str,
}

const CASES: &[Case] = &[
    Case { kind: "mutex", way: "return", lock: "glibc", named: "mutex_left (in program)" },
    Case { kind: "mutex", way: "main", lock: "handoff", named: "mutex_left (in program)" },
    Case { kind: "recursive", way: "exit", lock: "poundlock", named: "recursive_left (in program)" },
    Case { kind: "read", way: "cancel", lock: "glibc", named: "shared_left (in program) to read" },
    Case { kind: "read", way: "main", lock: "poundlock", named: "shared_left (in program) to read" },
    Case { kind: "write", way: "exit", lock: "poundlock", named: "shared_left (in program) to write" },
    Case { kind: "write", way: "main", lock: "glibc", named: "shared_left (in program) to write" },
    Case { kind: "spin", way: "return", lock: "glibc", named: "spin_left (in program)" },
    Case { kind: "spin", way: "cancel", lock: "poundlock", named: "spin_left (in program)" },
];

impl Case {
    /// The line that took the lock.
    fn taken(&self) -> String {
        let call = match self.kind {
            "mutex" => "pthread_mutex_lock(&mutex_left)); // TAKEN",
            "recursive" => "pthread_mutex_lock(&recursive_left)); // TAKEN",
            "read" => "pthread_rwlock_rdlock(&shared_left)); // TAKEN",
            "spin" => "pthread_spin_lock(&spin_left)); // TAKEN",
            _ => "pthread_rwlock_wrlock(&shared_left)); // TAKEN",
        };
        line_of(SOURCE, call)
    }
}

/// `stat` opens with the ended holder, gives no advice of how to be quicker, and accuses no living thread;
/// `who` says the same of the process that `stat` runs.
#[test]
fn stat_and_who_name_a_holder_that_has_ended() {
    for case in CASES {
        let Case { kind, way, lock, named } = case;
        let about = format!("{kind} {way} --lock {lock}");
        let json = scratch().join("report.json");
        let mut command = poundlock();
        command.env("COLUMNS", "1000").args(["stat", "--every", "0.2", "--lock", lock, "--json"]).arg(&json);
        let mut running = start(command.arg("--").arg(ended()).args([kind, way]));
        running.wait_for_output("stuck", LIMIT);
        let taken = case.taken();
        let says_so = |line: &str| {
            line.starts_with("ENDED HOLDER: thread ")
                && line.contains(&format!("(loader) took {named} at take ("))
                && line.contains(&format!("{taken} and ended "))
                && line.ends_with("2 threads wait for it, and nobody will release it")
        };
        until(&format!("{about} is told"), || running.errors_so_far().lines().any(says_so));

        let pid = only_child(running.id()).to_string();
        let said = |text: &str| {
            text.contains("\nended holder: ")
                && text.contains(", held by loader (")
                && text.contains(&taken)
                && text.contains("and has ended: nobody")
        };
        until(&format!("{about} is told by who"), || {
            let output = poundlock_bare().args(["who", &pid]).output().expect("who runs");
            let text = stdout(&output);
            assert!(!text.contains("deadlock:") && !text.contains("this is work"), "{about}: {text}");
            said(&text)
        });

        running.kill(libc::SIGTERM);
        let output = running.finish(LIMIT);
        expect_status(&output, 143);
        let text = stderr(&output);
        let last = text.rfind("ENDED HOLDER").expect("said in the last report, too");
        assert!(!text.contains("DEADLOCK") && !text[last..].contains("\n* "), "{about}: {text}");
        let document = parsed(&json);
        assert!(list(&document, "diagnosis").is_empty(), "{about}: {:#}", document["diagnosis"]);
        let threads = list(&document["inside"], "threads");
        let holders: Vec<&Value> =
            threads.iter().filter(|thread| !list(thread, "holds").is_empty()).collect();
        let [holder] = holders[..] else { panic!("{about}: {threads:#?}") };
        assert!(holder["name"] == "loader" && holder["ended_ns"].is_u64(), "{about}: {holder:#}");
        let waiters: Vec<&Value> = threads.iter().filter(|thread| thread["waits_for"].is_object()).collect();
        assert_eq!(waiters.len(), 2, "{about}: {threads:#?}");
        let by = |waiter: &&Value| {
            let [by] = list(waiter, "held_by") else { panic!("{about}: {waiter:#}") };
            &threads[by.as_u64().expect("an index") as usize]
        };
        assert!(waiters.iter().all(|waiter| by(waiter)["name"] == "loader"), "{about}: {threads:#?}");
        let nobody = list(&document["inside"], "cycles").is_empty();
        assert!(nobody && waiters.iter().all(|waiter| waiter["ended_ns"].is_null()), "{about}");
    }
}

/// `top` says so above its table.
#[test]
fn top_names_a_holder_that_has_ended() {
    let mut command = poundlock();
    command.args(["top", "--interval", "0.2", "--"]).arg(ended()).args(["write", "exit"]);
    let running = start(&mut command);
    let taken = line_of(SOURCE, "pthread_rwlock_wrlock(&shared_left)); // TAKEN");
    until("it is told", || {
        let text = running.errors_so_far();
        text.lines().any(|line| {
            line.starts_with("ENDED HOLDER: thread ")
                && line.contains("(loader) took ")
                && line.contains(&taken)
        })
    });
    running.kill(libc::SIGTERM);
    running.finish(LIMIT);
}

/// Seen from outside, where the lock itself names its owner: not a reader, nor a spinlock's.
#[test]
fn futex_calls_tell_a_holder_that_has_ended() {
    if !can_watch() {
        return;
    }
    for (kind, way, named) in [
        ("mutex", "return", "mutex_left"),
        ("mutex", "main", "mutex_left"),
        ("recursive", "exit", "recursive_left"),
        ("write", "cancel", "shared_left"),
    ] {
        let mut target = start(Command::new(ended()).args([kind, way]).stdin(Stdio::piped()));
        target.wait_for_output("stuck", LIMIT);
        let pid = target.id().to_string();
        for command in
            [&["stat", "--every", "0.2", "--pid", &pid][..], &["top", "--interval", "0.2", "--pid", &pid]]
        {
            let about = format!("{kind} {way} {command:?}");
            let running = start(poundlock_bare().env("COLUMNS", "1000").args(command));
            let says_so = |line: &str| {
                line.starts_with("ENDED HOLDER: thread ")
                    && line.contains(&format!(" took {named} "))
                    && line.contains(" and ended without releasing it; 2 threads wait for it, and nobody")
            };
            until(&format!("{about} tells it"), || {
                format!("{}{}", running.output_so_far(), running.errors_so_far()).lines().any(says_so)
            });
            running.kill(libc::SIGINT);
            running.finish(LIMIT);
        }
        target.kill(libc::SIGKILL);
        target.finish(LIMIT);
    }
}

/// Of a command that is watched from its start on it is known when the thread ended.
#[test]
fn futex_calls_tell_when_a_holder_ended() {
    if !can_watch() {
        return;
    }
    let mut command = poundlock_bare();
    command.env("COLUMNS", "1000").args(["stat", "--futex", "--every", "0.2", "--"]);
    let running = start(command.arg(ended()).args(["write", "exit"]));
    until("it is told", || {
        running.errors_so_far().lines().any(|line| {
            line.starts_with("ENDED HOLDER: thread ")
                && line.contains(" took shared_left (in program) to write and ended ")
                && line.contains(" ago without releasing it; 2 threads wait for it")
        })
    });
    running.kill(libc::SIGTERM);
    running.finish(LIMIT);
}

/// A lock that another thread has released is its next owner's.
#[test]
fn futex_calls_accuse_nobody_of_a_lock_that_was_released() {
    if !can_watch() {
        return;
    }
    for (kind, released) in [("mutex", "by"), ("write", "destructor")] {
        let mut target = Command::new(ended());
        let mut target = start(target.args([kind, "return", released]).stdin(Stdio::piped()));
        target.wait_for_output("stuck", LIMIT);
        let mut command = poundlock_bare();
        command.env("COLUMNS", "1000").args(["stat", "--every", "0.2", "--pid", &target.id().to_string()]);
        let running = start(&mut command);
        until(&format!("the wait for the lock of {kind} is told"), || {
            let text = running.errors_so_far();
            assert!(!text.contains("ENDED HOLDER"), "{kind}: {text}");
            text.lines().any(|line| line.contains(" waits for ") && line.contains("_left"))
        });
        running.kill(libc::SIGINT);
        running.finish(LIMIT);
        target.write_input(b"");
        expect_status(&target.finish(LIMIT), 0);
    }
}

/// `check` tells the standstill as what it is, besides the thread that left the lock locked.
#[test]
fn check_names_a_holder_that_has_ended() {
    for Case { kind, way, named, .. } in CASES.iter().filter(|case| case.kind != "spin") {
        let about = format!("{kind} {way}");
        let json = scratch().join("check.json");
        let mut command = poundlock();
        command.args(["check", "--on-deadlock", "end", "--json"]).arg(&json).arg("--").arg(ended());
        let output = start(command.args([kind, way])).finish(LIMIT);
        expect_status(&output, 98);
        let document = parsed(&json);
        let found = |kind: &str| {
            let finding = list(&document, "findings").iter().find(|finding| finding["kind"] == kind).cloned();
            finding.unwrap_or_else(|| panic!("{about}: no {kind} in {document:#}"))
        };
        found("exit-held");
        let deadlock = found("deadlock").to_string();
        let lock = named.split(' ').next().unwrap_or_default();
        let loader = if *way == "main" { "the main thread" } else { "thread loader" };
        for words in [
            format!("for ever for {lock}, which {loader} ("),
            "left locked as it ended".to_owned(),
            "unlock on every path out of the thread".to_owned(),
        ] {
            assert!(deadlock.contains(&words), "{about}: no {words:?} in {deadlock}");
        }
        assert_eq!(list(&document, "findings").len(), 2, "{about}: {document:#}");
    }
}

/// A lock that another thread released, or a destructor of the thread that ended, is held by whoever took it
/// since.
#[test]
fn a_lock_that_is_released_after_all_is_its_next_holders() {
    for (kind, released, lock) in [
        ("mutex", "by", "glibc"),
        ("mutex", "destructor", "poundlock"),
        ("spin", "by", "poundlock"),
        ("write", "destructor", "glibc"),
        ("read", "by", "poundlock"),
    ] {
        let about = format!("{kind} {released} --lock {lock}");
        let mut command = poundlock();
        command.env("COLUMNS", "1000").args(["stat", "--every", "0.2", "--lock", lock, "--"]);
        command.arg(ended()).args([kind, "return", released]).stdin(std::process::Stdio::piped());
        let mut running = start(&mut command);
        until(&format!("{about} is told"), || {
            let text = running.errors_so_far();
            assert!(!text.contains("ENDED HOLDER"), "{about}: {text}");
            text.lines().any(|line| line.contains(" waits for ") && line.ends_with("(first)"))
        });
        running.write_input(b"");
        expect_status(&running.finish(LIMIT), 0);
    }
}
