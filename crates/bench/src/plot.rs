//! Charts as SVG, drawn by `plotters`: those of the benchmarks and those of the simulator.
//!
//! It writes a fixed colour and a fixed size into every element. A page's style sheet scales the picture, and
//! turns these colours into those of a dark scheme ([`dark`]); or it colours and hides what is drawn layer by
//! layer (`Layers`).

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::coord::{CoordTranslate, Shift};
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::{Error, Result};

/// The picture's own units: words can be read where this becomes as narrow as a telephone.
const WIDTH: u32 = 480;
const MARGIN: u32 = 6;
/// Of the numbers along an axis, and of what they are about.
const LABELS: u32 = 22;
const WORDS: f64 = 15.0;

/// A colour of the light scheme, as it is drawn, and of the dark one.
type Colour = (RGBColor, RGBColor);

const PAPER: Colour = (WHITE, RGBColor(0x14, 0x17, 0x1b));
const INK: Colour = (RGBColor(0x1c, 0x1f, 0x24), RGBColor(0xe6, 0xe9, 0xee));
const SOFT: Colour = (RGBColor(0x59, 0x60, 0x6b), RGBColor(0xa3, 0xab, 0xb7));
const RULE: Colour = (RGBColor(0xe2, 0xe5, 0xea), RGBColor(0x2a, 0x30, 0x38));
const SERIES: [Colour; 9] = [
    (RGBColor(0x0b, 0x57, 0xd0), RGBColor(0x6e, 0xa8, 0xff)),
    (RGBColor(0xd5, 0x5e, 0x00), RGBColor(0xff, 0x8a, 0x3d)),
    (RGBColor(0x00, 0x87, 0x5f), RGBColor(0x2f, 0xd3, 0xa0)),
    (RGBColor(0x22, 0x25, 0x2b), RGBColor(0xf0, 0xf2, 0xf5)),
    (RGBColor(0xc4, 0x56, 0x9b), RGBColor(0xf0, 0x8c, 0xc8)),
    (RGBColor(0xb0, 0x77, 0x00), RGBColor(0xf2, 0xb6, 0x32)),
    (RGBColor(0x2b, 0x8f, 0xc7), RGBColor(0x7c, 0xc8, 0xf4)),
    (RGBColor(0x88, 0x22, 0x55), RGBColor(0xd9, 0x74, 0x9f)),
    (RGBColor(0x76, 0x76, 0x0b), RGBColor(0xc3, 0xc3, 0x3c)),
];

/// What a value looks like. Told apart without colours, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    pub(crate) colour: RGBColor,
    pub(crate) shape: Shape,
    /// How wide its line is, and how large its mark.
    pub(crate) width: u32,
    pub(crate) size: i32,
}

/// The shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Filled.
    Disc,
    /// Hollow.
    Ring,
    /// Two strokes.
    Cross,
    /// Filled.
    Triangle,
}

impl Look {
    /// Of what was published.
    pub fn published(shape: Shape) -> Look {
        Look { colour: INK.0, shape, width: 2, size: 4 }
    }

    /// Of what we say.
    pub fn ours(shape: Shape) -> Look {
        Look { colour: SERIES[0].0, shape, width: 2, size: 4 }
    }

    /// Of the `index`th of many: as many colours as shapes would give each colour one shape for ever.
    pub fn nth(index: usize) -> Look {
        const SHAPES: [Shape; 4] = [Shape::Disc, Shape::Ring, Shape::Triangle, Shape::Cross];
        Look {
            colour: SERIES[index % SERIES.len()].0,
            shape: SHAPES[index % SHAPES.len()],
            width: 2,
            size: 4,
        }
    }

    /// A mark on a piece of its line, for legends.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn swatch(self) -> Result<String> {
        drawn((32, 14), |area| {
            area.draw(&PathElement::new([(1, 7), (31, 7)], self.colour.stroke_width(self.width)))?;
            mark(area, (16, 7), self)
        })
    }
}

/// A line of a group.
pub struct Track {
    /// Where it goes; what has a look is marked with it, and the last look gives the line its colour.
    pub points: Vec<(f64, Option<Look>)>,
}

/// What belongs together, one track below the other.
pub struct Group {
    /// What it is.
    pub label: String,
    /// Its tracks.
    pub tracks: Vec<Track>,
}

