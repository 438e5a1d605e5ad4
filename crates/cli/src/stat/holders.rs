//! What the holders of locks did while others waited, as far as looks at them tell: on a CPU, ready for one,
//! asleep, or waiting for another lock, whose holder is followed in turn.

use std::collections::BTreeMap;

use super::class::Class;
use super::diagnosis::called;
use super::report::{Report, ratio};
use super::sampler::{Estimate, Holder, Sleep};

/// A state of holders is worth a word from this share on, if enough looks say so.
pub(super) const SEEN: f64 = 0.3;
const LOOKS: u64 = 10;
/// The longest chain that is told.
const LINKS: usize = 8;

/// Of the locks of a class. Of a holder that waits itself it is the one at the end of the chain that counts.
#[derive(Default)]
pub(super) struct Seen<'r> {
    waiting: Estimate,
    running_ns: u64,
    /// Ready without a CPU.
    ready_ns: u64,
    asleep: BTreeMap<&'r Sleep, u64>,
    /// The locks that holders waited for, by process and address.
    behind: BTreeMap<(u32, u64), u64>,
}

impl<'r> Seen<'r> {
    pub(super) fn of(report: &'r Report, class: &Class) -> Self {
        let mut seen = Seen::default();
        let locks = report.sampled.as_ref().map_or(&[][..], |sampled| &sampled.locks[..]);
        for lock in locks.iter().filter(|lock| class.addresses.contains(&(lock.pid, lock.address))) {
            let Holder { running, ready, asleep, .. } = &lock.end;
            seen.waiting.ns += lock.waiting.ns;
            seen.waiting.samples += lock.waiting.samples;
            seen.running_ns += running.ns;
            seen.ready_ns += ready.ns;
            for (what, sum) in asleep {
                *seen.asleep.entry(what).or_default() += sum.ns;
            }
            for (&address, sum) in &lock.behind {
                *seen.behind.entry((lock.pid, address)).or_default() += sum.ns;
            }
        }
        // A few looks say nothing.
        if seen.waiting.samples < LOOKS { Seen::default() } else { seen }
    }

    /// Whether enough looks were had.
    pub(super) fn is_known(&self) -> bool {
        self.waiting.samples > 0
    }

    /// The share of the wait for which the holder was ready without a CPU.
    pub(super) fn ready(&self) -> f64 {
        ratio(self.ready_ns, self.waiting.ns)
    }

    /// Whether no look found a holder asleep.
    pub(super) fn never_slept(&self) -> bool {
        self.asleep.values().all(|&ns| ns == 0)
    }

    /// The share of a hold for which the holder was anything but that.
    pub(super) fn of_a_hold(&self) -> f64 {
        let rest = self.running_ns + self.asleep.values().sum::<u64>();
        if rest + self.ready_ns == 0 { 1.0 } else { ratio(rest, rest + self.ready_ns) }
    }

    /// What holders slept in for longest, and for which share of the wait. What they lacked a CPU for can be
    /// left out of that.
    pub(super) fn sleep(&self, without_ready: bool) -> Option<(&'r Sleep, f64)> {
        let (&what, &ns) = self
            .asleep
            .iter()
            .filter(|(what, _)| {
                matches!(
                    what,
                    Sleep::Call(_) | Sleep::OutsideCalls | Sleep::Hidden | Sleep::Futex | Sleep::Signal
                )
            })
            .max_by_key(|(_, ns)| **ns)?;
        let of = self.waiting.ns.saturating_sub(if without_ready { self.ready_ns } else { 0 });
        Some((what, ratio(ns, of)))
    }

    /// The share of the wait for which the holder waited for a lock of this class.
    pub(super) fn behind(&self, class: &Class) -> f64 {
        ratio(self.behind_ns(class), self.waiting.ns)
    }

    fn behind_ns(&self, class: &Class) -> u64 {
        self.behind.iter().filter(|(lock, _)| class.addresses.contains(lock)).map(|(_, ns)| ns).sum()
    }

    /// What the last holder of a chain did for most of the time.
    fn most(&self) -> Option<String> {
        let asleep = self.asleep.iter().map(|(what, &ns)| (ns, sleeping(what)));
        let rest =
            [(self.running_ns, "running".to_owned()), (self.ready_ns, "ready without a CPU".to_owned())];
        asleep.chain(rest).filter(|(ns, _)| *ns > 0).max().map(|(_, what)| what)
    }

    /// The class of locks that holders waited for in turn.
    fn next(&self, report: &'r Report) -> Option<&'r Class> {
        let classes = if self.behind.is_empty() { None } else { Some(report.locks()) };
        let (ns, class) = classes
            .into_iter()
            .flatten()
            .map(|class| (self.behind_ns(class), class))
            .max_by_key(|(ns, _)| *ns)?;
        (ratio(ns, self.waiting.ns) >= SEEN).then_some(class)
    }
}

/// The class, the one that its holders waited for, and so on.
pub(super) fn chain<'r>(report: &'r Report, class: &'r Class) -> Vec<&'r Class> {
    let mut chain = vec![class];
    while chain.len() < LINKS
        && let Some(next) = Seen::of(report, chain[chain.len() - 1]).next(report)
        && !chain.iter().any(|&before| std::ptr::eq(before, next))
    {
        chain.push(next);
    }
    chain
}

/// A chain of two locks or more in one sentence.
pub(super) fn sentence(report: &Report, class: &Class) -> Option<String> {
    let chain = chain(report, class);
    let [.., last] = chain[..] else { return None };
    let waits = |class: &&Class| match waits_at(report, class) {
        Some(line) if class.origin != "taken" => format!("for {} at {line}", called(class)),
        _ => format!("for {}", called(class)),
    };
    let links: Vec<String> = chain.iter().map(waits).collect();
    let end = Seen::of(report, last).most();
    let end = end.map_or_else(String::new, |what| format!(", whose holder was {what}"));
    (chain.len() > 1).then(|| format!("threads waited {}{end}", links.join(", whose holder waited ")))
}

/// The line at which threads waited longest.
pub(super) fn waits_at<'r>(report: &'r Report, class: &Class) -> Option<&'r str> {
    let longest = class.figures.longest_site();
    longest.and_then(|(stack, _)| report.names.line_of(stack)).map(|id| report.names.text(id))
}

/// That a thread sleeps, and in what.
pub(super) fn sleeping(what: &Sleep) -> String {
    match what {
        Sleep::Call(name) => return format!("asleep in {name}()"),
        Sleep::Condition => "waiting for condition variables",
        Sleep::Barrier => "waiting for barriers",
        Sleep::Semaphore => "waiting for semaphores",
        Sleep::Join => "waiting in thread joins",
        Sleep::Signal => "waiting inside pthread_cond_signal or pthread_cond_broadcast",
        Sleep::Futex => "waiting for futexes that are not counted",
        Sleep::Lock => "waiting for locks",
        Sleep::OutsideCalls | Sleep::Hidden => "asleep",
    }
    .to_owned()
}
