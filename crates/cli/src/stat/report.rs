//! The figures of one run, with names in place of addresses: what text, JSON and page all show.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::Path;

use poundlock_names::{Choice, LockName, Named, RwLocks};
use poundlock_statfile::{LockKind, LockStats, Snapshot};
use serde::Serialize;

use super::arrays::Arrays;
use super::beside::View;
use super::class::{self, Class, Grouping, HolderFigures};
use super::events::Events;
use super::figures::Figures;
use super::inside::{self, Inside};
use super::json;
use super::lost::ThreadTime;
use super::names::{Known, Names, StackId};
use super::sampler::Outcome;
use super::sleeps::{self, Row as SleepRow, Stuck};
use super::text::{duration, percent};
use super::threads::{self, Role};
use super::timeline::{self, Places, Timeline};
use crate::observe::runtime::Runtime;
use crate::observe::symbols::{Space, Symbols, Variable, file_name};
use crate::output::counted;

/// As many single locks are shown at most: the JSON has all.
const MOST_SHOWN: usize = 100_000;

/// What a report is about.
pub(super) struct About {
    pub(super) command: Vec<String>,
    pub(super) lock: Choice,
    pub(super) rwlocks: RwLocks,
    pub(super) wall_ns: u64,
    /// How the command ended, in words; or that it runs.
    pub(super) ending: String,
    /// `CLOCK_MONOTONIC` as of which the figures are.
    pub(super) now_ns: u64,
    /// Whether the first seconds are left out.
    pub(super) delayed: bool,
    /// If all is from futex calls, seen from outside: what is to be said of those.
    pub(super) futexes: Option<crate::attach::Events>,
    /// The command line that compares the program's locks with ours, as this run was made; if there is one.
    pub(super) compare: Option<String>,
    /// What is wrong with a machine on which others had much of the CPUs meanwhile.
    pub(super) busy: Option<String>,
    /// How the figures were come by, in words, where nobody asked for that way.
    pub(super) way: Option<String>,
    /// Whether it is what futex calls show beside the figures of our library.
    pub(super) beside_library: bool,
    /// What futex calls show beside these figures.
    pub(super) beside: Option<Box<View>>,
}

/// One run.
pub(super) struct Report {
    pub(super) about: About,
    /// The locks that were asked for.
    pub(super) locks_asked: RanOn,
    /// Those that the processes were on: others, if one of them chose for what it started. In the order of
    /// their starts; those asked for if there were no processes.
    pub(super) ran_on: Vec<RanOn>,
    /// Threads of all processes.
    pub(super) threads: u64,
    /// Those that used a lock.
    pub(super) locking_threads: u64,
    pub(super) processes: Vec<Process>,
    /// The time that the threads that used a lock lived, together.
    pub(super) thread_time_ns: u64,
    /// What shares are of.
    pub(super) time: ThreadTime,
    /// Locks for which there was no room, counted together.
    pub(super) dropped_locks: u64,
    /// Waits of which neither the lock nor the place is known for want of room, counted with those locks.
    pub(super) dropped_waits: u64,
    /// Most waiting first.
    pub(super) classes: Vec<Class>,
    /// Single locks, if they were asked for; as many as are shown.
    pub(super) each: Option<Vec<Class>>,
    pub(super) names: Names,
    pub(super) inside: Inside,
    /// What happened in the locks' slow paths.
    pub(super) events: Events,
    /// Semaphore arrays of ours.
    pub(super) arrays: Arrays,
    /// Where the time of the threads went.
    pub(super) sampled: Option<Outcome>,
    /// Where they slept, by samples of their stacks; most time first.
    pub(super) sleeps: Vec<SleepRow>,
    /// If nobody is left who could wake anybody: all threads.
    pub(super) stuck: Option<Stuck>,
    /// And by their names.
    pub(super) roles: Vec<Role>,
    /// Who waited, and when.
    pub(super) timeline: Timeline,
    /// The files that were mapped.
    pub(super) modules: BTreeSet<String>,
    /// The processes whose program brings a language runtime along.
    pub(super) runtimes: Vec<RuntimeOf>,
    /// What futex calls show beside it.
    pub(super) beside: Option<Box<Report>>,
}

/// A process whose program brings a language runtime along.
pub(super) struct RuntimeOf {
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) runtime: Runtime,
}

/// As many programs are looked into.
const PROGRAMS: usize = 16;

