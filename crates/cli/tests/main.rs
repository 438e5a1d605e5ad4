//! What the command does, seen from outside: one module a subject.

mod bench;
mod check;
mod docs;
mod dropin;
mod manual;
mod misuse;
mod odd_systems;
mod output;
mod preload;
mod qspin;
mod real;
mod report;
mod run_signals;
mod run_starts;
mod rwlock;
mod semarray;
mod sim;
mod sim_check;
mod sim_targets;
mod stat_diagnosis;
mod stat_page;
mod stat_reports;
mod stat_ways;
mod support;
mod torture;
