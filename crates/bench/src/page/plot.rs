//! Lines over numbers of threads, as inline SVG.
//!
//! Written by hand rather than with `plotters`, which puts a fixed colour and a fixed size into every
//! element: here a line bears a class, so that the style sheet gives it the colour of the reader's scheme and
//! hides it when asked to, and the picture grows and shrinks with the page.

use maud::{Markup, html};

use super::look::Look;
use super::quantity::Quantity;
use crate::stats::Summary;

/// The picture's own units; the page scales it to the width that it has.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 224.0;
/// A label of seven characters, such as `200 k/s`, ends 5 units further left. It takes 35 units in Liberation
/// Sans, 41 in DejaVu Sans, 46 in a font with characters of one width, and 52 in Verdana Bold, the widest in
/// common use.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 330.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 186.0;
/// From the frame to the first and the last number of threads.
const INSET: f64 = 12.0;
/// A digit in the widest of these fonts, and what lies between two labels at least.
const DIGIT_WIDTH: f64 = 8.0;
const LABEL_GAP: f64 = 3.0;
/// What the labels of neighbouring ticks need.
const LABEL_HEIGHT: f64 = 15.0;

/// The vertical axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
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
    /// How it is drawn.
    pub(super) look: Look,
    /// Its name.
    pub(super) name: String,
    /// Numbers of threads, ascending, with what was measured.
    pub(super) points: Vec<(usize, Summary)>,
}

/// A line that nobody's measurements make.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    /// What it is.
    pub(super) label: String,
    /// Its course over the numbers of threads.
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
    /// What the vertical axis shows.
    pub(super) quantity: Quantity,
    /// How.
    pub(super) scale: Scale,
    /// The measurements; the last is drawn over the others.
    pub(super) lines: Vec<Line>,
    /// What they are to be read against.
    pub(super) references: Vec<Reference>,
}

impl Plot {
    /// The picture as an `svg` element.
    pub(super) fn svg(&self) -> Markup {
        let across = Across::new(&self.threads);
        let axis = Axis::new(self);
        let columns: Vec<String> =
            self.threads.iter().map(|&threads| coordinate(across.at(threads))).collect();
        html! {
            svg class="plot" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img"
                aria-labelledby={ (self.id) "-title" } aria-describedby={ (self.id) "-desc" }
                data-columns=(columns.join(" ")) {
                title id={ (self.id) "-title" } { (self.title) }
                desc id={ (self.id) "-desc" } { (self.description) }
                (self.frame(&across, &axis))
                @for reference in &self.references { (reference_line(reference, &across, &axis)) }
                @for line in &self.lines { (series(line, &across, &axis)) }
                @for reference in &self.references { (reference_label(reference, &axis, self.quantity)) }
                line class="guide" x1="0" x2="0" y1=(TOP) y2=(BOTTOM) {}
            }
        }
    }

    fn frame(&self, across: &Across, axis: &Axis) -> Markup {
        let labelled = across.labelled(&self.threads);
        html! {
            @for (value, label) in axis.ticks() {
                @let y = coordinate(axis.at(value));
                path class=[if_not(label, "minor")] d=(format!("M{LEFT} {y}H{RIGHT}")) {}
                @if label {
                    text x=(LEFT - 5.0) y=(y) dy="0.35em" text-anchor="end" { (self.quantity.tick(value)) }
                }
            }
            path class="axis" d=(format!("M{LEFT} {BOTTOM}H{RIGHT}")) {}
            @for &threads in &self.threads {
                path class="axis" d=(format!("M{} {BOTTOM}v4", coordinate(across.at(threads)))) {}
            }
            @for threads in labelled {
                text x=(coordinate(across.at(threads))) y=(BOTTOM + 16.0) text-anchor="middle" { (threads) }
            }
            text class="unit" x=(RIGHT) y=(BOTTOM + 32.0) text-anchor="end" { "threads" }
        }
    }
}

