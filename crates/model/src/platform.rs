//! [`Platform`] under loom.

use core::cell::Cell;

use poundlock_core::node::Record;
use poundlock_core::platform::{Deadline, Platform, Running, Spin, Tuning, Waited};
use poundlock_core::qspin::hash::Line;

use crate::atomic::{U32, Usize};
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
    fn spin(&mut self) -> bool {
        if self.0 == 0 {
            return false;
        }
        self.0 -= 1;
        // Lets the others go on, which is what a spinner hopes for.
        loom::thread::yield_now();
        true
    }
}

/// A platform of this crate.
pub trait Modelled: Platform<U32 = U32> {
    /// Makes the records of a new execution, before any other thread runs.
    #[doc(hidden)]
    fn prepare();
}

macro_rules! platforms {
    ($($(#[$doc:meta])* $name:ident, $records:ident, $cached:ident: handoff_after $handoff:expr, passes_before_wake $passes:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        loom::lazy_static! {
            static ref $records: Vec<Record<$name>> =
                (0..World::current().settings().threads).map(|_| Record::default()).collect();
        }

        std::thread_local! {
            /// The records of the current execution, which destructors still find when the model has failed.
            static $cached: Cell<Option<&'static [Record<$name>]>> = const { Cell::new(None) };
        }

        impl Modelled for $name {
            fn prepare() {
                $cached.set(Some(&*$records));
            }
        }

        impl Platform for $name {
            type U32 = U32;
            type Usize = Usize;
            type Spin = Turns;

            const TUNING: Tuning = Tuning { handoff_after: $handoff, passes_before_wake: $passes };

            fn spin() -> Turns {
                Turns(World::current().settings().spins)
            }

            fn relax() {
                loom::thread::yield_now();
            }

            fn lock_hash() -> Option<&'static [Line<$name>]> {
                None
            }

            fn stall(_round: u32) {
                loom::thread::yield_now();
            }

            fn wait(word: &U32, expected: u32, deadline: Option<&Deadline>) -> Waited {
                World::current().wait(word, expected, deadline)
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

            fn record(index: u32) -> &'static Record<$name> {
                match $cached.get() {
                    Some(records) => &records[index as usize],
                    None => unreachable!("a lock is used outside a model"),
                }
            }

            fn tag() -> u32 {
                World::current().tag()
            }

            fn running(tag: u32) -> Running {
                if tag != 0 && tag == World::current().tag() { Running::No } else { Running::Unknown }
            }

            fn release(count: &U32, guard: &U32) -> bool {
                World::current().release(count, guard)
            }

            fn expel() {
                World::current().expel();
            }

            fn epoch() -> u32 {
                World::current().settings().epoch
            }
        }
    )*};
}

platforms! {
    /// The platform that makes rare paths common: a sleeper is handed the lock after one wake-up in vain, and
    /// may be passed over once.
    Model, MODEL_RECORDS, MODEL_CACHE: handoff_after 1, passes_before_wake 1;
    /// Without hand-offs: a sleeper may be woken in vain again and again.
    Patient, PATIENT_RECORDS, PATIENT_CACHE: handoff_after u32::MAX, passes_before_wake 1;
}
