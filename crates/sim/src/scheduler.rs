//! Which thread runs where, and next: Linux's schedulers, in what locks notice of them.
//!
//! The completely fair one, of before 6.6: each CPU has a queue, and runs the thread that has had the least
//! of it (its *virtual runtime*). A thread that has slept begins a little below the least of the threads that
//! are there, so that it is soon served. If it has had enough less than the running thread, it takes the CPU
//! at once. The queue's threads share a period; none gets less than a granularity. A woken thread goes to its
//! last CPU if that is idle, else to an idle one of its cluster, the cores with which it has its last cache
//! in common, else to the shortest queue there. A CPU that runs out of threads takes one from the longest
//! queue, near ones first.
//!
//! The one of 6.6 and later, by eligibility and virtual deadlines (EEVDF: Stoica and Abdel-Wahab, 1995),
//! where the machine says so: a thread is eligible if it has had no more than its CPU's threads on average.
//! Of those, the one with the earliest deadline runs: a slice ahead of what it had when it got that deadline.
//! It runs up to it, unless it is no longer eligible. What a thread lacks as it goes to sleep, its lag, it
//! lacks when it is woken, too; what it had too much is forgotten as the others run. The end of a slice is
//! noticed at ticks, and when a thread becomes ready. A thread that yields gives up its slice, unless it is
//! alone. A woken thread whose last CPU is busy may go to its waker's if there has been less to run there of
//! late, to one that it was on before, or to an idle one.
//!
//! Nothing here takes or announces time: [`crate::engine`] does.

use crate::engine::ThreadId;
use crate::machine::{Eevdf, Machine, Picoseconds};

/// Where a thread that became ready is.
pub(crate) enum Placed {
    /// In the queue of an idle CPU.
    Idle,
    /// In the queue of a busy CPU.
    Queued,
}

/// The thread that is to run.
pub(crate) struct Next {
    pub(crate) id: ThreadId,
    /// It ran elsewhere before.
    pub(crate) migrated: bool,
}

struct Entity {
    /// The CPU that it runs on, or is queued for, or ran on last; none yet if it never did.
    cpu: Option<u32>,
    only: Option<u32>,
    virtual_time: Picoseconds,
    migrated: bool,
    /// When it last ran.
    ran: Picoseconds,
    /// Below here: of EEVDF.
    deadline: Picoseconds,
    /// Up to there it is not preempted while it is eligible.
    protected: Picoseconds,
    /// While it is in no queue: how much less than the average it had.
    lag: i64,
    /// Whether it is one of its CPU's [`Cpu::asleep`].
    asleep: bool,
    /// How often it was ready of late, and how often it ran.
    load: Share,
    used: Share,
    /// The CPU that it was on when it was woken before.
    recent: Option<u32>,
}

/// How many threads did something on average, what is long ago for less: up to a moment, and from zero on.
#[derive(Clone, Copy, Default)]
struct Share {
    value: f64,
    then: Picoseconds,
}

impl Share {
    /// Its value at this moment, if this number of threads did it since.
    fn at(&self, now: Picoseconds, threads: usize) -> f64 {
        let left = faded(now.saturating_sub(self.then));
        self.value * left + threads as f64 * (1.0 - left)
    }

    fn passes(&mut self, now: Picoseconds, threads: usize) {
        self.value = self.at(now, threads);
        self.then = self.then.max(now);
    }
}

#[derive(Default)]
struct Cpu {
    current: Option<ThreadId>,
    queue: Vec<ThreadId>,
    /// Threads that went to sleep while they had had more than the average. They count until they would be
    /// the next to run, as Linux 6.12 has it: what they had too much is not forgotten sooner.
    asleep: Vec<ThreadId>,
    /// The least that a thread here has had.
    least: Picoseconds,
    /// When the slice ends, if it does.
    slice: Option<Picoseconds>,
    /// The last such time that has been announced and is still to come.
    announced: Option<Picoseconds>,
    /// At how many of its ticks another CPU was idle, and found nothing to take.
    failed: u32,
    /// Since when it is idle, if it is.
    idle_since: Option<Picoseconds>,
    /// Of its threads, those included that sleep and ran here last.
    load: Share,
    used: Share,
}

pub(crate) struct Cpus {
    cpus: Vec<Cpu>,
    entities: Vec<Entity>,
    /// By cluster: the cores that have their last cache in common.
    of_cluster: Vec<Vec<u32>>,
    /// By cluster: all clusters, nearest first.
    nearest: Vec<Vec<u32>>,
    /// How many CPUs are idle, by cluster.
    idle: Vec<u32>,
    /// The CPUs as new threads get them: spread over sockets first, then over their clusters, then over the
    /// cores of those.
    spread: Vec<u32>,
    /// Where the next one begins to look there.
    next: usize,
    eevdf: Option<Eevdf>,
}

/// The time after which what was counts for a half, as in Linux's load tracking: 32 ms.
const HALF_LIFE: f64 = 32e9;

/// By how much the most loaded CPU may exceed others before Linux moves threads.
const IMBALANCE: f64 = 1.17;

/// So often an idle CPU leaves threads where they ran a short time ago.
const PATIENT: u32 = 2;

