//! Wait morphing: waiters of a condition variable that are moved into a hand-off mutex's queue, asleep as
//! they are.

use std::rc::Rc;

use loom::thread::JoinHandle;
use poundlock_core::Platform;
use poundlock_core::condvar::{Guarding, Outcome, RawCondvar, Requeued, Target};
use poundlock_core::events::Event;
use poundlock_core::handoff::{NoSpin, RawHandoff};
use poundlock_core::node::state;
use poundlock_core::platform::{Atomic, Deadline};
use poundlock_model::{Model, Report, Settings, World, explore, waiter_words};

use crate::handoff::{Passed, Path, THREE, TWO, counted, state_of, taken, waiter, watch};

/// Places that the models count, after those of `watch`.
const WAITED: usize = 1;
const TIMED_OUT: usize = 2;
const CANCELLED: usize = 3;
/// In the first place.
const HANDED: &[Path] = &[Path::HandedOver];

/// A hand-off mutex, to which waiters are moved.
struct Guard<'a>(&'a RawHandoff<Model>);

impl Guarding<Model> for Guard<'_> {
    fn mutex(&self) -> Option<Target<'_, Model>> {
        Some(Target::Handoff(self.0))
    }
    fn release(&self) {
        self.0.unlock();
    }
    fn acquire(&self) {
        self.0.lock::<NoSpin>();
    }
    fn acquire_requeued(&self, waiter: Requeued) {
        waiter.receive(self.0);
    }
}

/// Things that threads take, waiting for them.
struct Things {
    passed: Passed,
    condvar: RawCondvar<Model>,
    count: loom::cell::UnsafeCell<u32>,
}

impl Things {
    fn new(world: &World) -> Rc<Self> {
        let things = Rc::new(Things {
            passed: Passed::unshared(),
            condvar: RawCondvar::default(),
            count: loom::cell::UnsafeCell::new(0),
        });
        watch(world, &things.passed, HANDED);
        things
    }

    /// Under the mutex: changes the number of things, returns what it was.
    fn change(&self, by: impl FnOnce(u32) -> u32) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.count.with_mut(|count| unsafe {
            let before = *count;
            *count = by(before);
            before
        })
    }

    fn give(&self, things: u32) {
        self.passed.mutex.lock::<NoSpin>();
        self.change(|count| count + things);
        self.passed.mutex.unlock();
    }

    /// Waits for a thing and takes it; or gives up.
    fn take(&self, world: &World, deadline: Option<&Deadline>, may_cancel: bool) -> Outcome {
        let mutex = &self.passed.mutex;
        mutex.lock::<NoSpin>();
        let outcome = loop {
            if self.change(|count| count.saturating_sub(1)) > 0 {
                break Outcome::Signalled;
            }
            world.reached(WAITED);
            match self.condvar.wait(&Guard(mutex), deadline, || may_cancel) {
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
        self.passed.section();
        mutex.unlock();
        outcome
    }

    /// Starts a thread that takes a thing.
    fn taker(
        self: &Rc<Self>,
        world: &World,
        index: u32,
        timed: bool,
        may_cancel: bool,
    ) -> JoinHandle<Outcome> {
        let things = self.clone();
        world.spawn(index, move |world: &World| {
            let deadline = timed.then(|| world.timer(0));
            things.take(world, deadline.as_ref(), may_cancel)
        })
    }

    fn finish(&self, takers: u32, left: u32) {
        self.passed.finish(takers);
        assert!(self.condvar.is_idle(), "somebody is left in the condition variable");
        assert_eq!(self.change(|count| count), left, "things");
    }
}

/// How the giver signals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Giving {
    SignalHeld,
    SignalFree,
    BroadcastHeld,
    BroadcastFree,
}

pub(crate) fn give_to(name: &str, preemptions: usize, settings: Settings, giving: Giving) -> Report {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let things = Things::new(world);
        let takers = world.threads() - 1;
        let start = |index| things.taker(world, index, false, false);
        // Of several, all wait already.
        let others: Vec<_> = if takers == 1 {
            vec![start(1)]
        } else {
            world.unexplored(|| {
                (1..=takers)
                    .map(|index| {
                        let taker = start(index);
                        world.await_sleep(index);
                        taker
                    })
                    .collect()
            })
        };
        let before = world.woken();
        let held = matches!(giving, Giving::SignalHeld | Giving::BroadcastHeld);
        if held {
            things.passed.mutex.lock::<NoSpin>();
            things.change(|count| count + takers);
        } else {
            things.give(takers);
        }
        if matches!(giving, Giving::BroadcastHeld | Giving::BroadcastFree) {
            things.condvar.broadcast();
        } else {
            (0..takers).for_each(|_| things.condvar.signal());
        }
        if held {
            if takers > 1 {
                // They sleep on, until each is handed the mutex.
                assert_eq!(world.woken(), before, "woken in vain");
            }
            things.passed.mutex.unlock();
        }
        for other in others {
            assert_eq!(other.join().unwrap(), Outcome::Signalled);
        }
        if takers > 1 {
            assert_eq!(world.woken() - before, u64::from(takers), "a wake-up in vain");
        }
        things.finish(takers, 0);
    });
    taken(report, 2);
    report
}

