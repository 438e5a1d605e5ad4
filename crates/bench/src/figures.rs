//! Every benchmark in turn, as one page.

use serde::Serialize;

use crate::error::Result;
use crate::launch::Context;
use crate::plan::{self, by_default};
use crate::report::{self, Report};
use crate::{handover, misc, rwlock, sem, spin, startup, uncontended};

/// The figures of every benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What a lock costs that nobody contends for.
    pub uncontended: plan::Figures,
    /// Throughput of threads that take turns.
    pub handover: plan::Figures,
    /// Spinlocks.
    pub spin: plan::Figures,
    /// Readers-writer locks.
    pub rwlock: plan::Figures,
    /// Mutexes and spinlocks in OSv's benchmark of mutexes.
    pub misc: plan::Figures,
    /// Semaphore arrays.
    pub sem: plan::Figures,
    /// What it costs a program to start on our locks.
    pub start_up: plan::Figures,
}

/// The options of every benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// For `uncontended`.
    pub uncontended: uncontended::Options,
    /// For `handover`.
    pub handover: handover::Options,
    /// For `spin`.
    pub spin: spin::Options,
    /// For `rwlock`.
    pub rwlock: rwlock::Options,
    /// For `misc`.
    pub misc: misc::Options,
    /// For `sem`.
    pub sem: sem::Options,
    /// For `startup`.
    pub start_up: startup::Options,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            uncontended: by_default(),
            handover: by_default(),
            spin: by_default(),
            rwlock: by_default(),
            misc: by_default(),
            // What the targets are about, in as little time as gives figures.
            sem: sem::Options { seconds: 0.6, bind: true, ..by_default() },
            start_up: by_default(),
        }
    }
}

/// Runs them all.
///
/// # Errors
/// The first that one of them meets.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    Ok(Figures {
        uncontended: plan::run(context, &options.uncontended)?,
        handover: plan::run(context, &options.handover)?,
        spin: plan::run(context, &options.spin)?,
        rwlock: plan::run(context, &options.rwlock)?,
        misc: plan::run(context, &options.misc)?,
        sem: plan::run(context, &options.sem)?,
        start_up: plan::run(context, &options.start_up)?,
    })
}

impl Figures {
    /// The reports, in order.
    fn reports(&self) -> [&Report; 7] {
        let all = [
            &self.uncontended,
            &self.handover,
            &self.spin,
            &self.rwlock,
            &self.misc,
            &self.sem,
            &self.start_up,
        ];
        all.map(|figures| &figures.report)
    }

    /// The page.
    pub fn markdown(&self, targets: bool) -> String {
        let mut page = format!(
            "# Figures\n\nWritten by `{}`; do not edit. The figures are this machine's, at this commit: run the \
             command for yours.\n",
            self.uncontended.report.machine.command
        );
        for report in self.reports() {
            page += &format!("\n{}", report::markdown(report, targets));
        }
        page
    }
}
