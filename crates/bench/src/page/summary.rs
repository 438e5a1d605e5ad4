//! What was to be reached; our lock against the best of the others at each point, and against each of them.

use maud::{Markup, html};

use super::curves::Grid;
use super::people::People;
use super::{limit_words, microseconds, plural, ratio, ratio_with_spread, verdict};
use crate::grid::compare::{CLOSE, Results, Versus};
use crate::report::Limit;

/// Upper ends of the ranges that share a colour; the middle one is "as good".
const STEPS: [f64; 8] = [0.7, 0.8, 0.9, 0.97, 1.03, 1.15, 1.4, 2.0];

pub(super) fn targets(results: &Results) -> Option<Markup> {
    let targets = results.targets();
    targets.iter().any(|target| target.value.is_some()).then(|| {
        html! {
            p { "Of " strong { (results.run.ours) } ", from medians over the rounds; below each figure the least and the most of a round." }
            div.scroll {
                table.targets.stack {
                    thead { tr {
                        th.words scope="col" { "Target" } th scope="col" { "Figure" }
                        th.words scope="col" { "Verdict" } th.words scope="col" { "Where" }
                        th.words.short scope="col" { "Points that miss" }
                    } }
                    tbody {
                        @for target in &targets {
                            tr {
                                th scope="row" { (target.figure) small { (limit_words(target.limit)) } }
                                td data-label="Figure" { @match target.value {
                                    Some(value) if target.limit == Limit::AtMost(0.0) => (value),
                                    Some(value) => (ratio_with_spread(value, target.spread)),
                                    None => "-",
                                } }
                                td.words { (verdict(target.reached())) }
                                td.words.where data-label=[(!target.at.is_empty()).then_some("Where")] { (target.at) }
                                td.words.short data-label=[target.value.map(|_| "Points that miss")] { @if target.value.is_some() { (target.short) " of " (target.of) } }
                            }
                        }
                    }
                }
            }
            p.soft { "What real programs gain and lose is measured apart from this run." }
        }
    })
}

pub(super) fn heat_map(results: &Results) -> Option<Markup> {
    let grid = Grid::of(results)?;
    let best = results.grid_against_best()?;
    let find = |point: Option<usize>| best.points.iter().find(|versus| Some(versus.point) == point);
    Some(html! {
        p {
            "Throughput of " strong { (results.run.ours) } " as a multiple of the best peer’s at the same point, whose name "
            "stands below where there is room. Blue: ours is ahead; orange: the peer is; underlined: below " (CLOSE) "."
        }
        (scale())
        div.scroll.heat {
            table {
                thead {
                    tr {
                        th.words scope="col" { "Section" } th.words scope="col" { "Think" }
                        @for threads in &grid.threads { th scope="col" { (threads) } }
                    }
                }
                @for (critical, thinks) in &grid.works {
                    tbody {
                        @for (index, think) in thinks.iter().enumerate() {
                            tr {
                                @if index == 0 {
                                    th scope="rowgroup" rowspan=(thinks.len()) { (microseconds(*critical)) }
                                }
                                th scope="row" { (microseconds(*think)) }
                                @for &threads in &grid.threads {
                                    (cell(results, find(grid.point(results, *critical, *think, threads))))
                                }
                            }
                        }
                    }
                }
                caption { "Columns: threads. Rows: work inside the critical section, and between two of them." }
            }
        }
    })
}

fn cell(results: &Results, versus: Option<&Versus>) -> Markup {
    let Some(versus) = versus else { return html! { td.none { "–" } } };
    let (name, peer) = (&results.run.points[versus.point].name, &results.run.peers[versus.peer].name);
    let summary = versus.ratio;
    let words = format!(
        "{name}: {} ({}–{}) of {peer}",
        ratio(summary.median),
        ratio(summary.min),
        ratio(summary.max)
    );
    html! {
        td class={ "h" (step(summary.median)) @if summary.median < CLOSE { " missed" } } title=(words) {
            b { (ratio(summary.median)) } small { (peer) }
        }
    }
}

fn step(ratio: f64) -> usize {
    STEPS.iter().filter(|&&end| ratio >= end).count()
}

fn scale() -> Markup {
    html! {
        ul.scale aria-label="Colours" {
            @for step in 0..=STEPS.len() {
                li class={ "h" (step) } {
                    @match (step.checked_sub(1).map(|before| STEPS[before]), STEPS.get(step)) {
                        (None, Some(end)) => { "below " (end) }
                        (Some(start), Some(end)) => { (start) "–" (end) }
                        (Some(start), None) => { "from " (start) }
                        (None, None) => {}
                    }
                }
            }
        }
    }
}

pub(super) fn against_each(results: &Results, people: &People) -> Option<Markup> {
    let limit = Limit::AtLeast(1.15);
    let mut each: Vec<_> =
        results.competitors().filter_map(|peer| Some((peer, results.grid_against(peer)?))).collect();
    each.sort_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
    let point = |versus: Option<&Versus>| {
        html! { @if let Some(versus) = versus { (ratio(versus.ratio.median)) small { (results.run.points[versus.point].name) } } }
    };
    (!each.is_empty()).then(|| {
        html! {
            p { "Throughput of " strong { (results.run.ours) } " as a multiple of each peer’s over the grid; the hardest first." }
            div.scroll {
                table.stack {
                    thead { tr {
                        th.words scope="col" { "Peer" } th scope="col" { "Geometric mean" }
                        th.words scope="col" { (limit_words(limit)) }
                        th scope="col" { "Points" } th scope="col" { "Worst" } th scope="col" { "Best" }
                        th scope="col" { "Itself" }
                    } }
                    tbody {
                        @for (peer, together) in &each {
                            @let by_median = |a: &&Versus, b: &&Versus| a.ratio.median.total_cmp(&b.ratio.median);
                            tr {
                                th.name scope="row" {
                                    @if let Some(person) = people.find(*peer) { (person.look.swatch()) (person.name) }
                                }
                                td data-label="Geometric mean" { (ratio_with_spread(together.mean, together.spread)) }
                                td.words data-label=(limit_words(limit)) { (verdict(Some(limit.reached_by(together.mean)))) }
                                td data-label="Points" { (together.points.len()) }
                                td data-label="Worst" { (point(together.points.iter().min_by(by_median))) }
                                td data-label="Best" { (point(together.points.iter().max_by(by_median))) }
                                td data-label="Itself" { @if let Some(standing) = results.standing(*peer) { (ratio(standing.mean)) } }
                            }
                        }
                    }
                }
            }
            p.soft {
                (each.len()) " " (plural(each.len(), "peer")) ". Itself: the peer against the best of all others at each point, ours among "
                "them; their geometric mean" @if let Some(ours) = results.standing(results.ours()) { ". Ours: " (ratio(ours.mean)) } "."
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_symmetric_about_as_good() {
        assert_eq!(
            [0.0, 0.69, 0.7, 0.85, 0.95, 1.0, 1.1, 1.3, 1.5, 2.0, f64::INFINITY].map(step),
            [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8]
        );
    }
}
