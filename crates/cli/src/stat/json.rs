//! The report as JSON.

use std::collections::BTreeSet;
use std::io::{self, Write};

use poundlock_statfile::{LockKind, LockStats, Snapshot};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::arrays::ArrayJson;
use super::class::{Class, Figures};
use super::diagnosis::Finding;
use super::events::{bounds, site_bounds};
use super::holders;
use super::inside::Inside;
use super::names::{Names, StackId};
use super::report::{Process, RanOn, Report, ratio};
use super::sampler::Outcome;
use super::sleeps;
use super::threads::Role;
use super::timeline::Timeline;
use crate::observe::symbols::Variable;

/// Of the document: it changes when something in it is taken away or gets another meaning.
pub(super) const VERSION: u32 = 5;

/// What comes after the [`VERSION`] and, with `--each`, the single locks.
#[derive(Serialize)]
struct Document<'a> {
    command: &'a [String],
    /// What `--lock` said.
    lock: String,
    /// The mutex, named there or the default.
    mutex: &'static str,
    /// The form of the program's spinlocks, named there or chosen for this machine.
    spinlock: &'static str,
    /// Whose the program's readers-writer locks were to be, and with which policy.
    rwlock: &'static str,
    /// What the processes ran on: something else, if one of them chose for what it started.
    ran_on: &'a [RanOn],
    wall_ns: u64,
    ending: &'a str,
    /// The line that warns of a busy machine; null if others left it alone.
    busy: Option<&'a str>,
    /// Of all processes that loaded the library.
    threads: u64,
    /// Those that used a lock: their lives are the `thread_time_ns`.
    locking_threads: u64,
    processes: &'a [Process],
    thread_time_ns: u64,
    /// The part of it in which they had something to do: shares are of this.
    busy_ns: u64,
    /// What of it went into waiting for locks.
    wait_ns: u64,
    share: f64,
    /// If all is from futex calls, seen from outside: how many there were, and how many were missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    futex_calls: Option<crate::attach::Events>,
    /// How the figures were come by, where nobody asked for that way.
    #[serde(skip_serializing_if = "Option::is_none")]
    way: Option<&'a str>,
    diagnosis: &'a [Finding],
    /// Threads that were inside locks at the end.
    inside: &'a Inside,
    /// Groups of locks, most waiting first; and what else threads waited for.
    classes: Vec<ClassJson<'a>>,
    dropped_locks: u64,
    /// Waits whose lock and place found no room: in the class of kind `locks beyond the table`.
    dropped_waits: u64,
    /// Where the time of the threads went.
    sampled: &'a Option<Outcome>,
    /// Where they slept, by samples of their stacks; most time first.
    sleeps: Vec<sleeps::RowJson<'a>>,
    /// Where it went by the names of the threads, most time first.
    roles: &'a [Role],
    /// Who waited, and when.
    timeline: &'a Timeline,
    /// Every event of the locks' slow paths that has no duration; empty if none happened.
    events: Vec<Event>,
    /// Those that have one; empty if there were no events at all.
    durations: Vec<DurationsJson>,
    /// Semaphore arrays of ours that were used, most spinning first.
    arrays: Vec<ArrayJson>,
    /// Whether there were more than there was room for.
    dropped_arrays: bool,
    /// The files that were mapped.
    modules: &'a BTreeSet<String>,
    /// What futex calls show of locks that are not counted here: a document of the same form.
    #[serde(skip_serializing_if = "Option::is_none")]
    futex_view: Option<Box<Document<'a>>>,
    /// The stacks that single locks name by their place here, innermost first; only with `--each`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<Vec<&'a RawValue>>,
}

/// A stack: of a class its frames, innermost first; of a single lock, of which there may be a million, its
/// place among the document's `stacks`.
#[derive(Serialize)]
#[serde(untagged)]
enum StackJson<'a> {
    Frames(&'a RawValue),
    Place(StackId),
}

