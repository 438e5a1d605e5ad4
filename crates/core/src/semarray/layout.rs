//! Where everything is in an array's memory, in words.
//!
//! ```text
//!  lock line       the lock, by itself (unless the scheme shares the line)
//!  constants       what is set once
//!  state           what every operation writes: journal length, times, statistics
//!  lists           heads of the sleepers' and adjustments' lists
//!  journal         entries of two words
//!  undo index      by process slot, of the first thousand: its undo slot + 1
//!  semaphores      eight words each
//!  staging         a new value for each semaphore
//!  undo slots      owner, links, an adjustment for each semaphore
//!  waiters         32 words each, 6 operations inline
//!  large lists     operations of waiters that have more
//! ```
//!
//! Only the part before the staging area is there from the start; the rest is provided as it is first used,
//! so the file is sparse.

use super::{MOST_OPERATIONS, MOST_SEMAPHORES, Scheme};

/// Words in a cache line.
const LINE: usize = 16;

/// First word of an array: which program's memory this is.
pub(super) const MAGIC_VALUE: u32 = 0x504c_5341;
/// Changes whenever the layout does.
pub(super) const VERSION_VALUE: u32 = 2;

/// Names words one after the other; `: 2` for a number of two, the low half first.
macro_rules! words {
    ($at:expr; $(#[$doc:meta])* $name:ident $(: $words:literal)?, $($rest:tt)*) => {
        $(#[$doc])*
        pub(super) const $name: usize = $at;
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
    /// [`MAGIC_VALUE`], once the array is whole.
    MAGIC,
    /// [`VERSION_VALUE`].
    VERSION,
    /// How many semaphores.
    SEMAPHORES,
    /// The [`Scheme`].
    SCHEME,
    /// The key under which it was made.
    KEY,
    /// Its maker's user.
    CUID,
    /// Its maker's group.
    CGID,
    /// When it was made: nanoseconds of the monotonic clock.
    BORN: 2,
}

words! { 2 * LINE;
    /// Entries in the journal. 0: nothing is half done.
    JOURNAL_LENGTH,
    /// When an operation last succeeded: seconds.
    OPERATED: 2,
    /// Acquisitions of the lock that found it free.
    FREE: 2,
    /// ... that did not.
    CONTENDED: 2,
    /// Nanoseconds that those spun.
    SPUN: 2,
    /// ... that slept.
    SLEPT: 2,
    /// Non-zero: removed. Never changes back.
    REMOVED,
    /// What is being set, whatever the semaphores hold: [`STAGED_ALL`], to what is in the staging area; or
    /// one semaphore, its number + 1, to [`STAGED_VALUE`]. 0: nothing.
    STAGED,
    /// First undo slot with an adjustment, + 1.
    ACTIVE,
    /// The lock, where it shares this line.
    SHARED_LOCK,
}

words! { 3 * LINE;
    /// First sleeper that wants to change something, + 1, of all, in the order of their coming.
    ALL_HEAD,
    /// Last.
    ALL_TAIL,
    /// First sleeper of several operations that changes nothing, + 1.
    CONST_HEAD,
    /// Last.
    CONST_TAIL,
    /// How many of those in the list of all have several operations.
    MULTIPLE,
    /// How many sleepers there are in any list.
    SLEEPERS,
    /// Waiters that were ever used.
    WAITERS_HIGH,
    /// Undo slots that were ever used.
    UNDO_HIGH,
    /// Large lists that were ever used.
    LARGE_HIGH,
    /// The sleeper that looks for deaths more often than the others, + 1.
    SENTINEL,
    /// Non-zero: a process has had adjustments.
    UNDO_USED,
    /// Last pushed request, + 1 (combining).
    REQUESTS,
    /// With `STAGED`: who sets the values, a process number.
    STAGER,
    /// With `STAGED`: the value for a single semaphore.
    STAGED_VALUE,
    /// The process whose adjustments are being applied, its slot + 1. 0: none.
    LEAVING,
    /// How many of `MULTIPLE` heed values that fall: they also wait for zero, or must not wait for some
    /// operation.
    MIXED,
}

words! { 4 * LINE;
    /// The owner's user.
    UID,
    /// The owner's group.
    GID,
    /// Permission bits.
    MODE,
    /// How often these three were changed.
    SETTINGS,
    /// When something was last set: seconds.
    CHANGED: 2,
    /// Where to look for a free waiter first: a hint.
    NEXT_WAITER,
    /// Sleepers woken.
    WAKES: 2,
    /// Operations that had to sleep.
    SLEEPS: 2,
    /// Locks taken over from processes that were gone.
    RECOVERIES,
    /// Operations of others that a combiner served.
    SERVED: 2,
}

/// First word of the journal.
pub(super) const JOURNAL: usize = 5 * LINE;
/// Entries that fit: for each operation the value, the process and an adjustment, and the links of a sleeper,
/// an undo slot.
pub(super) const JOURNAL_ENTRIES: usize = 3 * MOST_OPERATIONS + 100;
/// First word of the undo index.
pub(super) const UNDO_INDEX: usize = (JOURNAL + 2 * JOURNAL_ENTRIES).next_multiple_of(LINE);
/// Processes that it knows. The undo slots of others are searched for.
pub(super) const INDEXED: usize = 1024;
/// First word of the semaphores.
pub(super) const FIRST_SEMAPHORE: usize = (UNDO_INDEX + INDEXED).next_multiple_of(LINE);

/// Words of a semaphore.
pub(super) mod semaphore {
    /// Words in all.
    pub(in super::super) const SIZE: usize = 8;
    /// Its value.
    pub(in super::super) const VALUE: usize = 0;
    /// The process that used it last.
    pub(in super::super) const PROCESS: usize = 1;
    /// First sleeper, + 1, of those whose one operation takes from it.
    pub(in super::super) const TAKE_HEAD: usize = 2;
    /// Last.
    pub(in super::super) const TAKE_TAIL: usize = 3;
    /// First sleeper, + 1, of those whose one operation waits until it is zero.
    pub(in super::super) const ZERO_HEAD: usize = 4;
    /// Last.
    pub(in super::super) const ZERO_TAIL: usize = 5;
}

/// Words of an undo slot.
pub(super) mod undo {
    /// The process's slot + 1; 0: free.
    pub(in super::super) const OWNER: usize = 0;
    /// Its process number.
    pub(in super::super) const PROCESS: usize = 1;
    /// How many adjustments are not zero. In the active list if this is not zero.
    pub(in super::super) const COUNT: usize = 2;
    /// Next in the active list, + 1.
    pub(in super::super) const NEXT: usize = 3;
    /// Previous in the active list, + 1.
    pub(in super::super) const PREVIOUS: usize = 4;
    /// First adjustment.
    pub(in super::super) const ADJUSTMENTS: usize = 5;
}

/// Words of a waiter.
pub(super) mod waiter {
    /// Words in all.
    pub(in super::super) const SIZE: usize = 32;
    /// What became of its thread's call: see [`sleep`](super::super::sleep).
    pub(in super::super) const STATE: usize = 0;
    /// The process's slot + 1; 0: free.
    pub(in super::super) const OWNER: usize = 1;
    /// Its process number.
    pub(in super::super) const PROCESS: usize = 2;
    /// How many operations.
    pub(in super::super) const COUNT: usize = 3;
    /// Which of them could not be applied when it last was tried.
    pub(in super::super) const BLOCKING: usize = 4;
    /// Its undo slot + 1; 0: no adjustments.
    pub(in super::super) const UNDO: usize = 5;
    /// In which lists it is.
    pub(in super::super) const LISTS: usize = 6;
    /// Next in the list of its semaphore, or in that of constants, + 1.
    pub(in super::super) const NEXT: usize = 7;
    /// Previous there.
    pub(in super::super) const PREVIOUS: usize = 8;
    /// Next in the list of all, + 1.
    pub(in super::super) const ALL_NEXT: usize = 9;
    /// Previous there.
    pub(in super::super) const ALL_PREVIOUS: usize = 10;
    /// What will be its state, once it is in no list any more.
    pub(in super::super) const RESULT: usize = 11;
    /// The process that took it out of the lists and will wake it: slot + 1.
    pub(in super::super) const WAKER: usize = 12;
    /// Next of those that are to be woken, + 1; or next request.
    pub(in super::super) const CHAIN: usize = 13;
    /// Its large list + 1; 0: the operations are inline.
    pub(in super::super) const LARGE: usize = 14;
    /// Non-zero: it is a request that was not served yet (combining);
    /// [`ITS_TURN`](super::super::sleep::ITS_TURN): its thread is to see to that.
    pub(in super::super) const ASKED: usize = 15;
    /// In the first of each [`GROUP`]: on which the threads of the group sleep; changes whenever one of them
    /// is to wake.
    pub(in super::super) const CHANNEL: usize = 16;
    /// So many records are a group, each with a bit of its own.
    pub(in super::super) const GROUP: u32 = 32;
    /// Where its thread ran when it came: [`Host::place`](super::super::Host::place).
    pub(in super::super) const PLACE: usize = 17;
    /// Which others of its group its thread wakes when it has been told its result, as bits: it is their
    /// *delegate*.
    pub(in super::super) const DUTY: usize = 18;
    /// Another delegate that it wakes as well, + 1.
    pub(in super::super) const NEXT_DELEGATE: usize = 19;
    /// The first operation, two words each.
    pub(in super::super) const OPERATIONS: usize = 20;
    /// How many fit.
    pub(in super::super) const INLINE: usize = 6;
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