/// A line over numbers of threads, or of something else that grows.
pub struct Line {
    /// What it looks like.
    pub look: Look,
    /// Its name in the picture; empty if the legend stands elsewhere.
    pub name: String,
    /// Where it goes.
    pub points: Vec<(f64, f64)>,
    /// At these places the least and the most of what was measured.
    pub spread: Vec<(f64, f64, f64)>,
}

/// An axis: from zero on, or logarithmic.
#[derive(Clone)]
pub(crate) struct Scale {
    range: Range<f64>,
    logarithmic: bool,
    /// What is labelled, if somebody says so.
    pub(crate) ticks: Vec<f64>,
}

impl Scale {
    /// Logarithmic where values lie further apart than by this factor.
    const FAR: f64 = 20.0;
    /// What is smaller than the largest by more than this is drawn at the edge.
    const DEPTH: f64 = 1e5;

    /// Of these values, and of zero.
    fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let (least, most) = values
            .filter(|value| value.is_finite())
            .fold((0.0_f64, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        // A margin, so that no mark is cut; and never an axis of one value.
        let margin = ((most - least) * 0.05).max(1e-9);
        let low = if least < 0.0 { least - margin } else { 0.0 };
        let high = if most > 0.0 || low == 0.0 { most + margin } else { 0.0 };
        Scale { range: low..high, logarithmic: false, ticks: Vec::new() }
    }

    /// Whichever shows these values.
    fn of(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let linear = Scale::linear(values.clone());
        let nearest = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let most = linear.range.end;
        if linear.range.start < 0.0 || most <= nearest * Scale::FAR * 1.05 {
            return linear;
        }
        Scale::log(nearest.max(most / Scale::DEPTH) / 1.3..most * 1.3, Vec::new())
    }

    /// Logarithmic between these ends.
    pub(crate) fn log(range: Range<f64>, ticks: Vec<f64>) -> Scale {
        Scale { range, logarithmic: true, ticks }
    }

    /// From 0 to 1.
    pub(crate) fn unit() -> Scale {
        Scale { range: 0.0..1.0, logarithmic: false, ticks: vec![0.0, 0.25, 0.5, 0.75, 1.0] }
    }

    fn words(&self, what: &str) -> String {
        format!("{what}{}", if self.logarithmic { " (logarithmic)" } else { "" })
    }

    /// Where a value lies between the ends of the axis, in a linear measure.
    fn seen(&self, value: f64) -> f64 {
        if self.logarithmic { value.max(self.range.start).ln() } else { value }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.seen(self.range.start)..self.seen(self.range.end))
            .map(&self.seen(*value), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if !self.ticks.is_empty() {
            return self.ticks.clone();
        }
        if !self.logarithmic {
            return RangedCoordf64::from(self.range.clone()).key_points(hint);
        }
        let powers = self.range.start.log10().floor() as i32..=self.range.end.log10().ceil() as i32;
        let ticks = |steps: &[f64]| -> Vec<f64> {
            let all =
                powers.clone().flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
            all.filter(|value| self.range.contains(value)).collect()
        };
        let most = hint.max_num_points().max(1);
        let fine = ticks(&[1.0, 2.0, 5.0]);
        if fine.len() <= most {
            return fine;
        }
        let tens = ticks(&[1.0]);
        let every = tens.len().div_ceil(most).max(1);
        tens.into_iter().step_by(every).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        short(*value)
    }
}

/// A number at an axis.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        size if size < 0.001 && size > 1e-9 => return format!("{value:.0e}"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

type Drawn<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

fn drawn(size: (u32, u32), draw: impl FnOnce(&Area) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let result = draw(&area).and_then(|()| Ok(area.present()?));
    drop(area);
    result.map_err(|error| Error::Failed(format!("cannot draw: {error}")))?;
    Ok(svg)
}

fn mark<C: CoordTranslate>(area: &DrawingArea<SVGBackend, C>, at: C::From, look: Look) -> Drawn
where
    C::From: Clone + 'static,
{
    let (filled, line) = (look.colour.filled(), look.colour.stroke_width(look.width.min(2)));
    let result: std::result::Result<(), DrawingAreaErrorKind<_>> = match look.shape {
        Shape::Disc => area.draw(&Circle::new(at, look.size, filled)),
        Shape::Ring => area
            .draw(&Circle::new(at.clone(), look.size, PAPER.0.filled()))
            .and_then(|()| area.draw(&Circle::new(at, look.size, line))),
        Shape::Cross => area.draw(&Cross::new(at, look.size, line)),
        Shape::Triangle => area.draw(&TriangleMarker::new(at, look.size + 1, filled)),
    };
    Ok(result?)
}

fn words(colour: Colour) -> TextStyle<'static> {
    ("sans-serif", WORDS).into_font().color(&colour.0)
}

