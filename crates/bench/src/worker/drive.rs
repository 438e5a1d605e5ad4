//! A lock of whatever make under a sort of work: throughput first, then each wait by itself. Every benchmark
//! of contended locks is this loop.
//!
//! Threads go through two intervals. In the first they take no times: what counts is what they publish
//! between two readings. In the second, if there is one, each acquisition is timed. Nothing here waits for a
//! thread that waits for a lock: where spinners starve they end with the process.

use std::alloc::{Layout, alloc_zeroed};
use std::borrow::Cow;
use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use poundlock_peers::rw;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};

use super::gate::{Alone, Gate, Reading, add_quantiles, finish, histogram};
use super::hogs::Hogs;
use super::probe::{self, Probe};
use super::sample;
use super::symbols::{self, Kind, Symbols};
use crate::Others;
use crate::affinity;
use crate::error::{Error, Result};
use crate::jain;
use crate::plan::Sample;
use crate::work::work;
use crate::{Usage, clock};

/// A lock that is called through pointers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Subject {
    /// A lock of [`poundlock_peers`].
    Peer(Cow<'static, str>),
    /// A readers-writer lock of [`poundlock_peers::rw`].
    Rw(Cow<'static, str>),
    /// The pthread functions of the library under test, or of the C library.
    Symbols(Kind),
}

impl Subject {
    /// The functions, and whether waiters only spin.
    pub(super) fn calls(&self, library: Option<&Path>) -> Result<(rw::Calls, bool)> {
        let none = |name: &str| Error::Failed(format!("no lock is called '{name}'"));
        let gone = |absent: poundlock_peers::Absent| Error::Library(absent.why);
        match self {
            Subject::Peer(name) => {
                let peer = poundlock_peers::find(name).ok_or_else(|| none(name))?.map_err(gone)?;
                let write = peer.calls;
                Ok((rw::Calls { write, read_lock: write.lock, read_unlock: write.unlock }, peer.spins))
            }
            Subject::Rw(name) => {
                let peer = rw::find(name).ok_or_else(|| none(name))?.map_err(gone)?;
                Ok((peer.calls, peer.spins))
            }
            Subject::Symbols(kind) => Ok((Symbols::of(library, *kind)?.calls(), *kind == Kind::Spin)),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) lock: Subject,
    pub(crate) threads: usize,
    pub(crate) inside: Inside,
    /// Steps of work between two critical sections of a thread.
    pub(crate) think_steps: u64,
    /// Whether that is an average: each thinks from half of it to one and a half times as long.
    pub(crate) vary: bool,
    /// How long the threads are at it before they are measured.
    pub(crate) warm_up_ns: u64,
    /// How long they are measured without timing acquisitions; the most that a fixed number of operations may
    /// take.
    pub(crate) throughput_ns: u64,
    /// How long with timing of each; again the most that a fixed number may take. 0: not at all.
    pub(crate) latency_ns: u64,
    /// How long they may take to come to their ends; if not given, as long as it takes those that sleep.
    pub(crate) drain_ns: Option<u64>,
    /// Whether all must come to theirs.
    pub(crate) finish: bool,
    /// The CPUs they may run on.
    pub(crate) cpus: Vec<usize>,
    /// Whether each thread stays on one of them, in turn.
    pub(crate) pin: bool,
    /// Whether another process spins on each of them.
    pub(crate) hogs: bool,
    /// Whether to look at each hand-over and count lock events, which takes time.
    pub(crate) probe: bool,
}

/// What threads do while they hold a lock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Inside {
    /// Work of one length, in one lock.
    Work { steps: u64 },
    /// Work, mostly short, and long in a share of the sections.
    Modal { steps: u64, long_steps: u64, share: f64 },
    /// Work, and a sleep in a share of the sections.
    Sleep { steps: u64, sleep_ns: u64, share: f64 },
    /// Finding a key in a bucket of a hash table, or inserting it.
    Buckets { buckets: usize, keys: usize, exponent: f64 },
    /// An increment under a lock chosen at random, so many times for each thread.
    Increments { locks: usize, operations: u64 },
    /// Nothing but a look at who else is there, while the CPU is yielded.
    Yield,
    /// Work as a reader, or, in a share of the sections, as a writer.
    Share { writers: f64, read_steps: u64, write_steps: u64 },
}

/// How long threads may take to come to their ends. Those that sleep for a lock get it in time even with hogs
/// around; those that spin for it may take time slices each, which nobody wants to wait for.
const fn patience(spins: bool) -> Duration {
    if spins { Duration::from_millis(50) } else { Duration::from_secs(2) }
}

pub(crate) fn run(library: Option<&Path>, task: &Task) -> Result<Sample> {
    if task.cpus.is_empty() {
        return Err(Error::Failed("there is no CPU to run on".to_owned()));
    }
    // Before any library has a chance to start a thread: they are forked.
    let hogs = if task.hogs { Hogs::start(&task.cpus)? } else { Hogs::none() };
    let (calls, spins) = task.lock.calls(library)?;
    let patience = task.drain_ns.map_or(patience(spins), Duration::from_nanos);
    let run = Run { calls, patience, enough: ENOUGH, task, hogs: &hogs };
    match task.inside {
        Inside::Work { steps } => run.drive(Single::new(0.0, move |_| work(steps))),
        Inside::Modal { steps, long_steps, share } => {
            run.drive(Single::new(share, move |long| work(if long { long_steps } else { steps })))
        }
        Inside::Sleep { steps, sleep_ns, share } => run.drive(Single::new(share, move |sleeps| {
            work(steps);
            if sleeps {
                thread::sleep(Duration::from_nanos(sleep_ns));
            }
        })),
        // What else is there is found out by the counter that the lock protects: whoever comes meanwhile
        // changes it.
        Inside::Yield => run.drive(Single::new(0.0, |_| thread::yield_now())),
        Inside::Buckets { buckets, keys, exponent } => run.drive(Table::new(buckets, keys, exponent)?),
        Inside::Increments { locks, operations } => run.drive(Increments { locks, operations }),
        Inside::Share { writers, read_steps, write_steps } => {
            run.drive(Shares { below: threshold(writers), read_steps, write_steps })
        }
    }
}

/// The share of the random numbers of 32 bits that lie below what this returns.
fn threshold(share: f64) -> u32 {
    (share * f64::from(u32::MAX)) as u32
}

/// How long nothing may happen: many of the longest time slices.
const ENOUGH: Duration = Duration::from_secs(10);

/// A lock to drive, by whom, how long threads may take to come to their ends, and how long nothing may
/// happen.
#[derive(Clone, Copy)]
struct Run<'a> {
    calls: rw::Calls,
    patience: Duration,
    enough: Duration,
    task: &'a Task,
    hogs: &'a Hogs,
}

