//! A run under way: what is measured of it, and the reports that are made while it goes on.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use poundlock_names::{Choice, RwLocks};
use poundlock_statfile::Snapshot;

use super::beside::Beside;
use super::figures::{Figures, forget_longest};
use super::report::{About, Report, STILL_RUNNING, Wanted};
use super::sampler::{Ids, Outcome, Sampler, Whom};
use super::text::{self, Style};
use super::{Args, Files, Neighbours, compare, diagnosis};
use crate::launch::{self, ENDING, Meanwhile};
use crate::message::{Failure, say};
use crate::observe::place::{followed, monotonic_ns};
use crate::observe::proc::name_of;
use crate::program::reason;

/// How often is looked whether a process that goes on in the background has ended.
const LOOK: Duration = Duration::from_millis(200);

/// What is measured, and for how long.
pub(super) struct Session<'a> {
    args: &'a Args,
    dir: &'a Path,
    command: Vec<String>,
    lock: Choice,
    rwlocks: RwLocks,
    began: Instant,
    /// What was there when the delay was over: it does not count.
    before: Vec<Snapshot>,
    measured_from: Option<Instant>,
    sampler: Option<Sampler>,
    /// What futex calls show of processes whose locks our library does not know.
    beside: Beside,
    next_interim: Option<Instant>,
    /// Once the report is made nothing more is measured.
    files: Option<Files>,
    /// Whether the command itself has ended.
    lingers: bool,
    /// Somebody asked the command to end.
    asked_to_end: bool,
    neighbours: Neighbours,
    outcome: Result<(), Failure>,
}

impl<'a> Session<'a> {
    pub(super) fn begin(
        args: &'a Args,
        dir: &'a Path,
        command: Vec<String>,
        (lock, rwlocks): (Choice, RwLocks),
        files: Files,
    ) -> Self {
        let began = Instant::now();
        let sampler = match Sampler::start(dir, Whom::Children, Ids::Theirs) {
            Ok(sampler) => Some(sampler),
            Err(error) => {
                say(format_args!("where threads spend their time is not looked at: {}", reason(&error)));
                None
            }
        };
        Session {
            args,
            dir,
            command,
            lock,
            rwlocks,
            began,
            before: Vec::new(),
            measured_from: args.delay.is_none().then_some(began),
            sampler,
            beside: Beside::new(args.stacks, began),
            next_interim: args.every.map(|pause| began + pause),
            files: Some(files),
            lingers: false,
            asked_to_end: false,
            neighbours: Neighbours::watch(),
            outcome: Ok(()),
        }
    }

    /// When the delay is over.
    fn start_at(&self) -> Option<Instant> {
        self.args.delay.filter(|_| self.measured_from.is_none()).map(|delay| self.began + delay)
    }

    /// When the time is over that was to be measured.
    fn end_at(&self) -> Option<Instant> {
        self.files.as_ref()?;
        Some(self.measured_from? + self.args.r#for?)
    }

    /// Waits for processes that go on in the background.
    pub(super) fn linger(&mut self) {
        let dir = self.dir;
        let there = followed(dir);
        if self.is_over() || there.is_empty() {
            return;
        }
        self.lingers = true;
        let mut names: Vec<String> = there.iter().map(|&pid| name_of(pid)).collect();
        names.dedup();
        let ids: Vec<String> = there.iter().map(u32::to_string).collect();
        let until = match self.end_at() {
            Some(_) => "until the time is over",
            None => "until the end (Ctrl-C: the report now; it goes on then)",
        };
        say(format_args!(
            "{} ({}) goes on in the background and is followed {until}",
            names.join(", "),
            ids.join(", ")
        ));
        crate::launch::linger(self, &mut || !followed(dir).is_empty());
        self.lingers = false;
    }

    fn about(&mut self, ending: String, sampled: Option<&Outcome>) -> About {
        let beside = sampled.and_then(|sampled| self.beside.view(&self.command, &ending, sampled));
        let from = self.measured_from.unwrap_or(self.began);
        let wall_ns = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // One that failed by itself fails again.
        let ends = !self.asked_to_end && ending == launch::EXIT_0;
        let goes_on = self.asked_to_end || ending == STILL_RUNNING;
        let compare = compare::command_line(Some(self.args), &self.command, wall_ns, ends);
        About {
            compare: compare.filter(|_| ends || goes_on),
            busy: self.neighbours.warning(sampled),
            command: self.command.clone(),
            lock: self.lock,
            rwlocks: self.rwlocks,
            wall_ns,
            ending,
            now_ns: monotonic_ns(),
            delayed: self.args.delay.is_some(),
            futexes: None,
            way: None,
            beside_library: false,
            beside: beside.map(Box::new),
        }
    }

    /// Makes the report, as of now or as of the command's end.
    pub(super) fn finish(&mut self, figures: &Figures, sampled: Option<Outcome>, ending: String) {
        let Some(files) = self.files.take() else { return };
        let about = self.about(ending, sampled.as_ref());
        self.outcome = super::report(self.args, about, &self.before, figures, sampled, files);
    }

    /// Whether a report could not be written.
    pub(super) fn outcome(self) -> Result<(), Failure> {
        self.outcome
    }

    /// What the sampler found, which is no longer needed then.
    pub(super) fn sampled(&mut self) -> Option<Outcome> {
        self.sampler.take().map(Sampler::finish)
    }

    /// A report of the running program, on standard error.
    fn interim(&mut self) {
        let figures = Figures::read(self.dir, monotonic_ns());
        let sampled = self.sampler.as_ref().map(Sampler::so_far);
        let about = self.about(STILL_RUNNING.to_owned(), sampled.as_ref());
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

impl Meanwhile for Session<'_> {
    fn next(&mut self) -> Option<Duration> {
        let beside = self.files.as_ref().and(self.beside.next());
        let next = [self.start_at(), self.end_at(), self.next_interim, beside].into_iter().flatten().min();
        let next = next.map(|at| at.saturating_duration_since(Instant::now()));
        if self.lingers { Some(next.map_or(LOOK, |next| next.min(LOOK))) } else { next }
    }

    fn tick(&mut self) {
        if let (Some(_), Some(sampler)) = (&self.files, &self.sampler) {
            self.beside.tick(sampler);
        }
        let now = Instant::now();
        if self.start_at().is_some_and(|at| at <= now) {
            forget_longest(self.dir);
            self.before = Figures::read(self.dir, monotonic_ns()).whole();
            self.measured_from = Some(now);
            self.neighbours = Neighbours::watch();
            if let Some(sampler) = &self.sampler {
                sampler.begin_anew();
            }
            self.beside.begin_anew();
        }
        if self.next_interim.is_some_and(|at| at <= now) {
            if !self.is_over() {
                self.interim();
            }
            self.next_interim = self.args.every.map(|pause| now + pause);
        }
        if self.end_at().is_some_and(|at| at <= now) {
            let figures = Figures::read(self.dir, monotonic_ns());
            let sampled = self.sampled();
            self.finish(&figures, sampled, STILL_RUNNING.to_owned());
        }
    }

    fn keeps(&mut self, signal: libc::c_int) -> bool {
        self.asked_to_end |= ENDING.contains(&signal);
        if signal != libc::SIGUSR2 {
            return false;
        }
        if !self.is_over() {
            self.interim();
        }
        true
    }

    /// The report has been made.
    fn is_over(&self) -> bool {
        self.files.is_none()
    }
}
