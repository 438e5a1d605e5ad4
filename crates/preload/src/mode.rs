//! What the environment asked for, looked up once.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use poundlock_core::adaptive::Variant;
use poundlock_core::handoff::{Policy, Spinning};
use poundlock_core::qspin::{ChosenForm, Form};
use poundlock_linux::{machine, tls};
use poundlock_names::{Choice, LockName, RwLocks};

use crate::environment::variable;

/// Whose the program's ordinary locks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sort {
    /// Our adaptive mutex.
    Adaptive = 1,
    /// glibc's.
    Glibc = 2,
    /// Our default mutex.
    Poundlock = 3,
    /// Our hand-off mutex.
    Handoff = 4,
}

/// How the program runs: a [`Sort`], with [`COUNTED`] if its locks are counted, and [`CHECKED`] if it is under
/// check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(u8);

/// In a [`Mode`].
const COUNTED: u8 = 8;
/// In a [`Mode`], with [`COUNTED`].
const CHECKED: u8 = 16;

impl Mode {
    pub(crate) fn glibc(self) -> bool {
        self.0 & !(COUNTED | CHECKED) == Sort::Glibc as u8
    }

    pub(crate) fn counted(self) -> bool {
        self.0 & COUNTED != 0
    }
}

// The [`Mode`] is what is chosen for [`tls::process`], 0 before it is known. It is stored last, with release
// ordering, and read with acquire ordering, which costs a load nothing: a thread that sees it sees these.

/// The [`LockName`], valid once the mode is.
static LOCK: AtomicU8 = AtomicU8::new(LockName::DEFAULT as u8);
/// The queue spinlock's [`Form`], or [`GLIBC_SPINLOCKS`]; valid once the mode is.
static FORM: AtomicU8 = AtomicU8::new(GLIBC_SPINLOCKS);
/// The [`RwLocks`], and [`COUNTED_RWLOCKS`]; 0 before it is known. Read by itself: nothing else depends on
/// it.
static RWLOCKS: AtomicU8 = AtomicU8::new(0);
/// In `RWLOCKS`: they are counted.
const COUNTED_RWLOCKS: u8 = 4;
/// In `FORM`: the program's spinlocks stay glibc's.
const GLIBC_SPINLOCKS: u8 = u8::MAX;

/// The first question of the fast paths: whether the mutexes are the default ones, not counted, the process
/// is known to have several threads, and [`tls::area_tag`] may be asked. One comparison.
#[inline(always)]
pub(crate) fn is_usual() -> bool {
    tls::process() == USUAL | tls::SEVERAL_THREADS
}

/// The second question: the same, but that there is no second thread.
#[inline(always)]
pub(crate) fn is_usual_alone() -> bool {
    tls::process() == USUAL && tls::libc_single_threaded()
}

const USUAL: u8 = (Sort::Poundlock as u8) << 1 | tls::AREA;

/// Whose the mutexes are, if they are not counted. `None` also while the mode is not known.
#[inline(always)]
pub(crate) fn fast() -> Option<Sort> {
    const ADAPTIVE: u8 = Sort::Adaptive as u8;
    const POUNDLOCK: u8 = Sort::Poundlock as u8;
    const HANDOFF: u8 = Sort::Handoff as u8;
    match known() {
        POUNDLOCK => Some(Sort::Poundlock),
        ADAPTIVE => Some(Sort::Adaptive),
        HANDOFF => Some(Sort::Handoff),
        _ => None,
    }
}

/// Whose the mutexes are, in a process under check: of the program's own and the default ones.
#[inline(always)]
pub(crate) fn checked_sort() -> Option<Sort> {
    const GLIBC: u8 = Sort::Glibc as u8 | COUNTED | CHECKED;
    const POUNDLOCK: u8 = Sort::Poundlock as u8 | COUNTED | CHECKED;
    match known() {
        POUNDLOCK => Some(Sort::Poundlock),
        GLIBC => Some(Sort::Glibc),
        _ => None,
    }
}

/// Whose the mutexes are, if they are counted and not checked.
#[inline(always)]
pub(crate) fn counted_sort() -> Option<Sort> {
    const GLIBC: u8 = Sort::Glibc as u8 | COUNTED;
    const POUNDLOCK: u8 = Sort::Poundlock as u8 | COUNTED;
    match known() {
        POUNDLOCK => Some(Sort::Poundlock),
        GLIBC => Some(Sort::Glibc),
        _ => None,
    }
}

