//! What the models share: scenes that locks of every kind are put into, and how a planted bug is found.
//!
//! A lock's own file has its adapter ([`Lock`]), and calls the scenes with bounds and settings. Those that
//! are about a rare path of one lock lie there, too.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::Platform;
use poundlock_core::condvar::{Guarding, Outcome, RawCondvar};
use poundlock_core::platform::Deadline;
use poundlock_core::waiting::Failure;
use poundlock_model::{Fault, Model, Modelled, Mortal, Report, Settings, World, condvar_words, explore};

/// Nobody spins, so that few preemptions reach far.
pub(crate) const TWO: Settings = Settings { spins: 0, ..Settings::DEFAULT };
pub(crate) const THREE: Settings = Settings { threads: 3, ..TWO };

// Places that the scenes count. Those before, from 0, are the lock's.
pub(crate) const GAVE_UP: usize = 8;
pub(crate) const WAITED: usize = 9;
pub(crate) const TIMED_OUT: usize = 10;
pub(crate) const CANCELLED: usize = 11;
/// Somebody found out that there was a fork.
pub(crate) const LOOKED: usize = 8;

/// A mutex or a spinlock.
pub(crate) trait Lock: Default + 'static {
    type Platform: Modelled;

    fn lock(&self);
    fn unlock(&self);
    fn try_lock(&self) -> bool {
        unreachable!("no scene of this lock tries")
    }
    fn lock_until(&self, _deadline: &Deadline) -> Result<(), Failure> {
        unreachable!("nobody gives up on this lock")
    }
    fn lock_interruptible(&self) -> Result<(), Failure> {
        unreachable!("nobody gives up on this lock")
    }

    /// Counts what its models are about. The other threads start later.
    fn watch(_world: &World, _guarded: &Rc<Guarded<Self>>) {}

    /// Fails if something is left in it, when all threads have been joined.
    fn finish(&self);
}

/// A lock and what it protects. Two accesses to that which the lock does not order, whatever order they came
/// in, fail the model.
pub(crate) struct Guarded<L> {
    pub(crate) lock: L,
    value: UnsafeCell<u32>,
}

impl<L: Lock> Guarded<L> {
    /// A lock that is watched.
    pub(crate) fn new(world: &World) -> Rc<Self> {
        let guarded = Rc::new(Self::unwatched());
        L::watch(world, &guarded);
        guarded
    }

    pub(crate) fn unwatched() -> Self {
        Guarded { lock: L::default(), value: UnsafeCell::new(0) }
    }

    /// The critical section. Returns how many there were before.
    pub(crate) fn section(&self) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.value.with_mut(|value| unsafe {
            *value += 1;
            *value - 1
        })
    }

    /// Enters, and unlocks. The caller has the lock.
    pub(crate) fn leave(&self) {
        self.section();
        self.lock.unlock();
    }

    /// Locks and unlocks. Returns how often it was inside: once.
    pub(crate) fn pass(&self) -> u32 {
        self.lock.lock();
        self.leave();
        1
    }

    /// Locks and unlocks if that is possible at once. Returns how often it was inside.
    pub(crate) fn pass_at_once(&self, world: &World) -> u32 {
        self.leave_if(world, self.lock.try_lock())
    }

    /// Locks and unlocks, or gives up. Returns how often it was inside.
    pub(crate) fn pass_until(&self, world: &World, deadline: &Deadline) -> u32 {
        let result = self.lock.lock_until(deadline);
        assert_ne!(result, Err(Failure::Interrupted));
        self.leave_if(world, result.is_ok())
    }

    fn leave_if(&self, world: &World, acquired: bool) -> u32 {
        if acquired {
            self.leave();
        } else {
            world.reached(GAVE_UP);
        }
        u32::from(acquired)
    }

    /// Starts a thread that locks and unlocks.
    pub(crate) fn passer(self: &Rc<Self>, world: &World, index: u32) -> JoinHandle<u32> {
        self.passer_again(world, index, 1)
    }

    /// Starts a thread that locks and unlocks so many times.
    pub(crate) fn passer_again(self: &Rc<Self>, world: &World, index: u32, times: u32) -> JoinHandle<u32> {
        let guarded = self.clone();
        world.spawn(index, move |_| (0..times).map(|_| guarded.pass()).sum())
    }

    /// Starts a thread that locks and unlocks if that is possible at once.
    pub(crate) fn passer_at_once(self: &Rc<Self>, world: &World, index: u32) -> JoinHandle<u32> {
        let guarded = self.clone();
        world.spawn(index, move |world: &World| guarded.pass_at_once(world))
    }

    /// Starts a thread that locks and unlocks, or gives up when the model's time is over.
    pub(crate) fn timed_passer(self: &Rc<Self>, world: &World, index: u32) -> JoinHandle<u32> {
        let guarded = self.clone();
        world.spawn(index, move |world: &World| guarded.pass_until(world, &world.timer(0)))
    }

    /// Threads with these numbers that sleep for it, in this order. Somebody holds it.
    pub(crate) fn sleepers(self: &Rc<Self>, world: &World, numbers: Range<u32>) -> Vec<JoinHandle<u32>> {
        world.unexplored(|| asleep(world, numbers, |index| self.passer(world, index)))
    }

    /// At the end, when all threads have been joined.
    pub(crate) fn finish(&self, sections: u32) {
        assert_eq!(self.section(), sections, "an entry was lost");
        self.lock.finish();
    }
}

