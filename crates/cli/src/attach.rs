//! The futex calls of processes that need no preparation: what threads wait for, for how long, and who wakes
//! them, by the kernel's tracepoints.
//!
//! All locks that sleep meet in one system call. [`perf`] has its entries and exits recorded with the stacks
//! of the callers, [`record`] reads what comes, [`stacks`] unwinds it, [`waits`] makes waits of it, and
//! [`process`] names what they are for. Nothing is done to the processes: no stop, no signal, no code.

mod bpf;
mod perf;
mod process;
mod record;
mod stacks;
mod waits;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use object::{Object as _, ObjectSection as _};
use poundlock_statfile::{Live, Snapshot};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::elf_file;
use crate::message::{Failure, status};
use crate::observe::calls::{self, Doing};
use crate::observe::place::monotonic_ns;
use crate::observe::proc::{self, Stat};
use crate::observe::symbols::Symbols;
use crate::program;
use crate::remote::maps::Files;
use crate::remote::process as remote;
use crate::stat::sampler::FutexWaits;
pub(crate) use perf::is_root;
use perf::{Copying, Perf, What, Whose};
use process::Process;
use record::{Record, Sample, word};
use stacks::{Copied, NO_STACK};
use waits::{Call, Event, Happened, Place, Waited, Waiting, Waits};

/// What is older has come: a record bears the time at which the kernel began to write it.
const SETTLED_NS: u64 = 1_000_000;

/// How stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stacks {
    /// By frame pointers if the program has them
    #[default]
    Auto,
    /// By frame pointers, beyond the innermost functions
    Fp,
    /// By unwind tables, of a copied stack
    Dwarf,
}

/// All since the start, or since figures began anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Events {
    /// Futex calls.
    pub(crate) calls: u64,
    /// Those that slept, and have ended.
    pub(crate) waits: u64,
    /// Those that wake.
    pub(crate) wakes: u64,
    /// Those that were to sleep and found another number in the word.
    pub(crate) not_slept: u64,
    /// Records for which the kernel had no room.
    pub(crate) lost: u64,
}

impl Events {
    pub(crate) fn add(&mut self, other: &Events) {
        let Events { calls, waits, wakes, not_slept, lost } = *other;
        self.calls += calls;
        self.waits += waits;
        self.wakes += wakes;
        self.not_slept += not_slept;
        self.lost += lost;
    }
}

/// The processes, and what they do.
pub(crate) struct Engine {
    perf: Perf,
    symbols: Symbols,
    /// Those that were named: others are left out. Empty if all count.
    named: Vec<u32>,
    processes: FxHashMap<u32, Process>,
    /// Those that have become other programs, with what they waited for before.
    ended: Vec<(Process, FxHashMap<Place, Waited>)>,
    waits: Waits,
    /// Threads with events of their own: those that they have of another thread as well do not count.
    own: FxHashSet<u32>,
    since: u64,
    lost: u64,
    /// Our library counts in the processes as well: what it has counted is left out.
    beside: bool,
    /// What threads wait for, for whoever looks at them.
    kinds: FutexWaits,
}

impl Engine {
    /// As [`Engine::attach`], to processes that our library counts in: for the waits that it does not know.
    pub(crate) fn beside(pids: &[u32], stacks: Stacks) -> Result<Engine, Failure> {
        Ok(Engine { beside: true, ..Engine::attach(pids, stacks)? })
    }

