//! Rounds of measurements, with a progress bar on standard error where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

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

/// What a bar shows of steps that take about as long as each other.
const STEPS: &str = "{bar:30} {pos}/{len} {eta} left  {msg}";
/// What it shows of milliseconds.
const TIME: &str = "{bar:30} {percent}% {eta} left  {msg}";

/// Shows how far a benchmark is; draws nothing if standard error is not a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(steps: usize) -> Progress {
        Self::with(steps as u64, STEPS)
    }

    /// For measurements of very different lengths, of which the plan knows: they take `total` together.
    pub(crate) fn of_time(total: Duration) -> Progress {
        Self::with(total.as_millis() as u64, TIME)
    }

    fn with(length: u64, template: &str) -> Progress {
        let bar = ProgressBar::new(length);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress(bar)
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
