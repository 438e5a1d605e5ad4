//! How `poundlock check` tells: which kinds, JSON, SARIF, suppressions, statuses; and what it refuses.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use super::{Checked, Example, checked, examples::KINDS, text};
use crate::support::{
    LIMIT, compile_c, expect_status, list, number, parsed, poundlock, run_limited, scratch, stderr,
};

/// Two things are wrong: the order of two locks, and an unlock too many, five times each.
const TWO: &str = r#"#include <pthread.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *unused) {
    pthread_mutex_lock(&a); /* A */
    pthread_mutex_lock(&b); /* A, B */
    pthread_mutex_unlock(&b);
    pthread_mutex_unlock(&a);
    return unused;
}

static void *other(void *unused) {
    pthread_mutex_lock(&b); /* B */
    pthread_mutex_lock(&a); /* B, A */
    pthread_mutex_unlock(&a);
    pthread_mutex_unlock(&b);
    pthread_mutex_unlock(&b); /* FREE */
    return unused;
}

int main(void) {
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, i % 2 ? other : one, NULL);
        pthread_join(thread, NULL);
    }
    return 3;
}
"#;

fn line_of(mark: &str) -> u64 {
    let at = TWO.lines().position(|line| line.contains(mark)).expect("marked");
    at as u64 + 1
}

#[track_caller]
fn run(program: &Path, options: &[&str]) -> Checked {
    checked(&mut poundlock(), options, &[program.as_os_str()])
}

/// A finding is told once, with how often it was made, and each has all that there is to know.
#[test]
fn json_has_all_that_there_is_to_know() {
    let program = compile_c(TWO, &[]);
    let checked = run(&program, &[]);
    assert_eq!(checked.status, Some(3), "{}", checked.report);
    assert_eq!(checked.json["version"], 1);
    assert_eq!(list(&checked.json, "command")[0], program.to_str().expect("UTF-8"));
    let mut kinds = checked.kinds();
    kinds.sort_unstable();
    assert_eq!(kinds, ["order", "unlock-free"], "{}", checked.report);
    for finding in checked.findings() {
        for key in ["headline", "advice"] {
            assert!(!text(&finding[key]).is_empty(), "{finding:#}");
        }
        assert!(checked.report.contains(text(&finding["headline"])), "{}", checked.report);
        let order = finding["kind"] == "order";
        let locks: Vec<&str> = list(finding, "locks").iter().map(|lock| text(&lock["name"])).collect();
        for name in if order { &["a", "b"][..] } else { &["b"] } {
            assert!(locks.contains(name), "{locks:?}");
        }
        assert!(list(finding, "locks").iter().all(|lock| number(lock, "address") > 0), "{finding:#}");
        let stacks = list(finding, "stacks");
        for stack in stacks {
            assert!(!text(&stack["what"]).is_empty() && !list(stack, "frames").is_empty(), "{stack:#}");
            // One that has ended before the first look has no name.
            assert!(["program", ""].contains(&text(&stack["thread"]["name"])), "{stack:#}");
        }
        if order {
            assert_eq!(stacks.len(), 4, "both acquisitions of each edge: {finding:#}");
            assert_eq!(list(finding, "threads").len(), 2, "{finding:#}");
        }
    }
}

/// What a wait for a condition variable took again is held since that call, by its callers and by nothing of ours.
#[test]
fn a_mutex_that_a_wait_took_again_is_held_since_the_wait() {
    let source = r#"#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void inner(void) {
    struct timespec past = {0};
    pthread_cond_timedwait(&changed, &mutex, &past);
}

static void *outer(void *unused) {
    pthread_mutex_lock(&mutex);
    inner();
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, outer, NULL);
    pthread_join(thread, NULL);
}
"#;
    let program = compile_c(source, &[]);
    for lock in [&[][..], &["--lock", "poundlock"]] {
        let checked = run(&program, lock);
        let [finding] = checked.findings() else { panic!("{}", checked.report) };
        assert_eq!(finding["kind"], "exit-held", "{finding:#}");
        let stacks = list(finding, "stacks");
        let frames = list(stacks.last().expect("where it was taken"), "frames");
        let functions = frames.iter().filter_map(|frame| frame.as_str()?.split(' ').next());
        assert_eq!(functions.take(2).collect::<Vec<_>>(), ["inner", "outer"], "{finding:#}");
    }
}

#[test]
fn kinds_are_chosen_and_left_out() {
    let program = compile_c(TWO, &[]);
    for (list, found) in [
        ("order", &["order"][..]),
        ("unlock-free", &["unlock-free"]),
        ("unlock-free,order", &["order", "unlock-free"]),
        ("relock,deadlock", &[]),
        ("order,-order,relock", &[]),
        ("-order", &["unlock-free"]),
        ("all,-unlock-free", &["order"]),
        ("all", &["order", "unlock-free"]),
    ] {
        let checked = run(&program, &["--kind", list]);
        let mut kinds = checked.kinds();
        kinds.sort_unstable();
        assert_eq!(kinds, found, "{list}: {}", checked.report);
    }
}

