//! The domain: the directory with everything that the processes of one user, in one set of namespaces, share;
//! and the registry in it, which says what there is.
//!
//! ```text
//!  <directory>/registry      this file's [`Registry`], mapped by every process
//!  <directory>/array.<slot>  the array in that slot
//!  <directory>/registry.<n>  a registry that is being made
//! ```
//!
//! All of the registry except single words is changed under its lock, a robust mutex, which `semget` and
//! `IPC_RMID` take, and each process once. docs/SEMARRAY.md says why any of them may be killed meanwhile. A
//! process slot is one word, `owner`; an array slot is published and withdrawn by one store to its `state`;
//! `intent` says which of the two is under way ([`crate::make`]).

use core::ffi::{CStr, c_int};
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use poundlock_core::semarray::Process;

use poundlock_linux::parts::keeping_errno;
use poundlock_linux::parts::{map, unmap};

use crate::files::{self, Mapped};
use crate::robust::{Had, Robust};
use crate::system::{self, Blocked, File, Path};
use crate::{config, table};

/// Arrays that there can be.
pub(crate) const ARRAYS: usize = 1 << SLOT_BITS;
/// Processes that there can be.
const PROCESSES: usize = Process::SLOTS as usize;
/// Bits of an id that name the slot.
pub(crate) const SLOT_BITS: u32 = 15;
/// The bit that ids of ours have set, and the kernel's usually do not.
pub(crate) const OURS: u32 = 1 << 30;
/// Generations of a slot.
const GENERATIONS: u32 = 1 << 15;

const MAGIC: u32 = 0x504c_5247;
/// Changes whenever the layout does; the size of glibc's mutex is part of it.
const VERSION: u32 = 1 << 16 | size_of::<libc::pthread_mutex_t>() as u32;
/// How many process slots are used before a process looks for the dead.
pub(crate) const FEW_PROCESSES: u32 = 64;

/// An array, without opening it. Zero bytes are a free slot.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ArraySlot {
    /// Bit 0: there is an array. Above it, the generation: how many arrays the slot has had.
    state: AtomicU32,
    /// While there is an array: its key.
    pub(crate) key: AtomicU32,
    /// ... and how many semaphores it has.
    pub(crate) semaphores: AtomicU32,
    /// ... and the slot + 1 of the process with whose end the array goes, or 0: it stays until it is removed.
    pub(crate) keeper: AtomicU32,
}

impl ArraySlot {
    /// The id of the array in the slot, which is the `slot`th.
    #[inline]
    pub(crate) fn id(&self, slot: usize) -> Option<i32> {
        let state = self.state.load(Acquire);
        (state & 1 != 0).then_some((OURS | state >> 1 << SLOT_BITS | slot as u32) as i32)
    }

    /// The id that the next array of the free slot will have.
    pub(crate) fn next_id(&self, slot: usize) -> i32 {
        (OURS | self.state.load(Relaxed) >> 1 << SLOT_BITS | slot as u32) as i32
    }

    /// Says that there is an array. Under the lock.
    pub(crate) fn publish(&self) {
        // Release: a thread that sees it sees the key and the rest.
        self.state.store(self.state.load(Relaxed) | 1, Release);
    }

    /// Says that the array is gone. Under the lock.
    pub(crate) fn withdraw(&self) {
        let state = self.state.load(Relaxed);
        if state & 1 != 0 {
            let generation = ((state >> 1) + 1) % GENERATIONS;
            self.state.store(generation << 1, Release);
        }
    }
}

/// A process that uses arrays. Zero bytes are a free slot.
#[repr(C, align(64))]
pub(crate) struct ProcessSlot {
    /// Held by a thread of the process as long as that lives.
    pub(crate) alive: Robust,
    /// The process: its number in the upper half, the time of its start in the lower. 0: the slot is free.
    pub(crate) owner: AtomicU64,
    /// Tells its program from one that follows it by exec: where its stack is. 0: not known.
    pub(crate) program: AtomicU64,
    /// How many of its threads are taking an array's lock over: see [`process`](crate::process).
    pub(crate) taking_over: AtomicU32,
    _rest: u32,
}

