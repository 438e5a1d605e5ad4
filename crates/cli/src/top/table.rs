//! From figures to what is shown: what happened between two looks, by classes of locks and by threads.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use poundlock_statfile::{Holder, LockKind, LockStats, Site, ThreadStats};

use super::source::Looked;
use crate::observe::proc::{self, Sums, Task};
use crate::output::counted;
use crate::stat::class::{Class, Figures, Grouping, HolderFigures, Sorted};
use crate::stat::inside::{Inside, Made};
use crate::stat::lost::{Recorded, ThreadTime};
use crate::stat::names::{FrameId, Known, NO_STACK, StackId};
use crate::stat::report::{opposite, ratio};
use crate::stat::sampler::Times;
use crate::stat::{duration, text};

/// As many looks are remembered of all locks together, and of a class.
const REMEMBERED: usize = 240;
const REMEMBERED_OF_CLASS: usize = 20;
/// Threads whose names and CPU times are looked for, those that lost most first: some 10 us each.
const NAMED: usize = 256;

/// All that is known.
pub(super) struct Table {
    grouping: Grouping,
    processes: HashMap<u32, Process>,
    /// By group, the share that each look found.
    history: HashMap<usize, VecDeque<f64>>,
    /// Of all locks together.
    lost: VecDeque<f64>,
    /// `CLOCK_MONOTONIC` at the last look, and at the first one.
    last_ns: u64,
    began_ns: u64,
    sorts: Vec<Sorted>,
    /// By process and thread, the kernel's sums.
    tasks: HashMap<(u32, u32), Sums>,
}

/// A process, as it was at the last look.
struct Process {
    generation: u32,
    known: Known,
    /// By [`LockStats::slot`].
    locks: HashMap<u32, Before>,
    /// By [`ThreadStats::record`].
    threads: HashMap<u32, ThreadStats>,
}

/// A lock, as it was at the last look.
struct Before {
    stats: LockStats,
    /// Its group, once anybody has waited for it since we look.
    group: Option<usize>,
}

/// One look.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Since the look before, and since the first one.
    pub(super) span_ns: u64,
    pub(super) since_ns: u64,
    /// What is looked at.
    pub(super) processes: Vec<(u32, String)>,
    /// Threads that are there.
    pub(super) threads: u64,
    /// What shares are of, and how long they waited for locks.
    pub(super) time: ThreadTime,
    /// Shares of the last looks.
    pub(super) history: VecDeque<f64>,
    /// Classes that anybody has waited for since the first look.
    pub(super) rows: Vec<Row>,
    pub(super) by_thread: Vec<ThreadRow>,
    /// Locks that ended threads hold and others wait for, a sentence each.
    pub(super) stuck: Vec<String>,
}

/// A class of locks.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The first of its groups.
    pub(super) id: usize,
    pub(super) name: String,
    pub(super) kind: LockKind,
    /// Waits since the last look, and how long they took.
    pub(super) waits: u64,
    pub(super) wait_ns: u64,
    /// The share of the threads' time; `None` of what is no lock.
    pub(super) share: Option<f64>,
    /// Holds that others waited for; `None` if they are not seen.
    pub(super) holds: Option<(u64, u64)>,
    /// Threads that wait now.
    pub(super) waiting: u64,
    /// How long threads waited, as a share of the time in which they had something to do, at the last looks.
    pub(super) history: VecDeque<f64>,
    /// What was at fault most, in words; may be empty.
    pub(super) line: String,
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadRow {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) name: String,
    /// Waits for locks since the last look.
    pub(super) waits: u64,
    pub(super) lost_ns: u64,
    /// How long it waited for anything else.
    pub(super) other_ns: u64,
    /// On a CPU, and ready without one; `None` if that is not known.
    pub(super) ran_ns: Option<u64>,
    pub(super) ready_ns: Option<u64>,
    /// What it does now, in words.
    pub(super) doing: String,
}

impl ThreadRow {
    /// Adds what futex calls show of the thread beside its own record, which has its other waits.
    fn add(&mut self, seen: ThreadRow) {
        self.waits += seen.waits;
        self.lost_ns += seen.lost_ns;
        if self.doing.is_empty() {
            self.doing = seen.doing;
        }
    }
}

