//! Libraries of glibc's as they were before 2.34, or as they are: without versions. For the build scripts of
//! the shared libraries that are built with some glibc and have to load with each from 2.28 on.
//!
//! Linked with the glibc that is here, such a library would ask for the versions that this one has. Linked
//! with stand-ins, it asks by name alone: the dynamic linker finds the oldest version, or for what is weak
//! and nowhere defined, nothing. Newer glibc has all of these in `libc.so.6`, and the other two as empty
//! libraries, for programs of old.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

pub(crate) struct StandIn {
    /// The name to link with it by.
    pub(crate) name: &'static str,
    soname: &'static str,
    symbols: &'static [&'static str],
}

pub(crate) const STAND_INS: [StandIn; 2] = [
    StandIn {
        name: "poundlock_old_pthread",
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
            "pthread_mutex_timedlock",
            "pthread_mutex_trylock",
            "pthread_mutexattr_init",
            "pthread_mutexattr_setpshared",
            "pthread_mutexattr_setrobust",
            "pthread_setspecific",
            "pthread_testcancel",
            "sem_trywait",
        ],
    },
    StandIn { name: "poundlock_old_dl", soname: "libdl.so.2", symbols: &["dladdr1", "dlsym"] },
];

impl StandIn {
    /// Makes it in this directory, and returns where it is.
    pub(crate) fn make(&self, directory: &Path) -> PathBuf {
        let source = directory.join(self.name).with_extension("s");
        // A byte each. What is an object here, linkers take for one in the library that they make: with some,
        // `-Bsymbolic-functions` does not hold for our own function of that name then.
        let symbol = |name: &&str| {
            let sort = if *name == "__libc_single_threaded" { "object" } else { "function" };
            format!(".globl {name}\n.type {name}, %{sort}\n.size {name}, 1\n{name}: .byte 0\n")
        };
        let text: String = self.symbols.iter().map(symbol).collect();
        let text = format!(".section .note.GNU-stack,\"\",%progbits\n.data\n{text}");
        fs::write(&source, text).expect("OUT_DIR can be written to");
        let driver = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
        let library = directory.join(format!("lib{}.so", self.name));
        let status = Command::new(&driver)
            .args(["-shared", "-nostdlib", &format!("-Wl,-soname,{}", self.soname), "-o"])
            .arg(&library)
            .arg(&source)
            .status();
        assert!(status.is_ok_and(|status| status.success()), "{driver} made no shared library of {source:?}");
        library
    }
}
