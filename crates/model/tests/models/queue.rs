//! The queue along which a mutex is granted, by itself: whose turn it is, who leaves and comes back, who
//! steals a turn that nobody claims, and what is left behind.

use core::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::Platform;
use poundlock_core::platform::Atomic;
use poundlock_core::queue::{Front, Pass, Queue, Spins, Turn};
use poundlock_core::record::PLACES;
use poundlock_model::{Fault, Model, Operation, Report, Settings, U32, Usize, World, explore, queue_words};

use crate::scenes::{ENDLESS, UNORDERED, caught, faulty};

/// So many turns that a wait ends by a turn, mostly.
const PATIENT: Settings = Settings { spins: 3, cpus: 2, ..Settings::DEFAULT };
const TWO: Settings = Settings { spins: 0, ..PATIENT };
const THREE: Settings = Settings { threads: 3, ..PATIENT };

/// What a node's place says.
const WAITING: u32 = 1;
const LEFT: u32 = 2;
const GRANTED: u32 = 4;
const STOLEN: u32 = 5;
const KEPT: u32 = 6;

/// Places that the models count.
pub(crate) const HEAD: usize = 0;
pub(crate) const OWNER: usize = 1;
pub(crate) const GAVE_UP: usize = 3;
const CAME_BACK: usize = 4;
const PASSED_OVER: usize = 5;
const ROBBED: usize = 6;
/// Another than the owner has found the front.
pub(crate) const FOUND: usize = 7;
/// A thief has looked at a grant, and acts on what it saw in a later use of the node.
const LATE_THIEF: usize = 8;

/// A mutex that is nothing but its queue: the front may enter, whether it is the head or the owner.
pub(crate) struct Line {
    pub(crate) tail: U32,
    pub(crate) address: usize,
    /// How many owners of one side come one after the other.
    batch: u32,
    value: UnsafeCell<u32>,
    inside: Cell<bool>,
}

impl Line {
    fn new(world: &World) -> Rc<Self> {
        Self::at(world, 16)
    }

    fn at(world: &World, address: usize) -> Rc<Self> {
        for node in (0..world.threads()).flat_map(queue_words::<Model>) {
            let kinds = |before, after| move |from: u32, to: u32| from & 0xf == before && to & 0xf == after;
            world.watch_change(&node.place, CAME_BACK, kinds(LEFT, WAITING));
            world.watch_change(&node.place, PASSED_OVER, kinds(LEFT, KEPT));
            world.watch_change(&node.place, ROBBED, kinds(GRANTED, STOLEN));
        }
        Rc::new(Self::unwatched(address, 1))
    }

    pub(crate) fn unwatched(address: usize, batch: u32) -> Self {
        let (tail, value, inside) = (U32::new(0), UnsafeCell::new(0), Cell::new(false));
        Line { tail, address, batch, value, inside }
    }

    pub(crate) fn queue(&self) -> Queue<'_, Model> {
        Queue::new(&self.tail, self.address)
    }

    /// What the front alone may do.
    pub(crate) fn section(&self) -> u32 {
        assert!(!self.inside.replace(true), "two fronts");
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        let before = self.value.with_mut(|value| unsafe {
            *value += 1;
            *value - 1
        });
        self.inside.set(false);
        before
    }

    /// Queues up; if it has its turn, is inside as the owner. Where to pass it on from.
    pub(crate) fn enter(&self, world: &World) -> Option<Front> {
        let front = match self.queue().enter(Spins { budgets: 1, share: 256, moment: 0 }) {
            Turn::Left | Turn::Refused => {
                world.reached(GAVE_UP);
                return None;
            }
            Turn::Head(front) => {
                world.reached(HEAD);
                self.section();
                self.queue().keep(front);
                front
            }
            Turn::Granted(front) => {
                world.reached(OWNER);
                self.section();
                front
            }
        };
        self.queue().note_keeper(front);
        assert!(front.is_kept::<Model>(), "its owner does not keep it");
        Some(front)
    }

    /// Queues up and, if it has its turn, is inside and passes it on. How often it was inside.
    pub(crate) fn visit(&self, world: &World, pass: Pass) -> u32 {
        let front = self.enter(world);
        if let Some(front) = front {
            self.queue().pass(front, pass, self.batch);
        }
        front.is_some().into()
    }

    /// Comes so many times. How often it was inside.
    pub(crate) fn visits(&self, world: &World, pass: Pass, times: u32) -> u32 {
        (0..times).map(|_| self.visit(world, pass)).sum()
    }

    pub(crate) fn visitor(
        self: &Rc<Self>,
        world: &World,
        index: u32,
        pass: Pass,
        times: u32,
    ) -> JoinHandle<u32> {
        let line = self.clone();
        world.spawn(index, move |world: &World| line.visits(world, pass, times))
    }

    /// When all have gone: nobody is in the queue, and all have their nodes back.
    pub(crate) fn finish(&self, world: &World, inside: u32) {
        // (5)
        assert_eq!(self.tail.load(Relaxed), 0, "a node is left in the queue");
        for thread in 0..world.threads() {
            let left = world.still(|| !Model::record(thread).is_at_rest());
            assert!(!left, "a node of thread {thread} is left");
        }
        assert_eq!(self.section() * 2, inside * 2, "a turn was lost");
    }
}

