//! The default mutex where it goes along sides: exclusion, no lost wake-up, nothing left behind; unlocked by
//! another thread, destroyed by its next owner, within another mutex that has the same side, and in a forked
//! child.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::Platform;
use poundlock_core::platform::Atomic;
use poundlock_model::{Fault, Model, Operation, Patient, Settings, World, queue_words};

use crate::adaptive::BIAS_REVOKED;
use crate::poundlock_grants::{
    Along, BEFORE, GHOST, GRANTS, LOCKED, beside_a_sleeper, came_to, destroyed, nested, queued,
    unlocked_by_another,
};
use crate::queue_sides::{ALONG, REFUSED, TURN};
use crate::scenes::{
    DEADLOCK, ENDLESS, End, GAVE_UP, Giving, LATE, NO_SUCH_THREAD, UNORDERED, caught, destroyed_by_the_last,
    destroyed_by_the_waiter, faulty, forked, give_to, giving_up, held, lockers, sometimes, sound,
};

/// The first to queue up are of one node.
const TWO: Settings = Settings { spins: 2, cpus: 2, sides: 1, nodes: [1, 0, 0, 1, 0], ..Settings::DEFAULT };
const TOGETHER: Settings = Settings { nodes: [0; 5], ..TWO };
const THREE: Settings = Settings { threads: 3, ..TWO };
/// So many that those who queued up are there still when the others have come.
const THREE_LINED_UP: Settings = Settings { spins: 5, ..THREE };
const FOUR_LINED_UP: Settings = Settings { threads: 4, spins: 7, ..TWO };

#[test]
fn two_threads() {
    for (name, settings) in [("sides: two threads", TOGETHER), ("sides: two threads apart", TWO)] {
        lockers::<Along<Model>>(name, 2, settings, 2);
        lockers::<Along<Patient>>(&format!("{name}, patient"), 2, settings, 2);
    }
    lockers::<Along<Model>>("sides: plain", 2, Settings { plain_release: true, ..TWO }, 2);
}

#[test]
fn three_threads() {
    lockers::<Along<Model>>("sides: three threads", 1, THREE, 2);
    lockers::<Along<Patient>>("sides: three threads, patient", 1, THREE, 2);
    lockers::<Along<Model>>("sides: three threads, impatient", 1, Settings { spins: 1, ..THREE }, 2);
    lockers::<Along<Model>>("sides: displaced", 1, Settings { tags: [1; 5], ..THREE }, 2);
    // The threads that have a record find no side that they may use.
    lockers::<Along<Model>>("sides: without a record", 1, Settings { unregistered: 1, ..THREE }, 2);
}

#[test]
fn a_grant() {
    let come = |world: &World, guarded: &Rc<_>| queued(world, guarded, &[1, 2]);
    came_to(held("sides: a grant", 2, THREE_LINED_UP, come), &[ALONG]);
    let come = |world: &World, guarded: &Rc<_>| queued(world, guarded, &[1, 2, 3]);
    came_to(held("sides: along three", 1, FOUR_LINED_UP, come), &[ALONG]);
}

#[test]
fn trying_and_giving_up() {
    let report = held("sides: trying", 2, FOUR_LINED_UP, |world, guarded| {
        let mut others = queued(world, guarded, &[1, 2]);
        others.push(guarded.passer_at_once(world, 3));
        others
    });
    came_to(report, &[ALONG]);
    sometimes(report, GAVE_UP);
    held::<Along<Model>>("sides: gives up", 2, THREE_LINED_UP, |world, guarded| {
        let others = queued(world, guarded, &[1]);
        let timed = guarded.timed_passer(world, 2);
        world.expire(0);
        others.into_iter().chain([timed]).collect()
    });
    let impatient = Settings { spins: 0, ..TWO };
    giving_up::<Along<Model>>("sides: times out", 2, impatient, true, End::Before);
}

#[test]
fn beside_sleepers() {
    let report = beside_a_sleeper("sides: beside a sleeper", FOUR_LINED_UP);
    assert!(report.woken > 0, "{report:?}");
}

/// Both mutexes have one side.
#[test]
fn one_within_another() {
    came_to(nested("sides: one within another", THREE_LINED_UP), &[ALONG]);
    let together = Settings { nodes: [0; 5], spins: 3, ..THREE };
    came_to(nested("sides: one within another, together", together), &[REFUSED]);
}

