//! `poundlock sim reproduce`: the published tables, with our figure beside each of theirs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use poundlock_sim::fit::is_before;
use poundlock_sim::model::Model;
use poundlock_sim::published::{Comparison, Figure, Run, Table, tables, why_not};
use serde::Serialize;

use super::page::{Section, html};
use super::sheet::Sheet;
use crate::message::{Failure, status};
use crate::results::{Output, print_beside};
use poundlock_bench::plot::{Group, Look, Shape, Track, groups};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The table: a name of `poundlock sim list`, or `all`
    #[arg(value_name = "TABLE")]
    table: String,
    /// Write the figures to FILE as JSON as well; instead of the table if it is `-`, standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the tables on a page in FILE
    #[arg(long, value_name = "FILE.html")]
    plot: Option<PathBuf>,
}

/// Changes up to this many percent are noise in the source.
const NOISE: f64 = 5.0;
/// And below this they have no sign in ours, which have less noise.
const NOTHING: f64 = 0.5;

/// A table with our figures.
#[derive(Serialize)]
struct Document {
    name: &'static str,
    about: &'static str,
    unit: &'static str,
    /// How near the figures came that were fitted. Each figure of the source counts once, however many rows
    /// it is in.
    fitted: Option<Accuracy>,
    /// And those that nothing was fitted to.
    predicted: Option<Accuracy>,
    rows: Vec<Row>,
}

/// How far our figures are from published ones, one way or the other: 1 is exact.
#[derive(Debug, PartialEq, Serialize)]
struct Accuracy {
    figures: usize,
    median_factor: f64,
    worst_factor: f64,
}

/// A line with our figures.
#[derive(Serialize)]
struct Row {
    case: String,
    before: Cell,
    after: Cell,
    change_percent: Change,
    /// Whether our change has the sign of theirs; nothing if theirs is within noise.
    same_sign: Option<bool>,
}

#[derive(Clone, Copy, Serialize)]
struct Cell {
    published: Option<f64>,
    ours: f64,
    /// Whether free numbers were fitted to what is published here; predicted if not.
    fitted: bool,
}

impl Cell {
    fn new(table: &Table, figure: &Figure, ours: f64) -> Cell {
        let fitted = table.fitted && figure.published.is_some() && is_before(figure.run.lock);
        Cell { published: figure.published, ours, fitted }
    }

    /// Ours of theirs.
    fn ratio(&self) -> Option<f64> {
        self.published.map(|published| self.ours / published)
    }
}

#[derive(Serialize)]
struct Change {
    published: Option<f64>,
    ours: f64,
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let all = tables();
    let names: Vec<_> = all.iter().map(|table| table.name).collect();
    let wanted: Vec<Table> =
        all.into_iter().filter(|table| args.table == "all" || args.table == table.name).collect();
    if wanted.is_empty() {
        let line = match why_not(&args.table) {
            Some(why) => format!("{} cannot be reproduced: {why}", args.table),
            None => format!("no table is called '{}'; there are {} and all", args.table, names.join(", ")),
        };
        return Err(Failure::new(status::USAGE, line));
    }
    let figures = wanted.iter().flat_map(|table| &table.rows).flat_map(|row| [&row.before, &row.after]);
    let mut runs: Vec<&Run> = figures.map(|figure| &figure.run).collect();
    runs.sort_unstable();
    runs.dedup();
    // Long ones first, so that no CPU is left alone with one.
    runs.sort_by_key(|run| std::cmp::Reverse(run.sockets * run.threads_a_core));
    let (json, plot) = Output::open_both(args.json.as_deref(), ("--plot", args.plot.as_deref()))?;
    let model = Model::known();
    let outcomes = super::runs(
        runs.len(),
        |at| runs[at].run(&model),
        |at| {
            let Run { work, lock, threads, .. } = runs[at];
            format!("{}, {threads} threads, {lock}", work.name())
        },
    )?;
    let done: BTreeMap<_, _> = runs.into_iter().zip(outcomes).collect();
    let ours = |figure: &Figure| done[&figure.run].figure(figure.pick).unwrap_or(f64::NAN);
    let documents: Vec<Document> = wanted.iter().map(|table| document(table, ours)).collect();
    // What cannot be written takes nothing else with it.
    let text = documents.iter().map(text).collect::<Vec<_>>().join("\n");
    let printed = print_beside(&text, &[&json, &plot]);
    let saved = json.map_or(Ok(()), |file| file.json(&documents));
    let drawn = plot.map_or(Ok(()), |file| file.write(&page(&documents)?));
    printed.and(saved).and(drawn)
}

