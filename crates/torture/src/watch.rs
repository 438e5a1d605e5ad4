//! The watchdog: reads what the child says, and ends it.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How often the watchdog looks up, if nothing comes.
const LOOK: Duration = Duration::from_millis(100);

/// How it went.
pub enum Outcome {
    /// All checks did.
    Passed(Report),
    /// One did not.
    Violated {
        /// What it found.
        line: String,
        /// What threads and arrays were about.
        details: Vec<String>,
    },
    /// By this signal, after so long.
    Interrupted {
        /// Its number.
        signal: i32,
        /// So long.
        milliseconds: u64,
    },
}

/// What the child did.
#[derive(Default)]
pub struct Report {
    /// Critical sections, on each kind of lock.
    pub locks: Vec<(u64, String)>,
    /// What else was counted.
    pub counts: Vec<(u64, String)>,
}

/// How long the child takes, and how long it may be silent.
#[derive(Clone, Copy)]
pub struct Watch {
    /// The length of its run.
    pub milliseconds: u64,
    /// So long without progress is a hang.
    pub patience_ms: u64,
}

impl Watch {
    /// Reads what the child says until it has passed, failed, ended, or said nothing for too long.
    pub fn watch(&self, child: &mut Child) -> Outcome {
        let lines = lines_of(child);
        let violated = |line: String| Outcome::Violated { line, details: Vec::new() };
        // The violation that it reported, or else this one.
        let over = |violation: Option<(String, Vec<String>)>, otherwise: String| {
            let (line, details) = violation.unwrap_or((otherwise, Vec::new()));
            Outcome::Violated { line, details }
        };
        let progress = std::io::stderr().is_terminal();
        let mut report = Report::default();
        let mut violation: Option<(String, Vec<String>)> = None;
        let mut silent = Duration::ZERO;
        let mut passed = 0;
        let patience = Duration::from_millis(self.patience_ms);
        loop {
            let signal = SIGNAL.load(Relaxed);
            if signal != 0 && violation.is_none() {
                clear(progress);
                return Outcome::Interrupted { signal, milliseconds: passed };
            }
            let line = match lines.recv_timeout(LOOK) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    // Counted in looks, not by the clock: a machine that was suspended is no hang.
                    silent += LOOK;
                    if silent < patience {
                        continue;
                    }
                    let seconds = patience.as_secs_f64();
                    return over(violation, format!("the process stopped: no sign of life for {seconds} s"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = match child.wait() {
                        Ok(status) => match (status.code(), status.signal()) {
                            (Some(code), _) => format!("with exit status {code}"),
                            (None, signal) => format!("of signal {}", signal.unwrap_or(0)),
                        },
                        Err(error) => format!("unaccountably: {error}"),
                    };
                    return over(violation, format!("the process ended early, {ended}"));
                }
            };
            silent = Duration::ZERO;
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match (word, &mut violation) {
                ("beat", _) => {
                    let mut numbers = rest.split(' ').map(|number| number.parse::<u64>().unwrap_or(0));
                    let (ms, sections) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                    passed = ms;
                    if progress {
                        let left = self.milliseconds.saturating_sub(ms) as f64 / 1000.0;
                        let _ = write!(
                            std::io::stderr(),
                            "\r{sections:12} critical sections, {left:.1} s to go\x1b[K"
                        );
                    }
                    if ms > self.milliseconds + 4 * self.patience_ms && violation.is_none() {
                        return violated(format!(
                            "the threads did not come to an end in {} s",
                            4.0 * patience.as_secs_f64()
                        ));
                    }
                }
                ("lock", None) => report.locks.extend(numbered(rest)),
                ("count", None) => report.counts.extend(numbered(rest)),
                ("done", None) => {
                    clear(progress);
                    return Outcome::Passed(report);
                }
                ("violation", None) => {
                    clear(progress);
                    violation = Some((rest.to_string(), Vec::new()));
                }
                ("thread" | "array", Some((_, details))) => details.push(line),
                ("end", Some(_)) => return over(violation, String::new()),
                (_, Some(_)) => {}
                (_, None) => {
                    return violated(format!("something wrote on the process's standard output: {line:?}"));
                }
            }
        }
    }
}

/// The signal that asks us to end; 0 while there is none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Has the signals by which a run is ended noted, rather than end us: the seed would be lost, the child left.
pub fn heed_signals() {
    extern "C" fn note(signal: libc::c_int) {
        SIGNAL.store(signal, Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to an atomic and does nothing else. A signal that we were started to
        // ignore stays ignored.
        unsafe {
            if libc::signal(signal, note as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

fn numbered(text: &str) -> Option<(u64, String)> {
    let (number, name) = text.split_once(' ')?;
    Some((number.parse().ok()?, name.to_string()))
}

fn clear(progress: bool) {
    if progress {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// The child's standard output, line by line, from a thread that does nothing else.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while let Ok(1..) = reader.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_string();
                line.clear();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

/// Ends the child and all that it forked.
pub fn end(child: &mut Child) {
    if let Ok(group) = libc::pid_t::try_from(child.id()) {
        // SAFETY: kill takes two numbers. The child was started as the leader of a group of its own, and the
        // group's id is not given out again while the child has not been waited for or another member is
        // alive.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.wait();
}

/// The child stands still: gdb, if there is one, says where.
///
/// # Errors
/// Why there is no backtrace, for people.
pub fn backtrace(pid: u32, file: &Path) -> Result<(), String> {
    // Without what was preloaded into us: those may be the locks that are broken.
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-ex", "thread apply all bt", "-p"]).arg(pid.to_string());
    gdb.env_remove("LD_PRELOAD").stdin(Stdio::null());
    let output = gdb.output().map_err(|error| format!("no backtrace: gdb: {error}"))?;
    // What it complained about explains what is missing.
    std::fs::write(file, [output.stdout, output.stderr].concat())
        .map_err(|error| format!("{}: {error}", file.display()))
}
