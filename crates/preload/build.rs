//! Link options of the preload library.

mod stand_ins;

use std::env;
use std::path::PathBuf;

use stand_ins::STAND_INS;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=stand_ins.rs");
    let link = |argument: &str| println!("cargo::rustc-cdylib-link-arg={argument}");
    // Waiters' records, thread-locals and the fork handler point into the library for good: it must not be
    // unloaded even where it was opened rather than preloaded.
    link("-Wl,-z,nodelete");
    // Bind everything at start-up: a lock must not enter the dynamic linker at its first use.
    link("-Wl,-z,now");
    // Our own functions are ours under their names, whatever library before us wraps them: `dlvsym` gives
    // their addresses to that library, which would otherwise be given its own wrapper, and call itself for
    // ever.
    link("-Wl,-Bsymbolic-functions");
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rustc-link-search=native={}", directory.display());
    for stand_in in STAND_INS {
        stand_in.make(&directory);
        println!("cargo::rustc-link-lib=dylib={}", stand_in.name);
    }
}
