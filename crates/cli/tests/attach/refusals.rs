//! What cannot be watched, and what may not be, in one line.

use std::process::Output;

use super::can_watch;
use crate::support::{LIMIT, poundlock_bare, run_limited, stderr, stdout};

fn asked(args: &[&str]) -> Output {
    run_limited(poundlock_bare().arg("stat").args(args), LIMIT)
}

#[test]
fn what_cannot_be_watched_is_said_in_a_line() {
    let none = asked(&["--pid", "2147483647"]);
    assert_eq!(none.status.code(), Some(125));
    assert_eq!(
        stderr(&none),
        "poundlock: there is no process 2147483647: `ps` and `pgrep` tell which there are\n"
    );
    for args in [
        &["--pid", "0"][..],
        &["--pid", "server"],
        &["--pid", "1", "--", "true"],
        &["--pid", "1", "--lock", "mcs"],
        &["--pid", "1", "--compare"],
        &["--futex"],
        &["--futex", "--lock", "mcs", "--", "true"],
    ] {
        let output = asked(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{args:?}");
    }
    let missing = asked(&["--futex", "--", "/none/of/that/name"]);
    if can_watch() {
        assert_eq!(missing.status.code(), Some(127), "{}", stderr(&missing));
    }
    // A command's status is the command's.
    if can_watch() {
        let output = asked(&["--futex", "-o", "/dev/null", "--", "sh", "-c", "exit 7"]);
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    }
}
