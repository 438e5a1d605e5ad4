//! From what a process logged to findings.

use std::collections::HashMap;
use std::sync::Arc;

use poundlock_order::{Cycle, Evidence, Nesting};
use poundlock_statfile::LockKind;
use poundlock_statfile::check::{
    ClassKey, DIRECT, Edge, End, LockId, Misuse, Mode, OUTSIDE, SIGNAL, Serial, Wrong,
};

use super::deadlock::{Deadlock, Party};
use super::feed::{Described, Feed, Hold};
use super::finding::{Finding, Lock, Process, Stack, Thread};
use super::kinds::{Kind, advice};
use super::long::Long;
use super::naming::{Naming, tell_apart};

/// What is known of a process when something is to be told.
pub(super) struct Teller<'a> {
    pub(super) feed: &'a Feed,
    pub(super) naming: Naming<'a>,
    pub(super) process: Process,
    pub(super) threads: &'a HashMap<Serial, Thread>,
    /// What was known of locks when they were logged.
    pub(super) known: &'a HashMap<LockId, Described>,
    pub(super) at_ns: u64,
}

/// The locks of a finding, each once.
#[derive(Default)]
struct Locks {
    ids: Vec<LockId>,
    locks: Vec<Lock>,
}

impl Locks {
    fn place(&self, id: LockId) -> Option<usize> {
        self.ids.iter().position(|&known| known == id)
    }

    fn name(&self, id: LockId) -> String {
        self.place(id).map_or_else(|| "a lock".to_owned(), |place| self.locks[place].name.clone())
    }

    fn class(&self, id: LockId) -> String {
        self.place(id).map_or_else(|| "a lock".to_owned(), |place| self.locks[place].class.clone())
    }
}

/// `a, b and c`
pub(super) fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The threads of one process in a deadlock.
pub(super) struct Parties {
    /// Who waits for what, each in a sentence.
    pub(super) waits: Vec<String>,
    pub(super) locks: Vec<Lock>,
    pub(super) stacks: Vec<Stack>,
}

/// As many threads are named in a headline.
pub(super) const NAMED: usize = 6;

pub(super) fn for_each_other(count: usize, named: &str) -> String {
    format!("{count} threads wait for each other for ever: {named}")
}

const FOR_EVER: &str = "threads that do so at once wait for each other for ever";

