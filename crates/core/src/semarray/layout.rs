//! Where everything is in an array's memory, in words.
//!
//! One after the other: the lock, what is set once, what every operation writes, heads of lists, settings
//! and statistics, the journal (entries of two words), the undo index (by process slot, of the first
//! thousand: its undo slot + 1), the semaphores, a staging area (a new value for each), undo slots, waiters,
//! large lists.
//!
//! Only the part before the staging area is there from the start; the rest is provided as it is first used,
//! so the file is sparse.

use super::{MOST_OPERATIONS, MOST_SEMAPHORES, Scheme};

const LINE: usize = 16;

/// First word of an array: which program's memory this is.
pub(super) const MAGIC_VALUE: u32 = 0x504c_5341;
/// Changes whenever the layout does.
pub(super) const VERSION_VALUE: u32 = 2;

/// Names words one after the other; `: 2` for a number of two, the low half first.
macro_rules! words {
    ($at:expr; $name:ident $(: $words:literal)?, $($rest:tt)*) => {
        pub(in crate::semarray) const $name: usize = $at;
        words!($at + words!(@ $($words)?); $($rest)*);
    };
    ($end:expr;) => {};
    (@) => { 1 };
    (@ $words:literal) => { $words };
}

/// In `STAGED`: every semaphore.
pub(super) const STAGED_ALL: u32 = u32::MAX;

/// The lock, where it has a line of its own.
pub(super) const LOCK: usize = 0;

words! { LINE;
    MAGIC, // `MAGIC_VALUE`, once the array is whole.
    VERSION, // `VERSION_VALUE`.
    SEMAPHORES, // How many semaphores.
    SCHEME, // The `Scheme`.
    KEY, // The key under which it was made.
    CUID, // Its maker's user.
    CGID, // Its maker's group.
    BORN: 2, // When it was made: nanoseconds of the monotonic clock.
}

words! { 2 * LINE;
    JOURNAL_LENGTH, // Entries in the journal. 0: nothing is half done.
    OPERATED: 2, // When an operation last succeeded: seconds.
    FREE: 2, // Acquisitions of the lock that found it free.
    CONTENDED: 2, // ... that did not.
    SPUN: 2, // Nanoseconds that those spun.
    SLEPT: 2, // ... that slept.
    REMOVED, // Non-zero: removed. Never changes back.
    // What is being set, whatever the semaphores hold: `STAGED_ALL`, to what is in the staging area; or
    // one semaphore, its number + 1, to `STAGED_VALUE`. 0: nothing.
    STAGED,
    ACTIVE, // First undo slot with an adjustment, + 1.
    SHARED_LOCK, // The lock, where it shares this line.
}

words! { 3 * LINE;
    ALL_HEAD, // First sleeper that wants to change something, + 1, of all, in the order of their coming.
    ALL_TAIL, // Last.
    CONST_HEAD, // First sleeper of several operations that changes nothing, + 1.
    CONST_TAIL, // Last.
    MULTIPLE, // How many of those in the list of all have several operations.
    SLEEPERS, // How many sleepers there are in any list.
    WAITERS_HIGH, // Waiters that were ever used.
    UNDO_HIGH, // Undo slots that were ever used.
    LARGE_HIGH, // Large lists that were ever used.
    SENTINEL, // The sleeper that looks for deaths more often than the others, + 1.
    UNDO_USED, // Non-zero: a process has had adjustments.
    REQUESTS, // Last pushed request, + 1 (combining).
    STAGER, // With `STAGED`: who sets the values, a process number.
    STAGED_VALUE, // With `STAGED`: the value for a single semaphore.
    LEAVING, // The process whose adjustments are being applied, its slot + 1. 0: none.
    // How many of `MULTIPLE` heed values that fall: they also wait for zero, or must not wait for some
    // operation.
    MIXED,
}

words! { 4 * LINE;
    UID, // The owner's user.
    GID, // The owner's group.
    MODE, // Permission bits.
    SETTINGS, // How often these three were changed.
    CHANGED: 2, // When something was last set: seconds.
    NEXT_WAITER, // Where to look for a free waiter first: a hint.
    WAKES: 2, // Sleepers woken.
    SLEEPS: 2, // Operations that had to sleep.
    RECOVERIES, // Locks taken over from processes that were gone.
    SERVED: 2, // Operations of others that a combiner served.
}

pub(super) const JOURNAL: usize = 5 * LINE;
/// Entries that fit: for each operation the value, the process and an adjustment, and the links of a sleeper,
/// an undo slot.
pub(super) const JOURNAL_ENTRIES: usize = 3 * MOST_OPERATIONS + 100;
pub(super) const UNDO_INDEX: usize = (JOURNAL + 2 * JOURNAL_ENTRIES).next_multiple_of(LINE);
/// Processes that it knows. The undo slots of others are searched for.
pub(super) const INDEXED: usize = 1024;
pub(super) const FIRST_SEMAPHORE: usize = (UNDO_INDEX + INDEXED).next_multiple_of(LINE);

pub(super) mod semaphore {
    pub(in crate::semarray) const SIZE: usize = 8;

