//! Clocks and consumption.

use std::mem::MaybeUninit;

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of CPU time that the calling thread has used.
pub fn thread_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer is to a timespec, which the call fills in; both clocks that we ask for always
    // exist.
    let now = unsafe {
        libc::clock_gettime(clock, now.as_mut_ptr());
        now.assume_init()
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What a process has consumed so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// User and system CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Times a thread gave up its CPU.
    pub voluntary_switches: u64,
    /// Times a thread was made to give up its CPU.
    pub involuntary_switches: u64,
}

impl Usage {
    /// The calling process's, all its threads together.
    pub fn of_this_process() -> Usage {
        Self::of(libc::RUSAGE_SELF)
    }

    /// The calling thread's.
    pub fn of_this_thread() -> Usage {
        Self::of(libc::RUSAGE_THREAD)
    }

    /// That of the children that it has waited for, and of those that they have.
    pub fn of_children() -> Usage {
        Self::of(libc::RUSAGE_CHILDREN)
    }

    fn of(whom: libc::c_int) -> Usage {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a rusage, which is valid when zeroed and which the call fills in.
        let usage = unsafe {
            libc::getrusage(whom, usage.as_mut_ptr());
            usage.assume_init()
        };
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Usage {
            cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// What was consumed since `earlier`.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns - earlier.cpu_ns,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
        }
    }
}
