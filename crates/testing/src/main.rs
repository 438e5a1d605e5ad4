//! Runs all tests, each in a process of its own, and twice as many at a time as there are CPUs: many
//! wait for most of their time. `./test` starts it; what cargo said of the programs that it built comes in on
//! standard input, as JSON.
//!
//!     poundlock-testing [--list] [--not FILE] [WORD]...
//!
//! A test runs if its name contains one of the words, or if there are none; and none of the parts of names that
//! begin the lines of the file, each before a tab. A test that takes longer than
//! [`LIMIT`] is killed and fails. Those that took longest the last time come first, so that none is left
//! alone at the end; the first time, those of [`LONG`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Seconds that one test may take: several of its commands may reach the limit of each.
const LIMIT: u64 = 3 * poundlock_testing::LIMIT;

/// Parts of the names of tests that take long.
const LONG: [&str; 8] = [
    "cli::report::a_browser",
    "cli::bench::",
    "cli::sim::a_browser",
    "sim::locks::every",
    "peers::locks::every",
    "cli::real::java",
    "killed_anywhere",
    "cli::dropin::",
];

struct Test {
    program: PathBuf,
    /// The directory of its package.
    directory: PathBuf,
    name: String,
    /// With the crate's name before it.
    full: String,
}

struct Outcome {
    passed: bool,
    seconds: f64,
    /// Of the processes that ended before it and were waited for, too.
    cpu: f64,
    output: String,
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let list = words.first().is_some_and(|word| word == "--list");
    if list {
        words.remove(0);
    }
    let mut left_out = String::new();
    if words.first().is_some_and(|word| word == "--not") {
        let file = words.drain(..2).next_back().expect("--not FILE");
        left_out = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    let left_out: Vec<&str> = left_out
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('\t')?.0))
        .collect();
    let begin = Instant::now();
    let target = poundlock_testing::target_directory();
    let mut tests = Vec::new();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        tests.extend(tests_of(&line));
    }
    tests.retain(|test| words.is_empty() || words.iter().any(|word| test.full.contains(word.as_str())));
    tests.retain(|test| !left_out.iter().any(|part| test.full.contains(part)));
    if list {
        tests.iter().for_each(|test| println!("{}", test.full));
        return ExitCode::SUCCESS;
    }
    let memory = target.join("tmp/seconds");
    let before = remembered(&memory);
    let expected = |test: &Test| {
        let long = LONG.iter().position(|part| test.full.contains(part));
        // Longer than any test may take, the first part most.
        let guess = || (2 * LIMIT) as f64 - long.unwrap_or(LONG.len()) as f64;
        before.get(&test.full).copied().unwrap_or_else(guess)
    };
    tests.sort_by(|a, b| expected(b).total_cmp(&expected(a)));

    let outcomes = run_all(&tests, &target.join(format!("tmp/run.{}", std::process::id())));
    let seconds = begin.elapsed().as_secs_f64();
    let mut all = before;
    all.extend(tests.iter().zip(&outcomes).map(|(test, outcome)| (test.full.clone(), outcome.seconds)));
    let text: String = all.iter().map(|(name, seconds)| format!("{seconds:.3} {name}\n")).collect();
    // It only serves the order of the next run.
    let _ = std::fs::write(memory, text);
    if report(&tests, &outcomes, seconds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The tests of the program that a line of cargo's is about, if it is a test program.
fn tests_of(line: &str) -> Vec<Test> {
    let (true, Some(program), Some(manifest)) = (
        line.contains(r#""test":true},"features""#),
        field(line, "executable"),
        field(line, "manifest_path"),
    ) else {
        return Vec::new();
    };
    let directory = PathBuf::from(manifest).parent().expect("a file lies in a directory").to_owned();
    let package = directory.file_name().expect("it has a name").to_string_lossy().into_owned();
    // Built another time with other features: a program of its own, and tests of their own.
    let features = if line.contains(r#""stats""#) { "+stats" } else { "" };
    let output =
        Command::new(&program).args(["--list", "--format", "terse"]).current_dir(&directory).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let test = |name: &str| Test {
        program: PathBuf::from(&program),
        directory: directory.clone(),
        name: name.to_owned(),
        full: format!("{package}{features}::{name}"),
    };
    names.map(test).collect()
}

/// The text of a member of a JSON object on one line.
fn field(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!(r#""{name}":""#))?;
    let (text, _) = rest.split_once('"')?;
    assert!(!text.contains('\\'), "a path with a quotation mark or a backslash: {text}");
    Some(text.to_owned())
}

/// What tests took the last time.
fn remembered(file: &Path) -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(seconds, name)| Some((name.to_owned(), seconds.parse().ok()?))).collect()
}

/// Runs the tests, in this order; says of each how it ended.
fn run_all(tests: &[Test], scratch: &Path) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Outcome>>> = tests.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..2 * cpus {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, SeqCst)).filter(|index| *index < tests.len()) {
                    let outcome = run(&tests[index], &scratch.join(index.to_string()));
                    let verdict = if outcome.passed { "ok" } else { "FAILED" };
                    let Outcome { seconds, cpu, .. } = outcome;
                    println!("{verdict:6} {seconds:7.2} s {cpu:7.2} s of CPU  {}", tests[index].full);
                    *outcomes[index].lock().expect("nobody panics") = Some(outcome);
                }
            });
        }
    });
    let _ = std::fs::remove_dir_all(scratch);
    let all = outcomes.into_iter().map(|outcome| outcome.into_inner().expect("nobody panics"));
    all.map(|outcome| outcome.expect("each has run")).collect()
}

