//! System V semaphore arrays: each program is run on the kernel's, as the control, and on the library's, in
//! each variant and in a domain of its own, of which nothing may be left.
//!
//! | environment | meaning |
//! | --- | --- |
//! | `POUNDLOCK_CRASH_KILLS` | how many processes the crash test kills (2,000) |
//! | `POUNDLOCK_DIFFER_SEEDS` | the random programs of the comparison with the kernel: `FIRST` or `FIRST:COUNT` (1:100) |

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::sync::LazyLock;

use tempfile::TempDir;

use super::program::{NOT_PERMITTED, Program, expect_silent_success};
use crate::support::{LIMIT, ending, poundlock, run_limited};

/// The library's arrays, as `POUNDLOCK_SEMAPHORES` names them.
const VARIANTS: [&str; 4] = ["ours", "ours,before", "ours,combining", "ours,shared-line"];
/// The library in the way, with nothing to do.
const KERNEL: &str = "kernel";

/// A directory for the domain of one run.
struct Domain {
    dir: TempDir,
}

impl Domain {
    fn new() -> Self {
        // In memory, where a domain lies as a rule; and closed to others, or it is none.
        let dir = tempfile::Builder::new()
            .prefix("poundlock-test-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in("/dev/shm");
        Domain { dir: dir.expect("a directory can be made in /dev/shm") }
    }

    /// `program` under `poundlock run`, on these semaphores in this domain.
    fn run(&self, program: &Program, semaphores: &str, arguments: &[&str]) -> Command {
        let mut cmd = poundlock();
        cmd.args(["run", "--"]).arg(program.executable()).args(arguments);
        cmd.env("POUNDLOCK_SEMAPHORES", semaphores).env("POUNDLOCK_IPC_DIR", self.dir.path());
        cmd
    }

    /// Whether the library was used at all; and that no array is left.
    #[track_caller]
    fn expect_empty(&self, what: &str, used: bool) {
        let entries = std::fs::read_dir(self.dir.path()).expect("the domain can be read");
        let names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names.iter().any(|name| name == "registry"), used, "{what}: the domain holds {names:?}");
        let left: Vec<_> = names.iter().filter(|name| *name != "registry").collect();
        assert!(left.is_empty(), "{what} left {left:?}");
    }
}

/// Runs a program on the kernel's semaphores.
#[track_caller]
fn on_the_kernel(program: &Program, arguments: &[&str]) -> Output {
    let mut cmd = Command::new(program.executable());
    for name in ["LD_PRELOAD", "POUNDLOCK_SEMAPHORES"] {
        cmd.env_remove(name);
    }
    run_limited(cmd.args(arguments), LIMIT)
}

/// Runs a program on the kernel's semaphores, and on these: its arguments for each.
#[track_caller]
fn check(source: &str, kernel: &[&str], ours: &[(&str, &[&str])]) {
    for (what, domain, used) in run_on_all(source, kernel, ours) {
        domain.expect_empty(&what, used);
    }
}

/// As [`check`], without a look at what is left: for each run its name, its domain, and whether that was
/// used.
#[track_caller]
fn run_on_all(source: &str, kernel: &[&str], ours: &[(&str, &[&str])]) -> Vec<(String, Domain, bool)> {
    let program = Program::compile(source, &[]);
    let output = on_the_kernel(&program, kernel);
    if output.status.code() == Some(NOT_PERMITTED) {
        let why = String::from_utf8_lossy(&output.stderr);
        // Not eprintln!: the test harness would keep the line to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {source}: {}", why.trim_end());
        return Vec::new();
    }
    expect_silent_success(&format!("{source} on the kernel"), &output);
    let run = |(semaphores, arguments): &(&str, &[&str])| {
        let domain = Domain::new();
        let what = format!("{source} on {semaphores}");
        let output = run_limited(&mut domain.run(&program, semaphores, arguments), LIMIT);
        expect_silent_success(&what, &output);
        (what, domain, *semaphores != KERNEL)
    };
    ours.iter().map(run).collect()
}

/// The same arguments everywhere.
#[track_caller]
fn check_all(source: &str) {
    check(source, &[], &VARIANTS.map(|variant| (variant, &[][..])));
}

/// One test a program, on every variant; and, if it says so, on the kernel's with the library in the way.
macro_rules! programs {
    ($($name:ident: $source:literal $(, $kernels:ident)?;)*) => {$(
        #[test]
        fn $name() {
            check_all($source);
            $(check($source, &[], &[($kernels, &[])]);)?
        }
    )*};
}

