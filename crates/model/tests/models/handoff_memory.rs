//! The hand-off mutex in memory that does not last: one that its next owner frees at once, and one in a
//! forked child, which names threads that do not exist there. Those are the threads from 9 on here: a model
//! fails when it follows such a name.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::condvar::{Guarding, RawCondvar, Requeued, Target};
use poundlock_core::handoff::{Competitive, NoSpin, RawHandoff};
use poundlock_core::node::{LEVELS, SPARES, state};
use poundlock_core::platform::Atomic;
use poundlock_model::{Model, Mortal, Report, Settings, World, condvar_words, explore, waiter_words};

use crate::common::at_once_or_asleep;
use crate::handoff::{LINK, Passed, Path, THREE, TOKEN, TWO, state_of, taken, waiter, watch};

// Last touch.

/// All threads lock; the last destroys the mutex as soon as it has unlocked it. With `settled`, the main
/// thread holds it while the others fall asleep.
pub(crate) fn destroyed_by_the_last(
    name: &str,
    preemptions: usize,
    settings: Settings,
    settled: bool,
    paths: &'static [Path],
    plant: fn(&World, &Mortal<Passed>),
) -> Report {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let passed = Mortal::new(world, Passed::unshared());
        watch(world, &passed, paths);
        plant(world, &passed);
        let threads = world.threads();
        let work = move |passed: &Mortal<Passed>, held: bool| {
            if !held {
                passed.mutex.lock::<Competitive>();
            }
            let before = passed.section();
            passed.mutex.unlock();
            if before + 1 == threads {
                passed.destroy();
            }
        };
        let start = |index| {
            let passed = passed.clone();
            world.spawn(index, move |_: &World| work(&passed, false))
        };
        let hold = settled.then_some(|| passed.mutex.lock::<NoSpin>());
        let others = at_once_or_asleep(world, 1..threads, hold, start);
        work(&passed, settled);
        for other in others {
            other.join().unwrap();
        }
    });
    taken(report, paths.len());
    report
}

/// Nothing is wrong.
pub(crate) fn sound(_: &World, _: &Mortal<Passed>) {}

/// A wake-up orders what comes before it; who finds the mutex handed over without one shows that nothing
/// relies on that.
pub(crate) const RESTLESS: Settings = Settings { restless: 3, ..TWO };

/// By a hand-over, by the token, and by a count of 0.
pub(crate) const ENDS: &[Path] = &[Path::HandedOver, Path::TokenTakenBy(0), Path::TokenTakenBy(1)];

#[test]
fn freed_by_the_next_owner() {
    destroyed_by_the_last("handed: freed by the next owner", 4, TWO, false, ENDS, sound);
    destroyed_by_the_last("handed: freed by the next owner, restless", 3, RESTLESS, false, ENDS, sound);
    let spinning = Settings { spins: 1, ..TWO };
    destroyed_by_the_last("handed: freed by the next owner, spinning", 4, spinning, false, ENDS, sound);
}

#[test]
fn freed_by_the_last_of_two_sleepers() {
    let name = "handed: freed by the last of two sleepers";
    destroyed_by_the_last(name, 3, THREE, true, &[Path::HandedOver], sound);
}

#[test]
fn freed_by_the_last_of_three() {
    const PATHS: &[Path] = &[Path::HandedOver, Path::SecondToken];
    destroyed_by_the_last("handed: freed by the last of three", 2, THREE, false, PATHS, sound);
}

