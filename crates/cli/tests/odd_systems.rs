//! `run` and `stat` on systems without what they usually find: they work, or say in a line why not.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{
    LIMIT, compile_c, expect_status, poundlock, preload_library, run_limited, start, stdout,
};

/// Threads that wait for a mutex and for each other. With an argument it prints its largest address space and
/// its data, in KiB.
const WORK: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    static long count, turn;
    static void *work(void *number) {
        for (int i = 0; i < 20000; i++) {
            pthread_mutex_lock(&shared_lock);
            count++;
            pthread_mutex_unlock(&shared_lock);
        }
        pthread_mutex_lock(&shared_lock);
        for (int i = 0; i < 20; i++) {
            while (turn % 2 != (long)number) pthread_cond_wait(&changed, &shared_lock);
            turn++;
            pthread_cond_broadcast(&changed);
        }
        pthread_mutex_unlock(&shared_lock);
        return NULL;
    }
    int main(int argc, char **argv) {
        pthread_t threads[2];
        for (long i = 0; i < 2; i++)
            if (pthread_create(&threads[i], NULL, work, (void *)i)) return 9;
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        if (argc > 1) {
            char line[256];
            long kib;
            FILE *status = fopen("/proc/self/status", "r");
            while (fgets(line, sizeof line, status))
                if (sscanf(line, "VmPeak: %ld", &kib) == 1 || sscanf(line, "VmData: %ld", &kib) == 1)
                    printf("%ld\n", kib);
        }
        return count != 40000;
    }
"#;

/// Says that something may not be done here, or is not there to be done.
fn skipped(what: &str, error: impl std::fmt::Display) {
    eprintln!("SKIPPED: {what}: {error}");
}

/// What prepares the child that becomes the command.
type Prepare = fn() -> io::Result<()>;

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Mounts a file system over a directory, for the calling process and its children alone.
fn mount_over(
    kind: &std::ffi::CStr,
    at: &std::ffi::CStr,
    flags: libc::c_ulong,
    data: &std::ffi::CStr,
) -> io::Result<()> {
    // SAFETY: numbers, and strings that end in a zero.
    unsafe {
        checked(libc::unshare(libc::CLONE_NEWNS))?;
        let nothing = std::ptr::null();
        let private = libc::MS_REC | libc::MS_PRIVATE;
        checked(libc::mount(nothing, c"/".as_ptr(), nothing, private, nothing.cast()))?;
        checked(libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()))
    }
}

/// Whether the system lets us do that, in a child of its own.
fn may(prepare: Prepare) -> io::Result<()> {
    let mut cmd = Command::new("true");
    // SAFETY: the functions passed here make system calls.
    unsafe { cmd.pre_exec(prepare) };
    cmd.status().map(drop)
}

/// Runs the command, prepared so, with a sub-command and a program.
fn there(prepare: Prepare, subcommand: &str, program: &Path) -> Output {
    let mut cmd = poundlock();
    cmd.args([subcommand, "--"]).arg(program);
    // SAFETY: as in `may`.
    unsafe { cmd.pre_exec(prepare) };
    run_limited(&mut cmd, LIMIT)
}

/// Both sub-commands work, and the report knows the lock.
#[track_caller]
fn expect_both(prepare: Prepare, program: &Path, name: &str) {
    expect_status(&there(prepare, "run", program), 0);
    let output = there(prepare, "stat", program);
    expect_status(&output, 0);
    let text = format!("{}{}", stdout(&output), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(name) && text.contains("3 threads, 1 process"), "{text}");
}

#[test]
fn no_shared_memory() {
    fn prepare() -> io::Result<()> {
        mount_over(c"tmpfs", c"/dev/shm", libc::MS_RDONLY, c"")
    }
    match may(prepare) {
        Ok(()) => expect_both(prepare, &compile_c(WORK, &[]), "shared_lock"),
        Err(error) => skipped("mounting over /dev/shm", error),
    }
}

