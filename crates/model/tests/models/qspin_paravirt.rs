//! The paravirtual queue spinlock: each wait against each kick, the lock hash, and who sees to a halted head.

use std::rc::Rc;

use loom::thread::JoinHandle;
use poundlock_core::events::Event;
use poundlock_core::qspin::{Layout, Paravirtual};
use poundlock_model::{Model, Modelled, Patient, Report, Settings, World, explore};

use crate::qspin::{
    LOCKED, LOW_BYTE, SLOW, Spun, THREE, TWO, destroyed_by_the_last, for_each_layout, passers, passers_at,
    trying,
};

/// Nobody spins: whoever does not find the lock free halts, a pending waiter gives up as soon as it has set
/// its bit.
pub(crate) const HALTING: Settings = Settings { spins: 0, ..TWO };
pub(crate) const HALTING_THREE: Settings = Settings { spins: 0, ..THREE };

/// Starts a thread that locks and unlocks, and lets it come to its halt. Within [`World::unexplored`].
fn halted<P: Modelled, L: Layout>(spun: &Rc<Spun<P, L>>, world: &World, index: u32) -> JoinHandle<()> {
    let waiter = spun.passer::<Paravirtual>(world, index, 1);
    world.await_sleep(index);
    waiter
}

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
    explore::<P>(name, preemptions, settings, move |world| {
        let spun = Spun::<P, L>::seasoned();
        let threads = settings.threads as u32;
        let mut others: Vec<_> = world.unexplored(|| {
            spun.lock.lock::<Paravirtual>();
            (1..=last_halted).map(|index| halted(&spun, world, index)).collect()
        });
        others.extend((last_halted + 1..threads).map(|index| spun.passer::<Paravirtual>(world, index, 1)));
        if last_halted + 1 < threads {
            // They come before the unlock, unless they are preempted.
            loom::thread::yield_now();
        }
        spun.section();
        spun.lock.unlock::<Paravirtual>();
        then(world);
        (0..again).for_each(|_| spun.pass::<Paravirtual>());
        for other in others {
            other.join().unwrap();
        }
        spun.finish(threads + again);
    })
}

/// A head on its way into the hash, against a release: by a compare-and-swap of the byte, or the slow one.
fn two_threads<L: Layout>(name: &str) {
    let report = passers_at::<Model, L, Paravirtual>(name, 3, HALTING, 1, Spun::seasoned);
    assert!(report.events[Event::WaitHead] > 0 && report.events[Event::KickUnlock] > 0);
    assert!(report.sleeps > 0 && report.woken > 0 && report.timed_waits == 0);
}

fn two_threads_twice<L: Layout>(name: &str) {
    let report = passers_at::<Model, L, Paravirtual>(name, 2, HALTING, 2, Spun::seasoned);
    assert!(report.events[Event::KickUnlock] > 0 && report.sleeps > 0);
}

fn two_threads_that_spin<L: Layout>(name: &str) {
    let report = passers::<Model, L, Paravirtual>(name, 3, TWO, 1);
    assert!(report.events[Event::PendingHit] > 0);
}

/// Where `SLOW` was wiped out.
const WIPED: usize = 0;

/// HALTS: the first halt in a lock, against a release by a plain store, which may wipe out `SLOW`.
pub(crate) fn first_halts<L: Layout>(name: &str, settings: Settings) -> Report {
    explore::<Model>(name, 3, settings, |world| {
        let spun = Spun::<Model, L>::new();
        world.watch_change(spun.word(), WIPED, |before, after| {
            before & (SLOW | LOCKED) == SLOW | LOCKED && after & LOW_BYTE == 0
        });
        let other = spun.passer::<Paravirtual>(world, 1, 1);
        (0..2).for_each(|_| spun.pass::<Paravirtual>());
        other.join().unwrap();
        spun.finish(3);
    })
}

fn first_halt<L: Layout>(name: &str) {
    let report = first_halts::<L>(name, HALTING);
    assert!(report.timed_waits > 0 && report.reached[WIPED] > 0);
}

