//! `poundlock stat`: programs whose locks the preloaded library does not know, or into which it is not
//! loaded, are seen from outside without being asked for; and the first finding says what is not seen.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::attach::{can_watch, class};
use crate::support::{
    LIMIT, Started, compile_c, expect_status, list, made, need, number, parsed, poundlock, run_limited,
    scratch, start, stderr, until,
};
use crate::who::languages::TARGET;

const OWN_LOCK: &str = include_str!("../../../tests/stat/ownlock.c");

/// `stat` with reports while the program runs, its JSON, and the program's input.
fn running(command: &[&OsStr], environment: &[(&str, &str)]) -> (Started, PathBuf) {
    let json = scratch().join("report.json");
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "2000").args(["stat", "--every", "0.3", "--json"]).arg(&json).arg("--").args(command);
    cmd.envs(environment.iter().copied());
    (start(cmd.stdin(Stdio::piped())), json)
}

/// The kind and the text of the first finding.
#[track_caller]
fn first(report: &Value) -> (&str, &str) {
    let finding = list(report, "diagnosis").first().unwrap_or_else(|| panic!("no finding in {report:#}"));
    (finding["kind"].as_str().unwrap_or_default(), finding["text"].as_str().unwrap_or_default())
}

/// The library is loaded and counts nothing: the futex view comes beside its figures.
#[test]
fn a_lock_made_of_system_call_instructions_is_seen_beside_the_library() {
    if !can_watch() {
        return;
    }
    let program = compile_c(OWN_LOCK, &["-O1"]);
    let (mut stat, json) = running(&[program.as_os_str()], &[]);
    stat.wait_for_error("for own_word (in program)", LIMIT);
    stat.write_input(b"");
    expect_status(&stat.finish(LIMIT), 0);
    let report = parsed(&json);
    let (kind, text) = first(&report);
    assert!(kind == "slept" && text.contains("for own_word (in program)"), "{report:#}");
    let of =
        |report: &Value| list(report, "classes").iter().any(|class| class["name"] == "own_word (in program)");
    assert!(!of(&report), "the library counts no such calls: {report:#}");
    let view = &report["futex_view"];
    assert!(of(view) && number(&view["futex_calls"], "waits") > 0, "{report:#}");
    // Waits for the ends of threads are counted by the library, and no second time.
    assert!(list(view, "classes").iter().all(|class| class["kind"] != "mutex"), "{report:#}");
}

