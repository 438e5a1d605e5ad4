//! Who waits for what, who holds it, and who waits for whom in a circle.

use std::collections::HashMap;
use std::time::Duration;

use poundlock_statfile::{LockKind, Snapshot};

use super::ours::Registry;
use super::record::{Held, Record};
use super::waits::{Finder, Found, Holder, Kind, Maker, Names};
use crate::observe::calls::{self, Doing};
use crate::observe::cycles::cycles;
use crate::observe::shorten::{self, shorten};
use crate::observe::symbols::{Space, Symbols, folded};
use crate::observe::words::acquires;
use crate::remote::maps::Maps;
use crate::remote::process::Still;
use crate::remote::unwind::{Frame, Tables, Unwinder};
use crate::remote::{Memory, Thread};

/// So often is a thread looked for that does not sleep again yet,
const ROUNDS: u32 = 20;
/// after as long.
const ROUND: Duration = Duration::from_millis(2);

/// A thread.
pub(super) struct Seen {
    pub(super) tid: u32,
    pub(super) inner: u32,
    pub(super) name: String,
    pub(super) stood_ns: u64,
    /// What it does where it does not wait for others: `running`, `asleep in epoll_wait`.
    pub(super) state: String,
    /// Innermost first.
    pub(super) stack: Vec<String>,
    /// The same with whole names.
    pub(super) whole_stack: Vec<String>,
    /// How many of those at its top are of libraries, and what the program called there.
    pub(super) folded: Option<(usize, String)>,
    /// Of the stack, what was found by its looks.
    pub(super) guessed: usize,
    /// The line to look at.
    pub(super) line: String,
    pub(super) waits: Option<Wait>,
    /// The locks that it holds and others wait for: indices.
    pub(super) holds: Vec<usize>,
}

/// A wait.
pub(super) struct Wait {
    /// Index of the lock.
    pub(super) lock: usize,
    pub(super) kind: Kind,
    /// Of a condition variable: index of the mutex.
    pub(super) mutex: Option<usize>,
    /// The thread did not run between two looks, in between of which the holder was read: so all of this was
    /// true at one moment. Of a core file all is.
    pub(super) steady: bool,
    /// Indices of the threads that it waits for.
    pub(super) held_by: Vec<usize>,
}

/// Something that is waited for.
pub(super) struct Lock {
    pub(super) address: u64,
    pub(super) kind: Kind,
    pub(super) maker: Maker,
    pub(super) name: String,
    pub(super) declared_at: Option<String>,
    pub(super) looks: bool,
    pub(super) holder: Holder,
    /// Where the holder took it, if that is recorded.
    pub(super) taken_at: Option<String>,
}

/// Sorts of programs of which something is to be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Languages {
    pub(super) go: bool,
    pub(super) java: bool,
    pub(super) rust: bool,
}

/// All of it.
pub(super) struct Picture {
    pub(super) threads: Vec<Seen>,
    pub(super) locks: Vec<Lock>,
    /// Threads of which each waits for the next, and the last for the first: indices.
    pub(super) cycles: Vec<Vec<usize>>,
    pub(super) languages: Languages,
    /// Whether the process has our library, and whether its own record was read.
    pub(super) has_library: bool,
    pub(super) has_record: bool,
}

/// Where the threads come from.
pub(super) struct Source<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) maps: &'a Maps,
    pub(super) threads: &'a [Thread],
    /// The process, if it is alive.
    pub(super) pid: Option<u32>,
    pub(super) record: Option<Record>,
}

/// A lock is known by its address and, as one may lie in another, by what it is.
type Key = (u64, &'static str, u64);

struct Drawing<'a, M: Memory> {
    source: &'a Source<'a>,
    finder: Finder<'a, M>,
    stacks: Vec<Vec<Frame>>,
    locks: Vec<Lock>,
    known: HashMap<Key, usize>,
}