impl Teller<'_> {
    pub(super) fn thread(&self, serial: Serial) -> Option<Thread> {
        self.threads.get(&serial).cloned()
    }

    pub(super) fn finding(
        &self,
        kind: Kind,
        headline: String,
        locks: Vec<Lock>,
        stacks: Vec<Stack>,
    ) -> Finding {
        Finding {
            kind,
            headline,
            process: self.process.clone(),
            locks,
            stacks,
            notes: Vec::new(),
            advice: kind.advice(),
            count: 1,
            at_ns: self.at_ns,
        }
    }

    /// A lock by its number: what is known of it by now, or was when it was logged.
    pub(super) fn lock(&self, id: LockId, class: Option<ClassKey>, taken: &[u64]) -> Lock {
        let now = self.feed.describe(id);
        let described = now.as_ref().or_else(|| self.known.get(&id));
        let made = class.map_or_else(Arc::default, |class| self.feed.class_stack(class));
        self.naming.lock(described, &made, taken)
    }

    fn kind_of(&self, id: LockId) -> Option<LockKind> {
        self.known.get(&id).map(|known| known.kind).or_else(|| self.feed.describe(id).map(|lock| lock.kind))
    }

    fn add(&self, locks: &mut Locks, end: &End) {
        if locks.place(end.held.lock).is_none() {
            locks.ids.push(end.held.lock);
            locks.locks.push(self.lock(end.held.lock, Some(end.class), &end.stack));
        }
    }

    /// ` to read`, of what can be held in several ways.
    pub(super) fn how(&self, lock: LockId, mode: Mode) -> &'static str {
        let is_rw = matches!(
            self.kind_of(lock),
            Some(
                LockKind::RwReaders
                    | LockKind::RwWriters
                    | LockKind::SharedRwReaders
                    | LockKind::SharedRwWriters
            )
        );
        match mode {
            Mode::Read | Mode::FairRead => " to read",
            Mode::Exclusive if is_rw => " to write",
            Mode::Exclusive | Mode::Condition => "",
        }
    }

    /// What a thread did at an edge.
    fn steps(&self, edge: &Edge, locks: &Locks) -> [Stack; 2] {
        let thread = self.thread(edge.thread);
        let (from, to) = (edge.from.held, edge.to.held);
        let (held, asked) = (locks.name(from.lock), locks.name(to.lock));
        let (how_held, how_asked) = (self.how(from.lock, from.mode), self.how(to.lock, to.mode));
        let (later, earlier) = match (from.mode, to.mode) {
            // Whoever waits for the signal waits for the lock that the signaller needs.
            (Mode::Condition, _) => {
                (format!("took {asked}{how_asked}"), format!("and signalled {held} with it held"))
            }
            (_, Mode::Condition) => {
                (format!("waited for {asked}"), format!("while it held {held}{how_held}, taken"))
            }
            _ => (format!("took {asked}{how_asked}"), format!("while it held {held}{how_held}, taken")),
        };
        let stack = |what: String, end: &End, goes_on| Stack {
            thread: thread.clone(),
            what,
            goes_on,
            lock: locks.place(end.held.lock),
            frames: self.naming.frames(&end.stack),
        };
        [stack(later, &edge.to, false), stack(earlier, &edge.from, true)]
    }

    /// A cycle in the order of locks.
    pub(super) fn cycle(&self, cycle: &Cycle) -> Finding {
        let mut locks = Locks::default();
        cycle.edges.iter().for_each(|edge| self.add(&mut locks, &edge.from));
        // It begins with the same lock each time that it is found.
        let name_of = |edge: &Arc<Edge>| locks.name(edge.from.held.lock);
        let first = (0..cycle.edges.len()).min_by_key(|&n| name_of(&cycle.edges[n])).unwrap_or(0);
        let edges: Vec<&Arc<Edge>> = cycle.edges[first..].iter().chain(&cycle.edges[..first]).collect();
        locks = Locks::default();
        for edge in &edges {
            self.add(&mut locks, &edge.from);
            self.add(&mut locks, &edge.to);
        }
        tell_apart(&mut locks.locks);
        let same = cycle.evidence == Evidence::SameLocks;
        let nodes = edges.iter().map(|edge| edge.from.held.lock);
        let names: Vec<String> =
            nodes.map(|id| if same { locks.name(id) } else { locks.class(id) }).collect();
        let round = if names.len() == 2 { "in both orders" } else { "in an order that goes round" };
        let waited = edges.iter().position(|edge| edge.to.held.mode == Mode::Condition);
        let headline = match waited {
            // The edge that begins at the condition variable is the next one.
            Some(n) => {
                let at = (n + 1) % names.len();
                let others = [&names[at + 1..], &names[..at]].concat();
                format!(
                    "{} is waited for with {} held, which others need to signal it: {FOR_EVER}",
                    names[at],
                    list(&others)
                )
            }
            None if same => format!("{} are taken {round}: {FOR_EVER}", list(&names)),
            None => format!(
                "{} are taken {round}, if not the same ones so far: threads that do so with the same ones at once wait \
                 for each other for ever",
                list(&names)
            ),
        };
        let mut stacks: Vec<Stack> = edges.iter().flat_map(|edge| self.steps(edge, &locks)).collect();
        let mut notes = Vec::new();
        for writer in &cycle.writers {
            let Some(at) = cycle.edges.get(writer.at) else { continue };
            let lock = if locks.place(writer.lock).is_some() { writer.lock } else { at.to.held.lock };
            match &writer.edge {
                Some(edge) => stacks.push(Stack {
                    thread: self.thread(writer.thread),
                    what: format!("took {} to write", locks.name(lock)),
                    goes_on: false,
                    lock: locks.place(lock),
                    frames: self.naming.frames(&edge.to.stack),
                }),
                None => {
                    let who = self.thread(writer.thread);
                    let who = who.map_or_else(|| "another thread".to_owned(), |thread| thread.in_words());
                    notes.push(format!("{who} took {} to write", locks.name(lock)));
                }
            }
            notes.push(format!(
                "readers of {} wait for readers as soon as a writer waits between them",
                locks.name(lock)
            ));
        }
        if !same {
            notes.push(
                "the locks were not the same ones each time: locks of these sorts have no order".to_owned(),
            );
        }
        if cycle.partial {
            notes.push(
                "the threads held more locks than are noted: if they all held one and the same, this cannot happen"
                    .to_owned(),
            );
        }
        notes.dedup();
        let class = edges[0].from.class;
        let advice = if waited.is_some() {
            advice::HELD_IN_WAIT
        } else if edges.iter().all(|edge| edge.from.class == class && edge.to.class == class) {
            advice::ONE_SORT
        } else {
            Kind::Order.advice()
        };
        Finding { notes, advice, ..self.finding(Kind::Order, headline, locks.locks, stacks) }
    }

    /// Locks of one sort that are nested against an order.
    pub(super) fn nesting(&self, nesting: &Nesting) -> Finding {
        let mut locks = Locks::default();
        let edges: Vec<&Arc<Edge>> = std::iter::once(&nesting.one).chain(&nesting.other).collect();
        for edge in &edges {
            self.add(&mut locks, &edge.from);
            self.add(&mut locks, &edge.to);
        }
        tell_apart(&mut locks.locks);
        let class = locks.class(nesting.one.from.held.lock);
        let headline = if nesting.other.is_some() {
            format!("{class}: several of them are taken inside of each other, without an order: {FOR_EVER}")
        } else {
            format!("{class}: several of them are taken against the order that the program gave them")
        };
        let stacks = edges.iter().flat_map(|edge| self.steps(edge, &locks)).collect();
        let mut finding = self.finding(Kind::Nesting, headline, locks.locks, stacks);
        if nesting.other.is_none() {
            finding.advice = advice::AGAINST_NUMBERS;
        }
        finding
    }

    /// A lock that is held for long.
    pub(super) fn long(&self, long: &Long) -> Finding {
        let lock = self.lock(long.hold.lock, None, &long.hold.stack);
        let name = lock.name.clone();
        let (kind, headline) = match &long.call {
            Some(call) => {
                (Kind::Blocking, format!("{name} is held across {call}: whoever needs it waits as long"))
            }
            None => (Kind::HeldLong, format!("{name} is held for longer than was asked for")),
        };
        let stack = Stack {
            thread: self.thread(long.serial),
            what: format!("took {name}{}", self.how(long.hold.lock, long.hold.mode)),
            goes_on: false,
            lock: Some(0),
            frames: self.naming.frames(&long.hold.stack),
        };
        let mut finding = self.finding(kind, headline, vec![lock], vec![stack]);
        finding.notes.push(format!("held for {} so far", milliseconds(long.for_ns)));
        finding
    }

    /// Threads that wait for each other, those of this process among them: what they wait for and hold.
    pub(super) fn parties(&self, parties: &[Party]) -> Parties {
        let mut locks = Locks::default();
        let mut places: HashMap<u64, LockId> = HashMap::new();
        for party in parties {
            for (address, hold) in &party.holds {
                let waits = |other: &Party| other.wait.address == *address || other.relocks == Some(*address);
                let waited = parties.iter().any(waits);
                if waited && !places.contains_key(address) {
                    places.insert(*address, hold.lock);
                    locks.ids.push(hold.lock);
                    locks.locks.push(self.lock(hold.lock, None, &hold.stack));
                }
            }
            let wait = &party.wait;
            if wait.kind != LockKind::Join && !places.contains_key(&wait.address) {
                places.insert(wait.address, wait.lock);
                locks.ids.push(wait.lock);
                locks.locks.push(self.lock(wait.lock, None, &party.stack));
            }
        }
        tell_apart(&mut locks.locks);
        let name =
            |address: u64| places.get(&address).map_or_else(|| "a lock".to_owned(), |&id| locks.name(id));
        let who = |party: &Party| {
            let thread = self.thread(party.serial);
            thread.unwrap_or(Thread {
                tid: party.tid,
                name: String::new(),
                is_main: party.tid == self.process.pid,
            })
        };
        let what = |party: &Party| match (party.wait.kind, party.joins) {
            (LockKind::Join, Some(tid)) => {
                let ended = parties.iter().find(|other| other.tid == tid);
                format!(
                    "the end of {}",
                    ended.map_or_else(|| format!("thread {tid}"), |other| who(other).in_words())
                )
            }
            (LockKind::Join, None) => "the end of a thread".to_owned(),
            _ => match party.relocks.filter(|mutex| places.contains_key(mutex)) {
                Some(mutex) => format!("{} after its wait for {}", name(mutex), name(party.wait.address)),
                None => name(party.wait.address),
            },
        };
        let mut stacks = Vec::new();
        for party in parties {
            let place = places.get(&party.wait.address).and_then(|&id| locks.place(id));
            let wants = self.how(party.wait.lock, party.wait.mode);
            stacks.push(Stack {
                thread: Some(who(party)),
                what: format!("waits for {}{wants}", what(party)),
                goes_on: false,
                lock: place,
                frames: self.naming.frames(&party.stack),
            });
            for (address, hold) in &party.holds {
                let Some(place) = places.get(address).and_then(|&id| locks.place(id)) else { continue };
                stacks.push(Stack {
                    thread: Some(who(party)),
                    what: format!("and holds {}{}, taken", name(*address), self.how(hold.lock, hold.mode)),
                    goes_on: true,
                    lock: Some(place),
                    frames: self.naming.frames(&hold.stack),
                });
            }
        }
        let waits = parties
            .iter()
            .map(|party| format!("{} waits for {}", who(party).in_words(), what(party)))
            .collect();
        Parties { waits, locks: locks.locks, stacks }
    }

    /// Threads that wait for each other.
    pub(super) fn deadlock(&self, deadlock: &Deadlock) -> Finding {
        let Parties { waits, locks, stacks } = self.parties(&deadlock.parties);
        if let Some(left) = &deadlock.left {
            return self.left(&deadlock.parties, left, locks, stacks);
        }
        let count = waits.len();
        let named = waits.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let headline = match &waits[..] {
            _ if deadlock.everyone => {
                let all =
                    if count == 1 { "the only thread".to_owned() } else { format!("all {count} threads") };
                let verb = if count == 1 { "waits" } else { "wait" };
                format!("{all} of the process {verb}, and nobody is left to wake one: {named}")
            }
            [one] => format!("{one}, which it holds itself: it waits for ever"),
            _ => for_each_other(count, &named),
        };
        let mut finding = self.finding(Kind::Deadlock, headline, locks, stacks);
        finding.advice = advice_on(deadlock);
        if deadlock.everyone {
            if finding.advice == advice::LOST_SIGNAL {
                finding.notes.push(
                    "a condition variable does not keep a signal that comes before the wait".to_owned(),
                );
            }
            finding.notes.push("a signal handler or another process could still wake a thread".to_owned());
        }
        finding
    }

    /// Threads that wait for what an ended thread left locked.
    fn left(
        &self,
        parties: &[Party],
        (serial, hold): &(Serial, Hold),
        locks: Vec<Lock>,
        mut stacks: Vec<Stack>,
    ) -> Finding {
        let name = locks.first().map_or("a lock", |lock| lock.name.as_str());
        let ended = self.thread(*serial).unwrap_or_else(Thread::unknown);
        let how = self.how(hold.lock, hold.mode);
        let who = |party: &Party| self.thread(party.serial).unwrap_or_else(Thread::unknown).in_words();
        let waiters: Vec<String> = parties.iter().take(NAMED).map(who).collect();
        let headline = match &waiters[..] {
            [one] => {
                format!("{one} waits for ever for {name}, which {} left locked as it ended", ended.in_words())
            }
            _ => format!(
                "{} threads wait for ever for {name}, which {} left locked as it ended: {}",
                parties.len(),
                ended.in_words(),
                list(&waiters)
            ),
        };
        stacks.push(Stack {
            thread: Some(ended),
            what: format!("had taken {name}{how} before it ended"),
            goes_on: false,
            lock: Some(0),
            frames: self.naming.frames(&hold.stack),
        });
        let advice = Kind::ExitHeld.advice();
        Finding { advice, ..self.finding(Kind::Deadlock, headline, locks, stacks) }
    }

    /// What the process found itself. `None` if it is an answer to a question of ours.
    pub(super) fn misuse(&self, misuse: &Misuse) -> Option<Finding> {
        let Misuse { what, lock, address, stack, other_stack, number, .. } = misuse;
        let named = match lock {
            Some(id) => self.lock(*id, None, if other_stack.is_empty() { stack } else { other_stack }),
            None => {
                let described =
                    Described { address: *address, kind: LockKind::Overflow, created_at: Arc::default() };
                self.naming.lock(Some(&described), &[], stack)
            }
        };
        let name = named.name.clone();
        let kind = kind_of(*what)?;
        let mut locks = vec![named];
        // The mutex of a condition variable's waits.
        if matches!(what, Wrong::TwoMutexes | Wrong::LoneSignal)
            && let Some(mutex) = u32::try_from(*number).ok().map(LockId)
            && self.kind_of(mutex).is_some()
        {
            locks.push(self.lock(mutex, None, other_stack));
        }
        let mutex = locks.get(1).map(|mutex| mutex.name.as_str());
        let (headline, here, there) = in_words(*what, &name, *number, mutex);
        let this = self.thread(misuse.thread);
        let same_thread = misuse.other_thread.is_none_or(|other| other == misuse.thread);
        let is_past = ["took ", "held ", "had "].iter().any(|verb| there.starts_with(verb));
        let there = if same_thread && is_past { format!("and {there}") } else { there };
        let known = misuse.other_thread.map(|serial| self.thread(serial));
        let there = match &known {
            Some(Some(_)) if *what == Wrong::ForkHeld => {
                "of the parent held it at the fork, taken".to_owned()
            }
            _ => there,
        };
        let other = match known {
            // It was one of the parent's, whose other threads are not known here.
            Some(None) if *what == Wrong::ForkHeld => None,
            Some(known) => Some(known.unwrap_or_else(Thread::unknown)),
            None => None,
        };
        let mut stacks = vec![Stack {
            thread: this.clone(),
            what: here,
            goes_on: false,
            lock: Some(0),
            frames: self.naming.frames(stack),
        }];
        if !other_stack.is_empty() || other.is_some() {
            stacks.push(Stack {
                thread: if same_thread { this } else { other },
                what: there,
                goes_on: same_thread && *what != Wrong::ForkHeld,
                lock: Some(0),
                frames: self.naming.frames(other_stack),
            });
        }
        let mut finding = self.finding(kind, headline, locks, stacks);
        if *what == Wrong::Relock {
            let lock = lock.and_then(|id| self.kind_of(id));
            finding.advice = advice_on_relock(lock.unwrap_or(LockKind::Mutex), None);
        }
        Some(finding)
    }
}

