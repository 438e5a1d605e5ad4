//! The grid: every lock that people use, ours among them, on the same work in one run.
//!
//! [`Options`] say what is measured. The figures lie in a [directory](result) that outlives an interruption,
//! and what they say is worked out [from it alone](compare), so that anybody may read it again.

pub mod compare;
mod plan;
pub(crate) mod report;
pub mod result;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use poundlock_names::LockName;

use crate::Machine;
use crate::affinity;
use crate::error::{Error, Result};
use crate::floor;
use crate::launch::{Context, Process};
use crate::progress::Progress;
use crate::work::Calibration;
use crate::worker::{Answer, Task};
use compare::Results;
use result::{Absent, Directory, Outcome, Peer, Run, Sample};

pub use plan::Options;
pub use report::markdown;

/// A run, begun or to be gone on with.
#[derive(Clone, Debug)]
pub struct Job {
    directory: Directory,
    run: Run,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything is measured.
    Complete,
    /// It was interrupted; what it had is kept.
    Interrupted {
        /// Measurements that are made.
        made: usize,
        /// Measurements that the run consists of.
        of: usize,
    },
}

/// Round, point and lock of a measurement.
type Place = (usize, usize, usize);

impl Job {
    /// A new run, whose results go to `directory`, or to a new one in the current directory.
    ///
    /// # Errors
    /// If the options make no sense, or if the directory cannot be written or holds results already.
    pub fn new(context: &Context, options: &Options, directory: Option<PathBuf>) -> Result<Job> {
        options.check()?;
        let cpus = affinity::some(options.cpus)?;
        let (peers, absent, ours) = taking_part(options)?;
        let run = Run {
            version: result::VERSION,
            machine: Machine::describe(&context.command),
            started: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs()),
            calibration: Calibration::measure(),
            peers,
            absent,
            ours,
            points: options.points(),
            rounds: options.rounds(),
            cpus,
            pinned: options.pin,
        };
        let directory = Directory::at(match directory {
            Some(path) => path,
            None => new_directory()?,
        });
        directory.create(&run)?;
        Ok(Job { directory, run })
    }

    /// The run whose results lie in `directory`.
    ///
    /// # Errors
    /// If there is none, or if it was begun elsewhere or with another build: such figures do not mix.
    pub fn resume(context: &Context, directory: PathBuf) -> Result<Job> {
        let directory = Directory::at(directory);
        let run = directory.run()?;
        let here = Machine::describe(&context.command);
        let path = directory.path().display();
        let mut changed = vec![
            ("CPU".to_owned(), &run.machine.cpu, here.cpu),
            ("kernel".to_owned(), &run.machine.kernel, here.kernel),
            ("C library".to_owned(), &run.machine.glibc, here.glibc),
            ("build of Poundlock".to_owned(), &run.machine.commit, here.commit),
        ];
        for then in &run.peers {
            let now = available(&then.name)?.map_err(|absent| Error::Library(absent.why))?;
            changed.push((then.name.clone(), &then.origin, now.origin));
        }
        if let Some((what, then, now)) = changed.iter().find(|(_, then, now)| *then != now) {
            return Err(Error::Failed(format!(
                "{path} was begun with another {what} ('{then}', now '{now}'): figures of both do not mix"
            )));
        }
        let allowed = affinity::allowed()?;
        if !run.cpus.iter().all(|cpu| allowed.contains(cpu)) {
            let cpus = &run.cpus;
            return Err(Error::Failed(format!(
                "{path} was begun on CPUs {cpus:?}; now only {allowed:?} are allowed"
            )));
        }
        Ok(Job { directory, run })
    }

    /// Where the results go.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Locks that should take part and could not be had.
    pub fn absent(&self) -> &[Absent] {
        &self.run.absent
    }

    /// How long the measurements take that are not made yet.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn left(&self) -> Result<Duration> {
        Ok(self.takes(&self.missing()?))
    }

    fn takes(&self, places: &[Place]) -> Duration {
        places.iter().map(|&(_, point, _)| self.run.points[point].takes()).sum()
    }

    /// What is not made yet: round after round; in each the points in random order, and at each the locks in
    /// random order.
    fn missing(&self) -> Result<Vec<Place>> {
        let results = Results::read(&self.directory)?;
        let mut places = shuffled(self.run.rounds, self.run.points.len(), self.run.peers.len());
        places.retain(|&(round, point, peer)| results.outcome(point, peer, round).is_none());
        Ok(places)
    }

    /// Measures what is not measured yet: in each round the points in random order, and at a point all locks
    /// in random order, one soon after the other. An interrupt (SIGINT, SIGTERM) ends the run after the
    /// measurement that it falls into; a third one ends it at once.
    ///
    /// # Errors
    /// If the directory cannot be written or workers cannot be started. A lock that fails is no error: the
    /// results say so.
    pub fn run(&self, context: &Context) -> Result<Ended> {
        let interrupted = interrupts()?;
        let (missing, mut out) = (self.missing()?, self.directory.append()?);
        let of = self.run.points.len() * self.run.peers.len() * self.run.rounds;
        let mut made = of - missing.len();
        if self.directory.floors()?.is_none() {
            let floors = floor::measure(context, &self.run.cpus, &crate::plan::by_default());
            if interrupted.load(Relaxed) || (floors.is_err() && comes_soon(&interrupted)) {
                return Ok(Ended::Interrupted { made, of });
            }
            self.directory.write("floors.json", &floors?)?;
        }
        let progress = Progress::of_time(self.takes(&missing));
        for (round, point, peer) in missing {
            let lock = &self.run.peers[peer].name;
            let (takes, name) = (self.run.points[point].takes(), &self.run.points[point].name);
            progress.next(format!("{lock}, {name}"));
            let outcome = self.measure(context, point, lock);
            // Ctrl-C ends the worker as well, perhaps before its request could be sent.
            if !matches!(outcome, Ok(Outcome::Figures(_))) && comes_soon(&interrupted) {
                return Ok(Ended::Interrupted { made, of });
            }
            out.push(&Sample { point, lock: lock.clone(), round, outcome: outcome? })?;
            made += 1;
            progress.done_for(takes);
            if interrupted.load(Relaxed) && made < of {
                return Ok(Ended::Interrupted { made, of });
            }
        }
        Ok(Ended::Complete)
    }

    fn measure(&self, context: &Context, point: usize, lock: &str) -> Result<Outcome> {
        let point = &self.run.points[point];
        let task = Task::Work(point.task(lock, &self.run.calibration, &self.run.cpus, self.run.pinned));
        let answer = context.measure(Process::plain(known(lock)?), task, point.limit());
        let figures = answer.and_then(|answer| {
            let figures =
                if let Answer::Figures(samples) = answer { samples.into_iter().next() } else { None };
            figures.ok_or_else(|| Error::another_question(lock))
        });
        match figures {
            Ok(figures) => Ok(Outcome::Figures(figures)),
            Err(Error::Worker { message, .. }) => Ok(Outcome::Failed(message)),
            Err(error) => Err(error),
        }
    }

    /// What the results say so far.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn results(&self) -> Result<Results> {
        Results::read(&self.directory)
    }
}