/// Draws it.
pub(super) fn draw<M: Memory>(source: &Source, memory: &M) -> Picture {
    let symbols = Symbols::new();
    let space = symbols.space(source.snapshot);
    let mut unwinder = Unwinder::new(source.snapshot, source.maps, &mut Tables::default());
    let stacks: Vec<Vec<Frame>> =
        source.threads.iter().map(|thread| unwinder.stack(thread, source.maps, memory).frames).collect();
    let registry = Registry::find(source.snapshot, memory);
    let has_library = registry.is_some();
    let pointers = source
        .threads
        .iter()
        .filter_map(|thread| Some((thread.registers.as_ref()?.thread_pointer?, thread.inner)));
    let finder = Finder {
        memory,
        space: &space,
        registry,
        ids: source.threads.iter().map(|thread| thread.inner).collect(),
        pointers: pointers.collect(),
    };
    let mut drawing = Drawing { source, finder, stacks, locks: Vec::new(), known: HashMap::new() };
    let (mut threads, founds) = drawing.threads(&space);
    drawing.waits(&mut threads, founds);
    let edges: Vec<Vec<(usize, ())>> = threads
        .iter()
        .map(|thread| {
            let waits = thread.waits.as_ref().filter(|wait| wait.steady);
            waits.map_or(Vec::new(), |wait| wait.held_by.iter().map(|&by| (by, ())).collect())
        })
        .collect();
    let languages = languages(source.snapshot, &threads);
    let has_record = source.record.is_some();
    Picture { threads, locks: drawing.locks, cycles: cycles(&edges), languages, has_library, has_record }
}

fn languages(snapshot: &Snapshot, threads: &[Seen]) -> Languages {
    let has = |part: &str| snapshot.modules.iter().any(|module| module.path.contains(part));
    let stack =
        |part: &str| threads.iter().any(|thread| thread.stack.iter().any(|frame| frame.starts_with(part)));
    Languages {
        go: stack("runtime.futex") || stack("runtime.mcall") || stack("runtime.goexit"),
        java: has("/libjvm.so"),
        rust: threads.iter().any(|thread| {
            thread.waits.is_some() && thread.stack.iter().any(|frame| frame.starts_with("std::sys"))
        }),
    }
}

