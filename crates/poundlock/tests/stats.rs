//! With the feature `stats`: what `poundlock stat` and `poundlock check` say of a program's locks. The program
//! is this test again, or an example.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::thread;

use poundlock::{Condvar, FairMutex, Mutex, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard, SpinLock};
use poundlock_testing::{LIMIT, asleep, built, expect_status, preload_library, run_limited};

static PLAIN: Mutex<u32> = Mutex::new(0);
static FAIR: FairMutex<u32> = FairMutex::new(0);
static SPIN: SpinLock<u32> = SpinLock::new(0);
static SHARED: RwLock<u32> = RwLock::new(0);
static CHANGED: Condvar = Condvar::new();
static INNER: Mutex<u32> = Mutex::new(0);

/// Set in the measured program.
const MEASURED: &str = "POUNDLOCK_TEST_MEASURED";

/// Returns when the thread `waiter` sleeps, seen twice in a row: a sleep on the way to the lock is not taken
/// for the wait.
fn await_sleep(waiter: &AtomicI32) {
    let mut seen = 0;
    while seen < 2 {
        thread::yield_now();
        seen = if asleep(waiter.load(SeqCst)) { seen + 1 } else { 0 };
    }
}

#[inline(never)]
fn waits_for_it() {
    *PLAIN.lock() += 1;
}

/// What is measured, and right.
fn program() {
    for _ in 0..1000 {
        *PLAIN.lock() += 1;
        *FAIR.lock() += 1;
    }
    for _ in 0..500 {
        *SPIN.lock() += 1;
        assert!(SPIN.try_lock().is_some());
    }
    for _ in 0..10 {
        let writer = SHARED.write();
        drop(RwLockWriteGuard::downgrade(writer));
        drop((SHARED.read(), SHARED.read_recursive()));
    }
    for _ in 0..2 {
        // A reader that was the writer has waited for that before it had the other lock: it is no order.
        let turn = || {
            let writer = SHARED.write();
            let inner = INNER.lock();
            let reader = RwLockWriteGuard::downgrade(writer);
            drop(inner);
            drop(reader);
            let reader = SHARED.upgradable_read();
            drop(RwLockUpgradableReadGuard::upgrade(reader));
        };
        thread::scope(|scope| drop(scope.spawn(turn).join()));
    }
    // Locks that come and go.
    for round in 0..100 {
        assert_eq!(*Mutex::new(round).lock(), round);
    }
    let waiter = AtomicI32::new(0);
    thread::scope(|scope| {
        let guard = PLAIN.lock();
        scope.spawn(|| {
            // SAFETY: only returns a number.
            waiter.store(unsafe { libc::gettid() }, SeqCst);
            waits_for_it();
        });
        await_sleep(&waiter);
        drop(guard);
    });
    let guard = PLAIN.lock();
    assert!(thread::scope(|scope| {
        scope.spawn(|| PLAIN.try_lock_for(std::time::Duration::from_millis(1)).is_none()).join().unwrap()
    }));
    drop(guard);
    // A wait for a condition is not one for a lock, and afterwards it is acquired.
    assert!(CHANGED.wait_for(&mut FAIR.lock(), std::time::Duration::from_millis(1)).timed_out());
}

/// What is wrong, one by one; at last it waits for itself.
fn wrong_program() {
    thread::spawn(|| std::mem::forget(FAIR.lock())).join().expect("it does not panic");
    let lock = Box::new(Mutex::new(0));
    std::mem::forget(lock.lock());
    drop(lock);
    let reader = SHARED.read();
    drop(SHARED.read());
    drop(reader);
    let _guard = PLAIN.lock();
    waits_for_it();
}

/// Runs a program by a command of `poundlock`, and returns what that says as JSON, too.
#[track_caller]
fn watched(options: &[&str], program: &Path, what: Option<(&str, &str)>) -> (Output, serde_json::Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("seen.json");
    let mut command = Command::new(built("poundlock", "poundlock-cli", &[]));
    command.env("POUNDLOCK_PRELOAD_LIB", preload_library());
    command.args(options).arg("--json").arg(&json).arg("--").arg(program);
    if let Some((test, what)) = what {
        command.args(["--exact", test]).env(MEASURED, what);
    }
    let output = run_limited(&mut command, LIMIT);
    let text = std::fs::read(&json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, serde_json::from_slice(&text).expect("JSON"))
}

/// The kinds of what was found, sorted.
fn kinds(report: &serde_json::Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("a list");
    let mut kinds: Vec<&str> =
        findings.iter().map(|finding| finding["kind"].as_str().expect("text")).collect();
    kinds.sort_unstable();
    kinds
}

