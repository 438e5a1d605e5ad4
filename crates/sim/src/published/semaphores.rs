//! The table of the semaphore arrays.

use super::{Comparison, Figure, Row, Run, Table, number, rows};
use crate::experiment::{Work, pick};
use crate::machine::{MICROSECOND, Picoseconds};

/// Simulated time that is counted.
const TIME: Picoseconds = 100_000 * MICROSECOND;
/// How long the source's runs were.
const SECONDS: f64 = 30.0;

/// Finds a figure of the source's by its name.
type Find<'a> = &'a dyn Fn(&str) -> Option<f64>;
/// What a line shows, from those.
type Of<'a> = &'a dyn Fn(Find<'_>) -> Option<f64>;

fn sembench() -> Table {
    let published = rows(include_str!("../../reference/sembench.csv"));
    let figure = |of: Of<'_>, column: &str, lock, pick| {
        let find = |name: &str| {
            let row: &Row = published.iter().find(|row| row["figure"] == name)?;
            number(row, column)
        };
        Figure {
            published: of(&find),
            run: Run {
                machine: "phenom-4",
                sockets: 1,
                threads_a_core: 1,
                guest: None,
                work: Work::Sembench { wakes: 64 },
                threads: 250,
                lock,
                time: TIME,
            },
            pick,
        }
    };
    let row = |label: &str, pick, of: Of<'_>| Comparison {
        label: label.to_owned(),
        before: figure(of, "before", "before", pick),
        after: figure(of, "after", "after", pick),
        change: None,
    };
    Table {
        name: "sembench",
        about: "sembench -t 250 -w 64 -o 0 -r 30 -b on 4 CPUs: one pass over the sleepers, \
            who are woken after the array's lock is released",
        unit: "each line its own",
        fitted: true,
        rows: vec![
            row("CPU time spent spinning, per mille", pick::SPINNING, &|find| {
                find("permille_cpu_time_spinning")
            }),
            row("contended of the lock's acquisitions, %", pick::CONTENDED, &|find| {
                let (free, contended) = (find("lock_free")?, find("lock_contended")?);
                Some(100.0 * contended / (free + contended))
            }),
            row("wait of a contended one, ns", pick::WAIT, &|find| {
                Some(find("wait_avg_ticks")? * SECONDS * 1e9 / find("lifetime_ticks")?)
            }),
            row("worker burns a second", pick::BURNS, &|find| find("worker_burns_per_second")),
            row("main thread burns in 30 s", pick::MAIN_BURNS, &|find| find("main_thread_burns")),
        ],
    }
}

/// Its tables. The source's figures that are left out follow from these, except the burns of the workers with
/// the fewest and the most, whose distance depends on the length of the run.
pub(super) fn tables() -> Vec<Table> {
    vec![sembench()]
}
