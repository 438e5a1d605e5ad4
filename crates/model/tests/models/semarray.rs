//! Semaphore arrays: operations that race, sleepers and those who let them proceed, removal, time-outs, and
//! processes that are killed.

use std::cell::Cell;
use std::rc::Rc;

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::semarray::{self, Error, Op, Scheme};
use poundlock_model::{Fault, Model, Operation, Report, Settings, THREADS, World, explore_array};

use crate::scenes::{DEADLOCK, UNORDERED, asleep, caught, faulty};

type Array = semarray::Array<'static, Model>;

/// Places that the models count.
const SLEPT: usize = 0;
const PROCEEDED: usize = 1;
const REFUSED: usize = 2;
const KILLED: usize = 3;

const TWO: Settings = Settings { spins: 0, processes: EACH_ITS_OWN, ..Settings::DEFAULT };
const THREE: Settings = Settings { threads: 3, ..TWO };
const FOUR: Settings = Settings { threads: 4, ..TWO };
const EACH_ITS_OWN: [u32; THREADS] = {
    let mut processes = [0; THREADS];
    let mut thread = 0;
    while thread < THREADS {
        processes[thread] = thread as u32;
        thread += 1;
    }
    processes
};
/// Longer than any sleeper goes without looking.
const A_WHILE: u64 = 1_000_000_000;
const PATIENCE: u64 = 1_000_000;

/// What is wrong with an array in the end.
const WRONG: &str = "the array is not whole";
const VALUE: &str = "the value";

/// Something that a semaphore guards: two accesses that nothing orders fail the model.
struct Guarded(UnsafeCell<u32>);

impl Guarded {
    fn new() -> Rc<Self> {
        Rc::new(Guarded(UnsafeCell::new(0)))
    }

    fn section(&self) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.0.with_mut(|value| unsafe {
            *value += 1;
            *value
        })
    }
}

/// No record is in use, and the array is whole.
fn nothing_is_left(array: Array) {
    left_is(array, 0);
}

/// But for so many adjustments.
fn left_is(array: Array, adjustments: u32) {
    let audit = World::present().still(|| array.audit());
    let audit = audit.unwrap_or_else(|wrong| panic!("{WRONG}: {wrong}"));
    assert_eq!((audit.records, audit.adjustments), (0, adjustments), "{WRONG}: {audit:?}");
}

/// At the end, when all threads have been joined.
fn finish(array: Array, values: &[u32]) {
    nothing_is_left(array);
    let mut num = 0;
    array
        .values(|_, value| {
            assert_eq!(value, values[num], "{VALUE}");
            num += 1;
        })
        .expect("it was not removed");
}

/// A thread that operates, and says what came of it.
fn operator(
    world: &World,
    index: u32,
    array: Array,
    operations: &'static [Op],
    patience: Option<u64>,
) -> JoinHandle<Result<(), Error>> {
    world.spawn(index, move |world: &World| {
        let result = array.operate(operations, patience);
        world.reached(if result.is_ok() { PROCEEDED } else { REFUSED });
        result
    })
}

