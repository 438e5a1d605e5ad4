//! The recorder: what a process under measurement calls at each lock operation.
//!
//! No call allocates from the heap, takes a lock, panics or unwinds, and `errno` stays as it is, so all of
//! them may be made before `main`, from inside `malloc`, from signal handlers and in forked children. Nothing
//! blocks; in one case a thread yields to another: when both are the first in a forked child.
//!
//! The uncontended pair [`Recorder::acquired`] and [`Recorder::released`] is a few loads, and stores to two
//! lines that no other thread writes, of which one is the same for all locks; chance has one in a few looked
//! at the clock. Everything else is out of line. Slow paths mark the record busy. A signal handler that
//! interrupts one, or a lock taken by the unwinder in the middle of one, is not counted (but counted as lost)
//! if it needs a slow path itself.

mod arrays;
mod blocking;
mod check;
mod clock;
mod locks;
mod map;
pub mod memory;
mod modules;
mod stacks;
mod sys;
mod threads;
mod trace;
#[cfg(target_arch = "x86_64")]
mod unwind;
mod waits;
mod words;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

pub use blocking::{Ended, Wake};
pub use check::{Finding, Holder, Interrupted, Manner};
pub use clock::read_clocks_by;
pub use map::{CheckRoom, Options};
pub use words::Words;

use crate::layout::{
    self, CHUNK_ENTRIES, Cell, CheckSlot, Entry, Events, INDEX_MASK, LockSlot, MARK, PAGE, Record,
};
use crate::{ArrayEnd, LockKind};
use map::Map;
use waits::Account;

/// What the recorder needs from the process it is in.
///
/// # Safety
/// [`Host::word`] returns what the calling thread last passed to [`Host::set_word`], and null before that;
/// both are async-signal-safe. A forked child's thread keeps its word.
pub unsafe trait Host: Sized + 'static {
    /// The calling thread's word.
    fn word() -> *mut u8;
    /// Sets the calling thread's word.
    fn set_word(word: *mut u8);
    /// The recorder that uses these words: always the same one.
    fn recorder() -> &'static Recorder<Self>;

    // What a process under check is asked, too.

    /// Whether the calling thread may be in a signal handler: else it is not.
    #[inline(always)]
    fn interrupted() -> bool {
        false
    }

    /// The signal handler that the calling thread is in, whose stack pointer this is.
    fn handler(_sp: usize) -> Option<Interrupted> {
        None
    }

    /// The signals that the program has handlers for, a bit each, the lowest for signal 1.
    #[inline(always)]
    fn handled_signals() -> u64 {
        0
    }

    /// Those that the calling thread blocks.
    fn blocked_signals() -> u64 {
        u64::MAX
    }
}

/// A lock, as the recorder sees it.
#[derive(Debug, Clone, Copy)]
pub struct LockRef<'a> {
    /// A word that belongs to the recorder, of the lock's own memory or of [`Words`]; zero in a statically
    /// initialised lock.
    pub word: &'a AtomicU32,
    /// The lock's address, for the report.
    pub address: usize,
    /// What it is.
    pub kind: LockKind,
    /// Of a readers-writer lock's readers: the `word` of its writers, whose address is
    /// [`LockKind::WRITERS`] beyond this one. In their slot is who waits for either.
    pub writers: Option<&'a AtomicU32>,
}

impl<'a> LockRef<'a> {
    /// The lock in whose slot is who waits for this one: itself, or the writers of these readers. Field by
    /// field: copied as a whole, with its padding, it would be read from memory by other widths than it was
    /// just written, which each call would wait for.
    #[inline(always)]
    fn group(self) -> LockRef<'a> {
        let LockRef { word, address, kind, writers } = self;
        let (word, address, kind) = match writers {
            None => (word, address, kind),
            Some(word) => (
                word,
                address + LockKind::WRITERS,
                match kind {
                    LockKind::SharedRwReaders => LockKind::SharedRwWriters,
                    _ => LockKind::RwWriters,
                },
            ),
        };
        LockRef { word, address, kind, writers: None }
    }
}

/// The place in the program that called a lock function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSite {
    /// The return address into the program; 0 if unknown, and then no stack is recorded.
    pub pc: usize,
    /// The stack pointer on entry to the called function (where the return address lies, on x86-64) or after
    /// its return.
    pub sp: usize,
}

impl CallSite {
    /// The call that returns to `pc`, wherever its stack is; 0: unknown.
    #[must_use]
    pub const fn at(pc: usize) -> CallSite {
        CallSite { pc, sp: 0 }
    }
}

/// See [`Recorder::place`].
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "of no meaning but to the recorder")]
pub struct Place {
    record: &'static Record,
    entry: &'static Entry,
    word: u32,
}

/// A wait that has begun: see [`Recorder::wait_begin`]. One that is dropped was none: the lock refused.
#[derive(Debug)]
#[must_use]
pub struct Wait {
    began: u64,
    record: *const Record,
    cell: *const Cell,
    /// The return address of the call that waits; 0 if unknown.
    pc: usize,
    /// Where it is counted as going on; null if it is not.
    slot: *const LockSlot,
    /// The same under check; null if it is not, or there is none.
    checked: *const CheckSlot,
    /// Under check: the number of the stack; 0 if unknown.
    stack: u32,
    /// Whether this is the wait that the record shows as going on. One in a signal handler is not.
    shown: bool,
}

impl Wait {
    /// One that is not seen.
    fn none(pc: usize) -> Wait {
        Wait {
            began: 0,
            record: core::ptr::null(),
            cell: core::ptr::null(),
            pc,
            slot: core::ptr::null(),
            checked: core::ptr::null(),
            stack: 0,
            shown: false,
        }
    }

    /// The return address of the call that waits; 0 if unknown.
    #[must_use]
    pub fn pc(&self) -> usize {
        self.pc
    }

    /// Whether its cell is one of this record: not if the thread had to borrow one, or was forked meanwhile.
    #[inline(always)]
    fn is_kept_by(&self, record: &Record) -> bool {
        core::ptr::eq(record, self.record)
    }

    /// It goes on in the parent of this process.
    fn forget(&mut self) {
        self.slot = core::ptr::null();
        self.checked = core::ptr::null();
    }

    /// It no longer goes on, at this moment. Whether it did.
    #[inline]
    fn leave(&mut self, now: u64) -> bool {
        let slot = core::mem::replace(&mut self.slot, core::ptr::null());
        // SAFETY: a slot of the thread's mapping, if no fork came in between; mappings of before stay.
        let slot = unsafe { slot.as_ref() };
        slot.inspect(|slot| waits::leave(slot, now)).is_some()
    }

