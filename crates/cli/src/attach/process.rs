//! A process that is watched: its mappings and threads, its stacks, and what each of them waits for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use poundlock_statfile::{
    EndedThread, HoldNow, Holder, LockKind, LockStats, Site, Snapshot, ThreadStats, WaitNow,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::bpf;
use super::record::Words;
use super::stacks::{Copied, NO_STACK, Object, StackId, Stacks};
use super::waits::{Place, Sort, Waited, Waiting};
use crate::observe::proc::{memory_of, read_text};
use crate::observe::symbols::{Space, Symbols};
use crate::observe::words::sleeps_in_go;
use crate::remote::Memory as _;
use crate::remote::maps::{Files, Mapping, Maps};
use crate::remote::process::Live;
use crate::remote::unwind::{Tables, Unwinder};
use crate::stat::inside::LONG_NS;
use crate::who::has_ended;
use crate::who::waits::{Kind, Maker, owner_in_glibc, said_by};

/// Only the innermost functions tell what is waited for.
const INNER: usize = 14;
/// Around the word of a thread that parks, what it parks for.
const AROUND: u64 = 64;
/// A lock of which only its places are known gets a number below all addresses for each of them.
const NUMBERS: u64 = 16;
/// Where the words of condition variables are that say nothing else: glibc up to 2.40.
const CONDITION: u64 = 40;

/// Parts of the names of functions of Java's machine that sleep and wake for their callers,
const JAVA: [&str; 6] = [
    "PlatformEvent::",
    "ObjectMonitor::",
    "ObjectSynchronizer::",
    "Parker::",
    "Unsafe_Park",
    "Unsafe_Unpark",
];
/// those between them and Java's own functions,
const JAVA_ENTRIES: [&str; 3] = ["SharedRuntime::", "InterpreterRuntime::", "_complete_monitor_"];
/// and those of Java's library that take locks for their callers.
const JAVA_LOCKS: [&str; 5] = [
    "internal.misc.Unsafe.park",
    "internal.misc.Unsafe.unpark",
    "locks.LockSupport.",
    "locks.AbstractQueuedSynchronizer",
    "locks.ReentrantLock",
];

/// A thread.
#[derive(Clone, Copy, Debug)]
struct Life {
    since: u64,
    until: Option<u64>,
    /// It has called futex.
    called: bool,
}

/// One process, as long as it is one program.
pub(super) struct Process {
    /// No other one has had this number.
    number: u32,
    files: Files,
    maps: Maps,
    /// There are mappings that `described` and the unwinder do not know.
    changed: bool,
    described: Snapshot,
    unwinder: Option<Unwinder>,
    memory: Live,
    pub(super) stacks: Stacks,
    /// By stack.
    told: Vec<Told>,
    threads: FxHashMap<u32, Life>,
    started: u32,
    since: u64,
}

/// What a stack waits for.
#[derive(Clone, Debug)]
struct Told {
    kind: Option<Kind>,
    maker: Maker,
    /// By what the word was to be: how far before it the object begins.
    before: [u64; 4],
    /// The word is in no lock.
    elsewhere: bool,
    /// The functions that tell have no names.
    nameless: bool,
    /// Our library is on the stack and has counted the wait as what it is.
    measured: bool,
    /// The stack from the caller on, of a wake-up too.
    outer: Arc<[u64]>,
}

impl Process {
    /// One that runs, or has run: then what it has mapped comes in records.
    pub(super) fn new(pid: u32, since: u64, parent: Option<&Process>) -> Process {
        let text = read_text(format!("/proc/{}/maps", memory_of(pid))).unwrap_or_default();
        let mut maps = Maps::parse(&text);
        if maps.0.is_empty()
            && let Some(parent) = parent
        {
            maps = parent.maps.clone();
        }
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        Process {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            files: Files::of(pid),
            maps,
            changed: true,
            described: Snapshot { pid, ..Snapshot::default() },
            unwinder: None,
            memory: Live::new(pid),
            stacks: Stacks::default(),
            told: Vec::new(),
            threads: FxHashMap::default(),
            started: 0,
            since,
        }
    }

    /// Another one of its mappings.
    pub(super) fn mapped(&mut self, mut mapping: Mapping) {
        if mapping.path.starts_with("//") || !mapping.path.starts_with('/') {
            mapping.path = String::new();
        }
        let known = self.maps.at(mapping.start);
        if known.is_some_and(|known| known.end >= mapping.end && known.path == mapping.path) {
            return;
        }
        self.maps.0.retain(|other| other.end <= mapping.start || other.start >= mapping.end);
        let at = self.maps.0.partition_point(|other| other.start < mapping.start);
        self.maps.0.insert(at, mapping);
        self.changed = true;
    }