programs! {
    results_of_every_call: "semarray_results.c", KERNEL;
    sleepers: "semarray_wait.c";
    // Ids of ours are no arrays of the kernel's, to which these calls went.
    calls_through_syscall: "semarray_syscall.c", KERNEL;
    undone_at_the_end_of_a_process: "semarray_undo.c", KERNEL;
    // A child in another IPC namespace still found its parent's arrays.
    arrays_of_another_ipc_namespace: "semarray_namespace.c";
    // A living process of another time namespace was taken for one that had ended.
    processes_of_several_time_namespaces: "semarray_time_namespace.c";
    keys: "semarray_key.c";
    calls_in_signal_handlers: "semarray_handler.c";
}

#[test]
fn rights() {
    // Another user who removes an array cannot remove its file: that goes when its place is used again.
    run_on_all("semarray_users.c", &[], &[("ours", &[]), (KERNEL, &[])]);
}

#[test]
fn limits_of_the_system() {
    check("semarray_limits.c", &[], &[("ours", &[]), (KERNEL, &[])]);
}

/// The other tests would prove little if the arrays were the kernel's all the time.
#[test]
fn whose_an_array_is() {
    check("semarray_whose.c", &["kernel"], &[("ours", &["ours"]), ("all", &["all"]), (KERNEL, &["kernel"])]);
}

#[test]
fn groups_killed_at_once() {
    // Each has six scenes, of six processes or more.
    let rounds = (*KILLS / 960).max(2).to_string();
    let rounds = [&*rounds];
    check("semarray_group.c", &rounds, &VARIANTS.map(|variant| (variant, &rounds[..])));
}

/// How many processes are killed.
static KILLS: LazyLock<u64> = LazyLock::new(|| match std::env::var("POUNDLOCK_CRASH_KILLS") {
    Ok(text) => text.parse().expect("POUNDLOCK_CRASH_KILLS is a number"),
    Err(_) => 2_000,
});

#[track_caller]
fn crash(semaphores: &str, kills: u64) {
    let program = Program::compile("semarray_crash.c", &[]);
    let kills = kills.to_string();
    // Kills at other moments each time; the rest of what happens depends on the machine in any case.
    let seed = std::process::id().to_string();
    let domain = Domain::new();
    let what = format!("semarray_crash.c on {semaphores}, seed {seed}");
    let mut cmd = match semaphores {
        "" => Command::new(program.executable()),
        _ => domain.run(&program, semaphores, &[]),
    };
    // The program has a limit of its own, by the number of kills.
    let output = run_limited(cmd.args([&kills, "2", &seed]), LIMIT + *KILLS / 8);
    expect_silent_success(&what, &output);
    if !semaphores.is_empty() {
        domain.expect_empty(&what, true);
    }
}

#[test]
fn processes_killed_at_random() {
    crash("ours", *KILLS);
}

#[test]
fn processes_killed_at_random_in_other_variants() {
    for variant in &VARIANTS[1..] {
        crash(variant, *KILLS / 5);
    }
}

/// The books balance on the kernel's semaphores, too: it is not the program that is wrong.
#[test]
fn processes_killed_at_random_on_the_kernel() {
    crash("", *KILLS / 5);
}

/// The first random program of those that are compared, and how many.
fn seeds() -> (u64, u64) {
    let Ok(text) = std::env::var("POUNDLOCK_DIFFER_SEEDS") else { return (1, 100) };
    let number = |text: &str| text.parse().expect("POUNDLOCK_DIFFER_SEEDS is FIRST or FIRST:COUNT");
    match text.split_once(':') {
        Some((first, count)) => (number(first), number(count)),
        None => (number(&text), 1),
    }
}

/// Where two traces part: the seed, and the lines before.
fn difference(kernel: &str, ours: &str) -> Option<String> {
    if kernel == ours {
        return None;
    }
    let (mut theirs, mut its) = (kernel.lines(), ours.lines());
    let mut seed = "none";
    let mut before = Vec::new();
    loop {
        match (theirs.next(), its.next()) {
            (Some(one), Some(other)) if one == other => {
                if let Some(its) = one.strip_prefix("seed ") {
                    seed = its;
                    before.clear();
                }
                before.push(one);
            }
            (one, other) => {
                let from = before.len().saturating_sub(30);
                let [one, other] = [one, other].map(|line| line.unwrap_or("(the end)"));
                return Some(format!(
                    "seed {seed} (POUNDLOCK_DIFFER_SEEDS={seed} repeats it alone), after\n{}\nthe kernel:   \
                        {one}\nthe library:  {other}",
                    before[from..].join("\n")
                ));
            }
        }
    }
}

