//! From a file to a [`Snapshot`].
//!
//! The file may be cut short, torn (its process was killed in the middle of anything, or runs on while we
//! read), or damaged. Nothing in it is trusted: every offset is checked against the file, every list is
//! bounded by the number of things that could be on it, and sums saturate. What does not make sense is left
//! out; only a header that contradicts itself is an error.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::layout::{
    self, ArraySlot, Entry, Events, Header, LockSlot, ModuleSlot, PAGE, Record, SiteCell, StackSlot,
};
use crate::snapshot::{
    ArrayEnd, ArrayStats, Durations, Error, EventCount, LockKind, LockStats, Module, Site, Snapshot,
};

/// Reads the statistics file at `path`. `now_ns` is `CLOCK_MONOTONIC` at the end of the run: the end of those
/// processes and waits that had none.
///
/// # Errors
/// If the file cannot be read, is none of ours, or has a header that contradicts itself.
pub fn read(path: &Path, now_ns: u64) -> Result<Snapshot, Error> {
    Reader::open(path)?.snapshot(now_ns)
}

/// Bytes copied from the file, read by field.
struct Block(Vec<u8>);

impl Block {
    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&self, at: usize) -> u64 {
        self.0
            .get(at..at + 8)
            .map_or(0, |b| u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
    }

    fn text(&self, at: usize, capacity: usize, len: u32) -> String {
        let bytes = self.0.get(at..at + capacity.min(len as usize)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// Ticks to nanoseconds.
struct Clock {
    start_ticks: u64,
    start_ns: u64,
    ticks: u64,
    ns: u64,
}

impl Clock {
    fn span(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * u128::from(self.ns) / u128::from(self.ticks.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn moment(&self, ticks: u64) -> u64 {
        match ticks.checked_sub(self.start_ticks) {
            Some(after) => self.start_ns.saturating_add(self.span(after)),
            None => self.start_ns.saturating_sub(self.span(self.start_ticks - ticks)),
        }
    }
}

/// Sums, in ticks.
#[derive(Default, Clone)]
struct Sum {
    acquisitions: u64,
    contended: u64,
    wait_total: u64,
    wait_max: u64,
    hold_total: u64,
    hold_max: u64,
}

impl Sum {
    fn add(&mut self, block: &Block, at: usize) {
        let field = |offset| block.u64(at + offset);
        let plus = |sum: &mut u64, offset| *sum = sum.saturating_add(field(offset));
        plus(&mut self.acquisitions, offset_of!(Entry, acquisitions));
        plus(&mut self.contended, offset_of!(Entry, contended));
        plus(&mut self.wait_total, offset_of!(Entry, wait_total));
        plus(&mut self.hold_total, offset_of!(Entry, hold_total));
        self.wait_max = self.wait_max.max(field(offset_of!(Entry, wait_max)));
        self.hold_max = self.hold_max.max(field(offset_of!(Entry, hold_max)));
    }

    fn is_empty(&self) -> bool {
        self.acquisitions == 0 && self.contended == 0
    }
}

/// A lock of the table, or an aggregate, as it is summed up.
#[derive(Default)]
struct Lock {
    /// The tag that its entries carry; 0 in an unused slot.
    tag: u64,
    address: u64,
    kind: LockKind,
    stack: u32,
    sum: Sum,
    /// By stack: waits, ticks.
    sites: HashMap<u32, (u64, u64)>,
}

impl Lock {
    fn add_site(&mut self, stack: u32, contended: u64, ticks: u64) {
        let site = self.sites.entry(stack).or_default();
        site.0 = site.0.saturating_add(contended);
        site.1 = site.1.saturating_add(ticks);
    }
}

/// A thread record that a thread held at the end.
struct Live {
    started: u64,
    last_seen: u64,
    wait_began: u64,
    wait_tag: u64,
    wait_stack: u32,
}

/// Everything under way to becoming a snapshot.
struct Sums {
    /// By index in the lock table; [`layout::OVERFLOW`] has its place there.
    locks: Vec<Lock>,
    recycled: Sum,
    live: Vec<Live>,
    /// Pages and sites already counted: a damaged file may name one twice.
    seen: HashSet<u64>,
    events: Vec<EventCount>,
    durations: Vec<Durations>,
    uncounted: [u64; layout::UNCOUNTED],
}

impl Sums {
    fn lock(&mut self, tag: u64) -> Option<&mut Lock> {
        let index = (tag >> 32) as u32 & layout::INDEX_MASK;
        self.locks.get_mut(index as usize).filter(|lock| lock.tag == tag && tag != 0)
    }
}

struct Reader {
    file: File,
    header: Block,
    size: u64,
}

impl Reader {
    fn open(path: &Path) -> Result<Reader, Error> {
        let file = File::open(path)?;
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
    fn block(&self, offset: u64, len: u64) -> Option<Block> {
        if offset.checked_add(len)? > self.size {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(Block(bytes))
    }

    /// The used part of a table: `used` slots of `slot` bytes, at most `limit` of them.
    fn table(&self, offset: usize, used: u32, limit: u32, slot: usize) -> Result<(Block, usize), Error> {
        let count = used.min(limit) as usize;
        let block = self
            .block(self.header.u64(offset), (count * slot) as u64)
            .ok_or(Error::Corrupt("a table lies outside of the file"))?;
        Ok((block, count))
    }

    fn snapshot(&self, now_ns: u64) -> Result<Snapshot, Error> {
        let header = &self.header;
        let clock = self.clock();
        let mut sums = self.lock_table()?;
        self.records(&mut sums);

        let end_ns = self.end_ns(&sums, &clock, now_ns);
        let mut thread_time_ns = clock.span(header.u64(offset_of!(Header, ended_ticks)));
        for live in std::mem::take(&mut sums.live) {
            let lived = end_ns.saturating_sub(clock.moment(live.started));
            thread_time_ns = thread_time_ns.saturating_add(lived);
            if live.wait_began != 0
                && let Some(lock) = sums.lock(live.wait_tag)
            {
                // Back into ticks, so that there is one way out of them.
                let ns = end_ns.saturating_sub(clock.moment(live.wait_began));
                let ticks = u128::from(ns) * u128::from(clock.ticks) / u128::from(clock.ns.max(1));
                let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
                lock.sum.contended = lock.sum.contended.saturating_add(1);
                lock.sum.wait_total = lock.sum.wait_total.saturating_add(ticks);
                lock.sum.wait_max = lock.sum.wait_max.max(ticks);
                if live.wait_stack != 0 {
                    lock.add_site(live.wait_stack, 1, ticks);
                }
            }
        }

        let stacks = self.stacks()?;
        let recycled = Lock { kind: LockKind::Recycled, sum: sums.recycled, ..Lock::default() };
        let mut locks: Vec<LockStats> = sums
            .locks
            .into_iter()
            .chain([recycled])
            .filter(|lock| !lock.sum.is_empty())
            .map(|lock| finish(lock, &stacks, &clock))
            .collect();
        locks.sort_by_key(|l| {
            (std::cmp::Reverse((l.wait_total_ns, l.contended, l.acquisitions, l.hold_total_ns)), l.address)
        });

        Ok(Snapshot {
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
            locks,
            modules: self.modules()?,
            dropped_locks: header.u64(offset_of!(Header, overflow_locks)),
            lost_events: header.u64(offset_of!(Header, lost_events)),
            events: sums.events,
            durations: sums.durations,
            uncounted: sums.uncounted,
            arrays: self.arrays()?,
            dropped_arrays: header.u32(offset_of!(Header, arrays_dropped)) != 0,
        })
    }

    fn clock(&self) -> Clock {
        let pair = |at: usize| (self.header.u64(at), self.header.u64(at + 8));
        let (start_ticks, start_ns) = pair(offset_of!(Header, start));
        let mut clock = Clock { start_ticks, start_ns, ticks: 1, ns: 1 };
        if self.header.u32(offset_of!(Header, clock)) == layout::CLOCK_COUNTER {
            let last = self.header.u32(offset_of!(Header, later_count)).wrapping_sub(1) % 2;
            let (ticks, ns) = pair(offset_of!(Header, later) + 16 * last as usize);
            if ticks > start_ticks && ns > start_ns {
                clock.ticks = ticks - start_ticks;
                clock.ns = ns - start_ns;
            }
        }
        clock
    }

    /// When the process ended: as it said itself; or at the end of the run, if it died waiting or there is
    /// nothing else to go by; or at its last sign of life.
    fn end_ns(&self, sums: &Sums, clock: &Clock, now_ns: u64) -> u64 {
        let said = self.header.u64(offset_of!(Header, end_ns));
        if said != 0 {
            return said.min(now_ns);
        }
        if sums.live.iter().any(|live| live.wait_began != 0) {
            return now_ns;
        }
        let seen = sums.live.iter().map(|live| live.last_seen.max(live.started)).max().unwrap_or(0);
        let later =
            (0..2).map(|i| self.header.u64(offset_of!(Header, later) + 16 * i + 8)).max().unwrap_or(0);
        clock.moment(seen).max(later).min(now_ns)
    }

    fn lock_table(&self) -> Result<Sums, Error> {
        let used = self.header.u32(offset_of!(Header, next_lock));
        let limit = self.header.u32(offset_of!(Header, lock_capacity)).min(layout::INDEX_MASK + 1);
        let (table, count) =
            self.table(offset_of!(Header, lock_offset), used, limit, size_of::<LockSlot>())?;
        let mut locks: Vec<Lock> = Vec::new();
        locks.resize_with(count.max(layout::FIRST_LOCK as usize), Lock::default);
        for (index, lock) in locks.iter_mut().enumerate().take(count).skip(layout::FIRST_LOCK as usize) {
            let at = index * size_of::<LockSlot>();
            let meta = table.u64(at + offset_of!(LockSlot, meta));
            if layout::meta_state(meta) != layout::LIVE && layout::meta_state(meta) != layout::DEAD {
                continue;
            }
            let address = table.u64(at + offset_of!(LockSlot, address));
            lock.tag = layout::tag(layout::word_of(index as u32, meta), address);
            lock.address = address;
            lock.kind = LockKind::from_byte(layout::meta_kind(meta));
            lock.stack = table.u32(at + offset_of!(LockSlot, stack));
        }
        let overflow = &mut locks[layout::OVERFLOW as usize];
        overflow.tag = layout::tag(layout::OVERFLOW, 0);
        overflow.kind = LockKind::Overflow;
        Ok(Sums {
            locks,
            recycled: Sum::default(),
            live: Vec::new(),
            seen: HashSet::new(),
            events: Vec::new(),
            durations: Vec::new(),
            uncounted: [0; layout::UNCOUNTED],
        })
    }

    fn records(&self, sums: &mut Sums) {
        let mut page = self.header.u32(offset_of!(Header, records));
        while page != 0 && sums.seen.insert(u64::from(page) * PAGE) {
            let Some(record) = self.block(u64::from(page) * PAGE, PAGE) else { return };
            self.record(&record, sums);
            page = record.u32(offset_of!(Record, next));
        }
    }

    fn record(&self, record: &Block, sums: &mut Sums) {
        sums.recycled.add(record, offset_of!(Record, recycled));
        sums.locks[layout::OVERFLOW as usize].sum.add(record, offset_of!(Record, overflow));
        self.chunks(record, sums);
        self.sites(record, sums);
        self.events(record, sums);
        if record.u32(offset_of!(Record, state)) == layout::HELD {
            let site = record.u64(offset_of!(Record, wait_site));
            let stack = if site == 0 { None } else { self.block(site, layout::SITE_SIZE) };
            sums.live.push(Live {
                started: record.u64(offset_of!(Record, started)),
                last_seen: record.u64(offset_of!(Record, last_seen)),
                wait_began: record.u64(offset_of!(Record, wait_began)),
                wait_tag: record.u64(offset_of!(Record, wait_tag)),
                wait_stack: stack.map_or(0, |cell| cell.u32(offset_of!(SiteCell, stack))),
            });
        }
    }

    fn chunks(&self, record: &Block, sums: &mut Sums) {
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
        for index in 0..len.min((directory.0.len() - at) / 4) {
            let page = u64::from(directory.u32(at + 4 * index)) * PAGE;
            if page == 0 || !sums.seen.insert(page) {
                continue;
            }
            let Some(chunk) = self.block(page, PAGE) else { continue };
            for at in (0..PAGE as usize).step_by(size_of::<Entry>()) {
                let tag = chunk.u64(at + offset_of!(Entry, tag));
                match sums.lock(tag) {
                    Some(lock) => lock.sum.add(&chunk, at),
                    None if tag != 0 => sums.recycled.add(&chunk, at),
                    None => {}
                }
            }
        }
    }

    fn sites(&self, record: &Block, sums: &mut Sums) {
        let heads = u64::from(record.u32(offset_of!(Record, site_heads))) * PAGE;
        if heads == 0 || !sums.seen.insert(heads) {
            return;
        }
        let Some(heads) = self.block(heads, PAGE) else { return };
        for head in 0..layout::SITE_HEADS {
            let mut at = u64::from(heads.u32(4 * head)) * layout::SITE_SIZE;
            // A site's offset is never that of a page that is counted otherwise, unless the file is damaged.
            while at != 0 && sums.seen.insert(at | 1) {
                let Some(cell) = self.block(at, layout::SITE_SIZE) else { break };
                let contended = cell.u64(offset_of!(SiteCell, contended));
                if contended != 0
                    && let Some(lock) = sums.lock(cell.u64(offset_of!(SiteCell, tag)))
                {
                    let stack = cell.u32(offset_of!(SiteCell, stack));
                    lock.add_site(stack, contended, cell.u64(offset_of!(SiteCell, wait_total)));
                }
                at = u64::from(cell.u32(offset_of!(SiteCell, next))) * layout::SITE_SIZE;
            }
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
        for (number, sum) in sums.uncounted.iter_mut().enumerate() {
            *sum = sum.saturating_add(block.u64(offset_of!(Events, uncounted) + 8 * number));
        }
        sums.durations.resize_with(layout::DURATIONS, Durations::default);
        for (number, sum) in sums.durations.iter_mut().enumerate() {
            let at = offset_of!(Events, durations) + number * size_of::<layout::Durations>();
            let field = |offset| block.u64(at + offset);
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

    fn stacks(&self) -> Result<Vec<Vec<u64>>, Error> {
        let used = self.header.u32(offset_of!(Header, next_stack));
        let limit = self.header.u32(offset_of!(Header, stack_capacity)).min(1 << 20);
        let (table, count) =
            self.table(offset_of!(Header, stack_offset), used, limit, size_of::<StackSlot>())?;
        let stack = |index| {
            let at = index * size_of::<StackSlot>();
            let ready = table.u32(at + offset_of!(StackSlot, ready)) == 1;
            let len = table.u32(at + offset_of!(StackSlot, len)) as usize;
            let len = if ready { len.min(layout::MAX_FRAMES) } else { 0 };
            (0..len).map(|frame| table.u64(at + offset_of!(StackSlot, frames) + 8 * frame)).collect()
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

fn finish(lock: Lock, stacks: &[Vec<u64>], clock: &Clock) -> LockStats {
    let mut sites: Vec<Site> = lock
        .sites
        .into_iter()
        .map(|(stack, (contended, ticks))| Site {
            stack: stacks.get(stack as usize).cloned().unwrap_or_default(),
            contended,
            wait_ns: clock.span(ticks),
        })
        .collect();
    sites.sort_by(|a, b| (b.wait_ns, b.contended, &a.stack).cmp(&(a.wait_ns, a.contended, &b.stack)));
    LockStats {
        address: lock.address,
        kind: lock.kind,
        created_at: stacks.get(lock.stack as usize).cloned().unwrap_or_default(),
        acquisitions: lock.sum.acquisitions,
        contended: lock.sum.contended,
        wait_total_ns: clock.span(lock.sum.wait_total),
        wait_max_ns: clock.span(lock.sum.wait_max),
        hold_total_ns: clock.span(lock.sum.hold_total),
        hold_max_ns: clock.span(lock.sum.hold_max),
        sites,
    }
}
