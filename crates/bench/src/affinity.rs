//! Which CPUs threads may run on.

use std::io;
use std::mem;

use crate::error::{Error, Result};

/// The CPUs that the calling thread may run on, ascending.
///
/// # Errors
/// If the system does not say (more than 1024 CPUs).
pub(crate) fn allowed() -> Result<Vec<usize>> {
    poundlock_measure::affinity::allowed().map_err(Error::system("cannot ask for the allowed CPUs"))
}

/// The CPU that the user names, or else the last allowed one.
///
/// # Errors
/// If it is not allowed.
pub(crate) fn one(named: Option<usize>) -> Result<usize> {
    let allowed = allowed()?;
    match named {
        None => allowed.last().copied().ok_or_else(|| Error::Failed("there is no CPU to run on".to_owned())),
        Some(cpu) if allowed.contains(&cpu) => Ok(cpu),
        Some(cpu) => Err(Error::Options(format!("CPU {cpu} is not among the allowed ones: {allowed:?}"))),
    }
}

/// As many of the allowed CPUs as the user asks for (`--cpus`), or all.
///
/// # Errors
/// If there are not that many.
pub(crate) fn some(number: Option<usize>) -> Result<Vec<usize>> {
    let mut cpus = allowed()?;
    match number {
        Some(0) => return Err(Error::Options("at least one CPU is needed".to_owned())),
        Some(n) if n > cpus.len() => {
            return Err(Error::Options(format!("--cpus {n}: there are only {}", cpus.len())));
        }
        Some(n) => cpus.truncate(n),
        None => {}
    }
    Ok(cpus)
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
