//! Programs whose locks are their language's.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{can_watch, class, watched};
use crate::support::{LIMIT, compile_c, expect_status, list, need, number, run_limited, scratch};
use crate::who::languages::{TARGET, go_program, java_program};
use crate::who::{Target, steady, until_who};

/// Those of Rust's std and of parking_lot: the program is that of the tests of `who`.
#[test]
fn locks_of_rust_are_known_by_name() {
    if !can_watch() {
        return;
    }
    let exe = std::env::current_exe().expect("it is there");
    let mut command = Command::new(exe);
    command
        .args(["--exact", "who::languages::rust_target", "--nocapture", "--test-threads=1"])
        .env(TARGET, "1");
    let target = Target::start(&mut command);
    let waits = |document: &Value, name: &str| {
        let mut threads = list(document, "threads").iter();
        threads.any(|thread| thread["name"] == name && thread["waits_for"]["steady"] == true)
    };
    until_who(target.pid(), "asleep", |document| {
        ["std-mutex", "std-reads", "std-writes", "std-condvar", "pl-mutex"]
            .iter()
            .all(|name| waits(document, name))
    });
    let report = watched(target.pid());
    for (name, kind) in [
        ("cli::who::languages::HELD", "mutex"),
        ("cli::who::languages::WRITTEN", "readers-writer lock, readers"),
        ("cli::who::languages::WAS_READ", "readers-writer lock, writers"),
        ("cli::who::languages::SIGNALLED", "condition variable"),
    ] {
        assert_eq!(class(&report, name)["kind"], kind, "{report:#}");
    }
    // parking_lot keeps its queues apart from its locks: they are known by the lines that take them.
    let taken = list(&report, "classes").iter().find(|class| {
        class["kind"] == "mutex"
            && class["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("taken in") && name.contains("rust_target"))
    });
    assert!(taken.is_some(), "{report:#}");
}

#[test]
fn threads_of_go_park() {
    if !can_watch() {
        return;
    }
    let Some(program) = go_program() else { return };
    let target = Target::ready(&mut Command::new(program));
    until_who(target.pid(), "parked", |document| steady(document) >= 1);
    let report = watched(target.pid());
    let parked = list(&report, "classes")
        .iter()
        .any(|class| class["kind"] == "futex" && number(class, "contended") > 0);
    assert!(parked, "{report:#}");
}

#[test]
fn threads_of_java_wait_for_monitors() {
    if !can_watch() {
        return;
    }
    let Some(mut command) = java_program() else { return };
    let target = Target::ready(&mut command);
    until_who(target.pid(), "both asleep", |document| {
        let mut threads = list(document, "threads").iter();
        threads.any(|thread| thread["name"] == "taker-1" && thread["waits_for"]["steady"] == true)
    });
    let report = watched(target.pid());
    let waits = list(&report, "classes").iter().any(|class| {
        ["condition variable", "mutex"].contains(&class["kind"].as_str().unwrap_or_default())
            && number(class, "contended") > 0
    });
    assert!(waits, "{report:#}");
}

/// A static program without names: mutexes are told by their numbers.
#[test]
fn a_static_program_without_names_has_mutexes() {
    if !can_watch() {
        return;
    }
    let program = compile_c(super::CONTENDED, &["-static", "-s"]);
    let (report, _) = super::ran(&[], &program);
    let mutex = list(&report, "classes").iter().find(|class| class["kind"] == "mutex");
    assert!(number(mutex.unwrap_or_else(|| panic!("none in {report:#}")), "contended") > 40, "{report:#}");
}

/// musl has no unwind tables and other functions.
#[test]
fn musl_is_known() {
    let Some(compiler) = need("musl-gcc", "musl-tools") else { return };
    if !can_watch() {
        return;
    }
    let dir = scratch();
    let (file, program): (PathBuf, PathBuf) = (dir.join("program.c"), dir.join("program"));
    std::fs::write(&file, super::CONTENDED).expect("it can be written");
    let mut build = Command::new(compiler);
    build.args(["-O1", "-g", "-static"]).arg(&file).arg("-o").arg(&program);
    expect_status(&run_limited(&mut build, LIMIT), 0);
    let (report, _) = super::ran(&[], &program);
    assert_eq!(class(&report, "busy (in program)")["kind"], "mutex", "{report:#}");
}
