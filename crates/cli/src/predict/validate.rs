//! Whether predictions are right: programs are recorded, what they would do otherwise is predicted, and then
//! they do it, on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::slice;

use poundlock_bench::Context;
use poundlock_bench::programs::{Validated, table, validated};
use poundlock_measure::Summary;
use poundlock_sim::Machine;
use serde::Serialize;

use super::what::{Change, World};
use super::{Args, DOUBTFUL, On, Ready, SelfTest, rates, ready, test, why_useless};
use crate::message::{Failure, say, status};
use crate::output::{counted, print};
use crate::record::recording::Recording;
use crate::results::{Output, write_json};
use crate::sim::sheet::Sheet;
use crate::{bench, sim};

const LOCKS: [&str; 5] = ["glibc", "poundlock", "any-negative", "handoff", "qspin-pv"];
/// How many threads programs have that are run on other locks.
const THREADS: usize = 4;
/// Numbers of threads that are predicted from each of the first two.
const SIZES: [usize; 4] = [1, 2, 4, 16];
/// A program is run again in a round until that many milliseconds have been measured.
const MEASURED_MS: f64 = 2000.0;
/// Programs of which that, or what another CPU gives, is predicted.
const SIZED: [&str; 4] = ["logtally", "table", "cache", "sysbench-threads"];

/// What was found in all rounds: the median, and what each round alone says.
#[derive(Clone, Serialize)]
struct Figure {
    median: f64,
    rounds: Vec<f64>,
}

impl Figure {
    fn of(rounds: Vec<f64>) -> Option<Figure> {
        Some(Figure { median: median(&rounds)?, rounds })
    }

    /// The median of the other rounds.
    fn without(&self, round: usize) -> Option<f64> {
        let others: Vec<f64> = [&self.rounds[..round], &self.rounds[round + 1..]].concat();
        median(&others)
    }
}

fn median(values: &[f64]) -> Option<f64> {
    Summary::of(values.to_vec()).map(|summary| summary.median)
}

/// A prediction, and what came out: times the work in the same time.
#[derive(Serialize)]
struct Case {
    part: &'static str,
    program: &'static str,
    question: String,
    predicted: Figure,
    measured: f64,
    /// What each round measured, beside what the others did.
    again: Vec<Outcome>,
    /// Whether the replay says of itself that it is to be taken with care.
    doubtful: bool,
}

/// By how much a figure is off, of this one.
fn off(figure: f64, of: f64) -> f64 {
    (figure / of - 1.0).abs()
}

impl Case {
    fn error(&self) -> f64 {
        off(self.predicted.median, self.measured)
    }
}

/// What a recording says of changes, with the rate as it was.
type Answers<'a> = dyn Fn(&Ready<'_>, f64) -> Result<Vec<f64>, Failure> + 'a;

/// A program that is recorded, each time with words before its command, and what is asked of the recording.
struct Asked<'a> {
    part: &'static str,
    program: &'a Validated,
    before: &'a [OsString],
    answers: &'a Answers<'a>,
}

/// What all recordings of it say that were not refused.
struct Said {
    answers: Vec<Figure>,
    doubtful: bool,
}

/// A program that is measured, with words before its command.
type Run<'a> = (&'a Validated, Vec<OsString>);

/// Recordings of a program, replayed as they were.
#[derive(Serialize)]
struct Test {
    part: &'static str,
    program: &'static str,
    threads: usize,
    replays: Vec<SelfTest>,
}

#[derive(Serialize)]
struct Validation {
    cpu: String,
    rounds: u32,
    tests: Vec<Test>,
    cases: Vec<Case>,
    absent: Vec<String>,
    summary: Vec<String>,
}

/// What programs are run with.
struct Bed<'a> {
    args: &'a Args,
    context: Context,
    directory: tempfile::TempDir,
    /// Words before a command that keep it on one CPU.
    one_cpu: Vec<OsString>,
}

