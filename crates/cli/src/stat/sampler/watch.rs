//! The processes and threads of a run, and each look at them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use poundlock_statfile::{Error, Live, LiveHold, LiveLock, LiveThread, LockKind};

use rustc_hash::FxHashMap;

use super::FutexWaits;
use super::graph;
use super::outcome::{
    Graph, Hidden, Holder, Outcome, Process, Sleep, SleepSum, Sleeping, Stuck, StuckThread, Threads, Times,
    WaitedLock,
};
use super::series::{self, Key, Party, Series, Waited};
use super::sleeps::{self, Asleep, At, PlaceId, Shared, Sleeps, Waker};
use super::tally::{Life, STILL_NS, Sample, Tally};
use crate::observe::calls::{self, Doing};
use crate::observe::place::by_process;
use crate::observe::proc::{self, Seen, Stat, Sums, Task};

/// Threads looked at in one round, of all processes together, at most: some 4 us each, or 20 us with a stack.
const THREADS: usize = 24;
/// Fewer where they take longer than this together, but no fewer than a few: rounds would become rare.
const LOOK_NS: u64 = 500_000;
const LEAST: u64 = 4;
/// Locks whose holders are looked for in one round, of each process,
const LOCKS: usize = 8;
/// and how many threads may be asked for that whether they hold one.
const ASKED: usize = 16384;
/// The longest chain that is followed.
const CHAIN: u64 = 32;
/// Waiters of one lock whose names are looked for in one round,
const WAITERS: u64 = 64;
/// and threads that have ended whose names are kept.
const NAMES: usize = 1 << 16;
/// Threads that all wait for each other for this long do so for good.
const STUCK_NS: u64 = 1_000_000_000;
/// Of those as many are named.
const STUCK: usize = 64;
/// Files left for others.
const SPARE_FILES: usize = 256;

/// Which processes are watched, with all that they start and all that leave a statistics file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whom {
    /// The children of this process.
    Children,
    /// Those.
    Processes(Vec<u32>),
}

/// By which ids processes and threads in other namespaces are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// Those that they have there, as in the files that they leave.
    Theirs,
    /// Those that we have for them.
    Ours,
}

/// A generator of numbers that are random enough to pick threads by.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// All that is known.
pub(super) struct Watch {
    /// Directories of statistics files, and files.
    places: Vec<PathBuf>,
    whom: Whom,
    ids: Ids,
    /// What threads wait for in futex calls, where these are seen.
    calls: Option<FutexWaits>,
    began: u64,
    last: u64,
    looks: u64,
    processes: Vec<Watched>,
    ended: Vec<(Watched, Graph)>,
    /// Files, by process and number, whose process was looked for.
    settled: HashSet<(u32, u32)>,
    /// By process, the start of its file, and address.
    locks: BTreeMap<Key, WaitedLock>,
    undecided: Vec<Undecided>,
    series: Series,
    /// How many more files may be kept open.
    files: usize,
    random: Random,
    /// Threads that are looked at in the next round.
    picks: usize,
    shared: Shared,
    stuck: Option<Stuck>,
}

/// A process.
struct Watched {
    /// Its id for us.
    pid: u32,
    /// Its id in the namespace that it lives in, by which its file goes, and reports; or [`Ids::Ours`].
    inner: u32,
    started: u64,
    about: Process,
    live: Option<Live>,
    /// Which of its files that is: it has one for each `exec`.
    file: Option<u32>,
    /// The threads in the file, by the oldest record first, at the last look.
    counted: Vec<LiveThread>,
    threads: HashMap<u32, Thread>,
    groups: BTreeMap<Arc<str>, (u64, Tally)>,
    /// The names of threads that have ended, by their ids in the namespace that they lived in.
    names: HashMap<u32, Arc<str>>,
    sleeps: Sleeps,
    /// The CPU time that does not count, and all of it.
    cpu_before: u64,
    cpu: Option<u64>,
}

/// A thread.
struct Thread {
    task: Task,
    /// Its id in the namespace that it lives in.
    inner: u32,
    name: Arc<str>,
    life: Life,
    /// Where its time went, which counts for the name that it has in the end.
    tally: Tally,
    looks: u64,
    asleep: Option<Asleep>,
    endless: Option<Endless>,
}

/// A sleep that only another thread of the program ends.
struct Endless {
    since: u64,
    arrivals: u64,
    what: Sleep,
    place: PlaceId,
}

/// A holder that is on a CPU or ready for one. Which of the two, what the kernel counts next will tell.
struct Undecided {
    key: Key,
    pid: u32,
    tid: u32,
    hold: LiveHold,
    since: u64,
    sums: Sums,
    ns: u64,
    samples: u64,
    /// Whether it holds the lock itself, rather than one at the end of the chain.
    first: bool,
}

/// What became of the holder of a lock.
enum Fate {
    Running,
    Asleep(Sleep),
    Cycle,
    HandedOver,
    Unknown,
    Undecided { tid: u32, hold: LiveHold, sums: Sums },
}

/// Where a chain of holders leads to.
struct Chain {
    end: Fate,
    /// The lock that the first holder waits for.
    behind: Option<u64>,
    locks: u64,
    /// Who has the first one.
    holder: series::Holder,
}

