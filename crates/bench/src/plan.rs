//! What a benchmark consists of, and how it is made: processes that take turns in rounds, the figures that
//! each round gives, their medians and ratios, and the tables of those.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Machine;
use crate::Summary;
use crate::affinity;
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::launch::{Context, Process};
use crate::progress::rounds;
use crate::report::{Report, Table, Target, median, spread};
use crate::work::Calibration;
use crate::worker::{Answer, Task, alone, drive};

/// A benchmark's options say what is measured and what is made of it.
pub trait Preset: Serialize {
    /// What was measured, as a heading.
    const TITLE: &'static str;
    /// The heading over the targets.
    const TARGETS: &'static str;
    /// What the label is called that says who was measured.
    const WHO: &'static str = "lock";
    /// # Errors
    /// If the options make no sense.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// How often, and on how many CPUs.
    fn common(&self) -> (usize, Option<usize>);
    /// The measurements, and what they are compared with.
    ///
    /// # Errors
    /// If a lock is not there.
    fn plan(&self, plan: &mut Plan) -> Result<()>;
    /// The answer to the question that the benchmark is asked, in a sentence.
    fn answer(&self, rows: &Rows) -> Option<String>;
    /// How it was measured.
    fn method(&self, rows: &Rows) -> String;
    /// What a terminal shows above the tables, if the benchmark is after a program with words of its own.
    fn listing(&self, _rows: &Rows) -> String {
        String::new()
    }
    /// The figures.
    fn tables(&self, rows: &Rows) -> Vec<Table>;
    /// The figures as an SVG document.
    ///
    /// # Errors
    /// If it cannot be drawn.
    fn picture(&self, _rows: &Rows) -> Result<Option<String>> {
        Ok(None)
    }
    /// What Poundlock wants to reach.
    fn targets(&self, rows: &Rows) -> Vec<Target>;
    /// What else goes into the JSON.
    fn extra(&self, _rows: &Rows) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
}

/// What every benchmark has, with its own number of rounds.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Common<const ROUNDS: usize> {
    /// Rounds in which everybody takes part once
    // Not `default_value_t`: it keeps one text for all structs of this name.
    #[arg(long, value_name = "N", default_value = ROUNDS.to_string().leak() as &'static str)]
    pub rounds: usize,
    /// Use only that many of the allowed CPUs for threads that contend
    #[arg(long, value_name = "N")]
    pub cpus: Option<usize>,
}

/// The figures of a round, by name. Dots in names are levels of the JSON.
pub type Sample = BTreeMap<String, f64>;

