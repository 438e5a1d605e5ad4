//! `poundlock bench report`: a result directory as a page, read in a real browser.
//!
//! A script of the test stands behind the page's own: it looks at what was drawn, and works the page's
//! controls.

use std::path::Path;

use crate::support::browser::{Browser, Seen, VIEWS, View};
use crate::support::{LIMIT, expect_status, poundlock_bare, run_limited};
use poundlock_bench::grid::result::{
    Absent, Floors, Kind, Outcome, Peer, Point, Run, Sample, SleepWake, Transfer, VERSION, Wake,
};
use poundlock_bench::{Calibration, Machine, Summary};
use serde_json::Value;

/// A name that is a program, for whoever does not escape it.
const HOSTILE: &str = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">";

const PEERS: [(&str, bool, bool); 18] = [
    ("empty", false, false),
    ("glibc", false, false),
    ("glibc-adaptive", false, false),
    ("glibc-spin", false, true),
    ("std", false, false),
    ("parking_lot", false, false),
    ("usync", false, false),
    ("abseil", false, false),
    ("nsync", false, false),
    ("onetbb", false, false),
    ("onetbb-queuing", false, true),
    ("ck-mcs", false, true),
    ("ck-clh", false, true),
    ("ck-ticket", false, true),
    ("poundlock", true, false),
    ("any-negative", true, false),
    ("qspin-virt", true, true),
    (HOSTILE, false, false),
];
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 64, 250];
const CRITICAL: [f64; 2] = [0.0, 20.0];
const THINK: [f64; 2] = [0.0, 10.0];

/// The number of points with different work. A real run has more, each with charts of its own: nothing else
/// is on its page, which takes a browser longer.
const POINTS: u64 = (CRITICAL.len() * THINK.len()) as u64;

/// A run, in a directory of its own.
fn made_up(rounds: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let run = run(rounds);
    let json = serde_json::to_string_pretty(&run).unwrap();
    std::fs::write(directory.path().join("run.json"), json).unwrap();
    std::fs::write(directory.path().join("floors.json"), serde_json::to_string(&floors()).unwrap()).unwrap();
    let mut lines = String::new();
    for round in 0..rounds {
        for (point, what) in run.points.iter().enumerate() {
            for (number, peer) in run.peers.iter().enumerate() {
                let sample = Sample {
                    point,
                    lock: peer.name.clone(),
                    round,
                    outcome: outcome(what, peer, number, round),
                };
                lines += &serde_json::to_string(&sample).unwrap();
                lines.push('\n');
            }
        }
    }
    std::fs::write(directory.path().join("samples.jsonl"), lines).unwrap();
    directory
}

fn run(rounds: usize) -> Run {
    let mut points = Vec::new();
    for critical in CRITICAL {
        for think in THINK {
            points.extend(THREADS.map(|threads| Point::new(Kind::Grid, threads, critical, think, 0.2)));
        }
    }
    let others = [Kind::Modal, Kind::SleepingHolder, Kind::Hogs, Kind::Buckets, Kind::LockBench];
    points.extend(others.map(|kind| Point::new(kind, 16, 1.0, 2.0, 0.2)));
    Run {
        version: VERSION,
        machine: Machine { optimised: true, ..Machine::describe("poundlock bench grid --out results") },
        started: 1_795_000_000,
        calibration: Calibration { ns_per_step: 1.6 },
        peers: PEERS
            .iter()
            .map(|&(name, ours, spins)| Peer {
                name: name.into(),
                description: "a lock, in a few words that say what it is".into(),
                origin: "Debian libexample-dev 20220623.1-1".into(),
                ours,
                spins,
            })
            .collect(),
        absent: vec![Absent {
            name: "ck-cohort".into(),
            why: "apt-get install libck-dev, and build again".into(),
        }],
        ours: "poundlock".into(),
        points,
        rounds,
        cpus: vec![0, 1],
        pinned: false,
    }
}

fn floors() -> Floors {
    let [cas, store, load, line, back, same_cpu, other_cpu, driver, timing] =
        [10.0, 6.0, 1.0, 70.0, 71.0, 2000.0, 5000.0, 3.0, 20.0]
            .map(|ns| Summary::of([ns, ns * 1.1, ns * 1.2]).unwrap());
    Floors {
        bare_cas_ns: cas,
        bare_cas_store_ns: store,
        bare_load_store_ns: load,
        pause_ns: line,
        line_transfer_ns: vec![Transfer { from: 0, to: 1, ns: line }, Transfer { from: 1, to: 0, ns: back }],
        futex_sleep_wake_ns: SleepWake {
            same_cpu,
            other_cpu: Some(other_cpu),
            nobody: line,
            switch: same_cpu,
            turn_ns: 0.7,
            queues: same_cpu,
            other: Some(Wake { call: same_cpu, runs: other_cpu }),
            preempts: same_cpu,
            idle: None,
        },
        driver_ns: driver,
        timing_ns: timing,
        interrupts: None,
    }
}

