//! The few system calls that the recorder makes.
//!
//! All of them go through `syscall`: the C library's `open`, `read` and `close` are cancellation points, and
//! a thread must not be cancelled inside of `pthread_mutex_lock`. They set `errno`; callers keep it with
//! [`Errno`].

use core::ffi::{CStr, c_int, c_long};

/// Puts `errno` back when dropped.
pub(super) struct Errno(c_int);

impl Errno {
    pub(super) fn keep() -> Errno {
        Errno(errno())
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: the calling thread's own errno.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

pub(super) fn errno() -> c_int {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() }
}

fn check(result: c_long) -> Result<usize, c_int> {
    usize::try_from(result).map_err(|_| errno())
}

/// An open file, closed when dropped.
pub(super) struct Fd(c_int);

impl Fd {
    pub(super) fn open(path: &CStr, flags: c_int) -> Result<Fd, c_int> {
        let flags = flags | libc::O_CLOEXEC;
        // SAFETY: `path` is a C string; the call touches nothing else.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
        check(fd).map(|fd| Fd(fd as c_int))
    }

    /// Reads into the `len` bytes at `buffer`; 0 at the end.
    ///
    /// # Safety
    /// The buffer is valid for writes and nobody else uses it meanwhile.
    pub(super) unsafe fn read(&self, buffer: *mut u8, len: usize) -> Result<usize, c_int> {
        loop {
            // SAFETY: the caller vouches for the buffer.
            match check(unsafe { libc::syscall(libc::SYS_read, self.0, buffer, len) }) {
                Err(libc::EINTR) => {}
                result => return result,
            }
        }
    }

    pub(super) fn read_u64_at(&self, offset: u64) -> Option<u64> {
        let mut value = 0u64;
        // SAFETY: eight bytes of our own.
        let n = unsafe { libc::syscall(libc::SYS_pread64, self.0, &raw mut value, 8usize, offset) };
        (n == 8).then_some(value)
    }

    pub(super) fn write_u64_at(&self, offset: u64, value: u64) {
        // SAFETY: eight bytes of our own. A failure leaves the file as it was, which is a valid state.
        unsafe { libc::syscall(libc::SYS_pwrite64, self.0, &raw const value, 8usize, offset) };
    }

    pub(super) fn set_len(&self, len: u64) -> Result<(), c_int> {
        // SAFETY: no memory involved.
        check(unsafe { libc::syscall(libc::SYS_ftruncate, self.0, len) }).map(drop)
    }

    /// Maps the first `len` bytes, shared and without access.
    pub(super) fn map(&self, len: usize) -> Result<*mut u8, c_int> {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at =
            unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_SHARED, self.0, 0) };
        if at == libc::MAP_FAILED { Err(errno()) } else { Ok(at.cast()) }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: our own descriptor, which nobody else knows.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

pub(super) fn unlink(path: &CStr) {
    // SAFETY: `path` is a C string.
    unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) };
}

/// Makes part of a mapping of ours readable and writable.
///
/// # Safety
/// The range lies in a mapping made by [`Fd::map`].
pub(super) unsafe fn allow_access(at: *mut u8, len: usize) -> bool {
    // SAFETY: the caller vouches for the range.
    unsafe { libc::mprotect(at.cast(), len, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// Gives memory to part of a mapping now, so that lack of it is an answer here and not a `SIGBUS` later.
/// Kernels before 5.14 do not know the request; there the risk stays.
///
/// # Safety
/// The range lies in a mapping of ours that [`allow_access`] has opened.
pub(super) unsafe fn back(at: *mut u8, len: usize) -> bool {
    // SAFETY: the caller vouches for the range; the contents do not change.
    let result = unsafe { libc::madvise(at.cast(), len, libc::MADV_POPULATE_WRITE) };
    result == 0 || errno() == libc::EINVAL
}

/// Zeroed memory, provided where it is used.
pub(super) fn memory(len: usize) -> Option<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), len, access, kind, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// # Safety
/// Nothing refers to the mapping any more.
pub(super) unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller vouches for it.
    unsafe { libc::munmap(at.cast(), len) };
}

/// A word, 0 now, that becomes 0 again in a forked child. Null if the kernel is older than 4.14.
pub(super) fn wiped_on_fork() -> *mut u32 {
    const PAGE: usize = 4096;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice.
    let page = unsafe { libc::mmap(core::ptr::null_mut(), PAGE, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return core::ptr::null_mut();
    }
    // SAFETY: that mapping, which nobody else knows.
    unsafe {
        if libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, PAGE);
            return core::ptr::null_mut();
        }
    }
    page.cast()
}

