//! What `poundlock stat` and `poundlock check` see of a program that is linked with the library, shared or
//! static.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use poundlock_testing::{LIMIT, built, expect_status, preload_library, run_limited, scratch};
use serde_json::Value;

use crate::setup::{CLANG, Compiler, GCC, Installed, installed, run, source};

/// How a program that is linked dynamically gets the library.
#[derive(Clone, Copy, Debug)]
enum Form {
    Shared,
    Archive,
}

/// A program with lines, linked with the installed library.
#[track_caller]
fn linked(installed: &Installed, compiler: &Compiler, form: Form, program: &Path) -> PathBuf {
    let executable = scratch().join(program.file_stem().expect("a name"));
    let mut command = compiler.start(&["-g", "-O1", "-pthread"]);
    command.arg("-o").arg(&executable).arg(program).args(installed.pkg_config(&["--cflags"]));
    match form {
        Form::Shared => command.args(installed.pkg_config(&["--libs"])),
        Form::Archive => command.arg(installed.file("lib/libpoundlock.a")),
    };
    run(&mut command);
    executable
}

/// `tests/capi/seen.c`, in both forms.
#[track_caller]
fn programs(installed: &Installed) -> Vec<(Form, PathBuf)> {
    let forms = [(&GCC, Form::Shared), (&CLANG, Form::Archive)];
    let there = forms.into_iter().filter(|(compiler, _)| compiler.is_there());
    let path = source("tests/capi/seen.c");
    there.map(|(compiler, form)| (form, linked(installed, compiler, form, &path))).collect()
}

