//! The one interface through which every readers-writer lock is driven; what is inlined and what is called is as for
//! [`crate::lock::Lock`].

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use parking_lot::lock_api::RawRwLock as _;
use poundlock_core::rwlock::{Preference as Policy, RawRwLock};
use poundlock_linux::Linux;
use poundlock_peers::{Instance, rw};

use crate::abi::CRw;
use crate::error::{Error, Result};
use crate::lock::{BargingType, Lock};

/// A readers-writer lock under test. Each call returns 0, or what a C function returned instead.
pub(crate) trait RwLock: Sync {
    /// What a thread keeps from a lock to the unlock; nothing, for most locks.
    type Place: Default;

    /// Locks as a reader.
    fn read_lock(&self, place: &mut Self::Place) -> c_int;

    /// Unlocks what the calling thread locked as a reader with this place.
    fn read_unlock(&self, place: &mut Self::Place) -> c_int;

    /// Locks as a writer.
    fn write_lock(&self, place: &mut Self::Place) -> c_int;

    /// Unlocks what the calling thread locked as a writer with this place.
    fn write_unlock(&self, place: &mut Self::Place) -> c_int;
}

/// A lock as its readers have it.
pub(crate) struct Reads<L>(pub(crate) L);

impl<L: RwLock> Lock for Reads<L> {
    type Place = L::Place;

    #[inline(always)]
    fn lock(&self, place: &mut L::Place) -> c_int {
        self.0.read_lock(place)
    }

    #[inline(always)]
    fn unlock(&self, place: &mut L::Place) -> c_int {
        self.0.read_unlock(place)
    }
}

/// A lock as its writers have it.
pub(crate) struct Writes<L>(pub(crate) L);

impl<L: RwLock> Lock for Writes<L> {
    type Place = L::Place;

    #[inline(always)]
    fn lock(&self, place: &mut L::Place) -> c_int {
        self.0.write_lock(place)
    }

    #[inline(always)]
    fn unlock(&self, place: &mut L::Place) -> c_int {
        self.0.write_unlock(place)
    }
}

/// Ours as Rust code uses it, with the policy of this number in [`Policy::ALL`].
#[repr(align(128))]
pub(crate) struct Ours<const POLICY: usize>(RawRwLock<Linux>);

impl<const POLICY: usize> Ours<POLICY> {
    const POLICY: Policy = Policy::ALL[POLICY];
}

impl<const POLICY: usize> Default for Ours<POLICY> {
    fn default() -> Self {
        // Else the first thread that has to wait would find out about the machine.
        poundlock_linux::init();
        Ours(RawRwLock::new())
    }
}

impl<const POLICY: usize> RwLock for Ours<POLICY> {
    type Place = ();

    #[inline(always)]
    fn read_lock(&self, (): &mut ()) -> c_int {
        self.0.lock_read(Self::POLICY);
        0
    }

    #[inline(always)]
    fn read_unlock(&self, (): &mut ()) -> c_int {
        self.0.unlock_read();
        0
    }

    #[inline(always)]
    fn write_lock(&self, (): &mut ()) -> c_int {
        self.0.lock_write(Self::POLICY);
        0
    }

    #[inline(always)]
    fn write_unlock(&self, (): &mut ()) -> c_int {
        self.0.unlock_write();
        0
    }
}

/// The mutex, for readers too.
impl RwLock for BargingType {
    type Place = ();

    #[inline(always)]
    fn read_lock(&self, place: &mut ()) -> c_int {
        self.lock(place)
    }

    #[inline(always)]
    fn read_unlock(&self, place: &mut ()) -> c_int {
        self.unlock(place)
    }

    #[inline(always)]
    fn write_lock(&self, place: &mut ()) -> c_int {
        self.lock(place)
    }

    #[inline(always)]
    fn write_unlock(&self, place: &mut ()) -> c_int {
        self.unlock(place)
    }
}

/// parking_lot's as Rust code uses it.
#[repr(align(128))]
pub(crate) struct ParkingLot(parking_lot::RawRwLock);