    pub(super) fn lives(&mut self, tid: u32, since: u64, is_new: bool) {
        self.started += u32::from(is_new);
        self.threads.entry(tid).or_insert(Life { since, until: None, called: false });
    }

    pub(super) fn called(&mut self, tid: u32, time: u64) {
        self.threads.entry(tid).or_insert(Life { since: time, until: None, called: true }).called = true;
    }

    pub(super) fn ended(&mut self, tid: u32, time: u64) {
        if let Some(life) = self.threads.get_mut(&tid) {
            life.until = Some(time);
        }
    }

    /// It is another program from now on.
    pub(super) fn ended_all(&mut self, time: u64) {
        self.threads.values_mut().for_each(|life| life.until = life.until.or(Some(time)));
    }

    /// All its threads have ended.
    pub(super) fn is_over(&self) -> bool {
        !self.threads.is_empty() && self.threads.values().all(|life| life.until.is_some())
    }

    /// Figures begin anew.
    pub(super) fn begin_anew(&mut self, now: u64) {
        self.threads.retain(|_, life| life.until.is_none());
        self.threads.values_mut().for_each(|life| life.since = now);
        (self.since, self.started) = (now, 0);
    }

    /// The number of a stack.
    pub(super) fn stack(&mut self, copied: &Copied, waits_for: Option<u64>) -> StackId {
        if let Some(known) = self.stacks.seen(copied) {
            return known;
        }
        self.unwound(copied, waits_for, true)
    }

    /// The stack that has this number among those of all processes, if it is one of ours.
    pub(super) fn by_number(&self, number: u64) -> Option<StackId> {
        (number >> 32 == u64::from(self.number)).then_some(number as StackId)
    }

    /// The number among those of all processes, and where the return addresses are, of the stack that was
    /// known again last: if they tell all that there is to know of a call with that stack.
    pub(super) fn lesson(&self, stack: StackId) -> Option<(u64, Vec<(u32, u64)>)> {
        let places = self.stacks.places();
        let told = (stack as usize) < self.told.len() && self.stacks.get(stack).object == Object::Word;
        let number = u64::from(self.number) << 32 | u64::from(stack);
        (told && bpf::can_learn(places)).then(|| (number, places.to_vec()))
    }

    /// Where the stack of a thread begins that was asleep before there were events: as it is now. Its frame
    /// pointer is not known, so it may end early, and is none by which others are known again.
    pub(super) fn asleep(&mut self, sp: u64, pc: u64, word: u64) -> StackId {
        const STACK: usize = 8 << 10;
        let mut bytes = vec![0; STACK];
        let len = self.memory.read(sp, &mut bytes);
        bytes.truncate(len);
        let registers = super::record::Registers { pc, sp, fp: 0, lr: 0 };
        let copied = Copied { registers, stack: &bytes, chain: Words::default() };
        self.unwound(&copied, Some(word), false)
    }

    fn unwound(&mut self, copied: &Copied, waits_for: Option<u64>, remember: bool) -> StackId {
        self.refresh();
        let unwinder = self
            .unwinder
            .get_or_insert_with(|| Unwinder::new(&self.described, &self.maps, &mut Tables::default()));
        self.stacks.add(copied, (waits_for, remember), (unwinder, &self.maps), &self.memory)
    }

