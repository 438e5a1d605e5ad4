//! The layout of the file, shared by its writer and its reader.
//!
//! ```text
//! page 0        magic, version; otherwise zero for ever        (NULL-CHUNK)
//! pages 1 to 3  Header
//! lock table    LockSlot   x lock_capacity                     64 bytes each
//! by address    u32 x 4    x address_buckets                   lock indices, a hint; under check [`place`]s
//! stack table   StackSlot  x stack_capacity                    256 bytes each
//! stack index   u32        x stack_index_size                  stack numbers, open addressing
//! modules       ModuleSlot x module_capacity                   512 bytes each
//! arrays        ArraySlot  x array_capacity                    128 bytes each, open addressing by id
//! seen edges    EdgeSlot   x edge_capacity                     32 bytes each  } of a process
//! seen pairs    PairSlot   x pair_capacity                     32 bytes each  } under check
//! log           LogSlot    x log_capacity                      128 bytes each } only
//! arena         pages, handed out in order: thread records, directories, chunks of entries, runs of cells
//!               and of blocks, events, long lists of held locks; the directories and pages of further levels
//!               of the tables of seen edges and pairs
//! ```
//!
//! In a process under check the slots of the lock table are [`CheckSlot`]s, of 32 bytes, and there are no
//! figures: no entries, cells or holds. What a thread record has instead is in [`Checked`].
//!
//! All integers are in the byte order of the machine. Where a region lies is in the header; a hole in the
//! sparse file reads as zero, and zero bytes are a valid empty state of everything.
//!
//! Per thread record and lock there is one [`Entry`], found in two steps: the record's directory gives the
//! page of the chunk for `index / 128`, the entry is number `index % 128` in it. A chunk is two pages:
//! entries, of 32 bytes, which every acquisition writes, and in the second page the [`Holds`] of each, which
//! only timed ones do. A program that takes locks at random pays for the cache lines and pages that this
//! needs.
//!
//! Waits, and holds that others waited for, are in [`Cell`]s, one per record, lock and stack. There may be
//! millions, so a cell has only what is the lock's: how a stack is recognised is in the record's [`Site`]s,
//! and how the durations of a cell are distributed, once there are more than a few, in a [`Spread`]. Both lie
//! in blocks, apart from the cells. Cells and blocks come in [`Run`]s of pages, which the reader takes in one
//! after the other.
//!
//! # Identity of a lock
//!
//! A lock carries one 32-bit word of ours, zero at first: `generation << 20 | index` of its slot, and the top
//! bit, [`MARK`], of which nothing below speaks. Memory is
//! copied, zeroed and reused under us, so the word is a claim, not a fact. The fact is a [`LockSlot`] in
//! state [`LIVE`] with that generation and the lock's address. What a thread has once checked it keeps as the
//! entry's *tag*: word and low half of the address in 64 bits ([`tag`]). One comparison of the tag, which
//! lies in the cache line that is about to be written anyway, tells the fast path that everything still
//! holds.
//!
//! # Invariants
//!
//! * ONE-WRITER. Records, their directories, chunks, cells and blocks are written only by the thread that
//!   holds the record (state [`HELD`]); no read-modify-write is needed. Handing a record on synchronises
//!   through the free list. Counters in a record are sums over all threads that ever held it and only grow
//!   (but for RECYCLE). A reader may set maxima to 0, so that they are those from then on.
//! * NULL-CHUNK. A directory entry of 0 means "no chunk yet" and points at page 0, whose words at the place
//!   of the tag are zero for ever; no tag is zero. So the fast path needs no test for 0, and never writes to
//!   page 0.
//! * TAG. An entry's figures belong to the lock instance of its tag. An entry whose tag is not that of the
//!   slot's present instance belongs to an earlier one, which nobody ever waited for.
//! * RECYCLE. The thread that finds such an entry adds it to the record's `recycled` entry and starts it
//!   anew; until then the reader does the same sum.
//! * WAITED. A slot whose lock was ever waited for never changes its instance.
//! * SAMPLED. Of the holds that nobody waited for, an entry times the first [`FIRST_HOLDS`], and of the later
//!   ones those that chance picks, one in [`SAMPLE_ONE_IN`], whatever they turn out to be. A hold that
//!   somebody waited for is not among them: it is in a [`Cell`] of the holder.
//! * WAITING. [`LockSlot::waiting`] says at each moment how long all waits for the lock have lasted together
//!   up to then: see [`waited_so_far`]. Meanwhile, and until all is settled, the lock's word has the
//!   [`MARK`]; of a readers-writer lock, that of its writers. So the word differs from the one in the entry's
//!   tag, and the comparison that every call makes is also the question whether anybody waits. A holder who
//!   sees it takes what has come since [`LockSlot::charged`] upon himself when he lets go; whoever acquires
//!   the lock next counts what came in between as `handover`. So the waits of a lock are the sum of what its
//!   holders are charged with, of its handovers, and of what is not settled yet.
//! * STACKS. A stack slot is immutable once its `ready` is set, and the index names only such. So a stack has
//!   one number; a second slot, made by a thread that lost the race for the index, is named by nobody.
//! * EVENTS. A record's page of [`Events`] is added to by read-modify-writes, because a signal handler may
//!   count in the middle of its thread's count, and because nothing of it needs more: so an event is never
//!   lost once the page is there. Two that belong together (a kick, and how long it took) may be a signal
//!   handler or a death apart.
//! * ARRAYS. A slot for a semaphore array is claimed once, by a compare-and-swap of its id, and never let go
//!   of. Its figures are written by the one call that removed the array, and are there once `removed` says
//!   so.
//! * APPEND. `next_lock`, `next_stack`, `next_module` and `arena_next` only grow. A slot below them may still
//!   be unfinished: its state says so.
//!
//! # Invariants under check
//!
//! * ONE-LIFE. A word names one lock, from its creation to its destruction, and no other ever: a slot goes
//!   from LIVE to DEAD once a generation, and is used up after its last generation. So an edge that has a
//!   lock's word is about that lock.
//! * HELD-LIST. A thread's list of held locks is written by that thread alone, but for `watch`, which the
//!   command writes. An entry is there from after the acquisition to before the release. It counts only as
//!   long as the lock's `holder` is that thread: who unlocks what another one holds clears `holder`, and the
//!   other one drops the entry when it next looks. A reader's entry counts as long as it is there.
//! * HOLDER. `holder` is written by who has the lock, after its acquisition and before its release, so
//!   readers and the writer never write at the same time, if the program does what it should. If it does not,
//!   the word may be wrong, and a finding has said why.
//! * EDGES. An [`EdgeSlot`] or [`PairSlot`] is claimed by a compare-and-swap of its key, from 0 or from that
//!   of a lock that is dead. The thread that claims it, or one of its places for threads, logs what it has
//!   seen; everyone else finds it there. So an edge is logged once for each of the first threads that take
//!   it; if two threads claim two slots for one edge, one of which another lock's death has freed meanwhile,
//!   it is logged twice, which is no harm. A key is a hash of 64 bits: that two of a million edges have one,
//!   so that the later is taken for seen, has a probability of 10^-7.
//! * LEVELS. Both tables grow by levels, each of eight times as many slots. Its key gives an edge or a pair one
//!   window in each level. It lies in the first level whose window had a free slot, or a dead lock's, when it was
//!   claimed. No slot ever becomes free again, so the windows before stay full, and a search may end at the first
//!   window with a free slot. A level beyond the first has its pages in the arena, each made when it is first
//!   needed: the directory, and the number of a page in it, change from 0 once, by a compare-and-swap with
//!   release, and are read with acquire, so that whoever finds a page finds it zeroed. The loser's page stays
//!   unused. As many edges as [`Header::order_limit`] get a slot, and one more for each thread that claims one at
//!   that moment; and as many pairs.
//! * LOG. Event `n` lies in slot `n % log_capacity`, and is whole once `ready` says `n`. Numbers below
//!   `next_event` are given out; a slot is given out again only once the command has `consumed` what it had.
//!   Without a command that consumes, the log ends when it is full: what comes then is counted in `lost`. A
//!   thread that finds the log full waits while a command consumes, and gives up once it has not for
//!   [`PATIENCE_MS`]; it notes that in `stalled`, and nobody waits again until `consumed` is another. The command
//!   waits for no thread, so this cannot deadlock.
//! * TRACE. A recorded process writes down all that its threads do with locks, in stretches: `stretch` is the
//!   last one's number, `stretch_until` when it ends. Whoever finds that it is over says so, and, if the next
//!   one is due, begins that. Each thread has a chunk of its own, of one stretch; the first `used` events of
//!   it are whole. Chunks stay as they are when their stretch is over, until `trace_chunks` are in use.

