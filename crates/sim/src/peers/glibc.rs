//! glibc's ordinary mutex (`PTHREAD_MUTEX_TIMED_NP`, the default kind; glibc 2.41,
//! `nptl/pthread_mutex_lock.c` and `lowlevellock.c`): three states in a futex, after Drepper, "Futexes Are
//! Tricky" (2011), mutex 3. No spinning; a release wakes one sleeper, which must take the mutex like anybody
//! else.
//!
//! It has the writes of owner and of the number of users, which lie in the futex's line.
//!
//! Left out: elision, and the plain accesses of a process with one thread.

use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform, Until};

use crate::atomic::U32;
use crate::locks::Lock;
use crate::platform::Sim;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep for it.
const CONTENDED: u32 = 2;

/// The three states.
#[derive(Default)]
pub(super) struct Drepper {
    futex: U32,
}

impl Drepper {
    pub(super) fn acquire(&self) {
        if let Err(seen) = self.futex.compare_exchange(FREE, HELD, Relaxed, Relaxed) {
            if seen == CONTENDED {
                Sim::wait(&self.futex, CONTENDED, Until::Woken);
            }
            self.acquire_as_contended();
        }
    }

    /// As if others slept for it.
    fn acquire_as_contended(&self) {
        while self.futex.swap(CONTENDED, Relaxed) != FREE {
            Sim::wait(&self.futex, CONTENDED, Until::Woken);
        }
    }

    pub(super) fn release(&self) {
        if self.futex.swap(FREE, Relaxed) == CONTENDED {
            Sim::wake(&self.futex, 1);
        }
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Glibc {
    mutex: Drepper,
    owner: U32,
    users: U32,
}

impl Glibc {
    /// After a wait for a condition variable, the mutex is acquired so.
    pub(crate) fn acquire_as_contended(&self) {
        self.mutex.acquire_as_contended();
        self.acquired();
    }

    fn acquired(&self) {
        self.owner.store(1 + Sim::current().unwrap_or(0), Relaxed);
        self.users.store(self.users.load(Relaxed) + 1, Relaxed);
    }
}

impl Lock for Glibc {
    fn lock(&self) {
        self.mutex.acquire();
        self.acquired();
    }

    fn unlock(&self) {
        self.owner.store(0, Relaxed);
        self.users.store(self.users.load(Relaxed) - 1, Relaxed);
        self.mutex.release();
    }

    fn is_free(&self) -> bool {
        self.mutex.futex.peek() == FREE && self.users.peek() == 0
    }
}
