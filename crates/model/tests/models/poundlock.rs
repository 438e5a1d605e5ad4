//! The default mutex: exclusion, no lost wake-up, nothing left behind; with condition variables, in forked
//! children, and destroyed by its next owner.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::condvar::Guarding;
use poundlock_core::platform::{Atomic, Deadline};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::waiting::Failure;
use poundlock_model::{
    Fault, Model, Modelled, MutexWords, Operation, Patient, Report, Settings, World, poundlock_words,
};

use crate::adaptive::{BIAS_REVOKED, CHILD, GHOST, REVOKING};
use crate::scenes::{
    DEADLOCK, End, Giving, Guarded, Guards, LATE, Lock, THREE, TWO, UNORDERED, caught, destroyed_by_the_last,
    destroyed_by_the_waiter, each_is_caught, faulty, forked, give_to, giving_up, held, held_then, lockers,
    sound, trying, woken_in_turn,
};

/// Enough for a look.
const SPINNING: Settings = Settings { spins: 3, ..Settings::DEFAULT };
const THREE_SPINNING: Settings = Settings { threads: 3, ..SPINNING };

// In its state.
const LOCKED: u32 = 1;
const AWAKE: u32 = 2;
const SLEEPERS: u32 = 4;
const BYPASS_BOUND: u32 = 1 << 31;
/// In its hint of the owner: handed to a sleeper that has not woken.
const HANDED_OVER: u32 = 0x0fff;

/// In its hint of the owner: what timed parks have found, with its highest bit inverted.
const GAPS: u32 = 0xf << 16;
/// A trial has begun.
const IN_DOUBT: u32 = (6 ^ 8) << 16;
/// Its park found the mutex free.
const KNOWN: u32 = (15 ^ 8) << 16;
/// Its park found the mutex held.
const IN_VAIN: u32 = (5 ^ 8) << 16;

/// Places that the models count.
const HAND_OVER: usize = 0;
const REACHED_BOUND: usize = 1;
const PASSED: usize = 2;
const RELIEVED: usize = 3;
/// One is awake beside the owner, and others sleep.
const AWAKE_BESIDE: usize = 4;
const DOUBTED: usize = 5;
const FOUND_FREE: usize = 6;
const FOUND_HELD: usize = 7;

/// The mutex, on a platform.
struct Poundlock<P: Modelled>(RawPoundlock<P>);

/// On the platform that makes rare paths common.
type Shrunk = Poundlock<Model>;

impl<P: Modelled> Default for Poundlock<P> {
    fn default() -> Self {
        Poundlock(RawPoundlock::default())
    }
}

impl<P: Modelled> Poundlock<P> {
    fn words(&self) -> MutexWords<'_> {
        poundlock_words(&self.0)
    }
}

impl<P: Modelled> Lock for Poundlock<P> {
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
        let words = guarded.lock.words();
        world.watch(words.owner, HAND_OVER, |owner| owner & HANDED_OVER == HANDED_OVER);
        world.watch(words.word, REACHED_BOUND, |state| state & BYPASS_BOUND != 0);
        let all = LOCKED | AWAKE | SLEEPERS;
        world.watch(words.word, PASSED, move |state| state & all == AWAKE | SLEEPERS);
        world.watch_change(words.word, RELIEVED, move |before, after| {
            before & (all | BYPASS_BOUND) == all && after & all == LOCKED | AWAKE
        });
        world.watch(words.word, AWAKE_BESIDE, move |state| state & all == all);
        world.watch(words.owner, DOUBTED, |owner| owner & GAPS == IN_DOUBT);
        world.watch(words.owner, FOUND_FREE, |owner| owner & GAPS == KNOWN);
        world.watch(words.owner, FOUND_HELD, |owner| owner & GAPS == IN_VAIN);
    }

    fn finish(&self) {
        assert!(self.0.is_idle(), "something is left in the mutex");
    }
}

impl Guards for Shrunk {
    fn guarding(&self) -> impl Guarding<Model> {
        &self.0
    }
}

#[test]
fn an_unlock() {
    assert!(against_an_unlock::<Shrunk>("poundlock: an unlock", TWO).sleeps > 0);
}

