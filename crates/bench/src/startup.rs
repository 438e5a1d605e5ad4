//! What it costs a program to start on our locks.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::clock;
use crate::contender::DEFAULT;
use crate::error::{Error, Result};
use crate::launch::{self, Context};
use crate::machine::Machine;
use crate::progress::Progress;
use crate::report::{Limit, Report, Table, Target, median, spread};
use crate::stats::Summary;

/// What to measure and how often.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The program to start; it should do nothing.
    pub program: PathBuf,
    /// How often each way of starting it is tried.
    pub rounds: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { program: PathBuf::from("/bin/true"), rounds: 300 }
    }
}

/// A way of starting the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// As it is.
    Plain,
    /// With the library in `LD_PRELOAD`.
    Preloaded,
    /// With statistics on as well.
    PreloadedStat,
    /// By `poundlock run`, that command's own start included.
    Run,
}

impl Way {
    const ALL: [Way; 4] = [Self::Plain, Self::Preloaded, Self::PreloadedStat, Self::Run];

    const fn words(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Preloaded => "preloaded",
            Self::PreloadedStat => "preloaded, statistics on",
            Self::Run => "poundlock run -- program",
        }
    }
}

/// A way of starting the program, with its times.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which way.
    pub way: Way,
    /// Milliseconds from the start to the end of the program.
    pub ms: Summary,
    /// Milliseconds more than plain, in the same round.
    pub adds_ms: Option<Summary>,
}

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What they were measured on.
    pub machine: Machine,
    /// How.
    pub options: Options,
    /// The figures.
    pub rows: Vec<Row>,
    /// What Poundlock wants to reach.
    pub targets: Vec<Target>,
}

/// Measures.
///
/// # Errors
/// If the preload library is missing, the program does not load it, or does not succeed.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    if options.rounds == 0 {
        return Err(Error::Options("at least one round is needed".to_owned()));
    }
    let library = context.library()?;
    let machine = Machine::describe(&context.command);
    loads(&options.program, library)?;
    let statistics = launch::statistics_directory()?;

    let mut samples = [const { Vec::new() }; Way::ALL.len()];
    let progress = Progress::new(options.rounds);
    let mut order = [0, 1, 2, 3];
    for _ in 0..options.rounds {
        fastrand::shuffle(&mut order);
        for index in order {
            let mut command = command(context, options, library, statistics.path(), Way::ALL[index]);
            samples[index].push(Some(time(&mut command, Way::ALL[index])?));
        }
        progress.done();
    }
    drop(progress);

    let mut rows = Vec::new();
    for (way, ms) in Way::ALL.into_iter().zip(&samples) {
        let Some(summary) = Summary::of(ms.iter().copied().flatten()) else { continue };
        let adds_ms = if way == Way::Plain { None } else { Summary::of_differences(ms, &samples[0]) };
        rows.push(Row { way, ms: summary, adds_ms });
    }
    let preloaded = rows.iter().find(|row| row.way == Way::Preloaded).and_then(|row| row.adds_ms);
    let targets = vec![Target::new(
        "start-up time added by the library",
        Limit::AtMost(3.0),
        "ms",
        [(DEFAULT, preloaded)],
    )];
    Ok(Figures { machine, options: options.clone(), rows, targets })
}

fn command(context: &Context, options: &Options, library: &Path, statistics: &Path, way: Way) -> Command {
    let mut command = if way == Way::Run {
        let mut command = Command::new(&context.program);
        command.args([OsStr::new("run"), OsStr::new("--"), options.program.as_os_str()]);
        command
    } else {
        Command::new(&options.program)
    };
    launch::unchosen(&mut command);
    match way {
        Way::Plain => {}
        Way::Preloaded => _ = command.env("LD_PRELOAD", library),
        Way::PreloadedStat => _ = command.env("LD_PRELOAD", library).env("POUNDLOCK_STAT_DIR", statistics),
        // The library that we measure, however it was found.
        Way::Run => _ = command.env("POUNDLOCK_PRELOAD_LIB", library),
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Milliseconds from the start to the end.
fn time(command: &mut Command, way: Way) -> Result<f64> {
    let start = clock::now_ns();
    let status =
        command.status().map_err(Error::system(format!("cannot start the program, {}", way.words())))?;
    let ns = clock::now_ns() - start;
    if status.success() {
        Ok(ns as f64 / 1e6)
    } else {
        Err(Error::Options(format!("the program, {}, did not succeed ({status})", way.words())))
    }
}

/// Makes sure that `program` loads the library: one that is statically linked would start wonderfully fast.
fn loads(program: &Path, library: &Path) -> Result<()> {
    // With this variable the dynamic linker lists what it would load, and runs nothing.
    let output = Command::new(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env("LD_PRELOAD", library)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::system(format!("cannot start {}", program.display())))?;
    let wanted: OsString = library.into();
    let listed = String::from_utf8_lossy(&output.stdout);
    if listed.lines().any(|line| line.trim_start().starts_with(&*wanted.to_string_lossy())) {
        Ok(())
    } else {
        Err(Error::Library(format!("{} does not load {}", program.display(), library.display())))
    }
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Start-up"
    }

    fn method(&self) -> String {
        format!(
            "Time from the start to the end of {}, which does nothing, started in {} ways in turn, in random order, \
             {} times. What a way adds is its difference to the plain way in the same round; the figures are medians.",
            self.options.program.display(),
            Way::ALL.len(),
            self.options.rounds,
        )
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn tables(&self) -> Vec<Table> {
        let mut table =
            Table::new("Start-up time", 1, &["started", "ms", "quartiles", "adds ms", "quartiles", "spread"]);
        let quartiles = |summary: Option<Summary>| {
            summary.map_or_else(|| "-".to_owned(), |summary| format!("{:.3}..{:.3}", summary.q1, summary.q3))
        };
        for row in &self.rows {
            table.rows.push(vec![
                row.way.words().to_owned(),
                median(Some(row.ms), 3),
                quartiles(Some(row.ms)),
                median(row.adds_ms, 3),
                quartiles(row.adds_ms),
                spread(row.adds_ms, 3),
            ]);
        }
        vec![table]
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_load_the_library_is_refused() {
        // The dynamic linker passes over a library that is not there, and the program runs without it.
        let error = loads(Path::new("/bin/true"), Path::new("/no/such/lib.so")).unwrap_err().to_string();
        assert!(error.contains("does not load /no/such/lib.so"), "{error}");
    }

    #[test]
    fn a_program_that_fails_gives_no_figure() {
        let error = time(&mut Command::new("/bin/false"), Way::Plain).unwrap_err().to_string();
        assert!(error.contains("did not succeed"), "{error}");
    }

    #[test]
    fn nothing_of_ours_reaches_the_plain_way() {
        let context = Context {
            program: "/x/poundlock".into(),
            worker: vec![],
            library: Ok("/x/lib.so".into()),
            command: String::new(),
        };
        let set = |way| {
            let command =
                command(&context, &Options::default(), Path::new("/x/lib.so"), Path::new("/s"), way);
            let set: Vec<_> = command
                .get_envs()
                .filter(|(_, value)| value.is_some())
                .map(|(name, _)| name.to_string_lossy().into_owned())
                .collect();
            set
        };
        assert!(set(Way::Plain).is_empty());
        assert_eq!(set(Way::Preloaded), ["LD_PRELOAD"]);
        assert_eq!(set(Way::PreloadedStat), ["LD_PRELOAD", "POUNDLOCK_STAT_DIR"]);
        assert_eq!(set(Way::Run), ["POUNDLOCK_PRELOAD_LIB"]);
    }
}