/// The sum of what threads return.
pub(crate) fn join(others: Vec<JoinHandle<u32>>) -> u32 {
    others.into_iter().map(|other| other.join().unwrap()).sum()
}

/// Starts threads with these numbers, each when the one before it sleeps. Somebody holds what they want.
pub(crate) fn asleep<T>(
    world: &World,
    numbers: Range<u32>,
    start: impl Fn(u32) -> JoinHandle<T>,
) -> Vec<JoinHandle<T>> {
    let settle = |index| {
        let sleeper = start(index);
        world.await_sleep(index);
        sleeper
    };
    numbers.map(settle).collect()
}

/// Starts threads with these numbers: all at once; or, if there is something to hold, so that they sleep for
/// it.
pub(crate) fn at_once_or_asleep<T>(
    world: &World,
    numbers: Range<u32>,
    hold: Option<impl FnOnce()>,
    start: impl Fn(u32) -> JoinHandle<T>,
) -> Vec<JoinHandle<T>> {
    match hold {
        None => numbers.map(start).collect(),
        Some(hold) => world.unexplored(|| {
            hold();
            asleep(world, numbers, start)
        }),
    }
}

// Scenes.

/// As many threads lock as the settings say, `times` times each.
pub(crate) fn lockers<L: Lock>(name: &str, preemptions: usize, settings: Settings, times: u32) -> Report {
    explore::<L::Platform>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<L>::new(world);
        let others = (1..world.threads()).map(|index| guarded.passer_again(world, index, times)).collect();
        (0..times).for_each(|_| _ = guarded.pass());
        guarded.finish(times + join(others));
    })
}

/// The main thread holds the lock while others come, and unlocks it.
pub(crate) fn held<L: Lock>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    come: impl Fn(&World, &Rc<Guarded<L>>) -> Vec<JoinHandle<u32>> + Send + Sync + 'static,
) -> Report {
    held_then::<L>(name, preemptions, settings, come, |_, _| 0)
}

/// [`held`], and then the main thread does more: it returns how often it was inside once more.
pub(crate) fn held_then<L: Lock>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    come: impl Fn(&World, &Rc<Guarded<L>>) -> Vec<JoinHandle<u32>> + Send + Sync + 'static,
    then: impl Fn(&World, &Guarded<L>) -> u32 + Send + Sync + 'static,
) -> Report {
    explore::<L::Platform>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<L>::new(world);
        guarded.lock.lock();
        let others = come(world, &guarded);
        guarded.leave();
        let more = then(world, &guarded);
        guarded.finish(1 + more + join(others));
    })
}

/// The main thread holds the lock and the others sleep; it unlocks, and locks so many times more.
pub(crate) fn woken_in_turn<L: Lock>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    more: u32,
) -> Report {
    let come = |world: &World, guarded: &Rc<Guarded<L>>| guarded.sleepers(world, 1..world.threads());
    held_then(name, preemptions, settings, come, move |_, guarded| (0..more).map(|_| guarded.pass()).sum())
}

/// One locks, another tries.
pub(crate) fn trying<L: Lock>(name: &str) {
    let report = explore::<L::Platform>(name, 3, Settings::DEFAULT, |world| {
        let guarded = Guarded::<L>::new(world);
        let other = guarded.passer_at_once(world, 1);
        guarded.pass();
        guarded.finish(1 + other.join().unwrap());
    });
    sometimes(report, GAVE_UP);
}

/// It happened in some executions, and not in all.
#[track_caller]
pub(crate) fn sometimes(report: Report, place: usize) {
    let reached = report.reached[place];
    assert!(reached > 0 && reached < report.executions, "place {place}: {report:?}");
}