fn if_not(condition: bool, class: &'static str) -> Option<&'static str> {
    (!condition).then_some(class)
}

fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

/// The horizontal axis: logarithmic.
struct Across {
    least: f64,
    most: f64,
}

impl Across {
    fn new(threads: &[usize]) -> Across {
        let least = threads.first().map_or(1, |&threads| threads.max(1)) as f64;
        let most = threads.last().map_or(1, |&threads| threads.max(1)) as f64;
        Across { least: least.log2(), most: most.log2() }
    }

    fn at(&self, threads: usize) -> f64 {
        let range = self.most - self.least;
        let share = if range > 0.0 { ((threads.max(1) as f64).log2() - self.least) / range } else { 0.5 };
        LEFT + INSET + share * (RIGHT - LEFT - 2.0 * INSET)
    }

    /// Those that have room for their number: the last always.
    fn labelled(&self, threads: &[usize]) -> Vec<usize> {
        let mut labelled: Vec<usize> = Vec::new();
        for &threads in threads.iter().rev() {
            if labelled.last().is_none_or(|&right| self.gap(threads, right) >= LABEL_GAP) {
                labelled.push(threads);
            }
        }
        labelled
    }

    /// Between the labels of two numbers of threads, each of which is centred.
    fn gap(&self, left: usize, right: usize) -> f64 {
        let half = |threads: usize| f64::from(threads.max(1).ilog10() + 1) * DIGIT_WIDTH / 2.0;
        self.at(right) - half(right) - (self.at(left) + half(left))
    }
}

/// The vertical axis.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn new(plot: &Plot) -> Axis {
        let Scale::Log { depth } = plot.scale else { return Axis { low: 0.0, high: 1.0, log: false } };
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values
                .filter(|value| value.is_finite() && *value > 0.0)
                .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)))
        };
        let points = plot.lines.iter().flat_map(|line| &line.points);
        let (least, most) = range(&mut points.flat_map(|(_, s)| [s.min, s.median, s.max]));
        if most == 0.0 {
            return Axis { low: 1.0, high: 10.0, log: true };
        }
        // What the lines are read against is to be seen, but does not push them out of the picture.
        let references = plot.references.iter().flat_map(|reference| &reference.points);
        let (lowest, highest) = range(&mut references.map(|&(_, value)| value));
        let low = round_down(least.max(most / depth).min(lowest));
        let most = most.max(highest);
        // A margin, so that no marker is cut; and never an axis of one value.
        let high = round_up(most * 1.04);
        Axis { low, high: if high > low { high } else { low * 10.0 }, log: true }
    }

    /// Where a value is drawn; at an edge if it lies beyond.
    fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        BOTTOM - share.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn is_below(&self, value: f64) -> bool {
        self.log && value < self.low * 0.999
    }

    /// Values with a line across, and whether it is labelled.
    fn ticks(&self) -> Vec<(f64, bool)> {
        if !self.log {
            return [0.0, 0.25, 0.5, 0.75, 1.0].map(|value| (value, true)).to_vec();
        }
        let decade = (BOTTOM - TOP) / (self.high / self.low).log10();
        // 2 and 5 need room between themselves and the powers of ten; those may need to be fewer.
        let fine = decade * 0.3 >= LABEL_HEIGHT;
        let every = (LABEL_HEIGHT / decade).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        for power in self.low.log10().floor() as i32..=self.high.log10().ceil() as i32 {
            let ten = 10.0_f64.powi(power);
            ticks.push((ten, power.rem_euclid(every) == 0));
            if decade >= 12.0 {
                ticks.extend([(2.0 * ten, fine), (5.0 * ten, fine)]);
            }
        }
        ticks.retain(|&(value, _)| value >= self.low * 0.999 && value <= self.high * 1.001);
        ticks
    }
}

