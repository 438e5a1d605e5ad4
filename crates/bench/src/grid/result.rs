//! A result directory: what a run of the grid leaves, and what is read back to go on with it or to draw it.
//!
//! | file | holds | written |
//! | --- | --- | --- |
//! | `run.json` | [`Run`]: what is measured, on what, by what | before the first measurement |
//! | `floors.json` | [`Floors`]: what no lock can undercut | before the first measurement |
//! | `samples.jsonl` | a [`Sample`] a line | line by line, as each measurement ends |
//!
//! A run that is interrupted leaves its samples. At worst the last line is torn, and [`Directory::samples`]
//! leaves it out.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Machine;
use crate::Summary;
use crate::error::{Error, Result};
use crate::plan;
use crate::work::Calibration;

/// The version of the format, in [`Run::version`].
pub const VERSION: u32 = 2;

/// What is measured: `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// What the figures were measured on, and the command line.
    pub machine: Machine,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// What a step of work took before the rounds; all locks work by it.
    pub calibration: Calibration,
    /// The locks, in the order in which they are listed.
    pub peers: Vec<Peer>,
    /// Those that could not be had.
    pub absent: Vec<Absent>,
    /// The lock of ours that the comparison is about; among `peers`.
    pub ours: String,
    /// The points, to which samples refer by their index.
    pub points: Vec<Point>,
    /// Rounds in which each lock is measured once at each point.
    pub rounds: usize,
    /// The CPUs that the threads may run on.
    pub cpus: Vec<usize>,
    /// Whether each thread stays on one of them, in turn.
    pub pinned: bool,
}

/// A lock that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name, as people type it.
    pub name: String,
    /// One line on what it is.
    pub description: String,
    /// Where it comes from, with a version.
    pub origin: String,
    /// Whether it is one of ours.
    pub ours: bool,
    /// Whether its waiters only spin.
    pub spins: bool,
}

/// A lock that cannot take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Its name.
    pub name: String,
    /// Why, in one line.
    pub why: String,
}

/// Sorts of work, in the order in which they are shown. The command's help and the headings have these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One lock, sections of one length
    Grid,
    /// One lock, sections mostly short and now and then long
    Modal,
    /// One lock, whose holder now and then sleeps
    SleepingHolder,
    /// One lock, and a process that spins on each CPU
    Hogs,
    /// A hash table with a lock for each bucket
    Buckets,
    /// A fixed number of operations on locks chosen at random
    LockBench,
}

impl Kind {
    /// The name as people type it, and as JSON has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The kind in words, for a heading.
    pub fn words(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| Some(value.get_help()?.to_string())).unwrap_or_default()
    }
}

/// Some work for some threads: a point of the grid, or a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The sort of work.
    pub kind: Kind,
    /// A readable name, unique in the run.
    pub name: String,
    /// Threads.
    pub threads: usize,
    /// Microseconds of work inside the critical section.
    pub critical_us: f64,
    /// Microseconds of work between two critical sections of a thread, on average.
    pub think_us: f64,
    /// Seconds without timing of single acquisitions, for throughput; for `lock-bench` the most that it may
    /// take.
    pub seconds: f64,
    /// Seconds with timing of each acquisition.
    pub latency_seconds: f64,
    /// How many locks there are.
    pub locks: usize,
}

/// A measurement: a line of `samples.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The point, as an index into [`Run::points`].
    pub point: usize,
    /// The lock's name.
    pub lock: String,
    /// The round, from 0.
    pub round: usize,
    /// What came out.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What comes out of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// There is no figure: why not, in one line.
    Failed(String),
    /// Figures by name, as every benchmark has them: `throughput` (acquisitions a second), `cpu_ns` (user and
    /// system time an acquisition), `jain`, `waits.p999_ns` and so on.
    Figures(plan::Sample),
}

/// What no lock can undercut, and what the driver adds to each: `floors.json`. Nanoseconds, each over several
/// slices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floors {
    /// A compare-and-swap and an exchange on one CPU, inlined: the least that a lock with sleepers does.
    pub bare_cas_ns: Summary,
    /// A compare-and-swap and a plain store: the least that a spinlock does.
    pub bare_cas_store_ns: Summary,
    /// A plain load and a plain store.
    pub bare_load_store_ns: Summary,
    /// A turn of a spin loop, which is what [`core::hint::spin_loop`] tells the CPU.
    pub pause_ns: Summary,
    /// A cache line from one CPU to another, one way.
    pub line_transfer_ns: Vec<Transfer>,
    /// One sleep of a thread in a futex and its being woken.
    pub futex_sleep_wake_ns: SleepWake,
    /// What the driver itself costs: the loop, and two calls of empty functions through the same pointers.
    pub driver_ns: Summary,
    /// What the timing of an acquisition adds to its wait.
    pub timing_ns: Summary,
    /// What takes a CPU from a thread that computes for a moment; `None` if nothing did.
    #[serde(default)]
    pub interrupts: Option<Interrupts>,
}