/// Values from left to right, group by group.
///
/// # Errors
/// If they cannot be drawn.
pub fn groups(groups: &[Group], unit: &str) -> Result<String> {
    const LABEL: f64 = 20.0;
    const TRACK: f64 = 13.0;
    const GAP: f64 = 6.0;
    let points = groups.iter().flat_map(|group| &group.tracks).flat_map(|track| &track.points);
    let values = points.clone().map(|(value, _)| *value);
    // A line that begins without a mark begins at zero, which is on no logarithmic axis.
    let lengths = points.clone().any(|(_, look)| look.is_none());
    let scale = if lengths { Scale::linear(values) } else { Scale::of(values) };
    let left = scale.range.start;
    let height: f64 = groups.iter().map(|group| LABEL + GAP + TRACK * group.tracks.len() as f64).sum();
    drawn((WIDTH, height as u32 + 4 * LABELS + 2 * MARGIN), |area| {
        let unit = scale.words(unit);
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_left(3 * MARGIN)
            .margin_right(3 * MARGIN)
            .set_label_area_size(LabelAreaPosition::Top, 2 * LABELS)
            .set_label_area_size(LabelAreaPosition::Bottom, 2 * LABELS)
            .build_cartesian_2d(scale, height..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_labels(6)
            .x_desc(unit)
            .axis_style(RULE.0)
            .bold_line_style(RULE.0)
            .light_line_style(TRANSPARENT)
            .label_style(words(SOFT))
            .draw()?;
        let area = chart.plotting_area();
        let mut y = 0.0;
        for group in groups {
            area.draw(&Text::new(group.label.as_str(), (left, y + 4.0), words(INK)))?;
            y += LABEL + TRACK / 2.0;
            for Track { points } in &group.tracks {
                let looks = points.iter().filter_map(|&(value, look)| Some((value, look?)));
                if let Some((_, Look { colour, .. })) = looks.clone().next_back() {
                    let course: Vec<_> = points.iter().map(|&(value, _)| (value, y)).collect();
                    area.draw(&PathElement::new(course, colour.stroke_width(2)))?;
                }
                for (value, look) in looks {
                    mark(area, (value, y), look)?;
                }
                y += TRACK;
            }
            y += GAP - TRACK / 2.0;
        }
        Ok(())
    })
}

/// Values over numbers of threads.
///
/// # Errors
/// If they cannot be drawn.
pub fn lines(lines: &[Line], across: &str, up: &str) -> Result<String> {
    let [x, y] = scales(lines.iter());
    drawn((WIDTH, WIDTH * 2 / 3), |area| panel(area, "", lines, (x.clone(), across), (y.clone(), up)))
}

/// Charts side by side, each with a caption and a legend of its own, on the same scales.
///
/// # Errors
/// If they cannot be drawn.
pub fn panels(panels: &[(&str, Vec<Line>)], across: &str, up: &str) -> Result<String> {
    let [x, y] = scales(panels.iter().flat_map(|(_, lines)| lines));
    drawn((WIDTH * panels.len() as u32, WIDTH + 40), |area| {
        area.fill(&PAPER.0)?;
        for ((caption, lines), area) in panels.iter().zip(area.split_evenly((1, panels.len()))) {
            panel(&area, caption, lines, (x.clone(), across), (y.clone(), up))?;
        }
        Ok(())
    })
}

fn scales<'a>(lines: impl Iterator<Item = &'a Line> + Clone) -> [Scale; 2] {
    let points = || lines.clone().flat_map(|line| &line.points);
    [Scale::of(points().map(|point| point.0)), Scale::of(points().map(|point| point.1))]
}

