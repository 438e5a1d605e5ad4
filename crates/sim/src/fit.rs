//! Fitting: what the model leaves open, found from figures that were measured before a change.
//!
//! A compass search: each number in turn is made larger and smaller by a factor; what brings the runs nearer to the published figures
//! stays, and when nothing does, the factor becomes smaller. The same figures, numbers and seed come to the same end.

use crate::experiment::each;
use crate::machine::Machine;
use crate::published::{Figure, Run, Table};
use crate::workload::aim7::Profile;

/// What to fit.
#[derive(Debug)]
pub struct Fit<'a> {
    /// Where.
    pub machines: &'a [Machine],
    /// The tables whose figures before are to be met.
    pub tables: Vec<&'a Table>,
    /// What the jobs do, by kernel.
    pub profiles: &'a [Profile],
    /// The one of them that is fitted.
    pub kernel: &'a str,
    /// The numbers that may change, by name.
    pub free: Vec<String>,
    /// When to stop: after so many rounds through them.
    pub rounds: usize,
}

/// How far a profile is off, and what came of it.
#[derive(Clone, Debug)]
pub struct Found {
    /// With what it was found.
    pub profile: Profile,
    /// The mean of the squared logarithms of ours to theirs.
    pub error: f64,
}

impl Fit<'_> {
    /// The figures that are to be met: those before the first change, of the same kernel.
    fn targets(&self) -> Vec<&Figure> {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        rows.map(|row| &row.before)
            .filter(|figure| {
                figure.published.is_some() && figure.run.lock == FIRST && figure.run.kernel == self.kernel
            })
            .collect()
    }

    fn error(&self, profile: &Profile) -> Result<f64, String> {
        let targets = self.targets();
        let mut runs: Vec<&Run> = targets.iter().map(|figure| &figure.run).collect();
        runs.sort_unstable();
        runs.dedup();
        let profiles: Vec<Profile> = self
            .profiles
            .iter()
            .map(|known| if known.kernel() == self.kernel { profile.clone() } else { known.clone() })
            .collect();
        let outcomes = each(runs.len(), |at| runs[at].run(self.machines, &profiles), |_| ());
        let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut error = 0.0;
        for target in &targets {
            let at = runs.iter().position(|run| **run == target.run).ok_or("a run is missing")?;
            // What is near nothing counts as a thousandth: its logarithm says too much.
            let ours = outcomes[at].figures[target.pick].value.max(0.1);
            let theirs = target.published.ok_or("a figure is missing")?.max(0.1);
            error += (ours / theirs).ln().powi(2);
        }
        Ok(error / targets.len().max(1) as f64)
    }

    /// Finds it, from `begin` on. `tried` is told of each attempt: the number that was changed, its value, and the error.
    ///
    /// # Errors
    /// If a run fails, or there is nothing to meet.
    pub fn run(&self, begin: &Profile, mut tried: impl FnMut(&str, f64, f64)) -> Result<Found, String> {
        let mut found = Found { profile: begin.clone(), error: self.error(begin)? };
        tried("", 0.0, found.error);
        let mut factor: f64 = 1.5;
        for _ in 0..self.rounds {
            let before = found.error;
            for name in &self.free {
                let value = found.profile.fitted().into_iter().find(|(known, _)| known == name);
                let (_, value) =
                    value.ok_or_else(|| format!("no number that is fitted is called '{name}'"))?;
                for next in [value * factor, value / factor] {
                    let profile = found.profile.with(name, next);
                    let error = self.error(&profile)?;
                    tried(name, next, error);
                    if error < found.error {
                        found = Found { profile, error };
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

/// The lock of before the first change.
const FIRST: &str = "baseline";
