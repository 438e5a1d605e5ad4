//! `poundlock bench`, with durations too short for good figures: what is measured and reported, never how
//! fast.

use std::path::Path;
use std::process::Command;

use crate::support::{LIMIT, poundlock, poundlock_bare, run_limited};
use serde_json::Value;

const OURS: [&str; 5] = ["poundlock", "any-negative", "mcs-queue", "fewer-atomics", "baseline"];

/// Runs a benchmark that succeeds; returns its standard output and its JSON.
#[track_caller]
fn measured(command: &mut Command, arguments: &[&str]) -> (String, Value) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("figures.json");
    // What was there before must be gone, however long it was.
    std::fs::write(&json, "x".repeat(1 << 20)).unwrap();
    command.arg("bench").args(arguments).arg("--json").arg(&json);
    let output = run_limited(command, 2 * LIMIT);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    assert_eq!(stderr, "", "{command:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    if !text.is_empty() {
        check_tables(&text);
    }
    (text, read(&json))
}

/// No line of a table is wider than a pipe's are to be.
#[track_caller]
fn check_tables(text: &str) {
    // Of all that is printed, rows alone begin with a blank, and rules alone with these.
    let lines = text.lines().filter(|line| line.starts_with([' ', '─', '═']));
    let widest =
        lines.max_by_key(|line| line.chars().count()).unwrap_or_else(|| panic!("no table in {text}"));
    assert!(widest.chars().count() <= 110, "{} columns: {widest}", widest.chars().count());
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs a benchmark that fails; returns its exit status and its line.
#[track_caller]
fn refused(command: &mut Command, arguments: &[&str]) -> (i32, String) {
    command.arg("bench").args(arguments);
    let output = run_limited(command, LIMIT);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{command:?} printed figures");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A summary that holds together.
#[track_caller]
fn check_summary(summary: &Value, n: u64) {
    let figure = |name: &str| summary[name].as_f64().unwrap_or_else(|| panic!("no {name} in {summary}"));
    assert!(figure("min") <= figure("q1") && figure("q1") <= figure("median"), "{summary}");
    assert!(figure("median") <= figure("q3") && figure("q3") <= figure("max"), "{summary}");
    assert_eq!(summary["n"], n, "{summary}");
}

/// A verdict takes a spread that does not cross the limit, and a figure lies within its spread.
#[track_caller]
fn check_verdicts(targets: &[Value]) {
    for target in targets {
        for result in target["results"].as_array().unwrap() {
            let [min, max] = [0, 1].map(|end| result["spread"][end].as_f64().unwrap());
            let value = result["value"].as_f64().unwrap();
            assert!(min <= value && value <= max, "{target}");
            let reached = |value: f64| match target["limit"]["at_most"].as_f64() {
                Some(limit) => value <= limit,
                None => value >= target["limit"]["at_least"].as_f64().unwrap(),
            };
            let verdict = match (reached(min), reached(max)) {
                (true, true) => "reached",
                (false, false) => "missed",
                _ => "undecided",
            };
            assert_eq!(result["verdict"], verdict, "{target}");
        }
    }
}

/// The rows of a section.
#[track_caller]
fn rows<'a>(json: &'a Value, section: &str) -> &'a Vec<Value> {
    json[section].as_array().unwrap_or_else(|| panic!("no {section}"))
}

/// The names in a column, each once, in order.
fn names<'a>(rows: &'a [Value], label: &str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().map(|row| row[label].as_str().unwrap()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The row with these labels, if there is one.
fn find<'a>(rows: &'a [Value], labels: &[(&str, Value)]) -> Option<&'a Value> {
    rows.iter().find(|row| labels.iter().all(|(name, value)| row[*name] == *value))
}

/// The row with these labels, whose summaries of `n` rounds hold together.
#[track_caller]
fn check_row<'a>(rows: &'a [Value], labels: &[(&str, Value)], figures: &[&str], n: u64) -> &'a Value {
    let row = find(rows, labels).unwrap_or_else(|| panic!("{labels:?}: missing"));
    figures.iter().for_each(|figure| check_summary(&row[*figure], n));
    row
}

#[track_caller]
fn check_headings(text: &str, headings: &[&str]) {
    for heading in headings {
        let here = |line: &str| line.trim_start_matches("### ").starts_with(heading);
        assert!(text.lines().any(here), "no {heading} in\n{text}");
    }
}

#[track_caller]
fn check_machine(machine: &Value, command: &str) {
    assert!(machine["cpus"].as_u64().unwrap() >= 1);
    for name in ["cpu", "kernel", "glibc", "commit"] {
        assert_ne!(machine[name].as_str().unwrap(), "", "{name}");
    }
    assert_eq!(machine["command"], command);
}

/// Rounds, and numbers of threads, of the one run of everything.
const ROUNDS: u64 = 2;
const THREADS: [u64; 2] = [2, 5];

#[test]
fn figures_of_every_benchmark_are_one_page() {
    let directory = tempfile::tempdir().unwrap();
    let line = "figures --threads 2,5 --pin --time-factor 0.02 --rounds 2 --sleepers 10,20 --out FIGURES.md \
        --targets";
    let arguments: Vec<_> = line.split(' ').collect();
    let (text, json) = measured(poundlock().current_dir(directory.path()), &arguments);
    assert_eq!(text, "", "the page went to a file");
    let page = std::fs::read_to_string(directory.path().join("FIGURES.md")).unwrap();
    // The machine and the command stand beside each set of figures.
    let command = format!("- Command: `poundlock bench {line}`");
    for label in ["- CPU:", "- Kernel:", "- glibc:", "- Poundlock:", &command] {
        assert_eq!(page.lines().filter(|line| line.starts_with(label)).count(), 7, "{label} in\n{page}");
    }
    let parts: Vec<&str> = page.split("\n## ").collect();
    for (index, (name, heading, check)) in CHECKS.iter().enumerate() {
        check_machine(&json[name]["machine"], &format!("poundlock bench {line}"));
        assert!(parts[index + 1].starts_with(heading), "no {heading} in\n{page}");
        check(&json[name], parts[index + 1]);
        check_verdicts(rows(&json[name], "targets"));
    }
}

type Check = fn(&Value, &str);
const CHECKS: [(&str, &str, Check); 7] = [
    ("uncontended", "Uncontended", uncontended_has_every_lock_with_and_without_statistics),
    ("handover", "Handover", handover_has_every_lock),
    ("spin", "Spinlocks", spin_has_every_lock_alone_between_two_and_in_a_crowd),
    ("rwlock", "Readers-writer locks", rwlock_has_every_lock_alone_and_with_writers_among_readers),
    ("misc", "Mutexes", misc_mutex_has_every_lock_at_every_point),
    ("sem", "Semaphore arrays", |_, _| {}),
    ("start_up", "Start-up", start_up_has_every_way),
];

