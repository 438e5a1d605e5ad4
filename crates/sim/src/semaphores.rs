//! What `core`'s semaphore arrays ask of the simulated machine ([`Host`]), and memory for them.
//!
//! There is one process, which never dies, and there are no signals. Who sleeps in an array sleeps on a name of its own
//! of the word that it shares with up to 31 others, so that those are woken who are meant.
//!
//! In a kernel ([`Evidence::Exact`]) whoever lets sleepers proceed wakes all of them, as Linux does. In user space they wake
//! each other by CPU, as on Linux.

use core::sync::atomic::Ordering::Relaxed;
use std::cell::RefCell;

use poundlock_core::platform::{Atomic, Platform, Waited};
use poundlock_core::semarray::{Array, Host, Layout, Process, Scheme, Settings};

use crate::atomic::U32;
use crate::engine::Engine;
use crate::machine::NANOSECOND;
use crate::platform::{Evidence, Sim, evidence};

/// The wall clock when a run begins, in seconds.
const BEGINNING: u64 = 1_000_000_000;

/// What a thread sleeps on that sleeps on a word as one bit of it. No address is as high.
fn name(word: usize, bit: u32) -> usize {
    1 << (usize::BITS - 1) | word << u32::BITS.trailing_zeros() | bit as usize
}

fn wait(word: &U32, name: usize, expected: u32, nanoseconds: u64) -> Waited {
    Engine::with(|engine| {
        let until = (nanoseconds != u64::MAX)
            .then(|| engine.now().saturating_add(nanoseconds.saturating_mul(NANOSECOND)));
        engine.wait(name, || word.peek() == expected, until)
    })
}

impl Host for Sim {
    type Platform = Self;

    fn wait_shared(word: &U32, expected: u32, nanoseconds: u64) -> Waited {
        wait(word, core::ptr::from_ref(word).addr(), expected, nanoseconds)
    }

    fn wake_shared(word: *const U32, count: u32) {
        Sim::wake(word, count);
    }

    fn wait_shared_as(word: &U32, expected: u32, bit: u32, nanoseconds: u64) -> Waited {
        let name = name(core::ptr::from_ref(word).addr(), bit.trailing_zeros());
        match evidence() {
            Evidence::Displaced => wait(word, name, expected, nanoseconds),
            // The lock of a kernel's array is a spinlock, and whoever sleeps in the array does not hold it.
            Evidence::Exact => {
                Engine::with(|engine| engine.set_atomic(false));
                let waited = wait(word, name, expected, nanoseconds);
                Engine::with(|engine| engine.set_atomic(true));
                waited
            }
        }
    }

    fn wake_shared_as(word: *const U32, bits: u32) {
        let name = |bit| name(word.addr(), bit);
        let mut bits = (0..u32::BITS).filter(|bit| bits >> bit & 1 != 0);
        Engine::with(|engine| {
            if let Some(first) = bits.next() {
                engine.wake(name(first), u32::MAX);
            }
            // It is one call.
            engine.keep();
            bits.for_each(|bit| engine.wake(name(bit), u32::MAX));
            engine.unkeep();
        });
    }

    fn interrupts() -> bool {
        true
    }

    fn place() -> u32 {
        match evidence() {
            Evidence::Displaced => Sim::tag(),
            Evidence::Exact => 0,
        }
    }

    fn process() -> Option<Process> {
        Some(Process { slot: 0, id: 1 })
    }

    fn gone(_slot: u32) -> bool {
        false
    }

    fn seconds() -> u64 {
        BEGINNING + Sim::now() / 1_000_000_000
    }

    fn provide(_memory: &[U32]) -> bool {
        true
    }
}

/// Memory of an array. It is not given back, but used again: threads that the clock stopped may have views of it for ever.
pub(crate) struct Memory {
    words: &'static [U32],
    semaphores: u32,
    scheme: Scheme,
}

std::thread_local! {
    /// What no array is in.
    static SPARE: RefCell<Vec<&'static [U32]>> = const { RefCell::new(Vec::new()) };
}

impl Memory {
    /// For an array of so many semaphores.
    pub(crate) fn of(semaphores: u32, scheme: Scheme) -> Memory {
        /// Which words share a line is the same in each run.
        const ALIGNMENT: usize = 128;
        let length = Layout::new(semaphores, scheme).words();
        let spare = SPARE.with_borrow_mut(|spare| {
            let at = spare.iter().position(|words| words.len() >= length)?;
            Some(spare.swap_remove(at))
        });
        let words = spare.unwrap_or_else(|| {
            let words: Vec<U32> =
                (0..length + ALIGNMENT / size_of::<U32>()).map(|_| U32::default()).collect();
            let words: &'static [U32] = words.leak();
            &words[words.as_ptr().align_offset(ALIGNMENT)..][..length]
        });
        Memory { words, semaphores, scheme }
    }

    /// A new array.
    ///
    /// # Panics
    /// If an array cannot have so many semaphores.
    pub(crate) fn array(&self) -> Array<'static, Sim> {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        let nobody = Settings { key: 0, uid: 0, gid: 0, cuid: 0, cgid: 0, mode: 0o600 };
        match Array::format(self.words, self.semaphores, self.scheme, &nobody) {
            Some(array) => array,
            None => panic!("an array cannot have {} semaphores", self.semaphores),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        SPARE.with_borrow_mut(|spare| spare.push(self.words));
    }
}
