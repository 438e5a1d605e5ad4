//! What it costs a program to start on our locks.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use serde::Serialize;

use crate::Summary;
use crate::clock;
use crate::contender::DEFAULT;
use crate::error::{Error, Result};
use crate::launch::{self, Context};
use crate::plan::{Plan, Preset, Rows};
use crate::report::{Limit, Table, Target, median, spread};

/// What to measure and how often.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// The program to start; it should do nothing
    #[arg(long, value_name = "FILE", default_value = "/bin/true")]
    pub program: PathBuf,
    /// How often to start it each way
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub rounds: usize,
}

/// The ways of starting the program, each with its name and in words: as it is, with the library in
/// `LD_PRELOAD`, with statistics on as well, and by `poundlock run`, that command's own start included.
const WAYS: [(&str, &str); 4] = [
    ("plain", "plain"),
    ("preloaded", "preloaded"),
    ("preloaded-stat", "preloaded, statistics on"),
    ("run", "poundlock run -- program"),
];

fn words(name: &str) -> &str {
    WAYS.into_iter().find(|way| way.0 == name).map_or(name, |way| way.1)
}

impl Preset for Options {
    const TITLE: &'static str = "Start-up";
    const TARGETS: &'static str = "Targets (they are about the default lock; the others for comparison)";
    const WHO: &'static str = "way";

    fn common(&self) -> (usize, Option<usize>) {
        (self.rounds, None)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        let library = plan.context.library()?.to_owned();
        loads(&self.program, &library)?;
        let statistics = Rc::new(launch::statistics_directory()?);
        for (way, words) in WAYS {
            let (program, library, statistics) =
                (self.program.clone(), library.clone(), Rc::clone(&statistics));
            plan.here("rows", self.program.display().to_string(), way, vec![], move |context| {
                let mut command = command(context, &program, &library, statistics.path(), way);
                Ok([("ms".to_owned(), time(&mut command, words)?)].into())
            });
        }
        plan.of("rows", "adds_ms", "ms", vec![("way", "plain".into())])
            .how(|own, plain| own - plain)
            .only(|labels| !labels.contains(&("way", "plain".into())));
        Ok(())
    }

    fn answer(&self, rows: &Rows) -> Option<String> {
        let adds = rows.find("rows", "preloaded", &[])?.get("adds_ms")?;
        let (median, low, high) = (adds.median, adds.q1, adds.q3);
        Some(format!("The library adds {median:.3} ms (quartiles {low:.3}..{high:.3}) to a program's start."))
    }

    fn method(&self, _rows: &Rows) -> String {
        format!(
            "Time from the start to the end of {}, which does nothing, started in {} ways in turn, in random \
                order, \
             {} times. What a way adds is its difference to the plain way in the same round; the figures are \
             medians.",
            self.program.display(),
            WAYS.len(),
            self.rounds,
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        let mut table =
            Table::new("Start-up time", 1, &["started", "ms", "quartiles", "adds ms", "quartiles", "spread"]);
        let quartiles = |summary: Option<Summary>| {
            summary.map_or_else(|| "-".to_owned(), |summary| format!("{:.3}..{:.3}", summary.q1, summary.q3))
        };
        for row in rows.of("rows") {
            let (ms, adds) = (row.get("ms"), row.get("adds_ms"));
            let figures = [median(ms, 3), quartiles(ms), median(adds, 3), quartiles(adds), spread(adds, 3)];
            table.rows.push([words(row.who).to_owned()].into_iter().chain(figures).collect());
        }
        vec![table]
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        let adds = rows.find("rows", "preloaded", &[]).and_then(|row| row.get("adds_ms"));
        let what = "start-up time added by the library";
        vec![Target::new(what, Limit::AtMost(3.0), "ms", [(DEFAULT, adds)])]
    }
}

fn command(context: &Context, program: &Path, library: &Path, statistics: &Path, way: &str) -> Command {
    let mut command = if way == "run" {
        let mut command = Command::new(&context.program);
        command.args([OsStr::new("run"), OsStr::new("--"), program.as_os_str()]);
        command
    } else {
        Command::new(program)
    };
    launch::unchosen(&mut command);
    match way {
        "preloaded" => _ = command.env("LD_PRELOAD", library),
        "preloaded-stat" => _ = command.env("LD_PRELOAD", library).env("POUNDLOCK_STAT_DIR", statistics),
        // The library that we measure, however it was found.
        "run" => _ = command.env("POUNDLOCK_PRELOAD_LIB", library),
        _ => {}
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Milliseconds from the start to the end.
fn time(command: &mut Command, way: &str) -> Result<f64> {
    let start = clock::now_ns();
    let status = command.status().map_err(Error::system(format!("cannot start the program, {way}")))?;
    let ns = clock::now_ns() - start;
    if status.success() {
        Ok(ns as f64 / 1e6)
    } else {
        Err(Error::Failed(format!("the program, {way}, did not succeed ({status})")))
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
        let error = time(&mut Command::new("/bin/false"), "plain").unwrap_err().to_string();
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
            let [program, library, statistics] = ["/bin/true", "/x/lib.so", "/s"].map(Path::new);
            let command = command(&context, program, library, statistics, way);
            let set: Vec<_> = command
                .get_envs()
                .filter(|(_, value)| value.is_some())
                .map(|(name, _)| name.to_string_lossy().into_owned())
                .collect();
            set
        };
        assert!(set("plain").is_empty());
        assert_eq!(set("preloaded"), ["LD_PRELOAD"]);
        assert_eq!(set("preloaded-stat"), ["LD_PRELOAD", "POUNDLOCK_STAT_DIR"]);
        assert_eq!(set("run"), ["POUNDLOCK_PRELOAD_LIB"]);
    }
}
