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

/// Exports `$name`, which passes its arguments, the return address in `$ret` and the caller's stack pointer
/// in `$sp`, the registers of the two arguments after C's own, to `$body`.
macro_rules! export {
    (@other , $name:ident($($arg:ty),*) -> $body:path) => {};
    (@other $other:ident, $name:ident($($arg:ty),*) -> $body:path) => {
        $crate::entry::export! { @ #[doc = concat!("As \
            `", stringify!($name), "`.")] $other($($arg),*) -> $body }
    };
    (@ $(#[$doc:meta])* $name:ident($a:ty) -> $body:path) => {
        $crate::entry::export! { @ $(#[$doc])* $name($a) -> $body, "rsi", "rdx" }
    };
    (@ $(#[$doc:meta])* $name:ident($a:ty, $b:ty) -> $body:path) => {
        $crate::entry::export! { @ $(#[$doc])* $name($a, $b) -> $body, "rdx", "rcx" }
    };
    (@ $(#[$doc:meta])* $name:ident($a:ty, $b:ty, $c:ty) -> $body:path) => {
        $crate::entry::export! { @ $(#[$doc])* $name($a, $b, $c) -> $body, "rcx", "r8" }
    };
    (@ $(#[$doc:meta])* $name:ident($($arg:ty),*) -> $body:path, $ret:literal, $sp:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($(_: $arg),*) -> ::libc::c_int {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $ret, ", qword ptr [rsp]"),
                concat!("lea ", $sp, ", [rsp + 8]"),
                "jmp {body}",
                ".cfi_endproc",
                body = sym $body,
            )
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
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "mov rsi, qword ptr [rsp]",
                "lea rdx, [rsp + 8]",
                "jmp {body}",
                ".cfi_endproc",
                body = sym $body,
            )
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
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 56",
                ".cfi_adjust_cfa_offset 56",
                "mov qword ptr [rsp], rdi",
                "mov qword ptr [rsp + 8], rsi",
                "mov qword ptr [rsp + 16], rdx",
                "mov qword ptr [rsp + 24], rcx",
                "mov edi, {deferred}",
                "lea rsi, [rsp + 40]",
                "call qword ptr [rip + pthread_setcanceltype@GOTPCREL]",
                "mov rdi, qword ptr [rsp]",
                "mov rsi, qword ptr [rsp + 8]",
                "mov rdx, qword ptr [rsp + 16]",
                "mov rcx, qword ptr [rsp + 24]",
                "mov r8, qword ptr [rsp + 56]",
                "lea r9, [rsp + 64]",
                "call {prepare}",
                "mov qword ptr [rsp + 32], rax",
                "test rax, rax",
                "jnz 2f",
                "call qword ptr [rip + pthread_testcancel@GOTPCREL]",
                "mov rdi, qword ptr [rsp]",
                "mov rsi, qword ptr [rsp + 8]",
                "mov rdx, qword ptr [rsp + 16]",
                "mov rcx, qword ptr [rsp + 24]",
                "mov r8, qword ptr [rsp + 56]",
                "lea r9, [rsp + 64]",
                "call {body}",
                "mov dword ptr [rsp + 48], eax",
                "cmp eax, {cancel}",
                "jne 3f",
                "call qword ptr [rip + pthread_testcancel@GOTPCREL]",
                // Not cancelled after all: a spurious wake-up.
                "mov dword ptr [rsp + 48], 0",
                "jmp 3f",
                "2:",
                "mov rdi, qword ptr [rsp]",
                "mov rsi, qword ptr [rsp + 8]",
                "mov rdx, qword ptr [rsp + 16]",
                "mov rcx, qword ptr [rsp + 24]",
                "call qword ptr [rsp + 32]",
                "mov rdi, qword ptr [rsp]",
                "mov rsi, qword ptr [rsp + 8]",
                "mov edx, eax",
                "mov rcx, qword ptr [rsp + 56]",
                "call {finish}",
                "mov dword ptr [rsp + 48], eax",
                "3:",
                "mov edi, dword ptr [rsp + 40]",
                "xor esi, esi",
                "call qword ptr [rip + pthread_setcanceltype@GOTPCREL]",
                "mov eax, dword ptr [rsp + 48]",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                prepare = sym $prepare,
                body = sym $body,
                finish = sym $finish,
                cancel = const $crate::entry::CANCEL,
                deferred = const $crate::entry::DEFERRED,
            )
        }
    };
}

pub(crate) use {alias, export, export_wait, with_call_site};
