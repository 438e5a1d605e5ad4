//! `pthread_mutex_*`.

use core::ffi::c_int;
use core::hint::black_box;
use core::sync::atomic::Ordering::Relaxed;

use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, clockid_t, pthread_mutexattr_t, timespec};
use poundlock_core::platform::{Clock, Deadline};
use poundlock_core::poundlock::Contended;
use poundlock_linux::{registry, tls};

use crate::entry::{alias, export, with_call_site};
use crate::mode::{self, Chosen, Sort};
use crate::object::{Kind, Mutex};
use crate::stat::{self, CallSite, LockKind, Manner};
use crate::{abi, block, check, real};

/// What a lock call is willing to do if the mutex is held. A time may turn out to be invalid only if it is
/// needed.
pub(crate) type Patience = abi::Patience<Result<Deadline, c_int>>;

export! {
    pthread_mutex_timedlock(&Mutex, &timespec) -> timed_lock;
    pthread_mutex_clocklock(&Mutex, clockid_t, &timespec) -> clock_lock;
    pthread_mutex_init | __pthread_mutex_init(&Mutex, Option<&pthread_mutexattr_t>) -> init;
    pthread_mutex_destroy | __pthread_mutex_destroy(&Mutex) -> destroy;
}
// Names by which libraries of old reach the same functions.
alias! {
    __pthread_mutex_lock = pthread_mutex_lock(&Mutex);
    __pthread_mutex_trylock = pthread_mutex_trylock(&Mutex);
    __pthread_mutex_unlock = pthread_mutex_unlock(&Mutex);
}

poundlock_linux::cache_lines! {
    ".text.poundlock_lock"
    ".text.poundlock_try_lock"
    ".text.poundlock_unlock"
    ".text.poundlock_unlock_unbiased"
    ".text.poundlock_lock_owned"
    ".text.poundlock_unlock_owned"
    ".text.poundlock_lock_owned_any"
    ".text.poundlock_unlock_owned_any"
    ".text.poundlock_lock_unusual"
    ".text.poundlock_unlock_unusual"
    ".text.poundlock_try_lock_unusual"
    ".text.poundlock_lock_any"
    ".text.poundlock_unlock_any"
    ".text.poundlock_lock_other"
    ".text.poundlock_unlock_other"
}

// Each fast path is alone in its section, and what it does first fits cache lines: a lock in one, an unlock
// in two. The default lock in a process of several threads comes first and falls through; each step away from
// it is one jump. The three exported functions know of that case and of mutexes that know their owner; what
// is `unusual` may be any kind of mutex, in any mode.

#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poundlock_lock")]
pub(crate) extern "C" fn pthread_mutex_lock(object: &Mutex) -> c_int {
    if !mode::is_usual() {
        return lock_unusual(object);
    }
    if !object.is_default() {
        return lock_owned(object);
    }
    if object.poundlock().take_tagged(tls::area_tag) { 0 } else { lock_contended(object) }
}

#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poundlock_try_lock")]
pub(crate) extern "C" fn pthread_mutex_trylock(object: &Mutex) -> c_int {
    if !mode::is_usual() || !object.is_default() {
        return try_lock_unusual(object);
    }
    let lock = object.poundlock();
    if lock.is_locked() {
        return EBUSY;
    }
    if lock.take_tagged(tls::area_tag) { 0 } else { try_lock_contended() }
}

#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poundlock_unlock")]
pub(crate) extern "C" fn pthread_mutex_unlock(object: &Mutex) -> c_int {
    if !mode::is_usual() {
        return unlock_unusual(object);
    }
    if !object.is_default() {
        return unlock_owned(object);
    }
    if object.poundlock().unlock_biased() { 0 } else { unlock_unbiased(object) }
}

/// Of the default lock, and plain: a thread has slept in it, or there is no other way to release it.
#[inline(never)]
#[unsafe(link_section = ".text.poundlock_unlock_unbiased")]
extern "C" fn unlock_unbiased(object: &Mutex) -> c_int {
    match object.poundlock().unlock_unbiased() {
        Ok(()) => 0,
        Err(why) => unlock_contended(object, why),
    }
}

