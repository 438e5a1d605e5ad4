//! `poundlock sim reproduce`: the published tables, with our figure beside each of theirs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use comfy_table::{Cell, CellAlignment, Table as Grid, presets};
use poundlock_sim::Machine;
use poundlock_sim::experiment;
use poundlock_sim::published::{Comparison, Figure, Run, Table, tables};
use poundlock_sim::workload::aim7::Profile;
use serde::Serialize;

use super::{print, progress, write_json};
use crate::message::{Failure, status};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The table: a name of `poundlock sim list`, or `all`
    #[arg(value_name = "TABLE")]
    table: String,
    /// Write the figures to FILE as JSON as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Changes up to this many percent are noise in the source.
const NOISE: f64 = 5.0;

/// A line with our figures.
#[derive(Serialize)]
struct Row {
    case: String,
    before: Pair,
    after: Pair,
    change_percent: Pair,
    /// Whether our change has the sign of theirs; nothing if theirs is within noise.
    same_sign: Option<bool>,
}

#[derive(Serialize)]
struct Pair {
    published: Option<f64>,
    ours: f64,
}

impl Pair {
    /// Ours of theirs.
    fn ratio(&self) -> Option<f64> {
        self.published.map(|published| self.ours / published)
    }
}

#[derive(Serialize)]
struct Document {
    name: &'static str,
    about: &'static str,
    unit: &'static str,
    before: &'static str,
    after: &'static str,
    rows: Vec<Row>,
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let all = tables();
    let names: Vec<_> = all.iter().map(|table| table.name).collect();
    let wanted: Vec<Table> =
        all.into_iter().filter(|table| args.table == "all" || args.table == table.name).collect();
    if wanted.is_empty() {
        return Err(Failure::new(
            status::USAGE,
            format_args!("no table is called '{}'; there are {} and all", args.table, names.join(", ")),
        ));
    }
    let figures = wanted.iter().flat_map(|table| &table.rows).flat_map(|row| [&row.before, &row.after]);
    let mut runs: Vec<&Run> = figures.map(|figure| &figure.run).collect();
    runs.sort_unstable();
    runs.dedup();
    // Long ones first, so that no CPU is left alone with one.
    runs.sort_by_key(|run| std::cmp::Reverse(run.sockets * run.threads_a_core));
    let (machines, profiles) = (Machine::known(), Profile::known());
    let bar = progress(runs.len());
    let outcomes = experiment::each(
        runs.len(),
        |at| runs[at].run(&machines, &profiles),
        |at| {
            let Run { mix, lock, users, .. } = runs[at];
            bar.set_message(format!("{mix}, {users} users, {lock}"));
            bar.inc(1);
        },
    );
    bar.finish_and_clear();
    let mut done = BTreeMap::new();
    for (run, outcome) in runs.iter().zip(outcomes) {
        done.insert(*run, outcome.map_err(|line| Failure::new(1, line))?);
    }
    let ours = |figure: &Figure| done[&figure.run].figures[figure.pick].value;
    let documents: Vec<Document> = wanted.iter().map(|table| document(table, ours)).collect();
    if let Some(path) = &args.json {
        write_json(path, &documents)?;
    }
    print(&documents.iter().map(text).collect::<Vec<_>>().join("\n"))
}

fn document(table: &Table, ours: impl Fn(&Figure) -> f64) -> Document {
    let row = |row: &Comparison| {
        let before = Pair { published: row.before.published, ours: ours(&row.before) };
        let after = Pair { published: row.after.published, ours: ours(&row.after) };
        let percent = |before: f64, after: f64| (after / before - 1.0) * 100.0;
        let both = before.published.zip(after.published);
        let change_percent = Pair {
            published: row.change.or(both.map(|(before, after)| percent(before, after))),
            ours: percent(before.ours, after.ours),
        };
        let told = change_percent.published.filter(|change| change.abs() > NOISE);
        Row {
            case: row.label.clone(),
            same_sign: told.map(|change| change * change_percent.ours > 0.0),
            before,
            after,
            change_percent,
        }
    };
    Document {
        name: table.name,
        about: table.about,
        unit: table.unit,
        before: "fitted",
        after: "predicted",
        rows: table.rows.iter().map(row).collect(),
    }
}

fn text(document: &Document) -> String {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING);
    let mut header = vec![Cell::new("case")];
    for column in
        ["before", "ours, fitted", "of it", "after", "ours, predicted", "of it", "change", "ours", "sign"]
    {
        header.push(right(column.to_owned()));
    }
    grid.set_header(header);
    let decimals = if document.rows.iter().any(|row| row.before.ours.abs() < 1000.0) { 2 } else { 0 };
    for row in &document.rows {
        let mut cells = vec![Cell::new(&row.case)];
        for pair in [&row.before, &row.after] {
            cells.push(right(pair.published.map_or(String::new(), |value| format!("{value:.decimals$}"))));
            cells.push(right(format!("{:.decimals$}", pair.ours)));
            cells.push(right(pair.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}"))));
        }
        let change = &row.change_percent;
        cells.push(right(change.published.map_or(String::new(), |value| format!("{value:+.1} %"))));
        cells.push(right(format!("{:+.1} %", change.ours)));
        cells.push(right(match row.same_sign {
            None => "noise".to_owned(),
            Some(true) => "same".to_owned(),
            Some(false) => "OTHER".to_owned(),
        }));
        grid.add_row(cells);
    }
    format!(
        "{}: {}; {}\n{}\n{}\n",
        document.name,
        document.about,
        document.unit,
        grid.trim_fmt(),
        summary(&document.rows)
    )
}

/// How near we came, in a line.
fn summary(rows: &[Row]) -> String {
    let error = |pairs: &mut dyn Iterator<Item = f64>| {
        let mut factors: Vec<f64> = pairs.map(|ratio| ratio.max(1.0 / ratio)).collect();
        factors.sort_by(f64::total_cmp);
        match factors.last() {
            Some(worst) => format!("median factor {:.2}, worst {worst:.2}", factors[factors.len() / 2]),
            None => "none published".to_owned(),
        }
    };
    let told = rows.iter().filter(|row| row.same_sign.is_some()).count();
    let same = rows.iter().filter(|row| row.same_sign == Some(true)).count();
    format!(
        "fitted: {}; predicted: {}; changes above {NOISE} %: {same} of {told} have the same sign",
        error(&mut rows.iter().filter_map(|row| row.before.ratio())),
        error(&mut rows.iter().filter_map(|row| row.after.ratio())),
    )
}