/// The next of 1, 2, 5, 10, .. that is no larger.
fn round_down(value: f64) -> f64 {
    let ten = 10.0_f64.powf(value.log10().floor());
    let round = [5.0, 2.0, 1.0].into_iter().find(|round| round * ten <= value * 1.000_001);
    round.unwrap_or(1.0) * ten
}

/// The next of 1, 2, 5, 10, .. that is no smaller.
fn round_up(value: f64) -> f64 {
    let ten = 10.0_f64.powf(value.log10().floor());
    let round = [1.0, 2.0, 5.0].into_iter().find(|round| round * ten >= value * 0.999_999);
    round.unwrap_or(10.0) * ten
}

fn reference_line(reference: &Reference, across: &Across, axis: &Axis) -> Markup {
    let at = |&(threads, value): &(usize, f64)| {
        format!("{} {}", coordinate(across.at(threads)), coordinate(axis.at(value)))
    };
    let mut path: Vec<String> = reference.points.iter().map(at).collect();
    // To both edges where it is level there: one that ends between them would seem to be somebody's.
    if let (Some(first), Some(last)) = (reference.points.first(), reference.points.last()) {
        path.insert(0, format!("{LEFT} {}", coordinate(axis.at(first.1))));
        path.push(format!("{RIGHT} {}", coordinate(axis.at(last.1))));
    }
    html! { @if !path.is_empty() { path class="reference" d={ "M" (path.join("L")) } {} } }
}

/// Over the lines, so that it can be read.
fn reference_label(reference: &Reference, axis: &Axis, quantity: Quantity) -> Markup {
    html! {
        @if let Some((_, last)) = reference.points.last() {
            @let y = axis.at(*last);
            text class="reference" x=(RIGHT - 3.0) y=(coordinate(y)) dy=(above_or_below(y, quantity)) text-anchor="end" {
                (reference.label)
            }
        }
    }
}

/// A label stands on that side of its line where measurements are not, if there is room: nothing takes less
/// time than its floor, or goes faster than its limit.
fn above_or_below(y: f64, quantity: Quantity) -> &'static str {
    let room_below = BOTTOM - y >= 11.0;
    if (quantity == Quantity::Time && room_below) || y - TOP < LABEL_HEIGHT { "1em" } else { "-0.35em" }
}

