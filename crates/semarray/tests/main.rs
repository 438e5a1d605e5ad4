//! Semaphore arrays on Linux, as programs use them.

mod calls;
mod domain;
mod memory;
mod processes;
