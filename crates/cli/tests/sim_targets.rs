//! `poundlock sim targets`: what it prints, that it follows from the points, and what it says to bad input.

use serde_json::Value;

use crate::support::{LIMIT, poundlock_bare, run_limited};

fn targets(arguments: &str) -> (Option<i32>, String, String) {
    let mut command = poundlock_bare();
    command.args(["sim", "targets"]).args(arguments.split_whitespace());
    let output = run_limited(&mut command, 2 * LIMIT);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A machine of four cores, from one thread a core to four.
const SMALL: &str = "--machine phenom-4 --threads 2,4,16 --critical 1 --think 2 --lock mcs,mcs-park";

#[test]
fn targets_follow_from_the_points_and_a_seed_fixes_them() {
    let directory = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let file = directory.path().join(name);
        let (status, text, said) = targets(&format!("{SMALL} --points --json {}", file.display()));
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("accesses in") && said.lines().count() == 1, "{said}");
        (text, std::fs::read_to_string(file).unwrap())
    };
    let (first, second) = (run("first"), run("second"));
    assert_eq!(first, second);
    let (text, json) = first;
    assert!(text.starts_with("phenom-4, 4 CPUs of 1 socket: 3 points, 100 simulated ms after 25"), "{text}");

    let json: Value = serde_json::from_str(&json).unwrap();
    let machine = &json["machines"][0];
    assert_eq!((&machine["machine"], &machine["cpus"]), (&"phenom-4".into(), &4.into()));
    let rate = |lock: &str, threads: u32| {
        let points = machine["points"].as_array().unwrap();
        let here = |point: &&Value| point["lock"] == lock && point["threads"] == threads;
        points.iter().find(here).unwrap()["thousands_a_second"].as_f64().unwrap()
    };
    let found = |about: &str| {
        let targets = machine["targets"].as_array().unwrap();
        let target = targets.iter().find(|target| target["about"].as_str().unwrap().contains(about)).unwrap();
        // With its verdict in the table.
        let row = text.lines().find(|line| line.contains(target["about"].as_str().unwrap())).unwrap();
        let verdict = target["found"]["verdict"].as_str().unwrap_or("not simulated");
        assert!(row.contains(verdict), "{row}");
        &target["found"]
    };
    let worst = [2, 4].map(|threads| rate("poundlock", threads) / rate("mcs", threads));
    let worst = worst.into_iter().reduce(f64::min).unwrap();
    // JSON's decimals are not read back to the last bit.
    let same = |about: &str, figure: f64| {
        let found = found(about)["figure"].as_f64().unwrap();
        assert!((found - figure).abs() < 1e-9, "{about}: {found}, not {figure}");
    };
    same("mcs's, worst", worst);
    assert_eq!(found("mcs's, worst")["verdict"], if worst >= 0.95 { "reached" } else { "missed" });
    same("its own", rate("poundlock", 16) / rate("poundlock", 4));
    let best = f64::max(rate("mcs", 16), rate("mcs-park", 16));
    same("best other", rate("poundlock", 16) / best);
    for about in ["transfers", "Jain's index over 100 ms", "longest time"] {
        assert!(found(about)["figure"].as_f64().unwrap() > 0.0, "{about}");
    }
    assert!(found("cna's").is_null() && found("cohort's").is_null());
    assert!(text.trim_end().ends_with(" targets reached, 2 not simulated"), "{text}");
}

#[test]
fn too_short_a_run_says_nothing_of_fairness() {
    let (status, text, said) = targets(&format!("{SMALL} --time 4"));
    assert_eq!(status, Some(0), "{said}");
    for about in ["Jain's index", "longest time"] {
        let row = text.lines().find(|line| line.contains(about)).unwrap();
        assert!(row.contains("not simulated"), "{row}");
    }
}

#[test]
fn bad_input_is_refused_in_a_line() {
    for (arguments, word) in [
        ("--machine cray-1", "'cray-1'"),
        ("--machine phenom-4 --lock mcs,musl", "'musl'"),
        ("--machine phenom-4 --ours musl", "'musl'"),
        ("--machine phenom-4 --critical=1,-1", "--critical"),
        ("--machine phenom-4 --think=nan", "--think"),
        ("--machine phenom-4 --time 0", "--time"),
    ] {
        let (status, text, said) = targets(arguments);
        assert_eq!((status, text.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{said}");
    }
    let (status, _, said) = targets("--machine phenom-4 --threads 4-2");
    assert!(status == Some(2) && said.contains("ends before it begins"), "{said}");
    let (status, text, said) = targets("--machine phenom-4 --json /nowhere/figures.json");
    assert_eq!((status, text.as_str()), (Some(125), ""));
    assert!(said.contains("/nowhere/figures.json: ") && said.lines().count() == 1, "{said}");
}
