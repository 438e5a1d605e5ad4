//! Sides: who leads the threads of a node of memory, who is granted the mutex along a side's queue, when the
//! turn goes to another side, and what becomes of a side that another mutex uses.

use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use loom::thread::JoinHandle;
use poundlock_core::platform::Atomic;
use poundlock_core::queue::Pass;
use poundlock_model::{
    Fault, Model, Modelled, Mortal, Operation, Report, Settings, U32, Usize, World, explore, queue_words,
    side_words,
};

use crate::queue::{FOUND, GAVE_UP, HEADSHIP, Line, OWNER, OWNERSHIP, TWICE, Visits};
use crate::scenes::{ENDLESS, UNORDERED, caught, faulty};

const TWO: Settings = Settings { spins: 0, cpus: 2, sides: 1, ..Settings::DEFAULT };
const THREE: Settings = Settings { threads: 3, ..TWO };
const FOUR: Settings = Settings { threads: 4, ..TWO };

/// Who is on which node.
const TOGETHER: [u32; 5] = [0; 5];
const APART: [u32; 5] = [0, 1, 0, 1, 0];
const LAST_APART: [u32; 5] = [0, 0, 1, 0, 0];

const fn on(nodes: [u32; 5], spins: u32, settings: Settings) -> Settings {
    Settings { nodes, spins, ..settings }
}

/// What a place says, and that it is in a side's queue.
const WAITING: u32 = 1;
const LEFT: u32 = 2;
const LEADS: u32 = 3;
const GRANTED: u32 = 4;
const STOLEN: u32 = 5;
const KEPT: u32 = 6;
const LOCAL: u32 = 8;

// Places that the models count, besides those of a queue without sides, and those of scenes.
/// The lead was passed on, to one that waits.
pub(crate) const LED: usize = 2;
/// A grant along a side's queue.
pub(crate) const ALONG: usize = 4;
/// A grant to a side.
pub(crate) const TURN: usize = 5;
/// A leader has left the side's place, and one comes back to it.
pub(crate) const LEADER_BACK: usize = 6;
/// The side's place was passed over.
const SIDE_OVER: usize = 7;
/// A grant to a side was stolen.
pub(crate) const SIDE_ROBBED: usize = 12;
/// A grant along a side's queue was.
pub(crate) const ROBBED: usize = 13;
/// A side's queue was another mutex's.
pub(crate) const REFUSED: usize = 14;
/// One that has left a side's queue comes back to it, or is passed over.
const BACK: usize = 15;
const OVER: usize = 16;
/// Whatever the model is about.
const THERE: usize = 17;

/// Counts what happens to the places of sides, and in their queues.
pub(crate) fn watch<P: Modelled<Usize = Usize>>(world: &World) {
    let kinds = |before, after| move |from: u32, to: u32| from & 0xf == before && to & 0xf == after;
    for side in 0..P::sides().len() {
        let place = &side_words::<P>(side).node.place;
        world.watch_change(place, TURN, kinds(WAITING, GRANTED));
        world.watch_change(place, LEADER_BACK, kinds(LEFT, WAITING));
        world.watch_change(place, SIDE_OVER, kinds(LEFT, KEPT));
        world.watch_change(place, SIDE_ROBBED, move |_, to| to & 0xf == STOLEN);
    }
    let local = |before: u32, after: u32| kinds(before | LOCAL, after | LOCAL);
    let nodes = (0..world.threads()).flat_map(|thread| queue_words::<P>(thread).map(|node| (thread, node)));
    for (thread, node) in nodes {
        let led = local(WAITING, LEADS);
        world.watch_change(&node.place, LED, move |from, to| {
            led(from, to) && World::present().index() != thread
        });
        world.watch_change(&node.place, ALONG, local(WAITING, GRANTED));
        world.watch_change(&node.place, ROBBED, move |_, to| to & 0xf == STOLEN | LOCAL);
        world.watch_change(&node.place, REFUSED, kinds(WAITING | LOCAL, 0));
        world.watch_change(&node.place, BACK, local(LEFT, WAITING));
        world.watch_change(&node.place, OVER, local(LEFT, KEPT));
    }
}

/// No side is in use.
pub(crate) fn sides_at_rest<P: Modelled<Usize = Usize>>(world: &World) {
    world.still(|| {
        for side in (0..P::sides().len()).map(side_words::<P>) {
            assert_eq!(side.tail.load(Relaxed), 0, "a node is left in a side's queue");
            assert_eq!(side.node.place.load(Relaxed), 0, "a side's place is left");
        }
    });
}

