//! Every lock under schedules from seeds, and the checker under locks that are wrong.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::condvar::{Guarding, Outcome, RawCondvar, Requeued, Target};
use poundlock_core::platform::{Atomic, Deadline, Platform, Until};
use poundlock_core::qspin::Halting;
use poundlock_sim::check::{
    Case, Found, Mutex, Promise, Scene, Subject, Wait, check, check_all, check_lock, names,
};
use poundlock_sim::locks::Lock;
use poundlock_sim::{Alone, MICROSECOND, Sim, U32, Usize, sleep};
use poundlock_textbook::{Mcs, Spinlock};

/// Set it to try other seeds, or more than those, which are over twice as many as find each of the bugs below:
/// `FROM..TO`.
const VARIABLE: &str = "POUNDLOCK_SIM_SEEDS";
/// Set it to try one subject's locks alone: `poundlock`, `adaptive`, `handoff`, `qspin`, `rwlock` or
/// `condvar`.
const SUBJECT: &str = "POUNDLOCK_SIM_LOCK";

fn seeds() -> std::ops::Range<u64> {
    match std::env::var(VARIABLE) {
        Err(_) => 0..1_000,
        Ok(text) => text
            .split_once("..")
            .and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?))
            .unwrap_or_else(|| panic!("{VARIABLE} is not FROM..TO: {text}")),
    }
}

/// Whether a lock belongs to the subject that is to be tried.
fn is_wanted(lock: &str) -> bool {
    let Ok(subject) = std::env::var(SUBJECT) else { return true };
    let adaptive = ["baseline", "fewer-atomics", "mcs-queue", "any-negative"].contains(&lock);
    match &*subject {
        "adaptive" => adaptive,
        // Every mutex is tried with one.
        "condvar" => adaptive || ["poundlock", "handoff"].iter().any(|mutex| lock.starts_with(mutex)),
        "rwlock" => lock.starts_with("rw-"),
        prefix => lock.starts_with(prefix),
    }
}

#[test]
fn every_lock_passes_every_seed() {
    let locks: Vec<_> = names().filter(|lock| is_wanted(lock)).collect();
    if let Err(failure) = check_all(&locks, seeds(), |_, _| {}) {
        panic!("{failure}, or {VARIABLE}={}..{}", failure.seed, failure.seed + 1);
    }
}

/// Seeds of machines with several nodes come to sides.
#[test]
fn sides_are_used() {
    let tallies = check_all(&["poundlock"], 0..200, |_, _| {}).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tallies[0].at_sides > 100, "{tallies:?}");
}

#[test]
fn a_seed_is_the_same_each_time() {
    for lock in names() {
        for seed in 0..20 {
            let case = Case::new(lock, seed);
            let first = check(&case);
            // Other allocations, other addresses; and other runs in between.
            let _other = vec![0u8; 4096 * (seed as usize + 1)];
            let _ = check(&Case::new("poundlock", seed + 1000));
            assert_eq!(check(&case), first, "{lock}, seed {seed}");
            // With nodes and stacks that nobody has used.
            let fresh = std::thread::spawn(move || check(&Case::new(lock, seed)));
            assert_eq!(fresh.join().unwrap(), first, "{lock}, seed {seed}");
        }
    }
    let reports: Vec<_> = (0..10).map(|seed| check(&Case::new("poundlock", seed))).collect();
    assert!(reports.windows(2).any(|pair| pair[0] != pair[1]), "seeds make no difference");
}

/// Whether a seed finds that in a lock.
fn finds<L: Lock>(scene: Scene, promise: Promise, make: fn() -> L, what: fn(&Found) -> bool) -> bool {
    let subject = || Subject::Lock(Box::new(Alone(make())));
    tries(scene, promise, subject, what)
}

fn finds_in_mutex<M: Mutex>(scene: Scene, make: fn() -> M, what: fn(&Found) -> bool) -> bool {
    tries(scene, Promise::default(), || Subject::Mutex(Box::new(make())), what)
}

fn tries(scene: Scene, promise: Promise, make: impl Fn() -> Subject, what: fn(&Found) -> bool) -> bool {
    (0..400).any(|seed| {
        let case = Case { scene, ..Case::new("planted", seed) };
        check_lock(&case, make(), promise).is_err_and(|found| what(&found))
    })
}

const NOTHING: Promise = Promise { ordered: None, turn: false, bypass: false };

/// Looks and takes in two steps.
#[derive(Default)]
struct Torn(U32);

