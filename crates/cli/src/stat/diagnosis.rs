//! What is wrong, in three lines at most, each with the figure that says so and the line to look at.
//!
//! | kind | is said if | by |
//! | --- | --- | --- |
//! | `too_long` | a lock is held for long, and most of the waiting is for such holds | recorder |
//! | `too_often` | a lock is held briefly, by waiting threads one after the other | recorder |
//! | `preempted` | holders were ready without a CPU while others waited | sampler |
//! | `blocked` | holders slept in a system call while others waited | sampler |
//! | `convoy` | the lock was on its way to a sleeper for most of the waiting | recorder |
//! | `other_process` | processes share the lock, and most of the waiting was for none of the own one's threads | recorder |
//! | `writing_readers` | readers wait for short sections of writers that are nearly as many | recorder |
//! | `storm` | threads are woken for a condition that does not hold | recorder |
//! | `slept` | threads slept for a lock, where only futex calls are seen | calls |
//! | `unseen` | threads wait, or may wait, in ways that these figures do not show | both |
//! | `way` | names are missing that another command writes | calls |
//! | `stuck` | at the end every thread had waited for another one for a second or more | sampler |
//! | `asleep` | not for locks that are known: threads slept where the program's own threads wake them, and it may be for a lock that nobody counts, or is longer than they ran | sampler |
//! | `idle` | threads had nothing to do for nine tenths of their time, and used next to no CPU | sampler |
//! | `false_alarm` | waiting for locks took next to nothing of the threads' time, or none was used, and all else has a name | both |
//! | `keep_locks` | what another lock can save is next to nothing of the threads' time | recorder |
//!
//! One finding about a class: the first that applies, in the order of what explains most. A share of the
//! waiting below [`MOST`] explains nothing.

use std::path::Path;

use poundlock_statfile::LockKind;
use serde::Serialize;

use super::beside;
use super::class::{Class, Figures};
use super::holders::{SEEN, Seen, chain, sleeping, waits_at};
use super::names::StackId;
use super::report::{Report, RuntimeOf, ratio, side};
use super::sampler::{Outcome, Purpose, Sleep, Waker};
use super::sleeps::{self, Row as SleepRow};
use super::text::{command_line, duration, noun, percent};
use crate::observe::runtime::Runtime;
use crate::output::counted;

/// As many findings are shown.
const SHOWN: usize = 3;
/// As many parts of the threads' time are named.
const PARTS: usize = 3;
/// A class that lost less than this share of the threads' time is nothing to change.
const WORTH: f64 = 0.05;
/// A part of the time that may be the cause.
const MUCH: f64 = 0.2;
/// An explanation explains at least this share of the waiting.
const MOST: f64 = 0.4;
/// By this factor the threads that want a CPU outnumber the CPUs.
const CROWD: f64 = 1.25;
/// Sections from this on are long: a sleep and a wake-up take less than a tenth of it.
const LONG_NS: u64 = 100_000;
/// A sleep and a wake-up.
const WAKE_NS: u64 = LONG_NS / 10;
/// How often a condition variable has to be waited for, and the share of the threads' time that wake-ups in
/// vain take.
const WAITS: u64 = 100;
const STORM: f64 = 0.0005;

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
    /// The share of the threads' time that is at stake: the findings come by it.
    #[serde(skip)]
    rank: f64,
}

impl Finding {
    /// Without a text and a line.
    fn new(kind: &'static str, share: f64) -> Finding {
        Finding { kind, text: String::new(), line: String::new(), share, rank: share }
    }
}

