//! The system calls that docs/use/LIMITS.md says the locks make, for those who write filters that kill for others:
//! all of them, and no more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::program::{Locks, Program};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names between backquotes in the first sentence of the limit about filters that kill.
pub(crate) fn documented() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/use/LIMITS.md")).expect("the page is there");
    let (_, limit) = text.split_once("filter which *kills*").expect("the limit is on the page");
    let (_, list) = limit.split_once(':').expect("a colon before the list");
    let (list, _) = list.split_once('.').expect("a full stop after the list");
    list.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// The system calls behind the functions of the C library that the locks call. Those that make none are there
/// too, so that a new one is asked about.
const FUNCTIONS: &[(&str, &[&str])] = &[
    ("mmap", &["mmap"]),
    ("munmap", &["munmap"]),
    ("madvise", &["madvise"]),
    ("getpid", &["getpid"]),
    // Where the kernel has no clock in user space.
    ("clock_gettime", &["clock_gettime"]),
    ("pthread_self", &[]),
    ("sem_trywait", &[]),
    ("getenv", &[]),
    ("getauxval", &[]),
    ("sched_getcpu", &["getcpu"]),
    ("dlsym", &[]),
    ("dlvsym", &[]),
    ("pthread_atfork", &[]),
    ("pthread_condattr_init", &[]),
    ("pthread_condattr_destroy", &[]),
    ("pthread_condattr_getclock", &[]),
    ("pthread_condattr_setclock", &[]),
    ("pthread_condattr_getpshared", &[]),
    // Its arguments say.
    ("syscall", &[]),
    ("__errno_location", &[]),
];

/// Names that follow `prefix` in a source, its tests left out.
fn names<'a>(source: &'a str, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(move |line| line.split(prefix).skip(1)).map(|rest| {
        rest.split_at(rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len()))
    })
}

/// What the sources of the locks call. Semaphore arrays and statistics, which use files, are not among them.
fn called() -> BTreeSet<String> {
    let mut called = BTreeSet::new();
    for directory in ["crates/linux/src", "crates/preload/src"] {
        for entry in std::fs::read_dir(root().join(directory)).expect("the sources are there") {
            let path = entry.expect("it can be read").path();
            // The calls that are passed on, or end the process, are the program's own; of some functions only the
            // names are needed; a wrong environment is told about before the program begins; masks of signals
            // are asked for under `check` alone.
            let left_out = [
                "semarray.rs",
                "syscall.rs",
                "old_glibc.rs",
                "environment.rs",
                "memory.rs",
                "interrupted.rs",
            ];
            let is_left_out = |name: &&str| path.ends_with(format!("preload/src/{name}"));
            if !path.is_file() || left_out.iter().any(is_left_out) {
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("a source is text");
            called.extend(names(&source, "libc::SYS_").map(|(name, _)| name.to_string()));
            for (name, rest) in names(&source, "libc::") {
                // A type or a constant is no call; nor is a function whose address alone is taken, but for
                // the clock's.
                if !(rest.starts_with('(') || name == "clock_gettime") || name.starts_with("SYS_") {
                    continue;
                }
                let calls = FUNCTIONS.iter().find(|(function, _)| *function == name);
                let (_, calls) = calls.unwrap_or_else(|| {
                    panic!("{}: say in FUNCTIONS which system calls {name} makes", path.display())
                });
                called.extend(calls.iter().map(|call| (*call).to_string()));
            }
        }
    }
    called
}

#[test]
fn the_page_names_the_system_calls_of_the_locks() {
    let (documented, called) = (documented(), called());
    assert!(called.len() > 8, "the sources were not understood: {called:?}");
    assert_eq!(
        documented, called,
        "the page's limit about filters that kill is wrong (left), the sources say (right)"
    );
}

/// Locks were killed for more than the page said.
#[test]
fn a_filter_that_kills_for_all_but_the_calls_on_the_page() {
    let program = Program::compile("killing_filter.c", &[]);
    program.check(Locks::None);
    documented().iter().fold(program, |program, call| program.argument(call)).check(Locks::All);
}
