//! The arrays that this process has mapped, by slot: found with a few loads, unmapped when they are gone.
//!
//! A mapping is unmapped when its array is gone and no thread uses it. *Marks* tell which threads use it;
//! docs/SEMARRAY.md ("Giving back") has the argument, whose letters the steps have here. A thread without a
//! free mark counts itself in `PINNED`, and nothing is unmapped while that is not 0.
//!
//! Arrays that other processes removed are found when this one maps another (`sweep`).

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence, fence,
};

use poundlock_core::semarray::Array;

use crate::host::Processes;
use poundlock_linux::parts::membarrier;
use poundlock_linux::registry;

use crate::domain::{ARRAYS, Domain, slot_of};
use crate::files::{self, Mapped};

/// A mapped array: in front of its words.
pub(crate) struct Mapping {
    pub(crate) id: i32,
    pub(crate) array: Array<'static, Processes>,
    /// The rights that the process was found to have, and for which settings: see [`crate::rights`].
    pub(crate) rights: AtomicU32,
    /// Bytes in all.
    whole: usize,
    /// The next that waits to be unmapped.
    next: AtomicPtr<Mapping>,
}

type Entry = AtomicPtr<Mapping>;

/// An entry for each slot. Null entries are of arrays that are not mapped.
static TABLE: [Entry; ARRAYS] = [const { AtomicPtr::new(ptr::null_mut()) }; ARRAYS];
/// Whether `membarrier` stands in for fences. Set before there is a mark.
static ASYMMETRIC: AtomicBool = AtomicBool::new(false);
/// Those that wait to be unmapped.
static RETIRED: AtomicPtr<Mapping> = AtomicPtr::new(ptr::null_mut());
/// Threads that use a mapping and have no mark.
static PINNED: AtomicU32 = AtomicU32::new(0);
/// Mappings made since the last sweep.
static FRESH: AtomicUsize = AtomicUsize::new(0);
/// The epoch in which the marks are those of this process, + 1.
static EPOCH: AtomicU32 = AtomicU32::new(0);

const EXPEDITED: libc::c_long = 1 << 3;
const REGISTER_EXPEDITED: libc::c_long = 1 << 4;

/// To be called before a mapping is put into the table.
pub(crate) fn init() {
    if membarrier(REGISTER_EXPEDITED).is_ok() && membarrier(EXPEDITED).is_ok() {
        ASYMMETRIC.store(true, SeqCst);
    }
}

/// A mapping in use: it stays until this is dropped.
pub(crate) struct Entered {
    mapping: &'static Mapping,
    /// The mark that names it; none: the thread is counted in `PINNED`.
    mark: Option<&'static AtomicUsize>,
}

impl core::ops::Deref for Entered {
    type Target = Mapping;
    #[inline(always)]
    fn deref(&self) -> &Mapping {
        self.mapping
    }
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        unname(self.mark);
    }
}

/// The array of that id, if this process already has it mapped.
#[inline(always)]
pub(crate) fn enter(id: i32) -> Option<Entered> {
    let entered = enter_slot(slot_of(id))?;
    (entered.id == id).then_some(entered)
}

#[inline(always)]
fn enter_slot(slot: usize) -> Option<Entered> {
    let entry = TABLE.get(slot)?;
    let mapping = entry.load(Relaxed);
    if mapping.is_null() {
        return None;
    }
    let Some(marks) = registry::marks() else { return enter_slowly(entry) };
    let mark = &marks[0];
    if mark.load(Relaxed) != 0 {
        return enter_slowly(entry);
    }
    mark.store(mapping.addr(), Relaxed);
    between();
    // Acquire: the mapping was filled before it was put there.
    if entry.load(Acquire) != mapping {
        mark.store(0, Relaxed);
        return enter_slowly(entry);
    }
    // SAFETY: named by a mark since before it was found in the table: not unmapped until that is cleared.
    Some(Entered { mapping: unsafe { &*mapping }, mark: Some(mark) })
}

