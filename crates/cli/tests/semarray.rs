//! Semaphore arrays from outside: whose they are under `run`, what `ipcs` and `ipcrm` do to them, and what
//! `stat` says.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::{
    LIMIT, Started, compile_c, expect_status, measured, poundlock, poundlock_bare, run_limited, scratch,
    start, stderr, stdout,
};
use serde_json::Value;

/// `arrays COMMAND...`, one after the other:
///   make KEY MODE N     an array of N ones; prints its id. KEY 0 is private
///   use ID TIMES        that many operations on its first semaphore, down and up again with SEM_UNDO
///   take ID             one down with SEM_UNDO
///   sleep ID            waits for the second semaphore to grow by a thousand; prints why it did not
///   remove ID           removes it
///   wait                says "ready", and waits for a signal
///   kill                of itself
/// An ID of `-` is the last one made.
const PROGRAM: &str = r#"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <unistd.h>

static void fail(const char *what) { perror(what); exit(1); }

int main(int argc, char **argv) {
    int last = -1;
    for (int i = 1; i < argc; i++) {
        const char *command = argv[i];
        if (strcmp(command, "wait") == 0) {
            puts("ready");
            fflush(stdout);
            for (;;) pause();
        }
        if (strcmp(command, "kill") == 0)
            raise(SIGKILL);
        if (strcmp(command, "make") == 0) {
            key_t key = (key_t)strtoul(argv[++i], NULL, 0);
            int mode = (int)strtol(argv[++i], NULL, 8), n = atoi(argv[++i]);
            last = semget(key, n, IPC_CREAT | IPC_EXCL | mode);
            if (last < 0) fail("semget");
            unsigned short ones[100];
            for (int k = 0; k < n; k++) ones[k] = 1;
            if (semctl(last, 0, SETALL, ones) < 0) fail("SETALL");
            printf("%d\n", last);
            fflush(stdout);
            continue;
        }
        int id = strcmp(argv[++i], "-") == 0 ? last : atoi(argv[i]);
        if (strcmp(command, "use") == 0) {
            for (int times = atoi(argv[++i]); times > 0; times--) {
                struct sembuf down = {0, -1, SEM_UNDO}, up = {0, 1, SEM_UNDO};
                if (semop(id, &down, 1) < 0 || semop(id, &up, 1) < 0) fail("semop");
            }
        } else if (strcmp(command, "take") == 0) {
            struct sembuf down = {0, -1, SEM_UNDO};
            if (semop(id, &down, 1) < 0) fail("semop");
        } else if (strcmp(command, "sleep") == 0) {
            struct sembuf many = {1, -1000, 0};
            semop(id, &many, 1);
            printf("%s\n", errno == EIDRM ? "removed" : strerror(errno));
        } else if (strcmp(command, "remove") == 0) {
            if (semctl(id, 0, IPC_RMID) < 0) fail("IPC_RMID");
        } else {
            return 2;
        }
    }
    return 0;
}
"#;

fn arrays() -> &'static Path {
    static PROGRAM_FILE: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM_FILE.get_or_init(|| compile_c(PROGRAM, &[]))
}

/// A domain that no other test uses.
struct Domain(PathBuf);

impl Domain {
    fn new() -> Self {
        Domain(scratch().join("ipc"))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut cmd = poundlock();
        cmd.args(words).env("POUNDLOCK_IPC_DIR", &self.0);
        cmd
    }

    fn output(&self, words: &[&str]) -> Output {
        run_limited(&mut self.command(words), LIMIT)
    }

