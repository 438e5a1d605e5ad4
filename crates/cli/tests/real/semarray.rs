//! Programs that use System V semaphore arrays: Perl's module (`tests/real/semaphores.pl`), stress-ng, and
//! Apache's processes. On the kernel's as the control, and on ours in every variant.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::real::how::{Finished, How, Launch};
use crate::support::{need, need_that_runs};

/// The arrays of one run: a domain of its own, or the kernel's.
pub(crate) struct Arrays {
    /// As `POUNDLOCK_SEMAPHORES` names them.
    name: &'static str,
    domain: TempDir,
    ours: bool,
}

impl Arrays {
    fn new(how: How, name: &'static str) -> Self {
        let domain = tempfile::Builder::new()
            .prefix("poundlock-test-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in("/dev/shm")
            .expect("a directory can be made in /dev/shm");
        Arrays { name, domain, ours: !matches!(how, How::Plain) && name != "kernel" }
    }

    pub(crate) fn choose(&self, launch: Launch) -> Launch {
        let launch = launch.environment("POUNDLOCK_IPC_DIR", self.domain.path());
        launch.environment("POUNDLOCK_SEMAPHORES", self.name)
    }

    /// Checks that the program used arrays of ours, or none; and that it left none.
    #[track_caller]
    pub(crate) fn expect_used(&self, finished: &Finished) {
        let names: Vec<_> = std::fs::read_dir(self.domain.path())
            .expect("the domain can be read")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let expected: &[&str] = if self.ours { &["registry"] } else { &[] };
        assert_eq!(names, expected, "the domain");
        if let Some(report) = &finished.report {
            assert_eq!(report.arrays > 0, self.ours, "{} arrays were counted", report.arrays);
        }
    }
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/real/semaphores.pl");

/// Follows from the script's counts; no run may print anything else.
const EXPECTED: &str = "\
buffer 2400 2881200 1 8 0
calls 7 EAGAIN own 3 600 own 1 0 9
key EEXIST 5 ENOENT
";

fn perl(how: How, arrays: &Arrays) {
    // Debian's smallest Perl comes without the module.
    let Some(perl) = need_that_runs("perl", "perl", &["-MIPC::SharedMem", "-e1"]) else { return };
    let finished = arrays.choose(how.launch(&perl, &[Path::new(SCRIPT)])).finish();
    assert_eq!(finished.text(), EXPECTED);
    arrays.expect_used(&finished);
}

/// Processes that take turns and check every command.
fn stress_ng(how: How, arrays: &Arrays) {
    let Some(stress_ng) = need("stress-ng", "stress-ng") else { return };
    let args =
        ["--sem-sysv", "2", "--sem-sysv-procs", "4", "--sem-sysv-ops", "20000", "--timeout", "0", "--verify"];
    let finished = arrays.choose(how.launch(&stress_ng, &args)).finish();
    let output = finished.text().to_owned() + &finished.stderr;
    assert!(output.contains("successful run completed"), "{output}");
    assert!(!output.contains("fail:"), "{output}");
    arrays.expect_used(&finished);
}

/// One test for each way to run a program on arrays.
macro_rules! every_array_way {
    ($name:ident, $run:path) => {
        mod $name {
            use super::{Arrays, How};

            #[track_caller]
            fn run_on(how: How, name: &'static str) {
                $run(how, &Arrays::new(how, name));
            }

            #[test]
            fn plain() {
                run_on(How::Plain, "kernel");
            }

            #[test]
            fn run() {
                run_on(How::Run(None), "ours");
            }

            #[test]
            fn run_before() {
                run_on(How::Run(None), "ours,before");
            }

            #[test]
            fn run_combining() {
                run_on(How::Run(None), "ours,combining");
            }

            #[test]
            fn run_shared_line() {
                run_on(How::Run(None), "ours,shared-line");
            }

            #[test]
            fn run_kernel() {
                run_on(How::Run(None), "kernel");
            }

            #[test]
            fn stat() {
                run_on(How::Stat(Some("poundlock")), "ours");
            }
        }
    };
}

every_array_way!(of_perl, crate::real::semarray::perl);
every_array_way!(of_stress_ng, crate::real::semarray::stress_ng);
every_array_way!(of_apache, crate::real::apache::prefork);
