//! What is wrong, in three lines at most, each with the figure that says so and the line to look at.
//!
//! | kind | is said if | by |
//! | --- | --- | --- |
//! | `too_long` | a lock is held for long, and most of the waiting is for such holds | recorder |
//! | `too_often` | a lock is held briefly, by waiting threads one after the other | recorder |
//! | `preempted` | holders were ready without a CPU while others waited | sampler |
//! | `blocked` | holders slept in a system call while others waited | sampler |
//! | `convoy` | the lock was on its way to a sleeper for most of the waiting | recorder |
//! | `writing_readers` | readers wait for short sections of writers that are nearly as many | recorder |
//! | `storm` | threads are woken for a condition that does not hold | recorder |
//! | `false_alarm` | waiting for locks took next to nothing of the threads' time | both |
//!
//! One finding about a class: the first that applies, in the order of what explains most. A share of the
//! waiting below [`MOST`] explains nothing.

use std::collections::BTreeMap;

use poundlock_statfile::LockKind;
use serde::Serialize;

use super::class::Class;
use super::report::{Report, ratio, side};
use super::sampler::{Estimate, Sleep};
use super::text::{duration, percent};
use crate::output::counted;

/// As many findings are shown.
const SHOWN: usize = 3;
/// A class that lost less than this share of the threads' time is nothing to change.
const WORTH: f64 = 0.05;
/// An explanation explains at least this share of the waiting.
const MOST: f64 = 0.4;
/// A state of holders is worth a word from this share on, if enough looks say so.
const SEEN: f64 = 0.3;
const LOOKS: u64 = 10;
/// By this factor the threads that want a CPU outnumber the CPUs.
const CROWD: f64 = 1.25;
/// Sections from this on are long: a sleep and a wake-up take less than a tenth of it.
const LONG_NS: u64 = 100_000;
/// How often a condition variable has to be waited for.
const WAITS: u64 = 100;

/// Something to change.
#[derive(Serialize)]
pub(super) struct Finding {
    /// Which sort of trouble it is.
    pub(super) kind: &'static str,
    /// One sentence or two.
    pub(super) text: String,
    /// The line to look at; empty if there is none.
    pub(super) line: String,
    /// The figure that says so: a share, from 0 to 1.
    pub(super) share: f64,
}

/// The most important ones, the worst first.
pub(super) fn of(report: &Report) -> Vec<Finding> {
    let mut findings = Vec::new();
    for class in report.locks() {
        if report.share(&class.figures) >= WORTH {
            findings.extend(lock(report, class));
        }
    }
    findings.extend(report.others().filter_map(|class| storm(report, class)));
    findings.sort_by(|a, b| b.share.total_cmp(&a.share));
    if findings.is_empty() {
        findings.extend(false_alarm(report));
    }
    findings.truncate(SHOWN);
    findings
}

/// What the holders of a class did while others waited, as far as looks tell. Of a holder that waits itself it is
/// the one at the end of the chain that counts.
#[derive(Default)]
struct Seen<'r> {
    waiting: Estimate,
    /// Ready without a CPU.
    ready_ns: u64,
    asleep: BTreeMap<&'r Sleep, u64>,
}

impl<'r> Seen<'r> {
    fn of(report: &'r Report, class: &Class) -> Self {
        let mut seen = Seen::default();
        let locks = report.sampled.as_ref().map_or(&[][..], |sampled| &sampled.locks[..]);
        for lock in locks.iter().filter(|lock| class.addresses.contains(&(lock.pid, lock.address))) {
            seen.waiting.ns += lock.waiting.ns;
            seen.waiting.samples += lock.waiting.samples;
            seen.ready_ns += lock.end.ready.ns;
            for (what, sum) in &lock.end.asleep {
                *seen.asleep.entry(what).or_default() += sum.ns;
            }
        }
        seen
    }
}

