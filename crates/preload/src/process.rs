//! The calls by which a process limits itself, watched on their way to glibc's. Where the address space
//! becomes less, the recorder gives back most of what it has reserved. Before the root directory or the user
//! changes, a forked child that has no file yet gets one, since its directory may be out of reach afterwards.
//! What other processes and bare system calls do is not seen.

use core::ffi::{c_char, c_int};

use libc::{pid_t, rlimit, uid_t};

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

macro_rules! out_of_reach {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            RECORDER.open_now();
            // SAFETY: the function of this name; the arguments are the caller's.
            unsafe { real::$name($($arg),*) }
        }
    )*};
}

out_of_reach! {
    chroot(path: *const c_char);
    setuid(user: uid_t);
    seteuid(user: uid_t);
    setreuid(real: uid_t, effective: uid_t);
    setresuid(real: uid_t, effective: uid_t, saved: uid_t);
}
