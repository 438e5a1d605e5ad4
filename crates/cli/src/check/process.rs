//! A checked process, followed from its first lock to its end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use poundlock_order::{Cycle, Evidence, Limits, Order};
use poundlock_statfile::check::{ClassKey, Edge, End, Event, Held, LockId, Misuse, Mode, Serial, Wrong};
use poundlock_statfile::{LiveThread, LockKind, Logged, Snapshot};

use crate::observe::place::is_alive;
use crate::observe::proc::{self, Seen, Task};
use crate::observe::runtime::Runtime;
use crate::observe::symbols::{Symbols, file_name};

use super::arrays::Waiting;
use super::blind::{Blind, Unexplained};
use super::collector::{Amendment, Collector};
use super::deadlock::{Party, Waits, stands};
use super::feed::{Described, Feed};
use super::finding::{Process as Place, Stack, Thread, making_line};
use super::long::{Holds, Long};
use super::naming::Naming;
use super::report::{NoRoom, Seen as Looked};
use super::tell::{Parties, Teller};
use super::watcher::Settings;

/// So many times a process's log is read in a round, if it has more each time: all of a full log.
const SLICES_A_ROUND: usize = 64;
/// Steps of searches that were put off, in each round without events,
const STEPS_A_ROUND: u64 = 1 << 16;
/// and at the end of the process.
const STEPS_AT_THE_END: u64 = 50_000_000;
/// Looks after which a thread's name is read again: threads often get theirs after their start.
const NAME_LOOKS: u32 = 64;

/// A process, as long as it is one program.
pub(super) struct Process {
    pub(super) path: PathBuf,
    /// How many files were opened before this one.
    pub(super) opened: usize,
    /// In its own namespace, and in ours.
    pub(super) inner: u32,
    pub(super) outer: u32,
    feed: Feed,
    order: Order,
    exe: String,
    threads: HashMap<Serial, Thread>,
    looks: HashMap<Serial, u32>,
    known: HashMap<LockId, Described>,
    /// What a class of the process, which is a stack, counts as: the first one of the same line.
    classes: HashMap<ClassKey, ClassKey>,
    lines: HashMap<String, ClassKey>,
    /// Cycles through condition variables, which are told at the end.
    with_conditions: Vec<Cycle>,
    /// What was held at every signal of a condition variable.
    signalled: HashMap<LockId, Vec<LockId>>,
    /// Those that count in the file now.
    now: Vec<LiveThread>,
    waits: Waits,
    holds: Holds,
    /// Sleeps that no record explains.
    unexplained: Unexplained,
    waits_looked_at: u64,
    holds_looked_at: u64,
    /// Whether an event has come in the last round.
    busy: bool,
}

/// Between two looks at waits, in nanoseconds.
const WAITS_NS: u64 = 10_000_000;

impl Process {
    /// `None` if the file is not finished.
    pub(super) fn open(
        path: &Path,
        opened: usize,
        outer: impl Fn(u32) -> u32,
        guard_sets: usize,
    ) -> Result<Option<Process>, poundlock_statfile::Error> {
        let Some(feed) = Feed::open(path)? else { return Ok(None) };
        let inner = feed.pid();
        Ok(Some(Process {
            path: path.to_owned(),
            opened,
            inner,
            outer: outer(inner),
            exe: feed.exe(),
            feed,
            order: Order::with_limits(Limits { guards_a_pair: guard_sets, ..Limits::default() }),
            threads: HashMap::new(),
            looks: HashMap::new(),
            known: HashMap::new(),
            classes: HashMap::new(),
            lines: HashMap::new(),
            with_conditions: Vec::new(),
            signalled: HashMap::new(),
            now: Vec::new(),
            waits: Waits::default(),
            holds: Holds::default(),
            unexplained: Unexplained::default(),
            waits_looked_at: 0,
            holds_looked_at: 0,
            busy: false,
        }))
    }

    pub(super) fn exe(&self) -> &str {
        &self.exe
    }

