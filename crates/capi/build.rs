//! Links the shared library, if cargo-c builds it.

#[path = "../preload/stand_ins.rs"]
mod stand_ins;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=libpoundlock.map");
    println!("cargo::rerun-if-changed=../preload/stand_ins.rs");
    // cargo-c sets it.
    println!("cargo::rustc-check-cfg=cfg(cargo_c)");
    if env::var_os("CARGO_FEATURE_CAPI").is_none() {
        return;
    }
    let link = |argument: &str| println!("cargo::rustc-cdylib-link-arg={argument}");
    // Waiters' records, thread-locals and the fork handler point into the library for good: it must not be
    // unloaded.
    link("-Wl,-z,nodelete");
    // Bind everything at start-up: a lock must not enter the dynamic linker at its first use.
    link("-Wl,-z,now");
    // See `linked_rseq` in library.rs.
    link("-Wl,--defsym=__rseq_offset=0,--defsym=__rseq_size=0");
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    wrap_linker(&out_dir);
    link(&format!("-B{}", out_dir.display()));
    link("-fuse-ld=bfd");
    let script =
        Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("libpoundlock.map");
    link(&format!("-Wl,--version-script={}", script.display()));
}

/// Versioned symbols need a version script of ours, and the compiler always passes one without versions, with
/// which no other can be combined. So the compiler driver is given a linker that leaves that one out.
///
/// It also links the shared library with glibc's libraries as they were, before those that are here. Named to
/// cargo, they would be asked for by programs that are linked with the static library.
fn wrap_linker(directory: &Path) {
    let driver = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let linker = Command::new(&driver).arg("-print-prog-name=ld.bfd").output().ok();
    let linker = linker.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let linker = if linker.trim().is_empty() { "ld.bfd" } else { linker.trim() };
    let old = stand_ins::STAND_INS.map(|stand_in| format!("\"{}\"", stand_in.make(directory).display()));
    let old = old.join(" ");
    let text = format!(
        r#"#!/bin/sh
# Made by build.rs: the linker, without the script that rustc passes, and with libraries of an older glibc.
for argument do
	shift
	case $argument in
	--version-script=*/rustc*/list) ;;
	*) set -- "$@" "$argument" ;;
	esac
done
exec "{linker}" --push-state --no-as-needed {old} --pop-state "$@"
"#
    );
    let path = directory.join("ld.bfd");
    fs::write(&path, text).expect("OUT_DIR can be written to");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}
