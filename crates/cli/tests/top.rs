//! `poundlock top`: tables on pipes, the screen in a terminal, and how it is left.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};

use crate::attach::can_watch;
use crate::support::{
    LIMIT, await_sleep, compile_c, expect_status, missing, poundlock, poundlock_bare, run_limited, scratch,
    start, stderr, stdout, until,
};

/// A thread waits for `lock`, which main has. Main says so with its id, and waits for the end of its input, or
/// for a signal.
const PROGRAM: &str = concat!(
    await_sleep!(),
    r#"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int waiter_tid;

static void *waiter(void *unused) {
    __atomic_store_n(&waiter_tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock); /* WAIT */
    pthread_mutex_unlock(&lock);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    pthread_mutex_lock(&lock);
    pthread_create(&thread, NULL, waiter, NULL);
    await_sleep(&waiter_tid);
    printf("stuck %d\n", getpid());
    fflush(stdout);
    if (argc > 1) for (;;) pause();
    while (getchar() != EOF) {}
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    puts("done");
    return 3;
}
"#
);

/// What a table says of its lock.
const LOCK: &str = "  lock (in program)";

/// The process that a line speaks of.
fn stuck(output: &str) -> u32 {
    let line = output.lines().find_map(|line| line.trim().strip_prefix("stuck ")).expect("it is stuck");
    line.parse().expect("an id")
}

#[test]
fn a_command_has_its_output_and_status_and_a_table_an_interval_beside() {
    let program = compile_c(PROGRAM, &[]);
    let mut command = poundlock();
    command.args(["top", "--interval", "0.05", "--"]).arg(program).stdin(Stdio::piped());
    let mut running = start(&mut command);
    running.wait_for_output("stuck", LIMIT);
    running.wait_for_error(LOCK, LIMIT);
    running.write_input(b"");
    let output = running.finish(LIMIT);
    expect_status(&output, 3);
    assert!(stdout(&output).ends_with("\ndone\n"), "{}", stdout(&output));
    let text = stderr(&output);
    let row = text.lines().find(|line| line.contains(LOCK)).expect("it was there");
    assert!(row.contains("program.c:"), "{row}");
    assert!(text.contains("   lost  waiting   waits/s   wait avg   held avg  lock\n"), "{text}");
}

#[test]
fn a_process_that_keeps_figures_is_looked_at_from_outside() {
    let program = compile_c(PROGRAM, &[]);
    let mut command = poundlock();
    let report = scratch().join("report");
    command.args(["stat", "-o"]).arg(report).arg("--").arg(program).arg("stay");
    let mut running = start(&mut command);
    running.wait_for_output("stuck", LIMIT);
    let pid = stuck(&running.output_so_far()).to_string();
    let look = |arguments: &[&str]| {
        let output = run_limited(
            poundlock_bare().args(["top", "--interval", "0.05", "--top", "0"]).args(arguments),
            LIMIT,
        );
        expect_status(&output, 0);
        stdout(&output)
    };
    let text = look(&["--count", "2", "--pid", &pid]);
    assert_eq!(text.lines().filter(|line| line.contains(LOCK)).count(), 2, "{text}");
    assert!(text.lines().all(|line| line.len() < 200 && !line.contains('\x1b')), "{text}");
    let text = look(&["--count", "1", "--threads", "--pid", &pid]);
    assert!(text.contains("waits for lock (in program), "), "{text}");
    // And of all that there are. Those of other tests may have locks of the same name, which count as one: but
    // none has this thread.
    let text = look(&["--count", "1", "--threads"]);
    let holder = format!(" {pid}  ");
    let row = text.lines().find(|line| line.contains(&holder)).unwrap_or_else(|| panic!("{text}"));
    assert!(row.contains("holds lock (in program)"), "{text}");
    // Whoever looks is none of those that are followed: `stat` ends with the program.
    running.kill(libc::SIGTERM);
    expect_status(&running.finish(LIMIT), 128 + libc::SIGTERM);
}

/// A process that nobody has prepared is known by its futex calls, and what they do not tell is not made up.
#[test]
fn any_process_is_looked_at_by_its_futex_calls() {
    let program = compile_c(PROGRAM, &[]);
    let mut running = start(Command::new(program).arg("stay"));
    running.wait_for_output("stuck", LIMIT);
    let pid = running.id().to_string();
    let arguments = ["top", "--interval", "0.1", "--count", "2", "--pid", &pid];
    let output = run_limited(poundlock_bare().args(arguments), LIMIT);
    running.kill(libc::SIGTERM);
    if output.status.code() == Some(125) {
        return missing("a right to see futex calls", stderr(&output).trim());
    }
    expect_status(&output, 0);
    assert!(stderr(&output).contains(&format!("process {pid}: by futex calls: ")), "{}", stderr(&output));
    let text = stdout(&output);
    let row = text.lines().find(|line| line.contains(LOCK)).unwrap_or_else(|| panic!("{text}"));
    // Nobody sees how long it was held.
    assert!(row.contains("          -  lock (in program)"), "{row}");
}

