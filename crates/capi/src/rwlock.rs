//! The readers-writer lock.

use core::ffi::c_int;

use libc::{EBUSY, EINVAL, clockid_t, timespec};
use poundlock_core::rwlock::{Preference, RawRwLock};
use poundlock_linux::Linux;

use crate::seen::{self, Call, Kind, Lock, TIMED, seen};
use crate::time;

/// Readers and writers in turn: no thread waits for more than one phase of the others. After Brandenburg and
/// Anderson's phase-fair locks (Real-Time Systems, 2010).
pub const POUNDLOCK_RWLOCK_PHASE_FAIR: u32 = 0;
/// Readers enter whenever no writer is inside, so that one may enter again while it is inside. Writers may
/// wait for ever.
pub const POUNDLOCK_RWLOCK_READER_PREFERRING: u32 = 1;
/// No reader enters while a writer waits. Readers may wait for ever.
pub const POUNDLOCK_RWLOCK_WRITER_PREFERRING: u32 = 2;

/// A readers-writer lock: 36 bytes. Unlocked and phase-fair when they are zero
/// (`POUNDLOCK_RWLOCK_INITIALIZER`); there is an initialiser for each of the other policies.
///
/// In the manner of Linux's queue rwlock (Waiman Long, 2014): newcomers enter by one word if nothing is
/// against it. The others queue; only the head of the queue tries. Waiters spin for a while and then sleep.
/// Beside readers and writers there is the upgradable reader, one at a time: it reads beside other readers,
/// and can become the writer with no other writer in between.
///
/// A thread that is inside and enters again may wait for ever, except as a reader of a reader-preferring
/// lock. Not process-shared.
///
/// Entering as a writer, or becoming one, synchronises with all releases before; entering as a reader with
/// the last writer's. The functions are async-signal-safe, except that a handler may not enter a lock that
/// the interrupted thread is inside of, or is about to enter or leave.
#[repr(C)]
pub struct poundlock_rwlock_t {
    /// Private.
    _words: [u32; 8],
    /// Private.
    _policy: u32,
}

const _: () = assert!(size_of::<poundlock_rwlock_t>() == size_of::<RawRwLock<Linux>>() + size_of::<u32>());
const _: () = assert!(align_of::<poundlock_rwlock_t>() == align_of::<RawRwLock<Linux>>());

/// The lock in it.
///
/// # Safety
/// It points to a lock of C's, for as long as the result is used.
#[inline(always)]
unsafe fn raw<'a>(lock: *mut poundlock_rwlock_t) -> &'a RawRwLock<Linux> {
    // SAFETY: the caller's; the lock is the first member, words of the same number and alignment, of which
    // any bytes are values.
    unsafe { &*lock.cast() }
}

/// Its policy; that of zero bytes if it is unknown.
///
/// # Safety
/// As [`raw`].
#[inline(always)]
unsafe fn policy(lock: *mut poundlock_rwlock_t) -> Preference {
    // SAFETY: the caller's; nobody changes the word while the lock is in use.
    match unsafe { (*lock)._policy } {
        POUNDLOCK_RWLOCK_READER_PREFERRING => Preference::ReaderPreferring,
        POUNDLOCK_RWLOCK_WRITER_PREFERRING => Preference::WriterPreferring,
        _ => Preference::PhaseFair,
    }
}

type Object = *mut poundlock_rwlock_t;

/// By a reader, who waits as the policy says.
///
/// # Safety
/// As [`raw`].
unsafe fn reader(lock: Object) -> Lock {
    // SAFETY: the caller's.
    let kind = match unsafe { policy(lock) } {
        Preference::ReaderPreferring => Kind::Reader,
        Preference::PhaseFair | Preference::WriterPreferring => Kind::FairReader,
    };
    Lock::at(kind, lock.addr())
}

/// By the upgradable reader, or one who has been it.
fn upgradable(lock: Object) -> Lock {
    Lock::at(Kind::Reader, lock.addr())
}

fn writer(lock: Object) -> Lock {
    Lock::at(Kind::Writer, lock.addr())
}

