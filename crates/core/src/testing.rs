//! A platform for tests of what one thread does to a list or a queue: it has plain atomics, records, and
//! nothing that waits.

extern crate std;

use std::sync::LazyLock;
use std::vec::Vec;

use crate::atomic::{Atomics, Split};
use crate::events::Observer;
use crate::platform::{Deadline, Platform, Running, Spin, Until, Waited};
use crate::record::Record;

crate::native_atomics! {
    pub(crate) U32(AtomicU32): u32;
    pub(crate) Usize(AtomicUsize): usize;
}

impl Split for U32 {}

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
