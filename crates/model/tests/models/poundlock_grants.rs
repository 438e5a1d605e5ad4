//! The default mutex as it goes along its queue, from owner to owner: the scenes of `poundlock.rs`, and those
//! of its own.

use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use loom::thread::JoinHandle;
use poundlock_core::Platform;
use poundlock_core::condvar::Guarding;
use poundlock_core::platform::{Atomic, Deadline};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::waiting::Failure;
use poundlock_model::{
    Fault, Model, Modelled, Mortal, MutexWords, Operation, Patient, Report, Settings, U32, Usize, World,
    explore, poundlock_words, queue_words,
};

use crate::adaptive::BIAS_REVOKED;
use crate::queue_sides::{self, joined, sides_at_rest};
use crate::scenes::{
    DEADLOCK, ENDLESS, End, GAVE_UP, Giving, Guarded, Guards, LATE, Lock, NO_SUCH_THREAD, UNORDERED, caught,
    destroyed_by_the_last, destroyed_by_the_waiter, faulty, forked, give_to, giving_up, held, join, lockers,
    sometimes, sound,
};

/// Enough turns for those that queue up to be there still when the first is served.
const TWO: Settings = Settings { spins: 2, cpus: 2, ..Settings::DEFAULT };
const THREE: Settings = Settings { threads: 3, ..TWO };
const FOUR: Settings = Settings { threads: 4, ..TWO };
/// So many that those who queued up are there still when the others have come.
const THREE_LINED_UP: Settings = Settings { spins: 5, ..THREE };
const FOUR_LINED_UP: Settings = Settings { spins: 7, ..FOUR };

// In its state.
pub(crate) const LOCKED: u32 = 1;
const SLEEPERS: u32 = 4;
pub(crate) const GRANTS: u32 = 8;

/// What a node's place says.
const WAITING: u32 = 1;
const LEFT: u32 = 2;
const GRANTED: u32 = 4;
const STOLEN: u32 = 5;
const KEPT: u32 = 6;

/// Places that the models count.
const GRANT: usize = 0;
const ROBBED: usize = 1;
const CAME_BACK: usize = 2;
const PASSED_OVER: usize = 3;
/// An owner releases the mutex to a head.
const RELEASED: usize = 4;
/// A head has acquired it, and a thread sleeps.
const BESIDE_SLEEPERS: usize = 5;

/// The mutex, on a platform with so many CPUs that it is granted.
pub(crate) struct Along<P: Modelled>(pub(crate) RawPoundlock<P>);

impl<P: Modelled> Default for Along<P> {
    fn default() -> Self {
        Along(RawPoundlock::default())
    }
}

/// Counts what happens in the queue.
fn watch_places<P: Modelled<Usize = Usize>>(world: &World) {
    if !P::sides().is_empty() {
        return queue_sides::watch::<P>(world);
    }
    for node in (0..world.threads()).flat_map(queue_words::<P>) {
        let kinds = |before, after| move |from: u32, to: u32| from & 0xf == before && to & 0xf == after;
        world.watch_change(&node.place, GRANT, kinds(WAITING, GRANTED));
        world.watch_change(&node.place, ROBBED, kinds(GRANTED, STOLEN));
        world.watch_change(&node.place, CAME_BACK, kinds(LEFT, WAITING));
        world.watch_change(&node.place, PASSED_OVER, kinds(LEFT, KEPT));
    }
}

impl<P: Modelled> Along<P> {
    pub(crate) fn words(&self) -> MutexWords<'_> {
        poundlock_words(&self.0)
    }
}

impl<P: Modelled<Usize = Usize>> Lock for Along<P> {
    type Platform = P;

