//! An array's lock: a word that names the process that holds it, and its thread.
//!
//! ```text
//!  bits  0..15   the holder's process: its slot + 1; 0: free
//!  bits 15..30   the holder's thread: its index + 1; 0: too large to be said
//!  bit  30       there are requests for the holder (combining)
//!  bit  31       somebody may sleep for it
//! ```
//!
//! All in one word, so that there is no instruction at which a signal handler could find its own thread to hold the lock and
//! not be told so: it is refused instead of waiting for itself.
//!
//! Its critical sections are short, except where many sleepers are looked through, and whoever holds it may be preempted
//! or killed: so one who wants it spins for a while, then looks whether the holder's process is gone, and then sleeps
//! for [`LOOK_NS`] at most. A free lock belongs to whoever takes it.
//!
//! Releases are exchanges, so that the one that clears [`CONTENDED`] sees it. A releaser that is killed before its
//! wake-up delays the sleeper until it looks.

use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::layout::{CONTENDED as CONTENDED_COUNT, FREE, RECOVERIES, REMOVED, SLEPT, SPUN, WAKES, waiter};
use super::queue::SLEEPING;
use super::{Array, Error, Host, Process, Variant};
use crate::platform::{Atomic, Spin};

/// In the lock's word: somebody may sleep for it.
const CONTENDED: u32 = 1 << 31;
/// In the lock's word: there are requests for the holder (combining).
pub(super) const REQUESTED: u32 = 1 << 30;
/// In the lock's word: the holder's slot + 1.
const OWNER: u32 = (1 << THREAD_SHIFT) - 1;
/// In the lock's word: the holder's thread, its index + 1.
const THREAD: u32 = (REQUESTED - 1) & !OWNER;
/// ... from this bit on.
const THREAD_SHIFT: u32 = 15;
/// How long one sleeps for the lock before looking whether its holder is gone.
const LOOK_NS: u64 = 10_000_000;

const _: () = assert!(Process::SLOTS <= OWNER);

/// An array whose lock the caller holds.
pub(super) struct Locked<'a, H: Host> {
    array: &'a Array<'a, H>,
    me: Process,
    /// The lock's word while it is held, without its two flags.
    mark: u32,
    /// First of those that are to be woken after the release, + 1, chained through their records.
    first: Cell<u32>,
    /// Last.
    last: Cell<u32>,
}

/// What one that wants the lock found at once.
enum Attempt {
    Acquired,
    /// The word as it was.
    Held(u32),
}

