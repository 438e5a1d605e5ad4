//! Rounds of measurements, with a progress bar on standard error where that is a terminal.

use std::io;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use terminal_size::{Width, terminal_size_of};

use crate::error::Result;

/// Has each of `n` measurements made once a round, in random order.
///
/// # Errors
/// The first that a measurement meets.
pub(crate) fn rounds(
    rounds: usize,
    n: usize,
    name: impl Fn(usize) -> String,
    mut measure: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let progress = Progress::new(rounds * n);
    let mut order: Vec<usize> = (0..n).collect();
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for &index in &order {
            progress.next(name(index));
            measure(index)?;
            progress.done();
        }
    }
    Ok(())
}

/// How far steps are that take about as long as each other.
const STEPS: &str = "{pos}/{len}";
/// How far milliseconds are.
const TIME: &str = "{percent}%";
/// What stands beside the bar takes less, without the words at the end, which are cut.
const BESIDE: usize = 30;

/// A line that fits the terminal, however narrow: one that wraps would be drawn below itself again and again.
fn bar(length: u64, counter: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let columns = terminal_size_of(io::stderr()).map_or(80, |(Width(columns), _)| usize::from(columns));
    let drawn = match columns.saturating_sub(BESIDE) / 2 {
        width @ 8.. => format!("{{bar:{}}} ", width.min(30)),
        _ => String::new(),
    };
    if let Ok(style) = ProgressStyle::with_template(&format!("{drawn}{counter} {{eta}} left  {{wide_msg}}")) {
        bar.set_style(style);
    }
    bar
}

/// A bar for as many steps, which take about as long as each other, on standard error where that is a
/// terminal.
pub fn steps(steps: usize) -> ProgressBar {
    bar(steps as u64, STEPS)
}

/// Shows how far a benchmark is; draws nothing if standard error is not a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(steps: usize) -> Progress {
        Progress(self::steps(steps))
    }

    /// For measurements of very different lengths, of which the plan knows: they take `total` together.
    pub(crate) fn of_time(total: Duration) -> Progress {
        Progress(bar(total.as_millis() as u64, TIME))
    }

    /// Says what is measured next.
    pub(crate) fn next(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
        self.0.tick();
    }

    pub(crate) fn done(&self) {
        self.0.inc(1);
    }

    /// What was to take so long is done.
    pub(crate) fn done_for(&self, planned: Duration) {
        self.0.inc(planned.as_millis() as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