/// The processes with a language runtime, one of each program.
fn runtimes(snapshots: &[Snapshot]) -> Vec<RuntimeOf> {
    let mut known = BTreeSet::new();
    let new = snapshots.iter().filter(|snapshot| known.insert(&snapshot.exe));
    let found = new.take(PROGRAMS).filter_map(|snapshot| {
        let is_java = snapshot.modules.iter().any(|module| module.path.ends_with("/libjvm.so"));
        let java = is_java.then_some(Runtime::Java);
        let runtime = java.or_else(|| Runtime::of_file(Path::new(&snapshot.exe)))?;
        Some(RuntimeOf { pid: snapshot.pid, program: file_name(&snapshot.exe), runtime })
    });
    found.collect()
}

/// What processes ran on.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(super) struct RanOn {
    pub(super) mutex: &'static str,
    /// The spinlock that was named or, if none was, chosen: a child of ours sees the machine that we see.
    pub(super) spinlock: &'static str,
    /// Whose readers-writer locks were, and with which policy.
    pub(super) rwlock: &'static str,
    /// The programs.
    pub(super) programs: BTreeSet<String>,
}

impl RanOn {
    fn of(choice: Choice, rwlocks: RwLocks) -> Self {
        let programs = BTreeSet::new();
        RanOn { mutex: choice.mutex().name(), spinlock: spinlock(choice), rwlock: rwlocks.name(), programs }
    }

    /// As the preloaded library understood what it recorded.
    fn by_process(snapshots: &[Snapshot]) -> Vec<RanOn> {
        let mut all: Vec<RanOn> = Vec::new();
        for snapshot in snapshots {
            let choice = Choice::parse(&snapshot.lock).unwrap_or_default();
            let rwlocks = RwLocks::of(choice, RwLocks::parse(&snapshot.rwlock));
            let this = RanOn::of(choice, rwlocks);
            let same =
                |of: &RanOn| (of.mutex, of.spinlock, of.rwlock) == (this.mutex, this.spinlock, this.rwlock);
            let place = all.iter().position(same).unwrap_or_else(|| {
                all.push(this.clone());
                all.len() - 1
            });
            all[place].programs.insert(file_name(&snapshot.exe));
        }
        all
    }
}

/// A process of the run: one id may be several programs, one after the other.
#[derive(Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// The programs that it was, in order.
    pub(super) programs: Vec<String>,
    pub(super) threads: u64,
    pub(super) locking_threads: u64,
    pub(super) thread_time_ns: u64,
    pub(super) wait_ns: u64,
}

/// What of a report costs more than the rest.
#[derive(Default)]
pub(super) struct Wanted<'w> {
    /// Single locks, as many as are shown.
    pub(super) each: Option<usize>,
    /// Where single locks are written to, as JSON: see [`json::Locks`].
    pub(super) json: Option<&'w mut dyn Write>,
}

