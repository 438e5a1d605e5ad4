//! The models. See the library's documentation on what they can show. Each prints how many executions it
//! explored: `cargo test -p poundlock-model -- --nocapture`.

mod adaptive;
mod common;
mod condvar;
mod fork;
mod handoff;
mod handoff_condvar;
mod handoff_memory;
mod handoff_planted;
mod last_touch;
mod mcs;
mod planted;
mod poundlock;
mod qspin;
mod qspin_fork;
mod qspin_paravirt;
mod qspin_planted;
mod rwlock;
mod semarray;
