//! `poundlock stat --compare`: the program on its own locks and on ours, in turns, side by side.

use std::ffi::OsStr;
use std::path::Path;

use poundlock_measure::{Machine, Others, Summary, Usage};
use poundlock_names::{Choice, LockName, RwLocks};
use serde::Serialize;

use super::figures::{Figures, PREFIX};
use super::text::{duration, percent};
use super::{Args, Files};
use crate::message::{Failure, say, status};
use crate::observe::place::{self, monotonic_ns};
use crate::output::{counted, quoted};
use crate::{launch, library, semaphores};

/// With fewer rounds chance alone keeps intervals apart too often: of five against five it does in one of 126
/// cases.
const LEAST: usize = 5;

/// What of a run is compared.
#[derive(Clone, Copy, Serialize)]
struct Run {
    wall_ns: u64,
    cpu_ns: u64,
    waits: u64,
    wait_ns: u64,
    /// Of the threads' time.
    share: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    command: Vec<String>,
    its_own: String,
    ours: String,
    busy: &'a Option<String>,
    verdict: &'a str,
    /// In the order in which they ran, two and two.
    rounds: Vec<Round>,
}

#[derive(Serialize)]
struct Round {
    its_own: Run,
    ours: Run,
}

/// Runs the rounds, and says what they show.
pub(super) fn main(args: &Args, program: &Path, files: Files) -> Result<u8, Failure> {
    let its_own = locks(args, LockName::Glibc)?;
    let ours = locks(args, LockName::DEFAULT)?;
    let machine = Machine::describe("");
    let others = Others::watch();
    let cpu = Usage::of_children().cpu_ns;
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        // Each goes first every other time.
        let once = |of: (Choice, RwLocks)| run(args, program, of, round);
        let (a, b) = if round % 2 == 0 {
            let first = once(its_own)?;
            (first, once(ours)?)
        } else {
            let first = once(ours)?;
            (once(its_own)?, first)
        };
        rounds.push(Round { its_own: a, ours: b });
    }
    let share = others.share(Usage::of_children().cpu_ns.saturating_sub(cpu), machine.cpus);
    let busy = poundlock_measure::busy_line(&machine, share);
    let verdict = verdict(&rounds);
    let command: Vec<String> =
        args.run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let text = text(&command, &rounds, its_own.0, ours.0, busy.as_deref(), &verdict);
    match files.text {
        None => eprint!("{text}"),
        Some(file) => file.write(|out| out.write_all(text.as_bytes()))?,
    }
    if let Some(json) = files.json {
        let document = Document {
            version: super::json::VERSION,
            command,
            its_own: its_own.0.to_string(),
            ours: ours.0.to_string(),
            busy: &busy,
            verdict: &verdict,
            rounds,
        };
        json.write(|out| {
            serde_json::to_writer(&mut *out, &document)?;
            out.write_all(b"\n")
        })?;
    }
    Ok(0)
}

fn locks(args: &Args, mutex: LockName) -> Result<(Choice, RwLocks), Failure> {
    crate::locks::parse_both(mutex.name(), args.run.rwlock.as_deref().filter(|_| mutex != LockName::Glibc))
}

/// One run. A command that fails has not done its work, and is not compared.
fn run(
    args: &Args,
    program: &Path,
    (lock, rwlocks): (Choice, RwLocks),
    round: usize,
) -> Result<Run, Failure> {
    let dir = place::directory(PREFIX)?;
    let mut environment = library::environment_for(program, lock, rwlocks)?;
    environment.extend(args.run.arrays(lock).map(semaphores::change));
    environment.push((OsStr::new(library::STAT_VARIABLE), Some(dir.path().into())));
    let cpu = Usage::of_children().cpu_ns;
    let ended = launch::run(program, &args.run.command, &environment)?;
    let cpu_ns = Usage::of_children().cpu_ns.saturating_sub(cpu);
    let figures = Figures::read(dir.path(), monotonic_ns());
    if !ended.status.success() {
        let line = format_args!(
            "in round {} on {lock} the command ended with {}: nothing is compared",
            round + 1,
            ended.in_words()
        );
        return Err(Failure::new(ended.exit_code(), line));
    }
    if figures.snapshots.is_empty() {
        say("the command did not load our library: its waits are not known");
    }
    let (mut waits, mut wait_ns) = (0, 0);
    for process in 0..figures.snapshots.len() {
        figures.each_lock(process, |lock| {
            if lock.kind.is_acquired() {
                waits += lock.contended;
                wait_ns += lock.wait_total_ns;
            }
        });
    }
    let time: u64 = figures.snapshots.iter().map(|snapshot| snapshot.thread_time_ns).sum();
    Ok(Run { wall_ns: ended.wall_ns, cpu_ns, waits, wait_ns, share: super::report::ratio(wait_ns, time) })
}