impl<M: Memory> Drawing<'_, M> {
    /// All threads with their stacks, and what each was found to wait for.
    fn threads(&self, space: &Space) -> (Vec<Seen>, Vec<Option<Found>>) {
        let mut founds = Vec::new();
        let seen = self.source.threads.iter().zip(&self.stacks).map(|(thread, frames)| {
            let found = self.finder.wait(thread, frames);
            let recorded = self.source.record.as_ref().and_then(|record| {
                let ours = found.as_ref().is_some_and(|found| found.maker == Maker::Poundlock);
                record.wait(thread.inner, ours)
            });
            let found = match (found, recorded) {
                // A thread that spins is in no call.
                (found, Some(recorded)) if thread.call().is_some() || recorded.kind.is_lock() => {
                    let word = found.map_or(0, |found| found.word);
                    Some(Found { word, ..recorded })
                }
                (found, _) => found,
            };
            founds.push(found);
            let functions: Vec<Names> = frames.iter().map(|frame| space.call(frame.at)).collect();
            Seen {
                tid: thread.tid,
                inner: thread.inner,
                name: thread.name.clone(),
                stood_ns: thread.stood_ns,
                state: state(thread),
                stack: functions
                    .iter()
                    .flat_map(|names| names.iter())
                    .map(|named| named.text.clone())
                    .collect(),
                whole_stack: functions
                    .iter()
                    .flat_map(|names| names.iter())
                    .map(|named| named.whole.clone())
                    .collect(),
                folded: folded(&functions.iter().flat_map(|names| names.iter()).collect::<Vec<_>>()),
                guessed: frames.iter().filter(|frame| frame.guessed).count(),
                line: line(&functions),
                waits: None,
                holds: Vec::new(),
            }
        });
        let seen = seen.collect();
        (seen, founds)
    }

    /// Reads who holds what, and whether those who wait for it have stood still meanwhile.
    fn waits(&mut self, threads: &mut [Seen], founds: Vec<Option<Found>>) {
        let still = |tid: u32| self.source.pid.and_then(|pid| Still::of(pid, tid));
        let mut before: Vec<Option<Still>> = threads
            .iter()
            .zip(&founds)
            .map(|(thread, found)| found.as_ref().and_then(|_| still(thread.tid)))
            .collect();
        // A thread that stood still was woken for that, and needs a CPU before it sleeps again.
        for _ in 0..ROUNDS {
            let awake = |n: &usize| before[*n].is_none() && founds[*n].is_some() && self.source.pid.is_some();
            let awake: Vec<usize> = (0..threads.len()).filter(awake).collect();
            if awake.is_empty() {
                break;
            }
            std::thread::sleep(ROUND);
            for n in awake {
                before[n] = still(threads[n].tid);
            }
        }
        let mut read: Vec<Option<(Found, Holder, Vec<Held>)>> = Vec::new();
        for (thread, found) in threads.iter().zip(founds) {
            read.push(found.map(|found| {
                let by_record = found.kind.is_lock().then_some(()).and(self.source.record.as_ref());
                let held = by_record.map(|record| record.holders(thread.inner)).unwrap_or_default();
                let holder = if held.is_empty() { self.finder.holder(&found) } else { Record::holder(&held) };
                (found, holder, held)
            }));
        }
        let steady: Vec<bool> = threads
            .iter()
            .zip(&before)
            .zip(self.source.threads)
            .map(|((thread, before), copied)| match (self.source.pid, before) {
                (None, _) => true,
                (_, Some(before)) => {
                    before.is_as_copied(copied) && still(thread.tid).as_ref() == Some(before)
                }
                _ => false,
            })
            .collect();
        let by_id: HashMap<u32, usize> =
            threads.iter().enumerate().map(|(index, thread)| (thread.inner, index)).collect();
        for (index, read) in read.into_iter().enumerate() {
            let Some((found, holder, held)) = read else { continue };
            let lock = self.lock(&found, index, &holder, &held, steady[index]);
            let mutex = found.mutex.map(|mutex| {
                let of = Found::new(mutex, mutex, Kind::Mutex, found.maker);
                let holder = self.finder.holder(&of);
                self.lock(&of, index, &holder, &[], true)
            });
            let ids: Vec<u32> = match &self.locks[lock].holder {
                Holder::Thread(id) => vec![*id],
                Holder::Threads(ids) => ids.clone(),
                _ => Vec::new(),
            };
            let held_by: Vec<usize> = ids.iter().filter_map(|id| by_id.get(id).copied()).collect();
            for &by in &held_by {
                if !threads[by].holds.contains(&lock) && found.kind.is_lock() {
                    threads[by].holds.push(lock);
                }
            }
            threads[index].waits =
                Some(Wait { lock, kind: found.kind, mutex, steady: steady[index], held_by });
        }
    }

    /// The index of what was found.
    fn lock(&mut self, found: &Found, thread: usize, holder: &Holder, held: &[Held], steady: bool) -> usize {
        // What was not found is each thread's own.
        let own = if found.object == 0 { 1 + thread as u64 } else { 0 };
        let key = (found.object, found.kind.noun(), own);
        if let Some(&known) = self.known.get(&key) {
            // One that has moved on may have read it when it was free.
            if steady {
                self.locks[known].holder = holder.clone();
            }
            return known;
        }
        let (name, declared_at) = self.name(found, thread);
        let taken_at = held.first().filter(|held| held.taken_at != 0).map(|held| {
            let names = self.finder.space.call(held.taken_at);
            names.first().map(|named| named.text.clone()).unwrap_or_default()
        });
        self.locks.push(Lock {
            address: found.object,
            kind: found.kind,
            maker: found.maker,
            name,
            declared_at,
            looks: found.looks,
            holder: holder.clone(),
            taken_at,
        });
        self.known.insert(key, self.locks.len() - 1);
        self.locks.len() - 1
    }

    /// What to call it, and where it is declared.
    fn name(&self, found: &Found, thread: usize) -> (String, Option<String>) {
        let noun = found.kind.noun();
        match found.kind {
            Kind::Join => return (self.joined(found), None),
            Kind::SemaphoreArray => return (format!("System V semaphore array {}", found.object), None),
            _ => {}
        }
        if found.object == 0 {
            return (format!("a {noun}"), None);
        }
        if let Some(variable) = self.finder.space.variable(found.object) {
            return (variable.name, variable.declared_at);
        }
        let kind = match found.kind {
            Kind::RwRead => Some(LockKind::RwReaders),
            Kind::RwWrite => Some(LockKind::RwWriters),
            Kind::Mutex => Some(LockKind::Mutex),
            Kind::Spinlock => Some(LockKind::Spinlock),
            _ => None,
        };
        let frames = &self.stacks[thread];
        let member = kind.and_then(|kind| {
            let functions: Vec<Names> = frames.iter().map(|frame| self.finder.space.call(frame.at)).collect();
            let line = interesting(&functions)?;
            let stack: Vec<u64> = frames.iter().map(|frame| frame.at).collect();
            self.finder.space.member(&stack, line, kind)
        });
        if let Some(member) = member {
            let member = shorten(&member, shorten::COLUMNS, &[]);
            return (format!("{member} at {:#x}", found.object), None);
        }
        let on_stack = self.source.threads.iter().zip(&self.stacks).find_map(|(of, frames)| {
            if !(of.sp()..of.stack.end()).contains(&found.object) {
                return None;
            }
            let frame = frames.iter().find(|frame| found.object < frame.end)?;
            let names = self.finder.space.call(frame.at);
            let function = names.last().map(|named| named.name.as_str()).filter(|name| !name.is_empty())?;
            Some(format!("{noun} in a variable of {function}"))
        });
        (on_stack.unwrap_or_else(|| format!("{noun} {:#x}", found.object)), None)
    }

    fn joined(&self, found: &Found) -> String {
        let Some(Holder::Thread(id)) = found.told else { return Kind::Join.noun().to_owned() };
        let of = self.source.threads.iter().find(|thread| thread.inner == id);
        let name = of.map(|thread| thread.name.as_str()).filter(|name| !name.is_empty());
        match name {
            Some(name) => format!("the end of {name} ({id})"),
            None => format!("the end of thread {id}"),
        }
    }
}

