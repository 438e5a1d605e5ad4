//! The hand-off mutex: exclusion, nothing lost on the way from hand to hand, and what a waiter that gives up
//! leaves behind.
//!
//! What loom cannot show here: that an unlocker reads a node's link before the thread that gave it up, and
//! has it back, stores to that link again (load buffering). The orderings of a give-up, and of what takes it
//! out, are for that alone.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::Platform;
use poundlock_core::condvar::{Guarding, Requeued, Target};
use poundlock_core::events::Event;
use poundlock_core::handoff::{
    Adaptive, Competitive, Fixed, Handoff, NoSpin, OwnerRunning, Policy, RawHandoff, SameCpu,
};
use poundlock_core::node::{LEVELS, SPARES, Waiter, state};
use poundlock_core::platform::{Atomic, Deadline};
use poundlock_core::waiting::Failure;
use poundlock_model::{HandoffWords, Model, Report, Settings, World, explore, handoff_words, waiter_words};

use crate::scenes::{
    End, GAVE_UP, Guarded, Guards, Lock, THREE, TWO, giving_up, held, join, lockers, sometimes,
};

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
pub(crate) const fn spare(thread: u32) -> Waiter {
    waiter(thread, LEVELS)
}

/// What it is about now.
pub(crate) fn state_of(waiter: Waiter) -> u32 {
    waiter_words::<Model>(waiter).state.peek()
}

/// The mutex, with a policy for spinners.
pub(crate) struct Handed<S>(pub(crate) RawHandoff<Model>, PhantomData<S>);

/// With what it protects. Nobody spins.
pub(crate) type Passed = Guarded<Handed<NoSpin>>;

impl<S> Default for Handed<S> {
    fn default() -> Self {
        Handed(RawHandoff::default(), PhantomData)
    }
}

impl<S> Handed<S> {
    pub(crate) fn words(&self) -> HandoffWords<'_> {
        handoff_words(&self.0)
    }
}

impl<S: Policy> Lock for Handed<S> {
    type Platform = Model;

    fn lock(&self) {
        self.0.lock::<S>();
    }
    fn unlock(&self) {
        self.0.unlock();
    }
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }
    fn lock_until(&self, deadline: &Deadline) -> Result<(), Failure> {
        if self.0.lock_until::<S>(deadline) { Ok(()) } else { Err(Failure::TimedOut) }
    }

    fn watch(world: &World, passed: &Rc<Guarded<Self>>) {
        watch(world, passed);
    }

    /// Nobody is counted, queued or waiting for the queue.
    fn finish(&self) {
        let words = self.words();
        assert_eq!(words.count.peek(), 0, "somebody is left in the count");
        assert_eq!(words.push.peek() & (TOKEN | LINK), 0, "something is left in the queue");
        assert_eq!(words.pop.peek(), 0, "somebody is left in the queue");
        assert!(!self.0.is_locked());
        for thread in 0..World::present().threads() {
            for place in 0..LEVELS + SPARES {
                assert_eq!(state_of(waiter(thread, place)), state::IDLE, "a node is in use");
            }
        }
        // The fast path: a slow one would wait for somebody who is not there.
        self.lock();
        assert_eq!(words.count.peek(), 1);
        self.unlock();
        assert_eq!(words.count.peek(), 0);
    }
}

impl Guards for Handed<NoSpin> {
    const HANDS_ON: bool = true;

    fn guarding(&self) -> impl Guarding<Model> {
        Guard(&self.0)
    }
}

/// Has waiters moved to it.
struct Guard<'a>(&'a RawHandoff<Model>);

impl Guarding<Model> for Guard<'_> {
    fn mutex(&self) -> Option<Target<'_, Model>> {
        Some(Target::Handoff(self.0))
    }
    fn release(&self) {
        self.0.unlock();
    }
    fn acquire(&self) {
        self.0.lock::<NoSpin>();
    }
    fn acquire_requeued(&self, waiter: Requeued) {
        waiter.receive(self.0);
    }
}