/// One that gave up is left in the queue; the next owner, who may come as soon as that is taken out and
/// counted down, frees the mutex.
pub(crate) fn freed_behind_one_that_gave_up(name: &str, preemptions: usize, settings: Settings) -> Report {
    const PATHS: &[Path] = &[Path::LastOut, Path::HandedOverAfterTakingOut, Path::TokenAfterTakingOut];
    let report = explore::<Model>(name, preemptions, settings, |world| {
        let passed = Mortal::new(world, Passed::unshared());
        watch(world, &passed, PATHS);
        world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            let gives_up = world.spawn(2, {
                let passed = passed.clone();
                move |world: &World| assert!(!passed.mutex.lock_until::<NoSpin>(&world.past()))
            });
            gives_up.join().unwrap();
        });
        let next = world.spawn(1, {
            let passed = passed.clone();
            move |_: &World| {
                passed.mutex.lock::<NoSpin>();
                let before = passed.section();
                passed.mutex.unlock();
                if before == 1 {
                    passed.destroy();
                }
            }
        });
        passed.section();
        passed.mutex.unlock();
        next.join().unwrap();
        assert_eq!(state_of(waiter(2, LEVELS)), state::IDLE);
    });
    taken(report, PATHS.len());
    report
}

#[test]
fn freed_after_taking_out_one_that_gave_up() {
    freed_behind_one_that_gave_up("handed: freed after taking out one that gave up", 4, THREE);
}

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

/// A waiter that is sent the lock frees the mutex as soon as it has used it, whoever sent it: nobody comes
/// back to it. With `held`, the signaller holds the mutex meanwhile.
pub(crate) fn freed_by_a_waiter(
    name: &str,
    preemptions: usize,
    settings: Settings,
    held: bool,
    plant: fn(&World, &Mortal<Passed>),
) -> Report {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let passed = Mortal::new(world, Passed::unshared());
        plant(world, &passed);
        watch(world, &passed, &[Path::HandedOver]);
        let condvar = Rc::new(RawCondvar::<Model>::default());
        let waiter = world.unexplored(|| {
            let waiter = world.spawn(1, {
                let (passed, condvar) = (passed.clone(), condvar.clone());
                move |_: &World| {
                    passed.mutex.lock::<NoSpin>();
                    while passed.section() == 0 {
                        let _ = condvar.wait(&Guard(&passed.mutex), None, || false);
                    }
                    passed.mutex.unlock();
                    passed.destroy();
                }
            });
            let [_, head] = condvar_words(&condvar);
            world.await_until(|| head.peek() != 0);
            waiter
        });
        passed.mutex.lock::<NoSpin>();
        passed.section();
        if held {
            condvar.signal();
            passed.mutex.unlock();
        } else {
            passed.mutex.unlock();
            condvar.signal();
        }
        waiter.join().unwrap();
    });
    taken(report, 1);
    report
}

#[test]
fn freed_by_a_waiter_that_was_moved() {
    for held in [false, true] {
        let settings = Settings { restless: 6, ..TWO };
        freed_by_a_waiter("handed: freed by a waiter that was moved", 4, settings, held, sound);
    }
}

// Forks.

/// A child whose parent was forked itself, in the epoch before.
const EPOCH: u32 = 7;
pub(crate) const BEFORE: u32 = 3;
pub(crate) const CHILD: Settings = Settings { epoch: EPOCH, ..TWO };
/// The first node of a thread that is not there.
pub(crate) const GHOST: u32 = 9 * (LEVELS + SPARES) + 1;
/// How many of the parent's threads are counted.
const GHOSTS: u32 = 2;

/// In a queue's word: the epoch.
const fn epoch(epoch: u32) -> u32 {
    epoch << 25
}

/// What the other threads of the parent were about when it forked. The caller holds the mutex, or `push` has
/// the token.
fn haunt(passed: &Passed, push: u32) {
    let words = passed.words();
    words.count.store(words.count.peek() + GHOSTS, Relaxed);
    words.push.store(push | epoch(BEFORE), Relaxed);
    words.pop.store(if push & (TOKEN | LINK) == TOKEN { 0 } else { GHOST + 1 }, Relaxed);
}

/// The parent's threads are counted for good, so the mutex goes from hand to hand by the token.
fn exorcised(passed: &Passed, sections: u32) {
    assert_eq!(passed.section(), sections, "an entry was lost");
    let words = passed.words();
    assert_eq!(words.count.peek(), GHOSTS);
    assert_eq!(words.push.peek(), TOKEN | epoch(EPOCH));
    assert_eq!(words.pop.peek(), 0);
    assert!(!passed.mutex.is_locked());
    assert!(passed.mutex.try_lock() && passed.mutex.is_locked() && !passed.mutex.try_lock());
    passed.mutex.unlock();
    assert!(!passed.mutex.is_locked());
}