/// What found no room stands in the verdict, and has a status of its own where statuses are asked for.
#[test]
fn an_incomplete_check_is_no_clean_one() {
    let program = compile_c(
        r#"#include <pthread.h>
        int main(void) {
            static pthread_mutex_t lock[5];
            for (int i = 0; i < 5; i++) pthread_mutex_lock(&lock[i]);
            for (int i = 0; i < 5; i++) pthread_mutex_unlock(&lock[i]);
            return 3;
        }"#,
        &[],
    );
    let sarif = scratch().join("check.sarif");
    let sarif_option = ["--sarif", sarif.to_str().expect("UTF-8")];
    for (options, status, complete) in [
        (&["--error-exitcode", "9"][..], 3, true),
        (&["--max-orders", "4"], 3, false),
        (&["--max-orders", "4", "--error-exitcode", "9"], 97, false),
    ] {
        let checked = run(&program, &[options, &sarif_option].concat());
        assert_eq!(checked.status, Some(status), "{options:?}: {}", checked.report);
        checked.nothing();
        assert_eq!(checked.json["complete"], complete, "{options:?}: {:#}", checked.json);
        assert_eq!(
            number(&checked.json["unseen"], "edges"),
            if complete { 0 } else { 6 },
            "{:#}",
            checked.json
        );
        let verdict = checked.report.lines().find(|line| line.contains("nothing found")).expect("a verdict");
        assert_eq!(verdict.contains("--max-orders"), !complete, "{verdict}");
        let notes = &parsed(&sarif)["runs"][0]["invocations"][0]["toolExecutionNotifications"];
        assert_eq!(notes.to_string().contains("--max-orders"), !complete, "{notes:#}");
    }
}

#[test]
fn sarif_has_rules_places_and_stacks() {
    let program = compile_c(TWO, &[]);
    let sarif = scratch().join("check.sarif");
    let checked = run(&program, &["--sarif", sarif.to_str().expect("UTF-8")]);
    let document = parsed(&sarif);
    assert_eq!(document["version"], "2.1.0");
    assert!(
        text(&document["$schema"]).contains("sarif-2.1.0")
            || text(&document["$schema"]).contains("sarif-schema-2.1.0")
    );
    let [run] = list(&document, "runs") else { panic!("{document:#}") };
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "poundlock check");
    let rules: Vec<&str> = list(driver, "rules").iter().map(|rule| text(&rule["id"])).collect();
    assert!(rules.iter().all(|rule| KINDS.contains(rule)), "{rules:?}");
    let results = list(run, "results");
    assert_eq!(results.len(), checked.findings().len(), "{document:#}");
    for result in results {
        let rule = text(&result["ruleId"]);
        assert!(rules.contains(&rule), "{result:#}");
        if let Some(index) = result["ruleIndex"].as_u64() {
            assert_eq!(rules[index as usize], rule);
        }
        assert!(!text(&result["message"]["text"]).is_empty());
        let place = |location: &Value| {
            let place = &location["physicalLocation"];
            let file =
                Path::new(text(&place["artifactLocation"]["uri"])).file_name().map(OsStr::to_os_string);
            (file, place["region"]["startLine"].as_u64())
        };
        let mut places: Vec<_> = list(result, "locations").iter().map(place).collect();
        assert!(!places.is_empty(), "{result:#}");
        if let Some(related) = result["relatedLocations"].as_array() {
            places.extend(related.iter().map(place));
        }
        let named: &[&str] = if rule == "order" { &["/* A, B */", "/* B, A */"] } else { &["/* FREE */"] };
        for mark in named {
            assert!(places.contains(&(Some("program.c".into()), Some(line_of(mark)))), "{mark}: {result:#}");
        }
    }
}