fn document(table: &Table, ours: impl Fn(&Figure) -> f64) -> Document {
    let cell = |figure: &Figure| Cell::new(table, figure, ours(figure));
    let row = |row: &Comparison| {
        let (before, after) = (cell(&row.before), cell(&row.after));
        let percent = |before: f64, after: f64| (after / before - 1.0) * 100.0;
        let both = before.published.zip(after.published);
        let change_percent = Change {
            published: row.change.or(both.map(|(before, after)| percent(before, after))),
            ours: percent(before.ours, after.ours),
        };
        let told = change_percent.published.filter(|change| change.abs() > NOISE);
        Row {
            case: row.label.clone(),
            same_sign: told
                .map(|change| change * change_percent.ours > 0.0 && change_percent.ours.abs() >= NOTHING),
            before,
            after,
            change_percent,
        }
    };
    // What is after one change may be before the next.
    let mut figures: Vec<&Figure> = table.rows.iter().flat_map(|row| [&row.before, &row.after]).collect();
    figures.sort_by_key(|figure| (&figure.run, figure.pick));
    figures.dedup_by_key(|figure| (&figure.run, figure.pick));
    let cells: Vec<Cell> = figures.into_iter().map(cell).collect();
    let accuracy = |fitted| accuracy(cells.iter().filter(|cell| cell.fitted == fitted));
    Document {
        name: table.name,
        about: table.about,
        unit: table.unit,
        fitted: accuracy(true),
        predicted: accuracy(false),
        rows: table.rows.iter().map(row).collect(),
    }
}

/// Of those that are published.
fn accuracy<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<Accuracy> {
    let mut factors: Vec<f64> = cells.filter_map(Cell::ratio).map(|ratio| ratio.max(1.0 / ratio)).collect();
    factors.sort_by(f64::total_cmp);
    let worst_factor = *factors.last()?;
    let middle = |index: usize| factors[index / 2];
    let median_factor = (middle(factors.len()) * middle(factors.len() - 1)).sqrt();
    Some(Accuracy { figures: factors.len(), median_factor, worst_factor })
}

fn sheet(document: &Document) -> Sheet {
    let header = ["case", "before", "ours", "of it", "after", "ours", "of it", "change", "ours", "sign"];
    let decimals = if document.rows.iter().any(|row| row.before.ours.abs() < 1000.0) { 2 } else { 0 };
    let row = |row: &Row| {
        let mut cells = vec![row.case.clone()];
        for cell in [&row.before, &row.after] {
            cells.push(cell.published.map_or(String::new(), |value| format!("{value:.decimals$}")));
            cells.push(format!("{:.decimals$} {}", cell.ours, if cell.fitted { "f" } else { "p" }));
            cells.push(cell.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}")));
        }
        let change = &row.change_percent;
        cells.push(change.published.map_or(String::new(), |value| format!("{value:+.1} %")));
        cells.push(format!("{:+.1} %", change.ours));
        let sign = match row.same_sign {
            None if change.published.is_none() => "",
            None => "noise",
            Some(true) => "same",
            Some(false) => "OTHER",
        };
        cells.push(sign.to_owned());
        cells
    };
    Sheet {
        header: header.map(str::to_owned).to_vec(),
        rows: document.rows.iter().map(row).collect(),
        words: &[0],
    }
}

/// What the letters in a sheet mean.
const LETTERS: &str =
    "f: fitted to the figure beside it; p: predicted, nothing was fitted to what is published";

fn text(document: &Document) -> String {
    let Document { name, about, unit, .. } = document;
    format!("{name}: {about}; {unit}\n{}{LETTERS}\n{}\n", sheet(document).text(), summary(document))
}

/// How near we came, in a line.
fn summary(document: &Document) -> String {
    let error = |accuracy: &Option<Accuracy>| match accuracy {
        Some(Accuracy { figures, median_factor, worst_factor }) => {
            format!("{figures}, median factor {median_factor:.2}, worst {worst_factor:.2}")
        }
        None => "none published".to_owned(),
    };
    let told = document.rows.iter().filter(|row| row.same_sign.is_some()).count();
    let same = document.rows.iter().filter(|row| row.same_sign == Some(true)).count();
    format!(
        "fitted: {}; predicted: {}; changes above {NOISE} %: {same} of {told} have the same sign",
        error(&document.fitted),
        error(&document.predicted),
    )
}

fn page(documents: &[Document]) -> Result<String, Failure> {
    let section = |document: &Document| -> Result<Section, Failure> {
        let (legend, chart) = chart(document)?;
        Ok(Section {
            name: document.name.to_owned(),
            about: format!("{}; {}", document.about, document.unit),
            legend,
            chart,
            sheet: sheet(document),
            notes: vec![LETTERS.to_owned(), summary(document)],
        })
    };
    let sections = documents.iter().map(section).collect::<Result<Vec<_>, _>>()?;
    html(
        "sim",
        "Published figures of locks, and ours beside them",
        "The sources measured on real machines; our figures are of our locks on simulated ones. In each \
            chart, the \
         upper line of a case is the source's and the lower one ours.",
        &sections,
    )
}

