//! Whether predictions are right: programs are recorded, what they would do otherwise is predicted, and then
//! they do it, on this machine.

use std::ffi::OsString;
use std::path::Path;

use poundlock_bench::Context;
use poundlock_bench::programs::{Validated, table, validated};
use poundlock_sim::Machine;
use serde::Serialize;

use super::what::{Change, World};
use super::{Args, DOUBTFUL, On, Ready, rates, ready, test, why_useless};
use crate::message::{Failure, say, status};
use crate::output::print;
use crate::record::recording::Recording;
use crate::results::{Output, write_json};
use crate::sim::sheet::Sheet;
use crate::{bench, sim};

const LOCKS: [&str; 5] = ["glibc", "poundlock", "any-negative", "handoff", "qspin-pv"];
/// How many threads programs have that are run on other locks.
const THREADS: usize = 4;
/// Numbers of threads that are predicted from each of the first two.
const SIZES: [usize; 4] = [1, 2, 4, 16];
/// Programs of which that, or what another CPU gives, is predicted.
const SIZED: [&str; 4] = ["logtally", "table", "cache", "sysbench-threads"];

/// A prediction, and what came out.
#[derive(Serialize)]
struct Case {
    part: &'static str,
    program: &'static str,
    question: String,
    /// Times the work in the same time.
    predicted: f64,
    measured: f64,
    /// What the first round alone says of that.
    measured_once: f64,
    /// Whether the replay says of itself that it is to be taken with care.
    doubtful: bool,
}

impl Case {
    /// What is predicted of a program, and how long it took before and after.
    fn new(
        (part, program): (&'static str, &Validated),
        question: String,
        predicted: f64,
        (before, after): (Times, Times),
        known: &Known,
    ) -> Case {
        Case {
            part,
            program: program.name,
            question,
            predicted,
            measured: before.median / after.median,
            measured_once: before.once / after.once,
            doubtful: known.off > DOUBTFUL,
        }
    }

    fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }

    fn error_of_once(&self) -> f64 {
        (self.measured_once / self.measured - 1.0).abs()
    }
}

/// How long a program took, in milliseconds: the median of all rounds, and the first.
#[derive(Clone, Copy)]
struct Times {
    median: f64,
    once: f64,
}

/// A recording replayed as it was.
#[derive(Serialize)]
struct Test {
    program: String,
    off: f64,
    rate: f64,
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

/// What a recording says.
struct Known {
    recording: Recording,
    off: f64,
}

pub(super) fn validate(args: &Args) -> Result<(), Failure> {
    let json = Output::open(args.json.as_deref())?;
    let page = args.figures.as_deref().map(Page::read).transpose()?;
    let context = bench::context()?;
    let directory = tempfile::tempdir()
        .map_err(|error| Failure::new(status::OURS, format_args!("a temporary directory: {error}")))?;
    let cpu = poundlock_measure::affinity::allowed().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
    let one_cpu = ["taskset".into(), "-c".into(), cpu.to_string().into()].to_vec();
    let bed = Bed { args, context, directory, one_cpu };
    let mut validation = Validation {
        cpu: poundlock_measure::Machine::describe("").cpu,
        rounds: args.rounds,
        tests: Vec::new(),
        cases: Vec::new(),
        absent: Vec::new(),
        summary: Vec::new(),
    };
    bed.other_locks(&mut validation)?;
    bed.other_sizes(&mut validation)?;
    bed.another_cpu(&mut validation)?;
    bed.changes(&mut validation)?;
    validation.summary = summary(&validation);
    print(&text(&validation))?;
    write_json(&validation, json)?;
    page.map_or(Ok(()), |page| page.with(&section(&validation)))
}

/// A page of figures, such as `docs/FIGURES.md`.
struct Page<'a> {
    file: &'a Path,
    before: String,
    after: String,
}

const TITLE: &str = "## Predictions\n";

impl Page<'_> {
    /// What stands before and after its section about predictions, which is the last one if there is none
    /// yet.
    fn read(file: &Path) -> Result<Page<'_>, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| unwritten(file, &error))?;
        let (before, rest) = text.split_once(TITLE).unwrap_or((&text, ""));
        let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
        Ok(Page { file, before: before.trim_end().to_owned(), after: after.to_owned() })
    }

    fn with(&self, section: &str) -> Result<(), Failure> {
        let text = format!("{}\n\n{TITLE}\n{section}{}", self.before, self.after);
        std::fs::write(self.file, text).map_err(|error| unwritten(self.file, &error))
    }
}

