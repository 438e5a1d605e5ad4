//! The queue spinlock, native and virtual: exclusion, nothing lost in the queue, nothing left behind; in
//! forked children. And what its models share with those of the paravirtual form.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use loom::thread::JoinHandle;
use poundlock_core::events::Event;
use poundlock_core::platform::Atomic;
use poundlock_core::qspin::{ChosenForm, Layout, Native, Paravirtual, RawSpin, Virtual};
use poundlock_model::{Model, Modelled, Patient, Report, Settings, U32, World, explore, spin_word};

use crate::scenes::{GAVE_UP, Guarded, Lock, destroyed_by_the_last, held, held_then, join, lockers, sound};

/// In the low byte of the word.
pub(crate) const LOCKED: u32 = 1;
/// In the low byte of the word.
pub(crate) const SLOW: u32 = 2;
/// The low byte of the word.
pub(crate) const LOW_BYTE: u32 = 0xff;
/// The low byte of a lock that its queue head has reserved.
const RESERVED: u32 = 0xfc;

pub(crate) const TWO: Settings = Settings::DEFAULT;
pub(crate) const THREE: Settings = Settings { threads: 3, ..TWO };

/// The lock, in a form; a `SEASONED` one is a lock in which queue heads have halted before.
pub(crate) struct Spin<P: Modelled, L: Layout, F, const SEASONED: bool = false>(
    RawSpin<P, L>,
    PhantomData<F>,
);

/// With what it protects.
pub(crate) type Spun<P, L, F, const SEASONED: bool = false> = Guarded<Spin<P, L, F, SEASONED>>;

impl<P: Modelled, L: Layout, F, const SEASONED: bool> Default for Spin<P, L, F, SEASONED> {
    fn default() -> Self {
        let lock = RawSpin::default();
        if SEASONED {
            spin_word(&lock).store(L::HALTS, Relaxed);
        }
        Spin(lock, PhantomData)
    }
}

impl<P: Modelled, L: Layout, F: ChosenForm, const SEASONED: bool> Lock for Spin<P, L, F, SEASONED> {
    type Platform = P;

    fn lock(&self) {
        self.0.lock::<F>();
    }
    fn unlock(&self) {
        self.0.unlock::<F>();
    }
    fn try_lock(&self) -> bool {
        self.0.try_lock::<F>()
    }
    fn finish(&self) {
        let left = self.word().peek() & (LOW_BYTE | L::PENDING | L::TAIL);
        assert_eq!(left, 0, "something is left in the lock");
        assert!(P::hash_is_empty(), "something is left in the hash");
    }
}

impl<P: Modelled, L: Layout, F: ChosenForm, const SEASONED: bool> Spin<P, L, F, SEASONED> {
    pub(crate) fn word(&self) -> &U32 {
        spin_word(&self.0)
    }

    /// Makes the calling thread, which holds the lock, the pending waiter too: whoever comes queues.
    pub(crate) fn be_pending(&self) {
        self.word().fetch_or(L::PENDING, Acquire);
    }

    /// The pending waiter takes the lock, when the calling thread, which is both, has released it.
    pub(crate) fn take_pending(&self) {
        self.word().load(Acquire);
        self.word().fetch_add(LOCKED.wrapping_sub(L::PENDING), Relaxed);
    }

    /// Returns when somebody came to wait, who does not halt. Within [`World::unexplored`].
    pub(crate) fn await_queued(&self, world: &World, before: u32) {
        let waiting = L::PENDING | L::TAIL;
        world.await_until(|| self.word().peek() & waiting != before & waiting);
    }
}

/// Starts threads 1 to `last`, each when the one before it waits: the first as the pending waiter, the
/// others in the queue, in their order. The caller holds the lock.
fn line_up<L: Layout>(spun: &Rc<Spun<Model, L, Native>>, world: &World, last: u32) -> Vec<JoinHandle<u32>> {
    let start = |index| {
        let before = spun.lock.word().peek();
        let waiter = spun.passer(world, index);
        spun.lock.await_queued(world, before);
        waiter
    };
    world.unexplored(|| (1..=last).map(start).collect())
}