seen! {
    init_seen(Object, u32) -> 2, init_at;
    destroy_seen(Object) -> 1, destroy_at;
    rdlock_seen(Object) -> 1, rdlock_at;
    tryrdlock_seen(Object) -> 1, tryrdlock_at;
    clockrdlock_seen(Object, clockid_t, *const timespec) -> 3, clockrdlock_at;
    rdunlock_seen(Object) -> 1, rdunlock_at;
    wrlock_seen(Object) -> 1, wrlock_at;
    trywrlock_seen(Object) -> 1, trywrlock_at;
    clockwrlock_seen(Object, clockid_t, *const timespec) -> 3, clockwrlock_at;
    wrunlock_seen(Object) -> 1, wrunlock_at;
    downgrade_seen(Object) -> 1, downgrade_at;
    downgrade_to_up_seen(Object) -> 1, downgrade_to_up_at;
    uplock_seen(Object) -> 1, uplock_at;
    tryuplock_seen(Object) -> 1, tryuplock_at;
    clockuplock_seen(Object, clockid_t, *const timespec) -> 3, clockuplock_at;
    upunlock_seen(Object) -> 1, upunlock_at;
    upgrade_seen(Object) -> 1, upgrade_at;
    tryupgrade_seen(Object) -> 1, tryupgrade_at;
    clockupgrade_seen(Object, clockid_t, *const timespec) -> 3, clockupgrade_at;
}

fn tried(entered: bool) -> c_int {
    if entered { 0 } else { EBUSY }
}

/// Makes it an unlocked lock with a policy, `POUNDLOCK_RWLOCK_PHASE_FAIR` or one of the others, whatever
/// it was. Needed only where neither an initialiser nor zero bytes are at hand.
///
/// Returns 0, or `EINVAL` if there is no such policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_init(lock: *mut poundlock_rwlock_t, policy: u32) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { init_seen(lock, policy) };
    }
    // SAFETY: the caller's memory.
    unsafe { init(lock, policy) }
}

unsafe extern "C" fn init_at(lock: Object, policy: u32, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's memory.
    let result = unsafe { init(lock, policy) };
    if result == 0 {
        seen::made(Call::at(pc, sp), writer(lock));
    }
    result
}

/// # Safety
/// Memory for a lock.
unsafe fn init(lock: Object, policy: u32) -> c_int {
    if policy > POUNDLOCK_RWLOCK_WRITER_PREFERRING {
        return EINVAL;
    }
    // SAFETY: the caller's memory.
    unsafe { lock.write(poundlock_rwlock_t { _words: [0; 8], _policy: policy }) };
    // SAFETY: it is a lock now.
    unsafe { raw(lock) }.forget_readers();
    0
}

/// The end of a lock. Optional: there is nothing to give back.
///
/// Returns 0, or `EBUSY` if a thread is inside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_destroy(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { destroy_seen(lock) };
    }
    // SAFETY: the caller's lock.
    if unsafe { raw(lock) }.is_locked() { EBUSY } else { 0 }
}

unsafe extern "C" fn destroy_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let is_locked = unsafe { raw(lock) }.is_locked();
    seen::ends(Call::at(pc, sp), writer(lock), is_locked);
    if is_locked { EBUSY } else { 0 }
}

/// Enters as a reader, waiting as long as that takes.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_rdlock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { rdlock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    if !unsafe { raw(lock) }.take_read() {
        // SAFETY: the caller's lock.
        unsafe { wait_to_read(lock) };
    }
    0
}

unsafe extern "C" fn rdlock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, policy, entered) = unsafe { (raw(lock), policy(lock), reader(lock)) };
    let wait = || {
        raw.lock_read(policy);
        true
    };
    seen::acquire(Call::at(pc, sp), entered, || raw.try_lock_read(policy), wait);
    0
}

/// The policy matters only to threads that wait.
///
/// # Safety
/// As [`raw`].
#[cold]
#[inline(never)]
unsafe fn wait_to_read(lock: *mut poundlock_rwlock_t) {
    // SAFETY: the caller's.
    unsafe { raw(lock).lock_read(policy(lock)) }
}

