//! The processes that use arrays: which they are, and whether they are gone.
//!
//! A process is its number and the time of its start, in one word: numbers are used again, but not within a
//! clock tick of the machine's. That word, `owner`, gives a slot to a process, by one store under the
//! registry's lock. An exec changes neither number nor start, so the new program finds the slot of the old
//! one, and the adjustments kept there.
//!
//! `/proc` shows a start as it is in the reader's time namespace, and processes of several may share arrays.
//! So the reader's offset is taken off (`boot_offset`), and the result differs by a tick at most, because
//! `/proc` rounds after adding it.
//!
//! `alive` is a robust mutex that a thread of the process holds for as long as it lives. While it is not
//! marked, the process is not gone: one load, without a system call. If it is marked, that thread has ended,
//! or there was an exec, or the process is gone: `/proc` tells. The process looks at its own mark at every
//! call, and another of its threads takes the mutex over.
//!
//! When a process is gone, and what an exec leaves of its old program, docs/SEMARRAY.md says.
//!
//! A slot is given to another process only after every array was told that its process is gone (`reap`).
//!
//! An array's lock names a slot and a thread. docs/SEMARRAY.md ("Taking a place") says why a thread that
//! takes it over from a dead owner never meets a living one in the same place; the steps have its letters
//! here.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use poundlock_core::semarray::Process;

use poundlock_linux::parts::epoch;
use poundlock_linux::parts::keeping_errno;

use crate::domain::{self, Domain, FEW_PROCESSES, ProcessSlot, Registry};
use crate::robust::{DIED, THREAD, noticed};
use crate::system::{self, Blocked, Path};
use crate::table;

/// The calling process's epoch in the upper half, and its slot + 1 in the lower. In a forked child the epoch
/// is not the child's.
static OWN: AtomicU64 = AtomicU64::new(0);
/// Its number.
static OWN_ID: AtomicU32 = AtomicU32::new(0);
/// Its mark.
static OWN_MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Whether its slot was there before it registered: adjustments may be in arrays that this program has never
/// used.
static INHERITED: AtomicBool = AtomicBool::new(false);
/// The identity of the thread that makes this program take over from another ([`succeed`]), or 0.
static SUCCESSOR: AtomicU32 = AtomicU32::new(0);
/// ... in that slot.
static SUCCESSOR_SLOT: AtomicU32 = AtomicU32::new(0);
/// `/proc` is not there, or not of our namespace.
static NO_PROC: AtomicBool = AtomicBool::new(false);

/// See [`Host::process`](poundlock_core::semarray::Host::process).
#[inline]
pub(crate) fn process() -> Option<Process> {
    // Acquire: the other two were written before.
    let own = OWN.load(Acquire);
    let slot = own as u32;
    if slot != 0 && (own >> 32) as u32 == epoch() {
        let mark = OWN_MARK.load(Relaxed);
        // SAFETY: a word of the registry, which is never unmapped; written before `OWN`.
        if unsafe { &*mark }.load(Relaxed) & DIED == 0 {
            return Some(Process { slot: slot - 1, id: OWN_ID.load(Relaxed) });
        }
    }
    register()
}

/// See [`process`].
///
/// # Errors
/// EINVAL: this process has no arrays. ENOSPC: there are too many processes.
#[inline]
pub(crate) fn required() -> Result<Process, libc::c_int> {
    process().ok_or_else(|| if domain::known().is_some() { libc::ENOSPC } else { libc::EINVAL })
}

/// The slot that this process has, if it has registered.
pub(crate) fn registered() -> Option<u32> {
    let own = OWN.load(Acquire);
    ((own >> 32) as u32 == epoch()).then_some(own as u32)?.checked_sub(1)
}

/// Whether the slot is the calling process's, rather than that of a process in whose memory it runs.
pub(crate) fn is_own(domain: &Domain, slot: u32) -> bool {
    let owner = domain.registry.processes().get(slot as usize).map(|slot| slot.owner.load(Relaxed));
    owner.is_some_and(|owner| (owner >> 32) as u32 == system::process_id())
}

