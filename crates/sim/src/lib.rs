//! The simulated machine: `core`'s locks on simulated sockets, cores and schedulers.
//!
//! A [`Simulation`] has a [`Machine`] and threads, and runs on the operating-system thread that made it. It
//! is a discrete-event simulation, and the same whenever machine, threads and seed are the same, on every
//! host: time is counted in picoseconds, nothing is measured, and nothing depends on addresses except which
//! objects share a cache line.
//!
//! What the model has: caches with an owner, sharers and transfers that take turns ([`Traffic`]); levels of
//! distance within a socket, and hops between sockets; what loads, stores, atomics and invalidations cost;
//! hardware threads that share a core; Linux's scheduler with its queues, slices, wake-ups, preemption and
//! pinning. What it lacks: memory bandwidth, false sharing by the hardware's prefetchers, frequency,
//! speculation, and all of the kernel besides its scheduler and the futex.

mod atomic;
mod cache;
pub mod check;
mod engine;
pub mod experiment;
pub mod fit;
mod hypervisor;
pub mod locks;
mod machine;
pub mod model;
mod mutexes;
mod peers;
mod platform;
pub mod profile;
pub mod published;
mod rwlocks;
mod scheduler;
mod semaphores;
mod ticket;
pub mod workload;

use std::cell::RefCell;

pub use atomic::{U32, Usize};
pub use cache::Traffic;
pub use engine::{Disturbance, Stuck};
pub use hypervisor::Hypervisor;
pub use machine::{Costs, Error, MICROSECOND, Machine, NANOSECOND, Picoseconds, Scheduler};
pub use peers::glibc_rwlock::GlibcRwLock;
pub use platform::{Budget, Evidence, Settings, Sim};

use engine::Engine;
use profile::Objects;

/// A value in cache lines of its own. Objects that threads of a simulation share go into one, so that the
/// same objects share a line in each run.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Alone<T>(pub T);

/// A run.
pub struct Simulation {
    engine: Engine,
    settings: Settings,
    threads: Vec<u32>,
    seed: u64,
    objects: Option<Objects>,
}

std::thread_local! {
    /// Of each thread of the run.
    static RANDOM: RefCell<Vec<fastrand::Rng>> = const { RefCell::new(Vec::new()) };
}

impl Simulation {
    /// A run without threads so far.
    pub fn new(machine: &Machine, settings: Settings, seed: u64) -> Simulation {
        Simulation {
            engine: Engine::new(machine, None, settings.disturbance),
            settings,
            threads: Vec::new(),
            seed,
            objects: None,
        }
    }

    /// A run on virtual CPUs: those of `guest`, on those of `host`. `pinned`: each on the real CPU of its
    /// number.
    pub fn guest(
        guest: &Machine,
        host: &Machine,
        hypervisor: &Hypervisor,
        pinned: bool,
        settings: Settings,
        seed: u64,
    ) -> Simulation {
        let host = hypervisor::Host::new(host, hypervisor, guest.cpus() as u32, pinned);
        let engine = Engine::new(guest, Some(host), settings.disturbance);
        Simulation { engine, settings, threads: Vec::new(), seed, objects: None }
    }

    /// The nodes that its threads know of: sockets, or what the machine's description names.
    pub fn nodes(&self) -> usize {
        self.engine.nodes()
    }

    /// A thread that is ready when the run begins. `cpu`: the only CPU that it may run on, if given. What it
    /// owns is leaked if the run ends before it does.
    pub fn spawn(&mut self, cpu: Option<u32>, body: impl FnOnce() + 'static) {
        self.threads.push(self.engine.spawn(cpu, None, body));
    }

    /// As [`Simulation::spawn`], for a thread that may run on each CPU, and begins on this one.
    pub fn spawn_on(&mut self, first: u32, body: impl FnOnce() + 'static) {
        self.threads.push(self.engine.spawn(None, Some(first), body));
    }

