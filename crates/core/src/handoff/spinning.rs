//! How long a locker spins for a hand-off mutex before it queues.

use super::HANDED_OVER;
use crate::platform::{Platform, Running, Spin, Tunable};

/// The constants of the policies.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// How many turns a spinner lets pass from one look at the mutex to the next.
    pub turns_a_look: u32,
}

impl Tunable for Tuning {
    const USER_SPACE: Tuning = Tuning {
        // A look takes the line from the owner, which is about to write to it several times: with a look a
        // turn, two threads that take turns at it get only a third to a half of the throughput.
        turns_a_look: 16,
    };
}

/// How long a locker spins before it queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Spinning {
    /// [`NoSpin`]
    None = 0,
    /// [`Fixed`]
    Fixed = 1,
    /// [`OwnerRunning`]
    OwnerRunning = 2,
    /// [`SameCpu`]
    SameCpu = 3,
    /// [`Competitive`]
    Competitive = 4,
    /// [`Adaptive`]
    Adaptive = 5,
}

/// The policy of spinning. A function, so that an implementer may look a choice up that was made when the
/// program started; slow paths only ask.
pub trait Policy: 'static {
    /// Which.
    fn spinning() -> Spinning;
}

macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident: $spinning:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Policy for $name {
            #[inline(always)]
            fn spinning() -> Spinning {
                Spinning::$spinning
            }
        }
    )*};
}

policies! {
    /// Queues at once.
    NoSpin: None;
    /// A fixed number of turns, whatever happens: the source's patch.
    Fixed: Fixed;
    /// As [`Competitive`], but no longer than the owner is known to run: not if it was handed the lock and
    /// has not woken, nor if its CPU is ours.
    OwnerRunning: OwnerRunning;
    /// A fixed number of turns, but no longer than the owner was last seen on another CPU.
    SameCpu: SameCpu;
    /// The budget of [`Spin::measured`], twice: what a sleep and a wake-up have cost of late, on both sides.
    /// So a wait takes at most twice as long as if its length had been known (Karlin et al., SODA 1990).
    Competitive: Competitive;
    /// The part of [`Competitive`]'s budget that spinning at this lock has deserved of late, now and then the
    /// whole, and no longer than the owner runs.
    Adaptive: Adaptive;
}

/// Turns of [`Fixed`] and [`SameCpu`]: the source's.
const FIXED_TURNS: u32 = 10_000;

/// What [`Adaptive`] knows of a lock: bits 0 to 7, the share of waits of late that spinning did not end, in
/// 256ths; bits 8 to 15, how many in a row. 0, a new lock, is trusted.
#[derive(Clone, Copy)]
pub(super) struct Experience(pub(super) u32);

impl Experience {
    /// After this many failures in a row the whole budget is tried once more: a lock may be in a state in
    /// which all threads sleep because none spins, and the other way round.
    const PROBE: u32 = 8;

    fn failed_share(self) -> u32 {
        self.0 & 0xff
    }

    fn in_a_row(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    /// The part of the budget to spin, in 256ths. At least an eighth: a short critical section ends within
    /// that.
    fn part(self) -> u32 {
        if self.in_a_row() % Self::PROBE == Self::PROBE - 1 {
            256
        } else {
            (256 - self.failed_share()).max(32)
        }
    }

    /// A moving average over eight waits.
    pub(super) fn after(self, acquired: bool) -> Experience {
        let share = self.failed_share();
        if acquired {
            Experience(share - share.div_ceil(8))
        } else {
            Experience((share + (255 - share) / 8) | ((self.in_a_row() + 1) & 0xff) << 8)
        }
    }
}

/// One wait's spinning.
pub(super) struct Spell<P: Platform> {
    spinning: Spinning,
    budget: P::Spin,
    fixed: u32,
}

impl<P: Platform> Spell<P> {
    /// `None` if there is to be no spinning.
    pub(super) fn begin(spinning: Spinning, learnt: impl Fn() -> u32) -> Option<Self> {
        if spinning == Spinning::None {
            return None;
        }
        let mut budget = P::Spin::measured();
        // Each look spends one turn, and passes several. Twice the budget in all: a hand-over to a sleeper
        // costs its waker about as much as the sleeper.
        budget.cut(256 * 2 / P::tuning::<Tuning>().turns_a_look.max(2));
        if spinning == Spinning::Adaptive {
            budget.cut(Experience(learnt()).part());
        }
        // Used up at once where spinning cannot help.
        budget.spin().then_some(Spell { spinning, budget, fixed: FIXED_TURNS })
    }

    /// Spins until the next look. False if that was the last one; `owner` is the owner's tag.
    pub(super) fn goes_on(&mut self, owner: u32) -> bool {
        let Tuning { turns_a_look } = P::tuning();
        let gone = match self.spinning {
            Spinning::None | Spinning::Fixed | Spinning::Competitive => false,
            // Handed over: a wake-up is under way, and takes no longer than the budget.
            Spinning::SameCpu | Spinning::Adaptive => {
                owner != HANDED_OVER && P::running(owner) == Running::No
            }
            Spinning::OwnerRunning => owner == HANDED_OVER || P::running(owner) == Running::No,
        };
        let spent = match self.spinning {
            Spinning::Fixed | Spinning::SameCpu => {
                P::stall(0);
                self.fixed = self.fixed.saturating_sub(turns_a_look);
                self.fixed == 0
            }
            _ => !self.budget.spin(),
        };
        if gone || spent {
            return false;
        }
        for _ in 1..turns_a_look {
            P::stall(0);
        }
        true
    }
}
