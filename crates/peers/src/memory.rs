//! Memory for a lock and for a thread's node.

use std::alloc::{self, Layout};
use std::ffi::c_void;
use std::ptr::NonNull;

use crate::Calls;

/// Two cache lines: adjacent-line prefetching fetches them together.
const APART: usize = 128;

/// Zeroed memory that shares no cache line with anything else.
#[derive(Debug)]
struct Zeroed {
    memory: NonNull<u8>,
    layout: Layout,
}

impl Zeroed {
    fn new(size: usize, align: usize) -> Zeroed {
        let layout = Layout::from_size_align(size.max(1), align.max(APART))
            .expect("a lock is small, and its alignment a power of two")
            .pad_to_align();
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        match NonNull::new(memory) {
            Some(memory) => Zeroed { memory, layout },
            None => alloc::handle_alloc_error(layout),
        }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { alloc::dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// A lock in cache lines of its own. Dropping it destroys the lock: nobody may hold it or wait for it then.
#[derive(Debug)]
pub struct Instance {
    memory: Zeroed,
    destroy: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: a lock is there to be used by any thread; what is done with the pointer is the caller's to answer
// for.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl Instance {
    /// An unlocked lock.
    pub fn new(calls: &Calls) -> Instance {
        let memory = Zeroed::new(calls.size, calls.align);
        // SAFETY: zeroed memory of the lock's size and alignment.
        unsafe { (calls.init)(memory.memory.as_ptr().cast()) };
        Instance { memory, destroy: calls.destroy }
    }

    /// What the functions are to be given.
    pub fn as_ptr(&self) -> *mut c_void {
        self.memory.memory.as_ptr().cast()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the lock was initialised, and whoever drops it knows that nobody uses it.
        unsafe { (self.destroy)(self.as_ptr()) };
    }
}

/// A thread's node, in cache lines of its own. It may be dropped once its thread has unlocked.
#[derive(Debug)]
pub struct Node {
    memory: Option<Zeroed>,
}

// SAFETY: a node may be used by one thread after the other; what is done with the pointer is the caller's to
// answer for.
unsafe impl Send for Node {}

impl Node {
    /// A node for one thread at a time.
    pub fn new(calls: &Calls) -> Node {
        Node { memory: (calls.node != 0).then(|| Zeroed::new(calls.node, 64)) }
    }

    /// What the functions are to be given; null if they want none.
    pub fn as_ptr(&self) -> *mut c_void {
        self.memory.as_ref().map_or(std::ptr::null_mut(), |zeroed| zeroed.memory.as_ptr().cast())
    }
}
