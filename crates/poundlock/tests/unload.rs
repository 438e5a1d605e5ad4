//! A plugin that is linked with the crate is unloaded: `tests/capi/unload.c`, which says what may not be left
//! behind.

use std::path::Path;
use std::process::Command;

use poundlock_testing::{LIMIT, build, built, expect_status, run_limited, scratch};

#[test]
fn a_plugin_unloaded_right_after_an_unlock_leaves_no_thread_pointing_into_it() {
    // `cargo test` builds no examples that are libraries.
    let plugin = built("examples/libplugin.so", "poundlock", &["--example", "plugin"]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/capi/unload.c");
    let program = scratch().join("unload");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(&source);
    build(&mut compiler, &source, &program);
    expect_status(&run_limited(Command::new(program).arg(plugin), LIMIT), 0);
}