// Mutexes that know their owner.

/// Of the default lock, in the usual case, but not the default kind.
#[inline(never)]
#[unsafe(link_section = ".text.poundlock_lock_owned")]
extern "C" fn lock_owned(object: &Mutex) -> c_int {
    lock_by(object, || object.poundlock().take_tagged(tls::area_tag))
}

/// Of the default lock, but not the default kind.
#[inline(never)]
#[unsafe(link_section = ".text.poundlock_lock_owned_any")]
extern "C" fn lock_owned_any(object: &Mutex) -> c_int {
    lock_by(object, || object.poundlock().take())
}

/// Of the default lock, in the usual case, but not the default kind.
#[inline(never)]
#[unsafe(link_section = ".text.poundlock_unlock_owned")]
extern "C" fn unlock_owned(object: &Mutex) -> c_int {
    unlock_by(object, || if object.poundlock().unlock_biased() { 0 } else { unlock_unbiased(object) })
}

/// Of the default lock, but not the default kind.
#[inline(never)]
#[unsafe(link_section = ".text.poundlock_unlock_owned_any")]
extern "C" fn unlock_owned_any(object: &Mutex) -> c_int {
    unlock_by(object, || match object.poundlock().unlock_fast() {
        Ok(()) => 0,
        Err(why) => unlock_contended(object, why),
    })
}

#[inline(always)]
fn lock_by(object: &Mutex, take: impl FnOnce() -> bool) -> c_int {
    let own = registry::known_identity();
    let kind = object.kind();
    if own == 0 || !kind.has_owner() {
        return lock_slowly(object);
    }
    if object.owner.load(Relaxed) == own {
        let depth = object.depth.load(Relaxed);
        if kind != Kind::Recursive || depth == u32::MAX {
            return lock_slowly(object);
        }
        object.depth.store(depth + 1, Relaxed);
        return 0;
    }
    if !take() {
        return lock_owned_contended(object);
    }
    object.own(own);
    0
}

#[inline(always)]
fn unlock_by(object: &Mutex, release: impl FnOnce() -> c_int) -> c_int {
    let own = registry::known_identity();
    if own == 0 || object.owner.load(Relaxed) != own || !object.kind().has_owner() {
        return unlock_slowly(object);
    }
    let depth = object.depth.load(Relaxed);
    if depth > 1 {
        object.depth.store(depth - 1, Relaxed);
        return 0;
    }
    object.owner.store(0, Relaxed);
    release()
}

// Any kind of mutex in any mode. A process with one thread and the default lock comes first and falls
// through.

#[inline(never)]
#[unsafe(link_section = ".text.poundlock_lock_unusual")]
extern "C" fn lock_unusual(object: &Mutex) -> c_int {
    if mode::is_usual_alone() {
        if !object.is_default() {
            return lock_owned_any(object);
        }
        if object.poundlock().take_alone() {
            return 0;
        }
    }
    lock_any(object)
}

#[inline(never)]
#[unsafe(link_section = ".text.poundlock_unlock_unusual")]
extern "C" fn unlock_unusual(object: &Mutex) -> c_int {
    if mode::is_usual_alone() {
        if !object.is_default() {
            return unlock_owned_any(object);
        }
        if object.poundlock().unlock_alone() {
            return 0;
        }
    }
    unlock_any(object)
}

#[inline(never)]
#[unsafe(link_section = ".text.poundlock_try_lock_unusual")]
extern "C" fn try_lock_unusual(object: &Mutex) -> c_int {
    if mode::is_usual_alone() && object.is_default() && object.poundlock().take_alone() {
        return 0;
    }
    let acquired = match mode::fast() {
        Some(Sort::Poundlock) if object.is_plain() => object.poundlock().try_lock(),
        Some(Sort::Adaptive) if object.is_plain() => object.raw.try_lock(),
        Some(Sort::Handoff) if object.is_plain() => return try_lock_handoff(object),
        _ => return try_lock_slowly(object),
    };
    if acquired { 0 } else { EBUSY }
}