/// What there is.
#[repr(C)]
pub(crate) struct Registry {
    /// [`MAGIC`], once the registry is whole.
    magic: AtomicU32,
    version: AtomicU32,
    /// Array slots that were ever used. Memory is provided for these only.
    arrays_high: AtomicU32,
    /// Process slots that were ever used; as above.
    processes_high: AtomicU32,
    /// See [`Intent`].
    intent: AtomicU32,
    /// When this many process slots are in use, look for the dead.
    pub(crate) reap_at: AtomicU32,
    /// Where to look for a free array slot first.
    pub(crate) next_array: AtomicU32,
    /// ... for a free process slot.
    pub(crate) next_process: AtomicU32,
    lock: Robust,
    _rest: [u32; 8],
    arrays: Page<[ArraySlot; ARRAYS]>,
    processes: [ProcessSlot; PROCESSES],
}

#[repr(C, align(4096))]
struct Page<T>(T);

// Whole slots in a page. (glibc's mutex is larger on aarch64: 128 bytes a process there, else 64.)
const _: () = assert!(4096 % size_of::<ProcessSlot>() == 0 && size_of::<ArraySlot>() == 16);

/// A change of several steps that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Nothing.
    None,
    /// An array is being made in that slot.
    Make(usize),
    /// The array in that slot is being removed.
    Remove(usize),
}

impl Registry {
    /// The array slots that were ever used.
    pub(crate) fn arrays(&self) -> &[ArraySlot] {
        let high = self.arrays_high.load(Acquire) as usize;
        self.arrays.0.get(..high).unwrap_or(&self.arrays.0)
    }

    /// The process slots that were ever used.
    pub(crate) fn processes(&self) -> &[ProcessSlot] {
        let high = self.processes_high.load(Acquire) as usize;
        self.processes.get(..high).unwrap_or(&self.processes)
    }

    /// Adds an array slot; there must be memory for it. Under the lock.
    pub(crate) fn another_array(&self) -> Result<(usize, &ArraySlot), c_int> {
        another(&self.arrays.0, &self.arrays_high)
    }

    /// Adds a process slot. Under the lock.
    pub(crate) fn another_process(&self) -> Option<(u32, &ProcessSlot)> {
        another(&self.processes, &self.processes_high).ok().map(|(slot, process)| (slot as u32, process))
    }

    /// The array of that id, if it is there.
    #[inline]
    pub(crate) fn live(&self, id: i32) -> Option<&ArraySlot> {
        let slot = slot_of(id);
        let array = (slot < self.arrays_high.load(Acquire) as usize).then(|| &self.arrays.0[slot])?;
        (array.state.load(Acquire) == state_of(id)).then_some(array)
    }

    pub(crate) fn intent(&self) -> Intent {
        let word = self.intent.load(Relaxed);
        let slot = (word >> 2) as usize;
        match word & 3 {
            _ if slot >= self.arrays().len() => Intent::None,
            1 => Intent::Make(slot),
            2 => Intent::Remove(slot),
            _ => Intent::None,
        }
    }

    /// Release: it comes before what follows; and, for the intent of nothing, after what came before.
    pub(crate) fn intend(&self, intent: Intent) {
        let word = match intent {
            Intent::None => 0,
            Intent::Make(slot) => (slot as u32) << 2 | 1,
            Intent::Remove(slot) => (slot as u32) << 2 | 2,
        };
        self.intent.swap(word, AcqRel);
    }

    fn is_whole(&self) -> bool {
        self.magic.load(Acquire) == MAGIC && self.version.load(Relaxed) == VERSION
    }
}

