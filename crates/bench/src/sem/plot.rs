//! Wake-ups among ever more sleepers, as a picture.

use plotters::prelude::*;

use super::{Cost, Figures, Mechanism, Sleep};
use crate::error::{Error, Result};

/// Pixels.
const SIZE: (u32, u32) = (1440, 520);

impl Figures {
    /// Nanoseconds of a wake-up against the number of sleepers, both on logarithmic scales, as an SVG
    /// document; a panel for each way of sleeping. `None` if no sleepers were measured.
    ///
    /// # Errors
    /// If the picture cannot be drawn.
    pub fn plot(&self) -> Result<Option<String>> {
        if self.crowds.is_empty() {
            return Ok(None);
        }
        let mut svg = String::new();
        draw(self, &mut svg).map_err(|error| Error::Options(format!("cannot draw: {error}")))?;
        Ok(Some(svg))
    }
}

/// Told apart without colours, too: the order of the names is that of the lines at their right end, as a
/// rule.
fn colour(mechanism: Mechanism) -> RGBColor {
    match mechanism {
        Mechanism::Kernel => RGBColor(0, 0, 0),
        Mechanism::Before => RGBColor(213, 94, 0),
        Mechanism::After => RGBColor(0, 114, 178),
        Mechanism::SharedLine => RGBColor(86, 180, 233),
        Mechanism::Combining => RGBColor(0, 158, 115),
        Mechanism::Futex => RGBColor(150, 150, 150),
        Mechanism::Nanosleep => RGBColor(200, 200, 200),
    }
}

fn draw(figures: &Figures, svg: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let costs = &figures.crowds;
    let number = |cost: &Cost| cost.sleepers as f64;
    let (fewest, most) = range(costs.iter().map(number));
    let (cheapest, dearest) = range(costs.iter().map(|cost| cost.ns.median));
    for (panel, sleep) in area.split_evenly((1, Sleep::ALL.len())).into_iter().zip(Sleep::ALL) {
        let mut chart = ChartBuilder::on(&panel)
            .margin(12)
            .caption(sleep.words(), ("sans-serif", 15))
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(
                (fewest * 0.9..most * 1.1).log_scale(),
                (cheapest * 0.7..dearest * 1.4).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("sleepers")
            .y_desc("ns a wake-up")
            .x_label_formatter(&|number| format!("{number:.0}"))
            .y_label_formatter(&|ns| format!("{ns:.0}"))
            .light_line_style(RGBColor(240, 240, 240))
            .draw()?;
        for mechanism in Mechanism::ALL {
            let here: Vec<(f64, f64)> = costs
                .iter()
                .filter(|cost| cost.mechanism == mechanism && cost.sleep == sleep)
                .map(|cost| (number(cost), cost.ns.median))
                .collect();
            if here.is_empty() {
                continue;
            }
            let colour = colour(mechanism);
            chart
                .draw_series(LineSeries::new(here, colour.stroke_width(2)).point_size(3))?
                .label(mechanism.name())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
    }
    area.present()?;
    Ok(())
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(value), most.max(value)))
}
