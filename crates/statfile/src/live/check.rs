//! What a process under check leaves, read while it runs or after its death: the log of events, what its
//! threads hold, and what its locks are.

use std::collections::HashMap;
use std::mem::{offset_of, size_of};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::{Live, LiveHold};
use crate::LockKind;
use crate::check::{ClassKey, Edge, End, Event, Held as HeldLock, LockId, Misuse, Mode, Serial, Wrong};
use crate::layout::{
    self, CheckSlot, Checked, GUARDS, Header, Held, LOST, LogEdge, LogEnd, LogHead, LogLock, LogMisuse,
    LogSlot, Lost, MAX_FRAMES, ModuleSlot, READERS, Record, StackSlot,
};
use crate::snapshot::Module;

/// How far the log of a process has been read, and what it has told so far. `Default`: from the first event that
/// has not been read.
#[derive(Debug, Default)]
pub struct Log {
    /// The number of the next event.
    next: u64,
    /// An event that is not whole is left out, and not waited for: its process is dead.
    pub skip_torn: bool,
    /// At most so many events are passed on at a time; 0: all that there are.
    at_once: u64,
    /// Events that were left out: not whole, or of no kind that is known.
    pub torn: u64,
    stacks: HashMap<u32, Arc<[u64]>>,
}

impl Log {
    /// As `default`, but at most so many events are passed on at a time.
    #[must_use]
    pub fn in_steps(at_once: u64) -> Log {
        Log { at_once, ..Log::default() }
    }

    /// As `default`, of a process that does not go on: what is not whole will not be.
    #[must_use]
    pub fn of_dead_process() -> Log {
        Log { skip_torn: true, ..Log::default() }
    }
}

/// An event, with what is known of its locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Its place in the log, which is a moment.
    pub moment: u64,
    /// The thread's id, in the process's own namespace.
    pub tid: u32,
    /// The thread's name, when it logged for the first time.
    pub name: String,
    /// The locks that it is about: of an edge `from` and `to`.
    pub locks: Vec<LoggedLock>,
    /// What happened.
    pub event: Event,
}

/// A lock of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedLock {
    /// Which.
    pub lock: LockId,
    /// Where it is: of a readers-writer lock, the lock itself.
    pub address: u64,
    /// What it is: a readers-writer lock as its writers.
    pub kind: LockKind,
}

/// A lock, as long as no other has its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Where it is: of a readers-writer lock, the lock itself.
    pub address: u64,
    /// What it is: a readers-writer lock as its writers.
    pub kind: LockKind,
    /// The stack that initialised it; empty if it was initialised statically or nobody knows.
    pub created_at: Arc<[u64]>,
    /// Its class.
    pub class: ClassKey,
    /// The moment at which it was made; 0 if it is no more.
    pub made: u64,
    /// Whether it is no more.
    pub destroyed: bool,
    /// The thread that holds it alone.
    pub holder: Option<Serial>,
    /// How many read under it.
    pub readers: u32,
    /// How many wait for it.
    pub waiters: u32,
}

/// What found no room in a process under check. All 0 if nothing is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unseen {
    /// Events that were not logged: the command was too slow, or the disk is full.
    pub events: u64,
    /// Times that an order of two locks found no room: beyond [`CheckRoom`](crate::writer::CheckRoom)'s
    /// limit.
    pub orders: u64,
    /// Orders of locks of which there is no evidence, since the table of orders of classes had no memory.
    pub pairs: u64,
    /// Findings, for the same reason.
    pub findings: u64,
    /// Orders within one class, beyond those of which there is evidence.
    pub within: u64,
    /// Locks.
    pub locks: u64,
    /// Holds.
    pub holds: u64,
    /// Edges with more guards than are named.
    pub guards: u64,
    /// Operations of signal handlers that interrupted the recorder, or without memory.
    pub operations: u64,
}