fn uncontended_has_every_lock_with_and_without_statistics(json: &Value, text: &str) {
    let all = rows(json, "rows");
    let row = |lock: &str, threads: &str, operation: &str, stat: bool, figures: &[&str]| {
        let labels = [("lock", lock), ("threads", threads), ("operation", operation)];
        let labels = labels.map(|(name, value)| (name, value.into()));
        check_row(all, &[labels.as_slice(), &[("stat", stat.into())]].concat(), figures, ROUNDS)
    };
    for lock in ["glibc"].into_iter().chain(OURS) {
        for threads in ["one", "two"] {
            for operation in ["lock-unlock", "trylock-unlock", "recursive-lock-unlock"] {
                let row = row(lock, threads, operation, false, &["ns", "of_glibc"]);
                assert!(row["ns"]["min"].as_f64().unwrap() > 0.0);
            }
        }
    }
    for lock in ["glibc", "glibc-adaptive"].into_iter().chain(OURS) {
        row(lock, "two", "slept-lock-unlock", false, &["of_glibc"]);
    }
    for lock in OURS {
        row(lock, "two", "lock-unlock", true, &["stat_adds_ns"]);
        check_row(all, &[("operation", format!("rust-{lock}").into())], &["of_bare"], ROUNDS);
    }
    for floor in ["bare-cas-exchange", "atomic-add", "empty-loop", "empty-calls", "bare-calls"] {
        assert!(find(all, &[("operation", floor.into())]).is_some(), "no {floor}");
    }
    check_row(all, &[("operation", "crate-mutex".into())], &["of_parking_lot"], ROUNDS);
    let targets = rows(json, "targets");
    // The C library is measured where it is installed.
    assert_eq!(targets.len(), 9 + 2 * usize::from(json["c_library"].as_bool().unwrap()));
    for target in targets {
        let locks = names(rows(target, "results"), "lock");
        let of_the_default = ["poundlock::Mutex", "C library"];
        if of_the_default.iter().any(|what| target["figure"].as_str().unwrap().contains(what)) {
            assert_eq!(locks, ["poundlock"], "{target}");
        } else if target["figure"].as_str().unwrap().contains("hand-off") {
            assert!(locks.iter().all(|lock| lock.starts_with("handoff")), "{target}");
        } else {
            assert!(OURS.iter().all(|lock| locks.contains(lock)), "{target}");
        }
    }
    assert!(text.contains("at most 0.85") && text.contains("at most 15 ns"), "{text}");
    // The question that people ask is answered first.
    let answer = text.find("A lock and an unlock of poundlock that nobody contends with").unwrap();
    assert!(answer < text.find("CPU:").unwrap(), "{text}");
}

fn handover_has_every_lock(json: &Value, text: &str) {
    let figures =
        ["throughput", "of_glibc", "of_ideal", "of_own_two", "jain", "cpu_ns", "voluntary", "involuntary"];
    for threads in THREADS {
        for lock in ["glibc", "glibc-adaptive"].into_iter().chain(OURS) {
            let labels = [("threads", threads.into()), ("lock", lock.into())];
            let row = check_row(rows(json, "rows"), &labels, &figures, ROUNDS);
            assert!(row["throughput"]["min"].as_f64().unwrap() > 0.0);
            assert!(row["jain"]["max"].as_f64().unwrap() <= 1.0);
            assert!(text.contains(lock), "{text}");
        }
    }
    assert_eq!(json["options"]["pin"], true);
    assert!(text.contains("each thread kept on one of them"), "{text}");
    // The targets are about 2 CPUs, and 2 threads are the only case with one.
    assert_eq!(rows(json, "targets").len(), usize::from(json["cpus"] == 2));
}

/// Everybody's name.
const SPINLOCKS: &str = "cas+store pthread_spin ticket mcs test-and-set back-off glibc qspin qspin-virt \
    qspin-pv \
    qspin-large qspin-pv-large preload-qspin preload-qspin-virt preload-qspin-pv";

fn spin_has_every_lock_alone_between_two_and_in_a_crowd(json: &Value, text: &str) {
    let alone = rows(json, "alone");
    assert_eq!(names(alone, "lock").join(" "), SPINLOCKS);
    for lock in SPINLOCKS.split(' ') {
        check_row(alone, &[("lock", lock.into())], &["ns", "of_bare", "of_pthread_spin"], ROUNDS);
    }
    let two_cpus = json["cpus"].as_u64().unwrap() >= 2;
    let figures = ["throughput", "of_pthread_spin", "of_ticket", "of_mcs", "of_glibc", "of_best", "jain"];
    for us in [0.0, 0.1, 0.25, 0.5, 1.0, 2.0].into_iter().filter(|_| two_cpus) {
        // All but the floor and one form of the preloaded symbols.
        for lock in SPINLOCKS.split(' ').filter(|lock| !["cas+store", "preload-qspin-virt"].contains(lock)) {
            let labels = [("lock", lock.into()), ("critical_us", us.into()), ("threads", 2.into())];
            let row = check_row(rows(json, "pair"), &labels, &figures, ROUNDS);
            assert!(row["throughput"]["min"].as_f64().unwrap() > 0.0);
        }
    }
    for threads in THREADS {
        for lock in ["pthread_spin", "ticket", "mcs", "glibc", "qspin", "qspin-virt", "qspin-pv"] {
            let labels = [("threads", threads.into()), ("lock", lock.into())];
            let row = check_row(rows(json, "crowd"), &labels, &["of_own_two", "of_glibc"], ROUNDS);
            assert!(row["jain"]["max"].as_f64().unwrap() <= 1.0);
        }
    }
    let costs = rows(json, "costs");
    for cost in costs {
        assert!(cost["throughput"]["min"].as_f64().unwrap() > 0.0);
        let share = &cost["held"]["long_share"];
        assert!(share.is_null() || share["min"].as_f64().unwrap() >= 0.0, "{cost}");
        // Only our own lock tells what it does.
        let ours = cost["lock"].as_str().unwrap().starts_with("qspin");
        assert!(ours || cost["events"].is_null(), "{cost}");
    }
    assert!(find(costs, &[("lock", "qspin-pv".into()), ("threads", 5.into())]).is_some());
    let titles = ["One thread", "Threads that share the CPUs", "What a hand-over costs", "Lock events"];
    check_headings(text, &titles);
}

/// The floor, and the readers-writer locks that need no package.
const RW_LOCKS: &str = "add+subtract glibc glibc-writers std parking_lot usync mutex rw-phase-fair \
    rw-reader-preferring \
    rw-writer-preferring";