impl Watch {
    pub(super) fn new(dir: &Path, whom: Whom, ids: Ids, calls: Option<FutexWaits>, now: u64) -> Watch {
        Watch {
            places: vec![dir.to_path_buf()],
            whom,
            ids,
            calls,
            began: now,
            last: now,
            looks: 0,
            processes: Vec::new(),
            ended: Vec::new(),
            settled: HashSet::new(),
            locks: BTreeMap::new(),
            undecided: Vec::new(),
            series: Series::new(now),
            files: proc::file_limit().saturating_sub(SPARE_FILES) / 2,
            random: Random::new(now),
            picks: THREADS,
            shared: Shared::default(),
            stuck: None,
        }
    }

    /// Forgets all that was found so far; what is watched stays watched.
    pub(super) fn begin_anew(&mut self, now: u64) {
        (self.began, self.last, self.looks) = (now, now, 0);
        self.ended.clear();
        self.locks.clear();
        self.undecided.clear();
        self.series = Series::new(now);
        for process in &mut self.processes {
            process.begin_anew(now);
        }
    }

    /// Watches another process, which leaves this statistics file.
    pub(super) fn also(&mut self, pid: u32, file: &Path) {
        if let Whom::Processes(pids) = &mut self.whom
            && !pids.contains(&pid)
        {
            pids.push(pid);
        }
        self.places.push(file.to_path_buf());
    }

    /// Finds processes, their files and their threads.
    pub(super) fn discover(&mut self, now: u64) {
        let mut files: BTreeMap<u32, BTreeMap<u32, PathBuf>> = BTreeMap::new();
        for (pid, numbered) in self.places.iter().flat_map(|place| by_process(place)) {
            files.entry(pid).or_default().extend(numbered);
        }
        let mut pids: Vec<(u32, u32)> = match &self.whom {
            Whom::Processes(pids) => pids.iter().map(|&pid| (pid, 0)).collect(),
            Whom::Children => proc::children_of(std::process::id()),
        };
        let mut seen: HashSet<u32> = pids.iter().map(|&(pid, _)| pid).collect();
        let known: HashSet<u32> = self.processes.iter().map(|process| process.pid).collect();
        pids.extend(known.iter().filter(|pid| seen.insert(**pid)).map(|&pid| (pid, 0)));
        let mut at = 0;
        while let Some(&(pid, parent)) = pids.get(at) {
            at += 1;
            let children = proc::children_of(pid);
            pids.extend(children.into_iter().filter(|(child, _)| seen.insert(*child)));
            if !known.contains(&pid) {
                self.found(pid, parent, now);
            }
        }
        // A daemon may be nobody's child any more.
        for (&inner, files) in &files {
            let last = files.last_key_value().map_or(0, |(&number, _)| number);
            let known = |process: &Watched| process.inner == inner;
            if !self.settled.contains(&(inner, last)) && !self.processes.iter().any(known) {
                if proc::inner_pid(inner) == Some(inner) {
                    self.found(inner, 0, now);
                }
                self.settled.insert((inner, last));
            }
        }
        let mut index = 0;
        while let Some(process) = self.processes.get_mut(index) {
            if process.discover(now, files.get(&process.inner), &mut self.files) {
                index += 1;
            } else {
                let process = self.processes.swap_remove(index);
                self.end(process, now);
            }
        }
        self.shared.pids.clear();
        self.shared.pids.extend(self.processes.iter().map(|process| process.pid));
        let stuck = self.find_stuck(now);
        let threads = |stuck: &Option<Stuck>| stuck.as_ref().map_or(0, |stuck| stuck.threads.len());
        // While a signal ends the threads, and after the end of all, it is as it was before.
        if threads(&stuck) >= threads(&self.stuck) || !self.is_ending() {
            self.stuck = stuck;
        }
    }

    /// Whether no process is left, or one whose threads are ending.
    fn is_ending(&self) -> bool {
        let is_ending = |process: &Watched| process.threads.values().any(|thread| thread.task.is_ending());
        self.processes.is_empty() || self.processes.iter().any(is_ending)
    }

    /// All threads, if each waits for another one and has for long.
    fn find_stuck(&self, now: u64) -> Option<Stuck> {
        let mut stuck = Stuck { for_ns: u64::MAX, threads: Vec::new() };
        for process in &self.processes {
            for (&tid, thread) in &process.threads {
                let endless = thread.endless.as_ref()?;
                stuck.for_ns = stuck.for_ns.min(now.saturating_sub(endless.since));
                if stuck.threads.len() < STUCK {
                    stuck.threads.push(StuckThread {
                        pid: process.inner,
                        tid: if process.pid == process.inner { tid } else { thread.inner },
                        name: thread.name.to_string(),
                        what: endless.what.clone(),
                        place: endless.place,
                    });
                }
            }
        }
        stuck.threads.sort_by_key(|thread| (thread.pid, thread.tid));
        (stuck.for_ns >= STUCK_NS && !stuck.threads.is_empty()).then_some(stuck)
    }

