//! A closer look at threads that take turns: how long the lock lies free, or is held, while somebody waits
//! for it, and what the lock does meanwhile.
//!
//! Each holder leaves the time of its release inside the critical section, so the time to the next
//! acquisition includes the release itself. Threads say when they begin to wait; what a holder reads of that
//! when it releases decides whether the gap counts. All this costs a few dozen nanoseconds a turn: a probed
//! run is not for its throughput.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::events::Event;
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;

/// Longer than this is a wait for the scheduler and not for a lock: time slices are some 3 ms.
pub(crate) const LONG_NS: u64 = 1_000_000;

const EVENTS: usize = Event::ALL.len();

/// A distribution of durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Durations {
    pub(crate) count: u64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
    pub(crate) max_ns: f64,
    /// The share of the run's time that passed in long ones.
    pub(crate) long_share: f64,
}

/// What a probe saw between two moments.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gaps {
    /// From a release to the next acquisition, if somebody waited.
    pub(crate) free: Durations,
    /// From an acquisition to the release.
    pub(crate) held: Durations,
    /// Lock events, by [`Event::ALL`]: how many; their duration where they have one.
    pub(crate) events: Vec<u64>,
}

/// A histogram that one thread writes and any may read: 16 steps to each power of two.
struct Histogram {
    buckets: Vec<AtomicU64>,
    max: AtomicU64,
    /// The sum of the long ones.
    long: AtomicU64,
}

/// Adds to a figure that only this thread writes.
fn add(figure: &AtomicU64, amount: u64) {
    figure.store(figure.load(Relaxed) + amount, Relaxed);
}

impl Histogram {
    const STEPS: u64 = 16;

    fn new() -> Histogram {
        let buckets = (0..=Self::bucket(u64::MAX)).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, max: AtomicU64::new(0), long: AtomicU64::new(0) }
    }

    fn bucket(value: u64) -> usize {
        if value < Self::STEPS {
            return value as usize;
        }
        let power = u64::from(value.ilog2());
        ((power - 3) * Self::STEPS + ((value >> (power - 4)) & (Self::STEPS - 1))) as usize
    }

    /// The largest value of a bucket.
    fn end(bucket: usize) -> u64 {
        let (row, step) = (bucket as u64 / Self::STEPS, bucket as u64 % Self::STEPS);
        if row == 0 { step } else { ((Self::STEPS + step) << (row - 1)) + ((1 << (row - 1)) - 1) }
    }

    fn record(&self, value: u64) {
        add(&self.buckets[Self::bucket(value)], 1);
        self.max.store(self.max.load(Relaxed).max(value), Relaxed);
        if value > LONG_NS {
            add(&self.long, value);
        }
    }

    /// All of them together, over a time.
    fn summarise<'a>(all: impl Iterator<Item = &'a Histogram>, elapsed_ns: u64) -> Durations {
        let mut buckets = vec![0; Self::bucket(u64::MAX) + 1];
        let (mut max, mut long) = (0, 0);
        for histogram in all {
            for (sum, bucket) in buckets.iter_mut().zip(&histogram.buckets) {
                *sum += bucket.load(Relaxed);
            }
            max = max.max(histogram.max.load(Relaxed));
            long += histogram.long.load(Relaxed);
        }
        let count: u64 = buckets.iter().sum();
        let quantile = |q: f64| {
            let wanted = (q * count as f64).ceil().max(1.0) as u64;
            let mut sum = 0;
            let found = buckets.iter().position(|&bucket| {
                sum += bucket;
                sum >= wanted
            });
            found.map_or(0.0, |bucket| Self::end(bucket).min(max) as f64)
        };
        Durations {
            count,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: max as f64,
            long_share: long as f64 / elapsed_ns as f64,
        }
    }
}

/// What one thread notes.
#[repr(align(128))]
struct Notes {
    free: Histogram,
    held: Histogram,
    events: [AtomicU64; EVENTS],
}

impl Notes {
    fn new() -> Notes {
        Notes {
            free: Histogram::new(),
            held: Histogram::new(),
            events: [const { AtomicU64::new(0) }; EVENTS],
        }
    }
}

