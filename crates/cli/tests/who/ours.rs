//! Programs under `run`, whose locks are ours, and under `stat`, which records them.

use std::process::Command;

use serde_json::Value;

use super::{Target, deadlock, expect_deadlock, holders, steady, thread, until_who, wait};
use crate::support::{compile_c, list, poundlock, scratch};

/// The program that the command has started.
fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let child: u32 = children.split_whitespace().next()?.parse().ok()?;
    let exe = std::fs::read_link(format!("/proc/{child}/exe")).ok()?;
    exe.ends_with("program").then_some(child)
}

/// As `tests/who/kinds.c`, of the kinds that are ours under `run`.
const OURS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t also_written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t was_read = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t signalled = PTHREAD_COND_INITIALIZER;
static void *lock(void *m) { pthread_mutex_lock(m); return m; }
static void *to_read(void *l) { pthread_rwlock_rdlock(l); return l; }
static void *to_write(void *l) { pthread_rwlock_wrlock(l); return l; }
static void *wait_signalled(void *x) {
    pthread_mutex_lock(&guard);
    for (;;) pthread_cond_wait(&signalled, &guard);
    return x;
}
static void start(const char *name, void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument)) abort();
    pthread_setname_np(thread, name);
}
int main(void) {
    pthread_setname_np(pthread_self(), "holder");
    pthread_mutex_lock(&plain);
    pthread_mutex_lock(&recursive);
    pthread_mutex_lock(&checking);
    pthread_rwlock_wrlock(&written);
    pthread_rwlock_wrlock(&also_written);
    pthread_rwlock_rdlock(&was_read);
    start("plain", lock, &plain);
    start("recursive", lock, &recursive);
    start("checking", lock, &checking);
    start("to_read", to_read, &written);
    start("to_write", to_write, &also_written);
    start("for_reader", to_write, &was_read);
    start("signalled", wait_signalled, NULL);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#;

#[track_caller]
fn expect_ours(document: &Value, plain_holder: bool) {
    for (name, kind, lock) in [
        ("plain", "mutex", "plain (in "),
        ("recursive", "mutex", "recursive (in "),
        ("checking", "mutex", "checking (in "),
        ("to_read", "rw_read", "written (in "),
        ("to_write", "rw_write", "also_written (in "),
        ("for_reader", "rw_write", "was_read (in "),
        ("signalled", "condition", "signalled (in "),
    ] {
        let Some((waits, waited)) = wait(document, name) else {
            panic!("{name} does not wait: {document:#}")
        };
        let about = format!("{name}: {waits:#} {waited:#} {:#}", thread(document, name));
        assert_eq!(waits["kind"], kind, "{about}");
        assert!(waited["name"].as_str().is_some_and(|called| called.starts_with(lock)), "{about}");
        let held_by = holders(document, waits);
        match name {
            "signalled" => assert!(held_by.is_empty(), "{about}"),
            "plain" if !plain_holder => assert_eq!(waited["holder"]["known"], "unknown", "{about}"),
            "for_reader" if !plain_holder => {
                assert!(matches!(waited["holder"]["known"].as_str(), Some("readers" | "unknown")), "{about}");
            }
            _ => assert_eq!(held_by, ["holder"], "{about}"),
        }
    }
}

/// On each of our mutexes.
#[test]
fn our_locks_are_found_on_the_stack_of_their_waiters() {
    let program = compile_c(OURS, &[]);
    for lock in ["poundlock", "mcs-queue", "handoff"] {
        let mut command = poundlock();
        command.args(["run", "--lock", lock, "--"]).arg(&program);
        let target = Target::ready(&mut command);
        let document = until_who(target.pid(), "all asleep", |document| steady(document) == 7);
        assert_eq!(document["library"], true, "{document:#}");
        expect_ours(&document, false);
        let (_, waited) = wait(&document, "plain").expect("it waits");
        assert_eq!(waited["made_by"], "poundlock", "{lock}: {waited:#}");
    }
}

/// What `stat` records is exact: plain mutexes and readers, too, and where they were taken.
#[test]
fn under_stat_every_holder_is_known() {
    let program = compile_c(OURS, &[]);
    for lock in ["glibc", "poundlock"] {
        let mut command = poundlock();
        command.args(["stat", "--lock", lock, "-o"]).arg(scratch().join("report")).arg("--").arg(&program);
        let command = Target::ready(&mut command);
        let pid = child_of(command.pid()).expect("it runs the program");
        let program = Killed(pid);
        let document = until_who(pid, "all asleep", |document| steady(document) == 7);
        assert_eq!(document["recorded"], true, "{document:#}");
        expect_ours(&document, true);
        let (_, waited) = wait(&document, "plain").expect("it waits");
        let taken = waited["taken_at"].as_str().unwrap_or_else(|| panic!("not known where: {waited:#}"));
        assert!(taken.starts_with("main (program.c:") || taken.contains("/program.c:"), "{taken}");
        drop(program);
    }
}

/// Ends a process that another one has started.
struct Killed(u32);

impl Drop for Killed {
    fn drop(&mut self) {
        // SAFETY: takes two numbers. Its parent waits for it until then.
        unsafe { libc::kill(self.0 as libc::pid_t, libc::SIGKILL) };
    }
}

#[test]
fn a_deadlock_is_one_under_stat_too() {
    for lock in ["glibc", "poundlock"] {
        let mut command = poundlock();
        command.args(["stat", "--lock", lock, "-o"]).arg(scratch().join("report")).arg("--").arg(deadlock());
        let command = Target::start(&mut command);
        let mut pid = None;
        crate::support::until("started", || {
            pid = child_of(command.pid());
            pid.is_some()
        });
        let pid = pid.expect("it was there");
        let program = Killed(pid);
        let document = until_who(pid, "a deadlock", |document| !list(document, "deadlocks").is_empty());
        expect_deadlock(&document);
        drop(program);
    }
}

/// Stripped of what names our functions, the preload library is known all the same: a package's is.
#[test]
fn a_stripped_library_is_known() {
    let Some(strip) = crate::support::need("strip", "binutils") else { return };
    let copy = scratch().join("libpoundlock_preload.so");
    let status = Command::new(strip)
        .arg("-o")
        .arg(&copy)
        .arg(crate::support::preload_library())
        .status()
        .expect("it runs");
    assert!(status.success());
    let mut command = Command::new(compile_c(OURS, &[]));
    command.env("LD_PRELOAD", &copy);
    let target = Target::ready(&mut command);
    let document = until_who(target.pid(), "all asleep", |document| steady(document) == 7);
    expect_ours(&document, false);
}
