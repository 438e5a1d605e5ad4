//! Locks of ours that the program is linked with, counted beside those that it does not know of.

use poundlock_linux::statistics::{
    ALLOWS, Lock, READS, READS_FAIRLY, SYMBOL, Statistics, TIMED, TRIES, Wait as Room,
};
use poundlock_statfile::LockKind;

use poundlock_statfile::writer::Wait;

use super::{CallSite, LockRef, Manner, Mode};
use crate::mode;

/// What the program's locks look for when it starts.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol of C's")]
pub(crate) static poundlock_statistics_3: Statistics =
    Statistics { counts, acquired, wait_begins, acquired_after, gave_up, released, destroyed };

const _: () = {
    assert!(READS == Mode::Read as u32 && READS_FAIRLY == Mode::FairRead as u32);
    assert!(SYMBOL.to_bytes().len() == b"poundlock_statistics_3".len());
    assert!(size_of::<Wait>() <= size_of::<Room>() && align_of::<Wait>() <= align_of::<Room>());
};

extern "C" fn counts() -> bool {
    mode::get().counted()
}

/// # Safety
/// The lock's word is there for `'a`.
#[inline(always)]
unsafe fn counted(lock: &Lock) -> LockRef<'_> {
    // SAFETY: the caller's.
    let (word, writers) = unsafe { (&*lock.word, lock.writers.as_ref()) };
    LockRef { word, address: lock.address, kind: LockKind::from_byte(lock.kind as u8), writers }
}

fn manner(lock: &Lock) -> Manner {
    Manner {
        mode: Mode::from_byte(lock.how as u8),
        tries: lock.how & TRIES != 0,
        allows: lock.how & ALLOWS != 0,
        timed: lock.how & TIMED != 0,
    }
}

unsafe extern "C" fn acquired(lock: &Lock, pc: usize, sp: usize) {
    // SAFETY: the caller's lock.
    super::RECORDER.acquired(unsafe { counted(lock) }, CallSite { pc, sp }, manner(lock));
}

unsafe extern "C" fn wait_begins(lock: &Lock, room: &mut Room, pc: usize, sp: usize) {
    // SAFETY: the caller's lock.
    let wait = super::RECORDER.wait_begin(unsafe { counted(lock) }, CallSite { pc, sp }, manner(lock));
    // SAFETY: room enough.
    unsafe { core::ptr::from_mut(room).cast::<Wait>().write(wait) };
}

unsafe extern "C" fn acquired_after(lock: &Lock, room: &mut Room) {
    // SAFETY: the caller's lock, and what `wait_begins` has put there, once.
    unsafe {
        let wait = core::ptr::from_mut(room).cast::<Wait>().read();
        let pc = wait.pc();
        super::RECORDER.acquired_after_wait(counted(lock), wait, CallSite::at(pc), manner(lock));
    };
}

unsafe extern "C" fn gave_up(lock: &Lock, room: &mut Room) {
    // SAFETY: as above.
    unsafe { super::RECORDER.abandoned_wait(counted(lock), core::ptr::from_mut(room).cast::<Wait>().read()) };
}

unsafe extern "C" fn released(lock: &Lock, pc: usize, sp: usize) {
    // SAFETY: the caller's lock.
    super::RECORDER.released(unsafe { counted(lock) }, CallSite { pc, sp });
}

unsafe extern "C" fn destroyed(lock: &Lock) {
    // SAFETY: the caller's lock.
    super::RECORDER.destroyed(unsafe { counted(lock) }, CallSite::at(0));
}
