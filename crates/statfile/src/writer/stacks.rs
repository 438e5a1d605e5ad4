//! Stacks: unwound once per place, recognised from then on.
//!
//! A thread that is at a place again finds its [`Site`] by the return address and the stack pointer. That the
//! callers further out are the same as well is then read off the stack: each site remembers where the
//! unwinder found the outer return addresses, and they must all be there still. Reading is safe, frame by
//! frame from the inside: up to the first difference the stack *is* the one that was unwound, so the next
//! return address lies where it lay then. Sites lie in chains, the last one used first, so that a place that
//! is reached in several ways is unwound once for each.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::map::Map;
use super::{CallSite, modules, sys};
use crate::layout::{
    self, BLOCK_SIZE, CELL_SIZE, Cell, Chains, MAX_FRAMES, PAGE, Record, Run, Site, Slots, StackSlot,
};

/// How many cells one record has. Waits that would need more are counted by place only, in the last [`KEPT`].
const MAX_CELLS: u32 = 1 << 20;
/// Cells for places only.
const KEPT: u32 = 1 << 12;
/// How many sites one record remembers,
const MAX_SITES: u32 = 1 << 14;
/// and how many of one place, or of those that share its chain. To walk a stack by rules takes less than to
/// compare it with many.
const LONG_CHAIN: usize = if cfg!(target_arch = "x86_64") { 2 } else { 32 };
const HALF_PAGE: u64 = PAGE / 2;

/// Whether unwinding takes no lock: libgcc then asks `_dl_find_object`, not `dl_iterate_phdr`, whose lock
/// another thread may hold while it waits for a lock that we hold.
pub(super) fn unwinder_is_lock_free() -> bool {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: returns a C string constant such as "2.36".
        let version = unsafe { core::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        let mut parts = version.to_bytes().split(|byte| *byte == b'.').map(|digits| {
            digits.iter().take_while(|b| b.is_ascii_digit()).fold(0u32, |n, b| n * 10 + u32::from(b - b'0'))
        });
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (2, 35)
    }
    #[cfg(not(target_env = "gnu"))]
    false
}

/// The cell for waits for the lock with `tag` at this place; one that stands for several locks or, without
/// memory, for all places where there is no room for more.
pub(super) fn wait_cell(
    map: Map,
    record: &'static Record,
    tag: u64,
    site: CallSite,
    unwind: bool,
) -> &'static Cell {
    let overflow = layout::tag(layout::OVERFLOW, 0);
    let stack = stack(map, record, site, unwind);
    find(map, record, (tag, stack, layout::OF_WAITS))
        .or_else(|| find(map, record, (overflow, stack, layout::OF_WAITS)))
        .unwrap_or(&record.others)
}

/// The cell for holds of this lock that end at this place and began with the call that returns to `acquired`;
/// without room for it, one for all places. `None` if there is no room for that.
pub(super) fn hold_cell(
    map: Map,
    record: &Record,
    tag: u64,
    acquired: u64,
    site: CallSite,
    unwind: bool,
) -> Option<&'static Cell> {
    // A stack of this one frame, which no stack pointer belongs to.
    let acquired = stack(map, record, CallSite { pc: acquired as usize, sp: 0 }, false);
    let stack = stack(map, record, site, unwind);
    find(map, record, (tag, stack, 1 + acquired)).or_else(|| find(map, record, (tag, 0, 1 + acquired)))
}

/// What a cell is about: the lock's tag, the stack, and [`Cell::holds`].
type About = (u64, u32, u32);

fn about(cell: &Cell) -> About {
    (cell.tag.load(Relaxed), cell.stack.load(Relaxed), cell.holds.load(Relaxed))
}

