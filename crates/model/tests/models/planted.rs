//! Planted bugs, each of which a model must find: without these the other models would prove nothing.

use std::cell::Cell;
use std::rc::Rc;

use poundlock_core::adaptive::{AnyNegative, Baseline, RawAdaptive};
use poundlock_core::condvar::{Guarding, RawCondvar, Requeued, Target};
use poundlock_core::mcs;
use poundlock_core::node::{LEVELS, NodeId};
use poundlock_core::platform::Atomic;
use poundlock_model::{
    Fault, Model, Mortal, Operation, Patient, Settings, Turns, U32, World, adaptive_words, explore,
};

use crate::adaptive::{bypassing, lockers};
use crate::common::{DEADLOCK, Guarded, LATE, NO_SUCH_THREAD, UNORDERED, caught, faulty};
use crate::condvar::{Giving, THREE, TWO, give_to};
use crate::last_touch::destroyed_by_the_last;

const TWO_OWNERS: &str = "two owners";

// Wake-ups.

#[test]
fn a_lost_wake_up() {
    caught(&[DEADLOCK], || {
        lockers::<Model, AnyNegative>("a lost wake-up", 2, faulty(TWO, Fault::LoseWake(0)), 1)
    });
}

#[test]
fn a_lost_wake_up_of_a_waiter() {
    caught(&[DEADLOCK], || {
        let settings = faulty(TWO, Fault::LoseWake(0));
        give_to::<AnyNegative>("a lost wake-up of a waiter", 2, settings, Giving::SignalFree);
    });
}

/// A wait that looks at the word and then falls asleep.
#[test]
fn a_wait_that_is_not_atomic() {
    caught(&[DEADLOCK], || {
        lockers::<Model, AnyNegative>("a wait that is not atomic", 2, faulty(TWO, Fault::TornWait), 1)
    });
}

/// DUTY: a spinner, for whom an unlock bypassed the sleepers, forgets to look for them.
#[test]
fn a_spinner_that_forgets_the_sleepers() {
    caught(&[DEADLOCK], || {
        bypassing::<Model, AnyNegative>("a forgetful spinner", 1, Settings::default(), true)
    });
}

/// QUIET: a plain release under way when the first sleeper comes is not started over.
#[test]
fn a_plain_release_without_a_fence() {
    caught(&[DEADLOCK], || {
        let settings = Settings { plain_release: true, ..faulty(TWO, Fault::Unfenced) };
        lockers::<Model, AnyNegative>("a plain release without a fence", 2, settings, 1)
    });
}

/// A caller that unlocks and then begins to wait, which are one step in a right one.
struct Early<'a>(&'a RawAdaptive<Model>);

impl Guarding<Model> for Early<'_> {
    fn mutex(&self) -> Option<Target<'_, Model>> {
        Some(Target::Adaptive(self.0))
    }
    fn release(&self) {}
    fn acquire(&self) {
        self.0.lock::<AnyNegative>();
    }
    fn acquire_requeued(&self, waiter: Requeued) {
        waiter.lock::<Model, AnyNegative>(self.0);
    }
}

#[test]
fn a_wait_that_begins_after_the_release() {
    caught(&[DEADLOCK], || {
        explore::<Model>("a wait that begins after the release", 2, TWO, |world| {
            let guarded = Guarded::<Model>::new();
            let condvar = Rc::new(RawCondvar::<Model>::default());
            let waiter = world.spawn(1, {
                let (guarded, condvar) = (guarded.clone(), condvar.clone());
                move |_| {
                    guarded.mutex.lock::<AnyNegative>();
                    while guarded.section() == 0 {
                        guarded.mutex.unlock::<AnyNegative>();
                        let _ = condvar.wait(&Early(&guarded.mutex), None, || false);
                    }
                    guarded.mutex.unlock::<AnyNegative>();
                }
            });
            guarded.mutex.lock::<AnyNegative>();
            guarded.section();
            guarded.mutex.unlock::<AnyNegative>();
            condvar.signal();
            waiter.join().unwrap();
        })
    });
}

// Exclusion.

/// Threads lock, and look whether they are alone at a point where others may come in.
fn owners(name: &str, fault: Fault) {
    explore::<Model>(name, 2, faulty(TWO, fault), |world| {
        let mutex = Rc::new(RawAdaptive::<Model>::default());
        let owned = Rc::new(Cell::new(false));
        let work = {
            let mutex = mutex.clone();
            move |world: &World| {
                mutex.lock::<Baseline>();
                assert!(!owned.replace(true), "two owners");
                world.pause();
                owned.set(false);
                mutex.unlock::<Baseline>();
            }
        };
        let other = world.spawn(1, work.clone());
        work(world);
        other.join().unwrap();
    });
}

#[test]
fn owners_are_alone() {
    owners("owners are alone", Fault::None);
}

#[test]
fn a_compare_and_swap_that_lies() {
    caught(&[TWO_OWNERS], || owners("a compare-and-swap that lies", Fault::Lie(0)));
}