/// Something of every size: locks that hold, locks that fall, one that starves and one that fails.
fn outcome(point: &Point, peer: &Peer, number: usize, round: usize) -> Outcome {
    if peer.name == "usync" && point.threads == 250 && point.critical_us == 20.0 {
        return Outcome::Failed(format!("still waiting after {} s", 10 * (round + 1)));
    }
    let inside = point.critical_us * 1000.0 + 15.0 + number as f64;
    let outside = point.think_us * 1000.0;
    let threads = point.threads as f64;
    let ideal = (1e9 / inside).min(threads.min(2.0) * 1e9 / (inside + outside));
    let noise = 1.0 + 0.07 * ((number * 7 + round * 5 + point.threads) % 5) as f64;
    let crowd = if peer.spins {
        1.0 / (threads / 2.0).max(1.0).powf(1.5)
    } else {
        1.0 / threads.powf(0.03 * number as f64)
    };
    let rate = ideal * crowd / noise;
    let wait = threads * 1e9 / rate;
    let figures = [
        ("throughput", rate),
        ("ns", 1e9 / rate),
        ("cpu_ns", 2e9 / rate),
        ("involuntary", 40.0 * round as f64 / rate),
        ("voluntary", 1000.0 / rate),
        ("jain", 1.0 / (1.0 + number as f64 * threads.log2() / 40.0)),
        ("others", 0.01 * round as f64),
        ("waits.p50_ns", wait / 3.0),
        ("waits.p99_ns", wait),
        ("waits.p999_ns", wait * 4.0),
        ("waits.max_ns", wait * 30.0),
    ];
    Outcome::Figures(figures.map(|(name, value)| (name.to_owned(), value)).into())
}

#[track_caller]
fn report(directory: &Path) -> String {
    let mut command = poundlock_bare();
    command.args(["bench", "report"]).arg(directory);
    let output = run_limited(&mut command, LIMIT);
    expect_status(&output, 0);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

/// A report that is refused: its exit status and its line.
#[track_caller]
fn refused(directory: &Path) -> (Option<i32>, String) {
    let out = directory.join("page.html");
    let mut command = poundlock_bare();
    command.args(["bench", "report"]).arg(directory).arg("--out").arg(&out);
    let output = run_limited(&mut command, LIMIT);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(!out.exists(), "no page of nothing");
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.matches('\n').count(), 1, "{line}");
    (output.status.code(), line)
}

#[test]
fn a_page_goes_to_a_file_or_to_standard_output() {
    let directory = made_up(1);
    let page = report(directory.path());
    let out = directory.path().join("page.html");
    // What was there before must be gone, however long it was.
    std::fs::write(&out, "x".repeat(1 << 23)).unwrap();
    let mut command = poundlock_bare();
    command.args(["bench", "report"]).arg(directory.path()).arg("--out").arg(&out);
    let output = run_limited(&mut command, LIMIT);
    expect_status(&output, 0);
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0));
    assert!(std::fs::read_to_string(&out).unwrap() == page, "the same page twice");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn the_same_figures_as_markdown() {
    let directory = made_up(2);
    let mut command = poundlock_bare();
    command.args(["bench", "report", "--markdown", "--targets"]).arg(directory.path());
    let output = run_limited(&mut command, LIMIT);
    expect_status(&output, 0);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.starts_with("# The grid\n"), "{page}");
    for title in ["### Who takes part", "### Targets"] {
        assert!(page.contains(title), "{title} is missing: {page}");
    }
    // Each row has as many cells as the heading above it.
    let cells = |line: &str| line.matches(" | ").count();
    let mut heading = None;
    for line in page.lines() {
        heading = match (line.starts_with('|'), heading) {
            (false, _) => None,
            (true, None) => Some(cells(line)),
            (true, Some(number)) => {
                assert_eq!(cells(line), number, "{line}");
                heading
            }
        };
    }
    assert!(page.matches("\n| ").count() > 20, "{page}");
}

