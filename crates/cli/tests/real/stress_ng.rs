//! `stress-ng --mutex`: where it may, its threads change between real-time priorities while they hold the
//! lock.

use crate::real::every_way;
use crate::real::how::How;
use crate::support::{need, one_at_a_time};

/// Enough to outlast the creation of all threads: stress-ng fails if the first one has done it all before.
const OPERATIONS: u64 = 200_000;
const THREADS: u64 = 8;

fn mutex(how: How) {
    let Some(stress_ng) = need("stress-ng", "stress-ng") else { return };
    // Real-time threads on every CPU would keep stress-ng itself from running: one at a time.
    let _alone = one_at_a_time("real-time");
    let (threads, operations) = (THREADS.to_string(), OPERATIONS.to_string());
    let args = ["--mutex", "1", "--mutex-procs", &threads, "--mutex-ops", &operations];
    let args = [&args[..], &["--timeout", "0", "--metrics", "--verify"]].concat();
    let finished = how.launch(&stress_ng, &args).finish();

    // Versions differ in which of the two they write to.
    let output = finished.text().to_owned() + &finished.stderr;
    assert!(output.contains("successful run completed"), "{output}");
    assert!(!output.contains("fail:"), "{output}");
    let done = output.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mutex").skip(1);
        words.next()?.parse::<u64>().ok()
    });
    assert!(done.is_some_and(|done| done >= OPERATIONS), "{done:?} operations of {OPERATIONS}:\n{output}");
    if let Some(report) = finished.report {
        // Real-time threads may be through with it all before stress-ng has created the last ones.
        report.expect_threads(2);
        assert!(report.acquisitions >= OPERATIONS, "only {} acquisitions", report.acquisitions);
    }
}

every_way!(mutex);
