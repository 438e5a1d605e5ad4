//! Poundlock's locks, as a Rust program has them.

use std::marker::PhantomData;

use poundlock_core::adaptive::{AnyNegative, Baseline, FewerAtomics, McsQueue, RawAdaptive, Variant};
use poundlock_core::handoff::{
    Adaptive, Competitive, Fixed, Handoff, NoSpin, OwnerRunning, Policy, RawHandoff, SameCpu,
};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::qspin::{
    ChosenForm, Form, Large, Layout, Native, NativeNuma, Paravirtual, ParavirtualNuma, RawSpin, Small,
    Virtual,
};
use poundlock_core::rwlock::{self, RawRwLock};
use poundlock_linux::Linux;
use poundlock_names::{LockName, Named};
use poundlock_textbook::{BackOff, Mcs, Spinlock, TestAndSet, Ticket};

use crate::rust::{Lock, Reading, Writing, calls, rw_calls};
use crate::{Calls, Entry, rw};

/// Puts one of our locks behind functions: its type, how it is made, locked and unlocked.
macro_rules! lock {
    ([$($generics:tt)*] $type:ty, $make:expr, |$l:ident| $lock:expr, $unlock:expr) => {
        impl<$($generics)*> Lock for $type {
            type Kept = ();

            fn new() -> Self {
                // Else the first thread that has to wait would find out about the machine.
                poundlock_linux::init();
                $make
            }

            #[inline(always)]
            fn lock(&'static self) {
                let $l = &self.0;
                $lock;
            }

            #[inline(always)]
            unsafe fn unlock(&'static self, (): ()) {
                let $l = &self.0;
                $unlock;
            }
        }
    };
}

/// The queued adaptive mutex in a variant.
struct Adapting<V>(RawAdaptive<Linux>, PhantomData<fn() -> V>);
/// The default mutex.
struct Poundlock(RawPoundlock<Linux>);
/// The hand-off mutex with a policy.
struct HandingOff<S>(RawHandoff<Linux>, PhantomData<fn() -> S>);
/// The recursive hand-off mutex, with the policy that it has if none is named.
struct Recursive(Handoff<Linux>);
/// A form of the queue spinlock in a layout.
struct Queueing<F, L: Layout = Small>(RawSpin<Linux, L>, PhantomData<fn() -> F>);

lock!([V: Variant] Adapting<V>, Adapting(RawAdaptive::new(), PhantomData), |l| l.lock::<V>(), l.unlock::<V>());
lock!([] Poundlock, Poundlock(RawPoundlock::new()), |l| l.lock(), l.unlock());
lock!([S: Policy] HandingOff<S>, HandingOff(RawHandoff::new(), PhantomData), |l| l.lock::<S>(), l.unlock());
lock!([] Recursive, Recursive(Handoff::new()), |l| l.lock::<Fixed>(), l.unlock());
lock!(
    [F: ChosenForm, L: Layout + 'static] Queueing<F, L>,
    Queueing(RawSpin::new(), PhantomData),
    |l| l.lock::<F>(),
    l.unlock::<F>()
);

/// A textbook spinlock.
struct Textbook<S>(S);

impl<S: Spinlock + 'static> Lock for Textbook<S> {
    type Kept = S::Token;

    fn new() -> Self {
        poundlock_linux::init();
        Textbook(S::default())
    }

    #[inline(always)]
    fn lock(&'static self) -> S::Token {
        self.0.lock()
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, kept: S::Token) {
        self.0.unlock(kept);
    }
}

/// The default mutex, which readers take as writers do.
type Alike = RawPoundlock<Linux>;

lock!([] Writing<Alike>, Writing(RawPoundlock::new()), |l| l.lock(), l.unlock());
lock!([] Reading<Alike>, Reading(RawPoundlock::new()), |l| l.lock(), l.unlock());

/// The readers-writer lock with a policy, the one of this number in [`rwlock::Preference::ALL`].
struct Sharing<const POLICY: usize>(RawRwLock<Linux>);

impl<const POLICY: usize> Sharing<POLICY> {
    const POLICY: rwlock::Preference = rwlock::Preference::ALL[POLICY];
}