    /// It no longer goes on, at this moment, because the lock is acquired.
    #[inline]
    fn is_over(&mut self, map: Map, lock: LockRef<'_>, now: u64) {
        if self.leave(now)
            && lock.writers.is_none()
            && let Some(account) = Account::of(map, lock)
        {
            account.handed_over(now);
            threads::ended_let_go(map, lock, None);
        }
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a slot of the thread's mapping, if no fork came in between; mappings of before stay.
        if let Some(slot) = unsafe { self.checked.as_ref() } {
            slot.waiters.fetch_sub(1, Relaxed);
        }
        // One that was none has lasted no time.
        self.leave(self.began);
        if self.shown {
            // SAFETY: the thread's record, if no fork came in between; records and mappings of before stay.
            unsafe { (*self.record).wait_began.store(0, Relaxed) };
        }
    }
}

/// Room for the path of a file, its end included.
const PATH: usize = 1024;

/// A process's recorder. Make one `static`.
pub struct Recorder<H> {
    state: AtomicU32,
    /// The thread-exit key plus one; 0 if there is none.
    key: AtomicU32,
    base: AtomicPtr<u8>,
    /// The mapping before the last fork.
    previous: AtomicPtr<u8>,
    unwind: AtomicU32,
    /// Whether the process is under check.
    checks: AtomicBool,
    /// What threads that fork hold.
    fork: check::Fork,
    /// A word that reads 0 in a forked child; null where the kernel cannot provide it.
    here: AtomicPtr<u32>,
    setup: UnsafeCell<Setup>,
    _host: PhantomData<fn() -> H>,
}

struct Setup {
    options: Options,
    /// The directory, then the name of the last file made in it, then 0.
    path: [u8; PATH],
    directory_len: usize,
}

// SAFETY: `setup` is written only by the thread that moved `state` to STARTING, and `options` in it only
// before ON is first reached; everything else is atomic.
unsafe impl<H> Sync for Recorder<H> {}

/// No figures are taken.
const OFF: u32 = 0;
/// One thread is making the file.
const STARTING: u32 = 1;
/// The file is there.
const ON: u32 = 2;
/// In a forked child: the mapping is still the parent's. The first event makes a file of our own, so that a
/// child that goes on to `exec` makes none.
const FORKED: u32 = 3;

/// Stands for a thread's record while it gets one. Never written to.
static ATTACHING: Empty = Empty([0; 8]);
/// Stands for the record of a thread that has given it back. Never written to.
static GONE: Empty = Empty([0; 8]);

/// A record's first line with an empty directory, which sends the fast path away.
#[repr(align(64))]
struct Empty([u64; 8]);

impl Empty {
    const fn word(&'static self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// A counter that only this thread writes.
#[inline(always)]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// The same, of one that stops at its greatest value.
#[inline(always)]
fn add_small(counter: &AtomicU32, amount: u32) {
    counter.store(counter.load(Relaxed).saturating_add(amount), Relaxed);
}

#[inline(always)]
fn raise(maximum: &AtomicU64, value: u64) {
    if value > maximum.load(Relaxed) {
        maximum.store(value, Relaxed);
    }
}

/// The calling thread's record and entry for the lock, if all is as it was last time and the lock is not
/// marked.
#[inline(always)]
fn find_unmarked<H: Host>(lock: LockRef<'_>) -> Option<(&'static Record, &'static Entry)> {
    find_by::<H>(lock.word.load(Relaxed), lock.address)
}

/// As [`find_unmarked`], marked or not.
#[inline(always)]
fn find<H: Host>(lock: LockRef<'_>) -> Option<(&'static Record, &'static Entry)> {
    find_by::<H>(lock.word.load(Relaxed) & !MARK, lock.address)
}

#[inline(always)]
fn find_by<H: Host>(word: u32, address: usize) -> Option<(&'static Record, &'static Entry)> {
    let record = H::word().cast_const().cast::<Record>();
    if record.is_null() {
        return None;
    }
    let chunk = (word & INDEX_MASK) / CHUNK_ENTRIES;
    // SAFETY: the word holds a record, or an `Empty`, which has the fields up to the directory's length.
    unsafe {
        let len = (&raw const (*record).directory_len).cast::<AtomicU32>();
        if chunk >= (*len).load(Relaxed) {
            return None;
        }
    }
    // SAFETY: only a record has a length above 0.
    let record = unsafe { &*record };
    let directory = record.directory.load(Relaxed) as *const AtomicU32;
    // SAFETY: within the directory; pages in it lie in the mapping (NULL-CHUNK for 0).
    let entry = unsafe {
        let page = (*directory.add(chunk as usize)).load(Relaxed) as usize;
        let entry = record.base.load(Relaxed) as *const u8;
        &*entry.add(page * PAGE as usize).cast::<Entry>().add((word % CHUNK_ENTRIES) as usize)
    };
    (entry.tag.load(Relaxed) == layout::tag(word, address as u64)).then_some((record, entry))
}

impl<H: Host> Recorder<H> {
    /// A recorder that does nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Recorder {
            state: AtomicU32::new(OFF),
            key: AtomicU32::new(0),
            base: AtomicPtr::new(core::ptr::null_mut()),
            previous: AtomicPtr::new(core::ptr::null_mut()),
            unwind: AtomicU32::new(0),
            checks: AtomicBool::new(false),
            fork: check::Fork::new(),
            here: AtomicPtr::new(core::ptr::null_mut()),
            setup: UnsafeCell::new(Setup { options: Options::DEFAULT, path: [0; PATH], directory_len: 0 }),
            _host: PhantomData,
        }
    }

    /// Begins recording into a new file in `directory`. Returns whether it did, or another thread is at it;
    /// if not, one line on standard error says why, a file of no length is left if one could be made, and all
    /// other calls do nothing. Of the names 64 and 32 bytes are kept.
    pub fn init(
        &'static self,
        directory: &CStr,
        lock_name: &[u8],
        rwlock_name: &[u8],
        options: Options,
    ) -> bool {
        let _errno = sys::Errno::keep();
        if self.state.compare_exchange(OFF, STARTING, AcqRel, Acquire).is_err() {
            return true;
        }
        // A signal handler that comes now finds us at it, and does not wait for us.
        let before = H::word();
        H::set_word(ATTACHING.word());
        let bytes = directory.to_bytes();
        // SAFETY: STARTING is ours.
        let setup = unsafe { &mut *self.setup.get() };
        setup.options = options;
        self.checks.store(options.check.is_some(), Relaxed);
        if options.check.is_some() {
            memory::open();
        }
        setup.directory_len = bytes.len();
        let made = if bytes.len() + 32 > PATH {
            Err(libc::ENAMETOOLONG)
        } else {
            setup.path[..bytes.len()].copy_from_slice(bytes);
            self.make_key();
            self.here.store(sys::wiped_on_fork(), Relaxed);
            // What a thread does is written down with the line alone: a stack would change when it does it.
            let unwinds = setup.options.trace == 0 && stacks::unwinder_is_lock_free();
            self.unwind.store(u32::from(unwinds), Relaxed);
            make_file(setup)
        };
        match made {
            Ok(map) => {
                let header = map.header();
                keep_name(&header.lock_name, &header.lock_name_len, lock_name);
                keep_name(&header.rwlock_name, &header.rwlock_name_len, rwlock_name);
                modules::scan(map);
                clock::calibrate_first(map);
                self.go_on(map);
            }
            Err(error) => {
                self.state.store(OFF, Release);
                complain_about(bytes, error);
            }
        }
        H::set_word(before);
        made.is_ok()
    }

