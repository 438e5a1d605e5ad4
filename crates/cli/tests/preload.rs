//! The library without the command, as docs/use/PRELOAD.md has it: by hand, in containers, in units of systemd. What the page
//! shows is taken from the page.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{
    LIMIT, await_sleep, compile_c, expect_status, list, missing, need_that_runs, number, parsed, poundlock,
    preload_library, run_limited, scratch, start, stderr, stdout,
};

/// A thread waits for `lock` until it sleeps. Then, by the argument, the process also forks a child that takes the lock
/// thrice, and becomes itself a program that takes it once; or waits for a line of input.
const PROGRAM: &str = concat!(
    await_sleep!(),
    r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int waiter_tid;

static void use(int times) {
    while (times--) {
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
}

static void *waiter(void *unused) {
    __atomic_store_n(&waiter_tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    use(1);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc > 1 && !strcmp(argv[1], "once")) {
        use(1);
        return 0;
    }
    pthread_mutex_lock(&lock);
    if (pthread_create(&thread, NULL, waiter, NULL)) abort();
    await_sleep(&waiter_tid);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    use(998);
    if (argc > 1 && !strcmp(argv[1], "family")) {
        if (fork() == 0) {
            use(3);
            exit(0);
        }
        wait(NULL);
        execl(argv[0], argv[0], "once", NULL);
    }
    if (argc > 1) {
        puts("ready");
        fflush(stdout);
        (void)!getchar();
    }
    puts("done");
    return 0;
}
"#
);

/// How often the program takes its lock, alone and with its family.
const ALONE: u64 = 1000;
const FAMILY: u64 = ALONE + 3 + 1;

/// The program, preloaded by hand.
fn preloaded(program: &Path, variables: &[(&str, &str)]) -> Command {
    let mut cmd = Command::new(program);
    for name in [
        "POUNDLOCK_LOCK",
        "POUNDLOCK_RWLOCK",
        "POUNDLOCK_SEMAPHORES",
        "POUNDLOCK_STAT_DIR",
        "POUNDLOCK_STATS",
    ] {
        cmd.env_remove(name);
    }
    cmd.env("LD_PRELOAD", preload_library()).envs(variables.iter().copied());
    cmd
}

/// What `poundlock stat --read` makes of it.
#[track_caller]
fn read(path: &Path) -> (String, Value) {
    let json = scratch().join("report.json");
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "400").args(["stat", "--json"]).arg(&json).arg("--read").arg(path);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    (stderr(&output), parsed(&json))
}

/// How often the report has the lock.
fn acquired(report: &Value) -> u64 {
    let classes = list(report, "classes").iter();
    classes
        .filter(|class| class["name"].as_str().is_some_and(|name| name.starts_with("lock (")))
        .map(|class| number(class, "acquisitions"))
        .sum()
}

#[test]
fn figures_are_left_where_the_environment_says() {
    let program = compile_c(PROGRAM, &["-O1"]);
    for (lock, whose) in
        [(None, "mutex poundlock"), (Some("glibc"), "mutex glibc"), (Some("handoff"), "mutex handoff")]
    {
        let figures = scratch().join("figures");
        let mut cmd = preloaded(&program, &[("POUNDLOCK_STATS", figures.to_str().expect("UTF-8"))]);
        cmd.arg("family").envs(lock.map(|lock| ("POUNDLOCK_LOCK", lock)));
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        assert_eq!(stderr(&output), "");
        assert_eq!(figures.metadata().expect("it was made").permissions().mode() & 0o777, 0o700);
        let (text, report) = read(&figures);
        assert!(text.contains(whose), "{text}");
        assert!(text.contains("all have ended"), "{text}");
        assert_eq!(acquired(&report), FAMILY, "{report:#}");
        // The process, its child, and what it became.
        let files: Vec<PathBuf> = std::fs::read_dir(&figures)
            .expect("readable")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert_eq!(files.len(), 3, "{files:?}");
        let apart: Vec<u64> = files.iter().map(|file| acquired(&read(file).1)).collect();
        let mut sorted = apart.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 3, ALONE], "{apart:?}");
    }
}

