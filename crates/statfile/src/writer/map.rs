//! The mapped file: where its parts are, and memory for them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::sys;
use crate::layout::{
    self, ArraySlot, Cell, CheckSlot, Chunk, EdgeSlot, Events, FURTHER, Header, LockSlot, LogSlot,
    ModuleSlot, PAGE, PLACES, PairSlot, Record, Run, Site, Spread, StackSlot, Stretch, Tracer, WINDOW,
};

/// How large a file is and what fits in it.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Logical sizes to try, largest first; the file is sparse.
    pub sizes: &'static [u64],
    /// Locks with figures of their own, 3 at least; at most 2^20.
    pub locks: u32,
    /// Different stacks.
    pub stacks: u32,
    /// Mappings of files.
    pub modules: u32,
    /// Semaphore arrays; a power of two.
    pub arrays: u32,
    /// Slots of destroyed locks are left alone until this many slots are in use.
    pub recycle_after: u32,
    /// Use `CLOCK_MONOTONIC` even where the processor has a better clock.
    pub plain_clock: bool,
    /// Check the order in which locks are taken, and for misuse, instead of taking figures.
    pub check: Option<CheckRoom>,
    /// Under check: find signals by threads that have never had the mutex of the waits, too.
    pub lone_signals: bool,
    /// Write down all that threads do with locks, in stretches, in this number of chunks of
    /// [`layout::TRACED`] events; 0: do not.
    pub trace: u32,
}

/// What fits in the file of a process under check. All but the limit are powers of two, [`layout::WINDOW`] at
/// least.
#[derive(Debug, Clone, Copy)]
pub struct CheckRoom {
    /// Slots of the first level of the table of seen orders of two locks.
    pub edges: u32,
    /// Orders of two locks that are remembered: any number.
    pub limit: u32,
    /// Slots of the first level of the table of orders of two classes, and places of misuse.
    pub pairs: u32,
    /// Events that the command has not read yet.
    pub log: u32,
}

impl CheckRoom {
    /// What a checked program gets.
    pub const DEFAULT: CheckRoom = CheckRoom { edges: 1 << 18, limit: 1 << 20, pairs: 1 << 15, log: 1 << 18 };
}

impl Options {
    /// What a measured program gets.
    pub const DEFAULT: Options = Options {
        sizes: &[4 << 30, 1 << 30, 256 << 20, 128 << 20],
        locks: 1 << layout::INDEX_BITS,
        stacks: 1 << 16,
        modules: 4096,
        arrays: 8192,
        // As many chunks per thread as the small directory can hold would be 60,000; a fourth of it keeps
        // what a thread that touches all of them needs at 1 MiB.
        recycle_after: 1 << 14,
        plain_clock: false,
        check: None,
        lone_signals: false,
        trace: 0,
    };
}

/// Where the regions lie.
struct Regions {
    locks: u64,
    addresses: u64,
    buckets: u32,
    stacks: u64,
    stack_index: u64,
    stack_index_size: u32,
    modules: u64,
    arrays: u64,
    edges: u64,
    pairs: u64,
    log: u64,
    arena: u64,
}

impl Regions {
    fn of(options: &Options) -> Regions {
        let pages = |bytes: u64| bytes.next_multiple_of(PAGE);
        let buckets = (options.locks / 2).max(1).next_power_of_two();
        let stack_index_size = (options.stacks * 2).next_power_of_two();
        let locks = layout::LOCKS_OFFSET;
        let slot = if options.check.is_some() { size_of::<CheckSlot>() } else { size_of::<LockSlot>() };
        let addresses = locks + pages(u64::from(options.locks) * slot as u64);
        let stacks = addresses + pages(u64::from(buckets) * 16);
        let stack_index = stacks + pages(u64::from(options.stacks) * size_of::<StackSlot>() as u64);
        let modules = stack_index + pages(u64::from(stack_index_size) * 4);
        let arrays = modules + pages(u64::from(options.modules) * size_of::<ModuleSlot>() as u64);
        let edges = arrays + pages(u64::from(options.arrays) * size_of::<ArraySlot>() as u64);
        let room = options.check.unwrap_or(CheckRoom { edges: 0, limit: 0, pairs: 0, log: 0 });
        let pairs = edges + pages(u64::from(room.edges) * size_of::<EdgeSlot>() as u64);
        let log = pairs + pages(u64::from(room.pairs) * size_of::<PairSlot>() as u64);
        let arena = log + pages(u64::from(room.log) * size_of::<LogSlot>() as u64);
        Regions {
            locks,
            addresses,
            buckets,
            stacks,
            stack_index,
            stack_index_size,
            modules,
            arrays,
            edges,
            pairs,
            log,
            arena,
        }
    }
}