    fn found(&mut self, pid: u32, parent: u32, now: u64) {
        let Some(stat) = Stat::read(pid).filter(|stat| !stat.is_over()) else { return };
        let inner = match self.ids {
            Ids::Theirs => proc::inner_pid(pid).unwrap_or(pid),
            Ids::Ours => pid,
        };
        let parent = if parent == 0 { stat.parent } else { parent };
        let known = self.processes.iter().find(|process| process.pid == parent);
        // Reports speak of processes by the ids in their files.
        let about = Process {
            pid: inner,
            outer_pid: pid,
            parent: known.map_or(parent, |known| known.inner),
            alive: true,
            ..Process::default()
        };
        let mut process = Watched {
            pid,
            inner,
            started: stat.started,
            about,
            live: None,
            file: None,
            counted: Vec::new(),
            threads: HashMap::new(),
            groups: BTreeMap::new(),
            names: HashMap::new(),
            sleeps: Sleeps::default(),
            cpu_before: 0,
            cpu: None,
        };
        process.find_threads(now, &mut self.files);
        // What ran before it was watched did not do so for us.
        if matches!(&self.whom, Whom::Processes(pids) if pids.contains(&pid)) {
            process.begin_anew(now);
        }
        self.processes.push(process);
    }

    fn end(&mut self, mut process: Watched, now: u64) {
        let graph = process.graph(now);
        self.undecided.retain(|undecided| undecided.pid != process.pid);
        let tids: Vec<u32> = process.threads.keys().copied().collect();
        for tid in tids {
            process.forget(tid, &mut self.files);
        }
        process.close();
        self.ended.push((process, graph));
    }

    /// The CPU time that went into what programs have mapped.
    pub(super) fn mapping_ns(&self) -> u64 {
        self.shared.mapping_ns()
    }

    /// One look at everything.
    pub(super) fn look(&mut self, now: u64) {
        let last = std::mem::replace(&mut self.last, now);
        self.looks += 1;
        self.series.watched(last, now);
        self.decide(now);
        for process in &mut self.processes {
            if process.live.as_ref().is_some_and(|live| !live.is_whole()) {
                process.live = None;
                process.about.hidden.insert(Hidden::File);
            }
            if let Some(live) = &mut process.live {
                live.look(&mut process.counted);
                process.find_counted_threads(now, &mut self.files);
            }
            process.cpu = proc::cpu_time_ns(process.pid).or(process.cpu);
        }
        self.look_at_locks(last, now);
        self.look_at_threads(now);
    }

