//! What is counted is what happened: by lock, by thread, by place.

use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    self, Lock, NOWHERE, SMALL, aggregate, at, contended_pair, here, host, of, pair, recording, snapshot,
    start,
};
use poundlock_statfile::writer::{CallSite, Host, Manner, Options};
use poundlock_statfile::{ArrayEnd, ArrayStats, LockKind, LockStats};

#[test]
fn sums_over_threads_are_exact() {
    recording!(Sums: directory, recorder);
    let locks: Vec<Lock> = (0..100).map(|_| Lock::default()).collect();
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for thread in 0..8u32 {
            let (locks, barrier) = (&locks, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..1000u32 {
                    for (n, lock) in locks.iter().enumerate() {
                        if round % (n as u32 + 1) == thread {
                            contended_pair::<Sums>(lock.seen(), here());
                        } else {
                            pair::<Sums>(lock.seen());
                        }
                    }
                }
            });
        }
    });
    recorder.finish();

    let found = snapshot(directory.path());
    assert_eq!((found.threads, found.locks.len(), found.dropped_locks, found.lost_events), (8, 100, 0, 0));
    assert_eq!((found.pid, found.lock.as_str()), (std::process::id(), "test-lock"));
    assert_eq!(found.rwlock, "test-rwlock");
    assert_eq!(found.exe, std::env::current_exe().expect("a name").to_str().expect("in UTF-8"));
    for (n, lock) in locks.iter().enumerate() {
        let stats = of(&found, lock.address());
        let waits = (0..8).flat_map(|t| (0..1000u32).filter(move |r| r % (n as u32 + 1) == t)).count() as u64;
        assert_eq!((stats.acquisitions, stats.contended, stats.kind), (8000, waits, LockKind::Mutex));
        // All threads wait at one place, by the same callers.
        let sites: Vec<u64> = stats.sites.iter().map(|site| site.contended).collect();
        assert_eq!(sites, [waits]);
        assert!(stats.wait_max_ns <= stats.wait_total_ns && stats.hold_max_ns <= stats.hold_total_ns);
        assert!(stats.created_at.is_empty());
    }
    let order: Vec<u64> = found.locks.iter().map(|lock| lock.wait_total_ns).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "most waiting first");
}

#[test]
fn threads_need_no_lock() {
    recording!(Uncounting: directory, recorder);
    for _ in 0..3 {
        recorder.thread_started();
    }
    let found = snapshot(directory.path());
    assert_eq!((found.started, found.threads), (3, 0));
    assert!(found.locks.is_empty() && found.lost_events == 0);
}

/// A wait and a hold as long as measured around them, within what the two clocks may differ.
fn times_are_true<H: Host>(options: Options) {
    let directory = tempfile::tempdir().expect("a directory");
    let recorder = start::<H>(directory.path(), options);
    let lock = Lock::default();
    pair::<H>(lock.seen());

    let measure = |inner: &mut Duration| {
        let start = Instant::now();
        thread::sleep(Duration::from_millis(20));
        *inner = start.elapsed();
    };
    let (mut waited, mut held) = (Duration::ZERO, Duration::ZERO);
    let start = Instant::now();
    let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
    measure(&mut waited);
    recorder.acquired_after_wait(lock.seen(), wait, NOWHERE, Manner::LOCK);
    let waited_at_most = start.elapsed();
    let start = Instant::now();
    recorder.acquired(lock.seen(), NOWHERE, Manner::LOCK);
    measure(&mut held);
    recorder.released(lock.seen(), common::NOWHERE);
    let held_at_most = start.elapsed();
    recorder.finish();

    let found = snapshot(directory.path());
    let stats = of(&found, lock.address());
    let within = |ns: u64, least: Duration, most: Duration| {
        let (least, most) = (least.as_nanos() as u64, most.as_nanos() as u64);
        assert!(ns >= least - least / 200 && ns <= most + most / 200, "{least} <= {ns} <= {most}");
    };
    within(stats.wait_total_ns, waited, waited_at_most);
    within(stats.wait_max_ns, waited, waited_at_most);
    within(stats.hold_max_ns, held, held_at_most);
    assert!(found.thread_time_ns >= stats.wait_total_ns + stats.hold_max_ns);
}

