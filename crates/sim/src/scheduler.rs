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
//! noticed at ticks, and when a thread becomes ready.
//!
//! Nothing here takes or announces time: [`crate::engine`] does.

use crate::engine::ThreadId;
use crate::machine::{Eevdf, Machine, Picoseconds};

/// Where a thread that became ready is.
pub(crate) enum Placed {
    /// In the queue of an idle CPU.
    Idle(u32),
    /// In the queue of a busy CPU.
    Queued(u32),
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
}

#[derive(Default)]
struct Cpu {
    current: Option<ThreadId>,
    queue: Vec<ThreadId>,
    /// The least that a thread here has had.
    least: Picoseconds,
    /// The event that ends the slice.
    slice: u64,
    limited: bool,
    /// When its current thread began to run.
    from: Picoseconds,
    /// At how many of its ticks another CPU was idle, and found nothing to take.
    failed: u32,
    /// Since when it is idle, if it is.
    idle_since: Option<Picoseconds>,
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
    /// By cluster: for how long its CPUs were busy, what is long ago for less, as of then.
    busy: Vec<(f64, Picoseconds)>,
    /// By cluster: at how many of its CPUs a woken thread whose last one is busy looks for an idle one.
    looks: Vec<usize>,
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
            busy: vec![(0.0, 0); machine.clusters() as usize],
            looks: vec![0; machine.clusters() as usize],
        }
    }

    /// A thread that has never run. It may only run on one CPU, or begins on one.
    pub(crate) fn add(&mut self, id: ThreadId, only: Option<u32>, first: Option<u32>) {
        debug_assert_eq!(id as usize, self.entities.len());
        self.entities.push(Entity {
            cpu: first.map(|first| first % self.cpus.len() as u32),
            only,
            virtual_time: begin(self.eevdf),
            migrated: false,
            ran: 0,
            deadline: 0,
            protected: 0,
            lag: 0,
        });
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

    /// Chooses a CPU for a thread that became ready, and puts it into its queue.
    pub(crate) fn place(&mut self, machine: &Machine, id: ThreadId) -> Placed {
        let scheduler = machine.scheduler();
        let before = self.entities[id as usize].cpu;
        let cpu = self.choose(machine, id);
        let entity = &mut self.entities[id as usize];
        entity.migrated = before.is_some_and(|before| before != cpu);
        entity.cpu = Some(cpu);
        match self.eevdf {
            Some(eevdf) => self.join(id, cpu, eevdf),
            None => {
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
        if idle { Placed::Idle(cpu) } else { Placed::Queued(cpu) }
    }

    pub(crate) fn has_eevdf(&self) -> bool {
        self.eevdf.is_some()
    }

    /// The threads that run on a CPU or are in its queue.
    fn all(&self, cpu: u32) -> impl Iterator<Item = &Entity> {
        let cpu = &self.cpus[cpu as usize];
        cpu.queue.iter().chain(&cpu.current).map(|&id| &self.entities[id as usize])
    }

    /// What they have had on average, if there are any.
    fn average(&self, cpu: u32) -> Option<Picoseconds> {
        let count = self.load(cpu) as u128;
        let sum: u128 = self.all(cpu).map(|entity| u128::from(entity.virtual_time)).sum();
        (count > 0).then(|| (sum / count.max(1)) as Picoseconds)
    }

    /// A thread comes into a CPU's queue, with its lag.
    fn join(&mut self, id: ThreadId, cpu: u32, eevdf: Eevdf) {
        let count = self.load(cpu) as i64;
        let least = self.cpus[cpu as usize].least;
        let average = self.average(cpu);
        let entity = &mut self.entities[id as usize];
        if !entity.migrated && entity.lag < 0 {
            // The others have run since.
            let had = entity.virtual_time;
            entity.lag = average.map_or(0, |average| difference(average, had).min(0) / (count + 1) * count);
        }
        // The thread itself takes part in the average afterwards.
        entity.virtual_time = average.map_or(least, |average| {
            average.saturating_add_signed((-entity.lag).saturating_mul(count + 1) / count.max(1))
        });
        entity.deadline = entity.virtual_time + eevdf.slice;
        self.cpus[cpu as usize].queue.push(id);
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

    /// Whether EEVDF has the thread that runs on a CPU go on, which a tick or another thread has interrupted.
    pub(crate) fn goes_on(&mut self, cpu: u32) -> bool {
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
                .best(cpu)
                .is_none_or(|best| rank(current, average) < rank(self.queued(cpu, best), average))
    }

    /// The thread at a place of a CPU's queue.
    fn queued(&self, cpu: u32, at: usize) -> &Entity {
        &self.entities[self.cpus[cpu as usize].queue[at] as usize]
    }

    /// The thread in a CPU's queue that is to be next: its place there.
    fn best(&self, cpu: u32) -> Option<usize> {
        let queue = &self.cpus[cpu as usize].queue;
        let average = self.eevdf.and_then(|_| self.average(cpu));
        (0..queue.len()).min_by_key(|&at| (rank(self.queued(cpu, at), average), queue[at]))
    }

    /// Whether a thread that was woken is to run at once, instead of the one that runs there.
    pub(crate) fn preempts(&self, machine: &Machine, id: ThreadId, current: ThreadId) -> bool {
        if self.eevdf.is_some() {
            let cpu = self.of(current);
            return self.best(cpu).is_some_and(|at| self.cpus[cpu as usize].queue[at] == id)
                && !self.keeps(cpu);
        }
        let time = |id: ThreadId| self.entities[id as usize].virtual_time;
        time(current) > time(id) + machine.scheduler().wakeup_granularity
    }

    fn choose(&mut self, machine: &Machine, id: ThreadId) -> u32 {
        let entity = &self.entities[id as usize];
        if let Some(only) = entity.only {
            return only;
        }
        let Some(last) = entity.cpu else {
            let first = self.next;
            self.next = (first + 1) % self.spread.len();
            let cpus = self.spread[first..].iter().chain(&self.spread[..first]);
            return cpus.copied().min_by_key(|&cpu| self.load(cpu)).unwrap_or(0);
        };
        let is_new = entity.ran == 0;
        if is_new || self.is_idle(last) {
            return last;
        }
        let cluster = machine.cluster_of(last);
        if self.eevdf.is_some() {
            return self.idle_after(last, cluster).unwrap_or(last);
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

    /// The first idle one of a cluster's CPUs after this one, among as many as Linux looks at.
    fn idle_after(&self, last: u32, cluster: u32) -> Option<u32> {
        let cpus = &self.of_cluster[cluster as usize];
        let at = cpus.iter().position(|&cpu| cpu == last)?;
        let after = cpus[at + 1..].iter().chain(&cpus[..at]).copied();
        after.take(self.looks[cluster as usize]).find(|&cpu| self.is_idle(cpu))
    }

    /// A tick of a CPU for which a thread waits. Returns an idle CPU, which is to look at the queue.
    ///
    /// That is when Linux decides at how many CPUs it will look for an idle one: fewer, the busier they were,
    /// and none if most were busy (`SIS_UTIL`, of Linux 6.0). Up to the next such tick that stays so.
    pub(crate) fn ticks(&mut self, machine: &Machine, cpu: u32, now: Picoseconds) -> Option<u32> {
        let cluster = machine.cluster_of(cpu);
        let share = self.utilization(cluster, now) * IMBALANCE;
        let cpus = self.of_cluster[cluster as usize].len();
        self.looks[cluster as usize] = ((1.0 - share * share).max(0.0) * cpus as f64) as usize;
        let idle = (0..self.cpus.len() as u32).find(|&other| other != cpu && self.is_idle(other))?;
        self.cpus[cpu as usize].failed += 1;
        Some(idle)
    }

    /// The share of their time that a cluster's CPUs have been busy for of late.
    fn utilization(&self, cluster: u32, now: Picoseconds) -> f64 {
        let running = |cpu: &u32| {
            let cpu = &self.cpus[*cpu as usize];
            cpu.current.map_or(0, |_| now.saturating_sub(cpu.from))
        };
        let cpus = &self.of_cluster[cluster as usize];
        let (busy, then) = self.busy[cluster as usize];
        let running: Picoseconds = cpus.iter().map(running).sum();
        let whole = HALF_LIFE / core::f64::consts::LN_2 * (1.0 - faded(now)) * cpus.len() as f64;
        ((busy * faded(now - then) + running as f64) / whole.max(1.0)).min(1.0)
    }

    /// The thread of a CPU leaves it. Only EEVDF wants to know how busy that was.
    fn was_busy(&mut self, machine: &Machine, cpu: u32, now: Picoseconds) {
        if self.eevdf.is_none() {
            return;
        }
        let time = now.saturating_sub(self.cpus[cpu as usize].from);
        let (busy, then) = &mut self.busy[machine.cluster_of(cpu) as usize];
        *busy = *busy * faded(now - *then) + time as f64;
        *then = now;
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

    /// Makes the next thread a CPU's current one. It has none. The switch begins after the time `latency`.
    pub(crate) fn next(
        &mut self,
        machine: &Machine,
        cpu: u32,
        now: Picoseconds,
        latency: Picoseconds,
    ) -> Option<Next> {
        debug_assert!(self.cpus[cpu as usize].current.is_none());
        if self.cpus[cpu as usize].queue.is_empty() {
            self.steal(machine, cpu, now);
        }
        let best = self.best(cpu);
        let here = &mut self.cpus[cpu as usize];
        here.limited = false;
        here.slice += 1;
        let id = here.queue.swap_remove(best?);
        here.current = Some(id);
        here.from = now + latency;
        let entity = &mut self.entities[id as usize];
        entity.protected = entity.deadline;
        here.least = here.least.max(entity.virtual_time);
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
        self.was_busy(machine, cpu, now);
        let here = &mut self.cpus[cpu as usize];
        if let Some(id) = here.current.take() {
            here.queue.push(id);
            self.idle[machine.cluster_of(cpu) as usize] += 1;
        }
    }

    /// A thread leaves the CPU that it runs on; which one that is.
    pub(crate) fn leave(&mut self, machine: &Machine, id: ThreadId, now: Picoseconds) -> u32 {
        let cpu = self.of(id);
        self.was_busy(machine, cpu, now);
        if let Some(eevdf) = self.eevdf {
            self.part(id, cpu, eevdf);
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

    /// The running thread wants to be the last of its CPU to run again. Whether another thread wants to run.
    pub(crate) fn yields(&mut self, id: ThreadId) -> bool {
        let cpu = self.of(id);
        if let Some(eevdf) = self.eevdf {
            if self.is_eligible(cpu, id) {
                let entity = &mut self.entities[id as usize];
                entity.virtual_time = entity.deadline;
                entity.deadline += eevdf.slice;
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
        // Linux's CPUs have their ticks at other times than their neighbours.
        let first = tick / self.cpus.len() as Picoseconds * Picoseconds::from(cpu);
        begun + tick - (begun + tick - first) % tick
    }

    pub(crate) fn has_slice(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].limited
    }

    /// A new end of a CPU's slice; the previous one is void.
    pub(crate) fn new_slice(&mut self, cpu: u32) -> u64 {
        let here = &mut self.cpus[cpu as usize];
        here.limited = true;
        here.slice += 1;
        here.slice
    }

    /// Whether an end of a slice is not void.
    pub(crate) fn slice_ends(&mut self, cpu: u32, slice: u64) -> bool {
        let here = &mut self.cpus[cpu as usize];
        let ends = here.limited && here.slice == slice;
        if ends {
            here.limited = false;
        }
        ends
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
        Eevdf { slice: 1000 * MICROSECOND, tick: 4000 * MICROSECOND, hot: 500 * MICROSECOND };

    /// A machine's CPUs with this number of threads, which begin on these.
    fn cpus(cpus: u32, first: &[u32]) -> (Machine, Cpus) {
        let machine = Machine::known()[0].flat(cpus);
        let mut made = Cpus::new(&machine, Some(EEVDF));
        for (id, first) in first.iter().enumerate() {
            made.add(id as u32, None, Some(*first));
            made.place(&machine, id as u32);
        }
        (machine, made)
    }

    fn next(cpus: &mut Cpus, machine: &Machine, cpu: u32, now: Picoseconds) -> Option<u32> {
        cpus.next(machine, cpu, now, 0).map(|next| next.id)
    }

    #[test]
    fn who_is_eligible_runs_to_its_deadline() {
        let (machine, mut cpus) = cpus(1, &[0, 0]);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        assert!(cpus.goes_on(0) && !cpus.preempts(&machine, 1, 0), "both have had nothing");
        cpus.charge(0, 100 * MICROSECOND, 100 * MICROSECOND);
        assert!(!cpus.goes_on(0), "it has had more than the other");
        assert!(cpus.preempts(&machine, 1, 0));
        cpus.put_back(&machine, 0, 100 * MICROSECOND);
        assert_eq!(next(&mut cpus, &machine, 0, 100 * MICROSECOND), Some(1));
        cpus.charge(1, 150 * MICROSECOND, 250 * MICROSECOND);
        assert!(!cpus.goes_on(0), "now this one has");
    }

    #[test]
    fn what_a_thread_lacks_it_keeps_and_what_it_had_too_much_is_forgotten() {
        let (machine, mut cpus) = cpus(1, &[0, 0]);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        cpus.charge(0, 200 * MICROSECOND, 0);
        // It sleeps, and has had 200 us more than the other, which goes on for 300.
        cpus.leave(&machine, 0, 0);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1));
        cpus.charge(1, 300 * MICROSECOND, 0);
        cpus.place(&machine, 0);
        assert!(!cpus.preempts(&machine, 0, 1), "it lacks nothing");
        // The other one waits for long, runs for a moment, and sleeps: what it lacks is its due.
        cpus.put_back(&machine, 0, 0);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1), "of two that are equal: the earlier deadline");
        cpus.charge(1, 1000 * MICROSECOND, 0);
        cpus.put_back(&machine, 0, 0);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        cpus.charge(0, MICROSECOND, 0);
        cpus.leave(&machine, 0, 0);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(1));
        cpus.place(&machine, 0);
        assert!(cpus.preempts(&machine, 0, 1));
    }

    #[test]
    fn who_yields_gives_up_its_slice() {
        let (machine, mut cpus) = cpus(1, &[0, 0]);
        let mut order = Vec::new();
        for _ in 0..6 {
            let id = next(&mut cpus, &machine, 0, 0).expect("two are ready");
            order.push(id);
            assert!(cpus.yields(id) && !cpus.goes_on(0));
            cpus.put_back(&machine, 0, 0);
        }
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn a_woken_thread_looks_for_an_idle_cpu_as_far_as_the_last_tick_found_them_idle() {
        let (machine, mut cpus) = cpus(2, &[0, 0, 0]);
        assert_eq!(next(&mut cpus, &machine, 0, 0), Some(0));
        assert_eq!(next(&mut cpus, &machine, 1, 0), None, "what ran a moment ago is hot");
        let is_on = |placed: Placed| match placed {
            Placed::Idle(cpu) | Placed::Queued(cpu) => cpu,
        };
        // Thread 0 sleeps; 1 runs in its place.
        cpus.charge(0, MICROSECOND, 0);
        cpus.leave(&machine, 0, 0);
        assert!(next(&mut cpus, &machine, 0, 0).is_some());
        assert_eq!(is_on(cpus.place(&machine, 0)), 0, "no tick has told of an idle CPU");
        // One CPU of two is busy: that is seen. If both are, nobody looks for an idle one.
        let tick = EEVDF.tick;
        assert_eq!(cpus.ticks(&machine, 0, tick), Some(1));
        assert_eq!(cpus.looks, [1]);
        assert_eq!(next(&mut cpus, &machine, 1, tick).map(|_| ()), Some(()), "nothing is hot any more");
        assert_eq!(cpus.ticks(&machine, 0, 40 * tick), None);
        assert_eq!(cpus.looks, [0]);
    }
}
