//! `semget`, `semop`, `semtimedop`, `semctl`; and the ends of a process, which undo what it did with
//! `SEM_UNDO`.
//!
//! Which arrays are ours is decided in `poundlock_linux::sem`; the calls for all others go to the kernel,
//! through glibc's functions. Calls for ours set `errno` as those do.
//!
//! # The end of a process
//!
//! A process that dies is found dead by the next one that uses its arrays, which undoes its adjustments. A
//! process that ends in order undoes its own, so that no other has to look first:
//!
//! * At `exit`, and at `quick_exit`, by the handler that was registered first and so runs last: after the
//!   program's handlers and destructors, which may use its semaphores.
//! * At `_exit` and `_Exit`, which are exported for this alone.
//! * A process whose last thread ends by itself comes to `exit`; one that calls `exit_group` is found dead.

use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;

use libc::{key_t, sembuf, size_t, timespec};
use poundlock_semarray::{self as semarray, Which};

use crate::entry::export;
use crate::stat::{CallSite, Ended, LockKind};
use crate::{check, mode, real, stat};

unsafe extern "C" {
    /// glibc's functions behind `atexit` and `at_quick_exit`, which belong to the library that calls them and
    /// would let its handler run when that library is finished; these belong to none.
    fn __cxa_atexit(
        handler: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// As early as possible: the first handler is the last to run.
pub(crate) fn start() {
    // SAFETY: a function that stays loaded: the library is linked so that it cannot be unloaded. Should there
    // be no memory for the handlers, the process is found dead.
    unsafe {
        __cxa_atexit(end, ptr::null_mut(), ptr::null_mut());
        __cxa_at_quick_exit(end, ptr::null_mut());
    }
}

extern "C" fn end(_: *mut c_void) {
    semarray::end();
}

/// The process uses this array, which is ours: for the statistics, if there are any.
#[inline]
fn count_use(id: c_int) {
    if mode::get().counted() {
        stat::array_used(id);
    }
}

/// What a call returns to C.
pub(crate) fn result(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(|error| {
        // SAFETY: the calling thread's `errno`.
        unsafe { *libc::__errno_location() = error };
        -1
    })
}

/// Finds an array by its key, or makes one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn semget(key: key_t, semaphores: c_int, flags: c_int) -> c_int {
    match semget_ours(key, semaphores, flags) {
        Ok(Some(id)) => id,
        Err(error) => result(Err(error)),
        // SAFETY: the caller's.
        Ok(None) => unsafe { real::semget(key, semaphores, flags) },
    }
}

/// As [`semget`], of ours; `None`: the kernel is to be asked.
pub(crate) fn semget_ours(key: key_t, semaphores: c_int, flags: c_int) -> Result<Option<c_int>, c_int> {
    semarray::get(key, semaphores, flags).inspect(|found| {
        if let Some(id) = found {
            count_use(*id);
        }
    })
}

export! {
    semop(c_int, *mut sembuf, size_t) -> semop_from;
}

extern "C" fn semop_from(id: c_int, operations: *mut sembuf, count: size_t, pc: usize, sp: usize) -> c_int {
    if semarray::is_ours(id) {
        count_use(id);
        if check::is_on() {
            // SAFETY: the caller's.
            return result(unsafe { operate_seen(id, operations, count, CallSite { pc, sp }) }.map(|()| 0));
        }
        // SAFETY: the caller's; a `sembuf` is an `Op`.
        return result(unsafe { semarray::operate(id, operations.cast(), count, ptr::null()) }.map(|()| 0));
    }
    // SAFETY: the caller's.
    unsafe { real::semop(id, operations, count) }
}

/// Under check: while it waits, it is seen for which semaphore.
///
/// # Safety
/// As [`semarray::operate`].
#[cold]
unsafe fn operate_seen(
    id: c_int,
    operations: *mut sembuf,
    count: size_t,
    site: CallSite,
) -> Result<(), c_int> {
    let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the caller's, here and below.
    match unsafe { semarray::operate(id, operations.cast(), count, &at_once) } {
        Err(libc::EAGAIN) => {}
        done => return done,
    }
    // SAFETY: they have just been read.
    let number = unsafe { wanted(id, operations, count) };
    if let Some(number) = number {
        let address = LockKind::in_array(id.cast_unsigned(), number);
        stat::RECORDER.blocks(stat::at(address as usize, LockKind::Array), site);
    }
    // SAFETY: as above.
    let done = unsafe { semarray::operate(id, operations.cast(), count, ptr::null()) };
    if number.is_some() {
        stat::RECORDER.unblocked(if done.is_ok() { Ended::Done } else { Ended::Refused });
    }
    done
}

/// The semaphore of which these operations want more than it has; `None` if they wait for zero.
///
/// # Safety
/// They can be read.
unsafe fn wanted(id: c_int, operations: *const sembuf, count: size_t) -> Option<u16> {
    // A thread that asks for more at once is not worth the time.
    const MOST: size_t = 16;
    // SAFETY: the caller's.
    let operation = |at: size_t| unsafe { operations.add(at).read_unaligned() };
    let takes = |at: &size_t| operation(*at).sem_op < 0;
    let lacks = |at: &size_t| {
        let number = operation(*at).sem_num;
        let same = (0..=*at).map(operation).filter(|other| other.sem_num == number);
        let change: i64 = same.map(|other| i64::from(other.sem_op)).sum();
        semarray::value(id, number).is_ok_and(|value| i64::from(value) + change < 0)
    };
    let mut taken = (0..count.min(MOST)).filter(takes);
    if count == 1 { taken.next() } else { taken.find(lacks) }.map(|at| operation(at).sem_num)
}

/// As `semop`, for a limited time.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn semtimedop(
    id: c_int,
    operations: *mut sembuf,
    count: size_t,
    limit: *const timespec,
) -> c_int {
    if semarray::is_ours(id) {
        count_use(id);
        // SAFETY: the caller's; a `sembuf` is an `Op`.
        return result(unsafe { semarray::operate(id, operations.cast(), count, limit) }.map(|()| 0));
    }
    // SAFETY: the caller's.
    unsafe { real::semtimedop(id, operations, count, limit) }
}

