//! Who made others wait, and how long holds were.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use crate::common::{
    Lock, NOWHERE, SMALL, at, here, host, now, of, only_file, pair, recording, snapshot, start,
};
use poundlock_statfile::writer::{CallSite, Host, LockRef, Manner, Options};
use poundlock_statfile::{Follower, Hold, Live, LockKind, LockStats, Snapshot, ThreadStats, layout};
use poundlock_testing::elsewhere;

/// Return addresses of acquisitions.
const FIRST: usize = 0x1000;
const SECOND: usize = 0x2000;

/// What holders are charged with and what nobody is, together, are the waits: to the unit of the account, of
/// which each wait and each charge may be one off.
fn all_is_charged(stats: &LockStats, waits: u64) {
    let caused: u64 = stats.holders.iter().map(|holder| holder.caused_ns).sum();
    let (charged, waited) = (caused + stats.handover_ns, stats.wait_total_ns);
    let unit = 1 << layout::WAITING_TICKS;
    assert!(charged.abs_diff(waited) <= 4 * waits * unit, "{charged} of {waited}");
}

fn sleep() {
    thread::sleep(Duration::from_millis(3));
}

#[test]
fn a_wait_is_charged_to_the_holders_place() {
    recording!(Charged: directory, recorder);
    let lock = Lock::default();
    let (held, waits, released) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
    let places = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            recorder.acquired(lock.seen(), CallSite::at(FIRST), Manner::LOCK);
            held.wait();
            waits.wait();
            sleep();
            let site = here();
            recorder.released(lock.seen(), site);
            released.wait();
            site
        });
        held.wait();
        let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
        waits.wait();
        released.wait();
        recorder.acquired_after_wait(lock.seen(), wait, CallSite::at(SECOND), Manner::LOCK);
        recorder.released(lock.seen(), NOWHERE);
        holder.join().expect("no panic")
    });
    let found = snapshot(directory.path());
    let stats = of(&found, lock.address());
    all_is_charged(stats, 1);
    assert_eq!(
        (stats.acquisitions, stats.contended, stats.waited_holds, stats.waited_holds_cut),
        (2, 1, 1, 0)
    );
    let [holder] = &stats.holders[..] else { panic!("one holder: {stats:?}") };
    assert_eq!((holder.acquired_at, holder.holds), (FIRST as u64, 1));
    assert_eq!(holder.stack[0], places.pc as u64);
    assert!(holder.stack.len() > 1, "and what called it");
    assert!(holder.caused_ns >= 2_900_000 && holder.hold_ns >= holder.caused_ns, "{holder:?}");
    assert_eq!(stats.waited_hold_buckets.iter().sum::<u64>(), 1);
    assert_eq!(stats.wait_buckets.iter().sum::<u64>(), 1);
    assert_eq!(stats.hold.of, 1, "the hold that nobody waited for");
}

/// Three threads, one of which holds the lock while the others wait; then these have it in turn.
#[test]
fn each_of_several_holders_has_its_part_of_a_wait() {
    recording!(Parts: directory, recorder);
    let lock = Lock::default();
    let stage = Barrier::new(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            recorder.acquired(lock.seen(), CallSite::at(FIRST), Manner::LOCK);
            stage.wait();
            stage.wait();
            sleep();
            recorder.released(lock.seen(), here());
            stage.wait();
            stage.wait();
        });
        scope.spawn(|| {
            stage.wait();
            let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
            stage.wait();
            stage.wait();
            recorder.acquired_after_wait(lock.seen(), wait, CallSite::at(SECOND), Manner::LOCK);
            sleep();
            recorder.released(lock.seen(), here());
            stage.wait();
        });
        stage.wait();
        let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
        stage.wait();
        stage.wait();
        stage.wait();
        recorder.acquired_after_wait(lock.seen(), wait, CallSite::at(0x3000), Manner::LOCK);
        recorder.released(lock.seen(), here());
    });
    let found = snapshot(directory.path());
    let stats = of(&found, lock.address());
    all_is_charged(stats, 2);
    let caused = |place: usize| {
        let holder = stats.holders.iter().find(|holder| holder.acquired_at == place as u64);
        holder.expect("a holder").caused_ns
    };
    // Two waited for the first one, one for the second.
    assert!(caused(FIRST) >= 5_900_000 && caused(SECOND) >= 2_900_000, "{:?}", stats.holders);
    assert_eq!((stats.holders.len(), stats.waited_holds), (2, 2));
}