/// Two threads of the child come at once to a mutex that was free, but for those who had counted: both find
/// an old epoch.
pub(crate) fn free(name: &str, preemptions: usize, settings: Settings, left: u32) -> Report {
    const CLEARING: usize = 2;
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let passed = Passed::new();
        haunt(&passed, TOKEN | left);
        watch(world, &passed, &[Path::TokenTakenBy(0), Path::TokenTakenBy(1)]);
        world.watch_change(passed.words().push, CLEARING, |before, after| {
            before >> 25 & 63 == BEFORE && after == TOKEN | epoch(EPOCH) | LINK
        });
        let other = passed.passer::<NoSpin>(world, 1);
        passed.pass::<NoSpin>();
        other.join().unwrap();
        exorcised(&passed, 2);
    });
    taken(report, 3);
    assert_eq!(report.reached[CLEARING], report.executions);
    assert!(report.sleeps > 0);
    report
}

#[test]
fn a_token_that_the_parent_left() {
    free("a token that the parent left", 4, CHILD, 0);
    // A thread of the parent was about to clear the words after the fork before.
    free("a token that the parent left in its clearing", 4, CHILD, LINK);
}

/// The thread that forked holds the mutex, and others waited for it: its unlock goes through what they left,
/// while a new thread comes.
pub(crate) fn held(name: &str, preemptions: usize, settings: Settings, left: u32) -> Report {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let passed = Passed::new();
        passed.mutex.lock::<NoSpin>();
        haunt(&passed, left);
        watch(world, &passed, &[Path::TokenTakenBy(1), Path::Queued(waiter(1, 0)), Path::HandedOver]);
        let other = passed.passer::<NoSpin>(world, 1);
        passed.section();
        passed.mutex.unlock();
        other.join().unwrap();
        exorcised(&passed, 2);
    });
    taken(report, 3);
    report
}

#[test]
fn waiters_that_the_parent_had() {
    held("waiters that the parent had", 4, CHILD, GHOST);
    held("waiters that the parent had taken over", 4, CHILD, 0);
    held("waiters that the parent had in its clearing", 4, CHILD, LINK);
}

/// The thread that forked had given up at four mutexes, this one among them. Their queues are gone, so its
/// nodes are its own: it takes one and queues, rather than wait in a place that it has not got.
pub(crate) fn given_up_before_the_fork(name: &str, settings: Settings) {
    let report = explore::<Model>(name, 3, settings, |world| {
        let passed = Passed::new();
        for place in LEVELS..LEVELS + SPARES {
            let words = waiter_words::<Model>(waiter(1, place));
            words.state.store(state::ABANDONED, Relaxed);
            words.epoch.store(BEFORE, Relaxed);
            words.lock.store(core::ptr::from_ref(&passed.mutex).addr(), Relaxed);
        }
        watch(
            world,
            &passed,
            &[Path::Queued(waiter(1, LEVELS)), Path::HandedOver, Path::TokenTakenBy(1), Path::TakenUp],
        );
        passed.mutex.lock::<NoSpin>();
        let other = world.spawn(1, {
            let passed = passed.clone();
            move |world: &World| {
                assert!(passed.mutex.lock_until::<NoSpin>(&world.timer(0)));
                passed.section();
                passed.mutex.unlock();
            }
        });
        passed.section();
        passed.mutex.unlock();
        other.join().unwrap();
        assert_eq!(passed.section(), 2, "an entry was lost");
        assert!(!passed.mutex.is_locked());
        assert_eq!(passed.words().push.peek() & (TOKEN | LINK), 0);
    });
    taken(report, 3);
    assert_eq!(report.reached[3], 0, "it went back to a place in the parent's queue");
}

#[test]
fn waits_that_were_given_up_before_the_fork() {
    given_up_before_the_fork("waits that were given up before the fork", CHILD);
}
