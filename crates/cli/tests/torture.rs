//! `poundlock torture`: sound locks pass, and each way of being broken that the checker claims to see is
//! seen.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use crate::support::{
    LIMIT, compile_c, expect_status, poundlock, poundlock_bare, run_limited, stderr, stdout, until,
};

/// How long a run takes at least, if the environment does not say otherwise.
fn seconds() -> String {
    std::env::var("POUNDLOCK_TORTURE_SECONDS").unwrap_or_else(|_| "0.5".to_string())
}

/// What a short run may never do, or a machine not let happen. Everything else in the report is done.
const MAY_BE_NONE: &[&str] = &[
    "condition waits, woken with no signal outstanding",
    "upgrades given up",
    "spinlocks left alone, as enough threads waited",
    "calls stopped at a random instruction",
    "operations of a signal handler refused, as its thread was at one",
];

/// Tortures what these arguments choose, perhaps under the library of `broken.c`, unbroken; checks that it
/// passed, silently, and that its verdict is at the end, where it can be seen. Again and again until
/// everything was done that the report counts: how long that takes depends on what else the machine does.
#[track_caller]
fn passes(choice: &[&str], library: Option<&Path>) {
    passes_on(&[], choice, library);
}

/// On a machine that these variables describe.
#[track_caller]
fn passes_on(machine: &[(&str, &str)], choice: &[&str], library: Option<&Path>) {
    let (counts, whose) = (if choice[0] == "--semaphores" { 32 } else { 90 }, choice[1]);
    let mut cmd = if matches!(whose, "glibc" | "kernel") { poundlock_bare() } else { poundlock() };
    if let Some(library) = library {
        cmd.env("LD_PRELOAD", library);
    }
    cmd.envs(machine.iter().copied());
    if whose.ends_with("-numa") {
        // Of a machine that may have one node.
        cmd.env("POUNDLOCK_NODES", "2");
    }
    cmd.arg("torture").args(choice).args(["--seconds", &seconds(), "--seed", "0x5eed"]);
    let mut done: BTreeSet<String> = MAY_BE_NONE.iter().map(ToString::to_string).collect();
    until("everything was done", || {
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        assert_eq!(stderr(&output), "");
        let report = stdout(&output);
        let verdict = report.lines().last().unwrap_or_default();
        assert!(verdict.contains("no violation") && verdict.contains("seed 0x5eed"), "{report}");
        let lines = report.lines().filter_map(|line| line.trim_start().split_once("  "));
        let lines: Vec<_> = lines.map(|(count, what)| (count, what.trim().to_string())).collect();
        assert!(lines.len() >= counts, "{report}");
        done.extend(lines.iter().filter(|(count, _)| *count != "0").map(|(_, what)| what.clone()));
        lines.iter().all(|(_, what)| done.contains(what))
    });
}

/// Tests by their names, each with what is tortured.
macro_rules! pass {
    ($($name:ident: $($argument:literal)*;)*) => {$(
        #[test]
        fn $name() {
            passes(&[$($argument),*], None);
        }
    )*};
}

pass! {
    glibc_passes: "--lock" "glibc";
    baseline_passes: "--lock" "baseline";
    fewer_atomics_passes: "--lock" "fewer-atomics";
    mcs_queue_passes: "--lock" "mcs-queue";
    any_negative_passes: "--lock" "any-negative";
    poundlock_passes: "--lock" "poundlock";
    qspin_passes: "--lock" "qspin";
    qspin_virt_passes: "--lock" "qspin-virt";
    qspin_pv_passes: "--lock" "mcs-queue,qspin-pv";
    qspin_numa_passes: "--lock" "qspin-numa";
    qspin_pv_numa_passes: "--lock" "mcs-queue,qspin-pv-numa";
    phase_fair_readers_writer_locks_pass: "--rwlock" "phase-fair";
    // Mutexes that stay glibc's, spinlocks that do not.
    qspin_pv_beside_glibc_passes: "--lock" "glibc,qspin-pv" "--threads" "60";
    our_arrays_pass: "--semaphores" "ours";
    arrays_of_the_variant_before_pass: "--semaphores" "all,before";
    combining_arrays_pass: "--semaphores" "ours,combining";
    arrays_with_a_shared_line_pass: "--semaphores" "ours,shared-line";
}

/// The mutex goes along its queue where there are CPUs, and along sides where there are nodes.
#[test]
fn sides_pass() {
    for nodes in ["1", "2", "4"] {
        passes_on(&[("POUNDLOCK_CPUS", "8"), ("POUNDLOCK_NODES", nodes)], &["--lock", "poundlock"], None);
    }
}