    /// Brings up to date what depends on the mappings.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let described = self.files.describe(&self.maps);
        let exe = if described.exe.is_empty() {
            // The first file that has code is the program.
            let first = self.maps.0.iter().find(|mapping| mapping.executable && !mapping.path.is_empty());
            first.map(|mapping| mapping.path.clone()).unwrap_or_default()
        } else {
            described.exe.clone()
        };
        // A thread may have led to them, in place of the first one.
        self.described = Snapshot { pid: self.described.pid, exe, ..described };
        self.unwinder = None;
    }

    /// Of a wait for several words the first, and what it was to be; of a call with a list of words likewise.
    pub(super) fn first_of_many(&self, at: u64) -> Option<(u64, u32)> {
        let (expected, word) = (self.memory.long(at)?, self.memory.long(at + 8)?);
        Some((word, expected as u32))
    }

    /// The lock that a wait is for, if its word is not in it: 0 if that is not known, or not so.
    pub(super) fn object(&mut self, stack: StackId, copied: &Copied, futex: u64) -> u64 {
        if self.stacks.get(stack).object == Object::Word {
            return 0;
        }
        let read = self.parked_for(copied, futex);
        self.stacks.learn(stack, copied.stack, read);
        match &self.stacks.get(stack).object {
            Object::Among(places) => {
                places.first().and_then(|&at| super::record::word(copied.stack, at as usize)).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// What a thread of parking_lot notes beside its word: an address that is on its stack, and of none.
    fn parked_for(&self, copied: &Copied, futex: u64) -> Option<u64> {
        let mut around = [0; 2 * AROUND as usize];
        let from = futex.saturating_sub(AROUND) & !7;
        let len = self.memory.read(from, &mut around);
        // A thread's own word lies behind its stack, or far from it.
        let (low, high) = (copied.registers.sp, copied.registers.sp + (64 << 20));
        let own = |at: u64| (low..high).contains(&at) || at.abs_diff(futex) <= 4 * AROUND;
        let on_stack = |key: u64| Words::new(copied.stack).iter().any(|word| word == key);
        let all = Words::new(&around[..len]);
        let mut found = all.iter().filter(|&key| key > 0xffff && key < 1 << 48 && !own(key) && on_stack(key));
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }

    /// Whether it is a Java machine, of whose functions some get names as it runs.
    pub(super) fn is_java(&self) -> bool {
        self.maps.0.iter().any(|mapping| mapping.path.ends_with("/libjvm.so"))
    }

    /// Finds out anew what all stacks wait for, since functions may have names by now.
    pub(super) fn tell_anew(&mut self, symbols: &Symbols) {
        self.told.clear();
        self.tell(symbols);
    }

    /// Finds out what stacks wait for that are new.
    pub(super) fn tell(&mut self, symbols: &Symbols) {
        if self.told.len() == self.stacks.count() as usize {
            return;
        }
        self.refresh();
        let space = symbols.space(&self.described);
        for id in self.told.len() as StackId..self.stacks.count() {
            let told = told(&space, &self.stacks.get(id).addresses);
            if told.elsewhere {
                *self.stacks.object_mut(id) = Object::Unknown;
            }
            self.told.push(told);
        }
    }

    /// What a wait is for: its kind, and the address by which it is counted.
    pub(super) fn lock(&self, place: &Place) -> (LockKind, u64) {
        let told = &self.told[place.stack as usize];
        let Sort { expected, inherits } = place.sort;
        let none = NUMBERS + u64::from(place.stack);
        if inherits {
            return (LockKind::PriorityMutex, place.word);
        }
        let Some(kind) = told.kind else {
            // Without names it may be a mutex by its number, as glibc and Rust's std have it.
            let is_mutex = told.nameless && expected == 2;
            return (if is_mutex { LockKind::Mutex } else { LockKind::Futex }, place.word);
        };
        let before = told.before[usize::from(expected).min(3)];
        let object = match (kind, told.maker) {
            _ if place.own_object => place.word,
            // A thread of Go waits at a word of its own for whatever its goroutines need.
            _ if told.elsewhere || told.maker == Maker::Go => none,
            (Kind::Condition, Maker::Glibc) => {
                let known = self.stacks.get(place.stack).condition;
                (place.word & !7).wrapping_sub(known.or_else(|| self.usual()).unwrap_or(CONDITION))
            }
            _ => place.word.wrapping_sub(before),
        };
        match kind {
            Kind::Mutex | Kind::Once | Kind::Stream | Kind::Internal => (LockKind::Mutex, object),
            Kind::RwRead => (LockKind::RwReaders, object),
            Kind::RwWrite => (LockKind::RwWriters, object + LockKind::WRITERS as u64),
            Kind::Condition => (LockKind::Condition, object),
            Kind::Semaphore => (LockKind::Semaphore, object),
            Kind::Barrier => (LockKind::Barrier, object),
            Kind::Join => (LockKind::Join, object),
            Kind::Spinlock => (LockKind::Spinlock, object),
            Kind::Park | Kind::SemaphoreArray | Kind::Futex => (LockKind::Futex, object),
        }
    }

    /// Where the words of condition variables are in this process, as any stack tells.
    fn usual(&self) -> Option<u64> {
        (0..self.stacks.count()).find_map(|id| self.stacks.get(id).condition)
    }

    /// The figures: what threads waited for until `now`, and what they wait for still. Of the waits that our
    /// library counts in the process itself (`beside`), those for locks are left out, and the rest is summed
    /// up by kind at address 0: the time is needed to tell what threads had to do.
    pub(super) fn snapshot(
        &mut self,
        symbols: &Symbols,
        (places, going_on): (&FxHashMap<Place, Waited>, &[(u32, Waiting)]),
        now: u64,
        beside: bool,
    ) -> Snapshot {
        self.tell(symbols);
        self.refresh();
        let mut locks: BTreeMap<(u8, u64), LockStats> = BTreeMap::new();
        let mut records: BTreeMap<u32, ThreadStats> = BTreeMap::new();
        for (place, waited) in places {
            let (kind, mut address) = self.lock(place);
            if beside && self.told[place.stack as usize].measured {
                if kind.is_acquired() {
                    continue;
                }
                address = 0;
            }
            let lock = locks.entry((kind as u8, address)).or_insert_with(|| LockStats {
                address,
                kind,
                ..LockStats::default()
            });
            self.add(lock, place.stack, waited);
            for (&tid, &(calls, ns)) in &waited.threads {
                let record = records.entry(tid).or_default();
                record.contended += calls;
                record.wait_ns += ns;
                if kind.is_acquired() {
                    record.lock_waits += calls;
                    record.lock_wait_ns += ns;
                }
            }
        }
        let callers: Vec<(u32, Life)> =
            self.threads.iter().filter(|(_, life)| life.called).map(|(&tid, &life)| (tid, life)).collect();
        for (tid, life) in &callers {
            let record = records.entry(*tid).or_default();
            (record.started_ns, record.lives) = (life.since, life.until.is_none());
        }
        for (tid, record) in &mut records {
            record.tid = *tid;
        }
        let seen = |waiting: &Waiting| !(beside && self.told[waiting.place.stack as usize].measured);
        for (tid, waiting) in going_on.iter().filter(|(_, waiting)| seen(waiting)) {
            let (kind, address) = self.lock(&waiting.place);
            let stack = self.told[waiting.place.stack as usize].outer.clone();
            let waits = WaitNow { address, kind, since_ns: waiting.since, stack };
            records.entry(*tid).or_default().waits = Some(waits);
        }
        self.add_ended_holders(&mut records, going_on.iter().filter(|(_, waiting)| seen(waiting)), now);
        let mut locks: Vec<LockStats> = locks.into_values().collect();
        for lock in &mut locks {
            lock.sites.sort_by_key(|site| std::cmp::Reverse(site.wait_ns));
            lock.holders.sort_by_key(|holder| std::cmp::Reverse(holder.caused_ns));
        }
        locks.sort_by_key(|lock| std::cmp::Reverse((lock.wait_total_ns, lock.contended)));
        let lived = |(_, life): &(u32, Life)| life.until.unwrap_or(now).saturating_sub(life.since);
        Snapshot {
            start_ns: self.since,
            threads: callers.len() as u32,
            started: (self.threads.len() as u32).saturating_sub(1),
            thread_time_ns: callers.iter().map(lived).sum(),
            locks,
            records: records.into_values().collect(),
            ..self.described.clone()
        }
    }

    /// Adds the threads that have ended and that locks of glibc's name as their owners, where others have
    /// waited for long.
    fn add_ended_holders<'w>(
        &self,
        records: &mut BTreeMap<u32, ThreadStats>,
        going_on: impl Iterator<Item = &'w (u32, Waiting)>,
        now: u64,
    ) {
        let pid = self.described.pid;
        let mut known = FxHashSet::default();
        for (_, waiting) in going_on.filter(|(_, waiting)| now.saturating_sub(waiting.since) >= LONG_NS) {
            let told = &self.told[waiting.place.stack as usize];
            let Some(kind) = told.kind.filter(|_| told.maker == Maker::Glibc) else { continue };
            let (waits_as, address) = self.lock(&waiting.place);
            let object = waits_as.object(address);
            if !known.insert(object) {
                continue;
            }
            let owner = || owner_in_glibc(&self.memory, kind, object);
            // The lock may be the next owner's by now.
            let Some(tid) = owner().filter(|&tid| has_ended(pid, tid) && owner() == Some(tid)) else {
                continue;
            };
            let (kind, address) = match waits_as {
                LockKind::RwReaders => (LockKind::RwWriters, object + LockKind::WRITERS as u64),
                kind => (kind, address),
            };
            let record = records.entry(tid).or_default();
            record.tid = tid;
            // Names of threads are not recorded.
            let at_ns = self.threads.get(&tid).and_then(|life| life.until).unwrap_or(0);
            record.ended = Some(EndedThread { name: String::new(), at_ns });
            record.holds.push(HoldNow { address, kind, since_ns: None, acquired_at: 0 });
        }
    }

    fn add(&self, lock: &mut LockStats, stack: StackId, waited: &Waited) {
        // Waits that go on at once after a wake-up in vain are one wait for a lock.
        let again = if lock.kind.is_acquired() { waited.again } else { 0 };
        let calls = waited.calls.saturating_sub(again);
        let (ns, max) = if lock.kind.is_acquired() {
            (waited.ns + waited.between_ns, waited.max_with_again_ns)
        } else {
            (waited.ns, waited.max_ns)
        };
        lock.contended += calls;
        lock.timeouts += waited.timeouts;
        lock.wait_total_ns += ns;
        lock.wait_max_ns = lock.wait_max_ns.max(max);
        lock.in_vain += waited.again;
        let buckets = &mut lock.wait_buckets;
        buckets.resize(buckets.len().max(waited.buckets.len()), 0);
        for (sum, count) in buckets.iter_mut().zip(&waited.buckets) {
            *sum += count;
        }
        let outer = &self.told[stack as usize].outer;
        let at = lock.sites.iter().position(|site| Arc::ptr_eq(&site.stack, outer)).unwrap_or_else(|| {
            lock.sites.push(Site { stack: outer.clone(), ..Site::default() });
            lock.sites.len() - 1
        });
        let site = &mut lock.sites[at];
        site.contended += calls;
        site.wait_ns += ns;
        site.wait_max_ns = site.wait_max_ns.max(max);
        site.timeouts += waited.timeouts;
        site.in_vain += waited.again;
        for (&by, &(count, caused)) in &waited.woken_by {
            if by == NO_STACK {
                continue;
            }
            let stack = &self.told[by as usize].outer;
            let at = lock.holders.iter().position(|holder| Arc::ptr_eq(&holder.stack, stack));
            let at = at.unwrap_or_else(|| {
                lock.holders.push(Holder { stack: stack.clone(), ..Holder::default() });
                lock.holders.len() - 1
            });
            lock.holders[at].holds += count;
            lock.holders[at].caused_ns += caused;
        }
    }
}

/// What the names on a stack say.
fn told(space: &Space, addresses: &Arc<[u64]>) -> Told {
    let functions: Vec<(String, String)> = addresses.iter().take(INNER).map(|&at| space.symbol(at)).collect();
    let of_musl = functions.iter().any(|(name, module)| {
        module.contains("musl") || matches!(name.trim_start_matches('_'), "timedwait_cp" | "timedwait")
    });
    let nameless = functions.iter().take(3).all(|(name, _)| name.is_empty());
    let said = |expected: u32| {
        functions
            .iter()
            .enumerate()
            .find_map(|(depth, (name, _))| Some((depth, said_by(name, expected, of_musl)?)))
    };
    let in_library = functions.iter().any(|(_, module)| module.starts_with("libpoundlock"));
    let Some((depth, first)) = said(2) else {
        let outer = java_callers(space, &functions, addresses, 0).unwrap_or_else(|| addresses.clone());
        return Told {
            kind: None,
            maker: Maker::Unknown,
            before: [0; 4],
            elsewhere: false,
            nameless,
            measured: in_library,
            outer,
        };
    };
    let ours = functions[depth].1.starts_with("libpoundlock");
    let java = java(&functions[depth..]);
    // A wrapper of that name, or one within our library, is not the caller either.
    let mut inner = depth + 1;
    while functions.get(inner).is_some_and(|(name, module)| {
        (first.maker == Maker::Go && sleeps_in_go(name))
            || (ours && module.starts_with("libpoundlock"))
            || (java.is_some() && module.starts_with("libjvm") && JAVA.iter().any(|part| name.contains(part)))
            || said_by(name, 2, of_musl).is_some_and(|said| said.kind == first.kind)
    }) {
        inner += 1;
    }
    let outer: Arc<[u64]> = match addresses.get(inner..) {
        Some(rest) if !rest.is_empty() => rest.into(),
        _ => addresses.clone(),
    };
    let callers = java.and_then(|_| java_callers(space, &functions, addresses, depth));
    let outer = callers.unwrap_or(outer);
    Told {
        kind: Some(java.unwrap_or(first.kind)),
        maker: if ours { Maker::Poundlock } else { first.maker },
        before: std::array::from_fn(|expected| said(expected as u32).map_or(0, |(_, said)| said.before)),
        elsewhere: ours || java.is_some() || first.maker == Maker::ParkingLot,
        nameless,
        measured: in_library && java.is_none() && matches!(first.maker, Maker::Glibc | Maker::Poundlock),
        outer,
    }
}

/// From Java's own functions on, where the machine's sleep or wake for them, and theirs have names.
fn java_callers(
    space: &Space,
    functions: &[(String, String)],
    addresses: &[u64],
    from: usize,
) -> Option<Arc<[u64]>> {
    let one_of = |name: &str, parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let sleeps = |name: &str, module: &str| module.starts_with("libjvm") && one_of(name, &JAVA);
    let at = from + functions[from..].iter().position(|(name, module)| sleeps(name, module))?;
    let mut rest = addresses.iter().enumerate().skip(at).map(|(at, &address)| {
        let frames = space.call(address);
        (at, frames.first().map(|frame| (frame.function.clone(), frame.module.clone())).unwrap_or_default())
    });
    let (at, (name, _)) = rest.find(|(_, (name, module))| {
        let is_way = one_of(name, &JAVA_ENTRIES) || one_of(name, &JAVA_LOCKS);
        !(is_way || module.starts_with("libjvm") && one_of(name, &JAVA))
    })?;
    (!name.is_empty() && name != "Interpreter").then(|| addresses[at..].into())
}

/// What a thread of a Java machine waits for with its own condition variable.
fn java(functions: &[(String, String)]) -> Option<Kind> {
    let queued = |part: &str| functions.iter().any(|(name, _)| name.contains(part));
    // Semaphores and latches share their acquisitions; a condition is awaited, and its lock taken again then.
    let is_locked = queued("AbstractQueuedSynchronizer.acquire")
        && !["cquireShared", "Shared(", ".await"].iter().any(|part| queued(part));
    let of_machine = functions.iter().filter(|(_, module)| module.starts_with("libjvm"));
    of_machine.clone().find_map(|(name, _)| {
        let has = |part: &str| name.contains(part);
        if has("ObjectMonitor::enter") || has("ObjectMonitor::EnterI") || has("ObjectMonitor::ReenterI") {
            Some(Kind::Mutex)
        } else if has("ObjectMonitor::wait") {
            Some(Kind::Condition)
        } else if has("Parker::park") || has("Unsafe_Park") {
            Some(if is_locked { Kind::Mutex } else { Kind::Park })
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_over_others_takes_their_place() {
        let mut process = Process::new(std::process::id(), 0, None);
        let mapping = |start, end, path: &str| Mapping {
            start,
            end,
            offset: 0,
            executable: true,
            writable: false,
            inode: 1,
            path: path.to_owned(),
        };
        process.maps = Maps(vec![mapping(0x1000, 0x2000, "/a"), mapping(0x3000, 0x5000, "/b")]);
        process.changed = false;
        process.mapped(mapping(0x1000, 0x2000, "/a"));
        assert!(!process.changed, "it was known");
        process.mapped(mapping(0x4000, 0x6000, "//anon"));
        let paths: Vec<(u64, &str)> =
            process.maps.0.iter().map(|mapping| (mapping.start, &*mapping.path)).collect();
        assert_eq!(paths, [(0x1000, "/a"), (0x4000, "")]);
        assert!(process.changed);
    }

    #[test]
    fn waits_of_java_are_told_by_the_functions_of_its_machine() {
        let of = |names: &[&str]| {
            let functions: Vec<_> =
                names.iter().map(|name| ((*name).to_owned(), "libjvm.so".to_owned())).collect();
            java(&functions)
        };
        assert_eq!(
            of(&["os::PlatformEvent::park()", "ObjectMonitor::EnterI(JavaThread*)"]),
            Some(Kind::Mutex)
        );
        assert_eq!(
            of(&["os::PlatformEvent::park()", "ObjectMonitor::wait(long, bool)"]),
            Some(Kind::Condition)
        );
        assert_eq!(of(&["Parker::park(bool, long)"]), Some(Kind::Park));
        let queued = "boolean java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire(int)";
        assert_eq!(of(&["Parker::park(bool, long)", queued]), Some(Kind::Mutex));
        let latch =
            "void java.util.concurrent.locks.AbstractQueuedSynchronizer.acquireSharedInterruptibly(int)";
        assert_eq!(of(&["Parker::park(bool, long)", queued, latch]), Some(Kind::Park));
        assert_eq!(of(&["Monitor::wait(long)"]), None);
    }
}
