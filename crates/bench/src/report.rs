//! Tables, targets, and the three ways out: standard output, JSON, Markdown.

use comfy_table::{CellAlignment, presets};
use serde::Serialize;

use crate::contender::Contender;
use crate::machine::Machine;
use crate::stats::Summary;

/// A benchmark's figures.
pub trait Report {
    /// What was measured, as a heading.
    fn title(&self) -> &'static str;
    /// How it was measured, in a few sentences.
    fn method(&self) -> String;
    /// What it was measured on.
    fn machine(&self) -> &Machine;
    /// The figures.
    fn tables(&self) -> Vec<Table>;
    /// What a terminal shows besides, above the tables: the output of the program that the benchmark is after.
    fn listing(&self) -> String {
        String::new()
    }
    /// The figures that Poundlock wants to reach.
    fn targets(&self) -> &[Target];
    /// The heading over them.
    fn targets_title(&self) -> &'static str {
        "Targets (they are about the default lock; the others for comparison)"
    }
}

/// The report as text for a terminal or a file.
pub fn text(report: &dyn Report) -> String {
    let mut out = format!("{}\n\n", report.title());
    for (label, value) in report.machine().lines() {
        out += &format!("{label}: {value}\n");
    }
    out += &format!("\n{}\n", report.method());
    let listing = report.listing();
    if !listing.is_empty() {
        out += &format!("\n{listing}");
    }
    for table in report.tables().iter().chain(&targets_table(report.targets_title(), report.targets())) {
        out += &format!("\n{}\n{}\n", table.title, table.text());
    }
    out
}

/// The report as a Markdown section.
pub fn markdown(report: &dyn Report) -> String {
    let mut out = format!("## {}\n\n", report.title());
    for (label, value) in report.machine().lines() {
        let quote = if label == "Command" { "`" } else { "" };
        out += &format!("- {label}: {quote}{value}{quote}\n");
    }
    out += &format!("\n{}\n", report.method());
    for table in report.tables().iter().chain(&targets_table(report.targets_title(), report.targets())) {
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

    /// The table with lines around it.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(&self.headings).add_rows(&self.rows);
        for (index, column) in table.column_iter_mut().enumerate() {
            if index >= self.words {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
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
    pub lock: &'static str,
    /// Its figure.
    pub value: f64,
    /// The smallest and the largest of any round.
    pub spread: (f64, f64),
    /// Whether that reaches the limit.
    pub reached: bool,
}

impl Target {
    pub(crate) fn new(
        figure: impl Into<String>,
        limit: Limit,
        unit: &'static str,
        results: impl IntoIterator<Item = (&'static str, Option<Summary>)>,
    ) -> Target {
        let results = results
            .into_iter()
            .filter_map(|(lock, value)| {
                let Summary { median: value, min, max, .. } = value?;
                Some(TargetResult { lock, value, spread: (min, max), reached: limit.reached_by(value) })
            })
            .collect();
        Target { figure: figure.into(), limit, unit, results }
    }
}

/// The targets with a column for each lock, the default first; none if nothing was measured against any.
fn targets_table(title: &str, targets: &[Target]) -> Option<Table> {
    let mut locks: Vec<&str> = Vec::new();
    for result in targets.iter().flat_map(|target| &target.results) {
        if !locks.contains(&result.lock) {
            locks.push(result.lock);
        }
    }
    if locks.is_empty() {
        return None;
    }
    locks.sort_by_key(|&lock| lock != Contender::DEFAULT.name());
    let mut headings = vec!["target", "limit"];
    headings.extend(&locks);
    let mut table = Table::new(title, 1, &headings);
    for target in targets {
        let mut row = vec![
            target.figure.clone(),
            match target.limit {
                Limit::AtMost(limit) => format!("at most {limit} {}", target.unit).trim_end().to_owned(),
                Limit::AtLeast(limit) => format!("at least {limit} {}", target.unit).trim_end().to_owned(),
            },
        ];
        for lock in &locks {
            row.push(match target.results.iter().find(|result| result.lock == *lock) {
                Some(result) => {
                    let (min, max) = result.spread;
                    let reached = if result.reached { "reached" } else { "missed" };
                    format!("{:.2} {reached} ({min:.2}..{max:.2})", result.value)
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
                (Contender::DEFAULT.name(), Summary::of([0.85])),
                ("mcs-queue", None),
            ],
        )]
    }

    #[test]
    fn limits_include_their_bound() {
        assert!(Limit::AtMost(0.85).reached_by(0.85) && !Limit::AtMost(0.85).reached_by(0.86));
        assert!(Limit::AtLeast(1.5).reached_by(1.5) && !Limit::AtLeast(1.5).reached_by(1.49));
    }

    #[test]
    fn targets_show_the_default_first_and_leave_out_what_was_not_measured() {
        let table = targets_table("Targets", &targets()).unwrap();
        assert_eq!(table.headings, ["target", "limit", Contender::DEFAULT.name(), "baseline"]);
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
        assert!(table.text().contains("glibc"));
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        assert_eq!((median(None, 2), spread(None, 1)), ("-".to_owned(), "-".to_owned()));
        assert_eq!(spread(Summary::of([1.0, 2.0]), 1), "1.0..2.0");
    }
}