/// Whether adjustments may be in arrays that this program has never used.
pub(crate) fn inherited() -> bool {
    INHERITED.load(Relaxed)
}

#[cold]
#[inline(never)]
fn register() -> Option<Process> {
    let domain = domain::get()?;
    if SUCCESSOR.load(Acquire) != 0 && SUCCESSOR.load(Relaxed) == poundlock_linux::registry::identity() {
        // Called by an array from `succeed`, below.
        return Some(Process { slot: SUCCESSOR_SLOT.load(Relaxed), id: OWN_ID.load(Relaxed) });
    }
    if let Some(slot) = registered() {
        // Its mark says that the thread which held it has ended. Without the registry's lock, which the
        // caller may hold.
        remark(domain.registry.processes().get(slot as usize)?);
        return Some(Process { slot, id: OWN_ID.load(Relaxed) });
    }
    // In another namespace of process numbers, ours would name another process.
    domain::at_home()?;
    let guard = domain.lock_only().ok()?;
    let registry = domain.registry;
    let epoch = epoch();
    table::forked(epoch);
    let id = system::process_id();
    let (owner, program) = identity(id);
    // By another thread, meanwhile.
    let registered = registered().is_some();
    // The next one after the last that was given out, so that a slot stays free for as long as possible
    // before another process gets it.
    let next = registry.next_process.load(Relaxed);
    let mut free = None;
    let mut own = None;
    for (index, slot) in (0..).zip(registry.processes()) {
        match slot.owner.load(Relaxed) {
            0 if free.is_none_or(|(first, _)| first < next && index >= next) => free = Some((index, slot)),
            0 => {}
            other if is_same(other, owner) => own = Some((index, slot)),
            _ => {}
        }
    }
    let inherited = own.is_some() && !registered;
    let (index, slot) = match own {
        Some(own) => own,
        None => {
            let (index, slot) = free.or_else(|| registry.another_process())?;
            // Before the owner: a slot with an owner has a mutex, or a word without meaning.
            if !slot.alive.make() {
                return None;
            }
            slot.program.store(program, Relaxed);
            slot.taking_over.store(0, Relaxed);
            // Release: the mutex was made before. From here on the slot is ours.
            slot.owner.store(owner, Release);
            registry.next_process.store(index + 1, Relaxed);
            (index, slot)
        }
    };
    if inherited {
        // Release, and first: from here on no process takes this program's threads for those of the old one.
        slot.program.store(program, Release);
        // The old program's thread may have left no mark, and has ended in any case.
        slot.alive.make();
        slot.taking_over.store(0, Relaxed);
    }
    remark(slot);
    OWN_ID.store(id, Relaxed);
    OWN_MARK.store(ptr::from_ref(slot.alive.word()).cast_mut(), Relaxed);
    if !registered {
        INHERITED.store(inherited, Relaxed);
    }
    if inherited {
        // (g)
        fence(SeqCst);
        while is_taken_over(registry) {
            system::pause();
        }
        succeed(domain, index);
    }
    OWN.store(u64::from(epoch) << 32 | u64::from(index + 1), Release);

    let used = registry.processes().len() as u32;
    let look = free.is_none() && used >= registry.reap_at.load(Relaxed);
    drop(guard);
    if look && own.is_none() {
        reap(domain);
    }
    Some(Process { slot: index, id })
}

/// This program has taken the place of another in the same process: what the other's threads held and waited
/// for in any array has no owner. Under the registry's lock, for which this process's other threads wait
/// until it is done.
fn succeed(domain: &'static Domain, slot: u32) {
    SUCCESSOR_SLOT.store(slot, Relaxed);
    SUCCESSOR.store(poundlock_linux::registry::identity(), Release);
    crate::make::for_each_array(domain, |array| {
        // An array whose lock cannot be taken stays as it is.
        let _ = array.succeed();
        true
    });
    SUCCESSOR.store(0, Release);
}

