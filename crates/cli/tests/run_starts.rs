//! `poundlock run`: what is started, what is not, and what the caller sees of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{
    LIMIT, compile_c, expect_status, poundlock, poundlock_bare, preload_library, run_limited,
    run_limited_with_input, scratch, stdout, until,
};

/// Every name but `glibc`.
const OURS: [&str; 5] = ["poundlock", "any-negative", "mcs-queue", "fewer-atomics", "baseline"];

fn run(arguments: &[&str]) -> Output {
    run_limited(poundlock().args(arguments), LIMIT)
}

fn run_file(arguments: &[&str], file: &Path) -> Output {
    run_limited(poundlock().args(arguments).arg(file), LIMIT)
}

/// Checks that the command was not run: this status, nothing on standard output, and one line of ours that
/// contains each of `words`.
#[track_caller]
fn expect_refusal(output: &Output, code: i32, words: &[&str]) {
    expect_status(output, code);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.is_empty(), "on standard output: {:?}", stdout(output));
    assert!(stderr.starts_with("poundlock: ") && stderr.ends_with('\n'), "{stderr:?}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "no {word:?} in {stderr:?}");
    }
}

fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a script can be written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("and made executable");
}

/// Copies a program by another process: what is open for writing here, a test beside this one may pass on to
/// its child, and then it cannot be run.
fn copy(from: &Path, to: &Path) {
    expect_status(&run_limited(Command::new("cp").args([from, to]), LIMIT), 0);
}

/// A program that leaves a file behind, so that it can be told whether it ran: `program FILE`.
fn leaves_a_file(flags: &[&str]) -> PathBuf {
    compile_c(
        r#"
        #include <fcntl.h>
        #include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        int main(int argc, char **argv) {
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
            return argc > 1 && creat(argv[1], 0600) < 0;
        }
        "#,
        flags,
    )
}

#[test]
fn the_locks_are_ours() {
    // Which library the calls go to. The program asks the loader rather than taking the address: that could
    // be its own.
    let program = compile_c(
        r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
            const char *names[] = { "pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_unlock",
                                    "pthread_cond_wait", "pthread_cond_signal", "mtx_lock", "cnd_wait" };
            for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
                Dl_info info;
                void *symbol = dlsym(RTLD_DEFAULT, names[i]);
                printf("%s\n", symbol && dladdr(symbol, &info) ? info.dli_fname : "none");
            }
            return 0;
        }
        "#,
        &["-ldl"],
    );
    let library = preload_library().canonicalize().expect("it was just built");
    for lock in OURS {
        let output = run_file(&["run", "--lock", lock, "--"], &program);
        expect_status(&output, 0);
        assert!(
            stdout(&output).lines().all(|line| Path::new(line) == library),
            "{lock}: {}",
            stdout(&output)
        );
        assert_eq!(stdout(&output).lines().count(), 7);
    }
    let output = run_file(&["run", "--lock", "glibc", "--"], &program);
    expect_status(&output, 0);
    assert!(!stdout(&output).contains("poundlock"), "{}", stdout(&output));
}

#[test]
fn the_exit_status_is_the_commands() {
    for lock in OURS.iter().chain(&["glibc"]) {
        for code in [0, 1, 7, 255] {
            let script = format!("exit {code}");
            let output = run(&["run", "--lock", lock, "--", "sh", "-c", &script]);
            expect_status(&output, code);
            assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
        }
    }
}

#[test]
fn an_option_that_is_none_is_not_taken_for_the_command() {
    // As commands they would be searched for, and not found: 127.
    for arguments in [
        &["run", "--locks", "poundlock", "--", "true"][..],
        &["run", "--lock", "poundlock", "-x", "true"],
        &["stat", "--jsn", "x", "true"],
        &["stat", "--top", "3", "--locks=poundlock", "true"],
    ] {
        let output = run(arguments);
        expect_status(&output, 2);
        let text = String::from_utf8_lossy(&output.stderr);
        let wrong = ["--locks", "-x", "--jsn"]
            .iter()
            .find(|wrong| arguments[1..].iter().any(|a| a.starts_with(*wrong)));
        assert!(text.contains(&format!("'{}", wrong.expect("one is wrong"))), "{text}");
        assert!(output.stdout.is_empty(), "it ran");
    }
    // Behind `--` it is a command, and behind the command an argument.
    let output = run(&["run", "--", "--locks", "poundlock"]);
    expect_refusal(&output, 127, &["--locks"]);
    for arguments in [&["run", "printf", "%s", "--locks"][..], &["run", "--", "printf", "%s", "--locks"]] {
        let output = run(arguments);
        expect_status(&output, 0);
        assert_eq!(stdout(&output), "--locks");
    }
}

