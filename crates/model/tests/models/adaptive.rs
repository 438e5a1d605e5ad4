//! The adaptive mutex, in its four variants: exclusion, no lost wake-up, nothing left behind; in forked
//! children, and destroyed by its next owner.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::adaptive::{AnyNegative, Baseline, RawAdaptive, Variant};
use poundlock_core::condvar::{Guarding, Plain};
use poundlock_core::platform::{Atomic, Deadline};
use poundlock_core::waiting::Failure;
use poundlock_model::{
    Fault, Model, Modelled, Mortal, Operation, Patient, Report, Settings, U32, World, adaptive_words, explore,
};

use crate::scenes::{
    DEADLOCK, End, Guarded, Guards, LATE, LOOKED, Lock, NO_SUCH_THREAD, THREE, TWO, UNORDERED, caught,
    destroyed_by_the_last, each_is_caught, faulty, forked, giving_up, held, lockers, sound, trying,
    woken_in_turn,
};

/// The mutex, on a platform.
pub(crate) struct Adaptive<P: Modelled, V>(pub(crate) RawAdaptive<P>, PhantomData<V>);

impl<P: Modelled, V> Default for Adaptive<P, V> {
    fn default() -> Self {
        Adaptive(RawAdaptive::default(), PhantomData)
    }
}

// Places that the models count.
const HAND_OVER: usize = 0;
const PASSED_OVER: usize = 1;
const WAIT_LOCK_SLEEP: usize = 2;
/// What an owner word says while a sleeper that was handed the mutex has not woken.
const HANDED_OVER: u32 = u32::MAX;

impl<P: Modelled, V: Variant> Lock for Adaptive<P, V> {
    type Platform = P;

    fn lock(&self) {
        self.0.lock::<V>();
    }
    fn unlock(&self) {
        self.0.unlock::<V>();
    }
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }
    fn lock_until(&self, deadline: &Deadline) -> Result<(), Failure> {
        self.0.lock_until::<V>(deadline)
    }
    fn lock_interruptible(&self) -> Result<(), Failure> {
        self.0.lock_interruptible::<V>()
    }

    /// Counts hand-offs, releases that bypass a sleeper for a spinner, and sleeps for the wait lock.
    fn watch(world: &World, guarded: &Rc<Guarded<Self>>) {
        let words = adaptive_words(&guarded.lock.0);
        world.watch(words.owner, HAND_OVER, |owner| owner == HANDED_OVER);
        let weak = Rc::downgrade(guarded);
        world.watch(words.word, PASSED_OVER, move |count| {
            weak.upgrade().is_some_and(|guarded| {
                let words = adaptive_words(&guarded.lock.0);
                count == 0 && words.head.peek() != 0 && words.tail.peek() != 0
            })
        });
        world.watch_sleep(words.wait_lock, WAIT_LOCK_SLEEP);
    }

    fn finish(&self) {
        assert!(self.0.is_idle(), "something is left in the mutex");
    }
}

impl<V: Variant> Guards for Adaptive<Model, V> {
    fn guarding(&self) -> impl Guarding<Model> {
        Plain::<_, V>::new(&self.0)
    }
}

/// Instantiates a generic model for the four variants.
macro_rules! for_each_variant {
    ($($model:ident),* $(,)?) => {
        crate::adaptive::for_each_variant!(@ baseline Baseline $($model)*);
        crate::adaptive::for_each_variant!(@ fewer_atomics FewerAtomics $($model)*);
        crate::adaptive::for_each_variant!(@ mcs_queue McsQueue $($model)*);
        crate::adaptive::for_each_variant!(@ any_negative AnyNegative $($model)*);
    };
    (@ $module:ident $variant:ident $($model:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $model() {
                    super::$model::<poundlock_core::adaptive::$variant>();
                }
            )*
        }
    };
}

pub(crate) use for_each_variant;

const ONE_TURN: Settings = Settings::DEFAULT;
/// Fences are refused, so that a plain release may come after the first sleeper. It looks now and then.
const PLAIN: Settings = Settings { plain_release: true, ..TWO };

fn two_threads<V: Variant>() {
    let report = lockers::<Adaptive<Model, V>>("two threads", 3, ONE_TURN, 1);
    assert!(report.sleeps > 0 && report.woken > 0);
    // Barging newcomers, woken sleepers that find the mutex taken again, and hand-offs.
    let report = lockers::<Adaptive<Model, V>>("two threads twice", 2, ONE_TURN, 2);
    assert!(report.sleeps > 0);
    // Sleeps end at once for no reason, twice a thread.
    lockers::<Adaptive<Model, V>>("restless", 2, Settings { restless: 2, ..ONE_TURN }, 1);
    // A thread without a record may neither queue nor sleep.
    lockers::<Adaptive<Model, V>>("polling", 3, Settings { unregistered: 2, ..ONE_TURN }, 1);
    trying::<Adaptive<Model, V>>("trying");
}

