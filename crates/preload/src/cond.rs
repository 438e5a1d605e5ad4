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

use libc::{EINVAL, EPERM, ETIMEDOUT, clockid_t, pthread_condattr_t, pthread_t, timespec};
use poundlock_core::condvar::{Guarding, Outcome, Requeued, Target};
use poundlock_core::platform::{Clock, Deadline};
use poundlock_linux::{Linux, registry};
use poundlock_statfile::check::Wrong;

use crate::entry::{CANCEL, export, export_wait, with_call_site};
use crate::mode;
use crate::object::{Cond, Kind, Mutex};
use crate::stat::{self, CallSite, Ended, LockKind, LockRef, Manner, Wake};
use crate::{abi, block, check, real};

export_wait! {
    /// Waits for a signal.
    pthread_cond_wait(&Cond, &Mutex), prepare_wait, wait, finish
}
export_wait! {
    pthread_cond_timedwait(&Cond, &Mutex, &timespec),
    prepare_timed_wait, timed_wait, finish
}
export_wait! {
    pthread_cond_clockwait(&Cond, &Mutex, clockid_t, &timespec),
    prepare_clock_wait, clock_wait, finish
}

export! {
    pthread_cond_init(&Cond, Option<&pthread_condattr_t>) -> init;
    pthread_cond_destroy(&Cond) -> destroy;
}

extern "C" fn init(
    cond: &Cond,
    attributes: Option<&pthread_condattr_t>,
    address: usize,
    stack: usize,
) -> c_int {
    let result = init_uncounted(cond, attributes);
    if result == 0 && mode::get().counted() {
        let site = CallSite { pc: address, sp: stack };
        stat::created_at(ptr::from_ref(cond).addr(), LockKind::Condition, site);
    }
    result
}

fn init_uncounted(cond: &Cond, attributes: Option<&pthread_condattr_t>) -> c_int {
    let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
    let mut clock = libc::CLOCK_REALTIME;
    if let Some(attributes) = attributes {
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
    cond.init(clock == libc::CLOCK_MONOTONIC);
    0
}

pub(crate) extern "C" fn init_default(cond: &Cond, address: usize, stack: usize) -> c_int {
    init(cond, None, address, stack)
}

/// Under check: says so if it was destroyed or is none. Then it is one from here on.
#[cold]
#[inline(never)]
fn look_at(cond: &Cond, site: CallSite) {
    let address = ptr::from_ref(cond).addr();
    let (wrong, lock) = if let Some(word) = cond.buried() {
        (Wrong::Destroyed, LockRef { word, address, kind: LockKind::Condition, writers: None })
    } else if cond.is_none() {
        (Wrong::Uninitialised, counted(cond))
    } else {
        return;
    };
    stat::RECORDER.refused(lock, site, Some(wrong), false);
    cond.clear();
}

/// For the statistics.
fn counted(cond: &Cond) -> LockRef<'static> {
    stat::at(ptr::from_ref(cond).addr(), LockKind::Condition)
}

pub(crate) extern "C" fn destroy(cond: &Cond, pc: usize, sp: usize) -> c_int {
    if mode::get().counted() {
        let site = CallSite { pc, sp };
        if check::is_on() {
            look_at(cond, site);
        }
        let word = stat::destroyed_at(ptr::from_ref(cond).addr(), LockKind::Condition, site);
        if check::is_on() {
            let result = destroy_in_place(cond);
            cond.bury(word);
            return result;
        }
    }
    destroy_in_place(cond)
}

fn destroy_in_place(cond: &Cond) -> c_int {
    if mode::get().glibc() || !cond.is_ours() {
        // SAFETY: the caller's condition variable.
        return unsafe { real::pthread_cond_destroy(cond) };
    }
    cond.raw.drain();
    0
}

/// An unused one may be either's: glibc finds no waiter in it.
macro_rules! export_signals {
    ($($(#[$doc:meta])* $name:ident: $ours:ident, $whom:expr, $counted:ident $body:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(cond: &Cond) -> c_int {
            if mode::get().counted() {
                return $counted(cond);
            }
            $ours(cond)
        }

        with_call_site! {
            $counted(&Cond) -> $body;
        }

        pub(crate) extern "C" fn $body(cond: &Cond, pc: usize, sp: usize) -> c_int {
            if mode::get().counted() {
                let site = CallSite { pc, sp };
                if check::is_on() {
                    look_at(cond, site);
                }
                let traced = stat::RECORDER.wakes(counted(cond), $whom, site);
                let result = $ours(cond);
                if traced {
                    stat::RECORDER.call_ended();
                }
                return result;
            }
            $ours(cond)
        }

        #[inline(always)]
        fn $ours(cond: &Cond) -> c_int {
            if cond.is_ours() {
                cond.raw.$ours();
                return 0;
            }
            // SAFETY: the caller's condition variable.
            unsafe { real::$name(cond) }
        }
    )*};
}

