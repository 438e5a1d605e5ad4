//! Lines over numbers of threads: layers that bear classes, so that the style sheet gives each line the
//! colour of the reader's scheme and hides it when asked to, and the picture grows and shrinks with the page.

use maud::{Markup, PreEscaped, html};

use super::look::Look;
use super::quantity::Quantity;
use crate::Summary;
use crate::plot::{self, LAYERED, Scale, layers};

/// What a digit takes in the widest of the fonts in common use, and what lies between two labels at least, as
/// shares of the width of the horizontal axis.
const DIGIT_WIDTH: f64 = 8.0 / 248.0;
const LABEL_GAP: f64 = 3.0 / 248.0;

/// The vertical axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Axis {
    /// Logarithmic. Values lower than the largest by more than this factor are drawn at the lower edge.
    Log {
        /// The factor.
        depth: f64,
    },
    /// From 0 to 1.
    Unit,
}

/// A contender's line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Its number among the contenders.
    pub(super) who: usize,
    pub(super) look: Look,
    pub(super) name: String,
    /// Numbers of threads, ascending, with what was measured.
    pub(super) points: Vec<(usize, Summary)>,
}

/// A line that nobody's measurements make: what it is, and its course.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) label: String,
    pub(super) points: Vec<(usize, f64)>,
}

/// A picture.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Distinguishes the picture's elements from those of others on the page.
    pub(super) id: String,
    /// What is shown, in a line.
    pub(super) title: String,
    /// What there is to see, for those who do not see it.
    pub(super) description: String,
    /// The numbers of threads on the horizontal axis, ascending.
    pub(super) threads: Vec<usize>,
    pub(super) quantity: Quantity,
    pub(super) axis: Axis,
    /// The measurements; the last is drawn over the others.
    pub(super) lines: Vec<Line>,
    /// What they are to be read against.
    pub(super) references: Vec<Reference>,
}

impl Plot {
    /// The picture as an `svg` element.
    pub(super) fn svg(&self) -> Markup {
        let up = self.up();
        // A label stands on that side of its line where measurements are not, if there is room: nothing takes
        // less time than its floor, or goes faster than its limit.
        let below = self.quantity == Quantity::Time;
        let references: Vec<_> = self.references.iter().map(|reference| (reference.line(), below)).collect();
        let lines: Vec<_> = self.lines.iter().map(Line::line).collect();
        let tick = |value| self.quantity.tick(value);
        let threads: Vec<f64> = self.threads.iter().map(|&threads| threads as f64).collect();
        let layers = match layers([across(&self.threads), up], &threads, tick, &lines, &references) {
            Ok(layers) => layers,
            Err(error) => return html! { p.soft { (error) } },
        };
        let columns: Vec<String> = layers.columns.iter().map(i32::to_string).collect();
        html! {
            svg class="plot" viewBox=(format!("0 0 {} {}", LAYERED.0, LAYERED.1)) role="img"
                aria-labelledby={ (self.id) "-title" } aria-describedby={ (self.id) "-desc" }
                data-columns=(columns.join(" ")) {
                title id={ (self.id) "-title" } { (self.title) }
                desc id={ (self.id) "-desc" } { (self.description) }
                g class="frame" { (PreEscaped(&layers.frame)) }
                @for (line, layer) in self.lines.iter().zip(&layers.lines) {
                    g class={ "line drawn " (line.look.class()) " w" (line.who) @if line.look.subject { " \
                        subject" } }
                        style=(line.look.style()) { title { (line.name) } (PreEscaped(layer)) }
                }
                @for layer in &layers.references { g class="reference" { (PreEscaped(layer)) } }
                line class="guide" x1="0" x2="0" y1="10" y2=(LAYERED.1 - 38) {}
            }
        }
    }

    fn up(&self) -> Scale {
        let Axis::Log { depth } = self.axis else { return Scale::unit() };
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values
                .filter(|value| value.is_finite() && *value > 0.0)
                .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)))
        };
        let points = self.lines.iter().flat_map(|line| &line.points);
        let (least, most) = range(&mut points.flat_map(|(_, s)| [s.min, s.median, s.max]));
        if most == 0.0 {
            return Scale::log(1.0..10.0, Vec::new());
        }
        // What the lines are read against is to be seen, but does not push them out of the picture.
        let references = self.references.iter().flat_map(|reference| &reference.points);
        let (lowest, highest) = range(&mut references.map(|&(_, value)| value));
        Scale::log(least.max(most / depth).min(lowest) / 1.2..most.max(highest) * 1.2, Vec::new())
    }
}