fn rwlock_has_every_lock_alone_and_with_writers_among_readers(json: &Value, text: &str) {
    // Who is left out is in the report with a reason; the others are everywhere.
    let absent = rows(json, "absent");
    for absent in absent {
        assert!(absent["why"].as_str().is_some_and(|why| !why.is_empty()), "{absent}");
        assert!(text.contains(absent["lock"].as_str().unwrap()), "{text}");
    }
    let needless = RW_LOCKS.split(' ');
    let is_absent = |lock: &str| find(absent, &[("lock", lock.into())]).is_some();
    for lock in needless.clone().chain(["preload-rwlock", "abseil", "nsync", "onetbb", "ck-pflock"]) {
        assert!(!(is_absent(lock) && needless.clone().any(|here| here == lock)), "{lock} is left out");
        for side in ["read", "write"].into_iter().filter(|_| !is_absent(lock)) {
            let labels = [("lock", lock.into()), ("side", side.into())];
            check_row(rows(json, "alone"), &labels, &["ns", "of_bare", "of_glibc"], ROUNDS);
        }
        for threads in THREADS {
            for writers in [1.0, 10.0] {
                let labels =
                    [("threads", threads.into()), ("writers", writers.into()), ("lock", lock.into())];
                let there = find(rows(json, "rows"), &labels).is_some();
                assert_eq!(there, !is_absent(lock) && lock != "add+subtract", "{labels:?}");
            }
        }
    }
    for row in rows(json, "rows").iter().filter(|row| needless.clone().any(|lock| row["lock"] == lock)) {
        for figure in ["throughput", "of_glibc", "jain", "of_best"] {
            check_summary(&row[figure], ROUNDS);
        }
        assert!(row["best"].is_string(), "{row}");
        assert!(row["throughput"]["min"].as_f64().unwrap() > 0.0);
    }
    assert!(rows(json, "targets")[0]["figure"].as_str().unwrap().contains("parking_lot's read pair"));
    let titles = ["One thread", "Throughput and fairness", "Waits of writers", "Waits of readers", "Targets"];
    check_headings(text, &titles);
}

/// The floor, and everybody who can be waited for.
const MUTEXES: &str = "cas+exchange glibc glibc-adaptive glibc-recursive pthread_spin poundlock any-negative \
    mcs-queue \
    fewer-atomics baseline handoff handoff:none handoff:competitive handoff:owner-running \
    handoff:same-cpu handoff:adaptive handoff-recursive qspin qspin-virt qspin-pv";

/// Those for which threads never sleep.
const SPINNING: [&str; 3] = ["pthread_spin", "qspin", "qspin-virt"];

fn misc_mutex_has_every_lock_at_every_point(json: &Value, text: &str) {
    let bytes = |lock: &str| find(rows(json, "sizes"), &[("lock", lock.into())]).unwrap();
    let handoff = bytes("handoff, every policy");
    assert_eq!((&handoff["plain"], &handoff["recursive"]), (&20.into(), &28.into()));
    let qspin = bytes("qspin, every form");
    assert_eq!((&qspin["plain"], &qspin["recursive"]), (&4.into(), &Value::Null));

    let alone = rows(json, "alone");
    alone
        .iter()
        .for_each(|row| ["ns", "of_bare"].iter().for_each(|figure| check_summary(&row[*figure], ROUNDS)));
    for lock in MUTEXES.split(' ') {
        for (operation, there) in [
            ("lock-unlock", true),
            ("again", lock.ends_with("-recursive")),
            ("trylock", lock != "cas+exchange"),
            ("trylock-held", lock != "cas+exchange"),
            ("by-token", lock == "handoff"),
            ("through-queue", lock == "handoff"),
        ] {
            let row = find(alone, &[("lock", lock.into()), ("operation", operation.into())]);
            assert_eq!(row.is_some(), there, "{lock}, {operation}");
        }
    }
    let contend = || MUTEXES.split(' ').filter(|lock| !["cas+exchange", "glibc-recursive"].contains(lock));
    let cpus = json["cpus"].as_u64().unwrap();
    for lock in contend() {
        for next in ["just-came", "asleep"] {
            let labels = [("lock", lock.into()), ("next", next.into())];
            if cpus >= 2 && (next == "just-came" || !SPINNING.contains(&lock)) {
                check_row(rows(json, "passes"), &labels, &["pass_ns", "unlock_ns", "of_glibc"], ROUNDS);
            } else {
                assert_eq!(find(rows(json, "passes"), &labels), None);
            }
        }
        for threads in THREADS {
            for us in [0.0, 1.0] {
                let labels = [("threads", threads.into()), ("critical_us", us.into()), ("lock", lock.into())];
                let figures = ["ns", "of_glibc", "of_none", "of_qspin", "jain", "cpu_ns"];
                let row = check_row(rows(json, "increments"), &labels, &figures, ROUNDS);
                assert!(row["ns"]["min"].as_f64().unwrap() > 0.0, "{row}");
                assert!(row["jain"]["max"].as_f64().unwrap() <= 1.0, "{row}");
                assert_eq!(row["pinned"], threads <= cpus, "{row}");
                let policy = lock.starts_with("handoff") && lock != "handoff-recursive";
                assert_eq!(!row["of_best_policy"].is_null(), policy, "{row}");
            }
        }
        let checked = check_row(rows(json, "checked"), &[("lock", lock.into())], &["acquisitions"], ROUNDS);
        assert!(checked["acquisitions"]["min"].as_f64().unwrap() >= 1.0);
    }
    assert_eq!(json["published"][0]["without_ns"], 800.0);
    assert!(!rows(json, "targets").is_empty());
    let titles =
        ["Bytes", "One thread", "Incrementing threads", "Beside", "Policies", "The checker", "Targets"];
    check_headings(text, &titles);
}

fn start_up_has_every_way(json: &Value, text: &str) {
    assert_eq!(names(rows(json, "rows"), "way"), ["plain", "preloaded", "preloaded-stat", "run"]);
    check_summary(&json["rows"][1]["adds_ms"], ROUNDS);
    assert_eq!(json["targets"][0]["limit"]["at_most"], 3.0);
    assert!(text.contains("start-up time added by the library"), "{text}");
}

#[test]
fn stat_shows_what_it_costs_every_way() {
    let line = "stat --rounds 1 --work 0.03 --seconds 0.002 --locks 500 --waits 2000 --targets";
    let quick: Vec<_> = line.split(' ').collect();
    let (text, json) = measured(&mut poundlock(), &quick);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Their work was 0.03 times the usual."), "{text}");
    let of = |section: &str, label: &str| names(rows(&json, section), label).join(" ");
    assert_eq!((of("alone", "what"), of("alone", "way")), ("mutex spinlock".into(), "run stat".into()));
    assert_eq!(of("reports", "way"), "text everything");
    check_summary(&rows(&json, "alone")[1]["adds"], 1);
    for row in rows(&json, "programs").iter().filter(|row| row["way"] == "stat") {
        check_summary(&row["speed"], 1);
    }
    check_verdicts(rows(&json, "targets"));
    // What is not installed has its row all the same.
    for what in
        ["our mutex", "our spinlock", "logtally", "sysbench", "memcached", "100,000", "500 locks, 2000"]
    {
        assert!(text.contains(what), "{what} is not in {text}");
    }
}

