//! Rounds of measurements, with a progress bar on standard error where that is a terminal.

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

/// Shows how far a benchmark is; draws nothing if standard error is not a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(steps: usize) -> Progress {
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} left  {msg}") {
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
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
