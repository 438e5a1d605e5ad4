//! `poundlock who`: programs that wait in every way, in every language, from outside.

mod cores;
mod glibc;
mod harmless;
pub(crate) mod languages;
mod ours;
mod refusals;
mod stacks;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::support::{
    LIMIT, compile_c, compile_cpp, expect_status, list, poundlock_bare, run_limited, stdout,
};

/// A source of `tests/who`.
macro_rules! source {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/who/", $name))
    };
}
pub(crate) use source;

/// A program that is looked at; killed when this is dropped.
pub(crate) struct Target {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// Starts it.
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Target {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Target { child, input, output }
    }

    /// Starts it, and waits for the line that says that it is ready.
    #[track_caller]
    pub(crate) fn ready(command: &mut Command) -> Target {
        let mut target = Target::start(command);
        assert_eq!(target.line(), "ready");
        target
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it prints text");
        line.trim_end().to_owned()
    }

    /// Sends it a line, and waits for one.
    pub(crate) fn ask(&mut self) -> String {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(b"\n").expect("it reads");
        self.line()
    }

    /// Ends its input, and waits for the rest of its output.
    pub(crate) fn end(&mut self) -> Vec<String> {
        drop(self.input.take());
        let mut lines = Vec::new();
        loop {
            match self.line() {
                line if line.is_empty() => return lines,
                line => lines.push(line),
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `who` says of a process.
#[track_caller]
pub(crate) fn who(pid: u32) -> Value {
    asked(&["--json", "-", &pid.to_string()])
}

/// What it says in JSON.
#[track_caller]
pub(crate) fn asked(args: &[&str]) -> Value {
    let output = run_limited(poundlock_bare().arg("who").args(args), LIMIT);
    expect_status(&output, 0);
    let text = stdout(&output);
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(document["version"], 1);
    document
}

/// What it says in words, when all of these are among them: a thread that stood still needs a while to sleep
/// again, and what is said of it depends on that.
#[track_caller]
pub(crate) fn said(pid: u32, parts: &[&str]) -> String {
    let begin = Instant::now();
    loop {
        let output = run_limited(poundlock_bare().args(["who", &pid.to_string()]), LIMIT);
        expect_status(&output, 0);
        let text = stdout(&output);
        let Some(missing) = parts.iter().find(|part| !text.contains(**part)) else { return text };
        assert!(begin.elapsed().as_secs() < LIMIT, "{missing} is not in {text}");
    }
}

/// Asks until the answer is as wanted: the program needs a while to get there.
#[track_caller]
pub(crate) fn until_who(pid: u32, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let document = who(pid);
        if wanted(&document) {
            return document;
        }
        assert!(begin.elapsed().as_secs() < LIMIT, "not {what}: {document:#}");
    }
}

/// The thread of a name.
#[track_caller]
pub(crate) fn thread<'a>(document: &'a Value, name: &str) -> &'a Value {
    let found = list(document, "threads").iter().find(|thread| thread["name"] == name);
    found.unwrap_or_else(|| panic!("no thread {name} in {document:#}"))
}

/// What a thread waits for: its wait, and the lock.
#[track_caller]
pub(crate) fn wait<'a>(document: &'a Value, name: &str) -> Option<(&'a Value, &'a Value)> {
    let wait = &thread(document, name)["waits_for"];
    let lock = wait["lock"].as_u64()?;
    Some((wait, &document["locks"][lock as usize]))
}

/// The names of the threads that hold what a thread waits for.
pub(crate) fn holders(document: &Value, wait: &Value) -> Vec<String> {
    let of = |index: &Value| {
        let thread = &document["threads"][index.as_u64().expect("an index") as usize];
        thread["name"].as_str().expect("a name").to_owned()
    };
    list(wait, "held_by").iter().map(of).collect()
}

/// Whether that many threads stand in waits that did not change.
pub(crate) fn steady(document: &Value) -> usize {
    list(document, "threads").iter().filter(|thread| thread["waits_for"]["steady"] == true).count()
}

pub(crate) fn deadlock() -> PathBuf {
    compile_cpp(source!("deadlock.cpp"), &[])
}

pub(crate) fn kinds(flags: &[&str]) -> PathBuf {
    compile_c(source!("kinds.c"), flags)
}

/// The number of the line of `tests/who/deadlock.cpp` where this thread waits.
pub(crate) fn line_of(source: &str, mark: &str) -> usize {
    source.lines().position(|line| line.contains(mark)).expect("the source has the mark") + 1
}

/// Checks what is said of `tests/who/deadlock.cpp`, which has come to its deadlock.
#[track_caller]
pub(crate) fn expect_deadlock(document: &Value) {
    let text = source!("deadlock.cpp");
    let cycles = list(document, "deadlocks");
    assert_eq!(cycles.len(), 1, "{document:#}");
    for (name, lock, holder) in [("worker-3", "b", "worker-5"), ("worker-5", "a", "worker-3")] {
        let (waits, waited) =
            wait(document, name).unwrap_or_else(|| panic!("{name} does not wait: {document:#}"));
        assert_eq!(waits["kind"], "mutex");
        let called = waited["name"].as_str().expect("a name");
        assert!(called.starts_with(&format!("{lock} (in ")), "{called}");
        assert_eq!(holders(document, waits), [holder]);
        let at = format!("program.cpp:{})", line_of(text, &format!("{name} waits")));
        let line = thread(document, name)["line"].as_str().expect("a line");
        assert!(line.ends_with(&at), "{line} is not {at}");
        let stack = list(thread(document, name), "stack");
        assert!(
            stack.iter().any(|frame| frame.as_str().is_some_and(|text| text.ends_with(&at))),
            "{stack:?}"
        );
    }
    let sentence = document["sentences"][0].as_str().expect("a sentence");
    assert!(sentence.starts_with("deadlock: worker-"), "{sentence}");
    for part in ["holds a (in ", "waits for a (in ", "holds b (in ", "waits for b (in ", "program.cpp:"] {
        assert!(sentence.contains(part), "{part} is not in {sentence}");
    }
}

/// The command's own file.
pub(crate) fn command() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_poundlock"))
}
