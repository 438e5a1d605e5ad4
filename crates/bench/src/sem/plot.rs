//! Wake-ups among ever more sleepers, as a picture.

use serde_json::json;

use super::Mechanism;
use crate::error::Result;
use crate::plan::Rows;
use crate::plot::{Line, Look, panels};
use crate::worker::sem::Sleep;

/// Nanoseconds of a wake-up against the number of sleepers as an SVG document; a panel for each way of
/// sleeping. `None` if no sleepers were measured.
pub(super) fn svg(rows: &Rows) -> Result<Option<String>> {
    let line = |sleep: Sleep, (index, mechanism): (usize, Mechanism)| {
        let here =
            rows.of("crowds").filter(|row| row.who == mechanism.name() && row.is("sleep", json!(sleep)));
        let point = here.filter_map(|row| Some((row.label("sleepers").as_f64()?, row.get("ns")?.median)));
        let name = mechanism.name().to_owned();
        Line { look: Look::nth(index), name, points: point.collect(), spread: Vec::new() }
    };
    let panel = |sleep: Sleep| {
        let lines = Mechanism::ALL.into_iter().enumerate().map(|mechanism| line(sleep, mechanism));
        (sleep.words(), lines.filter(|line| !line.points.is_empty()).collect::<Vec<_>>())
    };
    let drawn = || panels(&Sleep::ALL.map(panel), "sleepers", "ns a wake-up");
    rows.of("crowds").next().map(|_| drawn()).transpose()
}
