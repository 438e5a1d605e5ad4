//! "Where the time of the threads went": a short table of what the sampler found.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::sampler::{Estimate, Hidden, Outcome, Sleep, Times};

/// Calls with a line of their own; the others are summed up.
const CALLS: usize = 4;
/// A remark is made of time that is no line of its own if it is more than one part in this many.
const UNSEEN: u64 = 100;
/// Processes that are named of those whose futexes nobody knows.
const NAMED: usize = 3;

/// The table, one line each, without an end of line; empty if no thread was seen.
pub(super) fn lines(outcome: &Outcome) -> Vec<String> {
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
    line("waiting for locks", times.locks(), true);
    line("waiting for condition variables", times.asleep(&Sleep::Condition), true);
    line("waiting for barriers", times.asleep(&Sleep::Barrier), true);
    line("waiting for semaphores", times.asleep(&Sleep::Semaphore), true);
    line("waiting for threads to end", times.asleep(&Sleep::Join), true);
    line("waiting for futexes that are not counted", times.asleep(&Sleep::Futex), true);
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
    lines.extend(remarks(outcome));
    lines
}

fn heading(outcome: &Outcome) -> String {
    let seen: u64 = outcome.processes.iter().map(|process| process.seen).sum();
    let mut text = format!(
        "Where the time of the threads went ({} of {seen} threads, {} looks",
        seconds(outcome.total.lived_ns),
        outcome.looks
    );
    if let Some(lost) = outcome.total.lost() {
        let _ = write!(text, "; lost to locks: {:.1} % of the time with something to do", lost * 100.0);
    }
    text.push(')');
    text
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
    let mut text = format!("  {share:5.1} %  {:>9}  {name}", seconds(sum.ns));
    if let Some(error) = sum.error().filter(|_| error) {
        let _ = write!(text, " (+-{:.0} %, {} samples)", error * 100.0, sum.samples);
    }
    text
}

fn remarks(outcome: &Outcome) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut foreign: Vec<(&str, Estimate)> = outcome
        .processes
        .iter()
        .map(|process| (&*process.name, process.times.foreign_futex()))
        .filter(|(_, sum)| sum.ns > outcome.total.lived_ns / UNSEEN)
        .collect();
    foreign.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.ns));
    for (name, sum) in foreign.iter().take(NAMED) {
        remarks.push(format!(
            "{name}: {} in futexes that are not of a lock measured here ({} samples): locks of a language's \
             own run-time system, or of a static library",
            seconds(sum.ns),
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

fn seconds(ns: u64) -> String {
    match ns as f64 / 1e9 {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 0.1 => format!("{s:.2} s"),
        s => format!("{:.2} ms", s * 1e3),
    }
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
            unknown_ns: 0,
        };
        let process = Process { name: "server".into(), seen: 3, times: total.clone(), ..Process::default() };
        let outcome = Outcome { looks: 100, total, processes: vec![process], ..Outcome::default() };
        assert_eq!(
            lines(&outcome),
            [
                "Where the time of the threads went (10.00 s of 3 threads, 100 looks; lost to locks: 37.5 % \
                 of the time with something to do)",
                "   30.0 %     3.00 s  waiting for locks (+-12 %, 75 samples)",
                "   32.0 %     3.20 s  running",
                "    8.0 %     0.80 s  ready, without a CPU",
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
        let text = lines(&outcome).join("\n");
        for part in
            ["go: 0.50 ms in futexes that are not", "(7 samples)", "50 % of the CPU time", "ptrace_scope"]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(lines(&Outcome::default()).is_empty());
    }
}