/// The library that breaks locks and arrays.
fn broken() -> &'static Path {
    static LIBRARY: OnceLock<std::path::PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compile_c(include_str!("torture/broken.c"), &["-shared", "-fPIC", "-ldl"]))
}

/// The library by itself breaks nothing: what is caught below is caught for what it does.
#[test]
fn unbroken_library_passes() {
    passes(&["--lock", "glibc"], Some(broken()));
}

/// For damage that spreads: two threads inside a critical section, say, can come out as any of a dozen
/// consequences. That the undamaged library passes is what ties the violation to the damage.
const ANYHOW: &[&str] = &[""];

/// What two inside, a lock lost or one given twice come out as depends on who comes next.
const LOCKS_BROKEN: &[&str] = &[
    "mutual exclusion",
    "was given back twice",
    "said to be",
    "its value is",
    "hung",
    "no progress",
    "come to rest",
    // On an array with sleepers, of which they are told too early or too late.
    "a sleeper was woken with",
    "of an array of our own is",
];

/// Tortures what is broken in this way, semaphore arrays or locks; the first line must say on what, and name
/// the damage. It would run into the test's limit if it saw none. Who makes no progress is called hung soon
/// where that is the damage, or may be; elsewhere a machine that is busy is not to be taken for it.
#[track_caller]
fn is_caught(how: &str, named: &[&str]) {
    let mut cmd = poundlock_bare();
    let (choice, on_what) = match how.starts_with("sem-") {
        true => (["--semaphores", "kernel"], "semaphores kernel, 11 processes"),
        false => (["--lock", "glibc"], "lock glibc, 11 threads"),
    };
    let hangs = ["no progress", "hung", "no sign of life"];
    let hangs = named == ANYHOW || named.iter().any(|named| hangs.iter().any(|hangs| named.contains(hangs)));
    let soon = std::env::var("POUNDLOCK_TORTURE_PATIENCE").unwrap_or_else(|_| "1".to_owned());
    let patience = if hangs { soon.as_str() } else { "100" };
    cmd.arg("torture").args(choice).args(["--seconds", "1000", "--patience", patience, "--threads", "11"]);
    cmd.env("LD_PRELOAD", broken()).env("BROKEN", how);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 1);
    let text = stderr(&output);
    let first = text.lines().find(|line| line.contains("torture: ")).unwrap_or_default();
    assert!(first.starts_with("poundlock: torture: violation: "), "{text}");
    assert!(!first.contains("torture itself"), "{text}");
    assert!(first.contains(on_what) && first.contains("seed 0x"), "{text}");
    assert!(named.iter().any(|named| first.contains(named)), "{how} was caught as\n{text}");
    assert_eq!(stdout(&output), "");
}

/// Tests by their names, each with a way of being broken, and what names the damage.
macro_rules! caught {
    ($($name:ident: $how:literal => $named:expr;)*) => {$(
        #[test]
        fn $name() {
            is_caught($how, $named);
        }
    )*};
}

