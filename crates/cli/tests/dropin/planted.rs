//! The programs can fail: each planted bug is put under one of them, on plain glibc, and is found for what it
//! is.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::program::Program;
use crate::support::{LIMIT, ending, run_limited};

#[test]
fn bugs_are_found() {
    let bugs: [(_, _, &[_]); 7] = [
        // Or glibc's lock sees first that it has an owner already.
        ("-DTRYLOCK", "exclusion.c", &["] way ", "__owner == 0"]),
        ("-DTOUCH", "destroy.c", &["signal 11"]),
        ("-DMEMORY", "condvar_wake.c", &["a signal is remembered"]),
        ("-DHERD", "condvar_wake.c", &["300 signals woke"]),
        // By which of the two is for the scheduler to say: whether the first waiter has given up before it is
        // looked at.
        ("-DQSPIN", "qspin_results.c", &["expected 16", "two holders at once"]),
        ("-DRWLOCK", "rwlock_exclusion.c", &[" inside"]),
        ("-DERRNO", "mutex_results.c", &["changed errno to 11"]),
    ];
    for (bug, source, found) in bugs {
        let program = Program::compile(source, &[]).library("planted", &[bug]);
        let mut cmd = Command::new(program.executable());
        // What one of them is to destroy.
        let output = run_limited(cmd.arg("mutex").env("LD_PRELOAD", program.library_path("planted")), LIMIT);
        let text = format!("{}{}", ending(output.status), String::from_utf8_lossy(&output.stderr));
        assert!(
            !output.status.success() && (output.status.signal().is_some() || output.status.code() == Some(1)),
            "{source} did not stop at {bug}: {text}"
        );
        assert!(
            found.iter().any(|found| text.contains(found)),
            "{source} stopped at something else than {bug}: {text}"
        );
    }
}