/// EEVDF's virtual times begin there, so that none is less than zero.
const BEGIN: Picoseconds = 1 << 62;

fn begin(eevdf: Option<Eevdf>) -> Picoseconds {
    if eevdf.is_some() { BEGIN } else { 0 }
}

/// The clusters, nearest first.
fn clusters_from(machine: &Machine, cluster: u32) -> Vec<u32> {
    let mut clusters: Vec<u32> = (0..machine.clusters()).collect();
    let socket = |cluster| machine.socket_of_cluster(cluster);
    clusters.sort_by_key(|&other| (machine.hops(socket(cluster), socket(other)), other != cluster, other));
    clusters
}

impl Cpus {
    pub(crate) fn new(machine: &Machine, eevdf: Option<Eevdf>) -> Cpus {
        let cpus = machine.cpus() as u32;
        let of_cluster: Vec<Vec<u32>> = (0..machine.clusters())
            .map(|cluster| (0..cpus).filter(|&cpu| machine.cluster_of(cpu) == cluster).collect())
            .collect();
        let a_socket = machine.clusters() / machine.sockets();
        let mut spread: Vec<u32> = (0..cpus).collect();
        spread.sort_by_key(|&cpu| {
            let cluster = machine.cluster_of(cpu);
            let place = of_cluster[cluster as usize].iter().position(|&other| other == cpu);
            (place, cluster % a_socket, cpu)
        });
        Cpus {
            spread,
            idle: of_cluster.iter().map(|cpus| cpus.len() as u32).collect(),
            of_cluster,
            nearest: (0..machine.clusters()).map(|cluster| clusters_from(machine, cluster)).collect(),
            cpus: (0..cpus).map(|_| Cpu { least: begin(eevdf), ..Cpu::default() }).collect(),
            entities: Vec::new(),
            next: 0,
            eevdf,
        }
    }

    /// A thread that has never run. It may only run on one CPU, or begins on one.
    pub(crate) fn add(&mut self, id: ThreadId, only: Option<u32>, first: Option<u32>) {
        debug_assert_eq!(id as usize, self.entities.len());
        let first = first.map(|first| first % self.cpus.len() as u32);
        self.entities.push(Entity {
            cpu: first,
            only,
            virtual_time: begin(self.eevdf),
            migrated: false,
            ran: 0,
            deadline: 0,
            protected: 0,
            lag: 0,
            asleep: false,
            load: Share { value: 1.0, then: 0 },
            used: Share { value: 0.5, then: 0 },
            recent: None,
        });
        if let Some(first) = first {
            let cpu = &mut self.cpus[first as usize];
            cpu.load.value += 1.0;
            cpu.used.value = (cpu.used.value + 0.5).min(1.0);
        }
    }

    /// The CPU that a thread runs on, or ran on last.
    pub(crate) fn of(&self, id: ThreadId) -> u32 {
        self.entities[id as usize].cpu.unwrap_or(0)
    }

    pub(crate) fn current(&self, cpu: u32) -> Option<ThreadId> {
        self.cpus[cpu as usize].current
    }

    /// Whether a thread waits for it.
    pub(crate) fn is_wanted(&self, cpu: u32) -> bool {
        !self.cpus[cpu as usize].queue.is_empty()
    }

    fn load(&self, cpu: u32) -> usize {
        let cpu = &self.cpus[cpu as usize];
        cpu.queue.len() + usize::from(cpu.current.is_some())
    }

    fn is_idle(&self, cpu: u32) -> bool {
        self.load(cpu) == 0
    }

    /// Puts a thread that became ready into the queue of a CPU. The thread that runs there has been charged.
    pub(crate) fn place(&mut self, machine: &Machine, id: ThreadId, cpu: u32, now: Picoseconds) -> Placed {
        let scheduler = machine.scheduler();
        let before = self.entities[id as usize].cpu;
        self.moves(id, before, cpu, now);
        let entity = &mut self.entities[id as usize];
        entity.migrated = before.is_some_and(|before| before != cpu);
        entity.cpu = Some(cpu);
        let asleep = entity.asleep;
        match self.eevdf {
            Some(eevdf) if asleep => self.returns(id, cpu, eevdf),
            Some(eevdf) => self.join(id, cpu, eevdf),
            None => {
                let entity = &mut self.entities[id as usize];
                // Its virtual runtime is relative to those around it.
                let old = before.map_or(0, |before| self.cpus[before as usize].least);
                let here = &mut self.cpus[cpu as usize];
                let relative = if before == Some(cpu) {
                    entity.virtual_time
                } else {
                    (entity.virtual_time + here.least).saturating_sub(old)
                };
                entity.virtual_time = relative.max(here.least.saturating_sub(scheduler.latency / 2));
                here.queue.push(id);
            }
        }
        let idle = self.cpus[cpu as usize].current.is_none();
        if idle { Placed::Idle } else { Placed::Queued }
    }

    pub(crate) fn has_eevdf(&self) -> bool {
        self.eevdf.is_some()
    }

    /// How many threads count as ready on a CPU, and how many run there.
    fn ready_and_running(&self, cpu: u32) -> (usize, usize) {
        let here = &self.cpus[cpu as usize];
        (self.load(cpu) + here.asleep.len(), usize::from(here.current.is_some()))
    }