#[derive(Serialize)]
struct ClassJson<'a> {
    /// With nothing left out.
    name: &'a str,
    /// As reports for people have it.
    shown: &'a str,
    /// What `name` is: a variable, the line that initialised it, the line that takes it.
    origin: &'static str,
    #[serde(serialize_with = "in_words")]
    kind: LockKind,
    /// Where it was initialised or, for a variable, declared. Empty where that is not known.
    created_at: &'a str,
    /// The stack that initialised one of them, innermost first.
    stack: &'a RawValue,
    modules: BTreeSet<&'a str>,
    processes: &'a BTreeSet<u32>,
    locks: u64,
    /// Those of them that somebody waited for.
    waited_locks: u64,
    /// The share of the waiting that is that of one lock: the one with most.
    top_share: f64,
    #[serde(flatten)]
    figures: FiguresJson<'a>,
    /// What part of the time in which threads had something to do went into waiting for it. `null` of what is
    /// no lock: nothing is lost for that.
    share: Option<f64>,
    /// Where its holders waited for another lock for much of the wait: that, in one sentence.
    chain: Option<String>,
}

#[derive(Serialize)]
struct FiguresJson<'a> {
    /// What is `null` was not seen: of futex calls only waits and wake-ups are.
    acquisitions: Option<u64>,
    contended: u64,
    timeouts: u64,
    wait_ns: Time,
    /// Shortest first.
    wait_buckets: Vec<Bucket>,
    hold_ns: Option<Time>,
    /// The standard error of the total, which is an estimate.
    hold_error_ns: Option<f64>,
    /// Holds that somebody waited for.
    waited_holds: Option<u64>,
    waited_hold_ns: Option<u64>,
    waited_hold_buckets: Option<Vec<Bucket>>,
    /// Waiting while nobody had it.
    handover_ns: Option<u64>,
    /// Of condition variables.
    signals: Option<u64>,
    broadcasts: Option<u64>,
    signals_with_mutex: Option<u64>,
    woken_in_vain: u64,
    /// Most waiting first.
    sites: Vec<Site<'a>>,
    /// Who made them wait, most first; of futex calls none.
    holders: Vec<Holder<'a>>,
    /// Of futex calls: who woke them, longest waits first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    woken_by: Vec<Waker<'a>>,
}

/// A lock, in the document.
#[derive(Serialize)]
struct Lock<'a> {
    pid: u32,
    address: String,
    #[serde(serialize_with = "in_words")]
    kind: LockKind,
    /// A variable of that address, if the lock is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    variable: Option<&'a str>,
    created_at: &'a str,
    program: &'a str,
    #[serde(flatten)]
    figures: FiguresJson<'a>,
}

/// Single locks, process by process, in no order: written as they come.
pub(super) struct Locks<'w> {
    to: &'w mut dyn Write,
    /// The last one: put together here, as it is many small pieces.
    line: Vec<u8>,
    written: io::Result<()>,
    /// Whether locks are counted, rather than futex calls seen.
    counted: bool,
}

impl<'w> Locks<'w> {
    /// Begins the document with them.
    pub(super) fn begin(to: &'w mut dyn Write, counted: bool) -> Self {
        let written = write!(to, "{{\"version\":{VERSION},\"locks\":[");
        Locks { to, line: Vec::new(), written, counted }
    }

    /// A lock that was `made` there, if it was.
    pub(super) fn add(
        &mut self,
        lock: &LockStats,
        figures: &Figures,
        made: StackId,
        variable: Option<&Variable>,
        (snapshot, names): (&Snapshot, &Names),
    ) {
        if self.written.is_err() {
            return;
        }
        let made = names.first_of(made).map(|id| names.whole(id));
        let declared = variable.and_then(|variable| variable.declared_at.as_deref());
        let lock = Lock {
            pid: snapshot.pid,
            address: format!("{:#x}", lock.object()),
            kind: lock.kind,
            variable: variable.map(|variable| variable.whole.as_str()),
            created_at: made.or(declared).unwrap_or_default(),
            program: &snapshot.exe,
            figures: FiguresJson::new(figures, names, StackJson::Place, self.counted),
        };
        let before: &[u8] = if self.line.is_empty() { b"\n" } else { b",\n" };
        self.line.clear();
        self.line.extend_from_slice(before);
        self.written = serde_json::to_writer(&mut self.line, &lock)
            .map_err(io::Error::other)
            .and_then(|()| self.to.write_all(&self.line));
    }

    /// After the last one.
    pub(super) fn finish(self) -> io::Result<()> {
        self.written?;
        self.to.write_all(b"],")
    }
}

/// The sum of some durations, and the longest, in nanoseconds.
#[derive(Serialize)]
struct Time {
    total: u64,
    max: u64,
}