/// The main thread holds the mutex; another comes and waits while it unlocks.
fn against_an_unlock<L: Lock>(name: &str, settings: Settings) -> Report {
    held::<L>(name, 2, settings, |world, guarded| vec![guarded.passer(world, 1)])
}

#[test]
fn two_threads() {
    let report = lockers::<Shrunk>("poundlock: two threads", 3, TWO, 1);
    assert!(report.sleeps > 0 && report.woken > 0);
    lockers::<Shrunk>("poundlock: two threads that spin", 3, SPINNING, 1);
    lockers::<Shrunk>("poundlock: restless", 2, Settings { restless: 2, ..TWO }, 1);
    lockers::<Shrunk>("poundlock: polling", 2, Settings { unregistered: 2, ..TWO }, 1);
    trying::<Shrunk>("poundlock: trying");
}

#[test]
fn two_threads_twice() {
    assert!(lockers::<Shrunk>("poundlock: two threads twice", 2, TWO, 2).sleeps > 0);
    lockers::<Poundlock<Patient>>("poundlock: two threads twice, spinning", 2, SPINNING, 2);
}

#[test]
fn three_threads() {
    assert!(lockers::<Shrunk>("poundlock: three threads", 2, THREE, 1).sleeps > 0);
    lockers::<Shrunk>("poundlock: three threads that spin", 1, THREE_SPINNING, 1);
    // All run on one CPU: whoever waits displaces the owner, and knows it.
    let displaced = Settings { tags: [1; 5], ..THREE };
    assert!(lockers::<Poundlock<Patient>>("poundlock: displaced", 1, displaced, 1).sleeps > 0);
    let patient = Settings { spins: 1, ..displaced };
    lockers::<Poundlock<Patient>>("poundlock: displaced, with patience", 1, patient, 1);
}

/// The last of the sleepers goes before the first, and is woken whoever is awake.
#[test]
fn a_real_time_thread() {
    let settings = Settings { priorities: [0, 0, 5, 0, 0], ..THREE };
    for more in 0..2 {
        let report = woken_in_turn::<Shrunk>("poundlock: a real-time thread is woken", 2, settings, more);
        assert!(report.woken > 0, "{report:?}");
    }
    lockers::<Shrunk>("poundlock: a real-time thread", 2, settings, 1);
    lockers::<Poundlock<Patient>>("poundlock: a real-time thread, patient", 1, settings, 2);
}

/// Whoever has spun for it tries what not to spin is like, and the next waiter parks for a set time.
#[test]
fn trials_and_naps() {
    let settings = Settings { spins: 1, ..SPINNING };
    let report = lockers::<Shrunk>("poundlock: trials and timed parks", 2, settings, 2);
    assert!(report.reached[DOUBTED] > 0 && report.reached[FOUND_FREE] > 0, "{report:?}");
}

/// Who parked for a set time and found the mutex held asks for it, while another comes.
#[test]
fn asked_for() {
    let report = held::<Shrunk>("poundlock: asked for", 2, THREE_SPINNING, |world, guarded| {
        guarded.lock.words().owner.store(IN_DOUBT, Relaxed);
        let mut others = guarded.sleepers(world, 1..2);
        others.push(guarded.passer(world, 2));
        others
    });
    assert!(report.reached[HAND_OVER] > 0 && report.reached[FOUND_HELD] > 0, "{report:?}");
}

/// SERVICE 3: a newcomer that parks in vain for a set time does not go before a sleeper that was there
/// before.
#[test]
fn a_newcomer_that_naps() {
    let report = held::<Shrunk>("poundlock: a newcomer that parks", 2, THREE_SPINNING, |world, guarded| {
        let words = guarded.lock.words();
        let mut others = guarded.sleepers(world, 1..2);
        let first = words.head.peek();
        others.push(guarded.passer(world, 2));
        // If it has begun to spin by then, it parks.
        words.owner.store(IN_DOUBT, Relaxed);
        world.await_sleep(2);
        assert_eq!(words.head.peek(), first, "overtaken in the list");
        others
    });
    assert!(report.reached[AWAKE_BESIDE] > 0, "{report:?}");
}