#[inline(never)]
#[unsafe(link_section = ".text.poundlock_lock_any")]
extern "C" fn lock_any(object: &Mutex) -> c_int {
    let plain = object.is_plain();
    match mode::fast() {
        Some(Sort::Poundlock) if !plain => lock_owned_any(object),
        Some(Sort::Poundlock) if object.poundlock().take() => 0,
        Some(Sort::Poundlock) => lock_contended(object),
        Some(Sort::Adaptive) if !plain => lock_owned_adaptive(object),
        Some(Sort::Adaptive) if object.raw.take() => 0,
        Some(Sort::Adaptive) => lock_adaptive(object),
        Some(Sort::Handoff) if !plain => lock_owned_handoff(object),
        Some(Sort::Handoff) if object.handoff().take() => 0,
        Some(Sort::Handoff) => lock_handoff(object),
        _ => lock_slowly(object),
    }
}

#[inline(never)]
#[unsafe(link_section = ".text.poundlock_unlock_any")]
extern "C" fn unlock_any(object: &Mutex) -> c_int {
    let plain = object.is_plain();
    match mode::fast() {
        Some(Sort::Poundlock) if !plain => unlock_owned_any(object),
        Some(Sort::Poundlock) => match object.poundlock().unlock_fast() {
            Ok(()) => 0,
            Err(why) => unlock_contended(object, why),
        },
        Some(Sort::Adaptive) if !plain => unlock_owned_adaptive(object),
        Some(Sort::Adaptive) if object.raw.unlock_fast() => 0,
        Some(Sort::Adaptive) => unlock_adaptive(object),
        Some(Sort::Handoff) if !plain => unlock_owned_handoff(object),
        Some(Sort::Handoff) if object.handoff().unlock_fast() => 0,
        Some(Sort::Handoff) => unlock_handoff(object),
        _ => unlock_slowly(object),
    }
}

#[inline(never)]
extern "C" fn lock_owned_adaptive(object: &Mutex) -> c_int {
    lock_by(object, || object.raw.take())
}

#[inline(never)]
extern "C" fn lock_owned_handoff(object: &Mutex) -> c_int {
    lock_by(object, || object.handoff().take())
}

#[inline(never)]
extern "C" fn unlock_owned_adaptive(object: &Mutex) -> c_int {
    unlock_by(object, || if object.raw.unlock_fast() { 0 } else { unlock_adaptive(object) })
}

#[inline(never)]
extern "C" fn unlock_owned_handoff(object: &Mutex) -> c_int {
    unlock_by(object, || if object.handoff().unlock_fast() { 0 } else { unlock_handoff(object) })
}

pub(crate) extern "C" fn destroy(object: &Mutex, address: usize, stack: usize) -> c_int {
    let site = CallSite { pc: address, sp: stack };
    let mode = mode::get();
    let foreign = (object.kind() == Kind::Foreign).then(|| object.foreign_kind());
    if check::is_on() && !look_at(object, site) && foreign.is_none() {
        // So that it has a place in the table if nobody has used it: then its end is seen.
        stat::RECORDER.meets(object.counted(mode.glibc()));
    }
    let result = if object.is_ours() {
        // As glibc, which counts its holder and the waiters on condition variables with it as users.
        if object.is_locked() || object.waiters.load(Relaxed) != 0 {
            if check::is_on() {
                stat::RECORDER.not_destroyed(object.counted(false), site);
            }
            return EBUSY;
        }
        object.destroy();
        0
    } else {
        // SAFETY: the caller's mutex, which glibc initialised.
        unsafe { real::pthread_mutex_destroy(object) }
    };
    if result == EBUSY && check::is_on() && foreign.is_none() {
        stat::RECORDER.not_destroyed(object.counted(mode.glibc()), site);
    }
    if mode.counted() && result == 0 {
        match foreign {
            Some(kind) => {
                stat::destroyed_at(core::ptr::from_ref(object).addr(), kind, site);
            }
            None => stat::RECORDER.destroyed(object.counted(mode.glibc()), site),
        }
    } else if result == EBUSY && foreign.is_none() && check::is_on() {
        stat::RECORDER.not_destroyed(object.counted(mode.glibc()), site);
    }
    result
}

