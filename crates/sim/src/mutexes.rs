//! Mutexes with deadlines, which work with condition variables.

use core::marker::PhantomData;

use poundlock_core::adaptive::{AnyNegative, Baseline, FewerAtomics, McsQueue, RawAdaptive, Variant};
use poundlock_core::condvar::{Guarding, Outcome, Plain, RawCondvar, Requeued, Target};
use poundlock_core::handoff::{
    Adaptive, Competitive, Fixed, NoSpin, OwnerRunning, Policy, RawHandoff, SameCpu,
};
use poundlock_core::platform::Deadline;
use poundlock_core::poundlock::RawPoundlock;
use poundlock_names::LockName;

use crate::Alone;
use crate::locks::Lock;
use crate::platform::Sim;

/// A mutex under its driver.
pub trait Mutex: Lock {
    /// Acquires it, or gives up once the deadline has passed; false then.
    fn lock_until(&self, deadline: &Deadline) -> bool;
    /// Releases it, waits for a signal or the deadline, and acquires it again.
    fn wait(&self, condvar: &RawCondvar<Sim>, deadline: Option<&Deadline>) -> Outcome;
}

/// A mutex under which a signalled waiter is woken, not requeued.
pub(crate) struct Woken<'a>(pub(super) &'a dyn Mutex);

impl Guarding<Sim> for Woken<'_> {
    fn mutex(&self) -> Option<Target<'_, Sim>> {
        None
    }
    fn release(&self) {
        self.0.unlock();
    }
    fn acquire(&self) {
        self.0.lock();
    }
    fn acquire_requeued(&self, _waiter: Requeued) {
        // No thread is cancelled.
        self.0.lock();
    }
}

/// No thread is cancelled.
pub(crate) fn never() -> bool {
    false
}

struct Adapting<V>(Alone<RawAdaptive<Sim>>, PhantomData<fn() -> V>);

impl<V: Variant> Lock for Adapting<V> {
    fn lock(&self) {
        self.0.0.lock::<V>();
    }
    fn unlock(&self) {
        self.0.0.unlock::<V>();
    }
    fn is_free(&self) -> bool {
        self.0.0.is_idle()
    }
}

impl<V: Variant> Mutex for Adapting<V> {
    fn lock_until(&self, deadline: &Deadline) -> bool {
        self.0.0.lock_until::<V>(deadline).is_ok()
    }
    fn wait(&self, condvar: &RawCondvar<Sim>, deadline: Option<&Deadline>) -> Outcome {
        condvar.wait(&Plain::<Sim, V>::new(&self.0.0), deadline, never)
    }
}

struct Poundlock(Alone<RawPoundlock<Sim>>);

impl Lock for Poundlock {
    fn lock(&self) {
        self.0.0.lock();
    }
    fn unlock(&self) {
        self.0.0.unlock();
    }
    fn is_free(&self) -> bool {
        self.0.0.is_idle()
    }
}

impl Mutex for Poundlock {
    fn lock_until(&self, deadline: &Deadline) -> bool {
        self.0.0.lock_until(deadline).is_ok()
    }
    fn wait(&self, condvar: &RawCondvar<Sim>, deadline: Option<&Deadline>) -> Outcome {
        condvar.wait(&&self.0.0, deadline, never)
    }
}

struct HandingOff<S>(Alone<RawHandoff<Sim>>, PhantomData<fn() -> S>);

impl<S: Policy> Lock for HandingOff<S> {
    fn lock(&self) {
        self.0.0.lock::<S>();
    }
    fn unlock(&self) {
        self.0.0.unlock();
    }
    fn is_free(&self) -> bool {
        self.0.0.is_idle()
    }
}

impl<S: Policy> Mutex for HandingOff<S> {
    fn lock_until(&self, deadline: &Deadline) -> bool {
        self.0.0.lock_until::<S>(deadline)
    }
    fn wait(&self, condvar: &RawCondvar<Sim>, deadline: Option<&Deadline>) -> Outcome {
        condvar.wait(self, deadline, never)
    }
}

impl<S: Policy> Guarding<Sim> for HandingOff<S> {
    fn mutex(&self) -> Option<Target<'_, Sim>> {
        Some(Target::Handoff(&self.0.0))
    }
    fn release(&self) {
        self.unlock();
    }
    fn acquire(&self) {
        self.lock();
    }
    fn acquire_requeued(&self, waiter: Requeued) {
        waiter.receive(&self.0.0);
    }
}

fn adapting<V: Variant>() -> Box<dyn Mutex> {
    Box::new(Adapting::<V>(Alone(RawAdaptive::new()), PhantomData))
}

fn handing_off<S: Policy>() -> Box<dyn Mutex> {
    Box::new(HandingOff::<S>(Alone(RawHandoff::new()), PhantomData))
}

/// A new mutex of this name, if there is one.
pub(crate) fn make(name: &str) -> Option<Box<dyn Mutex>> {
    Some(match LockName::parse(name)? {
        LockName::Baseline => adapting::<Baseline>(),
        LockName::FewerAtomics => adapting::<FewerAtomics>(),
        LockName::McsQueue => adapting::<McsQueue>(),
        LockName::AnyNegative => adapting::<AnyNegative>(),
        LockName::Poundlock => Box::new(Poundlock(Alone(RawPoundlock::<Sim>::new()))),
        LockName::Handoff => handing_off::<Fixed>(),
        LockName::HandoffNone => handing_off::<NoSpin>(),
        LockName::HandoffCompetitive => handing_off::<Competitive>(),
        LockName::HandoffOwnerRunning => handing_off::<OwnerRunning>(),
        LockName::HandoffSameCpu => handing_off::<SameCpu>(),
        LockName::HandoffAdaptive => handing_off::<Adaptive>(),
        LockName::Glibc => return None,
    })
}
