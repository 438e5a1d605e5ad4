//! `poundlock stat --compare`: the program on its own locks and on ours, in turns, side by side.
//!
//! [`side`] runs it once; here is what is compared, and what the rounds show.

pub(super) mod metric;
mod ports;
mod side;

use std::path::Path;
use std::time::Duration;

use poundlock_measure::{Machine, Others, Summary, Usage};
use poundlock_names::{Choice, LockName, RwLocks};
use serde::Serialize;

use super::text::{duration, percent};
use super::{Args, Files};
use crate::message::{Failure, status};
use crate::output::{counted, quoted};

/// With fewer rounds no outcome is rare enough.
const LEAST: usize = 5;
/// Chance alone gives each verdict in one of so many comparisons of two sides that do not differ: five rounds
/// that are all better than five others.
const RARE: f64 = 252.0;
/// Nobody is told to run more rounds than this.
const MOST: usize = 50;

/// What of a run is compared.
#[derive(Clone, Copy, Default, Serialize)]
struct Run {
    /// The time that was measured: the program's, or that which options say.
    wall_ns: u64,
    cpu_ns: u64,
    acquisitions: u64,
    waits: u64,
    wait_ns: u64,
    /// That of the threads.
    #[serde(skip)]
    time_ns: u64,
    /// The waits' share of it.
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<f64>,
    /// The client's time, if it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_ns: Option<u64>,
    /// Whether the program ended by itself.
    #[serde(skip)]
    by_itself: bool,
}

impl Run {
    /// Acquisitions a second.
    fn rate(&self) -> f64 {
        self.acquisitions as f64 * 1e9 / self.wall_ns.max(1) as f64
    }
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    command: Vec<String>,
    its_own: String,
    ours: String,
    busy: &'a Option<String>,
    /// The expression of `--metric`.
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<&'a str>,
    /// What the verdict is about, and whether more of it is better.
    by: &'static str,
    higher_is_better: bool,
    verdict: &'a str,
    /// In the order in which they ran, two and two.
    rounds: Vec<Round>,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Round {
    its_own: Run,
    ours: Run,
}

/// By what sides are judged.
#[derive(Clone, Copy, PartialEq, Debug)]
enum By {
    Metric {
        lower: bool,
    },
    Client,
    Wall,
    /// Acquisitions a second: they stand for work where nothing else is known.
    Rate,
}

impl By {
    fn of(args: &Args, rounds: &[Round]) -> By {
        let all = |is: fn(&Run) -> bool| rounds.iter().all(|round| is(&round.its_own) && is(&round.ours));
        match (&args.metric, &args.client) {
            (Some(_), _) => By::Metric { lower: args.lower_is_better },
            (None, Some(_)) if all(|run| run.client_ns.is_some()) => By::Client,
            (None, None) if all(|run| run.by_itself) => By::Wall,
            _ => By::Rate,
        }
    }

    fn name(self) -> &'static str {
        match self {
            By::Metric { .. } => "metric",
            By::Client => "client time",
            By::Wall => "wall time",
            By::Rate => "acquisitions a second",
        }
    }

    fn higher_is_better(self) -> bool {
        matches!(self, By::Metric { lower: false } | By::Rate)
    }

    fn value(self, run: &Run) -> f64 {
        match self {
            By::Metric { .. } => run.metric.unwrap_or_default(),
            By::Client => run.client_ns.unwrap_or_default() as f64,
            By::Wall => run.wall_ns as f64,
            By::Rate => run.rate(),
        }
    }
}

