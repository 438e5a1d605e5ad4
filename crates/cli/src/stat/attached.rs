//! `stat` of what needs no preparation: running processes, and commands into which nothing is loaded. What they
//! wait for is seen from outside, by their futex calls ([`crate::attach`]). A process that counts by itself,
//! because `stat` has started it, is read instead.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use poundlock_names::{Choice, LockName, RwLocks};
use poundlock_statfile::Snapshot;

use super::figures::{Figures, forget_longest};
use super::report::{About, Report, STILL_RUNNING, Wanted};
use super::sampler::{Ids, Outcome, Sampler, Whom};
use super::text::{self, Style};
use super::{Args, Files, Neighbours, compare, diagnosis};
use crate::attach::{self, Engine};
use crate::launch::{self, Meanwhile};
use crate::message::{Failure, say, status};
use crate::observe::place::{self, monotonic_ns};
use crate::observe::proc::name_of;
use crate::output::counted;
use crate::program::reason;

/// So often is taken in what has come,
const PAUSE: Duration = Duration::from_millis(10);
/// and is looked whether the processes live.
const LOOK: Duration = Duration::from_millis(100);

/// Where the figures come from.
enum From {
    Calls(Box<Engine>),
    /// The process's own file.
    File(PathBuf),
}

/// What is watched, for how long.
struct Watching<'a> {
    args: &'a Args,
    from: From,
    command: Vec<String>,
    /// Why it is watched, if that was not asked for.
    way: Option<String>,
    began: Instant,
    measured_from: Option<Instant>,
    /// What does not count.
    before: Vec<Snapshot>,
    sampler: Option<Sampler>,
    next_interim: Option<Instant>,
    next_look: Instant,
    files: Option<Files>,
    hurries: bool,
    neighbours: Neighbours,
    /// The report is made, or the processes have ended.
    over: bool,
    outcome: Result<(), Failure>,
}

/// Of processes that run.
pub(super) fn processes(args: &Args) -> Result<u8, Failure> {
    for &pid in &args.pid {
        crate::remote::process::check_id(pid)?;
    }
    let own: Vec<Option<PathBuf>> = args.pid.iter().map(|&pid| attach::record_file(pid)).collect();
    let from = match &own[..] {
        [Some(file)] => From::File(file.clone()),
        _ => {
            let counting = args.pid.iter().zip(&own).find(|(_, file)| file.is_some());
            if let Some((pid, _)) = counting {
                return Err(Failure::new(
                    status::OURS,
                    format_args!("process {pid} counts by itself (poundlock stat): ask for it alone"),
                ));
            }
            From::Calls(Box::new(Engine::attach(&args.pid, args.stacks)?))
        }
    };
    // The sampler wants a place where there could be files.
    let dir = place::directory(super::figures::PREFIX)?;
    let names: Vec<String> = match args.pid[..] {
        [pid] => words(pid),
        _ => args.pid.iter().map(|&pid| name_of(pid)).collect(),
    };
    let whom = Whom::Processes(args.pid.clone());
    let files = Files::open(args)?;
    launch::await_signals();
    let mut watching = Watching::begin(args, from, names, files, (dir.path(), whom));
    if args.r#for.is_none() && args.every.is_none() {
        let whom: Vec<String> = args.pid.iter().map(|&pid| format!("{} ({pid})", name_of(pid))).collect();
        say(format_args!("watching {} until it ends, or Ctrl-C", whom.join(", ")));
    }
    launch::linger(&mut watching, &mut || true);
    watching.finish(None);
    watching.outcome.map(|()| 0)
}

/// Of a command.
pub(super) fn command(args: &Args) -> Result<u8, Failure> {
    watch(args, &launch::find(&args.run.command)?, None)
}

/// Of a command that our library is not loaded into, for the reason that is given: watched without being
/// asked, where the kernel allows it.
pub(super) fn instead(args: &Args, program: &Path, reason: Failure) -> Result<u8, Failure> {
    watch(args, program, Some(reason))
}