#[test]
fn some_locks_of_a_benchmark_need_no_library_and_bring_what_they_are_compared_with() {
    for (line, section, locks) in [
        (
            "handover --locks glibc-adaptive --threads 1,3 --seconds 0.01",
            "rows",
            &["glibc", "glibc-adaptive"][..],
        ),
        (
            "spin --locks qspin-pv --threads 3 --critical 0.1 --seconds 0.002",
            "alone",
            &["cas+store", "pthread_spin", "ticket", "mcs", "glibc", "qspin-pv"],
        ),
        (
            "rwlock --locks rw-phase-fair,std --threads 3 --writers 10,100 --seconds 0.002",
            "rows",
            &["glibc", "std", "parking_lot", "rw-phase-fair"],
        ),
        (
            "misc-mutex --locks handoff:competitive --threads 2,3 --critical 0.5 --seconds 0.002",
            "alone",
            &["cas+exchange", "glibc", "handoff", "handoff:none", "handoff:competitive", "qspin"],
        ),
        ("uncontended --locks glibc --seconds 0.001", "rows", &["glibc"]),
    ] {
        let arguments: Vec<_> = line.split(' ').chain(["--rounds", "1"]).collect();
        let (text, json) = measured(&mut poundlock_bare(), &arguments);
        let command = format!("poundlock bench {line} --rounds 1");
        check_machine(&json["machine"], &command);
        assert!(text.contains(&command), "{text}");
        // Nobody asked for targets.
        assert!(!text.contains("\nTargets"), "{text}");
        let rows: Vec<Value> =
            rows(&json, section).iter().filter(|row| row["lock"].is_string()).cloned().collect();
        assert_eq!(names(&rows, "lock"), locks, "{line}");
        for row in &rows {
            match json["options"]["writers"].as_array() {
                Some(_) => {
                    for figure in ["mean_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns", "max_of_mean"] {
                        assert_eq!(row["reader_waits"][figure].is_null(), row["writers"] == 100.0, "{row}");
                    }
                    let longest = &row["writer_waits"]["max_of_mean"]["min"];
                    assert!(row["writers"] == 10.0 || longest.as_f64().unwrap() >= 0.9, "{row}");
                }
                None if line.starts_with("handover") => {
                    assert_eq!(row["of_own_two"], Value::Null, "2 threads were not measured");
                    assert!(row["lock"] != "glibc" || row["of_glibc"]["median"] == 1.0, "{row}");
                    assert_eq!(json["targets"], Value::Array(vec![]), "there are no targets for glibc");
                }
                None => {}
            }
        }
        if line.starts_with("misc-mutex") {
            // No work at all is measured whatever is asked for.
            let us = |us: f64| find(json["increments"].as_array().unwrap(), &[("critical_us", us.into())]);
            assert!(us(0.0).is_some() && us(0.5).is_some() && us(1.0).is_none());
        }
    }
}

/// Those that are arrays of semaphores.
const ARRAYS: [&str; 5] = ["kernel", "before", "after", "shared-line", "combining"];

#[test]
fn sembench_measures_every_mechanism_without_a_library() {
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("wake-ups.svg");
    let mut command = poundlock_bare();
    command.current_dir(directory.path());
    let arguments = [
        "sembench",
        "-t",
        "12",
        "-w",
        "5",
        "-r",
        "0.02",
        "-b",
        "--rounds",
        "2",
        "--sleepers",
        "40,10",
        "--plot",
        "wake-ups.svg",
        "--targets",
    ];
    let (text, json) = measured(&mut command, &arguments);
    check_machine(&json["machine"], &format!("poundlock bench {}", arguments.join(" ")));
    let rows = |name: &str| json[name].as_array().unwrap_or_else(|| panic!("no {name}")).clone();
    let everybody = || ARRAYS.into_iter().chain(["futex", "nanosleep"]);

    let burns = rows("burns");
    let who: Vec<_> = burns.iter().map(|row| row["mechanism"].as_str().unwrap()).collect();
    assert_eq!(who, everybody().collect::<Vec<_>>());
    for row in &burns {
        for figure in
            ["burns_per_second", "of_kernel", "of_before", "at_a_time", "cpu_ns", "voluntary", "involuntary"]
        {
            check_summary(&row[figure], 2);
        }
        assert!(row["burns_per_second"]["min"].as_f64().unwrap() > 0.0, "{row}");
        // Of the kernel's lock nothing is known, and the others have none.
        let ours = ARRAYS[1..].contains(&row["mechanism"].as_str().unwrap());
        for figure in ["spinning", "contended"] {
            assert_eq!(row[figure].is_null(), !ours, "{figure} of {row}");
        }
        for round in row["rounds"].as_array().unwrap() {
            let count = |name: &str| round[name].as_f64().unwrap();
            assert!(count("worker_min") <= count("worker_max"), "{round}");
            assert!(
                count("worker_burns") >= count("main_burns"),
                "a turn counts if it woke somebody: {round}"
            );
            assert_eq!(round["held"].is_null(), !ours, "{round}");
            if ours {
                // Whoever slept took the lock; how many had their semaphore already is not known.
                let acquisitions =
                    round["held"]["free"].as_f64().unwrap() + round["held"]["contended"].as_f64().unwrap();
                assert!(acquisitions > 0.0, "{round}");
            }
        }
    }

    let alone = rows("alone");
    for operation in ["one", "undo", "eight", "bare"] {
        for mechanism in ARRAYS {
            let row = alone.iter().find(|row| row["mechanism"] == mechanism && row["operation"] == operation);
            let row = row.unwrap_or_else(|| panic!("no {operation} of {mechanism}"));
            for figure in ["ns", "times_the_kernels_rate", "of_bare"] {
                check_summary(&row[figure], 2);
            }
        }
    }
    assert_eq!(alone.len(), 4 * ARRAYS.len());

    let pairs = rows("pairs");
    let two_cpus = json["cpus"].as_u64().unwrap() >= 2;
    assert_eq!(pairs.len(), if two_cpus { ARRAYS.len() } else { 0 });
    assert!(pairs.iter().all(|row| row["calls_per_second"]["min"].as_f64().unwrap() > 0.0));

    let wakes = rows("wakes");
    for sides in ["processes", "threads"] {
        for (number, mechanism) in
            [2, 4, 8, 16].into_iter().flat_map(|pairs| [(pairs, "kernel"), (pairs, "after")])
        {
            let labels =
                [("sides", sides.into()), ("number", number.into()), ("mechanism", mechanism.into())];
            let row = check_row(&wakes, &labels, &["mean_of_kernel", "longest_of_kernel", "first_ns"], 2);
            for figure in ["mean_ns", "p50_ns", "p999_ns", "max_ns"] {
                check_summary(&row["waits"][figure], 2);
            }
            // Each side of each pair has waited.
            assert!(row["waits"]["count"]["min"].as_f64().unwrap() >= f64::from(2 * number), "{row}");
        }
    }
    assert_eq!(wakes.len(), 16);

    let crowds = rows("crowds");
    for sleep in ["own", "several", "ten"] {
        for mechanism in everybody() {
            let here = |row: &&Value| row["mechanism"] == mechanism && row["sleep"] == sleep;
            let numbers: Vec<_> =
                crowds.iter().filter(here).map(|row| row["sleepers"].as_u64().unwrap()).collect();
            // Variants that differ in the lock only would have to be named.
            let measured = ARRAYS[..3].contains(&mechanism) || (mechanism, sleep) == ("futex", "own");
            assert_eq!(numbers, if measured { vec![10, 40] } else { vec![] }, "{mechanism}, {sleep}");
        }
    }
    for row in &crowds {
        check_summary(&row["ns"], 2);
        assert_eq!(row["growth"].is_null(), row["sleepers"] == 10, "{row}");
    }
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("sleepers"), "{picture}");

    assert_eq!(json["published"][1]["burns_per_second"], 236_144);
    // The run is not the published one, so that the targets about it are left out.
    let targets = rows("targets");
    assert_eq!(targets.len(), 8);
    for result in targets.iter().flat_map(|target| target["results"].as_array().unwrap()) {
        assert!(ARRAYS.contains(&result["lock"].as_str().unwrap()), "{result}");
    }
    for title in [
        "Threads that",
        "Beside",
        "One thread",
        "Waits of processes",
        "Does the lock's",
        "Sleepers",
        "Targets",
    ] {
        assert!(text.lines().any(|line| line.starts_with(title)), "no {title} in\n{text}");
    }
    for line in ["12 threads, waking 5 at a time", "using ipc sem operations", "using futexes"] {
        assert!(text.lines().any(|printed| printed == line), "no '{line}' in\n{text}");
    }
}

