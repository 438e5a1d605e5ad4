//! POSIX semaphores as locks, in a process under check that was told so: those of one process that begin with
//! 1, as long as whoever posts one has waited for it. What waits for them is in [`super`]; here is the rest
//! of their calls. In every other process each is one jump.

use super::*;
use crate::check;
use crate::stat::Manner;

both! {
    sem_init = SEM_INIT, before_init, after;
    sem_destroy = SEM_DESTROY, before_destroy, after;
    sem_trywait = SEM_TRYWAIT, before_try, after;
}

/// Whether semaphores are looked at as locks.
pub(super) fn counts() -> bool {
    mode::get().counted() && check::semaphores()
}

extern "C" fn before_init(
    semaphore: usize,
    shared: c_int,
    value: usize,
    _: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    let site = CallSite { pc, sp };
    // C passes an `unsigned int`.
    if shared == 0 && value as u32 == 1 {
        stat::RECORDER.semaphore_created(stat::at(semaphore, LockKind::Semaphore), site);
    } else {
        stat::destroyed_at(semaphore, LockKind::Semaphore, site);
    }
    WAIT
}

extern "C" fn before_destroy(semaphore: usize, _: usize, _: usize, _: usize, pc: usize, sp: usize) -> c_int {
    stat::destroyed_at(semaphore, LockKind::Semaphore, CallSite { pc, sp });
    WAIT
}

extern "C" fn before_try(semaphore: usize, _: usize, _: usize, _: usize, pc: usize, sp: usize) -> c_int {
    if !try_now(semaphore) {
        // Again, for the error.
        return WAIT;
    }
    let counted = stat::at(semaphore, LockKind::Semaphore);
    stat::RECORDER.semaphore_taken(counted, CallSite { pc, sp }, Manner::TRY);
    DONE
}

extern "C" fn after(_: c_int) {}

/// glibc's `sem_trywait`, without its `errno`: whether the semaphore was to be had.
pub(super) fn try_now(semaphore: usize) -> bool {
    let found = real::SEM_TRYWAIT.address();
    if found.is_null() {
        return false;
    }
    // SAFETY: the calling thread's `errno`, as often as it is looked at.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: the address of glibc's function, which has this type.
    let try_wait: extern "C" fn(usize) -> c_int = unsafe { mem::transmute(found) };
    let taken = try_wait(semaphore) == 0;
    // SAFETY: as above.
    unsafe { *errno = before };
    taken
}