    /// Whether it has ended, or is about to become another program.
    pub(super) fn has_ended(&self) -> bool {
        self.feed.has_ended()
    }

    /// Whether nobody has cut its file short.
    pub(super) fn is_whole(&self) -> bool {
        self.feed.is_whole()
    }

    pub(super) fn is_alive(&self) -> bool {
        is_alive(self.outer)
    }

    /// One round: what came since the last one, and what there is to see now. `gone`: it will log nothing more.
    pub(super) fn follow(
        &mut self,
        gone: bool,
        now: u64,
        settings: &Settings,
        symbols: &Symbols,
        collector: &mut Collector,
    ) {
        if !self.feed.is_whole() {
            return;
        }
        self.feed.look(&mut self.now);
        self.name_threads();
        self.busy = false;
        for _ in 0..SLICES_A_ROUND {
            let (events, more) = self.feed.events(gone);
            self.busy |= !events.is_empty();
            for logged in events {
                self.event(logged, now, settings, symbols, collector);
            }
            if !more {
                break;
            }
        }
        let steps = if gone { STEPS_AT_THE_END } else { STEPS_A_ROUND };
        if (gone || !self.busy) && self.order.statistics().pending > 0 {
            let cycles = self.order.search_more(steps);
            self.cycles(&cycles, now, symbols, collector);
        }
        let nestings = self.order.take_nestings();
        if !nestings.is_empty() {
            let found = self.tell(now, symbols, |teller| {
                nestings.iter().map(|one| teller.nesting(one)).collect::<Vec<_>>()
            });
            collector.add_all(found);
        }
        if gone {
            self.settle(now, symbols, collector);
        } else {
            self.unexplained.look(&self.feed, &self.now, (self.outer, self.inner), now);
            self.look_at_waits(now, symbols, collector);
            self.look_at_holds(now, settings, symbols, collector);
        }
    }

    fn name_threads(&mut self) {
        let serials: Vec<(Serial, u32)> =
            self.now.iter().map(|thread| (self.feed.serial(thread.record), thread.tid)).collect();
        for (serial, tid) in serials {
            let looks = self.looks.entry(serial).or_insert(0);
            *looks += 1;
            if (*looks < NAME_LOOKS && looks.is_power_of_two()) || looks.is_multiple_of(NAME_LOOKS) {
                self.name_thread(serial, tid);
            }
        }
        if self.looks.len() > 2 * self.now.len() + 1024 {
            let live: Vec<Serial> = self.now.iter().map(|thread| self.feed.serial(thread.record)).collect();
            self.looks.retain(|serial, _| live.contains(serial));
        }
    }

    /// Takes note of a thread's id, and of its name if it is there to be asked for it.
    fn name_thread(&mut self, serial: Serial, tid: u32) {
        let known = self.threads.entry(serial);
        let thread = known.or_insert_with(|| Thread { tid, name: String::new(), is_main: tid == self.inner });
        if tid != 0 {
            thread.tid = tid;
        }
        let outer = if self.inner == self.outer { Some(tid) } else { outer_tid(self.outer, tid) };
        if let Some(name) = outer.and_then(|tid| Task::new(self.outer, tid, false).name()) {
            thread.name = name;
        }
    }

    /// The process says how a thread is called, or was.
    fn named(&mut self, serial: Serial, tid: u32, name: String) {
        let is_main = tid == self.inner;
        let thread =
            self.threads.entry(serial).or_insert_with(|| Thread { tid, name: String::new(), is_main });
        thread.name = name;
    }