/// The first slot that was never used, `high`.
fn another<'a, T>(slots: &'a [T], high: &AtomicU32) -> Result<(usize, &'a T), c_int> {
    let next = high.load(Relaxed) as usize;
    let slot = slots.get(next).ok_or(libc::ENOSPC)?;
    if !files::provide(ptr::from_ref(slot).expose_provenance(), size_of_val(slot)) {
        return Err(libc::ENOMEM);
    }
    high.store(next as u32 + 1, Release);
    Ok((next, slot))
}

/// The slot that an id names.
#[inline(always)]
pub(crate) fn slot_of(id: i32) -> usize {
    id as usize & (ARRAYS - 1)
}

/// The state of the slot while it has the array of that id; for an id that is not ours, another value.
#[inline(always)]
fn state_of(id: i32) -> u32 {
    // Bit 30 alone is above the generation; an id without it, or with the sign, gives an impossible
    // generation.
    ((id as u32 ^ OURS) >> SLOT_BITS) << 1 | 1
}

/// The registry's lock, until dropped. No signal handler runs on the thread meanwhile.
pub(crate) struct Guard {
    lock: &'static Robust,
    _blocked: Blocked,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.lock.unlock();
    }
}

/// A domain that this process uses.
pub(crate) struct Domain {
    directory: Path,
    pub(crate) registry: &'static Registry,
    /// The namespaces in which the process was when it looked for the domain.
    namespaces: Namespaces,
}

/// The namespaces that say which processes share arrays, and know each other by their numbers. 0: not known.
#[derive(Clone, Copy)]
struct Namespaces {
    /// Of process numbers.
    processes: u64,
    /// Of IPC objects, among them the kernel's arrays.
    ipc: u64,
}

impl Namespaces {
    /// Those of the calling thread: threads may differ, and the kernel says nothing of a first thread that
    /// has ended.
    fn own() -> Self {
        let number = |path| system::status(path).map_or(0, |status| status.st_ino);
        Self { processes: number(c"/proc/thread-self/ns/pid"), ipc: number(c"/proc/thread-self/ns/ipc") }
    }

    /// Whether they are the same, as far as is known.
    fn are(self, other: Self) -> bool {
        let same = |one: u64, other: u64| one == 0 || other == 0 || one == other;
        same(self.processes, other.processes) && same(self.ipc, other.ipc)
    }
}

/// The domain: null before it was looked for, [`NONE`] if there is none.
static DOMAIN: AtomicPtr<Domain> = AtomicPtr::new(ptr::null_mut());
const NONE: *mut Domain = ptr::without_provenance_mut(align_of::<Domain>());
/// The domain that was found, also while the process is in other namespaces and has none. Null: none was
/// found.
static HOME: AtomicPtr<Domain> = AtomicPtr::new(ptr::null_mut());

/// The domain of this process, looked for at the first call. `None`: every array is the kernel's.
#[inline]
pub(crate) fn get() -> Option<&'static Domain> {
    let known = DOMAIN.load(Acquire);
    if known.is_null() {
        return find();
    }
    // SAFETY: if it is not `NONE`, it was stored by `find` and is never unmapped.
    (known != NONE).then(|| unsafe { &*known })
}

/// The domain if it was looked for already.
#[inline(always)]
pub(crate) fn known() -> Option<&'static Domain> {
    let known = DOMAIN.load(Acquire);
    // SAFETY: as in `get`.
    (known.addr() > NONE.addr()).then(|| unsafe { &*known })
}

/// Looks without a lock, because a process may be forked in the middle of it. Of several threads that look at
/// once, one is first.
#[cold]
fn find() -> Option<&'static Domain> {
    let found = make();
    let (fresh, mapped) = match found {
        Some((fresh, mapped)) => (fresh, Some(mapped)),
        None => (NONE, None),
    };
    match DOMAIN.compare_exchange(ptr::null_mut(), fresh, AcqRel, Acquire) {
        // Kept for good.
        Ok(_) => {
            core::mem::forget(mapped);
            if fresh != NONE {
                HOME.store(fresh, Release);
            }
        }
        Err(_) if fresh != NONE => {
            // SAFETY: our own, which no other thread has seen. The registry is unmapped when `mapped` is
            // dropped.
            unsafe { unmap(fresh, size_of::<Domain>()) };
        }
        Err(_) => {}
    }
    known()
}