    /// What `poundlock` with these words prints; it has to succeed, and to complain of nothing.
    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        let output = self.output(words);
        expect_status(&output, 0);
        assert_eq!(stderr(&output), "", "{words:?}");
        stdout(&output)
    }

    /// The program under `run`, with these options and words.
    #[track_caller]
    fn runs(&self, options: &[&str], words: &[&str]) -> String {
        self.says(&[&["run"], options, &["--", program()], words].concat())
    }

    /// Starts the program under `run`.
    fn starts(&self, words: &[&str]) -> Started {
        start(&mut self.command(&[&["run", "--", program()], words].concat()))
    }

    fn json(&self) -> Vec<Value> {
        let document: Value = serde_json::from_str(&self.says(&["ipcs", "--json"])).expect("JSON");
        document["arrays"].as_array().expect("an array").clone()
    }

    /// Waits until an array is as it should be.
    #[track_caller]
    fn wait_for(&self, id: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(LIMIT);
        loop {
            let listed = self.json();
            let number: i64 = id.parse().expect("an id");
            let array = listed.iter().find(|array| array["id"] == number);
            if let Some(array) = array.filter(|array| condition(array)) {
                return array.clone();
            }
            assert!(Instant::now() < deadline, "not {what} within {LIMIT} s: {listed:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn program() -> &'static str {
    arrays().to_str().expect("UTF-8")
}

/// One line of ours, this status, nothing else.
#[track_caller]
fn expect_complaint(output: &Output, code: i32, words: &[&str]) {
    expect_status(output, code);
    let text = stderr(output);
    assert_eq!(stdout(output), "");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("poundlock: "), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

/// Whether an id that was printed is one of ours. One of the kernel's is removed.
#[track_caller]
fn is_ours(id: &str) -> bool {
    let id: i32 = id.trim().parse().unwrap_or_else(|_| panic!("no id: {id:?}"));
    if id & 1 << 30 != 0 {
        return true;
    }
    // SAFETY: takes numbers only. This test is not preloaded into.
    assert_eq!(unsafe { libc::semctl(id, 0, libc::IPC_RMID) }, 0, "{}", std::io::Error::last_os_error());
    false
}

/// A key for an array that may come to be the kernel's: no other test process has it.
fn own_key(which: u32) -> String {
    format!("{:#x}", 0x4300_0000 | (std::process::id() & 0xf_ffff) << 4 | which)
}

#[test]
fn whose_an_array_is_depends_on_what_was_asked_for() {
    let domain = Domain::new();
    let key = own_key(0);
    for (options, mode, ours) in [
        (&[][..], "600", true),
        (&[], "666", false),
        (&[], "620", false),
        (&["--semaphores", "ours"], "600", true),
        (&["--semaphores", "ours,before"], "666", false),
        (&["--semaphores", "all"], "666", true),
        (&["--semaphores", "all,combining"], "600", true),
        (&["--semaphores", "kernel"], "600", false),
        (&["--lock", "glibc"], "600", false),
        (&["--lock", "glibc", "--semaphores", "kernel"], "600", false),
        (&["--lock", "glibc", "--semaphores", "ours"], "600", true),
        (&["--lock", "glibc,qspin"], "600", true),
    ] {
        let id = domain.runs(options, &["make", &key, mode, "1"]);
        assert_eq!(is_ours(&id), ours, "{options:?}, mode {mode}");
        assert_eq!(domain.json().len(), usize::from(ours));
        if ours {
            domain.says(&["ipcrm", id.trim()]);
        }
    }
    // Private arrays are ours whatever their mode.
    let id = domain.runs(&[], &["make", "0", "666", "1"]);
    assert!(is_ours(&id));
    let id = id.trim();
    let said = format!("removed array {id}, key 0x00000000, 1 semaphore, 0 sleepers, 0 processes\n");
    assert_eq!(domain.says(&["ipcrm", "--all"]), said);
    assert_eq!(domain.json().len(), 0);
}

#[test]
fn the_variant_of_new_arrays_is_the_one_asked_for() {
    let domain = Domain::new();
    for (value, variant) in [
        ("ours", "after"),
        ("ours,after", "after"),
        ("ours,before", "before"),
        ("all,combining", "combining"),
        ("ours,shared-line", "shared-line"),
    ] {
        let id = domain.runs(&["--semaphores", value], &["make", "0", "600", "3"]);
        let array = domain.wait_for(id.trim(), "there", |_| true);
        assert_eq!((&array["variant"], &array["semaphores"]), (&Value::from(variant), &Value::from(3)));
    }
}

#[test]
fn an_unknown_choice_is_refused_before_anything_runs() {
    let domain = Domain::new();
    let possible = ["ours, all, kernel", "after, before, combining, shared-line"];
    for command in ["run", "stat"] {
        for value in ["nonesuch", "", "ours,", "ours,nonesuch", "before", "ours,after,after"] {
            let output = domain.output(&[command, "--semaphores", value, "--", "echo", "ran"]);
            expect_complaint(&output, 2, &[&format!("'{value}'"), possible[0], possible[1]]);
        }
    }
}

#[test]
fn arrays_are_listed_as_they_are() {
    let domain = Domain::new();
    assert_eq!(domain.json().len(), 0);
    let key = own_key(1);
    let keyed = domain.runs(&["--semaphores", "ours,before"], &["make", &key, "600", "4"]);
    let private = domain.runs(&[], &["make", "0", "640", "2", "use", "-", "10"]);
    let (keyed, private) = (keyed.trim(), private.trim());
    let mut sleepers: Vec<Started> = (0..3).map(|_| domain.starts(&["sleep", private])).collect();
    let array = domain.wait_for(private, "slept at by three", |array| array["sleepers"] == 3);
    let processes = array["processes"].as_u64().expect("a number");
    assert_eq!(processes, 3, "the sleepers: {array:#}");
    // SAFETY: no arguments.
    let uid = u64::from(unsafe { libc::geteuid() });
    assert_eq!((&array["mode"], &array["uid"]), (&Value::from("640"), &Value::from(uid)));
    assert!(array["operated"].as_u64() >= array["changed"].as_u64(), "{array:#}");
    let report = &array["report"];
    assert_eq!((&report["sleeps"], &report["wakes"]), (&Value::from(3), &Value::from(0)));
    assert!(report["free"].as_u64() >= Some(20), "two operations ten times: {report:#}");

    let text = domain.says(&["ipcs"]);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0],
        [
            "id",
            "key",
            "owner",
            "mode",
            "semaphores",
            "sleepers",
            "processes",
            "variant",
            "operated",
            "changed"
        ]
    );
    assert_eq!(lines.len(), 3, "{text}");
    let line = |id: &str| lines.iter().find(|words| words[0] == id).unwrap_or_else(|| panic!("{text}"));
    let key = format!("{:#010x}", u32::from_str_radix(&key[2..], 16).expect("hexadecimal"));
    assert_eq!(
        [line(keyed)[1], line(keyed)[3], line(keyed)[4], line(keyed)[7]],
        [&key, "600", "4", "before"]
    );
    assert_eq!(line(keyed)[8], "-", "never operated on: {text}");
    assert_eq!(line(private)[1..6], ["0x00000000", line(keyed)[2], "640", "2", "3"]);
    assert_eq!(line(private).len(), 12, "two times of two words: {text}");

    // Keys are written in one way everywhere.
    let json = domain.json();
    let keys: Vec<&str> = json.iter().map(|array| array["key"].as_str().expect("text")).collect();
    assert!(keys.contains(&key.as_str()) && keys.contains(&"0x00000000") && keys.len() == 2, "{keys:?}");

    let all = domain.says(&["ipcs", "--report"]);
    assert!(all.contains(&format!("array {keyed}, key {key}, before:\nlifetime ")), "{all}");
    let one = domain.says(&["ipcs", "--report", private]);
    let lines: Vec<&str> = one.lines().collect();
    assert_eq!(lines[0], format!("array {private}, key 0x00000000, after:"));
    assert!(lines[1].starts_with("lifetime ") && lines[1].ends_with(" seconds"), "{one}");
    assert!(lines[2].starts_with("free ") && lines[2].contains(" contended "), "{one}");
    assert!(one.contains("sleeps 3 wakes 0"), "{one}");

    domain.says(&["ipcrm", private, keyed]);
    for sleeper in sleepers.drain(..) {
        let output = sleeper.finish(LIMIT);
        expect_status(&output, 0);
        assert_eq!(stdout(&output), "removed\n");
    }
    assert_eq!(domain.json().len(), 0);
}

#[test]
fn what_cannot_be_listed_is_said() {
    let domain = Domain::new();
    expect_complaint(
        &domain.output(&["ipcs", "--report", "1073741900"]),
        125,
        &["there is no array 1073741900"],
    );
    expect_complaint(&domain.output(&["ipcs", "--report", "many"]), 2, &["'many' is no id"]);
    expect_status(&domain.output(&["ipcs", "extra"]), 2);
}

#[test]
fn what_can_be_removed_is() {
    let domain = Domain::new();
    let make = |key: &str| domain.runs(&[], &["make", key, "600", "1"]).trim().to_string();
    let (one, two) = (make(&own_key(2)), make(&own_key(3)));
    let three = make("0");
    // By key, in either notation; what is not there is said, a line each, and the rest removed all the same.
    let decimal = u32::from_str_radix(&own_key(3)[2..], 16).expect("hexadecimal").to_string();
    let output = domain.output(&["ipcrm", "--key", &own_key(2), "0x7", &decimal]);
    expect_complaint(&output, 1, &["there is no array of key 0x00000007"]);
    let output = domain.output(&["ipcrm", &one, &three, &two]);
    expect_status(&output, 1);
    let text = stderr(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains(&format!("there is no array {one}")), "{text}");
    assert!(lines[1].contains(&format!("there is no array {two}")), "{text}");
    assert_eq!(domain.json().len(), 0, "the third was there");
    // Nothing to do is no failure where all are meant.
    assert_eq!(domain.says(&["ipcrm", "--all"]), "there are no arrays\n");
}

/// `poundlock` with these words, in this domain, with a terminal as its input at which this was typed.
fn at_a_terminal(domain: &Domain, words: &[&str], typed: &[u8]) -> Output {
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    // SAFETY: numbers; nobody else has the new descriptor.
    let mut terminal = unsafe {
        let number = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(number >= 0, "no terminal: {}", std::io::Error::last_os_error());
        std::fs::File::from(OwnedFd::from_raw_fd(number))
    };
    let mut name = [0; 64];
    // SAFETY: a descriptor of ours, and room as long as is said.
    let named = unsafe {
        let number = terminal.as_raw_fd();
        libc::grantpt(number) == 0
            && libc::unlockpt(number) == 0
            && libc::ptsname_r(number, name.as_mut_ptr(), name.len()) == 0
    };
    assert!(named, "no terminal: {}", std::io::Error::last_os_error());
    // SAFETY: filled in by the call.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) }.to_str().expect("ASCII").to_string();
    let open = std::os::unix::fs::OpenOptionsExt::custom_flags;
    let input = open(std::fs::OpenOptions::new().read(true).write(true), libc::O_NOCTTY).open(name);
    let mut cmd = domain.command(words);
    let started = start(cmd.stdin(input.expect("a terminal can be opened")));
    terminal.write_all(typed).expect("a terminal takes what is typed");
    started.finish(LIMIT)
}

/// It removed, without a word, what somebody else had made.
#[test]
fn ipcrm_all_says_what_it_removes_and_asks_at_a_terminal() {
    let domain = Domain::new();
    let make = |key: &str, size: &str| domain.runs(&[], &["make", key, "600", size]).trim().to_string();
    let key = own_key(6);
    let both = || {
        let [one, two] = [make(&key, "1"), make("0", "3")];
        let key = format!("{:#010x}", u32::from_str_radix(&key[2..], 16).expect("hexadecimal"));
        [
            format!("array {one}, key {key}, 1 semaphore, 0 sleepers, 0 processes\n"),
            format!("array {two}, key 0x00000000, 3 semaphores, 0 sleepers, 0 processes\n"),
        ]
    };
    let described = both();
    let question = format!("{}{}remove all of them? [y/N] ", described[0], described[1]);
    let removed = |described: &[String; 2]| format!("removed {}removed {}", described[0], described[1]);
    // Whoever does not agree: by a word, by none, by the end of the input.
    for typed in [&b"n\n"[..], b"\n", b"yet\n", b"\x04"] {
        let output = at_a_terminal(&domain, &["ipcrm", "--all"], typed);
        expect_status(&output, 1);
        assert_eq!(stderr(&output), format!("{question}poundlock: nothing was removed\n"), "{typed:?}");
        assert_eq!(stdout(&output), "");
        assert_eq!(domain.json().len(), 2, "{typed:?}");
    }
    let output = at_a_terminal(&domain, &["ipcrm", "--all"], b"Yes\n");
    expect_status(&output, 0);
    assert_eq!((stderr(&output), stdout(&output)), (question, removed(&described)));
    assert_eq!(domain.json().len(), 0);
    // Nobody is asked where there is nothing to remove, or who says so.
    let output = at_a_terminal(&domain, &["ipcrm", "--all"], b"");
    assert_eq!((stderr(&output), stdout(&output)), (String::new(), "there are no arrays\n".to_string()));
    for yes in ["--yes", "-y"] {
        let described = both();
        let output = at_a_terminal(&domain, &["ipcrm", "--all", yes], b"");
        expect_status(&output, 0);
        assert_eq!((stderr(&output), stdout(&output)), (String::new(), removed(&described)));
    }
    let described = both();
    assert_eq!(domain.says(&["ipcrm", "--all"]), removed(&described));
}

#[test]
fn a_removal_that_makes_no_sense_removes_nothing() {
    let domain = Domain::new();
    let id = domain.runs(&[], &["make", &own_key(4), "600", "1"]);
    let id = id.trim();
    for (words, named) in [
        (&["ipcrm", id, "x"][..], "'x' is no id"),
        (&["ipcrm", id, "--key", "0"], "private arrays have the key 0"),
        (&["ipcrm", id, "--key", "seven"], "'seven' is no key"),
    ] {
        expect_complaint(&domain.output(words), 2, &[named]);
    }
    for words in [&["ipcrm"][..], &["ipcrm", "--all", id], &["ipcrm", "--all", "--key", "1"]] {
        expect_status(&domain.output(words), 2);
    }
    assert_eq!(domain.json().len(), 1);
    domain.says(&["ipcrm", id]);
}

#[test]
fn what_a_killed_program_took_comes_back() {
    let domain = Domain::new();
    let id = domain.runs(&[], &["make", "0", "600", "2"]);
    let id = id.trim();
    let mut holder = domain.starts(&["take", id, "wait"]);
    holder.wait_for_output("ready", LIMIT);
    // It would sleep for ever.
    let waiting = domain.starts(&["use", id, "1"]);
    domain.wait_for(id, "slept at", |array| array["sleepers"] == 1);
    // To the command and the program under it.
    holder.kill_group(libc::SIGKILL);
    let output = waiting.finish(LIMIT);
    expect_status(&output, 0);
    domain.says(&["ipcrm", id]);
}

/// Runs `stat` on the program, and gives its text and its JSON.
#[track_caller]
fn stat(domain: &Domain, options: &[&str], words: &[&str], code: i32) -> (String, String, Value) {
    let behind: Vec<_> = [options, &["--", program()], words].concat().into_iter().map(OsStr::new).collect();
    measured(&mut domain.command(&["stat"]), &behind, code)
}

#[test]
fn the_report_of_a_removed_array_is_in_the_statistics() {
    let domain = Domain::new();
    for (value, variant) in [("ours", "after"), ("ours,before", "before"), ("all,combining", "combining")] {
        let key = own_key(5);
        let words = ["make", &key, "600", "3", "use", "-", "1000", "remove", "-"];
        let (id, text, document) = stat(&domain, &["--semaphores", value], &words, 0);
        let id = id.trim();
        let arrays = document["arrays"].as_array().expect("an array");
        assert_eq!(arrays.len(), 1, "{document:#}");
        let array = &arrays[0];
        assert_eq!(array["id"].to_string(), id);
        assert_eq!((&array["fate"], &array["variant"]), (&Value::from("removed"), &Value::from(variant)));
        assert_eq!(array["semaphores"], 3);
        let key = format!("{:#010x}", u32::from_str_radix(&key[2..], 16).expect("hexadecimal"));
        assert_eq!(array["key"], key.as_str(), "{array:#}");
        let report = &array["report"];
        // A thousand times down and up, and the values set: nobody else came.
        assert!(report["free"].as_u64() >= Some(2001), "{array:#}");
        assert_eq!((&report["contended"], &report["wait_ns"]), (&Value::from(0), &Value::from(0)));
        assert!(report["lifetime_ns"].as_u64() > Some(0), "{array:#}");
        let head = format!("semaphore array {id}, key {key}, 3 semaphores, {variant}, removed:\n");
        let (_, after) = text.split_once(&head).unwrap_or_else(|| panic!("no {head:?} in\n{text}"));
        let lines: Vec<&str> = after.lines().take(3).map(str::trim).collect();
        let nanoseconds = report["lifetime_ns"].as_u64().expect("a number");
        assert_eq!(lines[0], format!("lifetime {:.3} seconds", (nanoseconds / 1_000_000) as f64 / 1e3));
        assert_eq!(lines[1], format!("free {} contended 0", report["free"]));
        assert!(lines[2].starts_with("slept 0 sleeps 0 wakes 0"), "{text}");
        assert_eq!(document["dropped_arrays"], false);
    }
}

#[test]
fn arrays_that_are_left_are_in_the_statistics_of_whoever_used_them() {
    let domain = Domain::new();
    // Made by one that is not measured, used by one that is killed.
    let id = domain.runs(&[], &["make", "0", "600", "1"]);
    let id = id.trim();
    let other = domain.runs(&[], &["make", "0", "600", "1", "use", "-", "5"]);
    let (_, text, document) =
        stat(&domain, &["--lock", "poundlock"], &["use", id, "100", "take", id, "kill"], 137);
    let arrays = document["arrays"].as_array().expect("an array");
    assert_eq!(arrays.len(), 1, "not {other}: {document:#}");
    assert_eq!((arrays[0]["id"].to_string().as_str(), &arrays[0]["fate"]), (id, &Value::from("there")));
    assert!(arrays[0]["report"]["free"].as_u64() >= Some(201), "{document:#}");
    assert!(
        text.contains(&format!("semaphore array {id}, key 0x00000000, 1 semaphore, after, still there:\n")),
        "{text}"
    );
    // Removed by somebody else while it was used: nothing is known of it any more.
    let script = r#""$0" use "$2" 10; unset POUNDLOCK_STAT_DIR; "$0" remove "$2""#;
    let behind = ["--", "sh", "-c", script, program(), "", id].map(OsStr::new);
    let (_, text, document) = measured(&mut domain.command(&["stat", "--lock", "poundlock"]), &behind, 0);
    let array = &document["arrays"][0];
    assert_eq!((&array["fate"], &array["report"]), (&Value::from("gone"), &Value::Null), "{document:#}");
    assert!(text.contains(&format!("semaphore array {id}: removed by a process that was not measured")));
    domain.says(&["ipcrm", "--all"]);
}

#[test]
fn a_program_that_keeps_its_locks_keeps_its_arrays() {
    let domain = Domain::new();
    let words = ["make", "0", "600", "1", "use", "-", "10", "remove", "-"];
    for (options, ours) in [
        (&[][..], false),
        (&["--lock", "poundlock", "--semaphores", "kernel"], false),
        (&["--semaphores", "ours"], true),
    ] {
        let (_, text, document) = stat(&domain, options, &words, 0);
        assert_eq!(document["arrays"].as_array().map(Vec::len), Some(usize::from(ours)), "{options:?}");
        assert_eq!(text.contains("semaphore array"), ours, "{text}");
    }
}

#[test]
fn processes_that_share_an_array_are_one_in_the_statistics() {
    let domain = Domain::new();
    let script = r#"id=$("$0" make 0 600 2); "$0" use $id 50 & "$0" use $id 50; wait; "$0" remove $id"#;
    let behind = ["--", "sh", "-c", script, program()].map(OsStr::new);
    let (_, _, document) = measured(&mut domain.command(&["stat", "--lock", "poundlock"]), &behind, 0);
    let arrays = document["arrays"].as_array().expect("an array");
    assert_eq!((arrays.len(), &arrays[0]["fate"]), (1, &Value::from("removed")), "{document:#}");
    let report = &arrays[0]["report"];
    let taken = |key: &str| report[key].as_u64().expect("a number");
    assert!(taken("free") + taken("contended") >= 201, "{report:#}");
}

/// The example: permits that come back whatever becomes of their holders.
#[test]
fn the_job_limiter_survives_kill_9() {
    let source = include_str!("../../../examples/joblimit/joblimit.c");
    let joblimit = compile_c(source, &["-Wall", "-Wextra", "-Werror"]);
    let domain = Domain::new();
    for options in [&["--semaphores", "kernel"][..], &[], &["--semaphores", "ours,combining"]] {
        let file = scratch().join("jobs");
        std::fs::write(&file, "").expect("a file can be written");
        let words = |words: &[&str]| {
            let mut cmd = domain.command(&[&["run"], options, &["--"]].concat());
            cmd.arg(&joblimit).args(words);
            cmd
        };
        let path = file.to_str().expect("UTF-8");
        let said = |words: &mut Command| {
            let output = run_limited(words, LIMIT);
            expect_status(&output, 0);
            stdout(&output)
        };
        let until = |wanted: &str| {
            let deadline = Instant::now() + Duration::from_secs(LIMIT);
            loop {
                let now = said(&mut words(&["--status", path]));
                if now == format!("{wanted}\n") {
                    return;
                }
                assert!(Instant::now() < deadline, "{now:?} and not {wanted:?}, {options:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let job = || start(&mut words(&["2", path, "sh", "-c", "echo started; exec sleep 1000"]));
        let (mut one, mut two) = (job(), job());
        one.wait_for_output("started", LIMIT);
        two.wait_for_output("started", LIMIT);
        let mut three = job();
        until("0 of 2 free, 1 waiting");
        one.kill_group(libc::SIGKILL);
        three.wait_for_output("started", LIMIT);
        until("0 of 2 free, 0 waiting");
        two.kill_group(libc::SIGTERM);
        three.kill_group(libc::SIGKILL);
        for mut ended in [one, two, three] {
            ended.wait_for_output("started", LIMIT);
            let _ = ended.finish(LIMIT);
        }
        until("2 of 2 free, 0 waiting");
        assert_eq!(said(&mut words(&["2", path, "echo", "done"])), "done\n");
        said(&mut words(&["--remove", path]));
    }
    assert_eq!(domain.json().len(), 0);
}

/// A directory that others may enter is not trusted: then everything is the kernel's, and that is said.
#[test]
fn a_domain_that_is_not_ours_alone_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let domain = Domain::new();
    std::fs::create_dir_all(&domain.0).expect("a directory can be made");
    std::fs::set_permissions(&domain.0, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    assert!(!is_ours(&domain.runs(&[], &["make", "0", "600", "1"])));
    let file = scratch().join("file");
    std::fs::write(&file, "").expect("a file can be written");
    for (path, wrong) in [
        (domain.0.as_path(), "open to others"),
        (&file, "not a directory"),
        (Path::new("ipc"), "not an absolute path"),
    ] {
        for words in [&["ipcs"][..], &["ipcrm", "--all"]] {
            let output = run_limited(poundlock_bare().args(words).env("POUNDLOCK_IPC_DIR", path), LIMIT);
            expect_complaint(
                &output,
                125,
                &[wrong, path.to_str().expect("UTF-8"), "all arrays are the kernel's"],
            );
        }
    }
    std::fs::set_permissions(&domain.0, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    assert!(is_ours(&domain.runs(&[], &["make", "0", "600", "1"])));
    domain.says(&["ipcrm", "--all"]);
}