/// The mapped file. As long as anybody has a `Map`, the mapping is there: it is taken down only in a forked
/// child, two forks later.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Map {
    base: *mut u8,
}

/// Where address space is limited, a file takes at most one part in so many; and of the reserve for later at
/// most one in so many is kept when the limit comes.
const LIMITED_SHARE: u64 = 4;
const KEPT_SHARE: u64 = 16;

/// How much more of the arena is opened at a time.
const ARENA_STEP: u64 = 16 << 20;

impl Map {
    /// # Safety
    /// `base` is what [`Map::base`] gave, of a mapping that is still there.
    pub(super) const unsafe fn from_base(base: *mut u8) -> Map {
        Map { base }
    }

    pub(super) const fn base(self) -> *mut u8 {
        self.base
    }

    /// Maps `file`, still empty, in the largest size that the system admits.
    pub(super) fn create(file: &sys::Fd, options: &Options) -> Result<Map, core::ffi::c_int> {
        let regions = Regions::of(options);
        if regions.arena > PAGE * layout::BACKED_PAGES as u64 {
            return Err(libc::EINVAL);
        }
        // Of a program's limited address space most is for the program.
        let address_space = sys::limit(libc::RLIMIT_AS);
        let share =
            if address_space == libc::RLIM_INFINITY { u64::MAX } else { address_space / LIMITED_SHARE };
        let file_size = sys::limit(libc::RLIMIT_FSIZE);
        let limit = file_size.min(share);
        let mut error = if share < file_size { libc::ENOMEM } else { libc::EFBIG };
        for size in options.sizes.iter().copied().filter(|size| *size <= limit && *size > regions.arena) {
            match file.set_len(size).and_then(|()| file.map(size as usize)) {
                Ok(base) => {
                    let map = Map { base };
                    // SAFETY: the range is that of the mapping just made.
                    let usable = unsafe {
                        sys::allow_access(base, regions.arena as usize)
                            && sys::back(base, regions.locks as usize)
                    };
                    if !usable {
                        error = libc::ENOSPC;
                        // SAFETY: nobody else has seen it.
                        unsafe { sys::unmap(base, size as usize) };
                        continue;
                    }
                    map.describe(size, &regions, options);
                    return Ok(map);
                }
                Err(e) => error = e,
            }
        }
        Err(error)
    }

    fn describe(self, size: u64, regions: &Regions, options: &Options) {
        let header = self.header();
        header.size.store(size, Relaxed);
        header.lock_offset.store(regions.locks, Relaxed);
        header.address_offset.store(regions.addresses, Relaxed);
        header.stack_offset.store(regions.stacks, Relaxed);
        header.stack_index_offset.store(regions.stack_index, Relaxed);
        header.module_offset.store(regions.modules, Relaxed);
        header.array_offset.store(regions.arrays, Relaxed);
        header.arena_offset.store(regions.arena, Relaxed);
        header.lock_capacity.store(options.locks, Relaxed);
        header.address_buckets.store(regions.buckets, Relaxed);
        header.stack_capacity.store(options.stacks, Relaxed);
        header.stack_index_size.store(regions.stack_index_size, Relaxed);
        header.module_capacity.store(options.modules, Relaxed);
        header.array_capacity.store(options.arrays, Relaxed);
        header.next_lock.store(layout::FIRST_LOCK, Relaxed);
        header.next_stack.store(1, Relaxed);
        header.trace_room.store(options.trace, Relaxed);
        if let Some(room) = options.check {
            header.edge_offset.store(regions.edges, Relaxed);
            header.pair_offset.store(regions.pairs, Relaxed);
            header.log_offset.store(regions.log, Relaxed);
            header.edge_capacity.store(room.edges, Relaxed);
            header.order_limit.store(room.limit, Relaxed);
            header.pair_capacity.store(room.pairs, Relaxed);
            header.log_capacity.store(room.log, Relaxed);
            header.next_serial.store(1, Relaxed);
            header.first_serial.store(1, Relaxed);
            header.check.store(1, Relaxed);
        }
        header.arena_next.store(regions.arena, Relaxed);
        header.arena_open.store(regions.arena, Relaxed);
        // SAFETY: page 0 is ours alone until `ready`, and large enough.
        unsafe {
            self.base.cast::<[u8; 8]>().write(layout::MAGIC);
            self.base.add(layout::VERSION_OFFSET as usize).cast::<u32>().write(layout::VERSION);
        }
    }