/// A sort of work.
trait Body: Send + Sync + 'static {
    /// What a lock protects besides a counter. Zero bytes are a valid one.
    type Data;
    /// What a thread keeps.
    type Thread: Default;
    /// Whether somebody shares the lock: then there are readers.
    const SHARES: bool = false;
    /// Whether a probe may look on.
    const PROBED: bool = false;

    /// How many locks there are, and whether what they protect lies apart from them.
    fn locks(&self) -> (usize, bool) {
        (1, true)
    }

    /// The random numbers of the thread with this number.
    fn random(&self, _index: usize) -> fastrand::Rng {
        fastrand::Rng::new()
    }

    /// How many operations a thread makes; `None` if it goes on until it is stopped.
    fn operations(&self) -> Option<u64> {
        None
    }

    /// Which lock is next.
    fn choose(&self, thread: &mut Self::Thread, random: &mut fastrand::Rng) -> usize;

    /// Whether it is wanted as a reader.
    #[inline(always)]
    fn reads(&self, _thread: &Self::Thread) -> bool {
        false
    }

    /// What is done while it is held.
    fn inside(&self, thread: &mut Self::Thread, data: &mut Self::Data);

    /// The same, and whether nobody else was there who should not have been.
    ///
    /// # Safety
    /// The thread holds the lock of this data. A lock that does not exclude breaks this promise; then this
    /// finds out, and there is no figure.
    #[inline(always)]
    unsafe fn held(&self, thread: &mut Self::Thread, protected: &AtomicU64, data: *mut Self::Data) -> bool {
        let seen = protected.load(Relaxed);
        // SAFETY: by the caller's word.
        self.inside(thread, unsafe { &mut *data });
        let alone = protected.load(Relaxed) == seen;
        protected.store(seen + 1, Relaxed);
        alone
    }
}

/// Work between two critical sections.
#[derive(Clone, Copy)]
struct Thinks {
    steps: u64,
    vary: bool,
}

impl Thinks {
    #[inline(always)]
    fn think(self, random: &mut fastrand::Rng) {
        if self.steps > 0 {
            work(if self.vary { thought(self.steps, random) } else { self.steps });
        }
    }
}

/// From half of `steps` to one and a half times that many, so that threads do not march in step.
#[inline(always)]
fn thought(steps: u64, random: &mut fastrand::Rng) -> u64 {
    steps / 2 + ((u64::from(random.u32(..)) * (steps + 1)) >> 32)
}

/// One lock; what is done inside differs, and is of another sort in a share of the sections: those whose
/// random number lies below this.
struct Single<F> {
    below: u32,
    inside: F,
}

impl<F: Fn(bool) + Send + Sync + 'static> Single<F> {
    fn new(share: f64, inside: F) -> Single<F> {
        Single { below: threshold(share), inside }
    }
}

impl<F: Fn(bool) + Send + Sync + 'static> Body for Single<F> {
    type Data = ();
    /// Which sort is next.
    type Thread = bool;
    const PROBED: bool = true;

    #[inline(always)]
    fn choose(&self, other: &mut bool, random: &mut fastrand::Rng) -> usize {
        *other = self.below > 0 && random.u32(..) < self.below;
        0
    }

    #[inline(always)]
    fn inside(&self, other: &mut bool, (): &mut ()) {
        (self.inside)(*other);
    }
}

/// Readers and writers. What the lock protects is two words that are equal whenever no writer is inside: a
/// writer makes the first the larger when it comes, and the second when it leaves, so that whoever overlaps
/// with it anywhere finds out, or an addition is lost.
struct Shares {
    below: u32,
    read_steps: u64,
    write_steps: u64,
}

impl Body for Shares {
    type Data = Alone<AtomicU64>;
    /// Whether it is a reader.
    type Thread = bool;
    const SHARES: bool = true;

    /// The same seed each time: all locks get the same mix.
    fn random(&self, index: usize) -> fastrand::Rng {
        fastrand::Rng::with_seed(index as u64)
    }

    #[inline(always)]
    fn choose(&self, reads: &mut bool, random: &mut fastrand::Rng) -> usize {
        *reads = random.u32(..) >= self.below;
        0
    }

    #[inline(always)]
    fn reads(&self, reads: &bool) -> bool {
        *reads
    }

    #[inline(always)]
    fn inside(&self, _thread: &mut Self::Thread, _data: &mut Self::Data) {}

    #[inline(always)]
    unsafe fn held(&self, reads: &mut bool, first: &AtomicU64, data: *mut Self::Data) -> bool {
        // SAFETY: never freed, and an atomic that was zeroed.
        let second = unsafe { &(*data).0 };
        let seen = first.load(Relaxed);
        let alone = second.load(Relaxed) == seen;
        if *reads {
            work(self.read_steps);
            return second.load(Relaxed) == seen && first.load(Relaxed) == seen;
        }
        first.store(seen + 1, Relaxed);
        work(self.write_steps);
        let alone = alone && first.load(Relaxed) == seen + 1 && second.load(Relaxed) == seen;
        second.store(seen + 1, Relaxed);
        alone
    }
}

/// A lock chosen at random, and nothing but the counter inside.
struct Increments {
    locks: usize,
    operations: u64,
}

impl Body for Increments {
    type Data = ();
    type Thread = ();