    fn event(
        &mut self,
        logged: Logged,
        now: u64,
        settings: &Settings,
        symbols: &Symbols,
        collector: &mut Collector,
    ) {
        let Logged { moment, tid, name, event, locks } = logged;
        for lock in &locks {
            self.known.entry(lock.lock).or_insert_with(|| lock.into());
        }
        let serial = match &event {
            Event::Edge(edge) => Some(edge.thread),
            Event::Wrote { thread, .. } => Some(*thread),
            Event::Misuse(misuse) => Some(misuse.thread),
            Event::Died(_) | Event::Placed { .. } | Event::Signalled { .. } | Event::Named(_) => None,
        };
        if let Some(serial) = serial.filter(|serial| tid != 0 && !self.threads.contains_key(serial)) {
            self.name_thread(serial, tid);
        }
        // One that is there still may have another name by now.
        if let Some(serial) =
            serial.filter(|serial| self.threads.get(serial).is_none_or(|thread| thread.name.is_empty()))
        {
            self.named(serial, tid, name.clone());
        }
        match event {
            Event::Edge(edge) => self.edge(edge, now, symbols, collector),
            Event::Named(thread) => self.named(thread, tid, name),
            Event::Died(lock) => self.order.died(lock, moment),
            Event::Wrote { thread, lock, class, made } => {
                let class = self.class(class, symbols);
                let cycles = self.order.wrote(thread, lock, class, made);
                self.cycles(&cycles, now, symbols, collector);
            }
            Event::Placed { lock, place } => self.order.placed(lock, place),
            Event::Signalled { lock, held } => {
                self.order.signalled(lock, &held);
                self.signalled(lock, &held);
            }
            Event::Misuse(misuse) if misuse.what == Wrong::LetGo => {
                self.let_go(&misuse, now, settings, symbols, collector);
            }
            Event::Misuse(misuse) => {
                let finding = self.tell(now, symbols, |teller| teller.misuse(&misuse));
                collector.add_all(finding);
            }
        }
    }

    /// The class of all locks that one line has made, whoever called the function that it is in. A function that
    /// makes locks for others is no such line.
    fn class(&mut self, class: ClassKey, symbols: &Symbols) -> ClassKey {
        if class.0 & ClassKey::BY_STACK == 0 {
            return class;
        }
        if let Some(&known) = self.classes.get(&class) {
            return known;
        }
        let stack = self.feed.class_stack(class);
        let frames = self.tell(0, symbols, |teller| teller.naming.making(&stack));
        let line = making_line(&frames).filter(|line| !line.module.is_empty());
        // What wraps the call is a part of it: a function that makes locks can make several, each on a line.
        let upto = line.and_then(|line| frames.iter().position(|frame| std::ptr::eq(frame, line)));
        let key = |upto: usize| {
            frames[..=upto].iter().map(|frame| frame.whole.as_str()).collect::<Vec<_>>().join("\n")
        };
        let of_line = upto.map(key).map_or(class, |line| *self.lines.entry(line).or_insert(class));
        self.classes.insert(class, of_line);
        of_line
    }

    fn edge(&mut self, mut edge: Edge, now: u64, symbols: &Symbols, collector: &mut Collector) {
        edge.from.class = self.class(edge.from.class, symbols);
        edge.to.class = self.class(edge.to.class, symbols);
        let address = |end: &End| self.known.get(&end.held.lock).map_or(0, |known| known.address);
        let (from, to) = (address(&edge.from), address(&edge.to));
        let cycles = self.order.add(Arc::new(edge), (from, to));
        self.cycles(&cycles, now, symbols, collector);
    }

    fn cycles(&mut self, cycles: &[Cycle], now: u64, symbols: &Symbols, collector: &mut Collector) {
        let waits = |cycle: &&Cycle| cycle.edges.iter().any(|edge| edge.to.held.mode == Mode::Condition);
        // Whether a lock is needed to signal a condition variable is known when all signals are. That one of a sort
        // is signalled with a lock held says nothing of the others.
        let later = cycles.iter().filter(waits).filter(|cycle| cycle.evidence == Evidence::SameLocks);
        self.with_conditions.extend(later.cloned());
        let cycles: Vec<Cycle> = cycles.iter().filter(|cycle| !waits(cycle)).cloned().collect();
        self.tell_cycles(&cycles, now, symbols, collector);
    }

