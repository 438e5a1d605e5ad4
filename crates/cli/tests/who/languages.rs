//! Programs whose locks are not glibc's, and such as have no symbols or no unwind tables.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Condvar, LazyLock, Mutex, Once, RwLock};
use std::thread;

use serde_json::Value;

use super::{Target, kinds, said, source, steady, thread as named, until_who, wait};
use crate::attach::{can_watch, class, watched};
use crate::support::{LIMIT, expect_status, list, made, need, poundlock_bare, run_limited, scratch, stdout};

/// In the environment of this program: it is to be looked at.
pub(crate) const TARGET: &str = "POUNDLOCK_TEST_WHO_TARGET";

static HELD: Mutex<i32> = Mutex::new(0);
static WRITTEN: RwLock<i32> = RwLock::new(0);
static WAS_READ: RwLock<i32> = RwLock::new(0);
static GUARD: Mutex<bool> = Mutex::new(false);
static SIGNALLED: Condvar = Condvar::new();
static ONCE: Once = Once::new();
static PARKING: parking_lot::Mutex<i32> = parking_lot::Mutex::new(0);
static PARKING_WRITTEN: parking_lot::RwLock<i32> = parking_lot::RwLock::new(0);
static PARKING_GUARD: parking_lot::Mutex<bool> = parking_lot::Mutex::new(false);
static PARKING_SIGNALLED: LazyLock<parking_lot::Condvar> = LazyLock::new(parking_lot::Condvar::new);

/// The program with locks of Rust's: this one, started again.
#[test]
fn rust_target() {
    if std::env::var_os(TARGET).is_none() {
        return;
    }
    let _held = (HELD.lock(), WRITTEN.write(), WAS_READ.read(), PARKING.lock(), PARKING_WRITTEN.write());
    let start = |name: &str, body: fn()| {
        thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread");
    };
    start("std-mutex", || drop(HELD.lock()));
    start("std-reads", || drop(WRITTEN.read()));
    start("std-writes", || drop(WAS_READ.write()));
    start("std-condvar", || {
        let guard = GUARD.lock().expect("not poisoned");
        drop(SIGNALLED.wait_while(guard, |done| !*done));
    });
    start("std-runs-once", || ONCE.call_once(thread::park));
    while !ONCE.is_completed() && std::fs::read_dir("/proc/self/task").expect("there").count() < 6 {
        thread::yield_now();
    }
    start("std-park", thread::park);
    start("pl-mutex", || drop(PARKING.lock()));
    start("pl-reads", || drop(PARKING_WRITTEN.read()));
    start("pl-writes", || drop(PARKING_WRITTEN.write()));
    start("pl-condvar", || PARKING_SIGNALLED.wait_while(&mut PARKING_GUARD.lock(), |done| !*done));
    loop {
        thread::park();
    }
}

#[test]
fn locks_of_rust_have_waiters_and_no_holders() {
    let exe = std::env::current_exe().expect("it is there");
    let mut command = Command::new(exe);
    command
        .args(["--exact", "who::languages::rust_target", "--nocapture", "--test-threads=1"])
        .env(TARGET, "1");
    let target = Target::start(&mut command);
    let names = [
        ("std-mutex", "mutex", "HELD", "rust_std"),
        ("std-reads", "rw_read", "WRITTEN", "rust_std"),
        ("std-writes", "rw_write", "WAS_READ", "rust_std"),
        ("std-condvar", "condition", "SIGNALLED", "rust_std"),
        ("pl-mutex", "mutex", "PARKING", "parking_lot"),
        ("pl-reads", "rw_read", "PARKING_WRITTEN", "parking_lot"),
        ("pl-writes", "rw_write", "PARKING_WRITTEN", "parking_lot"),
        ("pl-condvar", "condition", "", "parking_lot"),
    ];
    let all_wait = |document: &Value| {
        names.iter().all(|(name, ..)| {
            list(document, "threads")
                .iter()
                .any(|thread| thread["name"] == *name && thread["waits_for"]["steady"] == true)
        })
    };
    let document = until_who(target.pid(), "all asleep", all_wait);
    for (name, kind, lock, maker) in names {
        let (waits, waited) = wait(&document, name).expect("it waits");
        let about = format!("{name}: {waits:#} {waited:#} {:#}", named(&document, name));
        assert_eq!((&waits["kind"], &waited["made_by"]), (&kind.into(), &maker.into()), "{about}");
        assert!(waited["name"].as_str().is_some_and(|called| called.contains(lock)), "{about}");
        assert!(list(waits, "held_by").is_empty(), "{about}");
        let line = named(&document, name)["line"].as_str().expect("a line");
        assert!(line.contains("rust_target"), "{line} {about}");
    }
    let (_, waited) = wait(&document, "std-writes").expect("it waits");
    assert_eq!(waited["holder"]["readers"], 1, "{waited:#}");
    let (_, waited) = wait(&document, "std-mutex").expect("it waits");
    assert_eq!(waited["holder"]["known"], "unknown", "{waited:#}");
    let (waits, _) = wait(&document, "std-park").expect("it waits");
    assert_eq!(waits["kind"], "park", "{waits:#}");
    said(target.pid(), &["a lock of the language does not say who holds it"]);
}

