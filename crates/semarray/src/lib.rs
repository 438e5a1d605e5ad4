//! System V semaphore arrays, shared by the processes of one user, without a system call unless a thread has
//! to wait.
//!
//! The environment says which arrays are ours, and where they are:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `POUNDLOCK_SEMAPHORES` | `ours` (the default): arrays that no other user can open, that is private ones and those whose mode gives nothing to group and others. `all`; `kernel`: none. Then perhaps a comma and a [`Scheme`](poundlock_core::semarray::Scheme) for new arrays |
//! | `POUNDLOCK_IPC_DIR` | the directory, an absolute path; otherwise one in `/dev/shm`, for each user and set of namespaces |
//!
//! An array is a file in that directory, which belongs to the user and which no other user may enter.
//! Processes that may write there are trusted: one that writes to the files at random can give every other
//! one wrong results, errors and endless waits, but nothing worse. That is why arrays that others may open
//! are left to the kernel.
//!
//! What is here: `domain` (the directory and the registry of arrays and processes), `process` (which
//! processes there are, and which are gone), `files` and `table` (an array's memory, in the file system and
//! in this process), `user` (memory of callers), and the calls: [`get()`], [`operate()`], [`control()`]. The
//! semantics are `poundlock-core`'s.
//!
//! # Differences from the kernel
//!
//! * Rights to operate are judged at a process's first use of an array, and when the array's have changed;
//!   not at each operation.
//! * A pointer to memory that was unmapped since it was last used is a fault rather than EFAULT (`user`).
//! * The domain is that of the user and the namespaces at a process's first use. In another IPC namespace, or
//!   another namespace of process numbers, a process has none, and all its arrays are the kernel's: a child
//!   finds that out at its first call, a process itself if it is told ([`moved`]). One that has changed its
//!   root or its user keeps those that it has used.
//! * `IPC_SET` that gives an array to others gives it to those only who inherit it.

// So that a C library of the locks needs nothing but the C library.
#![cfg_attr(not(test), no_std)]

mod config;
mod control;
mod domain;
mod files;
mod handlers;
mod host;
mod list;
mod make;
mod operate;
mod process;
mod rights;
mod robust;
mod system;
mod table;
#[cfg(test)]
mod testing;
mod user;

use core::ffi::c_int;

use poundlock_core::semarray::Error;

pub use config::{Choice, Which, choice, choose, configure};
pub use control::{control, length, set_values, value, values};
pub use domain::moved;
pub use handlers::installed as handler_installed;
pub use list::{Listed, describe, holders, list};
pub use make::{close, end, end_at_exit, find_or_make, get, remove};
pub use operate::{operate, operate_until};

/// An error number of the system's.
pub type Errno = c_int;

/// The bit that the ids of our arrays have set.
pub const OUR_BIT: i32 = domain::OURS as i32;

/// Whether it is the id of an existing array of ours. The kernel refuses ids of arrays that are gone.
#[inline]
pub fn is_ours(id: i32) -> bool {
    // A known domain is used, whatever was chosen since for new arrays.
    id & OUR_BIT != 0
        && domain::known().or_else(find).is_some_and(|domain| domain.registry.live(id).is_some())
}

#[cold]
fn find() -> Option<&'static domain::Domain> {
    if config::choice().which == Which::Kernel { None } else { domain::get() }
}

/// The array at an index; `SEM_INFO` tells the highest.
pub fn at(index: u32) -> Option<i32> {
    let slot = index as usize;
    domain::get()?.registry.arrays().get(slot)?.id(slot)
}

/// The error number of the last call.
fn errno(error: Error) -> Errno {
    match error {
        Error::TooFar => libc::EFBIG,
        Error::WouldBlock => libc::EAGAIN,
        Error::Removed => libc::EIDRM,
        Error::Interrupted => libc::EINTR,
        Error::Range => libc::ERANGE,
        Error::NoMemory => libc::ENOMEM,
        Error::NoSpace => libc::ENOSPC,
        Error::Gone | Error::Invalid => libc::EINVAL,
    }
}
