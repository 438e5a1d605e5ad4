//! pthread locks as programs reach them: through pointers that the dynamic linker filled in.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use poundlock_peers::{Calls, rw};
use serde::{Deserialize, Serialize};

use super::gate::Alone;
use crate::error::{Error, Result};

/// A function of one pointer to a lock; 0, or why it failed.
pub(super) type Call = unsafe extern "C" fn(*mut c_void) -> c_int;
type Init = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
type SpinInit = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// The kinds of pthread locks that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// `PTHREAD_MUTEX_DEFAULT`
    Mutex,
    /// `PTHREAD_MUTEX_ADAPTIVE_NP`
    Adaptive,
    /// `PTHREAD_MUTEX_RECURSIVE`
    Recursive,
    Spin,
    /// A readers-writer lock of the default kind, which prefers readers.
    Readers,
    /// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`
    Writers,
}

impl Kind {
    /// The functions: to lock (as a writer), to try it, to lock as a reader, to unlock, to make a lock.
    fn names(self) -> [String; 5] {
        const SIMPLE: [&str; 5] = ["lock", "trylock", "lock", "unlock", "init"];
        let (of, functions) = match self {
            Self::Mutex | Self::Adaptive | Self::Recursive => ("mutex", SIMPLE),
            Self::Spin => ("spin", SIMPLE),
            Self::Readers | Self::Writers => ("rwlock", ["wrlock", "trywrlock", "rdlock", "unlock", "init"]),
        };
        functions.map(|function| format!("pthread_{of}_{function}"))
    }
}

/// A library's functions for a kind of lock. They are values, so that no call can be inlined or resolved at
/// build time.
#[derive(Clone, Copy)]
pub(super) struct Symbols {
    kind: Kind,
    pub(super) lock: Call,
    pub(super) trylock: Call,
    pub(super) read: Call,
    pub(super) unlock: Call,
    /// Null: zeroes are an unlocked lock.
    init: *mut c_void,
}

// SAFETY: addresses of functions that may be called from any thread.
unsafe impl Send for Symbols {}
// SAFETY: as above.
unsafe impl Sync for Symbols {}

impl Symbols {
    /// Those of the preload library, or the C library's own, whatever is preloaded.
    ///
    /// # Errors
    /// If the library cannot be loaded, or leaves the locks to the C library: they would look just as fast.
    pub(super) fn of(library: Option<&Path>, kind: Kind) -> Result<Symbols> {
        let glibc = Self::open(Path::new("libc.so.6"), kind.names(), kind);
        let Some(path) = library else { return glibc };
        let found = Self::open(path, kind.names(), kind)?;
        let what = match kind {
            // A mutex differs when somebody waits, not before.
            Kind::Mutex | Kind::Adaptive | Kind::Recursive => return Ok(found),
            Kind::Spin => "spinlocks",
            Kind::Readers | Kind::Writers => "readers-writer locks",
        };
        if found.trace()? == glibc?.trace()? {
            return Err(Error::Library(format!("{}: leaves {what} to the C library", path.display())));
        }
        Ok(found)
    }

    fn open(path: &Path, names: [String; 5], kind: Kind) -> Result<Symbols> {
        let library = load(path)?;
        let find = |name: &str| symbol(&library, path, name);
        let [lock, trylock, read, unlock, init] = &names;
        // SAFETY: these functions have one pointer to a lock and return an int; C has one sort of pointers to
        // objects.
        let call = |name: &str| Ok(unsafe { std::mem::transmute::<*mut c_void, Call>(find(name)?) });
        let found = Symbols {
            kind,
            lock: call(lock)?,
            trylock: call(trylock)?,
            read: call(read)?,
            unlock: call(unlock)?,
            init: if init.is_empty() { ptr::null_mut() } else { find(init)? },
        };
        // The pointers must stay good to the end of the process.
        std::mem::forget(library);
        Ok(found)
    }

    /// The functions of our C library: that which `POUNDLOCK_C_LIBRARY` names, or the installed one.
    ///
    /// # Errors
    /// If it cannot be loaded, or is another library.
    pub(super) fn of_c_library(sort: &str) -> Result<Symbols> {
        let named = std::env::var_os("POUNDLOCK_C_LIBRARY").unwrap_or_else(|| "libpoundlock.so.0.1".into());
        let [lock, trylock, unlock] =
            ["lock", "trylock", "unlock"].map(|of| format!("poundlock_{sort}_{of}"));
        Self::open(Path::new(&named), [lock.clone(), trylock, lock, unlock, String::new()], Kind::Mutex)
    }

