//! What every lock promises, of every lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use poundlock::lock_api::{self, RawMutex as _, RawMutexTimed};
use poundlock::*;
use poundlock_testing::LIMIT;
use static_assertions::{assert_impl_all, assert_not_impl_any};

const SOON: Duration = Duration::from_millis(5);
/// Longer than any test may take.
const LATE: Duration = Duration::from_secs(LIMIT);

/// More threads than CPUs.
fn threads() -> u32 {
    2 * thread::available_parallelism().map_or(2, |cpus| cpus.get() as u32) + 1
}

/// Runs `act` in a forked child, which must say that all is well by returning.
fn in_child(act: impl FnOnce()) {
    // SAFETY: the child has one thread and ends at once; it uses locks of ours, and no memory that others may
    // hold a lock of.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(LIMIT as u32);
            let ended = catch_unwind(AssertUnwindSafe(act));
            libc::_exit(if ended.is_ok() { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0, "in the child");
    }
}

/// The suite for what has one holder at a time.
fn excludes<R: lock_api::RawMutex + Sync + Send + 'static>() {
    // More adders than CPUs, who lock in different ways.
    let sum = lock_api::Mutex::<R, u64>::new(0);
    thread::scope(|scope| {
        for adder in 0..threads() {
            let sum = &sum;
            scope.spawn(move || {
                for round in 0..3000 {
                    let mut sum = match (adder + round) % 3 {
                        0 => loop {
                            match sum.try_lock() {
                                Some(guard) => break guard,
                                None => thread::yield_now(),
                            }
                        },
                        _ => sum.lock(),
                    };
                    *sum += 1;
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), u64::from(threads()) * 3000);

    // No poisoning.
    let mutex = lock_api::Mutex::<R, Vec<u32>>::new(vec![1]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        mutex.lock().push(2);
        let _guard = mutex.lock();
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(panicked.is_err() && !mutex.is_locked());
    assert_eq!(*mutex.lock(), [1, 2]);

    // What others see.
    let guard = mutex.lock();
    assert!(mutex.is_locked() && mutex.try_lock().is_none());
    assert_eq!(format!("{mutex:?}"), "Mutex { data: <locked> }");
    drop(guard);
    assert_eq!(format!("{mutex:?}"), "Mutex { data: [1, 2] }");

    // Without locking.
    let mut mutex = mutex;
    mutex.get_mut().push(3);
    assert_eq!(mutex.into_inner(), [1, 2, 3]);
    assert_eq!(lock_api::Mutex::<R, u32>::default().into_inner(), 0);
    assert_eq!(lock_api::Mutex::<R, u32>::from(4).into_inner(), 4);

    // A part, and a part of it; and none.
    let tree = lock_api::Mutex::<R, _>::new((1, [2, 3]));
    let part = lock_api::MutexGuard::map(tree.lock(), |tree| &mut tree.1);
    let mut leaf = lock_api::MappedMutexGuard::map(part, |pair| &mut pair[1]);
    *leaf = 4;
    assert!(tree.is_locked());
    drop(leaf);
    assert!(lock_api::MutexGuard::try_map(tree.lock(), |_| None::<&mut u32>).is_err());
    assert_eq!(*tree.lock(), (1, [2, 4]));

    // A guard that outlives its owner.
    let shared = Arc::new(lock_api::Mutex::<R, u32>::new(5));
    let guard = shared.lock_arc();
    assert!(shared.try_lock_arc().is_none());
    drop(shared);
    assert_eq!(*guard, 5);

    // In a forked child: a lock that is held, and one that is waited for at the time of the fork.
    let [held, free] = [const { lock_api::Mutex::<R, u32>::new(0) }; 2];
    let guard = held.lock();
    let begun = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            begun.store(1, Relaxed);
            *held.lock() += 1;
        });
        while begun.load(Relaxed) == 0 {
            thread::yield_now();
        }
        in_child(|| {
            *free.lock() += 1;
            assert!(held.try_lock().is_none());
            // SAFETY: the forking thread is the holder, and this is that thread.
            unsafe { held.force_unlock() };
            *held.lock() += 1;
            assert_eq!((*held.lock(), *free.lock()), (1, 1));
        });
        drop(guard);
    });
    assert_eq!(held.into_inner(), 1);
}