#[test]
fn who_waited_in_vain_is_charged_to_the_holder_as_well() {
    recording!(Vain: directory, recorder);
    let lock = Lock::default();
    recorder.acquired(lock.seen(), CallSite::at(FIRST), Manner::LOCK);
    thread::scope(|scope| {
        let body = || {
            let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
            sleep();
            recorder.abandoned_wait(lock.seen(), wait);
        };
        scope.spawn(body).join().expect("no panic");
    });
    recorder.released(lock.seen(), here());
    // Nobody waits any more.
    pair::<Vain>(lock.seen());
    drop(recorder.wait_begin(lock.seen(), here(), Manner::LOCK));
    pair::<Vain>(lock.seen());
    let found = snapshot(directory.path());
    let stats = of(&found, lock.address());
    all_is_charged(stats, 1);
    assert_eq!((stats.contended, stats.timeouts, stats.sites[0].timeouts), (1, 1, 1));
    assert_eq!(stats.holders[0].acquired_at, FIRST as u64);
    assert!(stats.holders[0].caused_ns >= 2_900_000);
    assert_eq!(stats.handover_ns, 0);
}

#[test]
fn readers_that_a_writer_waits_for_are_its_holders() {
    recording!(Reading: directory, recorder);
    #[repr(C, align(8))]
    struct Both(AtomicU32, AtomicU32);
    let both = Both(AtomicU32::new(0), AtomicU32::new(0));
    let address = (&raw const both).addr();
    let reader = || LockRef { writers: Some(&both.1), kind: LockKind::RwReaders, ..at(&both.0, address) };
    let writer = || LockRef { kind: LockKind::RwWriters, ..at(&both.1, address + LockKind::WRITERS) };
    let stage = Barrier::new(3);
    thread::scope(|scope| {
        for place in [FIRST, SECOND] {
            let stage = &stage;
            scope.spawn(move || {
                recorder.acquired(reader(), CallSite::at(place), Manner::LOCK);
                stage.wait();
                stage.wait();
                if place == SECOND {
                    sleep();
                }
                recorder.released(reader(), here());
                stage.wait();
            });
        }
        stage.wait();
        let wait = recorder.wait_begin(writer(), here(), Manner::LOCK);
        stage.wait();
        stage.wait();
        recorder.acquired_after_wait(writer(), wait, CallSite::at(0x3000), Manner::LOCK);
        // And a reader for the writer.
        scope.spawn(|| {
            let wait = recorder.wait_begin(reader(), here(), Manner::LOCK);
            stage.wait();
            stage.wait();
            recorder.acquired_after_wait(reader(), wait, CallSite::at(FIRST), Manner::LOCK);
            recorder.released(reader(), here());
        });
        let stage = &stage;
        scope.spawn(move || {
            stage.wait();
            stage.wait();
        });
        stage.wait();
        sleep();
        recorder.released(writer(), here());
        stage.wait();
    });
    let found = snapshot(directory.path());
    let (readers, writers) = (of(&found, address), of(&found, address + 4));
    assert_eq!((readers.contended, writers.contended), (1, 1));
    // How it is shared between the two depends on who let go first.
    assert!(readers.holders.iter().map(|h| h.caused_ns).sum::<u64>() >= 2_900_000);
    let [writes] = &writers.holders[..] else { panic!("one writer: {writers:?}") };
    assert!(writes.acquired_at == 0x3000 && writes.caused_ns >= 2_900_000);
    let caused: u64 = readers.holders.iter().chain(&writers.holders).map(|h| h.caused_ns).sum();
    let waited = readers.wait_total_ns + writers.wait_total_ns;
    assert!(caused + writers.handover_ns <= waited + 1000, "{caused} of {waited}");
}