/// Starts a thread that locks in this way and unlocks.
fn passer<S: Policy>(passed: &Rc<Passed>, world: &World, index: u32) -> JoinHandle<u32> {
    let passed = passed.clone();
    world.spawn(index, move |_| {
        passed.lock.0.lock::<S>();
        passed.leave();
        1
    })
}

/// Has a thread give up, which leaves its node in the queue. The caller holds the mutex.
pub(crate) fn abandon(passed: &Rc<Passed>, world: &World, index: u32) {
    world.unexplored(|| {
        let passed = passed.clone();
        let gave_up = world.spawn(index, move |world: &World| passed.pass_until(world, &world.past()));
        assert_eq!(gave_up.join().unwrap(), 0);
    });
    assert_eq!(state_of(spare(index)), state::ABANDONED);
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

std::thread_local! {
    static PATHS: Cell<&'static [Path]> = const { Cell::new(&[]) };
}

/// Explores a model that must take each of these paths. Each is counted in the place of its index.
pub(crate) fn takes(paths: &'static [Path], model: impl FnOnce() -> Report) -> Report {
    PATHS.set(paths);
    let report = model();
    PATHS.set(&[]);
    for place in 0..paths.len() {
        assert!(report.reached[place] > 0, "path {place} was not taken");
    }
    report
}

/// Counts how often each path was taken that the model is to take. The other threads start later.
pub(crate) fn watch<S>(world: &World, passed: &Guarded<Handed<S>>) {
    let words = passed.lock.words();
    for (place, path) in PATHS.get().iter().enumerate() {
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

// Lockers.

#[test]
fn two_threads() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::HandedOver, Path::TokenTakenBy(0), Path::TokenTakenBy(1)];
    let report = takes(PATHS, || lockers::<Handed<NoSpin>>("handed: two threads", 3, TWO, 1));
    assert!(report.sleeps > 0 && report.woken > 0);
    // Sleeps end at once for no reason, twice a thread.
    let restless = Settings { restless: 2, ..TWO };
    takes(&[Path::HandedOver], || lockers::<Handed<NoSpin>>("handed: restless", 2, restless, 1));
    // A thread without a record may not queue: it waits for the token, and an unlock leaves it.
    let polling = Settings { unregistered: 2, ..TWO };
    const POLLED: &[Path] = &[Path::TokenTakenBy(1), Path::HandedOver];
    let report = takes(POLLED, || lockers::<Handed<NoSpin>>("handed: polling", 3, polling, 2));
    assert!(report.sleeps > 0);
}

#[test]
fn two_tokens() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::SecondToken, Path::HandedOver];
    takes(PATHS, || lockers::<Handed<NoSpin>>("handed: two threads twice", 2, TWO, 2));
    takes(PATHS, || lockers::<Handed<NoSpin>>("handed: three threads", 2, THREE, 1));
    let spinning = Settings { spins: 1, ..THREE };
    takes(PATHS, || lockers::<Handed<Competitive>>("handed: three spinners", 2, spinning, 1));
}

#[test]
fn two_spinners() {
    const PATHS: &[Path] = &[Path::TokenTakenBy(0), Path::TokenTakenBy(1), Path::HandedOver, Path::TokenLeft];
    // It takes more preemptions than these to use up two turns of each.
    const TOKENS: &[Path] = &[Path::TokenTakenBy(0), Path::TokenTakenBy(1)];
    const SECOND: &[Path] = &[Path::TokenTakenBy(1)];
    const ONE: Settings = Settings { spins: 1, ..TWO };
    const MORE: Settings = Settings { spins: 2, ..TWO };
    takes(PATHS, || lockers::<Handed<Competitive>>("handed: spinners", 3, ONE, 2));
    takes(TOKENS, || lockers::<Handed<Competitive>>("handed: spinners with more patience", 3, MORE, 2));
    takes(SECOND, || lockers::<Handed<Fixed>>("handed: spinners with a fixed patience", 2, ONE, 2));
    takes(PATHS, || lockers::<Handed<OwnerRunning>>("handed: spinners while the owner runs", 3, ONE, 2));
    takes(PATHS, || lockers::<Handed<Adaptive>>("handed: spinners that learn", 3, ONE, 2));
}

