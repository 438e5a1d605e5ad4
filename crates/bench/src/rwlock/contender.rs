//! Who takes part.

use poundlock_names::Named;
use poundlock_peers::{EMPTY, rw};
use serde::{Deserialize, Serialize};

use super::Policy;
use crate::contender::chosen_by_name;

/// A readers-writer lock, or what they are read against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Contender {
    /// An addition and a subtraction, or a compare-and-swap and a store: the floor. Nobody can wait for it.
    Bare,
    /// The C library's default `pthread_rwlock_t`, which prefers readers.
    Glibc,
    /// The C library's of the kind that prefers writers.
    GlibcWriters,
    /// The standard library's.
    Std,
    /// parking_lot's.
    ParkingLot,
    /// One of a crate or a package, behind the pointers of [`poundlock_peers`].
    Called(Peer),
    /// Our mutex, which readers take as writers do: what sharing gains, or costs.
    Mutex,
    /// Ours with a policy, as a Rust program has it.
    Ours(Policy),
    /// The preload library's `pthread_rwlock_*`.
    Preloaded,
}

/// A lock of [`poundlock_peers::rw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(&'static str);

/// Those of [`poundlock_peers`] that need no pointers here.
const NEARER: [Contender; 4] =
    [Contender::Glibc, Contender::GlibcWriters, Contender::Std, Contender::ParkingLot];

impl Contender {
    /// Ours with the policy that the targets are about.
    pub const PHASE_FAIR: Contender = Contender::Ours(Policy::PhaseFair);

    /// Everybody, those that are not there among them.
    pub fn all() -> Vec<Contender> {
        let here = |name: &&str| {
            *name != EMPTY
                && Policy::parse(name).is_none()
                && !NEARER.iter().any(|contender| contender.name() == *name)
        };
        let called = rw::names().into_iter().filter(here).map(|name| Self::Called(Peer(name)));
        [Self::Bare]
            .into_iter()
            .chain(NEARER)
            .chain(called)
            .chain([Self::Mutex])
            .chain(Policy::ALL.map(Self::Ours))
            .chain([Self::Preloaded])
            .collect()
    }

    /// Those that every ratio needs.
    const REFERENCES: [Contender; 3] = [Self::Bare, Self::Glibc, Self::ParkingLot];

    /// The name as people type it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "add+subtract",
            Self::Glibc => "glibc",
            Self::GlibcWriters => "glibc-writers",
            Self::Std => "std",
            Self::ParkingLot => "parking_lot",
            Self::Called(peer) => peer.0,
            Self::Mutex => "mutex",
            Self::Ours(policy) => policy.name(),
            Self::Preloaded => "preload-rwlock",
        }
    }

    /// Whether it is a readers-writer lock of ours.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Ours(_) | Self::Preloaded)
    }

    /// Whether it is one of somebody else's that threads can wait for.
    pub(super) const fn is_peer(self) -> bool {
        !matches!(self, Self::Bare | Self::Mutex | Self::Ours(_) | Self::Preloaded)
    }

    /// Whether threads can wait for it.
    pub(crate) const fn waits(self) -> bool {
        !matches!(self, Self::Bare)
    }

    /// Why it is not there, if it is one of a package that is not.
    pub(crate) fn absent(self) -> Option<String> {
        match self {
            Self::Called(peer) => rw::find(peer.0)?.err().map(|absent| absent.why),
            _ => None,
        }
    }
}

chosen_by_name!(Contender, "readers-writer lock");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_contender() {
        let all = Contender::all();
        for &contender in &all {
            assert_eq!(Contender::parse(contender.name()).unwrap(), contender);
            let json = serde_json::to_string(&contender).unwrap();
            assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), contender);
        }
        // All of the table but what does nothing; and the floor, the mutex and the preloaded.
        assert_eq!(all.len(), rw::names().len() + 2);
        assert!(NEARER.iter().all(|contender| rw::names().contains(&contender.name())));
        let error = Contender::parse("qspin").unwrap_err().to_string();
        assert!(error.contains("'qspin'") && error.contains("rw-phase-fair"), "{error}");
    }

    #[test]
    fn the_references_are_always_there_once() {
        let ours = Contender::PHASE_FAIR;
        let some = Contender::with_references(&[ours, Contender::Glibc, ours]);
        assert_eq!(some, [Contender::Bare, Contender::Glibc, Contender::ParkingLot, ours]);
        assert_eq!(Contender::with_references(&[]), Contender::all());
    }
}
