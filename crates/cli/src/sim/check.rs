//! `poundlock sim check`: every lock under schedules from seeds, with the simulator's checker.

use std::ops::Range;

use poundlock_sim::check::{Tally, check_all, names};

use super::sheet::Sheet;
use super::{US, cpu_time, one_of, progress, say_speed};
use crate::message::{Failure, status};
use crate::output::{counted, print};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The locks [default: all]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    lock: Vec<String>,
    /// The seeds: the first, and the one behind the last
    #[arg(long, value_name = "FROM..TO", default_value = "0..10000", value_parser = seeds)]
    seeds: Range<u64>,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    match range {
        Some(range) if range.start < range.end => Ok(range),
        _ => Err("it must be two numbers, as in 0..10000, and the first the lower one".to_owned()),
    }
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let locks: Vec<&'static str> = if args.lock.is_empty() {
        names().collect()
    } else {
        let all: Vec<_> = names().collect();
        args.lock.iter().map(|name| one_of(&all, name)).collect::<Result<_, _>>()?
    };
    let seeds = args.seeds.end - args.seeds.start;
    let Some(runs) = usize::try_from(seeds).ok().and_then(|seeds| seeds.checked_mul(locks.len())) else {
        return Err(Failure::new(status::USAGE, "so many seeds take for ever"));
    };
    let bar = progress(runs);
    let before = cpu_time();
    let result = check_all(&locks, args.seeds.clone(), |lock, seeds| {
        bar.set_message(lock);
        bar.inc(seeds);
    });
    bar.finish_and_clear();
    let used = cpu_time().saturating_sub(before);
    let tallies = result.map_err(|failure| Failure::new(status::NO, failure))?;
    say_speed(tallies.iter().map(|tally| tally.accesses).sum(), used);
    print(&format!("{}\n{}\n", sheet(&locks, &tallies).text(), verdict(locks.len(), &args.seeds)))
}

/// What a run that ends without a failure says.
fn verdict(locks: usize, seeds: &Range<u64>) -> String {
    let runs = counted(locks as u64 * (seeds.end - seeds.start), "run");
    let locks = counted(locks as u64, "lock");
    format!("no violation found in {runs} ({locks}, seeds {}..{})", seeds.start, seeds.end)
}

fn sheet(locks: &[&str], tallies: &[Tally]) -> Sheet {
    let header = ["lock", "seeds", "sections", "longest wait, us", "most passed", "accesses"];
    let row = |(lock, tally): (&&str, &Tally)| {
        vec![
            (*lock).to_owned(),
            tally.seeds.to_string(),
            tally.sections.to_string(),
            format!("{:.1}", tally.longest_wait as f64 / US),
            tally.most_passed.to_string(),
            tally.accesses.to_string(),
        ]
    };
    Sheet {
        header: header.map(str::to_owned).to_vec(),
        rows: locks.iter().zip(tallies).map(row).collect(),
        words: &[0],
    }
}

#[cfg(test)]
mod tests {
    use super::{seeds, verdict};

    #[test]
    fn the_verdict_names_what_was_run() {
        assert_eq!(verdict(2, &(3..7)), "no violation found in 8 runs (2 locks, seeds 3..7)");
        assert_eq!(verdict(1, &(3..4)), "no violation found in 1 run (1 lock, seeds 3..4)");
    }

    #[test]
    fn seeds_are_a_range() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        for text in ["", "3", "..7", "3..", "7..3", "3..3", "a..b", "-1..3", "3..=7"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }
}