/// What the threads share.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    /// When the lock was released; 0 while it is held. Written by the holder.
    released: AtomicU64,
    /// When it was acquired. Written by the holder.
    acquired: AtomicU64,
    /// How many waited at the release. Written by the holder.
    waited: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct Waiting(AtomicU64);

/// The probe of a run.
pub(super) struct Probe {
    line: Arc<Line>,
    waiting: Arc<Waiting>,
    /// Since when it counts; 0 while it does not.
    since: Arc<AtomicU64>,
    notes: Vec<Arc<Notes>>,
}

/// A thread's end of it.
pub(super) struct Thread {
    line: Arc<Line>,
    waiting: Arc<Waiting>,
    since: Arc<AtomicU64>,
    notes: Option<Arc<Notes>>,
    acquired: u64,
}

/// What was there when the probe began to count.
pub(super) struct Watched {
    events: Vec<u64>,
    since: u64,
}

impl Probe {
    pub(super) fn new(threads: usize) -> Probe {
        Probe {
            line: Arc::default(),
            waiting: Arc::default(),
            since: Arc::default(),
            notes: (0..threads).map(|_| Arc::new(Notes::new())).collect(),
        }
    }

    /// The calling thread's end.
    pub(super) fn thread(&self, index: usize) -> Thread {
        let notes = self.notes.get(index).cloned();
        if let Some(notes) = &notes {
            COUNTERS.set(notes.events.as_ptr());
        }
        Thread {
            line: Arc::clone(&self.line),
            waiting: Arc::clone(&self.waiting),
            since: Arc::clone(&self.since),
            notes,
            acquired: 0,
        }
    }

    fn events(&self) -> Vec<u64> {
        (0..EVENTS)
            .map(|event| self.notes.iter().map(|notes| notes.events[event].load(Relaxed)).sum())
            .collect()
    }

    /// Begins to count.
    pub(super) fn watch(&self) -> Watched {
        let since = now_ns();
        self.since.store(since, Relaxed);
        Watched { events: self.events(), since }
    }

    /// Ends counting: what was seen since.
    pub(super) fn gaps(&self, watched: Watched, elapsed_ns: u64) -> Gaps {
        self.since.store(0, Relaxed);
        // What has not ended yet may be the longest of all.
        let (open_free, open_held) = (Histogram::new(), Histogram::new());
        let now = now_ns();
        let (released, acquired) = (self.line.released.load(Relaxed), self.line.acquired.load(Relaxed));
        let open = |start: u64| now.saturating_sub(start.max(watched.since));
        if released == 0 && acquired != 0 && open(acquired) > LONG_NS {
            open_held.record(open(acquired));
        } else if released != 0 && self.line.waited.load(Relaxed) != 0 && open(released) > LONG_NS {
            open_free.record(open(released));
        }
        let notes = &self.notes;
        Gaps {
            free: Histogram::summarise(notes.iter().map(|notes| &notes.free).chain([&open_free]), elapsed_ns),
            held: Histogram::summarise(notes.iter().map(|notes| &notes.held).chain([&open_held]), elapsed_ns),
            events: self.events().iter().zip(&watched.events).map(|(now, then)| now - then).collect(),
        }
    }
}

impl Thread {
    /// The thread is about to wait.
    pub(super) fn waits(&self) {
        self.waiting.0.fetch_add(1, Relaxed);
    }

    /// It has the lock.
    pub(super) fn acquired(&mut self) {
        let now = now_ns();
        self.waiting.0.fetch_sub(1, Relaxed);
        self.acquired = now;
        let released = self.line.released.load(Relaxed);
        let waited = self.line.waited.load(Relaxed);
        self.line.acquired.store(now, Relaxed);
        self.line.released.store(0, Relaxed);
        let since = self.since.load(Relaxed);
        if let Some(notes) = &self.notes
            && since != 0
            && released != 0
            && waited != 0
        {
            notes.free.record(now.saturating_sub(released.max(since)));
        }
    }

    /// It is about to release the lock.
    pub(super) fn releases(&self) {
        let now = now_ns();
        let since = self.since.load(Relaxed);
        if let Some(notes) = &self.notes
            && since != 0
        {
            notes.held.record(now - self.acquired.max(since).min(now));
        }
        self.line.waited.store(self.waiting.0.load(Relaxed), Relaxed);
        self.line.released.store(now, Relaxed);
    }
}

