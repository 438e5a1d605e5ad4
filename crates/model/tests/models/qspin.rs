//! The queue spinlock, native and virtual: exclusion, nothing lost in the queue, nothing left behind. And
//! what its models share with those of the paravirtual form.

use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::events::Event;
use poundlock_core::platform::Atomic;
use poundlock_core::qspin::{ChosenForm, Layout, Native, RawSpin, Virtual};
use poundlock_model::{Model, Modelled, Mortal, Patient, Report, Settings, U32, World, explore, spin_word};

/// In the low byte of the word.
pub(crate) const LOCKED: u32 = 1;
/// In the low byte of the word.
pub(crate) const SLOW: u32 = 2;
/// The low byte of the word.
pub(crate) const LOW_BYTE: u32 = 0xff;

/// A lock and what it protects.
pub(crate) struct Spun<P: Modelled, L: Layout> {
    pub(crate) lock: RawSpin<P, L>,
    value: UnsafeCell<u32>,
}

impl<P: Modelled, L: Layout> Spun<P, L> {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self::unshared())
    }

    pub(crate) fn unshared() -> Self {
        Spun { lock: RawSpin::default(), value: UnsafeCell::new(0) }
    }

    /// A lock in which queue heads have halted before.
    pub(crate) fn seasoned() -> Rc<Self> {
        let spun = Self::new();
        spun.word().store(L::HALTS, Relaxed);
        spun
    }

    pub(crate) fn word(&self) -> &U32 {
        spin_word(&self.lock)
    }

    /// The critical section. Returns how many there were before.
    pub(crate) fn section(&self) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.value.with_mut(|value| unsafe {
            *value += 1;
            *value - 1
        })
    }

    /// Locks, does something, and unlocks.
    pub(crate) fn pass<F: ChosenForm>(&self) {
        self.lock.lock::<F>();
        self.section();
        self.lock.unlock::<F>();
    }

    /// At the end, when all threads have been joined.
    pub(crate) fn finish(&self, sections: u32) {
        assert_eq!(self.section(), sections, "an entry was lost");
        let left = self.word().peek() & (LOW_BYTE | L::PENDING | L::TAIL);
        assert_eq!(left, 0, "something is left in the lock");
        assert!(P::hash_is_empty(), "something is left in the hash");
    }

    /// Makes the calling thread the holder and, by setting its bit, the pending waiter too: whoever comes
    /// queues.
    pub(crate) fn hold_twice<F: ChosenForm>(&self) {
        self.lock.lock::<F>();
        self.be_pending();
    }

    /// Makes the calling thread, which holds the lock, the pending waiter too.
    pub(crate) fn be_pending(&self) {
        self.word().fetch_or(L::PENDING, Acquire);
    }

    /// Releases both, in the steps in which two threads would.
    pub(crate) fn release_twice<F: ChosenForm>(&self) {
        self.section();
        self.lock.unlock::<F>();
        self.word().load(Acquire);
        self.word().fetch_add(LOCKED.wrapping_sub(L::PENDING), Relaxed);
        self.section();
        self.lock.unlock::<F>();
    }

    /// Starts a thread that locks and unlocks so many times.
    pub(crate) fn passer<F: ChosenForm>(
        self: &Rc<Self>,
        world: &World,
        index: u32,
        times: u32,
    ) -> JoinHandle<()> {
        let spun = self.clone();
        world.spawn(index, move |_| (0..times).for_each(|_| spun.pass::<F>()))
    }

    /// Starts threads 1 to `last`, each when the one before it waits: the first as the pending waiter, the
    /// others in the queue, in their order. The caller holds the lock. Within [`World::unexplored`].
    pub(crate) fn line_up<F: ChosenForm>(self: &Rc<Self>, world: &World, last: u32) -> Vec<JoinHandle<()>> {
        (1..=last)
            .map(|index| {
                let before = self.word().peek();
                let waiter = self.passer::<F>(world, index, 1);
                world.await_until(|| {
                    self.word().peek() & (L::PENDING | L::TAIL) != before & (L::PENDING | L::TAIL)
                });
                waiter
            })
            .collect()
    }
}

