//! The paravirtual queue spinlock: each wait against each kick, the lock hash, and who sees to a halted head.

use std::rc::Rc;

use loom::thread::JoinHandle;
use poundlock_core::events::Event;
use poundlock_core::qspin::{Layout, Paravirtual};
use poundlock_model::{Model, Modelled, Patient, Report, Settings, World, explore};

use crate::qspin::{LOCKED, LOW_BYTE, SLOW, Spin, Spun, THREE, TWO, for_each_layout, trying};
use crate::scenes::{Guarded, Lock, destroyed_by_the_last, held, held_then, join, lockers, sound};

/// A lock in which nobody has halted.
pub(crate) type New<P, L> = Spin<P, L, Paravirtual>;
/// A lock in which queue heads have halted before.
pub(crate) type Old<P, L> = Spin<P, L, Paravirtual, true>;

/// Nobody spins: whoever does not find the lock free halts, a pending waiter gives up as soon as it has set
/// its bit.
pub(crate) const HALTING: Settings = Settings { spins: 0, ..TWO };
pub(crate) const HALTING_THREE: Settings = Settings { spins: 0, ..THREE };

/// The main thread holds the lock, thread 1 is halted as queue head, those from 2 to `halted` behind it, and
/// those from there on come; it unlocks, runs `then`, and locks so many times again.
pub(crate) fn woken<P: Modelled, L: Layout>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    last_halted: u32,
    again: u32,
    then: impl Fn(&World) + Send + Sync + 'static,
) -> Report {
    let come = move |world: &World, spun: &Rc<Guarded<Old<P, L>>>| {
        let threads = world.threads();
        let mut others = spun.sleepers(world, 1..last_halted + 1);
        others.extend((last_halted + 1..threads).map(|index| spun.passer(world, index)));
        if last_halted + 1 < threads {
            // They come before the unlock, unless they are preempted.
            loom::thread::yield_now();
        }
        others
    };
    held_then(name, preemptions, settings, come, move |world, spun| {
        then(world);
        (0..again).map(|_| spun.pass()).sum()
    })
}

fn nothing(_: &World) {}

/// Starts thread 1, which comes so far that it is to be kicked. The caller holds the lock.
fn marked<L: Layout>(world: &World, spun: &Rc<Guarded<Old<Model, L>>>) -> JoinHandle<u32> {
    let head = spun.passer(world, 1);
    world.await_until(|| spun.lock.word().peek() & SLOW != 0);
    head
}

#[track_caller]
fn happened(report: Report, events: &[Event]) {
    for event in events {
        assert!(report.events[*event] > 0, "{event:?}: {report:?}");
    }
}

fn two_threads<L: Layout>() {
    // A head on its way into the hash, against a release: by a compare-and-swap of the byte, or the slow one.
    let report = lockers::<Old<Model, L>>("halting: two threads", 3, HALTING, 1);
    happened(report, &[Event::WaitHead, Event::KickUnlock]);
    assert!(report.sleeps > 0 && report.woken > 0 && report.timed_waits == 0);
}

fn two_threads_twice<L: Layout>() {
    let report = lockers::<Old<Model, L>>("halting: two threads twice", 2, HALTING, 2);
    happened(report, &[Event::KickUnlock]);
    assert!(report.sleeps > 0);
    let report = lockers::<New<Model, L>>("halting: two threads that spin", 3, TWO, 1);
    happened(report, &[Event::PendingHit]);
    trying::<New<Model, L>>("halting: trying", HALTING);
}

/// HALTS: the first halt in a lock, against a release by a plain store, which may wipe out `SLOW`.
pub(crate) fn first_halts<L: Layout>(name: &str, settings: Settings) -> Report {
    /// Where `SLOW` was wiped out.
    const WIPED: usize = 0;
    let report = explore::<Model>(name, 3, settings, |world| {
        let spun = Spun::<Model, L, Paravirtual>::new(world);
        world.watch_change(spun.lock.word(), WIPED, |before, after| {
            before & (SLOW | LOCKED) == SLOW | LOCKED && after & LOW_BYTE == 0
        });
        let other = spun.passer(world, 1);
        (0..2).for_each(|_| _ = spun.pass());
        spun.finish(2 + other.join().unwrap());
    });
    assert!(report.timed_waits > 0 && report.reached[WIPED] > 0);
    report
}

fn first_halt<L: Layout>() {
    first_halts::<L>("a first halt", HALTING);
}

fn three_threads<L: Layout>() {
    let report = lockers::<New<Model, L>>("halting: three threads", 1, HALTING_THREE, 1);
    happened(report, &[Event::WaitHead]);
}

