//! How urgent a thread is: see [`Platform::priority`](poundlock_core::Platform::priority).
//!
//! Only the kernel knows, and to ask it before every sleep would cost all programs a system call for the sake
//! of few. So an ordinary thread asks before its first sleep (which finds how it was created, or what it has
//! become since), before every 64th, and once [`scheduling_changed`] was called. A real-time thread asks each
//! time. A thread that another process (`chrt -p`) or an unseen system call makes a real-time thread is one
//! here after 64 sleeps at the latest.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use poundlock_core::platform::Atomic;

use crate::atomic::U32;
use crate::futex::keeping_errno;

/// How often [`scheduling_changed`] was called.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Sleeps of an ordinary thread between two questions.
const SLEEPS: u32 = 63;

/// The calling thread's priority. It keeps the last answer in `known`: the priority, or, for an ordinary
/// thread, as a negative number, how many more sleeps do not ask; and `CHANGES` before that. A signal handler
/// may do the same in between.
pub(crate) fn of([known, changes]: &[U32; 2]) -> u32 {
    let left = known.load(Relaxed).cast_signed();
    // Relaxed: a thread that changed our scheduling before something that we have seen was seen to change it.
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

/// Tells the locks that a thread of this process may have become a real-time thread: they treat it as one
/// from its next sleep on. Call it after the change. Async-signal-safe.
pub fn scheduling_changed() {
    CHANGES.fetch_add(1, Relaxed);
}

/// The calling thread's priority among real-time threads, from 1; a deadline thread comes before all. 0 if it
/// is an ordinary thread, or if the kernel does not say.
fn ask() -> u32 {
    const BEFORE_ALL: u32 = 100;
    // The C library's functions may be interposed, by us or by another library. SAFETY: asks about the
    // calling thread.
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

    fn become_fifo(priority: i32) -> bool {
        let parameter = libc::sched_param { sched_priority: priority };
        let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
        // SAFETY: reads one structure. Only permitted threads become real-time threads.
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
            // Nothing else in this test binary announces a change.
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
