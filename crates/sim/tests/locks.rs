//! Every lock under schedules from seeds, and the checker under locks that are wrong.

mod common;

use std::cell::Cell;

use common::{calm, hurried};
use poundlock_core::platform::{Atomic, Platform};
use poundlock_sim::check::{Case, Found, check, check_lock};
use poundlock_sim::locks::{self, Lock};
use poundlock_sim::{Machine, Sim, U32};
use std::sync::atomic::Ordering::Relaxed;

/// Set it to try other seeds, or more: `FROM..TO`.
const VARIABLE: &str = "POUNDLOCK_SIM_SEEDS";

fn seeds() -> std::ops::Range<u64> {
    match std::env::var(VARIABLE) {
        Err(_) => 0..300,
        Ok(text) => text
            .split_once("..")
            .and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?))
            .unwrap_or_else(|| panic!("{VARIABLE} is not FROM..TO: {text}")),
    }
}

fn case<'a>(lock: &'a str, machine: &'a Machine, seed: u64) -> Case<'a> {
    let mut choices = fastrand::Rng::with_seed(seed ^ 0x5eed);
    Case { lock, machine, threads: choices.u32(2..=16), sections: choices.u32(1..=12), seed }
}

#[test]
fn every_lock_passes_every_seed() {
    let machines = [hurried(), calm()];
    for lock in locks::names() {
        for seed in seeds() {
            let machine = &machines[usize::from(seed % 4 == 0)];
            if let Err(found) = check(&case(lock, machine, seed)) {
                panic!("{lock}: {found:?}; to see it again: {VARIABLE}={seed}..{}", seed + 1);
            }
        }
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    let machine = hurried();
    for lock in locks::names() {
        for seed in 0..3 {
            let first = check(&case(lock, &machine, seed));
            // Other allocations, other addresses.
            let _other = vec![0u8; 4096 * (seed as usize + 1)];
            assert_eq!(check(&case(lock, &machine, seed)), first, "{lock}, seed {seed}");
        }
    }
    let reports: Vec<_> = (0..10).map(|seed| check(&case("poundlock", &machine, seed))).collect();
    assert!(reports.windows(2).any(|pair| pair[0] != pair[1]), "seeds make no difference");
}

fn found(make: fn() -> Box<dyn Lock>) -> Vec<Found> {
    let machine = hurried();
    (0..200).filter_map(|seed| check_lock(&case("planted", &machine, seed), make()).err()).collect()
}

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
    assert!(found(|| Box::<Torn>::default()).contains(&Found::Overlap));
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
            Sim::wait(&self.turn, turn, None);
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
    assert!(found(|| Box::<Forgetful>::default()).iter().any(|found| matches!(found, Found::Asleep(_))));
}

/// One release in so many is left out.
struct Lazy(U32, Cell<u32>);

impl Lock for Lazy {
    fn lock(&self) {
        while self.0.swap(1, Relaxed) != 0 {
            Sim::nap();
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
    let found = found(|| Box::new(Lazy(U32::default(), Cell::new(0))));
    // By the others, or afterwards.
    assert!(found.iter().any(|found| matches!(found, Found::Endless(_))), "{found:?}");
    assert!(found.contains(&Found::Left), "{found:?}");
}
