//! The tables of the 4-byte queue spinlock.

use super::{Comparison, Row, Run, Table, compared, number};
use crate::experiment::{Work, pick};
use crate::machine::{MICROSECOND, Picoseconds};

/// Simulated time that is counted.
const TIME: Picoseconds = 150_000 * MICROSECOND;

fn high_systime(users: u32) -> impl Fn(&'static str) -> Run {
    move |lock| Run {
        machine: "ivybridge-ex-4s",
        sockets: 4,
        threads_a_core: 2,
        guest: None,
        work: Work::Jobs { profile: "aim7-3.19".to_owned(), mix: "high_systime".to_owned() },
        threads: users,
        lock,
        time: TIME,
    }
}

fn jobs_a_minute(row: &Row, users: u32, run: impl Fn(&'static str) -> Run) -> Comparison {
    let (before, after) = ((number(row, "jpm_ticket"), "ticket"), (number(row, "jpm_qspinlock"), "qspin"));
    Comparison::of(format!("{users} users"), pick::JOBS_A_MINUTE, run, before, after)
}

fn throughput() -> Table {
    let comparison = |row: &Row| {
        let users = number(row, "users")? as u32;
        // The others are about frequencies, which the model does not have.
        if row["governor"] != "performance" {
            return None;
        }
        Some(jobs_a_minute(row, users, high_systime(users)))
    };
    Table {
        name: "qspinlock_high_systime",
        about: "AIM7 high_systime: the queue spinlock in place of the ticket lock, performance governor",
        unit: "jobs a minute",
        fitted: true,
        rows: compared(include_str!("../../reference/qspinlock_high_systime.csv"), comparison),
    }
}

fn contention() -> Table {
    let comparison = |row: &Row| {
        let users = number(row, "users")? as u32;
        let slow = number(row, "qspin_raw_spin_lock")? + number(row, "qspin_slowpath")?;
        Some(Comparison::of(
            format!("{users} users"),
            pick::SPINLOCKS,
            high_systime(users),
            (number(row, "ticket_raw_spin_lock"), "ticket"),
            (Some(slow), "qspin"),
        ))
    };
    Table {
        name: "qspinlock_contention_time",
        about: "AIM7 high_systime: CPU time in spinlocks \
            (with the queue spinlock: its fast and its slow path)",
        unit: "% of CPU time",
        fitted: true,
        rows: compared(include_str!("../../reference/qspinlock_contention_time.csv"), comparison),
    }
}

fn numaconnect() -> Table {
    let comparison = |row: &Row| {
        let users = number(row, "forked")? as u32;
        let run = |lock| Run {
            machine: "numaconnect-512",
            sockets: 32,
            threads_a_core: 1,
            guest: None,
            work: Work::Jobs { profile: "aim7-3.19.1".to_owned(), mix: "compute".to_owned() },
            threads: users,
            lock,
            time: TIME,
        };
        Some(jobs_a_minute(row, users, run))
    };
    Table {
        name: "qspinlock_numaconnect_compute",
        about: "AIM7 compute on 512 cores: the queue spinlock in place of the ticket lock",
        unit: "jobs a minute",
        fitted: true,
        rows: compared(include_str!("../../reference/qspinlock_numaconnect_compute.csv"), comparison),
    }
}

/// Its tables.
pub(super) fn tables() -> Vec<Table> {
    vec![throughput(), contention(), numaconnect()]
}