#[test]
fn figures_can_be_read_while_the_program_runs_and_after_it_was_killed() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let figures = scratch().join("figures");
    let mut running = start(
        preloaded(&program, &[("POUNDLOCK_STATS", figures.to_str().expect("UTF-8"))])
            .arg("stay")
            .stdin(std::process::Stdio::piped()),
    );
    running.wait_for_output("ready", LIMIT);
    let (text, report) = read(&figures);
    assert!(text.contains("still running"), "{text}");
    assert_eq!(acquired(&report), ALONE, "{report:#}");
    running.kill(libc::SIGKILL);
    let _ = running.finish(LIMIT);
    let (text, report) = read(&figures);
    assert!(text.contains("the end is not known"), "{text}");
    assert_eq!(acquired(&report), ALONE, "{report:#}");
}

#[test]
fn what_is_not_known_is_named_in_a_line() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let file = scratch().join("file");
    std::fs::write(&file, "what somebody wrote").expect("writable");
    let file = file.to_str().expect("UTF-8");
    for (name, value, words) in [
        ("POUNDLOCK_LOCK", "nonesuch", "no choice of locks"),
        ("POUNDLOCK_LOCK", "handoff,poundlock", "no choice of locks"),
        ("POUNDLOCK_RWLOCK", "nonesuch", "by-kind"),
        ("POUNDLOCK_SEMAPHORES", "everybody's", "kernel"),
        ("POUNDLOCK_STATS", "figures", "whole path"),
        ("POUNDLOCK_STATS", "/no/such/place", "no such directory"),
        ("POUNDLOCK_STATS", file, "not a directory"),
    ] {
        let output = run_limited(&mut preloaded(&program, &[(name, value)]), LIMIT);
        expect_status(&output, 0);
        assert_eq!(stdout(&output), "done\n");
        let said = stderr(&output);
        assert!(said.starts_with("poundlock: ") && said.lines().count() == 1, "{said}");
        assert!(said.contains(value) && said.contains(words), "{said}");
    }
    // A directory of another's: its owner could put links in the place of files there. To give one away takes root.
    let others = scratch();
    if std::os::unix::fs::chown(&others, Some(12345), None).is_ok() {
        let value = others.to_str().expect("UTF-8");
        let output = run_limited(&mut preloaded(&program, &[("POUNDLOCK_STATS", value)]), LIMIT);
        expect_status(&output, 0);
        let said = stderr(&output);
        assert!(said.contains("another user") && said.lines().count() == 1, "{said}");
        assert_eq!(std::fs::read_dir(&others).expect("readable").count(), 0);
    }
    // Names that are known, and empty values, need no words.
    for (name, value) in [
        ("POUNDLOCK_LOCK", "any-negative,qspin"),
        ("POUNDLOCK_LOCK", ""),
        ("POUNDLOCK_RWLOCK", "phase-fair"),
        ("POUNDLOCK_SEMAPHORES", "all,before"),
        ("POUNDLOCK_STATS", ""),
    ] {
        let output = run_limited(&mut preloaded(&program, &[(name, value)]), LIMIT);
        expect_status(&output, 0);
        assert_eq!(stderr(&output), "", "{name}={value}");
    }
    assert_eq!(std::fs::read_to_string(file).expect("it is there"), "what somebody wrote");
}

/// Has what the command starts, and what that becomes, refused memory that was written and is to be executed.
fn refusing_executable_memory(cmd: &mut Command) -> &mut Command {
    const PR_SET_MDWE: libc::c_int = 65;
    const REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    // SAFETY: prctl with numbers is async-signal-safe.
    unsafe {
        cmd.pre_exec(|| match libc::prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    }
}

#[test]
fn no_memory_becomes_executable() {
    const PR_GET_MDWE: libc::c_int = 66;
    // SAFETY: a question.
    if unsafe { libc::prctl(PR_GET_MDWE, 0, 0, 0, 0) } < 0 {
        missing("a kernel that refuses memory both writable and executable", "Linux 6.3 or later");
        return;
    }
    let planted = compile_c(
        r#"
        #include <sys/mman.h>
        int main(void) {
            void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            return page == MAP_FAILED ? 2 : mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0;
        }
        "#,
        &[],
    );
    expect_status(&run_limited(&mut Command::new(&planted), LIMIT), 0);
    expect_status(&run_limited(refusing_executable_memory(&mut Command::new(&planted)), LIMIT), 1);

    let program = compile_c(PROGRAM, &["-O1"]);
    let figures = scratch().join("figures");
    let mut cmd = preloaded(&program, &[("POUNDLOCK_STATS", figures.to_str().expect("UTF-8"))]);
    let output = run_limited(refusing_executable_memory(&mut cmd), LIMIT);
    expect_status(&output, 0);
    assert_eq!(stderr(&output), "");
    assert_eq!(acquired(&read(&figures).1), ALONE);
}

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/PRELOAD.md");
    std::fs::read_to_string(page).expect("it is there")
}

