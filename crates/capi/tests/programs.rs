//! Programs that check what each type does, under each compiler and with each kind of library.

use std::path::Path;

use poundlock_testing::scratch;

use crate::setup::{CLANG, CLANGXX, Compiler, GCC, GXX, Linkage, installed, run, source};

/// Compiles one of `tests/capi` with each compiler, and runs it with each kind of library.
#[track_caller]
fn passes(program: &str, compilers: &[(Compiler, &[Linkage])]) {
    let Some(installed) = installed() else { return };
    let path = source("tests/capi").join(program);
    for (compiler, linkages) in compilers.iter().filter(|(compiler, _)| compiler.is_there()) {
        let object = installed.compile(compiler, &path);
        for linkage in *linkages {
            run(&mut installed.command(&installed.link(compiler, *linkage, &object)));
        }
    }
}

macro_rules! c {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            passes(concat!(stringify!($name), ".c"), &[
                (GCC, &[Linkage::Shared, Linkage::StaticPie]),
                (CLANG, &[Linkage::Shared, Linkage::Static]),
            ]);
        }
    )*};
}

c! { mutex recursive spinlock cond rwlock semset fork }

macro_rules! cxx {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let program = concat!(stringify!($name), ".cpp");
            passes(program, &[(GXX, &[Linkage::Shared, Linkage::StaticPie]), (CLANGXX, &[Linkage::Shared])]);
        }
    )*};
}

cxx! { locks condition semaphores }

/// The standard's named requirements, which the compiler checks.
#[test]
fn concepts() {
    passes("concepts.cpp", &[(GXX, &[Linkage::Shared]), (CLANGXX, &[Linkage::Shared])]);
}

/// The archive alone, in a program that is linked with the C library as usual.
#[test]
fn archive() {
    let Some(installed) = installed() else { return };
    let program = scratch().join("archive");
    let mut compiler = GCC.start(&["-pthread"]);
    compiler
        .args(installed.pkg_config(&["--cflags"]))
        .arg("-o")
        .arg(&program)
        .arg(source("tests/capi/mutex.c"));
    run(compiler.arg(installed.file("lib/libpoundlock.a")));
    run(&mut installed.command(&program));
}

/// A program that opens the library.
#[test]
fn dlopen() {
    let Some(installed) = installed() else { return };
    let program = scratch().join("dlopen");
    let mut compiler = GCC.start(&["-Wno-pedantic", "-pthread"]);
    compiler.args(installed.pkg_config(&["--cflags"])).arg("-o").arg(&program);
    run(compiler.arg(source("tests/capi/dlopen.c")));
    run(installed
        .command(&program)
        .arg(installed.file(Path::new("lib").join(soname(installed)).to_str().expect("text"))));
}

/// Where the kernel does not wipe the page by which a forked child knows that it is one, a child of `fork` is
/// told.
#[test]
fn fork_where_pages_are_not_wiped() {
    let Some(installed) = installed() else { return };
    let program = scratch().join("old_kernel");
    let mut compiler = GCC.start(&["-Wno-pedantic", "-pthread"]);
    run(compiler.arg("-o").arg(&program).arg(source("tests/dropin/old_kernel.c")));
    let object = installed.compile(&GCC, &source("tests/capi/fork.c"));
    for linkage in [Linkage::Shared, Linkage::Static] {
        let fork = installed.link(&GCC, linkage, &object);
        let output = installed.command(&program).arg(fork).output().expect("it starts");
        // 77: it is not allowed to set a filter.
        assert!(matches!(output.status.code(), Some(0 | 77)), "{output:?}");
    }
}

/// A plugin that the archive is linked into is unloaded.
#[test]
fn unload() {
    let Some(installed) = installed() else { return };
    let [program, plugin] = ["unload", "plugin.so"].map(|name| scratch().join(name));
    let mut compiler = GCC.start(&["-Wno-pedantic", "-pthread"]);
    run(compiler.arg("-o").arg(&program).arg(source("tests/capi/unload.c")));
    let mut compiler = GCC.start(&["-shared", "-fPIC"]);
    compiler.args(installed.pkg_config(&["--cflags"])).arg("-o").arg(&plugin);
    run(compiler.arg(source("tests/capi/plugin.c")).arg(installed.file("lib/libpoundlock.a")));
    run(installed.command(&program).arg(plugin));
}

/// What programs that are linked with the library look for.
fn soname(installed: &crate::setup::Installed) -> String {
    let mut readelf = std::process::Command::new("readelf");
    let output = run(readelf.arg("--dynamic").arg(installed.file("lib/libpoundlock.so")));
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.lines().find(|line| line.contains("SONAME")).expect("it has a name");
    line.split(['[', ']']).nth(1).expect("in brackets").to_owned()
}
