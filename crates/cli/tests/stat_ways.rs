//! `poundlock stat`: the ways to ask for a report, and the forms it has.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    LIMIT, await_sleep, compile_c, expect_status, list, number, parsed, poundlock, run_limited, scratch,
    start, stderr, stdout, until,
};
use poundlock_testing::need_that_runs;
use serde_json::Value;

/// A thread waits for `lock` until the kernel says that it sleeps; then, by the first argument:
///
/// * `end`: both go on to the end;
/// * `stay`: it waits for ever, and so does main, for a signal;
/// * `deadlock`: main waits for a lock of the waiter's, after rounds that take longer and end.
///
/// The second says how often `warm` is taken before, and then, after a line of input, how often again.
const PROGRAM: &str = concat!(
    await_sleep!(),
    r#"
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t warm = PTHREAD_MUTEX_INITIALIZER;
static int waiter_tid, main_tid;

static void use(int times) {
    while (times--) {
        pthread_mutex_lock(&warm);
        pthread_mutex_unlock(&warm);
    }
}

static void *waiter(void *deadlock) {
    if (deadlock) pthread_mutex_lock(&other); /* FIRST */
    __atomic_store_n(&waiter_tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock); /* WAIT */
    pthread_mutex_unlock(&lock);
    return NULL;
}

static pthread_t contend(void *deadlock) {
    pthread_t thread;
    waiter_tid = 0;
    pthread_mutex_lock(&lock);
    main_tid = syscall(SYS_gettid);
    if (pthread_create(&thread, NULL, waiter, deadlock)) abort();
    await_sleep(&waiter_tid);
    return thread;
}

int main(int argc, char **argv) {
    char line[16];
    pthread_t thread;
    int deadlock = strcmp(argv[1], "deadlock") == 0;
    if (argc > 2) {
        use(atoi(argv[2]));
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) abort();
        use(atoi(line));
    }
    for (int rounds = deadlock ? 50 : 0; rounds > 0; rounds--) {
        thread = contend(NULL);
        pthread_mutex_unlock(&lock);
        pthread_join(thread, NULL);
    }
    thread = contend(deadlock ? &other : NULL);
    if (strcmp(argv[1], "end")) {
        puts("stuck");
        fflush(stdout);
        if (deadlock) pthread_mutex_lock(&other); /* SECOND */
        for (;;) pause();
    }
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    return 0;
}
"#
);

fn line_of(mark: &str) -> String {
    let at = PROGRAM.lines().position(|line| line.contains(mark)).expect("marked") + 1;
    format!("program.c:{at}")
}

/// `stat` with a wide report.
fn wide(arguments: &[&str]) -> Command {
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "400").args(["stat", "--long"]).args(arguments);
    cmd
}

/// The process that a `stat` has started.
#[track_caller]
pub(crate) fn only_child(stat: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{stat}/task/{stat}/children")).expect("a child");
    children.trim().parse().expect("one")
}

#[track_caller]
fn refused(arguments: &[&str], words: &[&str]) {
    let output = run_limited(poundlock().arg("stat").args(arguments), LIMIT);
    expect_status(&output, 2);
    for word in words {
        assert!(stderr(&output).contains(word), "{arguments:?}: {}", stderr(&output));
    }
    assert!(output.stdout.is_empty(), "it ran: {arguments:?}");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (arguments, words) in [
        (
            &["--json", "-", "--folded", "-", "--", "echo", "ran"][..],
            &["--json - and --folded -", "name files"][..],
        ),
        (&["--compare", "--lock", "handoff", "--", "echo", "ran"], &["--compare", "--lock"]),
        (&["--compare", "--each", "--", "echo", "ran"], &["--compare", "--each"]),
        (&["--rounds", "3", "--", "echo", "ran"], &["--compare"]),
        (&["--read", "/tmp", "--", "echo", "ran"], &["--read"]),
        (&["--read", "/tmp", "--every", "1"], &["--read", "--every"]),
        (&["--delay", "0", "--", "echo", "ran"], &["not a number of seconds above 0"]),
        (&["--for", "soon", "--", "echo", "ran"], &["not a number of seconds above 0"]),
        (&["--flded", "x", "--", "echo", "ran"], &["'--flded'", "--folded"]),
        (&["--jsn", "x", "--", "echo", "ran"], &["'--jsn'", "--json"]),
        (&[], &["<CMD>..."]),
    ] {
        refused(arguments, words);
    }
}

