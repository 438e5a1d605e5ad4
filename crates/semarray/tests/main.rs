//! Semaphore arrays on Linux, as programs use them.

mod calls;
mod children;
mod domain;
mod memory;
mod processes;
