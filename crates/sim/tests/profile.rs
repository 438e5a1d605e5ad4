//! Which accesses need transfers: the profile's rows are those of the traffic, and of the algorithm.

use poundlock_sim::profile::{Row, Whose};
use poundlock_sim::workload::{Measured, Turns};
use poundlock_sim::{Machine, NANOSECOND, Settings, Simulation, Traffic, locks};

const MACHINE: &str = "ivybridge-ex-4s";

fn turns(lock: &str, threads: u32) -> Turns<'_> {
    Turns {
        lock,
        threads,
        critical: 200 * NANOSECOND,
        counts: true,
        think: 2000 * NANOSECOND,
        warm_up: 0,
        time: 200_000 * NANOSECOND,
        seed: 3,
    }
}

fn profiled(turns: Turns<'_>) -> (Measured, Vec<Row>) {
    let machine = Machine::known().into_iter().find(|machine| machine.name() == MACHINE).unwrap();
    let simulation = || Simulation::new(&machine, Settings::DEFAULT, turns.seed);
    let mut measured = turns.profile_in(simulation()).unwrap();
    let rows = measured.profile.take().unwrap();
    // Looking changes nothing.
    assert_eq!(measured, turns.run_in(simulation()).unwrap(), "{}", turns.lock);
    (measured, rows)
}

#[test]
fn the_rows_add_up_to_the_traffic_for_every_lock() {
    for lock in locks::names() {
        let (Measured { traffic, .. }, rows) = profiled(turns(lock, 12));
        let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
        let sums = Traffic {
            accesses: sum(|row| row.accesses),
            transfers: sum(|row| row.transfers),
            remote: sum(|row| row.remote),
            queued: sum(|row| row.queued),
            ..traffic
        };
        assert_eq!(sums, traffic, "{lock}");
        for row in &rows {
            assert!(row.remote <= row.transfers && row.transfers <= row.accesses, "{lock}: {row:?}");
            assert!(row.queued <= row.time && (row.time == 0) == (row.transfers == 0), "{lock}: {row:?}");
            let reasons = row.reason.as_ref().map_or(0, |&(_, count)| count);
            assert!(reasons <= row.transfers, "{lock}: {row:?}");
            // Each has its function, and its word a name.
            assert_ne!(row.place.function, "", "{lock}: {row:?}");
            assert!(!row.place.word.starts_with('+'), "{lock}: {row:?}");
        }
        assert!(rows.is_sorted_by_key(|row| core::cmp::Reverse(row.time)), "{lock}");
    }
}

#[test]
fn a_queue_of_spinners_pays_for_the_swap_the_link_and_the_grant() {
    let (measured, rows) = profiled(turns("mcs", 40));
    let acquired = measured.acquisitions.iter().sum::<u64>() as f64;
    let row = |whose, word: &str, operation: &str, function: &str| {
        let found = rows.iter().find(|row| {
            let place = &row.place;
            (place.whose, place.word.as_str(), place.operation, place.function)
                == (whose, word, operation, function)
        });
        found.unwrap_or_else(|| panic!("{word} {operation}: {rows:#?}"))
    };
    let swap = row(Whose::Lock, "tail", "swap", "lock");
    let link = row(Whose::Another, "next", "store", "lock");
    let grant = row(Whose::Another, "state", "store", "unlock");
    for once in [swap, link, grant] {
        let each = once.transfers as f64 / acquired;
        assert!((0.7..1.3).contains(&each), "{each}: {once:?}");
    }
    // The waiter's node is one line: what it spins on is taken from it by the link, too.
    let wait = row(Whose::Own, "state", "load", "lock");
    assert!(wait.transfers as f64 > 1.5 * acquired, "{wait:?}");
    let (after, count) = wait.reason.as_ref().unwrap();
    assert!(["next", "state"].contains(&after.word.as_str()) && *count > wait.transfers / 3, "{wait:?}");
    // The counter goes from owner to owner.
    let count = row(Whose::Data, "counter", "load", "go");
    assert!(count.transfers as f64 > 0.7 * acquired, "{count:?}");
    assert!(count.remote > 0 && count.remote < count.transfers, "{count:?}");
}
