//! Spinlocks: alone, and contended for.

use std::path::Path;

use poundlock_core::qspin::{self, Large, Native, Paravirtual, Small, Virtual};
use poundlock_linux::Linux;
use poundlock_textbook::{BackOff, Mcs, TestAndSet, Ticket};
use serde::{Deserialize, Serialize};

use super::turns;
use super::uncontended::{Sleeper, Timer, take_turns, timer_of};
use crate::abi::{Abi, CMutex, CSpin, Kind, SpinAbi};
use crate::affinity;
use crate::error::{Error, Result};
use crate::lock::{BareCasStore, Lock, Plain, QueueSpin};
use crate::spin::Contender;
use crate::stats::Summary;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
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
    /// Threads that take turns.
    Turns { contender: Contender, turns: turns::Task },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// For each contender, nanoseconds a pair: the median over the slices and their spread.
    Alone(Vec<(Contender, Summary)>),
    Turns(turns::Answer),
}

pub(crate) fn run(library: Option<&Path>, task: &Task) -> Result<Answer> {
    match task {
        Task::Alone { contenders, cpu, slices, slice_ns } => {
            let sleeper = Sleeper::start()?;
            affinity::keep_to(&[*cpu])?;
            let mut timers = contenders
                .iter()
                .map(|&contender| Ok((contender, with_lock(contender, library, Time)?)))
                .collect::<Result<Vec<_>>>()?;
            let (results, _) = take_turns(&mut timers, Contender::name, *slices, *slice_ns)?;
            sleeper.stop()?;
            Ok(Answer::Alone(results))
        }
        Task::Turns { contender, turns } => with_lock(*contender, library, Drive(turns)).map(Answer::Turns),
    }
}

/// What is done with a lock, of whatever type.
trait Use {
    type Output;

    fn with<L: Lock + Send + 'static>(self, lock: L) -> Result<Self::Output>;
}

struct Time;

impl Use for Time {
    type Output = Timer;

    fn with<L: Lock + Send + 'static>(self, lock: L) -> Result<Timer> {
        Ok(timer_of(lock))
    }
}

struct Drive<'a>(&'a turns::Task);

impl Use for Drive<'_> {
    type Output = turns::Answer;

    fn with<L: Lock + Send + 'static>(self, lock: L) -> Result<turns::Answer> {
        turns::drive(lock, self.0)
    }
}

/// Uses a new lock of a contender.
fn with_lock<U: Use>(contender: Contender, library: Option<&Path>, user: U) -> Result<U::Output> {
    match contender {
        Contender::Bare => user.with(BareCasStore::default()),
        Contender::PthreadSpin => user.with(CSpin::new(SpinAbi::glibc()?)?),
        Contender::Preloaded(_) => {
            let library = library.ok_or_else(|| Error::Options("no preload library was named".to_owned()))?;
            user.with(CSpin::preloaded(library)?)
        }
        Contender::Rust(qspin::Form::Native) => user.with(QueueSpin::<Native, Small>::default()),
        Contender::Rust(qspin::Form::Virtual) => user.with(QueueSpin::<Virtual, Small>::default()),
        Contender::Rust(qspin::Form::Paravirtual) => user.with(QueueSpin::<Paravirtual, Small>::default()),
        Contender::Large(qspin::Form::Native) => user.with(QueueSpin::<Native, Large>::default()),
        Contender::Large(qspin::Form::Virtual) => user.with(QueueSpin::<Virtual, Large>::default()),
        Contender::Large(qspin::Form::Paravirtual) => user.with(QueueSpin::<Paravirtual, Large>::default()),
        Contender::Ticket => user.with(Plain::<Ticket<Linux>>::default()),
        Contender::TestAndSet => user.with(Plain::<TestAndSet<Linux>>::default()),
        Contender::BackOff => user.with(Plain::<BackOff<Linux>>::default()),
        Contender::Mcs => user.with(Plain::<Mcs<Linux>>::default()),
        Contender::Glibc => user.with(CMutex::new(Abi::glibc()?, Kind::Default)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_timed_alone_and_takes_turns() {
        let cpus = affinity::allowed().unwrap();
        let here: Vec<_> = Contender::all()
            .into_iter()
            .filter(|contender| !matches!(contender, Contender::Preloaded(_)))
            .collect();
        let task = Task::Alone { contenders: here.clone(), cpu: cpus[0], slices: 3, slice_ns: 20_000 };
        let Answer::Alone(results) = run(None, &task).unwrap() else { panic!("another answer") };
        assert_eq!(results.iter().map(|(contender, _)| *contender).collect::<Vec<_>>(), here);
        for (contender, ns) in results {
            assert!(ns.median > 0.0 && ns.n == 3, "{contender}: {ns:?}");
        }
        for contender in here.into_iter().filter(|&contender| contender != Contender::Bare) {
            let turns = turns::Task {
                threads: 2,
                critical_steps: 10,
                think_steps: 10,
                warm_up_ns: 0,
                duration_ns: 5_000_000,
                drain_ns: 60_000_000_000,
                cpus: cpus.clone(),
                pin: false,
                probe: false,
            };
            let Answer::Turns(answer) = run(None, &Task::Turns { contender, turns }).unwrap() else {
                panic!("another answer")
            };
            assert!(answer.counts.iter().sum::<u64>() > 0, "{contender}");
            assert_eq!(answer.unfinished, 0, "{contender}");
        }
    }

    #[test]
    fn a_bare_word_is_no_lock_to_take_turns_on() {
        let lock = BareCasStore::default();
        assert_eq!(lock.lock(&mut ()), 0);
        assert_eq!(lock.lock(&mut ()), libc::EBUSY);
        assert_eq!(lock.unlock(&mut ()), 0);
        assert_eq!(lock.lock(&mut ()), 0);
    }
}
