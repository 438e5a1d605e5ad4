//! The condition variable: no signal is lost, none has two outcomes, nothing is left behind.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use poundlock_core::Platform;
use poundlock_core::adaptive::{AnyNegative, Variant};
use poundlock_core::condvar::{Guarding, Outcome, RawCondvar, Requeued, Target};
use poundlock_core::platform::Atomic;
use poundlock_model::{Fault, Model, Mortal, Settings, World, condvar_words, explore};

use crate::adaptive::{Adaptive, CHILD, CLEARING, CONTENDED, GHOST, LOCKED, for_each_variant};
use crate::scenes::{
    CANCELLED, DEADLOCK, Giving, Guarded, Guards, Lock, THREE, TIMED_OUT, TWO, Tokens, WAITED, asleep,
    caught, faulty, give_to, one_outcome, waited,
};

type Mutex<V> = Adaptive<Model, V>;
type Newest = Mutex<AnyNegative>;

fn signals<V: Variant>() {
    give_to::<Mutex<V>>("a signal with the mutex held", 2, TWO, Giving::SignalHeld);
    give_to::<Mutex<V>>("a signal with the mutex free", 2, TWO, Giving::SignalFree);
    let restless = Settings { restless: 2, ..Settings::DEFAULT };
    give_to::<Mutex<V>>("a signal to the restless", 2, restless, Giving::SignalFree);
    // The waiter has no node: its waits end for no reason.
    let unregistered = Settings { unregistered: 2, ..TWO };
    give_to::<Mutex<V>>("a signal to one without a record", 2, unregistered, Giving::SignalFree);
    give_to::<Mutex<V>>("two signals to two", 1, THREE, Giving::SignalFree);
    give_to::<Mutex<V>>("a broadcast to two, held", 1, THREE, Giving::BroadcastHeld);
    give_to::<Mutex<V>>("a broadcast to two, free", 1, THREE, Giving::BroadcastFree);
}

fn one_outcome_each<V: Variant>() {
    one_outcome::<Mutex<V>>("a signal or a time-out", 1, false, false);
    one_outcome::<Mutex<V>>("a time-out after a signal", 1, false, true);
    one_outcome::<Mutex<V>>("a signal or a cancellation", 1, true, false);
    one_outcome::<Mutex<V>>("a cancellation after a signal", 1, true, true);
}

for_each_variant!(signals, one_outcome_each);

/// A cancellation reaches a waiter wherever it is: before it waits, entering the wait, or asleep.
#[test]
fn a_cancellation_ends_a_wait() {
    let report = explore::<Model>("a cancellation ends a wait", 4, TWO, |world| {
        let tokens = Tokens::<Newest>::new(world);
        let waiter = tokens.taker(world, 1, false, true);
        Model::record(1).cancel();
        assert_eq!(waiter.join().unwrap(), Outcome::Cancelled);
        tokens.finish(1, 0);
    });
    assert!(report.woken > 0 && report.reached[CANCELLED] == report.executions);
}

/// Whoever may not be cancelled waits on for its signal.
#[test]
fn a_cancellation_that_is_not_admitted() {
    waited(explore::<Model>("a cancellation that is not admitted", 2, TWO, |world| {
        let tokens = Tokens::<Newest>::new(world);
        let waiter = tokens.taker(world, 1, false, false);
        Model::record(1).cancel();
        tokens.give(1);
        tokens.condvar.signal();
        assert_eq!(waiter.join().unwrap(), Outcome::Signalled);
        tokens.finish(1, 0);
    }));
}

/// A time-out with nobody to signal: the waiter comes back, and unlinks itself.
#[test]
fn a_time_out() {
    let report = explore::<Model>("a time-out", 4, TWO, |world| {
        let tokens = Tokens::<Newest>::new(world);
        let waiter = tokens.taker(world, 1, true, false);
        world.expire(0);
        assert_eq!(waiter.join().unwrap(), Outcome::TimedOut);
        tokens.finish(1, 0);
    });
    assert!(report.timed_out > 0);
}