/// The same random programs on the kernel's semaphores and on the library's leave the same trace.
#[track_caller]
fn differ(semaphores: &str, first: u64, count: u64) {
    let program = Program::compile("semarray_differ.c", &[]);
    // Few at a time: a trace is some ten thousand bytes for each.
    let arguments = [first.to_string(), count.to_string()];
    let arguments = arguments.each_ref().map(String::as_str);
    let domain = Domain::new();
    let kernel = std::thread::scope(|scope| {
        let ours = scope.spawn(|| run_limited(&mut domain.run(&program, semaphores, &arguments), LIMIT));
        let kernel = on_the_kernel(&program, &arguments);
        (kernel, ours.join().expect("the run fails with a message"))
    });
    let (kernel, ours) = kernel;
    assert!(
        kernel.status.success() && kernel.stderr.is_empty(),
        "on the kernel: {}\n{}",
        ending(kernel.status),
        String::from_utf8_lossy(&kernel.stderr)
    );
    let [theirs, its] = [&kernel, &ours].map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    assert!(theirs.lines().filter(|line| line.starts_with("seed ")).count() as u64 == count, "a short trace");
    if let Some(difference) = difference(&theirs, &its) {
        panic!(
            "{semaphores} and the kernel differ in {difference}\nthe library's run: {}\n{}",
            ending(ours.status),
            String::from_utf8_lossy(&ours.stderr)
        );
    }
    assert!(
        ours.status.success() && ours.stderr.is_empty(),
        "on {semaphores}: {}\n{}",
        ending(ours.status),
        String::from_utf8_lossy(&ours.stderr)
    );
    domain.expect_empty("semarray_differ.c", true);
}

#[test]
fn random_programs_as_on_the_kernel() {
    let (first, count) = seeds();
    differ("ours", first, count);
}

#[test]
fn random_programs_as_on_the_kernel_in_other_variants() {
    let (first, count) = seeds();
    for (variant, further) in VARIANTS[1..].iter().zip(1..) {
        // Other programs for each, unless one is asked for.
        let from = if count == 1 { first } else { first + further * 1000 };
        differ(variant, from, count.div_ceil(3));
    }
}

/// The comparison can fail.
#[test]
fn a_difference_is_found_and_named() {
    let one = "seed 1\n1.0: a\nseed 2\n2.0: b\n    array 0: 1\n";
    assert_eq!(difference(one, one), None);
    let found = difference(one, &one.replace("array 0: 1", "array 0: 2")).expect("they differ");
    assert!(found.contains("seed 2 ") && found.contains("array 0: 2") && !found.contains("1.0"), "{found}");
    assert!(difference(one, "seed 1\n").expect("they differ").contains("(the end)"));
}

/// The programs can fail: on semaphores with a planted bug they do, and say what is wrong.
#[test]
fn bugs_in_semaphores_are_found() {
    // One team: of several, those that do not fail are killed, and leave their arrays.
    let crash = &["2000", "1", "1"][..];
    let bugs = [
        ("-DFORGET", "semarray_undo.c", &[][..], &["expected 3"][..]),
        ("-DFORGET", "semarray_crash.c", crash, &["an adjustment was lost"]),
        // Half an operation is a lock taken or left by itself, too.
        ("-DSPLIT", "semarray_crash.c", crash, &["tokens were lost or made", "two hold lock"]),
    ];
    for (bug, source, arguments, found) in bugs {
        let program = Program::compile(source, &[]).library("planted_semarray", &[bug]);
        let mut cmd = Command::new(program.executable());
        cmd.args(arguments).env("LD_PRELOAD", program.library_path("planted_semarray"));
        let output = run_limited(&mut cmd, LIMIT);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{source} did not stop at {bug}: {}",
            ending(output.status)
        );
        assert!(
            found.iter().any(|found| text.contains(found)),
            "{source} stopped at something else than {bug}: {text}"
        );
    }

    let program = Program::compile("semarray_differ.c", &[]).library("planted_semarray", &["-DFORGET"]);
    let arguments = ["1", "10"];
    let kernel = on_the_kernel(&program, &arguments);
    let mut cmd = Command::new(program.executable());
    cmd.args(arguments).env("LD_PRELOAD", program.library_path("planted_semarray"));
    let planted = run_limited(&mut cmd, LIMIT);
    let [kernel, planted] = [&kernel, &planted].map(|output| String::from_utf8_lossy(&output.stdout));
    assert!(difference(&kernel, &planted).is_some(), "nothing was undone, and no trace differs");
}