    fn lock(&self) {
        self.0.lock();
    }
    fn unlock(&self) {
        self.0.unlock();
    }
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }
    fn lock_until(&self, deadline: &Deadline) -> Result<(), Failure> {
        self.0.lock_until(deadline)
    }
    fn lock_interruptible(&self) -> Result<(), Failure> {
        self.0.lock_interruptible()
    }

    fn watch(world: &World, guarded: &Rc<Guarded<Self>>) {
        watch_places::<P>(world);
        if !P::sides().is_empty() {
            return;
        }
        let word = guarded.lock.words().word;
        world.watch_change(word, RELEASED, |before, after| before & GRANTS != 0 && after & GRANTS == 0);
        let both = GRANTS | SLEEPERS;
        world.watch(word, BESIDE_SLEEPERS, move |state| state & both == both);
    }

    fn finish(&self) {
        assert!(self.0.is_idle(), "something is left in the mutex");
        assert_eq!(self.words().word.peek() & GRANTS, 0, "it is granted for good");
        // What was a place in the parent's queue is free when its thread looks for one.
        if P::epoch() == 0 {
            at_rest::<P>();
        }
    }
}

impl Guards for Along<Model> {
    fn guarding(&self) -> impl Guarding<Model> {
        &self.0
    }
}

/// All threads have their nodes back, and no side is in use.
fn at_rest<P: Modelled<Usize = Usize>>() {
    let world = World::present();
    sides_at_rest::<P>(&world);
    world.still(|| {
        for thread in 0..world.threads() {
            assert!(P::record(thread).is_at_rest(), "a node of thread {thread} is left");
        }
    });
}

#[track_caller]
pub(crate) fn came_to(report: Report, places: &[usize]) {
    for place in places {
        assert!(report.reached[*place] > 0, "not at {place}: {report:?}");
    }
}

#[test]
fn two_threads() {
    lockers::<Along<Model>>("granted: two threads", 3, TWO, 1);
    lockers::<Along<Model>>("granted: two threads, twice", 2, TWO, 2);
    lockers::<Along<Patient>>("granted: two threads, twice, patient", 2, TWO, 2);
    lockers::<Along<Model>>("granted: restless", 2, Settings { restless: 2, ..TWO }, 1);
    let plain = Settings { plain_release: true, ..TWO };
    lockers::<Along<Model>>("granted: plain", 2, plain, 2);
}

#[test]
fn three_threads() {
    lockers::<Along<Model>>("granted: three threads", 1, THREE, 1);
    lockers::<Along<Patient>>("granted: three threads, twice", 1, THREE, 2);
    let impatient = Settings { spins: 1, ..THREE };
    lockers::<Along<Model>>("granted: three threads, impatient", 1, impatient, 2);
    let displaced = Settings { tags: [1; 5], ..THREE };
    lockers::<Along<Model>>("granted: displaced", 1, displaced, 2);
}

/// The main thread holds the mutex, these threads queue up in order, and it unlocks.
pub(crate) fn queued(
    world: &World,
    guarded: &Rc<Guarded<Along<Model>>>,
    numbers: &[u32],
) -> Vec<JoinHandle<u32>> {
    world.unexplored(|| {
        let queue = |&index: &u32| {
            joined::<Model, _>(world, guarded.lock.words().tail, index, || guarded.passer(world, index))
        };
        numbers.iter().map(queue).collect()
    })
}

#[test]
fn a_grant() {
    let come = |world: &World, guarded: &Rc<_>| queued(world, guarded, &[1, 2]);
    let report = held("granted: to one", 2, THREE_LINED_UP, come);
    came_to(report, &[GRANT, RELEASED]);
    let come = |world: &World, guarded: &Rc<_>| queued(world, guarded, &[1, 2, 3]);
    let report = held("granted: along three", 2, FOUR_LINED_UP, come);
    came_to(report, &[GRANT, RELEASED]);
    // The second comes to the end of its budget first.
    let settings = Settings { spins: 4, ..FOUR };
    let report = held("granted: along three threads, impatient", 1, settings, come);
    came_to(report, &[GRANT, ROBBED, PASSED_OVER]);
}