/// How often each thread comes, and what it passes on.
pub(crate) type Visits = &'static [(Pass, u32)];

/// All come at any time.
fn visitors(name: &str, preemptions: usize, settings: Settings, visits: Visits) -> Report {
    let settings = Settings { threads: visits.len(), ..settings };
    explore::<Model>(name, preemptions, settings, move |world| {
        let line = Line::new(world);
        let others: Vec<_> = (1..)
            .zip(&visits[1..])
            .map(|(index, &(pass, times))| line.visitor(world, index, pass, times))
            .collect();
        let own = line.visits(world, visits[0].0, visits[0].1);
        let inside: u32 = others.into_iter().map(|other| other.join().unwrap()).sum();
        line.finish(world, own + inside);
    })
}

pub(crate) const OWNERSHIP: (Pass, u32) = (Pass::Ownership, 1);
pub(crate) const HEADSHIP: (Pass, u32) = (Pass::Headship, 1);
pub(crate) const TWICE: (Pass, u32) = (Pass::Ownership, 2);

#[test]
fn two_come() {
    let report = visitors("queue: two", 4, PATIENT, &[OWNERSHIP, OWNERSHIP]);
    assert!(report.reached[OWNER] > 0, "{report:?}");
    let report = visitors("queue: two, headship", 3, PATIENT, &[HEADSHIP, HEADSHIP]);
    assert_eq!(report.reached[OWNER], 0, "{report:?}");
}

#[test]
fn two_come_twice() {
    let report = visitors("queue: two, twice", 4, TWO, &[TWICE, TWICE]);
    for place in [GAVE_UP, OWNER, CAME_BACK, PASSED_OVER] {
        assert!(report.reached[place] > 0, "{place}: {report:?}");
    }
    visitors("queue: two, twice, patient", 3, PATIENT, &[TWICE, TWICE]);
}

/// The main thread is the front, and the others queue up in order, each with so many visits ahead. Then it
/// passes its turn on.
fn lined_up(name: &str, preemptions: usize, settings: Settings, pass: Pass, visits: Visits) -> Report {
    let settings = Settings { threads: 1 + visits.len(), ..settings };
    explore::<Model>(name, preemptions, settings, move |world| {
        let line = Line::new(world);
        let mut others = Vec::new();
        let front = world.unexplored(|| {
            let front = line.enter(world);
            for (index, &(pass, times)) in (1..).zip(visits) {
                others.push(line.visitor(world, index, pass, times));
                world.await_until(|| line.tail.peek() == index * PLACES + 1);
            }
            front
        });
        line.queue().pass(front.expect("the head has its turn"), pass, 1);
        let inside: u32 = others.into_iter().map(|other| other.join().unwrap()).sum();
        line.finish(world, 1 + inside);
    })
}

#[test]
fn a_grant_that_is_claimed_late() {
    let settings = Settings { spins: 2, ..PATIENT };
    let report = lined_up("queue: stolen or claimed", 3, settings, Pass::Ownership, &[OWNERSHIP, OWNERSHIP]);
    assert!(report.reached[ROBBED] > 0 && report.reached[OWNER] > report.reached[ROBBED], "{report:?}");
    let report = lined_up("queue: stolen or claimed, twice", 2, settings, Pass::Ownership, &[TWICE, TWICE]);
    assert!(report.reached[ROBBED] > 0 && report.reached[OWNER] > report.reached[ROBBED], "{report:?}");
}

