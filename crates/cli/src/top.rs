//! `poundlock top`: which locks a program loses time for, now. A live table in a terminal; elsewhere a table an
//! interval.
//!
//! All is done by one thread, while `launch` waits for the command's end and for signals: it looks when it is
//! time, and for keys twenty times a second.

mod futexes;
mod keys;
mod plain;
mod screen;
mod source;
mod spool;
mod statfiles;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use poundlock_names::LockName;

use crate::launch::{self, ENDING, Meanwhile, Streams};
use crate::message::{Failure, say, status};
use crate::observe::place::{self, monotonic_ns};
use crate::observe::proc::{Stat, clock_ns};
use crate::program::{self, reason};
use crate::stat::{self, Measured};
use crate::{output, run};
use futexes::Futexes;
use screen::{Action, App, Page};
use source::{All, Source};
use spool::Spool;
use statfiles::{StatFiles, Whose};
use table::Table;
use terminal::Screen;

/// How often is looked, unless that costs more than [`SHARE`] of a CPU.
const INTERVAL: Duration = Duration::from_secs(1);
const SHARE: u32 = 50;
/// How long looks may be apart for that.
const LONGEST: Duration = Duration::from_secs(10);
/// How often is looked for keys,
const KEYS: Duration = Duration::from_millis(50);
/// and for what the command has printed, once that goes to the terminal.
const OUTPUT: Duration = Duration::from_millis(100);

/// Whom to look at.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Look at these processes; without it and without a command at all processes that run under `stat` or `top`
    #[arg(
        long,
        value_name = "PID[,PID]",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=i32::MAX as i64),
    )]
    pid: Vec<u32>,
    /// Look as often [default: every second, or less often where that took more than 2 % of a CPU]
    #[arg(long, value_name = "SECONDS", value_parser = stat::seconds)]
    interval: Option<Duration>,
    /// End after N looks; a command goes on then
    #[arg(long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// Print a table an interval, as on a pipe
    #[arg(long)]
    plain: bool,
    /// How many rows a printed table has; 0 for all of them
    #[arg(long, value_name = "N", default_value_t = stat::text::DEFAULT_SHOWN)]
    top: usize,
    /// Show threads first, or print them, rather than locks
    #[arg(long)]
    threads: bool,
    #[command(flatten)]
    run: run::Args,
}

