//! Figures over numbers of threads: a plot for each critical section and think time.

use maud::{Markup, html};

use super::people::{People, Person};
use super::plot::{Axis, Line, Plot, Reference};
use super::quantity::Quantity;
use super::{microseconds, with_spread};
use crate::Summary;
use crate::grid::compare::Results;
use crate::grid::result::Kind;

/// The points of the grid, by work.
pub(super) struct Grid {
    /// Numbers of threads, ascending.
    pub(super) threads: Vec<usize>,
    /// Critical sections with their think times, ascending, in microseconds.
    pub(super) works: Vec<(f64, Vec<f64>)>,
}

impl Grid {
    /// `None` if the run has no grid.
    pub(super) fn of(results: &Results) -> Option<Grid> {
        let points = || results.points(Kind::Grid).map(|point| &results.run.points[point]);
        let mut threads: Vec<usize> = points().map(|point| point.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let criticals = ascending(points().map(|point| point.critical_us));
        let works = criticals.into_iter().map(|critical| {
            let thinks = points().filter(|point| point.critical_us == critical).map(|point| point.think_us);
            (critical, ascending(thinks))
        });
        (!threads.is_empty()).then(|| Grid { works: works.collect(), threads })
    }

    /// The point, if the run has it.
    pub(super) fn point(
        &self,
        results: &Results,
        critical: f64,
        think: f64,
        threads: usize,
    ) -> Option<usize> {
        results.points(Kind::Grid).find(|&point| {
            let point = &results.run.points[point];
            (point.critical_us, point.think_us, point.threads) == (critical, think, threads)
        })
    }
}

fn ascending(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// A figure as it is drawn.
struct View {
    id: &'static str,
    figure: &'static str,
    /// In a few words.
    name: &'static str,
    quantity: Quantity,
    axis: Axis,
    references: fn(&Results, &Grid, Work) -> Vec<Reference>,
}

/// Microseconds inside the critical section and between two.
#[derive(Clone, Copy)]
struct Work {
    critical: f64,
    think: f64,
}

/// Spinlocks among more threads than CPUs fall so far that everybody else would be one line.
const RATES: Axis = Axis::Log { depth: 20.0 };
const SWITCHES: Axis = Axis::Log { depth: 1e6 };
const TIMES: Axis = Axis::Log { depth: 1e9 };

/// A part of the page.
struct Part {
    id: &'static str,
    heading: &'static str,
    words: &'static str,
    /// What is dotted, if floors were measured.
    dotted: &'static str,
    /// What the views differ in.
    legend: &'static str,
    views: Vec<View>,
    /// The view that is shown before the reader chooses.
    first: usize,
}

fn all() -> [Part; 4] {
    use Quantity::{Plain, Rate, Time};
    let view =
        |id, figure, name, quantity, axis, references| View { id, figure, name, quantity, axis, references };
    let wait = |id, figure, name| view(id, figure, name, Time, TIMES, wait_floors);
    let switches = |id, name| view(id, id, name, Plain, SWITCHES, |_, _, _| Vec::new());
    [
        Part {
            id: "throughput",
            heading: "Throughput",
            words: "Acquisitions a second of all threads together, on logarithmic scales. The bar through a \
                mark goes from the \
                    worst round to the best; a hollow ring at the lower edge lies below the scale.",
            dotted: " Dotted: what the work and one compare-and-swap with a store would allow on these CPUs, \
                had the lock cost \
                     nothing else.",
            legend: "",
            views: vec![view("rate", "throughput", "Operations a second", Rate, RATES, work_limit)],
            first: 0,
        },
        Part {
            id: "waits",
            heading: "Waits",
            words: "How long a thread waits for the lock: half of the waits are no longer than p50, 99 % \
                than p99, 99.9 % than \
                    p99.9.",
            dotted: " Dotted: one cache line from a CPU to another, and one sleep in a futex with its \
                wake-up.",
            legend: "Quantile",
            views: vec![
                wait("p50", "waits.p50_ns", "p50"),
                wait("p99", "waits.p99_ns", "p99"),
                wait("p999", "waits.p999_ns", "p99.9"),
                wait("max", "waits.max_ns", "max"),
            ],
            first: 2,
        },
        Part {
            id: "cpu",
            heading: "CPU time and switches",
            words: "CPU time of all threads together for each acquisition, work included (dotted: the work \
                alone), and how often \
                    a thread was made to give up its CPU, or gave it up, for each.",
            dotted: "",
            legend: "Figure",
            views: vec![
                view("cpu", "cpu_ns", "CPU time an operation", Time, TIMES, work_itself),
                switches("involuntary", "involuntary switches an operation"),
                switches("voluntary", "voluntary switches an operation"),
            ],
            first: 0,
        },
        Part {
            id: "fairness",
            heading: "Fairness",
            words: "Jain’s index of the threads’ acquisitions: 1 if all got the lock equally often, 1/n if \
                one of n got it always.",
            dotted: "",
            legend: "",
            views: vec![view("jain", "jain", "Jain’s index", Plain, Axis::Unit, fair_enough)],
            first: 0,
        },
    ]
}

/// The parts: id, heading and content. Of views one is shown at a time; all, where the browser does not know
/// how.
pub(super) fn parts(results: &Results, people: &People) -> Vec<(&'static str, &'static str, Option<Markup>)> {
    let grid = Grid::of(results);
    let part = |part: Part| {
        let grid = grid.as_ref()?;
        Some(html! {
            p { (part.words) @if results.floors.is_some() { (part.dotted) } }
            @if let [view] = part.views.as_slice() {
                (panels(results, people, grid, view))
            } @else {
                div.views {
                    fieldset.tabs {
                        legend { (part.legend) }
                        @for (index, view) in part.views.iter().enumerate() {
                            label {
                                input type="radio" name={ (part.id) "-view" } class={ "view" (index) }
                                    checked[index == part.first] autocomplete="off";
                                (view.name)
                            }
                        }
                    }
                    @for (index, view) in part.views.iter().enumerate() {
                        div class={ "view view" (index) } { (panels(results, people, grid, view)) }
                    }
                }
            }
        })
    };
    all().map(|this| (this.id, this.heading, part(this))).into()
}

fn panels(results: &Results, people: &People, grid: &Grid, view: &View) -> Markup {
    html! {
        @for (row, (critical, thinks)) in grid.works.iter().enumerate() {
            h3 { (view.name) ", critical section " (microseconds(*critical)) }
            div.panels {
                @for (column, think) in thinks.iter().enumerate() {
                    (panel(results, people, grid, view, &format!("{}-{row}-{column}", view.id),
                        Work { critical: *critical, think: *think }))
                    (people.legend())
                }
            }
        }
    }
}

/// A plot and its table.
fn panel(results: &Results, people: &People, grid: &Grid, view: &View, id: &str, work: Work) -> Markup {
    let points: Vec<(usize, Option<usize>)> = grid
        .threads
        .iter()
        .map(|&threads| (threads, grid.point(results, work.critical, work.think, threads)))
        .collect();
    let measured = |person: &Person| -> Vec<Option<Summary>> {
        let summary = |point: Option<usize>| results.summary(point?, person.peer, view.figure);
        points.iter().map(|&(_, point)| summary(point)).collect()
    };
    let rows: Vec<(&Person, Vec<Option<Summary>>)> = people
        .all()
        .map(|person| (person, measured(person)))
        .filter(|(_, row)| row.iter().any(Option::is_some))
        .collect();
    let title = format!(
        "{}: critical section {}, think time {}",
        view.name,
        microseconds(work.critical),
        microseconds(work.think)
    );
    html! {
        figure {
            figcaption { "think time " (microseconds(work.think)) }
            @if rows.is_empty() {
                p.soft { "Nothing has been measured here yet." }
            } @else {
                // The subject is the first row, and drawn last.
                @let lines = rows.iter().rev().map(|(person, row)| Line {
                    who: person.peer,
                    look: person.look,
                    name: person.name.clone(),
                    points: grid.threads.iter().copied().zip(row)
                        .filter_map(|(threads, cell)| Some((threads, (*cell)?))).collect(),
                });
                (Plot {
                    id: id.to_owned(),
                    title: title.clone(),
                    description: description(view, &rows, &grid.threads),
                    threads: grid.threads.clone(),
                    quantity: view.quantity,
                    axis: view.axis,
                    lines: lines.collect(),
                    references: (view.references)(results, grid, work),
                }.svg())
                details {
                    summary { "Numbers" }
                    div.scroll {
                        table {
                            caption { (title) }
                            thead { tr {
                                th.words scope="col" { "Lock" }
                                @for threads in &grid.threads {
                                    th scope="col" { (threads) @if *threads == 1 { " thread" } @else { " \
                                        threads" } }
                                }
                            } }
                            tbody { @for (person, row) in &rows { (table_row(view, person, row)) } }
                        }
                    }
                }
            }
        }
    }
}

fn table_row(view: &View, person: &Person, row: &[Option<Summary>]) -> Markup {
    html! {
        tr class={ "w" (person.peer) @if person.look.subject { " subject" } } data-who=(person.peer) {
            th.name scope="row" { (person.name) }
            @for cell in row {
                @match cell {
                    Some(summary) => td data-v=(format!("{:.4e}", summary.median)) {
                        (with_spread(view.quantity, summary))
                    },
                    None => td { "-" },
                }
            }
        }
    }
}

/// The ends of the subject's line, and how many other lines there are.
fn description(view: &View, rows: &[(&Person, Vec<Option<Summary>>)], threads: &[usize]) -> String {
    let mut words =
        format!("A line for each of {} locks over {} numbers of threads.", rows.len(), threads.len());
    if let Some((person, row)) = rows.first().filter(|(person, _)| person.look.subject) {
        let measured: Vec<(usize, f64)> =
            threads.iter().zip(row).filter_map(|(&threads, cell)| Some((threads, (*cell)?.median))).collect();
        if let (Some(first), Some(last)) = (measured.first(), measured.last()) {
            words += &format!(
                " {}: {} with {} threads, {} with {}.",
                person.name,
                view.quantity.text(first.1),
                first.0,
                view.quantity.text(last.1),
                last.0
            );
        }
    }
    words + " All numbers are in the table below."
}

/// What the work and the fewest atomic operations allow: in turn inside the section, side by side outside.
fn work_limit(results: &Results, grid: &Grid, work: Work) -> Vec<Reference> {
    let Some(floors) = &results.floors else { return Vec::new() };
    let atomics = floors.bare_cas_store_ns.median;
    let inside = work.critical * 1000.0 + atomics;
    let limit = |&threads: &usize| {
        let running = threads.min(results.run.cpus.len().max(1)) as f64;
        (threads, (1e9 / inside).min(running * 1e9 / (inside + work.think * 1000.0)))
    };
    if inside <= 0.0 {
        return Vec::new();
    }
    vec![Reference { label: "the work’s limit".into(), points: grid.threads.iter().map(limit).collect() }]
}

fn work_itself(_: &Results, grid: &Grid, work: Work) -> Vec<Reference> {
    let ns = (work.critical + work.think) * 1000.0;
    if ns <= 0.0 { Vec::new() } else { vec![level("the work", ns, grid)] }
}

fn wait_floors(results: &Results, grid: &Grid, _: Work) -> Vec<Reference> {
    let Some(floors) = &results.floors else { return Vec::new() };
    let mut references = Vec::new();
    if let Some(transfer) = Summary::of(floors.line_transfer_ns.iter().map(|transfer| transfer.ns.median)) {
        references.push(level("cache line", transfer.median, grid));
    }
    let sleep = floors.futex_sleep_wake_ns.other_cpu.unwrap_or(floors.futex_sleep_wake_ns.same_cpu);
    references.push(level("sleep and wake", sleep.median, grid));
    references
}

fn fair_enough(_: &Results, grid: &Grid, _: Work) -> Vec<Reference> {
    vec![level("target 0.90", 0.9, grid)]
}

fn level(label: &str, value: f64, grid: &Grid) -> Reference {
    Reference { label: label.into(), points: grid.threads.iter().map(|&threads| (threads, value)).collect() }
}
