//! Bugs planted in the queue spinlock, each of which a model must find.

use poundlock_core::qspin::{Native, Paravirtual, Small, Virtual};
use poundlock_model::{Fault, Model, Operation, Patient, Settings};

use crate::qspin::{CHILD, SLOW, Spin, THREE, TWO, free, queue_of_three};
use crate::qspin_paravirt::{HALTING, HALTING_THREE, New, Old, first_halts, woken};
use crate::scenes::{
    DEADLOCK, ENDLESS, LATE, NO_SUCH_THREAD, UNORDERED, caught, destroyed_by_the_last, each_is_caught,
    faulty, lockers, sound,
};

/// States of a node.
const HASHED: u32 = 8;
const HEAD: u32 = 9;
/// What a kicker clears in the low byte of the word: all but `LOCKED`.
const KICKED: u32 = !0xfe;

const LEFT_IN_THE_LOCK: &str = "something is left in the lock";
const LEFT_IN_THE_HASH: &str = "something is left in the hash";

type Mutex = Spin<Model, Small, Native>;
type Halting = Old<Model, Small>;

/// Two are halted, the main thread unlocks.
fn two_halted(name: &str, fault: Fault, again: u32) {
    woken::<Model, Small>(name, 3, faulty(HALTING_THREE, fault), 2, again, |_| {});
}

// Wake-ups.

#[test]
fn a_lost_kick() {
    caught(&[DEADLOCK], || two_halted("a lost kick", Fault::LoseWake(0), 0));
    caught(&[DEADLOCK], || two_halted("a lost kick, the second", Fault::LoseWake(1), 0));
}

/// HALTS: the first head to halt relies on its kick.
#[test]
fn a_first_halt_without_a_timed_wait() {
    caught(&[DEADLOCK], || {
        first_halts::<Small>("a first halt without a timed wait", faulty(HALTING, Fault::Unlooked));
    });
}

/// DUTY: who passes headship to a halted waiter does not set `SLOW`.
#[test]
fn a_passer_that_does_not_tell() {
    caught(&[DEADLOCK], || {
        two_halted("a passer that does not tell", Fault::Omit(Operation::FetchOr, SLOW), 0);
    });
}

// The hash.

/// ENTRY: a head does not note that it is in the hash, and goes there again.
#[test]
fn a_head_that_forgets_its_entry() {
    caught(&[LEFT_IN_THE_HASH, ENDLESS, DEADLOCK], || {
        let settings = faulty(HALTING, Fault::Omit(Operation::Store, HASHED));
        lockers::<Halting>("a head that forgets its entry", 3, settings, 1)
    });
}

/// ENTRY: a kicker takes the entry out, and `SLOW` stays.
#[test]
fn a_kicker_that_leaves_slow() {
    caught(&[ENDLESS], || {
        two_halted("a kicker that leaves SLOW", Fault::Omit(Operation::FetchAnd, KICKED), 0);
    });
}

/// ENTRY: a kicker makes the node HEAD when it has released the lock, and the node may be in another wait.
#[test]
fn a_kicker_that_is_late() {
    caught(&[LEFT_IN_THE_HASH, ENDLESS, DEADLOCK, UNORDERED], || {
        let settings = faulty(Settings { restless: 2, ..HALTING }, Fault::Late(HEAD));
        lockers::<Halting>("a kicker that is late", 3, settings, 3)
    });
}

// The queue.

#[test]
fn headship_that_is_not_passed() {
    caught(&[ENDLESS], || {
        let settings = faulty(TWO, Fault::Omit(Operation::Store, HEAD));
        queue_of_three::<Small>("headship that is not passed", settings)
    });
}

#[test]
fn bugs_in_the_native_form() {
    let bugs = [
        (THREE, Fault::Lie(0), UNORDERED),
        (THREE, Fault::WeakRelease, UNORDERED),
        (THREE, Fault::WeakAcquire, UNORDERED),
        // The release by a byte store.
        (THREE, Fault::Weaken(Operation::Store), UNORDERED),
        // The waits of the pending waiter and of the queue head.
        (THREE, Fault::Weaken(Operation::Load), UNORDERED),
        (THREE, Fault::Weaken(Operation::CompareExchange), UNORDERED),
    ];
    each_is_caught(&bugs, |name, settings| lockers::<Mutex>(name, 2, settings, 1));
    let bugs = [(TWO, Fault::WeakRelease, UNORDERED), (TWO, Fault::WeakAcquire, UNORDERED)];
    each_is_caught(&bugs, |name, settings| lockers::<Spin<Model, Small, Virtual>>(name, 2, settings, 1));
}

#[test]
fn bugs_in_the_paravirtual_form() {
    let bugs = [
        (TWO, Fault::Lie(0), UNORDERED),
        // A head that looks at its node, and then halts.
        (HALTING, Fault::TornWait, DEADLOCK),
        (HALTING, Fault::WeakRelease, UNORDERED),
        (HALTING, Fault::WeakAcquire, UNORDERED),
        // The acquisition, and the release once somebody halts.
        (HALTING, Fault::Weaken(Operation::CompareExchange), UNORDERED),
    ];
    each_is_caught(&bugs, |name, settings| lockers::<Halting>(name, 3, settings, 1));
}

// Memory.

#[test]
fn a_touch_after_the_release() {
    let fault = Fault::TouchAfterRelease;
    let name = "a touch after the release";
    caught(&[LATE, UNORDERED], || {
        destroyed_by_the_last::<Spin<Patient, Small, Native>>(name, 2, faulty(TWO, fault), false, sound)
    });
    caught(&[LATE, UNORDERED], || {
        destroyed_by_the_last::<New<Patient, Small>>(name, 2, faulty(HALTING, fault), false, sound)
    });
}

// Forks.

/// A child that takes itself for its parent follows what the parent's threads left.
#[test]
fn a_fork_that_goes_unnoticed() {
    let unnoticed = Settings { epoch: 3, ..CHILD };
    caught(&[ENDLESS, NO_SUCH_THREAD], || free::<Small, Native>("an unnoticed fork", unnoticed, 0));
    caught(&[LEFT_IN_THE_LOCK, DEADLOCK, ENDLESS, NO_SUCH_THREAD], || {
        free::<Small, Paravirtual>("an unnoticed fork", unnoticed, SLOW);
    });
}
