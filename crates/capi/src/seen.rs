//! What `poundlock stat` and `poundlock check` see of the locks.
//!
//! In a process that is measured each call tells the recorder of the preloaded library what becomes of which
//! lock, and where in the program. The types have no room for a word of the recorder's: it knows them by
//! their addresses. In every other process the lock and the unlock of a mutex are the same instructions as
//! without this: one that is measured is none of the [usual](poundlock_linux::tls::is_usual) processes, for
//! which they look first. The other calls compare a word.
//!
//! Each function has a second one, of the same name with `_seen`, to which it goes on by a jump before it has
//! a stack frame: so the place in the program is found where it would be without it.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{clockid_t, timespec};
use poundlock_core::condvar::{Guarding, Requeued, Target};
use poundlock_core::platform::Deadline;
use poundlock_linux::Linux;
pub(crate) use poundlock_linux::statistics::{ALLOWS, Kind, Lock, TIMED, TRIES};
use poundlock_linux::statistics::{Statistics, Wait};

use crate::time;

/// The recorder of this process; null if it is not measured.
static RECORDER: AtomicPtr<Statistics> = AtomicPtr::new(ptr::null_mut());

/// Looks for the recorder: this is its table, or null.
///
/// # Safety
/// As [`Statistics::of_this_process`].
#[cfg(cargo_c)]
pub(crate) unsafe fn look(table: *const Statistics) {
    // SAFETY: the caller's.
    if unsafe { Statistics::of_this_process(table) }.is_some() {
        RECORDER.store(table.cast_mut(), Relaxed);
        poundlock_linux::tls::choose(1);
    }
}

/// Whether this process is measured.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    !RECORDER.load(Relaxed).is_null()
}

/// Defines `$name`, with the arguments of the function that goes on to it, which calls `$body` with two more:
/// the return address and the stack pointer of the caller.
macro_rules! seen {
    ($($name:ident($($arg:ty),*) -> $count:tt, $body:path;)*) => {$(
        #[unsafe(naked)]
        unsafe extern "C" fn $name($(_: $arg),*) -> ::core::ffi::c_int {
            ::poundlock_linux::go_on!($count, $body)
        }
    )*};
}
pub(crate) use seen;

/// A call of the program's, in a process that is measured.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    recorder: &'static Statistics,
    pc: usize,
    sp: usize,
}

impl Call {
    /// The one with this return address, and this stack pointer after its return. `None` if the process is
    /// not measured, where nobody gets here.
    pub(crate) fn at(pc: usize, sp: usize) -> Option<Call> {
        // SAFETY: null, or a table of a library that stays, which nobody writes to.
        let recorder = unsafe { RECORDER.load(Relaxed).as_ref() }?;
        Some(Call { recorder, pc, sp })
    }
}

// SAFETY, here and below: locks and waits are there during the calls, which come in the order that the
// recorder asks for.

/// Acquires it by `wait`; `at_once` is the same without waiting.
pub(crate) fn acquire(
    call: Option<Call>,
    lock: Lock,
    at_once: impl FnOnce() -> bool,
    wait: impl FnOnce() -> bool,
) -> bool {
    let Some(Call { recorder, pc, sp }) = call else { return wait() };
    // SAFETY: as above.
    unsafe {
        if at_once() {
            (recorder.acquired)(&lock, pc, sp);
            return true;
        }
        let mut begun = Wait([0; 7]);
        (recorder.wait_begins)(&lock, &mut begun, pc, sp);
        let acquired = wait();
        let ended = if acquired { recorder.acquired_after } else { recorder.gave_up };
        ended(&lock, &mut begun);
        acquired
    }
}

/// As [`acquire`], by a wait that ends at a time of the program's; what C is told of it.
///
/// # Safety
/// As [`time::until`].
pub(crate) unsafe fn acquire_until(
    call: Option<Call>,
    lock: Lock,
    (clock, abstime): (clockid_t, *const timespec),
    at_once: impl FnOnce() -> bool,
    wait: impl FnOnce(&Deadline) -> bool,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        time::until(clock, abstime, |deadline| acquire(call, lock.that(TIMED), at_once, || wait(deadline)))
    }
}

/// A call that does not wait has acquired it, or not.
pub(crate) fn tried(call: Option<Call>, lock: Lock, acquired: bool) -> bool {
    if let Some(Call { recorder, pc, sp }) = call.filter(|_| acquired) {
        // SAFETY: as above.
        unsafe { (recorder.acquired)(&lock.that(TRIES), pc, sp) };
    }
    acquired
}

