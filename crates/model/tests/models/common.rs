//! What the models share.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::adaptive::RawAdaptive;
use poundlock_model::{Fault, Modelled, Settings, World};

/// A mutex and what it protects. Two accesses to that which the mutex does not order, whatever order they
/// came in, fail the model.
pub(crate) struct Guarded<P: Modelled> {
    pub(crate) mutex: RawAdaptive<P>,
    value: UnsafeCell<u32>,
}

impl<P: Modelled> Guarded<P> {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self::unshared())
    }

    pub(crate) fn unshared() -> Self {
        Guarded { mutex: RawAdaptive::default(), value: UnsafeCell::new(0) }
    }

    /// The critical section. Returns how many there were before.
    pub(crate) fn section(&self) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.value.with_mut(|value| unsafe {
            *value += 1;
            *value - 1
        })
    }

    /// At the end, when all threads have been joined.
    pub(crate) fn finish(&self, sections: u32) {
        assert_eq!(self.section(), sections, "an entry was lost");
        assert!(self.mutex.is_idle(), "something is left in the mutex");
    }
}

// What models that fail say.

pub(crate) const DEADLOCK: &str = "deadlock";
pub(crate) const UNORDERED: &str = "Causality violation";
pub(crate) const LATE: &str = "late touch";
pub(crate) const NO_SUCH_THREAD: &str = "index out of bounds";
/// Somebody waits for ever without sleeping.
pub(crate) const ENDLESS: &str = "maximum number of branches";

/// Runs a model that must fail, with one of these messages.
#[track_caller]
pub(crate) fn caught<R>(why: &[&str], model: impl FnOnce() -> R) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(model)) else {
        panic!("the model did not find the planted bug");
    };
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    assert!(why.iter().any(|why| message.contains(why)), "found something else: {message}");
}

/// Starts threads with these numbers, each when the one before it sleeps. Somebody holds what they want.
pub(crate) fn asleep<T>(
    world: &World,
    numbers: Range<u32>,
    start: impl Fn(u32) -> JoinHandle<T>,
) -> Vec<JoinHandle<T>> {
    let settle = |index| {
        let sleeper = start(index);
        world.await_sleep(index);
        sleeper
    };
    numbers.map(settle).collect()
}

/// Starts threads with these numbers: all at once; or, if there is something to hold, so that they sleep for
/// it.
pub(crate) fn at_once_or_asleep<T>(
    world: &World,
    numbers: Range<u32>,
    hold: Option<impl FnOnce()>,
    start: impl Fn(u32) -> JoinHandle<T>,
) -> Vec<JoinHandle<T>> {
    match hold {
        None => numbers.map(start).collect(),
        Some(hold) => world.unexplored(|| {
            hold();
            asleep(world, numbers, start)
        }),
    }
}

pub(crate) fn faulty(settings: Settings, fault: Fault) -> Settings {
    Settings { fault, ..settings }
}

/// Instantiates a generic model for the four variants.
macro_rules! for_each_variant {
    ($($model:ident),* $(,)?) => {
        for_each_variant!(@ baseline Baseline $($model)*);
        for_each_variant!(@ fewer_atomics FewerAtomics $($model)*);
        for_each_variant!(@ mcs_queue McsQueue $($model)*);
        for_each_variant!(@ any_negative AnyNegative $($model)*);
    };
    (@ $module:ident $variant:ident $($model:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $model() {
                    super::$model::<poundlock_core::adaptive::$variant>(concat!(
                        stringify!($model), " ", stringify!($module)
                    ));
                }
            )*
        }
    };
}

pub(crate) use for_each_variant;
