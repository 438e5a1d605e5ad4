//! The crate's types, its examples, and what else programs see of it.

mod examples;
mod fork_unwiped;
mod locks;
#[cfg(feature = "stats")]
mod stats;
mod unload;