/// One holds the lock, a second waits for it, a third tries to lock.
pub(crate) fn trying<L: Lock>(name: &str, settings: Settings) {
    let report = held::<L>(name, 2, Settings { threads: 3, ..settings }, |world, spun| {
        let trying = spun.clone();
        let others = vec![
            world.unexplored(|| spun.passer(world, 1)),
            world.spawn(2, move |world: &World| (0..2).map(|_| trying.pass_at_once(world)).sum()),
        ];
        loom::thread::yield_now();
        others
    });
    let tried = 2 * report.executions;
    assert!(report.reached[GAVE_UP] > 0 && report.reached[GAVE_UP] < tried, "{report:?}");
}

/// Holds `locks` locks, each as its pending waiter too, for which thread 1 waits one within the other, in the
/// order of their numbers: in the first, and in signal handlers upon it; and thread 2 for the first of them.
/// They are released in the same or in the other order.
fn nested<L: Layout>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    locks: usize,
    outermost_first: bool,
) -> Report {
    explore::<Model>(name, preemptions, settings, move |world| {
        let spuns: Vec<_> = (0..locks).map(|_| Spun::<Model, L, Native>::new(world)).collect();
        for inner in &spuns[1..] {
            let inner = inner.clone();
            world.handle(1, move || _ = inner.pass());
        }
        let outer = &spuns[0];
        let others = world.unexplored(|| {
            for spun in &spuns {
                spun.lock.lock();
                spun.lock.be_pending();
            }
            let mut others = vec![outer.passer(world, 1)];
            // In the handlers' last wait.
            world.await_until(|| world.handlers_left() == 0);
            if settings.threads > 2 {
                let before = outer.lock.word().peek();
                others.push(outer.passer(world, 2));
                world.await_until(|| outer.lock.word().peek() != before);
            }
            others
        });
        let release = |spun: &Rc<Spun<Model, L, Native>>| {
            spun.leave();
            spun.lock.take_pending();
            spun.leave();
        };
        if outermost_first {
            spuns.iter().for_each(release);
        } else {
            spuns.iter().rev().for_each(release);
        }
        outer.finish(2 + join(others));
        spuns[1..].iter().for_each(|spun| spun.finish(3));
    })
}

/// Instantiates a generic model for both layouts.
macro_rules! for_each_layout {
    ($($model:ident),* $(,)?) => {
        crate::qspin::for_each_layout!(@ small Small $($model)*);
        crate::qspin::for_each_layout!(@ large Large $($model)*);
    };
    (@ $module:ident $layout:ident $($model:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $model() {
                    super::$model::<poundlock_core::qspin::$layout>();
                }
            )*
        }
    };
}

pub(crate) use for_each_layout;

// Native.

fn two_threads<L: Layout>() {
    // The pending waiter.
    let report = lockers::<Spin<Model, L, Native>>("two threads", 4, TWO, 1);
    assert!(report.events[Event::PendingHit] > 0 && report.events[Event::Level1] == 0);
    let report = lockers::<Spin<Patient, L, Native>>("two threads twice", 3, TWO, 2);
    assert!(report.events[Event::SlowPath] > 0);
}

fn three_threads<L: Layout>() {
    let report = lockers::<Spin<Model, L, Native>>("three threads", 2, THREE, 1);
    assert!(report.events[Event::PendingHit] > 0 && report.events[Event::Level1] > 0);
    trying::<Spin<Model, L, Native>>("trying", TWO);
}

/// One holds the lock, one is pending, three are in the queue.
pub(crate) fn queue_of_three<L: Layout>(name: &str, settings: Settings) -> Report {
    let settings = Settings { threads: 5, ..settings };
    held(name, 1, settings, |world, spun: &Rc<Spun<Model, L, Native>>| {
        let others = line_up(spun, world, 4);
        assert_eq!(world.events(Event::Level1), 3);
        others
    })
}

fn three_in_the_queue<L: Layout>() {
    let report = queue_of_three::<L>("three in the queue", TWO);
    assert_eq!(report.events[Event::Level1], 3 * report.executions);
}

/// Places that the following models count.
const CLEARED: usize = 0;
const KEPT: usize = 1;
const TRANSIENT: usize = 2;
const TAKEN_UNDER_TRANSIENT: usize = 3;

