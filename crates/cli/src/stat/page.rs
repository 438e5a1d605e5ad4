//! The report as one HTML page that needs nothing else: no network, no fonts, no script. What is behind a
//! figure is in its tool tip, which the browser shows.

use std::collections::BTreeMap;

use maud::{Markup, html};
use poundlock_bench::page::{STYLE, document};

use super::class::Class;
use super::diagnosis::Finding;
use super::events::bounds;
use super::names::{Names, StackId};
use super::report::{Report, ratio, side};
use super::text::{counted, duration, percent, ran_on};
use super::threads;
use crate::output::quoted;

const OURS: &str = include_str!("page.css");
/// The page may ask nobody for anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Rows of the table, and locks that are taken apart.
const ROWS: usize = 100;
const APART: usize = 12;
/// The picture's width, a level's height, and the least width of a frame that is drawn, in the same units.
const WIDTH: f64 = 1000.0;
const LEVEL: f64 = 17.0;
const LEAST: f64 = 1.5;
/// The width of a character, with some room.
const CHARACTER: f64 = 6.2;

/// The page.
pub(super) fn html(report: &Report, diagnosis: &[Finding]) -> String {
    let command: Vec<String> = report.about.command.iter().map(|word| quoted(word)).collect();
    let command = command.join(" ");
    let lost = percent(ratio(report.wait_ns(), report.busy_ns));
    let locks: Vec<&Class> = report.locks().collect();
    let others: Vec<&Class> = report.others().filter(|class| class.figures.contended > 0).collect();
    let apart: Vec<&Class> =
        report.classes.iter().filter(|class| class.figures.wait_ns > 0).take(APART).collect();
    let times = report.sampled.as_ref().map(threads::lines).unwrap_or_default();
    let body = html! {
        header {
            h1 { "What " code { (command) } " waits for" }
            p.lead {
                "Waiting for locks took " (duration(report.wait_ns())) ": " (lost) " of the threads' time, "
                (duration(report.busy_ns)) " together."
            }
            dl.facts {
                @for line in ran_on(report) {
                    dt { "Locks measured" }
                    dd { (line.trim_start_matches("locks measured: ")) }
                }
                dt { "Run" }
                dd {
                    (duration(report.about.wall_ns)) " wall time, " (counted(report.threads, "thread")) ", "
                    (counted(report.processes.len() as u64, "process")) ", " (report.about.ending)
                }
            }
            @if report.inside.matters() {
                div.notice role="note" {
                    @for line in report.inside.write(&report.about.when()) { p { (line) } }
                }
            }
            @if !diagnosis.is_empty() {
                div.notice role="note" { ul { @for finding in diagnosis { li { (finding.text) } } } }
            }
        }
        main {
            section aria-labelledby="locks" { h2 id="locks" { "Locks" } (table(report, &locks)) }
            @if !others.is_empty() {
                section aria-labelledby="others" { h2 id="others" { "Other waits" } (table(report, &others)) }
            }
            @if !apart.is_empty() {
                section aria-labelledby="stacks" {
                    h2 id="stacks" { "Who waited, and for whom" }
                    p.soft {
                        "The bar in the middle is a lock; above it is who waited, from the line that waits \
                         outwards; below it is who made others wait, from the line that took the lock outwards. \
                         Widths are times."
                    }
                    @for class in &apart { (flame(report, class)) }
                }
                section aria-labelledby="spreads" {
                    h2 id="spreads" { "How long waits and holds took" }
                    @for class in &apart { (spreads(class)) }
                }
            }
            @if let Some((first, rest)) = times.split_first() {
                section aria-labelledby="times" {
                    h2 id="times" { "Where the time of the threads went" }
                    p.soft { (first) }
                    pre { @for line in rest { (line) "\n" } }
                }
            }
        }
        footer { p { "Made by " code { "poundlock stat" } " " (env!("CARGO_PKG_VERSION")) "." } }
    };
    document(&format!("What {command} waits for"), POLICY, &[STYLE, OURS], &body)
}

fn title(class: &Class) -> String {
    let mut name = class.name.clone();
    if class.figures.locks > 1 {
        name = format!("{} {name}", class.figures.locks);
    }
    if let Some(side) = side(class.kind) {
        name += ", ";
        name += side;
    }
    name
}

fn table(report: &Report, classes: &[&Class]) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr {
                    th.n scope="col" { "lost" } th scope="col" { span hidden { "share" } }
                    th.n scope="col" { "wait" } th.n scope="col" { "waits" } th.n scope="col" { "average" }
                    th.n scope="col" { "longest" } th.n scope="col" { "acquired" } th.n scope="col" { "held" }
                    th scope="col" { "what" }
                } }
                tbody {
                    @for class in classes.iter().take(ROWS) {
                        @let figures = &class.figures;
                        @let share = report.share(figures);
                        tr {
                            td.n { (percent(share)) }
                            td {
                                svg.share viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
                                    rect width=(format!("{:.1}", (share * 100.0).min(100.0))) height="10" {}
                                }
                            }
                            td.n { (duration(figures.wait_ns)) }
                            td.n { (figures.contended) }
                            td.n { (average(figures.wait_ns, figures.contended)) }
                            td.n { (duration(figures.wait_max_ns)) }
                            td.n { (figures.acquisitions) }
                            td.n { (average(figures.hold_ns, figures.acquisitions)) }
                            td { (title(class)) br; small { (class.kind) @if !class.at.is_empty() { ", " (class.at) } } }
                        }
                    }
                }
            }
        }
        @if classes.len() > ROWS { p.soft { "and " (classes.len() - ROWS) " more" } }
    }
}

