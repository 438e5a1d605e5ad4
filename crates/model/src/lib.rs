//! The loom platform and the models of every slow path.

mod atomic;
mod explore;
mod platform;
mod world;

pub use atomic::{Operation, U32, Usize};
pub use explore::{MutexWords, condvar_words, explore, mutex_words};
pub use platform::{Model, Modelled, Patient, Turns};
pub use world::{Fault, Mortal, Report, Settings, THREADS, World};