#[test]
fn a_signal_with_the_mutex_held() {
    give_to("handed: a signal with the mutex held", 5, TWO, Giving::SignalHeld);
}

#[test]
fn a_signal_with_the_mutex_free() {
    give_to("handed: a signal with the mutex free", 5, TWO, Giving::SignalFree);
}

#[test]
fn a_signal_to_the_restless() {
    let settings = Settings { restless: 2, ..TWO };
    give_to("handed: a signal to the restless", 3, settings, Giving::SignalFree);
}

/// All are moved, and each unlock wakes one.
#[test]
fn a_broadcast_to_two() {
    give_to("handed: a broadcast to two with the mutex held", 3, THREE, Giving::BroadcastHeld);
    // The first is handed the mutex by the sender, while the sender goes on to the second.
    give_to("handed: a broadcast to two with the mutex free", 3, THREE, Giving::BroadcastFree);
}

#[test]
fn two_signals_to_two() {
    give_to("handed: two signals to two", 3, THREE, Giving::SignalFree);
}

/// One thing and one signal for two, of whom one may give up: if it does, the signal is the other's.
fn one_outcome(name: &str, preemptions: usize, cancel: bool, give_first: bool) -> Report {
    let report = explore::<Model>(name, preemptions, THREE, move |world| {
        let things = Things::new(world);
        let (fickle, steady) = world.unexplored(|| {
            let fickle = things.taker(world, 1, !cancel, cancel);
            world.await_sleep(1);
            let steady = things.taker(world, 2, false, false);
            world.await_sleep(2);
            (fickle, steady)
        });
        let end = || if cancel { Model::record(1).cancel() } else { world.expire(0) };
        if !give_first {
            end();
        }
        things.give(1);
        things.condvar.signal();
        if give_first {
            // The one that was signalled goes first, so that loom sees the conflicts of what follows with it.
            loom::thread::yield_now();
            end();
        }
        if fickle.join().unwrap() == Outcome::Signalled {
            // It had the thing.
            things.give(1);
            things.condvar.signal();
        }
        assert_eq!(steady.join().unwrap(), Outcome::Signalled);
        things.finish(2, 0);
    });
    taken(report, 2);
    report
}

#[test]
fn a_signal_or_a_time_out() {
    let report = one_outcome("handed: a signal or a time-out", 2, false, false);
    assert!(report.reached[TIMED_OUT] > 0 && report.reached[TIMED_OUT] < report.executions);
    one_outcome("handed: a time-out after a signal", 2, false, true);
}

#[test]
fn a_signal_or_a_cancellation() {
    let report = one_outcome("handed: a signal or a cancellation", 2, true, false);
    assert!(report.reached[CANCELLED] > 0 && report.reached[CANCELLED] < report.executions);
    one_outcome("handed: a cancellation after a signal", 2, true, true);
}

/// The waiter is signalled, and its deadline passes while it sleeps in the mutex's queue: it waits on, and
/// reports the signal.
#[test]
fn a_time_out_in_the_mutex() {
    let report = explore::<Model>("handed: a time-out in the mutex", 3, TWO, |world| {
        let things = Things::new(world);
        let waiter = world.unexplored(|| {
            let waiter = things.taker(world, 1, true, false);
            world.await_sleep(1);
            waiter
        });
        things.passed.mutex.lock::<NoSpin>();
        things.change(|count| count + 1);
        things.condvar.signal();
        world.expire(0);
        things.passed.mutex.unlock();
        assert_eq!(waiter.join().unwrap(), Outcome::Signalled);
        things.finish(1, 0);
    });
    taken(report, 2);
    assert!(report.timed_out > 0);
}

/// A signal moves the waiter while a locker comes: to the queue, or to a mutex that is free, or to one whose
/// token was left for the locker.
#[test]
fn a_waiter_moved_against_a_locker() {
    let report = explore::<Model>("a waiter moved against a locker", 3, THREE, |world| {
        let things = Things::new(world);
        let other = world.unexplored(|| {
            let other = things.taker(world, 1, false, false);
            world.await_sleep(1);
            other
        });
        let locker = world.spawn(2, {
            let things = things.clone();
            move |_| things.passed.pass::<NoSpin>()
        });
        things.give(1);
        things.condvar.signal();
        assert_eq!(other.join().unwrap(), Outcome::Signalled);
        locker.join().unwrap();
        things.finish(2, 0);
    });
    taken(report, 2);
    assert!(report.sleeps > report.executions, "the locker never slept");
}

// Sending, without a condition variable.

