//! The mutex that its holder may lock again.

use core::num::NonZeroUsize;

use crate::mutex::RawFairMutex;

thread_local! {
    /// Its address is the thread's.
    static HERE: u8 = const { 0 };
}

/// Tells threads apart, for [`ReentrantMutex`]: by an address in the thread's own storage, which is one
/// instruction away in a program and a call in a shared library. A forked child's thread keeps its parent's.
///
/// ```
/// use poundlock::RawThreadId;
/// use poundlock::lock_api::GetThreadId;
///
/// let here = RawThreadId::INIT.nonzero_thread_id();
/// let other = std::thread::scope(|scope| scope.spawn(|| RawThreadId.nonzero_thread_id()).join());
/// assert_eq!(here, RawThreadId.nonzero_thread_id());
/// assert_ne!(here, other.unwrap());
/// ```
pub struct RawThreadId;

// SAFETY: two threads that live at one time have different storage, and no object lies at 0.
unsafe impl lock_api::GetThreadId for RawThreadId {
    const INIT: RawThreadId = RawThreadId;

    #[inline]
    fn nonzero_thread_id(&self) -> NonZeroUsize {
        HERE.with(|here| NonZeroUsize::from(core::ptr::NonNull::from(here).addr()))
    }
}

/// A mutex that the thread which holds it may lock again; fair as [`FairMutex`](crate::FairMutex) is. 40
/// bytes and the value, of which the guard gives a shared reference only: there may be several guards.
///
/// See [`lock_api::ReentrantMutex`].
///
/// ```
/// use std::cell::Cell;
/// use poundlock::ReentrantMutex;
///
/// static DEPTH: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(0));
///
/// fn descend(levels: u32) {
///     let depth = DEPTH.lock();
///     depth.set(depth.get() + 1);
///     if levels > 1 {
///         descend(levels - 1);
///     }
/// }
/// descend(3);
/// assert_eq!(DEPTH.lock().get(), 3);
/// ```
pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawFairMutex, RawThreadId, T>;

/// Undoes one locking of a [`ReentrantMutex`] when it is dropped, and is the way to its value. Stays on its
/// thread, whatever the features.
///
/// ```
/// use poundlock::{ReentrantMutex, ReentrantMutexGuard};
///
/// let name = ReentrantMutex::new("outer");
/// let outer: ReentrantMutexGuard<'_, &str> = name.lock();
/// let inner = name.try_lock().expect("by the same thread");
/// assert_eq!(*outer, *inner);
/// ```
pub type ReentrantMutexGuard<'a, T> = lock_api::ReentrantMutexGuard<'a, RawFairMutex, RawThreadId, T>;

/// Made by [`ReentrantMutexGuard::map`](lock_api::ReentrantMutexGuard::map), for a part of the value.
///
/// ```
/// use poundlock::{MappedReentrantMutexGuard, ReentrantMutex, ReentrantMutexGuard};
///
/// let pair = ReentrantMutex::new((1, 2));
/// let second: MappedReentrantMutexGuard<'_, i32> = ReentrantMutexGuard::map(pair.lock(), |pair| &pair.1);
/// assert_eq!(*second, 2);
/// ```
pub type MappedReentrantMutexGuard<'a, T> =
    lock_api::MappedReentrantMutexGuard<'a, RawFairMutex, RawThreadId, T>;

/// Made by [`ReentrantMutex::lock_arc`](lock_api::ReentrantMutex::lock_arc): keeps the mutex alive.
///
/// ```
/// use std::sync::Arc;
/// use poundlock::{ArcReentrantMutexGuard, ReentrantMutex};
///
/// let guard: ArcReentrantMutexGuard<u32> = Arc::new(ReentrantMutex::new(7)).lock_arc();
/// assert_eq!(*guard, 7);
/// ```
pub type ArcReentrantMutexGuard<T> = lock_api::ArcReentrantMutexGuard<RawFairMutex, RawThreadId, T>;