impl Lock for Torn {
    fn lock(&self) {
        while self.0.load(Relaxed) != 0 {
            Sim::relax();
        }
        self.0.store(1, Relaxed);
    }
    fn unlock(&self) {
        self.0.store(0, Relaxed);
    }
    fn is_free(&self) -> bool {
        self.0.peek() == 0
    }
}

#[test]
fn a_lock_that_does_not_exclude_is_found_out() {
    for scene in [Scene::Turns, Scene::Crowd] {
        assert!(finds(scene, NOTHING, Torn::default, |found| matches!(found, Found::Overlap(..))));
    }
}

/// Its waiters announce themselves after they have looked, and sleep whatever happened since.
#[derive(Default)]
struct Forgetful {
    held: U32,
    waiters: U32,
    turn: U32,
}

impl Lock for Forgetful {
    fn lock(&self) {
        while self.held.swap(1, Relaxed) != 0 {
            let turn = self.turn.load(Relaxed);
            self.waiters.fetch_add(1, Relaxed);
            Sim::wait(&self.turn, turn, Until::Woken);
        }
    }
    fn unlock(&self) {
        self.held.store(0, Relaxed);
        if self.waiters.swap(0, Relaxed) != 0 {
            self.turn.fetch_add(1, Relaxed);
            Sim::wake(&raw const self.turn, u32::MAX);
        }
    }
    fn is_free(&self) -> bool {
        self.held.peek() == 0
    }
}

#[test]
fn a_lost_wake_up_is_found_out() {
    let asleep = |found: &Found| matches!(found, Found::Asleep(_));
    assert!(finds(Scene::Turns, NOTHING, Forgetful::default, asleep));
}

/// One release in so many is left out.
#[derive(Default)]
struct Lazy(U32, Cell<u32>);

impl Lock for Lazy {
    fn lock(&self) {
        while self.0.swap(1, Relaxed) != 0 {
            sleep(100 * MICROSECOND);
        }
    }
    fn unlock(&self) {
        self.1.set(self.1.get() + 1);
        if self.1.get() != 7 {
            self.0.store(0, Relaxed);
        }
    }
    fn is_free(&self) -> bool {
        self.0.peek() == 0
    }
}

#[test]
fn what_is_left_in_a_lock_is_found_out() {
    // By the others, or afterwards.
    assert!(finds(Scene::Turns, NOTHING, Lazy::default, |found| matches!(found, Found::Endless(_))));
    assert!(finds(Scene::Turns, NOTHING, Lazy::default, |found| *found == Found::Left));
}

/// Whoever finds it free takes it.
#[derive(Default)]
struct Rude(U32);

impl Lock for Rude {
    fn lock(&self) {
        while self.0.swap(1, Relaxed) != 0 {
            Sim::wait(&self.0, 1, Until::Woken);
        }
    }
    fn unlock(&self) {
        self.0.store(0, Relaxed);
        Sim::wake(&raw const self.0, 1);
    }
    fn is_free(&self) -> bool {
        self.0.peek() == 0
    }
}

/// As [`Rude`], spinning.
#[derive(Default)]
struct Scramble(U32);

impl Lock for Scramble {
    fn lock(&self) {
        while self.0.load(Relaxed) != 0 || self.0.swap(1, Relaxed) != 0 {
            Sim::relax();
        }
    }
    fn unlock(&self) {
        self.0.store(0, Relaxed);
    }
    fn is_free(&self) -> bool {
        self.0.peek() == 0
    }
}

#[test]
fn a_lock_without_the_order_that_it_promises_is_found_out() {
    let overtaken = |found: &Found| matches!(found, Found::Overtaken { .. });
    for wait in [Wait::Asleep, Wait::Spinning] {
        let promise = Promise { ordered: Some(wait), ..NOTHING };
        assert!(finds(Scene::Turns, promise, Rude::default, overtaken), "{wait:?}");
    }
    let promise = Promise { ordered: Some(Wait::Spinning), ..NOTHING };
    assert!(finds(Scene::Turns, promise, Scramble::default, overtaken));
}

/// Thread 0 takes it only when nobody else wants it.
#[derive(Default)]
struct Snob {
    held: U32,
    others: U32,
}

impl Lock for Snob {
    fn lock(&self) {
        let despised = Sim::current() == Some(0);
        if !despised {
            self.others.fetch_add(1, Relaxed);
        }
        while despised && self.others.load(Relaxed) != 0 || self.held.swap(1, Relaxed) != 0 {
            Sim::relax();
        }
        if !despised {
            self.others.fetch_add(u32::MAX, Relaxed);
        }
    }
    fn unlock(&self) {
        self.held.store(0, Relaxed);
    }
    fn is_free(&self) -> bool {
        self.held.peek() == 0
    }
}

