//! Futex calls of processes that keep no figures, or that sleep for locks which their figures do not have.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use poundlock_statfile::{LockKind, Snapshot};

use super::source::{Looked, Source};
use crate::attach::{self, Engine, Stacks};
use crate::message::Failure;
use crate::observe::proc::{self, Stat, Task, name_of};
use crate::observe::symbols::{Space, Symbols};
use crate::output::counted;
use crate::stat::sampler::{Ids, Sampler, Times, Whom};

/// The engine wants to be asked as often.
const POLLS: Duration = Duration::from_millis(20);

/// The next of our ids: statistics files have those below.
static NEXT_ID: AtomicU32 = AtomicU32::new(1 << 31);

/// The source.
pub(super) struct Futexes {
    engine: Engine,
    sampler: Option<Sampler>,
    pids: Vec<u32>,
    symbols: &'static Symbols,
    /// By process and its start: it may become another program.
    processes: HashMap<(u32, u64), Process>,
    /// Whether the processes keep figures as well.
    beside: bool,
}

/// A process.
struct Process {
    id: u32,
    name: String,
    /// The places that locks would have in a file.
    slots: HashMap<(u64, LockKind), u32>,
    space: Rc<Space<'static>>,
    generation: u32,
    /// How many files were mapped when the space was made.
    modules: usize,
    over: bool,
}

impl Futexes {
    /// Attaches to processes.
    pub(super) fn attach(pids: &[u32]) -> Result<Futexes, Failure> {
        let engine = Engine::attach(pids, Stacks::Auto)?;
        attach::hurry();
        // There are no files to look at.
        let nowhere = Path::new("/dev/null");
        let whom = Whom::Processes(pids.to_vec());
        let sampler = Sampler::start_with(nowhere, whom, Ids::Ours, Some(engine.kinds()));
        Ok(Futexes::new(engine, sampler.ok(), pids, false))
    }

    /// Attaches to processes that keep figures: for the waits that these do not have.
    pub(super) fn beside(pids: &[u32]) -> Result<Futexes, Failure> {
        let engine = Engine::beside(pids, Stacks::Auto)?;
        attach::hurry();
        Ok(Futexes::new(engine, None, pids, true))
    }

    fn new(engine: Engine, sampler: Option<Sampler>, pids: &[u32], beside: bool) -> Futexes {
        Futexes {
            engine,
            sampler,
            pids: pids.to_vec(),
            // One for the whole run, whose end is ours.
            symbols: Box::leak(Box::new(Symbols::new())),
            processes: HashMap::new(),
            beside,
        }
    }

    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    fn looked(&mut self, mut snapshot: Snapshot) -> Option<Looked> {
        let pid = snapshot.pid;
        let process = self.processes.entry((pid, snapshot.start_ns)).or_insert_with(|| Process {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            name: name_of(pid),
            slots: HashMap::new(),
            space: Rc::new(self.symbols.space_of(Cow::Owned(Snapshot::default()))),
            generation: 0,
            modules: 0,
            over: false,
        });
        if process.over {
            return None;
        }
        if snapshot.modules.len() != process.modules {
            process.modules = snapshot.modules.len();
            process.generation += 1;
            let modules = std::mem::take(&mut snapshot.modules);
            let described = Snapshot { pid, exe: snapshot.exe.clone(), modules, ..Snapshot::default() };
            process.space = Rc::new(self.symbols.space_of(Cow::Owned(described)));
        }
        let mut locks = std::mem::take(&mut snapshot.locks);
        // Beside figures, the waits that these have are summed up at no address.
        locks.retain(|lock| lock.contended > 0 && !(self.beside && lock.address == 0));
        for lock in &mut locks {
            let next = process.slots.len() as u32;
            lock.slot = *process.slots.entry((lock.address, lock.kind)).or_insert(next);
        }
        // Records of a process's own have its own namespace's ids.
        let inner = self.beside && proc::inner_pid(pid).is_some_and(|inner| inner != pid);
        for record in &mut snapshot.records {
            record.record = record.tid;
            let id = inner.then(|| Task::new(pid, record.tid, false).inner_id()).flatten();
            record.tid = id.unwrap_or(record.tid);
        }
        process.over = Stat::read(pid).is_none_or(|stat| stat.is_over());
        Some(Looked {
            id: process.id,
            pid: Some(pid),
            name: process.name.clone(),
            snapshot,
            locks,
            space: Rc::clone(&process.space),
            generation: process.generation,
            exact: false,
            beside: self.beside,
            over: process.over,
        })
    }
}

impl Source for Futexes {
    fn tends(&self) -> Option<Duration> {
        Some(POLLS)
    }

    fn tend(&mut self) {
        self.engine.poll();
    }

    fn look(&mut self, _: u64) -> Vec<Looked> {
        let snapshots = self.engine.snapshots();
        snapshots.into_iter().filter_map(|snapshot| self.looked(snapshot)).collect()
    }

    fn times(&mut self) -> Option<Times> {
        Some(self.sampler.as_ref()?.take().times_of(|pid| self.pids.contains(&pid)))
    }

    fn goes_on(&self) -> bool {
        self.engine.goes_on()
    }

    fn notes(&self) -> Vec<String> {
        let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let what = if pids.len() == 1 { "process" } else { "processes" };
        let pids = pids.join(", ");
        let whose = if self.beside { " for locks that are not counted" } else { "" };
        let mut notes =
            vec![format!("{what} {pids}: by futex calls: waits{whose} that slept, and who ended them")];
        let lost = self.engine.events().lost;
        if lost > 0 {
            notes.push(format!("{} of futex calls lost: figures are too low", counted(lost, "record")));
        }
        notes
    }
}