/// The calling thread holds the slot's mark from now on, unless a living one of its process does.
fn remark(slot: &ProcessSlot) {
    if noticed() {
        slot.alive.claim();
        return;
    }
    // No process would notice this thread's end. Without a holder, the mark says nothing, and `/proc` is
    // asked.
    let seen = slot.alive.word().load(Relaxed);
    if seen & DIED != 0 {
        let _ = slot.alive.word().compare_exchange(seen, 0, Release, Relaxed);
    }
}

/// Frees the slots of processes that are gone, after telling every array. The caller is registered.
pub(crate) fn reap(domain: &'static Domain) {
    let Ok(_guard) = domain.lock() else { return };
    let registry = domain.registry;
    let mut gone = [0u64; (Process::SLOTS as usize).div_ceil(64)];
    let mut living = 0;
    for (index, slot) in registry.processes().iter().enumerate() {
        if slot.owner.load(Relaxed) == 0 {
        } else if self::gone(index as u32) {
            gone[index / 64] |= 1 << (index % 64);
        } else {
            living += 1;
        }
    }
    let each = || (0..registry.processes().len()).filter(|index| gone[index / 64] >> (index % 64) & 1 != 0);
    // Doubling: the work of this is spread over as many registrations as it finds processes.
    registry.reap_at.store((2 * living).max(FEW_PROCESSES), Relaxed);
    if each().next().is_none() {
        return;
    }
    let told =
        crate::make::for_each_array(domain, |array| each().all(|index| array.reap(index as u32).is_ok()));
    if told {
        crate::make::remove_kept(domain, |index| each().any(|gone| gone == index as usize));
    }
    // (g)
    fence(SeqCst);
    if told && !is_taken_over(registry) {
        for slot in each().filter_map(|index| registry.processes().get(index)) {
            slot.owner.store(0, Release);
        }
    }
}

/// See [`Host::taking_over`](poundlock_core::semarray::Host::taking_over). For a registered process; or for
/// one that registers, under the registry's lock, so that no thread clears a place.
pub(crate) fn taking_over<R>(act: impl FnOnce() -> R) -> R {
    let _blocked = Blocked::all();
    let processes = domain::known().map_or(&[][..], |domain| domain.registry.processes());
    let count = registered().and_then(|slot| processes.get(slot as usize)).map(|slot| &slot.taking_over);
    if let Some(count) = count {
        count.fetch_add(1, Relaxed); // (a)
    }
    fence(SeqCst); // (b)
    let result = act();
    if let Some(count) = count {
        count.fetch_sub(1, Release); // (e)
    }
    result
}

/// Whether a thread of some living process is taking a lock over. (h); (g) was before.
fn is_taken_over(registry: &Registry) -> bool {
    registry.processes().iter().any(|slot| slot.taking_over.load(Acquire) != 0 && fate(slot) == Fate::Lives)
}

/// See [`Host::gone`](poundlock_core::semarray::Host::gone).
pub(crate) fn gone(slot: u32) -> bool {
    is(slot, |fate| fate == Fate::Ended)
}

/// See [`Host::owner_died`](poundlock_core::semarray::Host::owner_died).
pub(crate) fn owner_died(slot: u32) -> bool {
    is(slot, |fate| fate != Fate::Lives)
}

fn is(slot: u32, wanted: impl FnOnce(Fate) -> bool) -> bool {
    let Some(domain) = domain::known() else { return false };
    let is = domain.registry.processes().get(slot as usize).is_some_and(|slot| wanted(fate(slot)));
    if is {
        // Its threads' writes came before the kernel said so.
        fence(SeqCst);
    }
    is
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Some thread of the program that registered may run.
    Lives,
    /// It runs another program, which has not registered: all threads of the old one have ended.
    Replaced,
    /// All of its threads have ended.
    Ended,
}