// What the fast paths go on with by a jump, so that they need no stack frame, and the caller's place is
// found. A result that the compiler knows would make a call of the jump; so would a function that may unwind,
// as those of C may not.

#[cold]
#[inline(never)]
extern "C" fn lock_contended(object: &Mutex) -> c_int {
    object.poundlock().lock_contended();
    black_box(0)
}

#[cold]
#[inline(never)]
fn try_lock_contended() -> c_int {
    black_box(EBUSY)
}

#[cold]
#[inline(never)]
extern "C" fn lock_adaptive(object: &Mutex) -> c_int {
    object.raw.lock_contended::<Chosen>();
    black_box(0)
}

#[cold]
#[inline(never)]
extern "C" fn lock_handoff(object: &Mutex) -> c_int {
    object.handoff().lock_contended::<Chosen>();
    black_box(0)
}

#[cold]
#[inline(never)]
extern "C" fn lock_owned_contended(object: &Mutex) -> c_int {
    match mode::sort() {
        Sort::Poundlock => object.poundlock().lock_contended(),
        Sort::Handoff => object.handoff().lock_contended::<Chosen>(),
        Sort::Adaptive | Sort::Glibc => object.raw.lock_contended::<Chosen>(),
    }
    object.own(registry::identity());
    black_box(0)
}

#[cold]
#[inline(never)]
extern "C" fn unlock_handoff(object: &Mutex) -> c_int {
    object.handoff().unlock_contended();
    black_box(0)
}

#[cold]
#[inline(never)]
fn unlock_contended(object: &Mutex, why: Contended) -> c_int {
    object.poundlock().unlock_contended(why);
    black_box(0)
}

#[cold]
#[inline(never)]
extern "C" fn unlock_adaptive(object: &Mutex) -> c_int {
    object.raw.unlock_contended::<Chosen>();
    black_box(0)
}

/// Apart: it needs a stack frame.
#[inline(never)]
extern "C" fn try_lock_handoff(object: &Mutex) -> c_int {
    if object.handoff().try_lock() { 0 } else { EBUSY }
}

with_call_site! {
    lock_slowly(&Mutex) -> lock_other;
    try_lock_slowly(&Mutex) -> try_lock_other;
    unlock_slowly(&Mutex) -> unlock_other;
}

/// Any mutex, after the fast paths. A plain one of ours that is counted goes without a stack frame.
#[unsafe(link_section = ".text.poundlock_lock_other")]
extern "C" fn lock_other(object: &Mutex, address: usize, stack: usize) -> c_int {
    if mode::counted_sort() != Some(Sort::Poundlock) || !object.is_plain() {
        return lock_whatever(object, address, stack);
    }
    let counted = object.counted(false);
    let place = stat::RECORDER.place(counted);
    if !object.poundlock().take() {
        return lock_whatever(object, address, stack);
    }
    if stat::RECORDER.acquired_at(place, counted, address) {
        0
    } else {
        count_acquired(object, address, stack)
    }
}

#[inline(never)]
extern "C" fn count_acquired(object: &Mutex, address: usize, stack: usize) -> c_int {
    if object.wrong(false).is_some() {
        look_at(object, CallSite { pc: address, sp: stack });
    }
    stat::RECORDER.acquired(object.counted(false), CallSite { pc: address, sp: stack }, Manner::LOCK);
    black_box(0)
}