    /// Attaches to running processes: to all their threads, and to those that they start.
    ///
    /// # Errors
    /// If there is no such process, or a right is missing: in one line, what and how to give it.
    pub(crate) fn attach(pids: &[u32], stacks: Stacks) -> Result<Engine, Failure> {
        for &pid in pids {
            remote::check_id(pid)?;
        }
        let copying = match stacks {
            Stacks::Fp => Copying::Chain,
            Stacks::Dwarf => Copying::Stack,
            Stacks::Auto if pids.iter().all(|&pid| has_frame_pointers(&largest(pid))) => Copying::Chain,
            Stacks::Auto => Copying::Stack,
        };
        let wine = |&pid: &u32| {
            remote::maps(pid).is_ok_and(|maps| maps.0.iter().any(|mapping| is_wine(Path::new(&mapping.path))))
        };
        let mut engine = Engine::new(copying, pids.to_vec(), pids.iter().any(wine))?;
        engine.perf.by_programs(pids);
        for &pid in pids {
            let process = Process::new(pid, engine.since, None);
            engine.processes.insert(pid, process);
            engine.open_all(pid)?;
            engine.asleep_already(pid);
        }
        Ok(engine)
    }

    /// Before a child is started from this very thread: all counts that it and its children do, from its
    /// `exec` on.
    pub(crate) fn before_start(program: &Path, stacks: Stacks) -> Result<Engine, Failure> {
        remote::check_our_rights()?;
        // The kernel takes events of users away from it.
        if !is_root()
            && let Some(what) = program::gains_privileges(program)
        {
            let line = format!("{}: {what}: only root sees its futex calls: use sudo", program.display());
            return Err(Failure::new(status::OURS, line));
        }
        let copying = match stacks {
            Stacks::Fp => Copying::Chain,
            Stacks::Auto if has_frame_pointers(program) => Copying::Chain,
            Stacks::Auto | Stacks::Dwarf => Copying::Stack,
        };
        let mut engine = Engine::new(copying, Vec::new(), is_wine(program))?;
        match engine.perf.open(Whose::Child) {
            Ok(_) => Ok(engine),
            Err(error) => Err(engine.perf.refused(&error)),
        }
    }

    fn new(copying: Copying, named: Vec<u32>, all: bool) -> Result<Engine, Failure> {
        let now = monotonic_ns();
        Ok(Engine {
            perf: Perf::new(copying, all)?,
            symbols: Symbols::new(),
            named,
            processes: FxHashMap::default(),
            ended: Vec::new(),
            waits: Waits::default(),
            own: FxHashSet::default(),
            since: now,
            lost: 0,
            beside: false,
            kinds: FutexWaits::default(),
        })
    }

    /// What threads wait for, as of the last time that calls were taken in.
    pub(crate) fn kinds(&self) -> FutexWaits {
        self.kinds.clone()
    }