fn three_threads<L: Layout>(name: &str) {
    let report = passers::<Model, L, Paravirtual>(name, 1, HALTING_THREE, 1);
    assert!(report.events[Event::WaitHead] > 0);
}

/// The main thread takes the lock again while the head it has kicked comes: vain wake-ups, and halts anew;
/// and a reservation after the first of them.
fn stealing_and_reservation<L: Layout>(name: &str) {
    let report = woken::<Model, L>(name, 2, HALTING, 1, 2, |_| {});
    for event in [Event::Steal, Event::Reservation, Event::WaitAgain, Event::KickUnlock] {
        assert!(report.events[event] > 0, "{event:?}");
    }
}

/// ... and a section that is longer than the head spins: what it reserved is lost, and the next release is
/// for it alone.
fn left_to_the_head<L: Layout>(name: &str) {
    let report = woken::<Model, L>(name, 3, HALTING, 1, 2, |_| {});
    for event in [Event::Reservation, Event::WaitAgain, Event::LeftToHead] {
        assert!(report.events[event] > 0, "{event:?}");
    }
}

fn stealing<L: Layout>(name: &str) {
    let report = woken::<Patient, L>(name, 2, HALTING, 1, 2, |_| {});
    assert!(report.events[Event::Steal] > 0 && report.events[Event::WaitAgain] > 0);
    assert_eq!(report.events[Event::Reservation] + report.events[Event::LeftToHead], 0);
}

/// Headship goes to one that is halted, and stays so until its turn has come.
fn headship_to_the_halted<L: Layout>(name: &str) {
    let report = woken::<Model, L>(name, 2, HALTING_THREE, 2, 1, |_| {});
    for event in [Event::HashedByPasser, Event::Steal, Event::KickUnlock] {
        assert!(report.events[event] > 0, "{event:?}");
    }
}

/// Nobody takes the lock in between: one kick for each of the two.
fn one_kick_each<L: Layout>(name: &str) {
    let report = woken::<Model, L>(name, 3, HALTING_THREE, 2, 0, |_| {});
    assert_eq!(report.events[Event::KickUnlock], 2 * report.executions);
    assert_eq!(report.events[Event::HashedByPasser], report.executions);
    assert_eq!(report.events[Event::WaitAgain], 0);
}

/// It wakes for no reason: before headship comes, between that and its entry in the hash, or later.
fn headship_to_one_that_wakes<L: Layout>(name: &str) {
    let report = woken::<Model, L>(name, 2, HALTING_THREE, 2, 0, |world| world.interrupt(2));
    assert!(report.interrupted > 0);
    assert!(report.events[Event::SpuriousWakeup] > 0 && report.events[Event::HashedByPasser] > 0);
}

/// The head wakes for no reason while it is kicked, and comes before the kick or meets it in its next wait.
fn a_kick_for_one_that_wakes<L: Layout>(name: &str) {
    let report = explore::<Model>(name, 2, HALTING_THREE, |world| {
        let spun = Spun::<Model, L>::seasoned();
        let head = world.unexplored(|| {
            spun.lock.lock::<Paravirtual>();
            halted(&spun, world, 1)
        });
        let signal = world.spawn(2, |world: &World| world.interrupt(1));
        spun.section();
        spun.lock.unlock::<Paravirtual>();
        spun.pass::<Paravirtual>();
        signal.join().unwrap();
        head.join().unwrap();
        spun.finish(3);
    });
    assert!(report.interrupted > 0 && report.events[Event::SpuriousWakeup] > 0);
}

/// Waits end for no reason, at both places.
fn restless<L: Layout>(name: &str) {
    let settings = Settings { restless: 2, ..HALTING };
    let report = passers_at::<Model, L, Paravirtual>(name, 3, settings, 1, Spun::seasoned);
    assert!(report.events[Event::SpuriousWakeup] > 0);
    let settings = Settings { threads: 3, ..settings };
    let report = explore::<Model>(name, 2, settings, |world| {
        let spun = Spun::<Model, L>::seasoned();
        let others = world.unexplored(|| {
            spun.lock.lock::<Paravirtual>();
            let head = spun.passer::<Paravirtual>(world, 1, 1);
            world.await_until(|| spun.word().peek() & SLOW != 0);
            let tail = spun.word().peek() & L::TAIL;
            let waiter = spun.passer::<Paravirtual>(world, 2, 1);
            world.await_until(|| spun.word().peek() & L::TAIL != tail);
            [head, waiter]
        });
        spun.section();
        spun.lock.unlock::<Paravirtual>();
        for other in others {
            other.join().unwrap();
        }
        spun.finish(3);
    });
    assert!(report.events[Event::SpuriousWakeup] > 0 && report.events[Event::WaitNode] > 0);
}