    /// How many threads a CPU had to run of late, and for which share of its time it ran one.
    fn of_late(&self, cpu: u32, now: Picoseconds) -> (f64, f64) {
        let (ready, running) = self.ready_and_running(cpu);
        let here = &self.cpus[cpu as usize];
        (here.load.at(now, ready), here.used.at(now, running))
    }

    fn passes(&mut self, cpu: u32, now: Picoseconds) {
        if self.eevdf.is_none() {
            return;
        }
        let (ready, running) = self.ready_and_running(cpu);
        let here = &mut self.cpus[cpu as usize];
        here.load.passes(now, ready);
        here.used.passes(now, running);
    }

    fn thread_passes(&mut self, id: ThreadId, now: Picoseconds, ready: bool, runs: bool) {
        if self.eevdf.is_none() {
            return;
        }
        let entity = &mut self.entities[id as usize];
        entity.load.passes(now, usize::from(ready));
        entity.used.passes(now, usize::from(runs));
    }

    /// What a thread did of late goes to another CPU with it.
    fn moves(&mut self, id: ThreadId, from: Option<u32>, to: u32, now: Picoseconds) {
        if from == Some(to) || self.eevdf.is_none() {
            return;
        }
        from.into_iter().chain([to]).for_each(|cpu| self.passes(cpu, now));
        let (load, used) = (self.entities[id as usize].load.value, self.entities[id as usize].used.value);
        if let Some(from) = from {
            let from = &mut self.cpus[from as usize];
            from.load.value = (from.load.value - load).max(0.0);
            from.used.value = (from.used.value - used).max(0.0);
        }
        let to = &mut self.cpus[to as usize];
        to.load.value += load;
        to.used.value += used;
    }

    /// The threads that run on a CPU, are in its queue, or sleep and count.
    fn all(&self, cpu: u32) -> impl Iterator<Item = &Entity> {
        let cpu = &self.cpus[cpu as usize];
        let ids = cpu.queue.iter().chain(&cpu.current).chain(&cpu.asleep);
        ids.map(|&id| &self.entities[id as usize])
    }

    /// What they have had on average, if there are any.
    fn average(&self, cpu: u32) -> Option<Picoseconds> {
        let count = self.all(cpu).count() as u128;
        let sum: u128 = self.all(cpu).map(|entity| u128::from(entity.virtual_time)).sum();
        (count > 0).then(|| (sum / count.max(1)) as Picoseconds)
    }

    /// A thread comes into a CPU's queue, with its lag.
    fn join(&mut self, id: ThreadId, cpu: u32, eevdf: Eevdf) {
        let count = self.all(cpu).count() as i64;
        let least = self.cpus[cpu as usize].least;
        let average = self.average(cpu);
        let entity = &mut self.entities[id as usize];
        // The thread itself takes part in the average afterwards.
        entity.virtual_time = average.map_or(least, |average| {
            average.saturating_add_signed((-entity.lag).saturating_mul(count + 1) / count.max(1))
        });
        entity.deadline = entity.virtual_time + eevdf.slice;
        self.cpus[cpu as usize].queue.push(id);
    }

    /// A thread that slept and counted wants its CPU again.
    fn returns(&mut self, id: ThreadId, cpu: u32, eevdf: Eevdf) {
        self.part(id, cpu, eevdf);
        let here = &mut self.cpus[cpu as usize];
        here.asleep.retain(|&other| other != id);
        let entity = &mut self.entities[id as usize];
        entity.asleep = false;
        if entity.lag > 0 {
            entity.lag = 0;
            self.join(id, cpu, eevdf);
        } else {
            here.queue.push(id);
        }
    }

    /// A thread leaves a CPU, on which it runs or for which it waits; it is still there.
    fn part(&mut self, id: ThreadId, cpu: u32, eevdf: Eevdf) {
        let Some(average) = self.average(cpu) else { return };
        let most = (2 * eevdf.slice).max(eevdf.tick) as i64;
        let entity = &mut self.entities[id as usize];
        entity.lag = difference(average, entity.virtual_time).clamp(-most, most);
        let here = &mut self.cpus[cpu as usize];
        here.least = here.least.max(average);
    }

    fn is_eligible(&self, cpu: u32, id: ThreadId) -> bool {
        let average = self.average(cpu);
        average.is_none_or(|average| self.entities[id as usize].virtual_time <= average)
    }

    /// Has those of a CPU's sleeping threads that would be next count no more.
    fn forget(&mut self, cpu: u32, now: Picoseconds) {
        let Some(eevdf) = self.eevdf else { return };
        while !self.cpus[cpu as usize].asleep.is_empty() {
            let here = &self.cpus[cpu as usize];
            let first = self.first(cpu, here.queue.iter().chain(&here.current).chain(&here.asleep));
            let Some(id) = first.filter(|&id| self.entities[id as usize].asleep) else { return };
            self.part(id, cpu, eevdf);
            self.thread_passes(id, now, true, false);
            self.passes(cpu, now);
            self.cpus[cpu as usize].asleep.retain(|&other| other != id);
            let entity = &mut self.entities[id as usize];
            entity.asleep = false;
            entity.lag = entity.lag.min(0);
        }
    }