/// What tells rows of a section apart.
pub type Labels = Vec<(&'static str, Value)>;

/// A measurement that is made once a round.
struct Run {
    /// Runs of a point are made one soon after the other.
    point: String,
    how: How,
}

enum How {
    /// By a process that is asked, and how long that takes.
    Asked(Process, Task, Duration),
    /// By this process, which starts programs.
    Here(Measure),
}

type Measure = Box<dyn Fn(&Context) -> Result<Sample>>;

/// Who could not take part, and why.
pub type Absent = Vec<(&'static str, String)>;

/// A row to be.
pub(crate) struct Cell {
    pub(crate) section: &'static str,
    run: usize,
    /// Which of the run's answers it is.
    slot: usize,
    pub(crate) who: &'static str,
    labels: Labels,
    /// It is there to be compared with only.
    hidden: bool,
    samples: Vec<Sample>,
}

/// Whose figures are looked through for the best, and whether more is better.
type BestOf = (fn(&str) -> bool, bool);

/// How a figure is compared.
pub struct Ratio {
    section: &'static str,
    name: &'static str,
    figure: &'static str,
    how: fn(f64, f64) -> f64,
    /// Labels of what it is compared with, where they differ from its own.
    with: Labels,
    /// Or the one of these that is the hardest to reach: the smallest of the ratios, or the largest of them.
    best_of: Option<BestOf>,
    /// Rows that are compared.
    only: fn(&Labels) -> bool,
}

/// What is to be measured.
pub struct Plan {
    pub(crate) context: Context,
    /// The CPUs that threads share.
    pub(crate) cpus: Vec<usize>,
    /// The CPU for what one thread does.
    pub(crate) alone_on: usize,
    pub(crate) calibration: Calibration,
    /// Who could not take part, and why.
    pub(crate) absent: Absent,
    /// [`Preset::WHO`]
    who: &'static str,
    runs: Vec<Run>,
    cells: Vec<Cell>,
    ratios: Vec<Ratio>,
}

/// Seconds as nanoseconds.
pub(crate) fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl Plan {
    /// Has a process asked. Returns the run's number, for its cells.
    pub(crate) fn run(&mut self, point: String, process: Process, task: Task, seconds: f64) -> usize {
        let how = How::Asked(process, task, Duration::from_secs_f64(seconds));
        self.runs.push(Run { point, how });
        self.runs.len() - 1
    }

    /// Has this process measure something, for a row.
    pub(crate) fn here(
        &mut self,
        section: &'static str,
        point: String,
        who: &'static str,
        labels: Labels,
        measure: impl Fn(&Context) -> Result<Sample> + 'static,
    ) {
        self.runs.push(Run { point, how: How::Here(Box::new(measure)) });
        self.cell(section, self.runs.len() - 1, 0, who, labels);
    }

    /// A row for one of a run's answers.
    pub(crate) fn cell(
        &mut self,
        section: &'static str,
        run: usize,
        slot: usize,
        who: &'static str,
        labels: Labels,
    ) {
        let labels = [(self.who, who.into())].into_iter().filter(|_| !who.is_empty()).chain(labels).collect();
        self.cells.push(Cell { section, run, slot, who, labels, hidden: false, samples: Vec::new() });
    }

    /// Has one thread's times measured in one process: of each, who it is and how the row is labelled.
    pub(crate) fn alone(
        &mut self,
        section: &'static str,
        process: Process,
        second_thread: bool,
        seconds: f64,
        slices: u32,
        timed: Vec<(&'static str, alone::Timed, Labels)>,
    ) {
        let task = Task::Alone(alone::Task {
            timed: timed.iter().map(|(_, timed, _)| timed.clone()).collect(),
            second_thread,
            cpu: self.alone_on,
            slices,
            slice_ns: ns(seconds / f64::from(slices)),
        });
        let run = self.run(
            format!("{}, one thread", process.name),
            process,
            task,
            seconds * 2.0 * timed.len() as f64,
        );
        for (slot, (who, _, labels)) in timed.into_iter().enumerate() {
            self.cell(section, run, slot, who, labels);
        }
    }

    /// The times of a list alone: everybody in one process but for the preloaded, as the library chooses once
    /// a process. Each of those has one of its own, with the references beside it.
    pub(crate) fn alone_together(
        &mut self,
        section: &'static str,
        locks: &[Contender],
        beside: &[&str],
        seconds: f64,
        of: impl Fn(&Contender) -> Vec<(alone::Timed, Labels)>,
    ) {
        const SLICES: u32 = 50;
        let all = |who: &Contender| {
            of(who).into_iter().map(|(timed, labels)| (who.name, timed, labels)).collect::<Vec<_>>()
        };
        let (preloaded, others): (Vec<&Contender>, Vec<_>) =
            locks.iter().partition(|who| who.library.is_some());
        let timed = others.into_iter().flat_map(all).collect();
        self.alone(section, Process::plain("one thread"), true, seconds, SLICES, timed);
        for who in preloaded {
            let first = self.cells.len();
            let references = locks.iter().filter(|other| beside.contains(&other.name));
            let timed = references.chain([who]).flat_map(all).collect();
            let process = Process { ours: who.library, ..Process::plain(who.name) };
            self.alone(section, process, true, seconds, SLICES, timed);
            self.cells[first..].iter_mut().for_each(|cell| cell.hidden = cell.who != who.name);
        }
    }

    /// Has threads contend for a lock.
    pub(crate) fn work(
        &mut self,
        section: &'static str,
        point: String,
        who: &Contender,
        labels: Labels,
        task: drive::Task,
    ) {
        let ns = task.warm_up_ns + task.throughput_ns + task.latency_ns + task.drain_ns.unwrap_or(0);
        let process = Process { ours: who.library, ..Process::plain(who.name) };
        let run = self.run(point, process, Task::Work(task), ns as f64 / 1e9 + 10.0);
        self.cell(section, run, 0, who.name, labels);
    }

    /// Has two threads pass a lock to and fro.
    pub(crate) fn pass(
        &mut self,
        section: &'static str,
        point: String,
        who: &Contender,
        labels: Labels,
        task: crate::worker::pass::Task,
    ) {
        let takes = task.duration_ns as f64 / 1e9 + 20.0;
        let run = self.run(point, Process::plain(who.name), Task::Pass(task), takes);
        self.cell(section, run, 0, who.name, labels);
    }

    /// The work of threads that take turns, each with a CPU of its own where there are enough.
    pub(crate) fn turns(
        &self,
        who: &Contender,
        threads: usize,
        us: (f64, f64),
        seconds: f64,
    ) -> Option<drive::Task> {
        Some(drive::Task {
            lock: who.lock.clone()?,
            threads,
            inside: drive::Inside::Work { steps: self.calibration.steps(us.0) },
            think_steps: self.calibration.steps(us.1),
            vary: false,
            warm_up_ns: ns(seconds * 0.1),
            throughput_ns: ns(seconds),
            latency_ns: 0,
            // Whoever does not starve needs no longer; the others would need many time slices.
            drain_ns: Some(ns(seconds * 0.3)),
            finish: false,
            cpus: self.cpus.clone(),
            // Two that could have a CPU each must not share one by the scheduler's whim.
            pin: threads <= self.cpus.len(),
            hogs: false,
            probe: false,
        })
    }

    /// Has a figure divided by that of another row of the same round.
    pub(crate) fn of(
        &mut self,
        section: &'static str,
        name: &'static str,
        figure: &'static str,
        with: Labels,
    ) -> &mut Ratio {
        let how = |own: f64, other: f64| own / other;
        self.ratios.push(Ratio { section, name, figure, how, with, best_of: None, only: |_| true });
        let last = self.ratios.len() - 1;
        &mut self.ratios[last]
    }

    /// Makes all measurements, round by round: in each the points in random order, and at a point everybody
    /// in random order, so that what is compared is measured side by side.
    fn measure(&mut self, number: usize) -> Result<()> {
        let mut points: Vec<String> = Vec::new();
        for run in &self.runs {
            if !points.contains(&run.point) {
                points.push(run.point.clone());
            }
        }
        let (runs, cells, context) = (&self.runs, &mut self.cells, &self.context);
        rounds(
            number,
            points.len(),
            |index| points[index].clone(),
            |index| {
                let mut here: Vec<usize> =
                    (0..runs.len()).filter(|&run| runs[run].point == points[index]).collect();
                fastrand::shuffle(&mut here);
                for index in here {
                    let samples = match &runs[index].how {
                        How::Asked(process, task, takes) => {
                            match context.measure(*process, task.clone(), *takes)? {
                                Answer::Figures(samples) => samples,
                                _ => return Err(Error::another_question(process.name)),
                            }
                        }
                        How::Here(measure) => vec![measure(context)?],
                    };
                    for cell in cells.iter_mut().filter(|cell| cell.run == index) {
                        cell.samples.push(samples.get(cell.slot).cloned().unwrap_or_default());
                    }
                }
                Ok(())
            },
        )
    }
}

impl Ratio {
    /// The rows that are compared.
    pub(crate) fn only(&mut self, only: fn(&Labels) -> bool) {
        self.only = only;
    }

    /// How two figures are compared.
    pub(crate) fn how(&mut self, how: fn(f64, f64) -> f64) -> &mut Self {
        self.how = how;
        self
    }

    /// Compares with the hardest to reach of some locks: by the smallest ratio where more is better. Each
    /// ratio is a median over the rounds; the best of each round would be the best of its luck.
    pub(crate) fn best_of(&mut self, whose: fn(&str) -> bool, more_is_better: bool) -> &mut Self {
        self.best_of = Some((whose, more_is_better));
        self
    }

    fn of(&self, cells: &[Cell], cell: &Cell) -> Option<(Summary, &'static str)> {
        if cell.section != self.section || !(self.only)(&cell.labels) {
            return None;
        }
        let figures = |cell: &Cell| -> Vec<Option<f64>> {
            cell.samples.iter().map(|sample| sample.get(self.figure).copied()).collect()
        };
        let own = figures(cell);
        let to = |with: &[(&'static str, Value)]| -> Option<(Summary, &'static str)> {
            let mut wanted = cell.labels.clone();
            for (name, value) in with {
                wanted.retain(|(other, _)| other != name);
                wanted.push((name, value.clone()));
            }
            let fits = |other: &&Cell| {
                other.section == self.section
                    && other.labels.len() == wanted.len()
                    && wanted.iter().all(|label| other.labels.contains(label))
            };
            // In the same process if it is there: the others are where the library is not.
            let mut near = cells.iter().filter(|other| other.run == cell.run).filter(fits);
            let other = near.next().or_else(|| cells.iter().filter(|other| !other.hidden).find(fits))?;
            Some((Summary::of_pairs(&own, &figures(other), self.how)?, other.who))
        };
        let Some((whose, more_is_better)) = self.best_of else { return to(&self.with) };
        let mut names: Vec<&'static str> = cells
            .iter()
            .filter(|other| other.section == self.section && whose(other.who))
            .map(|other| other.who)
            .collect();
        names.sort_unstable();
        names.dedup();
        let ratios = names.into_iter().filter_map(|name| to(&[("lock", name.into())]));
        let by_median = |a: &(Summary, &str), b: &(Summary, &str)| a.0.median.total_cmp(&b.0.median);
        if more_is_better { ratios.min_by(by_median) } else { ratios.max_by(by_median) }
    }
}

/// A row of a section: a contender at a point.
#[derive(Clone, Debug)]
pub struct Row {
    section: &'static str,
    /// The contender.
    pub who: &'static str,
    labels: Labels,
    figures: BTreeMap<String, Summary>,
    rounds: Vec<Sample>,
}

impl Row {
    pub(crate) fn new(labels: Labels, figures: BTreeMap<String, Summary>) -> Row {
        Row { section: "", who: "", labels, figures, rounds: Vec::new() }
    }

    /// A figure over the rounds, if any of them has it.
    pub fn get(&self, figure: &str) -> Option<Summary> {
        self.figures.get(figure).copied()
    }

    /// The names of all figures.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.figures.keys().map(String::as_str)
    }

    /// What each round gave.
    pub fn rounds(&self) -> &[Sample] {
        &self.rounds
    }

    /// Whether it has this label.
    pub fn is(&self, name: &str, value: impl Into<Value>) -> bool {
        self.label(name) == value.into()
    }

    /// A label, or null.
    pub fn label(&self, name: &str) -> Value {
        self.labels.iter().find(|(label, _)| *label == name).map_or(Value::Null, |(_, value)| value.clone())
    }

    fn json(&self) -> Value {
        let mut row: Map<String, Value> =
            self.labels.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        row.extend(nested(&self.figures));
        row.insert("rounds".to_owned(), self.rounds.iter().map(nested).collect());
        row.into()
    }
}

fn nested(figures: &BTreeMap<String, impl Serialize>) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, figure) in figures {
        match name.split_once('.') {
            None => _ = all.insert(name.clone(), json!(figure)),
            Some((outer, inner)) => all.entry(outer).or_insert_with(|| json!({}))[inner] = json!(figure),
        }
    }
    all
}

/// All rows, and what they were measured with.
pub struct Rows {
    /// CPUs that threads could share.
    pub cpus: usize,
    /// What a step of work took before the rounds and after them: if it differs, so did the machine.
    pub calibration: [Calibration; 2],
    /// Who could not take part, and why.
    pub absent: Absent,
    rows: Vec<Row>,
}

impl Rows {
    /// The rows of a section.
    pub fn of(&self, section: &str) -> impl Iterator<Item = &Row> + Clone {
        self.rows.iter().filter(move |row| row.section == section)
    }

    /// The row of a contender with these labels.
    pub fn find(&self, section: &str, who: &str, labels: &[(&str, Value)]) -> Option<&Row> {
        let fits =
            |row: &&Row| row.who == who && labels.iter().all(|(name, value)| row.label(name) == *value);
        self.of(section).find(fits)
    }

    /// The different values of a section's labels, in order.
    pub fn values<const N: usize>(&self, section: &str, labels: [&str; N]) -> Vec<[Value; N]> {
        let mut values: Vec<[Value; N]> = Vec::new();
        for row in self.of(section) {
            let here = labels.map(|label| row.label(label));
            if !values.contains(&here) {
                values.push(here);
            }
        }
        values
    }

    fn from(plan: &Plan, after: Calibration) -> Rows {
        let mut rows = Vec::new();
        for cell in plan.cells.iter().filter(|cell| !cell.hidden) {
            let mut figures = BTreeMap::new();
            for name in cell.samples.iter().flat_map(Sample::keys) {
                let all = cell.samples.iter().filter_map(|sample| sample.get(name).copied());
                let summary = Summary::of(all).filter(|all| !name.starts_with("events.") || all.max > 0.0);
                summary.map(|summary| figures.insert(name.clone(), summary));
            }
            let mut labels = cell.labels.clone();
            for ratio in &plan.ratios {
                if let Some((summary, who)) = ratio.of(&plan.cells, cell) {
                    figures.insert(ratio.name.to_owned(), summary);
                    if ratio.best_of.is_some() {
                        labels.push(("best", who.into()));
                    }
                }
            }
            let ideal =
                labels.iter().find(|(name, _)| *name == "ideal").and_then(|(_, ideal)| ideal.as_f64());
            if let (Some(throughput), Some(ideal)) = (figures.get("throughput").copied(), ideal) {
                figures.insert("of_ideal".to_owned(), Summary::scaled(throughput, 1.0 / ideal));
            }
            let rounds = cell.samples.clone();
            rows.push(Row { section: cell.section, who: cell.who, labels, figures, rounds });
        }
        let calibration = [plan.calibration, after];
        Rows { cpus: plan.cpus.len(), calibration, absent: plan.absent.clone(), rows }
    }
}

/// A column of a table of rows.
#[derive(Clone, Copy)]
pub(crate) enum Column<'a> {
    /// Heading and label.
    Label(&'a str, &'a str),
    /// Heading, figure, factor and decimals of a median.
    Median(&'a str, &'a str, f64, usize),
    /// The same, and beside it the smallest and the largest.
    Spread(&'a str, &'a str, f64, usize),
}

