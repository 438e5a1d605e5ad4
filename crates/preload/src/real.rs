//! glibc's functions under the names that this library exports: the next definition in the link order.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use libc::{clockid_t, pid_t, pthread_t, sched_param, timespec};
use poundlock_linux::time::ReadClock;

use crate::environment::Errno;
use crate::object::{Cond, Mutex};
use crate::rwlock_object::RwLock;
use crate::spin::Spin;

/// A resource that can be limited.
pub(crate) type Resource = libc::__rlimit_resource_t;

/// A function that is looked up when it is first needed. The lookup neither allocates nor locks anything that
/// a caller inside `malloc` could hold, when the name exists; before glibc 2.34 the first one of a thread
/// allocates: see [`looking`].
pub(crate) struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    /// Where the address lies, once it has been looked up.
    pub(crate) const FOUND: usize = core::mem::offset_of!(Real, found);

    const fn new(name: &'static CStr) -> Self {
        Real { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function's address; null if this glibc does not have it.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.found.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        if looking() {
            return ptr::null_mut();
        }
        // What is not found is put into words, in memory that is allocated for that.
        let _errno = Errno::keep();
        // SAFETY: takes no arguments.
        LOOKING.store(unsafe { libc::pthread_self() } as usize, Relaxed);
        // SAFETY: the name ends in a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        LOOKING.store(0, Relaxed);
        let found = newer(self.name, found);
        self.found.store(found, Relaxed);
        found
    }
}

/// The thread that looks something up, if one does.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// Whether the caller is inside of a lookup of this thread's: the lookup allocates, and the program's
/// allocator locks. There is nothing to call then. (Of two threads that look at once, the second one's lookup
/// may begin another; that one does not allocate.)
fn looking() -> bool {
    // SAFETY: takes no arguments.
    LOOKING.load(Relaxed) == unsafe { libc::pthread_self() } as usize
}

/// What is to be called instead of `found`, the next function of that name: glibc before 2.36 answers with
/// the oldest version that it has of one, which for condition variables and clocks is not the one that
/// programs are linked with.
fn newer(name: &CStr, found: *mut c_void) -> *mut c_void {
    /// The first one for x86-64. aarch64's first one is what programs are linked with.
    const OLDEST: &CStr = c"GLIBC_2.2.5";
    let version = if cfg!(not(target_arch = "x86_64")) {
        return found;
    } else if name.to_bytes().starts_with(b"pthread_cond_") {
        c"GLIBC_2.3.2"
    } else if name == c"clock_gettime" {
        CLOCKS_VERSION
    } else {
        return found;
    };
    // That of a library in between stays. SAFETY: the strings end in a zero.
    unsafe {
        let next = |version: &CStr| libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr());
        if found != next(OLDEST) {
            return found;
        }
        let newer = next(version);
        if newer.is_null() { found } else { newer }
    }
}

/// The version of `clock_gettime` in `libc.so.6`; an older one is in a library of its own.
const CLOCKS_VERSION: &CStr = c"GLIBC_2.17";

/// A [`Real`] named after its function.
macro_rules! address {
    ($name:ident) => {{
        const NAME: &str = concat!(stringify!($name), "\0");
        match CStr::from_bytes_with_nul(NAME.as_bytes()) {
            Ok(name) => Real::new(name),
            Err(_) => panic!("a name without its zero"),
        }
    }};
}

macro_rules! addresses {
    ($($name:ident = $of:ident;)*) => {
        $(
        #[doc = concat!("`", stringify!($of), "`.")]
        pub(crate) static $name: Real = address!($of);
        )*
        /// All of the above.
        static ADDRESSES: &[&Real] = &[$(&$name),*];
    };
}

