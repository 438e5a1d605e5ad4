//! The program that is looked at goes on as if nothing had been.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Target, command, source, who};
use crate::support::{LIMIT, compile_c, from_a_terminal, list, run_limited, until};

/// Who traces each thread of a process, and what state it is in.
fn tracers(pid: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let status = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field =
            |name: &str| Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
        Some((field("TracerPid:")?, field("State:")?))
    };
    tasks.flatten().filter_map(status).collect()
}

/// Whether nobody traces it, and none of its threads stands still.
fn is_free(pid: u32) -> bool {
    tracers(pid).iter().all(|(tracer, state)| tracer == "0" && !state.starts_with(['t', 'T']))
}

/// Calls that sleep, and that a stop may end: they do not notice that they were looked at.
#[test]
fn no_call_is_interrupted() {
    let mut target = Target::ready(&mut Command::new(compile_c(source!("calls.c"), &[])));
    for _ in 0..10 {
        let document = who(target.pid());
        assert_eq!(list(&document, "threads").len(), 23, "{document:#}");
    }
    assert!(is_free(target.pid()));
    assert_eq!(target.end(), ["done"]);
}

/// Runs `who` until it has made this number of `ptrace` calls, and kills it: before the last one if `before`, else
/// after it. Says whether it got that far.
fn killed_at(target: u32, calls: u32, before: bool) -> bool {
    let mut who = Command::new(command());
    who.args(["who", &target.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: a system call, in the child.
    unsafe {
        who.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let mut who = who.spawn().expect("the command starts");
    let pid = who.id() as libc::pid_t;
    let request = |what: libc::c_uint, data: usize| {
        // SAFETY: on our child, which stands still; no memory of ours is named.
        assert_eq!(unsafe { libc::ptrace(what, pid, 0, data) }, 0, "{}", std::io::Error::last_os_error());
    };
    let wait = || {
        let mut status = 0;
        // SAFETY: writes one word.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    };
    assert!(libc::WIFSTOPPED(wait()), "it has not begun");
    request(libc::PTRACE_SETOPTIONS, libc::PTRACE_O_TRACESYSGOOD as usize);
    let (mut made, mut inside, mut signal) = (0, false, 0);
    let reached = loop {
        request(libc::PTRACE_SYSCALL, signal as usize);
        let status = wait();
        if !libc::WIFSTOPPED(status) {
            // It has been waited for just now.
            let _ = who.wait();
            return false;
        }
        signal = libc::WSTOPSIG(status);
        if signal != libc::SIGTRAP | 0x80 {
            continue;
        }
        signal = 0;
        inside = !inside;
        if call_of(pid) != libc::SYS_ptrace {
            continue;
        }
        made += u32::from(inside);
        if made == calls && inside == before {
            break true;
        }
    };
    who.kill().expect("it is ours");
    who.wait().expect("it is ours");
    reached
}

/// The call that a child of ours stands at.
fn call_of(pid: libc::pid_t) -> libc::c_long {
    let file = std::fs::read_to_string(format!("/proc/{pid}/syscall")).expect("it stands still");
    file.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(-1)
}

/// Killed before and after each of its calls that stop a thread or let it go, the command leaves nothing
/// behind; and at other moments.
#[test]
fn our_death_harms_nobody() {
    let program = compile_c(source!("crowd.c"), &[]);
    // Six threads, which it stops one after the other.
    let mut target = Target::ready(Command::new(program).args(["2", "works"]));
    let mut killed = 0;
    for calls in 1.. {
        let came = [true, false].map(|before| {
            let came = killed_at(target.pid(), calls, before);
            until("let go", || is_free(target.pid()));
            // A thousand rounds of work since.
            assert_eq!(target.ask(), "goes on");
            came
        });
        killed += came.into_iter().filter(|came| *came).count();
        // It has been killed at all of them.
        if came == [false; 2] {
            break;
        }
    }
    assert!(killed >= 30, "only {killed} came to be killed");
    for round in 0..10u64 {
        let mut who = Command::new(command());
        who.args(["who", &target.pid().to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut who = from_a_terminal(&mut who).spawn().expect("the command starts");
        // Another moment each time.
        std::thread::sleep(Duration::from_micros(round * 2731));
        who.kill().expect("it is ours");
        who.wait().expect("it is ours");
        until("let go", || is_free(target.pid()));
        assert_eq!(target.ask(), "goes on");
    }
    assert_eq!(target.end(), ["right"]);
}

/// A program under load, looked at many times, comes to the right sum.
#[test]
fn a_program_that_works_goes_on_with_it() {
    let program = compile_c(source!("crowd.c"), &[]);
    let mut target = Target::ready(Command::new(program).args(["40", "works"]));
    for _ in 0..5 {
        let document = who(target.pid());
        assert!(list(&document, "deadlocks").is_empty(), "{document:#}");
        assert!(is_free(target.pid()));
    }
    assert_eq!(target.ask(), "goes on");
    assert_eq!(target.end(), ["right"]);
}

/// A process that was stopped is read, and stays stopped.
#[test]
fn a_stopped_process_stays_so() {
    let program = compile_c(source!("crowd.c"), &[]);
    let mut target = Target::ready(Command::new(program).args(["4", "works"]));
    let signal = |signal| {
        // SAFETY: takes two numbers; the child is ours, and has not been waited for.
        assert_eq!(unsafe { libc::kill(target.pid() as libc::pid_t, signal) }, 0);
    };
    signal(libc::SIGSTOP);
    let stopped = |pid| tracers(pid).iter().all(|(tracer, state)| tracer == "0" && state.starts_with('T'));
    until("stopped", || stopped(target.pid()));
    for _ in 0..3 {
        assert_eq!(list(&who(target.pid()), "threads").len(), 8);
        until("stopped still", || stopped(target.pid()));
    }
    signal(libc::SIGCONT);
    assert_eq!(target.ask(), "goes on");
    assert_eq!(target.end(), ["right"]);
}

/// Signals that come while it is looked at reach it, each once.
#[test]
fn no_signal_is_lost() {
    let program = compile_c(
        r#"
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        static volatile int got;
        static void count(int n) { (void)n; got++; }
        static void *send(void *main) {
            for (int n = 0; n < 20000; n++) {
                int before = got;
                pthread_kill(*(pthread_t *)main, SIGUSR1);
                while (got == before) usleep(10);
            }
            return NULL;
        }
        int main(void) {
            pthread_t self = pthread_self(), sender;
            signal(SIGUSR1, count);
            puts("ready"); fflush(stdout);
            pthread_create(&sender, NULL, send, &self);
            while (got < 20000) usleep(100);
            pthread_join(sender, NULL);
            printf("%d\n", got);
        }
        "#,
        &[],
    );
    let mut target = Target::ready(&mut Command::new(program));
    let mut looks = 0;
    while std::fs::read_to_string(format!("/proc/{}/cmdline", target.pid()))
        .is_ok_and(|line| !line.is_empty())
    {
        let mut who = Command::new(command());
        // It may end while it is looked at.
        run_limited(who.args(["who", &target.pid().to_string()]), LIMIT);
        looks += 1;
    }
    assert!(looks > 0);
    assert_eq!(target.end(), ["20000"]);
}
