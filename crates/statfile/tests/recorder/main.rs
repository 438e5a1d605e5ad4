//! The recorder and the reader, together: one writes while the other reads, in one process and in several.

mod blocking;
mod checking;
mod common;
mod counting;
mod damage;
mod holders;
mod processes;
mod traced;
