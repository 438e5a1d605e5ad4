//! loom's atomics behind [`Atomic`], where faults are planted and touches of dead memory are seen.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::AtomicUsize as Shadow;
use std::thread::panicking;

use loom::sync::atomic::AtomicU64;
use poundlock_core::platform::{Atomic, Split};

use crate::dormant;
use crate::world::{Fault, World};

/// An operation on an atomic, as [`Fault::Weaken`] names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `load`
    Load,
    /// `store`
    Store,
    /// `swap`
    Swap,
    /// `compare_exchange`, when it succeeds
    CompareExchange,
    /// `fetch_add`
    FetchAdd,
    /// `fetch_and`
    FetchAnd,
    /// `fetch_or`
    FetchOr,
}

/// `order` without its release half.
fn unreleased(order: Ordering) -> Ordering {
    match order {
        Release => Relaxed,
        AcqRel | SeqCst => Acquire,
        other => other,
    }
}

/// `order` without its acquire half.
fn unacquired(order: Ordering) -> Ordering {
    match order {
        Acquire => Relaxed,
        AcqRel | SeqCst => Release,
        other => other,
    }
}

/// What a load in place of a read-modify-write may be told.
fn order_of_load(order: Ordering) -> Ordering {
    match order {
        AcqRel | SeqCst => Acquire,
        order => unreleased(order),
    }
}

/// What a store in place of a read-modify-write may be told.
fn order_of_store(order: Ordering) -> Ordering {
    match order {
        AcqRel | SeqCst => Release,
        order => unacquired(order),
    }
}

/// The order that `fault` leaves of `order`.
fn planted(fault: Fault, operation: Operation, order: Ordering) -> Ordering {
    match fault {
        Fault::WeakRelease => unreleased(order),
        Fault::WeakAcquire => unacquired(order),
        Fault::Weaken(which) if which == operation => Relaxed,
        _ => order,
    }
}

fn releases(order: Ordering) -> bool {
    matches!(order, Release | AcqRel | SeqCst)
}

/// A value that no cell holds.
const NEVER: u64 = u64::MAX;

/// A cell of loom's, unless it is dormant: one of very many, of which an execution uses few, and loom is told
/// of those only (`crate::dormant`).
#[derive(Debug)]
struct Inner(UnsafeCell<Option<AtomicU64>>);

// SAFETY: it is changed by `wake_up` alone, before an execution uses it, and the threads of an execution are
// one of the operating system's.
unsafe impl Sync for Inner {}

impl Inner {
    fn awake(value: u64) -> Self {
        Inner(UnsafeCell::new(Some(AtomicU64::new(value))))
    }

    const fn dormant() -> Self {
        Inner(UnsafeCell::new(None))
    }

    fn get(&self) -> &AtomicU64 {
        // SAFETY: see above.
        let inner = unsafe { &*self.0.get() };
        inner.as_ref().expect("whoever comes here has asked whether it is dormant")
    }

    fn is_dormant(&self) -> bool {
        // SAFETY: see above.
        unsafe { &*self.0.get() }.is_none()
    }
}

