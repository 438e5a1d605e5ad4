//! Programs whose locks are their language's.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{can_watch, class, watched};
use crate::support::{LIMIT, compile_c, expect_status, list, need, number, run_limited, scratch};
use crate::who::languages::TARGET;
use crate::who::{Target, until_who};

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
        ("::languages::HELD", "mutex"),
        ("::languages::WRITTEN", "readers-writer lock, readers"),
        ("::languages::WAS_READ", "readers-writer lock, writers"),
        ("::languages::SIGNALLED", "condition variable"),
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

/// Of the program in Go that `who` is tried on.
pub(crate) fn threads_of_go_park(target: &Target) {
    if !can_watch() {
        return;
    }
    let report = watched(target.pid());
    let classes = list(&report, "classes");
    assert!(
        classes.iter().any(|class| class["kind"] == "futex" && number(class, "contended") > 0),
        "{report:#}"
    );
    // The runtime's functions that sleep for others are not the place.
    assert!(classes.iter().all(|class| class["name"] != "taken in runtime.futex"), "{report:#}");
}

/// Of the one in Java.
pub(crate) fn threads_of_java_wait(target: &Target) {
    if !can_watch() {
        return;
    }
    let report = watched(target.pid());
    let kinds = ["condition variable", "mutex"];
    let waits = list(&report, "classes").iter().any(|class| {
        kinds.contains(&class["kind"].as_str().unwrap_or_default()) && number(class, "contended") > 0
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
    let mutex = mutex.unwrap_or_else(|| panic!("none in {report:#}"));
    assert!(number(mutex, "contended") + number(mutex, "woken_in_vain") > 20, "{report:#}");
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