/// Sums of one look.
#[derive(Default)]
struct Tally {
    view: View,
    threads: Vec<Recorded>,
    by_group: BTreeMap<usize, Figures>,
    waiting: HashMap<usize, u64>,
    inexact: HashSet<usize>,
}

impl Table {
    pub(super) fn new(now_ns: u64) -> Table {
        Table {
            grouping: Grouping::new(),
            processes: HashMap::new(),
            history: HashMap::new(),
            lost: VecDeque::new(),
            last_ns: now_ns,
            began_ns: now_ns,
            sorts: Vec::new(),
            tasks: HashMap::new(),
        }
    }

    /// Forgets what was found so far.
    pub(super) fn begin_anew(&mut self) {
        self.began_ns = self.last_ns;
        self.history.clear();
        self.lost.clear();
        for sort in &self.sorts {
            for &group in &sort.groups {
                let figures = self.grouping.figures(group);
                *figures = Figures { locks: figures.locks, ..Figures::default() };
            }
        }
    }

    /// Takes in a look. Of processes that ran before the first look its figures are where counting begins.
    /// `times` is where the threads' time went since the last look.
    pub(super) fn take(
        &mut self,
        all: Vec<Looked>,
        times: Option<&Times>,
        now_ns: u64,
        threads: bool,
    ) -> View {
        let span_ns = now_ns.saturating_sub(self.last_ns);
        let began_ns = self.began_ns;
        self.last_ns = now_ns;
        let mut tally = Tally::default();
        for looked in all {
            self.process(looked, (span_ns, now_ns, began_ns), &mut tally);
        }
        let Tally { mut view, threads: recorded, by_group, waiting, inexact } = tally;
        view.span_ns = span_ns;
        view.since_ns = now_ns.saturating_sub(began_ns);
        let lost = by_group.iter().filter(|&(&group, _)| self.grouping.kind(group).is_acquired());
        let lost_ns = lost.map(|(_, figures)| figures.wait_ns).sum();
        self.sorts = self.grouping.sorts();
        let lived_ns = recorded.iter().map(|thread| thread.lived_ns).sum();
        view.time = ThreadTime::new(lost_ns, lived_ns, recorded, times);
        remember(&mut self.lost, view.time.lost(), REMEMBERED);
        view.history = self.lost.clone();
        let several = view.processes.len() > 1;
        for index in 0..self.sorts.len() {
            if let Some(row) = self.row(index, (&view, several), &by_group, &waiting, &inexact) {
                view.rows.push(row);
            }
        }
        view.by_thread
            .sort_by_key(|thread| (std::cmp::Reverse((thread.lost_ns, thread.other_ns)), thread.tid));
        if threads {
            self.look_at_tasks(&mut view);
        }
        view
    }

    fn row(
        &mut self,
        index: usize,
        (view, several): (&View, bool),
        by_group: &BTreeMap<usize, Figures>,
        waiting: &HashMap<usize, u64>,
        inexact: &HashSet<usize>,
    ) -> Option<Row> {
        let (sort, grouping) = (&mut self.sorts[index], &mut self.grouping);
        let mut now = Figures::default();
        let (mut waits, mut locks) = (0, 0);
        for group in &sort.groups {
            if let Some(figures) = by_group.get(group) {
                now.add(figures);
            }
            let all = grouping.figures(*group);
            waits += all.contended;
            locks += all.locks;
        }
        let waiting = sort.groups.iter().filter_map(|group| waiting.get(group)).sum();
        if waits == 0 && waiting == 0 {
            return None;
        }
        sort.class.figures.locks = locks;
        let id = sort.groups[0];
        let history = self.history.entry(id).or_default();
        remember(history, ratio(now.wait_ns, view.time.busy_ns).min(1.0), REMEMBERED_OF_CLASS);
        let history = history.clone();
        let exact = !sort.groups.iter().any(|group| inexact.contains(group));
        let holds =
            (exact && sort.class.kind.is_acquired()).then_some((now.waited_holds, now.waited_hold_ns));
        Some(Row {
            id,
            name: text::title(&sort.class, several),
            kind: sort.class.kind,
            waits: now.contended,
            wait_ns: now.wait_ns,
            share: view.time.share(sort.class.kind, now.wait_ns),
            holds,
            waiting,
            history,
            line: self.line(&now, exact),
        })
    }

