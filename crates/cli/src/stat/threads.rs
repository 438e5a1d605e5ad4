//! "Where the time of the threads went": what the sampler found as a short table, and by the names of
//! threads.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use poundlock_statfile::{Snapshot, ThreadStats};
use serde::Serialize;

use super::holders::sleeping;
use super::lost::Recorded;
use super::sampler::{Estimate, Hidden, Outcome, Sleep, Times};
use super::text::duration;
use crate::observe::symbols::file_name;
use crate::output::counted;

/// Calls with a line of their own; the others are summed up.
const CALLS: usize = 4;
/// A remark is made of time that is no line of its own if it is more than one part in this many.
const UNSEEN: u64 = 100;
/// Processes that are named of those whose futexes nobody knows.
const NAMED: usize = 3;
/// Names of threads that have a row, and threads of a name that are told apart.
const ROLES: usize = 50;
const SINGLES: usize = 8;
/// What threads wait for that others do.
const CONDITIONS: [Sleep; 4] = [Sleep::Condition, Sleep::Barrier, Sleep::Semaphore, Sleep::Join];

/// Threads of one name in all processes of one program, and where their time went. Times are nanoseconds of
/// thread time.
#[derive(Default, Serialize)]
pub(super) struct Role {
    pub(super) program: String,
    /// The name, with `*` for digits; `main thread`; empty for threads that were not looked at.
    pub(super) name: String,
    /// How many were seen.
    pub(super) threads: u64,
    pub(super) lived_ns: u64,
    /// Without what they spun for locks.
    pub(super) running_ns: u64,
    /// Ready without a CPU; `None` where the kernel does not keep it.
    pub(super) ready_ns: Option<u64>,
    /// Waiting for locks, asleep or spinning.
    pub(super) locks_ns: u64,
    /// Waiting for condition variables, barriers, semaphores and ends of threads.
    pub(super) conditions_ns: u64,
    /// Asleep in other calls.
    pub(super) elsewhere_ns: u64,
    /// With nothing to do.
    pub(super) idle_ns: u64,
    /// Asleep, and not looked at.
    pub(super) unknown_ns: u64,
    /// How often they waited for locks, all of it,
    pub(super) lock_waits: u64,
    /// and how long.
    pub(super) lock_wait_ns: u64,
    /// Those that waited longest.
    pub(super) most: Vec<Single>,
}

/// One thread; or several, of which each began after the end of the one before it.
#[derive(Serialize)]
pub(super) struct Single {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) lock_waits: u64,
    pub(super) lock_wait_ns: u64,
}

impl Role {
    fn add(&mut self, other: Role) {
        // A sum is known only if each part of it is.
        self.ready_ns = match (self.lived_ns, other.lived_ns) {
            (0, _) => other.ready_ns,
            (_, 0) => self.ready_ns,
            _ => self.ready_ns.zip(other.ready_ns).map(|(a, b)| a + b),
        };
        self.threads += other.threads;
        self.lived_ns += other.lived_ns;
        self.running_ns += other.running_ns;
        self.locks_ns += other.locks_ns;
        self.conditions_ns += other.conditions_ns;
        self.elsewhere_ns += other.elsewhere_ns;
        self.idle_ns += other.idle_ns;
        self.unknown_ns += other.unknown_ns;
        self.lock_waits += other.lock_waits;
        self.lock_wait_ns += other.lock_wait_ns;
        self.most.extend(other.most);
    }
}