impl Column<'_> {
    fn headings(&self) -> Vec<&str> {
        match self {
            Column::Label(heading, _) | Column::Median(heading, ..) => vec![heading],
            Column::Spread(heading, ..) => vec![heading, "spread"],
        }
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let scaled = |figure: &str, factor: f64| row.get(figure).map(|summary| summary.scaled(factor));
        match *self {
            Column::Label(_, name) => vec![match row.label(name) {
                Value::String(text) => text,
                Value::Null => "-".to_owned(),
                // As people type it: 1 and not 1.0.
                Value::Number(number) => {
                    number.as_f64().map_or_else(String::new, |number| number.to_string())
                }
                other => other.to_string(),
            }],
            Column::Median(_, figure, factor, decimals) => vec![median(scaled(figure, factor), decimals)],
            Column::Spread(_, figure, factor, decimals) => {
                let figure = scaled(figure, factor);
                vec![median(figure, decimals), spread(figure, decimals)]
            }
        }
    }
}

/// The rows as a table, of whose columns the first few hold words.
pub(crate) fn table<'a>(
    title: impl Into<String>,
    words: usize,
    columns: &[Column],
    rows: impl Iterator<Item = &'a Row>,
) -> Table {
    let headings: Vec<&str> = columns.iter().flat_map(Column::headings).collect();
    let mut table = Table::new(title, words, &headings);
    table.rows.extend(rows.map(|row| columns.iter().flat_map(|column| column.cells(row)).collect()));
    table
}