macro_rules! cell {
    ($name:ident, $value:ty, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug)]
        #[repr(C)]
        pub struct $name {
            /// Wider than the value, so that there is one that it never has.
            inner: Inner,
            /// The newest value, for destructors that run while a failed model unwinds: loom may not be
            /// entered then.
            shadow: Shadow,
        }

        impl $name {
            fn address(&self) -> usize {
                core::ptr::from_ref(self).addr()
            }

            /// The newest value, for a model to decide by: no step of the algorithm.
            pub fn peek(&self) -> $value {
                self.shadow.load(Relaxed) as $value
            }

            /// Whether loom may not be entered: the model unwinds, or does not know yet that it uses this
            /// cell.
            fn aside(&self) -> bool {
                panicking()
                    || World::is_still()
                    || self.inner.is_dormant() && dormant::discover(self.address())
            }

            /// The newest value, read as a read-modify-write reads, without writing.
            ///
            /// loom keeps a partial order of the stores to a cell, and does not know that a store which a
            /// read-modify-write did not read comes after it. A thread that has looked at the newest value
            /// stores behind it. So with this before every plain store the order is that of the execution,
            /// all of which loom explores, and neither synchronisation nor a release sequence is added.
            fn look(&self) -> $value {
                match self.inner.get().compare_exchange(NEVER, NEVER, Relaxed, Relaxed) {
                    Ok(seen) | Err(seen) => seen as $value,
                }
            }

            /// Stores behind the newest value. The caller sees to it that no other thread runs meanwhile, or
            /// comes here after `look`.
            fn put(&self, value: $value, order: Ordering) {
                self.inner.get().store(value as u64, order);
            }

            /// Runs one operation of the algorithm. `run` must enter loom once.
            fn act<R>(&self, run: impl FnOnce(&World) -> R) -> R {
                let world = World::current();
                let plot = world.plot(self.address());
                // Before the operation, so that this access is covered by the release that the operation
                // may be.
                if let Some(plot) = &plot {
                    plot.touch();
                }
                let result = run(&world);
                // loom switches threads on entering the operation; the memory may have died meanwhile.
                if let Some(plot) = &plot {
                    plot.inspect();
                }
                world.operated(self.address());
                result
            }

            /// Changes the newest value in one step, in the way of a read-modify-write.
            fn modify(
                &self,
                world: &World,
                change: impl FnOnce($value) -> $value,
                order: Ordering,
            ) -> $value {
                // Others come in before the look, not after it.
                let before = self.look();
                let after = change(before);
                world.unexplored(|| {
                    let result =
                        self.inner.get().compare_exchange(before as u64, after as u64, order, Relaxed);
                    assert!(result.is_ok(), "another thread came in");
                });
                self.stored(world, after, order);
                before
            }

            /// A read-modify-write, of which loom's is `run`.
            fn read_modify_write(
                &self,
                operation: Operation,
                operand: $value,
                order: Ordering,
                change: impl Fn($value) -> $value,
                run: impl FnOnce(&AtomicU64, Ordering) -> u64,
            ) -> $value {
                if self.aside() {
                    let before = self.shadow.load(Relaxed) as $value;
                    self.shadow.store(change(before) as usize, Relaxed);
                    return before;
                }
                if World::current().omits(operation, operand as u64) {
                    return self.load(Relaxed);
                }
                if World::current().fault() == Fault::Torn(operation) {
                    let before = self.load(order_of_load(order));
                    self.store(change(before), order_of_store(order));
                    return before;
                }
                self.act(|world| {
                    let order = planted(world.fault(), operation, order);
                    let before = run(self.inner.get(), order) as $value;
                    self.stored(world, change(before), order);
                    before
                })
            }

            /// Notes the value, and plants a touch after a store that released.
            fn stored(&self, world: &World, value: $value, order: Ordering) {
                let before = self.shadow.swap(value as usize, Relaxed);
                world.stored(self.address(), before as u32, value as u32);
                if world.fault() == Fault::TouchAfterRelease && releases(order) {
                    if let Some(plot) = world.plot(self.address()) {
                        plot.touch();
                        let _ = self.inner.get().load(Relaxed);
                        plot.inspect();
                    }
                }
            }
        }

        impl Atomic<$value> for $name {
            fn new(value: $value) -> Self {
                let dormant = value == 0 && dormant::is_making();
                let inner = if dormant { Inner::dormant() } else { Inner::awake(value as u64) };
                $name { inner, shadow: Shadow::new(value as usize) }
            }

            fn load(&self, order: Ordering) -> $value {
                if self.aside() {
                    return self.shadow.load(Relaxed) as $value;
                }
                self.act(|world| {
                    let value =
                        self.inner.get().load(planted(world.fault(), Operation::Load, order)) as $value;
                    if world.blind(self.address()) { 0 } else { value }
                })
            }

            fn store(&self, value: $value, order: Ordering) {
                if self.aside() {
                    return self.shadow.store(value as usize, Relaxed);
                }
                let world = World::current();
                if world.omits(Operation::Store, value as u64)
                    || world.keeps_back(self.address(), value as u64)
                {
                    return;
                }
                self.act(|world| {
                    // Others come in before the look, not after it.
                    let _ = self.look();
                    world.unexplored(|| {
                        self.put(value, planted(world.fault(), Operation::Store, order));
                    });
                    self.stored(world, value, order);
                });
            }

            fn swap(&self, value: $value, order: Ordering) -> $value {
                let run = |cell: &AtomicU64, order| cell.swap(value as u64, order);
                self.read_modify_write(Operation::Swap, value, order, |_| value, run)
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if self.aside() {
                    return match self.shadow.load(Relaxed) as $value {
                        seen if seen == current => {
                            self.shadow.store(new as usize, Relaxed);
                            Ok(seen)
                        }
                        seen => Err(seen),
                    };
                }
                if World::current().omits(Operation::CompareExchange, new as u64) {
                    let seen = self.load(Relaxed);
                    return if seen == current { Ok(seen) } else { Err(seen) };
                }
                if World::current().fault() == Fault::Torn(Operation::CompareExchange) {
                    let seen = self.load(order_of_load(success));
                    if seen != current {
                        return Err(seen);
                    }
                    self.store(new, order_of_store(success));
                    return Ok(seen);
                }
                self.act(|world| {
                    let success = planted(world.fault(), Operation::CompareExchange, success);
                    let failure = planted(world.fault(), Operation::Load, failure);
                    let result = self
                        .inner
                        .get()
                        .compare_exchange(current as u64, new as u64, success, failure)
                        .map(|seen| seen as $value)
                        .map_err(|seen| seen as $value);
                    match result {
                        Ok(_) => self.stored(world, new, success),
                        Err(_) if world.lies() => return Ok(current),
                        Err(_) => {}
                    }
                    result
                })
            }

            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                // A subtraction, which the wider cell does not know.
                let negative = value > <$value>::MAX / 2;
                if negative && !self.aside() {
                    return self.act(|world| {
                        let order = planted(world.fault(), Operation::FetchAdd, order);
                        self.modify(world, |before| before.wrapping_add(value), order)
                    });
                }
                let run = |cell: &AtomicU64, order| cell.fetch_add(value as u64, order);
                let add = |before: $value| {
                    let after = before.wrapping_add(value);
                    assert!(negative || after >= before, "a model does not wrap");
                    after
                };
                self.read_modify_write(Operation::FetchAdd, value, order, add, run)
            }

            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                let run = |cell: &AtomicU64, order| cell.fetch_and(value as u64, order);
                self.read_modify_write(Operation::FetchAnd, value, order, |before| before & value, run)
            }

            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                let run = |cell: &AtomicU64, order| cell.fetch_or(value as u64, order);
                self.read_modify_write(Operation::FetchOr, value, order, |before| before | value, run)
            }
        }
    };
}