    /// To be called before a library may be unmapped: the report will name what lies in it. Keeps `errno`.
    /// Not async-signal-safe, as `dlclose` is not.
    pub fn closes(&'static self) {
        if self.is_on() {
            let _errno = sys::Errno::keep();
            modules::closes(self.current());
        }
    }

    /// To be called before the process changes where it is or who it is: a forked child that has no file yet
    /// gets it while the directory can be reached.
    pub fn open_now(&'static self) {
        if self.state.load(Relaxed) == FORKED {
            self.map();
        }
    }

    /// To be called when the program has limited its address space to this number of bytes: most of what is
    /// reserved for later is given back. What finds no room then is not recorded.
    pub fn address_space_is_limited(&'static self, limit: u64) {
        if self.is_on() && !self.is_forked() {
            self.current().give_back(limit);
        }
    }

    /// To be called before a fork, by the thread that forks. To be followed by [`Recorder::forked`] or, in
    /// the child, [`Recorder::fork_child`].
    pub fn will_fork(&'static self) {
        if self.checks() && self.is_on() {
            let record = self.attached();
            let map = self.current();
            self.fork.keep_others(map, record.map_or(core::ptr::null(), core::ptr::from_ref));
            if let Some(record) = record {
                self.fork.prepare(map, record);
            }
        }
    }

