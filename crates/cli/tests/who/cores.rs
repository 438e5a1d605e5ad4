//! Core files, of a debugger and of the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::glibc::expect_kinds;
use super::{Target, asked, deadlock, expect_deadlock, kinds, steady, until_who};
use crate::support::{LIMIT, compile_c, expect_status, list, need, run_limited, scratch};

/// A core of a process, by `gcore`.
fn gcore(target: &Target) -> Option<PathBuf> {
    let gcore = need("gcore", "gdb")?;
    let prefix = scratch().join("core");
    let output = run_limited(Command::new(gcore).arg("-o").arg(&prefix).arg(target.pid().to_string()), LIMIT);
    expect_status(&output, 0);
    Some(prefix.with_extension(target.pid().to_string()))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

#[test]
fn a_core_of_a_deadlock_tells_as_much() {
    let program = deadlock();
    let target = Target::start(&mut Command::new(&program));
    until_who(target.pid(), "a deadlock", |document| !list(document, "deadlocks").is_empty());
    let Some(core) = gcore(&target) else { return };
    drop(target);
    // Core files have no names of threads.
    let mut document = asked(&["--core", text(&core), "--json", "-"]);
    assert_eq!(document["source"], "core");
    name_threads(&mut document);
    expect_deadlock(&document);
    // And where the program is elsewhere now.
    let moved = scratch().join("program");
    std::fs::rename(&program, &moved).expect("it is ours");
    let mut document = asked(&["--core", text(&core), "--exe", text(&moved), "--json", "-"]);
    name_threads(&mut document);
    expect_deadlock(&document);
}

/// Gives the threads of the deadlock the names that they had, by what they wait for.
fn name_threads(document: &mut serde_json::Value) {
    let names: Vec<Option<&str>> = list(document, "threads")
        .iter()
        .map(|thread| {
            let lock = thread["waits_for"]["lock"].as_u64()?;
            let name = document["locks"][lock as usize]["name"].as_str()?;
            Some(match name {
                name if name.starts_with("b ") => "worker-3",
                name if name.starts_with("a ") => "worker-5",
                _ => return None,
            })
        })
        .collect();
    let mut sentences = document["sentences"].to_string();
    for (n, name) in names.into_iter().enumerate() {
        let Some(name) = name else { continue };
        let tid = document["threads"][n]["tid"].to_string();
        document["threads"][n]["name"] = name.into();
        sentences = sentences.replace(&format!("thread {tid}"), &format!("{name} ({tid})"));
    }
    document["sentences"] = serde_json::from_str(&sentences).expect("it was JSON");
}

#[test]
fn a_core_knows_every_kind_of_lock() {
    let target = Target::ready(&mut Command::new(kinds(&[])));
    let live = until_who(target.pid(), "all asleep", |document| steady(document) >= 23);
    let Some(core) = gcore(&target) else { return };
    let mut document = asked(&["--core", text(&core), "--json", "-"]);
    for thread in document["threads"].as_array_mut().expect("threads") {
        let same = list(&live, "threads").iter().find(|other| other["tid"] == thread["tid"]);
        thread["name"] = same.expect("the same threads")["name"].clone();
    }
    // What is joined is known by its number alone.
    for lock in document["locks"].as_array_mut().expect("locks") {
        if lock["kind"] == "join" {
            lock["name"] = "the end of normal (1)".into();
        }
    }
    expect_kinds(&document, true);
}

/// The kernel's own, where it writes one into the working directory.
#[test]
fn a_core_of_the_kernel_is_read() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') || pattern.contains('/') {
        eprintln!("SKIPPED: needs core files in the working directory (sysctl kernel.core_pattern=core)");
        return;
    }
    let program = compile_c(
        "#include <pthread.h>\n#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;\n\
         static void *wait(void *x) { pthread_mutex_lock(&held); return x; }\n\
         int main(void) { pthread_t t; pthread_mutex_lock(&held); pthread_create(&t, 0, wait, 0);\n\
         while (!(((volatile unsigned *)&held)[0] & 2)) usleep(1000);\n\
         puts(\"ready\"); fflush(stdout); for (;;) pause(); }\n",
        &[],
    );
    let dir = scratch();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -c unlimited && exec {}", text(&program))).current_dir(&dir);
    let mut target = Target::ready(&mut command);
    until_who(target.pid(), "asleep", |document| steady(document) == 1);
    // SAFETY: takes two numbers; the child is ours, and has not been waited for.
    assert_eq!(unsafe { libc::kill(target.pid() as libc::pid_t, libc::SIGABRT) }, 0);
    assert!(target.end().is_empty());
    let core = std::fs::read_dir(&dir).expect("it is ours").flatten().map(|entry| entry.path());
    let core = core.into_iter().find(|path| path.is_file()).expect("the kernel has written one");
    let document = asked(&["--core", text(&core), "--json", "-"]);
    let waiter = list(&document, "threads").iter().find(|thread| !thread["waits_for"].is_null());
    let waits = &waiter.unwrap_or_else(|| panic!("nobody waits: {document:#}"))["waits_for"];
    let lock = &document["locks"][waits["lock"].as_u64().expect("an index") as usize];
    assert!(lock["name"].as_str().is_some_and(|name| name.starts_with("held (in ")), "{document:#}");
    assert_eq!(list(waits, "held_by").len(), 1, "{document:#}");
}
