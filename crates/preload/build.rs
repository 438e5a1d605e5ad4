//! Link options of the preload library.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
    for stand_in in STAND_INS {
        stand_in.make();
    }
}

/// A library of glibc's as it was before 2.34, when it had these functions, or as it is: without versions.
///
/// The library is built with some glibc and has to load with each from 2.28 on. Linked with the one that is
/// here, it would ask for the versions that this one has. Linked with stand-ins, it asks by name alone: the
/// dynamic linker finds the oldest version, or for what is weak and nowhere defined, nothing. Newer glibc has
/// all of these in `libc.so.6`, and the other two as empty libraries, for programs of old.
struct StandIn {
    file: &'static str,
    soname: &'static str,
    symbols: &'static [&'static str],
}

const STAND_INS: [StandIn; 2] = [
    StandIn {
        file: "poundlock_old_pthread",
        soname: "libpthread.so.0",
        symbols: &[
            // Of `libc.so.6`, since glibc 2.32, and weak; which library has it, a reference does not say.
            "__libc_single_threaded",
            "pthread_condattr_getclock",
            "pthread_condattr_getpshared",
            "pthread_condattr_setclock",
            "pthread_key_create",
            "pthread_key_delete",
            "pthread_mutex_consistent",
            "pthread_mutexattr_init",
            "pthread_mutexattr_setpshared",
            "pthread_mutexattr_setrobust",
            "pthread_setspecific",
            "pthread_testcancel",
            "sem_trywait",
        ],
    },
    StandIn { file: "poundlock_old_dl", soname: "libdl.so.2", symbols: &["dladdr1", "dlsym"] },
];

impl StandIn {
    fn make(&self) {
        let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        let source = directory.join(self.file).with_extension("s");
        // Objects of a byte: what they are in truth does not matter.
        let symbol =
            |name: &&str| format!(".globl {name}\n.type {name}, %object\n.size {name}, 1\n{name}: .byte 0\n");
        let text: String = self.symbols.iter().map(symbol).collect();
        let text = format!(".section .note.GNU-stack,\"\",%progbits\n.data\n{text}");
        fs::write(&source, text).expect("OUT_DIR can be written to");
        let driver = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
        let status = Command::new(&driver)
            .args(["-shared", "-nostdlib", &format!("-Wl,-soname,{}", self.soname), "-o"])
            .arg(directory.join(format!("lib{}.so", self.file)))
            .arg(&source)
            .status();
        assert!(status.is_ok_and(|status| status.success()), "{driver} made no shared library of {source:?}");
        println!("cargo::rustc-link-search=native={}", directory.display());
        println!("cargo::rustc-link-lib=dylib={}", self.file);
    }
}
