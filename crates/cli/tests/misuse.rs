//! What a process under check finds itself, read from what it leaves: programs of `tests/check`, which do what is
//! easily taken for wrong, or one thing that is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use poundlock_statfile::check::{DIRECT, Event, Misuse, OUTSIDE, SIGNAL, Wrong};
use poundlock_statfile::{Live, Log};

use crate::support::{LIMIT, allocators, build, preload_library, run_limited, scratch, stderr};

fn compile(source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/check").join(source);
    let source = source.canonicalize().expect("the program is there");
    let program = scratch().join("program");
    let flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    build(Command::new("cc").args(flags).arg(&source), &source, &program);
    program
}

/// Runs a program under check, with these libraries preloaded, of which `None` is ours. What it, and the
/// processes that come of it, have found.
#[track_caller]
fn run(
    program: &Path,
    argument: Option<&str>,
    preload: &[Option<&Path>],
    lock: &str,
) -> (Output, Vec<Misuse>) {
    let left = scratch();
    let libraries: Vec<&OsStr> =
        preload.iter().map(|library| library.unwrap_or(preload_library()).as_os_str()).collect();
    let mut cmd = Command::new(program);
    cmd.args(argument)
        .env("LD_PRELOAD", libraries.join(OsStr::new(":")))
        .env("POUNDLOCK_STAT_DIR", &left)
        .env("POUNDLOCK_CHECK", "1")
        .env("POUNDLOCK_LOCK", lock);
    let output = run_limited(&mut cmd, LIMIT);
    let mut found = Vec::new();
    let mut files = 0;
    for file in std::fs::read_dir(&left).expect("the directory is there") {
        let live = Live::open(&file.expect("it can be read").path()).expect("what the program left");
        files += 1;
        let mut log = Log::of_dead_process();
        live.events(&mut log, &mut |logged| {
            if let Event::Misuse(misuse) = logged.event {
                found.push(misuse);
            }
        });
    }
    assert!(files > 0, "the library did nothing: {}", stderr(&output));
    (output, found)
}

#[track_caller]
fn silent_with(source: &str, preload: &[Option<&Path>], lock: &str) {
    let (output, found) = run(&compile(source), None, preload, lock);
    assert_eq!(output.status.code(), Some(0), "{source} {lock} {preload:?}: {}", stderr(&output));
    assert!(found.is_empty(), "{source} {lock} {preload:?}: {found:#x?}");
}

#[track_caller]
fn silent(source: &str) {
    for lock in ["", "glibc"] {
        silent_with(source, &[None], lock);
    }
}

#[test]
fn memory_with_locks_comes_back() {
    silent("reuse.c");
}

#[test]
fn handlers_are_left_by_jumps() {
    silent("jump.c");
}

#[test]
fn programs_have_their_handlers() {
    silent("handlers.c");
}

#[test]
fn forks_with_locks_held() {
    silent("forks.c");
}

#[test]
fn robust_and_shared_mutexes() {
    silent("robust.c");
}

#[test]
fn things_end_in_an_order_that_is_allowed() {
    silent("ends.c");
}

#[test]
fn locks_of_every_sort() {
    silent("sorts.c");
}

/// Behind ours their `free` is seen; before ours it is not, and all works as ever.
#[test]
fn other_allocators() {
    for library in allocators() {
        let library = Some(Path::new(library));
        for source in ["reuse.c", "forks.c", "ends.c"] {
            silent_with(source, &[None, library], "");
            silent_with(source, &[library, None], "");
        }
        let (_, found) = run(&compile("found.c"), Some("free-held-shrunk"), &[None, library], "");
        assert!(found.len() <= 1 && found.iter().all(|misuse| misuse.what == Wrong::FreeHeld), "{found:?}");
    }
}

/// The only thing that is found with this argument.
#[track_caller]
fn only(program: &Path, case: &str, lock: &str) -> Misuse {
    let (output, found) = run(program, Some(case), &[None], lock);
    let ended = output.status.code() == Some(0) || case == "destroy-waited-barrier";
    assert!(ended, "{case}: {:?} {}", output.status, stderr(&output));
    let [misuse] = &found[..] else { panic!("{case} {lock}: {found:#x?}") };
    misuse.clone()
}

#[test]
fn misuse_is_found() {
    let program = compile("found.c");
    for (case, what, both) in [
        ("fork-held-reader", Wrong::ForkHeld, true),
        ("free-held-shrunk", Wrong::FreeHeld, true),
        ("free-held-mremap", Wrong::FreeHeld, true),
        ("free-held-condition", Wrong::FreeHeld, true),
        ("destroyed-condition", Wrong::Destroyed, true),
        ("destroyed-rwlock", Wrong::Destroyed, true),
        ("destroyed-spinlock", Wrong::Destroyed, true),
        ("destroyed-twice", Wrong::Destroyed, true),
        ("uninitialised-rwlock", Wrong::Uninitialised, false),
        ("uninitialised-condition", Wrong::Uninitialised, false),
        ("uninitialised-links", Wrong::Uninitialised, false),
        ("copied-and-waited-for", Wrong::Copied, false),
        ("destroy-waited-barrier", Wrong::DestroyWaited, true),
        ("frame-gone-thread", Wrong::FrameGone, true),
        ("exit-held-reader", Wrong::ExitHeld, true),
    ] {
        let misuse = only(&program, case, "");
        assert_eq!(misuse.what, what, "{case}");
        assert_eq!(!misuse.other_stack.is_empty(), both, "{case}: {misuse:#x?}");
    }
}

#[test]
fn locks_in_signal_handlers() {
    let program = compile("found.c");
    for lock in ["", "glibc"] {
        for (case, signal, sort) in [
            ("handler-after", libc::SIGUSR1, 0),
            ("handler-before", libc::SIGUSR1, OUTSIDE),
            ("handler-nested", libc::SIGUSR2, 0),
            ("handler-direct", libc::SIGUSR1, DIRECT),
            ("handler-fault", libc::SIGSEGV, DIRECT),
        ] {
            let misuse = only(&program, case, lock);
            assert_eq!(misuse.what, Wrong::Handler, "{case}");
            let signal = u64::from(signal.cast_unsigned());
            assert_eq!((misuse.number & SIGNAL, misuse.number & !SIGNAL), (signal, sort), "{case} {lock}");
            assert!(!misuse.stack.is_empty() && !misuse.other_stack.is_empty(), "{case}: {misuse:#x?}");
        }
    }
}

/// A program that is not under check pays for them with one instruction.
#[test]
fn the_calls_that_give_memory_back_are_one_jump() {
    let mut cmd = Command::new("objdump");
    cmd.args(["--disassemble", "--no-show-raw-insn"]).arg(preload_library());
    let output = run_limited(&mut cmd, LIMIT);
    let text = String::from_utf8_lossy(&output.stdout);
    for name in ["free", "realloc", "reallocarray", "munmap", "mremap"] {
        let body = text.split_once(&format!(" <{name}>:\n")).map(|(_, rest)| rest);
        let body = body.unwrap_or_else(|| panic!("{name} is not exported"));
        let last = body.lines().position(|line| line.contains("jmp") || line.contains("br\t"));
        assert!(last.is_some_and(|last| last <= 3), "{name}:\n{}", body.lines().take(8).collect::<String>());
    }
}
