//! Readers-writer locks, behind the same table with two functions more.

use std::ffi::c_void;

use crate::{Absent, Entry, Peer, empty, glibc, ours, packages, rust};

/// A readers-writer lock behind C functions. The rules are those of [`crate::Calls`], for whoever reads and
/// whoever writes; nobody asks for a lock that it holds already.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// The lock's life, what it and a thread's node take, and its functions for a writer.
    pub write: crate::Calls,
    /// Acquires the lock as one of any number of readers, however long that takes.
    pub read_lock: unsafe extern "C" fn(lock: *mut c_void, node: *mut c_void),
    /// Releases it as a reader.
    pub read_unlock: unsafe extern "C" fn(lock: *mut c_void, node: *mut c_void),
}

impl Calls {
    /// The lock as a reader has it.
    pub const fn read(&self) -> crate::Calls {
        crate::Calls { lock: self.read_lock, unlock: self.read_unlock, ..self.write }
    }
}

/// Everybody, [`crate::EMPTY`] first, then the others' locks, then ours. Loads what has to be loaded.
pub fn all() -> Vec<Result<Peer<Calls>, Absent>> {
    entries().iter().map(Entry::peer).collect()
}

/// The lock of that name, or why it is not there; `None` if there is no such name. Knows `mutex`, which
/// stands in no list.
pub fn find(name: &str) -> Option<Result<Peer<Calls>, Absent>> {
    entries().iter().chain(&ours::rw_extras()).find(|entry| entry.name == name).map(Entry::peer)
}

/// All names, in the order of [`all`], of locks that are there and of those that are not.
pub fn names() -> Vec<&'static str> {
    entries().iter().map(|entry| entry.name).collect()
}

fn entries() -> Vec<Entry<Calls>> {
    let mut entries = vec![empty::rw_entry()];
    entries.extend(glibc::rw_entries());
    entries.extend(rust::rw_entries());
    entries.extend(packages::rw_entries());
    entries.extend(ours::rw_entries());
    entries
}
