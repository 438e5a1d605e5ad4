//! loom's atomics behind [`Atomic`], where faults are planted and touches of dead memory are seen.

use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::AtomicUsize as Shadow;
use std::thread::panicking;

use poundlock_core::platform::Atomic;

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

macro_rules! cell {
    ($name:ident, $value:ty, $inner:ty, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug)]
        pub struct $name {
            inner: $inner,
            /// The newest value, for destructors that run while a failed model unwinds: loom may not be
            /// entered then.
            shadow: Shadow,
        }

        impl $name {
            fn address(&self) -> usize {
                core::ptr::from_ref(self).addr()
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
                result
            }

            /// Notes the value, and plants a touch after a store that released.
            fn stored(&self, world: &World, value: $value, order: Ordering) {
                self.shadow.store(value as usize, Relaxed);
                world.stored(self.address(), value as u32);
                if world.fault() == Fault::TouchAfterRelease && releases(order) {
                    if let Some(plot) = world.plot(self.address()) {
                        plot.touch();
                        let _ = self.inner.load(Relaxed);
                        plot.inspect();
                    }
                }
            }
        }

        impl Atomic<$value> for $name {
            fn new(value: $value) -> Self {
                $name { inner: <$inner>::new(value), shadow: Shadow::new(value as usize) }
            }

            fn load(&self, order: Ordering) -> $value {
                if panicking() {
                    return self.shadow.load(Relaxed) as $value;
                }
                self.act(|world| {
                    let value = self.inner.load(planted(world.fault(), Operation::Load, order));
                    if world.blind(self.address()) { 0 } else { value }
                })
            }

            fn store(&self, value: $value, order: Ordering) {
                if panicking() {
                    return self.shadow.store(value as usize, Relaxed);
                }
                self.act(|world| {
                    self.inner.store(value, planted(world.fault(), Operation::Store, order));
                    self.stored(world, value, order);
                });
            }

            fn swap(&self, value: $value, order: Ordering) -> $value {
                if panicking() {
                    return self.shadow.swap(value as usize, Relaxed) as $value;
                }
                self.act(|world| {
                    let before = self.inner.swap(value, planted(world.fault(), Operation::Swap, order));
                    self.stored(world, value, order);
                    before
                })
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if panicking() {
                    return match self.shadow.load(Relaxed) as $value {
                        seen if seen == current => {
                            self.shadow.store(new as usize, Relaxed);
                            Ok(seen)
                        }
                        seen => Err(seen),
                    };
                }
                self.act(|world| {
                    let success = planted(world.fault(), Operation::CompareExchange, success);
                    let failure = planted(world.fault(), Operation::Load, failure);
                    let result = self.inner.compare_exchange(current, new, success, failure);
                    match result {
                        Ok(_) => self.stored(world, new, success),
                        Err(_) if world.lies() => return Ok(current),
                        Err(_) => {}
                    }
                    result
                })
            }

            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                if panicking() {
                    return self.shadow.fetch_add(value as usize, Relaxed) as $value;
                }
                self.act(|world| {
                    let before =
                        self.inner.fetch_add(value, planted(world.fault(), Operation::FetchAdd, order));
                    self.stored(world, before.wrapping_add(value), order);
                    before
                })
            }

            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                if panicking() {
                    return self.shadow.fetch_and(value as usize, Relaxed) as $value;
                }
                self.act(|world| {
                    let before =
                        self.inner.fetch_and(value, planted(world.fault(), Operation::FetchAnd, order));
                    self.stored(world, before & value, order);
                    before
                })
            }

            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                if panicking() {
                    return self.shadow.fetch_or(value as usize, Relaxed) as $value;
                }
                self.act(|world| {
                    let before =
                        self.inner.fetch_or(value, planted(world.fault(), Operation::FetchOr, order));
                    self.stored(world, before | value, order);
                    before
                })
            }
        }
    };
}

cell!(U32, u32, loom::sync::atomic::AtomicU32, "A 32-bit atomic under loom.");
cell!(Usize, usize, loom::sync::atomic::AtomicUsize, "A pointer-sized atomic under loom.");

impl U32 {
    /// The value as a futex call sees it: the newest in the order of the execution. The load tells loom of
    /// the conflict with the stores; what it reads may be old. (A read-modify-write would read the newest,
    /// but loom does not order its store before later plain ones.)
    pub(crate) fn newest(&self) -> u32 {
        self.act(|_| {
            let _ = self.inner.load(Relaxed);
            self.shadow.load(Relaxed) as u32
        })
    }

    /// The newest value, for a model to decide by: no step of the algorithm.
    pub fn peek(&self) -> u32 {
        self.shadow.load(Relaxed) as u32
    }
}
