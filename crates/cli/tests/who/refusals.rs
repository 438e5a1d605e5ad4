//! What cannot be looked at, and what may not be, in one line.

use std::process::{Command, Output};

use super::{Target, deadlock};
use serde_json::Value;

use crate::support::{
    LIMIT, as_nobody, for_everybody, list, need, number, poundlock_bare, run_limited, scratch, stderr,
    stdout, until,
};

#[track_caller]
fn refused(output: &Output, status: i32, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(status), "{}{}", stdout(output), stderr(output));
    let text = stderr(output);
    assert!(stdout(output).is_empty() && text.lines().count() == 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

fn asked(args: &[&str]) -> Output {
    run_limited(poundlock_bare().arg("who").args(args), LIMIT)
}

#[test]
fn what_is_no_process_is_said_to_be_none() {
    refused(&asked(&["2147483647"]), 125, &["poundlock: there is no process 2147483647"]);
    // The kernel's own, outside of containers.
    if std::fs::read("/proc/2/cmdline").is_ok_and(|line| line.is_empty()) {
        refused(&asked(&["2"]), 125, &["process 2 has no memory of its own"]);
    }
    for (args, part) in [
        (&["0"][..], "0"),
        (&["server"], "server"),
        (&["-5"], "-5"),
        (&[], "PID"),
        (&["1", "--core", "x"], "--core"),
        (&["--exe", "x", "1"], "--exe"),
    ] {
        let output = asked(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    }
}

/// Those that were named, and with `--tree` those that they started. One that cannot be looked at leaves the
/// others.
#[test]
fn several_processes_are_looked_at_each_by_itself() {
    let script = r#"timeout 600 "$0" & timeout 600 "$0" & wait"#;
    let target = Target::start(Command::new("sh").args(["-c", script]).arg(deadlock()));
    let pid = target.pid().to_string();
    let mut pids = Vec::new();
    until("two deadlocks", || {
        let output = asked(&["--tree", "--json", "-", &pid]);
        let Ok(document) = serde_json::from_slice::<Value>(&output.stdout) else { return false };
        let processes = list(&document, "processes");
        pids = processes.iter().map(|process| number(process, "pid")).collect();
        processes.iter().filter(|process| !list(process, "deadlocks").is_empty()).count() == 2
    });
    assert!(pids.len() == 5 && pids[0] == u64::from(target.pid()), "{pids:?}");
    let titles = |output: &Output| stdout(output).lines().filter(|line| line.starts_with("process ")).count();
    assert_eq!(titles(&asked(&["--tree", &pid])), 5);
    let output = asked(&[&pid, "2147483647", &pids[1].to_string()]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(titles(&output), 2, "{}", stdout(&output));
    assert!(stderr(&output).starts_with("poundlock: there is no process 2147483647"), "{}", stderr(&output));
    for pid in pids {
        // SAFETY: takes numbers; these are the processes that the shell above has started.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    }
}

#[test]
fn a_thread_leads_to_its_process() {
    let target = Target::start(&mut Command::new(deadlock()));
    let mut other = 0;
    until("threads", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", target.pid())).expect("it lives");
        let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
        other = ids.max().unwrap_or(0);
        other > target.pid()
    });
    let line = format!("{other} is a thread of process {}", target.pid());
    refused(&asked(&[&other.to_string()]), 125, &[&line]);
}

#[test]
fn bad_files_are_named_with_what_is_wrong() {
    let dir = scratch();
    let path = |name: &str| dir.join(name).to_str().expect("a plain name").to_owned();
    std::fs::write(path("text"), "no core").expect("it can be written");
    std::fs::write(path("empty"), "").expect("it can be written");
    std::fs::write(path("cut"), &std::fs::read("/bin/true").expect("it is there")[..70]).expect("written");
    refused(&asked(&["--core", &path("none")]), 125, &["none", "no such file"]);
    refused(&asked(&["--core", &path("")]), 125, &[]);
    for name in ["text", "empty", "cut"] {
        refused(&asked(&["--core", &path(name)]), 125, &[name]);
    }
    refused(&asked(&["--core", "/bin/true"]), 125, &["not a core file"]);
    let target = Target::start(&mut Command::new(deadlock()));
    refused(&asked(&["--json", &path("none/x"), &target.pid().to_string()]), 125, &["cannot be written"]);
}

/// As another user, who may not look at us: by `who`, `stat` and `top`.
#[test]
fn another_users_process_needs_sudo() {
    let target = Target::start(&mut Command::new(deadlock()));
    let Some(place) = for_everybody(&[super::command()]) else { return };
    let copy = place.path().join("poundlock");
    let pid = target.pid().to_string();
    let as_another = |args: &[&str]| run_limited(as_nobody(Command::new(&copy).args(args)), LIMIT);
    let (who, stat, top) = (&["who", &pid][..], &["stat", "--pid", &pid][..], &["top", "--pid", &pid][..]);
    refused(&as_another(who), 125, &["another user's", "sudo"]);
    for args in [stat, top] {
        refused(&as_another(args), 125, &["sudo"]);
    }
    // And one installed for everybody refuses whatever it is asked.
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).expect("ours");
    if stderr(&as_another(who)).contains("another user's") {
        eprintln!("SKIPPED: this file system ignores set-user-id");
        return;
    }
    for args in [who, stat, top, &["stat", "--futex", "--", "true"]] {
        refused(&as_another(args), 125, &["set-user-id", "chmod"]);
    }
}

#[test]
fn one_that_is_traced_has_its_tracer_named() {
    let Some(gdb) = need("gdb", "gdb") else { return };
    let target = Target::start(&mut Command::new(deadlock()));
    let mut gdb = Command::new(gdb)
        .args(["-q", "-nx", "-p", &target.pid().to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    until("traced", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid())).expect("it lives");
        status.contains(&format!("TracerPid:\t{}", gdb.id()))
    });
    let output = asked(&[&target.pid().to_string()]);
    let _ = gdb.kill();
    let _ = gdb.wait();
    refused(&output, 125, &["is traced by process", "(gdb)"]);
}
