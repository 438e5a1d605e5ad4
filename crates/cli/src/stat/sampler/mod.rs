//! What the threads of a running program do, looked at from outside every few milliseconds.

mod outcome;

pub(crate) use outcome::{
    Estimate, Graph, Hidden, Holder, Inside, Outcome, Place, Process, Sleep, Threads, Times, WaitedLock,
};
