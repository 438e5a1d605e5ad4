//! What threads were seen to do is done again.

use poundlock_sim::workload::replay::{Kind, Part, Replay, Replayed, Step};
use poundlock_sim::{MICROSECOND, Machine, NANOSECOND, Settings, Simulation, Stuck};

const LOCKED: [Step; 3] = [Step::Lock(0), Step::Work(MICROSECOND), Step::Unlock(0)];

fn replayed(threads: &[Vec<Step>], kind: Kind<'_>, number: u32) -> Result<Replayed, Stuck> {
    let machines = Machine::known();
    let machine = machines[0].flat(4);
    let replay = Replay {
        threads,
        locks: &[Part { kind, number }],
        before: 0,
        warm_up: 100 * MICROSECOND,
        time: 1000 * MICROSECOND,
    };
    replay.run_in(Simulation::new(&machine, Settings::DEFAULT, 1))
}

fn done(threads: &[Vec<Step>], kind: Kind<'_>, number: u32) -> Vec<u64> {
    replayed(threads, kind, number).expect("nobody waits for ever").steps
}

#[test]
fn a_lock_excludes_and_what_becomes_of_it_does_not() {
    let threads = vec![LOCKED.to_vec(); 4];
    let at_most = 1000;
    let alone = replayed(&threads, Kind::Exclusive("mcs"), 1).expect("nobody waits for ever");
    let waits = alone.waits[0];
    assert!((500..=at_most).contains(&waits.acquisitions), "{waits:?}");
    // Three of the four wait all the time.
    assert!((2.0..3.2).contains(&(waits.waited as f64 / (1000 * MICROSECOND) as f64)), "{waits:?}");
    let gone = replayed(&threads, Kind::Gone, 1).expect("nobody waits for ever").waits[0];
    assert!(gone.acquisitions > 3 * at_most && gone.contended == 0, "{gone:?}");
    let split = replayed(&threads, Kind::Exclusive("mcs"), 64).expect("nobody waits for ever").waits[0];
    assert!(split.acquisitions > 2 * at_most && split.acquisitions < gone.acquisitions, "{split:?}");
    let reads: Vec<Vec<Step>> = vec![vec![Step::Read(0), LOCKED[1], LOCKED[2]]; 4];
    let read = replayed(&reads, Kind::Shared("rw-phase-fair"), 1).expect("nobody waits for ever").waits[0];
    assert!(read.acquisitions > 2 * at_most, "{read:?}");
}

#[test]
fn who_would_not_wait_leaves_out_what_it_would_have_done() {
    // The first holds the lock for all its life but a moment.
    let holds = vec![Step::Lock(0), Step::Work(50 * MICROSECOND), Step::Unlock(0), Step::Work(NANOSECOND)];
    let tries = vec![Step::Try(0), Step::Work(MICROSECOND), Step::Unlock(0), Step::Work(MICROSECOND)];
    let steps = done(&[holds.clone(), tries.clone()], Kind::Exclusive("mcs"), 1);
    let waits = vec![Step::Lock(0), tries[1], tries[2], tries[3]];
    let waiting = done(&[holds, waits], Kind::Exclusive("mcs"), 1);
    assert!(steps[1] > 5 * waiting[1], "{steps:?} {waiting:?}");
}

#[test]
fn a_thread_stays_whole_whatever_it_leaves_out_and_takes_twice() {
    // It releases what it has although it has not got the other one, and takes a lock twice.
    let holds = vec![Step::Lock(1), Step::Work(50 * MICROSECOND), Step::Unlock(1), Step::Work(NANOSECOND)];
    let tries = vec![
        Step::Lock(0),
        Step::Lock(0),
        Step::Try(1),
        Step::Unlock(0),
        Step::Unlock(0),
        Step::Unlock(1),
        Step::Work(MICROSECOND),
    ];
    let machine = Machine::known()[0].flat(4);
    let lock = Part { kind: Kind::Exclusive("mcs"), number: 1 };
    let replay = Replay {
        threads: &[holds, tries.clone(), tries],
        locks: &[lock, lock],
        before: 0,
        warm_up: 100 * MICROSECOND,
        time: 1000 * MICROSECOND,
    };
    let replayed =
        replay.run_in(Simulation::new(&machine, Settings::DEFAULT, 1)).expect("nobody waits for ever");
    assert!(replayed.steps[1] > 1000 && replayed.steps[2] > 1000, "{replayed:?}");
}

#[test]
fn wakes_and_meetings_keep_threads_in_step() {
    let gives = vec![Step::Work(10 * MICROSECOND), Step::Wake(0)];
    let takes = vec![Step::Await { what: 0, took: 0 }, Step::Work(MICROSECOND)];
    let steps = done(&[gives, takes.clone()], Kind::Gone, 1);
    assert!(steps[0].abs_diff(steps[1]) <= 4 && steps[0] > 100, "{steps:?}");
    let slow = vec![Step::Work(10 * MICROSECOND), Step::Meet(0)];
    let fast = vec![Step::Work(MICROSECOND), Step::Meet(0)];
    let steps = done(&[slow, fast.clone(), fast], Kind::Gone, 1);
    assert!(steps[0].abs_diff(steps[1]) <= 2 && steps[0].abs_diff(steps[2]) <= 2, "{steps:?}");
    // Nobody wakes it.
    assert!(replayed(&[takes], Kind::Gone, 1).is_err());
}