/// What to do about threads that wait for each other.
fn advice_on(deadlock: &Deadlock) -> &'static str {
    let waits_for = |kind| deadlock.parties.iter().any(|party| party.wait.kind == kind);
    match &deadlock.parties[..] {
        _ if deadlock.everyone && waits_for(LockKind::Condition) => advice::LOST_SIGNAL,
        _ if deadlock.everyone && waits_for(LockKind::Barrier) => advice::BARRIER,
        _ if waits_for(LockKind::Array) => advice::ARRAY,
        [one] => {
            let held = one.holds.iter().find(|(address, _)| *address == one.wait.address);
            advice_on_relock(one.wait.kind, held.map(|(_, hold)| hold.mode))
        }
        _ => Kind::Deadlock.advice(),
    }
}

/// What to do about a thread that waits for a lock of this kind, and holds it in this mode.
fn advice_on_relock(kind: LockKind, held: Option<Mode>) -> &'static str {
    match (kind, held) {
        (_, Some(Mode::Read | Mode::FairRead)) => advice::UPGRADE,
        (LockKind::Join, _) => Kind::Deadlock.advice(),
        (LockKind::Mutex | LockKind::PriorityMutex | LockKind::RobustMutex | LockKind::SharedMutex, _) => {
            Kind::Relock.advice()
        }
        _ => advice::NOT_RECURSIVE,
    }
}