addresses! {
    // Called from a frame that may be unwound.
    COND_WAIT = pthread_cond_wait;
    COND_TIMEDWAIT = pthread_cond_timedwait;
    COND_CLOCKWAIT = pthread_cond_clockwait;
    SEM_WAIT = sem_wait;
    SEM_TIMEDWAIT = sem_timedwait;
    SEM_CLOCKWAIT = sem_clockwait;
    SEM_INIT = sem_init;
    SEM_DESTROY = sem_destroy;
    SEM_TRYWAIT = sem_trywait;
    SEM_POST = sem_post;
    SCHED_YIELD = sched_yield;
    BARRIER_WAIT = pthread_barrier_wait;
    BARRIER_DESTROY = pthread_barrier_destroy;
    JOIN = pthread_join;
    TIMEDJOIN = pthread_timedjoin_np;
    CLOCKJOIN = pthread_clockjoin_np;
    THRD_JOIN = thrd_join;
    // Jumped to.
    DLOPEN = dlopen;
    DLCLOSE = dlclose;
    DLVSYM = dlvsym;
    SYSCALL = syscall;
    // With a result of its own, and with a variable number of arguments.
    EXIT = _exit;
    SEMCTL = semctl;
    // Never absent.
    SIGACTION = sigaction;
    SIGNAL = signal;
    SIGSET = sigset;
    SYSV_SIGNAL = sysv_signal;
    SIGINTERRUPT = siginterrupt;
}

/// `clock_gettime`: that of a library behind ours that shows other times, or glibc's.
static CLOCK_GETTIME: Real = address!(clock_gettime);
/// glibc's own `clock_gettime`, whatever other libraries have; null before [`find_clocks`].
static KERNELS_CLOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The two functions that read a clock, where they differ.
#[derive(Clone, Copy)]
pub(crate) struct Clocks {
    /// What the program is shown.
    pub(crate) shown: ReadClock,
    /// What the kernel uses.
    pub(crate) kernel: ReadClock,
}

/// Finds glibc's clock, and makes our own waits and figures use it.
pub(crate) fn find_clocks() {
    if looking() {
        return;
    }
    // A library in between has no versions. SAFETY: strings that end in a zero.
    let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr(), CLOCKS_VERSION.as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: glibc's function, which stays loaded.
    unsafe {
        poundlock_linux::time::read_clocks_by(as_clock(found));
        poundlock_statfile::writer::read_clocks_by(as_clock(found));
    }
    CLOCK_GETTIME.address();
    // Release: a thread that sees this one sees the other.
    KERNELS_CLOCK.store(found, Release);
}

/// Both clocks, if a library behind ours shows the program another clock than the kernel's.
#[inline]
pub(crate) fn clock_of_the_program() -> Option<Clocks> {
    let kernel = KERNELS_CLOCK.load(Acquire);
    let shown = CLOCK_GETTIME.found.load(Relaxed);
    // SAFETY: both were found under the name of this type's function.
    (!kernel.is_null() && shown != kernel)
        .then(|| unsafe { Clocks { shown: as_clock(shown), kernel: as_clock(kernel) } })
}

/// # Safety
/// The address is that of a `clock_gettime`.
unsafe fn as_clock(address: *mut c_void) -> ReadClock {
    // SAFETY: the caller's.
    unsafe { core::mem::transmute(address) }
}

/// What a function that this glibc does not have returns: the error, or with `errno` what sets that.
macro_rules! absent {
    () => {
        libc::ENOSYS
    };
    (errno) => {
        crate::semarray::result(Err(libc::ENOSYS))
    };
}

/// glibc's functions, as functions.
macro_rules! calls {
    ($($name:ident($($arg:ident: $type:ty),*) $($errno:ident)?;)*) => {
        #[expect(non_upper_case_globals, reason = "each is named after its function")]
        mod found {
            use super::{CStr, Real};
            $(pub(super) static $name: Real = address!($name);)*
        }

        /// Looks up everything. The dynamic linker's lock is held while a library's constructor runs, so a
        /// thread for which that constructor waits must not be the first to look something up.
        pub(crate) fn find_all() {
            let calls = [$(&found::$name),*];
            for real in calls.iter().chain(ADDRESSES) {
                real.address();
            }
        }

        $(
        #[doc = concat!("glibc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the function itself.
        pub(crate) unsafe fn $name($($arg: $type),*) -> c_int {
            let found = found::$name.address();
            if found.is_null() {
                // An allocator's lock in the first lookup of all: it goes on without.
                return if looking() { 0 } else { absent!($($errno)?) };
            }
            // SAFETY: the address of the function of this name, whose type this is; the rest is the caller's.
            unsafe {
                let call: unsafe extern "C" fn($($type),*) -> c_int = core::mem::transmute(found);
                call($($arg),*)
            }
        }
        )*
    };
}