/// The cell for this, with room for how long what it counts next takes. `None` if there is no room for it.
fn find(map: Map, record: &Record, what: About) -> Option<&'static Cell> {
    let heads = heads::<Cell>(map, record)?;
    let first = &heads[place(what, heads.len().ilog2())];
    let known = chain::<Cell>(map, first).find(|(_, cell)| about(cell) == what);
    let Some((_, cell)) = known else { return new_cell(map, record, what) };
    if cell.count.load(Relaxed) >= layout::EARLY
        && cell.spread.load(Relaxed) == 0
        && let Some(offset) = new_slot(map, &record.blocks, BLOCK_SIZE)
    {
        // SAFETY: just allocated.
        let spread = unsafe { map.spread((offset / BLOCK_SIZE) as u32) };
        spread.holds.store(what.2, Relaxed);
        // Release: a reader of the running process finds it only when it is whole.
        spread.tag.store(what.0, Release);
        cell.spread.store((offset / BLOCK_SIZE) as u32, Relaxed);
    }
    Some(cell)
}

/// What lies in [`Chains`] of a record, and only its thread changes.
trait Linked: Sized + 'static {
    fn chains(record: &Record) -> &Chains;
    /// The one with this index.
    ///
    /// # Safety
    /// There is one.
    unsafe fn at(map: Map, index: u32) -> &'static Self;
    fn next(&self) -> &AtomicU32;
    /// In which of this power of two of chains it is.
    fn place(&self, bits: u32) -> usize;
}

impl Linked for Cell {
    fn chains(record: &Record) -> &Chains {
        &record.cell_chains
    }
    unsafe fn at(map: Map, index: u32) -> &'static Cell {
        // SAFETY: the caller vouches for it.
        unsafe { map.cell(index) }
    }
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
    fn place(&self, bits: u32) -> usize {
        place(about(self), bits)
    }
}

impl Linked for Site {
    fn chains(record: &Record) -> &Chains {
        &record.site_chains
    }
    unsafe fn at(map: Map, index: u32) -> &'static Site {
        // SAFETY: the caller vouches for it.
        unsafe { map.site(index) }
    }
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
    fn place(&self, bits: u32) -> usize {
        site_place(self.pc.load(Relaxed), self.sp.load(Relaxed), bits)
    }
}

/// Those in the chain from here on, with their indices.
fn chain<T: Linked>(map: Map, head: &AtomicU32) -> impl Iterator<Item = (u32, &'static T)> {
    let mut next = head.load(Relaxed);
    let chain = core::iter::from_fn(move || {
        let index = next;
        // SAFETY: chains hold indices of their own sort.
        let linked = (index != 0).then(|| unsafe { T::at(map, index) })?;
        next = linked.next().load(Relaxed);
        Some((index, linked))
    });
    // Bounded, should a child forked behind our back have written to its parent's chain.
    chain.take(MAX_CELLS as usize)
}

/// The heads of such chains of the record, a power of two of them. The first ones of both sorts share a page.
fn heads<T: Linked>(map: Map, record: &Record) -> Option<&'static [AtomicU32]> {
    if T::chains(record).heads.load(Relaxed) == 0 {
        let half = (map.allocate(1)? / HALF_PAGE) as u32;
        for (chains, half) in [(&record.cell_chains, half), (&record.site_chains, half + 1)] {
            chains.bits.store(layout::FIRST_HEADS_BITS, Relaxed);
            chains.heads.store(half, Relaxed);
        }
    }
    Some(heads_of(map, T::chains(record)))
}

#[inline(always)]
fn heads_of(map: Map, chains: &Chains) -> &'static [AtomicU32] {
    let offset = u64::from(chains.heads.load(Relaxed)) * HALF_PAGE;
    // SAFETY: there are as many as `bits` says, once there are any.
    unsafe { map.words(offset, 1 << chains.bits.load(Relaxed)) }
}

/// Puts a new one first in its chain.
fn link<T: Linked>(map: Map, record: &Record, index: u32, new: &T) {
    let chains = T::chains(record);
    let count = chains.count.load(Relaxed) + 1;
    chains.count.store(count, Relaxed);
    if count > 1 << chains.bits.load(Relaxed) {
        more_heads::<T>(map, chains);
    }
    let heads = heads_of(map, chains);
    put_first(&heads[new.place(heads.len().ilog2())], index, new);
}