#[test]
fn go_has_threads_that_park_and_a_note() {
    let installed = poundlock_testing::find("go")
        .or_else(|| Some(PathBuf::from("/usr/local/go/bin/go")).filter(|path| path.is_file()));
    let Some(go) = installed else {
        eprintln!("SKIPPED: needs go (apt-get install golang-go)");
        return;
    };
    let dir = scratch();
    let (file, program) = (dir.join("mutexes.go"), dir.join("mutexes"));
    std::fs::write(&file, source!("mutexes.go")).expect("it can be written");
    let mut build = Command::new(go);
    build.args(["build", "-trimpath", "-o"]).arg(&program).arg(&file).current_dir(&dir);
    build.envs([("GOCACHE", dir.join("cache")), ("GOPATH", dir.join("path"))]);
    build.envs([
        ("GOTOOLCHAIN", "local"),
        ("GOFLAGS", "-mod=mod"),
        ("GO111MODULE", "off"),
        ("CGO_ENABLED", "0"),
    ]);
    made(&mut build, &[file], &program);
    let target = Target::ready(&mut Command::new(program));
    let of_go = |thread: &&Value| {
        list(thread, "stack")
            .iter()
            .any(|frame| frame.as_str().is_some_and(|frame| frame.starts_with("runtime.futex")))
    };
    let document = until_who(target.pid(), "parked", |document| {
        list(document, "threads").iter().any(|thread| of_go(&thread) && thread["waits_for"]["steady"] == true)
    });
    for thread in list(&document, "threads").iter().filter(of_go) {
        assert_eq!(thread["waits_for"]["kind"], "park", "{thread:#}");
        // The runtime's own stacks, which unwind to their beginning.
        assert!(list(thread, "stack").len() > 2, "{thread:#}");
    }
    said(target.pid(), &["note: Go keeps goroutines that wait for its locks off the threads"]);
    crate::attach::languages::threads_of_go_park(&target);
}

#[test]
fn java_has_threads_that_wait_and_a_note() {
    let Some(java) = need("java", "default-jdk-headless") else { return };
    let Some(javac) = need("javac", "default-jdk-headless") else { return };
    let dir = scratch();
    let file = dir.join("Monitors.java");
    std::fs::write(&file, source!("Monitors.java")).expect("it can be written");
    let class = dir.join("Monitors.class");
    made(
        Command::new(javac).args(["-J-Xmx256m", "-d"]).arg(&dir).arg(&file),
        std::slice::from_ref(&file),
        &class,
    );
    let mut command = Command::new(java);
    command.args(["-Xmx128m", "-XX:+UseSerialGC", "-cp"]).arg(&dir).arg("Monitors");
    let target = Target::ready(&mut command);
    let takes = |document: &Value| {
        let steady = |name: &str| {
            let mut threads = list(document, "threads").iter();
            threads.any(|thread| thread["name"] == name && thread["waits_for"]["steady"] == true)
        };
        steady("taker-1") && steady("taker-2")
    };
    let document = until_who(target.pid(), "both asleep", takes);
    for name in ["taker-1", "taker-2"] {
        let (waits, _) = wait(&document, name).expect("it waits");
        assert_eq!(waits["kind"], "condition", "{:#}", named(&document, name));
        assert!(waits["mutex"].is_u64(), "{:#}", named(&document, name));
    }
    said(target.pid(), &["note: Java's monitors", &format!("`jstack {}`", target.pid())]);
    // Those that wait for a monitor come first, and the machine's own threads have a line a group.
    let output = run_limited(poundlock_bare().args(["who", &target.pid().to_string()]), LIMIT);
    expect_status(&output, 0);
    let text = stdout(&output);
    if !text.contains("ObjectMonitor::") {
        return crate::attach::languages::threads_of_java_wait(&target);
    }
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text}"));
    assert!(at("waits for a monitor of Java's") < at("--all shows them"), "{text}");
    for taker in ["taker-1 (", "taker-2 ("] {
        assert!(at(taker) < at("--all shows them"), "{text}");
    }
    crate::attach::languages::threads_of_java_wait(&target);
}

