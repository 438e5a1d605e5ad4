//! The shape of the exported symbols. Where C's function takes a pointer to an object, to a time, or to
//! attributes or null, ours takes a reference, or an option of one: that it points to one is C's contract,
//! and any bytes are one of ours.
//!
//! An exported lock function is one jump into its Rust body, which gets two more arguments than C passes: the
//! return address and the stack pointer of the caller, to tell call sites apart when they are counted. One
//! with a fast path of its own makes that jump after it.
//!
//! An exported wait is a cancellation point, so a frame of it may be unwound by force, which no Rust frame
//! may be. Its frame is these few instructions; the Rust functions that it calls have returned by then.

/// Exports `$name`, which passes its arguments to `$body`, and as two more the return address and the caller's
/// stack pointer.
macro_rules! export {
    (@other , $name:ident($($arg:ty),*) -> $body:path) => {};
    (@other $other:ident, $name:ident($($arg:ty),*) -> $body:path) => {
        $crate::entry::export! { @ #[doc = concat!("As \
            `", stringify!($name), "`.")] $other($($arg),*) -> $body }
    };
    (@ $(#[$doc:meta])* $name:ident($a:ty) -> $body:path) => {
        $crate::entry::export! { @ $(#[$doc])* $name($a) -> 1, $body }
    };
    (@ $(#[$doc:meta])* $name:ident($a:ty, $b:ty) -> $body:path) => {
        $crate::entry::export! { @ $(#[$doc])* $name($a, $b) -> 2, $body }
    };
    (@ $(#[$doc:meta])* $name:ident($a:ty, $b:ty, $c:ty) -> $body:path) => {
        $crate::entry::export! { @ $(#[$doc])* $name($a, $b, $c) -> 3, $body }
    };
    (@ $(#[$doc:meta])* $name:ident($($arg:ty),*) -> $count:tt, $body:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($(_: $arg),*) -> ::libc::c_int {
            $crate::arch::go_on!($count, $body)
        }
    };
    ($($(#[$doc:meta])* $name:ident $(| $other:ident)? ($($arg:ty),*) -> $body:path;)*) => {
        $(
            $crate::entry::export! { @ $(#[$doc])* $name($($arg),*) -> $body }
            $crate::entry::export! { @other $($other)?, $name($($arg),*) -> $body }
        )*
    };
}

/// Defines `$name`, to which an exported function without a stack frame goes on by a jump: so its caller's
/// address is found where it would be without it, and the fast path need not look for it. (Where it is a
/// call, places of waiting are still told apart, but described by our own function.)
macro_rules! with_call_site {
    ($($name:ident($arg:ty) -> $body:path;)*) => {$(
        #[unsafe(naked)]
        extern "C" fn $name(_: $arg) -> ::libc::c_int {
            $crate::arch::go_on!(1, $body)
        }
    )*};
}

/// Exports another name of a function of one argument.
macro_rules! alias {
    ($($name:ident = $body:ident($arg:ty);)*) => {$(
        #[doc = concat!("As `", stringify!($body), "`.")]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(object: $arg) -> ::libc::c_int {
            $body(object)
        }
    )*};
}

/// What the body of a wait returns if the thread is to be cancelled; no error number.
pub(crate) const CANCEL: libc::c_int = -1;

/// `PTHREAD_CANCEL_DEFERRED`.
pub(crate) const DEFERRED: libc::c_int = 0;

/// Exports `$name`, a cancellable wait of up to four arguments. `$prepare` and `$body` are given four, of which
/// some mean nothing, and then the return address and the stack pointer of the caller. In turn: cancellation is made to wait for a
/// cancellation point, should the thread have chosen otherwise; `$prepare(arguments)` registers the thread
/// and returns null if the wait is ours, else glibc's function, or one that returns why the wait is refused;
/// in ours an earlier request to cancel is acted on; then either `$body(arguments)`, and cancellation if it
/// says so, or glibc's function between `$prepare` and
/// `$finish(cond, mutex, result, return address)`; and the thread's choice is
/// restored, upon which it may be cancelled, mutex in hand.
macro_rules! export_wait {
    ($(#[$doc:meta])* $name:ident($($arg:ty),*), $prepare:path, $body:path, $finish:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($(_: $arg),*) -> ::libc::c_int {
            $crate::arch::cancellable_wait!($prepare, $body, $finish)
        }
    };
}

pub(crate) use {alias, export, export_wait, with_call_site};
