//! A platform for tests of what one thread does to a list or a queue: it has plain atomics, records, and
//! nothing that waits.

extern crate std;

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::LazyLock;
use std::vec::Vec;

use crate::atomic::{Atomic, Atomics, Split};
use crate::events::Observer;
use crate::platform::{Deadline, Platform, Running, Spin, Until, Waited};
use crate::record::Record;

macro_rules! atomics {
    ($($name:ident: $atomic:ident, $value:ident;)*) => {$(
        pub(crate) struct $name($atomic);

        impl Atomic<$value> for $name {
            fn new(value: $value) -> Self {
                $name($atomic::new(value))
            }
            fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, order)
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, success, failure)
            }
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, order)
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_and(value, order)
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_or(value, order)
            }
        }
    )*};
}

atomics! {
    U32: AtomicU32, u32;
    Usize: AtomicUsize, usize;
}

/// No list has such a word.
impl Split for U32 {
    fn store_low_byte(&self, _: u8, _: Ordering) {
        unreachable!()
    }
    fn compare_exchange_low_byte(&self, _: u8, _: u8, _: Ordering, _: Ordering) -> Result<u8, u8> {
        unreachable!()
    }
    fn store_low_half(&self, _: u16, _: Ordering) {
        unreachable!()
    }
    fn swap_high_half(&self, _: u16, _: Ordering) -> u16 {
        unreachable!()
    }
}

pub(crate) struct NoSpin;

impl Spin for NoSpin {
    fn fresh() -> Self {
        NoSpin
    }
    fn spin(&mut self) -> bool {
        false
    }
}

pub(crate) struct Lists;

/// How many records there are. Each test takes some for itself.
pub(crate) const RECORDS: u32 = 64;

impl Atomics for Lists {
    type U32 = U32;
    type Usize = Usize;
}

impl Observer for Lists {}

impl Platform for Lists {
    type Spin = NoSpin;

    fn relax() {}
    fn stall(_: u32) {}
    fn wait(_: &U32, _: u32, _: Until<'_>) -> Waited {
        unreachable!("nobody waits")
    }
    fn wake(_: *const U32, _: u32) {}
    fn expired(_: &Deadline) -> bool {
        false
    }
    fn current() -> Option<u32> {
        None
    }
    fn record(index: u32) -> &'static Record<Self> {
        static ALL: LazyLock<Vec<Record<Lists>>> =
            LazyLock::new(|| (0..RECORDS).map(|_| Record::default()).collect());
        &ALL[index as usize]
    }
    fn tag() -> u32 {
        0
    }
    fn running(_: u32) -> Running {
        Running::Unknown
    }
    fn epoch() -> u32 {
        0
    }
}

/// Numbers that differ and are the same each time (xorshift).
pub(crate) struct Numbers(pub(crate) u32);

impl Numbers {
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % limit
    }
}