#[inline(never)]
extern "C" fn lock_whatever(object: &Mutex, address: usize, stack: usize) -> c_int {
    let site = CallSite { pc: address, sp: stack };
    let checked = if object.is_plain() { mode::checked_sort() } else { None };
    if checked == Some(Sort::Poundlock) && object.poundlock().take() {
        stat::RECORDER.acquired_checked(object.counted(false), site, Manner::LOCK);
        return 0;
    }
    // SAFETY: the caller's mutex.
    let take = || unsafe { real::pthread_mutex_trylock(object) } == 0;
    if checked == Some(Sort::Glibc) && object.wrong(true).is_none() && take() {
        stat::RECORDER.acquired_checked(object.counted(true), site, Manner::LOCK);
        return 0;
    }
    if mode::fast().is_some() && object.is_native() {
        return acquire_ours(object, Patience::Forever);
    }
    if object.is_plain() {
        if mode::counted_sort() == Some(Sort::Glibc) {
            let counted = object.counted(true);
            let place = stat::RECORDER.place(counted);
            // SAFETY: the caller's mutex.
            if unsafe { real::pthread_mutex_trylock(object) } == 0 {
                if !stat::RECORDER.acquired_at(place, counted, address) {
                    stat::RECORDER.acquired(counted, site, Manner::LOCK);
                }
                return 0;
            }
            // To try once more would only take the lock's cache line from who holds it.
            let acquire = |patience| glibc_lock(object, patience);
            return stat::acquire_busy(counted, site, Manner::LOCK, Patience::Forever, acquire);
        }
    } else if object.is_native() && mode::counted_sort() == Some(Sort::Poundlock) {
        let own = registry::known_identity();
        if own != 0
            && object.kind().has_owner()
            && object.owner.load(Relaxed) != own
            && object.poundlock().take()
        {
            object.own(own);
            stat::RECORDER.acquired(object.counted(false), site, Manner::LOCK);
            return 0;
        }
    }
    lock_checked(object, Patience::Forever, site)
}

extern "C" fn try_lock_other(object: &Mutex, address: usize, stack: usize) -> c_int {
    if mode::fast().is_some() && object.is_native() {
        return acquire_ours(object, Patience::None);
    }
    lock_checked(object, Patience::None, CallSite { pc: address, sp: stack })
}

pub(crate) extern "C" fn timed_lock(object: &Mutex, time: &timespec, address: usize, stack: usize) -> c_int {
    clock_lock(object, libc::CLOCK_REALTIME, time, address, stack)
}

extern "C" fn clock_lock(
    object: &Mutex,
    clock: clockid_t,
    time: &timespec,
    address: usize,
    stack: usize,
) -> c_int {
    if !mode::get().counted() && !object.is_ours() {
        // Nothing to count and not ours: glibc also judges the clock. SAFETY: the caller's mutex and time.
        return unsafe { real::pthread_mutex_clocklock(object, clock, time) };
    }
    let Some(clock) = abi::clock(clock) else { return EINVAL };
    let patience = Patience::Until(abi::deadline(clock, time));
    lock_checked(object, patience, CallSite { pc: address, sp: stack })
}

extern "C" fn init(
    object: &Mutex,
    attributes: Option<&pthread_mutexattr_t>,
    address: usize,
    stack: usize,
) -> c_int {
    let mode = mode::get();
    if attributes.is_none() && !mode.glibc() {
        object.init(false);
    } else {
        // glibc judges the attributes and sets the kind; the rest of what it sets is zero.
        // SAFETY: the caller's memory and attributes.
        let result = unsafe { real::pthread_mutex_init(object, attributes) };
        if result != 0 {
            return result;
        }
        if !mode.glibc() {
            object.simplify();
        }
    }
    if mode.counted() && !block::is_ours(address) {
        let site = CallSite { pc: address, sp: stack };
        if object.kind() == Kind::Foreign {
            stat::created_at(core::ptr::from_ref(object).addr(), object.foreign_kind(), site);
        } else {
            stat::RECORDER.created(object.counted(mode.glibc()), site);
        }
    }
    0
}

/// Under check: says so if it is none. Whether its kind is none that the calls would take for one of ours.
#[cold]
#[inline(never)]
fn look_at(object: &Mutex, site: CallSite) -> bool {
    let glibc = mode::get().glibc();
    let wrong = object.wrong(glibc);
    if wrong.is_some() {
        stat::RECORDER.refused(object.counted(glibc), site, wrong, false);
    }
    wrong.is_some() && object.kind() == Kind::Foreign
}

