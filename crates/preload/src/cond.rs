//! `pthread_cond_*`, and `pthread_cancel`, which must be able to end our waits.
//!
//! # Whose a condition variable is
//!
//! A condition variable with waits under our mutexes is ours. One with waits under glibc's (robust,
//! priority-inheriting, ...), or that is process-shared, is glibc's. Neither looks into the other's. Static
//! initialisers do not tell, so the first wait decides, and again a wait under a mutex of the other sort,
//! which may only happen without waiters. The waiter holds the mutex, so of several first waiters one
//! decides.
//!
//! # Cancellation
//!
//! glibc interrupts a blocked thread only where it knows that the thread is blocked. So `pthread_cancel` is
//! exported too: after glibc has noted the request, it marks the waits of the target thread. A marked waiter
//! that has not been signalled gives up its place, acquires the mutex, and calls `pthread_testcancel` from a
//! frame that may be unwound ([`crate::entry`]); one that has been signalled returns, with the request
//! pending, so that no signal is lost.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use libc::{
    EINVAL, EPERM, ETIMEDOUT, clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_t,
    timespec,
};
use poundlock_core::condvar::{Guarding, Outcome, Requeued, Target};
use poundlock_core::platform::{Clock, Deadline};
use poundlock_linux::{Linux, registry};

use crate::entry::{CANCEL, export_wait};
use crate::mode;
use crate::object::{Cond, Kind, Mutex};
use crate::{abi, real, stat};

export_wait! {
    /// Waits for a signal.
    pthread_cond_wait(*mut pthread_cond_t, *mut pthread_mutex_t), prepare_wait, wait, finish
}
export_wait! {
    /// Waits for a signal until a time of the condition variable's clock.
    pthread_cond_timedwait(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec),
    prepare_timed_wait, timed_wait, finish
}
export_wait! {
    /// Waits for a signal until a time of a clock.
    pthread_cond_clockwait(*mut pthread_cond_t, *mut pthread_mutex_t, clockid_t, *const timespec),
    prepare_clock_wait, clock_wait, finish
}

/// Initialises a condition variable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_init(
    cond: *mut pthread_cond_t,
    attributes: *const pthread_condattr_t,
) -> c_int {
    let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
    let mut clock = libc::CLOCK_REALTIME;
    if !attributes.is_null() {
        // SAFETY: the caller's attributes, and our two words.
        unsafe {
            libc::pthread_condattr_getpshared(attributes, &mut shared);
            libc::pthread_condattr_getclock(attributes, &mut clock);
        }
    }
    if mode::get().glibc() || shared != libc::PTHREAD_PROCESS_PRIVATE {
        // SAFETY: the caller's memory and attributes.
        return unsafe { real::pthread_cond_init(cond, attributes) };
    }
    // SAFETY: the caller's memory for a condition variable.
    unsafe { Cond::at(cond) }.init(clock == libc::CLOCK_MONOTONIC);
    0
}

/// As `pthread_cond_init` without attributes.
pub(crate) unsafe fn init_default(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { pthread_cond_init(cond, ptr::null()) }
}

/// Destroys a condition variable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's condition variable.
    let object = unsafe { Cond::at(cond) };
    if mode::get().glibc() || !object.is_ours() {
        // SAFETY: as above.
        return unsafe { real::pthread_cond_destroy(cond) };
    }
    object.raw.drain();
    0
}

/// An unused one may be either's: glibc finds no waiter in it.
macro_rules! export_signals {
    ($($(#[$doc:meta])* $name:ident: $ours:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(cond: *mut pthread_cond_t) -> c_int {
            // SAFETY: the caller's condition variable.
            let object = unsafe { Cond::at(cond) };
            if object.is_ours() {
                object.raw.$ours();
                return 0;
            }
            // SAFETY: as above.
            unsafe { real::$name(cond) }
        }
    )*};
}

export_signals! {
    /// Wakes a waiter.
    pthread_cond_signal: signal;
    /// Wakes all waiters.
    pthread_cond_broadcast: broadcast;
}

/// Asks a thread to end at its next cancellation point.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the caller's thread.
    let result = unsafe { real::pthread_cancel(thread) };
    if result == 0 {
        registry::cancel(thread as usize);
    }
    result
}

pub(crate) unsafe extern "C" fn prepare_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> *mut c_void {
    // SAFETY: the caller's objects.
    unsafe { prepare(cond, mutex, ptr::null(), true, &real::COND_WAIT) }
}

pub(crate) unsafe extern "C" fn prepare_timed_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
) -> *mut c_void {
    // SAFETY: the caller's objects and time.
    unsafe { prepare(cond, mutex, time, true, &real::COND_TIMEDWAIT) }
}