    /// Cycles through condition variables, as far as no signal has come without the lock.
    pub(super) fn settle(&mut self, now: u64, symbols: &Symbols, collector: &mut Collector) {
        let cycles = std::mem::take(&mut self.with_conditions);
        let needed = |edge: &Arc<Edge>| {
            let held = self.signalled.get(&edge.from.held.lock);
            edge.from.held.mode != Mode::Condition
                || held.is_none_or(|held| held.contains(&edge.to.held.lock))
        };
        let stand: Vec<Cycle> = cycles.into_iter().filter(|cycle| cycle.edges.iter().all(needed)).collect();
        self.tell_cycles(&stand, now, symbols, collector);
    }

    /// Takes note of what was held at a signal of a condition variable.
    fn signalled(&mut self, condition: LockId, held: &[Held]) {
        let held: Vec<LockId> = held.iter().map(|held| held.lock).collect();
        match self.signalled.get_mut(&condition) {
            Some(always) => always.retain(|lock| held.contains(lock)),
            None => drop(self.signalled.insert(condition, held)),
        }
    }

    fn tell_cycles(&mut self, cycles: &[Cycle], now: u64, symbols: &Symbols, collector: &mut Collector) {
        if cycles.is_empty() {
            return;
        }
        let threads = cycles.iter().flat_map(|cycle| &cycle.edges).map(|edge| edge.thread);
        self.refresh(threads.collect());
        let found = self
            .tell(now, symbols, |teller| cycles.iter().map(|cycle| teller.cycle(cycle)).collect::<Vec<_>>());
        collector.add_all(found);
    }

    /// Reads the names of threads again that something is to be told of.
    fn refresh(&mut self, serials: Vec<Serial>) {
        for serial in serials {
            if let Some(tid) = self.threads.get(&serial).map(|thread| thread.tid) {
                self.name_thread(serial, tid);
            }
        }
    }

    fn tell<T>(&self, now: u64, symbols: &Symbols, tell: impl FnOnce(&Teller) -> T) -> T {
        let snapshot =
            Snapshot { exe: self.exe.clone(), modules: self.feed.modules(), ..Snapshot::default() };
        let teller = Teller {
            feed: &self.feed,
            naming: Naming::new(symbols.space(&snapshot), &self.exe),
            process: Place { pid: self.outer, exe: self.exe.clone() },
            threads: &self.threads,
            known: &self.known,
            at_ns: now,
        };
        tell(&teller)
    }

    /// What a thread does now, by its id in the process's own namespace.
    fn state(&self, tid: u32) -> Seen {
        let outer = if self.inner == self.outer { Some(tid) } else { outer_tid(self.outer, tid) };
        outer.map_or(Seen::Gone, |tid| Task::new(self.outer, tid, false).look())
    }

    fn look_at_waits(&mut self, now: u64, symbols: &Symbols, collector: &mut Collector) {
        if now - self.waits_looked_at < WAITS_NS {
            return;
        }
        self.waits_looked_at = now;
        let mut waits = std::mem::take(&mut self.waits);
        let tasks = || living_tasks(self.outer);
        let found = waits.look(&self.feed, &self.now, now, &|tid| self.state(tid), &tasks);
        self.waits = waits;
        for deadlock in found {
            self.refresh(deadlock.parties.iter().map(|party| party.serial).collect());
            let finding = self.tell(now, symbols, |teller| teller.deadlock(&deadlock));
            collector.deadlock(finding);
        }
    }

