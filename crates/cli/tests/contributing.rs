//! What CONTRIBUTING.md names is there.

use std::path::Path;

/// Files by their paths, switches by the sources that read them.
#[test]
fn files_and_switches_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("CONTRIBUTING.md")).expect("it is there");
    let mut paths = 0;
    for word in text.split(['`', '(', ')']).filter(|word| !word.contains([' ', '\n'])) {
        let is_path =
            ["crates/", "docs/", "tests/", ".ci/", "./"].iter().any(|start| word.starts_with(start));
        if is_path && !word.contains("NAME") {
            paths += 1;
            assert!(root.join(word).exists(), "there is no {word}");
        }
    }
    assert!(paths > 20, "{paths} paths were found");
    let sources = [
        "crates/model/src/explore.rs",
        "crates/sim/tests/locks.rs",
        "crates/model/tests/semarray/histories.rs",
        "crates/model/tests/arrays/histories.rs",
        "crates/cli/tests/dropin/semarray.rs",
        "crates/cli/tests/torture.rs",
        "crates/testing/src/need.rs",
        "crates/peers/build.rs",
    ];
    let sources: String =
        sources.iter().filter_map(|path| std::fs::read_to_string(root.join(path)).ok()).collect();
    for switch in text.split(['`', '=', ' ']).filter(|word| word.starts_with("POUNDLOCK_")) {
        assert!(sources.contains(switch), "nothing reads {switch}");
    }
}
