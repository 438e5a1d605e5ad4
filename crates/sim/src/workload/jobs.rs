//! Closed systems: users that draw jobs from a mix, on a small model of the kernel's shared objects.
//!
//! Each user is a thread that draws a job by the mix's weights, does it, and draws the next. A job computes,
//! and in between it enters the kernel for shared objects: it takes an object's lock, touches some of its
//! cache lines, is busy with it for a while, and releases it. In the kernel a thread keeps its CPU, unless it
//! sleeps. How often and for how long is data, with a source for each number: a [`Profile`], for example of
//! AIM7 on a kernel. AIM7's mixes are those of reAIM 7.
//!
//! A run of the benchmark is a number of jobs at the simulated rate, and the time in which the machine is not
//! busy, at its start and end.

use std::cell::Cell;
use std::rc::Rc;

use poundlock_core::platform::Atomic;
use serde::Deserialize;

use super::central::Central;
use super::semaphore::Semaphore;
use crate::atomic::U32;
use crate::locks::{self, Lock};
use crate::machine::{Error, Figure, MICROSECOND, NANOSECOND, Picoseconds};
use crate::{Alone, Simulation, Stuck, Traffic, atomically, in_kernel, node, now, random, sleep, used, work};

/// Each job's weight in each mix of AIM7.
const MIXES: &str = include_str!("../../reference/aim7_mixes.csv");
/// What the jobs do, by kernel.
const PROFILES: [&str; 4] = [
    include_str!("../../workloads/aim7-3.7.toml"),
    include_str!("../../workloads/aim7-3.19.toml"),
    include_str!("../../workloads/aim7-3.19.1.toml"),
    include_str!("../../workloads/kernel-build-4.0.toml"),
];

/// How an object is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// By the mutex that is simulated.
    Mutex,
    /// By the spinlock that is simulated.
    Spinlock,
    /// By a readers-writer spinlock, always the same.
    Rwlock,
    /// By a sleeping lock around the spinlock that is simulated.
    Semaphore,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    name: String,
    kind: Kind,
    /// What it stands for.
    about: String,
    /// Cache lines that each section writes to.
    lines: Figure,
    /// Each socket that the kernel knows of has one.
    #[serde(default)]
    per_node: bool,
}

/// What a job does with an object.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Use {
    object: String,
    /// How often a job does it, or how often inside.
    times: Figure,
    /// Nanoseconds, besides the lines.
    hold: Figure,
    /// How many of 256 write, where there are readers.
    #[serde(default)]
    writes: Option<Figure>,
    /// What it needs of a second object meanwhile, and that of no third.
    #[serde(default)]
    inside: Option<Box<Use>>,
}