fn lock(report: &Report, class: &Class) -> Option<Finding> {
    let figures = &class.figures;
    let lost = report.share(figures);
    let name = match side(class.kind) {
        Some(side) => format!("the {side} of {}", class.name),
        None => class.name.clone(),
    };
    let line = line(report, class);
    let at = if line.is_empty() { String::new() } else { format!(" at {line}") };
    let finding =
        |kind: &'static str, text: String| Some(Finding { kind, text, line: line.clone(), share: lost });
    let costs = format!("{} of the time is lost for {name}", percent(lost));
    let seen = Seen::of(report, class);
    let known = seen.waiting.samples >= LOOKS;
    let share = |ns: u64| ratio(ns, seen.waiting.ns);
    let ready = if known { share(seen.ready_ns) } else { 0.0 };
    if known {
        // Ready for want of a CPU that other programs have is not this one's doing.
        if ready >= SEEN && crowded(report) {
            return finding(
                "preempted",
                format!(
                    "{costs}: for {} of the wait its holder was ready without a CPU; more threads run than there \
                     are CPUs, so start fewer or keep the section{at} short",
                    percent(ready)
                ),
            );
        }
        let calls = seen.asleep.iter().filter(|(what, _)| {
            matches!(what, Sleep::Call(_) | Sleep::OutsideCalls | Sleep::Hidden | Sleep::Futex)
        });
        if let Some((what, &ns)) = calls.max_by_key(|(_, ns)| **ns)
            && share(ns) >= SEEN
        {
            let call = match what {
                Sleep::Call(name) => format!("in {name}()"),
                _ => "in a system call".to_owned(),
            };
            return finding(
                "blocked",
                format!(
                    "{costs}: for {} of the wait its holder slept {call}; move the call out of the section{at}",
                    percent(share(ns))
                ),
            );
        }
    }
    // Holds that somebody waited for: how long they are, and how much of the waiting they account for.
    let caused: u64 = figures.holders.values().map(|holder| holder.caused_ns).sum();
    let held = figures.waited_hold_ns.checked_div(figures.waited_holds).unwrap_or(0);
    if class.kind == LockKind::RwReaders || class.kind == LockKind::RwWriters {
        let of = |kind| report.locks().find(|other| other.kind == kind && other.name == class.name);
        let (readers, writers) = (of(LockKind::RwReaders), of(LockKind::RwWriters));
        let count = |class: Option<&Class>| class.map_or(0, |class| class.figures.acquisitions);
        let (reads, writes) = (count(readers), count(writers));
        // With one writer in five the lock has no time in which readers are alone.
        if writes > 0 && reads < 5 * writes {
            return finding(
                "writing_readers",
                format!(
                    "{costs}: {} of {} acquisitions write, so that readers are seldom alone; a mutex costs less, or \
                     let readers{at} read only",
                    writes,
                    reads + writes
                ),
            );
        }
    }
    let sleeps = class.kind != LockKind::Spinlock;
    if sleeps && ratio(figures.handover_ns, figures.wait_ns) >= MOST && held < LONG_NS {
        return finding(
            "convoy",
            format!(
                "{costs}: for {} of the wait nobody had it, it was on its way to a thread that slept; each of {} \
                 woke one up: take it less often{at}, or run it on a lock that is not handed to sleepers \
                 (poundlock stat --compare)",
                percent(ratio(figures.handover_ns, figures.wait_ns)),
                counted(figures.contended, "wait")
            ),
        );
    }
    // A hold is not long for being ready without a CPU.
    if held >= LONG_NS && ratio(caused, figures.wait_ns) - ready >= MOST {
        return finding(
            "too_long",
            format!(
                "{costs}: its section is long, {} on average of the {} that others waited for; do less in it{at}",
                duration(held),
                counted(figures.waited_holds, "hold")
            ),
        );
    }
    if figures.contended > 0 {
        let mean = figures.hold_ns.checked_div(figures.acquisitions).unwrap_or(0);
        return finding(
            "too_often",
            format!(
                "{costs}: it is held for {} only, but {}; take it less often{at}, or split it",
                duration(mean),
                counted(figures.acquisitions, "time")
            ),
        );
    }
    None
}

/// Whether more threads of the program want a CPU than there are.
fn crowded(report: &Report) -> bool {
    let Some(sampled) = &report.sampled else { return false };
    let wanting = sampled.total.running_ns.saturating_add(sampled.total.ready_ns.unwrap_or(0));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    ratio(wanting, sampled.watched_ns) > cpus as f64 * CROWD
}

