//! What the sampler found: plain values, which reports are made from and which JSON documents hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use poundlock_statfile::Snapshot;
use serde::{Serialize, Serializer};

use super::series::Series;
use super::sleeps::{Place as SleepPlace, PlaceId, Waker};
use crate::observe::runtime::Runtime;
use crate::remote::maps::Files;

/// All that the sampler knows at one moment, or at the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Outcome {
    /// From the first look to the last, in nanoseconds.
    pub(crate) watched_ns: u64,
    /// How often the sampler looked.
    pub(crate) looks: u64,
    /// The CPU time that it took, in nanoseconds.
    pub(crate) cost_ns: u64,
    /// All threads of all processes.
    pub(crate) total: Times,
    /// By process, most thread time first.
    pub(crate) processes: Vec<Process>,
    /// The locks that somebody was seen waiting for, most waiting first.
    pub(crate) locks: Vec<WaitedLock>,
    /// Who is inside locks now, or was at the end.
    pub(crate) graph: Graph,
    /// Waiting for locks over time.
    #[serde(skip)]
    pub(crate) series: Series,
    /// If no thread is left that could go on by itself: all of them.
    #[serde(skip)]
    pub(crate) stuck: Option<Stuck>,
}

/// A program in which every thread waits for another one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stuck {
    /// For how long.
    pub(crate) for_ns: u64,
    pub(crate) threads: Vec<StuckThread>,
}

/// One of its threads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StuckThread {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: String,
    pub(crate) what: Sleep,
    pub(crate) place: PlaceId,
}

impl Outcome {
    /// Where the time went of the threads of some processes, by their ids.
    pub(crate) fn times_of(&self, is_wanted: impl Fn(u32) -> bool) -> Times {
        let mut times = Times::default();
        self.processes
            .iter()
            .filter(|process| is_wanted(process.pid))
            .for_each(|process| times.merge(&process.times));
        times
    }
}

impl Outcome {
    /// Where the time of these processes went since an earlier outcome. What they slept for is together,
    /// whether their threads were idle by then or not.
    pub(crate) fn since(&self, before: &Outcome, pids: &[u32]) -> Outcome {
        let of = |outcome: &Outcome| {
            let mut sum = Times::default();
            let processes = outcome.processes.iter().filter(|process| pids.contains(&process.outer_pid));
            processes.for_each(|process| sum.merge(&process.times));
            for (what, sleep) in std::mem::take(&mut sum.idle) {
                sum.asleep.entry(what).or_default().merge(sleep);
            }
            sum
        };
        let (mut total, earlier) = (of(self), of(before));
        for (what, sleep) in &mut total.asleep {
            let before = earlier.asleep(what);
            sleep.ns = sleep.ns.saturating_sub(before.ns);
            sleep.samples = sleep.samples.saturating_sub(before.samples);
        }
        total.lived_ns = total.lived_ns.saturating_sub(earlier.lived_ns);
        total.running_ns = total.running_ns.saturating_sub(earlier.running_ns);
        Outcome {
            watched_ns: self.watched_ns.saturating_sub(before.watched_ns),
            looks: self.looks.saturating_sub(before.looks),
            total,
            ..Outcome::default()
        }
    }
}

/// A number that rests on samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Estimate {
    /// Thread time in nanoseconds.
    pub(crate) ns: u64,
    /// How many samples say so.
    pub(crate) samples: u64,
}

impl Estimate {
    /// The relative standard error, as a share of the value: of `n` independent samples one in the square
    /// root of `n`. `None` without a sample. Samples of one long wait are not independent: it is a lower
    /// bound.
    pub(crate) fn error(&self) -> Option<f64> {
        (self.samples > 0).then(|| 1.0 / (self.samples as f64).sqrt())
    }

    pub(super) fn add(&mut self, ns: u64, samples: u64) {
        self.ns = self.ns.saturating_add(ns);
        self.samples = self.samples.saturating_add(samples);
    }

    fn merge(&mut self, other: Estimate) {
        self.add(other.ns, other.samples);
    }
}

