//! By what threads sleep and are woken.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use poundlock_core::Platform;
use poundlock_core::atomic::Atomics;
use poundlock_core::platform::{Atomic, Until};
use poundlock_core::semarray::Report;
use poundlock_linux::Linux;

use super::array::{Array, Errno, op};
use crate::error::Result;
use crate::sem::Mechanism;
use crate::worker::gate::Alone;

pub(super) trait Sleepers: Send + Sync {
    /// The calling thread, which has this number, sleeps until it is woken, or not at all if it has been
    /// already.
    fn sleep(&self, number: usize) -> std::result::Result<(), Errno>;

    /// Wakes these.
    fn wake(&self, numbers: &[usize]) -> std::result::Result<(), Errno>;

    /// What the array says of its lock.
    fn held(&self) -> Option<Report> {
        None
    }

    /// It is over. Those that sleep may sleep on until the process ends.
    fn abandon(&self) -> std::result::Result<(), Errno> {
        Ok(())
    }
}

/// So many threads' way to sleep, by a semaphore each, or a word; with arrays, if they are to make several
/// operations, by one more semaphore that all share.
pub(super) fn by(mechanism: Mechanism, threads: usize, several: bool) -> Result<Box<dyn Sleepers>> {
    let words = || Words((0..threads).map(|_| Alone(Atomic::new(0))).collect());
    Ok(match mechanism {
        Mechanism::Futex => Box::new(words()),
        Mechanism::Nanosleep => Box::new(Naps(words())),
        _ => {
            let array = Array::new(mechanism, threads + usize::from(several))?;
            Box::new(Semaphores { array, common: several.then_some(threads) })
        }
    })
}

/// Operations of a call that wakes.
const CALL: usize = 64;

struct Semaphores {
    array: Array,
    /// The number of the semaphore that all share, if they make several operations. Those are few enough for
    /// one call.
    common: Option<usize>,
}

impl Sleepers for Semaphores {
    fn sleep(&self, number: usize) -> std::result::Result<(), Errno> {
        let mut operations = [op(number, -1, 0), op(self.common.unwrap_or(0), -1, 0)];
        let several = 1 + usize::from(self.common.is_some());
        loop {
            match self.array.operate(&mut operations[..several]) {
                // Somebody stopped the program for a while.
                Err(libc::EINTR) => {}
                result => return result,
            }
        }
    }

    fn wake(&self, numbers: &[usize]) -> std::result::Result<(), Errno> {
        let mut operations = [op(0, 1, 0); CALL + 1];
        for numbers in numbers.chunks(CALL) {
            for (operation, &number) in operations.iter_mut().zip(numbers) {
                operation.sem_num = number as u16;
            }
            let mut length = numbers.len();
            if let Some(common) = self.common {
                operations[length] = op(common, length as i16, 0);
                length += 1;
            }
            self.array.operate(&mut operations[..length])?;
        }
        Ok(())
    }

    fn held(&self) -> Option<Report> {
        self.array.held()
    }

    fn abandon(&self) -> std::result::Result<(), Errno> {
        self.array.abandon()
    }
}

/// A word for each thread, a futex: 1 if it has been woken.
struct Words(Vec<Alone<<Linux as Atomics>::U32>>);

impl Words {
    fn taken(&self, number: usize) -> bool {
        let word = &self.0[number].0;
        // Nobody else takes it back.
        let woken = word.load(Acquire) == 1;
        if woken {
            word.store(0, Relaxed);
        }
        woken
    }
}

impl Sleepers for Words {
    fn sleep(&self, number: usize) -> std::result::Result<(), Errno> {
        while !self.taken(number) {
            Linux::wait(&self.0[number].0, 0, Until::Woken);
        }
        Ok(())
    }

    fn wake(&self, numbers: &[usize]) -> std::result::Result<(), Errno> {
        for &number in numbers {
            let word = &self.0[number].0;
            word.store(1, Release);
            Linux::wake(word, 1);
        }
        Ok(())
    }
}

/// How long a thread sleeps before it looks again, if nobody wakes it.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);

struct Naps(Words);

impl Sleepers for Naps {
    fn sleep(&self, number: usize) -> std::result::Result<(), Errno> {
        while !self.0.taken(number) {
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn wake(&self, numbers: &[usize]) -> std::result::Result<(), Errno> {
        numbers.iter().for_each(|&number| self.0.0[number].0.store(1, Release));
        Ok(())
    }
}
