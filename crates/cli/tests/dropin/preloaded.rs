//! Libraries between the program and the C library beside ours: wrappers of lock calls before and behind it,
//! one that shows the program other times, and allocators.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::program::{Locks, Program, expect_silent_success, of_threads, sources};
use crate::support::{LIMIT, allocators, need, poundlock, preload_library, run_limited};

/// `LD_PRELOAD=` and these libraries, for `env`; `None` is ours.
fn preload(list: &[Option<&Path>]) -> OsString {
    let ours = preload_library().canonicalize().expect("it was just built");
    let mut value = OsString::from("LD_PRELOAD=");
    for (index, library) in list.iter().enumerate() {
        value.push(if index == 0 { "" } else { ":" });
        value.push(library.unwrap_or(&ours));
    }
    value
}

/// A wrapper that forwards by `dlvsym(RTLD_NEXT, ...)` called itself for ever if it came before ours, and if
/// it came behind, was given ours.
#[test]
fn wrappers_get_the_next_definition_and_not_their_own() {
    // With the versions that glibc has there.
    let script = sources().join(format!("next_lib.{}.map", std::env::consts::ARCH));
    let script = format!("-Wl,--version-script={}", script.display());
    let versions = ["-DWHICH=second", "-Wl,--hash-style=gnu", &script];
    let old_hash = ["-DWHICH=third", "-Wl,--hash-style=sysv", &script];
    let program = Program::compile("next.c", &[])
        .library_of("first", "next_lib", &["-DWHICH=first"])
        .library_of("second", "next_lib", &versions)
        .library_of("third", "next_lib", &old_hash)
        .library_of("plain", "next_lib", &["-DWHICH=plain"]);
    let [first, second, third, plain] =
        ["first", "second", "third", "plain"].map(|name| program.library_path(name));
    let [first, second, third, plain] = [&first, &second, &third, &plain].map(|path| Some(path.as_path()));
    // What is preloaded, in which file the program's first definition with a version is, and what each
    // wrapper finds. OURS is the C library in the control, where ours is not.
    type Case<'a> = (&'a [Option<&'a Path>], &'static str, &'a [&'a str]);
    let unseen = &format!("first:{}:unseen", of_threads());
    let cases: [Case<'_>; 7] = [
        (&[first, None], "OURS", &["first:OURS:seen"]),
        (&[None, first], "OURS", &[unseen]),
        // glibc finds what has the version that is asked for,
        (&[first, second, None], "libsecond.so", &["first:libsecond.so:seen", "second:OURS:seen"]),
        (&[first, third, None], "libthird.so", &["first:libthird.so:seen", "third:OURS:seen"]),
        (&[second, first, None], "libsecond.so", &["second:OURS:seen", "first:OURS:any"]),
        // and passes over what knows versions, but not this one.
        (&[first, plain, None], "OURS", &["first:OURS:seen", "plain:OURS:unseen"]),
        (&[second, None, first], "libsecond.so", &["second:OURS:seen", unseen]),
    ];
    for (list, default, found) in cases {
        let arguments = |ours: &str, unseen: bool| -> Vec<String> {
            let found = found.iter().map(|found| {
                // Without ours in between, a wrapper sees the calls that ours answers.
                let seen = if unseen { found.replace(":unseen", ":any") } else { (*found).to_string() };
                seen.replace("OURS", ours)
            });
            std::iter::once(default.replace("OURS", ours)).chain(found).collect()
        };
        // The control: ours is left out.
        let others: Vec<_> = list.iter().copied().filter(Option::is_some).collect();
        let mut cmd = Command::new("env");
        cmd.arg(preload(&others)).arg(program.executable()).args(arguments(of_threads(), true));
        expect_silent_success(&format!("next.c on glibc, {list:?}"), &run_limited(&mut cmd, LIMIT));
        let mut cmd = poundlock();
        cmd.args(["run", "--", "env"]).arg(preload(list)).arg(program.executable());
        cmd.args(arguments("libpoundlock_preload.so", false));
        expect_silent_success(&format!("next.c, {list:?}"), &run_limited(&mut cmd, LIMIT));
    }
}

/// Where Debian and Ubuntu have libfaketime; the dynamic linker knows what `$LIB` is.
const FAKETIME: &str = "/usr/$LIB/faketime/libfaketimeMT.so.1";

/// With libfaketime before ours every wait called itself for ever; with ours first a wait lasted until a time
/// that the kernel knew nothing of: 0.0 s, or days.
#[test]
fn waits_last_as_long_as_asked_for_under_libfaketime() {
    if need("faketime", "faketime").is_none() {
        return;
    }
    let program = Program::compile("shown_time.c", &[]);
    let faketime = Some(Path::new(FAKETIME));
    for offset in ["+5d", "-5d"] {
        let shown = format!("FAKETIME={offset}");
        let mut cmd = Command::new("env");
        cmd.arg(&shown).arg(preload(&[faketime])).arg(program.executable()).arg("known");
        expect_silent_success(&format!("shown_time.c on glibc, {offset}"), &run_limited(&mut cmd, LIMIT));
        // libfaketime changes the times that it knows of; those that it does not it leaves wrong, as without
        // us. Where it comes behind ours, all are put right.
        for (list, which) in [(&[faketime, None], "known"), (&[None, faketime], "all")] {
            for lock in ["poundlock", "handoff", "any-negative", "baseline"] {
                let mut cmd = poundlock();
                cmd.args(["run", "--lock", lock, "--", "env", &shown]).arg(preload(list));
                cmd.arg(program.executable()).arg(which);
                let what = format!("shown_time.c on {lock}, {offset}, {list:?}");
                expect_silent_success(&what, &run_limited(&mut cmd, LIMIT));
            }
        }
        // As it is used: the command appends its library to what is preloaded.
        let mut cmd = poundlock();
        cmd.args(["run", "--", "faketime", "-m", "-f", offset]).arg(program.executable()).arg("all");
        expect_silent_success("shown_time.c, faketime under run", &run_limited(&mut cmd, LIMIT));
    }
}

/// The recorder waited for the time to pass, which it never did.
#[test]
fn a_clock_that_stands_still_does_not_hold_up_the_figures() {
    if need("faketime", "faketime").is_none() {
        return;
    }
    let program = Program::compile("shown_time.c", &[]);
    let mut cmd = poundlock();
    cmd.args(["stat", "--", "faketime", "-m", "-f", "2020-01-01 00:00:00"])
        .arg(program.executable())
        .arg("still");
    let output = run_limited(&mut cmd, LIMIT);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("80000"), "{}\n{text}", output.status);
}

/// Allocators that programs are started with, before and behind ours.
#[test]
fn allocators_preloaded() {
    for library in allocators() {
        let program = Program::compile("malloc_user.c", &[]).argument(library);
        let mut cmd = poundlock();
        cmd.args(["run", "--", "env"]).arg(preload(&[Some(Path::new(library)), None]));
        cmd.arg(program.executable()).arg(library);
        expect_silent_success(&format!("{library} before ours"), &run_limited(&mut cmd, LIMIT));
        program.environment("LD_PRELOAD", library).check(Locks::Two);
    }
}
