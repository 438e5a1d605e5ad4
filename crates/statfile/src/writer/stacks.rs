//! Stacks: unwound once per place, recognised from then on.
//!
//! A thread that waits at a place again finds its [`SiteCell`] by the return address, the stack pointer and
//! the lock. That the callers further out are the same as well is then read off the stack: each cell
//! remembers where the unwinder found the outer return addresses, and they must all be there still. Reading
//! is safe, frame by frame from the inside: up to the first difference the stack *is* the one that was
//! unwound, so the next return address lies where it lay then.

use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::map::Map;
use super::{CallSite, modules};
use crate::layout::{self, MAX_FRAMES, PAGE, Record, SITE_SIZE, SiteCell, StackSlot};

/// How many cells one record has. Waits that would need more are counted by place only, in the last [`KEPT`].
const MAX_SITES: u32 = 1 << 20;
/// Cells for places only.
const KEPT: u32 = 1 << 12;

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

/// What a cell counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Wait,
    /// Holds of a lock that was acquired by the call with this return address.
    Hold(u64),
}

impl Role {
    const fn parts(self) -> (u32, u64) {
        match self {
            Role::Wait => (layout::ROLE_WAIT, 0),
            Role::Hold(acquired) => (layout::ROLE_HOLD, acquired),
        }
    }
}

/// The cell for waits for the lock with `tag` at this place; one that stands for several locks or, without
/// memory, for all places where there is no room for more.
pub(super) fn wait_cell(
    map: Map,
    record: &'static Record,
    tag: u64,
    site: CallSite,
    unwind: bool,
) -> &'static SiteCell {
    let overflow = layout::tag(layout::OVERFLOW, 0);
    cell(map, record, tag, Role::Wait, site, unwind)
        .or_else(|| cell(map, record, overflow, Role::Wait, site, unwind))
        .unwrap_or(&record.others)
}

/// The cell for this lock at this place. `None` if there is no room for it.
pub(super) fn cell(
    map: Map,
    record: &Record,
    tag: u64,
    role: Role,
    site: CallSite,
    unwind: bool,
) -> Option<&'static SiteCell> {
    let (number, acquired) = role.parts();
    let is_it = |cell: &SiteCell| {
        cell.tag.load(Relaxed) == tag
            && cell.pc.load(Relaxed) == site.pc as u64
            && cell.acquired.load(Relaxed) == acquired
            && cell.role.load(Relaxed) == number
    };
    let head = head(map, record, tag, site.pc)?;
    if let Some(cell) = chain(map, head).find(|cell| is_it(cell) && still_there(map, cell, site)) {
        return Some(cell);
    }

    let mut trace = Trace::start(site);
    if unwind && site.pc != 0 {
        trace.unwind();
    }
    let stack = if site.pc == 0 { 0 } else { intern(map, trace.frames()) };
    if let Some(cell) = chain(map, head).find(|cell| is_it(cell) && cell.stack.load(Relaxed) == stack) {
        trace.remember(cell);
        return Some(cell);
    }
    let index = new_cell(map, record, tag)?;
    // SAFETY: just allocated.
    let cell = unsafe { map.site(index) };
    cell.tag.store(tag, Relaxed);
    cell.pc.store(site.pc as u64, Relaxed);
    cell.stack.store(stack, Relaxed);
    cell.role.store(number, Relaxed);
    cell.acquired.store(acquired, Relaxed);
    trace.remember(cell);
    // Looked up again: there may be more of them by now.
    let head = self::head(map, record, tag, site.pc)?;
    cell.next.store(head.load(Relaxed), Relaxed);
    // Release: a reader of the running process finds the cell only when it is whole.
    head.store(index, Release);
    Some(cell)
}

/// The cells from here on.
fn chain(map: Map, head: &AtomicU32) -> impl Iterator<Item = &'static SiteCell> {
    let mut index = head.load(Relaxed);
    let chain = core::iter::from_fn(move || {
        // SAFETY: chains hold indices of cells.
        let cell = (index != 0).then(|| unsafe { map.site(index) })?;
        index = cell.next.load(Relaxed);
        Some(cell)
    });
    // Bounded, should a child forked behind our back have written to its parent's chain.
    chain.take(MAX_SITES as usize)
}

/// All heads of the record.
fn heads(map: Map, record: &Record) -> &'static [AtomicU32] {
    let page = u64::from(record.site_heads.load(Relaxed)) * PAGE;
    // SAFETY: as many words as that.
    unsafe { map.words(page, 1 << record.site_heads_bits.load(Relaxed)) }
}

/// The head of the chain that such a cell is in.
fn head(map: Map, record: &Record, tag: u64, pc: usize) -> Option<&'static AtomicU32> {
    if record.site_heads.load(Relaxed) == 0 {
        let page = (map.allocate(1)? / PAGE) as u32;
        record.site_heads_bits.store(layout::SITE_HEADS.ilog2(), Relaxed);
        record.site_heads.store(page, Release);
    }
    let hash = (tag ^ (pc as u64).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let heads = heads(map, record);
    Some(&heads[(hash >> (64 - heads.len().ilog2())) as usize])
}

