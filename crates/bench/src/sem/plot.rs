//! Wake-ups among ever more sleepers, as a picture.

use plotters::prelude::*;
use serde_json::json;

use super::Mechanism;
use crate::error::{Error, Result};
use crate::plan::{Row, Rows};
use crate::worker::sem::Sleep;

/// Pixels.
const SIZE: (u32, u32) = (1440, 520);

/// Nanoseconds of a wake-up against the number of sleepers, both on logarithmic scales; a panel for each way
/// of sleeping. `None` if no sleepers were measured.
pub(super) fn svg(rows: &Rows) -> Result<Option<String>> {
    let points: Vec<(&Row, (f64, f64))> = rows
        .of("crowds")
        .filter_map(|row| Some((row, (row.label("sleepers").as_f64()?, row.get("ns")?.median))))
        .collect();
    if points.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    draw(&points, &mut svg).map_err(|error| Error::Options(format!("cannot draw: {error}")))?;
    Ok(Some(svg))
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

fn draw(
    points: &[(&Row, (f64, f64))],
    svg: &mut String,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (fewest, most) = range(points.iter().map(|(_, (number, _))| *number));
    let (cheapest, dearest) = range(points.iter().map(|(_, (_, ns))| *ns));
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
            let here: Vec<(f64, f64)> = points
                .iter()
                .filter(|(row, _)| row.who == mechanism.name() && row.is("sleep", json!(sleep)))
                .map(|(_, point)| *point)
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
