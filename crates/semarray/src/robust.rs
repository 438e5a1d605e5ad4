//! glibc's robust mutexes in shared memory: the kernel says when the thread that holds one ends, however it
//! does.
//!
//! A thread's robust mutexes are in a list that the kernel walks when the thread ends or its process calls
//! exec, before any process can learn of the end: it sets [`DIED`] in the first word of each.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use libc::{pthread_mutex_t, pthread_mutexattr_t};

use poundlock_linux::parts::keeping_errno;

/// In a mutex's word: the thread that held it has ended (the kernel's `FUTEX_OWNER_DIED`).
pub(crate) const DIED: u32 = 0x4000_0000;
/// The bits of the word that hold the thread.
pub(crate) const THREAD: u32 = 0x3fff_ffff;

/// A mutex, usable after [`Robust::make`]. Zero bytes are none yet.
#[repr(C, align(8))]
pub(crate) struct Robust(UnsafeCell<MaybeUninit<pthread_mutex_t>>);

// SAFETY: accessed through glibc's functions, and its first word as an atomic.
unsafe impl Sync for Robust {}

/// How a lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Had {
    /// As usual.
    Whole,
    /// From a thread that ended while it held it. The caller repairs what it protects.
    FromTheDead,
}

impl Robust {
    fn pointer(&self) -> *mut pthread_mutex_t {
        self.0.get().cast()
    }

    /// Makes a free mutex of it. No other thread uses it.
    pub(crate) fn make(&self) -> bool {
        let mut attributes = MaybeUninit::<pthread_mutexattr_t>::zeroed();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: attributes of ours, initialised first; memory that is a mutex's, whose old bytes mean
        // nothing any more.
        unsafe {
            ptr::write_bytes(self.pointer().cast::<u8>(), 0, size_of::<pthread_mutex_t>());
            libc::pthread_mutexattr_init(attributes) == 0
                && libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) == 0
                && libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) == 0
                && libc::pthread_mutex_init(self.pointer(), attributes) == 0
        }
    }

    /// The word that the kernel marks: the holder's thread number, 0 for none, and [`DIED`].
    pub(crate) fn word(&self) -> &AtomicU32 {
        // SAFETY: glibc's mutexes begin with the futex word on every architecture that this crate knows;
        // glibc and the kernel access it atomically.
        unsafe { AtomicU32::from_ptr(self.pointer().cast()) }
    }

    /// Acquires it if no living thread holds it.
    pub(crate) fn claim(&self) -> bool {
        // SAFETY: made before.
        match unsafe { libc::pthread_mutex_trylock(self.pointer()) } {
            0 => true,
            libc::EOWNERDEAD => {
                // SAFETY: just acquired by this thread.
                unsafe { libc::pthread_mutex_consistent(self.pointer()) };
                true
            }
            _ => false,
        }
    }

    /// Acquires it. `None`: the memory is no mutex.
    pub(crate) fn lock(&self) -> Option<Had> {
        loop {
            let mut until = poundlock_linux::parts::now(libc::CLOCK_REALTIME);
            until.tv_sec += 1;
            // SAFETY: made before.
            match unsafe { libc::pthread_mutex_timedlock(self.pointer(), &until) } {
                0 => return Some(Had::Whole),
                libc::EOWNERDEAD => {
                    // At once: if this thread ends before the repair, the next one gets EOWNERDEAD again.
                    // SAFETY: held by this thread.
                    unsafe { libc::pthread_mutex_consistent(self.pointer()) };
                    return Some(Had::FromTheDead);
                }
                libc::ETIMEDOUT => self.look_after(),
                _ => return None,
            }
        }
    }

    /// Marks it if its holder has ended without being noticed: a process that was not forked through glibc
    /// has no list.
    fn look_after(&self) {
        let seen = self.word().load(Relaxed);
        let thread = seen & THREAD;
        // SAFETY: signal 0 is sent to nobody; the call only checks.
        let ended = thread != 0
            && keeping_errno(|| unsafe { libc::syscall(libc::SYS_tkill, thread, 0) }) == Err(libc::ESRCH);
        if ended {
            let _ = self.word().compare_exchange(seen, seen & !THREAD | DIED, AcqRel, Acquire);
        }
    }

    /// Releases what the calling thread holds.
    pub(crate) fn unlock(&self) {
        // SAFETY: as the caller says.
        unsafe { libc::pthread_mutex_unlock(self.pointer()) };
    }
}

/// Whether the kernel knows the calling thread's list.
pub(crate) fn noticed() -> bool {
    let mut head = ptr::null_mut::<u8>();
    let mut length = 0usize;
    // SAFETY: writes the two.
    let asked = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length)
    });
    asked.is_ok() && !head.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Child, forever, shared, until};

    /// Runs `work` in a child, which is then killed, and waits until it is a zombie.
    fn killed(work: impl FnOnce()) -> Child {
        let done = shared::<AtomicU32>();
        let child = Child::new(|| {
            work();
            done.store(1, Relaxed);
            forever()
        });
        until("the child did its work", || done.load(Relaxed) != 0);
        child.kill();
        child.wait_zombie();
        child
    }

    #[test]
    fn a_killed_holder_is_marked_before_it_can_be_reaped() {
        let mutex = shared::<Robust>();
        assert!(mutex.make());
        assert_eq!(mutex.word().load(Relaxed), 0);
        let child = killed(|| assert!(mutex.claim()));
        assert_ne!(mutex.word().load(Relaxed) & DIED, 0);
        child.wait();
        assert_eq!(mutex.lock(), Some(Had::FromTheDead));
        assert_eq!(mutex.word().load(Relaxed) & DIED, 0);
        assert!(!std::thread::scope(|scope| scope.spawn(|| mutex.claim()).join().unwrap()));
        mutex.unlock();
        assert_eq!(mutex.lock(), Some(Had::Whole));
        mutex.unlock();
    }

    #[test]
    fn a_holder_whose_death_nobody_marked_is_found() {
        let mutex = shared::<Robust>();
        assert!(mutex.make());
        let child = killed(|| {
            assert!(noticed());
            // SAFETY: takes the list away from the kernel, as in a child that was not forked through glibc.
            let taken = unsafe {
                libc::syscall(libc::SYS_set_robust_list, ptr::null::<u8>(), 3 * size_of::<usize>())
            };
            assert_eq!(taken, 0);
            assert!(!noticed());
            assert_eq!(mutex.lock(), Some(Had::Whole));
        });
        child.wait();
        assert_eq!(mutex.word().load(Relaxed) & DIED, 0);
        assert_eq!(mutex.lock(), Some(Had::FromTheDead));
        mutex.unlock();
    }

    #[test]
    fn a_thread_that_ends_is_marked() {
        let mutex = shared::<Robust>();
        assert!(mutex.make());
        std::thread::spawn(|| assert!(mutex.claim())).join().unwrap();
        // The kernel marks before it tells the joiner.
        assert_ne!(mutex.word().load(Relaxed) & DIED, 0);
        assert!(mutex.claim());
        mutex.unlock();
    }
}
