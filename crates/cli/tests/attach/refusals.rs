//! What cannot be watched, and what may not be, in one line.

use std::process::{Command, Output, Stdio};

use super::can_watch;
use crate::support::{
    LIMIT, as_nobody, compile_c, expect_status, for_everybody, list, parsed, poundlock, poundlock_bare,
    preload_library, run_limited, start, stderr, stdout, until,
};

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

/// Who may not see futex calls gets the library's report, which begins with the command that shows the rest.
#[test]
fn a_lock_of_the_programs_own_is_told_how_to_be_seen_without_rights() {
    let program = compile_c(include_str!("../../../../tests/stat/ownlock.c"), &["-O1"]);
    let command = poundlock().get_program().to_owned();
    let Some(place) = for_everybody(&[command.as_ref(), preload_library(), &program]) else { return };
    let at = |name: &str| place.path().join(name);
    let stat = || {
        let mut stat = Command::new(at("poundlock"));
        let library = preload_library().file_name().expect("a file");
        stat.arg("stat").env("POUNDLOCK_PRELOAD_LIB", place.path().join(library)).env("COLUMNS", "2000");
        stat
    };
    let mut may = stat();
    if run_limited(as_nobody(may.args(["--futex", "--", "true"])), LIMIT).status.success() {
        eprintln!("SKIPPED: every user may see futex calls here");
        return;
    }
    let json = at("report.json");
    let mut cmd = stat();
    cmd.args(["--every", "0.2", "--json"]).arg(&json).arg("--").arg(at("program"));
    let mut running = start(as_nobody(&mut cmd).stdin(Stdio::piped()));
    let way = format!("sudo poundlock stat --futex -- {}", at("program").display());
    let first = |text: &str| {
        let last = text.rsplit("poundlock stat: ").next().unwrap_or_default();
        last.lines().find_map(|line| line.strip_prefix("* ")).unwrap_or_default().to_owned()
    };
    until("it is told", || first(&running.errors_so_far()).contains(&way));
    running.write_input(b"");
    let output = running.finish(LIMIT);
    expect_status(&output, 0);
    let (report, first) = (parsed(&json), first(&stderr(&output)));
    let finding = &list(&report, "diagnosis")[0];
    assert!(first.contains(&way) && finding["kind"] == "unseen" && finding["text"] == first, "{report:#}");
}