/// The most important ones, the worst first. None if threads are stuck: what they waited for until then says
/// nothing of how the program could be quicker.
pub(super) fn of(report: &Report) -> Vec<Finding> {
    let mut findings = Vec::new();
    if report.inside.is_stuck() {
        return findings;
    }
    if let Some(stuck) = stuck(report) {
        return vec![stuck];
    }
    for class in report.locks() {
        if report.share(class).is_some_and(|share| share >= WORTH) {
            findings.extend(lock(report, class));
        }
    }
    findings.extend(report.others().filter_map(|class| storm(report, class)));
    if findings.is_empty() && report.about.futexes.is_some() {
        findings.extend(parked(report));
    }
    let seen_beside = report.beside.as_deref().map(found).unwrap_or_default();
    findings.extend(seen_beside);
    findings.sort_by(|a, b| b.rank.total_cmp(&a.rank));
    if let Some(first) = findings.first_mut() {
        first.text.push_str(&rest(report, first.rank));
    }
    let unseen = unseen(report);
    if findings.is_empty() && unseen.is_empty() {
        findings.extend(elsewhere(report));
    }
    // What is said of pthread locks says nothing of others.
    let keep = keep_locks(report).filter(|_| unseen.is_empty() && report.beside.is_none());
    findings.truncate(SHOWN - usize::from(keep.is_some()));
    findings.extend(keep);
    findings.splice(0..0, unseen);
    findings.extend(names_of_java(report));
    findings
}

/// What most of the time went for beside a finding that explains less than half of it.
fn rest(report: &Report, explained: f64) -> String {
    let Some(sampled) = report.sampled.as_ref().filter(|_| explained < 0.5) else { return String::new() };
    let mut parts = sleeps::parts(report);
    parts.retain(|part| part.text != sleeping(&Sleep::Lock));
    match sleeps::account(&parts, sampled.total.busy_ns(), PARTS - 1) {
        account if account.is_empty() => account,
        account => format!(". For the rest threads were {account}"),
    }
}

/// What a sentence calls the locks of a class.
pub(super) fn called(class: &Class) -> String {
    let name = match class.origin {
        "taken" | "initialised" => {
            let several = class.figures.locks > 1;
            let made = if class.origin == "initialised" { "made in " } else { "" };
            let noun = noun(class.kind);
            match several {
                true => format!("the {} {made}{}", counted(class.figures.locks, noun), class.name),
                false => format!("the {noun} {made}{}", class.name),
            }
        }
        "unknown" => format!("the {}", class.name),
        _ => class.name.clone(),
    };
    match side(class.kind) {
        Some(side) => format!("the {side} of {name}"),
        None => name,
    }
}

/// What futex calls show beside the figures of the library.
fn found(view: &Report) -> Vec<Finding> {
    let worth = view.locks().filter(|class| view.share(class).is_some_and(|share| share >= WORTH));
    let mut findings: Vec<Finding> = worth.filter_map(|class| lock(view, class)).collect();
    findings.extend(view.others().filter_map(|class| storm(view, class)));
    if findings.is_empty() {
        findings.extend(parked(view));
    }
    findings
}

/// Waits that are not seen and may be most of the waiting: what they are, and the command that shows them.
/// They come first, since what else is said says nothing of them.
fn unseen(report: &Report) -> Vec<Finding> {
    let finding = |text: String, share: f64| Finding { text, ..Finding::new("unseen", share) };
    let views = [Some(report), report.beside.as_deref()];
    let view = views.into_iter().flatten().find(|view| view.about.futexes.is_some());
    if let Some(view) = view {
        let of = |of: &RuntimeOf| Some(format!("{} {}", of.program, of.runtime.beyond_futexes()?));
        return view.runtimes.iter().filter_map(of).map(|text| finding(text, 0.0)).collect();
    }
    // Without the futex view the sampler knows that threads slept in futexes, and not for what.
    let Some(sampled) = &report.sampled else { return Vec::new() };
    let runtime = |pid: u32| report.runtimes.iter().find(|of| of.pid == pid).map(|of| of.runtime);
    let mut sleeps: Vec<(&str, Option<Runtime>, u64)> = Vec::new();
    for process in sampled.processes.iter().filter(|process| process.measured) {
        let runtime = runtime(process.pid);
        let ns = process.unmeasured_ns(runtime);
        if beside::is_wanted(ns, process.times.lived_ns) {
            sleeps.push((&process.name, runtime, ns));
        }
    }
    let all: u64 = sleeps.iter().map(|(.., ns)| ns).sum();
    let Some((name, runtime, _)) = sleeps.into_iter().max_by_key(|(.., ns)| *ns) else { return Vec::new() };
    if all <= report.wait_ns() {
        return Vec::new();
    }
    let what = runtime.map_or("locks of its own", Runtime::own_locks);
    let command = match runtime {
        Some(Runtime::Java) => JAVA_WAY.to_owned(),
        _ => format!("sudo poundlock stat --futex -- {}", command_line(&report.about.command)),
    };
    let text = format!(
        "threads of {name} slept {} in futexes that are no pthread lock: {what}, or idleness, which is not told apart \
         here. What they waited for shows: {command}",
        duration(all)
    );
    vec![finding(text, ratio(all, sampled.total.lived_ns))]
}