fn watch_claims<L: Layout>(world: &World, word: &U32) {
    world.watch_change(word, CLEARED, |before, after| before & L::TAIL != 0 && after & L::TAIL == 0);
    world.watch_change(word, KEPT, |before, after| {
        before & (LOCKED | L::PENDING) == 0 && after & LOCKED != 0 && after & L::TAIL != 0
    });
    world.watch_change(word, TRANSIENT, |before, after| {
        before & L::PENDING == 0 && before & L::TAIL != 0 && after & L::PENDING != 0
    });
    world.watch_change(word, TAKEN_UNDER_TRANSIENT, |before, after| {
        before & (LOCKED | L::PENDING) == L::PENDING
            && before & L::TAIL != 0
            && after & (LOCKED | L::PENDING) == LOCKED | L::PENDING
    });
}

/// The main thread holds the lock, and is the pending waiter too, while others come; it releases both, in the
/// steps in which two threads would.
fn held_twice<L: Layout>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    come: impl Fn(&World, &Rc<Spun<Model, L, Native>>) -> Vec<JoinHandle<u32>> + Send + Sync + 'static,
    again: u32,
) -> Report {
    let come = move |world: &World, spun: &Rc<Spun<Model, L, Native>>| {
        watch_claims::<L>(world, spun.lock.word());
        world.unexplored(|| come(world, spun))
    };
    held_then(name, preemptions, settings, come, move |_, spun| {
        spun.lock.take_pending();
        spun.leave();
        1 + (0..again).map(|_| spun.pass()).sum::<u32>()
    })
}

/// Starts thread 1, which queues.
fn queued<L: Layout>(world: &World, spun: &Rc<Spun<Model, L, Native>>) -> JoinHandle<u32> {
    let waiter = spun.passer(world, 1);
    world.await_until(|| spun.lock.word().peek() & L::TAIL != 0);
    waiter
}

/// The last in the queue claims the lock while the main thread comes again.
fn claim_against_a_newcomer<L: Layout>() {
    let come = |world: &World, spun: &Rc<Spun<Model, L, Native>>| {
        spun.lock.be_pending();
        vec![queued(world, spun)]
    };
    let report = held_twice("a claim against a newcomer", 3, TWO, come, 1);
    assert!(report.reached[CLEARED] > 0 && report.reached[KEPT] > 0);
}

/// The newcomer has seen the lock held and nobody waiting, and sets the pending bit only when somebody is in
/// the queue and the one that was pending has the lock. It will take it back; meanwhile the last in the queue
/// claims the lock.
fn claim_against_a_pending_bit<L: Layout>(name: &str, settings: Settings) -> Report {
    let come = |world: &World, spun: &Rc<Spun<Model, L, Native>>| {
        // After the attempt, the look at the epoch, and the look for others.
        let looked = Rc::new(core::cell::Cell::new(false));
        let go = Rc::new(core::cell::Cell::new(false));
        world.script(2, spun.lock.word(), 3, {
            let (looked, go) = (looked.clone(), go.clone());
            move || {
                looked.set(true);
                World::present().await_until(|| go.get());
            }
        });
        let newcomer = spun.passer(world, 2);
        world.await_until(|| looked.get());
        spun.lock.be_pending();
        let waiter = queued(world, spun);
        go.set(true);
        vec![waiter, newcomer]
    };
    held_twice::<L>(name, 2, settings, come, 0)
}

fn claim_against_a_transient_pending_bit<L: Layout>() {
    let report = claim_against_a_pending_bit::<L>("a claim against a transient pending bit", THREE);
    for place in [CLEARED, KEPT, TRANSIENT, TAKEN_UNDER_TRANSIENT] {
        assert!(report.reached[place] > 0, "place {place}");
    }
    // One without a record will not queue after it has taken the bit back, so nobody may wait for it.
    let unregistered = Settings { unregistered: 4, ..THREE };
    let report = claim_against_a_pending_bit::<L>("a transient pending bit without a record", unregistered);
    assert!(report.reached[TRANSIENT] > 0 && report.reached[TAKEN_UNDER_TRANSIENT] > 0);
    assert!(report.events[Event::NoNode] > 0);
}