/// A benchmark's figures.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Figures {
    json: Map<String, Value>,
    /// To be read.
    #[serde(skip)]
    pub report: Report,
    /// As an SVG document, if the benchmark draws any.
    #[serde(skip)]
    pub picture: Option<String>,
}

/// Measures.
///
/// # Errors
/// If the options make no sense, the preload library or a lock that was asked for is missing, or a worker
/// fails: above all, if a lock does not exclude.
pub fn run<P: Preset>(context: &Context, preset: &P) -> Result<Figures> {
    preset.check()?;
    let (rounds, cpus) = preset.common();
    check_rounds(rounds)?;
    let cpus = affinity::some(cpus)?;
    let machine = Machine::describe(&context.command);
    let mut plan = Plan {
        context: context.clone(),
        cpus,
        alone_on: affinity::one(None)?,
        calibration: Calibration::measure(),
        absent: Vec::new(),
        who: P::WHO,
        runs: Vec::new(),
        cells: Vec::new(),
        ratios: Vec::new(),
    };
    preset.plan(&mut plan)?;
    if plan.runs.iter().any(|run| matches!(&run.how, How::Asked(process, ..) if process.ours.is_some())) {
        context.library()?;
    }
    plan.measure(rounds)?;
    figures(preset, machine, &Rows::from(&plan, Calibration::measure()))
}

