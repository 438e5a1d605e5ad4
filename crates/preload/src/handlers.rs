//! The calls that install signal handlers, watched on their way to glibc's.
//!
//! `semop` must end when a handler has run, even one with `SA_RESTART`, after which the kernel restarts a plain
//! wait unseen. See `poundlock_linux::sem::handler_installed`. And in a process under check handlers run inside
//! of a function of ours ([`crate::interrupted`]); the program is told of its own, with its own flags.
//!
//! Handlers that are installed by bare system calls are not seen here. `semop` finds them later; what they do
//! with locks is taken for what the interrupted thread does.

use core::ffi::c_int;
use core::mem::{self, MaybeUninit};
use core::ptr;

use libc::{sigaction as Action, sighandler_t};
use poundlock_semarray as semarray;

use crate::interrupted::{Change, is_called};
use crate::real::{self, Real};
use crate::{check, mode};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: null, or an action of the caller's. A copy: `old` may be the same memory.
    let new_one = unsafe { new.as_ref() }.copied();
    let called = new_one.filter(|new| is_called(new.sa_sigaction));
    if called.is_some_and(|new| new.sa_flags & libc::SA_RESTART != 0) {
        semarray::handler_installed();
    }
    let checked = mode::get().counted() && check::is_on();
    let Some(change) = checked.then(|| Change::begin(signal, false)).flatten() else {
        // SAFETY: the caller's.
        return unsafe { set_action(signal, new, old) };
    };
    let wrapped = called.map(|new| Action {
        sa_sigaction: change.wrap(new.sa_sigaction, new.sa_flags, true),
        sa_flags: new.sa_flags | libc::SA_SIGINFO,
        ..new
    });
    let mut was = MaybeUninit::<Action>::zeroed();
    // SAFETY: the caller's, or our own.
    let result = unsafe { set_action(signal, wrapped.as_ref().map_or(new, ptr::from_ref), was.as_mut_ptr()) };
    if result != 0 {
        if wrapped.is_some() {
            change.undo();
        }
        return result;
    }
    // SAFETY: zeros are one, and the call has filled it; `old` is null, or memory of the caller's for one.
    unsafe {
        if let Some(old) = old.as_mut() {
            *old = was.assume_init();
            (old.sa_sigaction, old.sa_flags) = change.as_was(old.sa_sigaction, old.sa_flags);
        }
    }
    result
}

/// # Safety
/// As `sigaction`.
unsafe fn set_action(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the function of this name, whose type this is; the rest is the caller's.
    unsafe {
        let call: unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int =
            mem::transmute(real::SIGACTION.address());
        call(signal, new, old)
    }
}

/// Sets a signal's action, by one of the calls without flags, which restart as a rule. Of those that the call
/// sets, `flags` has `SA_NODEFER`.
///
/// # Safety
/// The function's name is that of one of this type; the rest is the caller's.
unsafe fn set(function: &Real, flags: c_int, signal: c_int, handler: sighandler_t) -> sighandler_t {
    let called = is_called(handler) && handler != SIG_HOLD;
    if called {
        semarray::handler_installed();
    }
    // SAFETY: the caller's.
    let call: unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t =
        unsafe { mem::transmute(function.address()) };
    let checked = mode::get().counted() && check::is_on();
    let Some(change) = checked.then(|| Change::begin(signal, ptr::eq(function, &real::SIGSET))).flatten()
    else {
        // SAFETY: the caller's.
        return unsafe { call(signal, handler) };
    };
    let handler = if called { change.wrap(handler, flags, false) } else { handler };
    // SAFETY: the caller's.
    let was = unsafe { call(signal, handler) };
    if was == libc::SIG_ERR && called {
        change.undo();
    }
    change.as_was(was, 0).0
}

/// What `sigset` takes and returns for a blocked signal.
const SIG_HOLD: sighandler_t = 2;

macro_rules! export_set {
    ($($name:ident, $real:ident, $flags:expr;)*) => {
        $(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            // SAFETY: the function of this name.
            unsafe { set(&real::$real, $flags, signal, handler) }
        }
        )*
    };
}

export_set! {
    signal, SIGNAL, 0;
    bsd_signal, SIGNAL, 0;
    ssignal, SIGNAL, 0;
    sigset, SIGSET, 0;
    sysv_signal, SYSV_SIGNAL, libc::SA_NODEFER;
    __sysv_signal, SYSV_SIGNAL, libc::SA_NODEFER;
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
