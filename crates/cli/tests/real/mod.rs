//! Real programs on Poundlock's locks: what a distribution ships, unmodified, must do its work and get it
//! right.
//!
//! Each program is one module and is run in the same ways (see [`how::How`]): plainly on glibc as the
//! control, under `run` with every lock, under `stat`, and under `stat --lock glibc`. A run passes if its
//! *results* are right; it fails if they are not, if the exit status is not the expected one, or if it takes
//! longer than [`LIMIT`](crate::support::LIMIT), and then shows what it had written.
//!
//! A program that is not installed is reported on standard error and its tests pass; with
//! `POUNDLOCK_REAL=require` in the environment, as `.ci/run` has it, they fail.

mod apache;
mod csound;
mod how;
mod java;
mod memcached;
mod python;
mod report;
mod semarray;
mod stress_ng;
mod sysbench;
mod timed_mutex;
mod xz;

/// One test for each way to run a program.
macro_rules! every_way {
    ($run:path) => {
        #[test]
        fn plain() {
            $run($crate::real::how::How::Plain);
        }

        #[test]
        fn run() {
            $run($crate::real::how::How::Run(None));
        }

        #[test]
        fn run_baseline() {
            $run($crate::real::how::How::Run(Some("baseline")));
        }

        #[test]
        fn run_any_negative() {
            $run($crate::real::how::How::Run(Some("any-negative")));
        }

        #[test]
        fn run_mcs_queue() {
            $run($crate::real::how::How::Run(Some("mcs-queue")));
        }

        #[test]
        fn stat() {
            $run($crate::real::how::How::Stat(None));
        }

        #[test]
        fn stat_glibc() {
            $run($crate::real::how::How::Stat(Some("glibc")));
        }
    };
}
pub(crate) use every_way;

/// The same for a program that uses spinlocks: on each form, and on the one that is chosen if none is named.
macro_rules! every_spin_way {
    ($run:path) => {
        #[test]
        fn plain() {
            $run($crate::real::how::How::Plain);
        }

        #[test]
        fn run() {
            $run($crate::real::how::How::Run(None));
        }

        #[test]
        fn run_qspin() {
            $run($crate::real::how::How::Run(Some("qspin")));
        }

        #[test]
        fn run_qspin_virt() {
            $run($crate::real::how::How::Run(Some("qspin-virt")));
        }

        #[test]
        fn run_qspin_pv() {
            $run($crate::real::how::How::Run(Some("qspin-pv")));
        }

        #[test]
        fn stat() {
            $run($crate::real::how::How::Stat(None));
        }

        #[test]
        fn stat_qspin() {
            $run($crate::real::how::How::Stat(Some("qspin")));
        }

        #[test]
        fn stat_glibc() {
            $run($crate::real::how::How::Stat(Some("glibc")));
        }
    };
}
pub(crate) use every_spin_way;
