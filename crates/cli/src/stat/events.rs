//! What the slow paths of locks counted, merged over the processes of a run.

use std::fmt::Write as _;

use poundlock_core::events::{Event, Family};
use poundlock_statfile::layout::{CELL_BUCKET_SHIFT, CELL_BUCKETS};
use poundlock_statfile::{Durations, EventCount, Snapshot};

use super::text::duration;

/// How long the longest bar of a histogram is.
const BAR: u64 = 40;

/// The merged counts.
pub(super) struct Events {
    /// Every event that has no duration. Empty if none happened.
    pub(super) counts: Vec<(Event, EventCount)>,
    /// Every event that is a duration. Empty if none happened.
    pub(super) durations: Vec<(Event, Durations)>,
}

impl Events {
    /// Of all processes. The numbers in their files are the preload library's: an event has that of its
    /// discriminant, a duration that of its place among the durations.
    pub(super) fn new(snapshots: &[Snapshot]) -> Self {
        let count = |event: Event| {
            let mut sum = EventCount::default();
            for of_process in snapshots.iter().filter_map(|snapshot| snapshot.events.get(event as usize)) {
                sum.total = sum.total.saturating_add(of_process.total);
                sum.most = sum.most.max(of_process.most);
            }
            (event, sum)
        };
        let merged = |(number, event): (usize, Event)| {
            let mut sum = Durations::default();
            for of_process in snapshots.iter().filter_map(|snapshot| snapshot.durations.get(number)) {
                sum.count = sum.count.saturating_add(of_process.count);
                sum.total_ns = sum.total_ns.saturating_add(of_process.total_ns);
                sum.max_ns = sum.max_ns.max(of_process.max_ns);
                sum.buckets.resize(sum.buckets.len().max(of_process.buckets.len()), 0);
                for (sum, count) in sum.buckets.iter_mut().zip(&of_process.buckets) {
                    *sum = sum.saturating_add(*count);
                }
            }
            (event, sum)
        };
        let (durations, others): (Vec<Event>, Vec<Event>) =
            Event::ALL.iter().partition(|event| event.is_duration());
        let mut events = Events {
            counts: others.into_iter().map(count).collect(),
            durations: durations.into_iter().enumerate().map(merged).collect(),
        };
        if events.counts.iter().all(|(_, count)| count.total == 0)
            && events.durations.iter().all(|(_, durations)| durations.count == 0)
        {
            events.counts.clear();
            events.durations.clear();
        }
        events
    }

    /// Writes them for a human reader: those of each sort of lock to which anything happened.
    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        let width = self.counts.iter().map(|(event, _)| event.name().len()).max().unwrap_or(0);
        let families = [
            ("mutex events", Family::Mutex),
            ("queue spinlock events", Family::Spinlock),
            ("hand-off mutex events", Family::Handoff),
            ("readers-writer lock events", Family::ReadersWriter),
        ];
        for (title, family) in families {
            let counts = self.counts.iter().filter(|(event, _)| event.family() == family);
            if counts.clone().all(|(_, count)| count.total == 0) {
                continue;
            }
            writeln!(out, "\n{title:width$}  {:>12}  {:>18}", "count", "most in one thread")?;
            for (event, count) in counts {
                writeln!(out, "{:width$}  {:>12}  {:>18}", event.name(), count.total, count.most)?;
            }
        }
        for (event, durations) in self.durations.iter().filter(|(_, durations)| durations.count > 0) {
            let average = duration(durations.total_ns / durations.count);
            let max = duration(durations.max_ns);
            writeln!(out, "\n{}: {} times, average {average}, max {max}", event.name(), durations.count)?;
            histogram(out, durations)?;
        }
        Ok(())
    }
}

