//! What depends on the processor: every assembly body of this library, as macros of the same names for each
//! architecture. All of them are the bodies of naked functions; what they are for is said where they are
//! used. `asm!` of a few instructions is in `poundlock_linux`.
//!
//! | macro | does |
//! | --- | --- |
//! | `go_on!(N, body)` | jumps to `body` with C's `N` arguments, the return address, the caller's stack pointer |
//! | `cancellable_wait!` | see [`crate::entry`] |
//! | `jump_by!(word)` | jumps to the function whose address is in the static |
//! | `find_and_jump_by!(word, find)` | as that, after `find(&word)`, with up to five arguments |
//! | `counted_block!` | see [`crate::block`] |
//! | `open!`, `look_up!` | see [`crate::loader`] |
//! | `counted_call!`, `system_call!` | see [`crate::syscall`] |
//! | `wrap_handler!(enter, leave)` | see [`crate::interrupted`] |
//! | `thread_block!(symbol)` | the address of the calling thread's copy of a thread-local symbol |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
