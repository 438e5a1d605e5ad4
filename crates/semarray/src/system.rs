//! Small calls of the kernel without allocation, with `errno` left as it was; and paths and numbers as text.

use core::ffi::{CStr, c_int, c_long};
use core::{fmt, ptr};

use poundlock_linux::parts::{keeping_errno, map, unmap};

/// A file descriptor that is closed when it is dropped.
pub(crate) struct File(c_int);

impl File {
    /// `open(2)`, without following a link, and closed on exec.
    pub(crate) fn open(path: &CStr, flags: c_int, mode: libc::mode_t) -> Result<File, c_int> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: a string that ends in a zero.
        let opened = unless_interrupted(|| unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode)
        });
        Ok(File(opened? as c_int))
    }

    pub(crate) fn descriptor(&self) -> c_int {
        self.0
    }

    /// Reads from `offset` until `buffer` is full or the file ends. Bare system calls: not a cancellation
    /// point.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: i64) -> Result<usize, c_int> {
        let mut read = 0;
        while read < buffer.len() {
            let rest = &mut buffer[read..];
            // SAFETY: writes at most the rest of the buffer.
            let count = unless_interrupted(|| unsafe {
                libc::syscall(libc::SYS_pread64, self.0, rest.as_mut_ptr(), rest.len(), offset + read as i64)
            })?;
            if count == 0 {
                break;
            }
            read += count as usize;
        }
        Ok(read)
    }

    /// The file's size, owner, mode and inode.
    pub(crate) fn status(&self) -> Result<libc::stat, c_int> {
        // SAFETY: writes the structure.
        filled(|status| unsafe { libc::syscall(libc::SYS_fstat, self.0, status) })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours that is not used any more.
        let _ = keeping_errno(|| unsafe { libc::syscall(libc::SYS_close, self.0) });
    }
}

/// A system call, again as long as signal handlers interrupt it.
pub(crate) fn unless_interrupted(mut call: impl FnMut() -> c_long) -> Result<c_long, c_int> {
    loop {
        match keeping_errno(&mut call) {
            Err(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// The beginning of a file, as much as fits.
pub(crate) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], c_int> {
    let read = File::open(path, libc::O_RDONLY, 0)?.read(buffer, 0)?;
    Ok(&buffer[..read])
}

/// A number in decimal digits, nothing else.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

// By the system calls: the C library's functions are ones of a glibc newer than all that we run on.

fn filled(ask: impl FnOnce(*mut libc::stat) -> c_long) -> Result<libc::stat, c_int> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    keeping_errno(|| ask(status.as_mut_ptr()))?;
    // SAFETY: zero bytes are one, and the call has written it.
    Ok(unsafe { status.assume_init() })
}

fn status_at(path: &CStr, flags: c_int) -> Result<libc::stat, c_int> {
    // SAFETY: a string that ends in a zero; writes the structure, which is the kernel's on 64-bit machines.
    filled(|status| unsafe {
        libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), status, flags)
    })
}

/// `stat(2)`.
pub(crate) fn status(path: &CStr) -> Result<libc::stat, c_int> {
    status_at(path, 0)
}

/// `lstat(2)`.
pub(crate) fn link_status(path: &CStr) -> Result<libc::stat, c_int> {
    status_at(path, libc::AT_SYMLINK_NOFOLLOW)
}

/// `unlink(2)`.
pub(crate) fn unlink(path: &CStr) -> Result<(), c_int> {
    // SAFETY: a string that ends in a zero.
    keeping_errno(|| unsafe { libc::unlink(path.as_ptr()).into() }).map(|_| ())
}

/// The process number, in the process's own namespace.
pub(crate) fn process_id() -> u32 {
    // SAFETY: takes no arguments. glibc does not cache it.
    unsafe { libc::getpid() as u32 }
}

/// The calling thread's number, in the process's own namespace.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The effective user.
pub(crate) fn user() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { libc::geteuid() }
}

/// The effective group.
pub(crate) fn group() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { libc::getegid() }
}

/// The system call `semget`, by its instruction: with our preloaded library, the C library's `syscall` asks
/// for arrays of ours, under the registry's lock.
pub(crate) fn kernels_semget(key: i32, semaphores: i32, flags: i32) -> Result<i32, c_int> {
    let done: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: three numbers, in the registers of the kernel's convention; it changes rax, rcx and r11 alone.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_semget as isize => done,
            in("rdi") key as isize,
            in("rsi") semaphores as isize,
            in("rdx") flags as isize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; it changes x0 alone.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_semget as isize,
            inlateout("x0") key as isize => done,
            in("x1") semaphores as isize,
            in("x2") flags as isize,
            options(nostack),
        );
    }
    // The kernel's convention for errors.
    if (-4095..0).contains(&done) { Err(-done as c_int) } else { Ok(done as i32) }
}

