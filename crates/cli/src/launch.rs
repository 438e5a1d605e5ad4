//! Starting the command so that it cannot tell the difference, and waiting for it so that nothing is lost.
//! Who has nothing to do at its end becomes it.
//!
//! The command has to start with the signal mask and dispositions that we were started with. `std` changes
//! one of them before `main` (it ignores `SIGPIPE`) and resets the mask in its children, so [`inherited`]
//! takes note before `std` runs, and the child puts it back.
//!
//! While the command runs we catch nothing and ignore nothing: the signals that concern it are blocked here
//! and taken one by one with `sigwaitinfo`. So there is no handler, no race between looking and sleeping, and
//! no moment at which a signal ends us and leaves the command without a report. Who has something else to do
//! meanwhile is called now and then, and may keep signals that would go on to the command ([`Meanwhile`]).

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::memory;
use crate::message::{Failure, status};
use crate::program::{self, reason};

/// The signal state that our parent gave us.
mod inherited {
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;

    /// Signals whose disposition is changed in this process, by `std` or by us.
    pub(super) const CHANGED: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGCHLD];

    pub(super) struct Inherited {
        pub(super) mask: libc::sigset_t,
        pub(super) actions: [libc::sigaction; CHANGED.len()],
    }

    static INHERITED: OnceLock<Inherited> = OnceLock::new();

    /// Run by the C start-up code, before `std` changes anything.
    // SAFETY: the section holds pointers to functions that are called with the C convention before `main`;
    // `note` is one, and needs nothing of `std`'s start-up.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static NOTE: extern "C" fn() = note;

    extern "C" fn note() {
        let _ = INHERITED.set(read());
    }

    fn read() -> Inherited {
        let mut mask = MaybeUninit::zeroed();
        // SAFETY: a null new set changes nothing; the old one is written to `mask`.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
        let actions = CHANGED.map(|signal| {
            let mut action = MaybeUninit::zeroed();
            // SAFETY: a null new action changes nothing; the old one is written to `action`.
            unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: filled in by the call; all zeroes (the default action) would be valid as well.
            unsafe { action.assume_init() }
        });
        // SAFETY: as above; the empty set is all zeroes.
        Inherited { mask: unsafe { mask.assume_init() }, actions }
    }

    pub(super) fn get() -> &'static Inherited {
        INHERITED.get_or_init(read)
    }
}

/// How the command ended.
pub(crate) struct Ended {
    /// Its process id.
    pub(crate) pid: u32,
    /// Its status, as `wait` gave it.
    pub(crate) status: ExitStatus,
    /// From its start to its end.
    pub(crate) wall_ns: u64,
}

/// The end of a command that has done its work, in words.
pub(crate) const EXIT_0: &str = "exit status 0";

impl Ended {
    /// The exit status to pass on: the command's own, or 128 + n after signal n.
    pub(crate) fn exit_code(&self) -> u8 {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => code as u8,
            (None, signal) => 128u8.wrapping_add(signal.unwrap_or(0) as u8),
        }
    }

    /// How it ended: [`EXIT_0`] if all was well.
    pub(crate) fn in_words(&self) -> String {
        self.killed().unwrap_or_else(|| format!("exit status {}", self.status.code().unwrap_or_default()))
    }

    /// By which signal it was killed, in words, if it was.
    fn killed(&self) -> Option<String> {
        let signal = self.status.signal()?;
        let core = if self.status.core_dumped() { ", core dumped" } else { "" };
        Some(match signal_name(signal) {
            Some(name) => format!("killed by {name}{core}"),
            None => format!("killed by signal {signal}{core}"),
        })
    }

    /// What a shell would say of this end, which sees an exit status of ours instead: nothing of one that was
    /// asked for at the terminal, or that a closed pipe brings about.
    pub(crate) fn obituary(&self) -> Option<String> {
        let expected = matches!(self.status.signal(), Some(libc::SIGINT | libc::SIGPIPE));
        self.killed().filter(|_| !expected)
    }
}

pub(crate) fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

/// What is to be done while the command runs.
pub(crate) trait Meanwhile {
    /// In how long [`Meanwhile::tick`] is wanted; `None` if never.
    fn next(&mut self) -> Option<Duration>;

    /// The time has come.
    fn tick(&mut self);

    /// Somebody sent us this signal: whether it was meant for us and not for the command.
    fn keeps(&mut self, signal: libc::c_int) -> bool;

    /// Whether there is nothing more to wait for once the command has ended, or if there is none.
    fn is_over(&self) -> bool {
        false
    }
}

/// There is nothing.
struct Nothing;

impl Meanwhile for Nothing {
    fn next(&mut self) -> Option<Duration> {
        None
    }

    fn tick(&mut self) {}

    fn keeps(&mut self, _: libc::c_int) -> bool {
        false
    }
}