fn shuffled(rounds: usize, points: usize, peers: usize) -> Vec<Place> {
    let in_random_order = |n: usize| {
        let mut all: Vec<usize> = (0..n).collect();
        fastrand::shuffle(&mut all);
        all
    };
    let points = (0..rounds).flat_map(|round| in_random_order(points).into_iter().map(move |at| (round, at)));
    points
        .flat_map(|(round, at)| in_random_order(peers).into_iter().map(move |who| (round, at, who)))
        .collect()
}

/// The flag that an interrupt sets.
fn interrupts() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let times = Arc::new(AtomicU32::new(0));
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let (flag, times) = (Arc::clone(&flag), Arc::clone(&times));
        let act = move || {
            flag.store(true, Relaxed);
            // Some send each signal twice, to a process and to its group. A third one is a person's
            // impatience.
            if times.fetch_add(1, Relaxed) >= 2 {
                signal_hook::low_level::exit(128 + signal);
            }
        };
        // SAFETY: atomics and `_exit` are all that the handler uses.
        unsafe { signal_hook::low_level::register(signal, act) }
            .map_err(Error::system("cannot watch for interrupts"))?;
    }
    Ok(flag)
}

/// Whether the flag is set, or will be at once: a worker may be gone a moment before the signal that ended it
/// has come here.
fn comes_soon(interrupted: &AtomicBool) -> bool {
    (0..50).any(|_| {
        let set = interrupted.load(Relaxed);
        if !set {
            std::thread::sleep(Duration::from_millis(1));
        }
        set
    })
}

/// A directory of its own for a run, in the current one.
fn new_directory() -> Result<PathBuf> {
    for number in 1_u32.. {
        let path = PathBuf::from(format!("poundlock-grid-{number}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::system(format!("cannot make {}", path.display()))(error)),
        }
    }
    Err(Error::Failed("there are too many results here".to_owned()))
}

/// The name as the program knows it.
fn known(name: &str) -> Result<&'static str> {
    let names = poundlock_peers::names();
    let name_of_a_lock = |known: &&str| *known == name && *known != poundlock_peers::EMPTY;
    names.iter().copied().find(name_of_a_lock).ok_or_else(|| {
        let names: Vec<_> = names.into_iter().filter(|&known| known != poundlock_peers::EMPTY).collect();
        Error::Options(format!("no lock is called '{name}'; there are {}", names.join(", ")))
    })
}