    /// Opens the events of all threads. One that starts meanwhile has those of the thread that started it, or
    /// is found in the next round.
    fn open_all(&mut self, pid: u32) -> Result<(), Failure> {
        loop {
            let tids = proc::tasks(pid).unwrap_or_default();
            let new: Vec<u32> = tids.into_iter().filter(|tid| !self.own.contains(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let opened = self.perf.open(Whose::Thread(tid)).map_err(|error| self.perf.refused(&error))?;
                self.own.insert(tid);
                if let Some(process) = self.processes.get_mut(&pid).filter(|_| opened) {
                    process.lives(tid, self.since, false);
                }
            }
        }
        if self.own.is_empty() {
            return Err(Failure::new(status::OURS, format_args!("process {pid} has just ended")));
        }
        Ok(())
    }

    /// Threads that wait already: their calls began before there were events.
    fn asleep_already(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        for tid in proc::tasks(pid).unwrap_or_default() {
            let Ok(Doing::Call { call, sp, pc }) = calls::doing(pid, tid) else { continue };
            let Some(wait) = call.futex() else { continue };
            let call = Call::Wait { word: wait.word, expected: wait.expected, inherits: wait.inherits };
            let stack = process.asleep(sp, pc, wait.word);
            process.called(tid, self.since);
            let what = Happened::Enter { call, stack, object: 0 };
            self.waits.add(Event { time: self.since, pid, tid, what });
        }
    }

    /// Takes in what has come. What is very young is left for the next time: older records may be on their
    /// way on other CPUs.
    pub(crate) fn poll(&mut self) {
        self.take(monotonic_ns().saturating_sub(SETTLED_NS));
    }

    fn take(&mut self, until: u64) {
        let mut taking = Taking {
            symbols: &self.symbols,
            named: &self.named,
            processes: &mut self.processes,
            ended: &mut self.ended,
            waits: &mut self.waits,
            own: &mut self.own,
            lost: &mut self.lost,
            gone: Vec::new(),
            lessons: self.perf.calls.as_ref().map(|_| Vec::new()),
        };
        self.perf.drain(until, |record| taking.take(record));
        let Taking { gone, lessons, .. } = taking;
        for tid in gone {
            self.perf.ended(tid);
        }
        for lesson in lessons.into_iter().flatten() {
            if let Some(calls) = &self.perf.calls {
                calls.learn(lesson.pid, lesson.at, lesson.number, &lesson.places);
            }
        }
        for process in self.processes.values_mut() {
            process.tell(&self.symbols);
        }
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.clear();
        for (pid, tid, place) in self.waits.last() {
            if let Some(process) = self.processes.get(&pid) {
                kinds.insert(tid, process.lock(&place).0);
            }
        }
    }

    /// Whether one of the processes is alive.
    pub(crate) fn goes_on(&self) -> bool {
        let alive = |pid: &u32| Stat::read(*pid).is_some_and(|stat| !stat.is_over());
        self.processes.keys().any(alive)
    }

    /// Forgets the figures so far.
    pub(crate) fn begin_anew(&mut self) {
        self.take(u64::MAX);
        let now = monotonic_ns();
        self.since = now;
        self.lost = 0;
        self.ended.clear();
        self.waits.begin_anew(now);
        self.processes.retain(|_, process| !process.is_over());
        for process in self.processes.values_mut() {
            process.begin_anew(now);
        }
    }

    /// The figures as of now, waits that go on included.
    pub(crate) fn snapshots(&mut self) -> Vec<Snapshot> {
        self.take(u64::MAX);
        let now = monotonic_ns();
        let mut snapshots = Vec::new();
        let fresh = Symbols::new();
        for process in self.processes.values_mut().filter(|process| process.is_java()) {
            process.tell_anew(&fresh);
        }
        for (process, places) in &mut self.ended {
            snapshots.push(process.snapshot(&self.symbols, (places, &[]), now, self.beside));
        }
        let none = FxHashMap::default();
        let mut going_on: HashMap<u32, Vec<(u32, Waiting)>> = HashMap::new();
        for (pid, tid, waiting) in self.waits.going_on() {
            going_on.entry(pid).or_default().push((tid, waiting));
        }
        for (pid, process) in &mut self.processes {
            let places = self.waits.places.get(pid).unwrap_or(&none);
            let Some(going_on) = going_on.get(pid) else {
                snapshots.push(process.snapshot(&self.symbols, (places, &[]), now, self.beside));
                continue;
            };
            let mut places = places.clone();
            for (tid, waiting) in going_on {
                let waited = places.entry(waiting.place).or_default();
                Waits::count_unended(waited, *tid, waiting, now, self.since);
            }
            snapshots.push(process.snapshot(&self.symbols, (&places, going_on), now, self.beside));
        }
        snapshots.sort_by_key(|snapshot| (snapshot.start_ns, snapshot.pid));
        snapshots
    }

    /// What is to be said of the calls themselves.
    pub(crate) fn events(&self) -> Events {
        let waits::Totals { calls, waits, wakes, not_slept } = self.waits.totals;
        Events { calls, waits, wakes, not_slept, lost: self.lost }
    }
}

/// The parts of an [`Engine`] that take in records.
struct Taking<'e> {
    symbols: &'e Symbols,
    named: &'e [u32],
    processes: &'e mut FxHashMap<u32, Process>,
    ended: &'e mut Vec<(Process, FxHashMap<Place, Waited>)>,
    waits: &'e mut Waits,
    own: &'e mut FxHashSet<u32>,
    lost: &'e mut u64,
    /// Threads that have ended.
    gone: Vec<u32>,
    /// For programs in the kernel, if there are any.
    lessons: Option<Vec<Lesson>>,
}

