//! Every lock that Poundlock is compared with, and Poundlock's own, behind one table of C functions.
//!
//! ```
//! use poundlock_peers::{Instance, Node};
//!
//! let peer = poundlock_peers::find("std").expect("a name of the list").expect("part of Rust");
//! let lock = Instance::new(&peer.calls);
//! let node = Node::new(&peer.calls);
//! // SAFETY: lock and node are this peer's and live; this thread unlocks what it locked, with the same node.
//! unsafe {
//!     (peer.calls.lock)(lock.as_ptr(), node.as_ptr());
//!     (peer.calls.unlock)(lock.as_ptr(), node.as_ptr());
//! }
//! ```
//!
//! Readers-writer locks have a list of their own, [`rw`], and two functions more.
//!
//! # The same rules for everybody
//!
//! A driver calls through the pointers of [`Calls`], so no lock is inlined into it, whichever language it is
//! from. What lies behind a pointer is what a program in the lock's own language compiles to, once: a fast
//! path that a library's header gives to its users is inlined into that function, and one that a library
//! keeps to itself is a further jump, as it is for the library's users. [`EMPTY`] has functions that do
//! nothing: what the pointers cost.
//!
//! Some locks want something from each thread that locks: a queue node, or a guard to keep until the unlock.
//! It lies in the thread's node ([`Calls::node`]), as it would lie on its stack, and not in the lock, whose
//! lines others look at.
//!
//! # Where they come from
//!
//! The C library's locks are looked up in the C library itself, whatever is preloaded. Rust's are crates,
//! each a feature of this one. Those in C and C++ are compiled by the build script, from a few lines each
//! (`shims/`) and the package's headers, with `-O2 -DNDEBUG`; each is a shared object that is kept inside
//! this library and loaded when it is first asked for. So this library depends on no package at run time, and
//! one that is missing, then or when this was built, leaves out its own locks and nothing else: they are
//! [`Absent`], and say what to install.
//!
//! A package that its distribution has built with assertions, as Debian has Abseil, checks more than one that
//! its users build themselves as a release; [`Peer::origin`] says so. Another build is used if the compiler's
//! variables `CPATH` and `LIBRARY_PATH` name it, and is put into the shared object if its archives are
//! position-independent.
//!
//! The environment variable `POUNDLOCK_PEERS_WITHOUT` names shims to leave out, with commas between:
//! `abseil,ck`. The build script heeds it as if the package were not there.

mod empty;
mod glibc;
mod memory;
mod ours;
mod packages;
mod rust;
mod shim;
mod topology;

pub mod rw;

use std::ffi::c_void;

pub use memory::{Instance, Node};

/// The name of the peer that does nothing. It is there to be subtracted, not to be compared with.
pub const EMPTY: &str = "empty";

/// A lock behind C functions, all called through pointers: nobody's is inlined.
///
/// Whoever calls them answers for these rules:
///
/// * `init` comes first, `destroy` last, when nobody holds the lock or waits for it.
/// * A node serves one acquisition at a time: the unlock is given the node of the lock, by the thread that
///   locked. It may serve another lock of the same peer afterwards.
/// * A node neither moves nor goes away while its thread is between a call of `lock` and the return of
///   `unlock`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Bytes of the lock; never 0.
    pub size: usize,
    /// Its alignment, a power of two.
    pub align: usize,
    /// Bytes, 64-byte aligned and zeroed before they are first used, that each thread brings to lock and
    /// unlock; 0: none, and any pointer will do.
    pub node: usize,
    /// Makes an unlocked lock of zeroed memory of that size and alignment.
    pub init: unsafe extern "C" fn(lock: *mut c_void),
    /// Acquires the lock, however long that takes.
    pub lock: unsafe extern "C" fn(lock: *mut c_void, node: *mut c_void),
    /// Releases it.
    pub unlock: unsafe extern "C" fn(lock: *mut c_void, node: *mut c_void),
    /// Ends a lock; its memory may then be freed.
    pub destroy: unsafe extern "C" fn(lock: *mut c_void),
}

/// A lock that is there.
#[derive(Clone, Debug)]
pub struct Peer<C = Calls> {
    /// The name as people type it.
    pub name: &'static str,
    /// One line on what it is.
    pub description: &'static str,
    /// Where it comes from, with its version.
    pub origin: String,
    /// Whether it is one of Poundlock's.
    pub ours: bool,
    /// Whether its waiters never sleep on a futex: with more threads than CPUs some may starve.
    pub spins: bool,
    /// The lock.
    pub calls: C,
}

/// A lock that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The name as people type it.
    pub name: &'static str,
    /// One line: what is missing, and what to do about it.
    pub why: String,
}

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is left out: {}", self.name, self.why)
    }
}

/// Everybody, [`EMPTY`] first, then the others' locks, then ours. Loads what has to be loaded.
pub fn all() -> Vec<Result<Peer, Absent>> {
    entries().iter().map(Entry::peer).collect()
}

/// The lock of that name, or why it is not there; `None` if there is no such name. Knows some locks that
/// stand in no list: textbook spinlocks and further forms of ours, which single benchmarks compare.
pub fn find(name: &str) -> Option<Result<Peer, Absent>> {
    entries().iter().chain(&ours::extras()).find(|entry| entry.name == name).map(Entry::peer)
}

/// All names, in the order of [`all`], of locks that are there and of those that are not.
pub fn names() -> Vec<&'static str> {
    entries().iter().map(|entry| entry.name).collect()
}

/// What is known of a lock without asking whether it is there.
struct Entry<C = Calls> {
    name: &'static str,
    description: &'static str,
    ours: bool,
    spins: bool,
    make: Box<dyn Fn() -> Made<C>>,
}

/// A lock's origin and its functions, or why there are none.
type Made<C> = Result<(String, C), String>;

impl<C> Entry<C> {
    /// Another's lock.
    fn new(name: &'static str, description: &'static str, make: impl Fn() -> Made<C> + 'static) -> Entry<C> {
        Entry { name, description, ours: false, spins: false, make: Box::new(make) }
    }

    fn spinning(self) -> Entry<C> {
        Entry { spins: true, ..self }
    }

    fn peer(&self) -> Result<Peer<C>, Absent> {
        let &Entry { name, description, ours, spins, .. } = self;
        match (self.make)() {
            Ok((origin, calls)) => Ok(Peer { name, description, origin, ours, spins, calls }),
            Err(why) => Err(Absent { name, why }),
        }
    }
}

fn entries() -> Vec<Entry> {
    let mut entries = vec![empty::entry()];
    entries.extend(glibc::entries());
    entries.extend(rust::entries());
    entries.extend(packages::entries());
    entries.extend(ours::entries());
    entries
}

/// What the build script found out: versions, and the shims or why there are none.
mod built {
    include!(concat!(env!("OUT_DIR"), "/built.rs"));
}
