//! The one list of lock names: what `--lock` and `--rwlock` take and `poundlock locks` prints.
#![no_std]

use poundlock_core::handoff::Spinning;
use poundlock_core::qspin::Form;
use poundlock_core::rwlock::Preference;

/// What people choose by name among what [`poundlock_core`] has.
pub trait Named: Copy + 'static {
    /// Each of them, in the order in which they are listed.
    const LISTED: &'static [Self];

    /// The name as people type it.
    fn name(self) -> &'static str;

    /// One line on what it is.
    fn description(self) -> &'static str;

    /// The one of that name.
    fn parse(name: &str) -> Option<Self> {
        Self::LISTED.iter().copied().find(|one| one.name() == name)
    }
}

macro_rules! locks {
    ($($(#[$doc:meta])* $lock:ident = $number:literal, $name:literal, $description:literal;)*) => {
        /// A mutex that a program can be run on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum LockName {
            $($(#[$doc])* $lock = $number,)*
        }

        impl LockName {
            /// Every lock, in the order in which they are listed.
            pub const ALL: [LockName; [$($number),*].len()] = [$(Self::$lock),*];

            /// The name as people type it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$lock => $name,)*
                }
            }

            /// One line on what the lock is.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$lock => $description,)*
                }
            }
        }
    };
}

locks! {
    /// [`poundlock_core::poundlock`].
    Poundlock = 11, "poundlock",
        "barging mutex: taken by whoever finds it free; one waiter is awake, the others sleep";
    /// [`poundlock_core::adaptive::AnyNegative`]
    AnyNegative = 3, "any-negative", "mcs-queue that takes any negative count as a sign of waiters";
    /// [`poundlock_core::adaptive::McsQueue`]
    McsQueue = 2, "mcs-queue", "fewer-atomics with its spinners in an MCS queue: one competes at a time";
    /// [`poundlock_core::adaptive::FewerAtomics`]
    FewerAtomics = 1, "fewer-atomics", "baseline that reads the count before each exchange";
    /// [`poundlock_core::adaptive::Baseline`]
    Baseline = 0, "baseline", "adaptive mutex; every spinner competes, exchanges unconditionally";
    /// [`poundlock_core::handoff`], spinning as [`poundlock_core::handoff::Fixed`] says.
    Handoff = 5, "handoff", "passed from owner to waiter; spins a fixed number of turns, then queues";
    /// [`poundlock_core::handoff`], not spinning.
    HandoffNone = 6, "handoff:none", "handoff that queues at once";
    /// [`poundlock_core::handoff`], as [`poundlock_core::handoff::Competitive`] says.
    HandoffCompetitive = 7, "handoff:competitive", "handoff that spins as long as a sleep and a wake-up take";
    /// [`poundlock_core::handoff`], as [`poundlock_core::handoff::OwnerRunning`] says.
    HandoffOwnerRunning = 8, "handoff:owner-running",
        "handoff that spins no longer than the owner is believed to run";
    /// [`poundlock_core::handoff`], as [`poundlock_core::handoff::SameCpu`] says.
    HandoffSameCpu = 9, "handoff:same-cpu", "handoff that stops when the owner is on the spinner's CPU";
    /// [`poundlock_core::handoff`], as [`poundlock_core::handoff::Adaptive`] says.
    HandoffAdaptive = 10, "handoff:adaptive", "handoff that learns for each lock how long to spin";
    /// The program's own locks, unchanged: for measuring them.
    Glibc = 4, "glibc", "the program's own locks, unchanged (for stat, bench and torture)";
}

impl LockName {
    /// The lock that is used when none is named.
    pub const DEFAULT: LockName = Self::Poundlock;

    /// Whether it differs from another by its policy of spinning only: left out where all locks are tried and
    /// none is named.
    pub const fn is_variation(self) -> bool {
        matches!(
            self,
            Self::HandoffCompetitive
                | Self::HandoffOwnerRunning
                | Self::HandoffSameCpu
                | Self::HandoffAdaptive
        )
    }

    /// The policy of spinning, if it is a hand-off mutex.
    pub const fn spinning(self) -> Option<Spinning> {
        match self {
            Self::Handoff => Some(Spinning::Fixed),
            Self::HandoffNone => Some(Spinning::None),
            Self::HandoffCompetitive => Some(Spinning::Competitive),
            Self::HandoffOwnerRunning => Some(Spinning::OwnerRunning),
            Self::HandoffSameCpu => Some(Spinning::SameCpu),
            Self::HandoffAdaptive => Some(Spinning::Adaptive),
            _ => None,
        }
    }

