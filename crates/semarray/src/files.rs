//! The file of an array, and its mapping.
//!
//! A file is as long as the array may ever get, and sparse: unused parts take no memory. Pages are provided
//! before their first use, so that a full file system is an error number and not SIGBUS.
//!
//! A mapping is made without access, which it gets afterwards: a process that called `mlockall(MCL_FUTURE)`
//! has whatever it maps with access provided and locked whole, which takes milliseconds of its first call and
//! all memory of the file. So it locks the pages that it uses, as it uses them.

use core::ffi::{CStr, c_int};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use poundlock_core::semarray::Array;

use crate::host::Processes;
use poundlock_linux::parts::U32;
use poundlock_linux::parts::keeping_errno;

use crate::system::{File, page, unless_interrupted};
use crate::user;

/// A file's words in memory, with private memory for a `T` in front of them: unmapped as one.
pub(crate) struct Mapped {
    start: NonNull<u8>,
    /// Bytes of the file.
    bytes: usize,
}

impl Mapped {
    /// Maps that many bytes of the file.
    pub(crate) fn new(file: &File, bytes: usize) -> Result<Mapped, c_int> {
        let front = page();
        let bytes = bytes.checked_next_multiple_of(front).ok_or(libc::ENOMEM)?;
        let whole = front + bytes;
        let start = keeping_errno(|| {
            // SAFETY: a new private mapping, at an address of the kernel's choice.
            let start = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    whole,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if start == libc::MAP_FAILED {
                return -1;
            }
            // SAFETY: replaces what was just mapped, all but its first page, and gives access to the whole;
            // no other thread has seen it.
            let made = unsafe {
                let shared = libc::MAP_SHARED | libc::MAP_FIXED;
                let words = start.byte_add(front);
                libc::mmap(words, bytes, libc::PROT_NONE, shared, file.descriptor(), 0) != libc::MAP_FAILED
                    && libc::mprotect(start, whole, libc::PROT_READ | libc::PROT_WRITE) == 0
            };
            if !made {
                // SAFETY: as above.
                unsafe { libc::munmap(start, whole) };
                return -1;
            }
            start.expose_provenance() as libc::c_long
        })?;
        let start = NonNull::new(ptr::with_exposed_provenance_mut(start as usize)).ok_or(libc::ENOMEM)?;
        Ok(Mapped { start, bytes })
    }

    /// Where the private page is, and the whole begins.
    pub(crate) fn front<T>(&self) -> *mut T {
        const { assert!(size_of::<T>() <= 4096 && align_of::<T>() <= 4096) };
        self.start.as_ptr().cast()
    }

    /// Where the file's bytes are.
    pub(crate) fn file<T>(&self) -> *mut T {
        // SAFETY: within the mapping.
        unsafe { self.start.as_ptr().add(page()).cast() }
    }

    /// Bytes in all.
    pub(crate) fn whole(&self) -> usize {
        page() + self.bytes
    }

    /// The file's words.
    ///
    /// # Safety
    /// The mapping lasts for `'a`.
    pub(crate) unsafe fn words<'a>(&self) -> &'a [U32] {
        // SAFETY: atomics, which any bytes are; mapped so long by the caller's word.
        unsafe { core::slice::from_raw_parts(self.file(), self.bytes / size_of::<U32>()) }
    }
}

/// Unmaps what a [`Mapped`] mapped.
///
/// # Safety
/// It is not used any more.
pub(crate) unsafe fn unmap(start: *mut u8, whole: usize) {
    // SAFETY: the caller's.
    let _ = keeping_errno(|| unsafe { libc::munmap(start.cast(), whole) }.into());
}

impl Drop for Mapped {
    /// For a mapping that was not kept: an owner that keeps it forgets this.
    fn drop(&mut self) {
        // SAFETY: the owner uses it no more.
        unsafe { unmap(self.start.as_ptr(), self.whole()) };
    }
}

