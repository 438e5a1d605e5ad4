//! Who takes part: one table of names, each with how the lock is made.

use std::borrow::Cow;

use poundlock_core::platform::Platform;
use poundlock_core::qspin::Form;
use poundlock_core::rwlock::Preference;
use poundlock_linux::Linux;
use poundlock_names::{LockName, Named};
use poundlock_peers::{EMPTY, rw};

use crate::error::{Error, Result};
use crate::worker::alone::Operation;
#[cfg(test)]
use crate::worker::alone::Timed;
use crate::worker::drive::Subject;
use crate::worker::symbols::Kind;

/// A lock, or what locks are read against, in one of the lists below.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contender {
    /// The name as people type it.
    pub(crate) name: &'static str,
    /// The lock behind pointers; `None` for a floor, for which nobody can wait.
    pub(crate) lock: Option<Subject>,
    /// The name by which one thread's time is measured.
    pub(crate) alone: Cow<'static, str>,
    /// What the preload library is told to use, if the lock is behind its symbols.
    pub(crate) library: Option<&'static str>,
    /// Whether it is one of ours.
    pub(crate) ours: bool,
    /// Whether waiters sleep when they have waited for long.
    pub(crate) sleeps: bool,
    /// Whether it takes part if nobody is named.
    usual: bool,
}

/// Our default lock, which most targets are about.
pub(crate) const DEFAULT: &str = LockName::DEFAULT.name();
/// What every ratio needs, in each list.
pub(crate) const SPIN_REFERENCES: [&str; 5] = ["cas+store", "pthread_spin", "ticket", "mcs", "glibc"];
pub(crate) const MUTEX_REFERENCES: [&str; 5] = ["cas+exchange", "glibc", "handoff:none", "handoff", "qspin"];
pub(crate) const RW_REFERENCES: [&str; 3] = ["add+subtract", "glibc", "parking_lot"];

impl Contender {
    fn peer(name: &'static str, ours: bool, sleeps: bool) -> Contender {
        let lock = Some(Subject::Peer(name.into()));
        Contender { name, lock, alone: name.into(), library: None, ours, sleeps, usual: true }
    }

    fn floor(name: &'static str, alone: &'static str) -> Contender {
        Contender { lock: None, alone: alone.into(), ..Self::peer(name, false, false) }
    }

    fn pthread(name: &'static str, kind: Kind, alone: &'static str) -> Contender {
        let sleeps = kind != Kind::Spin;
        let lock = Some(Subject::Symbols(kind));
        Contender { lock, alone: alone.into(), ..Self::peer(name, false, sleeps) }
    }

    fn preloaded(name: &'static str, kind: Kind, alone: &'static str, library: &'static str) -> Contender {
        Contender { library: Some(library), ours: true, ..Self::pthread(name, kind, alone) }
    }

    fn shared(name: &'static str, ours: bool) -> Contender {
        let (lock, alone) = (Some(Subject::Rw(name.into())), format!("rw:{name}").into());
        Contender { lock, alone, ..Self::peer(name, ours, true) }
    }

    /// Whether it is the hand-off mutex, with whatever policy.
    pub(crate) fn is_policy(name: &str) -> bool {
        LockName::parse(name).is_some_and(|lock| lock.spinning().is_some())
    }

    /// Why it is not there, if it is one of a package that is not.
    pub(crate) fn absent(&self) -> Option<String> {
        match &self.lock {
            Some(Subject::Rw(name)) => rw::find(name)?.err().map(|absent| absent.why),
            _ => None,
        }
    }
}

fn our_mutexes() -> impl Iterator<Item = LockName> {
    LockName::ALL.into_iter().filter(|&lock| lock != LockName::Glibc)
}

/// Mutexes as a program meets them: `pthread_mutex_*` of some library.
pub(crate) fn symbols() -> Vec<Contender> {
    let ours = our_mutexes().map(|lock| Contender {
        usual: !lock.is_variation(),
        ..Contender::preloaded(lock.name(), Kind::Mutex, "library:mutex", lock.name())
    });
    [
        Contender::pthread("glibc", Kind::Mutex, "library:mutex"),
        Contender::pthread("glibc-adaptive", Kind::Adaptive, "library:adaptive"),
    ]
    .into_iter()
    .chain(ours)
    .collect()
}

fn forms() -> impl Iterator<Item = Contender> {
    // On one node of memory a form that knows nodes is the one that does not.
    let forms = Form::ALL.into_iter().rev().filter(|form| Linux::nodes() > 1 || !form.is_numa());
    forms.map(|form| Contender::peer(form.name(), true, form.halts()))
}

/// Spinlocks, and what they are read against.
pub(crate) fn spinlocks() -> Vec<Contender> {
    let textbook = |name| Contender::peer(name, false, false);
    let preloaded = [
        ("preload-qspin", Form::Native),
        ("preload-qspin-virt", Form::Virtual),
        ("preload-qspin-pv", Form::Paravirtual),
    ];
    let mut all = vec![
        Contender::floor("cas+store", "cas+store"),
        Contender::pthread("pthread_spin", Kind::Spin, "glibc:spin"),
        textbook("ticket"),
        textbook("mcs"),
        textbook("test-and-set"),
        textbook("back-off"),
        Contender::pthread("glibc", Kind::Mutex, "glibc:mutex"),
    ];
    all.extend(forms());
    all.push(Contender::peer("qspin-large", true, false));
    all.push(Contender::peer("qspin-pv-large", true, true));
    all.extend(preloaded.map(|(name, form)| Contender {
        sleeps: form.halts(),
        ..Contender::preloaded(name, Kind::Spin, "library:spin", form.name())
    }));
    all
}