impl Report {
    /// Merges the processes' figures. What was there `before` is left out.
    pub(super) fn new(
        mut about: About,
        before: &[Snapshot],
        figures: &Figures,
        sampled: Option<Outcome>,
        wanted: Wanted<'_>,
    ) -> std::io::Result<Self> {
        let snapshots = &figures.snapshots[..];
        let symbols = Symbols::new();
        let asked = RanOn::of(about.lock, about.rwlocks);
        let mut ran_on = RanOn::by_process(snapshots);
        if ran_on.is_empty() {
            ran_on.push(asked.clone());
        }
        let mut grouping = Grouping::new();
        for snapshot in before {
            let (space, mut known) = (symbols.space(snapshot), Known::default());
            for lock in &snapshot.locks {
                grouping.add(snapshot.pid, lock, &space, &mut known);
            }
        }
        grouping.begin();
        let mut inside = Inside::default();
        // The groups of the locks that threads are inside.
        let mut entered = HashMap::new();
        let mut singles =
            wanted.each.map(|shown| Singles { shown: shown.min(MOST_SHOWN), locks: Vec::new(), least: None });
        let counted = about.futexes.is_none();
        let mut json = wanted.json.map(|to| json::Locks::begin(to, counted));
        let mut waited = Vec::new();
        let mut places = Places::new();
        for (process, snapshot) in snapshots.iter().enumerate() {
            let (space, mut known) = (symbols.space(snapshot), Known::default());
            let mut made = inside::Made::of(snapshot);
            let mut wait_ns = 0;
            figures.each_lock(process, |lock| {
                let lock = &lock;
                made.note(lock);
                wait_ns += if lock.kind.is_acquired() { lock.wait_total_ns } else { 0 };
                grouping.add(snapshot.pid, lock, &space, &mut known);
                if made.has(lock) {
                    let place = grouping.place(snapshot.pid, lock, &space, &mut known);
                    entered.insert((snapshot.pid, (lock.address, lock.kind)), place);
                }
                if let Some(singles) = &mut singles {
                    singles.add(snapshot, lock, &space, &mut known, &mut grouping);
                }
                if let Some(json) = &mut json {
                    let names = &mut grouping.names;
                    let figures = class::Figures::of(lock, names, &space, &mut known);
                    let made = names.stack(&lock.created_at, &space, &mut known);
                    let variable = variable(lock, &space);
                    json.add(lock, &figures, made, variable.as_ref(), (snapshot, names));
                }
            });
            inside.add(snapshot, &made, &space, about.now_ns);
            if let Some(sampled) = &sampled {
                for key in timeline::places(sampled, snapshot.pid, snapshot.start_ns) {
                    places.insert(key, grouping.names.call(key.2, &space, &mut known));
                }
            }
            waited.push(wait_ns);
        }
        if let Some(sampled) = &sampled {
            inside.know(&sampled.graph);
        }
        if let Some(json) = json {
            json.finish()?;
        }
        let (sleeps, stuck) = sampled
            .as_ref()
            .map(|sampled| sleeps::rows(sampled, &symbols, &mut grouping.names))
            .unwrap_or_default();
        let sorts = grouping.sorts();
        let named: HashMap<_, _> = entered
            .into_iter()
            .filter_map(|(key, place)| {
                let sort = sorts.iter().find(|sort| sort.groups.contains(&place))?;
                let is_one = grouping.figures(place).locks < 2;
                Some((key, sort.class.name_of_one(key.1.0, is_one)?))
            })
            .collect();
        inside.name_as(|pid, key| named.get(&(pid, key)).cloned());
        let (names, classes) = grouping.finish();
        let earlier: u64 = before.iter().map(|snapshot| snapshot.thread_time_ns).sum();
        let thread_time_ns: u64 = snapshots.iter().map(|snapshot| snapshot.thread_time_ns).sum();
        let thread_time_ns = thread_time_ns.saturating_sub(earlier);
        let processes = processes(snapshots, &waited);
        let timeline = sampled.as_ref().map(|sampled| Timeline::new(sampled, &classes, &names, &places));
        let beside = about.beside.take().map(|view| {
            let View { about, figures, sampled } = *view;
            Report::new(about, &[], &figures, Some(sampled), Wanted::default()).map(Box::new)
        });
        let mut report = Report {
            locks_asked: asked,
            ran_on,
            // Some start threads by other means than the C library's.
            threads: processes.iter().map(|process| process.threads.max(process.locking_threads)).sum(),
            locking_threads: snapshots.iter().map(|snapshot| u64::from(snapshot.threads)).sum(),
            processes,
            thread_time_ns,
            time: ThreadTime::default(),
            dropped_locks: snapshots.iter().map(|snapshot| snapshot.dropped_locks).sum(),
            dropped_waits: snapshots.iter().map(|snapshot| snapshot.dropped_waits).sum(),
            each: singles.map(Singles::finish),
            inside,
            events: Events::new(snapshots),
            arrays: Arrays::new(snapshots),
            modules: snapshots.iter().flat_map(|s| &s.modules).map(|module| module.path.clone()).collect(),
            roles: threads::roles(sampled.as_ref(), before, snapshots),
            timeline: timeline.unwrap_or_default(),
            runtimes: runtimes(snapshots),
            beside: beside.transpose()?,
            classes,
            names,
            sampled,
            sleeps,
            stuck,
            about,
        };
        let lost = report.locks().map(|class| class.figures.wait_ns).sum();
        let times =
            report.sampled.as_ref().map(|sampled| sampled.times_of(|pid| is_measured(snapshots, pid)));
        let recorded = threads::recorded(before, snapshots, (report.about.now_ns, report.about.wall_ns));
        report.time = ThreadTime::new(lost, thread_time_ns, recorded, times.as_ref());
        Ok(report)
    }

    /// How long threads waited for locks.
    pub(super) fn wait_ns(&self) -> u64 {
        self.time.lost_ns
    }

    /// The first sentences of a report: what was lost, in each of its views.
    pub(super) fn opening(&self) -> Vec<String> {
        let kind = if self.beside.is_some() { "pthread lock" } else { "lock that is counted" };
        let first = self.headline().unwrap_or_else(|| format!("No {kind} was used."));
        let beside = self.beside.as_ref().and_then(|view| view.headline());
        std::iter::once(first).chain(beside).collect()
    }

    /// Whether futex calls were seen, so that sleeps in them are in a table.
    pub(super) fn sees_futexes(&self) -> bool {
        self.about.futexes.is_some() || self.beside.is_some()
    }

