//! Which CPUs threads may run on.

use std::io;
use std::mem;

/// The CPUs that the calling thread may run on, ascending.
///
/// # Errors
/// If the system does not say (more than 1024 CPUs).
pub fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the pointer and the size are those of `set`.
    let rc = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}