/// Runs the rounds, and says what they show.
pub(super) fn main(args: &Args, program: &Path, files: Files) -> Result<u8, Failure> {
    let its_own = locks(args, LockName::Glibc)?;
    let ours = locks(args, LockName::DEFAULT)?;
    let machine = Machine::describe("");
    let others = Others::watch();
    let cpu = Usage::of_children().cpu_ns;
    side::adopt();
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        // Each goes first every other time.
        let once = |of: (Choice, RwLocks)| side::run(args, program, of, round);
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
    let by = By::of(args, &rounds);
    let verdict = verdict(by, &rounds, busy.is_some());
    let command: Vec<String> =
        args.run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let text = text(args, by, &command, &rounds, (its_own.0, ours.0), busy.as_deref(), &verdict);
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
            metric: args.metric.as_ref().map(metric::Metric::expression),
            by: by.name(),
            higher_is_better: by.higher_is_better(),
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

/// The command line that compares the locks of what was just measured, with the options it was measured with.
/// A command that does not end by itself gets as long as it was measured.
pub(super) fn command_line(
    args: Option<&Args>,
    command: &[String],
    wall_ns: u64,
    ends: bool,
) -> Option<String> {
    let mut words = vec!["poundlock stat --compare".to_owned()];
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {}", quoted(&value))));
    };
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    option("--rwlock", args.and_then(|args| args.run.rwlock.clone()));
    option("--semaphores", args.and_then(|args| args.run.semaphores.clone()));
    option("--delay", args.and_then(|args| args.delay.map(seconds)));
    let measured = || (wall_ns as f64 / 1e9).ceil().max(1.0).to_string();
    let given = args.and_then(|args| args.r#for.map(seconds));
    option("--for", given.or_else(|| (!ends).then(measured)));
    words.push("--".to_owned());
    words.extend(command.iter().map(|word| quoted(word)));
    (!command.is_empty()).then(|| words.join(" "))
}

fn locks(args: &Args, mutex: LockName) -> Result<(Choice, RwLocks), Failure> {
    crate::locks::parse_both(mutex.name(), args.run.rwlock.as_deref().filter(|_| mutex != LockName::Glibc))
}

/// In how many pairs of a value of each side ours is higher; equal ones count one half.
fn wins(own: &[f64], ours: &[f64]) -> f64 {
    let pairs = ours.iter().flat_map(|b| own.iter().map(move |a| (a, b)));
    pairs
        .map(|(a, b)| {
            if b > a {
                1.0
            } else if b < a {
                0.0
            } else {
                0.5
            }
        })
        .sum()
}

/// How likely that many wins or more are by chance, of `n` values a side (Mann and Whitney, 1947): exact, by
/// counting the orders of all values; for many by the normal distribution.
fn chance(n: usize, wins: f64) -> f64 {
    let most = n * n;
    if n > MOST {
        let deviation = ((most * (2 * n + 1)) as f64 / 12.0).sqrt();
        let z = (wins - most as f64 / 2.0 - 0.5) / deviation;
        // A bound of the tail, within a tenth where it matters here.
        return if z <= 1.0 { 1.0 } else { (-z * z / 2.0).exp() / (z * std::f64::consts::TAU.sqrt()) };
    }
    // Orders with so many of our values and so many wins: a further value of ours wins over each of the other
    // side's that came before it.
    let mut orders = vec![vec![0.0; most + 1]; n + 1];
    orders[0][0] = 1.0;
    for before in 0..=n {
        for ours in 1..=n {
            for won in before..=most {
                orders[ours][won] += orders[ours - 1][won - before];
            }
        }
    }
    let all: f64 = orders[n].iter().sum();
    orders[n][(wins.floor() as usize).min(most)..].iter().sum::<f64>() / all
}

/// Who is better: said only where chance does as well in one of 126 comparisons (both directions together).
/// Of five rounds each of one side has to be better than every one of the other; of more some may overlap.
fn verdict(by: By, rounds: &[Round], busy: bool) -> String {
    let (own, ours): (Vec<f64>, Vec<f64>) =
        rounds.iter().map(|round| (by.value(&round.its_own), by.value(&round.ours))).unzip();
    let sums = (Summary::of(own.iter().copied()), Summary::of(ours.iter().copied()));
    let (Some(own_sum), Some(our_sum)) = sums else { return String::new() };
    let n = rounds.len();
    if n < LEAST {
        return format!("no verdict: it takes {LEAST} rounds or more (--rounds {LEAST})");
    }
    if by == By::Rate && own_sum.max == 0.0 && our_sum.max == 0.0 {
        return "no verdict: no lock that is counted was acquired; --metric REGEX compares a number that the program \
                or its client prints"
            .to_owned();
    }
    let won = wins(&own, &ours);
    let all = (n * n) as f64;
    let higher = chance(n, won) <= 1.0 / RARE;
    if higher || chance(n, all - won) <= 1.0 / RARE {
        let better = higher == by.higher_is_better();
        let ratio = our_sum.median / own_sum.median;
        let speed = if by.higher_is_better() { ratio } else { ratio.recip() };
        let than = format!("{} rather than {}", figure(our_sum.median), figure(own_sum.median));
        return match (by, better) {
            (By::Metric { .. }, _) => {
                let word = if better { "better" } else { "worse" };
                format!("{word} on Poundlock's locks: the metric is {than} ({ratio:.2} times)")
            }
            (_, better) => {
                let word = if better { "faster" } else { "slower" };
                let of = match by {
                    By::Rate => {
                        "acquisitions a second, which stand for its work (--metric names another figure)"
                    }
                    By::Client => "speed, by the client's time",
                    _ => "speed",
                };
                format!("{word} on Poundlock's locks: {speed:.2} times the {of}")
            }
        };
    }
    let apart = (our_sum.median / own_sum.median - 1.0).abs();
    let spread = |sum: &Summary| (sum.q3 - sum.q1) / sum.median.abs();
    let spread = spread(&own_sum).max(spread(&our_sum));
    format!("no verdict: the {} overlap: {}", by.plural(), remedy(apart, spread, enough(n, won), busy))
}

impl By {
    fn plural(self) -> &'static str {
        match self {
            By::Metric { .. } => "metrics",
            By::Client | By::Wall => "times",
            By::Rate => "acquisitions a second",
        }
    }
}

