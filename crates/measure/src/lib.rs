//! What `poundlock stat` and the benchmarks have in common: what a figure was measured on, how far repeated ones
//! spread, and the frame of the page that they are shown on.

pub mod affinity;
pub mod clock;
mod machine;
pub mod page;
mod stats;

pub use clock::Usage;
pub use machine::{Machine, Others, busy_line, busy_run_line};
pub use stats::{Summary, jain};