export_signals! {
    pthread_cond_signal: signal, Wake::One, signal_counted signal_at;
    pthread_cond_broadcast: broadcast, Wake::All, broadcast_counted broadcast_at;
}

/// Asks a thread to end at its next cancellation point.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the caller's thread.
    let result = unsafe { real::pthread_cancel(thread) };
    if result == 0 {
        registry::cancel(thread as usize);
    }
    result
}

pub(crate) extern "C" fn prepare_wait(
    cond: &Cond,
    mutex: &Mutex,
    _: usize,
    _: usize,
    pc: usize,
    sp: usize,
) -> *mut c_void {
    prepare(cond, mutex, None, true, &real::COND_WAIT, CallSite { pc, sp })
}

pub(crate) extern "C" fn prepare_timed_wait(
    cond: &Cond,
    mutex: &Mutex,
    time: &timespec,
    _: usize,
    pc: usize,
    sp: usize,
) -> *mut c_void {
    prepare(cond, mutex, Some(time), true, &real::COND_TIMEDWAIT, CallSite { pc, sp })
}

extern "C" fn prepare_clock_wait(
    cond: &Cond,
    mutex: &Mutex,
    clock: clockid_t,
    time: &timespec,
    pc: usize,
    sp: usize,
) -> *mut c_void {
    let clock = abi::clock(clock).is_some();
    prepare(cond, mutex, Some(time), clock, &real::COND_CLOCKWAIT, CallSite { pc, sp })
}

/// Decides whose the condition variable is, and counts the release of the mutex if glibc will do it. The
/// thread is registered, so that a request to cancel it finds it. A wait of ours that is refused is no
/// cancellation point: then a stand-in for glibc's function returns the error.
fn prepare(
    cond: &Cond,
    mutex: &Mutex,
    time: Option<&timespec>,
    clock: bool,
    glibc: &'static real::Real,
    site: CallSite,
) -> *mut c_void {
    let mode = mode::get();
    if check::is_on() {
        look_at(cond, site);
    }
    if mutex.is_ours() {
        if !clock || time.is_some_and(abi::is_invalid) {
            return refused::<EINVAL> as *mut c_void;
        }
        if mutex.kind() != Kind::Plain && mutex.owner.load(Relaxed) != registry::identity() {
            return refused::<EPERM> as *mut c_void;
        }
        registry::register();
        if !cond.is_ours() {
            make_ours(cond);
        }
        return ptr::null_mut();
    }
    if !mode.glibc() && cond.is_ours() {
        make_glibc(cond);
    }
    if mode.counted() {
        stat::RECORDER.waits_with(counted(cond), of_glibc(mutex), site);
        if time.is_some() {
            timed();
        }
        if is_outermost(mutex) {
            stat::RECORDER.released(of_glibc(mutex), site);
        }
    }
    glibc.address()
}

extern "C" fn refused<const ERROR: c_int>() -> c_int {
    ERROR
}

/// One of glibc's for the statistics.
fn of_glibc(mutex: &Mutex) -> LockRef<'_> {
    if mutex.kind() == Kind::Foreign { mutex.counted_foreign() } else { mutex.counted(true) }
}

/// The wait that has begun ends by itself.
fn timed() {
    if check::is_on() {
        stat::RECORDER.wait_is_timed();
    }
}

/// Whether the caller, who has this mutex of glibc's, has it once.
fn is_outermost(mutex: &Mutex) -> bool {
    if mutex.kind() == Kind::Foreign { mutex.is_outermost_foreign() } else { mutex.is_outermost() }
}

/// After a wait of glibc's, or one of ours that was refused.
pub(crate) extern "C" fn finish(cond: &Cond, mutex: &Mutex, result: c_int, pc: usize) -> c_int {
    // The caller holds it if it waited.
    if mode::get().counted() && !mutex.is_ours() {
        let how = block::ended(result);
        stat::RECORDER.unblocked(how);
        if is_outermost(mutex) {
            stat::RECORDER.acquired(of_glibc(mutex), CallSite::at(pc), Manner::LOCK);
        }
        stat::RECORDER.woken_with(counted(cond), of_glibc(mutex), how);
    }
    result
}

/// A condition variable of glibc's without waiters, or an unused one, becomes ours. The caller holds the
/// mutex, here and below.
fn make_ours(cond: &Cond) {
    if cond.is_unused() {
        cond.init(false);
        return;
    }
    let monotonic = cond.word(flags_offset()) & glibc_flag() != 0;
    // Waits until its last waiters have left it.
    // SAFETY: the caller's condition variable, which glibc has used.
    unsafe { real::pthread_cond_destroy(cond) };
    cond.init(monotonic);
}

