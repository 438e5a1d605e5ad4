//! The hand-off mutex on Linux threads: what it promises beyond exclusion.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use poundlock_core::condvar::{Guarding, Outcome, RawCondvar, Requeued, Target};
use poundlock_core::events::Event;
use poundlock_core::handoff::{Competitive, Handoff, NoSpin, RawHandoff};
use poundlock_core::platform::{Clock, Deadline};
use poundlock_linux::{Linux, events};
use poundlock_testing::{elsewhere, until};

std::thread_local! {
    /// Hand-overs by this thread.
    static HAND_OVERS: Cell<u64> = const { Cell::new(0) };
}
static COUNTS: [AtomicU64; Event::ALL.len()] = [const { AtomicU64::new(0) }; Event::ALL.len()];

/// Counts from here on. All events of the process are counted: each test has one of its own.
fn counting() {
    events::send_to(|event, amount| {
        COUNTS[event as usize].fetch_add(amount, Relaxed);
        if event == Event::HandOver {
            HAND_OVERS.set(HAND_OVERS.get() + 1);
        }
    });
}

fn count(event: Event) -> u64 {
    COUNTS[event as usize].load(SeqCst)
}

struct Guard<'a>(&'a RawHandoff<Linux>);

impl Guarding<Linux> for Guard<'_> {
    fn mutex(&self) -> Option<Target<'_, Linux>> {
        Some(Target::Handoff(self.0))
    }
    fn release(&self) {
        self.0.unlock();
    }
    fn acquire(&self) {
        self.0.lock::<NoSpin>();
    }
    fn acquire_requeued(&self, waiter: Requeued) {
        waiter.receive(self.0);
    }
}

fn past() -> Deadline {
    Deadline { clock: Clock::Monotonic, seconds: 0, nanoseconds: 0 }
}

/// A broadcast moves the waiters to the mutex, asleep as they are; each unlock wakes the next.
#[test]
fn a_broadcast_to_a_hundred_wakes_one_an_unlock() {
    const WAITERS: u32 = 100;
    if elsewhere() {
        return;
    }
    counting();
    static MUTEX: RawHandoff<Linux> = RawHandoff::new();
    static CONDVAR: RawCondvar<Linux> = RawCondvar::new();
    static WAITING: AtomicU32 = AtomicU32::new(0);
    static OPEN: AtomicU32 = AtomicU32::new(0);
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            std::thread::spawn(|| {
                MUTEX.lock::<NoSpin>();
                WAITING.fetch_add(1, Relaxed);
                let mut waits = 0;
                while OPEN.load(Relaxed) == 0 {
                    assert_eq!(CONDVAR.wait(&Guard(&MUTEX), None, || false), Outcome::Signalled);
                    waits += 1;
                }
                let before = HAND_OVERS.get();
                MUTEX.unlock();
                (waits, HAND_OVERS.get() - before)
            })
        })
        .collect();
    // Whoever has counted itself has released the mutex, once we have it, and so is in the condition
    // variable's list.
    until("all wait", || WAITING.load(Relaxed) == WAITERS);
    MUTEX.lock::<NoSpin>();
    let before = HAND_OVERS.get();
    OPEN.store(1, Relaxed);
    CONDVAR.broadcast();
    assert_eq!(count(Event::LockSent), u64::from(WAITERS));
    assert_eq!(HAND_OVERS.get(), before, "woken while the mutex is held");
    MUTEX.unlock();
    let mut woken = HAND_OVERS.get() - before;
    assert_eq!(woken, 1);
    for waiter in waiters {
        let (waits, hand_overs) = waiter.join().unwrap();
        assert_eq!(waits, 1, "woken in vain");
        assert!(hand_overs <= 1);
        woken += hand_overs;
    }
    // One by our unlock, and one by that of each but the last of them.
    assert_eq!(woken, u64::from(WAITERS));
}

/// Who gives up again and again at a lock that is held uses one node for it, and leaves the lock as it was.
#[test]
fn waits_are_taken_up_again() {
    if elsewhere() {
        return;
    }
    counting();
    let mutex = RawHandoff::<Linux>::new();
    mutex.lock::<NoSpin>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                assert!(!mutex.lock_until::<NoSpin>(&past()));
            }
        });
    });
    assert_eq!(count(Event::GaveUp), 50);
    assert_eq!(count(Event::TakenUp), 49);
    assert!(mutex.is_locked());
    mutex.unlock();
    assert!(!mutex.is_locked());
    assert!(mutex.try_lock());
    mutex.unlock();
}

/// More locks than spare nodes: the wait becomes a poll.
#[test]
fn giving_up_at_many_locks() {
    if elsewhere() {
        return;
    }
    counting();
    let mutexes: Vec<_> = (0..20).map(|_| RawHandoff::<Linux>::new()).collect();
    for mutex in &mutexes {
        mutex.lock::<NoSpin>();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for mutex in &mutexes {
                assert!(!mutex.lock_until::<NoSpin>(&past()));
            }
        });
    });
    assert!(count(Event::GaveUp) < 20);
    for mutex in &mutexes {
        mutex.unlock();
        assert!(mutex.try_lock());
        mutex.unlock();
    }
}

#[test]
fn the_owner_may_come_again() {
    if elsewhere() {
        return;
    }
    counting();
    let mutex = Handoff::<Linux>::new();
    assert!(!mutex.owned());
    mutex.lock::<Competitive>();
    assert!(mutex.try_lock());
    assert!(mutex.lock_until::<Competitive>(&past()));
    assert!(mutex.owned());
    assert_eq!(mutex.depth(), 3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!mutex.owned());
            assert!(!mutex.try_lock());
            assert!(!mutex.lock_until::<Competitive>(&past()));
        });
    });
    for left in (0..3).rev() {
        mutex.unlock();
        assert_eq!(mutex.depth(), left);
    }
    assert!(!mutex.owned());
}
