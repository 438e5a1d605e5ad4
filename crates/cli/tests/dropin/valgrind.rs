//! The first rule of all locks, under a memory checker: unlock does not touch the lock once another thread
//! may have freed it.

use std::process::Command;

use super::program::{Program, expect_silent_success};
use crate::support::{LIMIT, need, poundlock, run_limited};

/// Memcheck as it was installed, or none: then the unmapping program, which needs no checker, stands alone.
fn memcheck(program: &Program, arguments: &[&str]) -> Option<[Command; 2]> {
    need("valgrind", "valgrind")?;
    // Fair scheduling: otherwise one thread can keep valgrind's one lock for very long.
    let flags = ["--quiet", "--error-exitcode=42", "--fair-sched=yes", "--leak-check=no"];
    let mut plain = Command::new("valgrind");
    plain.args(flags).arg(program.executable()).args(arguments);
    let mut ours = poundlock();
    ours.args(["run", "--", "valgrind"]).args(flags).arg(program.executable()).args(arguments);
    Some([plain, ours])
}

#[test]
fn freed_by_another_thread() {
    // glibc's readers-writer lock wakes by an address in the lock, which may be gone by then: the checker
    // reports the system call.
    for (sort, rounds, glibcs) in [("mutex", "60", true), ("spinlock", "60", true), ("rwlock", "20", false)] {
        let program = Program::compile("destroy.c", &[]);
        let Some([mut plain, mut ours]) = memcheck(&program, &[sort, rounds]) else { return };
        if glibcs {
            let output = run_limited(&mut plain, LIMIT);
            expect_silent_success(&format!("destroy.c {sort} on glibc under memcheck"), &output);
        }
        let output = run_limited(&mut ours, LIMIT);
        expect_silent_success(&format!("destroy.c {sort} under run and memcheck"), &output);
    }
}

/// The checker can fail: a lock that is touched after it was freed is reported, through the preloaded symbol
/// too.
#[test]
fn memcheck_sees_a_touch_after_free() {
    let program = Program::compile("touch_after_free.c", &[]);
    for mut cmd in ["mutex", "spin"].iter().filter_map(|which| memcheck(&program, &[which])).flatten() {
        let output = run_limited(&mut cmd, LIMIT);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(42), "{cmd:?}: no error was reported\n{text}");
        assert!(text.contains("Invalid"), "{cmd:?}: another error\n{text}");
    }
}
