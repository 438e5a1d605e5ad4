//! The examples do what they say.

use std::process::{Child, Command, Output, Stdio};

use poundlock::{Key, SemaphoreSet};
use poundlock_testing::{LIMIT, built, expect_status, run_limited};

/// An example.
fn example(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(built(&format!("examples/{name}"), "poundlock", &["--example", name]));
    command.args(arguments);
    command
}

fn said(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("text")
}

#[test]
fn the_sharded_cache_finds_what_it_computed() {
    let output = run_limited(&mut example("sharded_cache", &["6", "50000"]), LIMIT);
    expect_status(&output, 0);
    assert!(said(&output).starts_with("300000 look-ups by 6 threads: "), "{output:?}");
}

#[test]
fn the_bounded_queue_loses_nothing() {
    for room in ["1", "64"] {
        let output = run_limited(&mut example("bounded_queue", &["3", "5", "20000", room]), LIMIT);
        expect_status(&output, 0);
        assert!(said(&output).ends_with("sum 199990000\n"), "{output:?}");
    }
}

/// A file that names a limit, gone at the end.
struct Limit {
    directory: tempfile::TempDir,
}

impl Limit {
    fn new() -> Limit {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("limit"), "").expect("written");
        Limit { directory }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut all = vec![self.directory.path().join("limit").to_str().expect("text").to_string()];
        all.extend(arguments.iter().map(ToString::to_string));
        example("job_limiter", &all.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let removed = self.command(&["--remove"]).status().expect("it starts");
        assert!(removed.success() || std::thread::panicking(), "{removed}");
    }
}

/// Jobs that note their begin and end, and of which every second is killed before its end by itself.
#[test]
fn the_job_limiter_keeps_to_its_limit_and_survives_kills() {
    let limit = Limit::new();
    let notes = limit.directory.path().join("notes");
    // Each note is one write of a few bytes to a file opened for appending. A job that is killed has noted
    // its end.
    let script = format!("echo + >>{0}; echo - >>{0}; [ $1 = 0 ] || kill -9 $$", notes.display());
    let jobs: Vec<_> = (0..40)
        .map(|job: u32| {
            let dies = (job % 2).to_string();
            let arguments = ["2", "--", "sh", "-c", &script, "job", &dies];
            limit.command(&arguments).stderr(Stdio::null()).spawn().expect("it starts")
        })
        .collect();
    for (job, mut child) in jobs.into_iter().enumerate() {
        let status = child.wait().expect("it ends");
        assert_eq!(status.success(), job % 2 == 0, "{job}: {status}");
    }
    let notes = std::fs::read_to_string(notes).expect("notes");
    let mut running = 0;
    for note in notes.lines() {
        running += if note == "+" { 1 } else { -1 };
        assert!((0..=2).contains(&running), "{running} at a time");
    }
    assert_eq!((running, notes.lines().count()), (0, 80));
}

/// Of 10 units, two jobs of 6 do not fit together, a third of 4 beside one of them does.
#[test]
fn the_job_limiter_takes_slot_and_memory_at_once() {
    let limit = Limit::new();
    // Each holds what it has until its standard input ends.
    let start = |needs: &str| {
        let mut command = limit.command(&["5,10", "--needs", needs, "--", "sh", "-c", "echo in; cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let is_in = |child: &mut Child| {
        let mut line = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut line).expect("it says");
        assert_eq!(&line, b"in\n");
    };
    let mut first = start("6");
    is_in(&mut first);
    let mut second = start("6");
    let mut third = start("4");
    is_in(&mut third);
    let set = SemaphoreSet::open(Key::of_file(limit.directory.path().join("limit"), b'j').expect("a key"));
    assert_eq!(set.expect("it is there").values().expect("values"), [3, 0], "the second is not in");
    first.kill().expect("killed");
    first.wait().expect("it ends");
    is_in(&mut second);
    for mut job in [second, third] {
        drop(job.stdin.take());
        assert!(job.wait().expect("it ends").success());
    }
}

#[test]
fn the_job_limiter_says_what_is_wrong() {
    for arguments in [&["/nowhere", "2", "--", "true"][..], &["/", "two", "--", "true"], &["/", "2", "--"]] {
        let output = run_limited(&mut example("job_limiter", arguments), LIMIT);
        expect_status(&output, 125);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.starts_with("job_limiter: ") && text.lines().count() == 1, "{text}");
    }
}
