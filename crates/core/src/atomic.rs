//! The atomics of a platform.

use core::sync::atomic::Ordering;

/// The atomics that locks and records are made of.
pub trait Atomics: Sized + 'static {
    /// A 32-bit atomic.
    type U32: Split;
    /// A pointer-sized atomic.
    type Usize: Atomic<usize>;
}

/// An atomic cell of a platform: the operations of `core::sync::atomic`, with the same meaning.
pub trait Atomic<T: Copy>: Send + Sync {
    /// A cell that holds `value`.
    fn new(value: T) -> Self;
    /// Reads.
    #[track_caller]
    fn load(&self, order: Ordering) -> T;
    /// Writes.
    #[track_caller]
    fn store(&self, value: T, order: Ordering);
    /// Writes and returns what was there.
    #[track_caller]
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if `current` is there.
    ///
    /// # Errors
    /// The value that was there instead.
    #[track_caller]
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
    /// Writes what `next` makes of what is there, as often as that changes; returns what was there. An access
    /// that writes nothing is relaxed.
    ///
    /// # Errors
    /// What is there and `next` makes nothing of.
    #[inline(always)]
    #[track_caller]
    fn update(&self, success: Ordering, mut next: impl FnMut(T) -> Option<T>) -> Result<T, T> {
        let mut seen = self.load(Ordering::Relaxed);
        while let Some(new) = next(seen) {
            match self.compare_exchange(seen, new, success, Ordering::Relaxed) {
                Ok(_) => return Ok(seen),
                Err(now) => seen = now,
            }
        }
        Err(seen)
    }
    /// Adds, wrapping, and returns what was there.
    #[track_caller]
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Bitwise and; returns what was there.
    #[track_caller]
    fn fetch_and(&self, value: T, order: Ordering) -> T;
    /// Bitwise or; returns what was there.
    #[track_caller]
    fn fetch_or(&self, value: T, order: Ordering) -> T;
}

/// A 32-bit atomic whose low byte and halves can be accessed by themselves, for a lock word that is several
/// fields.
///
/// Each operation acts on the whole word as one atomic step that leaves the other bits as they are. A
/// platform with narrow accesses uses those: the operations exist for that. As they are here they are
/// read-modify-writes of the word, which mean the same and cost more. "Low" counts from the least significant
/// bit, whatever the byte order.
pub trait Split: Atomic<u32> {
    /// Writes bits 0 to 7.
    #[inline(always)]
    #[track_caller]
    fn store_low_byte(&self, value: u8, order: Ordering) {
        let _ = self.update(order, |seen| Some(seen & !0xff | u32::from(value)));
    }

    /// Writes bits 0 to 7 if they hold `current`.
    ///
    /// # Errors
    /// The bits that were there instead.
    #[track_caller]
    fn compare_exchange_low_byte(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        let mut seen = self.load(failure);
        while seen as u8 == current {
            match self.compare_exchange(seen, seen & !0xff | u32::from(new), success, failure) {
                Ok(_) => return Ok(current),
                Err(now) => seen = now,
            }
        }
        Err(seen as u8)
    }

    /// Writes bits 0 to 15.
    #[inline(always)]
    #[track_caller]
    fn store_low_half(&self, value: u16, order: Ordering) {
        let _ = self.update(order, |seen| Some(seen & !0xffff | u32::from(value)));
    }

    /// Writes bits 16 to 31 and returns what was there.
    #[inline(always)]
    #[track_caller]
    fn swap_high_half(&self, value: u16, order: Ordering) -> u16 {
        let before = self.update(order, |seen| Some(seen & 0xffff | u32::from(value) << 16));
        (before.unwrap_or_default() >> 16) as u16
    }