/// Any kind of mutex, in any mode.
#[cold]
#[inline(never)]
pub(crate) fn lock_checked(object: &Mutex, patience: Patience, site: CallSite) -> c_int {
    let mode = mode::get();
    if check::is_on() && look_at(object, site) {
        return glibc_lock(object, patience);
    }
    let kind = object.kind();
    let manner = Manner { allows: object.allows_relock(), ..Manner::LOCK };
    if kind == Kind::Foreign {
        if !mode.counted() || block::is_ours(site.pc) {
            return glibc_lock(object, patience);
        }
        return stat::acquire(
            object.counted_foreign(),
            site,
            manner,
            patience,
            || object.is_outermost_foreign(),
            |asked| match asked {
                // A try leaves a robust mutex that is not to be recovered locked: only who asks for one gets
                // it.
                Patience::None if object.foreign_kind() == LockKind::RobustMutex => {
                    if object.would_wait() && !matches!(patience, Patience::None) {
                        EBUSY
                    } else {
                        glibc_lock(object, patience)
                    }
                }
                _ => glibc_lock(object, asked),
            },
        );
    }
    if !mode.counted() {
        return acquire(object, mode.glibc(), patience);
    }
    let counted = object.counted(mode.glibc());
    stat::acquire(
        counted,
        site,
        manner,
        patience,
        || object.is_outermost(),
        |patience| acquire(object, mode.glibc(), patience),
    )
}

/// Acquires a mutex that is not foreign, on our lock or on glibc's.
fn acquire(object: &Mutex, glibc: bool, patience: Patience) -> c_int {
    if glibc { glibc_lock(object, patience) } else { acquire_ours(object, patience) }
}

/// Acquires a mutex that is not foreign, on our lock.
#[inline]
fn acquire_ours(object: &Mutex, patience: Patience) -> c_int {
    let kind = object.kind();
    if kind == Kind::Plain {
        return raw_lock(object, patience);
    }
    let own = registry::identity();
    if object.owner.load(Relaxed) == own {
        if kind == Kind::ErrorCheck {
            return if matches!(patience, Patience::None) { EBUSY } else { EDEADLK };
        }
        let depth = object.depth.load(Relaxed);
        if depth == u32::MAX {
            return EAGAIN;
        }
        object.depth.store(depth + 1, Relaxed);
        return 0;
    }
    let result = raw_lock(object, patience);
    if result == 0 {
        object.own(own);
    }
    result
}

fn raw_lock(object: &Mutex, patience: Patience) -> c_int {
    match patience {
        Patience::Forever => {
            object.lock();
            0
        }
        _ if object.try_lock() => 0,
        Patience::None => EBUSY,
        Patience::Until(Err(invalid)) => invalid,
        Patience::Until(Ok(deadline)) if object.lock_until(&deadline) => 0,
        Patience::Until(Ok(_)) => ETIMEDOUT,
    }
}

fn glibc_lock(object: &Mutex, patience: Patience) -> c_int {
    // SAFETY: the caller's mutex, in all four.
    unsafe {
        match patience {
            Patience::None => real::pthread_mutex_trylock(object),
            Patience::Forever => real::pthread_mutex_lock(object),
            Patience::Until(Err(_)) => {
                // Let glibc judge it, if it comes to that.
                let never = timespec { tv_sec: 0, tv_nsec: -1 };
                real::pthread_mutex_timedlock(object, &never)
            }
            Patience::Until(Ok(deadline)) => {
                let time = timespec { tv_sec: deadline.seconds, tv_nsec: i64::from(deadline.nanoseconds) };
                match deadline.clock {
                    Clock::Realtime => real::pthread_mutex_timedlock(object, &time),
                    Clock::Monotonic => real::pthread_mutex_clocklock(object, libc::CLOCK_MONOTONIC, &time),
                }
            }
        }
    }
}

/// Any mutex, after the fast paths. A plain one of ours that is counted goes without a stack frame.
#[unsafe(link_section = ".text.poundlock_unlock_other")]
extern "C" fn unlock_other(object: &Mutex, address: usize, stack: usize) -> c_int {
    if mode::counted_sort() == Some(Sort::Poundlock)
        && object.is_plain()
        && stat::RECORDER.released_at_once(object.counted(false))
    {
        return match object.poundlock().unlock_fast() {
            Ok(()) => 0,
            Err(why) => unlock_contended(object, why),
        };
    }
    unlock_whatever(object, address, stack)
}