/// The page's block of this language.
fn block(language: &str) -> String {
    let page = page();
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("the page has such a block");
    rest.split_once("```").expect("it ends").0.to_owned()
}

/// A root directory made of files of this system.
struct Root(PathBuf);

impl Root {
    fn new() -> Root {
        let root = Root(scratch());
        for dir in ["proc", "dev/shm", "run", "usr/bin"] {
            std::fs::create_dir_all(root.0.join(dir)).expect("a directory");
        }
        root.copy(Path::new("/usr/bin/env"), "/usr/bin/env");
        root
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.0.join(inside.trim_start_matches('/'))
    }

    /// Puts a file there, and what it is linked with.
    fn copy(&self, file: &Path, inside: &str) {
        let put = |from: &Path, to: &Path| {
            std::fs::create_dir_all(to.parent().expect("a directory")).expect("made");
            if !to.exists() {
                std::fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
            }
        };
        put(file, &self.path(inside));
        let output = run_limited(Command::new("ldd").arg(file), LIMIT);
        expect_status(&output, 0);
        for word in stdout(&output).split_whitespace().filter(|word| word.starts_with('/')) {
            put(Path::new(word), &self.path(word));
            // An image with glibc has all of it.
            let rest = ["libpthread.so.0", "libdl.so.2"].map(|name| Path::new(word).with_file_name(name));
            for file in rest.iter().filter(|file| word.ends_with("/libc.so.6") && file.exists()) {
                put(file, &self.path(file.to_str().expect("UTF-8")));
            }
        }
    }

    /// The command, run in this root by a user who is root in there alone.
    fn command(&self, mounts: &str, variables: &BTreeMap<String, String>, words: &[&str]) -> Command {
        let script = format!(
            "set -e; cd \"$0\"; mount --rbind /proc proc; mount -t tmpfs -o size=64m,mode=1777 tmpfs dev/shm\n{mounts}\n\
             exec chroot . \"$@\""
        );
        let mut cmd = Command::new("unshare");
        cmd.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .arg(&self.0)
            .args(["/usr/bin/env", "-i"]);
        cmd.args(variables.iter().map(|(name, value)| format!("{name}={value}"))).args(words);
        cmd
    }
}

/// What the server counts under these variables, in this root: it runs, and then its figures are read there.
#[track_caller]
fn contained(root: &Root, mounts: &str, variables: &BTreeMap<String, String>, server: &str, command: &str) {
    // Both in one container: what is in memory goes with it.
    let then = format!(
        "\"$@\"; unset LD_PRELOAD; {command} stat --json /report.json -o /report.txt --read {}",
        variables["POUNDLOCK_STATS"]
    );
    root.copy(Path::new("/bin/sh"), "/bin/sh");
    let words = ["/bin/sh", "-c", &then, "sh", server];
    let output = run_limited(&mut root.command(mounts, variables, &words), LIMIT);
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(0)), "{}", stdout(&output));
    assert_eq!(stdout(&output), "done\n");
    let report = parsed(&root.path("report.json"));
    assert_eq!(acquired(&report), ALONE, "{report:#}");
    assert_eq!(report["lock"].as_str(), variables.get("POUNDLOCK_LOCK").map(String::as_str), "{report:#}");
}

/// Whether a user may make a root of his own, as containers for users have it.
fn may_unshare() -> bool {
    need_that_runs("unshare", "util-linux", &["--user", "--map-root-user", "--mount", "true"]).is_some()
}

/// Where the files that the page copies come from.
fn built(name: &str) -> PathBuf {
    match name {
        "libpoundlock_preload.so" => preload_library().to_owned(),
        "poundlock" => env!("CARGO_BIN_EXE_poundlock").into(),
        "server" => compile_c(PROGRAM, &["-O1"]),
        other => panic!("the page copies {other}"),
    }
}

