//! How to wait for the adaptive mutex: which of the source's patches are in force, and its constants.

use crate::platform::Tunable;

/// Which of the source's patches are in force. Functions rather than constants, so that an implementer may
/// look a choice up that was made when the program started; slow paths only ask.
pub trait Variant: 'static {
    /// Read the count before an exchange or a compare-and-swap, and do not issue one that cannot succeed
    /// (patch 2).
    fn checks_first() -> bool;
    /// Queue the spinners (patch 3).
    fn queues_spinners() -> bool;
    /// Take any negative count as a sign of waiters, not only -1 (patch 4).
    fn takes_any_negative() -> bool;
}

macro_rules! variants {
    ($($(#[$doc:meta])* $name:ident: $check:literal, $queued:literal, $any:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Variant for $name {
            #[inline(always)]
            fn checks_first() -> bool {
                $check
            }
            #[inline(always)]
            fn queues_spinners() -> bool {
                $queued
            }
            #[inline(always)]
            fn takes_any_negative() -> bool {
                $any
            }
        }
    )*};
}

variants! {
    /// Before the series: exchanges unconditionally, and every spinner competes.
    Baseline: false, false, false;
    /// Patch 2: reads before it exchanges.
    FewerAtomics: true, false, false;
    /// Patches 2 and 3: spinners wait in an MCS queue.
    McsQueue: true, true, false;
    /// Patches 2, 3 and 4: any negative count means waiters. The default.
    AnyNegative: true, true, true;
}

/// The constants of the mutex.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The first sleeper is handed the mutex after it was woken this many times in vain.
    pub handoff_after: u32,
    /// How many unlocks in a row may leave the first sleeper asleep because a spinner is about to take the
    /// mutex.
    pub bypasses_before_wake: u32,
}

impl Tunable for Tuning {
    const USER_SPACE: Tuning = Tuning {
        // With a queue of spinners a woken sleeper is served among the first few; one that was not after this
        // many wake-ups has met with something else.
        handoff_after: 16,
        // A wake-up under oversubscription costs the CPUs some 10 microseconds: two switches and the cold
        // caches. One in 256 unlocks keeps that below a few per cent of critical sections of a microsecond,
        // and still serves a sleeper every fraction of a millisecond.
        bypasses_before_wake: 256,
    };
}