lock!(
    [const POLICY: usize] Writing<Sharing<POLICY>>,
    Writing(Sharing(RawRwLock::new())),
    |l| l.0.lock_write(Sharing::<POLICY>::POLICY),
    l.0.unlock_write()
);
lock!(
    [const POLICY: usize] Reading<Sharing<POLICY>>,
    Reading(Sharing(RawRwLock::new())),
    |l| l.0.lock_read(Sharing::<POLICY>::POLICY),
    l.0.unlock_read()
);

/// A mutex of the list; `None` for the one that is not ours.
const fn mutex(lock: LockName) -> Option<Calls> {
    Some(match lock {
        LockName::Baseline => calls::<Adapting<Baseline>>(),
        LockName::FewerAtomics => calls::<Adapting<FewerAtomics>>(),
        LockName::McsQueue => calls::<Adapting<McsQueue>>(),
        LockName::AnyNegative => calls::<Adapting<AnyNegative>>(),
        LockName::Poundlock => calls::<Poundlock>(),
        LockName::Handoff => calls::<HandingOff<Fixed>>(),
        LockName::HandoffNone => calls::<HandingOff<NoSpin>>(),
        LockName::HandoffCompetitive => calls::<HandingOff<Competitive>>(),
        LockName::HandoffOwnerRunning => calls::<HandingOff<OwnerRunning>>(),
        LockName::HandoffSameCpu => calls::<HandingOff<SameCpu>>(),
        LockName::HandoffAdaptive => calls::<HandingOff<Adaptive>>(),
        LockName::Glibc => return None,
    })
}

const fn spinlock(form: Form) -> Calls {
    match form {
        Form::Native => calls::<Queueing<Native>>(),
        Form::Virtual => calls::<Queueing<Virtual>>(),
        Form::Paravirtual => calls::<Queueing<Paravirtual>>(),
        Form::NativeNuma => calls::<Queueing<NativeNuma>>(),
        Form::ParavirtualNuma => calls::<Queueing<ParavirtualNuma>>(),
    }
}

/// An entry of ours.
fn ours<C: Copy + 'static>(name: &'static str, description: &'static str, calls: C, spins: bool) -> Entry<C> {
    let origin = || concat!("Poundlock ", env!("CARGO_PKG_VERSION")).to_owned();
    Entry { ours: true, spins, ..Entry::new(name, description, move || Ok((origin(), calls))) }
}

pub(crate) fn entries() -> impl Iterator<Item = Entry> {
    let mutexes = LockName::ALL
        .into_iter()
        .filter_map(move |lock| Some(ours(lock.name(), lock.description(), mutex(lock)?, false)));
    let spinlocks = Form::ALL.into_iter().map(move |form| {
        // Waiters of some forms sleep when they have spun for long.
        ours(form.name(), form.description(), spinlock(form), !form.halts())
    });
    mutexes.chain(spinlocks)
}

pub(crate) fn rw_entries() -> impl Iterator<Item = Entry<rw::Calls>> {
    const CALLS: [rw::Calls; 3] =
        [rw_calls::<Sharing<0>>(), rw_calls::<Sharing<1>>(), rw_calls::<Sharing<2>>()];
    let policies = rwlock::Preference::ALL.into_iter().zip(CALLS);
    policies.map(|(policy, calls)| ours(policy.name(), policy.description(), calls, false))
}

/// What is compared in single benchmarks only; it stands in no list.
pub(crate) fn extras() -> [Entry; 7] {
    [
        ours("handoff-recursive", "handoff whose owner may take it again", calls::<Recursive>(), false),
        ours("qspin-large", "qspin, laid out for many threads", calls::<Queueing<Native, Large>>(), true),
        ours(
            "qspin-pv-large",
            "qspin-pv, laid out for many threads",
            calls::<Queueing<Paravirtual, Large>>(),
            false,
        ),
        ours("ticket", "textbook ticket lock", calls::<Textbook<Ticket<Linux>>>(), true),
        ours("test-and-set", "textbook test-and-set", calls::<Textbook<TestAndSet<Linux>>>(), true),
        ours("back-off", "textbook test-and-set with back-off", calls::<Textbook<BackOff<Linux>>>(), true),
        ours("mcs", "textbook MCS queue", calls::<Textbook<Mcs<Linux>>>(), true),
    ]
}

/// The same for readers and writers.
pub(crate) fn rw_extras() -> [Entry<rw::Calls>; 1] {
    [ours("mutex", "the default mutex, which readers take as writers do", rw_calls::<Alike>(), false)]
}
