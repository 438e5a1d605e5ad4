//! What is wrong, in three lines at most, each with the figure that says so and the line to look at.

use serde::Serialize;

use super::report::Report;

/// As many findings are shown.
const SHOWN: usize = 3;

/// Something to change.
#[derive(Serialize)]
pub(super) struct Finding {
    /// Which sort of trouble it is.
    pub(super) kind: &'static str,
    /// One sentence.
    pub(super) text: String,
}

/// The most important ones, the worst first.
pub(super) fn of(_report: &Report) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.truncate(SHOWN);
    findings
}
