//! The condition variable: no signal is lost, none has two outcomes, nothing is left behind.

use std::rc::Rc;

use crate::common::{Guarded, for_each_variant};
use poundlock_core::Platform;
use poundlock_core::adaptive::{AnyNegative, RawAdaptive, Variant};
use poundlock_core::condvar::{Guarding, Outcome, Plain, RawCondvar, Requeued, Target};
use poundlock_core::platform::Deadline;
use poundlock_model::{Model, Report, Settings, World, explore};

/// Nobody spins, so that few preemptions reach far.
pub(crate) const TWO: Settings = Settings { spins: 0, ..Settings::DEFAULT };
pub(crate) const THREE: Settings = Settings { threads: 3, ..TWO };

/// Places that the models count.
const WAITED: usize = 0;
const TIMED_OUT: usize = 1;
const CANCELLED: usize = 2;

/// Tokens that threads take, waiting for them.
struct Tokens {
    guarded: Guarded<Model>,
    condvar: RawCondvar<Model>,
    count: loom::cell::UnsafeCell<u32>,
}

impl Tokens {
    fn new() -> Rc<Self> {
        Rc::new(Tokens {
            guarded: Guarded::unshared(),
            condvar: RawCondvar::default(),
            count: loom::cell::UnsafeCell::new(0),
        })
    }

    /// Under the mutex: changes the number of tokens, returns what it was.
    fn change(&self, by: impl FnOnce(u32) -> u32) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.count.with_mut(|count| unsafe {
            let before = *count;
            *count = by(before);
            before
        })
    }

    fn give<V: Variant>(&self, tokens: u32) {
        self.guarded.mutex.lock::<V>();
        self.change(|count| count + tokens);
        self.guarded.mutex.unlock::<V>();
    }

    /// Waits for a token and takes it; or gives up.
    fn take<V: Variant>(
        &self,
        world: &World,
        guarding: &impl Guarding<Model>,
        deadline: Option<&Deadline>,
        may_cancel: bool,
    ) -> Outcome {
        self.guarded.mutex.lock::<V>();
        let outcome = loop {
            if self.change(|count| count.saturating_sub(1)) > 0 {
                break Outcome::Signalled;
            }
            world.reached(WAITED);
            match self.condvar.wait(guarding, deadline, || may_cancel) {
                Outcome::Signalled => {}
                Outcome::TimedOut => {
                    world.reached(TIMED_OUT);
                    break Outcome::TimedOut;
                }
                Outcome::Cancelled => {
                    world.reached(CANCELLED);
                    break Outcome::Cancelled;
                }
            }
        };
        self.guarded.section();
        self.guarded.mutex.unlock::<V>();
        outcome
    }

    fn plain<V: Variant>(&self) -> Plain<'_, Model, V> {
        Plain::new(&self.guarded.mutex)
    }

    /// Starts a thread that takes a token.
    fn taker<V: Variant>(
        self: &Rc<Self>,
        world: &World,
        index: u32,
        timed: bool,
        may_cancel: bool,
    ) -> loom::thread::JoinHandle<Outcome> {
        let tokens = self.clone();
        world.spawn(index, move |world: &World| {
            let deadline = timed.then(|| world.timer(0));
            tokens.take::<V>(world, &tokens.plain::<V>(), deadline.as_ref(), may_cancel)
        })
    }

    fn finish(&self, takers: u32, left: u32) {
        self.guarded.finish(takers);
        assert!(self.condvar.is_idle(), "somebody is left in the condition variable");
        assert_eq!(self.change(|count| count), left, "tokens");
    }
}

fn waited(report: Report) {
    assert!(report.reached[WAITED] > 0, "nobody waited");
}

/// How the giver signals.
#[derive(Clone, Copy)]
pub(crate) enum Giving {
    SignalHeld,
    SignalFree,
    BroadcastHeld,
    BroadcastFree,
}

pub(crate) fn give_to<V: Variant>(name: &str, preemptions: usize, settings: Settings, giving: Giving) {
    waited(explore::<Model>(name, preemptions, settings, move |world| {
        let tokens = Tokens::new();
        let takers = settings.threads as u32 - 1;
        let start = |index| tokens.taker::<V>(world, index + 1, false, false);
        // Of several, all wait already.
        let others: Vec<_> = if takers == 1 {
            vec![start(0)]
        } else {
            world.unexplored(|| {
                (0..takers)
                    .map(|index| {
                        let taker = start(index);
                        world.await_sleep(index + 1);
                        taker
                    })
                    .collect()
            })
        };
        match giving {
            Giving::SignalFree => {
                tokens.give::<V>(takers);
                (0..takers).for_each(|_| tokens.condvar.signal());
            }
            Giving::BroadcastFree => {
                tokens.give::<V>(takers);
                tokens.condvar.broadcast();
            }
            Giving::SignalHeld | Giving::BroadcastHeld => {
                tokens.guarded.mutex.lock::<V>();
                tokens.change(|count| count + takers);
                if matches!(giving, Giving::BroadcastHeld) {
                    tokens.condvar.broadcast();
                } else {
                    (0..takers).for_each(|_| tokens.condvar.signal());
                }
                tokens.guarded.mutex.unlock::<V>();
            }
        }
        for other in others {
            assert_eq!(other.join().unwrap(), Outcome::Signalled);
        }
        tokens.finish(takers, 0);
    }));
}

