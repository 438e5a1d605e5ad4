//! The grid: every lock that people use, at every point, through one interface.

pub mod result;