/// How a wait ends that may be given up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Its deadline passes before the unlock begins, or while it is under way.
    Before,
    /// Its deadline passes after the unlock, while it is on its way to the lock.
    After,
    /// Its deadline was in the past.
    Past,
    /// A signal handler runs.
    Interrupted,
}

/// The main thread holds the lock. Thread 1 waits and may give up; the others wait for as long as it takes.
/// Who gives up leaves no trace, and no wake-up that was meant for the others goes with it.
///
/// With `settled`, all of them sleep before the end comes.
pub(crate) fn giving_up<L: Lock>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    settled: bool,
    end: End,
) -> Report {
    let come = move |world: &World, guarded: &Rc<Guarded<L>>| {
        let start = |index| {
            let guarded = guarded.clone();
            world.spawn(index, move |world: &World| match end {
                _ if index > 1 => guarded.pass(),
                End::Before | End::After => guarded.pass_until(world, &world.timer(0)),
                End::Past => guarded.pass_until(world, &world.past()),
                End::Interrupted => {
                    let result = guarded.lock.lock_interruptible();
                    assert_ne!(result, Err(Failure::TimedOut));
                    guarded.leave_if(world, result.is_ok())
                }
            })
        };
        let others = at_once_or_asleep(world, 1..world.threads(), settled.then_some(|| ()), start);
        match end {
            End::Before => world.expire(0),
            End::Interrupted => world.interrupt(1),
            End::After | End::Past => {}
        }
        if settled {
            // Lets it give up before the unlock, unless it is preempted.
            loom::thread::yield_now();
        }
        others
    };
    let then = move |world: &World, _: &Guarded<L>| {
        if end == End::After {
            world.expire(0);
        }
        0
    };
    let report = held_then(name, preemptions, settings, come, then);
    assert!(end == End::After || report.reached[GAVE_UP] > 0, "nobody gave up: {report:?}");
    assert!(report.reached[GAVE_UP] < report.executions, "everybody gave up: {report:?}");
    report
}

/// All threads lock; the last destroys the lock as soon as it has unlocked it. With `settled`, the main
/// thread holds it while the others fall asleep.
pub(crate) fn destroyed_by_the_last<L: Lock>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    settled: bool,
    plant: impl Fn(&World, &Mortal<Guarded<L>>) + Send + Sync + 'static,
) -> Report {
    explore::<L::Platform>(name, preemptions, settings, move |world| {
        let guarded = Mortal::new(world, Guarded::<L>::unwatched());
        plant(world, &guarded);
        let threads = world.threads();
        let work = move |guarded: &Mortal<Guarded<L>>, held: bool| {
            if !held {
                guarded.lock.lock();
            }
            let before = guarded.section();
            guarded.lock.unlock();
            if before + 1 == threads {
                guarded.destroy();
            }
        };
        let start = |index| {
            let guarded = guarded.clone();
            world.spawn(index, move |_: &World| work(&guarded, false))
        };
        let hold = settled.then_some(|| guarded.lock.lock());
        let others = at_once_or_asleep(world, 1..threads, hold, start);
        work(&guarded, settled);
        for other in others {
            other.join().unwrap();
        }
    })
}

/// Nothing is planted.
pub(crate) fn sound<T>(_: &World, _: &T) {}

/// Threads of the parent are not in the child, whatever they left in the lock: two threads of the child come
/// to it at once; or one, while the one that forked holds it.
pub(crate) fn forked<L: Lock>(
    name: &str,
    settings: Settings,
    held: bool,
    haunt: impl Fn(&L) + Send + Sync + 'static,
    wait_lock: impl Fn(&L) -> u32 + Send + Sync + 'static,
) -> Report {
    let report = explore::<L::Platform>(name, 2, settings, move |world| {
        let guarded = Rc::new(Guarded::<L>::unwatched());
        if held {
            guarded.lock.lock();
        }
        haunt(&guarded.lock);
        let other = guarded.passer(world, 1);
        if held {
            guarded.leave();
        } else {
            guarded.pass();
        }
        other.join().unwrap();
        if wait_lock(&guarded.lock) & 0xff != settings.epoch {
            // Nobody had to wait, so nobody looked at what is there.
            assert_eq!(guarded.section(), 2);
            return;
        }
        world.reached(LOOKED);
        guarded.finish(2);
    });
    assert!(report.reached[LOOKED] > 0 && report.woken > 0, "{report:?}");
    report
}

// Condition variables.