#[test]
fn a_report_is_as_long_as_was_asked_for() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let report = |options: &[&str]| {
        let mut cmd = poundlock();
        let output = run_limited(cmd.arg("stat").args(options).arg("--").arg(&program).arg("end"), LIMIT);
        expect_status(&output, 0);
        stderr(&output)
    };
    let (long, short) = (report(&["--long"]), report(&["--short"]));
    let places = "made to wait by";
    assert!(long.contains(places) && !short.contains(places), "{long}{short}");
    assert!(short.contains("locks measured") && short.contains("lock (in program)"), "{short}");
    for columns in ["60", "110"] {
        let mut cmd = poundlock();
        cmd.env("COLUMNS", columns).args(["stat", "--"]).arg(&program).arg("end");
        let output = run_limited(&mut cmd, LIMIT);
        assert!(stderr(&output).lines().count() <= 40, "{}", stderr(&output));
    }
    refused(&["--short", "--long", "--", "true"], &["--short", "--long"]);
}

#[test]
fn a_report_fits_the_terminal_and_has_colours_only_there() {
    let program = compile_c(PROGRAM, &["-O1"]);
    for columns in ["60", "80", "200"] {
        let mut cmd = wide(&["--"]);
        cmd.env("COLUMNS", columns).arg(&program).arg("end");
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        let text = stderr(&output);
        let limit: usize = columns.parse().expect("a number");
        let too_wide: Vec<&str> = text
            .lines()
            .filter(|line| line.chars().count() > limit && !line.starts_with("poundlock stat: "))
            .collect();
        assert!(too_wide.is_empty(), "{too_wide:#?}\n{text}");
        assert!(text.contains("lock (in program)") && !text.contains('\x1b'), "{text}");
        let heading = text.lines().find(|line| line.trim_start().starts_with("lost ")).expect("a table");
        assert!(heading.contains("wait"), "{text}");
        // Nothing of our slow paths, unless they are asked for.
        assert!(!text.contains("events"), "{text}");
    }
    let file = scratch().join("report");
    let mut cmd = wide(&["--lock", "poundlock", "--events", "-o"]);
    cmd.arg(&file).arg("--").arg(&program).arg("end");
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    assert_eq!(stderr(&output), "");
    let text = std::fs::read_to_string(file).expect("the report");
    assert!(text.contains("mutex events") && text.contains("lock (in program)"), "{text}");
}

/// What a terminal shows of a command. `script` gives it one.
#[track_caller]
fn on_a_terminal(program: &Path, environment: &[(&str, &str)]) -> Option<String> {
    crate::support::need("script", "bsdutils")?;
    let line = format!("{} stat -- {} end", env!("CARGO_BIN_EXE_poundlock"), program.display());
    let mut cmd = Command::new("script");
    cmd.args(["-qec", &line, "/dev/null"]).envs(environment.iter().copied());
    cmd.env("POUNDLOCK_PRELOAD_LIB", crate::support::preload_library());
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    Some(stdout(&output))
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let program = compile_c(PROGRAM, &["-O1"]);
    for (environment, coloured) in [
        (&[("TERM", "xterm")][..], true),
        (&[("TERM", "dumb")], false),
        (&[("TERM", "xterm"), ("NO_COLOR", "1")], false),
        (&[("TERM", "xterm"), ("NO_COLOR", "")], true),
    ] {
        let Some(text) = on_a_terminal(&program, environment) else { return };
        assert_eq!(text.contains('\x1b'), coloured, "{environment:?}: {text}");
    }
}