/// (a) before (b).
#[inline(always)]
fn between() {
    if ASYMMETRIC.load(Relaxed) {
        compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
}

#[cold]
fn enter_slowly(entry: &'static Entry) -> Option<Entered> {
    loop {
        let mapping = entry.load(Relaxed);
        if mapping.is_null() {
            return None;
        }
        let mark = name(mapping.addr());
        if entry.load(Acquire) == mapping {
            // SAFETY: as in `enter_slot`; or nothing is unmapped while `PINNED` is not 0.
            return Some(Entered { mapping: unsafe { &*mapping }, mark });
        }
        unname(mark);
    }
}

/// The array of that id, mapped if it was not.
///
/// # Errors
/// EINVAL: there is none. EACCES, ENOMEM: it cannot be opened.
pub(crate) fn open(domain: &'static Domain, id: i32) -> Result<Entered, c_int> {
    if let Some(entered) = enter(id) {
        return Ok(entered);
    }
    if domain.registry.live(id).is_none() {
        return Err(libc::EINVAL);
    }
    sweep(domain);
    let mapped = files::open(domain.array_path(slot_of(id)).get()?).map_err(|error| match error {
        // Removed since.
        libc::ENOENT | libc::EINVAL => libc::EINVAL,
        libc::EACCES | libc::EPERM => libc::EACCES,
        // No descriptor, no memory, no more mappings.
        _ => libc::ENOMEM,
    })?;
    // The file's name is given to another array only after this one was withdrawn: if it is still there, the
    // file is its.
    if domain.registry.live(id).is_none() {
        return Err(libc::EINVAL);
    }
    put(id, mapped)
}

/// Puts an array into the table, in the place of what was there; or returns the one that another thread put
/// there.
pub(crate) fn put(id: i32, mapped: Mapped) -> Result<Entered, c_int> {
    // SAFETY: it is kept from here on, or not used.
    let array = Array::open(unsafe { mapped.words() }).ok_or(libc::EINVAL)?;
    let entry = &TABLE[slot_of(id)];
    let fresh: *mut Mapping = mapped.front();
    let whole = mapped.whole();
    let next = AtomicPtr::new(ptr::null_mut());
    // SAFETY: private memory in front of the file's, long enough and aligned.
    unsafe { fresh.write(Mapping { id, array, rights: AtomicU32::new(0), whole, next }) };
    // Named before it is in the table, so that it is not unmapped before this thread has entered it.
    let mark = name(fresh.addr());
    loop {
        if entry.compare_exchange(ptr::null_mut(), fresh, AcqRel, Relaxed).is_ok() {
            core::mem::forget(mapped);
            FRESH.fetch_add(1, Relaxed);
            // SAFETY: named since before any thread could take it out of the table.
            return Ok(Entered { mapping: unsafe { &*fresh }, mark });
        }
        // The entry is of an array that is gone, or was put there by another thread just now.
        if let Some(same) = retire_unless(entry, id) {
            unname(mark);
            return Ok(same);
        }
    }
}

/// A free mark of the calling thread that now holds this address; if there is none, the thread is counted in
/// `PINNED`.
fn name(address: usize) -> Option<&'static AtomicUsize> {
    let mark = registry::marks().and_then(|marks| marks.iter().find(|mark| mark.load(Relaxed) == 0));
    match mark {
        Some(mark) => {
            mark.store(address, Relaxed);
            between();
        }
        None => {
            // A read-modify-write and a fence: the reclaimer sees it, or this thread sees the entry changed.
            PINNED.fetch_add(1, SeqCst);
            fence(SeqCst);
        }
    }
    mark
}

/// Undoes [`name`].
#[inline(always)]
fn unname(mark: Option<&AtomicUsize>) {
    match mark {
        // Release: the use came before.
        Some(mark) => mark.store(0, Release),
        None => {
            PINNED.fetch_sub(1, SeqCst);
        }
    }
}