/// Is about to be released, if it `is_held` by anybody.
pub(crate) fn releases(call: Option<Call>, lock: Lock, is_held: bool) {
    if let Some(Call { recorder, pc, sp }) = call {
        let released = if is_held { recorder.released } else { recorder.released_free };
        // SAFETY: as above.
        unsafe { released(&lock, pc, sp) };
    }
}

/// Its release is refused: another thread has it, or nobody.
pub(crate) fn refuses(call: Option<Call>, lock: Lock, is_held: bool) {
    if let Some(Call { recorder, pc, sp }) = call {
        let refused = if is_held { recorder.not_released } else { recorder.released_free };
        // SAFETY: as above.
        unsafe { refused(&lock, pc, sp) };
    }
}

/// Is initialised.
pub(crate) fn made(call: Option<Call>, lock: Lock) {
    if let Some(Call { recorder, pc, sp }) = call {
        // SAFETY: as above.
        unsafe { (recorder.created)(&lock, pc, sp) };
    }
}

/// Is destroyed, or in use and not destroyed.
pub(crate) fn ends(call: Option<Call>, lock: Lock, is_used: bool) {
    if let Some(Call { recorder, pc, sp }) = call {
        let ended = if is_used { recorder.not_destroyed } else { recorder.destroyed };
        // SAFETY: as above.
        unsafe { ended(&lock, pc, sp) };
    }
}

/// The calling thread, which has the lock in one way, has it in another one from here on. It has waited for
/// that before: no order of locks follows from it.
pub(crate) fn becomes(call: Option<Call>, before: Lock, after: Lock) {
    releases(call, before, true);
    tried(call, after, true);
}

/// The calling thread, a reader, becomes the writer by `wait`; `at_once` is the same without waiting.
pub(crate) fn upgrade(
    call: Option<Call>,
    (reads, writes): (Lock, Lock),
    at_once: impl FnOnce() -> bool,
    wait: impl FnOnce() -> bool,
) -> bool {
    let reads_until = |upgraded: bool| {
        if upgraded {
            releases(call, reads, true);
        }
        upgraded
    };
    acquire(call, writes.that(ALLOWS), || reads_until(at_once()), || reads_until(wait()))
}

/// Threads that wait for the condition variable are about to be woken: one, or all.
pub(crate) fn wakes(call: Option<Call>, condition: Lock, all: bool) {
    if let Some(Call { recorder, pc, sp }) = call {
        // SAFETY: as above.
        unsafe { (recorder.wakes)(&condition, all, pc, sp) };
    }
}

/// Waits for a condition variable with this mutex, by `wait`, which is given the mutex to do it with. Whether
/// it was signalled.
pub(crate) fn await_with<G: Guarding<Linux>>(
    call: Call,
    condition: Lock,
    mutex: Lock,
    guarding: G,
    wait: impl FnOnce(&Guarded<G>) -> bool,
) -> bool {
    let Call { recorder, pc, sp } = call;
    // SAFETY: as above.
    unsafe { (recorder.waits)(&condition, &mutex, pc, sp) };
    let signalled = wait(&Guarded { guarding, mutex, call });
    // SAFETY: as above.
    unsafe { (recorder.woken)(&condition, &mutex, !signalled) };
    signalled
}

/// A mutex, whose release and acquisition by a wait for a condition variable are told.
pub(crate) struct Guarded<G> {
    guarding: G,
    mutex: Lock,
    call: Call,
}

impl<G> Guarded<G> {
    fn acquired(&self) {
        let Call { recorder, pc, sp } = self.call;
        // SAFETY: as above.
        unsafe { (recorder.acquired)(&self.mutex, pc, sp) };
    }
}

impl<G: Guarding<Linux>> Guarding<Linux> for Guarded<G> {
    fn mutex(&self) -> Option<Target<'_, Linux>> {
        self.guarding.mutex()
    }

    fn release(&self) {
        releases(Some(self.call), self.mutex, true);
        self.guarding.release();
    }

    fn acquire(&self) {
        self.guarding.acquire();
        self.acquired();
    }

    fn acquire_requeued(&self, waiter: Requeued) {
        self.guarding.acquire_requeued(waiter);
        self.acquired();
    }
}
