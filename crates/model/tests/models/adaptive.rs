//! The mutex: exclusion, no lost wake-up, nothing left behind.

use crate::common::{Guarded, for_each_variant};
use poundlock_core::adaptive::Variant;
use poundlock_core::waiting::Failure;

use poundlock_model::{Model, Modelled, Patient, Report, Settings, World, adaptive_words, explore};

/// What an owner word says while a sleeper that was handed the mutex has not woken.
const HANDED_OVER: u32 = u32::MAX;

/// Places that the models count.
const HAND_OVER: usize = 0;
const PASSED_OVER: usize = 1;
const WAIT_LOCK_SLEEP: usize = 2;

/// Counts hand-offs, releases that bypass a sleeper for a spinner, and sleeps for the wait lock.
fn watch<P: Modelled>(world: &World, guarded: &std::rc::Rc<Guarded<P>>) {
    let words = adaptive_words(&guarded.mutex);
    world.watch(words.owner, HAND_OVER, |owner| owner == HANDED_OVER);
    let weak = std::rc::Rc::downgrade(guarded);
    world.watch(words.count, PASSED_OVER, move |count| {
        weak.upgrade().is_some_and(|guarded| {
            let words = adaptive_words(&guarded.mutex);
            count == 0 && words.head.peek() != 0 && words.tail.peek() != 0
        })
    });
    world.watch_sleep(words.wait_lock, WAIT_LOCK_SLEEP);
}

/// Locks and unlocks.
fn pass<P: Modelled, V: Variant>(guarded: &Guarded<P>) {
    guarded.mutex.lock::<V>();
    guarded.section();
    guarded.mutex.unlock::<V>();
}

/// Thread 1 sleeps in the list, thread 2 comes to spin while the main thread unlocks, which may bypass the
/// sleeper: the spinner has to see to it then, whether it acquires or gives up.
pub(crate) fn bypassing<P: Modelled, V: Variant>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    blind: bool,
) -> Report {
    let settings = Settings { threads: 3, ..settings };
    explore::<P>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<P>::new();
        watch(world, &guarded);
        if blind {
            let words = adaptive_words(&guarded.mutex);
            world.make_blind(words.head, words.wait_lock);
        }
        let start = |index| {
            let guarded = guarded.clone();
            world.spawn(index, move |_| pass::<P, V>(&guarded))
        };
        let sleeper = world.unexplored(|| {
            guarded.mutex.lock::<V>();
            let sleeper = start(1);
            world.await_sleep(1);
            sleeper
        });
        let spinner = start(2);
        // It queues.
        loom::thread::yield_now();
        guarded.section();
        guarded.mutex.unlock::<V>();
        sleeper.join().unwrap();
        spinner.join().unwrap();
        guarded.finish(3);
    })
}

/// The main thread holds the mutex and the others sleep; it unlocks, and locks once more.
pub(crate) fn woken_in_turn<P: Modelled, V: Variant>(
    name: &str,
    preemptions: usize,
    settings: Settings,
) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<P>::new();
        watch(world, &guarded);
        let others: Vec<_> = world.unexplored(|| {
            guarded.mutex.lock::<V>();
            (1..settings.threads as u32)
                .map(|index| {
                    let guarded = guarded.clone();
                    let other = world.spawn(index, move |_| pass::<P, V>(&guarded));
                    world.await_sleep(index);
                    other
                })
                .collect()
        });
        let waiters = others.len() as u32;
        guarded.section();
        guarded.mutex.unlock::<V>();
        pass::<P, V>(&guarded);
        for other in others {
            other.join().unwrap();
        }
        guarded.finish(2 + waiters);
    })
}

/// As many threads lock as the settings say, `times` times each.
pub(crate) fn lockers<P: Modelled, V: Variant>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    times: u32,
) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<P>::new();
        watch(world, &guarded);
        let threads = settings.threads as u32;
        let others: Vec<_> = (1..threads)
            .map(|index| {
                let guarded = guarded.clone();
                world.spawn(index, move |_| (0..times).for_each(|_| pass::<P, V>(&guarded)))
            })
            .collect();
        (0..times).for_each(|_| pass::<P, V>(&guarded));
        for other in others {
            other.join().unwrap();
        }
        guarded.finish(threads * times);
    })
}

fn two_threads<V: Variant>(name: &str) {
    let report = lockers::<Model, V>(name, 3, Settings::default(), 1);
    assert!(report.sleeps > 0 && report.woken > 0);
}