/// Makes the empty file that many bytes long, all zero, and provides the first of them. Until it has all, it
/// is never longer than what is provided, so a process that maps it too early can look at its first page.
pub(crate) fn size(file: &File, bytes: usize, initial: usize) -> Result<(), c_int> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the structure.
    keeping_errno(|| unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) }.into())?;
    if limit.rlim_cur != libc::RLIM_INFINITY && limit.rlim_cur < bytes as u64 {
        // The call would raise SIGXFSZ.
        return Err(libc::EFBIG);
    }
    provide_first(file, initial)?;
    // SAFETY: a descriptor of ours.
    keeping_errno(|| unsafe { libc::ftruncate(file.descriptor(), bytes as libc::off_t) }.into())?;
    Ok(())
}

fn provide_first(file: &File, initial: usize) -> Result<(), c_int> {
    // SAFETY: a descriptor of ours. The bare system call is not a cancellation point.
    let provided = unless_interrupted(|| unsafe {
        libc::syscall(libc::SYS_fallocate, file.descriptor(), 0, 0 as libc::off_t, initial as libc::off_t)
    });
    match provided {
        // A file system that cannot promise memory: write, which allocates it.
        Err(libc::EOPNOTSUPP) => fill(file, initial),
        provided => provided.map(|_| ()),
    }
}

fn fill(file: &File, initial: usize) -> Result<(), c_int> {
    let zeros = [0u8; 4096];
    let mut written = 0;
    while written < initial {
        let (count, at) = (zeros.len().min(initial - written), written as libc::off_t);
        // SAFETY: reads the zeros.
        let count = unless_interrupted(|| unsafe {
            libc::syscall(libc::SYS_pwrite64, file.descriptor(), zeros.as_ptr(), count, at)
        });
        written += count? as usize;
    }
    Ok(())
}

/// Makes a file of that name, replacing an existing one, and maps it.
pub(crate) fn create(path: &CStr, bytes: usize, initial: usize) -> Result<Mapped, c_int> {
    let create = || File::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600);
    let file = match create() {
        Err(libc::EEXIST) => {
            crate::system::unlink(path)?;
            create()?
        }
        created => created?,
    };
    // Restores what the process's mask for new files takes away. SAFETY: a descriptor of ours.
    let made = keeping_errno(|| unsafe { libc::fchmod(file.descriptor(), 0o600) }.into())
        .and_then(|_| size(&file, bytes, initial))
        .and_then(|()| Mapped::new(&file, bytes));
    if made.is_err() {
        let _ = crate::system::unlink(path);
    }
    made
}

/// Maps the array file of that name.
pub(crate) fn open(path: &CStr) -> Result<Mapped, c_int> {
    let file = File::open(path, libc::O_RDWR, 0)?;
    let bytes = usize::try_from(file.status()?.st_size).map_err(|_| libc::EINVAL)?;
    // At least a page, so that the first words can be looked at: the file is provided as far as it is long.
    if bytes < page() {
        return Err(libc::EINVAL);
    }
    let mapped = Mapped::new(&file, bytes)?;
    // SAFETY: the view goes before the mapping.
    if Array::<Processes>::open(unsafe { mapped.words() }).is_none() {
        return Err(libc::EINVAL);
    }
    Ok(mapped)
}

/// `MADV_POPULATE_WRITE` is not there (before Linux 5.14).
static NO_POPULATE: AtomicBool = AtomicBool::new(false);