    fn look_at_threads(&mut self, now: u64) {
        let all: usize = self.processes.iter().map(|process| process.threads.len()).sum();
        let (picks, before) = (self.picks, proc::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0));
        let mut looks = 0;
        let calls = self.calls.clone();
        let calls = calls.as_ref().map(|calls| calls.lock().unwrap_or_else(PoisonError::into_inner));
        for process in &mut self.processes {
            // Each thread has the same chance, so that each sample says as much as any other.
            let picked = process
                .threads
                .keys()
                .copied()
                .filter(|_| all <= picks || self.random.below(all) < picks)
                .collect::<Vec<u32>>();
            if picked.is_empty() {
                continue;
            }
            let records: HashMap<u32, LiveThread> =
                process.counted.iter().map(|thread| (thread.tid, *thread)).collect();
            for tid in picked {
                let known = (&records, calls.as_deref());
                process.look_at_thread(tid, now, known, (&mut self.files, &mut self.shared));
                looks += 1;
            }
        }
        let each = (proc::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0) - before) / looks.max(1);
        if looks > 0 {
            self.picks = (LOOK_NS / each.max(1)).clamp(LEAST, THREADS as u64) as usize;
        }
    }

    fn look_at_locks(&mut self, last: u64, now: u64) {
        let passed = now.saturating_sub(last);
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let Some(live) = &process.live else { continue };
            let mut waited: BTreeMap<u64, u64> = BTreeMap::new();
            for wait in process.counted.iter().filter_map(|thread| thread.wait) {
                *waited.entry(wait.tag).or_default() += 1;
            }
            let locks: Vec<(u64, u64, LiveLock)> = waited
                .into_iter()
                .filter_map(|(tag, waiters)| {
                    let lock = live.lock(tag)?;
                    lock.kind.is_acquired().then_some((tag, waiters, lock))
                })
                .collect();
            let picks = (ASKED / process.counted.len().max(1)).clamp(1, LOCKS);
            let (pid, start_ns) = (process.inner, live.start_ns());
            for (place, share) in picked(&locks, picks, &mut self.random) {
                let (tag, waiters, lock) = locks[place];
                let chain = process.follow(tag, &mut self.random);
                let ns = (passed as f64 * share) as u64;
                let key = (pid, start_ns, lock.address);
                let seen = process.parties(tag, waiters, &chain.holder);
                self.series.add((last, now), key, &seen, share / waiters.max(1) as f64);
                let entry = self.locks.entry(key).or_insert_with(|| WaitedLock {
                    pid,
                    start_ns,
                    address: lock.address,
                    kind: lock.kind.to_string(),
                    ..WaitedLock::default()
                });
                entry.waiting.add(ns, 1);
                entry.chain = entry.chain.max(chain.locks);
                let first = chain.behind.is_none();
                if let Some(behind) = chain.behind {
                    entry.holder.waiting.add(ns, 1);
                    entry.behind.entry(behind).or_default().add(ns, 1);
                }
                if let Fate::Undecided { tid, hold, sums } = chain.end {
                    let pid = process.pid;
                    let same = |other: &&mut Undecided| {
                        (other.key, other.pid, other.tid, other.first) == (key, pid, tid, first)
                            && other.hold == hold
                    };
                    match self.undecided.iter_mut().find(same) {
                        Some(other) => {
                            other.ns += ns;
                            other.samples += 1;
                        }
                        None => self.undecided.push(Undecided {
                            key,
                            pid,
                            tid,
                            hold,
                            since: now,
                            sums,
                            ns,
                            samples: 1,
                            first,
                        }),
                    }
                } else {
                    count(&mut entry.end, &chain.end, ns);
                    if first {
                        count(&mut entry.holder, &chain.end, ns);
                    }
                }
            }
        }
    }

    /// Tells holders that ran from those that were ready without a CPU, as far as the kernel has counted by
    /// now.
    fn decide(&mut self, now: u64) {
        let mut rest = Vec::new();
        for undecided in std::mem::take(&mut self.undecided) {
            let process = self.processes.iter().find(|process| process.pid == undecided.pid);
            match process.map(|process| process.share_ready(&undecided, now)) {
                Some(None) => rest.push(undecided),
                Some(Some(ready)) => self.decided(&undecided, ready),
                None => {}
            }
        }
        self.undecided = rest;
    }

    fn decided(&mut self, undecided: &Undecided, ready: f64) {
        let Some(lock) = self.locks.get_mut(&undecided.key) else { return };
        let without = (undecided.ns as f64 * ready) as u64;
        let was_ready = ready >= 0.5;
        let add = |holder: &mut Holder| {
            let samples = |wanted: bool| if wanted == was_ready { undecided.samples } else { 0 };
            holder.ready.add(without, samples(true));
            holder.running.add(undecided.ns - without, samples(false));
        };
        add(&mut lock.end);
        if undecided.first {
            add(&mut lock.holder);
        }
    }

    /// All that is known now.
    pub(super) fn outcome(&mut self, now: u64) -> Outcome {
        let mut outcome = Outcome {
            watched_ns: self.last.saturating_sub(self.began),
            looks: self.looks,
            ..Outcome::default()
        };
        outcome.series = self.series.clone();
        let mut locks = self.locks.clone();
        for undecided in &self.undecided {
            if let Some(lock) = locks.get_mut(&undecided.key) {
                lock.end.unknown.add(undecided.ns, undecided.samples);
                if undecided.first {
                    lock.holder.unknown.add(undecided.ns, undecided.samples);
                }
            }
        }
        outcome.locks = locks.into_values().collect();
        outcome.locks.sort_by_key(|lock| std::cmp::Reverse(lock.waiting.ns));
        for process in &mut self.processes {
            outcome.graph.add(process.graph(now));
        }
        self.ended.iter().for_each(|(_, graph)| outcome.graph.add(graph.clone()));
        let all = || self.processes.iter().chain(self.ended.iter().map(|(process, _)| process));
        let is_nested = sleeps::nested(all().map(|process| &process.sleeps));
        outcome.processes = all().map(|process| process.outcome(&is_nested)).collect();
        outcome.stuck.clone_from(&self.stuck);
        for process in &outcome.processes {
            outcome.total.merge(&process.times);
        }
        outcome.processes.sort_by_key(|process| (std::cmp::Reverse(process.times.lived_ns), process.pid));
        outcome
    }
}

/// The locks to be looked at, by position, each with how many waiters it stands for. All of them if they are
/// few; else as many as `picks`, those with more waiters more often.
fn picked(locks: &[(u64, u64, LiveLock)], picks: usize, random: &mut Random) -> Vec<(usize, f64)> {
    if locks.len() <= picks {
        return locks.iter().map(|&(_, waiters, _)| waiters as f64).enumerate().collect();
    }
    let all: u64 = locks.iter().map(|&(_, waiters, _)| waiters).sum();
    let pick = |_| {
        let mut rest = random.below(all as usize) as u64;
        let hit = locks.iter().position(|&(_, waiters, _)| {
            let hit = rest < waiters;
            rest = rest.saturating_sub(waiters);
            hit
        });
        (hit.unwrap_or(0), all as f64 / picks as f64)
    };
    (0..picks).map(pick).collect()
}

fn count(holder: &mut Holder, fate: &Fate, ns: u64) {
    let to = match fate {
        Fate::Running => &mut holder.running,
        Fate::Asleep(what) => holder.asleep.entry(what.clone()).or_default(),
        Fate::Cycle => &mut holder.cycle,
        Fate::HandedOver => &mut holder.handed_over,
        Fate::Unknown | Fate::Undecided { .. } => &mut holder.unknown,
    };
    to.add(ns, 1);
}

impl Watched {
    fn begin_anew(&mut self, now: u64) {
        self.groups.clear();
        self.sleeps.begin_anew();
        self.cpu = proc::cpu_time_ns(self.pid).or(self.cpu);
        self.cpu_before = self.cpu.unwrap_or(0);
        for thread in self.threads.values_mut() {
            thread.life.begin_anew(now);
            thread.tally = Tally::new();
            self.groups.entry(thread.name.clone()).or_insert_with(group).0 += 1;
        }
    }