unsafe extern "C" fn prepare_clock_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
) -> *mut c_void {
    // SAFETY: the caller's objects and time.
    unsafe { prepare(cond, mutex, time, abi::clock(clock).is_some(), &real::COND_CLOCKWAIT) }
}

/// Decides whose the condition variable is, and counts the release of the mutex if glibc will do it. The
/// thread is registered, so that a request to cancel it finds it. A wait of ours that is refused is no
/// cancellation point: then a stand-in for glibc's function returns the error.
unsafe fn prepare(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
    clock: bool,
    glibc: &'static real::Real,
) -> *mut c_void {
    let mode = mode::get();
    // SAFETY: the caller's objects.
    let (cond_object, mutex_object) = unsafe { (Cond::at(cond), Mutex::at(mutex)) };
    if mutex_object.is_ours() {
        // SAFETY: null, or the caller's time.
        let time = unsafe { time.as_ref() };
        if !clock || time.is_some_and(abi::is_invalid) {
            return refused::<EINVAL> as *mut c_void;
        }
        if mutex_object.kind() != Kind::Plain && mutex_object.owner.load(Relaxed) != registry::identity() {
            return refused::<EPERM> as *mut c_void;
        }
        registry::register();
        if !cond_object.is_ours() {
            // SAFETY: as above; the caller holds the mutex.
            unsafe { make_ours(cond, cond_object) };
        }
        return ptr::null_mut();
    }
    if !mode.glibc() && cond_object.is_ours() {
        // SAFETY: as above; the caller holds the mutex.
        unsafe { make_glibc(cond, cond_object) };
    }
    if mode.counted() && mutex_object.kind() != Kind::Foreign && mutex_object.is_outermost() {
        stat::RECORDER.released(mutex_object.counted(true));
    }
    glibc.address()
}

/// Stands in for a wait of glibc's.
extern "C" fn refused<const ERROR: c_int>() -> c_int {
    ERROR
}

/// After a wait of glibc's, or one of ours that was refused.
pub(crate) unsafe extern "C" fn finish(mutex: *mut pthread_mutex_t, result: c_int) -> c_int {
    if mode::get().counted() {
        // SAFETY: the caller's mutex, which it holds if it waited.
        let object = unsafe { Mutex::at(mutex) };
        if !object.is_ours() && object.kind() != Kind::Foreign && object.is_outermost() {
            stat::RECORDER.acquired(object.counted(true));
        }
    }
    result
}

/// A condition variable of glibc's without waiters, or an unused one, becomes ours.
unsafe fn make_ours(cond: *mut pthread_cond_t, object: &Cond) {
    if object.is_unused() {
        object.init(false);
        return;
    }
    let monotonic = object.word(flags_offset()) & glibc_flag() != 0;
    // Waits until its last waiters have left it.
    // SAFETY: the caller's condition variable, which glibc has used.
    unsafe { real::pthread_cond_destroy(cond) };
    object.init(monotonic);
}

/// One of ours without waiters becomes glibc's.
unsafe fn make_glibc(cond: *mut pthread_cond_t, object: &Cond) {
    object.raw.drain();
    let monotonic = object.is_monotonic();
    object.clear();
    if monotonic {
        // SAFETY: the caller's memory.
        unsafe { init_monotonic(cond) };
    }
}

/// Initialises a condition variable of glibc's, with the monotonic clock.
unsafe fn init_monotonic(cond: *mut pthread_cond_t) {
    let mut attributes = MaybeUninit::<pthread_condattr_t>::uninit();
    // SAFETY: attributes of our own, and the caller's memory.
    unsafe {
        libc::pthread_condattr_init(attributes.as_mut_ptr());
        libc::pthread_condattr_setclock(attributes.as_mut_ptr(), libc::CLOCK_MONOTONIC);
        real::pthread_cond_init(cond, attributes.as_ptr());
        libc::pthread_condattr_destroy(attributes.as_mut_ptr());
    }
}

/// Where this glibc notes the clock, plus one, and how: found by looking at one that it has initialised.
static FLAGS: AtomicU32 = AtomicU32::new(0);
static FLAG: AtomicU32 = AtomicU32::new(0);

fn flags_offset() -> usize {
    if FLAGS.load(Acquire) == 0 {
        let mut sample = MaybeUninit::<pthread_cond_t>::zeroed();
        // SAFETY: memory of our own.
        unsafe { init_monotonic(sample.as_mut_ptr()) };
        // SAFETY: initialised just now.
        let object = unsafe { Cond::at(sample.as_mut_ptr()) };
        let offset = (0..size_of::<Cond>()).step_by(4).find(|&offset| object.word(offset) != 0);
        let offset = offset.unwrap_or(0);
        FLAG.store(object.word(offset), Relaxed);
        // Release: a thread that sees the place sees the flag.
        FLAGS.store(offset as u32 + 1, Release);
    }
    FLAGS.load(Relaxed) as usize - 1
}