/// Starts a thread and waits until it is in the queue with this tail: its side, which it leads, or itself
/// behind another in the side's queue.
pub(crate) fn joined<P: Modelled<Usize = Usize>, T>(
    world: &World,
    tail: &U32,
    index: u32,
    start: impl FnOnce() -> T,
) -> T {
    let side = || match P::sides() {
        [] => 0,
        _ => side_words::<P>(world.node_of(index) as usize).tail.peek(),
    };
    let before = (tail.peek(), side());
    let started = start();
    world.await_until(|| match before.1 {
        0 => tail.peek() != before.0,
        local => side() != local,
    });
    started
}

/// All is as it was.
fn finish(world: &World, line: &Line, inside: u32) {
    line.finish(world, inside);
    sides_at_rest::<Model>(world);
}

fn join(others: Vec<JoinHandle<u32>>) -> u32 {
    others.into_iter().map(|other| other.join().unwrap()).sum()
}

/// All come at any time.
fn visitors(name: &str, preemptions: usize, settings: Settings, batch: u32, visits: Visits) -> Report {
    explore::<Model>(name, preemptions, Settings { threads: visits.len(), ..settings }, move |world| {
        let line = Rc::new(Line::unwatched(16, batch));
        watch::<Model>(world);
        let come = |(index, &(pass, times))| line.visitor(world, index, pass, times);
        let others = (1..).zip(&visits[1..]).map(come).collect();
        let own = line.visits(world, visits[0].0, visits[0].1);
        finish(world, &line, own + join(others));
    })
}

#[track_caller]
fn came_to(report: Report, places: &[usize]) {
    for place in places {
        assert!(report.reached[*place] > 0, "not at {place}: {report:?}");
    }
}

#[test]
fn two_come() {
    let report = visitors("sides: two together", 3, on(TOGETHER, 2, TWO), 1, &[OWNERSHIP, OWNERSHIP]);
    came_to(report, &[ALONG]);
    let report =
        visitors("sides: two together, headship", 3, on(TOGETHER, 2, TWO), 1, &[HEADSHIP, OWNERSHIP]);
    came_to(report, &[LED]);
    let report = visitors("sides: two together, twice", 3, on(TOGETHER, 0, TWO), 1, &[TWICE, TWICE]);
    came_to(report, &[GAVE_UP, BACK, OVER]);
    let report = visitors("sides: two apart", 3, on(APART, 2, TWO), 1, &[OWNERSHIP, OWNERSHIP]);
    came_to(report, &[TURN]);
    let report = visitors("sides: two apart, twice", 3, on(APART, 0, TWO), 1, &[TWICE, TWICE]);
    came_to(report, &[GAVE_UP, TURN, LEADER_BACK, SIDE_OVER]);
}

#[test]
fn three_come() {
    for (name, nodes, batch) in [
        ("sides: two and one", LAST_APART, 1),
        ("sides: two and one, batches of two", LAST_APART, 2),
        ("sides: one and one and one", [0, 1, 2, 0, 0], 1),
    ] {
        let report = visitors(name, 2, on(nodes, 1, THREE), batch, &[OWNERSHIP, OWNERSHIP, TWICE]);
        came_to(report, &[OWNER, GAVE_UP, TURN]);
    }
    let report =
        visitors("sides: three together", 2, on(TOGETHER, 1, THREE), 2, &[OWNERSHIP, TWICE, HEADSHIP]);
    came_to(report, &[OWNER, GAVE_UP, LED, ALONG]);
    let three = on(LAST_APART, 1, THREE);
    visitors(
        "sides: three, in a child",
        2,
        Settings { epoch: 7, ..three },
        2,
        &[OWNERSHIP, OWNERSHIP, TWICE],
    );
    let name = "sides: three, headship";
    visitors(name, 2, on(LAST_APART, 1, THREE), 1, &[HEADSHIP, HEADSHIP, OWNERSHIP]);
}