    /// The threads that were in the same wait at the last two looks.
    pub(super) fn waiting(&self) -> Waiting<'_> {
        let parties = &self.waits.parties[..];
        let is_all = |tasks: usize| tasks == parties.len() && self.now.len() == tasks;
        let all = !parties.is_empty() && living_tasks(self.outer).is_some_and(is_all);
        Waiting { pid: self.outer, parties, all }
    }

    /// Whether one of them waits for a semaphore of an array.
    pub(super) fn waits_for_arrays(&self) -> bool {
        self.waits.parties.iter().any(|party| party.wait.kind == LockKind::Array)
    }

    /// Whether this one of its threads waits as it did, and holds what it held.
    pub(super) fn stand(&self, party: &Party) -> bool {
        stands(&self.feed, party)
    }

    /// These of its threads, in words.
    pub(super) fn tell_parties(
        &mut self,
        parties: &[Party],
        now: u64,
        symbols: &Symbols,
    ) -> (Place, Parties) {
        self.refresh(parties.iter().map(|party| party.serial).collect());
        self.tell(now, symbols, |teller| (teller.process.clone(), teller.parties(parties)))
    }

    fn look_at_holds(&mut self, now: u64, settings: &Settings, symbols: &Symbols, collector: &mut Collector) {
        let Some(limit) = settings.held_over_ns else { return };
        if now - self.holds_looked_at < settings.holds_look_ns() {
            return;
        }
        self.holds_looked_at = now;
        let mut holds = std::mem::take(&mut self.holds);
        let long = holds.look(&self.feed, &self.now, now, limit, &|tid| self.state(tid));
        self.holds = holds;
        for long in long {
            self.long(&long, now, symbols, collector);
        }
    }

    fn long(&mut self, long: &Long, now: u64, symbols: &Symbols, collector: &mut Collector) {
        self.refresh(vec![long.serial]);
        let finding = self.tell(now, symbols, |teller| teller.long(long));
        let key = Amendment::key(self.outer, long.serial.0, long.hold.lock.0, long.hold.sequence);
        collector.add_amendable(finding, key);
    }

    /// A hold is over that was asked about.
    fn let_go(
        &mut self,
        misuse: &Misuse,
        now: u64,
        settings: &Settings,
        symbols: &Symbols,
        collector: &mut Collector,
    ) {
        let (Some(lock), Some(limit)) = (misuse.lock, settings.held_over_ns) else { return };
        let Ok(sequence) = u32::try_from(misuse.number) else { return };
        let Some((for_ns, long)) = self.holds.let_go((misuse.thread, lock, sequence), now, limit) else {
            return;
        };
        if let Some(long) = long {
            self.long(&long, now, symbols, collector);
        }
        let key = Amendment::key(self.outer, misuse.thread.0, lock.0, sequence);
        let stack = self.tell(now, symbols, |teller| Stack {
            thread: teller.thread(misuse.thread),
            what: "let go of it".to_owned(),
            goes_on: true,
            lock: Some(0),
            frames: teller.naming.frames(&misuse.stack),
        });
        collector.amend(Amendment { key, stack, for_ns });
    }

    /// What is to be said of locks of the process that are not checked.
    pub(super) fn blind(&self) -> Option<Blind> {
        let is_java = self.feed.modules().iter().any(|module| module.path.ends_with("/libjvm.so"));
        let runtime = if is_java { Some(Runtime::Java) } else { Runtime::of_file(Path::new(&self.exe)) };
        self.unexplained.blind(self.inner, file_name(&self.exe), runtime)
    }

    /// What was looked at, and what found no room.
    pub(super) fn sums(&self) -> (Looked, NoRoom) {
        let statistics = self.order.statistics();
        let looked = Looked {
            processes: 1,
            threads: self.threads.len() as u64,
            locks: self.feed.checkable(),
            nested_locks: statistics.locks as u64,
            orders: statistics.edges as u64,
            orders_of_classes: statistics.class_edges as u64,
        };
        let mut no_room = self.feed.no_room();
        no_room.guard_sets += statistics.no_room;
        no_room.searches += statistics.pending as u64 + statistics.given_up;
        no_room.alike += statistics.alike;
        (looked, no_room)
    }
}

/// How many threads of a process have not ended. The first one keeps its place in `/proc` after its end.
fn living_tasks(outer: u32) -> Option<usize> {
    let lives = |&tid: &u32| Task::new(outer, tid, false).look() != Seen::Gone;
    Some(proc::tasks(outer)?.into_iter().filter(lives).count())
}

/// The thread of a process that has this id in the process's own namespace.
fn outer_tid(outer: u32, inner: u32) -> Option<u32> {
    proc::tasks(outer)?.into_iter().find(|&tid| Task::new(outer, tid, false).inner_id() == Some(inner))
}
