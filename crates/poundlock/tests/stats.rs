//! With the feature `stats`: what `poundlock stat` says of a program's locks. The program is this test again.

use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::thread;

use poundlock::{Condvar, FairMutex, Mutex, RwLock, RwLockWriteGuard, SpinLock};
use poundlock_testing::{LIMIT, asleep, built, expect_status, preload_library, run_limited};

static PLAIN: Mutex<u32> = Mutex::new(0);
static FAIR: FairMutex<u32> = FairMutex::new(0);
static SPIN: SpinLock<u32> = SpinLock::new(0);
static SHARED: RwLock<u32> = RwLock::new(0);
static CHANGED: Condvar = Condvar::new();

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

/// What is measured.
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

#[test]
fn the_locks_of_a_program_are_in_its_table() {
    if std::env::var_os(MEASURED).is_some() {
        program();
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("stat.json");
    let mut command = Command::new(built("poundlock", "poundlock-cli", &[]));
    command.env("POUNDLOCK_PRELOAD_LIB", preload_library());
    command.args(["stat", "--each", "--top", "0", "--json"]).arg(&json).arg("--");
    command.arg(std::env::current_exe().expect("a name"));
    command.args(["--exact", "stats::the_locks_of_a_program_are_in_its_table"]).env(MEASURED, "1");
    expect_status(&run_limited(&mut command, LIMIT), 0);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
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
    assert_eq!(count(&named("SHARED", ", readers"), "acquisitions"), 30);
    assert_eq!(count(&named("SHARED", ", writers"), "acquisitions"), 10);
    assert!(locks.len() < 60, "the places of those that are gone are used again: {}", locks.len());
}