    /// The calling thread's record, if it has one, of this process.
    fn attached(&'static self) -> Option<&'static Record> {
        let word = H::word();
        let is_one = !word.is_null() && word != ATTACHING.word() && word != GONE.word() && !self.is_forked();
        // SAFETY: anything else is a record.
        is_one.then(|| unsafe { &*word.cast_const().cast::<Record>() })
    }

    /// After a fork, in the parent, by the thread that forked.
    pub fn forked(&'static self) {
        if self.checks() {
            self.fork.done(H::word());
        }
    }

    /// To be called first thing in a forked child, by its only thread. A child that was made behind the C
    /// library's back is noticed at its first slow path; up to there it may spoil its parent's counters.
    pub fn fork_child(&'static self) {
        if self.state.load(Relaxed) != OFF {
            let orphaned = self.state.load(Relaxed) == STARTING;
            self.state.store(if orphaned { OFF } else { FORKED }, Relaxed);
            if self.checks() {
                self.fork.in_child(H::word());
            }
            H::set_word(core::ptr::null_mut());
            self.mark_here();
        }
    }

    fn mark_here(&'static self) {
        let here = self.here.load(Relaxed);
        if !here.is_null() {
            // SAFETY: a word of our own page, which stays.
            unsafe { here.write_volatile(1) };
        }
    }

    fn is_forked(&'static self) -> bool {
        let here = self.here.load(Relaxed);
        // SAFETY: as above.
        !here.is_null() && unsafe { here.read_volatile() } == 0
    }

    /// At the process's orderly end.
    pub fn finish(&'static self) {
        let _errno = sys::Errno::keep();
        if self.is_on() {
            let map = self.current();
            modules::scan_now(map);
            clock::calibrate(map);
            map.header().end_ns.store(clock::nanoseconds(), Relaxed);
        }
    }

    /// The calling thread has acquired the lock without waiting, in this manner, by a call from `site`. Of a
    /// lock that it can acquire again while it holds it, only the first time.
    #[inline(always)]
    pub fn acquired(&'static self, lock: LockRef<'_>, site: CallSite, manner: Manner) {
        if !self.acquired_at_once(lock, site.pc) {
            let how = lock.kind as u32 | manner.packed();
            self.acquired_slowly(lock.word, lock.address, how, lock.writers, site.pc, site.sp);
        }
    }

    /// As [`Recorder::acquired`], in a process that is under check.
    #[inline(always)]
    pub fn acquired_checked(&'static self, lock: LockRef<'_>, site: CallSite, manner: Manner) {
        self.checked_acquired(lock, site, manner);
    }

    /// As [`Recorder::released`], in a process that is under check.
    #[inline(always)]
    pub fn released_checked(&'static self, lock: LockRef<'_>, site: CallSite) {
        self.checked_released(lock, site);
    }

    /// As [`Recorder::acquired`], if that takes no call: most often it does not. Else false, and nothing is
    /// counted: for callers that want no stack frame of their own.
    #[inline(always)]
    pub fn acquired_at_once(&'static self, lock: LockRef<'_>, pc: usize) -> bool {
        self.acquired_at(self.place(lock), lock, pc)
    }

    /// Where the calling thread's figures of the lock are, if all is as it was last time. To be asked before
    /// the lock is taken: loads that come after the processor's locked instruction wait for it.
    #[inline(always)]
    pub fn place(&'static self, lock: LockRef<'_>) -> Option<Place> {
        let word = lock.word.load(Relaxed);
        find_by::<H>(word, lock.address).map(|(record, entry)| Place { record, entry, word })
    }

    /// As [`Recorder::acquired_at_once`], with what [`Recorder::place`] found before the lock was taken.
    #[inline(always)]
    pub fn acquired_at(&'static self, place: Option<Place>, lock: LockRef<'_>, pc: usize) -> bool {
        let as_it_was = |place: &Place| lock.word.load(Relaxed) == place.word && !waits::writers_marked(lock);
        let Some(Place { record, entry, .. }) = place.filter(as_it_was) else { return false };
        let (count, left) = (entry.acquisitions.load(Relaxed), record.until_sample.load(Relaxed));
        if count < layout::FIRST_HOLDS || left == 0 {
            return false;
        }
        entry.acquisitions.store(count.wrapping_add(1), Relaxed);
        record.until_sample.store(left - 1, Relaxed);
        entry.site.store(pc as u64, Relaxed);
        threads::hold_begins(record, entry, layout::HELD_UNTIMED);
        true
    }

    /// The calling thread is about to release the lock, by a call from `site`. It must still hold it:
    /// afterwards the lock's memory may be gone. Whether [`Recorder::call_ended`] is to follow.
    #[inline(always)]
    pub fn released(&'static self, lock: LockRef<'_>, site: CallSite) -> bool {
        !self.released_at_once(lock)
            && self.released_slowly(lock.word, lock.address, lock.kind as u32, lock.writers, site.pc, site.sp)
    }

    /// The release, the signal or the post that the calling thread was about to do is done.
    #[cold]
    pub fn call_ended(&'static self) {
        if let Some(visit) = self.enter_in_stretch() {
            trace::ended(visit.map, visit.record);
        }
    }

    /// As [`Recorder::released`], if that takes no call; else false, and nothing has happened.
    #[inline(always)]
    pub fn released_at_once(&'static self, lock: LockRef<'_>) -> bool {
        let found = find_unmarked::<H>(lock).filter(|_| !waits::writers_marked(lock));
        found.is_some_and(|(record, entry)| {
            let untimed = entry.hold_start.load(Relaxed) == layout::HELD_UNTIMED;
            if untimed {
                threads::hold_ends(record, entry);
            }
            untimed
        })
    }

    /// The calling thread will have to wait for the lock. To be called before it queues up, and to be
    /// followed by [`Recorder::acquired_after_wait`] or [`Recorder::abandoned_wait`]; or by neither if the
    /// lock is refused without a wait after all.
    #[cold]
    #[inline(never)]
    pub fn wait_begin(&'static self, lock: LockRef<'_>, site: CallSite, manner: Manner) -> Wait {
        if self.checks() {
            return self.checked_wait(lock, site, manner);
        }
        let mut wait = Wait::none(site.pc);
        if let Some(visit) = self.enter() {
            let map = visit.map;
            // SAFETY: set once, before ON.
            let options = unsafe { &(*self.setup.get()).options };
            let word = locks::word(map, lock, options);
            let tag = tag_of(word, lock);
            locks::waited(map, word);
            // A borrowed record is handed back before the wait ends: no site in it.
            if !visit.borrowed {
                let unwind = self.unwind.load(Relaxed) != 0;
                wait.record = visit.record;
                wait.cell = stacks::wait_cell(map, visit.record, tag, site, unwind);
            }
            wait.began = clock::ticks(visit.record.clock.load(Relaxed));
            if !visit.borrowed {
                blocking::end_stale(map, visit.record, site, wait.began);
                wait.shown = visit.record.wait_began.load(Relaxed) == 0;
            }
            if !visit.borrowed && lock.kind.is_acquired() {
                if lock.writers.is_some() {
                    locks::waited(map, locks::word(map, lock.group(), options));
                }
                if let Some(account) = Account::of(map, lock) {
                    account.arrive(wait.began);
                    wait.slot = account.slot();
                }
            }
            if wait.shown {
                // Release: after the end of the last wait, for a reader that looks at both ends of this one.
                visit.record.wait_tag.store(tag, Release);
                visit.record.wait_cell.store(wait.cell as u64 - map.base() as u64, Relaxed);
                visit.record.wait_sp.store(site.sp as u64, Relaxed);
                visit.record.wait_began.store(wait.began, Release);
            }
            if !visit.borrowed {
                trace::note(map, visit.record, layout::TRACE_WAITS, word, site.pc as u64);
            }
            clock::calibrate_sometimes(map, wait.began);
            modules::scan_sometimes(map, wait.began);
        }
        wait
    }

    /// The wait ended with the lock acquired, by a call from `site`.
    #[inline]
    pub fn acquired_after_wait(
        &'static self,
        lock: LockRef<'_>,
        mut wait: Wait,
        site: CallSite,
        manner: Manner,
    ) {
        let pc = site.pc;
        if self.checks() {
            return self.checked_acquired_after_wait(lock, wait, site, manner);
        }
        match find::<H>(lock) {
            Some((record, entry)) if wait.began != 0 && wait.is_kept_by(record) => {
                let now = clock::ticks(record.clock.load(Relaxed));
                // SAFETY: the record's own mapping.
                let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
                wait.is_over(map, lock, now);
                entry.site.store(pc as u64, Relaxed);
                wait_ended(map, record, &wait, now, false);
                hold_begins_after_wait(record, entry, now);
                note_acquired(record, entry, layout::TRACE_ACQUIRED_AFTER, lock, pc);
            }
            _ => self.count_acquired(lock, Some(wait), layout::TRACE_ACQUIRED_AFTER, pc),
        }
    }

    /// The wait ended without the lock: its time was up.
    #[cold]
    #[inline(never)]
    pub fn abandoned_wait(&'static self, lock: LockRef<'_>, mut wait: Wait) {
        if self.checks() {
            return drop(wait);
        }
        if let Some(visit) = self.enter().filter(|_| wait.began != 0) {
            let now = clock::ticks(visit.record.clock.load(Relaxed));
            if wait.is_kept_by(visit.record) {
                wait.leave(now);
            } else {
                wait.forget();
            }
            self.wait_ended(&visit, lock, &wait, now, true);
            if !visit.borrowed {
                trace::note(visit.map, visit.record, layout::TRACE_GAVE_UP, lock.word.load(Relaxed), 0);
            }
        }
    }

    /// The lock is initialised, by a call from `site`. Its word may have any value before.
    #[cold]
    #[inline(never)]
    pub fn created(&'static self, lock: LockRef<'_>, site: CallSite) {
        if self.checks() {
            return self.checked_created(lock, site);
        }
        lock.word.store(0, Relaxed);
        if let Some(visit) = self.enter() {
            let map = visit.map;
            let unwind = self.unwind.load(Relaxed) != 0;
            let stack = stacks::stack(map, visit.record, site, unwind);
            // SAFETY: set once, before ON.
            let options = unsafe { &(*self.setup.get()).options };
            locks::created(map, lock, stack, options);
            modules::want(map, lock.address as u64);
            let now = clock::ticks(visit.record.clock.load(Relaxed));
            clock::calibrate_sometimes(map, now);
            modules::scan_sometimes(map, now);
        }
    }

    /// The lock is destroyed, by a call from `site`; nobody holds it or waits for it.
    #[cold]
    #[inline(never)]
    pub fn destroyed(&'static self, lock: LockRef<'_>, site: CallSite) {
        if self.checks() {
            return self.checked_destroyed(lock, site);
        }
        if self.state.load(Acquire) == ON && !self.is_forked() {
            locks::destroyed(self.current(), lock);
        } else {
            lock.word.store(0, Relaxed);
        }
    }

    /// An event of this number, of which there are [`layout::COUNTERS`], has happened to the calling thread.
    /// Never lost but in a signal handler that interrupts the thread's very first call of the recorder, or
    /// without memory.
    #[cold]
    pub fn event(&'static self, number: usize) {
        self.with_events(|events| {
            if let Some(counter) = events.counters.get(number) {
                counter.fetch_add(1, Relaxed);
            }
        });
    }

    /// Something of this number, of which there are [`layout::DURATIONS`], took so long. As
    /// [`Recorder::event`].
    #[cold]
    pub fn duration(&'static self, number: usize, ns: u64) {
        self.with_events(|events| {
            if let Some(durations) = events.durations.get(number) {
                durations.total.fetch_add(ns, Relaxed);
                durations.max.fetch_max(ns, Relaxed);
                durations.buckets[layout::bucket(ns)].fetch_add(1, Relaxed);
            }
        });
    }

    /// The process has started a thread. The caller need not use any lock, so it gets no record for this.
    #[cold]
    pub fn thread_started(&'static self) {
        let _errno = sys::Errno::keep();
        if self.is_forked() {
            self.fork_child();
        }
        let map = if self.state.load(Acquire) == ON {
            Some(self.current())
        } else {
            // A signal handler that comes while the file is made finds us at it, and does not wait for us.
            let word = H::word();
            H::set_word(ATTACHING.word());
            let map = self.map();
            H::set_word(word);
            map
        };
        if let Some(map) = map {
            map.header().started.fetch_add(1, Relaxed);
        }
    }

    /// A lock is initialised that [`Words`] has no room for.
    #[cold]
    pub fn no_room(&'static self) {
        if let Some(visit) = self.enter() {
            visit.map.header().overflow_locks.fetch_add(1, Relaxed);
        }
    }

    /// The process uses the semaphore array with this id, which is not 0. Cheap enough for every operation:
    /// one look at a table, once it is known there.
    pub fn array_used(&'static self, id: u32) {
        self.with_map(|map| {
            let _ = arrays::slot(map, id);
        });
    }

    /// The process has removed the semaphore array with this id.
    #[cold]
    pub fn array_removed(&'static self, id: u32, end: &ArrayEnd) {
        self.with_map(|map| arrays::removed(map, id, end));
    }

    fn with_map(&'static self, act: impl FnOnce(Map)) {
        let _errno = sys::Errno::keep();
        if self.state.load(Acquire) == ON && !self.is_forked() {
            // Without the thread's record: one that is busy, under a signal handler, makes no difference to a
            // table.
            act(self.current());
        } else if let Some(visit) = self.enter() {
            act(visit.map);
        }
    }

    fn with_events(&'static self, count: impl FnOnce(&Events)) {
        let _errno = sys::Errno::keep();
        let word = H::word();
        let attached = !word.is_null() && word != ATTACHING.word() && word != GONE.word();
        if !attached || self.is_forked() {
            if let Some(visit) = self.enter() {
                match threads::events(visit.map, visit.record) {
                    Some(events) => count(events),
                    None => self.lost(),
                }
            }
            return;
        }
        // Whether the record is busy makes no difference: EVENTS.
        // SAFETY: anything else is a record, of this process.
        let record = unsafe { &*word.cast_const().cast::<Record>() };
        // SAFETY: the record's own mapping.
        let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
        match threads::events(map, record) {
            Some(events) => count(events),
            None => self.lost(),
        }
    }

    /// Takes a [`LockRef`] apart, so that its parts travel in registers and the fast path needs no frame.
    #[cold]
    #[inline(never)]
    fn acquired_slowly(
        &'static self,
        word: &AtomicU32,
        address: usize,
        how: u32,
        writers: Option<&AtomicU32>,
        pc: usize,
        sp: usize,
    ) {
        let lock = LockRef { word, address, kind: LockKind::from_byte(how as u8), writers };
        if self.checks() {
            return self.checked_acquired(lock, CallSite { pc, sp }, Manner::unpacked(how));
        }
        match find::<H>(lock) {
            Some((record, entry)) => {
                entry.site.store(pc as u64, Relaxed);
                waits::hold_begins(record, entry, lock);
                note_acquired(record, entry, acquired_by(how), lock, pc);
            }
            None => self.count_acquired(lock, None, acquired_by(how), pc),
        }
    }

    /// As above.
    #[cold]
    #[inline(never)]
    fn released_slowly(
        &'static self,
        word: &AtomicU32,
        address: usize,
        kind: u32,
        writers: Option<&AtomicU32>,
        pc: usize,
        sp: usize,
    ) -> bool {
        let lock = LockRef { word, address, kind: LockKind::from_byte(kind as u8), writers };
        if self.checks() {
            self.checked_released(lock, CallSite { pc, sp });
            return false;
        }
        let found = find::<H>(lock);
        let marked = waits::is_marked(lock);
        if found.is_none_or(|(_, entry)| entry.hold_start.load(Relaxed) == 0) {
            self.released_for_another(lock);
            if found.is_some() && !marked {
                return false;
            }
        }
        let traces = found.is_some_and(|(record, _)| {
            // SAFETY: the record's own mapping.
            let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
            trace::note_in_stretch(map, record, layout::TRACE_RELEASED, lock.word.load(Relaxed), pc as u64)
        });
        match found {
            Some((record, entry)) if !marked => hold_ended(record, entry),
            Some(found) => self.released_while_others_wait(lock, found, CallSite { pc, sp }),
            None => Self::released_without_an_entry(address),
        }
        traces
    }

    /// The calling thread releases a lock of which its record has no hold: if an ended thread took the lock,
    /// that thread's hold is over. The calling thread may be that one, in one of its last destructors.
    fn released_for_another(&'static self, lock: LockRef<'_>) {
        if self.state.load(Acquire) == ON && !self.is_forked() {
            let map = self.current();
            if map.header().ended_count.load(Relaxed) != 0 {
                let of = if H::word() == GONE.word() { Some(sys::tid()) } else { None };
                threads::ended_let_go(map, lock, of);
            }
        }
    }

    /// Takes the time that others have waited for it upon the hold that ends.
    fn released_while_others_wait(
        &'static self,
        lock: LockRef<'_>,
        found: (&'static Record, &'static Entry),
        site: CallSite,
    ) {
        let entry = found.1;
        let Some(visit) = self.enter() else {
            threads::hold_ends(found.0, entry);
            return;
        };
        let (map, record) = (visit.map, visit.record);
        let Some(account) = Account::of(map, lock) else { return hold_ended(record, entry) };
        let start = threads::hold_ends(record, entry);
        let now = clock::ticks(record.clock.load(Relaxed));
        record.last_seen.store(now, Relaxed);
        let charge = account.settle(now);
        if start == 0 {
            // Not acquired by this thread, or before anything was counted.
            account.nobodys(charge);
            return;
        }
        let tag = entry.tag.load(Relaxed);
        let unwind = self.unwind.load(Relaxed) != 0;
        let acquired = entry.site.load(Relaxed);
        let Some(cell) = stacks::hold_cell(map, record, tag, acquired, site, unwind) else {
            account.nobodys(charge);
            self.lost();
            return;
        };
        let cut = start == layout::HELD_UNTIMED;
        let start = if cut { account.slot().first_wait.load(Relaxed) } else { start & !NOT_PICKED };
        count_wait(map, cell, now.saturating_sub(start), cut);
        add(&cell.charged, charge);
    }

    #[cold]
    #[inline(never)]
    fn count_acquired(&'static self, lock: LockRef<'_>, wait: Option<Wait>, what: u32, pc: usize) {
        if let Some(visit) = self.enter() {
            let record = visit.record;
            let now = clock::ticks(record.clock.load(Relaxed));
            let (entry, shared) = self.entry(&visit, lock);
            let waited = wait.is_some();
            if let Some(mut wait) = wait.filter(|wait| wait.began != 0) {
                if wait.is_kept_by(record) {
                    wait.is_over(visit.map, lock, now);
                } else {
                    wait.forget();
                }
                self.wait_ended(&visit, lock, &wait, now, false);
            }
            if visit.borrowed {
                add(&entry.acquisitions, 1);
            } else {
                entry.site.store(pc as u64, Relaxed);
                if waited {
                    hold_begins_after_wait(record, entry, now);
                } else {
                    hold_begins(record, entry);
                }
                if shared {
                    entry.tag.store(lock.address as u64, Relaxed);
                }
                note_acquired(record, entry, what, lock, pc);
            }
            clock::calibrate_sometimes(visit.map, now);
            modules::scan_sometimes(visit.map, now);
        }
    }

    /// The thread has no entry for a lock that it releases: either it acquired it before there was one, or
    /// the lock is one of those counted together, of which the last one acquired is timed.
    fn released_without_an_entry(address: usize) {
        let word = H::word();
        if word.is_null() || word == ATTACHING.word() || word == GONE.word() {
            return;
        }
        // SAFETY: anything else is a record.
        let record = unsafe { &*word.cast_const().cast::<Record>() };
        if record.overflow.tag.load(Relaxed) == address as u64 {
            hold_ended(record, &record.overflow);
        }
    }

    /// Counts a wait that is over, in the cell that it has or in one found now.
    fn wait_ended(
        &'static self,
        visit: &Visit<H>,
        lock: LockRef<'_>,
        wait: &Wait,
        now: u64,
        timed_out: bool,
    ) {
        if wait.is_kept_by(visit.record) {
            wait_ended(visit.map, visit.record, wait, now, timed_out);
            return;
        }
        // It had no record of its own when the wait began, or another one: the process was forked meanwhile,
        // by a signal handler.
        // SAFETY: set once, before ON.
        let options = unsafe { &(*self.setup.get()).options };
        let tag = tag_of(locks::word(visit.map, lock, options), lock);
        let nowhere = CallSite { pc: 0, sp: 0 };
        let cell = stacks::wait_cell(visit.map, visit.record, tag, nowhere, false);
        count_wait(visit.map, cell, now.saturating_sub(wait.began), timed_out);
    }

    /// The entry for the lock, and whether it is the one for all that found no room.
    fn entry(&'static self, visit: &Visit<H>, lock: LockRef<'_>) -> (&'static Entry, bool) {
        // SAFETY: set once, before ON.
        let options = unsafe { &(*self.setup.get()).options };
        let word = locks::word(visit.map, lock, options);
        let own = if word == layout::OVERFLOW {
            None
        } else {
            threads::entry(visit.map, visit.record, word, lock.address as u64)
        };
        own.map_or((&visit.record.overflow, true), |entry| (entry, false))
    }

    /// Enters a slow path: the thread's record, taken now if it has none. `None` if this event cannot be
    /// counted.
    fn enter(&'static self) -> Option<Visit<H>> {
        let errno = sys::Errno::keep();
        if self.is_forked() {
            self.fork_child();
        }
        let word = H::word();
        if word == ATTACHING.word() {
            self.lost();
            return None;
        }
        if word.is_null() || word == GONE.word() {
            // From here on, whatever comes in between finds us at it.
            H::set_word(ATTACHING.word());
            let found = self.map().and_then(|map| Some((map, threads::take(map)?)));
            let Some((map, record)) = found else {
                H::set_word(word);
                self.lost();
                return None;
            };
            if word.is_null() {
                map.header().threads.fetch_add(1, Relaxed);
                record.busy.store(1, Relaxed);
                if self.checks() {
                    check::inherit(&self.fork, map, record);
                }
                H::set_word((&raw const *record).cast_mut().cast());
                self.arm();
            }
            return Some(Visit { map, record, borrowed: !word.is_null(), _errno: errno, _host: PhantomData });
        }
        // SAFETY: anything else is a record, of this process: `fork_child` clears the word.
        let record = unsafe { &*word.cast_const().cast::<Record>() };
        if record.busy.load(Relaxed) != 0 {
            self.lost();
            return None;
        }
        record.busy.store(1, Relaxed);
        // SAFETY: the record's own mapping.
        let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
        Some(Visit { map, record, borrowed: false, _errno: errno, _host: PhantomData })
    }

    #[cold]
    fn lost(&'static self) {
        if self.state.load(Acquire) == ON {
            self.current().header().lost_events.fetch_add(1, Relaxed);
        }
    }

    fn current(&'static self) -> Map {
        // SAFETY: only called in state ON, in which `base` is the mapping.
        unsafe { Map::from_base(self.base.load(Acquire)) }
    }

    /// The file, made now if this is a forked child that has none yet.
    fn map(&'static self) -> Option<Map> {
        loop {
            match self.state.load(Acquire) {
                ON => return Some(self.current()),
                FORKED => {
                    if self.state.compare_exchange(FORKED, STARTING, AcqRel, Acquire).is_ok() {
                        self.begin_again();
                    }
                }
                STARTING => sys::yield_now(),
                _ => return None,
            }
        }
    }

    /// A file for a forked child. Without one (it may have given up the rights to the directory) the child is
    /// not measured; it is not for us to write to what may be its standard error.
    fn begin_again(&'static self) {
        // SAFETY: STARTING is ours.
        let setup = unsafe { &mut *self.setup.get() };
        // SAFETY: the mapping of the time before the fork.
        let parents = unsafe { Map::from_base(self.base.load(Relaxed)) };
        let Ok(map) = make_file(setup) else {
            self.state.store(OFF, Release);
            return;
        };
        let (old, new) = (parents.header(), map.header());
        copy_name((&old.lock_name, &old.lock_name_len), (&new.lock_name, &new.lock_name_len));
        copy_name((&old.rwlock_name, &old.rwlock_name_len), (&new.rwlock_name, &new.rwlock_name_len));
        modules::scan(map);
        stacks::carry_over(parents, map);
        if self.checks() {
            check::carry_over(parents, map);
        } else {
            locks::carry_over(parents, map);
        }
        clock::calibrate_first(map);
        // The mapping of before the fork stays, for a signal handler that forked and now returns to what it
        // interrupted. The one of before the fork before that is not in use by anybody.
        let oldest = self.previous.swap(parents.base(), Relaxed);
        if !oldest.is_null() {
            // SAFETY: its header is in it; nobody uses it any more.
            unsafe { sys::unmap(oldest, Map::from_base(oldest).header().size.load(Relaxed) as usize) };
        }
        self.go_on(map);
    }

    fn go_on(&'static self, map: Map) {
        self.mark_here();
        map.header().ready.store(1, Release);
        self.base.store(map.base(), Release);
        self.state.store(ON, Release);
    }

    /// Asks for a call at the end of each thread.
    fn make_key(&'static self) {
        let mut key = 0;
        // SAFETY: fills our own variable; the destructor is a plain function.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends::<H>)) } == 0 {
            self.key.store(key + 1, Relaxed);
        }
    }