/// ... and can be waited for within limits.
fn gives_up<R>()
where
    R: RawMutexTimed<Duration = Duration, Instant = Instant> + Sync + Send + 'static,
{
    let mutex = lock_api::Mutex::<R, u32>::new(0);
    assert!(mutex.try_lock_for(Duration::ZERO).is_some(), "a free one, whatever the time");
    assert!(mutex.try_lock_until(Instant::now() - SOON.min(Duration::from_nanos(1))).is_some());
    let guard = mutex.lock();
    let begun = Instant::now();
    assert!(mutex.try_lock_for(SOON).is_none());
    assert!(mutex.try_lock_until(begun + 2 * SOON).is_none());
    assert!(begun.elapsed() >= 2 * SOON, "not before its time");
    assert!(mutex.try_lock_until(begun).is_none());
    thread::scope(|scope| {
        // One that has time gets it, beside others who give up.
        let patient = scope.spawn(|| mutex.try_lock_for(LATE).is_some());
        let endless = scope.spawn(|| mutex.try_lock_for(Duration::MAX).is_some());
        let hasty: Vec<_> =
            (0..threads()).map(|_| scope.spawn(|| mutex.try_lock_for(SOON).is_none())).collect();
        assert!(hasty.into_iter().all(|hasty| hasty.join().unwrap()));
        drop(guard);
        assert!(patient.join().unwrap() && endless.join().unwrap());
    });
    assert!(!mutex.is_locked());
}

#[test]
fn mutex() {
    excludes::<RawMutex>();
    gives_up::<RawMutex>();
}

#[test]
fn fair_mutex() {
    excludes::<RawFairMutex>();
    gives_up::<RawFairMutex>();
}

#[test]
fn spin_lock() {
    excludes::<RawSpinLock>();
    // Slow where threads outnumber CPUs, and right all the same.
    excludes::<RawSpinLock<Spinning>>();
}

#[test]
fn a_fair_mutex_serves_in_turn() {
    let turns = FairMutex::new(Vec::new());
    thread::scope(|scope| {
        let mut guard = turns.lock();
        let waiter = scope.spawn(|| turns.lock().push("waiter"));
        // Until the other gets it; while nobody waits a bump does nothing.
        while guard.is_empty() {
            FairMutexGuard::bump(&mut guard);
        }
        guard.push("owner");
        drop(guard);
        waiter.join().unwrap();
    });
    assert_eq!(turns.into_inner(), ["waiter", "owner"]);
}

#[test]
fn reentrant_mutex() {
    let mutex = ReentrantMutex::new(AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let outer = mutex.lock();
                    let before = outer.load(Relaxed);
                    let inner = mutex.try_lock().expect("by the same thread");
                    inner.store(before + 1, Relaxed);
                    drop(outer);
                    assert!(mutex.is_owned_by_current_thread());
                }
            });
        }
    });
    assert_eq!(mutex.lock().load(Relaxed), threads() * 1000);
    let guard = mutex.lock();
    let others = |act: fn(&ReentrantMutex<AtomicU32>) -> bool| {
        thread::scope(|scope| scope.spawn(|| act(&mutex)).join().unwrap())
    };
    assert!(others(|mutex| mutex.try_lock().is_none()));
    assert!(others(|mutex| mutex.try_lock_for(SOON).is_none()));
    in_child(|| assert!(mutex.try_lock().is_some(), "the child's thread is the holder"));
    drop(guard);
    assert!(others(|mutex| mutex.try_lock().is_some()));
}

/// Waiters who each wait for a number of their own, under this mutex.
fn counts_down<R: Waitable + Sync + Send>(notify: fn(&Condvar)) {
    let (turn, changed) = (lock_api::Mutex::<R, u32>::new(0), Condvar::new());
    let waiters = threads();
    thread::scope(|scope| {
        for own in 1..=waiters {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                let mut turn = turn.lock();
                match own % 3 {
                    0 => changed.wait_while(&mut turn, |turn| *turn != own),
                    1 => {
                        let result = changed.wait_while_for(&mut turn, |turn| *turn != own, LATE);
                        assert!(!result.timed_out());
                    }
                    _ => {
                        while *turn != own {
                            changed.wait_until(&mut turn, Instant::now() + LATE);
                        }
                    }
                }
                *turn += 1;
                changed.notify_all();
            });
        }
        *turn.lock() = 1;
        notify(&changed);
    });
    assert_eq!(turn.into_inner(), waiters + 1);
}

#[test]
fn condvar() {
    counts_down::<RawMutex>(Condvar::notify_all);
    counts_down::<RawFairMutex>(Condvar::notify_all);
    assert_eq!(format!("{:?}", Condvar::default()), "Condvar { .. }");
}

