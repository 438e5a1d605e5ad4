//! What simulated machines do.

pub mod aim7;
mod central;
mod turns;

pub use turns::{Measured, Turns};