impl Live {
    /// Whether the process is under check: then it leaves no figures, but what is read here.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.header32(offset_of!(Header, check)) != 0
    }

    /// Passes what is new in the log to `each`, in its order, up to the first event that is not whole; their
    /// places in the log are free then for new ones. There is one reader of a log. Returns whether there is
    /// more to be read at once.
    pub fn events(&self, log: &mut Log, each: &mut dyn FnMut(Logged)) -> bool {
        let capacity = u64::from(self.header32(offset_of!(Header, log_capacity)));
        let all = self.header64(offset_of!(Header, next_event));
        if capacity == 0 || !capacity.is_power_of_two() {
            return false;
        }
        // What another reader had read may be gone.
        log.next = log.next.max(self.header64(offset_of!(Header, consumed)).min(all));
        // Of a damaged file: no more than there are.
        let most = if log.at_once == 0 { capacity } else { log.at_once.min(capacity) };
        let end = all.min(log.next.saturating_add(most));
        while log.next < end {
            let place = (log.next & (capacity - 1)) * size_of::<LogSlot>() as u64;
            let at = self.header64(offset_of!(Header, log_offset)).saturating_add(place);
            let ready = self.u32(at.saturating_add(offset_of!(LogHead, ready) as u64));
            let event = (ready == (log.next as u32).wrapping_add(1)).then(|| self.event(log, at));
            match event {
                None if !log.skip_torn => break,
                None | Some(None) => log.torn += 1,
                Some(Some(event)) => each(event),
            }
            log.next += 1;
        }
        self.consumed(log.next);
        log.next == end && end < all
    }

    /// Events below this number have been read.
    fn consumed(&self, number: u64) {
        let at = layout::HEADER_OFFSET + offset_of!(Header, consumed) as u64;
        if self.writable && self.u64(at) < number {
            // SAFETY: in the header, which a file that is open has, and written by nobody else. Release: what
            // was there has been read.
            unsafe { (*self.base.add(at as usize).cast::<AtomicU64>()).store(number, Release) };
        }
    }

    fn event(&self, log: &mut Log, at: u64) -> Option<Logged> {
        let head = |offset: usize| self.u32(at.saturating_add(offset as u64));
        let thread = Serial(head(offset_of!(LogHead, thread)));
        let (event, locks) = match head(offset_of!(LogHead, kind)) {
            layout::LOG_EDGE => self.edge(log, at, thread),
            layout::LOG_SIGNALLED => match self.edge(log, at, thread) {
                (Event::Edge(edge), locks) => {
                    let event = Event::Signalled { lock: edge.from.held.lock, held: edge.guards };
                    (event, locks.into_iter().take(1).collect())
                }
                other => other,
            },
            layout::LOG_MISUSE => self.misuse(log, at, thread)?,
            layout::LOG_NAMED => (Event::Named(thread), Vec::new()),
            kind => self.about_a_lock(at, thread, kind)?,
        };
        let tid = head(offset_of!(LogHead, tid));
        Some(Logged { moment: log.next, tid, name: self.name(at), locks, event })
    }

    fn edge(&self, log: &mut Log, at: u64, thread: Serial) -> (Event, Vec<LoggedLock>) {
        let field = |offset: usize| self.u32(at.saturating_add(offset as u64));
        let how = field(offset_of!(LogEdge, how)).to_le_bytes();
        let kinds = field(offset_of!(LogEdge, kinds)).to_le_bytes();
        let modes = field(offset_of!(LogEdge, guard_modes));
        let mut end = |offset: usize, mode: u8, kind: u8| {
            let field = |within: usize| field(offset + within);
            let lock = LockId(field(offset_of!(LogEnd, lock)));
            let address = self.u64(at.saturating_add((offset + offset_of!(LogEnd, address)) as u64));
            let end = End {
                held: HeldLock { lock, mode: Mode::from_byte(mode) },
                class: ClassKey(field(offset_of!(LogEnd, class))),
                stack: self.stack_of(log, field(offset_of!(LogEnd, stack))),
                made: field(offset_of!(LogEnd, made)).into(),
            };
            (end, LoggedLock { lock, address, kind: LockKind::from_byte(kind) })
        };
        let (from, first) = end(offset_of!(LogEdge, from), how[0], kinds[0]);
        let (to, second) = end(offset_of!(LogEdge, to), how[1], kinds[1]);
        let guard = |n: usize| HeldLock {
            lock: LockId(field(offset_of!(LogEdge, guards) + 4 * n)),
            mode: Mode::from_byte((modes >> (4 * n)) as u8 & 15),
        };
        let guards = (0..usize::from(how[2]).min(GUARDS)).map(guard).collect();
        (Event::Edge(Edge { thread, from, to, guards, more: how[3] != 0 }), vec![first, second])
    }

    fn misuse(&self, log: &mut Log, at: u64, thread: Serial) -> Option<(Event, Vec<LoggedLock>)> {
        let field = |offset: usize| self.u32(at.saturating_add(offset as u64));
        let long = |offset: usize| self.u64(at.saturating_add(offset as u64));
        let what = Wrong::from_byte(u8::try_from(field(offset_of!(LogMisuse, what))).ok()?)?;
        let word = field(offset_of!(LogMisuse, lock));
        let address = long(offset_of!(LogMisuse, address));
        let lock = (word != 0).then_some(LockId(word));
        let other = field(offset_of!(LogMisuse, other_thread));
        let kind = LockKind::from_byte(field(offset_of!(LogMisuse, kind)) as u8);
        let misuse = Misuse {
            what,
            thread,
            lock,
            address,
            stack: self.stack_of(log, field(offset_of!(LogMisuse, stack))),
            other_stack: self.stack_of(log, field(offset_of!(LogMisuse, other_stack))),
            other_thread: (other != 0).then_some(Serial(other)),
            number: long(offset_of!(LogMisuse, number)),
        };
        let locks = lock.map(|lock| LoggedLock { lock, address, kind }).into_iter().collect();
        Some((Event::Misuse(misuse), locks))
    }

    fn name(&self, at: u64) -> String {
        let half = |n: u64| self.u64(at.saturating_add(offset_of!(LogSlot, name) as u64 + 8 * n));
        layout::name_of([half(0), half(1)])
    }

    fn about_a_lock(&self, at: u64, thread: Serial, kind: u32) -> Option<(Event, Vec<LoggedLock>)> {
        let field = |offset: usize| self.u32(at.saturating_add(offset as u64));
        let long = |offset: usize| self.u64(at.saturating_add(offset as u64));
        let lock = LockId(field(offset_of!(LogLock, lock)));
        let event = match kind {
            layout::LOG_DIED => Event::Died(lock),
            layout::LOG_WROTE => {
                let made = field(offset_of!(LogLock, made)).into();
                Event::Wrote { thread, lock, class: ClassKey(field(offset_of!(LogLock, class))), made }
            }
            layout::LOG_PLACED => Event::Placed { lock, place: long(offset_of!(LogLock, place)) },
            _ => return None,
        };
        let kind = LockKind::from_byte(field(offset_of!(LogLock, kind)) as u8);
        Some((event, vec![LoggedLock { lock, address: long(offset_of!(LogLock, address)), kind }]))
    }

    fn stack_of(&self, log: &mut Log, number: u32) -> Arc<[u64]> {
        if let Some(known) = log.stacks.get(&number) {
            return known.clone();
        }
        let stack = self.stack(number);
        if !stack.is_empty() {
            log.stacks.insert(number, stack.clone());
        }
        stack
    }

    /// The stack of this number; empty if it is unknown.
    fn stack(&self, number: u32) -> Arc<[u64]> {
        let used = self
            .header32(offset_of!(Header, next_stack))
            .min(self.header32(offset_of!(Header, stack_capacity)));
        if number == 0 || number >= used {
            return Arc::default();
        }
        let place = u64::from(number) * size_of::<StackSlot>() as u64;
        let at = self.header64(offset_of!(Header, stack_offset)).saturating_add(place);
        let field = |offset: usize| at.saturating_add(offset as u64);
        if self.u32(field(offset_of!(StackSlot, ready))) != 1 {
            return Arc::default();
        }
        let len = (self.u32(field(offset_of!(StackSlot, len))) as usize).min(MAX_FRAMES);
        (0..len).map(|frame| self.u64(field(offset_of!(StackSlot, frames) + 8 * frame))).collect()
    }

    /// The call that initialised the locks of this class; empty if the class is a lock by itself.
    #[must_use]
    pub fn class_stack(&self, class: ClassKey) -> Arc<[u64]> {
        if class.0 & ClassKey::BY_STACK == 0 {
            return Arc::default();
        }
        self.stack(class.0 & !ClassKey::BY_STACK)
    }

    /// What the lock is. `None` if another has its place.
    #[must_use]
    pub fn describe(&self, lock: LockId) -> Option<Described> {
        let index = lock.0 & layout::INDEX_MASK;
        let at = self.slot(index).filter(|_| self.is_checked())?;
        let field = |offset: usize| self.u32(at.saturating_add(offset as u64));
        let meta = self.u64(at.saturating_add(offset_of!(CheckSlot, meta) as u64));
        let state = layout::meta_state(meta);
        if layout::word_of(index, meta) != lock.0 || !matches!(state, layout::LIVE | layout::DEAD) {
            return None;
        }
        let kind = LockKind::from_byte(layout::meta_kind(meta));
        let stack = field(offset_of!(CheckSlot, stack));
        let holder = field(offset_of!(CheckSlot, holder));
        let (holder, readers) = match holder {
            0 => (None, 0),
            readers if readers & READERS != 0 => (None, readers & !READERS),
            // Of a condition variable it is another word.
            serial => ((kind != LockKind::Condition).then_some(Serial(serial)), 0),
        };
        let destroyed = state == layout::DEAD;
        Some(Described {
            address: kind.object(self.u64(at.saturating_add(offset_of!(CheckSlot, address) as u64))),
            kind,
            created_at: self.stack(stack),
            class: ClassKey(if stack == 0 { lock.0 } else { ClassKey::BY_STACK | stack }),
            // A dead one has something else there.
            made: if destroyed { 0 } else { field(offset_of!(CheckSlot, made)).into() },
            destroyed,
            holder,
            readers,
            waiters: field(offset_of!(CheckSlot, waiters)),
        })
    }

    /// How many objects were used that can be checked: all but futexes of the program's own and ends of
    /// threads.
    #[must_use]
    pub fn checkable(&self) -> u64 {
        let used = self.header32(offset_of!(Header, next_lock)).min(layout::INDEX_MASK + 1);
        let is_checkable = |&index: &u32| {
            let Some(at) = self.slot(index).filter(|_| self.is_checked()) else { return false };
            let meta = self.u64(at.saturating_add(offset_of!(CheckSlot, meta) as u64));
            // A slot that was given back says still what it was for.
            meta != 0
                && !matches!(LockKind::from_byte(layout::meta_kind(meta)), LockKind::Futex | LockKind::Join)
        };
        (0..used).filter(is_checkable).count() as u64
    }

    /// The lock with this tag, of a wait or a hold.
    #[must_use]
    pub fn lock_id(&self, tag: u64) -> LockId {
        LockId((tag >> 32) as u32)
    }

    fn checked(&self, record: usize) -> Option<u64> {
        let &at = self.records.get(record).filter(|_| self.is_checked())?;
        Some(at + offset_of!(Record, small_directory) as u64)
    }

    /// The number of the thread that has this record; 0 if there is none.
    #[must_use]
    pub fn serial(&self, record: usize) -> Serial {
        let at = self.checked(record).map(|at| at + offset_of!(Checked, serial) as u64);
        Serial(at.map_or(0, |at| self.u32(at)))
    }

    /// The thread as a `pthread_t`; 0 if it is unknown.
    #[must_use]
    pub fn pthread(&self, record: usize) -> u64 {
        let at = self.checked(record).map(|at| at + offset_of!(Checked, thread) as u64);
        at.map_or(0, |at| self.u64(at))
    }

    /// Where the thread waits, if it does; empty if that is unknown.
    #[must_use]
    pub fn wait_stack(&self, record: usize) -> Arc<[u64]> {
        let at = self.checked(record).map(|at| at + offset_of!(Checked, wait_stack) as u64);
        at.map_or_else(Arc::default, |at| self.stack(self.u32(at)))
    }

    /// How the thread asks for what it waits for.
    #[must_use]
    pub fn wait_mode(&self, record: usize) -> Mode {
        let at = self.checked(record).map(|at| at + offset_of!(Checked, wait_mode) as u64);
        Mode::from_byte(at.map_or(0, |at| self.u32(at)) as u8)
    }

    /// Whether the wait ends by itself, at a time.
    #[must_use]
    pub fn wait_is_timed(&self, record: usize) -> bool {
        let at = self.checked(record).map(|at| at + offset_of!(Checked, wait_timed) as u64);
        at.is_some_and(|at| self.u32(at) != 0)
    }

    /// The thread whose end it waits for, as a `pthread_t`, if it does.
    #[must_use]
    pub fn wait_join(&self, record: usize) -> Option<u64> {
        let at = self.checked(record)? + offset_of!(Checked, wait_join) as u64;
        Some(self.u64(at)).filter(|&thread| thread != 0)
    }

    /// Whether the lock itself says so, under check, of this hold by an ended thread.
    pub(super) fn is_had(&self, record: usize, hold: &LiveHold) -> bool {
        let says = |lock: Described| {
            let alone = lock.holder == Some(self.serial(record));
            !lock.destroyed && (alone || (hold.mode != Mode::Exclusive && lock.readers > 0))
        };
        !self.is_checked() || self.describe(self.lock_id(hold.tag)).is_some_and(says)
    }

    /// The stack that took this lock.
    #[must_use]
    pub fn hold_stack(&self, hold: &LiveHold) -> Arc<[u64]> {
        if hold.stack == 0 { Arc::default() } else { self.stack(hold.stack) }
    }

    /// What the thread of this record holds: its list.
    pub(super) fn checked_holds(&self, record: u64) -> Vec<LiveHold> {
        const MOST: u32 = 1 << 20;
        let at = record + offset_of!(Record, small_directory) as u64;
        let len = self.u32(at + offset_of!(Checked, held_len) as u64).min(MOST);
        let offset = self.u64(at + offset_of!(Checked, held_offset) as u64);
        let first = if offset == 0 { at + offset_of!(Checked, held) as u64 } else { offset };
        let room = if offset == 0 { layout::SHORT_LIST as u32 } else { len };
        let entries =
            (0..u64::from(len.min(room))).map(|n| first.saturating_add(n * size_of::<Held>() as u64));
        let mut holds: Vec<LiveHold> =
            entries.take_while(|&at| at < self.len).filter_map(|at| self.checked_hold(at)).collect();
        holds.retain(|hold| self.lock(hold.tag).is_some());
        holds
    }

    pub(super) fn checked_hold(&self, entry: u64) -> Option<LiveHold> {
        let field = |offset: usize| self.u32(entry.saturating_add(offset as u64));
        let word = field(offset_of!(Held, word));
        if word == 0 {
            return None;
        }
        let address = self.u64(entry.saturating_add(offset_of!(Held, address) as u64));
        let how = field(offset_of!(Held, how));
        let sequence = field(offset_of!(Held, sequence));
        let hold = LiveHold {
            tag: layout::tag(word, address),
            began: None,
            acquired_at: 0,
            mode: Mode::from_byte(how as u8),
            tried: how & layout::TRIED != 0,
            depth: 1 + how / layout::DEPTH,
            sequence,
            stack: field(offset_of!(Held, stack)),
            entry,
            start: 0,
            acquisitions: 0,
        };
        // All of it is of one hold if that went on all the while.
        (field(offset_of!(Held, word)) == word && field(offset_of!(Held, sequence)) == sequence)
            .then_some(hold)
    }

    /// Asks the process to log the end of this hold, as [`Wrong::LetGo`]. Whether the file can be written.
    #[must_use]
    pub fn watch(&self, hold: &LiveHold) -> bool {
        let at = hold.entry.saturating_add(offset_of!(Held, watch) as u64);
        if !self.writable || !self.is_checked() || !self.is_inside(at, 4) {
            return false;
        }
        // SAFETY: inside of the mapping, aligned, and a word that only the command writes while it is not 0.
        unsafe { (*self.base.add(at as usize).cast::<AtomicU32>()).store(hold.sequence, Relaxed) };
        true
    }

    /// What found no room.
    #[must_use]
    pub fn unseen(&self) -> Unseen {
        let lost = |what: Lost| {
            const { assert!((Lost::Findings as usize) < LOST) };
            self.header64(offset_of!(Header, lost) + 8 * what as usize)
        };
        Unseen {
            events: lost(Lost::Events),
            orders: lost(Lost::Edges),
            pairs: lost(Lost::Pairs),
            findings: lost(Lost::Findings),
            within: lost(Lost::Evidence),
            locks: self.header64(offset_of!(Header, overflow_locks)),
            holds: lost(Lost::Holds),
            guards: lost(Lost::Guards),
            operations: self.header64(offset_of!(Header, lost_events)),
        }
    }

    /// How many mappings of files the process has noted.
    #[must_use]
    pub fn modules_count(&self) -> u32 {
        self.header32(offset_of!(Header, next_module))
            .min(self.header32(offset_of!(Header, module_capacity)))
            .min(1 << 16)
    }

    /// The files that are or were mapped, in the order in which they were seen.
    #[must_use]
    pub fn modules(&self) -> Vec<Module> {
        let offset = self.header64(offset_of!(Header, module_offset));
        let module = |number: u32| {
            let at = offset.saturating_add(u64::from(number) * size_of::<ModuleSlot>() as u64);
            let field = |offset: usize| at.saturating_add(offset as u64);
            let len = self.u32(field(offset_of!(ModuleSlot, path_len)));
            (self.u32(field(offset_of!(ModuleSlot, ready))) == 1).then(|| Module {
                start: self.u64(field(offset_of!(ModuleSlot, start))),
                end: self.u64(field(offset_of!(ModuleSlot, end))),
                offset: self.u64(field(offset_of!(ModuleSlot, offset))),
                path: self.text(field(offset_of!(ModuleSlot, path)), len.min(480)),
            })
        };
        (0..self.modules_count()).filter_map(module).collect()
    }

    /// The path of the program, as the kernel gave it.
    #[must_use]
    pub fn exe(&self) -> String {
        let len = self.header32(offset_of!(Header, exe_len)).min(1024);
        self.text(layout::HEADER_OFFSET + offset_of!(Header, exe) as u64, len)
    }

    /// The name of the lock that the process runs on.
    #[must_use]
    pub fn lock_name(&self) -> String {
        let len = self.header32(offset_of!(Header, lock_name_len)).min(64);
        self.text(layout::HEADER_OFFSET + offset_of!(Header, lock_name) as u64, len)
    }

    /// Bytes that are not written any more.
    fn text(&self, at: u64, len: u32) -> String {
        if !self.is_inside(at, len.into()) {
            return String::new();
        }
        let words = (0..u64::from(len.div_ceil(4))).map(|n| self.u32(at + 4 * n).to_ne_bytes());
        let mut bytes: Vec<u8> = words.flatten().collect();
        bytes.truncate(len as usize);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn is_inside(&self, at: u64, len: u64) -> bool {
        at.is_multiple_of(4) && at.checked_add(len).is_some_and(|end| end <= self.len)
    }
}
