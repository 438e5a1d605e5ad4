//! The MCS queue by itself, and who leaves it from the middle.

use core::cell::Cell;
use std::rc::Rc;

use loom::cell::UnsafeCell;
use poundlock_core::mcs;
use poundlock_core::node::NodeId;
use poundlock_core::platform::Atomic;
use poundlock_model::{Fault, Model, Operation, Report, Settings, Turns, U32, World, explore};

use crate::scenes::{TWO, UNORDERED, caught, each_is_caught};

/// Turns that no execution uses up, since every turn lets the others go on.
const ENDLESS: u32 = 10_000;

/// Places that the models count.
const HEAD: usize = 0;
const GAVE_UP: usize = 1;

struct Queue {
    tail: U32,
    value: UnsafeCell<u32>,
    heads: Cell<u32>,
}

impl Queue {
    fn new() -> Rc<Self> {
        Rc::new(Queue { tail: U32::new(0), value: UnsafeCell::new(0), heads: Cell::new(0) })
    }

    /// Joins and, if that makes the thread the head, enters what the head alone may, and leaves. Returns
    /// whether it did.
    fn visit(&self, world: &World, turns: u32) -> bool {
        let id = node(world.index());
        if !mcs::join::<Model>(&self.tail, id, &mut Turns::new(turns)) {
            world.reached(GAVE_UP);
            return false;
        }
        world.reached(HEAD);
        self.section();
        mcs::leave::<Model>(&self.tail, id);
        true
    }

    fn section(&self) {
        assert_eq!(self.heads.replace(1), 0, "two heads");
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.heads.set(0);
    }

    fn finish(&self) {
        assert_eq!(self.tail.load(core::sync::atomic::Ordering::Relaxed), 0, "a node is left in the queue");
        self.section();
    }
}

/// The first node of a thread's record.
fn node(thread: u32) -> NodeId {
    NodeId::from_raw(thread * poundlock_core::node::LEVELS + 1).expect("not 0")
}

/// The main thread and one for each further element of `turns` join at any time, with so many turns of
/// patience.
fn visitors(name: &str, preemptions: usize, turns: &'static [u32]) -> Report {
    visitors_of(name, preemptions, Settings { threads: turns.len(), ..TWO }, turns)
}

fn visitors_of(name: &str, preemptions: usize, settings: Settings, turns: &'static [u32]) -> Report {
    explore::<Model>(name, preemptions, settings, move |world| {
        let queue = Queue::new();
        let others: Vec<_> = (1..turns.len())
            .map(|index| {
                let queue = queue.clone();
                world.spawn(index as u32, move |world: &World| {
                    queue.visit(world, turns[index]);
                })
            })
            .collect();
        queue.visit(world, turns[0]);
        for other in others {
            other.join().unwrap();
        }
        queue.finish();
    })
}

#[test]
fn all_join_and_leave() {
    let report = visitors("two join and leave", 4, &[ENDLESS, ENDLESS]);
    assert_eq!(report.reached[HEAD], 2 * report.executions);
    let report = visitors("three join and leave", 3, &[ENDLESS, ENDLESS, ENDLESS]);
    assert_eq!(report.reached[HEAD], 3 * report.executions);
}

#[test]
fn some_give_up() {
    assert!(visitors("two of whom one gives up", 4, &[ENDLESS, 0]).reached[GAVE_UP] > 0);
    assert!(visitors("two who give up", 4, &[0, 0]).reached[GAVE_UP] > 0);
    // The one in the middle, or any other that is not the head, goes while another takes its place.
    assert!(visitors("three of whom one gives up", 3, &[ENDLESS, 0, ENDLESS]).reached[GAVE_UP] > 0);
    assert!(visitors("three of whom two give up", 3, &[ENDLESS, 0, 0]).reached[GAVE_UP] > 0);
}

/// The head leaves while all those behind it do as well, and a newcomer joins.
#[test]
fn four_of_whom_two_give_up() {
    let settings = Settings { threads: 4, ..Settings::default() };
    let report = explore::<Model>("four of whom two give up", 2, settings, move |world| {
        let queue = Queue::new();
        // The head before anybody else comes.
        assert!(mcs::join::<Model>(&queue.tail, node(0), &mut Turns::new(0)));
        let others: Vec<_> = [0, 0, ENDLESS]
            .into_iter()
            .enumerate()
            .map(|(index, turns)| {
                let queue = queue.clone();
                world.spawn(index as u32 + 1, move |world: &World| {
                    queue.visit(world, turns);
                })
            })
            .collect();
        queue.section();
        mcs::leave::<Model>(&queue.tail, node(0));
        for other in others {
            other.join().unwrap();
        }
        queue.finish();
    });
    assert!(report.reached[GAVE_UP] > 0);
}

/// A node goes from one queue to another: nothing that happened to it in the first may reach into the second.
#[test]
fn a_node_changes_queues() {
    let settings = Settings { threads: 3, ..Settings::default() };
    let report = explore::<Model>("a node changes queues", 3, settings, move |world| {
        let (first, second) = (Queue::new(), Queue::new());
        assert!(mcs::join::<Model>(&first.tail, node(0), &mut Turns::new(0)));
        let gives_up = world.spawn(1, {
            let first = first.clone();
            move |world: &World| {
                first.visit(world, 0);
            }
        });
        let follows = world.spawn(2, {
            let second = second.clone();
            move |world: &World| assert!(second.visit(world, ENDLESS))
        });
        mcs::leave::<Model>(&first.tail, node(0));
        assert!(second.visit(world, ENDLESS));
        gives_up.join().unwrap();
        follows.join().unwrap();
        first.finish();
        second.finish();
    });
    assert!(report.reached[GAVE_UP] > 0);
}

// Planted bugs.

#[test]
fn relaxed_operations() {
    let bugs = [
        (TWO, Fault::Weaken(Operation::Swap), UNORDERED),
        // The head of the queue leaves without publishing what it did.
        (TWO, Fault::Weaken(Operation::Store), UNORDERED),
        (TWO, Fault::Weaken(Operation::Load), UNORDERED),
    ];
    each_is_caught(&bugs, |name, settings| visitors_of(name, 2, settings, &[ENDLESS, ENDLESS]));
}

/// One that enters as soon as its patience ends.
#[test]
fn a_queue_lock_that_does_not_wait() {
    caught(&[UNORDERED], || {
        explore::<Model>("a queue lock that does not wait", 2, TWO, |world| {
            let queue = Queue::new();
            let work = {
                let queue = queue.clone();
                move |world: &World| {
                    let head = mcs::join::<Model>(&queue.tail, node(world.index()), &mut Turns::new(1));
                    queue.section();
                    if head {
                        mcs::leave::<Model>(&queue.tail, node(world.index()));
                    }
                }
            };
            let other = world.spawn(1, work.clone());
            work(world);
            other.join().unwrap();
        })
    });
}
