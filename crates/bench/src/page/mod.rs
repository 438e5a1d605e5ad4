//! The results of a run of the [grid](crate::grid) as one HTML page that needs nothing else: no network, no
//! fonts, no library. It reads in both colour schemes, on a telephone, and by ear; behind every plot lies its
//! table, and tables are those of the report.
//!
//! | part | shows |
//! | --- | --- |
//! | `heat` | our lock against the best of the others at each point |
//! | `curves` | throughput, waits, CPU time and fairness over numbers of threads |
//! | `scenarios` | the other kinds of work, as bars |
//! | `people` | who is drawn, how, and who is shown |
//!
//! Contenders are chosen, and views switched, by the style sheet alone (`:has`). The script adds what the
//! pointer is at, and no more. Every word goes through `maud`, which escapes it: names and messages come from
//! files.

use std::mem::MaybeUninit;

use maud::{Markup, PreEscaped, html};

use crate::Summary;
use crate::grid::compare::Results;
use crate::grid::report as tables;
use crate::report::{Report, Table, busy, targets_table};

mod curves;
mod heat;
mod look;
mod people;
mod plot;
mod quantity;
mod scenarios;
#[cfg(test)]
mod tests;

use people::People;
pub use poundlock_measure::page::{STYLE, document};
use quantity::Quantity;

const SCRIPT: &str = include_str!("script.js");
/// The page may ask nobody for anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri \
    'none'; form-action 'none'";
/// Names in a list of what is missing, and rows of failures.
const MISSING_NAMES: usize = 12;
const FAILURES: usize = 1000;

/// The page, with what is to be reached if `targets` are asked for.
pub fn html(results: &Results, targets: bool) -> String {
    let (people, report) = (People::of(results), results.report());
    let mut floors: Vec<Table> = results.floors.iter().map(crate::floor::table).collect();
    floors.push(tables::alone_table(results));
    let over_all = [tables::against_table, tables::standing_table, tables::crowd_table].map(|of| of(results));
    let mut failures = tables::failures_table(results);
    failures.rows.truncate(FAILURES);
    let targets = targets.then(|| targets_table(report.targets_title, &report.targets)).flatten();
    let mut parts = vec![
        ("heat", "Against the best at each point", heat::map(results)),
        ("each", "Against each", numbers(&over_all)),
    ];
    parts.extend(curves::parts(results, &people));
    parts.extend([
        ("scenarios", "Other work", scenarios::bars(results, &people)),
        ("floors", "Floors", numbers(&floors)),
        ("failures", "Failures", numbers(&[failures])),
        ("locks", "Locks", numbers(&[tables::peers_table(results)])),
        ("targets", "Targets", numbers(targets.as_slice())),
        ("method", "Method", Some(method(&report))),
    ]);
    let parts: Vec<_> =
        parts.into_iter().filter_map(|(id, heading, content)| Some((id, heading, content?))).collect();
    // The choice of locks stands above the parts that it acts on, and stays in sight as long as they are.
    let chosen = ["throughput", "waits", "cpu", "fairness", "scenarios"];
    let first = parts.iter().position(|(id, ..)| chosen.contains(id)).unwrap_or(parts.len());
    let (before, rest) = parts.split_at(first);
    let (among, after) = rest.split_at(rest.iter().filter(|(id, ..)| chosen.contains(id)).count());
    let title = format!("{} beside the locks that people use", results.run.ours);
    let body = html! {
        header {
            h1 { (title) }
            p.lead { (report.answer) }
            (facts(results))
            (notices(results, &report))
            nav aria-label="Parts of this page" {
                ul { @for (id, heading, _) in &parts { li { a href={ "#" (id) } { (heading) } } } }
            }
        }
        main {
            (sections(before))
            @if !among.is_empty() { div { (people.pieces()) (people.choice()) (sections(among)) } }
            (sections(after))
        }
        footer { p { "Made by " code { "poundlock bench report" } " of " (results.run.machine.commit) "." } }
        script { (PreEscaped(SCRIPT)) }
    };
    document(&title, POLICY, &[STYLE, &people.rules()], &body)
}

fn sections(parts: &[(&str, &str, Markup)]) -> Markup {
    html! {
        @for (id, heading, content) in parts {
            section aria-labelledby=(id) {
                h2 id=(id) { (heading) }
                (content)
            }
        }
    }
}

