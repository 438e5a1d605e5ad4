//! Wait morphing: waiters of a condition variable that are moved into a hand-off mutex's queue, asleep as
//! they are.

use std::rc::Rc;

use loom::thread::JoinHandle;
use poundlock_core::condvar::Outcome;
use poundlock_core::events::Event;
use poundlock_core::handoff::NoSpin;
use poundlock_core::node::state;
use poundlock_core::platform::Atomic;
use poundlock_model::{Model, Settings, World, explore, waiter_words};

use crate::handoff::{Handed, Passed, Path, abandon, counted, state_of, takes, waiter};
use crate::scenes::{
    CANCELLED, Giving, Lock, THREE, TIMED_OUT, TWO, Tokens, give_to, one_outcome, sometimes, waited,
};

type Mutex = Handed<NoSpin>;
const HANDED: &[Path] = &[Path::HandedOver];

/// The scene, in which the mutex is handed over.
fn give(name: &str, preemptions: usize, settings: Settings, giving: Giving) {
    takes(HANDED, || give_to::<Mutex>(&format!("handed: {name}"), preemptions, settings, giving));
}

#[test]
fn signals() {
    give("a signal with the mutex held", 5, TWO, Giving::SignalHeld);
    give("a signal with the mutex free", 5, TWO, Giving::SignalFree);
    give("a signal to the restless", 3, Settings { restless: 2, ..TWO }, Giving::SignalFree);
}

/// All are moved, and each unlock wakes one.
#[test]
fn signals_to_two() {
    give("a broadcast to two with the mutex held", 3, THREE, Giving::BroadcastHeld);
    // The first is handed the mutex by the sender, while the sender goes on to the second.
    give("a broadcast to two with the mutex free", 3, THREE, Giving::BroadcastFree);
    give("two signals to two", 3, THREE, Giving::SignalFree);
}

#[test]
fn one_outcome_each() {
    let outcome = |name, cancel, first| takes(HANDED, || one_outcome::<Mutex>(name, 2, cancel, first));
    sometimes(outcome("handed: a signal or a time-out", false, false), TIMED_OUT);
    outcome("handed: a time-out after a signal", false, true);
    sometimes(outcome("handed: a signal or a cancellation", true, false), CANCELLED);
    outcome("handed: a cancellation after a signal", true, true);
}

/// The waiter is signalled, and its deadline passes while it sleeps in the mutex's queue: it waits on, and
/// reports the signal.
#[test]
fn a_time_out_in_the_mutex() {
    let model = |world: &World| {
        let tokens = Tokens::<Mutex>::new(world);
        let waiter = tokens.sleeping_takers(world, 1..2, true, false).remove(0);
        tokens.guarded.lock.lock();
        tokens.change(|count| count + 1);
        tokens.condvar.signal();
        world.expire(0);
        tokens.guarded.lock.unlock();
        assert_eq!(waiter.join().unwrap(), Outcome::Signalled);
        tokens.finish(1, 0);
    };
    let report = takes(HANDED, || explore::<Model>("handed: a time-out in the mutex", 3, TWO, model));
    waited(report);
    assert!(report.timed_out > 0);
}

/// A signal moves the waiter while a locker comes: to the queue, or to a mutex that is free, or to one whose
/// token was left for the locker.
#[test]
fn a_waiter_moved_against_a_locker() {
    let model = |world: &World| {
        let tokens = Tokens::<Mutex>::new(world);
        let other = tokens.sleeping_takers(world, 1..2, false, false).remove(0);
        let locker = tokens.guarded.passer(world, 2);
        tokens.give(1);
        tokens.condvar.signal();
        assert_eq!(other.join().unwrap(), Outcome::Signalled);
        tokens.finish(1 + locker.join().unwrap(), 0);
    };
    let report = takes(HANDED, || explore::<Model>("a waiter moved against a locker", 3, THREE, model));
    waited(report);
    assert!(report.sleeps > report.executions, "the locker never slept");
}

// Sending, without a condition variable.

/// Thread 1 sleeps, signalled, with its first node, and completes the lock that somebody sends to it.
pub(crate) fn receiver(world: &World, passed: &Rc<Passed>) -> JoinHandle<u32> {
    let passed = passed.clone();
    let receiver = world.spawn(1, move |_| {
        let state = &waiter_words::<Model>(waiter(1, 0)).state;
        state.store(state::SIGNALLED, std::sync::atomic::Ordering::Release);
        passed.lock.0.receive_lock(waiter(1, 0));
        passed.leave();
        1
    });
    world.await_sleep(1);
    receiver
}

