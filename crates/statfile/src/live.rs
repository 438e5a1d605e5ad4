//! A statistics file looked at while its process runs: who waits for which lock, and who has it, now.
//!
//! [`crate::read`] copies everything, which takes milliseconds; this looks at a few words of a shared
//! mapping, and can be done hundreds of times a second. As there, nothing in the file is trusted: what lies
//! outside of it reads as zero.

mod check;

use std::fs::File;
use std::io;
use std::mem::{align_of, offset_of, size_of};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicU32, AtomicU64};

pub use check::{Described, Log, Logged, LoggedLock, Unseen};

use crate::LockKind;
use crate::check::Mode;
use crate::clock::Clock;
use crate::layout::{self, CHUNK_ENTRIES, Entry, HELD, Header, LockSlot, PAGE, Record};
use crate::snapshot::Error;

/// A file, mapped.
#[derive(Debug)]
pub struct Live {
    file: File,
    base: *const u8,
    len: u64,
    /// Where the records are, the oldest first.
    records: Vec<u64>,
    /// Whether the mapping can be written to: of a process under check, which is told some words.
    writable: bool,
}

// SAFETY: the mapping is shared memory that is accessed by atomic loads and stores only.
unsafe impl Send for Live {}

/// A thread that counts in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveThread {
    /// Its record.
    pub record: usize,
    /// Its id, in the process's own namespace; 0 if unknown.
    pub tid: u32,
    /// The wait that it is in.
    pub wait: Option<LiveWait>,
}

/// A thread that ended while it held locks: see [`Live::hold`] and [`Live::holds`] of its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRecord {
    /// Its record.
    pub record: usize,
    /// Its id, in the process's own namespace; a living thread may have the same one by now.
    pub tid: u32,
    /// Its name at its end.
    pub name: String,
    /// When it ended, in ticks: see [`Live::moment`].
    pub at: u64,
}

/// A wait that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveWait {
    /// The lock: see [`Live::lock`].
    pub tag: u64,
    /// When it began, in ticks: see [`Live::moment`].
    pub began: u64,
}

/// A lock, as long as nobody else's has taken its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveLock {
    /// [`crate::LockStats::address`]; 0 for locks counted together.
    pub address: u64,
    /// What it is.
    pub kind: LockKind,
}

/// A hold that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveHold {
    /// The lock: see [`Live::lock`].
    pub tag: u64,
    /// When it began, in ticks; `None` if that was not looked at.
    pub began: Option<u64>,
    /// The return address of the call that acquired it; 0 if unknown. Under check see [`Live::hold_stack`].
    pub acquired_at: u64,
    /// Under check: how it is held,
    pub mode: Mode,
    /// whether it was taken by a try,
    pub tried: bool,
    /// how often,
    pub depth: u32,
    /// and the number of this hold among the thread's.
    pub sequence: u32,
    /// The number of the stack that took it; 0 if unknown.
    stack: u32,
    /// Where the entry is, and what it said: see [`Live::still_holds`].
    entry: u64,
    start: u64,
    acquisitions: u64,
}