/// Two leave the list at the same time as a signaller walks along it.
#[test]
fn two_leave_while_a_signal_comes() {
    let report = explore::<Model>("two leave while a signal comes", 1, THREE, |world| {
        let tokens = Tokens::<Newest>::new(world);
        let waiters = tokens.sleeping_takers(world, 1..3, true, false);
        world.expire(0);
        tokens.give(1);
        tokens.condvar.signal();
        let outcomes = waiters.into_iter().map(|waiter| waiter.join().unwrap());
        let taken = outcomes.filter(|outcome| *outcome == Outcome::Signalled).count() as u32;
        assert!(taken <= 1);
        tokens.finish(2, 1 - taken);
    });
    assert!(report.reached[TIMED_OUT] > 0);
}

/// A mutex whose guard has waiters woken rather than put into its list; or unlocks before the wait begins,
/// which are one step in a right one.
#[derive(Default)]
struct Otherwise<const EARLY: bool>(Newest);

impl<const EARLY: bool> Lock for Otherwise<EARLY> {
    type Platform = Model;

    fn lock(&self) {
        self.0.lock();
    }
    fn unlock(&self) {
        self.0.unlock();
    }
    fn finish(&self) {
        self.0.finish();
    }
}

impl<const EARLY: bool> Guards for Otherwise<EARLY> {
    fn guarding(&self) -> impl Guarding<Model> {
        if EARLY {
            self.unlock();
        }
        OtherGuard::<EARLY>(&self.0)
    }
}

struct OtherGuard<'a, const EARLY: bool>(&'a Newest);

impl<const EARLY: bool> Guarding<Model> for OtherGuard<'_, EARLY> {
    fn mutex(&self) -> Option<Target<'_, Model>> {
        EARLY.then_some(Target::Adaptive(&self.0.0))
    }
    fn release(&self) {
        if !EARLY {
            self.0.unlock();
        }
    }
    fn acquire(&self) {
        self.0.lock();
    }
    fn acquire_requeued(&self, waiter: Requeued) {
        assert!(EARLY, "there is no mutex to be put into");
        waiter.lock::<Model, AnyNegative>(&self.0.0);
    }
}

#[test]
fn signals_to_those_who_are_woken_instead() {
    give_to::<Otherwise<false>>("signals to those who are woken instead", 1, THREE, Giving::BroadcastFree);
}

/// One condition variable for two mutexes, each with a condition of its own.
struct Rooms {
    rooms: [(Guarded<Newest>, UnsafeCell<bool>); 2],
    condvar: RawCondvar<Model>,
}

impl Rooms {
    /// Under the mutex: looks whether the condition holds, and makes it hold if told so.
    fn look(&self, room: usize, open: bool) -> bool {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.rooms[room].1.with_mut(|condition| unsafe {
            *condition |= open;
            *condition
        })
    }

    fn open(&self, room: usize) {
        let mutex = &self.rooms[room].0.lock;
        mutex.lock();
        self.look(room, true);
        mutex.unlock();
    }
}

fn two_mutexes(name: &str, signal: fn(&RawCondvar<Model>)) {
    waited(explore::<Model>(name, 2, THREE, move |world| {
        let room = || (Guarded::unwatched(), UnsafeCell::new(false));
        let rooms = Rc::new(Rooms { rooms: [room(), room()], condvar: RawCondvar::default() });
        let enter = |index: u32| {
            let inside = rooms.clone();
            world.spawn(index, move |world: &World| {
                let room = index as usize - 1;
                let guarded = &inside.rooms[room].0;
                guarded.lock.lock();
                while !inside.look(room, false) {
                    world.reached(WAITED);
                    inside.condvar.wait(&guarded.lock.guarding(), None, || false);
                }
                guarded.leave();
            })
        };
        let waiters = world.unexplored(|| asleep(world, 1..3, enter));
        rooms.open(0);
        rooms.open(1);
        signal(&rooms.condvar);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        rooms.rooms.iter().for_each(|(guarded, _)| guarded.finish(1));
        assert!(rooms.condvar.is_idle(), "somebody is left in the condition variable");
    }));
}

#[test]
fn waiters_under_two_mutexes() {
    two_mutexes("a broadcast to waiters under two mutexes", |condvar| condvar.broadcast());
    two_mutexes("signals to waiters under two mutexes", |condvar| {
        condvar.signal();
        condvar.signal();
    });
}

// Last touch: a condition variable may be destroyed by whoever has taken out all its waiters.

