//! What no lock can undercut, what the driver adds, and what a lock costs that nobody else wants.

use maud::{Markup, html};

use super::people::People;
use super::quantity::Quantity;
use super::with_spread;
use crate::grid::compare::Figure;
use crate::grid::compare::{EMPTY, Results};
use crate::grid::result::{Floors, Kind, Transfer};
use crate::stats::Summary;

pub(super) fn floors(results: &Results, people: &People) -> Option<Markup> {
    let alone = alone(results, people);
    if results.floors.is_none() && alone.is_none() {
        return None;
    }
    Some(html! {
        @if let Some(floors) = &results.floors {
            p { "Measured in the same run: no lock can cost less, and every lock pays for the driver." }
            (table(floors))
            (transfers(&floors.line_transfer_ns))
        }
        @if let Some(alone) = alone {
            h3 { "One thread, nobody else" }
            (alone)
        }
    })
}

fn table(floors: &Floors) -> Markup {
    let between = Summary::of(floors.line_transfer_ns.iter().map(|transfer| transfer.ns.median));
    let rows = [
        ("A compare-and-swap and an exchange: the least of a lock with sleepers", Some(floors.bare_cas_ns)),
        ("A compare-and-swap and a store: the least of a spinlock", Some(floors.bare_cas_store_ns)),
        ("A load and a store: no lock at all", Some(floors.bare_load_store_ns)),
        ("A cache line from one CPU to another, one way (spread: over the pairs)", between),
        (
            "A sleep in a futex and its wake-up by a thread of the same CPU",
            Some(floors.futex_sleep_wake_ns.same_cpu),
        ),
        ("The same by a thread of another CPU", floors.futex_sleep_wake_ns.other_cpu),
        ("The driver: its loop and two calls of empty functions", Some(floors.driver_ns)),
        ("Timing an acquisition, in its wait", Some(floors.timing_ns)),
    ];
    html! {
        div.scroll {
            table {
                thead { tr { th.words scope="col" { "Floor" } th scope="col" { "Median and spread" } } }
                tbody {
                    @for (what, summary) in rows {
                        @if let Some(summary) = summary {
                            tr { th scope="row" { (what) } td { (with_spread(Quantity::Time, &summary)) } }
                        }
                    }
                }
            }
        }
    }
}

fn transfers(transfers: &[Transfer]) -> Markup {
    html! {
        @if transfers.len() > 1 {
            details {
                summary { "A cache line between the pairs of CPUs that were measured" }
                div.scroll {
                    table {
                        thead { tr {
                            th scope="col" { "From CPU" } th scope="col" { "To CPU" } th scope="col" { "One way" }
                        } }
                        tbody {
                            @for transfer in transfers {
                                tr {
                                    td { (transfer.from) }
                                    td { (transfer.to) }
                                    td { (with_spread(Quantity::Time, &transfer.ns)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What each lock costs a thread that is alone, and how much of it is the driver's.
fn alone(results: &Results, people: &People) -> Option<Markup> {
    let point = results.points(Kind::Grid).find(|&point| {
        let point = &results.run.points[point];
        (point.threads, point.critical_us, point.think_us) == (1, 0.0, 0.0)
    })?;
    let ns = |peer| {
        let rounds = results.rounds(point, peer, Figure::Throughput);
        Summary::of(
            rounds
                .into_iter()
                .flatten()
                .filter(|&throughput| throughput > 0.0)
                .map(|throughput| 1e9 / throughput),
        )
    };
    let driver = results.find(EMPTY).and_then(ns).or(results.floors.as_ref().map(|floors| floors.driver_ns));
    let mut rows: Vec<_> = people.all().filter_map(|person| Some((person, ns(person.peer)?))).collect();
    rows.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    (!rows.is_empty()).then(|| {
        html! {
            p {
                "A lock and an unlock without work, the cheapest first."
                @if let Some(driver) = driver {
                    " Empty functions take " (Quantity::Time.text(driver.median)) " through the same driver, which everybody pays."
                }
            }
            div.scroll {
                table {
                    thead { tr {
                        th.words scope="col" { "Lock" } th scope="col" { "Lock and unlock" }
                        @if driver.is_some() { th scope="col" { "Without the driver" } }
                    } }
                    tbody {
                        @for (person, summary) in &rows {
                            tr class=[person.look.subject.then_some("subject")] {
                                th.name scope="row" { (person.look.swatch()) (person.name) }
                                td { (with_spread(Quantity::Time, summary)) }
                                @if let Some(driver) = driver {
                                    td { (Quantity::Time.text((summary.median - driver.median).max(0.0))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    })
}
