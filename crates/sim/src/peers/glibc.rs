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
pub(super) struct Drepper(U32);

impl Drepper {
    pub(super) fn acquire(&self) {
        if let Err(seen) = self.0.compare_exchange(FREE, HELD, Relaxed, Relaxed) {
            if seen == CONTENDED {
                Sim::wait(&self.0, CONTENDED, Until::Woken);
            }
            self.acquire_as_contended();
        }
    }

    /// As if others slept for it.
    fn acquire_as_contended(&self) {
        while self.0.swap(CONTENDED, Relaxed) != FREE {
            Sim::wait(&self.0, CONTENDED, Until::Woken);
        }
    }

    pub(super) fn release(&self) {
        if self.0.swap(FREE, Relaxed) == CONTENDED {
            Sim::wake(&self.0, 1);
        }
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Glibc {
    futex: Drepper,
    owner: U32,
    users: U32,
}

impl Glibc {
    /// After a wait for a condition variable, the mutex is acquired so.
    pub(crate) fn acquire_as_contended(&self) {
        self.futex.acquire_as_contended();
        self.acquired();
    }

    fn acquired(&self) {
        self.owner.store(1 + Sim::current().unwrap_or(0), Relaxed);
        self.users.store(self.users.load(Relaxed) + 1, Relaxed);
    }
}

impl Lock for Glibc {
    fn lock(&self) {
        self.futex.acquire();
        self.acquired();
    }

    fn unlock(&self) {
        self.owner.store(0, Relaxed);
        self.users.store(self.users.load(Relaxed) - 1, Relaxed);
        self.futex.release();
    }

    fn is_free(&self) -> bool {
        self.futex.0.peek() == FREE && self.users.peek() == 0
    }
}