/// Each case's figures before and after; the changes if nothing else is published.
fn chart(document: &Document) -> Result<(Vec<(Look, String)>, String), Failure> {
    let mut legend: Vec<(Look, String)> = Vec::new();
    let mut shown = |value: f64, (look, name): (Look, &str)| {
        if !legend.iter().any(|(known, _)| *known == look) {
            legend.push((look, name.to_owned()));
        }
        (value, Some(look))
    };
    let published = |cell: &Cell, shape, name| Some((cell.published?, (Look::published(shape), name)));
    let figures = document.rows.iter().any(|row| row.before.published.or(row.after.published).is_some());
    let mut cases = Vec::new();
    for Row { case, before, after, change_percent: change, .. } in &document.rows {
        let tracks: [Vec<_>; 2] = if figures {
            let theirs = [
                published(before, Shape::Ring, "published before"),
                published(after, Shape::Disc, "published after"),
            ];
            let ours = [(before.ours, our_look(before, false)), (after.ours, our_look(after, true))];
            [
                theirs.into_iter().flatten().map(|(value, look)| shown(value, look)).collect(),
                ours.map(|(value, look)| shown(value, look)).into(),
            ]
        } else {
            let theirs =
                change.published.map(|change| (change, (Look::published(Shape::Disc), "published change")));
            let ours = (change.ours, (Look::ours(Shape::Disc), "our change, predicted"));
            // A line from zero on.
            [theirs, Some(ours)].map(|change| {
                change.map_or(Vec::new(), |(change, look)| vec![(0.0, None), shown(change, look)])
            })
        };
        cases.push(Group { label: case.clone(), tracks: tracks.map(|points| Track { points }).into() });
    }
    let unit = if figures { document.unit.to_owned() } else { format!("change of {}, %", document.unit) };
    Ok((legend, groups(&cases, &unit)?))
}

fn our_look(cell: &Cell, after: bool) -> (Look, &'static str) {
    let (shape, name) = match (after, cell.fitted) {
        (false, true) => (Shape::Cross, "ours before, fitted"),
        (false, false) => (Shape::Ring, "ours before, predicted"),
        (true, true) => (Shape::Triangle, "ours after, fitted"),
        (true, false) => (Shape::Disc, "ours after, predicted"),
    };
    (Look::ours(shape), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With figures of ours that are never twice the same.
    fn made_up(name: &str) -> Document {
        let all = tables();
        let table = all.iter().find(|table| table.name == name).unwrap();
        document(table, |figure| f64::from(figure.run.threads) + figure.run.lock.len() as f64)
    }

    #[test]
    fn what_is_before_a_later_change_was_not_fitted() {
        let document = made_up("mutex_fserver_jpm");
        let (first, second): (Vec<&Row>, Vec<&Row>) =
            document.rows.iter().partition(|row| row.case.ends_with("baseline to fewer-atomics"));
        assert!(first.iter().all(|row| row.before.fitted && !row.after.fitted));
        assert!(!second.is_empty() && second.iter().all(|row| !row.before.fitted && !row.after.fitted));
        // A figure between two changes is in two rows, and counts once.
        let figures = |accuracy: &Option<Accuracy>| accuracy.as_ref().unwrap().figures;
        assert_eq!(figures(&document.fitted), first.len());
        assert_eq!(figures(&document.predicted), first.len() + second.len());
        let text = text(&document);
        assert!(
            text.contains(" f ") && text.contains(&format!("fitted: {}, median factor", first.len())),
            "{text}"
        );
    }

    #[test]
    fn where_only_changes_are_published_nothing_is_fitted_and_changes_are_drawn() {
        let document = made_up("mutex_fewer_atomics_other_workloads");
        assert!(document.rows.iter().all(|row| !row.before.fitted && !row.after.fitted));
        assert_eq!((&document.fitted, &document.predicted), (&None, &None));
        let (legend, svg) = chart(&document).unwrap();
        let names: Vec<&str> = legend.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["published change", "our change, predicted"]);
        assert!(svg.contains("change of jobs a minute, %"), "{svg}");
    }

    #[test]
    fn every_table_is_a_chart_with_all_its_cases() {
        for table in tables() {
            let document = made_up(table.name);
            let page = page(&[document]).unwrap().replace("&apos;", "'");
            for row in &table.rows {
                // In the picture, which is not wider, and in the table.
                assert!(row.label.len() <= 64, "{}", row.label);
                assert!(page.matches(row.label.as_str()).count() >= 2, "{}: {}", table.name, row.label);
            }
            assert!(page.contains(table.name) && page.contains(table.unit), "{}", table.name);
            assert!(!page.contains("NaN"), "{page}");
        }
    }

    #[test]
    fn the_median_of_two_is_between_them() {
        let cell = |ours| Cell { published: Some(1.0), ours, fitted: false };
        let accuracy = accuracy([cell(2.0), cell(0.125)].iter());
        assert_eq!(accuracy, Some(Accuracy { figures: 2, median_factor: 4.0, worst_factor: 8.0 }));
    }
}
