//! What the environment says, and a line about what it says in vain.
//!
//! `poundlock run` sets these variables to what it has understood; people set them by hand, who would
//! otherwise measure the default in place of the lock that they meant.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

use poundlock_names::{Choice, RwLocks};
use poundlock_semarray as semarray;

use crate::old_glibc;

unsafe extern "C" {
    /// glibc's: null in a program that runs with another's rights.
    fn secure_getenv(name: *const c_char) -> *const c_char;
    /// Null before glibc's constructor, and so in `.preinit_array`.
    static environ: *const *const c_char;
    /// Where the kernel has put the number of arguments, the arguments, a null, and the environment.
    static __libc_stack_end: *const *const c_char;
}

/// A variable of the environment. Nothing in a program with more rights than its caller, who wrote the
/// environment: a library that the system preloads is in such programs as well.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: `name` ends in a zero. The result is a string of the environment; programs that change these
    // variables while they start other threads have that race with glibc itself.
    unsafe {
        if environ.is_null() {
            return at_the_start(name);
        }
        let value = secure_getenv(name.as_ptr());
        if value.is_null() { None } else { Some(CStr::from_ptr(value)) }
    }
}

/// The same, in what the kernel gave the program.
///
/// # Safety
/// The lists are as they were. Of the strings each ends at a zero in any case: behind the last there are some.
unsafe fn at_the_start(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: two lists of strings, each with a null at its end. Their first word is a number, if not 0.
    unsafe {
        if libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        let mut entry = __libc_stack_end.add(1);
        while !(*entry).is_null() {
            entry = entry.add(1);
        }
        loop {
            entry = entry.add(1);
            if (*entry).is_null() {
                return None;
            }
            let rest = CStr::from_ptr(*entry).to_bytes_with_nul().strip_prefix(name.to_bytes());
            if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
                return CStr::from_bytes_with_nul(value).ok();
            }
        }
    }
}

/// Whether a path means the same wherever the process goes.
pub(crate) fn is_whole(path: &CStr) -> bool {
    path.to_bytes().starts_with(b"/")
}

/// Whose a file is; root's if there is none.
pub(crate) fn owner(path: &CStr) -> libc::uid_t {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a C string, and room for the answer, which may be zeros.
    unsafe {
        old_glibc::stat(path.as_ptr(), about.as_mut_ptr());
        about.assume_init().st_uid
    }
}

/// Says in a line each what the variables say in vain.
pub(crate) fn check() {
    let check = |name: &CStr, otherwise: &str, is_known: &dyn Fn(&CStr) -> bool| {
        if let Some(value) = variable(name)
            && !value.is_empty()
            && !is_known(value)
        {
            complain(&[name.to_bytes(), b"=", value.to_bytes(), b": ", otherwise.as_bytes()]);
        }
    };
    let text = |value: &CStr, parses: fn(&str) -> bool| value.to_str().is_ok_and(parses);
    check(
        c"POUNDLOCK_LOCK",
        "no choice of locks (`poundlock locks` lists them): the default is used",
        &|value| text(value, |text| Choice::parse(text).is_ok()),
    );
    check(c"POUNDLOCK_RWLOCK", "neither by-kind, phase-fair nor glibc: the default is used", &|value| {
        text(value, |text| RwLocks::parse(text).is_some())
    });
    check(c"POUNDLOCK_SEMAPHORES", "neither ours, all nor kernel: the default is used", &|value| {
        text(value, |text| semarray::choose(text).is_some())
    });
    check(
        c"POUNDLOCK_CHECK",
        "knows only 1, semaphores, lone-signal, nesting and orders=N, with commas between: the others are left out",
        &|value| crate::check::is_known(value.to_bytes()),
    );
    check(
        c"POUNDLOCK_STATS",
        "name a directory by its whole path, from / on: there are no statistics",
        &is_whole,
    );
}

/// Writes a line to standard error, in one piece if it can.
pub(crate) fn complain(parts: &[&[u8]]) {
    const MOST: usize = 8;
    /// Nobody reads more of a value.
    const LONGEST: usize = 256;
    let _errno = Errno::keep();
    let mut pieces = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MOST];
    let line = [&b"poundlock: "[..]].into_iter().chain(parts.iter().copied()).chain([&b"\n"[..]]);
    let mut count = 0;
    for (piece, part) in pieces.iter_mut().zip(line) {
        *piece = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len().min(LONGEST) };
        count += 1;
    }
    // SAFETY: the pieces are valid; if nobody listens, nobody listens. Not `writev`: that is a cancellation
    // point.
    unsafe { libc::syscall(libc::SYS_writev, 2, pieces.as_ptr(), count) };
}

/// Puts `errno` back when dropped.
pub(crate) struct Errno(libc::c_int);

impl Errno {
    pub(crate) fn keep() -> Errno {
        // SAFETY: the calling thread's own errno.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 }
    }
}
