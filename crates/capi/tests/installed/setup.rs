//! The installed library, compilers, and programs with a limit on their time.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

/// Seconds that a program may take: only a hang reaches this. The programs have a shorter limit of their own,
/// and say where they hang.
const LIMIT: &str = "60";

/// Whether `program` is installed. If not, after a line on standard error the first time; with
/// `POUNDLOCK_REAL=require` a failed test.
#[track_caller]
pub(crate) fn need(program: &str, how: &str) -> bool {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !found {
        assert!(
            std::env::var_os("POUNDLOCK_REAL").is_none_or(|value| value != "require"),
            "POUNDLOCK_REAL=require, and {program} is missing ({how})"
        );
        if REPORTED.lock().expect("no panic holds this lock").insert(program.to_owned()) {
            // Not eprintln!: the test harness would keep the line to itself.
            let _ = writeln!(std::io::stderr(), "SKIPPED: needs {program} ({how})");
        }
    }
    found
}

/// Runs a command that has to succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
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
    let tools = need("cargo-cinstall", "cargo install cargo-c --locked")
        & need("pkg-config", "apt-get install pkgconf")
        & need("cc", "apt-get install gcc");
    tools.then(|| INSTALLED.get_or_init(Installed::new))
}

impl Installed {
    fn new() -> Installed {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let root = directory.join("installed");
        // What an earlier version installed and this one does not must not be found.
        let _ = std::fs::remove_dir_all(&root);
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["cinstall", "--release", "--package", "poundlock-capi", "--offline", "--locked"]);
        // A target directory of its own: that of the cargo which runs the tests may be locked.
        cargo.arg("--target-dir").arg(directory.join("cargo-c"));
        cargo.arg("--destdir").arg(&root).args(["--prefix", "/usr", "--libdir", "/usr/lib"]);
        cargo.current_dir(source("")).env_remove("CARGO_TARGET_DIR");
        run(&mut cargo);
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

    /// Compiles a program and returns where it is.
    #[track_caller]
    pub(crate) fn compile(&self, compiler: &Compiler, linkage: Linkage, program: &Path) -> PathBuf {
        let directory = self.root.join("programs");
        std::fs::create_dir_all(&directory).expect("a directory of ours");
        let name = program.file_name().and_then(OsStr::to_str).expect("a file");
        let out = directory.join(format!("{name}-{}-{linkage:?}", compiler.command));
        let mut command = compiler.start(&["-O1", "-pthread"]);
        command.args(linkage.options()).arg("-o").arg(&out).arg(program);
        command.args(self.pkg_config(match linkage {
            Linkage::Shared => &["--cflags", "--libs"],
            Linkage::Static | Linkage::StaticPie => &["--static", "--cflags", "--libs"],
        }));
        run(&mut command);
        out
    }

    /// To run a program with the installed library, for a limited time.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", LIMIT]).arg(program).env("LD_LIBRARY_PATH", self.file("lib"));
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
        need(self.command, &format!("apt-get install {}", self.package))
    }

    /// A call of it that bears no warnings.
    pub(crate) fn start(&self, options: &[&str]) -> Command {
        let mut command = Command::new(self.command);
        command.args([self.standard, "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.args(options);
        command
    }
}