/// Which of ours the mutexes are. The mode has been found out.
#[inline]
pub(crate) fn sort() -> Sort {
    match known() & !(COUNTED | CHECKED) {
        sort if sort == Sort::Poundlock as u8 => Sort::Poundlock,
        sort if sort == Sort::Handoff as u8 => Sort::Handoff,
        _ => Sort::Adaptive,
    }
}

/// The mode; finds it out if need be.
#[inline]
pub(crate) fn get() -> Mode {
    match known() {
        0 => find_out(),
        mode => Mode(mode),
    }
}

/// The [`Mode`]'s number, 0 before it is known.
#[inline(always)]
fn known() -> u8 {
    (tls::process() & !tls::AREA) >> 1
}

/// Two threads may do this at once, and come to the same result.
#[cold]
fn find_out() -> Mode {
    // Before the statistics take the first time.
    crate::real::find_clocks();
    let named = variable(c"POUNDLOCK_LOCK").and_then(|names| names.to_str().ok()).unwrap_or_default();
    let choice = Choice::parse(named).unwrap_or_default();
    let lock = choice.mutex();
    LOCK.store(lock as u8, Relaxed);
    let form = match choice.spinlock() {
        _ if choice.keeps_everything() => GLIBC_SPINLOCKS,
        Some(kind) => kind as u8,
        None => machine::spinlock() as u8,
    };
    FORM.store(form, Relaxed);
    let own = RwLocks::of(choice, None);
    let rwlocks = variable(c"POUNDLOCK_RWLOCK").and_then(|name| name.to_str().ok());
    let rwlocks = rwlocks.and_then(RwLocks::parse).unwrap_or(own);
    let counted = crate::stat::init(named, rwlocks.name());
    let sort = match lock {
        LockName::Glibc => Sort::Glibc,
        LockName::Poundlock => Sort::Poundlock,
        _ if lock.spinning().is_some() => Sort::Handoff,
        _ => Sort::Adaptive,
    };
    let checked = counted && crate::check::is_on();
    let mode = Mode(sort as u8 | if counted { COUNTED } else { 0 } | if checked { CHECKED } else { 0 });
    RWLOCKS.store(rwlocks as u8 | if counted { COUNTED_RWLOCKS } else { 0 }, Relaxed);
    tls::choose(mode.0);
    mode
}

/// The mutex's variant and the spinlock's form that the environment or the machine chose, asked for in slow
/// paths only.
pub(crate) struct Chosen;

impl Chosen {
    fn is(lock: LockName) -> bool {
        LOCK.load(Relaxed) == lock as u8
    }
}

impl Policy for Chosen {
    fn spinning() -> Spinning {
        let lock = LOCK.load(Relaxed);
        LockName::ALL
            .into_iter()
            .find(|name| *name as u8 == lock)
            .and_then(LockName::spinning)
            .unwrap_or(Spinning::Fixed)
    }
}

impl Variant for Chosen {
    fn checks_first() -> bool {
        !Self::is(LockName::Baseline)
    }
    fn queues_spinners() -> bool {
        Self::is(LockName::McsQueue) || Self::is(LockName::AnyNegative)
    }
    fn takes_any_negative() -> bool {
        Self::is(LockName::AnyNegative)
    }
}

/// Whether the program's readers-writer locks are known to be ours, and not counted: the fast paths'
/// question.
#[inline(always)]
pub(crate) fn rwlocks_are_plain() -> bool {
    RWLOCKS.load(Relaxed).wrapping_sub(RwLocks::ByKind as u8)
        <= RwLocks::PhaseFair as u8 - RwLocks::ByKind as u8
}

/// Whose the program's readers-writer locks are.
#[inline]
pub(crate) fn rwlocks() -> RwLocks {
    get();
    match RWLOCKS.load(Relaxed) & !COUNTED_RWLOCKS {
        2 => RwLocks::PhaseFair,
        3 => RwLocks::Glibc,
        _ => RwLocks::ByKind,
    }
}

pub(crate) fn spinlocks_are_ours() -> bool {
    get();
    FORM.load(Relaxed) != GLIBC_SPINLOCKS
}

/// Whether the program's spinlocks are ours, of the paravirtual form. False also while it is not known.
#[inline(always)]
pub(crate) fn spinlocks_halt() -> bool {
    FORM.load(Relaxed) == Form::Paravirtual as u8
}

impl ChosenForm for Chosen {
    fn form() -> Form {
        match FORM.load(Relaxed) {
            0 => Form::Native,
            1 => Form::Virtual,
            3 => Form::NativeNuma,
            4 => Form::ParavirtualNuma,
            _ => Form::Paravirtual,
        }
    }
}