/// Thread 2 sees that the grant of thread 1, in front of it, is not claimed, and is held up. Meanwhile thread
/// 1 claims it, passes its turn on, and comes again with the same node, and thread 3 steals the turn from
/// thread 2. Then thread 2 goes on, and must not take the node's next use for the one that it saw.
fn a_late_thief(name: &str, reset: bool) -> Report {
    explore::<Model>(name, 1, Settings { threads: 4, ..PATIENT }, move |world| {
        let line = Line::new(world);
        let [node, robbed] = [1, 2].map(|thread| &queue_words::<Model>(thread)[0].place);
        let claim = Model::record(1).claims()[0];
        let is = |place: &'static Usize, kind| place.peek() as u32 & 0xf == kind;
        let await_grant = move |place: &'static Usize| {
            World::present().await_until(|| is(place, GRANTED));
            // So that no look of this thread finds what was there before.
            place.fetch_or(0, Acquire);
        };
        let [looked, gone] = [(); 2].map(|()| Rc::new(Cell::new(false)));
        let holds = |flag: &Rc<Cell<bool>>| {
            let flag = flag.clone();
            move || World::present().await_until(|| flag.get())
        };
        world.unexplored(|| {
            let front = line.enter(world).expect("the head has its turn");
            world.handle(1, holds(&looked));
            if reset {
                // Of thread 1's second use: the look, and the store.
                world.script(1, claim, 5, || claim.store(2, Relaxed));
            }
            let owner = world.spawn(1, {
                let (line, gone) = (line.clone(), holds(&gone));
                move |world: &World| {
                    let once = line.visit(world, Pass::Ownership);
                    world.handle(1, gone);
                    once + line.visit(world, Pass::Ownership)
                }
            });
            let lines_up = |thread: u32| world.await_until(|| line.tail.peek() == thread * PLACES + 1);
            lines_up(1);
            world.handle(2, move || await_grant(node));
            // Of the place: the look above, and four of the thief's.
            world.script(2, node, 5, {
                let looked = looked.clone();
                move || {
                    looked.set(true);
                    let world = World::present();
                    let back = if reset { 2 } else { 4 };
                    world.await_until(|| is(node, WAITING) && claim.peek() == back && is(robbed, STOLEN));
                    robbed.fetch_or(0, Acquire);
                    world.reached(LATE_THIEF);
                }
            });
            let thief = world.spawn(2, {
                let (line, gone) = (line.clone(), gone.clone());
                move |world: &World| {
                    let inside = line.visit(world, Pass::Ownership);
                    gone.set(true);
                    inside
                }
            });
            lines_up(2);
            world.handle(3, move || await_grant(robbed));
            // The look above, four of this thief's, and its note.
            world.script(3, robbed, 6, holds(&gone));
            let last = line.visitor(world, 3, Pass::Ownership, 1);
            lines_up(3);
            line.queue().pass(front, Pass::Ownership, 1);
            let inside: u32 = [owner, thief, last].into_iter().map(|other| other.join().unwrap()).sum();
            line.finish(world, 1 + inside);
        });
    })
}

#[test]
fn a_thief_is_late() {
    let report = a_late_thief("queue: a late thief", false);
    assert!(report.reached[LATE_THIEF] > 0 && report.reached[ROBBED] > 0, "{report:?}");
}

/// The main thread passes its turn on, to one that leaves it to the main thread to pass it on again: it looks
/// for the front while others come.
fn passed_on_by_another(name: &str, settings: Settings, haunt: fn(&World, &Line)) -> Report {
    explore::<Model>(name, 3, settings, move |world| {
        let line = Line::new(world);
        haunt(world, &line);
        let (front, owner) = world.unexplored(|| {
            let front = line.enter(world);
            let owner = world.spawn(1, {
                let line = line.clone();
                move |world: &World| line.enter(world)
            });
            world.await_until(|| line.tail.peek() == PLACES + 1);
            (front, owner)
        });
        let others: Vec<_> = (2..GHOST).map(|index| line.visitor(world, index, Pass::Ownership, 1)).collect();
        let queue = line.queue();
        queue.pass(front.expect("the head has its turn"), Pass::Ownership, 1);
        let mut inside = 1;
        if let Some(place) = owner.join().unwrap() {
            inside += 1;
            let front = queue.front();
            assert_eq!(front, place, "another front");
            world.reached(FOUND);
            queue.pass(front, Pass::Ownership, 1);
        }
        inside += others.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        queue_words::<Model>(GHOST)[0].place.store(0, Relaxed);
        line.finish(world, inside);
    })
}

/// The last thread, which is not there. Its node says it were the front.
const GHOST: u32 = 3;
const FOUR: Settings = Settings { threads: 4, ..PATIENT };

