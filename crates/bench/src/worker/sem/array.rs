//! Arrays of semaphores, the kernel's and ours, behind one interface.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr;

use poundlock_core::semarray::{Op, Report, Scheme};

use super::failed;
use crate::error::{Error, Result};
use crate::sem::Mechanism;

/// A call's error number.
pub(super) type Errno = c_int;

/// An array of semaphores, which is removed when it is dropped.
pub(super) struct Array {
    id: c_int,
    /// Whether it is one of ours, of the variant that the environment chooses; else it is the kernel's.
    ours: bool,
}

/// An operation.
pub(super) fn op(semaphore: usize, change: i16, flags: c_int) -> libc::sembuf {
    libc::sembuf { sem_num: semaphore as u16, sem_op: change, sem_flg: flags as i16 }
}

fn checked(rc: c_int) -> std::result::Result<c_int, Errno> {
    if rc == -1 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) } else { Ok(rc) }
}

const _: () = assert!(mem::size_of::<libc::sembuf>() == mem::size_of::<Op>());

impl Array {
    /// A new one, all semaphores 0.
    pub(super) fn new(mechanism: Mechanism, semaphores: usize) -> Result<Array> {
        let (number, flags) = (semaphores as c_int, libc::IPC_CREAT | 0o600);
        let refused = |errno| failed(&format!("there is no array of {semaphores} semaphores"), errno);
        if mechanism == Mechanism::Kernel {
            // SAFETY: plain numbers.
            let id = checked(unsafe { libc::semget(libc::IPC_PRIVATE, number, flags) }).map_err(refused)?;
            return Ok(Array { id, ours: false });
        }
        if !mechanism.is_array() {
            return Err(Error::Failed(format!("{mechanism} is no array of semaphores")));
        }
        // The environment chooses. An array that the kernel makes, or one of another variant, would be
        // measured as well.
        let chosen = poundlock_semarray::choice().scheme;
        if Scheme::parse(mechanism.name()) != Some(chosen) {
            return Err(Error::Failed(format!("arrays are {} here", chosen.name())));
        }
        let id = poundlock_semarray::get(libc::IPC_PRIVATE, number, flags).map_err(refused)?;
        let id = id.ok_or_else(|| Error::Failed("arrays are left to the kernel here".to_owned()))?;
        Ok(Array { id, ours: true })
    }

    /// `semop`.
    #[inline]
    pub(super) fn operate(&self, operations: &mut [libc::sembuf]) -> std::result::Result<(), Errno> {
        if self.ours {
            let first = operations.as_ptr().cast::<Op>();
            // SAFETY: the pointer and the length are the slice's; the two types are laid out the same.
            return unsafe { poundlock_semarray::operate(self.id, first, operations.len(), ptr::null()) };
        }
        // SAFETY: the pointer and the length are the slice's.
        checked(unsafe { libc::semop(self.id, operations.as_mut_ptr(), operations.len()) }).map(drop)
    }

    /// What the array says of its lock; the kernel's say nothing.
    pub(super) fn held(&self) -> Option<Report> {
        let mut held = None;
        if self.ours {
            poundlock_semarray::list(|listed| {
                if listed.id == self.id {
                    held = Some(listed.report);
                }
            });
        }
        held
    }

    /// Ends the calls of those that sleep in it.
    pub(super) fn remove(&self) -> std::result::Result<(), Errno> {
        if self.ours {
            return poundlock_semarray::remove(self.id).map(drop);
        }
        // SAFETY: the command takes no argument.
        checked(unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) }).map(drop)
    }

    /// The process is about to end, with threads that sleep in the array: removes it if it would outlive the
    /// process. Ours goes with its directory; to wake thousands inside the lock, as `before` does, may take a
    /// minute where they share a CPU with whoever holds it.
    pub(super) fn abandon(&self) -> std::result::Result<(), Errno> {
        if self.ours { Ok(()) } else { self.remove() }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // It may have been removed already.
        _ = self.remove();
    }
}
