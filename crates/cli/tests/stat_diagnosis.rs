//! `poundlock stat`: what it says is wrong with programs that have one thing wrong, and with their twins, which
//! have not (`tests/stat`).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{LIMIT, build, expect_status, list, poundlock, run_limited, scratch, stderr};
use serde_json::Value;

fn compiled(name: &str) -> (PathBuf, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stat").join(format!("{name}.c"));
    let source = source.canonicalize().expect("the source is there");
    let program = scratch().join(name);
    build(
        Command::new("cc").args(["-O1", "-g", "-Wall", "-Wextra", "-pthread"]).arg(&source),
        &source,
        &program,
    );
    (source, program)
}

/// The kinds of the findings, the line that the first one names, and the whole report.
#[track_caller]
fn findings(program: &Path) -> (Vec<String>, Vec<String>, String) {
    let json = scratch().join("report.json");
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "400").args(["stat", "--json"]).arg(&json).arg("--").arg(program);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(json).expect("the JSON is there")).expect("JSON");
    let found = list(&document, "diagnosis");
    assert!(found.len() <= 3, "{document:#}");
    let of = |key: &str| found.iter().map(|one| one[key].as_str().expect("a text").to_owned()).collect();
    for finding in found {
        assert!(stderr(&output).contains(finding["text"].as_str().expect("a text")), "{}", stderr(&output));
    }
    (of("kind"), of("line"), stderr(&output))
}

/// The program gets this finding, at the line that is marked if one is; the twin does not.
#[track_caller]
fn check(kind: &str) {
    let (source, program) = compiled(kind);
    let (kinds, lines, report) = findings(&program);
    assert!(kinds.iter().any(|found| found == kind), "{kinds:?}\n{report}");
    let text = std::fs::read_to_string(source).expect("the source");
    if let Some(at) = text.lines().position(|line| line.contains("/* HERE */")) {
        let place = kinds.iter().position(|found| found == kind).expect("it is there");
        assert!(lines[place].contains(&format!("{kind}.c:{})", at + 1)), "{lines:?}\n{report}");
    }
    let (_, twin) = compiled(&format!("{kind}_not"));
    let (kinds, _, report) = findings(&twin);
    assert!(!kinds.iter().any(|found| found == kind), "{kinds:?}\n{report}");
}

macro_rules! kinds {
    ($($kind:ident)*) => {$(
        #[test]
        fn $kind() {
            check(stringify!($kind));
        }
    )*};
}

kinds! { too_long too_often preempted blocked writing_readers storm }

#[test]
fn false_alarm() {
    let (_, program) = compiled("false_alarm");
    let (kinds, _, report) = findings(&program);
    assert_eq!(kinds, ["false_alarm"], "{report}");
    let (_, twin) = compiled("too_long");
    let (kinds, _, report) = findings(&twin);
    assert!(!kinds.iter().any(|found| found == "false_alarm"), "{report}");
}