#[derive(Serialize)]
struct Site<'a> {
    stack: StackJson<'a>,
    contended: u64,
    wait_ns: u64,
    wait_max_ns: u64,
    timeouts: u64,
    woken_in_vain: u64,
}

#[derive(Serialize)]
struct Holder<'a> {
    /// The line that acquired it; empty if unknown.
    acquired_at: &'a str,
    /// The stack that released it.
    stack: StackJson<'a>,
    holds: u64,
    hold_ns: u64,
    hold_max_ns: u64,
    /// How long others waited for these holds.
    caused_ns: u64,
}

/// Who woke waiters.
#[derive(Serialize)]
struct Waker<'a> {
    stack: StackJson<'a>,
    wakeups: u64,
    /// How long the woken had waited.
    waited_ns: u64,
}

fn in_words<S: Serializer>(kind: &LockKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(kind)
}

impl<'a> FiguresJson<'a> {
    /// With stacks as they are wanted.
    fn new(
        figures: &Figures,
        names: &'a Names,
        stack: impl Fn(StackId) -> StackJson<'a>,
        counted: bool,
    ) -> Self {
        let text = |stack: StackId| names.json(stack).get();
        let mut sites: Vec<_> = figures.sites.iter().collect();
        sites.sort_by(|(a, of_a), (b, of_b)| {
            let order = (of_b.wait_ns, of_b.contended).cmp(&(of_a.wait_ns, of_a.contended));
            order.then_with(|| text(**a).cmp(text(**b)))
        });
        let sites = sites.into_iter().map(|(&at, site)| Site {
            stack: stack(at),
            contended: site.contended,
            wait_ns: site.wait_ns,
            wait_max_ns: site.wait_max_ns,
            timeouts: site.timeouts,
            woken_in_vain: site.in_vain,
        });
        let mut holders: Vec<_> = figures.holders.iter().collect();
        holders.sort_by(|((_, a), of_a), ((_, b), of_b)| {
            of_b.caused_ns.cmp(&of_a.caused_ns).then_with(|| text(*a).cmp(text(*b)))
        });
        let wakers: Vec<Waker> = if counted {
            Vec::new()
        } else {
            let waker = |(&(_, released), holder): (&(StackId, StackId), &super::class::HolderFigures)| {
                Waker { stack: stack(released), wakeups: holder.holds, waited_ns: holder.caused_ns }
            };
            std::mem::take(&mut holders).into_iter().map(waker).collect()
        };
        let holders = holders.into_iter().map(|(&(acquired, released), holder)| Holder {
            acquired_at: line(names, acquired),
            stack: stack(released),
            holds: holder.holds,
            hold_ns: holder.hold_ns,
            hold_max_ns: holder.hold_max_ns,
            caused_ns: holder.caused_ns,
        });
        FiguresJson {
            acquisitions: counted.then_some(figures.acquisitions),
            contended: figures.contended,
            timeouts: figures.timeouts,
            wait_ns: Time { total: figures.wait_ns, max: figures.wait_max_ns },
            wait_buckets: buckets(&figures.wait_buckets, site_bounds),
            hold_ns: counted.then_some(Time { total: figures.hold_ns, max: figures.hold_max_ns }),
            hold_error_ns: counted.then(|| figures.hold_variance.sqrt()),
            waited_holds: counted.then_some(figures.waited_holds),
            waited_hold_ns: counted.then_some(figures.waited_hold_ns),
            waited_hold_buckets: counted.then(|| buckets(&figures.waited_hold_buckets, site_bounds)),
            handover_ns: counted.then_some(figures.handover_ns),
            signals: counted.then_some(figures.signals),
            broadcasts: counted.then_some(figures.broadcasts),
            signals_with_mutex: counted.then_some(figures.signals_with_mutex),
            woken_in_vain: figures.in_vain,
            sites: sites.collect(),
            holders: holders.collect(),
            woken_by: wakers,
        }
    }
}

/// The line to look at of a stack.
fn line(names: &Names, stack: StackId) -> &str {
    names.line_of(stack).map(|id| names.whole(id)).unwrap_or_default()
}

#[derive(Serialize)]
struct Event {
    name: &'static str,
    count: u64,
    /// In the thread to which it happened most. Threads of which one began after the other's end may count as
    /// one.
    most: u64,
}