fn signal_with_the_mutex_held<V: Variant>(name: &str) {
    give_to::<V>(name, 2, TWO, Giving::SignalHeld);
}

fn signal_with_the_mutex_free<V: Variant>(name: &str) {
    give_to::<V>(name, 2, TWO, Giving::SignalFree);
}

fn signal_to_the_restless<V: Variant>(name: &str) {
    give_to::<V>(name, 2, Settings { restless: 2, spins: 1, ..TWO }, Giving::SignalFree);
}

/// The waiter has no node: its waits end for no reason.
fn signal_to_one_without_a_record<V: Variant>(name: &str) {
    let settings = Settings { unregistered: 2, ..TWO };
    let report = explore::<Model>(name, 2, settings, |world| {
        let tokens = Tokens::new();
        let other = tokens.taker::<V>(world, 1, false, false);
        tokens.give::<V>(1);
        tokens.condvar.signal();
        assert_eq!(other.join().unwrap(), Outcome::Signalled);
        tokens.finish(1, 0);
    });
    assert!(report.reached[WAITED] > 0);
}

fn broadcast_to_two_with_the_mutex_held<V: Variant>(name: &str) {
    give_to::<V>(name, 1, THREE, Giving::BroadcastHeld);
}

fn broadcast_to_two_with_the_mutex_free<V: Variant>(name: &str) {
    give_to::<V>(name, 1, THREE, Giving::BroadcastFree);
}

fn two_signals_to_two<V: Variant>(name: &str) {
    give_to::<V>(name, 1, THREE, Giving::SignalFree);
}

/// One token and one signal for two, of whom one may give up: if it does, the signal is the other's.
pub(crate) fn one_outcome<V: Variant>(
    name: &str,
    preemptions: usize,
    cancel: bool,
    give_first: bool,
) -> Report {
    let report = explore::<Model>(name, preemptions, THREE, move |world| {
        let tokens = Tokens::new();
        let (fickle, steady) = world.unexplored(|| {
            let fickle = tokens.taker::<V>(world, 1, !cancel, cancel);
            world.await_sleep(1);
            let steady = tokens.taker::<V>(world, 2, false, false);
            world.await_sleep(2);
            (fickle, steady)
        });
        let end = || if cancel { Model::record(1).cancel() } else { world.expire(0) };
        if !give_first {
            end();
        }
        tokens.give::<V>(1);
        tokens.condvar.signal();
        if give_first {
            // The one that was signalled goes first, so that loom sees the conflicts of what follows with it.
            loom::thread::yield_now();
            end();
        }
        let ended = fickle.join().unwrap();
        if ended == Outcome::Signalled {
            // It had the token.
            tokens.give::<V>(1);
            tokens.condvar.signal();
        }
        assert_eq!(steady.join().unwrap(), Outcome::Signalled);
        tokens.finish(2, 0);
    });
    waited(report);
    report
}

fn a_signal_or_a_time_out<V: Variant>(name: &str) {
    let report = one_outcome::<V>(name, 1, false, false);
    assert!(report.reached[TIMED_OUT] > 0);
}

fn a_time_out_after_a_signal<V: Variant>(name: &str) {
    one_outcome::<V>(name, 1, false, true);
}

fn a_signal_or_a_cancellation<V: Variant>(name: &str) {
    let report = one_outcome::<V>(name, 1, true, false);
    assert!(report.reached[CANCELLED] > 0);
}

fn a_cancellation_after_a_signal<V: Variant>(name: &str) {
    one_outcome::<V>(name, 1, true, true);
}

for_each_variant!(
    signal_with_the_mutex_held,
    signal_with_the_mutex_free,
    signal_to_the_restless,
    signal_to_one_without_a_record,
    broadcast_to_two_with_the_mutex_held,
    broadcast_to_two_with_the_mutex_free,
    two_signals_to_two,
    a_signal_or_a_time_out,
    a_time_out_after_a_signal,
    a_signal_or_a_cancellation,
    a_cancellation_after_a_signal,
);

/// A cancellation reaches a waiter wherever it is: before it waits, entering the wait, or asleep.
#[test]
fn a_cancellation_ends_a_wait() {
    let report = explore::<Model>("a cancellation ends a wait", 4, TWO, |world| {
        let tokens = Tokens::new();
        let waiter = tokens.taker::<AnyNegative>(world, 1, false, true);
        Model::record(1).cancel();
        assert_eq!(waiter.join().unwrap(), Outcome::Cancelled);
        tokens.finish(1, 0);
    });
    assert!(report.woken > 0 && report.reached[CANCELLED] == report.executions);
}