/// Both run on one CPU: whoever waits displaces the owner, and knows it, whatever its patience.
#[test]
fn displaced() {
    const PATHS: &[Path] = &[Path::TokenLeft, Path::HandedOver];
    let settings = Settings { threads: 2, tags: [1; 5], ..PATIENT };
    takes(PATHS, || lockers::<Handed<OwnerRunning>>("handed: displaced", 3, settings, 2));
    takes(PATHS, || lockers::<Handed<SameCpu>>("handed: displaced, the narrow form", 3, settings, 2));
    takes(PATHS, || lockers::<Handed<Adaptive>>("handed: displaced, learning", 3, settings, 2));
}

/// The main thread holds the mutex and the others sleep; it unlocks, and locks once more, behind them.
#[test]
fn handed_on_in_turn() {
    const PATHS: &[Path] = &[Path::HandedOver, Path::Queued(waiter(0, 0))];
    let model = |world: &World| {
        let passed = Passed::new(world);
        let order = Rc::new(Cell::new(0));
        passed.lock.lock();
        let others = world.unexplored(|| {
            crate::scenes::asleep(world, 1..3, |index| {
                let (passed, order) = (passed.clone(), order.clone());
                world.spawn(index, move |_| {
                    passed.lock.lock();
                    order.set(order.get() * 10 + index);
                    passed.leave();
                    1
                })
            })
        });
        passed.leave();
        passed.lock.lock();
        // Whoever queued first comes first, and nobody comes between.
        assert_eq!(order.get(), 12);
        passed.leave();
        passed.finish(2 + join(others));
    };
    takes(PATHS, || explore::<Model>("handed on in turn", 2, THREE, model));
}

// The token.

/// Starts threads that lock and unlock. They have counted on return, and not looked at the queue.
pub(crate) fn counted(world: &World, passed: &Rc<Passed>, indices: &[u32]) -> Vec<JoinHandle<u32>> {
    let go = Rc::new(Cell::new(false));
    let start = |index: &u32| {
        let counted = Rc::new(Cell::new(false));
        world.script(*index, passed.lock.words().count, 1, {
            let (counted, go) = (counted.clone(), go.clone());
            move || {
                counted.set(true);
                World::present().await_until(|| go.get());
            }
        });
        let locker = passed.passer(world, *index);
        world.await_until(|| counted.get());
        locker
    };
    let lockers = world.unexplored(|| indices.iter().map(start).collect());
    go.set(true);
    lockers
}

/// The main thread unlocks while the others have counted, and not queued.
pub(crate) fn unlock_against_counted(
    name: &str,
    preemptions: usize,
    settings: Settings,
    indices: &'static [u32],
) -> Report {
    held(name, preemptions, settings, move |world, passed| counted(world, passed, indices))
}

#[test]
fn an_unlock_against_those_that_have_counted() {
    const ONE: &[Path] = &[Path::TokenLeft, Path::TokenTakenBy(1), Path::HandedOver];
    takes(ONE, || unlock_against_counted("unlock against one that has counted", 4, TWO, &[1]));
    const BOTH: &[Path] =
        &[Path::TokenTakenBy(1), Path::TokenTakenBy(2), Path::SecondToken, Path::HandedOver];
    takes(BOTH, || unlock_against_counted("unlock against two that have counted", 2, THREE, &[1, 2]));
}

