//! The 4-byte queue spinlock: native, virtual and paravirtual.
//!
//! After Waiman Long's and Peter Zijlstra's series "qspinlock: a 4-byte queue spinlock with PV support"
//! (Linux, 2015), brought to user space. An uncontended acquisition is one compare-and-swap, a release of the
//! native form one byte store; waiters beyond the first queue, each spinning on a cache line of its own,
//! named in the lock by half a word. Of the paravirtual form the compare-and-swap is of the low byte, which
//! is all that a release stores ([`Split::take_low_byte`]).
//!
//! # The word
//!
//! | field | meaning | who changes it |
//! | --- | --- | --- |
//! | `LOCKED` | held | set: see each form; cleared: the holder |
//! | `SLOW`, `PASSES` | the rest of the low byte; paravirtual only: see [`paravirt`] | |
//! | [`PENDING`](Layout::PENDING) | one waiter spins on the word itself | a waiter that finds it clear |
//! | [`HALTS`](Layout::HALTS) | heads halt here; paravirtual only | the first head that does, for good |
//! | [`EPOCH`](Layout::EPOCH) | the process whose waiters the other fields speak of | `RawSpin::renew` |
//! | [`USER`](Layout::USER) | a mark of the lock's user | not changed |
//! | [`TAIL`](Layout::TAIL) | the last node of the queue | a waiter that queues; the head, if it is last |
//!
//! # The forms
//!
//! [`Native`], [`Virtual`] and [`Paravirtual`] are three ways to wait for the same word, [`NativeNuma`] and
//! [`ParavirtualNuma`] two of them with a queue in another order (`numa.rs`); [`ChosenForm`] says which. A
//! program chooses one for all its locks when it starts, and asks in slow paths only. In the paravirtual form
//! overtaking is bounded while sections are no longer than a spin.
//!
//! # Releasing
//!
//! The native and virtual forms store 0 to the low byte. The paravirtual form has to see `SLOW`, and a plain
//! look before a plain store could miss it. As long as no queue head has halted in the lock, the halts bit is
//! clear, and a release is that look and that store all the same ([`Split::release_low_byte`]). The first
//! head that halts here sets the bit. Every later owner sees it, and releases by a compare-and-swap of the
//! low byte. So there is one release that may have looked before the bit and store after it, that of the
//! thread which holds the lock at this moment; and it may wipe out `SLOW`. The head that has set the bit
//! allows for that: until it has acquired the lock, and the release is over, it looks now and then
//! ([`Until::Nanoseconds`](crate::platform::Until)) instead of relying on its kick.
//!
//! # Forks, handlers
//!
//! In a forked child the tail, the pending bit and the rest of the low byte may speak of threads that do not
//! exist there. The epoch tells, and the first thread in a slow path clears them, in one step with its own
//! epoch. A thread has [`LEVELS`] nodes, so that a signal handler may lock while its thread waits for another
//! lock. What is beyond these (an epoch that came round, a fifth level) is in docs/QSPIN.md, "Limits".
//!
//! Proof: crates/core/src/qspin/native.rs, crates/core/src/qspin/paravirt.rs, crates/core/src/qspin/numa.rs
//! Models: crates/model/tests/models/qspin.rs, crates/model/tests/models/qspin_paravirt.rs
//! Stress: crates/sim/src/check/mod.rs, crates/cli/src/torture.rs

pub mod hash;
mod layout;
mod native;
mod numa;
pub mod paravirt;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use hash::Halting;
use layout::{LOCKED, LOW_BYTE};
pub use layout::{Large, Layout, Small};

use crate::events::{Event, count};
use crate::node::{Held, LEVELS};
use crate::platform::{Atomic, ConstAtomic, Platform, Split, Tunable};

/// How a program's queue spinlocks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// [`Native`]
    Native = 0,
    /// [`Virtual`]
    Virtual = 1,
    /// [`Paravirtual`]
    Paravirtual = 2,
    /// [`NativeNuma`]
    NativeNuma = 3,
    /// [`ParavirtualNuma`]
    ParavirtualNuma = 4,
}

impl Form {
    /// Every form, the most careful first.
    pub const ALL: [Form; 5] =
        [Self::Paravirtual, Self::ParavirtualNuma, Self::Virtual, Self::Native, Self::NativeNuma];

    /// Whether waiters of one node of memory go one after another.
    pub const fn is_numa(self) -> bool {
        matches!(self, Self::NativeNuma | Self::ParavirtualNuma)
    }

    /// Whether a waiter halts when it has spun for long.
    pub const fn halts(self) -> bool {
        matches!(self, Self::Paravirtual | Self::ParavirtualNuma)
    }
}

