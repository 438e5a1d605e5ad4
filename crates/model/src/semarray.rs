//! Memory for semaphore arrays: far more words than an execution uses, of which loom is told as few as possible.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, Once};

use poundlock_core::semarray::{Array, Layout, Scheme, Settings as ArraySettings};

use crate::atomic::U32;
use crate::explore::explore;
use crate::platform::Model;
use crate::world::{Report, Settings, World};

/// Those whose models have ended, to be used again.
static MEMORIES: Mutex<Vec<&'static [U32]>> = Mutex::new(Vec::new());

std::thread_local! {
    /// Words that the model on this thread is known to use.
    static KNOWN: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
}

/// An execution used words of which loom was not told.
struct Discovered;

/// Explores a model ([`explore`]) with a semaphore array.
///
/// loom would need minutes to be told of each of the array's words in each execution. So the words are dormant at first;
/// those that an execution turns out to use are noted, and the exploration begins anew with these as cells of loom's,
/// until no execution uses any other.
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
    be_quiet_about_discoveries();
    let layout = Layout::new(semaphores, scheme);
    let words = memory(layout.words());
    let body = Arc::new(body);
    let report = loop {
        let body = body.clone();
        let explored = catch_unwind(AssertUnwindSafe(|| {
            explore::<Model>(name, preemptions, settings, move |world| {
                KNOWN.with_borrow(|known| {
                    for at in known {
                        // SAFETY: the execution has just begun.
                        unsafe { words[*at].wake_up(true) };
                    }
                });
                let array = world.unexplored(|| {
                    let settings = ArraySettings { key: 0, uid: 0, gid: 0, cuid: 0, cgid: 0, mode: 0 };
                    Array::format(words, semaphores, scheme, &settings).expect("it fits")
                });
                body(world, array);
                if note(words) {
                    resume_unwind(Box::new(Discovered));
                }
            })
        }));
        let more = note(words);
        KNOWN.with_borrow(|known| {
            for at in known {
                // SAFETY: the executions are over.
                unsafe { words[*at].wake_up(false) };
            }
        });
        match explored {
            Ok(report) => break Ok(report),
            Err(panic) if more || panic.is::<Discovered>() => {}
            Err(panic) => break Err(panic),
        }
    };
    KNOWN.with_borrow_mut(BTreeSet::clear);
    MEMORIES.lock().expect("nobody fails with it").push(words);
    report.unwrap_or_else(|panic: Box<dyn Any + Send>| resume_unwind(panic))
}

/// An execution that is of no use may fail in any way: nothing is printed about that.
fn be_quiet_about_discoveries() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !World::has_discovered() {
                usual(info);
            }
        }));
    });
}

/// Notes the words that were used; returns whether there are new ones.
fn note(words: &[U32]) -> bool {
    let found = World::last_discoveries();
    KNOWN.with_borrow_mut(|known| {
        for address in &found {
            let at = address.wrapping_sub(words.as_ptr().addr()) / size_of::<U32>();
            known.insert(at);
            // SAFETY: the execution is over, or was of no use. It is zero again.
            unsafe { words[at].wake_up(false) };
        }
    });
    !found.is_empty()
}

/// Dormant words, all zero.
fn memory(words: usize) -> &'static [U32] {
    let mut memories = MEMORIES.lock().expect("nobody fails with it");
    match memories.iter().position(|memory| memory.len() == words) {
        Some(at) => memories.swap_remove(at),
        None => (0..words).map(|_| U32::dormant()).collect::<Vec<_>>().leak(),
    }
}