    fn locks(&self) -> (usize, bool) {
        (self.locks, false)
    }

    fn operations(&self) -> Option<u64> {
        Some(self.operations)
    }

    #[inline(always)]
    fn choose(&self, (): &mut (), random: &mut fastrand::Rng) -> usize {
        random.usize(..self.locks)
    }

    #[inline(always)]
    fn inside(&self, (): &mut (), (): &mut ()) {}
}

/// Keys that are drawn before the measurement: drawing one takes longer than looking for it.
const DRAWN: usize = 1 << 16;

/// A hash table. Each operation looks for a key, and inserts it in one of five if it is not there.
struct Table {
    buckets: usize,
    /// Keys in the order in which they are used; a thread begins anywhere.
    keys: Box<[u32]>,
}

impl Table {
    fn new(buckets: usize, keys: usize, exponent: f64) -> Result<Table> {
        let zipf = Zipf::new(keys as f64, exponent)
            .map_err(|error| Error::Failed(format!("{keys} keys by Zipf's law to {exponent}: {error}")))?;
        // All locks get the same keys.
        let mut random = SmallRng::seed_from_u64(keys as u64);
        let keys = (0..DRAWN).map(|_| zipf.sample(&mut random) as u32).collect();
        Ok(Table { buckets, keys })
    }
}

/// The key's bucket; keys that are next to each other in popularity lie in buckets that are not.
#[inline(always)]
fn bucket_of(key: u32, buckets: usize) -> usize {
    let hash = key.wrapping_mul(0x9e37_79b1);
    ((u64::from(hash) * buckets as u64) >> 32) as usize
}

#[derive(Default)]
struct Visitor {
    /// The place of the next key; not chosen yet at first.
    next: Option<usize>,
    key: u32,
    insert: bool,
    /// What was found, so that the compiler must look for it.
    found: u64,
}

impl Body for Table {
    type Data = Bucket;
    type Thread = Visitor;

    fn locks(&self) -> (usize, bool) {
        (self.buckets, true)
    }

    #[inline(always)]
    fn choose(&self, visitor: &mut Visitor, random: &mut fastrand::Rng) -> usize {
        let place = visitor.next.unwrap_or_else(|| random.usize(..DRAWN));
        visitor.key = self.keys[place % DRAWN];
        visitor.next = Some(place + 1);
        visitor.insert = random.u8(..5) == 0;
        bucket_of(visitor.key, self.buckets)
    }

    #[inline(always)]
    fn inside(&self, visitor: &mut Visitor, bucket: &mut Bucket) {
        let value =
            if visitor.insert { bucket.insert(visitor.key, visitor.found) } else { bucket.find(visitor.key) };
        visitor.found = std::hint::black_box(visitor.found.wrapping_add(value.unwrap_or(1)));
    }
}

/// Entries that a bucket has room for. The oldest makes room for another.
const ENTRIES: usize = 32;

/// A short linked list in memory of its own, newest first: a program that is fast does not allocate while it
/// holds a lock. Links are one more than an index; 0 ends the list, so that zero bytes are an empty one.
#[repr(C)]
struct Bucket {
    first: u32,
    used: u32,
    entries: [Entry; ENTRIES],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    key: u32,
    next: u32,
    value: u64,
}

impl Bucket {
    #[inline(always)]
    fn find(&self, key: u32) -> Option<u64> {
        let mut link = self.first;
        while link != 0 {
            let entry = &self.entries[link as usize - 1];
            if entry.key == key {
                return Some(entry.value);
            }
            link = entry.next;
        }
        None
    }

    /// Gives `key` this value. Returns the one that it had.
    #[inline(always)]
    fn insert(&mut self, key: u32, value: u64) -> Option<u64> {
        let (mut before_last, mut last, mut link) = (0, 0, self.first);
        while link != 0 {
            let entry = &mut self.entries[link as usize - 1];
            if entry.key == key {
                return Some(std::mem::replace(&mut entry.value, value));
            }
            (before_last, last, link) = (last, link, entry.next);
        }
        let new = if (self.used as usize) < ENTRIES {
            self.used += 1;
            self.used
        } else {
            self.entries[before_last as usize - 1].next = 0;
            last
        };
        self.entries[new as usize - 1] = Entry { key, next: self.first, value };
        self.first = new;
        None
    }
}

/// Locks, each with what it protects, in cache lines of its own. They are never freed: threads that starve
/// may still be at them when the process ends.
struct Cells<D> {
    base: *mut u8,
    stride: usize,
    data: usize,
    number: usize,
    /// What is there besides the counter.
    _data: std::marker::PhantomData<fn() -> D>,
}

// SAFETY: the memory is never freed and is reached through locks and atomics alone.
unsafe impl<D> Send for Cells<D> {}
// SAFETY: as above.
unsafe impl<D> Sync for Cells<D> {}

impl<D> Clone for Cells<D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Cells<D> {}

/// What lies beside a lock.
#[repr(C)]
struct Beside<D> {
    /// What every lock protects. It is read when a critical section begins and written when it ends, so that
    /// two threads that overlap anywhere in it find out, or lose an update.
    protected: AtomicU64,
    data: D,
}

/// Adjacent-line prefetching included.
const LINES: usize = 128;

