//! `poundlock check`: what it finds in programs that have one thing wrong, and that it finds nothing in their
//! twins, which have not (`examples/check`); how it tells; and what programs do under it.

mod examples;
mod tells;
mod ways;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{LIMIT, build, list, parsed, poundlock, run_limited, scratch, stderr};

/// A program of `examples/check`, compiled as its first lines say.
pub(crate) struct Example {
    /// Its source, without the directory.
    file: String,
    text: String,
    program: PathBuf,
    /// Options for `check`, as its first lines have them.
    options: Vec<String>,
}

/// What a run under `check` came to.
pub(crate) struct Checked {
    pub(crate) status: Option<i32>,
    pub(crate) report: String,
    pub(crate) json: Value,
}

fn directory() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/check");
    path.canonicalize().expect("the examples are there")
}

impl Example {
    #[track_caller]
    fn compile(name: &str) -> Example {
        let source = ["c", "cpp"].map(|ending| directory().join(name).with_extension(ending));
        let source = source.into_iter().find(|source| source.is_file());
        let source = source.unwrap_or_else(|| panic!("there is no example {name}"));
        let file = source.file_name().expect("a file").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&source).expect("the source");
        let is_run = |line: &&str| line.starts_with("cc ") || line.starts_with("c++ ");
        let line = text.lines().filter_map(|line| line.strip_prefix(" * ")).find(is_run);
        let line = line.unwrap_or_else(|| panic!("{file} does not say how it is run"));
        let (compile, run) = line.split_once(" && poundlock check ").expect("two commands");
        assert_eq!(
            compile.trim_start_matches('c').trim_start_matches("++"),
            format!(" -g -pthread {file} -o {name}")
        );
        let options = run.strip_suffix(&format!("-- ./{name}")).expect("the program comes last");
        let options = options.split_whitespace().map(str::to_owned).collect();
        let program = scratch().join(name);
        let mut compiler = Command::new(if file.ends_with(".c") { "cc" } else { "c++" });
        compiler.args(["-g", "-pthread", "-Wall", "-Wextra", "-Werror"]).arg(&source);
        build(&mut compiler, &source, &program);
        Example { file, text, program, options }
    }

    /// The lines that a finding has to name, as they end a frame.
    fn named(&self) -> Vec<String> {
        let lines = (1..).zip(self.text.lines()).filter(|(_, line)| line.ends_with("// named"));
        lines.map(|(number, _)| format!("{}:{number})", self.file)).collect()
    }

    #[track_caller]
    fn check(&self, options: &[&str]) -> Checked {
        let own = self.options.iter().map(String::as_str);
        let options: Vec<&str> = own.chain(options.iter().copied()).collect();
        checked(&mut poundlock(), &options, &[self.program.as_os_str()])
    }
}

/// Runs a command line under `check` with these options.
#[track_caller]
pub(crate) fn checked(cmd: &mut Command, options: &[&str], line: &[&OsStr]) -> Checked {
    let json = scratch().join("check.json");
    // Semaphore arrays of its own.
    cmd.env("POUNDLOCK_IPC_DIR", scratch().join("arrays"));
    cmd.env("COLUMNS", "1000").arg("check").args(options).arg("--json").arg(&json).arg("--").args(line);
    let output = run_limited(cmd, LIMIT);
    Checked { status: output.status.code(), report: stderr(&output), json: parsed(&json) }
}

impl Checked {
    #[track_caller]
    pub(crate) fn findings(&self) -> &[Value] {
        list(&self.json, "findings")
    }

    /// The kinds of the findings, in their order.
    #[track_caller]
    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.findings().iter().map(|finding| text(&finding["kind"])).collect()
    }

    /// The only finding.
    #[track_caller]
    pub(crate) fn only(&self, kind: &str) -> &Value {
        assert_eq!(self.kinds(), [kind], "{}\n{:#}", self.report, self.json);
        &self.findings()[0]
    }

    /// There is none.
    #[track_caller]
    pub(crate) fn nothing(&self) {
        assert!(self.findings().is_empty(), "{}\n{:#}", self.report, self.json);
    }
}

#[track_caller]
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// All frames of all stacks of a finding.
#[track_caller]
pub(crate) fn frames(finding: &Value) -> Vec<&str> {
    let stacks = list(finding, "stacks").iter();
    stacks.flat_map(|stack| list(stack, "frames")).map(text).collect()
}
