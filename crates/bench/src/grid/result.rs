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

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::stats::Summary;
use crate::work::Calibration;

/// The version of the format, in [`Run::version`].
pub const VERSION: u32 = 1;

/// What is measured: `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// What the figures were measured on.
    pub machine: Machine,
    /// The command line that began the run.
    pub command: String,
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
    /// Seconds of a short measurement; each point has its own in [`Point::seconds`].
    pub seconds: f64,
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

/// Sorts of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One lock, a critical section of a fixed length.
    Grid,
    /// One lock, a section that is mostly short and now and then long.
    Modal,
    /// One lock, whose holder sleeps now and then.
    SleepingHolder,
    /// One lock, and another process that spins on each CPU.
    Hogs,
    /// A hash table with a lock for each bucket, and keys of which some are far more popular than others.
    Buckets,
    /// A fixed number of operations on locks chosen at random.
    LockBench,
}

impl Kind {
    /// Every kind, in the order in which they are shown.
    pub const ALL: [Kind; 6] =
        [Self::Grid, Self::Modal, Self::SleepingHolder, Self::Hogs, Self::Buckets, Self::LockBench];

    /// The name as people type it, and as JSON has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Modal => "modal",
            Self::SleepingHolder => "sleeping-holder",
            Self::Hogs => "hogs",
            Self::Buckets => "buckets",
            Self::LockBench => "lock-bench",
        }
    }

    /// The kind in words, for a heading.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Grid => "One lock, sections of one length",
            Self::Modal => "One lock, sections mostly short and now and then long",
            Self::SleepingHolder => "One lock, whose holder now and then sleeps",
            Self::Hogs => "One lock, and a process that spins on each CPU",
            Self::Buckets => "A hash table with a lock for each bucket",
            Self::LockBench => "A fixed number of operations on locks chosen at random",
        }
    }

    /// The kind of that name.
    ///
    /// # Errors
    /// If there is none; the message lists those there are.
    pub fn parse(name: &str) -> Result<Kind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::Options(format!("no kind of work is called '{name}'; there are {names}"))
        })
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
    /// `modal`: microseconds of work inside a long critical section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_us: Option<f64>,
    /// `sleeping-holder`: microseconds that the holder sleeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_us: Option<f64>,
    /// `modal`, `sleeping-holder`: the share of the sections that are long, or in which the holder sleeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// `buckets`, `lock-bench`: locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<usize>,
    /// `buckets`: the exponent of the Zipf distribution of keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponent: Option<f64>,
    /// `buckets`: different keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<usize>,
    /// `lock-bench`: operations of each thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
}

impl Point {
    /// Work of a kind as a full run has it, unnamed, for a second and a half.
    pub fn new(kind: Kind, threads: usize, critical_us: f64, think_us: f64) -> Point {
        let buckets = kind == Kind::Buckets;
        Point {
            kind,
            name: String::new(),
            threads,
            critical_us,
            think_us,
            seconds: 1.0,
            latency_seconds: 0.5,
            long_us: (kind == Kind::Modal).then_some(200.0),
            sleep_us: (kind == Kind::SleepingHolder).then_some(100.0),
            share: matches!(kind, Kind::Modal | Kind::SleepingHolder).then_some(0.01),
            locks: matches!(kind, Kind::Buckets | Kind::LockBench).then_some(100),
            // Ten thousand keys, three in ten operations on the ten most popular of them.
            exponent: buckets.then_some(0.99),
            keys: buckets.then_some(10_000),
            // So many that no thread makes all of its own in a time slice: then there would be no contention.
            operations: (kind == Kind::LockBench).then_some(500_000),
        }
    }
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
#[serde(untagged)]
pub enum Outcome {
    /// There is no figure.
    Failed {
        /// Why not, in one line.
        failed: String,
    },
    /// Figures.
    Measured(Measured),
}

/// The figures of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Acquisitions of all threads in the interval.
    pub operations: u64,
    /// The length of the interval.
    pub seconds: f64,
    /// User and system CPU time of the process in it.
    pub cpu_ns: u64,
    /// Times a thread was made to give up its CPU.
    pub involuntary: u64,
    /// Times a thread gave up its CPU.
    pub voluntary: u64,
    /// Jain's index of the threads' acquisitions; for `lock-bench`, of their speeds.
    pub jain: f64,
    /// Threads that did not acquire a lock at all.
    pub unserved: usize,
    /// The share of the CPUs that went to other processes (hogs that belong to the measurement not counted).
    pub others: Option<f64>,
    /// How long acquisitions took, in an interval of its own in which each one is timed; the time of reading
    /// the clock included.
    pub wait: Wait,
}