pub(super) fn pid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

pub(super) fn tid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The kernel's name of a thread: up to 15 bytes, and zeros.
pub(super) type Name = [u64; 2];

/// That of the calling thread.
pub(super) fn thread_name() -> Name {
    let mut name = Name::default();
    // SAFETY: writes 16 bytes, which are our own.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// That of another thread of the process; zeros if it cannot be read.
pub(super) fn name_of_thread(tid: u32) -> Name {
    const BEGIN: &[u8] = b"/proc/self/task/";
    const END: &[u8] = b"/comm\0";
    let mut path = [0u8; 48];
    path[..BEGIN.len()].copy_from_slice(BEGIN);
    let digits = tid.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = tid;
    for place in path[BEGIN.len()..BEGIN.len() + digits].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    path[BEGIN.len() + digits..][..END.len()].copy_from_slice(END);
    let mut name = [0u8; 16];
    let path = CStr::from_bytes_until_nul(&path).unwrap_or_default();
    let Ok(file) = Fd::open(path, libc::O_RDONLY) else { return Name::default() };
    // SAFETY: our own buffer.
    let len = unsafe { file.read(name.as_mut_ptr(), name.len()) }.unwrap_or(0);
    // A line.
    name[len.saturating_sub(1)..].fill(0);
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&name[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    [half(0), half(8)]
}

/// The CPU time that the calling thread has had, in nanoseconds, and how often it gave its CPU up by itself.
pub(super) fn cpu_time() -> (u64, u64) {
    // SAFETY: zeroes are one.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: fills our own variable. Not by the C library's function, which may be another's.
    unsafe { libc::syscall(libc::SYS_getrusage, libc::RUSAGE_THREAD, &raw mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    (ns(usage.ru_utime) + ns(usage.ru_stime), usage.ru_nvcsw as u64)
}

/// The CPU that the calling thread runs on, if that is known. No system call, where the kernel has a page for
/// that.
pub(super) fn cpu() -> Option<u32> {
    // SAFETY: takes no arguments.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

pub(super) fn yield_now() {
    // SAFETY: always succeeds.
    unsafe { libc::syscall(libc::SYS_sched_yield) };
}

/// The largest file that may be made without a `SIGXFSZ`.
pub(super) fn limit(of: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills our own variable.
    match unsafe { libc::getrlimit(of, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => libc::RLIM_INFINITY,
    }
}

/// The target of the symbolic link `path`; how many bytes of `buffer` it took.
///
/// # Safety
/// `buffer` is valid for writing `len` bytes and nobody else uses it meanwhile.
pub(super) unsafe fn read_link(path: &CStr, buffer: *mut u8, len: usize) -> usize {
    // SAFETY: the caller vouches for the buffer.
    check(unsafe { libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), buffer, len) })
        .unwrap_or(0)
}

/// Writes to standard error, in one piece if it can.
pub(super) fn complain(text: &[u8]) {
    // SAFETY: `text` is valid; if nobody listens, nobody listens.
    unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len()) };
}

/// Sleeps for so many nanoseconds, less than a second; for less where a signal handler runs.
pub(super) fn pause(ns: libc::c_long) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: ns };
    let _errno = Errno::keep();
    // SAFETY: our own variable.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const pause, 0usize) };
}
