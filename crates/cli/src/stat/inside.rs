//! Threads that were inside locks when the figures were read: who holds what since when, who waits for what,
//! who waits for each other, and who waits for a thread that has ended.

use std::collections::{HashMap, HashSet};

use poundlock_statfile::{LockKind, LockStats, Snapshot};
use serde::Serialize;

use super::holders::sleeping;
use super::report::side;
use super::sampler::{Graph, Sleep};
use super::text::duration;
use crate::observe::symbols::Space;
use crate::output::counted;

/// Waits shorter than this are what locks are for: a process may end, or be looked at, in the middle of one.
pub(crate) const LONG_NS: u64 = 100_000_000;

/// A wait lasts unusually long if it takes as often as long as each wait for the lock that is over.
const UNUSUAL: u64 = 2;

/// The last bucket of [`LockStats::wait_buckets`] has no upper bound.
const UNBOUNDED: usize = 34;

/// As many threads are described; the JSON has all.
const SHOWN: usize = 12;

/// How a line begins that says that threads wait for ever.
const DEADLOCK: &str = "DEADLOCK";
const ENDED: &str = "ENDED HOLDER";

/// Whether this line of [`Inside::write`] says that threads wait for ever.
pub(super) fn is_alarm(line: &str) -> bool {
    [DEADLOCK, ENDED].iter().any(|word| line.starts_with(word))
}

/// A thread that waits for a lock, or holds or held one that somebody waits for.
#[derive(Serialize)]
pub(super) struct Thread {
    pid: u32,
    tid: u32,
    /// Its name, if the sampler or the record of an ended thread knows it; else empty.
    name: String,
    /// Whether the thread ended while it held `holds`,
    ended: bool,
    /// and how long ago; `None` if that is not known.
    ended_ns: Option<u64>,
    /// What it sleeps in, if that was seen.
    asleep: Option<Sleep>,
    /// What it waits for.
    waits_for: Option<Place>,
    /// What it holds.
    holds: Vec<Place>,
    /// The threads that hold what it waits for: indices into the list.
    held_by: Vec<usize>,
}

/// A lock that a thread waits for or holds.
#[derive(Serialize)]
struct Place {
    lock: String,
    /// For how long; `None` if that was not looked at.
    for_ns: Option<u64>,
    /// From where; empty if unknown.
    at: String,
    #[serde(skip)]
    address: u64,
    /// The lock without the side of a readers-writer lock, and how that side holds it.
    #[serde(skip)]
    object: (String, &'static str),
    /// No wait for the lock that is over took longer, in nanoseconds.
    #[serde(skip)]
    longest_ns: u64,
    /// The lock as the figures know it.
    #[serde(skip)]
    key: (u64, LockKind),
}

impl Place {
    fn at_line(&self) -> String {
        if self.at.is_empty() { String::new() } else { format!(" at {}", self.at) }
    }
}

/// What is known of the locks that threads of a process are inside, by address.
pub(crate) struct Made(HashMap<u64, Lock>);

#[derive(Default)]
struct Lock {
    /// The stack that made the lock.
    made: Vec<u64>,
    /// [`Place::longest_ns`].
    longest_ns: u64,
}

impl Made {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let waits = snapshot.records.iter().filter_map(|record| record.waits.as_ref());
        let holds = snapshot.records.iter().flat_map(|record| &record.holds);
        let addresses = waits.map(|wait| wait.address).chain(holds.map(|hold| hold.address));
        Made(addresses.map(|address| (address, Lock::default())).collect())
    }

    /// Whether a thread is inside the lock.
    pub(super) fn has(&self, lock: &LockStats) -> bool {
        self.0.contains_key(&lock.address)
    }

    pub(crate) fn note(&mut self, lock: &LockStats) {
        if let Some(known) = self.0.get_mut(&lock.address) {
            known.made = lock.created_at.to_vec();
            // Waits that go on are in no bucket.
            known.longest_ns = match lock.wait_buckets.len() {
                0 => 0,
                buckets if buckets >= UNBOUNDED => u64::MAX,
                buckets => 1 << buckets,
            };
        }
    }
}