fn watch(args: &Args, program: &Path, instead: Option<Failure>) -> Result<u8, Failure> {
    let files = Files::open(args)?;
    let engine = Engine::before_start(program, args.stacks).map_err(|refused| match &instead {
        None => refused,
        Some(reason) => {
            let words = args.run.command.iter().map(|word| word.to_string_lossy().into_owned());
            let words = text::command_line(&words.collect::<Vec<_>>());
            Failure::new(
                reason.status,
                format_args!(
                    "{}; its futex calls would show what it waits for: sudo poundlock stat -- {words} ({})",
                    reason.line, refused.line
                ),
            )
        }
    })?;
    let dir = place::directory(super::figures::PREFIX)?;
    let words: Vec<String> =
        args.run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let from = From::Calls(Box::new(engine));
    let mut watching = Watching::begin(args, from, words, files, (dir.path(), Whom::Children));
    watching.way = instead.map(|reason| format!("{}; seen from outside, by its futex calls", reason.line));
    let ended = launch::run_with(program, &args.run.command, &[], &mut watching)?;
    watching.finish(Some(ended.in_words()));
    match watching.outcome {
        Ok(()) => Ok(ended.exit_code()),
        // The command's own failure says more than ours.
        Err(failure) if ended.status.success() => Err(failure),
        Err(failure) => {
            say(&failure.line);
            Ok(ended.exit_code())
        }
    }
}

/// The command line of a process.
fn words(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    if words.is_empty() { vec![name_of(pid)] } else { words }
}

impl<'a> Watching<'a> {
    fn begin(
        args: &'a Args,
        from: From,
        command: Vec<String>,
        files: Files,
        (dir, whom): (&Path, Whom),
    ) -> Self {
        let before = match &from {
            From::File(file) => {
                forget_longest(file);
                Figures::read(file, monotonic_ns()).whole()
            }
            From::Calls(_) => Vec::new(),
        };
        let began = Instant::now();
        let sampler = match &from {
            From::Calls(engine) => Sampler::start_with(dir, whom, Ids::Ours, Some(engine.kinds())),
            From::File(file) => Sampler::start(file, whom, Ids::Theirs),
        };
        let sampler = sampler.map_err(|error| {
            say(format_args!("where threads spend their time is not looked at: {}", reason(&error)));
        });
        Watching {
            args,
            from,
            command,
            way: None,
            began,
            measured_from: args.delay.is_none().then_some(began),
            before,
            sampler: sampler.ok(),
            next_interim: args.every.map(|pause| began + pause),
            next_look: began + LOOK,
            files: Some(files),
            hurries: false,
            neighbours: Neighbours::watch(),
            over: false,
            outcome: Ok(()),
        }
    }

    fn start_at(&self) -> Option<Instant> {
        self.args.delay.filter(|_| self.measured_from.is_none()).map(|delay| self.began + delay)
    }

    fn end_at(&self) -> Option<Instant> {
        Some(self.measured_from? + self.args.r#for?)
    }

    /// What the processes wait for, and what the figures are about.
    fn figures(&mut self, ending: String, sampled: Option<&Outcome>) -> (Figures, About) {
        let from = self.measured_from.unwrap_or(self.began);
        let (figures, futexes) = match &mut self.from {
            From::Calls(engine) => (Figures::seen(engine.snapshots()), Some(engine.events())),
            From::File(file) => (Figures::read(file, monotonic_ns()), None),
        };
        let own = Choice::parse(LockName::Glibc.name()).unwrap_or_default();
        let lock = match (futexes, figures.snapshots.first()) {
            (None, Some(snapshot)) => Choice::parse(&snapshot.lock).unwrap_or(own),
            _ => own,
        };
        let rwlock = figures.snapshots.first().and_then(|snapshot| RwLocks::parse(&snapshot.rwlock));
        let wall_ns = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let about = About {
            compare: compare::command_line(Some(self.args), &self.command, wall_ns, false),
            busy: self.neighbours.warning(sampled),
            command: self.command.clone(),
            lock,
            rwlocks: RwLocks::of(lock, rwlock),
            wall_ns,
            ending,
            now_ns: monotonic_ns(),
            delayed: self.args.delay.is_some(),
            futexes,
            way: self.way.clone(),
            beside_library: false,
            beside: None,
        };
        (figures, about)
    }

    /// Makes the report, if it is not made. Without words for it the processes may go on.
    fn finish(&mut self, ending: Option<String>) {
        self.over = true;
        let Some(files) = self.files.take() else { return };
        let ending = ending.unwrap_or_else(|| {
            let goes_on = match &self.from {
                From::Calls(engine) => engine.goes_on(),
                From::File(_) => self.args.pid.iter().any(|&pid| place::is_alive(pid)),
            };
            if goes_on { STILL_RUNNING.to_owned() } else { "ended".to_owned() }
        });
        let sampled = self.sampler.take().map(Sampler::finish);
        let (figures, about) = self.figures(ending, sampled.as_ref());
        self.outcome = super::report(self.args, about, &self.before, &figures, sampled, files);
    }

    fn interim(&mut self) {
        let sampled = self.sampler.as_ref().map(Sampler::so_far);
        let (figures, about) = self.figures(STILL_RUNNING.to_owned(), sampled.as_ref());
        let style = Style::of(self.args);
        let wanted = Wanted { each: self.args.each.then_some(style.shown), json: None };
        match Report::new(about, &self.before, &figures, sampled, wanted) {
            Ok(report) => {
                let text = text::text(&report, &diagnosis::of(&report), style);
                let _ = std::io::stderr().lock().write_all(text.as_bytes());
            }
            Err(error) => say(format_args!("the interim report: {error}")),
        }
    }
}

impl Meanwhile for Watching<'_> {
    fn is_over(&self) -> bool {
        self.over
    }

