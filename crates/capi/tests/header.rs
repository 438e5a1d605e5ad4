//! The headers by themselves: complete, and free of warnings, in each language that they are for.

use std::process::Command;

use crate::setup::{CLANGXX, GCC, installed, need, run, source};

/// Has a compiler read a program.
#[track_caller]
fn accepts(command: &str, options: &[&str], program: &str) {
    let Some(installed) = installed() else { return };
    let package = if command.starts_with("clang") { "clang" } else { command };
    if need(command, package).is_some() {
        let mut compiler = Command::new(command);
        compiler.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]).args(options);
        run(compiler.args(installed.pkg_config(&["--cflags"])).arg(source("tests/capi").join(program)));
    }
}

/// The header that is checked in is the one that cbindgen makes of the sources.
#[test]
fn the_header_that_is_checked_in_is_of_these_sources() {
    let Some(installed) = installed() else { return };
    let read = |path: &std::path::Path| std::fs::read_to_string(path).expect("it is there");
    let (made, kept) = (installed.file("include/poundlock.h"), source("crates/capi/include/poundlock.h"));
    assert!(read(&made) == read(&kept), "cp {} {}", made.display(), kept.display());
}

#[test]
fn is_c() {
    for compiler in ["gcc", "clang"] {
        for standard in ["-std=c99", "-std=c11", "-std=gnu17"] {
            accepts(compiler, &[standard, "-Wstrict-prototypes", "-Wmissing-field-initializers"], "header.c");
        }
    }
}

#[test]
fn is_cxx() {
    for compiler in ["g++", "clang++"] {
        for standard in ["-std=c++98", "-std=c++20"] {
            accepts(compiler, &[standard, "-x", "c++"], "header.c");
        }
        for standard in ["-std=c++17", "-std=c++20"] {
            accepts(compiler, &[standard, "-Wshadow", "-Wconversion"], "concepts.cpp");
        }
    }
}

/// The initialisers are zero bytes: they lie where nothing is stored in the file.
#[test]
fn initialisers_are_zero() {
    let Some(installed) = installed() else { return };
    let object = poundlock_testing::scratch().join("header.o");
    let mut compiler = GCC.start(&["-c", "-fdata-sections"]);
    compiler.args(installed.pkg_config(&["--cflags"])).arg("-o").arg(&object);
    run(compiler.arg(source("tests/capi/header.c")));
    let output = run(Command::new("nm").arg(&object));
    let text = String::from_utf8(output.stdout).expect("text");
    for name in ["mutex", "recursive", "spinlock", "cond"] {
        assert!(
            text.lines().any(|line| line.ends_with(&format!(" b {name}"))),
            "{name} is not zero:\n{text}"
        );
    }
}

/// Clang's analysis finds an access without the lock, and nothing else.
#[test]
fn thread_safety() {
    let Some(installed) = installed() else { return };
    if !CLANGXX.is_there() {
        return;
    }
    let compiler = |options: &[&str]| {
        let mut compiler = CLANGXX.start(&["-Wthread-safety", "-fsyntax-only"]);
        compiler.args(options).args(installed.pkg_config(&["--cflags"])).arg(source("tests/capi/safety.cpp"));
        compiler
    };
    run(&mut compiler(&[]));
    let output = compiler(&["-DUNSAFE"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("requires holding mutex 'mutex'"), "{text}");
}
