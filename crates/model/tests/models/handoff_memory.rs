//! The hand-off mutex in memory that does not last: one that its next owner frees at once, and one in a
//! forked child, which names threads that do not exist there. Those are the threads from 9 on here: a model
//! fails when it follows such a name.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::handoff::Competitive;
use poundlock_core::node::{LEVELS, SPARES, state};
use poundlock_core::platform::Atomic;
use poundlock_model::{Model, Mortal, Report, Settings, World, explore, waiter_words};

use crate::handoff::{Handed, LINK, Passed, Path, TOKEN, spare, state_of, takes, waiter, watch};
use crate::scenes::{Giving, Guarded, Lock, THREE, TWO, destroyed_by_the_last, destroyed_by_the_waiter};

// Last touch.

/// All threads lock; the last destroys the mutex as soon as it has unlocked it.
pub(crate) fn freed_by_the_last(
    name: &str,
    preemptions: usize,
    settings: Settings,
    settled: bool,
    plant: fn(&World, &Mortal<Guarded<Handed<Competitive>>>),
) -> Report {
    destroyed_by_the_last(name, preemptions, settings, settled, move |world, passed| {
        watch(world, passed);
        plant(world, passed);
    })
}

/// A wake-up orders what comes before it; who finds the mutex handed over without one shows that nothing
/// relies on that.
pub(crate) const RESTLESS: Settings = Settings { restless: 3, ..TWO };

#[test]
fn freed_by_the_next_owner() {
    /// By a hand-over, by the token, and by a count of 0.
    const ENDS: &[Path] = &[Path::HandedOver, Path::TokenTakenBy(0), Path::TokenTakenBy(1)];
    let freed = |name, preemptions, settings| {
        takes(ENDS, || freed_by_the_last(name, preemptions, settings, false, |_, _| {}))
    };
    freed("handed: freed by the next owner", 4, TWO);
    freed("handed: freed by the next owner, restless", 3, RESTLESS);
    freed("handed: freed by the next owner, spinning", 4, Settings { spins: 1, ..TWO });
}

#[test]
fn freed_by_the_last_of_several() {
    let name = "handed: freed by the last of two sleepers";
    takes(&[Path::HandedOver], || freed_by_the_last(name, 3, THREE, true, |_, _| {}));
    const PATHS: &[Path] = &[Path::HandedOver, Path::SecondToken];
    takes(PATHS, || freed_by_the_last("handed: freed by the last of three", 2, THREE, false, |_, _| {}));
}

/// One that gave up is left in the queue; the next owner, who may come as soon as that is taken out and
/// counted down, frees the mutex.
pub(crate) fn freed_behind_one_that_gave_up(name: &str, preemptions: usize, settings: Settings) -> Report {
    explore::<Model>(name, preemptions, settings, |world| {
        let passed = Mortal::new(world, Passed::unwatched());
        watch(world, &passed);
        world.unexplored(|| {
            passed.lock.lock();
            let gives_up = world.spawn(2, {
                let passed = passed.clone();
                move |world: &World| passed.pass_until(world, &world.past())
            });
            assert_eq!(gives_up.join().unwrap(), 0);
        });
        let next = world.spawn(1, {
            let passed = passed.clone();
            move |_: &World| {
                passed.lock.lock();
                let before = passed.section();
                passed.lock.unlock();
                if before == 1 {
                    passed.destroy();
                }
            }
        });
        passed.leave();
        next.join().unwrap();
        assert_eq!(state_of(spare(2)), state::IDLE);
    })
}

#[test]
fn freed_after_taking_out_one_that_gave_up() {
    const PATHS: &[Path] = &[Path::LastOut, Path::HandedOverAfterTakingOut, Path::TokenAfterTakingOut];
    let name = "handed: freed after taking out one that gave up";
    takes(PATHS, || freed_behind_one_that_gave_up(name, 4, THREE));
}

/// A waiter that is sent the lock frees the mutex as soon as it has used it, whoever sent it: nobody comes
/// back to it.
pub(crate) fn freed_by_a_waiter(name: &str, giving: Giving, plant: fn(&World, &Mortal<Passed>)) -> Report {
    let settings = Settings { restless: 6, ..TWO };
    destroyed_by_the_waiter(name, 4, settings, giving, move |world, passed| {
        plant(world, passed);
        watch(world, passed);
    })
}