/// An example that needs the feature.
fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}"), "poundlock", &["--features", "stats", "--example", name])
}

#[test]
fn the_examples_are_checked() {
    let (output, report) = watched(&["check"], &example("order"), None);
    expect_status(&output, 0);
    assert_eq!(kinds(&report), ["order"], "{report:#}");
    let said = String::from_utf8_lossy(&output.stderr);
    let source = include_str!("../examples/order.rs");
    let named = source.lines().zip(1..).filter(|(line, _)| line.ends_with("// named"));
    let lines: Vec<String> = named.map(|(_, number)| format!("examples/order.rs:{number})")).collect();
    assert_eq!(lines.len(), 4);
    for line in lines {
        // The innermost frame that is shown: that of the program, not of the lock.
        let first = |said: &&str| said.trim_start().starts_with("at ") && said.ends_with(&line);
        assert!(said.lines().any(|line| first(&line)), "{line}: {said}");
    }
    for (name, kind) in [("order::TOTAL", "mutex"), ("order::NAMES", "readers-writer lock")] {
        let locks = report["findings"][0]["locks"].as_array().expect("a list");
        let is_it = |lock: &&serde_json::Value| lock["kind"] == kind;
        let lock = locks.iter().find(is_it).unwrap_or_else(|| panic!("{kind}: {report:#}"));
        assert!(lock["name"].as_str().is_some_and(|found| found.contains(name)), "{lock:#}");
    }
    let (output, report) = watched(&["check"], &example("order-ok"), None);
    expect_status(&output, 0);
    assert_eq!(kinds(&report), [""; 0], "{report:#}");
}

#[test]
fn the_locks_of_a_program_are_checked() {
    match std::env::var(MEASURED).as_deref() {
        Ok("right") => return program(),
        Ok(_) => return wrong_program(),
        Err(_) => {}
    }
    let own = std::env::current_exe().expect("a name");
    let test = "stats::the_locks_of_a_program_are_checked";
    let (output, report) = watched(&["check"], &own, Some((test, "right")));
    expect_status(&output, 0);
    assert_eq!(kinds(&report), [""; 0], "{report:#}");
    let (output, report) = watched(&["check", "--on-deadlock", "end"], &own, Some((test, "wrong")));
    expect_status(&output, 98);
    let mut found = kinds(&report);
    // Who takes what it holds waits for itself then.
    found.retain(|kind| *kind != "deadlock");
    assert_eq!(found, ["destroy-held", "exit-held", "relock", "reread"], "{report:#}");
    assert!(report.to_string().contains("waits_for_it"), "{report:#}");
}

#[test]
fn the_locks_of_a_program_are_in_its_table() {
    if std::env::var_os(MEASURED).is_some() {
        program();
        return;
    }
    let own = std::env::current_exe().expect("a name");
    let test = "stats::the_locks_of_a_program_are_in_its_table";
    let (output, report) = watched(&["stat", "--each", "--top", "0"], &own, Some((test, "right")));
    expect_status(&output, 0);
    let locks = report["locks"].as_array().expect("a list");
    let named = |name: &str, kind: &str| {
        let is_it = |lock: &&serde_json::Value| {
            lock["variable"].as_str().is_some_and(|found| found.contains(name))
                && lock["kind"].as_str().is_some_and(|found| found.contains(kind))
        };
        let found: Vec<_> = locks.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{name}, {kind}: {report:#}");
        found[0].clone()
    };
    let count = |lock: &serde_json::Value, what: &str| {
        lock[what].as_u64().unwrap_or_else(|| panic!("{what}: {lock:#}"))
    };

    let plain = named("PLAIN", "mutex");
    assert_eq!((count(&plain, "acquisitions"), count(&plain, "contended")), (1003, 2), "{plain:#}");
    assert!(plain["wait_ns"]["total"].as_u64() > Some(0), "{plain:#}");
    let places = plain["sites"].as_array().expect("a list").iter();
    let stacks: Vec<_> = places.map(|site| &report["stacks"][count(site, "stack") as usize]).collect();
    assert!(stacks.iter().any(|stack| stack.to_string().contains("waits_for_it")), "{stacks:#?}");
    assert_eq!(count(&named("FAIR", "mutex"), "acquisitions"), 1002);
    assert_eq!(count(&named("SPIN", "spinlock"), "acquisitions"), 1000);
    assert_eq!(count(&named("SHARED", ", readers"), "acquisitions"), 34);
    assert_eq!(count(&named("SHARED", ", writers"), "acquisitions"), 14);
    assert!(report.to_string().contains("CHANGED"), "{report:#}");
    assert!(locks.len() < 60, "the places of those that are gone are used again: {}", locks.len());
}
