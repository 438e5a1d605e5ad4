//! What an array asks of Linux.

use core::ptr;

use poundlock_core::platform::Waited;
use poundlock_core::semarray::{Host, Process};

use poundlock_linux::Linux;
use poundlock_linux::parts::U32;
use poundlock_linux::parts::keeping_errno;

use crate::{files, handlers, process};

/// In a place: the CPU's number + 1.
const CPU: u32 = 0xffff;

/// How urgent the calling thread is among threads that share a CPU; `None` for a real-time thread.
fn urgency() -> Option<u32> {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most the given number of bytes.
    let got = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0)
    });
    let policy = attributes.sched_policy.cast_signed();
    (got.is_ok() && matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE))
        .then(|| attributes.sched_policy << 8 | (attributes.sched_nice + 20).cast_unsigned())
}

/// The processes of a domain, on Linux.
pub(crate) struct Processes;

impl Host for Processes {
    type Platform = Linux;

    fn wait_shared(word: &U32, expected: u32, nanoseconds: u64) -> Waited {
        Self::wait_shared_as(word, expected, u32::MAX, nanoseconds)
    }

    fn wake_shared(word: *const U32, count: u32) {
        wake(word, count.min(i32::MAX as u32), u32::MAX);
    }

    fn wait_shared_as(word: &U32, expected: u32, bit: u32, nanoseconds: u64) -> Waited {
        // With a time, the kernel never restarts the call after a signal handler, whatever its flags.
        let time = (nanoseconds != u64::MAX).then(|| poundlock_linux::parts::in_nanoseconds(nanoseconds));
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

    fn place() -> u32 {
        match (poundlock_linux::parts::tag(), urgency()) {
            (cpu @ 1..=CPU, Some(urgency)) => urgency << CPU.count_ones() | cpu,
            _ => 0,
        }
    }

    #[inline]
    fn is_here(place: u32) -> bool {
        place & CPU == poundlock_linux::parts::tag()
    }

    #[inline(always)]
    fn process() -> Option<Process> {
        process::process()
    }

    fn gone(slot: u32) -> bool {
        process::gone(slot)
    }

    fn owner_died(slot: u32) -> bool {
        process::owner_died(slot)
    }

    fn taking_over<R>(act: impl FnOnce() -> R) -> R {
        process::taking_over(act)
    }

    #[inline]
    fn seconds() -> u64 {
        // Without a system call, and the time of the last tick: as the kernel itself notes it.
        poundlock_linux::parts::now(libc::CLOCK_REALTIME_COARSE).tv_sec.max(0) as u64
    }

    fn provide(memory: &[U32]) -> bool {
        files::provide(ptr::from_ref(memory).cast::<U32>().expose_provenance(), size_of_val(memory))
    }
}

fn wake(word: *const U32, count: u32, bits: u32) {
    // A word that is not mapped any more is EFAULT, and no thread waits there. SAFETY: the kernel looks for
    // the page behind the address, and does not write.
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

#[cfg(test)]
mod tests {
    use poundlock_core::semarray::Host;

    use super::Processes;

    #[test]
    fn a_place_is_a_cpu_and_an_urgency() {
        poundlock_linux::parts::init_cpu();
        // Another nice value, on a thread that ends. A migration between two looks is possible; a hundred in
        // a row are not.
        std::thread::spawn(|| {
            let before =
                (0..100).find_map(|_| Some(Processes::place()).filter(|place| Processes::is_here(*place)));
            // SAFETY: the calling thread's own nice value, raised, which everybody may do; 19 is the
            // greatest.
            let (nice, set) = unsafe {
                let thread = libc::gettid().cast_unsigned();
                let nice = libc::getpriority(libc::PRIO_PROCESS, thread);
                (nice, libc::setpriority(libc::PRIO_PROCESS, thread, nice + 1))
            };
            assert_eq!(set, 0);
            if let Some(before) = before.filter(|place| *place != 0 && nice < 19) {
                assert_ne!(Processes::place() >> super::CPU.count_ones(), before >> super::CPU.count_ones());
            }
            let fifo = libc::sched_param { sched_priority: 1 };
            // SAFETY: reads one structure. Only permitted threads become real-time threads.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const fifo) } == 0 {
                assert_eq!(Processes::place(), 0);
            }
        })
        .join()
        .unwrap();
    }
}