    /// What was lost, in one sentence. `None` if there was nothing to lose it for.
    fn headline(&self) -> Option<String> {
        let by_calls = self.about.futexes.is_some();
        let threads = match self.time.is_sampled {
            true => counted(self.threads, "thread"),
            false => format!("the {} that used a lock", counted(self.locking_threads, "thread")),
        };
        let took = |whose: &str| {
            format!(
                "{whose} took {}: {} of the time in which {threads} had something to do, {} together.",
                duration(self.time.lost_ns),
                percent(self.time.lost()),
                duration(self.time.busy_ns)
            )
        };
        let beside = self.about.beside_library;
        if !by_calls {
            let whose = if self.beside.is_some() { "Waiting for pthread locks" } else { "Waiting for locks" };
            return self.locks().next().map(|_| took(whose));
        }
        if self.locks().any(|class| class.figures.contended > 0) {
            let other = "Sleeping for other locks, seen from outside,";
            return Some(took(if beside { other } else { "Sleeping for locks" }));
        }
        let of_kind = |class: &&Class| class.kind == LockKind::Futex;
        let unknown: u64 = self.others().filter(of_kind).map(|class| class.figures.wait_ns).sum();
        Some(format!(
            "No thread was seen to sleep for what is known to be {}. {} slept {} in futexes that may be locks.",
            if beside { "another lock" } else { "a lock" },
            counted(self.locking_threads, "thread"),
            duration(unknown)
        ))
    }

    /// What threads acquire and release.
    pub(super) fn locks(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(|class| class.kind.is_acquired())
    }

    /// What else they wait for.
    pub(super) fn others(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(|class| !class.kind.is_acquired())
    }

    /// Who made the waiters of a class wait. A readers-writer lock's holders are counted with their own side,
    /// whoever waits: so it is those of both sides, for the waits of both.
    pub(super) fn causes<'r>(&'r self, class: &'r Class) -> Causes<'r> {
        let other = self.other_side(class);
        let mut causes = Causes { of_both: other.is_some(), ..Causes::default() };
        for figures in std::iter::once(class).chain(other).map(|class| &class.figures) {
            causes.wait_ns += figures.wait_ns;
            causes.handover_ns += figures.handover_ns;
            causes.holders.extend(figures.holders.iter().filter(|(_, holder)| holder.caused_ns > 0));
        }
        // What is charged is rounded, one wait after the other.
        let parts =
            causes.holders.iter().map(|(_, holder)| holder.caused_ns).sum::<u64>() + causes.handover_ns;
        causes.wait_ns = causes.wait_ns.max(parts);
        causes.holders.sort_by_key(|(place, holder)| (std::cmp::Reverse(holder.caused_ns), **place));
        causes
    }

    /// The readers of the readers-writer locks whose writers these are, or the other way round.
    pub(super) fn other_side(&self, class: &Class) -> Option<&Class> {
        let kind = opposite(class.kind)?;
        // Of a member the line is one of several that take it.
        let same = |other: &&Class| {
            let known = class.origin == "member" || other.at == class.at;
            other.kind == kind && other.origin == class.origin && other.name == class.name && known
        };
        self.classes.iter().find(same)
    }

    /// The share of the threads' time that was lost for locks of a class; `None` of what is no lock.
    pub(super) fn share(&self, class: &Class) -> Option<f64> {
        self.time.share(class.kind, class.figures.wait_ns)
    }
}

/// Why threads waited for a class of locks.
#[derive(Default)]
pub(super) struct Causes<'r> {
    /// Whether it is about both sides of a readers-writer lock.
    pub(super) of_both: bool,
    /// By the line that acquired it and the stack that released it; most first.
    pub(super) holders: Vec<(&'r (StackId, StackId), &'r HolderFigures)>,
    /// All the waiting.
    pub(super) wait_ns: u64,
    /// While nobody had it.
    pub(super) handover_ns: u64,
}

/// Whether there are figures of this process.
fn is_measured(snapshots: &[Snapshot], pid: u32) -> bool {
    snapshots.iter().any(|snapshot| snapshot.pid == pid)
}

/// `waited`: how long each waited for locks.
fn processes(snapshots: &[Snapshot], waited: &[u64]) -> Vec<Process> {
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut all: Vec<Process> = Vec::new();
    for (snapshot, wait_ns) in snapshots.iter().zip(waited) {
        let place = *places.entry(snapshot.pid).or_insert(all.len());
        if place == all.len() {
            all.push(Process {
                pid: snapshot.pid,
                programs: Vec::new(),
                // A process that went from program to program left a file for each, and went on with one
                // thread.
                threads: 1,
                locking_threads: 0,
                thread_time_ns: 0,
                wait_ns: 0,
            });
        }
        let process = &mut all[place];
        process.programs.push(file_name(&snapshot.exe));
        process.programs.dedup();
        process.threads += u64::from(snapshot.started);
        process.locking_threads = process.locking_threads.max(u64::from(snapshot.threads));
        process.thread_time_ns += snapshot.thread_time_ns;
        process.wait_ns += wait_ns;
    }
    all
}

