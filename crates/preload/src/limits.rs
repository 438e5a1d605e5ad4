//! The calls by which a program limits its own address space, watched on their way to glibc's: the recorder has
//! reserved more than it uses, and gives most of that back. What other processes and bare system calls limit is
//! not seen.

use core::ffi::c_int;

use libc::{pid_t, rlimit};

use crate::real::{self, Resource};
use crate::stat::RECORDER;

/// A call has limited this process.
///
/// # Safety
/// `new` is null, or what a call that succeeded has read.
unsafe fn limited(resource: Resource, new: *const rlimit) {
    if resource == libc::RLIMIT_AS && !new.is_null() {
        // SAFETY: the caller vouches for it.
        let limit = unsafe { (*new).rlim_cur };
        if limit != libc::RLIM_INFINITY {
            RECORDER.address_space_is_limited(limit);
        }
    }
}

macro_rules! own {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(resource: Resource, new: *const rlimit) -> c_int {
            // SAFETY: the function of this name; the arguments are the caller's.
            let result = unsafe { real::$name(resource, new) };
            if result == 0 {
                // SAFETY: the call has read it.
                unsafe { limited(resource, new) };
            }
            result
        }
    )*};
}

macro_rules! of_process {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            process: pid_t,
            resource: Resource,
            new: *const rlimit,
            old: *mut rlimit,
        ) -> c_int {
            // SAFETY: the function of this name; the arguments are the caller's.
            let result = unsafe { real::$name(process, resource, new, old) };
            // SAFETY: a question.
            if result == 0 && (process == 0 || process == unsafe { libc::getpid() }) {
                // SAFETY: the call has read it.
                unsafe { limited(resource, new) };
            }
            result
        }
    )*};
}

own! {
    setrlimit;
    setrlimit64;
}

of_process! {
    prlimit;
    prlimit64;
}