pub(crate) const TWO: Settings = Settings::DEFAULT;
pub(crate) const THREE: Settings = Settings { threads: 3, ..TWO };

/// As many threads lock as the settings say, `times` times each.
pub(crate) fn passers<P: Modelled, L: Layout, F: ChosenForm>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    times: u32,
) -> Report {
    passers_at::<P, L, F>(name, preemptions, settings, times, Spun::new)
}

/// The same, at a lock of this kind.
pub(crate) fn passers_at<P: Modelled, L: Layout, F: ChosenForm>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    times: u32,
    new: fn() -> Rc<Spun<P, L>>,
) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let spun = new();
        let threads = settings.threads as u32;
        let others: Vec<_> = (1..threads).map(|index| spun.passer::<F>(world, index, times)).collect();
        (0..times).for_each(|_| spun.pass::<F>());
        for other in others {
            other.join().unwrap();
        }
        spun.finish(threads * times);
    })
}

/// All threads lock; the last destroys the lock as soon as it has unlocked it.
pub(crate) fn destroyed_by_the_last<P: Modelled, L: Layout, F: ChosenForm>(
    name: &str,
    preemptions: usize,
    settings: Settings,
) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let spun = Mortal::new(world, Spun::<P, L>::unshared());
        let threads = settings.threads as u32;
        let work = move |spun: &Mortal<Spun<P, L>>| {
            spun.lock.lock::<F>();
            let before = spun.section();
            spun.lock.unlock::<F>();
            if before + 1 == threads {
                spun.destroy();
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|index| {
                let spun = spun.clone();
                world.spawn(index, move |_: &World| work(&spun))
            })
            .collect();
        work(&spun);
        for other in others {
            other.join().unwrap();
        }
    })
}

/// One holds the lock, a second waits for it, a third tries to lock.
pub(crate) fn trying<P: Modelled, L: Layout, F: ChosenForm>(
    name: &str,
    preemptions: usize,
    settings: Settings,
) {
    const GOT: usize = 0;
    let report = explore::<P>(name, preemptions, Settings { threads: 3, ..settings }, move |world| {
        let spun = Spun::<P, L>::new();
        let (waiter, trying) = world.unexplored(|| {
            spun.lock.lock::<F>();
            (spun.passer::<F>(world, 1, 1), spun.clone())
        });
        let trier = world.spawn(2, move |world: &World| {
            (0..2)
                .map(|_| {
                    let got = trying.lock.try_lock::<F>();
                    if got {
                        world.reached(GOT);
                        trying.section();
                        trying.lock.unlock::<F>();
                    }
                    u32::from(got)
                })
                .sum::<u32>()
        });
        loom::thread::yield_now();
        spun.section();
        spun.lock.unlock::<F>();
        waiter.join().unwrap();
        let got = trier.join().unwrap();
        spun.finish(2 + got);
    });
    assert!(report.reached[GOT] > 0 && report.reached[GOT] < 2 * report.executions);
}

/// The calling thread holds `locks` locks for which thread 1 waits one within the other, in the order of
/// their numbers: in the first, and in signal handlers upon it; and thread 2 for the first of them. They are
/// released in the same or in the other order.
pub(crate) fn nested<P: Modelled, L: Layout, F: ChosenForm>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    locks: usize,
    outermost_first: bool,
) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let spuns: Vec<_> = (0..locks).map(|_| Spun::<P, L>::new()).collect();
        for inner in &spuns[1..] {
            let inner = inner.clone();
            world.handle(1, move || inner.pass::<F>());
        }
        let others = world.unexplored(|| {
            spuns.iter().for_each(|spun| spun.hold_twice::<F>());
            let mut others = vec![spuns[0].passer::<F>(world, 1, 1)];
            // In the handlers' last wait.
            world.await_until(|| world.handlers_left() == 0);
            if settings.threads > 2 {
                let before = spuns[0].word().peek();
                others.push(spuns[0].passer::<F>(world, 2, 1));
                world.await_until(|| spuns[0].word().peek() != before);
            }
            others
        });
        if outermost_first {
            spuns.iter().for_each(|spun| spun.release_twice::<F>());
        } else {
            spuns.iter().rev().for_each(|spun| spun.release_twice::<F>());
        }
        let outer = others.len() as u32;
        for other in others {
            other.join().unwrap();
        }
        spuns[0].finish(2 + outer);
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
                    super::$model::<poundlock_core::qspin::$layout>(concat!(
                        module_path!(), "::", stringify!($model)
                    ));
                }
            )*
        }
    };
}