    /// The line to change: where it was taken by those who made others wait; of what has no holders, where
    /// threads wait.
    fn line(&self, figures: &Figures, exact: bool) -> String {
        let names = &self.grouping.names;
        let mut by_line: HashMap<(&str, FrameId), u64> = HashMap::new();
        for (&(acquired, released), holder) in &figures.holders {
            let line = if exact {
                names.line_of_holder(acquired, released)
            } else {
                names.line_of(released).map(|id| ("woken at", id))
            };
            if let Some(line) = line {
                *by_line.entry(line).or_default() += holder.caused_ns;
            }
        }
        if let Some(((did, id), _)) = by_line.into_iter().max_by_key(|&(line, ns)| (ns, line)) {
            let did = match did {
                "took it" => "held from",
                "let go of it" => "held until",
                did => did,
            };
            return format!("{did} {}", names.text(id));
        }
        let line = figures.longest_site().and_then(|(stack, _)| names.line_of(stack));
        line.map(|id| format!("waiting in {}", names.text(id))).unwrap_or_default()
    }

    fn process(&mut self, looked: Looked, (span_ns, now_ns, began_ns): (u64, u64, u64), tally: &mut Tally) {
        let snapshot = &looked.snapshot;
        // What began before we looked counts from the first look on.
        let is_new = !self.processes.contains_key(&looked.id);
        let counts = !is_new || snapshot.start_ns >= began_ns;
        let process = self.processes.entry(looked.id).or_insert_with(|| Process {
            generation: looked.generation,
            known: Known::default(),
            locks: HashMap::new(),
            threads: HashMap::new(),
        });
        if process.generation != looked.generation {
            (process.generation, process.known) = (looked.generation, Known::default());
        }
        process.known.again();
        for lock in looked.locks {
            let before = process.locks.remove(&lock.slot);
            let mut group = before.as_ref().and_then(|before| before.group);
            let change =
                counts.then(|| difference(&lock, before.as_ref().map(|before| &before.stats))).flatten();
            if let Some(change) = change {
                let (space, known) = (&looked.space, &mut process.known);
                let is_first = group.is_none();
                let place =
                    *group.get_or_insert_with(|| self.grouping.place(snapshot.pid, &lock, space, known));
                let mut figures = Figures::of(&change, &mut self.grouping.names, space, known);
                (figures.locks, figures.waited_locks) = (u64::from(is_first), u64::from(is_first));
                self.grouping.count(place, snapshot.pid, &lock);
                self.grouping.figures(place).add(&figures);
                tally.by_group.entry(place).or_default().add(&figures);
                if !looked.exact {
                    tally.inexact.insert(place);
                }
            }
            process.locks.insert(lock.slot, Before { stats: lock, group });
        }
        let by_address: HashMap<(u64, LockKind), usize> = process
            .locks
            .values()
            .filter_map(|before| Some(((before.stats.address, before.stats.kind), before.group?)))
            .collect();
        let name_of = |address: u64, kind: LockKind| -> String {
            let variable = || Some(looked.space.variables(kind.object(address))?.name.clone());
            let class = || {
                let group = by_address.get(&(address, kind))?;
                let sort = self.sorts.iter().find(|sort| sort.groups.contains(group))?;
                Some(text::title(&sort.class, false))
            };
            variable().or_else(class).unwrap_or_else(|| format!("a {}", text::noun(kind)))
        };
        let waited: HashSet<u64> = snapshot
            .records
            .iter()
            .filter_map(|record| record.waits.as_ref())
            .map(|wait| wait.kind.object(wait.address))
            .collect();
        for record in &snapshot.records {
            let before = process.threads.get(&record.record);
            let since = |of: fn(&ThreadStats) -> u64| {
                of(record).saturating_sub(before.map_or(0, of)) * u64::from(counts)
            };
            let lost_ns = since(|record| record.lock_wait_ns);
            let other_ns = since(|record| record.wait_ns.saturating_sub(record.lock_wait_ns));
            // A thread that has ended since lived up to now, more or less.
            let lived = record.lives || looked.over && before.is_some_and(|before| before.lives);
            if let Some(wait) = record.waits.as_ref().filter(|_| lived)
                && let Some(&group) = by_address.get(&(wait.address, wait.kind))
            {
                *tally.waiting.entry(group).or_default() += 1;
            }
            if !lived {
                continue;
            }
            let row = ThreadRow {
                pid: looked.pid.unwrap_or(snapshot.pid),
                tid: record.tid,
                waits: since(|record| record.lock_waits),
                lost_ns,
                other_ns,
                doing: doing(record, now_ns, &waited, name_of),
                ..ThreadRow::default()
            };
            let same = |known: &&mut ThreadRow| (known.pid, known.tid) == (row.pid, row.tid);
            if let Some(known) = tally.view.by_thread.iter_mut().filter(|_| looked.beside).find(same) {
                known.add(row);
                continue;
            }
            tally.view.threads += 1;
            tally.threads.push(Recorded {
                lived_ns: now_ns.saturating_sub(record.started_ns).min(span_ns),
                lock_wait_ns: lost_ns,
                other_wait_ns: other_ns,
            });
            tally.view.by_thread.push(row);
        }
        if snapshot.records.iter().any(|record| record.ended.is_some() && !record.holds.is_empty()) {
            let mut made = Made::of(snapshot);
            process.locks.values().for_each(|lock| made.note(&lock.stats));
            let mut inside = Inside::default();
            inside.add(snapshot, &made, &looked.space, now_ns);
            tally.view.stuck.extend(inside.ended_holders());
        }
        let pid = snapshot.pid;
        process.threads = looked.snapshot.records.into_iter().map(|record| (record.record, record)).collect();
        if !looked.beside {
            tally.view.processes.push((looked.pid.unwrap_or(pid), looked.name));
        }
        if looked.over {
            self.processes.remove(&looked.id);
        }
    }

