//! Locks of ours that the program is linked with, counted beside those that it does not know of.
//!
//! Whoever has room for a word of the recorder's in its locks lends it one; what has none (the C library's
//! types, and condition variables) is found by its address, as the program's spinlocks are.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use poundlock_linux::statistics::{
    ALLOWS, Kind, Lock, READS, READS_FAIRLY, SYMBOL, Statistics, TIMED, TRIES, VERSION, WRITERS, Wait as Room,
};
use poundlock_statfile::LockKind;
use poundlock_statfile::writer::Wait;

use super::{CallSite, Ended, LockRef, Manner, Mode, RECORDER, Wake};
use crate::{check, environment, mode};

/// What the program's locks look for when it starts.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol of C's")]
pub(crate) static poundlock_statistics: Statistics = Statistics {
    version: VERSION,
    of_another_version,
    counts,
    acquired,
    wait_begins,
    acquired_after,
    gave_up,
    released,
    released_free,
    not_released,
    created,
    destroyed,
    not_destroyed,
    waits,
    woken,
    wakes,
};

const _: () = {
    assert!(READS == Mode::Read as u32 && READS_FAIRLY == Mode::FairRead as u32);
    assert!(SYMBOL.to_bytes().len() == b"poundlock_statistics".len());
    assert!(size_of::<Wait>() <= size_of::<Room>() && align_of::<Wait>() <= align_of::<Room>());
    assert!(WRITERS == LockKind::WRITERS);
    assert!(
        Kind::Mutex as u32 == LockKind::Mutex as u32 && Kind::Spinlock as u32 == LockKind::Spinlock as u32
    );
    assert!(
        Kind::Reader as u32 == LockKind::RwReaders as u32
            && Kind::Writer as u32 == LockKind::RwWriters as u32
    );
    assert!(Kind::Condition as u32 == LockKind::Condition as u32);
};

extern "C" fn counts() -> bool {
    mode::get().counted()
}

/// Once for the process, and only if there is something to see.
extern "C" fn of_another_version(version: u32) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if mode::get().counted() && !SAID.swap(true, Relaxed) {
        let age: &[u8] = if version < VERSION { b"an older" } else { b"a newer" };
        let rest = b" version of Poundlock than the command's, and are not seen: build it with the command's version";
        environment::complain(&[b"locks that the program is linked with are of ", age, rest]);
    }
}

/// # Safety
/// The lock's word is there for `'a`, if it has one.
#[inline(always)]
unsafe fn counted(lock: &Lock) -> LockRef<'_> {
    let kind = LockKind::from_byte(lock.kind as u8);
    // SAFETY: the caller's.
    let (word, writers) = unsafe { (lock.word.as_ref(), lock.writers.as_ref()) };
    match word {
        Some(word) => LockRef { word, address: lock.address, kind, writers },
        None => by_address(lock.address, kind),
    }
}

/// As [`counted`], of a lock that is asked for: one that finds no room is missing under check.
///
/// # Safety
/// As [`counted`].
#[inline(always)]
unsafe fn asked_for(lock: &Lock) -> LockRef<'_> {
    // SAFETY: the caller's.
    let counted = unsafe { counted(lock) };
    if check::is_on() && super::is_others(counted.word) {
        RECORDER.no_room();
    }
    counted
}

fn by_address(address: usize, kind: LockKind) -> LockRef<'static> {
    if kind != LockKind::RwReaders {
        return super::at(address, kind);
    }
    let writers = super::at(address + LockKind::WRITERS, LockKind::RwWriters);
    // Under check a readers-writer lock is one lock: that of its writers.
    if check::is_on() { writers } else { LockRef { writers: Some(writers.word), ..super::at(address, kind) } }
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
    RECORDER.acquired(unsafe { asked_for(lock) }, CallSite { pc, sp }, manner(lock));
}