/// Whatever threads do, nothing is charged twice, and all of it once somebody has settled it.
#[test]
fn the_account_is_settled_when_all_is_over() {
    recording!(Settled: directory, recorder);
    let lock = Lock::default();
    let real = std::sync::Mutex::new(());
    thread::scope(|scope| {
        for thread in 0..4usize {
            let (lock, real) = (&lock, &real);
            scope.spawn(move || {
                for round in 0..20_000 {
                    let guard = match real.try_lock() {
                        Ok(guard) => {
                            recorder.acquired(lock.seen(), CallSite::at(FIRST + thread), Manner::LOCK);
                            guard
                        }
                        Err(_) => {
                            let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
                            if round % 16 == 0 {
                                thread::yield_now();
                                recorder.abandoned_wait(lock.seen(), wait);
                                continue;
                            }
                            let guard = real.lock().expect("no panic");
                            recorder.acquired_after_wait(
                                lock.seen(),
                                wait,
                                CallSite::at(FIRST + thread),
                                Manner::LOCK,
                            );
                            guard
                        }
                    };
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    recorder.released(lock.seen(), here());
                    drop(guard);
                }
            });
        }
    });
    // Whoever comes last settles what is left.
    pair::<Settled>(lock.seen());
    let found = snapshot(directory.path());
    let stats = of(&found, lock.address());
    all_is_charged(stats, stats.contended + stats.waited_holds);
    assert!(stats.holders.iter().map(|holder| holder.holds).sum::<u64>() == stats.waited_holds);
    assert_eq!(stats.hold.of + stats.waited_holds, stats.acquisitions);
}

#[test]
fn holds_are_sampled_whatever_the_rhythm() {
    recording!(Rhythm: directory, recorder);
    // As many locks as acquisitions there are to a sample: in turn, each would be met never or always.
    let locks: Vec<Lock> = (0..layout::SAMPLE_ONE_IN).map(|_| Lock::default()).collect();
    const ROUNDS: u64 = 20_000;
    for _ in 0..ROUNDS {
        for lock in &locks {
            pair::<Rhythm>(lock.seen());
        }
    }
    recorder.finish();
    let found = snapshot(directory.path());
    let expected = ROUNDS as f64 / f64::from(found.sample_one_in);
    for lock in &locks {
        let hold = of(&found, lock.address()).hold;
        assert_eq!(hold.of, ROUNDS);
        let picked = hold.samples as f64 - layout::FIRST_HOLDS as f64;
        // Seven standard deviations; the chance is the same in each run.
        assert!((picked - expected).abs() < 7.0 * expected.sqrt(), "{picked} of {expected}");
        assert!(hold.error_ns.is_finite());
    }
}

#[test]
fn few_holds_are_all_timed() {
    recording!(Few: directory, _, Options { plain_clock: true, ..SMALL });
    let lock = Lock::default();
    for _ in 0..layout::FIRST_HOLDS {
        Few::recorder().acquired(lock.seen(), NOWHERE, Manner::LOCK);
        thread::sleep(Duration::from_millis(1));
        Few::recorder().released(lock.seen(), NOWHERE);
    }
    let found = snapshot(directory.path());
    let stats = of(&found, lock.address());
    assert_eq!((stats.hold.samples, stats.hold.of, stats.hold.error_ns), (8, 8, 0.0));
    // The sum is kept with seven digits.
    assert!(stats.hold_total_ns >= 7_999_000, "{}", stats.hold_total_ns);
    assert!(stats.hold_max_ns <= stats.hold_total_ns);
}

#[test]
fn what_is_held_and_waited_for_now_is_said() {
    recording!(Now: directory, recorder);
    let (lock, other) = (Lock::default(), Lock::default());
    recorder.acquired(lock.seen(), CallSite::at(FIRST), Manner::LOCK);
    let place = CallSite { pc: SECOND, ..here() };
    let wait = recorder.wait_begin(other.seen(), place, Manner::LOCK);
    let found = snapshot(directory.path());
    let [thread] = &found.records[..] else { panic!("one thread: {:?}", found.records) };
    // SAFETY: always succeeds.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    assert!(thread.lives && thread.tid == tid && thread.contended == 1 && thread.lock_waits == 1);
    let waits = thread.waits.as_ref().expect("it waits");
    assert_eq!((waits.address, waits.stack[0]), (other.address() as u64, SECOND as u64));
    let [hold] = &thread.holds[..] else { panic!("it holds one lock") };
    assert_eq!((hold.address, hold.acquired_at), (lock.address() as u64, FIRST as u64));
    assert!(hold.since_ns.is_some_and(|since| since <= waits.since_ns));
    assert!(of(&found, other.address()).holders.is_empty(), "nobody has it");
    drop(wait);
    recorder.released(lock.seen(), NOWHERE);
    let found = snapshot(directory.path());
    assert!(found.records[0].waits.is_none() && found.records[0].holds.is_empty());
}