fn figures<P: Preset>(preset: &P, machine: Machine, rows: &Rows) -> Result<Figures> {
    let mut targets = preset.targets(rows);
    targets.retain(|target| !target.results.is_empty());
    let absent: Vec<_> = rows.absent.iter().map(|(lock, why)| json!({"lock": lock, "why": why})).collect();
    let mut json = Map::new();
    let mut add = |name: &str, value: Value| _ = json.insert(name.to_owned(), value);
    add("machine", json!(machine));
    add("options", json!(preset));
    add("cpus", rows.cpus.into());
    add("calibration", json!(rows.calibration[0]));
    add("calibration_after", json!(rows.calibration[1]));
    add("absent", absent.into());
    preset.extra(rows).into_iter().for_each(|(name, value)| add(name, value));
    let mut sections: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    rows.rows.iter().for_each(|row| sections.entry(row.section).or_default().push(row.json()));
    sections.into_iter().for_each(|(name, rows)| add(name, rows.into()));
    add("targets", json!(targets));
    let others = rows.rows.iter().filter_map(|row| row.get("others")).map(|others| others.median);
    let mut method = preset.method(rows);
    if !rows.absent.is_empty() {
        method += "\n\nLeft out:";
        rows.absent.iter().for_each(|(lock, why)| method += &format!(" {lock} ({why})."));
    }
    let report = Report {
        title: P::TITLE,
        answer: preset.answer(rows).unwrap_or_default(),
        others: others.max_by(f64::total_cmp),
        method,
        machine,
        listing: preset.listing(rows),
        tables: preset.tables(rows),
        targets,
        targets_title: P::TARGETS,
    };
    Ok(Figures { json, report, picture: preset.picture(rows)? })
}