/// A bar for each power of two, from the first to the last that occurred.
fn histogram(out: &mut String, durations: &Durations) -> std::fmt::Result {
    let occurred = |count: &u64| *count > 0;
    let first = durations.buckets.iter().position(occurred).unwrap_or(0);
    let last = durations.buckets.iter().rposition(occurred).unwrap_or(0);
    let highest = durations.buckets.iter().copied().max().unwrap_or(0).max(1);
    for n in first..=last {
        let count = durations.buckets.get(n).copied().unwrap_or(0);
        // Rounded up: what happened once can be seen.
        let bar = (u128::from(count) * u128::from(BAR)).div_ceil(u128::from(highest)) as usize;
        let (from, to) = bounds(n);
        let line = format!("  {:>7} to {:>7}  {count:>9}  {}", duration(from), duration(to), "#".repeat(bar));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The shortest duration in bucket `n`, and the shortest that is too long for it.
pub(super) fn bounds(n: usize) -> (u64, u64) {
    let power = |n: usize| u32::try_from(n).ok().and_then(|n| 1u64.checked_shl(n)).unwrap_or(u64::MAX);
    (if n == 0 { 0 } else { power(n) }, power(n + 1))
}

/// The same of waits and holds, whose shortest and longest are not told apart.
pub(super) fn site_bounds(n: usize) -> (u64, u64) {
    let (from, to) = bounds(n);
    (
        if n <= CELL_BUCKET_SHIFT { 0 } else { from },
        if n + 1 >= CELL_BUCKET_SHIFT + CELL_BUCKETS { u64::MAX } else { to },
    )
}

#[cfg(test)]
mod tests {
    use super::{BAR, Durations, Event, EventCount, Events, Snapshot, bounds, histogram};

    #[test]
    fn processes_are_merged() {
        let snapshot = |n: u64| Snapshot {
            events: (0..64).map(|number| EventCount { total: n * number, most: n }).collect(),
            durations: vec![
                Durations { count: n, total_ns: 10 * n, max_ns: n, buckets: vec![n, 0] },
                Durations { count: 1, total_ns: 5, max_ns: 5, buckets: vec![0, 0, 1] },
            ],
            ..Snapshot::default()
        };
        let events = Events::new(&[snapshot(3), Snapshot::default(), snapshot(4)]);
        for (event, count) in &events.counts {
            assert!(!event.is_duration());
            assert_eq!(*count, EventCount { total: 7 * *event as u64, most: 4 });
        }
        assert_eq!(events.counts.len() + events.durations.len(), Event::ALL.len());
        let (kick, wake) = (&events.durations[0], &events.durations[1]);
        assert_eq!((kick.0, wake.0), (Event::KickLatency, Event::WakeLatency));
        assert_eq!(kick.1, Durations { count: 7, total_ns: 70, max_ns: 4, buckets: vec![7, 0] });
        assert_eq!(wake.1, Durations { count: 2, total_ns: 10, max_ns: 5, buckets: vec![0, 0, 2] });
    }

    #[test]
    fn nothing_is_said_of_what_did_not_happen() {
        let events =
            Events::new(&[Snapshot { events: vec![EventCount::default(); 64], ..Snapshot::default() }]);
        assert!(events.counts.is_empty() && events.durations.is_empty());
        let mut text = String::new();
        events.write(&mut text).unwrap();
        assert_eq!(text, "");
    }

    #[test]
    fn buckets_meet() {
        assert_eq!(bounds(0), (0, 2));
        assert_eq!(bounds(10), (1024, 2048));
        assert_eq!(bounds(63), (1 << 63, u64::MAX));
        for n in 0..63 {
            assert_eq!(bounds(n).1, bounds(n + 1).0);
        }
    }

    #[test]
    fn bars_are_in_proportion() {
        let mut buckets = vec![0; 64];
        (buckets[10], buckets[12]) = (1000, 1);
        let mut text = String::new();
        histogram(&mut text, &Durations { count: 1001, buckets, ..Durations::default() }).unwrap();
        let bars: Vec<usize> = text.lines().map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [BAR as usize, 0, 1], "{text}");
        assert!(text.starts_with("  1.02 us to 2.05 us       1000  ###"), "{text}");
    }
}