/// A program that takes no library is watched instead of refused, whatever it is built with.
#[test]
fn a_program_that_takes_no_library_is_watched_from_outside() {
    if !can_watch() {
        return;
    }
    let mut programs = vec![(compile_c(OWN_LOCK, &["-O1", "-static"]), "statically linked")];
    if let Some(compiler) = need("musl-gcc", "musl-tools") {
        let dir = scratch();
        let (file, program) = (dir.join("program.c"), dir.join("program"));
        std::fs::write(&file, OWN_LOCK).expect("it can be written");
        made(
            Command::new(compiler).args(["-O1", "-g", "-o"]).arg(&program).arg(&file),
            std::slice::from_ref(&file),
            &program,
        );
        programs.push((program, "built for musl"));
    }
    for (program, why) in programs {
        let (mut stat, json) = running(&[program.as_os_str()], &[]);
        stat.wait_for_error("for own_word (in program)", LIMIT);
        stat.write_input(b"");
        expect_status(&stat.finish(LIMIT), 0);
        let report = parsed(&json);
        assert!(report["way"].as_str().is_some_and(|way| way.contains(why)), "{report:#}");
        let (kind, text) = first(&report);
        assert!(kind == "slept" && text.contains("own_word (in program)"), "{report:#}");
        // What only the library does is refused still, with the reason.
        let output =
            run_limited(poundlock().args(["stat", "--lock", "poundlock", "--"]).arg(&program), LIMIT);
        expect_status(&output, 126);
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

/// Goroutines wait where nobody sees it from outside: no figure of 0, but what shows them.
#[test]
fn a_program_in_go_is_told_what_shows_its_goroutines() {
    let installed = poundlock_testing::find("go")
        .or_else(|| Some(PathBuf::from("/usr/local/go/bin/go")).filter(|path| path.is_file()));
    let Some(go) = installed else {
        eprintln!("SKIPPED: needs go (apt-get install golang-go)");
        return;
    };
    if !can_watch() {
        return;
    }
    let dir = scratch();
    let (file, program) = (dir.join("contended.go"), dir.join("contended"));
    std::fs::write(&file, include_str!("../../../tests/attach/contended.go")).expect("it can be written");
    let mut build = Command::new(go);
    // Without headers of sections a program in Go is known as well.
    build.args(["build", "-trimpath", "-ldflags=-s -w", "-o"]).arg(&program).arg(&file).current_dir(&dir);
    build.envs([("GOCACHE", dir.join("cache")), ("GOPATH", dir.join("path"))]);
    build.envs([("GOTOOLCHAIN", "local"), ("GO111MODULE", "off"), ("CGO_ENABLED", "0")]);
    made(&mut build, &[file], &program);
    let json = dir.join("report.json");
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "2000").args(["stat", "--json"]).arg(&json).arg("--").arg(&program).arg("20");
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let report = parsed(&json);
    let (kind, text) = first(&report);
    assert!(
        kind == "unseen" && text.contains("goroutine") && text.contains("debug/pprof/mutex"),
        "{report:#}"
    );
    assert!(!stderr(&output).contains("took 0 ns"), "{}", stderr(&output));
}

/// The locks of Rust's std reach the kernel through the C library's `syscall`: they are locks all the same.
#[test]
fn locks_of_rust_are_seen_beside_the_library() {
    if !can_watch() {
        return;
    }
    let exe = std::env::current_exe().expect("it is there");
    let arguments =
        ["--exact", "who::languages::rust_target", "--nocapture", "--test-threads=1"].map(OsStr::new);
    let command = [&[exe.as_os_str()][..], &arguments].concat();
    let (stat, json) = running(&command, &[(TARGET, "1")]);
    // Stacks of sleeping threads name it, too, before the futex view does.
    until("the futex view has it", || {
        let text = stat.errors_so_far();
        text.rsplit_once("Seen from outside").is_some_and(|(_, view)| view.contains("::HELD"))
    });
    stat.kill(libc::SIGTERM);
    expect_status(&stat.finish(LIMIT), 143);
    let report = parsed(&json);
    assert_eq!(class(&report["futex_view"], "::languages::HELD")["kind"], "mutex", "{report:#}");
    // All its threads wait for each other: from the first second of that on this is said instead.
    assert!(["slept", "stuck"].contains(&first(&report).0), "{report:#}");
}

/// A monitor is a condition variable to the C library: it is a lock all the same.
#[test]
fn monitors_of_java_are_seen_beside_the_library() {
    let Some(java) = need("java", "default-jdk-headless") else { return };
    let Some(javac) = need("javac", "default-jdk-headless") else { return };
    if !can_watch() {
        return;
    }
    let dir = scratch();
    let (file, built) = (dir.join("Contended.java"), dir.join("Contended.class"));
    std::fs::write(&file, include_str!("../../../tests/attach/Contended.java")).expect("it can be written");
    made(
        Command::new(javac).args(["-J-Xmx256m", "-d"]).arg(&dir).arg(&file),
        std::slice::from_ref(&file),
        &built,
    );
    let options = ["-Xmx128m", "-XX:+UseSerialGC", "-cp"].map(OsStr::new);
    let program = [dir.as_os_str(), OsStr::new("Contended"), OsStr::new("1000000")];
    let command = [&[java.as_os_str()][..], &options, &program].concat();
    let (mut stat, json) = running(&command, &[]);
    stat.wait_for_error("Sleeping for other locks, seen from outside, took", LIMIT);
    stat.kill(libc::SIGTERM);
    expect_status(&stat.finish(LIMIT), 143);
    let report = parsed(&json);
    let found = list(&report, "diagnosis");
    assert!(found.iter().any(|finding| finding["kind"] == "slept"), "{report:#}");
    let way = found.iter().find(|finding| finding["kind"] == "way");
    let text = way.and_then(|way| way["text"].as_str()).unwrap_or_default();
    assert!(text.contains("Compiler.perfmap") && text.contains("stat --pid"), "{report:#}");
}