/// How many rounds would be enough for a verdict, if as large a part of the pairs is won in them.
fn enough(n: usize, won: f64) -> Option<usize> {
    let part = won / (n * n) as f64;
    let part = part.max(1.0 - part);
    (n + 1..=MOST).find(|&n| chance(n, part * (n * n) as f64) <= 1.0 / RARE)
}

/// What would give a verdict: the medians are this far apart, and half of one side's rounds are within that
/// spread, both as parts of a median.
fn remedy(apart: f64, spread: f64, enough: Option<usize>, busy: bool) -> String {
    let mut text = format!(
        "the medians differ by {}, and the rounds of one side among themselves by {}",
        percent(apart),
        percent(spread)
    );
    if busy {
        text += "; use a quieter machine";
    }
    // Disturbances that do not depend on each other average out with the root of their number.
    let longer = (spread / apart).powi(2).ceil();
    match enough {
        Some(rounds) => text += &format!("; if rounds go on so, --rounds {rounds} gives one"),
        None if apart < 0.01 => text += "; the locks make no difference that is worth more rounds",
        None if longer.is_finite() && (2.0..=100.0).contains(&longer) => {
            text += &format!(
                "; more rounds like these do not help: have each run take {longer:.0} times as long"
            );
        }
        None if !busy => {
            text += "; more rounds like these do not help: a quieter machine does, or longer runs"
        }
        None => {}
    }
    text
}