/// `12 ms`
pub(super) fn milliseconds(ns: u64) -> String {
    format!("{} ms", ns / 1_000_000)
}

fn kind_of(what: Wrong) -> Option<Kind> {
    Some(match what {
        Wrong::Relock => Kind::Relock,
        Wrong::UnlockOther => Kind::UnlockOther,
        Wrong::UnlockFree => Kind::UnlockFree,
        Wrong::DestroyHeld => Kind::DestroyHeld,
        Wrong::DestroyWaited => Kind::DestroyWaited,
        Wrong::FreeHeld => Kind::FreeHeld,
        Wrong::FrameGone => Kind::FrameGone,
        Wrong::Uninitialised => Kind::Uninitialised,
        Wrong::Destroyed => Kind::Destroyed,
        Wrong::Copied => Kind::Copied,
        Wrong::ExitHeld => Kind::ExitHeld,
        Wrong::ForkHeld => Kind::ForkHeld,
        Wrong::TwoMutexes => Kind::TwoMutexes,
        Wrong::LoneSignal => Kind::LoneSignal,
        Wrong::Handler => Kind::Handler,
        Wrong::Reread => Kind::Reread,
        Wrong::LetGo => return None,
    })
}

/// A headline, what the thread did, and what was done at the other place.
fn in_words(what: Wrong, name: &str, number: u64, mutex: Option<&str>) -> (String, String, String) {
    let mutex = mutex.unwrap_or("another mutex");
    let (headline, here, there) = match what {
        Wrong::Relock => (
            format!("{name} is taken by the thread that holds it: the thread waits for itself for ever"),
            format!("takes {name}"),
            "while it holds it, taken".to_owned(),
        ),
        Wrong::UnlockOther => (
            format!("{name} is unlocked by a thread that does not hold it, while another one does"),
            format!("unlocked {name}"),
            "held it, taken".to_owned(),
        ),
        Wrong::UnlockFree => (
            format!("{name} is unlocked, and nobody holds it"),
            format!("unlocked {name}"),
            "had let go of it before".to_owned(),
        ),
        Wrong::DestroyHeld => (
            format!("{name} is destroyed, or initialised again, while it is held"),
            format!("destroyed or initialised {name}"),
            "held it, taken".to_owned(),
        ),
        Wrong::DestroyWaited => (
            format!("{name} is destroyed while threads wait for it"),
            format!("destroyed {name}"),
            "waits for it".to_owned(),
        ),
        Wrong::FreeHeld => (
            format!("memory is freed, and in it is {name}, which is held or waited for"),
            "freed the memory".to_owned(),
            "took it, or waits for it".to_owned(),
        ),
        Wrong::FrameGone => (
            format!("{name} is held, and the function whose variable it was has returned"),
            "went on and left it locked".to_owned(),
            "after it took it".to_owned(),
        ),
        Wrong::Uninitialised => (
            format!("{name} is used, and nobody has initialised it"),
            format!("used {name}"),
            "before that".to_owned(),
        ),
        Wrong::Destroyed => (
            format!("{name} is used after its destruction"),
            format!("used {name}"),
            "had destroyed it before".to_owned(),
        ),
        Wrong::Copied => (
            format!("{name} is a copy of a lock that was locked: nobody will unlock the copy"),
            format!("used {name}"),
            "held the original, taken".to_owned(),
        ),
        Wrong::ExitHeld => (
            format!("a thread ended and left {name} locked: nobody can unlock it any more"),
            format!("ended and left {name} locked"),
            "after it took it".to_owned(),
        ),
        Wrong::ForkHeld => (
            format!(
                "a forked child takes {name}, which a thread of its parent held: nobody will unlock it there"
            ),
            format!("takes {name} in the child"),
            "a thread of the parent held it at the fork, taken".to_owned(),
        ),
        Wrong::TwoMutexes => (
            format!("{name} is waited for with two mutexes at one time"),
            format!("waits for {name} with another mutex"),
            format!("waits for it with {mutex}"),
        ),
        Wrong::LoneSignal => (
            format!(
                "{name} is signalled by a thread that never had {mutex}, with which it is waited for: a signal can be lost"
            ),
            format!("signalled {name}"),
            format!("waits for it with {mutex}"),
        ),
        Wrong::Handler => return handler(name, number),
        Wrong::Reread => (
            format!(
                "{name} is read again by a thread that reads it: with a writer in between all wait for ever"
            ),
            format!("takes {name} to read"),
            "while it reads it, taken".to_owned(),
        ),
        Wrong::LetGo => (String::new(), String::new(), String::new()),
    };
    (headline, here, there)
}