fn series(line: &Line, across: &Across, axis: &Axis) -> Markup {
    let (mut course, mut spread, mut markers, mut beyond) =
        (Vec::new(), String::new(), String::new(), String::new());
    for (threads, summary) in &line.points {
        let (x, y) = (across.at(*threads), axis.at(summary.median));
        course.push(format!("{x:.1} {y:.1}"));
        let (top, bottom) = (axis.at(summary.max), axis.at(summary.min));
        if bottom - top >= 0.5 {
            spread += &format!("M{x:.1} {bottom:.1}V{top:.1}");
        }
        if axis.is_below(summary.median) {
            beyond += &format!("M{:.1} {:.1}h7l-3.5 6z", x - 3.5, y - 6.0);
        } else {
            markers += &line.look.marker.path(x, y);
        }
    }
    html! {
        g class={ "line w" (line.who) @if line.look.subject { " subject" } } style=(line.look.style()) {
            title { (line.name) }
            @if !spread.is_empty() { path class="spread" d=(spread) {} }
            path class="course" d={ "M" (course.join("L")) } stroke-dasharray=[line.look.dash()] {}
            @if !markers.is_empty() { path class="marker" d=(markers) {} }
            @if !beyond.is_empty() { path class="beyond" d=(beyond) {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: &[(usize, f64)], scale: Scale) -> Plot {
        let points =
            values.iter().map(|&(threads, value)| (threads, Summary::of([value]).unwrap())).collect();
        Plot {
            id: "a".into(),
            title: "A & B".into(),
            description: "<none>".into(),
            threads: values.iter().map(|&(threads, _)| threads).collect(),
            quantity: Quantity::Rate,
            scale,
            lines: vec![Line { who: 3, look: Look::subject(), name: "<b>".into(), points }],
            references: Vec::new(),
        }
    }

    const LOG: Scale = Scale::Log { depth: 1000.0 };

    #[test]
    fn values_lie_in_the_frame_and_in_order() {
        let plot = plot(&[(1, 3e6), (2, 17e6), (250, 40e3)], LOG);
        let axis = Axis::new(&plot);
        assert_eq!((axis.low, axis.high), (20e3, 20e6));
        let ys = [17e6, 3e6, 40e3].map(|value| axis.at(value));
        assert!(ys.is_sorted() && ys[0] > TOP && ys[2] < BOTTOM, "{ys:?}");
        let across = Across::new(&plot.threads);
        assert_eq!((across.at(1), across.at(250)), (LEFT + INSET, RIGHT - INSET));
    }

    #[test]
    fn what_lies_too_low_is_drawn_at_the_edge_and_marked() {
        let plot = plot(&[(1, 3e6), (2, 1.0)], LOG);
        let axis = Axis::new(&plot);
        assert_eq!((axis.low, axis.at(1.0), axis.at(0.0)), (2e3, BOTTOM, BOTTOM));
        let svg = plot.svg().into_string();
        assert!(svg.contains("class=\"beyond\""), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn ticks_have_room_whatever_the_range() {
        for range in [1.5, 3.0, 10.0, 100.0, 1e3, 1e5, 1e8, 1e12] {
            let axis = Axis::new(&plot(&[(1, 1.0), (2, range)], Scale::Log { depth: f64::INFINITY }));
            let mut labels: Vec<f64> =
                axis.ticks().into_iter().filter(|tick| tick.1).map(|(value, _)| axis.at(value)).collect();
            assert!(labels.len() >= 2, "range {range}: {labels:?}");
            labels.sort_by(f64::total_cmp);
            assert!(labels.windows(2).all(|pair| pair[1] - pair[0] >= 11.0), "range {range}: {labels:?}");
        }
    }

    #[test]
    fn numbers_of_threads_have_room_whatever_they_are() {
        for most in [64, 250, 1024] {
            let all: Vec<usize> = (1..=most).collect();
            let across = Across::new(&all);
            let labelled = across.labelled(&all);
            assert_eq!(labelled[0], most);
            assert!(
                labelled.windows(2).all(|pair| across.gap(pair[1], pair[0]) >= LABEL_GAP),
                "{labelled:?}"
            );
            // In Verdana Bold, in which a digit takes 7.8 units.
            assert!(RIGHT - INSET + most.to_string().len() as f64 * 7.8 / 2.0 <= WIDTH);
        }
        assert_eq!(Across::new(&[1, 2, 4, 8, 16, 64, 250]).labelled(&[1, 2, 4, 8, 16, 64, 250]).len(), 7);
        assert!(Across::new(&[7]).at(7).is_finite());
    }

    #[test]
    fn nothing_measured_and_nothing_above_zero_are_drawn_all_the_same() {
        for values in [&[][..], &[(1, 0.0)]] {
            for scale in [LOG, Scale::Unit] {
                let svg = plot(values, scale).svg().into_string();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn words_are_escaped() {
        let svg = plot(&[(1, 1.0)], Scale::Unit).svg().into_string();
        assert!(
            svg.contains("A &amp; B") && svg.contains("&lt;none&gt;") && svg.contains("&lt;b&gt;"),
            "{svg}"
        );
    }

    #[test]
    fn a_reference_goes_from_edge_to_edge() {
        let mut plot = plot(&[(1, 1e3), (4, 1e5)], LOG);
        plot.references.push(Reference { label: "sleep & wake".into(), points: vec![(1, 5e3), (4, 5e3)] });
        let svg = plot.svg().into_string();
        assert!(svg.contains("sleep &amp; wake"), "{svg}");
        assert!(svg.contains(&format!("M{LEFT} ")) && svg.contains(&format!("L{RIGHT} ")), "{svg}");
    }
}
