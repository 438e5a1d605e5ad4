//! `poundlock sim validate`: what the simulator predicts for this machine, against what `bench` measures on
//! it.

use std::path::PathBuf;

use poundlock_bench::grid;
use poundlock_bench::grid::result::{Directory, Kind, Outcome, Point, Sample};
use poundlock_sim::experiment::{self, Experiment, Work};
use poundlock_sim::locks;
use poundlock_sim::model::Model;
use serde::Serialize;

use super::sheet::Sheet;
use super::{MS, US, here, progress};
use crate::bench::{context, failure};
use crate::message::{Failure, status};
use crate::results::{Output, print_beside, write_json};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The results of `poundlock bench grid`, which are simulated rather than measured anew
    #[arg(value_name = "DIR")]
    results: Option<PathBuf>,
    /// The locks [default: poundlock,any-negative,handoff,qspin-pv]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', conflicts_with = "results")]
    lock: Vec<String>,
    /// Numbers of threads
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1, 2, 4, 16],
        conflicts_with = "results")]
    threads: Vec<usize>,
    /// Rounds in which each lock is measured once at each point
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "results")]
    rounds: usize,
    /// Write the figures to FILE as JSON as well; instead of the table if it is `-`, standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The locks that are compared if none are named: one of each family.
const LOCKS: [&str; 4] = ["poundlock", "any-negative", "handoff", "qspin-pv"];

#[derive(Serialize)]
struct Row {
    lock: &'static str,
    threads: usize,
    critical_us: f64,
    think_us: f64,
    /// Operations a second: of the rounds, the median, the least and the most.
    measured: f64,
    measured_least: f64,
    measured_most: f64,
    simulated: f64,
}

impl Row {
    /// Simulated, of measured.
    fn ratio(&self) -> f64 {
        self.simulated / self.measured
    }