/// Whoever may not be cancelled waits on for its signal.
#[test]
fn a_cancellation_that_is_not_admitted() {
    let report = explore::<Model>("a cancellation that is not admitted", 2, TWO, |world| {
        let tokens = Tokens::new();
        let waiter = tokens.taker::<AnyNegative>(world, 1, false, false);
        Model::record(1).cancel();
        tokens.give::<AnyNegative>(1);
        tokens.condvar.signal();
        assert_eq!(waiter.join().unwrap(), Outcome::Signalled);
        tokens.finish(1, 0);
    });
    waited(report);
}

/// A time-out with nobody to signal: the waiter comes back, and unlinks itself.
#[test]
fn a_time_out() {
    let report = explore::<Model>("a time-out", 4, TWO, |world| {
        let tokens = Tokens::new();
        let waiter = tokens.taker::<AnyNegative>(world, 1, true, false);
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
        let tokens = Tokens::new();
        let waiters = world.unexplored(|| {
            [1, 2].map(|index| {
                let waiter = tokens.taker::<AnyNegative>(world, index, true, false);
                world.await_sleep(index);
                waiter
            })
        });
        world.expire(0);
        tokens.give::<AnyNegative>(1);
        tokens.condvar.signal();
        let outcomes: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        let taken = outcomes.iter().filter(|outcome| **outcome == Outcome::Signalled).count() as u32;
        assert!(taken <= 1);
        tokens.finish(2, 1 - taken);
    });
    assert!(report.reached[TIMED_OUT] > 0);
}

/// Guards by the mutex, but has its waiters woken rather than put into the mutex's list.
struct Woken<'a>(&'a RawAdaptive<Model>);

impl Guarding<Model> for Woken<'_> {
    fn mutex(&self) -> Option<Target<'_, Model>> {
        None
    }
    fn release(&self) {
        self.0.unlock::<AnyNegative>();
    }
    fn acquire(&self) {
        self.0.lock::<AnyNegative>();
    }
    fn acquire_requeued(&self, _: Requeued) {
        unreachable!("there is no mutex to be put into");
    }
}

#[test]
fn signals_to_those_who_are_woken_instead() {
    let report = explore::<Model>("signals to those who are woken instead", 1, THREE, |world| {
        let tokens = Tokens::new();
        let waiters = world.unexplored(|| {
            [1, 2].map(|index| {
                let waiting = tokens.clone();
                let waiter = world.spawn(index, move |world: &World| {
                    let guarding = Woken(&waiting.guarded.mutex);
                    waiting.take::<AnyNegative>(world, &guarding, None, false)
                });
                world.await_sleep(index);
                waiter
            })
        });
        tokens.give::<AnyNegative>(2);
        tokens.condvar.broadcast();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Outcome::Signalled);
        }
        tokens.finish(2, 0);
    });
    waited(report);
}

/// One condition variable for two mutexes, each with a condition of its own.
struct Rooms {
    rooms: [(Guarded<Model>, loom::cell::UnsafeCell<bool>); 2],
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
        let mutex = &self.rooms[room].0.mutex;
        mutex.lock::<AnyNegative>();
        self.look(room, true);
        mutex.unlock::<AnyNegative>();
    }
}

fn two_mutexes(name: &str, preemptions: usize, signal: fn(&RawCondvar<Model>)) {
    let report = explore::<Model>(name, preemptions, THREE, move |world| {
        let room = || (Guarded::unshared(), loom::cell::UnsafeCell::new(false));
        let rooms = Rc::new(Rooms { rooms: [room(), room()], condvar: RawCondvar::default() });
        let waiters = world.unexplored(|| {
            [0, 1].map(|room| {
                let inside = rooms.clone();
                let waiter = world.spawn(room as u32 + 1, move |world: &World| {
                    let guarded = &inside.rooms[room].0;
                    guarded.mutex.lock::<AnyNegative>();
                    while !inside.look(room, false) {
                        world.reached(WAITED);
                        let guarding = Plain::<_, AnyNegative>::new(&guarded.mutex);
                        inside.condvar.wait(&guarding, None, || false);
                    }
                    guarded.section();
                    guarded.mutex.unlock::<AnyNegative>();
                });
                world.await_sleep(room as u32 + 1);
                waiter
            })
        });
        rooms.open(0);
        rooms.open(1);
        signal(&rooms.condvar);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        rooms.rooms.iter().for_each(|(guarded, _)| guarded.finish(1));
        assert!(rooms.condvar.is_idle(), "somebody is left in the condition variable");
    });
    waited(report);
}

#[test]
fn a_broadcast_to_waiters_under_two_mutexes() {
    two_mutexes("a broadcast to waiters under two mutexes", 2, |condvar| condvar.broadcast());
}

#[test]
fn signals_to_waiters_under_two_mutexes() {
    two_mutexes("signals to waiters under two mutexes", 2, |condvar| {
        condvar.signal();
        condvar.signal();
    });
}
