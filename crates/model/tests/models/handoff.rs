//! The hand-off mutex: exclusion, nothing lost on the way from hand to hand, and what a waiter that gives up
//! leaves behind.
//!
//! What loom cannot show here: that an unlocker reads a node's link before the thread that gave it up, and
//! has it back, stores to that link again (load buffering). The orderings of a give-up, and of what takes it
//! out, are for that alone.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::Platform;
use poundlock_core::events::Event;
use poundlock_core::handoff::{
    Adaptive, Competitive, Fixed, Handoff, NoSpin, OwnerRunning, Policy, RawHandoff, SameCpu,
};
use poundlock_core::node::{LEVELS, SPARES, Waiter, state};
use poundlock_core::platform::{Atomic, Deadline};
use poundlock_model::{HandoffWords, Model, Report, Settings, World, explore, handoff_words, waiter_words};

/// Nobody spins, so that few preemptions reach far.
pub(crate) const TWO: Settings = Settings { spins: 0, ..Settings::DEFAULT };
pub(crate) const THREE: Settings = Settings { threads: 3, ..TWO };
/// Patience without end: a spinner stops for another reason.
const PATIENT: Settings = Settings { spins: 1000, ..THREE };

// The fields of a queue's word.
pub(crate) const TOKEN: u32 = 1 << 31;
pub(crate) const LINK: u32 = (1 << 25) - 1;
/// What an owner word says while a waiter that was handed the mutex has not woken.
const HANDED_OVER: u32 = u32::MAX;

/// The name of a node: those from `LEVELS` on are spare ones.
pub(crate) const fn waiter(thread: u32, place: u32) -> Waiter {
    match Waiter::from_raw(thread * (LEVELS + SPARES) + place + 1) {
        Some(waiter) => waiter,
        None => unreachable!(),
    }
}

/// The first spare node of a thread: the one it takes for its first wait that it may give up.
pub(crate) fn spare(thread: u32) -> Waiter {
    waiter(thread, LEVELS)
}

/// What it is about now.
pub(crate) fn state_of(waiter: Waiter) -> u32 {
    waiter_words::<Model>(waiter).state.peek()
}

/// A mutex and what it protects. Two accesses to that which the mutex does not order, whatever order they
/// came in, fail the model.
pub(crate) struct Passed {
    pub(crate) mutex: RawHandoff<Model>,
    value: UnsafeCell<u32>,
}

impl Passed {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self::unshared())
    }

    pub(crate) fn unshared() -> Self {
        Passed { mutex: RawHandoff::default(), value: UnsafeCell::new(0) }
    }

    pub(crate) fn words(&self) -> HandoffWords<'_> {
        handoff_words(&self.mutex)
    }

    /// The critical section. Returns how many there were before.
    pub(crate) fn section(&self) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.value.with_mut(|value| unsafe {
            *value += 1;
            *value - 1
        })
    }

    /// Locks and unlocks.
    pub(crate) fn pass<S: Policy>(&self) {
        self.mutex.lock::<S>();
        self.section();
        self.mutex.unlock();
    }

    /// Locks and unlocks, or gives up: 0 then.
    fn pass_until<S: Policy>(&self, deadline: &Deadline) -> u32 {
        let acquired = self.mutex.lock_until::<S>(deadline);
        if acquired {
            self.section();
            self.mutex.unlock();
        }
        u32::from(acquired)
    }

    /// Starts a thread that locks and unlocks.
    pub(crate) fn passer<S: Policy>(self: &Rc<Self>, world: &World, index: u32) -> JoinHandle<()> {
        let passed = self.clone();
        world.spawn(index, move |_| passed.pass::<S>())
    }

    /// Starts a thread that locks and unlocks, or gives up: 0 then.
    fn timed_passer<S: Policy>(self: &Rc<Self>, world: &World, index: u32) -> JoinHandle<u32> {
        let passed = self.clone();
        world.spawn(index, move |world: &World| passed.pass_until::<S>(&world.timer(0)))
    }

    /// Has a thread give up, which leaves its node in the queue. The caller holds the mutex. Unexplored.
    pub(crate) fn abandon(self: &Rc<Self>, world: &World, index: u32) {
        let passed = self.clone();
        let gave_up = world.spawn(index, move |world: &World| passed.pass_until::<NoSpin>(&world.past()));
        assert_eq!(gave_up.join().unwrap(), 0);
        assert_eq!(state_of(spare(index)), state::ABANDONED);
    }

    /// At the end, when all threads have been joined: nobody is counted, queued or waiting for the queue.
    pub(crate) fn finish(&self, sections: u32) {
        assert_eq!(self.section(), sections, "an entry was lost");
        let words = self.words();
        assert_eq!(words.count.peek(), 0, "somebody is left in the count");
        assert_eq!(words.push.peek() & (TOKEN | LINK), 0, "something is left in the queue");
        assert_eq!(words.pop.peek(), 0, "somebody is left in the queue");
        assert!(!self.mutex.is_locked());
        for thread in 0..World::present().threads() {
            for place in 0..LEVELS + SPARES {
                assert_eq!(state_of(waiter(thread, place)), state::IDLE, "a node is in use");
            }
        }
        // The fast path: a slow one would wait for somebody who is not there.
        self.mutex.lock::<NoSpin>();
        assert_eq!(words.count.peek(), 1);
        self.mutex.unlock();
        assert_eq!(words.count.peek(), 0);
    }
}