/// Without symbols of its own, what is in memory tells of mutexes.
#[test]
fn a_stripped_static_program_has_locks_by_their_looks() {
    let target = Target::ready(&mut Command::new(kinds(&["-static", "-s"])));
    let document = until_who(target.pid(), "all asleep", |document| steady(document) >= 23);
    for name in ["normal", "recursive", "checking", "adaptive", "timed", "robust", "inherits", "shared"] {
        let (waits, waited) = wait(&document, name).expect("it waits");
        let about = format!("{name}: {waits:#} {waited:#} {:#}", named(&document, name));
        assert_eq!(waits["kind"], "mutex", "{about}");
        assert_eq!(super::holders(&document, waits), ["holder"], "{about}");
    }
    let (waits, _) = wait(&document, "join").expect("it waits");
    assert_eq!(
        (&waits["kind"], super::holders(&document, waits)),
        (&"join".into(), vec!["normal".to_owned()])
    );
    said(target.pid(), &["it looks like glibc's mutex"]);
}

/// Its C library has no unwind tables.
#[test]
fn musl_says_who_holds_what_it_checks() {
    let Some(compiler) = need("musl-gcc", "musl-tools") else { return };
    let source = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n\
        pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, checking;\n\
        static void *wait(void *m) { pthread_mutex_lock(m); return m; }\n\
        static void *join(void *t) { pthread_join(*(pthread_t *)t, 0); return t; }\n\
        int main(void) { pthread_t one, two, three; pthread_mutexattr_t a; pthread_mutexattr_init(&a);\n\
        pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK); pthread_mutex_init(&checking, &a);\n\
        pthread_mutex_lock(&plain); pthread_mutex_lock(&checking);\n\
        pthread_create(&one, 0, wait, &plain); pthread_setname_np(one, \"plain\");\n\
        pthread_create(&two, 0, wait, &checking); pthread_setname_np(two, \"checking\");\n\
        pthread_create(&three, 0, join, &one); pthread_setname_np(three, \"joins\");\n\
        puts(\"ready\"); fflush(stdout); for (;;) pause(); }\n";
    for flags in [&["-static"][..], &[]] {
        let dir = scratch();
        let (file, program) = (dir.join("program.c"), dir.join("program"));
        std::fs::write(&file, source).expect("it can be written");
        let mut build = Command::new(&compiler);
        crate::support::build(build.args(["-O1", "-g"]).args(flags).arg(&file), &file, &program);
        let target = Target::ready(&mut Command::new(&program));
        let document = until_who(target.pid(), "all asleep", |document| steady(document) == 3);
        for (name, line) in [("plain", "wait ("), ("checking", "wait ("), ("joins", "join (")] {
            let stack = list(named(&document, name), "stack");
            let found = stack.iter().any(|frame| frame.as_str().is_some_and(|frame| frame.starts_with(line)));
            assert!(found, "{flags:?} {name}: {stack:?}");
            assert!(named(&document, name)["waits_for"].is_object(), "{:#}", named(&document, name));
        }
        // Its shared library is stripped of what is not for others.
        let (_, waited) = wait(&document, "checking").expect("it waits");
        if waited["made_by"] == "musl" {
            let (waits, _) = wait(&document, "checking").expect("it waits");
            assert_eq!(list(waits, "held_by").len(), 1, "{document:#}");
            let (_, plain) = wait(&document, "plain").expect("it waits");
            assert_eq!(plain["holder"]["known"], "unknown", "{plain:#}");
        } else {
            assert!(flags.is_empty(), "{document:#}");
        }
    }
}

#[test]
fn python_has_threads_that_wait() {
    let Some(python) = need("python3", "python3") else { return };
    let script = "import threading, sys\nlock = threading.Lock()\nlock.acquire()\n\
        t = threading.Thread(target=lock.acquire, daemon=True)\nt.start()\nprint('ready', flush=True)\n\
        sys.stdin.read()\n";
    let target = Target::ready(Command::new(python).args(["-c", script]));
    let document = until_who(target.pid(), "asleep", |document| steady(document) >= 1);
    let waiter = list(&document, "threads").iter().find(|thread| !thread["waits_for"].is_null());
    let waiter = waiter.expect("one waits");
    let kind = waiter["waits_for"]["kind"].as_str().expect("a kind");
    assert!(["semaphore", "condition", "futex"].contains(&kind), "{document:#}");
    assert!(list(waiter, "stack").len() > 3, "{waiter:#}");
}

#[test]
fn redis_has_threads_of_its_own() {
    let Some(redis) = need("redis-server", "redis-server") else { return };
    let dir = scratch();
    let socket = dir.join("socket");
    let mut command = Command::new(redis);
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).arg("--dir").arg(&dir);
    let target = Target::start(&mut command);
    // Its threads for closing files and freeing memory wait for something to do.
    let document = until_who(target.pid(), "asleep", |document| {
        let mut threads = list(document, "threads").iter();
        let main = threads.find(|thread| thread["tid"] == document["pid"]).expect("it is there");
        steady(document) >= 3 && main["state"] == "asleep in epoll_wait"
    });
    let conditions =
        list(&document, "threads").iter().filter(|thread| thread["waits_for"]["kind"] == "condition");
    assert!(conditions.clone().count() >= 3, "{document:#}");
    for thread in conditions {
        assert!(thread["waits_for"]["mutex"].is_u64(), "{thread:#}");
    }
}

