//! From a file to a [`Snapshot`].
//!
//! The file may be cut short, torn (its process was killed in the middle of anything, or runs on while we
//! read), or damaged. Nothing in it is trusted: every offset is checked against the file, every list is
//! bounded by the number of things that could be on it, and sums saturate. What does not make sense is left
//! out; only a header that contradicts itself is an error.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Clock;
use crate::layout::{
    self, ArraySlot, Cell, Entry, Events, Header, Holds, LockSlot, ModuleSlot, PAGE, Record, Run, Slots,
    Spread, StackSlot,
};
use crate::packed::Packed;
use crate::snapshot::{
    ArrayEnd, ArrayStats, Durations, EndedThread, Error, EventCount, Hold, HoldNow, Holder, LockKind,
    LockStats, Module, Site, Snapshot, ThreadStats, WaitNow,
};

/// Reads the statistics file at `path`. `now_ns` is `CLOCK_MONOTONIC` at the end of the run: the end of those
/// processes and waits that had none.
///
/// # Errors
/// If the file cannot be read, is none of ours, or has a header that contradicts itself.
pub fn read(path: &Path, now_ns: u64) -> Result<Snapshot, Error> {
    let mut locks: Vec<LockStats> = Vec::new();
    let (mut snapshot, of_file) = read_apart(path, now_ns)?;
    of_file.each(|lock| locks.push(lock));
    locks.sort_by_key(|l| {
        (std::cmp::Reverse((l.wait_total_ns, l.contended, l.acquisitions, l.hold_total_ns)), l.address)
    });
    snapshot.locks = locks;
    Ok(snapshot)
}

/// As [`read`], with the locks apart: of a million of them there is no need that all are in memory at once.
///
/// # Errors
/// As [`read`].
pub fn read_apart(path: &Path, now_ns: u64) -> Result<(Snapshot, Locks), Error> {
    let reader = Reader::open(path)?;
    let sums = reader.lock_table()?;
    reader.snapshot(sums, now_ns)
}

/// A file that is read again and again, of a process that goes on. What its cells said is kept, so that only
/// those that have changed since are taken in.
pub struct Follower {
    path: PathBuf,
    kept: Kept,
}

impl Follower {
    /// Of the file at `path`.
    #[must_use]
    pub fn new(path: PathBuf) -> Follower {
        Follower { path, kept: Kept::default() }
    }

    /// As [`read_apart`], with the locks that somebody has waited for, in no order. They lack the
    /// distributions, and how long they were held while nobody waited.
    ///
    /// # Errors
    /// As [`read`].
    pub fn look(&mut self, now_ns: u64) -> Result<(Snapshot, Vec<LockStats>), Error> {
        let reader = Reader::open(&self.path)?;
        let mut sums = reader.lock_table()?;
        sums.kept = Some(std::mem::take(&mut self.kept));
        let (snapshot, Locks { mut sums, stacks, clock }) = reader.snapshot(sums, now_ns)?;
        self.kept = sums.kept.take().unwrap_or_default();
        Ok((snapshot, sums.finish_waited(&self.kept, &stacks, &clock)))
    }
}

/// Begins the longest waits and holds anew, by lock and place, and the longest durations of events, of a
/// process that goes on: whoever reads the file later has those that ended since. Their writer keeps the
/// larger of two values, and nothing else is written here, so that at worst one that ends just now is lost.
///
/// # Errors
/// As [`read`]; if the file cannot be written.
pub fn forget_longest(path: &Path) -> Result<(), Error> {
    // Not what somebody put in its place: the directory may be everybody's.
    let file = File::options().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let reader = Reader::of(file)?;
    let mut sums = reader.lock_table()?;
    sums.longest = Some(Vec::new());
    reader.records(&mut sums);
    for at in sums.longest.into_iter().flatten() {
        reader.file.write_all_at(&0_u64.to_ne_bytes(), at)?;
    }
    Ok(())
}

/// The locks of a file.
pub struct Locks {
    sums: Sums,
    stacks: Vec<Arc<[u64]>>,
    clock: Clock,
}

impl Locks {
    /// Calls `each` with one after the other, in no order.
    pub fn each(self, each: impl FnMut(LockStats)) {
        let (stacks, clock) = (&self.stacks[..], &self.clock);
        self.sums.finish_locks(stacks, clock, each);
    }
}

/// Bytes copied from the file, read by field.
#[derive(Default)]
pub(crate) struct Block(Vec<u8>);

impl Block {
    pub(crate) fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        self.0
            .get(at..at + 8)
            .map_or(0, |b| u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
    }