calls! {
    pthread_mutex_init(mutex: &Mutex, attributes: Option<&libc::pthread_mutexattr_t>);
    pthread_mutex_destroy(mutex: &Mutex);
    pthread_mutex_lock(mutex: &Mutex);
    pthread_mutex_trylock(mutex: &Mutex);
    pthread_mutex_timedlock(mutex: &Mutex, time: &timespec);
    pthread_mutex_clocklock(mutex: &Mutex, clock: clockid_t, time: &timespec);
    pthread_mutex_unlock(mutex: &Mutex);
    pthread_cond_init(cond: &Cond, attributes: Option<&libc::pthread_condattr_t>);
    pthread_cond_destroy(cond: &Cond);
    pthread_cond_signal(cond: &Cond);
    pthread_cond_broadcast(cond: &Cond);
    pthread_cancel(thread: pthread_t);
    pthread_setschedparam(thread: pthread_t, policy: c_int, parameter: *const sched_param);
    pthread_setschedprio(thread: pthread_t, priority: c_int);
    sched_setscheduler(process: pid_t, policy: c_int, parameter: *const sched_param);
    sched_setparam(process: pid_t, parameter: *const sched_param);
    pthread_create(
        thread: *mut pthread_t, attributes: *const libc::pthread_attr_t,
        start: extern "C" fn(*mut c_void) -> *mut c_void, argument: *mut c_void
    );
    thrd_create(
        thread: *mut pthread_t, start: extern "C" fn(*mut c_void) -> c_int, argument: *mut c_void
    );
    pthread_spin_init(lock: &Spin, shared: c_int);
    pthread_spin_destroy(lock: &Spin);
    pthread_spin_lock(lock: &Spin);
    pthread_spin_trylock(lock: &Spin);
    pthread_spin_unlock(lock: &Spin);
    pthread_rwlock_init(lock: &RwLock, attributes: Option<&libc::pthread_rwlockattr_t>);
    pthread_rwlock_destroy(lock: &RwLock);
    pthread_rwlock_rdlock(lock: &RwLock);
    pthread_rwlock_tryrdlock(lock: &RwLock);
    pthread_rwlock_clockrdlock(lock: &RwLock, clock: clockid_t, time: &timespec);
    pthread_rwlock_wrlock(lock: &RwLock);
    pthread_rwlock_trywrlock(lock: &RwLock);
    pthread_rwlock_clockwrlock(lock: &RwLock, clock: clockid_t, time: &timespec);
    pthread_rwlock_unlock(lock: &RwLock);
    semget(key: libc::key_t, semaphores: c_int, flags: c_int) errno;
    semop(id: c_int, operations: *mut libc::sembuf, count: usize) errno;
    semtimedop(id: c_int, operations: *mut libc::sembuf, count: usize, limit: *const timespec) errno;
    unshare(kinds: c_int) errno;
    setns(descriptor: c_int, kinds: c_int) errno;
    chroot(path: *const core::ffi::c_char) errno;
    setuid(user: libc::uid_t) errno;
    seteuid(user: libc::uid_t) errno;
    setreuid(real: libc::uid_t, effective: libc::uid_t) errno;
    setresuid(real: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t) errno;
    setrlimit(resource: Resource, new: *const libc::rlimit) errno;
    setrlimit64(resource: Resource, new: *const libc::rlimit) errno;
    prlimit(process: libc::pid_t, resource: Resource, new: *const libc::rlimit, old: *mut libc::rlimit) errno;
    prlimit64(process: libc::pid_t, resource: Resource, new: *const libc::rlimit, old: *mut libc::rlimit) errno;
}