/// What may happen to a mutex, or to somebody who waits for it.
#[derive(Clone, Copy)]
pub(crate) enum Path {
    /// An unlocker left the token.
    TokenLeft,
    /// It was left twice in one execution.
    SecondToken,
    /// This thread took the token.
    TokenTakenBy(u32),
    /// This node was queued.
    Queued(Waiter),
    /// A waiter was handed the mutex.
    HandedOver,
    /// A waiter gave up.
    GaveUp,
    /// A waiter that had given up came back, and is in its old place.
    TakenUp,
    /// As [`Path::TakenUp`], when an unlocker was about to hand over to it, or to take it out.
    TakenUpInHand,
    /// A waiter that had given up was taken out of the queue.
    TakenOut,
    /// An unlocker that had taken somebody out counted down to 0.
    LastOut,
    /// An unlocker that had taken somebody out left the token.
    TokenAfterTakingOut,
    /// An unlocker that had taken somebody out handed the mutex over.
    HandedOverAfterTakingOut,
}

/// Counts how often each of these paths was taken, in the place of its index. Call it before the other
/// threads start.
pub(crate) fn watch(world: &World, passed: &Passed, paths: &[Path]) {
    let words = passed.words();
    for (place, path) in paths.iter().enumerate() {
        match *path {
            Path::TokenLeft => world
                .watch_change(words.push, place, |before, after| before & TOKEN == 0 && after & TOKEN != 0),
            Path::SecondToken => {
                let left = Cell::new(0);
                world.watch_change(words.push, place, move |before, after| {
                    let leaves = before & TOKEN == 0 && after & TOKEN != 0;
                    left.set(left.get() + u32::from(leaves));
                    leaves && left.get() == 2
                });
            }
            Path::TokenTakenBy(thread) => world.watch_change(words.push, place, move |before, after| {
                before & TOKEN != 0 && after & TOKEN == 0 && World::present().index() == thread
            }),
            Path::Queued(waiter) => world.watch_change(words.push, place, move |before, after| {
                before & LINK != waiter.raw() && after & LINK == waiter.raw()
            }),
            Path::HandedOver => watch_states(world, place, |before, after| {
                before == state::SLEEPING && after == state::HANDED
            }),
            Path::GaveUp => watch_states(world, place, gives_up),
            Path::TakenUp => watch_states(world, place, |before, after| {
                before == state::ABANDONED && after == state::SLEEPING
            }),
            Path::TakenUpInHand => {
                let in_hand = Rc::new(Cell::new(false));
                world.watch(words.owner, place, {
                    let in_hand = in_hand.clone();
                    move |owner| {
                        in_hand.set(owner == HANDED_OVER);
                        false
                    }
                });
                watch_states(world, place, move |before, after| {
                    let taken_up = before == state::ABANDONED && after == state::SLEEPING;
                    in_hand.set(in_hand.get() && !takes_out(before, after));
                    taken_up && in_hand.get()
                });
            }
            Path::TakenOut => watch_states(world, place, takes_out),
            Path::LastOut => {
                let took_out = taking_out(world, words, place);
                world.watch(words.count, place, move |count| count == 0 && took_out());
            }
            Path::TokenAfterTakingOut => {
                let took_out = taking_out(world, words, place);
                world.watch_change(words.push, place, move |before, after| {
                    before & TOKEN == 0 && after & TOKEN != 0 && took_out()
                });
            }
            Path::HandedOverAfterTakingOut => {
                let took_out = taking_out(world, words, place);
                watch_states(world, place, move |before, after| {
                    before == state::SLEEPING && after == state::HANDED && took_out()
                });
            }
        }
    }
}

fn gives_up(before: u32, after: u32) -> bool {
    before == state::SLEEPING && after == state::ABANDONED
}

fn takes_out(before: u32, after: u32) -> bool {
    before == state::ABANDONED && after == state::IDLE
}

fn watch_states(world: &World, place: usize, when: impl Fn(u32, u32) -> bool + Clone + 'static) {
    for thread in 0..world.threads() {
        for at in 0..LEVELS + SPARES {
            let words = waiter_words::<Model>(waiter(thread, at));
            world.watch_change(&words.state, place, when.clone());
        }
    }
}