#[test]
fn first_sleep() {
    let plain = Settings { plain_release: true, ..TWO };
    assert!(lockers::<Shrunk>("poundlock: first sleep", 2, plain, 1).restarted > 0);
    // A plain release wipes out that a spinner is the designated waker.
    let spinning = Settings { plain_release: true, ..SPINNING };
    lockers::<Shrunk>("poundlock: first sleep, spinning", 2, spinning, 2);
}

/// Fences are refused, so a plain release may come after the first sleeper and wipe out that it sleeps.
/// It looks now and then.
const REFUSED: Settings = Settings { plain_release: true, refused: true, ..TWO };

#[test]
fn a_fence_that_is_refused() {
    assert!(lockers::<Shrunk>("poundlock: a refused fence", 3, REFUSED, 1).timed_waits > 0);
    lockers::<Shrunk>("poundlock: a refused fence, three", 1, Settings { threads: 3, ..REFUSED }, 1);
    lockers::<Shrunk>("poundlock: a refused fence, twice", 2, REFUSED, 2);
}

#[test]
fn barging() {
    let report = woken_in_turn::<Shrunk>("poundlock: in turn", 2, THREE, 2);
    assert!(report.woken > 0 && report.reached[PASSED] > 0, "{report:?}");
    let report = woken_in_turn::<Poundlock<Patient>>("poundlock: in vain", 2, THREE, 1);
    assert_eq!(report.reached[HAND_OVER], 0);
}

/// Two sleep, the first is woken, and the main thread has locked again by then. It unlocks, and locks once
/// more.
fn woken_in_vain<L: Lock>(
    name: &str,
    settings: Settings,
    settle: impl Fn(&World) + Send + Sync + 'static,
) -> Report {
    let come = move |world: &World, guarded: &Rc<Guarded<L>>| {
        world.unexplored(|| {
            let others = guarded.sleepers(world, 1..3);
            guarded.lock.unlock();
            guarded.lock.lock();
            settle(world);
            others
        })
    };
    held_then(name, 2, settings, come, |_, guarded| guarded.pass())
}

/// Who was woken in vain is handed the mutex, before another that waits.
#[test]
fn hand_over() {
    let report = woken_in_vain::<Shrunk>("poundlock: hand-over", THREE, |world| world.await_sleep(1));
    assert!(report.reached[HAND_OVER] > 0, "{report:?}");
}

/// The main thread has used it while others slept: one of them is woken beside the one that is awake, and it
/// makes room.
fn relief(settings: Settings) -> Report {
    woken_in_vain::<Poundlock<Patient>>("poundlock: relieved", settings, |_| {})
}

#[test]
fn relieved() {
    for settings in [THREE, THREE_SPINNING] {
        let report = relief(settings);
        assert!(report.reached[RELIEVED] > 0, "{report:?}");
    }
}

/// A newcomer passes a sleeper over, which makes the next unlock wake that beside it.
#[test]
fn bypass_bound() {
    let settings = Settings { threads: 4, ..SPINNING };
    let report = held::<Shrunk>("poundlock: bypass bound", 1, settings, |world, guarded| {
        let mut others = guarded.sleepers(world, 1..3);
        others.push(guarded.passer(world, 3));
        loom::thread::yield_now();
        others
    });
    assert!(report.reached[REACHED_BOUND] > 0 && report.reached[PASSED] > 0, "{report:?}");
}

#[test]
fn gives_up() {
    giving_up::<Shrunk>("poundlock: times out", 2, TWO, true, End::Before);
    giving_up::<Shrunk>("poundlock: times out after the unlock", 2, TWO, true, End::After);
}

#[test]
fn gives_up_before_another() {
    giving_up::<Poundlock<Patient>>("poundlock: times out before another", 2, THREE, true, End::Before);
    giving_up::<Shrunk>("poundlock: times out, woken, before another", 2, THREE, true, End::After);
    giving_up::<Shrunk>("poundlock: interrupted before another", 2, THREE, true, End::Interrupted);
}