/// Names are not to be had then: which program's code lies where is in /proc.
#[test]
fn no_proc() {
    fn prepare() -> io::Result<()> {
        mount_over(c"tmpfs", c"/proc", 0, c"")
    }
    if let Err(error) = may(prepare) {
        return skipped("mounting over /proc", error);
    }
    let program = compile_c(WORK, &[]);
    expect_both(prepare, &program, "taken in 0x");
    // Where the library is looked for beside the command, which is to be found in /proc.
    let mut cmd = poundlock();
    cmd.env_remove("POUNDLOCK_PRELOAD_LIB").args(["run", "--"]).arg(&program);
    // SAFETY: as in `may`.
    unsafe { cmd.pre_exec(prepare) };
    let output = run_limited(&mut cmd, LIMIT);
    if !output.status.success() {
        expect_status(&output, 125);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("/proc") && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn processes_of_others_are_hidden() {
    fn prepare() -> io::Result<()> {
        mount_over(c"proc", c"/proc", 0, c"hidepid=2")?;
        // SAFETY: numbers.
        unsafe {
            checked(libc::setgroups(0, std::ptr::null()))?;
            checked(libc::setresgid(12345, 12345, 12345))?;
            checked(libc::setresuid(12345, 12345, 12345))
        }
    }
    if let Err(error) = may(prepare) {
        return skipped("mounting /proc with hidepid, as another user", error);
    }
    // Where the other user can reach all of it, which the build's directories may not be.
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let files = [env!("CARGO_BIN_EXE_poundlock").as_ref(), preload_library(), &compile_c(WORK, &[])];
    let [exe, _, program] = files.map(|from: &Path| {
        let to = dir.path().join(from.file_name().expect("a file has a name"));
        // By another process: see `run_starts`.
        expect_status(&run_limited(Command::new("cp").args([from, &to]), LIMIT), 0);
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        to
    });
    for subcommand in ["run", "stat"] {
        let mut cmd = Command::new(&exe);
        cmd.args([subcommand, "--"]).arg(&program).env_remove("LD_PRELOAD");
        // SAFETY: as in `may`.
        unsafe { cmd.pre_exec(prepare) };
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(subcommand == "run" || text.contains("shared_lock"), "{text}");
    }
}

/// 64 MiB more than the program needs without us: of address space, and of data, which is what strict
/// overcommitment (`vm.overcommit_memory=2`) counts. The statistics, of which little is ever used, may not fit
/// into the former.
/// A program that limits its own address space has that for itself: what was reserved for figures is given
/// back.
#[test]
fn little_memory_by_choice() {
    let source = r#"#define _GNU_SOURCE
        #include <pthread.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/resource.h>
        static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
        static void *work(void *unused) {
            char *memory = malloc(20 << 20);
            if (!memory) return (void *)1;
            memset(memory, 1, 20 << 20);
            for (int i = 0; i < 1000; i++) {
                pthread_mutex_lock(&shared_lock);
                pthread_mutex_unlock(&shared_lock);
            }
            free(memory);
            return unused;
        }
        int main(int argc, char **argv) {
            struct rlimit limit = { 1 << 30, 1 << 30 };
            pthread_mutex_lock(&shared_lock);
            pthread_mutex_unlock(&shared_lock);
            int failed = argc < 2 ? -1 : *argv[1] == 's' ? setrlimit(RLIMIT_AS, &limit)
                                                         : prlimit(0, RLIMIT_AS, &limit, NULL);
            if (failed) return 3;
            pthread_t threads[4];
            for (int i = 0; i < 4; i++) if (pthread_create(&threads[i], NULL, work, NULL)) return 4;
            for (int i = 0; i < 4; i++) {
                void *result;
                if (pthread_join(threads[i], &result) || result) return 5;
            }
            return 0;
        }"#;
    let program = compile_c(source, &[]);
    for way in ["setrlimit", "prlimit"] {
        for subcommand in ["run", "stat", "check"] {
            let output = run_limited(poundlock().args([subcommand, "--"]).arg(&program).arg(way), LIMIT);
            expect_status(&output, 0);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(subcommand != "stat" || text.contains("4001  shared_lock"), "{text}");
        }
    }
}

#[test]
fn little_memory() {
    let program = compile_c(WORK, &[]);
    let output = run_limited(Command::new(&program).arg("sizes"), LIMIT);
    expect_status(&output, 0);
    let sizes: Vec<u64> = stdout(&output).lines().map(|line| line.parse().expect("a number")).collect();
    let [address_space, data] = sizes[..] else { panic!("{sizes:?}") };
    for (limit, kib) in [(libc::RLIMIT_AS, address_space), (libc::RLIMIT_DATA, data)] {
        let bytes = (kib << 10) + (64 << 20);
        for subcommand in ["run", "stat"] {
            let mut cmd = poundlock();
            cmd.args([subcommand, "--"]).arg(&program);
            let rlimit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            // SAFETY: reads a structure.
            unsafe { cmd.pre_exec(move || checked(libc::setrlimit(limit, &rlimit))) };
            let output = run_limited(&mut cmd, LIMIT);
            expect_status(&output, 0);
            let text = String::from_utf8_lossy(&output.stderr);
            let known = text.contains("shared_lock")
                || limit == libc::RLIMIT_AS && text.contains("the limit on address space is too low");
            assert!(subcommand == "run" || known, "{text}");
        }
    }
}

/// Threads with small stacks: the program needs less than the report. With an argument it goes on.
const SMALL: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
    static long count;
    static void *work(void *nothing) {
        for (int i = 0; i < 20000; i++) {
            pthread_mutex_lock(&shared_lock);
            count++;
            pthread_mutex_unlock(&shared_lock);
        }
        return nothing;
    }
    int main(int argc, char **argv) {
        pthread_t threads[2];
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 1 << 17);
        for (int i = 0; i < 2; i++)
            if (pthread_create(&threads[i], &small, work, NULL)) return 9;
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        while (argc > 1) pause();
        return count != 40000;
    }
"#;

/// The command with a limit on its data, and the program's.
fn with_data(bytes: u64, arguments: &[&str], program: &Path) -> Command {
    let mut cmd = poundlock();
    cmd.args(arguments).arg("--").arg(program);
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: reads a structure.
    unsafe { cmd.pre_exec(move || checked(libc::setrlimit(libc::RLIMIT_DATA, &raw const limit))) };
    cmd
}

/// Where the figures are, as the line says.
#[track_caller]
fn left(text: &str) -> &str {
    let rest = text.split_once("--read ").and_then(|(_, rest)| rest.split('`').next());
    rest.unwrap_or_else(|| panic!("it does not say how to read the figures: {text}"))
}

/// With too little for the report the program runs all the same. A line says why there is none, and how to
/// get it.
#[test]
fn too_little_memory_for_a_report() {
    let program = compile_c(SMALL, &[]);
    let mut too_little = None;
    for mib in [8, 12, 16, 24, 32, 48, 64, 1024] {
        let bytes = mib << 20;
        expect_status(&run_limited(&mut with_data(bytes, &["run"], &program), LIMIT), 0);
        let output = run_limited(&mut with_data(bytes, &["stat"], &program), LIMIT);
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            assert!(text.contains("shared_lock"), "{text}");
            continue;
        }
        expect_status(&output, 125);
        assert!(mib < 1024 && text.lines().count() == 1, "{text}");
        assert!(text.contains(&format!("the limit on data (ulimit -d) is {} KiB", mib << 10)), "{text}");
        let directory = left(&text);
        let output = run_limited(poundlock().args(["stat", "--read", directory]), LIMIT);
        std::fs::remove_dir_all(directory).expect("it was left");
        expect_status(&output, 0);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("shared_lock"), "{text}");
        too_little = too_little.or(Some(bytes));
    }
    // While the program runs: signals go on to it, and the command has its status.
    let bytes = too_little.expect("8 MiB do for a report: try it with less");
    let mut cmd = with_data(bytes, &["stat", "--every", "0.05"], &program);
    let mut command = start(cmd.arg("on"));
    command.wait_for_error("reports on them where there is more", LIMIT);
    let text = command.errors_so_far();
    let directory = left(&text).to_owned();
    command.kill(libc::SIGTERM);
    expect_status(&command.finish(LIMIT), 128 + libc::SIGTERM);
    std::fs::remove_dir_all(directory).expect("it was left");
}

/// The command itself is on the kernel of old, too.
#[test]
fn a_kernel_of_old() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/dropin");
    let source = std::fs::read_to_string(sources.join("old_kernel.c")).expect("the source is there");
    let old = compile_c(&format!("#define _GNU_SOURCE\n{source}"), &["-I", sources.to_str().expect("UTF-8")]);
    let program = compile_c(WORK, &[]);
    for subcommand in ["run", "stat"] {
        let mut cmd = Command::new(&old);
        cmd.arg(env!("CARGO_BIN_EXE_poundlock")).args([subcommand, "--"]).arg(&program);
        cmd.env_remove("LD_PRELOAD").env("POUNDLOCK_PRELOAD_LIB", preload_library());
        let output = run_limited(&mut cmd, LIMIT);
        if output.status.code() == Some(77) {
            return skipped("a filter of system calls", String::from_utf8_lossy(&output.stderr));
        }
        expect_status(&output, 0);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(subcommand == "run" || text.contains("shared_lock"), "{text}");
    }
}
