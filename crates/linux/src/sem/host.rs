//! What an array asks of Linux.

use core::ptr;

use poundlock_core::platform::Waited;
use poundlock_core::semarray::{Host, Process};

use crate::atomic::U32;
use crate::futex::keeping_errno;
use crate::platform::Linux;

use super::{files, process};

impl Host for Linux {
    fn wait_shared(word: &U32, expected: u32, nanoseconds: u64) -> Waited {
        let time = libc::timespec {
            tv_sec: (nanoseconds / 1_000_000_000).min(i64::MAX as u64) as i64,
            tv_nsec: (nanoseconds % 1_000_000_000) as i64,
        };
        // A relative time: so the kernel never starts the call again after a signal handler, whatever its flags.
        // SAFETY: the word and the time outlive the call, which reads them.
        let waited = keeping_errno(|| unsafe {
            libc::syscall(
                libc::SYS_futex,
                ptr::from_ref(word),
                libc::FUTEX_WAIT,
                expected,
                &raw const time,
                ptr::null::<u32>(),
                0,
            )
        });
        match waited {
            Err(libc::ETIMEDOUT) => Waited::TimedOut,
            Err(libc::EINTR) => Waited::Interrupted,
            _ => Waited::Woken,
        }
    }

    fn wake_shared(word: *const U32, count: u32) {
        wake(word, count.min(i32::MAX as u32));
    }

    #[inline(always)]
    fn process() -> Option<Process> {
        process::process()
    }

    fn gone(slot: u32) -> bool {
        process::gone(slot)
    }

    #[inline]
    fn seconds() -> u64 {
        // Without a system call, and the time of the last tick: as the kernel itself notes it.
        crate::futex::now(libc::CLOCK_REALTIME_COARSE).tv_sec.max(0) as u64
    }

    fn provide(memory: &[U32]) -> bool {
        files::provide(ptr::from_ref(memory).cast::<U32>().expose_provenance(), size_of_val(memory))
    }
}

fn wake(word: *const U32, count: u32) {
    // A word that is not mapped any more is EFAULT, and nobody waits there.
    // SAFETY: the kernel looks for the page behind the address, and does not write.
    let _ = keeping_errno(|| unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, count) });
}