use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// The first eight bytes of a file.
pub const MAGIC: [u8; 8] = *b"PNDLSTAT";
/// The version of this layout, at offset 8.
pub const VERSION: u32 = 15;
/// Where the version is.
pub const VERSION_OFFSET: u64 = 8;
/// The unit of allocation in the file.
pub const PAGE: u64 = 4096;
/// Where the [`Header`] is.
pub const HEADER_OFFSET: u64 = PAGE;
/// Room for it.
pub const HEADER_SIZE: u64 = 3 * PAGE;
/// Where the lock table is.
pub const LOCKS_OFFSET: u64 = HEADER_OFFSET + HEADER_SIZE;
/// How many pages there can be before the arena.
pub const BACKED_PAGES: usize = 1 << 15;

/// How many bits of a lock's word are the index.
pub const INDEX_BITS: u32 = 20;
/// The mask of the index.
pub const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// The mask of a generation, once shifted down.
pub const GENERATION_MASK: u32 = (1 << (31 - INDEX_BITS)) - 1;
/// In a lock's word: somebody waits for it, or has waited since [`LockSlot::charged`]. While it is not set,
/// all is settled.
pub const MARK: u32 = 1 << 31;
/// The index, and with generation 0 the word, of all locks that found no room.
pub const OVERFLOW: u32 = 1;
/// The first index of a lock of its own; 0 is "no index yet".
pub const FIRST_LOCK: u32 = 2;

/// Entries in a chunk.
pub const CHUNK_ENTRIES: u32 = 128;
/// Pages of one: the entries, and [`Holds`].
pub const CHUNK_PAGES: u64 = 2;
/// Directory entries inside a record's own page; a larger directory is a run of pages.
pub const SMALL_DIRECTORY: usize = 896;
/// Heads of a record's first [`Chains`] of cells, and of its first ones of sites: half a page each, as a
/// power of two.
pub const FIRST_HEADS_BITS: u32 = 9;
/// How many return addresses of a stack are kept.
pub const MAX_FRAMES: usize = 30;
/// How many different events are counted.
pub const COUNTERS: usize = 64;
/// How many different durations are.
pub const DURATIONS: usize = 6;
/// How many figures are kept of a semaphore array.
pub const ARRAY_FIGURES: usize = 12;
/// [`Header::clock`]: ticks are nanoseconds of `CLOCK_MONOTONIC`.
pub const CLOCK_NANOSECONDS: u32 = 0;
/// [`Header::clock`]: ticks are of the processor's own counter; the header's pairs give their rate.
pub const CLOCK_COUNTER: u32 = 1;

/// [`LockSlot::meta`], low byte: nothing there yet, or being filled.
pub const EMPTY: u64 = 0;
/// The slot stands for a lock.
pub const LIVE: u64 = 1;
/// The lock was destroyed; its figures still count as its own.
pub const DEAD: u64 = 2;

/// [`Record::state`]: on the free list.
pub const FREE: u32 = 0;
/// [`Record::state`]: a thread counts in it.
pub const HELD: u32 = 1;
/// [`Record::state`]: the thread ended while it held locks, which the record still says. See
/// [`Header::ended`].
pub const ENDED: u32 = 2;
/// How many records of ended threads are kept. The oldest one makes room.
pub const ENDED_RECORDS: usize = 64;

/// The tag of the lock at `address` whose word is `word`; never zero.
#[inline(always)]
#[must_use]
pub const fn tag(word: u32, address: u64) -> u64 {
    (word as u64) << 32 | (address as u32 | 1) as u64
}

/// A name as it is safe to print: what is no character that a terminal shows as one is written in
/// hexadecimal, as
/// `\\x1b`.
#[must_use]
pub fn printable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                text.extend(character.to_string().bytes().map(escaped));
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().copied().map(escaped));
    }
    text
}

fn escaped(byte: u8) -> String {
    format!("\\x{byte:02x}")
}

/// The name of a thread as the kernel keeps it: up to the first zero, safe to print.
#[must_use]
pub(crate) fn name_of(halves: [u64; 2]) -> String {
    let bytes: Vec<u8> = halves.into_iter().flat_map(u64::to_ne_bytes).collect();
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    printable(&bytes[..len])
}

/// [`LockSlot::meta`] from its parts.
#[must_use]
pub const fn meta(state: u64, kind: u8, generation: u32) -> u64 {
    state | (kind as u64) << 8 | (generation as u64) << 32
}

/// The state in a [`LockSlot::meta`].
#[must_use]
pub const fn meta_state(meta: u64) -> u64 {
    meta & 0xff
}

/// The kind in a [`LockSlot::meta`].
#[must_use]
pub const fn meta_kind(meta: u64) -> u8 {
    (meta >> 8) as u8
}

/// The generation in a [`LockSlot::meta`].
#[must_use]
pub const fn meta_generation(meta: u64) -> u32 {
    (meta >> 32) as u32 & GENERATION_MASK
}

/// The word of the lock in slot `index` with `meta`.
#[must_use]
pub const fn word_of(index: u32, meta: u64) -> u32 {
    meta_generation(meta) << INDEX_BITS | index
}

/// The bucket of a lock at `address`, of this many; `None` if there are none.
#[must_use]
pub const fn bucket_of(address: u64, buckets: u32) -> Option<u64> {
    let hash = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if buckets == 0 { None } else { Some(hash & (buckets as u64 - 1)) }
}

/// Places for locks in one bucket of a process under check: as many locks of four bytes as a granule of 64
/// bytes can hold, in one cache line. Locks of other granules share them.
pub const PLACES: usize = 16;
/// How many bits of a place's tag say where in its granule a lock lies.
pub const WITHIN_BITS: u32 = 4;