    /// Names and CPU times of threads.
    fn look_at_tasks(&mut self, view: &mut View) {
        let mut tasks = HashMap::new();
        let mut ids: HashMap<u32, HashMap<u32, u32>> = HashMap::new();
        for thread in view.by_thread.iter_mut().take(NAMED) {
            let ids = ids.entry(thread.pid).or_insert_with(|| outer_ids(thread.pid));
            let tid = ids.get(&thread.tid).copied().unwrap_or(thread.tid);
            let task = Task::new(thread.pid, tid, false);
            let Some(sums) = task.sums() else { continue };
            thread.name = task.name().unwrap_or_default();
            if let Some(before) = self.tasks.get(&(thread.pid, tid)) {
                thread.ran_ns = Some(sums.run.saturating_sub(before.run));
                let delays = sums.delay.zip(before.delay);
                thread.ready_ns = delays.map(|(now, before)| now.saturating_sub(before));
            }
            tasks.insert((thread.pid, tid), sums);
        }
        self.tasks = tasks;
    }

    /// Everything about a class since the first look: who waited, and for whom.
    pub(super) fn detail(&mut self, id: usize) -> Option<Text> {
        let at = self.sorts.iter().position(|sort| sort.groups[0] == id)?;
        let mut own = Figures::default();
        for &group in &self.sorts[at].groups {
            own.add(self.grouping.figures(group));
        }
        let mut causes = own.clone();
        let class = &self.sorts[at].class;
        // Of a readers-writer lock holders are counted with their own side, whoever waits.
        let other = self.sorts.iter().find(|sort| is_other_side(class, &sort.class));
        for &group in other.map_or(&[][..], |other| &other.groups) {
            causes.add(self.grouping.figures(group));
        }
        let names = &self.grouping.names;
        let mut detail = Text { title: text::title(class, false), lines: Vec::new() };
        let waits = counted(own.contended, "wait");
        let average = text::average(own.wait_ns, own.contended);
        detail.put(Mark::Plain, 0, format!("{} in {waits}, {average} on average", duration(own.wait_ns)));
        if !class.at.is_empty() {
            detail.put(Mark::Plain, 0, class.at.clone());
        }
        if own.in_vain > 0 {
            let vain = format!("woken in vain {} of {} times", own.in_vain, own.contended);
            detail.put(Mark::Plain, 0, vain);
        }
        detail.put(Mark::Plain, 0, String::new());
        detail.put(Mark::Strong, 0, "threads waited at".to_owned());
        let sites = text::by_line(names, own.sites.iter().map(|(stack, site)| (*stack, *site)));
        let total: u64 = sites.iter().map(|(_, site)| site.wait_ns).sum();
        for (stack, site) in sites.iter().take(PLACES) {
            let waits = counted(site.contended, "wait");
            let share = text::percent(ratio(site.wait_ns, total));
            let line = format!("{share:>7}  {} in {waits}", duration(site.wait_ns));
            detail.put(Mark::Strong, 0, line);
            self.frames(&mut detail, *stack);
        }
        detail.more(sites.len());
        let exact = class.kind.is_acquired() && causes.acquisitions > 0;
        let mut holders: Vec<(&(StackId, StackId), &HolderFigures)> =
            causes.holders.iter().filter(|(_, holder)| holder.caused_ns > 0).collect();
        holders.sort_by_key(|(place, holder)| (std::cmp::Reverse(holder.caused_ns), **place));
        if holders.is_empty() {
            return Some(detail);
        }
        let both = if other.is_some() { " (readers and writers)" } else { "" };
        let heading = if exact { format!("made to wait by{both}") } else { "woken by".to_owned() };
        detail.put(Mark::Plain, 0, String::new());
        detail.put(Mark::Strong, 0, heading);
        let of =
            if exact { causes.wait_ns } else { holders.iter().map(|(_, holder)| holder.caused_ns).sum() };
        for &(&(acquired, released), holder) in holders.iter().take(PLACES) {
            let share = text::percent(ratio(holder.caused_ns, of));
            let caused = duration(holder.caused_ns);
            let what = match (exact, holder.holds) {
                (false, n) => counted(n, "wake-up"),
                (true, 0) => "has not released it".to_owned(),
                (true, n) => {
                    format!("{} of {} on average", counted(n, "hold"), duration(holder.hold_ns / n))
                }
            };
            detail.put(Mark::Strong, 0, format!("{share:>7}  {caused}: {what}"));
            if let Some(line) = names.line_of(acquired) {
                detail.put(Mark::Plain, INDENT, format!("took it at {}", names.text(line)));
            }
            if exact && released != NO_STACK {
                detail.put(Mark::Plain, INDENT, "let go of it at".to_owned());
            }
            self.frames(&mut detail, released);
        }
        detail.more(holders.len());
        if exact && causes.handover_ns > 0 {
            let share = text::percent(ratio(causes.handover_ns, causes.wait_ns));
            let handover = duration(causes.handover_ns);
            detail.put(Mark::Strong, 0, format!("{share:>7}  {handover}: nobody, on its way to the next"));
        }
        Some(detail)
    }