fn put_first<T: Linked>(head: &AtomicU32, index: u32, linked: &T) {
    linked.next().store(head.load(Relaxed), Relaxed);
    head.store(index, Relaxed);
}

/// Four times as many heads, over which the chains are spread anew. Without memory all stays as it is.
fn more_heads<T: Linked>(map: Map, chains: &Chains) {
    const MORE: u32 = 2;
    let bits = chains.bits.load(Relaxed) + MORE;
    let Some(offset) = map.allocate((4u64 << bits).div_ceil(PAGE)) else { return };
    // SAFETY: just allocated.
    let new = unsafe { map.words(offset, 1 << bits) };
    for head in heads_of(map, chains) {
        for (index, linked) in chain::<T>(map, head) {
            put_first(&new[linked.place(bits)], index, linked);
        }
    }
    chains.heads.store((offset / HALF_PAGE) as u32, Relaxed);
    chains.bits.store(bits, Relaxed);
}

/// Where in as many chains as this power of two such a cell is.
fn place((tag, stack, holds): About, bits: u32) -> usize {
    let place = u64::from(stack) << 32 | u64::from(holds);
    let key = tag ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93);
    // The address, of which the low half is in the tag, grows with the index in the upper half.
    let key = key ^ key >> 32;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
}

fn new_cell(map: Map, record: &Record, what: About) -> Option<&'static Cell> {
    // Some are kept for places that stand for several locks.
    let limit = if what.0 == layout::tag(layout::OVERFLOW, 0) { MAX_CELLS } else { MAX_CELLS - KEPT };
    if record.cell_chains.count.load(Relaxed) >= limit {
        return None;
    }
    let index = (new_slot(map, &record.cells, CELL_SIZE)? / CELL_SIZE) as u32;
    // SAFETY: just allocated.
    let cell = unsafe { map.cell(index) };
    let (tag, stack, holds) = what;
    cell.tag.store(tag, Relaxed);
    cell.stack.store(stack, Relaxed);
    cell.holds.store(holds, Relaxed);
    link(map, record, index, cell);
    Some(cell)
}

/// Offset of a new cell or block, all zero.
fn new_slot(map: Map, slots: &Slots, size: u64) -> Option<u64> {
    let mut offset = slots.next.load(Relaxed);
    if offset == slots.end.load(Relaxed) {
        let before = slots.run.load(Relaxed);
        let many = (before != 0).then_some(layout::RUN_PAGES);
        let allocate = |pages: u64| Some((map.allocate(pages)?, pages));
        let (start, pages) = many.and_then(allocate).or_else(|| allocate(1))?;
        // SAFETY: just allocated to be a run.
        let run: &Run = unsafe { map.run((start / PAGE) as u32) };
        run.previous.store(before, Relaxed);
        run.pages.store(pages as u32, Relaxed);
        // Release: a reader of the running process finds what comes before this run.
        slots.run.store((start / PAGE) as u32, Release);
        slots.end.store(start + pages * PAGE, Relaxed);
        offset = start + size;
    }
    slots.next.store(offset + size, Relaxed);
    Some(offset)
}