impl<D> Cells<D> {
    /// Makes `number` locks. What they protect lies apart from them, as one lock of a large object has it, or
    /// in the same lines, as many small objects have it.
    fn new(calls: &poundlock_peers::Calls, number: usize, apart: bool) -> Result<Cells<D>> {
        let beside = Layout::new::<Beside<D>>();
        let data = calls.size.next_multiple_of(if apart { LINES } else { beside.align() });
        let align = LINES.max(calls.align);
        let stride = (data + beside.size()).next_multiple_of(align);
        let refused = || Error::Failed(format!("{number} locks of {} bytes are too many", calls.size));
        let size = stride.checked_mul(number).ok_or_else(refused)?;
        let layout = Layout::from_size_align(size, align).map_err(|_| refused())?;
        if number == 0 {
            return Err(Error::Failed("at least one lock is needed".to_owned()));
        }
        // SAFETY: there is at least one lock and what lies beside it, so that the size is not 0.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            return Err(refused());
        }
        let cells = Cells { base, stride, data, number, _data: std::marker::PhantomData };
        for index in 0..number {
            // SAFETY: memory of the lock's size and alignment, zeroed, that nobody uses yet.
            unsafe { (calls.init)(cells.lock(index)) };
        }
        Ok(cells)
    }

    #[inline(always)]
    fn lock(&self, index: usize) -> *mut c_void {
        debug_assert!(index < self.number);
        // SAFETY: callers name locks that there are, which lie within the memory.
        unsafe { self.base.add(index * self.stride).cast() }
    }

    #[inline(always)]
    fn beside(&self, index: usize) -> *mut Beside<D> {
        debug_assert!(index < self.number);
        // SAFETY: as for `lock`; the offset is within the cell and leaves room for a `Beside`, aligned.
        unsafe { self.base.add(index * self.stride + self.data).cast() }
    }

    /// The sum over all counters.
    fn sum(&self) -> u64 {
        let counter = |index| {
            // SAFETY: the memory is never freed; the field is an atomic, initialised by being zeroed.
            unsafe { (*ptr::addr_of!((*self.beside(index)).protected)).load(Relaxed) }
        };
        (0..self.number).map(counter).sum()
    }
}

/// What a thread brings to lock and unlock; never freed either.
pub(super) fn node(calls: &poundlock_peers::Calls) -> *mut c_void {
    if calls.node == 0 {
        return ptr::null_mut();
    }
    match Layout::from_size_align(calls.node.next_multiple_of(LINES), LINES) {
        // SAFETY: the size is not 0.
        Ok(layout) => unsafe { alloc_zeroed(layout).cast() },
        Err(_) => ptr::null_mut(),
    }
}

/// What threads are at.
mod phase {
    /// Making acquisitions, untimed.
    pub(super) const THROUGHPUT: u32 = 0;
    /// Making acquisitions, each timed.
    pub(super) const LATENCY: u32 = 1;
    /// Coming to their ends.
    pub(super) const END: u32 = 2;
}

/// What a thread publishes.
#[derive(Default)]
struct Published {
    /// Acquisitions.
    count: AtomicU64,
    /// Those of them as a reader.
    reads: AtomicU64,
    /// When it began to wait, in even nanoseconds, and one more if as a reader; 0 while it does not wait,
    /// [`SOME_TIME_AGO`] if it took no time then.
    waits_since: AtomicU64,
    /// When it had made its operations; 0 before.
    finished_at: AtomicU64,
}

const SOME_TIME_AGO: u64 = 2;

struct Shared<B: Body> {
    calls: rw::Calls,
    cells: Cells<B::Data>,
    body: B,
    thinks: Thinks,
    overlapped: Alone<AtomicBool>,
    phase: Alone<AtomicU32>,
    start: Gate,
    /// Where threads with a fixed number of operations meet before those that are timed.
    again: Gate,
    finished: Alone<AtomicUsize>,
    published: Vec<Alone<Published>>,
    /// As a writer and, where the lock is shared, as a reader.
    waits: Vec<Alone<Mutex<Vec<Histogram<u64>>>>>,
    probe: Option<Probe>,
}

impl<B: Body> Shared<B> {
    /// A thread's histogram. The thread that records holds it briefly; nobody waits for a lock under test
    /// with it.
    fn waits(&self, index: usize) -> MutexGuard<'_, Vec<Histogram<u64>>> {
        self.waits[index].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any wait has been timed from its beginning to its end. One that lasts still may be over, and
    /// not noted, by the time that somebody looks for it.
    fn timed(&self) -> bool {
        (0..self.waits.len()).any(|index| self.waits(index).iter().any(|waits| !waits.is_empty()))
    }

    fn finished(&self) -> usize {
        self.finished.0.load(Acquire)
    }

    fn reading(&self) -> Reading {
        Reading::take(self.published.iter().map(|published| &published.0.count))
    }
}

/// Acquisitions, until the phase is over or the operations are made.
#[inline(never)]
fn acquire<B: Body, const TIMED: bool, const PROBED: bool>(
    shared: &Shared<B>,
    index: usize,
    node: *mut c_void,
    (thread, random): &mut (B::Thread, fastrand::Rng),
    mut probe: Option<&mut probe::Thread>,
) {
    let (calls, cells, body) = (shared.calls, shared.cells, &shared.body);
    let Published { count, reads, waits_since, .. } = &shared.published[index].0;
    let end = if TIMED { phase::END } else { phase::LATENCY };
    let mut left = body.operations().unwrap_or(u64::MAX);
    let mut acquisitions = count.load(Relaxed);
    while left > 0 && shared.phase.0.load(Relaxed) < end {
        left -= 1;
        let chosen = body.choose(thread, random);
        let (lock, beside) = (cells.lock(chosen), cells.beside(chosen));
        let reader = B::SHARES && body.reads(thread);
        if PROBED && let Some(probe) = &probe {
            probe.waits();
        }
        let before = if TIMED { clock::now_ns() } else { SOME_TIME_AGO };
        waits_since.store((before & !1) | u64::from(reader), Relaxed);
        // SAFETY: an initialised lock that this thread does not hold, and this thread's own node.
        unsafe { if reader { (calls.read_lock)(lock, node) } else { (calls.write.lock)(lock, node) } };
        let waited = if TIMED { clock::now_ns() - before } else { 0 };
        waits_since.store(0, Relaxed);
        if PROBED && let Some(probe) = &mut probe {
            probe.acquired();
        }
        // SAFETY: never freed, and valid as zero bytes; the counter is only ever reached as an atomic. This
        // thread holds the lock of this data, or `held` finds out that it excludes nobody.
        let alone = unsafe {
            let protected = &*ptr::addr_of!((*beside).protected);
            body.held(thread, protected, ptr::addr_of_mut!((*beside).data))
        };
        if !alone {
            shared.overlapped.0.store(true, Relaxed);
        }
        if PROBED && let Some(probe) = &probe {
            probe.releases();
        }
        // SAFETY: this thread locked it with this node.
        unsafe { if reader { (calls.read_unlock)(lock, node) } else { (calls.write.unlock)(lock, node) } };
        if TIMED {
            shared.waits(index)[usize::from(reader)].saturating_record(waited);
        }
        if reader {
            reads.store(reads.load(Relaxed) + 1, Relaxed);
        }
        acquisitions += 1;
        // Release, for `drive`: after the counter that the lock protects.
        count.store(acquisitions, Release);
        shared.thinks.think(random);
    }
}

