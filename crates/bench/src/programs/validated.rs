//! Programs whose next run is predicted, to see whether a prediction is right: with more or fewer threads, on
//! other locks, and changed.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use super::known::{Work, compiled, line, program};
use super::served::{self, Service};
use super::{directory, missing, own_seconds, words};
use crate::error::{Error, Result};
use crate::launch::{self, Context};
use crate::plan::Absent;

const TABLE: &str = include_str!("../../../../examples/predict/table.c");
const QUEUE: &str = include_str!("../../../../examples/predict/queue.c");

/// A program that can be run with any number of threads that do the same.
struct Threaded {
    name: &'static str,
    /// Executables without which there is no measurement, and Debian's package with the last of them.
    needs: &'static [&'static str],
    package: &'static str,
    prepare: fn(&Path, usize, &[&str]) -> Result<Work>,
}

const ALL: &[Threaded] = &[
    Threaded {
        name: "logtally",
        needs: &["cc"],
        package: "gcc",
        prepare: |directory, threads, _| {
            let source = include_str!("../../../../examples/logtally/logtally.c");
            let mut argv = vec![compiled(directory, "logtally", source, &[])?];
            argv.extend(words(&[&threads.to_string(), "400000"]));
            Ok(Work::Command(argv))
        },
    },
    Threaded {
        name: "table",
        needs: &["cc"],
        package: "gcc",
        prepare: |directory, threads, defined| c(directory, "table", TABLE, threads, defined),
    },
    Threaded {
        name: "cache",
        needs: &["cc"],
        package: "gcc",
        prepare: |directory, threads, _| c(directory, "cache", TABLE, threads, &["-DRW"]),
    },
    Threaded {
        name: "queue",
        needs: &["cc"],
        package: "gcc",
        prepare: |directory, threads, _| c(directory, "queue", QUEUE, threads, &[]),
    },
    Threaded {
        name: "sysbench-threads",
        needs: &["sysbench"],
        package: "sysbench",
        prepare: |_, threads, _| {
            let threads = format!("--threads={threads}");
            let options = ["threads", &threads, "--time=0", "--events=6000", "--thread-yields=100"];
            Ok(Work::Command(line("sysbench", &[&options[..], &["--thread-locks=4", "run"]].concat())))
        },
    },
    Threaded {
        name: "sysbench-mutex",
        needs: &["sysbench"],
        package: "sysbench",
        prepare: |_, threads, _| {
            let threads = format!("--threads={threads}");
            let options = ["mutex", &threads, "--time=0", "--mutex-num=8", "--mutex-locks=1000000"];
            Ok(Work::Command(line("sysbench", &[&options[..], &["--mutex-loops=1000", "run"]].concat())))
        },
    },
    Threaded {
        name: "stress-ng",
        needs: &["stress-ng"],
        package: "stress-ng",
        prepare: |directory, threads, _| {
            let threads = threads.to_string();
            let options =
                ["--mutex", "1", "--mutex-procs", &threads, "--mutex-ops", "400000", "--timeout", "0"];
            let mut argv = line("stress-ng", &options);
            argv.extend(["--temp-path".into(), directory.into()]);
            Ok(Work::Command(argv))
        },
    },
    Threaded {
        name: "memcached",
        needs: &["memcached"],
        package: "memcached",
        prepare: |_, threads, _| Ok(Work::Served(Service::memcached(program("memcached"), threads, 1.0))),
    },
];

/// One of our own, with this number of threads.
fn c(directory: &Path, name: &str, source: &str, threads: usize, defined: &[&str]) -> Result<Work> {
    Ok(Work::Command(vec![compiled(directory, name, source, defined)?, threads.to_string().into()]))
}

/// A program that is ready to run.
pub struct Validated {
    /// Its name.
    pub name: &'static str,
    /// How many threads it has.
    pub threads: usize,
    work: Work,
    directory: tempfile::TempDir,
}

/// Those programs with this number of threads, and who is not installed.
///
/// # Errors
/// If one cannot be made ready.
pub fn validated(threads: usize) -> Result<(Vec<Validated>, Absent)> {
    let (mut ready, mut absent) = (Vec::new(), Vec::new());
    for threaded in ALL {
        match missing(threaded.needs, threaded.package) {
            Some(why) => absent.push((threaded.name, why)),
            None => ready.push(Validated::new(threaded, threads, &[])?),
        }
    }
    Ok((ready, absent))
}

/// `table` with this number of threads, changed by these macros.
///
/// # Errors
/// If it cannot be made ready.
pub fn table(threads: usize, defined: &[&str]) -> Result<Validated> {
    let table = ALL.iter().find(|threaded| threaded.name == "table");
    Validated::new(table.unwrap_or(&ALL[0]), threads, defined)
}

impl Validated {
    fn new(threaded: &Threaded, threads: usize, defined: &[&str]) -> Result<Validated> {
        let directory = directory()?;
        let work = (threaded.prepare)(directory.path(), threads, defined)?;
        Ok(Validated { name: threaded.name, threads, work, directory })
    }

    /// How long its work takes, in milliseconds: by its own clock, by its clients', or from its start to its
    /// end. It is started by the command `before`, if that is not empty.
    ///
    /// # Errors
    /// If it does not succeed.
    pub fn ms(&self, context: &Context, before: &[OsString]) -> Result<f64> {
        let library = context.library()?;
        let start = |argv: &[OsString]| {
            let argv: Vec<&OsString> = before.iter().chain(argv).collect();
            let mut command = std::process::Command::new(argv[0]);
            command.args(&argv[1..]);
            launch::unchosen(&mut command);
            // The library that we measure, however it was found.
            command.env("POUNDLOCK_PRELOAD_LIB", library);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        match &self.work {
            Work::Served(service) => {
                let start = |argv: &[OsString]| {
                    let mut command = start(argv);
                    command.stdout(Stdio::null());
                    command
                };
                served::answers(service, self.directory.path(), &start)
            }
            Work::Command(argv) => {
                let begin = poundlock_measure::clock::now_ns();
                let told =
                    start(argv).output().map_err(Error::system(format!("cannot start {}", self.name)))?;
                let ms = (poundlock_measure::clock::now_ns() - begin) as f64 / 1e6;
                let text = [told.stdout, told.stderr].concat();
                let text = String::from_utf8_lossy(&text);
                if !told.status.success() {
                    return Err(Error::Failed(format!("{} failed: {}", self.name, text.trim())));
                }
                Ok(own_seconds(&text).map_or(ms, |seconds| seconds * 1e3))
            }
        }
    }
}