/// All of them.
#[derive(Default, Serialize)]
pub(crate) struct Inside {
    pub(super) threads: Vec<Thread>,
    /// Threads of which each waits for the next, and the last for the first: indices into the list.
    pub(super) cycles: Vec<Vec<usize>>,
}

impl Inside {
    /// Adds a process, as of `now_ns`.
    pub(crate) fn add(&mut self, snapshot: &Snapshot, made: &Made, space: &Space, now_ns: u64) {
        let base = self.threads.len();
        let name = |address: u64, kind: LockKind| {
            let object = kind.object(address);
            let named = space.variable(object).map(|variable| variable.name);
            let noun = match side(kind) {
                Some(_) => "readers-writer lock".to_owned(),
                None => kind.to_string(),
            };
            let made = || {
                let stack = &made.0.get(&address)?.made;
                let frames: Vec<_> = stack.iter().flat_map(|&at| space.call(at).to_vec()).collect();
                let own = frames.iter().find(|frame| !frame.is_plumbing).or(frames.first())?;
                Some(format!("the {noun} made in {}", own.text))
            };
            named.or_else(made).unwrap_or_else(|| format!("{noun} {object:#x}"))
        };
        let place = |address: u64, kind: LockKind, for_ns: Option<u64>, at: String| {
            let bare = name(address, kind);
            let (lock, how) = match side(kind) {
                Some(side) if side == "readers" => (format!("{bare}, {side}"), " to read"),
                Some(side) => (format!("{bare}, {side}"), " to write"),
                None => (bare.clone(), ""),
            };
            let longest_ns = made.0.get(&address).map_or(0, |lock| lock.longest_ns);
            let key = (address, kind);
            Place { lock, for_ns, at, address: kind.object(address), object: (bare, how), longest_ns, key }
        };
        let at = |stack: &[u64]| {
            let frames: Vec<_> = stack.iter().flat_map(|&address| space.call(address).to_vec()).collect();
            let own = frames.iter().find(|frame| !frame.is_plumbing).or(frames.first());
            own.map(|frame| frame.text.clone()).unwrap_or_default()
        };
        let since = |ns: u64| now_ns.saturating_sub(ns);
        let waiting: Vec<u64> = snapshot
            .records
            .iter()
            .filter(|record| record.lives)
            .filter_map(|record| record.waits.as_ref().filter(|wait| wait.kind.is_acquired()))
            .map(|wait| wait.kind.object(wait.address))
            .collect();
        for record in snapshot.records.iter().filter(|record| record.lives || record.ended.is_some()) {
            let waits = record.waits.as_ref().filter(|wait| wait.kind.is_acquired());
            let holds: Vec<Place> = record
                .holds
                .iter()
                .filter(|hold| waits.is_some() || waiting.contains(&hold.kind.object(hold.address)))
                .map(|hold| {
                    let taken = if hold.acquired_at == 0 { String::new() } else { at(&[hold.acquired_at]) };
                    place(hold.address, hold.kind, hold.since_ns.map(since), taken)
                })
                .collect();
            if waits.is_none() && holds.is_empty() {
                continue;
            }
            let waits_for =
                waits.map(|wait| place(wait.address, wait.kind, Some(since(wait.since_ns)), at(&wait.stack)));
            self.threads.push(Thread {
                pid: snapshot.pid,
                tid: record.tid,
                name: record.ended.as_ref().map_or_else(String::new, |ended| ended.name.clone()),
                ended: record.ended.is_some(),
                ended_ns: record
                    .ended
                    .as_ref()
                    .filter(|ended| ended.at_ns > 0)
                    .map(|ended| since(ended.at_ns)),
                asleep: None,
                waits_for,
                holds,
                held_by: Vec::new(),
            });
        }
        let mut holders: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, thread) in self.threads.iter().enumerate().skip(base) {
            for hold in &thread.holds {
                holders.entry(hold.address).or_default().push(index);
            }
        }
        for thread in &mut self.threads[base..] {
            let waits = thread.waits_for.as_ref().map(|place| place.address);
            thread.held_by = waits.and_then(|address| holders.get(&address).cloned()).unwrap_or_default();
        }
        self.find_cycles(base);
    }

    /// Calls locks as the tables do, where these have a name for them. Locks of one name have their addresses
    /// behind it: a sentence on two of them would read as if it were on one.
    pub(super) fn name_as(&mut self, name_of: impl Fn(u32, (u64, LockKind)) -> Option<String>) {
        let mut named: HashMap<String, HashSet<(u32, u64)>> = HashMap::new();
        for (pid, place) in self.places() {
            if let Some(name) = name_of(pid, place.key) {
                named.entry(name).or_default().insert((pid, place.address));
            }
        }
        for (pid, place) in self.places() {
            let Some(mut name) = name_of(pid, place.key) else { continue };
            if named[&name].len() > 1 {
                name += &format!(" ({:#x})", place.address);
            }
            place.lock = match side(place.key.1) {
                Some(side) => format!("{name}, {side}"),
                None => name.clone(),
            };
            place.object.0 = name;
        }
    }

    /// All places, each with its process.
    fn places(&mut self) -> impl Iterator<Item = (u32, &mut Place)> {
        self.threads.iter_mut().flat_map(|thread| {
            thread.waits_for.iter_mut().chain(&mut thread.holds).map(|place| (thread.pid, place))
        })
    }

    /// Adds what the sampler knows of the threads. The id of an ended thread may be a living thread's by now.
    pub(super) fn know(&mut self, graph: &Graph) {
        for seen in &graph.threads {
            let same =
                |thread: &&mut Thread| (thread.pid, thread.tid) == (seen.pid, seen.tid) && !thread.ended;
            if let Some(thread) = self.threads.iter_mut().find(same) {
                thread.name.clone_from(&seen.name);
                thread.asleep.clone_from(&seen.asleep);
            }
        }
    }

    /// Who waits for whom, from each thread that nobody waits for: where that leads through two locks or
    /// more, and to an end.
    fn chains(&self) -> Vec<String> {
        let mut heads = vec![true; self.threads.len()];
        self.threads.iter().flat_map(|thread| &thread.held_by).for_each(|&holder| heads[holder] = false);
        let mut chains = Vec::new();
        for (head, _) in heads.iter().enumerate().filter(|(_, is_head)| **is_head) {
            let mut path = vec![head];
            while let Some(&next) = self.threads[path[path.len() - 1]].held_by.first()
                && !path.contains(&next)
            {
                path.push(next);
            }
            let [waits @ .., last] = &path[..] else { continue };
            if waits.len() < 2 || !self.threads[*last].held_by.is_empty() {
                continue;
            }
            let links: Vec<String> = waits
                .iter()
                .filter_map(|&index| self.threads[index].waits_for.as_ref().map(|place| (index, place)))
                .map(|(index, place)| {
                    format!("{} waits for {}{}", self.who(index), place.lock, place.at_line())
                })
                .collect();
            let end = match &self.threads[*last].asleep {
                _ if self.threads[*last].ended => "has ended".to_owned(),
                Some(what) => format!("is {}", sleeping(what)),
                None => "does not wait for a lock".to_owned(),
            };
            chains.push(format!(
                "  {}, whose holder {} {end}",
                links.join(", whose holder "),
                self.who(*last)
            ));
        }
        chains
    }

    fn who(&self, index: usize) -> String {
        let thread = &self.threads[index];
        let ended = thread.ended.then_some("ended");
        let known = Some(thread.name.as_str()).filter(|name| !name.is_empty()).into_iter().chain(ended);
        let known = known.collect::<Vec<_>>().join(", ");
        if known.is_empty() {
            format!("thread {}", thread.tid)
        } else {
            format!("thread {} ({known})", thread.tid)
        }
    }

    /// A thread that waits waits for every holder: a circle along first holders is one.
    fn find_cycles(&mut self, base: usize) {
        let next = |index: usize| self.threads[index].held_by.first().copied();
        let mut known = vec![0; self.threads.len()];
        for start in base..self.threads.len() {
            let (mut at, mut path) = (Some(start), Vec::new());
            while let Some(index) = at.filter(|&index| known[index] == 0) {
                known[index] = start + 1;
                path.push(index);
                at = next(index);
            }
            if let Some(index) = at
                && known[index] == start + 1
                && let Some(from) = path.iter().position(|&of| of == index)
            {
                self.cycles.push(path[from..].to_vec());
            }
        }
    }

    /// The locks that ended threads hold and others wait for: the thread, the lock, and how many threads
    /// wait. A program that is about to exit leaves locks to nobody on purpose, so that one waiter has to
    /// wait for long.
    fn left(&self) -> Vec<(usize, &Place, usize)> {
        let waiters = |ended: usize, address: u64| {
            let waits = |thread: &Thread| {
                let place = thread.waits_for.as_ref().filter(|place| place.address == address)?;
                thread.held_by.contains(&ended).then_some(place.for_ns.unwrap_or(u64::MAX))
            };
            let waits: Vec<u64> = self.threads.iter().filter_map(waits).collect();
            if waits.iter().any(|&ns| ns >= LONG_NS) { waits.len() } else { 0 }
        };
        let ended = self.threads.iter().enumerate().filter(|(_, thread)| thread.ended);
        let places = ended.flat_map(|(n, thread)| thread.holds.iter().map(move |place| (n, place)));
        let left = places.map(|(n, place)| (n, place, waiters(n, place.address)));
        left.filter(|(.., waiters)| *waiters > 0).collect()
    }

    /// Whether threads wait that will never go on.
    pub(super) fn is_stuck(&self) -> bool {
        !self.cycles.is_empty() || !self.left().is_empty()
    }

    /// How long threads have waited by now for one of these locks, by process and address.
    pub(super) fn waiting_ns(&self, locks: &HashSet<(u32, u64)>) -> u64 {
        let waits = self.threads.iter().filter_map(|thread| Some((thread.pid, thread.waits_for.as_ref()?)));
        waits
            .filter(|(pid, place)| locks.contains(&(*pid, place.key.0)))
            .filter_map(|(_, place)| place.for_ns)
            .sum()
    }

    /// Whether the report opens with these threads: some are stuck, or wait far longer than threads have
    /// waited for the lock before.
    pub(super) fn matters(&self) -> bool {
        let unusual = |thread: &Thread| {
            thread.waits_for.as_ref().is_some_and(|place| {
                let for_ns = place.for_ns.unwrap_or(0);
                for_ns >= LONG_NS && for_ns / UNUSUAL >= place.longest_ns
            })
        };
        self.is_stuck() || self.threads.iter().any(unusual)
    }

    /// How many threads wait for locks, in one sentence, where nothing about them is unusual. `None` if no
    /// wait is long.
    pub(super) fn in_short(&self, when: &str) -> Option<String> {
        let waits = || self.threads.iter().filter_map(|thread| thread.waits_for.as_ref()?.for_ns);
        let longest = waits().max().filter(|&ns| ns >= LONG_NS && !self.matters())?;
        let (count, verb) =
            (counted(waits().count() as u64, "thread"), if waits().count() == 1 { "was" } else { "were" });
        Some(format!(
            "{when}, {count} {verb} waiting for locks, for {} at most: no longer than others before.",
            duration(longest)
        ))
    }

    /// Threads that will never go on: a sentence for each cycle, and for each lock that an ended thread
    /// holds.
    pub(crate) fn alarms(&self) -> Vec<String> {
        let who = |index: usize| self.who(index);
        let mut lines = Vec::new();
        for cycle in &self.cycles {
            let mut text = if cycle.len() == 1 {
                format!("{DEADLOCK}: a thread waits for a lock that it holds:")
            } else {
                format!("{DEADLOCK}: {} wait for each other:", counted(cycle.len() as u64, "thread"))
            };
            for (place, &index) in cycle.iter().enumerate() {
                let next = cycle[(place + 1) % cycle.len()];
                let lock = self.threads[index].waits_for.as_ref().map_or("a lock", |place| &place.lock);
                text += &if place == 0 {
                    format!(" {} for {lock}, held by {}", who(index), who(next))
                } else {
                    format!(", which waits for {lock}, held by {}", who(next))
                };
            }
            lines.push(text);
        }
        lines.extend(self.ended_holders());
        lines
    }

    /// A sentence for each lock that an ended thread holds and others wait for.
    pub(crate) fn ended_holders(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (ended, place, waiters) in self.left() {
            let thread = &self.threads[ended];
            let name = if thread.name.is_empty() { String::new() } else { format!(" ({})", thread.name) };
            let (lock, how) = &place.object;
            let taken = if place.at.is_empty() { String::new() } else { format!(" at {}", place.at) };
            let (waiters, verb) =
                (counted(waiters as u64, "thread"), if waiters == 1 { "waits" } else { "wait" });
            let ago = thread.ended_ns.map(|ns| format!(" {} ago", duration(ns))).unwrap_or_default();
            lines.push(format!(
                "{ENDED}: thread {}{name} took {lock}{how}{taken} and ended{ago} without releasing it; {waiters} \
                 {verb} for it, and nobody will release it",
                thread.tid,
            ));
        }
        lines
    }

    /// [`Inside::alarms`], then all threads.
    pub(super) fn write(&self, when: &str) -> Vec<String> {
        let mut lines = self.alarms();
        let who = |index: usize| self.who(index);
        let waiting = self.threads.iter().filter(|thread| thread.waits_for.is_some()).count();
        lines.push(format!(
            "{when}, {} waiting for locks:",
            match waiting {
                1 => "1 thread was".to_owned(),
                n => format!("{n} threads were"),
            }
        ));
        let since = |place: &Place| place.for_ns.map_or(String::new(), |ns| format!(" for {}", duration(ns)));
        lines.extend(self.chains().into_iter().take(SHOWN));
        for (index, thread) in self.threads.iter().enumerate().take(SHOWN) {
            let mut text = format!("  {} of process {}", who(index), thread.pid);
            let mut parts = Vec::new();
            if let Some(place) = &thread.waits_for {
                let by: Vec<String> = thread.held_by.iter().map(|&index| who(index)).collect();
                let by = if by.is_empty() { String::new() } else { format!(", held by {}", by.join(", ")) };
                parts.push(format!("waits{} for {}{}{by}", since(place), place.lock, place.at_line()));
            }
            for place in &thread.holds {
                let taken =
                    if place.at.is_empty() { String::new() } else { format!(", taken at {}", place.at) };
                parts.push(format!("holds {}{}{taken}", place.lock, since(place)));
            }
            text += " ";
            text += &parts.join("; ");
            lines.push(text);
        }
        if self.threads.len() > SHOWN {
            lines.push(format!("  and {}", counted((self.threads.len() - SHOWN) as u64, "more thread")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use poundlock_statfile::{EndedThread, HoldNow, ThreadStats, WaitNow};

    use super::super::sampler;
    use super::*;
    use crate::observe::symbols::Symbols;

    const LOCK: u64 = 0x1000;
    const SECOND: u64 = 1_000_000_000;

    fn waiter(tid: u32, since_ns: u64) -> ThreadStats {
        let wait = WaitNow { address: LOCK, kind: LockKind::Mutex, since_ns, stack: Arc::default() };
        ThreadStats { record: tid, tid, lives: true, waits: Some(wait), ..ThreadStats::default() }
    }

    fn holder(tid: u32, ended: Option<&str>) -> ThreadStats {
        let hold = HoldNow { address: LOCK, kind: LockKind::Mutex, since_ns: None, acquired_at: 0 };
        ThreadStats {
            record: 100 + tid,
            tid,
            lives: ended.is_none(),
            ended: ended.map(|name| EndedThread { name: name.to_owned(), at_ns: 2 * SECOND }),
            holds: vec![hold],
            ..ThreadStats::default()
        }
    }

    /// As of the fifth second, where waits for the lock took as long before as the buckets say.
    fn inside(records: Vec<ThreadStats>, wait_buckets: Vec<u64>) -> Inside {
        let snapshot = Snapshot { pid: 9, records, ..Snapshot::default() };
        let mut made = Made::of(&snapshot);
        made.note(&LockStats { address: LOCK, wait_buckets, ..LockStats::default() });
        let mut inside = Inside::default();
        inside.add(&snapshot, &made, &Symbols::new().space(&snapshot), 5 * SECOND);
        inside
    }

    #[test]
    fn an_ended_holder_is_told_from_a_living_thread_of_its_id() {
        let records = vec![waiter(7, 4 * SECOND), waiter(8, 4 * SECOND), holder(7, Some("loader"))];
        let mut inside = inside(records, Vec::new());
        let seen =
            |tid: u32, name: &str| sampler::Inside { pid: 9, tid, name: name.into(), ..Default::default() };
        inside.know(&Graph { threads: vec![seen(7, "reader"), seen(8, "reader")], cycles: Vec::new() });
        assert!(inside.is_stuck() && inside.matters() && inside.cycles.is_empty());
        let lines = inside.write("Now");
        assert_eq!(
            lines[0],
            "ENDED HOLDER: thread 7 (loader) took mutex 0x1000 and ended 3.00 s ago without releasing it; \
             2 threads wait for it, and nobody will release it"
        );
        assert!(is_alarm(&lines[0]) && !is_alarm(&lines[1]));
        assert!(lines[2].starts_with("  thread 7 (reader) of process 9 waits"), "{lines:#?}");
        assert!(lines[2].ends_with("held by thread 7 (loader, ended)"), "{lines:#?}");
    }

    #[test]
    fn an_ended_holder_may_have_ended_at_an_unknown_time() {
        let mut ended = holder(7, Some(""));
        ended.ended.as_mut().expect("it has").at_ns = 0;
        assert_eq!(
            inside(vec![waiter(8, 4 * SECOND), ended], Vec::new()).ended_holders(),
            [
                "ENDED HOLDER: thread 7 took mutex 0x1000 and ended without releasing it; 1 thread waits for it, and \
              nobody will release it"
            ]
        );
    }

    #[test]
    fn locks_of_one_name_have_their_addresses() {
        let waits_for = |holds: Vec<HoldNow>| {
            let records = vec![ThreadStats { holds, ..waiter(7, 4 * SECOND) }, holder(8, None)];
            let mut inside = inside(records, Vec::new());
            inside.name_as(|_, _| Some("Account::m".to_owned()));
            inside.threads.swap_remove(0).waits_for.expect("it waits").lock
        };
        assert_eq!(waits_for(Vec::new()), "Account::m");
        let mut holds = holder(7, None).holds;
        holds[0].address += 64;
        assert_eq!(waits_for(holds), "Account::m (0x1000)");
    }

    #[test]
    fn a_report_opens_with_waits_that_are_unusual_alone() {
        let long =
            |wait_buckets: Vec<u64>| inside(vec![waiter(7, 4 * SECOND), holder(8, None)], wait_buckets);
        // No wait for the lock is over; or those took less than 2 ms.
        for buckets in [Vec::new(), vec![1; 21]] {
            let inside = long(buckets);
            assert!(inside.matters() && !inside.is_stuck() && inside.in_short("Now").is_none());
        }
        // Those took a second and more.
        for buckets in [30, 40] {
            let inside = long(vec![1; buckets]);
            assert!(!inside.matters());
            let line = inside.in_short("Now").expect("a line");
            assert_eq!(
                line,
                "Now, 1 thread was waiting for locks, for 1.00 s at most: no longer than others before."
            );
        }
        let short = inside(vec![waiter(7, 5 * SECOND - 1000), holder(8, None)], Vec::new());
        assert!(!short.matters() && short.in_short("Now").is_none());
    }

    #[test]
    fn an_ended_thread_nobody_waits_for_is_left_out() {
        assert!(inside(vec![holder(7, Some("loader"))], Vec::new()).threads.is_empty());
        // Nor does a program that exits meanwhile stand still.
        let records = vec![waiter(8, 5 * SECOND - 1000), holder(7, Some("loader"))];
        assert!(!inside(records, Vec::new()).is_stuck());
    }
}