/// The domain, if the calling process, which is about to register, is still in the namespaces in which it
/// looked for it. If not, every array is the kernel's from here on: a child was born into other namespaces,
/// or it or its parent has gone there.
pub(crate) fn at_home() -> Option<&'static Domain> {
    let domain = get()?;
    if domain.namespaces.are(Namespaces::own()) {
        return Some(domain);
    }
    DOMAIN.store(NONE, Release);
    None
}

/// The calling process may have gone into another IPC namespace, or come back. As in the kernel it leaves its
/// arrays behind, and its adjustments are undone. Nothing happens if it has other threads, which stay where
/// they were.
pub fn moved() {
    let home = HOME.load(Acquire);
    // SAFETY: stored by `find`, and never unmapped.
    let Some(domain) = (unsafe { home.as_ref() }).filter(|_| crate::make::is_last_thread()) else { return };
    if domain.namespaces.are(Namespaces::own()) {
        DOMAIN.store(home, Release);
    } else {
        crate::make::end();
        DOMAIN.store(NONE, Release);
    }
}

fn make() -> Option<(*mut Domain, Mapped)> {
    table::init();
    let namespaces = Namespaces::own();
    let directory = directory(namespaces)?;
    let mapped = open_registry(&directory).ok()?;
    // SAFETY: atomics and mutexes in memory that is as long as a registry; unmapped only if the domain is not
    // used.
    let registry: &'static Registry = unsafe { &*mapped.file::<Registry>() };
    if !registry.is_whole() {
        return None;
    }
    let fresh = map::<Domain>(size_of::<Domain>(), false)?;
    // SAFETY: our own memory, as long and aligned to a page.
    unsafe { fresh.write(Domain { directory, registry, namespaces }) };
    Some((fresh, mapped))
}

/// The directory, made if it was not there.
fn directory(namespaces: Namespaces) -> Option<Path> {
    let path = match config::environment(c"POUNDLOCK_IPC_DIR") {
        // A relative path would change with the process's directory.
        Some(said) if said.to_bytes().first() == Some(&b'/') => Path::new().and(said.to_bytes()),
        Some(_) => return None,
        None if namespaces.processes == 0 || namespaces.ipc == 0 => return None,
        None => Path::new()
            .and(b"/dev/shm/poundlock-")
            .and_number(system::user().into())
            .and(b"-")
            .and_number(namespaces.ipc)
            .and(b"-")
            .and_number(namespaces.processes),
    };
    let name = path.get().ok()?;
    // SAFETY: a string that ends in a zero.
    let made = keeping_errno(|| unsafe { libc::mkdir(name.as_ptr(), 0o700) }.into());
    if made.is_ok() {
        // Restores what the process's mask took away. SAFETY: as above.
        let _ = keeping_errno(|| unsafe { libc::chmod(name.as_ptr(), 0o700) }.into());
    }
    let status = system::link_status(name).ok()?;
    // Ours alone: another user that could write there could do anything to us.
    let private = status.st_mode & libc::S_IFMT == libc::S_IFDIR
        && status.st_mode & 0o077 == 0
        && status.st_uid == system::user();
    private.then_some(path)
}

const BYTES: usize = size_of::<Registry>();