#[inline(never)]
extern "C" fn unlock_whatever(object: &Mutex, address: usize, stack: usize) -> c_int {
    let site = CallSite { pc: address, sp: stack };
    let checked = if object.is_plain() { mode::checked_sort() } else { None };
    if checked == Some(Sort::Poundlock) && object.poundlock().is_locked() {
        stat::RECORDER.released_checked(object.counted(false), site);
        return match object.poundlock().unlock_fast() {
            Ok(()) => 0,
            Err(why) => unlock_contended(object, why),
        };
    }
    if checked == Some(Sort::Glibc) && object.wrong(true).is_none() && object.is_glibc_locked() {
        stat::RECORDER.released_checked(object.counted(true), site);
        // SAFETY: the caller's mutex.
        return unsafe { real::pthread_mutex_unlock(object) };
    }
    unlock_any_checked(object, site)
}

#[inline(never)]
fn unlock_any_checked(object: &Mutex, site: CallSite) -> c_int {
    unlock_checked(object, site)
}

/// Any kind of mutex, in any mode.
#[inline(always)]
pub(crate) fn unlock_checked(object: &Mutex, site: CallSite) -> c_int {
    if mode::fast().is_some() && object.is_native() {
        if let Some(result) = disown(object) {
            return result;
        }
        object.unlock();
        return 0;
    }
    let mode = mode::get();
    let none = check::is_on() && look_at(object, site);
    if object.kind() == Kind::Foreign {
        if !none && mode.counted() && !block::is_ours(site.pc) && object.is_outermost_foreign() {
            stat::RECORDER.released(object.counted_foreign(), site);
        }
        // SAFETY: the caller's mutex.
        return unsafe { real::pthread_mutex_unlock(object) };
    }
    if check::is_on()
        && let Some(result) = unlock_unheld(object, mode, site)
    {
        return result;
    }
    if mode.glibc() {
        let traced = count_release(object, mode, site);
        // SAFETY: the caller's mutex.
        let result = unsafe { real::pthread_mutex_unlock(object) };
        if traced {
            stat::RECORDER.call_ended();
        }
        return result;
    }
    if let Some(result) = disown(object) {
        return result;
    }
    let traced = count_release(object, mode, site);
    object.unlock();
    if traced {
        stat::RECORDER.call_ended();
    }
    0
}

/// Under check: looks whether a mutex is released that is free, or by a thread of which the mutex knows that
/// it does not have it. What the unlock returns if it has no more to do.
#[cold]
fn unlock_unheld(object: &Mutex, mode: mode::Mode, site: CallSite) -> Option<c_int> {
    let counted = object.counted(mode.glibc());
    if if mode.glibc() { object.is_glibc_locked() } else { object.is_locked() } {
        if object.kind() != Kind::Plain && !object.is_callers(mode.glibc()) {
            stat::RECORDER.not_released(counted, site);
            return Some(EPERM);
        }
        return None;
    }
    stat::RECORDER.released_free(counted, site);
    // There is nothing to release. As glibc's results.
    Some(if object.kind() == Kind::Plain { 0 } else { EPERM })
}

/// Gives up a mutex of ours that knows its owner, once. What the unlock returns if that does not release it:
/// 0 if it is locked more than once, `EPERM` if the caller is not the owner.
#[inline]
fn disown(object: &Mutex) -> Option<c_int> {
    if object.kind() == Kind::Plain {
        return None;
    }
    if object.owner.load(Relaxed) != registry::identity() {
        return Some(EPERM);
    }
    let depth = object.depth.load(Relaxed);
    if depth > 1 {
        object.depth.store(depth - 1, Relaxed);
        return Some(0);
    }
    object.owner.store(0, Relaxed);
    None
}

/// Before the release: afterwards the object may be gone, or another's. Whether its end is to be told, too.
#[inline]
fn count_release(object: &Mutex, mode: mode::Mode, site: CallSite) -> bool {
    mode.counted() && object.is_outermost() && stat::RECORDER.released(object.counted(mode.glibc()), site)
}