    /// Whether EEVDF has the thread that runs on a CPU go on, which a tick or another thread has interrupted.
    pub(crate) fn goes_on(&mut self, cpu: u32, now: Picoseconds) -> bool {
        self.forget(cpu, now);
        let goes_on = self.eevdf.is_some() && self.keeps(cpu);
        if goes_on && let Some(id) = self.cpus[cpu as usize].current {
            let entity = &mut self.entities[id as usize];
            entity.protected = entity.deadline;
        }
        goes_on
    }

    /// Whether the thread that runs on a CPU is the one to run there.
    fn keeps(&self, cpu: u32) -> bool {
        let Some(id) = self.cpus[cpu as usize].current.filter(|&id| self.is_eligible(cpu, id)) else {
            return false;
        };
        let current = &self.entities[id as usize];
        let average = self.average(cpu);
        current.virtual_time < current.protected
            || self
                .first(cpu, &self.cpus[cpu as usize].queue)
                .is_none_or(|first| rank(current, average) < rank(&self.entities[first as usize], average))
    }

    /// Which of these threads of a CPU is to be next.
    fn first<'a>(&self, cpu: u32, ids: impl IntoIterator<Item = &'a ThreadId>) -> Option<ThreadId> {
        let average = self.eevdf.and_then(|_| self.average(cpu));
        ids.into_iter().copied().min_by_key(|&id| (rank(&self.entities[id as usize], average), id))
    }

    /// Whether a thread that was woken is to run at once, instead of the one that runs there.
    pub(crate) fn preempts(
        &mut self,
        machine: &Machine,
        id: ThreadId,
        current: ThreadId,
        now: Picoseconds,
    ) -> bool {
        if self.eevdf.is_some() {
            let cpu = self.of(current);
            if self.keeps(cpu) {
                return false;
            }
            // It looks for the next one as if it were to switch, which sleeping threads are not.
            self.forget(cpu, now);
            return !self.keeps(cpu) && self.first(cpu, &self.cpus[cpu as usize].queue) == Some(id);
        }
        let time = |id: ThreadId| self.entities[id as usize].virtual_time;
        time(current) > time(id) + machine.scheduler().wakeup_granularity
    }

    /// Chooses a CPU for a thread that became ready. One that runs on `waker` has woken it, if anybody.
    pub(crate) fn choose(
        &mut self,
        machine: &Machine,
        id: ThreadId,
        waker: Option<u32>,
        now: Picoseconds,
    ) -> u32 {
        self.thread_passes(id, now, self.entities[id as usize].asleep, false);
        let entity = &self.entities[id as usize];
        if let Some(only) = entity.only {
            return only;
        }
        if entity.asleep {
            return self.of(id);
        }
        let Some(last) = entity.cpu else {
            let first = self.next;
            self.next = (first + 1) % self.spread.len();
            let cpus = self.spread[first..].iter().chain(&self.spread[..first]);
            return cpus.copied().min_by_key(|&cpu| self.load(cpu)).unwrap_or(0);
        };
        let is_new = entity.ran == 0;
        if is_new {
            return last;
        }
        if let Some(waker) = waker.filter(|&waker| self.packs(waker, last, id, now)) {
            return waker;
        }
        if self.is_idle(last) {
            return last;
        }
        let cluster = machine.cluster_of(last);
        if self.eevdf.is_some() {
            return self.choose_near(machine, id, waker.unwrap_or(last), last, now);
        }
        // As Linux: no farther than its cache reaches, even if others idle there.
        if self.idle[cluster as usize] > 0
            && let Some(cpu) = self.idle_of(machine, cluster)
        {
            return cpu;
        }
        let own = self.load(last);
        let shortest = self.of_cluster[cluster as usize].iter().copied().min_by_key(|&cpu| self.load(cpu));
        shortest.filter(|&cpu| self.load(cpu) + 1 < own).unwrap_or(last)
    }

    /// Whether a woken thread goes to its waker's CPU, idle CPUs or not, since both were seldom busy. It does
    /// not where another one waits for that CPU already.
    fn packs(&self, waker: u32, last: u32, id: ThreadId, now: Picoseconds) -> bool {
        let pack = self.eevdf.map_or(0, |eevdf| eevdf.pack);
        let own = if waker == last { 0.0 } else { self.entities[id as usize].used.value };
        let alone = self.cpus[waker as usize].queue.is_empty();
        pack > 0 && alone && (self.of_late(waker, now).1 + own) * 256.0 < pack as f64
    }

    /// EEVDF's choice for a thread whose last CPU is busy.
    fn choose_near(
        &mut self,
        machine: &Machine,
        id: ThreadId,
        waker: u32,
        last: u32,
        now: Picoseconds,
    ) -> u32 {
        let entity = &mut self.entities[id as usize];
        let (load, recent) = (entity.load.value, entity.recent.replace(last));
        // It goes to its waker's CPU if less is going on there.
        let loaded = |cpu: u32| self.of_late(cpu, now).0;
        let is_drawn = loaded(waker) + load < (loaded(last) - load) * (1.0 + (IMBALANCE - 1.0) / 2.0);
        let near = if waker != last && is_drawn { waker } else { last };
        let cluster = machine.cluster_of(near);
        let is_free = |cpu: u32| cpu != last && machine.cluster_of(cpu) == cluster && self.is_idle(cpu);
        if let Some(recent) = recent.filter(|&recent| is_free(recent)) {
            return recent;
        }
        // It looks at fewer CPUs, the busier they are: `SIS_UTIL`, of Linux 6.0.
        let cpus = &self.of_cluster[cluster as usize];
        let share =
            cpus.iter().map(|&cpu| self.of_late(cpu, now).1).sum::<f64>() / cpus.len() as f64 * IMBALANCE;
        let looks = ((1.0 - share * share).max(0.0) * cpus.len() as f64) as usize;
        let at = cpus.iter().position(|&cpu| cpu == near).unwrap_or(0);
        let after = cpus[at + 1..].iter().chain(&cpus[..at]).copied();
        after.take(looks).find(|&cpu| self.is_idle(cpu)).unwrap_or(near)
    }

    /// A CPU for which a thread waits is interrupted. At a tick that returns an idle CPU, which is to look at
    /// the queue.
    pub(crate) fn ticks(&mut self, cpu: u32, now: Picoseconds) -> Option<u32> {
        let Eevdf { tick, .. } = self.eevdf?;
        if !(now + tick - self.first_tick(cpu, tick)).is_multiple_of(tick) {
            return None;
        }
        let idle = (0..self.cpus.len() as u32).find(|&other| other != cpu && self.is_idle(other))?;
        self.cpus[cpu as usize].failed += 1;
        Some(idle)
    }

    /// An idle CPU of a cluster, best one of a core that is idle as a whole.
    fn idle_of(&self, machine: &Machine, cluster: u32) -> Option<u32> {
        let idle = || self.of_cluster[cluster as usize].iter().copied().filter(|&cpu| self.is_idle(cpu));
        idle().find(|&cpu| !self.core_is_busy(machine, cpu)).or_else(|| idle().next())
    }

    fn core_is_busy(&self, machine: &Machine, cpu: u32) -> bool {
        self.siblings(machine, cpu).next().is_some()
    }

    /// The threads on the other hardware threads of a CPU's core.
    pub(crate) fn siblings(&self, machine: &Machine, cpu: u32) -> impl Iterator<Item = ThreadId> {
        let cores = machine.cores();
        let core = machine.core_of(cpu) as usize;
        let others = (core..self.cpus.len()).step_by(cores).filter(move |&other| other != cpu as usize);
        others.filter_map(|other| self.cpus[other].current)
    }

    /// Makes the next thread a CPU's current one. It has none. The CPU counts as used from `latency` on.
    pub(crate) fn next(
        &mut self,
        machine: &Machine,
        cpu: u32,
        now: Picoseconds,
        latency: Picoseconds,
    ) -> Option<Next> {
        debug_assert!(self.cpus[cpu as usize].current.is_none());
        self.forget(cpu, now);
        if self.cpus[cpu as usize].queue.is_empty() {
            self.steal(machine, cpu, now);
        }
        self.passes(cpu, now + latency);
        let first = self.first(cpu, &self.cpus[cpu as usize].queue);
        let here = &mut self.cpus[cpu as usize];
        here.slice = None;
        let id = first?;
        let at = here.queue.iter().position(|&other| other == id)?;
        here.queue.swap_remove(at);
        here.current = Some(id);
        let entity = &mut self.entities[id as usize];
        entity.protected = entity.deadline;
        here.least = here.least.max(entity.virtual_time);
        self.thread_passes(id, now + latency, true, false);
        self.idle[machine.cluster_of(cpu) as usize] -= 1;
        let migrated = core::mem::take(&mut self.entities[id as usize].migrated);
        Some(Next { id, migrated })
    }

    /// A CPU has got no thread at this moment.
    pub(crate) fn becomes_idle(&mut self, cpu: u32, now: Picoseconds) {
        self.cpus[cpu as usize].idle_since.get_or_insert(now);
    }

    /// A CPU is idle no more; for how long it was.
    pub(crate) fn ends_idle(&mut self, cpu: u32, now: Picoseconds) -> Picoseconds {
        self.cpus[cpu as usize].idle_since.take().map_or(0, |since| now - since)
    }

    /// Takes a thread from the longest queue of the nearest cluster that has one.
    fn steal(&mut self, machine: &Machine, cpu: u32, now: Picoseconds) {
        for place in 0..self.of_cluster.len() {
            let cluster = self.nearest[machine.cluster_of(cpu) as usize][place];
            let queued = |other: &u32| {
                self.cpus[*other as usize].queue.iter().filter(|&&id| self.may_move(*other, id, now)).count()
            };
            let Some(from) = self.of_cluster[cluster as usize]
                .iter()
                .copied()
                .max_by_key(|other| (queued(other), u32::MAX - other))
            else {
                continue;
            };
            let Some(at) = self.cpus[from as usize].queue.iter().position(|&id| self.may_move(from, id, now))
            else {
                continue;
            };
            let id = self.cpus[from as usize].queue[at];
            self.cpus[from as usize].failed = 0;
            if let Some(eevdf) = self.eevdf {
                self.part(id, from, eevdf);
                self.thread_passes(id, now, true, false);
                self.moves(id, Some(from), cpu, now);
            }
            self.cpus[from as usize].queue.remove(at);
            let (there, here) = (self.cpus[from as usize].least, self.cpus[cpu as usize].least);
            let entity = &mut self.entities[id as usize];
            entity.cpu = Some(cpu);
            entity.migrated = true;
            match self.eevdf {
                Some(eevdf) => self.join(id, cpu, eevdf),
                None => {
                    entity.virtual_time = (entity.virtual_time + here).saturating_sub(there);
                    self.cpus[cpu as usize].queue.push(id);
                }
            }
            return;
        }
    }

    fn may_move(&self, from: u32, id: ThreadId, now: Picoseconds) -> bool {
        let entity = &self.entities[id as usize];
        let is_hot = |eevdf: Eevdf| {
            now.saturating_sub(entity.ran) < eevdf.hot && self.cpus[from as usize].failed <= PATIENT
        };
        entity.only.is_none() && !self.eevdf.is_some_and(is_hot)
    }

    /// A CPU's current thread goes back to its queue.
    pub(crate) fn put_back(&mut self, machine: &Machine, cpu: u32, now: Picoseconds) {
        self.passes(cpu, now);
        if let Some(id) = self.cpus[cpu as usize].current.take() {
            self.thread_passes(id, now, true, true);
            self.cpus[cpu as usize].queue.push(id);
            self.idle[machine.cluster_of(cpu) as usize] += 1;
        }
    }

    /// A thread leaves the CPU that it runs on, since it sleeps or comes to its end. Which CPU that is.
    pub(crate) fn leave(&mut self, machine: &Machine, id: ThreadId, sleeps: bool, now: Picoseconds) -> u32 {
        let cpu = self.of(id);
        self.passes(cpu, now);
        self.thread_passes(id, now, true, true);
        if let Some(eevdf) = self.eevdf {
            if sleeps && !self.is_eligible(cpu, id) {
                self.entities[id as usize].asleep = true;
                self.cpus[cpu as usize].asleep.push(id);
            } else {
                self.part(id, cpu, eevdf);
            }
        }
        self.cpus[cpu as usize].current = None;
        self.idle[machine.cluster_of(cpu) as usize] += 1;
        cpu
    }

    /// A thread has run for that long up to now.
    pub(crate) fn charge(&mut self, id: ThreadId, time: Picoseconds, now: Picoseconds) {
        let entity = &mut self.entities[id as usize];
        entity.virtual_time += time;
        entity.ran = now;
        if let Some(eevdf) = self.eevdf
            && entity.virtual_time >= entity.deadline
        {
            entity.deadline = entity.virtual_time + eevdf.slice;
        }
    }

    /// The running thread, which has been charged, wants to be the last of its CPU to run again. Whether
    /// another thread wants to run.
    pub(crate) fn yields(&mut self, id: ThreadId, now: Picoseconds) -> bool {
        let cpu = self.of(id);
        if let Some(eevdf) = self.eevdf {
            // Where it is alone Linux does nothing. A thread that sleeps and counts is company, until Linux
            // looks for the next one.
            if self.all(cpu).count() > 1 {
                if self.is_eligible(cpu, id) {
                    let entity = &mut self.entities[id as usize];
                    entity.virtual_time = entity.deadline;
                    entity.deadline += eevdf.slice;
                }
                self.forget(cpu, now);
            }
            return self.is_wanted(cpu);
        }
        let most = self.cpus[cpu as usize]
            .queue
            .iter()
            .map(|&other| self.entities[other as usize].virtual_time)
            .max();
        match most {
            Some(most) => {
                let own = &mut self.entities[id as usize].virtual_time;
                *own = (*own).max(most + 1);
                true
            }
            None => false,
        }
    }

    /// When the slice of the current thread of a CPU ends, which began to run then; or when that is looked
    /// at.
    pub(crate) fn slice_end(&self, machine: &Machine, cpu: u32, begun: Picoseconds) -> Picoseconds {
        let Some(Eevdf { tick, .. }) = self.eevdf else {
            let scheduler = machine.scheduler();
            let threads = self.cpus[cpu as usize].queue.len() as u64 + 1;
            return begun + (scheduler.latency / threads).max(scheduler.granularity);
        };
        begun + tick - (begun + tick - self.first_tick(cpu, tick)) % tick
    }

    /// Linux's CPUs have their ticks at other times than their neighbours.
    fn first_tick(&self, cpu: u32, tick: Picoseconds) -> Picoseconds {
        tick / self.cpus.len() as Picoseconds * Picoseconds::from(cpu)
    }

    pub(crate) fn has_slice(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].slice.is_some()
    }

    /// A new end of a CPU's slice, in place of the previous one. Whether that is to be announced: most slices
    /// of a CPU whose threads yield end at the same tick.
    pub(crate) fn new_slice(&mut self, cpu: u32, at: Picoseconds) -> bool {
        let here = &mut self.cpus[cpu as usize];
        here.slice = Some(at);
        let is_new = here.announced != Some(at);
        here.announced = here.announced.max(Some(at));
        is_new
    }

    /// An end of a slice comes that was announced. Whether it still is one.
    pub(crate) fn slice_ends(&mut self, cpu: u32, now: Picoseconds) -> bool {
        let here = &mut self.cpus[cpu as usize];
        here.announced = here.announced.filter(|&at| at != now);
        here.slice.take_if(|at| *at == now).is_some()
    }
}

