//! A closer look at threads that take turns: how long the lock lies free, or is held, while somebody waits
//! for it, and what the lock does meanwhile.
//!
//! Each holder leaves the time of its release inside the critical section, so the time to the next
//! acquisition includes the release itself. Threads say when they begin to wait; what a holder reads of that
//! when it releases decides whether the gap counts. All this costs a few dozen nanoseconds a turn: a probed
//! run is not for its throughput.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use poundlock_core::events::Event;

use super::gate::{Alone, add_quantiles, histogram};
use crate::clock::now_ns;
use crate::error::{Error, Result};
use crate::plan::Sample;

/// Longer than this is a wait for the scheduler and not for a lock: time slices are some 3 ms.
const LONG_NS: u64 = 1_000_000;

const EVENTS: usize = Event::ALL.len();

/// Durations that were seen.
struct Seen {
    all: Histogram<u64>,
    /// The sum of the long ones.
    long_ns: u64,
}

impl Seen {
    fn new() -> Result<Seen> {
        Ok(Seen { all: histogram()?, long_ns: 0 })
    }

    fn record(&mut self, ns: u64) {
        self.all.saturating_record(ns);
        if ns > LONG_NS {
            self.long_ns += ns;
        }
    }

    fn add(&mut self, other: &Seen) -> Result<()> {
        self.long_ns += other.long_ns;
        self.all.add(&other.all).map_err(|error| Error::Failed(format!("durations do not add up: {error}")))
    }

    /// Over a time. Rounds in which there were none say nothing about how long they are.
    fn add_to(&self, sample: &mut Sample, whose: &str, elapsed_ns: u64) {
        if !self.all.is_empty() {
            add_quantiles(sample, whose, &self.all);
            sample.insert(format!("{whose}.long_share"), self.long_ns as f64 / elapsed_ns as f64);
        }
    }
}

/// What one thread notes. It alone locks its durations, until the probe ends.
struct Notes {
    free: Mutex<Seen>,
    held: Mutex<Seen>,
    events: [AtomicU64; EVENTS],
}

fn record(durations: &Mutex<Seen>, ns: u64) {
    durations.lock().unwrap_or_else(PoisonError::into_inner).record(ns);
}

/// What the threads share.
#[derive(Default)]
struct Line {
    /// When the lock was released; 0 while it is held. Written by the holder.
    released: AtomicU64,
    /// When it was acquired. Written by the holder.
    acquired: AtomicU64,
    /// How many waited at the release. Written by the holder.
    waited: AtomicU64,
}

/// The probe of a run.
pub(super) struct Probe {
    line: Alone<Line>,
    waiting: Alone<AtomicU64>,
    /// Since when it counts; 0 while it does not.
    since: Alone<AtomicU64>,
    notes: Vec<Alone<Notes>>,
}

/// A thread's end of it.
pub(super) struct Thread<'a> {
    probe: &'a Probe,
    notes: &'a Notes,
    acquired: u64,
}

/// What was there when the probe began to count.
pub(super) struct Watched {
    events: Vec<u64>,
    since: u64,
}

impl Probe {
    pub(super) fn new(threads: usize) -> Result<Probe> {
        let notes = |_| {
            let (free, held) = (Mutex::new(Seen::new()?), Mutex::new(Seen::new()?));
            Ok(Alone(Notes { free, held, events: [const { AtomicU64::new(0) }; EVENTS] }))
        };
        let notes = (0..threads).map(notes).collect::<Result<_>>()?;
        Ok(Probe { line: Alone::default(), waiting: Alone::default(), since: Alone::default(), notes })
    }

    /// The end of the calling thread, which has this number.
    pub(super) fn thread(&self, index: usize) -> Thread<'_> {
        let notes = &self.notes[index].0;
        COUNTERS.set(notes.events.as_ptr());
        Thread { probe: self, notes, acquired: 0 }
    }

    fn events(&self) -> Vec<u64> {
        let sum = |event: usize| self.notes.iter().map(|notes| notes.0.events[event].load(Relaxed)).sum();
        (0..EVENTS).map(sum).collect()
    }

    /// Begins to count.
    pub(super) fn watch(&self) -> Watched {
        let since = now_ns();
        self.since.0.store(since, Relaxed);
        Watched { events: self.events(), since }
    }

    /// Ends counting: adds what was seen since. `free` is from a release to the next acquisition, if somebody
    /// waited, `held` from an acquisition to its release; `events` are lock events, or their durations where
    /// they have one, for each of so many acquisitions.
    pub(super) fn add_to(
        &self,
        sample: &mut Sample,
        watched: Watched,
        elapsed_ns: u64,
        acquisitions: u64,
    ) -> Result<()> {
        self.since.0.store(0, Relaxed);
        // What has not ended yet may be the longest of all.
        let (mut free, mut held) = (Seen::new()?, Seen::new()?);
        let (now, line) = (now_ns(), &self.line.0);
        let (released, acquired) = (line.released.load(Relaxed), line.acquired.load(Relaxed));
        let open = |start: u64| now.saturating_sub(start.max(watched.since));
        if released == 0 && acquired != 0 && open(acquired) > LONG_NS {
            held.record(open(acquired));
        } else if released != 0 && line.waited.load(Relaxed) != 0 && open(released) > LONG_NS {
            free.record(open(released));
        }
        for Alone(notes) in &self.notes {
            free.add(&notes.free.lock().unwrap_or_else(PoisonError::into_inner))?;
            held.add(&notes.held.lock().unwrap_or_else(PoisonError::into_inner))?;
        }
        free.add_to(sample, "free", elapsed_ns);
        held.add_to(sample, "held", elapsed_ns);
        for (event, (now, then)) in Event::ALL.iter().zip(self.events().iter().zip(watched.events)) {
            // Those at the beginning and the end may belong to acquisitions beyond it; no matter.
            let each = (now - then) as f64 / acquisitions as f64;
            sample.insert(format!("events.{}", event.name()), each);
        }
        Ok(())
    }
}

