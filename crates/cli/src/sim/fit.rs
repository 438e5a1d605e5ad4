//! `poundlock sim fit`: finds the numbers that the model leaves open, from published figures of before a change.

use poundlock_sim::Machine;
use poundlock_sim::fit::Fit;
use poundlock_sim::published::tables;
use poundlock_sim::workload::aim7::Profile;

use super::print;
use crate::message::{Failure, say, status};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The tables whose figures before are to be met
    #[arg(long, value_name = "TABLE,..", value_delimiter = ',', required = true)]
    tables: Vec<String>,
    /// The kernel whose jobs are fitted
    #[arg(long, value_name = "VERSION", default_value = "3.7")]
    kernel: String,
    /// The numbers that may change [default: all that are fitted]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    free: Vec<String>,
    /// Values to begin with, rather than those that are there
    #[arg(long, value_name = "NAME=VALUE,..", value_delimiter = ',')]
    from: Vec<String>,
    /// Rounds through all numbers
    #[arg(long, value_name = "N", default_value_t = 6)]
    rounds: usize,
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let wrong = |line: String| Failure::new(status::USAGE, line);
    let machines = Machine::known();
    let all = tables();
    let table = |name: &String| {
        all.iter()
            .find(|table| table.name == *name)
            .ok_or_else(|| wrong(format!("no table is called '{name}': see `poundlock sim list`")))
    };
    let tables = args.tables.iter().map(table).collect::<Result<_, _>>()?;
    let profiles = Profile::known();
    let profile = profiles.iter().find(|profile| profile.kernel() == args.kernel);
    let Some(mut profile) = profile.cloned() else {
        let kernels: Vec<_> = profiles.iter().map(Profile::kernel).collect();
        return Err(wrong(format!("there is no kernel '{}'; there are {}", args.kernel, kernels.join(", "))));
    };
    let fitted = profile.fitted();
    let known = |name: &str| {
        let names = || fitted.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        match fitted.iter().any(|(known, _)| known == name) {
            true => Ok(name.to_owned()),
            false => {
                Err(wrong(format!("no number that is fitted is called '{name}'; there are {}", names())))
            }
        }
    };
    for setting in &args.from {
        let parsed =
            setting.split_once('=').and_then(|(name, value)| Some((name, value.parse::<f64>().ok()?)));
        match parsed {
            Some((name, value)) if value >= 0.0 => profile = profile.with(&known(name)?, value),
            _ => {
                return Err(wrong(format!(
                    "--from wants a name and a number, as process.computes=5000, not '{setting}'"
                )));
            }
        }
    }
    let free = if args.free.is_empty() {
        fitted.iter().map(|(name, _)| name.clone()).collect()
    } else {
        args.free.iter().map(|name| known(name)).collect::<Result<_, _>>()?
    };
    let fit = Fit {
        machines: &machines,
        tables,
        profiles: &profiles,
        kernel: &args.kernel,
        free,
        rounds: args.rounds,
    };
    let found = fit
        .run(&profile, |name, value, error| say(format_args!("{name} {value:.1}: error {:.4}", error.sqrt())))
        .map_err(|line| Failure::new(1, line))?;
    let mut text = format!("error {:.4}\n", found.error.sqrt());
    for (name, value) in found.profile.fitted() {
        text += &format!("{name} = {value:.1}\n");
    }
    print(&text)
}