#[test]
fn directories_without_results_and_damaged_ones_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    let (status, line) = refused(empty.path());
    assert_eq!(status, Some(125));
    assert!(line.contains("holds no results"), "{line}");
    let (status, line) = refused(&empty.path().join("gone"));
    assert_eq!(status, Some(125), "{line}");

    let directory = made_up(1);
    let damage = |file: &str, text: &str| {
        let path = directory.path().join(file);
        let before = std::fs::read(&path).unwrap();
        std::fs::write(&path, text).unwrap();
        let refused = refused(directory.path());
        std::fs::write(&path, before).unwrap();
        refused
    };
    for (file, text, said) in [
        ("run.json", "{\"version\": 2}", "run.json is damaged"),
        ("run.json", "\u{0}\u{1}", "run.json is damaged"),
        ("run.json", "{\"version\": 99}", "version 99"),
        ("floors.json", "[]", "floors.json is damaged"),
        ("samples.jsonl", "{\"point\": 0}\n", "samples.jsonl is damaged"),
        ("samples.jsonl", "{\"point\":0,\"lock\":\"other\",\"round\":0,\"failed\":\"x\"}\n", "'other'"),
    ] {
        let (status, line) = damage(file, text);
        assert_eq!(status, Some(125), "{line}");
        assert!(line.contains(said), "{line}");
    }
    // As it was, it is a page.
    report(directory.path());
}

#[test]
fn a_torn_last_line_is_an_interrupted_run() {
    let directory = made_up(2);
    let path = directory.path().join("samples.jsonl");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() * 3 / 4]).unwrap();
    assert!(report(directory.path()).contains("This run is not complete."));
}

/// Has the page drawn with the probe in it, and with or without its own script.
#[track_caller]
fn look(browser: &Browser, page: &str, scripted: bool, view: View) -> Seen {
    let early = "<head><script>window.wrong=[];\
        window.onerror=message=>{wrong.push(String(message))};\
        document.addEventListener('securitypolicyviolation',event=>{wrong.push(event.violatedDirective)});\
        console.error=message=>{wrong.push(String(message))};</script>";
    assert_eq!(page.matches("<head>").count(), 1);
    let mut page = page.replacen("<head>", early, 1);
    if !scripted {
        let (start, end) = (page.rfind("<script>").unwrap(), page.rfind("</script>").unwrap());
        page.replace_range(start..end + "</script>".len(), "");
    }
    let probe = format!("const scripted={scripted};{}", include_str!("report/probe.js"));
    let [seen] = browser.draw([page.as_str()], &probe, view);
    assert_eq!(seen.findings["wrong"], Value::Array(vec![]), "{view:?}: {:#}", seen.findings);
    assert_eq!(seen.console, Vec::<String>::new());
    seen
}

#[test]
fn a_browser_draws_the_whole_page() {
    let Some(browser) = Browser::installed() else { return };
    let page = report(made_up(3).path());
    for view in VIEWS {
        let seen = look(&browser, &page, true, view);
        // Throughput, four quantiles, CPU time and two sorts of switches, fairness.
        assert_eq!(seen.number("plots"), POINTS * 9);
        // Of those, one quantile and one of CPU time and switches are shown at a time.
        assert_eq!(seen.number("shown"), POINTS * 4);
        // All but the one that does nothing, and two of ours that are not shown at first.
        assert_eq!(seen.number("bars"), 5 * (PEERS.len() as u64 - 3));
        assert_eq!(seen.number("cells"), POINTS * 7);
        assert_eq!(seen.number("columns"), 7, "the tip was asked for at each");
        assert!(seen.number("names") > 60 * POINTS, "{}", seen.findings);
        assert_eq!(seen.findings["title"], "poundlock beside the locks that people use");
    }
}

#[test]
fn the_page_needs_no_script() {
    let Some(browser) = Browser::installed() else { return };
    let directory = made_up(1);
    let seen = look(&browser, &report(directory.path()), false, VIEWS[0]);
    assert_eq!((seen.number("plots"), seen.number("shown")), (POINTS * 9, POINTS * 4));
}

#[test]
fn an_interrupted_run_is_drawn_as_far_as_it_goes() {
    let Some(browser) = Browser::installed() else { return };
    let directory = made_up(1);
    let path = directory.path().join("samples.jsonl");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    std::fs::remove_file(directory.path().join("floors.json")).unwrap();
    let seen = look(&browser, &report(directory.path()), true, VIEWS[0]);
    let plots = seen.number("plots");
    assert!(plots > 0 && plots < POINTS * 9, "{plots} plots of half a run");
}
