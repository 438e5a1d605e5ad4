//! Functions that Rust's standard library asks for and glibc before 2.33 does not export: where the library is
//! built with a newer glibc, it would not load with an older one. (They are for backtraces of panics, and
//! never called.) What older glibc has elsewhere is in `stand_ins.rs`.

use core::arch::global_asm;
use core::ffi::{c_char, c_int};

/// # Safety
/// As of `stat`.
pub(crate) unsafe extern "C" fn stat(path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: the caller's; the structure is the kernel's on 64-bit machines.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, status, 0) as c_int }
}

unsafe extern "C" fn fstat(file: c_int, status: *mut libc::stat) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_fstat, file, status) as c_int }
}

unsafe extern "C" fn gettid() -> libc::pid_t {
    // SAFETY: takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

// Under their names, for this library alone.
global_asm!(
    ".globl stat64, fstat64, gettid",
    ".hidden stat64, fstat64, gettid",
    ".set stat64, {stat}",
    ".set fstat64, {fstat}",
    ".set gettid, {gettid}",
    stat = sym stat,
    fstat = sym fstat,
    gettid = sym gettid,
);
