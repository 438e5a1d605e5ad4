//! Arrays of semaphores, the kernel's and ours, behind one interface.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr;

use poundlock_core::semarray::{Op, Report, Scheme};
use serde::{Deserialize, Serialize};

use super::failed;
use crate::error::{Error, Result};
use crate::sem::Mechanism;

/// A call's error number.
pub(super) type Errno = c_int;

/// An array of semaphores, which is removed when it is dropped.
pub(super) trait Array: Sized + Send + Sync + 'static {
    /// A new one, all semaphores 0.
    fn new(semaphores: usize) -> Result<Self>;

    /// `semop`.
    fn operate(&self, operations: &mut [libc::sembuf]) -> std::result::Result<(), Errno>;

    /// What the array says of its lock; `None` if it does not say.
    fn held(&self) -> Option<Held>;

    /// Removes the array: who sleeps in it is woken with EIDRM.
    fn remove(&self) -> std::result::Result<(), Errno>;

    /// The process is about to end, with threads that sleep in the array: removes it if it would outlive the
    /// process.
    fn abandon(&self) -> std::result::Result<(), Errno>;
}

/// How often an array's lock was taken, and what waiting for it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Nanoseconds that the array has been there.
    pub lifetime_ns: u64,
    /// Times the lock was free.
    pub free: u64,
    /// Times it was not.
    pub contended: u64,
    /// Nanoseconds of CPU time that went on spinning for it.
    pub spun_ns: u64,
    /// How many of the times that it was not free ended in sleep.
    pub slept: u64,
}

impl Held {
    /// What came after `earlier`.
    pub(super) fn since(self, earlier: Held) -> Held {
        Held {
            lifetime_ns: self.lifetime_ns.saturating_sub(earlier.lifetime_ns),
            free: self.free.saturating_sub(earlier.free),
            contended: self.contended.saturating_sub(earlier.contended),
            spun_ns: self.spun_ns.saturating_sub(earlier.spun_ns),
            slept: self.slept.saturating_sub(earlier.slept),
        }
    }
}

/// What is done with an array, of whatever type.
pub(super) trait Use {
    type Output;

    fn with<A: Array>(self) -> Result<Self::Output>;
}

/// Does something with arrays of a mechanism.
pub(super) fn with_arrays<U: Use>(mechanism: Mechanism, user: U) -> Result<U::Output> {
    match mechanism {
        Mechanism::Kernel => user.with::<Kernel>(),
        _ if mechanism.is_ours() => {
            // The environment chooses. An array that the kernel makes, or one of another variant, would be
            // measured as well.
            let chosen = poundlock_semarray::choice().scheme;
            if Scheme::parse(mechanism.name()) != Some(chosen) {
                return Err(Error::Options(format!("arrays are {} here", chosen.name())));
            }
            user.with::<Ours>()
        }
        _ => Err(Error::Options(format!("{mechanism} is no array of semaphores"))),
    }
}

/// An operation.
pub(super) fn op(semaphore: usize, change: i16, flags: c_int) -> libc::sembuf {
    libc::sembuf { sem_num: semaphore as u16, sem_op: change, sem_flg: flags as i16 }
}

/// The kernel's.
pub(super) struct Kernel {
    id: c_int,
}

fn errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

impl Array for Kernel {
    fn new(semaphores: usize) -> Result<Self> {
        // SAFETY: plain numbers.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, semaphores as c_int, libc::IPC_CREAT | 0o600) };
        match id {
            -1 => Err(failed(&format!("the kernel gives no array of {semaphores} semaphores"), errno())),
            id => Ok(Kernel { id }),
        }
    }

    #[inline]
    fn operate(&self, operations: &mut [libc::sembuf]) -> std::result::Result<(), Errno> {
        // SAFETY: the pointer and the length are the slice's.
        match unsafe { libc::semop(self.id, operations.as_mut_ptr(), operations.len()) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    fn held(&self) -> Option<Held> {
        None
    }

    fn remove(&self) -> std::result::Result<(), Errno> {
        // SAFETY: the command takes no argument.
        match unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    fn abandon(&self) -> std::result::Result<(), Errno> {
        self.remove()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // It may have been removed already.
        _ = self.remove();
    }
}

/// Ours, of the variant that the environment chooses.
pub(super) struct Ours {
    id: c_int,
}

const _: () = assert!(mem::size_of::<libc::sembuf>() == mem::size_of::<Op>());

impl Array for Ours {
    fn new(semaphores: usize) -> Result<Self> {
        let made = poundlock_semarray::get(libc::IPC_PRIVATE, semaphores as c_int, libc::IPC_CREAT | 0o600);
        match made {
            Ok(Some(id)) => Ok(Ours { id }),
            Ok(None) => Err(Error::Options("arrays are left to the kernel here".to_owned())),
            Err(errno) => Err(failed(&format!("there is no array of {semaphores} semaphores"), errno)),
        }
    }

    #[inline]
    fn operate(&self, operations: &mut [libc::sembuf]) -> std::result::Result<(), Errno> {
        let first = operations.as_ptr().cast::<Op>();
        // SAFETY: the pointer and the length are the slice's; the two types are laid out the same.
        unsafe { poundlock_semarray::operate(self.id, first, operations.len(), ptr::null()) }
    }

    fn held(&self) -> Option<Held> {
        let mut held = None;
        poundlock_semarray::list(|listed| {
            if listed.id == self.id {
                held = Some(Held::from(listed.report));
            }
        });
        held
    }

    fn remove(&self) -> std::result::Result<(), Errno> {
        poundlock_semarray::remove(self.id).map(|_| ())
    }

    fn abandon(&self) -> std::result::Result<(), Errno> {
        // It goes with its directory. To wake thousands inside the lock, as `before` does, may take a minute
        // where they share a CPU with whoever holds it.
        Ok(())
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // It may have been removed already.
        _ = self.remove();
    }
}

impl From<Report> for Held {
    fn from(report: Report) -> Held {
        Held {
            lifetime_ns: report.lifetime_ns,
            free: report.free,
            contended: report.contended,
            spun_ns: report.spun_ns,
            slept: report.slept,
        }
    }
}