    /// Functions of this file, which the compiler must not know: they do nothing, or a compare-and-swap and
    /// an exchange or a plain store. No mutex whose waiters sleep can be had as cheaply as the last without
    /// help from elsewhere.
    pub(super) fn floor(name: &str) -> Option<Symbols> {
        unsafe extern "C" fn nothing(_: *mut c_void) -> c_int {
            0
        }
        unsafe extern "C" fn cas(word: *mut c_void) -> c_int {
            // SAFETY: the first word of a lock that belongs to these functions, so that all access is atomic.
            let word = unsafe { AtomicU32::from_ptr(word.cast()) };
            if word.compare_exchange(0, 1, Acquire, Relaxed).is_ok() { 0 } else { libc::EBUSY }
        }
        unsafe extern "C" fn exchange(word: *mut c_void) -> c_int {
            // SAFETY: as in `cas`.
            (unsafe { AtomicU32::from_ptr(word.cast()) }.swap(0, Release) != 1) as c_int
        }
        unsafe extern "C" fn store(word: *mut c_void) -> c_int {
            // SAFETY: as in `cas`.
            unsafe { AtomicU32::from_ptr(word.cast()) }.store(0, Release);
            0
        }
        let (lock, unlock): (Call, Call) = match name {
            "empty-calls" => (nothing, nothing),
            "bare-calls" => (cas, exchange),
            "bare-store-calls" => (cas, store),
            _ => return None,
        };
        let (lock, unlock) = black_box((lock, unlock));
        Some(Symbols { kind: Kind::Mutex, lock, trylock: lock, read: lock, unlock, init: ptr::null_mut() })
    }

    /// A lock in lines of its own, which lives as long as the process.
    ///
    /// # Errors
    /// If the library refuses.
    pub(super) fn make(&self) -> Result<*mut c_void> {
        let lock: *mut c_void = Box::into_raw(Box::new(Alone([0_u8; 128]))).cast();
        self.init(lock)?;
        Ok(lock)
    }

    fn init(&self, lock: *mut c_void) -> Result<()> {
        if self.init.is_null() {
            return Ok(());
        }
        let mut mutex = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let mut rwlock = MaybeUninit::<libc::pthread_rwlockattr_t>::uninit();
        // SAFETY: zeroed memory of 128 bytes, which is more than any of these locks takes and which nobody
        // uses yet; the attributes are initialised before they are used, and the types are those that POSIX
        // gives the functions.
        let rc = unsafe {
            let init = std::mem::transmute::<*mut c_void, Init>(self.init);
            match self.kind {
                // As a static initialiser makes it.
                Kind::Mutex => 0,
                Kind::Adaptive | Kind::Recursive => {
                    let adaptive = self.kind == Kind::Adaptive;
                    let kind = if adaptive {
                        libc::PTHREAD_MUTEX_ADAPTIVE_NP
                    } else {
                        libc::PTHREAD_MUTEX_RECURSIVE
                    };
                    libc::pthread_mutexattr_init(mutex.as_mut_ptr());
                    libc::pthread_mutexattr_settype(mutex.as_mut_ptr(), kind);
                    init(lock, mutex.as_ptr().cast())
                }
                Kind::Spin => {
                    let init = std::mem::transmute::<*mut c_void, SpinInit>(self.init);
                    init(lock, libc::PTHREAD_PROCESS_PRIVATE)
                }
                Kind::Readers | Kind::Writers => {
                    libc::pthread_rwlockattr_init(rwlock.as_mut_ptr());
                    // As the C library's header numbers them; the `libc` crate does not.
                    let kind = if self.kind == Kind::Writers { 2 } else { 0 };
                    libc::pthread_rwlockattr_setkind_np(rwlock.as_mut_ptr(), kind);
                    init(lock, rwlock.as_ptr().cast())
                }
            }
        };
        succeed(rc, "making a lock failed")
    }

    /// What a lock is made of while a reader holds it, or, if it is a spinlock, nobody: ours and the C
    /// library's differ.
    fn trace(&self) -> Result<[u8; 64]> {
        let lock = self.make()?;
        // SAFETY: the lock lives, and this thread alone uses it and unlocks it.
        unsafe {
            let read = matches!(self.kind, Kind::Readers | Kind::Writers);
            if read {
                succeed((self.read)(lock), "locking failed")?;
            }
            let bytes = lock.cast::<[u8; 64]>().read_volatile();
            if read {
                succeed((self.unlock)(lock), "unlocking failed")?;
            }
            Ok(bytes)
        }
    }

    /// The functions behind the table that all locks are driven by.
    pub(super) fn calls(self) -> rw::Calls {
        const OF: [fn() -> rw::Calls; 6] =
            [calls::<0>, calls::<1>, calls::<2>, calls::<3>, calls::<4>, calls::<5>];
        let slot = self.kind as usize;
        _ = CALLED[slot].set(self);
        OF[slot]()
    }
}

/// The functions behind the tables; a process drives those of one library only.
static CALLED: [OnceLock<Symbols>; 6] = [const { OnceLock::new() }; 6];
/// What one of them returned instead of 0.
static FAILED: AtomicI32 = AtomicI32::new(0);