    /// The lock of that name. `handoff:fixed` is [`LockName::Handoff`] by its full name.
    pub fn parse(name: &str) -> Option<LockName> {
        let name = if name == "handoff:fixed" { "handoff" } else { name };
        Self::ALL.into_iter().find(|lock| lock.name() == name)
    }
}

impl core::fmt::Display for LockName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

macro_rules! named {
    ($($(#[$doc:meta])* $of:ident { $($one:ident = $name:literal, $description:literal;)* })*) => {$(
        $(#[$doc])*
        impl Named for $of {
            const LISTED: &'static [$of] = &$of::ALL;

            fn name(self) -> &'static str {
                match self {
                    $(Self::$one => $name,)*
                }
            }

            fn description(self) -> &'static str {
                match self {
                    $(Self::$one => $description,)*
                }
            }
        }
    )*};
}

named! {
    /// A spinlock that a program can be run on: the forms of the queue spinlock.
    Form {
        Native = "qspin", "queue spinlock whose waiters keep their CPUs: for threads with a CPU each";
        Virtual = "qspin-virt", "unfair test-and-set in the same word, for machines where waiters cannot \
            halt";
        Paravirtual = "qspin-pv",
            "queue spinlock whose waiters halt and are kicked: for any number of threads";
        NativeNuma = "qspin-numa",
            "as qspin, and waiters of one node of memory go one after another for a while";
        ParavirtualNuma = "qspin-pv-numa",
            "as qspin-pv, and waiters of one node of memory go one after another for a while";
    }
    /// A readers-writer lock with a preference.
    Preference {
        PhaseFair = "rw-phase-fair", "queued readers-writer lock: readers and writers in turn";
        ReaderPreferring = "rw-reader-preferring",
            "queued readers-writer lock: readers enter whenever no writer is inside";
        WriterPreferring = "rw-writer-preferring",
            "queued readers-writer lock: no reader enters while a writer waits";
    }
}

/// The locks that a program is run on: a mutex and a spinlock, each by name or left to us. Written as the
/// names that were given, with a comma between them: `any-negative,qspin`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    mutex: Option<LockName>,
    spinlock: Option<Form>,
}

/// Why a text is no [`Choice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceError<'a> {
    /// There is no lock of this name.
    Unknown(&'a str),
    /// This name asks for another lock of a sort that was named before.
    Twice(&'a str),
}

impl Choice {
    /// A mutex of this name, and the machine's spinlock (the program's own with [`LockName::Glibc`]).
    pub const fn of(mutex: LockName) -> Choice {
        Choice { mutex: Some(mutex), spinlock: None }
    }

    /// The default mutex, and a spinlock of this form.
    pub const fn of_form(spinlock: Form) -> Choice {
        Choice { mutex: None, spinlock: Some(spinlock) }
    }

    /// The choice that a text names. The empty text leaves everything to us.
    ///
    /// # Errors
    /// The name that is unknown or contradicts another.
    pub fn parse(text: &str) -> Result<Choice, ChoiceError<'_>> {
        let mut choice = Choice::default();
        for name in text.split(',').filter(|name| !name.is_empty()) {
            let taken = if let Some(mutex) = LockName::parse(name) {
                choice.mutex.replace(mutex).is_some()
            } else if let Some(form) = Form::parse(name) {
                choice.spinlock.replace(form).is_some()
            } else {
                return Err(ChoiceError::Unknown(name));
            };
            if taken {
                return Err(ChoiceError::Twice(name));
            }
        }
        Ok(choice)
    }

    /// The mutex.
    pub fn mutex(self) -> LockName {
        self.mutex.unwrap_or(LockName::DEFAULT)
    }

    /// The form of the spinlock, if one is named; else see [`Choice::keeps_everything`].
    pub fn spinlock(self) -> Option<Form> {
        self.spinlock
    }

    /// Whether nothing of the program changes. Spinlocks stay its own only then: with a mutex of ours, or
    /// named, they are ours.
    pub fn keeps_everything(self) -> bool {
        self.mutex == Some(LockName::Glibc) && self.spinlock.is_none()
    }
}