/// Ticks of the timer, and whatever else takes a CPU from the thread that runs there for more than ten
/// microseconds and gives it back: in a virtual machine a tick can take as long as a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupts {
    /// How many come in a second.
    pub a_second: f64,
    /// What one takes.
    pub takes_ns: Summary,
}

/// What it costs to move a cache line between two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// A CPU.
    pub from: usize,
    /// Another one.
    pub to: usize,
    /// Nanoseconds, one way: half of a round trip.
    pub ns: Summary,
}

/// What it costs to sleep and be woken.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SleepWake {
    /// By a thread of the same CPU: the switch to the woken thread included.
    pub same_cpu: Summary,
    /// By a thread of another CPU, which has nothing else to do; `None` if there is no other.
    pub other_cpu: Option<Summary>,
    /// A call that wakes nobody.
    pub nobody: Summary,
    /// From a thread that gives its CPU away to the next.
    pub switch: Summary,
    /// Beside the slice that gave its median, a turn of
    /// [`compute`](poundlock_statfile::speed::compute) on that CPU: it tells how fast it was.
    pub turn_ns: f64,
    /// A call that wakes a thread of its CPU, which does not run yet.
    pub queues: Summary,
    /// A call that wakes a thread of another CPU, which has nothing else to do; `None` if there is no other.
    pub other: Option<Wake>,
    /// From the begin of a call until a thread runs that was woken by a thread of its CPU, which goes on.
    pub preempts: Summary,
    /// More of other CPUs.
    pub idle: Option<IdleCpus>,
}

/// What it costs to wake a thread that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    /// The call.
    pub call: Summary,
    /// From its begin until the thread runs.
    pub runs: Summary,
}

/// How the kernel uses CPUs that have become idle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleCpus {
    /// A wake-up some microseconds after its CPU became idle: the mean of the call.
    pub awake_call_ns: f64,
    /// The mean from the begin of the call until the thread runs.
    pub awake_runs_ns: f64,
    /// CPU time that a thread is charged for a sleep, where its CPU has been idle for longer: as much more
    /// than it is there.
    pub charged_ns: f64,
    /// How much of that is left to chance: as much less than the mean one in ten is.
    pub chance: f64,
    /// From the begin of a call until a thread runs whose CPU another thread computes on.
    pub busy_runs: Summary,
    /// The same where the other one gives it away again and again, to nobody, and is interrupted; `busy_runs`
    /// if it never was.
    pub yielding_runs: Summary,
    /// How busy a CPU may have been of late at most, as a share of its time, for a thread that is woken there
    /// to come there, though its own CPU is idle.
    pub packs_below: f64,
}