/// Mutexes and spinlocks as Rust programs have them, and the C library's.
pub(crate) fn mutexes() -> Vec<Contender> {
    let mut all = vec![
        Contender::floor("cas+exchange", "cas+exchange"),
        Contender::pthread("glibc", Kind::Mutex, "glibc:mutex"),
        Contender::pthread("glibc-adaptive", Kind::Adaptive, "glibc:adaptive"),
        // Only alone: to others it is glibc's default mutex with a look at the owner.
        Contender::floor("glibc-recursive", "glibc:recursive"),
        Contender::pthread("pthread_spin", Kind::Spin, "glibc:spin"),
    ];
    all.extend(our_mutexes().map(|lock| Contender::peer(lock.name(), true, true)));
    all.push(Contender::peer("handoff-recursive", true, true));
    all.extend(forms());
    all
}

/// What one thread does with such a lock.
pub(crate) fn operations(name: &str) -> Vec<Operation> {
    let mut operations = vec![Operation::LockUnlock];
    if name.ends_with("-recursive") {
        operations.push(Operation::Again);
    }
    if name != "cas+exchange" {
        operations.extend([Operation::Trylock, Operation::TrylockHeld]);
    }
    if name == "handoff" {
        operations.extend([Operation::ByToken, Operation::ThroughQueue]);
    }
    operations
}

/// Readers-writer locks, those that are not there among them.
pub(crate) fn rwlocks() -> Vec<Contender> {
    let near = ["glibc", "glibc-writers", "std", "parking_lot"];
    let ours = |name: &str| Preference::parse(name).is_some();
    let others = rw::names().into_iter().filter(|name| *name != EMPTY && !near.contains(name) && !ours(name));
    let mut all = vec![
        Contender::floor("add+subtract", "rw:add+subtract"),
        Contender::pthread("glibc", Kind::Readers, "glibc:readers"),
        Contender::pthread("glibc-writers", Kind::Writers, "glibc:writers"),
        Contender::shared("std", false),
        Contender::shared("parking_lot", false),
    ];
    all.extend(others.map(|name| Contender::shared(name, false)));
    all.push(Contender::shared("mutex", false));
    all.extend(Preference::ALL.map(|policy| Contender::shared(policy.name(), true)));
    all.push(Contender::preloaded("preload-rwlock", Kind::Readers, "library:readers", DEFAULT));
    all
}

/// Those of `all` that are wanted, with the references, without repeats; the usual ones if nobody is.
///
/// # Errors
/// If somebody is called as nobody is; the message lists those there are, and `what` they are.
pub(crate) fn choose(
    all: Vec<Contender>,
    wanted: &[String],
    references: &[&str],
    what: &str,
) -> Result<Vec<Contender>> {
    if let Some(name) = wanted.iter().find(|name| all.iter().all(|contender| contender.name != **name)) {
        let names: Vec<_> = all.iter().map(|contender| contender.name).collect();
        return Err(Error::Options(format!("no {what} is called '{name}'; there are {}", names.join(", "))));
    }
    let named =
        |who: &Contender| wanted.iter().any(|name| name == who.name) || references.contains(&who.name);
    let taking_part = |who: &Contender| if wanted.is_empty() { who.usual } else { named(who) };
    Ok(all.into_iter().filter(taking_part).collect())
}

/// What any benchmark times alone.
#[cfg(test)]
pub(crate) fn everything_alone() -> Vec<Timed> {
    let locks =
        symbols().into_iter().chain(spinlocks()).map(|who| (who.alone.into_owned(), Operation::LockUnlock));
    let mutexes = mutexes().into_iter().flat_map(|who| {
        operations(who.name).into_iter().map(move |what| (who.alone.clone().into_owned(), what))
    });
    let rwlocks = rwlocks().into_iter().filter(|who| who.absent().is_none()).flat_map(|who| {
        [Operation::Read, Operation::LockUnlock].map(|what| (who.alone.clone().into_owned(), what))
    });
    let floors = crate::uncontended::FLOORS.map(|name| (name.to_owned(), Operation::LockUnlock));
    let slept = [("glibc:mutex".to_owned(), Operation::Slept)];
    locks.chain(mutexes).chain(rwlocks).chain(floors).chain(slept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_references_are_always_there_once() {
        for (all, references, own) in [
            (symbols(), &["glibc"][..], DEFAULT),
            (spinlocks(), &SPIN_REFERENCES, "qspin-pv"),
            (mutexes(), &MUTEX_REFERENCES, "handoff-recursive"),
            (rwlocks(), &RW_REFERENCES, "rw-phase-fair"),
        ] {
            let names: std::collections::BTreeSet<_> = all.iter().map(|who| who.name).collect();
            assert_eq!(names.len(), all.len());
            let wanted = [own, "glibc", own].map(str::to_owned);
            let some = choose(all.clone(), &wanted, references, "lock").unwrap();
            assert_eq!(some.len(), references.len() + 1, "{some:?}");
            assert!(choose(all.clone(), &[], references, "lock").unwrap().iter().any(|who| who.name == own));
            let error = choose(all, &["x".to_owned()], references, "lock").unwrap_err().to_string();
            assert!(error.contains("no lock is called 'x'") && error.contains(own), "{error}");
        }
        // All of the table but what does nothing; and the floor, the mutex and the preloaded.
        assert_eq!(rwlocks().len(), rw::names().len() + 2);
        assert!(mutexes().iter().filter(|who| Contender::is_policy(who.name)).count() > 4);
    }
}
