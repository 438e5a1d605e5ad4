//! Poundlock as C and C++ programs get it: installed by cargo-c, found by pkg-config, linked as a shared and
//! as a static library, under gcc and clang.
//!
//! It is installed once for all of these tests, into a directory of the run's. A tool that is missing is
//! reported on standard error and the tests that need it pass; with `POUNDLOCK_REAL=require` in the
//! environment, as `.ci/run` has it, they fail.

mod examples;
mod header;
mod man;
mod programs;
mod seen;
mod setup;
mod symbols;