    /// Brings its name, its file and its threads up to date. False if it has ended.
    fn discover(&mut self, now: u64, files: Option<&BTreeMap<u32, PathBuf>>, room: &mut usize) -> bool {
        let stat = Stat::read(self.pid);
        let lives = |stat: &Stat| stat.started == self.started && !stat.is_over();
        let Some(stat) = stat.filter(lives) else { return false };
        self.about.name = stat.name;
        if let Ok(exe) = std::fs::read_link(format!("/proc/{}/exe", self.pid)) {
            self.about.exe = exe.to_string_lossy().into_owned();
        }
        if let Some((&number, path)) = files.and_then(BTreeMap::last_key_value)
            && self.file != Some(number)
        {
            match Live::open(path) {
                Ok(live) => {
                    (self.live, self.file) = (Some(live), Some(number));
                    self.about.measured = true;
                }
                // Not finished yet, or never to be.
                Err(Error::NotAStatFile) => {}
                Err(_) => {
                    self.file = Some(number);
                    self.about.hidden.insert(Hidden::File);
                }
            }
        }
        self.find_threads(now, room);
        true
    }

    fn find_threads(&mut self, now: u64, room: &mut usize) {
        let Some(tids) = proc::tasks(self.pid) else {
            self.about.hidden.insert(Hidden::Threads);
            return;
        };
        for &tid in &tids {
            match self.threads.get_mut(&tid) {
                // Those that are not looked at for long have a life all the same.
                Some(thread) => {
                    if let Some(sums) = thread.task.sums() {
                        thread.life.advance(now, sums);
                        thread.endless.take_if(|endless| endless.arrivals != sums.arrivals);
                    }
                }
                None => self.found_thread(tid, now, room),
            }
        }
        if self.threads.len() > tids.len() {
            let there: HashSet<u32> = tids.into_iter().collect();
            let gone: Vec<u32> = self.threads.keys().copied().filter(|tid| !there.contains(tid)).collect();
            for tid in gone {
                self.forget(tid, room);
            }
        }
    }

    /// Those that count in the file are threads, whether the directory was read since they began or not.
    fn find_counted_threads(&mut self, now: u64, room: &mut usize) {
        if self.pid != self.inner {
            return;
        }
        let fresh = |thread: &LiveThread| thread.tid != 0 && !self.threads.contains_key(&thread.tid);
        let fresh: Vec<u32> = self.counted.iter().filter(|t| fresh(t)).map(|thread| thread.tid).collect();
        for tid in fresh {
            self.found_thread(tid, now, room);
        }
    }

    fn found_thread(&mut self, tid: u32, now: u64, room: &mut usize) {
        if self.threads.contains_key(&tid) {
            return;
        }
        let task = Task::new(self.pid, tid, *room > 0);
        let Some((sums, name)) = task.sums().zip(task.name()) else { return };
        if sums.delay.is_none() {
            self.about.hidden.insert(Hidden::Ready);
        }
        let inner = if self.pid == self.inner { tid } else { task.inner_id().unwrap_or(tid) };
        let name = self.role(tid, &name);
        *room -= usize::from(task.is_open());
        let (seen, _) = self.groups.entry(name.clone()).or_insert_with(group);
        // In the middle of an `exec` the main thread looks as if it had ended.
        if tid != self.pid || *seen == 0 {
            *seen += 1;
            self.about.seen += 1;
        }
        let (life, tally) = (Life::new(now, sums), Tally::new());
        let thread = Thread { task, inner, name, life, tally, looks: 0, asleep: None, endless: None };
        self.threads.insert(tid, thread);
    }

    /// What threads like this one are called together: they are named after their process unless they name
    /// themselves, so that its name tells the main thread from none.
    fn role(&self, tid: u32, name: &str) -> Arc<str> {
        if tid == self.pid { series::MAIN.into() } else { without_digits(name).into() }
    }

    /// A thread has ended.
    fn forget(&mut self, tid: u32, room: &mut usize) {
        let Some(mut thread) = self.threads.remove(&tid) else { return };
        *room += usize::from(thread.task.is_open());
        if self.names.len() < NAMES {
            self.names.insert(thread.inner, thread.name.clone());
        }
        thread.life.close(&mut thread.tally);
        self.groups.entry(thread.name).or_insert_with(group).1.merge(&thread.tally);
    }