/// The commands that show what threads of a Java machine wait for.
const JAVA_WAY: &str = "jcmd PID Compiler.perfmap && sudo poundlock stat --pid PID (start java with \
     -XX:+PreserveFramePointer, and ask once the program is warm)";

/// How lines of Java get names, where they have none yet.
fn names_of_java(report: &Report) -> Option<Finding> {
    let views = [Some(report), report.beside.as_deref()];
    let view = views.into_iter().flatten().find(|view| view.about.futexes.is_some())?;
    let is_nameless = |of: &&RuntimeOf| {
        of.runtime == Runtime::Java && !Path::new(&format!("/tmp/perf-{}.map", of.pid)).exists()
    };
    view.runtimes.iter().find(is_nameless)?;
    let text =
        format!("the names of Java's methods are missing: its machine writes them when asked: {JAVA_WAY}");
    Some(Finding { text, ..Finding::new("way", 0.0) })
}

/// A futex of which nothing says whether it is a lock, and for which threads slept longest.
fn parked(view: &Report) -> Option<Finding> {
    if view.runtimes.iter().any(|of| of.runtime.beyond_futexes().is_some()) {
        return None;
    }
    let is_wait = |class: &&Class| class.kind == LockKind::Futex && !class.figures.is_for_long();
    let class = view.others().filter(is_wait).max_by_key(|class| class.figures.wait_ns)?;
    let figures = &class.figures;
    let share = ratio(figures.wait_ns, view.thread_time_ns);
    if share < WORTH {
        return None;
    }
    let woken = view.causes(class).holders.first().and_then(|((acquired, released), _)| {
        view.names.line_of_holder(*acquired, *released).map(|(_, id)| view.names.text(id).to_owned())
    });
    let line = woken.clone().or_else(|| waits_at(view, class).map(str::to_owned)).unwrap_or_default();
    let woken = woken.map_or(String::new(), |at| format!(", woken at {at}"));
    let waits = waits_at(view, class).map_or(String::new(), |at| format!(" at {at}"));
    let text = format!(
        "threads slept {} ({} of their time) for {}{waits}, in a futex call of the program's own: {} of {} on \
         average{woken}. If the futex is a lock, the wake-up is its release: look there",
        duration(figures.wait_ns),
        percent(share),
        called(class),
        counted(figures.contended, "wait"),
        duration(figures.wait_ns.checked_div(figures.contended).unwrap_or(0)),
    );
    Some(Finding { text, line, ..Finding::new("slept", share) })
}

/// Where only sleeping is seen: how much of it there was, and who ended it.
fn slept(report: &Report, class: &Class) -> Finding {
    let figures = &class.figures;
    let lost = report.share(class).unwrap_or(0.0);
    let name = called(class);
    let line = line(report, class);
    let by = if line.is_empty() {
        String::new()
    } else {
        format!("; whoever releases it does so at {line}: look there")
    };
    let vain = match ratio(figures.in_vain, figures.contended + figures.in_vain) {
        vain if vain >= MOST => format!(", and {} of the wake-ups were in vain", percent(vain)),
        _ => String::new(),
    };
    let mean = figures.wait_ns.checked_div(figures.contended).unwrap_or(0);
    let text = format!(
        "{} of the time threads slept for {name}: {} of {} on average{vain}{by}",
        percent(lost),
        counted(figures.contended, "wait"),
        duration(mean)
    );
    Finding { text, line, ..Finding::new("slept", lost) }
}

