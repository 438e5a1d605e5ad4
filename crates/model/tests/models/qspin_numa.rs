//! The queue spinlock where waiters of one node of memory go one after another: nobody is lost on the way
//! aside and back, whoever comes meanwhile; and bugs planted there.
//!
//! [`Patient`] lets a batch last for ever, so those set aside come back when there is nobody else. On
//! [`Model`] it is over as soon as it began: they come back before the rest of the queue.

use std::rc::Rc;

use loom::thread::JoinHandle;
use poundlock_core::events::Event;
use poundlock_core::node::{LEVELS, Node, NodeId};
use poundlock_core::qspin::{ChosenForm, Layout, NativeNuma, ParavirtualNuma, Small};
use poundlock_model::{Fault, Model, Modelled, Operation, Patient, Report, Settings, THREADS, World};

use crate::qspin::{LOCKED, Spin, Spun, THREE, for_each_layout};
use crate::scenes::{
    DEADLOCK, ENDLESS, Guarded, UNORDERED, caught, each_is_caught, faulty, held_then, lockers,
};

type Old<P, L> = Spin<P, L, ParavirtualNuma, true>;

/// Where the one of another node was set aside.
const ASIDE: usize = 0;
/// Where the tail became that of those set aside, in one step with an acquisition.
const OPENED: usize = 1;
/// Where the last of those set aside got the rest of the queue behind it.
const JOINED: usize = 2;

/// The main thread holds the lock; of the four that queue, the third is of another node than the rest.
const FOUR: Settings = Settings { threads: 5, nodes: [0, 0, 0, 1, 0], ..THREE };
const FOUR_HALTING: Settings = Settings { spins: 0, ..FOUR };
const STRANGER: u32 = 3;

const _: () = assert!(THREADS == 5);

/// The first node of the thread with this index.
fn node(index: u32) -> u32 {
    index * LEVELS + 1
}

fn words<P: Modelled>(index: u32) -> &'static Node<P> {
    NodeId::from_raw(node(index)).unwrap().get::<P>()
}

fn watch<P: Modelled, L: Layout, F: ChosenForm, const SEASONED: bool>(
    world: &World,
    spun: &Spun<P, L, F, SEASONED>,
) {
    let own = node(STRANGER);
    let stranger = words::<P>(STRANGER);
    world.watch_change(stranger.next(), ASIDE, move |_, after| after == own);
    world.watch_change(stranger.next(), JOINED, move |before, after| before == own && after != 0);
    world.watch_change(spun.lock.word(), OPENED, move |before, after| {
        let tail = |word: u32| (word & L::TAIL) >> L::TAIL.trailing_zeros();
        before & LOCKED == 0 && after & LOCKED != 0 && tail(before) != own && tail(after) == own
    });
}

/// The main thread is the holder and the pending waiter while all others queue, in their order. It releases
/// both, and comes so many times again.
fn queued<P: Modelled, L: Layout>(name: &str, preemptions: usize, settings: Settings, again: u32) -> Report {
    let come = |world: &World, spun: &Rc<Spun<P, L, NativeNuma>>| {
        watch(world, spun);
        world.unexplored(|| {
            spun.lock.be_pending();
            let start = |index| {
                let waiter = spun.passer(world, index);
                world.await_until(|| tail::<P, L>(spun) == node(index));
                if index > 1 {
                    world.await_until(|| words::<P>(index - 1).next().peek() == node(index));
                }
                waiter
            };
            (1..world.threads()).map(start).collect::<Vec<JoinHandle<u32>>>()
        })
    };
    held_then(name, preemptions, settings, come, move |_, spun| {
        spun.lock.take_pending();
        spun.leave();
        1 + (0..again).map(|_| spun.pass()).sum::<u32>()
    })
}

fn tail<P: Modelled, L: Layout>(spun: &Spun<P, L, NativeNuma>) -> u32 {
    (spun.lock.word().peek() & L::TAIL) >> L::TAIL.trailing_zeros()
}

