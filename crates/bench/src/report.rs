//! Tables, targets, and the three ways out: standard output, JSON, Markdown.

use std::{fmt, io};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width as Limited, presets};
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

use crate::contender::DEFAULT;
use crate::{Machine, Summary};

/// A benchmark's figures, to be read.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was measured, as a heading.
    pub title: &'static str,
    /// The answer to the question that the benchmark is asked, in a sentence; empty if it is not asked one.
    pub answer: String,
    /// The share of the CPUs that other processes had, at worst, if it was watched.
    pub others: Option<f64>,
    /// How it was measured, in a few sentences.
    pub method: String,
    /// What it was measured on.
    pub machine: Machine,
    /// What a terminal shows above the tables: the output of the program that the benchmark is after.
    pub listing: String,
    /// The figures.
    pub tables: Vec<Table>,
    /// The figures that Poundlock wants to reach.
    pub targets: Vec<Target>,
    /// The heading over them.
    pub targets_title: &'static str,
}

/// How wide a table may be where nobody says: in a pipe or a file.
const COLUMNS: usize = 110;

/// The report as text for standard output: its tables fit the terminal, or else as many columns as `COLUMNS`
/// in the environment says, or 110.
pub fn text(report: &Report, targets: bool) -> String {
    let told = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    let terminal = terminal_size_of(io::stdout()).map(|(Width(columns), _)| usize::from(columns));
    text_in(report, targets, terminal.or_else(told).unwrap_or(COLUMNS))
}

fn text_in(report: &Report, targets: bool, columns: usize) -> String {
    let mut out = busy(report).map_or_else(String::new, |line| format!("{line}\n\n"));
    out += &format!("{}\n\n", report.title);
    if !report.answer.is_empty() {
        out += &format!("{}\n\n", report.answer);
    }
    for (label, value) in report.machine.lines() {
        out += &format!("{label}: {value}\n");
    }
    out += &format!("\n{}\n", report.method);
    if !report.listing.is_empty() {
        out += &format!("\n{}", report.listing);
    }
    for table in tables(report, targets) {
        out += &format!("\n{}\n{}\n", table.title, table.text(columns));
    }
    out
}

/// What is wrong with the machine, if others used it meanwhile.
pub(crate) fn busy(report: &Report) -> Option<String> {
    poundlock_measure::busy_line(&report.machine, report.others)
}

/// The tables, and the targets if they are asked for.
fn tables(report: &Report, targets: bool) -> Vec<Table> {
    let asked = targets.then(|| targets_table(report.targets_title, &report.targets)).flatten();
    report.tables.iter().cloned().chain(asked).collect()
}

/// The report as a Markdown section.
pub fn markdown(report: &Report, targets: bool) -> String {
    let mut out = format!("## {}\n\n", report.title);
    for line in busy(report).into_iter().chain([report.answer.clone()]).filter(|line| !line.is_empty()) {
        out += &format!("{line}\n\n");
    }
    for (label, value) in report.machine.lines() {
        let quote = if label == "Command" { "`" } else { "" };
        out += &format!("- {label}: {quote}{value}{quote}\n");
    }
    out += &format!("\n{}\n", report.method);
    for table in tables(report, targets) {
        out += &format!("\n### {}\n\n{}", table.title, table.markdown());
    }
    out
}