    /// Has the destructor called for this thread.
    fn arm(&'static self) {
        // From this key on, setting a value may call `malloc`. We are one of the first to ask for a key; if
        // not, records are not handed on.
        const FIRST_WITH_MALLOC: u32 = 32;
        if let Some(key) = self.key.load(Relaxed).checked_sub(1)
            && key < FIRST_WITH_MALLOC
        {
            // SAFETY: our key; the value is never looked at, only that it is not null.
            unsafe { libc::pthread_setspecific(key, self.key.as_ptr().cast::<c_void>()) };
        }
    }

    fn thread_ends(&'static self) {
        // Destructors of other keys may use locks too: most of them in the first round of calls, so we let
        // that pass. What comes later borrows a record for each event.
        const ROUNDS: u32 = 2;
        let word = H::word();
        if word.is_null() || word == ATTACHING.word() || word == GONE.word() || self.is_forked() {
            return;
        }
        // SAFETY: anything else is a record.
        let record = unsafe { &*word.cast_const().cast::<Record>() };
        let rounds = record.endings.load(Relaxed) + 1;
        record.endings.store(rounds, Relaxed);
        if rounds < ROUNDS {
            self.arm();
            return;
        }
        H::set_word(GONE.word());
        // SAFETY: the record's own mapping.
        let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
        threads::give_back(map, record);
    }
}

