//! Running a model.

use std::sync::Arc;
use std::time::Instant;

use poundlock_core::adaptive::RawAdaptive;
use poundlock_core::condvar::RawCondvar;
use poundlock_core::handoff::RawHandoff;
use poundlock_core::node::{Node, Waiter};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::qspin::{Layout, RawSpin};
use poundlock_core::record::{PLACES, QueueNode, Side};
use poundlock_core::rwlock::RawRwLock;

use crate::atomic::{U32, Usize};
use crate::dormant::{self, until_known};
use crate::platform::Modelled;
use crate::world::{Report, Settings, World};

/// Executions after which a bound counts as explored, unless [`VARIABLE`] says otherwise. Each planted bug is
/// found within 300.
const EXECUTIONS: u64 = 500;
/// As many at least where a model checks that it comes to something rare: these are parts of their names.
const RARE: (u64, [&str; 12]) = (
    6_000,
    [
        "a time-out",
        "times out",
        "interrupted before",
        "naps",
        "timed parks",
        "three threads",
        "last of three",
        "no node left",
        "transient",
        "two threads twice",
        "halting: trying",
        "a kicker that is late",
    ],
);
/// Set it to explore further: to a number of executions for each bound of each model.
const VARIABLE: &str = "POUNDLOCK_MODEL_EXECUTIONS";

/// Explores the executions of `body` without a preemption, then those with one, and so on up to
/// `preemptions`; prints how many there were, and whether that was all. (A yield, and falling asleep, are no
/// preemptions.) The body runs in the main thread, number 0, and joins the threads that it starts.
///
/// # Panics
/// If an execution fails: an assertion, a deadlock (a lost wake-up), accesses that nothing orders, a late
/// touch.
pub fn explore<P: Modelled>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    body: impl Fn(&World) + Send + Sync + 'static,
) -> Report {
    run(name, preemptions, settings, P::prepare, Arc::new(body))
}

/// A body whose type is gone, as that of each thread is: what loom has to do with it is compiled once, not for each of
/// hundreds of models.
type Body = Arc<dyn Fn(&World) + Send + Sync>;

fn run(name: &str, preemptions: usize, settings: Settings, prepare: fn(), body: Body) -> Report {
    let limit: u64 = match std::env::var(VARIABLE) {
        Ok(number) => number.parse().unwrap_or_else(|_| panic!("{VARIABLE} is not a number: {number}")),
        Err(_) => EXECUTIONS,
    };
    let limit = if RARE.1.iter().any(|part| name.contains(part)) { limit.max(RARE.0) } else { limit };
    let begun = Instant::now();
    let counts = until_known(|| counts(preemptions, settings, limit, prepare, &body));
    let report = World::report();
    println!("model {name}: {}; {} ms; {report:?}", counts.join(", "), begun.elapsed().as_millis());
    report
}

/// How many executions there were, by the number of preemptions.
fn counts(preemptions: usize, settings: Settings, limit: u64, prepare: fn(), body: &Body) -> Vec<String> {
    World::reset_report();
    let explore_with = |bound| {
        let before = World::report().executions;
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(bound);
        builder.max_branches = 20_000;
        // loom looks at the one only at multiples of the other.
        builder.checkpoint_interval = limit as usize;
        builder.max_permutations = Some(limit as usize);
        let body = body.clone();
        builder.check(move || {
            dormant::begin();
            let world = World::begin(settings);
            prepare();
            body(&world);
            dormant::end();
            world.end();
        });
        let executions = World::report().executions - before;
        let all = if executions + 1 < limit { "all" } else { "the first" };
        format!("{bound} preemptions: {all} {executions}")
    };
    (0..=preemptions).map(explore_with).collect()
}

/// The words that a lock is made of.
///
/// # Safety
/// It is made of nothing else, in this order: `repr(C)`, or `repr(transparent)`.
unsafe fn words<L, const N: usize>(lock: &L) -> &[U32; N] {
    const { assert!(size_of::<L>() == N * size_of::<U32>()) };
    // SAFETY: the caller promises it, and they are as many.
    unsafe { &*core::ptr::from_ref(lock).cast() }
}

/// The words of a mutex with a waiting room, to be watched, or made what a fork left there.
#[derive(Clone, Copy)]
pub struct MutexWords<'a> {
    /// Its own: of an adaptive mutex, how many hold it or came while it was held; of a default one, whether
    /// it is held, who is awake, and whether anybody sleeps.
    pub word: &'a U32,
    /// Wait lock and epoch.
    pub wait_lock: &'a U32,
    /// The owner's tag, or hints about it.
    pub owner: &'a U32,
    /// The spinners' queue.
    pub tail: &'a U32,
    /// The sleepers' list.
    pub head: &'a U32,
}

/// The words of an adaptive mutex.
pub fn adaptive_words<P: Modelled>(mutex: &RawAdaptive<P>) -> MutexWords<'_> {
    // SAFETY: `RawAdaptive` is `repr(C)` and made of five `P::U32`, which is `U32`.
    let [word, wait_lock, owner, tail, head] = unsafe { words(mutex) };
    MutexWords { word, wait_lock, owner, tail, head }
}

/// The words of a default mutex.
pub fn poundlock_words<P: Modelled>(mutex: &RawPoundlock<P>) -> MutexWords<'_> {
    // SAFETY: `RawPoundlock` is `repr(C)` and made of five `P::U32`, which is `U32`.
    let [word, wait_lock, owner, tail, head] = unsafe { words(mutex) };
    MutexWords { word, wait_lock, owner, tail, head }
}