    /// The typed thing at `offset`.
    ///
    /// # Safety
    /// A `T` lies there, within the mapping and aligned; `T` consists of atomics and [`layout::Bytes`], so
    /// that any bytes are a value and shared references are sound.
    unsafe fn at<T>(self, offset: u64) -> &'static T {
        // SAFETY: the caller vouches for place and type; the mapping outlives every use (see the type).
        unsafe { &*self.base.add(offset as usize).cast::<T>() }
    }

    pub(super) fn header(self) -> &'static Header {
        // SAFETY: it lies there in every file.
        unsafe { self.at(layout::HEADER_OFFSET) }
    }

    /// The slot of lock `index`, if there is one.
    pub(super) fn lock(self, index: u32) -> Option<&'static LockSlot> {
        let header = self.header();
        let used = header.next_lock.load(Acquire).min(header.lock_capacity.load(Relaxed));
        if index < layout::FIRST_LOCK || index >= used {
            return None;
        }
        let offset = header.lock_offset.load(Relaxed) + u64::from(index) * size_of::<LockSlot>() as u64;
        // SAFETY: within the lock table.
        Some(unsafe { self.at(offset) })
    }

    /// The slot of lock `index` of a process under check, if there is one.
    #[inline(always)]
    pub(super) fn check_lock(self, index: u32) -> Option<&'static CheckSlot> {
        let header = self.header();
        if index < layout::FIRST_LOCK || index >= header.next_lock.load(Acquire) {
            return None;
        }
        // SAFETY: within the lock table, of which `next_lock` stays inside, whole pages of slots.
        Some(unsafe { self.at(header.lock_offset.load(Relaxed) + layout::check_slot(index)) })
    }

    /// The slots among which that of an edge with this hash is. `None` if there is no memory for them.
    #[inline(always)]
    pub(super) fn edges(self, hash: u64) -> Option<&'static [EdgeSlot; WINDOW]> {
        let header = self.header();
        self.window(header.edge_offset.load(Relaxed), header.edge_capacity.load(Relaxed), hash)
    }

    /// The same for a pair.
    pub(super) fn pairs(self, hash: u64) -> Option<&'static [PairSlot; WINDOW]> {
        let header = self.header();
        self.window(header.pair_offset.load(Relaxed), header.pair_capacity.load(Relaxed), hash)
    }

    #[inline(always)]
    fn window<T>(self, start: u64, capacity: u32, hash: u64) -> Option<&'static [T; WINDOW]> {
        let first = hash as u32 & (capacity - 1) & !(WINDOW as u32 - 1);
        let offset = start + u64::from(first) * size_of::<T>() as u64;
        // SAFETY: within the table, whose capacity is a power of two; a window lies in one page.
        self.back_page(offset).then(|| unsafe { self.at(offset) })
    }

    /// The slots among which that of an edge or a pair with this hash is, in a level beyond the first, whose
    /// directory is that of `levels`, of a table whose first level has `capacity` slots: LEVELS in
    /// [`layout`]. `None` if nobody has made them, or, with `make`, if there is no memory for them.
    pub(super) fn further<T>(
        self,
        (levels, level): (&[AtomicU64; FURTHER], usize),
        capacity: u32,
        hash: u64,
        make: bool,
    ) -> Option<&'static [T; WINDOW]> {
        let slots = layout::level_capacity(capacity, level);
        // Other bits than those of the first level, whose full windows have much the same ones.
        let slot = (hash >> 20) & (slots - 1) & !(WINDOW as u64 - 1);
        let pages = slots.div_ceil(layout::SLOTS_A_PAGE);
        let mut directory = levels[level].load(Acquire);
        if directory == 0 {
            let fresh = if make { self.allocate((4 * pages).div_ceil(PAGE))? } else { return None };
            directory = match levels[level].compare_exchange(0, fresh, AcqRel, Acquire) {
                Ok(_) => fresh,
                Err(now) => now,
            };
        }
        // SAFETY: as many words were allocated there.
        let entry = &unsafe { self.words(directory, pages as usize) }[(slot / layout::SLOTS_A_PAGE) as usize];
        let mut page = entry.load(Acquire);
        if page == 0 {
            let fresh = if make { (self.allocate(1)? / PAGE) as u32 } else { return None };
            page = match entry.compare_exchange(0, fresh, AcqRel, Acquire) {
                Ok(_) => fresh,
                Err(now) => now,
            };
        }
        let within = slot % layout::SLOTS_A_PAGE * size_of::<T>() as u64;
        // SAFETY: a page of slots, in which a window lies.
        Some(unsafe { self.at(u64::from(page) * PAGE + within) })
    }

    /// The slot of the log for event `number`. `None` if there is no memory for it.
    pub(super) fn log(self, number: u64) -> Option<&'static LogSlot> {
        let header = self.header();
        let place = number & u64::from(header.log_capacity.load(Relaxed) - 1);
        let offset = header.log_offset.load(Relaxed) + place * size_of::<LogSlot>() as u64;
        // SAFETY: within the log; a slot lies in one page.
        self.back_page(offset).then(|| unsafe { self.at(offset) })
    }

    /// The bucket for `address`. `None` if there is no memory for it.
    pub(super) fn bucket(self, address: u64) -> Option<&'static [AtomicU32; 4]> {
        let header = self.header();
        let bucket = layout::bucket_of(address, header.address_buckets.load(Relaxed))?;
        let offset = header.address_offset.load(Relaxed) + bucket * 16;
        // SAFETY: within the buckets, whose number is a power of two.
        self.back_page(offset).then(|| unsafe { self.at(offset) })
    }

    /// The places for the locks in the granule around `address`, of a process under check. `None` if there is
    /// no memory for them.
    pub(super) fn places(self, address: u64) -> Option<&'static [AtomicU32; PLACES]> {
        let header = self.header();
        let number = layout::places_of(address, header.address_buckets.load(Relaxed));
        let offset = header.address_offset.load(Relaxed) + number * (4 * PLACES) as u64;
        // SAFETY: within the buckets, which are whole pages.
        self.back_page(offset).then(|| unsafe { self.at(offset) })
    }

    /// Stack number `number`, if it was given out.
    pub(super) fn stack(self, number: u32) -> Option<&'static StackSlot> {
        let header = self.header();
        let used = header.next_stack.load(Acquire).min(header.stack_capacity.load(Relaxed));
        if number == 0 || number >= used {
            return None;
        }
        let offset = header.stack_offset.load(Relaxed) + u64::from(number) * size_of::<StackSlot>() as u64;
        // SAFETY: within the stack table.
        Some(unsafe { self.at(offset) })
    }

    /// The frames of stack `number`.
    ///
    /// # Safety
    /// It was given out.
    #[inline(always)]
    pub(super) unsafe fn frames(self, number: u32) -> &'static [AtomicU64; layout::MAX_FRAMES] {
        let offset =
            self.header().stack_offset.load(Relaxed) + u64::from(number) * size_of::<StackSlot>() as u64;
        // SAFETY: the caller vouches for it.
        &unsafe { self.at::<StackSlot>(offset) }.frames
    }

    /// The word of the stack index at `position`, which wraps round. `None` if there is no memory for it.
    pub(super) fn stack_index(self, position: u64) -> Option<&'static AtomicU32> {
        let header = self.header();
        let position = position & u64::from(header.stack_index_size.load(Relaxed) - 1);
        let offset = header.stack_index_offset.load(Relaxed) + position * 4;
        // SAFETY: within the index, whose size is a power of two.
        self.back_page(offset).then(|| unsafe { self.at(offset) })
    }

    /// Module number `number`, if it is below the capacity.
    pub(super) fn module(self, number: u32) -> Option<&'static ModuleSlot> {
        let header = self.header();
        if number >= header.module_capacity.load(Relaxed) {
            return None;
        }
        let offset = header.module_offset.load(Relaxed) + u64::from(number) * size_of::<ModuleSlot>() as u64;
        // SAFETY: within the modules.
        Some(unsafe { self.at(offset) })
    }

    /// Sees to it that module slot `number` has memory.
    pub(super) fn back_module(self, number: u32) -> bool {
        let offset = u64::from(number) * size_of::<ModuleSlot>() as u64;
        self.back_page(self.header().module_offset.load(Relaxed) + offset)
    }

    /// The slot for a semaphore array at `position`, which wraps round. `None` if there is no memory for it.
    pub(super) fn array(self, position: u32) -> Option<&'static ArraySlot> {
        let header = self.header();
        let position = position & (header.array_capacity.load(Relaxed) - 1);
        let offset = header.array_offset.load(Relaxed) + u64::from(position) * size_of::<ArraySlot>() as u64;
        // SAFETY: within the arrays, whose number is a power of two; a slot lies in one page.
        self.back_page(offset).then(|| unsafe { self.at(offset) })
    }

    /// The record at `page`.
    ///
    /// # Safety
    /// There is one.
    pub(super) unsafe fn record(self, page: u32) -> &'static Record {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(page) * PAGE) }
    }

    /// The events at `page`.
    ///
    /// # Safety
    /// There are some.
    pub(super) unsafe fn events(self, page: u32) -> &'static Events {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(page) * PAGE) }
    }

    /// Cell `index`.
    ///
    /// # Safety
    /// There is one.
    pub(super) unsafe fn cell(self, index: u32) -> &'static Cell {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(index) * layout::CELL_SIZE) }
    }

    /// Block `index`, which is a site.
    ///
    /// # Safety
    /// There is one.
    pub(super) unsafe fn site(self, index: u32) -> &'static Site {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(index) * layout::BLOCK_SIZE) }
    }

    /// Block `index`, which is not.
    ///
    /// # Safety
    /// There is one.
    pub(super) unsafe fn spread(self, index: u32) -> &'static Spread {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(index) * layout::BLOCK_SIZE) }
    }

    /// The tracer at `page`.
    ///
    /// # Safety
    /// There is one.
    pub(super) unsafe fn tracer(self, page: u32) -> &'static Tracer {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(page) * PAGE) }
    }

    /// The chunk at `page`.
    ///
    /// # Safety
    /// There is one.
    pub(super) unsafe fn chunk(self, page: u32) -> &'static Chunk {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(page) * PAGE) }
    }

    /// The stretches at `page`.
    ///
    /// # Safety
    /// There are some.
    pub(super) unsafe fn stretches(self, page: u32) -> &'static [Stretch; layout::STRETCHES as usize] {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(page) * PAGE) }
    }

    /// The head of the run at `page`.
    ///
    /// # Safety
    /// There is one.
    pub(super) unsafe fn run(self, page: u32) -> &'static Run {
        // SAFETY: the caller vouches for it.
        unsafe { self.at(u64::from(page) * PAGE) }
    }

    /// A run of words in the arena.
    ///
    /// # Safety
    /// `len` words at `offset` were allocated to be words.
    pub(super) unsafe fn words(self, offset: u64, len: usize) -> &'static [AtomicU32] {
        // SAFETY: the caller vouches for the place; any bytes are atomics.
        unsafe { core::slice::from_raw_parts(self.base.add(offset as usize).cast(), len) }
    }

    /// Gives memory to a range, if there is any: asking in vain is slow, so it is done once.
    ///
    /// # Safety
    /// The range is whole pages of the file that are open.
    unsafe fn back(self, offset: u64, len: u64) -> bool {
        let exhausted = &self.header().exhausted;
        if exhausted.load(Relaxed) != 0 {
            return false;
        }
        // SAFETY: the caller vouches for the range.
        let backed = unsafe { sys::back(self.base.add(offset as usize), len as usize) };
        if !backed {
            exhausted.store(1, Relaxed);
        }
        backed
    }

    /// Sees to it that the page of the fixed regions that `offset` is in has memory.
    #[inline(always)]
    fn back_page(self, offset: u64) -> bool {
        let page = offset / PAGE;
        let (word, bit) = (&self.header().backed[page as usize / 64], 1u64 << (page % 64));
        word.load(Relaxed) & bit != 0 || self.back_page_now(page)
    }

    #[cold]
    #[inline(never)]
    fn back_page_now(self, page: u64) -> bool {
        let (word, bit) = (&self.header().backed[page as usize / 64], 1u64 << (page % 64));
        // SAFETY: callers pass offsets within the fixed regions, which are open.
        let backed = unsafe { self.back(page * PAGE, PAGE) };
        if backed {
            word.fetch_or(bit, Relaxed);
        }
        backed
    }

    /// Takes the next number from `next`, below `capacity`, and sees to it that slot `number` of `size` bytes
    /// at `offset` has memory. `backed` is how far that is known.
    pub(super) fn take_number(
        self,
        next: &AtomicU32,
        capacity: u32,
        backed: &AtomicU32,
        offset: u64,
        size: usize,
    ) -> Option<u32> {
        // Memory first, number second: so a number below `next` always has memory.
        let step = (4 * PAGE as usize / size) as u32;
        let number = next.fetch_update(AcqRel, Relaxed, |number| {
            if number >= capacity {
                return None;
            }
            if number >= backed.load(Acquire) {
                let end = (number + step).min(capacity);
                let start = (offset + u64::from(number) * size as u64) & !(PAGE - 1);
                let stop = (offset + u64::from(end) * size as u64).next_multiple_of(PAGE);
                // SAFETY: within a fixed region, which is open and whole pages long.
                if !unsafe { self.back(start, stop - start) } {
                    return None;
                }
                backed.fetch_max(end, AcqRel);
            }
            Some(number + 1)
        });
        number.ok()
    }

    /// Unmaps most of the address space that was reserved for later: the program has limited its own to
    /// `limit` bytes. What finds no room afterwards is not recorded.
    pub(super) fn give_back(self, limit: u64) {
        let header = self.header();
        let keep = limit / KEPT_SHARE;
        let size = header.size.load(Acquire);
        // All of the rest is ours then, and nobody else's.
        let next = header.arena_next.swap(size, AcqRel);
        let kept = next.saturating_add(keep.next_multiple_of(PAGE));
        if kept >= size {
            header.arena_next.store(next, Release);
            return;
        }
        header.size.store(kept, Release);
        header.arena_next.store(next, Release);
        // SAFETY: nothing was given out of it, and nothing will be: who has read the old size and not
        // allocated yet gets what begins at `next`, and would have to ask for more than `keep` bytes to reach
        // it.
        unsafe { sys::unmap(self.base.add(kept as usize), (size - kept) as usize) };
    }

    /// Zeroed pages from the arena: their offset. `None` if the file or the memory is used up.
    pub(super) fn allocate(self, pages: u64) -> Option<u64> {
        let header = self.header();
        let (size, len) = (header.size.load(Relaxed), pages * PAGE);
        let take = |next: u64| next.checked_add(len).filter(|end| *end <= size);
        let offset = header.arena_next.fetch_update(AcqRel, Relaxed, take).ok()?;
        // Not open from the start, so that a program that locks its memory does not lock all of ours. Each
        // thread opens what it needs itself before it touches it: nobody relies on another's `arena_open`
        // being ahead of the deed.
        if offset + len > header.arena_open.load(Acquire) {
            let start = header.arena_offset.load(Relaxed);
            let open = (offset + len - start).next_multiple_of(ARENA_STEP).min(size - start);
            // SAFETY: within the mapping.
            if !unsafe { sys::allow_access(self.base.add(start as usize), open as usize) } {
                return None;
            }
            fetch_max(&header.arena_open, start + open);
        }
        // SAFETY: within the mapping, and open.
        unsafe { self.back(offset, len) }.then_some(offset)
    }
}

fn fetch_max(word: &AtomicU64, value: u64) {
    word.fetch_max(value, AcqRel);
}
