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

/// Much longer than a sleeper takes to look, and shorter than anybody waits for a test.
const PATIENCE: Duration = Duration::from_secs(120);

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

fn forbid_membarrier() -> std::io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ, libc::SYS_membarrier as u32) },
        statement(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes numbers, the second reads the program, which outlives it.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Whether a thread of this process sleeps in the system call `futex`.
fn sleeps(thread: u32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap_or_default();
    call.split(' ').next() == Some(&libc::SYS_futex.to_string())
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
    while thread.load(SeqCst) == 0 || !sleeps(thread.load(SeqCst)) {
        std::thread::yield_now();
    }
    // The owner has looked long ago, when nobody slept, and stores only now.
    let words: *const L = &*lock;
    // SAFETY: both locks begin with the word that a plain release stores 0 to, and the test is their owner.
    unsafe { &*words.cast::<AtomicU32>() }.store(0, Release);
    assert!(is_done.recv_timeout(PATIENCE).is_ok(), "{name}, timed {timed}: the sleeper sleeps on");
    sleeper.join().expect("it does not panic");
}

#[test]
fn a_plain_release_that_comes_after_the_first_sleeper() {
    poundlock_linux::init();
    let (word, guard) = (Atomic::new(1), Atomic::new(0));
    if !Linux::release(&word, &guard) {
        eprintln!("SKIPPED: no release by a plain store here (it needs glibc 2.35 and Linux 5.10)");
        return;
    }
    assert_eq!(word.load(Relaxed), 0);
    if let Err(error) = forbid_membarrier() {
        eprintln!("SKIPPED: no seccomp filter: {error}");
        return;
    }
    for timed in [false, true] {
        a_late_release::<RawPoundlock<Linux>>("poundlock", timed);
        a_late_release::<RawAdaptive<Linux>>("any-negative", timed);
    }
}
