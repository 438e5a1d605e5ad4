//! The loom platform and, in `tests/models`, the models of every slow path.
//!
//! The locks of `poundlock-core` are generic over [`Platform`](poundlock_core::Platform); [`Model`] is one
//! under [loom](https://docs.rs/loom), which runs a body of code once for each order in which its threads can
//! come and for each value that the memory model lets a load return. So what runs here is the shipped source,
//! line for line, and needs no `--cfg loom`: the models are ordinary tests.
//!
//! # What fails a model
//!
//! * **A lost wake-up**: sleepers really sleep ([`World`] is the kernel), so loom reports a deadlock.
//! * **Broken exclusion, or a missing happens-before**: what a lock protects is a loom `UnsafeCell`, and two
//!   accesses that nothing orders fail the model even where they did not overlap in that execution.
//! * **A late touch**: a [`Mortal`] lock is destroyed by its next owner, and any access to it that is not
//!   ordered before the destruction fails the model.
//! * **Something left behind**: the models look at the end whether the lock is idle.
//!
//! Where a path needs more preemptions than a model can explore, the threads are first brought to where it
//! begins, unexplored, if need be by a script that stops a thread between two of its accesses to a word.
//! Signal handlers that lock run where their thread waits.
//!
//! Deadlines pass when a thread says so, hence at any moment; the same holds for signal handlers and
//! cancellation. Tunings are small and spin budgets a turn or none, so that rare paths run. [`Report`] counts
//! what was reached, and the models assert that it was. Bugs are planted through the platform ([`Fault`]): a
//! model that does not find its own is none.
//!
//! # What loom cannot show
//!
//! * It explores executions with a bounded number of preemptions: `explore` goes from none upwards, and stops
//!   at a number of executions for each bound, printing whether that was all of them. Set
//!   `POUNDLOCK_MODEL_EXECUTIONS` to explore further.
//! * Of two threads' accesses to a cell it remembers the last one, whoever's it was: where a thread reads a
//!   cell between another's read and its own store, it may miss that the store could have come first. The
//!   models therefore run both sides first where that matters.
//! * Sequentially consistent accesses count as acquire and release. The one place where that is too little,
//!   cancellation, uses read-modify-writes.
//! * No load reads a value that is stored later in the execution (load buffering), and here the stores to one
//!   cell are ordered as they were executed. An execution of hardware in which two unordered stores to a cell
//!   take effect the other way round is covered only if loom also executes them the other way round.
//! * A wake-up orders what came before it before the return from the wait, as a kernel's locks do in effect.
//!   The locks do not rely on that; settings with [`Settings::restless`] threads show it where the wait
//!   returns without one.
//! * After a turn of spinning another thread takes a step, if one can. Budgets of no turns cover the rest.
//! * The plain release of a mutex ([`Platform::release`](poundlock_core::Platform::release)) is a restartable
//!   sequence here; that the Linux platform's is one is for its own tests.
//! * A lock word of several fields is one cell here, and each narrow access one read-modify-write of it with
//!   the ordering that was asked for, which is what the portable form promises. That the processor's narrow
//!   accesses mean the same is for the Linux platform's tests.
//! * A wait for so many nanoseconds ([`Until::Nanoseconds`](poundlock_core::platform::Until)) ends at once: a
//!   model shows that nothing relies on the kick that may be lost, not how long the look takes to come.
//! * All locks share the one line of the lock hash, so entries are skipped, but never a line.
//! * Records of threads and semaphore arrays have very many words, and loom is told of those only that some
//!   execution uses: `explore` begins anew when it finds another. In an array time passes for its sleepers
//!   when a thread says so, and a process is killed between two of its accesses.
//! * At most five threads, a few operations each: nothing about starvation in the long run or about time.

mod atomic;
mod dormant;
mod explore;
mod platform;
mod semarray;
mod stacks;
mod world;

pub use atomic::{Operation, U32, Usize};
pub use explore::{
    HandoffWords, MutexWords, QueueWords, RwLockWords, SideWords, WaiterWords, adaptive_words, condvar_words,
    explore, handoff_words, poundlock_words, queue_words, rwlock_words, side_words, spin_word, waiter_words,
};
pub use platform::{Model, Modelled, Patient, Turns};
pub use semarray::explore_array;
pub use world::{Events, Fault, Mortal, Report, Settings, THREADS, World};
