//! `stress-ng --mutex`: where it may, its threads change between real-time priorities while they hold the
//! lock.

use crate::real::every_way;
use crate::real::how::How;
use crate::support::{need, one_at_a_time};

/// A real-time thread may keep the one that creates the others from its CPU, and stress-ng fails if the first
/// is at the end by then. So time ends it: Linux leaves other threads a part of each second of a CPU (50 ms),
/// and two seconds hold one whole.
const SECONDS: &str = "2";
const THREADS: &str = "8";

fn mutex(how: How) {
    let Some(stress_ng) = need("stress-ng", "stress-ng") else { return };
    // Real-time threads on every CPU would keep stress-ng itself from running: one at a time.
    let _alone = one_at_a_time("real-time");
    let args = ["--mutex", "1", "--mutex-procs", THREADS, "--timeout", SECONDS, "--metrics", "--verify"];
    let finished = how.launch(&stress_ng, &args).finish();

    // Versions differ in which of the two they write to.
    let output = finished.text().to_owned() + &finished.stderr;
    assert!(output.contains("successful run completed"), "{output}");
    assert!(!output.contains("fail:"), "{output}");
    let done = output.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mutex").skip(1);
        words.next()?.parse::<u64>().ok()
    });
    let done = done.filter(|done| *done > 0).unwrap_or_else(|| panic!("no operations counted:\n{output}"));
    if let Some(report) = finished.report {
        // The one that creates the others may be kept from creating the last ones.
        report.expect_threads(2);
        assert!(report.acquisitions >= done, "{} acquisitions for {done} operations", report.acquisitions);
    }
}

every_way!(mutex);