#[test]
fn destroyed() {
    let destroyed = |name, settings, settled| {
        destroyed_by_the_last::<Shrunk>(&format!("poundlock: destroyed {name}"), 2, settings, settled, sound)
    };
    assert!(destroyed("", TWO, false).woken > 0);
    destroyed("by a spinner", SPINNING, false);
    assert!(destroyed("by a sleeper", THREE, true).woken > 0);
    assert!(destroyed("plain", Settings { plain_release: true, ..TWO }, false).restarted > 0);
}

#[test]
fn condition_variables() {
    give_to::<Shrunk>("poundlock: broadcast, held", 2, TWO, Giving::BroadcastHeld);
    give_to::<Shrunk>("poundlock: broadcast to two, held", 1, THREE, Giving::BroadcastHeld);
    give_to::<Shrunk>("poundlock: broadcast, free", 2, TWO, Giving::BroadcastFree);
    give_to::<Shrunk>("poundlock: broadcast to two, free", 1, THREE, Giving::BroadcastFree);
    let name = "poundlock: destroyed by the signalled";
    destroyed_by_the_waiter::<Shrunk>(name, 2, TWO, Giving::BroadcastFree, sound);
}

/// The parent's waiters are not in the child, whatever they left.
#[test]
fn in_a_forked_child() {
    const WAIT_LOCK: u32 = 3 << 30;
    for held in [false, true] {
        for (name, state, wait_lock) in [
            ("with sleepers", SLEEPERS, BIAS_REVOKED | REVOKING | 3),
            ("with one awake", SLEEPERS | AWAKE, BIAS_REVOKED | WAIT_LOCK | 3),
            ("at the bypass bound", SLEEPERS | AWAKE | BYPASS_BOUND, BIAS_REVOKED | 3),
            ("in its first sleep", AWAKE, REVOKING),
        ] {
            let haunt = move |mutex: &Shrunk| {
                let words = mutex.words();
                words.word.store(state | u32::from(held), Relaxed);
                words.tail.store(GHOST, Relaxed);
                words.head.store(GHOST + 1, Relaxed);
                words.wait_lock.store(wait_lock, Relaxed);
            };
            let wait_lock = |mutex: &Shrunk| mutex.words().wait_lock.peek();
            forked(&format!("poundlock: forked {name}"), CHILD, held, haunt, wait_lock);
        }
    }
}

// Planted bugs.

#[test]
fn bugs_that_two_threads_find() {
    let bugs = [
        (TWO, Fault::LoseWake(0), DEADLOCK),
        (Settings { plain_release: true, ..TWO }, Fault::Unfenced, DEADLOCK),
        // Nobody patrols.
        (REFUSED, Fault::Unlooked, DEADLOCK),
        (TWO, Fault::WeakRelease, UNORDERED),
        (TWO, Fault::WeakAcquire, UNORDERED),
        // The fast path.
        (TWO, Fault::Weaken(Operation::FetchOr), UNORDERED),
        // The release, and the waiters' acquisitions.
        (TWO, Fault::Weaken(Operation::CompareExchange), UNORDERED),
    ];
    each_is_caught(&bugs, |name, settings| lockers::<Shrunk>(name, 2, settings, 1));
}

#[test]
fn a_relief_that_is_not_woken() {
    caught(&[DEADLOCK], || relief(faulty(THREE, Fault::LoseWake(1))));
}

#[test]
fn a_wait_that_is_not_atomic() {
    let settings = faulty(TWO, Fault::TornWait);
    caught(&[DEADLOCK], || against_an_unlock::<Poundlock<Patient>>("poundlock: a torn wait", settings));
}

/// A waiter goes to sleep and stays the designated waker: unlocks wake nobody.
#[test]
fn a_designated_waker_that_sleeps() {
    caught(&[DEADLOCK], || {
        held::<Shrunk>("poundlock: designated for good", 1, TWO, |world, guarded| {
            let others = guarded.sleepers(world, 1..2);
            world.unexplored(|| guarded.lock.words().word.fetch_or(AWAKE, Relaxed));
            others
        })
    });
}

#[test]
fn a_touch_after_the_release() {
    caught(&[LATE, UNORDERED], || {
        let settings = faulty(TWO, Fault::TouchAfterRelease);
        destroyed_by_the_last::<Shrunk>("poundlock: a late touch", 2, settings, false, sound)
    });
}
