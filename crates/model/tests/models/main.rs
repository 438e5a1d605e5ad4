//! The models. See the library's documentation on what they can show. Each prints how many executions it explored:
//! `cargo test -p poundlock-model -- --nocapture`.

mod barging;
mod common;
mod condvar;
mod fork;
mod handoff;
mod handoff_condvar;
mod handoff_memory;
mod handoff_planted;
mod last_touch;
mod mcs;
mod mutex;
mod planted;
mod rwlock;
mod semarray;
mod spin;
mod spin_fork;
mod spin_paravirt;
mod spin_planted;
