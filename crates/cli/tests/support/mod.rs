//! What every integration test of the command needs: the command with the preload library beside it, a C compiler,
//! and a limit on the time that a child may take.

pub(crate) mod browser;
pub(crate) mod programs;

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time that a child gets unless the test has a reason for another limit. Generous: the machine may be busy, and
/// only a hang is to fail.
pub(crate) const LIMIT: u64 = 60;

/// `poundlock`, with an environment that finds the preload library and holds nothing else of ours.
pub(crate) fn poundlock() -> Command {
    let mut cmd = poundlock_bare();
    cmd.env("POUNDLOCK_PRELOAD_LIB", preload_library());
    cmd
}

/// `poundlock` for tests that need no preload library: it is not built for them.
pub(crate) fn poundlock_bare() -> Command {
    let mut cmd = Command::new(env!("CARGO_BIN_EXE_poundlock"));
    for name in [
        "LD_PRELOAD",
        "POUNDLOCK_PRELOAD_LIB",
        "POUNDLOCK_LOCK",
        "POUNDLOCK_RWLOCK",
        "POUNDLOCK_STAT_DIR",
        "POUNDLOCK_SEMAPHORES",
        "POUNDLOCK_IPC_DIR",
        "COLUMNS",
    ] {
        cmd.env_remove(name);
    }
    as_from_a_terminal(&mut cmd);
    cmd
}

/// Has a command start as one that is typed at a terminal does, whatever started the tests: a shell has its background jobs
/// ignore some signals, and `nohup` another.
pub(crate) fn as_from_a_terminal(cmd: &mut Command) {
    // SAFETY: signal is async-signal-safe; no function of ours handles these.
    unsafe {
        cmd.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// The preload library, of the profile that this test was built in. Built at most once a test binary; cargo's own lock
/// keeps several test binaries apart.
pub(crate) fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let exe = Path::new(env!("CARGO_BIN_EXE_poundlock"));
        let profile_dir = exe.parent().expect("an executable lies in a directory");
        let target_dir = profile_dir.parent().expect("a profile lies in the target directory");
        let profile = match profile_dir.file_name().and_then(OsStr::to_str) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "poundlock-preload", "--profile", profile, "--target-dir"]);
        cargo.arg(target_dir).current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = cargo.output().expect("cargo starts");
        assert!(output.status.success(), "{cargo:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
        let library = profile_dir.join("libpoundlock_preload.so");
        assert!(library.is_file(), "{cargo:?} left no {}", library.display());
        library
    })
}

/// Runs `cmd` with its output caught. Kills it, with all that it started, after `secs` seconds and then fails the test
/// with what it had written so far.
#[track_caller]
pub(crate) fn run_limited(cmd: &mut Command, secs: u64) -> Output {
    run_limited_with_input(cmd, b"", secs)
}

/// As [`run_limited`], with standard input.
#[track_caller]
pub(crate) fn run_limited_with_input(cmd: &mut Command, input: &[u8], secs: u64) -> Output {
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
pub(crate) struct Started {
    child: std::process::Child,
    what: String,
    stdout: Reader,
    stderr: Reader,
}

/// Starts `cmd` with its output caught, for tests that act on it while it runs.
#[track_caller]
pub(crate) fn start(cmd: &mut Command) -> Started {
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
    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id is positive")
    }

    /// Sends a signal to the command alone.
    pub(crate) fn kill(&self, signal: i32) {
        // SAFETY: kill takes two numbers; the child has not been waited for, so that its id is still its own.
        assert_eq!(unsafe { libc::kill(self.id(), signal) }, 0, "kill: {}", std::io::Error::last_os_error());
    }

    /// Sends a signal to the command's whole process group, as a terminal does.
    pub(crate) fn kill_group(&self, signal: i32) {
        // SAFETY: as in `kill`; the group has the child's id.
        assert_eq!(unsafe { libc::kill(-self.id(), signal) }, 0, "kill: {}", std::io::Error::last_os_error());
    }

    /// Waits until standard output holds `text`.
    #[track_caller]
    pub(crate) fn wait_for_output(&mut self, text: &str, secs: u64) {
        let deadline = Instant::now() + Duration::from_secs(secs);
        while !String::from_utf8_lossy(&self.stdout.so_far()).contains(text) {
            if Instant::now() > deadline {
                self.fail(&format!("did not print {text:?} within {secs} s"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of the command; see [`run_limited`].
    #[track_caller]
    pub(crate) fn finish(mut self, secs: u64) -> Output {
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

/// Reads a pipe in a thread of its own.
struct Reader {
    bytes: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
    thread: std::thread::JoinHandle<()>,
}

impl Reader {
    fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
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
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "neither exit nor signal".to_string(),
    }
}

/// Checks that the command ended with this exit status, and shows what it wrote if not.
#[track_caller]
pub(crate) fn expect_status(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        ending(output.status),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A directory that lasts as long as the test binary's build does: cargo makes it for integration tests.
pub(crate) fn scratch() -> PathBuf {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.{serial}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the scratch directory can be made");
    dir
}

/// Compiles C source text with the system's `cc`, debug information and threads. The flags come after the source, so
/// that libraries may be among them.
#[track_caller]
pub(crate) fn compile_c(source: &str, extra_flags: &[&str]) -> PathBuf {
    compile("cc", "program.c", source, extra_flags)
}

/// Compiles C++ source text; see [`compile_c`].
#[track_caller]
pub(crate) fn compile_cpp(source: &str, extra_flags: &[&str]) -> PathBuf {
    compile("c++", "program.cpp", source, extra_flags)
}

#[track_caller]
fn compile(compiler: &str, name: &str, source: &str, extra_flags: &[&str]) -> PathBuf {
    let dir = scratch();
    let file = dir.join(name);
    std::fs::write(&file, source).expect("the source can be written");
    let program = dir.join("program");
    let mut cmd = Command::new(compiler);
    cmd.args(["-O1", "-g", "-pthread", "-o"]).arg(&program).arg(&file).args(extra_flags);
    let output = cmd.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{cmd:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    program
}