#[test]
fn the_longest_can_begin_anew() {
    host!(Anew);
    let directory = tempfile::tempdir().expect("a directory");
    // Whose rate is not measured anew, so that two readings are the same.
    let recorder = start::<Anew>(directory.path(), Options { plain_clock: true, ..SMALL });
    let lock = Lock::default();
    let wait_and_hold = || {
        let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
        thread::sleep(Duration::from_millis(1));
        recorder.acquired_after_wait(lock.seen(), wait, NOWHERE, Manner::LOCK);
        thread::sleep(Duration::from_millis(1));
        recorder.released(lock.seen(), common::NOWHERE);
    };
    let read = || of(&snapshot(directory.path()), lock.address()).clone();
    let longest_event = || snapshot(directory.path()).durations[2].max_ns;
    recorder.duration(2, 1000);
    (0..3).for_each(|_| wait_and_hold());
    let before = read();
    assert!(before.wait_max_ns >= 1_000_000 && before.hold_max_ns >= 1_000_000, "{before:?}");
    assert_eq!(longest_event(), 1000);
    poundlock_statfile::forget_longest(&common::only_file(directory.path())).expect("it can be written");
    let after = read();
    assert_eq!((after.wait_max_ns, after.hold_max_ns, longest_event()), (0, 0, 0));
    let sums = |stats: &LockStats| (stats.wait_total_ns, stats.hold_total_ns, stats.contended);
    assert_eq!(sums(&after), sums(&before));
    wait_and_hold();
    recorder.duration(2, 10);
    assert_eq!(longest_event(), 10);
    let last = read();
    // Each sum is rounded down.
    assert!(last.wait_max_ns.abs_diff(last.wait_total_ns - before.wait_total_ns) <= 1, "{before:?} {last:?}");
    assert!(last.hold_max_ns >= 1_000_000, "{last:?}");
}

#[test]
fn times_are_true_by_the_best_clock() {
    host!(BestClock);
    times_are_true::<BestClock>(SMALL);
}

#[test]
fn times_are_true_by_the_plain_clock() {
    host!(PlainClock);
    times_are_true::<PlainClock>(Options { plain_clock: true, ..SMALL });
}

#[test]
fn the_time_of_ended_threads_is_theirs() {
    // By the clock that the test goes by: how long they lived is asked for, not how true a counter's rate is.
    recording!(Lives: directory, _, Options { plain_clock: true, ..SMALL });
    let lock = Lock::default();
    let (mut least, mut most) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..3 {
        let start = Instant::now();
        let body = || {
            pair::<Lives>(lock.seen());
            let start = Instant::now();
            thread::sleep(Duration::from_millis(5));
            start.elapsed()
        };
        least += thread::scope(|scope| scope.spawn(body).join().expect("no panic"));
        most += start.elapsed();
    }
    let found = snapshot(directory.path());
    let (least, most) = (least.as_nanos() as u64, most.as_nanos() as u64);
    let lived = found.thread_time_ns;
    // A thread's CPU may read the clock some microseconds apart from ours.
    assert!(lived >= least - least / 200 && lived <= most + most / 200, "{least} <= {lived} <= {most}");
}

