//! Readers-writer locks: alone, and contended for.

mod crowd;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::uncontended::{Sleeper, Timer, take_turns, timer_of};
use crate::abi::{CRw, RwAbi, RwKind};
use crate::affinity;
use crate::error::{Error, Result};
use crate::lock::BargingType;
use crate::rw::{BareCount, Called, Ours, ParkingLot, Reads, RwLock, Std, Writes};
use crate::rwlock::{Contender, Policy};
use crate::stats::Summary;

pub(crate) use crowd::{Answer as CrowdAnswer, Task as Crowd, Waits};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Whether the library has readers-writer locks of its own.
    Look,
    /// A lock and an unlock that nobody contends for, with a second thread alive; everybody in turn.
    Alone {
        contenders: Vec<Contender>,
        /// The CPU to stay on.
        cpu: usize,
        /// Time slices for each.
        slices: u32,
        /// Length of a slice.
        slice_ns: u64,
    },
    /// Threads of which some write.
    Crowd { contender: Contender, crowd: Crowd },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Why it has none, if it has none.
    Look(Option<String>),
    /// For each contender on each side, nanoseconds a pair: the median over the slices and their spread.
    Alone(Vec<((Contender, Side), Summary)>),
    Crowd(Box<CrowdAnswer>),
}

/// As what somebody locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// As a reader.
    Read,
    /// As a writer.
    Write,
}

impl Side {
    /// Both.
    pub const ALL: [Side; 2] = [Self::Read, Self::Write];

    /// The side in a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

pub(crate) fn run(library: Option<&Path>, task: &Task) -> Result<Answer> {
    match task {
        Task::Look => match preloaded(library) {
            Ok(_) => Ok(Answer::Look(None)),
            Err(Error::Library(why)) => Ok(Answer::Look(Some(why))),
            Err(other) => Err(other),
        },
        Task::Alone { contenders, cpu, slices, slice_ns } => {
            let sleeper = Sleeper::start()?;
            affinity::keep_to(&[*cpu])?;
            let mut timers = contenders
                .iter()
                .flat_map(|&contender| Side::ALL.map(|side| (contender, side)))
                .map(|(contender, side)| Ok(((contender, side), with_lock(contender, library, Time(side))?)))
                .collect::<Result<Vec<_>>>()?;
            let name = |(contender, _): (Contender, Side)| contender.name();
            let (results, _) = take_turns(&mut timers, name, *slices, *slice_ns)?;
            sleeper.stop()?;
            Ok(Answer::Alone(results))
        }
        Task::Crowd { contender, crowd } => {
            with_lock(*contender, library, Drive(crowd)).map(|answer| Answer::Crowd(Box::new(answer)))
        }
    }
}

/// What is done with a lock, of whatever type.
trait Use {
    type Output;

    fn with<L: RwLock + Send + 'static>(self, lock: L) -> Result<Self::Output>;
}

struct Time(Side);

impl Use for Time {
    type Output = Timer;

    fn with<L: RwLock + Send + 'static>(self, lock: L) -> Result<Timer> {
        Ok(match self.0 {
            Side::Read => timer_of(Reads(lock)),
            Side::Write => timer_of(Writes(lock)),
        })
    }
}

struct Drive<'a>(&'a Crowd);

impl Use for Drive<'_> {
    type Output = CrowdAnswer;

    fn with<L: RwLock + Send + 'static>(self, lock: L) -> Result<CrowdAnswer> {
        crowd::drive(lock, self.0)
    }
}

fn preloaded(library: Option<&Path>) -> Result<CRw> {
    CRw::preloaded(library.ok_or_else(|| Error::Options("no preload library was named".to_owned()))?)
}

/// Uses a new lock of a contender.
fn with_lock<U: Use>(contender: Contender, library: Option<&Path>, user: U) -> Result<U::Output> {
    match contender {
        Contender::Bare => user.with(BareCount::default()),
        Contender::Ours(Policy::PhaseFair) => user.with(Ours::<{ Policy::PhaseFair as usize }>::default()),
        Contender::Ours(Policy::ReaderPreferring) => {
            user.with(Ours::<{ Policy::ReaderPreferring as usize }>::default())
        }
        Contender::Ours(Policy::WriterPreferring) => {
            user.with(Ours::<{ Policy::WriterPreferring as usize }>::default())
        }
        Contender::Preloaded => user.with(preloaded(library)?),
        Contender::Glibc => user.with(CRw::new(RwAbi::glibc()?, RwKind::Default)?),
        Contender::GlibcWriters => user.with(CRw::new(RwAbi::glibc()?, RwKind::Writers)?),
        Contender::Std => user.with(Std::default()),
        Contender::ParkingLot => user.with(ParkingLot::default()),
        Contender::Mutex => user.with(BargingType::default()),
        Contender::Called(_) => user.with(Called::new(contender.name())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_timed_alone_and_serves_a_crowd() {
        let cpus = affinity::allowed().unwrap();
        let here: Vec<_> = Contender::all()
            .into_iter()
            .filter(|contender| contender.absent().is_none() && *contender != Contender::Preloaded)
            .collect();
        let task = Task::Alone { contenders: here.clone(), cpu: cpus[0], slices: 3, slice_ns: 20_000 };
        let Answer::Alone(results) = run(None, &task).unwrap() else { panic!("another answer") };
        let sides = here.iter().flat_map(|&contender| Side::ALL.map(|side| (contender, side)));
        assert_eq!(results.iter().map(|(who, _)| *who).collect::<Vec<_>>(), sides.collect::<Vec<_>>());
        for ((contender, side), ns) in results {
            assert!(ns.median > 0.0 && ns.n == 3, "{contender}, {}: {ns:?}", side.name());
        }
        for contender in here.into_iter().filter(|contender| contender.waits()) {
            let crowd = crowd::tests::task(2);
            let Answer::Crowd(answer) = run(None, &Task::Crowd { contender, crowd }).unwrap() else {
                panic!("another answer")
            };
            assert!(answer.turns.counts.iter().sum::<u64>() > 0, "{contender}");
            assert_eq!(answer.turns.unfinished, 0, "{contender}");
        }
    }

    #[test]
    fn a_library_without_the_functions_says_so() {
        // It depends on the C library, where a search for the functions would end.
        let Answer::Look(why) = run(Some(Path::new("libm.so.6")), &Task::Look).unwrap() else {
            panic!("another answer")
        };
        assert!(why.unwrap().contains("does not provide pthread_rwlock_rdlock"));
    }
}