/// Enters as a reader if it need not wait.
///
/// Returns 0; `EBUSY` if a writer is inside, or, by the policy, comes first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_tryrdlock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { tryrdlock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    tried(unsafe { raw(lock).try_lock_read(policy(lock)) })
}

unsafe extern "C" fn tryrdlock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, policy, entered) = unsafe { (raw(lock), policy(lock), reader(lock)) };
    tried(seen::tried(Call::at(pc, sp), entered, raw.try_lock_read(policy)))
}

/// Enters as a reader, waiting until a time of `clock` at most, which is `CLOCK_MONOTONIC` or
/// `CLOCK_REALTIME`. A thread that need not wait enters whatever the time.
///
/// Returns 0; `ETIMEDOUT` if the time has passed; `EINVAL` for another clock, or nanoseconds that are not
/// below 1,000,000,000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_clockrdlock(
    lock: *mut poundlock_rwlock_t,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { clockrdlock_seen(lock, clock, abstime) };
    }
    // SAFETY: the caller's time, and lock.
    unsafe { time::until(clock, abstime, |deadline| raw(lock).lock_read_until(policy(lock), deadline)) }
}

unsafe extern "C" fn clockrdlock_at(
    lock: Object,
    clock: clockid_t,
    abstime: *const timespec,
    pc: usize,
    sp: usize,
) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, policy, entered) = unsafe { (raw(lock), policy(lock), reader(lock)) };
    let wait = |deadline: &_| raw.lock_read_until(policy, deadline);
    // SAFETY: the caller's time.
    unsafe {
        seen::acquire_until(Call::at(pc, sp), entered, (clock, abstime), || raw.try_lock_read(policy), wait)
    }
}

/// Leaves; the calling thread is a reader. Another thread may free the memory as soon as it can enter as a
/// writer.
///
/// Returns 0. The caller is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_rdunlock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { rdunlock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    unsafe { raw(lock) }.unlock_read();
    0
}

unsafe extern "C" fn rdunlock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, left) = unsafe { (raw(lock), reader(lock)) };
    let is_locked = raw.is_locked();
    seen::releases(Call::at(pc, sp), left, is_locked);
    if is_locked {
        raw.unlock_read();
    }
    0
}

/// Enters as the writer, waiting as long as that takes.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_wrlock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { wrlock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    if !unsafe { raw(lock) }.take_write() {
        // SAFETY: the caller's lock.
        unsafe { wait_to_write(lock) };
    }
    0
}

unsafe extern "C" fn wrlock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, policy, entered) = unsafe { (raw(lock), policy(lock), writer(lock)) };
    let wait = || {
        raw.lock_write(policy);
        true
    };
    seen::acquire(Call::at(pc, sp), entered, || raw.try_lock_write(), wait);
    0
}

/// As [`wait_to_read`].
///
/// # Safety
/// As [`raw`].
#[cold]
#[inline(never)]
unsafe fn wait_to_write(lock: *mut poundlock_rwlock_t) {
    // SAFETY: the caller's.
    unsafe { raw(lock).lock_write(policy(lock)) }
}

/// Enters as the writer if it need not wait.
///
/// Returns 0, or `EBUSY` if a thread is inside, or comes first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_trywrlock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { trywrlock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    tried(unsafe { raw(lock) }.try_lock_write())
}

unsafe extern "C" fn trywrlock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, entered) = unsafe { (raw(lock), writer(lock)) };
    tried(seen::tried(Call::at(pc, sp), entered, raw.try_lock_write()))
}

/// Enters as the writer, waiting until a time of `clock` at most, which is `CLOCK_MONOTONIC` or
/// `CLOCK_REALTIME`. A thread that need not wait enters whatever the time.
///
/// Returns 0; `ETIMEDOUT` if the time has passed; `EINVAL` for another clock, or nanoseconds that are not
/// below 1,000,000,000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_clockwrlock(
    lock: *mut poundlock_rwlock_t,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { clockwrlock_seen(lock, clock, abstime) };
    }
    // SAFETY: the caller's time, and lock.
    unsafe { time::until(clock, abstime, |deadline| raw(lock).lock_write_until(policy(lock), deadline)) }
}