    fn look_at_thread(
        &mut self,
        tid: u32,
        now: u64,
        (records, calls): (&HashMap<u32, LiveThread>, Option<&FxHashMap<u32, LockKind>>),
        (room, shared): (&mut usize, &mut Shared),
    ) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let (seen, doing) = thread.task.look_closely();
        let Some(sums) = thread.task.sums().filter(|_| seen != Seen::Gone) else {
            self.forget(tid, room);
            return;
        };
        thread.looks += 1;
        // Threads often get their name after their start.
        if (thread.looks < 64 && thread.looks.is_power_of_two()) || thread.looks.is_multiple_of(64) {
            let name =
                thread.task.name().filter(|_| tid != self.pid).map(|name| Arc::from(without_digits(&name)));
            if let Some(name) = name.filter(|name: &Arc<str>| *name != thread.name) {
                if let Some((seen, _)) = self.groups.get_mut(&thread.name) {
                    *seen = seen.saturating_sub(1);
                }
                self.groups.entry(name.clone()).or_insert_with(group).0 += 1;
                thread.name = name;
            }
        }
        // Waits are shown before the thread goes to sleep, and until after it has woken up: what shows none
        // now showed none then.
        let counted = records.get(&thread.inner);
        let wait = self.live.as_ref().zip(counted).and_then(|(live, counted)| {
            let wait = live.wait(counted.record).or(counted.wait)?;
            Some(live.lock(wait.tag).map_or(LockKind::Mutex, |lock| lock.kind))
        });
        let is_thread = |tid| records.contains_key(&tid) || self.thread(tid).is_some();
        let wait = wait.filter(|_| !matches!(seen, Seen::Call(call) if !call.may_be_a_wait()));
        let by_call =
            || calls.filter(|_| matches!(seen, Seen::Call(call) if call.waits_for_futex()))?.get(&tid);
        let wait = wait.or_else(|| by_call().copied());
        let asleep = sleep(seen, wait, self.live.as_ref(), is_thread);
        if asleep == Some(Sleep::Hidden) {
            self.about.hidden.insert(Hidden::Calls);
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        // The stacks of waits for locks are in the file.
        let at = match &asleep {
            None | Some(Sleep::Lock | Sleep::Hidden) => At::default(),
            Some(what) => {
                let (whom, does) = ((self.pid, tid), (doing, sums));
                let at = self.sleeps.place(whom, &thread.task, does, &mut thread.asleep, shared, now);
                self.sleeps.is_for_work(at, what);
                at
            }
        };
        thread.endless = asleep.clone().filter(|what| is_endless(what, &doing, at.waker)).map(|what| {
            let same = thread.endless.as_ref().filter(|before| before.arrivals == sums.arrivals);
            let since = same.map_or(now, |before| before.since);
            Endless { since, arrivals: sums.arrivals, what, place: at.place }
        });
        let sample = Sample::new(asleep, at, wait);
        thread.life.add(now, sums, sample, &mut thread.tally);
    }

    /// Who keeps those waiting who wait for the lock with this tag.
    fn follow(&self, tag: u64, random: &mut Random) -> Chain {
        let holder = series::Holder::Unknown;
        let mut chain = Chain { end: Fate::Unknown, behind: None, locks: 1, holder };
        let Some(live) = &self.live else { return chain };
        let mut passed: Vec<(LiveThread, LiveHold)> = Vec::new();
        let mut tag = tag;
        while chain.locks <= CHAIN {
            if live.lock(tag).is_none_or(|lock| lock.kind == LockKind::Overflow) {
                return chain;
            }
            let holders: Vec<(LiveThread, LiveHold)> = live
                .held_as(tag)
                .into_iter()
                .flatten()
                .flat_map(|tag| self.counted.iter().map(move |thread| (thread, tag)))
                .filter_map(|(thread, tag)| Some((*thread, live.hold(thread.record, tag)?)))
                .collect();
            if holders.is_empty() {
                let ended = live.ended_holders(&live.ended(), &self.counted, tag).into_iter().next();
                if passed.is_empty() {
                    chain.holder = match &ended {
                        Some((thread, hold)) => {
                            series::Holder::Ended(thread.name.clone(), thread.tid, hold.acquired_at)
                        }
                        None => series::Holder::Nobody,
                    };
                }
                chain.end = if ended.is_some() { Fate::Unknown } else { Fate::HandedOver };
                return chain;
            }
            // Any of several readers, in the long run each as often as it makes others wait.
            let (holder, hold) = holders[random.below(holders.len())];
            if passed.is_empty() {
                chain.holder = series::Holder::Thread(holder.tid, hold.acquired_at);
            }
            if passed.iter().any(|(other, _)| other.record == holder.record) {
                let still = |(thread, hold): &(LiveThread, LiveHold)| {
                    live.wait(thread.record).is_some() && live.still_holds(hold)
                };
                chain.end = if passed.iter().all(still) { Fate::Cycle } else { Fate::Unknown };
                return chain;
            }
            let wait = live.wait(holder.record).and_then(|wait| Some((wait, live.lock(wait.tag)?)));
            match wait {
                Some((wait, lock)) if lock.kind.is_acquired() => {
                    chain.behind.get_or_insert(lock.address);
                    chain.locks += 1;
                    tag = wait.tag;
                    passed.push((holder, hold));
                }
                _ => {
                    chain.end = self.fate(live, &holder, hold, wait.map(|(_, lock)| lock.kind));
                    return chain;
                }
            }
        }
        chain
    }