/// A result directory.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory at `path`, which need not be there yet.
    pub fn at(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into() }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was to be measured.
    ///
    /// # Errors
    /// If there is no such directory, or if another version wrote it.
    pub fn run(&self) -> Result<Run> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let (path, here) = (self.path.join("run.json"), self.path.display());
        let none = || Error::Failed(format!("{here} holds no results: there is no run.json"));
        let text = self.read("run.json")?.ok_or_else(none)?;
        let Version { version } = parse(&path, &text)?;
        if version != VERSION {
            return Err(Error::Failed(format!(
                "{here} has version {version} of the format; this command knows version {VERSION}"
            )));
        }
        parse(&path, &text)
    }

    /// The floors; `None` if the run ended before it had measured them.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn floors(&self) -> Result<Option<Floors>> {
        let text = self.read("floors.json")?;
        text.map(|text| parse(&self.path.join("floors.json"), &text)).transpose()
    }

    /// The measurements so far, in the order in which they were made.
    ///
    /// # Errors
    /// If the file cannot be read, or if a line other than the last makes no sense.
    pub fn samples(&self) -> Result<Vec<Sample>> {
        Ok(self.samples_and_length()?.0)
    }

    /// The measurements, and how many bytes of the file they fill: a line that an interruption tore is not
    /// among them.
    fn samples_and_length(&self) -> Result<(Vec<Sample>, u64)> {
        let path = self.path.join("samples.jsonl");
        let text = self.read("samples.jsonl")?.unwrap_or_default();
        let whole = text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let length = whole.clone().map(<[u8]>::len).sum::<usize>() as u64;
        Ok((whole.map(|line| parse(&path, line)).collect::<Result<_>>()?, length))
    }

    /// A file, if it is there.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::system(format!("cannot read {}", path.display()))(error)),
        }
    }

    /// Makes the directory and writes what is to be measured.
    ///
    /// # Errors
    /// If there are results in it already, or if it cannot be written.
    pub(crate) fn create(&self, run: &Run) -> Result<()> {
        let path = self.path.display();
        if ["run.json", "samples.jsonl"].iter().any(|file| self.path.join(file).exists()) {
            return Err(Error::Failed(format!(
                "{path} holds results already: go on with them by --resume {path}, or name another directory"
            )));
        }
        fs::create_dir_all(&self.path).map_err(Error::system(format!("cannot make {path}")))?;
        self.write("run.json", run)
    }

    /// A whole file or none: it gets its name when it is complete.
    pub(crate) fn write(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
            writeln!(file, "{}", serde_json::to_string_pretty(value)?)?;
            // Temporary files are private; results are not.
            let public = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o644);
            file.as_file().set_permissions(public)?;
            file.persist(self.path.join(name))?;
            Ok(())
        };
        write().map_err(Error::system(format!("cannot write {}", self.path.join(name).display())))
    }

    /// Where more measurements go. Cuts off a line that an interruption tore.
    pub(crate) fn append(&self) -> Result<Samples> {
        let length = self.samples_and_length()?.1;
        let path = self.path.join("samples.jsonl");
        let open = || -> io::Result<File> {
            let file = File::options().append(true).create(true).open(&path)?;
            file.set_len(length)?;
            Ok(file)
        };
        let file = open().map_err(Error::system(format!("cannot write {}", path.display())))?;
        Ok(Samples { file, path })
    }
}

/// Where measurements go.
pub(crate) struct Samples {
    file: File,
    path: PathBuf,
}

impl Samples {
    /// Adds a line. It has left this process when this returns.
    pub(crate) fn push(&mut self, sample: &Sample) -> Result<()> {
        let line = serde_json::to_string(sample).map_err(io::Error::from);
        let written = line.and_then(|line| self.file.write_all((line + "\n").as_bytes()));
        written.map_err(Error::system(format!("cannot write {}", self.path.display())))
    }
}

fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| {
        Error::Failed(format!("{} is damaged, or another version wrote it: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: usize) -> Sample {
        let figures = [("jain".to_owned(), 0.5), ("waits.max_ns".to_owned(), u64::MAX as f64)].into();
        Sample { point: 7, lock: "glibc".to_owned(), round, outcome: Outcome::Figures(figures) }
    }

    #[test]
    fn a_sample_is_one_line() {
        let failed = Sample { outcome: Outcome::Failed("it hangs".to_owned()), ..sample(0) };
        let figures = r#""figures":{"jain":0.5,"waits.max_ns":1.8446744073709552e+19}"#;
        for (sample, outcome) in [(sample(0), figures), (failed, r#""failed":"it hangs""#)] {
            let line = serde_json::to_string(&sample).unwrap();
            assert_eq!(line, format!(r#"{{"point":7,"lock":"glibc","round":0,{outcome}}}"#));
            assert_eq!(serde_json::from_str::<Sample>(&line).unwrap(), sample);
        }
    }

    #[test]
    fn a_torn_line_is_left_out_and_cut_off() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::at(temporary.path());
        assert_eq!(directory.samples().unwrap(), []);
        let mut samples = directory.append().unwrap();
        samples.push(&sample(0)).unwrap();
        samples.push(&sample(1)).unwrap();
        let path = temporary.path().join("samples.jsonl");
        let whole = fs::read(&path).unwrap();
        // Wherever the second line is torn, its newline included, the first one is what there is.
        let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for end in first..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(directory.samples().unwrap(), [sample(0)]);
            directory.append().unwrap().push(&sample(1)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn a_directory_without_results_or_with_others_says_so() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::at(temporary.path());
        let says = |error: Error, what: &str| assert!(error.to_string().contains(what), "{error}");
        says(directory.run().unwrap_err(), "holds no results");
        fs::write(temporary.path().join("run.json"), r#"{"version": 7, "new": 1}"#).unwrap();
        says(directory.run().unwrap_err(), "has version 7");
        fs::write(temporary.path().join("samples.jsonl"), "{}\n").unwrap();
        says(directory.samples().unwrap_err(), "is damaged");
    }

    #[test]
    fn kinds_have_the_names_that_json_has_and_words() {
        for kind in Kind::value_variants() {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert!(kind.words().len() > kind.name().len(), "{kind:?}");
        }
    }
}
