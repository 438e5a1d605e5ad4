//! Bugs planted in the hand-off mutex, each of which a model must find.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::handoff::{Competitive, NoSpin};
use poundlock_core::node::state;
use poundlock_core::platform::Atomic;
use poundlock_model::{Fault, Model, Mortal, Operation, Settings, World, explore, waiter_words};

use crate::common::{DEADLOCK, ENDLESS, LATE, NO_SUCH_THREAD, UNORDERED, caught, faulty};
use crate::handoff::{
    End, Passed, THREE, TWO, counted, giving_up, lockers, spare, unlock_against_counted, waiter,
};
use crate::handoff_condvar::{Giving, give_to};
use crate::handoff_memory::{
    BEFORE, CHILD, GHOST, RESTLESS, destroyed_by_the_last, free, freed_behind_one_that_gave_up,
    freed_by_a_waiter, given_up_before_the_fork, held,
};

/// What is found at the end.
const LEFT: &str = "is left in the";

// Wake-ups.

#[test]
fn a_lost_wake_up() {
    caught(&[DEADLOCK], || {
        lockers::<NoSpin>("handed: a lost wake-up", 2, faulty(TWO, Fault::LoseWake(0)), 1, &[])
    });
}

#[test]
fn a_wait_that_is_not_atomic() {
    caught(&[DEADLOCK], || {
        lockers::<NoSpin>("handed: a wait that is not atomic", 3, faulty(TWO, Fault::TornWait), 1, &[])
    });
}

#[test]
fn a_lost_wake_up_of_one_that_was_moved() {
    for giving in [Giving::SignalHeld, Giving::SignalFree] {
        caught(&[DEADLOCK], || {
            give_to("handed: a lost wake-up of a waiter", 2, faulty(TWO, Fault::LoseWake(0)), giving)
        });
    }
}

// The protocol.

/// The unlocker goes away as if the token were left, though somebody has queued meanwhile; or a locker sleeps
/// as if it had queued, though the token has been left.
#[test]
fn a_token_left_behind_somebodys_back() {
    caught(&[DEADLOCK], || {
        let settings = faulty(TWO, Fault::Lie(0));
        unlock_against_counted("a token left behind somebody's back", 3, settings, [1], &[])
    });
}

/// A waiter whose time is over leaves, though it was handed the mutex; or an unlocker believes that it has
/// handed the mutex to one that has left.
#[test]
fn giving_up_though_handed() {
    caught(&[LEFT], || {
        giving_up::<NoSpin>("giving up though handed", 3, faulty(TWO, Fault::Lie(0)), true, End::Before, &[])
    });
}

/// Thread 1 has given up, and what the algorithm does about it is tampered with.
fn abandoned(name: &str, tamper: fn(&World, &Rc<Passed>)) {
    explore::<Model>(name, 2, TWO, move |world| {
        let passed = Passed::new();
        world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 1);
        });
        tamper(world, &passed);
        passed.section();
        passed.mutex.unlock();
        passed.finish(1);
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
            world.script(0, passed.words().count, 2, move || {
                undo.words().count.fetch_add(1, Relaxed);
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
        explore::<Model>("a passer-by who does not count", 3, THREE, |world| {
            let passed = Passed::new();
            let undo = passed.clone();
            // His first look, and his count.
            world.script(2, passed.words().count, 2, move || {
                undo.words().count.fetch_add(u32::MAX, Relaxed);
            });
            let [locker] = world.unexplored(|| {
                passed.mutex.lock::<NoSpin>();
                counted(world, &passed, [1])
            });
            let passer_by = world.spawn(2, {
                let passed = passed.clone();
                move |_| {
                    let got = passed.words().push.peek() >> 31 != 0 && passed.mutex.try_lock();
                    if got {
                        passed.section();
                        passed.mutex.unlock();
                    }
                    u32::from(got)
                }
            });
            passed.section();
            passed.mutex.unlock();
            locker.join().unwrap();
            let tried = passer_by.join().unwrap();
            passed.finish(2 + tried);
        })
    });
}

/// Two send the same waiter, and neither asks whether the other has.
#[test]
fn two_senders_of_one_waiter() {
    caught(&[DEADLOCK, ENDLESS, LEFT], || {
        explore::<Model>("two senders of one waiter", 2, THREE, |world| {
            let passed = Passed::new();
            let receiver = world.unexplored(|| {
                let receiver = world.spawn(1, {
                    let passed = passed.clone();
                    move |_| {
                        waiter_words::<Model>(waiter(1, 0)).state.store(state::SIGNALLED, Relaxed);
                        passed.mutex.receive_lock(waiter(1, 0));
                        passed.section();
                        passed.mutex.unlock();
                    }
                });
                world.await_sleep(1);
                receiver
            });
            let sender = world.spawn(2, {
                let passed = passed.clone();
                move |_| passed.mutex.send_lock(waiter(1, 0))
            });
            passed.mutex.send_lock(waiter(1, 0));
            sender.join().unwrap();
            receiver.join().unwrap();
            passed.finish(1);
        })
    });
}

