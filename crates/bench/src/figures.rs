//! Every benchmark in turn, as one page.

use serde::Serialize;

use crate::error::Result;
use crate::launch::Context;
use crate::report::{self, Report};
use crate::{handover, misc, rwlock, sem, spin, startup, uncontended};

/// The figures of every benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What a lock costs that nobody contends for.
    pub uncontended: uncontended::Figures,
    /// Throughput of threads that take turns.
    pub handover: handover::Figures,
    /// Spinlocks.
    pub spin: spin::Figures,
    /// Readers-writer locks.
    pub rwlock: rwlock::Figures,
    /// Mutexes and spinlocks in OSv's benchmark of mutexes.
    pub misc: misc::Figures,
    /// Semaphore arrays.
    pub sem: sem::Figures,
    /// What it costs a program to start on our locks.
    pub start_up: startup::Figures,
}

/// The options of every benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// For [`uncontended::run`].
    pub uncontended: uncontended::Options,
    /// For [`handover::run`].
    pub handover: handover::Options,
    /// For [`spin::run`].
    pub spin: spin::Options,
    /// For [`rwlock::run`].
    pub rwlock: rwlock::Options,
    /// For [`misc::run`].
    pub misc: misc::Options,
    /// For [`sem::run`].
    pub sem: sem::Options,
    /// For [`startup::run`].
    pub start_up: startup::Options,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            uncontended: uncontended::Options::default(),
            handover: handover::Options::default(),
            spin: spin::Options::default(),
            rwlock: rwlock::Options::default(),
            misc: misc::Options::default(),
            sem: sem::Options::short(),
            start_up: startup::Options::default(),
        }
    }
}

/// Runs them all.
///
/// # Errors
/// The first that one of them meets.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    Ok(Figures {
        uncontended: uncontended::run(context, &options.uncontended)?,
        handover: handover::run(context, &options.handover)?,
        spin: spin::run(context, &options.spin)?,
        rwlock: rwlock::run(context, &options.rwlock)?,
        misc: misc::run(context, &options.misc)?,
        sem: sem::run(context, &options.sem)?,
        start_up: startup::run(context, &options.start_up)?,
    })
}

impl Figures {
    /// The reports, in order.
    pub fn reports(&self) -> [&dyn Report; 7] {
        [&self.uncontended, &self.handover, &self.spin, &self.rwlock, &self.misc, &self.sem, &self.start_up]
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let mut page = format!(
            "# Figures\n\nWritten by `{}`; do not edit. The figures are this machine's, at this commit: run the \
             command for yours.\n",
            self.uncontended.machine.command
        );
        for report in self.reports() {
            page += &format!("\n{}", report::markdown(report));
        }
        page
    }
}
