//! The first rule of all locks, under a memory checker: unlock does not touch the lock once another thread
//! may have freed it.

use std::process::Command;

use super::program::{Program, expect_silent_success};
use crate::support::{LIMIT, need, poundlock, run_limited};

/// Memcheck as it was installed, or none: then the unmapping program, which needs no checker, stands alone.
fn memcheck(program: &Program, rounds: &str) -> Option<[Command; 2]> {
    need("valgrind", "valgrind")?;
    // Fair scheduling: otherwise one thread can keep valgrind's one lock for very long.
    let flags = ["--quiet", "--error-exitcode=42", "--fair-sched=yes", "--leak-check=no"];
    let mut plain = Command::new("valgrind");
    plain.args(flags).arg(program.executable()).arg(rounds);
    let mut ours = poundlock();
    ours.args(["run", "--", "valgrind"]).args(flags).arg(program.executable()).arg(rounds);
    Some([plain, ours])
}

#[test]
fn freed_by_another_thread() {
    for (source, rounds, glibcs) in [
        ("destroy_free.c", "300", true),
        ("destroy_unmap.c", "60", true),
        ("qspin_destroy.c", "60", true),
        // glibc's wakes by an address in the lock, which may be unmapped by then: the checker reports the
        // system call.
        ("rwlock_destroy.c", "60", false),
    ] {
        let Some([mut plain, mut ours]) = memcheck(&Program::compile(source, &[]), rounds) else { return };
        if glibcs {
            expect_silent_success(
                &format!("{source} on glibc under memcheck"),
                &run_limited(&mut plain, LIMIT),
            );
        }
        expect_silent_success(&format!("{source} under run and memcheck"), &run_limited(&mut ours, LIMIT));
    }
}

/// The checker can fail: a lock that is touched after it was freed is reported, through the preloaded symbol
/// too.
#[test]
fn memcheck_sees_a_touch_after_free() {
    let program = Program::compile("touch_after_free.c", &[]);
    for mut cmd in ["mutex", "spin"].iter().filter_map(|which| memcheck(&program, which)).flatten() {
        let output = run_limited(&mut cmd, LIMIT);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(42), "{cmd:?}: no error was reported\n{text}");
        assert!(text.contains("Invalid"), "{cmd:?}: another error\n{text}");
    }
}