/// Gives what was seen without a place to what is alike and has one, in proportion.
pub(crate) fn placed<K: Ord + Clone>(
    mut shares: BTreeMap<K, Estimate>,
    is_known: impl Fn(&K) -> bool,
    are_alike: impl Fn(&K, &K) -> bool,
) -> BTreeMap<K, Estimate> {
    let without: Vec<K> = shares.keys().filter(|key| !is_known(key)).cloned().collect();
    for key in without {
        let is_taker = |other: &K| is_known(other) && are_alike(&key, other);
        let all: u128 =
            shares.iter().filter(|(other, _)| is_taker(other)).map(|(_, sum)| u128::from(sum.ns)).sum();
        let Some(rest) = shares.get(&key).copied().filter(|_| all > 0) else { continue };
        shares.remove(&key);
        let mut left = rest;
        for (_, sum) in shares.iter_mut().filter(|(other, _)| is_taker(other)) {
            let more = (u128::from(rest.ns) * u128::from(sum.ns) / all) as u64;
            left.ns -= more;
            sum.ns += more;
        }
        // What the division leaves is nanoseconds.
        if let Some((_, most)) =
            shares.iter_mut().filter(|(other, _)| is_taker(other)).max_by_key(|(_, sum)| sum.ns)
        {
            most.add(left.ns, left.samples);
        }
    }
    shares
}

/// What a sleeping thread waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sleep {
    /// A mutex, spinlock or readers-writer lock that the file knows.
    Lock,
    /// A condition variable that the file knows.
    Condition,
    /// A barrier that the file knows.
    Barrier,
    /// A POSIX semaphore that the file knows.
    Semaphore,
    /// The end of another thread.
    Join,
    /// Threads that were woken before and have yet to leave the condition variable: inside the C library's
    /// `pthread_cond_signal`, `pthread_cond_broadcast` or `pthread_cond_destroy`.
    Signal,
    /// A futex that no wait in the file covers: a lock of Go, Rust's `std`, `parking_lot`, a static library.
    Futex,
    /// A system call, by name: `futex` where the file knows the wait.
    Call(String),
    /// Asleep outside of a call: a page that has to be read from a disk, a stop.
    OutsideCalls,
    /// Asleep, and the system does not tell in which call.
    Hidden,
}

impl Sleep {
    /// Whether a thread that does next to nothing else has nothing to do.
    pub(crate) fn is_idling(&self) -> bool {
        match self {
            Sleep::Condition | Sleep::Semaphore | Sleep::Join | Sleep::Futex => true,
            Sleep::Call(name) => name == crate::observe::calls::FUTEX || self.is_for_events(),
            Sleep::Lock | Sleep::Barrier | Sleep::Signal | Sleep::OutsideCalls | Sleep::Hidden => false,
        }
    }

    /// Whether it reads what comes from elsewhere.
    pub(crate) fn is_input(&self, waker: Waker) -> bool {
        waker == Waker::Others && matches!(self, Sleep::Call(name) if matches!(&**name, "read" | "readv"))
    }

    /// Whether it is a call that waits until somebody wants something, or until a time.
    pub(crate) fn is_for_events(&self) -> bool {
        matches!(self, Sleep::Call(name) if EVENTS.contains(&&**name))
    }
}

/// See [`Sleep::is_for_events`].
const EVENTS: [&str; 22] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "io_getevents",
    "io_uring_enter",
    "mq_timedreceive",
    "msgrcv",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect6",
    "recvfrom",
    "recvmsg",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "select",
    "wait4",
    "waitid",
];

/// Where the time of threads went, in nanoseconds of thread time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Times {
    /// As long as the threads were seen to live: the sum of all that follows, but for what is part of other
    /// lines.
    pub(crate) lived_ns: u64,
    /// On a CPU. The kernel's own sum.
    pub(crate) running_ns: u64,
    /// Part of `running_ns` and `ready_ns`: in a wait for a lock, spinning or on the way to sleep.
    pub(crate) spinning: Estimate,
    /// Ready, but without a CPU. The kernel's own sum; `None` where it keeps none.
    pub(crate) ready_ns: Option<u64>,
    /// Asleep, by what for. Without the time of `idle`.
    #[serde(serialize_with = "pairs")]
    pub(crate) asleep: BTreeMap<Sleep, Estimate>,
    /// Asleep in a thread that had nothing to do: for a second or more (or all its life) nearly always
    /// asleep, for conditions, semaphores, joins, unknown futexes or events.
    #[serde(serialize_with = "pairs")]
    pub(crate) idle: BTreeMap<Sleep, Estimate>,
    /// Of `asleep`: waiting for requests, for input or for a time, in threads that are not idle.
    pub(crate) for_events_ns: u64,
    /// Asleep, and never looked at while they were.
    pub(crate) unknown_ns: u64,
}

impl Process {
    /// How long its threads slept in futexes that are no lock of pthread's: those that no record covers,
    /// those of calls of its own, and in a virtual machine those that wait for condition variables, of which
    /// its monitors are made. Idle or not: whether they are nobody knows.
    pub(crate) fn unmeasured_ns(&self, runtime: Option<Runtime>) -> u64 {
        let counts = |what: &Sleep| match what {
            Sleep::Futex => true,
            Sleep::Call(name) => name == crate::observe::calls::FUTEX,
            Sleep::Condition => runtime == Some(Runtime::Java),
            _ => false,
        };
        let all = self.times.asleep.iter().chain(&self.times.idle);
        all.filter(|(what, _)| counts(what)).map(|(_, sleep)| sleep.ns).sum()
    }
}