    /// The frames of interest of a stack.
    fn frames(&self, detail: &mut Text, stack: StackId) {
        let names = &self.grouping.names;
        for frame in names.interesting(stack) {
            detail.put(Mark::Plain, INDENT, names.text(frame).to_owned());
        }
    }
}

/// As many places of a class are shown,
const PLACES: usize = 8;
/// and frames begin so far to the right.
const INDENT: usize = 9;

/// A page of text.
pub(super) struct Text {
    pub(super) title: String,
    pub(super) lines: Vec<(Mark, String)>,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Plain,
    Strong,
}

impl Text {
    fn put(&mut self, mark: Mark, indent: usize, line: String) {
        self.lines.push((mark, format!("{:indent$}{line}", "")));
    }

    fn more(&mut self, places: usize) {
        if places > PLACES {
            let more = counted((places - PLACES) as u64, "more place");
            self.put(Mark::Plain, INDENT, format!("and {more}"));
        }
    }
}

/// Whether these are the readers of the readers-writer locks whose writers those are, or the other way round.
fn is_other_side(class: &Class, other: &Class) -> bool {
    // Of a member the line is one of several that take it.
    let same = class.origin == "member" || other.at == class.at;
    opposite(class.kind) == Some(other.kind)
        && other.origin == class.origin
        && other.name == class.name
        && same
}

fn remember(history: &mut VecDeque<f64>, share: f64, most: usize) {
    if history.len() == most {
        history.pop_front();
    }
    history.push_back(share);
}