impl Use {
    fn each_figure(&mut self, job: &str, see: &mut impl FnMut(String, &mut Figure)) {
        let name = format!("{job}.{}", self.object);
        see(format!("{name}.times"), &mut self.times);
        see(format!("{name}.hold"), &mut self.hold);
        if let Some(writes) = &mut self.writes {
            see(format!("{name}.writes"), writes);
        }
        if let Some(inside) = &mut self.inside {
            inside.each_figure(&name, see);
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    kind: String,
    names: Vec<String>,
    /// Microseconds.
    computes: Figure,
    #[serde(default)]
    uses: Vec<Use>,
    /// Waits for something that is not simulated, such as a disk.
    #[serde(default)]
    sleeps: Option<Sleeps>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleeps {
    /// How often.
    times: Figure,
    /// Microseconds, on average: at least nothing, at most twice that.
    each: Figure,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Idle {
    mix: String,
    /// Seconds.
    idle: Figure,
}

/// A mix that is not one of AIM7's: of one kind of jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mix {
    name: String,
    kind: String,
}

/// What the jobs do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The benchmark and the kernel.
    name: String,
    /// How many jobs each user does in a run, if users make it longer.
    jobs_a_user: Option<Figure>,
    /// How many there are in a run, if they do not.
    jobs_a_run: Option<Figure>,
    /// Left out: AIM7's mixes.
    mix: Option<Mix>,
    /// How many times as long it computes in a guest that does not know which memory is near.
    unpinned: Option<Figure>,
    #[serde(default)]
    /// Seconds of a run in which the machine is not busy.
    runs: Vec<Idle>,
    objects: Vec<Object>,
    jobs: Vec<Job>,
    /// By mix: of each kind of jobs, how many of all that are drawn.
    #[serde(skip)]
    mixes: Vec<(String, Vec<u32>)>,
}

impl Profile {
    /// The profiles that come with Poundlock.
    ///
    /// # Panics
    /// If one makes no sense, which a test excludes.
    pub fn known() -> Vec<Profile> {
        let parse = |text: &&str| Profile::parse(text).unwrap_or_else(|error| panic!("a profile: {error}"));
        PROFILES.iter().map(parse).collect()
    }

    /// What it is of: `aim7-3.7` is AIM7 on Linux 3.7.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// If it is not a profile, or does not fit the mixes.
    pub fn parse(text: &str) -> Result<Profile, Error> {
        let mut profile: Profile =
            toml::from_str(text).map_err(|error| Error::Syntax(error.message().to_owned()))?;
        let wrong = |what: String| Err(Error::Syntax(what));
        for used in profile.jobs.iter().flat_map(|job| &job.uses) {
            let named = |name: &str| profile.objects.iter().find(|object| object.name == name);
            let Some(object) = named(&used.object) else {
                return wrong(format!("no object is called '{}'", used.object));
            };
            if let Some(inside) = &used.inside
                && (named(&inside.object).is_none() || inside.inside.is_some())
            {
                return wrong(format!("'{}' cannot be used inside another", inside.object));
            }
            if used.writes.is_some() != (object.kind == Kind::Rwlock) {
                return wrong(format!(
                    "'writes' belongs to each use of a rwlock, and '{}' is used",
                    object.name
                ));
            }
        }
        if profile.jobs_a_user.is_some() == profile.jobs_a_run.is_some() {
            return wrong("there must be either 'jobs_a_user' or 'jobs_a_run'".to_owned());
        }
        if let Some(mix) = &profile.mix {
            let weights = profile.jobs.iter().map(|job| u32::from(job.kind == mix.kind)).collect();
            profile.mixes = vec![(mix.name.clone(), weights)];
            return Ok(profile);
        }
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(MIXES.as_bytes());
        let headers = reader.headers().map_err(|error| Error::Syntax(error.to_string()))?.clone();
        profile.mixes =
            headers.iter().skip(1).map(|mix| (mix.to_owned(), vec![0; profile.jobs.len()])).collect();
        for record in reader.deserialize() {
            let (name, weights): (String, Vec<u32>) =
                record.map_err(|error: csv::Error| Error::Syntax(error.to_string()))?;
            let mut kinds = (0..profile.jobs.len()).filter(|&at| profile.jobs[at].names.contains(&name));
            let (Some(kind), None) = (kinds.next(), kinds.next()) else {
                return wrong(format!("job '{name}' must be described once"));
            };
            for ((_, of_mix), weight) in profile.mixes.iter_mut().zip(weights) {
                of_mix[kind] += weight;
            }
        }
        Ok(profile)
    }

    /// The mixes' names.
    pub fn mixes(&self) -> impl Iterator<Item = &str> {
        self.mixes.iter().map(|(name, _)| name.as_str())
    }

    /// What the objects stand for, by name.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &str)> {
        self.objects.iter().map(|object| (object.name.as_str(), object.about.as_str()))
    }

    /// Each of its numbers, by name, in the file's units, with its source.
    pub fn sources(&self) -> Vec<(String, f64, String)> {
        let mut sources = Vec::new();
        for (name, jobs) in [("jobs_a_user", &self.jobs_a_user), ("jobs_a_run", &self.jobs_a_run)] {
            if let Some(jobs) = jobs {
                sources.push((name.to_owned(), jobs.value, jobs.source.clone()));
            }
        }
        self.clone().each_figure(|name, figure| sources.push((name, figure.value, figure.source.clone())));
        sources
    }

    /// The numbers that were fitted, by name, as in the file: `process.computes`, `process.anon-vma.times`.
    pub fn fitted(&self) -> Vec<(String, f64)> {
        let mut profile = self.clone();
        let mut fitted = Vec::new();
        profile.each_figure(|name, figure| {
            if figure.source.starts_with("fitted") {
                fitted.push((name, figure.value));
            }
        });
        fitted
    }

    /// The same profile with another value of a number.
    pub fn with(&self, name: &str, value: f64) -> Profile {
        let mut profile = self.clone();
        profile.each_figure(|known, figure| {
            if known == name {
                figure.value = value;
            }
        });
        profile
    }

    fn each_figure(&mut self, mut see: impl FnMut(String, &mut Figure)) {
        if let Some(unpinned) = &mut self.unpinned {
            see("unpinned".to_owned(), unpinned);
        }
        for run in &mut self.runs {
            see(format!("{}.idle", run.mix), &mut run.idle);
        }
        for object in &mut self.objects {
            see(format!("{}.lines", object.name), &mut object.lines);
        }
        for job in &mut self.jobs {
            see(format!("{}.computes", job.kind), &mut job.computes);
            if let Some(sleeps) = &mut job.sleeps {
                see(format!("{}.sleeps.times", job.kind), &mut sleeps.times);
                see(format!("{}.sleeps.each", job.kind), &mut sleeps.each);
            }
            job.uses.iter_mut().for_each(|used| used.each_figure(&job.kind, &mut see));
        }
    }

    /// How many jobs a run of the benchmark has with that many users.
    fn jobs_of(&self, users: u32) -> f64 {
        let all = self.jobs_a_run.as_ref().map(|jobs| jobs.value);
        let each = self.jobs_a_user.as_ref().map(|jobs| jobs.value * f64::from(users));
        all.or(each).unwrap_or(1.0)
    }

    fn weights(&self, mix: &str) -> &[u32] {
        match self.mixes.iter().find(|(name, _)| name == mix) {
            Some((_, weights)) => weights,
            None => panic!("no mix is called '{mix}'"),
        }
    }
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Jobs<'a> {
    /// What the jobs do.
    pub profile: &'a Profile,
    /// How often each is drawn.
    pub mix: &'a str,
    /// How many users there are.
    pub users: u32,
    /// Whether they run in a guest that does not know which memory is near.
    pub unpinned: bool,
    /// The kernel's mutex.
    pub mutex: &'a str,
    /// The kernel's spinlock.
    pub spinlock: &'a str,
    /// Before anything is counted.
    pub warm_up: Picoseconds,
    /// How long it is counted for.
    pub time: Picoseconds,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Jobs a second.
    pub jobs_a_second: f64,
    /// Jobs a minute of a whole run of the benchmark.
    pub jobs_a_minute: f64,
    /// How long that takes.
    pub seconds: f64,
    /// Of all CPUs' time, what went into waiting for each object, by name.
    pub waiting: Vec<(String, f64)>,
    /// Of all CPUs' time, what went into waiting for spinlocks.
    pub spinning: f64,
    /// Of all CPUs' time, what was used.
    pub busy: f64,
    /// What the cache lines did, the warm-up included.
    pub traffic: Traffic,
}

enum Protection {
    Mutex(Box<dyn Lock>),
    Spinlock(Box<dyn Lock>),
    Rwlock(Box<Alone<Central>>),
    Semaphore(Box<Semaphore>),
}

struct Shared {
    protection: Protection,
    lines: Box<[Alone<U32>]>,
    waiting: Cell<Picoseconds>,
}

/// A use, ready to be done.
#[derive(Clone, Copy)]
struct Step {
    object: usize,
    hold: Picoseconds,
    writes: u32,
    /// How often it needs another one meanwhile, which, and for how long.
    inside: Option<(f64, usize, Picoseconds, u32)>,
}

/// This number rounded down or up at random, so that the average is right.
fn about(times: f64) -> usize {
    times as usize + usize::from(random(|random| random.f64()) < times.fract())
}

struct World {
    /// Each of them once, or once a socket.
    objects: Vec<Vec<Shared>>,
    done: Cell<f64>,
    warm_up: Picoseconds,
}

impl World {
    fn pass(&self, step: Step) {
        let of_nodes = &self.objects[step.object];
        let object = &of_nodes[if of_nodes.len() > 1 { node() } else { 0 }];
        in_kernel(|| {
            let before = used();
            let writes = match &object.protection {
                Protection::Mutex(lock) => {
                    lock.lock();
                    true
                }
                Protection::Spinlock(lock) => {
                    atomically(|| lock.lock());
                    true
                }
                Protection::Semaphore(lock) => {
                    lock.write();
                    true
                }
                Protection::Rwlock(lock) => {
                    let writes = random(|random| random.u32(..256)) < step.writes;
                    if writes {
                        lock.0.write()
                    } else {
                        lock.0.read()
                    }
                    writes
                }
            };
            if now() >= self.warm_up {
                object.waiting.set(object.waiting.get() + used() - before);
            }
            for line in &object.lines {
                if writes {
                    line.0.store(1, core::sync::atomic::Ordering::Relaxed);
                } else {
                    line.0.load(core::sync::atomic::Ordering::Relaxed);
                }
            }
            work(step.hold);
            if let Some((times, object, hold, writes)) = step.inside {
                for _ in 0..about(times) {
                    self.pass(Step { object, hold, writes, inside: None });
                }
            }
            match &object.protection {
                Protection::Mutex(lock) => lock.unlock(),
                Protection::Spinlock(lock) => atomically(|| lock.unlock()),
                Protection::Semaphore(lock) => lock.done_writing(),
                Protection::Rwlock(lock) if writes => lock.0.done_writing(),
                Protection::Rwlock(lock) => lock.0.done_reading(),
            }
        });
    }