#[test]
fn sembench_takes_the_sources_options() {
    let arguments =
        ["sembench", "-t", "3", "-w", "64", "-o", "2", "-r", "0.01", "--rounds", "1", "--no-sleepers"];
    let (text, json) = measured(&mut poundlock_bare(), &arguments);
    let who: Vec<_> =
        json["burns"].as_array().unwrap().iter().map(|row| row["mechanism"].as_str().unwrap()).collect();
    // What it is compared with, asked for or not.
    assert_eq!(who, ["kernel", "futex"]);
    assert_eq!(json["options"]["bind"], false);
    assert_eq!(json["crowds"], Value::Array(vec![]));
    assert!(!text.contains("Sleepers, "), "{text}");
}

#[test]
fn sembench_leaves_no_array_of_the_kernels_behind() {
    // The test's own name space may have others, which come and go.
    let own = || {
        let arrays = std::fs::read_to_string("/proc/sysvipc/sem").unwrap();
        let sized = |line: &&str| line.split_whitespace().nth(3) == Some("97");
        arrays.lines().filter(sized).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = own();
    let arguments = ["sembench", "-t", "97", "-o", "0", "-r", "0.01", "--rounds", "1", "--no-sleepers"];
    measured(&mut poundlock_bare(), &arguments);
    assert_eq!(own(), before);
}

#[test]
fn a_command_is_measured_on_glibc_and_on_ours() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("figures.json");
    let mut command = poundlock();
    command
        .args(["bench", "programs", "--rounds", "3", "--locks", "poundlock,any-negative", "--json"])
        .arg(&json);
    // That it runs under ours can be seen, and so it can that glibc's is left alone.
    let script = r#"echo "${POUNDLOCK_LOCK-none}" >>"$0""#;
    let ran = directory.path().join("ran");
    command.args(["--", "sh", "-c", script]).arg(&ran);
    let output = run_limited(&mut command, LIMIT);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let mut locks: Vec<_> = std::fs::read_to_string(&ran).unwrap().lines().map(str::to_owned).collect();
    locks.sort();
    let three = |lock: &str| std::iter::repeat_n(lock.to_owned(), 3);
    let expected: Vec<_> = three("any-negative").chain(three("none")).chain(three("poundlock")).collect();
    assert_eq!(locks, expected);
    let rows = read(&json)["rows"].as_array().unwrap().clone();
    let who: Vec<_> = rows.iter().map(|row| row["lock"].as_str().unwrap()).collect();
    assert_eq!(who, ["glibc", "poundlock", "any-negative"]);
    for row in &rows {
        assert_eq!(row["program"], "sh");
        check_summary(&row["ms"], 3);
        check_summary(&row["cpu_ms"], 3);
        assert_eq!(row["speed"].is_null(), row["lock"] == "glibc", "{row}");
    }
}

#[test]
fn a_command_that_fails_is_measured_if_that_is_asked_for() {
    let programs = |script: &str| {
        let arguments = ["programs", "-i", "--rounds", "2", "--json", "-", "--", "sh", "-c", script];
        let mut command = poundlock();
        command.arg("bench").args(arguments);
        run_limited(&mut command, LIMIT)
    };
    let output = programs("exit 3");
    crate::support::expect_status(&output, 0);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    for row in rows["rows"].as_array().unwrap() {
        check_summary(&row["ms"], 2);
        let codes = row["rounds"].as_array().unwrap().iter().map(|round| round["exit_code"].as_f64());
        assert_eq!(codes.collect::<Vec<_>>(), [Some(3.0); 2], "{row}");
    }
    // What `run` could not run has no figure.
    let output = programs(r#"test -z "$POUNDLOCK_LOCK" || exit 125"#);
    crate::support::expect_status(&output, 125);
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("sh on poundlock: it did not succeed (exit status: 125)"), "{line}");
    // And people are told of what was ignored.
    let arguments = ["bench", "programs", "--ignore-failure", "--rounds", "1", "--", "sh", "-c", "exit 3"];
    let output = run_limited(poundlock().args(arguments), LIMIT);
    crate::support::expect_status(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("sh on glibc ended with 3 in 1 of 1 rounds"), "{text}");
}