fn lock(report: &Report, class: &Class) -> Option<Finding> {
    // Of locks that found no room nobody knows what to change.
    if class.kind == LockKind::Overflow {
        return None;
    }
    if report.about.futexes.is_some() {
        return Some(slept(report, class));
    }
    let figures = &class.figures;
    let lost = report.share(class).unwrap_or(0.0);
    // Of the two sides of a readers-writer lock it is said of the one that lost more.
    let other = report.other_side(class);
    if other.is_some_and(|other| other.figures.wait_ns > figures.wait_ns) {
        return None;
    }
    // Waits that go on may be for ever; the threads in them are told of elsewhere.
    if report.inside.waiting_ns(&class.addresses) >= figures.wait_ns.div_ceil(2) {
        return None;
    }
    let name = called(class);
    let chain = chain(report, class);
    let last = chain[chain.len() - 1];
    let finding = |kind: &'static str, of: &Class, text: &dyn Fn(&str) -> String| {
        let line = line(report, of);
        let at = if line.is_empty() { String::new() } else { format!(" at {line}") };
        Some(Finding { text: text(&at), line, ..Finding::new(kind, lost) })
    };
    let costs = format!("{} of the time is lost for {name}", percent(lost));
    // Of a chain of holders it is the last one that the others wait for.
    let holder = chain[1..].iter().fold("its holder".to_owned(), |text, class| {
        format!("{text} waited for {}, whose holder", called(class))
    });
    let seen = Seen::of(report, class);
    let crowded = crowded(report, class.kind);
    // Ready for want of a CPU that other programs have is not this one's doing.
    if crowded && seen.ready() >= SEEN {
        return finding("preempted", last, &|at| {
            format!(
                "{costs}: for {} of the wait {holder} was ready without a CPU; more threads run than there are \
                 CPUs, so start fewer or keep the section{at} short",
                percent(seen.ready())
            )
        });
    }
    if let Some((what, share)) = seen.sleep(!crowded).filter(|(_, share)| *share >= SEEN) {
        return finding("blocked", last, &|at| {
            format!(
                "{costs}: for {} of the wait {holder} was {}; move the call out of the section{at}",
                percent(share),
                sleeping(what)
            )
        });
    }
    // Holds that somebody waited for: how long they are, and how much of the waiting they account for.
    // Writers wait for readers as well.
    let sides = || [class].into_iter().chain(other);
    let sum = |of: fn(&Figures) -> u64| sides().map(|side| of(&side.figures)).sum::<u64>();
    let caused = sum(caused_by);
    let held = sum(|side| side.waited_hold_ns).checked_div(sum(|side| side.waited_holds)).unwrap_or(0);
    // A hold is not long for being ready without a CPU. Where too few looks tell, one of many that is long
    // may have been.
    let of_a_hold = seen.of_a_hold();
    let net = |ns: u64| (ns as f64 * of_a_hold) as u64;
    let held = match seen.is_known() {
        // If holders lacked a CPU for most of the time, looks tell the rest badly: it is no more than all the
        // CPU time there was.
        true if of_a_hold < 0.5 => net(held).min(cpu_time_each(report, sum(|side| side.acquisitions))),
        // Holders that never slept spent no more in these holds than all the CPU time there was.
        true if seen.never_slept() => net(held).min(cpu_time_each(report, sum(|side| side.waited_holds))),
        true => net(held),
        false => held.min(typical(&figures.waited_hold_buckets)),
    };
    let without = if of_a_hold < 0.9 { " (waits for a CPU left out)" } else { "" };
    if side(class.kind).is_some() {
        let count = |wanted: &str| -> u64 {
            let sides = sides().filter(|class| side(class.kind) == Some(wanted));
            sides.map(|class| class.figures.acquisitions).sum()
        };
        let (reads, writes) = (count("readers"), count("writers"));
        // With one writer in five the lock has no time in which readers are alone.
        if writes > 0 && reads < 5 * writes {
            return finding("writing_readers", class, &|at| {
                format!(
                    "{costs}: {writes} of {} acquisitions write, so that readers are seldom alone; a mutex costs \
                     less, or let readers{at} read only",
                    reads + writes
                )
            });
        }
    }
    let on_its_way = ratio(figures.handover_ns, figures.wait_ns);
    if class.kind.may_be_shared() && on_its_way >= MOST {
        let mean = figures.hold_ns.checked_div(figures.acquisitions).unwrap_or(0);
        return finding("other_process", class, &|_| {
            format!(
                "{costs}: for {} of the wait no thread of the process that waited had it, so that another process \
                 may have had it; over all processes it is held for {} on average: keep its sections short in each",
                percent(on_its_way),
                duration(mean)
            )
        });
    }
    let sleeps = class.kind != LockKind::Spinlock;
    if sleeps && on_its_way >= MOST && held < LONG_NS {
        let instead = match (class.kind, &report.about.compare) {
            (LockKind::PriorityMutex, _) => "try without PTHREAD_PRIO_INHERIT".to_owned(),
            (_, Some(line)) => format!("compare it with Poundlock's locks: {line}"),
            (_, None) => "try a lock that is not handed to sleepers".to_owned(),
        };
        return finding("convoy", class, &|at| {
            format!(
                "{costs}: for {} of the wait nobody had it, it was on its way to a thread that slept; each of {} \
                 woke one up: take it less often{at}, or {instead}",
                percent(on_its_way),
                counted(figures.contended, "wait")
            )
        });
    }
    if held >= LONG_NS && ratio(caused, sum(|side| side.wait_ns)) >= MOST {
        let worst = sides().max_by_key(|side| caused_by(&side.figures)).unwrap_or(class);
        // Most of such a section is a wait itself: the next lock's sections are the ones to shorten.
        if let Some(next) = chain.get(1) {
            return finding("too_long", last, &|at| {
                format!(
                    "{costs}: for {} of the wait {holder} kept it; do less in that section{at}",
                    percent(seen.behind(next))
                )
            });
        }
        return finding("too_long", worst, &|at| {
            format!(
                "{costs}: its section is long, {}{without} on average of the {} that others waited for; do less in \
                 it{at}",
                duration(held),
                counted(sum(|side| side.waited_holds), "hold")
            )
        });
    }
    if figures.contended > 0 {
        let mean = figures.hold_ns.checked_div(figures.acquisitions).unwrap_or(0);
        return finding("too_often", class, &|at| {
            format!(
                "{costs}: it is held for only {}{without}, but {}; take it less often{at}, or split it",
                duration(net(mean)),
                counted(figures.acquisitions, "time")
            )
        });
    }
    None
}

