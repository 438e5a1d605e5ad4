//! The C ABI of mutexes, spinlocks and readers-writer locks, reached as programs reach it: through pointers that the dynamic linker filled
//! in.

use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{
    pthread_mutex_t, pthread_mutexattr_t, pthread_rwlock_t, pthread_rwlockattr_t, pthread_spinlock_t,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

type Call = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
type Init = unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int;

type SpinCall = unsafe extern "C" fn(*mut pthread_spinlock_t) -> c_int;
type SpinInit = unsafe extern "C" fn(*mut pthread_spinlock_t, c_int) -> c_int;

type RwCall = unsafe extern "C" fn(*mut pthread_rwlock_t) -> c_int;
type RwInit = unsafe extern "C" fn(*mut pthread_rwlock_t, *const pthread_rwlockattr_t) -> c_int;

/// The kinds of mutex that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// `PTHREAD_MUTEX_DEFAULT`
    Default,
    /// `PTHREAD_MUTEX_RECURSIVE`
    Recursive,
    /// `PTHREAD_MUTEX_ADAPTIVE_NP`
    Adaptive,
}

impl Kind {
    fn code(self) -> c_int {
        match self {
            Self::Default => libc::PTHREAD_MUTEX_DEFAULT,
            Self::Recursive => libc::PTHREAD_MUTEX_RECURSIVE,
            Self::Adaptive => libc::PTHREAD_MUTEX_ADAPTIVE_NP,
        }
    }
}

/// A library's mutex functions.
///
/// The functions are values, so no call can be inlined or resolved at build time, whoever provides them.
#[derive(Clone, Copy)]
pub(crate) struct Abi {
    pub(crate) lock: Call,
    pub(crate) trylock: Call,
    pub(crate) unlock: Call,
    init: Init,
    destroy: Call,
}

impl Abi {
    /// The C library's own functions, whatever is preloaded.
    ///
    /// # Errors
    /// If the process has no glibc.
    pub(crate) fn glibc() -> Result<Abi> {
        Self::open(Path::new("libc.so.6"))
    }

    /// The functions of the library at `path`.
    ///
    /// # Errors
    /// If it cannot be loaded, or if it leaves one of the functions to another library.
    pub(crate) fn open(path: &Path) -> Result<Abi> {
        let library = load(path)?;
        // SAFETY: the types are those that POSIX gives these functions.
        let abi = unsafe {
            Abi {
                lock: symbol(&library, path, c"pthread_mutex_lock")?,
                trylock: symbol(&library, path, c"pthread_mutex_trylock")?,
                unlock: symbol(&library, path, c"pthread_mutex_unlock")?,
                init: symbol(&library, path, c"pthread_mutex_init")?,
                destroy: symbol(&library, path, c"pthread_mutex_destroy")?,
            }
        };
        // The pointers must stay good to the end of the process.
        std::mem::forget(library);
        Ok(abi)
    }

    /// The functions of our C library: that which `POUNDLOCK_C_LIBRARY` names, or the installed one.
    ///
    /// # Errors
    /// If it cannot be loaded, or is another library.
    pub(crate) fn c_library() -> Result<Abi> {
        unsafe extern "C" fn init(mutex: *mut pthread_mutex_t, _: *const pthread_mutexattr_t) -> c_int {
            // SAFETY: memory for a mutex, of which zero bytes are one.
            unsafe { mutex.write_bytes(0, 1) };
            0
        }
        let named = std::env::var_os("POUNDLOCK_C_LIBRARY").unwrap_or_else(|| "libpoundlock.so.0.1".into());
        let path = Path::new(&named);
        let library = load(path)?;
        // SAFETY: `poundlock_mutex_t` is no larger than a `pthread_mutex_t`, and the functions take a pointer to it.
        let abi = unsafe {
            Abi {
                lock: symbol(&library, path, c"poundlock_mutex_lock")?,
                trylock: symbol(&library, path, c"poundlock_mutex_trylock")?,
                unlock: symbol(&library, path, c"poundlock_mutex_unlock")?,
                init,
                destroy: symbol(&library, path, c"poundlock_mutex_destroy")?,
            }
        };
        std::mem::forget(library);
        Ok(abi)
    }

    /// Functions that do nothing: what the driver costs.
    pub(crate) fn empty() -> Abi {
        unsafe extern "C" fn nothing(_: *mut pthread_mutex_t) -> c_int {
            0
        }
        Self::of(nothing, nothing)
    }