/// A head that runs before it is kicked goes into the hash again, while the kick is still on its way: another
/// has taken the lock.
fn a_head_that_comes_back<L: Layout>(name: &str) {
    let report = explore::<Model>(name, 2, Settings { restless: 2, ..HALTING_THREE }, |world| {
        let spun = Spun::<Model, L>::seasoned();
        let head = world.unexplored(|| {
            spun.lock.lock::<Paravirtual>();
            let head = spun.passer::<Paravirtual>(world, 1, 1);
            world.await_until(|| spun.word().peek() & SLOW != 0);
            head
        });
        let thief = spun.passer::<Paravirtual>(world, 2, 1);
        spun.section();
        spun.lock.unlock::<Paravirtual>();
        head.join().unwrap();
        thief.join().unwrap();
        spun.finish(3);
    });
    assert!(report.events[Event::WaitAgain] > 0 && report.events[Event::Steal] > 0);
}

/// DUTY: an unlock leaves the halted head to the pending waiter, which is about to give up. The second must
/// not.
fn passing_to_one_that_gives_up<L: Layout>(name: &str) {
    for spins in [0, 1] {
        let report = woken::<Model, L>(name, 2, Settings { spins, ..THREE }, 1, 1, |_| {});
        assert!(report.events[Event::Pass] > 0 && report.events[Event::KickUnlock] > 0, "{spins}");
    }
}

/// Two locks in one line of the hash: their entries come and go at the same time.
fn collision<L: Layout>(name: &str) {
    let report = explore::<Model>(name, 1, HALTING_THREE, |world| {
        let spuns = [Spun::<Model, L>::seasoned(), Spun::<Model, L>::seasoned()];
        spuns.iter().for_each(|spun| spun.lock.lock::<Paravirtual>());
        let first = spuns[0].passer::<Paravirtual>(world, 1, 1);
        let second = spuns[1].passer::<Paravirtual>(world, 2, 1);
        loom::thread::yield_now();
        for spun in &spuns {
            spun.section();
            spun.lock.unlock::<Paravirtual>();
        }
        first.join().unwrap();
        second.join().unwrap();
        spuns.iter().for_each(|spun| spun.finish(2));
    });
    assert!(report.events[Event::HashHop] > 0);
}

/// Two are taken out at once, and one of the locks gets a new one.
fn collision_of_removals<L: Layout>(name: &str) {
    let report = explore::<Model>(name, 1, Settings { threads: 4, ..HALTING }, |world| {
        let spuns = [Spun::<Model, L>::seasoned(), Spun::<Model, L>::seasoned()];
        let (first, second) = world.unexplored(|| {
            spuns.iter().for_each(|spun| spun.lock.lock::<Paravirtual>());
            (halted(&spuns[0], world, 1), halted(&spuns[1], world, 2))
        });
        // Holds the second lock in the main thread's stead.
        let other = world.spawn(3, {
            let spun = spuns[1].clone();
            move |_: &World| {
                spun.section();
                spun.lock.unlock::<Paravirtual>();
            }
        });
        spuns[0].section();
        spuns[0].lock.unlock::<Paravirtual>();
        spuns[0].pass::<Paravirtual>();
        for thread in [first, second, other] {
            thread.join().unwrap();
        }
        spuns[0].finish(3);
        spuns[1].finish(2);
    });
    assert!(report.events[Event::HashHop] > 0 && report.events[Event::KickUnlock] > 0);
}