/// See [`Host::provide`](poundlock_core::semarray::Host::provide). Works on the mapping, not on the file,
/// because the process may have lost the right to open the file since it mapped it.
pub(crate) fn provide(start: usize, bytes: usize) -> bool {
    let size = page();
    let first = start & !(size - 1);
    let Some(end) = start.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(size)) else {
        return false;
    };
    for _ in 0..10 {
        if NO_POPULATE.load(Relaxed) {
            break;
        }
        let address: *mut libc::c_void = ptr::with_exposed_provenance_mut(first);
        let populated = keeping_errno(|| {
            // SAFETY: changes nothing that is there.
            unsafe { libc::madvise(address, end - first, libc::MADV_POPULATE_WRITE) }.into()
        });
        match populated {
            Ok(_) => return true,
            // The file system is full, or there is no memory.
            Err(libc::EFAULT | libc::ENOMEM) => return false,
            Err(libc::EAGAIN | libc::EINTR) => {}
            Err(_) => NO_POPULATE.store(true, Relaxed),
        }
    }
    (first..end).step_by(size).all(user::touch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use poundlock_core::platform::Atomic;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    fn name(what: &str) -> CString {
        let path = std::env::temp_dir().join(format!("poundlock-files-{}-{what}", std::process::id()));
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    #[test]
    fn a_file_is_sparse_and_zero_and_provided_page_by_page() {
        let name = name("sparse");
        let mapped = create(&name, 1 << 20, 5000).unwrap();
        let blocks = || {
            let file = File::open(&name, libc::O_RDONLY, 0).unwrap();
            file.status().unwrap().st_blocks * 512
        };
        let before = blocks();
        assert!((4096..1 << 19).contains(&before), "{before} bytes at first");
        // SAFETY: used while it is mapped.
        let words = unsafe { mapped.words() };
        assert_eq!(words.len(), 1 << 18);
        let there = &words[1 << 17..(1 << 17) + 3000];
        for populate in [true, false] {
            NO_POPULATE.store(!populate, Relaxed);
            let there = if populate { &there[..1500] } else { &there[1500..] };
            assert!(provide(there.as_ptr().expose_provenance(), size_of_val(there)));
            assert!(there.iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0));
        }
        NO_POPULATE.store(false, Relaxed);
        assert!(blocks() >= before + 8192);
        // Memory that is not there.
        assert!(!provide(0, 10));
        assert!(!provide(usize::MAX - 100, 1000));
        crate::system::unlink(&name).unwrap();
    }

    #[test]
    fn a_process_that_locks_its_memory_is_provided_no_page_that_it_does_not_use() {
        let name = name("locked");
        drop(create(&name, 12 * page(), page()).unwrap());
        let child = crate::testing::Child::new(|| {
            // SAFETY: the child's own memory, from here on.
            assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
            let file = File::open(&name, libc::O_RDWR, 0).unwrap();
            let mapped = Mapped::new(&file, 12 * page()).unwrap();
            // SAFETY: used while it is mapped.
            let last = unsafe { mapped.words() }.last().unwrap();
            let is_provided = || {
                let of_page = ptr::from_ref(last).addr() & !(page() - 1);
                let mut resident = 0;
                let of_page = ptr::without_provenance_mut(of_page);
                // SAFETY: a page of the mapping; one byte is written.
                let found = unsafe { libc::mincore(of_page, page(), &mut resident) };
                assert_eq!(found, 0);
                resident & 1 != 0
            };
            assert!(!is_provided(), "mapped only");
            last.store(1, Relaxed);
            assert!(is_provided(), "used");
            0
        });
        assert_eq!(child.wait(), 0);
        crate::system::unlink(&name).unwrap();
    }

    #[test]
    fn what_is_no_array_is_not_opened() {
        let name = name("none");
        assert_eq!(open(&name).err(), Some(libc::ENOENT));
        drop(create(&name, 1 << 16, 1 << 16).unwrap());
        assert_eq!(open(&name).err(), Some(libc::EINVAL));
        crate::system::unlink(&name).unwrap();
        std::fs::write(name.to_str().unwrap(), b"short").unwrap();
        assert_eq!(open(&name).err(), Some(libc::EINVAL));
        crate::system::unlink(&name).unwrap();
    }

    #[test]
    fn a_limit_on_files_is_an_error_number() {
        let name = name("limit");
        let child = crate::testing::Child::new(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 16, rlim_max: 1 << 16 };
            // SAFETY: reads the structure.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
            let result = create(&name, 1 << 20, 4096).err();
            let gone = crate::system::link_status(&name).is_err();
            i32::from(result != Some(libc::EFBIG) || !gone)
        });
        assert_eq!(child.wait(), 0);
    }
}