/// How rounds and medians are made, for every method.
pub(crate) fn in_rounds(rounds: usize, rows: &Rows) -> String {
    format!(
        "{rounds} rounds; in each, points come in random order, and at a point everybody in random order. A \
            figure is the median \
         over the rounds, the spread their minimum and maximum; a ratio is taken inside each round before \
         its median over the \
         rounds. Work is a chain of multiplications whose length was measured once for all ({:.3} ns a step \
         before the rounds, \
         {:.3} ns after them). \"Others\" is the share of the CPUs that went to other processes meanwhile: \
         where it is not near \
         0, the figures are worth less.",
        rows.calibration[0].ns_per_step, rows.calibration[1].ns_per_step
    )
}

/// Options by their defaults, as the command has them.
///
/// # Panics
/// If an option has no default: every one of the library's has.
pub fn by_default<O: clap::Args>() -> O {
    let command = O::augment_args(clap::Command::new("bench").no_binary_name(true));
    let matches = command.get_matches_from::<[&str; 0], &str>([]);
    O::from_arg_matches(&matches).expect("every option has a default")
}

fn check_rounds(rounds: usize) -> Result<()> {
    if rounds == 0 {
        return Err(Error::Options("at least one round is needed".to_owned()));
    }
    Ok(())
}

/// # Errors
/// If there is no round, or no time.
pub(crate) fn check_run(rounds: usize, seconds: f64, most: f64) -> Result<()> {
    check_rounds(rounds)?;
    if !(seconds > 0.0 && seconds <= most) {
        return Err(Error::Options(format!("--seconds must lie above 0 and at most at {most}")));
    }
    Ok(())
}

/// # Errors
/// If a number of threads is none.
pub(crate) fn check_threads(threads: &[usize], least: usize) -> Result<()> {
    if threads.is_empty() || threads.iter().any(|threads| !(least..=10_000).contains(threads)) {
        return Err(Error::Options(format!("--threads must name numbers from {least} to 10000")));
    }
    Ok(())
}

/// # Errors
/// If a duration is none, or there is none.
pub(crate) fn check_us(name: &str, durations: &[f64]) -> Result<()> {
    if durations.is_empty() {
        return Err(Error::Options(format!("{name} must name a duration")));
    }
    if durations.iter().any(|us| !(0.0..=1e6).contains(us)) {
        return Err(Error::Options(format!("{name} must lie between 0 and 1000000 microseconds")));
    }
    Ok(())
}