/// Becomes `program` as `argv`, with some environment variables set (or, where there is no value, removed).
/// Returns if that fails.
pub(crate) fn become_program(
    program: &Path,
    argv: &[OsString],
    environment: &[(&OsStr, Option<OsString>)],
) -> Failure {
    not_started(&argv[0], &command(program, argv, environment, Streams::default()).exec())
}

/// Runs a program as [`become_program`] does, and waits for its end. Signals sent to us go on to it.
pub(crate) fn run(
    program: &Path,
    argv: &[OsString],
    environment: &[(&OsStr, Option<OsString>)],
) -> Result<Ended, Failure> {
    run_with(program, argv, environment, &mut Nothing)
}

/// As [`run`], with something to do meanwhile.
pub(crate) fn run_with(
    program: &Path,
    argv: &[OsString],
    environment: &[(&OsStr, Option<OsString>)],
    meanwhile: &mut dyn Meanwhile,
) -> Result<Ended, Failure> {
    run_on(program, argv, environment, Streams::default(), meanwhile)
}

/// Standard streams of a program that are not to be ours.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) input: Option<Stdio>,
    pub(crate) output: Option<Stdio>,
    pub(crate) error: Option<Stdio>,
}

/// As [`run_with`], with other streams.
pub(crate) fn run_on(
    program: &Path,
    argv: &[OsString],
    environment: &[(&OsStr, Option<OsString>)],
    streams: Streams,
    meanwhile: &mut dyn Meanwhile,
) -> Result<Ended, Failure> {
    let set = await_signals();
    // With SIGCHLD ignored, children would vanish unwaited for. Ours is put right; the child gets back what
    // it was. SAFETY: SIG_DFL is a valid disposition of this signal.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };

    let mut command = command(program, argv, environment, streams);
    let start = Instant::now();
    let child = command.spawn().map_err(|error| not_started(&argv[0], &error))?;
    let pid = child.id() as libc::pid_t;
    CODE.store(NONE, SeqCst);
    PROGRAM.store(pid, SeqCst);
    let status = watch(pid, &set, meanwhile).map_err(|error| {
        Failure::new(status::OURS, format_args!("waiting for the command: {}", reason(&error)))
    })?;
    let wall_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let ended = Ended { pid: child.id(), status, wall_ns };
    CODE.store(ended.exit_code().into(), SeqCst);
    memory::check(ended.exit_code());
    Ok(ended)
}

/// The program, to be started with the signal mask and dispositions that we were started with.
pub(crate) fn command(
    program: &Path,
    argv: &[OsString],
    environment: &[(&OsStr, Option<OsString>)],
    streams: Streams,
) -> Command {
    let mut command = Command::new(program);
    command.arg0(&argv[0]).args(&argv[1..]);
    streams.input.map(|input| command.stdin(input));
    streams.output.map(|output| command.stdout(output));
    streams.error.map(|error| command.stderr(error));
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let inherited = inherited::get();
    // SAFETY: the closure makes async-signal-safe calls only, on memory that was there before the fork.
    unsafe {
        command.pre_exec(move || {
            for (signal, action) in inherited::CHANGED.iter().zip(&inherited.actions) {
                libc::sigaction(*signal, action, std::ptr::null_mut());
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const inherited.mask, std::ptr::null_mut());
            Ok(())
        });
    }
    command
}

fn not_started(name: &OsStr, error: &io::Error) -> Failure {
    let missing = error.raw_os_error() == Some(libc::ENOENT);
    let code = if missing { status::NOT_FOUND } else { status::NOT_EXECUTABLE };
    Failure::new(code, format_args!("{}: {}", name.display(), reason(error)))
}

/// For whoever has to end without the rest of us: the program that was started last, and its exit status once
/// it has ended.
static PROGRAM: AtomicI32 = AtomicI32::new(NONE);
static CODE: AtomicI32 = AtomicI32::new(NONE);
const NONE: i32 = -1;

/// Waits for the end of the program, if one was started, whatever the thread that started it does; signals go
/// on to it. Yields its exit status. Allocates nothing.
pub(crate) fn outlast() -> Option<u8> {
    let known = || u8::try_from(CODE.load(SeqCst)).ok();
    let pid = PROGRAM.load(SeqCst);
    if pid == NONE || known().is_some() {
        return known();
    }
    match watch(pid, &forwarded(), &mut Nothing) {
        Ok(status) => Some(Ended { pid: pid as u32, status, wall_ns: 0 }.exit_code()),
        // The other thread was told of the end, and ends us.
        Err(_) => wait_for_the_end(),
    }
}

/// Another thread ends the process.
pub(crate) fn wait_for_the_end() -> ! {
    loop {
        // SAFETY: takes no arguments.
        unsafe { libc::pause() };
    }
}

