//! What the locks with one holder at a time have in common.

use poundlock_core::handoff::{Fixed, RawHandoff};
use poundlock_core::platform::Deadline;
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::qspin::{ChosenForm, RawSpin};
use poundlock_linux::Linux;

/// A lock of `poundlock-core`'s.
pub(crate) trait Exclusive {
    /// Unlocked.
    const NEW: Self;
    fn lock(&self);
    fn try_lock(&self) -> bool;
    fn unlock(&self);
    fn is_locked(&self) -> bool;
}

/// ... whose waiters can give up.
pub(crate) trait Timed: Exclusive {
    fn lock_until(&self, deadline: &Deadline) -> bool;
}

impl Exclusive for RawPoundlock<Linux> {
    const NEW: Self = RawPoundlock::new();

    #[inline(always)]
    fn lock(&self) {
        self.lock();
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.try_lock()
    }

    #[inline(always)]
    fn unlock(&self) {
        self.unlock();
    }

    fn is_locked(&self) -> bool {
        self.is_locked()
    }
}

impl Timed for RawPoundlock<Linux> {
    #[inline(always)]
    fn lock_until(&self, deadline: &Deadline) -> bool {
        self.lock_until(deadline).is_ok()
    }
}

impl Exclusive for RawHandoff<Linux> {
    const NEW: Self = RawHandoff::new();

    #[inline(always)]
    fn lock(&self) {
        self.lock::<Fixed>();
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.try_lock()
    }

    #[inline(always)]
    fn unlock(&self) {
        self.unlock();
    }

    fn is_locked(&self) -> bool {
        self.is_locked()
    }
}

impl Timed for RawHandoff<Linux> {
    #[inline(always)]
    fn lock_until(&self, deadline: &Deadline) -> bool {
        self.lock_until::<Fixed>(deadline)
    }
}

/// A spinlock whose waiters wait in one way.
pub(crate) struct Spin<F> {
    raw: RawSpin<Linux>,
    _form: core::marker::PhantomData<fn() -> F>,
}

impl<F: ChosenForm> Exclusive for Spin<F> {
    const NEW: Self = Spin { raw: RawSpin::new(), _form: core::marker::PhantomData };

    #[inline(always)]
    fn lock(&self) {
        self.raw.lock::<F>();
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.raw.try_lock::<F>()
    }

    #[inline(always)]
    fn unlock(&self) {
        self.raw.unlock::<F>();
    }

    fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

/// `lock_api`'s traits for a type with a field `raw` that is [`Exclusive`], and a `slot` in the statistics.
macro_rules! impl_lock_api {
    ($kind:ident: [$($generics:tt)*] $name:ty) => {
        // SAFETY: the lock excludes: EXCLUSION in its file.
        unsafe impl<$($generics)*> lock_api::RawMutex for $name {
            const INIT: Self = Self { raw: Exclusive::NEW, slot: Slot::new() };

            type GuardMarker = crate::GuardMarker;

            #[inline]
            fn lock(&self) {
                let wait = || {
                    Exclusive::lock(&self.raw);
                    true
                };
                self.slot.acquire(Kind::$kind, Patience::Endless, || Exclusive::try_lock(&self.raw), wait);
            }

            #[inline]
            fn try_lock(&self) -> bool {
                self.slot.try_acquire(Kind::$kind, || Exclusive::try_lock(&self.raw))
            }

            #[inline]
            unsafe fn unlock(&self) {
                self.slot.release(Kind::$kind);
                Exclusive::unlock(&self.raw);
            }

            #[inline]
            fn is_locked(&self) -> bool {
                Exclusive::is_locked(&self.raw)
            }
        }
    };
    (timed $kind:ident: $name:ty) => {
        impl_lock_api!($kind: [] $name);

        // SAFETY: true is returned only by a call that has acquired it.
        unsafe impl lock_api::RawMutexTimed for $name {
            type Duration = std::time::Duration;
            type Instant = std::time::Instant;

            fn try_lock_for(&self, timeout: std::time::Duration) -> bool {
                let at_once = || Exclusive::try_lock(&self.raw);
                self.slot.acquire(Kind::$kind, Patience::UntilSomeTime, at_once, || {
                    at_once() || Timed::lock_until(&self.raw, &crate::time::after(timeout))
                })
            }

            fn try_lock_until(&self, timeout: std::time::Instant) -> bool {
                let at_once = || Exclusive::try_lock(&self.raw);
                self.slot.acquire(Kind::$kind, Patience::UntilSomeTime, at_once, || {
                    at_once() || Timed::lock_until(&self.raw, &crate::time::at(timeout))
                })
            }
        }
    };
}

pub(crate) use impl_lock_api;
