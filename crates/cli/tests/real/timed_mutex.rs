//! The C++ timed locks and waits: `tests/real/timed_mutex.cpp`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::real::every_way;
use crate::real::how::How;
use crate::support::compile_cpp;
use crate::support::need;

const SOURCE: &str = include_str!("../../../../tests/real/timed_mutex.cpp");

const EXPECTED: &str = "\
ledger: 32000 attempts accounted for
time-outs: none early
hand-over: 8 waiters served
recursion: 1000 deep
queue: 12000 items, each taken once
wait_for: runs out with the mutex held
broadcast: 500 rounds of 8 threads
condition_variable_any: 400 turns in order
exceptions: 8000 caught, nothing left locked
";

fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    need("c++", "g++")?;
    Some(PROGRAM.get_or_init(|| compile_cpp(SOURCE, &["-std=c++17"])))
}

fn timed_mutex(how: How) {
    let Some(program) = program() else { return };
    let finished = how.launch::<&str>(program, &[]).finish();
    assert_eq!(finished.text(), EXPECTED, "{}", finished.stderr);
    match finished.report {
        Some(report) => {
            report.expect_threads(8);
            report.expect_contention();
            // Compiled with debug information: the waits have lines.
            assert!(report.frames.iter().any(|frame| frame.contains("program.cpp:")), "{:#?}", report.frames);
        }
        None => assert_eq!(finished.stderr, ""),
    }
}

every_way!(timed_mutex);