fn panel(area: &Area, caption: &str, lines: &[Line], x: (Scale, &str), y: (Scale, &str)) -> Drawn {
    let mut builder = ChartBuilder::on(area);
    if !caption.is_empty() {
        builder.caption(caption, words(INK));
    }
    let mut chart = builder
        .margin(MARGIN)
        .margin_right(3 * MARGIN)
        .x_label_area_size(2 * LABELS)
        .y_label_area_size(3 * LABELS)
        .build_cartesian_2d(x.0.clone(), y.0.clone())?;
    chart
        .configure_mesh()
        .x_labels(8)
        .y_labels(8)
        .x_desc(x.0.words(x.1))
        .y_desc(y.0.words(y.1))
        .axis_style(SOFT.0)
        .bold_line_style(RULE.0)
        .light_line_style(TRANSPARENT)
        .label_style(words(SOFT))
        .draw()?;
    for line in lines {
        let style = line.look.colour.stroke_width(line.look.width);
        let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        if !line.name.is_empty() {
            drawn.label(&line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        line.points.iter().try_for_each(|&point| mark(chart.plotting_area(), point, line.look))?;
    }
    if lines.iter().any(|line| !line.name.is_empty()) {
        let legend = &mut chart.configure_series_labels();
        legend.position(SeriesLabelPosition::UpperLeft).label_font(words(INK));
        legend.background_style(PAPER.0.mix(0.8)).border_style(RULE.0).draw()?;
    }
    Ok(())
}

/// A chart in layers, so that a style sheet can colour and hide them: what stands between the tags of an SVG
/// element.
pub(crate) struct Layers {
    /// The axes, with their numbers.
    pub(crate) frame: String,
    /// A layer each. What lies below the scale is a hollow ring at its lower edge.
    pub(crate) lines: Vec<String>,
    /// A layer each, with its label.
    pub(crate) references: Vec<String>,
    /// Where the columns are that were asked for.
    pub(crate) columns: Vec<i32>,
}

/// What every element says though it goes without saying: half of a page of many charts.
const DEFAULTS: [&str; 2] = [" opacity=\"1\"", " stroke=\"none\" stroke-width=\"1\""];

/// The size of a chart in layers.
pub(crate) const LAYERED: (u32, u32) = (340, 224);
/// A label of seven characters, such as `200 k/s`, takes 35 units in Liberation Sans, 41 in DejaVu Sans, 46
/// in a font with characters of one width, and 52 in Verdana Bold, the widest in common use.
const LAYERED_LEFT: u32 = 58;

/// What stands between the tags of an SVG element, without what goes without saying.
pub(crate) fn inside(svg: &str) -> String {
    let inside = svg.find('>').map_or(0, |end| end + 1)..svg.rfind("</svg>").unwrap_or(0);
    let inside = svg.get(inside).unwrap_or_default().trim();
    DEFAULTS.into_iter().fold(inside.to_owned(), |inside, default| inside.replace(default, ""))
}

/// Draws lines over numbers of threads, and others that they are read against, each with a label below it or
/// above it.
pub(crate) fn layers(
    [x, y]: [Scale; 2],
    threads: &[f64],
    tick: impl Fn(f64) -> String,
    lines: &[Line],
    references: &[(Line, bool)],
) -> Result<Layers> {
    let mut columns = Vec::new();
    let mut layer = |draw: &mut dyn FnMut(&mut Chart) -> Drawn| {
        let svg = drawn(LAYERED, |area| {
            let mut chart = ChartBuilder::on(area)
                .margin_top(10)
                .margin_right(10)
                .x_label_area_size(38)
                .y_label_area_size(LAYERED_LEFT)
                .build_cartesian_2d(x.clone(), y.clone())?;
            columns = threads.iter().map(|&at| chart.backend_coord(&(at, y.range.end)).0).collect();
            draw(&mut chart)
        })?;
        Ok::<_, Error>(inside(&svg))
    };
    let frame = layer(&mut |chart| {
        let (number, tick) = (|value: &f64| value.to_string(), |value: &f64| tick(*value));
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh()
            .x_labels(LAYERED.0 as usize)
            .y_labels(8)
            .x_desc("threads")
            .label_style(words(SOFT));
        mesh.x_label_formatter(&number).y_label_formatter(&tick);
        mesh.axis_style(SOFT.0).bold_line_style(RULE.0).light_line_style(TRANSPARENT);
        Ok(mesh.draw()?)
    })?;
    let one = |Line { look, points, spread, .. }: &Line, chart: &mut Chart| -> Drawn {
        let colour = look.colour;
        for &(x, least, most) in spread {
            let bar = colour.mix(0.3).stroke_width(look.width + 2);
            chart.plotting_area().draw(&PathElement::new([(x, least), (x, most)], bar))?;
        }
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(look.width)))?;
        for &point in points {
            let below = y.logarithmic && point.1 < y.range.start;
            let look = if below { Look { shape: Shape::Ring, ..*look } } else { *look };
            mark(chart.plotting_area(), point, look)?;
        }
        Ok(())
    };
    let lines = lines.iter().map(|line| layer(&mut |chart| one(line, chart))).collect::<Result<_>>()?;
    let references = references.iter().map(|(Line { look, name, points, .. }, below)| {
        layer(&mut |chart| {
            chart.draw_series(LineSeries::new(points.iter().copied(), look.colour.stroke_width(1)))?;
            if let Some(&last) = points.last() {
                let side = if *below { VPos::Top } else { VPos::Bottom };
                let style = words(SOFT).pos(Pos::new(HPos::Right, side));
                chart.plotting_area().draw(&Text::new(name.as_str(), last, style))?;
            }
            Ok(())
        })
    });
    let references = references.collect::<Result<_>>()?;
    Ok(Layers { frame, lines, references, columns })
}

