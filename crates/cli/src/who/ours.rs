//! Our own locks in another process: which one a thread sleeps for, and who holds it.
//!
//! A thread sleeps on a node of its own, which lies in the registry; the lock names the first of its
//! sleepers, and each of those the next. So the lock is not where the thread sleeps. It is looked for on the
//! thread's stack and in its registers, among all addresses that are there, and it is the one in whose list
//! the thread's node is: no other word of the program has that.

use std::mem::offset_of;
use std::ops::Range;
use std::path::Path;

use object::{Object as _, ObjectSymbol as _};
use poundlock_core::adaptive::RawAdaptive;
use poundlock_core::condvar::RawCondvar;
use poundlock_core::node::{LEVELS, SPARES, state};
use poundlock_core::poundlock::Words;
use poundlock_core::record::Places;
use poundlock_core::rwlock::RawRwLock;
use poundlock_linux::Linux;
use poundlock_linux::registry::Layout;

use super::waits::{Found, Holder, Kind, Maker};
use crate::elf_file;
use crate::observe::symbols::file_name;
use crate::remote::Memory;
use crate::remote::unwind;
use poundlock_statfile::Snapshot;

/// In a `pthread_mutex_t`: the lock, whichever of ours it is.
const RAW: u64 = 20;
/// In a `pthread_mutex_t`: glibc's kind.
const KIND: u64 = 16;
/// In a `pthread_rwlock_t`: the writer.
const WRITER: u64 = 32;
/// In a lock: its first sleeper; of a readers-writer lock, the first of the readers. The first of the writers
/// comes next.
const FIRST: u64 = {
    let first = RawRwLock::<Linux>::READERS_OFFSET;
    assert!(first == RawAdaptive::<Linux>::SLEEPERS_OFFSET && first == Words::<Linux>::SLEEPERS_OFFSET);
    first as u64
};
/// In a readers-writer lock: the waiter that may try for it.
const HEAD: u64 = RawRwLock::<Linux>::HEAD_OFFSET as u64;
/// In a `pthread_cond_t`: what it has if it is ours, in all but the lowest bit.
const MARK: u64 = 44;
const OURS: u32 = 0x504c_4b00;
/// No list is longer.
const LONGEST: usize = 1 << 16;
/// What marks the sort of a mutex in a node's word of it.
const SORTS: u64 = 3;

/// The registry of a process that has our library.
pub(super) struct Registry {
    layout: [u8; size_of::<Layout>()],
    /// The arrays of entries that there are.
    chunks: Vec<u64>,
}

/// A thread's node.
#[derive(Clone, Copy, Debug)]
struct Node {
    address: u64,
    /// As lists name it; 0 of a spare one.
    id: u32,
    /// As the queue of a hand-off mutex names it.
    waiter: u32,
}