/// The main thread holds the lock while all others are halted in the queue; it releases it, and comes so many
/// times again.
fn halted<P: Modelled, L: Layout>(name: &str, preemptions: usize, settings: Settings, again: u32) -> Report {
    let come = |world: &World, spun: &Rc<Guarded<Old<P, L>>>| {
        watch(world, spun);
        spun.sleepers(world, 1..world.threads())
    };
    held_then(name, preemptions, settings, come, move |_, spun| (0..again).map(|_| spun.pass()).sum())
}

#[track_caller]
fn happened(report: &Report, places: &[usize]) {
    for &place in places {
        assert!(report.reached[place] > 0, "place {place}: {report:?}");
    }
}

/// Nobody else comes: those set aside become the queue.
fn set_aside<L: Layout>() {
    let report = queued::<Patient, L>("numa: set aside", 2, FOUR, 0);
    happened(&report, &[ASIDE, OPENED]);
    let report = halted::<Patient, L>("numa: set aside, halted", 2, FOUR_HALTING, 0);
    happened(&report, &[ASIDE, OPENED]);
}

/// The main thread comes again while those set aside become the queue: before that, behind them, or between.
fn opened_against_a_newcomer<L: Layout>() {
    let report = queued::<Patient, L>("numa: opened against a newcomer", 3, FOUR, 1);
    happened(&report, &[ASIDE, OPENED]);
    let report = halted::<Patient, L>("numa: opened against a newcomer, halted", 2, FOUR_HALTING, 1);
    happened(&report, &[ASIDE, OPENED]);
    assert!(report.events[Event::HashedByPasser] > 0 && report.events[Event::KickUnlock] > 0);
}

/// A batch that is over: those set aside go before the main thread, which has come again.
fn over<L: Layout>() {
    let report = queued::<Model, L>("numa: over", 3, FOUR, 1);
    happened(&report, &[ASIDE, JOINED]);
    // The rest of the queue is of another node.
    let strange = Settings { nodes: [1, 0, 0, 1, 0], ..FOUR };
    let report = queued::<Patient, L>("numa: a stranger behind", 3, strange, 1);
    happened(&report, &[ASIDE, JOINED]);
}

/// Waiters of two nodes come and go.
fn threads_of_two_nodes<L: Layout>() {
    let three = Settings { nodes: [0, 1, 0, 0, 0], ..THREE };
    lockers::<Spin<Model, L, NativeNuma>>("numa: three threads", 2, three, 1);
    let halting = Settings { spins: 0, ..three };
    lockers::<Old<Model, L>>("numa: three threads, halting", 2, halting, 1);
    let restless = Settings { restless: 2, ..FOUR_HALTING };
    let report = halted::<Model, L>("numa: restless", 1, restless, 1);
    assert!(report.events[Event::SpuriousWakeup] > 0);
}

for_each_layout!(set_aside, opened_against_a_newcomer, over, threads_of_two_nodes);

/// ALL BACK: one that was set aside is never told that it is head, or never woken.
#[test]
fn headship_that_is_not_passed_to_those_aside() {
    const HEAD: u32 = 9;
    caught(&[ENDLESS], || {
        let settings = faulty(FOUR, Fault::Omit(Operation::Store, HEAD));
        queued::<Patient, Small>("numa: headship that is not passed", 2, settings, 0)
    });
    caught(&[DEADLOCK], || {
        let settings = faulty(FOUR_HALTING, Fault::LoseWake(3));
        halted::<Patient, Small>("numa: a lost kick for one aside", 2, settings, 0)
    });
}

#[test]
fn orders_that_are_too_weak() {
    let bugs = [
        (FOUR, Fault::WeakRelease, UNORDERED),
        (FOUR, Fault::WeakAcquire, UNORDERED),
        (FOUR, Fault::Weaken(Operation::Load), UNORDERED),
        (FOUR, Fault::Weaken(Operation::Store), UNORDERED),
    ];
    each_is_caught(&bugs, |name, settings| queued::<Patient, Small>(name, 2, settings, 1));
}