const fn granule_hash(address: u64) -> u64 {
    (address >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The bucket of a lock at `address` in a process under check: all locks of a granule have the same.
#[must_use]
pub const fn places_of(address: u64, address_buckets: u32) -> u64 {
    let buckets = address_buckets as u64 * 4 / PLACES as u64;
    if buckets == 0 { 0 } else { granule_hash(address) >> 40 & (buckets - 1) }
}

/// What a place says of its lock's address, so that few slots are looked at in vain: a hash of the granule,
/// and where in it the lock lies.
#[must_use]
pub const fn place_tag(address: u64) -> u32 {
    ((granule_hash(address) >> 32) as u32 & 0xff) << WITHIN_BITS
        | (address >> 2) as u32 & ((1 << WITHIN_BITS) - 1)
}

/// A place of a bucket: the tag of the lock's address, and the lock's index.
#[must_use]
pub const fn place(address: u64, index: u32) -> u32 {
    place_tag(address) << INDEX_BITS | index
}

/// One moment on both clocks.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ClockPair {
    /// The recorder's clock.
    pub ticks: AtomicU64,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub ns: AtomicU64,
}

/// Pages 1 to 3.
#[repr(C)]
pub struct Header {
    /// 1 once everything else is in place.
    pub ready: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// [`CLOCK_NANOSECONDS`] or [`CLOCK_COUNTER`].
    pub clock: AtomicU32,
    /// How many of `later` were written; the last one is at `(count - 1) % 2`.
    pub later_count: AtomicU32,
    /// Nanoseconds in a tick, times 2^32: for the buckets of [`Cell`]s.
    pub tick_ns: AtomicU64,
    /// Of as many acquisitions one is timed: [`SAMPLE_ONE_IN`].
    pub sample_one_in: AtomicU32,
    _pad: u32,
    /// When recording began.
    pub start: ClockPair,
    /// Later moments, for the rate. Written in turn, so that one is whole at any time.
    pub later: [ClockPair; 2],
    /// Held (1) by the thread that writes to `later`.
    pub later_busy: AtomicU32,
    /// Held (1) by the thread that scans the memory map.
    pub scan_busy: AtomicU32,
    /// `CLOCK_MONOTONIC` at the end of the process in nanoseconds, if it had an orderly one.
    pub end_ns: AtomicU64,
    /// The file's size.
    pub size: AtomicU64,
    /// Offset of the lock table.
    pub lock_offset: AtomicU64,
    /// Offset of the buckets by address.
    pub address_offset: AtomicU64,
    /// Offset of the stack table.
    pub stack_offset: AtomicU64,
    /// Offset of the stack index.
    pub stack_index_offset: AtomicU64,
    /// Offset of the modules.
    pub module_offset: AtomicU64,
    /// Offset of the semaphore arrays.
    pub array_offset: AtomicU64,
    /// Offset of the arena.
    pub arena_offset: AtomicU64,
    /// Slots in the lock table.
    pub lock_capacity: AtomicU32,
    /// Buckets by address; a power of two.
    pub address_buckets: AtomicU32,
    /// Slots in the stack table.
    pub stack_capacity: AtomicU32,
    /// Words in the stack index; a power of two.
    pub stack_index_size: AtomicU32,
    /// Slots for modules.
    pub module_capacity: AtomicU32,
    /// Slots for semaphore arrays; a power of two.
    pub array_capacity: AtomicU32,
    /// How many of them are claimed.
    pub arrays: AtomicU32,
    /// 1 once an array found no room there.
    pub arrays_dropped: AtomicU32,
    /// The next unused lock index.
    pub next_lock: AtomicU32,
    /// Lock slots below this have memory behind them.
    pub locks_backed: AtomicU32,
    /// The next unused stack number (0 is "unknown").
    pub next_stack: AtomicU32,
    /// Stack slots below this have memory behind them.
    pub stacks_backed: AtomicU32,
    /// The next unused module slot.
    pub next_module: AtomicU32,
    /// Destroyed locks' slots for reuse: `count << 32 | index`, the count against ABA.
    pub free_locks: AtomicU64,
    /// Locks that found no room.
    pub overflow_locks: AtomicU64,
    /// Offset of the next unused page of the arena.
    pub arena_next: AtomicU64,
    /// The arena is accessible up to here.
    pub arena_open: AtomicU64,
    /// The page of the newest record: the head of the list of all.
    pub records: AtomicU32,
    /// How many threads have used a lock.
    pub threads: AtomicU32,
    /// How many threads the process has started.
    pub started: AtomicU32,
    /// Records for reuse, as in `free_locks`, by page.
    pub free_records: AtomicU64,
    /// Ticks that ended threads have lived.
    pub ended_ticks: AtomicU64,
    /// How many threads ended while they held locks.
    pub ended_count: AtomicU32,
    /// Pages of the records of the last of those threads, in state [`ENDED`]; 0 where there is none.
    pub ended: [AtomicU32; ENDED_RECORDS],
    /// Events that could not be counted: in a signal handler that interrupted the recorder, or without
    /// memory.
    pub lost_events: AtomicU64,
    /// When the memory map was last scanned, in ticks.
    pub scanned: AtomicU64,
    /// How long to wait until the next scan, in ticks.
    pub scan_pause: AtomicU64,
    /// 1 if an address was seen that no known module covers.
    pub scan_wanted: AtomicU32,
    /// Bytes of `lock_name` in use.
    pub lock_name_len: AtomicU32,
    /// Bytes of `rwlock_name` in use.
    pub rwlock_name_len: AtomicU32,
    /// Bytes of `exe` in use.
    pub exe_len: AtomicU32,
    /// 1 once the file system or the memory has had no more for us: nothing is asked for again.
    pub exhausted: AtomicU32,
    /// Of a process under check; else 0, as all up to `lost`.
    pub check: AtomicU32,
    /// The serial of the next thread.
    pub next_serial: AtomicU32,
    /// Serials below this are of threads of the parent of a forked child.
    pub first_serial: AtomicU32,
    /// Slots for seen edges; a power of two.
    pub edge_capacity: AtomicU32,
    /// Slots for seen pairs; a power of two.
    pub pair_capacity: AtomicU32,
    /// Slots of the log; a power of two.
    pub log_capacity: AtomicU32,
    /// How many seen edges there may be, and how many pairs that are no finding's.
    pub order_limit: AtomicU32,
    /// How many slots have an edge, of a dead lock or not,
    pub edges: AtomicU32,
    /// or a pair.
    pub pairs: AtomicU32,
    /// The directories of further levels of the seen edges: page numbers, in whole pages; 0: not there.
    pub edge_levels: [AtomicU64; FURTHER],
    /// The same of the seen pairs.
    pub pair_levels: [AtomicU64; FURTHER],
    /// Offset of the seen edges.
    pub edge_offset: AtomicU64,
    /// Offset of the seen pairs.
    pub pair_offset: AtomicU64,
    /// Offset of the log.
    pub log_offset: AtomicU64,
    /// The number of the next event.
    pub next_event: AtomicU64,
    /// Events below this number have been read. Written by the command.
    pub consumed: AtomicU64,
    /// One more than `consumed` was when a thread waited in vain for room in the log; 0: none has.
    pub stalled: AtomicU64,
    /// How many locks have died that were part of a logged edge.
    pub deaths: AtomicU32,
    /// Of a recorded process: for how many chunks there is room; else 0, as all up to `lost`.
    pub trace_room: AtomicU32,
    /// How many chunks are in use.
    pub trace_chunks: AtomicU32,
    /// The page of the newest chunk; 0 if there is none.
    pub trace_newest: AtomicU32,
    /// The number of the last stretch, from 1; 0 if there was none.
    pub stretch: AtomicU32,
    /// Held (1) by the thread that begins one.
    pub stretch_busy: AtomicU32,
    /// The page of the [`Stretch`]es.
    pub stretches: AtomicU32,
    /// How many chunks may be in use at the end of this one.
    pub stretch_room: AtomicU32,
    /// When this one ends, in ticks; 0 if somebody has seen that it has.
    pub stretch_until: AtomicU64,
    /// When the next one begins, if a thread looks.
    pub stretch_next: AtomicU64,
    /// What found no room, by [`Lost`].
    pub lost: [AtomicU64; LOST],
    /// The lock that the process runs on.
    pub lock_name: Bytes<64>,
    /// The readers-writer lock.
    pub rwlock_name: Bytes<32>,
    /// The program.
    pub exe: Bytes<1024>,
    /// Room for the scan of the memory map, so that it needs no stack; of no interest to the reader.
    pub scan_buffer: Bytes<2384>,
    /// One bit for each page of the regions before the arena: set once the page is known to have memory.
    pub backed: [AtomicU64; BACKED_PAGES / 64],
}

/// When a stretch was, in ticks.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Stretch {
    /// Its begin.
    pub began: AtomicU64,
    /// Its end; before that, when it is to end.
    pub until: AtomicU64,
}