fn three_threads<V: Variant>() {
    // Nobody spins: every waiter goes to the list, and they meet at the wait lock.
    assert!(lockers::<Adaptive<Model, V>>("three sleepers", 1, THREE, 1).sleeps > 0);
    lockers::<Adaptive<Model, V>>("three threads", 1, Settings { threads: 3, ..ONE_TURN }, 1);
    // All run on one CPU: whoever waits displaces the owner, and knows it.
    let settings = Settings { threads: 3, tags: [1; 5], ..ONE_TURN };
    assert!(lockers::<Adaptive<Patient, V>>("displaced", 1, settings, 1).sleeps > 0);
}

/// The first sleep of a mutex that was released by plain stores until then.
fn first_sleep<V: Variant>() {
    assert!(lockers::<Adaptive<Model, V>>("first sleep", 2, PLAIN, 1).restarted > 0);
    let refused = Settings { refused: true, ..PLAIN };
    assert!(lockers::<Adaptive<Model, V>>("refused", 2, refused, 1).timed_waits > 0);
}

/// The main thread barges in on two that were woken, and they are handed the mutex; or, without hand-offs,
/// try in vain again and again.
fn barging<V: Variant>() {
    let report = woken_in_turn::<Adaptive<Model, V>>("barging and hand-over", 2, THREE, 1);
    assert!(report.reached[HAND_OVER] > 0);
    let report = woken_in_turn::<Adaptive<Patient, V>>("barging", 2, THREE, 1);
    assert_eq!(report.reached[HAND_OVER], 0);
}

/// Thread 1 sleeps in the list, thread 2 comes to spin while the main thread unlocks, which may bypass the
/// sleeper: the spinner has to see to it then, whether it acquires or gives up.
fn bypassing<P: Modelled, V: Variant>(name: &str, settings: Settings, blind: bool) -> Report {
    let settings = Settings { threads: 3, ..settings };
    held::<Adaptive<P, V>>(name, 1, settings, move |world, guarded| {
        if blind {
            let words = adaptive_words(&guarded.lock.0);
            world.make_blind(words.head, words.wait_lock);
        }
        let mut others = guarded.sleepers(world, 1..2);
        others.push(guarded.passer(world, 2));
        // It queues.
        loom::thread::yield_now();
        others
    })
}

fn passed_over<V: Variant>() {
    let report = bypassing::<Model, V>("passed over", ONE_TURN, false);
    assert_eq!(report.reached[PASSED_OVER] > 0, V::queues_spinners());
    // On the main thread's CPU: it sees that and leaves the queue, or the headship, at once.
    let settings = Settings { tags: [1, 2, 1, 0, 0], ..ONE_TURN };
    bypassing::<Patient, V>("passed over for one who gives up", settings, false);
}

fn gives_up<V: Variant>() {
    giving_up::<Adaptive<Model, V>>("times out before unlock", 2, TWO, false, End::Before);
    giving_up::<Adaptive<Model, V>>("times out after unlock", 2, TWO, false, End::After);
    giving_up::<Adaptive<Model, V>>("was out of time", 2, TWO, false, End::Past);
    giving_up::<Adaptive<Model, V>>("interrupted", 3, TWO, true, End::Interrupted);
}

fn gives_up_before_another<V: Variant>() {
    giving_up::<Adaptive<Patient, V>>("times out before another", 2, THREE, true, End::Before);
    giving_up::<Adaptive<Patient, V>>("times out, woken, before another", 2, THREE, true, End::After);
    giving_up::<Adaptive<Model, V>>("interrupted before another", 2, THREE, true, End::Interrupted);
}

fn destroyed<V: Variant>() {
    let report =
        destroyed_by_the_last::<Adaptive<Model, V>>("destroyed", 2, Settings::default(), false, sound);
    assert!(report.woken > 0);
    let report = destroyed_by_the_last::<Adaptive<Patient, V>>("destroyed, asleep", 2, TWO, false, sound);
    assert!(report.woken > 0);
    // With hand-offs.
    let report = destroyed_by_the_last::<Adaptive<Model, V>>("destroyed by sleepers", 2, THREE, true, sound);
    assert!(report.woken > 0);
    let report = destroyed_by_the_last::<Adaptive<Model, V>>("destroyed, plain", 2, PLAIN, false, sound);
    assert!(report.restarted > 0);
}

// Locks in a forked child name threads that do not exist there. Those are the threads from 19 on here: a
// model fails when it follows such a name, for there is no such record.

/// A child whose parent was not forked itself.
pub(crate) const CHILD: Settings = Settings { epoch: 7, ..TWO };
pub(crate) const GHOST: u32 = 77;

// In a wait lock.
pub(crate) const LOCKED: u32 = 1 << 31;
pub(crate) const CONTENDED: u32 = 1 << 30;
pub(crate) const BIAS_REVOKED: u32 = 1 << 29;
pub(crate) const REVOKING: u32 = 1 << 28;
pub(crate) const CLEARING: u32 = 1 << 27;