impl Registry {
    /// Finds it. `None` if the process has not our library, or one of another version.
    pub(super) fn find(snapshot: &Snapshot, memory: &impl Memory) -> Option<Registry> {
        let library = snapshot
            .modules
            .iter()
            .find(|module| file_name(&module.path).starts_with("libpoundlock_preload"))?;
        let bias = unwind::bias(snapshot, &library.path)?;
        let data = elf_file::open(Path::new(&library.path))?;
        let file = elf_file::parse(&data)?;
        let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok("poundlock_layout_1"))?;
        let at = memory.long(bias.wrapping_add(symbol.address()))?;
        let mut layout = [0; size_of::<Layout>()];
        if memory.read(at, &mut layout) != layout.len() {
            return None;
        }
        let mut registry = Registry { layout, chunks: Vec::new() };
        let known = registry.long(offset_of!(Layout, magic)) == Layout::MAGIC
            && registry.word(offset_of!(Layout, size)) as usize == size_of::<Layout>();
        if !known || registry.per_chunk() == 0 || registry.entry_size() == 0 || registry.place(NODE_SIZE) == 0
        {
            return None;
        }
        let high = memory.word(registry.long(offset_of!(Layout, high)))?;
        let table = registry.long(offset_of!(Layout, table));
        let chunks = u64::from(high).div_ceil(registry.per_chunk()).min(1 << 14);
        registry.chunks = (0..chunks).filter_map(|n| memory.long(table + 8 * n)).collect();
        Some(registry)
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.layout[at..at + 4].try_into().expect("4 bytes"))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.layout[at..at + 8].try_into().expect("8 bytes"))
    }

    fn per_chunk(&self) -> u64 {
        u64::from(self.word(offset_of!(Layout, per_chunk)))
    }

    fn entry_size(&self) -> u64 {
        u64::from(self.word(offset_of!(Layout, entry_size)))
    }

    fn place(&self, at: usize) -> u64 {
        u64::from(self.word(offset_of!(Layout, places) + at))
    }

    /// Where a record is.
    fn record(&self, index: u64) -> Option<u64> {
        let chunk = self.chunks.get(usize::try_from(index / self.per_chunk()).ok()?)?;
        let entry = chunk + index % self.per_chunk() * self.entry_size();
        (*chunk != 0).then(|| entry + u64::from(self.word(offset_of!(Layout, record))))
    }

    /// The node of which a thread sleeps on this word.
    fn node(&self, word: u64) -> Option<Node> {
        let array = self.per_chunk() * self.entry_size();
        let (n, chunk) = self
            .chunks
            .iter()
            .enumerate()
            .find(|(_, chunk)| **chunk != 0 && (**chunk..chunk.saturating_add(array)).contains(&word))?;
        let index = n as u64 * self.per_chunk() + (word - chunk) / self.entry_size();
        let record = self.record(index)?;
        let (size, state) = (self.place(NODE_SIZE), self.place(STATE));
        let among = |first: u64, count: u32| {
            let offset = word.checked_sub(record + first + state)?;
            (offset % size == 0 && offset / size < u64::from(count)).then_some(offset / size)
        };
        let waiter = |place: u32| index as u32 * (LEVELS + SPARES) + place + 1;
        if let Some(level) = among(self.place(NODES), LEVELS) {
            let id = index as u32 * LEVELS + level as u32 + 1;
            return Some(Node { address: word - state, id, waiter: waiter(level as u32) });
        }
        among(self.place(SPARE_NODES), SPARES).map(|spare| Node {
            address: word - state,
            id: 0,
            waiter: waiter(LEVELS + spare as u32),
        })
    }

    /// The node of a queue of a hand-off mutex.
    fn address_of_waiter(&self, waiter: u32) -> Option<u64> {
        let at = u64::from(waiter.checked_sub(1)?);
        let record = self.record(at / u64::from(LEVELS + SPARES))?;
        let place = at % u64::from(LEVELS + SPARES);
        let (first, place) = match place.checked_sub(u64::from(LEVELS)) {
            None => (NODES, place),
            Some(spare) => (SPARE_NODES, spare),
        };
        Some(record + self.place(first) + place * self.place(NODE_SIZE))
    }

    /// Whether a node is in the queue of this hand-off mutex, which counts whoever holds it or waits.
    fn queues(&self, raw: u64, waiter: u32, memory: &impl Memory) -> bool {
        /// Of the word of those that have come last.
        const LINK: u32 = (1 << 25) - 1;
        let counted = memory.word(raw).is_some_and(|count| (2..1 << 22).contains(&count));
        let links = [(raw.wrapping_add(4), LINK), (raw.wrapping_add(8), u32::MAX)];
        counted
            && links.into_iter().any(|(at, link)| {
                let mut now = memory.word(at).map_or(0, |word| word & link);
                for _ in 0..LONGEST {
                    if now == waiter {
                        return true;
                    }
                    let next =
                        self.address_of_waiter(now).and_then(|node| memory.word(node + self.place(AFTER)));
                    match next {
                        Some(next) if next != 0 => now = next,
                        _ => return false,
                    }
                }
                false
            })
    }

    fn address_of(&self, id: u32) -> Option<u64> {
        let at = u64::from(id.checked_sub(1)?);
        let record = self.record(at / u64::from(LEVELS))?;
        Some(record + self.place(NODES) + at % u64::from(LEVELS) * self.place(NODE_SIZE))
    }

    /// Whether a node is in the list that a word names the first of.
    fn lists(&self, head: u64, id: u32, memory: &impl Memory) -> bool {
        let Some(first) = memory.word(head).filter(|&first| first != 0) else { return false };
        let mut now = first;
        for _ in 0..LONGEST {
            if now == id {
                return true;
            }
            let next = self.address_of(now).and_then(|node| memory.word(node + self.place(AFTER)));
            match next {
                Some(next) if next != first && next != 0 => now = next,
                _ => return false,
            }
        }
        false
    }

    /// What a thread sleeps for that sleeps on this word. `None` if the word is none of a node of ours.
    /// `candidates` are addresses on its stack, of which `own` is what our
    /// library keeps there itself.
    pub(super) fn wait(
        &self,
        word: u64,
        candidates: &[u64],
        own: &Range<u64>,
        memory: &impl Memory,
    ) -> Option<Found> {
        let node = self.node(word)?;
        let says = memory.word(word)?;
        // A record and the library's own variables name nodes as a lock does.
        let array = self.per_chunk() * self.entry_size();
        let may_be = |at: u64| {
            !own.contains(&at) && !self.chunks.iter().any(|chunk| (*chunk..chunk + array).contains(&at))
        };
        let found = |object: u64, kind| Found { mutex: None, ..Found::new(object, word, kind, Maker::Ours) };
        let lock = memory.long(node.address + self.place(LOCK)).unwrap_or(0) & !SORTS;
        if node.id == 0 {
            return Some(found(lock.wrapping_sub(RAW), Kind::Mutex));
        }
        let waits_for_signal = says & !state::CANCELLED == state::WAITING;
        if waits_for_signal {
            let head = |at: u64| at.wrapping_add(RawCondvar::<Linux>::WAITERS_OFFSET as u64);
            let at = candidates.iter().copied().find(|&at| {
                may_be(at)
                    && memory.word(at.wrapping_add(MARK)).is_some_and(|mark| mark & !1 == OURS)
                    && self.lists(head(at), node.id, memory)
            });
            let mutex = (lock != 0).then(|| lock.wrapping_sub(RAW));
            return Some(Found { mutex, ..found(at.unwrap_or(0), Kind::Condition) });
        }
        // A signal has put it from the condition variable to the mutex.
        let in_mutex = || {
            self.lists(lock.wrapping_add(FIRST), node.id, memory) || self.queues(lock, node.waiter, memory)
        };
        if lock != 0 && in_mutex() {
            return Some(found(lock.wrapping_sub(RAW), Kind::Mutex));
        }
        for &at in candidates {
            for raw in [at, at.wrapping_add(RAW)].into_iter().filter(|&raw| may_be(raw)) {
                if self.lists(raw.wrapping_add(FIRST), node.id, memory) {
                    let mutex = raw.wrapping_sub(RAW);
                    // glibc's kind, and what elision has there.
                    let kind = memory.word(mutex.wrapping_add(KIND));
                    if self.is_rwlock(raw, memory) {
                        return Some(found(raw, Kind::RwRead));
                    } else if kind.is_some_and(|kind| kind & !0x303 == 0) && memory.word(raw) != Some(0) {
                        return Some(found(mutex, Kind::Mutex));
                    }
                }
                if self.lists(raw.wrapping_add(FIRST + 4), node.id, memory) && self.is_rwlock(raw, memory) {
                    return Some(found(raw, Kind::RwWrite));
                }
                let is_plausible = |kind: u32| kind & !0x303 == 0;
                if self.queues(raw, node.waiter, memory)
                    && memory.word(raw.wrapping_sub(RAW).wrapping_add(KIND)).is_some_and(is_plausible)
                {
                    return Some(found(raw.wrapping_sub(RAW), Kind::Mutex));
                }
            }
        }
        // A queue spinlock's waiter, or one of which the list changed while we looked.
        let halted = matches!(says, state::HALTED | state::HASHED);
        Some(found(0, if halted { Kind::Spinlock } else { Kind::Futex }))
    }

    /// Whether this is a readers-writer lock, rather than a mutex, whose sleepers are named at the same place:
    /// it names one of its waiters as the head, too, where a mutex names a thread that spins.
    fn is_rwlock(&self, raw: u64, memory: &impl Memory) -> bool {
        let head = memory.word(raw.wrapping_add(HEAD)).filter(|&head| head != 0);
        head.is_some_and(|head| {
            self.lists(raw.wrapping_add(FIRST), head, memory)
                || self.lists(raw.wrapping_add(FIRST + 4), head, memory)
        })
    }

    /// Who holds a lock of ours.
    pub(super) fn holder(&self, kind: Kind, object: u64, memory: &impl Memory) -> Holder {
        const PLAIN: &str = "a mutex of ours that is not recursive does not say who holds it; under `poundlock stat` it is known";
        if object == 0 {
            return Holder::Unknown("which lock it is was not found on the stack");
        }
        match kind {
            Kind::Mutex => {
                let has_owner = memory.word(object + KIND).is_some_and(|kind| matches!(kind & 3, 1 | 2));
                // Whichever of ours it is.
                if memory.word(object + RAW) == Some(0) {
                    return Holder::Nobody;
                }
                if !has_owner {
                    return Holder::Unknown(PLAIN);
                }
                memory.word(object).map_or(Holder::Nobody, |owner| self.thread(owner, memory))
            }
            Kind::RwRead | Kind::RwWrite => {
                let Some(word) = memory.word(object) else { return Holder::Nobody };
                if word & RawRwLock::<Linux>::HELD_BY_WRITER != 0 {
                    return memory
                        .word(object + WRITER)
                        .map_or(Holder::Nobody, |owner| self.thread(owner, memory));
                }
                let readers = word & RawRwLock::<Linux>::HELD_BY_READERS;
                if word & RawRwLock::<Linux>::MORE_READERS != 0 {
                    return Holder::Unknown("readers hold it, who are not recorded, nor how many they are");
                }
                if readers == 0 { Holder::Nobody } else { Holder::Readers(readers) }
            }
            _ => Holder::NotHeld,
        }
    }

    /// The thread of an identity.
    fn thread(&self, identity: u32, memory: &impl Memory) -> Holder {
        if identity == 0 {
            return Holder::Nobody;
        }
        let index_mask = (1u32 << self.word(offset_of!(Layout, index_bits))) - 1;
        if identity & self.word(offset_of!(Layout, kernels)) != 0 {
            return Holder::Thread(identity & index_mask);
        }
        let record = (identity & index_mask).checked_sub(1).and_then(|index| self.record(u64::from(index)));
        let entry = record.map(|record| record - u64::from(self.word(offset_of!(Layout, record))));
        let holder = entry.and_then(|at| memory.long(at + u64::from(self.word(offset_of!(Layout, holder)))));
        let Some(holder) = holder else { return Holder::Unknown("its owner's record was not found") };
        let generations = (holder >> 32) as u32;
        let same = (generations << self.word(offset_of!(Layout, index_bits)))
            & !self.word(offset_of!(Layout, kernels))
            | (identity & index_mask);
        // The record has gone to another thread since: the owner has ended.
        if same != identity || holder as u32 == 0 {
            return Holder::Ended(None);
        }
        Holder::Thread(holder as u32)
    }
}

const NODES: usize = offset_of!(Places, nodes);
const SPARE_NODES: usize = offset_of!(Places, spares);
const NODE_SIZE: usize = offset_of!(Places, node_size);
const STATE: usize = offset_of!(Places, state);
const AFTER: usize = offset_of!(Places, after);
const LOCK: usize = offset_of!(Places, lock);
