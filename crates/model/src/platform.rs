//! [`Platform`] under loom.

use core::cell::Cell;

use poundlock_core::atomic::Atomics;
use poundlock_core::events::{Event, Observer};
use poundlock_core::handoff::Identity;
use poundlock_core::platform::{Deadline, Platform, Running, Spin, Tunable, Until, Waited};
use poundlock_core::qspin::Halting;
use poundlock_core::qspin::hash::Line;
use poundlock_core::record::{Record, Side};
use poundlock_core::rwlock::readers::{self, Table};
use poundlock_core::semarray::{Host, Process};
use poundlock_core::tunings::Tunings;
use poundlock_core::{adaptive, handoff, poundlock, qspin, rwlock};

use crate::atomic::{U32, Usize};
use crate::dormant;
use crate::world::World;

/// A spin budget of as many turns as the model's settings say.
#[derive(Debug)]
pub struct Turns(u32);

impl Turns {
    /// A budget of so many turns.
    pub fn new(turns: u32) -> Self {
        Turns(turns)
    }
}

impl Spin for Turns {
    fn fresh() -> Turns {
        Turns(World::current().settings().spins)
    }

    fn spin(&mut self) -> bool {
        if self.0 == 0 {
            return false;
        }
        self.0 -= 1;
        World::current().waits();
        // Lets the others go on, which is what a spinner hopes for.
        loom::thread::yield_now();
        true
    }

    fn cut(&mut self, of_256: u32) {
        // A part of so few turns is all of them.
        if of_256 == 0 {
            self.0 = 0;
        }
    }
}

/// A platform of this crate.
pub trait Modelled: Platform<U32 = U32> + Halting {
    /// Makes the records of a new execution, before any other thread runs.
    #[doc(hidden)]
    fn prepare();

    /// Whether no lock has an entry in the lock hash. A step of the calling thread.
    fn hash_is_empty() -> bool;
}

/// The memory that all threads share.
#[derive(Clone, Copy)]
struct Memory<P: Platform> {
    records: &'static [Record<P>],
    hash: &'static [Line<P>],
    sides: &'static [Side<P>],
    readers: &'static Readers<P>,
}

/// Threads from the third on share their lines with others.
type Readers<P> = Table<P, [readers::Line<P>; 2]>;

fn nodes() -> u32 {
    World::current().settings().nodes.into_iter().max().unwrap_or(0) + 1
}

/// How many sides there are.
fn sides() -> u32 {
    nodes() * World::current().settings().sides
}

/// The smallest constants: rare paths run within a few steps.
const fn shrunk(handoff_after: u32, optimistic_looks: u32, slice: usize, grants: u32) -> Tunings {
    let bypasses_before_wake = 1;
    // Over at once, or never.
    let batch = if handoff_after == u32::MAX { u32::MAX } else { 0 };
    Tunings {
        poundlock: poundlock::Tuning {
            handoff_after,
            releases_before_wake: 1,
            bypasses_before_wake,
            optimistic_looks,
            looks_in_vain: 1,
            waits_a_trial: 1,
            spun_before_trial: 1,
            spins_for_hand_over: 1,
            slice,
            owners_a_slice_check: 0,
            longest_interval: 1,
            grants_before_release: grants,
            looks_after: 0,
            calls_apart: 0,
            batch: [u32::MAX, 0, 0],
            budgets: [1, 1],
            budgets_of_the_woken: 1,
            moment: 0,
            few: 0,
            share: 256,
            absence: 1,
            rotation: 0,
            turns: 1,
            cpus: 2,
        },
        adaptive: adaptive::Tuning { handoff_after, bypasses_before_wake },
        handoff: handoff::Tuning { turns_a_look: 1 },
        rwlock: rwlock::Tuning {
            handoff_after,
            turns_a_look: 1,
            cpus: 1,
            barred_looks: optimistic_looks,
            slice: slice / 2,
            leavings_a_slice_check: 0,
            quiet: 0,
            quiet_by_drain: 0,
            // The choice depends on addresses, which differ from one execution to the next.
            slots: 1,
        },
        qspin: qspin::Tuning { optimistic_looks, handoff_after, bypasses_before_wake, batch },
    }
}

/// Who waits for less is to leave others alone for a while; who waits for longer relies on it that it looks.
const TIMED_PARK: u32 = 500_000;

