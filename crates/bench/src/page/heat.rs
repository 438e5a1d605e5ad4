//! Our lock against the best of the others at each point.

use maud::{Markup, html};

use super::curves::Grid;
use super::{microseconds, ratio};
use crate::grid::compare::{CLOSE, Results, Versus};

/// Upper ends of the ranges that share a colour; the middle one is "as good".
const STEPS: [f64; 8] = [0.7, 0.8, 0.9, 0.97, 1.03, 1.15, 1.4, 2.0];

pub(super) fn map(results: &Results) -> Option<Markup> {
    let grid = Grid::of(results)?;
    let best = results.grid_against_best()?;
    let find = |point: Option<usize>| best.points.iter().find(|versus| Some(versus.point) == point);
    Some(html! {
        p {
            "Throughput of " strong { (results.run.ours) } " as a multiple of the best peer’s at the same \
                point, whose name "
            "stands below where there is room. Blue: ours is ahead; orange: the peer is; underlined: below \
                " (CLOSE) "."
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
                caption { "Columns: threads. Rows: work inside the critical section, and between two of \
                    them." }
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