/// Who is faster: only if each round of one took less time than every round of the other.
fn verdict(rounds: &[Round]) -> String {
    let (own, ours): (Vec<f64>, Vec<f64>) =
        rounds.iter().map(|round| (round.its_own.wall_ns as f64, round.ours.wall_ns as f64)).unzip();
    let (Some(own), Some(ours)) = (Summary::of(own), Summary::of(ours)) else { return String::new() };
    if rounds.len() < LEAST {
        return format!("no verdict: it takes {LEAST} rounds or more");
    }
    if ours.max < own.min {
        format!("faster on Poundlock's locks: {:.2} times the speed", own.median / ours.median)
    } else if own.max < ours.min {
        format!("slower on Poundlock's locks: {:.2} times the speed", own.median / ours.median)
    } else {
        "no verdict: the times overlap".to_owned()
    }
}

fn text(
    command: &[String],
    rounds: &[Round],
    its_own: Choice,
    ours: Choice,
    busy: Option<&str>,
    verdict: &str,
) -> String {
    let mut text = String::from("\n");
    if let Some(busy) = busy {
        text += &format!("{busy}\n");
    }
    let line: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    text += &format!("poundlock stat --compare: {}\n", line.join(" "));
    let turns = counted(rounds.len() as u64, "round");
    text += &format!(
        "locks measured: its own ({its_own}) and Poundlock's ({ours}) in its place, {turns} in turns; medians \
         (smallest..largest)\n\n"
    );
    text += &format!("{:<9}  {:<28}  {:<28}  ratio\n", "", "its own", "Poundlock's");
    let ns = |value: f64| duration(value.round() as u64);
    type Row<'r> = (&'r str, fn(&Run) -> f64, &'r dyn Fn(f64) -> String);
    let rows: [Row; 5] = [
        ("wall time", |run| run.wall_ns as f64, &ns),
        ("CPU time", |run| run.cpu_ns as f64, &ns),
        ("waits", |run| run.waits as f64, &|value| format!("{value:.0}")),
        ("waiting", |run| run.wait_ns as f64, &ns),
        ("lost", |run| run.share, &percent),
    ];
    for (what, of, shown) in rows {
        let each =
            |pick: fn(&Round) -> &Run| rounds.iter().map(|round| Some(of(pick(round)))).collect::<Vec<_>>();
        let (a, b) = (each(|round| &round.its_own), each(|round| &round.ours));
        let cell = |values: &[Option<f64>]| {
            let summary = Summary::of(values.iter().flatten().copied());
            summary.map_or_else(String::new, |summary| {
                let [median, min, max] = [summary.median, summary.min, summary.max].map(shown);
                format!("{median} ({min}..{max})")
            })
        };
        let ratio = Summary::of_ratios(&b, &a).filter(|ratio| ratio.median.is_finite());
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.words());
        text += &format!("{what:<9}  {:<28}  {:<28}  {ratio}\n", cell(&a), cell(&b));
    }
    text += &format!("\n{verdict}\n");
    text
}

/// Options that say otherwise.
pub(super) fn contradictions(args: &Args) -> Result<(), Failure> {
    if args.rounds == 0 {
        return Err(Failure::new(status::USAGE, "--rounds 0 compares nothing: at least 1"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Round, Run, verdict};

    fn rounds(own: &[u64], ours: &[u64]) -> Vec<Round> {
        let run = |wall_ns| Run { wall_ns, cpu_ns: 0, waits: 0, wait_ns: 0, share: 0.0 };
        own.iter().zip(ours).map(|(a, b)| Round { its_own: run(*a), ours: run(*b) }).collect()
    }

    #[test]
    fn a_verdict_needs_times_that_do_not_overlap() {
        let faster = verdict(&rounds(&[200, 210, 220, 215, 205], &[100, 110, 120, 130, 90]));
        assert!(faster.starts_with("faster") && faster.contains("1.91"), "{faster}");
        assert!(verdict(&rounds(&[90, 80, 85, 95, 99], &[100, 110, 120, 130, 101])).starts_with("slower"));
        // One round among the others' is enough against it; so are too few.
        assert!(
            verdict(&rounds(&[200, 210, 125, 215, 205], &[100, 110, 120, 130, 90])).starts_with("no verdict")
        );
        assert!(verdict(&rounds(&[200, 210], &[100, 110])).starts_with("no verdict"));
    }
}