/// A lock that the library does not count is seen by its futex calls, in the same table.
#[test]
fn a_lock_of_the_commands_own_is_seen_beside_what_the_library_counts() {
    if !can_watch() {
        return;
    }
    let program = compile_c(include_str!("../../../tests/stat/ownlock.c"), &["-O1"]);
    let mut command = poundlock();
    command.args(["top", "--interval", "0.2", "--"]).arg(program).stdin(Stdio::piped());
    let mut top = start(&mut command);
    until("its lock has a row", || {
        let text = top.errors_so_far();
        let row = text.lines().any(|line| line.contains("own_word (in program); woken at leave ("));
        row && text.contains("by futex calls: waits for locks that are not counted")
    });
    // Its threads and its process are counted once.
    until("its threads are counted", || {
        let text = top.errors_so_far();
        text.lines().any(|line| line.contains(" s  program (") && line.contains("): 4 threads, lost "))
    });
    top.write_input(b"");
    expect_status(&top.finish(LIMIT), 0);
}

#[test]
fn what_cannot_be_looked_at_is_said_in_a_line() {
    let ended = {
        let mut child = Command::new("true").spawn().expect("it is there");
        let pid = child.id().to_string();
        child.wait().expect("it ends");
        pid
    };
    for (arguments, status, what) in [
        (&["--pid", &*ended][..], 125, "does not exist, or has ended"),
        (&["--lock", "poundlock"], 2, "for a command that top starts"),
        (&["--pid", "1", "--", "true"], 2, "cannot be used with"),
        (&["--interval", "0"], 2, "not a number of seconds above 0"),
        (&["--count", "1", "--", "/no/such/program"], 127, "no/such/program"),
    ] {
        let output = run_limited(poundlock().arg("top").args(arguments), LIMIT);
        expect_status(&output, status);
        assert!(stderr(&output).contains(what), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

/// A command in a terminal of 100 columns and 24 lines.
struct InTerminal {
    child: Child,
    /// What it is connected to.
    master: File,
    /// And the command; kept open, so that it can be asked about.
    slave: OwnedFd,
    before: libc::termios,
    screen: Screen,
}

impl InTerminal {
    #[track_caller]
    fn start(command: &mut Command) -> InTerminal {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the buffers are there, and null pointers are allowed.
        let made = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        assert_eq!(made, 0, "there are terminals");
        // SAFETY: both are open, and nobody else's.
        let (mut master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let end = || slave.try_clone().expect("another one");
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let before = modes(&slave);
        let others = [master.as_raw_fd(), slave.as_raw_fd()];
        // SAFETY: makes async-signal-safe calls only.
        unsafe {
            command.pre_exec(move || {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                // Nobody is to look at what it dies of.
                libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
                for fd in others {
                    libc::close(fd);
                }
                Ok(())
            });
        }
        // An end of input from before is none of top's: whoever read it would wait for more.
        master.write_all(b"\x04").expect("the terminal is there");
        let child = command.spawn().expect("it starts");
        // SAFETY: changes flags of our own file.
        unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        InTerminal { child, master, slave, before, screen: Screen::new() }
    }

    fn read(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = self.master.read(&mut bytes) {
            self.screen.write(&bytes[..len]);
        }
    }

    /// Waits until a line of the screen has this.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        let mut last = String::new();
        let found = |terminal: &mut InTerminal| {
            terminal.read();
            last = terminal.screen.text();
            last.contains(text)
        };
        let mut found = found;
        until(&format!("the screen shows {text:?}"), || found(self));
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Waits for the end. The terminal is as it was then.
    #[track_caller]
    fn ends(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        until("the command ends", || {
            self.read();
            status = self.child.try_wait().expect("it is ours");
            status.is_some()
        });
        self.read();
        self.is_as_it_was();
        status.expect("it has ended")
    }

    #[track_caller]
    fn is_as_it_was(&self) {
        let now = modes(&self.slave);
        let of = |modes: &libc::termios| (modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag);
        assert_eq!(of(&now), of(&self.before));
        assert!(!self.screen.other && !self.screen.hidden, "the screen is still top's");
    }
}

impl Drop for InTerminal {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SAFETY: takes two numbers: the child's session is one group, itself included.
            unsafe { libc::kill(-self.child.id().cast_signed(), libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

fn modes(terminal: &OwnedFd) -> libc::termios {
    let mut modes = std::mem::MaybeUninit::zeroed();
    // SAFETY: the call fills in a `termios`, of which zeroes are one.
    unsafe {
        libc::tcgetattr(terminal.as_raw_fd(), modes.as_mut_ptr());
        modes.assume_init()
    }
}

/// What a terminal makes of what it is sent, as far as this command goes.
struct Screen {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// Whether the other screen is on, and the cursor off.
    other: bool,
    hidden: bool,
    /// What was printed on the first one.
    first: String,
    /// The beginning of a sequence or a character.
    rest: Vec<u8>,
}

impl Screen {
    fn new() -> Screen {
        let cells = vec![vec![' '; 100]; 24];
        Screen { cells, at: (0, 0), other: false, hidden: false, first: String::new(), rest: Vec::new() }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        let mut left = text.as_str();
        while let Some(c) = left.chars().next() {
            if let Some(sequence) = left.strip_prefix("\x1b[") {
                let Some(end) = sequence.find(|c: char| ('@'..='~').contains(&c)) else { break };
                self.obey(&sequence[..end], sequence.as_bytes()[end]);
                left = &sequence[end + 1..];
                continue;
            }
            if c == '\x1b' && left.len() < 2 {
                break;
            }
            if !self.other {
                self.first.push(c);
            } else if let Some(cell) = self.cells.get_mut(self.at.0).and_then(|row| row.get_mut(self.at.1)) {
                *cell = c;
                self.at.1 += 1;
            }
            left = &left[c.len_utf8()..];
        }
        let done = text.len() - left.len();
        self.rest.drain(..done);
    }

    fn obey(&mut self, parameters: &str, command: u8) {
        match (parameters, command) {
            ("?1049", b'h' | b'l') => self.other = command == b'h',
            ("?25", b'h' | b'l') => self.hidden = command == b'l',
            (_, b'H') => {
                let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1_usize));
                let (row, column) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
                self.at = (row - 1, column - 1);
            }
            (_, b'J') => self.cells.iter_mut().for_each(|row| row.fill(' ')),
            _ => {}
        }
    }

    fn text(&self) -> String {
        let line = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned();
        self.cells.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn the_screen_shows_a_command_and_leaves_it_to_the_terminal() {
    let program = compile_c(PROGRAM, &[]);
    let mut command = poundlock();
    command.args(["top", "--interval", "0.1", "--"]).arg(program).arg("stay");
    let mut terminal = InTerminal::start(&mut command);
    terminal.shows(LOCK);
    terminal.shows("lock (in program): ");
    terminal.press("\r");
    terminal.shows("threads waited at");
    terminal.shows("waiter (");
    terminal.press("t");
    terminal.shows("waits for lock (in program)");
    // What the command prints is not on the screen unless it is asked for.
    assert!(!terminal.screen.text().contains("stuck"));
    terminal.press("o");
    terminal.shows("stuck ");
    terminal.press("?");
    terminal.shows("Ctrl-L         draw");
    assert!(terminal.screen.other && terminal.screen.first.is_empty());
    terminal.press("q");
    until("the screen is gone, and the command's output there", || {
        terminal.read();
        terminal.screen.first.contains("stuck ")
    });
    terminal.is_as_it_was();
    // The command goes on; its status is ours.
    let pid = stuck(&terminal.screen.first);
    assert!(terminal.child.try_wait().expect("it is ours").is_none());
    // SAFETY: takes two numbers.
    unsafe { libc::kill(pid as i32, libc::SIGTERM) };
    assert_eq!(terminal.ends().code(), Some(128 + libc::SIGTERM));
}

#[test]
fn the_terminal_is_as_it_was_whatever_ends_top() {
    let program = compile_c(PROGRAM, &[]);
    let mut command = poundlock();
    command.args(["stat", "-o"]).arg(scratch().join("report")).arg("--").arg(program).arg("stay");
    let mut running = start(&mut command);
    running.wait_for_output("stuck", LIMIT);
    let pid = stuck(&running.output_so_far()).to_string();
    let look = || {
        let mut command = poundlock_bare();
        command.args(["top", "--interval", "0.1", "--pid", &pid]);
        let mut terminal = InTerminal::start(&mut command);
        terminal.shows(LOCK);
        terminal
    };
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGSEGV, libc::SIGABRT] {
        let mut terminal = look();
        // SAFETY: takes two numbers.
        unsafe { libc::kill(terminal.child.id() as i32, signal) };
        assert_eq!(terminal.ends().signal(), Some(signal));
    }
    let mut terminal = look();
    // Half a sequence is no reason to wait, and a terminal that is gone is none to go on.
    terminal.press("\x1b[");
    terminal.master = File::open("/dev/null").expect("it is there");
    let mut status = None;
    until("top ends with its terminal", || {
        status = terminal.child.try_wait().expect("it is ours");
        status.is_some()
    });
    assert!(!status.expect("it has ended").success());
    let mut terminal = look();
    // The end of what is looked at stays on the screen until somebody has seen it.
    running.kill(libc::SIGTERM);
    expect_status(&running.finish(LIMIT), 128 + libc::SIGTERM);
    terminal.shows("all processes have ended; q leaves");
    terminal.press("\x03");
    assert_eq!(terminal.ends().code(), Some(0));
}
