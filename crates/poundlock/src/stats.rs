//! The place of a lock in what `poundlock stat` and `poundlock check` see, with the feature `stats`;
//! otherwise nothing.

use core::ptr;
#[cfg(feature = "stats")]
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

pub(crate) use poundlock_linux::statistics::Kind;
#[cfg(feature = "stats")]
use poundlock_linux::statistics::SYMBOL;
use poundlock_linux::statistics::{ALLOWS, Lock, Statistics, TIMED, TRIES, Wait};

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
    // SAFETY: what has that name is such a table, in a library that stays.
    if unsafe { Statistics::of_this_process(found) }.is_some() {
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

/// Functions that call the last of their arguments with the others, the return address of this call, and the
/// stack pointer after its return.
macro_rules! from_here {
    ($($(#[$doc:meta])* $name:ident($one:ty) -> $to:ty;)*) => {$(
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name(one: $one, to: $to) {
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
    )*};
    ($($(#[$doc:meta])* $name:ident($one:ty, $other:ty) -> $to:ty;)*) => {$(
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name(one: $one, other: $other, to: $to) {
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
    )*};
}

from_here! {
    happens_here(&Lock) -> unsafe extern "C" fn(&Lock, usize, usize);
}
from_here! {
    wait_begins_here(&Lock, &mut Wait) -> unsafe extern "C" fn(&Lock, &mut Wait, usize, usize);
    waits_here(&Lock, &Lock) -> unsafe extern "C" fn(&Lock, &Lock, usize, usize);
    wakes_here(&Lock, bool) -> unsafe extern "C" fn(&Lock, bool, usize, usize);
}

/// How long a call waits.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Patience {
    Endless = 0,
    UntilSomeTime = TIMED,
}

/// At the start of each lock, so that the lock's address is that of the variable.
pub struct Slot(Word);

impl Slot {
    pub(crate) const fn new() -> Slot {
        #[cfg(feature = "stats")]
        return Slot(AtomicU32::new(0));
        #[cfg(not(feature = "stats"))]
        Slot(())
    }

    fn lock(&self, kind: Kind) -> Lock {
        let word = (&raw const self.0).cast::<core::sync::atomic::AtomicU32>();
        // The slot behind that of the readers is that of the writers.
        Lock::with_word(kind, word, ptr::from_ref(self).addr())
    }

    /// Acquires by `wait`; `at_once` is the same without waiting. Inlined, so that the place that waits
    /// is the caller's.
    #[inline(always)]
    pub(crate) fn acquire(
        &self,
        kind: Kind,
        patience: Patience,
        at_once: impl FnOnce() -> bool,
        wait: impl FnOnce() -> bool,
    ) -> bool {
        let Some(recorder) = recorder() else { return wait() };
        let lock = self.lock(kind).that(patience as u32);
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
            // SAFETY: the lock is there during the call.
            unsafe { happens_here(&self.lock(kind).that(TRIES), recorder.acquired) };
        }
        acquired
    }

    /// Has been acquired, after a wait for a condition.
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

/// The calling thread, a reader that has waited for that, or a writer, becomes the other: no order of locks
/// follows from it.
#[inline(always)]
pub(crate) fn becomes((from, before): (&Slot, Kind), (to, after): (&Slot, Kind)) {
    if let Some(recorder) = recorder() {
        // SAFETY: the lock is there during the calls.
        unsafe {
            happens_here(&from.lock(before), recorder.released);
            happens_here(&to.lock(after).that(TRIES), recorder.acquired);
        }
    }
}

/// The calling thread, a reader, becomes the writer by `wait`; `at_once` is the same without waiting. Whether
/// it does.
#[inline(always)]
pub(crate) fn upgrade(
    (readers, writers): (&Slot, &Slot),
    patience: Patience,
    at_once: impl FnOnce() -> bool,
    wait: impl FnOnce() -> bool,
) -> bool {
    let Some(recorder) = recorder() else { return wait() };
    let (reads, writes) =
        (readers.lock(Kind::Reader), writers.lock(Kind::Writer).that(ALLOWS | patience as u32));
    // SAFETY: the lock and the wait are there during the calls, in the order that the recorder asks for.
    unsafe {
        if at_once() {
            happens_here(&reads, recorder.released);
            happens_here(&writes, recorder.acquired);
            return true;
        }
        let mut begun = Wait([0; 7]);
        wait_begins_here(&writes, &mut begun, recorder.wait_begins);
        let upgraded = wait();
        if upgraded {
            happens_here(&reads, recorder.released);
            (recorder.acquired_after)(&writes, &mut begun);
        } else {
            (recorder.gave_up)(&writes, &mut begun);
        }
        upgraded
    }
}

/// The calling thread is about to wait for the condition variable at this address, with the mutex of this
/// slot.
#[inline(always)]
pub(crate) fn waits(condition: usize, patience: Patience, mutex: &Slot) {
    if let Some(recorder) = recorder() {
        let condition = Lock::at(Kind::Condition, condition).that(patience as u32);
        let mutex = mutex.lock(Kind::Mutex);
        // SAFETY: both are there during the call.
        unsafe { waits_here(&condition, &mutex, recorder.waits) };
    }
}

/// That wait is over, and the mutex acquired again.
#[inline(always)]
pub(crate) fn woken(condition: usize, mutex: &Slot, timed_out: bool) {
    if let Some(recorder) = recorder() {
        // SAFETY: both are there during the call.
        unsafe {
            (recorder.woken)(&Lock::at(Kind::Condition, condition), &mutex.lock(Kind::Mutex), timed_out);
        }
    }
}

/// The calling thread is about to wake one of those who wait for the condition variable at this address, or
/// all.
#[inline(always)]
pub(crate) fn wakes(condition: usize, all: bool) {
    if let Some(recorder) = recorder() {
        // SAFETY: it is there during the call.
        unsafe { wakes_here(&Lock::at(Kind::Condition, condition), all, recorder.wakes) };
    }
}

/// The condition variable at this address is dropped.
#[cfg(feature = "stats")]
pub(crate) fn condition_ends(condition: usize) {
    if let Some(recorder) = recorder() {
        // SAFETY: it is there during the call.
        unsafe { happens_here(&Lock::at(Kind::Condition, condition), recorder.destroyed) };
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
            unsafe { happens_here(&self.lock(Kind::Mutex), recorder.destroyed) };
        }
    }
}
