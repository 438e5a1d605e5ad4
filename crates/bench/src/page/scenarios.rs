//! The kinds of work beside the grid: a bar for each lock, with its numbers in the same row.

use clap::ValueEnum;
use maud::{Markup, html};

use super::people::{People, Person};
use super::quantity::Quantity;
use super::ratio;
use crate::Summary;
use crate::grid::compare::Results;
use crate::grid::result::Kind;

pub(super) fn bars(results: &Results, people: &People) -> Option<Markup> {
    let kinds: Vec<Kind> = Kind::value_variants()
        .iter()
        .copied()
        .filter(|&kind| kind != Kind::Grid && results.points(kind).next().is_some())
        .collect();
    (!kinds.is_empty()).then(|| {
        html! {
            p { "Operations a second: the bar is the median, the line across its end goes from the worst \
                round to the best. The fastest first." }
            @for kind in kinds {
                h3 { (kind.words()) }
                @for point in results.points(kind) { (bar_chart(results, people, point)) }
            }
        }
    })
}

fn bar_chart(results: &Results, people: &People, point: usize) -> Markup {
    let mut rows: Vec<(&Person, Summary)> = people
        .all()
        .filter_map(|person| Some((person, results.summary(point, person.peer, "throughput")?)))
        .collect();
    rows.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
    let most = rows.iter().map(|(_, summary)| summary.max).fold(0.0, f64::max);
    let text = |person: &Person, figure, quantity: Quantity| {
        results
            .summary(point, person.peer, figure)
            .map_or_else(|| "-".to_owned(), |s| quantity.text(s.median))
    };
    html! {
        figure.bars {
            figcaption { (results.run.points[point].name) }
            p.soft { (results.run.points[point].work()) "." (standing(results, point)) }
            @if rows.is_empty() {
                p.soft { "Nothing has been measured here yet." }
            } @else {
                div.scroll {
                    table {
                        thead { tr {
                            th.words scope="col" { "Lock" } td.wide {} th scope="col" { "Operations" }
                            th scope="col" { "Wait p99.9" } th scope="col" { "CPU \
                                time" } th scope="col" { "Jain" }
                        } }
                        tbody {
                            @for (person, summary) in &rows {
                                tr class={ "w" (person.peer) @if person.look.subject { " \
                                    subject" } } style=(person.look.style()) {
                                    th.name scope="row" title=(person.name) { (person.name) }
                                    td.wide { (bar(summary, most)) }
                                    td title={ (Quantity::Rate.text(summary.min)) "–"
                                        (Quantity::Rate.text(summary.max)) } {
                                        (Quantity::Rate.text(summary.median))
                                    }
                                    td { (text(person, "waits.p999_ns", Quantity::Time)) }
                                    td { (text(person, "cpu_ns", Quantity::Time)) }
                                    td { (text(person, "jain", Quantity::Plain)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The row says it in numbers; the bar is for those who see it.
fn bar(summary: &Summary, most: f64) -> Markup {
    let at = |value: f64| if most > 0.0 { format!("{:.1}", value / most * 100.0) } else { "0".to_owned() };
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
            rect x="0" y="0" height="10" width=(at(summary.median)) {}
            @if summary.n > 1 { path d=(format!("M{} 5H{}", at(summary.min), at(summary.max))) {} }
        }
    }
}

/// Ours beside the best of the others.
fn standing(results: &Results, point: usize) -> Markup {
    html! {
        @if let Some(versus) = results.against_best(point) {
            " " (results.run.ours) " reaches " (ratio(versus.ratio.median)) " of "
            (results.run.peers[versus.peer].name) ", the best peer"
            @if versus.ratio.n > 1 { " (" (ratio(versus.ratio.min)) "–" (ratio(versus.ratio.max)) ")" }
            "."
        }
    }
}