#[test]
fn a_wait_without_the_lock_counts_and_a_refusal_does_not() {
    recording!(Timeouts: directory, recorder);
    let (timed, refused) = (Lock::default(), Lock::default());
    for _ in 0..3 {
        let wait = recorder.wait_begin(timed.seen(), here(), Manner::LOCK);
        recorder.abandoned_wait(timed.seen(), wait);
    }
    pair::<Timeouts>(refused.seen());
    drop(recorder.wait_begin(refused.seen(), here(), Manner::LOCK));

    let found = snapshot(directory.path());
    let stats = of(&found, timed.address());
    assert_eq!((stats.acquisitions, stats.contended, stats.hold_total_ns), (0, 3, 0));
    assert_eq!(stats.sites.iter().map(|site| site.contended).sum::<u64>(), 3);
    let stats = of(&found, refused.address());
    assert_eq!((stats.acquisitions, stats.contended, stats.sites.len()), (1, 0, 0));
}

#[test]
fn a_wait_that_goes_on_is_in_the_report() {
    recording!(Going: directory, recorder);
    let lock = Lock::default();
    let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
    let file = common::only_file(directory.path());
    let later = common::now() + 5_000_000_000;
    let found = poundlock_statfile::read(&file, later).expect("a good file");
    let stats = of(&found, lock.address());
    assert_eq!((stats.acquisitions, stats.contended, stats.sites.len()), (0, 1, 1));
    assert!(stats.wait_total_ns >= 4_990_000_000, "{}", stats.wait_total_ns);
    assert_eq!(stats.sites[0].wait_ns, stats.wait_total_ns);
    recorder.acquired_after_wait(lock.seen(), wait, NOWHERE, Manner::LOCK);
    let found = poundlock_statfile::read(&file, later).expect("a good file");
    let stats = of(&found, lock.address());
    assert_eq!((stats.acquisitions, stats.contended), (1, 1));
    assert!(stats.wait_total_ns < 4_000_000_000, "{}", stats.wait_total_ns);
}

host!(Places);

/// Waits, always here, as the exported C function sees it: where its caller goes on, and its stack pointer
/// there. Returns the stack pointer.
#[inline(never)]
fn at_one_place(lock: &Lock) -> usize {
    let site = here();
    contended_pair::<Places>(lock.seen(), site);
    site.sp
}

/// These two have frames of the same size.
#[inline(never)]
fn one(lock: &Lock) -> usize {
    std::hint::black_box(at_one_place(lock)) + 1
}

#[inline(never)]
fn two(lock: &Lock) -> usize {
    std::hint::black_box(at_one_place(lock)) + 2
}

#[inline(never)]
fn deep(lock: &Lock, depth: u32) -> usize {
    if depth == 0 { one(lock) } else { std::hint::black_box(deep(lock, depth - 1)) + 1 }
}

#[test]
fn sites_are_told_apart_by_their_callers() {
    let directory = tempfile::tempdir().expect("a directory");
    let recorder = start::<Places>(directory.path(), SMALL);
    let (lock, other) = (Lock::default(), Lock::default());
    let mut pointers = Vec::new();
    // Through a table, so that all are called from one instruction.
    let functions = std::hint::black_box([one as fn(&Lock) -> usize, two, one]);
    for round in 0..300 {
        pointers.push(functions[round % 3](&lock) & !15);
        if round % 6 == 0 {
            one(&other);
        }
    }
    for depth in 0..5 {
        deep(&other, depth);
    }
    let found = snapshot(directory.path());

    // What makes this a test: all calls of `one` and `two` look the same but for the return address.
    assert!(pointers.iter().all(|sp| *sp == pointers[0]), "the frames are of one size");
    let inside = |pc: u64, function: usize| (function as u64..function as u64 + 64).contains(&pc);
    let stats = of(&found, lock.address());
    assert_eq!(stats.sites.len(), 2);
    for (function, waits) in [(one as *const () as usize, 200), (two as *const () as usize, 100)] {
        let mut sites = stats.sites.iter().filter(|site| inside(site.stack[1], function));
        let site = sites.next().expect("a site for each caller");
        assert_eq!(site.contended, waits);
        assert!(inside(site.stack[0], at_one_place as *const () as usize));
    }
    // 50 from the loop, one at each depth: other stacks, though they begin alike.
    let mut waits: Vec<u64> = of(&found, other.address()).sites.iter().map(|site| site.contended).collect();
    waits.sort_unstable();
    assert_eq!(waits, [1, 1, 1, 1, 1, 50]);
    recorder.finish();
}

