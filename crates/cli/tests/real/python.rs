//! CPython with eight threads: `tests/real/threads.py`.

use std::path::Path;

use crate::real::every_way;
use crate::real::how::How;
use crate::support::need;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/real/threads.py");

/// Follows from the script's counts; no run may print anything else.
const EXPECTED: &str = "\
locks 16000 16000 1600
buffer 2000 1999000
queue 2000 2664667000
pool 1014963 1313400
barrier 100 0
time-outs ok
";

fn threads(how: How) {
    let Some(python) = need("python3", "python3") else { return };
    let finished = how.launch(&python, &[Path::new(SCRIPT)]).finish();
    assert_eq!(finished.text(), EXPECTED);
    match finished.report {
        Some(report) => report.expect_threads(8),
        None => assert_eq!(finished.stderr, ""),
    }
}

every_way!(threads);