    /// Calls to the kernel and switches of threads take that long on the CPUs of these numbers, in 256ths of
    /// what the machine's description says; as long as it says where nothing is said. So a CPU is whose core
    /// a thread that is not simulated uses, too.
    pub fn slow_kernel(&mut self, slow: &[u64]) {
        self.engine.set_slow(slow);
    }

    /// The run notes each access to memory, for [`Summary::profile`]. These objects have names there.
    pub fn profile(&mut self, objects: Objects) {
        self.objects = Some(objects);
    }

    /// Runs until every thread has ended, or simulated time reaches `end`.
    ///
    /// # Errors
    /// If all remaining threads sleep and no thread will wake them.
    pub fn run(self, end: Picoseconds) -> Result<Summary, Stuck> {
        let mut seeds = fastrand::Rng::with_seed(self.seed);
        RANDOM.set(self.threads.iter().map(|_| seeds.fork()).collect());
        self.engine.set_jitter(seeds, self.settings.scatter);
        platform::prepare(self.settings, self.threads.len());
        if let Some(objects) = self.objects {
            self.engine.set_profile(profile::Profile::new(objects, platform::records()));
        }
        let result = self.engine.run(end);
        let clean = result.is_ok() && self.engine.is_over();
        platform::finish(clean);
        result.map(|()| Summary {
            time: self.engine.now(),
            over: clean,
            traffic: self.engine.traffic(),
            used: self.threads.iter().map(|&id| self.engine.used(id)).collect(),
            profile: self.engine.take_profile().map(|profile| profile.rows()),
        })
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How long it was.
    pub time: Picoseconds,
    /// Whether every thread has ended.
    pub over: bool,
    /// What its cache lines did.
    pub traffic: Traffic,
    /// Each thread's CPU time.
    pub used: Vec<Picoseconds>,
    /// Which accesses needed transfers, if [`Simulation::profile`] was called.
    pub profile: Option<Vec<profile::Row>>,
}

/// For the calling thread of a simulation: computes for that long.
pub fn work(time: Picoseconds) {
    Engine::with(|engine| engine.work(time));
}

/// For the calling thread of a simulation: runs `body` in the kernel, where it keeps its CPU unless it
/// sleeps.
pub fn in_kernel<R>(body: impl FnOnce() -> R) -> R {
    Engine::with(Engine::keep);
    let result = body();
    Engine::with(Engine::unkeep);
    result
}

/// For the calling thread of a simulation: runs `body` without sleeping. A wait halts its virtual CPU, if it
/// has one.
pub fn atomically<R>(body: impl FnOnce() -> R) -> R {
    Engine::with(|engine| engine.set_atomic(true));
    let result = body();
    Engine::with(|engine| engine.set_atomic(false));
    result
}

/// For the calling thread of a simulation: sets its real-time priority as locks see it; 0, the default, is an
/// ordinary thread. To the scheduler it is like any other.
pub fn set_priority(priority: u32) {
    Engine::with(|engine| engine.set_priority(priority));
}

/// For the calling thread of a simulation: the CPU time that it has had.
pub fn used() -> Picoseconds {
    Engine::with(|engine| engine.used(engine.current()))
}

/// For the calling thread of a simulation: the time since the run began.
pub fn now() -> Picoseconds {
    Engine::with(Engine::now)
}

/// For the calling thread of a simulation: the node that it runs on, as far as it knows.
pub fn node() -> usize {
    Engine::with(Engine::node)
}

/// For the calling thread of a simulation: sleeps for that long.
pub fn sleep(time: Picoseconds) {
    Engine::with(|engine| engine.park_for(time));
}

/// For the calling thread of a simulation: its own random numbers, which depend on nothing but the run's seed
/// and the thread's number.
pub fn random<R>(body: impl FnOnce(&mut fastrand::Rng) -> R) -> R {
    let id = Engine::with(Engine::current) as usize;
    RANDOM.with_borrow_mut(|random| body(&mut random[id]))
}