/// A condition variable whose waiters are woken for nothing.
fn storm(report: &Report, class: &Class) -> Option<Finding> {
    let figures = &class.figures;
    if class.kind != LockKind::Condition || figures.contended < WAITS {
        return None;
    }
    // Who takes what it was woken for and waits again was not woken in vain: but then there are no more waits
    // than somebody was signalled for.
    let vain = ratio(figures.in_vain, figures.contended);
    let sent = figures.signals + figures.broadcasts;
    if vain < MOST || figures.contended < 2 * sent {
        return None;
    }
    let line = line(report, class);
    let at = if line.is_empty() { String::new() } else { format!(" at {line}") };
    let all = if figures.broadcasts > 0 {
        format!("; {} of {} wake all: signal one", figures.broadcasts, counted(sent, "call"))
    } else {
        String::new()
    };
    let held = if figures.signals_with_mutex * 2 > sent && sent > 0 {
        format!("; {} of {sent} come with the mutex held", figures.signals_with_mutex)
    } else {
        String::new()
    };
    Some(Finding {
        kind: "storm",
        text: format!(
            "{} is waited for in vain{at}: {} of {} wake-ups found nothing to do{all}{held}",
            class.name, figures.in_vain, figures.contended
        ),
        line,
        share: vain,
    })
}

/// That it is not the locks.
fn false_alarm(report: &Report) -> Option<Finding> {
    report.locks().next()?;
    let lost = ratio(report.wait_ns(), report.busy_ns);
    if lost >= WORTH {
        return None;
    }
    let most = report.sampled.as_ref().filter(|sampled| sampled.total.busy_ns() > 0).and_then(|sampled| {
        let times = &sampled.total;
        let mut parts = vec![("running".to_owned(), times.running_ns)];
        parts.extend(times.ready_ns.map(|ns| ("ready without a CPU".to_owned(), ns)));
        // Threads that wait for a request are not kept from anything.
        parts.extend(times.asleep.iter().filter(|(what, _)| !what.is_for_events()).map(|(what, sum)| {
            let words = match what {
                Sleep::Call(name) => format!("asleep in {name}()"),
                Sleep::Condition => "waiting for condition variables".to_owned(),
                Sleep::Barrier => "waiting at barriers".to_owned(),
                Sleep::Semaphore => "waiting for semaphores".to_owned(),
                Sleep::Join => "waiting for threads to end".to_owned(),
                Sleep::Futex => "waiting in futexes that are not counted".to_owned(),
                Sleep::Lock => "waiting for locks".to_owned(),
                Sleep::OutsideCalls | Sleep::Hidden => "asleep".to_owned(),
            };
            (words + &longest(report, what), sum.ns)
        }));
        let (what, ns) = parts.into_iter().max_by_key(|(_, ns)| *ns)?;
        let share = percent(ratio(ns, times.busy_ns()).min(1.0));
        Some(format!("; most of it ({share}) they were {what}"))
    });
    Some(Finding {
        kind: "false_alarm",
        text: format!(
            "locks are not what this program waits for: they took {} of the time in which threads had something to \
             do{}",
            percent(lost),
            most.unwrap_or_default()
        ),
        line: String::new(),
        share: lost,
    })
}

/// For what of a sort threads waited longest, those without work left out, and where.
fn longest(report: &Report, what: &Sleep) -> String {
    let kind = match what {
        Sleep::Condition => LockKind::Condition,
        Sleep::Barrier => LockKind::Barrier,
        Sleep::Semaphore => LockKind::Semaphore,
        Sleep::Call(name) if name == "futex" => LockKind::Futex,
        _ => return String::new(),
    };
    let classes = report.others().filter(|class| class.kind == kind && !class.figures.is_for_long());
    let Some(class) = classes.max_by_key(|class| class.figures.wait_ns) else { return String::new() };
    let line = line(report, class);
    match class.origin {
        "taken" => format!(", most of all {}", class.name),
        "initialised" => format!(", most of all for those made in {}, at {line}", class.name),
        _ => format!(", most of all for {}, at {line}", class.name),
    }
}

/// The line to change: where the holders took the lock for whom others waited longest; else where threads
/// waited.
fn line(report: &Report, class: &Class) -> String {
    let figures = &class.figures;
    let holders = figures.holders.iter().filter(|(_, holder)| holder.caused_ns > 0);
    let worst = holders.max_by_key(|(_, holder)| holder.caused_ns);
    let held = worst.and_then(|((acquired, released), _)| {
        report.names.line_of_holder(*acquired, *released).map(|(_, id)| id)
    });
    let waited = || {
        let longest = figures.sites.iter().max_by_key(|(_, site)| site.wait_ns);
        longest.and_then(|(&stack, _)| report.names.line_of(stack))
    };
    held.or_else(waited).map(|id| report.names.text(id).to_owned()).unwrap_or_default()
}