#[test]
fn a_condvar_gives_up_in_time() {
    let (state, changed) = (Mutex::new(0), Condvar::new());
    let mut state = state.lock();
    let begun = Instant::now();
    let mut waits = 0;
    while !changed.wait_until(&mut state, begun + SOON).timed_out() {
        waits += 1;
        assert!(waits < 1000, "for no reason");
    }
    assert!(begun.elapsed() >= SOON);
    assert!(changed.wait_while_until(&mut state, |_| true, begun).timed_out());
    assert!(!changed.wait_while_for(&mut state, |state| *state != 0, SOON).timed_out());
}

/// As many notifications as waiters reach all of them, none is lost to one that gave up.
#[test]
fn each_notification_reaches_one() {
    let (state, changed) = (Mutex::new((0, 0)), Condvar::new());
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..threads())
            .map(|_| {
                scope.spawn(|| {
                    let mut state = state.lock();
                    state.0 += 1;
                    changed.wait_while(&mut state, |state| state.1 == 0);
                    state.1 -= 1;
                })
            })
            .collect();
        while state.lock().0 != threads() {
            thread::yield_now();
        }
        for _ in 0..threads() {
            state.lock().1 += 1;
            changed.notify_one();
        }
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    assert_eq!(state.into_inner(), (threads(), 0));
}

/// One condition variable for mutexes of two kinds at a time.
#[test]
fn a_condvar_serves_several_mutexes() {
    let changed = Condvar::new();
    let (plain, fair) = ([Mutex::new(false), Mutex::new(false)], FairMutex::new(false));
    let waiting = AtomicU32::new(0);
    thread::scope(|scope| {
        for mutex in &plain {
            scope.spawn(|| {
                let mut open = mutex.lock();
                waiting.fetch_add(1, Relaxed);
                changed.wait_while(&mut open, |open| !*open);
            });
        }
        scope.spawn(|| {
            let mut open = fair.lock();
            waiting.fetch_add(1, Relaxed);
            changed.wait_while(&mut open, |open| !*open);
        });
        while waiting.load(Relaxed) < 3 {
            thread::yield_now();
        }
        plain.iter().for_each(|mutex| *mutex.lock() = true);
        *fair.lock() = true;
        changed.notify_all();
    });
}

/// A pair of equal numbers, that only writers see unequal.
fn shares<P: Policy>() {
    let pair = lock_api::RwLock::<RawRwLock<P>, (u64, u64)>::new((0, 0));
    thread::scope(|scope| {
        for thread in 0..threads() {
            let pair = &pair;
            scope.spawn(move || {
                for round in 0..1000 {
                    match (thread + round) % 8 {
                        0 => {
                            let mut pair = pair.write();
                            pair.0 += 1;
                            pair.1 += 1;
                        }
                        1 => {
                            let upgradable = pair.upgradable_read();
                            assert_eq!(upgradable.0, upgradable.1);
                            let mut pair = lock_api::RwLockUpgradableReadGuard::upgrade(upgradable);
                            pair.0 += 1;
                            pair.1 += 1;
                            let pair = lock_api::RwLockWriteGuard::downgrade(pair);
                            assert_eq!(pair.0, pair.1);
                        }
                        2 => {
                            if let Some(mut pair) = pair.try_write_for(SOON) {
                                pair.0 += 1;
                                pair.1 += 1;
                            }
                        }
                        3 => {
                            if let Some(pair) = pair.try_read_for(SOON) {
                                assert_eq!(pair.0, pair.1);
                            }
                        }
                        _ => {
                            let (pair, again) = (pair.read(), pair.read_recursive());
                            assert!(pair.0 == pair.1 && *pair == *again);
                        }
                    }
                }
            });
        }
    });
    let (one, other) = pair.into_inner();
    assert!(one == other && one >= u64::from(threads()) * 250, "{one}, {other}");

    let lock = lock_api::RwLock::<RawRwLock<P>, u32>::new(1);
    let reader = lock.read();
    assert!(lock.is_locked() && !lock.is_locked_exclusive());
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    assert!(lock.try_write_for(SOON).is_none());
    let upgradable = lock.try_upgradable_read().expect("beside readers");
    assert!(lock.try_upgradable_read_for(SOON).is_none());
    let upgradable = lock_api::RwLockUpgradableReadGuard::try_upgrade(upgradable).expect_err("readers");
    let upgradable =
        lock_api::RwLockUpgradableReadGuard::try_upgrade_for(upgradable, SOON).expect_err("still");
    assert!(lock.try_read().is_some(), "it has given up");
    drop(reader);
    let writer = lock_api::RwLockUpgradableReadGuard::try_upgrade(upgradable).expect("alone");
    assert!(lock.is_locked_exclusive() && lock.try_read().is_none());
    assert!(lock.try_read_until(Instant::now() + SOON).is_none());
    let upgradable = lock_api::RwLockWriteGuard::downgrade_to_upgradable(writer);
    assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_none());
    let reader = lock_api::RwLockUpgradableReadGuard::downgrade(upgradable);
    assert!(lock.try_upgradable_read().is_some());
    in_child(|| {
        assert!(lock.try_write().is_none(), "the child's thread is a reader");
        assert!(lock.try_read().is_some());
    });
    drop(reader);
    assert_eq!(format!("{lock:?}"), "RwLock { data: 1 }");
    assert!(!lock.is_locked());
}

