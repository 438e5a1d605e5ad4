//! Fitting: finds the model's free numbers from figures that were measured before a change.
//!
//! A compass search: each number in turn is made larger and smaller by a factor. A change that brings the
//! runs nearer to the published figures stays; when none does, the factor becomes smaller. The same figures,
//! numbers and seed give the same result.

use crate::experiment::{Work, each};
use crate::model::Model;
use crate::published::{Figure, Run, Table};

/// What to fit.
#[derive(Debug)]
pub struct Fit<'a> {
    /// The tables whose figures of before the change are the targets.
    pub tables: Vec<&'a Table>,
    /// The numbers that may change, by name.
    pub free: Vec<String>,
    /// How many rounds through them to make.
    pub rounds: usize,
}

/// How far the numbers are off, and what they are.
#[derive(Clone, Debug)]
pub struct Found {
    /// With these.
    pub model: Model,
    /// The mean of the squared logarithms of ours to theirs.
    pub error: f64,
}

impl Fit<'_> {
    /// The targets: the figures of before the first change.
    fn targets(&self) -> Vec<&Figure> {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        rows.map(|row| &row.before)
            .filter(|figure| figure.published.is_some() && FIRST.contains(&figure.run.lock))
            .collect()
    }

    /// The names of all fitted numbers that matter to the targets.
    pub fn concerned(&self, model: &Model) -> Vec<String> {
        let targets = self.targets();
        let concerns = |name: &str| {
            let owner = name.split('/').next();
            targets.iter().any(|figure| {
                let guest = figure.run.guest.as_ref();
                owner == Some(figure.run.machine)
                    || owner.is_some() && owner == guest.map(|guest| guest.hypervisor.as_str())
                    || matches!(&figure.run.work, Work::Jobs { profile, .. } if owner == Some(profile))
            })
        };
        model.fitted().into_iter().map(|(name, _)| name).filter(|name| concerns(name)).collect()
    }

    fn error(&self, model: &Model) -> Result<f64, String> {
        let targets = self.targets();
        let mut runs: Vec<&Run> = targets.iter().map(|figure| &figure.run).collect();
        runs.sort_unstable();
        runs.dedup();
        let outcomes = each(runs.len(), |at| runs[at].run(model), |_| ());
        let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut error = 0.0;
        for target in &targets {
            let at = runs.iter().position(|run| **run == target.run).ok_or("a run is missing")?;
            // A value near zero counts as a thousandth: its logarithm would weigh too much.
            let ours = outcomes[at].figure(target.pick).ok_or("a figure is missing")?.max(0.1);
            let theirs = target.published.ok_or("a figure is missing")?.max(0.1);
            error += (ours / theirs).ln().powi(2);
        }
        Ok(error / targets.len().max(1) as f64)
    }

    /// Fits, from `begin` on. `tried` is called after each attempt, with the number that was changed, its
    /// value, and the error.
    ///
    /// # Errors
    /// If a run fails, or there are no targets.
    pub fn run(&self, begin: &Model, mut tried: impl FnMut(&str, f64, f64)) -> Result<Found, String> {
        let mut found = Found { model: begin.clone(), error: self.error(begin)? };
        tried("", 0.0, found.error);
        let mut factor: f64 = 1.5;
        for _ in 0..self.rounds {
            let before = found.error;
            for name in &self.free {
                let value = found.model.fitted().into_iter().find(|(known, _)| known == name);
                let (_, value) =
                    value.ok_or_else(|| format!("no number that is fitted is called '{name}'"))?;
                for next in [value * factor, value / factor] {
                    // A value that makes no sense is not tried.
                    let Ok(model) = found.model.with(name, next) else { continue };
                    let error = self.error(&model)?;
                    tried(name, next, error);
                    if error < found.error {
                        found = Found { model, error };
                        break;
                    }
                }
            }
            if found.error >= before {
                factor = factor.sqrt();
            }
        }
        Ok(found)
    }
}

/// The locks from before the first change.
const FIRST: [&str; 5] = ["baseline", "ticket", "ticket-pv", "handoff:none", "before"];

/// Whether a figure with this lock is from before the first change.
pub fn is_before(lock: &str) -> bool {
    FIRST.contains(&lock)
}