/// Threads that operate, from that number on, each asleep before the next comes.
fn sleepers(
    world: &World,
    first: u32,
    array: Array,
    all: &[(&'static [Op], Option<u64>)],
) -> Vec<JoinHandle<Result<(), Error>>> {
    let start = |index: u32| {
        let (operations, patience) = all[(index - first) as usize];
        operator(world, index, array, operations, patience)
    };
    world.unexplored(|| asleep(world, first..first + all.len() as u32, start))
}

fn results(sleepers: Vec<JoinHandle<Result<(), Error>>>) -> Vec<Result<(), Error>> {
    sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).collect()
}

/// Two take one semaphore in turns.
fn exclusion(
    name: &str,
    scheme: Scheme,
    preemptions: usize,
    settings: Settings,
    operations: [&'static [Op]; 2],
) -> Report {
    explore_array(name, preemptions, settings, 2, scheme, move |world, array| {
        world.unexplored(|| array.set_value(0, 1)).expect("it is there");
        let guarded = Guarded::new();
        let [take, give] = operations;
        let sections = move |array: Array, guarded: &Guarded| {
            array.operate(take, None).expect("it proceeds");
            guarded.section();
            array.operate(give, None).expect("it proceeds");
        };
        let other = world.spawn(1, {
            let guarded = guarded.clone();
            move |_| sections(array, &guarded)
        });
        sections(array, &guarded);
        other.join().unwrap();
        assert_eq!(guarded.section(), 3);
        finish(array, &[1, 0]);
    })
}

const TAKE: &[Op] = &[Op { num: 0, change: -1, flags: 0 }];
const GIVE: &[Op] = &[Op { num: 0, change: 1, flags: 0 }];
const GIVE_TWO: &[Op] = &[Op { num: 0, change: 2, flags: 0 }];
const TAKE_BOTH: &[Op] = &[Op { num: 0, change: -1, flags: 0 }, Op { num: 1, change: 1, flags: 0 }];
const GIVE_BOTH: &[Op] = &[Op { num: 1, change: -1, flags: 0 }, Op { num: 0, change: 1, flags: 0 }];
const TAKE_SECOND: &[Op] = &[Op { num: 1, change: -1, flags: 0 }];
const GIVE_SECOND: &[Op] = &[Op { num: 1, change: 1, flags: 0 }];
const ZERO: &[Op] = &[Op { num: 0, change: 0, flags: 0 }];
const GIVE_UNDO: &[Op] = &[Op { num: 0, change: 1, flags: Op::UNDO }];

/// How many preemptions are explored where many threads meet: in the schemes, which differ little, fewer.
fn preemptions(scheme: Scheme) -> usize {
    if scheme == Scheme::After { 2 } else { 1 }
}

fn two_operations(scheme: Scheme) {
    let report = exclusion("two operations", scheme, 2, TWO, [TAKE, GIVE]);
    assert!(report.sleeps > 0, "nobody slept");
    let report = exclusion("two of several operations", scheme, 1, TWO, [TAKE_BOTH, GIVE_BOTH]);
    assert!(report.sleeps > 0, "nobody slept");
    exclusion("two operations, restless", scheme, 1, Settings { restless: 2, ..TWO }, [TAKE, GIVE]);
}

/// Gives while another goes to sleep.
fn give_to_one(name: &str, scheme: Scheme, preemptions: usize, settings: Settings) -> Report {
    explore_array(name, preemptions, settings, 1, scheme, |world, array| {
        let guarded = Guarded::new();
        let taker = world.spawn(1, {
            let guarded = guarded.clone();
            move |world: &World| {
                array.operate(TAKE, None).expect("it proceeds");
                guarded.section();
                world.reached(PROCEEDED);
            }
        });
        guarded.section();
        array.operate(GIVE, None).expect("it proceeds");
        taker.join().unwrap();
        guarded.section();
        finish(array, &[0]);
    })
}

/// Two sleepers, one that gives to one of them, and one that removes the array.
fn sleepers_and_removal(name: &str, scheme: Scheme, preemptions: usize, settings: Settings) -> Report {
    explore_array(name, preemptions, settings, 1, scheme, |world, array| {
        let sleepers = sleepers(world, 1, array, &[(TAKE, None); 2]);
        world.reached(SLEPT);
        let remover = world.spawn(3, move |_| array.remove().map(|_| ()));
        let given = array.operate(GIVE, None);
        remover.join().unwrap().expect("it was there");
        let results = results(sleepers);
        match given {
            // First come, first served.
            Ok(()) => assert_eq!(results, [Ok(()), Err(Error::Removed)]),
            Err(error) => {
                assert_eq!(results, [Err(Error::Removed); 2]);
                assert!(matches!(error, Error::Gone | Error::Removed), "{error:?}");
            }
        }
        assert_eq!(array.operate(GIVE, None), Err(Error::Gone));
        nothing_is_left(array);
    })
}

/// One that is about to sleep, and one that removes the array.
fn removal(scheme: Scheme) {
    let report = explore_array("removal", 2, TWO, 1, scheme, |world, array| {
        let taker = operator(world, 1, array, TAKE, None);
        array.remove().expect("it is there");
        let result = taker.join().unwrap();
        assert!(matches!(result, Err(Error::Removed | Error::Gone)), "{result:?}");
        nothing_is_left(array);
    });
    assert!(report.sleeps > 0);
    let report =
        sleepers_and_removal("two sleepers, one waker and a removal", scheme, preemptions(scheme), FOUR);
    assert!(report.reached[PROCEEDED] > 0 && report.reached[REFUSED] > 0, "{report:?}");
}

/// One sleeper whose time passes while another gives.
fn time_out(name: &str, scheme: Scheme, preemptions: usize, settings: Settings) -> Report {
    explore_array(name, preemptions, settings, 1, scheme, |world, array| {
        let sleeper = sleepers(world, 1, array, &[(TAKE, Some(PATIENCE))]);
        let clock = world.spawn(2, |world: &World| world.pass(PATIENCE));
        array.operate(GIVE, None).expect("it proceeds");
        clock.join().unwrap();
        match results(sleeper)[..] {
            [Ok(())] => finish(array, &[0]),
            ref result => {
                assert_eq!(result, [Err(Error::WouldBlock)]);
                finish(array, &[1]);
            }
        }
    })
}

fn time_outs(scheme: Scheme) {
    let settings = Settings { mortal: true, ..THREE };
    let report = time_out("a waker and a time-out", scheme, 2, settings);
    assert!(report.reached[PROCEEDED] > 0 && report.reached[REFUSED] > 0, "{report:?}");
}

/// Of two sleepers elsewhere, the giver wakes one, the other's delegate; a third of the same process is the
/// sentinel.
fn wake_by_delegate(name: &str, scheme: Scheme, preemptions: usize, settings: Settings) -> Report {
    explore_array(name, preemptions, settings, 2, scheme, |world, array| {
        let sentinel = sleepers(world, 1, array, &[(TAKE_SECOND, None)]);
        let mut both = sleepers(world, 2, array, &[(TAKE, None)]);
        // It may or may not sleep by the time it is given something.
        both.push(operator(world, 3, array, TAKE, None));
        array.operate(GIVE_TWO, None).expect("it proceeds");
        assert_eq!(results(both), [Ok(()); 2]);
        world.reached(SLEPT);
        array.operate(GIVE_SECOND, None).expect("it proceeds");
        assert_eq!(results(sentinel), [Ok(())]);
        finish(array, &[0, 0]);
    })
}

/// Two sleepers, of whom the first is the sentinel and proceeds first: each is woken once, when it proceeds,
/// whoever looks for deaths.
#[test]
fn sleepers_that_proceed_in_turn_are_woken_once_each() {
    // `before` wakes inside the lock, for which the woken may sleep.
    for scheme in [AFTER, Scheme::SharedLine, Scheme::Combining] {
        for (name, processes) in [("processes", EACH_ITS_OWN), ("threads", [0, 1, 1, 1, 1])] {
            let name = format!("{name} that proceed in turn, {}", scheme.name());
            explore_array(&name, 2, Settings { processes, ..THREE }, 2, scheme, |world, array| {
                let sleepers = sleepers(world, 1, array, &[(TAKE, None), (TAKE_SECOND, None)]);
                for (proceeded, sleeper) in sleepers.into_iter().enumerate() {
                    array.operate([GIVE, GIVE_SECOND][proceeded], None).expect("it proceeds");
                    assert_eq!(sleeper.join().unwrap(), Ok(()));
                    assert_eq!(World::present().wakes(), proceeded as u32 + 1, "a sleeper is woken in vain");
                }
                finish(array, &[0, 0]);
            });
        }
    }
}

const ELSEWHERE: Settings = Settings { processes: [0, 1, 1, 1, 0], tags: [1, 0, 2, 2, 0], ..FOUR };

/// A delegate that may give up as it is told; there are too many schedules for all, so either comes first.
fn delegate_in_time(name: &str, scheme: Scheme, giver_first: bool) -> Report {
    let settings = Settings { mortal: true, ..ELSEWHERE };
    explore_array(name, 1, settings, 1, scheme, move |world, array| {
        let sleepers = sleepers(world, 2, array, &[(TAKE, Some(PATIENCE)), (TAKE, None)]);
        let give = move |_: &World| array.operate(GIVE_TWO, None).expect("it proceeds");
        let pass = |world: &World| world.pass(PATIENCE);
        if giver_first {
            let clock = world.spawn(1, pass);
            give(world);
            clock.join().unwrap();
        } else {
            let giver = world.spawn(1, give);
            pass(world);
            giver.join().unwrap();
        }
        let results = results(sleepers);
        assert!(matches!(results[..], [Ok(()) | Err(Error::WouldBlock), Ok(())]), "{results:?}");
        finish(array, &[u32::from(results[0].is_err())]);
    })
}

fn delegates(scheme: Scheme) {
    wake_by_delegate("a delegate", scheme, preemptions(scheme), ELSEWHERE);
    let report = delegate_in_time("a delegate and a time-out", scheme, true);
    assert!(report.reached[PROCEEDED] > 0, "{report:?}");
    let report = delegate_in_time("a time-out and a delegate", scheme, false);
    assert!(report.reached[REFUSED] > 0, "{report:?}");
}

/// One waits for zero while two take what there is.
fn zero(scheme: Scheme) {
    let report = explore_array("zero", preemptions(scheme), THREE, 1, scheme, |world, array| {
        world.unexplored(|| array.set_value(0, 2)).expect("it is there");
        let waiter = operator(world, 1, array, ZERO, None);
        let taker = operator(world, 2, array, TAKE, None);
        array.operate(TAKE, None).expect("it proceeds");
        assert_eq!(taker.join().unwrap(), Ok(()));
        assert_eq!(waiter.join().unwrap(), Ok(()));
        finish(array, &[0]);
    });
    assert!(report.sleeps > 0);
}

/// Two wait, and get what two give: nothing is lost between the one's wake-ups and the other's.
fn two_givers(scheme: Scheme) {
    let report = explore_array("two givers", preemptions(scheme), FOUR, 1, scheme, |world, array| {
        let sleepers = sleepers(world, 1, array, &[(TAKE, None); 2]);
        let giver = operator(world, 3, array, GIVE, None);
        array.operate(GIVE, None).expect("it proceeds");
        assert_eq!(giver.join().unwrap(), Ok(()));
        assert_eq!(results(sleepers), [Ok(()), Ok(())]);
        finish(array, &[0]);
    });
    assert!(report.reached[PROCEEDED] > 0);
}

/// When somebody comes whom a killed process's array keeps waiting.
#[derive(Clone, Copy, PartialEq)]
enum Newcomer {
    /// With the one that is killed.
    Meanwhile,
    /// Afterwards, as a sleeper looks.
    Afterwards,
}

/// A process is killed after its `nth` access in a call, while one sleeps; and another comes. Returns whether
/// the call was so long.
fn killed(
    name: &str,
    scheme: Scheme,
    preemptions: usize,
    nth: u32,
    operations: &'static [Op],
    comes: Newcomer,
) -> bool {
    let settings = Settings { mortal: true, ..FOUR };
    let report = explore_array(name, preemptions, settings, 1, scheme, move |world, array| {
        let done = Rc::new(Cell::new(0));
        let finishing = |index, operations| {
            let done = done.clone();
            world.spawn(index, move |_| {
                array.operate(operations, None).expect("it proceeds");
                done.set(done.get() + 1);
            })
        };
        let sleeper = world.unexplored(|| {
            let sleeper = finishing(1, TAKE);
            world.await_sleep(1);
            sleeper
        });
        world.script_any(2, nth, || World::present().kill());
        let victim = |world: &World| {
            world.spawn(2, move |world: &World| {
                let survived = world.until_killed(|| array.operate(operations, None).expect("it proceeds"));
                if !survived {
                    world.reached(KILLED);
                }
                survived
            })
        };
        let (newcomer, survived);
        if comes == Newcomer::Meanwhile {
            let victim = victim(world);
            newcomer = finishing(3, GIVE);
            survived = victim.join().unwrap();
        } else {
            survived = world.unexplored(|| victim(world).join().unwrap());
            world.pass(A_WHILE);
            newcomer = finishing(3, GIVE);
            // Not for longer than it takes to find the dead one, unless the sleeper takes the lock away.
            world.pause();
        }
        // Whoever is still asleep by now looks after a while.
        world.unexplored(|| world.pass_until(|| done.get() == 2));
        newcomer.join().unwrap();
        sleeper.join().unwrap();
        let mut value = 0;
        array.values(|_, seen| value = seen).expect("it is there");
        if !survived {
            // Its records are given back.
            array.reap(2).expect("it is there");
        }
        left_is(array, u32::from(survived && operations[0].flags & Op::UNDO != 0));
        // One has been taken; the victim's is there if it came so far. If it was adjusted, the newcomer's may
        // be, who came when there was nothing left to adjust.
        let given = u32::try_from(operations[0].change).expect("it gives");
        assert!(value == 0 || value == given, "{VALUE}: {value}");
        assert!(!survived || value == given, "{VALUE}: {value}");
    });
    report.reached[KILLED] > 0
}

/// Before every `stride`th step of a call.
fn deaths(scheme: Scheme, stride: u32, preemptions: usize) {
    for (name, operations) in [("killed", GIVE_TWO), ("killed with adjustments", GIVE_UNDO)] {
        for (when, comes) in [("meanwhile", Newcomer::Meanwhile), ("afterwards", Newcomer::Afterwards)] {
            let mut nth = 1;
            while killed(&format!("{name} at {nth}, {when}"), scheme, preemptions, nth, operations, comes) {
                nth += stride;
            }
            assert!(nth > 30, "it is over so soon: {nth}");
        }
    }
}

/// `crash` of the tests beside these kills before each step, one schedule each; `./test long` does here.
fn killed_anywhere(scheme: Scheme) {
    let executions =
        std::env::var("POUNDLOCK_MODEL_EXECUTIONS").ok().and_then(|text| text.parse::<u64>().ok());
    let stride = match scheme {
        Scheme::After if executions.is_some_and(|executions| executions > 10_000) => 1,
        Scheme::After => 5,
        // Those who leave requests come in many more orders.
        Scheme::Combining => 41,
        _ => 13,
    };
    deaths(scheme, stride, 1);
}

macro_rules! for_each_scheme {
    ($($model:ident)*) => {
        for_each_scheme!(@ after After $($model)*);
        for_each_scheme!(@ before Before $($model)*);
        for_each_scheme!(@ combining Combining $($model)*);
        for_each_scheme!(@ shared_line SharedLine $($model)*);
    };
    (@ $module:ident $scheme:ident $($model:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $model() {
                    super::$model(poundlock_core::semarray::Scheme::$scheme);
                }
            )*
        }
    };
}

for_each_scheme!(two_operations removal time_outs zero two_givers delegates killed_anywhere);

// Planted bugs.

const AFTER: Scheme = Scheme::After;

#[test]
fn bugs_in_giving() {
    /// What is torn is found where it is looked at first.
    const TORN: &[&str] = &[UNORDERED, DEADLOCK, WRONG, VALUE];
    for (fault, why) in [
        (Fault::LoseWake(0), &[DEADLOCK][..]),
        // A wait that compares too early.
        (Fault::TornWait, &[DEADLOCK]),
        (Fault::WeakRelease, TORN),
        (Fault::WeakAcquire, TORN),
        // A sleeper looks whether it may go on, and does not acquire.
        (Fault::Weaken(Operation::Load), &[UNORDERED, DEADLOCK]),
    ] {
        caught(why, || give_to_one(&format!("arrays: {fault:?}"), AFTER, 2, faulty(TWO, fault)));
    }
    // Taking the lock, and telling a sleeper; and releasing the lock.
    for operation in [Operation::CompareExchange, Operation::Swap] {
        let settings = faulty(TWO, Fault::Weaken(operation));
        caught(TORN, || exclusion(&format!("arrays: {operation:?}"), AFTER, 2, settings, [TAKE, GIVE]));
    }
}

/// The second wake-up is the delegate's.
#[test]
fn a_delegate_that_wakes_nobody() {
    caught(&[DEADLOCK], || {
        wake_by_delegate("a delegate that wakes nobody", AFTER, 2, faulty(ELSEWHERE, Fault::LoseWake(1)))
    });
}