pub(super) fn validate(args: &Args) -> Result<(), Failure> {
    let json = Output::open(args.json.as_deref())?;
    let cpu = poundlock_measure::Machine::describe("").cpu;
    let page = args.figures.as_deref().map(|file| Page::read(file, &cpu)).transpose()?;
    let context = bench::context()?;
    let directory = tempfile::tempdir()
        .map_err(|error| Failure::new(status::OURS, format_args!("a temporary directory: {error}")))?;
    let first =
        poundlock_measure::affinity::allowed().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
    let one_cpu = ["taskset".into(), "-c".into(), first.to_string().into()].to_vec();
    let bed = Bed { args, context, directory, one_cpu };
    let mut validation = Validation {
        cpu,
        rounds: args.rounds,
        tests: Vec::new(),
        cases: Vec::new(),
        absent: Vec::new(),
        summary: Vec::new(),
    };
    let parts = [Bed::other_locks, Bed::other_sizes, Bed::another_cpu, Bed::changes];
    let done = parts.iter().try_for_each(|part| part(&bed, &mut validation));
    // Also if the last program failed: the others took minutes.
    validation.summary = summary(&validation);
    print(&text(&validation))?;
    write_json(&validation, json)?;
    done?;
    page.map_or(Ok(()), |page| page.with(&section(&validation)))
}

/// A page of figures, such as `docs/FIGURES.md`.
struct Page<'a> {
    file: &'a Path,
    title: String,
    before: String,
    after: String,
}

impl Page<'_> {
    /// What stands before and after its section about predictions on this CPU model, which is the last one if
    /// there is none yet.
    fn read<'a>(file: &'a Path, cpu: &str) -> Result<Page<'a>, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| unwritten(file, &error))?;
        let title = format!("## Predictions: {cpu}\n");
        let (before, rest) = text.split_once(&title).unwrap_or((&text, ""));
        let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
        Ok(Page { file, before: before.trim_end().to_owned(), after: after.to_owned(), title })
    }

    fn with(&self, section: &str) -> Result<(), Failure> {
        let text = format!("{}\n\n{}\n{section}{}", self.before, self.title, self.after);
        std::fs::write(self.file, text).map_err(|error| unwritten(self.file, &error))
    }
}

fn unwritten(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(status::OURS, format_args!("--figures: {}: {error}", file.display()))
}

fn section(validation: &Validation) -> String {
    let machine = poundlock_measure::Machine::describe("");
    let lines: String = validation.summary.iter().map(|line| format!("- {line}\n")).collect();
    format!(
        "What `poundlock predict` said, and what came out.\n\n- CPU: {}, {} CPUs\n- Kernel: {}\n- Poundlock: {}\n\
         - Command: `poundlock predict --validate --rounds {}`\n\n{lines}\n```text\n{}```\n",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.commit,
        validation.rounds,
        tables(validation)
    )
}