#[test]
fn rw_lock() {
    shares::<PhaseFair>();
    shares::<ReaderPreferring>();
    shares::<WriterPreferring>();
}

/// A reader that is inside gets in once more though a writer waits, and that writer gets in afterwards.
#[test]
fn a_recursive_reader_does_not_wait_for_a_waiting_writer() {
    let lock = RwLock::new(0);
    thread::scope(|scope| {
        let outer = lock.read();
        let writer = scope.spawn(|| *lock.write() = 1);
        // Until the writer keeps others out, as one that waits does before it sleeps.
        while lock.try_read().is_some() && !writer.is_finished() {
            thread::yield_now();
        }
        assert_eq!(*lock.read_recursive(), *outer);
        assert!(lock.try_read_recursive().is_some());
        assert!(lock.try_read_recursive_for(SOON).is_some());
        drop(outer);
    });
    assert_eq!(lock.into_inner(), 1);
}

#[test]
fn semaphores_of_a_process() {
    static PAIR: SemaphoreSet = SemaphoreSet::new(&[2, 0]);
    assert_eq!(PAIR.len().unwrap(), 2);
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                for _ in 0..500 {
                    let _permit = PAIR.acquire(0, 1).unwrap();
                    assert!(inside.fetch_add(1, Relaxed) < 2);
                    inside.fetch_sub(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(PAIR.values().unwrap(), [2, 0]);
    assert_eq!(format!("{PAIR:?}"), "SemaphoreSet { values: Some([2, 0]), .. }");

    // Several at once, or none.
    let both = [Operation::take(0, 1), Operation::take(1, 1)];
    assert!(!PAIR.try_operate(&both).unwrap());
    assert!(!PAIR.operate_until(&both, Instant::now() + SOON).unwrap());
    assert!(PAIR.acquire_for(1, 1, SOON).unwrap().is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| PAIR.operate(&both));
        PAIR.operate(&[Operation::give(1, 1)]).unwrap();
        waiter.join().unwrap().unwrap();
    });
    PAIR.operate(&[Operation::wait_for_zero(1)]).unwrap();
    assert_eq!(PAIR.values().unwrap(), [1, 0]);

    // What cannot be.
    assert_eq!(PAIR.operate(&[]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(PAIR.operate(&[Operation::give(2, 1)]).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    assert_eq!(PAIR.operate(&[Operation::give(0, 32_767)]).unwrap_err().raw_os_error(), Some(libc::ERANGE));
    assert_eq!(PAIR.set_values(&[1]).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert!(catch_unwind(|| Operation::take(0, 40_000)).is_err());
}

#[test]
fn semaphores_of_a_process_go_with_it() {
    let set = SemaphoreSet::new(&[1]);
    let id = set.id().unwrap();
    // A child shares it, and does not remove it.
    in_child(|| {
        let permit = set.acquire(0, 1).unwrap();
        assert_eq!((set.id().unwrap(), set.value(0).unwrap()), (id, 0));
        permit.forget();
        drop(set);
    });
    let set = SemaphoreSet::new(&[1]);
    assert_ne!(set.id().unwrap(), id, "the first is there still");
    // Nobody else's: a process's number has 22 bits at most.
    let key = Key::new(0x7000_0000 | std::process::id() as i32).unwrap();
    assert_eq!(SemaphoreSet::open(key).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let shared = SemaphoreSet::create(key, &[1, 2, 3]).unwrap();
    let again = SemaphoreSet::open_or_create(key, &[]).unwrap();
    assert_eq!(again.values().unwrap(), [1, 2, 3]);
    drop(again);
    // What a process that is killed has taken comes back, and a removal reaches those who wait.
    in_child(|| shared.acquire(2, 3).unwrap().forget());
    drop(shared.acquire(2, 3).unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| shared.operate(&[Operation::take(0, 2)]));
        while !waiter.is_finished() && shared.id().is_ok_and(|id| waiters(id) == 0) {
            thread::yield_now();
        }
        shared.remove().unwrap();
        assert_eq!(waiter.join().unwrap().unwrap_err().raw_os_error(), Some(libc::EIDRM));
    });
    assert_eq!(shared.value(0).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

/// How many wait for semaphore 0 to grow.
fn waiters(id: i32) -> i32 {
    // SAFETY: a command without a fourth argument.
    unsafe { poundlock_semarray::control(id, 0, libc::GETNCNT, 0) }.unwrap_or(0)
}

#[test]
fn sizes_are_as_told() {
    let stats = if cfg!(feature = "stats") { 4 } else { 0 };
    assert_eq!(size_of::<RawMutex>(), 20 + stats);
    assert_eq!(size_of::<RawFairMutex>(), 20 + stats);
    assert_eq!(size_of::<RawSpinLock>(), 4 + stats);
    assert_eq!(size_of::<RawRwLock>(), 32 + 2 * stats);
    assert_eq!(size_of::<Condvar>(), 8);
    assert_eq!(size_of::<ReentrantMutex<()>>(), 40);
    assert_eq!(size_of::<SpinLock<u32>>(), 8 + stats);
}

assert_impl_all!(Mutex<u32>: Send, Sync);
assert_impl_all!(FairMutex<u32>: Send, Sync);
assert_impl_all!(SpinLock<u32>: Send, Sync);
assert_impl_all!(RwLock<u32>: Send, Sync);
assert_impl_all!(ReentrantMutex<std::cell::Cell<u32>>: Send, Sync);
assert_impl_all!(Condvar: Send, Sync);
assert_impl_all!(SemaphoreSet: Send, Sync);
assert_not_impl_any!(Mutex<std::rc::Rc<u32>>: Send, Sync);
assert_not_impl_any!(RwLock<std::cell::Cell<u32>>: Sync);
assert_not_impl_any!(ReentrantMutexGuard<'static, u32>: Send);

#[cfg(not(feature = "send_guard"))]
mod guards_stay {
    use super::*;
    assert_not_impl_any!(MutexGuard<'static, u32>: Send);
    assert_not_impl_any!(MappedMutexGuard<'static, u32>: Send);
    assert_not_impl_any!(ArcMutexGuard<u32>: Send);
    assert_not_impl_any!(FairMutexGuard<'static, u32>: Send);
    assert_not_impl_any!(SpinLockGuard<'static, u32>: Send);
    assert_not_impl_any!(RwLockReadGuard<'static, u32>: Send);
    assert_not_impl_any!(RwLockWriteGuard<'static, u32>: Send);
    assert_not_impl_any!(RwLockUpgradableReadGuard<'static, u32>: Send);
}

/// A lock that another thread unlocks.
#[cfg(feature = "send_guard")]
#[test]
fn guards_travel() {
    fn travels<R: lock_api::RawMutex<GuardMarker = lock_api::GuardSend> + Send + Sync>() {
        let mutex = lock_api::Mutex::<R, u32>::new(0);
        thread::scope(|scope| {
            for _ in 0..100 {
                let guard = mutex.lock();
                scope.spawn(move || drop(guard));
            }
            *mutex.lock() += 1;
        });
        assert_eq!(mutex.into_inner(), 1);
    }
    travels::<RawMutex>();
    travels::<RawFairMutex>();
    travels::<RawSpinLock>();
    let lock = RwLock::new(0);
    thread::scope(|scope| {
        let (reader, other) = (lock.read(), lock.read());
        scope.spawn(move || drop(reader));
        scope.spawn(move || drop(other));
        let writer = lock.write();
        scope.spawn(move || drop(writer));
        assert_eq!(*lock.read(), 0);
    });
}

/// The raw locks in statics, as they are.
#[test]
fn raw_locks_are_constants() {
    static MUTEX: RawMutex = RawMutex::INIT;
    static SPIN: RawSpinLock = RawSpinLock::INIT;
    MUTEX.lock();
    SPIN.lock();
    assert!(!MUTEX.try_lock() && SPIN.is_locked());
    // SAFETY: both are held.
    unsafe {
        SPIN.unlock();
        MUTEX.unlock();
    }
    assert!(!MUTEX.is_locked());
}