    fn next(&mut self) -> Option<Duration> {
        self.files.as_ref()?;
        let next = [self.start_at(), self.end_at(), self.next_interim].into_iter().flatten().min();
        let next = next.map_or(PAUSE, |at| at.saturating_duration_since(Instant::now()));
        Some(next.min(PAUSE))
    }

    fn tick(&mut self) {
        if self.files.is_none() {
            return;
        }
        let now = Instant::now();
        if let From::Calls(engine) = &mut self.from {
            if !std::mem::replace(&mut self.hurries, true) {
                attach::hurry();
            }
            engine.poll();
        }
        if self.start_at().is_some_and(|at| at <= now) {
            match &mut self.from {
                From::Calls(engine) => engine.begin_anew(),
                From::File(file) => {
                    forget_longest(file);
                    self.before = Figures::read(file, monotonic_ns()).whole();
                }
            }
            self.measured_from = Some(now);
            self.neighbours = Neighbours::watch();
            if let Some(sampler) = &self.sampler {
                sampler.begin_anew();
            }
        }
        if self.next_interim.is_some_and(|at| at <= now) {
            self.interim();
            self.next_interim = self.args.every.map(|pause| now + pause);
        }
        if self.end_at().is_some_and(|at| at <= now) {
            self.finish(Some(STILL_RUNNING.to_owned()));
        }
        if self.next_look <= now && !self.args.pid.is_empty() {
            self.next_look = now + LOOK;
            if !self.args.pid.iter().any(|&pid| place::is_alive(pid)) {
                self.over = true;
            }
        }
    }

    fn keeps(&mut self, signal: libc::c_int) -> bool {
        if signal != libc::SIGUSR2 {
            return false;
        }
        if self.files.is_some() {
            self.interim();
        }
        true
    }
}

/// What is to be said of calls that were seen from outside, and of the way that was taken.
pub(super) fn remarks(events: &attach::Events, way: Option<&str>) -> Vec<String> {
    let mut lines: Vec<String> = way.map(str::to_owned).into_iter().collect();
    lines.push(format!(
        "seen: {}: {} slept, {} found the word changed and did not, {} woke",
        counted(events.calls, "futex call"),
        events.waits,
        events.not_slept,
        events.wakes
    ));
    if events.lost > 0 {
        // What users may keep in memory is a line of the system's settings.
        let more = if attach::is_root() { "" } else { "; root has more room" };
        lines.push(format!(
            "LOST: {} found no room: waits are missing, and wakers may be other ones{more}",
            counted(events.lost, "record")
        ));
    }
    lines.push(
        "not seen: acquisitions that do not sleep, how long locks are held and by whom, threads that spin"
            .to_owned(),
    );
    lines
}