/// Starts a thread that sends the lock to thread 1.
fn sender(world: &World, passed: &Rc<Passed>, index: u32) -> JoinHandle<()> {
    let passed = passed.clone();
    world.spawn(index, move |_| passed.lock.0.send_lock(waiter(1, 0)))
}

/// A lock is sent while somebody holds the mutex and unlocks it: to the queue, or with the token, or with a
/// free mutex.
#[test]
fn a_lock_sent_against_an_unlock() {
    const PATHS: &[Path] = &[Path::HandedOver, Path::TokenTakenBy(2), Path::Queued(waiter(1, 0))];
    const FREE: usize = 3;
    let model = |world: &World| {
        let passed = Passed::new(world);
        world.watch_change(passed.lock.words().count, FREE, |before, after| {
            before == 0 && after == 1 && World::present().index() == 2
        });
        let receiver = world.unexplored(|| receiver(world, &passed));
        passed.lock.lock();
        let sender = sender(world, &passed, 2);
        passed.leave();
        sender.join().unwrap();
        passed.finish(1 + receiver.join().unwrap());
    };
    let report = takes(PATHS, || explore::<Model>("a lock sent against an unlock", 4, THREE, model));
    assert!(report.reached[FREE] > 0);
}

/// The token that was left for one who has counted goes to one to whom the lock is sent.
#[test]
fn a_lock_sent_against_one_that_has_counted() {
    const PATHS: &[Path] = &[Path::TokenTakenBy(0), Path::TokenTakenBy(2), Path::Queued(waiter(1, 0))];
    let model = |world: &World| {
        let passed = Passed::new(world);
        let receiver = world.unexplored(|| receiver(world, &passed));
        passed.lock.lock();
        let locker = counted(world, &passed, &[2]).remove(0);
        passed.leave();
        passed.lock.0.send_lock(waiter(1, 0));
        passed.finish(1 + receiver.join().unwrap() + locker.join().unwrap());
    };
    takes(PATHS, || explore::<Model>("a lock sent against one that has counted", 2, THREE, model));
}

/// A lock is sent behind somebody who gave up, or to a mutex that he was taken out of.
#[test]
fn a_lock_sent_behind_one_that_gave_up() {
    const PATHS: &[Path] =
        &[Path::TakenOut, Path::HandedOverAfterTakingOut, Path::LastOut, Path::TokenTakenBy(3)];
    const FOUR: Settings = Settings { threads: 4, ..TWO };
    let model = |world: &World| {
        let passed = Passed::new(world);
        let receiver = world.unexplored(|| receiver(world, &passed));
        passed.lock.lock();
        abandon(&passed, world, 2);
        let sender = sender(world, &passed, 3);
        passed.leave();
        sender.join().unwrap();
        passed.finish(1 + receiver.join().unwrap());
    };
    takes(PATHS, || explore::<Model>("a lock sent behind one that gave up", 3, FOUR, model));
}

/// Two senders come at once: one sends it, once. With `held`, the main thread holds the mutex meanwhile.
/// Counts in `first` and the place behind it who sent it.
fn two_senders(name: &str, held: bool, first: usize, paths: &'static [Path]) -> poundlock_model::Report {
    let model = move |world: &World| {
        let passed = Passed::new(world);
        let receiver = world.unexplored(|| receiver(world, &passed));
        if held {
            passed.lock.lock();
        }
        let send = |passed: &Passed| u32::from(passed.lock.0.send_lock_unless_already_waiting(waiter(1, 0)));
        let sender = world.spawn(2, {
            let passed = passed.clone();
            move |_| send(&passed)
        });
        let own = send(&passed);
        if held {
            passed.leave();
        }
        let sent = own + sender.join().unwrap();
        assert_eq!(sent, 1, "sent {sent} times");
        world.reached(first + own as usize);
        receiver.join().unwrap();
        assert_eq!(state_of(waiter(1, 0)), state::IDLE);
        passed.finish(1 + u32::from(held));
    };
    takes(paths, || explore::<Model>(name, 4, THREE, model))
}

#[test]
fn two_senders_at_once() {
    let report = two_senders("two senders at once", false, 1, HANDED);
    // Either may be the first.
    sometimes(report, 1);
    sometimes(report, 2);
    assert_eq!(report.reached[0], report.executions);
    const PATHS: &[Path] = &[Path::HandedOver, Path::TokenTakenBy(2), Path::Queued(waiter(1, 0))];
    let report = two_senders("two senders at once to a mutex that is held", true, 3, PATHS);
    assert!(report.events[Event::HandOver] > 0);
}