fn unwritten(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(status::USAGE, format_args!("--figures: {}: {error}", file.display()))
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
    fn ms(&self, program: &Validated, before: &[OsString]) -> Result<f64, Failure> {
        program.ms(&self.context, before).map_err(bench::failure)
    }

    /// Each of these commands before the program; the rounds go through all.
    fn times(&self, runs: &[(&Validated, Vec<OsString>)]) -> Result<Vec<Times>, Failure> {
        let mut times: Vec<Vec<f64>> = runs.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.args.rounds {
            for ((program, before), times) in runs.iter().zip(&mut times) {
                times.push(self.ms(program, before)?);
            }
        }
        let of = |times: Vec<f64>| Times { once: times[0], median: quantile(times, 0.5).unwrap_or(f64::NAN) };
        Ok(times.into_iter().map(of).collect())
    }

    /// Records the program, and replays it as it was.
    fn record(
        &self,
        program: &Validated,
        before: &[OsString],
        validation: &mut Validation,
    ) -> Result<Option<Known>, Failure> {
        let file = self.directory.path().join("recording");
        let mut words = before.to_vec();
        words.push(self.context.program.clone().into());
        words.extend(["record", "--output"].map(OsString::from));
        words.extend([file.clone().into(), "--".into()]);
        self.ms(program, &words)?;
        self.known(program, &file, validation).or_else(|failure| {
            say(format_args!("{}: {}", program.name, failure.line));
            Ok(None)
        })
    }

    fn known(
        &self,
        program: &Validated,
        file: &Path,
        validation: &mut Validation,
    ) -> Result<Option<Known>, Failure> {
        let recording = Recording::open(file)?;
        let ready = ready(self.args, file, &recording)?;
        let (report, _) = test(&recording, &ready)?;
        validation.tests.push(Test {
            program: program.name.to_owned(),
            off: report.self_test.off,
            rate: report.self_test.rate.all,
        });
        let off = report.self_test.off;
        if report.self_test.is_useless() {
            say(format_args!("{}: {}", program.name, why_useless(&report)));
            return Ok(None);
        }
        Ok(Some(Known { recording, off }))
    }

    /// (a) The same program on other locks: all pairs.
    fn other_locks(&self, validation: &mut Validation) -> Result<(), Failure> {
        let (programs, absent) = validated(THREADS).map_err(bench::failure)?;
        validation.absent = absent.into_iter().map(|(name, why)| format!("{name}: {why}")).collect();
        for program in &programs {
            let Some(known) = self.record(program, &[], validation)? else { continue };
            let ready = ready(self.args, self.args.recording.as_path(), &known.recording)?;
            let rates = LOCKS.map(|lock| {
                let on = On::of(lock, None)?;
                ready.rate(on, &ready.machine, |_, _| {})
            });
            let runs: Vec<_> = LOCKS.iter().map(|lock| (program, self.run_on(lock))).collect();
            let times = self.times(&runs)?;
            let rates = rates.into_iter().collect::<Result<Vec<f64>, Failure>>()?;
            for first in 0..LOCKS.len() {
                for second in first + 1..LOCKS.len() {
                    let question = format!("{} for {}", LOCKS[second], LOCKS[first]);
                    let (predicted, both) = (rates[second] / rates[first], (times[first], times[second]));
                    validation.cases.push(Case::new(("locks", program), question, predicted, both, &known));
                }
            }
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
        for name in SIZED {
            let programs: Vec<&Validated> =
                sets.iter().flatten().filter(|program| program.name == name).collect();
            if programs.len() < SIZES.len() {
                continue;
            }
            let runs: Vec<_> = programs.iter().map(|program| (*program, Vec::new())).collect();
            let times = self.times(&runs)?;
            for from in 0..2 {
                let Some(known) = self.record(programs[from], &[], validation)? else { continue };
                let ready = ready(self.args, self.args.recording.as_path(), &known.recording)?;
                let base = ready.rate(ready.own, &ready.machine, |_, _| {})?;
                for to in 1..SIZES.len() {
                    if to == from {
                        continue;
                    }
                    let rate = ready.rate(ready.own, &ready.machine, |_, world| world.resize(SIZES[to]))?;
                    let question = format!("{} threads for {}", SIZES[to], SIZES[from]);
                    let (of, both) = (("threads", programs[from]), (times[from], times[to]));
                    validation.cases.push(Case::new(of, question, rate / base, both, &known));
                }
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
        for program in &validated(THREADS).map_err(bench::failure)?.0 {
            if !SIZED.contains(&program.name) {
                continue;
            }
            let Some(known) = self.record(program, &self.one_cpu, validation)? else { continue };
            let ready = ready(self.args, self.args.recording.as_path(), &known.recording)?;
            let [one, two] = [1, 2].map(|cpus| ready.rate(ready.own, &machine.flat(cpus), |_, _| {}));
            let two_cpus = vec!["taskset".into(), "-c".into(), first_two().into()];
            let times = self.times(&[(program, self.one_cpu.clone()), (program, two_cpus)])?;
            let (question, both) = ("2 CPUs for 1".to_owned(), (times[0], times[1]));
            validation.cases.push(Case::new(("CPUs", program), question, two? / one?, both, &known));
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
        for threads in [2, THREADS] {
            let as_it_is = table(threads, &[]).map_err(bench::failure)?;
            let Some(known) = self.record(&as_it_is, &[], validation)? else { continue };
            let ready = ready(self.args, self.args.recording.as_path(), &known.recording)?;
            let base = ready.rate(ready.own, &ready.machine, |_, _| {})?;
            let changed = changes.iter().map(|(defined, _)| table(threads, defined));
            let changed = changed.collect::<Result<Vec<_>, _>>().map_err(bench::failure)?;
            let mut runs = vec![(&as_it_is, Vec::new())];
            runs.extend(changed.iter().map(|program| (program, Vec::new())));
            let times = self.times(&runs)?;
            for ((_, change), changed) in changes.iter().zip(&times[1..]) {
                let rate = ready.rate(ready.own, &ready.machine, |stretch, world| {
                    for lock in ready.all_names(stretch) {
                        ready.apply(stretch, world, &lock, change);
                    }
                })?;
                let (of, question) = (("changes", &as_it_is), format!("{change}, {threads} threads"));
                validation.cases.push(Case::new(of, question, rate / base, (times[0], *changed), &known));
            }
        }
        Ok(())
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

fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[(last as f64 * share).round() as usize])
}

fn summary(validation: &Validation) -> Vec<String> {
    let percent =
        |value: Option<f64>| value.map_or("no figure".to_owned(), |value| format!("{:.0} %", value * 100.0));
    let offs = || validation.tests.iter().map(|test| test.off).collect::<Vec<_>>();
    let mut lines = vec![format!(
        "self-test: off by {} in the median, {} at worst, of {} recordings",
        percent(quantile(offs(), 0.5)),
        percent(quantile(offs(), 1.0)),
        offs().len()
    )];
    for part in ["locks", "threads", "CPUs", "changes", ""] {
        let cases = || validation.cases.iter().filter(|case| part.is_empty() || case.part == part);
        let errors = || cases().map(Case::error).collect::<Vec<_>>();
        if errors().is_empty() {
            continue;
        }
        let close = errors().iter().filter(|error| **error <= 0.25).count();
        let differ: Vec<&Case> = cases().filter(|case| (case.measured - 1.0).abs() > 0.10).collect();
        let right = differ.iter().filter(|case| (case.predicted > 1.0) == (case.measured > 1.0)).count();
        lines.push(format!(
            "{}: off by {} in the median, {} of {} within 25 %; the better one is named in {right} of {} that differ \
             by more than 10 %",
            if part.is_empty() { "all" } else { part },
            percent(quantile(errors(), 0.5)),
            close,
            errors().len(),
            differ.len()
        ));
    }
    let once = || validation.cases.iter().map(Case::error_of_once).collect::<Vec<_>>();
    if validation.rounds > 1 && !once().is_empty() {
        lines.push(format!(
            "measured once, in place of predicted: off by {} in the median, {} of {} within 25 %",
            percent(quantile(once(), 0.5)),
            once().iter().filter(|error| **error <= 0.25).count(),
            once().len()
        ));
    }
    lines
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
        header: ["rate", "off", "program"].map(str::to_owned).to_vec(),
        rows: validation
            .tests
            .iter()
            .map(|test| {
                vec![format!("{:.2}", test.rate), format!("{:.0} %", test.off * 100.0), test.program.clone()]
            })
            .collect(),
        words: &[2],
    };
    let cases = Sheet {
        header: ["predicted", "measured", "off", "program", "question"].map(str::to_owned).to_vec(),
        rows: validation
            .cases
            .iter()
            .map(|case| {
                vec![
                    format!("{:.2}", case.predicted),
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
            Page::read(&file)
                .and_then(|page| page.with("new\n"))
                .unwrap_or_else(|why| panic!("{}", why.line));
            std::fs::read_to_string(&file).expect("read")
        };
        let (before, after) = ("# Figures\n\n## A\n\na\n", "\n## B\n\nb\n");
        let new = format!("{before}\n{TITLE}\nnew\n");
        assert_eq!(written(before), new);
        assert_eq!(written(&format!("{before}\n{TITLE}\nold\nold\n")), new);
        assert_eq!(written(&format!("{before}\n{TITLE}\nold\n{after}")), format!("{new}{after}"));
    }
}