/// The main thread is the front, and the others queue up in order, each with so many visits ahead, until they
/// are where they wait. Then it passes its turn on.
fn lined_up(
    name: &str,
    preemptions: usize,
    settings: Settings,
    batch: u32,
    pass: Pass,
    visits: Visits,
) -> Report {
    let settings = Settings { threads: 1 + visits.len(), ..settings };
    explore::<Model>(name, preemptions, settings, move |world| {
        let line = Rc::new(Line::unwatched(16, batch));
        watch::<Model>(world);
        let mut others = Vec::new();
        let front = world.unexplored(|| {
            let front = line.enter(world);
            for (index, &(pass, times)) in (1..).zip(visits) {
                let start = || line.visitor(world, index, pass, times);
                others.push(joined::<Model, _>(world, &line.tail, index, start));
            }
            front
        });
        line.queue().pass(front.expect("the head has its turn"), pass, batch);
        finish(world, &line, 1 + join(others));
    })
}

/// A batch ends: the turn goes to the other side, and the lead to the next of this one.
#[test]
fn a_batch_ends() {
    let one: Visits = &[OWNERSHIP, OWNERSHIP];
    let report = lined_up("sides: a batch ends", 2, on(LAST_APART, 4, FOUR), 1, Pass::Ownership, one);
    came_to(report, &[TURN, LED]);
    let three: Visits = &[OWNERSHIP, OWNERSHIP, OWNERSHIP];
    let report = lined_up("sides: a batch goes on", 2, on(LAST_APART, 5, FOUR), 2, Pass::Ownership, three);
    came_to(report, &[ALONG, TURN, LED]);
    let report = lined_up("sides: headship", 2, on(LAST_APART, 4, FOUR), 2, Pass::Headship, three);
    came_to(report, &[TURN, LED]);
    // Some come to the end of their budgets first.
    let report = lined_up("sides: impatient", 2, on(APART, 2, FOUR), 1, Pass::Ownership, three);
    came_to(report, &[TURN, LED, GAVE_UP]);
}

/// A thief at a side's place, and in a side's queue: the leader who lost the turn passes its lead on.
#[test]
fn grants_that_are_claimed_late() {
    let three: Visits = &[OWNERSHIP, OWNERSHIP, OWNERSHIP];
    let report = lined_up(
        "sides: a side's turn is stolen",
        2,
        on([0, 1, 2, 1, 0], 3, FOUR),
        1,
        Pass::Ownership,
        three,
    );
    came_to(report, &[SIDE_ROBBED, LED]);
    let report =
        lined_up("sides: stolen along a side", 2, on([0, 0, 0, 1, 0], 3, FOUR), 4, Pass::Ownership, three);
    came_to(report, &[ROBBED, TURN]);
}

/// Threads 1 and 2 leave it to the main thread to pass the mutex on: it looks for the front while others come.
fn passed_on_by_another(name: &str, settings: Settings) -> Report {
    explore::<Model>(name, 3, settings, move |world| {
        let line = Rc::new(Line::unwatched(16, 2));
        watch::<Model>(world);
        let other = |index| line.visitor(world, index, Pass::Ownership, 1);
        let (front, owners) = world.unexplored(|| {
            let front = line.enter(world).expect("the head has its turn");
            assert_eq!(line.queue().front(), front, "another front");
            let owners = [1, 2].map(|index| {
                let start = || {
                    let line = line.clone();
                    world.spawn(index, move |world: &World| line.enter(world))
                };
                joined::<Model, _>(world, &line.tail, index, start)
            });
            (front, owners)
        });
        let others = (3..world.threads()).map(other).collect();
        let queue = line.queue();
        queue.pass(front, Pass::Ownership, 2);
        let mut inside = 1;
        for owner in owners {
            let Some(place) = owner.join().unwrap() else { continue };
            inside += 1;
            let front = queue.front();
            assert_eq!(front, place, "another front");
            world.reached(FOUND);
            queue.pass(front, Pass::Ownership, 2);
        }
        finish(world, &line, inside + join(others));
    })
}

#[test]
fn the_front_is_found() {
    let report = passed_on_by_another("sides: the front of a side", on(TOGETHER, 4, FOUR));
    came_to(report, &[FOUND, ALONG, ROBBED]);
    let report = passed_on_by_another("sides: the front of another", on(LAST_APART, 4, FOUR));
    came_to(report, &[FOUND, ALONG, TURN]);
    let of_three = on([0, 1, 2, 0, 0], 2, THREE);
    let report = passed_on_by_another("sides: the front at a place of others", of_three);
    came_to(report, &[FOUND, TURN, SIDE_ROBBED]);
}

