//! Makes shared objects of shims: for the build script, and for the tests of what it does without a package.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A few lines in C or C++ that put a package's locks behind our functions.
pub(crate) struct Shim {
    /// The name of the feature.
    pub(crate) name: &'static str,
    /// The file in `shims/`.
    pub(crate) source: &'static str,
    /// A header of the package: if it is there, so is the package.
    pub(crate) header: &'static str,
    /// The package in Debian and Ubuntu.
    pub(crate) package: &'static str,
    /// What to link with.
    pub(crate) library: Library,
}

/// What a shim needs besides headers.
pub(crate) enum Library {
    /// Nothing.
    None,
    /// This library. From its archive if there is one, for then it is not missed at run time, together with
    /// other archives beside it whose names begin alike, which it may refer to.
    Archive { name: &'static str, siblings: &'static str },
    /// This library, which exists only as a shared object.
    Shared { name: &'static str },
}

pub(crate) const SHIMS: [Shim; 4] = [
    Shim {
        name: "abseil",
        source: "abseil.cc",
        header: "absl/synchronization/mutex.h",
        package: "libabsl-dev",
        library: Library::Archive { name: "absl_synchronization", siblings: "libabsl_" },
    },
    Shim {
        name: "nsync",
        source: "nsync.c",
        header: "nsync.h",
        package: "libnsync-dev",
        library: Library::Archive { name: "nsync", siblings: "libnsync." },
    },
    Shim {
        name: "onetbb",
        source: "onetbb.cc",
        header: "oneapi/tbb/mutex.h",
        package: "libtbb-dev",
        library: Library::Shared { name: "tbb" },
    },
    Shim {
        name: "ck",
        source: "ck.c",
        header: "ck_spinlock.h",
        package: "libck-dev",
        library: Library::None,
    },
];

/// A shim that is made.
#[derive(Debug)]
pub(crate) struct Made {
    /// The shared object.
    pub(crate) object: PathBuf,
    /// The package with its version.
    pub(crate) origin: String,
}

/// Whose compilers make the shims.
pub(crate) struct Compilers {
    pub(crate) target: String,
    pub(crate) host: String,
}

/// A way to link.
struct Way {
    arguments: Vec<OsString>,
    /// The shared object where the package's code lies, if not in what is made.
    library: Option<String>,
}

impl Compilers {
    /// Makes a shim whose source lies in `sources`.
    ///
    /// # Errors
    /// One line: what is missing or wrong, and what to do about it.
    pub(crate) fn make(&self, shim: &Shim, sources: &Path, out: &Path) -> Result<Made, String> {
        let cpp = Path::new(shim.source).extension().is_some_and(|extension| extension == "cc");
        let header = self.header(shim, cpp, out)?;
        let object = out.join(format!("{}.so", shim.name));
        let mut problem = String::new();
        for way in self.ways(shim, cpp) {
            let mut command = self.compiler(cpp)?;
            command
                .arg("-shared")
                .arg("-fvisibility=hidden")
                .arg("-o")
                .arg(&object)
                .arg(sources.join(shim.source));
            // Nothing of ours or theirs is visible but the entrance; nothing is looked up during a call; and
            // what the shim lacks is found out now.
            command.args(["-Wl,--exclude-libs,ALL", "-Wl,-z,now", "-Wl,--gc-sections", "-Wl,--no-undefined"]);
            command.args(&way.arguments).arg("-pthread");
            let output = run(&mut command, cpp)?;
            if output.status.success() {
                let mut origin = origin(&header, shim);
                let library = way.library.and_then(|file| self.file(&file, cpp));
                if asserts(library.as_deref().unwrap_or(&object)) {
                    origin += ", built with assertions";
                }
                return Ok(Made { object, origin });
            }
            // The last way is the plainest.
            problem = first_error(&output);
        }
        Err(format!("{} is installed, but does not build as expected: {problem}", shim.package))
    }

    /// Where the package's header is.
    fn header(&self, shim: &Shim, cpp: bool, out: &Path) -> Result<PathBuf, String> {
        let probe = out.join(format!("{}-probe.{}", shim.name, if cpp { "cc" } else { "c" }));
        let listed = out.join(format!("{}-probe.d", shim.name));
        std::fs::write(&probe, format!("#include <{}>\n", shim.header))
            .map_err(|error| format!("cannot write {}: {error}", probe.display()))?;
        let mut command = self.compiler(cpp)?;
        command.arg("-E").arg("-MD").arg("-MF").arg(&listed).arg(&probe).arg("-o").arg("/dev/null");
        if !run(&mut command, cpp)?.status.success() {
            return Err(format!(
                "install {0} (Debian and Ubuntu: apt-get install {0}) and build again",
                shim.package
            ));
        }
        let listed = std::fs::read_to_string(&listed).unwrap_or_default();
        let header = listed.split_whitespace().find(|path| path.ends_with(shim.header));
        Ok(PathBuf::from(header.unwrap_or(shim.header)))
    }

