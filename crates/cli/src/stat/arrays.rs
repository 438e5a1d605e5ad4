//! The semaphore arrays that the measured processes used, with the report of each: from its removal, or as of
//! now.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use poundlock_core::semarray::{Report, Scheme};
use poundlock_semarray as semarray;
use poundlock_statfile::{ArrayEnd, Snapshot};
use serde::Serialize;

use crate::output::counted;
use crate::semaphores::{self, ReportJson, online_cpus, report_lines};

/// All of them, and the CPUs across which time is counted.
pub(super) struct Arrays {
    /// Most spinning first; those of which nothing is known last.
    pub(super) arrays: Vec<Array>,
    /// Whether there were more than a process has room for.
    pub(super) dropped: bool,
    cpus: u64,
}

/// One array.
pub(super) struct Array {
    id: u32,
    fate: Fate,
    known: Option<Known>,
}

/// What became of it.
#[derive(Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Fate {
    /// A measured process removed it.
    Removed,
    /// It is still there.
    There,
    /// Somebody else removed it, or it is in a place that we do not see.
    Gone,
}

struct Known {
    key: i32,
    semaphores: u32,
    variant: &'static str,
    report: Report,
}

/// An array, in JSON.
#[derive(Serialize)]
pub(super) struct ArrayJson {
    id: u32,
    fate: Fate,
    key: Option<String>,
    semaphores: Option<u32>,
    variant: Option<&'static str>,
    report: Option<ReportJson>,
}

impl Arrays {
    /// Of all processes. Those that nobody removed are looked up in this process's domain, which is that of
    /// the program.
    pub(super) fn new(snapshots: &[Snapshot]) -> Self {
        let mut ends: BTreeMap<u32, Option<&ArrayEnd>> = BTreeMap::new();
        for array in snapshots.iter().flat_map(|snapshot| &snapshot.arrays) {
            let end = ends.entry(array.id).or_default();
            *end = end.or(array.end.as_ref());
        }
        let mut arrays: Vec<Array> = ends
            .into_iter()
            .map(|(id, end)| match end {
                Some(end) => Array { id, fate: Fate::Removed, known: Some(Known::removed(end)) },
                None => {
                    let known = semarray::describe(id.cast_signed()).map(|listed| Known {
                        key: listed.settings.key,
                        semaphores: listed.semaphores,
                        variant: listed.scheme.name(),
                        report: listed.report,
                    });
                    let fate = if known.is_some() { Fate::There } else { Fate::Gone };
                    Array { id, fate, known }
                }
            })
            .collect();
        arrays.sort_by_key(|array| {
            let figures = array.known.as_ref().map(|known| {
                let report = &known.report;
                (report.spun_ns, report.contended, report.free)
            });
            (Reverse(figures), array.id)
        });
        let dropped = snapshots.iter().any(|snapshot| snapshot.dropped_arrays);
        Arrays { arrays, dropped, cpus: online_cpus() }
    }

    /// Writes the first `shown` for a human reader.
    pub(super) fn write(&self, out: &mut String, shown: usize) -> std::fmt::Result {
        let (top, rest) = self.arrays.split_at(shown.min(self.arrays.len()));
        for array in top {
            write!(out, "\nsemaphore array {}", array.id)?;
            let fate = match array.fate {
                Fate::Removed => "removed",
                Fate::There => "still there",
                Fate::Gone => "removed by a process that was not measured, and its figures with it",
            };
            match &array.known {
                Some(Known { key, semaphores, variant, report }) => {
                    let size = counted(u64::from(*semaphores), "semaphore");
                    writeln!(out, ", key {}, {size}, {variant}, {fate}:", semaphores::key(*key))?;
                    for line in report_lines(report, self.cpus).lines() {
                        writeln!(out, "  {line}")?;
                    }
                }
                None => writeln!(out, ": {fate}")?,
            }
        }
        if !rest.is_empty() {
            let more = counted(rest.len() as u64, "more semaphore array");
            writeln!(out, "\nand {more} (--top 0 shows them)")?;
        }
        if self.dropped {
            writeln!(out, "\nsome semaphore arrays found no room in the table and are not shown")?;
        }
        Ok(())
    }

    /// All of them in JSON.
    pub(super) fn json(&self) -> Vec<ArrayJson> {
        let json = |array: &Array| {
            let known = array.known.as_ref();
            ArrayJson {
                id: array.id,
                fate: array.fate,
                key: known.map(|known| semaphores::key(known.key)),
                semaphores: known.map(|known| known.semaphores),
                variant: known.map(|known| known.variant),
                report: known.map(|known| ReportJson::new(&known.report, self.cpus)),
            }
        };
        self.arrays.iter().map(json).collect()
    }
}

impl Known {
    /// In the order in which the preload library has the figures.
    fn removed(end: &ArrayEnd) -> Self {
        let [lifetime_ns, free, contended, spun_ns, slept, sleeps, wakes, served, recoveries, ..] =
            end.figures;
        let variant = Scheme::ALL.into_iter().find(|variant| *variant as u32 == end.variant);
        Known {
            key: end.key,
            semaphores: end.semaphores,
            variant: variant.unwrap_or_default().name(),
            report: Report {
                lifetime_ns,
                free,
                contended,
                spun_ns,
                slept,
                sleeps,
                wakes,
                served,
                recoveries,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use poundlock_statfile::{ArrayEnd, ArrayStats, Snapshot};

    use super::Arrays;

    #[test]
    fn an_array_that_several_processes_used_is_one() {
        let end = |spun: u64| ArrayEnd {
            key: 0x11,
            semaphores: 3,
            variant: 1,
            figures: std::array::from_fn(|n| if n == 3 { spun } else { 10 * n as u64 }),
        };
        let used = |id: u32, end: Option<ArrayEnd>| ArrayStats { id, end };
        let one = Snapshot {
            arrays: vec![used(1 << 30 | 5, None), used(1 << 30 | 6, None)],
            ..Snapshot::default()
        };
        let other = Snapshot {
            arrays: vec![used(1 << 30 | 4, Some(end(100))), used(1 << 30 | 5, Some(end(200)))],
            ..Snapshot::default()
        };
        let mut arrays = Arrays::new(&[one, other]);
        arrays.cpus = 2;
        let mut text = String::new();
        arrays.write(&mut text, usize::MAX).expect("a string");
        let expected = "\n\
            semaphore array 1073741829, key 0x00000011, 3 semaphores, before, removed:\n  \
            lifetime 0.000 seconds\n  free 10 contended 20\n  wait 200 avg 10 1/1000 cpu time 0\n  \
            slept 40 sleeps 50 wakes 60 served 70 recoveries 80\n\n\
            semaphore array 1073741828, key 0x00000011, 3 semaphores, before, removed:\n  \
            lifetime 0.000 seconds\n  free 10 contended 20\n  wait 100 avg 5 1/1000 cpu time 0\n  \
            slept 40 sleeps 50 wakes 60 served 70 recoveries 80\n\n\
            semaphore array 1073741830: removed by a process that was not measured, and its figures with \
            it\n";
        assert_eq!(text, expected);
        let mut text = String::new();
        arrays.write(&mut text, 1).expect("a string");
        assert!(text.ends_with("\nand 2 more semaphore arrays (--top 0 shows them)\n"), "{text}");
    }
}