/// Thread 1 sleeps, signalled, with its first node, and completes the lock that somebody sends to it. Within
/// [`World::unexplored`].
fn receiver(world: &World, passed: &Rc<Passed>) -> JoinHandle<()> {
    let passed = passed.clone();
    let receiver = world.spawn(1, move |_| {
        waiter_words::<Model>(waiter(1, 0))
            .state
            .store(state::SIGNALLED, std::sync::atomic::Ordering::Release);
        passed.mutex.receive_lock(waiter(1, 0));
        passed.section();
        passed.mutex.unlock();
    });
    world.await_sleep(1);
    receiver
}

/// A lock is sent while somebody holds the mutex and unlocks it: to the queue, or with the token, or with a
/// free mutex.
#[test]
fn a_lock_sent_against_an_unlock() {
    const PATHS: &[Path] = &[Path::HandedOver, Path::TokenTakenBy(2), Path::Queued(waiter(1, 0))];
    const FREE: usize = 3;
    let report = explore::<Model>("a lock sent against an unlock", 4, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        world.watch_change(passed.words().count, FREE, |before, after| {
            before == 0 && after == 1 && World::present().index() == 2
        });
        let receiver = world.unexplored(|| {
            let receiver = receiver(world, &passed);
            passed.mutex.lock::<NoSpin>();
            receiver
        });
        let sender = world.spawn(2, {
            let passed = passed.clone();
            move |_| passed.mutex.send_lock(waiter(1, 0))
        });
        passed.section();
        passed.mutex.unlock();
        sender.join().unwrap();
        receiver.join().unwrap();
        passed.finish(2);
    });
    taken(report, 4);
}

/// The token that was left for one who has counted goes to one to whom the lock is sent.
#[test]
fn a_lock_sent_against_one_that_has_counted() {
    const PATHS: &[Path] = &[Path::TokenTakenBy(0), Path::TokenTakenBy(2), Path::Queued(waiter(1, 0))];
    let report = explore::<Model>("a lock sent against one that has counted", 2, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        let (receiver, [locker]) = world.unexplored(|| {
            let receiver = receiver(world, &passed);
            passed.mutex.lock::<NoSpin>();
            (receiver, counted(world, &passed, [2]))
        });
        passed.section();
        passed.mutex.unlock();
        passed.mutex.send_lock(waiter(1, 0));
        receiver.join().unwrap();
        locker.join().unwrap();
        passed.finish(3);
    });
    taken(report, PATHS.len());
}

/// A lock is sent behind somebody who gave up, or to a mutex that he was taken out of.
#[test]
fn a_lock_sent_behind_one_that_gave_up() {
    const PATHS: &[Path] =
        &[Path::TakenOut, Path::HandedOverAfterTakingOut, Path::LastOut, Path::TokenTakenBy(3)];
    const FOUR: Settings = Settings { threads: 4, ..TWO };
    let report = explore::<Model>("a lock sent behind one that gave up", 3, FOUR, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        let receiver = world.unexplored(|| {
            let receiver = receiver(world, &passed);
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 2);
            receiver
        });
        let sender = world.spawn(3, {
            let passed = passed.clone();
            move |_| passed.mutex.send_lock(waiter(1, 0))
        });
        passed.section();
        passed.mutex.unlock();
        sender.join().unwrap();
        receiver.join().unwrap();
        passed.finish(2);
    });
    taken(report, PATHS.len());
}

/// Two senders come at once: one sends it, once.
#[test]
fn two_senders_at_once() {
    let report = explore::<Model>("two senders at once", 4, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, &[Path::HandedOver]);
        let receiver = world.unexplored(|| receiver(world, &passed));
        let send = |passed: &Passed| u32::from(passed.mutex.send_lock_unless_already_waiting(waiter(1, 0)));
        let sender = world.spawn(2, {
            let passed = passed.clone();
            move |_| send(&passed)
        });
        let own = send(&passed);
        let sent = own + sender.join().unwrap();
        assert_eq!(sent, 1, "sent {sent} times");
        world.reached(1 + own as usize);
        receiver.join().unwrap();
        assert_eq!(state_of(waiter(1, 0)), state::IDLE);
        passed.finish(1);
    });
    // Either may be the first.
    taken(report, 3);
    assert_eq!(report.reached[0], report.executions);
}

/// The same while the main thread holds the mutex.
#[test]
fn two_senders_at_once_to_a_mutex_that_is_held() {
    let report = explore::<Model>("two senders at once to a mutex that is held", 4, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, &[Path::HandedOver, Path::TokenTakenBy(2), Path::Queued(waiter(1, 0))]);
        let receiver = world.unexplored(|| {
            let receiver = receiver(world, &passed);
            passed.mutex.lock::<NoSpin>();
            receiver
        });
        let send = |passed: &Passed| u32::from(passed.mutex.send_lock_unless_already_waiting(waiter(1, 0)));
        let sender = world.spawn(2, {
            let passed = passed.clone();
            move |_| send(&passed)
        });
        let sent = send(&passed);
        passed.section();
        passed.mutex.unlock();
        assert_eq!(sent + sender.join().unwrap(), 1);
        receiver.join().unwrap();
        passed.finish(2);
    });
    taken(report, 3);
    assert!(report.events[Event::HandOver] > 0);
}