impl Bed<'_> {
    fn ms(&self, (program, before): &Run<'_>) -> Result<f64, Failure> {
        program.ms(&self.context, before).map_err(bench::failure)
    }

    /// The time in the middle of as many as fit into two seconds, one at least: a program that is over soon
    /// may take twice as long the next time, for where its threads came to lie.
    fn typical(&self, run: &Run<'_>) -> Result<f64, Failure> {
        let mut times = vec![self.ms(run)?];
        while times.iter().sum::<f64>() < MEASURED_MS {
            times.push(self.ms(run)?);
        }
        Ok(median(&times).unwrap_or(times[0]))
    }

    /// In each round, records what is asked about, and then measures all runs, so that a machine that changes
    /// does so for both.
    fn rounds(
        &self,
        asked: &[Asked<'_>],
        runs: &[Run<'_>],
        validation: &mut Validation,
    ) -> Result<(Vec<Option<Said>>, Vec<Figure>), Failure> {
        let mut tests: Vec<Test> = asked.iter().map(Test::new).collect();
        let mut answers: Vec<Vec<Vec<f64>>> = vec![Vec::new(); asked.len()];
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); runs.len()];
        for _ in 0..self.args.rounds {
            for (asked, (test, answers)) in asked.iter().zip(tests.iter_mut().zip(&mut answers)) {
                match self.record(asked).and_then(|file| self.ask(asked, &file, test)) {
                    Ok(answer) => answers.push(answer),
                    Err(failure) => say(format_args!("{}: {}", asked.program.name, failure.line)),
                }
            }
            for (run, times) in runs.iter().zip(&mut times) {
                times.push(self.typical(run)?);
            }
        }
        let said = answers.iter().zip(&tests).map(|(answers, test)| {
            let first = answers.first()?;
            let answer = |at| Figure::of(answers.iter().map(|answer| answer[at]).collect());
            let doubtful = median(&test.offs())? > DOUBTFUL;
            Some(Said { answers: (0..first.len()).map(answer).collect::<Option<_>>()?, doubtful })
        });
        let said = said.collect();
        validation.tests.extend(tests);
        Ok((said, times.into_iter().filter_map(Figure::of).collect()))
    }

    /// Records the program. Returns the recording's file.
    fn record(&self, asked: &Asked<'_>) -> Result<PathBuf, Failure> {
        let file = self.directory.path().join("recording");
        let mut words = asked.before.to_vec();
        words.push(self.context.program.clone().into());
        words.extend(["record", "--output"].map(OsString::from));
        words.extend([file.clone().into(), "--".into()]);
        self.ms(&(asked.program, words))?;
        Ok(file)
    }

    /// Replays the recording as it was, and answers what is asked, unless that is off by too much.
    fn ask(&self, asked: &Asked<'_>, file: &Path, tested: &mut Test) -> Result<Vec<f64>, Failure> {
        let recording = Recording::open(file)?;
        let ready = ready(self.args, file, &recording)?;
        let (report, as_it_was) = test(&recording, &ready)?;
        let answers = if report.self_test.is_useless() {
            Err(Failure::new(status::OURS, why_useless(&report)))
        } else {
            (asked.answers)(&ready, ready.together(&rates(&as_it_was)))
        };
        tested.replays.push(report.self_test);
        answers
    }

    /// (a) The same program on other locks: all pairs.
    fn other_locks(&self, validation: &mut Validation) -> Result<(), Failure> {
        let (programs, absent) = validated(THREADS).map_err(bench::failure)?;
        validation.absent = absent.into_iter().map(|(name, why)| format!("{name}: {why}")).collect();
        let pairs =
            (0..LOCKS.len()).flat_map(|first| (first + 1..LOCKS.len()).map(move |second| (first, second)));
        let pairs: Vec<(usize, usize)> = pairs.collect();
        let answers = |ready: &Ready<'_>, _: f64| {
            let rates = LOCKS.map(|lock| ready.rate(On::of(lock, None)?, &ready.machine, |_, _| {}));
            let rates = rates.into_iter().collect::<Result<Vec<f64>, Failure>>()?;
            Ok(pairs.iter().map(|&(first, second)| rates[second] / rates[first]).collect())
        };
        for program in &programs {
            let asked = Asked { part: "locks", program, before: &[], answers: &answers };
            let runs = LOCKS.map(|lock| (program, self.run_on(lock)));
            let (said, times) = self.rounds(slice::from_ref(&asked), &runs, validation)?;
            let question =
                |(first, second): (usize, usize)| format!("{} for {}", LOCKS[second], LOCKS[first]);
            let questions = pairs.iter().map(|&pair| (question(pair), pair));
            validation.compare(&asked, said[0].as_ref(), questions, &times);
        }
        Ok(())
    }

    fn run_on(&self, lock: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.context.program.clone().into()];
        words.extend(["run", "--lock", lock, "--"].map(OsString::from));
        words
    }

    /// (b) Recorded with one thread and with two, predicted for more.
    fn other_sizes(&self, validation: &mut Validation) -> Result<(), Failure> {
        let mut sets = Vec::new();
        for size in SIZES {
            sets.push(validated(size).map_err(bench::failure)?.0);
        }
        // The sizes that are predicted from one.
        let others = |from: usize| (1..SIZES.len()).filter(move |to| *to != from);
        let answers = [0, 1].map(|from| {
            move |ready: &Ready<'_>, base: f64| {
                let rate =
                    |to: usize| ready.rate(ready.own, &ready.machine, |_, world| world.resize(SIZES[to]));
                others(from).map(|to| Ok(rate(to)? / base)).collect()
            }
        });
        for name in SIZED {
            let programs: Vec<&Validated> =
                sets.iter().flatten().filter(|program| program.name == name).collect();
            if programs.len() < SIZES.len() {
                continue;
            }
            let runs: Vec<Run<'_>> = programs.iter().map(|program| (*program, Vec::new())).collect();
            let asked = [0, 1].map(|from| Asked {
                part: "threads",
                program: programs[from],
                before: &[],
                answers: &answers[from],
            });
            let (said, times) = self.rounds(&asked, &runs, validation)?;
            for (from, (asked, said)) in asked.iter().zip(&said).enumerate() {
                let question = |to: usize| format!("{} threads for {}", SIZES[to], SIZES[from]);
                let questions = others(from).map(|to| (question(to), (from, to)));
                validation.compare(asked, said.as_ref(), questions, &times);
            }
        }
        Ok(())
    }

    /// (c) Recorded on one CPU, predicted for two.
    fn another_cpu(&self, validation: &mut Validation) -> Result<(), Failure> {
        let cpus = poundlock_measure::affinity::allowed().map_or(1, |cpus| cpus.len());
        if cpus < 2 {
            say("there is one CPU: another one cannot be tried");
            return Ok(());
        }
        let machine = sim::machine("here")?;
        let answers = |ready: &Ready<'_>, _: f64| {
            let [one, two] = [1, 2].map(|cpus| ready.rate(ready.own, &machine.flat(cpus), |_, _| {}));
            Ok(vec![two? / one?])
        };
        let two_cpus: Vec<OsString> = vec!["taskset".into(), "-c".into(), first_two().into()];
        for program in &validated(THREADS).map_err(bench::failure)?.0 {
            if !SIZED.contains(&program.name) {
                continue;
            }
            let asked = Asked { part: "CPUs", program, before: &self.one_cpu, answers: &answers };
            let runs = [(program, self.one_cpu.clone()), (program, two_cpus.clone())];
            let (said, times) = self.rounds(slice::from_ref(&asked), &runs, validation)?;
            let question = ("2 CPUs for 1".to_owned(), (0, 1));
            validation.compare(&asked, said[0].as_ref(), [question].into_iter(), &times);
        }
        Ok(())
    }

    /// (d) The program changed.
    fn changes(&self, validation: &mut Validation) -> Result<(), Failure> {
        let read = vec!["look_up".to_owned()];
        let changes: [(&[&str], Change); 4] = [
            (&["-DHALF"], Change::Half),
            (&["-DSPLIT=2"], Change::Split(2)),
            (&["-DSPLIT=16"], Change::Split(16)),
            (&["-DRW"], Change::ReadersWriter(read)),
        ];
        let answers = |ready: &Ready<'_>, base: f64| {
            let rate = |change: &Change| {
                ready.rate(ready.own, &ready.machine, |stretch, world| {
                    for lock in ready.all_names(stretch) {
                        ready.apply(stretch, world, &lock, change);
                    }
                })
            };
            changes.iter().map(|(_, change)| Ok(rate(change)? / base)).collect()
        };
        for threads in [2, THREADS] {
            let as_it_is = table(threads, &[]).map_err(bench::failure)?;
            let changed = changes.iter().map(|(defined, _)| table(threads, defined));
            let changed = changed.collect::<Result<Vec<_>, _>>().map_err(bench::failure)?;
            let programs = std::iter::once(&as_it_is).chain(&changed);
            let runs: Vec<Run<'_>> = programs.map(|program| (program, Vec::new())).collect();
            let asked = Asked { part: "changes", program: &as_it_is, before: &[], answers: &answers };
            let (said, times) = self.rounds(slice::from_ref(&asked), &runs, validation)?;
            let question = |change: &Change| format!("{change}, {threads} threads");
            let questions =
                changes.iter().enumerate().map(|(at, (_, change))| (question(change), (0, at + 1)));
            validation.compare(&asked, said[0].as_ref(), questions, &times);
        }
        Ok(())
    }
}

