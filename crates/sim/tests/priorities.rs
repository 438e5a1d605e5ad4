//! Real-time threads go before others, by priority, and in the order in which they came among equals, with a
//! CPU for each thread. Schedules from seeds have real-time threads, too: `locks.rs`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use poundlock_core::condvar::{Outcome, RawCondvar};
use poundlock_core::platform::{Atomic, Clock, Deadline, Platform, Until, Waited};
use poundlock_core::rwlock::Preference::{self, PhaseFair, ReaderPreferring, WriterPreferring};
use poundlock_core::rwlock::RawRwLock;
use poundlock_sim::check::calm;
use poundlock_sim::check::{Mutex, Subject};
use poundlock_sim::{Alone, MICROSECOND, Settings, Sim, Simulation, U32, set_priority, work};

pub(crate) const MILLISECOND: u64 = 1_000 * MICROSECOND;

/// A time, in milliseconds.
pub(crate) fn deadline(milliseconds: u64) -> Deadline {
    Deadline { clock: Clock::Monotonic, seconds: 0, nanoseconds: milliseconds as u32 * 1_000_000 }
}

/// Leaves its CPU to others.
pub(crate) fn sleep_until(milliseconds: u64) {
    let word = Alone(U32::new(0));
    while Sim::wait(&word.0, 0, Until::Deadline(&deadline(milliseconds))) != Waited::TimedOut {}
}

/// One of those who come, one every two milliseconds, and find it held.
#[derive(Clone, Copy, Debug)]
struct Visitor {
    priority: u32,
    /// In milliseconds.
    comes: u64,
    /// When it gives up, if it does.
    goes: Option<u64>,
}

/// Some visitors by a seed, and when all of them wait or have given up.
fn visitors(random: &mut fastrand::Rng) -> (Vec<Visitor>, u64) {
    let count = random.u64(2..=12);
    let over = 2 * count + 4;
    let visitor = |number: u64| {
        let comes = 2 + 2 * number;
        let goes = (random.u32(..4) == 0).then(|| random.u64(comes + 1..over));
        Visitor { priority: [0, 0, 1, 2, 99][random.usize(..5)], comes, goes }
    };
    ((0..count).map(visitor).collect(), over + 2)
}

/// The numbers of those who stay, in the order in which they are to enter.
fn expected(visitors: &[Visitor]) -> Vec<usize> {
    let mut numbers: Vec<usize> =
        (0..visitors.len()).filter(|&number| visitors[number].goes.is_none()).collect();
    numbers.sort_by_key(|&number| core::cmp::Reverse(visitors[number].priority));
    numbers
}

/// Has somebody hold it until all have come, and each of them call `enter` with its number and its deadline.
fn entered(
    visitors: &[Visitor],
    over: u64,
    hold: impl FnOnce(u64) + 'static,
    enter: impl Fn(Option<&Deadline>, &dyn Fn()) -> bool + Clone + 'static,
) -> Vec<usize> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let mut simulation = Simulation::new(&calm(), Settings::default(), 1);
    simulation.spawn(None, move || hold(over));
    for (number, &visitor) in visitors.iter().enumerate() {
        let (log, enter) = (Rc::clone(&log), enter.clone());
        simulation.spawn(None, move || {
            set_priority(visitor.priority);
            sleep_until(visitor.comes);
            let note = || log.borrow_mut().push(number);
            let came = enter(visitor.goes.map(deadline).as_ref(), &note);
            assert_eq!(came, visitor.goes.is_none(), "number {number} of those at {over} ms");
        });
    }
    let summary = simulation.run(900 * MILLISECOND).expect("nobody sleeps for ever");
    assert!(summary.over, "{:?}", log.borrow());
    log.take()
}

const MUTEXES: [&str; 7] =
    ["poundlock", "any-negative", "mcs-queue", "fewer-atomics", "baseline", "handoff", "handoff:none"];

fn mutex(name: &str) -> Rc<dyn Mutex> {
    match Subject::make(name) {
        Some(Subject::Mutex(mutex)) => Rc::from(mutex),
        _ => panic!("no mutex is called '{name}'"),
    }
}

#[test]
fn sleepers_of_a_mutex() {
    for name in MUTEXES {
        for seed in 0..100 {
            let (visitors, over) = visitors(&mut fastrand::Rng::with_seed(seed));
            let mutex = mutex(name);
            let (held, wanted) = (Rc::clone(&mutex), Rc::clone(&mutex));
            let hold = move |over| {
                held.lock();
                sleep_until(over);
                held.unlock();
            };
            let order = entered(&visitors, over, hold, move |deadline, note| {
                match deadline {
                    Some(deadline) if !wanted.lock_until(deadline) => return false,
                    Some(_) => {}
                    None => wanted.lock(),
                }
                note();
                work(30 * MICROSECOND);
                wanted.unlock();
                true
            });
            assert_eq!(order, expected(&visitors), "{name}, seed {seed}: {visitors:?}");
            assert!(mutex.is_free());
        }
    }
}

