//! A hypervisor below a machine, on request: it runs the machine's CPUs on those of another.
//!
//! A virtual CPU is to the host what a thread is to the machine: it waits for a real CPU, has it for a slice,
//! may be pinned, and is displaced in the middle of whatever its thread does: that is *lock-holder
//! preemption*. The guest's scheduler knows only virtual CPUs and sees nothing of it. A virtual CPU without a
//! thread halts; so does one whose thread waits for a paravirtual lock and must not sleep. A kick by another
//! lets it go on, after the host has woken it.

use serde::Deserialize;

use crate::engine::{Accessing, Inner, State, ThreadId, What};
use crate::machine::{self, Error, Machine, Picoseconds, Scheduler};
use crate::scheduler::{Cpus, Placed};

/// The hypervisors that are part of Poundlock.
const KNOWN: [&str; 2] = [include_str!("../hypervisors/kvm.toml"), include_str!("../hypervisors/xen.toml")];

machine::figures! {
    /// Nanoseconds.
    FiguresOfCosts =>
    /// What a hypervisor costs, in picoseconds.
    pub(crate) struct Costs {
        /// To halt.
        halt: machine::NS,
        /// To let another go on.
        kick: machine::NS,
        /// The average time between two moments when the host's own threads want a CPU.
        stolen_every: machine::NS,
        /// For how long.
        stolen: machine::NS,
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: String,
    about: String,
    costs: FiguresOfCosts,
    scheduler: machine::FiguresOfScheduler,
}

/// What a hypervisor costs, and how it schedules.
#[derive(Clone, Debug)]
pub struct Hypervisor {
    description: Description,
    costs: Costs,
    scheduler: Scheduler,
}

impl Hypervisor {
    /// The hypervisors that are part of Poundlock.
    ///
    /// # Panics
    /// If one of them makes no sense, which a test excludes.
    pub fn known() -> Vec<Hypervisor> {
        KNOWN.iter().map(|text| Hypervisor::parse(text).unwrap_or_else(|error| panic!("{error}"))).collect()
    }

    /// Reads a description.
    ///
    /// # Errors
    /// If it is not a description, or its numbers make no sense.
    pub fn parse(text: &str) -> Result<Hypervisor, Error> {
        Hypervisor::of(toml::from_str(text).map_err(|error| Error::Syntax(error.message().to_owned()))?)
    }

    fn of(description: Description) -> Result<Hypervisor, Error> {
        let costs = description.costs.values(&description.name)?;
        let scheduler = description.scheduler.values(&description.name)?;
        Ok(Hypervisor { description, costs, scheduler })
    }

    /// The same hypervisor with another value of a number, in its file's unit.
    ///
    /// # Errors
    /// If it makes no sense.
    pub(crate) fn with(&self, name: &str, value: f64) -> Result<Hypervisor, Error> {
        let mut description = self.description.clone();
        description.costs.set(name, value);
        description.scheduler.set(name, value);
        Hypervisor::of(description)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// What it is, in a line.
    pub fn about(&self) -> &str {
        &self.description.about
    }

    /// Each of its numbers, by name, in the file's units, with its source.
    pub fn sources(&self) -> Vec<(String, f64, &str)> {
        let mut sources = self.description.costs.sources();
        sources.extend(self.description.scheduler.sources());
        sources
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// It has a real CPU.
    Iron,
    /// It wants one.
    Queue,
    /// It wants none.
    Halt,
}

struct Vcpu {
    on: On,
    /// Its scheduler's tick came while it had no CPU.
    tick: bool,
    /// Its CPU was to be given away in the middle of an access.
    preempted: bool,
    /// Until when its time is accounted for.
    since: Picoseconds,
}

/// A hypervisor at work.
pub(crate) struct Host {
    machine: Machine,
    hypervisor: Hypervisor,
    /// The scheduler of the host, to which virtual CPUs are threads.
    cpus: Cpus,
    vcpus: Vec<Vcpu>,
}

impl Host {
    /// `pinned`: each virtual CPU runs on the real one of its number only.
    pub(crate) fn new(machine: &Machine, hypervisor: &Hypervisor, vcpus: u32, pinned: bool) -> Host {
        let machine = machine.with_scheduler(hypervisor.scheduler);
        let mut cpus = Cpus::new(&machine, None);
        for vcpu in 0..vcpus {
            cpus.add(vcpu, pinned.then(|| vcpu % machine.cpus() as u32), None);
        }
        let vcpu = |_| Vcpu { on: On::Halt, tick: false, preempted: false, since: 0 };
        Host { machine, hypervisor: hypervisor.clone(), cpus, vcpus: (0..vcpus).map(vcpu).collect() }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// When the host's own threads want a CPU again, if they ever do.
    pub(crate) fn next_theft(&self, random: &mut fastrand::Rng) -> Option<Picoseconds> {
        let every = self.hypervisor.costs.stolen_every;
        (every > 0).then(|| random.u64(0..=2 * every))
    }

    /// What it costs to halt.
    pub(crate) fn halt(&self) -> Picoseconds {
        self.hypervisor.costs.halt
    }
}

impl Inner {
    /// Whether a CPU is real, or has a real one.
    pub(crate) fn is_on_iron(&self, cpu: u32) -> bool {
        self.host.as_ref().is_none_or(|host| host.vcpus[cpu as usize].on == On::Iron)
    }

    /// The core that a thread runs on.
    pub(crate) fn core_of(&self, id: ThreadId) -> u32 {
        let cpu = self.cpus.of(id);
        match &self.host {
            Some(host) => host.machine.core_of(host.cpus.of(cpu)),
            None => self.iron().core_of(cpu),
        }
    }

    /// Whether another thread works on the core of this one. A spinner leaves the core to it: that is what
    /// PAUSE is for.
    pub(crate) fn sibling_is_busy(&self, id: ThreadId) -> bool {
        let cpu = self.cpus.of(id);
        let works = |id: ThreadId| self.threads[id as usize].watch.is_none();
        match &self.host {
            Some(host) => {
                let mut vcpus = host.cpus.siblings(&host.machine, host.cpus.of(cpu));
                vcpus.any(|vcpu| self.cpus.current(vcpu).is_some_and(works))
            }
            None => self.cpus.siblings(self.iron(), cpu).any(works),
        }
    }

    /// Whether a running thread's real CPU was to be given away meanwhile.
    pub(crate) fn iron_is_wanted(&self, id: ThreadId) -> bool {
        self.host.as_ref().is_some_and(|host| host.vcpus[self.cpus.of(id) as usize].preempted)
    }

    /// If it was, it is now. The thread suspends itself.
    pub(crate) fn leaves_iron(&mut self, id: ThreadId) -> bool {
        let (cpu, now) = (self.cpus.of(id), self.now);
        let Some(host) = &mut self.host else { return false };
        let wanted = core::mem::take(&mut host.vcpus[cpu as usize].preempted);
        if wanted {
            let real = host.cpus.of(cpu);
            self.announce_host_slice(real, now);
            self.goes(id, now);
        }
        wanted
    }

    /// A tick of the guest's scheduler. One that comes while the virtual CPU has no real one comes when it
    /// has one again.
    pub(crate) fn ticks(&mut self, cpu: u32) -> bool {
        match &mut self.host {
            Some(host) if host.vcpus[cpu as usize].on != On::Iron => {
                host.vcpus[cpu as usize].tick = true;
                false
            }
            _ => true,
        }
    }

    /// A running thread halts its virtual CPU.
    pub(crate) fn halts(&mut self, id: ThreadId) {
        self.charge(id);
        let now = self.now;
        let thread = &mut self.threads[id as usize];
        thread.halted = true;
        thread.token += 1;
        thread.left = 0;
        thread.stopped = now;
        let cpu = self.cpus.of(id);
        self.idles(cpu);
    }

    /// It may go on. Returns what that costs the thread that lets it.
    pub(crate) fn unhalts(&mut self, id: ThreadId) -> Picoseconds {
        self.threads[id as usize].halted = false;
        let cpu = self.cpus.of(id);
        self.kick(cpu);
        self.host.as_ref().map_or(0, |host| host.hypervisor.costs.kick)
    }

    /// A virtual CPU wants no real one any more.
    pub(crate) fn idles(&mut self, cpu: u32) {
        self.charge_host(cpu);
        let Some(host) = &mut self.host else { return };
        let vcpu = &mut host.vcpus[cpu as usize];
        vcpu.on = On::Halt;
        vcpu.preempted = false;
        let real = host.cpus.leave(&host.machine, cpu, true, self.now);
        self.dispatch_host(real, 0);
    }

    /// A virtual CPU wants a real one, if it has none.
    pub(crate) fn kick(&mut self, cpu: u32) {
        let Some(host) = &mut self.host else { return };
        let vcpu = &mut host.vcpus[cpu as usize];
        if vcpu.on != On::Halt {
            return;
        }
        vcpu.on = On::Queue;
        let real = host.cpus.choose(&host.machine, cpu, None, self.now);
        match host.cpus.place(&host.machine, cpu, real, self.now) {
            Placed::Idle => {
                let latency = host.machine.scheduler().wake_latency;
                self.dispatch_host(real, latency);
            }
            Placed::Queued => {
                let Some(current) = host.cpus.current(real) else { return };
                self.charge_host(current);
                let now = self.now;
                let Some(host) = &mut self.host else { return };
                if host.cpus.preempts(&host.machine, cpu, current, now) {
                    self.announce_host_slice(real, now);
                } else if !host.cpus.has_slice(real) {
                    let at = host.cpus.slice_end(&host.machine, real, now);
                    self.announce_host_slice(real, at);
                }
            }
        }
    }

    /// The host's own threads take a real CPU for a while; its virtual CPU goes on afterwards.
    pub(crate) fn steals(&mut self, real: u32) {
        let Some(host) = &self.host else { return };
        let stolen = host.hypervisor.costs.stolen;
        if let Some(id) = host.cpus.current(real).and_then(|cpu| self.cpus.current(cpu)) {
            let now = self.now;
            let thread = &mut self.threads[id as usize];
            // A virtual CPU in the middle of an access completes it first.
            if thread.state == State::Running && !thread.halted && thread.accessing == Accessing::No {
                let done = thread.done_at.max(now) + stolen;
                thread.stolen_until = now + stolen;
                if thread.watch.is_some() {
                    thread.missed += stolen;
                }
                self.goes(id, done);
            }
        }
        self.announce_theft(real);
    }

    pub(crate) fn announce_theft(&mut self, real: u32) {
        let Some(host) = &self.host else { return };
        if let Some(after) = host.next_theft(&mut self.jitter) {
            let at = self.now + after;
            self.announce(at, What::Stolen(real));
        }
    }

    fn announce_host_slice(&mut self, real: u32, at: Picoseconds) {
        let Some(host) = &mut self.host else { return };
        if host.cpus.new_slice(real, at) {
            self.announce(at, What::HostSlice(real));
        }
    }

    /// A virtual CPU's slice of a real one is over.
    pub(crate) fn host_slice_ends(&mut self, real: u32) {
        let Some(host) = &mut self.host else { return };
        if !host.cpus.slice_ends(real, self.now) {
            return;
        }
        let Some(cpu) = host.cpus.current(real) else { return };
        let Some(id) = self.cpus.current(cpu) else { return };
        if self.threads[id as usize].accessing.completes() {
            host.vcpus[cpu as usize].preempted = true;
            return;
        }
        if !host.cpus.is_wanted(real) {
            return;
        }
        self.charge(id);
        self.charge_host(cpu);
        let now = self.now;
        let thread = &mut self.threads[id as usize];
        thread.stops(now, thread.done_at.saturating_sub(now));
        let Some(host) = &mut self.host else { return };
        host.vcpus[cpu as usize].on = On::Queue;
        host.cpus.put_back(&host.machine, real, now);
        self.dispatch_host(real, 0);
    }

    /// An idle real CPU gets its next virtual CPU.
    fn dispatch_host(&mut self, real: u32, latency: Picoseconds) {
        let now = self.now;
        let Some(host) = &mut self.host else { return };
        let Some(next) = host.cpus.next(&host.machine, real, now, latency) else { return };
        let scheduler = host.machine.scheduler();
        let delay = latency + scheduler.switch + if next.migrated { scheduler.migration } else { 0 };
        let vcpu = &mut host.vcpus[next.id as usize];
        vcpu.on = On::Iron;
        vcpu.since = now;
        let tick = core::mem::take(&mut vcpu.tick);
        if host.cpus.is_wanted(real) {
            let at = host.cpus.slice_end(&host.machine, real, now + delay);
            self.announce_host_slice(real, at);
        }
        let cpu = next.id;
        let Some(id) = self.cpus.current(cpu) else {
            self.dispatch(cpu, delay, 0);
            if self.cpus.current(cpu).is_none() {
                // Another CPU has taken the thread that it was woken for.
                self.idles(cpu);
            }
            return;
        };
        let begin = now + delay;
        let thread = &mut self.threads[id as usize];
        debug_assert_eq!(thread.state, State::Running);
        thread.since = now;
        if thread.watch.is_some() {
            thread.missed += begin - thread.stopped;
        }
        let done = begin + thread.left;
        thread.left = 0;
        self.goes(id, done);
        if tick {
            self.announce_slice(cpu, begin);
        }
    }

    fn charge_host(&mut self, cpu: u32) {
        let now = self.now;
        let Some(host) = &mut self.host else { return };
        let vcpu = &mut host.vcpus[cpu as usize];
        if vcpu.on == On::Iron {
            let time = now.saturating_sub(vcpu.since);
            vcpu.since = now;
            host.cpus.charge(cpu, time, now);
        }
    }
}
