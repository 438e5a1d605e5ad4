//! Running a model.

use std::time::Instant;

use poundlock_core::condvar::RawCondvar;
use poundlock_core::mutex::RawMutex;

use crate::atomic::U32;
use crate::platform::Modelled;
use crate::world::{Report, Settings, World};

/// Explores every execution of `body`, or those with at most so many preemptions, and tells how many there
/// were. The body runs in the main thread, number 0, and joins the threads that it starts.
///
/// # Panics
/// If an execution fails: an assertion, a deadlock (a lost wake-up), accesses that nothing orders, a late
/// touch.
pub fn explore<P: Modelled>(
    name: &str,
    preemptions: Option<usize>,
    settings: Settings,
    body: impl Fn(&World) + Send + Sync + 'static,
) -> Report {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    World::reset_report();
    let begun = Instant::now();
    builder.check(move || {
        let world = World::begin(settings);
        P::prepare();
        body(&world);
        world.end();
    });
    let report = World::report();
    println!("model {name}: {} ms, {report:?}", begun.elapsed().as_millis());
    report
}

/// The words of a lock, to be watched, or made what a fork left there.
#[derive(Clone, Copy)]
pub struct MutexWords<'a> {
    /// How many hold it or came while it was held.
    pub count: &'a U32,
    /// Wait lock and epoch.
    pub guard: &'a U32,
    /// The owner's tag.
    pub owner: &'a U32,
    /// The spinners' queue.
    pub tail: &'a U32,
    /// The sleepers' list.
    pub head: &'a U32,
}

/// The words of a mutex.
pub fn mutex_words<P: Modelled>(mutex: &RawMutex<P>) -> MutexWords<'_> {
    const { assert!(size_of::<RawMutex<P>>() == 5 * size_of::<U32>()) };
    // SAFETY: `RawMutex` is `repr(C)` and made of five `P::U32`, which is `U32`; see the assertion.
    let [count, guard, owner, tail, head] = unsafe { &*core::ptr::from_ref(mutex).cast::<[U32; 5]>() };
    MutexWords { count, guard, owner, tail, head }
}

/// The words of a condition variable: its lock, its waiters, and when they were last used.
pub fn condvar_words<P: Modelled>(condvar: &RawCondvar<P>) -> &[U32; 3] {
    const { assert!(size_of::<RawCondvar<P>>() == 3 * size_of::<U32>()) };
    // SAFETY: `RawCondvar` is `repr(C)` and made of three `P::U32`, which is `U32`; see the assertion.
    unsafe { &*core::ptr::from_ref(condvar).cast::<[U32; 3]>() }
}