impl Times {
    /// Asleep for this, in threads that are not idle.
    pub(crate) fn asleep(&self, what: &Sleep) -> Estimate {
        self.asleep.get(what).copied().unwrap_or_default()
    }

    /// Waiting for locks that the file knows: asleep, or spinning.
    pub(crate) fn locks(&self) -> Estimate {
        let mut sum = self.asleep(&Sleep::Lock);
        sum.merge(self.spinning);
        sum
    }

    /// Asleep in a futex that no wait in the file covers, idle threads included: whether those are idle
    /// nobody knows.
    pub(crate) fn foreign_futex(&self) -> Estimate {
        let mut sum = self.asleep(&Sleep::Futex);
        sum.merge(self.idle.get(&Sleep::Futex).copied().unwrap_or_default());
        sum
    }

    /// The time of idle threads.
    pub(crate) fn idle_ns(&self) -> u64 {
        self.idle.values().map(|sleep| sleep.ns).sum()
    }

    /// The time in which threads had something to do: without idle threads, waits for events, and what is not
    /// known.
    pub(crate) fn busy_ns(&self) -> u64 {
        let rest = self.idle_ns() + self.for_events_ns + self.unknown_ns;
        self.lived_ns.saturating_sub(rest)
    }

    pub(crate) fn merge(&mut self, other: &Times) {
        // A sum is known only if each part of it is.
        self.ready_ns = match (self.ready_ns, other.ready_ns) {
            _ if self.lived_ns == 0 => other.ready_ns,
            _ if other.lived_ns == 0 => self.ready_ns,
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            _ => None,
        };
        self.lived_ns = self.lived_ns.saturating_add(other.lived_ns);
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
        self.for_events_ns = self.for_events_ns.saturating_add(other.for_events_ns);
        self.unknown_ns = self.unknown_ns.saturating_add(other.unknown_ns);
        self.spinning.merge(other.spinning);
        for (to, from) in [(&mut self.asleep, &other.asleep), (&mut self.idle, &other.idle)] {
            for (what, sleep) in from {
                to.entry(what.clone()).or_default().merge(*sleep);
            }
        }
    }
}

/// A process, from its start to its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Process {
    /// Its id, in the namespace that it lives in.
    pub(crate) pid: u32,
    /// Its id for us.
    #[serde(skip)]
    pub(crate) outer_pid: u32,
    /// The id of the process that it was first seen as a child of; 0 if unknown.
    pub(crate) parent: u32,
    /// Its main thread's name.
    pub(crate) name: String,
    /// The file of its program; empty if unknown.
    pub(crate) exe: String,
    /// Whether it has a statistics file, so that its waits are known. If not, all its futexes are foreign.
    pub(crate) measured: bool,
    /// Whether it was there at the last look.
    pub(crate) alive: bool,
    /// All its threads.
    pub(crate) times: Times,
    /// By name, most time first. Digits in names are read as `*`: `pool-3` and `pool-4` are `pool-*`.
    pub(crate) threads: Vec<Threads>,
    /// How many threads were seen.
    pub(crate) seen: u64,
    /// How many it started, as its file says, the main thread included; 0 without a file.
    pub(crate) started: u64,
    /// The CPU time of the process that is in none of the threads seen: of those that lived too briefly, and
    /// between the last look and the end. `None` if the system does not tell.
    pub(crate) unseen_running_ns: Option<u64>,
    /// What the system does not show of it.
    pub(crate) hidden: BTreeSet<Hidden>,
    /// The names of its threads as in `threads`, by their ids in the process's own namespace.
    #[serde(skip)]
    pub(crate) names: HashMap<u32, Arc<str>>,
    /// Where its threads slept.
    #[serde(skip)]
    pub(crate) sleeps: Sleeping,
}

/// Where the threads of a process slept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sleeping {
    /// The programs that the process was, with the files that they had mapped.
    pub(crate) programs: Vec<Arc<Snapshot>>,
    /// By [`PlaceId`], from 1 on.
    pub(crate) places: Vec<SleepPlace>,
    pub(crate) sums: Vec<SleepSum>,
    /// Keeps the names of files that have none any more.
    pub(super) _files: Vec<Arc<Files>>,
}

impl PartialEq for Sleeping {
    fn eq(&self, other: &Self) -> bool {
        (&self.programs, &self.places, &self.sums) == (&other.programs, &other.places, &other.sums)
    }
}