/// The unlocker sees that nobody has queued; before it can leave the token, somebody queues. Then leaving it
/// must fail: who has queued would not come to take it.
#[test]
fn the_token_against_one_that_queues() {
    const QUEUED_LATE: usize = 2;
    const LEFT_BEHIND: usize = 3;
    let come = |world: &World, passed: &Rc<Passed>| {
        let words = passed.lock.words();
        let others = counted(world, passed, &[1]);
        // The main thread looks for the epoch, for a stack to turn round, and for a reason not to leave the
        // token.
        let looked = Rc::new(Cell::new(false));
        for (nth, between) in [(3, true), (4, false)] {
            let looked = looked.clone();
            world.script(0, words.push, nth, move || looked.set(between));
        }
        let late = Rc::new(Cell::new(false));
        world.watch_change(words.push, QUEUED_LATE, {
            let (looked, late) = (looked.clone(), late.clone());
            move |before, after| {
                let queues = before & LINK == 0 && after & LINK != 0 && looked.get();
                late.set(late.get() | queues);
                queues
            }
        });
        world.watch(words.push, LEFT_BEHIND, move |after| late.get() && after & TOKEN != 0);
        others
    };
    let report = takes(&[Path::TokenLeft, Path::HandedOver], || {
        held("the token against one that queues", 4, TWO, come)
    });
    assert!(report.reached[QUEUED_LATE] > 0);
    assert_eq!(report.reached[LEFT_BEHIND], 0, "the token was left behind somebody's back");
}

/// A spinner with patience without end, and one that queues at once: the spinner must follow it, for no token
/// will come any more.
#[test]
fn a_spinner_against_one_that_queues() {
    const PATHS: &[Path] =
        &[Path::TokenTakenBy(2), Path::Queued(waiter(1, 0)), Path::Queued(waiter(2, 0)), Path::HandedOver];
    let come = |world: &World, passed: &Rc<Passed>| {
        vec![passed.passer(world, 1), passer::<Competitive>(passed, world, 2)]
    };
    takes(PATHS, || held("a spinner against one that queues", 2, PATIENT, come));
}

/// A spinner that watches the owner: once the mutex was handed to somebody who has not woken, it queues.
#[test]
fn a_spinner_against_a_hand_over() {
    const PATHS: &[Path] = &[Path::Queued(waiter(2, 0)), Path::HandedOver, Path::TokenTakenBy(2)];
    let come = |world: &World, passed: &Rc<Passed>| {
        let mut others = passed.sleepers(world, 1..2);
        others.push(passer::<OwnerRunning>(passed, world, 2));
        others
    };
    let report = takes(PATHS, || held("a spinner against a hand-over", 2, PATIENT, come));
    sometimes(report, 0);
}

/// A passer-by takes the token that was left for one who has counted. He is not counted yet, and nobody may
/// take the mutex for free meanwhile.
#[test]
fn try_lock_against_one_that_has_counted() {
    const PATHS: &[Path] = &[Path::TokenTakenBy(1), Path::TokenTakenBy(2)];
    let come = |world: &World, passed: &Rc<Passed>| {
        let mut others = counted(world, passed, &[1]);
        others.push(passed.passer_at_once(world, 2));
        others
    };
    let report = takes(PATHS, || held("try_lock against one that has counted", 3, THREE, come));
    sometimes(report, GAVE_UP);
}

// Waiters that give up.

/// It is asleep when its deadline passes, and the mutex is unlocked: both at once.
#[test]
fn giving_up_against_a_hand_over() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::HandedOver, Path::TakenOut, Path::LastOut];
    let report = takes(PATHS, || {
        giving_up::<Handed<NoSpin>>("giving up against a hand-over", 4, TWO, true, End::Before)
    });
    sometimes(report, 0);
    sometimes(report, 1);
    // Its time was over, but it had been handed the mutex.
    assert!(report.timed_out > report.reached[0]);
}

/// It was handed the mutex when its deadline passes, and has not woken.
#[test]
fn out_of_time_after_a_hand_over() {
    let report = takes(&[Path::HandedOver], || {
        giving_up::<Handed<NoSpin>>("out of time after a hand-over", 4, TWO, true, End::After)
    });
    assert_eq!(report.reached[0], report.executions);
}

