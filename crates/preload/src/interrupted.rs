//! What signal handlers a thread is in, known in a process under check: the program's handlers run inside of
//! a function of ours, which notes that.
//!
//! The wrapper is a few instructions, whose frame may be unwound, as those of cancellable waits are
//! ([`crate::entry`]): a handler may be left by `longjmp`, by an exception, by the end of its thread. Then
//! nobody says that it is over. So what a thread-local list says is believed only while
//!
//! * the stack pointer is below where the handler was entered, or on its alternate stack;
//! * the signal is blocked, as it is in its handler: `siglongjmp` puts the mask back;
//! * a word in the wrapper's frame is what the wrapper has put there.
//!
//! All three are asked for only when the list is not empty.

use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use libc::{SA_NODEFER, sighandler_t, siginfo_t, ucontext_t};
use poundlock_statfile::writer::Interrupted;

use crate::stat::RECORDER;

/// Signals are numbered from 1 to this.
pub(crate) const SIGNALS: usize = 64;

/// The program's handlers.
static HANDLERS: [AtomicUsize; SIGNALS + 1] = [const { AtomicUsize::new(0) }; SIGNALS + 1];
/// Signals that have one, a bit each.
static WATCHED: AtomicU64 = AtomicU64::new(0);
/// Those whose action has `SA_SIGINFO` of us alone, and `SA_NODEFER` of the program.
static ADDED: AtomicU64 = AtomicU64::new(0);
static NOT_DEFERRED: AtomicU64 = AtomicU64::new(0);
/// 1 while a thread changes one of these and the kernel's.
static BUSY: AtomicU32 = AtomicU32::new(0);

const fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// Of which signals the program has handlers, a bit each.
#[inline]
pub(crate) fn watched() -> u64 {
    WATCHED.load(Relaxed)
}

/// Whether this is a handler that the system calls.
pub(crate) fn is_called(handler: sighandler_t) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR].contains(&handler)
}

/// A change of a signal's action, with all signals blocked: what is noted here and what the kernel does change
/// together, as far as handlers and other threads see.
pub(crate) struct Change {
    signal: usize,
    /// The mask of before, if it was changed.
    mask: Option<u64>,
    /// The handler of before.
    before: usize,
    added: bool,
}

impl Change {
    /// `None` if there is no such signal. The call that changes the action may change the mask too, or look at
    /// it: then signals are not blocked.
    pub(crate) fn begin(signal: c_int, changes_mask: bool) -> Option<Change> {
        let signal = usize::try_from(signal).ok().filter(|signal| (1..=SIGNALS).contains(signal))?;
        let mask = (!changes_mask).then(|| set_mask(libc::SIG_SETMASK, u64::MAX));
        // A forked child may find it set, by a thread that is not there: it does not wait for ever.
        const PATIENCE: u32 = 1 << 16;
        for _ in 0..PATIENCE {
            if BUSY.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                break;
            }
            // SAFETY: always succeeds.
            unsafe { libc::syscall(libc::SYS_sched_yield) };
        }
        let before = HANDLERS[signal].load(Relaxed);
        Some(Change { signal, mask, before, added: ADDED.load(Relaxed) & bit(signal) != 0 })
    }

    /// From now on our own handler, which is returned, calls this one of the program's; with `informed` it is
    /// one that takes information about the signal, whatever the program's `flags` say. Until the kernel knows,
    /// a signal leads to it by the old action.
    pub(crate) fn wrap(&self, handler: sighandler_t, flags: c_int, with_info: bool) -> sighandler_t {
        HANDLERS[self.signal].store(handler, Relaxed);
        let put = |word: &AtomicU64, is: bool| {
            if is {
                word.fetch_or(bit(self.signal), Relaxed);
            } else {
                word.fetch_and(!bit(self.signal), Relaxed);
            }
        };
        put(&ADDED, with_info && flags & libc::SA_SIGINFO == 0);
        put(&NOT_DEFERRED, flags & SA_NODEFER != 0);
        // Release: a thread that finds it there finds the rest.
        WATCHED.fetch_or(bit(self.signal), Release);
        let wrapper = if with_info { informed as *const () } else { plain as *const () };
        wrapper as sighandler_t
    }

    /// The kernel refused.
    pub(crate) fn undo(&self) {
        HANDLERS[self.signal].store(self.before, Relaxed);
        if self.added {
            ADDED.fetch_or(bit(self.signal), Relaxed);
        } else {
            ADDED.fetch_and(!bit(self.signal), Relaxed);
        }
    }

    /// What the kernel had, as the program knows it.
    pub(crate) fn as_was(&self, handler: sighandler_t, flags: c_int) -> (sighandler_t, c_int) {
        if !is_ours(handler) {
            return (handler, flags);
        }
        (self.before, if self.added { flags & !libc::SA_SIGINFO } else { flags })
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        BUSY.store(0, Release);
        if let Some(mask) = self.mask {
            set_mask(libc::SIG_SETMASK, mask);
        }
    }
}

