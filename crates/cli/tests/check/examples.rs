//! Every example gives the finding that it is named for, at the lines that are marked in it; its twin gives none.

use std::collections::BTreeSet;

use super::{Example, directory, frames};
use crate::support::{LIMIT, need, poundlock, run_limited, stdout};

/// What can be found, each with an example of its name.
pub(super) const KINDS: [&str; 21] = [
    "order",
    "deadlock",
    "relock",
    "unlock-other",
    "unlock-free",
    "destroy-held",
    "destroy-waited",
    "free-held",
    "frame-gone",
    "uninitialised",
    "destroyed",
    "copied",
    "exit-held",
    "fork-held",
    "two-mutexes",
    "lone-signal",
    "handler",
    "blocking",
    "held-long",
    "reread",
    "nesting",
];

/// The kind that an example is named for.
#[track_caller]
fn kind_of(name: &str) -> &'static str {
    let kinds = KINDS.into_iter().filter(|kind| name.starts_with(kind));
    kinds.max_by_key(|kind| kind.len()).unwrap_or_else(|| panic!("{name} is named for nothing"))
}

/// The example has its finding alone, in words and as JSON, with all of its lines.
#[track_caller]
fn finds(name: &str, options: &[&str]) {
    let example = Example::compile(name);
    let kind = kind_of(name);
    let checked = example.check(options);
    // The lines that lead to a deadlock may be seen to be in the wrong order before it is there, and a thread that
    // takes what it holds waits for itself then.
    let findings: Vec<_> = checked
        .findings()
        .iter()
        .filter(|finding| kind != "deadlock" || finding["kind"] != "order")
        .filter(|finding| kind != "relock" || finding["kind"] != "deadlock")
        .collect();
    let kinds: Vec<_> = findings.iter().map(|finding| &finding["kind"]).collect();
    assert_eq!(kinds, [kind], "{name} {options:?}\n{}\n{:#}", checked.report, checked.json);
    let (frames, named) = (frames(findings[0]), example.named());
    assert!(!named.is_empty(), "{name} marks no line");
    for line in &named {
        assert!(
            frames.iter().any(|frame| frame.ends_with(line.as_str())),
            "{name} {options:?}: {line} not in {frames:?}\n{}",
            checked.report
        );
        assert!(checked.report.contains(line.as_str()), "{name} {options:?}: {line}\n{}", checked.report);
    }
    assert!(checked.report.contains(kind), "{}", checked.report);
}

/// Nothing is found, the program ends as it does by itself, and nothing is said but that.
#[track_caller]
fn is_silent(name: &str, options: &[&str]) {
    let example = Example::compile(name);
    assert_eq!(example.named(), [""; 0], "{name} is to be silent");
    let checked = example.check(options);
    assert!(checked.findings().is_empty(), "{name} {options:?}\n{}\n{:#}", checked.report, checked.json);
    assert_eq!(checked.status, Some(0), "{name} {options:?}\n{}", checked.report);
}

/// On the program's own locks, and on ours.
const LOCKS: [&[&str]; 2] = [&[], &["--lock", "poundlock"]];

/// What is known of a lock in the same way whichever it is.
#[test]
fn other_locks_are_checked_as_well() {
    for locks in [["--lock", "any-negative"], ["--lock", "handoff"]] {
        for name in ["order", "deadlock", "order-condition"] {
            finds(name, &locks);
            is_silent(&format!("{name}-ok"), &locks);
        }
    }
}

#[track_caller]
fn pair(name: &str) {
    for locks in LOCKS {
        finds(name, locks);
    }
    twin(name);
}

#[track_caller]
fn twin(name: &str) {
    for locks in LOCKS {
        is_silent(&format!("{name}-ok"), locks);
    }
}

mod pairs {
    use super::pair;

