//! `poundlock record` and `poundlock predict`: a program is written down, and what would help it is said.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{
    LIMIT, compile_c, expect_status, list, poundlock, run_limited, scratch, stderr, stdout,
};

/// Threads that contend for one lock, and one that says to another that it may go on.
const TABLE: &str = include_str!("../../../examples/predict/table.c");
const QUEUE: &str = include_str!("../../../examples/predict/queue.c");

fn recorded(cmd: &mut Command, program: &std::path::Path, words: &[&str]) -> (PathBuf, std::process::Output) {
    let file = scratch().join("recording");
    cmd.args(["record", "--output"]).arg(&file).arg("--").arg(program).args(words);
    let output = run_limited(cmd, 3 * LIMIT);
    (file, output)
}

/// Each stretch is replayed twice, not eight times: what is looked at here does not hang on that.
fn predict(file: &std::path::Path, words: &[&str]) -> std::process::Output {
    run_limited(poundlock().arg("predict").arg(file).args(["--times", "2"]).args(words), 3 * LIMIT)
}

#[test]
fn a_recorded_program_is_replayed_and_asked_about() {
    let table = compile_c(TABLE, &["-g"]);
    let (file, output) = recorded(&mut poundlock(), &table, &["3", "60000"]);
    expect_status(&output, 0);
    assert!(stderr(&output).contains("table: 60000 operations by 3 threads"), "{}", stderr(&output));

    let page = file.with_extension("html");
    let page_name = page.display().to_string();
    let output = predict(&file, &["--json", "-", "--html", &page_name, "--cpus", "1,2", "--stretches", "2"]);
    expect_status(&output, 0);
    let said: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let locks = list(&said, "locks");
    assert!(locks.iter().any(|lock| lock["lock"] == "table_lock[0].lock (in program)"), "{said:#}");
    assert!(said["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{said:#}");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(
        page.contains("What would help") && !page.contains("<script") && !page.contains("<link"),
        "{page}"
    );
    // How far off a replay is depends on the machine; what follows from that does not.
    let off = said["self_test"]["off"].as_f64().expect("a figure");
    if off > 0.40 {
        assert!(said["advice"].as_str().is_some_and(|advice| advice.starts_with("nothing is predicted")));
        assert!(list(&said, "answers").is_empty() && list(&said, "curve").is_empty(), "{said:#}");
        return;
    }
    assert_eq!(list(&said, "curve").len(), 2, "{said:#}");
    let answers = list(&said, "answers");
    for name in ["poundlock", "any-negative", "handoff", "qspin-pv"] {
        let question = format!("on {name}");
        assert!(answers.iter().any(|answer| answer["question"] == question.as_str()), "{said:#}");
    }
    let one = predict(&file, &["--what-if", "table_lock[0].lock: split 4", "--stretches", "2"]);
    expect_status(&one, 0);
    assert!(stdout(&one).contains("table_lock[0].lock: split in 4"), "{}", stdout(&one));
    assert_eq!(
        off > 0.15,
        stdout(&predict(&file, &["--cpus", "2", "--stretches", "2"])).contains("(doubtful)")
    );
}

#[test]
fn waits_for_condition_variables_are_replayed_and_crashes_are_survived() {
    let queue = compile_c(QUEUE, &["-g"]);
    let file = scratch().join("recording");
    let mut cmd = poundlock();
    cmd.args(["stat", "--long", "--record"]).arg(&file).arg("--").arg(&queue).args(["2", "20000"]);
    let output = run_limited(&mut cmd, 3 * LIMIT);
    expect_status(&output, 0);
    let told = stderr(&output);
    assert!(told.contains("filled (in program)") && told.contains("poundlock predict "), "{told}");
    let output = predict(&file, &["--what-if", "lock (in program): gone", "--stretches", "2"]);
    expect_status(&output, 0);
    assert!(stdout(&output).contains("lock (in program)"), "{}", stdout(&output));

    let crashes = compile_c(&TABLE.replace("double seconds", "abort(); double seconds"), &[]);
    let (file, output) = recorded(&mut poundlock(), &crashes, &["2", "20000"]);
    expect_status(&output, 128 + libc::SIGABRT);
    expect_status(&predict(&file, &["--stretches", "1", "--lock", "poundlock"]), 0);
}

/// A signal for which a thread waits calls the kernel. That is written down, so that it is not taken for the
/// program's work.
#[test]
fn a_call_that_wakes_a_thread_is_told_from_work() {
    // Long enough for several stretches where an emulator makes each call a matter of milliseconds.
    const PROGRAM: &str = r"
        #include <pthread.h>
        #include <sched.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
        static int waits;
        static void *wait(void *unused) {
            for (int i = 0; i < 1000; i++) {
                pthread_mutex_lock(&lock);
                for (waits = 1; waits;)
                    pthread_cond_wait(&told, &lock);
                pthread_mutex_unlock(&lock);
            }
            return unused;
        }
        int main(void) {
            pthread_t thread;
            pthread_create(&thread, NULL, wait, NULL);
            for (int i = 0; i < 1000; i++) {
                pthread_mutex_lock(&lock);
                while (!waits) {
                    pthread_mutex_unlock(&lock);
                    sched_yield();
                    pthread_mutex_lock(&lock);
                }
                waits = 0;
                pthread_cond_signal(&told);
                pthread_mutex_unlock(&lock);
            }
            return pthread_join(thread, NULL);
        }";
    // As in the file.
    const WAKES: u64 = 9;
    const ENDED: u64 = 14;
    let (file, output) = recorded(&mut poundlock(), &compile_c(PROGRAM, &[]), &[]);
    expect_status(&output, 0);
    let text = std::fs::read_to_string(file).expect("a recording");
    let said: Value = serde_json::from_str(text.split_once('\n').expect("two parts").1).expect("JSON");
    let stretches = list(&said["processes"][0], "stretches");
    let threads = stretches.iter().flat_map(|stretch| list(stretch, "threads"));
    let what = |event: &Value| event[1].as_u64();
    let ended = threads
        .flat_map(|thread| list(thread, "events").windows(2))
        .filter(|pair| what(&pair[0]) == Some(WAKES) && what(&pair[1]) == Some(ENDED));
    assert!(ended.count() > 0, "{text}");
}

#[test]
fn what_cannot_be_used_is_refused_in_a_line() {
    let table = compile_c(TABLE, &["-g"]);
    let (file, _) = recorded(&mut poundlock(), &table, &["2", "20000"]);
    let whole = std::fs::read(&file).expect("a recording");
    let refused = |contents: &[u8], words: &[&str], status: i32, reason: &str| {
        let changed = file.with_extension("changed");
        std::fs::write(&changed, contents).expect("a file");
        let output = predict(&changed, words);
        expect_status(&output, status);
        let told = stderr(&output);
        assert!(told.lines().count() == 1 && told.contains(reason), "{reason}: {told}");
        assert_eq!(stdout(&output), "");
    };
    refused(&whole[..whole.len() / 2], &[], 125, "it is cut off: record it anew");
    refused(b"poundlock recording 999\n{}", &[], 125, "of version 999");
    refused(b"\x7fELF", &[], 125, "no recording: `poundlock record -o FILE -- COMMAND` makes one");
    let wild = String::from_utf8_lossy(&whole).replacen("\"events\":[[", "\"events\":[[0,1,4000000,0],[", 1);
    refused(wild.as_bytes(), &[], 125, "it is damaged");
    refused(&whole, &["--what-if", "table_lock: twice"], 2, "say 'LOCK: gone'");
    refused(&whole, &["--lock", "nonesuch"], 2, "no lock can be simulated as 'nonesuch'");
    refused(&whole, &["--machine", "nonesuch"], 2, "no machine is called 'nonesuch'");

    let lockless = compile_c("int main(void) { return 0; }", &[]);
    let (file, output) = recorded(&mut poundlock(), &lockless, &[]);
    expect_status(&output, 125);
    assert!(stderr(&output).contains("no process used a lock"), "{}", stderr(&output));
    assert!(!file.exists() || std::fs::read(&file).is_ok_and(|text| text.is_empty()));
    let words = ["predict", "--validate", "--figures", "/nonesuch"];
    let output = run_limited(poundlock().args(words), LIMIT);
    expect_status(&output, 125);
    assert!(stderr(&output).starts_with("poundlock: --figures: /nonesuch: "), "{}", stderr(&output));
    let output = predict(std::path::Path::new("/nonesuch"), &[]);
    expect_status(&output, 125);
    assert!(stderr(&output).contains("nonesuch: "), "{}", stderr(&output));
}