/// One of ours without waiters becomes glibc's.
fn make_glibc(cond: &Cond) {
    cond.raw.drain();
    let monotonic = cond.is_monotonic();
    cond.clear();
    if monotonic {
        init_monotonic(cond);
    }
}

fn init_monotonic(cond: &Cond) {
    let mut attributes = MaybeUninit::<pthread_condattr_t>::uninit();
    // SAFETY: attributes of our own, and memory for a condition variable.
    unsafe {
        libc::pthread_condattr_init(attributes.as_mut_ptr());
        libc::pthread_condattr_setclock(attributes.as_mut_ptr(), libc::CLOCK_MONOTONIC);
        real::pthread_cond_init(cond, Some(attributes.assume_init_ref()));
        libc::pthread_condattr_destroy(attributes.as_mut_ptr());
    }
}

/// Where this glibc notes the clock, plus one, and how: found by looking at one that it has initialised.
static FLAGS: AtomicU32 = AtomicU32::new(0);
static FLAG: AtomicU32 = AtomicU32::new(0);

fn flags_offset() -> usize {
    if FLAGS.load(Acquire) == 0 {
        // SAFETY: zero bytes are one, of atomics.
        let sample = unsafe { MaybeUninit::<Cond>::zeroed().assume_init() };
        init_monotonic(&sample);
        let offset = (0..size_of::<Cond>()).step_by(4).find(|&offset| sample.word(offset) != 0);
        let offset = offset.unwrap_or(0);
        FLAG.store(sample.word(offset), Relaxed);
        // Release: a thread that sees the place sees the flag.
        FLAGS.store(offset as u32 + 1, Release);
    }
    FLAGS.load(Relaxed) as usize - 1
}

fn glibc_flag() -> u32 {
    FLAG.load(Relaxed)
}

pub(crate) extern "C" fn wait(cond: &Cond, mutex: &Mutex, _: usize, _: usize, pc: usize, sp: usize) -> c_int {
    wait_until(cond, mutex, None, CallSite { pc, sp })
}

pub(crate) extern "C" fn timed_wait(
    cond: &Cond,
    mutex: &Mutex,
    time: &timespec,
    _: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    let clock = if cond.is_monotonic() { Clock::Monotonic } else { Clock::Realtime };
    wait_on_clock(cond, mutex, clock, time, CallSite { pc, sp })
}

extern "C" fn clock_wait(
    cond: &Cond,
    mutex: &Mutex,
    clock: clockid_t,
    time: &timespec,
    pc: usize,
    sp: usize,
) -> c_int {
    let Some(clock) = abi::clock(clock) else { return EINVAL };
    wait_on_clock(cond, mutex, clock, time, CallSite { pc, sp })
}

fn wait_on_clock(cond: &Cond, mutex: &Mutex, clock: Clock, time: &timespec, site: CallSite) -> c_int {
    match abi::deadline(clock, time) {
        Ok(deadline) => wait_until(cond, mutex, Some(&deadline), site),
        Err(error) => error,
    }
}

fn wait_until(cond: &Cond, mutex: &Mutex, deadline: Option<&Deadline>, site: CallSite) -> c_int {
    let owner = match mutex.kind() {
        // The caller's, as `prepare` has seen.
        Kind::Recursive | Kind::ErrorCheck => mutex.owner.load(Relaxed),
        Kind::Plain | Kind::Foreign => 0,
    };
    let statistics = mode::get().counted();
    if statistics {
        stat::RECORDER.waits_with(counted(cond), mutex.counted(false), site);
        if deadline.is_some() {
            timed();
        }
    }
    // The caller holds the mutex, here and below.
    mutex.waiters.store(mutex.waiters.load(Relaxed).wrapping_add(1), Relaxed);
    let outcome = cond.raw.wait(&Held { mutex, owner, site }, deadline, may_cancel);
    mutex.waiters.store(mutex.waiters.load(Relaxed).wrapping_sub(1), Relaxed);
    if statistics {
        let how = if matches!(outcome, Outcome::TimedOut) { Ended::TimedOut } else { Ended::Done };
        stat::RECORDER.unblocked(how);
        stat::RECORDER.woken_with(counted(cond), mutex.counted(false), how);
    }
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
    /// Where the wait was called.
    site: CallSite,
}

impl Held<'_> {
    /// A recursive mutex that its owner has locked more than once stays locked while it waits, as with glibc.
    fn stays_locked(&self) -> bool {
        self.owner != 0 && self.mutex.depth.load(Relaxed) > 1
    }

    fn own(&self) {
        if self.owner != 0 {
            self.mutex.owner.store(self.owner, Relaxed);
            self.mutex.depth.store(1, Relaxed);
        }
        if mode::get().counted() {
            stat::RECORDER.acquired(self.mutex.counted(false), self.site, Manner::LOCK);
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
            stat::RECORDER.released(self.mutex.counted(false), self.site);
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