    fn finished(&self, part: f64) {
        if now() >= self.warm_up {
            self.done.set(self.done.get() + part);
        }
    }
}

impl Jobs<'_> {
    /// Runs it in a simulation that has no threads yet, on a machine with that many CPUs.
    ///
    /// # Errors
    /// If a lock loses a wake-up.
    ///
    /// # Panics
    /// If there is no such mix or lock.
    pub fn run_in(&self, mut simulation: Simulation, cpus: usize) -> Result<Done, Stuck> {
        let make = |name: &str| match locks::make(name) {
            Some(lock) => lock,
            None => panic!("no lock is called '{name}'"),
        };
        let profile = self.profile;
        let one = |object: &Object| Shared {
            protection: match object.kind {
                Kind::Mutex => Protection::Mutex(make(self.mutex)),
                Kind::Spinlock => Protection::Spinlock(make(self.spinlock)),
                Kind::Rwlock => Protection::Rwlock(Box::default()),
                Kind::Semaphore => {
                    Protection::Semaphore(Box::new(Semaphore::new(make(self.spinlock), self.users)))
                }
            },
            lines: (0..object.lines.value as usize).map(|_| Alone::default()).collect(),
            waiting: Cell::new(0),
        };
        let nodes = simulation.nodes();
        let object =
            |object: &Object| (0..if object.per_node { nodes } else { 1 }).map(|_| one(object)).collect();
        let world = Rc::new(World {
            objects: profile.objects.iter().map(object).collect(),
            done: Cell::new(0.0),
            warm_up: self.warm_up,
        });
        let unpinned = profile.unpinned.as_ref().filter(|_| self.unpinned);
        let slowness = unpinned.map_or(1.0, |unpinned| unpinned.value);
        let kinds: Rc<[Kinds]> = profile.jobs.iter().map(|job| Kinds::of(job, profile, slowness)).collect();
        let weights: Rc<[u32]> = profile.weights(self.mix).into();
        for _ in 0..self.users {
            let (world, kinds, weights) = (Rc::clone(&world), Rc::clone(&kinds), Rc::clone(&weights));
            let arrival = self.warm_up / 2;
            simulation.spawn(None, move || {
                // Not all at once: new threads come first, and nothing else would run until each has had its
                // turn.
                sleep(random(|random| random.u64(0..=arrival)));
                // Until the clock stops.
                loop {
                    kinds[draw(&weights)].perform(&world);
                }
            });
        }
        let summary = simulation.run(self.warm_up + self.time)?;
        let all = self.time as f64 * cpus as f64;
        let jobs_a_second = world.done.get() / (self.time as f64 / 1e12);
        let idle = profile.runs.iter().find(|run| run.mix == self.mix).map_or(0.0, |run| run.idle.value);
        let jobs = profile.jobs_of(self.users);
        let seconds = idle + jobs / jobs_a_second;
        let of = |object: &Shared| object.waiting.get() as f64 / all;
        let spinning = |object: &Shared| match &object.protection {
            Protection::Spinlock(_) => of(object),
            // It counts in the warm-up, too.
            Protection::Semaphore(lock) => {
                let whole = (self.warm_up + self.time) as f64 * cpus as f64;
                lock.spinning.get() as f64 / whole
            }
            _ => 0.0,
        };
        let names = profile.objects.iter().map(|object| object.name.clone());
        Ok(Done {
            jobs_a_second,
            jobs_a_minute: 60.0 * jobs / seconds,
            seconds,
            waiting: names
                .zip(&world.objects)
                .map(|(name, of_nodes)| (name, of_nodes.iter().map(of).sum()))
                .collect(),
            spinning: world.objects.iter().flatten().map(spinning).sum(),
            busy: summary.used.iter().sum::<u64>() as f64 / (summary.time as f64 * cpus as f64),
            traffic: summary.traffic,
        })
    }
}

