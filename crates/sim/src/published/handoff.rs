//! The tables of the hand-off mutex that spins.

use super::{Comparison, Row, Run, Table, compared, number};
use crate::experiment::{Work, pick};
use crate::machine::{MICROSECOND, Picoseconds};

/// Simulated time that is counted.
const TIME: Picoseconds = 50_000 * MICROSECOND;

fn misc_mutex() -> Table {
    let comparison = |row: &Row| {
        let threads = number(row, "threads")? as u32;
        let run = |lock| Run {
            machine: "osv-4",
            sockets: 1,
            threads_a_core: 1,
            guest: None,
            work: Work::MiscMutex,
            threads,
            lock,
            time: TIME,
        };
        Some(Comparison::of(
            format!("{threads} threads"),
            pick::NS_EACH,
            run,
            (number(row, "ns_without_spin"), "handoff:none"),
            (number(row, "ns_with_spin"), "handoff"),
        ))
    };
    Table {
        name: "osv_mutex",
        about: "misc-mutex on OSv with 4 CPUs: waiters that spin before they queue",
        unit: "ns for each lock and unlock",
        fitted: true,
        rows: compared(include_str!("../../reference/osv_mutex.csv"), comparison),
    }
}

/// Its tables. That of Cassandra under YCSB is not among them: the source does not say what its hundred
/// threads do between two locks, and with which.
pub(super) fn tables() -> Vec<Table> {
    vec![misc_mutex()]
}