/// A thread's life.
fn live<B: Body>(shared: &Shared<B>, index: usize) {
    let node = node(&shared.calls.write);
    let mut thread = (B::Thread::default(), shared.body.random(index));
    let mut probe = shared.probe.as_ref().map(|probe| probe.thread(index));
    shared.start.wait();
    if const { B::PROBED } && probe.is_some() {
        acquire::<B, false, true>(shared, index, node, &mut thread, probe.as_mut());
    } else {
        acquire::<B, false, false>(shared, index, node, &mut thread, None);
    }
    if shared.body.operations().is_some() {
        shared.published[index].0.finished_at.store(clock::now_ns(), Relaxed);
        shared.finished.0.fetch_add(1, Release);
        shared.again.wait();
    }
    acquire::<B, true, false>(shared, index, node, &mut thread, None);
    shared.finished.0.fetch_add(1, Release);
}

impl Run<'_> {
    /// Measures. Threads that starve outlive the call; the process is to end soon after it.
    fn drive<B: Body>(self, body: B) -> Result<Sample> {
        let task = self.task;
        let (locks, apart) = body.locks();
        let histograms = || (0..=usize::from(B::SHARES)).map(|_| histogram()).collect::<Result<_>>();
        if task.probe {
            probe::count_events();
        }
        let shared = Arc::new(Shared {
            calls: self.calls,
            cells: Cells::new(&self.calls.write, locks, apart)?,
            body,
            thinks: Thinks { steps: task.think_steps, vary: task.vary },
            overlapped: Alone::default(),
            phase: Alone(AtomicU32::new(phase::THROUGHPUT)),
            start: Gate::default(),
            again: Gate::default(),
            finished: Alone::default(),
            published: (0..task.threads).map(|_| Alone::default()).collect(),
            waits: (0..task.threads).map(|_| Ok(Alone(Mutex::new(histograms()?)))).collect::<Result<_>>()?,
            probe: task.probe.then(|| Probe::new(task.threads)).transpose()?,
        });
        affinity::keep_to(&task.cpus)?;
        let mut threads = Vec::new();
        for index in 0..task.threads {
            let shared = Arc::clone(&shared);
            let cpu = task.pin.then(|| task.cpus[index % task.cpus.len()]);
            // Small stacks: 250 threads should not need half a gigabyte of address space.
            let thread = thread::Builder::new().stack_size(256 << 10).spawn(move || {
                let kept = cpu.map_or(Ok(()), |cpu| affinity::keep_to(&[cpu]));
                live(&shared, index);
                kept
            });
            threads.push(thread.map_err(Error::system(format!("cannot start {} threads", task.threads)))?);
        }
        let measured = match shared.body.operations() {
            None => intervals(&shared, self),
            Some(_) => fixed(&shared, self),
        };
        shared.phase.0.store(phase::END, Relaxed);
        let unfinished = finish(threads, self.patience)?;

        // A lock that lets two in at once may be very fast.
        let broken = |how: String| Err(Error::Failed(format!("the lock does not exclude: {how}")));
        if shared.overlapped.0.load(Relaxed) {
            return broken("two threads were in their critical sections at once".to_owned());
        }
        symbols::all_succeeded()?;
        if task.finish && unfinished > 0 {
            // Who waits for a mutex sleeps, and is to be woken.
            return Err(Error::Failed(format!("{unfinished} threads do not come to their ends")));
        }
        // In this order: a thread counts what the lock protects before it counts for itself. Readers add
        // nothing to it, and are counted for themselves first.
        let counts = shared.published.iter().map(|Alone(published)| {
            published.count.load(Acquire).saturating_sub(published.reads.load(Relaxed))
        });
        let total: u64 = counts.sum();
        let protected = shared.cells.sum();
        if protected < total || (unfinished == 0 && protected != total) {
            return broken(format!("{total} acquisitions left a count of {protected}"));
        }
        measured
    }
}

/// What this process and the machine consume from here on.
struct Consumption<'a> {
    usage: Usage,
    others: Others,
    hogs: &'a Hogs,
    hogs_ns: u64,
}

impl Consumption<'_> {
    fn watch(hogs: &Hogs) -> Consumption<'_> {
        Consumption { hogs_ns: hogs.cpu_ns(), hogs, others: Others::watch(), usage: Usage::of_this_process() }
    }

    /// The figures of an interval that ends now: acquisitions and what each of them cost, Jain's index of
    /// what threads got and the share of those that got nothing, and the share of the CPUs that others had.
    ///
    /// # Errors
    /// If nobody got anything.
    fn measured(&self, operations: u64, elapsed_ns: u64, speeds: &[u64], cpus: usize) -> Result<Sample> {
        if operations == 0 {
            let seconds = elapsed_ns as f64 / 1e9;
            return Err(Error::Failed(format!("nobody acquired the lock in {seconds:.3} s")));
        }
        let used = Usage::of_this_process().since(&self.usage);
        let known = used.cpu_ns + (self.hogs.cpu_ns() - self.hogs_ns);
        let each = |number: u64| number as f64 / operations as f64;
        let unserved = speeds.iter().filter(|&&speed| speed == 0).count();
        let mut figures = sample([
            ("acquisitions", operations as f64),
            ("throughput", operations as f64 * 1e9 / elapsed_ns as f64),
            ("ns", each(elapsed_ns)),
            ("jain", jain(speeds).unwrap_or(0.0)),
            ("unserved", unserved as f64 / speeds.len() as f64),
            ("cpu_ns", each(used.cpu_ns)),
            ("voluntary", each(used.voluntary_switches)),
            ("involuntary", each(used.involuntary_switches)),
        ]);
        let others = self.others.share(known, cpus);
        figures.extend(others.map(|others| ("others".to_owned(), others)));
        Ok(figures)
    }
}