fn fate(slot: &ProcessSlot) -> Fate {
    // Acquire: the mark is at least as new, so it is not that of a process before.
    let owner = slot.owner.load(Acquire);
    if owner == 0 {
        return Fate::Ended;
    }
    let mark = slot.alive.word();
    // The caller is a thread of its own process, whatever `/proc` says: an emulator may show each thread when
    // it started itself. In a forked child it is its parent's mark, and another's number.
    if ptr::eq(mark, OWN_MARK.load(Relaxed)) && (owner >> 32) as u32 == system::process_id() {
        return Fate::Lives;
    }
    let word = mark.load(Acquire);
    if word != 0 && word & DIED == 0 {
        // The end of the process's first thread is always marked. Another one that calls exec takes the
        // number of the first before the kernel looks at what it holds, and leaves no mark: so ask whether it
        // is there.
        let (id, thread) = (owner >> 32, u64::from(word & THREAD));
        if thread == id || is_thread(id, thread) {
            return Fate::Lives;
        }
    }
    ask(owner, slot.program.load(Relaxed))
}

/// Whether the process has that thread.
fn is_thread(process: u64, thread: u64) -> bool {
    // SAFETY: signal 0 only checks; nothing is sent.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) }) != Err(libc::ESRCH)
}

/// The word for the calling process, its number and the lower half of the time of its start, in clock ticks
/// as without a time namespace; and for its program, the place of its stack. 0 for any of them: not known.
fn identity(id: u32) -> (u64, u64) {
    let start = |stat: &Stat| boot_offset().map_or(0, |offset| stat.start_without(offset));
    let (start, program) = match look(c"/proc/self/stat") {
        // If `/proc` is of another namespace, so are its numbers. The kernel does not say where the stack of
        // an ended first thread began. A process has one program, so any thread will do.
        Some(stat) if stat.id == u64::from(id) && stat.stack == 0 => {
            (start(&stat), look(c"/proc/thread-self/stat").map_or(0, |own| own.stack))
        }
        Some(stat) if stat.id == u64::from(id) => (start(&stat), stat.stack),
        _ => {
            NO_PROC.store(true, Relaxed);
            (0, 0)
        }
    };
    (u64::from(id) << 32 | u64::from(start), program)
}

/// Whether two words are the same process's.
fn is_same(one: u64, other: u64) -> bool {
    one >> 32 == other >> 32 && is_same_start(one as u32, other as u32)
}

/// Whether two starts, as two processes have read them, may be the same. An unknown one may be.
fn is_same_start(one: u32, other: u32) -> bool {
    one == other || (one != 0 && other != 0 && one.wrapping_sub(other).wrapping_add(1) <= 2)
}

/// By how many clock ticks starts of processes appear late to the calling one, in its time namespace. `None`:
/// not known, because the children of this process are to be born into another.
fn boot_offset() -> Option<i64> {
    // Read through this thread's number: the process's own entry is empty once its first thread has ended.
    let path = Path::new().and(b"/proc/").and_number(system::thread_id().into()).and(b"/timens_offsets");
    let mut buffer = [0; 256];
    match system::read_file(path.get().ok()?, &mut buffer) {
        Ok(text) => {
            // It is that for the children.
            let namespace = |path| system::status(path).ok().map(|status| status.st_ino);
            let same = namespace(c"/proc/thread-self/ns/time")
                == namespace(c"/proc/thread-self/ns/time_for_children");
            parse_offset(text).filter(|_| same)
        }
        // There are no time namespaces.
        Err(libc::ENOENT) => Some(0),
        Err(_) => None,
    }
}

