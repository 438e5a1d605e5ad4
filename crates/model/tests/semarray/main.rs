//! Semaphore arrays on a simulated machine: every crash of every step, and random histories, against a plain
//! model of what System V semaphores do.

mod crash;
mod histories;
mod model;
mod rig;
mod system;
mod take_over;