/// What a thread does now: what it waits for, or else what it holds that others wait for.
fn doing(
    record: &ThreadStats,
    now_ns: u64,
    waited: &HashSet<u64>,
    name_of: impl Fn(u64, LockKind) -> String,
) -> String {
    let since = |ns: u64| duration(now_ns.saturating_sub(ns));
    if let Some(wait) = &record.waits {
        return format!("waits for {}, {}", name_of(wait.address, wait.kind), since(wait.since_ns));
    }
    let held = record.holds.iter().find(|hold| waited.contains(&hold.kind.object(hold.address)));
    let Some(hold) = held else { return String::new() };
    let since = hold.since_ns.map(|ns| format!(", {}", since(ns))).unwrap_or_default();
    format!("holds {}{since}", name_of(hold.address, hold.kind))
}

/// Our ids of the threads of a process, by those that they have in its namespace; empty if they are the same.
fn outer_ids(pid: u32) -> HashMap<u32, u32> {
    if proc::inner_pid(pid).is_none_or(|inner| inner == pid) {
        return HashMap::new();
    }
    let tids = proc::tasks(pid).unwrap_or_default();
    tids.into_iter().filter_map(|tid| Some((Task::new(pid, tid, false).inner_id()?, tid))).collect()
}

/// What a lock's sums have gained since they were read before; `None` if nothing.
fn difference(now: &LockStats, before: Option<&LockStats>) -> Option<LockStats> {
    let Some(before) = before else { return Some(now.clone()) };
    let same = |of: fn(&LockStats) -> u64| of(now) == of(before);
    if same(|lock| lock.contended) && same(|lock| lock.wait_total_ns) && same(|lock| lock.waited_holds) {
        return None;
    }
    let gained = |of: fn(&LockStats) -> u64| of(now).saturating_sub(of(before));
    let sites = now.sites.iter().enumerate().filter_map(|(at, site)| {
        let was = was(&before.sites, at, |other| other.stack == site.stack);
        let gained = |of: fn(&Site) -> u64| of(site).saturating_sub(was.map_or(0, of));
        let change = Site {
            stack: site.stack.clone(),
            contended: gained(|site| site.contended),
            wait_ns: gained(|site| site.wait_ns),
            wait_max_ns: site.wait_max_ns,
            timeouts: gained(|site| site.timeouts),
            in_vain: gained(|site| site.in_vain),
        };
        (change.contended | change.wait_ns != 0).then_some(change)
    });
    let holders = now.holders.iter().enumerate().filter_map(|(at, holder)| {
        let is_it = |other: &Holder| other.acquired_at == holder.acquired_at && other.stack == holder.stack;
        let was = was(&before.holders, at, is_it);
        let gained = |of: fn(&Holder) -> u64| of(holder).saturating_sub(was.map_or(0, of));
        let change = Holder {
            acquired_at: holder.acquired_at,
            stack: holder.stack.clone(),
            holds: gained(|holder| holder.holds),
            hold_ns: gained(|holder| holder.hold_ns),
            hold_max_ns: holder.hold_max_ns,
            caused_ns: gained(|holder| holder.caused_ns),
        };
        (change.holds | change.caused_ns != 0).then_some(change)
    });
    Some(LockStats {
        address: now.address,
        kind: now.kind,
        slot: now.slot,
        created_at: now.created_at.clone(),
        acquisitions: gained(|lock| lock.acquisitions),
        contended: gained(|lock| lock.contended),
        timeouts: gained(|lock| lock.timeouts),
        wait_total_ns: gained(|lock| lock.wait_total_ns),
        wait_max_ns: now.wait_max_ns,
        waited_holds: gained(|lock| lock.waited_holds),
        waited_hold_ns: gained(|lock| lock.waited_hold_ns),
        handover_ns: gained(|lock| lock.handover_ns),
        in_vain: gained(|lock| lock.in_vain),
        sites: sites.collect(),
        holders: holders.collect(),
        ..LockStats::default()
    })
}

