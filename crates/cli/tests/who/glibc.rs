//! Every sort of lock of glibc's.

use serde_json::Value;

use super::{
    Target, deadlock, expect_deadlock, holders, kinds, said, source, steady, thread, until_who, wait,
};
use crate::support::{LIMIT, compile_c, list, poundlock, run_limited, start};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

#[test]
fn two_threads_that_wait_for_each_other_are_a_deadlock() {
    let target = Target::start(&mut Command::new(deadlock()));
    // The main thread waits for one of them, and is in no circle; it may get there after them.
    let joins = |document: &Value| {
        list(document, "threads").iter().find(|thread| thread["waits_for"]["kind"] == "join").cloned()
    };
    let document = until_who(target.pid(), "a deadlock, and a thread that joins", |document| {
        !list(document, "deadlocks").is_empty() && joins(document).is_some()
    });
    expect_deadlock(&document);
    let main = joins(&document).expect("it does");
    assert_eq!(holders(&document, &main["waits_for"]), ["worker-3"]);

    let still = "threads stood still one after the other, each for at most ";
    let text = said(target.pid(), &["\ndeadlock: ", still]);
    let deadlock = text.lines().position(|line| line.starts_with("deadlock: ")).expect("it says so");
    let first = text.lines().position(|line| line.contains(" waits for ") && line.starts_with("worker-"));
    assert!(first.is_some_and(|first| deadlock < first), "{text}");
}

/// A mutex that its thread has already.
#[test]
fn a_thread_that_waits_for_itself_is_one_as_well() {
    let program = compile_c(
        "#include <pthread.h>\nstatic pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;\n\
         int main(void) { pthread_mutex_lock(&own); pthread_mutex_lock(&own); }\n",
        &[],
    );
    let target = Target::start(&mut Command::new(program));
    let document = until_who(target.pid(), "a deadlock", |document| !list(document, "deadlocks").is_empty());
    let sentence = document["sentences"][0].as_str().expect("a sentence");
    assert!(sentence.contains("holds own (in program) and waits for it again in main"), "{sentence}");
}

/// What each thread of `tests/who/kinds.c` waits for: its name, the kind, how the lock's name begins, and who
/// holds it.
const KINDS: &[(&str, &str, &str, Holder)] = &[
    ("normal", "mutex", "normal (in ", Holder::Main),
    ("recursive", "mutex", "recursive (in ", Holder::Main),
    ("checking", "mutex", "checking (in ", Holder::Main),
    ("adaptive", "mutex", "adaptive (in ", Holder::Main),
    ("timed", "mutex", "timed (in ", Holder::Main),
    ("robust", "mutex", "robust (in ", Holder::Main),
    ("inherits", "mutex", "inherits (in ", Holder::Main),
    ("shared", "mutex", "shared (in ", Holder::Main),
    ("c11", "mutex", "c11 (in ", Holder::Main),
    ("member", "mutex", "house.rooms[2].lock (in ", Holder::Main),
    ("heap", "mutex", "mutex 0x", Holder::Main),
    ("to_read", "rw_read", "written (in ", Holder::Main),
    ("to_write", "rw_write", "also_written (in ", Holder::Main),
    ("for_readers", "rw_write", "read_twice (in ", Holder::Readers(2)),
    ("behind_reader", "rw_write", "prefers_writers (in ", Holder::Readers(1)),
    ("behind_writer", "rw_read", "prefers_writers (in ", Holder::Readers(1)),
    ("signalled", "condition", "signalled (in ", Holder::None),
    ("cond_timed", "condition", "timed_condition (in ", Holder::None),
    ("semaphore", "semaphore", "semaphore (in ", Holder::None),
    ("sem_timed", "semaphore", "timed_semaphore (in ", Holder::None),
    ("barrier", "barrier", "barrier (in ", Holder::None),
    ("join", "join", "the end of normal (", Holder::Thread("normal")),
    ("once", "once", "once (in ", Holder::Unknown),
];

