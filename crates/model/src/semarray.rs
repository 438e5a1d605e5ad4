//! Semaphore arrays in models.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use poundlock_core::semarray::{Array, Layout, Scheme, Settings as ArraySettings};

use crate::atomic::U32;
use crate::dormant::{self, Memory};
use crate::explore::explore;
use crate::platform::Model;
use crate::world::{Report, Settings, World};

/// Those whose models have ended, to be used again.
static MEMORIES: Mutex<Vec<&'static [U32]>> = Mutex::new(Vec::new());

/// Explores a model ([`explore`]) with a semaphore array.
///
/// # Panics
/// As [`explore`] does.
pub fn explore_array(
    name: &str,
    preemptions: usize,
    settings: Settings,
    semaphores: u32,
    scheme: Scheme,
    body: impl Fn(&World, Array<'static, Model>) + Send + Sync + 'static,
) -> Report {
    let words = memory(Layout::new(semaphores, scheme).words());
    let body = move |world: &World| {
        // SAFETY: they are words, and the execution has just begun.
        unsafe { dormant::add(Memory::Array, words) };
        let array = world.unexplored(|| {
            let settings = ArraySettings { key: 0, uid: 0, gid: 0, cuid: 0, cgid: 0, mode: 0 };
            Array::format(words, semaphores, scheme, &settings).expect("it fits")
        });
        body(world, array);
    };
    let explored = catch_unwind(AssertUnwindSafe(|| explore::<Model>(name, preemptions, settings, body)));
    dormant::forget_array(words);
    MEMORIES.lock().expect("nobody fails with it").push(words);
    explored.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Dormant words, all zero.
fn memory(words: usize) -> &'static [U32] {
    let mut memories = MEMORIES.lock().expect("nobody fails with it");
    match memories.iter().position(|memory| memory.len() == words) {
        Some(at) => memories.swap_remove(at),
        None => (0..words).map(|_| U32::dormant()).collect::<Vec<_>>().leak(),
    }
}