impl Default for ParkingLot {
    fn default() -> Self {
        ParkingLot(parking_lot::RawRwLock::INIT)
    }
}

impl RwLock for ParkingLot {
    type Place = ();

    #[inline(always)]
    fn read_lock(&self, (): &mut ()) -> c_int {
        self.0.lock_shared();
        0
    }

    #[inline(always)]
    fn read_unlock(&self, (): &mut ()) -> c_int {
        // SAFETY: the driver unlocks what it locked.
        unsafe { self.0.unlock_shared() };
        0
    }

    #[inline(always)]
    fn write_lock(&self, (): &mut ()) -> c_int {
        self.0.lock_exclusive();
        0
    }

    #[inline(always)]
    fn write_unlock(&self, (): &mut ()) -> c_int {
        // SAFETY: the driver unlocks what it locked.
        unsafe { self.0.unlock_exclusive() };
        0
    }
}

/// The standard library's as Rust code uses it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Std(std::sync::RwLock<()>);

impl Std {
    /// The lock, for guards that their threads keep.
    fn lasting(&self) -> &'static std::sync::RwLock<()> {
        // SAFETY: a driver drops what it keeps before it lets go of the lock.
        unsafe { &*ptr::from_ref(&self.0) }
    }
}

/// What a thread keeps of the standard library's lock.
#[derive(Default)]
pub(crate) struct Guards {
    read: Option<RwLockReadGuard<'static, ()>>,
    write: Option<RwLockWriteGuard<'static, ()>>,
}

impl RwLock for Std {
    type Place = Guards;

    #[inline(always)]
    fn read_lock(&self, place: &mut Guards) -> c_int {
        place.read = Some(self.lasting().read().unwrap_or_else(PoisonError::into_inner));
        0
    }

    #[inline(always)]
    fn read_unlock(&self, place: &mut Guards) -> c_int {
        if place.read.take().is_some() { 0 } else { libc::EPERM }
    }

    #[inline(always)]
    fn write_lock(&self, place: &mut Guards) -> c_int {
        place.write = Some(self.lasting().write().unwrap_or_else(PoisonError::into_inner));
        0
    }

    #[inline(always)]
    fn write_unlock(&self, place: &mut Guards) -> c_int {
        if place.write.take().is_some() { 0 } else { libc::EPERM }
    }
}

impl RwLock for CRw {
    type Place = ();

    #[inline(always)]
    fn read_lock(&self, (): &mut ()) -> c_int {
        // SAFETY: the lock lives as long as `self`.
        unsafe { (self.abi.read_lock)(self.as_ptr()) }
    }

    #[inline(always)]
    fn read_unlock(&self, (): &mut ()) -> c_int {
        // SAFETY: the lock lives as long as `self`; the driver unlocks what it locked.
        unsafe { (self.abi.unlock)(self.as_ptr()) }
    }

    #[inline(always)]
    fn write_lock(&self, (): &mut ()) -> c_int {
        // SAFETY: the lock lives as long as `self`.
        unsafe { (self.abi.write_lock)(self.as_ptr()) }
    }

    #[inline(always)]
    fn write_unlock(&self, (): &mut ()) -> c_int {
        // SAFETY: as for `read_unlock`.
        unsafe { (self.abi.unlock)(self.as_ptr()) }
    }
}

/// A lock of the table, behind its pointers.
pub(crate) struct Called {
    calls: rw::Calls,
    lock: Instance,
}

/// Room for what a lock of the table wants from each thread; zeroed.
#[repr(align(128))]
pub(crate) struct Node([u8; Node::ROOM]);

impl Node {
    const ROOM: usize = 256;

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

impl Default for Node {
    fn default() -> Self {
        Node([0; Node::ROOM])
    }
}

impl Called {
    /// The lock of this name.
    ///
    /// # Errors
    /// If there is none, or if it is not there.
    pub(crate) fn new(name: &str) -> Result<Called> {
        let peer = match rw::find(name) {
            Some(Ok(peer)) => peer,
            Some(Err(absent)) => return Err(Error::Library(absent.why)),
            None => return Err(Error::Options(format!("no readers-writer lock is called '{name}'"))),
        };
        let calls = peer.calls;
        if calls.write.node > Node::ROOM {
            return Err(Error::Options(format!("{name} wants {} bytes of each thread", calls.write.node)));
        }
        Ok(Called { calls, lock: Instance::new(&calls.write) })
    }
}

impl RwLock for Called {
    type Place = Node;