/// What the programs in the kernel are to know of a place, or no more.
struct Lesson {
    pid: u32,
    /// Program counter and stack pointer.
    at: (u64, u64),
    number: u64,
    places: Vec<(u32, u64)>,
}

/// As many at a time.
const LESSONS: usize = 256;

impl Taking<'_> {
    fn counts(&self, pid: u32) -> bool {
        self.named.is_empty() || self.named.contains(&pid)
    }

    fn process(&mut self, pid: u32, time: u64) -> &mut Process {
        self.processes.entry(pid).or_insert_with(|| Process::new(pid, time, None))
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Sample(sample) => {
                let twice = sample.source.tid != sample.tid && self.own.contains(&sample.tid);
                if self.counts(sample.pid) && !twice {
                    self.sample(&sample);
                }
            }
            Record::Lost(count) => *self.lost += count,
            Record::Mapped { pid, mapping } if self.counts(pid) => self.process(pid, 0).mapped(mapping),
            Record::Named { pid, exec: true, time } if self.counts(pid) => self.executed(pid, time),
            Record::Started { pid, tid, parent, time } if self.counts(pid) => {
                if pid != parent && !self.processes.contains_key(&pid) {
                    let process = Process::new(pid, time, self.processes.get(&parent));
                    self.processes.insert(pid, process);
                }
                self.process(pid, time).lives(tid, time, true);
            }
            Record::Ended { pid, tid, time } if self.counts(pid) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.ended(tid, time);
                }
                self.waits.add(Event { time, pid, tid, what: Happened::Ended });
                if self.own.remove(&tid) {
                    self.gone.push(tid);
                }
            }
            _ => {}
        }
    }

    /// The process is another program from now on.
    fn executed(&mut self, pid: u32, time: u64) {
        if let Some(mut old) = self.processes.remove(&pid) {
            old.tell(self.symbols);
            old.ended_all(time);
            self.waits.executed(pid);
            if let Some(places) = self.waits.places.remove(&pid) {
                self.ended.push((old, places));
            }
        }
        let mut process = Process::new(pid, time, None);
        process.lives(pid, time, false);
        self.processes.insert(pid, process);
    }

    fn sample(&mut self, sample: &Sample) {
        let Sample { pid, tid, time, raw, known, .. } = *sample;
        let teaches = self.lessons.as_ref().is_some_and(|lessons| lessons.len() < LESSONS);
        /// Where tracepoints of system calls have the number, and what follows: eight bytes each.
        const NUMBER: usize = 8;
        const VALUES: usize = 16;
        let what = match sample.source.what {
            What::Exit => {
                let Some(result) = word(raw, VALUES) else { return };
                Happened::Exit { result: result as i64 }
            }
            What::Enter => {
                let Some(number) = word(raw, NUMBER).map(|word| word as u32) else { return };
                let arguments = std::array::from_fn(|at| word(raw, VALUES + 8 * at).unwrap_or(0));
                let process = self.process(pid, time);
                process.called(tid, time);
                let first = |at: u64| process.first_of_many(at);
                let call = Call::of(number, &arguments, first);
                let (mut stack, mut object) = (NO_STACK, 0);
                if let Some(registers) = sample.registers
                    && call != Call::Other
                {
                    let at = (registers.pc, registers.sp);
                    let copied = Copied { registers, stack: sample.stack, chain: sample.chain };
                    let word = if let Call::Wait { word, .. } = call { Some(word) } else { None };
                    let mut lesson = None;
                    if known != 0 {
                        // Another number was given to the program that the process was before.
                        stack = process.by_number(known).unwrap_or(NO_STACK);
                        lesson = (stack == NO_STACK).then(|| (0, Vec::new()));
                    } else if !copied.stack.is_empty() {
                        stack = process.stack(&copied, word);
                        object = word.map_or(0, |word| process.object(stack, &copied, word));
                        lesson = if teaches { process.lesson(stack) } else { None };
                    }
                    if let (Some((number, places)), Some(lessons)) = (lesson, &mut self.lessons) {
                        lessons.push(Lesson { pid, at, number, places });
                    }
                }
                Happened::Enter { call, stack, object }
            }
        };
        self.waits.add(Event { time, pid, tid, what });
    }
}