/// In a forked child.
pub(crate) fn forked() {
    BUSY.store(0, Relaxed);
}

fn is_ours(handler: sighandler_t) -> bool {
    handler == informed as *const () as sighandler_t || handler == plain as *const () as sighandler_t
}

/// Changes the calling thread's mask; the one of before. By the kernel's own call: the C library's leaves out
/// two signals, which is as well here, but it has a name that others interpose.
fn set_mask(how: c_int, set: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: our own variables. Of the C library's internal signals none has a handler that takes a lock of
    // ours; they wait for a moment.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut before, size_of::<u64>())
    };
    before
}

/// The signals that the calling thread blocks, a bit each.
pub(crate) fn mask() -> u64 {
    set_mask(libc::SIG_BLOCK, 0)
}

// The wrapper: `enter(signal, info, context, stack pointer, room for a word)` returns the program's handler,
// which is called with what the wrapper was; then `leave(stack pointer)`.

#[unsafe(naked)]
extern "C" fn informed(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    crate::arch::wrap_handler!(enter_informed, leave)
}

#[unsafe(naked)]
extern "C" fn plain(_: c_int) {
    crate::arch::wrap_handler!(enter_plain, leave)
}

extern "C" fn enter_informed(
    signal: c_int,
    info: Option<&siginfo_t>,
    context: Option<&ucontext_t>,
    sp: usize,
    room: &AtomicUsize,
) -> usize {
    let stack = context.map(|context| context.uc_stack).filter(|stack| {
        let start = stack.ss_sp.addr();
        start != 0 && (start..start.saturating_add(stack.ss_size)).contains(&sp)
    });
    let alternate = stack.map_or(0, |stack| stack.ss_sp.addr());
    // By the kernel, about what the thread did; and not by a process, which can come at any time.
    let by_itself = is_fault(signal) && info.is_none_or(|info| info.si_code > 0) || is_of_a_call(signal);
    enter(signal, sp, room, alternate, by_itself)
}

extern "C" fn enter_plain(
    signal: c_int,
    _: *const c_void,
    _: *const c_void,
    sp: usize,
    room: &AtomicUsize,
) -> usize {
    enter(signal, sp, room, 0, is_fault(signal) || is_of_a_call(signal))
}

/// Whether the kernel sends this signal to a thread because of the instruction that it is at.
fn is_fault(signal: c_int) -> bool {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    faults.contains(&signal)
}

/// ... or because of the call that it makes.
fn is_of_a_call(signal: c_int) -> bool {
    [libc::SIGABRT, libc::SIGPIPE, libc::SIGXFSZ].contains(&signal)
}

/// How many handlers inside of each other are kept.
const NESTED: usize = 4;

/// The calling thread's.
#[repr(C)]
struct Block {
    /// How many entries there are.
    depth: AtomicU32,
    _pad: u32,
    entries: [Entry; NESTED],
}

/// A handler that the thread has entered.
#[repr(C)]
struct Entry {
    /// The stack pointer when it was.
    sp: AtomicUsize,
    /// Where the word is that the wrapper has put into its frame.
    room: AtomicUsize,
    /// The lowest address of the alternate stack; 0 if it does not run on one.
    low: AtomicUsize,
    signal: AtomicU32,
    /// The thread's last hold of a lock up to then.
    sequence: AtomicU32,
    /// Only what the interrupted thread itself holds matters: the signal does not come at any time.
    by_itself: AtomicU32,
    _pad: u32,
}

global_asm!(
    ".pushsection .tbss.poundlock_handlers,\"awT\",@nobits",
    ".globl poundlock_handlers",
    ".hidden poundlock_handlers",
    ".type poundlock_handlers, @object",
    ".size poundlock_handlers, 168",
    ".balign 8",
    "poundlock_handlers:",
    ".zero 168",
    ".popsection",
);