#[test]
fn known_programs_do_their_work_on_both() {
    let on_path = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|place| place.join(program).is_file())
    };
    let require = std::env::var("POUNDLOCK_REAL").is_ok_and(|value| value == "require");
    // Each yield of sysbench's threads lasts as long as the machine has other work, so the programs do next
    // to none. Java's work is the same always, so it runs on one side only; javac compiles for it. stress-ng
    // needs real-time priorities for its work: real::stress_ng has it, with less to do.
    let scaled = [
        ("xz", "xz"),
        ("python", "python3"),
        ("sysbench-threads", "sysbench"),
        ("sysbench-mutex", "sysbench"),
        ("memcached", "memcached"),
        ("apache", "apache2"),
    ];
    for (known, sides) in [(&scaled[..], "glibc,poundlock"), (&[("java", "javac")], "glibc")] {
        let is_there = |(_, program): &&(&str, &str)| require || on_path(program);
        let there: Vec<&str> = known.iter().filter(is_there).map(|(name, _)| *name).collect();
        if there.is_empty() {
            eprintln!("SKIPPED: none of {known:?} is installed");
            continue;
        }
        let (only, work) = (there.join(","), ["programs", "--rounds", "1", "--work", "0.001"]);
        let options = ["--only", &only, "--locks", sides];
        let (text, json) = measured(&mut poundlock(), &[&work[..], &options].concat());
        let row = |row: &Value| format!("{} {}", row["program"], row["lock"]).replace('"', "");
        let rows: Vec<String> = rows(&json, "rows").iter().map(row).collect();
        let on_each = |name: &&str| sides.split(',').map(|lock| format!("{name} {lock}")).collect::<Vec<_>>();
        assert_eq!(rows, there.iter().flat_map(on_each).collect::<Vec<_>>());
        // Targets are about ours.
        let targets = if sides == "glibc" { 0 } else { there.len() };
        assert_eq!(json["targets"].as_array().unwrap().len(), targets);
        assert!(there.iter().all(|name| text.contains(name)), "{text}");
    }
}

#[test]
fn a_missing_library_is_one_line_and_no_figures() {
    for benchmark in ["uncontended", "handover", "spin", "rwlock", "start-up", "figures"] {
        let mut command = poundlock_bare();
        command.env("POUNDLOCK_PRELOAD_LIB", "/no/such/library.so");
        let (status, line) = refused(&mut command, &[benchmark]);
        assert_eq!(status, 125, "{line}");
        assert!(line.contains("/no/such/library.so") && line.lines().count() == 1, "{line}");
    }
}

#[test]
fn a_library_without_the_functions_gives_no_figures() {
    // It depends on the C library, where a search for the functions would end.
    let mut command = poundlock_bare();
    command.env("POUNDLOCK_PRELOAD_LIB", mathematics_library());
    let (status, line) = refused(&mut command, &["handover", "--seconds", "0.01", "--rounds", "1"]);
    assert_eq!(status, 125, "{line}");
    assert!(line.contains("does not provide pthread_mutex_lock"), "{line}");
    let mut command = poundlock_bare();
    command.env("POUNDLOCK_PRELOAD_LIB", mathematics_library());
    let (status, line) =
        refused(&mut command, &["spin", "--locks", "preload-qspin", "--seconds", "0.002", "--rounds", "1"]);
    assert_eq!(status, 125, "{line}");
    assert!(line.contains("does not provide pthread_spin_lock"), "{line}");
}

