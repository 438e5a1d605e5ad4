//! A program that forbids itself `membarrier`: a plain release that was delayed after its look may come when
//! somebody sleeps already. The sleeper gets the mutex all the same, with no third thread to help it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use poundlock_core::adaptive::{AnyNegative, RawAdaptive};
use poundlock_core::platform::{Atomic, Deadline, Platform};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_linux::{Linux, time};
use poundlock_testing::{Answer, Filter, LIMIT, elsewhere, until};

/// Longer than any sleeper takes to look.
const PATIENCE: Duration = Duration::from_secs(LIMIT);

/// Two locks that are released by a plain store while nobody has slept in them.
trait Plain: Default + Send + Sync + 'static {
    fn lock(&self, deadline: Option<&Deadline>);
    fn unlock(&self);
}

impl Plain for RawPoundlock<Linux> {
    fn lock(&self, deadline: Option<&Deadline>) {
        match deadline {
            None => RawPoundlock::lock(self),
            Some(deadline) => self.lock_until(deadline).expect("the deadline is far away"),
        }
    }
    fn unlock(&self) {
        RawPoundlock::unlock(self);
    }
}

impl Plain for RawAdaptive<Linux> {
    fn lock(&self, deadline: Option<&Deadline>) {
        match deadline {
            None => RawAdaptive::lock::<AnyNegative>(self),
            Some(deadline) => self.lock_until::<AnyNegative>(deadline).expect("the deadline is far away"),
        }
    }
    fn unlock(&self) {
        RawAdaptive::unlock::<AnyNegative>(self);
    }
}

fn a_late_release<L: Plain>(name: &str, timed: bool) {
    let lock = Arc::new(L::default());
    lock.lock(None);
    let thread = Arc::new(AtomicU32::new(0));
    let (done, is_done) = mpsc::channel();
    let sleeper = std::thread::spawn({
        let (lock, thread) = (Arc::clone(&lock), Arc::clone(&thread));
        move || {
            // SAFETY: the call takes nothing and cannot fail.
            thread.store(unsafe { libc::gettid() } as u32, SeqCst);
            let deadline = timed.then(|| time::after(10 * PATIENCE));
            lock.lock(deadline.as_ref());
            lock.unlock();
            done.send(()).expect("the test waits");
        }
    });
    // In the system call `futex`.
    until("it sleeps", || {
        let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", thread.load(SeqCst)));
        call.is_ok_and(|call| call.split(' ').next() == Some(&libc::SYS_futex.to_string()))
    });
    // The owner has looked long ago, when nobody slept, and stores only now.
    let words: *const L = &*lock;
    // SAFETY: both locks begin with the word that a plain release stores 0 to, and the test is their owner.
    unsafe { &*words.cast::<AtomicU32>() }.store(0, Release);
    assert!(is_done.recv_timeout(PATIENCE).is_ok(), "{name}, timed {timed}: the sleeper sleeps on");
    sleeper.join().expect("it does not panic");
}

#[test]
fn a_plain_release_that_comes_after_the_first_sleeper() {
    if elsewhere() {
        return;
    }
    poundlock_linux::init();
    let (word, guard) = (Atomic::new(1), Atomic::new(0));
    if !Linux::release(&word, &guard) {
        eprintln!("SKIPPED: no release by a plain store here (it needs glibc 2.35 and Linux 5.10)");
        return;
    }
    assert_eq!(word.load(Relaxed), 0);
    let error = Answer::Error(libc::EPERM);
    let filter = Filter { call: libc::SYS_membarrier, argument: None, answer: error };
    if let Err(error) = filter.install(true) {
        eprintln!("SKIPPED: no seccomp filter: {error}");
        return;
    }
    for timed in [false, true] {
        a_late_release::<RawPoundlock<Linux>>("poundlock", timed);
        a_late_release::<RawAdaptive<Linux>>("any-negative", timed);
    }
}