pub(crate) use for_each_layout;

// Native.

/// The pending waiter.
fn two_threads<L: Layout>(name: &str) {
    let report = passers::<Model, L, Native>(name, 4, TWO, 1);
    assert!(report.events[Event::PendingHit] > 0 && report.events[Event::Level1] == 0);
}

fn two_threads_twice<L: Layout>(name: &str) {
    let report = passers::<Patient, L, Native>(name, 3, TWO, 2);
    assert!(report.events[Event::SlowPath] > 0);
}

fn three_threads<L: Layout>(name: &str) {
    let report = passers::<Model, L, Native>(name, 2, THREE, 1);
    assert!(report.events[Event::PendingHit] > 0 && report.events[Event::Level1] > 0);
}

/// One holds the lock, one is pending, three are in the queue.
pub(crate) fn queue_of_three<L: Layout>(name: &str, settings: Settings) -> Report {
    explore::<Model>(name, 1, Settings { threads: 5, ..settings }, |world| {
        let spun = Spun::<Model, L>::new();
        let others = world.unexplored(|| {
            spun.lock.lock::<Native>();
            spun.line_up::<Native>(world, 4)
        });
        assert_eq!(world.events(Event::Level1), 3);
        spun.section();
        spun.lock.unlock::<Native>();
        for other in others {
            other.join().unwrap();
        }
        spun.finish(5);
    })
}