/// A mutex under which threads wait.
pub(crate) trait Guards: Lock<Platform = Model> {
    /// Whether who is signalled sleeps on, until it is handed the mutex.
    const HANDS_ON: bool = false;

    fn guarding(&self) -> impl Guarding<Model>;
}

/// Tokens that threads take, waiting for them.
pub(crate) struct Tokens<L> {
    pub(crate) guarded: Rc<Guarded<L>>,
    pub(crate) condvar: RawCondvar<Model>,
    count: UnsafeCell<u32>,
}

impl<L: Guards> Tokens<L> {
    pub(crate) fn new(world: &World) -> Rc<Self> {
        let (guarded, condvar) = (Guarded::new(world), RawCondvar::default());
        Rc::new(Tokens { guarded, condvar, count: UnsafeCell::new(0) })
    }

    /// Under the mutex: changes the number of tokens, returns what it was.
    pub(crate) fn change(&self, by: impl FnOnce(u32) -> u32) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.count.with_mut(|count| unsafe {
            let before = *count;
            *count = by(before);
            before
        })
    }

    pub(crate) fn give(&self, tokens: u32) {
        self.guarded.lock.lock();
        self.change(|count| count + tokens);
        self.guarded.lock.unlock();
    }

    /// Waits for a token and takes it; or gives up.
    fn take(&self, world: &World, deadline: Option<&Deadline>, may_cancel: bool) -> Outcome {
        self.guarded.lock.lock();
        let outcome = loop {
            if self.change(|count| count.saturating_sub(1)) > 0 {
                break Outcome::Signalled;
            }
            world.reached(WAITED);
            match self.condvar.wait(&self.guarded.lock.guarding(), deadline, || may_cancel) {
                Outcome::Signalled => {}
                Outcome::TimedOut => {
                    world.reached(TIMED_OUT);
                    break Outcome::TimedOut;
                }
                Outcome::Cancelled => {
                    world.reached(CANCELLED);
                    break Outcome::Cancelled;
                }
            }
        };
        self.guarded.leave();
        outcome
    }

    /// Starts a thread that takes a token.
    pub(crate) fn taker(
        self: &Rc<Self>,
        world: &World,
        index: u32,
        timed: bool,
        may_cancel: bool,
    ) -> JoinHandle<Outcome> {
        let tokens = self.clone();
        world.spawn(index, move |world: &World| {
            let deadline = timed.then(|| world.timer(0));
            tokens.take(world, deadline.as_ref(), may_cancel)
        })
    }

    /// Starts threads that take tokens, and sleep.
    pub(crate) fn sleeping_takers(
        self: &Rc<Self>,
        world: &World,
        numbers: Range<u32>,
        timed: bool,
        may_cancel: bool,
    ) -> Vec<JoinHandle<Outcome>> {
        world.unexplored(|| asleep(world, numbers, |index| self.taker(world, index, timed, may_cancel)))
    }

    pub(crate) fn finish(&self, takers: u32, left: u32) {
        self.guarded.finish(takers);
        assert!(self.condvar.is_idle(), "somebody is left in the condition variable");
        assert_eq!(self.change(|count| count), left, "tokens");
    }
}

#[track_caller]
pub(crate) fn waited(report: Report) {
    assert!(report.reached[WAITED] > 0, "nobody waited");
}

/// How the giver signals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Giving {
    SignalHeld,
    SignalFree,
    BroadcastHeld,
    BroadcastFree,
}

impl Giving {
    fn held(self) -> bool {
        matches!(self, Giving::SignalHeld | Giving::BroadcastHeld)
    }

    fn tell(self, condvar: &RawCondvar<Model>, takers: u32) {
        if matches!(self, Giving::BroadcastHeld | Giving::BroadcastFree) {
            condvar.broadcast();
        } else {
            (0..takers).for_each(|_| condvar.signal());
        }
    }
}

/// Gives a token to each of the others. Of several, all wait already.
pub(crate) fn give_to<L: Guards>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    giving: Giving,
) -> Report {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let tokens = Tokens::<L>::new(world);
        let takers = world.threads() - 1;
        let others = if takers == 1 {
            vec![tokens.taker(world, 1, false, false)]
        } else {
            tokens.sleeping_takers(world, 1..takers + 1, false, false)
        };
        let exactly = L::HANDS_ON && takers > 1;
        let before = world.woken();
        tokens.guarded.lock.lock();
        tokens.change(|count| count + takers);
        if giving.held() {
            giving.tell(&tokens.condvar, takers);
            assert!(!exactly || world.woken() == before, "woken in vain");
        }
        tokens.guarded.lock.unlock();
        if !giving.held() {
            giving.tell(&tokens.condvar, takers);
        }
        for other in others {
            assert_eq!(other.join().unwrap(), Outcome::Signalled);
        }
        assert!(!exactly || world.woken() - before == u64::from(takers), "a wake-up in vain");
        tokens.finish(takers, 0);
    });
    waited(report);
    report
}