/// What is printed for a finding, put into a file, leaves that finding out and no other.
#[test]
fn suppressions_are_printed_and_taken() {
    let program = compile_c(TWO, &[]);
    let dir = scratch();
    let generated = run(&program, &["--gen-suppressions"]);
    assert_eq!(generated.kinds().len(), 2);
    let begin = generated.report.find('{').unwrap_or_else(|| panic!("{}", generated.report));
    // Whatever surrounds the stanzas on standard error, they can be cut out by their braces.
    let mut stanzas: Vec<String> = Vec::new();
    let mut inside = false;
    for line in generated.report[begin..].lines() {
        if line.trim() == "{" {
            inside = true;
            stanzas.push(String::new());
        }
        if inside {
            *stanzas.last_mut().expect("begun") += &format!("{line}\n");
        }
        inside &= line.trim() != "}";
    }
    let of = |kind: &str| -> String {
        let matching = stanzas.iter().filter(|stanza| {
            stanza.lines().any(|line| line.trim() == kind || line.trim() == format!("kind: {kind}"))
        });
        let mut matching: Vec<&String> = matching.collect();
        matching.dedup();
        let [stanza] = matching[..] else { panic!("{kind}: {stanzas:#?}\n{}", generated.report) };
        stanza.clone()
    };
    for (kind, other) in [("order", "unlock-free"), ("unlock-free", "order")] {
        let file = dir.join(kind);
        std::fs::write(&file, format!("# What is known.\n\n{}", of(kind))).expect("written");
        let file = file.to_str().expect("UTF-8");
        let checked = run(&program, &["--suppressions", file, "--error-exitcode", "9"]);
        checked.only(other);
        assert_eq!(checked.status, Some(9), "{}", checked.report);
        assert!(checked.report.contains("suppressed"), "{}", checked.report);
        // Both files: nothing is left, and the status is the program's.
        let second = dir.join(format!("{kind}-other"));
        std::fs::write(&second, of(other)).expect("written");
        let second = second.to_str().expect("UTF-8");
        let options = ["--suppressions", file, "--suppressions", second, "--error-exitcode", "9"];
        let checked = run(&program, &options);
        checked.nothing();
        assert_eq!(checked.status, Some(3), "{}", checked.report);
    }
}

/// A finding changes the status only if that is asked for.
#[test]
fn the_status_is_the_programs_unless_asked() {
    let program = compile_c(TWO, &[]);
    assert_eq!(run(&program, &[]).status, Some(3));
    assert_eq!(run(&program, &["--error-exitcode", "9"]).status, Some(9));
    assert_eq!(run(&program, &["--error-exitcode", "9", "--kind", "relock"]).status, Some(3));
    let silent = Example::compile("order-ok");
    assert_eq!(silent.check(&["--error-exitcode", "9"]).status, Some(0));
}

/// `-o FILE` takes what would be on standard error.
#[test]
fn the_report_goes_to_a_file() {
    let program = compile_c(TWO, &[]);
    let file = scratch().join("report");
    let mut cmd = poundlock();
    cmd.args(["check", "-o"]).arg(&file).arg("--").arg(&program);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 3);
    assert_eq!(stderr(&output), "");
    let report = std::fs::read_to_string(&file).expect("the report");
    assert!(
        report.contains("order") && report.contains(&format!("program.c:{}", line_of("/* FREE */"))),
        "{report}"
    );
    assert!(!report.contains('\x1b'), "{report}");
}

/// Bad input is one line each, and nothing is run.
#[test]
fn bad_input_is_refused_in_a_line() {
    let dir = scratch();
    let file = |name: &str, text: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let unfinished = file("unfinished", b"{\n  known\n  order\n");
    let strange = file("strange", b"{\n  known\n  no-such-kind\n}\n");
    let binary = file("binary", b"\x00\xff\xfe{{{\n");
    let missing = dir.join("missing").to_str().expect("UTF-8").to_owned();
    let directory = dir.to_str().expect("UTF-8");
    let nowhere = format!("{missing}/report");
    for (options, words) in [
        (&["--suppressions", missing.as_str()][..], &[missing.as_str()][..]),
        (&["--suppressions", directory], &[directory]),
        (&["--suppressions", &unfinished], &["unfinished"]),
        (&["--suppressions", &strange], &["strange", "no-such-kind"]),
        (&["--suppressions", &binary], &["binary"]),
        (&["--kind", "ordre"], &["ordre"]),
        (&["--kind", "-ordre"], &["ordre"]),
        (&["--kind", ""], &["--kind"]),
        (&["--held-over", "soon"], &["soon"]),
        (&["--held-over", "-1"], &["-1"]),
        (&["--error-exitcode", "256"], &["256"]),
        (&["--error-exitcode", "none"], &["none"]),
        (&["--on-deadlock", "panic"], &["panic"]),
        (&["--json", &nowhere], &["report"]),
        (&["--sarif", &nowhere], &["report"]),
        (&["-o", &nowhere], &["report"]),
        (&["--json", "-", "--sarif", "-"], &["--json", "--sarif"]),
        (&["--lock", "no-such-lock"], &["no-such-lock"]),
        (&["--supressions", "x"], &["'--supressions'", "--suppressions"]),
    ] {
        let mut cmd = poundlock();
        let output = run_limited(cmd.arg("check").args(options).args(["--", "echo", "ran"]), LIMIT);
        let told = stderr(&output);
        assert!(output.stdout.is_empty(), "it ran: {options:?}\n{told}");
        assert_ne!(output.status.code(), Some(0), "{options:?}");
        for word in words {
            assert!(told.contains(word), "{options:?} without {word}: {told}");
        }
        // What clap says has a line of usage behind it.
        assert!(told.lines().count() == 1 || told.contains("--help"), "{options:?}: {told}");
    }
    let output = run_limited(poundlock().arg("check"), LIMIT);
    expect_status(&output, 2);
}
