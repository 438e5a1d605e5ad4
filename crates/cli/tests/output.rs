//! Where a command's output goes: to readers who go away, to files and pipes, and to terminals that are
//! narrow.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{
    LIMIT, SIM, ending, expect_status, poundlock, poundlock_bare, run_limited, scratch, until,
};
use serde_json::Value;

/// A way to measure something in no time.
const HANDOVER: [&str; 10] =
    ["bench", "handover", "--locks", "glibc", "--threads", "1", "--seconds", "0.01", "--rounds", "1"];

/// Standard output of which the other end is closed already.
fn nobody_reads() -> Stdio {
    let (ours, _) = UnixStream::pair().unwrap();
    OwnedFd::from(ours).into()
}

/// What the command says to nobody, and how it ends. Standard error goes to a file.
#[track_caller]
fn unread(command: &mut Command, directory: &Path) -> (std::process::ExitStatus, String) {
    let errors = directory.join("errors");
    command.stdin(Stdio::null()).stdout(nobody_reads()).stderr(File::create(&errors).unwrap());
    let mut child = command.spawn().unwrap();
    let mut status = None;
    until("the command ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let status = status.expect("it has ended");
    (status, std::fs::read_to_string(errors).unwrap())
}

#[test]
fn a_command_whose_output_nobody_reads_ends_without_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let commands = [
        &["locks"][..],
        &["ipcs"],
        &["sim", "list"],
        &["torture", "--seconds", "0.1"],
        &["stat", "--json", "-", "--", "true"],
        &HANDOVER,
        &[&HANDOVER[..], &["--json", "-"]].concat(),
    ];
    for arguments in commands {
        // As from a shell.
        let mut command = poundlock();
        command.args(arguments).env("POUNDLOCK_IPC_DIR", directory.path().join("ipc"));
        let (status, errors) = unread(&mut command, directory.path());
        assert_eq!(status.signal(), Some(libc::SIGPIPE), "{arguments:?}: {}, {errors}", ending(status));
        let ours = errors.lines().filter(|line| line.contains("poundlock: ")).collect::<Vec<_>>();
        assert!(ours.is_empty(), "{arguments:?}: {errors}");
        // As from somebody who ignores the signal, and wants to be told.
        // SAFETY: signal is async-signal-safe; the disposition is valid.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                Ok(())
            });
        }
        let (status, errors) = unread(&mut command, directory.path());
        assert_eq!(status.code(), Some(125), "{arguments:?}: {}, {errors}", ending(status));
        assert!(errors.ends_with("poundlock: standard output: Broken pipe (os error 32)\n"), "{errors}");
    }
}

/// What failed decides about the status, whichever command was asked.
#[test]
fn the_same_failure_has_the_same_status_in_every_command() {
    let place = scratch();
    let path = |name: &str| place.join(name).to_str().expect("a plain name").to_owned();
    let (none, file) = (path("none/file"), path("file"));
    std::fs::write(&file, "no file of ours").expect("written");
    let of_files = |file: &str| {
        let all = [
            "who --core FILE",
            "stat --read FILE",
            "stat diff FILE FILE",
            "predict FILE",
            "check --suppressions FILE -- true",
            "sim run --machine FILE.toml --workload grid --lock mcs --threads 2",
        ];
        all.map(|line| line.replace("FILE", file)).to_vec()
    };
    let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let written =
        ["stat -o FILE -- true", "check -o FILE -- true", "who --json FILE 1", "stat --json FILE --pid 1"];
    let commands = ["run", "stat", "check", "top", "record -o /dev/null"];
    let of_commands = |words: &str| commands.map(|command| format!("{command} {words}")).to_vec();
    for (status, lines) in [
        (
            125,
            own(&[
                "who 2147483647",
                "stat --pid 2147483647",
                "top --pid 2147483647",
                "ipcs --report 2147483647",
            ]),
        ),
        (125, of_files(&none)),
        (125, of_files(&file)),
        (125, written.map(|line| line.replace("FILE", &none)).to_vec()),
        (2, of_commands("--no-such-option -- true")),
        (2, of_commands("--lock no-such-lock -- true")),
        (2, own(&["torture --lock no-such-lock", "sim check --lock no-such-lock", "who server"])),
        (127, of_commands("-- /no/such/program")),
        (126, of_commands("-- /etc/passwd")),
    ] {
        for line in lines {
            let output = run_limited(poundlock().current_dir(&place).args(line.split(' ')), LIMIT);
            assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(status == 2 || told.lines().count() == 1, "{line}: {told}");
        }
    }
}