fn glibc_flag() -> u32 {
    FLAG.load(Relaxed)
}

pub(crate) unsafe extern "C" fn wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's objects.
    unsafe { wait_until(cond, mutex, None) }
}

pub(crate) unsafe extern "C" fn timed_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's objects.
    let object = unsafe { Cond::at(cond) };
    let clock = if object.is_monotonic() { Clock::Monotonic } else { Clock::Realtime };
    // SAFETY: the caller's objects and time.
    unsafe { wait_on_clock(cond, mutex, clock, time) }
}

unsafe extern "C" fn clock_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    let Some(clock) = abi::clock(clock) else { return EINVAL };
    // SAFETY: the caller's objects and time.
    unsafe { wait_on_clock(cond, mutex, clock, time) }
}

unsafe fn wait_on_clock(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: Clock,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's time.
    match unsafe { abi::deadline(clock, time) } {
        // SAFETY: the caller's objects.
        Ok(deadline) => unsafe { wait_until(cond, mutex, Some(&deadline)) },
        Err(error) => error,
    }
}

/// A wait on a condition variable of ours under a mutex of ours.
unsafe fn wait_until(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Option<&Deadline>,
) -> c_int {
    // SAFETY: the caller's objects.
    let (cond, mutex) = unsafe { (Cond::at(cond), Mutex::at(mutex)) };
    let owner = match mutex.kind() {
        // The caller's, as `prepare` has seen.
        Kind::Recursive | Kind::ErrorCheck => mutex.owner.load(Relaxed),
        Kind::Plain | Kind::Foreign => 0,
    };
    // The caller holds the mutex, here and below.
    mutex.waiters.store(mutex.waiters.load(Relaxed).wrapping_add(1), Relaxed);
    let outcome = cond.raw.wait(&Held { mutex, owner }, deadline, may_cancel);
    mutex.waiters.store(mutex.waiters.load(Relaxed).wrapping_sub(1), Relaxed);
    match outcome {
        Outcome::Signalled => 0,
        Outcome::TimedOut => ETIMEDOUT,
        Outcome::Cancelled => CANCEL,
    }
}

/// Whether the calling thread acts on requests to cancel it.
fn may_cancel() -> bool {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }
    /// `PTHREAD_CANCEL_ENABLE`, `PTHREAD_CANCEL_DISABLE`.
    const ENABLE: c_int = 0;
    const DISABLE: c_int = 1;
    let mut state = DISABLE;
    // SAFETY: sets this thread's state and puts it back; neither is a cancellation point.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut state);
        if state == ENABLE {
            // Only when it was enabled, so that nothing changes otherwise.
            pthread_setcancelstate(ENABLE, ptr::null_mut());
        }
    }
    state == ENABLE
}

/// The program's mutex as the condition variable sees it.
struct Held<'a> {
    mutex: &'a Mutex,
    /// The owner's identity, for the kinds that check; else 0.
    owner: u32,
}

impl Held<'_> {
    /// A recursive mutex that its owner has locked more than once stays locked while it waits, as with glibc.
    fn stays_locked(&self) -> bool {
        self.owner != 0 && self.mutex.depth.load(Relaxed) > 1
    }

    /// The mutex was acquired.
    fn own(&self) {
        if self.owner != 0 {
            self.mutex.owner.store(self.owner, Relaxed);
            self.mutex.depth.store(1, Relaxed);
        }
        if mode::get().counted() {
            stat::RECORDER.acquired(self.mutex.counted(false));
        }
    }
}

impl Guarding<Linux> for Held<'_> {
    fn mutex(&self) -> Option<Target<'_, Linux>> {
        if self.stays_locked() { None } else { Some(self.mutex.target()) }
    }

    fn release(&self) {
        if self.stays_locked() {
            return;
        }
        if mode::get().counted() {
            stat::RECORDER.released(self.mutex.counted(false));
        }
        if self.owner != 0 {
            self.mutex.owner.store(0, Relaxed);
        }
        self.mutex.unlock();
    }

    fn acquire(&self) {
        // While it waited, no other thread could change `depth`.
        if self.owner != 0 && self.mutex.owner.load(Relaxed) == self.owner {
            return;
        }
        self.mutex.lock();
        self.own();
    }

    fn acquire_requeued(&self, waiter: Requeued) {
        self.mutex.acquire_requeued(waiter);
        self.own();
    }
}