#[test]
fn a_place_that_was_forgotten_is_the_same_stack_again() {
    // More than a thread remembers.
    const PLACES: usize = 17_000;
    recording!(Forgotten: directory, _recorder, Options { stacks: 1 << 15, ..SMALL });
    let lock = Lock::default();
    for _ in 0..2 {
        for number in 0..PLACES {
            // Further out than all that is on the stack: nothing lies around it.
            contended_pair::<Forgotten>(lock.seen(), CallSite { pc: 0x1000 + number, sp: usize::MAX / 2 });
        }
    }
    let found = snapshot(directory.path());
    let sites = &of(&found, lock.address()).sites;
    assert_eq!(sites.len(), PLACES);
    assert!(sites.iter().all(|site| site.contended == 2 && site.stack.len() == 1));
}

host!(Branches);

/// Calls through tables, so that a stack has one of two functions at each of several depths.
#[inline(never)]
fn branch(lock: &Lock, ways: u32, depth: u32) -> usize {
    if depth == 0 {
        let site = here();
        contended_pair::<Branches>(lock.seen(), site);
        return site.sp;
    }
    let next = std::hint::black_box([branch_left as fn(&Lock, u32, u32) -> usize, branch_right]);
    next[(ways & 1) as usize](lock, ways >> 1, depth - 1) + 1
}

#[inline(never)]
fn branch_left(lock: &Lock, ways: u32, depth: u32) -> usize {
    std::hint::black_box(branch(lock, ways, depth)) + 1
}

#[inline(never)]
fn branch_right(lock: &Lock, ways: u32, depth: u32) -> usize {
    std::hint::black_box(branch(lock, ways, depth)) + 2
}

#[test]
fn many_ways_to_one_place_are_told_apart() {
    const DEPTH: u32 = 6;
    let directory = tempfile::tempdir().expect("a directory");
    start::<Branches>(directory.path(), SMALL);
    let lock = Lock::default();
    for round in 1..=2u64 {
        // In an order in which neighbours differ in many frames.
        for ways in (0..1 << DEPTH).map(|ways: u32| ways.wrapping_mul(27) % (1 << DEPTH)) {
            branch(&lock, ways, DEPTH);
        }
        let found = snapshot(directory.path());
        let sites = &of(&found, lock.address()).sites;
        assert_eq!(sites.len(), 1 << DEPTH);
        assert!(sites.iter().all(|site| site.contended == round));
        // Each is one of the 64, and no two are the same.
        let (left, right) = (branch_left as *const () as u64, branch_right as *const () as u64);
        let sides = |stack: &[u64]| {
            // How far into a function an address lies; the nearest is the one that it is in.
            let far = |pc: u64, function| pc.checked_sub(function).filter(|far| *far < 64);
            let side = |&pc: &u64| {
                let sides = [(left, 'l'), (right, 'r')];
                sides.into_iter().filter_map(|(function, side)| Some((far(pc, function)?, side))).min()
            };
            stack.iter().filter_map(side).map(|(_, side)| side).collect::<String>()
        };
        let ways: std::collections::BTreeSet<String> = sites.iter().map(|site| sides(&site.stack)).collect();
        assert_eq!(ways.len(), 1 << DEPTH);
        assert!(ways.iter().all(|way| way.len() == DEPTH as usize));
    }
}