/// Two mutexes have one side: each thread comes to both.
fn one_side_for_two(name: &str, addresses: [usize; 2], settings: Settings) -> Report {
    explore::<Model>(name, 2, settings, move |world| {
        let lines = addresses.map(|address| Rc::new(Line::unwatched(address, 1)));
        watch::<Model>(world);
        let visit = |world: &World, [first, second]: &[Rc<Line>; 2]| {
            let inside = first.visit(world, Pass::Ownership);
            [inside, second.visit(world, Pass::Ownership)]
        };
        let others: Vec<_> = (1..world.threads())
            .map(|index| {
                let mut lines = lines.clone();
                lines.rotate_left(index as usize % 2);
                world.spawn(index, move |world: &World| {
                    let mut inside = visit(world, &lines);
                    inside.rotate_right(index as usize % 2);
                    inside
                })
            })
            .collect();
        let mut inside = visit(world, &lines);
        for other in others {
            let [one, two] = other.join().unwrap();
            inside = [inside[0] + one, inside[1] + two];
        }
        for (line, inside) in lines.iter().zip(inside) {
            finish(world, line, inside);
        }
    })
}

#[test]
fn a_side_that_another_mutex_uses() {
    let report = one_side_for_two("sides: one for two mutexes", [16, 32], on(TOGETHER, 1, TWO));
    came_to(report, &[REFUSED]);
    let report = one_side_for_two("sides: one for two mutexes, three", [16, 32], on(TOGETHER, 1, THREE));
    came_to(report, &[REFUSED, ALONG]);
    one_side_for_two("sides: one for two mutexes, three apart", [16, 32], on(LAST_APART, 1, THREE));
}

/// A leader leaves the side's place in the queue of one mutex, and wants another mutex.
#[test]
fn a_place_that_another_mutex_uses() {
    let report =
        explore::<Model>("sides: a place for two mutexes", 3, on([1, 0, 0, 0, 0], 0, TWO), |world| {
            let lines = [16, 32].map(|address| Rc::new(Line::unwatched(address, 1)));
            watch::<Model>(world);
            let front = lines[0].enter(world).expect("the head has its turn");
            let other = world.spawn(1, {
                let [first, second] = lines.clone();
                move |world: &World| {
                    let inside = first.visit(world, Pass::Ownership);
                    let place = side_words::<Model>(0).node.place.peek();
                    if place == first.address << 2 | LEFT as usize {
                        world.reached(THERE);
                    }
                    let second = second.visit(world, Pass::Ownership);
                    [inside + first.visit(world, Pass::Ownership), second]
                }
            });
            lines[0].queue().pass(front, Pass::Ownership, 1);
            let [first, second] = other.join().unwrap();
            assert_eq!(second, 1, "nobody else wants it");
            finish(world, &lines[0], 1 + first);
            finish(world, &lines[1], second);
        });
    came_to(report, &[THERE, LEADER_BACK]);
}

/// The main thread is the front while others come from one node and then from the other: a place that they
/// have left is the first's.
fn travellers(name: &str, preemptions: usize, settings: Settings) -> Report {
    explore::<Model>(name, preemptions, settings, |world| {
        let line = Rc::new(Line::unwatched(16, 2));
        watch::<Model>(world);
        let travel = |world: &World, line: &Line| {
            let inside = line.visit(world, Pass::Ownership);
            world.migrate(1 - world.node_of(world.index()));
            inside + line.visit(world, Pass::Ownership)
        };
        let front = line.enter(world).expect("the head has its turn");
        let others = (1..world.threads())
            .map(|index| {
                let line = line.clone();
                world.spawn(index, move |world: &World| travel(world, &line))
            })
            .collect();
        line.queue().pass(front, Pass::Ownership, 2);
        world.migrate(1);
        let own = 1 + line.visit(world, Pass::Ownership);
        finish(world, &line, own + join(others));
    })
}

#[test]
fn threads_migrate() {
    let report = travellers("sides: a traveller", 3, on([0, 0, 1, 0, 0], 0, TWO));
    came_to(report, &[GAVE_UP, BACK, OVER]);
    travellers("sides: a traveller comes home", 3, on(APART, 0, TWO));
    let report = travellers("sides: two travellers", 2, on(LAST_APART, 1, THREE));
    came_to(report, &[GAVE_UP, BACK, TURN]);
}