/// A number of a kind, by weight.
fn draw(weights: &[u32]) -> usize {
    let mut left = random(|random| random.u32(..weights.iter().sum::<u32>()));
    let mut at = 0;
    while left >= weights[at] {
        left -= weights[at];
        at += 1;
    }
    at
}

/// A user does this small part of a job before it draws the next. The users' mix at any time stays the same,
/// and a run reaches its steady state much sooner.
const PARTS: f64 = 16.0;

/// A kind of jobs, ready to be done.
struct Kinds {
    computes: Picoseconds,
    /// How often each is done.
    steps: Vec<(f64, Step)>,
    /// How often it sleeps, and for how long on average.
    sleeps: Option<(f64, Picoseconds)>,
}

impl Kinds {
    fn of(job: &Job, profile: &Profile, slowness: f64) -> Kinds {
        let step = |used: &Use| {
            let object = |name: &str| profile.objects.iter().position(|object| object.name == name);
            let time = |hold: &Figure| (hold.value * NANOSECOND as f64) as Picoseconds;
            let writes = used.writes.as_ref().map_or(0, |writes| writes.value as u32);
            let inside = used.inside.as_ref().and_then(|inside| {
                let writes = inside.writes.as_ref().map_or(256, |writes| writes.value as u32);
                Some((inside.times.value, object(&inside.object)?, time(&inside.hold), writes))
            });
            Some((
                used.times.value / PARTS,
                Step { object: object(&used.object)?, hold: time(&used.hold), writes, inside },
            ))
        };
        Kinds {
            computes: (job.computes.value * slowness / PARTS * MICROSECOND as f64) as Picoseconds,
            steps: job.uses.iter().filter_map(step).collect(),
            sleeps: job.sleeps.as_ref().map(|sleeps| {
                (sleeps.times.value / PARTS, (sleeps.each.value * MICROSECOND as f64) as Picoseconds)
            }),
        }
    }

    fn perform(&self, world: &World) {
        let mut steps = Vec::new();
        for &(times, step) in &self.steps {
            steps.extend(std::iter::repeat_n(step, about(times)));
        }
        random(|random| random.shuffle(&mut steps));
        if let Some((times, each)) = self.sleeps {
            for _ in 0..about(times) {
                sleep(random(|random| random.u64(0..=2 * each)));
            }
        }
        let pieces = steps.len().max(1) as u64;
        for piece in 0..pieces {
            work(self.computes / pieces);
            if let Some(&step) = steps.get(piece as usize) {
                world.pass(step);
            }
            world.finished(1.0 / (PARTS * pieces as f64));
        }
    }
}