impl Test {
    fn new(asked: &Asked<'_>) -> Test {
        let &Asked { part, program, .. } = asked;
        Test { part, program: program.name, threads: program.threads, replays: Vec::new() }
    }

    fn offs(&self) -> Vec<f64> {
        // Where nothing could be replayed, no figure is further off.
        let off = |replay: &SelfTest| if replay.off.is_nan() { f64::INFINITY } else { replay.off };
        self.replays.iter().map(off).collect()
    }
}

impl Validation {
    /// Each question, with the runs before and after the change that it asks about.
    fn compare(
        &mut self,
        asked: &Asked<'_>,
        said: Option<&Said>,
        questions: impl Iterator<Item = (String, (usize, usize))>,
        times: &[Figure],
    ) {
        let Some(said) = said else { return };
        for ((question, (before, after)), predicted) in questions.zip(&said.answers) {
            let gain = |of: &dyn Fn(&Figure) -> Option<f64>| Some(of(&times[before])? / of(&times[after])?);
            let again = |round: usize| {
                let one = gain(&|time| time.rounds.get(round).copied())?;
                Some([one, gain(&|time| time.without(round))?])
            };
            self.cases.push(Case {
                part: asked.part,
                program: asked.program.name,
                question,
                predicted: predicted.clone(),
                measured: times[before].median / times[after].median,
                again: (0..times[before].rounds.len()).filter_map(again).collect(),
                doubtful: said.doubtful,
            });
        }
    }
}

