//! A plugin that is linked with the crate is unloaded: `tests/capi/unload.c`, which says what may not be left
//! behind.

use std::path::Path;
use std::process::Command;

#[test]
fn a_plugin_unloaded_right_after_an_unlock_leaves_no_thread_pointing_into_it() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));

    // `cargo test` builds no examples that are libraries. A target directory of its own: that of the cargo
    // which runs the tests may be locked.
    let target = directory.join("plugin");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--release",
        "--package",
        "poundlock",
        "--example",
        "plugin",
        "--offline",
        "--locked",
    ]);
    let built =
        cargo.arg("--target-dir").arg(&target).current_dir(here).env_remove("CARGO_TARGET_DIR").output();
    let built = built.expect("cargo starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let program = directory.join("unload");
    let flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
    let mut compiler = Command::new("cc");
    compiler.args(flags).arg(&program).arg(here.join("../../tests/capi/unload.c"));
    assert!(compiler.status().expect("cc starts").success());

    // Limits its time itself.
    let plugin = target.join("release/examples/libplugin.so");
    let output = Command::new(program).arg(plugin).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}
