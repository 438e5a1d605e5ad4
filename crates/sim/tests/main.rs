//! The simulated machine, and the locks on it.

mod data;
mod guests;
mod locks;
mod machine;
mod phases;
mod priorities;
mod profile;
mod replay;
mod sembench;
mod turns;