    #[inline(always)]
    fn read_lock(&self, place: &mut Node) -> c_int {
        // SAFETY: lock and node live and are large enough; the driver does not move a place from the lock to the unlock.
        unsafe { (self.calls.read_lock)(self.lock.as_ptr(), place.as_ptr()) };
        0
    }

    #[inline(always)]
    fn read_unlock(&self, place: &mut Node) -> c_int {
        // SAFETY: as above; the driver unlocks what it locked, with the same place.
        unsafe { (self.calls.read_unlock)(self.lock.as_ptr(), place.as_ptr()) };
        0
    }

    #[inline(always)]
    fn write_lock(&self, place: &mut Node) -> c_int {
        // SAFETY: as for `read_lock`.
        unsafe { (self.calls.write.lock)(self.lock.as_ptr(), place.as_ptr()) };
        0
    }

    #[inline(always)]
    fn write_unlock(&self, place: &mut Node) -> c_int {
        // SAFETY: as for `read_unlock`.
        unsafe { (self.calls.write.unlock)(self.lock.as_ptr(), place.as_ptr()) };
        0
    }
}

/// An addition and a subtraction for a reader, a compare-and-swap and a store for a writer: the least that a lock does that
/// counts its readers.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct BareCount(AtomicU32);

impl BareCount {
    const WRITER: u32 = 1 << 31;
}

impl RwLock for BareCount {
    type Place = ();

    #[inline(always)]
    fn read_lock(&self, (): &mut ()) -> c_int {
        if self.0.fetch_add(1, Acquire) < Self::WRITER { 0 } else { libc::EBUSY }
    }

    #[inline(always)]
    fn read_unlock(&self, (): &mut ()) -> c_int {
        if self.0.fetch_sub(1, Release) != 0 { 0 } else { libc::EPERM }
    }

    #[inline(always)]
    fn write_lock(&self, (): &mut ()) -> c_int {
        match self.0.compare_exchange(0, Self::WRITER, Acquire, Relaxed) {
            Ok(_) => 0,
            Err(_) => libc::EBUSY,
        }
    }

    #[inline(always)]
    fn write_unlock(&self, (): &mut ()) -> c_int {
        self.0.store(0, Release);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_count_excludes() {
        let lock = BareCount::default();
        assert_eq!((lock.read_lock(&mut ()), lock.read_lock(&mut ())), (0, 0));
        assert_eq!(lock.write_lock(&mut ()), libc::EBUSY);
        assert_eq!((lock.read_unlock(&mut ()), lock.read_unlock(&mut ())), (0, 0));
        assert_eq!(lock.write_lock(&mut ()), 0);
        assert_eq!(lock.read_lock(&mut ()), libc::EBUSY);
    }

    #[test]
    fn guards_are_kept_from_the_lock_to_the_unlock() {
        let (lock, mut place) = (Std::default(), Guards::default());
        assert_eq!(lock.read_unlock(&mut place), libc::EPERM);
        assert_eq!(lock.read_lock(&mut place), 0);
        assert!(lock.0.try_write().is_err());
        assert_eq!((lock.read_unlock(&mut place), lock.write_lock(&mut place)), (0, 0));
        assert!(lock.0.try_read().is_err());
        assert_eq!(lock.write_unlock(&mut place), 0);
        assert!(lock.0.try_write().is_ok());
    }

    #[test]
    fn a_policy_is_its_number() {
        assert_eq!(Policy::ALL.map(|policy| policy as usize), [0, 1, 2]);
    }

    #[test]
    fn a_name_that_is_none_says_so() {
        let error = Called::new("no-lock").err().expect("there is no such lock").to_string();
        assert!(error.contains("'no-lock'"), "{error}");
    }
}
