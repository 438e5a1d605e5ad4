//! Functions that do nothing.

use std::ffi::c_void;

use crate::{Calls, EMPTY, Entry};

unsafe extern "C" fn nothing(_lock: *mut c_void) {}

unsafe extern "C" fn nothing_with_node(_lock: *mut c_void, _node: *mut c_void) {}

pub(crate) fn entry() -> Entry {
    Entry::new(EMPTY, "functions that do nothing: what the driver itself costs", || {
        let calls = Calls {
            size: 4,
            align: 4,
            node: 0,
            init: nothing,
            lock: nothing_with_node,
            unlock: nothing_with_node,
            destroy: nothing,
        };
        Ok(("this benchmark".to_owned(), calls))
    })
}