/// How many there can be.
pub const STRETCHES: u32 = (PAGE / size_of::<Stretch>() as u64) as u32;

/// What a thread keeps for its recording.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Tracer {
    /// Held (1) while it writes an event.
    pub busy: AtomicU32,
    /// The page of its chunk; 0 if it has none.
    pub chunk: AtomicU32,
    /// When it last wrote an event, or could have.
    pub last: AtomicU64,
}

/// Pages of a chunk.
pub const TRACE_PAGES: u64 = 4;
/// Events in a chunk.
pub const TRACED: usize = 681;

/// Events of one thread in one stretch.
#[repr(C)]
pub struct Chunk {
    /// The page of the one that was the newest before.
    pub previous: AtomicU32,
    /// The page of the thread's record.
    pub record: AtomicU32,
    /// The thread.
    pub tid: AtomicU32,
    /// The number of the stretch.
    pub stretch: AtomicU32,
    /// How many events are whole.
    pub used: AtomicU32,
    _pad: [u32; 3],
    /// They.
    pub events: [Traced; TRACED],
}

/// Something that a thread did.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Traced {
    /// When, in ticks.
    pub time: AtomicU64,
    /// What: one of the constants below; above 8 bits, more about it.
    pub what: AtomicU32,
    /// The index of the lock in the table.
    pub lock: AtomicU32,
    /// Where, by a return address; or something else.
    pub more: AtomicU64,
}

/// It has acquired the lock without waiting.
pub const TRACE_ACQUIRED: u32 = 1;
/// It begins to wait for the lock.
pub const TRACE_WAITS: u32 = 2;
/// That wait is over, with the lock,
pub const TRACE_ACQUIRED_AFTER: u32 = 3;
/// or without.
pub const TRACE_GAVE_UP: u32 = 4;
/// It is about to release the lock.
pub const TRACE_RELEASED: u32 = 5;
/// It begins to wait for what is not acquired.
pub const TRACE_BLOCKS: u32 = 6;
/// That wait is over. 1 in the bits above: its time was up.
pub const TRACE_UNBLOCKED: u32 = 7;
/// It is about to wake one that waits for the condition variable or the semaphore; 1 in the bits above: all.
pub const TRACE_WAKES: u32 = 8;
/// It gives its CPU to others that are ready, and goes on with [`TRACE_UNBLOCKED`].
pub const TRACE_YIELDS: u32 = 10;
/// What the event before is about ended now, and took longer than usual: a call that woke another thread, or
/// the writing down.
pub const TRACE_ENDED: u32 = 11;
/// Since the last such event, or the first of the chunk, it has had so much CPU time: `more`, in nanoseconds.
/// In the bits above: how often it gave its CPU up by itself, at most 2^24 - 1. `lock`: its CPU's number + 1,
/// or 0; in the bits above [`TRACE_CPU_BITS`], if that was measured, how long a turn of
/// [`compute`](crate::speed::compute) took there, in picoseconds. It was there for long without an event.
pub const TRACE_CPU: u32 = 9;
/// See [`TRACE_CPU`].
pub const TRACE_CPU_BITS: u32 = 16;

/// Bytes that change behind a shared reference.
#[repr(transparent)]
pub struct Bytes<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: the only access is through `pointer`, and whoever uses that pointer answers for exclusion.
unsafe impl<const N: usize> Sync for Bytes<N> {}

impl<const N: usize> Bytes<N> {
    /// Where the bytes are. The writer accesses them while nobody else can: before `ready`, or holding
    /// `scan_busy`.
    #[must_use]
    pub const fn pointer(&self) -> *mut u8 {
        self.0.get().cast()
    }

    /// How many there are.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        N
    }
}

/// A lock's place in the lock table.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct LockSlot {
    /// State, kind and generation: see [`meta`].
    pub meta: AtomicU64,
    /// The lock.
    pub address: AtomicU64,
    /// The stack that initialised it; 0 if unknown.
    pub stack: AtomicU32,
    /// The next slot on the free list.
    pub next: AtomicU32,
    /// 1 once somebody has waited for it: WAITED.
    pub waited: AtomicU32,
    /// 1 while on the free list.
    pub listed: AtomicU32,
    /// How many wait, and since when: see [`waited_so_far`]. Of a readers-writer lock, in the slot of its
    /// writers, for both.
    pub waiting: AtomicU64,
    /// When the first of those who wait began to, in ticks.
    pub first_wait: AtomicU64,
    /// The part of [`waited_so_far`] that is settled: somebody has been charged with it. Of a condition
    /// variable: the word of the mutex of its last wait. In a cache line that who waits does not write to.
    pub charged: AtomicU64,
    /// How long, in [`WAITING_TICKS`], threads have waited while nobody had the lock that could be charged.
    pub handover: AtomicU64,
}

/// Bits of [`LockSlot::waiting`] that count those who wait: fewer than 2^16 at once.
pub const WAITING_BITS: u32 = 16;
/// The unit of its other bits, as a power of two of ticks.
pub const WAITING_TICKS: u32 = 6;

/// What a wait that begins at `now` adds to [`LockSlot::waiting`], and what one that ends at `now` takes
/// away.
#[inline]
#[must_use]
pub const fn waiting_since(now: u64) -> u64 {
    (now >> WAITING_TICKS) << WAITING_BITS | 1
}

/// How many wait.
#[inline]
#[must_use]
pub const fn waiting_count(waiting: u64) -> u64 {
    waiting & ((1 << WAITING_BITS) - 1)
}

/// How long all waits have lasted together, up to `now`, those that go on included. In units of
/// 2^[`WAITING_TICKS`] ticks and modulo 2^(64 - [`WAITING_BITS`]): only differences mean anything, which
/// [`waited_since`] takes.
///
/// If `b` are the moments at which waits began and `e` those at which they ended, the upper bits are the sum
/// of the `b` less that of the `e`, and the sum of all waits up to `now` is `now` times the number of those
/// that go on, less the upper bits.
#[inline]
#[must_use]
pub const fn waited_so_far(waiting: u64, now: u64) -> u64 {
    let sum = waiting >> WAITING_BITS;
    waiting_count(waiting).wrapping_mul(now >> WAITING_TICKS).wrapping_sub(sum) & (u64::MAX >> WAITING_BITS)
}