/// Takes what is in the entry out of the table, unless it is the array of that id, which it enters.
fn retire_unless(entry: &'static Entry, id: i32) -> Option<Entered> {
    let entered = enter_slowly(entry)?;
    if entered.id == id {
        return Some(entered);
    }
    take_out(entry, entered);
    None
}

/// Takes a mapping out of the table, to wait for its unmapping.
fn take_out(entry: &Entry, entered: Entered) {
    let mapping = ptr::from_ref(entered.mapping).cast_mut();
    // Under the mark: it is not another mapping at the same address.
    let taken = entry.compare_exchange(mapping, ptr::null_mut(), SeqCst, Relaxed).is_ok();
    drop(entered);
    if taken {
        wait(mapping);
    }
}

/// Takes an array that is gone out of the table, and unmaps it when no thread uses it any more.
pub(crate) fn retire(entered: Entered) {
    take_out(&TABLE[slot_of(entered.id)], entered);
    reclaim();
}

/// Puts a mapping that is no longer in the table into the list of those that wait.
fn wait(mapping: *mut Mapping) {
    let mut first = RETIRED.load(Relaxed);
    loop {
        // SAFETY: in no table and no list: no other thread changes it, and only we could have it unmapped.
        unsafe { (*mapping).next.store(first, Relaxed) };
        match RETIRED.compare_exchange(first, mapping, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// Unmaps what waits and is not used. Whether anything waits is one load.
#[inline]
pub(crate) fn reclaim() {
    if !RETIRED.load(Relaxed).is_null() {
        reclaim_slowly();
    }
}

#[cold]
fn reclaim_slowly() {
    // All at once: of two threads that do this at a time, each has its own, and none meets an address that
    // comes back. A child that is forked in between never unmaps its copy of these.
    let mut next = RETIRED.swap(ptr::null_mut(), AcqRel);
    let able = barrier();
    while !next.is_null() {
        let mapping = next;
        // SAFETY: it was in the list, and is ours since.
        let (after, whole) = unsafe { ((*mapping).next.load(Relaxed), (*mapping).whole) };
        next = after;
        if able && PINNED.load(SeqCst) == 0 && !registry::is_marked(mapping.addr()) {
            // SAFETY: no thread uses it: no mark names it, and none has since it left the table.
            unsafe { files::unmap(mapping.cast(), whole) };
        } else {
            wait(mapping);
        }
    }
}

/// (d). False: it is no longer possible.
fn barrier() -> bool {
    fence(SeqCst);
    // A forked child may have to register anew.
    !ASYMMETRIC.load(Relaxed)
        || membarrier(EXPEDITED).is_ok()
        || (membarrier(REGISTER_EXPEDITED).is_ok() && membarrier(EXPEDITED).is_ok())
}

/// Takes the arrays that other processes removed out of the table: now and then, so that it costs no more
/// than mapping.
fn sweep(domain: &'static Domain) {
    let slots = domain.registry.arrays();
    if FRESH.load(Relaxed) > 8 + slots.len() / 8 {
        FRESH.store(0, Relaxed);
        let mapped = |entry: &Entry| !entry.load(Relaxed).is_null();
        for (slot, (array, entry)) in
            slots.iter().zip(&TABLE).enumerate().filter(|(_, (_, entry))| mapped(entry))
        {
            // An id is never 0.
            drop(retire_unless(entry, array.id(slot).unwrap_or(0)));
        }
    }
    reclaim();
}

/// Calls `each` with every array that this process has mapped.
pub(crate) fn for_each(domain: &Domain, mut each: impl FnMut(&Mapping)) {
    for slot in 0..domain.registry.arrays().len() {
        if let Some(entered) = enter_slot(slot) {
            each(&entered);
        }
    }
}

/// The process of that epoch begins to use marks; those that it was forked with are of its parent's threads.
/// Under the registry's lock, and before any of its threads enters.
pub(crate) fn forked(epoch: u32) {
    if EPOCH.swap(epoch + 1, Relaxed) != epoch + 1 {
        registry::clear_other_marks();
    }
}
