//! Waits for what is not acquired.

use std::sync::atomic::AtomicU32;
use std::thread;

use crate::common::{self, Lock, NOWHERE, SMALL, at, here, host, of, pair, recording, snapshot, start};
use poundlock_statfile::LockKind;
use poundlock_statfile::writer::{CallSite, Ended, Host, LockRef, Manner, Wake};

fn thing(word: &AtomicU32, kind: LockKind) -> LockRef<'_> {
    LockRef { kind, ..at(word, (&raw const *word).addr()) }
}

#[test]
fn waits_are_counted_by_kind_and_place() {
    recording!(Waiting: directory, recorder);
    let (semaphore, barrier) = (AtomicU32::new(0), AtomicU32::new(0));
    let semaphore = thing(&semaphore, LockKind::Semaphore);
    for _ in 0..5 {
        recorder.passed(semaphore);
    }
    for how in [Ended::Done, Ended::TimedOut, Ended::Refused] {
        recorder.blocks(semaphore, here());
        recorder.unblocked(how);
    }
    recorder.blocks(thing(&barrier, LockKind::Barrier), here());
    let found = snapshot(directory.path());
    let stats = of(&found, semaphore.address);
    assert_eq!((stats.kind, stats.acquisitions, stats.contended), (LockKind::Semaphore, 7, 2));
    assert_eq!((stats.timeouts, stats.hold_total_ns, stats.waited_holds), (1, 0, 0));
    let waits = found.records[0].waits.as_ref().expect("at the barrier");
    assert_eq!(waits.kind, LockKind::Barrier);
    recorder.unblocked(Ended::Done);
    let found = snapshot(directory.path());
    let thread = &found.records[0];
    assert_eq!((thread.contended, thread.lock_waits, thread.waits.is_none()), (3, 0, true));
    assert_eq!(found.lost_events, 0);
}

/// One wait for the condition variable, with its mutex, as the C library makes it.
fn wait<H: Host>(condition: LockRef<'_>, mutex: LockRef<'_>, how: Ended) {
    let recorder = H::recorder();
    recorder.waits_with(condition, mutex, NOWHERE);
    recorder.released(mutex, NOWHERE);
    recorder.unblocked(how);
    recorder.acquired(mutex, NOWHERE, Manner::LOCK);
    recorder.woken_with(condition, mutex, how);
}

#[test]
fn a_wait_right_after_a_wait_was_in_vain() {
    recording!(InVain: directory, recorder);
    let (mutex, other) = (Lock::default(), Lock::default());
    let conditions = [AtomicU32::new(0), AtomicU32::new(0)];
    let [first, second] = [0, 1].map(|n| thing(&conditions[n], LockKind::Condition));
    recorder.acquired(mutex.seen(), NOWHERE, Manner::LOCK);
    // Woken three times for nothing, and once for something.
    for _ in 0..4 {
        wait::<InVain>(first, mutex.seen(), Ended::Done);
    }
    // Another lock makes no difference.
    pair::<InVain>(other.seen());
    wait::<InVain>(first, mutex.seen(), Ended::Done);
    recorder.released(mutex.seen(), NOWHERE);
    recorder.acquired(mutex.seen(), NOWHERE, Manner::LOCK);
    // Not in vain: the mutex was free in between, or it is another condition variable, or nobody woke it.
    wait::<InVain>(first, mutex.seen(), Ended::Done);
    wait::<InVain>(second, mutex.seen(), Ended::TimedOut);
    wait::<InVain>(second, mutex.seen(), Ended::Done);
    recorder.released(mutex.seen(), NOWHERE);
    let found = snapshot(directory.path());
    let stats = of(&found, first.address);
    assert_eq!((stats.acquisitions, stats.contended, stats.in_vain), (6, 6, 4));
    assert_eq!(stats.sites.iter().map(|site| site.in_vain).sum::<u64>(), 4);
    let stats = of(&found, second.address);
    assert_eq!((stats.contended, stats.in_vain, stats.timeouts), (2, 0, 1));
    assert_eq!(of(&found, mutex.address()).acquisitions, 10);
}

#[test]
fn signals_are_told_apart_by_who_has_the_mutex() {
    recording!(Signals: directory, recorder);
    let mutex = Lock::default();
    let word = AtomicU32::new(0);
    let condition = thing(&word, LockKind::Condition);
    // Before anybody has waited it is not known what its mutex is.
    recorder.acquired(mutex.seen(), NOWHERE, Manner::LOCK);
    recorder.wakes(condition, Wake::One, NOWHERE);
    wait::<Signals>(condition, mutex.seen(), Ended::Done);
    recorder.wakes(condition, Wake::One, NOWHERE);
    recorder.wakes(condition, Wake::All, NOWHERE);
    thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| _ = recorder.wakes(condition, Wake::All, NOWHERE)));
    });
    recorder.released(mutex.seen(), NOWHERE);
    recorder.wakes(condition, Wake::One, NOWHERE);
    let found = snapshot(directory.path());
    let stats = of(&found, condition.address);
    assert_eq!((stats.signals, stats.broadcasts, stats.signals_with_mutex), (3, 4, 2));
    assert_eq!((stats.acquisitions, stats.contended), (1, 1));
}

#[test]
fn a_wait_whose_frame_is_gone_ends_with_the_next_one() {
    recording!(Gone: directory, recorder);
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let [left, next] = [0, 1].map(|n| thing(&words[n], LockKind::Semaphore));
    let site = here();
    let inner = CallSite { sp: site.sp - 4096, ..site };
    // Inside of one that goes on, none is shown.
    recorder.blocks(left, inner);
    recorder.blocks(next, CallSite { sp: inner.sp - 64, ..inner });
    recorder.unblocked(Ended::Done);
    let found = snapshot(directory.path());
    assert_eq!(found.records[0].waits.as_ref().map(|waits| waits.address), Some(left.address as u64));
    // The thread is further out now: it was cancelled.
    recorder.blocks(next, site);
    let found = snapshot(directory.path());
    assert_eq!(found.records[0].waits.as_ref().map(|waits| waits.address), Some(next.address as u64));
    recorder.unblocked(Ended::Done);
    let found = snapshot(directory.path());
    assert_eq!((of(&found, left.address).contended, of(&found, next.address).contended), (1, 1));
    assert_eq!(found.lost_events, 0);

    // And one that a thread ends in is counted.
    thread::scope(|scope| {
        let thread = scope.spawn(|| recorder.blocks(next, here()));
        thread.join().expect("no panic");
    });
    let later = common::now();
    let found = poundlock_statfile::read(&common::only_file(directory.path()), later).expect("a good file");
    assert_eq!(of(&found, next.address).contended, 2);
    assert!(found.records.iter().all(|thread| thread.waits.is_none()));
}
