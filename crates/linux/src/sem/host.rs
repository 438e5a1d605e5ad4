//! What an array asks of Linux.

use core::ptr;

use poundlock_core::platform::Waited;
use poundlock_core::semarray::{Host, Process};

use crate::atomic::U32;
use crate::futex::keeping_errno;
use crate::platform::Linux;

use super::{files, handlers, process};

impl Host for Linux {
    fn wait_shared(word: &U32, expected: u32, nanoseconds: u64) -> Waited {
        Self::wait_shared_as(word, expected, u32::MAX, nanoseconds)
    }

    fn wake_shared(word: *const U32, count: u32) {
        wake(word, count.min(i32::MAX as u32), u32::MAX);
    }

    fn wait_shared_as(word: &U32, expected: u32, bit: u32, nanoseconds: u64) -> Waited {
        // With a time, the kernel never starts the call again after a signal handler, whatever its flags.
        let time = (nanoseconds != u64::MAX).then(|| crate::futex::in_nanoseconds(nanoseconds));
        // SAFETY: the word and the time, if there is one, outlive the call, which reads them.
        let waited = keeping_errno(|| unsafe {
            libc::syscall(
                libc::SYS_futex,
                ptr::from_ref(word),
                libc::FUTEX_WAIT_BITSET,
                expected,
                time.as_ref().map_or(ptr::null(), ptr::from_ref),
                ptr::null::<u32>(),
                bit,
            )
        });
        match waited {
            Err(libc::ETIMEDOUT) => {
                handlers::look_again();
                Waited::TimedOut
            }
            Err(libc::EINTR) => Waited::Interrupted,
            _ => Waited::Woken,
        }
    }

    #[inline]
    fn interrupts() -> bool {
        handlers::interrupts()
    }

    fn wake_shared_as(word: *const U32, bits: u32) {
        wake(word, i32::MAX as u32, bits);
    }

    #[inline(always)]
    fn process() -> Option<Process> {
        process::process()
    }

    fn gone(slot: u32) -> bool {
        process::gone(slot)
    }

    fn deserted(slot: u32) -> bool {
        process::deserted(slot)
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

fn wake(word: *const U32, count: u32, bits: u32) {
    // A word that is not mapped any more is EFAULT, and nobody waits there.
    // SAFETY: the kernel looks for the page behind the address, and does not write.
    let _ = keeping_errno(|| unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE_BITSET,
            count,
            ptr::null::<libc::timespec>(),
            ptr::null::<u32>(),
            bits,
        )
    });
}