/// Barging newcomers, woken sleepers that find the mutex taken again, and hand-offs.
fn two_threads_twice<V: Variant>(name: &str) {
    let report = lockers::<Model, V>(name, 2, Settings::default(), 2);
    assert!(report.sleeps > 0);
}

/// Nobody spins: every waiter goes to the list, and they meet at the wait lock.
fn three_sleepers<V: Variant>(name: &str) {
    let report = lockers::<Model, V>(name, 1, Settings { threads: 3, spins: 0, ..Settings::default() }, 1);
    assert!(report.sleeps > 0);
}

fn three_threads<V: Variant>(name: &str) {
    lockers::<Model, V>(name, 1, Settings { threads: 3, ..Settings::default() }, 1);
}

/// Sleeps end at once for no reason, twice a thread.
fn restless<V: Variant>(name: &str) {
    lockers::<Model, V>(name, 2, Settings { restless: 2, ..Settings::default() }, 1);
}

/// Both threads run on one CPU: whoever waits displaces the owner, and knows it.
fn displaced<V: Variant>(name: &str) {
    let settings = Settings { threads: 3, tags: [1; 5], ..Settings::default() };
    let report = lockers::<Patient, V>(name, 1, settings, 1);
    assert!(report.sleeps > 0);
}

/// A thread without a record may neither queue nor sleep.
fn polling<V: Variant>(name: &str) {
    lockers::<Model, V>(name, 3, Settings { unregistered: 2, ..Settings::default() }, 1);
}

/// The first sleep of a mutex that was released by plain stores until then.
fn first_sleep<V: Variant>(name: &str) {
    let settings = Settings { spins: 0, plain_release: true, ..Settings::default() };
    let report = lockers::<Model, V>(name, 2, settings, 1);
    assert!(report.restarted > 0);
}

/// The same where fences are refused, so that a plain release may come after the first sleeper. It looks
/// now and then.
fn refused<V: Variant>(name: &str) {
    let settings = Settings { spins: 0, plain_release: true, refused: true, ..Settings::default() };
    assert!(lockers::<Model, V>(name, 2, settings, 1).timed_waits > 0);
}

/// The main thread barges in on two that were woken, and they are handed the mutex.
fn barging_and_hand_over<V: Variant>(name: &str) {
    let report = woken_in_turn::<Model, V>(name, 2, SLEEPERS);
    assert!(report.reached[HAND_OVER] > 0);
}

/// The same without hand-offs: attempts in vain again and again.
fn barging<V: Variant>(name: &str) {
    let report = woken_in_turn::<Patient, V>(name, 2, SLEEPERS);
    assert_eq!(report.reached[HAND_OVER], 0);
}

fn passed_over<V: Variant>(name: &str) {
    let report = bypassing::<Model, V>(name, 1, Settings::default(), false);
    assert_eq!(report.reached[PASSED_OVER] > 0, V::queues_spinners());
}

fn passed_over_for_one_who_gives_up<V: Variant>(name: &str) {
    // On the main thread's CPU: it sees that and leaves the queue, or the headship, at once.
    let settings = Settings { tags: [1, 2, 1, 0, 0], ..Settings::default() };
    bypassing::<Patient, V>(name, 1, settings, false);
}

fn try_lock<V: Variant>(name: &str) {
    let report = explore::<Model>(name, 3, Settings::default(), |world| {
        let guarded = Guarded::<Model>::new();
        let other = world.spawn(1, {
            let guarded = guarded.clone();
            move |world: &World| {
                if !guarded.mutex.try_lock() {
                    world.reached(0);
                    return 0;
                }
                guarded.section();
                guarded.mutex.unlock::<V>();
                1
            }
        });
        pass::<Model, V>(&guarded);
        let tried = other.join().unwrap();
        guarded.finish(1 + tried);
    });
    assert!(report.reached[0] > 0 && report.reached[0] < report.executions);
}

/// How the waiter that may give up waits, and what makes it.
#[derive(Clone, Copy)]
enum End {
    /// Its deadline passes before the unlock begins, or while it is under way.
    ExpiredBefore,
    /// Its deadline passes after the unlock, while it is on its way to the mutex.
    ExpiredAfter,
    /// Its deadline was in the past.
    Past,
    /// A signal handler runs.
    Interrupted,
}

impl End {
    fn interrupts(self) -> bool {
        matches!(self, End::Interrupted)
    }
}

