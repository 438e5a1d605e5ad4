//! The examples, built by the lines that they name.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use poundlock_testing::scratch;

use crate::setup::{installed, need, run, source};

/// Builds an example as its opening comment says, but that the warnings are on. `None` if a tool is missing.
#[track_caller]
fn built(example: &str, compiler: &str) -> Option<PathBuf> {
    let installed = installed()?;
    let path = source("examples").join(example);
    let text = std::fs::read_to_string(&path).expect("it is there");
    let command = if example.starts_with("cpp") { "c++" } else { "cc" };
    need(compiler, compiler)?;
    let line = text.lines().find(|line| line.contains("$(pkg-config")).expect("it says how to build it");
    let line = line.trim_start_matches(['/', '*', ' ']);
    let (name, rest) = line.split_once(' ').expect("a command");
    assert_eq!(name, command);
    let directory = scratch();
    std::fs::copy(&path, directory.join(path.file_name().expect("a file"))).expect("copied");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{compiler} -Wall -Wextra -Werror {rest}")).current_dir(&directory);
    run(installed.with_pkg_config(&mut shell));
    Some(directory.join(path.file_stem().expect("a name")))
}

/// Builds an example and runs it.
#[track_caller]
fn works(example: &str, compiler: &str, arguments: &[&str], expected: &str) {
    let (Some(installed), Some(program)) = (installed(), built(example, compiler)) else { return };
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

/// Jobs of both languages under one limit note their begin and end, and every second is killed; by itself,
/// once it has noted its end.
#[test]
fn joblimiters_keep_to_one_limit_and_survive_kills() {
    let c = built("c/joblimiter.c", "clang");
    let (Some(installed), Some(c), Some(cpp)) = (installed(), c, built("cpp/joblimiter.cpp", "g++")) else {
        return;
    };
    let directory = scratch();
    let (limit, notes) = (directory.join("limit"), directory.join("notes"));
    std::fs::write(&limit, "").expect("a file of ours");
    // Each note is one write of a few bytes to a file opened for appending.
    let script = format!("echo + >>{0}; echo - >>{0}; [ $1 = 0 ] || kill -9 $$", notes.display());
    let jobs: Vec<_> = (0..32)
        .map(|job: u32| {
            let mut command = installed.command(if job % 4 < 2 { &c } else { &cpp });
            command.arg(&limit).args(["2,10", "--needs", "3", "--", "sh", "-c", &script, "job"]);
            command.arg((job % 2).to_string()).stderr(Stdio::null()).spawn().expect("it starts")
        })
        .collect();
    for (job, mut child) in jobs.into_iter().enumerate() {
        let status = child.wait().expect("it ends");
        assert_eq!(status.success(), job % 2 == 0, "{job}: {status}");
    }
    let text = std::fs::read_to_string(notes).expect("notes");
    let mut running = 0;
    for note in text.lines() {
        running += if note == "+" { 1 } else { -1 };
        assert!((0..=2).contains(&running), "{running} at a time");
    }
    assert_eq!((running, text.lines().count()), (0, 64));
    run(installed.command(&cpp).arg(&limit).arg("--remove"));

    for program in [&c, &cpp] {
        for wrong in [
            &["/nowhere", "2", "--", "true"][..],
            &["/", "two", "--", "true"],
            &["/", "2,1", "--needs", "2", "--", "true"],
            &["/", "2", "--"],
        ] {
            let output = installed.command(program).args(wrong).output().expect("it starts");
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(text.starts_with("joblimiter: ") && text.lines().count() == 1, "{text}");
        }
    }
}
