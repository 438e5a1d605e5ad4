//! The sleeping lock that a kernel of 2015 protects a tree of anonymous memory with: Linux's readers-writer
//! semaphore, its writers.
//!
//! A workload's object, not a lock of ours. A word says whether it is held and whether a thread sleeps.
//! Around it are a queue of spinners, one of which competes for it while its owner runs, and a list of
//! sleepers, under a spinlock. That spinlock is the simulated one. A thread that has given up spinning takes
//! it, again after each wake-up, and so does every release while a thread sleeps, to wake the first. Most of
//! the spinning that the queue spinlock's series found was there.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use poundlock_core::mcs;
use poundlock_core::node::Held;
use poundlock_core::platform::{Atomic, Platform, Running, Spin, Until};

use crate::atomic::U32;
use crate::engine::Engine;
use crate::locks::Lock;
use crate::machine::Picoseconds;
use crate::platform::{Budget, Sim};
use crate::{Alone, atomically, used};

/// It is held.
const HELD: u32 = 1;
/// A thread is in the list.
const WAITING: u32 = 2;

#[derive(Default)]
struct Words {
    count: U32,
    /// The tag of the thread that holds it.
    owner: U32,
    /// The tail of the queue of spinners.
    spinners: U32,
}

/// See the module's documentation.
pub(super) struct Semaphore {
    words: Alone<Words>,
    guard: Box<dyn Lock>,
    /// What each thread sleeps for.
    told: Box<[Alone<U32>]>,
    /// The sleepers, in order.
    sleepers: RefCell<VecDeque<usize>>,
    /// The line of the list's head.
    list: Alone<U32>,
    /// CPU time that went into waiting for the list's spinlock.
    pub(super) spinning: Cell<Picoseconds>,
}

impl Semaphore {
    /// For at most that many threads.
    pub(super) fn new(guard: Box<dyn Lock>, threads: u32) -> Semaphore {
        Semaphore {
            words: Alone::default(),
            guard,
            told: (0..threads).map(|_| Alone::default()).collect(),
            sleepers: RefCell::default(),
            list: Alone::default(),
            spinning: Cell::new(0),
        }
    }

    pub(super) fn write(&self) {
        if !self.take() && !self.spin() {
            self.sleep();
        }
        self.words.0.owner.store(Sim::tag(), Relaxed);
    }

    pub(super) fn done_writing(&self) {
        self.words.0.owner.store(0, Relaxed);
        if self.words.0.count.fetch_and(!HELD, Release) & WAITING == 0 {
            return;
        }
        self.under_guard(|| {
            self.list.0.load(Relaxed);
            let first = self.sleepers.borrow().front().copied();
            if let Some(first) = first {
                let word = &self.told[first].0;
                word.store(1, Release);
                Sim::wake(word, 1);
            }
        });
    }

    /// Takes it if it is free.
    fn take(&self) -> bool {
        let count = &self.words.0.count;
        let seen = count.load(Relaxed);
        seen & HELD == 0 && count.compare_exchange(seen, seen | HELD, Acquire, Relaxed).is_ok()
    }

    fn owner_runs(&self) -> bool {
        let owner = self.words.0.owner.load(Relaxed);
        // Without an owner: one has just left, or has just come.
        owner == 0 || Sim::running(owner) == Running::Yes
    }

    /// Watches the owner until it has gone. False if it stops running, or another owner has come: then many
    /// threads want it, and it is time to sleep.
    fn stays(&self, budget: &mut Budget) -> bool {
        let owner = &self.words.0.owner;
        let first = owner.load(Relaxed);
        let mut now = first;
        while now != 0 && now == first {
            if Sim::running(now) != Running::Yes || !budget.spin() {
                return false;
            }
            now = owner.load(Relaxed);
        }
        now == 0
    }

    /// Spins while the owner runs. True if it was acquired.
    fn spin(&self) -> bool {
        if !self.owner_runs() {
            return false;
        }
        let Some(held) = Held::<Sim>::take() else { return false };
        let mut budget = Budget::fresh();
        if !mcs::join::<Sim>(&self.words.0.spinners, held.id, &mut budget) {
            return false;
        }
        let taken = loop {
            if !self.stays(&mut budget) {
                break false;
            }
            if self.take() {
                break true;
            }
            if !budget.spin() {
                break false;
            }
        };
        mcs::leave::<Sim>(&self.words.0.spinners, held.id);
        taken
    }

    fn sleep(&self) {
        let count = &self.words.0.count;
        let id = Engine::with(Engine::current) as usize;
        let own = &self.told[id].0;
        self.under_guard(|| {
            self.list.0.store(1, Relaxed);
            self.sleepers.borrow_mut().push_back(id);
            count.fetch_or(WAITING, Relaxed);
        });
        loop {
            // A thread in the list looks before it sleeps.
            if count.load(Relaxed) & HELD == 0 {
                let taken = self.under_guard(|| {
                    if !self.take() {
                        return false;
                    }
                    self.list.0.store(1, Relaxed);
                    let mut sleepers = self.sleepers.borrow_mut();
                    sleepers.retain(|&other| other != id);
                    if sleepers.is_empty() {
                        drop(sleepers);
                        count.fetch_and(!WAITING, Relaxed);
                    }
                    true
                });
                if taken {
                    return;
                }
            }
            if own.swap(0, Acquire) == 0 && count.load(Relaxed) & HELD != 0 {
                Sim::wait(own, 0, Until::Woken);
            }
        }
    }

    fn under_guard<R>(&self, body: impl FnOnce() -> R) -> R {
        let before = used();
        atomically(|| self.guard.lock());
        self.spinning.set(self.spinning.get() + used() - before);
        let result = body();
        atomically(|| self.guard.unlock());
        result
    }
}