/// A table of ready-made cells. The first column is text, the others are figures.
#[derive(Clone, Debug)]
pub struct Table {
    /// What the table shows.
    pub title: String,
    /// Column headings.
    pub headings: Vec<String>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
    /// How many columns, from the left, hold words rather than figures.
    pub words: usize,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, words: usize, headings: &[&str]) -> Table {
        let headings = headings.iter().map(|&heading| heading.to_owned()).collect();
        Table { title: title.into(), headings, rows: Vec::new(), words }
    }

    /// The table with lines around it, no wider than `columns` where that can be. Cells are broken between
    /// words if need be; if that is not enough, further columns of figures follow below, beside the words
    /// again.
    pub fn text(&self, columns: usize) -> String {
        let least: Vec<usize> = (0..self.headings.len()).map(|column| self.longest_word(column)).collect();
        let width = |column: usize| least[column] + APART;
        let words: usize = (0..self.words).map(width).sum();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut left = 0;
        for column in self.words..self.headings.len() {
            match parts.last_mut() {
                Some(part) if width(column) <= left => part.push(column),
                _ => {
                    parts.push((0..self.words).chain([column]).collect());
                    left = (columns + 1).saturating_sub(words);
                }
            }
            left = left.saturating_sub(width(column));
        }
        if parts.is_empty() {
            parts.push((0..self.headings.len()).collect());
        }
        let parts: Vec<String> = parts.iter().map(|part| self.part(part, &least, columns)).collect();
        parts.join("\n\n")
    }

    /// Some of the columns, which need `least` characters each, as a table of their own.
    fn part(&self, part: &[usize], least: &[usize], columns: usize) -> String {
        let mut widths: Vec<usize> = part.iter().map(|&column| self.widest_line(column)).collect();
        // The widest gives way first.
        while widths.iter().map(|width| width + APART).sum::<usize>() > columns + 1 {
            let wide = (0..part.len()).filter(|&index| widths[index] > least[part[index]]);
            let Some(widest) = wide.max_by_key(|&index| widths[index]) else { break };
            widths[widest] -= 1;
        }
        let of = |row: &[String]| part.iter().map(|&column| row[column].clone()).collect::<Vec<_>>();
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::UTF8_HORIZONTAL_ONLY)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::MAX)
            .set_header(of(&self.headings))
            .add_rows(self.rows.iter().map(|row| of(row)));
        for ((column, &number), width) in table.column_iter_mut().zip(part).zip(widths) {
            let width = u16::try_from(width + PADDING).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Limited::Fixed(width)));
            if number >= self.words {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        [&self.headings].into_iter().chain(&self.rows).map(move |row| row[column].as_str())
    }

    fn longest_word(&self, column: usize) -> usize {
        let words = self.cells(column).flat_map(str::split_whitespace);
        words.map(|word| word.chars().count()).max().unwrap_or(0).max(1)
    }

    fn widest_line(&self, column: usize) -> usize {
        let lines = self.cells(column).flat_map(str::lines);
        lines.map(|line| line.chars().count()).max().unwrap_or(0).max(1)
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = (0..self.headings.len())
            .map(|index| if index < self.words { "---".to_owned() } else { "---:".to_owned() })
            .collect();
        let mut out = line(&self.headings) + &line(&rule);
        for row in &self.rows {
            out += &line(row);
        }
        out
    }
}

/// Blanks on both sides of a cell, and with that between two.
const PADDING: usize = 2;
const APART: usize = PADDING + 1;

/// A limit and which side of it is good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Reached by a figure no larger.
    AtMost(f64),
    /// Reached by a figure no smaller.
    AtLeast(f64),
}

impl Limit {
    /// Whether `figure` reaches it.
    pub fn reached_by(self, figure: f64) -> bool {
        match self {
            Self::AtMost(limit) => figure <= limit,
            Self::AtLeast(limit) => figure >= limit,
        }
    }

    /// What a spread says.
    pub fn judges(self, min: f64, max: f64) -> Verdict {
        match [self.reached_by(min), self.reached_by(max)] {
            [true, true] => Verdict::Reached,
            [false, false] => Verdict::Missed,
            _ => Verdict::Undecided,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "at most {limit}"),
            Self::AtLeast(limit) => write!(f, "at least {limit}"),
        }
    }
}

/// A figure that Poundlock wants to reach, and how far each lock gets.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// What is compared with what.
    pub figure: String,
    /// The limit, in `unit`.
    pub limit: Limit,
    /// The unit; empty for a ratio.
    pub unit: &'static str,
    /// The median of each lock.
    pub results: Vec<TargetResult>,
}

/// A lock's result against a target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetResult {
    /// Which lock.
    pub lock: String,
    /// Its figure.
    pub value: f64,
    /// The smallest and the largest of any round.
    pub spread: (f64, f64),
    /// Whether that reaches the limit.
    pub verdict: Verdict,
}

/// Whether a figure reaches its limit. It takes a spread that does not cross it to say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// In every round.
    Reached,
    /// In no round.
    Missed,
    /// In some.
    Undecided,
}

impl Verdict {
    /// In a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
        }
    }
}

impl Target {
    pub(crate) fn new(
        figure: impl Into<String>,
        limit: Limit,
        unit: &'static str,
        results: impl IntoIterator<Item = (impl Into<String>, Option<Summary>)>,
    ) -> Target {
        let results = results
            .into_iter()
            .filter_map(|(lock, value)| {
                let Summary { median: value, min, max, .. } = value?;
                let (lock, verdict) = (lock.into(), limit.judges(min, max));
                Some(TargetResult { lock, value, spread: (min, max), verdict })
            })
            .collect();
        Target { figure: figure.into(), limit, unit, results }
    }
}

/// The targets with a column for each lock, the default first; none if nothing was measured against any.
pub(crate) fn targets_table(title: &str, targets: &[Target]) -> Option<Table> {
    let mut locks: Vec<&str> = Vec::new();
    for result in targets.iter().flat_map(|target| &target.results) {
        if !locks.contains(&result.lock.as_str()) {
            locks.push(&result.lock);
        }
    }
    if locks.is_empty() {
        return None;
    }
    locks.sort_by_key(|&lock| lock != DEFAULT);
    let mut headings = vec!["target", "limit"];
    headings.extend(&locks);
    let mut table = Table::new(title, 1, &headings);
    for target in targets {
        let mut row =
            vec![target.figure.clone(), format!("{} {}", target.limit, target.unit).trim_end().to_owned()];
        for lock in &locks {
            row.push(match target.results.iter().find(|result| result.lock == *lock) {
                Some(result) => {
                    let (min, max) = result.spread;
                    format!("{:.2} {} ({min:.2}..{max:.2})", result.value, result.verdict.word())
                }
                None => "-".to_owned(),
            });
        }
        table.rows.push(row);
    }
    Some(table)
}