/// Controls an array.
///
/// In C the last argument is there for some commands only, and is a number or a pointer: in the fourth
/// register in any case, which holds anything for the other commands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn semctl(id: c_int, number: c_int, command: c_int, argument: usize) -> c_int {
    match command {
        // SAFETY: the caller's.
        libc::IPC_INFO | libc::SEM_INFO => unsafe { info(id, number, command, argument) },
        // SAFETY: the caller's.
        libc::SEM_STAT | libc::SEM_STAT_ANY => unsafe { stat_at(id, number, command, argument) },
        libc::IPC_RMID if semarray::is_ours(id) && mode::get().counted() => {
            result(stat::remove_array(id).map(|()| 0))
        }
        _ if semarray::is_ours(id) => {
            count_use(id);
            // SAFETY: the caller's.
            result(unsafe { semarray::control(id, number, command, argument) })
        }
        // SAFETY: the caller's.
        _ => unsafe { kernel_semctl(id, number, command, argument) },
    }
}

/// glibc's `semctl`.
unsafe fn kernel_semctl(id: c_int, number: c_int, command: c_int, argument: usize) -> c_int {
    let real = real::SEMCTL.address();
    if real.is_null() {
        return result(Err(libc::ENOSYS));
    }
    // SAFETY: the address of the function of this name, whose type this is; the rest is the caller's.
    unsafe {
        let call: unsafe extern "C" fn(c_int, c_int, c_int, ...) -> c_int = mem::transmute(real);
        call(id, number, command, argument)
    }
}

/// Where the indices of ours begin, for programs that go through all arrays by index. The kernel's are below,
/// unless it was booted to have more than this many arrays.
const FIRST_INDEX: c_int = 1 << 15;

/// `IPC_INFO` and `SEM_INFO`: the kernel's answer, and what there is of ours.
unsafe fn info(id: c_int, number: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's.
    let kernels = unsafe { kernel_semctl(id, number, command, argument) };
    if kernels == -1 || semarray::choice().which == Which::Kernel {
        return kernels;
    }
    let mut ours = MaybeUninit::<libc::seminfo>::zeroed();
    // SAFETY: a structure to write.
    let highest = unsafe { semarray::control(0, 0, libc::SEM_INFO, ours.as_mut_ptr().expose_provenance()) };
    // SAFETY: zero bytes are one.
    let ours = unsafe { ours.assume_init() };
    let (Ok(highest), 1..) = (highest, ours.semusz) else { return kernels };
    if command == libc::SEM_INFO {
        // SAFETY: the kernel has just written it.
        let info = unsafe { &mut *ptr::with_exposed_provenance_mut::<libc::seminfo>(argument) };
        info.semusz = info.semusz.saturating_add(ours.semusz);
        info.semaem = info.semaem.saturating_add(ours.semaem);
    }
    FIRST_INDEX + highest
}

/// `SEM_STAT` and `SEM_STAT_ANY`, whose first argument is an index.
unsafe fn stat_at(index: c_int, number: c_int, command: c_int, argument: usize) -> c_int {
    // As the kernel does, where an id is given instead of an index, take the index from it.
    let is_id = index >= 0 && index & semarray::OUR_BIT != 0;
    let ours = if is_id { Some(index & (FIRST_INDEX - 1)) } else { index.checked_sub(FIRST_INDEX) };
    let ours = ours
        .filter(|_| semarray::choice().which != Which::Kernel)
        .and_then(|index| u32::try_from(index).ok());
    match ours.and_then(semarray::at) {
        // SAFETY: the caller's.
        Some(id) => result(unsafe { semarray::control(id, number, command, argument) }),
        // The kernel would take it for an index of its own.
        None if ours.is_some() && is_id => result(Err(libc::EINVAL)),
        // SAFETY: the caller's.
        None => unsafe { kernel_semctl(index, number, command, argument) },
    }
}

/// What `unshare` or `setns` returned; the process may be in another IPC namespace now.
fn moved(done: c_int, kinds: c_int) -> c_int {
    // A kind of 0 is any that the descriptor has.
    if done == 0 && (kinds == 0 || kinds & libc::CLONE_NEWIPC != 0) {
        semarray::moved();
    }
    done
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unshare(kinds: c_int) -> c_int {
    stat::RECORDER.open_now();
    // SAFETY: the caller's.
    moved(unsafe { real::unshare(kinds) }, kinds)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setns(descriptor: c_int, kinds: c_int) -> c_int {
    stat::RECORDER.open_now();
    // SAFETY: the caller's.
    moved(unsafe { real::setns(descriptor, kinds) }, kinds)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    semarray::end();
    let real = real::EXIT.address();
    if !real.is_null() {
        // SAFETY: the address of the function of this name, whose type this is.
        unsafe {
            let call: unsafe extern "C" fn(c_int) -> ! = mem::transmute(real);
            call(status)
        }
    }
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the caller's.
    unsafe { _exit(status) }
}