/// Sleeps of one sort in threads of one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SleepSum {
    pub(crate) threads: Arc<str>,
    pub(crate) what: Sleep,
    pub(crate) place: PlaceId,
    pub(crate) waker: Waker,
    pub(crate) purpose: Purpose,
    pub(crate) sum: Estimate,
}

/// What a sleep says of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Purpose {
    /// It was kept from its work.
    Blocked,
    /// It had work, and waited for more: for requests, input or a time.
    Events,
    /// It had nothing to do, as far as can be told: see [`Times::idle`].
    Idle,
}

/// What cannot be seen of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hidden {
    /// In which calls its threads sleep (`/proc/PID/syscall`: another user's process, or Yama).
    Calls,
    /// How long its threads were ready without a CPU (`/proc/PID/schedstat`: a kernel without it).
    Ready,
    /// Its threads altogether (`/proc` mounted with `hidepid`).
    Threads,
    /// Its statistics file, which cannot be read: who waits for which lock.
    File,
}

/// Threads of one name.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Threads {
    /// Their name; of the main thread [`MAIN`](super::MAIN).
    pub(crate) name: String,
    /// How many were seen.
    pub(crate) seen: u64,
    /// Where their time went.
    pub(crate) times: Times,
}

/// A lock that somebody was seen waiting for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct WaitedLock {
    /// The process.
    pub(crate) pid: u32,
    /// [`poundlock_statfile::Snapshot::start_ns`] of its file: a process has one for each `exec`.
    pub(crate) start_ns: u64,
    /// [`poundlock_statfile::LockStats::address`].
    pub(crate) address: u64,
    /// What it is, in words.
    pub(crate) kind: String,
    /// Thread time spent waiting for it, and at how many looks somebody was.
    pub(crate) waiting: Estimate,
    /// What its holder was doing meanwhile. Thread time of the waiters; together that of `waiting`.
    pub(crate) holder: Holder,
    /// Of [`Holder::waiting`], the locks that its holder waited for in turn, by address.
    #[serde(serialize_with = "pairs")]
    pub(crate) behind: BTreeMap<u64, Estimate>,
    /// What the holder at the end of the chain was doing: the same as `holder` where that one does not wait.
    pub(crate) end: Holder,
    /// The longest chain seen, in locks; 1 if no holder waited for another lock.
    pub(crate) chain: u64,
}

/// What a holder was doing while others waited.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Holder {
    /// On a CPU.
    pub(crate) running: Estimate,
    /// Ready without a CPU: preempted.
    pub(crate) ready: Estimate,
    /// Asleep.
    #[serde(serialize_with = "pairs")]
    pub(crate) asleep: BTreeMap<Sleep, Estimate>,
    /// Waiting for another lock.
    pub(crate) waiting: Estimate,
    /// Part of a cycle of locks (only at the end of a chain).
    pub(crate) cycle: Estimate,
    /// There was none: the lock was on its way from one thread to the next.
    pub(crate) handed_over: Estimate,
    /// Not known.
    pub(crate) unknown: Estimate,
}

/// Who holds what, and waits for what.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Graph {
    /// The threads that hold a lock or wait for one.
    pub(crate) threads: Vec<Inside>,
    /// Threads that wait for each other, each as indices into `threads`: the first waits for the second, and
    /// the last for the first. One alone waits for a lock that it holds.
    pub(crate) cycles: Vec<Vec<usize>>,
}

/// A thread inside a lock or on the way into one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Inside {
    /// The process.
    pub(crate) pid: u32,
    /// [`poundlock_statfile::Snapshot::start_ns`] of its file.
    pub(crate) start_ns: u64,
    /// The thread's id; 0 if unknown.
    pub(crate) tid: u32,
    /// Its name; empty if unknown.
    pub(crate) name: String,
    /// What it does, if it is there: `None` means on a CPU or ready, or gone.
    pub(crate) asleep: Option<Sleep>,
    /// What it waits for.
    pub(crate) waits_for: Option<Place>,
    /// What it holds.
    pub(crate) holds: Vec<Place>,
}

/// A lock that a thread holds or waits for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Place {
    /// [`poundlock_statfile::LockStats::address`].
    pub(crate) address: u64,
    /// What it is, in words.
    pub(crate) kind: String,
    /// For how long, in nanoseconds.
    pub(crate) for_ns: u64,
    /// Whether it may be longer: a hold that was not timed, of which only the wait for it is known.
    pub(crate) at_least: bool,
}

/// Maps as lists of pairs: JSON's own have keys of text only.
fn pairs<K: Serialize, V: Serialize, S: Serializer>(map: &BTreeMap<K, V>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(map)
}
