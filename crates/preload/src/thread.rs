//! The starts of threads, which are counted: a thread without a counted lock is seen nowhere else.

use core::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::{mode, real, stat};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's.
    started(unsafe { real::pthread_create(thread, attributes, start, argument) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn thrd_create(
    thread: *mut pthread_t,
    start: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's.
    started(unsafe { real::thrd_create(thread, start, argument) })
}

/// Counts the thread if it was started: both functions return 0 then.
fn started(result: c_int) -> c_int {
    if result == 0 && mode::get().counted() {
        stat::RECORDER.thread_started();
    }
    result
}