/// It may be anywhere between the first look and the sleep.
#[test]
fn giving_up_against_the_token() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::TokenTakenBy(1), Path::HandedOver, Path::LastOut];
    let name = "giving up against the token";
    takes(PATHS, || giving_up::<Handed<NoSpin>>(name, 3, TWO, false, End::Before));
    let spinning = Settings { spins: 1, ..TWO };
    takes(PATHS, || giving_up::<Handed<Competitive>>(name, 4, spinning, false, End::Before));
}

#[test]
fn giving_up_before_another() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::HandedOver, Path::HandedOverAfterTakingOut];
    let name = "giving up before another";
    takes(PATHS, || giving_up::<Handed<NoSpin>>(name, 2, THREE, true, End::Before));
}

/// The other may have counted, and not queued: the token is left behind the one that was taken out.
#[test]
fn giving_up_before_one_that_has_counted() {
    const PATHS: &[Path] =
        &[Path::TokenAfterTakingOut, Path::HandedOverAfterTakingOut, Path::TokenTakenBy(1)];
    let come = |world: &World, passed: &Rc<Passed>| {
        abandon(passed, world, 2);
        counted(world, passed, &[1])
    };
    takes(PATHS, || held("giving up before one that has counted", 3, THREE, come));
}

/// One that gave up is at the end of the queue, and the only one who is counted. Somebody comes while it is
/// taken out.
#[test]
fn a_newcomer_while_the_last_is_taken_out() {
    const PATHS: &[Path] = &[Path::LastOut, Path::TokenAfterTakingOut, Path::HandedOverAfterTakingOut];
    let come = |world: &World, passed: &Rc<Passed>| {
        abandon(passed, world, 2);
        vec![passed.passer(world, 1)]
    };
    takes(PATHS, || held("a newcomer while the last is taken out", 3, THREE, come));
}

/// Two give up at the same time, and the unlocker takes out both: one may still be handed the mutex
/// meanwhile.
#[test]
fn two_that_give_up() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::TakenOut, Path::LastOut, Path::HandedOverAfterTakingOut];
    let come = |world: &World, passed: &Rc<Passed>| {
        let start = |index| passed.timed_passer(world, index);
        let others = world.unexplored(|| crate::scenes::asleep(world, 1..3, start));
        world.expire(0);
        others
    };
    let report = takes(PATHS, || held("two that give up", 3, THREE, come));
    assert!(report.reached[0] < 2 * report.executions);
}

/// A signal handler ends its sleep, not its wait.
#[test]
fn interrupted() {
    const UNTIL_THE_END: usize = 1;
    let come = |world: &World, passed: &Rc<Passed>| {
        watch_states(world, UNTIL_THE_END, gives_up);
        let start = |index| passed.timed_passer(world, index);
        let others = world.unexplored(|| crate::scenes::asleep(world, 1..2, start));
        world.interrupt(1);
        others
    };
    let report = takes(&[Path::HandedOver], || held("handed: interrupted", 4, TWO, come));
    assert!(report.interrupted == report.executions && report.reached[UNTIL_THE_END] == 0);
}

/// Its thread ended in the midst of the wait, by way of a signal handler: the next with its record gives the
/// wait up.
#[test]
fn a_wait_cut_short() {
    const PATHS: &[Path] = &[Path::GaveUp, Path::TakenOut, Path::LastOut, Path::HandedOverAfterTakingOut];
    let come = |world: &World, passed: &Rc<Passed>| {
        abandon(passed, world, 1);
        world.unexplored(|| {
            // As it was before its time was over.
            waiter_words::<Model>(spare(1)).state.store(state::SLEEPING, Relaxed);
            Model::record(1).renew();
        });
        vec![passed.passer(world, 2)]
    };
    takes(PATHS, || held("a wait cut short", 3, THREE, come));
}

/// Thread 1 has given up, and comes back.
fn coming_back(
    name: &str,
    paths: &'static [Path],
    again: impl Fn(&World, &Rc<Passed>) -> JoinHandle<u32> + Send + Sync + 'static,
) -> Report {
    let come = move |world: &World, passed: &Rc<Passed>| {
        abandon(passed, world, 1);
        // Once it does so again it has given up.
        vec![again(world, passed)]
    };
    takes(paths, || held(name, 4, TWO, come))
}