fn run(test: &Test, scratch: &Path) -> Outcome {
    std::fs::create_dir_all(scratch).expect("the target directory is ours");
    let path = scratch.join("output");
    let output = File::create(&path).expect("the target directory is ours");
    let mut command = Command::new(&test.program);
    command.args([&test.name, "--exact"]).current_dir(&test.directory).process_group(0);
    command.env("POUNDLOCK_TEST_SCRATCH", scratch).env("POUNDLOCK_TEST_ALONE", &test.name);
    command.stdin(Stdio::null()).stdout(output.try_clone().expect("a descriptor")).stderr(output);
    let begin = Instant::now();
    let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", test.program.display()));
    let (status, cpu, late) = ending(child);
    let seconds = begin.elapsed().as_secs_f64();
    let mut bytes = Vec::new();
    let _ = File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
    let mut output = String::from_utf8_lossy(&bytes).into_owned();
    if late {
        output += &format!("\nkilled: it did not end within {LIMIT} s\n");
    } else if !status.success() {
        output += &format!("\n{status}\n");
    }
    let _ = std::fs::remove_dir_all(scratch);
    Outcome { passed: status.success(), seconds, cpu, output }
}

/// Waits for the end of a child with a process group of its own: how it ended, the CPU seconds that it and
/// all that it waited for took, and whether it had to be killed.
fn ending(child: Child) -> (ExitStatus, f64, bool) {
    let child = child.id().cast_signed();
    // SAFETY: takes numbers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) };
    assert!(descriptor >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
    // SAFETY: the call gave it to us; nobody else has it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
    let mut end = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which is ours.
    let late = unsafe { libc::poll(&raw mut end, 1, 1000 * LIMIT as i32) } == 0;
    if late {
        // SAFETY: two numbers; the group is the child's, which nobody has waited for.
        unsafe { libc::kill(-child, libc::SIGKILL) };
    }
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the call fills both in, which are plain numbers and ours; the child is ours as well.
    let usage = unsafe {
        assert_eq!(libc::wait4(child, &raw mut status, 0, usage.as_mut_ptr()), child, "it is our child");
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (ExitStatus::from_raw(status), seconds(usage.ru_utime) + seconds(usage.ru_stime), late)
}

/// Prints what failed, what was left out, the slowest tests and the sums. True if all passed.
fn report(tests: &[Test], outcomes: &[Outcome], seconds: f64) -> bool {
    let mut out = std::io::stdout().lock();
    let mut all: Vec<_> = tests.iter().zip(outcomes).collect();
    let failed: Vec<_> = all.iter().filter(|(_, outcome)| !outcome.passed).copied().collect();
    for (test, outcome) in &failed {
        let _ = writeln!(out, "\n---- {}\n{}", test.full, outcome.output.trim_end());
    }
    let lines = outcomes.iter().flat_map(|outcome| outcome.output.lines());
    let skipped: BTreeSet<&str> = lines.filter(|line| line.contains("SKIPPED")).collect();
    skipped.iter().for_each(|line| _ = writeln!(out, "{line}"));
    let _ = writeln!(out, "\nthe slowest:");
    all.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    for (test, outcome) in all.iter().take(10) {
        let _ = writeln!(out, "{:8.1} s  {}", outcome.seconds, test.full);
    }
    let left_out = outcomes.iter().filter(|outcome| outcome.output.contains("SKIPPED")).count();
    let passed = tests.len() - failed.len();
    for (test, _) in &failed {
        let _ = writeln!(out, "FAILED: {}", test.full);
    }
    let _ = writeln!(
        out,
        "{passed} passed ({left_out} of them skipped something), {} failed, in {seconds:.0} s",
        failed.len()
    );
    failed.is_empty() && !tests.is_empty()
}
