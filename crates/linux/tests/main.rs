//! Locks on Linux.

mod handoff;
mod refused;
mod registry;
