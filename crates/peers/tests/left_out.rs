//! What the build script makes of a package that is not there, or not as expected; and that the rest does not
//! mind.

#[path = "../build/make.rs"]
mod make;

use std::fs;
use std::path::Path;

use make::{Compilers, Library, SHIMS, Shim};

const PLAIN: Shim = Shim {
    name: "plain",
    source: "plain.c",
    header: "stddef.h",
    package: "libplain-dev",
    library: Library::None,
};

/// The origin and the object that are made of a source, in which `SEEN` exports what follows.
fn make(shim: &Shim, source: &str) -> Result<(String, Vec<u8>), String> {
    let compilers = Compilers {
        target: env!("POUNDLOCK_PEERS_TARGET").to_owned(),
        host: env!("POUNDLOCK_PEERS_HOST").to_owned(),
    };
    let directory = tempfile::tempdir().unwrap();
    let source = source.replace("SEEN", "__attribute__((visibility(\"default\")))");
    fs::write(directory.path().join(shim.source), source).unwrap();
    let made = compilers.make(shim, directory.path(), directory.path())?;
    Ok((made.origin, fs::read(made.object).unwrap()))
}

#[track_caller]
fn one_line(problem: &str, parts: &[&str]) {
    assert!(!problem.contains('\n'), "{problem}");
    for part in parts {
        assert!(problem.contains(part), "no '{part}' in: {problem}");
    }
}

#[test]
fn a_package_that_is_there_is_built_with_and_named() {
    let (origin, object) = make(&PLAIN, "SEEN int poundlock_peer(void) { return 0; }").unwrap();
    assert!(object.starts_with(b"\x7fELF"));
    // The compiler's own header, wherever that comes from.
    assert!(origin.contains("stddef.h") || origin.contains("gcc"), "{origin}");
}

#[test]
fn a_missing_package_is_named() {
    for name in ["none.c", "none.cc"] {
        let shim = Shim { source: name, header: "no/such/header.h", package: "libnone-dev", ..PLAIN };
        one_line(&make(&shim, "").unwrap_err(), &["apt-get install libnone-dev", "build again"]);
    }
}

#[test]
fn a_package_that_does_not_fit_is_named_with_the_compilers_words() {
    let problem = make(&PLAIN, "#include <stddef.h>\nint here = no_such_thing;\n").unwrap_err();
    one_line(&problem, &["libplain-dev is installed", "no_such_thing"]);
    let problem =
        make(&PLAIN, "void absent(void); SEEN void poundlock_peer(void) { absent(); }").unwrap_err();
    one_line(&problem, &["libplain-dev is installed", "undefined reference"]);
    let shim = Shim { library: Library::Shared { name: "poundlock_none" }, ..PLAIN };
    one_line(&make(&shim, "int here;").unwrap_err(), &["libplain-dev is installed", "poundlock_none"]);
    let shim =
        Shim { library: Library::Archive { name: "poundlock_none", siblings: "libpoundlock_none" }, ..PLAIN };
    one_line(&make(&shim, "int here;").unwrap_err(), &["libplain-dev is installed", "poundlock_none"]);
}

#[test]
fn an_absent_lock_says_what_to_do_and_its_shim_has_no_other() {
    for peer in poundlock_peers::all() {
        let Err(absent) = peer else { continue };
        let line = absent.to_string();
        assert!(!line.contains('\n'), "{line}");
        let says = ["install", "feature", "POUNDLOCK_PEERS_WITHOUT"].iter().any(|word| line.contains(word));
        assert!(says, "{line}");
    }
    // Each shim has a source, and at least one lock of its name's beginning.
    for shim in &SHIMS {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("shims").join(shim.source).exists());
        assert!(poundlock_peers::names().iter().any(|name| name.starts_with(shim.name)), "{}", shim.name);
    }
}