impl<H: Host> Default for Recorder<H> {
    fn default() -> Self {
        Self::new()
    }
}

extern "C" fn thread_ends<H: Host>(_: *mut c_void) {
    // The value is of no use: in a forked child it was set by the parent's thread.
    let _errno = sys::Errno::keep();
    H::recorder().thread_ends();
}

/// A stay in the slow paths.
struct Visit<H: Host> {
    map: Map,
    record: &'static Record,
    /// The thread has no record any more; this one is for this event only.
    borrowed: bool,
    _errno: sys::Errno,
    _host: PhantomData<fn() -> H>,
}

impl<H: Host> Drop for Visit<H> {
    fn drop(&mut self) {
        if self.borrowed {
            threads::give_back(self.map, self.record);
            H::set_word(GONE.word());
        } else {
            self.record.busy.store(0, Relaxed);
        }
    }
}

/// The tag of a lock whose word has been found to be this.
fn tag_of(word: u32, lock: LockRef<'_>) -> u64 {
    if word == layout::OVERFLOW { layout::tag(word, 0) } else { layout::tag(word, lock.address as u64) }
}

/// The lowest bit of [`Entry::hold_start`] says that the hold is timed, but not one of those that were picked
/// (SAMPLED).
const NOT_PICKED: u64 = 1;