    /// If bits 8 to 31 are those of `idle`, writes `held` to bits 0 to 7, provided that these are those of
    /// `idle`, too; returns whether it did. Acquire. Two steps: other threads' accesses may come between.
    #[inline(always)]
    #[track_caller]
    fn take_low_byte(&self, idle: u32, held: u8) -> bool {
        (self.load(Ordering::Relaxed) ^ idle) & !0xff == 0
            && self.compare_exchange_low_byte(idle as u8, held, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Looks whether bits 0 to 7 hold those of `expected`, then bits 8 to 15, and if so stores 0 to bits 0 to
    /// 7, with release ordering; returns whether it did. Three steps: other threads' accesses may come
    /// between.
    #[inline(always)]
    #[track_caller]
    fn release_low_byte(&self, expected: u16) -> bool {
        let expected = u32::from(expected);
        let fits = (self.load(Ordering::Relaxed) ^ expected) & 0xff == 0
            && (self.load(Ordering::Relaxed) ^ expected) & 0xff00 == 0;
        if fits {
            self.store_low_byte(0, Ordering::Release);
        }
        fits
    }
}

/// Atomics that can be made in a constant, and what consists of them: all except a model checker's.
pub trait ConstAtomic {
    /// Zero bytes. Each use of the constant is an object of its own.
    const ZERO: Self;
}

impl<T> ConstAtomic for core::marker::PhantomData<T> {
    const ZERO: Self = Self;
}

/// Atomics that are the language's.
#[doc(hidden)]
#[macro_export]
macro_rules! native_atomics {
    ($($(#[$doc:meta])* $visibility:vis $name:ident($atomic:ident): $value:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        $visibility struct $name(pub(crate) ::core::sync::atomic::$atomic);

        impl $crate::platform::ConstAtomic for $name {
            // Each use of the constant makes a new cell, as intended.
            const ZERO: Self = $name(::core::sync::atomic::$atomic::new(0));
        }

        impl $crate::platform::Atomic<$value> for $name {
            #[inline(always)]
            fn new(value: $value) -> Self {
                $name(::core::sync::atomic::$atomic::new(value))
            }
            #[inline(always)]
            fn load(&self, order: ::core::sync::atomic::Ordering) -> $value {
                self.0.load(order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: ::core::sync::atomic::Ordering,
                failure: ::core::sync::atomic::Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, success, failure)
            }
            $crate::native_atomics! {
                @ $value: store -> (); swap -> $value; fetch_add -> $value; fetch_and -> $value; fetch_or -> $value;
            }
        }
    )*};
    (@ $value:ty: $($operation:ident -> $result:ty;)*) => {$(
        #[inline(always)]
        fn $operation(&self, value: $value, order: ::core::sync::atomic::Ordering) -> $result {
            self.0.$operation(value, order)
        }
    )*};
}

/// The ways to make something whose words are zero at first, and whose parts are such things: `Default`, and
/// [`ConstAtomic`] and with it `new` where the platform's atomics are.
macro_rules! zeroed {
    (
        $name:ident<$P:ident: $bound:path $(, $Q:ident: $also:path)?>:
        $doc:literal, [$($word:ident)*] $($part:ident)*
    ) => {
        $crate::atomic::zeroed! { $name<$P: $bound $(, $Q: $also)?>: [$($word)*] $($part)* }

        impl<$P: $bound $(, $Q: $also)?> $name<$P $(, $Q)?>
        where
            $P::U32: $crate::atomic::ConstAtomic,
        {
            #[doc = $doc]
            pub const fn new() -> Self {
                $crate::atomic::ConstAtomic::ZERO
            }
        }
    };
    ($name:ident<$P:ident: $bound:path $(, $Q:ident: $also:path)?>: [$($word:ident)*] $($part:ident)*) => {
        impl<$P: $bound $(, $Q: $also)?> Default for $name<$P $(, $Q)?> {
            fn default() -> Self {
                $name { $($word: $crate::atomic::Atomic::new(0),)* $($part: Default::default(),)* }
            }
        }

        impl<$P: $bound $(, $Q: $also)?> $crate::atomic::ConstAtomic for $name<$P $(, $Q)?>
        where
            $P::U32: $crate::atomic::ConstAtomic,
        {
            const ZERO: Self = $name {
                $($word: $crate::atomic::ConstAtomic::ZERO,)*
                $($part: $crate::atomic::ConstAtomic::ZERO,)*
            };
        }
    };
}
pub(crate) use zeroed;