/// A mutex that somebody waits under, and the condition variable on which.
struct Wait {
    mutex: Newest,
    condvar: Mortal<RawCondvar<Model>>,
    /// What the waiter waits for, and whether it began to.
    done: UnsafeCell<(bool, bool)>,
}

impl Wait {
    fn new(world: &World) -> Rc<Self> {
        let condvar = Mortal::new(world, RawCondvar::default());
        Rc::new(Wait { mutex: Newest::default(), condvar, done: UnsafeCell::new((false, false)) })
    }

    fn state<R>(&self, change: impl FnOnce(&mut (bool, bool)) -> R) -> R {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.done.with_mut(|done| change(unsafe { &mut *done }))
    }
}

/// Whoever has broadcast under the mutex may destroy the condition variable at once: the waiters do not come
/// back to it.
#[test]
fn destroyed_by_the_signaller() {
    let name = "a condition variable destroyed by the signaller";
    let report = explore::<Model>(name, 2, THREE, |world| {
        let wait = Wait::new(world);
        let start = |index| {
            let wait = wait.clone();
            world.spawn(index, move |_: &World| {
                wait.mutex.lock();
                while !wait.state(|state| state.0) {
                    let _ = wait.condvar.wait(&wait.mutex.guarding(), None, || false);
                }
                wait.mutex.unlock();
            })
        };
        let waiters = world.unexplored(|| asleep(world, 1..3, start));
        wait.mutex.lock();
        wait.state(|state| state.0 = true);
        wait.condvar.broadcast();
        wait.condvar.destroy();
        wait.mutex.unlock();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    assert!(report.woken > 0);
}

/// A waiter whose deadline has passed may still be about to unlink itself: the destroyer waits for that.
#[test]
fn drained_of_late_leavers() {
    const DRAINED: usize = 0;
    let report = explore::<Model>("a condition variable drained of late leavers", 2, TWO, |world| {
        let wait = Wait::new(world);
        let waiter = world.spawn(1, {
            let wait = wait.clone();
            move |world: &World| {
                wait.mutex.lock();
                wait.state(|state| state.1 = true);
                let outcome = wait.condvar.wait(&wait.mutex.guarding(), Some(&world.timer(0)), || false);
                wait.mutex.unlock();
                outcome
            }
        });
        world.expire(0);
        wait.mutex.lock();
        let began = wait.state(|state| state.1);
        wait.mutex.unlock();
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

/// One takes the first section, another waits for it; and signals, whoever comes first.
fn signalled<L: Guards>(name: &str, preemptions: usize, settings: Settings, left: Option<u32>) {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<L>::new(world);
        let condvar = Rc::new(RawCondvar::<Model>::default());
        if let Some(left) = left {
            let [wait_lock, head] = condvar_words(&condvar);
            wait_lock.store(LOCKED | CONTENDED | left, Relaxed);
            head.store(GHOST, Relaxed);
        }
        let waiter = world.spawn(1, {
            let (guarded, condvar) = (guarded.clone(), condvar.clone());
            move |_| {
                guarded.lock.lock();
                // The signal comes with the first section.
                while guarded.section() == 0 {
                    let _ = condvar.wait(&guarded.lock.guarding(), None, || false);
                }
                guarded.lock.unlock();
            }
        });
        guarded.lock.lock();
        let waits = guarded.section() == 1;
        guarded.lock.unlock();
        condvar.signal();
        waiter.join().unwrap();
        guarded.finish(2 + u32::from(waits));
        assert!(condvar.is_idle());
    });
    assert!(report.woken > 0);
}

/// A condition variable in which threads of the parent wait, and whose lock one of them held.
#[test]
fn in_a_forked_child() {
    signalled::<Newest>("forked: a condition variable", 1, CHILD, Some(3));
    signalled::<Newest>("forked: a condition variable in its clearing", 1, CHILD, Some(3 | CLEARING));
}

// Planted bugs.

#[test]
fn a_lost_wake_up() {
    let settings = faulty(TWO, Fault::LoseWake(0));
    caught(&[DEADLOCK], || give_to::<Newest>("a lost wake-up of a waiter", 2, settings, Giving::SignalFree));
}

#[test]
fn a_wait_that_begins_after_the_release() {
    caught(&[DEADLOCK], || {
        signalled::<Otherwise<true>>("a wait that begins after the release", 2, TWO, None)
    });
}