/// Whether the calling thread has taken somebody out, and not set out for the mutex since then.
fn taking_out(world: &World, words: HandoffWords<'_>, place: usize) -> impl Fn() -> bool + Clone + 'static {
    let who = Rc::new(Cell::new(u32::MAX));
    world.watch_change(words.count, place, {
        let who = who.clone();
        move |before, after| {
            if after > before && who.get() == World::present().index() {
                who.set(u32::MAX);
            }
            false
        }
    });
    watch_states(world, place, {
        let who = who.clone();
        move |before, after| {
            if takes_out(before, after) {
                who.set(World::present().index());
            }
            false
        }
    });
    move || who.get() == World::present().index()
}

/// Asserts that each of so many paths was taken.
#[track_caller]
pub(crate) fn taken(report: Report, paths: usize) {
    for place in 0..paths {
        assert!(report.reached[place] > 0, "path {place} was not taken");
    }
}

// Lockers.

/// As many threads lock as the settings say, `times` times each.
pub(crate) fn lockers<S: Policy>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    times: u32,
    paths: &'static [Path],
) -> Report {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let passed = Passed::new();
        watch(world, &passed, paths);
        let threads = settings.threads as u32;
        let others: Vec<_> = (1..threads)
            .map(|index| {
                let passed = passed.clone();
                world.spawn(index, move |_| (0..times).for_each(|_| passed.pass::<S>()))
            })
            .collect();
        (0..times).for_each(|_| passed.pass::<S>());
        for other in others {
            other.join().unwrap();
        }
        passed.finish(threads * times);
    });
    taken(report, paths.len());
    report
}

#[test]
fn two_threads() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::HandedOver, Path::TokenTakenBy(0), Path::TokenTakenBy(1)];
    let report = lockers::<NoSpin>("handed: two threads", 3, TWO, 1, PATHS);
    assert!(report.sleeps > 0 && report.woken > 0);
}

#[test]
fn two_threads_twice() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::SecondToken, Path::HandedOver];
    lockers::<NoSpin>("handed: two threads twice", 2, TWO, 2, PATHS);
}

#[test]
fn three_threads() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::SecondToken, Path::HandedOver];
    lockers::<NoSpin>("handed: three threads", 2, THREE, 1, PATHS);
}

#[test]
fn two_spinners() {
    const PATHS: &[Path] = &[Path::TokenTakenBy(0), Path::TokenTakenBy(1), Path::HandedOver, Path::TokenLeft];
    const ONE: Settings = Settings { spins: 1, ..TWO };
    // It takes more preemptions than these to use up two turns of each.
    const TOKENS: &[Path] = &[Path::TokenTakenBy(0), Path::TokenTakenBy(1)];
    lockers::<Competitive>("handed: two spinners", 3, ONE, 2, PATHS);
    lockers::<Competitive>(
        "handed: two spinners with more patience",
        3,
        Settings { spins: 2, ..TWO },
        2,
        TOKENS,
    );
    lockers::<Fixed>("handed: two spinners with a fixed patience", 2, ONE, 2, &[Path::TokenTakenBy(1)]);
    lockers::<OwnerRunning>("handed: two spinners while the owner runs", 3, ONE, 2, PATHS);
    lockers::<Adaptive>("handed: two spinners that learn", 3, ONE, 2, PATHS);
}

#[test]
fn three_spinners() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::SecondToken, Path::HandedOver];
    lockers::<Competitive>("handed: three spinners", 2, Settings { spins: 1, ..THREE }, 1, PATHS);
}

/// Both run on one CPU: whoever waits displaces the owner, and knows it, whatever its patience.
#[test]
fn displaced() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::HandedOver];
    let settings = Settings { tags: [1; 5], ..PATIENT };
    let settings = Settings { threads: 2, ..settings };
    lockers::<OwnerRunning>("handed: displaced", 3, settings, 2, PATHS);
    lockers::<SameCpu>("handed: displaced, the narrow form", 3, settings, 2, PATHS);
    lockers::<Adaptive>("handed: displaced, learning", 3, settings, 2, PATHS);
}

/// Sleeps end at once for no reason, twice a thread.
#[test]
fn restless() {
    lockers::<NoSpin>("handed: restless", 2, Settings { restless: 2, ..TWO }, 1, &[Path::HandedOver]);
}

/// A thread without a record may not queue: it waits for the token, and an unlock leaves it.
#[test]
fn polling() {
    const PATHS: &[Path] = &[Path::TokenTakenBy(1), Path::HandedOver];
    let report = lockers::<NoSpin>("handed: polling", 3, Settings { unregistered: 2, ..TWO }, 2, PATHS);
    assert!(report.sleeps > 0);
}

/// The main thread holds the mutex and the others sleep; it unlocks, and locks once more, behind them.
#[test]
fn handed_on_in_turn() {
    let report = explore::<Model>("handed on in turn", 2, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, &[Path::HandedOver, Path::Queued(waiter(0, 0))]);
        let order = Rc::new(Cell::new(0));
        let others = world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            [1, 2].map(|index| {
                let (passed, order) = (passed.clone(), order.clone());
                let other = world.spawn(index, move |_| {
                    passed.mutex.lock::<NoSpin>();
                    passed.section();
                    order.set(order.get() * 10 + index);
                    passed.mutex.unlock();
                });
                world.await_sleep(index);
                other
            })
        });
        passed.section();
        passed.mutex.unlock();
        passed.mutex.lock::<NoSpin>();
        passed.section();
        // Whoever queued first comes first, and nobody comes between.
        assert_eq!(order.get(), 12);
        passed.mutex.unlock();
        for other in others {
            other.join().unwrap();
        }
        passed.finish(4);
    });
    taken(report, 2);
}

// The token.