/// Made-up rounds for tests of targets and tables.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a preset makes of figures of three rounds, the second at half speed: `figure` gives each cell's
    /// by section, lock and labels, as throughput or as nanoseconds.
    pub(crate) fn made_up<P: Preset>(
        preset: &P,
        cpus: usize,
        figure: impl Fn(&str, &str, &dyn Fn(&str) -> Value) -> f64,
    ) -> Figures {
        made_up_of(preset, cpus, |cell, alone, speed| {
            let given = figure(cell.section, cell.who, &|name| cell.label(name));
            if alone {
                return vec![("ns", given / speed)];
            }
            vec![
                ("throughput", given * speed),
                ("ns", 1e9 / (given * speed)),
                ("pass_ns", 1e9 / (given * speed)),
                ("jain", 0.99),
                ("writer_waits.max_of_mean", 5.0),
                ("events.slow paths", 0.5),
                ("acquisitions", 100.0),
            ]
        })
    }

    impl Cell {
        pub(crate) fn label(&self, name: &str) -> Value {
            let found = self.labels.iter().find(|(label, _)| *label == name);
            found.map_or(Value::Null, |(_, value)| value.clone())
        }
    }

    /// The same with all figures of a cell, which one thread alone made or not, at this speed.
    pub(crate) fn made_up_of<P: Preset>(
        preset: &P,
        cpus: usize,
        figures: impl Fn(&Cell, bool, f64) -> Vec<(&'static str, f64)>,
    ) -> Figures {
        preset.check().unwrap();
        let context = Context {
            program: "/nowhere".into(),
            worker: vec![],
            library: Ok("/nowhere/lib.so".into()),
            command: "poundlock bench".to_owned(),
        };
        let calibration = Calibration { ns_per_step: 1.0 };
        let mut plan = Plan {
            context,
            cpus: (0..cpus).collect(),
            alone_on: 0,
            calibration,
            absent: vec![],
            who: P::WHO,
            runs: vec![],
            cells: vec![],
            ratios: vec![],
        };
        preset.plan(&mut plan).unwrap();
        for cell in &mut plan.cells {
            let alone = matches!(plan.runs[cell.run].how, How::Asked(_, Task::Alone(_), _));
            let named = |(name, value): (&str, f64)| (name.to_owned(), value);
            cell.samples = [1.0, 0.5, 1.0]
                .map(|speed| figures(cell, alone, speed).into_iter().map(named).collect())
                .to_vec();
        }
        let rows = Rows::from(&plan, calibration);
        super::figures(preset, Machine::describe("poundlock bench"), &rows).unwrap()
    }

    impl Figures {
        /// A target's result for a lock, and its verdict.
        #[track_caller]
        pub(crate) fn target(&self, starts: &str, lock: &str) -> (f64, &'static str) {
            let target = self.report.targets.iter().find(|target| target.figure.starts_with(starts));
            let target = target.unwrap_or_else(|| panic!("no '{starts}' in {:?}", self.report.targets));
            let result = target.results.iter().find(|result| result.lock == lock);
            let result = result.unwrap_or_else(|| panic!("{lock} is not in {target:?}"));
            ((result.value * 1000.0).round() / 1000.0, result.verdict.word())
        }
    }

    #[test]
    fn a_ratio_lies_within_its_own_spread() {
        let ratio_of = |own: [f64; 3], other: [f64; 3]| {
            let a: Vec<_> = own.map(Some).to_vec();
            let b: Vec<_> = other.map(Some).to_vec();
            Summary::of_pairs(&a, &b, |a, b| a / b).unwrap()
        };
        let ratio = ratio_of([0.98, 2.0, 3.0], [1.0, 2.1, 3.2]);
        assert!(ratio.min <= ratio.median && ratio.median <= ratio.max, "{ratio:?}");
    }

    #[test]
    fn every_benchmark_has_its_own_number_of_rounds() {
        let handover: crate::handover::Options = by_default();
        let (sem, misc): (crate::sem::Options, crate::misc::Options) = (by_default(), by_default());
        assert_eq!([handover.common.rounds, sem.common.rounds, misc.common.rounds], [5, 3, 11]);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        assert!(check_run(0, 1.0, 1.0).is_err() && check_run(1, f64::NAN, 1.0).is_err());
        assert!(check_threads(&[2, 1], 2).is_err() && check_threads(&[], 1).is_err());
        assert!(check_us("--think", &[f64::INFINITY]).is_err() && check_us("--critical", &[]).is_err());
        assert!(check_run(1, 1.0, 1.0).is_ok() && check_us("--think", &[0.0]).is_ok());
    }
}
