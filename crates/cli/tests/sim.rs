//! `poundlock sim`: what it prints, that it prints the same each time, and what it says to bad input.

mod support;

use std::process::Command;

use serde_json::Value;
use support::{LIMIT, poundlock_bare, run_limited};

#[track_caller]
fn said(arguments: &[&str]) -> String {
    let mut command: Command = poundlock_bare();
    let output = run_limited(command.arg("sim").args(arguments), 2 * LIMIT);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{stderr}", output.status);
    assert_eq!(stderr, "", "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let mut command = poundlock_bare();
    let output = run_limited(command.arg("sim").args(arguments), LIMIT);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn machines_workloads_tables_and_locks_are_listed() {
    let list = said(&["list"]);
    for name in ["westmere-ex-8s", "ivybridge-ex-4s", "numaconnect-512", "phenom-4", "here"] {
        assert!(list.contains(name), "{name}: {list}");
    }
    for name in [
        "grid",
        "aim7-3.7:high_systime",
        "aim7-3.7:short",
        "mutex_fserver_jpm",
        "poundlock",
        "qspin-pv",
        "ticket",
    ] {
        assert!(list.contains(name), "{name}: {list}");
    }
    let machine = said(&["list", "westmere-ex-8s"]);
    assert!(machine.contains("cores_a_socket = 10"), "{machine}");
    // Each number has a source.
    assert!(machine.lines().skip(3).all(|line| line.split("  ").count() >= 2), "{machine}");
}

#[test]
fn a_seed_fixes_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    let run = |seed: &str| {
        let text = said(&[
            "run",
            "--machine",
            "westmere-ex-8s",
            "--workload",
            "grid",
            "--lock",
            "poundlock,mcs",
            "--threads",
            "4-12:8",
            "--time",
            "1",
            "--seed",
            seed,
            "--json",
            file.to_str().unwrap(),
        ]);
        (text, std::fs::read_to_string(&file).unwrap())
    };
    let (first, second, other) = (run("7"), run("7"), run("8"));
    assert_eq!(first, second);
    assert_ne!(first.1, other.1);
    let json: Value = serde_json::from_str(&first.1).unwrap();
    let runs = json["runs"].as_array().unwrap();
    let who: Vec<_> =
        runs.iter().map(|run| (run["threads"].as_u64().unwrap(), run["lock"].as_str().unwrap())).collect();
    assert_eq!(who, [(4, "poundlock"), (4, "mcs"), (12, "poundlock"), (12, "mcs")]);
    for run in runs {
        assert!(run["figures"]["thousands a second"].as_f64().unwrap() > 0.0, "{run}");
    }
}

#[test]
fn parts_of_machines_can_be_run_on() {
    let run = |more: &[&str]| {
        let arguments = [
            "run",
            "--machine",
            "westmere-ex-8s",
            "--workload",
            "aim7-3.7:high_systime",
            "--lock",
            "mcs-queue",
        ];
        let rest = ["--threads", "20", "--time", "20"];
        said(&[&arguments[..], &rest[..], more].concat())
    };
    assert!(run(&["--sockets", "1", "--no-smt"]).contains("10 CPUs of 1 sockets"));
    assert!(run(&["--sockets", "2"]).contains("40 CPUs of 2 sockets"));
}

#[test]
fn this_machine_can_be_measured_described_and_run_on() {
    let description = said(&["measure"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    std::fs::write(&file, &description).unwrap();
    let text = said(&[
        "run",
        "--machine",
        file.to_str().unwrap(),
        "--workload",
        "grid",
        "--lock",
        "poundlock",
        "--threads",
        "2",
        "--time",
        "1",
    ]);
    assert!(text.contains("grid on here"), "{text}");
}

#[test]
fn predictions_are_compared_with_measurements() {
    let text = said(&["validate", "--lock", "poundlock", "--threads", "1,2", "--rounds", "1"]);
    assert!(text.contains("median error"), "{text}");
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("poundlock")).count(), 8, "{text}");
}

#[test]
fn bad_input_is_refused_in_a_line() {
    let run = |machine: &str, workload: &str, lock: &str, more: &[&str]| {
        let arguments =
            ["run", "--machine", machine, "--workload", workload, "--lock", lock, "--threads", "4"];
        refused(&[&arguments[..], more].concat())
    };
    let line = run("cray-1", "grid", "mcs", &[]);
    assert!(line.contains("'cray-1'") && line.contains("phenom-4"), "{line}");
    let line = run("nowhere.toml", "grid", "mcs", &[]);
    assert!(line.contains("nowhere.toml"), "{line}");
    let line = run("phenom-4", "doom", "mcs", &[]);
    assert!(line.contains("'doom'") && line.contains("aim7-3.7:shared"), "{line}");
    let line = run("phenom-4", "grid", "glibc", &[]);
    assert!(line.contains("'glibc'") && line.contains("any-negative"), "{line}");
    let line = run("phenom-4", "grid", "mcs", &["--sockets", "2"]);
    assert!(line.contains("sockets") && line.contains("between 1 and 1"), "{line}");
    let line = run("phenom-4", "grid", "mcs", &["--critical=-1"]);
    assert!(line.contains("--critical"), "{line}");
    let line = run("phenom-4", "aim7-3.7:shared", "mcs", &["--critical", "1"]);
    assert!(line.contains("grid"), "{line}");
    let line = refused(&["reproduce", "table"]);
    assert!(line.contains("'table'") && line.contains("mutex_fserver_jpm"), "{line}");
    for line in [line, refused(&["list", "cray-1"])] {
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    let line =
        refused(&["run", "--machine", "phenom-4", "--workload", "grid", "--lock", "mcs", "--threads", "4-2"]);
    assert!(line.contains("ends before it begins"), "{line}");
}

#[test]
fn a_machine_file_that_makes_no_sense_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("odd.toml");
    for (text, word) in [("sockets = 1", "missing field"), ("sockets = ", "odd.toml")] {
        std::fs::write(&file, text).unwrap();
        let name = file.to_str().unwrap();
        let line =
            refused(&["run", "--machine", name, "--workload", "grid", "--lock", "mcs", "--threads", "1"]);
        assert!(line.contains(word), "{line}");
    }
}