/// Some shared library that is not ours, from those that this process's dynamic linker knows.
fn mathematics_library() -> String {
    let output =
        run_limited(Command::new("ldconfig").arg("-p").env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin"), LIMIT);
    let list = String::from_utf8(output.stdout).unwrap();
    let line =
        list.lines().find(|line| line.contains("libm.so.6 ")).expect("glibc has a mathematics library");
    line.rsplit_once("=> ").expect("ldconfig gives paths").1.to_owned()
}

#[test]
fn arguments_that_make_no_sense_are_named() {
    for (arguments, named) in [
        (&["handover", "--locks", "qspin"][..], "'qspin'"),
        (&["handover", "--locks", "glibc", "--threads", "0"], "--threads"),
        (&["handover", "--locks", "glibc", "--threads", "two"], "--threads"),
        (&["handover", "--locks", "glibc", "--rounds", "0"], "round"),
        (&["handover", "--locks", "glibc", "--seconds", "-1"], "-1"),
        (&["handover", "--locks", "glibc", "--seconds", "nan"], "--seconds"),
        (&["handover", "--locks", "glibc", "--critical=-2"], "--critical"),
        (&["handover", "--locks", "glibc", "--think", "1e300"], "--think"),
        (&["handover", "--locks", "glibc", "--cpus", "0"], "CPU"),
        (&["handover", "--locks", "glibc", "--cpus", "100000"], "--cpus 100000"),
        (&["spin", "--locks", "any-negative"], "'any-negative'"),
        (&["spin", "--threads", "1"], "--threads"),
        (&["spin", "--rounds", "0"], "round"),
        (&["spin", "--seconds", "inf"], "--seconds"),
        (&["spin", "--critical", "0,1e9"], "--critical"),
        (&["spin", "--critical", "0,a"], "--critical"),
        (&["spin", "--think=-1"], "--think"),
        (&["spin", "--crowd-critical=-1"], "--crowd-critical"),
        (&["spin", "--cpus", "0"], "CPU"),
        (&["rwlock", "--locks", "qspin"], "'qspin'"),
        (&["rwlock", "--locks", "std", "--threads", "1"], "--threads"),
        (&["rwlock", "--locks", "std", "--writers", "101"], "--writers"),
        (&["rwlock", "--locks", "std", "--writers", "some"], "--writers"),
        (&["rwlock", "--locks", "std", "--rounds", "0"], "round"),
        (&["rwlock", "--locks", "std", "--seconds", "0"], "--seconds"),
        (&["rwlock", "--locks", "std", "--read=-1"], "--read"),
        (&["rwlock", "--locks", "std", "--write", "1e9"], "--write"),
        (&["rwlock", "--locks", "std", "--cpus", "0"], "CPU"),
        (&["misc-mutex", "--locks", "ticket"], "'ticket'"),
        (&["misc-mutex", "--threads", "1"], "--threads"),
        (&["misc-mutex", "--rounds", "0"], "round"),
        (&["misc-mutex", "--seconds", "0"], "--seconds"),
        (&["misc-mutex", "--critical=-1"], "--critical"),
        (&["misc-mutex", "--cpus", "0"], "CPU"),
        (&["programs", "--only", "emacs"], "'emacs'"),
        (&["programs", "--locks", "glibc-adaptive"], "'glibc-adaptive'"),
        (&["programs", "--rounds", "0"], "round"),
        (&["programs", "--work", "0"], "above 0"),
        (&["programs", "--only", "xz", "--", "true"], "--only"),
        (&["sembench", "-o", "3"], "'3'"),
        (&["sembench", "-o", "kernel,eventfd"], "'eventfd'"),
        (&["sembench", "-t", "0"], "-t"),
        (&["sembench", "-w", "0"], "-w"),
        (&["sembench", "-r", "0"], "-r"),
        (&["sembench", "--rounds", "0"], "round"),
        (&["sembench", "--sleepers", "9"], "--sleepers"),
        (&["sembench", "--no-sleepers", "--plot", "x.svg"], "--plot"),
        (&["sembench", "--cpus", "0"], "CPU"),
        (&["uncontended", "--locks", "glibc", "--cpu", "100000"], "CPU 100000"),
        (&["uncontended", "--locks", "glibc", "--seconds", "0"], "--seconds"),
        (&["sideways"], "sideways"),
        (&[], "uncontended"),
    ] {
        let (status, line) = refused(&mut poundlock_bare(), arguments);
        assert_eq!(status, 2, "{arguments:?}: {line}");
        assert!(line.contains(named), "{arguments:?}: {line}");
    }
}

#[test]
fn a_command_that_fails_is_named() {
    for (arguments, named) in [
        (&["--", "false"][..], "did not succeed"),
        (&["--", "false"], "-i"),
        (&["-i", "--", "sh", "-c", "kill -KILL $$"], "did not succeed"),
        (&["--", "/no/such/command"], "/no/such/command"),
    ] {
        let arguments = [&["programs", "--rounds", "1"], arguments].concat();
        let (status, line) = refused(&mut poundlock_bare(), &arguments);
        assert_eq!(status, 125, "{arguments:?}: {line}");
        assert!(line.contains(named), "{arguments:?}: {line}");
    }
}

#[test]
fn a_file_that_cannot_be_written_costs_no_run() {
    // An hour's run: only a check before it can be in time.
    let (status, line) = refused(
        &mut poundlock_bare(),
        &["handover", "--locks", "glibc", "--seconds", "3600", "--json", "/no/such/directory/x.json"],
    );
    assert_eq!(status, 125, "{line}");
    assert!(line.contains("/no/such/directory/x.json"), "{line}");
}

/// Every line of a run's samples.
fn samples(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("samples.jsonl")).unwrap_or_default();
    // The last line may be on its way.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that each lock is there once for each point and round, with figures that hold together.
#[track_caller]
fn check_samples(directory: &Path) {
    let run = read(&directory.join("run.json"));
    let list = |name: &str| run[name].as_array().unwrap();
    let mut missing = std::collections::BTreeSet::new();
    for point in 0..list("points").len() {
        for peer in list("peers") {
            for round in 0..run["rounds"].as_u64().unwrap() {
                missing.insert((point as u64, peer["name"].as_str().unwrap().to_owned(), round));
            }
        }
    }
    for sample in samples(directory) {
        let number = |name: &str| sample[name].as_u64().unwrap();
        let lock = sample["lock"].as_str().unwrap().to_owned();
        let place = (number("point"), lock, number("round"));
        assert!(missing.remove(&place), "twice, or of no run: {sample}");
        let figure = |name: &str| {
            let figure = sample["figures"][name].as_f64();
            figure.unwrap_or_else(|| panic!("no {name} in {sample}"))
        };
        assert!(figure("acquisitions") > 0.0 && figure("throughput") > 0.0, "{sample}");
        assert!((0.0..=1.0).contains(&figure("jain")), "{sample}");
        let waits = ["p50", "p99", "p999", "max"].map(|quantile| figure(&format!("waits.{quantile}_ns")));
        assert!(waits.is_sorted(), "{sample}");
    }
    assert!(missing.is_empty(), "not measured: {missing:?}");
}

#[track_caller]
fn check_floors(floors: &Value) {
    for name in ["bare_cas_ns", "bare_cas_store_ns", "bare_load_store_ns", "driver_ns", "timing_ns"] {
        assert!(floors[name]["min"].as_f64().unwrap_or_else(|| panic!("no {name} in {floors}")) > 0.0);
    }
    let futex = &floors["futex_sleep_wake_ns"];
    assert!(futex["same_cpu"]["min"].as_f64().unwrap() > 0.0, "{floors}");
    // With two CPUs there is a way between them, and somebody to be woken by.
    let transfers = floors["line_transfer_ns"].as_array().unwrap();
    assert_eq!(transfers.is_empty(), futex["other_cpu"].is_null(), "{floors}");
    for transfer in transfers {
        assert!(transfer["from"] != transfer["to"] && transfer["ns"]["min"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn grid_measures_every_sort_of_work() {
    let temporary = tempfile::tempdir().unwrap();
    let grid = |line: &str| {
        let mut command = poundlock_bare();
        command.current_dir(temporary.path()).args(["bench", "grid"]).args(line.split(' '));
        let output = run_limited(&mut command, 2 * LIMIT);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{}\n{stderr}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        check_tables(&text);
        (text, stderr)
    };
    let (text, stderr) = grid(
        "--locks std,glibc --ours mcs-queue --threads 3,2 --critical 0,0.5 --think 0.2 --seconds 0.002 \
            --rounds 2 --targets",
    );
    // It says where the results are: in a directory of its own.
    assert!(stderr.contains("results go to poundlock-grid-1"), "{stderr}");
    assert!(text.ends_with("Results: poundlock-grid-1\n"), "{text}");
    let directory = temporary.path().join("poundlock-grid-1");
    let run = read(&directory.join("run.json"));
    assert_eq!((&run["version"], &run["ours"], &run["rounds"]), (&2.into(), &"mcs-queue".into(), &2.into()));
    check_machine(&run["machine"], run["machine"]["command"].as_str().unwrap());
    assert_eq!(names(rows(&run, "peers"), "name"), ["glibc", "std", "mcs-queue"]);
    for (kind, points) in
        [("grid", 4), ("modal", 2), ("sleeping-holder", 2), ("hogs", 2), ("buckets", 2), ("lock-bench", 8)]
    {
        let of_kind = rows(&run, "points").iter().filter(|point| point["kind"] == kind);
        assert_eq!(of_kind.count(), points, "{kind}");
    }
    check_samples(&directory);
    check_floors(&read(&directory.join("floors.json")));
    let titles = ["Who takes part", "Floors, ns", "A hash table with a lock for each bucket", "Targets"];
    check_headings(&text, &titles);
    // The question that people ask is answered first.
    let answer = text.find("At the 4 points of the grid mcs-queue makes").unwrap();
    assert!(answer < text.find("CPU:").unwrap(), "{text}");
    // What was measured is judged, what was not is not.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (target, judged) in [
        ("Throughput over the grid, against the best", true),
        ("With a hog", true),
        ("With a sleeping holder", true),
        ("Throughput with 250 threads", false),
    ] {
        assert_eq!(words.contains(target), judged, "{target}: {text}");
    }
    // A second run has a directory of its own, too.
    let (text, _) = grid(
        "--locks std --kinds grid --threads 1 --critical 0 --think 0 --seconds 0.002 --rounds 1 --pin --cpus \
            1",
    );
    assert!(!text.contains("Targets"), "{text}");
    let second = temporary.path().join("poundlock-grid-2");
    check_samples(&second);
    let run = read(&second.join("run.json"));
    assert_eq!((&run["pinned"], rows(&run, "cpus").len()), (&true.into(), 1));
    let (status, line) =
        refused(&mut poundlock_bare(), &["grid", "--kinds", "grid", "--out", second.to_str().unwrap()]);
    assert_eq!(status, 125);
    assert!(line.contains("holds results already") && line.lines().count() == 1, "{line}");
}

#[test]
fn grid_goes_on_where_it_was_interrupted() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("results");
    let path = directory.to_str().unwrap();
    let grid = |arguments: &[&str]| {
        let mut command = poundlock_bare();
        command.args(["bench", "grid"]).args(arguments);
        command
    };
    let measurements = 2 * 4 * 4 * 2;
    let first = format!(
        "--out {path} --kinds grid --locks std --threads 1,2,3,4 --critical 0,0.1,0.2,0.3 --think 0 \
            --seconds 0.02 --rounds 2"
    );
    let first: Vec<_> = first.split(' ').collect();
    // By a signal that workers get as well, as from a terminal; then by one to the command alone.
    let mut before: Vec<Value> = Vec::new();
    for (arguments, signal, group, status) in
        [(&first[..], libc::SIGINT, true, 130), (&["--resume", path][..], libc::SIGTERM, false, 130)]
    {
        let run = crate::support::start(&mut grid(arguments));
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(LIMIT);
        while samples(&directory).len() == before.len() {
            assert!(std::time::Instant::now() < limit, "nothing is measured");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        run.kill(signal);
        if group {
            // The command gets it twice, as from `timeout`.
            run.kill_group(signal);
        }
        let output = run.finish(LIMIT);
        crate::support::expect_status(&output, status);
        assert_eq!(output.stdout, b"", "figures of a part of the run");
        let so_far = samples(&directory);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let told = format!("interrupted: {} of {measurements} measurements", so_far.len());
        assert!(stderr.contains(&told) && stderr.contains(&format!("--resume {path}")), "{stderr}");
        assert!(so_far.len() < measurements, "it was over before the signal");
        assert_eq!(so_far[..before.len()], before, "what was measured stays");
        before = so_far;
    }
    // And a line that was torn is measured again.
    let file = directory.join("samples.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 5]).unwrap();
    let output = run_limited(&mut grid(&["--resume", path]), LIMIT);
    crate::support::expect_status(&output, 0);
    check_samples(&directory);
    assert_eq!(samples(&directory)[..before.len() - 1], before[..before.len() - 1]);
    // There is nothing left to do.
    let whole = std::fs::read(&file).unwrap();
    let output = run_limited(&mut grid(&["--resume", path]), LIMIT);
    crate::support::expect_status(&output, 0);
    assert_eq!(std::fs::read(&file).unwrap(), whole);
    // Figures of another build are not added to these.
    let run = directory.join("run.json");
    let text = std::fs::read_to_string(&run).unwrap();
    let commit = read(&run)["machine"]["commit"].as_str().unwrap().to_owned();
    std::fs::write(&run, text.replace(&commit, "another")).unwrap();
    let (status, line) = refused(&mut poundlock_bare(), &["grid", "--resume", path]);
    assert_eq!(status, 125);
    assert!(line.contains("another build of Poundlock") && line.lines().count() == 1, "{line}");
}

#[test]
fn grid_refuses_options_that_make_no_sense() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().to_str().unwrap();
    for (arguments, says) in [
        (&["--kinds", "disco"][..], "'disco' for '--kinds"),
        (&["--locks", "futex"], "no lock is called 'futex'"),
        (&["--locks", "empty"], "no lock is called 'empty'"),
        (&["--ours", "std"], "std is not one of our locks"),
        (&["--threads", "0"], "--threads must name numbers"),
        (&["--critical=-1"], "--critical must lie between"),
        (&["--think", "nan"], "--think must lie between"),
        (&["--rounds", "0"], "at least one round"),
        (&["--seconds", "0"], "--seconds must lie"),
        (&["--cpus", "100000"], "--cpus 100000"),
        (&["--kinds", "hogs", "--critical", "1"], "--critical and --think are about the kind grid"),
        (&["--resume", there], "holds no results"),
        (&["--resume", there, "--rounds", "2"], "cannot be used with"),
        (&["--resume", "/no/such/directory"], "/no/such/directory"),
        (&["--out", "/proc/results"], "/proc/results"),
    ] {
        let mut command = poundlock_bare();
        // Where a directory could be left behind.
        command.current_dir(directory.path());
        let (status, line) = refused(&mut command, &[&["grid"], arguments].concat());
        let of_files = says.starts_with('/') || says == "holds no results";
        assert_eq!(status, if of_files { 125 } else { 2 }, "{arguments:?}: {line}");
        assert!(line.contains(says), "{arguments:?}: {line}");
        assert!(status == 2 || line.lines().count() == 1, "{arguments:?}: {line}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn floors_are_measured() {
    let (text, json) = measured(&mut poundlock_bare(), &["floor", "--slices", "3", "--seconds", "0.0005"]);
    check_machine(&json["machine"], "poundlock bench floor --slices 3 --seconds 0.0005");
    check_floors(&json);
    check_summary(&json["bare_cas_ns"], 3);
    let cpus = json["cpus"].as_array().unwrap().len();
    let pairs = json["line_transfer_ns"].as_array().unwrap().len();
    assert_eq!(pairs, (cpus * (cpus - 1) / 2).min(16));
    for line in
        ["compare-and-swap + exchange", "a futex sleep and its wake-up, same CPU", "the driver, for each"]
    {
        assert!(text.contains(line), "{text}");
    }
    let (status, line) = refused(&mut poundlock_bare(), &["floor", "--slices", "0"]);
    assert_eq!((status, line.as_str()), (2, "poundlock: --slices must lie between 1 and 10000\n"));
}

#[test]
fn a_worker_that_is_asked_nonsense_says_so() {
    let mut command = poundlock_bare();
    command.args(["bench", "worker"]);
    let output = crate::support::run_limited_with_input(&mut command, b"{\"how\": \"much\"}", LIMIT);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["Failed"].as_str().unwrap().contains("not a request"), "{answer}");
}