/// Starts threads that lock and unlock. They have counted on return, and not looked at the queue. Within
/// [`World::unexplored`].
pub(crate) fn counted<const N: usize>(
    world: &World,
    passed: &Rc<Passed>,
    indices: [u32; N],
) -> [JoinHandle<()>; N] {
    let go = Rc::new(Cell::new(false));
    let lockers = indices.map(|index| {
        let counted = Rc::new(Cell::new(false));
        world.script(index, passed.words().count, 1, {
            let (counted, go) = (counted.clone(), go.clone());
            move || {
                counted.set(true);
                World::present().await_until(|| go.get());
            }
        });
        let locker = passed.passer::<NoSpin>(world, index);
        world.await_until(|| counted.get());
        locker
    });
    go.set(true);
    lockers
}

/// The main thread unlocks while the others have counted, and not queued.
pub(crate) fn unlock_against_counted<const N: usize>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    indices: [u32; N],
    paths: &'static [Path],
) -> Report {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let passed = Passed::new();
        watch(world, &passed, paths);
        let lockers = world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            counted(world, &passed, indices)
        });
        passed.section();
        passed.mutex.unlock();
        for locker in lockers {
            locker.join().unwrap();
        }
        passed.finish(world.threads());
    });
    taken(report, paths.len());
    report
}

#[test]
fn unlock_against_one_that_has_counted() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::TokenTakenBy(1), Path::HandedOver];
    unlock_against_counted("unlock against one that has counted", 4, TWO, [1], PATHS);
}

#[test]
fn unlock_against_two_that_have_counted() {
    const PATHS: &[Path] =
        &[Path::TokenTakenBy(1), Path::TokenTakenBy(2), Path::SecondToken, Path::HandedOver];
    unlock_against_counted("unlock against two that have counted", 2, THREE, [1, 2], PATHS);
}

/// The unlocker sees that nobody has queued; before it can leave the token, somebody queues. Then leaving it
/// must fail: who has queued would not come to take it.
#[test]
fn the_token_against_one_that_queues() {
    let report = explore::<Model>("the token against one that queues", 4, TWO, |world| {
        let passed = Passed::new();
        watch(world, &passed, &[Path::TokenLeft, Path::HandedOver]);
        let words = passed.words();
        // The main thread looks for the epoch, for a stack to turn round, and for a reason not to leave the
        // token.
        let looked = Rc::new(Cell::new(false));
        for (nth, between) in [(3, true), (4, false)] {
            let looked = looked.clone();
            world.script(0, words.push, nth, move || looked.set(between));
        }
        let late = Rc::new(Cell::new(false));
        world.watch_change(words.push, 2, {
            let (looked, late) = (looked.clone(), late.clone());
            move |before, after| {
                let queues = before & LINK == 0 && after & LINK != 0 && looked.get();
                late.set(late.get() | queues);
                queues
            }
        });
        world.watch(words.push, 3, move |after| late.get() && after & TOKEN != 0);
        let [locker] = world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            counted(world, &passed, [1])
        });
        passed.section();
        passed.mutex.unlock();
        locker.join().unwrap();
        passed.finish(2);
    });
    taken(report, 3);
    assert_eq!(report.reached[3], 0, "the token was left behind somebody's back");
}

/// A spinner with patience without end, and one that queues at once: the spinner must follow it, for no token
/// will come any more.
#[test]
fn a_spinner_against_one_that_queues() {
    let report = explore::<Model>("a spinner against one that queues", 2, PATIENT, |world| {
        let passed = Passed::new();
        watch(
            world,
            &passed,
            &[
                Path::TokenTakenBy(2),
                Path::Queued(waiter(1, 0)),
                Path::Queued(waiter(2, 0)),
                Path::HandedOver,
            ],
        );
        passed.mutex.lock::<NoSpin>();
        let others = [passed.passer::<NoSpin>(world, 1), passed.passer::<Competitive>(world, 2)];
        passed.section();
        passed.mutex.unlock();
        for other in others {
            other.join().unwrap();
        }
        passed.finish(3);
    });
    taken(report, 4);
}

/// A spinner that watches the owner: once the mutex was handed to somebody who has not woken, it queues.
#[test]
fn a_spinner_against_a_hand_over() {
    const QUEUED: usize = 0;
    let report = explore::<Model>("a spinner against a hand-over", 2, PATIENT, |world| {
        let passed = Passed::new();
        watch(world, &passed, &[Path::Queued(waiter(2, 0)), Path::HandedOver, Path::TokenTakenBy(2)]);
        let sleeper = world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            let sleeper = passed.passer::<NoSpin>(world, 1);
            world.await_sleep(1);
            sleeper
        });
        let spinner = passed.passer::<OwnerRunning>(world, 2);
        passed.section();
        passed.mutex.unlock();
        sleeper.join().unwrap();
        spinner.join().unwrap();
        passed.finish(3);
    });
    taken(report, 3);
    assert!(report.reached[QUEUED] < report.executions);
}

