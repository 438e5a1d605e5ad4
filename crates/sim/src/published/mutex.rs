//! The tables of the queued adaptive mutex.

use super::{Comparison, Row, Run, Table, compared, middle, number, rows};
use crate::experiment::{Work, pick};
use crate::machine::{MICROSECOND, Picoseconds};

/// Simulated time that is counted.
const TIME: Picoseconds = 200_000 * MICROSECOND;

const WESTMERE: &str = "westmere-ex-8s";

fn on_westmere(mix: &str, users: u32, sockets: u32, threads_a_core: u32) -> impl Fn(&'static str) -> Run {
    let mix = mix.to_owned();
    move |lock| Run {
        machine: WESTMERE,
        sockets,
        threads_a_core,
        guest: None,
        work: Work::Jobs { profile: "aim7-3.7".to_owned(), mix: mix.clone() },
        threads: users,
        lock,
        time: TIME,
    }
}

fn high_systime() -> Table {
    let comparison = |row: &Row| {
        let (range, nodes, smt) = (&row["user_range"], number(row, "nodes")? as u32, &row["hyperthreading"]);
        Some(Comparison::of(
            format!("{range} users, {nodes} nodes, HT {smt}"),
            pick::JOBS_A_MINUTE,
            on_westmere("high_systime", middle(range), nodes, if smt == "on" { 2 } else { 1 }),
            (number(row, "jpm_without"), "baseline"),
            (number(row, "jpm_with"), "fewer-atomics"),
        ))
    };
    Table {
        name: "mutex_high_systime_jpm",
        about: "AIM7 high_systime: fewer atomic operations in the mutex's slow path",
        unit: "jobs a minute",
        fitted: true,
        rows: compared(include_str!("../../reference/mutex_high_systime_jpm.csv"), comparison),
    }
}

fn slow_path() -> Table {
    let comparison = |row: &Row| {
        let nodes = number(row, "nodes")? as u32;
        Some(Comparison::of(
            format!("{nodes} nodes"),
            pick::ANON_VMA,
            on_westmere("high_systime", middle("1100-2000"), nodes, 1),
            (number(row, "without"), "baseline"),
            (number(row, "with"), "fewer-atomics"),
        ))
    };
    Table {
        name: "mutex_slowpath_time",
        about: "AIM7 high_systime, 1500 users: CPU time in the mutex's slow path \
            (ours: all spinning for the mutex, which the source counts apart)",
        unit: "% of CPU time",
        fitted: false,
        rows: compared(include_str!("../../reference/mutex_slowpath_time.csv"), comparison),
    }
}

fn fserver(before: (&str, &'static str), after: (&str, &'static str)) -> Vec<Comparison> {
    let comparison = |row: &Row| {
        let (range, nodes) = (&row["user_range"], number(row, "nodes")? as u32);
        Some(Comparison::of(
            format!("{range} users, {nodes} nodes, {} to {}", before.1, after.1),
            pick::JOBS_A_MINUTE,
            on_westmere("fserver", middle(range), nodes, 1),
            (number(row, before.0), before.1),
            (number(row, after.0), after.1),
        ))
    };
    compared(include_str!("../../reference/mutex_fserver_jpm.csv"), comparison)
}

fn fserver_queue() -> Table {
    let (without, fewer, queue) =
        (("jpm_without", "baseline"), ("jpm_fewer_atomics", "fewer-atomics"), ("jpm_mcs_queue", "mcs-queue"));
    let mut rows = fserver(without, fewer);
    rows.extend(fserver(fewer, queue));
    Table {
        name: "mutex_fserver_jpm",
        about: "AIM7 fserver: fewer atomic operations, and then spinners queued by MCS",
        unit: "jobs a minute",
        fitted: true,
        rows,
    }
}

fn fserver_profile() -> Table {
    let rows = rows(include_str!("../../reference/mutex_fserver_profile.csv"));
    let share = |functions: &[&str], column: &str| -> f64 {
        let of = |row: &Row| functions.contains(&row["function"].as_str());
        rows.iter().filter(|row| of(row)).filter_map(|row| number(row, column)).sum()
    };
    let run = on_westmere("fserver", 1500, 8, 1);
    let mut comparisons = Vec::new();
    for (before, after) in [
        (("without", "baseline"), ("fewer_atomics", "fewer-atomics")),
        (("fewer_atomics", "fewer-atomics"), ("mcs_queue", "mcs-queue")),
    ] {
        for (label, functions, pick) in [
            (
                "the journal's readers-writer lock",
                &["__read_lock_failed", "__write_lock_failed"][..],
                pick::JOURNAL,
            ),
            (
                "the directory's mutex",
                &["mutex_spin_on_owner", "mspin_lock", "__mutex_lock_slowpath"],
                pick::DIRECTORY,
            ),
        ] {
            let of = |(column, lock)| (Some(share(functions, column)), lock);
            let label = format!("{label}, {} to {}", before.1, after.1);
            comparisons.push(Comparison::of(label, pick, &run, of(before), of(after)));
        }
    }
    Table {
        name: "mutex_fserver_profile",
        about: "AIM7 fserver, 1500 users, 8 nodes: CPU time that goes into waiting",
        unit: "% of CPU time",
        fitted: true,
        rows: comparisons,
    }
}

fn others(
    name: &'static str,
    about: &'static str,
    text: &str,
    before: &'static str,
    after: &'static str,
) -> Table {
    let mut comparisons = Vec::new();
    for row in rows(text) {
        for range in ["10_100", "200_1000", "1100_2000"] {
            let mix = &row["workload"];
            let run = on_westmere(mix, middle(range), 8, 1);
            let label = format!("{mix}, {} users", range.replace('_', "-"));
            let change = number(&row, &format!("users_{range}"));
            let comparison = Comparison::of(label, pick::JOBS_A_MINUTE, run, (None, before), (None, after));
            comparisons.push(Comparison { change, ..comparison });
        }
    }
    Table { name, about, unit: "jobs a minute", fitted: false, rows: comparisons }
}

/// Its tables.
pub(super) fn tables() -> Vec<Table> {
    vec![
        high_systime(),
        slow_path(),
        others(
            "mutex_fewer_atomics_other_workloads",
            "the other mixes of AIM7, 8 nodes without hyperthreading: fewer atomic operations",
            include_str!("../../reference/mutex_fewer_atomics_other_workloads.csv"),
            "baseline",
            "fewer-atomics",
        ),
        fserver_queue(),
        fserver_profile(),
        others(
            "mutex_mcs_queue_other_workloads",
            "the other mixes of AIM7, 8 nodes without hyperthreading: spinners queued by MCS",
            include_str!("../../reference/mutex_mcs_queue_other_workloads.csv"),
            "fewer-atomics",
            "mcs-queue",
        ),
    ]
}
