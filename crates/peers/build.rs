//! Compiles the shims, and notes which versions of everything there are.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "build/make.rs"]
mod make;

use make::{Compilers, SHIMS};

/// Names of shims to leave out, as if their packages were not installed.
const WITHOUT: &str = "POUNDLOCK_PEERS_WITHOUT";

fn main() {
    let directory = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    for path in ["build.rs", "build", "shims"] {
        println!("cargo::rerun-if-changed={path}");
    }
    watch_packages();
    for name in [WITHOUT, "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPATH", "LIBRARY_PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let without = env::var(WITHOUT).unwrap_or_default();
    let without: Vec<_> = without.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    for name in &without {
        if !SHIMS.iter().any(|shim| shim.name == *name) {
            println!("cargo::warning={WITHOUT}: there is no shim called '{name}'");
        }
    }

    let compilers = Compilers { target: variable("TARGET"), host: variable("HOST") };
    println!("cargo::rustc-env=POUNDLOCK_PEERS_TARGET={}", compilers.target);
    println!("cargo::rustc-env=POUNDLOCK_PEERS_HOST={}", compilers.host);
    let mut built = versions(&directory);
    for shim in &SHIMS {
        let constant = shim.name.to_uppercase();
        let feature = format!("CARGO_FEATURE_{constant}");
        let made = if env::var_os(feature).is_none() {
            Err(format!("this build has its feature `{}` off", shim.name))
        } else if without.contains(&shim.name) {
            Err(format!("{WITHOUT} hid it from this build"))
        } else {
            let made = compilers.make(shim, &directory.join("shims"), &out);
            if let Err(why) = &made {
                println!("cargo::warning=the benchmarks go without {}: {why}", shim.name);
            }
            made
        };
        let (object, origin) = match &made {
            Ok(made) => (format!("Ok(include_bytes!({:?}))", made.object), made.origin.as_str()),
            Err(why) => (format!("Err({why:?})"), ""),
        };
        writeln!(
            built,
            "pub(crate) const {constant}: crate::shim::Built = \
             crate::shim::Built {{ object: {object}, origin: {origin:?}, package: {:?} }};",
            shim.package
        )
        .expect("a String takes everything");
    }
    fs::write(out.join("built.rs"), built).expect("the build's directory can be written to");
}

fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets it")
}

/// Runs this script again when packages come or go. A path that is not there would make every build a
/// rebuild.
fn watch_packages() {
    let lists = ["/var/lib/dpkg/status", "/var/lib/rpm", "/var/lib/pacman/local", "/lib/apk/db/installed"];
    let paths = lists.into_iter().filter(|path| Path::new(path).exists()).chain(["/usr/local/include"]);
    for path in paths.filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
}

/// The versions of Rust and of the crates, as constants.
fn versions(directory: &Path) -> String {
    let rust = Command::new(variable("RUSTC")).arg("--version").output().ok();
    let rust = rust.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let rust = rust.split_whitespace().nth(1).unwrap_or("of unknown version");
    let lock = directory.ancestors().map(|path| path.join("Cargo.lock")).find(|path| path.exists());
    let text = lock.as_deref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    if let Some(path) = lock {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let parking_lot = crate_version(&text, "parking_lot");
    let usync = crate_version(&text, "usync");
    format!(
        "pub(crate) const RUST: &str = {rust:?};\n\
         #[cfg(feature = \"parking_lot\")]\n\
         pub(crate) const PARKING_LOT: &str = {parking_lot:?};\n\
         #[cfg(feature = \"usync\")]\n\
         pub(crate) const USYNC: &str = {usync:?};\n"
    )
}

/// The version of a crate in a `Cargo.lock`.
fn crate_version<'a>(lock: &'a str, name: &str) -> &'a str {
    lock.split("[[package]]")
        .find_map(|package| {
            let mut lines = package.lines().filter_map(|line| line.split_once(" = "));
            let mut value =
                |key| lines.find(|(found, _)| *found == key).map(|(_, value)| value.trim_matches('"'));
            (value("name")? == name).then(|| value("version")).flatten()
        })
        .unwrap_or("of unknown version")
}
