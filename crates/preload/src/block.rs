//! What threads wait for that is glibc's in any case: barriers, POSIX semaphores, the ends of threads. Such
//! calls are only counted and timed, and only in a process whose locks are counted. In every other one an
//! exported function is one jump, through a word that holds glibc's.
//!
//! Most are cancellation points: the frames between the program and glibc are ones that may be unwound by
//! force, and no Rust function is in them while glibc waits (as in [`crate::entry`]).

use core::ffi::{c_int, c_void};
use core::mem;
use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Relaxed, Release},
};

use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, ESRCH, ETIMEDOUT, timespec};

use crate::stat::{self, CallSite, Ended, LockKind, LockRef, Manner};
use crate::{abi, check, mode, real};

/// Where an exported function leads.
#[repr(C)]
pub(crate) struct Way {
    /// First `find`, then glibc's function or `counted`.
    to: AtomicPtr<c_void>,
    /// In a process whose locks are counted.
    counted: *const c_void,
    real: &'static real::Real,
    /// Whether such calls are counted in this process.
    counts: fn() -> bool,
}

// SAFETY: addresses of functions.
unsafe impl Sync for Way {}

impl Way {
    /// Finds out where it leads.
    extern "C" fn find(&'static self) {
        let real = self.real.address();
        let to = if real.is_null() {
            absent as *mut c_void
        } else if (self.counts)() {
            self.counted.cast_mut()
        } else {
            real
        };
        // Release, partner of the acquire in `jump_by!`: who comes to `counted` finds what `real` has found.
        self.to.store(to, Release);
    }
}

/// This glibc has no such function. Those that tell by `errno` are older than all that we run on.
extern "C" fn absent() -> c_int {
    libc::ENOSYS
}

/// What [`export_block!`]'s `prepare` returns: the call has done what it is for.
const DONE: c_int = 0;
/// It is to wait.
const WAIT: c_int = 1;

/// Exports `$name`, of up to four arguments. Where it is counted: `$prepare(arguments, return address, stack
/// pointer)` says whether it is [`DONE`], upon which it returns 0; else glibc's function is called, and
/// `$finish(result)` before its result is returned. With `cancels` a request to cancel the thread is acted on
/// first, as in glibc's.
macro_rules! export_block {
    ($($name:ident = $real:ident, $prepare:path, $finish:path $(, $cancels:ident)?;)*) => {
        $(export_block! { @ $name })*

        /// Finds all of them.
        pub(crate) fn start() {
            $(ways::$name.find();)*
        }

        #[expect(non_upper_case_globals, reason = "each is named after its function")]
        mod ways {
            use super::{AtomicPtr, Way, real};
            $(
            pub(super) static $name: Way = Way {
                to: AtomicPtr::new(super::first::$name as *mut _),
                counted: super::counted::$name as *const _,
                real: &real::$real,
                counts: super::counts,
            };
            )*
        }
    };
    (@ $name:ident) => {
        #[doc = concat!("glibc's `", stringify!($name), "`, which may be counted.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            crate::arch::jump_by!(ways::$name)
        }
    };
}
/// The bodies before the first call has found out, and those of counted processes.
macro_rules! bodies {
    ($($name:ident = $real:ident, $prepare:path, $finish:path $(, $cancels:ident)?;)*) => {
        mod first {
            use super::{Way, ways};
            $(
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn $name() {
                crate::arch::find_and_jump_by!(ways::$name, Way::find)
            }
            )*
        }

        mod counted {
            use super::*;
            $(
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn $name() {
                crate::arch::counted_block!(real::$real, $prepare, $finish $(, $cancels)?)
            }
            )*
        }
    };
}

macro_rules! both {
    ($($all:tt)*) => {
        export_block! { $($all)* }
        bodies! { $($all)* }
    };
}

/// Whether such calls are counted.
fn counts() -> bool {
    mode::get().counted()
}

pub(crate) mod recorded;
pub(crate) mod semaphores;

pub(crate) use recorded::{pthread_yield, sched_yield, sem_post, thrd_yield};
pub(crate) use semaphores::{sem_destroy, sem_init, sem_trywait};

both! {
    sem_wait = SEM_WAIT, before_semaphore, after_semaphore, cancels;
    sem_timedwait = SEM_TIMEDWAIT, before_timed_semaphore, after_semaphore, cancels;
    sem_clockwait = SEM_CLOCKWAIT, before_clocked_semaphore, after_semaphore, cancels;
    pthread_barrier_wait = BARRIER_WAIT, before_barrier, after_barrier;
    pthread_barrier_destroy = BARRIER_DESTROY, before_barrier_destroy, after_barrier_destroy;
    pthread_join = JOIN, before_join, after_join;
    pthread_timedjoin_np = TIMEDJOIN, before_timed_join, after_join;
    pthread_clockjoin_np = CLOCKJOIN, before_clocked_join, after_join;
    thrd_join = THRD_JOIN, before_join, after_thrd_join;
}

extern "C" fn before_semaphore(
    semaphore: usize,
    _: usize,
    _: usize,
    _: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    take_or_block(semaphore, CallSite { pc, sp }, false)
}

extern "C" fn before_timed_semaphore(
    semaphore: usize,
    time: Option<&timespec>,
    _: usize,
    _: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    before_clocked_semaphore(semaphore, libc::CLOCK_REALTIME, time, 0, pc, sp)
}

extern "C" fn before_clocked_semaphore(
    semaphore: usize,
    clock: libc::clockid_t,
    time: Option<&timespec>,
    _: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    let site = CallSite { pc, sp };
    // glibc judges these first, whether the semaphore is to be had or not.
    if abi::clock(clock).is_none() || time.is_none_or(abi::is_invalid) {
        stat::RECORDER.blocks(stat::at(semaphore, LockKind::Semaphore), site);
        return WAIT;
    }
    take_or_block(semaphore, site, true)
}

