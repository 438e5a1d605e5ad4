//! A lock's file says last where its proof, its models and its stress tests are: the paths are there.

extern crate std;

use std::path::Path;
use std::vec::Vec;
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
        let header: Vec<_> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        let last = header.len() - 3;
        for (line, what) in header[last..].iter().zip([" Proof: ", " Models: ", " Stress: "]) {
            let paths = line.strip_prefix(what).unwrap_or_else(|| panic!("{lock}: no{what}in {line}"));
            for path in paths.split(", ") {
                println!("{lock}:{what}{path}");
                assert!(repository.join(path).is_file(), "{lock}: there is no {path}");
            }
        }
    }
}
