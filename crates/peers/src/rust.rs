//! Locks of Rust programs.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Calls, Entry, Made, built, rw};

/// A lock that is to be put behind C functions.
pub(crate) trait Lock: Sized + 'static {
    /// What a thread keeps from the lock to the unlock, in its node.
    type Kept;

    /// An unlocked lock.
    fn new() -> Self;

    /// Acquires it.
    fn lock(&'static self) -> Self::Kept;

    /// Releases it.
    ///
    /// # Safety
    /// The calling thread holds the lock, and `kept` is what it got for it.
    unsafe fn unlock(&'static self, kept: Self::Kept);
}

/// The functions of a lock, compiled for it alone.
pub(crate) const fn calls<L: Lock>() -> Calls {
    assert!(align_of::<L::Kept>() <= 64, "a node has no more");
    assert!(size_of::<L>() > 0, "a lock that is nowhere");
    Calls {
        size: size_of::<L>(),
        align: align_of::<L>(),
        node: size_of::<L::Kept>(),
        init: init::<L>,
        lock: lock::<L>,
        unlock: unlock::<L>,
        destroy: destroy::<L>,
    }
}

/// A readers-writer lock as its writers have it.
#[repr(transparent)]
pub(crate) struct Writing<T>(pub(crate) T);

/// The same as its readers have it.
#[repr(transparent)]
pub(crate) struct Reading<T>(pub(crate) T);

/// The functions of a readers-writer lock.
pub(crate) const fn rw_calls<T>() -> rw::Calls
where
    Writing<T>: Lock,
    Reading<T>: Lock,
{
    let (write, read) = (calls::<Writing<T>>(), calls::<Reading<T>>());
    let node = if write.node > read.node { write.node } else { read.node };
    rw::Calls { write: Calls { node, ..write }, read_lock: read.lock, read_unlock: read.unlock }
}

// A lock is borrowed for as long as the program runs, which is more than it lives. Nothing is done with the
// borrow after the unlock, and what is kept of it until then lies in the node; the callers answer for the
// lock's life to that point (see `Calls`).

unsafe extern "C" fn init<L: Lock>(lock: *mut c_void) {
    // SAFETY: the caller brings memory of the lock's size and alignment.
    unsafe { lock.cast::<L>().write(L::new()) };
}

unsafe extern "C" fn lock<L: Lock>(lock: *mut c_void, node: *mut c_void) {
    // SAFETY: the caller brings an initialised lock.
    let kept = unsafe { &*lock.cast::<L>() }.lock();
    if const { size_of::<L::Kept>() > 0 } {
        // SAFETY: the caller brings a node of this size, 64-byte aligned, which holds nothing: it was zeroed,
        // or read last.
        unsafe { node.cast::<L::Kept>().write(kept) };
    }
}

unsafe extern "C" fn unlock<L: Lock>(lock: *mut c_void, node: *mut c_void) {
    let kept = if const { size_of::<L::Kept>() > 0 } {
        node.cast::<L::Kept>()
    } else {
        std::ptr::NonNull::dangling().as_ptr()
    };
    // SAFETY: the caller holds the lock, and brings the node that `lock` wrote what it kept to; it is read
    // once. Where that is nothing, any aligned address has it.
    unsafe { (*lock.cast::<L>()).unlock(kept.read()) };
}

unsafe extern "C" fn destroy<L: Lock>(lock: *mut c_void) {
    // SAFETY: the caller brings an initialised lock for the last time.
    unsafe { lock.cast::<L>().drop_in_place() };
}

/// The standard library's. It can only be unlocked by its guard, which says whether its thread was panicking:
/// it is kept in the thread's node, where a Rust program has it on its stack. That costs two stores and two
/// loads of a line that is the thread's alone.
impl Lock for Mutex<()> {
    type Kept = MutexGuard<'static, ()>;

    fn new() -> Self {
        Mutex::new(())
    }

    #[inline(always)]
    fn lock(&'static self) -> Self::Kept {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, kept: Self::Kept) {
        drop(kept);
    }
}

/// As for the mutex.
impl Lock for Writing<RwLock<()>> {
    type Kept = RwLockWriteGuard<'static, ()>;

    fn new() -> Self {
        Writing(RwLock::new(()))
    }

    #[inline(always)]
    fn lock(&'static self) -> Self::Kept {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, kept: Self::Kept) {
        drop(kept);
    }
}

impl Lock for Reading<RwLock<()>> {
    type Kept = RwLockReadGuard<'static, ()>;

    fn new() -> Self {
        Reading(RwLock::new(()))
    }

    #[inline(always)]
    fn lock(&'static self) -> Self::Kept {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, kept: Self::Kept) {
        drop(kept);
    }
}

/// The locks of a crate that also offers them without a guard, by `lock_api`, as they are used where locks
/// are put into other types.
#[cfg(any(feature = "parking_lot", feature = "usync"))]
macro_rules! raw {
    ($from:ident) => {
        impl Lock for $from::RawMutex {
            type Kept = ();

            fn new() -> Self {
                <Self as $from::lock_api::RawMutex>::INIT
            }

            #[inline(always)]
            fn lock(&'static self) {
                $from::lock_api::RawMutex::lock(self);
            }

            #[inline(always)]
            unsafe fn unlock(&'static self, (): ()) {
                // SAFETY: the caller holds the lock.
                unsafe { $from::lock_api::RawMutex::unlock(self) };
            }
        }

        impl Lock for Writing<$from::RawRwLock> {
            type Kept = ();

            fn new() -> Self {
                Writing($from::lock_api::RawRwLock::INIT)
            }

            #[inline(always)]
            fn lock(&'static self) {
                $from::lock_api::RawRwLock::lock_exclusive(&self.0);
            }

            #[inline(always)]
            unsafe fn unlock(&'static self, (): ()) {
                // SAFETY: the caller holds the lock, as a writer.
                unsafe { $from::lock_api::RawRwLock::unlock_exclusive(&self.0) };
            }
        }

        impl Lock for Reading<$from::RawRwLock> {
            type Kept = ();

            fn new() -> Self {
                Reading($from::lock_api::RawRwLock::INIT)
            }

            #[inline(always)]
            fn lock(&'static self) {
                $from::lock_api::RawRwLock::lock_shared(&self.0);
            }

            #[inline(always)]
            unsafe fn unlock(&'static self, (): ()) {
                // SAFETY: the caller holds the lock, as a reader.
                unsafe { $from::lock_api::RawRwLock::unlock_shared(&self.0) };
            }
        }
    };
}

#[cfg(feature = "parking_lot")]
raw!(parking_lot);
#[cfg(feature = "usync")]
raw!(usync);

/// Why a crate's lock is not there.
#[cfg(not(all(feature = "parking_lot", feature = "usync")))]
fn feature_is_off<C>(feature: &str) -> Made<C> {
    Err(format!("this build has its feature `{feature}` off"))
}

fn of_parking_lot() -> Made<Calls> {
    #[cfg(feature = "parking_lot")]
    return Ok((format!("crate parking_lot {}", built::PARKING_LOT), calls::<parking_lot::RawMutex>()));
    #[cfg(not(feature = "parking_lot"))]
    feature_is_off("parking_lot")
}

fn of_usync() -> Made<Calls> {
    #[cfg(feature = "usync")]
    return Ok((format!("crate usync {}", built::USYNC), calls::<usync::RawMutex>()));
    #[cfg(not(feature = "usync"))]
    feature_is_off("usync")
}

fn rw_of_parking_lot() -> Made<rw::Calls> {
    #[cfg(feature = "parking_lot")]
    return Ok((format!("crate parking_lot {}", built::PARKING_LOT), rw_calls::<parking_lot::RawRwLock>()));
    #[cfg(not(feature = "parking_lot"))]
    feature_is_off("parking_lot")
}

fn rw_of_usync() -> Made<rw::Calls> {
    #[cfg(feature = "usync")]
    return Ok((format!("crate usync {}", built::USYNC), rw_calls::<usync::RawRwLock>()));
    #[cfg(not(feature = "usync"))]
    feature_is_off("usync")
}

pub(crate) fn entries() -> [Entry; 3] {
    [
        Entry::new("std", "Rust's std::sync::Mutex, its guard kept in the thread's node", || {
            Ok((format!("Rust {}", built::RUST), calls::<Mutex<()>>()))
        }),
        Entry::new(
            "parking_lot",
            "parking_lot's RawMutex: a byte, its sleepers in a global hash table",
            of_parking_lot,
        ),
        Entry::new("usync", "usync's RawMutex: a word, its sleepers queued on their stacks", of_usync),
    ]
}

pub(crate) fn rw_entries() -> [Entry<rw::Calls>; 3] {
    [
        Entry::new("std", "Rust's std::sync::RwLock, its guards kept in the thread's node", || {
            Ok((format!("Rust {}", built::RUST), rw_calls::<RwLock<()>>()))
        }),
        Entry::new(
            "parking_lot",
            "parking_lot's RawRwLock: a word, its sleepers in a global hash table",
            rw_of_parking_lot,
        ),
        Entry::new("usync", "usync's RawRwLock: a word, its sleepers queued on their stacks", rw_of_usync),
    ]
}