/// One token and one signal for two, of whom one may give up: if it does, the signal is the other's.
pub(crate) fn one_outcome<L: Guards>(
    name: &str,
    preemptions: usize,
    cancel: bool,
    give_first: bool,
) -> Report {
    let report = explore::<Model>(name, preemptions, THREE, move |world| {
        let tokens = Tokens::<L>::new(world);
        let fickle = tokens.sleeping_takers(world, 1..2, !cancel, cancel).remove(0);
        let steady = tokens.sleeping_takers(world, 2..3, false, false).remove(0);
        let end = || if cancel { Model::record(1).cancel() } else { world.expire(0) };
        if !give_first {
            end();
        }
        tokens.give(1);
        tokens.condvar.signal();
        if give_first {
            // The one that was signalled goes first, so that loom sees the conflicts of what follows with it.
            loom::thread::yield_now();
            end();
        }
        if fickle.join().unwrap() == Outcome::Signalled {
            // It had the token.
            tokens.give(1);
            tokens.condvar.signal();
        }
        assert_eq!(steady.join().unwrap(), Outcome::Signalled);
        tokens.finish(2, 0);
    });
    waited(report);
    assert!(give_first || report.reached[if cancel { CANCELLED } else { TIMED_OUT }] > 0, "{report:?}");
    report
}

/// Whoever waited, and was told, destroys the mutex as soon as it has used it: who told it may still be on
/// the way out.
pub(crate) fn destroyed_by_the_waiter<L: Guards>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    giving: Giving,
    plant: impl Fn(&World, &Mortal<Guarded<L>>) + Send + Sync + 'static,
) -> Report {
    explore::<Model>(name, preemptions, settings, move |world| {
        let guarded = Mortal::new(world, Guarded::<L>::unwatched());
        plant(world, &guarded);
        let condvar = Rc::new(RawCondvar::<Model>::default());
        let waiter = world.unexplored(|| {
            let waiter = world.spawn(1, {
                let (guarded, condvar) = (guarded.clone(), condvar.clone());
                move |_: &World| {
                    guarded.lock.lock();
                    while guarded.section() == 0 {
                        let _ = condvar.wait(&guarded.lock.guarding(), None, || false);
                    }
                    guarded.lock.unlock();
                    guarded.destroy();
                }
            });
            let [_, head] = condvar_words(&condvar);
            world.await_until(|| head.peek() != 0);
            waiter
        });
        guarded.lock.lock();
        guarded.section();
        if giving.held() {
            giving.tell(&condvar, 1);
            guarded.lock.unlock();
        } else {
            guarded.lock.unlock();
            giving.tell(&condvar, 1);
        }
        waiter.join().unwrap();
    })
}

// Planted bugs: without these the other models would prove nothing.

// What models that fail say.
pub(crate) const DEADLOCK: &str = "deadlock";
pub(crate) const UNORDERED: &str = "Causality violation";
pub(crate) const LATE: &str = "late touch";
pub(crate) const NO_SUCH_THREAD: &str = "index out of bounds";
/// Somebody waits for ever without sleeping.
pub(crate) const ENDLESS: &str = "maximum number of branches";

pub(crate) fn faulty(settings: Settings, fault: Fault) -> Settings {
    Settings { fault, ..settings }
}

/// Runs a model that must fail, with one of these messages.
#[track_caller]
pub(crate) fn caught<R>(why: &[&str], model: impl FnOnce() -> R) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(model)) else {
        panic!("the model did not find the planted bug");
    };
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    assert!(why.iter().any(|why| message.contains(why)), "found something else: {message}");
}

/// Settings, the bug that is planted, and what is said when it is found.
pub(crate) type Bug = (Settings, Fault, &'static str);

/// Each of these bugs is found by this model, of which the name comes first.
#[track_caller]
pub(crate) fn each_is_caught<R>(bugs: &[Bug], model: impl Fn(&str, Settings) -> R) {
    for (settings, fault, why) in bugs {
        caught(&[why], || model(&format!("{fault:?}"), faulty(*settings, *fault)));
    }
}
