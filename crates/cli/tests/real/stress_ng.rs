//! `stress-ng --mutex`: where it may, its threads change between real-time priorities while they hold the lock.

use crate::every_way;
use crate::how::How;
use crate::programs::need;

const OPERATIONS: u64 = 20_000;

fn mutex(how: How) {
    let Some(stress_ng) = need("stress-ng", "stress-ng") else { return };
    let operations = OPERATIONS.to_string();
    let args = ["--mutex", "2", "--mutex-procs", "8", "--mutex-ops", &operations];
    let args = [&args[..], &["--timeout", "0", "--metrics", "--verify"]].concat();
    let finished = how.launch(&stress_ng, &args).finish();

    // Versions differ in which of the two they write to.
    let output = finished.stdout + &finished.stderr;
    assert!(output.contains("successful run completed"), "{output}");
    assert!(!output.contains("fail:"), "{output}");
    let done = output.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mutex").skip(1);
        words.next()?.parse::<u64>().ok()
    });
    assert!(done.is_some_and(|done| done >= OPERATIONS), "{done:?} operations of {OPERATIONS}:\n{output}");
    if let Some(report) = finished.report {
        report.expect_threads(16);
        assert!(report.acquisitions >= OPERATIONS, "only {} acquisitions", report.acquisitions);
    }
}

every_way!(mutex);
