//! Independent runs, by names. The command and the tables of published figures are made of them.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::semarray::{MOST_SEMAPHORES, Scheme};

use crate::locks;
use crate::machine::{MICROSECOND, Machine, Picoseconds};
use crate::model::Model;
use crate::platform::Settings;
use crate::profile::Row;
use crate::workload::jobs::{self, Jobs};
use crate::workload::sembench::{Burns, Sembench};
use crate::workload::{Measured, Turns};
use crate::{Simulation, Stuck};

/// What the threads do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// They take turns at one lock.
    Grid {
        /// Work inside.
        critical: Picoseconds,
        /// Work outside.
        think: Picoseconds,
    },
    /// They count, in turns, and do nothing else.
    MiscMutex,
    /// They are users that draw jobs.
    Jobs {
        /// What the jobs do: a profile's name.
        profile: String,
        /// How often each is drawn.
        mix: String,
    },
    /// They sleep in an array of semaphores, and another thread wakes them.
    Sembench {
        /// How many it wakes at a time.
        wakes: u32,
    },
}

impl Work {
    /// The workload of this name; the grid with work of one microsecond inside and four outside, sembench
    /// with 64 wake-ups at a time.
    ///
    /// # Errors
    /// If there is no such workload.
    pub fn parse(name: &str) -> Result<Work, String> {
        if name == "grid" {
            return Ok(Work::Grid { critical: MICROSECOND, think: 4 * MICROSECOND });
        }
        if name == "misc-mutex" {
            return Ok(Work::MiscMutex);
        }
        if name == "sembench" {
            return Ok(Work::Sembench { wakes: 64 });
        }
        let known = |profile: &str, mix: &str| {
            let mut profiles = jobs::Profile::known().into_iter();
            profiles.any(|known| known.name() == profile && known.mixes().any(|known| known == mix))
        };
        match name.split_once(':') {
            Some((profile, mix)) if known(profile, mix) => {
                Ok(Work::Jobs { profile: profile.to_owned(), mix: mix.to_owned() })
            }
            _ => Err(format!("no workload is called '{name}'; there are {}", Work::names().join(", "))),
        }
    }

    /// All names.
    pub fn names() -> Vec<String> {
        let mut names = ["grid", "misc-mutex", "sembench"].map(str::to_owned).to_vec();
        for profile in jobs::Profile::known() {
            names.extend(profile.mixes().map(|mix| format!("{}:{mix}", profile.name())));
        }
        names
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Work::Grid { .. } => "grid".to_owned(),
            Work::MiscMutex => "misc-mutex".to_owned(),
            Work::Jobs { profile, mix } => format!("{profile}:{mix}"),
            Work::Sembench { .. } => "sembench".to_owned(),
        }
    }

    /// Whether [`Experiment::profile`] knows its one lock from other memory.
    pub fn has_profile(&self) -> bool {
        matches!(self, Work::Grid { .. } | Work::MiscMutex)
    }

    /// The locks that it can be run with, by name: ours first, or the ways an array of semaphores works.
    pub fn locks(&self) -> Vec<&'static str> {
        match self {
            Work::Sembench { .. } => Scheme::ALL.map(Scheme::name).to_vec(),
            _ => locks::names().collect(),
        }
    }
}

/// A virtual machine to run it in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Guest {
    /// The hypervisor's name.
    pub hypervisor: String,
    /// How many virtual CPUs it has.
    pub vcpus: u32,
    /// Whether each has a real CPU and the guest knows the machine's sockets, or neither.
    pub pinned: bool,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// Where.
    pub machine: &'a Machine,
    /// In which virtual machine there, if any.
    pub guest: Option<Guest>,
    /// What.
    pub work: Work,
    /// The hypervisors, and what jobs do.
    pub model: &'a Model,
    /// One of the workload's locks. Jobs take a mutex or a spinlock; the kernel's other lock is the usual
    /// one.
    pub lock: &'a str,
    /// How many threads there are, or users.
    pub threads: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// How much simulated time is counted.
    pub time: Picoseconds,
}

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is, with its unit.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Significant digits after the point.
    pub decimals: usize,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its figures, the most important first: higher is better there.
    pub figures: Vec<Figure>,
    /// Simulated accesses to memory.
    pub accesses: u64,
    /// Which of them needed transfers, if [`Experiment::profile`] was called.
    pub profile: Option<Profile>,
}

/// Which accesses needed transfers. As in the figures, the warm-up counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The words and steps, those that took most time first.
    pub rows: Vec<Row>,
    /// How many acquisitions they are of: those that were counted, and a quarter of that for the warm-up.
    pub acquisitions: f64,
}

impl Outcome {
    /// One of its figures, by name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }
}

