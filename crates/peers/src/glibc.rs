//! The C library's locks, from the C library itself: what is preloaded may stand in for them elsewhere in the
//! program.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use libc::{
    pthread_mutex_t, pthread_mutexattr_t, pthread_rwlock_t, pthread_rwlockattr_t, pthread_spinlock_t,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::{Calls, Entry, rw};

type MutexCall = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
type MutexInit = unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int;
type SpinCall = unsafe extern "C" fn(*mut pthread_spinlock_t) -> c_int;
type SpinInit = unsafe extern "C" fn(*mut pthread_spinlock_t, c_int) -> c_int;
type RwCall = unsafe extern "C" fn(*mut pthread_rwlock_t) -> c_int;
type RwInit = unsafe extern "C" fn(*mut pthread_rwlock_t, *const pthread_rwlockattr_t) -> c_int;

/// Readers go first; what no attribute asks for. The `libc` crate has it for no platform.
const PTHREAD_RWLOCK_PREFER_READER_NP: c_int = 0;
/// Writers go first, and no thread reads twice.
const PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP: c_int = 2;

/// A function of the C library. Calling it is a load and a jump, as through the linkage table of a program in
/// C.
struct Function {
    name: &'static CStr,
    /// Null until it is looked up.
    address: AtomicPtr<c_void>,
}

static MUTEX_INIT: Function = Function::named(c"pthread_mutex_init");
static MUTEX_LOCK: Function = Function::named(c"pthread_mutex_lock");
static MUTEX_UNLOCK: Function = Function::named(c"pthread_mutex_unlock");
static MUTEX_DESTROY: Function = Function::named(c"pthread_mutex_destroy");
static SPIN_INIT: Function = Function::named(c"pthread_spin_init");
static SPIN_LOCK: Function = Function::named(c"pthread_spin_lock");
static SPIN_UNLOCK: Function = Function::named(c"pthread_spin_unlock");
static SPIN_DESTROY: Function = Function::named(c"pthread_spin_destroy");
static RW_INIT: Function = Function::named(c"pthread_rwlock_init");
static RW_READ: Function = Function::named(c"pthread_rwlock_rdlock");
static RW_WRITE: Function = Function::named(c"pthread_rwlock_wrlock");
static RW_UNLOCK: Function = Function::named(c"pthread_rwlock_unlock");
static RW_DESTROY: Function = Function::named(c"pthread_rwlock_destroy");

static ALL: [&Function; 13] = [
    &MUTEX_INIT,
    &MUTEX_LOCK,
    &MUTEX_UNLOCK,
    &MUTEX_DESTROY,
    &SPIN_INIT,
    &SPIN_LOCK,
    &SPIN_UNLOCK,
    &SPIN_DESTROY,
    &RW_INIT,
    &RW_READ,
    &RW_WRITE,
    &RW_UNLOCK,
    &RW_DESTROY,
];

impl Function {
    const fn named(name: &'static CStr) -> Function {
        Function { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function, as `F`.
    ///
    /// # Safety
    /// It was looked up, and `F` is the type of a pointer to it.
    #[inline(always)]
    unsafe fn get<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // Relaxed: who has the table of calls got it after the look-up, and code is not written.
        let address = self.address.load(Relaxed);
        // SAFETY: a pointer to a function of this type, by the caller's word.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

/// Looks the functions up, once; the C library's version.
fn library() -> Result<String, String> {
    static FOUND: OnceLock<Result<String, String>> = OnceLock::new();
    FOUND.get_or_init(look_up).clone()
}

fn look_up() -> Result<String, String> {
    let say = |error: libloading::Error| format!("needs the GNU C library: {error}");
    // SAFETY: the library is there already, and initialised long since.
    let libc = unsafe { Library::open(Some("libc.so.6"), RTLD_NOW | RTLD_LOCAL) }.map_err(say)?;
    for function in ALL {
        // SAFETY: only the address is asked for.
        let symbol = unsafe { libc.get::<*mut c_void>(function.name.to_bytes_with_nul()) }.map_err(say)?;
        function.address.store(symbol.into_raw(), Relaxed);
    }
    // The pointers stay good to the end of the process.
    std::mem::forget(libc);
    // SAFETY: a constant string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    Ok(format!("glibc {}", version.to_string_lossy()))
}

unsafe extern "C" fn init_mutex<const KIND: c_int>(lock: *mut c_void) {
    let mut attributes = MaybeUninit::<pthread_mutexattr_t>::uninit();
    // SAFETY: the caller brings memory for a mutex; the attributes are initialised before they are used. None
    // of the calls has a reason to fail: the kind is one of glibc's.
    unsafe {
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), KIND);
        MUTEX_INIT.get::<MutexInit>()(lock.cast(), attributes.as_ptr());
        libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
    }
}

unsafe extern "C" fn init_spin(lock: *mut c_void) {
    // SAFETY: the caller brings memory for a spinlock.
    unsafe { SPIN_INIT.get::<SpinInit>()(lock.cast(), libc::PTHREAD_PROCESS_PRIVATE) };
}

unsafe extern "C" fn init_rw<const KIND: c_int>(lock: *mut c_void) {
    let mut attributes = MaybeUninit::<pthread_rwlockattr_t>::uninit();
    // SAFETY: as in `init_mutex`.
    unsafe {
        libc::pthread_rwlockattr_init(attributes.as_mut_ptr());
        libc::pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), KIND);
        RW_INIT.get::<RwInit>()(lock.cast(), attributes.as_ptr());
        libc::pthread_rwlockattr_destroy(attributes.as_mut_ptr());
    }
}