/// Where the order has hardly changed what is looked for is at the same place.
fn was<T>(before: &[T], at: usize, is_it: impl Fn(&T) -> bool) -> Option<&T> {
    before.get(at).filter(|there| is_it(there)).or_else(|| before.iter().find(|there| is_it(there)))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::rc::Rc;
    use std::sync::Arc;

    use poundlock_statfile::{Snapshot, WaitNow};

    use super::*;
    use crate::observe::symbols::Symbols;

    fn lock(slot: u32, contended: u64, wait_total_ns: u64) -> LockStats {
        let half = |at: u64, share: u64| Site {
            stack: Arc::from([at, 7]),
            contended: contended * share / 4,
            wait_ns: wait_total_ns * share / 4,
            ..Site::default()
        };
        LockStats {
            address: 0x1000 + u64::from(slot),
            slot,
            contended,
            wait_total_ns,
            waited_holds: contended,
            waited_hold_ns: contended * 500,
            sites: vec![half(0x40, 3), half(0x50, 1)],
            ..LockStats::default()
        }
    }

    fn looked(start_ns: u64, locks: Vec<LockStats>, wait_ns: u64, over: bool) -> Looked {
        let symbols: &'static Symbols = Box::leak(Box::new(Symbols::new()));
        let record = ThreadStats {
            record: 1,
            tid: 2,
            lives: true,
            started_ns: start_ns,
            wait_ns,
            lock_wait_ns: wait_ns,
            waits: Some(WaitNow { address: 0x1001, since_ns: 10, ..WaitNow::default() }),
            ..ThreadStats::default()
        };
        Looked {
            id: 1,
            pid: None,
            name: "server".to_owned(),
            snapshot: Snapshot { pid: 1, start_ns, records: vec![record], ..Snapshot::default() },
            locks,
            space: Rc::new(symbols.space_of(Cow::Owned(Snapshot::default()))),
            generation: 1,
            exact: true,
            beside: false,
            over,
        }
    }

    #[test]
    fn counting_begins_at_the_first_look_at_what_ran_before() {
        let mut table = Table::new(1_000);
        let view = table.take(vec![looked(500, vec![lock(1, 8, 800)], 800, false)], None, 2_000, false);
        assert!(view.rows.is_empty() && view.time.lost_ns == 0, "{view:?}");
        let view = table.take(vec![looked(500, vec![lock(1, 12, 1_200)], 1_200, false)], None, 3_000, false);
        let row = &view.rows[0];
        assert_eq!((row.waits, row.wait_ns, row.holds, row.waiting), (4, 400, Some((4, 2_000)), 1));
        assert_eq!((view.time.lost_ns, view.time.busy_ns, view.threads), (400, 1_000, 1));
        assert!(view.by_thread[0].doing.starts_with("waits for "), "{view:?}");
        assert!((view.time.lost() - 0.4).abs() < 1e-9);
        // Nothing has happened: the row stays.
        let view = table.take(vec![looked(500, vec![lock(1, 12, 1_200)], 1_200, false)], None, 4_000, false);
        assert_eq!((view.rows[0].wait_ns, view.time.lost_ns, view.rows[0].history.len()), (0, 0, 2));
        let detail = table.detail(view.rows[0].id).expect("it is known");
        assert!(detail.lines[0].1.starts_with("400 ns in 4 waits"), "{:?}", detail.lines);
        table.begin_anew();
        let view = table.take(vec![looked(500, vec![lock(1, 12, 1_200)], 1_200, true)], None, 5_000, false);
        assert_eq!(view.processes.len(), 1);
    }

    #[test]
    fn a_process_that_began_later_counts_from_its_start() {
        let mut table = Table::new(1_000);
        let view = table.take(vec![looked(1_500, vec![lock(1, 8, 800)], 800, false)], None, 3_000, false);
        assert_eq!((view.rows[0].wait_ns, view.time.busy_ns), (800, 1_500));
        // A lock that is another one's neighbour in the file, and of the same sort.
        let locks = vec![lock(1, 8, 800), lock(2, 4, 100)];
        let view = table.take(vec![looked(1_500, locks, 900, false)], None, 4_000, false);
        assert_eq!(view.rows.iter().map(|row| row.wait_ns).sum::<u64>(), 100);
    }

    #[test]
    fn places_are_found_again_in_another_order() {
        let before = lock(1, 8, 800);
        let mut now = lock(1, 12, 1_200);
        now.sites.reverse();
        let change = difference(&now, Some(&before)).expect("it has changed");
        let sites: Vec<_> =
            change.sites.iter().map(|site| (site.stack[0], site.contended, site.wait_ns)).collect();
        assert_eq!(sites, [(0x50, 1, 100), (0x40, 3, 300)]);
        assert_eq!(difference(&now, Some(&now)), None);
    }
}