fn new_cell(map: Map, record: &Record, tag: u64) -> Option<u32> {
    let count = record.site_count.load(Relaxed);
    // Some are kept for places that stand for several locks.
    let limit = if tag == layout::tag(layout::OVERFLOW, 0) { MAX_SITES } else { MAX_SITES - KEPT };
    if count >= limit {
        return None;
    }
    if count >= 4 << record.site_heads_bits.load(Relaxed) {
        more_heads(map, record);
    }
    if record.site_next.load(Relaxed) == record.site_end.load(Relaxed) {
        let page = map.allocate(1)?;
        // SAFETY: just allocated, and cells lie in it from its beginning on.
        let first = unsafe { map.site((page / SITE_SIZE) as u32) };
        first.page.store(record.site_page.load(Relaxed), Relaxed);
        // Release: a reader of the running process finds what comes before this page.
        record.site_page.store((page / PAGE) as u32, Release);
        record.site_next.store(page, Relaxed);
        record.site_end.store(page + PAGE, Relaxed);
    }
    let offset = record.site_next.load(Relaxed);
    record.site_next.store(offset + SITE_SIZE, Relaxed);
    record.site_count.store(count + 1, Relaxed);
    Some((offset / SITE_SIZE) as u32)
}

/// Eight times as many heads, over which the cells are spread anew. Without memory all stays as it is.
fn more_heads(map: Map, record: &Record) {
    const MORE: u32 = 3;
    let old = heads(map, record);
    let bits = old.len().ilog2() + MORE;
    let Some(offset) = map.allocate((4u64 << bits).div_ceil(PAGE)) else { return };
    // SAFETY: just allocated.
    let new = unsafe { map.words(offset, 1 << bits) };
    for head in old {
        let mut index = head.load(Relaxed);
        for _ in 0..MAX_SITES {
            if index == 0 {
                break;
            }
            // SAFETY: chains hold indices of cells.
            let cell = unsafe { map.site(index) };
            let next = cell.next.load(Relaxed);
            let key = cell.tag.load(Relaxed) ^ cell.pc.load(Relaxed).rotate_left(32);
            let place = &new[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize];
            cell.next.store(place.load(Relaxed), Relaxed);
            place.store(index, Release);
            index = next;
        }
    }
    // The place before the number: in between, as many of the new heads as there were of the old ones.
    record.site_heads.store((offset / PAGE) as u32, Release);
    record.site_heads_bits.store(bits, Release);
}

/// Whether the thread is at the cell's place, by the same callers.
fn still_there(map: Map, cell: &SiteCell, site: CallSite) -> bool {
    if cell.sp.load(Relaxed) != site.sp as u64 {
        return false;
    }
    let known = cell.words_len.load(Relaxed) as usize;
    if known == 0 {
        return true;
    }
    let Some(stack) = map.stack(cell.stack.load(Relaxed)) else { return false };
    let outer = stack.frames[1..].iter().zip(&cell.words).take(known);
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
}

impl Trace {
    fn start(site: CallSite) -> Trace {
        let mut frames = [0; MAX_FRAMES];
        frames[0] = site.pc as u64;
        Trace { site, frames, len: 1, words: [0; MAX_FRAMES], words_len: 0, inner: site.sp }
    }

    fn frames(&self) -> &[u64] {
        &self.frames[..self.len]
    }

    /// Adds the frames outside of the one that holds `pc`.
    fn unwind(&mut self) {
        // SAFETY: `frame` takes a `Trace`, and keeps to `_Unwind_Backtrace`'s contract.
        unsafe { _Unwind_Backtrace(frame, (&raw mut *self).cast()) };
    }

    fn add(&mut self, pc: u64, frame_address: usize) -> bool {
        // Our own frames lie below the caller's stack pointer; the caller's own is frames[0]. It is given
        // either at the return address or just above it.
        if frame_address <= self.site.sp + size_of::<usize>() {
            return true;
        }
        if pc == 0 || self.len == MAX_FRAMES {
            return false;
        }
        self.frames[self.len] = pc;
        if self.words_len + 1 == self.len && self.site.sp.is_multiple_of(8) {
            self.note_place(pc, frame_address);
        }
        self.inner = frame_address;
        self.len += 1;
        true
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
        if let Ok(word) = u16::try_from((place - self.site.sp) / 8) {
            self.words[self.words_len] = word;
            self.words_len += 1;
        }
    }

    /// What `still_there` needs.
    fn remember(&self, cell: &SiteCell) {
        cell.sp.store(self.site.sp as u64, Relaxed);
        for (place, word) in cell.words.iter().zip(&self.words[..self.words_len]) {
            place.store(*word, Relaxed);
        }
        cell.words_len.store(self.words_len as u32, Relaxed);
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
    fn _Unwind_Backtrace(
        trace: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
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