impl Line {
    fn line(&self) -> plot::Line {
        let at = |(threads, summary): &(usize, Summary)| (*threads as f64, *summary);
        let points = self.points.iter().map(at);
        let spread = points.clone().filter(|(_, summary)| summary.min < summary.max);
        plot::Line {
            look: self.look.drawn,
            name: String::new(),
            points: points.map(|(threads, summary)| (threads, summary.median)).collect(),
            spread: spread.map(|(threads, summary)| (threads, summary.min, summary.max)).collect(),
        }
    }
}

impl Reference {
    fn line(&self) -> plot::Line {
        let points = self.points.iter().map(|&(threads, value)| (threads as f64, value)).collect();
        plot::Line { look: plot::Look::nth(0), name: self.label.clone(), points, spread: Vec::new() }
    }
}

/// The horizontal axis: logarithmic, with the numbers that have room; the last always has.
fn across(threads: &[usize]) -> Scale {
    let ends = [threads.first(), threads.last()].map(|end| end.map_or(1.0, |&end| end.max(1) as f64));
    let (low, high) = (ends[0] / 1.3, ends[1] * 1.3);
    let at = |threads: usize| (threads.max(1) as f64 / low).ln() / (high / low).ln();
    let half = |threads: usize| f64::from(threads.max(1).ilog10() + 1) * DIGIT_WIDTH / 2.0;
    let mut labelled: Vec<usize> = Vec::new();
    for &left in threads.iter().rev() {
        let room = |&right: &usize| at(right) - half(right) - at(left) - half(left) >= LABEL_GAP;
        if labelled.last().is_none_or(room) {
            labelled.push(left);
        }
    }
    Scale::log(low..high, labelled.into_iter().rev().map(|threads| threads as f64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(values: &[(usize, f64)], axis: Axis) -> String {
        let points: Vec<_> = values.iter().map(|&(at, value)| (at, Summary::of([value]).unwrap())).collect();
        let plot = Plot {
            id: "a".into(),
            title: "A & B".into(),
            description: "<none>".into(),
            threads: values.iter().map(|&(threads, _)| threads).collect(),
            quantity: Quantity::Rate,
            axis,
            lines: vec![Line { who: 3, look: Look::subject(), name: "<b>".into(), points }],
            references: vec![Reference { label: "sleep & wake".into(), points: vec![(1, 5e3), (4, 5e3)] }],
        };
        plot.svg().into_string()
    }

    #[test]
    fn whatever_was_measured_is_drawn_and_words_are_escaped() {
        let log = Axis::Log { depth: 1000.0 };
        for values in [&[][..], &[(1, 0.0)], &[(1, 3e6), (2, 17e6), (250, 40e3)], &[(7, 1e300)]] {
            for axis in [log, Axis::Unit] {
                let svg = svg(values, axis);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                for words in ["A &amp; B", "&lt;none&gt;", "&lt;b&gt;", "sleep &amp; wake"] {
                    assert!(svg.contains(words), "{svg}");
                }
            }
        }
        // What lies too low is at the edge, and hollow.
        let rings = |least| svg(&[(1, 3e6), (2, least)], log).matches("fill=\"none\" stroke").count();
        assert_eq!(rings(1.0), rings(2e6) + 1);
    }

    #[test]
    fn numbers_of_threads_have_room_whatever_they_are() {
        let labels = |all: &[usize]| {
            let across = across(all);
            let ticks = across.ticks.clone();
            layers([across, Scale::unit()], &ticks, |_| String::new(), &[], &[]).unwrap().columns
        };
        assert_eq!(labels(&[1, 2, 4, 8, 16, 64, 250]).len(), 7);
        for most in [64, 250, 1024] {
            let columns = labels(&(1..=most).collect::<Vec<_>>());
            let widths = columns.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(columns.len() > 5 && widths.min() >= Some(10), "{columns:?}");
        }
        assert_eq!(labels(&[7]).len(), 1);
    }
}