/// The way in which a program's queue spinlocks wait. A function rather than a constant, so that an
/// implementer may look a choice up that was made when the program started; only slow paths ask, and the
/// release where no constant answers.
pub trait ChosenForm: 'static {
    /// Which.
    fn form() -> Form;
}

macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl ChosenForm for $name {
            #[inline(always)]
            fn form() -> Form {
                Form::$name
            }
        }
    )*};
}

forms! {
    /// Waiters spin, in the order in which they came, and keep their CPUs: for threads that have a CPU each.
    Native;
    /// Waiters test and set in no order, giving up their CPUs when the holder does not run: where threads may
    /// be preempted and nothing better is to be had.
    Virtual;
    /// Waiters spin for a while, then halt until they are kicked: where threads may be preempted.
    Paravirtual;
    /// As [`Native`], but waiters of one node of memory go one after another for a while.
    NativeNuma;
    /// As [`Paravirtual`], but waiters of one node of memory come to the head of the queue one after another
    /// for a while.
    ParavirtualNuma;
}

/// The constants of the spinlock.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// How often a newcomer looks at a native lock without waiters before it sets the pending bit.
    pub optimistic_looks: u32,
    /// After how many kicks in vain a halted queue head reserves the next acquisition.
    pub handoff_after: u32,
    /// How many unlocks in a row may leave the head halted because a pending waiter is about to take the
    /// lock; 63 at most.
    pub bypasses_before_wake: u32,
    /// For how long waiters of one node of memory may go before those of others that came earlier, in units
    /// of 1024 ns.
    pub batch: u32,
}

impl Tunable for Tuning {
    const USER_SPACE: Tuning = Tuning {
        // A critical section of a few dozen instructions is over by then, and its lock changes hands by one
        // read-modify-write rather than three. It costs order only among threads that come within that time.
        optimistic_looks: 4,
        // Each kick in vain is a wake-up, some 10 microseconds: the head has waited for some tenths of a
        // millisecond.
        handoff_after: 16,
        // A wake-up under oversubscription costs the CPUs some 10 microseconds, which this keeps below a few
        // per cent of sections of a microsecond.
        bypasses_before_wake: 256,
        // Some hundred short sections, so that a batch pays for the waiters that its first heads look past;
        // and with 8 nodes everybody's turn comes some 50 times in 100 ms. A millisecond gives up to a sixth
        // more throughput (docs/notebook/QSPIN.md), and lets the running threads of one node have most of a
        // lock.
        batch: 250,
    };
}

/// The queue spinlock: 4 bytes, zero (or `MARK`) when unlocked. An unlocked one may be moved, copied and
/// freed.
///
/// Every method takes the [`ChosenForm`] as a parameter, because a program chooses it once for all its locks;
/// all calls on one lock must name the same one. `L` is the word's [`Layout`]. `MARK` is kept in the
/// [`Layout::USER`] bits, for a user that must tell its words from others; it is checked by nothing but the
/// fast paths.
///
/// No method allocates, panics or unwinds; none is async-signal-safe with respect to the same lock, all are
/// with respect to others.
#[repr(transparent)]
pub struct RawSpin<P: Platform, L: Layout = Small, const MARK: u32 = 0> {
    word: P::U32,
    _layout: PhantomData<L>,
}

impl<P: Platform, L: Layout, const MARK: u32> Default for RawSpin<P, L, MARK> {
    fn default() -> Self {
        RawSpin { word: P::U32::new(MARK), _layout: PhantomData }
    }
}

impl<P: Platform, L: Layout> RawSpin<P, L>
where
    P::U32: ConstAtomic,
{
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawSpin { word: P::U32::ZERO, _layout: PhantomData }
    }
}

impl<P: Halting, L: Layout, const MARK: u32> RawSpin<P, L, MARK> {
    const CHECKED: () = {
        layout::check::<L>();
        assert!(MARK & !L::USER == 0, "a mark outside the user's bits");
    };

    /// Makes it an unlocked lock, whatever it was. No other thread may use it meanwhile.
    pub fn init(&self) {
        self.word.store(MARK, Relaxed);
    }

    /// Acquires the lock, waiting as long as it takes. What the last owner did happens before the return. A
    /// thread that holds it already waits for ever.
    #[inline]
    pub fn lock<F: ChosenForm>(&self) {
        if !self.take_as::<F>() {
            self.lock_slow::<F>();
        }
    }

    /// The fast path of `F`.
    #[inline(always)]
    fn take_as<F: ChosenForm>(&self) -> bool {
        match F::form() {
            Form::Native | Form::NativeNuma | Form::Virtual => self.take(),
            Form::Paravirtual | Form::ParavirtualNuma => self.take_paravirtual(),
        }
    }

