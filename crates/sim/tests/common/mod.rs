//! A machine for tests: two sockets, two cores each, with two threads a core. Its numbers are round, and of
//! no real machine.

#[allow(
    unused_imports,
    reason = "each test binary compiles this module for itself and uses a part of it"
)]
pub(crate) use poundlock_sim::check::{calm, hurried};