/// As `taskset` wants them.
fn first_two() -> String {
    let cpus = poundlock_measure::affinity::allowed().unwrap_or_default();
    cpus.iter().take(2).map(usize::to_string).collect::<Vec<_>>().join(",")
}

impl Ready<'_> {
    /// The rate of all stretches together.
    fn rate(
        &self,
        on: On,
        machine: &Machine,
        change: impl Fn(usize, &mut World) + Sync,
    ) -> Result<f64, Failure> {
        Ok(self.together(&rates(&self.runs(on, machine, change))))
    }

    /// The names of all locks of a stretch.
    fn all_names(&self, stretch: usize) -> Vec<String> {
        let name = |lock: &u32| self.process.locks[*lock as usize].name.clone();
        self.lives[stretch].locks.iter().map(name).collect()
    }
}

fn percent(value: Option<f64>) -> String {
    value.map_or("no figure".to_owned(), |value| format!("{:.0} %", value * 100.0))
}

/// What errors are like: of figures that are `off` by so much.
fn errors(off: Vec<f64>) -> String {
    let (close, all) = (off.iter().filter(|off| **off <= 0.25).count(), off.len());
    format!("off by {} in the median, {close} of {all} within 25 %", percent(median(&off)))
}

/// What was said of times the work in the same time, and what came out.
type Outcome = [f64; 2];

/// How well the better one is named.
fn named(outcomes: &[Outcome]) -> String {
    let differ = || outcomes.iter().filter(|[_, measured]| off(*measured, 1.0) > 0.10);
    let right = differ().filter(|[said, measured]| (*said > 1.0) == (*measured > 1.0)).count();
    format!("the better one is named in {right} of {} that differ by more than 10 %", differ().count())
}

/// Both.
fn quality(outcomes: &[Outcome]) -> String {
    let off = outcomes.iter().map(|[said, measured]| off(*said, *measured)).collect();
    format!("{}; {}", errors(off), named(outcomes))
}

