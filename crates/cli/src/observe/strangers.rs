//! Programs of a run that did not load our library.

use std::collections::BTreeMap;
use std::path::Path;

use crate::program;

/// How many forks are followed from a program to where it was started.
const GENERATIONS: usize = 32;

/// A program that a process of the run was seen to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// In its own namespace, as is the parent.
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) exe: String,
    /// Empty if unknown.
    pub(crate) name: String,
}

/// Says which programs ran without our library, and what to do about that. `command` is the process that was
/// started first, `left` are the programs that left a file, with their processes, and `unmeasured` processes that
/// could not make one. What was to be done with them, and by which command, is `done` and `by`.
pub(crate) fn remarks<'a>(
    command: u32,
    seen: impl Iterator<Item = &'a Seen>,
    left: &[(u32, &str)],
    unmeasured: &[u32],
    (done, by): (&str, &str),
) -> Vec<String> {
    let mut names: BTreeMap<String, (u64, &str)> = BTreeMap::new();
    // What a look found of the command before it was executed is this program.
    let ours = std::env::current_exe().unwrap_or_default();
    let not_yet = |pid: u32, exe: &str| pid == command && Path::new(exe) == ours;
    let seen: Vec<&Seen> = seen.collect();
    for process in &seen {
        let was = |pid: u32| left.contains(&(pid, &process.exe));
        // A child that goes on in its parent's program and uses no lock leaves no file; nor does its child.
        let inherits = || {
            let mut parent = process.parent;
            for _ in 0..GENERATIONS {
                if was(parent) {
                    return true;
                }
                let same = seen.iter().find(|other| other.pid == parent && other.exe == process.exe);
                let Some(other) = same else { return false };
                parent = other.parent;
            }
            false
        };
        // What has loaded the library may become a program that has not. Of the command itself it has been said.
        let left_a_file = left.iter().any(|(pid, _)| *pid == process.pid);
        if process.exe.is_empty()
            || not_yet(process.pid, &process.exe)
            || unmeasured.contains(&process.pid)
            || was(process.pid)
            || (!left_a_file && process.pid == command)
            || inherits()
        {
            continue;
        }
        let name = if process.name.is_empty() { &process.exe } else { &process.name };
        let (count, _) = names.entry(name.clone()).or_insert((0, &process.exe));
        *count += 1;
    }
    let remark = |(name, (count, exe)): (String, (u64, &str))| {
        let why = match program::check(Path::new(exe)) {
            Err(failure) => failure.line,
            Ok(()) => format!(
                "its environment was cleared (by env -i, runuser -l, sudo, ...): run `poundlock {by}` behind whatever \
                 cleared it"
            ),
        };
        let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
        format!("{name}{times} was started without our library and not {done}: {why}")
    };
    names.into_iter().map(remark).collect()
}

#[cfg(test)]
mod tests {
    use super::{Seen, remarks};

    fn seen(pid: u32, parent: u32, exe: &str) -> Seen {
        Seen { pid, parent, exe: exe.to_owned(), name: String::new() }
    }

    #[test]
    fn forks_of_what_loaded_the_library_are_no_strangers() {
        let processes = [
            seen(10, 1, "/bin/sh"),
            // Seen before it became a program that left a file.
            seen(11, 10, "/bin/sh"),
            // A child of a child that has used no lock.
            seen(12, 10, "/bin/sh"),
            seen(13, 12, "/bin/sh"),
            seen(14, 10, "/bin/true"),
        ];
        let left = [(10, "/bin/sh"), (11, "/bin/sed")];
        let lines = remarks(10, processes.iter(), &left, &[], ("checked", "check"));
        assert!(lines.len() == 1 && lines[0].starts_with("/bin/true was started without"), "{lines:?}");
    }
}
