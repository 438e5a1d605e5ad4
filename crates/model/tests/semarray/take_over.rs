//! A lock is taken over from one that is gone while another comes to stand in its place.
//!
//! The lock's word names a slot and a thread in it. So a holder that came after the one that is gone, in the
//! same slot and with a thread of the same index, has the same word. Whoever is taking over is held up before
//! each of its steps in turn, until the array was told, the place has its new holder if it may have, and that
//! one holds the lock.

use poundlock_core::semarray::Scheme;

use crate::model::Answer;
use crate::rig::{A_WHILE, Call, Reply, Rig, operation};
use crate::system::{ProcessNumber, State, ThreadNumber};

/// Holds the lock when it is killed, or calls exec.
const FIRST: ProcessNumber = 0;
/// Takes over.
const HEIR: ProcessNumber = 1;
const OBSERVER: ProcessNumber = 2;
/// The index of the thread that holds the lock, in each of the processes that do.
const INDEX: u32 = 5;

/// How the first holder goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// Its slot is given to another process.
    Killed,
    /// It keeps its slot, and its new program uses the array.
    Exec,
}

/// How often what happened, for tests that are not to pass because nothing did.
#[derive(Debug, Default)]
struct Counts {
    runs: u64,
    /// The place was not free before the heir went on.
    waited: u64,
    /// The new holder held the lock while the heir stood still.
    held: u64,
}

/// Each of the first holder, the heir and the new holder is held up before one of its steps. Returns which of
/// them were.
fn run(variant: Scheme, end: End, steps: [u64; 3], counts: &mut Counts) -> [bool; 3] {
    let rig = Rig::new(1, variant);
    let machine = rig.machine.clone();
    (0..3).for_each(|_| {
        machine.process();
    });
    let is = |thread: ThreadNumber, state| machine.state(thread) == state;
    let give = |process, amount, step| {
        machine.hold_next_at(step);
        let call = Call::Operate(vec![operation(0, amount)], None);
        let thread = rig.start_as(process, Some(INDEX), &call);
        machine.settle();
        thread
    };
    counts.runs += 1;

    let first = give(FIRST, 10, steps[0]);
    let mut there = [is(first, State::Held), false, false];
    match end {
        End::Killed => machine.kill(FIRST),
        End::Exec => machine.replace_program(FIRST),
    }
    let heir = give(HEIR, 1, steps[1]);
    there[1] = is(heir, State::Held);

    // Waits, if somebody else holds the lock; and that can only be the heir.
    let done = |thread: ThreadNumber| {
        if !is(thread, State::Ended) {
            machine.let_go(heir);
            machine.pass(A_WHILE);
        }
        assert!(is(thread, State::Ended), "{end:?} {steps:?}: nobody can use the array");
    };
    match end {
        End::Killed => done(rig.call(OBSERVER, &Call::Reap(FIRST))),
        End::Exec => machine.follow_program(FIRST),
    }
    if !machine.may_be_followed() {
        counts.waited += 1;
        machine.let_go(heir);
        machine.pass(A_WHILE);
        assert!(machine.may_be_followed(), "somebody takes over without end");
    }
    let next = match end {
        End::Killed => machine.process_in_place_of(FIRST),
        End::Exec => {
            done(rig.call(FIRST, &Call::Succeed));
            FIRST
        }
    };
    let next = give(next, 1, steps[2]);
    there[2] = is(next, State::Held);
    counts.held += u64::from(there[2] && is(heir, State::Held));

    machine.let_go(heir);
    machine.pass(A_WHILE);
    machine.let_go(next);
    machine.pass(A_WHILE);
    for thread in [heir, next] {
        assert_eq!(rig.reply(thread), Some(Reply::Ended(Answer::Done)), "{end:?} {steps:?}: thread {thread}");
    }
    let view = rig.view(OBSERVER).expect("nobody removed it");
    assert_eq!(view.values[0] % 10, 2, "{end:?} {steps:?}: two gave one each, in {}", view.values[0]);
    if let Err(wrong) = rig.array.audit() {
        panic!("{end:?} {steps:?}: {wrong}");
    }
    there
}

fn every_step(variant: Scheme, end: End) {
    let mut counts = Counts::default();
    let mut there = [true; 3];
    for first in 0.. {
        for heir in 0.. {
            for next in 0.. {
                there = run(variant, end, [first, heir, next], &mut counts);
                if !there[2] {
                    break;
                }
            }
            if !there[1] {
                break;
            }
        }
        if !there[0] {
            break;
        }
    }
    println!("{}, {end:?}: {counts:?}", variant.name());
    assert!(counts.held > 0, "the heir was never held up beside a new holder");
}

#[test]
fn the_next_process_in_a_slot_keeps_its_lock() {
    Scheme::ALL.into_iter().for_each(|variant| every_step(variant, End::Killed));
}

#[test]
fn the_next_program_of_a_process_keeps_its_lock() {
    Scheme::ALL.into_iter().for_each(|variant| every_step(variant, End::Exec));
}