    words! { 0;
        VALUE, // Its value.
        PROCESS, // The process that used it last.
        TAKE_HEAD, // First sleeper, + 1, of those whose one operation takes from it.
        TAKE_TAIL, // Last.
        ZERO_HEAD, // First sleeper, + 1, of those whose one operation waits until it is zero.
        ZERO_TAIL, // Last.
    }
}

pub(super) mod undo {
    words! { 0;
        OWNER, // The process's slot + 1; 0: free.
        PROCESS, // Its process number.
        COUNT, // How many adjustments are not zero. In the active list if this is not zero.
        NEXT, // Next in the active list, + 1.
        PREVIOUS, // Previous in the active list, + 1.
        ADJUSTMENTS, // First adjustment.
    }
}

pub(super) mod waiter {
    pub(in crate::semarray) const SIZE: usize = 32;
    /// So many records are a group, each with a bit of its own.
    pub(in crate::semarray) const GROUP: u32 = 32;
    pub(in crate::semarray) const INLINE: usize = 6;

    words! { 0;
        STATE, // What became of its thread's call: see `sleep`.
        OWNER, // The process's slot + 1; 0: free.
        PROCESS, // Its process number.
        COUNT, // How many operations.
        BLOCKING, // Which of them could not be applied when it last was tried.
        UNDO, // Its undo slot + 1; 0: no adjustments.
        LISTS, // In which lists it is.
        NEXT, // Next in the list of its semaphore, or in that of constants, + 1.
        PREVIOUS, // Previous there.
        ALL_NEXT, // Next in the list of all, + 1.
        ALL_PREVIOUS, // Previous there.
        RESULT, // What will be its state, once it is in no list any more.
        WAKER, // The process that took it out of the lists and will wake it: slot + 1.
        CHAIN, // Next of those that are to be woken, + 1; or next request.
        LARGE, // Its large list + 1; 0: the operations are inline.
        // Non-zero: it is a request that was not served yet (combining); `ITS_TURN`: its thread is to see
        // to that.
        ASKED,
        // In the first of each `GROUP`: on which the threads of the group sleep; changes whenever one of
        // them is to wake.
        CHANNEL,
        PLACE, // Where its thread ran when it came: `Host::place`.
        // Which others of its group its thread wakes when it has been told its result, as bits: it is
        // their *delegate*.
        DUTY,
        NEXT_DELEGATE, // Another delegate that it wakes as well, + 1.
        OPERATIONS, // The first operation, two words each.
    }
}

/// Words of a large list of operations: its owner's slot + 1, and the operations.
pub(super) const LARGE_SIZE: usize = (1 + 2 * MOST_OPERATIONS).next_multiple_of(LINE);
/// Sleepers that there can be.
pub(super) const WAITERS: usize = 1 << 15;
/// Of those, the ones with more operations than fit inline.
pub(super) const LARGE_LISTS: usize = 512;
/// Words that undo slots may take, unless they would be very few.
const UNDO_WORDS: usize = 1 << 24;

/// Where the parts of an array of that many semaphores lie.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub(super) semaphores: usize,
    pub(super) lock: usize,
    pub(super) staging: usize,
    pub(super) undo_slots: usize,
    pub(super) undo_size: usize,
    pub(super) undo_count: usize,
    pub(super) waiters: usize,
    pub(super) large: usize,
    words: usize,
}

impl Layout {
    /// That of an array of that many semaphores, 1 to [`MOST_SEMAPHORES`].
    pub const fn new(semaphores: u32, scheme: Scheme) -> Self {
        let semaphores = if semaphores > MOST_SEMAPHORES { MOST_SEMAPHORES } else { semaphores } as usize;
        let staging = (FIRST_SEMAPHORE + semaphores * semaphore::SIZE).next_multiple_of(LINE);
        let undo_slots = (staging + semaphores).next_multiple_of(LINE);
        let undo_size = (undo::ADJUSTMENTS + semaphores).next_multiple_of(LINE);
        let fit = UNDO_WORDS / undo_size;
        let undo_count = if fit > 8192 { 8192 } else { fit };
        let waiters = undo_slots + undo_size * undo_count;
        let large = waiters + WAITERS * waiter::SIZE;
        Self {
            semaphores,
            lock: if scheme.shares_line() { SHARED_LOCK } else { LOCK },
            staging,
            undo_slots,
            undo_size,
            undo_count,
            waiters,
            large,
            words: large + LARGE_LISTS * LARGE_SIZE,
        }
    }

    /// Words in all.
    pub const fn words(&self) -> usize {
        self.words
    }

    /// Words that must be there, and zero, before [`Array::format`](super::Array::format).
    pub const fn initial(&self) -> usize {
        self.staging
    }
}

const _: () = {
    assert!(SHARED_LOCK < 3 * LINE && MIXED < 4 * LINE && SERVED + 1 < 5 * LINE && BORN + 1 < 2 * LINE);
    assert!(waiter::OPERATIONS + 2 * waiter::INLINE == waiter::SIZE);
    assert!(Layout::new(MOST_SEMAPHORES, Scheme::After).undo_count >= 500);
};