caught! {
    a_trylock_that_lies_is_caught: "trylock-lies" => ANYHOW;
    two_inside_are_caught: "two-in" => ANYHOW;
    a_lost_signal_is_caught: "signal-lost" => &["lost wake-up", "no progress"];
    a_broadcast_to_one_is_caught: "broadcast-wakes-one" => ANYHOW;
    a_remembered_signal_is_caught: "remembers" => &["a signal to nobody was remembered"];
    a_thread_never_served_is_caught: "never-served" => &["no progress", "hung"];
    a_lost_unlock_is_caught: "unlock-forgotten" => ANYHOW;
    an_early_time_out_is_caught: "timed-early" => &["timed out", "returned ETIMEDOUT"];
    // The memory may be another object's by then.
    a_write_after_unlock_is_caught: "late-write" => ANYHOW;
    a_read_after_unlock_is_caught: "late-read" => &["SIGSEGV"];
    a_wait_cancelled_without_the_mutex_is_caught: "cancelled-without-mutex" => ANYHOW;
    a_wait_timed_out_without_the_mutex_is_caught: "timedwait-without-mutex" => ANYHOW;
    a_forked_child_that_hangs_is_caught: "child-keeps-lock" =>
        &["a child of fork hung", "in a forked child"];
    an_unlock_by_a_stranger_is_caught: "anybody-unlocks" =>
        &["by a thread that does not hold it returned 0", "instead of EPERM"];
    a_changed_errno_is_caught: "errno" => &["changed errno to EAGAIN"];
    an_interrupted_lock_is_caught: "eintr" => &["returned EINTR"];
    a_crash_is_caught: "crash" => &["SIGSEGV at address 0x10"];
    a_crash_with_signals_blocked_is_caught: "crash-while-signals-are-blocked" =>
        &["SIGSEGV at address 0x10"];
    a_process_that_stops_is_caught: "stops" => &["no sign of life"];
    a_process_that_ends_is_caught: "ends" => &["the process ended early, with exit status 0"];
    output_of_the_lock_is_caught: "prints" =>
        &["something wrote on the process's standard output: \"locks: contention seen\""];
    a_spin_trylock_that_lies_is_caught: "spin-trylock-lies" => ANYHOW;
    two_inside_a_spinlock_are_caught: "spin-two-in" => ANYHOW;
    a_spinlock_that_keeps_a_waiter_is_caught: "spin-never-served" => &["no progress", "hung"];
    a_lost_spin_unlock_is_caught: "spin-unlock-forgotten" => ANYHOW;
    a_fifth_nested_wait_that_does_not_wait_is_caught: "spin-fifth-level" => &["mutual exclusion"];
    a_write_after_spin_unlock_is_caught: "spin-late-write" => ANYHOW;
    a_read_after_spin_unlock_is_caught: "spin-late-read" => &["SIGSEGV"];
    a_forked_child_that_hangs_in_a_spinlock_is_caught: "spin-child-keeps-lock" =>
        &["a child of fork hung", "in a forked child"];
    an_errno_changed_by_spin_unlock_is_caught: "spin-errno" => &["changed errno to EAGAIN"];
    a_reader_beside_the_writer_is_caught: "rw-reader-beside-writer" => ANYHOW;
    a_writer_beside_readers_is_caught: "rw-writer-beside-readers" => ANYHOW;
    a_reader_that_cannot_read_again_is_caught: "rw-keeps-readers-out" =>
        &["no progress", "hung", "rdlock by a reader"];
    a_readers_early_time_out_is_caught: "rw-timed-early" => &["rdlock of", "instead of 0"];
    a_writer_never_served_is_caught: "rw-never-served" => &["no progress", "hung"];
    a_lost_unlock_of_a_readers_writer_lock_is_caught: "rw-unlock-forgotten" => ANYHOW;
    a_write_after_a_readers_writer_lock_was_released_is_caught: "rw-late-write" => ANYHOW;
}

/// The same of the kernel's arrays, broken and not.
mod kernels_arrays {
    use super::{LOCKS_BROKEN, broken, is_caught, passes};

    pass! {
        they_pass: "--semaphores" "kernel";
    }

    /// As of locks; and nothing is left in the kernel.
    #[test]
    fn unbroken_library_passes() {
        passes(&["--semaphores", "kernel"], Some(broken()));
    }

    caught! {
        two_inside_an_array_are_caught: "sem-two-in" => LOCKS_BROKEN;
        a_semaphore_given_back_twice_is_caught: "sem-gives-twice" => LOCKS_BROKEN;
        a_semaphore_not_given_back_is_caught: "sem-forgets-to-give" => LOCKS_BROKEN;
        a_death_that_is_not_undone_is_caught: "sem-forgets-to-undo" =>
            &["nobody holds lock", "nobody has a permit", "nobody is busy", "sleepers' end", "hung",
              "no progress", "come to rest"];
        operations_done_by_half_are_caught: "sem-by-halves" =>
            &["an operation was done by half", "its ledger says"];
        a_move_that_was_not_made_is_caught: "sem-lies-about-a-move" => &["its ledger says"];
        a_sleeper_never_served_is_caught: "sem-never-served" =>
            &["hung: it is in semop", "come to rest", "no progress"];
        an_operation_timed_out_early_is_caught: "sem-timed-early" => &["timed out after"];
        an_operation_interrupted_by_nothing_is_caught: "sem-eintr" =>
            &["was interrupted, but no signal came"];
        an_errno_changed_by_an_operation_is_caught: "sem-errno" => &["changed errno to ENOENT"];
        a_wrong_error_of_an_operation_is_caught: "sem-efbig" => &["failed with EFBIG"];
        a_crash_in_an_operation_is_caught: "sem-crash" => &["died of signal 11"];
        a_process_that_ends_in_an_operation_is_caught: "sem-ends" =>
            &["ended early, with status 0", "a sleeper", "a forked child"];
        a_removal_that_sleepers_do_not_see_is_caught: "sem-removal-unseen" =>
            &["a sleeper was woken with 0 instead of EIDRM"];
        values_of_different_moments_are_caught: "sem-torn-values" => &["the accounts' sum is"];
        a_wrong_last_process_is_caught: "sem-wrong-process" =>
            &["its last operation is said to be process 1's"];
        // An array may be removed before somebody goes to sleep there who was counted already.
        sleepers_that_are_not_there_are_caught: "sem-counts-the-dead" =>
            &["nobody sleeps, but", "counts some", "a sleeper was woken with EINVAL instead of EIDRM"];
    }
}

