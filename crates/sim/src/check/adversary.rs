//! Makes schedules that real machines have once a year.
//!
//! Decides, by a seed, when threads are held up and how, which line is slow, and which sleeps end for no
//! reason. The engine asks, and carries it out.

use crate::cache::LineId;
use crate::engine::ThreadId;
use crate::machine::{MICROSECOND, Picoseconds};

/// Disturbances of the threads of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// When exactly.
    pub seed: u64,
    /// One in this many steps (accesses or turns of a wait loop) is held up. 0: none.
    pub one_in: u32,
    /// The longest hold-up.
    pub longest: Picoseconds,
    /// Threads are struck where it hurts.
    pub strikes: Option<Strikes>,
    /// A line is slow.
    pub slow: Option<Slow>,
    /// One in this many sleeps ends for no reason. 0: none.
    pub spurious: u32,
    /// The run ends after this many steps. 0: it does not.
    pub steps: u64,
}

/// Where it may hurt to be held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Directly after a store or a read-modify-write.
    Wrote,
    /// Directly after a write that spinners wait for.
    Told,
    /// Directly after what it was spinning for has changed: it may be the next.
    Saw,
    /// About to sleep: it has announced it, but does not sleep yet.
    Sleeps,
    /// Woken: others may rely on it now.
    Woken,
    /// About to wake another one.
    Wakes,
    /// Inside the section.
    Inside,
}

impl Place {
    /// All of them.
    pub const ALL: [Place; 7] =
        [Place::Wrote, Place::Told, Place::Saw, Place::Sleeps, Place::Woken, Place::Wakes, Place::Inside];
}

/// How a thread is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It stays on its CPU, as if a hypervisor had taken that away.
    Stalls,
    /// It loses its CPU, and comes back when the time is over.
    Leaves,
    /// Its CPU is given to the next thread that wants it. If there is none, it goes on.
    Yields,
}

/// Blows to threads that are at a certain place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strikes {
    /// Where.
    pub place: Place,
    /// How many visits go unharmed at first.
    pub spared: u32,
    /// Then one in this many is struck.
    pub every: u32,
    /// How many strikes there are in all.
    pub times: u32,
    /// How.
    pub how: How,
    /// For how long.
    pub time: Picoseconds,
}

/// A slow cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The line: they are numbered as they are touched for the first time.
    pub line: u32,
    /// To which core transfers are slow. `None`: to all.
    pub core: Option<u32>,
    /// How much longer they take.
    pub by: Picoseconds,
    /// Since when.
    pub from: Picoseconds,
    /// Until when.
    pub until: Picoseconds,
}

impl Slow {
    /// How much longer a transfer takes that begins now.
    pub(crate) fn delay(&self, line: LineId, core: u32, now: Picoseconds) -> Picoseconds {
        let concerned = line == self.line
            && self.core.is_none_or(|slow| slow == core)
            && (self.from..self.until).contains(&now);
        if concerned { self.by } else { 0 }
    }
}

/// What the engine does to a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blow {
    Hold(How, Picoseconds),
    /// It and all others come to an end.
    End,
}

/// Since when a thread waits, in the call that it is in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Since {
    /// It slept for the first time, or spun for so long that it does nothing else.
    pub(crate) waits: Option<Picoseconds>,
    /// It slept for the first time.
    pub(crate) sleeps: Option<Picoseconds>,
}

#[derive(Clone, Copy, Default)]
struct Marks {
    /// To be struck at its next step.
    due: bool,
    since: Since,
}

/// A [`Disturbance`] at work.
pub(crate) struct Adversary {
    disturbance: Disturbance,
    random: fastrand::Rng,
    /// Steps to the next hold-up.
    left: u64,
    steps: u64,
    /// Visits to the place to the next strike; 0 if there will be none.
    visits: u32,
    strikes: u32,
    threads: Vec<Marks>,
}

impl Adversary {
    pub(crate) fn new(disturbance: Disturbance) -> Adversary {
        let mut adversary = Adversary {
            disturbance,
            random: fastrand::Rng::with_seed(disturbance.seed),
            left: u64::MAX,
            steps: if disturbance.steps == 0 { u64::MAX } else { disturbance.steps },
            visits: disturbance.strikes.map_or(0, |strikes| strikes.spared + 1),
            strikes: disturbance.strikes.map_or(0, |strikes| strikes.times),
            threads: Vec::new(),
        };
        adversary.draw();
        adversary
    }

    fn draw(&mut self) {
        if self.disturbance.one_in > 0 {
            self.left = self.random.u64(1..=2 * u64::from(self.disturbance.one_in));
        }
    }

    fn marks(&mut self, id: ThreadId) -> &mut Marks {
        let id = id as usize;
        if id >= self.threads.len() {
            self.threads.resize(id + 1, Marks::default());
        }
        &mut self.threads[id]
    }

    /// A thread is about to do something. Whether to call [`Adversary::blow`] first.
    #[inline]
    pub(crate) fn steps(&mut self, id: ThreadId) -> bool {
        self.left -= 1;
        self.steps = self.steps.saturating_sub(1);
        self.left == 0 || self.steps == 0 || self.threads.get(id as usize).is_some_and(|marks| marks.due)
    }

    /// What happens to it before.
    pub(crate) fn blow(&mut self, id: ThreadId) -> Option<Blow> {
        if self.steps == 0 {
            return Some(Blow::End);
        }
        let held = self.left == 0;
        if held {
            self.draw();
        }
        if core::mem::take(&mut self.marks(id).due) {
            return self.strike();
        }
        held.then(|| Blow::Hold(How::Stalls, self.random.u64(..=self.disturbance.longest)))
    }

    fn strike(&self) -> Option<Blow> {
        let strikes = self.disturbance.strikes?;
        Some(Blow::Hold(strikes.how, strikes.time))
    }

    /// Whether a thread is to be struck that is at a place.
    fn hits(&mut self, place: Place) -> bool {
        let Some(strikes) = self.disturbance.strikes else { return false };
        if strikes.place != place || self.strikes == 0 {
            return false;
        }
        self.visits -= 1;
        if self.visits > 0 {
            return false;
        }
        self.visits = strikes.every.max(1);
        self.strikes -= 1;
        true
    }

    /// A thread is at a place.
    pub(crate) fn reaches(&mut self, place: Place) -> Option<Blow> {
        if self.hits(place) { self.strike() } else { None }
    }

    /// A thread writes. `told`: others wait for that. What happens comes after.
    pub(crate) fn writes(&mut self, id: ThreadId, told: bool) {
        if self.hits(Place::Wrote) || told && self.hits(Place::Told) {
            self.marks(id).due = true;
        }
    }

    /// A thread begins to sleep, or to do nothing but spin.
    pub(crate) fn waits(&mut self, id: ThreadId, sleeps: bool, now: Picoseconds) {
        let since = &mut self.marks(id).since;
        since.waits.get_or_insert(now);
        if sleeps {
            since.sleeps.get_or_insert(now);
        }
    }

    /// A thread has got what it waited for, or is about to wait for something else. Since when it waited.
    pub(crate) fn since(&mut self, id: ThreadId) -> Since {
        core::mem::take(&mut self.marks(id).since)
    }

    /// How long the sleep that begins now lasts if it ends for no reason.
    pub(crate) fn wakes_up(&mut self) -> Option<Picoseconds> {
        const LONGEST: Picoseconds = 50 * MICROSECOND;
        let one_in = self.disturbance.spurious;
        (one_in > 0 && self.random.u32(..one_in) == 0).then(|| self.random.u64(..=LONGEST))
    }
}