impl core::fmt::Display for Choice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match (self.mutex, self.spinlock) {
            (mutex, None) => write!(f, "{}", mutex.unwrap_or(LockName::DEFAULT)),
            (None, Some(form)) => f.write_str(form.name()),
            (Some(mutex), Some(form)) => write!(f, "{mutex},{}", form.name()),
        }
    }
}

/// Whose a program's readers-writer locks are, and who comes next in them: what `--rwlock` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RwLocks {
    /// Ours, with the policy of the form that the program gave each.
    #[default]
    ByKind = 1,
    /// Ours, all of them [`poundlock_core::rwlock::Preference::PhaseFair`].
    PhaseFair = 2,
    /// The program's own.
    Glibc = 3,
}

impl RwLocks {
    /// Every choice, in the order in which they are listed.
    pub const ALL: [RwLocks; 3] = [Self::ByKind, Self::PhaseFair, Self::Glibc];

    /// The name as people type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ByKind => "by-kind",
            Self::PhaseFair => "phase-fair",
            Self::Glibc => "glibc",
        }
    }

    /// Those of a program that runs on `locks`, if these were `named`: a program that keeps its mutexes keeps
    /// its readers-writer locks, unless it is to have others.
    pub fn of(locks: Choice, named: Option<RwLocks>) -> RwLocks {
        named.unwrap_or(if locks.mutex() == LockName::Glibc { Self::Glibc } else { Self::default() })
    }

    /// The choice of this name.
    pub fn parse(name: &str) -> Option<RwLocks> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

impl core::fmt::Display for RwLocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Choice, ChoiceError, Form, LockName, Named, Preference, RwLocks};

    #[test]
    fn choices_of_readers_writer_locks_parse_as_they_are_written() {
        for choice in RwLocks::ALL {
            assert_eq!(RwLocks::parse(&std::format!("{choice}")), Some(choice));
        }
        assert_eq!(RwLocks::parse(""), None);
    }

    #[test]
    fn who_keeps_its_mutexes_keeps_its_readers_writer_locks_unless_others_are_named() {
        let glibcs = Choice::of(LockName::Glibc);
        assert_eq!(RwLocks::of(glibcs, None), RwLocks::Glibc);
        assert_eq!(RwLocks::of(Choice::default(), None), RwLocks::ByKind);
        for named in RwLocks::ALL {
            for choice in [glibcs, Choice::default()] {
                assert_eq!(RwLocks::of(choice, Some(named)), named);
            }
        }
    }

    #[test]
    fn choices_parse_as_they_are_written() {
        for mutex in LockName::ALL {
            assert_eq!(Choice::parse(mutex.name()), Ok(Choice::of(mutex)));
            assert_eq!(Choice::of(mutex).keeps_everything(), mutex == LockName::Glibc);
            for form in Form::ALL {
                assert_eq!(Choice::parse(form.name()), Ok(Choice::of_form(form)));
                let both = Choice { mutex: Some(mutex), spinlock: Some(form) };
                assert!(!both.keeps_everything());
                assert!(matches!(Choice::parse(form.name()).map(Choice::mutex), Ok(LockName::DEFAULT)));
                let text = std::format!("{both}");
                assert_eq!(Choice::parse(&text), Ok(both));
                assert_eq!(Choice::parse(&std::format!("{},{mutex}", form.name())), Ok(both));
            }
        }
        assert_eq!(Choice::parse(""), Ok(Choice::default()));
        assert_eq!(Choice::parse("qspin,nonesuch"), Err(ChoiceError::Unknown("nonesuch")));
        assert_eq!(Choice::parse("qspin,qspin-pv"), Err(ChoiceError::Twice("qspin-pv")));
        assert_eq!(Choice::parse("baseline,glibc"), Err(ChoiceError::Twice("glibc")));
    }

    #[test]
    fn every_name_parses_to_its_lock() {
        for lock in LockName::ALL {
            assert_eq!(LockName::parse(lock.name()), Some(lock));
        }
        for preference in Preference::ALL {
            assert_eq!(Preference::parse(preference.name()), Some(preference));
        }
        assert_eq!(LockName::parse("Baseline"), None);
        assert_eq!(LockName::parse(""), None);
    }
}