fn take_or_block(semaphore: usize, site: CallSite, timed: bool) -> c_int {
    let counted = stat::at(semaphore, LockKind::Semaphore);
    if semaphores::try_now(semaphore) {
        if check::semaphores() {
            stat::RECORDER.semaphore_taken(counted, site, Manner::LOCK);
        } else {
            stat::RECORDER.passed(counted);
        }
        return DONE;
    }
    stat::RECORDER.blocks(counted, site);
    is_timed(timed);
    WAIT
}

/// Whether the wait that has begun ends by itself, at a time.
fn is_timed(timed: bool) {
    if timed && check::is_on() {
        stat::RECORDER.wait_is_timed();
    }
}

extern "C" fn after_semaphore(result: c_int) {
    let how = match result {
        0 => Ended::Done,
        // SAFETY: the calling thread's `errno`.
        _ => ended(unsafe { *libc::__errno_location() }),
    };
    stat::RECORDER.unblocked(how);
}

extern "C" fn before_barrier(barrier: usize, _: usize, _: usize, _: usize, pc: usize, sp: usize) -> c_int {
    stat::RECORDER.blocks(stat::at(barrier, LockKind::Barrier), CallSite { pc, sp });
    WAIT
}

extern "C" fn after_barrier(result: c_int) {
    stat::RECORDER.unblocked(match result {
        0 | libc::PTHREAD_BARRIER_SERIAL_THREAD => Ended::Done,
        error => ended(error),
    });
}

/// All ends of threads are counted as one thing: their places tell them apart.
fn ends_of_threads() -> LockRef<'static> {
    static WORD: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
    LockRef { word: &WORD, address: 0, kind: LockKind::Join, writers: None }
}

/// glibc's barrier: of the threads that have come, as many have been let go as the second word says.
#[repr(C)]
struct Barrier {
    come: AtomicU32,
    let_go: AtomicU32,
    count: AtomicU32,
}

/// glibc waits until those that have been let go have left. Those that have not been never will.
extern "C" fn before_barrier_destroy(
    barrier: &Barrier,
    _: usize,
    _: usize,
    _: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    let waiting = barrier.come.load(Relaxed).wrapping_sub(barrier.let_go.load(Relaxed));
    if check::is_on() && (1..barrier.count.load(Relaxed)).contains(&waiting) {
        let lock = stat::at(core::ptr::from_ref(barrier).addr(), LockKind::Barrier);
        stat::RECORDER.destroyed_while_waited_for(lock, CallSite { pc, sp });
    }
    WAIT
}

extern "C" fn after_barrier_destroy(_: c_int) {}

extern "C" fn before_join(thread: usize, _: usize, _: usize, _: usize, pc: usize, sp: usize) -> c_int {
    stat::RECORDER.joins(ends_of_threads(), thread, CallSite { pc, sp });
    WAIT
}

/// A join without a time waits for as long as it takes.
extern "C" fn before_timed_join(
    thread: usize,
    result: usize,
    time: usize,
    _: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    let wait = before_join(thread, result, 0, 0, pc, sp);
    is_timed(time != 0);
    wait
}

extern "C" fn before_clocked_join(
    thread: usize,
    result: usize,
    _: usize,
    time: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    before_timed_join(thread, result, time, 0, pc, sp)
}

extern "C" fn after_join(result: c_int) {
    stat::RECORDER.unblocked(ended(result));
}

extern "C" fn after_thrd_join(result: c_int) {
    // `thrd_error` is the only other one.
    stat::RECORDER.unblocked(if result == 0 { Ended::Done } else { Ended::Refused });
}

/// By glibc's error.
pub(crate) fn ended(error: c_int) -> Ended {
    match error {
        ETIMEDOUT => Ended::TimedOut,
        EINVAL | ESRCH | EDEADLK | EBUSY | EAGAIN | libc::ENOSYS => Ended::Refused,
        _ => Ended::Done,
    }
}

/// What waits on a futex, for the statistics.
fn futex(address: usize) -> LockRef<'static> {
    stat::at(address, LockKind::Futex)
}

/// Whether a futex call with this operation waits.
const fn waits(operation: c_int) -> bool {
    const LOCK_PI2: c_int = 13;
    matches!(
        operation & libc::FUTEX_CMD_MASK,
        libc::FUTEX_WAIT
            | libc::FUTEX_WAIT_BITSET
            | libc::FUTEX_LOCK_PI
            | LOCK_PI2
            | libc::FUTEX_WAIT_REQUEUE_PI
    )
}

/// Whether the code at this address is this library's: what it waits for, for locks or arrays of its own, is
/// not the program's.
pub(crate) fn is_ours(pc: usize) -> bool {
    unsafe extern "C" {
        static __ehdr_start: u8;
        static _end: u8;
    }
    ((&raw const __ehdr_start).addr()..(&raw const _end).addr()).contains(&pc)
}

/// A futex call is about to be made. Whether it is one of the program's that waits.
pub(crate) extern "C" fn before_futex(
    _call: usize,
    address: usize,
    operation: c_int,
    _: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    if !waits(operation) || is_ours(pc) {
        return DONE;
    }
    stat::RECORDER.blocks(futex(address), CallSite { pc, sp });
    WAIT
}

/// It has been made.
pub(crate) extern "C" fn after_futex(result: core::ffi::c_long) {
    let how = match result {
        // SAFETY: the calling thread's `errno`.
        -1 => ended(unsafe { *libc::__errno_location() }),
        _ => Ended::Done,
    };
    stat::RECORDER.unblocked(how);
}

const _: () = assert!(mem::offset_of!(Way, to) == 0);