/// The same of a lock that is taken in a signal handler.
fn handler(name: &str, number: u64) -> (String, String, String) {
    let signal = signal_name(number & SIGNAL);
    let within = format!("took {name} in a handler of {signal}");
    let outside = format!("took {name} while {signal} could come");
    if number & DIRECT != 0 {
        let headline = format!(
            "{name} is taken in a handler of {signal} that has interrupted its holder: the thread waits for itself for ever"
        );
        return (
            headline,
            format!("takes {name} in the handler"),
            "and held it when the signal came, taken".to_owned(),
        );
    }
    let headline = format!(
        "{name} is taken in a handler of {signal}, and by others while that signal can come: a signal in between makes \
         the thread wait for itself for ever"
    );
    if number & OUTSIDE != 0 { (headline, outside, within) } else { (headline, within, outside) }
}

/// `SIGUSR1`
fn signal_name(number: u64) -> String {
    let number = libc::c_int::try_from(number).unwrap_or(0);
    let first = libc::SIGRTMIN();
    match crate::launch::signal_name(number) {
        Some(name) => name.to_owned(),
        None if number == 0 => "a signal".to_owned(),
        None if number >= first => format!("SIGRTMIN+{}", number - first),
        None => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_misuse_has_its_kind_and_its_words() {
        let all = [
            Wrong::Relock,
            Wrong::UnlockOther,
            Wrong::UnlockFree,
            Wrong::DestroyHeld,
            Wrong::DestroyWaited,
            Wrong::FreeHeld,
            Wrong::FrameGone,
            Wrong::Uninitialised,
            Wrong::Destroyed,
            Wrong::Copied,
            Wrong::ExitHeld,
            Wrong::ForkHeld,
            Wrong::TwoMutexes,
            Wrong::LoneSignal,
            Wrong::Handler,
            Wrong::Reread,
            Wrong::LetGo,
        ];
        let mut kinds: Vec<Kind> = Vec::new();
        for what in all {
            let Some(kind) = kind_of(what) else { continue };
            assert!(!kinds.contains(&kind));
            kinds.push(kind);
            let (headline, here, there) = in_words(what, "cache_lock", libc::SIGUSR1 as u64, None);
            assert!(!headline.is_empty() && !here.is_empty() && !there.is_empty());
            assert!(headline.contains("cache_lock"), "{headline}");
        }
        assert_eq!(kinds.len(), 16);
    }

    #[test]
    fn names_are_listed_as_people_do() {
        let names = |n: usize| list(&["a", "b", "c"].map(String::from)[..n]);
        assert_eq!([0, 1, 2, 3].map(names), ["", "a", "a and b", "a, b and c"]);
    }

    #[test]
    fn it_is_said_which_of_the_two_is_the_handler() {
        let number = libc::SIGUSR1 as u64;
        let (headline, here, there) = handler("a", number);
        assert!(
            headline.contains("SIGUSR1") && here.contains("in a handler") && there.contains("could come")
        );
        let (_, here, there) = handler("a", number | OUTSIDE);
        assert!(here.contains("could come") && there.contains("in a handler of SIGUSR1"));
        assert!(handler("a", number | DIRECT).0.contains("has interrupted its holder"));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_name(libc::SIGUSR1 as u64), "SIGUSR1");
        assert_eq!(signal_name(0), "a signal");
    }
}
