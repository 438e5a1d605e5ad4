//! Bugs planted in the queue spinlock, each of which a model must find.

use poundlock_core::qspin::{Native, Paravirtual, Small, Virtual};
use poundlock_model::{Fault, Model, Operation, Patient, Settings};

use crate::common::{DEADLOCK, ENDLESS, LATE, NO_SUCH_THREAD, UNORDERED, caught, faulty};
use crate::qspin::{SLOW, Spun, THREE, TWO, destroyed_by_the_last, passers, passers_at, queue_of_three};
use crate::qspin_fork::{CHILD, free};
use crate::qspin_paravirt::{HALTING, HALTING_THREE, first_halts, woken};

/// States of a node.
const HASHED: u32 = 8;
const HEAD: u32 = 9;
/// What a kicker clears in the low byte of the word: all but `LOCKED`.
const KICKED: u32 = !0xfe;

const LEFT_IN_THE_LOCK: &str = "something is left in the lock";
const LEFT_IN_THE_HASH: &str = "something is left in the hash";

fn native(name: &str, fault: Fault) {
    passers::<Model, Small, Native>(name, 2, faulty(THREE, fault), 1);
}

fn paravirtual(name: &str, settings: Settings, fault: Fault) {
    passers_at::<Model, Small, Paravirtual>(name, 3, faulty(settings, fault), 1, Spun::seasoned);
}

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

/// A head that looks at its node, and then halts.
#[test]
fn a_halt_that_is_not_atomic() {
    caught(&[DEADLOCK], || paravirtual("a halt that is not atomic", HALTING, Fault::TornWait));
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
        paravirtual("a head that forgets its entry", HALTING, Fault::Omit(Operation::Store, HASHED));
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
        passers_at::<Model, Small, Paravirtual>(
            "a kicker that is late",
            3,
            faulty(Settings { restless: 2, ..HALTING }, Fault::Late(HEAD)),
            3,
            Spun::seasoned,
        );
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

// Exclusion.

#[test]
fn a_compare_and_swap_that_lies() {
    caught(&[UNORDERED], || native("a compare-and-swap that lies", Fault::Lie(0)));
    caught(&[UNORDERED], || paravirtual("a compare-and-swap that lies", TWO, Fault::Lie(0)));
}

// Ordering.

#[test]
fn no_release() {
    caught(&[UNORDERED], || native("no release", Fault::WeakRelease));
    caught(&[UNORDERED], || paravirtual("no release", HALTING, Fault::WeakRelease));
    caught(&[UNORDERED], || {
        passers::<Model, Small, Virtual>("no release", 2, faulty(TWO, Fault::WeakRelease), 1);
    });
}

#[test]
fn no_acquire() {
    caught(&[UNORDERED], || native("no acquire", Fault::WeakAcquire));
    caught(&[UNORDERED], || paravirtual("no acquire", HALTING, Fault::WeakAcquire));
    caught(&[UNORDERED], || {
        passers::<Model, Small, Virtual>("no acquire", 2, faulty(TWO, Fault::WeakAcquire), 1);
    });
}

/// The release by a byte store.
#[test]
fn a_relaxed_store() {
    caught(&[UNORDERED], || native("a relaxed store", Fault::Weaken(Operation::Store)));
}

/// The waits of the pending waiter and of the queue head.
#[test]
fn a_relaxed_load() {
    caught(&[UNORDERED], || native("a relaxed load", Fault::Weaken(Operation::Load)));
}

/// The acquisition, and the release once somebody halts.
#[test]
fn a_relaxed_compare_and_swap() {
    let fault = Fault::Weaken(Operation::CompareExchange);
    caught(&[UNORDERED], || native("a relaxed compare-and-swap", fault));
    caught(&[UNORDERED], || paravirtual("a relaxed compare-and-swap", HALTING, fault));
}

// Memory.

#[test]
fn a_touch_after_the_release() {
    let fault = Fault::TouchAfterRelease;
    caught(&[LATE, UNORDERED], || {
        destroyed_by_the_last::<Patient, Small, Native>("a touch after the release", 2, faulty(TWO, fault));
    });
    caught(&[LATE, UNORDERED], || {
        let settings = faulty(HALTING, fault);
        destroyed_by_the_last::<Patient, Small, Paravirtual>("a touch after the release", 2, settings);
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
