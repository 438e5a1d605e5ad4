//! Atomics of the simulated machine.
//!
//! One operating-system thread runs all threads of a simulation, and each access takes its effect between two
//! of the engine's steps: the machine is sequentially consistent, whatever ordering is asked for. (What
//! weaker orderings allow is loom's to explore.) Values are of the size that they have on Linux, so that
//! objects which share a line there share one here.

use core::cell::Cell;
use core::panic::Location;
use core::sync::atomic::Ordering;

use poundlock_core::platform::{Atomic, ConstAtomic, Split};

use crate::cache::Access;
use crate::engine::Engine;
use crate::profile::Step;

macro_rules! cell {
    ($name:ident, $value:ty, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(Cell<$value>);

        // SAFETY: all threads of a simulation are coroutines of one operating-system thread, which is the
        // only one that reaches its cells; `Sync` is what `Atomic` asks for, since it is written for real
        // threads.
        unsafe impl Sync for $name {}
        // SAFETY: as above.
        unsafe impl Send for $name {}

        impl $name {
            #[track_caller]
            fn touch(&self, access: Access, narrow: bool, operation: &'static str) {
                let step = Step { operation, at: Location::caller() };
                Engine::try_with(|engine| engine.access(self.0.as_ptr().addr(), access, narrow, step));
            }

            /// The value, for a checker: no step of the simulation.
            pub fn peek(&self) -> $value {
                self.0.get()
            }

            #[track_caller]
            fn modify(&self, operation: &'static str, change: impl FnOnce($value) -> $value) -> $value {
                self.touch(Access::Modify, false, operation);
                let before = self.0.get();
                self.0.set(change(before));
                before
            }
        }

        impl ConstAtomic for $name {
            const ZERO: Self = $name(Cell::new(0));
        }

        impl Atomic<$value> for $name {
            fn new(value: $value) -> Self {
                $name(Cell::new(value))
            }

            #[track_caller]
            fn load(&self, _order: Ordering) -> $value {
                self.touch(Access::Load, false, "load");
                self.0.get()
            }

            #[track_caller]
            fn store(&self, value: $value, _order: Ordering) {
                self.touch(Access::Store, false, "store");
                self.0.set(value);
            }

            #[track_caller]
            fn swap(&self, value: $value, _order: Ordering) -> $value {
                self.modify("swap", |_| value)
            }

            #[track_caller]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _success: Ordering,
                _failure: Ordering,
            ) -> Result<$value, $value> {
                // It takes exclusive ownership of the line whether it succeeds or not.
                let before =
                    self.modify("compare_exchange", |before| if before == current { new } else { before });
                if before == current { Ok(before) } else { Err(before) }
            }

            #[track_caller]
            fn fetch_add(&self, value: $value, _order: Ordering) -> $value {
                self.modify("fetch_add", |before| before.wrapping_add(value))
            }

            #[track_caller]
            fn fetch_and(&self, value: $value, _order: Ordering) -> $value {
                self.modify("fetch_and", |before| before & value)
            }

            #[track_caller]
            fn fetch_or(&self, value: $value, _order: Ordering) -> $value {
                self.modify("fetch_or", |before| before | value)
            }
        }
    };
}

cell!(U32, u32, "A 32-bit atomic of the simulated machine.");
cell!(Usize, usize, "A pointer-sized atomic of the simulated machine.");

impl U32 {
    /// Stores 0 unless `unless` has been set meanwhile; whether it did.
    #[track_caller]
    pub(crate) fn release_unless(&self, unless: &U32) -> bool {
        self.touch(Access::Store, false, "release");
        let free = unless.peek() == 0;
        if free {
            self.0.set(0);
        }
        free
    }

    #[track_caller]
    fn modify_part(&self, operation: &'static str, change: impl FnOnce(u32) -> u32) -> u32 {
        self.touch(Access::Modify, true, operation);
        let before = self.0.get();
        self.0.set(change(before));
        before
    }
}

impl Split for U32 {
    #[track_caller]
    fn store_low_byte(&self, value: u8, _order: Ordering) {
        self.touch(Access::Store, true, "store_low_byte");
        self.0.set(self.0.get() & !0xff | u32::from(value));
    }

    #[track_caller]
    fn compare_exchange_low_byte(
        &self,
        current: u8,
        new: u8,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<u8, u8> {
        let before = self.modify_part("compare_exchange_low_byte", |before| {
            if before as u8 == current { before & !0xff | u32::from(new) } else { before }
        }) as u8;
        if before == current { Ok(before) } else { Err(before) }
    }

    #[track_caller]
    fn store_low_half(&self, value: u16, _order: Ordering) {
        self.touch(Access::Store, true, "store_low_half");
        self.0.set(self.0.get() & !0xffff | u32::from(value));
    }

    #[track_caller]
    fn swap_high_half(&self, value: u16, _order: Ordering) -> u16 {
        (self.modify_part("swap_high_half", |before| before & 0xffff | u32::from(value) << 16) >> 16) as u16
    }

    // One access each, of the word as it is then: the looks before are at the line that the access is about
    // to own.

    #[track_caller]
    fn take_low_byte(&self, idle: u32, held: u8) -> bool {
        let taken = idle & !0xff | u32::from(held);
        self.modify_part("take_low_byte", |before| if before == idle { taken } else { before }) == idle
    }

    #[track_caller]
    fn release_low_byte(&self, expected: u16) -> bool {
        let fits = self.load(Ordering::Relaxed) as u16 == expected;
        if fits {
            self.store_low_byte(0, Ordering::Release);
        }
        fits
    }
}
