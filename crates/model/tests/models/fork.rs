//! Locks in a forked child, which name threads that do not exist there. Those are the threads from 19 on
//! here: a model fails when it follows such a name, for there is no such record.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::{Guarded, for_each_variant};
use poundlock_core::adaptive::{AnyNegative, RawAdaptive, Variant};
use poundlock_core::condvar::{Plain, RawCondvar};
use poundlock_core::platform::Atomic;
use poundlock_model::{Model, Settings, adaptive_words, condvar_words, explore};

/// A child whose parent was not forked itself.
const CHILD: Settings = Settings { spins: 0, epoch: 7, ..Settings::DEFAULT };
const GHOST: u32 = 77;
const LOCKED: u32 = 1 << 31;
const CONTENDED: u32 = 1 << 30;
const BIAS_REVOKED: u32 = 1 << 29;
const REVOKING: u32 = 1 << 28;
const CLEARING: u32 = 1 << 27;

/// What the other threads of the parent were about when it forked.
fn haunt(mutex: &RawAdaptive<Model>, wait_lock: u32) {
    let words = adaptive_words(mutex);
    words.tail.store(GHOST, Relaxed);
    words.head.store(GHOST + 1, Relaxed);
    words.wait_lock.store(wait_lock, Relaxed);
}

fn pass<V: Variant>(guarded: &Guarded<Model>) {
    guarded.mutex.lock::<V>();
    guarded.section();
    guarded.mutex.unlock::<V>();
}

/// Two threads of the child come to the mutex at once.
fn free<V: Variant>(name: &str, wait_lock: u32) {
    let report = explore::<Model>(name, 2, CHILD, move |world| {
        let guarded = Guarded::<Model>::new();
        haunt(&guarded.mutex, wait_lock);
        let other = world.spawn(1, {
            let guarded = guarded.clone();
            move |_| pass::<V>(&guarded)
        });
        pass::<V>(&guarded);
        other.join().unwrap();
        if adaptive_words(&guarded.mutex).wait_lock.peek() & 0xff != CHILD.epoch {
            // Nobody had to wait, so nobody looked at what is there.
            assert_eq!(guarded.section(), 2);
            return;
        }
        world.reached(0);
        guarded.finish(2);
    });
    assert!(report.reached[0] > 0 && report.woken > 0);
}

fn in_its_slow_path<V: Variant>(name: &str) {
    free::<V>(name, LOCKED | CONTENDED | BIAS_REVOKED | 3);
}

fn in_its_clearing<V: Variant>(name: &str) {
    free::<V>(name, CLEARING | 3);
}

fn in_its_first_sleep<V: Variant>(name: &str) {
    free::<V>(name, REVOKING);
}

/// The thread that forked holds the mutex, and others waited for it: its unlock goes through what they left,
/// while a new thread comes.
fn held<V: Variant>(name: &str) {
    let report = explore::<Model>(name, 2, CHILD, move |world| {
        let guarded = Guarded::<Model>::new();
        guarded.mutex.lock::<V>();
        haunt(&guarded.mutex, LOCKED | CONTENDED | BIAS_REVOKED | 3);
        adaptive_words(&guarded.mutex).count.store(3, Relaxed);
        let other = world.spawn(1, {
            let guarded = guarded.clone();
            move |_| pass::<V>(&guarded)
        });
        guarded.section();
        guarded.mutex.unlock::<V>();
        other.join().unwrap();
        guarded.finish(2);
    });
    assert!(report.woken > 0);
}

for_each_variant!(in_its_slow_path, in_its_clearing, in_its_first_sleep, held);

/// A condition variable in which threads of the parent wait, and whose lock one of them held.
#[test]
fn a_condition_variable() {
    for (name, left) in [("a condition variable", 3), ("a condition variable in its clearing", 3 | CLEARING)]
    {
        let report = explore::<Model>(name, 1, CHILD, move |world| {
            let guarded = Guarded::<Model>::new();
            let condvar = Rc::new(RawCondvar::<Model>::default());
            let [wait_lock, head] = condvar_words(&condvar);
            wait_lock.store(LOCKED | CONTENDED | left, Relaxed);
            head.store(GHOST, Relaxed);
            let waiter = world.spawn(1, {
                let (guarded, condvar) = (guarded.clone(), condvar.clone());
                move |_| {
                    guarded.mutex.lock::<AnyNegative>();
                    // The signal comes with the first section.
                    while guarded.section() == 0 {
                        let plain = Plain::<_, AnyNegative>::new(&guarded.mutex);
                        let _ = condvar.wait(&plain, None, || false);
                    }
                    guarded.mutex.unlock::<AnyNegative>();
                }
            });
            guarded.mutex.lock::<AnyNegative>();
            let waits = guarded.section() == 1;
            guarded.mutex.unlock::<AnyNegative>();
            condvar.signal();
            waiter.join().unwrap();
            guarded.finish(2 + u32::from(waits));
            assert!(condvar.is_idle());
        });
        assert!(report.woken > 0);
    }
}