#[test]
fn a_program_without_lines_is_hinted_at_them() {
    let (with, without) = (compile_c(PROGRAM, &["-O1"]), compile_c(PROGRAM, &["-O1", "-g0"]));
    for (program, hint) in [(with, false), (without, true)] {
        let output = run_limited(wide(&["--"]).arg(&program).arg("end"), LIMIT);
        expect_status(&output, 0);
        assert_eq!(stderr(&output).contains("compile with -g"), hint, "{}", stderr(&output));
    }
}

#[test]
fn stacks_are_there_for_the_tools_that_people_have() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let dir = scratch();
    let (folded, speedscope) = (dir.join("folded"), dir.join("speedscope.json"));
    let mut cmd = wide(&["--folded"]);
    cmd.arg(&folded).arg("--speedscope").arg(&speedscope).arg("--").arg(&program).arg("end");
    expect_status(&run_limited(&mut cmd, LIMIT), 0);
    let text = std::fs::read_to_string(folded).expect("folded stacks");
    let waits: Vec<&str> = text.lines().filter(|line| line.contains("[mutex: lock (in program)]")).collect();
    assert_eq!(waits.len(), 1, "{text}");
    let (stack, microseconds) = waits[0].rsplit_once(' ').expect("a number at the end");
    // Main saw the waiter asleep twice, a millisecond apart.
    assert!(microseconds.parse::<u64>().is_ok_and(|us| us >= 1000), "{text}");
    let frames: Vec<&str> = stack.split(';').collect();
    assert_eq!(frames.last(), Some(&"[mutex: lock (in program)]"));
    let waits_at = frames[frames.len() - 2];
    assert!(waits_at.starts_with("waiter (") && waits_at.contains(&line_of("/* WAIT */")), "{stack}");

    let document = parsed(&speedscope);
    assert_eq!(document["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let profile = &document["profiles"][0];
    assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"nanoseconds".into()));
    let frames = list(&document["shared"], "frames");
    let (samples, weights) = (list(profile, "samples"), list(profile, "weights"));
    assert_eq!(samples.len(), weights.len());
    let sum: u64 = weights.iter().filter_map(Value::as_u64).sum();
    assert_eq!(number(profile, "endValue"), sum);
    let all = samples.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_u64);
    assert!(all.clone().all(|frame| frame < frames.len() as u64), "{document:#}");
    assert!(frames.iter().any(|frame| frame["name"] == "waiter" && frame["line"].is_u64()), "{document:#}");
}

#[test]
fn two_reports_are_put_side_by_side() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let dir = scratch();
    let report = |name: &str, lock: &str, arguments: &[&str]| -> PathBuf {
        let json = dir.join(name);
        let mut cmd = wide(&["--lock", lock, "--json"]);
        cmd.arg(&json).arg("--").arg(&program).args(arguments);
        let output = crate::support::run_limited_with_input(&mut cmd, b"5\n", LIMIT);
        expect_status(&output, 0);
        json
    };
    let (a, b) = (report("a.json", "glibc", &["end"]), report("b.json", "poundlock", &["end", "2"]));
    let diff = |files: [&PathBuf; 2]| {
        let output = run_limited(poundlock().args(["stat", "diff"]).args(files), LIMIT);
        expect_status(&output, 0);
        stdout(&output)
    };
    let text = diff([&a, &b]);
    let locks = "DIFFERENT LOCKS: before mutex glibc, ";
    assert!(text.contains(locks) && text.contains("; after mutex poundlock, "), "{text}");
    assert!(text.contains("wait per acquisition") && text.contains("runs of different commands"), "{text}");
    let same = diff([&a, &a]);
    assert!(!same.contains(locks) && same.contains("poundlock stat --compare -- "), "{same}");
    let row = |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(row("  warm (in program)").contains(" new "), "{text}");
    assert!(row("  lock (in program)").contains(" x "), "{text}");
    // Waits for what is no lock have no share of what is lost, which is not 0.
    let joins = list(&parsed(&a), "classes").iter().find(|class| class["name"] == "thread joins").cloned();
    assert!(joins.is_some_and(|class| class["share"].is_null()));
    let cells: Vec<&str> = row("  thread joins (end of a thread)").split_whitespace().take(2).collect();
    assert_eq!(cells, ["-", "-"], "{text}");
    // Anything else is none.
    std::fs::write(dir.join("c.json"), r#"{"version": 1000}"#).expect("written");
    let output = run_limited(poundlock().args(["stat", "diff"]).args([&a, &dir.join("c.json")]), LIMIT);
    expect_status(&output, 125);
    assert!(stderr(&output).contains("version 1000"), "{}", stderr(&output));
    // And a program of that name can be run.
    let output = run_limited(wide(&["--", "diff"]).args([&a, &a]), LIMIT);
    expect_status(&output, 0);
    assert!(stderr(&output).contains("poundlock stat: diff "), "{}", stderr(&output));
}

