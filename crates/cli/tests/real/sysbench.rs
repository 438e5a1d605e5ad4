//! `sysbench`'s own lock tests.

use crate::real::how::{Finished, How};
use crate::support::need;

const THREADS: u64 = 8;

/// Runs a test of sysbench and returns what it left once its own summary says that all `events` took place.
fn sysbench(how: How, test: &str, options: &[&str], events: u64) -> Option<Finished> {
    let program = need("sysbench", "sysbench")?;
    let mut args = vec![test, "--threads=8", "--time=0"];
    args.extend(options);
    args.push("run");
    let finished = how.launch(&program, &args).finish();
    assert_eq!(field(finished.text(), "Number of threads:"), THREADS, "{}", finished.text());
    assert_eq!(field(finished.text(), "total number of events:"), events, "{}", finished.text());
    if let Some(report) = &finished.report {
        report.expect_threads(THREADS);
    } else {
        assert_eq!(finished.stderr, "");
    }
    Some(finished)
}

/// The number behind `name` on its line.
#[track_caller]
fn field(output: &str, name: &str) -> u64 {
    output
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok())
        .unwrap_or_else(|| panic!("no number behind {name:?} in\n{output}"))
}

mod threads {
    use super::sysbench;
    use crate::real::every_way;
    use crate::real::how::How;

    /// Eight threads that hold four mutexes over calls of `sched_yield`.
    fn threads(how: How) {
        let options = ["--events=2000", "--thread-yields=100", "--thread-locks=4"];
        if let Some(report) = sysbench(how, "threads", &options, 2000).and_then(|finished| finished.report) {
            // Held over 100 calls of sched_yield, 2,000 times.
            report.expect_contention();
        }
    }

    every_way!(threads);
}

mod mutex {
    use super::{THREADS, sysbench};
    use crate::real::every_way;
    use crate::real::how::How;

    /// Eight threads that take 20,000 short locks each, spread over eight mutexes. Each thread is one event.
    fn mutex(how: How) {
        let options = ["--mutex-num=8", "--mutex-locks=20000", "--mutex-loops=100"];
        if let Some(report) = sysbench(how, "mutex", &options, THREADS).and_then(|finished| finished.report) {
            assert!(report.acquisitions >= THREADS * 20_000, "only {} acquisitions", report.acquisitions);
        }
    }

    every_way!(mutex);
}