#[test]
fn an_initialised_lock_shows_where() {
    host!(Created);
    #[inline(never)]
    fn initialise(lock: &Lock) -> CallSite {
        let site = here();
        Created::recorder().created(lock.seen(), site);
        site
    }
    let directory = tempfile::tempdir().expect("a directory");
    start::<Created>(directory.path(), SMALL);
    let locks: Vec<Lock> = (0..10u32)
        // What was in the memory before does not matter.
        .map(|n| Lock { word: AtomicU32::new(n.wrapping_mul(0x1234_5679)) })
        .collect();
    let sites: Vec<CallSite> = locks.iter().map(initialise).collect();
    for lock in &locks {
        pair::<Created>(lock.seen());
    }
    let found = snapshot(directory.path());
    for (lock, site) in locks.iter().zip(sites) {
        let stats = of(&found, lock.address());
        assert_eq!(stats.created_at[0], site.pc as u64);
        assert!(stats.created_at.len() > 1, "and what called it");
        let module = found.module_at(stats.created_at[0]).expect("its module is known");
        assert_eq!(module.path, found.exe);
    }
}

#[test]
fn modules_hold_code_and_data() {
    static DATA: AtomicU32 = AtomicU32::new(7);
    // Larger than a page, so that most of it lies behind what the file holds.
    static ZERO: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];
    recording!(Modules: directory, _);
    let found = snapshot(directory.path());
    let path_of = |address: usize| found.module_at(address as u64).map(|module| module.path.clone());
    assert_eq!(path_of(modules_hold_code_and_data as *const () as usize), Some(found.exe.clone()));
    assert_eq!(path_of(&raw const DATA as usize), Some(found.exe.clone()));
    assert_eq!(path_of(&raw const ZERO[1 << 15] as usize), Some(found.exe.clone()));
    assert!(path_of(libc::getpid as *const () as usize).expect("libc is mapped").contains("libc"));
    assert_eq!(path_of(&raw const found as usize), None, "the stack is no file's");
    DATA.store(ZERO[DATA.load(Relaxed) as usize].load(Relaxed), Relaxed);
}

#[test]
fn a_destroyed_lock_stays_in_the_report() {
    recording!(Destroyed: directory, recorder);
    let lock = Lock::default();
    recorder.created(lock.seen(), here());
    pair::<Destroyed>(lock.seen());
    recorder.destroyed(lock.seen(), NOWHERE);
    assert_eq!(lock.word.load(Relaxed), 0);
    let found = snapshot(directory.path());
    assert_eq!(of(&found, lock.address()).acquisitions, 1);
    assert!(!of(&found, lock.address()).created_at.is_empty());
}

#[test]
fn slots_of_destroyed_locks_are_used_again() {
    recording!(Recycled: directory, recorder, Options { recycle_after: 100, ..SMALL });
    let word = AtomicU32::new(0);
    let site = here();
    let address = |n: usize| 0x10_0000 + 64 * n;
    // Far more locks than slots; a few of them waited for, and those are not given up.
    for n in 0..20_000 {
        let lock = at(&word, address(n));
        recorder.created(lock, site);
        pair::<Recycled>(lock);
        if n % 100 == 0 {
            contended_pair::<Recycled>(lock, site);
        }
        recorder.destroyed(lock, NOWHERE);
    }
    let found = snapshot(directory.path());
    assert_eq!(found.dropped_locks, 0);
    for n in (0..20_000).step_by(100) {
        let stats = of(&found, address(n));
        assert_eq!((stats.acquisitions, stats.contended), (2, 1));
    }
    let total: u64 = found.locks.iter().map(|lock| lock.acquisitions).sum();
    assert_eq!(total, 20_200);
    let recycled = aggregate(&found, LockKind::Recycled).expect("some were recycled");
    assert!(recycled.acquisitions > 19_000 && recycled.contended == 0);
}

