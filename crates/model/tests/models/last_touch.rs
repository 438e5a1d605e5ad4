//! A lock may be destroyed by whoever acquires it next, or by whoever has taken out all its waiters.

use std::rc::Rc;

use crate::common::{Guarded, at_once_or_asleep, for_each_variant};
use poundlock_core::adaptive::{AnyNegative, Variant};
use poundlock_core::condvar::{Outcome, Plain, RawCondvar};
use poundlock_model::{Model, Modelled, Mortal, Patient, Report, Settings, World, explore};

/// All threads lock; the last destroys the mutex as soon as it has unlocked it. With `settled`, the main
/// thread holds it while the others fall asleep.
pub(crate) fn destroyed_by_the_last<P: Modelled, V: Variant>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    settled: bool,
) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let guarded = Mortal::new(world, Guarded::<P>::unshared());
        let threads = settings.threads as u32;
        let work = move |guarded: &Mortal<Guarded<P>>, held: bool| {
            if !held {
                guarded.mutex.lock::<V>();
            }
            let before = guarded.section();
            guarded.mutex.unlock::<V>();
            if before + 1 == threads {
                guarded.destroy();
            }
        };
        let start = |index| {
            let guarded = guarded.clone();
            world.spawn(index, move |_: &World| work(&guarded, false))
        };
        let hold = settled.then_some(|| guarded.mutex.lock::<V>());
        let others = at_once_or_asleep(world, 1..threads, hold, start);
        work(&guarded, settled);
        for other in others {
            other.join().unwrap();
        }
    })
}

fn two_threads<V: Variant>(name: &str) {
    let report = destroyed_by_the_last::<Model, V>(name, 2, Settings::default(), false);
    assert!(report.woken > 0);
}

fn two_sleepers<V: Variant>(name: &str) {
    let report =
        destroyed_by_the_last::<Patient, V>(name, 2, Settings { spins: 0, ..Settings::default() }, false);
    assert!(report.woken > 0);
}

/// With hand-offs.
fn three_sleepers<V: Variant>(name: &str) {
    let settings = Settings { threads: 3, spins: 0, ..Settings::default() };
    let report = destroyed_by_the_last::<Model, V>(name, 2, settings, true);
    assert!(report.woken > 0);
}

fn released_by_plain_stores<V: Variant>(name: &str) {
    let settings = Settings { spins: 0, plain_release: true, ..Settings::default() };
    let report = destroyed_by_the_last::<Model, V>(name, 2, settings, false);
    assert!(report.restarted > 0);
}

for_each_variant!(two_threads, two_sleepers, three_sleepers, released_by_plain_stores);

/// A mutex that somebody waits under, and the condition variable on which.
struct Wait {
    guarded: Guarded<Model>,
    condvar: Mortal<RawCondvar<Model>>,
    /// What the waiter waits for, and whether it began to.
    done: loom::cell::UnsafeCell<(bool, bool)>,
}

impl Wait {
    fn new(world: &World) -> Rc<Self> {
        Rc::new(Wait {
            guarded: Guarded::unshared(),
            condvar: Mortal::new(world, RawCondvar::default()),
            done: loom::cell::UnsafeCell::new((false, false)),
        })
    }

    fn state<R>(&self, change: impl FnOnce(&mut (bool, bool)) -> R) -> R {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.done.with_mut(|done| change(unsafe { &mut *done }))
    }
}

/// Whoever has broadcast under the mutex may destroy the condition variable at once: the waiters do not come
/// back to it.
#[test]
fn a_condition_variable_destroyed_by_the_signaller() {
    let name = "a condition variable destroyed by the signaller";
    let settings = Settings { threads: 3, spins: 0, ..Settings::default() };
    let report = explore::<Model>(name, 2, settings, |world| {
        let wait = Wait::new(world);
        let waiters = world.unexplored(|| {
            [1, 2].map(|index| {
                let waiting = wait.clone();
                let waiter = world.spawn(index, move |_: &World| {
                    let mutex = &waiting.guarded.mutex;
                    mutex.lock::<AnyNegative>();
                    while !waiting.state(|state| state.0) {
                        let _ = waiting.condvar.wait(&Plain::<_, AnyNegative>::new(mutex), None, || false);
                    }
                    mutex.unlock::<AnyNegative>();
                });
                world.await_sleep(index);
                waiter
            })
        });
        wait.guarded.mutex.lock::<AnyNegative>();
        wait.state(|state| state.0 = true);
        wait.condvar.broadcast();
        wait.condvar.destroy();
        wait.guarded.mutex.unlock::<AnyNegative>();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    assert!(report.woken > 0);
}

/// A waiter whose deadline has passed may still be about to unlink itself: the destroyer waits for that.
#[test]
fn a_condition_variable_drained_of_late_leavers() {
    const DRAINED: usize = 0;
    let name = "a condition variable drained of late leavers";
    let settings = Settings { spins: 0, ..Settings::default() };
    let report = explore::<Model>(name, 2, settings, |world| {
        let wait = Wait::new(world);
        let waiter = world.spawn(1, {
            let wait = wait.clone();
            move |world: &World| {
                let mutex = &wait.guarded.mutex;
                mutex.lock::<AnyNegative>();
                wait.state(|state| state.1 = true);
                let outcome =
                    wait.condvar.wait(&Plain::<_, AnyNegative>::new(mutex), Some(&world.timer(0)), || false);
                mutex.unlock::<AnyNegative>();
                outcome
            }
        });
        world.expire(0);
        wait.guarded.mutex.lock::<AnyNegative>();
        let began = wait.state(|state| state.1);
        wait.guarded.mutex.unlock::<AnyNegative>();
        if began {
            // Its deadline has passed, so it does not wait any more.
            world.reached(DRAINED);
            wait.condvar.drain();
            wait.condvar.destroy();
        }
        assert_eq!(waiter.join().unwrap(), Outcome::TimedOut);
    });
    assert!(report.reached[DRAINED] > 0);
}
