//! Which thread runs where, and next: Linux's completely fair scheduler, in what locks notice of it.
//!
//! Each CPU has a queue, and runs the thread that has had the least of it (its *virtual runtime*). A thread
//! that has slept begins a little below the least of the threads that are there, so that it is soon served.
//! If it has had enough less than the running thread, it takes the CPU at once. The queue's threads share a
//! period; none gets less than a granularity. A woken thread goes to its last CPU if that is idle, else to an
//! idle one of its cluster, the cores with which it has its last cache in common, else to the shortest queue
//! there. A CPU that runs out of threads takes one from the longest queue, near ones first.
//!
//! Nothing here takes or announces time: [`crate::engine`] does.

use crate::engine::ThreadId;
use crate::machine::{Machine, Picoseconds};

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
}

/// The clusters, nearest first.
fn clusters_from(machine: &Machine, cluster: u32) -> Vec<u32> {
    let mut clusters: Vec<u32> = (0..machine.clusters()).collect();
    let socket = |cluster| machine.socket_of_cluster(cluster);
    clusters.sort_by_key(|&other| (machine.hops(socket(cluster), socket(other)), other != cluster, other));
    clusters
}

impl Cpus {
    pub(crate) fn new(machine: &Machine) -> Cpus {
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
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            entities: Vec::new(),
            next: 0,
        }
    }

    /// A thread that has never run.
    pub(crate) fn add(&mut self, id: ThreadId, only: Option<u32>) {
        debug_assert_eq!(id as usize, self.entities.len());
        self.entities.push(Entity { cpu: None, only, virtual_time: 0, migrated: false });
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
        // Its virtual runtime is relative to those around it.
        let old = before.map_or(0, |before| self.cpus[before as usize].least);
        let here = &self.cpus[cpu as usize];
        let relative = if before == Some(cpu) {
            entity.virtual_time
        } else {
            (entity.virtual_time + here.least).saturating_sub(old)
        };
        entity.virtual_time = relative.max(here.least.saturating_sub(scheduler.latency / 2));
        let idle = here.current.is_none();
        self.cpus[cpu as usize].queue.push(id);
        if idle { Placed::Idle(cpu) } else { Placed::Queued(cpu) }
    }

    /// Whether a thread that was woken is to run at once, instead of the one that runs there.
    pub(crate) fn preempts(&self, machine: &Machine, id: ThreadId, current: ThreadId) -> bool {
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
        if self.is_idle(last) {
            return last;
        }
        let cluster = machine.cluster_of(last);
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

    /// Makes the next thread a CPU's current one. It has none.
    pub(crate) fn next(&mut self, machine: &Machine, cpu: u32) -> Option<Next> {
        debug_assert!(self.cpus[cpu as usize].current.is_none());
        if self.cpus[cpu as usize].queue.is_empty() {
            self.steal(machine, cpu);
        }
        let entities = &self.entities;
        let here = &mut self.cpus[cpu as usize];
        here.limited = false;
        here.slice += 1;
        let at = (0..here.queue.len()).min_by_key(|&at| {
            let id = here.queue[at];
            (entities[id as usize].virtual_time, id)
        })?;
        let id = here.queue.swap_remove(at);
        here.current = Some(id);
        here.least = here.least.max(entities[id as usize].virtual_time);
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
    fn steal(&mut self, machine: &Machine, cpu: u32) {
        for place in 0..self.of_cluster.len() {
            let cluster = self.nearest[machine.cluster_of(cpu) as usize][place];
            let queued = |other: &u32| {
                self.cpus[*other as usize].queue.iter().filter(|&&id| self.may_move(id)).count()
            };
            let Some(from) = self.of_cluster[cluster as usize]
                .iter()
                .copied()
                .max_by_key(|other| (queued(other), u32::MAX - other))
            else {
                continue;
            };
            let Some(at) = self.cpus[from as usize].queue.iter().position(|&id| self.may_move(id)) else {
                continue;
            };
            let id = self.cpus[from as usize].queue.remove(at);
            let (there, here) = (self.cpus[from as usize].least, self.cpus[cpu as usize].least);
            let entity = &mut self.entities[id as usize];
            entity.cpu = Some(cpu);
            entity.migrated = true;
            entity.virtual_time = (entity.virtual_time + here).saturating_sub(there);
            self.cpus[cpu as usize].queue.push(id);
            return;
        }
    }

    fn may_move(&self, id: ThreadId) -> bool {
        self.entities[id as usize].only.is_none()
    }

    /// A CPU's current thread goes back to its queue.
    pub(crate) fn put_back(&mut self, machine: &Machine, cpu: u32) {
        let here = &mut self.cpus[cpu as usize];
        if let Some(id) = here.current.take() {
            here.queue.push(id);
            self.idle[machine.cluster_of(cpu) as usize] += 1;
        }
    }

    /// A thread leaves the CPU that it runs on; which one that is.
    pub(crate) fn leave(&mut self, machine: &Machine, id: ThreadId) -> u32 {
        let cpu = self.of(id);
        self.cpus[cpu as usize].current = None;
        self.idle[machine.cluster_of(cpu) as usize] += 1;
        cpu
    }

    /// A thread has run for that long.
    pub(crate) fn charge(&mut self, id: ThreadId, time: Picoseconds) {
        self.entities[id as usize].virtual_time += time;
    }

    /// The running thread wants to be the last of its CPU to run again. Whether another thread wants to run.
    pub(crate) fn yields(&mut self, id: ThreadId) -> bool {
        let cpu = self.of(id);
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

    /// How long the current thread of a CPU may run.
    pub(crate) fn slice(&self, machine: &Machine, cpu: u32) -> Picoseconds {
        let scheduler = machine.scheduler();
        (scheduler.latency / (self.cpus[cpu as usize].queue.len() as u64 + 1)).max(scheduler.granularity)
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
