//! The calls that make a thread a real-time thread, watched on their way to glibc's, so that the locks treat
//! it as one from its next sleep on: see [`poundlock_linux::scheduling_changed`].
//!
//! What other processes and bare system calls do is not seen here, but found out later. Attributes that a
//! thread is created with need no watching: it asks before its first sleep.

use core::ffi::c_int;

use libc::{pid_t, pthread_t, sched_param};

use crate::real;

macro_rules! export {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the function of this name; the arguments are the caller's.
            let result = unsafe { real::$name($($arg),*) };
            if result == 0 {
                poundlock_linux::scheduling_changed();
            }
            result
        }
    )*};
}

export! {
    pthread_setschedparam(thread: pthread_t, policy: c_int, parameter: *const sched_param);
    pthread_setschedprio(thread: pthread_t, priority: c_int);
    sched_setscheduler(process: pid_t, policy: c_int, parameter: *const sched_param);
    sched_setparam(process: pid_t, parameter: *const sched_param);
}