impl<H: Host> Array<'_, H> {
    /// Acquires the lock, and brings the array in order if the last holder died.
    #[inline]
    pub(super) fn lock(&self) -> Result<Locked<'_, H>, Error> {
        let locked = self.unlocked()?;
        match self.attempt(&locked) {
            Attempt::Acquired => self.add_wide(FREE, 1),
            Attempt::Held(_) => self.lock_slow(&locked)?,
        }
        Ok(locked)
    }

    /// The lock, if it is free.
    pub(super) fn try_lock(&self) -> Result<Option<Locked<'_, H>>, Error> {
        let locked = self.unlocked()?;
        match self.attempt(&locked) {
            Attempt::Acquired => {
                self.add_wide(FREE, 1);
                Ok(Some(locked))
            }
            Attempt::Held(seen) if locked.is_mine(seen) => Err(Error::Interrupted),
            Attempt::Held(_) => Ok(None),
        }
    }

    /// Announces requests to the holder of the lock; or acquires it if there is none.
    pub(super) fn announce(&self, me: Process) -> Option<Locked<'_, H>> {
        let lock = self.at(self.layout.lock);
        let locked = Locked::new(self, me);
        loop {
            let seen = lock.load(Relaxed);
            if seen & OWNER == 0 {
                // Acquire: as in `attempt`.
                if lock.compare_exchange(seen, seen | locked.mark, Acquire, Relaxed).is_ok() {
                    self.add_wide(FREE, 1);
                    return Some(locked);
                }
            } else if lock.compare_exchange(seen, seen | REQUESTED, AcqRel, Relaxed).is_ok() {
                // Release: the holder that clears the bit sees the request. Also if somebody had set the bit already: only a
                // write of our own to this word comes before the holder's exchange for sure.
                return None;
            }
        }
    }

    /// The holder of the lock, if its threads are gone.
    pub(super) fn dead_holder(&self) -> bool {
        let owner = self.at(self.layout.lock).load(Relaxed) & OWNER;
        owner != 0 && H::deserted(owner - 1)
    }

    /// The calling process has replaced its program (exec): nothing of the old one runs any more, and the adjustments stay. Takes
    /// the lock if a thread of the old program held it, and drops its sleepers. To be called before any other use of the
    /// array by the new program.
    ///
    /// # Errors
    /// As [`Array::bury`].
    pub fn succeed(&self) -> Result<(), Error> {
        let locked = self.unlocked()?;
        let lock = self.at(self.layout.lock);
        let seen = lock.load(Relaxed);
        // TAKE OVER, from a process that is gone as far as its threads are.
        let taken = seen & OWNER == locked.me.slot + 1
            && lock.compare_exchange(seen, locked.mark | seen & !(OWNER | THREAD), Acquire, Relaxed).is_ok();
        if taken {
            locked.make_whole();
        } else {
            self.lock_slow(&locked)?;
        }
        locked.drop_sleepers(locked.me.slot);
        locked.release();
        Ok(())
    }

    #[inline]
    fn unlocked(&self) -> Result<Locked<'_, H>, Error> {
        Ok(Locked::new(self, H::process().ok_or(Error::NoSpace)?))
    }

    #[inline]
    fn attempt(&self, locked: &Locked<'_, H>) -> Attempt {
        // Acquire: partner of the release in `Locked::release`.
        match self.at(self.layout.lock).compare_exchange(0, locked.mark, Acquire, Relaxed) {
            Ok(_) => Attempt::Acquired,
            Err(seen) => Attempt::Held(seen),
        }
    }

    #[cold]
    fn lock_slow(&self, locked: &Locked<'_, H>) -> Result<(), Error> {
        let lock = self.at(self.layout.lock);
        let mark = locked.mark;
        let begin = H::now();
        let mut spin = H::spin();
        let mut spun = None;
        // Once one has slept, others may sleep behind it.
        let mut contended = 0;
        let died = loop {
            let seen = lock.load(Relaxed);
            if seen & OWNER == 0 {
                // Acquire: as in `attempt`. Requests stay announced.
                if lock.compare_exchange(seen, mark | contended | seen & REQUESTED, Acquire, Relaxed).is_ok()
                {
                    break None;
                }
                continue;
            }
            if locked.is_mine(seen) {
                return Err(Error::Interrupted);
            }
            if spin.spin() {
                continue;
            }
            spun.get_or_insert_with(|| H::now().saturating_sub(begin));
            let owner = (seen & OWNER) - 1;
            if H::deserted(owner) {
                // TAKE OVER. Acquire: what the dead threads wrote is ordered by `deserted`, what another that took over
                // in between wrote by this.
                let taken = mark | CONTENDED | seen & REQUESTED;
                if lock.compare_exchange(seen, taken, Acquire, Relaxed).is_ok() {
                    break Some(owner);
                }
                continue;
            }
            if seen & CONTENDED == 0
                && lock.compare_exchange(seen, seen | CONTENDED, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            H::wait_shared(lock, seen | CONTENDED, LOOK_NS);
            contended = CONTENDED;
        };
        let spun = spun.unwrap_or_else(|| H::now().saturating_sub(begin));
        self.add_wide(CONTENDED_COUNT, 1);
        self.add_wide(SPUN, spun);
        if contended != 0 {
            self.add_wide(SLEPT, 1);
        }
        if let Some(slot) = died {
            locked.make_whole();
            if H::gone(slot) {
                locked.bury(slot);
            } else {
                // It runs another program, and keeps its adjustments.
                locked.drop_sleepers(slot);
            }
        }
        Ok(())
    }
}

impl<'a, H: Host> Locked<'a, H> {
    /// For a caller that is about to acquire the lock.
    #[inline]
    fn new(array: &'a Array<'a, H>, me: Process) -> Self {
        let thread = H::current().map_or(0, |index| index + 1);
        let thread = if thread <= THREAD >> THREAD_SHIFT { thread << THREAD_SHIFT } else { 0 };
        Self { array, me, mark: (me.slot + 1) | thread, first: Cell::new(0), last: Cell::new(0) }
    }

    /// Whether the lock, with this word, is held by the very thread that wants it: the caller is a signal handler.
    fn is_mine(&self, seen: u32) -> bool {
        self.mark & THREAD != 0 && seen & (OWNER | THREAD) == self.mark
    }

    /// The calling process.
    pub(super) fn me(&self) -> Process {
        self.me
    }

    /// The array.
    pub(super) fn array(&self) -> &'a Array<'a, H> {
        self.array
    }

    /// See [`Array::at`].
    #[inline(always)]
    pub(super) fn at(&self, offset: usize) -> &H::U32 {
        self.array.at(offset)
    }

    /// The sleeper is in no list any more, and that is committed: it will be woken to find `RESULT` as its state.
    pub(super) fn will_wake(&self, index: u32) {
        self.array.add_wide(WAKES, 1);
        let record = self.array.waiter(index);
        self.at(record + waiter::CHAIN).store(0, Relaxed);
        match self.last.replace(index + 1) {
            0 => self.first.set(index + 1),
            last => self.at(self.array.waiter(last - 1) + waiter::CHAIN).store(index + 1, Relaxed),
        }
    }

