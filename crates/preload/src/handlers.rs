//! The calls that install signal handlers, watched on their way to glibc's: `semop` must end when a handler
//! has run, even one with `SA_RESTART`, after which the kernel restarts a plain wait unseen. See
//! `poundlock_linux::sem::handler_installed`.
//!
//! Handlers that are installed by bare system calls are not seen here, but found later.

use core::ffi::c_int;
use core::mem;

use libc::{sigaction as Action, sighandler_t};
use poundlock_semarray as semarray;

use crate::real::{self, Real};

/// Whether this is a handler that the system calls.
fn is_called(handler: sighandler_t) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR].contains(&handler)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: null, or an action of the caller's.
    let new_one = unsafe { new.as_ref() };
    if new_one.is_some_and(|new| new.sa_flags & libc::SA_RESTART != 0 && is_called(new.sa_sigaction)) {
        semarray::handler_installed();
    }
    // SAFETY: the function of this name, whose type this is; the arguments are the caller's.
    unsafe {
        let call: unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int =
            mem::transmute(real::SIGACTION.address());
        call(signal, new, old)
    }
}

/// Sets a signal's action, by one of the calls without flags, which restart as a rule.
///
/// # Safety
/// The function's name is that of one of this type; the rest is the caller's.
unsafe fn set(function: &Real, signal: c_int, handler: sighandler_t) -> sighandler_t {
    if is_called(handler) {
        semarray::handler_installed();
    }
    // SAFETY: the caller's.
    unsafe {
        let call: unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t =
            mem::transmute(function.address());
        call(signal, handler)
    }
}

macro_rules! export_set {
    ($($name:ident, $real:ident;)*) => {
        $(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            // SAFETY: the function of this name.
            unsafe { set(&real::$real, signal, handler) }
        }
        )*
    };
}

export_set! {
    signal, SIGNAL;
    bsd_signal, SIGNAL;
    ssignal, SIGNAL;
    sigset, SIGSET;
}

/// Sets whether calls are restarted after a handler: it changes the flags of the installed action.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    if interrupt == 0 {
        semarray::handler_installed();
    }
    // SAFETY: the function of this name, whose type this is.
    unsafe {
        let call: unsafe extern "C" fn(c_int, c_int) -> c_int = mem::transmute(real::SIGINTERRUPT.address());
        call(signal, interrupt)
    }
}