#[test]
fn figures_of_a_lock_whose_slot_another_thread_took() {
    recording!(Taken: directory, recorder, Options { recycle_after: 0, ..SMALL });
    let (first, second) = (AtomicU32::new(0), AtomicU32::new(0));
    recorder.created(at(&first, 0x1000), here());
    pair::<Taken>(at(&first, 0x1000));
    recorder.destroyed(at(&first, 0x1000), NOWHERE);
    // This thread's entry still carries the tag of the first lock.
    thread::scope(|scope| {
        scope.spawn(|| {
            recorder.created(at(&second, 0x2000), here());
            pair::<Taken>(at(&second, 0x2000));
            pair::<Taken>(at(&second, 0x2000));
        });
    });
    let check = |of_second| {
        let found = snapshot(directory.path());
        assert_eq!(of(&found, 0x2000).acquisitions, of_second);
        let recycled = aggregate(&found, LockKind::Recycled).expect("the first lock");
        assert_eq!((recycled.acquisitions, found.locks.len()), (1, 2));
    };
    check(2);
    // And now it does not.
    pair::<Taken>(at(&second, 0x2000));
    check(3);
}

#[test]
fn a_lock_made_again_while_its_slot_is_for_the_taking() {
    recording!(Again: directory, recorder, Options { recycle_after: 0, ..SMALL });
    let site = here();
    let word = AtomicU32::new(0);
    let first = at(&word, 0x1000);
    // Given up, taken back, given up again, taken back again: listed once all the while.
    for _ in 0..2 {
        recorder.created(first, site);
        pair::<Again>(first);
        recorder.destroyed(first, NOWHERE);
    }
    recorder.created(first, site);
    let others: Vec<AtomicU32> = (0..50).map(|_| AtomicU32::new(0)).collect();
    for (n, word) in others.iter().enumerate() {
        recorder.created(at(word, 0x2000 + 64 * n), site);
        pair::<Again>(at(word, 0x2000 + 64 * n));
    }
    pair::<Again>(first);
    let found = snapshot(directory.path());
    assert_eq!(found.locks.len(), 51);
    assert_eq!(of(&found, 0x1000).acquisitions, 3);
    assert!(found.locks.iter().all(|lock| lock.address == 0x1000 || lock.acquisitions == 1));
}

#[test]
fn recycling_by_many_threads_loses_nothing() {
    recording!(Churn: directory, recorder, Options { recycle_after: 50, ..SMALL });
    // Locks that all threads use, so that slots change under threads that know the earlier lock.
    let shared: Vec<Lock> = (0..8).map(|_| Lock::default()).collect();
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (shared, barrier) = (&shared, &barrier);
            scope.spawn(move || {
                let site = here();
                barrier.wait();
                for n in 0..5000 {
                    let word = AtomicU32::new(0);
                    let lock = at(&word, 0x1000_0000 * (thread + 1) + 64 * (n % 700));
                    recorder.created(lock, site);
                    pair::<Churn>(lock);
                    recorder.destroyed(lock, NOWHERE);
                    pair::<Churn>(shared[n % 8].seen());
                }
            });
        }
    });
    let found = snapshot(directory.path());
    assert_eq!(found.dropped_locks, 0);
    assert_eq!(found.locks.iter().map(|lock| lock.acquisitions).sum::<u64>(), 40_000);
    for lock in &shared {
        assert_eq!(of(&found, lock.address()).acquisitions, 2500);
    }
}

#[test]
fn zeroed_memory_at_one_address_is_one_lock() {
    recording!(Zeroed: directory, _);
    let lock = Lock::default();
    // As a `std::mutex` in a structure that is allocated and freed over and over.
    for _ in 0..10_000 {
        lock.word.store(0, Relaxed);
        pair::<Zeroed>(lock.seen());
    }
    let found = snapshot(directory.path());
    assert_eq!(found.locks.len(), 1);
    assert_eq!(of(&found, lock.address()).acquisitions, 10_000);
}

