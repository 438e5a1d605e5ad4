//! The bias of releases: a plain store, until the first sleep.
//!
//! While no thread has ever slept in a lock, the word of its wait lock is 0 and its owner need not look for
//! sleepers: a plain store of 0 releases it ([`Platform::release`], if the platform has it). The store may
//! wipe out what newcomers have written to the word meanwhile. Each newcomer is on its way to an attempt of
//! its own, so nothing is lost yet.
//!
//! The first thread that is about to sleep here revokes the bias. It sets `REVOKING`, so that no later
//! release takes that way. Then comes the asymmetric fence ([`Platform::fence`]), which returns when the
//! releases under way are over. Then it sets `BIAS_REVOKED`. A thread that sees that bit comes after the
//! fence. From then on what the word says of sleepers stays until the owner acts on it. So a lock pays for a
//! fence once, at its first sleep, and before that an unlock costs a store.

use core::sync::atomic::Ordering::{Acquire, SeqCst};

use crate::platform::{Atomic, Platform};

/// In the wait lock's word: every release is a read-modify-write. Set once.
pub(crate) const BIAS_REVOKED: u32 = 1 << 29;
/// In the wait lock's word: about to become so. Set once.
pub(crate) const REVOKING: u32 = 1 << 28;
/// Both.
pub(crate) const BITS: u32 = BIAS_REVOKED | REVOKING;

/// Releases by a plain store of 0, if the bias allows it. LAST TOUCH, if it returns true.
#[inline(always)]
pub(crate) fn release<P: Platform>(word: &P::U32, wait_lock: &P::U32) -> bool {
    P::release(word, wait_lock)
}

/// QUIET: after this no plain release is under way, nor will one be.
#[inline]
pub(crate) fn revoke<P: Platform>(wait_lock: &P::U32) {
    // Acquire: a thread that sees the bit comes after the fence.
    if wait_lock.load(Acquire) & BIAS_REVOKED == 0 {
        revoke_slow::<P>(wait_lock);
    }
}

#[cold]
fn revoke_slow<P: Platform>(wait_lock: &P::U32) {
    // Sequentially consistent: before the fence, and before the platform reads whether any thread releases
    // that way at all.
    wait_lock.fetch_or(REVOKING, SeqCst);
    P::fence();
    wait_lock.fetch_or(BIAS_REVOKED, SeqCst);
}