#[test]
fn a_running_program_is_reported_on_when_asked() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let json = scratch().join("report.json");
    let mut cmd = wide(&["--json"]);
    cmd.arg(&json).arg("--").arg(&program).args(["stay"]);
    let mut running = start(&mut cmd);
    running.wait_for_output("stuck", LIMIT);
    // Once somebody has waited for long it is said who.
    let mut reports = 0;
    until("the wait is reported", || {
        running.kill(libc::SIGUSR2);
        until("there is a report more", || {
            running.errors_so_far().matches(", still running").count() > reports
        });
        reports = running.errors_so_far().matches(", still running").count();
        running.errors_so_far().contains(" waits for ")
    });
    running.kill(libc::SIGTERM);
    let output = running.finish(LIMIT);
    expect_status(&output, 143);
    let text = stderr(&output);
    assert_eq!(text.matches("poundlock stat: ").count(), reports + 1, "{text}");
    assert!(text.contains("1 process, killed by SIGTERM"), "{text}");
    let wait = list(&parsed(&json)["inside"], "threads").iter().find(|t| t["waits_for"].is_object()).cloned();
    let wait = wait.unwrap_or_else(|| panic!("{text}"));
    assert_eq!(wait["waits_for"]["lock"], "lock (in program)");
    assert!(wait["waits_for"]["at"].as_str().is_some_and(|at| at.contains(&line_of("/* WAIT */"))), "{wait}");
}

#[test]
fn threads_in_a_namespace_of_process_ids_have_names() {
    let options = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if need_that_runs("unshare", "util-linux", &[&options[..], &["true"]].concat()).is_none() {
        return;
    }
    let program = compile_c(PROGRAM, &["-O1"]);
    let mut running = start(wide(&["--", "unshare"]).args(options).arg(&program).arg("stay"));
    running.wait_for_output("stuck", LIMIT);
    // The ids are those in the namespace; the names are known from outside of it.
    until("the wait is reported", || {
        running.kill(libc::SIGUSR2);
        running.errors_so_far().contains("thread 1 (program) of process 1 holds lock (in program)")
    });
    // It ignores other signals.
    // SAFETY: the call has no other effect than on that process.
    unsafe { libc::kill(only_child(running.id()), libc::SIGKILL) };
    let text = stderr(&running.finish(LIMIT));
    assert!(text.contains("When the figures were read (still running)"), "{text}");
    // Process 1 is somebody else here.
    let (_, end) = text.split_once("At the end (killed by SIGKILL)").unwrap_or_else(|| panic!("{text}"));
    assert!(!end.contains("is still running"), "{text}");
}