/// A passer-by takes the token that was left for one who has counted. He is not counted yet, and nobody may
/// take the mutex for free meanwhile.
#[test]
fn try_lock_against_one_that_has_counted() {
    const TRIED: usize = 2;
    let report = explore::<Model>("try_lock against one that has counted", 3, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, &[Path::TokenTakenBy(1), Path::TokenTakenBy(2)]);
        let [locker] = world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            counted(world, &passed, [1])
        });
        let passer_by = world.spawn(2, {
            let passed = passed.clone();
            move |world: &World| {
                if !passed.mutex.try_lock() {
                    world.reached(TRIED);
                    return 0;
                }
                passed.section();
                passed.mutex.unlock();
                1
            }
        });
        passed.section();
        passed.mutex.unlock();
        locker.join().unwrap();
        let tried = passer_by.join().unwrap();
        passed.finish(2 + tried);
    });
    taken(report, 3);
    assert!(report.reached[TRIED] < report.executions);
}

// Waiters that give up.

/// When a deadline passes that others wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Before the unlock begins, or while it is under way.
    Before,
    /// After the unlock.
    After,
}

/// The main thread holds the mutex. Thread 1 waits, and may give up; the others wait for as long as it takes.
/// With `settled`, all of them sleep before the end comes. Who gives up is not handed the mutex, and who is
/// handed it does not give up.
pub(crate) fn giving_up<S: Policy>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    settled: bool,
    end: End,
    paths: &'static [Path],
) -> Report {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let passed = Passed::new();
        watch(world, &passed, paths);
        let others = 2..world.threads();
        let start = |world: &World, index| {
            let other = passed.passer::<S>(world, index);
            if settled {
                world.await_sleep(index);
            }
            other
        };
        let begin = || {
            passed.mutex.lock::<S>();
            let impatient = passed.timed_passer::<S>(world, 1);
            if settled {
                world.await_sleep(1);
            }
            (impatient, others.map(|index| start(world, index)).collect::<Vec<_>>())
        };
        let (impatient, patient) = if settled { world.unexplored(begin) } else { begin() };
        if end == End::Before {
            world.expire(0);
        }
        if settled {
            // Lets it give up before the unlock, unless it is preempted.
            loom::thread::yield_now();
        }
        passed.section();
        passed.mutex.unlock();
        if end == End::After {
            world.expire(0);
        }
        let got = impatient.join().unwrap();
        for waiter in patient {
            waiter.join().unwrap();
        }
        passed.finish(world.threads() - 1 + got);
    });
    taken(report, paths.len());
    report
}

/// It is asleep when its deadline passes, and the mutex is unlocked: both at once.
#[test]
fn giving_up_against_a_hand_over() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::HandedOver, Path::TakenOut, Path::LastOut];
    let report = giving_up::<NoSpin>("giving up against a hand-over", 4, TWO, true, End::Before, PATHS);
    assert!(report.reached[0] < report.executions && report.reached[1] < report.executions);
    // Its time was over, but it had been handed the mutex.
    assert!(report.timed_out > report.reached[0]);
}

/// It was handed the mutex when its deadline passes, and has not woken.
#[test]
fn out_of_time_after_a_hand_over() {
    let report =
        giving_up::<NoSpin>("out of time after a hand-over", 4, TWO, true, End::After, &[Path::HandedOver]);
    assert_eq!(report.reached[0], report.executions);
}

/// It may be anywhere between the first look and the sleep.
#[test]
fn giving_up_against_the_token() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::TokenTakenBy(1), Path::HandedOver, Path::LastOut];
    giving_up::<NoSpin>("giving up against the token", 3, TWO, false, End::Before, PATHS);
    let spinning = Settings { spins: 1, ..TWO };
    giving_up::<Competitive>("giving up against the token, spinning", 4, spinning, false, End::Before, PATHS);
}

#[test]
fn giving_up_before_another() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::HandedOver, Path::HandedOverAfterTakingOut];
    giving_up::<NoSpin>("giving up before another", 2, THREE, true, End::Before, PATHS);
}

/// The other may have counted, and not queued: the token is left behind the one that was taken out.
#[test]
fn giving_up_before_one_that_has_counted() {
    const PATHS: &[Path] =
        &[Path::TokenAfterTakingOut, Path::HandedOverAfterTakingOut, Path::TokenTakenBy(1)];
    let report = explore::<Model>("giving up before one that has counted", 3, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        let [locker] = world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 2);
            counted(world, &passed, [1])
        });
        passed.section();
        passed.mutex.unlock();
        locker.join().unwrap();
        passed.finish(2);
    });
    taken(report, PATHS.len());
}

/// One that gave up is at the end of the queue, and the only one who is counted. Somebody comes while it is
/// taken out.
#[test]
fn a_newcomer_while_the_last_is_taken_out() {
    const PATHS: &[Path] = &[Path::LastOut, Path::TokenAfterTakingOut, Path::HandedOverAfterTakingOut];
    let report = explore::<Model>("a newcomer while the last is taken out", 3, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 2);
        });
        let newcomer = passed.passer::<NoSpin>(world, 1);
        passed.section();
        passed.mutex.unlock();
        newcomer.join().unwrap();
        passed.finish(2);
    });
    taken(report, PATHS.len());
}

