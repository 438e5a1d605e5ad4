//! The installed library, and compilers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub(crate) use poundlock_testing::need;
use poundlock_testing::{
    LIMIT, expect_status, made, missing, once_a_run, run_limited, scratch, target_directory,
};

/// Runs a command that has to succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let output = run_limited(command, LIMIT);
    expect_status(&output, 0);
    output
}

/// A file of the repository.
pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Where Poundlock was installed.
pub(crate) struct Installed {
    root: PathBuf,
}

/// The installed library; `None` if a tool for it is missing.
#[track_caller]
pub(crate) fn installed() -> Option<&'static Installed> {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    let cargo_c = Command::new(env!("CARGO")).args(["cinstall", "--version"]).output();
    if !cargo_c.is_ok_and(|output| output.status.success()) {
        missing("cargo-cinstall", "cargo install cargo-c --locked");
        return None;
    }
    let _tools = (need("pkg-config", "pkgconf")?, need("cc", "gcc")?);
    Some(INSTALLED.get_or_init(Installed::new))
}

impl Installed {
    fn new() -> Installed {
        let root = once_a_run("installed", |root| {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["cinstall", "--release", "--package", "poundlock-capi", "--offline", "--locked"]);
            // A target directory of its own: cargo-c builds with flags of its own.
            cargo.arg("--target-dir").arg(target_directory().join("tmp/cargo-c"));
            cargo.arg("--destdir").arg(root).args(["--prefix", "/usr", "--libdir", "/usr/lib"]);
            run(cargo.current_dir(source("")).env_remove("CARGO_TARGET_DIR"));
        });
        Installed { root }
    }

    /// A file below the prefix.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.join("usr").join(name)
    }

    /// Has pkg-config find it, called by this command or by what it starts.
    pub(crate) fn with_pkg_config<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let path = self.file("lib/pkgconfig");
        command.env("PKG_CONFIG_PATH", path).env("PKG_CONFIG_SYSROOT_DIR", &self.root)
    }

    /// What pkg-config says of it.
    #[track_caller]
    pub(crate) fn pkg_config(&self, options: &[&str]) -> Vec<String> {
        let mut pkg_config = Command::new("pkg-config");
        let output = run(self.with_pkg_config(pkg_config.args(options).arg("poundlock")));
        let text = String::from_utf8(output.stdout).expect("text");
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// What a compiler reads of a program.
    pub(crate) fn read_of(&self, program: &Path) -> Vec<PathBuf> {
        let headers = ["poundlock.h", "poundlock.hpp"].map(|name| self.file("include").join(name));
        let beside = std::fs::read_dir(program.parent().expect("a file lies in a directory"));
        let beside = beside.expect("it can be listed").map(|entry| entry.expect("it can be read").path());
        let beside = beside.filter(|path| path.extension().is_some_and(|kind| kind == "h"));
        headers.into_iter().chain(beside).chain([program.to_owned()]).collect()
    }

    /// Compiles a program and returns where its object is.
    #[track_caller]
    pub(crate) fn compile(&self, compiler: &Compiler, program: &Path) -> PathBuf {
        let object = scratch().join(program.with_extension("o").file_name().expect("a file"));
        let mut command = compiler.start(&["-O1", "-pthread", "-c"]);
        command.arg("-o").arg(&object).arg(program).args(self.pkg_config(&["--cflags"]));
        made(&mut command, &self.read_of(program), &object);
        object
    }

    /// Links it with the library and returns where the program is.
    #[track_caller]
    pub(crate) fn link(&self, compiler: &Compiler, linkage: Linkage, object: &Path) -> PathBuf {
        let program = scratch().join("program");
        let mut command = compiler.start(&["-pthread"]);
        command.args(linkage.options()).arg("-o").arg(&program).arg(object);
        run(command.args(self.pkg_config(match linkage {
            Linkage::Shared => &["--libs"],
            Linkage::Static | Linkage::StaticPie => &["--static", "--libs"],
        })));
        program
    }

    /// To run a program with the installed library.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.file("lib"));
        command
    }
}

/// How a program is linked with the library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Linkage {
    Shared,
    Static,
    StaticPie,
}

impl Linkage {
    fn options(self) -> &'static [&'static str] {
        match self {
            Linkage::Shared => &[],
            Linkage::Static => &["-static"],
            Linkage::StaticPie => &["-static-pie"],
        }
    }
}

/// A compiler of C or C++.
pub(crate) struct Compiler {
    pub(crate) command: &'static str,
    package: &'static str,
    standard: &'static str,
}

pub(crate) const GCC: Compiler = Compiler { command: "gcc", package: "gcc", standard: "-std=c11" };
pub(crate) const CLANG: Compiler = Compiler { command: "clang", package: "clang", standard: "-std=c11" };
pub(crate) const GXX: Compiler = Compiler { command: "g++", package: "g++", standard: "-std=c++17" };
pub(crate) const CLANGXX: Compiler =
    Compiler { command: "clang++", package: "clang", standard: "-std=c++17" };

impl Compiler {
    #[track_caller]
    pub(crate) fn is_there(&self) -> bool {
        need(self.command, self.package).is_some()
    }

    /// A call of it that bears no warnings.
    pub(crate) fn start(&self, options: &[&str]) -> Command {
        let mut command = Command::new(self.command);
        command.args([self.standard, "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.args(options);
        command
    }
}
