//! Independent runs, by names: what the command and the tables of published figures are made of.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::qspin::Kind;

use crate::locks;
use crate::machine::{MICROSECOND, Machine, Picoseconds};
use crate::platform::Settings;
use crate::workload::aim7::{Aim7, Profile};
use crate::workload::{Measured, Turns};

/// What the threads do.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// They take turns at one lock.
    Grid {
        /// Work inside.
        critical: Picoseconds,
        /// Work outside.
        think: Picoseconds,
    },
    /// They are users of AIM7.
    Aim7 {
        /// On this kernel.
        kernel: String,
        /// Who draw from this mix.
        mix: String,
    },
}

impl Work {
    /// The workload of this name; the grid with work of a microsecond inside and four outside.
    ///
    /// # Errors
    /// If there is none.
    pub fn parse(name: &str) -> Result<Work, String> {
        if name == "grid" {
            return Ok(Work::Grid { critical: MICROSECOND, think: 4 * MICROSECOND });
        }
        let known = |kernel: &str, mix: &str| {
            let mut profiles = Profile::known().into_iter();
            profiles.any(|profile| profile.kernel() == kernel && profile.mixes().any(|known| known == mix))
        };
        match name.strip_prefix(AIM7).and_then(|rest| rest.split_once(':')) {
            Some((kernel, mix)) if known(kernel, mix) => {
                Ok(Work::Aim7 { kernel: kernel.to_owned(), mix: mix.to_owned() })
            }
            _ => Err(format!("no workload is called '{name}'; there are {}", Work::names().join(", "))),
        }
    }

    /// All names.
    pub fn names() -> Vec<String> {
        let mut names = vec!["grid".to_owned()];
        for profile in Profile::known() {
            names.extend(profile.mixes().map(|mix| format!("{AIM7}{}:{mix}", profile.kernel())));
        }
        names
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Work::Grid { .. } => "grid".to_owned(),
            Work::Aim7 { kernel, mix } => format!("{AIM7}{kernel}:{mix}"),
        }
    }
}

/// What its workloads' names begin with; the kernel's version and the mix follow.
pub const AIM7: &str = "aim7-";

/// A run.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// Where.
    pub machine: &'a Machine,
    /// What.
    pub work: Work,
    /// What the jobs of AIM7 do, by kernel.
    pub profiles: &'a [Profile],
    /// With which lock. AIM7 takes a mutex or a spinlock; the kernel's other one is the one that was usual.
    pub lock: &'a str,
    /// How many threads there are, or users.
    pub threads: u32,
    /// Of all that is left to chance.
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
    /// Digits after the point that say something.
    pub decimals: usize,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its figures, the most important first: higher is better there.
    pub figures: Vec<Figure>,
    /// Simulated accesses to memory.
    pub accesses: u64,
}

impl Experiment<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// If the lock loses a wake-up.
    pub fn run(&self) -> Result<Outcome, String> {
        let stuck = |stuck| format!("{} on {}: {stuck:?}", self.lock, self.machine.name());
        match &self.work {
            Work::Grid { critical, think } => {
                let turns = Turns {
                    lock: self.lock,
                    threads: self.threads,
                    critical: *critical,
                    think: *think,
                    warm_up: self.time / 4,
                    time: self.time,
                    seed: self.seed,
                };
                let measured = turns.run(self.machine, Settings::DEFAULT).map_err(stuck)?;
                Ok(of_turns(&measured, self.time))
            }
            Work::Aim7 { kernel: version, mix } => {
                let profile = self.profiles.iter().find(|profile| profile.kernel() == version);
                let profile = profile.ok_or_else(|| format!("there is no profile of kernel {version}"))?;
                let (mutex, spinlock) = kernel(self.lock);
                let aim7 = Aim7 {
                    profile,
                    mix,
                    users: self.threads,
                    mutex,
                    spinlock,
                    warm_up: self.time / 2,
                    time: self.time,
                    seed: self.seed,
                };
                let done = aim7.run(self.machine).map_err(stuck)?;
                let mut figures = vec![
                    figure("jobs a minute", done.jobs_a_minute, 0),
                    figure("CPUs busy, %", done.busy * 100.0, 1),
                ];
                figures.extend(done.waiting.iter().map(|(name, share)| Figure {
                    name: format!("{name}, %"),
                    value: share * 100.0,
                    decimals: 2,
                }));
                Ok(Outcome { figures, accesses: done.traffic.accesses })
            }
        }
    }
}

/// A kernel's mutex and spinlock, one of which is this.
fn kernel(lock: &str) -> (&str, &str) {
    let spins = Kind::parse(lock).is_some() || locks::TEXTBOOK.iter().any(|(name, _)| *name == lock);
    if spins { ("mcs-queue", lock) } else { (lock, "ticket") }
}

fn figure(name: &str, value: f64, decimals: usize) -> Figure {
    Figure { name: name.to_owned(), value, decimals }
}

fn of_turns(measured: &Measured, time: Picoseconds) -> Outcome {
    let all: u64 = measured.acquisitions.iter().sum();
    // The warm-up is a quarter.
    let used = measured.used as f64 * 0.8 / all.max(1) as f64;
    let squares: f64 = measured.acquisitions.iter().map(|&count| (count as f64).powi(2)).sum();
    let jain = (all as f64).powi(2) / (squares * measured.acquisitions.len() as f64);
    let per = |count: u64| count as f64 * 0.8 / all.max(1) as f64;
    Outcome {
        figures: vec![
            figure("thousands a second", all as f64 * 1e9 / time as f64, 1),
            figure("CPU time, us each", used / 1e6, 2),
            figure("Jain's index", if all == 0 { 0.0 } else { jain }, 2),
            figure("transfers each", per(measured.traffic.transfers), 2),
            figure("from afar", per(measured.traffic.remote), 2),
        ],
        accesses: measured.traffic.accesses,
    }
}

/// Has each of `count` things done once, on all of the host's CPUs, in order of their numbers, and returns what came of them in that
/// order. `done` is told of each that is done.
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
