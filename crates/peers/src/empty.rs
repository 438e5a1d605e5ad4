//! Functions that do nothing.

use std::ffi::c_void;

use crate::{Calls, EMPTY, Entry, rw};

unsafe extern "C" fn nothing(_lock: *mut c_void) {}

unsafe extern "C" fn nothing_with_node(_lock: *mut c_void, _node: *mut c_void) {}

const CALLS: Calls = Calls {
    size: 4,
    align: 4,
    node: 0,
    init: nothing,
    lock: nothing_with_node,
    unlock: nothing_with_node,
    destroy: nothing,
};

fn entry_of<C: Copy + 'static>(calls: C) -> Entry<C> {
    Entry::new(EMPTY, "functions that do nothing: what the driver itself costs", move || {
        Ok(("this benchmark".to_owned(), calls))
    })
}

pub(crate) fn entry() -> Entry {
    entry_of(CALLS)
}

pub(crate) fn rw_entry() -> Entry<rw::Calls> {
    entry_of(rw::Calls { write: CALLS, read_lock: nothing_with_node, read_unlock: nothing_with_node })
}