/// All roles, most time first; of very many the last are one. What was there `before` is left out.
pub(super) fn roles(sampled: Option<&Outcome>, before: &[Snapshot], snapshots: &[Snapshot]) -> Vec<Role> {
    let mut found: BTreeMap<(String, String), Role> = BTreeMap::new();
    let processes = sampled.map_or(&[][..], |sampled| &sampled.processes[..]);
    for process in processes {
        let program = if process.exe.is_empty() { process.name.clone() } else { file_name(&process.exe) };
        for threads in &process.threads {
            let (times, key) = (&threads.times, (program.clone(), threads.name.clone()));
            let asleep: u64 = times.asleep.values().map(|sleep| sleep.ns).sum();
            let conditions: u64 = CONDITIONS.iter().map(|what| times.asleep(what).ns).sum();
            found.entry(key).or_default().add(Role {
                threads: threads.seen,
                lived_ns: times.lived_ns,
                running_ns: running(times),
                ready_ns: times.ready_ns.map(|_| ready(times)),
                locks_ns: times.locks().ns,
                conditions_ns: conditions,
                elsewhere_ns: asleep - conditions - times.asleep(&Sleep::Lock).ns,
                idle_ns: times.idle_ns(),
                unknown_ns: times.unknown_ns,
                ..Role::default()
            });
        }
    }
    let earlier = earlier(before);
    for snapshot in snapshots {
        let process = processes.iter().find(|process| process.pid == snapshot.pid);
        for record in &snapshot.records {
            let before = earlier.get(&(snapshot.pid, snapshot.start_ns, record.tid));
            let (waits, ns) = before.map_or((0, 0), |before| (before.lock_waits, before.lock_wait_ns));
            let single = Single {
                pid: snapshot.pid,
                tid: record.tid,
                lock_waits: record.lock_waits.saturating_sub(waits),
                lock_wait_ns: record.lock_wait_ns.saturating_sub(ns),
            };
            let name = process.and_then(|process| process.names.get(&record.tid));
            let name = name.map_or_else(String::new, |name| name.to_string());
            found.entry((file_name(&snapshot.exe), name)).or_default().add(Role {
                lock_waits: single.lock_waits,
                lock_wait_ns: single.lock_wait_ns,
                most: vec![single],
                ..Role::default()
            });
        }
    }
    let mut roles: Vec<Role> =
        found.into_iter().map(|((program, name), role)| Role { program, name, ..role }).collect();
    roles.sort_by_key(|role| std::cmp::Reverse((role.lived_ns, role.lock_wait_ns)));
    if roles.len() > ROLES {
        let mut others = Role { name: "others".to_owned(), ..Role::default() };
        roles.drain(ROLES..).for_each(|role| others.add(role));
        roles.push(others);
    }
    for role in &mut roles {
        role.most.retain(|single| single.lock_waits > 0);
        role.most.sort_by_key(|single| (std::cmp::Reverse(single.lock_wait_ns), single.tid));
        role.most.truncate(SINGLES);
    }
    roles
}

/// What threads have recorded of their waits in the last `wall_ns`. What was there `before` is left out.
pub(super) fn recorded(
    before: &[Snapshot],
    snapshots: &[Snapshot],
    (now_ns, wall_ns): (u64, u64),
) -> Vec<Recorded> {
    let earlier = earlier(before);
    let threads = snapshots.iter().flat_map(|of| of.records.iter().map(move |record| (of, record)));
    let waits =
        |record: &ThreadStats| (record.lock_wait_ns, record.wait_ns.saturating_sub(record.lock_wait_ns));
    threads
        .map(|(of, record)| {
            let before = earlier.get(&(of.pid, of.start_ns, record.tid));
            let (lock, other) = waits(record);
            let (lock_before, other_before) = before.map_or((0, 0), |record| waits(record));
            // The end of one that has ended is not known: it lived no longer than until now.
            Recorded {
                lived_ns: now_ns.saturating_sub(record.started_ns).min(wall_ns),
                lock_wait_ns: lock.saturating_sub(lock_before),
                other_wait_ns: other.saturating_sub(other_before),
            }
        })
        .collect()
}

/// Records of threads by process, its start, and thread.
fn earlier(before: &[Snapshot]) -> HashMap<(u32, u64, u32), &ThreadStats> {
    let threads = before.iter().flat_map(|of| of.records.iter().map(move |record| (of, record)));
    threads.map(|(of, record)| ((of.pid, of.start_ns, record.tid), record)).collect()
}