/// A number of which no unit is known: at least four digits.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 || value == value.round() => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn text(
    args: &Args,
    by: By,
    command: &[String],
    rounds: &[Round],
    (its_own, ours): (Choice, Choice),
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
         (smallest..largest)\n"
    );
    if let Some(client) = &args.client {
        text += &format!("client: {client}\n");
    }
    if let (Some(metric), By::Metric { lower }) = (&args.metric, by) {
        let better = if lower { "lower" } else { "higher" };
        text += &format!("metric: {}, {better} is better\n", quoted(metric.expression()));
    }
    text += &format!("\n{:<10}  {:<28}  {:<28}  ratio\n", "", "its own", "Poundlock's");
    let ns = |value: f64| duration(value.round() as u64);
    let plain = |value: f64| format!("{value:.0}");
    type Row<'r> = (&'r str, &'r dyn Fn(&Run) -> f64, &'r dyn Fn(f64) -> String);
    let (metric, client) = (By::Metric { lower: false }, By::Client);
    let (of_metric, of_client) = (|run: &Run| metric.value(run), |run: &Run| client.value(run));
    let mut rows: Vec<Row> = vec![
        ("wall time", &|run| run.wall_ns as f64, &ns),
        ("CPU time", &|run| run.cpu_ns as f64, &ns),
        ("waits", &|run| run.waits as f64, &plain),
        ("waiting", &|run| run.wait_ns as f64, &ns),
        ("lost", &|run| run.share, &percent),
    ];
    // Of a time that options say it says nothing.
    if by != By::Wall && args.r#for.is_some() {
        rows[0] = ("acquired/s", &|run| run.rate(), &plain);
    }
    if args.client.is_some() && rounds.iter().all(|round| round.its_own.client_ns.is_some()) {
        rows[0] = ("client", &of_client, &ns);
    }
    if args.metric.is_some() {
        rows.insert(0, ("metric", &of_metric, &figure));
    }
    let mut contradicted = false;
    for (what, of, shown) in rows {
        let each =
            |pick: fn(&Round) -> &Run| rounds.iter().map(|round| Some(of(pick(round)))).collect::<Vec<_>>();
        let (a, b) = (each(|round| &round.its_own), each(|round| &round.ours));
        let sums = [&a, &b].map(|values| Summary::of(values.iter().flatten().copied()));
        let [own, our] = sums.map(|summary| {
            summary.map_or_else(String::new, |summary| {
                let [median, min, max] = [summary.median, summary.min, summary.max].map(shown);
                format!("{median} ({min}..{max})")
            })
        });
        let ratio = Summary::of_ratios(&b, &a).filter(|ratio| ratio.median.is_finite());
        let other_way = match (ratio, sums) {
            (Some(ratio), [Some(a), Some(b)]) => (ratio.median - 1.0) * (b.median - a.median) < 0.0,
            _ => false,
        };
        contradicted |= other_way;
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.words());
        let mark = if other_way { " *" } else { "" };
        text += &format!("{what:<10}  {own:<28}  {our:<28}  {ratio}{mark}\n");
    }
    if contradicted {
        text += "* the median of the rounds' own ratios: the two medians beside it compare different rounds, and \
                 point the other way\n";
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
    use super::{Args, By, Choice, Round, Run, chance, command_line, enough, remedy, text, verdict, wins};

    fn rounds(own: &[u64], ours: &[u64]) -> Vec<Round> {
        let run = |value: u64| Run { wall_ns: value, metric: Some(value as f64), ..Run::default() };
        own.iter().zip(ours).map(|(a, b)| Round { its_own: run(*a), ours: run(*b) }).collect()
    }

    #[test]
    fn a_verdict_needs_what_chance_seldom_does() {
        let (long, short) = ([200, 210, 220, 215, 205], [100, 110, 120, 130, 90]);
        let judged = |by, own: &[u64], ours: &[u64]| verdict(by, &rounds(own, ours), false);
        let faster = judged(By::Wall, &long, &short);
        assert!(faster.starts_with("faster") && faster.contains("1.91"), "{faster}");
        assert!(judged(By::Wall, &short, &long).starts_with("slower"));
        let (higher, lower) = (By::Metric { lower: false }, By::Metric { lower: true });
        for (by, own, ours, word) in [
            (higher, &short, &long, "better"),
            (higher, &long, &short, "worse"),
            (lower, &short, &long, "worse"),
            (lower, &long, &short, "better"),
        ] {
            let text = judged(by, own, ours);
            assert!(text.starts_with(word), "{text}");
        }
        // Of five rounds one among the others' is enough against it; so are too few.
        let mixed = judged(By::Wall, &[200, 210, 125, 215, 205], &short);
        assert!(mixed.starts_with("no verdict: the times overlap: the medians differ by"), "{mixed}");
        assert!(mixed.contains("--rounds 7 gives one"), "{mixed}");
        let few = judged(By::Wall, &[200, 210], &[100, 110]);
        assert!(few.starts_with("no verdict") && few.contains("--rounds 5"), "{few}");
        // Of more it is not.
        let twice = [long, [200, 210, 125, 215, 205]].concat();
        assert!(judged(By::Wall, &twice, &[short, short].concat()).starts_with("faster"));
        assert!(judged(By::Rate, &[1; 5], &[1; 5]).contains("--metric"));
    }

    fn parsed(line: &[&str]) -> Args {
        use clap::{Args as _, FromArgMatches as _};
        let command = Args::augment_args(clap::Command::new("stat"));
        Args::from_arg_matches(&command.get_matches_from(line)).expect("arguments")
    }

    #[test]
    fn the_command_line_for_a_comparison_is_one_and_has_the_options_that_were_given() {
        let command = ["./server".to_owned(), "a b".to_owned()];
        for (line, ends, wanted) in [
            (&["stat", "--", "x"][..], true, "poundlock stat --compare -- ./server 'a b'"),
            (&["stat", "--", "x"], false, "poundlock stat --compare --for 3 -- ./server 'a b'"),
            (
                &["stat", "--delay", "0.5", "--for", "9", "--rwlock", "glibc", "--html", "p", "--", "x"],
                false,
                "poundlock stat --compare --rwlock glibc --delay 0.5 --for 9 -- ./server 'a b'",
            ),
        ] {
            let said = command_line(Some(&parsed(line)), &command, 2_100_000_000, ends);
            assert_eq!(said.as_deref(), Some(wanted));
            let words = wanted.replace("'a b'", "ab");
            let words: Vec<&str> = words.split(' ').skip(1).collect();
            assert!(parsed(&words).compare, "{words:?}");
        }
        assert_eq!(command_line(None, &[], 1, true), None);
    }

    #[test]
    fn a_ratio_of_pairs_is_told_from_the_medians_that_it_contradicts() {
        let args = parsed(&["stat", "--compare", "--", "x"]);
        let locks = (Choice::default(), Choice::default());
        let shown = |own: &[u64], ours: &[u64]| {
            let text = text(&args, By::Wall, &[], &rounds(own, ours), locks, None, "");
            text.lines().any(|line| line.ends_with(" *")) && text.contains("* the median of the rounds")
        };
        // Ours is slower in two of three rounds, and its median is less.
        assert!(shown(&[10, 20, 30], &[11, 15, 31]));
        assert!(!shown(&[10, 20, 30], &[11, 21, 31]));
    }

    #[test]
    fn chances_are_those_of_orders() {
        // One order of 252, and of 924 four that win 34 or more of 36.
        assert!((chance(5, 25.0) - 1.0 / 252.0).abs() < 1e-12);
        assert!((chance(6, 34.0) - 4.0 / 924.0).abs() < 1e-12);
        assert!((chance(5, 0.0) - 1.0).abs() < 1e-12);
        assert!(chance(60, 1800.0) > 0.3 && chance(60, 3600.0) < 1e-9);
        assert_eq!(wins(&[1.0, 3.0], &[2.0, 3.0]), 2.5);
        assert_eq!(enough(5, 24.0), Some(7));
        assert_eq!(enough(5, 12.5), None);
    }

    #[test]
    fn what_would_give_a_verdict_follows_from_the_spread() {
        let cases = [
            (0.1, 0.2, Some(12), false, "--rounds 12"),
            (0.001, 0.02, None, false, "no difference"),
            (0.05, 0.2, None, false, "16 times as long"),
            (0.02, 0.9, None, false, "a quieter machine does"),
            (0.1, 0.2, None, true, "use a quieter machine"),
        ];
        for (apart, spread, enough, busy, wanted) in cases {
            let text = remedy(apart, spread, enough, busy);
            assert!(text.contains(wanted), "{text}");
        }
    }
}