/// The signals that are not for us: all but those which report a fault of our own, those which stop and
/// continue (they act on us as on the command, so that the shell sees the job stop), and two that glibc keeps
/// for itself.
fn forwarded() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set, and sigdelset takes any signal number.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGSYS,
            libc::SIGTSTP,
            libc::SIGTTIN,
            libc::SIGTTOU,
            libc::SIGCONT,
            // Ours to ignore, when nobody reads our messages any more.
            libc::SIGPIPE,
        ] {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Signals that ask a process to end.
pub(crate) const ENDING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Ends this process as a signal does that it has held up.
pub(crate) fn end_by(signal: libc::c_int) {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the set is initialised before it is used; SIG_DFL is a valid disposition.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// Waits for a signal of the set, or until something else is to be done, which then is done.
fn await_signal(
    set: &libc::sigset_t,
    meanwhile: &mut dyn Meanwhile,
) -> Option<(libc::c_int, libc::siginfo_t)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let signal = match meanwhile.next() {
        // SAFETY: the set is initialised, and the buffer is one `siginfo_t`.
        None => unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) },
        Some(pause) => {
            let limit = libc::timespec {
                tv_sec: libc::time_t::try_from(pause.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: libc::c_long::from(pause.subsec_nanos() as i32),
            };
            // SAFETY: as above; the limit is one `timespec`.
            unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), &raw const limit) }
        }
    };
    if signal < 0 {
        if io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) {
            meanwhile.tick();
        }
        // Else interrupted by a stop and continue.
        return None;
    }
    // SAFETY: the call succeeded and filled it in.
    Some((signal, unsafe { info.assume_init() }))
}

/// Has signals wait until they are asked for, as while a command runs: for those who call [`linger`] without
/// one.
pub(crate) fn await_signals() -> libc::sigset_t {
    let set = forwarded();
    // SAFETY: the set is initialised. Blocked from here on, a signal waits rather than ending us.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    set
}

/// After the command's end: waits while `goes_on`, as the command's children may. Looks whenever there is
/// something to do meanwhile. A signal that ends a process, and is not kept, ends the wait; it is returned.
pub(crate) fn linger(
    meanwhile: &mut dyn Meanwhile,
    goes_on: &mut dyn FnMut() -> bool,
) -> Option<libc::c_int> {
    let set = forwarded();
    while !meanwhile.is_over() && goes_on() {
        if let Some((signal, _)) = await_signal(&set, meanwhile)
            && !meanwhile.keeps(signal)
            && ![libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH].contains(&signal)
        {
            return Some(signal);
        }
    }
    None
}

/// Waits for the child's end and meanwhile passes signals on to it.
fn watch(pid: libc::pid_t, set: &libc::sigset_t, meanwhile: &mut dyn Meanwhile) -> io::Result<ExitStatus> {
    loop {
        let mut status = 0;
        // SAFETY: the buffer is one status.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 => {}
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => return Ok(ExitStatus::from_raw(status)),
        }
        let Some((signal, info)) = await_signal(set, meanwhile) else { continue };
        // What the kernel itself sent (^C, ^\ and the hang-up of a terminal) went to the command as well, as
        // a member of the same process group; only what somebody sent to us has to be passed on.
        if signal == libc::SIGCHLD || meanwhile.keeps(signal) || info.si_code > 0 {
            continue;
        }
        // The child has not been waited for, so that its id cannot be another's by now. If it has died
        // meanwhile, the signal has no addressee and the failure is of no interest.
        if info.si_code == libc::SI_QUEUE {
            // SAFETY: for SI_QUEUE the kernel filled in a value.
            let value = unsafe { info.si_value() };
            // SAFETY: sigqueue takes numbers and a value that it hands on.
            unsafe { libc::sigqueue(pid, signal, value) };
        } else {
            // SAFETY: kill takes two numbers.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

/// All signals blocked, until it is dropped.
pub(crate) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(crate) fn all() -> BlockedSignals {
        let mut all = std::mem::MaybeUninit::zeroed();
        let mut before = std::mem::MaybeUninit::zeroed();
        // SAFETY: both buffers are sets; the first one is filled before it is used, and zeroes are a set.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            BlockedSignals(before.assume_init())
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the kernel gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Ends this process as `SIGPIPE` ends a filter whose output nobody reads: without a word. Returns if our
/// parent had that signal ignored or blocked.
pub(crate) fn end_by_sigpipe() {
    let inherited = inherited::get();
    for (signal, action) in inherited::CHANGED.iter().zip(&inherited.actions) {
        if *signal == libc::SIGPIPE {
            // SAFETY: the action is one that the kernel gave us; raise takes a number.
            unsafe {
                libc::sigaction(libc::SIGPIPE, action, std::ptr::null_mut());
                libc::raise(libc::SIGPIPE);
            }
        }
    }
}

/// Finds what `argv` runs; see [`program::find`].
pub(crate) fn find(argv: &[OsString]) -> Result<std::path::PathBuf, Failure> {
    program::find(&argv[0])
}