/// What the first line begins with.
pub(super) const HEADING: &str = "Where the time of the threads went";

/// The table, one line each, without an end of line; empty if no thread was seen. Where futex calls are seen
/// (`is_seen`), what waits for futexes is told elsewhere.
pub(super) fn lines(outcome: &Outcome, is_seen: bool) -> Vec<String> {
    let times = &outcome.total;
    if times.lived_ns == 0 {
        return Vec::new();
    }
    let mut lines = vec![heading(outcome)];
    let mut line = |name: &str, sum: Estimate, error: bool| {
        // What rounds to 0.0 % is no line.
        if sum.ns > times.lived_ns / 2000 {
            lines.push(row(name, sum, times.lived_ns, error));
        }
    };
    let exact = |ns| Estimate { ns, samples: 0 };
    line(&sleeping(&Sleep::Lock), times.locks(), true);
    for what in CONDITIONS.iter().chain([&Sleep::Signal, &Sleep::Futex]) {
        line(&sleeping(what), times.asleep(what), true);
    }
    line("running", exact(running(times)), false);
    line("ready, without a CPU", exact(ready(times)), false);
    let mut calls: Vec<(String, Estimate)> =
        times.asleep.iter().filter_map(|(what, sum)| Some((call(what)?, *sum))).collect();
    calls.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.ns));
    for (name, sum) in calls.iter().take(CALLS) {
        line(&format!("asleep in {name}"), *sum, true);
    }
    let rest = calls.iter().skip(CALLS).fold(Estimate::default(), |sum, (_, other)| Estimate {
        ns: sum.ns + other.ns,
        samples: sum.samples + other.samples,
    });
    line("asleep in other calls", rest, true);
    line("idle: nothing to do", exact(times.idle_ns()), false);
    line("asleep, not looked at", exact(times.unknown_ns), false);
    lines.extend(remarks(outcome, is_seen));
    lines
}

fn heading(outcome: &Outcome) -> String {
    let seen: u64 = outcome.processes.iter().map(|process| process.seen).sum();
    format!(
        "{HEADING} ({} of {}, seen at {}):",
        duration(outcome.total.lived_ns),
        counted(seen, "thread"),
        counted(outcome.looks, "look")
    )
}

/// Without the waits that are counted as such.
fn running(times: &Times) -> u64 {
    times.running_ns.saturating_sub(spun(times, times.running_ns))
}

fn ready(times: &Times) -> u64 {
    let ready = times.ready_ns.unwrap_or(0);
    ready.saturating_sub(spun(times, ready))
}

/// The part of `of` that was spent waiting, in proportion.
fn spun(times: &Times, of: u64) -> u64 {
    let both = times.running_ns.saturating_add(times.ready_ns.unwrap_or(0));
    (u128::from(times.spinning.ns) * u128::from(of) / u128::from(both.max(1))) as u64
}

fn call(what: &Sleep) -> Option<String> {
    match what {
        Sleep::Call(name) => Some(name.clone()),
        Sleep::OutsideCalls => Some("memory accesses and stops".to_string()),
        Sleep::Hidden => Some("calls that cannot be seen".to_string()),
        _ => None,
    }
}

fn row(name: &str, sum: Estimate, all: u64, error: bool) -> String {
    let share = sum.ns as f64 * 100.0 / all.max(1) as f64;
    let mut text = format!("  {share:5.1} %  {:>9}  {name}", duration(sum.ns));
    if let Some(error) = sum.error().filter(|_| error) {
        let _ = write!(text, " (+-{:.0} %, {} samples)", error * 100.0, sum.samples);
    }
    text
}