#[test]
fn the_lines_for_an_image_work() {
    if !may_unshare() {
        return;
    }
    let root = Root::new();
    let mut variables = BTreeMap::new();
    let mut server = None;
    for line in block("dockerfile").lines() {
        let (what, rest) = line.split_once(' ').expect("an instruction and its arguments");
        match what {
            // This system's files are the base.
            "FROM" => {}
            "COPY" => {
                let words: Vec<&str> = rest.split(' ').collect();
                let (to, files) = words.split_last().expect("somewhere");
                files.iter().for_each(|file| root.copy(&built(file), &format!("{to}{file}")));
            }
            "ENV" => {
                let (name, value) = rest.split_once('=').expect("a value");
                variables.insert(name.to_owned(), value.to_owned());
            }
            "CMD" => server = Some(rest.trim_matches(['[', ']', '"']).to_owned()),
            other => panic!("{other} is not tried"),
        }
    }
    assert_eq!(variables.len(), 3);
    contained(&root, "", &variables, &server.expect("a command"), "/usr/bin/poundlock");
}

#[test]
fn the_lines_for_compose_work() {
    if !may_unshare() {
        return;
    }
    let root = Root::new();
    root.copy(&built("server"), "/usr/bin/server");
    // Libraries of the command: its own file comes by the mount.
    root.copy(&built("poundlock"), "/libraries-of");
    let brought = root.path("brought");
    std::fs::create_dir_all(&brought).expect("a directory");
    for name in ["libpoundlock_preload.so", "poundlock"] {
        std::fs::copy(built(name), brought.join(name)).expect("copied");
    }
    let mut variables = BTreeMap::new();
    let (mut mounts, mut section) = (String::new(), "");
    let text = block("yaml");
    for line in text.lines().skip(3) {
        let line = line.trim();
        match (line.strip_suffix(':'), line.strip_prefix("- ")) {
            (Some(name), None) => section = name,
            (None, Some(item)) if section == "volumes" => {
                let (from, to) = item.split_once(':').expect("two places");
                assert_eq!(from, "./poundlock");
                let to = to.strip_suffix(":ro").expect("read-only").trim_start_matches('/');
                mounts +=
                    &format!("mkdir -p {to}; mount --bind brought {to}; mount -o remount,bind,ro {to}\n");
            }
            (None, Some(item)) if section == "tmpfs" => {
                let (to, options) = item.split_once(':').expect("options");
                let to = to.trim_start_matches('/');
                mounts += &format!("mkdir -p {to}; mount -t tmpfs -o {options} tmpfs {to}\n");
            }
            (None, None) if section == "environment" => {
                let (name, value) = line.split_once(": ").expect("a value");
                variables.insert(name.to_owned(), value.to_owned());
            }
            _ => panic!("{line} is not tried"),
        }
    }
    assert_eq!((variables.len(), mounts.lines().count()), (3, 2));
    contained(&root, &mounts, &variables, "/usr/bin/server", "/usr/lib/poundlock/poundlock");
}