/// Runs a program by a command of `poundlock`, and returns what that says as JSON, too.
#[track_caller]
fn watched(installed: &Installed, options: &[&str], program: &Path, arguments: &[&str]) -> (Output, Value) {
    let json = scratch().join("seen.json");
    let mut command = installed.command(&built("poundlock", "poundlock-cli", &[]));
    command.env("POUNDLOCK_PRELOAD_LIB", preload_library()).args(options).arg("--json").arg(&json);
    let output = run_limited(command.arg("--").arg(program).args(arguments), LIMIT);
    let text = std::fs::read(&json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, serde_json::from_slice(&text).expect("JSON"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

/// The kinds of what was found, sorted.
fn kinds(report: &Value) -> Vec<&str> {
    let mut kinds: Vec<&str> =
        list(&report["findings"]).iter().map(|finding| text(&finding["kind"])).collect();
    kinds.sort_unstable();
    kinds
}

/// The innermost frame of each stack of a finding.
fn places(finding: &Value) -> Vec<&str> {
    list(&finding["stacks"]).iter().filter_map(|stack| list(&stack["frames"]).first()).map(text).collect()
}

/// The lines of a source that end in this comment, as frames end.
fn lines(program: &Path, comment: &str) -> Vec<String> {
    let (name, all) = (program.file_name().expect("a file"), std::fs::read_to_string(program).expect("text"));
    let marked = all.lines().zip(1..).filter(|(line, _)| line.ends_with(&format!("// {comment}")));
    marked.map(|(_, number)| format!("{}:{number})", name.display())).collect()
}

/// The examples give the finding that they are named for, at the lines that are marked in them.
#[test]
fn the_examples_are_checked() {
    let Some(installed) = installed() else { return };
    for form in [Form::Shared, Form::Archive] {
        let path = source("examples/check/order-library.c");
        let (output, report) = watched(installed, &["check"], &linked(installed, &GCC, form, &path), &[]);
        expect_status(&output, 0);
        assert_eq!(kinds(&report), ["order"], "{form:?}: {report:#}");
        let finding = &report["findings"][0];
        let places = places(finding);
        let named = lines(&path, "named");
        assert!(named.len() == 4 && places.len() == 4, "{named:?} {places:?}");
        for line in &named {
            assert!(
                places.iter().any(|place| place.ends_with(line.as_str())),
                "{form:?}: {line}: {places:?}"
            );
        }
        let mut locks: Vec<_> =
            list(&finding["locks"]).iter().map(|lock| (text(&lock["name"]), text(&lock["kind"]))).collect();
        locks.sort_unstable();
        assert_eq!(locks, [("a", "mutex"), ("b", "readers-writer lock")]);
        let twin = linked(installed, &GCC, form, &source("examples/check/order-library-ok.c"));
        let (output, report) = watched(installed, &["check"], &twin, &[]);
        expect_status(&output, 0);
        assert_eq!(kinds(&report), [""; 0], "{form:?}: {report:#}");
    }
}

/// Misuse is found where it is made, a deadlock where it is, and nothing where nothing is wrong.
#[test]
fn misuse_and_deadlocks_are_found() {
    let Some(installed) = installed() else { return };
    for (form, program) in programs(installed) {
        let (output, report) = watched(installed, &["check"], &program, &["counts"]);
        expect_status(&output, 0);
        assert_eq!(kinds(&report), [""; 0], "{form:?}: {report:#}");

        let end = ["check", "--on-deadlock", "end"];
        let (output, report) = watched(installed, &end, &program, &["misuse"]);
        expect_status(&output, 98);
        let mut found = kinds(&report);
        // Who takes what it holds waits for itself then.
        found.retain(|kind| *kind != "deadlock");
        let expected =
            ["destroy-held", "exit-held", "free-held", "relock", "reread", "unlock-free", "unlock-other"];
        assert_eq!(found, expected, "{form:?}: {report:#}");
        for finding in list(&report["findings"]).iter().filter(|finding| finding["kind"] != "deadlock") {
            let lines = lines(&source("tests/capi/seen.c"), text(&finding["kind"]));
            let places = places(finding);
            let named = |line: &String| places.iter().any(|place| place.ends_with(line.as_str()));
            assert!(lines.len() == 1 && named(&lines[0]), "{form:?}: {lines:?}: {finding:#}");
        }

        let (output, report) = watched(installed, &end, &program, &["deadlock"]);
        expect_status(&output, 98);
        let findings = list(&report["findings"]);
        let deadlock = findings.iter().find(|finding| finding["kind"] == "deadlock");
        let places = places(deadlock.unwrap_or_else(|| panic!("{form:?}: {report:#}")));
        for line in lines(&source("tests/capi/seen.c"), "deadlock") {
            assert!(places.iter().any(|place| place.ends_with(&line)), "{form:?}: {line}: {places:?}");
        }

        // It is none if one of them gives up; that the order is wrong stays true.
        let (output, report) = watched(installed, &end, &program, &["timed"]);
        expect_status(&output, 0);
        assert_eq!(kinds(&report), ["order"], "{form:?}: {report:#}");
    }
}

/// Each type is in the table of `stat`, with its kind and its name, and counted rightly.
#[test]
fn locks_are_counted() {
    let Some(installed) = installed() else { return };
    for (form, program) in programs(installed) {
        let options = ["stat", "--each", "--top", "0"];
        let (output, report) = watched(installed, &options, &program, &["counts"]);
        expect_status(&output, 0);
        let count = |name: &str, kind: &str| {
            let is_it = |lock: &&Value| {
                lock["variable"].as_str().is_some_and(|found| found.contains(name))
                    && text(&lock["kind"]).contains(kind)
            };
            let found: Vec<_> = list(&report["locks"]).iter().filter(is_it).collect();
            assert_eq!(found.len(), 1, "{form:?}: {name}, {kind}: {report:#}");
            found[0]["acquisitions"].as_u64().unwrap_or_else(|| panic!("{:#}", found[0]))
        };
        // Those of the loop; by `counts`; again after two waits for the condition, if the second was one; by `waits`.
        let mutex = count("mutex", "mutex");
        assert!((103..=104).contains(&mutex), "{form:?}: {mutex}");
        assert_eq!(count("again", "mutex"), 101, "{form:?}");
        assert_eq!(count("spin", "spinlock"), 100, "{form:?}");
        assert_eq!(count("shared", ", readers"), 41, "{form:?}");
        assert_eq!(count("shared", ", writers"), 20, "{form:?}");
        let conditions = report.to_string();
        assert!(conditions.contains("changed"), "{form:?}: {report:#}");
    }
}

/// Locks of another version are not seen, which is said once.
#[test]
fn another_version_is_not_seen_and_says_so() {
    let Some(installed) = installed() else { return };
    let program = linked(installed, &GCC, Form::Shared, &source("tests/capi/seen.c"));
    let (output, _) = watched(installed, &["check"], &program, &["version"]);
    expect_status(&output, 0);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said.matches("of a newer version of Poundlock than the command's").count(), 1, "{said}");
    // Nobody who only runs it is told of it.
    let mut command: Command = installed.command(&built("poundlock", "poundlock-cli", &[]));
    command.env("POUNDLOCK_PRELOAD_LIB", preload_library()).args(["run", "--"]).arg(&program).arg("version");
    let output = run(&mut command);
    assert!(output.stderr.is_empty(), "{output:?}");
}