    fn text(&self, at: usize, capacity: usize, len: u32) -> String {
        let bytes = self.0.get(at..at + capacity.min(len as usize)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// What entries say, in ticks.
#[derive(Default, Clone)]
struct Sum {
    acquisitions: u64,
    /// Holds that go on.
    held: u64,
    first: u64,
    first_total: f64,
    picked: u64,
    picked_total: u64,
    picked_squares: f64,
    hold_max: u64,
    /// The sums of `squares` and `max` as they are, for condition variables.
    counts: [u64; 2],
}

impl Sum {
    /// Adds what the [`Entry`] at `at` and its [`Holds`] say.
    fn add(&mut self, block: &Block, at: usize, holds: usize) {
        let entry = |offset| block.u64(at + offset);
        let field = |offset| block.u64(holds + offset);
        let plus = |sum: &mut u64, amount: u64| *sum = sum.saturating_add(amount);
        let finite = |sum: f64| if sum.is_finite() && sum >= 0.0 { sum } else { 0.0 };
        plus(&mut self.acquisitions, entry(offset_of!(Entry, acquisitions)));
        plus(&mut self.held, u64::from(entry(offset_of!(Entry, hold_start)) != 0));
        let samples = block.u32(holds + offset_of!(Holds, samples));
        plus(&mut self.first, u64::from(samples & ((1 << layout::FIRST_BITS) - 1)));
        plus(&mut self.picked, u64::from(samples >> layout::FIRST_BITS));
        self.first_total += finite(f32::from_bits(block.u32(holds + offset_of!(Holds, first_total))).into());
        plus(&mut self.picked_total, field(offset_of!(Holds, total)));
        self.picked_squares += finite(f64::from_bits(field(offset_of!(Holds, squares))));
        self.hold_max = self.hold_max.max(field(offset_of!(Holds, max)));
        plus(&mut self.counts[0], field(offset_of!(Holds, squares)));
        plus(&mut self.counts[1], field(offset_of!(Holds, max)));
    }
}

/// What cells of one sort say, in ticks.
#[derive(Default, Clone)]
struct Waits {
    count: u64,
    total: u64,
    max: u64,
    charged: u64,
    timeouts: u64,
    vain: u64,
}

impl Waits {
    fn add(&mut self, other: &Waits) {
        let plus = |sum: &mut u64, amount: u64| *sum = sum.saturating_add(amount);
        plus(&mut self.count, other.count);
        plus(&mut self.total, other.total);
        plus(&mut self.charged, other.charged);
        plus(&mut self.timeouts, other.timeouts);
        plus(&mut self.vain, other.vain);
        self.max = self.max.max(other.max);
    }

    /// Adds, or takes away again what was added. The longest stays.
    fn change(&mut self, other: &Waits, plus: bool) {
        let change = |sum: &mut u64, amount: u64| {
            *sum = if plus { sum.wrapping_add(amount) } else { sum.wrapping_sub(amount) };
        };
        change(&mut self.count, other.count);
        change(&mut self.total, other.total);
        change(&mut self.charged, other.charged);
        change(&mut self.timeouts, other.timeouts);
        self.max = self.max.max(other.max);
    }
}

/// What is known from one look of a [`Follower`] to the next.
#[derive(Default)]
struct Kept {
    /// Runs of cells as they were, by their first page.
    runs: HashMap<u64, Block>,
    /// The sums of cells, by the lock's tag.
    cells: HashMap<u64, OfLock>,
    /// Of each record all waits, and those for locks.
    threads: HashMap<u32, [Waits; 2]>,
}

/// The sums of a lock's cells.
struct OfLock {
    /// Whether it is acquired.
    acquired: bool,
    /// By what they count ([`Cell::holds`]), and with which stack.
    sums: Vec<(u32, u32, Waits)>,
}

/// What a cell says. Its numbers may come in any order, as its writer goes on.
struct Said {
    tag: u64,
    holds: u32,
    stack: u32,
    waits: Waits,
}

impl Said {
    fn of(block: &Block, at: usize) -> Said {
        Said {
            tag: block.u64(at + offset_of!(Cell, tag)),
            holds: block.u32(at + offset_of!(Cell, holds)),
            stack: block.u32(at + offset_of!(Cell, stack)),
            waits: Waits {
                count: block.u64(at + offset_of!(Cell, count)),
                total: block.u64(at + offset_of!(Cell, total)),
                max: block.u64(at + offset_of!(Cell, max)),
                charged: block.u64(at + offset_of!(Cell, charged)),
                timeouts: block.u32(at + offset_of!(Cell, timeouts)).into(),
                vain: 0,
            },
        }
    }

    /// Adds it to the sums of its lock, or takes it away again.
    fn change(&self, of_lock: &mut OfLock, plus: bool) {
        let is_it = |(holds, stack, _): &(u32, u32, Waits)| (*holds, *stack) == (self.holds, self.stack);
        let at = of_lock.sums.iter().position(is_it).unwrap_or_else(|| {
            of_lock.sums.push((self.holds, self.stack, Waits::default()));
            of_lock.sums.len() - 1
        });
        of_lock.sums[at].2.change(&self.waits, plus);
    }
}

/// What a cell says, or what is to be counted as if one said it.
struct Part {
    /// The index of the lock.
    lock: u32,
    of: Of,
    stack: u32,
    waits: Waits,
}

/// What a cell counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Waits,
    /// Holds that others waited for, by the return address of the acquisition.
    Holds(u64),
}

type Buckets = [u64; layout::CELL_BUCKETS];

/// How long the waits for a lock took, and its holds that others waited for.
#[derive(Clone, Copy, Default)]
struct Taken {
    waits: Buckets,
    holds: Buckets,
}

impl Taken {
    fn of(&mut self, holds: u32) -> &mut Buckets {
        if holds == layout::OF_WAITS { &mut self.waits } else { &mut self.holds }
    }

    fn add(&mut self, holds: u32, bucket: usize, count: u64) {
        if let Some(sum) = self.of(holds).get_mut(bucket) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// A lock of the table, or an aggregate, as it is summed up.
#[derive(Default)]
struct Lock {
    address: u64,
    kind: LockKind,
    destroyed: bool,
    stack: u32,
    handover: u64,
    /// Who waits, and what of that is settled.
    waiting: u64,
    charged: u64,
    sum: Sum,
}

impl Lock {
    fn is_used(&self) -> bool {
        let signals = self.kind == LockKind::Condition && self.sum.picked_total | self.sum.counts[0] != 0;
        self.sum.acquisitions != 0 || signals
    }
}

/// A thread record.
#[derive(Default)]
struct Thread {
    /// Its page.
    record: u32,
    tid: u32,
    lives: bool,
    /// When the thread ended, in ticks, if it did while it held locks; and its name.
    ended: Option<(u64, String)>,
    started: u64,
    last_seen: u64,
    wait_began: u64,
    wait_tag: u64,
    wait_stack: u32,
    waited: Waits,
    /// The part of it that was for locks.
    waited_for_locks: Waits,
    /// By tag: since when, and the return address of the acquisition.
    holds: Vec<(u64, u64, u64)>,
}

/// Everything under way to becoming a snapshot.
struct Sums {
    /// By index in the lock table; [`layout::OVERFLOW`] has its place there.
    locks: Vec<Lock>,
    /// The tags that their entries carry; 0 in an unused slot. Apart, as every cell asks for one.
    tags: Vec<u64>,
    /// Whether they are acquired.
    acquired: Vec<bool>,
    /// The cells in use and the spreads, by groups of [`GROUP`] locks: a file may have millions.
    cells: Vec<Packed>,
    /// Of a [`Follower`] instead.
    kept: Option<Kept>,
    /// What is not in the file as such.
    others: Vec<Part>,
    recycled: Sum,
    threads: Vec<Thread>,
    dropped_waits: u64,
    /// Where in the file the longest ones are, if that is wanted.
    longest: Option<Vec<u64>>,
    /// Pages already counted: a damaged file may name one twice.
    seen: HashSet<u64>,
    events: Vec<EventCount>,
    durations: Vec<Durations>,
}

impl Sums {
    fn lock(&mut self, tag: u64) -> Option<&mut Lock> {
        let index = self.known(tag)?;
        Some(&mut self.locks[index as usize])
    }

    /// Whether what has this tag is acquired; so is what the reader does not know.
    fn is_acquired(&self, tag: u64) -> bool {
        self.known(tag).is_none_or(|index| self.acquired[index as usize])
    }

    /// Charges the waits that go on at `now` to those who hold what is waited for, by tag and place of the
    /// acquisition; to nobody, if nobody does.
    fn charge_holders(&mut self, holds: &[(u64, u64)], now: u64) {
        // By the address that has the account.
        let mut holders: HashMap<u64, (u32, u64)> = HashMap::new();
        for &(tag, acquired) in holds {
            let index = self.index(tag);
            let lock = &self.locks[index as usize];
            let reads = matches!(lock.kind, LockKind::RwReaders | LockKind::SharedRwReaders);
            let beyond = if reads { LockKind::WRITERS as u64 } else { 0 };
            holders.entry(lock.address.saturating_add(beyond)).or_insert((index, acquired));
        }
        for lock in self.locks.iter_mut().filter(|lock| layout::waiting_count(lock.waiting) != 0) {
            let charged = layout::waited_since(lock.charged, layout::waited_so_far(lock.waiting, now));
            let Some(&(index, acquired)) = holders.get(&lock.address) else {
                lock.handover = lock.handover.saturating_add(charged);
                continue;
            };
            let waits = Waits { charged, ..Waits::default() };
            self.others.push(Part { lock: index, of: Of::Holds(acquired), stack: 0, waits });
        }
    }

    /// Forgets the holds of ended threads that are over: of locks that are gone, or that a living thread has;
    /// of what several can read, if either has it alone.
    fn end_holds(&self, threads: &mut [Thread]) {
        let object = |tag: u64| {
            let lock = &self.locks[self.known(tag)? as usize];
            let reads = matches!(lock.kind, LockKind::RwReaders | LockKind::SharedRwReaders);
            (!lock.destroyed).then_some((lock.kind.object(lock.address), reads))
        };
        let living = threads.iter().filter(|thread| thread.lives);
        let held: HashSet<(u64, bool)> =
            living.flat_map(|thread| thread.holds.iter().filter_map(|hold| object(hold.0))).collect();
        for thread in threads.iter_mut().filter(|thread| thread.ended.is_some()) {
            thread.holds.retain(|hold| {
                object(hold.0).is_some_and(|(at, reads)| {
                    !held.contains(&(at, false)) && (reads || !held.contains(&(at, true)))
                })
            });
        }
    }

    /// The index of the lock with this tag. That of those counted together, if its slot has changed its
    /// instance behind the reader's back, or is damaged.
    fn index(&self, tag: u64) -> u32 {
        self.known(tag).unwrap_or(layout::OVERFLOW)
    }

    fn known(&self, tag: u64) -> Option<u32> {
        let index = (tag >> 32) as u32 & layout::INDEX_MASK;
        let known = self.tags.get(index as usize).is_some_and(|&known| known == tag && tag != 0);
        known.then_some(index)
    }

    /// Keeps what a cell says.
    fn cell(&mut self, block: &Block, at: usize) {
        let (group, lock) = self.place(block.u64(at + offset_of!(Cell, tag)));
        let (word, long) = (|offset| u64::from(block.u32(at + offset)), |offset| block.u64(at + offset));
        self.cells[group].put(&[
            2 * lock,
            word(offset_of!(Cell, holds)),
            word(offset_of!(Cell, stack)),
            long(offset_of!(Cell, count)),
            long(offset_of!(Cell, total)),
            long(offset_of!(Cell, max)),
            long(offset_of!(Cell, charged)),
            word(offset_of!(Cell, timeouts)),
            word(offset_of!(Cell, early)),
        ]);
    }

    /// And a spread, bucket by bucket.
    fn spread(&mut self, block: &Block, at: usize) {
        let (group, lock) = self.place(block.u64(at + offset_of!(Spread, tag)));
        let holds = block.u32(at + offset_of!(Spread, holds));
        for bucket in 0..layout::CELL_BUCKETS {
            let count = block.u32(at + offset_of!(Spread, buckets) + 4 * bucket);
            if count != 0 {
                self.cells[group].put(&[2 * lock + 1, holds.into(), bucket as u64, count.into()]);
            }
        }
    }

    /// The group of a lock, and its place there.
    fn place(&self, tag: u64) -> (usize, u64) {
        let lock = self.index(tag) as usize;
        (lock / GROUP, (lock % GROUP) as u64)
    }

    /// One lock after the other, each with its cells.
    fn finish_locks(mut self, stacks: &Stacks, clock: &Clock, mut each: impl FnMut(LockStats)) {
        self.others.sort_by_key(|part| part.lock);
        let mut others = self.others.into_iter().peekable();
        let mut taken = vec![Taken::default(); GROUP];
        let mut parts = Vec::new();
        for (group, (locks, cells)) in self.locks.chunks(GROUP).zip(self.cells).enumerate() {
            let first = group * GROUP;
            let beyond = (first + locks.len()) as u32;
            parts.clear();
            parts.extend(std::iter::from_fn(|| others.next_if(|part| part.lock < beyond)));
            taken.fill(Taken::default());
            unpack(&cells, first, stacks, &mut parts, &mut taken);
            drop(cells);
            parts.sort_unstable_by_key(|part| (part.lock, part.of, part.stack));
            let mut rest = &parts[..];
            for (n, (lock, taken)) in locks.iter().zip(&taken).enumerate() {
                let count = rest.iter().take_while(|part| part.lock as usize == first + n).count();
                let (own, others) = rest.split_at(count);
                rest = others;
                if lock.is_used() || own.iter().any(|part| part.of == Of::Waits && part.waits.count != 0) {
                    each(LockStats { slot: (first + n) as u32, ..finish(lock, own, taken, stacks, clock) });
                }
            }
        }
        let recycled = Lock { kind: LockKind::Recycled, sum: self.recycled, ..Lock::default() };
        if recycled.is_used() {
            each(finish(&recycled, &[], &Taken::default(), stacks, clock));
        }
    }

    /// The locks that somebody has waited for, by what was kept of their cells.
    fn finish_waited(mut self, kept: &Kept, stacks: &Stacks, clock: &Clock) -> Vec<LockStats> {
        let mut parts = std::mem::take(&mut self.others);
        for (&tag, of_lock) in &kept.cells {
            let lock = self.index(tag);
            let sums = of_lock.sums.iter().cloned();
            parts.extend(sums.map(|(holds, stack, waits)| part(lock, holds, stack, waits, stacks)));
        }
        parts.sort_unstable_by_key(|part| (part.lock, part.of, part.stack));
        let waited = |own: &&[Part]| own.iter().any(|part| part.of == Of::Waits && part.waits.count != 0);
        let finish = |own: &[Part]| {
            let lock = &self.locks[own[0].lock as usize];
            LockStats { slot: own[0].lock, ..finish(lock, own, &Taken::default(), stacks, clock) }
        };
        parts.chunk_by(|a, b| a.lock == b.lock).filter(waited).map(finish).collect()
    }
}

/// What cells of a lock say that count this with that stack.
fn part(lock: u32, holds: u32, stack: u32, mut waits: Waits, stacks: &Stacks) -> Part {
    let of = if holds == layout::OF_WAITS {
        (waits.charged, waits.vain) = (0, waits.charged);
        Of::Waits
    } else {
        Of::Holds(stacks.get(holds as usize - 1).and_then(|stack| stack.first()).copied().unwrap_or(0))
    };
    Part { lock, of, stack, waits }
}

/// What [`Sums::cell`] and [`Sums::spread`] have kept of a group of locks, whose first has this index.
fn unpack(cells: &Packed, first: usize, stacks: &Stacks, parts: &mut Vec<Part>, taken: &mut [Taken]) {
    let mut values = cells.values();
    let mut next = || values.next();
    while let Some(what) = next() {
        let mut next = || next().unwrap_or(0);
        let (lock, holds) = (what as usize / 2, next() as u32);
        let taken = &mut taken[lock];
        if what % 2 == 1 {
            taken.add(holds, next() as usize, next());
            continue;
        }
        let stack = next() as u32;
        let (count, total, max, charged) = (next(), next(), next(), next());
        let (timeouts, mut early) = (next(), next());
        while early != 0 {
            let bucket = early & ((1 << layout::EARLY_BITS) - 1);
            taken.add(holds, (bucket as usize).wrapping_sub(1), 1);
            early >>= layout::EARLY_BITS;
        }
        let waits = Waits { count, total, max, charged, timeouts, vain: 0 };
        parts.push(part((first + lock) as u32, holds, stack, waits, stacks));
    }
}

/// So that what is known of a group's waits fits a processor's cache.
const GROUP: usize = 1024;

pub(crate) struct Reader {
    file: File,
    pub(crate) header: Block,
    size: u64,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> Result<Reader, Error> {
        Reader::of(File::open(path)?)
    }

    fn of(file: File) -> Result<Reader, Error> {
        let mut reader =
            Reader { file, header: Block(Vec::new()), size: layout::HEADER_OFFSET + layout::HEADER_SIZE };
        let first = reader.block(0, PAGE).ok_or(Error::NotAStatFile)?;
        if !first.0.starts_with(&layout::MAGIC) {
            return Err(Error::NotAStatFile);
        }
        let version = first.u32(layout::VERSION_OFFSET as usize);
        if version != layout::VERSION {
            return Err(Error::Version(version));
        }
        reader.header =
            reader.block(layout::HEADER_OFFSET, layout::HEADER_SIZE).ok_or(Error::NotAStatFile)?;
        if reader.header.u32(offset_of!(Header, ready)) != 1 {
            return Err(Error::NotAStatFile);
        }
        let size = reader.header.u64(offset_of!(Header, size));
        if size > 1 << 40 || reader.header.u64(offset_of!(Header, arena_offset)) > size {
            return Err(Error::Corrupt("sizes"));
        }
        reader.size = size;
        Ok(reader)
    }

    /// `len` bytes at `offset`; what the file is too short for reads as zero, as its holes do. `None` outside
    /// of the logical size.
    pub(crate) fn block(&self, offset: u64, len: u64) -> Option<Block> {
        if offset.checked_add(len)? > self.size {
            return None;
        }
        let mut block = Block(vec![0; usize::try_from(len).ok()?]);
        self.fill(&mut block, offset)?;
        Some(block)
    }

    /// The same, into a block that there is.
    fn fill(&self, block: &mut Block, offset: u64) -> Option<()> {
        let bytes = &mut block.0;
        if offset.checked_add(bytes.len() as u64)? > self.size {
            return None;
        }
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => {
                    bytes[done..].fill(0);
                    break;
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// The used part of a table: `used` slots of `slot` bytes, at most `limit` of them.
    fn table(&self, offset: usize, used: u32, limit: u32, slot: usize) -> Result<(Block, usize), Error> {
        let count = used.min(limit) as usize;
        let block = self
            .block(self.header.u64(offset), (count * slot) as u64)
            .ok_or(Error::Corrupt("a table lies outside of the file"))?;
        Ok((block, count))
    }

    fn snapshot(self, mut sums: Sums, now_ns: u64) -> Result<(Snapshot, Locks), Error> {
        let header = &self.header;
        let clock = self.clock();
        self.records(&mut sums);

        let end_ns = self.end_ns(&sums, &clock, now_ns);
        let stacks = self.stacks()?;
        let mut thread_time_ns = clock.span(header.u64(offset_of!(Header, ended_ticks)));
        let (mut records, mut holds) = (Vec::new(), Vec::new());
        let mut threads = std::mem::take(&mut sums.threads);
        threads.sort_by_key(|thread| thread.started);
        sums.end_holds(&mut threads);
        for thread in threads {
            if thread.lives {
                let lived = end_ns.saturating_sub(clock.moment(thread.started));
                thread_time_ns = thread_time_ns.saturating_add(lived);
            }
            let ticks = match thread.wait_began {
                0 => 0,
                // Back into ticks, so that there is one way out of them.
                began => clock.ticks(end_ns.saturating_sub(clock.moment(began))),
            };
            let going_on = u64::from(thread.lives && thread.wait_began != 0);
            if going_on != 0 {
                let waits = Waits { count: 1, total: ticks, max: ticks, ..Waits::default() };
                let (lock, stack) = (sums.index(thread.wait_tag), thread.wait_stack);
                sums.others.push(Part { lock, of: Of::Waits, stack, waits });
            }
            if thread.lives || thread.ended.is_some() {
                holds.extend(thread.holds.iter().map(|&(tag, _, acquired)| (tag, acquired)));
            }
            records.push(self.finish_thread(&thread, &sums, &stacks, &clock, (going_on, ticks)));
        }

        sums.charge_holders(
            &holds,
            clock.start_ticks.saturating_add(clock.ticks(end_ns.saturating_sub(clock.start_ns))),
        );

        let snapshot = Snapshot {
            pid: header.u32(offset_of!(Header, pid)),
            lock: header.text(
                offset_of!(Header, lock_name),
                64,
                header.u32(offset_of!(Header, lock_name_len)),
            ),
            rwlock: header.text(
                offset_of!(Header, rwlock_name),
                32,
                header.u32(offset_of!(Header, rwlock_name_len)),
            ),
            exe: header.text(offset_of!(Header, exe), 1024, header.u32(offset_of!(Header, exe_len))),
            start_ns: clock.start_ns,
            threads: header.u32(offset_of!(Header, threads)),
            started: header.u32(offset_of!(Header, started)),
            thread_time_ns,
            locks: Vec::new(),
            modules: self.modules()?,
            dropped_locks: header.u64(offset_of!(Header, overflow_locks)),
            dropped_waits: sums.dropped_waits,
            sample_one_in: header.u32(offset_of!(Header, sample_one_in)),
            records,
            lost_events: header.u64(offset_of!(Header, lost_events)),
            events: std::mem::take(&mut sums.events),
            durations: std::mem::take(&mut sums.durations),
            arrays: self.arrays()?,
            dropped_arrays: header.u32(offset_of!(Header, arrays_dropped)) != 0,
        };
        Ok((snapshot, Locks { sums, stacks, clock }))
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock::of(|at| self.header.u32(at), |at| self.header.u64(at))
    }

    /// When the process ended: as it said itself; or at the end of the run, if it died waiting or there is
    /// nothing else to go by; or at its last sign of life.
    fn end_ns(&self, sums: &Sums, clock: &Clock, now_ns: u64) -> u64 {
        let said = self.header.u64(offset_of!(Header, end_ns));
        if said != 0 {
            return said.min(now_ns);
        }
        let live = || sums.threads.iter().filter(|thread| thread.lives);
        if live().any(|thread| thread.wait_began != 0) {
            return now_ns;
        }
        let seen = live().map(|thread| thread.last_seen.max(thread.started)).max().unwrap_or(0);
        let later =
            (0..2).map(|i| self.header.u64(offset_of!(Header, later) + 16 * i + 8)).max().unwrap_or(0);
        clock.moment(seen).max(later).min(now_ns)
    }

    fn lock_table(&self) -> Result<Sums, Error> {
        let used = self.header.u32(offset_of!(Header, next_lock));
        let limit = self.header.u32(offset_of!(Header, lock_capacity)).min(layout::INDEX_MASK + 1);
        // Under check there are no figures.
        let is_checked = self.header.u32(offset_of!(Header, check)) != 0;
        let count = if is_checked { 0 } else { used.min(limit) as usize };
        let offset = self.header.u64(offset_of!(Header, lock_offset));
        let mut locks: Vec<Lock> = Vec::new();
        locks.resize_with(count.max(layout::FIRST_LOCK as usize), Lock::default);
        let (mut tags, mut acquired) = (vec![0; locks.len()], vec![true; locks.len()]);
        const AT_ONCE: usize = 1 << 12;
        for first in (0..count).step_by(AT_ONCE) {
            let here = AT_ONCE.min(count - first);
            let table = self
                .block(
                    offset.saturating_add((first * size_of::<LockSlot>()) as u64),
                    (here * size_of::<LockSlot>()) as u64,
                )
                .ok_or(Error::Corrupt("a table lies outside of the file"))?;
            for (n, lock) in locks[first..first + here].iter_mut().enumerate() {
                let (index, at) = (first + n, n * size_of::<LockSlot>());
                let meta = table.u64(at + offset_of!(LockSlot, meta));
                let state = layout::meta_state(meta);
                if index < layout::FIRST_LOCK as usize || (state != layout::LIVE && state != layout::DEAD) {
                    continue;
                }
                let address = table.u64(at + offset_of!(LockSlot, address));
                tags[index] = layout::tag(layout::word_of(index as u32, meta), address);
                lock.address = address;
                lock.kind = LockKind::from_byte(layout::meta_kind(meta));
                lock.destroyed = state == layout::DEAD;
                acquired[index] = lock.kind.is_acquired();
                lock.stack = table.u32(at + offset_of!(LockSlot, stack));
                lock.handover = table.u64(at + offset_of!(LockSlot, handover));
                lock.waiting = table.u64(at + offset_of!(LockSlot, waiting));
                lock.charged = table.u64(at + offset_of!(LockSlot, charged));
            }
        }
        tags[layout::OVERFLOW as usize] = layout::tag(layout::OVERFLOW, 0);
        locks[layout::OVERFLOW as usize].kind = LockKind::Overflow;
        let mut cells = Vec::new();
        cells.resize_with(locks.len().div_ceil(GROUP), Packed::default);
        Ok(Sums {
            locks,
            tags,
            acquired,
            recycled: Sum::default(),
            cells,
            kept: None,
            others: Vec::new(),
            threads: Vec::new(),
            dropped_waits: 0,
            longest: None,
            seen: HashSet::new(),
            events: Vec::new(),
            durations: Vec::new(),
        })
    }

    fn records(&self, sums: &mut Sums) {
        let mut page = self.header.u32(offset_of!(Header, records));
        while page != 0 && sums.seen.insert(u64::from(page) * PAGE) {
            let Some(record) = self.block(u64::from(page) * PAGE, PAGE) else { return };
            self.record(&record, page, sums);
            page = record.u32(offset_of!(Record, next));
        }
    }

    fn record(&self, record: &Block, page: u32, sums: &mut Sums) {
        sums.recycled.add(record, offset_of!(Record, recycled), offset_of!(Record, recycled_holds));
        let overflow = &mut sums.locks[layout::OVERFLOW as usize].sum;
        overflow.add(record, offset_of!(Record, overflow), offset_of!(Record, overflow_holds));
        let cell = record.u64(offset_of!(Record, wait_cell));
        let cell = if cell == 0 { None } else { self.block(cell, layout::CELL_SIZE) };
        let mut thread = Thread {
            record: page,
            tid: record.u32(offset_of!(Record, tid)),
            lives: record.u32(offset_of!(Record, state)) == layout::HELD,
            ended: (record.u32(offset_of!(Record, state)) == layout::ENDED).then(|| {
                let half = |n: usize| record.u64(offset_of!(Record, name) + 8 * n);
                (record.u64(offset_of!(Record, ended)), layout::name_of([half(0), half(1)]))
            }),
            started: record.u64(offset_of!(Record, started)),
            last_seen: record.u64(offset_of!(Record, last_seen)),
            wait_began: record.u64(offset_of!(Record, wait_began)),
            wait_tag: record.u64(offset_of!(Record, wait_tag)),
            wait_stack: cell.map_or(0, |cell| cell.u32(offset_of!(Cell, stack))),
            ..Thread::default()
        };
        self.chunks(record, sums, &mut thread);
        self.cells(record, sums, &mut thread);
        self.events(record, sums);
        sums.threads.push(thread);
    }

    fn chunks(&self, record: &Block, sums: &mut Sums, thread: &mut Thread) {
        let len = record.u32(offset_of!(Record, directory_len)) as usize;
        let large;
        let (directory, at) = if len <= layout::SMALL_DIRECTORY {
            (record, offset_of!(Record, small_directory))
        } else {
            let len = len.min(1 << layout::INDEX_BITS) as u64;
            match self.block(record.u64(offset_of!(Record, directory_offset)), 4 * len) {
                Some(block) => large = block,
                None => return,
            }
            (&large, 0)
        };
        // How long locks were held is in the second half.
        let follows = sums.kept.is_some();
        let mut chunk = Block(vec![0; (if follows { 1 } else { layout::CHUNK_PAGES } * PAGE) as usize]);
        for index in 0..len.min((directory.0.len() - at) / 4) {
            let page = u64::from(directory.u32(at + 4 * index)) * PAGE;
            if page == 0 || !sums.seen.insert(page) {
                continue;
            }
            if self.fill(&mut chunk, page).is_none() {
                continue;
            }
            for at in (0..PAGE as usize).step_by(size_of::<Entry>()) {
                let tag = chunk.u64(at + offset_of!(Entry, tag));
                match sums.lock(tag) {
                    Some(lock) => {
                        if follows {
                            let acquisitions = chunk.u64(at + offset_of!(Entry, acquisitions));
                            lock.sum.acquisitions = lock.sum.acquisitions.saturating_add(acquisitions);
                        } else {
                            lock.sum.add(&chunk, at, at + PAGE as usize);
                        }
                        let is_acquired = lock.kind.is_acquired();
                        if let Some(longest) = sums.longest.as_mut().filter(|_| is_acquired) {
                            longest.push(page + PAGE + (at + offset_of!(Holds, max)) as u64);
                        }
                        let since = chunk.u64(at + offset_of!(Entry, hold_start));
                        if since != 0 {
                            thread.holds.push((tag, since, chunk.u64(at + offset_of!(Entry, site))));
                        }
                    }
                    None if tag != 0 => sums.recycled.add(&chunk, at, at + PAGE as usize),
                    None => {}
                }
            }
        }
    }

    fn cells(&self, record: &Block, sums: &mut Sums, thread: &mut Thread) {
        if let Some(mut kept) = sums.kept.take() {
            self.changes(record, sums, &mut kept, thread);
            sums.kept = Some(kept);
        } else {
            self.all_cells(record, sums, thread);
        }
        let others = Said::of(record, offset_of!(Record, others)).waits;
        sums.dropped_waits = sums.dropped_waits.saturating_add(others.count);
        if others.count != 0 {
            let others = Waits { charged: 0, timeouts: 0, ..others };
            thread.waited.add(&others);
            thread.waited_for_locks.add(&others);
            sums.others.push(Part { lock: layout::OVERFLOW, of: Of::Waits, stack: 0, waits: others });
        }
    }

    fn all_cells(&self, record: &Block, sums: &mut Sums, thread: &mut Thread) {
        self.runs(record, offset_of!(Record, cells), layout::CELL_SIZE, sums, |sums, block, at, offset| {
            let said = Said::of(block, at);
            if said.waits.count == 0 {
                return;
            }
            if said.holds == layout::OF_WAITS {
                thread.waited.add(&said.waits);
                if sums.is_acquired(said.tag) {
                    thread.waited_for_locks.add(&said.waits);
                }
            }
            match &mut sums.longest {
                Some(longest) => longest.push(offset + offset_of!(Cell, max) as u64),
                None => sums.cell(block, at),
            }
        });
        self.runs(record, offset_of!(Record, blocks), layout::BLOCK_SIZE, sums, |sums, block, at, _| {
            // The others are sites.
            if block.u64(at + offset_of!(Spread, tag)) != 0 {
                sums.spread(block, at);
            }
        });
    }

    /// Takes in the cells that have changed since the last look.
    fn changes(&self, record: &Block, sums: &mut Sums, kept: &mut Kept, thread: &mut Thread) {
        const SIZE: usize = layout::CELL_SIZE as usize;
        let [all, of_locks] = kept.threads.entry(thread.record).or_default();
        let mut page = u64::from(record.u32(offset_of!(Record, cells) + offset_of!(Slots, run))) * PAGE;
        let mut block = Block::default();
        while self.run(page, sums, &mut block) {
            let before = kept.runs.entry(page).or_default();
            for at in (SIZE..block.0.len()).step_by(SIZE) {
                if before.0.get(at..at + SIZE) == Some(&block.0[at..at + SIZE]) {
                    continue;
                }
                for (said, plus) in [(Said::of(before, at), false), (Said::of(&block, at), true)] {
                    if said.waits.count == 0 {
                        continue;
                    }
                    let acquired = sums.is_acquired(said.tag);
                    let new = || OfLock { acquired, sums: Vec::new() };
                    let of_lock = kept.cells.entry(said.tag).or_insert_with(new);
                    said.change(of_lock, plus);
                    if said.holds == layout::OF_WAITS {
                        all.change(&said.waits, plus);
                        if of_lock.acquired {
                            of_locks.change(&said.waits, plus);
                        }
                    }
                }
            }
            page = u64::from(block.u32(offset_of!(Run, previous))) * PAGE;
            std::mem::swap(before, &mut block);
        }
        (thread.waited, thread.waited_for_locks) = (all.clone(), of_locks.clone());
    }

    /// Calls `each` with what lies in the runs of the record's [`Slots`] at `slots`: where it lies in the
    /// block that was read, and in the file.
    fn runs(
        &self,
        record: &Block,
        slots: usize,
        size: u64,
        sums: &mut Sums,
        mut each: impl FnMut(&mut Sums, &Block, usize, u64),
    ) {
        let mut page = u64::from(record.u32(slots + offset_of!(Slots, run))) * PAGE;
        let mut block = Block::default();
        while self.run(page, sums, &mut block) {
            for at in (size as usize..block.0.len()).step_by(size as usize) {
                each(sums, &block, at, page + at as u64);
            }
            page = u64::from(block.u32(offset_of!(Run, previous))) * PAGE;
        }
    }

    /// Reads the run at `page`. Whether there is one, and it was not read before.
    fn run(&self, page: u64, sums: &mut Sums, block: &mut Block) -> bool {
        if page == 0 || !sums.seen.insert(page) {
            return false;
        }
        block.0.resize(PAGE as usize, 0);
        if self.fill(block, page).is_none() {
            return false;
        }
        let pages = u64::from(block.u32(offset_of!(Run, pages))).clamp(1, layout::RUN_PAGES);
        let own = (1..pages).take_while(|n| sums.seen.insert(page + n * PAGE)).count() as u64;
        if own > 0 {
            block.0.resize(((1 + own) * PAGE) as usize, 0);
            return self.fill(block, page).is_some();
        }
        true
    }

    fn finish_thread(
        &self,
        thread: &Thread,
        sums: &Sums,
        stacks: &Stacks,
        clock: &Clock,
        (going_on, ticks): (u64, u64),
    ) -> ThreadStats {
        let named = |tag: u64| {
            let lock = &sums.locks[sums.known(tag)? as usize];
            Some((lock.address, lock.kind))
        };
        let waits = named(thread.wait_tag).filter(|_| going_on != 0).map(|(address, kind)| WaitNow {
            address,
            kind,
            since_ns: clock.moment(thread.wait_began),
            stack: stack(stacks, thread.wait_stack),
        });
        let hold = |&(tag, since, acquired_at): &(u64, u64, u64)| {
            let (address, kind) = named(tag).filter(|(_, kind)| kind.is_acquired())?;
            let since_ns = (since != layout::HELD_UNTIMED).then(|| clock.moment(since));
            Some(HoldNow { address, kind, since_ns, acquired_at })
        };
        let of_locks = going_on * u64::from(waits.as_ref().is_some_and(|wait| wait.kind.is_acquired()));
        ThreadStats {
            record: thread.record,
            tid: thread.tid,
            lives: thread.lives,
            started_ns: clock.moment(thread.started),
            contended: thread.waited.count.saturating_add(going_on),
            wait_ns: clock.span(thread.waited.total.saturating_add(ticks * going_on)),
            lock_waits: thread.waited_for_locks.count.saturating_add(of_locks),
            lock_wait_ns: clock.span(thread.waited_for_locks.total.saturating_add(ticks * of_locks)),
            waits,
            ended: thread
                .ended
                .as_ref()
                .map(|(at, name)| EndedThread { name: name.clone(), at_ns: clock.moment(*at) }),
            holds: if thread.lives || thread.ended.is_some() {
                thread.holds.iter().filter_map(hold).collect()
            } else {
                Vec::new()
            },
        }
    }

    fn events(&self, record: &Block, sums: &mut Sums) {
        let page = u64::from(record.u32(offset_of!(Record, events))) * PAGE;
        if page == 0 || !sums.seen.insert(page) {
            return;
        }
        let Some(block) = self.block(page, PAGE) else { return };
        sums.events.resize_with(layout::COUNTERS, EventCount::default);
        for (number, sum) in sums.events.iter_mut().enumerate() {
            let count = block.u64(offset_of!(Events, counters) + 8 * number);
            sum.total = sum.total.saturating_add(count);
            sum.most = sum.most.max(count);
        }
        sums.durations.resize_with(layout::DURATIONS, Durations::default);
        for (number, sum) in sums.durations.iter_mut().enumerate() {
            let at = offset_of!(Events, durations) + number * size_of::<layout::Durations>();
            let field = |offset| block.u64(at + offset);
            if let Some(longest) = &mut sums.longest {
                longest.push(page + (at + offset_of!(layout::Durations, max)) as u64);
            }
            sum.total_ns = sum.total_ns.saturating_add(field(offset_of!(layout::Durations, total)));
            sum.max_ns = sum.max_ns.max(field(offset_of!(layout::Durations, max)));
            sum.buckets.resize(layout::BUCKETS, 0);
            for (n, bucket) in sum.buckets.iter_mut().enumerate() {
                let count = field(offset_of!(layout::Durations, buckets) + 8 * n);
                *bucket = bucket.saturating_add(count);
                sum.count = sum.count.saturating_add(count);
            }
        }
    }

    fn stacks(&self) -> Result<Vec<Arc<[u64]>>, Error> {
        let used = self.header.u32(offset_of!(Header, next_stack));
        let limit = self.header.u32(offset_of!(Header, stack_capacity)).min(1 << 20);
        let (table, count) =
            self.table(offset_of!(Header, stack_offset), used, limit, size_of::<StackSlot>())?;
        let stack = |index| {
            let at = index * size_of::<StackSlot>();
            let ready = table.u32(at + offset_of!(StackSlot, ready)) == 1;
            let len = table.u32(at + offset_of!(StackSlot, len)) as usize;
            let len = if ready { len.min(layout::MAX_FRAMES) } else { 0 };
            (0..len)
                .map(|frame| table.u64(at + offset_of!(StackSlot, frames) + 8 * frame))
                .collect::<Arc<_>>()
        };
        Ok((0..count).map(stack).collect())
    }

    fn arrays(&self) -> Result<Vec<ArrayStats>, Error> {
        if self.header.u32(offset_of!(Header, arrays)) == 0 {
            return Ok(Vec::new());
        }
        let capacity = self.header.u32(offset_of!(Header, array_capacity));
        let (table, count) =
            self.table(offset_of!(Header, array_offset), capacity, 1 << 16, size_of::<ArraySlot>())?;
        let array = |index| {
            let at = index * size_of::<ArraySlot>();
            let word = |offset| table.u32(at + offset);
            let end = || ArrayEnd {
                key: word(offset_of!(ArraySlot, key)) as i32,
                semaphores: word(offset_of!(ArraySlot, semaphores)),
                variant: word(offset_of!(ArraySlot, variant)),
                figures: std::array::from_fn(|n| table.u64(at + offset_of!(ArraySlot, figures) + 8 * n)),
            };
            let removed = word(offset_of!(ArraySlot, removed)) == 1;
            let id = word(offset_of!(ArraySlot, id));
            (id != 0).then(|| ArrayStats { id, end: removed.then(end) })
        };
        let mut arrays: Vec<ArrayStats> = (0..count).filter_map(array).collect();
        arrays.sort_by_key(|array| array.id);
        Ok(arrays)
    }

    fn modules(&self) -> Result<Vec<Module>, Error> {
        let used = self.header.u32(offset_of!(Header, next_module));
        let limit = self.header.u32(offset_of!(Header, module_capacity)).min(1 << 16);
        let (table, count) =
            self.table(offset_of!(Header, module_offset), used, limit, size_of::<ModuleSlot>())?;
        let module = |index| {
            let at = index * size_of::<ModuleSlot>();
            let len = table.u32(at + offset_of!(ModuleSlot, path_len));
            (table.u32(at + offset_of!(ModuleSlot, ready)) == 1).then(|| Module {
                start: table.u64(at + offset_of!(ModuleSlot, start)),
                end: table.u64(at + offset_of!(ModuleSlot, end)),
                offset: table.u64(at + offset_of!(ModuleSlot, offset)),
                path: table.text(at + offset_of!(ModuleSlot, path), 480, len),
            })
        };
        Ok((0..count).filter_map(module).collect())
    }
}

type Stacks = [Arc<[u64]>];

fn stack(stacks: &Stacks, number: u32) -> Arc<[u64]> {
    stacks.get(number as usize).cloned().unwrap_or_default()
}

/// `parts` are those of this lock, in order.
fn finish(lock: &Lock, parts: &[Part], taken: &Taken, stacks: &Stacks, clock: &Clock) -> LockStats {
    let mut stats = LockStats {
        address: lock.address,
        kind: lock.kind,
        created_at: stack(stacks, lock.stack),
        acquisitions: lock.sum.acquisitions,
        handover_ns: clock.span(in_ticks(lock.handover)),
        ..LockStats::default()
    };
    let (mut waits, mut waited_holds) = (Waits::default(), Waits::default());
    for same in parts.chunk_by(|a, b| (a.of, a.stack) == (b.of, b.stack)) {
        let mut sum = Waits::default();
        same.iter().for_each(|part| sum.add(&part.waits));
        let stack = stack(stacks, same[0].stack);
        match same[0].of {
            Of::Waits => {
                waits.add(&sum);
                stats.sites.push(Site {
                    stack,
                    contended: sum.count,
                    wait_ns: clock.span(sum.total),
                    wait_max_ns: clock.span(sum.max),
                    timeouts: sum.timeouts,
                    in_vain: sum.vain,
                });
            }
            Of::Holds(acquired_at) => {
                waited_holds.add(&sum);
                stats.holders.push(Holder {
                    acquired_at,
                    stack,
                    holds: sum.count,
                    hold_ns: clock.span(sum.total),
                    hold_max_ns: clock.span(sum.max),
                    caused_ns: clock.span(in_ticks(sum.charged)),
                });
            }
        }
    }
    stats.contended = waits.count;
    stats.timeouts = waits.timeouts;
    stats.wait_total_ns = clock.span(waits.total);
    stats.wait_max_ns = clock.span(waits.max);
    stats.wait_buckets = buckets(&taken.waits);
    stats.in_vain = waits.vain;
    if !lock.kind.is_acquired() {
        stats.acquisitions = stats.acquisitions.saturating_add(waits.count);
    }
    if lock.kind == LockKind::Condition {
        stats.signals = lock.sum.picked_total;
        [stats.broadcasts, stats.signals_with_mutex] = lock.sum.counts;
    } else if lock.kind.is_acquired() {
        holds(&mut stats, &lock.sum, &waited_holds, clock);
        stats.waited_hold_buckets = buckets(&taken.holds);
    }
    stats.sites.sort_by(|a, b| (b.wait_ns, b.contended, &a.stack).cmp(&(a.wait_ns, a.contended, &b.stack)));
    stats.holders.sort_by(|a, b| {
        let key = |holder: &Holder| (holder.caused_ns, holder.hold_ns, holder.holds);
        key(b).cmp(&key(a)).then_with(|| (a.acquired_at, &a.stack).cmp(&(b.acquired_at, &b.stack)))
    });
    stats
}

/// How long it was held, from what was timed: see SAMPLED.
fn holds(stats: &mut LockStats, sum: &Sum, waited: &Waits, clock: &Clock) {
    let of = sum.acquisitions.saturating_sub(sum.held).saturating_sub(waited.count);
    let later = of.saturating_sub(sum.first) as f64;
    let picked = sum.picked as f64;
    let mut estimate = sum.first_total + waited.total as f64;
    let mut error = 0.0;
    if sum.picked > 0 {
        let mean = sum.picked_total as f64 / picked;
        estimate += mean * later.max(picked);
        // Of a sample of one nothing is known but that it is one.
        let variance = if sum.picked > 1 {
            ((sum.picked_squares - picked * mean * mean) / (picked - 1.0)).max(0.0)
        } else {
            mean * mean
        };
        let left_out = (1.0 - picked / later.max(picked)).max(0.0);
        error = later * (variance / picked * left_out).sqrt();
    } else if later > 0.0 && sum.first > 0 {
        let mean = sum.first_total / sum.first as f64;
        estimate += mean * later;
        error = mean * later;
    } else if later > 0.0 {
        error = f64::INFINITY;
    }
    stats.hold_total_ns = clock.span(estimate as u64);
    stats.hold_max_ns = clock.span(sum.hold_max.max(waited.max));
    stats.hold = Hold {
        samples: sum.first.saturating_add(sum.picked),
        of,
        error_ns: error * clock.ns as f64 / clock.ticks.max(1) as f64,
    };
    stats.waited_holds = waited.count;
    stats.waited_hold_ns = clock.span(waited.total);
    stats.waited_holds_cut = waited.timeouts;
}

/// From the unit in which others' waits are charged.
fn in_ticks(charged: u64) -> u64 {
    charged.saturating_mul(1 << layout::WAITING_TICKS)
}

/// By powers of two; empty if there is nothing.
fn buckets(of_cells: &Buckets) -> Vec<u64> {
    let used = of_cells.iter().rposition(|count| *count != 0);
    let Some(used) = used else { return Vec::new() };
    let mut buckets = vec![0; layout::CELL_BUCKET_SHIFT];
    buckets.extend_from_slice(&of_cells[..=used]);
    buckets
}