    /// The slow half of [`RawSpin::lock`], for a caller that has made the fast one ([`RawSpin::take`])
    /// itself.
    #[inline]
    pub fn lock_slow<F: ChosenForm>(&self) {
        match F::form() {
            Form::Native => self.lock_native::<false>(),
            Form::NativeNuma => self.lock_native::<true>(),
            Form::Virtual => self.lock_virtual(),
            Form::Paravirtual => self.lock_paravirtual::<false>(),
            Form::ParavirtualNuma => self.lock_paravirtual::<true>(),
        }
    }

    /// Acquires the lock if its word is just the mark: one compare-and-swap, whatever the form. False says
    /// little: the lock may be free for [`RawSpin::try_lock`]. Synchronises as [`RawSpin::lock`] when true.
    #[inline(always)]
    pub fn take(&self) -> bool {
        const { Self::CHECKED };
        self.word.compare_exchange(MARK, MARK | LOCKED, Acquire, Relaxed).is_ok()
    }

    /// As [`RawSpin::take`], for a caller that knows that the form is the paravirtual one, in which any
    /// thread may take a free lock: a look at the rest of the word, and a compare-and-swap of the low byte,
    /// which is all that a release writes. A waiter that comes between the two is overtaken once.
    #[inline(always)]
    pub fn take_paravirtual(&self) -> bool {
        const { Self::CHECKED };
        self.word.take_low_byte(MARK, LOCKED as u8)
    }

    /// Acquires the lock if it is free; false if it is held, or, in the native and virtual forms, waited for.
    /// Synchronises as [`RawSpin::lock`] when true.
    #[inline]
    pub fn try_lock<F: ChosenForm>(&self) -> bool {
        self.take_as::<F>() || self.try_lock_again::<F>()
    }

    fn try_lock_again<F: ChosenForm>(&self) -> bool {
        self.renew();
        match F::form() {
            Form::Native | Form::NativeNuma | Form::Virtual => self.take_if_idle(),
            Form::Paravirtual | Form::ParavirtualNuma => self.steal(),
        }
    }

    /// Releases the lock, which the caller holds. What the caller did happens before the next acquisition.
    /// The lock may be destroyed and freed by another thread as soon as it can acquire it.
    #[inline]
    pub fn unlock<F: ChosenForm>(&self) {
        match F::form() {
            Form::Native | Form::NativeNuma | Form::Virtual => self.word.store_low_byte(0, Release),
            Form::Paravirtual | Form::ParavirtualNuma => {
                if !self.release() {
                    self.unlock_again();
                }
            }
        }
    }

    /// Releases the lock if its word is just the mark and held; a plain store is enough for that, whatever
    /// the form: the fast half of [`RawSpin::unlock`], for a caller that goes on to that if it returns false.
    #[inline(always)]
    pub fn release(&self) -> bool {
        self.word.release_low_byte((LOCKED | MARK) as u16)
    }

    #[inline]
    fn unlock_again(&self) {
        let seen = self.word.load(Relaxed);
        if seen & (LOW_BYTE | L::HALTS) == LOCKED {
            // As `release`, with other fields in use.
            self.word.store_low_byte(0, Release);
        } else if self.word.compare_exchange_low_byte(LOCKED as u8, 0, Release, Relaxed).is_err() {
            self.unlock_paravirtual();
        }
    }

    /// Whether the lock is held at this moment.
    pub fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & LOCKED != 0
    }

    /// The word as it is at this moment, for a user that has to look at its mark.
    #[inline(always)]
    pub fn word(&self) -> u32 {
        self.word.load(Relaxed)
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Makes the waiters' fields this process's own. See the module's documentation.
    #[inline]
    fn renew(&self) {
        let epoch = P::epoch() << L::EPOCH.trailing_zeros() & L::EPOCH;
        // Relaxed: what is dropped was never written in this process.
        let _ = self.word.update(Relaxed, |seen| {
            (seen & L::EPOCH != epoch).then_some(seen & (LOCKED | L::HALTS | L::USER) | epoch)
        });
    }
}

/// A node to queue with, and its tail; `None` if the thread has to do without.
fn queued<P: Platform, L: Layout>() -> Option<(Held<P>, u32)> {
    let place = Held::take().and_then(|held| Some((layout::tail_of::<L>(held.id)?, held)));
    match place {
        Some((own, held)) => {
            count::<P>(Event::queued_at((held.id.raw() - 1) % LEVELS));
            Some((held, own))
        }
        None => {
            count::<P>(Event::NoNode);
            None
        }
    }
}