/// With more time: into its old place, or into a new one if it was taken out meanwhile.
#[test]
fn coming_back_against_being_taken_out() {
    const PATHS: &[Path] = &[Path::TakenUp, Path::TakenOut, Path::TakenUpInHand, Path::HandedOver];
    let name = "coming back against being taken out";
    let report = coming_back(name, PATHS, |world, passed| passed.timed_passer(world, 1));
    assert_eq!(report.reached[GAVE_UP], report.executions, "it gives up once");
}

/// With no more time than before: it gives up again, or was handed the mutex.
#[test]
fn coming_back_in_vain() {
    const PATHS: &[Path] = &[Path::TakenUp, Path::GaveUp, Path::TakenUpInHand];
    let report = coming_back("coming back in vain", PATHS, |world, passed| {
        let passed = passed.clone();
        world.spawn(1, move |world: &World| passed.pass_until(world, &world.past()))
    });
    assert!(report.reached[GAVE_UP] > report.executions && report.reached[GAVE_UP] < 2 * report.executions);
}

/// It is patient now, with a node of its own: the one that it left stays in front, and is taken out.
#[test]
fn coming_back_for_good() {
    const PATHS: &[Path] =
        &[Path::TakenOut, Path::HandedOverAfterTakingOut, Path::Queued(waiter(1, 0)), Path::LastOut];
    coming_back("coming back for good", PATHS, |world, passed| passed.passer(world, 1));
}

/// It ended; the next thread with its record takes up its place, or finds it gone.
#[test]
fn a_record_recycled_with_a_node_in_a_queue() {
    const PATHS: &[Path] = &[Path::TakenUp, Path::TakenOut, Path::TakenUpInHand, Path::HandedOver];
    let report = coming_back("a record recycled with a node in a queue", PATHS, |world, passed| {
        heir(world, passed.clone())
    });
    assert_eq!(report.reached[GAVE_UP], report.executions, "the heir does not give up");
}

/// Starts the next thread with the record of one that has ended, which locks and unlocks.
fn heir(world: &World, passed: Rc<Passed>) -> JoinHandle<u32> {
    world.spawn(1, move |world: &World| {
        Model::record(1).renew();
        passed.pass_until(world, &world.timer(0))
    })
}

/// It gave up on one mutex, and waits for another: with another node, for the first is in a queue.
#[test]
fn giving_up_on_one_and_waiting_for_another() {
    const PATHS: &[Path] =
        &[Path::Queued(spare(1)), Path::Queued(waiter(1, LEVELS + 1)), Path::GaveUp, Path::HandedOver];
    let model = |world: &World| {
        let left = Rc::new(Passed::unwatched());
        let wanted = Passed::new(world);
        left.lock.lock();
        wanted.lock.lock();
        abandon(&left, world, 1);
        let other = wanted.timed_passer(world, 1);
        // Frees the node that it left there.
        left.leave();
        world.expire(0);
        wanted.leave();
        wanted.finish(1 + other.join().unwrap());
        left.finish(1);
    };
    takes(PATHS, || explore::<Model>("giving up on one and waiting for another", 2, TWO, model));
}

/// A record recycled for another mutex: the node in the queue is left alone.
#[test]
fn a_record_recycled_for_another_mutex() {
    const PATHS: &[Path] = &[Path::Queued(waiter(1, LEVELS + 1)), Path::HandedOver];
    let model = |world: &World| {
        let left = Rc::new(Passed::unwatched());
        let wanted = Passed::new(world);
        left.lock.lock();
        wanted.lock.lock();
        abandon(&left, world, 1);
        let heir = heir(world, wanted.clone());
        wanted.leave();
        assert_eq!(heir.join().unwrap(), 1);
        assert_eq!(state_of(spare(1)), state::ABANDONED);
        left.leave();
        left.finish(1);
        wanted.finish(2);
    };
    takes(PATHS, || explore::<Model>("a record recycled for another mutex", 3, TWO, model));
}

