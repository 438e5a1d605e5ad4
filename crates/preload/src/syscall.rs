//! The C library's `syscall`, for the semaphore calls: with an id of ours, the kernel would say that there is
//! no such array.
//!
//! Every other call is passed on by a jump, with its registers and its stack as they were: two comparisons
//! and a load more than without this library. Before the library has started there is nowhere to jump to, and
//! the system call is made here, as glibc does it.
//!
//! Programs that make system calls by instructions of their own, as those in Go do, are not seen.

use core::ffi::{c_int, c_long, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Release};

use poundlock_semarray as semarray;

use crate::semarray::{result, semctl, semget_ours, semop, semtimedop};
use crate::{block, mode, real};

static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// From here on calls are passed on to the next function of that name.
pub(crate) fn start() {
    let counted = mode::get().counted();
    let next = real::SYSCALL.address();
    // Release, partner of the acquire in `system_call!`: who comes to `counted_call` finds the address above.
    NEXT.store(if counted { counted_call as *mut c_void } else { next }, Release);
}

/// In a process whose locks are counted: waits for futexes are those of locks that we know nothing of.
/// Arguments and stack are those of [`syscall`].
#[unsafe(naked)]
unsafe extern "C" fn counted_call() {
    crate::arch::counted_call!(block::before_futex, block::after_futex, real::SYSCALL)
}

/// Makes a system call.
///
/// # Safety
/// As C's function of that name, which takes up to six arguments more.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(_: c_long) -> c_long {
    crate::arch::system_call!(semaphores, NEXT, errno)
}

extern "C" fn errno() -> *mut c_int {
    // SAFETY: takes no arguments.
    unsafe { libc::__errno_location() }
}

/// A call on semaphores: ours, or passed on.
unsafe extern "C" fn semaphores(
    call: c_long,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
) -> c_long {
    // The kernel takes as many bits of each as it has.
    let id = first as c_int;
    // SAFETY: the caller's; the arguments are those of the functions.
    let done = unsafe {
        match call {
            libc::SYS_semget => match semget_ours(first as libc::key_t, second as c_int, third as c_int) {
                Ok(None) => None,
                answer => Some(result(answer.map(Option::unwrap_or_default))),
            },
            libc::SYS_semop if semarray::is_ours(id) => {
                Some(semop(id, ptr::with_exposed_provenance_mut(second), third))
            }
            libc::SYS_semtimedop if semarray::is_ours(id) => Some(semtimedop(
                id,
                ptr::with_exposed_provenance_mut(second),
                third,
                ptr::with_exposed_provenance(fourth),
            )),
            libc::SYS_semctl if semarray::is_ours(id) || goes_through_all(third as c_int) => {
                Some(semctl(id, second as c_int, third as c_int, fourth))
            }
            _ => None,
        }
    };
    if let Some(done) = done {
        return done.into();
    }
    let next = real::SYSCALL.address();
    if next.is_null() {
        return result(Err(libc::ENOSYS)).into();
    }
    // SAFETY: the address of the function of this name; these calls have four arguments at most.
    unsafe {
        let next: unsafe extern "C" fn(c_long, usize, usize, usize, usize) -> c_long = mem::transmute(next);
        next(call, first, second, third, fourth)
    }
}

/// Whether this command of `semctl` is about all arrays, or takes the index of one.
fn goes_through_all(command: c_int) -> bool {
    [libc::IPC_INFO, libc::SEM_INFO, libc::SEM_STAT, libc::SEM_STAT_ANY].contains(&command)
}