/// Lets time pass, and more of it as long as `happened` says that nothing has: a busy machine may not let the
/// threads run at all. Returns whether something has happened.
fn pass(ns: u64, enough: Duration, happened: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        thread::sleep(Duration::from_nanos(ns));
        let happened = happened();
        if happened || start.elapsed() >= enough {
            return happened;
        }
    }
}

/// Threads that go on until they are stopped. They may be well under way before this one runs again, above
/// all where there are many of them: what counts is the time that really passed.
fn intervals<B: Body>(shared: &Shared<B>, run: Run) -> Result<Sample> {
    let Run { task, hogs, enough, .. } = run;
    shared.start.open(task.threads);
    thread::sleep(Duration::from_nanos(task.warm_up_ns));
    let consumption = Consumption::watch(hogs);
    let first = shared.reading();
    let watched = shared.probe.as_ref().map(|probe| (probe, probe.watch()));
    let somebody = || shared.reading().counts != first.counts;
    let last = pass(task.throughput_ns, enough, somebody).then(|| shared.reading());
    let last = last.unwrap_or_else(|| Reading { at_ns: clock::now_ns(), counts: first.counts.clone() });
    let elapsed_ns = last.at_ns - first.at_ns;
    let counts: Vec<u64> = last.counts.iter().zip(&first.counts).map(|(last, first)| last - first).collect();
    let operations = counts.iter().sum();
    let mut figures = consumption.measured(operations, elapsed_ns, &counts, task.cpus.len())?;
    if let Some((probe, watched)) = watched {
        probe.add_to(&mut figures, watched, elapsed_ns, operations)?;
    }
    if task.latency_ns == 0 {
        return Ok(figures);
    }
    let began = clock::now_ns();
    shared.phase.0.store(phase::LATENCY, Relaxed);
    pass(task.latency_ns, enough, || shared.timed());
    waited(shared, began, figures)
}

/// Threads that make a number of operations: the time that all of them take. Where that is too long, what
/// they got done.
fn fixed<B: Body>(shared: &Shared<B>, run: Run) -> Result<Sample> {
    let Run { task, hogs, enough, .. } = run;
    let limit = |ns| Instant::now() + Duration::from_nanos(ns);
    let wait_for = |finished, end| {
        while shared.finished() < finished && Instant::now() < end {
            thread::sleep(Duration::from_micros(500));
        }
    };
    // All are there before the clock starts.
    while shared.start.there() < task.threads {
        thread::sleep(Duration::from_micros(100));
    }
    let consumption = Consumption::watch(hogs);
    let start = clock::now_ns();
    shared.start.open(task.threads);
    wait_for(task.threads, limit(task.throughput_ns));
    let somebody = || shared.reading().counts.iter().any(|&count| count > 0);
    if !somebody() {
        pass(1_000_000, enough, somebody);
    }
    let end = shared.reading();
    let finished: Vec<u64> =
        shared.published.iter().map(|published| published.0.finished_at.load(Relaxed)).collect();
    let all = shared.finished() >= task.threads;
    let last = finished.iter().copied().max().filter(|_| all).unwrap_or(end.at_ns);
    let elapsed_ns = (last - start).max(1);
    // Operations a second, each thread by its own time.
    let speeds: Vec<u64> = end
        .counts
        .iter()
        .zip(&finished)
        .map(|(&count, &finished)| {
            let until = if finished == 0 { end.at_ns } else { finished };
            (count as f64 * 1e9 / until.saturating_sub(start).max(1) as f64) as u64
        })
        .collect();
    let operations = end.counts.iter().sum();
    let figures = consumption.measured(operations, elapsed_ns, &speeds, task.cpus.len())?;
    let began = clock::now_ns();
    shared.phase.0.store(phase::LATENCY, Relaxed);
    // Those that still wait for a lock come later.
    shared.again.open(shared.finished().min(task.threads));
    wait_for(2 * task.threads, limit(task.latency_ns));
    if !shared.timed() {
        pass(task.latency_ns.min(10_000_000), enough, || shared.timed());
    }
    waited(shared, began, figures)
}

