//! The place of a lock in the statistics of `poundlock stat`, with the feature `stats`; otherwise nothing.

use core::ptr;
#[cfg(feature = "stats")]
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

#[cfg(feature = "stats")]
use poundlock_linux::statistics::SYMBOL;
use poundlock_linux::statistics::{Lock, READS, READS_FAIRLY, Statistics, TRIES, Wait};

/// What a lock is called in the statistics: `LockKind` of `poundlock-statfile`.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Mutex = 1,
    Spinlock = 2,
    /// As a reader whom waiting writers do not keep out.
    Reader = 3,
    Writer = 4,
    /// As a reader who waits behind them.
    FairReader = 5,
}

impl Kind {
    /// As the statistics number it.
    fn number(self) -> u32 {
        if let Kind::FairReader = self { Kind::Reader as u32 } else { self as u32 }
    }

    fn how(self) -> u32 {
        match self {
            Kind::Reader => READS,
            Kind::FairReader => READS_FAIRLY,
            Kind::Mutex | Kind::Spinlock | Kind::Writer => 0,
        }
    }
}

/// The recorder's word in a lock.
#[cfg(feature = "stats")]
type Word = AtomicU32;
#[cfg(not(feature = "stats"))]
type Word = ();

/// The recorder of this process; null if it is not measured.
#[cfg(feature = "stats")]
static RECORDER: AtomicPtr<Statistics> = AtomicPtr::new(ptr::null_mut());

#[cfg(feature = "stats")]
extern "C" fn look_for_it() {
    // SAFETY: a string that ends in a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) }.cast::<Statistics>();
    // SAFETY: what has that name is a table of that layout, in a library that stays.
    if let Some(table) = unsafe { found.as_ref() }
        && (table.counts)()
    {
        RECORDER.store(found, Relaxed);
    }
}

/// The dynamic linker calls what it finds in this section, after it has started the preloaded library.
#[cfg(feature = "stats")]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = look_for_it;

#[inline(always)]
fn recorder() -> Option<&'static Statistics> {
    #[cfg(feature = "stats")]
    // SAFETY: null, or a table of a library that stays, which nobody writes to.
    return unsafe { RECORDER.load(Relaxed).as_ref() };
    #[cfg(not(feature = "stats"))]
    None
}

/// Calls `begins(lock, wait, pc, sp)` with the return address of this call, and the stack pointer after
/// its return.
#[unsafe(naked)]
unsafe extern "C" fn wait_begins_here(
    lock: &Lock,
    wait: &mut Wait,
    begins: unsafe extern "C" fn(&Lock, &mut Wait, usize, usize),
) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rax, rdx",
        "mov rdx, qword ptr [rsp]",
        "lea rcx, [rsp + 8]",
        "jmp rax",
        ".cfi_endproc",
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x9, x2",
        "mov x2, x30",
        "mov x3, sp",
        "br x9",
        ".cfi_endproc"
    );
}

/// Calls `happened(lock, pc, sp)` as [`wait_begins_here`] does.
#[unsafe(naked)]
unsafe extern "C" fn happens_here(lock: &Lock, happened: unsafe extern "C" fn(&Lock, usize, usize)) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rax, rsi",
        "mov rsi, qword ptr [rsp]",
        "lea rdx, [rsp + 8]",
        "jmp rax",
        ".cfi_endproc",
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov x9, x1",
        "mov x1, x30",
        "mov x2, sp",
        "br x9",
        ".cfi_endproc"
    );
}

/// At the start of each lock, so that the lock's address is that of the variable.
pub(crate) struct Slot(Word);

impl Slot {
    pub(crate) const fn new() -> Slot {
        #[cfg(feature = "stats")]
        return Slot(AtomicU32::new(0));
        #[cfg(not(feature = "stats"))]
        Slot(())
    }

    fn lock(&self, kind: Kind) -> Lock {
        let word = (&raw const self.0).cast::<core::sync::atomic::AtomicU32>();
        let writers = match kind {
            // The slot behind that of the readers.
            Kind::Reader | Kind::FairReader => word.wrapping_add(1),
            Kind::Mutex | Kind::Spinlock | Kind::Writer => ptr::null(),
        };
        let address = ptr::from_ref(self).addr();
        Lock { word, address, kind: kind.number(), how: kind.how(), writers }
    }

    /// Acquires by `wait`; `at_once` is the same without waiting. Inlined, so that the place that waits
    /// is the caller's.
    #[inline(always)]
    pub(crate) fn acquire(
        &self,
        kind: Kind,
        at_once: impl FnOnce() -> bool,
        wait: impl FnOnce() -> bool,
    ) -> bool {
        let Some(recorder) = recorder() else { return wait() };
        let lock = self.lock(kind);
        // SAFETY: the lock and the wait are there during the calls, in the order that the recorder asks
        // for.
        unsafe {
            if at_once() {
                happens_here(&lock, recorder.acquired);
                return true;
            }
            let mut begun = Wait([0; 7]);
            wait_begins_here(&lock, &mut begun, recorder.wait_begins);
            let acquired = wait();
            let ended = if acquired { recorder.acquired_after } else { recorder.gave_up };
            ended(&lock, &mut begun);
            acquired
        }
    }

    #[inline(always)]
    pub(crate) fn try_acquire(&self, kind: Kind, at_once: impl FnOnce() -> bool) -> bool {
        let acquired = at_once();
        if acquired && let Some(recorder) = recorder() {
            let lock = self.lock(kind);
            let lock = Lock { how: lock.how | TRIES, ..lock };
            // SAFETY: the lock is there during the call.
            unsafe { happens_here(&lock, recorder.acquired) };
        }
        acquired
    }

    /// Has been acquired, by other means.
    #[inline(always)]
    pub(crate) fn acquired(&self, kind: Kind) {
        if let Some(recorder) = recorder() {
            // SAFETY: as above.
            unsafe { happens_here(&self.lock(kind), recorder.acquired) };
        }
    }

    #[inline(always)]
    pub(crate) fn release(&self, kind: Kind) {
        if let Some(recorder) = recorder() {
            // SAFETY: as above.
            unsafe { happens_here(&self.lock(kind), recorder.released) };
        }
    }
}

#[cfg(feature = "stats")]
impl Drop for Slot {
    fn drop(&mut self) {
        // A lock that was never counted has no place to give back.
        if *self.0.get_mut() != 0
            && let Some(recorder) = recorder()
        {
            // SAFETY: as above.
            unsafe { (recorder.destroyed)(&self.lock(Kind::Mutex)) };
        }
    }
}
