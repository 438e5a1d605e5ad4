//! An array's lock: a word that names the process that holds it, and its thread.
//!
//! ```text
//!  bits  0..15   the holder's process: its slot + 1; 0: free
//!  bits 15..30   the holder's thread: its index + 1; 0: too large to be said
//!  bit  30       there are requests for the holder (combining)
//!  bit  31       somebody may sleep for it
//! ```
//!
//! All in one word, so that there is no instruction at which a signal handler could find its own thread to
//! hold the lock and not be told so: it is refused instead of waiting for itself. Any thread may take a free
//! lock. A releaser that is killed before its wake-up delays the sleeper until it looks ([`LOOK_NS`]).

use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::layout::{CONTENDED as CONTENDED_COUNT, FREE, RECOVERIES, REMOVED, SLEPT, SPUN, WAKES, waiter};
use super::queue::SLEEPING;
use super::{Array, Error, Host, Process, Scheme};
use crate::events::Observer;
use crate::platform::{Atomic, Platform, Spin};

const CONTENDED: u32 = 1 << 31;
pub(super) const REQUESTED: u32 = 1 << 30;
const OWNER: u32 = (1 << THREAD_SHIFT) - 1;
const THREAD: u32 = (REQUESTED - 1) & !OWNER;
const THREAD_SHIFT: u32 = 15;
/// How long one sleeps for the lock before looking whether its holder is gone.
const LOOK_NS: u64 = 10_000_000;

const _: () = assert!(Process::SLOTS <= OWNER);

/// An array whose lock the caller holds.
pub(super) struct Locked<'a, H: Host> {
    array: &'a Array<'a, H>,
    pub(super) me: Process,
    /// The lock's word while it is held, without its two flags.
    mark: u32,
    /// First of those that are to be woken after the release, + 1, chained through their records.
    first: Cell<u32>,
    last: Cell<u32>,
}