/// Two give up at the same time, and the unlocker takes out both: one may still be handed the mutex
/// meanwhile.
#[test]
fn two_that_give_up() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::TakenOut, Path::LastOut, Path::HandedOverAfterTakingOut];
    let report = explore::<Model>("two that give up", 3, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        let waiters = world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            [1, 2].map(|index| {
                let waiter = passed.timed_passer::<NoSpin>(world, index);
                world.await_sleep(index);
                waiter
            })
        });
        world.expire(0);
        passed.section();
        passed.mutex.unlock();
        let got: u32 = waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum();
        passed.finish(1 + got);
    });
    taken(report, PATHS.len());
    assert!(report.reached[0] < 2 * report.executions);
}

/// A signal handler ends its sleep, not its wait.
#[test]
fn interrupted() {
    let report = explore::<Model>("handed: interrupted", 4, TWO, |world| {
        let passed = Passed::new();
        watch(world, &passed, &[Path::HandedOver, Path::GaveUp]);
        let waiter = world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            let waiter = passed.timed_passer::<NoSpin>(world, 1);
            world.await_sleep(1);
            waiter
        });
        world.interrupt(1);
        passed.section();
        passed.mutex.unlock();
        assert_eq!(waiter.join().unwrap(), 1);
        passed.finish(2);
    });
    taken(report, 1);
    assert!(report.interrupted == report.executions && report.reached[1] == 0);
}

/// Its thread ended in the midst of the wait, by way of a signal handler: the next with its record gives the
/// wait up.
#[test]
fn a_wait_cut_short() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::TakenOut, Path::LastOut, Path::HandedOverAfterTakingOut];
    let report = explore::<Model>("a wait cut short", 3, THREE, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 1);
            // As it was before its time was over.
            let words = waiter_words::<Model>(spare(1));
            words.state.store(state::SLEEPING, Relaxed);
            Model::record(1).renew();
        });
        let other = passed.passer::<NoSpin>(world, 2);
        passed.section();
        passed.mutex.unlock();
        other.join().unwrap();
        passed.finish(2);
    });
    taken(report, PATHS.len());
}

/// It gives up, and comes back with more time: into its old place, or into a new one if it was taken out
/// meanwhile.
#[test]
fn coming_back_against_being_taken_out() {
    const PATHS: &[Path] = &[Path::TakenUp, Path::TakenOut, Path::TakenUpInHand, Path::HandedOver];
    let report = explore::<Model>("coming back against being taken out", 4, TWO, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 1);
        });
        let again = passed.timed_passer::<NoSpin>(world, 1);
        passed.section();
        passed.mutex.unlock();
        assert_eq!(again.join().unwrap(), 1);
        passed.finish(2);
    });
    taken(report, PATHS.len());
}

/// It comes back with no more time than before, and gives up again.
#[test]
fn coming_back_in_vain() {
    const PATHS: &[Path] = &[Path::TakenUp, Path::GaveUp, Path::TakenUpInHand];
    const GOT: usize = 3;
    let report = explore::<Model>("coming back in vain", 4, TWO, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 1);
        });
        let again = world.spawn(1, {
            let passed = passed.clone();
            move |world: &World| passed.pass_until::<NoSpin>(&world.past())
        });
        passed.section();
        passed.mutex.unlock();
        let got = again.join().unwrap();
        if got != 0 {
            world.reached(GOT);
        }
        passed.finish(1 + got);
    });
    taken(report, PATHS.len());
    assert!(report.reached[GOT] > 0 && report.reached[GOT] < report.executions);
}

/// It comes back and is patient, with a node of its own: the one that it left stays in front, and is taken
/// out.
#[test]
fn coming_back_for_good() {
    const PATHS: &[Path] =
        &[Path::TakenOut, Path::HandedOverAfterTakingOut, Path::Queued(waiter(1, 0)), Path::LastOut];
    let report = explore::<Model>("coming back for good", 4, TWO, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 1);
        });
        let again = passed.passer::<NoSpin>(world, 1);
        passed.section();
        passed.mutex.unlock();
        again.join().unwrap();
        passed.finish(2);
    });
    taken(report, PATHS.len());
}

/// It gave up on one mutex, and waits for another: with another node, for the first is in a queue.
#[test]
fn giving_up_on_one_and_waiting_for_another() {
    let report = explore::<Model>("giving up on one and waiting for another", 2, TWO, |world| {
        let (left, wanted) = (Passed::new(), Passed::new());
        watch(
            world,
            &wanted,
            &[Path::Queued(spare(1)), Path::Queued(waiter(1, LEVELS + 1)), Path::GaveUp, Path::HandedOver],
        );
        world.unexplored(|| {
            left.mutex.lock::<NoSpin>();
            wanted.mutex.lock::<NoSpin>();
            left.abandon(world, 1);
        });
        let other = wanted.timed_passer::<NoSpin>(world, 1);
        left.section();
        // Frees the node that it left there.
        left.mutex.unlock();
        world.expire(0);
        wanted.section();
        wanted.mutex.unlock();
        let got = other.join().unwrap();
        wanted.finish(1 + got);
        left.finish(1);
    });
    taken(report, 4);
}