/// Whether a hold that began so is one of those that were picked.
fn is_of_picked(start: u64) -> bool {
    start > layout::HELD_UNTIMED && start & NOT_PICKED == 0
}

/// Counts an acquisition; whether its hold is to be timed as one of those from which all are estimated.
fn is_picked(record: &Record, entry: &Entry) -> bool {
    let count = entry.acquisitions.load(Relaxed);
    entry.acquisitions.store(count.wrapping_add(1), Relaxed);
    let left = record.until_sample.load(Relaxed);
    record.until_sample.store(left.wrapping_sub(1), Relaxed);
    count < layout::FIRST_HOLDS || left == 0
}

/// What is written down of an acquisition without a wait, in this manner.
fn acquired_by(how: u32) -> u32 {
    layout::TRACE_ACQUIRED | u32::from(Manner::unpacked(how).tries) << 8
}

/// Writes down an acquisition, where that is wanted. Of those that are not picked the clock need not be
/// looked at for that.
#[inline(always)]
fn note_acquired(record: &Record, entry: &Entry, what: u32, lock: LockRef<'_>, pc: usize) {
    // SAFETY: the record's own mapping.
    let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
    let picked = is_of_picked(entry.hold_start.load(Relaxed));
    trace::note_acquired(map, record, what, lock.word.load(Relaxed), pc, picked);
}

fn hold_begins(record: &Record, entry: &Entry) {
    let start = if is_picked(record, entry) {
        draw(record);
        clock::ticks(record.clock.load(Relaxed)) & !NOT_PICKED
    } else {
        layout::HELD_UNTIMED
    };
    threads::hold_begins(record, entry, start);
}

fn hold_begins_after_wait(record: &Record, entry: &Entry, now: u64) {
    let picked = is_picked(record, entry);
    if picked {
        draw(record);
    }
    let start = if picked { now & !NOT_PICKED } else { now | NOT_PICKED };
    threads::hold_begins(record, entry, start);
}

/// When the next hold is to be picked, if the last one is: uniformly distributed, with a mean of
/// [`layout::SAMPLE_ONE_IN`], so that no rhythm of the program's keeps step with it.
fn draw(record: &Record) {
    if record.until_sample.load(Relaxed) == u32::MAX {
        // Knuth's multiplier and increment, of which the upper bits are good.
        let random = record.random.load(Relaxed);
        let random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        record.random.store(random, Relaxed);
        let gap = (random >> 33) % (2 * u64::from(layout::SAMPLE_ONE_IN) - 1);
        record.until_sample.store(gap as u32, Relaxed);
    }
}

fn hold_ended(record: &Record, entry: &Entry) {
    let start = threads::hold_ends(record, entry);
    if is_of_picked(start) {
        end_picked(record, entry, start);
    }
}