impl<H: Host> Array<'_, H> {
    /// Acquires the lock, and brings the array in order if the last holder died.
    #[inline]
    pub(super) fn lock(&self) -> Result<Locked<'_, H>, Error> {
        let locked = self.unlocked()?;
        if self.attempt(&locked).is_err() {
            self.lock_slow(&locked)?;
        }
        Ok(locked)
    }

    pub(super) fn try_lock(&self) -> Result<Option<Locked<'_, H>>, Error> {
        let locked = self.unlocked()?;
        match self.attempt(&locked) {
            Ok(()) => Ok(Some(locked)),
            Err(seen) if locked.is_mine(seen) => Err(Error::Interrupted),
            Err(_) => Ok(None),
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
                // Release: the holder that clears the bit sees the request. Also if the bit was set already:
                // only a write of our own to this word comes before the holder's exchange for sure.
                return None;
            }
        }
    }

    pub(super) fn dead_holder(&self) -> bool {
        let owner = self.load(self.layout.lock) & OWNER;
        owner != 0 && H::owner_died(owner - 1)
    }

    /// The calling process has replaced its program (exec): nothing of the old one runs any more, and the
    /// adjustments stay. Takes the lock if a thread of the old program held it, and drops its sleepers. To be
    /// called before any other use of the array by the new program.
    ///
    /// # Errors
    /// As [`Array::reap`].
    pub fn succeed(&self) -> Result<(), Error> {
        let locked = self.unlocked()?;
        let lock = self.at(self.layout.lock);
        let seen = lock.load(Relaxed);
        // TAKE OVER, from a process whose threads are gone. The word cannot come back meanwhile: other
        // threads of this process do not use arrays before this is done.
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

    /// Acquires the lock if it is free; otherwise, the word as it was.
    #[inline]
    fn attempt(&self, locked: &Locked<'_, H>) -> Result<(), u32> {
        // Acquire: partner of the release in `Locked::release`.
        self.at(self.layout.lock).compare_exchange(0, locked.mark, Acquire, Relaxed)?;
        self.add_wide(FREE, 1);
        Ok(())
    }

    #[cold]
    fn lock_slow(&self, locked: &Locked<'_, H>) -> Result<(), Error> {
        let lock = self.at(self.layout.lock);
        let mark = locked.mark;
        let begin = H::Platform::now();
        let mut spin = <H::Platform as Platform>::Spin::fresh();
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
            spun.get_or_insert_with(|| H::Platform::now().saturating_sub(begin));
            // The first look costs little, and nearly always says no.
            if H::owner_died((seen & OWNER) - 1) {
                if let Some(owner) = H::taking_over(|| self.take_over(mark)) {
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
        let spun = spun.unwrap_or_else(|| H::Platform::now().saturating_sub(begin));
        self.add_wide(CONTENDED_COUNT, 1);
        self.add_wide(SPUN, spun);
        if contended != 0 {
            self.add_wide(SLEPT, 1);
        }
        if let Some(slot) = died {
            locked.make_whole();
            if H::gone(slot) {
                locked.reap(slot);
            } else {
                // It runs another program, and keeps its adjustments.
                locked.drop_sleepers(slot);
            }
        }
        Ok(())
    }

    /// TAKE OVER: the lock, if the threads of its holder are gone. Returns the holder.
    ///
    /// Called within [`Host::taking_over`], and the word is read here: if it is unchanged when it is
    /// exchanged, it still names the holder that is gone, and not a living one in the same slot with a thread
    /// of the same index.
    #[cold]
    fn take_over(&self, mark: u32) -> Option<u32> {
        let lock = self.at(self.layout.lock);
        let seen = lock.load(Relaxed);
        let owner = (seen & OWNER).checked_sub(1).filter(|owner| H::owner_died(*owner))?;
        let taken = mark | CONTENDED | seen & REQUESTED;
        // Acquire: what the dead threads wrote is ordered by `owner_died`, what another that took over in
        // between wrote by this.
        lock.compare_exchange(seen, taken, Acquire, Relaxed).is_ok().then_some(owner)
    }
}

impl<'a, H: Host> core::ops::Deref for Locked<'a, H> {
    type Target = Array<'a, H>;
    #[inline(always)]
    fn deref(&self) -> &Array<'a, H> {
        self.array
    }
}

impl<'a, H: Host> Locked<'a, H> {
    #[inline]
    fn new(array: &'a Array<'a, H>, me: Process) -> Self {
        let thread = H::Platform::current().map_or(0, |index| index + 1);
        let thread = if thread <= THREAD >> THREAD_SHIFT { thread << THREAD_SHIFT } else { 0 };
        Self { array, me, mark: (me.slot + 1) | thread, first: Cell::new(0), last: Cell::new(0) }
    }

    /// Whether the lock, with this word, is held by the very thread that wants it: the caller is a signal
    /// handler.
    fn is_mine(&self, seen: u32) -> bool {
        self.mark & THREAD != 0 && seen & (OWNER | THREAD) == self.mark
    }

    /// The sleeper is in no list any more, and that is committed: it will be woken to find `RESULT` as its
    /// state.
    pub(super) fn will_wake(&self, index: u32) {
        self.add_wide(WAKES, 1);
        let record = self.waiter(index);
        self.at(record + waiter::CHAIN).store(0, Relaxed);
        match self.last.replace(index + 1) {
            0 => self.first.set(index + 1),
            last => self.at(self.waiter(last - 1) + waiter::CHAIN).store(index + 1, Relaxed),
        }
    }

    /// Whether this critical section wakes that sleeper already.
    pub(super) fn is_chained(&self, index: u32) -> bool {
        let mut next = self.first.get();
        while next != 0 {
            if next == index + 1 {
                return true;
            }
            next = self.load(self.waiter(next - 1) + waiter::CHAIN);
        }
        false
    }

    /// Releases the lock and then wakes the sleepers that this critical section let proceed. Serves requests
    /// first, and those that came meanwhile afterwards, unless another holder will.
    #[inline]
    pub(super) fn release(self) {
        // Requests are those of this scheme only.
        if self.scheme == Scheme::Combining {
            self.release_combining()
        } else {
            self.release_once();
        }
    }

    fn release_combining(self) {
        let mut locked = self;
        let mut rounds = 0;
        loop {
            locked.drain();
            let Locked { array, me, .. } = locked;
            if !locked.release_once() {
                return;
            }
            rounds += 1;
            if rounds == H::MOST_ROUNDS {
                return array.pass_the_service_on();
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
        if self.scheme == Scheme::Before && self.first.get() != 0 {
            self.wake_all();
        }
        let lock = self.at(self.layout.lock);
        // Release: partner of the acquire in `attempt`. Acquire: of the release with which a request is
        // announced.
        let seen = lock.swap(0, AcqRel);
        if seen & CONTENDED != 0 {
            H::wake_shared(lock, 1);
        }
        if self.first.get() != 0 {
            self.wake_all();
        }
        seen & REQUESTED != 0
    }

    /// Wakes the sleepers that this critical section let proceed: tells each its result, and then wakes each
    /// group together, since the calls are what costs. Of those elsewhere it wakes one, their delegate, which
    /// wakes the others.
    #[inline(never)]
    fn wake_all(&self) {
        let mut calls = Calls { array: self.array, groups: [(0, 0); 16], used: 0 };
        let mut delegates = [Delegate::default(); DELEGATES];
        let mut used = 0;
        let mut next = self.first.replace(0);
        while next != 0 {
            let index = next - 1;
            let record = self.waiter(index);
            // ONE WAKER: before its state is set the record is not used again.
            next = self.load(record + waiter::CHAIN);
            let [place, owner] = [waiter::PLACE, waiter::OWNER].map(|at| self.load(record + at));
            let (channel, bit) = self.channel(index);
            if place != 0 && !H::is_here(place) && self.scheme != Scheme::Before {
                let like = |delegate: &&mut Delegate| {
                    (delegate.channel, delegate.place, delegate.owner) == (channel, place, owner)
                };
                if let Some(delegate) = delegates[..used].iter_mut().find(like) {
                    if self.tell(index) {
                        delegate.others |= bit;
                    }
                    continue;
                }
                if used < DELEGATES {
                    delegates[used] = Delegate { index, channel, place, owner, others: 0 };
                    used += 1;
                    continue;
                }
            }
            if self.tell(index) {
                calls.add(channel, bit);
            }
        }
        // Backwards: a sleeper has been told before its delegate is.
        for at in (0..used).rev() {
            let delegate = &delegates[at];
            let like = |other: &&Delegate| (other.place, other.owner) == (delegate.place, delegate.owner);
            let first = !delegates[..at].iter().any(|other| like(&other));
            let next = delegates[at + 1..used].iter().find(like);
            let (channel, bit) = self.channel(delegate.index);
            let mut bits = 0;
            if first && next.is_none() && delegate.others.count_ones() < H::LEAST_DUTY {
                bits = delegate.others;
            } else {
                let record = self.waiter(delegate.index);
                self.at(record + waiter::DUTY).store(delegate.others, Relaxed);
                self.at(record + waiter::NEXT_DELEGATE).store(next.map_or(0, |next| next.index + 1), Relaxed);
            }
            // If not, its process is gone, and so are those that it would wake.
            if self.tell(delegate.index) && first {
                bits |= bit;
            }
            if bits != 0 {
                calls.add(channel, bits);
            }
        }
        calls.make();
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

/// How many delegates one critical section appoints.
const DELEGATES: usize = 16;

/// One of those that slept together elsewhere.
#[derive(Clone, Copy, Default)]
struct Delegate {
    index: u32,
    channel: usize,
    place: u32,
    owner: u32,
    others: u32,
}

/// Wake-ups that are to come, a call for each channel.
struct Calls<'a, H: Host> {
    array: &'a Array<'a, H>,
    groups: [(usize, u32); 16],
    used: usize,
}

impl<H: Host> Calls<'_, H> {
    fn add(&mut self, channel: usize, bits: u32) {
        if let Some(group) = self.groups[..self.used].iter_mut().find(|group| group.0 == channel) {
            group.1 |= bits;
            return;
        }
        if self.used == self.groups.len() {
            self.make();
        }
        self.groups[self.used] = (channel, bits);
        self.used += 1;
    }

    fn make(&mut self) {
        self.array.wake(&self.groups[..self.used]);
        self.used = 0;
    }
}

impl<H: Host> Array<'_, H> {
    /// Wakes those whose delegate this sleeper has become.
    pub(super) fn serve_as_delegate(&self, index: u32) {
        let [duty, next] = [waiter::DUTY, waiter::NEXT_DELEGATE].map(|at| self.load(self.waiter(index) + at));
        if let Some(next) = next.checked_sub(1) {
            self.wake(&[self.channel(next)]);
        }
        if duty != 0 {
            self.wake(&[(self.channel(index).0, duty)]);
        }
    }

    /// Tells a sleeper its result; returns whether there still is one.
    fn tell(&self, index: u32) -> bool {
        let record = self.waiter(index);
        let result = self.load(record + waiter::RESULT);
        // Release: what was done before happens before the sleeper's return. LAST TOUCH of the record.
        let told =
            self.at(record + waiter::STATE).compare_exchange(SLEEPING, result, Release, Relaxed).is_ok();
        if !told {
            // Its process was reaped meanwhile, and left it to its waker.
            self.at(record + waiter::OWNER).store(0, Release);
        }
        told
    }

    /// Where a sleeper's thread sleeps, and as which bit.
    pub(super) fn channel(&self, index: u32) -> (usize, u32) {
        let first = index - index % waiter::GROUP;
        (self.waiter(first) + waiter::CHANNEL, 1 << (index % waiter::GROUP))
    }

    pub(super) fn wake(&self, groups: &[(usize, u32)]) {
        for &(channel, bits) in groups {
            let channel = self.at(channel);
            // Release: a sleeper that sees the new value sees what it was told. One that saw the old one
            // either sleeps by now, and is woken, or is not let sleep.
            channel.fetch_add(1, Release);
            H::wake_shared_as(channel, bits);
        }
    }
}
