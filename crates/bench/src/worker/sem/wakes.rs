//! Pairs that wake each other: each pair has an array with two semaphores, on which its sides sleep in turn.
//! A side is a process or a thread. A wait lasts from just before the call that wakes to the return of the
//! call that slept, so it has both calls and the scheduler's part in it.

use std::io;
use std::ptr;
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::array::{Array, op};
use super::{Task, failed};
use crate::error::{Error, Result};
use crate::plan::Sample;
use crate::worker::gate::{Alone, add_quantiles, histogram};
use crate::{affinity, clock};

/// What the sides of a pair are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sides {
    Processes,
    Threads,
}

impl Sides {
    pub(crate) const ALL: [Self; 2] = [Self::Processes, Self::Threads];

    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Threads => "threads",
        }
    }
}

/// How long a side pauses before it wakes the other, which is asleep by then.
pub(crate) const PAUSE: Duration = Duration::from_micros(100);
/// Waits of a side that are not counted: the first is told apart, and the next few fill caches.
const UNCOUNTED: u64 = 8;
/// How long the sides may take to come to their ends, and to wait once.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a side writes, and others read.
#[derive(Default)]
struct Side {
    /// When it began the call that wakes the other side.
    woke_ns: AtomicU64,
    /// Its waits so far.
    waits: AtomicU64,
    first_ns: AtomicU64,
    /// An error number, or [`DONE`].
    end: AtomicU64,
}

/// [`Side::end`]: the side has seen the stop.
const DONE: u64 = u64::MAX;

/// Memory that forked children share with their parent.
struct Board {
    words: &'static [AtomicU64],
    sides: &'static [Alone<Side>],
    /// Waits that a side has room for.
    room: usize,
}

impl Board {
    fn new(sides: usize, room: usize) -> Result<Board> {
        let (front, words) = (sides * size_of::<Alone<Side>>(), 1 + sides * room);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                front + words * size_of::<AtomicU64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(Error::system("there is no memory to share")(io::Error::last_os_error()));
        }
        // SAFETY: as long as that, aligned to a page, and never unmapped; zero bytes are sides and words.
        unsafe {
            Ok(Board {
                sides: slice::from_raw_parts(memory.cast(), sides),
                words: slice::from_raw_parts(memory.byte_add(front).cast(), words),
                room,
            })
        }
    }

    fn stop(&self) -> &AtomicU64 {
        &self.words[0]
    }

    fn waits(&self, side: usize) -> &[AtomicU64] {
        &self.words[1 + side * self.room..][..self.room]
    }

    /// A side's part until the stop. The second side of each pair, an odd number, sleeps first.
    fn act(&self, number: usize, array: &Array) {
        let (own, other) = (&self.sides[number].0, &self.sides[number ^ 1].0);
        let semaphore = number % 2;
        let wake = || array.operate(&mut [op(semaphore ^ 1, 1, 0)]);
        let turn = |wakes: bool| -> std::result::Result<bool, i32> {
            if wakes {
                thread::sleep(PAUSE);
                own.woke_ns.store(clock::now_ns(), Release);
                wake()?;
            }
            // A signal may have stopped the program for a while.
            while let Err(errno) = array.operate(&mut [op(semaphore, -1, 0)]) {
                if errno != libc::EINTR {
                    return Err(errno);
                }
            }
            let waited = clock::now_ns().saturating_sub(other.woke_ns.load(Acquire));
            if self.stop().load(Relaxed) != 0 {
                // The other side may sleep.
                return wake().map(|()| false);
            }
            let waits = own.waits.load(Relaxed);
            if waits == 0 {
                own.first_ns.store(waited, Relaxed);
            }
            let counted = waits.checked_sub(UNCOUNTED).and_then(|at| self.waits(number).get(at as usize));
            if let Some(wait) = counted {
                wait.store(waited, Relaxed);
            }
            own.waits.store(waits + 1, Release);
            Ok(true)
        };
        let mut wakes = semaphore == 0;
        let end = loop {
            match turn(wakes) {
                Ok(true) => wakes = true,
                Ok(false) => break DONE,
                Err(errno) => break errno as u64,
            }
        };
        own.end.store(end, Release);
    }

    fn all(&self, of: impl Fn(&Side) -> bool) -> bool {
        self.sides.iter().all(|side| of(&side.0))
    }

    /// Lets the sides act for that long, and longer if one of them had no wait to count.
    fn watch(&self, duration: Duration) -> Result<()> {
        let begin = Instant::now();
        let limit = begin + duration + PATIENCE;
        let counted = |side: &Side| side.waits.load(Relaxed) > UNCOUNTED;
        while begin.elapsed() < duration || !self.all(counted) {
            self.checked(limit, "a side is not woken")?;
            thread::sleep(Duration::from_millis(1));
        }
        self.stop().store(1, Relaxed);
        let limit = Instant::now() + PATIENCE;
        while !self.all(|side| side.end.load(Acquire) != 0) {
            self.checked(limit, "a side does not end")?;
            thread::sleep(Duration::from_millis(1));
        }
        self.checked(limit + PATIENCE, "")
    }

    fn checked(&self, limit: Instant, late: &str) -> Result<()> {
        let ends = self.sides.iter().map(|side| side.0.end.load(Acquire));
        match ends.into_iter().find(|end| !matches!(*end, 0 | DONE)) {
            Some(errno) => Err(failed("semop", errno as i32)),
            None if Instant::now() > limit => Err(Error::Options(late.to_owned())),
            None => Ok(()),
        }
    }
}