/// A thread tries while the mutex goes along the queue; another gives up.
#[test]
fn trying_and_giving_up() {
    let report = held("granted: trying", 2, FOUR_LINED_UP, |world, guarded| {
        let mut others = queued(world, guarded, &[1, 2]);
        others.push(guarded.passer_at_once(world, 3));
        others
    });
    came_to(report, &[GRANT]);
    sometimes(report, GAVE_UP);
    held::<Along<Model>>("granted: gives up", 2, THREE_LINED_UP, |world, guarded| {
        let others = queued(world, guarded, &[1]);
        let timed = guarded.timed_passer(world, 2);
        world.expire(0);
        others.into_iter().chain([timed]).collect()
    });
    let impatient = Settings { spins: 0, ..TWO };
    giving_up::<Along<Model>>("granted: times out", 2, impatient, true, End::Before);
    giving_up::<Along<Model>>("granted: times out after the unlock", 2, impatient, true, End::After);
}

/// DUTY: a thread sleeps while the mutex goes along the queue, and whoever releases it at the end sees to
/// that.
#[test]
fn beside_sleepers() {
    let report = beside_a_sleeper("granted: beside a sleeper", FOUR_LINED_UP);
    assert!(report.woken > 0, "{report:?}");
}

pub(crate) fn beside_a_sleeper(name: &str, settings: Settings) -> Report {
    held(name, 2, settings, |world, guarded| {
        let mut others = guarded.sleepers(world, 1..2);
        others.extend(queued(world, guarded, &[2, 3]));
        others
    })
}

/// Threads that have one mutex in this way, and want another: of that they keep no place.
pub(crate) fn nested(name: &str, settings: Settings) -> Report {
    explore::<Model>(name, 2, settings, |world| {
        let outer = Guarded::<Along<Model>>::new(world);
        let inner = Rc::new(Guarded::<Along<Model>>::unwatched());
        let visit = {
            let (outer, inner) = (outer.clone(), inner.clone());
            move || {
                outer.lock.lock();
                inner.pass();
                outer.leave();
                1
            }
        };
        outer.lock.lock();
        inner.lock.lock();
        let others = world.unexplored(|| {
            (1..3)
                .map(|index| {
                    let visit = visit.clone();
                    let start = || world.spawn(index, move |_| visit());
                    joined::<Model, _>(world, outer.lock.words().tail, index, start)
                })
                .collect()
        });
        outer.leave();
        inner.leave();
        let inside = 1 + inner.pass() + join(others);
        inner.finish(inside);
        outer.finish(inside - 1);
    })
}

#[test]
fn one_within_another() {
    came_to(nested("granted: one within another", THREE_LINED_UP), &[GRANT]);
}

/// An owner has another thread unlock it, and comes again.
pub(crate) fn unlocked_by_another(name: &str, settings: Settings) -> Report {
    explore::<Model>(name, 2, settings, move |world| {
        let guarded = Guarded::<Along<Model>>::new(world);
        guarded.lock.lock();
        let left = Rc::new(U32::new(0));
        let (first, mut others) = world.unexplored(|| {
            let first = joined::<Model, _>(world, guarded.lock.words().tail, 1, || {
                let (guarded, left) = (guarded.clone(), left.clone());
                world.spawn(1, move |_: &World| {
                    guarded.lock.lock();
                    guarded.section();
                    left.store(1, Release);
                    1 + guarded.pass()
                })
            });
            (first, queued(world, &guarded, &[2]))
        });
        guarded.leave();
        while left.load(Acquire) == 0 {
            loom::thread::yield_now();
        }
        guarded.leave();
        others.push(first);
        // Inside, the main thread was once without having locked it.
        guarded.finish(2 + join(others));
    })
}

#[test]
fn another_unlocks() {
    let report = unlocked_by_another("granted: another unlocks", THREE_LINED_UP);
    came_to(report, &[GRANT, RELEASED]);
}

#[test]
fn condition_variables() {
    let four = Settings { threads: 4, ..TWO };
    give_to::<Along<Model>>("granted: broadcast, held", 2, TWO, Giving::BroadcastHeld);
    give_to::<Along<Model>>("granted: broadcast to three, held", 1, four, Giving::BroadcastHeld);
    give_to::<Along<Model>>("granted: broadcast to two, free", 1, THREE, Giving::BroadcastFree);
    let name = "granted: destroyed by the signalled";
    destroyed_by_the_waiter::<Along<Model>>(name, 2, TWO, Giving::BroadcastFree, sound);
}