    /// Who waits for the lock with this tag, and who has it: of each waiter one nanosecond.
    fn parties(&self, tag: u64, waiters: u64, holder: &series::Holder) -> Waited {
        let party = |tid: u32, site: u64, ns: u64| {
            let known = self.thread(tid).map(|(tid, thread)| (tid, thread.name.clone()));
            let (tid, name) = known.unwrap_or_else(|| (tid, "".into()));
            Party { name, tid, site, ns }
        };
        let mut waited = Waited { ns: waiters, ..Waited::default() };
        let each = waiters.div_ceil(WAITERS).max(1);
        let waiting = self.counted.iter().filter(|thread| thread.wait.is_some_and(|wait| wait.tag == tag));
        for thread in waiting.step_by(each as usize) {
            series::merge(&mut waited.waiters, &[party(thread.tid, 0, each)]);
        }
        match *holder {
            series::Holder::Thread(tid, site) => waited.holders.push(party(tid, site, waiters)),
            series::Holder::Ended(ref name, tid, site) => {
                let is_main = tid == self.inner;
                let name = if is_main { series::MAIN.into() } else { without_digits(name).into() };
                waited.holders.push(Party { name, tid, site, ns: waiters });
            }
            series::Holder::Nobody => waited.nobody = waiters,
            series::Holder::Unknown => {}
        }
        waited
    }

    fn fate(&self, live: &Live, holder: &LiveThread, hold: LiveHold, wait: Option<LockKind>) -> Fate {
        let Some((tid, thread)) = self.thread(holder.tid) else { return Fate::Unknown };
        let seen = thread.task.look();
        // Whoever has let go of it meanwhile was on a CPU to do so.
        let moved = !live.still_holds(&hold);
        match (seen, thread.task.sums()) {
            (Seen::Gone, _) | (_, None) => Fate::Unknown,
            _ if moved => Fate::Running,
            (Seen::Ready, Some(sums)) => Fate::Undecided { tid, hold, sums },
            _ => sleep(seen, wait, Some(live), |_| false).map_or(Fate::Unknown, Fate::Asleep),
        }
    }

    /// The thread with this id in the process's own namespace.
    fn thread(&self, inner: u32) -> Option<(u32, &Thread)> {
        if self.pid == self.inner {
            return self.threads.get(&inner).map(|thread| (inner, thread));
        }
        self.threads.iter().find(|(_, thread)| thread.inner == inner).map(|(tid, thread)| (*tid, thread))
    }

    /// The share of the time since then that the holder was ready without a CPU. `None` if that cannot be
    /// told yet.
    fn share_ready(&self, undecided: &Undecided, now: u64) -> Option<f64> {
        let holds = self.live.as_ref().is_some_and(|live| live.still_holds(&undecided.hold));
        // Nobody without a CPU comes to an end.
        let sums = self.threads.get(&undecided.tid).and_then(|thread| thread.task.sums());
        let Some(sums) = sums else { return Some(0.0) };
        let ran = sums.run.saturating_sub(undecided.sums.run);
        let (Some(after), Some(before)) = (sums.delay, undecided.sums.delay) else { return Some(0.0) };
        if sums.arrivals != undecided.sums.arrivals {
            let without = after.saturating_sub(before);
            return Some(without as f64 / (without + ran).max(1) as f64);
        }
        // It did not get a CPU since, so that it had one if it has run or let go of the lock.
        if ran > 0 || !holds {
            return Some(0.0);
        }
        (now.saturating_sub(undecided.since) >= STILL_NS).then_some(1.0)
    }

    /// Who is inside locks now.
    fn graph(&mut self, now: u64) -> Graph {
        let Some(live) = self.live.as_mut().filter(|live| live.is_whole()) else { return Graph::default() };
        live.look(&mut self.counted);
        let now = live.ended_ns().unwrap_or(now);
        let mut graph = graph::of(live, &self.counted, self.inner, now);
        for inside in &mut graph.threads {
            if let Some((_, thread)) = self.thread(inside.tid) {
                inside.name = thread.task.name().unwrap_or_else(|| thread.name.to_string());
                let kind = inside.waits_for.as_ref().map(|_| LockKind::Mutex);
                inside.asleep = sleep(thread.task.look(), kind, self.live.as_ref(), |_| false);
            }
        }
        graph
    }

    /// It has ended: what is to be said of it stays.
    fn close(&mut self) {
        self.about.alive = false;
        self.about.started = self.started();
        (self.live, self.counted) = (None, Vec::new());
        self.sleeps.close();
    }

    /// How many threads it started, with the first one.
    fn started(&self) -> u64 {
        self.live.as_ref().map_or(self.about.started, |live| u64::from(live.started()) + 1)
    }

    fn outcome(&self, is_nested: &impl Fn(&Sleeps, PlaceId) -> bool) -> Process {
        let mut about = self.about.clone();
        about.started = self.started();
        let mut groups = self.groups.clone();
        about.names.clone_from(&self.names);
        for thread in self.threads.values() {
            about.names.insert(thread.inner, thread.name.clone());
            let (_, tally) = groups.entry(thread.name.clone()).or_insert_with(group);
            tally.merge(&thread.tally);
            thread.life.peek(tally);
        }
        let mut times = Times::default();
        for (name, (seen, tally)) in groups {
            let (of_group, of_sleeps) = tally.times(|place| is_nested(&self.sleeps, place));
            about.sleeps.sums.extend(of_sleeps.into_iter().map(|(reason, purpose, sum)| SleepSum {
                threads: name.clone(),
                what: reason.what,
                place: reason.at.place,
                waker: reason.at.waker,
                purpose,
                sum,
            }));
            times.merge(&of_group);
            if seen > 0 || of_group.lived_ns > 0 {
                about.threads.push(Threads { name: name.to_string(), seen, times: of_group });
            }
        }
        about.threads.sort_by_key(|threads| std::cmp::Reverse(threads.times.lived_ns));
        let used = self.cpu.map(|cpu| cpu.saturating_sub(self.cpu_before));
        about.sleeps = Sleeping {
            programs: self.sleeps.programs().to_vec(),
            places: self.sleeps.places().to_vec(),
            _files: self.sleeps.files().to_vec(),
            ..about.sleeps
        };
        about.unseen_running_ns = used.map(|used| used.saturating_sub(times.running_ns));
        about.times = times;
        about
    }
}