thread_local! {
    /// The calling thread's event counters; null in threads that have none. They live as long as its
    /// [`Thread`].
    static COUNTERS: Cell<*const AtomicU64> = const { Cell::new(ptr::null()) };
}

impl Drop for Thread {
    fn drop(&mut self) {
        COUNTERS.set(ptr::null());
    }
}

/// Has the lock events of this process counted.
pub(super) fn count_events() {
    poundlock_linux::events::send_to(|event, amount| {
        let counters = COUNTERS.get();
        if !counters.is_null() {
            // SAFETY: the counters of this thread, one for each event, which are there until `Thread` is
            // dropped.
            add(unsafe { &*counters.add(event as usize) }, amount);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_as_narrow_as_promised() {
        let mut last = None;
        for value in
            (0..2000).chain((11..64).flat_map(|power| [(1 << power) - 1, 1 << power])).chain([u64::MAX])
        {
            let bucket = Histogram::bucket(value);
            assert!(last.is_none_or(|last| last <= bucket), "{value}");
            last = Some(bucket);
            let end = Histogram::end(bucket);
            assert!(end >= value && end - value <= value / 16, "{value} is counted as up to {end}");
            assert_eq!(Histogram::bucket(end), bucket);
        }
    }

    #[test]
    fn durations_of_several_threads_are_one_distribution() {
        let (one, two) = (Histogram::new(), Histogram::new());
        (0..985).for_each(|_| one.record(10));
        (0..14).for_each(|_| two.record(1000));
        two.record(3_000_000);
        let all = Histogram::summarise([&one, &two].into_iter(), 30_000_000);
        assert_eq!((all.count, all.p50_ns, all.max_ns), (1000, 10.0, 3e6));
        assert!((1000.0..1070.0).contains(&all.p99_ns) && (1000.0..1070.0).contains(&all.p999_ns), "{all:?}");
        assert_eq!(all.long_share, 0.1);
        let none = Histogram::summarise([].into_iter(), 1);
        assert_eq!((none.count, none.p50_ns, none.long_share), (0, 0.0, 0.0));
    }

    #[test]
    fn gaps_count_from_a_release_that_somebody_waited_for() {
        let probe = Probe::new(2);
        let (mut first, mut second) = (probe.thread(0), probe.thread(1));
        let watched = probe.watch();
        // Alone: held, but no gap.
        first.waits();
        first.acquired();
        first.releases();
        first.waits();
        first.acquired();
        // Now somebody waits.
        second.waits();
        first.releases();
        second.acquired();
        second.releases();
        let gaps = probe.gaps(watched, 1_000_000_000);
        assert_eq!((gaps.free.count, gaps.held.count), (1, 3));
        assert_eq!(gaps.events, vec![0; EVENTS]);
    }

    #[test]
    fn a_gap_that_has_not_ended_counts_if_it_is_long() {
        let probe = Probe::new(2);
        let (mut first, second) = (probe.thread(0), probe.thread(1));
        let watched = probe.watch();
        first.waits();
        first.acquired();
        second.waits();
        first.releases();
        let begin = now_ns();
        while now_ns() - begin <= 2 * LONG_NS {}
        let gaps = probe.gaps(watched, 4 * LONG_NS);
        assert_eq!(gaps.free.count, 1);
        assert!(gaps.free.long_share >= 0.5, "{gaps:?}");
    }

    #[test]
    fn events_are_counted_by_the_thread_that_they_happen_to() {
        count_events();
        let probe = Probe::new(2);
        let watched = probe.watch();
        let _own = probe.thread(1);
        poundlock_linux_count(Event::Steal, 1);
        poundlock_linux_count(Event::WakeLatency, 700);
        let events = probe.gaps(watched, 1).events;
        assert_eq!(events[Event::Steal as usize], 1);
        assert_eq!(events[Event::WakeLatency as usize], 700);
        assert_eq!(events.iter().filter(|&&count| count > 0).count(), 2);
    }

    fn poundlock_linux_count(event: Event, amount: u64) {
        use poundlock_core::events::Observer;
        assert!(poundlock_linux::Linux::counting());
        poundlock_linux::Linux::count(event, amount);
    }
}