/// All its spare nodes are in queues: it may neither count nor queue, and tries now and then. It acquires the
/// mutex when it is free, or takes the token.
#[test]
fn no_node_left_to_give_up() {
    const GOT: usize = 0;
    let report = explore::<Model>("no node left to give up", 2, THREE, |world| {
        let others: Vec<_> = (0..SPARES).map(|_| Passed::new()).collect();
        let wanted = Passed::new();
        world.unexplored(|| {
            wanted.mutex.lock::<NoSpin>();
            let left = others.clone();
            for other in &others {
                other.mutex.lock::<NoSpin>();
            }
            let gave_up = world.spawn(1, move |world: &World| {
                left.iter().map(|left| left.pass_until::<NoSpin>(&world.past())).sum::<u32>()
            });
            assert_eq!(gave_up.join().unwrap(), 0);
        });
        for place in LEVELS..LEVELS + SPARES {
            assert_eq!(state_of(waiter(1, place)), state::ABANDONED);
        }
        watch(world, &wanted, &[Path::TokenTakenBy(1), Path::TokenTakenBy(1), Path::TokenTakenBy(2)]);
        let poller = world.spawn(1, {
            let wanted = wanted.clone();
            move |world: &World| {
                let got = wanted.pass_until::<NoSpin>(&world.timer(0));
                if got != 0 {
                    world.reached(GOT);
                }
                got
            }
        });
        let [locker] = world.unexplored(|| counted(world, &wanted, [2]));
        wanted.section();
        wanted.mutex.unlock();
        world.expire(0);
        let got = poller.join().unwrap();
        locker.join().unwrap();
        world.unexplored(|| {
            for other in &others {
                other.section();
                other.mutex.unlock();
            }
            others.iter().for_each(|other| other.finish(1));
        });
        wanted.finish(2 + got);
    });
    taken(report, 3);
    // Sometimes it found the mutex free, and sometimes it gave up.
    assert!(report.reached[GOT] > report.reached[1] && report.reached[GOT] < report.executions);
}

/// It gave up and ended; the next thread with its record takes up its place, or finds it gone.
#[test]
fn a_record_recycled_with_a_node_in_a_queue() {
    const PATHS: &[Path] = &[Path::TakenUp, Path::TakenOut, Path::TakenUpInHand, Path::HandedOver];
    let report = explore::<Model>("a record recycled with a node in a queue", 4, TWO, |world| {
        let passed = Passed::new();
        watch(world, &passed, PATHS);
        world.unexplored(|| {
            passed.mutex.lock::<NoSpin>();
            passed.abandon(world, 1);
        });
        let heir = world.spawn(1, {
            let passed = passed.clone();
            move |world: &World| {
                Model::record(1).renew();
                passed.pass_until::<NoSpin>(&world.timer(0))
            }
        });
        passed.section();
        passed.mutex.unlock();
        assert_eq!(heir.join().unwrap(), 1);
        passed.finish(2);
    });
    taken(report, PATHS.len());
}

/// The same, for another mutex: the node in the queue is left alone.
#[test]
fn a_record_recycled_for_another_mutex() {
    let report = explore::<Model>("a record recycled for another mutex", 3, TWO, |world| {
        let (left, wanted) = (Passed::new(), Passed::new());
        watch(world, &wanted, &[Path::Queued(waiter(1, LEVELS + 1)), Path::HandedOver]);
        world.unexplored(|| {
            left.mutex.lock::<NoSpin>();
            wanted.mutex.lock::<NoSpin>();
            left.abandon(world, 1);
        });
        let heir = world.spawn(1, {
            let wanted = wanted.clone();
            move |world: &World| {
                Model::record(1).renew();
                wanted.pass_until::<NoSpin>(&world.timer(0))
            }
        });
        wanted.section();
        wanted.mutex.unlock();
        assert_eq!(heir.join().unwrap(), 1);
        assert_eq!(state_of(spare(1)), state::ABANDONED);
        left.section();
        left.mutex.unlock();
        left.finish(1);
        wanted.finish(2);
    });
    taken(report, 2);
}

// Recursion.

/// The recursive mutex and what it protects.
struct Nested {
    mutex: Handoff<Model>,
    value: UnsafeCell<u32>,
}