/// The main thread takes the lock again while the head it has kicked comes: vain wake-ups, and halts anew;
/// and a reservation after the first of them.
fn stealing_and_reservation<L: Layout>() {
    let report = woken::<Model, L>("stealing and reservation", 2, HALTING, 1, 2, nothing);
    happened(report, &[Event::Steal, Event::Reservation, Event::WaitAgain, Event::KickUnlock]);
    // ... and a section that is longer than the head spins: what it reserved is lost, and the next release is
    // for it alone.
    let report = woken::<Model, L>("left to the head", 3, HALTING, 1, 2, nothing);
    happened(report, &[Event::Reservation, Event::WaitAgain, Event::LeftToHead]);
    let report = woken::<Patient, L>("stealing", 2, HALTING, 1, 2, nothing);
    happened(report, &[Event::Steal, Event::WaitAgain]);
    assert_eq!(report.events[Event::Reservation] + report.events[Event::LeftToHead], 0);
}

/// Headship goes to one that is halted, and stays so until its turn has come.
fn headship_to_the_halted<L: Layout>() {
    let report = woken::<Model, L>("headship to the halted", 2, HALTING_THREE, 2, 1, nothing);
    happened(report, &[Event::HashedByPasser, Event::Steal, Event::KickUnlock]);
    // Nobody takes the lock in between: one kick for each of the two.
    let report = woken::<Model, L>("one kick each", 3, HALTING_THREE, 2, 0, nothing);
    assert_eq!(report.events[Event::KickUnlock], 2 * report.executions);
    assert_eq!(report.events[Event::HashedByPasser], report.executions);
    assert_eq!(report.events[Event::WaitAgain], 0);
}

/// It wakes for no reason: before headship comes, between that and its entry in the hash, or later.
fn headship_to_one_that_wakes<L: Layout>() {
    let name = "headship to one that wakes";
    let report = woken::<Model, L>(name, 2, HALTING_THREE, 2, 0, |world| world.interrupt(2));
    assert!(report.interrupted > 0);
    happened(report, &[Event::SpuriousWakeup, Event::HashedByPasser]);
}

/// The head wakes for no reason while it is kicked, and comes before the kick or meets it in its next wait.
fn a_kick_for_one_that_wakes<L: Layout>() {
    let come = |world: &World, spun: &Rc<Guarded<Old<Model, L>>>| {
        let mut others = spun.sleepers(world, 1..2);
        others.push(world.spawn(2, |world: &World| {
            world.interrupt(1);
            0
        }));
        others
    };
    let report = held_then("a kick for one that wakes", 2, HALTING_THREE, come, |_, spun| spun.pass());
    assert!(report.interrupted > 0);
    happened(report, &[Event::SpuriousWakeup]);
}

/// Waits end for no reason, at both places.
fn restless<L: Layout>() {
    let settings = Settings { restless: 2, ..HALTING };
    let report = lockers::<Old<Model, L>>("halting: restless", 3, settings, 1);
    happened(report, &[Event::SpuriousWakeup]);
    let come = |world: &World, spun: &Rc<Guarded<Old<Model, L>>>| {
        world.unexplored(|| {
            let head = marked(world, spun);
            let tail = spun.lock.word().peek() & L::TAIL;
            let waiter = spun.passer(world, 2);
            world.await_until(|| spun.lock.word().peek() & L::TAIL != tail);
            vec![head, waiter]
        })
    };
    let report = held("halting: restless in the queue", 2, Settings { threads: 3, ..settings }, come);
    happened(report, &[Event::SpuriousWakeup, Event::WaitNode]);
}

/// A head that runs before it is kicked goes into the hash again, while the kick is still on its way: another
/// has taken the lock.
fn a_head_that_comes_back<L: Layout>() {
    let come = |world: &World, spun: &Rc<Guarded<Old<Model, L>>>| {
        vec![world.unexplored(|| marked(world, spun)), spun.passer(world, 2)]
    };
    let settings = Settings { restless: 2, ..HALTING_THREE };
    happened(held("a head that comes back", 2, settings, come), &[Event::WaitAgain, Event::Steal]);
}

/// DUTY: an unlock leaves the halted head to the pending waiter, which is about to give up. The second must
/// not.
fn passing_to_one_that_gives_up<L: Layout>() {
    for spins in [0, 1] {
        let settings = Settings { spins, ..THREE };
        let report = woken::<Model, L>("passing to one that gives up", 2, settings, 1, 1, nothing);
        happened(report, &[Event::Pass, Event::KickUnlock]);
    }
}

/// Two locks in one line of the hash: their entries come and go at the same time.
fn collision<L: Layout>() {
    let report = explore::<Model>("a collision", 1, HALTING_THREE, |world| {
        let spuns = [1, 2].map(|_| Guarded::<Old<Model, L>>::new(world));
        spuns.iter().for_each(|spun| spun.lock.lock());
        let others = [1, 2].map(|index| spuns[index - 1].passer(world, index as u32));
        loom::thread::yield_now();
        spuns.iter().for_each(|spun| spun.leave());
        join(others.into());
        spuns.iter().for_each(|spun| spun.finish(2));
    });
    happened(report, &[Event::HashHop]);
}

