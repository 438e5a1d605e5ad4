//! Link options of the preload library.

fn main() {
    // Waiters' records, thread-locals and the fork handler point into the library for good: it must not be
    // unloaded even where it was opened rather than preloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Bind everything at start-up: a lock must not enter the dynamic linker at its first use.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    // Our own functions are ours under their names, whatever library before us wraps them: `dlvsym` gives
    // their addresses to that library, which would otherwise be given its own wrapper, and call itself for
    // ever.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rerun-if-changed=build.rs");
}