/// As [`stack`], if the site is the first of its chain: at once.
///
/// # Safety
/// The calling thread is at this site.
#[inline(always)]
pub(super) unsafe fn known(map: Map, record: &Record, site: CallSite) -> Option<u32> {
    let chains = &record.site_chains;
    if chains.heads.load(Relaxed) == 0 {
        return None;
    }
    let place = site_place(site.pc as u64, site.sp as u64, chains.bits.load(Relaxed));
    let index = heads_of(map, chains)[place].load(Relaxed);
    // SAFETY: chains of sites hold indices of sites; block 0 is page 0, whose first words are no site's.
    let known = unsafe { map.site(index) };
    if index == 0 || known.pc.load(Relaxed) != site.pc as u64 || known.sp.load(Relaxed) != site.sp as u64 {
        return None;
    }
    let number = known.stack.load(Relaxed);
    let words = known.words_len.load(Relaxed) as usize;
    if number == 0 || words == 0 {
        return None;
    }
    // SAFETY: a site has the number of a stack that was given out.
    let frames = unsafe { map.frames(number) };
    for n in 0..words.min(MAX_FRAMES - 1) {
        let place = site.sp as *const u64;
        // SAFETY: part of this thread's own stack: see the head of the file.
        let now = unsafe { place.add(usize::from(known.words[n].load(Relaxed))).read_volatile() };
        if now != frames[n + 1].load(Relaxed) {
            return None;
        }
    }
    Some(number)
}

/// The number of the stack of the calling thread, which is at this place; 0 if it is unknown.
pub(super) fn stack(map: Map, record: &Record, site: CallSite, unwind: bool) -> u32 {
    if site.pc == 0 {
        return 0;
    }
    if let Some(stack) = remembered(map, record, site) {
        return stack;
    }
    let _errno = sys::Errno::keep();
    let mut trace = Trace::start(site);
    if unwind {
        trace.unwind();
    }
    let stack = intern(map, trace.frames());
    trace.remember(map, record, stack);
    stack
}

/// The stack of this site, if the thread was there before; it is the first of its chain then.
fn remembered(map: Map, record: &Record, site: CallSite) -> Option<u32> {
    let heads = heads::<Site>(map, record)?;
    let head = &heads[site_place(site.pc as u64, site.sp as u64, heads.len().ilog2())];
    let mut before = head;
    for (index, known) in chain::<Site>(map, head) {
        if known.pc.load(Relaxed) == site.pc as u64 && still_there(map, known, site) {
            if !ptr::eq(before, head) {
                before.store(known.next.load(Relaxed), Relaxed);
                put_first(head, index, known);
            }
            return Some(known.stack.load(Relaxed));
        }
        before = &known.next;
    }
    None
}

/// In which of this power of two of chains such a site is.
#[inline(always)]
fn site_place(pc: u64, sp: u64, bits: u32) -> usize {
    let hash = (pc ^ sp.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - bits)) as usize
}

/// A site for a place that is not among those of the record: a new one, while there may be more; else the one
/// of its chain, or of the next one that has any, that was not used for longest. It is in no chain.
fn site_for(map: Map, record: &Record, site: CallSite) -> Option<(u32, &'static Site)> {
    let heads = heads::<Site>(map, record)?;
    let first = site_place(site.pc as u64, site.sp as u64, heads.len().ilog2());
    let is_long = chain::<Site>(map, &heads[first]).nth(LONG_CHAIN - 1).is_some();
    if !is_long && record.site_chains.count.load(Relaxed) < MAX_SITES {
        // SAFETY: just allocated.
        let new = |offset| ((offset / BLOCK_SIZE) as u32, unsafe { map.site((offset / BLOCK_SIZE) as u32) });
        if let Some(offset) = new_slot(map, &record.blocks, BLOCK_SIZE) {
            return Some(new(offset));
        }
    }
    let (head, last) = (0..heads.len())
        .map(|step| &heads[(first + step) % heads.len()])
        .find_map(|head| Some((head, chain::<Site>(map, head).last()?)))?;
    let link = chain::<Site>(map, head).map(|(_, site)| &site.next).find(|next| next.load(Relaxed) == last.0);
    link.unwrap_or(head).store(0, Relaxed);
    record.site_chains.count.store(record.site_chains.count.load(Relaxed).saturating_sub(1), Relaxed);
    Some(last)
}