    /// Functions that do a compare-and-swap and an exchange and nothing else: the floor of a mutex of two
    /// atomics behind the C ABI.
    pub(crate) fn bare() -> Abi {
        unsafe extern "C" fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
            // SAFETY: as in `bare_lock`.
            (unsafe { word(mutex) }.swap(0, Ordering::Release) != 1) as c_int
        }
        Self::of(bare_lock, unlock)
    }

    /// Functions that do a compare-and-swap and a plain store and nothing else: the floor of a mutex of one
    /// atomic. No mutex whose waiters sleep can be had so cheaply without help from elsewhere: the unlocker
    /// does not learn of waiters.
    pub(crate) fn bare_store() -> Abi {
        unsafe extern "C" fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
            // SAFETY: as in `bare_lock`.
            unsafe { word(mutex) }.store(0, Ordering::Release);
            0
        }
        Self::of(bare_lock, unlock)
    }

    /// Functions of this file. The compiler must not know which, as with the others.
    fn of(lock: Call, unlock: Call) -> Abi {
        unsafe extern "C" fn init(_: *mut pthread_mutex_t, _: *const pthread_mutexattr_t) -> c_int {
            0
        }
        unsafe extern "C" fn destroy(_: *mut pthread_mutex_t) -> c_int {
            0
        }
        let (lock, unlock) = black_box((lock, unlock));
        Abi { lock, trylock: lock, unlock, init, destroy }
    }
}

/// A library's spinlock functions.
#[derive(Clone, Copy)]
pub(crate) struct SpinAbi {
    pub(crate) lock: SpinCall,
    pub(crate) trylock: SpinCall,
    pub(crate) unlock: SpinCall,
    init: SpinInit,
    destroy: SpinCall,
}

impl SpinAbi {
    /// The C library's own functions, whatever is preloaded.
    ///
    /// # Errors
    /// If the process has no glibc.
    pub(crate) fn glibc() -> Result<SpinAbi> {
        Self::open(Path::new("libc.so.6"))
    }

    /// The functions of the library at `path`.
    ///
    /// # Errors
    /// If it cannot be loaded, or if it leaves one of the functions to another library.
    pub(crate) fn open(path: &Path) -> Result<SpinAbi> {
        let library = load(path)?;
        // SAFETY: the types are those that POSIX gives these functions.
        let abi = unsafe {
            SpinAbi {
                lock: symbol(&library, path, c"pthread_spin_lock")?,
                trylock: symbol(&library, path, c"pthread_spin_trylock")?,
                unlock: symbol(&library, path, c"pthread_spin_unlock")?,
                init: symbol(&library, path, c"pthread_spin_init")?,
                destroy: symbol(&library, path, c"pthread_spin_destroy")?,
            }
        };
        // The pointers must stay good to the end of the process.
        std::mem::forget(library);
        Ok(abi)
    }
}

/// Whom a `pthread_rwlock_t` prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RwKind {
    /// Readers: what no attribute asks for.
    Default,
    /// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`
    Writers,
}

impl RwKind {
    /// As the C library's header has it; the `libc` crate does not.
    const fn code(self) -> c_int {
        match self {
            Self::Default => 0,
            Self::Writers => 2,
        }
    }
}

/// A library's functions for readers-writer locks.
#[derive(Clone, Copy)]
pub(crate) struct RwAbi {
    pub(crate) read_lock: RwCall,
    pub(crate) write_lock: RwCall,
    pub(crate) unlock: RwCall,
    init: RwInit,
    destroy: RwCall,
}

impl RwAbi {
    /// The C library's own functions, whatever is preloaded.
    ///
    /// # Errors
    /// If the process has no glibc.
    pub(crate) fn glibc() -> Result<RwAbi> {
        Self::open(Path::new("libc.so.6"))
    }

    /// The functions of the library at `path`.
    ///
    /// # Errors
    /// If it cannot be loaded, or if it leaves one of the functions to another library.
    pub(crate) fn open(path: &Path) -> Result<RwAbi> {
        let library = load(path)?;
        // SAFETY: the types are those that POSIX gives these functions.
        let abi = unsafe {
            RwAbi {
                read_lock: symbol(&library, path, c"pthread_rwlock_rdlock")?,
                write_lock: symbol(&library, path, c"pthread_rwlock_wrlock")?,
                unlock: symbol(&library, path, c"pthread_rwlock_unlock")?,
                init: symbol(&library, path, c"pthread_rwlock_init")?,
                destroy: symbol(&library, path, c"pthread_rwlock_destroy")?,
            }
        };
        // The pointers must stay good to the end of the process.
        std::mem::forget(library);
        Ok(abi)
    }
}

