//! What simulated machines do.

mod central;
pub mod jobs;
pub mod replay;
mod semaphore;
pub mod sembench;
pub mod sharing;
mod turns;

pub use turns::{Measured, Turns};
