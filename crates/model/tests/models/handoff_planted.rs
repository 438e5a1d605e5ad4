//! Bugs planted in the hand-off mutex, each of which a model must find.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::handoff::{Competitive, NoSpin};
use poundlock_core::node::state;
use poundlock_core::platform::Atomic;
use poundlock_model::{Fault, Model, Mortal, Operation, Settings, U32, World, explore, waiter_words};

use crate::handoff::{Handed, Passed, abandon, counted, spare, unlock_against_counted, waiter};
use crate::handoff_condvar::receiver;
use crate::handoff_memory::{
    BEFORE, CHILD, GHOST, RESTLESS, free, freed_behind_one_that_gave_up, freed_by_a_waiter,
    freed_by_the_last, given_up_before_the_fork, held_by_the_child,
};
use crate::scenes::{
    DEADLOCK, ENDLESS, End, Giving, Guarded, LATE, Lock, NO_SUCH_THREAD, THREE, TWO, UNORDERED, caught,
    each_is_caught, faulty, give_to, giving_up, held, lockers,
};

/// What is found at the end.
const LEFT: &str = "is left in the";
const SPINNING: Settings = Settings { spins: 1, ..TWO };

#[test]
fn bugs_that_two_threads_find() {
    let bugs = [
        (TWO, Fault::LoseWake(0), DEADLOCK),
        (TWO, Fault::TornWait, DEADLOCK),
        (TWO, Fault::WeakRelease, UNORDERED),
        (TWO, Fault::WeakAcquire, UNORDERED),
        // The hand-over, the token, and queueing.
        (RESTLESS, Fault::Weaken(Operation::CompareExchange), UNORDERED),
        // The fast paths.
        (TWO, Fault::Weaken(Operation::FetchAdd), UNORDERED),
        // The one that was handed the mutex looks whether it was, and does not acquire.
        (RESTLESS, Fault::Weaken(Operation::Load), UNORDERED),
    ];
    each_is_caught(&bugs, |name, settings| lockers::<Handed<NoSpin>>(name, 3, settings, 1));
    let bugs = [(SPINNING, Fault::WeakRelease, UNORDERED), (SPINNING, Fault::WeakAcquire, UNORDERED)];
    each_is_caught(&bugs, |name, settings| lockers::<Handed<Competitive>>(name, 2, settings, 1));
}

#[test]
fn a_lost_wake_up_of_one_that_was_moved() {
    for giving in [Giving::SignalHeld, Giving::SignalFree] {
        caught(&[DEADLOCK], || {
            let settings = faulty(TWO, Fault::LoseWake(0));
            give_to::<Handed<NoSpin>>("handed: a lost wake-up of a waiter", 2, settings, giving)
        });
    }
}

// The protocol.

/// The unlocker goes away as if the token were left, though somebody has queued meanwhile; or a locker sleeps
/// as if it had queued, though the token has been left.
#[test]
fn a_token_left_behind_somebodys_back() {
    let bugs = [
        (TWO, Fault::Lie(0), DEADLOCK),
        // The same place, relaxed.
        (TWO, Fault::Weaken(Operation::CompareExchange), UNORDERED),
    ];
    each_is_caught(&bugs, |name, settings| unlock_against_counted(name, 3, settings, &[1]));
}

/// The unlocker turns the stack round, and does not see how those who pushed have linked themselves.
#[test]
fn a_stack_turned_round_by_a_relaxed_operation() {
    caught(&[DEADLOCK, ENDLESS], || {
        let settings = faulty(THREE, Fault::Weaken(Operation::FetchAnd));
        unlock_against_counted("a relaxed fetch-and-and", 3, settings, &[1, 2])
    });
}

/// A waiter whose time is over leaves, though it was handed the mutex; or an unlocker believes that it has
/// handed the mutex to one that has left.
#[test]
fn giving_up_though_handed() {
    caught(&[LEFT], || {
        let settings = faulty(TWO, Fault::Lie(0));
        giving_up::<Handed<NoSpin>>("giving up though handed", 3, settings, true, End::Before)
    });
}

/// Thread 1 has given up, and what the algorithm does about it is tampered with.
fn abandoned(name: &str, tamper: fn(&World, &Rc<Passed>)) {
    held(name, 2, TWO, move |world, passed| {
        abandon(passed, world, 1);
        tamper(world, passed);
        vec![]
    });
}

#[test]
fn what_gave_up_is_taken_out() {
    abandoned("what gave up is taken out", |_, _| {});
}

#[test]
fn one_that_gave_up_is_not_counted_down() {
    caught(&[LEFT], || {
        abandoned("one that gave up is not counted down", |world, passed| {
            let undo = passed.clone();
            // The unlock, and the one that was taken out.
            world.script(0, passed.lock.words().count, 2, move || {
                undo.lock.words().count.fetch_add(1, Relaxed);
            });
        });
    });
}

/// A waiter that gives up and takes its node with it, out of a queue that nobody can leave.
#[test]
fn a_node_taken_along() {
    caught(&[ENDLESS], || {
        abandoned("a node taken along", |_, _| {
            waiter_words::<Model>(spare(1)).state.store(state::IDLE, Relaxed);
        });
    });
}