/// Whether all calls through the tables have succeeded so far.
pub(super) fn all_succeeded() -> Result<()> {
    succeed(FAILED.load(Relaxed), "locking or unlocking failed")
}

pub(super) fn succeed(rc: c_int, what: &str) -> Result<()> {
    if rc == 0 {
        return Ok(());
    }
    Err(Error::System { what: what.to_owned(), source: std::io::Error::from_raw_os_error(rc) })
}

fn calls<const KIND: usize>() -> rw::Calls {
    fn call<const KIND: usize>(which: fn(&Symbols) -> Call, lock: *mut c_void) {
        // SAFETY: the caller of the table brings a lock that `init` made, and keeps the table's rules.
        let rc = CALLED[KIND].get().map_or(libc::ENOSYS, |symbols| unsafe { which(symbols)(lock) });
        if rc != 0 {
            FAILED.store(rc, Relaxed);
        }
    }
    unsafe extern "C" fn init<const KIND: usize>(lock: *mut c_void) {
        if CALLED[KIND].get().is_none_or(|symbols| symbols.init(lock).is_err()) {
            FAILED.store(libc::EINVAL, Relaxed);
        }
    }
    unsafe extern "C" fn lock<const KIND: usize>(lock: *mut c_void, _node: *mut c_void) {
        call::<KIND>(|symbols| symbols.lock, lock);
    }
    unsafe extern "C" fn read<const KIND: usize>(lock: *mut c_void, _node: *mut c_void) {
        call::<KIND>(|symbols| symbols.read, lock);
    }
    unsafe extern "C" fn unlock<const KIND: usize>(lock: *mut c_void, _node: *mut c_void) {
        call::<KIND>(|symbols| symbols.unlock, lock);
    }
    unsafe extern "C" fn destroy(_lock: *mut c_void) {}
    let write = Calls {
        size: 64,
        align: 64,
        node: 0,
        init: init::<KIND>,
        lock: lock::<KIND>,
        unlock: unlock::<KIND>,
        destroy,
    };
    rw::Calls { write, read_lock: read::<KIND>, read_unlock: unlock::<KIND> }
}

fn load(path: &Path) -> Result<Library> {
    // SAFETY: the library is the C library, which is initialised long since, or one of Poundlock's, whose
    // initialisers may run at any time in any process: it is made to be preloaded.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| Error::Library(format!("{}: {error}", path.display())))
}

/// The function `name`, provided by the library at `path` itself.
fn symbol(library: &Library, path: &Path, name: &str) -> Result<*mut c_void> {
    let problem = |message: String| Error::Library(format!("{}: {message}", path.display()));
    // SAFETY: only the address is asked for.
    let found = unsafe { library.get::<*mut c_void>(name) };
    let address = found.map_err(|error| problem(error.to_string()))?.into_raw();
    // A search in a library goes on in the libraries it depends on. A preload library that lacks a function
    // would thus be measured with the C library's, and look just as fast.
    let home = home_of(address).ok_or_else(|| problem(format!("{name} lies in no file")))?;
    if home.file_name() != path.file_name() {
        return Err(problem(format!("does not provide {name}; it would come from {}", home.display())));
    }
    Ok(address)
}

/// The file that `address` was mapped from.
fn home_of(address: *mut c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` has room for the answer and is valid as zeroes; any address may be asked about. The name
    // is a string that lives as long as the library is loaded, and we unload none.
    let name = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 || info.assume_init_ref().dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.assume_init_ref().dli_fname)
    };
    Some(OsStr::from_bytes(name.to_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibcs_locks_of_every_kind_are_found_and_exclude() {
        use Kind::*;
        for kind in [Mutex, Adaptive, Recursive, Spin, Readers, Writers] {
            let symbols = Symbols::of(None, kind).unwrap();
            let lock = symbols.make().unwrap();
            // SAFETY: the lock lives, and this thread unlocks what it locked.
            unsafe {
                assert_eq!((symbols.lock)(lock), 0);
                let again = if kind == Recursive { 0 } else { libc::EBUSY };
                assert_eq!((symbols.trylock)(lock), again, "{kind:?}");
                assert_eq!((symbols.unlock)(lock), 0);
            }
        }
    }

    #[test]
    fn a_library_without_the_functions_is_refused_and_an_absent_one_named() {
        // The mathematics library depends on the C library, where the search would find the functions.
        for (library, kind, says) in [
            ("libm.so.6", Kind::Mutex, "does not provide pthread_mutex_lock"),
            ("libm.so.6", Kind::Readers, "does not provide pthread_rwlock_wrlock"),
            ("libc.so.6", Kind::Spin, "leaves spinlocks to the C library"),
            ("libc.so.6", Kind::Readers, "leaves readers-writer locks to the C library"),
            ("/no/such/lib.so", Kind::Mutex, "/no/such/lib.so"),
        ] {
            let error = Symbols::of(Some(Path::new(library)), kind).err().expect(library).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
