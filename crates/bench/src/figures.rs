//! Every benchmark in turn, as one page.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::launch::Context;
use crate::plan::{self, by_default};
use crate::report::{self, Report};
use crate::{handover, misc, rwlock, sem, spin, startup, uncontended};

/// The figures of every benchmark, by its name.
#[derive(Default, Serialize)]
#[serde(transparent)]
pub struct Figures {
    json: Map<String, Value>,
    #[serde(skip)]
    reports: Vec<Report>,
}

/// The options of every benchmark, each by its name.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each field is called by its benchmark")]
pub struct Options {
    pub uncontended: uncontended::Options,
    pub handover: handover::Options,
    pub spin: spin::Options,
    pub rwlock: rwlock::Options,
    pub misc: misc::Options,
    pub sem: sem::Options,
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
    let mut all = Figures::default();
    all.add("uncontended", plan::run(context, &options.uncontended)?)?;
    all.add("handover", plan::run(context, &options.handover)?)?;
    all.add("spin", plan::run(context, &options.spin)?)?;
    all.add("rwlock", plan::run(context, &options.rwlock)?)?;
    all.add("misc", plan::run(context, &options.misc)?)?;
    all.add("sem", plan::run(context, &options.sem)?)?;
    all.add("start_up", plan::run(context, &options.start_up)?)?;
    Ok(all)
}

impl Figures {
    fn add(&mut self, name: &str, figures: plan::Figures) -> Result<()> {
        let json = serde_json::to_value(&figures).map_err(|error| Error::Failed(error.to_string()))?;
        self.json.insert(name.to_owned(), json);
        self.reports.push(figures.report);
        Ok(())
    }

    /// The page.
    pub fn markdown(&self, targets: bool) -> String {
        let command = self.reports.first().map_or("", |report| &report.machine.command);
        let mut page = format!(
            "# Figures\n\nWritten by `{command}`; do not edit. The figures are this machine's, at this \
                commit: run the \
             command for yours.\n"
        );
        for report in &self.reports {
            page += &format!("\n{}", report::markdown(report, targets));
        }
        page
    }
}