/// What a thread does that does not wait for others.
fn state(thread: &Thread) -> String {
    match &thread.doing {
        Doing::Running => "running".to_owned(),
        Doing::Gone => "gone".to_owned(),
        Doing::Outside { .. } => "stopped".to_owned(),
        Doing::Call { call, .. } if call.waits_for_futex() => "asleep on a futex".to_owned(),
        Doing::Call { call, .. } => format!("asleep in {}", calls::name(call.number)),
    }
}

/// The innermost function that is the program's own and no wrapper of a lock.
fn interesting(functions: &[Names]) -> Option<&crate::observe::symbols::Frame> {
    let all = || functions.iter().flat_map(|names| names.iter());
    let is_inside = |named: &&crate::observe::symbols::Frame| {
        named.is_plumbing
            || named.module.starts_with("libpoundlock")
            || ["std::sys", "std::sync::", "parking_lot", "lock_api", "core::"].iter().any(|start| {
                named.function.starts_with(start) || named.function.starts_with(&format!("<{start}"))
            })
    };
    let own = || all().filter(|named| !is_inside(named));
    own().find(|named| !acquires(&named.function)).or_else(|| own().next()).or_else(|| all().next())
}

fn line(functions: &[Names]) -> String {
    interesting(functions).map(|named| named.text.clone()).unwrap_or_default()
}