    /// How far off, one way or the other: 1 is exact.
    fn factor(&self) -> f64 {
        self.ratio().max(1.0 / self.ratio())
    }
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let json = Output::open(args.json.as_deref())?;
    // Dropped, and with it the files, when all is told.
    let place;
    let directory = match &args.results {
        Some(path) => Directory::at(path),
        None => {
            place = tempfile::tempdir().map_err(|error| Failure::new(status::OURS, error))?;
            measure(args, place.path().join("grid"))?
        }
    };
    let run = directory.run().map_err(failure)?;
    let samples = directory.samples().map_err(failure)?;
    let floors = directory.floors().map_err(failure)?.ok_or_else(|| {
        Failure::new(status::OURS, format_args!("{}: no floors were measured", directory.path().display()))
    })?;
    let machine = here::machine(&floors, &run.cpus)?;
    let mut cases: Vec<(&Point, &'static str, Vec<f64>)> = Vec::new();
    for (index, point) in run.points.iter().enumerate().filter(|(_, point)| point.kind == Kind::Grid) {
        for lock in locks::names().filter(|lock| run.peers.iter().any(|peer| peer.ours && peer.name == *lock))
        {
            let measured = rounds(&samples, index, lock);
            if !measured.is_empty() {
                cases.push((point, lock, measured));
            }
        }
    }
    if cases.is_empty() {
        return Err(Failure::new(
            status::OURS,
            format_args!(
                "{}: no lock of ours was measured at a point of the grid",
                directory.path().display()
            ),
        ));
    }
    let model = Model::known();
    let bar = progress(cases.len());
    let outcomes = experiment::each(
        cases.len(),
        |at| {
            let (point, lock, _) = &cases[at];
            let work =
                Work::Grid { critical: (point.critical_us * US) as u64, think: (point.think_us * US) as u64 };
            // As long as it was measured, but not so long that it takes minutes.
            let time = ((point.seconds * 1e3).clamp(20.0, 100.0) * MS) as u64;
            let threads = point.threads as u32;
            Experiment { machine: &machine, guest: None, work, model: &model, lock, threads, seed: 1, time }
                .run()
        },
        |at| {
            bar.set_message(format!("{}, {}", cases[at].1, cases[at].0.name));
            bar.inc(1);
        },
    );
    bar.finish_and_clear();
    let mut rows = Vec::new();
    for ((point, lock, measured), outcome) in cases.iter().zip(outcomes) {
        let outcome = outcome.map_err(|line| Failure::new(status::OURS, line))?;
        rows.push(Row {
            lock,
            threads: point.threads,
            critical_us: point.critical_us,
            think_us: point.think_us,
            measured: measured[measured.len() / 2],
            measured_least: measured[0],
            measured_most: measured[measured.len() - 1],
            // The grid's first figure is in thousands.
            simulated: outcome.figures[0].value * 1e3,
        });
    }
    let printed = print_beside(&text(&rows), &[&json]);
    // The figures are for the file even if nobody reads the table.
    write_json(&rows, json)?;
    printed
}

/// Measures, and returns where the results are.
fn measure(args: &Args, path: PathBuf) -> Result<Directory, Failure> {
    let names: Vec<String> = if args.lock.is_empty() {
        LOCKS.map(str::to_owned).to_vec()
    } else {
        args.lock.iter().map(|name| super::lock(name).map(str::to_owned)).collect::<Result<_, _>>()?
    };
    let options = grid::Options {
        kinds: vec![Kind::Grid],
        ours: names.first().cloned(),
        locks: names,
        threads: args.threads.clone(),
        critical_us: vec![0.2, 2.0],
        think_us: vec![0.4, 4.0],
        rounds: Some(args.rounds),
        ..grid::Options::default()
    };
    let context = context()?;
    let job = grid::Job::new(&context, &options, Some(path)).map_err(failure)?;
    match job.run(&context).map_err(failure)? {
        grid::Ended::Complete => Ok(Directory::at(job.path())),
        grid::Ended::Interrupted { .. } => Err(Failure::new(status::INTERRUPTED, "interrupted")),
    }
}

/// Operations a second in each round, in order; none where there were none.
fn rounds(samples: &[Sample], point: usize, lock: &str) -> Vec<f64> {
    let here = samples.iter().filter(|sample| sample.point == point && sample.lock == lock);
    let throughput = |sample: &Sample| match &sample.outcome {
        Outcome::Figures(figures) => figures.get("throughput").copied(),
        Outcome::Failed(_) => None,
    };
    let mut measured: Vec<f64> = here.filter_map(throughput).collect();
    measured.retain(|&operations| operations > 0.0);
    measured.sort_by(f64::total_cmp);
    measured
}

fn text(rows: &[Row]) -> String {
    let header = [
        "lock",
        "threads",
        "inside, us",
        "outside, us",
        "measured, thousands/s",
        "least",
        "most",
        "simulated",
        "of it",
    ];
    let cells = |row: &Row| {
        let mut cells = vec![row.lock.to_owned()];
        cells.extend([row.threads.to_string(), row.critical_us.to_string(), row.think_us.to_string()]);
        let figures = [row.measured, row.measured_least, row.measured_most, row.simulated];
        cells.extend(figures.map(|figure| format!("{:.0}", figure / 1e3)));
        cells.push(format!("{:.2}", row.ratio()));
        cells
    };
    let header = header.map(str::to_owned).to_vec();
    let sheet = Sheet { header, rows: rows.iter().map(cells).collect(), words: &[0] };
    let mut factors: Vec<f64> = rows.iter().map(Row::factor).collect();
    factors.sort_by(f64::total_cmp);
    let worst = factors.last().copied().unwrap_or(1.0);
    format!(
        "{}median error {:.0} %, worst factor {worst:.2}\n",
        sheet.text(),
        (factors[factors.len() / 2] - 1.0) * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locks_that_nobody_named_are_known() {
        for name in LOCKS {
            assert!(crate::sim::lock(name).is_ok(), "{name}");
        }
    }
}