/// From one [`waited_so_far`] to a later one. One that seems to be earlier, which clocks that differ by a
/// hair can bring about, is 0.
#[inline]
#[must_use]
pub const fn waited_since(before: u64, after: u64) -> u64 {
    let passed = after.wrapping_sub(before) & (u64::MAX >> WAITING_BITS);
    if passed > u64::MAX >> (WAITING_BITS + 1) { 0 } else { passed }
}

/// A stack.
#[repr(C)]
#[derive(Debug, Default)]
pub struct StackSlot {
    /// The hash of the frames.
    pub hash: AtomicU64,
    /// How many frames.
    pub len: AtomicU32,
    /// 1 once the rest is there.
    pub ready: AtomicU32,
    /// Return addresses, innermost first.
    pub frames: [AtomicU64; MAX_FRAMES],
}

/// A mapping of a file.
#[repr(C)]
pub struct ModuleSlot {
    /// The first address.
    pub start: AtomicU64,
    /// One past the last.
    pub end: AtomicU64,
    /// Where in the file it starts.
    pub offset: AtomicU64,
    /// Bytes of `path` in use.
    pub path_len: AtomicU32,
    /// 1 once the rest is there.
    pub ready: AtomicU32,
    /// The file.
    pub path: Bytes<480>,
}

/// A semaphore array that the process used.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ArraySlot {
    /// Its id; 0: unclaimed.
    pub id: AtomicU32,
    /// 1 once the process has removed it, and the rest is there.
    pub removed: AtomicU32,
    /// Its key.
    pub key: AtomicU32,
    /// How many semaphores it had.
    pub semaphores: AtomicU32,
    /// Which variant it was. The numbers are the writer's and the reader's to give a meaning, here and in
    /// `figures`.
    pub variant: AtomicU32,
    _pad: u32,
    /// What it did in its life, by number.
    pub figures: [AtomicU64; ARRAY_FIGURES],
    _room: u64,
}

/// What one thread record knows about one lock, but for its waits, which are in [`Cell`]s, and for how
/// long it held it: see [`Holds`].
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub struct Entry {
    /// Acquisitions. Of what is not acquired: calls that did not wait.
    pub acquisitions: AtomicU64,
    /// When the present hold began; 0 if there is none, [`HELD_UNTIMED`] if that was not looked at.
    pub hold_start: AtomicU64,
    /// The return address of the call that acquired it last; 0 if unknown.
    pub site: AtomicU64,
    /// Whose figures these are: see [`tag`]. In [`Record::overflow`]: the address of the lock being held.
    pub tag: AtomicU64,
}

/// The holds of an [`Entry`] that were timed. They lie a page further on.
///
/// Of a condition variable `total` counts signals, `squares` broadcasts, and `max` those of both that were
/// sent while the sender had the mutex.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub struct Holds {
    /// Ticks held, of the picked holds: see SAMPLED.
    pub total: AtomicU64,
    /// The sum of their squares, as the bits of an `f64`.
    pub squares: AtomicU64,
    /// The longest hold that was timed, in ticks.
    pub max: AtomicU64,
    /// How many were timed: of the first ones in the low [`FIRST_BITS`] bits, of the picked ones above.
    pub samples: AtomicU32,
    /// The ticks of the first ones, as the bits of an `f32`.
    pub first_total: AtomicU32,
}

/// [`Entry::hold_start`] of a hold that is not timed.
pub const HELD_UNTIMED: u64 = 1;
/// How many holds an entry times before chance picks them.
pub const FIRST_HOLDS: u64 = 8;
/// Bits of [`Holds::samples`] that count the first ones.
pub const FIRST_BITS: u32 = 4;
/// Of as many later holds one is picked.
pub const SAMPLE_ONE_IN: u32 = 32;

/// A thread's page: what its fast path needs, then its small directory.
#[repr(C, align(4096))]
pub struct Record {
    /// Where the file is mapped (of no meaning outside the process).
    pub base: AtomicU64,
    /// Where the directory is mapped (likewise).
    pub directory: AtomicU64,
    /// Entries in the directory.
    pub directory_len: AtomicU32,
    /// As in the header.
    pub clock: AtomicU32,
    /// When the thread last looked at the clock.
    pub last_seen: AtomicU64,
    /// Acquisitions until chance picks one: see SAMPLED.
    pub until_sample: AtomicU32,
    /// The thread that has the record, or had it last.
    pub tid: AtomicU32,
    /// The directory's offset in the file.
    pub directory_offset: AtomicU64,
    /// Where chance comes from.
    pub random: AtomicU64,
    /// How many of the record's entries have a [`Entry::hold_start`]; not under check.
    pub held: AtomicU32,
    /// 1 while the thread is in the recorder's slow paths.
    pub busy: AtomicU32,
    /// The page of this record.
    pub page: AtomicU32,
    /// The next record in the list of all.
    pub next: AtomicU32,
    /// The next record on the free list.
    pub next_free: AtomicU32,
    /// [`FREE`], [`HELD`] or [`ENDED`].
    pub state: AtomicU32,
    /// How often the thread's destructor has run.
    pub endings: AtomicU32,
    /// When the thread first used a lock.
    pub started: AtomicU64,
    /// When the wait that the thread is in began; 0 if it is in none.
    pub wait_began: AtomicU64,
    /// The tag of the lock it waits for.
    pub wait_tag: AtomicU64,
    /// The offset of the cell in which it will be counted; 0 if unknown.
    pub wait_cell: AtomicU64,
    /// The stack pointer at the call that waits; 0 if unknown.
    pub wait_sp: AtomicU64,
    /// Where its [`Cell`]s are,
    pub cells: Slots,
    /// and its blocks, which are [`Spread`]s and [`Site`]s.
    pub blocks: Slots,
    /// In which the cells are found,
    pub cell_chains: Chains,
    /// and the sites.
    pub site_chains: Chains,
    /// The page of this record's [`Events`]; 0 if there is none yet.
    pub events: AtomicU32,
    /// How many waits began, and have not ended, inside of the one that is shown.
    pub nested: AtomicU32,
    /// The tag of the condition variable that the thread last waited for, if it was woken,
    pub woken_by: AtomicU64,
    /// that of the mutex with which it did,
    pub woken_with: AtomicU64,
    /// and how often it had acquired that when the wait was over.
    pub woken_at: AtomicU64,
    /// The page of this record's [`Tracer`]; 0 if there is none yet.
    pub tracer: AtomicU32,
    /// When the thread ended, in ticks; in state [`ENDED`].
    pub ended: AtomicU64,
    /// The name of the ended thread, padded with zeros; in state [`ENDED`].
    pub name: [AtomicU64; 2],
    /// Waits that found no room for a cell.
    pub others: Cell,
    /// Sums over earlier lock instances: see RECYCLE.
    pub recycled: Entry,
    /// Its timed holds.
    pub recycled_holds: Holds,
    /// Sums over the locks that found no room.
    pub overflow: Entry,
    /// Their timed holds.
    pub overflow_holds: Holds,
    /// Chunk pages, while `directory_len` is no more than this. Under check [`Checked`], and `directory_len`
    /// is 0, so that nothing looks for an entry.
    pub small_directory: [AtomicU32; SMALL_DIRECTORY],
}