/// The words of a readers-writer lock.
#[derive(Clone, Copy)]
pub struct RwLockWords<'a> {
    /// Who is inside, and who is to be.
    pub word: &'a U32,
    /// Wait lock and epoch.
    pub wait_lock: &'a U32,
    /// The queue's head.
    pub head: &'a U32,
    /// Readers that wait.
    pub readers: &'a U32,
    /// Writers that wait.
    pub writers: &'a U32,
}

/// The words of a readers-writer lock.
pub fn rwlock_words<P: Modelled>(lock: &RawRwLock<P>) -> RwLockWords<'_> {
    // SAFETY: `RawRwLock` is `repr(C)` and made of eight `P::U32`, which is `U32`.
    let [word, wait_lock, _, head, readers, writers, _, _] = unsafe { words(lock) };
    RwLockWords { word, wait_lock, head, readers, writers }
}

/// The words of a condition variable: its lock with the epoch, and its waiters.
pub fn condvar_words<P: Modelled>(condvar: &RawCondvar<P>) -> &[U32; 2] {
    // SAFETY: `RawCondvar` is `repr(C)` and made of two `P::U32`, which is `U32`.
    unsafe { words(condvar) }
}

/// The word of a queue spinlock.
pub fn spin_word<P: Modelled, L: Layout>(lock: &RawSpin<P, L>) -> &U32 {
    // SAFETY: `RawSpin` is `repr(transparent)` over a `P::U32`, which is `U32`.
    let [word] = unsafe { words(lock) };
    word
}

/// The words of a hand-off mutex.
#[derive(Clone, Copy)]
pub struct HandoffWords<'a> {
    /// How many hold it or have set out to.
    pub count: &'a U32,
    /// Its queue: token, epoch, and who was pushed last.
    pub push: &'a U32,
    /// Its queue: the consumer's list.
    pub pop: &'a U32,
    /// The owner's tag.
    pub owner: &'a U32,
    /// What spinning has brought of late.
    pub learnt: &'a U32,
}

/// The words of a hand-off mutex.
pub fn handoff_words<P: Modelled>(mutex: &RawHandoff<P>) -> HandoffWords<'_> {
    // SAFETY: `RawHandoff` is `repr(C)` and made of five `P::U32`, two of them in its queue, which is
    // `repr(C)` too.
    let [count, push, pop, owner, learnt] = unsafe { words(mutex) };
    HandoffWords { count, push, pop, owner, learnt }
}

/// What a waiter's node says.
#[repr(C)]
pub struct WaiterWords {
    _spinners: [U32; 4],
    /// Its state.
    pub state: U32,
    _list: [U32; 3],
    /// In a spare node: the epoch in which it was taken.
    pub epoch: U32,
    _flags: [U32; 3],
    /// In a spare node: the address of the lock for which it was taken.
    pub lock: Usize,
    _kicked: Usize,
}

/// The words of a waiter's node.
pub fn waiter_words<P: Modelled<Usize = Usize>>(waiter: Waiter) -> &'static WaiterWords {
    const {
        // But for the alignment.
        assert!(size_of::<Node<P>>() >= size_of::<WaiterWords>());
        assert!(size_of::<Node<P>>() - size_of::<WaiterWords>() < align_of::<Node<P>>());
    }
    let node = core::ptr::from_ref::<Node<P>>(waiter.get::<P>());
    // SAFETY: `Node` is `repr(C)`, and its fields are of these types in this order.
    unsafe { &*node.cast::<WaiterWords>() }
}

/// What a node of a queue of spinners that may leave says.
#[repr(C, align(64))]
pub struct QueueWords {
    /// For which mutex it is used, and as what.
    pub place: Usize,
    /// The node behind.
    pub next: U32,
    /// The node in front when its thread joined.
    pub prev: U32,
    /// Where its thread was last seen to run.
    pub tag: U32,
    /// The epoch in which it was last used.
    pub epoch: U32,
    /// How many owners there were since the last that was a head.
    pub grants: U32,
    /// Since when it goes along the queue.
    pub since: Usize,
    /// How many owners the batch had before this one.
    pub turns: U32,
    /// The side in whose queue it is.
    pub side: U32,
}

/// The words of a thread's queue nodes.
pub fn queue_words<P: Modelled<Usize = Usize>>(thread: u32) -> [&'static QueueWords; PLACES as usize] {
    P::record(thread).queue_nodes().each_ref().map(|node| {
        const { assert!(size_of::<QueueNode<P>>() == size_of::<QueueWords>()) };
        // SAFETY: `QueueNode` is `repr(C)`, and its fields are of these types in this order.
        unsafe { &*core::ptr::from_ref::<QueueNode<P>>(node).cast::<QueueWords>() }
    })
}

/// What a side says.
#[repr(C, align(64))]
pub struct SideWords {
    /// Its place in the mutex's queue.
    pub node: QueueWords,
    /// The last of its queue, and the mutex.
    pub tail: Usize,
}

/// The words of a side.
pub fn side_words<P: Modelled<Usize = Usize>>(side: usize) -> &'static SideWords {
    const { assert!(size_of::<Side<P>>() >= size_of::<SideWords>()) };
    // SAFETY: `Side` is `repr(C)`, and its first fields are of these types in this order.
    unsafe { &*core::ptr::from_ref::<Side<P>>(&P::sides()[side]).cast::<SideWords>() }
}
