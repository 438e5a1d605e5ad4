//! The Java compiler on a small program of several classes, and then that program: `tests/real/java`.
//!
//! Both are a virtual machine whose monitors, parking, collector and compiler threads wait on pthread mutexes
//! and condition variables.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::real::every_way;
use crate::real::how::{How, Known};
use crate::support::need;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/real/java/bank");
const CLASSES: [&str; 3] = ["Account", "Journal", "Main"];

/// Follows from the program's constants: money is moved and not made, each transfer is journalled once with
/// an amount that its random seed fixes and touches two accounts.
const EXPECTED: &str = "money 10000\njournal 32000 4816680\ntouches 64000\nthreads 500\n";

/// The virtual machine's own thread ends inside of its last safepoint, whose lock it leaves locked on purpose: the
/// process is about to end.
const KNOWN: &[Known] = &[Known { kind: "exit-held", function: "SafepointSynchronize::begin" }];

fn compile_and_run(how: How) {
    let Some(javac) = need("javac", "default-jdk-headless") else { return };
    let Some(java) = need("java", "default-jdk-headless") else { return };
    let dir = TempDir::new().expect("a temporary directory can be made");
    let classes = dir.path().to_str().expect("a temporary directory has a plain name");

    let sources = CLASSES.map(|class| Path::new(SOURCES).join(class).with_extension("java"));
    let mut args: Vec<PathBuf> =
        ["-J-Xmx256m", "-J-XX:TieredStopAtLevel=1", "-Xlint:all", "-Werror", "-d", classes]
            .map(PathBuf::from)
            .into();
    args.extend(sources);
    let compiled = how.launch(&javac, &args).known(KNOWN).finish();
    for class in CLASSES {
        let file = dir.path().join("bank").join(class).with_extension("class");
        let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(bytes.starts_with(&[0xca, 0xfe, 0xba, 0xbe]), "{} is no class file", file.display());
    }

    // The concurrent collector with several threads, on a machine of any size; one compiler, which is soon done.
    let options = [
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseG1GC",
        "-XX:ParallelGCThreads=4",
        "-cp",
        classes,
        "bank.Main",
    ];
    let ran = how.launch(&java, &options).known(KNOWN).finish();
    assert_eq!(ran.text(), EXPECTED, "{}", ran.stderr);

    match (compiled.report, ran.report) {
        (Some(compiler), Some(program)) => {
            compiler.expect_threads(5);
            program.expect_threads(500);
        }
        _ => assert_eq!((compiled.stderr.as_str(), ran.stderr.as_str()), ("", "")),
    }
}

every_way!(compile_and_run);