impl Thread<'_> {
    /// The thread is about to wait.
    pub(super) fn waits(&self) {
        self.probe.waiting.0.fetch_add(1, Relaxed);
    }

    /// It has the lock.
    pub(super) fn acquired(&mut self) {
        let now = now_ns();
        self.probe.waiting.0.fetch_sub(1, Relaxed);
        self.acquired = now;
        let line = &self.probe.line.0;
        let (released, waited) = (line.released.load(Relaxed), line.waited.load(Relaxed));
        line.acquired.store(now, Relaxed);
        line.released.store(0, Relaxed);
        let since = self.probe.since.0.load(Relaxed);
        if since != 0 && released != 0 && waited != 0 {
            record(&self.notes.free, now.saturating_sub(released.max(since)));
        }
    }

    /// It is about to release the lock.
    pub(super) fn releases(&self) {
        let now = now_ns();
        let since = self.probe.since.0.load(Relaxed);
        if since != 0 {
            record(&self.notes.held, now - self.acquired.max(since).min(now));
        }
        let line = &self.probe.line.0;
        line.waited.store(self.probe.waiting.0.load(Relaxed), Relaxed);
        line.released.store(now, Relaxed);
    }
}

thread_local! {
    /// The calling thread's event counters; null in threads that have none. They live as long as its
    /// [`Thread`].
    static COUNTERS: Cell<*const AtomicU64> = const { Cell::new(ptr::null()) };
}

impl Drop for Thread<'_> {
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
            let counter = unsafe { &*counters.add(event as usize) };
            // Nobody else writes it.
            counter.store(counter.load(Relaxed) + amount, Relaxed);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_several_threads_are_one_distribution() {
        let [mut all, mut one, mut two] = [(); 3].map(|()| Seen::new().unwrap());
        let mut sample = Sample::new();
        all.add_to(&mut sample, "all", 1);
        assert!(sample.is_empty(), "{sample:?}");
        (0..985).for_each(|_| one.record(10));
        (0..14).for_each(|_| two.record(1000));
        two.record(3_000_000);
        all.add(&one).and(all.add(&two)).unwrap();
        all.add_to(&mut sample, "all", 30_000_000);
        let of = |name: &str| sample[&format!("all.{name}")];
        assert_eq!((of("count"), of("p50_ns"), of("long_share")), (1000.0, 10.0, 0.1));
        assert!(
            (1000.0..1010.0).contains(&of("p99_ns")) && (1000.0..1010.0).contains(&of("p999_ns")),
            "{sample:?}"
        );
        assert!((3e6..3.03e6).contains(&of("max_ns")), "{sample:?}");
    }

    fn seen(probe: &Probe, watched: Watched, elapsed_ns: u64) -> Sample {
        let mut sample = Sample::new();
        probe.add_to(&mut sample, watched, elapsed_ns, 1).unwrap();
        sample
    }

    #[test]
    fn gaps_count_from_a_release_that_somebody_waited_for() {
        let probe = Probe::new(2).unwrap();
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
        let gaps = seen(&probe, watched, 1_000_000_000);
        assert_eq!((gaps["free.count"], gaps["held.count"]), (1.0, 3.0));
        assert!(gaps.iter().all(|(name, value)| !name.starts_with("events.") || *value == 0.0), "{gaps:?}");
    }

    #[test]
    fn a_gap_that_has_not_ended_counts_if_it_is_long() {
        let probe = Probe::new(2).unwrap();
        let (mut first, second) = (probe.thread(0), probe.thread(1));
        let watched = probe.watch();
        first.waits();
        first.acquired();
        second.waits();
        first.releases();
        let begin = now_ns();
        while now_ns() - begin <= 2 * LONG_NS {}
        let gaps = seen(&probe, watched, 4 * LONG_NS);
        assert_eq!(gaps["free.count"], 1.0);
        assert!(gaps["free.long_share"] >= 0.5, "{gaps:?}");
    }

    #[test]
    fn events_are_counted_by_the_thread_that_they_happen_to() {
        count_events();
        let probe = Probe::new(2).unwrap();
        let watched = probe.watch();
        let _own = probe.thread(1);
        poundlock_linux_count(Event::Steal, 1);
        poundlock_linux_count(Event::WakeLatency, 700);
        let mut events = seen(&probe, watched, 1);
        events.retain(|_, each| *each > 0.0);
        let event = |event: Event| format!("events.{}", event.name());
        assert_eq!(events, [(event(Event::Steal), 1.0), (event(Event::WakeLatency), 700.0)].into());
    }

    fn poundlock_linux_count(event: Event, amount: u64) {
        use poundlock_core::events::Observer;
        assert!(poundlock_linux::Linux::counting());
        poundlock_linux::Linux::count(event, amount);
    }
}
