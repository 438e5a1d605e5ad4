//! Which CPUs threads may run on.

use std::io;
use std::mem;

use crate::error::{Error, Result};

/// The CPUs that the calling thread may run on, ascending.
///
/// # Errors
/// If the system does not say (more than 1024 CPUs).
pub(crate) fn allowed() -> Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the pointer and the size are those of `set`.
    let rc = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    if rc != 0 {
        return Err(Error::system("cannot ask for the allowed CPUs")(io::Error::last_os_error()));
    }
    // SAFETY: every index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Keeps the calling thread, and threads that it starts later, on `cpus`.
///
/// # Errors
/// If the system does not allow it.
pub(crate) fn keep_to(cpus: &[usize]) -> Result<()> {
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: the index is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the pointer and the size are those of `set`.
    let rc = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
    if rc != 0 {
        return Err(Error::system(format!("cannot keep to CPUs {cpus:?}"))(io::Error::last_os_error()));
    }
    Ok(())
}
