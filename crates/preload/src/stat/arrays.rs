//! Semaphore arrays in the statistics: which ones the process used, and the reports of those that it removed.
//!
//! The figures of a removed array are those of its [`Report`], in this order; the command reads them in the
//! same.

use core::ffi::c_int;

use poundlock_core::semarray::Report;
use poundlock_semarray as semarray;
use poundlock_statfile::ArrayEnd;

use super::RECORDER;

/// The process uses this array, which is ours.
#[inline]
pub(crate) fn array_used(id: i32) {
    RECORDER.array_used(id.cast_unsigned());
}

/// Removes this array, which is ours, and keeps its report.
pub(crate) fn remove_array(id: i32) -> Result<(), c_int> {
    // While it is there.
    let described = semarray::describe(id);
    let report = semarray::remove(id)?;
    let Report { lifetime_ns, free, contended, spun_ns, slept, sleeps, wakes, served, recoveries } = report;
    let mut end = ArrayEnd::default();
    if let Some(array) = described {
        (end.key, end.semaphores, end.variant) = (array.settings.key, array.semaphores, array.scheme as u32);
    }
    let figures = [lifetime_ns, free, contended, spun_ns, slept, sleeps, wakes, served, recoveries];
    for (to, from) in end.figures.iter_mut().zip(figures) {
        *to = from;
    }
    RECORDER.array_removed(id.cast_unsigned(), &end);
    Ok(())
}