fn summary(validation: &Validation) -> Vec<String> {
    let replays = || validation.tests.iter().flat_map(|test| &test.replays);
    let offs: Vec<f64> = validation.tests.iter().flat_map(Test::offs).collect();
    let mut lines = vec![format!(
        "self-test: off by {} in the median, {} at worst, of {} recordings; {} were refused",
        percent(median(&offs)),
        percent(worst(&offs)),
        offs.len(),
        replays().filter(|replay| replay.is_useless()).count()
    )];
    let cases = &validation.cases;
    for part in ["locks", "threads", "CPUs", "changes", ""] {
        let cases = cases.iter().filter(|case| part.is_empty() || case.part == part);
        let outcomes: Vec<Outcome> = cases.map(|case| [case.predicted.median, case.measured]).collect();
        if !outcomes.is_empty() {
            lines.push(format!("{}: {}", if part.is_empty() { "all" } else { part }, quality(&outcomes)));
        }
    }
    if validation.rounds > 1 && !cases.is_empty() {
        let one = |case: &Case| {
            let measured = case.measured;
            case.predicted.rounds.iter().map(|&said| [said, measured]).collect::<Vec<_>>()
        };
        lines.push(format!(
            "predicted from one recording alone: {}",
            quality(&cases.iter().flat_map(one).collect::<Vec<_>>())
        ));
        let again: Vec<Outcome> = cases.iter().flat_map(|case| case.again.iter().copied()).collect();
        lines.push(format!(
            "one round's measurement, in place of predicted, of the others': {}",
            quality(&again)
        ));
    }
    lines
}

fn worst(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

fn text(validation: &Validation) -> String {
    format!(
        "{}, {} rounds\n\n{}\n{}\n",
        validation.cpu,
        validation.rounds,
        tables(validation),
        validation.summary.join("\n")
    )
}

fn tables(validation: &Validation) -> String {
    let tests = Sheet {
        header: ["rate", "off", "at worst", "recorded"].map(str::to_owned).to_vec(),
        rows: validation
            .tests
            .iter()
            .map(|test| {
                let rates: Vec<f64> = test.replays.iter().map(|replay| replay.rate.all).collect();
                vec![
                    format!("{:.2}", median(&rates).unwrap_or(f64::NAN)),
                    percent(median(&test.offs())),
                    percent(worst(&test.offs())),
                    format!(
                        "{}, {} (for {})",
                        test.program,
                        counted(test.threads as u64, "thread"),
                        test.part
                    ),
                ]
            })
            .collect(),
        words: &[3],
    };
    let cases = Sheet {
        header: ["predicted", "measured", "off", "program", "question"].map(str::to_owned).to_vec(),
        rows: validation
            .cases
            .iter()
            .map(|case| {
                vec![
                    format!("{:.2}", case.predicted.median),
                    format!("{:.2}", case.measured),
                    format!("{:.0} %", case.error() * 100.0),
                    case.program.to_owned(),
                    format!("{}{}", case.question, if case.doubtful { " (doubtful)" } else { "" }),
                ]
            })
            .collect(),
        words: &[3, 4],
    };
    let absent: String = validation.absent.iter().map(|line| format!("{line}\n")).collect();
    format!(
        "{absent}recordings, replayed as they were:\n{}\ntimes the work in the same time:\n{}",
        tests.text(),
        cases.text()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_figures_keeps_what_it_says_of_other_things() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("FIGURES.md");
        let written = |text: &str| {
            std::fs::write(&file, text).expect("written");
            Page::read(&file, "this")
                .and_then(|page| page.with("new\n"))
                .unwrap_or_else(|why| panic!("{}", why.line));
            std::fs::read_to_string(&file).expect("read")
        };
        let (before, after) = ("# Figures\n\n## A\n\na\n", "\n## Predictions: another\n\nb\n");
        let title = "## Predictions: this\n";
        let new = format!("{before}\n{title}\nnew\n");
        assert_eq!(written(before), new);
        assert_eq!(written(&format!("{before}\n{title}\nold\nold\n")), new);
        assert_eq!(written(&format!("{before}\n{title}\nold\n{after}")), format!("{new}{after}"));
    }
}
