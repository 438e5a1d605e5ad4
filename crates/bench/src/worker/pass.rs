//! The hand-off alone: two threads pass a lock to and fro, and nobody competes with them.

use std::hint;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::thread;

use poundlock_peers::{Calls, Instance, Node};
use serde::{Deserialize, Serialize};

use super::alone::is_asleep;
use super::drive::Subject;
use super::gate::Alone;
use super::{sample, symbols};
use crate::Summary;
use crate::error::{Error, Result};
use crate::plan::Sample;
use crate::{affinity, clock};

/// Two threads that pass a lock to and fro.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) lock: Subject,
    pub(crate) next: Next,
    /// A CPU for each.
    pub(crate) cpus: [usize; 2],
    pub(crate) duration_ns: u64,
}

/// What a lock's next owner does when it is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Next {
    /// It set out to lock a microsecond ago.
    JustCame,
    /// It sleeps.
    Asleep,
}

/// How long the next owner has waited when the lock is passed to one that [`Next::JustCame`]: longer than it
/// takes to set out, and far shorter than spinners spin.
const JUST_NS: u64 = 1_000;
/// The fewest passes of one thread, however long they take.
const FEWEST: usize = 10;
/// The most passes of one thread that are kept.
const MOST: usize = 100_000;
/// After this long without a pass something is wrong.
const STUCK_NS: u64 = 20_000_000_000;

/// `pass_ns`, from before the unlock to the end of the next owner's lock, and `unlock_ns`, the unlock alone.
pub(crate) fn run(library: Option<&Path>, task: &Task) -> Result<Sample> {
    let (calls, spins) = task.lock.calls(library)?;
    if task.next == Next::Asleep && spins {
        return Err(Error::Failed("nobody sleeps in a spinlock".to_owned()));
    }
    let shared = Arc::new(Passing {
        calls: calls.write,
        lock: Instance::new(&calls.write),
        sides: Default::default(),
        released: Alone::default(),
        begun: AtomicBool::new(false),
        end_ns: clock::now_ns() + task.duration_ns,
        ended: AtomicBool::new(false),
        next: task.next,
        cpus: task.cpus,
    });
    let threads = [0, 1].map(|side| {
        let shared = Arc::clone(&shared);
        thread::Builder::new().spawn(move || shared.run(side))
    });
    let (mut passes, mut unlocks) = (Vec::new(), Vec::new());
    for thread in threads {
        let thread = thread.map_err(Error::system("cannot start a thread"))?;
        let times = thread.join().map_err(|_| Error::Failed("a thread died".to_owned()))??;
        passes.extend(times.passes);
        unlocks.extend(times.unlocks);
    }
    symbols::all_succeeded()?;
    let median = |times: Vec<u64>| Summary::of(times.into_iter().map(|ns| ns as f64)).map(|ns| ns.median);
    match (median(passes), median(unlocks)) {
        (Some(pass_ns), Some(unlock_ns)) => Ok(sample([("pass_ns", pass_ns), ("unlock_ns", unlock_ns)])),
        _ => Err(Error::Failed("the lock was never passed on".to_owned())),
    }
}

/// A thread that passes the lock on and waits for it in turn.
#[derive(Default)]
struct Side {
    thread: AtomicI32,
    /// Since when it waits; 0 while it does not.
    since: AtomicU64,
}

struct Passing {
    calls: Calls,
    lock: Instance,
    sides: [Alone<Side>; 2],
    /// When the lock was last released. Written by the owner.
    released: Alone<AtomicU64>,
    /// Whether the first owner has it.
    begun: AtomicBool,
    end_ns: u64,
    /// Whether the pass under way is the last. Written by the owner.
    ended: AtomicBool,
    next: Next,
    cpus: [usize; 2],
}

#[derive(Default)]
struct Times {
    passes: Vec<u64>,
    unlocks: Vec<u64>,
}

impl Passing {
    fn lock(&self, node: &Node) {
        // SAFETY: lock and node live; this thread does not hold the lock.
        unsafe { (self.calls.lock)(self.lock.as_ptr(), node.as_ptr()) };
    }

    fn unlock(&self, node: &Node) {
        // SAFETY: this thread locked it with this node.
        unsafe { (self.calls.unlock)(self.lock.as_ptr(), node.as_ptr()) };
    }

    fn run(&self, side: usize) -> Result<Times> {
        affinity::keep_to(&[self.cpus[side]])?;
        let (own, other) = (&self.sides[side].0, &self.sides[1 - side].0);
        // SAFETY: no arguments, no effect.
        own.thread.store(unsafe { libc::gettid() }, Relaxed);
        let mut times = Times::default();
        let node = Node::new(&self.calls);
        let mut owner = side == 0;
        if owner {
            self.lock(&node);
            self.begun.store(true, Release);
        } else {
            wait_until(|| self.begun.load(Acquire))?;
        }
        loop {
            if owner {
                wait_until(|| other.since.load(Acquire) != 0)?;
                let since = other.since.load(Relaxed);
                let thread = other.thread.load(Relaxed);
                wait_until(|| match self.next {
                    Next::JustCame => clock::now_ns() >= since + JUST_NS,
                    Next::Asleep => is_asleep(thread),
                })?;
                let last = clock::now_ns() >= self.end_ns && times.unlocks.len() >= FEWEST;
                self.ended.store(last, Relaxed);
                let before = clock::now_ns();
                self.released.0.store(before, Relaxed);
                self.unlock(&node);
                keep(&mut times.unlocks, clock::now_ns() - before);
                if last {
                    return Ok(times);
                }
                // The other has the lock: nobody competes with it.
                wait_until(|| other.since.load(Acquire) == 0)?;
            }
            own.since.store(clock::now_ns(), Release);
            self.lock(&node);
            let acquired = clock::now_ns();
            keep(&mut times.passes, acquired.saturating_sub(self.released.0.load(Relaxed)));
            owner = true;
            let last = self.ended.load(Relaxed);
            own.since.store(0, Release);
            if last {
                self.unlock(&node);
                return Ok(times);
            }
        }
    }
}

fn keep(times: &mut Vec<u64>, ns: u64) {
    if times.len() < MOST {
        times.push(ns);
    }
}

/// Spins for a while, and then lets others run between two looks.
fn wait_until(mut done: impl FnMut() -> bool) -> Result<()> {
    const LOOKS: u32 = 1_000;
    let mut looks = 0;
    let begin = clock::now_ns();
    while !done() {
        if looks < LOOKS {
            looks += 1;
            hint::spin_loop();
        } else if clock::now_ns() - begin < STUCK_NS {
            thread::yield_now();
        } else {
            return Err(Error::Failed("the lock is not passed on".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_that_sleep_are_passed_on_to_sleepers_and_spinlocks_are_not() {
        let cpus = affinity::allowed().unwrap();
        let cpus = [cpus[0], cpus[cpus.len() - 1]];
        for next in [Next::JustCame, Next::Asleep] {
            for (lock, spins) in [("poundlock", false), ("handoff-recursive", false), ("ticket", true)] {
                let task = Task { lock: Subject::Peer(lock.into()), next, cpus, duration_ns: 2_000_000 };
                match run(None, &task) {
                    Ok(passes) => assert!(passes["pass_ns"] > 0.0 && passes["unlock_ns"] > 0.0, "{passes:?}"),
                    Err(error) => {
                        assert!(spins && next == Next::Asleep && error.to_string().contains("nobody sleeps"));
                    }
                }
            }
        }
    }
}