#[test]
fn freed_by_a_waiter_that_was_moved() {
    for giving in [Giving::SignalFree, Giving::SignalHeld] {
        let name = "handed: freed by a waiter that was moved";
        takes(&[Path::HandedOver], || freed_by_a_waiter(name, giving, |_, _| {}));
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
    let words = passed.lock.words();
    words.count.store(words.count.peek() + GHOSTS, Relaxed);
    words.push.store(push | epoch(BEFORE), Relaxed);
    words.pop.store(if push & (TOKEN | LINK) == TOKEN { 0 } else { GHOST + 1 }, Relaxed);
}

/// The parent's threads are counted for good, so the mutex goes from hand to hand by the token.
fn exorcised(passed: &Passed, sections: u32) {
    assert_eq!(passed.section(), sections, "an entry was lost");
    let words = passed.lock.words();
    assert_eq!(words.count.peek(), GHOSTS);
    assert_eq!(words.push.peek(), TOKEN | epoch(EPOCH));
    assert_eq!(words.pop.peek(), 0);
    let mutex = &passed.lock.0;
    assert!(!mutex.is_locked());
    assert!(mutex.try_lock() && mutex.is_locked() && !mutex.try_lock());
    mutex.unlock();
    assert!(!mutex.is_locked());
}

/// Two threads of the child come at once to a mutex that was free, but for those who had counted: both find
/// an old epoch.
pub(crate) fn free(name: &str, preemptions: usize, settings: Settings, left: u32) -> Report {
    const CLEARING: usize = 2;
    let model = move |world: &World| {
        let passed = Rc::new(Passed::unwatched());
        haunt(&passed, TOKEN | left);
        watch(world, &passed);
        world.watch_change(passed.lock.words().push, CLEARING, |before, after| {
            before >> 25 & 63 == BEFORE && after == TOKEN | epoch(EPOCH) | LINK
        });
        let other = passed.passer(world, 1);
        passed.pass();
        other.join().unwrap();
        exorcised(&passed, 2);
    };
    let report = takes(&[Path::TokenTakenBy(0), Path::TokenTakenBy(1)], || {
        explore::<Model>(name, preemptions, settings, model)
    });
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
pub(crate) fn held_by_the_child(name: &str, preemptions: usize, settings: Settings, left: u32) -> Report {
    const PATHS: &[Path] = &[Path::TokenTakenBy(1), Path::Queued(waiter(1, 0)), Path::HandedOver];
    let model = move |world: &World| {
        let passed = Rc::new(Passed::unwatched());
        passed.lock.lock();
        haunt(&passed, left);
        watch(world, &passed);
        let other = passed.passer(world, 1);
        passed.leave();
        other.join().unwrap();
        exorcised(&passed, 2);
    };
    takes(PATHS, || explore::<Model>(name, preemptions, settings, model))
}

#[test]
fn waiters_that_the_parent_had() {
    held_by_the_child("waiters that the parent had", 4, CHILD, GHOST);
    held_by_the_child("waiters that the parent had taken over", 4, CHILD, 0);
    held_by_the_child("waiters that the parent had in its clearing", 4, CHILD, LINK);
}

/// The thread that forked had given up at four mutexes, this one among them. Their queues are gone, so its
/// nodes are its own: it takes one and queues, rather than wait in a place that it has not got.
pub(crate) fn given_up_before_the_fork(name: &str, settings: Settings) {
    const PATHS: &[Path] = &[Path::Queued(spare(1)), Path::HandedOver, Path::TokenTakenBy(1)];
    const WENT_BACK: usize = 3;
    let model = |world: &World| {
        let passed = Passed::new(world);
        for place in LEVELS..LEVELS + SPARES {
            let words = waiter_words::<Model>(waiter(1, place));
            words.state.store(state::ABANDONED, Relaxed);
            words.epoch.store(BEFORE, Relaxed);
            words.lock.store(core::ptr::from_ref(&passed.lock.0).addr(), Relaxed);
            world.watch_change(&words.state, WENT_BACK, |before, after| {
                before == state::ABANDONED && after == state::SLEEPING
            });
        }
        passed.lock.lock();
        let other = passed.timed_passer(world, 1);
        passed.leave();
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(passed.section(), 2, "an entry was lost");
        assert!(!passed.lock.0.is_locked());
        assert_eq!(passed.lock.words().push.peek() & (TOKEN | LINK), 0);
    };
    let report = takes(PATHS, || explore::<Model>(name, 3, settings, model));
    assert_eq!(report.reached[WENT_BACK], 0, "it went back to a place in the parent's queue");
}

#[test]
fn waits_that_were_given_up_before_the_fork() {
    given_up_before_the_fork("waits that were given up before the fork", CHILD);
}
