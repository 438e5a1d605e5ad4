//! The models. See the library's documentation on what they can show. Each prints how many executions it
//! explored: `cargo test -p poundlock-model -- --nocapture`.

mod adaptive;
mod condvar;
mod handoff;
mod handoff_condvar;
mod handoff_memory;
mod handoff_planted;
mod mcs;
mod orders;
mod poundlock;
mod poundlock_grants;
mod poundlock_sides;
mod qspin;
mod qspin_numa;
mod qspin_paravirt;
mod qspin_planted;
mod queue;
mod queue_sides;
mod rwlock;
mod scenes;
mod semarray;
