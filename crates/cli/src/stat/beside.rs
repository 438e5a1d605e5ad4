//! The futex view beside our library's: processes whose threads sleep for locks that the library does not
//! know are watched from outside as well, by their futex calls.
//!
//! Nothing is watched until the sampler has seen such sleeps, so that a program on pthread locks pays
//! nothing. Then the kernel's tracepoints are attached ([`crate::attach`]) where rights allow. The view
//! begins at that moment, and leaves out the waits that the library counts. Without the rights,
//! [`super::diagnosis`] names the command.

use std::time::{Duration, Instant};

use poundlock_names::{Choice, LockName, RwLocks};

use super::figures::Figures;
use super::report::About;
use super::sampler::{Outcome, Sampler};
use super::text::duration;
use crate::attach::{self, Engine, Events, Stacks};
use crate::observe::place::monotonic_ns;
use crate::observe::runtime::Runtime;

/// The pauses between two looks at what the sampler found: from the first they grow to the second.
const LOOK: (Duration, Duration) = (Duration::from_millis(30), Duration::from_millis(500));
/// Pause between two readings of what the kernel recorded.
const READ: Duration = Duration::from_millis(10);
/// A process is watched from so much sleep on, in nanoseconds and as one part in so many of its threads'
/// time.
const ENOUGH: (u64, u64) = (10_000_000, 20);
/// At most so many times are further processes added.
pub(crate) const ENGINES: usize = 8;

/// Whether a process has slept so much for locks that our library does not know that the futex view is
/// wanted.
pub(super) fn is_wanted(sleeps_ns: u64, lived_ns: u64) -> bool {
    sleeps_ns >= ENOUGH.0 && sleeps_ns >= lived_ns / ENOUGH.1
}

/// The processes that the futex view is wanted of, but for those that have it.
pub(crate) fn wanted(sampled: &Outcome, watched: &[u32]) -> Vec<u32> {
    let alive = sampled.processes.iter().filter(|process| process.measured && process.alive);
    let wanted = alive.filter(|process| !watched.contains(&process.outer_pid)).filter(|process| {
        let is = |runtime| is_wanted(process.unmeasured_ns(runtime), process.times.lived_ns);
        // Which runtime it is takes longer to find out than whether that matters.
        is(Some(Runtime::Java)) && is(Runtime::of_process(process.outer_pid))
    });
    wanted.map(|process| process.outer_pid).collect()
}

/// What is watched beside the library.
pub(super) struct Beside {
    stacks: Stacks,
    began: Instant,
    engines: Vec<Engine>,
    pids: Vec<u32>,
    /// When the view began, and what the sampler had found by then.
    since: Option<(Instant, Outcome)>,
    /// The kernel does not let us, or as many processes are watched as may be.
    is_over: bool,
    look_at: Instant,
    pause: Duration,
}

/// The view: what a report of its own is made of.
pub(super) struct View {
    pub(super) about: About,
    pub(super) figures: Figures,
    pub(super) sampled: Outcome,
}

impl Beside {
    pub(super) fn new(stacks: Stacks, began: Instant) -> Beside {
        Beside {
            stacks,
            began,
            engines: Vec::new(),
            pids: Vec::new(),
            since: None,
            is_over: false,
            look_at: began + LOOK.0,
            pause: LOOK.0,
        }
    }

    /// When [`Beside::tick`] is wanted.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.engines.is_empty() {
            return (!self.is_over).then_some(self.look_at);
        }
        Some(Instant::now() + READ)
    }

    /// Reads what has come, and looks for further processes to watch.
    pub(super) fn tick(&mut self, sampler: &Sampler) {
        self.engines.iter_mut().for_each(Engine::poll);
        let now = Instant::now();
        if self.is_over || now < self.look_at {
            return;
        }
        self.pause = (self.pause * 3 / 2).min(LOOK.1);
        let sampled = sampler.so_far();
        let wanted = wanted(&sampled, &self.pids);
        if !wanted.is_empty() {
            self.attach(wanted, sampled);
        }
        self.look_at = Instant::now() + self.pause;
    }

    fn attach(&mut self, wanted: Vec<u32>, sampled: Outcome) {
        match Engine::beside(&wanted, self.stacks) {
            Ok(engine) => {
                attach::hurry();
                self.engines.push(engine);
                self.pids.extend(wanted);
                self.since.get_or_insert_with(|| (Instant::now(), sampled));
                self.is_over = self.engines.len() == ENGINES;
            }
            // One of them has ended meanwhile; or the rights are missing, which will not change.
            Err(_) => self.is_over = wanted.iter().all(|&pid| crate::observe::place::is_alive(pid)),
        }
    }

    /// Forgets the figures so far.
    pub(super) fn begin_anew(&mut self) {
        self.engines.iter_mut().for_each(Engine::begin_anew);
        if let Some(since) = &mut self.since {
            *since = (Instant::now(), Outcome::default());
        }
    }

    /// The view, if there is one.
    pub(super) fn view(&mut self, command: &[String], ending: &str, sampled: &Outcome) -> Option<View> {
        let (since, before) = self.since.as_ref()?;
        let mut events = Events::default();
        let mut snapshots = Vec::new();
        for engine in &mut self.engines {
            snapshots.extend(engine.snapshots());
            events.add(&engine.events());
        }
        let own = Choice::parse(LockName::Glibc.name()).unwrap_or_default();
        let from = u64::try_from((*since - self.began).as_nanos()).unwrap_or(u64::MAX);
        let about = About {
            compare: None,
            busy: None,
            command: command.to_vec(),
            lock: own,
            rwlocks: RwLocks::of(own, None),
            wall_ns: u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX),
            ending: ending.to_owned(),
            now_ns: monotonic_ns(),
            delayed: false,
            futexes: Some(events),
            way: Some(format!(
                "Seen from outside, by futex calls, from {} after the start on: sleeps for locks that are not counted \
                 above",
                duration(from)
            )),
            beside_library: true,
            beside: None,
        };
        Some(View { about, figures: Figures::seen(snapshots), sampled: sampled.since(before, &self.pids) })
    }
}