#[test]
fn a_chain_of_holders_is_told_to_its_end() {
    let source = include_str!("../../../tests/stat/chain.c");
    let json = scratch().join("report.json");
    let mut cmd = wide(&["--every", "0.2", "--json"]);
    cmd.env("COLUMNS", "2000");
    cmd.arg(&json).arg("--").arg(crate::support::program(source)).args(["3", "chain"]);
    let mut running = start(cmd.stdin(std::process::Stdio::piped()));
    let next = crate::support::line_of(source, "// NEXT");
    let link = |lock: &str| format!("for of.{lock} (in program) at link_of (");
    // Those inside, and what looks at them found, one report after the other.
    until("both are told", || {
        let text = running.errors_so_far();
        let has = |line: &str, words: &[&str]| words.iter().all(|word| line.contains(word));
        let end = "whose holder was asleep in read()";
        let seen = |line: &str| {
            has(line, &["threads waited for of.a (in program)", &link("b"), &link("c"), &next, end])
        };
        let inside = |line: &str| {
            has(line, &["waits for of.a (in program)", &link("b"), &link("c"), ", whose holder thread "])
                && line.ends_with("is asleep in read()")
        };
        let reports = text.matches(", still running").count();
        reports > 1 && text.lines().any(seen) && text.lines().any(inside)
    });
    running.write_input(b"");
    let output = running.finish(LIMIT);
    expect_status(&output, 0);
    let document = parsed(&json);
    let class = |name: &str| list(&document, "classes").iter().find(|class| class["name"] == name).cloned();
    let chain =
        class("of.a (in program)").expect("waited for")["chain"].as_str().unwrap_or_default().to_owned();
    assert!(chain.contains(&link("c")) && chain.ends_with("asleep in read()"), "{document:#}");
    assert!(class("of.c (in program)").is_some_and(|class| class["chain"].is_null()), "{document:#}");
    // The call to move is the last one's.
    let of_first =
        |finding: &&Value| finding["text"].as_str().is_some_and(|text| text.contains(" lost for of.a "));
    let blocked = list(&document, "diagnosis").iter().find(of_first).expect("one of the three");
    let text = blocked["text"].as_str().unwrap_or_default();
    assert!(blocked["kind"] == "blocked" && text.contains(", whose holder waited for of.c "), "{document:#}");
}

#[test]
fn a_launcher_that_clears_the_environment_is_told_what_to_do() {
    for (script, cleared) in [
        ("exec env -i cat", true),
        ("env -i cat; exit 0", true),
        ("exec env cat", false),
        // A part of the shell itself.
        ("(read line); exit 0", false),
    ] {
        let mut cmd = wide(&["--every", "0.1", "--", "sh", "-c", script]);
        let mut running = start(cmd.stdin(std::process::Stdio::piped()));
        // Then the sampler has seen it as what it became.
        running.wait_for_error("asleep in read", LIMIT);
        running.write_input(b"");
        let output = running.finish(LIMIT);
        expect_status(&output, 0);
        let text = stderr(&output);
        let said =
            text.lines().find(|line| line.contains("was started without our library")).unwrap_or_default();
        assert_eq!(
            said.contains(": cat was started")
                && said.contains("run `poundlock stat` behind whatever cleared it"),
            cleared,
            "{script}: {text}"
        );
        assert!(cleared || said.is_empty(), "{script}: {text}");
    }
}