fn load(path: &Path) -> Result<Library> {
    // SAFETY: the library is the C library, which is initialised long since, or Poundlock's preload
    // library, whose initialisers may run at any time in any process: it is made to be preloaded.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| Error::Library(format!("{}: {error}", path.display())))
}

/// The first word of a mutex.
///
/// # Safety
/// The mutex must live, and everybody must use it through this function.
unsafe fn word<'a>(mutex: *mut pthread_mutex_t) -> &'a AtomicU32 {
    // SAFETY: the caller answers for it; a mutex is large and aligned enough.
    unsafe { AtomicU32::from_ptr(mutex.cast()) }
}

/// A compare-and-swap. To be called on a zeroed mutex that lives.
unsafe extern "C" fn bare_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the mutex belongs to one of the ABIs made of these functions, so that all access is atomic.
    match unsafe { word(mutex) }.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => 0,
        Err(_) => libc::EBUSY,
    }
}

/// The function `name`, provided by the library at `path` itself.
///
/// # Safety
/// `T` must be the function's type.
unsafe fn symbol<T: Copy>(library: &Library, path: &Path, name: &CStr) -> Result<T> {
    let problem = |message: String| Error::Library(format!("{}: {message}", path.display()));
    // SAFETY: the caller answers for the type.
    let function =
        unsafe { library.get::<T>(name.to_bytes_with_nul()) }.map_err(|error| problem(error.to_string()))?;
    let provided = *function;
    let address = function.as_raw_ptr();
    // A search in a library goes on in the libraries it depends on. A preload library that lacks a function
    // would thus be measured with the C library's, and look just as fast.
    let home =
        home_of(address).ok_or_else(|| problem(format!("{} lies in no file", name.to_string_lossy())))?;
    if home.file_name() != path.file_name() {
        return Err(problem(format!(
            "does not provide {}; it would come from {}",
            name.to_string_lossy(),
            home.display()
        )));
    }
    Ok(provided)
}

