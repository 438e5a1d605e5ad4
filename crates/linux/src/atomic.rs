//! The platform's atomics: those of the language.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use poundlock_core::platform::{Atomic, ConstAtomic};

macro_rules! native {
    ($cell:ident, $value:ty, $wrapper:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $wrapper(pub(crate) $cell);

        impl ConstAtomic for $wrapper {
            // Each use of the constant makes a new cell, which is what it is for.
            const ZERO: Self = $wrapper($cell::new(0));
        }

        impl Atomic<$value> for $wrapper {
            #[inline(always)]
            fn new(value: $value) -> Self {
                $wrapper($cell::new(value))
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, success, failure)
            }
            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_and(value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_or(value, order)
            }
        }
    };
}

native!(AtomicU32, u32, U32, "A 32-bit atomic.");
native!(AtomicUsize, usize, Usize, "A pointer-sized atomic.");