/// All its spare nodes are in queues: it may neither count nor queue, and tries now and then. It acquires the
/// mutex when it is free, or takes the token.
#[test]
fn no_node_left_to_give_up() {
    const PATHS: &[Path] = &[Path::TokenTakenBy(1), Path::TokenTakenBy(2)];
    const GOT: usize = 2;
    let model = |world: &World| {
        let others: Vec<_> = (0..SPARES).map(|_| Rc::new(Passed::unwatched())).collect();
        let wanted = Passed::new(world);
        world.unexplored(|| {
            wanted.lock.lock();
            let left = others.clone();
            others.iter().for_each(|other| other.lock.lock());
            let gave_up = world.spawn(1, move |world: &World| {
                left.iter().map(|left| left.pass_until(world, &world.past())).sum::<u32>()
            });
            assert_eq!(gave_up.join().unwrap(), 0);
        });
        for place in LEVELS..LEVELS + SPARES {
            assert_eq!(state_of(waiter(1, place)), state::ABANDONED);
        }
        let poller = wanted.timed_passer(world, 1);
        let locker = counted(world, &wanted, &[2]);
        wanted.leave();
        world.expire(0);
        let got = poller.join().unwrap();
        if got != 0 {
            world.reached(GOT);
        }
        let inside = 1 + got + join(locker);
        world.unexplored(|| {
            others.iter().for_each(|other| other.leave());
            others.iter().for_each(|other| other.finish(1));
        });
        wanted.finish(inside);
    };
    let report = takes(PATHS, || explore::<Model>("no node left to give up", 2, THREE, model));
    // Sometimes it found the mutex free, and sometimes it gave up.
    assert!(report.reached[GOT] > report.reached[0] && report.reached[GOT] < report.executions);
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
fn handler_in_the_midst(name: &str, how: Interrupted, paths: &'static [Path]) {
    const RAN: usize = 3;
    let mut total = [0; RAN];
    for nth in 1.. {
        let model = move |world: &World| {
            let left = Rc::new(Passed::unwatched());
            let wanted = Passed::new(world);
            wanted.lock.lock();
            left.lock.lock();
            if how == Interrupted::Back {
                abandon(&wanted, world, 1);
            }
            world.script_any(1, nth, {
                let left = left.clone();
                move || {
                    let world = World::present();
                    assert_eq!(left.pass_until(&world, &world.past()), 0);
                    world.reached(RAN);
                }
            });
            let waiter = if how == Interrupted::Patient {
                wanted.passer(world, 1)
            } else {
                wanted.timed_passer(world, 1)
            };
            wanted.leave();
            assert_eq!(waiter.join().unwrap(), 1);
            left.leave();
            left.finish(1);
            wanted.finish(2);
        };
        PATHS.set(paths);
        let report = explore::<Model>(&format!("{name}, step {nth}"), 2, TWO, model);
        total.iter_mut().zip(report.reached).for_each(|(sum, reached)| *sum += reached);
        if report.reached[RAN] == 0 {
            // There are no more steps.
            assert!(nth > 10);
            break;
        }
    }
    assert!(total[..paths.len()].iter().all(|taken| *taken > 0), "{total:?}");
}

#[test]
fn a_handler_that_gives_up_in_the_midst_of_a_wait() {
    let name = "a handler that gives up in the midst of a wait";
    handler_in_the_midst(name, Interrupted::Timed, &[Path::HandedOver, Path::TokenTakenBy(1)]);
}

#[test]
fn a_handler_that_gives_up_in_the_midst_of_a_wait_without_end() {
    let name = "a handler that gives up in the midst of a wait without end";
    handler_in_the_midst(name, Interrupted::Patient, &[Path::HandedOver, Path::TokenTakenBy(1)]);
}

#[test]
fn a_handler_that_gives_up_while_a_node_is_taken_up() {
    let name = "a handler that gives up while a node is taken up";
    handler_in_the_midst(name, Interrupted::Back, &[Path::HandedOver, Path::TakenUp, Path::TakenOut]);
}