/// Two are taken out at once, and one of the locks gets a new one.
fn collision_of_removals<L: Layout>() {
    let report =
        explore::<Model>("a collision of removals", 1, Settings { threads: 4, ..HALTING }, |world| {
            let spuns = [1, 2].map(|_| Guarded::<Old<Model, L>>::new(world));
            spuns.iter().for_each(|spun| spun.lock.lock());
            let mut others = spuns[0].sleepers(world, 1..2);
            others.extend(spuns[1].sleepers(world, 2..3));
            // Holds the second lock in the main thread's stead.
            let spun = spuns[1].clone();
            others.push(world.spawn(3, move |_: &World| {
                spun.leave();
                1
            }));
            spuns[0].leave();
            spuns[0].pass();
            join(others);
            spuns[0].finish(3);
            spuns[1].finish(2);
        });
    happened(report, &[Event::HashHop, Event::KickUnlock]);
}

/// Nobody can be found when it is halted, so the head stays awake and headship wakes.
fn without_a_hash<L: Layout>() {
    let come = |world: &World, spun: &Rc<Guarded<Old<Model, L>>>| {
        let head = world.unexplored(|| {
            let head = spun.passer(world, 1);
            world.await_until(|| spun.lock.word().peek() & L::TAIL != 0);
            head
        });
        let mut others = spun.sleepers(world, 2..3);
        others.push(head);
        others
    };
    let settings = Settings { hash: false, ..HALTING_THREE };
    let report = held_then("without a hash", 2, settings, come, |_, spun| spun.pass());
    assert!(report.woken > 0);
    happened(report, &[Event::WaitNode]);
    for event in [Event::HashedByPasser, Event::KickUnlock, Event::WaitHead] {
        assert_eq!(report.events[event], 0, "{event:?}");
    }
}

fn displaced<L: Layout>() {
    // All run on one CPU, and whoever waits has displaced the one in front.
    let settings = Settings { threads: 3, tags: [1; 5], ..TWO };
    let report = woken::<Model, L>("halting: displaced", 1, settings, 1, 1, nothing);
    happened(report, &[Event::WaitEarly]);
    // One without a record takes the lock when it can, past those who are halted.
    let settings = Settings { unregistered: 4, ..HALTING_THREE };
    let report = woken::<Model, L>("halting: without a record", 2, settings, 1, 1, nothing);
    happened(report, &[Event::NoNode]);
}

/// The main thread holds locks for which thread 1 waits one within the other: in the first, and in handlers
/// upon it.
fn nested<L: Layout>(name: &str, preemptions: usize, locks: usize) -> Report {
    explore::<Model>(name, preemptions, HALTING, move |world| {
        let spuns: Vec<_> = (0..locks).map(|_| Guarded::<Old<Model, L>>::new(world)).collect();
        for inner in &spuns[1..] {
            let inner = inner.clone();
            world.handle(1, move || _ = inner.pass());
        }
        spuns.iter().for_each(|spun| spun.lock.lock());
        let waiter = world.unexplored(|| {
            let waiter = spuns[0].passer(world, 1);
            world.await_until(|| world.handlers_left() == 0);
            waiter
        });
        spuns.iter().for_each(|spun| spun.leave());
        waiter.join().unwrap();
        spuns.iter().for_each(|spun| spun.finish(2));
    })
}

fn in_a_handler<L: Layout>() {
    let report = nested::<L>("halting: in a handler", 3, 2);
    assert_eq!(report.events[Event::Level2], report.executions);
    happened(report, &[Event::HashHop]);
}

fn in_the_fourth_handler<L: Layout>() {
    let report = nested::<L>("halting: in the fourth handler", 0, 5);
    assert_eq!(report.events[Event::Level4], report.executions);
    assert_eq!(report.events[Event::NoNode], report.executions);
}

/// LAST TOUCH.
fn destroyed<L: Layout>() {
    let report = destroyed_by_the_last::<New<Model, L>>("halting: destroyed", 3, HALTING, false, sound);
    happened(report, &[Event::KickUnlock]);
    let name = "halting: destroyed, three";
    destroyed_by_the_last::<New<Patient, L>>(name, 1, HALTING_THREE, false, sound);
}

for_each_layout!(@ small Small
    two_threads
    two_threads_twice
    first_halt
    three_threads
    stealing_and_reservation
    headship_to_the_halted
    headship_to_one_that_wakes
    a_kick_for_one_that_wakes
    restless
    a_head_that_comes_back
    passing_to_one_that_gives_up
    collision
    collision_of_removals
    without_a_hash
    displaced
    in_a_handler
    in_the_fourth_handler
    destroyed
);

// The layouts differ in how the tail is swapped, and where it lies.
for_each_layout!(@ large Large
    two_threads
    first_halt
    three_threads
    headship_to_the_halted
    collision
    in_a_handler
    destroyed
);
