//! What the tests of several crates need: children with a limit on their time, tools that may be missing,
//! programs in C that are compiled once, filters of system calls, and processes of their own. `main.rs` is
//! the program that runs all tests.

mod compile;
mod isolation;
mod need;
mod process;
mod seccomp;

pub use compile::{
    build, built, compile_c, compile_cpp, glibc_versions, made, preload_library, scratch, target_directory,
};
pub use isolation::{all_is_built, asleep, elsewhere, once_a_run, one_at_a_time};
pub use need::{find, missing, need, need_file, need_that_runs};
pub use process::{
    LIMIT, Started, ending, expect_status, from_a_terminal, run_limited, run_limited_with_input, start, until,
};
pub use seccomp::{Answer, Filter};