#[derive(Serialize)]
struct DurationsJson {
    name: &'static str,
    count: u64,
    ns: Time,
    /// Those in which there are any, shortest first.
    buckets: Vec<Bucket>,
}

/// How many took `from_ns` or longer, but not `to_ns`, the next power of two.
#[derive(Serialize)]
struct Bucket {
    from_ns: u64,
    to_ns: u64,
    count: u64,
}

fn buckets(counts: &[u64], bounds: fn(usize) -> (u64, u64)) -> Vec<Bucket> {
    let some = counts.iter().enumerate().filter(|&(_, &count)| count > 0);
    some.map(|(n, &count)| Bucket { from_ns: bounds(n).0, to_ns: bounds(n).1, count }).collect()
}

/// Writes the report, or what is left of it once [`Locks`] have been written.
pub(super) fn write(
    report: &Report,
    diagnosis: &[Finding],
    begun: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    if !begun {
        write!(out, "{{\"version\":{VERSION},")?;
    }
    let rest = serde_json::to_vec(&document(report, diagnosis, begun))?;
    // Less the brace that has been written.
    out.write_all(&rest[1..])?;
    out.write_all(b"\n")
}

fn document<'a>(report: &'a Report, diagnosis: &'a [Finding], of_locks: bool) -> Document<'a> {
    let events = report.events.counts.iter().map(|(event, count)| Event {
        name: event.name(),
        count: count.total,
        most: count.most,
    });
    let durations = report.events.durations.iter().map(|(event, durations)| DurationsJson {
        name: event.name(),
        count: durations.count,
        ns: Time { total: durations.total_ns, max: durations.max_ns },
        buckets: buckets(&durations.buckets, bounds),
    });
    let classes = report.classes.iter().map(|class| {
        let figures = &class.figures;
        ClassJson {
            name: &class.whole.name,
            shown: &class.name,
            origin: class.origin,
            kind: class.kind,
            created_at: &class.whole.at,
            stack: report.names.json(class.made),
            modules: modules(class, &report.names),
            processes: &class.processes,
            locks: figures.locks,
            waited_locks: figures.waited_locks,
            top_share: ratio(figures.top_wait_ns, figures.wait_ns),
            figures: FiguresJson::new(
                figures,
                &report.names,
                |at| StackJson::Frames(report.names.json(at)),
                report.about.futexes.is_none(),
            ),
            share: report.share(class),
            chain: holders::sentence(report, class),
        }
    });
    Document {
        command: &report.about.command,
        lock: report.about.lock.to_string(),
        mutex: report.locks_asked.mutex,
        spinlock: report.locks_asked.spinlock,
        rwlock: report.locks_asked.rwlock,
        ran_on: &report.ran_on,
        wall_ns: report.about.wall_ns,
        ending: &report.about.ending,
        busy: report.about.busy.as_deref(),
        threads: report.threads,
        locking_threads: report.locking_threads,
        processes: &report.processes,
        thread_time_ns: report.thread_time_ns,
        busy_ns: report.time.busy_ns,
        wait_ns: report.wait_ns(),
        share: report.time.lost(),
        futex_calls: report.about.futexes,
        way: report.about.way.as_deref(),
        diagnosis,
        inside: &report.inside,
        classes: classes.collect(),
        dropped_locks: report.dropped_locks,
        dropped_waits: report.dropped_waits,
        sampled: &report.sampled,
        sleeps: sleeps::json(report),
        roles: &report.roles,
        timeline: &report.timeline,
        events: events.collect(),
        durations: durations.collect(),
        arrays: report.arrays.json(),
        dropped_arrays: report.arrays.dropped,
        modules: &report.modules,
        futex_view: report.beside.as_ref().map(|view| Box::new(document(view, &[], false))),
        stacks: of_locks.then(|| report.names.all_json().collect()),
    }
}

/// The files whose code waits for a class, or made it.
fn modules<'a>(class: &Class, names: &'a Names) -> BTreeSet<&'a str> {
    let stacks = class.figures.sites.keys().copied().chain([class.made]);
    let innermost = stacks.filter_map(|stack| names.line_of(stack));
    innermost.map(|id| names.frame_of(id).module.as_str()).filter(|name| !name.is_empty()).collect()
}
