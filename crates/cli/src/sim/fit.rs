//! `poundlock sim fit`: finds the numbers that the model leaves open, from published figures of before a
//! change.

use poundlock_sim::fit::Fit;
use poundlock_sim::model::Model;
use poundlock_sim::published::tables;

use super::{MS, time};
use crate::message::{Failure, say, status};
use crate::output::print;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The tables whose figures before are to be met
    #[arg(long, value_name = "TABLE,..", value_delimiter = ',', required = true)]
    tables: Vec<String>,
    /// The numbers that may change [default: all that are fitted]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    free: Vec<String>,
    /// Values to begin with, rather than those that are there
    #[arg(long, value_name = "NAME=VALUE,..", value_delimiter = ',')]
    from: Vec<String>,
    /// Of each table only these lines, counted from 1 [default: all]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    rows: Vec<usize>,
    /// Simulated milliseconds that are counted in each run [default: as many as `reproduce` counts]
    #[arg(long, value_name = "MS")]
    time: Option<f64>,
    /// Rounds through all numbers
    #[arg(long, value_name = "N", default_value_t = 6)]
    rounds: usize,
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let wrong = |line: String| Failure::new(status::USAGE, line);
    let mut all = tables();
    for table in &mut all {
        let mut line = 0;
        table.rows.retain(|_| {
            line += 1;
            args.rows.is_empty() || args.rows.contains(&line)
        });
        for row in &mut table.rows {
            for figure in [&mut row.before, &mut row.after] {
                if let Some(ms) = args.time {
                    figure.run.time = time("--time", ms, MS, 0.001)?;
                }
            }
        }
    }
    let table = |name: &String| {
        all.iter()
            .find(|table| table.name == *name)
            .ok_or_else(|| wrong(format!("no table is called '{name}': see `poundlock sim list`")))
    };
    let tables = args.tables.iter().map(table).collect::<Result<_, _>>()?;
    let mut fit = Fit { tables, free: Vec::new(), rounds: args.rounds };
    let mut model = Model::known();
    let concerned = fit.concerned(&model);
    let known = |name: &str| match concerned.iter().any(|known| known == name) {
        true => Ok(name.to_owned()),
        false => Err(wrong(format!(
            "no number of these tables that is fitted is called '{name}'; there are {}",
            concerned.join(", ")
        ))),
    };
    for setting in &args.from {
        let parsed =
            setting.split_once('=').and_then(|(name, value)| Some((name, value.parse::<f64>().ok()?)));
        match parsed {
            Some((name, value)) if value >= 0.0 => {
                model = model.with(&known(name)?, value).map_err(|error| wrong(error.to_string()))?;
            }
            _ => {
                return Err(wrong(format!(
                    "--from wants a name and a number, as aim7-3.7/process.computes=5000, not '{setting}'"
                )));
            }
        }
    }
    fit.free = if args.free.is_empty() {
        concerned.clone()
    } else {
        args.free.iter().map(|name| known(name)).collect::<Result<_, _>>()?
    };
    let found = fit
        .run(&model, |name, value, error| say(format_args!("{name} {value:.1}: error {:.4}", error.sqrt())))
        .map_err(|line| Failure::new(status::OURS, line))?;
    let mut text = format!("error {:.4}\n", found.error.sqrt());
    for (name, value) in found.model.fitted().into_iter().filter(|(name, _)| concerned.contains(name)) {
        text += &format!("{name} = {value:.1}\n");
    }
    print(&text)
}