/// What half of all are shorter than: the end of the bucket in which it lies.
fn typical(buckets: &[u64]) -> u64 {
    let half = buckets.iter().sum::<u64>().div_ceil(2);
    let below = buckets.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    2 << below.take_while(|&sum| sum < half).count().min(62)
}

/// The CPU time of the program for each of as many holds.
fn cpu_time_each(report: &Report, holds: u64) -> u64 {
    let running = report.sampled.as_ref().map(|sampled| sampled.total.running_ns);
    running.and_then(|ns| ns.checked_div(holds)).unwrap_or(u64::MAX)
}

/// How long others waited for its holders.
fn caused_by(figures: &Figures) -> u64 {
    figures.holders.values().map(|holder| holder.caused_ns).sum()
}

/// Whether more threads of the program want a CPU than there are. Those that wait for a lock do so if they
/// spin all the while; else they want one only to see whether they have it.
fn crowded(report: &Report, kind: LockKind) -> bool {
    let Some(sampled) = &report.sampled else { return false };
    let times = &sampled.total;
    let waiting = if kind == LockKind::Spinlock { 0 } else { times.spinning.ns };
    let wanting = times.running_ns.saturating_add(times.ready_ns.unwrap_or(0)).saturating_sub(waiting);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    ratio(wanting, sampled.watched_ns) > cpus as f64 * CROWD
}