impl Record {
    /// What the record has under check.
    #[inline(always)]
    #[must_use]
    pub fn checked(&self) -> &Checked {
        // SAFETY: as large and as aligned as asserted below, and all of it atomics, which any bytes are.
        unsafe { &*self.small_directory.as_ptr().cast() }
    }
}

/// Chains of cells or sites of a record, by a hash.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Chains {
    /// Where their heads are, in half pages; 0 if there are none yet.
    pub heads: AtomicU32,
    /// How many heads, as a power of two.
    pub bits: AtomicU32,
    /// How many are in the chains.
    pub count: AtomicU32,
}

/// Cells or blocks of a record: which are in use, and where the next one will be.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slots {
    /// Offset of the next unused one.
    pub next: AtomicU64,
    /// End of the run that it lies in.
    pub end: AtomicU64,
    /// The first page of the last [`Run`]; 0 if there is none yet.
    pub run: AtomicU32,
    _pad: u32,
}

/// Some pages of cells or blocks. This is in place of the first one.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Run {
    /// The first page of the record's run before this one; 0 if it is the first.
    pub previous: AtomicU32,
    /// How many pages it has.
    pub pages: AtomicU32,
}

/// How many pages a run has at most.
pub const RUN_PAGES: u64 = 16;

/// How often the holders of a record waited for one lock with one stack; or how often they let go of it with
/// that stack while others waited.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Cell {
    /// The lock: see [`tag`].
    pub tag: AtomicU64,
    /// The next cell in the chain, as offset / [`CELL_SIZE`]; 0 ends it.
    pub next: AtomicU32,
    /// The stack.
    pub stack: AtomicU32,
    /// Waits, or holds.
    pub count: AtomicU64,
    /// Ticks that they took.
    pub total: AtomicU64,
    /// The longest of them in ticks.
    pub max: AtomicU64,
    /// Of holds: how long others waited for them, in 2^[`WAITING_TICKS`] ticks. Of waits for a condition
    /// variable: after how many the same thread waited again, with the mutex in its hands all the while.
    pub charged: AtomicU64,
    /// [`OF_WAITS`]; or, of holds, one more than the stack that is the return address of the call that
    /// acquired the lock, 0 being unknown.
    pub holds: AtomicU32,
    /// Waits that ended because their time was up. Of holds: those of which only the end was timed, from the
    /// moment at which somebody began to wait.
    pub timeouts: AtomicU32,
    /// How long the first [`EARLY`] took: of each its [`cell_bucket`] plus one, in [`EARLY_BITS`] bits.
    pub early: AtomicU32,
    /// Where the [`Spread`] of the later ones is, as offset / [`BLOCK_SIZE`]; 0 if there is none.
    pub spread: AtomicU32,
}

/// [`Cell::holds`] of a cell that counts waits.
pub const OF_WAITS: u32 = 0;
/// Of as many waits or holds of a cell the durations are in the cell itself.
pub const EARLY: u64 = 6;
/// In as many bits.
pub const EARLY_BITS: u32 = 5;

/// How long the later waits or holds of a cell took.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Spread {
    /// The lock: see [`tag`]. 0 in a [`Site`].
    pub tag: AtomicU64,
    /// As in the cell.
    pub holds: AtomicU32,
    /// How many fell into each [`cell_bucket`].
    pub buckets: [AtomicU32; CELL_BUCKETS],
}

/// How to recognise, without unwinding, a place at which a thread has been. Not for readers.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Site {
    /// 0, which is no lock's tag.
    pub tag: AtomicU64,
    /// The innermost return address.
    pub pc: AtomicU64,
    /// The stack pointer there.
    pub sp: AtomicU64,
    /// The stack.
    pub stack: AtomicU32,
    /// How many of `words` are filled.
    pub words_len: AtomicU32,
    /// Where the return address of each outer frame was found, in words above `sp`.
    pub words: [AtomicU16; MAX_FRAMES],
    /// The next site in the chain, as offset / [`BLOCK_SIZE`]; 0 ends it.
    pub next: AtomicU32,
}

/// Buckets of a cell.
pub const CELL_BUCKETS: usize = 26;
/// Durations below the double of this power of two of nanoseconds are in a cell's first bucket.
pub const CELL_BUCKET_SHIFT: usize = 8;

/// The bucket of a cell for a duration: the first one has all below 512 ns, the last all from 8.6 s on.
#[must_use]
pub const fn cell_bucket(ns: u64) -> usize {
    let bucket = bucket(ns).saturating_sub(CELL_BUCKET_SHIFT);
    if bucket < CELL_BUCKETS { bucket } else { CELL_BUCKETS - 1 }
}

/// What happened to the holders of a record, other than to one lock. The numbers are the writer's and the
/// reader's to give a meaning.
#[repr(C)]
pub struct Events {
    /// How often, by number.
    pub counters: [AtomicU64; COUNTERS],
    /// How long, by number.
    pub durations: [Durations; DURATIONS],
}

/// How long things of one sort took.
#[repr(C)]
pub struct Durations {
    /// The sum in nanoseconds.
    pub total: AtomicU64,
    /// The longest in nanoseconds.
    pub max: AtomicU64,
    /// How many fell into each [`bucket`].
    pub buckets: [AtomicU64; BUCKETS],
}

/// One for each bit of a number of nanoseconds.
pub const BUCKETS: usize = 64;

/// The bucket for a duration: its logarithm to the base of 2, rounded down. 0 is in the first one, with 1.
#[must_use]
pub const fn bucket(ns: u64) -> usize {
    (ns | 1).ilog2() as usize
}

/// What a thread record has under check.
#[repr(C, align(64))]
pub struct Checked {
    /// The number of the present thread among all of the process; never used again.
    pub serial: AtomicU32,
    /// Entries of the list of held locks that may be in use: those from here on are free.
    pub held_len: AtomicU32,
    /// How many of them are.
    pub held_count: AtomicU32,
    /// Room in the list.
    pub held_capacity: AtomicU32,
    /// Where it lies in the file; 0: it is `held`.
    pub held_offset: AtomicU64,
    /// The number of the last hold.
    pub sequence: AtomicU32,
    /// The stack of the wait that the record shows,
    pub wait_stack: AtomicU32,
    /// what it asks for, a [`Mode`](crate::check::Mode),
    pub wait_mode: AtomicU32,
    /// whether it ends by itself, at a time: 1,
    pub wait_timed: AtomicU32,
    /// and the thread whose end it waits for, as a `pthread_t`; 0 if it waits for none.
    pub wait_join: AtomicU64,
    /// The present thread, as a `pthread_t`.
    pub thread: AtomicU64,
    /// How many of the held locks have [`ON_STACK`].
    pub on_stack: AtomicU32,
    /// Of the wait for a condition variable that the record shows: the word of the mutex,
    pub wait_with: AtomicU32,
    /// and how often others had been woken when it began.
    pub wait_woken: AtomicU32,
    /// 1 once the log names the present thread.
    pub named: AtomicU32,
    /// A hash of the locks that the thread has had, where that is asked for.
    pub had: [AtomicU64; 4],
    /// The address of the lock of which was last told that it is none.
    pub told: AtomicU64,
    /// The name by which the thread has logged last; 0 if it has logged nothing.
    pub name: [AtomicU64; 2],
    /// The list of held locks, as long as it is short.
    pub held: [Held; SHORT_LIST],
}

