//! The manual pages of the C functions: all there, free of warnings, with examples that compile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use poundlock_testing::{built, once_a_run};

use crate::setup::{GCC, installed, need, run, source};

/// The directory of the pages, made of the header that is checked in.
fn pages() -> PathBuf {
    let program = built("examples/man", "poundlock-capi", &["--examples"]);
    once_a_run("man3", |directory| {
        let mut man = Command::new(&program);
        run(man.arg(source("crates/capi/include/poundlock.h")).arg("2026-01-01").arg(directory));
    })
}

#[test]
fn every_function_has_a_page() {
    let header = std::fs::read_to_string(source("crates/capi/include/poundlock.h")).expect("it is there");
    // Whatever is followed by a parenthesis, and is no word of a comment.
    let declared: BTreeSet<&str> = header
        .lines()
        .filter(|line| !line.trim_start().starts_with('*') && line.contains('('))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("poundlock_"))
        .collect();
    assert!(declared.len() > 50, "{declared:?}");
    let pages = pages();
    for name in declared {
        let page = std::fs::read_to_string(pages.join(format!("{name}.3"))).unwrap_or_default();
        let target = page.trim().strip_prefix(".so man3/").unwrap_or_else(|| panic!("{name}: {page}"));
        let text = std::fs::read_to_string(pages.join(target)).expect("it leads to a page");
        let escaped = name.replace('-', "\\-");
        for macros in [".SH \"RETURN VALUE\"", ".SH SYNOPSIS", &format!("\\fB{escaped}()\\fR")] {
            assert!(text.contains(macros), "{target} lacks {macros}");
        }
    }
}

#[test]
fn the_pages_are_free_of_warnings() {
    let Some(mandoc) = need("mandoc", "mandoc") else { return };
    let pages = pages();
    let all = std::fs::read_dir(&pages).expect("it is there");
    let files: Vec<PathBuf> = all.map(|entry| entry.expect("it is there").path()).collect();
    let aliases = |path: &Path| std::fs::read_to_string(path).expect("text").starts_with(".so ");
    let whole: Vec<&PathBuf> = files.iter().filter(|path| !aliases(path)).collect();
    assert_eq!(whole.len(), 7, "{whole:?}");
    run(Command::new(mandoc).args(["-Tlint", "-Wwarning"]).args(whole));
}

#[test]
fn their_examples_compile() {
    let Some(installed) = installed() else { return };
    if !GCC.is_there() {
        return;
    }
    let examples = std::fs::read_dir(source("crates/capi/examples/man")).expect("it is there");
    for example in examples {
        let mut compiler = GCC.start(&["-fsyntax-only"]);
        run(compiler.args(installed.pkg_config(&["--cflags"])).arg(example.expect("it is there").path()));
    }
}
