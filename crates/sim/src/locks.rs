//! The locks that a simulation can use, by name.

use core::marker::PhantomData;

use poundlock_core::qspin::{ChosenForm, Form, Layout, Native, Paravirtual, RawSpin, Small, Virtual};
use poundlock_names::{LockName, Named};
use poundlock_textbook::{BackOff, Mcs, Spinlock, TestAndSet, Ticket};

use crate::platform::Sim;
use crate::ticket::HaltingTicket;
use crate::{Alone, mutexes, peers};

/// A lock under its driver: the driver touches what it protects only between the two calls.
pub trait Lock: 'static {
    /// Acquires it.
    fn lock(&self);
    /// Releases it. The thread that acquired it calls this.
    fn unlock(&self);
    /// Whether nothing is left in it: for a checker, when no thread is in it.
    fn is_free(&self) -> bool;
}

/// In lines of its own, so that the same objects share a line in each run.
impl<L: Lock> Lock for Alone<L> {
    fn lock(&self) {
        self.0.lock();
    }
    fn unlock(&self) {
        self.0.unlock();
    }
    fn is_free(&self) -> bool {
        self.0.is_free()
    }
}

struct Queueing<F>(RawSpin<Sim>, PhantomData<fn() -> F>);

impl<F: ChosenForm> Lock for Queueing<F> {
    fn lock(&self) {
        self.0.lock::<F>();
    }
    fn unlock(&self) {
        self.0.unlock::<F>();
    }
    fn is_free(&self) -> bool {
        // That a waiter has halted in it stays noted for good.
        self.0.word() & !Small::HALTS == 0
    }
}

/// A textbook lock, whose holder keeps something.
struct Textbook<S: Spinlock>(S, core::cell::Cell<Option<S::Token>>);

impl<S: Spinlock + 'static> Lock for Textbook<S> {
    fn lock(&self) {
        let token = self.0.lock();
        self.1.set(Some(token));
    }
    fn unlock(&self) {
        if let Some(token) = self.1.take() {
            self.0.unlock(token);
        }
    }
    fn is_free(&self) -> bool {
        let token = self.1.take();
        let free = token.is_none();
        self.1.set(token);
        free
    }
}

fn queueing<F: ChosenForm>() -> Box<dyn Lock> {
    Box::new(Alone(Queueing::<F>(RawSpin::new(), PhantomData)))
}

fn textbook<S: Spinlock + 'static>() -> Box<dyn Lock> {
    Box::new(Alone(Textbook(S::default(), core::cell::Cell::new(None))))
}

pub(crate) type Make = fn() -> Box<dyn Lock>;

/// Textbook locks, by name.
pub(crate) const TEXTBOOK: [(&str, Make); 5] = [
    ("test-and-set", textbook::<TestAndSet<Sim>>),
    ("back-off", textbook::<BackOff<Sim>>),
    ("ticket", textbook::<Ticket<Sim>>),
    ("mcs", textbook::<Mcs<Sim>>),
    ("ticket-pv", || Box::<Alone<HaltingTicket>>::default()),
];

/// A new lock.
pub fn make(name: &str) -> Option<Box<dyn Lock>> {
    let others = TEXTBOOK.iter().chain(&peers::MUTEXES).chain(&peers::SPINLOCKS).chain(&peers::RARE);
    if let Some((_, make)) = others.into_iter().find(|(known, _)| *known == name) {
        return Some(make());
    }
    if let Some(kind) = Form::parse(name) {
        return Some(match kind {
            Form::Native => queueing::<Native>(),
            Form::Virtual => queueing::<Virtual>(),
            Form::Paravirtual => queueing::<Paravirtual>(),
        });
    }
    mutexes::make(name).map(|mutex| mutex as Box<dyn Lock>)
}

/// The names of all locks: ours, textbook ones, and those of others.
pub fn names() -> impl Iterator<Item = &'static str> {
    let mutexes = LockName::ALL.into_iter().filter(|lock| *lock != LockName::Glibc).map(LockName::name);
    let others = TEXTBOOK.iter().chain(&peers::MUTEXES).chain(&peers::SPINLOCKS);
    mutexes.chain(Form::ALL.into_iter().map(Form::name)).chain(others.map(|(name, _)| *name))
}

/// Those of others with constants that make their rare paths common: for the checker.
pub(crate) fn rare() -> impl Iterator<Item = &'static str> {
    peers::RARE.iter().map(|(name, _)| *name)
}

/// Whether its waiters spin for ever.
pub(crate) fn is_spinlock(name: &str) -> bool {
    let others = TEXTBOOK.iter().chain(&peers::SPINLOCKS).chain(&peers::RARE);
    Form::parse(name).is_some() || others.into_iter().any(|(known, _)| *known == name)
}
