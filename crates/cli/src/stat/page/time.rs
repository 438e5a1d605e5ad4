//! The timeline of the locks that threads waited for most: how many waited, and who had it meanwhile.

use maud::{Markup, html};

use super::{percent_of, title};
use crate::output::counted;
use crate::stat::lost::cell;
use crate::stat::report::{Report, ratio};
use crate::stat::text::{duration, percent};
use crate::stat::timeline::{Row, Share};

/// The heights of a class's picture and of the line of times below it, in pixels.
const HEIGHT: usize = 64;
const AXIS: usize = 18;
/// As many columns at most.
const COLUMNS: usize = 120;
/// Times that are written below.
const LABELS: u64 = 5;

/// Pieces of time, several of which may be one column.
struct Columns {
    /// Pieces in each.
    of: usize,
    count: usize,
    length_ns: u64,
    watched: Vec<u64>,
}

impl Columns {
    fn sums(&self, pieces: &[u64]) -> Vec<u64> {
        pieces.chunks(self.of).map(|pieces| pieces.iter().sum()).collect()
    }
}

/// A part of the waiting, from the bottom up.
struct Layer {
    class: String,
    name: String,
    ns: Vec<u64>,
}

/// All of it; without figures if there were not enough looks.
pub(super) fn picture(report: &Report) -> Markup {
    let timeline = &report.timeline;
    let of = timeline.watched_ns.len().div_ceil(COLUMNS).max(1);
    let columns = Columns {
        of,
        count: timeline.watched_ns.len().div_ceil(of),
        length_ns: timeline.piece_ns * of as u64,
        watched: timeline.watched_ns.chunks(of).map(|pieces| pieces.iter().sum()).collect(),
    };
    html! {
        @if timeline.classes.is_empty() {
            p.soft {
                "There is nothing to draw: the threads were looked at " (counted(timeline.looks, "time")) ", and too \
                 few of these looks saw a thread wait for a lock. They come every few milliseconds at most, so \
                 a run of less than a tenth of a second is over before there are enough."
            }
        } @else {
            p.soft {
                "The height is the number of threads that waited at a time, the colour who had the lock \
                 meanwhile. Percentages are parts of the wait for that lock; over the whole run they are as \
                 measured, and looks at the threads tell when. Times are since the "
                @if report.about.delayed { "delay was over." } @else { "start." }
            }
            @for row in &timeline.classes { (class(report, row, &columns)) }
        }
    }
}

fn class(report: &Report, row: &Row, columns: &Columns) -> Markup {
    let of = &report.classes[row.class];
    let waiting = columns.sums(&row.waiting_ns);
    let mut layers: Vec<Layer> = row
        .holders
        .iter()
        .enumerate()
        .map(|(n, share)| Layer { class: format!("by{n}"), name: name(share), ns: columns.sums(&share.ns) })
        .collect();
    layers.push(Layer {
        class: "nobody".to_owned(),
        name: "nobody: on its way to the next".to_owned(),
        ns: columns.sums(&row.nobody_ns),
    });
    let rest =
        (0..columns.count).map(|n| waiting[n].saturating_sub(layers.iter().map(|layer| layer.ns[n]).sum()));
    let rest = rest.collect();
    layers.push(Layer { class: "rest".to_owned(), name: "others, or not known".to_owned(), ns: rest });
    // What rounding leaves is nothing to draw.
    let all: u64 = waiting.iter().sum();
    layers.retain(|layer| layer.ns.iter().sum::<u64>() > all / 1000);
    let threads = |n: usize| ratio(waiting[n], columns.watched[n]);
    let highest = (0..columns.count).map(threads).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let waiters: Vec<String> = row.waiters.iter().map(|share| part(&share.threads, &share.ns, all)).collect();
    html! {
        h3 { (title(of)) ": lost " (cell(report.share(of))) }
        figure.time {
            figcaption.soft {
                "at most " (format!("{highest:.1}")) " threads waited at a time: " (waiters.join(", "))
            }
            svg width="100%" height=(HEIGHT + AXIS) role="img"
                aria-label={ "Threads that waited for " (title(of)) " over time" } {
                svg width="100%" height=(HEIGHT) preserveAspectRatio="none"
                    viewBox=(format!("0 0 {} {HEIGHT}", columns.count)) {
                    @for (n, layer) in layers.iter().enumerate() {
                        path class=(layer.class) d=(path(&layers[..n], layer, columns, highest)) {}
                    }
                    @for n in (0..columns.count).filter(|&n| waiting[n] > 0) {
                        rect.at x=(n) width="1" height=(HEIGHT) {
                            title { (words(&layers, columns, n, threads(n))) }
                        }
                    }
                }
                (axis(columns))
            }
            ul.legend {
                @for layer in &layers {
                    li { svg.key width="12" height="12" aria-hidden="true" {
                        rect class=(layer.class) width="12" height="12" {}
                    } (part(&layer.name, &layer.ns, all)) }
                }
            }
        }
    }
}

fn name(share: &Share) -> String {
    if share.at.is_empty() { share.threads.clone() } else { format!("{} at {}", share.threads, share.at) }
}

fn part(name: &str, ns: &[u64], all: u64) -> String {
    format!("{name} {}", percent(ratio(ns.iter().sum(), all).min(1.0)))
}

/// A rectangle for each column, on top of the layers below.
fn path(below: &[Layer], layer: &Layer, columns: &Columns, highest: f64) -> String {
    let height = |ns: u64, n: usize| ratio(ns, columns.watched[n]) / highest * HEIGHT as f64;
    let rectangle = |n: usize| {
        let bottom = HEIGHT as f64 - height(below.iter().map(|layer| layer.ns[n]).sum(), n);
        format!("M{n} {bottom:.1}v-{:.1}h1V{bottom:.1}z", height(layer.ns[n], n))
    };
    (0..columns.count).filter(|&n| layer.ns[n] > 0).map(rectangle).collect()
}

/// What a column says.
fn words(layers: &[Layer], columns: &Columns, n: usize, threads: f64) -> String {
    let from = columns.length_ns * n as u64;
    let all = layers.iter().map(|layer| layer.ns[n]).sum();
    let parts =
        layers.iter().filter(|layer| layer.ns[n] > 0).map(|layer| part(&layer.name, &[layer.ns[n]], all));
    format!(
        "{} to {}: {threads:.1} threads waited; had by {}",
        duration(from),
        duration(from + columns.length_ns),
        parts.collect::<Vec<_>>().join(", ")
    )
}

/// The line below, with round times.
fn axis(columns: &Columns) -> Markup {
    let end = columns.length_ns * columns.count as u64;
    let steps = (0..13).flat_map(|power| [1, 2, 5].map(|n| n * 1_000_000 * 10u64.pow(power)));
    let step = steps.into_iter().find(|step| step * LABELS >= end).unwrap_or(end);
    html! {
        line x2="100%" y1=(HEIGHT) y2=(HEIGHT) {}
        @for at in (0..end).step_by(step as usize) {
            @let x = percent_of(ratio(at, end));
            line x1=(x) x2=(x) y1=(HEIGHT) y2=(HEIGHT + 4) {}
            // One at the right end would be cut.
            @if ratio(at, end) < 0.85 {
                text x=(x) dx="3" y=(HEIGHT + AXIS - 4) { @if at == 0 { "0" } @else { (duration(at)) } }
            }
        }
    }
}