fn in_a_forked_child<V: Variant>() {
    let slow_path = LOCKED | CONTENDED | BIAS_REVOKED | 3;
    for (name, held, wait_lock) in [
        ("forked in its slow path", false, slow_path),
        ("forked in its clearing", false, CLEARING | 3),
        ("forked in its first sleep", false, REVOKING),
        // Others waited for it: the unlock goes through what they left.
        ("forked, held", true, slow_path),
    ] {
        let haunt = move |mutex: &Adaptive<Model, V>| {
            let words = adaptive_words(&mutex.0);
            words.tail.store(GHOST, Relaxed);
            words.head.store(GHOST + 1, Relaxed);
            words.wait_lock.store(wait_lock, Relaxed);
            if held {
                words.word.store(3, Relaxed);
            }
        };
        let report = forked(name, CHILD, held, haunt, |mutex| adaptive_words(&mutex.0).wait_lock.peek());
        assert!(!held || report.reached[LOOKED] == report.executions);
    }
}

for_each_variant!(
    two_threads,
    three_threads,
    first_sleep,
    barging,
    passed_over,
    gives_up,
    gives_up_before_another,
    destroyed,
    in_a_forked_child,
);

// Planted bugs.

type Newest = Adaptive<Model, AnyNegative>;

#[test]
fn bugs_that_two_threads_find() {
    let bugs = [
        (TWO, Fault::LoseWake(0), DEADLOCK),
        // A wait that looks at the word and then falls asleep.
        (TWO, Fault::TornWait, DEADLOCK),
        // QUIET: a plain release under way when the first sleeper comes is not started over.
        (PLAIN, Fault::Unfenced, DEADLOCK),
        (TWO, Fault::WeakRelease, UNORDERED),
        (ONE_TURN, Fault::WeakRelease, UNORDERED),
        (TWO, Fault::WeakAcquire, UNORDERED),
        (ONE_TURN, Fault::WeakAcquire, UNORDERED),
        (TWO, Fault::Weaken(Operation::CompareExchange), UNORDERED),
        (TWO, Fault::Weaken(Operation::FetchAdd), UNORDERED),
    ];
    each_is_caught(&bugs, |name, settings| lockers::<Newest>(name, 2, settings, 1));
}

/// DUTY: a spinner, for whom an unlock bypassed the sleepers, forgets to look for them.
#[test]
fn a_spinner_that_forgets_the_sleepers() {
    caught(&[DEADLOCK], || bypassing::<Model, AnyNegative>("a forgetful spinner", ONE_TURN, true));
}

/// Threads lock, and look whether they are alone at a point where others may come in.
fn owners(name: &str, fault: Fault) {
    explore::<Model>(name, 2, faulty(TWO, fault), |world| {
        let mutex = Rc::new(RawAdaptive::<Model>::default());
        let owned = Rc::new(std::cell::Cell::new(false));
        let work = {
            let mutex = mutex.clone();
            move |world: &World| {
                mutex.lock::<Baseline>();
                assert!(!owned.replace(true), "two owners");
                world.pause();
                owned.set(false);
                mutex.unlock::<Baseline>();
            }
        };
        let other = world.spawn(1, work.clone());
        work(world);
        other.join().unwrap();
    });
}

#[test]
fn a_compare_and_swap_that_lies() {
    owners("owners are alone", Fault::None);
    caught(&["two owners"], || owners("a compare-and-swap that lies", Fault::Lie(0)));
}

#[test]
fn a_touch_after_the_release() {
    for settings in [TWO, ONE_TURN] {
        caught(&[LATE, UNORDERED], || {
            let settings = faulty(settings, Fault::TouchAfterRelease);
            let name = "a touch after the release";
            destroyed_by_the_last::<Adaptive<Patient, AnyNegative>>(name, 2, settings, false, sound)
        });
    }
}

/// Even where it comes first in every execution: the destroyer does not know of it.
#[test]
fn a_touch_that_nothing_orders() {
    caught(&[UNORDERED], || {
        explore::<Model>("a touch that nothing orders", 0, TWO, |world| {
            let word = Mortal::new(world, U32::new(0));
            let other = world.spawn(1, {
                let word = word.clone();
                move |_| word.load(Relaxed)
            });
            loom::thread::yield_now();
            word.destroy();
            other.join().unwrap();
        })
    });
}

/// A child that takes itself for its parent follows what the parent's threads left.
#[test]
fn a_fork_that_goes_unnoticed() {
    caught(&[DEADLOCK, NO_SUCH_THREAD], || {
        forked(
            "a fork that goes unnoticed",
            THREE,
            false,
            |mutex: &Newest| adaptive_words(&mutex.0).head.store(GHOST, Relaxed),
            // What is left there is left.
            |_| 1,
        )
    });
}