/// Who runs first: the least. With an average, EEVDF's: who is eligible, by deadline.
fn rank(entity: &Entity, average: Option<Picoseconds>) -> (bool, Picoseconds) {
    match average {
        Some(average) => (entity.virtual_time > average, entity.deadline),
        None => (false, entity.virtual_time),
    }
}

/// What is left of what was so long ago.
fn faded(time: Picoseconds) -> f64 {
    (-(time as f64) / HALF_LIFE).exp2()
}

fn difference(one: Picoseconds, other: Picoseconds) -> i64 {
    one.wrapping_sub(other).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MICROSECOND;

    const EEVDF: Eevdf =
        Eevdf { slice: 1000 * MICROSECOND, tick: 4000 * MICROSECOND, hot: 500 * MICROSECOND, pack: 171 };

    /// A machine's CPUs with this number of threads, which begin on these.
    fn cpus(cpus: u32, first: &[u32]) -> (Machine, Cpus) {
        let machine = Machine::known()[0].flat(cpus);
        let mut made = Cpus::new(&machine, Some(EEVDF));
        for (id, first) in first.iter().enumerate() {
            made.add(id as u32, None, Some(*first));
            let cpu = made.choose(&machine, id as u32, None, 0);
            made.place(&machine, id as u32, cpu, 0);
        }
        (machine, made)
    }

    fn next(cpus: &mut Cpus, machine: &Machine, cpu: u32, now: Picoseconds) -> Option<u32> {
        cpus.next(machine, cpu, now, 0).map(|next| next.id)
    }

    /// The next thread on the first CPU is this one. It runs for that long, and goes to sleep.
    fn sleeps_after(cpus: &mut Cpus, machine: &Machine, id: u32, time: Picoseconds) {
        assert_eq!(next(cpus, machine, 0, 0), Some(id));
        cpus.charge(id, time, 0);
        cpus.leave(machine, id, true, 0);
    }

    #[test]
    fn who_is_eligible_runs_to_its_deadline() {
        let (machine, mut cpus) = cpus(1, &[0, 0]);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        assert!(cpus.goes_on(0, 0) && !cpus.preempts(&machine, 1, 0, 0), "both have had nothing");
        cpus.charge(0, 100 * MICROSECOND, 100 * MICROSECOND);
        assert!(!cpus.goes_on(0, 0), "it has had more than the other");
        assert!(cpus.preempts(&machine, 1, 0, 0));
        cpus.put_back(&machine, 0, 100 * MICROSECOND);
        assert_eq!(next(&mut cpus, &machine, 0, 100 * MICROSECOND), Some(1));
        cpus.charge(1, 150 * MICROSECOND, 250 * MICROSECOND);
        assert!(!cpus.goes_on(0, 0), "now this one has");
    }

    #[test]
    fn what_a_thread_lacks_it_keeps_and_what_it_had_too_much_is_forgotten() {
        let (machine, mut cpus) = cpus(1, &[0, 0]);
        // It has had 200 us more than the other, which goes on for 300.
        sleeps_after(&mut cpus, &machine, 0, 200 * MICROSECOND);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1));
        cpus.charge(1, 300 * MICROSECOND, 0);
        cpus.place(&machine, 0, 0, 0);
        assert!(!cpus.preempts(&machine, 0, 1, 0), "it lacks nothing");
        // The other one waits for long, runs for a moment, and sleeps: what it lacks is its due.
        cpus.put_back(&machine, 0, 0);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1), "of two that are equal: the earlier deadline");
        cpus.charge(1, 1000 * MICROSECOND, 0);
        cpus.put_back(&machine, 0, 0);
        sleeps_after(&mut cpus, &machine, 0, MICROSECOND);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1));
        cpus.place(&machine, 0, 0, 0);
        assert!(cpus.preempts(&machine, 0, 1, 0));
    }

    #[test]
    fn who_slept_with_too_much_counts_until_it_would_be_next() {
        let (machine, mut cpus) = cpus(1, &[0, 0]);
        sleeps_after(&mut cpus, &machine, 0, 50 * MICROSECOND);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1));
        cpus.charge(1, 10 * MICROSECOND, 0);
        cpus.place(&machine, 0, 0, 0);
        assert!(!cpus.preempts(&machine, 0, 1, 0), "it still has had more");
        cpus.leave(&machine, 1, true, 0);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        cpus.place(&machine, 1, 0, 0);
        assert!(cpus.preempts(&machine, 1, 0, 0), "it had had less as it went to sleep");
    }

    #[test]
    fn who_sleeps_does_not_keep_a_woken_thread_from_its_waker_s_cpu() {
        let (machine, mut cpus) = cpus(1, &[0, 0, 0]);
        sleeps_after(&mut cpus, &machine, 0, 0);
        sleeps_after(&mut cpus, &machine, 1, 5 * MICROSECOND);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(2));
        cpus.charge(2, 6 * MICROSECOND, 0);
        // Thread 1 counts, has had less than 2, and its deadline is the earliest.
        cpus.place(&machine, 0, 0, 0);
        assert!(cpus.preempts(&machine, 0, 2, 0));
    }

    #[test]
    fn a_woken_thread_goes_where_its_waker_is_as_long_as_that_is_seldom_busy() {
        let (machine, mut cpus) = cpus(2, &[0, 1]);
        for id in [0, 1] {
            assert_eq!(next(&mut cpus, &machine, id, 0), Some(id));
            cpus.charge(id, MICROSECOND, MICROSECOND);
            cpus.leave(&machine, id, true, MICROSECOND);
        }
        let later = 200_000 * MICROSECOND;
        assert_eq!(cpus.choose(&machine, 1, Some(0), later), 0);
        assert_eq!(cpus.choose(&machine, 1, None, later), 1, "nobody has woken it");
        let (machine, mut crowded) = super::tests::cpus(2, &[0, 0, 1]);
        assert_eq!(next(&mut crowded, &machine, 1, 0), Some(2));
        crowded.charge(2, MICROSECOND, MICROSECOND);
        crowded.leave(&machine, 2, true, MICROSECOND);
        assert_eq!(next(&mut crowded, &machine, 0, later), Some(0));
        assert_eq!(crowded.choose(&machine, 2, Some(0), later), 1, "another one waits there");
        crowded.charge(0, 50 * MICROSECOND, later);
        crowded.leave(&machine, 0, true, later);
        assert_eq!(next(&mut crowded, &machine, 0, later), Some(1));
        assert_eq!(crowded.choose(&machine, 2, Some(0), later), 0, "who sleeps there is no matter");
        let later = later + 200_000 * MICROSECOND;
        cpus.place(&machine, 0, 0, later);
        assert_eq!(next(&mut cpus, &machine, 0, later), Some(0));
        let busy = later + 100_000 * MICROSECOND;
        assert_eq!(cpus.choose(&machine, 1, Some(0), busy), 1, "the waker has been busy since");
    }

    #[test]
    fn a_woken_thread_whose_cpu_is_busy_looks_for_an_idle_one_unless_most_were_busy() {
        let (machine, mut cpus) = cpus(2, &[0, 0, 1]);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        assert_eq!(next(&mut cpus, &machine, 1, 0), Some(2));
        // Threads 0 and 2 sleep; 1 runs in the place of 0.
        for id in [0, 2] {
            cpus.charge(id, 0, MICROSECOND);
            cpus.leave(&machine, id, true, MICROSECOND);
        }
        assert_eq!(next(&mut cpus, &machine, 0, MICROSECOND), Some(1));
        assert_eq!(cpus.choose(&machine, 0, None, 2 * MICROSECOND), 0, "both were busy until now");
        assert_eq!(cpus.choose(&machine, 0, None, 200_000 * MICROSECOND), 1, "one has been idle for long");
    }

    #[test]
    fn what_ran_a_moment_ago_is_left_where_it_is_for_two_ticks() {
        let (machine, mut cpus) = cpus(2, &[0, 0]);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        assert_eq!(next(&mut cpus, &machine, 1, 0), None, "it is hot");
        for _ in 0..=PATIENT {
            assert_eq!(next(&mut cpus, &machine, 1, 0), None);
            assert_eq!(cpus.ticks(0, 0), Some(1));
            assert_eq!(cpus.ticks(0, MICROSECOND), None, "an interrupt is no tick");
        }
        assert_eq!(next(&mut cpus, &machine, 1, 0), Some(1));
        assert_eq!(cpus.ticks(0, 0), None, "nothing is idle");
    }

    #[test]
    fn who_yields_gives_up_its_slice() {
        let (machine, mut cpus) = cpus(1, &[0, 0]);
        let mut order = Vec::new();
        for _ in 0..6 {
            let id = next(&mut cpus, &machine, 0, 0).expect("two are ready");
            order.push(id);
            assert!(cpus.yields(id, 0) && !cpus.goes_on(0, 0));
            cpus.put_back(&machine, 0, 0);
        }
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn who_yields_alone_gives_nothing_up() {
        let (machine, mut cpus) = cpus(1, &[0]);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        let had = |cpus: &Cpus| (cpus.entities[0].virtual_time, cpus.entities[0].deadline);
        let before = had(&cpus);
        assert!(!cpus.yields(0, 0));
        assert_eq!(had(&cpus), before);
    }

    #[test]
    fn who_yields_beside_a_sleeping_thread_gives_up_its_slice_and_that_counts_no_more() {
        let (machine, mut cpus) = cpus(1, &[0, 0, 0]);
        sleeps_after(&mut cpus, &machine, 0, 0);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1));
        cpus.charge(1, 50 * MICROSECOND, 0);
        cpus.put_back(&machine, 0, 0);
        sleeps_after(&mut cpus, &machine, 2, 100 * MICROSECOND);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1));
        let deadline = cpus.entities[1].deadline;
        assert!(!cpus.yields(1, 0), "the other one sleeps");
        assert_eq!(cpus.entities[1].virtual_time, deadline);
        cpus.charge(1, MICROSECOND, 0);
        cpus.place(&machine, 0, 0, 0);
        assert!(!cpus.preempts(&machine, 0, 1, 0), "nobody is owed what it gave up");
    }
}