/// A thread of this name that takes the lock after `before` pairs, and ends with it.
fn ends_with<H: Host>(lock: LockRef<'static>, name: &str, before: u64) -> u32 {
    let body = move || {
        (0..before).for_each(|_| pair::<H>(lock));
        H::recorder().acquired(lock, CallSite::at(FIRST), Manner::LOCK);
        // SAFETY: always succeeds.
        (unsafe { libc::syscall(libc::SYS_gettid) }) as u32
    };
    // Joined as a thread, not as a scope: its destructors have run.
    thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread").join().expect("no panic")
}

/// The ended threads of which the file says that they hold the lock at `address`.
fn ended(found: &Snapshot, address: usize) -> Vec<&ThreadStats> {
    let holds = |thread: &&ThreadStats| thread.holds.iter().any(|hold| hold.address == address as u64);
    let all: Vec<&ThreadStats> = found.records.iter().filter(holds).collect();
    assert!(all.iter().all(|thread| thread.ended.is_some() && !thread.lives), "{all:?}");
    all
}

#[test]
fn what_an_ended_thread_held_is_not_held_by_the_next_one() {
    if elsewhere() {
        return;
    }
    recording!(Ended: directory, recorder);
    let words: &'static [AtomicU32; 2] = Box::leak(Box::default());
    let [first, second] = [0, 1].map(|n| &words[n]);
    // Holds that are timed, and one of those that most likely are not.
    for (kind, writers, before) in [
        (LockKind::Mutex, None, 0),
        (LockKind::Mutex, None, 40),
        (LockKind::Spinlock, None, 1),
        (LockKind::PriorityMutex, None, 1),
        (LockKind::RwWriters, None, 1),
        (LockKind::RwReaders, Some(second), 40),
    ] {
        words.iter().for_each(|word| word.store(0, Relaxed));
        let address = 0x1000 * (1 + kind as usize) + 64 * before as usize;
        let lock = LockRef { word: first, address, kind, writers };
        let tid = ends_with::<Ended>(lock, "loader", before);
        let file = only_file(directory.path());
        thread::spawn(move || {
            let asked = match writers {
                Some(word) => LockRef {
                    word,
                    address: address + LockKind::WRITERS,
                    kind: LockKind::RwWriters,
                    writers: None,
                },
                None => lock,
            };
            let wait = recorder.wait_begin(asked, here(), Manner::LOCK);
            let found = poundlock_statfile::read(&file, now()).expect("a good file");
            let [holder] = &ended(&found, address)[..] else { panic!("{kind}: {:#?}", found.records) };
            assert_eq!((holder.tid, holder.holds[0].acquired_at), (tid, FIRST as u64));
            assert_eq!(holder.ended.as_ref().expect("it ended").name, "loader");
            let mut live = Live::open(&file).expect("a good file");
            let mut living = Vec::new();
            live.look(&mut living);
            let tag = living.iter().find_map(|thread| thread.wait).expect("it waits").tag;
            let [(holder, hold)] = &live.ended_holders(&live.ended(), &living, tag)[..] else {
                panic!("{kind}: no holder")
            };
            assert_eq!((holder.tid, hold.acquired_at), (tid, FIRST as u64));
            if writers.is_some() {
                return drop(wait);
            }
            // Somebody released it after all.
            recorder.acquired_after_wait(lock, wait, NOWHERE, Manner::LOCK);
            assert!(live.ended_holders(&live.ended(), &living, tag).is_empty(), "{kind}");
            recorder.released(lock, NOWHERE);
        })
        .join()
        .expect("no panic");
    }
}