macro_rules! platforms {
    ($(
        $(#[$doc:meta])*
        $name:ident, $records:ident, $hash:ident, $sides:ident, $readers:ident, $cached:ident: $tunings:expr, yields $yields:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        loom::lazy_static! {
            static ref $records: Vec<Record<$name>> =
                (0..World::current().settings().threads).map(|_| Record::default()).collect();
            static ref $hash: Vec<Line<$name>> = vec![Line::default()];
            static ref $sides: Vec<Side<$name>> = (0..sides()).map(|_| Side::default()).collect();
            static ref $readers: Readers<$name> = Table::default();
        }

        std::thread_local! {
            /// That of the current execution, which destructors still find when the model has failed.
            static $cached: Cell<Option<Memory<$name>>> = const { Cell::new(None) };
        }

        impl Modelled for $name {
            fn prepare() {
                let memory = dormant::making(|| Memory {
                    records: &**$records,
                    hash: &**$hash,
                    sides: &**$sides,
                    readers: &*$readers,
                });
                // SAFETY: all are made of words, and nobody has used them.
                unsafe {
                    dormant::add(dormant::Memory::Records, memory.records);
                    dormant::add(dormant::Memory::Hash, memory.hash);
                    dormant::add(dormant::Memory::Sides, memory.sides);
                    dormant::add(dormant::Memory::Readers, core::slice::from_ref(memory.readers));
                }
                $cached.set(Some(memory));
            }

            fn hash_is_empty() -> bool {
                $cached.get().is_some_and(|memory| memory.hash.iter().all(Line::is_empty))
            }
        }

        impl Atomics for $name {
            type U32 = U32;
            type Usize = Usize;
        }

        impl Observer for $name {
            fn counting() -> bool {
                true
            }

            fn count(event: Event, amount: u64) {
                World::current().count(event, amount);
            }

            fn now() -> u64 {
                World::current().now()
            }
        }

        impl Identity for $name {}

        impl Halting for $name {
            fn lock_hash() -> Option<&'static [Line<$name>]> {
                if World::current().settings().hash { $cached.get().map(|memory| memory.hash) } else { None }
            }
        }

        impl Platform for $name {
            type Spin = Turns;

            fn tuning<T: Tunable>() -> T {
                const TUNINGS: Tunings = $tunings;
                TUNINGS.of()
            }

            fn relax() {
                World::current().waits();
                loom::thread::yield_now();
            }

            fn yield_now() {
                if $yields {
                    Self::relax();
                }
            }

            fn stall(_round: u32) {
                World::current().waits();
                loom::thread::yield_now();
            }

            fn wait(word: &U32, expected: u32, until: Until<'_>) -> Waited {
                let world = World::current();
                match until {
                    Until::Woken => world.wait(word, expected, None),
                    Until::Deadline(deadline) => world.wait(word, expected, Some(deadline)),
                    Until::Nanoseconds(..TIMED_PARK) => {
                        Self::relax();
                        Waited::Woken
                    }
                    Until::Nanoseconds(_) => world.wait_for_a_while(word, expected),
                }
            }

            fn wake(word: *const U32, count: u32) {
                World::current().wake(word, count);
            }

            fn expired(deadline: &Deadline) -> bool {
                World::current().expired(deadline)
            }

            fn current() -> Option<u32> {
                let world = World::current();
                world.registered().then(|| world.index())
            }

            fn priority() -> u32 {
                let world = World::current();
                world.settings().priorities[world.index() as usize]
            }

            fn nodes() -> u32 {
                nodes()
            }

            fn node() -> u32 {
                let world = World::current();
                world.node_of(world.index())
            }

            fn sides() -> &'static [Side<$name>] {
                $cached.get().map_or(&[], |memory| memory.sides)
            }

            fn record(index: u32) -> &'static Record<$name> {
                match $cached.get() {
                    Some(memory) => &memory.records[index as usize],
                    None => unreachable!("a lock is used outside a model"),
                }
            }

            fn readers() -> Option<&'static Table<$name>> {
                $cached.get().map(|memory| memory.readers as &Table<$name>)
            }

            fn tag() -> u32 {
                World::current().tag()
            }

            fn running(tag: u32) -> Running {
                if tag != 0 && tag == World::current().tag() { Running::No } else { Running::Unknown }
            }

            fn cpus() -> u32 {
                World::current().settings().cpus
            }

            fn release(word: &U32, unless: &U32) -> bool {
                World::current().release(word, unless)
            }

            fn fence() {
                World::current().fence();
            }

            fn epoch() -> u32 {
                World::current().settings().epoch
            }
        }
    )*};
}

platforms! {
    /// The platform that makes rare paths common: a sleeper is handed the lock after one wake-up in vain, and
    /// may be bypassed once, and nobody spins optimistically.
    Model, MODEL_RECORDS, MODEL_HASH, MODEL_SIDES, MODEL_READERS, MODEL_CACHE: shrunk(1, 0, usize::MAX, 2), yields true;
    /// Without hand-offs: a sleeper may be woken in vain again and again; newcomers look at a lock before
    /// they queue; nobody yields; and an owner that has seen sleepers before is relieved.
    Patient, PATIENT_RECORDS, PATIENT_HASH, PATIENT_SIDES, PATIENT_READERS, PATIENT_CACHE: shrunk(u32::MAX, 1, 0, 3), yields false;
}

/// For semaphore arrays, whose time passes only as a thread says so.
impl Host for Model {
    type Platform = Self;

    fn wait_shared(word: &U32, expected: u32, nanoseconds: u64) -> Waited {
        Self::wait_shared_as(word, expected, u32::MAX, nanoseconds)
    }

    fn wake_shared(word: *const U32, count: u32) {
        World::current().wake(word, count);
    }

    fn wait_shared_as(word: &U32, expected: u32, bit: u32, nanoseconds: u64) -> Waited {
        World::current().wait_shared(word, expected, bit, nanoseconds)
    }

    fn wake_shared_as(word: *const U32, bits: u32) {
        World::current().wake_bits(word, bits);
    }

    const LEAST_DUTY: u32 = 1;
    const MOST_ROUNDS: u32 = 1;

    fn place() -> u32 {
        Self::tag()
    }

    fn process() -> Option<Process> {
        let slot = World::current().process();
        Some(Process { slot, id: 100 + slot })
    }

    fn gone(slot: u32) -> bool {
        World::current().gone(slot)
    }

    fn seconds() -> u64 {
        1
    }

    fn provide(_memory: &[U32]) -> bool {
        true
    }
}