#[test]
fn another_unlocks() {
    came_to(unlocked_by_another("sides: another unlocks", THREE_LINED_UP), &[ALONG]);
    let apart = Settings { nodes: [0, 1, 0, 0, 0], ..THREE_LINED_UP };
    came_to(unlocked_by_another("sides: another unlocks, apart", apart), &[ALONG]);
}

#[test]
fn condition_variables() {
    give_to::<Along<Model>>("sides: broadcast, held", 2, TWO, Giving::BroadcastHeld);
    give_to::<Along<Model>>("sides: broadcast to two, free", 1, THREE, Giving::BroadcastFree);
    let name = "sides: destroyed by the signalled";
    destroyed_by_the_waiter::<Along<Model>>(name, 2, TWO, Giving::BroadcastFree, sound);
}

/// LAST TOUCH: the one before still passes on the lead.
#[test]
fn destroyed_by_the_next_owner() {
    came_to(destroyed::<Model>("sides: destroyed", THREE_LINED_UP), &[ALONG]);
    let apart = Settings { nodes: [0, 1, 0, 0, 0], ..THREE_LINED_UP };
    came_to(destroyed::<Model>("sides: destroyed apart", apart), &[TURN]);
    came_to(destroyed::<Patient>("sides: destroyed, four", FOUR_LINED_UP), &[ALONG, TURN]);
    let led = Settings { nodes: [0, 0, 1, 0, 0], ..FOUR_LINED_UP };
    came_to(destroyed::<Model>("sides: destroyed, and a lead", led), &[ALONG]);
    let name = "sides: destroyed by the last of three";
    destroyed_by_the_last::<Along<Model>>(name, 1, THREE, false, sound);
}

/// An owner forks that keeps its place in a side's queue, or has stolen a side's: sides are as new in the
/// child.
fn forked_as(epoch: u32, thief: bool) {
    const SIDE: u32 = 1 << 31;
    let child = Settings { epoch, spins: 0, ..TWO };
    let haunt = move |mutex: &Along<Model>| {
        let words = mutex.words();
        words.word.store(LOCKED | GRANTS, Relaxed);
        // A side that had places behind it.
        words.tail.store(GHOST, Relaxed);
        words.wait_lock.store(BIAS_REVOKED | BEFORE, Relaxed);
        let address = core::ptr::from_ref(&mutex.0).addr();
        let [node, ..] = queue_words::<Model>(0);
        let leads = 8 | 3;
        node.place.store(address << 2 | leads, Relaxed);
        node.next.store(GHOST, Relaxed);
        node.epoch.store(BEFORE, Relaxed);
        Model::record(0).keepers()[0].store(1, Relaxed);
        node.side.store(SIDE, Relaxed);
        Model::keep(address, if thief { SIDE } else { 1 });
    };
    let wait_lock = |mutex: &Along<Model>| mutex.words().wait_lock.peek();
    forked("sides: forked", child, true, haunt, wait_lock);
}

#[test]
fn in_a_forked_child() {
    forked_as(7, false);
    forked_as(7, true);
}

// Planted bugs.

#[test]
fn bugs_along_sides() {
    let come = |world: &World, guarded: &Rc<_>| queued(world, guarded, &[1, 2, 3]);
    for fault in [Fault::WeakRelease, Fault::WeakAcquire, Fault::Omit(Operation::FetchAnd, !GRANTS)] {
        caught(&[UNORDERED, DEADLOCK, ENDLESS], || {
            held::<Along<Model>>(&format!("{fault:?}"), 2, faulty(FOUR_LINED_UP, fault), come)
        });
    }
}

#[test]
fn a_sleeper_that_is_not_woken_at_the_end() {
    caught(&[DEADLOCK], || beside_a_sleeper("a lost wake-up", faulty(FOUR_LINED_UP, Fault::LoseWake(0))));
}

#[test]
fn a_touch_after_the_release() {
    caught(&[LATE, UNORDERED], || {
        destroyed::<Model>("a late touch", faulty(THREE_LINED_UP, Fault::TouchAfterRelease))
    });
}

/// A child that takes itself for its parent passes the mutex on to a thread that is not there.
#[test]
fn a_fork_that_goes_unnoticed() {
    caught(&[NO_SUCH_THREAD], || forked_as(BEFORE, false));
}