#[derive(Clone, Copy)]
enum Holder {
    Main,
    Thread(&'static str),
    Readers(u64),
    None,
    Unknown,
}

/// Checks it, as far as names are known.
#[track_caller]
pub(super) fn expect_kinds(document: &Value, names: bool) {
    for &(name, kind, lock, holder) in KINDS {
        let Some((waits, waited)) = wait(document, name) else {
            panic!("{name} does not wait: {document:#}")
        };
        let about = format!("{name}: {waits:#} {waited:#} {:#}", thread(document, name));
        assert_eq!(waits["kind"], kind, "{about}");
        if names {
            assert!(waited["name"].as_str().is_some_and(|called| called.starts_with(lock)), "{about}");
        }
        let held_by = holders(document, waits);
        match holder {
            Holder::Main => assert_eq!(held_by, ["holder"], "{about}"),
            Holder::Thread(holder) => assert_eq!(held_by, [holder], "{about}"),
            Holder::Readers(count) => {
                assert_eq!(waited["holder"]["known"], "readers", "{about}");
                assert_eq!(waited["holder"]["readers"], count, "{about}");
            }
            Holder::None => assert_eq!(waited["holder"]["known"], "none", "{about}"),
            Holder::Unknown => assert_eq!(waited["holder"]["known"], "unknown", "{about}"),
        }
    }
    for name in ["signalled", "cond_timed"] {
        let (waits, _) = wait(document, name).expect("it waits");
        let mutex = &document["locks"][waits["mutex"].as_u64().expect("its mutex is known") as usize];
        assert_eq!(mutex["kind"], "mutex");
        if names {
            assert!(mutex["name"].as_str().is_some_and(|called| called.starts_with("guard (in ")), "{mutex}");
        }
        assert_eq!(mutex["holder"]["known"], "nobody", "{mutex}");
    }
}

#[test]
fn every_kind_of_lock_says_what_it_knows() {
    let target = Target::ready(&mut Command::new(kinds(&[])));
    let document = until_who(target.pid(), "all asleep", |document| steady(document) == KINDS.len());
    expect_kinds(&document, true);
    assert!(list(&document, "deadlocks").is_empty());
    let parts = [
        "no deadlock among holders that are known",
        ", held by 2 readers, who are not recorded",
        ", under guard (in program), which is free at this moment",
    ];
    said(target.pid(), &parts);
}

/// Its C library's functions are its own.
#[test]
fn a_static_program_is_no_different() {
    let target = Target::ready(&mut Command::new(kinds(&["-static"])));
    let document = until_who(target.pid(), "all asleep", |document| steady(document) == KINDS.len());
    expect_kinds(&document, true);
}

/// A thread that holds a lock and ends leaves it to nobody.
#[test]
fn an_owner_that_has_ended_is_said_to_have() {
    let program = compile_c(
        "#include <pthread.h>\nstatic pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER;\n\
         static void *take(void *x) { pthread_mutex_lock(&left); return x; }\n\
         int main(void) { pthread_t t; pthread_create(&t, 0, take, 0); pthread_join(t, 0);\n\
         pthread_mutex_lock(&left); }\n",
        &[],
    );
    let target = Target::start(&mut Command::new(program));
    until_who(target.pid(), "asleep", |document| steady(document) == 1);
    said(target.pid(), &["waits for left (in program)", "which has ended: nobody will release it"]);
}

/// The lock of a stream says who has it, by an address.
#[test]
fn a_stream_that_is_locked_names_its_owner() {
    let program = compile_c(
        "#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         static void *print(void *x) { puts(\"late\"); return x; }\n\
         int main(void) { pthread_t t; flockfile(stdout); pthread_create(&t, 0, print, 0); for (;;) pause(); }\n",
        &[],
    );
    let target = Target::start(&mut Command::new(program));
    let document = until_who(target.pid(), "asleep", |document| steady(document) == 1);
    let waiter = list(&document, "threads").iter().find(|thread| !thread["waits_for"].is_null());
    let waits = &waiter.expect("one waits")["waits_for"];
    assert_eq!(waits["kind"], "stream", "{document:#}");
    assert_eq!(list(waits, "held_by").len(), 1, "{document:#}");
}

/// A thousand threads at one lock are one entry.
#[test]
fn a_thousand_threads_are_looked_at() {
    let mut target = Target::ready(Command::new(compile_c(source!("crowd.c"), &[])).arg("1000"));
    let document = until_who(target.pid(), "all asleep", |document| steady(document) == 1000);
    assert_eq!(list(&document, "threads").len(), 1001);
    for thread in list(&document, "threads").iter().filter(|thread| !thread["waits_for"].is_null()) {
        assert_eq!(list(&thread["waits_for"], "held_by").len(), 1, "{thread:#}");
    }
    // Figures for who runs it alone: the test is about what is said.
    let ms = |key: &str| document[key].as_u64().expect("a number") as f64 / 1e6;
    println!(
        "1,000 threads: {:.1} ms in all, {:.1} ms from the first stop to the last, {:.3} ms the longest",
        ms("took_ns"),
        ms("looked_ns"),
        ms("longest_stop_ns")
    );
    said(target.pid(), &[" and 994 more wait for gate (in program)"]);
    assert!(target.end().is_empty());
}

/// Names of threads and of programs are anybody's: what a terminal would obey is written out, in every
/// command.
#[test]
fn names_are_safe_to_print() {
    let program = compile_c(
        r#"#include <pthread.h>
        #include <sys/prctl.h>
        #include <unistd.h>
        static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
        static pthread_barrier_t both;
        static void *one(void *unused) {
            prctl(PR_SET_NAME, "\033[31mred\n\xff\xfe");
            pthread_mutex_lock(&a);
            pthread_barrier_wait(&both);
            pthread_mutex_lock(&b);
            return unused;
        }
        static void *other(void *unused) {
            prctl(PR_SET_NAME, "caf\xc3");
            pthread_mutex_lock(&b);
            pthread_barrier_wait(&both);
            pthread_mutex_lock(&a);
            return unused;
        }
        int main(void) {
            pthread_t threads[2];
            pthread_barrier_init(&both, NULL, 2);
            pthread_create(&threads[0], NULL, one, NULL);
            pthread_create(&threads[1], NULL, other, NULL);
            pthread_join(threads[0], NULL);
            return 0;
        }"#,
        &[],
    );
    let odd = program.with_file_name(std::ffi::OsStr::from_bytes(b"odd\x1b[2J\xe9"));
    std::fs::rename(&program, &odd).expect("it can be renamed");
    let safe = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).expect("UTF-8");
        let odd = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(odd), "{}", text.escape_debug());
        assert!(text.contains(r"\x1b[31mred\x0a\xff\xfe") && text.contains(r"caf\xc3"), "{text}");
    };
    let target = Target::start(&mut Command::new(&odd));
    until_who(target.pid(), "both wait", |document| list(document, "deadlocks").len() == 1);
    safe(said(target.pid(), &["deadlock"]).as_bytes());
    drop(target);
    let mut stat = start(poundlock().args(["stat", "--every", "0.3", "--"]).arg(&odd));
    stat.wait_for_error("DEADLOCK: ", LIMIT);
    stat.kill(libc::SIGTERM);
    safe(&stat.finish(LIMIT).stderr);
    let mut check = poundlock();
    safe(&run_limited(check.args(["check", "--on-deadlock", "end", "--"]).arg(&odd), LIMIT).stderr);
}