/// A condition variable whose waiters are woken for nothing.
fn storm(report: &Report, class: &Class) -> Option<Finding> {
    let figures = &class.figures;
    if class.kind != LockKind::Condition || figures.contended < WAITS {
        return None;
    }
    // A thread that keeps the mutex from one item to the next waits again with the mutex, and was not woken
    // in vain. There are no more waits than signals then, and nearly all waits count as in vain. So it is a
    // storm if there are many more waits than calls that wake; or if most of these wake all, and threads that
    // found something to do did let go of the mutex before they waited again.
    let vain = ratio(figures.in_vain, figures.contended);
    let sent = figures.signals + figures.broadcasts;
    let is_counted = report.about.futexes.is_none();
    let many_woken = figures.contended >= 2 * sent;
    let let_go = figures.contended.saturating_sub(figures.in_vain) >= figures.contended / 20;
    let all_woken = 2 * figures.broadcasts >= sent && let_go;
    let cost = ratio(figures.in_vain.saturating_mul(WAKE_NS), report.time.busy_ns);
    if vain < MOST || (is_counted && !many_woken && !all_woken) || cost < STORM {
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
        text: format!(
            "threads wake up in vain{at}: {} of {} waits for {} ended with nothing to do{all}{held}",
            figures.in_vain,
            figures.contended,
            called(class)
        ),
        line,
        rank: cost,
        ..Finding::new("storm", vain)
    })
}

/// What the time went for, if it was not for locks that are known.
fn elsewhere(report: &Report) -> Option<Finding> {
    let sampled = report.sampled.as_ref()?;
    if report.time.lost() >= WORTH {
        return None;
    }
    asleep(report, sampled).or_else(|| idle(report, sampled)).or_else(|| cleared(report, sampled))
}

/// The place at which threads slept longest, if that may be for a lock which nobody counts, or if they waited
/// there for each other for longer than they ran: nothing is cleared then.
fn asleep(report: &Report, sampled: &Outcome) -> Option<Finding> {
    let busy = sampled.total.busy_ns();
    let is_seen = report.about.futexes.is_some();
    let mut parts = sleeps::parts(report);
    let on_cpus = sampled.total.running_ns.saturating_add(sampled.total.ready_ns.unwrap_or(0));
    let blocked = || report.sleeps.iter().filter(|row| row.of.purpose == Purpose::Blocked);
    let unclear = sleeps::longest(&report.names, blocked().filter(|row| row.may_be_a_lock(is_seen)));
    let for_work = sleeps::longest(&report.names, blocked().filter(|row| row.is_for_work()));
    let is_told = |&(row, ns): &(&SleepRow, u64)| match row.is_for_work() {
        // Two threads that take turns wait for as long as they run.
        true => ns / 5 >= on_cpus / 4,
        false => ratio(ns, busy) >= WORTH,
    };
    let (row, ns) = [unclear, for_work].into_iter().flatten().filter(is_told).max_by_key(|(_, ns)| *ns)?;
    let share = ratio(ns, busy).min(1.0);
    let brief = row.brief(&report.names);
    parts.retain(|part| part.text != brief);
    let rest = sleeps::account(&parts, busy, PARTS);
    let rest = if rest.is_empty() { rest } else { format!("; the rest: {rest}") };
    let why = match (row.is_for_work(), row.of.waker) {
        (true, _) => {
            "other threads of this program end such a wait: it is for work that they have yet to do, or for a lock \
             that is made of it"
        }
        (_, Waker::Program) => {
            "only threads of this program end such a sleep, so it is a queue that is empty, or a lock that is not \
             counted"
        }
        (_, Waker::Signals) => {
            "the program's own processes end such a sleep, or a signal does: it is a queue that is empty, or a lock \
             that is not counted"
        }
        _ => "for what is not seen",
    };
    let line = report.names.line_of(row.of.stack).map(|id| report.names.text(id).to_owned());
    Some(Finding {
        text: format!(
            "threads were {} for {} of the time in which they had something to do: {why}{rest}",
            row.place(&report.names),
            percent(share)
        ),
        line: line.unwrap_or_default(),
        ..Finding::new("asleep", share)
    })
}