const _: () = assert!(size_of::<Block>() == 168);

#[inline(always)]
fn block<'a>() -> &'a Block {
    let block = crate::arch::thread_block!("poundlock_handlers");
    // SAFETY: mapped as long as its thread runs, aligned, zero at first, all atomics.
    unsafe { &*block.cast::<Block>() }
}

/// What stands in the wrapper's frame.
fn word_for(sp: usize) -> usize {
    sp ^ 0x6b63_6f6c_646e_7570
}

fn enter(signal: c_int, sp: usize, room: &AtomicUsize, low: usize, by_itself: bool) -> usize {
    room.store(word_for(sp), Relaxed);
    let block = block();
    if low == 0 {
        // Drops those that were left another way. An alternate stack may lie anywhere.
        let _ = innermost(sp);
    }
    let depth = block.depth.load(Relaxed) as usize;
    if let Some(entry) = block.entries.get(depth) {
        entry.sp.store(sp, Relaxed);
        entry.room.store(ptr::from_ref(room).addr(), Relaxed);
        entry.low.store(low, Relaxed);
        entry.signal.store(signal as u32, Relaxed);
        entry.sequence.store(RECORDER.last_hold(), Relaxed);
        entry.by_itself.store(u32::from(by_itself), Relaxed);
        // Last, in the order of the program: a signal that comes in between finds it unused, and gives it back.
        block.depth.store(depth as u32 + 1, Release);
    }
    HANDLERS[(signal as usize).min(SIGNALS)].load(Relaxed)
}

extern "C" fn leave(sp: usize) {
    let block = block();
    let depth = block.depth.load(Relaxed) as usize;
    let own = block.entries.iter().take(depth).rposition(|entry| entry.sp.load(Relaxed) == sp);
    if let Some(own) = own {
        block.depth.store(own as u32, Relaxed);
    }
}

/// Whether the calling thread may be in a signal handler: else it is not.
#[inline(always)]
pub(crate) fn may_be() -> bool {
    block().depth.load(Relaxed) != 0
}

/// The handler that the calling thread is in, if it is in one.
#[cold]
pub(crate) fn now(sp: usize) -> Option<Interrupted> {
    innermost(sp).map(|entry| Interrupted {
        signal: entry.signal.load(Relaxed),
        last_hold: entry.sequence.load(Relaxed),
        by_itself: entry.by_itself.load(Relaxed) != 0,
    })
}

/// The innermost handler that the thread is in; those that it has left are dropped.
fn innermost<'a>(sp: usize) -> Option<&'a Entry> {
    let block = block();
    loop {
        let depth = block.depth.load(Relaxed) as usize;
        let entry = depth.checked_sub(1).and_then(|last| block.entries.get(last))?;
        if goes_on(entry, sp) {
            return Some(entry);
        }
        block.depth.store(depth as u32 - 1, Relaxed);
    }
}

fn goes_on(entry: &Entry, sp: usize) -> bool {
    let (entered, low) = (entry.sp.load(Relaxed), entry.low.load(Relaxed));
    if sp > entered || sp < low {
        return false;
    }
    let signal = bit((entry.signal.load(Relaxed) as usize).clamp(1, SIGNALS));
    if NOT_DEFERRED.load(Relaxed) & signal == 0 && mask() & signal == 0 {
        return false;
    }
    let room = entry.room.load(Relaxed);
    // SAFETY: it can be read, and is a word of the thread's own stack, or of what was one.
    can_read(room)
        && unsafe { ptr::with_exposed_provenance::<usize>(room).read_volatile() } == word_for(entered)
}

/// Whether a word at this address can be read: the kernel says it, asked for something that it refuses in
/// either case.
fn can_read(address: usize) -> bool {
    const NO_SUCH_WAY: c_int = 99;
    let _errno = crate::environment::Errno::keep();
    // SAFETY: changes nothing; an address that cannot be read is an error.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            NO_SUCH_WAY,
            address,
            ptr::null_mut::<u64>(),
            size_of::<u64>(),
        )
    };
    // SAFETY: the calling thread's own errno.
    result == -1 && unsafe { *libc::__errno_location() } == libc::EINVAL
}