unsafe extern "C" fn clockwrlock_at(
    lock: Object,
    clock: clockid_t,
    abstime: *const timespec,
    pc: usize,
    sp: usize,
) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, policy, entered) = unsafe { (raw(lock), policy(lock), writer(lock)) };
    let wait = |deadline: &_| raw.lock_write_until(policy, deadline);
    // SAFETY: the caller's time.
    unsafe { seen::acquire_until(Call::at(pc, sp), entered, (clock, abstime), || raw.try_lock_write(), wait) }
}

/// Leaves; the calling thread is the writer. Another thread may free the memory as soon as it can enter as a
/// writer.
///
/// Returns 0. The caller is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_wrunlock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { wrunlock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    unsafe { raw(lock) }.unlock_write();
    0
}

unsafe extern "C" fn wrunlock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, left) = unsafe { (raw(lock), writer(lock)) };
    let is_locked = raw.is_locked();
    seen::releases(Call::at(pc, sp), left, is_locked);
    if is_locked {
        raw.unlock_write();
    }
    0
}

/// From the writer to a reader, with no other writer in between. Does not wait.
///
/// Returns 0. The caller is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_downgrade(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { downgrade_seen(lock) };
    }
    // SAFETY: the caller's lock.
    unsafe { raw(lock) }.downgrade();
    0
}

unsafe extern "C" fn downgrade_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, before, after) = unsafe { (raw(lock), writer(lock), reader(lock)) };
    seen::becomes(Call::at(pc, sp), before, after);
    raw.downgrade();
    0
}

/// From the writer to the upgradable reader, with no other writer in between. Does not wait.
///
/// Returns 0. The caller is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_downgrade_to_up(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { downgrade_to_up_seen(lock) };
    }
    // SAFETY: the caller's lock.
    unsafe { raw(lock) }.downgrade_to_upgradable();
    0
}

unsafe extern "C" fn downgrade_to_up_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, before, after) = unsafe { (raw(lock), writer(lock), upgradable(lock)) };
    seen::becomes(Call::at(pc, sp), before, after);
    raw.downgrade_to_upgradable();
    0
}

/// Enters as the upgradable reader, waiting as long as that takes. There may be readers inside, but no writer
/// and no other upgradable reader.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_uplock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { uplock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    unsafe { raw(lock).lock_upgradable(policy(lock)) };
    0
}

unsafe extern "C" fn uplock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, policy, entered) = unsafe { (raw(lock), policy(lock), upgradable(lock)) };
    let wait = || {
        raw.lock_upgradable(policy);
        true
    };
    seen::acquire(Call::at(pc, sp), entered, || raw.try_lock_upgradable(), wait);
    0
}

/// Enters as the upgradable reader if it need not wait.
///
/// Returns 0, or `EBUSY` if a writer or an upgradable reader is inside, or another thread comes first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_tryuplock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { tryuplock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    tried(unsafe { raw(lock) }.try_lock_upgradable())
}

unsafe extern "C" fn tryuplock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, entered) = unsafe { (raw(lock), upgradable(lock)) };
    tried(seen::tried(Call::at(pc, sp), entered, raw.try_lock_upgradable()))
}

/// Enters as the upgradable reader, waiting until a time of `clock` at most, which is `CLOCK_MONOTONIC` or
/// `CLOCK_REALTIME`. A thread that need not wait enters whatever the time.
///
/// Returns 0; `ETIMEDOUT` if the time has passed; `EINVAL` for another clock, or nanoseconds that are not
/// below 1,000,000,000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_clockuplock(
    lock: *mut poundlock_rwlock_t,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { clockuplock_seen(lock, clock, abstime) };
    }
    // SAFETY: the caller's time, and lock.
    unsafe { time::until(clock, abstime, |deadline| raw(lock).lock_upgradable_until(policy(lock), deadline)) }
}

