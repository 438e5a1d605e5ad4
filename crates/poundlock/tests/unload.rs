//! A plugin that is linked with the crate is unloaded: `tests/capi/unload.c`, which says what may be left behind.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_plugin_unloaded_right_after_an_unlock_leaves_no_thread_pointing_into_it() {
    let test = std::env::current_exe().expect("a name");
    let plugin: PathBuf =
        test.ancestors().nth(2).expect("in target/release/deps").join("examples/libplugin.so");
    let how = "`cargo test` without `--test` builds it";
    assert!(plugin.exists(), "{} is not there: {how}", plugin.display());

    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/capi/unload.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unload");
    let flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
    let built = Command::new("cc").args(flags).arg(&program).arg(source).status().expect("cc starts");
    assert!(built.success());
    // Limits its time itself.
    let output = Command::new(program).arg(plugin).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}