cell!(U32, u32, "A 32-bit atomic under loom.");
cell!(Usize, usize, "A pointer-sized atomic under loom.");

/// Each access is one step, a read-modify-write of the word with the ordering that was asked for: what the
/// portable form promises. So a store to a byte keeps the release sequences of the word's other fields, as a
/// processor does, which has not written to them; and it acquires nothing.
impl Split for U32 {
    fn store_low_byte(&self, value: u8, order: Ordering) {
        self.store_bits(0xff, value.into(), order);
    }

    fn compare_exchange_low_byte(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        if self.aside() {
            let seen = self.peek();
            if seen as u8 != current {
                return Err(seen as u8);
            }
            self.shadow.store((seen & !0xff | u32::from(new)) as usize, Relaxed);
            return Ok(current);
        }
        self.act(|world| {
            let seen = self.look();
            let fits = seen as u8 == current;
            let (operation, order) =
                if fits { (Operation::CompareExchange, success) } else { (Operation::Load, failure) };
            let order = planted(world.fault(), operation, order);
            let next = if fits { seen & !0xff | u32::from(new) } else { seen };
            world.unexplored(|| {
                // That which fails is one that expects what is never there.
                let expected = if fits { seen.into() } else { NEVER };
                let result = self.inner.get().compare_exchange(
                    expected,
                    next.into(),
                    order,
                    if fits { Relaxed } else { order },
                );
                assert_eq!(result.is_ok(), fits, "another thread came in");
            });
            if fits {
                self.stored(world, next, order);
                Ok(current)
            } else if world.lies() {
                Ok(current)
            } else {
                Err(seen as u8)
            }
        })
    }

    fn store_low_half(&self, value: u16, order: Ordering) {
        self.store_bits(0xffff, value.into(), order);
    }

    fn swap_high_half(&self, value: u16, order: Ordering) -> u16 {
        let value = u32::from(value) << 16;
        if self.aside() {
            let before = self.peek();
            self.shadow.store((before & 0xffff | value) as usize, Relaxed);
            return (before >> 16) as u16;
        }
        let before = self.act(|world| {
            let order = planted(world.fault(), Operation::Swap, order);
            self.modify(world, |before| before & 0xffff | value, order)
        });
        (before >> 16) as u16
    }
}

impl U32 {
    /// Stores the bits in `mask`.
    fn store_bits(&self, mask: u32, value: u32, order: Ordering) {
        if self.aside() {
            return self.shadow.store((self.peek() & !mask | value) as usize, Relaxed);
        }
        self.act(|world| {
            let order = planted(world.fault(), Operation::Store, order);
            self.modify(world, |before| before & !mask | value, order)
        });
    }
}

impl U32 {
    /// One of very many: zero, and unknown to loom.
    pub(crate) const fn dormant() -> Self {
        U32 { inner: Inner::dormant(), shadow: Shadow::new(0) }
    }

    /// Makes it one that an execution uses, or is done with. Also one of [`Usize`]: they are made alike.
    ///
    /// # Safety
    /// Nobody uses it at the moment.
    pub(crate) unsafe fn wake_up(&self, up: bool) {
        self.shadow.store(0, Relaxed);
        // SAFETY: the caller's.
        unsafe { *self.inner.0.get() = up.then(|| AtomicU64::new(0)) };
    }

    /// The value as a futex call sees it: the newest, without ordering the caller's other accesses.
    pub(crate) fn newest(&self) -> u32 {
        if self.aside() {
            return self.peek();
        }
        self.act(|_| self.look())
    }

    /// A plain store, within [`World::unexplored`].
    pub(crate) fn store_alone(&self, value: u32, order: Ordering) {
        self.act(|world| {
            let _ = self.look();
            self.put(value, planted(world.fault(), Operation::Store, order));
            self.stored(world, value, order);
        });
    }
}