/// The main thread holds the mutex. Thread 1 waits and may give up; the others wait for as long as it takes.
/// Who gives up leaves no trace, and no wake-up that was meant for the others goes with it.
///
/// With `settled`, all of them sleep before the end comes.
fn giving_up<P: Modelled, V: Variant>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    settled: bool,
    end: End,
) -> Report {
    const GAVE_UP: usize = 3;
    let report = explore::<P>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<P>::new();
        watch(world, &guarded);
        let impatient = |world: &World| {
            let guarded = guarded.clone();
            world.spawn(1, move |world: &World| {
                let result = match end {
                    End::ExpiredBefore | End::ExpiredAfter => guarded.mutex.lock_until::<V>(&world.timer(0)),
                    End::Past => guarded.mutex.lock_until::<V>(&world.past()),
                    End::Interrupted => guarded.mutex.lock_interruptible::<V>(),
                };
                match result {
                    Ok(()) => {
                        guarded.section();
                        guarded.mutex.unlock::<V>();
                        1
                    }
                    Err(why) => {
                        let expected =
                            if end.interrupts() { Failure::Interrupted } else { Failure::TimedOut };
                        assert_eq!(why, expected);
                        world.reached(GAVE_UP);
                        0
                    }
                }
            })
        };
        let patient = |world: &World, index| {
            let guarded = guarded.clone();
            world.spawn(index, move |_| pass::<P, V>(&guarded))
        };
        let others = 2..settings.threads as u32;
        let (impatient, patient) = if settled {
            world.unexplored(|| {
                guarded.mutex.lock::<V>();
                let impatient = impatient(world);
                world.await_sleep(1);
                let patient: Vec<_> = others
                    .map(|index| {
                        let waiter = patient(world, index);
                        world.await_sleep(index);
                        waiter
                    })
                    .collect();
                (impatient, patient)
            })
        } else {
            guarded.mutex.lock::<V>();
            (impatient(world), others.map(|index| patient(world, index)).collect())
        };
        match end {
            End::ExpiredBefore => world.expire(0),
            End::Interrupted => world.interrupt(1),
            End::ExpiredAfter | End::Past => {}
        }
        if settled {
            // Lets it give up before the unlock, unless it is preempted.
            loom::thread::yield_now();
        }
        guarded.section();
        guarded.mutex.unlock::<V>();
        if matches!(end, End::ExpiredAfter) {
            world.expire(0);
        }
        let waiters = patient.len() as u32;
        let got = impatient.join().unwrap();
        for waiter in patient {
            waiter.join().unwrap();
        }
        guarded.finish(1 + waiters + got);
    });
    assert!(matches!(end, End::ExpiredAfter) || report.reached[GAVE_UP] > 0, "nobody gave up");
    assert!(report.reached[GAVE_UP] < report.executions, "everybody gave up");
    report
}

const ALONE: Settings = Settings { spins: 0, ..Settings::DEFAULT };
const SLEEPERS: Settings = Settings { threads: 3, spins: 0, ..Settings::DEFAULT };

fn times_out_before_unlock<V: Variant>(name: &str) {
    giving_up::<Model, V>(name, 2, ALONE, false, End::ExpiredBefore);
}

fn times_out_after_unlock<V: Variant>(name: &str) {
    giving_up::<Model, V>(name, 2, ALONE, false, End::ExpiredAfter);
}

fn was_out_of_time<V: Variant>(name: &str) {
    giving_up::<Model, V>(name, 2, ALONE, false, End::Past);
}

fn interrupted<V: Variant>(name: &str) {
    giving_up::<Model, V>(name, 3, ALONE, true, End::Interrupted);
}

fn times_out_before_another<V: Variant>(name: &str) {
    giving_up::<Patient, V>(name, 2, SLEEPERS, true, End::ExpiredBefore);
}

fn times_out_woken_before_another<V: Variant>(name: &str) {
    giving_up::<Patient, V>(name, 2, SLEEPERS, true, End::ExpiredAfter);
}

fn interrupted_before_another<V: Variant>(name: &str) {
    giving_up::<Model, V>(name, 2, SLEEPERS, true, End::Interrupted);
}

for_each_variant!(
    two_threads,
    two_threads_twice,
    three_sleepers,
    three_threads,
    restless,
    displaced,
    polling,
    first_sleep,
    refused,
    barging_and_hand_over,
    barging,
    passed_over,
    passed_over_for_one_who_gives_up,
    try_lock,
    times_out_before_unlock,
    times_out_after_unlock,
    was_out_of_time,
    interrupted,
    times_out_before_another,
    times_out_woken_before_another,
    interrupted_before_another,
);
