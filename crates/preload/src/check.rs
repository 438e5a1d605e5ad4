//! What `POUNDLOCK_CHECK` asks for: that the order of locks and their use are checked, and what else.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use poundlock_statfile::writer::CheckRoom;

use crate::environment::variable;
use crate::{mode, stat};

/// The names of a list, and the bit of each. The first only says that there is to be a check.
const NAMES: [(&[u8], u8); 4] = [(b"1", 0), (b"semaphores", 1), (b"lone-signal", 2), (b"nesting", 4)];

/// What was asked for; valid once the mode is.
static ASKED: AtomicU8 = AtomicU8::new(0);

/// How many orders of two locks are remembered: `orders=N` in the list.
static ORDERS: AtomicU32 = AtomicU32::new(CheckRoom::DEFAULT.limit);

/// Whether a check is asked for. To be called before the statistics begin.
pub(crate) fn find_out() -> bool {
    let Some(list) = variable(c"POUNDLOCK_CHECK").filter(|list| !list.is_empty()) else { return false };
    let asked = names(list.to_bytes()).filter_map(bit).fold(0, |all, bit| all | bit);
    ASKED.store(asked, Relaxed);
    if let Some(limit) = names(list.to_bytes()).filter_map(orders).last() {
        ORDERS.store(limit, Relaxed);
    }
    true
}

fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',')
}

fn bit(name: &[u8]) -> Option<u8> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
}

fn orders(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name.strip_prefix(b"orders=")?).ok()?.parse().ok()
}

/// Whether all names of a list are known.
pub(crate) fn is_known(list: &[u8]) -> bool {
    names(list).all(|name| bit(name).is_some() || orders(name).is_some())
}

/// What fits in the file of the process.
pub(crate) fn room() -> CheckRoom {
    CheckRoom { limit: ORDERS.load(Relaxed), ..CheckRoom::DEFAULT }
}

/// Whether the process is under check.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    stat::RECORDER.checks()
}

/// Whether signals by threads are found that have never had the mutex of the waits.
pub(crate) fn lone_signals() -> bool {
    ASKED.load(Relaxed) & 2 != 0
}

/// The program says where a lock, of whatever type, stands in the order of its class: one is taken after those with
/// lower numbers.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn poundlock_check_order(lock: usize, number: core::ffi::c_ulong) {
    // Before the mode is known no program has called.
    if mode::get().counted() && is_on() {
        stat::RECORDER.placed(lock, number);
    }
}

/// Whether POSIX semaphores that begin with 1 are locks.
pub(crate) fn semaphores() -> bool {
    ASKED.load(Relaxed) & 1 != 0
}
