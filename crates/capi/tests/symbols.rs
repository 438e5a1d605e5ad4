//! What the shared library shows of itself.

use std::collections::BTreeSet;
use std::process::Command;

use poundlock_testing::glibc_versions;

use crate::setup::{installed, run};

/// What a tool of binutils prints about the shared library.
#[track_caller]
fn output_of(tool: &str, options: &[&str]) -> Option<String> {
    let library = installed()?.file("lib/libpoundlock.so");
    let output = run(Command::new(tool).args(options).arg(library));
    Some(String::from_utf8(output.stdout).expect("text"))
}

/// All functions of the header, each with a version, and nothing else.
#[test]
fn exported() {
    let Some(text) = output_of("nm", &["--dynamic", "--defined-only"]) else { return };
    let exported: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        // The version itself.
        .filter(|name| *name != "POUNDLOCK_0.1")
        .collect();
    let header = installed().expect("it was there").file("include/poundlock.h");
    let header = std::fs::read_to_string(header).expect("it is installed");
    let declared: BTreeSet<String> = header
        .lines()
        .filter_map(|line| line.strip_prefix("int poundlock_")?.split_once('('))
        .map(|(name, _)| format!("poundlock_{name}@@POUNDLOCK_0.1"))
        .collect();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(exported, declared.iter().map(String::as_str).collect());
}

/// It needs glibc alone, as it is or was before 2.34; stays when it is closed, and finds all it needs when it
/// is loaded.
#[test]
fn dynamic_section() {
    let Some(text) = output_of("readelf", &["--dynamic", "--wide"]) else { return };
    let needed = text.lines().filter_map(|line| line.split_once("(NEEDED)")?.1.split(['[', ']']).nth(1));
    assert_eq!(needed.collect::<Vec<_>>(), ["libpthread.so.0", "libdl.so.2", "libc.so.6"], "{text}");
    for wanted in ["Library soname: [libpoundlock.so.0.1]", "BIND_NOW", "NODELETE", "STATIC_TLS"] {
        assert!(text.contains(wanted), "no {wanted}:\n{text}");
    }
}

/// Whatever glibc it was built with, it loads with each from 2.28 on.
#[test]
fn no_version_of_glibc_after_2_28_is_asked_for() {
    let Some(installed) = installed() else { return };
    let versions = glibc_versions(&installed.file("lib/libpoundlock.so"));
    assert!(versions.len() > 2 && versions.last() <= Some(&vec![2, 28]), "{versions:?}");
}

/// As those of the preload library: the lock lies in one cache line, the unlock in two.
#[test]
#[cfg(target_arch = "x86_64")]
fn fast_paths_fit_cache_lines() {
    let Some(text) = output_of("nm", &["--dynamic", "--print-size", "--defined-only"]) else { return };
    for (name, most) in [("poundlock_mutex_lock@", 1), ("poundlock_mutex_unlock@", 2)] {
        let line = text.lines().find(|line| line.contains(&format!(" {name}"))).expect("exported");
        let mut words = line.split(' ').map(|word| usize::from_str_radix(word, 16));
        let (Some(Ok(address)), Some(Ok(size))) = (words.next(), words.next()) else { panic!("{line}") };
        let lines = (address + size).div_ceil(64) - address / 64;
        assert!(size > 0 && lines <= most, "{name}: {lines} cache lines: {line}");
    }
}