#[test]
fn input_output_and_arguments_are_the_commands() {
    let output = run_limited_with_input(poundlock().args(["run", "--", "cat"]), b"in\0and out", LIMIT);
    expect_status(&output, 0);
    assert_eq!(output.stdout, b"in\0and out");
    assert!(output.stderr.is_empty());

    let mut cmd = poundlock();
    cmd.args(["run", "--", "printf", "%s|", "--lock", "", "a b", "--"]).arg(OsStr::from_bytes(b"\xff"));
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    assert_eq!(output.stdout, b"--lock||a b|--|\xff|");

    // argv[0] as it was typed, as `execvp` would pass it.
    let program =
        compile_c("#include <stdio.h>\nint main(int c, char **v) { return c < 1 || puts(v[0]) < 0; }", &[]);
    let dir = program.parent().expect("it lies in a directory");
    let output = run_limited(poundlock().args(["run", "--", "program"]).env("PATH", dir), LIMIT);
    expect_status(&output, 0);
    assert_eq!(stdout(&output), "program\n");
}

#[test]
fn what_is_not_there_is_not_found() {
    for name in ["no-such-command", "./no-such-command", "/no/such/command", "/etc/passwd/x", ""] {
        for lock in ["any-negative", "glibc"] {
            let output = run(&["run", "--lock", lock, "--", name]);
            expect_refusal(&output, 127, &[name]);
        }
    }
}

#[test]
fn what_cannot_be_executed_is_not() {
    let dir = scratch();
    let plain = dir.join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").expect("a file can be written");
    let damaged = dir.join("damaged");
    executable(&damaged, "\x7fELF and no more");
    for path in [&plain, &dir, &damaged] {
        for lock in ["any-negative", "glibc"] {
            if path == &damaged && lock == "glibc" {
                // Not looked into: whether it runs is the kernel's affair.
                continue;
            }
            let output = run_file(&["run", "--lock", lock, "--"], path);
            expect_refusal(&output, 126, &[path.to_str().expect("UTF-8")]);
        }
    }
    // Found on PATH, but nothing there can be run.
    let output = run_limited(poundlock().args(["run", "--", "plain"]).env("PATH", &dir), LIMIT);
    expect_refusal(&output, 126, &["plain"]);
}