/// The statistics file of a process that `poundlock stat` has started, or that has one by itself: what is in
/// there is exact.
pub(crate) fn record_file(pid: u32) -> Option<PathBuf> {
    let maps = remote::maps(pid).ok()?;
    let inner = proc::inner_pid(pid).unwrap_or(pid);
    let mut paths = Files::of(pid).statistics(&maps).into_iter();
    paths.find(|path| Live::open(path).is_ok_and(|live| live.pid() == inner))
}

/// Whether a file is of Wine, whose locks wait for several futexes at a time.
fn is_wine(path: &Path) -> bool {
    path.file_name().is_some_and(|name| {
        let name = name.to_string_lossy();
        name.starts_with("wine") || name == "ntdll.so"
    })
}

/// Has the calling thread get a CPU before others where it may: what is not taken in soon has no room.
/// Children that it starts later have the same, so it is asked for when they have been started.
pub(crate) fn hurry() {
    const BEFORE_OTHERS: libc::c_int = -10;
    // SAFETY: takes numbers. Users may not: then it stays as it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, BEFORE_OTHERS) };
}

/// The file with most code in a process, the C library left out.
fn largest(pid: u32) -> PathBuf {
    let Ok(maps) = remote::maps(pid) else { return PathBuf::new() };
    let described = Files::of(pid).describe(&maps);
    let mut sizes: HashMap<&str, u64> = HashMap::new();
    for module in described.modules.iter().filter(|module| maps.is_code(module.start)) {
        let name = module.path.rsplit('/').next().unwrap_or_default();
        if !name.starts_with("libc.so") && !name.starts_with("libc-") {
            *sizes.entry(&module.path).or_default() += module.end - module.start;
        }
    }
    sizes.into_iter().max_by_key(|(_, size)| *size).map(|(path, _)| PathBuf::from(path)).unwrap_or_default()
}

/// Whether frame pointers lead through a program: four of five of its functions keep one, as its unwind
/// tables say; or it has no tables, as Go's have none.
fn has_frame_pointers(path: &Path) -> bool {
    #[cfg(target_arch = "x86_64")]
    const POINTER: gimli::Register = gimli::X86_64::RBP;
    #[cfg(target_arch = "aarch64")]
    const POINTER: gimli::Register = gimli::AArch64::X29;
    /// As many functions are looked at.
    const LOOKED: usize = 4000;
    let tables = || {
        let data = object::ReadCache::new(perf::readable(path)?);
        let file = elf_file::parse(&data)?;
        let Some(section) = file.section_by_name(".eh_frame") else { return Some(true) };
        let bytes = section.uncompressed_data().ok()?;
        let frames = gimli::EhFrame::new(&bytes, gimli::NativeEndian);
        let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
        let (mut all, mut with) = (0usize, 0usize);
        let mut entries = gimli::UnwindSection::entries(&frames, &bases);
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else { continue };
            let Ok(function) = partial.parse(gimli::UnwindSection::cie_from_offset) else { continue };
            let mut steps = function.instructions(&frames, &bases);
            let mut keeps = false;
            while let Ok(Some(step)) = steps.next() {
                keeps |= matches!(
                    step,
                    gimli::CallFrameInstruction::DefCfaRegister { register }
                    | gimli::CallFrameInstruction::DefCfa { register, .. } if register == POINTER
                );
            }
            (all, with) = (all + 1, with + usize::from(keeps));
            if all == LOOKED {
                break;
            }
        }
        Some(all == 0 || with * 5 >= all * 4)
    };
    tables().unwrap_or(false)
}