impl Nested {
    fn section(&self) {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
}

/// Acquires it four times over, in three ways, and knows at every point whether it has it and how often.
fn nested(nested: &Nested, world: &World) {
    let mutex = &nested.mutex;
    mutex.lock::<NoSpin>();
    nested.section();
    mutex.lock::<NoSpin>();
    // Without looking at the time, and without a wait.
    assert!(mutex.lock_until::<NoSpin>(&world.past()) && mutex.try_lock());
    assert!(mutex.owned() && mutex.depth() == 4);
    for depth in (1..4).rev() {
        mutex.unlock();
        assert_eq!(mutex.depth(), depth);
        nested.section();
    }
    assert!(mutex.owned());
    mutex.unlock();
    assert!(!mutex.owned());
}

fn recursive(name: &str, other: impl Fn(&Nested, &World) -> u32 + Copy + Send + Sync + 'static) -> Report {
    explore::<Model>(name, 2, TWO, move |world| {
        let shared = Rc::new(Nested { mutex: Handoff::default(), value: UnsafeCell::new(0) });
        let other = world.spawn(1, {
            let shared = shared.clone();
            move |world: &World| other(&shared, world)
        });
        nested(&shared, world);
        let others = other.join().unwrap();
        // SAFETY: the other has ended.
        assert_eq!(shared.value.with(|value| unsafe { *value }), 4 + others);
        assert!(!shared.mutex.owned() && shared.mutex.depth() == 0);
        assert!(shared.mutex.try_lock());
        shared.mutex.unlock();
    })
}

#[test]
fn recursion() {
    let report = recursive("handed: recursion", |shared, world| {
        nested(shared, world);
        4
    });
    assert!(report.sleeps > 0 && report.events[Event::HandOver] > 0);
}

/// Somebody who has it not does not get it because another has it again and again.
#[test]
fn recursion_against_try_lock() {
    const TRIED: usize = 0;
    let report = recursive("handed: recursion against try_lock", |shared, world| {
        let got = shared.mutex.try_lock();
        assert_eq!(shared.mutex.owned(), got);
        if got {
            assert_eq!(shared.mutex.depth(), 1);
            shared.section();
            shared.mutex.unlock();
        } else {
            world.reached(TRIED);
        }
        u32::from(got)
    });
    assert!(report.reached[TRIED] > 0 && report.reached[TRIED] < report.executions);
}

/// Two without a record are not taken for each other, though neither has a name.
#[test]
fn recursion_without_a_record() {
    const TRIED: usize = 0;
    let settings = Settings { unregistered: 0b11, ..TWO };
    let report = explore::<Model>("handed: recursion without a record", 3, settings, |world| {
        let shared = Rc::new(Nested { mutex: Handoff::default(), value: UnsafeCell::new(0) });
        let work = {
            let shared = shared.clone();
            move |world: &World| {
                shared.mutex.lock::<NoSpin>();
                assert!(!shared.mutex.owned());
                shared.section();
                if shared.mutex.try_lock() {
                    panic!("taken for another");
                }
                world.reached(TRIED);
                shared.mutex.unlock();
            }
        };
        let other = world.spawn(1, work.clone());
        work(world);
        other.join().unwrap();
    });
    assert_eq!(report.reached[TRIED], 2 * report.executions);
}

// Signal handlers.

/// How the thread waits that a handler interrupts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupted {
    /// As long as it takes.
    Patient,
    /// It might give up.
    Timed,
    /// It has given up before, and comes back.
    Back,
}

/// A signal handler runs upon thread 1 right after one of its steps, and waits for another mutex, in vain.
/// What it leaves in that mutex's queue stays as it is, whatever the thread does next. All steps are tried.
fn handler_in_the_midst(name: &str, preemptions: usize, how: Interrupted, paths: &'static [Path]) {
    const RAN: usize = 3;
    let mut total = Report::default();
    for nth in 1.. {
        let report = explore::<Model>(&format!("{name}, step {nth}"), preemptions, TWO, move |world| {
            let (wanted, left) = (Passed::new(), Passed::new());
            watch(world, &wanted, paths);
            world.unexplored(|| {
                wanted.mutex.lock::<NoSpin>();
                left.mutex.lock::<NoSpin>();
                if how == Interrupted::Back {
                    wanted.abandon(world, 1);
                }
            });
            world.script_any(1, nth, {
                let left = left.clone();
                move || {
                    let world = World::present();
                    assert_eq!(left.pass_until::<NoSpin>(&world.past()), 0);
                    world.reached(RAN);
                }
            });
            let waiter = world.spawn(1, {
                let wanted = wanted.clone();
                move |world: &World| {
                    if how == Interrupted::Patient {
                        wanted.pass::<NoSpin>();
                    } else {
                        assert_eq!(wanted.pass_until::<NoSpin>(&world.timer(0)), 1);
                    }
                }
            });
            wanted.section();
            wanted.mutex.unlock();
            waiter.join().unwrap();
            left.section();
            left.mutex.unlock();
            left.finish(1);
            wanted.finish(2);
        });
        for (sum, reached) in total.reached.iter_mut().zip(report.reached) {
            *sum += reached;
        }
        if report.reached[RAN] == 0 {
            // There are no more steps.
            assert!(nth > 10);
            break;
        }
    }
    taken(total, paths.len());
}

#[test]
fn a_handler_that_gives_up_in_the_midst_of_a_wait() {
    const PATHS: &[Path] = &[Path::HandedOver, Path::TokenTakenBy(1)];
    let name = "a handler that gives up in the midst of a wait";
    handler_in_the_midst(name, 2, Interrupted::Timed, PATHS);
}

#[test]
fn a_handler_that_gives_up_in_the_midst_of_a_wait_without_end() {
    const PATHS: &[Path] = &[Path::HandedOver, Path::TokenTakenBy(1)];
    let name = "a handler that gives up in the midst of a wait without end";
    handler_in_the_midst(name, 2, Interrupted::Patient, PATHS);
}

#[test]
fn a_handler_that_gives_up_while_a_node_is_taken_up() {
    const PATHS: &[Path] = &[Path::HandedOver, Path::TakenUp, Path::TakenOut];
    let name = "a handler that gives up while a node is taken up";
    handler_in_the_midst(name, 2, Interrupted::Back, PATHS);
}