#[test]
fn an_unknown_lock_is_answered_with_the_names() {
    let locks = run_limited(poundlock_bare().arg("locks"), LIMIT);
    expect_status(&locks, 0);
    let names: Vec<String> = stdout(&locks)
        .lines()
        .map(|line| line.split_whitespace().next().expect("a name on each line").to_string())
        .collect();
    for name in OURS.iter().chain(&["glibc"]) {
        assert!(names.iter().any(|listed| listed == name), "{name} is not among {names:?}");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for sub in ["run", "stat"] {
        let output = run_limited(poundlock_bare().args([sub, "--lock", "spinny", "--", "true"]), LIMIT);
        expect_refusal(&output, 2, &["spinny"]);
        expect_refusal(&output, 2, &names);
    }
}

#[test]
fn a_statically_linked_program_is_refused() {
    for flags in [&["-static"][..], &["-static-pie", "-fPIE"]] {
        let program = leaves_a_file(flags);
        let trace = scratch().join("ran");
        // Without locks of ours being asked for, `stat` looks from outside.
        for command in [&["run", "--"][..], &["stat", "--lock", "poundlock", "--"]] {
            let output = run_limited(poundlock().args(command).arg(&program).arg(&trace), LIMIT);
            expect_refusal(&output, 126, &["statically linked", program.to_str().expect("UTF-8")]);
            assert!(!trace.exists(), "it was refused and run all the same");
        }
        // Its own locks it has in any case.
        let output =
            run_limited(poundlock().args(["run", "--lock", "glibc", "--"]).arg(&program).arg(&trace), LIMIT);
        expect_status(&output, 0);
        assert!(trace.exists());
    }
}

#[test]
fn scripts_are_followed_to_what_runs_them() {
    let dir = scratch();
    let static_program = leaves_a_file(&["-static"]);
    let static_dir = static_program.parent().expect("it lies in a directory").to_str().expect("UTF-8");
    let script = |name: &str, first_line: &str| {
        let path = dir.join(name);
        executable(&path, &format!("{first_line}\necho \"$LD_PRELOAD\"\n"));
        path
    };
    let plain = script("plain", "#!/bin/sh");
    let chained = dir.join("chained");
    executable(&chained, &format!("#!{} -e\n", plain.display()));
    for path in [
        script("none", ""),
        plain,
        script("blanks", "#! \t /bin/sh -u "),
        script("env", "#!/usr/bin/env sh"),
        script("env-s", "#!/usr/bin/env -S A=1 sh -u"),
        chained,
    ] {
        let output = run_file(&["run", "--"], &path);
        expect_status(&output, 0);
        assert!(stdout(&output).contains("libpoundlock_preload.so"), "{}: {output:?}", path.display());
    }

    let path_with_static = format!("{static_dir}:/usr/bin:/bin");
    let trace = dir.join("ran");
    for path in [
        script("static", &format!("#!{}", static_program.display())),
        script("env-static", "#!/usr/bin/env program"),
        script("env-s-static", "#!/usr/bin/env -S program x"),
    ] {
        let mut cmd = poundlock();
        cmd.args(["run", "--"]).arg(&path).arg(&trace).env("PATH", &path_with_static);
        expect_refusal(
            &run_limited(&mut cmd, LIMIT),
            126,
            &["statically linked", path.to_str().expect("UTF-8")],
        );
        assert!(!trace.exists());
    }
    let lost = script("lost", "#!/no/such/interpreter");
    expect_refusal(&run_file(&["run", "--"], &lost), 126, &["/no/such/interpreter", "not found"]);
    let lost = script("env-lost", "#!/usr/bin/env no-such-command");
    expect_refusal(&run_file(&["run", "--"], &lost), 127, &["no-such-command"]);
    let looped = dir.join("looped");
    executable(&looped, &format!("#!{}\n", looped.display()));
    expect_refusal(&run_file(&["run", "--"], &looped), 126, &["interpreter"]);
}

#[test]
fn a_program_that_gains_privileges_is_refused() {
    // A file of its own: other tests run the original.
    let program = scratch().join("program");
    copy(&leaves_a_file(&[]), &program);
    // SAFETY: returns a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: making a program that belongs to another user takes root");
        return;
    }
    let other = 12345;
    let trace = scratch().join("ran");
    for (bits, word, uid, gid) in
        [(0o4755, "set-user-id", Some(other), None), (0o2755, "set-group-id", None, Some(other))]
    {
        chown(&program, Some(uid.unwrap_or(0)), Some(gid.unwrap_or(0))).expect("root may");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(bits)).expect("root may");
        for command in [&["run", "--"][..], &["stat", "--lock", "poundlock", "--"]] {
            let output = run_limited(poundlock().args(command).arg(&program).arg(&trace), LIMIT);
            expect_refusal(&output, 126, &[word]);
            assert!(!trace.exists(), "it was refused and run all the same");
        }
    }
    // The bit alone gains nothing where the owner is who runs it.
    chown(&program, Some(0), Some(0)).expect("root may");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("root may");
    let output = run_limited(poundlock().args(["run", "--"]).arg(&program).arg(&trace), LIMIT);
    expect_status(&output, 0);
    assert!(trace.exists());
}