/// Entries of a short list of held locks.
pub const SHORT_LIST: usize = 64;

/// A lock that a thread holds.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub struct Held {
    /// Which; 0 in a free entry.
    pub word: AtomicU32,
    /// How: the low byte is a [`Mode`](crate::check::Mode), [`TRIED`] may be set, and from [`DEPTH`] on how
    /// often, less 1.
    pub how: AtomicU32,
    /// The stack of the acquisition.
    pub stack: AtomicU32,
    /// The lock's class.
    pub class: AtomicU32,
    /// Where it is.
    pub address: AtomicU64,
    /// The number of this hold, among the thread's.
    pub sequence: AtomicU32,
    /// The command wants to be told when the hold with this number is over.
    pub watch: AtomicU32,
}

impl Held {
    /// A free entry.
    #[must_use]
    pub const fn new() -> Held {
        Held {
            word: AtomicU32::new(0),
            how: AtomicU32::new(0),
            stack: AtomicU32::new(0),
            class: AtomicU32::new(0),
            address: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            watch: AtomicU32::new(0),
        }
    }
}

/// In [`Held::how`]: it was taken by a try.
pub const TRIED: u32 = 1 << 8;
/// In [`Held::how`]: it lies in a frame of the thread's own stack, as far as the stack pointer tells.
pub const ON_STACK: u32 = 1 << 9;
/// In [`Held::how`]: one more hold of the same lock by the same thread.
pub const DEPTH: u32 = 1 << 16;

/// A lock's place in the lock table of a process under check.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub struct CheckSlot {
    /// State, kind and generation: see [`meta`]; and [`FLAGS`].
    pub meta: AtomicU64,
    /// The lock; of a readers-writer lock that of its writers.
    pub address: AtomicU64,
    /// The stack that initialised it; 0 if unknown.
    pub stack: AtomicU32,
    /// LIVE: the moment at which it was made. DEAD: the next slot on the free list.
    pub made: AtomicU32,
    /// The serial of the thread that holds it, or [`READERS`] and how many; 0 if nobody does. Of a condition
    /// variable the word of the mutex of its last wait.
    pub holder: AtomicU32,
    /// How many wait for it.
    pub waiters: AtomicU32,
}

/// In [`CheckSlot::meta`]: all that is there besides.
pub const FLAGS: u64 = 0xffff << 16;
/// One of [`FLAGS`]: the lock is part of an edge in the log.
pub const IN_EDGE: u64 = 1 << 16;
/// One of [`FLAGS`], of a condition variable: it was signalled by a thread that held locks besides its mutex,
pub const SIGNALLED_HOLDING: u64 = 1 << 17;
/// or by one that held none.
pub const SIGNALLED_FREELY: u64 = 1 << 18;
/// One of [`FLAGS`], of a semaphore: it is used as a lock, as far as is known.
pub const IS_LOCK: u64 = 1 << 19;
/// In [`CheckSlot::holder`]: readers hold it, as many as the other bits say.
pub const READERS: u32 = 1 << 31;

/// Where the slot of this index lies in a table of [`CheckSlot`]s. Neighbours, which a program often made for
/// several threads at once, do not share a cache line.
#[inline(always)]
#[must_use]
pub const fn check_slot(index: u32) -> u64 {
    const PER_PAGE: u32 = (PAGE / size_of::<CheckSlot>() as u64) as u32;
    let within = index % PER_PAGE;
    let place = (within << 1 | within >> (PER_PAGE.ilog2() - 1)) % PER_PAGE;
    (index - within + place) as u64 * size_of::<CheckSlot>() as u64
}

/// An order of two locks that has been seen.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub struct EdgeSlot {
    /// A hash of both locks, how they were held or asked for, and what else was held; 0 in a free slot.
    pub key: AtomicU64,
    /// The lock that was held,
    pub from: AtomicU32,
    /// and the other one.
    pub to: AtomicU32,
    /// The serials of the first threads that did it; once the last is there, it was many.
    pub threads: [AtomicU32; 4],
}

/// An order of two classes, with classes of guards, of which there is evidence in the log; or a place at
/// which misuse was found.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub struct PairSlot {
    /// A hash of it; 0 in a free slot.
    pub key: AtomicU64,
    /// The class of the lock that was held,
    pub from: AtomicU32,
    /// and of the other one.
    pub to: AtomicU32,
    /// How many edges are evidence of it.
    pub count: AtomicU32,
    /// Once this number of locks has died ([`Header::deaths`]), there is room for evidence about those that
    /// live.
    pub renewed_at: AtomicU32,
    /// As in an [`EdgeSlot`].
    pub threads: [AtomicU32; 2],
}

/// So many edges between instances of two classes are logged at first,
pub const EVIDENCE: u32 = 64;
/// or of one class. Half as many more each time that the number of locks that have died has doubled.
pub const EVIDENCE_WITHIN: u32 = 1 << 16;
/// Slots that are looked at for one edge or pair in one level, in one page.
pub const WINDOW: usize = 16;
/// Levels of a table beyond the first.
pub const FURTHER: usize = 3;
/// Slots in one page of a level beyond the first.
pub const SLOTS_A_PAGE: u64 = PAGE / size_of::<EdgeSlot>() as u64;

/// How many slots a level beyond the first has, of a table whose first level has `capacity`.
#[must_use]
pub const fn level_capacity(capacity: u32, level: usize) -> u64 {
    (capacity as u64) << (3 * (level + 1))
}

/// The first words of every event in the log.
#[repr(C)]
#[derive(Debug, Default)]
pub struct LogHead {
    /// The number of the event plus one, its low half, once all of it is there.
    pub ready: AtomicU32,
    /// [`LOG_EDGE`] or one of the others.
    pub kind: AtomicU32,
    /// The thread's serial
    pub thread: AtomicU32,
    /// and id.
    pub tid: AtomicU32,
}

/// How long a thread that finds the log full waits for a command that consumes nothing, in milliseconds.
pub const PATIENCE_MS: u32 = 2000;

/// [`LogHead::kind`] of a [`LogEdge`].
pub const LOG_EDGE: u32 = 1;
/// [`LogHead::kind`] of a [`LogLock`]: it is no more, and was part of an edge.
pub const LOG_DIED: u32 = 2;
/// [`LogHead::kind`] of a [`LogMisuse`].
pub const LOG_MISUSE: u32 = 3;
/// [`LogHead::kind`] of a [`LogLock`]: a thread that held nothing wrote under it.
pub const LOG_WROTE: u32 = 4;
/// [`LogHead::kind`] of a [`LogEdge`]: a condition variable, `from`, was signalled by a thread that held the
/// guards.
pub const LOG_SIGNALLED: u32 = 6;
/// [`LogHead::kind`] of a [`LogLock`]: the program has told its place.
pub const LOG_PLACED: u32 = 5;
/// [`LogHead::kind`] of an event that has nothing but the thread's name: of one of which the log is to speak
/// and that logs nothing itself; or another name that a thread had at its end.
pub const LOG_NAMED: u32 = 7;

/// An event, whatever it is.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct LogSlot {
    /// What it is.
    pub head: LogHead,
    /// See [`LogEdge`], [`LogLock`], [`LogMisuse`].
    pub words: [AtomicU32; 24],
    /// The kernel's name of the thread when it logged for the first time, as bytes; zeros follow.
    pub name: [AtomicU64; 2],
}

