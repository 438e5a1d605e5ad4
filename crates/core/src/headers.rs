//! A lock's file says last where its proof, its models and its stress tests are: the paths are there.

extern crate std;

use std::path::Path;
use std::string::String;
use std::{fs, println};

const LOCKS: [&str; 8] = [
    "adaptive/mod.rs",
    "condvar.rs",
    "handoff/mod.rs",
    "poundlock/mod.rs",
    "qspin/mod.rs",
    "rwlock/mod.rs",
    "semarray/mod.rs",
    "waiting/mod.rs",
];

#[test]
fn the_headers_name_files_that_exist() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = core.join("../..");
    for lock in LOCKS {
        let text = fs::read_to_string(core.join("src").join(lock)).expect(lock);
        let header: String = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        let mut rest = header.as_str();
        // From the end: each goes on until the next.
        for what in [" Stress: ", " Models: ", " Proof: "] {
            let (before, paths) =
                rest.rsplit_once(what).unwrap_or_else(|| panic!("{lock}: no{what}in {rest}"));
            rest = before;
            for path in paths.split(", ") {
                println!("{lock}:{what}{path}");
                assert!(repository.join(path).is_file(), "{lock}: there is no {path}");
            }
        }
    }
}