impl Measured {
    /// Acquisitions a second.
    pub fn throughput(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// CPU nanoseconds, of all threads together, for each acquisition, work included.
    pub fn cpu_ns_per_operation(&self) -> f64 {
        self.cpu_ns as f64 / self.operations as f64
    }
}

/// Quantiles of waits, in nanoseconds. A wait that had not ended with the interval counts as long as it had
/// lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Half of them are no longer.
    pub p50: u64,
    /// 99 of 100 are no longer.
    pub p99: u64,
    /// 999 of 1000 are no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// How many there were.
    pub count: u64,
    /// All of them, divided by their number; 0 in results of earlier builds.
    #[serde(default)]
    pub mean: f64,
}

impl Sample {
    /// The figures, if there are any.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Failed { .. } => None,
        }
    }
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
    /// A cache line from one CPU to another, one way.
    pub line_transfer_ns: Vec<Transfer>,
    /// One sleep of a thread in a futex and its being woken.
    pub futex_sleep_wake_ns: SleepWake,
    /// What the driver itself costs: the loop, and two calls of empty functions through the same pointers.
    pub driver_ns: Summary,
    /// What the timing of an acquisition adds to its wait.
    pub timing_ns: Summary,
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
        let path = self.path.join("run.json");
        let text = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::Options(format!("{} holds no results: there is no run.json", self.path.display()))
            }
            _ => Error::system(format!("cannot read {}", path.display()))(error),
        })?;
        let Version { version } = parse(&path, &text)?;
        if version != VERSION {
            return Err(Error::Options(format!(
                "{} has version {version} of the format; this command knows version {VERSION}",
                self.path.display()
            )));
        }
        parse(&path, &text)
    }

    /// The floors; `None` if the run ended before it had measured them.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn floors(&self) -> Result<Option<Floors>> {
        let path = self.path.join("floors.json");
        match fs::read(&path) {
            Ok(text) => parse(&path, &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::system(format!("cannot read {}", path.display()))(error)),
        }
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
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(error) => return Err(Error::system(format!("cannot read {}", path.display()))(error)),
        };
        let mut samples = Vec::new();
        let mut length = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            samples.push(parse(&path, line)?);
            length += line.len() as u64;
        }
        Ok((samples, length))
    }

    /// Makes the directory and writes what is to be measured.
    ///
    /// # Errors
    /// If there are results in it already, or if it cannot be written.
    pub(crate) fn create(&self, run: &Run) -> Result<()> {
        let there = self.path.join("run.json").exists() || self.path.join("samples.jsonl").exists();
        if there {
            let path = self.path.display();
            return Err(Error::Options(format!(
                "{path} holds results already: go on with them by --resume {path}, or name another directory"
            )));
        }
        fs::create_dir_all(&self.path)
            .map_err(Error::system(format!("cannot make {}", self.path.display())))?;
        self.write("run.json", run)
    }

    /// Writes what was measured of floors.
    pub(crate) fn write_floors(&self, floors: &Floors) -> Result<()> {
        self.write("floors.json", floors)
    }

    /// A whole file or none: it gets its name when it is complete.
    fn write(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let failed = || format!("cannot write {}", self.path.join(name).display());
        let text =
            serde_json::to_string_pretty(value).map_err(|error| Error::system(failed())(error.into()))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.path).map_err(Error::system(failed()))?;
        writeln!(file, "{text}").map_err(Error::system(failed()))?;
        // Temporary files are private; results are not.
        let public = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o644);
        file.as_file().set_permissions(public).map_err(Error::system(failed()))?;
        file.persist(self.path.join(name)).map_err(|error| Error::system(failed())(error.error))?;
        Ok(())
    }

    /// What was measured so far, and where more of it goes. Cuts off a line that an interruption tore.
    pub(crate) fn append(&self) -> Result<(Vec<Sample>, Samples)> {
        let (samples, length) = self.samples_and_length()?;
        let path = self.path.join("samples.jsonl");
        let open = || -> io::Result<File> {
            let file = File::options().append(true).create(true).open(&path)?;
            file.set_len(length)?;
            Ok(file)
        };
        let file = open().map_err(Error::system(format!("cannot write {}", path.display())))?;
        Ok((samples, Samples { file, path }))
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
        let failed = || format!("cannot write {}", self.path.display());
        let mut line = serde_json::to_vec(sample).map_err(|error| Error::system(failed())(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::system(failed()))
    }
}

fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| {
        Error::Options(format!("{} is damaged, or another version wrote it: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn measured() -> Measured {
        Measured {
            operations: 1000,
            seconds: 0.5,
            cpu_ns: 1_000_000_000,
            involuntary: 3,
            voluntary: 4,
            jain: 0.5,
            unserved: 1,
            others: Some(0.25),
            wait: Wait { p50: 1, p99: 2, p999: 3, max: u64::MAX, count: 5, mean: 2.0 },
        }
    }

    fn sample(round: usize) -> Sample {
        Sample { point: 7, lock: "glibc".to_owned(), round, outcome: Outcome::Measured(measured()) }
    }

    #[test]
    fn a_sample_is_one_flat_line() {
        let line = serde_json::to_string(&sample(2)).unwrap();
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["round"], &value["operations"]), (&2.into(), &1000.into()));
        assert_eq!(value["wait"]["max"], u64::MAX);
        assert_eq!(serde_json::from_str::<Sample>(&line).unwrap(), sample(2));
        let failed = Sample { outcome: Outcome::Failed { failed: "it hangs".to_owned() }, ..sample(0) };
        let line = serde_json::to_string(&failed).unwrap();
        assert_eq!(line, r#"{"point":7,"lock":"glibc","round":0,"failed":"it hangs"}"#);
        assert_eq!(serde_json::from_str::<Sample>(&line).unwrap(), failed);
    }

    #[test]
    fn a_sample_counts_by_the_second_and_by_the_operation() {
        assert_eq!((measured().throughput(), measured().cpu_ns_per_operation()), (2000.0, 1_000_000.0));
    }

    #[test]
    fn a_torn_line_is_left_out_and_cut_off() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::at(temporary.path());
        assert_eq!(directory.samples().unwrap(), []);
        let (there, mut samples) = directory.append().unwrap();
        assert_eq!(there, []);
        samples.push(&sample(0)).unwrap();
        samples.push(&sample(1)).unwrap();
        drop(samples);
        let path = temporary.path().join("samples.jsonl");
        let whole = fs::read(&path).unwrap();
        // Wherever the second line is torn, its newline included, the first one is what there is.
        let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for end in first..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(directory.samples().unwrap(), [sample(0)]);
            let (there, mut samples) = directory.append().unwrap();
            assert_eq!(there, [sample(0)]);
            samples.push(&sample(1)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn a_damaged_line_in_the_middle_is_an_error() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("samples.jsonl"), "{}\n").unwrap();
        let error = Directory::at(temporary.path()).samples().unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
    }

    #[test]
    fn a_directory_without_results_or_of_another_version_says_so() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::at(temporary.path());
        let error = directory.run().unwrap_err().to_string();
        assert!(error.contains("holds no results"), "{error}");
        fs::write(temporary.path().join("run.json"), r#"{"version": 7, "new": 1}"#).unwrap();
        let error = directory.run().unwrap_err().to_string();
        assert!(error.contains("has version 7"), "{error}");
    }

    #[test]
    fn kinds_have_the_names_that_json_has() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(Kind::parse(kind.name()).unwrap(), kind);
        }
        let error = Kind::parse("x").unwrap_err().to_string();
        assert!(error.contains("'x'") && error.contains("lock-bench"), "{error}");
    }
}