/// Functions with one argument, which never fail when they are used as [`Calls`] says.
macro_rules! forward {
    ($($name:ident($($node:ident)?) = $function:ident as $type:ty;)*) => {$(
        unsafe extern "C" fn $name(lock: *mut c_void $(, $node: *mut c_void)?) {
            // SAFETY: the caller brings an initialised lock, and got this function after the look-up.
            unsafe { $function.get::<$type>()(lock.cast()) };
        }
    )*};
}

forward! {
    lock_mutex(_node) = MUTEX_LOCK as MutexCall;
    unlock_mutex(_node) = MUTEX_UNLOCK as MutexCall;
    destroy_mutex() = MUTEX_DESTROY as MutexCall;
    lock_spin(_node) = SPIN_LOCK as SpinCall;
    unlock_spin(_node) = SPIN_UNLOCK as SpinCall;
    destroy_spin() = SPIN_DESTROY as SpinCall;
    read_rw(_node) = RW_READ as RwCall;
    write_rw(_node) = RW_WRITE as RwCall;
    unlock_rw(_node) = RW_UNLOCK as RwCall;
    destroy_rw() = RW_DESTROY as RwCall;
}

const fn mutex(init: unsafe extern "C" fn(*mut c_void)) -> Calls {
    Calls {
        size: size_of::<pthread_mutex_t>(),
        align: align_of::<pthread_mutex_t>(),
        node: 0,
        init,
        lock: lock_mutex,
        unlock: unlock_mutex,
        destroy: destroy_mutex,
    }
}

const SPIN: Calls = Calls {
    size: size_of::<pthread_spinlock_t>(),
    align: align_of::<pthread_spinlock_t>(),
    node: 0,
    init: init_spin,
    lock: lock_spin,
    unlock: unlock_spin,
    destroy: destroy_spin,
};

const fn rwlock(init: unsafe extern "C" fn(*mut c_void)) -> rw::Calls {
    let write = Calls {
        size: size_of::<pthread_rwlock_t>(),
        align: align_of::<pthread_rwlock_t>(),
        node: 0,
        init,
        lock: write_rw,
        unlock: unlock_rw,
        destroy: destroy_rw,
    };
    rw::Calls { write, read_lock: read_rw, read_unlock: unlock_rw }
}

pub(crate) fn entries() -> [Entry; 3] {
    const DEFAULT: Calls = mutex(init_mutex::<{ libc::PTHREAD_MUTEX_DEFAULT }>);
    const ADAPTIVE: Calls = mutex(init_mutex::<{ libc::PTHREAD_MUTEX_ADAPTIVE_NP }>);
    [
        Entry::new("glibc", "pthread_mutex_t of the default kind: sleeps at once", || {
            Ok((library()?, DEFAULT))
        }),
        Entry::new(
            "glibc-adaptive",
            "pthread_mutex_t of kind PTHREAD_MUTEX_ADAPTIVE_NP: spins before it sleeps",
            || Ok((library()?, ADAPTIVE)),
        ),
        Entry::new("glibc-spin", "pthread_spinlock_t", || Ok((library()?, SPIN))).spinning(),
    ]
}

pub(crate) fn rw_entries() -> [Entry<rw::Calls>; 2] {
    const READERS: rw::Calls = rwlock(init_rw::<PTHREAD_RWLOCK_PREFER_READER_NP>);
    const WRITERS: rw::Calls = rwlock(init_rw::<PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP>);
    [
        Entry::new("glibc", "pthread_rwlock_t of the default kind: readers go first", || {
            Ok((library()?, READERS))
        }),
        Entry::new(
            "glibc-writers",
            "pthread_rwlock_t of kind PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP: writers go first",
            || Ok((library()?, WRITERS)),
        ),
    ]
}