/// The file that `address` was mapped from.
fn home_of(address: *mut c_void) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt;

    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` has room for the answer; any address may be asked about.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled it in; zeroes are valid too.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string that lives as long as the library is loaded, and we unload none.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(std::ffi::OsStr::from_bytes(name.to_bytes()).into())
}

/// A `pthread_mutex_t` with the functions that it belongs to.
pub(crate) struct CMutex {
    pub(crate) abi: Abi,
    mutex: *mut pthread_mutex_t,
}

/// The lock has cache lines of its own, adjacent-line prefetching included.
#[repr(C, align(128))]
struct Slot<T>(MaybeUninit<T>);

// SAFETY: the functions may be called from any thread: they are a mutex's.
unsafe impl Send for CMutex {}
// SAFETY: as above.
unsafe impl Sync for CMutex {}

impl CMutex {
    /// A mutex of `kind`: zeroes for the default kind, as a static initialiser makes it, else `init`.
    ///
    /// # Errors
    /// If `init` refuses.
    pub(crate) fn new(abi: Abi, kind: Kind) -> Result<CMutex> {
        // The allocation is released in `drop`.
        let mutex: *mut pthread_mutex_t =
            Box::into_raw(Box::new(Slot::<pthread_mutex_t>(MaybeUninit::zeroed()))).cast();
        let made = CMutex { abi, mutex };
        if kind != Kind::Default {
            let mut attributes = MaybeUninit::<pthread_mutexattr_t>::uninit();
            // SAFETY: the attributes are initialised before use, and the mutex is not in use yet.
            let rc = unsafe {
                libc::pthread_mutexattr_init(attributes.as_mut_ptr());
                libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind.code());
                (abi.init)(mutex, attributes.as_ptr())
            };
            if rc != 0 {
                return Err(Error::System {
                    what: format!("cannot make a {kind:?} mutex"),
                    source: std::io::Error::from_raw_os_error(rc),
                });
            }
        }
        Ok(made)
    }

    pub(crate) fn as_ptr(&self) -> *mut pthread_mutex_t {
        self.mutex
    }
}

impl Drop for CMutex {
    fn drop(&mut self) {
        // SAFETY: nobody else can hold a mutex whose last owner drops it, and the box came from `new`.
        unsafe {
            (self.abi.destroy)(self.mutex);
            drop(Box::from_raw(self.mutex.cast::<Slot<pthread_mutex_t>>()));
        }
    }
}

/// A `pthread_spinlock_t`, private to this process, with the functions that it belongs to.
pub(crate) struct CSpin {
    pub(crate) abi: SpinAbi,
    spinlock: *mut pthread_spinlock_t,
}

// SAFETY: the functions may be called from any thread: they are a spinlock's.
unsafe impl Send for CSpin {}
// SAFETY: as above.
unsafe impl Sync for CSpin {}

impl CSpin {
    /// A spinlock as `init` makes it.
    ///
    /// # Errors
    /// If `init` refuses.
    pub(crate) fn new(abi: SpinAbi) -> Result<CSpin> {
        // The allocation is released in `drop`.
        let spinlock: *mut pthread_spinlock_t =
            Box::into_raw(Box::new(Slot::<pthread_spinlock_t>(MaybeUninit::zeroed()))).cast();
        // SAFETY: memory for a spinlock that nobody uses yet.
        let rc = unsafe { (abi.init)(spinlock, libc::PTHREAD_PROCESS_PRIVATE) };
        let made = CSpin { abi, spinlock };
        if rc != 0 {
            return Err(Error::System {
                what: "cannot make a spinlock".to_owned(),
                source: std::io::Error::from_raw_os_error(rc),
            });
        }
        Ok(made)
    }

    /// A spinlock of the preload library at `path`.
    ///
    /// # Errors
    /// If it has none of its own: it may pass the calls on to the C library, and they would look just as fast.
    pub(crate) fn preloaded(path: &Path) -> Result<CSpin> {
        let made = Self::new(SpinAbi::open(path)?)?;
        if made.word() == Self::new(SpinAbi::glibc()?)?.word() {
            return Err(Error::Library(format!("{}: leaves spinlocks to the C library", path.display())));
        }
        Ok(made)
    }

    pub(crate) fn as_ptr(&self) -> *mut pthread_spinlock_t {
        self.spinlock
    }

    /// What it is made of.
    fn word(&self) -> u32 {
        // SAFETY: the spinlock lives; whoever else uses it does so atomically.
        unsafe { AtomicU32::from_ptr(self.spinlock.cast()) }.load(Ordering::Relaxed)
    }
}

impl Drop for CSpin {
    fn drop(&mut self) {
        // SAFETY: nobody else can hold a spinlock whose last owner drops it, and the box came from `new`.
        unsafe {
            (self.abi.destroy)(self.spinlock);
            drop(Box::from_raw(self.spinlock.cast::<Slot<pthread_spinlock_t>>()));
        }
    }
}

/// A `pthread_rwlock_t`, private to this process, with the functions that it belongs to.
pub(crate) struct CRw {
    pub(crate) abi: RwAbi,
    rwlock: *mut pthread_rwlock_t,
}

// SAFETY: the functions may be called from any thread: they are a readers-writer lock's.
unsafe impl Send for CRw {}
// SAFETY: as above.
unsafe impl Sync for CRw {}

impl CRw {
    /// A readers-writer lock of `kind` as `init` makes it.
    ///
    /// # Errors
    /// If `init` refuses.
    pub(crate) fn new(abi: RwAbi, kind: RwKind) -> Result<CRw> {
        // The allocation is released in `drop`.
        let rwlock: *mut pthread_rwlock_t =
            Box::into_raw(Box::new(Slot::<pthread_rwlock_t>(MaybeUninit::zeroed()))).cast();
        let made = CRw { abi, rwlock };
        let mut attributes = MaybeUninit::<pthread_rwlockattr_t>::uninit();
        // SAFETY: the attributes are initialised before use, and the lock is not in use yet.
        let rc = unsafe {
            libc::pthread_rwlockattr_init(attributes.as_mut_ptr());
            libc::pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), kind.code());
            (abi.init)(rwlock, attributes.as_ptr())
        };
        if rc != 0 {
            return Err(Error::System {
                what: format!("cannot make a readers-writer lock of kind {kind:?}"),
                source: std::io::Error::from_raw_os_error(rc),
            });
        }
        Ok(made)
    }

    /// A readers-writer lock of the preload library at `path`.
    ///
    /// # Errors
    /// If it has none of its own: it may pass the calls on to the C library, and they would look just as fast.
    pub(crate) fn preloaded(path: &Path) -> Result<CRw> {
        let made = Self::new(RwAbi::open(path)?, RwKind::Default)?;
        if made.as_read() == Self::new(RwAbi::glibc()?, RwKind::Default)?.as_read() {
            return Err(Error::Library(format!(
                "{}: leaves readers-writer locks to the C library",
                path.display()
            )));
        }
        Ok(made)
    }

    pub(crate) fn as_ptr(&self) -> *mut pthread_rwlock_t {
        self.rwlock
    }

    /// What it is made of while a reader holds it, which nobody does so far.
    fn as_read(&self) -> [u8; size_of::<pthread_rwlock_t>()] {
        // SAFETY: the lock lives, and this thread alone uses it and unlocks it.
        unsafe {
            (self.abi.read_lock)(self.rwlock);
            let bytes = self.rwlock.cast::<[u8; size_of::<pthread_rwlock_t>()]>().read();
            (self.abi.unlock)(self.rwlock);
            bytes
        }
    }
}

impl Drop for CRw {
    fn drop(&mut self) {
        // SAFETY: nobody else can hold a lock whose last owner drops it, and the box came from `new`.
        unsafe {
            (self.abi.destroy)(self.rwlock);
            drop(Box::from_raw(self.rwlock.cast::<Slot<pthread_rwlock_t>>()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_is_found_and_locks() {
        let abi = Abi::glibc().unwrap();
        let mutex = CMutex::new(abi, Kind::Default).unwrap();
        // SAFETY: the mutex lives, and this thread unlocks what it locked.
        unsafe {
            assert_eq!((abi.lock)(mutex.as_ptr()), 0);
            assert_eq!((abi.trylock)(mutex.as_ptr()), libc::EBUSY);
            assert_eq!((abi.unlock)(mutex.as_ptr()), 0);
        }
    }

    #[test]
    fn kinds_are_what_they_say() {
        let abi = Abi::glibc().unwrap();
        let mutex = CMutex::new(abi, Kind::Recursive).unwrap();
        // SAFETY: as above; a recursive mutex is locked twice and unlocked twice.
        unsafe {
            assert_eq!((abi.lock)(mutex.as_ptr()), 0);
            assert_eq!((abi.lock)(mutex.as_ptr()), 0);
            assert_eq!((abi.unlock)(mutex.as_ptr()), 0);
            assert_eq!((abi.unlock)(mutex.as_ptr()), 0);
        }
    }

    #[test]
    fn glibc_has_spinlocks_and_is_no_preload_library() {
        let spinlock = CSpin::new(SpinAbi::glibc().unwrap()).unwrap();
        // SAFETY: the spinlock lives, and this thread unlocks what it locked.
        unsafe {
            assert_eq!((spinlock.abi.lock)(spinlock.as_ptr()), 0);
            assert_eq!((spinlock.abi.unlock)(spinlock.as_ptr()), 0);
        }
        let error = CSpin::preloaded(Path::new("libc.so.6")).err().expect("it is glibc's").to_string();
        assert!(error.contains("leaves spinlocks to the C library"), "{error}");
    }

    #[test]
    fn glibc_has_readers_writer_locks_and_is_no_preload_library() {
        for kind in [RwKind::Default, RwKind::Writers] {
            let lock = CRw::new(RwAbi::glibc().unwrap(), kind).unwrap();
            // SAFETY: the lock lives, and this thread unlocks what it locked.
            unsafe {
                assert_eq!((lock.abi.read_lock)(lock.as_ptr()), 0);
                assert_eq!((lock.abi.unlock)(lock.as_ptr()), 0);
                assert_eq!((lock.abi.write_lock)(lock.as_ptr()), 0);
                assert_eq!((lock.abi.read_lock)(lock.as_ptr()), libc::EDEADLK);
                assert_eq!((lock.abi.unlock)(lock.as_ptr()), 0);
            }
        }
        let error = CRw::preloaded(Path::new("libc.so.6")).err().expect("it is glibc's").to_string();
        assert!(error.contains("leaves readers-writer locks to the C library"), "{error}");
    }

    #[test]
    fn a_library_that_leaves_the_mutex_to_glibc_is_refused() {
        // The mathematics library depends on the C library, where the search would find the functions.
        let error = Abi::open(Path::new("libm.so.6")).err().expect("libm has no mutex").to_string();
        assert!(error.contains("does not provide pthread_mutex_lock"), "{error}");
    }

    #[test]
    fn an_absent_library_is_named() {
        let error = Abi::open(Path::new("/no/such/lib.so")).err().expect("no such file").to_string();
        assert!(error.contains("/no/such/lib.so"), "{error}");
    }
}