pub(crate) fn main(args: Args) -> ExitCode {
    let code = if args.run.command.is_empty() { attached(&args) } else { command(&args) };
    match code {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

/// Looks at processes that run.
fn attached(args: &Args) -> Result<u8, Failure> {
    if args.run.lock.is_some() || args.run.rwlock.is_some() || args.run.semaphores.is_some() {
        return Err(Failure::new(
            status::USAGE,
            "--lock, --rwlock and --semaphores are for a command that top starts: name it after `--`",
        ));
    }
    let source = sources(&args.pid)?;
    // Before the screen comes: from here on a signal leaves the terminal as it was.
    launch::await_signals();
    let mut top = Top::new(args, source, std::io::stdout().is_terminal(), None)?;
    // What there is now is where counting begins.
    top.begin();
    let signal = launch::linger(&mut top, &mut || true);
    top.leave();
    if let Some(signal) = signal {
        launch::end_by(signal);
    }
    top.failure.map_or(Ok(0), Err)
}

/// The sources of processes that run.
fn sources(pids: &[u32]) -> Result<Box<dyn Source>, Failure> {
    let ours = |line: String| Failure::new(status::OURS, line);
    if pids.is_empty() {
        let mut records = StatFiles::new(Whose::Everybody);
        if !records.discover() {
            return Err(ours(format!(
                "no process of yours has figures: start one with `poundlock top -- COMMAND`, or name one that runs \
                 with --pid PID{}",
                records.notes().first().map(|note| format!(" ({note})")).unwrap_or_default()
            )));
        }
        return Ok(Box::new(records));
    }
    let mut with = Vec::new();
    let mut without = Vec::new();
    for &pid in pids {
        if Stat::read(pid).is_none_or(|stat| stat.is_over()) {
            return Err(ours(format!("process {pid} does not exist, or has ended")));
        }
        let mut records = StatFiles::new(Whose::Processes(vec![pid]));
        match (records.discover(), records.notes().pop()) {
            (true, _) => with.push(pid),
            (false, None) => without.push(pid),
            // It has figures that are none of ours to read.
            (false, Some(note)) => return Err(ours(note)),
        }
    }
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    if !with.is_empty() {
        sources.push(Box::new(StatFiles::new(Whose::Processes(with))));
    }
    if !without.is_empty() {
        sources.push(Box::new(Futexes::attach(&without)?));
    }
    Ok(Box::new(All(sources)))
}

/// Runs the command, looks at it, and passes its exit status on.
fn command(args: &Args) -> Result<u8, Failure> {
    let locks = args.run.locks(LockName::Glibc)?;
    args.run.semaphores()?;
    let program = launch::find(&args.run.command)?;
    program::check(&program)?;
    place::check_file_size()?;
    let Measured { environment, dir, command: _ } = Measured::new(&args.run, &program, locks)?;
    let name = args.run.command[0].to_string_lossy().into_owned();
    let source = Box::new(StatFiles::new(Whose::Run(dir.path().to_owned())));
    // Before the screen comes: from here on a signal leaves the terminal as it was.
    launch::await_signals();
    let mut top = Top::new(args, source, std::io::stderr().is_terminal(), Some(name))?;
    let streams = top.streams()?;
    let ended = launch::run_on(&program, &args.run.command, &environment, streams, &mut top)?;
    top.command_ended(&ended.in_words());
    launch::linger(&mut top, &mut || true);
    top.leave();
    stat::remark(dir.path(), &ended, &args.run.command[0]);
    if let Some(words) = ended.obituary() {
        say(format_args!("{}: {words}", args.run.command[0].display()));
    }
    Ok(ended.exit_code())
}

/// Everything, while it lasts.
struct Top<'a> {
    args: &'a Args,
    source: Box<dyn Source>,
    table: Table,
    app: App,
    /// Until the user leaves it.
    screen: Option<Screen>,
    /// What the command prints, if that does not go where it would.
    spool: Option<Spool>,
    /// The command that we started,
    command: Option<String>,
    /// and whether it runs.
    runs: bool,
    /// When the next look is, and how much CPU time the last ones took.
    due: Instant,
    costs: [Duration; 3],
    looks: u64,
    /// Nothing more is to be shown.
    done: bool,
    /// Somebody wants all of this to end.
    ending: bool,
    /// What is on its way to us because we sent it to all.
    expected: Option<libc::c_int>,
    failure: Option<Failure>,
}

impl<'a> Top<'a> {
    fn new(
        args: &'a Args,
        source: Box<dyn Source>,
        is_terminal: bool,
        command: Option<String>,
    ) -> Result<Top<'a>, Failure> {
        let said = |name| std::env::var_os(name).filter(|value: &std::ffi::OsString| !value.is_empty());
        let dumb = said("TERM").is_none_or(|term| term == "dumb");
        let draws = is_terminal && !dumb && !args.plain;
        let terminal = |error: std::io::Error| {
            let line = format_args!("the terminal: {}; --plain prints tables", reason(&error));
            Failure::new(status::OURS, line)
        };
        let spool = (draws && command.is_some()).then(Spool::new).transpose().map_err(|error| {
            let line = format_args!("a file for what the command prints: {}", reason(&error));
            Failure::new(status::OURS, line)
        })?;
        let screen = match (draws, &command) {
            (false, _) => None,
            (true, None) => Some(Screen::enter(std::io::stdout().as_fd()).map_err(terminal)?),
            (true, Some(_)) => Some(Screen::enter(std::io::stderr().as_fd()).map_err(terminal)?),
        };
        let mut top = Top {
            args,
            source,
            table: Table::new(monotonic_ns()),
            app: App::new(args.threads, said("NO_COLOR").is_none(), spool.is_some()),
            screen,
            spool,
            runs: command.is_some(),
            command,
            due: Instant::now() + args.interval.unwrap_or(INTERVAL),
            costs: [Duration::ZERO; 3],
            looks: 0,
            done: false,
            ending: false,
            expected: None,
            failure: None,
        };
        top.draw();
        Ok(top)
    }

    /// What the command's streams are to be: what would go to the terminal goes to the spool, and keys are ours.
    fn streams(&self) -> Result<Streams, Failure> {
        let Some(spool) = &self.spool else { return Ok(Streams::default()) };
        let end = || {
            spool.end().map_err(|error| {
                let line = format_args!("a file for what the command prints: {}", reason(&error));
                Failure::new(status::OURS, line)
            })
        };
        Ok(Streams {
            input: std::io::stdin().is_terminal().then(Stdio::null),
            output: std::io::stdout().is_terminal().then(end).transpose()?,
            error: std::io::stderr().is_terminal().then(end).transpose()?,
        })
    }

    /// The first look at what ran before we came.
    fn begin(&mut self) {
        let now = monotonic_ns();
        let all = self.source.look(now);
        let times = self.source.times();
        self.table.take(all, times.as_ref(), now, self.args.threads);
    }

    fn interval(&self) -> Duration {
        let cost = self.costs.iter().min().copied().unwrap_or_default();
        self.args.interval.unwrap_or_else(|| (cost * SHARE).clamp(INTERVAL, LONGEST))
    }

    /// One look, and what it shows.
    fn look(&mut self) {
        let begun = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        self.looks += 1;
        let now = monotonic_ns();
        let all = self.source.look(now);
        let plain = self.screen.is_none();
        let threads = if plain { self.args.threads } else { self.app.wants_threads() };
        let times = self.source.times();
        let view = self.table.take(all, times.as_ref(), now, threads);
        let goes_on = self.source.goes_on();
        let notes = self.source.notes();
        if plain {
            for note in notes.iter().filter(|note| !self.app.notes.contains(note)) {
                say(note);
            }
            self.app.notes = notes;
            let rows = if self.args.top == 0 { usize::MAX } else { self.args.top };
            let text = plain::table(&view, plain::Wanted { rows, threads });
            self.print(&text);
        } else {
            self.app.notes = notes;
            self.app.show(view);
        }
        if !self.runs && !goes_on {
            if plain {
                self.done = true;
            } else if self.app.ended.is_none() {
                self.app.ended = Some("all processes have ended; q leaves".to_owned());
            }
        }
        if self.args.count.is_some_and(|count| self.looks >= count.get()) {
            self.leave();
        }
        self.draw();
        let ended = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        let cost = ended.zip(begun).map_or(0, |(ended, begun)| ended.saturating_sub(begun));
        self.costs.rotate_left(1);
        self.costs[2] = Duration::from_nanos(cost);
        self.due = Instant::now() + self.interval();
    }

    /// Where reports go: a command has standard output for itself.
    fn print(&mut self, text: &str) {
        if self.command.is_some() {
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        } else if let Err(failure) = output::print(text) {
            self.failure = Some(failure);
        }
    }

    fn draw(&mut self) {
        let Some(screen) = &mut self.screen else { return };
        let text = match self.app.page() {
            Page::Stacks(id) => self.table.detail(id),
            Page::Output => self.spool.as_ref().map(Spool::tail),
            _ => None,
        };
        let drawn = screen.draw(|frame| self.app.draw(frame, text));
        if let Err(error) = drawn {
            self.lost_terminal(&error);
        }
    }

    /// A terminal that is gone is nothing to look at.
    fn lost_terminal(&mut self, error: &std::io::Error) {
        self.screen = None;
        self.done = true;
        if self.command.is_none() {
            let line = format_args!("the terminal: {}", reason(error));
            self.failure = Some(Failure::new(status::OURS, line));
        }
    }

    /// The screen goes, and what the command has printed comes.
    fn leave(&mut self) {
        self.screen = None;
        self.done = true;
        self.pass();
    }

    fn pass(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        if spool.pass(&mut std::io::stderr().lock()).is_err() {
            // Nobody is there to read it.
            self.spool = None;
        }
    }

    /// The command has ended: what is there stays until somebody has seen it.
    fn command_ended(&mut self, how: &str) {
        self.runs = false;
        if self.is_over() {
            return;
        }
        let name = self.command.as_deref().unwrap_or_default();
        self.app.ended = Some(format!("{name} has ended ({how}); q leaves"));
        self.look();
    }

    fn keys(&mut self) {
        let Some(screen) = &mut self.screen else { return };
        let keys = match screen.keys() {
            Ok(keys) => keys,
            Err(error) => return self.lost_terminal(&error),
        };
        let changed = !keys.is_empty() || screen.has_changed();
        for key in keys {
            match self.app.key(key) {
                Action::Nothing => {}
                Action::Quit => self.leave(),
                Action::Interrupt => {
                    self.leave();
                    if self.runs {
                        self.expected = Some(libc::SIGINT);
                        // SAFETY: takes two numbers: our own process group, as the terminal does.
                        unsafe { libc::kill(0, libc::SIGINT) };
                    }
                }
                Action::Suspend => {
                    if let Some(Err(error)) = self.screen.as_mut().map(Screen::suspend) {
                        return self.lost_terminal(&error);
                    }
                }
                Action::Look => self.due = Instant::now(),
                Action::Anew => self.table.begin_anew(),
                Action::Repaint => {
                    if let Some(Err(error)) = self.screen.as_mut().map(Screen::clear) {
                        return self.lost_terminal(&error);
                    }
                }
            }
        }
        if changed {
            self.draw();
        }
    }
}

impl Meanwhile for Top<'_> {
    fn next(&mut self) -> Option<Duration> {
        let look = self.due.saturating_duration_since(Instant::now());
        let pauses = [
            (!self.done && !self.app.is_paused()).then_some(look),
            self.screen.is_some().then_some(KEYS),
            (self.done && self.spool.is_some()).then_some(OUTPUT),
            self.source.tends().filter(|_| !self.done),
        ];
        pauses.into_iter().flatten().min()
    }

    fn tick(&mut self) {
        if !self.done {
            self.source.tend();
        }
        self.keys();
        if self.done {
            self.pass();
        } else if !self.app.is_paused() && self.due <= Instant::now() {
            self.look();
        }
    }

    fn keeps(&mut self, signal: libc::c_int) -> bool {
        if self.expected == Some(signal) {
            self.expected = None;
            return true;
        }
        self.ending |= self.runs && ENDING.contains(&signal);
        false
    }

    fn is_over(&self) -> bool {
        self.done || self.ending || self.failure.is_some()
    }
}