/// `median`, or a dash.
pub(crate) fn median(summary: Option<Summary>, decimals: usize) -> String {
    summary.map_or_else(|| "-".to_owned(), |summary| format!("{:.decimals$}", summary.median))
}

/// `min..max`, or a dash.
pub(crate) fn spread(summary: Option<Summary>, decimals: usize) -> String {
    summary.map_or_else(
        || "-".to_owned(),
        |summary| format!("{:.decimals$}..{:.decimals$}", summary.min, summary.max),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Vec<Target> {
        vec![Target::new(
            "time of glibc's",
            Limit::AtMost(0.85),
            "",
            [
                ("baseline", Summary::of([0.88, 0.9, 0.95])),
                (DEFAULT, Summary::of([0.85])),
                ("mcs-queue", None),
            ],
        )]
    }

    #[test]
    fn limits_include_their_bound() {
        assert!(Limit::AtMost(0.85).reached_by(0.85) && !Limit::AtMost(0.85).reached_by(0.86));
        let [under, over] = [Limit::AtMost(1.0).judges(0.5, 1.0), Limit::AtMost(1.0).judges(1.1, 1.2)];
        assert_eq!(
            (under, over, Limit::AtLeast(1.0).judges(0.9, 1.1)),
            (Verdict::Reached, Verdict::Missed, Verdict::Undecided)
        );
        assert!(Limit::AtLeast(1.5).reached_by(1.5) && !Limit::AtLeast(1.5).reached_by(1.49));
    }

    #[test]
    fn targets_show_the_default_first_and_leave_out_what_was_not_measured() {
        let table = targets_table("Targets", &targets()).unwrap();
        assert_eq!(table.headings, ["target", "limit", DEFAULT, "baseline"]);
        assert_eq!(
            table.rows,
            [["time of glibc's", "at most 0.85", "0.85 reached (0.85..0.85)", "0.90 missed (0.88..0.95)"]]
        );
        assert!(targets_table("Targets", &[]).is_none());
    }

    #[test]
    fn markdown_has_a_rule_and_aligns_figures() {
        let mut table = Table::new("t", 1, &["lock", "ns"]);
        table.rows.push(vec!["glibc".into(), "9.1".into()]);
        assert_eq!(table.markdown(), "| lock | ns |\n| --- | ---: |\n| glibc | 9.1 |\n");
        assert!(table.text(80).contains("glibc"));
    }

    /// A column of names and 18 of figures, with spreads in some.
    fn wide() -> Table {
        let locks: Vec<String> = (0..18).map(|lock| format!("lock-{lock}")).collect();
        let mut headings = vec!["what is compared with what"];
        headings.extend(locks.iter().map(String::as_str));
        let mut table = Table::new("t", 1, &headings);
        for row in 0..3 {
            let mut cells = vec![format!("row {row}: throughput with 250 threads, of that with 2")];
            cells.extend((0..18).map(|lock| format!("{row}.{lock} reached ({lock}.00..{row}.99)")));
            table.rows.push(cells);
        }
        table
    }

    #[test]
    fn a_table_is_as_wide_as_it_may_be_and_loses_nothing() {
        let table = wide();
        let words = |text: &str| {
            let words = text.split_whitespace().filter(|word| !word.starts_with(['─', '═']));
            words.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
        };
        let all: Vec<_> = [&table.headings].into_iter().chain(&table.rows).map(|row| row.join(" ")).collect();
        for columns in [40, 80, 110, 200, 1000] {
            let text = table.text(columns);
            for line in text.lines() {
                assert!(line.chars().count() <= columns, "{columns} columns, {line:?} in\n{text}");
            }
            assert_eq!(words(&text), words(&all.join(" ")), "{columns} columns\n{text}");
        }
        // One line each, where there is room.
        assert_eq!(table.text(1000).lines().filter(|line| line.contains("row ")).count(), 3);
    }

    #[test]
    fn figures_that_have_no_room_stand_below_beside_their_names() {
        let text = wide().text(60);
        assert_eq!(text.matches("row 2:").count(), text.matches("row 0:").count());
        assert!(text.matches("row 2:").count() > 1, "{text}");
    }

    #[test]
    fn a_word_that_is_too_long_stays_in_one_piece() {
        let mut table = Table::new("t", 1, &["lock", "ns"]);
        table.rows.push(vec!["x".repeat(50), "9.1".into()]);
        assert!(table.text(40).contains(&"x".repeat(50)));
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        assert_eq!((median(None, 2), spread(None, 1)), ("-".to_owned(), "-".to_owned()));
        assert_eq!(spread(Summary::of([1.0, 2.0]), 1), "1.0..2.0");
    }
}