impl LogSlot {
    /// As an edge.
    #[must_use]
    pub fn edge(&self) -> &LogEdge {
        // SAFETY: as large, as aligned, and all of it atomics, which any bytes are; so below.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }

    /// As one about a lock.
    #[must_use]
    pub fn lock(&self) -> &LogLock {
        // SAFETY: as above.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }

    /// As one of misuse.
    #[must_use]
    pub fn misuse(&self) -> &LogMisuse {
        // SAFETY: as above.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }
}

/// A lock at one end of a [`LogEdge`].
#[repr(C)]
#[derive(Debug, Default)]
pub struct LogEnd {
    /// The lock's word,
    pub lock: AtomicU32,
    /// its class,
    pub class: AtomicU32,
    /// the stack that took it,
    pub stack: AtomicU32,
    /// the moment at which it was made,
    pub made: AtomicU32,
    /// and where it is.
    pub address: AtomicU64,
}

/// A lock was asked for while others were held.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct LogEdge {
    /// [`LOG_EDGE`].
    pub head: LogHead,
    /// What was held,
    pub from: LogEnd,
    /// and asked for.
    pub to: LogEnd,
    /// Bytes: the mode of `from`, that of `to`, how many guards are named, and whether there were more.
    pub how: AtomicU32,
    /// Bytes: the kinds of both locks.
    pub kinds: AtomicU32,
    /// How the guards are held, four bits each.
    pub guard_modes: AtomicU32,
    _pad: u32,
    /// What else was held.
    pub guards: [AtomicU32; GUARDS],
    _name: [u32; 4],
}

/// So many guards of an edge are kept.
pub const GUARDS: usize = 8;

/// Something about one lock.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct LogLock {
    /// [`LOG_DIED`] or one of the others.
    pub head: LogHead,
    /// The lock's word.
    pub lock: AtomicU32,
    /// Its kind.
    pub kind: AtomicU32,
    /// Where it is, or was.
    pub address: AtomicU64,
    /// Its class.
    pub class: AtomicU32,
    /// [`LOG_WROTE`]: the moment at which it was made.
    pub made: AtomicU32,
    /// Its place.
    pub place: AtomicU64,
}

/// Misuse: see [`Misuse`](crate::check::Misuse).
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct LogMisuse {
    /// [`LOG_MISUSE`].
    pub head: LogHead,
    /// What: a [`Wrong`](crate::check::Wrong).
    pub what: AtomicU32,
    /// The lock's word; 0 if it has none.
    pub lock: AtomicU32,
    /// Its kind.
    pub kind: AtomicU32,
    /// The stack here
    pub stack: AtomicU32,
    /// and there; 0 if there is none.
    pub other_stack: AtomicU32,
    /// The serial of the other thread; 0 if there is none.
    pub other_thread: AtomicU32,
    /// Where the lock is.
    pub address: AtomicU64,
    /// As `what` says.
    pub number: AtomicU64,
}

/// What a process under check had no room for: the numbers of [`Header::lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Lost {
    /// Events, in the log.
    Events = 0,
    /// Orders, in the table of pairs of classes: no evidence of them is in the log.
    Pairs = 1,
    /// Holds, in a thread's list.
    Holds = 2,
    /// Guards, in an edge.
    Guards = 3,
    /// Orders within a class of which there was evidence enough.
    Evidence = 4,
    /// Orders, in the table of edges: each time that one was met.
    Edges = 5,
    /// Findings, in the table of pairs.
    Findings = 6,
}

/// How many of those there are room for.
pub const LOST: usize = 8;

/// Bytes per [`Cell`], which its index counts in.
pub const CELL_SIZE: u64 = 64;
/// Bytes per [`Spread`] or [`Site`].
pub const BLOCK_SIZE: u64 = 128;

const _: () = {
    assert!(size_of::<Header>() <= HEADER_SIZE as usize);
    assert!(size_of::<LockSlot>() == 64);
    assert!(size_of::<StackSlot>() == 256);
    assert!(size_of::<ModuleSlot>() == 512);
    assert!(size_of::<ArraySlot>() == 128);
    assert!(size_of::<Entry>() * CHUNK_ENTRIES as usize == PAGE as usize);
    assert!(size_of::<Holds>() == size_of::<Entry>());
    assert!(size_of::<Chunk>() <= (TRACE_PAGES * PAGE) as usize);
    assert!(size_of::<Record>() == PAGE as usize);
    assert!(size_of::<Cell>() == CELL_SIZE as usize);
    assert!(size_of::<Spread>() == BLOCK_SIZE as usize && size_of::<Site>() == BLOCK_SIZE as usize);
    assert!(offset_of!(Spread, tag) == offset_of!(Site, tag));
    assert!(2 * (4 << FIRST_HEADS_BITS) == PAGE);
    assert!(EARLY as u32 * EARLY_BITS <= u32::BITS && CELL_BUCKETS < 1 << EARLY_BITS);
    assert!(size_of::<Events>() <= PAGE as usize);
    assert!(bucket(u64::MAX) == BUCKETS - 1);
    // One line for all that the fast path reads of a record.
    assert!(offset_of!(Record, directory_offset) < 64 && offset_of!(Record, held) < 64);
    assert!(
        offset_of!(Record, others) % 64 == 0
            && offset_of!(Record, recycled) % 64 == 0
            && offset_of!(Record, overflow) % 64 == 0
    );
    assert!(offset_of!(Record, small_directory) + 4 * SMALL_DIRECTORY == PAGE as usize);
    assert!(offset_of!(Record, small_directory).is_multiple_of(align_of::<Checked>()));
    assert!(size_of::<Checked>() <= 4 * SMALL_DIRECTORY && size_of::<Held>() == 32);
    assert!(size_of::<CheckSlot>() == 32 && size_of::<EdgeSlot>() == 32 && size_of::<PairSlot>() == 32);
    assert!(PLACES * 4 == 64 && WITHIN_BITS + 8 + INDEX_BITS == u32::BITS);
    assert!(size_of::<LogSlot>() == 128 && size_of::<LogEdge>() == 128);
    assert!(size_of::<LogLock>() == 128 && size_of::<LogMisuse>() == 128);
    assert!(offset_of!(LogEdge, _name) == offset_of!(LogSlot, name));
    assert!(offset_of!(LogMisuse, number) + 8 <= offset_of!(LogSlot, name));
    assert!(offset_of!(LogLock, place) + 8 <= offset_of!(LogSlot, name));
    assert!(WINDOW * size_of::<EdgeSlot>() <= PAGE as usize && (PAGE as usize).is_multiple_of(WINDOW * 32));
    // NULL-CHUNK: magic and version end before the tag of the first entry that page 0 would hold.
    assert!(VERSION_OFFSET as usize + 4 <= offset_of!(Entry, tag));
};

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn names_are_safe_to_print() {
        for (name, printed) in [
            (&b"worker-3 \xc3\xa4"[..], "worker-3 \u{e4}"),
            (b"\x1b[31mred\n", r"\x1b[31mred\x0a"),
            // Cut inside a character; a control character beyond ASCII; none at all.
            (b"caf\xc3", r"caf\xc3"),
            (b"\xc2\x9b1m\x7f", r"\xc2\x9b1m\x7f"),
            (b"", ""),
        ] {
            assert_eq!(printable(name), printed);
        }
    }
}