/// Names of figures.
pub(crate) mod pick {
    pub(crate) const JOBS_A_MINUTE: &str = "jobs a minute";
    pub(crate) const NS_EACH: &str = "ns each";
    pub(crate) const SECONDS: &str = "seconds";
    pub(crate) const SPINLOCKS: &str = "spinlocks, %";
    pub(crate) const DIRECTORY: &str = "directory, %";
    pub(crate) const JOURNAL: &str = "journal, %";
    pub(crate) const BURNS: &str = "burns a second";
    pub(crate) const MAIN_BURNS: &str = "main burns in 30 s";
    pub(crate) const SPINNING: &str = "spinning, per mille";
    pub(crate) const CONTENDED: &str = "contended, %";
    pub(crate) const WAIT: &str = "wait, ns each";
    pub(crate) const ANON_VMA: &str = "anon-vma, %";
}

impl Experiment<'_> {
    fn simulation(&self, settings: Settings) -> Result<(Simulation, usize), String> {
        let Some(guest) = &self.guest else {
            return Ok((Simulation::new(self.machine, settings, self.seed), self.machine.cpus()));
        };
        let hypervisor = self.model.hypervisors.iter().find(|known| known.name() == guest.hypervisor);
        let hypervisor =
            hypervisor.ok_or_else(|| format!("no hypervisor is called '{}'", guest.hypervisor))?;
        let machine = if guest.pinned { self.machine.clone() } else { self.machine.flat(guest.vcpus) };
        if guest.pinned && guest.vcpus as usize != self.machine.cpus() {
            return Err(format!(
                "a guest that is pinned has as many CPUs as its machine: {}, not {}",
                self.machine.cpus(),
                guest.vcpus
            ));
        }
        let settings = settings.of_guest(self.machine);
        let simulation =
            Simulation::guest(&machine, self.machine, hypervisor, guest.pinned, settings, self.seed);
        Ok((simulation, guest.vcpus as usize))
    }

    fn turns(
        &self,
        critical: Picoseconds,
        think: Picoseconds,
        counts: bool,
        profiled: bool,
    ) -> Result<Outcome, String> {
        let turns = Turns {
            lock: self.lock,
            threads: self.threads,
            critical,
            counts,
            think,
            warm_up: self.time / 4,
            time: self.time,
            seed: self.seed,
        };
        let simulation = self.simulation(Settings::DEFAULT)?.0;
        let measured = if profiled { turns.profile_in(simulation) } else { turns.run_in(simulation) };
        Ok(of_turns(measured.map_err(|stuck| self.stuck(&stuck))?, self.time))
    }

    fn sembench(&self, wakes: u32) -> Result<Outcome, String> {
        if !(1..=MOST_SEMAPHORES).contains(&self.threads) || wakes == 0 {
            return Err(format!("sembench wakes some of 1 to {MOST_SEMAPHORES} threads"));
        }
        let Some(variant) = Scheme::parse(self.lock) else {
            return Err(format!("arrays cannot be '{}'", self.lock));
        };
        let (simulation, cpus) = self.simulation(Settings::KERNEL)?;
        let sembench = Sembench {
            variant,
            threads: self.threads,
            wakes,
            warm_up: self.time / 2,
            time: self.time,
            seed: self.seed,
        };
        let burns = sembench.run_in(simulation, cpus);
        let burns =
            burns.map_err(|failure| format!("{} on {}: {failure}", self.lock, self.machine.name()))?;
        Ok(of_burns(&burns, cpus))
    }

    fn stuck(&self, stuck: &Stuck) -> String {
        format!("{} on {}: {stuck:?}", self.lock, self.machine.name())
    }

    /// Runs it.
    ///
    /// # Errors
    /// If the lock loses a wake-up, or is not one of the workload's, or there is no such guest or profile.
    pub fn run(&self) -> Result<Outcome, String> {
        self.go(false)
    }

    /// Runs it, and says which accesses needed transfers: [`Outcome::profile`].
    ///
    /// # Errors
    /// As [`Experiment::run`]; and if the workload has other locks besides, or none.
    pub fn profile(&self) -> Result<Outcome, String> {
        if !self.work.has_profile() {
            return Err(format!("the workload {} has no profile", self.work.name()));
        }
        self.go(true)
    }

    fn go(&self, profiled: bool) -> Result<Outcome, String> {
        let locks = self.work.locks();
        if !locks.contains(&self.lock) {
            return Err(format!(
                "the workload {} has no lock '{}'; it has {}",
                self.work.name(),
                self.lock,
                locks.join(", ")
            ));
        }
        match &self.work {
            Work::Sembench { wakes } => self.sembench(*wakes),
            Work::Grid { critical, think } => self.turns(*critical, *think, false, profiled),
            Work::MiscMutex => self.turns(0, 0, true, profiled),
            Work::Jobs { profile, mix } => {
                let found = self.model.profiles.iter().find(|known| known.name() == profile);
                let profile = found.ok_or_else(|| format!("there is no profile {profile}"))?;
                let (mutex, spinlock) = kernel(self.lock);
                let jobs = Jobs {
                    profile,
                    mix,
                    users: self.threads,
                    unpinned: self.guest.as_ref().is_some_and(|guest| !guest.pinned),
                    mutex,
                    spinlock,
                    warm_up: self.time / 2,
                    time: self.time,
                    seed: self.seed,
                };
                let (simulation, cpus) = self.simulation(Settings::KERNEL)?;
                let done = jobs.run_in(simulation, cpus).map_err(|stuck| self.stuck(&stuck))?;
                let mut figures = vec![
                    figure(pick::JOBS_A_MINUTE, done.jobs_a_minute, 0),
                    figure(pick::SECONDS, done.seconds, 1),
                    figure("CPUs busy, %", done.busy * 100.0, 1),
                    figure(pick::SPINLOCKS, done.spinning * 100.0, 2),
                ];
                figures.extend(done.waiting.iter().map(|(name, share)| Figure {
                    name: format!("{name}, %"),
                    value: share * 100.0,
                    decimals: 2,
                }));
                Ok(Outcome { figures, accesses: done.traffic.accesses, profile: None })
            }
        }
    }
}