/// That threads had nothing to do, and used next to no CPU.
fn idle(report: &Report, sampled: &Outcome) -> Option<Finding> {
    let (lived, busy) = (sampled.total.lived_ns, sampled.total.busy_ns());
    if busy >= lived / 10 || sampled.total.running_ns >= sampled.watched_ns / 4 {
        return None;
    }
    let share = ratio(lived - busy, lived);
    let places = idle_places(report, lived - busy);
    // What is not known may be the program's own.
    let own = |row: &&SleepRow| !matches!(row.of.waker, Waker::Others | Waker::Time);
    let own: u64 = report.sleeps.iter().filter(own).map(|row| row.sum.ns).sum();
    let text = match ratio(own, lived) >= MUCH {
        true => format!(
            "threads waited for {} of their time, and hardly ran: {places}; whether that was for work, for each other, \
             or for a wake-up that never comes, looks the same",
            percent(share)
        ),
        false => format!(
            "threads had nothing to do for {} of their time: {places}; what they wait for comes from outside of this \
             program, or is a time",
            percent(share)
        ),
    };
    Some(Finding { text, ..Finding::new("idle", share) })
}

/// That locks are not the cause, with what is.
fn cleared(report: &Report, sampled: &Outcome) -> Option<Finding> {
    let (lived, busy) = (sampled.total.lived_ns, sampled.total.busy_ns());
    let lost = report.time.lost();
    let idle = idle_places(report, lived.saturating_sub(busy));
    let account = sleeps::account(&sleeps::parts(report), busy, PARTS);
    let blocked = report.sleeps.iter().filter(|row| row.of.purpose == Purpose::Blocked && row.is_for_work());
    let for_work = ratio(blocked.map(|row| row.sum.ns).sum(), busy);
    let idle = if idle.is_empty() { idle } else { format!(". Beside that time, threads were idle: {idle}") };
    let text = match (report.locks().next(), account.as_str()) {
        // No lock was used, so that there is none to clear.
        (None, "") => return None,
        (None, account) => {
            format!("in the time in which threads had something to do they were {account}{idle}")
        }
        (Some(_), account) => format!(
            "{}: they took {} of the time in which threads had something to do{}{account}{idle}",
            // Threads that wait for each other may do so for a lock that is made of such waits.
            match for_work >= MUCH {
                true => "the locks that are counted are not what this program waits for",
                false => "locks are not what this program waits for",
            },
            percent(lost),
            if account.is_empty() { "" } else { "; threads were " },
        ),
    };
    Some(Finding { text, ..Finding::new("false_alarm", lost) })
}

/// What another lock can save at most of the waiting for a class. Mutexes of long sections: no lock shortens
/// the holds, so that what is left is the waiting while nobody had it, and a sleep and a wake-up for each
/// wait. Of short sections, spinlocks and readers-writer locks all waiting may come from how the lock orders
/// its waiters.
fn savings_ns(kind: LockKind, figures: &Figures) -> u64 {
    if kind.may_be_shared() {
        // It stays the C library's.
        return 0;
    }
    let is_mutex = kind != LockKind::Spinlock && side(kind).is_none();
    let held = figures.waited_hold_ns.checked_div(figures.waited_holds).unwrap_or(0);
    let waiting = if is_mutex && held >= LONG_NS { figures.handover_ns } else { figures.wait_ns };
    waiting.saturating_add(figures.contended.saturating_mul(WAKE_NS))
}

/// That the program's own locks are as good as any.
fn keep_locks(report: &Report) -> Option<Finding> {
    let about = &report.about;
    if about.futexes.is_some() || !about.lock.keeps_everything() || !report.inside.cycles.is_empty() {
        return None;
    }
    let replaceable = report.locks().filter(|class| !class.kind.may_be_shared());
    let waits: u64 = replaceable.map(|class| class.figures.contended).sum();
    let saved: u64 = report.locks().map(|class| savings_ns(class.kind, &class.figures)).sum();
    let saved = ratio(saved, report.time.busy_ns);
    if waits == 0 || saved >= WORTH {
        return None;
    }
    let lost = report.time.lost();
    let rate = waits as f64 * 1e9 / about.wall_ns.max(1) as f64;
    let why = if lost < WORTH {
        format!("threads waited for locks for {} of it, {rate:.0} times a second", percent(lost))
    } else {
        let free: u64 = report.locks().map(|class| class.figures.handover_ns).sum();
        format!(
            "for {} of the waiting a thread had the lock, and no lock makes its section shorter",
            percent(1.0 - ratio(free, report.wait_ns()).min(1.0))
        )
    };
    let text = format!(
        "another lock would save at most {} of this time: {why}; keep the program's own locks",
        percent(saved)
    );
    Some(Finding { text, ..Finding::new("keep_locks", saved) })
}

