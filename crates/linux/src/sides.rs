//! Places in queues that threads of one memory node share: [`poundlock_core::queue`].
//!
//! On a machine with several nodes, as many for each, 12 KiB a node, mapped when the first thread queues up
//! for a mutex, and for good: a module that is unloaded leaves them. A page has sides of one node, and is
//! that node's memory where the kernel places it by its first use. A forked child, in which the parent's
//! waiters do not exist, finds them as new; where the kernel cannot do that, there are none.

use poundlock_core::record::Side;

use crate::memory::Table;
use crate::node;
use crate::platform::Linux;

/// Mutexes that are contended at the same time use different ones, more often than not.
const A_NODE: usize = 64;

static TABLE: Table<Side<Linux>> = Table::new();

/// See [`poundlock_core::Platform::sides`]. Async-signal-safe.
pub(crate) fn all() -> &'static [Side<Linux>] {
    let nodes = node::nodes() as usize;
    if nodes == 1 {
        return &[];
    }
    // SAFETY: zero bytes are a side that is not used, and the length is always the same.
    unsafe { TABLE.get(nodes * A_NODE) }.unwrap_or(&[])
}
