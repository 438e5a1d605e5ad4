//! The examples, built by the lines that they name.

use std::process::Command;

use crate::setup::{installed, need, run, source};

/// Builds an example as its opening comment says, but that the warnings are on, and runs it.
#[track_caller]
fn works(example: &str, compiler: &str, arguments: &[&str], expected: &str) {
    let Some(installed) = installed() else { return };
    let path = source("examples").join(example);
    let text = std::fs::read_to_string(&path).expect("it is there");
    let command = if example.starts_with("cpp") { "c++" } else { "cc" };
    if !need(compiler, &format!("apt-get install {compiler}")) {
        return;
    }
    let line = text.lines().find(|line| line.contains("$(pkg-config")).expect("it says how to build it");
    let line = line.trim_start_matches(['/', '*', ' ']);
    let (name, rest) = line.split_once(' ').expect("a command");
    assert_eq!(name, command);
    let directory = installed.file(&format!("examples-{compiler}/{}", example.replace('/', "-")));
    std::fs::create_dir_all(&directory).expect("a directory of ours");
    std::fs::copy(&path, directory.join(path.file_name().expect("a file"))).expect("copied");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{compiler} -Wall -Wextra -Werror {rest}")).current_dir(&directory);
    run(installed.with_pkg_config(&mut shell));
    let program = directory.join(path.file_stem().expect("a name"));
    let output = run(installed.command(&program).args(arguments));
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn shardcache_c() {
    works("c/shardcache.c", "gcc", &["4", "50000"], "shardcache: right: ");
    works("c/shardcache.c", "clang", &["1", "0"], "shardcache: right: 0 steps, 0 hits, 0 misses");
}

#[test]
fn workqueue_c() {
    works("c/workqueue.c", "gcc", &["3", "100000"], "workqueue: right: 9592 primes below 100000");
    works("c/workqueue.c", "clang", &["8", "1500"], "workqueue: right: 239 primes");
}

#[test]
fn shardcache_cpp() {
    works("cpp/shardcache.cpp", "g++", &["4", "20000"], "shardcache: right: 80000 lookups, ");
}

#[test]
fn workqueue_cpp() {
    works("cpp/workqueue.cpp", "clang++", &["3", "200001"], "workqueue: right: 200001 numbers sorted");
}
