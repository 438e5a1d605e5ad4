//! Stacks of threads that are not stopped, beside gdb's.

use std::process::Command;

use super::{Target, asked};
use crate::support::{compile_c, list, need};

/// Functions that keep a frame pointer, for `alloca`, and others that do not, above a call which a stop would
/// end.
const PROGRAM: &str = r#"
#include <alloca.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#define OWN __attribute__((noinline))
static volatile int zero;
OWN static int sleeps(int set) { struct epoll_event event; return epoll_wait(set, &event, 1, -1) + zero; }
OWN static int with_frame(int set, int size) {
    char *room = alloca(size);
    memset(room, 1, size);
    return sleeps(set) + room[zero];
}
OWN static int without(int set, int size) { return with_frame(set, size + zero) + 1; }
OWN static int with_another(int set, int size) {
    char *room = alloca(size);
    memset(room, 2, size);
    return without(set, 2 * size) + room[zero];
}
/* Leaves return addresses below. */
OWN static int stale(int depth) { return depth ? stale(depth - 1) + with_another(-1, 16) : 0; }
OWN static int through(int (*of)(int, int), int set) { return of(set, 3000) + 1; }
int main(void) {
    stale(9);
    puts("ready");
    fflush(stdout);
    return through(with_another, epoll_create1(0));
}
"#;

#[test]
fn stacks_of_threads_that_are_not_stopped_are_those_that_gdb_has() {
    let Some(gdb) = need("gdb", "gdb") else { return };
    let program = compile_c(PROGRAM, &["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]);
    let target = Target::ready(&mut Command::new(program));
    let pid = target.pid().to_string();
    let function = |text: &str| text.split([' ', '+', '(']).next().unwrap_or_default().to_owned();
    let own = |all: Vec<String>| -> Vec<String> {
        let until = all.iter().position(|name| name == "main").map_or(all.len(), |at| at + 1);
        all[..until].to_vec()
    };
    let mut ours = Vec::new();
    crate::support::until("it sleeps", || {
        let document = asked(&["--all", "--json", "-", &pid]);
        let thread = &list(&document, "threads")[0];
        assert_eq!(thread["stood_still_ns"], 0, "{document:#}");
        let frames = list(thread, "stack").iter().map(|frame| function(frame.as_str().expect("a name")));
        ours = own(frames.collect());
        ours.first().is_some_and(|first| first == "epoll_wait")
    });
    let args = ["-batch", "-nx", "-ex", "backtrace", "-p", &pid];
    let output = Command::new(gdb).args(args).output().expect("gdb runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let frames = text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // `#1  0x... in f (...)`, and without the address where the function's line has begun.
        let at = if words.get(2) == Some(&"in") { 3 } else { 1 };
        function(words.get(at).copied().unwrap_or_default())
    });
    let theirs = own(frames.collect());
    let expected = ["epoll_wait", "sleeps", "with_frame", "without", "with_another", "through", "main"];
    assert_eq!(theirs, expected, "{text}");
    assert_eq!(ours, theirs);
}
