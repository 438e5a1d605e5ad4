//! What `check` does not see: threads that sleep for locks of a language or of the program's own.
//!
//! Only pthread locks, and those that are linked with Poundlock's, are checked. A program whose threads sleep
//! in other futexes may be deadlocked in them, so it gets no verdict of "nothing found". Whether a thread
//! does is looked up from outside, a few times a second: it counts if two looks in a row find it in the same
//! call.

use std::collections::BTreeMap;

use poundlock_statfile::{LiveThread, LockKind};

use crate::observe::calls::Call;
use crate::observe::proc::{self, Seen, Task};
use crate::observe::runtime::Runtime;
use crate::output::counted;

use super::feed::Feed;

/// Between two looks, in nanoseconds.
const LOOK_NS: u64 = 200_000_000;
/// As many threads are looked at, and as many are named.
const THREADS: usize = 512;
const NAMED: usize = 4;

/// The sleeps of a process that no record explains.
#[derive(Debug, Default)]
pub(super) struct Unexplained {
    looked_at: u64,
    before: BTreeMap<u32, Call>,
    /// The names of those that were asleep so at once, most of them at any time.
    most: Vec<String>,
}

/// A process whose locks are not all checked.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Blind {
    pub(super) pid: u32,
    pub(super) program: String,
    /// The runtime whose locks they may be, in words.
    pub(super) locks: &'static str,
    /// So many threads slept at once for what is not checked, some of them by name.
    pub(super) sleepers: usize,
    pub(super) names: Vec<String>,
    #[serde(skip)]
    pub(super) runtime: Option<Runtime>,
}

impl Unexplained {
    /// Looks at the threads of a process, if it is time for that. `threads` are those that have a record.
    pub(super) fn look(&mut self, feed: &Feed, threads: &[LiveThread], (outer, inner): (u32, u32), now: u64) {
        if now - self.looked_at < LOOK_NS {
            return;
        }
        self.looked_at = now;
        let mut asleep = BTreeMap::new();
        for tid in proc::tasks(outer).unwrap_or_default().into_iter().take(THREADS) {
            let task = Task::new(outer, tid, false);
            let Seen::Call(call) = task.look() else { continue };
            let id = if outer == inner { Some(tid) } else { task.inner_id() };
            let record = threads.iter().find(|thread| Some(thread.tid) == id);
            // A futex call of the program's own is recorded, and is of no lock that is known.
            let kind = record.and_then(|thread| feed.wait(thread.record)).map(|wait| wait.kind);
            if call.waits_for_futex() && kind.is_none_or(|kind| kind == LockKind::Futex) {
                asleep.insert(tid, call);
            }
        }
        let lasting = asleep.iter().filter(|(tid, call)| self.before.get(tid) == Some(call));
        let names: Vec<String> = lasting
            .map(|(&tid, _)| {
                let name = Task::new(outer, tid, false).name().unwrap_or_default();
                if name.is_empty() { format!("thread {tid}") } else { format!("{name} ({tid})") }
            })
            .collect();
        if names.len() > self.most.len() {
            self.most = names;
        }
        self.before = asleep;
    }

    /// What is to be said of the process, if anything is.
    pub(super) fn blind(&self, pid: u32, program: String, runtime: Option<Runtime>) -> Option<Blind> {
        // Locks of these two never show as a sleep of their own: goroutines are parked, and monitors are made
        // of condition variables.
        let never_shows = matches!(runtime, Some(Runtime::Go | Runtime::Java));
        if self.most.is_empty() && !never_shows {
            return None;
        }
        let locks = runtime.map_or("locks of its own, or of a library", Runtime::own_locks);
        let names = self.most.iter().take(NAMED).cloned().collect();
        Some(Blind { pid, program, locks, sleepers: self.most.len(), names, runtime })
    }
}

impl Blind {
    /// What is not checked, behind "not checked: ".
    pub(super) fn in_words(&self) -> String {
        let Blind { pid, program, locks, sleepers, names, .. } = self;
        let whose = format!("{locks} in {program} (process {pid})");
        if *sleepers == 0 {
            return whose;
        }
        let more = sleepers - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let slept = counted(*sleepers as u64, "thread");
        format!("{whose}: {slept} slept in futexes that are no pthread lock: {}{more}", names.join(", "))
    }

    /// The command that shows who waits for them.
    pub(super) fn way(&self, command: &str) -> String {
        match self.runtime {
            Some(Runtime::Java) => {
                "while it hangs, `jstack PID` and `poundlock who PID` show who waits".to_owned()
            }
            Some(Runtime::Go) => {
                "while it hangs, `kill -QUIT PID` ends it with the stacks of all goroutines".to_owned()
            }
            _ => format!(
                "while it hangs, `poundlock who PID` shows who waits; `sudo poundlock stat --futex -- {command}` shows \
                 what for, and how long"
            ),
        }
    }
}