/// The lock of that name, if it can be had.
fn available(name: &str) -> Result<std::result::Result<Peer, Absent>> {
    let known = known(name)?;
    let found =
        poundlock_peers::find(known).ok_or_else(|| Error::Options(format!("there is no '{name}'")))?;
    Ok(match found {
        Ok(peer) => Ok(Peer {
            name: peer.name.to_owned(),
            description: peer.description.to_owned(),
            origin: peer.origin,
            ours: peer.ours,
            spins: peer.spins,
        }),
        Err(absent) => Err(Absent { name: absent.name.to_owned(), why: absent.why }),
    })
}

/// Who takes part, who should and cannot, and the one of ours.
fn taking_part(options: &Options) -> Result<(Vec<Peer>, Vec<Absent>, String)> {
    let ours = available(options.ours.as_deref().unwrap_or(LockName::DEFAULT.name()))?
        .map_err(|absent| Error::Library(format!("{}: {}", absent.name, absent.why)))?;
    if !ours.ours {
        return Err(Error::Options(format!("--ours: {} is not one of our locks", ours.name)));
    }
    let wanted = options.locks.iter().map(|name| known(name)).collect::<Result<Vec<_>>>()?;
    let (mut peers, mut absent) = (Vec::new(), Vec::new());
    let all = poundlock_peers::names().into_iter();
    for name in all.filter(|&name| name != poundlock_peers::EMPTY && name != ours.name) {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        match available(name)? {
            // Of ours there are many: those that are named.
            Ok(peer) if peer.ours && wanted.is_empty() => {}
            Ok(peer) => peers.push(peer),
            Err(missing) => absent.push(missing),
        }
    }
    let name = ours.name.clone();
    peers.push(ours);
    Ok((peers, absent, name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn everybody_elses_lock_and_the_one_of_ours_take_part() {
        let (peers, absent, ours) = taking_part(&Options::default()).unwrap();
        assert_eq!(peers.last().unwrap().name, ours);
        assert_eq!(peers.iter().filter(|peer| peer.ours).count(), 1);
        for name in ["glibc", "glibc-adaptive", "glibc-spin", "std"] {
            assert!(peers.iter().any(|peer| peer.name == name), "{name} is part of every system");
        }
        let all = peers.iter().map(|peer| &peer.name).chain(absent.iter().map(|absent| &absent.name));
        assert!(all.clone().all(|name| name != poundlock_peers::EMPTY));
        assert_eq!(all.clone().collect::<HashSet<_>>().len(), all.count());
    }

    #[test]
    fn named_locks_take_part_once_and_ours_always() {
        let options = Options {
            locks: vec!["std".to_owned(), "mcs-queue".to_owned(), "std".to_owned()],
            ours: Some("any-negative".to_owned()),
            ..Options::default()
        };
        let (peers, absent, ours) = taking_part(&options).unwrap();
        let names: Vec<_> = peers.iter().map(|peer| peer.name.as_str()).collect();
        assert_eq!(names, ["std", "mcs-queue", "any-negative"]);
        assert_eq!((absent.len(), ours.as_str()), (0, "any-negative"));
    }

    #[test]
    fn names_that_make_no_sense_are_refused() {
        let refused = |options: Options| taking_part(&options).unwrap_err().to_string();
        let locks = |name: &str| Options { locks: vec![name.to_owned()], ..Options::default() };
        let error = refused(locks("futex"));
        assert!(error.contains("'futex'") && error.contains("glibc-adaptive"), "{error}");
        // The driver's own cost is no lock.
        let error = refused(locks("empty"));
        assert!(error.contains("'empty'") && !error.contains("are empty"), "{error}");
        let error = refused(Options { ours: Some("glibc".to_owned()), ..Options::default() });
        assert_eq!(error, "--ours: glibc is not one of our locks");
    }

    #[test]
    fn rounds_come_one_after_the_other_and_the_locks_of_a_point_together() {
        let order = shuffled(3, 5, 4);
        assert!(order.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{order:?}");
        for at_once in order.chunks(4) {
            assert!(at_once.iter().all(|place| (place.0, place.1) == (at_once[0].0, at_once[0].1)));
        }
        let places: HashSet<_> = order.iter().copied().collect();
        assert_eq!((order.len(), places.len()), (60, 60));
        let orders: HashSet<_> = (0..100).map(|_| shuffled(3, 5, 4)).collect();
        assert!(orders.len() > 1, "the order is not random");
    }
}
