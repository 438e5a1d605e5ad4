//! Makes the preload library that the command carries, if it is to carry one (feature `carry`): for a command
//! that is installed alone, as `cargo install` does it.
//!
//! Cargo builds no library for another crate to include, on a stable compiler. So this has cargo build it, in a
//! target directory of its own, as the outer cargo holds the lock on that of this build. Its only dependency of
//! others is one of the command's as well: there is nothing to fetch.
//!
//! `POUNDLOCK_CARRIED` names a library that was built before, to carry that.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_NAME: &str = "libpoundlock_preload.so";

/// What the library is built from, beside this package.
const SOURCES: [&str; 8] = [
    "../../Cargo.toml",
    "../../Cargo.lock",
    "../core/src",
    "../linux/src",
    "../names/src",
    "../preload",
    "../semarray/src",
    "../statfile/src",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=POUNDLOCK_CARRIED");
    if env::var_os("CARGO_FEATURE_CARRY").is_none() {
        return;
    }
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let library = match env::var_os("POUNDLOCK_CARRIED") {
        Some(given) => PathBuf::from(given),
        None => built(&out_dir),
    };
    println!("cargo::rerun-if-changed={}", library.display());
    let bytes = fs::read(&library).unwrap_or_else(|error| {
        panic!("the library to carry (POUNDLOCK_CARRIED), {}: {error}", library.display())
    });
    // The name of its directory: another library, another name.
    println!("cargo::rustc-env=POUNDLOCK_CARRIED_AS={}-{:016x}", env!("CARGO_PKG_VERSION"), hash(&bytes));
    fs::write(out_dir.join(FILE_NAME), bytes).expect("OUT_DIR can be written to");
}

/// FNV-1a. Who uses the library compares it byte by byte.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn built(out_dir: &Path) -> PathBuf {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let target = env::var("TARGET").expect("cargo sets it");
    // TARGET_DIR/PROFILE/build/PACKAGE/out: one library for all profiles.
    let target_dir = out_dir.ancestors().nth(4).unwrap_or(out_dir).join("carried");
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    cargo.args(["build", "--quiet", "--offline", "--locked", "--release", "--package", "poundlock-preload"]);
    cargo
        .args(["--config", "profile.release.strip=true", "--target", &target, "--target-dir"])
        .arg(&target_dir);
    // Clippy's, which would be asked for this as well.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
    let status = cargo.status().expect("cargo can be started");
    assert!(
        status.success(),
        "{FILE_NAME} cannot be built: see above (or build without the feature `carry`)"
    );
    target_dir.join(target).join("release").join(FILE_NAME)
}