/// A process in namespaces of its own, as in a container: names come from its files, ids are translated.
#[test]
fn a_container_is_looked_into_from_outside() {
    let Some(unshare) = need("unshare", "util-linux") else { return };
    let program = super::deadlock();
    // In another place there than here.
    let root = scratch();
    for dir in ["proc", "usr", "lib", "lib64", "etc", "srv"] {
        std::fs::create_dir_all(root.join(dir)).expect("it is ours");
    }
    std::fs::copy(&program, root.join("srv/inside")).expect("it is ours");
    let script = format!(
        "for d in usr lib lib64; do mount --rbind /$d {root}/$d || exit 77; done; \
         mount -t proc proc {root}/proc && exec chroot {root} /srv/inside",
        root = root.display()
    );
    let mut command = Command::new(unshare);
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script]);
    let mut target = Target::start(&mut command);
    let parent = target.pid();
    let child = || {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let pid: u32 = children.split_whitespace().next()?.parse().ok()?;
        std::fs::read_link(format!("/proc/{pid}/exe")).ok()?.ends_with("inside").then_some(pid)
    };
    let begin = std::time::Instant::now();
    let pid = loop {
        if let Some(pid) = child() {
            break pid;
        }
        if let Some(status) = target.child.try_wait().expect("it is ours") {
            eprintln!("SKIPPED: no namespaces here: {status}");
            return;
        }
        assert!(begin.elapsed().as_secs() < LIMIT, "it does not start");
    };
    let document = until_who(pid, "a deadlock", |document| !list(document, "deadlocks").is_empty());
    super::expect_deadlock(&document);
    let inner = list(&document, "threads").iter().find(|thread| thread["tid"] == pid).expect("it is there");
    assert_eq!(inner["inner_tid"], 1, "{inner:#}");
    // And by its futex calls.
    if !can_watch() {
        return;
    }
    let report = watched(pid);
    let lock = class(&report, "b (in inside)");
    let line = format!("program.cpp:{})", super::line_of(source!("deadlock.cpp"), "worker-3 waits"));
    assert!(lock["sites"].to_string().contains(&line), "{line} is not in {lock:#}");
    let mut top = poundlock_bare();
    top.args(["top", "--interval", "0.1", "--count", "1", "--pid", &pid.to_string()]);
    let output = run_limited(&mut top, LIMIT);
    expect_status(&output, 0);
    assert!(stdout(&output).contains("  b (in inside)"), "{output:?}");
}

/// A program whose file is gone has names still.
#[test]
fn a_program_that_was_replaced_has_its_names() {
    let program = super::deadlock();
    let copy = scratch().join("program");
    std::fs::copy(&program, &copy).expect("it is ours");
    let target = Target::start(&mut Command::new(&copy));
    until_who(target.pid(), "a deadlock", |document| !list(document, "deadlocks").is_empty());
    std::fs::remove_file(&copy).expect("it is ours");
    let document = until_who(target.pid(), "a deadlock", |document| !list(document, "deadlocks").is_empty());
    super::expect_deadlock(&document);
}