fn three_in_the_queue<L: Layout>(name: &str) {
    let report = queue_of_three::<L>(name, TWO);
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

/// The last in the queue claims the lock while the main thread comes again.
fn claim_against_a_newcomer<L: Layout>(name: &str) {
    let report = explore::<Model>(name, 3, TWO, |world| {
        let spun = Spun::<Model, L>::new();
        watch_claims::<L>(world, spun.word());
        let waiter = world.unexplored(|| {
            spun.hold_twice::<Native>();
            let waiter = spun.passer::<Native>(world, 1, 1);
            world.await_until(|| spun.word().peek() & L::TAIL != 0);
            waiter
        });
        spun.release_twice::<Native>();
        spun.pass::<Native>();
        waiter.join().unwrap();
        spun.finish(4);
    });
    assert!(report.reached[CLEARED] > 0 && report.reached[KEPT] > 0);
}

/// The newcomer has seen the lock held and nobody waiting, and sets the pending bit only when somebody is in
/// the queue and the one that was pending has the lock. It will take it back; meanwhile the last in the queue
/// claims the lock.
fn claim_against_a_pending_bit<L: Layout>(name: &str, settings: Settings) -> Report {
    explore::<Model>(name, 2, settings, |world| {
        let spun = Spun::<Model, L>::new();
        watch_claims::<L>(world, spun.word());
        let (newcomer, waiter) = world.unexplored(|| {
            spun.lock.lock::<Native>();
            // After the attempt, the look at the epoch, and the look for others.
            let looked = Rc::new(core::cell::Cell::new(false));
            let go = Rc::new(core::cell::Cell::new(false));
            world.script(2, spun.word(), 3, {
                let (looked, go) = (looked.clone(), go.clone());
                move || {
                    looked.set(true);
                    World::present().await_until(|| go.get());
                }
            });
            let newcomer = spun.passer::<Native>(world, 2, 1);
            world.await_until(|| looked.get());
            spun.be_pending();
            let waiter = spun.passer::<Native>(world, 1, 1);
            world.await_until(|| spun.word().peek() & L::TAIL != 0);
            go.set(true);
            (newcomer, waiter)
        });
        spun.release_twice::<Native>();
        waiter.join().unwrap();
        newcomer.join().unwrap();
        spun.finish(4);
    })
}

fn claim_against_a_transient_pending_bit<L: Layout>(name: &str) {
    let report = claim_against_a_pending_bit::<L>(name, THREE);
    for place in [CLEARED, KEPT, TRANSIENT, TAKEN_UNDER_TRANSIENT] {
        assert!(report.reached[place] > 0, "place {place}");
    }
}

/// One without a record will not queue after it has taken the bit back, so nobody may wait for it.
fn claim_against_a_pending_bit_without_a_record<L: Layout>(name: &str) {
    let report = claim_against_a_pending_bit::<L>(name, Settings { unregistered: 4, ..THREE });
    assert!(report.reached[TRANSIENT] > 0 && report.reached[TAKEN_UNDER_TRANSIENT] > 0);
    assert!(report.events[Event::NoNode] > 0);
}

/// The main thread has no record and comes again, while one waits as the pending waiter and one in the queue.
fn without_a_record<L: Layout>(name: &str) {
    let report = explore::<Model>(name, 1, Settings { unregistered: 1, ..THREE }, |world| {
        let spun = Spun::<Model, L>::new();
        let others = world.unexplored(|| {
            spun.lock.lock::<Native>();
            spun.line_up::<Native>(world, 2)
        });
        spun.section();
        spun.lock.unlock::<Native>();
        spun.pass::<Native>();
        for other in others {
            other.join().unwrap();
        }
        spun.finish(4);
    });
    assert!(report.events[Event::NoNode] > 0 && report.events[Event::Level1] > 0);
}

fn try_lock<L: Layout>(name: &str) {
    trying::<Model, L, Native>(name, 2, TWO);
}

fn in_a_handler<L: Layout>(name: &str) {
    for outermost_first in [true, false] {
        let report = nested::<Model, L, Native>(name, 2, THREE, 2, outermost_first);
        assert_eq!(report.events[Event::Level2], report.executions);
    }
}

fn in_the_fourth_handler<L: Layout>(name: &str) {
    for outermost_first in [true, false] {
        let report = nested::<Model, L, Native>(name, 1, TWO, 5, outermost_first);
        assert_eq!(report.events[Event::Level4], report.executions);
        assert_eq!(report.events[Event::NoNode], report.executions);
    }
}

fn destroyed<L: Layout>(name: &str) {
    destroyed_by_the_last::<Model, L, Native>(name, 4, TWO);
    destroyed_by_the_last::<Model, L, Native>(name, 2, THREE);
}

// Virtual.

fn virtual_two_threads<L: Layout>(name: &str) {
    let report = passers::<Model, L, Virtual>(name, 4, TWO, 2);
    assert!(report.events[Event::SlowPath] > 0);
}

fn virtual_three_threads<L: Layout>(name: &str) {
    let report = passers::<Model, L, Virtual>(name, 2, THREE, 1);
    assert!(report.events[Event::SlowPath] > 0);
}

fn virtual_try_lock<L: Layout>(name: &str) {
    trying::<Model, L, Virtual>(name, 2, TWO);
}

fn virtual_destroyed<L: Layout>(name: &str) {
    destroyed_by_the_last::<Model, L, Virtual>(name, 2, THREE);
}

for_each_layout!(
    two_threads,
    two_threads_twice,
    three_threads,
    three_in_the_queue,
    claim_against_a_newcomer,
    claim_against_a_transient_pending_bit,
    claim_against_a_pending_bit_without_a_record,
    without_a_record,
    try_lock,
    in_a_handler,
    in_the_fourth_handler,
    destroyed,
    virtual_two_threads,
    virtual_three_threads,
    virtual_try_lock,
    virtual_destroyed,
);