fn average(total: u64, count: u64) -> String {
    total.checked_div(count).map_or_else(|| "-".to_owned(), duration)
}

/// Frames by what comes before them.
#[derive(Default)]
struct Node {
    ns: u64,
    frames: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, names: &Names, stack: StackId, ns: u64) {
        self.ns += ns;
        let mut node = self;
        for id in names.interesting(stack) {
            node = node.frames.entry(names.text(id).to_owned()).or_default();
            node.ns += ns;
        }
    }

    fn depth(&self) -> usize {
        self.frames.values().map(|node| 1 + node.depth()).max().unwrap_or(0)
    }
}

/// A rectangle of the picture.
struct Bar {
    x: f64,
    width: f64,
    level: usize,
    text: String,
    ns: u64,
}

fn bars(node: &Node, x: f64, level: usize, scale: f64, out: &mut Vec<Bar>) {
    let mut x = x;
    let mut frames: Vec<_> = node.frames.iter().collect();
    frames.sort_by_key(|(_, node)| std::cmp::Reverse(node.ns));
    for (text, node) in frames {
        let width = node.ns as f64 * scale;
        if width >= LEAST {
            out.push(Bar { x, width, level, text: text.clone(), ns: node.ns });
            bars(node, x, level + 1, scale, out);
        }
        x += width;
    }
}

/// Waiters over holders.
fn flame(report: &Report, class: &Class) -> Markup {
    let figures = &class.figures;
    let (mut waits, mut holds) = (Node::default(), Node::default());
    for (&stack, site) in &figures.sites {
        waits.add(&report.names, stack, site.wait_ns);
    }
    for (&(acquired, released), holder) in &figures.holders {
        // The stack of the release is known whole; of the acquisition the line is.
        let stack = if report.names.frames(released).is_empty() { acquired } else { released };
        holds.add(&report.names, stack, holder.caused_ns);
    }
    let all = figures.wait_ns.max(waits.ns).max(holds.ns).max(1);
    let scale = WIDTH / all as f64;
    let (mut above, mut below) = (Vec::new(), Vec::new());
    bars(&waits, 0.0, 0, scale, &mut above);
    bars(&holds, 0.0, 0, scale, &mut below);
    let up = waits.depth();
    let height = (up + 1 + holds.depth()) as f64 * LEVEL;
    let row = |level: usize| (up - 1 - level.min(up.saturating_sub(1))) as f64 * LEVEL;
    let middle = Bar { x: 0.0, width: WIDTH, level: 0, text: title(class), ns: figures.wait_ns };
    html! {
        figure {
            svg.flame viewBox=(format!("0 0 {WIDTH} {height}")) role="img"
                aria-label={ "Stacks that waited for " (title(class)) } {
                g.waits { @for bar in &above { (rectangle(bar, row(bar.level), all)) } }
                g.lock { (rectangle(&middle, up as f64 * LEVEL, all)) }
                g.holds {
                    @for bar in &below { (rectangle(bar, (up + 1 + bar.level) as f64 * LEVEL, all)) }
                }
            }
        }
    }
}

fn rectangle(bar: &Bar, y: f64, all: u64) -> Markup {
    let fits = (bar.width / CHARACTER) as usize;
    let text: String = if fits < 4 { String::new() } else { bar.text.chars().take(fits).collect() };
    html! {
        g {
            title { (bar.text) ": " (duration(bar.ns)) ", " (percent(ratio(bar.ns, all))) }
            rect x=(format!("{:.2}", bar.x)) y=(format!("{y:.1}")) width=(format!("{:.2}", bar.width))
                height=(format!("{:.1}", LEVEL - 1.0)) {}
            text x=(format!("{:.2}", bar.x + 3.0)) y=(format!("{:.1}", y + LEVEL - 5.0)) { (text) }
        }
    }
}

/// How many waits, and holds that somebody waited for, took how long.
fn spreads(class: &Class) -> Markup {
    let figures = &class.figures;
    html! {
        h3 { (title(class)) }
        div.pair {
            (spread("waits", "", &figures.wait_buckets))
            @if class.kind.is_acquired() { (spread("holds that others waited for", " held", &figures.waited_hold_buckets)) }
        }
    }
}

fn spread(what: &str, class: &str, buckets: &[u64]) -> Markup {
    let some = |count: &u64| *count > 0;
    let (Some(first), Some(last)) = (buckets.iter().position(some), buckets.iter().rposition(some)) else {
        return html! {};
    };
    let highest = buckets.iter().copied().max().unwrap_or(1).max(1);
    let count = last - first + 1;
    html! {
        figure {
            svg class={ "spread" (class) } viewBox=(format!("0 0 {count} 100")) preserveAspectRatio="none" role="img"
                aria-label={ (what) " by how long they took" } {
                @for (place, number) in buckets[first..=last].iter().enumerate() {
                    @let height = (*number as f64 / highest as f64 * 100.0).max(if *number > 0 { 1.5 } else { 0.0 });
                    g {
                        title {
                            (duration(bounds(first + place).0)) " to " (duration(bounds(first + place).1)) ": " (number)
                        }
                        rect x=(format!("{:.2}", place as f64 + 0.05)) y=(format!("{:.1}", 100.0 - height)) width="0.9"
                            height=(format!("{height:.1}")) {}
                    }
                }
            }
            figcaption.soft {
                (what) ": " (buckets.iter().sum::<u64>()) ", from " (duration(bounds(first).0)) " to "
                (duration(bounds(last).1))
            }
        }
    }
}
