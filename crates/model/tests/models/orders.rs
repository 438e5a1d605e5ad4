//! Orderings of code that is no lock's, and not generic: the accesses of two threads as they are there, with
//! the orderings that they have, and with those that were right on x86-64 alone. docs/AARCH64.md lists them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use loom::thread;

/// Explores two threads on three words, all 0; the second tells whether what it saw is possible. Whether it
/// always was.
fn always(
    first: impl Fn(&[AtomicUsize; 3]) + Send + Sync + Copy + 'static,
    second: impl Fn(&[AtomicUsize; 3]) -> bool + Send + Sync + Copy + 'static,
) -> bool {
    let explore = || {
        loom::model(move || {
            let words = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)]);
            let its = Arc::clone(&words);
            let other = thread::spawn(move || first(&its));
            assert!(second(&words));
            other.join().expect("it does not panic");
        });
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let right = catch_unwind(AssertUnwindSafe(explore)).is_ok();
    std::panic::set_hook(hook);
    right
}

/// A word is written, and then another that says so: `preload`'s marks of condition variables, and what its
/// functions jump by. The order of the second, and that of its look.
fn published(store: Ordering, load: Ordering) -> bool {
    always(
        move |[what, mark, _]| {
            what.store(1, Relaxed);
            mark.store(1, store);
        },
        move |[what, mark, _]| mark.load(load) == 0 || what.load(Relaxed) == 1,
    )
}

/// One wait ends and the next begins, as `statfile` shows them; the order of the tag. Somebody looks at the
/// beginning, the tag, and the beginning again.
fn shown(tag_order: Ordering) -> bool {
    always(
        move |[began, tag, _]| {
            tag.store(10, tag_order);
            began.store(1, Release);
            began.store(0, Relaxed);
            tag.store(20, tag_order);
            began.store(2, Release);
        },
        |[began, tag, _]| {
            let first = began.load(Acquire);
            let seen = tag.load(Acquire);
            first == 0 || began.load(Acquire) != first || seen == 10 * first
        },
    )
}

#[test]
fn what_a_mark_stands_for_is_there() {
    assert!(published(Release, Acquire));
    for (store, load) in [(Relaxed, Acquire), (Release, Relaxed), (Relaxed, Relaxed)] {
        assert!(!published(store, load), "{store:?} {load:?} was not found");
    }
}

#[test]
fn a_wait_is_shown_with_its_own_tag() {
    assert!(shown(Release));
    assert!(!shown(Relaxed), "the next wait's tag was not seen with the last beginning");
}
