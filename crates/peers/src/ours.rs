//! Poundlock's locks, as a Rust program has them.

use std::marker::PhantomData;

use poundlock_core::adaptive::{AnyNegative, Baseline, FewerAtomics, McsQueue, RawAdaptive, Variant};
use poundlock_core::handoff::{
    Adaptive, Competitive, Fixed, Handoff, NoSpin, OwnerRunning, Policy, RawHandoff, SameCpu,
};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::qspin::{ChosenForm, Form, Large, Layout, Native, Paravirtual, RawSpin, Small, Virtual};
use poundlock_core::rwlock::{self, RawRwLock};
use poundlock_linux::Linux;
use poundlock_names::{LockName, Named};
use poundlock_textbook::{BackOff, Mcs, Spinlock, TestAndSet, Ticket};

use crate::rust::{Lock, Reading, Writing, calls, rw_calls};
use crate::{Calls, Entry, rw};

/// The queued adaptive mutex in a variant.
struct Adapting<V>(RawAdaptive<Linux>, PhantomData<fn() -> V>);

impl<V: Variant> Lock for Adapting<V> {
    type Kept = ();

    fn new() -> Self {
        // Else the first thread that has to wait would find out about the machine.
        poundlock_linux::init();
        Adapting(RawAdaptive::new(), PhantomData)
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.lock::<V>();
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        self.0.unlock::<V>();
    }
}

/// The default mutex.
struct Poundlock(RawPoundlock<Linux>);

impl Lock for Poundlock {
    type Kept = ();

    fn new() -> Self {
        // As for `Adapting`.
        poundlock_linux::init();
        Poundlock(RawPoundlock::new())
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.lock();
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        self.0.unlock();
    }
}

/// The hand-off mutex with a policy.
struct HandingOff<S>(RawHandoff<Linux>, PhantomData<fn() -> S>);

impl<S: Policy> Lock for HandingOff<S> {
    type Kept = ();

    fn new() -> Self {
        // As for `Adapting`.
        poundlock_linux::init();
        HandingOff(RawHandoff::new(), PhantomData)
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.lock::<S>();
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        self.0.unlock();
    }
}

/// A form of the queue spinlock.
struct Queueing<F, L: Layout = Small>(RawSpin<Linux, L>, PhantomData<fn() -> F>);

impl<F: ChosenForm, L: Layout + 'static> Lock for Queueing<F, L> {
    type Kept = ();

    fn new() -> Self {
        // As for `Adapting`.
        poundlock_linux::init();
        Queueing(RawSpin::new(), PhantomData)
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.lock::<F>();
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        self.0.unlock::<F>();
    }
}

/// The recursive hand-off mutex, with the policy that it has if none is named.
struct Recursive(Handoff<Linux>);

impl Lock for Recursive {
    type Kept = ();

    fn new() -> Self {
        // As for `Adapting`.
        poundlock_linux::init();
        Recursive(Handoff::new())
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.lock::<Fixed>();
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        self.0.unlock();
    }
}

/// A textbook spinlock.
struct Textbook<S>(S);

impl<S: Spinlock + 'static> Lock for Textbook<S> {
    type Kept = S::Token;

    fn new() -> Self {
        // As for `Adapting`.
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
struct Alike(Poundlock);

impl Lock for Writing<Alike> {
    type Kept = ();

    fn new() -> Self {
        Writing(Alike(Poundlock::new()))
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.0.lock();
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.0.unlock(()) };
    }
}

impl Lock for Reading<Alike> {
    type Kept = ();

    fn new() -> Self {
        Reading(Alike(Poundlock::new()))
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.0.lock();
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.0.unlock(()) };
    }
}

/// The readers-writer lock with a policy, the one of this number in [`rwlock::Preference::ALL`].
struct Sharing<const POLICY: usize>(RawRwLock<Linux>);

impl<const POLICY: usize> Sharing<POLICY> {
    const POLICY: rwlock::Preference = rwlock::Preference::ALL[POLICY];

    fn new() -> Self {
        // As for `Adapting`.
        poundlock_linux::init();
        Sharing(RawRwLock::new())
    }
}

impl<const POLICY: usize> Lock for Writing<Sharing<POLICY>> {
    type Kept = ();

    fn new() -> Self {
        Writing(Sharing::new())
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.0.lock_write(Sharing::<POLICY>::POLICY);
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        self.0.0.unlock_write();
    }
}

impl<const POLICY: usize> Lock for Reading<Sharing<POLICY>> {
    type Kept = ();

    fn new() -> Self {
        Reading(Sharing::new())
    }

    #[inline(always)]
    fn lock(&'static self) {
        self.0.0.lock_read(Sharing::<POLICY>::POLICY);
    }

    #[inline(always)]
    unsafe fn unlock(&'static self, (): ()) {
        self.0.0.unlock_read();
    }
}

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
        // The paravirtual form's waiters sleep when they have spun for long.
        ours(form.name(), form.description(), spinlock(form), form != Form::Paravirtual)
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