#[test]
fn figures_are_for_the_file_even_if_nobody_reads_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    for arguments in [&HANDOVER[..], &SIM] {
        let mut command = poundlock_bare();
        command.args(arguments).arg("--json").arg(&file);
        let (status, errors) = unread(&mut command, directory.path());
        assert_eq!(status.signal(), Some(libc::SIGPIPE), "{arguments:?}: {}, {errors}", ending(status));
        let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert!(figures.is_object(), "{figures}");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_dash_is_standard_output_and_takes_the_place_of_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let sembench =
        ["bench", "sembench", "-t", "3", "-o", "2", "-r", "0.01", "--rounds", "1", "--no-sleepers"];
    let commands = [
        &HANDOVER[..],
        &["bench", "start-up", "--rounds", "1"],
        &["bench", "programs", "--rounds", "1"],
        &sembench,
        &SIM,
        &["sim", "reproduce", "osv_mutex"],
        &["stat"],
    ];
    for arguments in commands {
        let mut command = poundlock();
        command.current_dir(directory.path()).args(arguments).args(["--json", "-"]);
        if arguments == ["stat"] || arguments.contains(&"programs") {
            command.args(["--", "true"]);
        }
        let output = run_limited(&mut command, 2 * LIMIT);
        expect_status(&output, 0);
        let text = String::from_utf8(output.stdout).unwrap();
        let figures: Result<Value, _> = serde_json::from_str(&text);
        assert!(figures.is_ok_and(|figures| figures.is_object() || figures.is_array()), "{text}");
    }
    let mut page = poundlock_bare();
    page.current_dir(directory.path()).args(SIM).args(["--plot", "-"]);
    let output = run_limited(&mut page, LIMIT);
    expect_status(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.trim_end().ends_with("</html>"), "{text}");
    // Two documents would be none.
    let mut both = poundlock_bare();
    both.current_dir(directory.path()).args(SIM).args(["--json", "-", "--plot", "-"]);
    let output = run_limited(&mut both, LIMIT);
    expect_status(&output, 2);
    assert_eq!(output.stdout, b"");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--plot -"), "{output:?}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // A file of that name can be had.
    let mut named = poundlock_bare();
    named.current_dir(directory.path()).args(SIM).args(["--json", "./-"]);
    expect_status(&run_limited(&mut named, LIMIT), 0);
    assert!(directory.path().join("-").is_file());
}

/// What the command writes to a terminal of so many columns, which is its standard error, and its standard
/// output too if `both`.
#[track_caller]
fn on_a_terminal(arguments: &[&str], columns: u16, both: bool) -> String {
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointers are to two descriptors to be filled in and to a size; a name and settings are not
    // wanted.
    let opened = unsafe {
        libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &raw const size)
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call gave us both descriptors; nobody else has them.
    let (mut master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let mut command = poundlock();
    command.args(arguments).env("TERM", "xterm").stdin(Stdio::null()).stderr(slave.try_clone().unwrap());
    command.stdout(if both { slave.try_clone().unwrap().into() } else { Stdio::null() });
    let mut child = command.spawn().unwrap();
    // The command has the terminal alone, so that its end is the end of what we read.
    drop((slave, command));
    let reader = std::thread::spawn(move || {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        // The end of the other side is an error here.
        while let Ok(n @ 1..) = master.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..n]);
        }
        bytes
    });
    until("the command ends", || reader.is_finished());
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    String::from_utf8(reader.join().unwrap()).unwrap()
}

/// The lines that a terminal would show, one for each time that one was drawn, without control sequences.
fn drawn(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\x1b' {
            // ESC [ parameters letter
            rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(c);
        }
    }
    plain.split(['\r', '\n']).filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

#[test]
fn progress_is_one_line_on_a_narrow_terminal() {
    let uncontended =
        ["bench", "uncontended", "--locks", "glibc-adaptive", "--rounds", "1", "--seconds", "0.001"];
    for columns in [40, 100] {
        for arguments in [&uncontended[..], &SIM] {
            let lines = drawn(&on_a_terminal(arguments, columns, false));
            let progress: Vec<_> = lines.iter().filter(|line| line.contains(" left  ")).collect();
            assert!(!progress.is_empty(), "{arguments:?}: {lines:?}");
            for line in progress {
                assert!(line.chars().count() <= usize::from(columns), "{columns} columns: {line}");
                assert_eq!(line.contains('░') || line.contains('█'), columns == 100, "{line}");
            }
        }
    }
}

#[test]
fn tables_fit_the_terminal() {
    for columns in [60, 100] {
        let text = on_a_terminal(&HANDOVER, columns, true);
        let lines = drawn(&text);
        let table: Vec<_> = lines.iter().filter(|line| line.starts_with([' ', '─', '═'])).collect();
        assert!(table.len() >= 5, "{text}");
        for line in table {
            assert!(line.chars().count() <= usize::from(columns), "{columns} columns: {line}");
        }
    }
}
