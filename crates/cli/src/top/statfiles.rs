//! Statistics files of processes that run under `stat` or `top`, or with `POUNDLOCK_STATS`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use poundlock_statfile::{Error, Follower, Live, Snapshot};

use super::futexes::Futexes;
use super::source::{Looked, Source};
use crate::library;
use crate::observe::place::{by_process, is_alive};
use crate::observe::proc::{self, Stat, name_of};
use crate::observe::symbols::{Space, Symbols, file_name};
use crate::program::reason;
use crate::remote::maps::{Files, Maps};
use crate::stat::beside;
use crate::stat::sampler::{Ids, Outcome, Sampler, Times, Whom};

/// How often is looked for processes that have come.
const DISCOVERY: Duration = Duration::from_secs(2);

/// Whose files.
pub(super) enum Whose {
    /// Those in the directory of a run.
    Run(PathBuf),
    /// Of these processes.
    Processes(Vec<u32>),
    /// Of all processes that we may look into.
    Everybody,
}

/// A process with a file.
struct Tracked {
    id: u32,
    pid: Option<u32>,
    /// With the id, what tells the process from a later one.
    started: u64,
    name: String,
    path: PathBuf,
    live: Live,
    figures: Follower,
    space: Rc<Space<'static>>,
    generation: u32,
    /// How many files it had mapped when its space was made.
    modules: usize,
    /// Where the files are that it has mapped, if not where it says.
    files: Option<Files>,
}

/// The source.
pub(super) struct StatFiles {
    whose: Whose,
    symbols: &'static Symbols,
    tracked: Vec<Tracked>,
    /// Files that are no longer, or never were, looked at.
    settled: HashSet<PathBuf>,
    /// Processes without a file, by what tells them from later ones: there is no need to read their mappings
    /// again unless their environment speaks of us.
    strangers: HashMap<u32, u64>,
    next_id: u32,
    discovered: Option<Instant>,
    /// By what they are about, so that each is said once.
    notes: BTreeMap<PathBuf, String>,
    /// Looks at the threads, from the first look on or from the run's start.
    sampler: Option<Sampler>,
    /// The processes of the last look, by the ids in their files.
    looked_at: HashSet<u32>,
    /// What shows the sleeps for locks that the files do not have, once the sampler has seen such sleeps.
    beside: Vec<Futexes>,
    /// The kernel does not show us futex calls.
    is_refused: bool,
}

impl StatFiles {
    pub(super) fn new(whose: Whose) -> StatFiles {
        let sampler = match &whose {
            Whose::Run(dir) => Sampler::start(dir, Whom::Children, Ids::Theirs).ok(),
            _ => None,
        };
        StatFiles {
            sampler,
            looked_at: HashSet::new(),
            beside: Vec::new(),
            is_refused: false,
            whose,
            // One for the whole run, whose end is ours.
            symbols: Box::leak(Box::new(Symbols::new())),
            tracked: Vec::new(),
            settled: HashSet::new(),
            strangers: HashMap::new(),
            next_id: 0,
            discovered: None,
            notes: BTreeMap::new(),
        }
    }

    /// Finds processes that have come. Whether there is any.
    pub(super) fn discover(&mut self) -> bool {
        match &self.whose {
            Whose::Run(dir) => {
                // A process has a file for each `exec`: all of them count.
                let files = by_process(dir);
                let new: Vec<(u32, PathBuf)> = files
                    .into_iter()
                    .flat_map(|(pid, files)| files.into_values().map(move |path| (pid, path)))
                    .filter(|(_, path)| !self.is_known(path))
                    .collect();
                for (pid, path) in new {
                    self.track(outer_pid(pid), path, &mut None);
                }
            }
            Whose::Processes(pids) => {
                for pid in pids.clone() {
                    self.find(pid);
                }
            }
            Whose::Everybody => {
                for pid in processes() {
                    let Some(started) = Stat::read(pid).map(|stat| stat.started) else { continue };
                    let is_stranger = self.strangers.get(&pid) == Some(&started);
                    if is_stranger && !speaks_of_us(pid) {
                        continue;
                    }
                    if !self.find(pid) {
                        self.strangers.insert(pid, started);
                    }
                }
            }
        }
        !self.tracked.is_empty()
    }

    fn is_known(&self, path: &Path) -> bool {
        self.settled.contains(path) || self.tracked.iter().any(|tracked| tracked.path == path)
    }