/// A waiter that gives up and says so to nobody is handed the mutex.
#[test]
fn a_mutex_handed_to_one_that_has_gone() {
    caught(&[LEFT], || {
        abandoned("a mutex handed to one that has gone", |_, _| {
            waiter_words::<Model>(spare(1)).state.store(state::SLEEPING, Relaxed);
        });
    });
}

/// Who takes the token without having counted does not count.
#[test]
fn a_passer_by_who_does_not_count() {
    caught(&[DEADLOCK, UNORDERED, LEFT], || {
        held::<Handed<NoSpin>>("a passer-by who does not count", 3, THREE, |world, passed| {
            let undo = passed.clone();
            // His first look, and his count.
            world.script(2, passed.lock.words().count, 2, move || {
                undo.lock.words().count.fetch_add(u32::MAX, Relaxed);
            });
            let mut others = counted(world, passed, &[1]);
            let passing = passed.clone();
            others.push(world.spawn(2, move |_| {
                let got = passing.lock.words().push.peek() >> 31 != 0 && passing.lock.try_lock();
                if got {
                    passing.leave();
                }
                u32::from(got)
            }));
            others
        })
    });
}

/// Two send the same waiter, and neither asks whether the other has.
#[test]
fn two_senders_of_one_waiter() {
    caught(&[DEADLOCK, ENDLESS, LEFT], || {
        explore::<Model>("two senders of one waiter", 2, THREE, |world| {
            let passed = Passed::new(world);
            let receiver = world.unexplored(|| receiver(world, &passed));
            let send = |passed: &Passed| passed.lock.0.send_lock(waiter(1, 0));
            let sender = world.spawn(2, {
                let passed = passed.clone();
                move |_| send(&passed)
            });
            send(&passed);
            sender.join().unwrap();
            passed.finish(receiver.join().unwrap());
        })
    });
}

// Memory.

#[test]
fn a_touch_after_the_release() {
    for settings in [TWO, SPINNING] {
        caught(&[LATE, UNORDERED], || {
            let settings = faulty(settings, Fault::TouchAfterRelease);
            freed_by_the_last("handed: a touch after the release", 3, settings, false, |_, _| {})
        });
    }
    caught(&[LATE, UNORDERED], || {
        let settings = faulty(THREE, Fault::TouchAfterRelease);
        freed_behind_one_that_gave_up("handed: a touch after the last was counted down", 3, settings)
    });
}

/// The source looks at the queue once more when it has left the token.
#[test]
fn a_look_at_the_queue_after_the_token() {
    caught(&[LATE, UNORDERED], || {
        freed_by_the_last("a look at the queue after the token", 4, TWO, false, |world, passed| {
            // The epoch, a stack to turn round, a reason not to leave the token, and the token.
            touch_after(world, passed, passed.lock.words().push, 4);
        })
    });
}

/// An unlocker that looks at the mutex when it has handed it over.
#[test]
fn a_look_after_the_hand_over() {
    caught(&[LATE, UNORDERED], || {
        freed_by_the_last("a look after the hand-over", 3, RESTLESS, false, |world, passed| {
            touch_after(world, passed, &waiter_words::<Model>(waiter(1, 0)).state, 1);
        })
    });
}

/// A sender that does so.
#[test]
fn a_look_after_a_lock_was_sent() {
    for giving in [Giving::SignalFree, Giving::SignalHeld] {
        caught(&[LATE, UNORDERED], || {
            freed_by_a_waiter("a look after a lock was sent", giving, |world, passed| {
                // Claimed, in two steps, sent, and handed over.
                touch_after(world, passed, &waiter_words::<Model>(waiter(1, 0)).state, 4);
            })
        });
    }
}

/// The main thread reads the mutex right after its `nth` operation on a word.
fn touch_after<S: 'static>(world: &World, passed: &Mortal<Guarded<Handed<S>>>, word: &U32, nth: u32) {
    let touched = passed.clone();
    world.script(0, word, nth, move || {
        let _ = touched.lock.words().push.load(Relaxed);
    });
}

// Forks.

/// A child that takes itself for its parent follows what the parent's threads left.
#[test]
fn a_fork_that_goes_unnoticed() {
    caught(&[NO_SUCH_THREAD], || {
        let settings = Settings { epoch: BEFORE, ..TWO };
        held_by_the_child("handed: a fork that goes unnoticed", 2, settings, GHOST)
    });
}

/// Or waits in a place that it had in the parent's queue.
#[test]
fn a_place_in_the_parents_queue() {
    caught(&[DEADLOCK], || {
        given_up_before_the_fork("a place in the parent's queue", Settings { epoch: BEFORE, ..TWO });
    });
}

/// Who sees the new epoch does not see that the words were cleared.
#[test]
fn a_relaxed_look_at_the_epoch() {
    caught(&[NO_SUCH_THREAD, UNORDERED], || {
        let settings = faulty(CHILD, Fault::Weaken(Operation::Load));
        held_by_the_child("a relaxed look at the epoch", 3, settings, GHOST)
    });
    caught(&[NO_SUCH_THREAD, UNORDERED], || {
        free("words cleared without a release", 3, faulty(CHILD, Fault::WeakRelease), 0)
    });
}