/// A kernel's mutex and spinlock, one of which is this.
fn kernel(lock: &str) -> (&str, &str) {
    if locks::is_spinlock(lock) { ("mcs-queue", lock) } else { (lock, "ticket") }
}

fn figure(name: &str, value: f64, decimals: usize) -> Figure {
    Figure { name: name.to_owned(), value, decimals }
}

fn of_turns(measured: Measured, time: Picoseconds) -> Outcome {
    let all: u64 = measured.acquisitions.iter().sum();
    // The warm-up is a quarter.
    let used = measured.used as f64 * 0.8 / all.max(1) as f64;
    let squares: f64 = measured.acquisitions.iter().map(|&count| (count as f64).powi(2)).sum();
    let jain = (all as f64).powi(2) / (squares * measured.acquisitions.len() as f64);
    let per = |count: u64| count as f64 * 0.8 / all.max(1) as f64;
    Outcome {
        figures: vec![
            figure("thousands a second", all as f64 * 1e9 / time as f64, 1),
            figure(pick::NS_EACH, time as f64 / 1e3 / all.max(1) as f64, 1),
            figure("CPU time, us each", used / 1e6, 2),
            figure("Jain's index", if all == 0 { 0.0 } else { jain }, 2),
            figure("longest without, ms", measured.longest_without as f64 / 1e9, 2),
            figure("transfers each", per(measured.traffic.transfers), 2),
            figure("from afar", per(measured.traffic.remote), 2),
        ],
        accesses: measured.traffic.accesses,
        profile: measured.profile.map(|rows| Profile { rows, acquisitions: all.max(1) as f64 / 0.8 }),
    }
}

fn of_burns(burns: &Burns, cpus: usize) -> Outcome {
    let held = &burns.held;
    let (free, contended, spun) = (held.free as f64, held.contended as f64, held.spun_ns as f64);
    let in_30_s = 30e12 / burns.time as f64;
    Outcome {
        figures: vec![
            figure(pick::BURNS, burns.rate(), 0),
            figure(pick::MAIN_BURNS, burns.main as f64 * in_30_s, 0),
            figure(pick::SPINNING, spun * 1e6 / (burns.time as f64 * cpus as f64), 1),
            figure(pick::CONTENDED, 100.0 * contended / (free + contended).max(1.0), 1),
            figure(pick::WAIT, spun / contended.max(1.0), 0),
            figure("lock free in 30 s", free * in_30_s, 0),
            figure("lock contended in 30 s", contended * in_30_s, 0),
        ],
        accesses: burns.traffic.accesses,
        profile: None,
    }
}

/// Does each of `count` things once, on all of the host's CPUs, in order of their numbers, and returns the
/// results in that order. `done` is called after each.
///
/// # Panics
/// If one of them panics.
pub fn each<T: Send>(count: usize, run: impl Fn(usize) -> T + Sync, done: impl Fn(usize) + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..count).map(|_| None).collect());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(count);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= count {
                        return;
                    }
                    let result = run(at);
                    if let Ok(mut results) = results.lock() {
                        results[at] = Some(result);
                    }
                    done(at);
                }
            });
        }
    });
    results.into_inner().into_iter().flatten().flatten().collect()
}