#[test]
fn a_copied_lock_is_another_lock() {
    recording!(Copied: directory, _);
    let first = Lock::default();
    pair::<Copied>(first.seen());
    let copy = Lock { word: AtomicU32::new(first.word.load(Relaxed)) };
    for _ in 0..3 {
        pair::<Copied>(copy.seen());
        pair::<Copied>(first.seen());
    }
    let found = snapshot(directory.path());
    assert_eq!(of(&found, first.address()).acquisitions, 4);
    assert_eq!(of(&found, copy.address()).acquisitions, 3);
}

#[test]
fn garbage_in_the_word_does_no_harm() {
    recording!(Garbage: directory, recorder);
    let known = Lock::default();
    pair::<Garbage>(known.seen());
    let lock = Lock::default();
    let mut random = 0x2545_f491u32;
    for n in 0..10_000 {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        // Small indices too, which are in use; but not the one that says "no room".
        let word = if n % 2 == 0 { random } else { random % 8 };
        lock.word.store(if word == 1 { 0 } else { word }, Relaxed);
        match n % 3 {
            0 => contended_pair::<Garbage>(lock.seen(), here()),
            1 => recorder.destroyed(lock.seen(), NOWHERE),
            _ => _ = recorder.released(lock.seen(), common::NOWHERE),
        }
        pair::<Garbage>(lock.seen());
    }
    let found = snapshot(directory.path());
    assert_eq!(of(&found, known.address()).acquisitions, 1);
    let stats = of(&found, lock.address());
    assert_eq!((stats.acquisitions, stats.contended), (13_334, 3334));
    assert_eq!(found.locks.len(), 2);
}

#[test]
fn locks_beyond_the_table_are_counted_together() {
    recording!(Overflow: directory, _, Options { locks: 66, recycle_after: 66, ..SMALL });
    let locks: Vec<Lock> = (0..100).map(|_| Lock::default()).collect();
    for _ in 0..5 {
        for lock in &locks {
            pair::<Overflow>(lock.seen());
            contended_pair::<Overflow>(lock.seen(), here());
        }
    }
    let found = snapshot(directory.path());
    // Indices 0 and 1 stand for no lock of their own.
    assert_eq!((found.locks.len(), found.dropped_locks), (65, 36));
    let overflow = aggregate(&found, LockKind::Overflow).expect("they are there");
    assert_eq!((overflow.acquisitions, overflow.contended, overflow.address), (360, 180, 0));
    assert_eq!(overflow.sites.iter().map(|site| site.contended).sum::<u64>(), 180);
    assert!(overflow.hold_total_ns > 0);
    assert_eq!(of(&found, locks[63].address()).acquisitions, 10);
}

#[test]
fn a_full_file_counts_what_it_can() {
    host!(Full);
    let directory = tempfile::tempdir().expect("a directory");
    // Room for a record and one chunk, but not for a chunk for each of 100 groups of locks.
    const TINY: Options = Options { sizes: &[112 * 4096], locks: 64 * 40, modules: 200, stacks: 64, ..SMALL };
    start::<Full>(directory.path(), TINY);
    let locks: Vec<Lock> = (0..64 * 30).map(|_| Lock::default()).collect();
    for lock in &locks {
        contended_pair::<Full>(lock.seen(), here());
        pair::<Full>(lock.seen());
    }
    let found = snapshot(directory.path());
    assert_eq!(found.locks.iter().map(|lock| lock.acquisitions).sum::<u64>(), 2 * 64 * 30);
    assert_eq!(found.locks.iter().map(|lock| lock.contended).sum::<u64>(), 64 * 30);
    assert!(aggregate(&found, LockKind::Overflow).is_some_and(|overflow| overflow.acquisitions > 0));
    assert!(found.locks.len() > 64, "the first ones have figures of their own");
}