    /// The compiler with the flags of a release, whatever profile we are built in.
    fn compiler(&self, cpp: bool) -> Result<Command, String> {
        let mut build = cc::Build::new();
        build
            .cpp(cpp)
            .std(if cpp { "c++17" } else { "gnu11" })
            .target(&self.target)
            .host(&self.host)
            .opt_level(2)
            .debug(false)
            .force_frame_pointer(false)
            .pic(true)
            // One jump into the library, as a call through a table in a program of its own would take.
            .use_plt(false)
            .define("NDEBUG", None)
            .cargo_metadata(false)
            .cargo_warnings(false);
        let tool = build.try_get_compiler().map_err(|error| format!("there is no compiler: {error}"))?;
        Ok(tool.to_command())
    }

    /// Ways to link a shim, the best first.
    fn ways(&self, shim: &Shim, cpp: bool) -> Vec<Way> {
        let shared = |name| Way {
            arguments: vec![format!("-l{name}").into()],
            library: Some(format!("lib{name}.so")),
        };
        match shim.library {
            Library::None => vec![Way { arguments: vec![], library: None }],
            Library::Shared { name } => vec![shared(name)],
            Library::Archive { name, siblings } => {
                let archives = self.archives(name, siblings, cpp).map(|archives| {
                    let group = [OsString::from("-Wl,--start-group")].into_iter().chain(archives);
                    let arguments = group.chain([OsString::from("-Wl,--end-group")]).collect();
                    Way { arguments, library: None }
                });
                archives.into_iter().chain([shared(name)]).collect()
            }
        }
    }

    /// Where the compiler finds a library's file.
    fn file(&self, name: &str, cpp: bool) -> Option<PathBuf> {
        let output = self.compiler(cpp).ok()?.arg(format!("-print-file-name={name}")).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        // The bare name means that it was not found.
        path.is_absolute().then_some(path)
    }

    /// The archive of a library and its siblings, if the compiler knows one.
    fn archives(&self, name: &str, siblings: &str, cpp: bool) -> Option<Vec<OsString>> {
        let path = self.file(&format!("lib{name}.a"), cpp)?;
        let directory = path.parent()?;
        let mut archives: Vec<_> = directory
            .read_dir()
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "a"))
            .filter(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(siblings)))
            .map(OsString::from)
            .collect();
        archives.sort();
        Some(archives)
    }
}

fn run(command: &mut Command, cpp: bool) -> Result<Output, String> {
    // The messages are looked through.
    command.env("LC_ALL", "C").output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if cpp => "needs a C++ compiler: install g++ and build again".to_owned(),
        io::ErrorKind::NotFound => "needs a C compiler: install gcc and build again".to_owned(),
        _ => format!("cannot start {}: {error}", command.get_program().to_string_lossy()),
    })
}

/// The first line of a compiler's complaints that says what is wrong.
fn first_error(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    // "collect2: error" only says that the linker has said something.
    let wrong = |line: &&str| {
        let telling = ["error", "undefined reference", "cannot find"];
        telling.iter().any(|part| line.contains(part)) && !line.starts_with("collect2")
    };
    text.lines()
        .find(wrong)
        .or(text.lines().next())
        .unwrap_or("the compiler does not say why")
        .trim()
        .to_owned()
}

/// Whether code was compiled without `NDEBUG`, and checks itself all the time: what is compiled here does
/// not.
fn asserts(file: &Path) -> bool {
    let text = b"__assert_fail\0";
    let bytes = std::fs::read(file).unwrap_or_default();
    bytes.windows(text.len()).any(|part| part == text)
}

/// Which package a header is from, and its version, as far as the system knows.
fn origin(header: &Path, shim: &Shim) -> String {
    let ask = |arguments: &[&std::ffi::OsStr]| {
        let output = Command::new("dpkg-query").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let package = || {
        let answer = ask(&["--search".as_ref(), header.as_os_str()])?;
        let package = answer.split(": ").next()?;
        let version =
            ask(&["--show".as_ref(), "--showformat=${Package} ${Version}".as_ref(), package.as_ref()])?;
        Some(format!("{} {version}", distribution()))
    };
    package().unwrap_or_else(|| format!("{} in {}", shim.name, header.display()))
}

/// `Debian`, `Ubuntu`, ...
fn distribution() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("NAME="));
    let name = name.map(|name| name.trim_matches('"').split(' ').next().unwrap_or(name).to_owned());
    name.unwrap_or_else(|| "package".to_owned())
}