/// Maps the registry, and makes it first if there is none.
///
/// It is made under another name and then given its own, which fails if another process was first. No lock of
/// a file: a child that is forked meanwhile would hold it too.
fn open_registry(directory: &Path) -> Result<Mapped, c_int> {
    let path = directory.and(b"/registry");
    // Two attempts: it was not there, and then it was. More would mean that another process removes it again
    // and again.
    for _ in 0..10 {
        match File::open(path.get()?, libc::O_RDWR, 0) {
            // Another version's registry may be shorter.
            Ok(file) if file.status()?.st_size < BYTES as i64 => return Err(libc::EINVAL),
            Ok(file) => return Mapped::new(&file, BYTES),
            Err(libc::ENOENT) => make_registry(directory, path.get()?)?,
            Err(error) => return Err(error),
        }
    }
    Err(libc::ENOENT)
}

fn make_registry(directory: &Path, name: &CStr) -> Result<(), c_int> {
    let path = directory.and(b"/registry.").and_number(system::thread_id().into());
    let path = path.get()?;
    // A file that a process left which was killed here is replaced.
    let mapped = files::create(path, BYTES, core::mem::offset_of!(Registry, arrays))?;
    // SAFETY: as long as a registry, and no other process has it.
    let registry = unsafe { &*mapped.file::<Registry>() };
    if !registry.lock.make() {
        let _ = system::unlink(path);
        return Err(libc::ENOMEM);
    }
    registry.reap_at.store(FEW_PROCESSES, Relaxed);
    registry.version.store(VERSION, Relaxed);
    registry.magic.store(MAGIC, Release);
    // SAFETY: strings that end in a zero.
    let linked = keeping_errno(|| unsafe { libc::link(path.as_ptr(), name.as_ptr()).into() });
    let _ = system::unlink(path);
    match linked {
        Ok(_) | Err(libc::EEXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Domain {
    /// The file of the array in that slot.
    pub(crate) fn array_path(&self, slot: usize) -> Path {
        self.directory.and(b"/array.").and_number(slot as u64)
    }

    /// Acquires the registry's lock. Does not look at what a dead holder left: for a process that is about to
    /// register.
    pub(crate) fn lock_only(&'static self) -> Result<Guard, c_int> {
        let blocked = Blocked::all();
        let lock = &self.registry.lock;
        match lock.lock() {
            Some(Had::Whole | Had::FromTheDead) => Ok(Guard { lock, _blocked: blocked }),
            None => Err(libc::ENOMEM),
        }
    }

    /// Acquires the registry's lock, and finishes what a dead holder left. The process is registered.
    pub(crate) fn lock(&'static self) -> Result<Guard, c_int> {
        let guard = self.lock_only()?;
        if self.registry.intent() != Intent::None {
            crate::make::repair(self)?;
        }
        Ok(guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_slot_and_generation() {
        let slot = ArraySlot::default();
        assert_eq!(slot.id(5), None);
        let first = slot.next_id(5);
        slot.publish();
        assert_eq!(slot.id(5), Some(first));
        assert_eq!(slot.state.load(Relaxed), state_of(first));
        for other in [first ^ 1 << 30, first | i32::MIN, first ^ 1 << 15, 5, -1] {
            assert_ne!(slot.state.load(Relaxed), state_of(other), "{other:#x}");
        }
        assert_eq!(slot_of(first), 5);
        slot.withdraw();
        assert_eq!(slot.id(5), None);
        // Idempotent: a repair may withdraw again.
        let second = slot.next_id(5);
        slot.withdraw();
        assert_eq!(slot.next_id(5), second);
        assert_ne!(first, second);
        for _ in 0..GENERATIONS - 1 {
            slot.publish();
            assert!(slot.id(5).is_some_and(|id| id > 0));
            slot.withdraw();
        }
        assert_eq!(slot.next_id(5), first);
    }

    #[test]
    fn every_slot_and_generation_is_a_positive_id_with_the_bit() {
        let slot = ArraySlot { state: AtomicU32::new((GENERATIONS - 1) << 1 | 1), ..ArraySlot::default() };
        assert_eq!(slot.id(ARRAYS - 1), Some(i32::MAX));
    }
}