#[test]
fn more_locks_than_the_small_directory_holds() {
    recording!(Large: directory, _, Options { sizes: &[256 << 20], locks: 1 << 17, ..Options::DEFAULT });
    let words: Vec<AtomicU32> = (0..70_000).map(|_| AtomicU32::new(0)).collect();
    for _ in 0..2 {
        for (n, word) in words.iter().enumerate() {
            pair::<Large>(at(word, 0x1000_0000 + 64 * n));
        }
    }
    let found = snapshot(directory.path());
    assert_eq!((found.locks.len(), found.dropped_locks), (70_000, 0));
    assert!(found.locks.iter().all(|lock| lock.acquisitions == 2));
}

#[test]
fn events_of_all_threads_are_summed() {
    recording!(Happening: directory, recorder);
    pair::<Happening>(Lock::default().seen());
    assert!(snapshot(directory.path()).events.is_empty(), "nothing has happened yet");
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let barrier = &barrier;
            scope.spawn(move || {
                recorder.event(0);
                // All have a record by then, and nobody gives one back.
                barrier.wait();
                for _ in 0..1000 * thread {
                    recorder.event(63);
                }
                for ns in [0, 1, 2, 1023, 1024, u64::from(u32::MAX)] {
                    recorder.duration(5, ns + 4096 * thread);
                }
                // Numbers that there are not do no harm.
                recorder.event(64);
                recorder.duration(6, 1);
                barrier.wait();
            });
        }
    });
    let found = snapshot(directory.path());
    assert_eq!((found.events.len(), found.durations.len(), found.lost_events), (64, 6, 0));
    for (number, event) in found.events.iter().enumerate() {
        let expected = match number {
            0 => (4, 1),
            63 => (6000, 3000),
            _ => (0, 0),
        };
        assert_eq!((event.total, event.most), expected, "{number}");
    }
    let durations = &found.durations[5];
    let of_one = 1 + 2 + 1023 + 1024 + u64::from(u32::MAX);
    assert_eq!((durations.count, durations.total_ns), (24, 4 * of_one + 6 * 4096 * (1 + 2 + 3)));
    assert_eq!(durations.max_ns, u64::from(u32::MAX) + 3 * 4096);
    let buckets: Vec<(usize, u64)> =
        durations.buckets.iter().copied().enumerate().filter(|b| b.1 > 0).collect();
    // By hand: of the first thread 0 and 1, 2, 1023, 1024; of the second five in 4096..8192; of the two
    // others five each in 8192..16384; and what is near 2^32, once below it.
    assert_eq!(buckets, [(0, 2), (1, 1), (9, 1), (10, 1), (12, 5), (13, 10), (31, 1), (32, 3)]);
    assert!(found.durations[..5].iter().all(|durations| durations.count == 0));
}

#[test]
fn arrays_are_listed_with_the_figures_of_their_ends() {
    recording!(Arrays: directory, recorder);
    assert_eq!(snapshot(directory.path()).arrays, []);
    let id = |n: u32| 1 << 30 | n << 15 | n;
    let end = |n: u32| ArrayEnd {
        key: -(n as i32),
        semaphores: n,
        variant: n % 4,
        figures: std::array::from_fn(|figure| u64::from(n) << figure),
    };
    // Each by several threads, and as many as there is room for: ids that share a place find others.
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for n in 1..=SMALL.arrays {
                    recorder.array_used(id(n));
                    if n % 4 == thread && n % 3 == 0 {
                        recorder.array_removed(id(n), &end(n));
                    }
                }
            });
        }
    });
    let found = snapshot(directory.path());
    let expected: Vec<ArrayStats> =
        (1..=SMALL.arrays).map(|n| ArrayStats { id: id(n), end: (n % 3 == 0).then(|| end(n)) }).collect();
    assert_eq!(found.arrays, expected);
    assert!(!found.dropped_arrays);
    recorder.array_used(id(SMALL.arrays + 1));
    let found = snapshot(directory.path());
    assert_eq!(found.arrays, expected);
    assert!(found.dropped_arrays);
    assert_eq!(found.threads, 0, "an array is no lock");
}