/// The line of `boottime`, in clock ticks: seconds, perhaps negative, and nanoseconds, which are not.
fn parse_offset(text: &[u8]) -> Option<i64> {
    let mut fields = text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        (fields.next()? == b"boottime").then_some(fields)
    })?;
    let seconds = fields.next()?;
    let (seconds, sign) = seconds.strip_prefix(b"-").map_or((seconds, 1), |seconds| (seconds, -1));
    let seconds = sign * i64::try_from(system::number(seconds)?).ok()?;
    let nanoseconds = i64::try_from(system::number(fields.next()?)?).ok()?;
    seconds.checked_mul(TICKS)?.checked_add(nanoseconds / (1_000_000_000 / TICKS))
}

/// Clock ticks of `/proc` in a second, whatever the machine's are.
const TICKS: i64 = 100;

/// The state of the process of that identity, which ran that program.
#[cold]
fn ask(owner: u64, program: u64) -> Fate {
    let (id, start) = (owner >> 32, owner as u32);
    let ended = |ended: bool| if ended { Fate::Ended } else { Fate::Lives };
    // SAFETY: signal 0 only checks; nothing is sent.
    if keeping_errno(|| unsafe { libc::syscall(libc::SYS_kill, id, 0) }) == Err(libc::ESRCH) {
        return Fate::Ended;
    }
    let offset = match boot_offset() {
        Some(offset) if start != 0 && !NO_PROC.load(Relaxed) => offset,
        _ => return ended(ended_without_proc(id)),
    };
    let path = Path::new().and(b"/proc/").and_number(id).and(b"/stat");
    match path.get().ok().and_then(look) {
        Some(stat) if !is_same_start(stat.start_without(offset), start) || stat.ended => Fate::Ended,
        // An exec places the stack anew, at random. 0: the kernel does not tell us; or a zombie's.
        Some(stat) if stat.stack != program && stat.stack != 0 && program != 0 => Fate::Replaced,
        Some(_) => Fate::Lives,
        // It may have gone since, or be hidden from us.
        None => ended(ended_without_proc(id)),
    }
}

/// Whether all threads have ended, of whatever process has that number now.
fn ended_without_proc(id: u64) -> bool {
    // SAFETY: two numbers.
    match keeping_errno(|| unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) }) {
        Err(error) => error == libc::ESRCH,
        Ok(descriptor) => {
            let mut poll = libc::pollfd { fd: descriptor as i32, events: libc::POLLIN, revents: 0 };
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: one structure; readable once the process and all its threads have ended.
            let ready = keeping_errno(|| unsafe {
                libc::syscall(libc::SYS_ppoll, &raw mut poll, 1, &raw const now, ptr::null::<u8>(), 8)
            });
            // SAFETY: ours.
            let _ = keeping_errno(|| unsafe { libc::syscall(libc::SYS_close, descriptor) });
            ready == Ok(1) && poll.revents & libc::POLLIN != 0
        }
    }
}

/// What `/proc/<pid>/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    id: u64,
    /// When it started, in clock ticks, as the reader sees it.
    start: u64,
    /// Where its stack begins; 0 if we may not know.
    stack: u64,
    /// Whether all of its threads have ended.
    ended: bool,
}

impl Stat {
    /// The lower half of its start, without the reader's offset.
    fn start_without(&self, offset: i64) -> u32 {
        self.start.wrapping_sub(offset.cast_unsigned()) as u32
    }
}

fn look(path: &CStr) -> Option<Stat> {
    // Its name is at most 64 bytes, and there are 50 numbers.
    let mut buffer = [0; 1536];
    parse(system::read_file(path, &mut buffer).ok()?)
}

fn parse(text: &[u8]) -> Option<Stat> {
    // The name may contain anything, brackets too.
    let name_begins = text.iter().position(|byte| *byte == b'(')?;
    let name_ends = text.iter().rposition(|byte| *byte == b')')?;
    let id = system::number(text.get(..name_begins)?.trim_ascii_end())?;
    // From the third field on.
    let mut fields = text.get(name_ends + 1..)?.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let threads = fields.nth(20 - 4).and_then(system::number)?;
    let start = fields.nth(22 - 21).and_then(system::number)?;
    let stack = fields.nth(28 - 23).and_then(system::number)?;
    // A zombie that leads other threads is counted with them.
    Some(Stat { id, start, stack, ended: matches!(state, b'Z' | b'X' | b'x') && threads <= 1 })
}

