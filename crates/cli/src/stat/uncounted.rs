//! What a program may have waited for that is not in the table: functions that its files call and that are
//! not watched. Of locks made of atomic instructions alone there is no sign at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use object::{Object as _, ObjectSymbol as _};
use poundlock_statfile::Snapshot;
use serde::Serialize;

use super::symbols::file_name;

/// Sorts of waiting that are not watched, each with the functions by which a program gets to it.
const UNWATCHED: [(&str, &[&str]); 1] = [("futexes through syscall()", &["syscall"])];

/// Files of the C and C++ run-time systems: they are in every program, and what they call is not its doing.
const RUN_TIME: [&str; 9] = [
    "ld-linux",
    "libc.so",
    "libpthread.so",
    "librt.so",
    "libdl.so",
    "libm.so",
    "libgcc_s.so",
    "libstdc++.so",
    "libpoundlock_preload.so",
];

/// As many files are named for each sort: further ones are in the JSON.
const NAMED: usize = 3;

/// Of all processes of a run.
#[derive(Serialize)]
pub(super) struct Uncounted {
    /// What may have been used, going by the functions that the files call.
    possible: Vec<Possible>,
}

#[derive(Serialize)]
struct Possible {
    what: &'static str,
    files: BTreeSet<String>,
}

impl Uncounted {
    pub(super) fn new(snapshots: &[Snapshot]) -> Self {
        let paths: BTreeSet<&str> =
            snapshots.iter().flat_map(|snapshot| &snapshot.modules).map(|module| &*module.path).collect();
        let mut files: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for path in paths {
            let name = file_name(path);
            if RUN_TIME.iter().any(|of| name.starts_with(of)) {
                continue;
            }
            for what in unwatched(Path::new(path)) {
                files.entry(what).or_default().insert(name.to_string());
            }
        }
        let possible = UNWATCHED.iter().filter_map(|(what, _)| {
            let files = files.remove(what)?;
            Some(Possible { what, files })
        });
        Uncounted { possible: possible.collect() }
    }

    /// Writes it for a human reader. `empty`: nothing was counted, so that all there could be is said.
    pub(super) fn write(&self, out: &mut String, empty: bool) -> std::fmt::Result {
        if !self.possible.is_empty() {
            let sorts: Vec<String> = self.possible.iter().map(Possible::text).collect();
            writeln!(out, "not counted, if they were used: {}", sorts.join("; "))?;
        }
        if empty {
            writeln!(
                out,
                "never counted: locks that a language or a library makes of futexes or atomic instructions\n\
                 (Rust's std; Poundlock's own without the feature `stats`), and programs without our library"
            )?;
        }
        Ok(())
    }
}

impl Possible {
    fn text(&self) -> String {
        let mut names: Vec<String> = self.files.iter().take(NAMED).cloned().collect();
        if self.files.len() > NAMED {
            names.push(format!("and {} more", self.files.len() - NAMED));
        }
        let mut text = String::new();
        let _ = write!(text, "{} (called by {})", self.what, names.join(", "));
        text
    }
}

/// The sorts that the file at `path` calls functions of. None if it is no ELF file, or not there any more.
fn unwatched(path: &Path) -> Vec<&'static str> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Vec::new();
    }
    // Read as needed rather than mapped: its table of dynamic symbols is all that is wanted.
    let data = object::ReadCache::new(file);
    let Ok(file) = object::File::parse(&data) else { return Vec::new() };
    let undefined = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    let imports: BTreeSet<&str> = undefined.filter_map(|symbol| symbol.name().ok()).collect();
    let called = |functions: &[&str]| functions.iter().any(|name| imports.contains(name));
    UNWATCHED.iter().filter(|(_, functions)| called(functions)).map(|(what, _)| *what).collect()
}
