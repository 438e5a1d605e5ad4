//! Semaphore arrays: the choice that `--semaphores` takes, and the report that `stat` and `ipcs` print of
//! each.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use poundlock_core::semarray::{Report, Scheme};
use poundlock_semarray::{self as semarray, Choice};
use serde::Serialize;

use crate::library::{self, Change};
use crate::message::{Failure, status};

/// The arrays that a value names.
///
/// Not left to clap: as with locks, what is possible belongs into the one line that is read.
pub(crate) fn parse(value: &str) -> Result<Choice, Failure> {
    semarray::choose(value).ok_or_else(|| {
        let variants: Vec<_> = Scheme::ALL.iter().map(|variant| variant.name()).collect();
        Failure::new(
            status::USAGE,
            format_args!(
                "unknown semaphores '{value}': choose from ours, all, kernel; for the variant of new arrays \
                    add a comma \
                 and one of {}",
                variants.join(", ")
            ),
        )
    })
}

/// The change to the environment for a value that was given.
pub(crate) fn change(value: &str) -> Change {
    (OsStr::new(library::SEMAPHORES_VARIABLE), Some(OsString::from(value)))
}

/// Makes sure that a directory which the environment names would be used; one that is not there will be made.
/// If it is not, every array is the kernel's, and there is nothing of ours to show.
pub(crate) fn check_domain() -> Result<(), Failure> {
    let Some(name) = std::env::var_os(library::DOMAIN_VARIABLE) else { return Ok(()) };
    let path = Path::new(&name);
    let wrong = match path.symlink_metadata() {
        _ if !path.is_absolute() => "not an absolute path",
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(_) => "not to be looked at",
        Ok(meta) if !meta.is_dir() => "not a directory",
        // SAFETY: no arguments.
        Ok(meta) if meta.uid() != unsafe { libc::geteuid() } => "somebody else's",
        Ok(meta) if meta.mode() & 0o077 != 0 => "open to others (chmod 700)",
        Ok(_) => return Ok(()),
    };
    Err(Failure::new(
        status::OURS,
        format_args!(
            "{}: {}: {wrong}: all arrays are the kernel's",
            library::DOMAIN_VARIABLE,
            path.display()
        ),
    ))
}

/// CPUs that are online, across which the time lost to spinning is counted.
pub(crate) fn online_cpus() -> u64 {
    // SAFETY: takes a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u64::try_from(cpus).unwrap_or(1).max(1)
}

/// What of the CPUs' time in the array's life went into spinning for its lock: so many thousandths.
pub(crate) fn spun_permille(report: &Report, cpus: u64) -> u64 {
    let life = u128::from(report.lifetime_ns) * u128::from(cpus);
    (u128::from(report.spun_ns) * 1000).checked_div(life).map_or(0, |permille| permille as u64)
}

/// A key as it is written everywhere: in tables, in JSON, and to `ipcrm`.
pub(crate) fn key(key: i32) -> String {
    format!("{key:#010x}")
}

/// The report in the lines of the source's statistics patch, in seconds and nanoseconds where that has ticks:
/// the third only if anybody had to wait. Then what it does not have.
pub(crate) fn report_lines(report: &Report, cpus: u64) -> String {
    let (seconds, rest) = (report.lifetime_ns / 1_000_000_000, report.lifetime_ns % 1_000_000_000);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "lifetime {seconds}.{:03} seconds", rest / 1_000_000);
    let _ = writeln!(text, "free {} contended {}", report.free, report.contended);
    if let Some(average) = report.spun_ns.checked_div(report.contended) {
        let permille = spun_permille(report, cpus);
        let _ = writeln!(text, "wait {} avg {average} 1/1000 cpu time {permille}", report.spun_ns);
    }
    let Report { slept, sleeps, wakes, served, recoveries, .. } = report;
    let _ = write!(text, "slept {slept} sleeps {sleeps} wakes {wakes}");
    if *served != 0 {
        let _ = write!(text, " served {served}");
    }
    if *recoveries != 0 {
        let _ = write!(text, " recoveries {recoveries}");
    }
    text.push('\n');
    text
}

/// The report in JSON.
#[derive(Serialize)]
pub(crate) struct ReportJson {
    lifetime_ns: u64,
    /// Acquisitions of the array's lock that found it free, and those that did not.
    free: u64,
    contended: u64,
    /// What those spun, and what that is of the time of the CPUs.
    wait_ns: u64,
    wait_average_ns: u64,
    cpu_permille: u64,
    cpus: u64,
    /// Of the contended, those that slept.
    slept: u64,
    /// Calls that slept for their semaphores, and sleepers that were woken.
    sleeps: u64,
    wakes: u64,
    /// Requests that a holder of the lock served for others.
    served: u64,
    /// Locks taken over from the dead.
    recoveries: u64,
}

impl ReportJson {
    pub(crate) fn new(report: &Report, cpus: u64) -> Self {
        let &Report { lifetime_ns, free, contended, spun_ns, slept, sleeps, wakes, served, recoveries } =
            report;
        ReportJson {
            lifetime_ns,
            free,
            contended,
            wait_ns: spun_ns,
            wait_average_ns: spun_ns.checked_div(contended).unwrap_or(0),
            cpu_permille: spun_permille(report, cpus),
            cpus,
            slept,
            sleeps,
            wakes,
            served,
            recoveries,
        }
    }
}

#[cfg(test)]
mod tests {
    use poundlock_core::semarray::Report;

    use super::{parse, report_lines, spun_permille};

    /// The source's array before its patches: 4 CPUs.
    const SOURCE: Report = Report {
        lifetime_ns: 58_573_142_769,
        free: 745_344,
        contended: 7_801_967,
        spun_ns: 110_278_262_115,
        slept: 0,
        sleeps: 5,
        wakes: 4,
        served: 0,
        recoveries: 0,
    };

    #[test]
    fn the_report_is_the_sources() {
        assert_eq!(
            report_lines(&SOURCE, 4),
            "lifetime 58.573 seconds\nfree 745344 contended 7801967\n\
             wait 110278262115 avg 14134 1/1000 cpu time 470\nslept 0 sleeps 5 wakes 4\n"
        );
        let after = Report { lifetime_ns: 59_518_717_621, spun_ns: 2_625_106_215, ..SOURCE };
        assert_eq!(spun_permille(&after, 4), 11);
    }

    #[test]
    fn nothing_is_said_of_waiting_where_nobody_waited() {
        let free = Report { contended: 0, spun_ns: 0, recoveries: 2, served: 3, ..SOURCE };
        assert_eq!(
            report_lines(&free, 4),
            "lifetime 58.573 seconds\nfree 745344 contended 0\n\
             slept 0 sleeps 5 wakes 4 served 3 recoveries 2\n"
        );
        assert_eq!(spun_permille(&Report { lifetime_ns: 0, ..SOURCE }, 4), 0);
    }

    #[test]
    fn what_is_possible_is_said_in_one_line() {
        assert!(parse("ours").is_ok() && parse("all,combining").is_ok());
        for wrong in ["", "nonesuch", "ours,", "ours,nonesuch", "ours,after,before"] {
            let failure = parse(wrong).expect_err(wrong);
            assert_eq!(failure.status, 2);
            for word in ["'", wrong, "ours", "all", "kernel", "after", "before", "combining", "shared-line"] {
                assert!(failure.line.contains(word), "no {word:?} in {:?}", failure.line);
            }
            assert_eq!(failure.line.lines().count(), 1);
        }
    }
}
