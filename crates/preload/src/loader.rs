//! The dynamic linker's ways around an interposed symbol.
//!
//! * A library opened with `RTLD_DEEPBIND` binds to glibc before it looks at what was preloaded: its lock
//!   calls and the program's would not exclude each other. `dlopen` is exported to drop that flag.
//! * `dlvsym` with a version skips a library that has none, such as this one. It is exported to give out our
//!   functions for any version of glibc's; a reference in a binary gets ours anyway. But the next definition
//!   after a library behind ours is not ours, and neither is the first one if a library before ours has it:
//!   see [`crate::scope`].
//! * `dlclose` is exported so that `stat`, `check` and `record` can name what lies in the library afterwards.
//!
//! They go on to glibc's function by a jump, so that it sees its true caller, whose search path it uses, and
//! a destructor may unwind.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use crate::stat::RECORDER;
use crate::{real, scope};

#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlopen(_: *const c_char, _: c_int) -> *mut c_void {
    crate::arch::open!(real_dlopen, !libc::RTLD_DEEPBIND)
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlclose(_: *mut c_void) -> c_int {
    // What the mask does to the second argument means nothing: there is none.
    crate::arch::open!(before_close, !libc::RTLD_DEEPBIND)
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlvsym(_: *mut c_void, _: *const c_char, _: *const c_char) -> *mut c_void {
    crate::arch::look_up!(own, real_dlvsym)
}

/// The options with which AddressSanitizer begins, before those of the environment. Where its runtime is a
/// shared library, it refuses to run behind any other that was preloaded, which might hide its allocator;
/// ours passes its calls on. The runtime's own function of this name does nothing, and a program's comes
/// before ours.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

extern "C" fn real_dlopen() -> *mut c_void {
    real::DLOPEN.address()
}

extern "C" fn before_close() -> *mut c_void {
    RECORDER.closes();
    real::DLCLOSE.address()
}

extern "C" fn real_dlvsym() -> *mut c_void {
    real::DLVSYM.address()
}

/// Our function of that name, if it is the first one, or the next one after the caller's library, in the link
/// order. Null if glibc is to answer.
unsafe extern "C" fn own(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> *mut c_void {
    if (handle != libc::RTLD_DEFAULT && handle != libc::RTLD_NEXT) || name.is_null() || version.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's strings.
    let (name, version) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(version)) };
    let Some(export) = EXPORTS.iter().find(|export| export.name.as_bytes() == name.to_bytes()) else {
        return ptr::null_mut();
    };
    let after = (handle == libc::RTLD_NEXT).then_some(caller);
    if scope::leads_here(after, name, version) { export.function } else { ptr::null_mut() }
}

struct Export {
    name: &'static str,
    function: *mut c_void,
}

// SAFETY: addresses of functions.
unsafe impl Sync for Export {}

macro_rules! exports {
    ($($module:ident: $($name:ident)*;)*) => {
        static EXPORTS: &[Export] =
            &[$($(Export { name: stringify!($name), function: crate::$module::$name as *mut c_void }),*),*];
    };
}

exports! {
    mutex:
        pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock pthread_mutex_trylock
        pthread_mutex_timedlock pthread_mutex_clocklock pthread_mutex_unlock
        __pthread_mutex_init __pthread_mutex_destroy __pthread_mutex_lock __pthread_mutex_trylock
        __pthread_mutex_unlock;
    cond:
        pthread_cond_init pthread_cond_destroy pthread_cond_wait pthread_cond_timedwait
        pthread_cond_clockwait pthread_cond_signal pthread_cond_broadcast pthread_cancel;
    spin:
        pthread_spin_init pthread_spin_destroy pthread_spin_lock pthread_spin_trylock pthread_spin_unlock;
    rwlock:
        pthread_rwlock_init pthread_rwlock_destroy pthread_rwlock_rdlock pthread_rwlock_tryrdlock
        pthread_rwlock_timedrdlock pthread_rwlock_clockrdlock pthread_rwlock_wrlock pthread_rwlock_trywrlock
        pthread_rwlock_timedwrlock pthread_rwlock_clockwrlock pthread_rwlock_unlock
        __pthread_rwlock_init __pthread_rwlock_destroy __pthread_rwlock_rdlock __pthread_rwlock_tryrdlock
        __pthread_rwlock_wrlock __pthread_rwlock_trywrlock __pthread_rwlock_unlock;
    c11:
        mtx_init mtx_destroy mtx_lock mtx_trylock mtx_timedlock mtx_unlock
        cnd_init cnd_destroy cnd_wait cnd_timedwait cnd_signal cnd_broadcast;
    semarray:
        semget semop semtimedop semctl unshare setns _exit _Exit;
    syscall:
        syscall;
    block:
        sem_wait sem_timedwait sem_clockwait pthread_barrier_wait pthread_barrier_destroy
        pthread_join pthread_timedjoin_np pthread_clockjoin_np thrd_join
        sem_init sem_destroy sem_trywait sem_post sched_yield pthread_yield thrd_yield;
    loader:
        dlopen dlclose dlvsym;
}