    /// Looks for the file of a process. Whether it has one.
    fn find(&mut self, pid: u32) -> bool {
        let Ok(text) = proc::read_text(format!("/proc/{pid}/maps")) else { return false };
        if !text.contains(".stat") {
            return false;
        }
        let mut files = Files::of(pid);
        let paths = files.statistics(&Maps::parse(&text));
        let mut files = Some(files);
        // A child may have its parent's mapped as well.
        paths.into_iter().any(|path| self.is_known(&path) || self.track(Some(pid), path, &mut files))
    }

    /// Begins to look at a file, if it is one.
    fn track(&mut self, pid: Option<u32>, path: PathBuf, mapped: &mut Option<Files>) -> bool {
        let live = match Live::open(&path) {
            Ok(live) => live,
            // Not yet, or never: there is another look.
            Err(Error::NotAStatFile) => return false,
            Err(error) => {
                let name = pid.map_or_else(|| file_name(&path), |pid| format!("process {pid}"));
                self.note(&path, format!("{name}: its figures cannot be read: {}", in_words(&error)));
                return false;
            }
        };
        if live.is_checked() {
            let line = format!("process {}: under check there are no figures", live.pid());
            self.note(&path, line);
            return false;
        }
        if mapped.is_some() && pid.and_then(proc::inner_pid) != Some(live.pid()) {
            return false;
        }
        let tracked = Tracked {
            id: self.next_id,
            pid,
            started: pid.and_then(Stat::read).map_or(0, |stat| stat.started),
            name: pid.map(name_of).unwrap_or_default(),
            figures: Follower::new(path.clone()),
            path,
            live,
            space: Rc::new(self.symbols.space_of(Cow::Owned(Snapshot::default()))),
            generation: 0,
            modules: 0,
            files: mapped.take(),
        };
        self.next_id += 1;
        if let Some(sampler) = &self.sampler {
            tracked.is_watched_by(sampler);
        }
        self.tracked.push(tracked);
        true
    }

    /// Begins to look at the threads of what is tracked, if nobody does yet.
    fn begin_sampling(&mut self) {
        if self.sampler.is_none() {
            // Processes and their files come one by one.
            let nowhere = Path::new("/dev/null");
            self.sampler = Sampler::start(nowhere, Whom::Processes(Vec::new()), Ids::Theirs).ok();
            for tracked in
                self.sampler.iter().flat_map(|sampler| self.tracked.iter().map(move |of| (sampler, of)))
            {
                tracked.1.is_watched_by(tracked.0);
            }
        }
    }

    /// Watches the futex calls of processes that sleep for locks which their files do not have.
    fn watch_beside(&mut self, sampled: &Outcome) {
        if self.is_refused || self.beside.len() == beside::ENGINES {
            return;
        }
        let watched: Vec<u32> = self.beside.iter().flat_map(Futexes::pids).copied().collect();
        let wanted = beside::wanted(sampled, &watched);
        let Some(&first) = wanted.first() else { return };
        match Futexes::beside(&wanted) {
            Ok(futexes) => self.beside.push(futexes),
            // One of them has ended meanwhile.
            Err(_) if !wanted.iter().all(|&pid| is_alive(pid)) => {}
            Err(failure) => {
                self.is_refused = true;
                let line = format!(
                    "{} ({first}) sleeps for locks that are not counted, and not shown: {}",
                    name_of(first),
                    failure.line
                );
                self.notes.insert(PathBuf::from("futex calls"), line);
            }
        }
    }

    fn note(&mut self, path: &Path, line: String) {
        self.settled.insert(path.to_owned());
        self.notes.insert(path.to_owned(), line);
    }
}

impl Source for StatFiles {
    fn tends(&self) -> Option<Duration> {
        self.beside.iter().filter_map(Futexes::tends).min()
    }

    fn tend(&mut self) {
        self.beside.iter_mut().for_each(Futexes::tend);
    }