/// Whether the thread is at this site, by the same callers.
fn still_there(map: Map, known: &Site, site: CallSite) -> bool {
    if known.sp.load(Relaxed) != site.sp as u64 {
        return false;
    }
    let Some(stack) = map.stack(known.stack.load(Relaxed)) else { return false };
    let words = known.words_len.load(Relaxed) as usize;
    if words == 0 {
        // Return addresses that are signed are not found: such stacks are not recognised.
        return stack.len.load(Relaxed) <= 1;
    }
    let outer = stack.frames[1..].iter().zip(&known.words).take(words);
    outer.into_iter().all(|(frame, word)| {
        let place = site.sp as *const u64;
        // SAFETY: part of this thread's own stack: see the head of the file. Volatile, as it belongs to
        // frames of functions that the compiler knows nothing of.
        let now = unsafe { place.add(usize::from(word.load(Relaxed))).read_volatile() };
        now == frame.load(Relaxed)
    })
}

/// A stack being taken.
struct Trace {
    site: CallSite,
    frames: [u64; MAX_FRAMES],
    len: usize,
    words: [u16; MAX_FRAMES],
    words_len: usize,
    /// Where the frame inside of the next one ends.
    inner: usize,
    /// Whether the site, whose stack is not known, is still to come.
    within: bool,
}

impl Trace {
    fn start(site: CallSite) -> Trace {
        let mut frames = [0; MAX_FRAMES];
        frames[0] = site.pc as u64;
        let (words, within) = ([0; MAX_FRAMES], site.sp == 0);
        Trace { site, frames, len: 1, words, words_len: 0, inner: site.sp, within }
    }

    fn frames(&self) -> &[u64] {
        &self.frames[..self.len]
    }

    /// Adds the frames outside of the one that holds `pc`.
    fn unwind(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            if super::unwind::walk(|pc, frame_address| self.add(pc, frame_address)) {
                return;
            }
            *self = Trace::start(self.site);
        }
        // SAFETY: `frame` takes a `Trace`, and keeps to `_Unwind_Backtrace`'s contract.
        unsafe { _Unwind_Backtrace(frame, (&raw mut *self).cast()) };
    }

    fn add(&mut self, pc: u64, frame_address: usize) -> bool {
        // Our own frames lie below the caller's stack pointer; the caller's own is frames[0]. It is given
        // either at the return address or just above it.
        if frame_address <= self.site.sp + size_of::<usize>() {
            return true;
        }
        // Where that is not known they end at the call.
        if self.within {
            self.within = pc != self.frames[0];
            return true;
        }
        if pc == 0 || self.len == MAX_FRAMES {
            return false;
        }
        self.frames[self.len] = pc;
        if self.words_len + 1 == self.len && self.site.sp != 0 && self.site.sp.is_multiple_of(8) {
            self.note_place(pc, frame_address);
        }
        self.inner = frame_address;
        self.len += 1;
        true
    }

    fn note_word(&mut self, place: usize) {
        if let Ok(word) = u16::try_from((place - self.site.sp) / 8) {
            self.words[self.words_len] = word;
            self.words_len += 1;
        }
    }

    /// Notes where the return address lies: on x86-64 just below the frame address; on aarch64 in the frame,
    /// which begins where the inner one ended, and in most functions at its beginning.
    fn note_place(&mut self, pc: u64, frame_address: usize) {
        /// As far into a frame as it is looked for, in words.
        const FAR: usize = 128;
        let places = if cfg!(target_arch = "x86_64") {
            frame_address - 8..frame_address
        } else {
            self.inner..frame_address.min(self.inner.saturating_add(FAR * 8))
        };
        let mut places = places.step_by(8);
        // SAFETY: in the stack of this thread, between two frames that the unwinder walked.
        let Some(place) = places.find(|&place| unsafe { (place as *const u64).read_volatile() } == pc) else {
            return;
        };
        self.note_word(place);
    }

    /// What `still_there` needs.
    fn remember(&self, map: Map, record: &Record, stack: u32) {
        let Some((index, site)) = site_for(map, record, self.site) else { return };
        site.pc.store(self.site.pc as u64, Relaxed);
        site.sp.store(self.site.sp as u64, Relaxed);
        site.stack.store(stack, Relaxed);
        for (place, word) in site.words.iter().zip(&self.words[..self.words_len]) {
            place.store(*word, Relaxed);
        }
        site.words_len.store(self.words_len as u32, Relaxed);
        link(map, record, index, site);
    }
}

