//! Real programs on Poundlock's locks: what a distribution ships, unmodified, must do its work and get it
//! right.
//!
//! Each program is one module and is run in the same ways (see [`how::How`]): plainly on glibc as the
//! control, under `run` with the default lock and with one of the other sort, under `stat --lock poundlock`,
//! under `stat`, and under `check`, on its own locks and on ours. A run passes if its *results* are right; it
//! fails if they are not, if the exit status is not the expected one, or if it takes longer than
//! [`LIMIT`](crate::support::LIMIT), and then shows what it had written.
//!
//! A program that is not installed is reported on standard error and its tests pass; with
//! `POUNDLOCK_REAL=require` in the environment, as `.ci/run` has it, they fail.

mod apache;
mod csound;
mod how;
mod java;
mod memcached;
mod postgresql;
mod python;
mod report;
mod semarray;
mod stress_ng;
mod sysbench;
mod xz;

/// Tests by their names, each with a way to run a program.
macro_rules! ways {
    ($run:path: $($name:ident $way:ident$(($lock:expr))?,)*) => {$(
        #[test]
        fn $name() {
            $run($crate::real::how::How::$way$(($lock))?);
        }
    )*};
}
pub(crate) use ways;

/// One test for each way to run a program.
macro_rules! every_way {
    ($run:path) => {
        $crate::real::ways! { $run:
            plain Plain,
            run Run(None),
            run_any_negative Run(Some("any-negative")),
            stat Stat(Some("poundlock")),
            stat_glibc Stat(None),
            check Check(None),
            check_ours Check(Some("poundlock")),
        }
    };
}
pub(crate) use every_way;

/// The same for a program that uses spinlocks: on each form, and on the one that is chosen if none is named.
macro_rules! every_spin_way {
    ($run:path) => {
        $crate::real::ways! { $run:
            plain Plain,
            run Run(None),
            run_qspin Run(Some("qspin")),
            run_qspin_virt Run(Some("qspin-virt")),
            run_qspin_pv Run(Some("qspin-pv")),
            stat Stat(Some("poundlock")),
            stat_qspin Stat(Some("qspin")),
            stat_glibc Stat(None),
            check Check(None),
            check_ours Check(Some("poundlock")),
        }
    };
}
pub(crate) use every_spin_way;