#[test]
fn waiters_of_a_condition_variable() {
    for name in MUTEXES {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (visitors, over) = visitors(&mut random);
            let (condvar, mutex) = (Rc::new(Alone(RawCondvar::<Sim>::new())), mutex(name));
            // One by one, some at a time, or all at once.
            let at_a_time = [1, 3, u32::MAX][random.usize(..3)];
            let (held, signalled) = (Rc::clone(&mutex), Rc::clone(&condvar));
            let hold = move |over| {
                sleep_until(over);
                for round in 0..12 {
                    held.lock();
                    match at_a_time {
                        u32::MAX => signalled.0.broadcast(),
                        some => (0..some).for_each(|_| signalled.0.signal()),
                    }
                    held.unlock();
                    sleep_until(over + 2 * (round + 1));
                }
            };
            let (waited, wanted) = (Rc::clone(&condvar), Rc::clone(&mutex));
            let order = entered(&visitors, over, hold, move |deadline, note| {
                wanted.lock();
                let came = wanted.wait(&waited.0, deadline) == Outcome::Signalled;
                if came {
                    note();
                    work(30 * MICROSECOND);
                }
                wanted.unlock();
                came
            });
            assert_eq!(order, expected(&visitors), "{name}, seed {seed}, {at_a_time}: {visitors:?}");
            assert!(mutex.is_free() && condvar.0.is_idle());
        }
    }
}

#[test]
fn readers_and_writers_of_a_lock() {
    for policy in Preference::ALL {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (visitors, over) = visitors(&mut random);
            let lock = Rc::new(Alone(RawRwLock::<Sim>::new()));
            // Beside a reader, only writers wait whatever the policy.
            let (holder_writes, visitors_write) =
                [(true, true), (true, false), (false, true)][random.usize(..3)];
            let (held, wanted) = (Rc::clone(&lock), Rc::clone(&lock));
            let hold = move |over| {
                if holder_writes {
                    held.0.lock_write(policy)
                } else {
                    held.0.lock_read(policy)
                }
                sleep_until(over);
                if holder_writes { held.0.unlock_write() } else { held.0.unlock_read() }
            };
            let order = entered(&visitors, over, hold, move |deadline, note| {
                let lock = &wanted.0;
                let came = match deadline {
                    Some(deadline) if visitors_write => lock.lock_write_until(policy, deadline),
                    Some(deadline) => lock.lock_read_until(policy, deadline),
                    None if visitors_write => {
                        lock.lock_write(policy);
                        true
                    }
                    None => {
                        lock.lock_read(policy);
                        true
                    }
                };
                if came {
                    note();
                    work(30 * MICROSECOND);
                    if visitors_write { lock.unlock_write() } else { lock.unlock_read() }
                }
                came
            });
            assert_eq!(
                order,
                expected(&visitors),
                "{policy:?}, seed {seed}, {holder_writes} {visitors_write}: {visitors:?}"
            );
            assert!(lock.0.is_idle());
        }
    }
}

/// The policy says whether readers or writers are next, whoever is more urgent.
#[test]
fn between_readers_and_writers_the_policy_decides() {
    // Name, priority, and whether it writes.
    let comes = [("w1", 0, true), ("r1", 0, false), ("w2", 9, true), ("r2", 50, false), ("w3", 5, true)];
    let expected = [
        (PhaseFair, "w2 r2 r1 w3 w1"),
        (ReaderPreferring, "w2 r2 r1 w3 w1"),
        (WriterPreferring, "w2 w3 w1 r2 r1"),
    ];
    for (policy, expected) in expected {
        let lock = Rc::new(Alone(RawRwLock::<Sim>::new()));
        let visitors: Vec<Visitor> = (1u64..)
            .zip(comes)
            .map(|(number, (_, priority, _))| Visitor { priority, comes: 2 * number, goes: None })
            .collect();
        let (held, wanted) = (Rc::clone(&lock), Rc::clone(&lock));
        let hold = move |over| {
            held.0.lock_write(policy);
            sleep_until(over);
            held.0.unlock_write();
        };
        let next = Rc::new(Cell::new(0));
        let order = entered(&visitors, 20, hold, move |_, note| {
            // They come in the order of their numbers.
            let writes = comes[next.replace(next.get() + 1)].2;
            let lock = &wanted.0;
            if writes {
                lock.lock_write(policy)
            } else {
                lock.lock_read(policy)
            }
            note();
            work(500 * MICROSECOND);
            if writes {
                lock.unlock_write()
            } else {
                lock.unlock_read()
            }
            true
        });
        let order: Vec<_> = order.into_iter().map(|number| comes[number].0).collect();
        assert_eq!(order.join(" "), expected, "{policy:?}");
    }
}