unsafe extern "C" fn frame(context: *mut c_void, trace: *mut c_void) -> c_int {
    const CONTINUE: c_int = 0;
    const END_OF_STACK: c_int = 5;
    // SAFETY: the `Trace` passed in `unwind`, which is not used meanwhile.
    let trace = unsafe { &mut *trace.cast::<Trace>() };
    // SAFETY: the context is the unwinder's own.
    let (pc, frame_address) = unsafe { (_Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    if trace.add(pc as u64, frame_address) { CONTINUE } else { END_OF_STACK }
}

#[link(name = "gcc_s")]
unsafe extern "C" {
    pub(super) fn _Unwind_Backtrace(
        trace: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    pub(super) fn _Unwind_GetIP(context: *mut c_void) -> usize;
    pub(super) fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// The number of the stack with these frames; 0 if there is no room for it.
pub(super) fn intern(map: Map, frames: &[u64]) -> u32 {
    const PROBES: u64 = 64;
    let hash = frames.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, frame| {
        (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    let mut ours = 0;
    for probe in 0..PROBES {
        let Some(place) = map.stack_index((hash >> 20).wrapping_add(probe)) else { return 0 };
        let mut number = place.load(Acquire);
        if number == 0 {
            if ours == 0 {
                ours = new_stack(map, frames, hash);
                if ours == 0 {
                    return 0;
                }
            }
            // Release: the index names a stack only once it is ready (STACKS).
            match place.compare_exchange(0, ours, AcqRel, Acquire) {
                Ok(_) => return ours,
                Err(other) => number = other,
            }
        }
        if map.stack(number).is_some_and(|stack| is(stack, frames, hash)) {
            return number;
        }
    }
    0
}

fn is(stack: &StackSlot, frames: &[u64], hash: u64) -> bool {
    stack.hash.load(Relaxed) == hash
        && stack.len.load(Relaxed) as usize == frames.len()
        && stack.frames.iter().zip(frames).all(|(a, b)| a.load(Relaxed) == *b)
}

fn new_stack(map: Map, frames: &[u64], hash: u64) -> u32 {
    let header = map.header();
    let number = map.take_number(
        &header.next_stack,
        header.stack_capacity.load(Relaxed),
        &header.stacks_backed,
        header.stack_offset.load(Relaxed),
        size_of::<StackSlot>(),
    );
    let Some((number, stack)) = number.and_then(|number| Some((number, map.stack(number)?))) else {
        return 0;
    };
    stack.hash.store(hash, Relaxed);
    stack.len.store(frames.len() as u32, Relaxed);
    for (place, frame) in stack.frames.iter().zip(frames) {
        place.store(*frame, Relaxed);
        modules::want(map, *frame);
    }
    stack.ready.store(1, Release);
    number
}

/// In a forked child: its parent's stacks, under the same numbers.
pub(super) fn carry_over(from: Map, to: Map) {
    let (old, new) = (from.header(), to.header());
    for number in 1..old.next_stack.load(Acquire).min(new.stack_capacity.load(Relaxed)) {
        let Some(source) = from.stack(number) else { break };
        let mut frames = [0; MAX_FRAMES];
        for (place, frame) in frames.iter_mut().zip(&source.frames) {
            *place = frame.load(Relaxed);
        }
        let len = (source.len.load(Acquire) as usize).min(MAX_FRAMES);
        let hash = source.hash.load(Relaxed);
        if new_stack(to, &frames[..len], hash) != number {
            break;
        }
        for probe in 0..64 {
            let Some(place) = to.stack_index((hash >> 20).wrapping_add(probe)) else { break };
            if place.compare_exchange(0, number, AcqRel, Relaxed).is_ok() {
                break;
            }
        }
    }
}