#[test]
fn a_hold_of_an_ended_thread_is_over_when_another_releases_the_lock() {
    if elsewhere() {
        return;
    }
    recording!(Passed: directory, recorder);
    let lock: &'static Lock = Box::leak(Box::default());
    for before in [0, 40] {
        ends_with::<Passed>(lock.seen(), "passes", before);
        assert_eq!(ended(&snapshot(directory.path()), lock.address()).len(), 1);
        // As another thread that has used the lock before, and as one that has not.
        thread::spawn(move || {
            if before != 0 {
                pair::<Passed>(lock.seen());
            }
            recorder.released(lock.seen(), NOWHERE);
        })
        .join()
        .expect("no panic");
        assert!(ended(&snapshot(directory.path()), lock.address()).is_empty());
    }
}

#[test]
fn threads_that_end_with_locks_take_bounded_room() {
    if elsewhere() {
        return;
    }
    const THREADS: usize = 200;
    recording!(Many: directory, recorder);
    let locks: &'static [Lock; THREADS] = Box::leak(Box::new(std::array::from_fn(|_| Lock::default())));
    for lock in locks {
        ends_with::<Many>(lock.seen(), "leaves", 0);
    }
    let found = snapshot(directory.path());
    assert!(found.records.len() <= layout::ENDED_RECORDS + 2, "{}", found.records.len());
    let known: Vec<usize> = (0..THREADS).filter(|&n| !ended(&found, locks[n].address()).is_empty()).collect();
    assert_eq!(known, (THREADS - layout::ENDED_RECORDS..THREADS).collect::<Vec<_>>());
    assert_eq!(found.locks.iter().map(|lock| lock.acquisitions).sum::<u64>(), THREADS as u64);
    // A destroyed lock is nobody's.
    recorder.destroyed(locks[THREADS - 1].seen(), NOWHERE);
    assert!(ended(&snapshot(directory.path()), locks[THREADS - 1].address()).is_empty());
}

#[test]
fn a_hold_that_goes_on_is_charged_so_far() {
    recording!(GoingOn: directory, recorder);
    let lock = Lock::default();
    let stage = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            recorder.acquired(lock.seen(), CallSite::at(FIRST), Manner::LOCK);
            stage.wait();
            stage.wait();
            recorder.released(lock.seen(), here());
            stage.wait();
        });
        stage.wait();
        let wait = recorder.wait_begin(lock.seen(), here(), Manner::LOCK);
        let file = only_file(directory.path());
        let found = poundlock_statfile::read(&file, now() + 5_000_000_000).expect("a good file");
        let stats = of(&found, lock.address());
        let [holder] = &stats.holders[..] else { panic!("one holder: {stats:?}") };
        assert_eq!((holder.acquired_at, holder.holds, stats.waited_holds), (FIRST as u64, 0, 0));
        assert!(holder.caused_ns >= 4_900_000_000, "{holder:?}");
        all_is_charged(stats, 1);
        stage.wait();
        stage.wait();
        recorder.acquired_after_wait(lock.seen(), wait, CallSite::at(SECOND), Manner::LOCK);
        recorder.released(lock.seen(), here());
    });
    let found = snapshot(directory.path());
    let stats = of(&found, lock.address());
    assert_eq!((stats.holders.len(), stats.holders[0].holds), (1, 1));
    all_is_charged(stats, 1);
}

/// More places than a thread has heads for at first, and more waits and holds than a place keeps by itself.
#[test]
fn every_wait_and_every_hold_is_in_the_distributions() {
    const PLACES: usize = 3 << layout::FIRST_HEADS_BITS;
    const TIMES: u64 = 3 * layout::EARLY;
    recording!(Spread: directory, recorder, Options { stacks: 8192, ..SMALL });
    let lock = Lock::default();
    // Further out than all that is on the stack: nothing lies around it.
    let place = |number: usize| CallSite { pc: 0x1000 + number, sp: usize::MAX / 2 };
    let (begun, over) = (Barrier::new(2), Barrier::new(2));
    let waits = |number: usize| if number == 0 { TIMES } else { 1 };
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..PLACES {
                for _ in 0..waits(number) {
                    recorder.acquired(lock.seen(), CallSite::at(FIRST), Manner::LOCK);
                    begun.wait();
                    begun.wait();
                    recorder.released(lock.seen(), place(PLACES + number));
                    over.wait();
                    over.wait();
                }
            }
        });
        for number in 0..PLACES {
            for _ in 0..waits(number) {
                begun.wait();
                let wait = recorder.wait_begin(lock.seen(), place(number), Manner::LOCK);
                begun.wait();
                over.wait();
                recorder.acquired_after_wait(lock.seen(), wait, CallSite::at(SECOND), Manner::LOCK);
                recorder.released(lock.seen(), NOWHERE);
                over.wait();
            }
        }
    });
    let found = snapshot(directory.path());
    let stats = of(&found, lock.address());
    let all = PLACES as u64 - 1 + TIMES;
    assert_eq!((stats.contended, stats.waited_holds), (all, all));
    assert_eq!((stats.sites.len(), stats.holders.len()), (PLACES, PLACES));
    assert!(stats.sites.iter().any(|site| site.contended == TIMES && site.stack[..] == [0x1000]));
    assert!(stats.holders.iter().all(|holder| holder.acquired_at == FIRST as u64));
    assert_eq!(stats.wait_buckets.iter().sum::<u64>(), all);
    assert_eq!(stats.waited_hold_buckets.iter().sum::<u64>(), all);
}

