//! How urgent a thread is: see [`Platform::priority`](poundlock_core::Platform::priority).
//!
//! Only the kernel knows, and to ask it before every sleep would make each dearer for a thing that few
//! programs have. So an ordinary thread asks before its first sleep, which finds what it was created as or
//! has been made since, before every 64th, and once [`scheduling_changed`] was called; a real-time thread
//! asks each time. A thread that another process makes a real-time thread (`chrt -p`), or a system call that
//! nobody saw, is one here after 64 sleeps at the latest.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use poundlock_core::platform::Atomic;

use crate::atomic::U32;
use crate::futex::keeping_errno;

/// How often [`scheduling_changed`] was called.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Sleeps of an ordinary thread between two questions.
const SLEEPS: u32 = 63;

/// The calling thread's priority. It keeps in `known` what it was told last: the priority, or, of an ordinary
/// thread, as a negative number, how many more sleeps do not ask; and `CHANGES` before that. A signal handler
/// that does the same in between is as good before as after.
pub(crate) fn of([known, changes]: &[U32; 2]) -> u32 {
    let left = known.load(Relaxed).cast_signed();
    // Relaxed: whoever changed our scheduling before something that we have seen was seen to change it.
    if left < 0 && changes.load(Relaxed) == CHANGES.load(Relaxed) {
        known.store((left + 1).cast_unsigned(), Relaxed);
        return 0;
    }
    // Before the question, so that a change during it is one more.
    changes.store(CHANGES.load(Relaxed), Relaxed);
    let priority = ask();
    known.store(if priority == 0 { SLEEPS.wrapping_neg() } else { priority }, Relaxed);
    priority
}

/// Tells the locks that a thread of this process may have become a real-time thread: it is taken for one from
/// its next sleep on. Call it after the change. Async-signal-safe.
pub fn scheduling_changed() {
    CHANGES.fetch_add(1, Relaxed);
}

/// The calling thread's priority among real-time threads, from 1; one with a deadline comes before all. 0 if
/// it is none, or if the kernel does not say.
fn ask() -> u32 {
    const BEFORE_ALL: u32 = 100;
    // The C library's functions may be ours, or somebody else's.
    // SAFETY: asks about the calling thread.
    let policy = keeping_errno(|| unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) });
    match policy.map(|policy| policy as libc::c_int & !libc::SCHED_RESET_ON_FORK) {
        Ok(libc::SCHED_FIFO | libc::SCHED_RR) => {
            let mut parameter = libc::sched_param { sched_priority: 0 };
            // SAFETY: the kernel writes one structure.
            let asked =
                keeping_errno(|| unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut parameter) });
            if asked.is_ok() { parameter.sched_priority.max(0).cast_unsigned() } else { 0 }
        }
        Ok(libc::SCHED_DEADLINE) => BEFORE_ALL,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Atomic, Relaxed, SLEEPS, U32, ask, of, scheduling_changed};

    /// Whether the system lets the calling thread be that.
    fn become_fifo(priority: i32) -> bool {
        let parameter = libc::sched_param { sched_priority: priority };
        let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
        // SAFETY: reads one structure. Only those who may do so become real-time threads.
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter) == 0 }
    }

    #[test]
    fn a_change_is_noticed_when_it_is_told_and_else_after_64_sleeps() {
        // On a thread that ends.
        let test = || {
            let known = [U32::new(0), U32::new(0)];
            assert_eq!(of(&known), 0);
            if !become_fifo(7) {
                eprintln!("SKIPPED: no right to be a real-time thread");
                return;
            }
            // Nobody else in this test binary says that something has changed.
            for sleep in 0..SLEEPS {
                assert_eq!(of(&known), 0, "after {sleep} sleeps");
            }
            assert_eq!(of(&known), 7);
            assert!(become_fifo(8));
            assert_eq!(of(&known), 8);
            assert!(become_fifo(0));
            assert_eq!(of(&known), 0);
            assert!(become_fifo(9));
            scheduling_changed();
            assert_eq!(of(&known), 9);
            assert!(become_fifo(0));
            assert_eq!(of(&known), 0);
            assert!(become_fifo(10));
            // As another thread finds it in its record.
            known.iter().for_each(|word| word.store(0, Relaxed));
            assert_eq!(of(&known), ask());
            assert_eq!(ask(), 10);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
