//! The mutex: exclusion, no lost wake-up, nothing left behind.

mod common;

use common::{Guarded, for_each_variant};
use poundlock_core::mutex::Variant;

use poundlock_model::{Model, Modelled, Report, Settings, World, explore, mutex_words};

/// What an owner word says while a sleeper that was handed the mutex has not woken.
const HANDED_OVER: u32 = u32::MAX;

/// Places that the models count.
const HAND_OVER: usize = 0;
const PASSED_OVER: usize = 1;
const WAIT_LOCK_SLEEP: usize = 2;

/// Counts hand-offs, releases that pass over a sleeper for a spinner, and sleeps for the wait lock.
fn watch<P: Modelled>(world: &World, guarded: &std::rc::Rc<Guarded<P>>) {
    let words = mutex_words(&guarded.mutex);
    world.watch(words.owner, HAND_OVER, |owner| owner == HANDED_OVER);
    let weak = std::rc::Rc::downgrade(guarded);
    world.watch(words.count, PASSED_OVER, move |count| {
        weak.upgrade().is_some_and(|guarded| {
            let words = mutex_words(&guarded.mutex);
            count == 0 && words.head.peek() != 0 && words.tail.peek() != 0
        })
    });
    world.watch_sleep(words.guard, WAIT_LOCK_SLEEP);
}

/// Locks and unlocks.
fn pass<P: Modelled, V: Variant>(guarded: &Guarded<P>) {
    guarded.mutex.lock::<V>();
    guarded.section();
    guarded.mutex.unlock::<V>();
}

/// As many threads lock as the settings say, `times` times each.
fn lockers<P: Modelled, V: Variant>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    times: u32,
) -> Report {
    explore::<P>(name, Some(preemptions), settings, move |world| {
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

for_each_variant!(two_threads, two_threads_twice, three_sleepers, three_threads);