unsafe extern "C" fn clockuplock_at(
    lock: Object,
    clock: clockid_t,
    abstime: *const timespec,
    pc: usize,
    sp: usize,
) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, policy, entered) = unsafe { (raw(lock), policy(lock), upgradable(lock)) };
    let wait = |deadline: &_| raw.lock_upgradable_until(policy, deadline);
    // SAFETY: the caller's time.
    unsafe {
        seen::acquire_until(Call::at(pc, sp), entered, (clock, abstime), || raw.try_lock_upgradable(), wait)
    }
}

/// Leaves; the calling thread is the upgradable reader.
///
/// Returns 0. The caller is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_upunlock(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { upunlock_seen(lock) };
    }
    // SAFETY: the caller's lock.
    unsafe { raw(lock) }.unlock_upgradable();
    0
}

unsafe extern "C" fn upunlock_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let (raw, left) = unsafe { (raw(lock), upgradable(lock)) };
    let is_locked = raw.is_locked();
    seen::releases(Call::at(pc, sp), left, is_locked);
    if is_locked {
        raw.unlock_upgradable();
    }
    0
}

/// From the upgradable reader to the writer, waiting until the other readers have left; no more come in
/// meanwhile. No other writer comes in between, so what was read still holds.
///
/// Returns 0. The caller is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_upgrade(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { upgrade_seen(lock) };
    }
    // SAFETY: the caller's lock.
    unsafe { raw(lock) }.upgrade();
    0
}

unsafe extern "C" fn upgrade_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let raw = unsafe { raw(lock) };
    let wait = || {
        raw.upgrade();
        true
    };
    seen::upgrade(Call::at(pc, sp), (upgradable(lock), writer(lock)), || raw.try_upgrade(), wait);
    0
}

/// From the upgradable reader to the writer if no other reader is inside.
///
/// Returns 0, or `EBUSY` if there is; the calling thread is the upgradable reader still.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_tryupgrade(lock: *mut poundlock_rwlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { tryupgrade_seen(lock) };
    }
    // SAFETY: the caller's lock.
    tried(unsafe { raw(lock) }.try_upgrade())
}

unsafe extern "C" fn tryupgrade_at(lock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let upgraded = unsafe { raw(lock) }.try_upgrade();
    if upgraded {
        seen::becomes(Call::at(pc, sp), upgradable(lock), writer(lock));
    }
    tried(upgraded)
}

/// From the upgradable reader to the writer, waiting for the other readers until a time of `clock` at most,
/// which is `CLOCK_MONOTONIC` or `CLOCK_REALTIME`.
///
/// Returns 0; `ETIMEDOUT` if the time has passed; `EINVAL` for another clock, or nanoseconds that are not
/// below 1,000,000,000. In these cases the calling thread is the upgradable reader still.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_clockupgrade(
    lock: *mut poundlock_rwlock_t,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { clockupgrade_seen(lock, clock, abstime) };
    }
    // SAFETY: the caller's time, and lock.
    unsafe { time::until(clock, abstime, |deadline| raw(lock).upgrade_until(deadline)) }
}

unsafe extern "C" fn clockupgrade_at(
    lock: Object,
    clock: clockid_t,
    abstime: *const timespec,
    pc: usize,
    sp: usize,
) -> c_int {
    // SAFETY: the caller's lock.
    let raw = unsafe { raw(lock) };
    let locks = (upgradable(lock), writer(lock).that(TIMED));
    let until = |deadline: &_| {
        seen::upgrade(Call::at(pc, sp), locks, || raw.try_upgrade(), || raw.upgrade_until(deadline))
    };
    // SAFETY: the caller's time.
    unsafe { time::until(clock, abstime, until) }
}

/// From the upgradable reader to a reader among others. Does not wait.
///
/// Returns 0. The caller is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_rwlock_up_to_rd(lock: *mut poundlock_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    unsafe { raw(lock) }.downgrade_upgradable();
    0
}