/// Sleeps for a tenth of a millisecond. A bare system call: not a cancellation point.
pub(crate) fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
    // SAFETY: reads the structure, which outlives the call.
    let _ = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_nanosleep, &raw const time, ptr::null_mut::<libc::timespec>())
    });
}

/// Bytes in a page.
pub(crate) fn page() -> usize {
    // SAFETY: reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Blocks every signal of the calling thread until dropped: glibc's own too, so that nothing runs on the
/// thread meanwhile and it is not cancelled.
pub(crate) struct Blocked(u64);

impl Blocked {
    pub(crate) fn all() -> Blocked {
        let mut before = 0u64;
        set_mask(u64::MAX, &mut before);
        Blocked(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        set_mask(self.0, ptr::null_mut());
    }
}

fn set_mask(mask: u64, before: *mut u64) {
    // SAFETY: reads and writes the kernel's eight bytes of a set, `before` only if it is not null. It has no
    // reason to fail; if it did, signals would merely not be blocked.
    let _ = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, before, 8)
    });
}

/// Room for that many numbers, zero at first: on the stack, or mapped for many.
pub(crate) struct Scratch<T: Copy + Default> {
    few: [T; FEW],
    /// Null if the stack's room is enough.
    many: *mut T,
    count: usize,
}

const FEW: usize = 256;

impl<T: Copy + Default> Scratch<T> {
    pub(crate) fn new(count: usize) -> Result<Self, c_int> {
        let many = match count <= FEW {
            true => ptr::null_mut(),
            false => map(count * size_of::<T>(), false).ok_or(libc::ENOMEM)?,
        };
        Ok(Self { few: [T::default(); FEW], many, count })
    }

    pub(crate) fn values(&mut self) -> &mut [T] {
        if self.many.is_null() {
            return &mut self.few[..self.count];
        }
        // SAFETY: our own mapping of so many numbers, zero at first.
        unsafe { core::slice::from_raw_parts_mut(self.many, self.count) }
    }
}

impl<T: Copy + Default> Drop for Scratch<T> {
    fn drop(&mut self) {
        if !self.many.is_null() {
            // SAFETY: ours, and not used any more.
            unsafe { unmap(self.many, self.count * size_of::<T>()) };
        }
    }
}

/// Longest path, its zero included.
const LONGEST: usize = 1024;

/// A path of the file system, or the part of it that fits: see [`Path::get`].
#[derive(Clone, Copy)]
pub(crate) struct Path {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Path {
    pub(crate) const fn new() -> Self {
        Path { bytes: [0; LONGEST], length: 0 }
    }

    /// With these at the end.
    pub(crate) fn and(mut self, more: &[u8]) -> Self {
        // If it does not fit, the path is full, and `get` refuses it.
        let room = &mut self.bytes[self.length..];
        let count = more.len().min(room.len());
        room[..count].copy_from_slice(&more[..count]);
        self.length += count;
        self
    }

    /// With this number at the end.
    pub(crate) fn and_number(self, number: u64) -> Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.and(&digits[at..]);
            }
        }
    }

    /// The path as the kernel wants it; none if it did not fit.
    pub(crate) fn get(&self) -> Result<&CStr, c_int> {
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| libc::ENAMETOOLONG)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_together() {
        let path = Path::new().and(b"/tmp/a-").and_number(0).and(b".").and_number(u64::MAX);
        assert_eq!(path.get(), Ok(c"/tmp/a-0.18446744073709551615"));
    }

    #[test]
    fn a_path_that_is_too_long_is_none() {
        let mut path = Path::new();
        for _ in 0..LONGEST - 1 {
            path = path.and(b"x");
        }
        assert!(path.get().is_ok());
        assert_eq!(path.and(b"y").get(), Err(libc::ENAMETOOLONG));
        assert_eq!(path.and(b"y").and(b"z").get(), Err(libc::ENAMETOOLONG));
    }

    #[test]
    fn numbers_are_digits_alone() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b""[..], b"-1", b"1 ", b"18446744073709551616"] {
            assert_eq!(number(wrong), None);
        }
    }

    #[test]
    fn blocked_signals_come_back() {
        let pending = |set: &mut libc::sigset_t| {
            // SAFETY: writes the set.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), set) };
            // SAFETY: reads the set.
            unsafe { libc::sigismember(set, libc::SIGUSR1) }
        };
        // SAFETY: zero bytes are an empty set.
        let mut set = unsafe { core::mem::zeroed() };
        assert_eq!(pending(&mut set), 0);
        let blocked = Blocked::all();
        assert_eq!(pending(&mut set), 1);
        drop(blocked);
        assert_eq!(pending(&mut set), 0);
    }
}