/// LAST TOUCH: the mutex goes to another side, whose thread destroys it and makes another one in its place,
/// while the lead is still being passed on: to that thread, if it is of this side by then.
fn made_anew(name: &str, settings: Settings, visits: u32) -> Report {
    explore::<Model>(name, 3, settings, move |world| {
        let [old, new] = [16, 16].map(|address| Mortal::new(world, Line::unwatched(address, 1)));
        watch::<Model>(world);
        let alone = Rc::new(U32::new(0));
        let (front, other) = world.unexplored(|| {
            let front = old.enter(world).expect("the head has its turn");
            let other = joined::<Model, _>(world, &old.tail, 1, || {
                let (old, new, alone) = (old.clone(), new.clone(), alone.clone());
                world.spawn(1, move |world: &World| {
                    let Some(front) = old.enter(world) else { return 0 };
                    assert!(!old.queue().pass(front, Pass::Ownership, 1), "nobody is behind");
                    old.destroy();
                    alone.store(1, Release);
                    world.migrate(0);
                    new.visits(world, Pass::Ownership, visits)
                })
            });
            (front, other)
        });
        old.queue().pass(front, Pass::Ownership, 1);
        let mut inside = 0;
        if alone.load(Acquire) == 1 {
            inside = new.visit(world, Pass::Ownership);
        }
        inside += other.join().unwrap();
        finish(world, &new, inside);
    })
}

#[test]
fn a_mutex_in_the_place_of_another() {
    let report = made_anew("sides: a mutex in place of another", on(APART, 3, TWO), 1);
    came_to(report, &[TURN, LED]);
    made_anew("sides: a mutex in place of another, twice", on(APART, 2, TWO), 2);
}

// Planted bugs.

const LEFT_BEHIND: &str = "is left";
const TWO_FRONTS: &str = "two fronts";
/// Each of them is some bug's outcome, and which one comes first is no matter.
const ANY: &[&str] = &[UNORDERED, TWO_FRONTS, LEFT_BEHIND, ENDLESS];

/// What the place of a node in the mutex's queue says, and in a side's.
const fn place(kind: u32) -> u32 {
    16 << 2 | kind
}

#[test]
fn bugs_that_two_find() {
    for (nodes, fault) in [
        // A leader gives up, and its place does not say so.
        (APART, Fault::Omit(Operation::CompareExchange, place(LEFT))),
        // It comes back, and the place does not say so.
        (APART, Fault::Omit(Operation::CompareExchange, place(WAITING))),
        // The same in a side's queue.
        (TOGETHER, Fault::Omit(Operation::CompareExchange, place(LOCAL | LEFT))),
        // A side's queue is emptied, or joined, by a look and a store.
        (TOGETHER, Fault::Torn(Operation::CompareExchange)),
        (APART, Fault::Torn(Operation::CompareExchange)),
        // A side is taken that is in use.
        (TOGETHER, Fault::Lie(0)),
        (TOGETHER, Fault::Weaken(Operation::CompareExchange)),
        (APART, Fault::Weaken(Operation::CompareExchange)),
        (APART, Fault::Weaken(Operation::Load)),
    ] {
        caught(ANY, || {
            let settings = faulty(on(nodes, 0, TWO), fault);
            visitors(&format!("{fault:?}"), 3, settings, 1, &[TWICE, TWICE])
        });
    }
    for fault in [Fault::Weaken(Operation::Load), Fault::WeakRelease, Fault::WeakAcquire] {
        caught(ANY, || {
            let settings = faulty(on(TOGETHER, 2, TWO), fault);
            visitors(&format!("{fault:?}"), 3, settings, 1, &[OWNERSHIP, OWNERSHIP])
        });
    }
}

/// The lead is passed on to nobody, when a batch ends or a leader gives up.
#[test]
fn a_lead_that_is_lost() {
    let fault = Fault::Omit(Operation::CompareExchange, place(LOCAL | LEADS));
    caught(ANY, || {
        let settings = faulty(on(LAST_APART, 4, FOUR), fault);
        lined_up("a lead that is lost", 1, settings, 1, Pass::Ownership, &[OWNERSHIP, OWNERSHIP])
    });
}

/// Two mutexes with one address, and one side.
#[test]
fn a_side_without_an_address() {
    caught(ANY, || one_side_for_two("a side without an address", [16, 16], on(TOGETHER, 1, TWO)));
}
