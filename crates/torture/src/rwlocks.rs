//! `poundlock-core`'s readers-writer locks under torture, for what pthread has no calls for: see
//! `csrc/subjects.c`.

use std::ffi::{c_int, c_uint};

use libc::{EBUSY, EINVAL, ETIMEDOUT, clockid_t, timespec};
use poundlock_core::rwlock::{Preference, RawRwLock};
use poundlock_linux::{Linux, time};

macro_rules! operations {
    ($($name:ident)*) => {
        /// What is asked for, in the order of C's `enum operation`.
        #[derive(Clone, Copy)]
        enum Operation {
            $($name,)*
        }

        const OPERATIONS: &[Operation] = &[$(Operation::$name,)*];
    };
}

operations! {
    Read TryRead LeaveRead Write TryWrite LeaveWrite Look TryLook LeaveLook Upgrade TryUpgrade
    WriteToRead WriteToLook LookToRead Destroy
}

/// Prepares this process, which forks.
pub(super) fn prepare() {
    poundlock_linux::init();
}

/// Does what C asks for: 0, or an error number.
///
/// # Safety
/// `lock` points to a readers-writer lock, `deadline` to a time or nowhere; the caller has of the lock what
/// the operation gives up.
#[unsafe(no_mangle)]
unsafe extern "C" fn poundlock_torture_rwlock(
    lock: *const RawRwLock<Linux>,
    policy: c_uint,
    operation: c_uint,
    clock: clockid_t,
    deadline: *const timespec,
) -> c_int {
    // SAFETY: the caller's.
    let (lock, deadline) = unsafe { (&*lock, deadline.as_ref()) };
    let policies = [Preference::PhaseFair, Preference::ReaderPreferring, Preference::WriterPreferring];
    let Some(&policy) = policies.get(policy as usize) else { return EINVAL };
    let Some(&operation) = OPERATIONS.get(operation as usize) else { return EINVAL };
    let known = |time| time::clock(clock).and_then(|clock| time::deadline(clock, time)).ok_or(());
    let Ok(deadline) = deadline.map(known).transpose() else { return EINVAL };
    match (operation, &deadline) {
        (Operation::Read, None) => lock.lock_read(policy),
        (Operation::Read, Some(until)) => return by_then(lock.lock_read_until(policy, until)),
        (Operation::TryRead, _) => return at_once(lock.try_lock_read(policy)),
        (Operation::LeaveRead, _) => lock.unlock_read(),
        (Operation::Write, None) => lock.lock_write(policy),
        (Operation::Write, Some(until)) => return by_then(lock.lock_write_until(policy, until)),
        (Operation::TryWrite, _) => return at_once(lock.try_lock_write()),
        (Operation::LeaveWrite, _) => lock.unlock_write(),
        (Operation::Look, None) => lock.lock_upgradable(policy),
        (Operation::Look, Some(until)) => return by_then(lock.lock_upgradable_until(policy, until)),
        (Operation::TryLook, _) => return at_once(lock.try_lock_upgradable()),
        (Operation::LeaveLook, _) => lock.unlock_upgradable(),
        (Operation::Upgrade, None) => lock.upgrade(),
        (Operation::Upgrade, Some(until)) => return by_then(lock.upgrade_until(until)),
        (Operation::TryUpgrade, _) => return at_once(lock.try_upgrade()),
        (Operation::WriteToRead, _) => lock.downgrade(),
        (Operation::WriteToLook, _) => lock.downgrade_to_upgradable(),
        (Operation::LookToRead, _) => lock.downgrade_upgradable(),
        (Operation::Destroy, _) => return at_once(lock.is_idle()),
    }
    0
}

fn at_once(done: bool) -> c_int {
    if done { 0 } else { EBUSY }
}

fn by_then(done: bool) -> c_int {
    if done { 0 } else { ETIMEDOUT }
}