/// The waits of all threads since `began`. Those that have not ended count as long as they have lasted: were
/// they left out, a lock that serves some at once and others never would look best.
fn waited<B: Body>(shared: &Shared<B>, began: u64, mut figures: Sample) -> Result<Sample> {
    shared.phase.0.store(phase::END, Relaxed);
    let end = clock::now_ns();
    let mut all = [histogram()?, histogram()?];
    for (index, published) in shared.published.iter().enumerate() {
        for (all, thread) in all.iter_mut().zip(&*shared.waits(index)) {
            all.add(thread).map_err(|error| Error::Failed(format!("waits do not add up: {error}")))?;
        }
        let word = published.0.waits_since.load(Relaxed);
        let since = (word & !1).max(began);
        if word != 0 {
            all[(word & 1) as usize].saturating_record(end.saturating_sub(since));
        }
    }
    let names = if B::SHARES { ["writer_waits", "reader_waits"] } else { ["waits", ""] };
    for (whose, all) in names.into_iter().zip(all).filter(|(_, all)| !all.is_empty()) {
        add_quantiles(&mut figures, whose, &all);
        // The clock may not tell waits from none.
        figures.insert(format!("{whose}.max_of_mean"), all.max() as f64 / all.mean().max(1.0));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use poundlock_peers::Calls;

    use super::*;

    fn task(inside: Inside) -> Task {
        Task {
            // Of those that need no package.
            lock: Subject::Peer("std".into()),
            threads: 3,
            inside,
            think_steps: 20,
            vary: true,
            warm_up_ns: 1_000_000,
            throughput_ns: 20_000_000,
            latency_ns: 20_000_000,
            drain_ns: Some(60_000_000_000),
            finish: false,
            cpus: affinity::allowed().unwrap(),
            pin: false,
            hogs: false,
            probe: false,
        }
    }

    const WORK: Inside = Inside::Work { steps: 50 };

    fn increments(operations: u64) -> Inside {
        Inside::Increments { locks: 7, operations }
    }

    #[test]
    fn every_sort_of_work_is_measured() {
        for inside in [
            WORK,
            Inside::Modal { steps: 10, long_steps: 1000, share: 0.1 },
            Inside::Sleep { steps: 10, sleep_ns: 1000, share: 0.1 },
            Inside::Buckets { buckets: 10, keys: 1000, exponent: 0.99 },
            increments(1000),
            Inside::Yield,
        ] {
            let figures = run(None, &task(inside)).unwrap();
            let of = |name: &str| figures[name];
            assert!(of("acquisitions") > 0.0 && of("ns") > 0.0, "{inside:?}: {figures:?}");
            assert!(of("jain") > 0.0 && of("jain") <= 1.0, "{inside:?}: {figures:?}");
            let waits = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|name| of(&format!("waits.{name}")));
            assert!(of("waits.count") > 0.0 && waits.is_sorted(), "{inside:?}: {figures:?}");
        }
    }

    #[test]
    fn a_fixed_number_of_operations_is_made() {
        // A limit that only a hang can reach.
        let hour = 3_600_000_000_000;
        let task = Task { throughput_ns: hour, latency_ns: hour, pin: true, ..task(increments(5000)) };
        let figures = run(None, &task).unwrap();
        let all = ["acquisitions", "waits.count", "unserved"].map(|name| figures[name]);
        assert_eq!(all, [15_000.0, 15_000.0, 0.0]);
    }

    #[test]
    fn hogs_use_the_cpus_and_are_not_counted() {
        // Holders that do nothing but sleep: what uses the CPUs are the hogs, and other tests.
        let sleep = Inside::Sleep { steps: 0, sleep_ns: 1_000_000, share: 1.0 };
        let task = Task { hogs: true, throughput_ns: 100_000_000, ..task(sleep) };
        let figures = run(None, &task).unwrap();
        let all = figures["ns"] * task.cpus.len() as f64;
        assert!(figures["cpu_ns"] < all / 2.0, "{figures:?}");
    }

    #[test]
    fn a_name_that_is_none_says_so() {
        let task = Task { lock: Subject::Peer("no-lock".into()), ..task(WORK) };
        assert!(run(None, &task).unwrap_err().to_string().contains("'no-lock'"));
    }

    unsafe extern "C" fn nothing(_lock: *mut c_void) {}

    fn calls(
        lock: unsafe extern "C" fn(*mut c_void, *mut c_void),
        unlock: unsafe extern "C" fn(*mut c_void, *mut c_void),
    ) -> Calls {
        Calls { size: 4, align: 4, node: 0, init: nothing, lock, unlock, destroy: nothing }
    }

    fn drive_one(calls: Calls, [patience, enough]: [Duration; 2], task: &Task) -> Result<Sample> {
        let Inside::Work { steps } = task.inside else { panic!("one lock only") };
        let calls = rw::Calls { write: calls, read_lock: calls.lock, read_unlock: calls.unlock };
        Run { calls, patience, enough, task, hogs: &Hogs::none() }
            .drive(Single::new(0.0, move |_| work(steps)))
    }

    #[test]
    fn threads_that_starve_are_left_behind_and_their_waits_count() {
        static END: AtomicBool = AtomicBool::new(false);
        /// Whoever comes first keeps the lock; all others wait until they are told to stop, and then end.
        unsafe extern "C" fn lock(lock: *mut c_void, _node: *mut c_void) {
            // SAFETY: the lock is four zeroed, aligned bytes that live as long as the process.
            let owner = unsafe { &*lock.cast::<AtomicU32>() };
            // SAFETY: a plain query.
            let own = unsafe { libc::gettid() } as u32;
            while owner.compare_exchange(0, own, Acquire, Relaxed).is_err_and(|now| now != own) {
                if END.load(Relaxed) {
                    loop {
                        thread::park();
                    }
                }
                thread::yield_now();
            }
        }
        unsafe extern "C" fn unlock(_lock: *mut c_void, _node: *mut c_void) {}
        let task = Task { threads: 5, throughput_ns: 30_000_000, latency_ns: 30_000_000, ..task(WORK) };
        let figures = drive_one(calls(lock, unlock), [Duration::from_millis(50), ENOUGH], &task).unwrap();
        // In a worker they end with the process. Here there are other tests.
        END.store(true, Relaxed);
        assert_eq!((figures["unserved"], figures["jain"]), (0.8, 0.2));
        // One thread's waits are nothing, four have waited throughout: to a hundredth, as the histogram has
        // it.
        assert!(figures["waits.max_ns"] >= 29_700_000.0 && figures["waits.count"] >= 5.0, "{figures:?}");
    }

    #[test]
    fn a_lock_that_nobody_gets_has_no_figure() {
        static END: AtomicBool = AtomicBool::new(false);
        unsafe extern "C" fn lock(_lock: *mut c_void, _node: *mut c_void) {
            while !END.load(Relaxed) {
                thread::yield_now();
            }
        }
        unsafe extern "C" fn unlock(_lock: *mut c_void, _node: *mut c_void) {}
        let task = Task { throughput_ns: 2_000_000, latency_ns: 2_000_000, ..task(WORK) };
        let error =
            drive_one(calls(lock, unlock), [Duration::from_millis(5); 2], &task).unwrap_err().to_string();
        END.store(true, Relaxed);
        assert!(error.contains("nobody acquired the lock"), "{error}");
    }

    fn shares(writers: f64, threads: usize) -> Task {
        let inside = Inside::Share { writers, read_steps: 50, write_steps: 50 };
        Task { threads, lock: Subject::Rw("std".into()), vary: false, ..task(inside) }
    }

    #[test]
    fn readers_and_writers_get_the_lock_and_their_waits_are_told_apart() {
        let figures = run(None, &Task { finish: true, ..shares(0.2, 4) }).unwrap();
        let [writers, readers] = ["writer_waits.count", "reader_waits.count"].map(|name| figures[name]);
        assert!(readers > writers && writers > 0.0, "{figures:?}");
        let [mean, max] = ["reader_waits.mean_ns", "reader_waits.max_ns"].map(|name| figures[name]);
        assert!(mean > 0.0 && mean <= max, "{figures:?}");
        assert!(!run(None, &shares(0.0, 2)).unwrap().contains_key("writer_waits.count"));
    }

    #[test]
    fn a_lock_that_lets_somebody_in_beside_another_is_found_out() {
        unsafe extern "C" fn open(_lock: *mut c_void, _node: *mut c_void) {}
        let (std, _) = Subject::Rw("std".into()).calls(None).unwrap();
        let readers = rw::Calls { read_lock: open, read_unlock: open, ..std };
        let writers = rw::Calls { write: Calls { lock: open, unlock: open, ..std.write }, ..std };
        let task = Task { throughput_ns: 50_000_000, latency_ns: 50_000_000, ..shares(0.2, 4) };
        for (calls, shared) in [(writers, false), (readers, true), (writers, true)] {
            let patience = Duration::from_secs(60);
            let run = Run { calls, patience, enough: ENOUGH, task: &task, hogs: &Hogs::none() };
            // Sections so long that even on one CPU some thread is preempted in one.
            let found = (0..100).any(|_| {
                let worked = if shared {
                    run.drive(Shares { below: threshold(0.2), read_steps: 1_000_000, write_steps: 1_000_000 })
                } else {
                    run.drive(Single::new(0.0, |_| work(1_000_000)))
                };
                worked.is_err_and(|error| error.to_string().contains("does not exclude"))
            });
            assert!(found, "what nobody should have seen went unnoticed");
        }
    }

    #[test]
    fn symbols_are_driven_and_a_probe_looks_on() {
        for kind in [Kind::Mutex, Kind::Adaptive, Kind::Spin] {
            let probe = kind == Kind::Mutex;
            let task = Task { lock: Subject::Symbols(kind), probe, latency_ns: 0, ..task(WORK) };
            let figures = run(None, &task).unwrap();
            assert!(figures["acquisitions"] > 0.0);
            assert_eq!(figures.contains_key("held.count"), probe);
        }
    }

    /// An empty bucket, as zeroed memory has it.
    fn bucket() -> Bucket {
        Bucket { first: 0, used: 0, entries: [Entry { key: 0, next: 0, value: 0 }; ENTRIES] }
    }

    #[test]
    fn buckets_find_what_was_inserted_last_and_forget_the_oldest() {
        let mut bucket = bucket();
        assert_eq!(bucket.find(0), None);
        for key in 0..ENTRIES as u32 {
            assert_eq!(bucket.insert(key, u64::from(key) + 100), None);
        }
        assert!((0..ENTRIES as u32).all(|key| bucket.find(key) == Some(u64::from(key) + 100)));
        assert_eq!(bucket.insert(3, 7), Some(103));
        // Each of a hundred more pushes out the oldest that is left.
        for key in 1000..1100 {
            assert_eq!(bucket.insert(key, 1), None);
            let there = (0..2000).filter(|&key| bucket.find(key).is_some()).count();
            assert_eq!(there, ENTRIES);
            assert_eq!(bucket.find(key), Some(1));
        }
        assert_eq!(bucket.find(1099 - ENTRIES as u32), None);
        assert_eq!(bucket.find(1100 - ENTRIES as u32), Some(1));
    }

    #[test]
    fn few_keys_are_most_of_the_traffic_and_every_bucket_has_some() {
        let table = Table::new(100, 10_000, 0.99).unwrap();
        let popular = table.keys.iter().filter(|&&key| key <= 10).count() as f64 / DRAWN as f64;
        // By the law 0.30 of it: the sum of 1/k^0.99 over ten keys, of that over ten thousand.
        assert!((0.28..=0.32).contains(&popular), "{popular}");
        assert!(table.keys.iter().all(|key| (1..=10_000).contains(key)));
        let mut load = [0; 100];
        for &key in &table.keys {
            load[bucket_of(key, 100)] += 1;
        }
        assert!(load.iter().all(|&keys| keys > 0), "{load:?}");
    }

    #[test]
    fn thinking_varies_by_half() {
        let mut random = fastrand::Rng::with_seed(1);
        let steps: Vec<u64> = (0..10_000).map(|_| thought(1000, &mut random)).collect();
        assert!(steps.iter().all(|steps| (500..=1500).contains(steps)));
        let mean = steps.iter().sum::<u64>() as f64 / steps.len() as f64;
        assert!((990.0..=1010.0).contains(&mean), "{mean}");
        assert_eq!(thought(0, &mut random), 0);
    }

    #[test]
    fn cells_have_lines_of_their_own() {
        for (size, align, apart) in [(4, 4, true), (40, 8, false), (200, 64, true), (1, 256, false)] {
            unsafe extern "C" fn pass(_lock: *mut c_void, _node: *mut c_void) {}
            let calls = Calls { size, align, ..calls(pass, pass) };
            let cells = Cells::<u64>::new(&calls, 5, apart).unwrap();
            for index in 0..5 {
                let (lock, beside) = (cells.lock(index) as usize, cells.beside(index) as usize);
                assert_eq!((lock % align, lock % LINES), (0, 0));
                assert!(beside >= lock + size && beside.is_multiple_of(align_of::<Beside<u64>>()));
                assert!(!apart || beside.is_multiple_of(LINES));
                let next = cells.lock(index) as usize + cells.stride;
                assert!(beside + size_of::<Beside<u64>>() <= next);
            }
            assert_eq!(cells.sum(), 0);
        }
    }
}
