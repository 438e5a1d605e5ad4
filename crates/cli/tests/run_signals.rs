//! `poundlock run` and signals: the command starts with those dispositions and that mask that it would have
//! without us; and where we wait for its end, what is sent to us reaches it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    LIMIT, expect_status, from_a_terminal, poundlock, poundlock_bare, preload_library, run_limited, scratch,
    start, stderr,
};

/// The command, which has to wait: for the library there is a link, to be removed at the end.
fn waiting() -> Command {
    let library = scratch().join("a b.so");
    std::fs::copy(preload_library(), &library).expect("the library can be copied");
    let mut command = poundlock_bare();
    command.env("POUNDLOCK_PRELOAD_LIB", library);
    command
}

/// Prints its signal, and ends on USR2.
const ANSWERING: &str = r#"
    for signal in HUP INT QUIT TERM USR1 ALRM WINCH; do trap "echo got $signal" $signal; done
    trap 'echo got USR2; exit 3' USR2
    echo ready
    while :; do sleep 0.02; done
"#;

#[test]
fn signals_sent_to_us_reach_the_command() {
    let mut running = start(waiting().args(["run", "--", "bash", "-c", ANSWERING]));
    running.wait_for_output("ready", LIMIT);
    for (signal, name) in [
        (libc::SIGHUP, "HUP"),
        (libc::SIGINT, "INT"),
        (libc::SIGQUIT, "QUIT"),
        (libc::SIGTERM, "TERM"),
        (libc::SIGUSR1, "USR1"),
        (libc::SIGALRM, "ALRM"),
        (libc::SIGWINCH, "WINCH"),
    ] {
        running.kill(signal);
        running.wait_for_output(&format!("got {name}"), LIMIT);
    }
    running.kill(libc::SIGUSR2);
    let output = running.finish(LIMIT);
    expect_status(&output, 3);
}

#[test]
fn a_signal_that_ends_the_command_is_in_our_exit_status() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGRTMIN() + 3] {
        let mut running = start(waiting().args(["run", "--", "sh", "-c", "echo ready; exec sleep 1000"]));
        running.wait_for_output("ready", LIMIT);
        running.kill(signal);
        let output = running.finish(LIMIT);
        expect_status(&output, 128 + signal);
        // A shell says so, which sees an exit status of ours; but nothing of what was asked for.
        assert_eq!(stderr(&output).contains("poundlock: sh: killed by "), signal != libc::SIGINT);
    }
}

/// No process of ours is left beside it, and its end is its own.
#[test]
fn we_become_the_command() {
    let mut running =
        start(poundlock().args(["run", "--", "sh", "-c", "echo \"I am $$.\"; exec sleep 1000"]));
    running.wait_for_output(&format!("I am {}.", running.id()), LIMIT);
    running.kill(libc::SIGTERM);
    let output = running.finish(LIMIT);
    assert_eq!((output.status.signal(), output.stderr), (Some(libc::SIGTERM), vec![]));
}

/// The lines of /proc/self/status that say which signals are blocked and ignored, as a command sees them that
/// `prepare` was called for.
fn signal_state(mut cmd: Command, prepare: fn()) -> Vec<String> {
    cmd.args(["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
    // SAFETY: the functions passed here make async-signal-safe calls only.
    unsafe {
        cmd.pre_exec(move || {
            prepare();
            Ok(())
        });
    }
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    String::from_utf8(output.stdout).expect("hexadecimal digits").lines().map(str::to_string).collect()
}

#[test]
fn masks_and_dispositions_are_inherited_as_if_we_were_not_there() {
    fn nothing() {}
    fn default_pipe() {
        // SAFETY: SIG_DFL is a valid disposition.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    fn ignoring() {
        for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGINT, libc::SIGCHLD] {
            // SAFETY: SIG_IGN is a valid disposition.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    fn blocking() {
        // SAFETY: the set is initialised before it is used.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGPIPE] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        }
    }
    let mut states = Vec::new();
    for prepare in [nothing as fn(), default_pipe, ignoring, blocking] {
        let mut plain = Command::new("env");
        from_a_terminal(&mut plain);
        let plain = signal_state(plain, prepare);
        for mut cmd in [poundlock(), waiting()] {
            cmd.args(["run", "--"]);
            assert_eq!(signal_state(cmd, prepare), plain);
        }
        states.push(plain);
    }
    // The preparations did something, or this would have compared nothing.
    assert!(states[0] == states[1] && states[1] != states[2] && states[2] != states[3], "{states:?}");
}

/// Both sides of a new terminal.
fn terminal() -> (File, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: both descriptors are written by the call; name, settings and size may be left out.
    let result = unsafe { libc::openpty(&raw mut master, &raw mut slave, null, null.cast(), null.cast()) };
    assert_eq!(result, 0, "openpty: {}", std::io::Error::last_os_error());
    // SAFETY: the call succeeded; nobody else has these descriptors.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

#[test]
fn an_interrupt_from_the_terminal_reaches_the_command_once_and_we_survive_it() {
    let (mut master, slave) = terminal();
    let script = r#"trap 'echo interrupted' INT; trap 'echo end; exit 9' USR1; echo ready; while :; do sleep 0.02; done"#;
    let mut cmd = waiting();
    cmd.args(["run", "--", "bash", "-c", script]);
    cmd.stdin(slave.try_clone().expect("a descriptor is left"));
    cmd.stdout(slave.try_clone().expect("a descriptor is left")).stderr(Stdio::from(slave));
    // SAFETY: both calls are async-signal-safe.
    unsafe {
        cmd.pre_exec(|| {
            // A session of its own, with the terminal on its standard input as the controlling one.
            libc::setsid();
            if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = cmd.spawn().expect("it starts");
    drop(cmd);
    let deadline = Instant::now() + Duration::from_secs(LIMIT);
    let mut reader = master.try_clone().expect("a descriptor is left");
    let (sender, output) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        // Reading fails when the last user of the other side is gone.
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            let _ = sender.send(String::from_utf8_lossy(&buffer[..n]).into_owned());
        }
    });
    let mut text = String::new();
    let mut wait_for = |word: &str| {
        while !text.contains(word) {
            let left = deadline.saturating_duration_since(Instant::now());
            match output.recv_timeout(left) {
                Ok(more) => text += &more,
                Err(error) => panic!("no {word:?} ({error}) in {text:?}"),
            }
        }
        text.clone()
    };
    let pid = i32::try_from(child.id()).expect("a process id is positive");
    let kill = |signal| {
        // SAFETY: kill takes two numbers; the child has not been waited for, so that its id is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "kill: {}", std::io::Error::last_os_error());
    };
    wait_for("ready");
    // While we stand still the command answers the terminal's interrupt. If we passed ours on afterwards, it
    // would get a second one, and before the signal that ends it, which goes the same way.
    kill(libc::SIGSTOP);
    master.write_all(b"\x03").expect("the terminal takes it");
    wait_for("interrupted");
    kill(libc::SIGCONT);
    kill(libc::SIGUSR1);
    let text = wait_for("end");
    assert_eq!(text.matches("interrupted").count(), 1, "{text:?}");
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(9));
}
