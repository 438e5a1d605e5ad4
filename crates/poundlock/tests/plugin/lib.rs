//! A plugin with two mutexes, unloaded by `tests/capi/unload.c`.

use poundlock::RawMutex;
use poundlock::lock_api::RawMutex as _;

static MUTEXES: [RawMutex; 2] = [RawMutex::INIT, RawMutex::INIT];

/// Locks one of the two.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_lock(which: i32) {
    MUTEXES[which as usize].lock();
}

/// Unlocks one of the two, which the calling thread has locked.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_unlock(which: i32) {
    // SAFETY: the caller's.
    unsafe { MUTEXES[which as usize].unlock() };
}