#[test]
fn a_deadlock_opens_the_report() {
    let program = compile_c(PROGRAM, &["-O1"]);
    for lock in ["glibc", "poundlock"] {
        let json = scratch().join("report.json");
        let mut cmd = wide(&["--lock", lock, "--json"]);
        cmd.arg(&json).arg("--").arg(&program).arg("deadlock");
        let mut running = start(&mut cmd);
        running.wait_for_output("stuck", LIMIT);
        let child = only_child(running.id());
        until("main waits as well", || {
            // All its threads are asleep, main in a futex call rather than in nanosleep().
            let call = std::fs::read_to_string(format!("/proc/{child}/syscall")).unwrap_or_default();
            call.starts_with(&format!("{} ", libc::SYS_futex))
        });
        running.kill(libc::SIGTERM);
        let output = running.finish(LIMIT);
        expect_status(&output, 143);
        let text = stderr(&output);
        assert!(text.trim_start().starts_with("DEADLOCK: 2 threads wait for each other: thread "), "{text}");
        for word in ["lock (in program), held by thread", "other (in program), held by thread"] {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
        let document = parsed(&json);
        // What the threads waited for says nothing of how to be quicker.
        assert!(list(&document, "diagnosis").is_empty() && !text.contains("\n* "), "{text}");
        assert!(document["share"].as_f64().is_some_and(|share| share > 0.05), "{document:#}");
        assert_eq!(list(&document["inside"], "cycles")[0].as_array().map(Vec::len), Some(2), "{document:#}");
        let threads = list(&document["inside"], "threads");
        let waits = |mark: &str| {
            threads.iter().any(|thread| {
                thread["waits_for"]["at"].as_str().is_some_and(|at| at.contains(&line_of(mark)))
            })
        };
        assert!(waits("/* WAIT */") && waits("/* SECOND */"), "{document:#}");
    }
    // An orderly end has none of it.
    let output = run_limited(wide(&["--"]).arg(&program).arg("end"), LIMIT);
    assert!(
        !stderr(&output).contains("DEADLOCK") && !stderr(&output).contains("held by"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_happens_before_the_delay_is_left_out() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let json = scratch().join("report.json");
    let mut cmd = wide(&["--delay", "0.2", "--for", "1000", "--json"]);
    cmd.arg(&json).arg("--").arg(&program).args(["end", "500"]);
    cmd.stdin(std::process::Stdio::piped());
    let mut running = start(&mut cmd);
    running.wait_for_output("ready", LIMIT);
    // Once the delay is over, an interim report has nothing of what came before.
    let mut reports = 0;
    until("the delay is over", || {
        running.kill(libc::SIGUSR2);
        until("there is a report more", || {
            running.errors_so_far().matches("poundlock stat: ").count() > reports
        });
        reports = running.errors_so_far().matches("poundlock stat: ").count();
        running
            .errors_so_far()
            .rsplit("poundlock stat: ")
            .next()
            .is_some_and(|last| last.contains("No lock that is counted was used."))
    });
    running.write_input(b"70\n");
    let output = running.finish(LIMIT);
    expect_status(&output, 0);
    let document = parsed(&json);
    let classes = list(&document, "classes");
    let warm = classes.iter().find(|class| class["name"] == "warm (in program)").expect("taken");
    assert_eq!(number(warm, "acquisitions"), 70, "{document:#}");
}

#[test]
fn a_report_can_be_made_before_the_end() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let json = scratch().join("report.json");
    let mut cmd = wide(&["--for", "0.1", "--json"]);
    cmd.arg(&json).arg("--").arg(&program).args(["end", "500"]);
    cmd.stdin(std::process::Stdio::piped());
    let mut running = start(&mut cmd);
    running.wait_for_output("ready", LIMIT);
    until("the report is there", || json.exists());
    running.write_input(b"70\n");
    let output = running.finish(LIMIT);
    expect_status(&output, 0);
    assert_eq!(stderr(&output).matches("poundlock stat: ").count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("still running"), "{}", stderr(&output));
}

#[test]
fn what_a_killed_stat_left_can_be_read() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let mut cmd = wide(&["--"]);
    cmd.arg(&program).arg("stay");
    let mut running = start(&mut cmd);
    running.wait_for_output("stuck", LIMIT);
    let child = only_child(running.id());
    let environment = std::fs::read(format!("/proc/{child}/environ")).expect("readable");
    let dir = environment
        .split(|&byte| byte == 0)
        .find_map(|entry| entry.strip_prefix(b"POUNDLOCK_STAT_DIR="))
        .map(|dir| PathBuf::from(String::from_utf8(dir.to_vec()).expect("UTF-8")))
        .expect("it is measured");
    running.kill_group(libc::SIGKILL);
    let _ = running.finish(LIMIT);
    let json = scratch().join("report.json");
    let mut cmd = wide(&["--json"]);
    cmd.arg(&json).arg("--read").arg(&dir);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let text = stderr(&output);
    assert!(text.contains(&format!("poundlock stat: {} stay", program.display())), "{text}");
    assert!(text.contains("the end is not known") && text.contains("lock (in program)"), "{text}");
    assert!(list(&parsed(&json), "classes").iter().any(|class| class["name"] == "lock (in program)"));
    std::fs::remove_dir_all(dir).expect("it is left there");
}

#[test]
fn a_program_that_goes_on_in_the_background_is_followed() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let json = scratch().join("report.json");
    let mut cmd = wide(&["--json"]);
    // The shell ends at once; the program goes on until the end of its input.
    let script = r#"exec 3<&0; "$0" end 1 <&3 & exit 3"#;
    cmd.arg(&json).args(["--", "sh", "-c", script]).arg(&program);
    cmd.stdin(std::process::Stdio::piped());
    let mut running = start(&mut cmd);
    running.wait_for_error("goes on in the background and is followed", LIMIT);
    assert!(!json.exists());
    running.write_input(b"5\n");
    let output = running.finish(LIMIT);
    expect_status(&output, 3);
    let document = parsed(&json);
    let warm = list(&document, "classes").iter().find(|class| class["name"] == "warm (in program)").cloned();
    assert_eq!(warm.map(|class| number(&class, "acquisitions")), Some(6), "{document:#}");
    assert!(!stderr(&output).contains("its figures end here"), "{}", stderr(&output));
}