// Ordering.

fn misordered(name: &str, settings: Settings, fault: Fault) {
    caught(&[UNORDERED], || lockers::<NoSpin>(name, 3, faulty(settings, fault), 1, &[]));
}

#[test]
fn no_release() {
    misordered("handed: no release", TWO, Fault::WeakRelease);
    caught(&[UNORDERED], || {
        let settings = faulty(Settings { spins: 1, ..TWO }, Fault::WeakRelease);
        lockers::<Competitive>("handed: no release to spinners", 2, settings, 1, &[])
    });
}

#[test]
fn no_acquire() {
    misordered("handed: no acquire", TWO, Fault::WeakAcquire);
    caught(&[UNORDERED], || {
        let settings = faulty(Settings { spins: 1, ..TWO }, Fault::WeakAcquire);
        lockers::<Competitive>("handed: no acquire by spinners", 2, settings, 1, &[])
    });
}

/// The hand-over, the token, and queueing.
#[test]
fn a_relaxed_compare_and_swap() {
    misordered("handed: a relaxed compare-and-swap", RESTLESS, Fault::Weaken(Operation::CompareExchange));
    caught(&[UNORDERED], || {
        let settings = faulty(TWO, Fault::Weaken(Operation::CompareExchange));
        unlock_against_counted("a relaxed token", 2, settings, [1], &[])
    });
}

/// The fast paths.
#[test]
fn a_relaxed_fetch_add() {
    misordered("handed: a relaxed fetch-and-add", TWO, Fault::Weaken(Operation::FetchAdd));
}

/// The one that was handed the mutex looks whether it was, and does not acquire.
#[test]
fn a_relaxed_load() {
    misordered("handed: a relaxed load", RESTLESS, Fault::Weaken(Operation::Load));
}

/// The unlocker turns the stack round, and does not see how those who pushed have linked themselves.
#[test]
fn a_relaxed_fetch_and() {
    caught(&[DEADLOCK, ENDLESS], || {
        let settings = faulty(THREE, Fault::Weaken(Operation::FetchAnd));
        unlock_against_counted("a stack turned round by a relaxed operation", 3, settings, [1, 2], &[])
    });
}

// Memory.

#[test]
fn a_touch_after_the_release() {
    for settings in [TWO, Settings { spins: 1, ..TWO }] {
        caught(&[LATE, UNORDERED], || {
            let settings = faulty(settings, Fault::TouchAfterRelease);
            destroyed_by_the_last("handed: a touch after the release", 3, settings, false, &[], |_, _| {})
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
        let name = "a look at the queue after the token";
        destroyed_by_the_last(name, 4, TWO, false, &[], |world, passed| {
            // The epoch, a stack to turn round, a reason not to leave the token, and the token.
            touch_after(world, passed, passed.words().push, 4);
        })
    });
}

/// An unlocker that looks at the mutex when it has handed it over.
#[test]
fn a_look_after_the_hand_over() {
    caught(&[LATE, UNORDERED], || {
        let name = "a look after the hand-over";
        destroyed_by_the_last(name, 3, RESTLESS, false, &[], |world, passed| {
            touch_after(world, passed, &waiter_words::<Model>(waiter(1, 0)).state, 1);
        })
    });
}

/// A sender that does so.
#[test]
fn a_look_after_a_lock_was_sent() {
    for held in [false, true] {
        caught(&[LATE, UNORDERED], || {
            let settings = Settings { restless: 6, ..TWO };
            freed_by_a_waiter("a look after a lock was sent", 4, settings, held, |world, passed| {
                // Claimed, in two steps, sent, and handed over.
                touch_after(world, passed, &waiter_words::<Model>(waiter(1, 0)).state, 4);
            })
        });
    }
}

/// The main thread reads the mutex right after its `nth` operation on a word.
fn touch_after(world: &World, passed: &Mortal<Passed>, word: &poundlock_model::U32, nth: u32) {
    let touched = passed.clone();
    world.script(0, word, nth, move || {
        let _ = touched.words().push.load(Relaxed);
    });
}

// Forks.

/// A child that takes itself for its parent follows what the parent's threads left.
#[test]
fn a_fork_that_goes_unnoticed() {
    caught(&[NO_SUCH_THREAD], || {
        held("handed: a fork that goes unnoticed", 2, Settings { epoch: BEFORE, ..TWO }, GHOST)
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
        held("a relaxed look at the epoch", 3, settings, GHOST)
    });
    caught(&[NO_SUCH_THREAD, UNORDERED], || {
        let settings = faulty(CHILD, Fault::WeakRelease);
        free("words cleared without a release", 3, settings, 0)
    });
}