/// As [`is_caught`], for damage that only the audit at the end sees: as often as it takes until the lock was
/// used.
#[test]
fn a_write_past_the_object_is_caught() {
    for how in ["too-big", "spin-too-big"] {
        let mut cmd = poundlock_bare();
        cmd.args(["torture", "--lock", "glibc", "--seconds", "0.2"]);
        cmd.env("LD_PRELOAD", broken()).env("BROKEN", how);
        until(how, || {
            let output = run_limited(&mut cmd, LIMIT);
            if output.status.success() {
                return false;
            }
            expect_status(&output, 1);
            assert!(stderr(&output).contains("memory be"), "{}", stderr(&output));
            true
        });
    }
}

/// A lock whose library does not reach every call would be tested in part only.
#[test]
fn a_call_that_escapes_is_caught() {
    let partial = compile_c("int pthread_mutex_lock(void *m) { (void)m; return 0; }", &["-shared", "-fPIC"]);
    // Under the name that the library has, in a directory of its own.
    let library = crate::support::scratch().join("libpoundlock_preload.so");
    std::fs::copy(&partial, &library).expect("the library can be copied");
    let mut cmd = poundlock_bare();
    cmd.args(["torture", "--seconds", "1000"]).env("POUNDLOCK_PRELOAD_LIB", &library);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("is bound to ") && text.contains(", not to libpoundlock_preload"), "{text}");
}

/// A run that somebody ends says how it can be repeated, and leaves no process.
#[test]
fn an_interrupt_does_not_lose_the_seed() {
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let mut cmd = poundlock_bare();
        cmd.args(["torture", "--lock", "glibc", "--seconds", "1000", "--seed", "0x5eed"]);
        let running = crate::support::start(&mut cmd);
        // Once there is a child, a signal is heeded.
        let children = format!("/proc/{0}/task/{0}/children", running.id());
        let mut child = None;
        until("it has a child", || {
            let text = std::fs::read_to_string(&children).unwrap_or_default();
            child = text.split_whitespace().next().and_then(|pid| pid.parse::<i32>().ok());
            child.is_some()
        });
        running.kill(signal);
        let output = running.finish(LIMIT);
        expect_status(&output, code);
        let text = stderr(&output);
        assert!(
            text.starts_with("poundlock: torture: interrupted after ") && text.lines().count() == 1,
            "{text}"
        );
        assert!(text.contains("lock glibc, ") && text.contains("seed 0x5eed"), "{text}");
        assert_eq!(stdout(&output), "");
        let child = child.expect("it was seen");
        // SAFETY: no signal is sent; the child was waited for before the command ended.
        assert_eq!(unsafe { libc::kill(child, 0) }, -1, "the child is still there");
    }
}

/// A spinlock's name alone chooses the default mutex: both are said.
#[test]
fn the_verdict_names_the_mutex_beside_the_spinlock() {
    let mut cmd = poundlock();
    cmd.args(["torture", "--lock", "qspin-pv", "--seconds", "0.5", "--threads", "4"]);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let verdict = stdout(&output);
    let verdict = verdict.lines().last().unwrap_or_default();
    assert!(verdict.starts_with("lock poundlock, spinlock qspin-pv, 4 threads on "), "{verdict}");
}

#[test]
fn nonsense_is_a_usage_error() {
    for arguments in [
        &["--lock", "nonesuch"][..],
        &["--seconds", "0"],
        &["--seconds", "soon"],
        &["--threads", "1"],
        &["--threads", "5000"],
        &["--seed", "0xhello"],
        &["extra"],
        &["--semaphores", "nonesuch"],
        &["--semaphores", "ours,"],
        &["--semaphores", "ours", "--lock", "glibc"],
    ] {
        let output = run_limited(poundlock_bare().arg("torture").args(arguments), LIMIT);
        expect_status(&output, 2);
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}