fn end_picked(record: &Record, entry: &Entry, start: u64) {
    let now = clock::ticks(record.clock.load(Relaxed));
    record.last_seen.store(now, Relaxed);
    // A thread that moved between processors whose counters differ by a hair may see time stand still.
    let held = now.saturating_sub(start);
    let holds = threads::holds(record, entry);
    raise(&holds.max, held);
    let samples = holds.samples.load(Relaxed);
    if entry.acquisitions.load(Relaxed) <= layout::FIRST_HOLDS {
        let total = f32::from_bits(holds.first_total.load(Relaxed)) + held as f32;
        holds.first_total.store(total.to_bits(), Relaxed);
        holds.samples.store(samples + 1, Relaxed);
    } else if let Some(samples) = samples.checked_add(1 << layout::FIRST_BITS) {
        add(&holds.total, held);
        let squares = f64::from_bits(holds.squares.load(Relaxed)) + held as f64 * held as f64;
        holds.squares.store(squares.to_bits(), Relaxed);
        holds.samples.store(samples, Relaxed);
    }
}

/// The wait is one of this record.
#[inline]
fn wait_ended(map: Map, record: &Record, wait: &Wait, now: u64, timed_out: bool) {
    record.last_seen.store(now, Relaxed);
    // SAFETY: a cell of this thread's record.
    count_wait(map, unsafe { &*wait.cell }, now.saturating_sub(wait.began), timed_out);
}

#[inline]
fn count_wait(map: Map, cell: &Cell, ticks: u64, timed_out: bool) {
    let before = cell.count.load(Relaxed);
    cell.count.store(before.wrapping_add(1), Relaxed);
    add(&cell.total, ticks);
    raise(&cell.max, ticks);
    let bucket = layout::cell_bucket(clock::span(map, ticks));
    let spread = cell.spread.load(Relaxed);
    if before < layout::EARLY {
        let early = (bucket as u32 + 1) << (before as u32 * layout::EARLY_BITS);
        cell.early.store(cell.early.load(Relaxed) | early, Relaxed);
    } else if spread != 0 {
        // SAFETY: a cell's spread is one.
        add_small(&unsafe { map.spread(spread) }.buckets[bucket], 1);
    }
    if timed_out {
        add_small(&cell.timeouts, 1);
    }
}

/// Into a header that nobody else uses, before `ready`.
fn keep_name<const N: usize>(to: &layout::Bytes<N>, len: &AtomicU32, name: &[u8]) {
    let kept = name.len().min(N);
    // SAFETY: in the header, which is the caller's.
    unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), to.pointer(), kept) };
    len.store(kept as u32, Relaxed);
}

/// From a header of before a fork, whose names no longer change, to a new one.
fn copy_name<const N: usize>(
    (from, from_len): (&layout::Bytes<N>, &AtomicU32),
    (to, to_len): (&layout::Bytes<N>, &AtomicU32),
) {
    // SAFETY: both in their headers, of which the new one is the caller's.
    unsafe { core::ptr::copy_nonoverlapping(from.pointer(), to.pointer(), N) };
    to_len.store(from_len.load(Relaxed), Relaxed);
}

/// Makes and maps `<directory>/<pid>.<n>.stat` with the first free `n`, and fills the header up to `ready`.
/// If the file was made but cannot be used, it stays, with no length, to say that the process was not
/// measured.
fn make_file(setup: &mut Setup) -> Result<Map, i32> {
    let pid = sys::pid();
    let mut n = 0;
    let file = loop {
        let path = name(setup, pid, n);
        match sys::Fd::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) {
            Ok(file) => break file,
            Err(libc::EEXIST) if n < 1 << 20 => n += 1,
            Err(error) => return Err(error),
        }
    };
    let map = match Map::create(&file, &setup.options) {
        Ok(map) => map,
        Err(error) => {
            if file.set_len(0).is_err() {
                sys::unlink(name(setup, pid, n));
            }
            return Err(error);
        }
    };
    let header = map.header();
    let clock = if setup.options.plain_clock { layout::CLOCK_NANOSECONDS } else { clock::choose() };
    let (ticks, ns) = clock::pair(clock);
    header.clock.store(clock, Relaxed);
    header.sample_one_in.store(layout::SAMPLE_ONE_IN, Relaxed);
    header.start.ticks.store(ticks, Relaxed);
    header.start.ns.store(ns, Relaxed);
    header.pid.store(pid, Relaxed);
    // SAFETY: in the header, which nobody else uses before `ready`.
    let len = unsafe { sys::read_link(c"/proc/self/exe", header.exe.pointer(), header.exe.capacity()) };
    header.exe_len.store(len as u32, Relaxed);
    if n > 0 {
        end_previous(name(setup, pid, n - 1), ns);
    }
    Ok(map)
}

/// The process has been here before: it came to this program by `exec`, which takes down the mapping without
/// a word. That was the end of the program before, unless it had one already.
fn end_previous(path: &CStr, ns: u64) {
    const END: u64 = layout::HEADER_OFFSET + core::mem::offset_of!(layout::Header, end_ns) as u64;
    if let Ok(file) = sys::Fd::open(path, libc::O_RDWR | libc::O_NOFOLLOW)
        && file.read_u64_at(END) == Some(0)
    {
        file.write_u64_at(END, ns);
    }
}

fn name(setup: &mut Setup, pid: u32, n: u32) -> &CStr {
    let mut text = Text { to: &mut setup.path[setup.directory_len..], len: 0 };
    text.push(b"/");
    text.push_number(pid);
    text.push(b".");
    text.push_number(n);
    text.push(b".stat\0");
    CStr::from_bytes_until_nul(&setup.path).unwrap_or_default()
}

/// Text put together in place; what does not fit is left out.
struct Text<'a> {
    to: &'a mut [u8],
    len: usize,
}

impl Text<'_> {
    fn push(&mut self, bytes: &[u8]) {
        for (to, byte) in self.to[self.len..].iter_mut().zip(bytes) {
            *to = *byte;
            self.len += 1;
        }
    }

    fn push_number(&mut self, number: u32) {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }
}

fn complain_about(directory: &[u8], error: i32) {
    let mut line = [0; 512];
    let mut text = Text { to: &mut line, len: 0 };
    text.push(b"poundlock: no statistics of this process: ");
    text.push(&directory[..directory.len().min(384)]);
    text.push(b": ");
    match error {
        libc::ENOENT => text.push(b"no such directory"),
        libc::ENOTDIR => text.push(b"not a directory"),
        libc::EACCES | libc::EPERM | libc::EROFS => text.push(b"not permitted"),
        libc::ENOSPC | libc::EDQUOT => text.push(b"no space left"),
        libc::EFBIG => text.push(b"the limit on file sizes is too low"),
        libc::ENOMEM => text.push(b"no memory, or the limit on address space is too low"),
        libc::ENAMETOOLONG => text.push(b"the path is too long"),
        libc::EMFILE | libc::ENFILE => text.push(b"too many open files"),
        _ => {
            text.push(b"error ");
            text.push_number(error.unsigned_abs());
        }
    }
    text.push(b"\n");
    let len = text.len;
    sys::complain(&line[..len]);
}