unsafe extern "C" fn wait_begins(lock: &Lock, room: &mut Room, pc: usize, sp: usize) {
    // SAFETY: the caller's lock.
    let wait = RECORDER.wait_begin(unsafe { asked_for(lock) }, CallSite { pc, sp }, manner(lock));
    // SAFETY: room enough.
    unsafe { core::ptr::from_mut(room).cast::<Wait>().write(wait) };
}

unsafe extern "C" fn acquired_after(lock: &Lock, room: &mut Room) {
    // SAFETY: the caller's lock, and what `wait_begins` has put there, once.
    unsafe {
        let wait = core::ptr::from_mut(room).cast::<Wait>().read();
        let pc = wait.pc();
        RECORDER.acquired_after_wait(counted(lock), wait, CallSite::at(pc), manner(lock));
    };
}

unsafe extern "C" fn gave_up(lock: &Lock, room: &mut Room) {
    // SAFETY: as above.
    unsafe { RECORDER.abandoned_wait(counted(lock), core::ptr::from_mut(room).cast::<Wait>().read()) };
}

unsafe extern "C" fn released(lock: &Lock, pc: usize, sp: usize) {
    // SAFETY: the caller's lock.
    RECORDER.released(unsafe { counted(lock) }, CallSite { pc, sp });
}

unsafe extern "C" fn released_free(lock: &Lock, pc: usize, sp: usize) {
    // SAFETY: the caller's lock.
    RECORDER.released_free(unsafe { counted(lock) }, CallSite { pc, sp });
}

unsafe extern "C" fn not_released(lock: &Lock, pc: usize, sp: usize) {
    // SAFETY: the caller's lock.
    RECORDER.not_released(unsafe { counted(lock) }, CallSite { pc, sp });
}

/// The kinds by which what has no word is counted, each with its address.
fn parts(lock: &Lock) -> [Option<(usize, LockKind)>; 2] {
    let kind = LockKind::from_byte(lock.kind as u8);
    let readers = (kind == LockKind::RwWriters && !check::is_on())
        .then(|| (lock.address - LockKind::WRITERS, LockKind::RwReaders));
    [Some((lock.address, kind)), readers]
}

unsafe extern "C" fn created(lock: &Lock, pc: usize, sp: usize) {
    let site = CallSite { pc, sp };
    if lock.word.is_null() {
        for (address, kind) in parts(lock).into_iter().flatten() {
            super::created_at(address, kind, site);
        }
    } else {
        // SAFETY: the caller's lock.
        RECORDER.created(unsafe { counted(lock) }, site);
    }
}

unsafe extern "C" fn destroyed(lock: &Lock, pc: usize, sp: usize) {
    let site = CallSite { pc, sp };
    if lock.word.is_null() {
        for (address, kind) in parts(lock).into_iter().flatten() {
            super::ended_at(address, kind, site);
        }
    } else {
        // SAFETY: the caller's lock.
        RECORDER.destroyed(unsafe { counted(lock) }, site);
    }
}

unsafe extern "C" fn not_destroyed(lock: &Lock, pc: usize, sp: usize) {
    // SAFETY: the caller's lock.
    RECORDER.not_destroyed(unsafe { counted(lock) }, CallSite { pc, sp });
}

unsafe extern "C" fn waits(condition: &Lock, mutex: &Lock, pc: usize, sp: usize) {
    // SAFETY: the caller's.
    unsafe { RECORDER.waits_with(counted(condition), counted(mutex), CallSite { pc, sp }) };
    if condition.how & TIMED != 0 {
        RECORDER.wait_is_timed();
    }
}

unsafe extern "C" fn woken(condition: &Lock, mutex: &Lock, timed_out: bool) {
    let how = if timed_out { Ended::TimedOut } else { Ended::Done };
    RECORDER.unblocked(how);
    // SAFETY: the caller's.
    unsafe { RECORDER.woken_with(counted(condition), counted(mutex), how) };
}

unsafe extern "C" fn wakes(condition: &Lock, all: bool, pc: usize, sp: usize) {
    let whom = if all { Wake::All } else { Wake::One };
    // SAFETY: the caller's.
    RECORDER.wakes(unsafe { counted(condition) }, whom, CallSite { pc, sp });
}