/// The process numbers of the processes that are registered and not gone.
pub(crate) fn each(registry: &'static Registry) -> impl Iterator<Item = u32> {
    registry
        .processes()
        .iter()
        .filter(|slot| slot.owner.load(Acquire) != 0 && fate(slot) != Fate::Ended)
        .map(|slot| (slot.owner.load(Relaxed) >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Child, forever, shared, until, wait_zombie};
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn a_line_of_proc_is_read_whatever_the_name() {
        let line = |name: &str, state: char, threads: u32| {
            format!(
                "42 ({name}) {state} 1 42 42 0 -1 4194560 118 0 0 0 0 0 0 0 20 0 {threads} 0 8675309 2281472 \
                    197 9 1 1 140732920755712 0"
            )
        };
        let stat = Stat { id: 42, start: 8_675_309, stack: 140_732_920_755_712, ended: false };
        assert_eq!(parse(line("sh", 'S', 1).as_bytes()), Some(stat));
        assert_eq!(parse(line("a) Z 1 (b", 'R', 3).as_bytes()), Some(stat));
        assert_eq!(parse(line("x y", 'Z', 1).as_bytes()), Some(Stat { ended: true, ..stat }));
        assert_eq!(parse(line("leader", 'Z', 2).as_bytes()), Some(stat));
        assert_eq!(parse(line("x", 'X', 0).as_bytes()), Some(Stat { ended: true, ..stat }));
        for wrong in ["", "42", "42 (sh", "42 (sh) S 1 2", "x (sh) S 1"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn offsets_are_read_in_clock_ticks() {
        let text = |boot: &str| format!("monotonic           7         0\nboottime   {boot}\n");
        for (boot, ticks) in [
            ("         0         0", 0),
            ("     86461   7300000", 8_646_100),
            ("    100000 990000000", 10_000_099),
            ("        -1         0", -100),
            // Half a second before: as the kernel writes it.
            ("        -1 500000000", -50),
        ] {
            assert_eq!(parse_offset(text(boot).as_bytes()), Some(ticks), "{boot}");
        }
        for wrong in ["", "monotonic 1 2\n", "boottime\n", "boottime 1\n", "boottime x 0\n"] {
            assert_eq!(parse_offset(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_offset_is_known_when_the_first_thread_has_ended() {
        let offset = boot_offset().expect("this test's own is known");
        let child = Child::new(|| {
            std::thread::spawn(move || {
                let stat = || look(c"/proc/self/stat").map_or(0, |stat| stat.stack);
                // It has no memory any more, and so no stack.
                until("the first thread has ended", || stat() == 0);
                let (owner, program) = identity(system::process_id());
                let known = owner as u32 != 0 && program != 0 && boot_offset() == Some(offset);
                // SAFETY: ends the child.
                unsafe { libc::_exit(if known { 0 } else { 1 }) };
            });
            end_thread()
        });
        assert_eq!(child.wait(), 0);
    }

    /// Ends the calling thread only, be it the first.
    fn end_thread() -> ! {
        // SAFETY: takes a number.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!()
    }

    #[test]
    fn starts_are_the_same_within_a_tick() {
        let start = |start: u64, offset| Stat { id: 1, start, stack: 0, ended: false }.start_without(offset);
        assert_eq!(start(500, 100), 400);
        assert_eq!(start(500, -100), 600);
        assert_eq!(start(5, 10), u32::MAX - 4);
        for (one, other) in [(7, 7), (7, 8), (8, 7), (u32::MAX, u32::MAX - 1), (0, 0)] {
            assert!(is_same_start(one, other), "{one} {other}");
        }
        for (one, other) in [(7, 9), (9, 7), (0, 1), (1, 0), (0, u32::MAX)] {
            assert!(!is_same_start(one, other), "{one} {other}");
        }
    }

    fn path(id: u32) -> Path {
        Path::new().and(b"/proc/").and_number(id.into()).and(b"/stat")
    }

    #[test]
    fn a_process_has_ended_when_it_is_a_zombie_and_not_before() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        // Once it echoes, its program is there, stack and all: `spawn` returns earlier, in the middle of the
        // exec.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let stat = look(path(id).get().unwrap()).unwrap();
        let owner = u64::from(id) << 32 | u64::from(stat.start as u32);
        assert_eq!(ask(owner, stat.stack), Fate::Lives);
        assert_eq!(ask(owner, stat.stack + 16), Fate::Replaced);
        assert!(ask(owner, 0) == Fate::Lives && !ended_without_proc(id.into()));
        assert!(ask(owner - 1, 0) == Fate::Lives && ask(owner + 1, 0) == Fate::Lives, "rounded otherwise");
        assert!(ask(owner - 2, 0) == Fate::Ended, "another process with that number");
        assert!(ask(owner + 2, 0) == Fate::Ended, "another process with that number");
        child.kill().unwrap();
        wait_zombie(id);
        assert!(ask(owner, 0) == Fate::Ended && ended_without_proc(id.into()));
        child.wait().unwrap();
        assert!(ask(owner, 0) == Fate::Ended && ended_without_proc(id.into()));
    }

    #[test]
    fn a_process_whose_leader_has_ended_lives() {
        let child = Child::new(|| {
            std::thread::spawn(|| forever());
            end_thread()
        });
        let id = child.0 as u32;
        let zombie = || {
            let text = std::fs::read_to_string(path(id).get().unwrap().to_str().unwrap()).unwrap();
            text.rsplit_once(')').unwrap().1.starts_with(" Z")
        };
        until("its first thread has ended", zombie);
        let stat = look(path(id).get().unwrap()).unwrap();
        assert!(!stat.ended);
        let owner = u64::from(id) << 32 | u64::from(stat.start as u32);
        assert_eq!(ask(owner, 0), Fate::Lives);
        assert!(!ended_without_proc(id.into()));
        child.kill();
        child.wait();
        assert_eq!(ask(owner, 0), Fate::Ended);
    }

    #[test]
    fn a_lock_of_a_program_that_another_has_replaced_is_taken_over_and_its_adjustments_stay() {
        use crate as sem;
        use poundlock_core::platform::Atomic;
        use poundlock_core::semarray::Op;
        let (domain, _one) = sem::testing::domain();
        let id = sem::get(libc::IPC_PRIVATE, 2, 0o600).unwrap().unwrap();
        let operate = |num, change, flags| {
            let operation = Op { num, change, flags };
            // SAFETY: one operation of ours.
            unsafe { sem::operate(id, &operation, 1, ptr::null()) }
        };
        let mapped = crate::files::open(domain.array_path(domain::slot_of(id)).get().unwrap()).unwrap();
        // SAFETY: mapped until the test ends.
        let lock = unsafe { &mapped.words()[0] };
        let mut pipe = [0; 2];
        // SAFETY: writes two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let child = Child::new(|| {
            // As a thread that an exec ends in the middle of a critical section. The new program does not
            // know us.
            let done = operate(0, 5, Op::UNDO).is_ok();
            if let (true, Some(process)) = (done, process()) {
                lock.store(process.slot + 1, Release);
                // SAFETY: strings that end in a zero, and an array of them that ends in a null.
                unsafe {
                    libc::dup2(pipe[0], 0);
                    libc::close(pipe[1]);
                    libc::execv(c"/bin/cat".as_ptr(), [c"cat".as_ptr(), ptr::null()].as_ptr());
                }
            }
            1
        });
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", child.0)).unwrap();
        until("it is another program", || name().trim() == "cat");
        assert_eq!(operate(0, -5, Op::NOWAIT), Ok(()), "the lock is ours, and the value as it was");
        assert_eq!(operate(0, 5, 0), Ok(()));
        // SAFETY: our own descriptors.
        unsafe {
            libc::close(pipe[0]);
            libc::close(pipe[1]);
        }
        assert_eq!(child.wait(), 0);
        assert_eq!(operate(0, -1, Op::NOWAIT), Err(libc::EAGAIN), "undone");
        sem::remove(id).unwrap();
    }

    /// A child that takes a lock over from when it sets the first word until the second is set; then it sets
    /// the third, and lives on until the fourth is set.
    fn heir(words: &'static [AtomicU32; 5]) -> Child {
        Child::new(move || {
            let registered = process().is_some();
            taking_over(|| {
                words[0].store(1, Release);
                until("it may end", || words[1].load(Acquire) != 0);
                words[2].store(1, Release);
            });
            until("the child may end", || words[3].load(Acquire) != 0);
            i32::from(!registered)
        })
    }

    fn slot_of_process(registry: &'static Registry, id: libc::pid_t) -> Option<usize> {
        let owned = |slot: &ProcessSlot| slot.owner.load(Acquire) >> 32 == id as u64;
        registry.processes().iter().position(owned)
    }

    #[test]
    fn a_slot_is_given_to_nobody_while_somebody_takes_a_lock_over() {
        let (domain, _one) = crate::testing::domain();
        let registry = domain.registry;
        assert!(process().is_some());
        for killed in [false, true] {
            let words = shared::<[AtomicU32; 5]>();
            let child = Child::new(|| i32::from(process().is_none()));
            let dead = child.0;
            assert_eq!(child.wait(), 0);
            let slot = slot_of_process(registry, dead).expect("it has registered");
            let heir = heir(words);
            until("the heir takes over", || words[0].load(Acquire) != 0);
            reap(domain);
            assert_eq!(slot_of_process(registry, dead), Some(slot), "its slot was given away");
            let living = if killed {
                heir.kill();
                heir.wait();
                None
            } else {
                words[1].store(1, Release);
                let count = &registry.processes()[slot_of_process(registry, heir.0).unwrap()].taking_over;
                until("nobody takes over", || count.load(Acquire) == 0);
                Some(heir)
            };
            reap(domain);
            assert_eq!(slot_of_process(registry, dead), None, "its slot is kept");
            if let Some(heir) = living {
                words[3].store(1, Release);
                assert_eq!(heir.wait(), 0);
            }
        }
    }

    #[test]
    fn a_new_program_waits_for_those_who_take_a_lock_over_from_the_old_one() {
        let (domain, _one) = crate::testing::domain();
        let registry = domain.registry;
        assert!(process().is_some());
        let words = shared::<[AtomicU32; 5]>();
        let heir = heir(words);
        until("the heir takes over", || words[0].load(Acquire) != 0);
        let successor = Child::new(|| {
            let Some(own) = process() else { return 1 };
            let slot = &registry.processes()[own.slot as usize];
            // As after an exec: this program knows nothing of the slot, and its stack is elsewhere.
            OWN.store(0, Relaxed);
            slot.program.store(1, Release);
            slot.taking_over.store(7, Relaxed);
            words[4].store(1, Release);
            let waited = process() == Some(own) && inherited() && words[2].load(Acquire) != 0;
            i32::from(!waited)
        });
        let program = || {
            let slot = slot_of_process(registry, successor.0)?;
            Some(registry.processes()[slot].program.load(Acquire))
        };
        until("it comes to register", || words[4].load(Acquire) != 0 && program() != Some(1));
        // Time for a process that does not wait.
        (0..100).for_each(|_| system::pause());
        words[1].store(1, Release);
        assert_eq!(successor.wait(), 0, "it did not wait, or did not become the successor");
        words[3].store(1, Release);
        assert_eq!(heir.wait(), 0);
    }
}