/// Single locks, the ones with most waiting of them.
struct Singles {
    shown: usize,
    locks: Vec<Class>,
    /// What is below this is not among them.
    least: Option<(u64, u64, u64)>,
}

impl Singles {
    fn add(
        &mut self,
        snapshot: &Snapshot,
        lock: &LockStats,
        space: &Space,
        known: &mut Known,
        grouping: &mut Grouping,
    ) {
        if !lock.kind.is_acquired() {
            return;
        }
        // What cannot be among the first is not named.
        if self.locks.len() >= 2 * self.shown.max(64) {
            self.cut();
        }
        let this = (lock.wait_total_ns, lock.contended, lock.acquisitions);
        if self.least.is_some_and(|least| this < least) {
            return;
        }
        let figures = class::Figures::of(lock, &mut grouping.names, space, known);
        self.locks.push(single(snapshot.pid, lock, figures, space, known, grouping));
    }

    fn cut(&mut self) {
        self.locks.sort_by_key(|class| std::cmp::Reverse(rank(&class.figures)));
        self.locks.truncate(self.shown);
        let last = self.locks.last().filter(|_| self.locks.len() == self.shown);
        self.least = last.map(|class| rank(&class.figures));
    }

    fn finish(mut self) -> Vec<Class> {
        self.cut();
        self.locks
    }
}

fn rank(figures: &class::Figures) -> (u64, u64, u64) {
    (figures.wait_ns, figures.contended, figures.acquisitions)
}

/// A lock as a class of its own.
fn single(
    pid: u32,
    lock: &LockStats,
    figures: class::Figures,
    space: &Space,
    known: &mut Known,
    grouping: &mut Grouping,
) -> Class {
    let made = grouping.names.stack(&lock.created_at, space, known);
    let line = grouping.names.first_of(made).map(|id| grouping.names.text(id).to_owned());
    let whole = class::WholeNames::default();
    let (origin, name, at) = match variable(lock, space) {
        Some(variable) => ("variable", variable.name, line.or(variable.declared_at).unwrap_or_default()),
        None if lock.address == 0 => ("unknown", lock.kind.to_string(), String::new()),
        None => match line {
            Some(line) => ("initialised", line, String::new()),
            None => ("address", format!("{:#x}", lock.object()), String::new()),
        },
    };
    let (processes, addresses) = (BTreeSet::from([pid]), HashSet::new());
    Class { name, at, whole, origin, kind: lock.kind, made, processes, addresses, figures }
}

fn variable(lock: &LockStats, space: &Space) -> Option<Variable> {
    if lock.address == 0 { None } else { space.variable(lock.object()) }
}

/// The processes of which threads are in any of these.
pub(super) fn several_processes(classes: &[Class]) -> bool {
    classes.iter().flat_map(|class| &class.processes).collect::<HashSet<_>>().len() > 1
}

fn spinlock(choice: Choice) -> &'static str {
    if choice.keeps_everything() {
        LockName::Glibc.name()
    } else {
        choice.spinlock().unwrap_or_else(poundlock_linux::machine::spinlock).name()
    }
}

/// Of which side of a readers-writer lock a row speaks, if of any.
pub(crate) fn side(kind: LockKind) -> Option<&'static str> {
    match kind {
        LockKind::RwReaders | LockKind::SharedRwReaders => Some("readers"),
        LockKind::RwWriters | LockKind::SharedRwWriters => Some("writers"),
        _ => None,
    }
}

/// The kind of the other side of such a lock.
pub(crate) fn opposite(kind: LockKind) -> Option<LockKind> {
    Some(match kind {
        LockKind::RwReaders => LockKind::RwWriters,
        LockKind::RwWriters => LockKind::RwReaders,
        LockKind::SharedRwReaders => LockKind::SharedRwWriters,
        LockKind::SharedRwWriters => LockKind::SharedRwReaders,
        _ => return None,
    })
}

/// a / b, and 0 where there was nothing.
pub(crate) fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// How a command ended that did not.
pub(super) const STILL_RUNNING: &str = "still running";

impl About {
    /// When the figures were read, in words.
    pub(super) fn when(&self) -> String {
        let when = if self.ending == STILL_RUNNING { "When the figures were read" } else { "At the end" };
        format!("{when} ({})", self.ending)
    }
}
