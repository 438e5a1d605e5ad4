//! Two threads with a CPU and a semaphore each, in one array: nobody ever sleeps for a semaphore, and only
//! the array's lock is between them.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::array::{Array, Errno, Held, Use, op, with_arrays};
use super::failed;
use crate::error::{Error, Result};
use crate::sem::Mechanism;
use crate::worker::gate::Alone;
use crate::{affinity, clock};

/// What they got done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) elapsed_ns: u64,
    /// Calls of each.
    pub(crate) calls: [u64; 2],
    /// What the array says of its lock.
    pub(crate) held: Option<Held>,
}

pub(super) fn run(mechanism: Mechanism, cpus: [usize; 2], duration_ns: u64) -> Result<Pair> {
    with_arrays(mechanism, Both { cpus, duration_ns })
}

struct Both {
    cpus: [usize; 2],
    duration_ns: u64,
}

impl Use for Both {
    type Output = Pair;

    fn with<A: Array>(self) -> Result<Pair> {
        let array = A::new(2)?;
        let calls: [Alone<AtomicU64>; 2] = Default::default();
        let stop = AtomicBool::new(false);
        let (pair, ends) = thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|index| {
                    let (array, calls, stop, cpu) = (&array, &calls[index].0, &stop, self.cpus[index]);
                    thread::Builder::new()
                        .spawn_scoped(scope, move || up_and_down(array, index, calls, stop, cpu))
                })
                .collect();
            let pair = self.measure(&array, &calls, &threads);
            stop.store(true, Relaxed);
            let ends: Vec<Result<()>> = threads
                .into_iter()
                .map(|thread| match thread.map_err(Error::system("cannot start a thread"))?.join() {
                    Ok(end) => end,
                    Err(_) => Err(Error::Options("a thread died".to_owned())),
                })
                .collect();
            (pair, ends)
        });
        ends.into_iter().collect::<Result<()>>()?;
        Ok(pair)
    }
}

impl Both {
    fn measure<A: Array, T>(
        &self,
        array: &A,
        calls: &[Alone<AtomicU64>; 2],
        threads: &[std::io::Result<thread::ScopedJoinHandle<'_, T>>],
    ) -> Pair {
        let read = || [calls[0].0.load(Relaxed), calls[1].0.load(Relaxed)];
        let running =
            || threads.iter().all(|thread| thread.as_ref().is_ok_and(|thread| !thread.is_finished()));
        // Both are to be under way.
        while read().contains(&0) && running() {
            thread::sleep(Duration::from_micros(100));
        }
        let (start, first, held) = (clock::now_ns(), read(), array.held());
        let last = loop {
            thread::sleep(Duration::from_nanos(self.duration_ns));
            let last = read();
            // A busy machine may not have let one of them run at all. If an array hangs, the parent's
            // patience ends.
            if last[0] != first[0] && last[1] != first[1] || !running() {
                break last;
            }
        };
        let elapsed_ns = clock::now_ns() - start;
        let held = array.held().zip(held).map(|(now, before)| now.since(before));
        Pair { elapsed_ns, calls: [last[0] - first[0], last[1] - first[1]], held }
    }
}

fn up_and_down<A: Array>(
    array: &A,
    index: usize,
    calls: &AtomicU64,
    stop: &AtomicBool,
    cpu: usize,
) -> Result<()> {
    affinity::keep_to(&[cpu])?;
    let mut done = 0;
    while !stop.load(Relaxed) {
        for change in [1, -1] {
            array.operate(&mut [op(index, change, 0)]).map_err(|errno: Errno| failed("semop", errno))?;
        }
        done += 2;
        calls.store(done, Relaxed);
    }
    Ok(())
}