/// A lock of spinners that enters as soon as its patience ends.
#[test]
fn a_queue_lock_that_does_not_wait() {
    caught(&[UNORDERED], || {
        explore::<Model>("a queue lock that does not wait", 2, TWO, |world| {
            let tail = Rc::new(U32::new(0));
            let guarded = Guarded::<Model>::new();
            let work = {
                let guarded = guarded.clone();
                move |world: &World| {
                    let id = NodeId::from_raw(world.index() * LEVELS + 1).expect("not 0");
                    let head = mcs::join::<Model>(&tail, id, &mut Turns::new(1));
                    guarded.section();
                    if head {
                        mcs::leave::<Model>(&tail, id);
                    }
                }
            };
            let other = world.spawn(1, work.clone());
            work(world);
            other.join().unwrap();
        })
    });
}

// Ordering.

#[test]
fn no_release() {
    for spins in [0, 1] {
        caught(&[UNORDERED], || {
            let settings = faulty(Settings { spins, ..TWO }, Fault::WeakRelease);
            lockers::<Model, AnyNegative>("no release", 2, settings, 1)
        });
    }
}

#[test]
fn no_acquire() {
    for spins in [0, 1] {
        caught(&[UNORDERED], || {
            let settings = faulty(Settings { spins, ..TWO }, Fault::WeakAcquire);
            lockers::<Model, AnyNegative>("no acquire", 2, settings, 1)
        });
    }
}

#[test]
fn a_relaxed_compare_and_swap() {
    caught(&[UNORDERED], || {
        let settings = faulty(TWO, Fault::Weaken(Operation::CompareExchange));
        lockers::<Model, AnyNegative>("a relaxed compare-and-swap", 2, settings, 1)
    });
}

#[test]
fn a_relaxed_fetch_add() {
    caught(&[UNORDERED], || {
        let settings = faulty(TWO, Fault::Weaken(Operation::FetchAdd));
        lockers::<Model, AnyNegative>("a relaxed fetch-and-add", 2, settings, 1)
    });
}

#[test]
fn a_relaxed_swap() {
    caught(&[UNORDERED], || {
        let settings = faulty(TWO, Fault::Weaken(Operation::Swap));
        queue("a relaxed swap", settings);
    });
}

/// The head of the queue leaves without publishing what it did.
#[test]
fn a_relaxed_store() {
    caught(&[UNORDERED], || {
        let settings = faulty(TWO, Fault::Weaken(Operation::Store));
        queue("a relaxed store", settings);
    });
}

#[test]
fn a_relaxed_load() {
    caught(&[UNORDERED], || {
        let settings = faulty(TWO, Fault::Weaken(Operation::Load));
        queue("a relaxed load", settings);
    });
}

fn queue(name: &str, settings: Settings) {
    explore::<Model>(name, 2, settings, |world| {
        let tail = Rc::new(U32::new(0));
        let guarded = Guarded::<Model>::new();
        let work = {
            let guarded = guarded.clone();
            move |world: &World| {
                let id = NodeId::from_raw(world.index() * LEVELS + 1).expect("not 0");
                assert!(mcs::join::<Model>(&tail, id, &mut Turns::new(1000)));
                guarded.section();
                mcs::leave::<Model>(&tail, id);
            }
        };
        let other = world.spawn(1, work.clone());
        work(world);
        other.join().unwrap();
    });
}

// Memory.

#[test]
fn a_touch_after_the_release() {
    for spins in [0, 1] {
        caught(&[LATE, UNORDERED], || {
            let settings = faulty(Settings { spins, ..TWO }, Fault::TouchAfterRelease);
            destroyed_by_the_last::<Patient, AnyNegative>("a touch after the release", 2, settings, false)
        });
    }
}

/// Even where it comes first in every execution: the destroyer does not know of it.
#[test]
fn a_touch_that_nothing_orders() {
    caught(&[UNORDERED], || {
        explore::<Model>("a touch that nothing orders", 0, TWO, |world| {
            let word = Mortal::new(world, U32::new(0));
            let other = world.spawn(1, {
                let word = word.clone();
                move |_| word.load(std::sync::atomic::Ordering::Relaxed)
            });
            loom::thread::yield_now();
            word.destroy();
            other.join().unwrap();
        })
    });
}

// Forks.

/// A child that takes itself for its parent follows what the parent's threads left.
#[test]
fn a_fork_that_goes_unnoticed() {
    caught(&[DEADLOCK, NO_SUCH_THREAD], || {
        explore::<Model>("a fork that goes unnoticed", 2, THREE, |world| {
            let guarded = Guarded::<Model>::new();
            adaptive_words(&guarded.mutex).head.store(77, std::sync::atomic::Ordering::Relaxed);
            let others = [1, 2].map(|index| {
                let guarded = guarded.clone();
                world.spawn(index, move |_| {
                    guarded.mutex.lock::<AnyNegative>();
                    guarded.section();
                    guarded.mutex.unlock::<AnyNegative>();
                })
            });
            for other in others {
                other.join().unwrap();
            }
        })
    });
}