fn remarks(outcome: &Outcome, is_seen: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut foreign: Vec<(&str, Estimate)> = outcome
        .processes
        .iter()
        .map(|process| (&*process.name, process.times.foreign_futex()))
        .filter(|(_, sum)| !is_seen && sum.ns > outcome.total.lived_ns / UNSEEN)
        .collect();
    foreign.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.ns));
    for (name, sum) in foreign.iter().take(NAMED) {
        remarks.push(format!(
            "{name}: {} in futexes that are not of a lock measured here ({} samples): of a lock inside the C \
             library (malloc, stdio), of a language's run-time system, or of a static library",
            duration(sum.ns),
            sum.samples
        ));
    }
    let unseen: u64 = outcome.processes.iter().filter_map(|process| process.unseen_running_ns).sum();
    let all = outcome.total.running_ns.saturating_add(unseen);
    if unseen > all / UNSEEN {
        remarks.push(format!(
            "{:.0} % of the CPU time is in no line: of threads that lived too briefly to be seen, or after \
             the last look at one",
            unseen as f64 * 100.0 / all as f64
        ));
    }
    let mut hidden: BTreeMap<Hidden, Vec<&str>> = BTreeMap::new();
    for process in &outcome.processes {
        for &what in &process.hidden {
            hidden.entry(what).or_default().push(&process.name);
        }
    }
    for (what, mut names) in hidden {
        names.sort_unstable();
        names.dedup();
        names.truncate(NAMED);
        let names = names.join(", ");
        remarks.push(match what {
            Hidden::Calls => format!(
                "{names}: in which calls threads sleep cannot be seen: run poundlock as the same user, with \
                 kernel.yama.ptrace_scope at 0"
            ),
            Hidden::Ready => format!(
                "{names}: how long threads were ready without a CPU cannot be seen: no schedstat here"
            ),
            Hidden::Threads => {
                format!("{names}: threads cannot be seen: /proc is mounted with hidepid")
            }
            Hidden::File => format!("{names}: the statistics file cannot be read: who waits is unknown"),
        });
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::super::sampler::Process;
    use super::*;

    const MS: u64 = 1_000_000;

    fn estimate(ns: u64, samples: u64) -> Estimate {
        Estimate { ns, samples }
    }

    #[test]
    fn lines_add_up_and_say_what_they_rest_on() {
        let total = Times {
            lived_ns: 10_000 * MS,
            running_ns: 4000 * MS,
            spinning: estimate(1000 * MS, 25),
            ready_ns: Some(1000 * MS),
            asleep: [
                (Sleep::Lock, estimate(2000 * MS, 50)),
                (Sleep::Call("read".into()), estimate(1000 * MS, 4)),
            ]
            .into(),
            idle: [(Sleep::Condition, estimate(2000 * MS, 9))].into(),
            ..Times::default()
        };
        let process = Process { name: "server".into(), seen: 3, times: total.clone(), ..Process::default() };
        let outcome = Outcome { looks: 100, total, processes: vec![process], ..Outcome::default() };
        assert_eq!(
            lines(&outcome, false),
            [
                "Where the time of the threads went (10.0 s of 3 threads, seen at 100 looks):",
                "   30.0 %     3.00 s  waiting for locks (+-12 %, 75 samples)",
                "   32.0 %     3.20 s  running",
                "    8.0 %     800 ms  ready, without a CPU",
                "   10.0 %     1.00 s  asleep in read (+-50 %, 4 samples)",
                "   20.0 %     2.00 s  idle: nothing to do",
            ]
            .map(String::from)
        );
    }

    #[test]
    fn what_cannot_be_seen_is_said() {
        let times = Times {
            lived_ns: MS,
            running_ns: MS / 2,
            idle: [(Sleep::Futex, estimate(MS / 2, 7))].into(),
            ..Times::default()
        };
        let process = Process {
            name: "go".into(),
            times: times.clone(),
            unseen_running_ns: Some(MS / 2),
            hidden: [Hidden::Calls].into(),
            ..Process::default()
        };
        let outcome = Outcome { total: times, processes: vec![process], ..Outcome::default() };
        let text = lines(&outcome, false).join("\n");
        for part in
            ["go: 500 us in futexes that are not", "(7 samples)", "50 % of the CPU time", "ptrace_scope"]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(lines(&Outcome::default(), false).is_empty());
    }
}