    macro_rules! pairs {
        ($($test:ident $name:literal;)*) => {
            $(
                #[test]
                fn $test() {
                    pair($name);
                }
            )*
            pub(super) const NAMES: &[&str] = &[$($name),*];
        };
    }
    pairs! {
        order "order";
        order_in_a_ring "order-ring";
        order_of_accounts "order-accounts";
        order_of_classes "order-class";
        order_of_readers_and_writers "order-readers";
        order_of_readers_behind_writers "order-fair";
        order_after_a_trylock "order-trylock";
        order_beside_a_gate "order-gate";
        order_of_locks_made_anew "order-anew";
        order_around_a_condition_variable "order-condition";
        order_of_spinlocks "order-spin";
        order_of_c11_mutexes "order-c11";
        order_of_semaphores "order-semaphores";
        deadlock "deadlock";
        deadlock_at_a_join "deadlock-join";
        deadlock_of_a_lost_signal "deadlock-signal";
        relock "relock";
        unlock_other "unlock-other";
        unlock_free "unlock-free";
        destroy_held "destroy-held";
        init_held "destroy-held-init";
        destroy_waited "destroy-waited";
        destroy_waited_with "destroy-waited-mutex";
        free_held "free-held";
        unmap_held "free-held-munmap";
        move_held "free-held-realloc";
        frame_gone "frame-gone";
        uninitialised "uninitialised";
        destroyed "destroyed";
        copied "copied";
        exit_held "exit-held";
        fork_held "fork-held";
        two_mutexes "two-mutexes";
        lone_signal "lone-signal";
        handler "handler";
        blocking "blocking";
        held_long "held-long";
        reread "reread";
        nesting "nesting";
    }
}

/// Those of the C library's locks are the kernel's.
#[test]
fn deadlock_through_arrays() {
    finds("deadlock-arrays", &[]);
    is_silent("deadlock-arrays-ok", &[]);
}

#[test]
fn order_of_cxx_mutexes() {
    if need("c++", "g++").is_some() {
        pair("order-cxx");
    }
}

#[test]
fn order_of_one_thread_alone() {
    twin("order-alone");
}

/// Readers wait for writers that wait if the locks are phase-fair, whatever the program asked for.
#[test]
fn readers_of_phase_fair_locks() {
    for name in ["order-fair-ok", "reread-ok"] {
        let checked = Example::compile(name).check(&["--rwlock", "phase-fair"]);
        checked.only(kind_of(name));
    }
}

/// What nobody asked for is not looked for: semaphores as locks, signals without the mutex, nesting, long holds.
#[test]
fn what_is_to_be_asked_for() {
    for name in ["order-semaphores", "lone-signal", "nesting", "blocking", "held-long"] {
        let mut example = Example::compile(name);
        example.options.clear();
        example.check(&[]).nothing();
    }
}

/// No example is left out, every kind of finding has one and can be asked for, and the page has it.
#[test]
fn every_example_is_run() {
    let mut listed: BTreeSet<String> =
        pairs::NAMES.iter().flat_map(|name| [(*name).to_owned(), format!("{name}-ok")]).collect();
    // The library's need the C library: crates/capi/tests/seen.rs.
    let further = ["order-cxx", "order-cxx-ok", "order-alone-ok", "deadlock-arrays", "deadlock-arrays-ok"];
    listed.extend(further.map(str::to_owned));
    listed.extend(["order-library", "order-library-ok"].map(str::to_owned));
    let there: BTreeSet<String> = std::fs::read_dir(directory())
        .expect("a directory")
        .map(|entry| {
            entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned()
        })
        .collect();
    assert_eq!(there, listed);
    let page = std::fs::read_to_string(directory().join("../../docs/CHECKING.md")).expect("the page");
    let help = stdout(&run_limited(poundlock().args(["check", "--help"]), LIMIT));
    for kind in KINDS {
        assert!(there.contains(kind), "no example of {kind}");
        assert!(
            page.lines().any(|line| line.starts_with('#') && line.ends_with(&format!("`{kind}`"))),
            "docs/CHECKING.md has no heading `{kind}`"
        );
        assert!(help.contains(kind), "{help}");
    }
    for name in &there {
        assert!(
            page.contains(&format!("`{name}.")) || name.ends_with("-ok"),
            "docs/CHECKING.md does not name {name}"
        );
    }
}