impl Live {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// If it cannot be opened or mapped, is none of ours, or is not finished: then [`Error::NotAStatFile`].
    pub fn open(path: &Path) -> Result<Live, Error> {
        let file = File::open(path)?;
        let checked = Self::map(file, libc::PROT_READ)?;
        if !checked.is_checked() {
            return Ok(checked);
        }
        // Not what somebody put in its place: the directory may be everybody's.
        match File::options().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path) {
            Ok(file) => Self::map(file, libc::PROT_READ | libc::PROT_WRITE),
            Err(_) => Ok(checked),
        }
    }

    fn map(file: File, access: libc::c_int) -> Result<Live, Error> {
        let len = file.metadata()?.len().min(1 << 40);
        if len < layout::HEADER_OFFSET + layout::HEADER_SIZE {
            return Err(Error::NotAStatFile);
        }
        let size = usize::try_from(len).map_err(|_| Error::Corrupt("sizes"))?;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                access,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::Io(io::Error::last_os_error()));
        }
        let writable = access & libc::PROT_WRITE != 0;
        let live = Live { file, base: base.cast(), len, records: Vec::new(), writable };
        if live.u64(0) != u64::from_ne_bytes(layout::MAGIC) {
            return Err(Error::NotAStatFile);
        }
        match live.u32(layout::VERSION_OFFSET) {
            layout::VERSION => {}
            // The magic is there first.
            0 => return Err(Error::NotAStatFile),
            other => return Err(Error::Version(other)),
        }
        if live.header32(offset_of!(Header, ready)) != 1 {
            return Err(Error::NotAStatFile);
        }
        Ok(live)
    }

    /// Whether the file still has its length: of one that somebody has cut short a look would be a `SIGBUS`.
    /// To be asked before each round of looks; processes of ours never shorten a file that is ready.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() >= self.len)
    }

    /// The process, in its own namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.header32(offset_of!(Header, pid))
    }

    /// `CLOCK_MONOTONIC` when recording began, in nanoseconds.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.header64(offset_of!(Header, start) + 8)
    }

    /// `CLOCK_MONOTONIC` at the end of the process in nanoseconds, if it has had an orderly one.
    #[must_use]
    pub fn ended_ns(&self) -> Option<u64> {
        Some(self.header64(offset_of!(Header, end_ns))).filter(|&ns| ns != 0)
    }

    /// How many threads the process has started with the C library's functions.
    #[must_use]
    pub fn started(&self) -> u32 {
        self.header32(offset_of!(Header, started))
    }

    /// Fills `threads` with those that count in the file now. No moment is the same for all of them.
    pub fn look(&mut self, threads: &mut Vec<LiveThread>) {
        threads.clear();
        self.find_records();
        for (record, &at) in self.records.iter().enumerate() {
            let field = |offset: usize| at + offset as u64;
            if self.u32(field(offset_of!(Record, state))) != HELD {
                continue;
            }
            let tid = self.u32(field(offset_of!(Record, tid)));
            threads.push(LiveThread { record, tid, wait: self.wait(record) });
        }
    }

    /// The threads that ended while they held locks, as far as the process remembers them. As of the last
    /// [`Live::look`].
    #[must_use]
    pub fn ended(&self) -> Vec<EndedRecord> {
        if self.header32(offset_of!(Header, ended_count)) == 0 {
            return Vec::new();
        }
        let pages = (0..layout::ENDED_RECORDS).map(|n| self.header32(offset_of!(Header, ended) + 4 * n));
        pages
            .filter(|&page| page != 0)
            .filter_map(|page| {
                let at = u64::from(page) * PAGE;
                let field = |offset: usize| at + offset as u64;
                let record = self.records.iter().position(|&record| record == at)?;
                let half = |n: usize| self.u64(field(offset_of!(Record, name) + 8 * n));
                let thread = EndedRecord {
                    record,
                    tid: self.u32(field(offset_of!(Record, tid))),
                    name: layout::name_of([half(0), half(1)]),
                    at: self.u64(field(offset_of!(Record, ended))),
                };
                (self.u32(field(offset_of!(Record, state))) == layout::ENDED).then_some(thread)
            })
            .collect()
    }

    /// The holds by ended threads of what keeps a waiter for `tag` waiting, with the thread of each. A hold
    /// is over if one of `living` has the lock, unless both read.
    #[must_use]
    pub fn ended_holders(
        &self,
        ended: &[EndedRecord],
        living: &[LiveThread],
        tag: u64,
    ) -> Vec<(EndedRecord, LiveHold)> {
        if ended.is_empty() {
            return Vec::new();
        }
        let tags = self.held_as(tag);
        let reads = |tag: u64| {
            self.lock(tag)
                .is_none_or(|lock| matches!(lock.kind, LockKind::RwReaders | LockKind::SharedRwReaders))
        };
        let is_held = |tag: &u64| living.iter().any(|thread| self.hold(thread.record, *tag).is_some());
        let held: Vec<u64> = tags.into_iter().flatten().filter(is_held).collect();
        let hold = |thread: &EndedRecord, tag: u64| {
            let is_over = held.iter().any(|&held| !reads(held) || !reads(tag));
            let hold = self.hold(thread.record, tag).filter(|_| self.is_checked() || !is_over)?;
            self.is_had(thread.record, &hold).then(|| (thread.clone(), hold))
        };
        tags.into_iter().flatten().flat_map(|tag| ended.iter().filter_map(move |of| hold(of, tag))).collect()
    }

    /// The wait that the thread of this record is in.
    #[must_use]
    pub fn wait(&self, record: usize) -> Option<LiveWait> {
        let &at = self.records.get(record)?;
        let field = |offset: usize| self.u64(at + offset as u64);
        let began = field(offset_of!(Record, wait_began));
        let tag = field(offset_of!(Record, wait_tag));
        // The tag is that of this wait only if the wait went on all the while.
        let shown = began != 0 && field(offset_of!(Record, wait_began)) == began;
        shown.then_some(LiveWait { tag, began })
    }

    /// The list grows at its head only.
    fn find_records(&mut self) {
        let newest = self.records.last().copied().unwrap_or(0);
        let mut at = u64::from(self.header32(offset_of!(Header, records))) * PAGE;
        let mut found = Vec::new();
        // A list that does not lead to a record that we know is damaged: no longer than there are pages.
        while at != 0 && at != newest && (found.len() as u64) < self.len / PAGE {
            found.push(at);
            at = u64::from(self.u32(at + offset_of!(Record, next) as u64)) * PAGE;
        }
        self.records.extend(found.into_iter().rev());
    }

    /// The lock with this tag. `None` if another has taken its place.
    #[must_use]
    pub fn lock(&self, tag: u64) -> Option<LiveLock> {
        let index = (tag >> 32) as u32 & layout::INDEX_MASK;
        if index == layout::OVERFLOW {
            return Some(LiveLock { address: 0, kind: LockKind::Overflow });
        }
        let at = self.slot(index)?;
        let meta = self.u64(at + offset_of!(LockSlot, meta) as u64);
        let address = self.u64(at + offset_of!(LockSlot, address) as u64);
        let lives = matches!(layout::meta_state(meta), layout::LIVE | layout::DEAD);
        let same = layout::tag(layout::word_of(index, meta), address) == tag;
        (lives && same).then(|| LiveLock { address, kind: LockKind::from_byte(layout::meta_kind(meta)) })
    }

    fn slot(&self, index: u32) -> Option<u64> {
        let used = self
            .header32(offset_of!(Header, next_lock))
            .min(self.header32(offset_of!(Header, lock_capacity)));
        (layout::FIRST_LOCK..used).contains(&index).then(|| {
            let place = if self.is_checked() {
                layout::check_slot(index)
            } else {
                u64::from(index) * size_of::<LockSlot>() as u64
            };
            self.header64(offset_of!(Header, lock_offset)).wrapping_add(place)
        })
    }

    /// The tags under which those are counted that keep a waiter for `tag` waiting: the lock's own; of a
    /// readers-writer lock that a writer waits for, its readers' as well; of one that a reader waits for, its
    /// writers'.
    #[must_use]
    pub fn held_as(&self, tag: u64) -> [Option<u64>; 2] {
        let Some(lock) = self.lock(tag) else { return [None, None] };
        if self.is_checked() {
            return [(lock.kind != LockKind::Condition).then_some(tag), None];
        }
        let beyond = LockKind::WRITERS as u64;
        match lock.kind {
            LockKind::Overflow | LockKind::Recycled => [None, None],
            LockKind::RwReaders | LockKind::SharedRwReaders => {
                [self.tag_at(lock.address.wrapping_add(beyond)), None]
            }
            LockKind::RwWriters | LockKind::SharedRwWriters => {
                [Some(tag), self.tag_at(lock.address.wrapping_sub(beyond))]
            }
            _ => [Some(tag), None],
        }
    }

    /// The condition variable that the word at `address` is part of, if there is one. Threads that wait for
    /// it are in a wait that the file shows; another thread that sleeps at such a word is inside a call that
    /// signals, destroys or broadcasts, and waits for threads that it has woken before.
    #[must_use]
    pub fn condition_around(&self, address: u64) -> Option<u64> {
        let aligned = address & !7;
        let (size, align) = (size_of::<libc::pthread_cond_t>() as u64, align_of::<libc::pthread_cond_t>());
        let is_condition = |at: &u64| {
            let lock = self.tag_at(*at).and_then(|tag| self.lock(tag));
            lock.is_some_and(|lock| lock.kind == LockKind::Condition)
        };
        (0..size).step_by(align).map(|offset| aligned.saturating_sub(offset)).find(is_condition)
    }

    /// The tag of the live lock at `address`, if its bucket has not forgotten it.
    fn tag_at(&self, address: u64) -> Option<u64> {
        let buckets = self.header32(offset_of!(Header, address_buckets));
        let bucket = layout::bucket_of(address, buckets)?;
        let at = self.header64(offset_of!(Header, address_offset)).wrapping_add(bucket * 16);
        (0..4).find_map(|place| {
            let index = self.u32(at.wrapping_add(4 * place));
            let slot = self.slot(index)?;
            let meta = self.u64(slot + offset_of!(LockSlot, meta) as u64);
            let same = self.u64(slot + offset_of!(LockSlot, address) as u64) == address;
            let lives = layout::meta_state(meta) == layout::LIVE;
            (same && lives).then(|| layout::tag(layout::word_of(index, meta), address))
        })
    }

    /// The hold of the lock `tag` by the thread of this record.
    #[must_use]
    pub fn hold(&self, record: usize, tag: u64) -> Option<LiveHold> {
        let &record = self.records.get(record)?;
        if self.is_checked() {
            return self.checked_holds(record).into_iter().find(|hold| hold.tag == tag);
        }
        let index = (tag >> 32) as u32 & layout::INDEX_MASK;
        let chunk = u64::from(self.u32(self.directory(record, index / CHUNK_ENTRIES)?)) * PAGE;
        if chunk == 0 {
            return None;
        }
        self.hold_in(chunk + u64::from(index % CHUNK_ENTRIES) * size_of::<Entry>() as u64)
            .filter(|hold| hold.tag == tag)
    }

    /// Where the directory of the record at `record` has the page of chunk `chunk`.
    fn directory(&self, record: u64, chunk: u32) -> Option<u64> {
        let len = self.u32(record + offset_of!(Record, directory_len) as u64);
        if chunk >= len {
            return None;
        }
        let base = if len as usize <= layout::SMALL_DIRECTORY {
            record + offset_of!(Record, small_directory) as u64
        } else {
            self.u64(record + offset_of!(Record, directory_offset) as u64)
        };
        base.checked_add(4 * u64::from(chunk))
    }

    fn hold_in(&self, entry: u64) -> Option<LiveHold> {
        let field = |offset: usize| self.u64(entry.saturating_add(offset as u64));
        let start = field(offset_of!(Entry, hold_start));
        if start == 0 {
            return None;
        }
        Some(LiveHold {
            tag: field(offset_of!(Entry, tag)),
            began: (start != layout::HELD_UNTIMED).then_some(start),
            acquired_at: field(offset_of!(Entry, site)),
            mode: Mode::Exclusive,
            tried: false,
            depth: 1,
            sequence: 0,
            stack: 0,
            entry,
            start,
            acquisitions: field(offset_of!(Entry, acquisitions)),
        })
    }

    /// Whether this hold goes on.
    #[must_use]
    pub fn still_holds(&self, hold: &LiveHold) -> bool {
        let now = if self.is_checked() { self.checked_hold(hold.entry) } else { self.hold_in(hold.entry) };
        now.as_ref() == Some(hold)
    }

    /// How many pages [`Live::holds`] looks at, at most.
    #[must_use]
    pub fn chunks(&self) -> usize {
        if self.is_checked() {
            return 1;
        }
        self.header32(offset_of!(Header, next_lock)).div_ceil(CHUNK_ENTRIES) as usize
    }

    /// All that the thread of this record holds. Takes time in proportion to the locks that it ever used; under
    /// check to those that it holds.
    #[must_use]
    pub fn holds(&self, record: usize) -> Vec<LiveHold> {
        let Some(&record) = self.records.get(record) else { return Vec::new() };
        if self.is_checked() {
            return self.checked_holds(record);
        }
        let used = self.header32(offset_of!(Header, next_lock)).min(layout::INDEX_MASK + 1);
        let mut holds = Vec::new();
        for chunk in 0..used.div_ceil(CHUNK_ENTRIES) {
            let Some(place) = self.directory(record, chunk) else { break };
            let page = u64::from(self.u32(place)) * PAGE;
            if page != 0 {
                let entries = (0..PAGE).step_by(size_of::<Entry>());
                holds.extend(entries.filter_map(|at| self.hold_in(page + at)));
            }
        }
        holds.retain(|hold| self.lock(hold.tag).is_some());
        holds
    }

    /// Ticks on `CLOCK_MONOTONIC`, in nanoseconds. What comes after the last pair of the two clocks that the
    /// process has left, by this much, is wrong by as much as their rate is.
    #[must_use]
    pub fn moment(&self, ticks: u64) -> u64 {
        Clock::of(|at| self.header32(at), |at| self.header64(at)).moment(ticks)
    }

    fn header32(&self, offset: usize) -> u32 {
        self.u32(layout::HEADER_OFFSET + offset as u64)
    }

    fn header64(&self, offset: usize) -> u64 {
        self.u64(layout::HEADER_OFFSET + offset as u64)
    }

    fn u32(&self, at: u64) -> u32 {
        if !at.is_multiple_of(4) || at.checked_add(4).is_none_or(|end| end > self.len) {
            return 0;
        }
        // SAFETY: inside of the mapping, aligned, and written by atomic stores only. Acquire: what the writer
        // stored before is there.
        unsafe { (*self.base.add(at as usize).cast::<AtomicU32>()).load(Acquire) }
    }

    fn u64(&self, at: u64) -> u64 {
        if !at.is_multiple_of(8) || at.checked_add(8).is_none_or(|end| end > self.len) {
            return 0;
        }
        // SAFETY: as above.
        unsafe { (*self.base.add(at as usize).cast::<AtomicU64>()).load(Acquire) }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length; no reference into it outlives a call.
        unsafe { libc::munmap(self.base.cast_mut().cast(), self.len as usize) };
    }
}
