//! Children, and a limit on their time.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Seconds that anything may take. Only a hang is to reach this: it is a hundred times what the slowest takes
/// on an idle machine, and the machine may have twenty times as much to do as it can.
pub const LIMIT: u64 = 600;

/// Waits until the condition holds.
///
/// # Panics
/// It does not within [`LIMIT`].
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed().as_secs() < LIMIT, "still waiting after {LIMIT} s: {what}");
        // Whoever is to make it hold needs the CPU.
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Has a command start as one that is typed at a terminal does, whatever started the tests: a shell has its
/// background jobs ignore some signals, and `nohup` another.
pub fn from_a_terminal(command: &mut Command) -> &mut Command {
    // SAFETY: signal is async-signal-safe; no function of ours handles these.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        })
    }
}

/// Runs `cmd` with its output caught. Kills it, with all that it started, after `secs` seconds and then fails
/// the test with what it had written so far.
///
/// # Panics
/// It cannot be started, or takes longer.
#[track_caller]
pub fn run_limited(cmd: &mut Command, secs: u64) -> Output {
    run_limited_with_input(cmd, b"", secs)
}

/// As [`run_limited`], with standard input.
///
/// # Panics
/// It cannot be started, or takes longer.
#[track_caller]
pub fn run_limited_with_input(cmd: &mut Command, input: &[u8], secs: u64) -> Output {
    cmd.stdin(Stdio::piped());
    let mut child = start(cmd);
    let mut stdin = child.child.stdin.take().expect("piped");
    let input = input.to_vec();
    std::thread::spawn(move || {
        // A child that does not read its input closes the pipe: nothing to report.
        let _ = std::io::Write::write_all(&mut stdin, &input);
    });
    child.finish(secs)
}

/// A child in a process group of its own, whose output is being read.
pub struct Started {
    child: Child,
    what: String,
    stdout: Reader,
    stderr: Reader,
}

/// Starts `cmd` with its output caught, for tests that act on it while it runs.
///
/// # Panics
/// It cannot be started.
#[track_caller]
pub fn start(cmd: &mut Command) -> Started {
    let what = format!("{cmd:?}");
    let mut child = cmd
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let stdout = Reader::new(child.stdout.take().expect("piped"));
    let stderr = Reader::new(child.stderr.take().expect("piped"));
    Started { child, what, stdout, stderr }
}

impl Started {
    /// The process id of the command itself.
    ///
    /// # Panics
    /// The system has negative ones.
    #[must_use]
    pub fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id is positive")
    }

    /// Sends a signal to the command alone.
    ///
    /// # Panics
    /// It cannot be sent.
    pub fn kill(&self, signal: i32) {
        // SAFETY: kill takes two numbers; the child has not been waited for, so that its id is still its own.
        assert_eq!(unsafe { libc::kill(self.id(), signal) }, 0, "kill: {}", std::io::Error::last_os_error());
    }

    /// Sends a signal to the command's whole process group, as a terminal does.
    ///
    /// # Panics
    /// It cannot be sent.
    pub fn kill_group(&self, signal: i32) {
        // SAFETY: as in `kill`; the group has the child's id.
        assert_eq!(unsafe { libc::kill(-self.id(), signal) }, 0, "kill: {}", std::io::Error::last_os_error());
    }

    /// Waits until standard output holds `text`.
    ///
    /// # Panics
    /// It does not within this time.
    #[track_caller]
    pub fn wait_for_output(&mut self, text: &str, secs: u64) {
        self.wait_for(text, secs, |this| &this.stdout);
    }

    /// Waits until standard error holds `text`.
    ///
    /// # Panics
    /// It does not within this time.
    #[track_caller]
    pub fn wait_for_error(&mut self, text: &str, secs: u64) {
        self.wait_for(text, secs, |this| &this.stderr);
    }

    #[track_caller]
    fn wait_for(&mut self, text: &str, secs: u64, stream: fn(&Self) -> &Reader) {
        let deadline = Instant::now() + Duration::from_secs(secs);
        while !String::from_utf8_lossy(&stream(self).so_far()).contains(text) {
            if Instant::now() > deadline {
                self.fail(&format!("did not print {text:?} within {secs} s"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What is on standard output so far.
    #[must_use]
    pub fn output_so_far(&self) -> String {
        String::from_utf8_lossy(&self.stdout.so_far()).into_owned()
    }

    /// What is on standard error so far.
    #[must_use]
    pub fn errors_so_far(&self) -> String {
        String::from_utf8_lossy(&self.stderr.so_far()).into_owned()
    }

    /// Writes all of its standard input, which was piped.
    ///
    /// # Panics
    /// It was not, or has been written already.
    pub fn write_input(&mut self, input: &[u8]) {
        let mut stdin = self.child.stdin.take().expect("piped, and not written yet");
        // A child that does not read its input closes the pipe: nothing to report.
        let _ = std::io::Write::write_all(&mut stdin, input);
    }

    /// Waits for the end of the command; see [`run_limited`].
    ///
    /// # Panics
    /// It does not end within this time.
    #[track_caller]
    pub fn finish(mut self, secs: u64) -> Output {
        let deadline = Instant::now() + Duration::from_secs(secs);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            if Instant::now() > deadline {
                self.fail(&format!("did not end within {secs} s"));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        // A grandchild that outlives the command may hold the pipes open: it gets the same limit.
        while !(self.stdout.done() && self.stderr.done()) {
            if Instant::now() > deadline {
                self.fail(&format!("ended, but something it started kept its output open for {secs} s"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Output { status, stdout: self.stdout.so_far(), stderr: self.stderr.so_far() }
    }

    #[track_caller]
    fn fail(&mut self, why: &str) -> ! {
        // SAFETY: kill takes two numbers; the group is the child's, which was started with an id of its own.
        unsafe { libc::kill(-self.id(), libc::SIGKILL) };
        let _ = self.child.wait();
        panic!(
            "{} {why}\n--- stdout\n{}\n--- stderr\n{}",
            self.what,
            String::from_utf8_lossy(&self.stdout.so_far()),
            String::from_utf8_lossy(&self.stderr.so_far())
        );
    }
}

/// A test that fails leaves nothing behind that runs on.
impl Drop for Started {
    fn drop(&mut self) {
        if std::thread::panicking() && matches!(self.child.try_wait(), Ok(None)) {
            // SAFETY: as in `fail`.
            unsafe { libc::kill(-self.id(), libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

/// Reads a pipe in a thread of its own.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = bytes.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                sink.lock().expect("no panic holds this lock").extend_from_slice(&buffer[..n]);
            }
        });
        Reader { bytes, thread }
    }

    fn done(&self) -> bool {
        self.thread.is_finished()
    }

    fn so_far(&self) -> Vec<u8> {
        self.bytes.lock().expect("no panic holds this lock").clone()
    }
}

/// How the command ended, in words that an assertion can print.
#[must_use]
pub fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "neither exit nor signal".to_string(),
    }
}

/// Checks that the command ended with this exit status, and shows what it wrote if not.
///
/// # Panics
/// It did not.
#[track_caller]
pub fn expect_status(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        ending(output.status),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