/// Forked sides, which end with this.
struct Children(Vec<libc::pid_t>);

impl Drop for Children {
    fn drop(&mut self) {
        for pid in &self.0 {
            // SAFETY: a child that has not been waited for, so that its id is still its own.
            unsafe {
                libc::kill(*pid, libc::SIGKILL);
                libc::waitpid(*pid, ptr::null_mut(), 0);
            }
        }
    }
}

impl Children {
    fn start(&mut self, act: impl FnOnce()) -> Result<()> {
        // SAFETY: plain queries. This process has no other threads.
        let (parent, pid) = unsafe { (libc::getpid(), libc::fork()) };
        if pid < 0 {
            return Err(Error::system("cannot start a process")(io::Error::last_os_error()));
        }
        if pid > 0 {
            self.0.push(pid);
            return Ok(());
        }
        // SAFETY: calls without pointers. The child ends with its parent, holds none of the files on whose
        // end somebody waits, and does not run what the parent has registered for its own end.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            for stream in 0..=2 {
                libc::close(stream);
            }
            if libc::getppid() == parent {
                act();
            }
            libc::_exit(0)
        }
    }
}

/// The waits of all sides.
pub(super) fn run(task: &Task, sides: Sides, pairs: usize) -> Result<Sample> {
    affinity::keep_to(&task.cpus)?;
    let duration = Duration::from_nanos(task.duration_ns);
    // In a round trip of a pair each side pauses once.
    let room = duration.as_nanos().div_ceil(2 * PAUSE.as_nanos()) as usize + 1;
    let board = Board::new(2 * pairs, room)?;
    let arrays: Vec<_> = (0..pairs).map(|_| Array::new(task.mechanism, 2)).collect::<Result<_>>()?;
    match sides {
        Sides::Processes => {
            let mut children = Children(Vec::new());
            for number in 0..2 * pairs {
                children.start(|| board.act(number, &arrays[number / 2]))?;
            }
            board.watch(duration)?;
        }
        Sides::Threads => thread::scope(|scope| {
            let start = |number: usize| {
                let (board, array) = (&board, &arrays[number / 2]);
                thread::Builder::new().spawn_scoped(scope, move || board.act(number, array))
            };
            let started = (0..2 * pairs).try_for_each(|number| start(number).map(drop));
            started
                .map_err(Error::system("cannot start a thread"))
                .and_then(|()| board.watch(duration))
                .inspect_err(
                    // Ends the calls of those that sleep, for whose ends the scope waits.
                    |_| arrays.iter().for_each(|array| _ = array.remove()),
                )
        })?,
    }
    let mut all = histogram()?;
    for number in 0..2 * pairs {
        let counted = board.sides[number].0.waits.load(Acquire) - UNCOUNTED;
        for wait in board.waits(number).iter().take(counted as usize) {
            all.saturating_record(wait.load(Relaxed));
        }
    }
    let mut figures = Sample::new();
    add_quantiles(&mut figures, "waits", &all);
    let first = board.sides.iter().map(|side| side.0.first_ns.load(Relaxed)).max();
    figures.insert("first_ns".to_owned(), first.unwrap_or(0) as f64);
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::super::What;
    use super::*;
    use crate::sem::Mechanism;

    #[test]
    fn each_side_of_each_pair_waits() {
        for (sides, pairs) in Sides::ALL.into_iter().flat_map(|sides| [(sides, 1), (sides, 3)]) {
            let task = Task {
                mechanism: Mechanism::Kernel,
                cpus: affinity::allowed().unwrap(),
                duration_ns: 5_000_000,
                what: What::Wakes { sides, pairs },
            };
            let waits = run(&task, sides, pairs).unwrap();
            let of = |name: &str| waits[name];
            assert!(of("waits.count") >= 2.0 * pairs as f64 && of("first_ns") > 0.0, "{sides:?}: {waits:?}");
            assert!(
                0.0 < of("waits.p50_ns")
                    && of("waits.p50_ns") <= of("waits.p999_ns")
                    && of("waits.p999_ns") <= of("waits.max_ns"),
                "{sides:?}: {waits:?}"
            );
        }
    }
}