/// Where threads that look idle sleep, if that is a tenth of their time or more: a thread that polls looks
/// idle.
fn idle_places(report: &Report, all: u64) -> String {
    let lived = report.sampled.as_ref().map_or(0, |sampled| sampled.total.lived_ns);
    if all < lived / 10 {
        return String::new();
    }
    let mut parts: Vec<sleeps::Part> = Vec::new();
    for row in report.sleeps.iter().filter(|row| row.of.purpose != Purpose::Blocked) {
        let text = row.brief(&report.names);
        match parts.iter_mut().find(|part| part.text == text) {
            Some(part) => part.ns += row.sum.ns,
            None => parts.push(sleeps::Part { text, ns: row.sum.ns }),
        }
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
    sleeps::account(&parts, lived, PARTS)
}

/// Every thread waits for another one. Those that wait for locks in a circle are told of elsewhere.
fn stuck(report: &Report) -> Option<Finding> {
    let stuck = report.stuck.as_ref()?;
    // Whoever ended by itself was not stuck.
    let has_ended = report.about.ending.starts_with("exit status");
    if has_ended || report.sampled.as_ref().is_some_and(|sampled| !sampled.graph.cycles.is_empty()) {
        return None;
    }
    let thread = |(name, what, stack): &(String, Sleep, StackId)| {
        format!("{name} {}", sleeps::place(&report.names, what, *stack))
    };
    let mut threads: Vec<String> = stuck.threads.iter().take(PARTS).map(thread).collect();
    if stuck.threads.len() > PARTS {
        threads.push(format!("and {}", counted((stuck.threads.len() - PARTS) as u64, "more thread")));
    }
    // One that waits for the end of another is the least to look at.
    let first = stuck.threads.iter().find(|(_, what, _)| *what != Sleep::Join);
    let line = first.and_then(|(.., stack)| report.names.line_of(*stack));
    Some(Finding {
        text: format!(
            "every thread has waited for another one for the last {}: {}; nobody of this program is left to wake them",
            duration(stuck.for_ns),
            threads.join("; ")
        ),
        line: line.map(|id| report.names.text(id).to_owned()).unwrap_or_default(),
        ..Finding::new("stuck", 1.0)
    })
}

/// The line to change: where the holders took the lock for whom others waited longest; else where threads
/// waited.
fn line(report: &Report, class: &Class) -> String {
    let causes = report.causes(class);
    let held = causes.holders.first().and_then(|((acquired, released), _)| {
        report.names.line_of_holder(*acquired, *released).map(|(_, id)| id)
    });
    let held = held.map(|id| report.names.text(id));
    held.or_else(|| waits_at(report, class)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use poundlock_statfile::LockKind;

    use super::{Figures, LONG_NS, WAKE_NS, savings_ns};

    #[test]
    fn what_holders_take_no_lock_saves() {
        let figures = |hold_ns| Figures {
            wait_ns: 1_000 * LONG_NS,
            contended: 10,
            handover_ns: 7,
            waited_holds: 10,
            waited_hold_ns: 10 * hold_ns,
            ..Figures::default()
        };
        let (wakes, all) = (10 * WAKE_NS, 1_000 * LONG_NS);
        for (kind, hold_ns, wanted) in [
            (LockKind::Mutex, LONG_NS, 7 + wakes),
            (LockKind::Mutex, LONG_NS - 1, all + wakes),
            (LockKind::Spinlock, LONG_NS, all + wakes),
            (LockKind::RwWriters, LONG_NS, all + wakes),
        ] {
            assert_eq!(savings_ns(kind, &figures(hold_ns)), wanted, "{kind:?} {hold_ns}");
        }
        assert_eq!(savings_ns(LockKind::Mutex, &Figures::default()), 0);
    }
}