/// Thread 2 had a node in front of it, in an earlier wait, that has passed its turn on, and is about to be
/// freed.
fn haunt(line: &Line) {
    queue_words::<Model>(2)[0].prev.store(GHOST * PLACES + 1, Relaxed);
    queue_words::<Model>(GHOST)[0].place.store(line.address << 2 | KEPT as usize, Relaxed);
}

#[test]
fn the_front_is_found() {
    let report = passed_on_by_another("queue: the front is found", FOUR, |_, line| haunt(line));
    assert!(report.reached[FOUND] > 0, "{report:?}");
}

/// One that has the turn stolen comes again, with another node, while the thief still stands at its first.
#[test]
fn three_come() {
    let report = visitors("queue: three", 2, Settings { spins: 1, ..THREE }, &[OWNERSHIP, OWNERSHIP, TWICE]);
    for place in [GAVE_UP, OWNER, CAME_BACK, PASSED_OVER] {
        assert!(report.reached[place] > 0, "{place}: {report:?}");
    }
    visitors("queue: three, headship", 2, THREE, &[HEADSHIP, OWNERSHIP, HEADSHIP]);
}

/// Nodes go from one queue to another while others look at them.
fn two_queues(name: &str, addresses: [usize; 2], settings: Settings) -> Report {
    explore::<Model>(name, 2, settings, move |world| {
        let lines = addresses.map(|address| Line::at(world, address));
        let others: Vec<_> = (1..world.threads())
            .map(|index| {
                let [first, second] = lines.clone();
                world.spawn(index, move |world: &World| {
                    let inside = first.visit(world, Pass::Ownership);
                    [inside, second.visit(world, Pass::Ownership)]
                })
            })
            .collect();
        let [first, second] = &lines;
        let mut inside = [first.visit(world, Pass::Ownership), 0];
        inside[1] = second.visit(world, Pass::Ownership);
        inside[0] += first.visit(world, Pass::Ownership);
        for other in others {
            let [one, two] = other.join().unwrap();
            inside = [inside[0] + one, inside[1] + two];
        }
        for (line, inside) in lines.iter().zip(inside) {
            line.finish(world, inside);
        }
    })
}

#[test]
fn nodes_change_queues() {
    let report = two_queues("queue: nodes change queues", [16, 32], TWO);
    assert!(report.reached[GAVE_UP] > 0 && report.reached[PASSED_OVER] > 0, "{report:?}");
    two_queues("queue: nodes change queues, three", [16, 32], Settings { threads: 3, ..TWO });
}

// Planted bugs.

const LEFT_BEHIND: &str = "is left";
const TWO_FRONTS: &str = "two fronts";
const ANOTHER_FRONT: &str = "another front";
/// Each of them is some bug's outcome, and which one comes first is no matter.
const ANY: &[&str] = &[UNORDERED, TWO_FRONTS, LEFT_BEHIND, ENDLESS];

#[test]
fn bugs_that_two_find() {
    for fault in [
        // (1) A node is freed as if the tail had been moved, though another has joined.
        Fault::Lie(0),
        // (2) A turn is passed, and a node that was left is taken, by a look and a store.
        Fault::Torn(Operation::CompareExchange),
        // (3) The claim, and joining.
        Fault::Torn(Operation::Swap),
        Fault::Omit(Operation::Swap, 1),
        Fault::Weaken(Operation::Swap),
        // The grant.
        Fault::Weaken(Operation::CompareExchange),
        // The look whether there was one.
        Fault::Weaken(Operation::Load),
        Fault::WeakRelease,
        Fault::WeakAcquire,
    ] {
        caught(ANY, || visitors(&format!("{fault:?}"), 3, faulty(TWO, fault), &[TWICE, TWICE]));
    }
}

/// (3) Uses of a node that have one number.
#[test]
fn uses_without_a_number() {
    caught(&[TWO_FRONTS, UNORDERED], || a_late_thief("uses without a number", true));
}

/// A thread joins, and does not forget the node that was in front of it before.
#[test]
fn a_joiner_that_does_not_forget() {
    caught(&[ANOTHER_FRONT, ENDLESS], || {
        passed_on_by_another("a joiner that does not forget", FOUR, |world, line| {
            haunt(line);
            let prev = &queue_words::<Model>(2)[0].prev;
            world.script(2, prev, 1, || prev.store(GHOST * PLACES + 1, Relaxed));
        })
    });
}

/// Two mutexes with one address.
#[test]
fn places_without_an_address() {
    caught(ANY, || two_queues("places without an address", [16, 16], TWO));
}
