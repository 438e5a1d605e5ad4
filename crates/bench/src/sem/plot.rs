//! Wake-ups among ever more sleepers, as a picture.

use super::{Figures, Mechanism, Sleep};
use crate::error::Result;
use crate::plot::{Line, Look, panels};

impl Figures {
    /// Nanoseconds of a wake-up against the number of sleepers as an SVG document; a panel for each way of
    /// sleeping. `None` if no sleepers were measured.
    ///
    /// # Errors
    /// If the picture cannot be drawn.
    pub fn plot(&self) -> Result<Option<String>> {
        let line = |sleep: Sleep, (index, mechanism): (usize, Mechanism)| {
            let here = self.crowds.iter().filter(|cost| cost.mechanism == mechanism && cost.sleep == sleep);
            let points = here.map(|cost| (cost.sleepers as f64, cost.ns.median)).collect();
            Line { look: Look::nth(index), name: mechanism.name().to_owned(), points, spread: Vec::new() }
        };
        let panel = |sleep: Sleep| {
            let lines = Mechanism::ALL.into_iter().enumerate().map(|mechanism| line(sleep, mechanism));
            (sleep.words(), lines.filter(|line| !line.points.is_empty()).collect::<Vec<_>>())
        };
        let drawn = || panels(&Sleep::ALL.map(panel), "sleepers", "ns a wake-up");
        (!self.crowds.is_empty()).then(drawn).transpose()
    }
}