fn group() -> (u64, Tally) {
    (0, Tally::new())
}

/// What a thread sleeps for, given the kind of lock in whose wait the file shows it. `None` if it does not
/// sleep.
fn sleep(
    seen: Seen,
    wait: Option<LockKind>,
    live: Option<&Live>,
    is_thread: impl Fn(u32) -> bool,
) -> Option<Sleep> {
    if matches!(seen, Seen::Ready | Seen::Gone) {
        return None;
    }
    Some(match wait {
        Some(LockKind::Condition) => Sleep::Condition,
        Some(LockKind::Barrier) => Sleep::Barrier,
        Some(LockKind::Semaphore) => Sleep::Semaphore,
        Some(LockKind::Join) => Sleep::Join,
        Some(LockKind::Futex) => Sleep::Call(calls::FUTEX.to_owned()),
        Some(_) => Sleep::Lock,
        None => match seen {
            // The word that the C library has a joiner wait on is the other thread's id.
            Seen::Call(call) if call.waits_for_futex() => {
                let signals = || live?.condition_around(call.futex()?.word);
                if u32::try_from(call.arguments[2]).is_ok_and(is_thread) {
                    Sleep::Join
                } else if signals().is_some() {
                    Sleep::Signal
                } else {
                    Sleep::Futex
                }
            }
            Seen::Call(call) => Sleep::Call(calls::name(call.number)),
            Seen::Outside => Sleep::OutsideCalls,
            Seen::Ready | Seen::Hidden | Seen::Gone => Sleep::Hidden,
        },
    })
}

/// Whether nobody but another thread of the program ends this sleep.
fn is_endless(what: &Sleep, doing: &Doing, waker: Waker) -> bool {
    let Doing::Call { call, .. } = doing else { return false };
    let is_of_others = !matches!(what, Sleep::Call(_)) || waker == Waker::Program;
    is_of_others && *what != Sleep::Hidden && !call.has_limit()
}

/// Threads of a pool differ in numbers.
fn without_digits(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        if !letter.is_ascii_digit() {
            text.push(letter);
        } else if !text.ends_with('*') {
            text.push('*');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::calls::Call;

    #[test]
    fn locks_are_picked_by_their_waiters_and_stand_for_all() {
        let lock = LiveLock { address: 8, kind: LockKind::Mutex };
        let locks: Vec<(u64, u64, LiveLock)> =
            (0..100).map(|n| (n, if n == 7 { 901 } else { 1 }, lock)).collect();
        let mut random = Random::new(7);
        assert_eq!(picked(&locks[..3], 8, &mut random), [(0, 1.0), (1, 1.0), (2, 1.0)]);
        let rounds: Vec<(usize, f64)> = (0..100).flat_map(|_| picked(&locks, 8, &mut random)).collect();
        assert!(rounds.iter().all(|&(_, share)| share == 125.0));
        // 721 of 800 are expected, and 8.5 is the standard deviation.
        let hits = rounds.iter().filter(|(place, _)| *place == 7).count();
        assert!((680..=760).contains(&hits), "{hits}");
    }

    #[test]
    fn threads_of_a_pool_have_one_name() {
        assert_eq!(without_digits("pool-12-thread-3"), "pool-*-thread-*");
        assert_eq!(without_digits("main"), "main");
    }

    #[test]
    fn a_futex_is_a_join_if_its_word_is_a_thread() {
        let private_wait = (libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME) as u64;
        let arguments = [0x7f00, private_wait, 71, 0, 0, 0];
        let seen = Seen::Call(Call { number: libc::SYS_futex, arguments });
        assert_eq!(sleep(seen, None, None, |tid| tid == 71), Some(Sleep::Join));
        assert_eq!(sleep(seen, None, None, |_| false), Some(Sleep::Futex));
        assert_eq!(sleep(seen, Some(LockKind::RwReaders), None, |_| true), Some(Sleep::Lock));
        assert_eq!(sleep(seen, Some(LockKind::Condition), None, |_| true), Some(Sleep::Condition));
        assert_eq!(sleep(Seen::Ready, Some(LockKind::Mutex), None, |_| true), None);
        // A call that the file knows is not one of a lock that nobody knows.
        let counted = sleep(seen, Some(LockKind::Futex), None, |_| false).expect("it sleeps");
        assert!(counted != Sleep::Futex && counted.is_idling() && !counted.is_for_events(), "{counted:?}");
    }
}