#[test]
fn a_program_with_file_capabilities_is_refused_to_others_than_root() {
    // SAFETY: returns a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: giving a program capabilities takes root");
        return;
    }
    // Where the other user can reach all of it, which the build's directories may not be.
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let [exe, library, program] =
        ["poundlock", "libpoundlock_preload.so", "program"].map(|name| dir.path().join(name));
    copy(env!("CARGO_BIN_EXE_poundlock").as_ref(), &exe);
    copy(preload_library(), &library);
    copy(&leaves_a_file(&[]), &program);
    for path in [&exe, &library, &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let as_other = |privileges: fn()| {
        let mut cmd = Command::new(&exe);
        cmd.args(["run", "--"]).arg(&program).uid(12345).gid(12345).env_remove("LD_PRELOAD");
        // SAFETY: the functions passed here make one system call.
        unsafe {
            cmd.pre_exec(move || {
                privileges();
                Ok(())
            });
        }
        run_limited(&mut cmd, LIMIT)
    };
    fn as_ever() {}
    fn no_new_privileges() {
        // SAFETY: this option takes no pointers.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    }
    expect_status(&as_other(as_ever), 0);

    // CAP_NET_RAW, permitted and effective, in the layout of `struct vfs_cap_data`, revision 2.
    let value: Vec<u8> =
        [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(program.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: both strings end in a zero, and the value is as long as is said.
    let result = unsafe {
        libc::setxattr(path.as_ptr(), c"security.capability".as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if result != 0 {
        eprintln!("SKIPPED: no file capabilities here: {}", std::io::Error::last_os_error());
        return;
    }
    for privileges in [as_ever as fn(), no_new_privileges] {
        expect_refusal(&as_other(privileges), 126, &["capabilities"]);
    }
}

#[test]
fn other_preloaded_libraries_stay_and_come_after_ours() {
    let other = compile_c("int poundlock_test_other;", &["-shared", "-fPIC"]);
    let mut cmd = poundlock();
    let script = "echo $LD_PRELOAD; grep -c . /proc/self/maps >/dev/null; cat /proc/self/maps";
    cmd.args(["run", "--", "sh", "-c", script]);
    cmd.env("LD_PRELOAD", &other);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let text = stdout(&output);
    let ours = preload_library().canonicalize().expect("it was just built");
    assert_eq!(text.lines().next(), Some(format!("{}:{}", ours.display(), other.display()).as_str()));
    // Both are in the processes that the command starts.
    assert!(text.lines().skip(1).any(|line| line.ends_with(other.to_str().expect("UTF-8"))), "{text}");
    assert!(text.lines().skip(1).any(|line| line.ends_with(ours.to_str().expect("UTF-8"))), "{text}");
}

#[test]
fn one_poundlock_inside_another_decides_for_its_own_command() {
    let exe = env!("CARGO_BIN_EXE_poundlock");
    let script = r#""$0" run --lock baseline -- sh -c 'echo "$POUNDLOCK_LOCK $LD_PRELOAD"'
        "$0" run --lock glibc -- sh -c 'echo "${POUNDLOCK_LOCK-unset} ${LD_PRELOAD-unset}"'"#;
    let output = run(&["run", "--lock", "mcs-queue", "--", "sh", "-c", script, exe]);
    expect_status(&output, 0);
    let ours = preload_library().canonicalize().expect("it was just built");
    assert_eq!(stdout(&output), format!("baseline {}\nunset unset\n", ours.display()));
}

/// `LD_PRELOAD` ends a path at a blank or a colon, and replaces what follows a dollar sign: such paths were
/// refused.
#[test]
fn a_library_whose_path_cannot_stand_in_ld_preload_is_linked() {
    let dir = scratch();
    for name in ["a b", "a:b", "a\tb", "$LIB"] {
        let its_dir = dir.join(name);
        let temporary = its_dir.join("temporary");
        std::fs::create_dir_all(&temporary).expect("a new directory");
        let library = its_dir.join("libpoundlock_preload.so");
        std::fs::copy(preload_library(), &library).expect("the library can be copied");
        let library = library.canonicalize().expect("it was just made");
        // A directory for temporary files whose path cannot stand there either is passed over.
        for temporary in [dir.canonicalize().expect("it was just made"), temporary] {
            for subcommand in ["run", "stat"] {
                let script = "echo \"$LD_PRELOAD\"; sh -c 'cat /proc/self/maps'; exit 7";
                let mut cmd = poundlock_bare();
                cmd.args([subcommand, "--", "sh", "-c", script]);
                cmd.env("POUNDLOCK_PRELOAD_LIB", &library).env("TMPDIR", &temporary);
                let output = run_limited(&mut cmd, LIMIT);
                expect_status(&output, 7);
                let text = stdout(&output);
                let link = Path::new(text.lines().next().expect("the first line is LD_PRELOAD"));
                assert_ne!(link, library);
                assert!(
                    text.contains(library.to_str().expect("UTF-8")) || name == "a\tb",
                    "not loaded: {text}"
                );
                assert!(text.contains("/libpoundlock_preload.so"), "not loaded: {text}");
                assert!(link.file_name() == library.file_name() && !link.exists(), "{text}");
                assert!(
                    !link.parent().expect("a directory").exists(),
                    "the link's directory was left behind"
                );
            }
        }
    }
}

#[test]
fn a_library_that_is_not_there_is_an_error() {
    let mut cmd = poundlock_bare();
    cmd.args(["run", "--", "true"]).env("POUNDLOCK_PRELOAD_LIB", scratch().join("missing.so"));
    expect_refusal(&run_limited(&mut cmd, LIMIT), 125, &["missing.so"]);
}

#[test]
fn the_library_is_found_beside_the_command_and_where_packages_put_it() {
    let dir = scratch().canonicalize().expect("it was just made");
    let exe = dir.join("bin/poundlock");
    std::fs::create_dir_all(dir.join("bin")).expect("a new directory");
    std::fs::create_dir_all(dir.join("lib/poundlock")).expect("a new directory");
    copy(env!("CARGO_BIN_EXE_poundlock").as_ref(), &exe);
    let run = || {
        let mut cmd = poundlock_alone(&exe);
        cmd.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
        run_limited(&mut cmd, LIMIT)
    };
    let packaged = format!("lib/{}-linux-gnu/poundlock", std::env::consts::ARCH);
    std::fs::create_dir_all(dir.join(&packaged)).expect("a new directory");
    for place in [&packaged, "lib/poundlock", "bin"] {
        let library = dir.join(place).join("libpoundlock_preload.so");
        std::fs::copy(preload_library(), &library).expect("the library can be copied");
        let output = run();
        expect_status(&output, 0);
        assert_eq!(stdout(&output).trim_end(), library.to_str().expect("UTF-8"));
    }
}

/// As `cargo install` leaves it. The library stays for processes that the command leaves behind.
#[test]
fn a_command_that_was_installed_alone_has_the_library_in_it() {
    let dir = scratch().canonicalize().expect("it was just made");
    let exe = dir.join("poundlock");
    copy(env!("CARGO_BIN_EXE_poundlock").as_ref(), &exe);
    let run = |script: &str| {
        let mut cmd = poundlock_alone(&exe);
        cmd.args(["run", "--", "sh", "-c", script])
            .env("XDG_CACHE_HOME", dir.join("cache"))
            .current_dir(&dir);
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        stdout(&output).trim_end().to_owned()
    };
    let library = run("echo $LD_PRELOAD");
    assert!(library.starts_with(dir.join("cache/poundlock").to_str().expect("UTF-8")), "{library}");
    assert_eq!(run("echo $LD_PRELOAD"), library);
    run("setsid sh -c '
            until [ -e go ]; do sleep 0.01; done
            grep -c libpoundlock_preload /proc/self/maps >counted
            mv counted done' >/dev/null 2>&1 &");
    std::fs::write(dir.join("go"), "").expect("it is ours");
    until("the process that was left behind looks", || dir.join("done").exists());
    let counted = std::fs::read_to_string(dir.join("done")).expect("it is there");
    assert!(counted.trim().parse::<u32>().is_ok_and(|mappings| mappings > 0), "{counted}");
}

fn poundlock_alone(exe: &Path) -> Command {
    let mut cmd = Command::new(exe);
    for name in ["LD_PRELOAD", "POUNDLOCK_PRELOAD_LIB", "POUNDLOCK_LOCK", "POUNDLOCK_STAT_DIR"] {
        cmd.env_remove(name);
    }
    cmd
}
