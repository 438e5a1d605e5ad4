//! A child that is forked while threads wait for locks, where the kernel does not wipe the page by which a
//! child knows that it is one: an old kernel, or a filter that refuses it, as here. None of those threads is
//! in the child, and its locks know it.
//!
//! In a process of its own: the filter is there before the first wait.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::{ptr, thread};

use poundlock::lock_api::RawMutex as Exclusive;
use poundlock::{Condvar, Mutex, RawFairMutex, RawMutex, RawSpinLock, RwLock};
use poundlock_testing::{Answer, Filter, LIMIT, elsewhere};

/// Has the kernel refuse to wipe pages for the calling thread and those that it starts. False where that is
/// not allowed.
fn refuse_wiping() -> bool {
    let advice = Some((2, libc::MADV_WIPEONFORK as u32, true));
    let filter = Filter { call: libc::SYS_madvise, argument: advice, answer: Answer::Error(libc::EPERM) };
    // SAFETY: no memory at all.
    filter.install(false).is_ok() && unsafe { libc::madvise(ptr::null_mut(), 0, libc::MADV_WIPEONFORK) } == -1
}

/// Runs `waits` in a new thread, which is asleep when this returns.
fn asleep<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    waits: impl FnOnce() + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, ()> {
    static WAITER: AtomicI32 = AtomicI32::new(0);
    WAITER.store(0, SeqCst);
    let waiter = scope.spawn(|| {
        // SAFETY: takes no arguments.
        WAITER.store(unsafe { libc::gettid() }, SeqCst);
        waits();
    });
    while WAITER.load(SeqCst) == 0 {
        thread::yield_now();
    }
    while !poundlock_testing::asleep(WAITER.load(SeqCst)) {
        thread::yield_now();
    }
    waiter
}

/// `wait` waits until `end` is called, more than once in a row. Threads wait in a process and, when it has
/// forked, in its child; each ends the wait of its own.
fn in_parent_and_child(what: &str, wait: impl Fn() + Sync, end: impl Fn()) {
    thread::scope(|scope| {
        let waiter = asleep(scope, &wait);
        // SAFETY: the child uses locks of ours, and the C library's memory, which its `fork` keeps in order.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: ends a child that waits for ever.
            unsafe { libc::alarm(LIMIT as u32) };
            thread::scope(|scope| {
                let waiter = asleep(scope, &wait);
                end();
                waiter.join().expect("no failure");
            });
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        end();
        waiter.join().expect("no failure");
        let mut status = 0;
        // SAFETY: our child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "{what}, in the child");
    });
}

/// A lock that the forking thread holds.
fn held<R: Exclusive + Sync>(what: &str) {
    let lock = R::INIT;
    lock.lock();
    let wait = || {
        lock.lock();
        // SAFETY: it is held.
        unsafe { lock.unlock() };
    };
    // SAFETY: the forking thread holds it, in the child too.
    in_parent_and_child(what, wait, || unsafe { lock.unlock() });
}

#[test]
fn a_child_does_not_wait_for_its_parents_threads_where_pages_are_not_wiped() {
    if elsewhere() {
        return;
    }
    if !refuse_wiping() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs seccomp");
        return;
    }
    held::<RawMutex>("mutex");
    held::<RawFairMutex>("fair mutex");
    held::<RawSpinLock>("spinlock");

    let lock = RwLock::new(());
    let guard = std::cell::Cell::new(Some(lock.write()));
    in_parent_and_child("readers-writer lock", || drop(lock.read()), || drop(guard.take()));

    // One that is notified takes the notification from the other.
    let (changed, mutex) = (Condvar::new(), Mutex::new(()));
    let told = AtomicBool::new(false);
    let wait = || {
        let mut guard = mutex.lock();
        while !told.load(SeqCst) {
            changed.wait(&mut guard);
        }
    };
    let end = || {
        let guard = mutex.lock();
        told.store(true, SeqCst);
        drop(guard);
        changed.notify_one();
    };
    in_parent_and_child("condition variable", wait, end);
}
