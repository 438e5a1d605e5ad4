//! `poundlock torture`: sound locks pass, and each way of being broken that the checker claims to see is
//! seen.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{
    LIMIT, compile_c, expect_status, poundlock, poundlock_bare, run_limited, stderr, stdout, until,
};

/// The number in front of `what` in the report.
#[track_caller]
fn count(report: &str, what: &str) -> u64 {
    let line = report
        .lines()
        .find(|line| line.trim_start().split_once("  ").is_some_and(|(_, text)| text.trim() == what));
    let line = line.unwrap_or_else(|| panic!("no line for {what:?} in\n{report}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// How long a run takes at least, if the environment does not say otherwise.
fn seconds() -> String {
    std::env::var("POUNDLOCK_TORTURE_SECONDS").unwrap_or_else(|_| "1".to_string())
}

/// Tortures what these arguments choose, and checks that it passed, silently, and that its verdict is at the
/// end, where it can be seen. Again and again until each of these things was done: how long that takes
/// depends on what else the machine does.
#[track_caller]
fn passes_doing(what: &[&str], mut cmd: Command, choice: &[&str]) {
    cmd.arg("torture").args(choice).args(["--seconds", &seconds(), "--seed", "0x5eed"]);
    let mut left = what.to_vec();
    until(&format!("{what:?}"), || {
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        assert_eq!(stderr(&output), "");
        let report = stdout(&output);
        let verdict = report.lines().last().unwrap_or_default();
        assert!(verdict.contains("no violation") && verdict.contains("seed 0x5eed"), "{report}");
        left.retain(|what| count(&report, what) == 0);
        left.is_empty()
    });
}

/// With what is done to mutexes, spinlocks and readers-writer locks.
#[track_caller]
fn passes(cmd: Command, choice: &[&str]) {
    const DONE: &[&str] = &[
        "critical sections, of which on",
        "lock",
        "trylock, busy",
        "timedlock and clocklock, acquired",
        "timedlock and clocklock, timed out",
        "recursive acquisitions",
        "condition waits, woken",
        "condition waits, timed out",
        "broadcasts",
        "threads started",
        "threads cancelled in a condition wait",
        "locks taken in a signal handler",
        "forks by a thread that holds locks",
        "forked children that went multi-threaded",
        "mutexes unmapped right after the last unlock",
        "condition variables unmapped right after the broadcast",
        "spin",
        "another spin",
        "process-shared spin",
        "spinlocks unmapped right after the last unlock",
        "spinlocks overwritten right after the last unlock",
        "spinlocks waited for in a signal handler",
        "times that two threads waited for five spinlocks, one inside the other",
        "forks by a thread that holds a spinlock",
        "rwlock",
        "static rwlock",
        "rwlock preferring writers",
        "process-shared rwlock",
        "rwlock of the core, phase_fair",
        "rwlock of the core, reader_preferring",
        "rwlock of the core, writer_preferring",
        "readers-writer locks unmapped right after the last unlock",
        "readers-writer locks overwritten right after the last unlock",
        "locks taken as a reader",
        "locks taken again by a reader",
        "timed calls of readers and of those that upgrade, timed out",
        "upgrades from a reader to the writer",
        "downgrades",
    ];
    passes_doing(DONE, cmd, choice);
}

#[test]
fn glibc_passes() {
    passes(poundlock_bare(), &["--lock", "glibc"]);
}

#[test]
fn baseline_passes() {
    passes(poundlock(), &["--lock", "baseline"]);
}

#[test]
fn fewer_atomics_passes() {
    passes(poundlock(), &["--lock", "fewer-atomics"]);
}

#[test]
fn mcs_queue_passes() {
    passes(poundlock(), &["--lock", "mcs-queue"]);
}

#[test]
fn any_negative_passes() {
    passes(poundlock(), &["--lock", "any-negative"]);
}

#[test]
fn poundlock_passes() {
    passes(poundlock(), &["--lock", "poundlock"]);
}

#[test]
fn qspin_passes() {
    passes(poundlock(), &["--lock", "qspin"]);
}

#[test]
fn qspin_virt_passes() {
    passes(poundlock(), &["--lock", "qspin-virt"]);
}

#[test]
fn qspin_pv_passes() {
    passes(poundlock(), &["--lock", "mcs-queue,qspin-pv"]);
}

#[test]
fn phase_fair_readers_writer_locks_pass() {
    passes(poundlock(), &["--rwlock", "phase-fair"]);
}

/// Mutexes that stay glibc's, spinlocks that do not.
#[test]
fn qspin_pv_beside_glibc_passes() {
    passes(poundlock(), &["--lock", "glibc,qspin-pv", "--threads", "60"]);
}

/// The library that breaks glibc's locks.
fn broken() -> &'static Path {
    static LIBRARY: OnceLock<std::path::PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compile_c(include_str!("torture/broken.c"), &["-shared", "-fPIC", "-ldl"]))
}

/// For damage that spreads: two threads inside a critical section, say, can come out as any of a dozen
/// consequences. That the undamaged library passes is what ties the violation to the damage.
const ANYHOW: &[&str] = &[""];

/// Runs torture on locks that are broken in this way, and checks that it names the damage in its first line.
#[track_caller]
fn is_caught(how: &str, named: &[&str]) {
    is_caught_on(broken(), ["--lock", "glibc"], "lock glibc, 11 threads", how, named);
}

/// Runs torture on what these arguments choose, under a library that breaks it in this way; the first line
/// must say on what, and name the damage. It would run into the test's limit if it saw none. Who makes no
/// progress is called hung soon where that is the damage, or may be; elsewhere a machine that is busy is not
/// to be taken for it.
#[track_caller]
fn is_caught_on(library: &Path, choice: [&str; 2], on_what: &str, how: &str, named: &[&str]) {
    let mut cmd = poundlock_bare();
    let hangs = ["no progress", "hung", "no sign of life"];
    let hangs = named == ANYHOW || named.iter().any(|named| hangs.iter().any(|hangs| named.contains(hangs)));
    let patience = if hangs { "2" } else { "100" };
    cmd.arg("torture").args(choice).args(["--seconds", "1000", "--patience", patience, "--threads", "11"]);
    cmd.env("LD_PRELOAD", library).env("BROKEN", how);
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

/// The shim by itself breaks nothing: what is caught below is caught for what it does.
#[test]
fn unbroken_shim_passes() {
    let library = broken();
    let mut cmd = poundlock_bare();
    cmd.env("LD_PRELOAD", library);
    passes(cmd, &["--lock", "glibc"]);
}

#[test]
fn a_trylock_that_lies_is_caught() {
    is_caught("trylock-lies", ANYHOW);
}

#[test]
fn two_inside_are_caught() {
    is_caught("two-in", ANYHOW);
}

#[test]
fn a_lost_signal_is_caught() {
    is_caught("signal-lost", &["lost wake-up", "no progress"]);
}

#[test]
fn a_broadcast_to_one_is_caught() {
    is_caught("broadcast-wakes-one", ANYHOW);
}

#[test]
fn a_remembered_signal_is_caught() {
    is_caught("remembers", &["a signal to nobody was remembered"]);
}

#[test]
fn a_thread_never_served_is_caught() {
    is_caught("never-served", &["no progress", "hung"]);
}

#[test]
fn a_lost_unlock_is_caught() {
    is_caught("unlock-forgotten", ANYHOW);
}

#[test]
fn an_early_time_out_is_caught() {
    is_caught("timed-early", &["timed out", "returned ETIMEDOUT"]);
}

#[test]
fn a_write_after_unlock_is_caught() {
    is_caught("late-write", &["was written to after its last unlock", "SIGSEGV"]);
}

#[test]
fn a_read_after_unlock_is_caught() {
    is_caught("late-read", &["SIGSEGV"]);
}

#[test]
fn a_wait_cancelled_without_the_mutex_is_caught() {
    is_caught("cancelled-without-mutex", ANYHOW);
}

#[test]
fn a_wait_timed_out_without_the_mutex_is_caught() {
    is_caught("timedwait-without-mutex", ANYHOW);
}

#[test]
fn a_forked_child_that_hangs_is_caught() {
    is_caught("child-keeps-lock", &["a child of fork hung", "in a forked child"]);
}

#[test]
fn an_unlock_by_a_stranger_is_caught() {
    is_caught("anybody-unlocks", &["by a thread that does not hold it returned 0", "instead of EPERM"]);
}

#[test]
fn a_changed_errno_is_caught() {
    is_caught("errno", &["changed errno to EAGAIN"]);
}

#[test]
fn an_interrupted_lock_is_caught() {
    is_caught("eintr", &["returned EINTR"]);
}

/// As [`is_caught`], for damage that only the audit at the end sees: as often as it takes until the lock was
/// used.
#[track_caller]
fn is_caught_in_the_audit(how: &str) {
    let mut cmd = poundlock_bare();
    cmd.args(["torture", "--lock", "glibc", "--seconds", "0.5"])
        .env("LD_PRELOAD", broken())
        .env("BROKEN", how);
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

#[test]
fn a_crash_is_caught() {
    is_caught("crash", &["SIGSEGV at address 0x10"]);
}

#[test]
fn a_process_that_stops_is_caught() {
    is_caught("stops", &["no sign of life"]);
}

#[test]
fn a_process_that_ends_is_caught() {
    is_caught("ends", &["the process ended early, with exit status 0"]);
}

#[test]
fn output_of_the_lock_is_caught() {
    is_caught("prints", &["something wrote on the process's standard output: \"locks: contention seen\""]);
}

#[test]
fn a_spin_trylock_that_lies_is_caught() {
    is_caught("spin-trylock-lies", ANYHOW);
}

#[test]
fn two_inside_a_spinlock_are_caught() {
    is_caught("spin-two-in", ANYHOW);
}

#[test]
fn a_spinlock_that_keeps_a_waiter_is_caught() {
    is_caught("spin-never-served", &["no progress", "hung"]);
}

#[test]
fn a_lost_spin_unlock_is_caught() {
    is_caught("spin-unlock-forgotten", ANYHOW);
}

#[test]
fn a_fifth_nested_wait_that_does_not_wait_is_caught() {
    is_caught("spin-fifth-level", &["mutual exclusion"]);
}

#[test]
fn a_write_after_spin_unlock_is_caught() {
    is_caught("spin-late-write", &["was written to after its last unlock", "SIGSEGV"]);
}

#[test]
fn a_read_after_spin_unlock_is_caught() {
    is_caught("spin-late-read", &["SIGSEGV"]);
}

#[test]
fn a_forked_child_that_hangs_in_a_spinlock_is_caught() {
    is_caught("spin-child-keeps-lock", &["a child of fork hung", "in a forked child"]);
}

#[test]
fn an_errno_changed_by_spin_unlock_is_caught() {
    is_caught("spin-errno", &["changed errno to EAGAIN"]);
}

#[test]
fn a_reader_beside_the_writer_is_caught() {
    is_caught("rw-reader-beside-writer", ANYHOW);
}

#[test]
fn a_writer_beside_readers_is_caught() {
    is_caught("rw-writer-beside-readers", ANYHOW);
}

#[test]
fn a_reader_that_cannot_read_again_is_caught() {
    is_caught("rw-keeps-readers-out", &["no progress", "hung", "rdlock by a reader"]);
}

#[test]
fn a_readers_early_time_out_is_caught() {
    is_caught("rw-timed-early", &["rdlock of", "instead of 0"]);
}

#[test]
fn a_writer_never_served_is_caught() {
    is_caught("rw-never-served", &["no progress", "hung"]);
}

#[test]
fn a_lost_unlock_of_a_readers_writer_lock_is_caught() {
    is_caught("rw-unlock-forgotten", ANYHOW);
}

#[test]
fn a_write_after_a_readers_writer_lock_was_released_is_caught() {
    is_caught("rw-late-write", &["was written to after its last unlock", "SIGSEGV"]);
}

#[test]
fn a_write_past_the_object_is_caught() {
    is_caught_in_the_audit("too-big");
}

#[test]
fn a_write_past_the_spinlock_is_caught() {
    is_caught_in_the_audit("spin-too-big");
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

/// As [`passes`], for semaphore arrays.
#[track_caller]
fn arrays_pass(cmd: Command, choice: &[&str]) {
    const DONE: &[&str] = &[
        "critical sections, of which on",
        "lock 0",
        "lock 3",
        "times that the books were balanced in silence",
        "locks taken",
        "locks tried and found busy",
        "waits that timed out",
        "waits interrupted by a signal",
        "permits taken",
        "a lock and permits, at once",
        "two locks at once",
        "amounts moved, all or nothing",
        "amounts spread by nine operations at once",
        "waits for zero",
        "sums checked at one moment",
        "sleepers on an array of their own",
        "arrays removed under their sleepers",
        "values set under sleepers",
        "sleepers killed, and the next one served",
        "forks by a thread that holds a lock",
        "children that died with a permit",
        "children killed with a permit",
        "children that became another program with a permit",
        "threads ended",
        "permits taken in a signal handler",
        "main threads ended before their process",
        "processes ended inside a critical section",
        "processes killed at a random instruction",
        "processes started",
    ];
    passes_doing(DONE, cmd, choice);
}

#[test]
fn the_kernels_arrays_pass() {
    arrays_pass(poundlock_bare(), &["--semaphores", "kernel"]);
}

#[test]
fn our_arrays_pass() {
    arrays_pass(poundlock(), &["--semaphores", "ours"]);
}

#[test]
fn arrays_of_the_variant_before_pass() {
    arrays_pass(poundlock(), &["--semaphores", "all,before"]);
}

#[test]
fn combining_arrays_pass() {
    arrays_pass(poundlock(), &["--semaphores", "ours,combining"]);
}

#[test]
fn arrays_with_a_shared_line_pass() {
    arrays_pass(poundlock(), &["--semaphores", "ours,shared-line"]);
}

/// The library that breaks the kernel's arrays.
fn broken_arrays() -> &'static Path {
    static LIBRARY: OnceLock<std::path::PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compile_c(include_str!("torture/broken_arrays.c"), &["-shared", "-fPIC", "-ldl"]))
}

/// As [`is_caught`], on arrays that are broken in this way.
#[track_caller]
fn is_caught_in_arrays(how: &str, named: &[&str]) {
    is_caught_on(broken_arrays(), ["--semaphores", "kernel"], "semaphores kernel, 11 processes", how, named);
}

/// The shim by itself breaks nothing, and nothing is left in the kernel.
#[test]
fn an_unbroken_shim_of_arrays_passes() {
    let mut cmd = poundlock_bare();
    cmd.env("LD_PRELOAD", broken_arrays());
    arrays_pass(cmd, &["--semaphores", "kernel"]);
}

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

#[test]
fn two_inside_an_array_are_caught() {
    is_caught_in_arrays("two-in", LOCKS_BROKEN);
}

#[test]
fn a_semaphore_given_back_twice_is_caught() {
    is_caught_in_arrays("gives-twice", LOCKS_BROKEN);
}

#[test]
fn a_semaphore_not_given_back_is_caught() {
    is_caught_in_arrays("forgets-to-give", LOCKS_BROKEN);
}

#[test]
fn a_death_that_is_not_undone_is_caught() {
    is_caught_in_arrays(
        "forgets-to-undo",
        &[
            "nobody holds lock",
            "nobody has a permit",
            "nobody is busy",
            "sleepers' end",
            "hung",
            "no progress",
            "come to rest",
        ],
    );
}

#[test]
fn operations_done_by_half_are_caught() {
    is_caught_in_arrays("by-halves", &["an operation was done by half", "its ledger says"]);
}

#[test]
fn a_move_that_was_not_made_is_caught() {
    is_caught_in_arrays("lies-about-a-move", &["its ledger says"]);
}

#[test]
fn a_sleeper_never_served_is_caught() {
    is_caught_in_arrays("never-served", &["hung: it is in semop", "come to rest", "no progress"]);
}

#[test]
fn an_operation_timed_out_early_is_caught() {
    is_caught_in_arrays("timed-early", &["timed out after"]);
}

#[test]
fn an_operation_interrupted_by_nothing_is_caught() {
    is_caught_in_arrays("eintr", &["was interrupted, but no signal came"]);
}

#[test]
fn an_errno_changed_by_an_operation_is_caught() {
    is_caught_in_arrays("errno", &["changed errno to ENOENT"]);
}

#[test]
fn a_wrong_error_of_an_operation_is_caught() {
    is_caught_in_arrays("efbig", &["failed with EFBIG"]);
}

#[test]
fn a_crash_in_an_operation_is_caught() {
    is_caught_in_arrays("crash", &["died of signal 11"]);
}

#[test]
fn a_process_that_ends_in_an_operation_is_caught() {
    is_caught_in_arrays("ends", &["ended early, with status 0", "a sleeper", "a forked child"]);
}

#[test]
fn a_removal_that_sleepers_do_not_see_is_caught() {
    is_caught_in_arrays("removal-unseen", &["a sleeper was woken with 0 instead of EIDRM"]);
}

#[test]
fn values_of_different_moments_are_caught() {
    is_caught_in_arrays("torn-values", &["the accounts' sum is"]);
}

#[test]
fn a_wrong_last_process_is_caught() {
    is_caught_in_arrays("wrong-process", &["its last operation is said to be process 1's"]);
}

#[test]
fn sleepers_that_are_not_there_are_caught() {
    // An array may be removed before somebody goes to sleep there who was counted already.
    let named = ["nobody sleeps, but", "counts some", "a sleeper was woken with EINVAL instead of EIDRM"];
    is_caught_in_arrays("counts-the-dead", &named);
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
