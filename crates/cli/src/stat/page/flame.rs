//! Stacks as a flame graph of waiting: waiters over holders.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{percent_of, title};
use crate::stat::class::Class;
use crate::stat::names::{FrameId, Names};
use crate::stat::report::{Report, ratio};
use crate::stat::sampler::Purpose;
use crate::stat::text::{duration, percent};

/// A level's height in pixels.
const LEVEL: usize = 19;
/// What is narrower than this share of the picture is not drawn.
const LEAST: f64 = 0.001;

/// Frames by what comes before them.
#[derive(Default)]
struct Node {
    ns: u64,
    frames: BTreeMap<FrameId, Node>,
}

impl Node {
    fn add(&mut self, frames: impl IntoIterator<Item = FrameId>, ns: u64) {
        self.ns += ns;
        let mut node = self;
        for id in frames {
            node = node.frames.entry(id).or_default();
            node.ns += ns;
        }
    }

    fn depth(&self) -> usize {
        self.frames.values().map(|node| 1 + node.depth()).max().unwrap_or(0)
    }
}

/// A rectangle of the picture; its place and width are shares of that.
struct Bar<'n> {
    x: f64,
    width: f64,
    level: usize,
    text: &'n str,
    /// With nothing left out, for the tool tip.
    whole: &'n str,
    ns: u64,
}

fn bars<'n>(names: &'n Names, node: &Node, x: f64, level: usize, all: u64, out: &mut Vec<Bar<'n>>) {
    let mut x = x;
    let mut frames: Vec<_> = node.frames.iter().collect();
    frames.sort_by_key(|(id, node)| (std::cmp::Reverse(node.ns), names.whole(**id)));
    for (&id, node) in frames {
        let width = ratio(node.ns, all);
        if width >= LEAST {
            out.push(Bar { x, width, level, text: names.text(id), whole: names.whole(id), ns: node.ns });
            bars(names, node, x, level + 1, all, out);
        }
        x += width;
    }
}

/// The picture of a class.
pub(super) fn picture(report: &Report, class: &Class) -> Markup {
    let figures = &class.figures;
    let names = &report.names;
    let (mut waits, mut holds) = (Node::default(), Node::default());
    for (&stack, site) in &figures.sites {
        waits.add(names.interesting(stack), site.wait_ns);
    }
    for (&(acquired, released), holder) in report.causes(class).holders {
        // The stack of the release is known whole; of the acquisition the line is.
        let function = |id: FrameId| &names.frame_of(id).function;
        let line = names.line_of(acquired);
        let mut outer = names.interesting(released);
        if line.is_some_and(|line| outer.first().is_some_and(|&first| function(first) == function(line))) {
            outer.remove(0);
        }
        holds.add(line.into_iter().chain(outer), holder.caused_ns);
    }
    let all = figures.wait_ns.max(waits.ns).max(holds.ns).max(1);
    let (mut above, mut below) = (Vec::new(), Vec::new());
    bars(names, &waits, 0.0, 0, all, &mut above);
    bars(names, &holds, 0.0, 0, all, &mut below);
    let up = waits.depth();
    let name = title(class);
    let middle =
        Bar { x: 0.0, width: 1.0, level: 0, text: &name, whole: &class.whole.name, ns: figures.wait_ns };
    html! {
        figure {
            svg.flame width="100%" height=((up + 1 + holds.depth()) * LEVEL) role="img"
                aria-label={ "Stacks that waited for " (name) } {
                g.waits { @for bar in &above { (rectangle(bar, up - 1 - bar.level, all)) } }
                g.lock { (rectangle(&middle, up, all)) }
                g.holds { @for bar in &below { (rectangle(bar, up + 1 + bar.level, all)) } }
            }
        }
    }
}

/// The picture of sleeps that only samples tell of, of which some passed without work if `idle`.
pub(super) fn sleeps(report: &Report, idle: bool) -> Markup {
    let names = &report.names;
    let mut waits = Node::default();
    let is_seen = report.about.futexes.is_some();
    let rows = report.sleeps.iter().filter(|row| !row.is_counted(is_seen));
    for row in rows.filter(|row| (row.of.purpose != Purpose::Blocked) == idle) {
        // With the function that makes the call.
        waits.add(names.frames(row.of.stack).iter().copied(), row.sum.ns);
    }
    let (all, mut above) = (waits.ns.max(1), Vec::new());
    bars(names, &waits, 0.0, 0, all, &mut above);
    let up = waits.depth();
    let name = if idle { "without work, or between requests" } else { "with something to do" };
    let middle = Bar { x: 0.0, width: 1.0, level: 0, text: name, whole: name, ns: waits.ns };
    html! {
        @if waits.ns > 0 {
            figure {
                svg.flame width="100%" height=((up + 1) * LEVEL) role="img" aria-label={ "Stacks that slept, " (name) } {
                    g.waits { @for bar in &above { (rectangle(bar, up - 1 - bar.level, all)) } }
                    g.lock { (rectangle(&middle, up, all)) }
                }
            }
        }
    }
}

/// Its text is cut at its edge.
fn rectangle(bar: &Bar, row: usize, all: u64) -> Markup {
    html! {
        g {
            title { (bar.whole) ": " (duration(bar.ns)) ", " (percent(ratio(bar.ns, all))) }
            svg x=(percent_of(bar.x)) y=(row * LEVEL) width=(percent_of(bar.width)) height=(LEVEL - 1) {
                rect width="100%" height="100%" {}
                text x="4" y=(LEVEL - 6) { (bar.text) }
            }
        }
    }
}
