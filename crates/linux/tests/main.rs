//! Locks on Linux.

mod handoff;
mod node;
mod refused;
mod registry;