#[test]
fn its_own_locks_and_ours_are_compared() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let json = scratch().join("compared.json");
    let mut cmd = wide(&["--compare", "--rounds", "3", "--json"]);
    cmd.arg(&json).arg("--").arg(&program).arg("end");
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let text = stderr(&output);
    assert!(text.contains("no verdict: it takes 5 rounds or more"), "{text}");
    assert!(text.contains("its own (glibc) and Poundlock's (poundlock)"), "{text}");
    let document = parsed(&json);
    let rounds = list(&document, "rounds");
    assert_eq!(rounds.len(), 3);
    for round in rounds {
        for side in ["its_own", "ours"] {
            assert!(
                number(&round[side], "waits") >= 1 && number(&round[side], "wall_ns") > 0,
                "{document:#}"
            );
        }
    }
    let output = run_limited(wide(&["--compare", "--rounds", "1", "--", "sh", "-c"]).arg("exit 9"), LIMIT);
    expect_status(&output, 9);
    assert!(stderr(&output).contains("nothing is compared"), "{}", stderr(&output));
}

/// `tests/stat/server.c`, compiled; and a port that nobody has.
fn server() -> (String, String) {
    let source = include_str!("../../../tests/stat/server.c");
    let program = compile_c(source, &["-O1"]).to_str().expect("a plain name").to_owned();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    (program, port)
}

/// `stat --compare` with JSON: the output and the JSON.
#[track_caller]
fn compared(options: &[&str], command: &[&str]) -> (String, serde_json::Value) {
    let json = scratch().join("compared.json");
    let mut cmd = wide(&["--compare", "--json"]);
    let output = run_limited(cmd.arg(&json).args(options).arg("--").args(command), LIMIT);
    expect_status(&output, 0);
    (stderr(&output), parsed(&json))
}

#[test]
fn servers_are_compared_by_what_their_client_says() {
    let (program, port) = server();
    let client = format!("{program} ask {port}");
    let options = ["--client", &client, "--metric", "rate: ([0-9]+)"];
    let (text, document) = compared(&options, &[&program, "serve", &port]);
    // Each server had the port to itself, though a worker outlives the one before.
    assert!(
        text.contains("better on Poundlock's locks: the metric is 200 rather than 100 (2.00 times)"),
        "{text}"
    );
    let rounds = list(&document, "rounds");
    assert_eq!(rounds.len(), 5);
    for round in rounds {
        assert_eq!((&round["its_own"]["metric"], &round["ours"]["metric"]), (&100.0.into(), &200.0.into()));
        // The processes that served it are measured: one acquisition for each request.
        assert!(number(&round["its_own"], "acquisitions") >= 10 && number(&round["ours"], "client_ns") > 0);
    }
    let (text, _) = compared(&[&options[..], &["--lower-is-better"]].concat(), &[&program, "serve", &port]);
    assert!(text.contains("worse on Poundlock's locks: the metric is 200 rather than 100"), "{text}");
}

