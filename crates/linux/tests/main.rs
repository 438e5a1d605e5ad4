//! Locks and semaphore arrays on Linux.

mod handoff;
mod refused;
mod registry;
mod sem;
mod sem_calls;
mod sem_memory;
mod sem_processes;