/// LAST TOUCH: the last that is granted it destroys it, while the one before still frees its node.
pub(crate) fn destroyed<P: Modelled<Usize = Usize>>(name: &str, settings: Settings) -> Report {
    explore::<P>(name, 2, settings, |world| {
        let guarded = Mortal::new(world, Guarded::<Along<P>>::unwatched());
        watch_places::<P>(world);
        guarded.lock.lock();
        let others: Vec<_> = world.unexplored(|| {
            (1..world.threads())
                .map(|index| {
                    let mine = guarded.clone();
                    let start = || {
                        world.spawn(index, move |world: &World| {
                            mine.lock.lock();
                            let last = mine.section() + 1 == world.threads();
                            mine.lock.unlock();
                            if last {
                                mine.destroy();
                            }
                        })
                    };
                    joined::<P, _>(world, guarded.lock.words().tail, index, start)
                })
                .collect()
        });
        guarded.leave();
        for other in others {
            other.join().unwrap();
        }
        at_rest::<P>();
    })
}

#[test]
fn destroyed_by_the_next_owner() {
    came_to(destroyed::<Model>("granted: destroyed", THREE_LINED_UP), &[GRANT]);
    came_to(destroyed::<Model>("granted: destroyed, four", FOUR_LINED_UP), &[GRANT]);
    let name = "granted: destroyed by the last of three";
    destroyed_by_the_last::<Along<Model>>(name, 1, THREE, false, sound);
}

/// An owner that keeps its place forks: the queue is its parent's.
fn forked_as(epoch: u32) {
    let child = Settings { epoch, spins: 0, ..TWO };
    let haunt = |mutex: &Along<Model>| {
        let words = mutex.words();
        words.word.store(LOCKED | GRANTS, Relaxed);
        // A thread that is not there stands behind.
        words.tail.store(GHOST, Relaxed);
        words.wait_lock.store(BIAS_REVOKED | BEFORE, Relaxed);
        let address = core::ptr::from_ref(&mutex.0).addr();
        let [node, ..] = queue_words::<Model>(0);
        node.place.store(address << 2 | KEPT as usize, Relaxed);
        node.next.store(GHOST, Relaxed);
        node.epoch.store(BEFORE, Relaxed);
        Model::record(0).keepers()[0].store(1, Relaxed);
        Model::keep(address, 1);
    };
    let wait_lock = |mutex: &Along<Model>| mutex.words().wait_lock.peek();
    forked("granted: forked", child, true, haunt, wait_lock);
}

/// A place of a thread that is not there.
pub(crate) const GHOST: u32 = 77;
/// The parent's epoch.
pub(crate) const BEFORE: u32 = 3;

#[test]
fn in_a_forked_child() {
    forked_as(7);
}

// Planted bugs.

#[test]
fn bugs_along_the_queue() {
    let along = |fault| {
        let come = |world: &World, guarded: &Rc<_>| queued(world, guarded, &[1, 2]);
        held::<Along<Model>>(&format!("{fault:?}"), 2, faulty(THREE_LINED_UP, fault), come)
    };
    for fault in [
        Fault::WeakRelease,
        Fault::WeakAcquire,
        Fault::Weaken(Operation::CompareExchange),
        Fault::Weaken(Operation::Load),
        // The last owner says that it is granted still.
        Fault::Omit(Operation::FetchAnd, !GRANTS),
    ] {
        caught(&[UNORDERED, DEADLOCK, ENDLESS], || along(fault));
    }
}

#[test]
fn a_sleeper_that_is_not_woken_at_the_end() {
    caught(&[DEADLOCK], || {
        beside_a_sleeper("granted: a lost wake-up", faulty(FOUR_LINED_UP, Fault::LoseWake(0)))
    });
}

#[test]
fn a_touch_after_the_release() {
    caught(&[LATE, UNORDERED], || {
        destroyed::<Model>("granted: a late touch", faulty(THREE_LINED_UP, Fault::TouchAfterRelease))
    });
}

/// A child that takes itself for its parent passes the mutex on to a thread that is not there.
#[test]
fn a_fork_that_goes_unnoticed() {
    caught(&[NO_SUCH_THREAD], || forked_as(BEFORE));
}