    /// Releases the lock and then wakes whom this critical section let proceed. Serves requests first, and those that
    /// came meanwhile afterwards, unless another holder will.
    #[inline]
    pub(super) fn release(self) {
        // Requests are those of this variant only.
        if self.array.variant == Variant::Combining {
            self.release_combining()
        } else {
            self.release_once();
        }
    }

    fn release_combining(self) {
        let mut locked = self;
        loop {
            locked.drain();
            let Locked { array, me, .. } = locked;
            if !locked.release_once() {
                return;
            }
            match array.announce(me) {
                Some(again) => locked = again,
                None => return,
            }
        }
    }

    /// As [`Self::release`], whatever is requested; returns whether something was meanwhile.
    #[inline]
    fn release_once(&self) -> bool {
        debug_assert_eq!(self.load(super::layout::JOURNAL_LENGTH), 0, "released in a transaction");
        if self.array.variant == Variant::Before && self.first.get() != 0 {
            self.wake_all();
        }
        let lock = self.at(self.array.layout.lock);
        // Release: partner of the acquire in `attempt`. Acquire: of the release with which a request is announced.
        let seen = lock.swap(0, AcqRel);
        if seen & CONTENDED != 0 {
            H::wake_shared(lock, 1);
        }
        if self.first.get() != 0 {
            self.wake_all();
        }
        seen & REQUESTED != 0
    }

    /// Wakes whom this critical section let proceed: tells each its result, and then wakes those of a group together, since it is
    /// the calls that cost.
    #[inline(never)]
    fn wake_all(&self) {
        const GROUPS: usize = 16;
        let mut groups = [(0, 0); GROUPS];
        let mut used = 0;
        let mut next = self.first.replace(0);
        while next != 0 {
            let index = next - 1;
            // ONE WAKER: before its state is set the record is not used again.
            next = self.at(self.array.waiter(index) + waiter::CHAIN).load(Relaxed);
            if !self.array.tell(index) {
                continue;
            }
            let (channel, bit) = self.array.channel(index);
            match groups[..used].iter_mut().find(|group| group.0 == channel) {
                Some(group) => group.1 |= bit,
                None => {
                    if used == GROUPS {
                        self.array.wake(&groups);
                        used = 0;
                    }
                    groups[used] = (channel, bit);
                    used += 1;
                }
            }
        }
        self.array.wake(&groups[..used]);
    }

    /// The last holder did not release the lock: finishes or takes back what it was doing.
    fn make_whole(&self) {
        self.roll_back();
        self.apply_staged();
        self.adjust_all();
        self.at(RECOVERIES).store(self.load(RECOVERIES).wrapping_add(1), Relaxed);
        if self.load(REMOVED) != 0 {
            self.refuse_everybody();
        }
        // First what it made possible; what its end does, and those that came later, after that.
        self.settle_everything();
    }
}

impl<H: Host> Array<'_, H> {
    /// Tells a sleeper its result; returns whether there still is one.
    fn tell(&self, index: u32) -> bool {
        let record = self.waiter(index);
        let result = self.at(record + waiter::RESULT).load(Relaxed);
        // Release: what was done before happens before the sleeper's return. LAST TOUCH of the record.
        let told =
            self.at(record + waiter::STATE).compare_exchange(SLEEPING, result, Release, Relaxed).is_ok();
        if !told {
            // Its process was buried meanwhile, and left it to its waker.
            self.at(record + waiter::OWNER).store(0, Release);
        }
        told
    }

    /// Where a sleeper's thread sleeps, and as which bit.
    pub(super) fn channel(&self, index: u32) -> (usize, u32) {
        let first = index - index % waiter::GROUP;
        (self.waiter(first) + waiter::CHANNEL, 1 << (index % waiter::GROUP))
    }

    /// Wakes these bits of these channels.
    pub(super) fn wake(&self, groups: &[(usize, u32)]) {
        for &(channel, bits) in groups {
            let channel = self.at(channel);
            // Release: a sleeper that sees the new value sees what it was told. One that saw the old one either sleeps by now, and
            // is woken, or is not let sleep.
            channel.fetch_add(1, Release);
            H::wake_shared_as(channel, bits);
        }
    }
}

impl<H: Host> Locked<'_, H> {
    /// Whether this critical section wakes that sleeper already.
    pub(super) fn is_chained(&self, index: u32) -> bool {
        let mut next = self.first.get();
        while next != 0 {
            if next == index + 1 {
                return true;
            }
            next = self.load(self.array().waiter(next - 1) + waiter::CHAIN);
        }
        false
    }
}