    fn look(&mut self, now_ns: u64) -> Vec<Looked> {
        let of_run = matches!(self.whose, Whose::Run(_));
        let due = self.discovered.is_none_or(|at| at.elapsed() >= DISCOVERY);
        if of_run || due || self.tracked.iter().any(Tracked::is_over) {
            self.discover();
            self.discovered = Some(Instant::now());
        }
        self.begin_sampling();
        let mut all = Vec::new();
        for mut tracked in std::mem::take(&mut self.tracked) {
            // Whoever ends after this is looked at once more.
            let over = tracked.is_over();
            match tracked.look(self.symbols, now_ns, over) {
                Ok(looked) => {
                    self.looked_at.insert(tracked.live.pid());
                    all.push(looked);
                }
                Err(error) => {
                    let line = format!("{}: its figures cannot be read: {}", tracked.name, in_words(&error));
                    self.note(&tracked.path, line);
                    continue;
                }
            }
            if over {
                self.settled.insert(tracked.path);
            } else {
                self.tracked.push(tracked);
            }
        }
        all.extend(self.beside.iter_mut().flat_map(|futexes| futexes.look(now_ns)));
        all
    }

    fn times(&mut self) -> Option<Times> {
        let outcome = self.sampler.as_ref()?.take();
        self.watch_beside(&outcome);
        let measured = std::mem::take(&mut self.looked_at);
        Some(outcome.times_of(|pid| measured.contains(&pid)))
    }

    fn goes_on(&self) -> bool {
        match &self.whose {
            Whose::Everybody => true,
            Whose::Run(_) => !self.tracked.is_empty(),
            // One that has become another program may have no file yet.
            Whose::Processes(pids) => pids.iter().any(|&pid| is_alive(pid)),
        }
    }

    fn notes(&self) -> Vec<String> {
        self.notes.values().cloned().chain(self.beside.iter().flat_map(Futexes::notes)).collect()
    }
}

impl Tracked {
    fn is_watched_by(&self, sampler: &Sampler) {
        if let Some(pid) = self.pid {
            sampler.watch(pid, &self.path);
        }
    }

    /// Whether its process has ended, or is another program by now.
    fn is_over(&self) -> bool {
        if !self.live.is_whole() || self.live.ended_ns().is_some() {
            return true;
        }
        // One that was over before it was found.
        let Some(pid) = self.pid else { return true };
        Stat::read(pid).is_none_or(|stat| stat.is_over() || stat.started != self.started)
    }

    fn look(&mut self, symbols: &'static Symbols, now_ns: u64, over: bool) -> Result<Looked, Error> {
        let (mut snapshot, locks) = self.figures.look(now_ns)?;
        if snapshot.modules.len() != self.modules {
            self.modules = snapshot.modules.len();
            self.generation += 1;
            let described = self.describe().filter(|described| !described.modules.is_empty());
            let described = described.unwrap_or_else(|| Snapshot {
                pid: snapshot.pid,
                exe: snapshot.exe.clone(),
                modules: std::mem::take(&mut snapshot.modules),
                ..Snapshot::default()
            });
            self.space = Rc::new(symbols.space_of(Cow::Owned(described)));
        }
        if self.name.is_empty() {
            self.name = file_name(&snapshot.exe);
        }
        Ok(Looked {
            id: self.id,
            pid: self.pid,
            name: self.name.clone(),
            snapshot,
            locks,
            space: Rc::clone(&self.space),
            generation: self.generation,
            exact: true,
            beside: false,
            over,
        })
    }

    /// What it has mapped, by where we find the files.
    fn describe(&mut self) -> Option<Snapshot> {
        let text = proc::read_text(format!("/proc/{}/maps", self.pid?)).ok()?;
        Some(self.files.as_mut()?.describe(&Maps::parse(&text)))
    }
}

/// The processes that may be ours to look into.
fn processes() -> Vec<u32> {
    let ours = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|&pid| pid != ours).collect()
}

/// The process with this id in its own namespace.
fn outer_pid(inner: u32) -> Option<u32> {
    let is_it = |pid: u32| proc::inner_pid(pid) == Some(inner);
    if is_it(inner) {
        Some(inner)
    } else {
        processes().into_iter().find(|&pid| is_it(pid) && speaks_of_us(pid))
    }
}

/// Whether a process was started to leave figures.
fn speaks_of_us(pid: u32) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    let asks = |entry: &[u8]| {
        let name = entry.split(|&byte| byte == b'=').next().unwrap_or_default();
        [library::STAT_VARIABLE, library::STATS_VARIABLE]
            .contains(&OsStr::from_bytes(name).to_str().unwrap_or(""))
    };
    environment.split(|&byte| byte == 0).any(asks)
}

fn in_words(error: &Error) -> String {
    match error {
        Error::Io(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            "they belong to another user: run this command as that user, or as root".to_owned()
        }
        Error::Io(error) => reason(error).to_string(),
        error => error.to_string(),
    }
}