/// Nobody can be found when it is halted, so the head stays awake and headship wakes.
fn without_a_hash<L: Layout>(name: &str) {
    let report = explore::<Model>(name, 2, Settings { hash: false, ..HALTING_THREE }, |world| {
        let spun = Spun::<Model, L>::seasoned();
        let others = world.unexplored(|| {
            spun.lock.lock::<Paravirtual>();
            let head = spun.passer::<Paravirtual>(world, 1, 1);
            world.await_until(|| spun.word().peek() & L::TAIL != 0);
            [head, halted(&spun, world, 2)]
        });
        spun.section();
        spun.lock.unlock::<Paravirtual>();
        spun.pass::<Paravirtual>();
        for other in others {
            other.join().unwrap();
        }
        spun.finish(4);
    });
    assert!(report.woken > 0 && report.events[Event::WaitNode] > 0);
    for event in [Event::HashedByPasser, Event::KickUnlock, Event::WaitHead] {
        assert_eq!(report.events[event], 0, "{event:?}");
    }
}

/// All run on one CPU, and whoever waits has displaced the one in front.
fn displaced<L: Layout>(name: &str) {
    let settings = Settings { threads: 3, tags: [1; 5], ..TWO };
    let report = woken::<Model, L>(name, 1, settings, 1, 1, |_| {});
    assert!(report.events[Event::WaitEarly] > 0);
}

/// One without a record takes the lock when it can, past those who are halted.
fn without_a_record<L: Layout>(name: &str) {
    let report = woken::<Model, L>(name, 2, Settings { unregistered: 4, ..HALTING_THREE }, 1, 1, |_| {});
    assert!(report.events[Event::NoNode] > 0);
}

fn try_lock<L: Layout>(name: &str) {
    trying::<Model, L, Paravirtual>(name, 2, HALTING);
}

/// The main thread holds locks for which thread 1 waits one within the other: in the first, and in handlers
/// upon it.
fn nested<L: Layout>(name: &str, preemptions: usize, locks: usize) -> Report {
    explore::<Model>(name, preemptions, HALTING, move |world| {
        let spuns: Vec<_> = (0..locks).map(|_| Spun::<Model, L>::seasoned()).collect();
        for inner in &spuns[1..] {
            let inner = inner.clone();
            world.handle(1, move || inner.pass::<Paravirtual>());
        }
        let waiter = world.unexplored(|| {
            spuns.iter().for_each(|spun| spun.lock.lock::<Paravirtual>());
            let waiter = spuns[0].passer::<Paravirtual>(world, 1, 1);
            world.await_until(|| world.handlers_left() == 0);
            waiter
        });
        for spun in &spuns {
            spun.section();
            spun.lock.unlock::<Paravirtual>();
        }
        waiter.join().unwrap();
        spuns.iter().for_each(|spun| spun.finish(2));
    })
}

fn in_a_handler<L: Layout>(name: &str) {
    let report = nested::<L>(name, 3, 2);
    assert_eq!(report.events[Event::Level2], report.executions);
    assert!(report.events[Event::HashHop] > 0);
}

fn in_the_fourth_handler<L: Layout>(name: &str) {
    let report = nested::<L>(name, 0, 5);
    assert_eq!(report.events[Event::Level4], report.executions);
    assert_eq!(report.events[Event::NoNode], report.executions);
}

/// LAST TOUCH.
fn destroyed<L: Layout>(name: &str) {
    let report = destroyed_by_the_last::<Model, L, Paravirtual>(name, 3, HALTING);
    assert!(report.events[Event::KickUnlock] > 0);
    destroyed_by_the_last::<Patient, L, Paravirtual>(name, 1, HALTING_THREE);
}

for_each_layout!(@ small Small
    two_threads
    two_threads_twice
    two_threads_that_spin
    first_halt
    three_threads
    stealing_and_reservation
    left_to_the_head
    stealing
    headship_to_the_halted
    one_kick_each
    headship_to_one_that_wakes
    a_kick_for_one_that_wakes
    restless
    a_head_that_comes_back
    passing_to_one_that_gives_up
    collision
    collision_of_removals
    without_a_hash
    displaced
    without_a_record
    try_lock
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
    one_kick_each
    collision
    in_a_handler
    destroyed
);