#[test]
fn a_lock_without_the_turns_that_it_promises_is_found_out() {
    let promise = Promise { turn: true, ..NOTHING };
    assert!(finds(Scene::Crowd, promise, Snob::default, |found| matches!(found, Found::Starved { .. })));
    assert!(!finds(Scene::Crowd, NOTHING, Snob::default, |_| true), "it promised nothing");
}

/// Takes a node too many, once, and keeps it.
#[derive(Default)]
struct Greedy(Mcs<Sim>, Cell<Option<<Mcs<Sim> as Spinlock>::Token>>, Cell<bool>);

impl Lock for Greedy {
    fn lock(&self) {
        let token = self.0.lock();
        if !self.2.replace(true) {
            std::mem::forget(Mcs::<Sim>::default().lock());
        }
        self.1.set(Some(token));
    }
    fn unlock(&self) {
        if let Some(token) = self.1.take() {
            self.0.unlock(token);
        }
    }
    fn is_free(&self) -> bool {
        true
    }
}

#[test]
fn a_node_that_is_not_given_back_is_found_out() {
    assert!(finds(Scene::Turns, NOTHING, Greedy::default, |found| matches!(found, Found::Kept(_))));
}

/// Leaves an entry in the lock hash.
#[derive(Default)]
struct Noted(Rude);

impl Lock for Noted {
    fn lock(&self) {
        self.0.lock();
    }
    fn unlock(&self) {
        let line = std::ptr::from_ref(&Sim::lock_hash().unwrap()[1]);
        // SAFETY: a line begins with its first entry, and that with the lock's address.
        unsafe { &*line.cast::<Usize>() }.store(4, Relaxed);
        self.0.unlock();
    }
    fn is_free(&self) -> bool {
        self.0.is_free()
    }
}

#[test]
fn what_is_left_in_the_lock_hash_is_found_out() {
    assert!(finds(Scene::Turns, NOTHING, Noted::default, |found| *found == Found::Hashed));
}

/// A ticket lock. Who gives up does not pass its turn on.
#[derive(Default)]
struct Quitter(U32, U32);

impl Lock for Quitter {
    fn lock(&self) {
        let own = self.0.fetch_add(1, Relaxed);
        while self.1.load(Relaxed) != own {
            Sim::relax();
        }
    }
    fn unlock(&self) {
        self.1.fetch_add(1, Relaxed);
    }
    fn is_free(&self) -> bool {
        self.0.peek() == self.1.peek()
    }
}

impl Mutex for Quitter {
    fn lock_until(&self, deadline: &Deadline) -> bool {
        let own = self.0.fetch_add(1, Relaxed);
        while self.1.load(Relaxed) != own {
            if Sim::expired(deadline) {
                return false;
            }
            Sim::stall(0);
        }
        true
    }
    fn wait(&self, _condvar: &RawCondvar<Sim>, _deadline: Option<&Deadline>) -> Outcome {
        Outcome::Signalled
    }
}

#[test]
fn a_waiter_that_leaves_without_a_word_is_found_out() {
    assert!(finds_in_mutex(Scene::Deadlines, Quitter::default, |found| matches!(found, Found::Endless(_))));
}

/// Its waits have no patience; and it sleeps for a condition after it has released the lock.
#[derive(Default)]
struct Hasty(Rude);

impl Lock for Hasty {
    fn lock(&self) {
        self.0.lock();
    }
    fn unlock(&self) {
        self.0.unlock();
    }
    fn is_free(&self) -> bool {
        self.0.is_free()
    }
}

/// Released before.
struct Released<'a>(&'a Rude);

impl Guarding<Sim> for Released<'_> {
    fn mutex(&self) -> Option<Target<'_, Sim>> {
        None
    }
    fn release(&self) {}
    fn acquire(&self) {
        self.0.lock();
    }
    fn acquire_requeued(&self, _waiter: Requeued) {}
}

impl Mutex for Hasty {
    fn lock_until(&self, _deadline: &Deadline) -> bool {
        self.0.0.swap(1, Relaxed) == 0
    }
    fn wait(&self, condvar: &RawCondvar<Sim>, deadline: Option<&Deadline>) -> Outcome {
        self.0.unlock();
        condvar.wait(&Released(&self.0), deadline, || false)
    }
}

#[test]
fn a_deadline_that_comes_early_is_found_out() {
    assert!(finds_in_mutex(Scene::Deadlines, Hasty::default, |found| matches!(found, Found::Early(_))));
}

#[test]
fn a_lost_signal_is_found_out() {
    assert!(finds_in_mutex(Scene::Store, Hasty::default, |found| matches!(found, Found::Asleep(_))));
}