#[test]
fn what_does_not_end_is_compared_for_a_time() {
    let (program, _) = server();
    let in_the_background = format!("{program} beat > /dev/null & exit 0");
    for command in [&[&*program, "beat"][..], &["sh", "-c", &in_the_background]] {
        let options = ["--rounds", "1", "--delay", "0.2", "--for", "0.2"];
        let (text, document) = compared(&options, command);
        assert!(text.contains("acquired/s"), "{text}");
        let round = &list(&document, "rounds")[0];
        for side in ["its_own", "ours"] {
            let ms = number(&round[side], "wall_ns") / 1_000_000;
            assert!(ms >= 200 && number(&round[side], "acquisitions") > 0, "{document:#}");
        }
    }
    let options = ["--rounds", "1", "--for", "0.2", "--metric", "rate: ([0-9]+)"];
    let (_, document) = compared(&options, &[&program, "beat"]);
    assert_eq!(list(&document, "rounds")[0]["ours"]["metric"], 200.0);
}

#[test]
fn a_comparison_that_cannot_be_says_what_to_do() {
    let (program, port) = server();
    let beat = [&*program, "beat"];
    let serve = [&*program, "serve", &port];
    let metric = ["--rounds", "1", "--metric", "speed: ([0-9]+)"];
    let with = |more: &[&'static str]| [&metric[..], more].concat();
    for (options, command, status, words) in [
        (
            with(&["--for", "0.1"]),
            &beat[..],
            125,
            &["matches nothing in the output of the command: its last line is 'rate: "][..],
        ),
        (
            with(&["--client", "echo hello"]),
            &serve,
            125,
            &["output of the client", "its last line is 'hello'"],
        ),
        (with(&["--client", "echo refused; exit 7"]), &serve, 7, &["exit status 7 (refused)", "--delay"]),
        (vec!["--rounds", "1", "--delay", "60"], &["true"], 125, &["ended before --delay was over"]),
        (vec!["--metric", "("], &beat, 2, &["no regular expression"]),
    ] {
        let output = run_limited(wide(&["--compare"]).args(options).arg("--").args(command), LIMIT);
        expect_status(&output, status);
        let text = stderr(&output);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(
            text.lines().filter(|line| line.contains("nothing is compared")).count(),
            usize::from(status != 2)
        );
    }
    for options in [&["--metric", "x"][..], &["--client", "x"], &["--compare", "--lower-is-better"]] {
        refused(&[options, &["--", "true"]].concat(), &["required arguments were not provided"]);
    }
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let program = compile_c(PROGRAM, &["-O1"]);
    let page = scratch().join("report.html");
    let mut cmd = wide(&["--html"]);
    cmd.arg(&page).arg("--").arg(&program).args(["end"]);
    expect_status(&run_limited(&mut cmd, LIMIT), 0);
    let text = std::fs::read_to_string(page).expect("the page");
    assert!(text.starts_with("<!DOCTYPE html>") && text.trim_end().ends_with("</html>"), "{text}");
    for none in ["<script", "src=", "href=\"http", "url(", "@import"] {
        assert!(!text.contains(none), "{none}: {text}");
    }
    // The table has the lock, and the picture who waited for it, above who held it.
    assert!(text.contains("<th scope=\"row\"><span title=\"lock (in program)\">"), "{text}");
    let picture =
        text.split("<figure>").find(|part| part.contains("Stacks that waited for lock (in program)"));
    let picture = picture.unwrap_or_else(|| panic!("{text}"));
    let part = |name: &str| {
        let start = picture.find(&format!("<g class=\"{name}\">")).unwrap_or_else(|| panic!("{picture}"));
        &picture[start..]
    };
    assert!(part("waits").contains(&line_of("/* WAIT */")), "{picture}");
    assert!(part("holds").contains("<title>main ("), "{picture}");
    assert!(text.contains("aria-label=\"waits by how long they took\""), "{text}");
}
