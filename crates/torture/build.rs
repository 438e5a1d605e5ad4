//! Compiles the part of `poundlock torture` that must be C: see `csrc/torture.h`.

use std::path::Path;

fn main() {
    let dir = Path::new("csrc");
    println!("cargo::rerun-if-changed={}", dir.display());
    let mut sources: Vec<_> = dir
        .read_dir()
        .expect("the package holds csrc")
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    cc::Build::new()
        .files(sources)
        .std("gnu11")
        .opt_level(2)
        .debug(true)
        .flag("-pthread")
        .compile("poundlock_torture");
}
