//! Records the commit that is built, so that every figure can name it.

use std::path::Path;
use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    // Without these lines cargo would run this script again on every change in this package alone, and the
    // commit would go stale while the locks change.
    for path in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", path]) {
            watch(&path);
        }
    }
    for package in ["bench", "cli", "core", "linux", "measure", "peers", "preload", "statfile"] {
        watch(&format!("../{package}/src"));
    }
    watch("build.rs");

    let commit = match git(&["rev-parse", "--short=12", "HEAD"]) {
        Some(commit) => {
            let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".."]);
            match changed.as_deref() {
                Some("") => commit,
                _ => format!("{commit} with local changes"),
            }
        }
        None => "unknown (not built in a git work tree)".to_owned(),
    };
    println!("cargo::rustc-env=POUNDLOCK_COMMIT={commit}");
}

/// Runs this script again when `path` changes. A path that is not there would make every build a rebuild.
fn watch(path: &str) {
    if Path::new(path).exists() {
        println!("cargo::rerun-if-changed={path}");
    }
}