/// The rules that turn the colours of the light scheme into those of the dark one.
pub fn dark() -> String {
    let rule = |(light, dark): &Colour| {
        let hex = |RGBColor(red, green, blue): &RGBColor| format!("#{red:02X}{green:02X}{blue:02X}");
        let (light, dark) = (hex(light), hex(dark));
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}\n")
    };
    let colours = [PAPER, INK, SOFT, RULE];
    colours.iter().chain(&SERIES).map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64]) -> Scale {
        Scale::of(values.iter().copied())
    }

    #[test]
    fn scales_are_logarithmic_where_values_lie_far_apart() {
        assert!(!scale(&[1.0, 20.0]).logarithmic);
        assert!(scale(&[1.0, 21.0]).logarithmic);
        assert!(!scale(&[-1.0, 1.0, 100.0]).logarithmic, "what is below zero has no logarithm");
        assert!(scale(&[0.0, 1.0, 100.0]).logarithmic, "nothing is drawn at the edge");
        let tame = scale(&[3.0, 5.0]);
        assert_eq!((tame.range.start, tame.logarithmic), (0.0, false));
        assert!(!Scale::linear([1.0, 500.0].into_iter()).logarithmic);
    }

    #[test]
    fn every_value_lies_on_its_axis() {
        for values in [&[1.0, 2.0][..], &[0.0, 1e-3, 1e9], &[-3.0, -2.0], &[-3.0, 500.0], &[0.0], &[7.0], &[]]
        {
            let scale = scale(values);
            assert!(scale.range.start < scale.range.end, "{values:?}: {:?}", scale.range);
            for value in values {
                let at = scale.map(value, (0, 1000));
                assert!((0..=1000).contains(&at), "{values:?}: {value} at {at}");
            }
        }
    }

    #[test]
    fn a_logarithmic_axis_has_ticks_that_are_round_and_not_too_many() {
        let ticks = scale(&[1.0, 30.0]).key_points(8);
        assert_eq!(ticks, [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(scale(&[1.0, 9e3]).key_points(8), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn numbers_at_axes_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.30000000000000004, "0.3"),
            (5000.0, "5000"),
            (12_500.0, "12.5k"),
            (2e6, "2M"),
            (0.0002, "2e-4"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(-20.0), "-20");
    }

    #[test]
    fn nobody_looks_like_another() {
        let looks: Vec<Look> = (0..SERIES.len() * 4).map(Look::nth).collect();
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{look:?}");
        }
    }

    #[test]
    fn labels_are_escaped_and_odd_numbers_leave_no_trace() {
        let track = |value| Track { points: vec![(0.0, None), (value, Some(Look::nth(0)))] };
        let group = Group { label: "<b> & c".to_owned(), tracks: vec![track(5.0), track(1e-9)] };
        let svg = groups(&[group], "%").unwrap();
        assert!(svg.contains("&lt;b&gt; &amp; c") && !svg.contains("NaN"), "{svg}");
        assert!(groups(&[], "%").is_ok() && lines(&[], "threads", "%").is_ok());
    }
}