/// What a follower says must be what anybody reads who comes new, but for what it leaves out.
fn is_what_is_read(follower: &mut Follower, file: &Path) {
    let later = now() + 1_000_000_000;
    let (snapshot, mut followed) = follower.look(later).expect("a good file");
    let read = poundlock_statfile::read(file, later).expect("a good file");
    let left_out = |lock: &LockStats| LockStats {
        hold_total_ns: 0,
        hold_max_ns: 0,
        hold: Hold::default(),
        wait_buckets: Vec::new(),
        waited_hold_buckets: Vec::new(),
        signals: 0,
        broadcasts: 0,
        signals_with_mutex: 0,
        ..lock.clone()
    };
    let mut all: Vec<LockStats> = read.locks.iter().filter(|lock| lock.contended > 0).map(left_out).collect();
    let mut followed: Vec<LockStats> = followed.drain(..).map(|lock| left_out(&lock)).collect();
    all.sort_by_key(|lock| lock.slot);
    followed.sort_by_key(|lock| lock.slot);
    assert_eq!(followed, all);
    assert_eq!(Snapshot { locks: read.locks.clone(), ..snapshot }, read);
}

#[test]
fn who_follows_a_file_knows_what_is_in_it() {
    const LOCKS: usize = 300;
    recording!(Followed: directory, recorder, Options { recycle_after: 200, ..SMALL });
    let locks: Vec<Lock> = (0..LOCKS).map(|_| Lock::default()).collect();
    let file = only_file(directory.path());
    let mut follower = Follower::new(file.clone());
    is_what_is_read(&mut follower, &file);
    let mut random = 1_u64;
    let mut chance = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for look in 0..12 {
        // One thread after the other uses the same record; now and then nothing happens.
        let waits: Vec<(usize, usize)> = (0..look % 4 * 100).map(|_| (chance(LOCKS), chance(3))).collect();
        thread::scope(|scope| {
            let wait = |&(which, place): &(usize, usize)| {
                let lock = locks[which].seen();
                let wait = recorder.wait_begin(lock, CallSite::at(0x100 + place), Manner::LOCK);
                recorder.acquired_after_wait(lock, wait, CallSite::at(SECOND), Manner::LOCK);
                recorder.released(lock, CallSite::at(0x200 + place));
                if which % 7 == 0 && place == 0 {
                    recorder.destroyed(lock, NOWHERE);
                }
            };
            scope.spawn(move || waits.iter().for_each(wait)).join().expect("no panic");
        });
        is_what_is_read(&mut follower, &file);
    }
    // A wait and a hold that go on.
    recorder.acquired(locks[0].seen(), CallSite::at(FIRST), Manner::LOCK);
    thread::scope(|scope| {
        let waits = || {
            let wait = recorder.wait_begin(locks[0].seen(), CallSite::at(0x100), Manner::LOCK);
            is_what_is_read(&mut follower, &file);
            recorder.acquired_after_wait(locks[0].seen(), wait, CallSite::at(SECOND), Manner::LOCK);
        };
        scope.spawn(waits).join().expect("no panic");
    });
    is_what_is_read(&mut follower, &file);
}
