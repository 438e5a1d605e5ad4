//! What the threads of a running program do, looked at from outside every few milliseconds: where their time
//! goes, and while somebody waits for a lock, what its holder is doing.
//!
//! Nothing is done to the program: no signal, no `ptrace`, no stop. The kernel's files under `/proc` say
//! whether a thread sleeps, in which call, how long it has run and how long it was ready without a CPU. The
//! stack of a thread that sleeps is read as it lies there ([`sleeps`]). The statistics file of its process
//! says what it waits for and who has that. Looks come at random intervals, so that nothing in the program
//! keeps time with them, and so rarely that they take about one hundredth of one CPU.

mod graph;
mod outcome;
mod series;
mod sleeps;
mod tally;
#[cfg(test)]
mod tests;
mod watch;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use poundlock_statfile::LockKind;
use rustc_hash::FxHashMap;

use crate::launch::BlockedSignals;
use crate::observe::proc;

pub(crate) use outcome::{Estimate, Graph, Hidden, Holder, Outcome, Process, Purpose, Sleep, Times, placed};
#[cfg(test)]
pub(crate) use outcome::{Inside, Threads, WaitedLock};
pub(crate) use series::{Key, MAIN, Party, Waited};
pub(crate) use sleeps::Waker;
pub(crate) use watch::{Ids, Whom};
use watch::{Random, Watch};

/// The shortest and the longest pause between two looks.
const PAUSE_NS: (u64, u64) = (4_000_000, 1_000_000_000);
/// A look is followed by a pause of as many times its CPU time, and a search for processes and threads by as
/// many times its own. With the shares of stacks ([`sleeps`]) all of it takes one hundredth of a CPU.
const LOOK_SHARE: u64 = 250;
/// The first looks, which take this CPU time together, come as many times closer: short runs are seen as
/// well.
const FIRST_NS: u64 = 30_000_000;
const FIRST_CLOSER: u64 = 10;
const SEARCH_SHARE: u64 = 500;
/// The pauses between searches begin with the first of these and grow to the second: at its start a program
/// makes its threads.
const SEARCH_NS: (u64, u64) = (1_000_000, 50_000_000);

/// What threads, by our ids, wait for in their futex calls, or waited for last; kept by
/// [`Engine`](crate::attach::Engine).
pub(crate) type FutexWaits = Arc<Mutex<FxHashMap<u32, LockKind>>>;

/// A thread that looks.
pub(crate) struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    stop: Condvar,
}

struct State {
    watch: Watch,
    stopped: bool,
    cost_ns: u64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in the middle of a look leaves figures that are a bit off.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sampler {
    /// Starts to watch those processes, with all that they start, and all that leave a statistics file in
    /// `dir`, which may be one such file. All signals are blocked in its thread.
    pub(crate) fn start(dir: &Path, whom: Whom, ids: Ids) -> std::io::Result<Sampler> {
        Self::start_with(dir, whom, ids, None)
    }

    /// The same of processes whose futex calls are seen: `calls` says what their threads wait for.
    pub(crate) fn start_with(
        dir: &Path,
        whom: Whom,
        ids: Ids,
        calls: Option<FutexWaits>,
    ) -> std::io::Result<Sampler> {
        let watched = Watch::new(dir, whom, ids, calls, now());
        let state = State { watch: watched, stopped: false, cost_ns: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), stop: Condvar::new() });
        let of_thread = shared.clone();
        // A thread begins with the mask of the one that starts it.
        let before = BlockedSignals::all();
        let thread = std::thread::Builder::new().name("sampler".into()).spawn(move || watch(&of_thread));
        drop(before);
        Ok(Sampler { shared, thread: Some(thread?) })
    }

    /// What is known so far.
    pub(crate) fn so_far(&self) -> Outcome {
        let mut state = self.shared.state();
        // Which programs the processes are by now.
        state.watch.discover(now());
        outcome(&mut state)
    }

    /// What was found since the last call, or since the start.
    pub(crate) fn take(&self) -> Outcome {
        let mut state = self.shared.state();
        state.watch.discover(now());
        let outcome = outcome(&mut state);
        state.cost_ns = 0;
        state.watch.begin_anew(now());
        outcome
    }

    /// Watches another process, which leaves this statistics file.
    pub(crate) fn watch(&self, pid: u32, file: &Path) {
        self.shared.state().watch.also(pid, file);
    }

    /// Forgets what was found so far, and goes on.
    pub(crate) fn begin_anew(&self) {
        let mut state = self.shared.state();
        state.cost_ns = 0;
        state.watch.begin_anew(now());
    }

    /// Stops, and says what was found.
    pub(crate) fn finish(mut self) -> Outcome {
        self.stop();
        outcome(&mut self.shared.state())
    }

    fn stop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop();
    }
}

fn outcome(state: &mut State) -> Outcome {
    Outcome { cost_ns: state.cost_ns, ..state.watch.outcome(now()) }
}

fn watch(shared: &Shared) {
    let mut random = Random::new(now());
    let (mut look_at, mut search_at) = (0, 0);
    let mut search_pause = SEARCH_NS.0;
    let mut looks_ns = 0;
    let mut state = shared.state();
    while !state.stopped {
        let begin = now();
        let before = cost();
        if begin >= search_at {
            state.watch.discover(begin);
            search_pause = (search_pause * 3 / 2).min(SEARCH_NS.1);
            search_at = begin + search_pause.max((cost() - before) * SEARCH_SHARE);
        }
        if begin >= look_at {
            let (looked, mapped) = (cost(), state.watch.mapping_ns());
            state.watch.look(now());
            // Stacks, and what programs have mapped, are read within limits of their own.
            let mapped = state.watch.mapping_ns() - mapped;
            let taken = (cost() - looked).saturating_sub(mapped);
            let is_first = looks_ns < FIRST_NS;
            looks_ns += taken;
            let share = if is_first { LOOK_SHARE / FIRST_CLOSER } else { LOOK_SHARE };
            let pause = (taken * share).clamp(PAUSE_NS.0, PAUSE_NS.1);
            // From half of it to one and a half.
            look_at = begin + pause / 2 + random.below(pause as usize) as u64;
        }
        state.cost_ns += cost() - before;
        let pause = look_at.min(search_at).saturating_sub(now()).max(1);
        let waited = shared.stop.wait_timeout(state, Duration::from_nanos(pause));
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    // What has ended since has ended.
    state.watch.discover(now());
}

/// `CLOCK_MONOTONIC`, on which the figures of the processes are.
fn now() -> u64 {
    proc::clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// The CPU time of this thread.
fn cost() -> u64 {
    proc::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}
