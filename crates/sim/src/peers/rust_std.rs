//! The mutex of Rust's standard library on Linux (Rust 1.62 and later,
//! `library/std/src/sys/sync/mutex/futex.rs`): three states in a futex, and up to a hundred looks before each
//! sleep, as long as no other thread sleeps.
//!
//! Left out: poisoning, which a release without panics pays a load for.

use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform, Until};

use super::nodes::look;
use crate::atomic::U32;
use crate::locks::Lock;
use crate::platform::Sim;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep for it.
const CONTENDED: u32 = 2;

/// How often a thread looks before it sleeps.
const LOOKS: u32 = 100;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct RustStd(U32);

impl RustStd {
    #[cold]
    fn contend(&self) {
        let mut seen = look(&self.0, HELD, LOOKS);
        if seen == FREE {
            match self.0.compare_exchange(FREE, HELD, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        loop {
            if seen != CONTENDED && self.0.swap(CONTENDED, Relaxed) == FREE {
                return;
            }
            Sim::wait(&self.0, CONTENDED, Until::Woken);
            seen = look(&self.0, HELD, LOOKS);
        }
    }
}

impl Lock for RustStd {
    fn lock(&self) {
        if self.0.compare_exchange(FREE, HELD, Relaxed, Relaxed).is_err() {
            self.contend();
        }
    }

    fn unlock(&self) {
        if self.0.swap(FREE, Relaxed) == CONTENDED {
            Sim::wake(&self.0, 1);
        }
    }

    fn is_free(&self) -> bool {
        self.0.peek() == FREE
    }
}