/// The main thread has no record and comes again, while one waits as the pending waiter and one in the queue.
fn without_a_record<L: Layout>() {
    let come = |world: &World, spun: &Rc<Spun<Model, L, Native>>| line_up(spun, world, 2);
    let settings = Settings { unregistered: 1, ..THREE };
    let report = held_then("without a record", 1, settings, come, |_, spun| spun.pass());
    assert!(report.events[Event::NoNode] > 0 && report.events[Event::Level1] > 0);
}

fn in_handlers<L: Layout>() {
    for outermost_first in [true, false] {
        let report = nested::<L>("in a handler", 2, THREE, 2, outermost_first);
        assert_eq!(report.events[Event::Level2], report.executions);
        let report = nested::<L>("in the fourth handler", 1, TWO, 5, outermost_first);
        assert_eq!(report.events[Event::Level4], report.executions);
        assert_eq!(report.events[Event::NoNode], report.executions);
    }
}

fn destroyed<L: Layout>() {
    destroyed_by_the_last::<Spin<Model, L, Native>>("destroyed", 4, TWO, false, sound);
    destroyed_by_the_last::<Spin<Model, L, Native>>("destroyed, three threads", 2, THREE, false, sound);
}

fn virtual_form<L: Layout>() {
    let report = lockers::<Spin<Model, L, Virtual>>("virtual: two threads", 4, TWO, 2);
    assert!(report.events[Event::SlowPath] > 0);
    let report = lockers::<Spin<Model, L, Virtual>>("virtual: three threads", 2, THREE, 1);
    assert!(report.events[Event::SlowPath] > 0);
    trying::<Spin<Model, L, Virtual>>("virtual: trying", TWO);
    destroyed_by_the_last::<Spin<Model, L, Virtual>>("virtual: destroyed", 2, THREE, false, sound);
}

// In a forked child the words speak of threads that do not exist there. Those are the threads from 19 on
// here: a model fails when it follows such a name, for there is no such record.

/// A child whose parent was not forked itself.
pub(crate) const CHILD: Settings = Settings { spins: 0, epoch: 7, ..TWO };

/// What the other threads of the parent were about when it forked: one was pending, others queued.
fn left<L: Layout>() -> u32 {
    L::PENDING | 77 << L::TAIL.trailing_zeros() | 3 << L::EPOCH.trailing_zeros()
}

/// Two threads of the child come to the lock at once, in which more was left.
pub(crate) fn free<L: Layout, F: ChosenForm>(name: &str, settings: Settings, more: u32) {
    let report = explore::<Model>(name, 3, settings, move |world| {
        let spun = Spun::<Model, L, F>::new(world);
        spun.lock.word().store(left::<L>() | more, Relaxed);
        let other = spun.passer(world, 1);
        spun.pass();
        other.join().unwrap();
        assert_eq!((spun.lock.word().peek() & L::EPOCH) >> L::EPOCH.trailing_zeros(), settings.epoch);
        spun.finish(2);
    });
    assert!(report.executions > 10);
}

/// And the thread that forked holds the lock, and unlocks it while a new thread comes.
fn forked<L: Layout, F: ChosenForm>(name: &str, more: u32) {
    free::<L, F>(name, CHILD, more);
    let come = move |world: &World, spun: &Rc<Spun<Model, L, F>>| {
        spun.lock.word().store(left::<L>() | LOCKED | more, Relaxed);
        vec![spun.passer(world, 1)]
    };
    held_then(name, 3, CHILD, come, |_, spun| spun.pass());
}

fn in_a_forked_child<L: Layout>() {
    forked::<L, Native>("forked", 0);
    forked::<L, Virtual>("forked, virtual", 0);
    // The head was halted, or had reserved the lock.
    for more in [0, L::HALTS | SLOW, L::HALTS | SLOW | 4, L::HALTS | RESERVED] {
        forked::<L, Paravirtual>("forked, paravirtual", more);
    }
}

for_each_layout!(
    two_threads,
    three_threads,
    three_in_the_queue,
    claim_against_a_newcomer,
    claim_against_a_transient_pending_bit,
    without_a_record,
    in_handlers,
    destroyed,
    virtual_form,
    in_a_forked_child,
);
