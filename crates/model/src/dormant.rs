//! Memory of far more words than an execution uses: of records of threads, sides, and semaphore arrays.
//!
//! It takes loom longer to be told of all of them than to run an execution. So the words are dormant at
//! first. Those that an execution turns out to use are noted, and the exploration begins anew with these as
//! cells of loom's, until no execution uses any other.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use crate::atomic::U32;

/// What words are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Memory {
    /// Records of threads: they are alike in all models.
    Records,
    /// The lock hash.
    Hash,
    /// Sides: alike, too.
    Sides,
    /// The table of readers.
    Readers,
    /// The model's semaphore array.
    Array,
}

/// An execution used words of which loom was not told.
struct Discovered;

std::thread_local! {
    static MAKING: Cell<bool> = const { Cell::new(false) };
    /// Where the execution's memories begin and end.
    static PLACES: RefCell<Vec<(Memory, usize, usize)>> = const { RefCell::new(Vec::new()) };
    /// Dormant words that the execution has used, by address.
    static DISCOVERED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// Words that models on this thread are known to use: how many bytes behind the memory's beginning.
    static KNOWN: RefCell<BTreeSet<(Memory, usize)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Whether the words that are made now are to be dormant.
pub(crate) fn is_making() -> bool {
    MAKING.get()
}

/// Has `make` make words that are dormant.
pub(crate) fn making<R>(make: impl FnOnce() -> R) -> R {
    MAKING.set(true);
    let made = make();
    MAKING.set(false);
    made
}

/// An execution begins, which has no memory yet.
pub(crate) fn begin() {
    PLACES.with_borrow_mut(Vec::clear);
}

/// The execution has this memory: those of its words wake up that are known to be used.
///
/// # Safety
/// It is made of [`U32`] and [`Usize`](crate::atomic::Usize), but for padding, and nobody uses it so far.
pub(crate) unsafe fn add<T>(memory: Memory, place: &'static [T]) {
    let range = place.as_ptr_range();
    PLACES.with_borrow_mut(|places| places.push((memory, range.start.addr(), range.end.addr())));
    KNOWN.with_borrow(|known| {
        for (_, at) in known.range((memory, 0)..=(memory, usize::MAX)) {
            if *at < size_of_val(place) {
                // SAFETY: the caller's; a word was used there, so there is one.
                unsafe { (*place.as_ptr().byte_add(*at).cast::<U32>()).wake_up(true) };
            }
        }
    });
}

/// A dormant word is used: the model begins anew with one that loom knows. Until then threads see what was
/// stored last, and may go round for ever without loom's knowledge: an execution that goes on for long ends
/// here.
pub(crate) fn discover(address: usize) -> bool {
    const LONG: usize = 10_000;
    let uses = DISCOVERED.with_borrow_mut(|discovered| {
        discovered.push(address);
        discovered.len()
    });
    if uses > LONG {
        resume_unwind(Box::new(Discovered));
    }
    true
}

/// The execution is over, and of no use if it has used dormant words.
pub(crate) fn end() {
    if note() {
        resume_unwind(Box::new(Discovered));
    }
}

/// Notes the words that were used; returns whether there are new ones.
fn note() -> bool {
    let found = DISCOVERED.take();
    PLACES.with_borrow(|places| {
        KNOWN.with_borrow_mut(|known| {
            for address in &found {
                let of = places.iter().find(|(_, begin, end)| (begin..end).contains(&address));
                let (memory, begin, _) = of.expect("dormant words are in a memory");
                known.insert((*memory, address - begin));
            }
        });
    });
    !found.is_empty()
}

/// Explores, and anew until no execution uses words of which loom was not told.
pub(crate) fn until_known<R>(explore: impl Fn() -> R) -> R {
    be_quiet_about_discoveries();
    loop {
        let explored = catch_unwind(AssertUnwindSafe(&explore));
        let more = note();
        match explored {
            Ok(report) => return report,
            Err(panic) if more || panic.is::<Discovered>() => {}
            Err(panic) => resume_unwind(panic as Box<dyn Any + Send>),
        }
    }
}

/// The array's words are to be dormant again.
pub(crate) fn forget_array(words: &'static [U32]) {
    KNOWN.with_borrow_mut(|known| {
        known.retain(|(memory, at)| {
            if *memory == Memory::Array {
                // SAFETY: the executions are over.
                unsafe { words[at / size_of::<U32>()].wake_up(false) };
            }
            *memory != Memory::Array
        });
    });
}

/// An execution that is of no use may fail in any way: nothing is printed about that.
fn be_quiet_about_discoveries() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if DISCOVERED.with_borrow(Vec::is_empty) {
                usual(info);
            }
        }));
    });
}