/// Tables of the report, those that have rows. Rows of words become blocks where the page is narrow.
fn numbers(tables: &[Table]) -> Option<Markup> {
    let tables: Vec<&Table> = tables.iter().filter(|table| !table.rows.is_empty()).collect();
    let class = |index: usize, table: &Table| (index < table.words).then_some("words");
    (!tables.is_empty()).then(|| {
        html! {
            @for table in tables {
                h3 { (table.title) }
                div.scroll {
                    table.stack {
                        thead { tr {
                            @for (index, heading) in table.headings.iter().enumerate() {
                                th class=[class(index, table)] scope="col" { (heading) }
                            }
                        } }
                        tbody {
                            @for row in &table.rows {
                                tr { @for (index, cell) in row.iter().enumerate() {
                                    @if index == 0 {
                                        th.name scope="row" { (cell) }
                                    } @else {
                                        td class=[class(index, table)]
                                            data-label=(table.headings[index]) { (cell) }
                                    }
                                } }
                            }
                        }
                    }
                }
            }
        }
    })
}

/// The machine's description, when the run was, and how large.
fn facts(results: &Results) -> Markup {
    let run = &results.run;
    let (locks, points) = (run.peers.len(), run.points.len());
    html! {
        dl.facts {
            @for (label, value) in run.machine.lines() {
                dt { (label) }
                dd { @if label == "Command" { code { (value) } } @else { (value) } }
            }
            dt { "Begun" }
            dd { (began(run.started)) }
            dt { "Measured" }
            dd { (locks) " locks at " (points) " " (plural(points, "point")) " in " (run.rounds) " \
                " (plural(run.rounds, "round")) }
        }
    }
}

fn began(seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    let there = libc::time_t::try_from(seconds).is_ok_and(|seconds| {
        // SAFETY: both are ours.
        !unsafe { libc::gmtime_r(&raw const seconds, parts.as_mut_ptr()) }.is_null()
    });
    if !there {
        return "unknown".to_owned();
    }
    // SAFETY: filled in by the call.
    let t = unsafe { parts.assume_init() };
    let (month, year) = (MONTHS[t.tm_mon as usize], i64::from(t.tm_year) + 1900);
    format!("{} {month} {year}, {:02}:{:02} UTC", t.tm_mday, t.tm_hour, t.tm_min)
}

/// What the reader must know before any figure: what is missing, and what makes figures worth less.
fn notices(results: &Results, report: &Report) -> Markup {
    let run = &results.run;
    let planned = results.planned();
    let made: Vec<usize> = (0..run.rounds).map(|round| results.made(round)).collect();
    let (all, there) = (planned * run.rounds, made.iter().sum::<usize>());
    let measured = |&point: &usize| {
        (0..run.rounds)
            .any(|round| (0..run.peers.len()).any(|peer| results.outcome(point, peer, round).is_some()))
    };
    let unmeasured: Vec<usize> = (0..run.points.len()).filter(|point| !measured(point)).collect();
    let failures = results.failures().len();
    html! {
        @if there < all || results.floors.is_none() {
            div.notice role="note" {
                p { strong { "This run is not complete. " }
                    (there) " of " (all) " measurements are there. "
                    code { "poundlock bench grid --resume" } " with its directory goes on with it."
                }
                ul {
                    @for (round, made) in made.iter().enumerate().filter(|(_, made)| **made < planned) {
                        li { "Round " (round + 1) ": "
                            @if *made == 0 { "nothing yet" } @else { (made) " of " (planned) " measurements" }
                        }
                    }
                    @if !unmeasured.is_empty() {
                        li { (unmeasured.len()) " " (plural(unmeasured.len(), "point")) " nobody has been \
                            measured at: "
                            @for (index, point) in unmeasured.iter().take(MISSING_NAMES).enumerate() {
                                @if index > 0 { "; " }
                                (run.points[*point].name)
                            }
                            @if unmeasured.len() > MISSING_NAMES { "; and \
                                " (unmeasured.len() - MISSING_NAMES) " more" }
                        }
                    }
                    @if results.floors.is_none() { li { "The floors have not been measured" } }
                }
            }
        }
        @if let Some(busy) = busy(report) { div.notice role="note" { p { (busy) } } }
        @if failures > 0 {
            div.notice role="note" {
                p { (failures) " " (plural(failures, "measurement")) " gave no figure: "
                    a href="#failures" { "failures" } "." }
            }
        }
        @if !run.machine.optimised {
            div.notice role="note" { p { strong { "The build was not optimised: these figures mean \
                nothing." } } }
        }
    }
}

fn method(report: &Report) -> Markup {
    html! { @for paragraph in report.method.split("\n\n") { p { (paragraph) } } }
}

/// `12.3 M/s` with its spread below, where the rounds differ.
fn with_spread(quantity: Quantity, summary: &Summary) -> Markup {
    html! {
        (quantity.text(summary.median))
        @if summary.n > 1 { small { (quantity.text(summary.min)) "–" (quantity.text(summary.max)) } }
    }
}

/// A ratio near 1 needs two places; a large one fewer.
fn ratio(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { Quantity::Plain.text(value) }
}

fn plural(n: usize, word: &str) -> String {
    if n == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Microseconds as people say them.
fn microseconds(us: f64) -> String {
    format!("{us}\u{a0}µs")
}