/// What a program with another's rights does with the variables of its caller, where the system preloads the library.
#[test]
fn a_program_with_others_rights_ignores_the_variables() {
    // SAFETY: returns a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: giving a program another's rights takes root");
        return;
    }
    let root = Root(tempfile::tempdir().expect("a temporary directory").keep());
    std::fs::set_permissions(&root.0, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    root.copy(preload_library(), "/lib/library.so");
    root.copy(&built("server"), "/usr/bin/server");
    std::fs::create_dir_all(root.path("etc")).expect("a directory");
    std::fs::create_dir_all(root.path("figures")).expect("a directory");
    std::fs::write(root.path("etc/ld.so.preload"), "/lib/library.so\n").expect("writable");
    std::fs::set_permissions(root.path("figures"), std::fs::Permissions::from_mode(0o1777)).expect("ours");
    let run = |mode: u32| {
        std::fs::set_permissions(root.path("usr/bin/server"), std::fs::Permissions::from_mode(mode))
            .expect("ours");
        let inside = std::ffi::CString::new(root.0.to_str().expect("UTF-8")).expect("no zero");
        let mut cmd = Command::new("/usr/bin/server");
        cmd.arg("once").env_clear().env("POUNDLOCK_LOCK", "nonesuch").env("POUNDLOCK_STATS", "/figures");
        // SAFETY: system calls alone, on memory that was there before the fork.
        unsafe {
            cmd.pre_exec(move || {
                let done = libc::chroot(inside.as_ptr()) == 0
                    && libc::chdir(c"/".as_ptr()) == 0
                    && libc::setgid(12345) == 0
                    && libc::setuid(12345) == 0;
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        (stderr(&output), std::fs::read_dir(root.path("figures")).expect("readable").count())
    };
    // With its caller's rights it heeds them: the library is there.
    let (said, figures) = run(0o755);
    assert!(said.contains("POUNDLOCK_LOCK=nonesuch") && figures == 1, "{said} {figures}");
    // Set-user-id: not a word, and no file of root's where the caller chose.
    assert_eq!(run(0o4755), (String::new(), 1));
    std::fs::remove_dir_all(&root.0).expect("it is ours");
}

/// Verifies a unit with the page's drop-in: what `systemd-analyze` says.
fn verified(analyze: &Path, drop_in: &str) -> String {
    let units = scratch();
    let unit = units.join("server.service");
    std::fs::write(&unit, "[Service]\nExecStart=/usr/bin/env\n").expect("writable");
    std::fs::create_dir_all(units.join("server.service.d")).expect("a directory");
    std::fs::write(units.join("server.service.d/poundlock.conf"), drop_in).expect("writable");
    let mut cmd = Command::new(analyze);
    // Dependencies of its own are not ours to verify.
    let output = run_limited(cmd.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&unit), LIMIT);
    stdout(&output) + &stderr(&output)
}

#[test]
fn the_drop_in_for_systemd_is_one() {
    let Some(analyze) = need_that_runs("systemd-analyze", "systemd", &["--version"]) else { return };
    let drop_in = block("ini");
    assert_eq!(verified(&analyze, &drop_in), "");
    // It is read.
    let wrong = verified(&analyze, &drop_in.replace("RuntimeDirectory=", "RuntimDirectory="));
    assert!(wrong.contains("RuntimDirectory"), "{wrong}");
}

#[test]
fn the_drop_in_has_the_library_count() {
    let variables: Vec<(String, String)> = block("ini")
        .lines()
        .filter_map(|line| line.strip_prefix("Environment=")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["LD_PRELOAD", "POUNDLOCK_LOCK", "POUNDLOCK_STATS"]);
    // The directory is the unit's, which systemd makes below /run.
    let figures = &variables[2].1;
    let directory =
        block("ini").lines().find_map(|line| line.strip_prefix("RuntimeDirectory=").map(str::to_owned));
    let directory = format!("/run/{}/", directory.expect("it has one"));
    assert!(figures.starts_with(&directory), "{figures}");
    let here = scratch();
    let figures = here.join(figures.trim_start_matches(&directory));
    let set =
        [("POUNDLOCK_LOCK", variables[1].1.as_str()), ("POUNDLOCK_STATS", figures.to_str().expect("UTF-8"))];
    let output = run_limited(&mut preloaded(&compile_c(PROGRAM, &["-O1"]), &set), LIMIT);
    expect_status(&output, 0);
    assert_eq!((stderr(&output).as_str(), acquired(&read(&figures).1)), ("", ALONE));
}

/// The page says that this set has every call that the locks make, which the page of limits lists.
#[test]
fn the_usual_set_of_system_calls_is_enough() {
    let Some(analyze) = need_that_runs("systemd-analyze", "systemd", &["--version"]) else { return };
    let mut sets = vec!["@system-service".to_owned()];
    let mut calls = std::collections::BTreeSet::new();
    while let Some(set) = sets.pop() {
        let output = run_limited(Command::new(&analyze).args(["syscall-filter", &set]), LIMIT);
        expect_status(&output, 0);
        for word in stdout(&output).lines().skip(1).map(str::trim).filter(|line| !line.starts_with('#')) {
            match word.starts_with('@') {
                true => sets.push(word.to_owned()),
                false => drop(calls.insert(word.to_owned())),
            }
        }
    }
    for call in crate::dropin::documented_calls() {
        assert!(calls.contains(&call), "@system-service lacks {call}");
    }
}
