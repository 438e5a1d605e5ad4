//! What will run when the command is started: the file that `execvp` finds, the interpreters that its `#!`
//! lines name, and whether the dynamic loader will take our library into each of them.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{self, DynamicTag};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::elf_file::{self, Data, Elf};
use crate::message::{Failure, status};

/// The kernel follows this many `#!` lines, give or take one, and then fails with `ELOOP`.
const MAX_INTERPRETERS: usize = 5;

/// As much of a first line as the kernel reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE: usize = 256;

#[cfg(target_arch = "x86_64")]
pub(crate) const MACHINE: u16 = elf::EM_X86_64.0;
#[cfg(target_arch = "aarch64")]
pub(crate) const MACHINE: u16 = elf::EM_AARCH64.0;
#[cfg(target_arch = "riscv64")]
pub(crate) const MACHINE: u16 = elf::EM_RISCV.0;
#[cfg(target_arch = "s390x")]
pub(crate) const MACHINE: u16 = elf::EM_S390.0;
#[cfg(target_arch = "powerpc64")]
pub(crate) const MACHINE: u16 = elf::EM_PPC64.0;

/// Finds the file that `execvp` would run.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH");
    find_in(name, path.as_deref())
}

fn find_in(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let shown = name.display();
    if name.is_empty() {
        return Err(Failure::new(status::NOT_FOUND, "the command's name is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match runnable(&path) {
            Ok(()) => Ok(path),
            Err(reason) if reason.missing => {
                Err(Failure::new(status::NOT_FOUND, format_args!("{shown}: not found")))
            }
            Err(reason) => Err(Failure::new(status::NOT_EXECUTABLE, format_args!("{shown}: {}", reason.why))),
        };
    }
    let mut refused = None;
    // Without PATH, glibc's `execvp` searches these two (`confstr(_CS_PATH)`).
    for dir in std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin"))) {
        // An empty element is the current directory. Joined to it the name would lose its slash, and be
        // searched again.
        let candidate = if dir.as_os_str().is_empty() { Path::new(".").join(name) } else { dir.join(name) };
        match runnable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(reason) if reason.missing => {}
            Err(reason) => {
                refused.get_or_insert((candidate, reason.why));
            }
        }
    }
    Err(match refused {
        Some((path, why)) => {
            Failure::new(status::NOT_EXECUTABLE, format_args!("{shown}: {} ({})", why, path.display()))
        }
        None => Failure::new(status::NOT_FOUND, format_args!("{shown}: command not found")),
    })
}

struct NotRunnable {
    missing: bool,
    why: String,
}

/// Whether `execve` would find an executable file there.
fn runnable(path: &Path) -> Result<(), NotRunnable> {
    let meta = std::fs::metadata(path).map_err(|error| NotRunnable {
        missing: matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG)),
        why: reason(&error),
    })?;
    if meta.is_dir() {
        return Err(NotRunnable { missing: false, why: "a directory".to_string() });
    }
    if !meta.is_file() {
        return Err(NotRunnable { missing: false, why: "not a regular file".to_string() });
    }
    let c_path = c_string(path.as_os_str());
    // SAFETY: the path is a string that ends in a zero and lives through the call.
    if unsafe { libc::faccessat(libc::AT_FDCWD, c_path.as_ptr(), libc::X_OK, libc::AT_EACCESS) } == 0 {
        Ok(())
    } else {
        let error = std::io::Error::last_os_error();
        Err(NotRunnable { missing: false, why: format!("not executable: {}", reason(&error)) })
    }
}

/// The system's words for an error, without the number that `std` adds.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

fn c_string(text: &OsStr) -> CString {
    // An argument or environment string of ours came as a C string and holds no zero; a text read from a file
    // may.
    let end = text.as_bytes().iter().position(|&byte| byte == 0).unwrap_or(text.len());
    CString::new(&text.as_bytes()[..end]).unwrap_or_default()
}

/// Checks that the dynamic loader will take our library into the program at `path`, and into each interpreter
/// that runs it. A program that would run without our locks is refused: it would be silently unhelped.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    check_preload(path).map_err(|refusal| refusal.failure)
}

/// Why our library is not loaded into a program.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) failure: Failure,
    /// The program runs all the same, without the library: it is static, musl's, or gains privileges.
    pub(crate) runs: bool,
}

impl Refusal {
    fn new(runs: bool, line: impl std::fmt::Display) -> Refusal {
        Refusal { failure: Failure::new(status::NOT_EXECUTABLE, line), runs }
    }
}

/// As [`check`]; the refusal says whether the program runs without the library.
pub(crate) fn check_preload(path: &Path) -> Result<(), Refusal> {
    check_interpreted(path, MAX_INTERPRETERS)
}

fn check_interpreted(path: &Path, depth: usize) -> Result<(), Refusal> {
    let shown = path.display();
    let refuse = |why: String| Err(Refusal::new(false, format_args!("{shown}: {why}")));
    let mut first = Vec::new();
    match File::open(path).and_then(|file| file.take(FIRST_LINE as u64).read_to_end(&mut first)) {
        Ok(_) => {}
        // Executable but not readable: the kernel will run it, and secretly (no core dumps, no ptrace), yet
        // with our library. Nothing can be said about it beforehand.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return refuse(reason(&error)),
    }
    if first.starts_with(elf::ELFMAG.as_slice()) {
        return check_elf(path);
    }
    let Some(line) = shebang(&first) else {
        // `execvp` gives a file that the kernel does not know to the shell.
        return check_interpreted_by(path, Path::new("/bin/sh"), depth);
    };
    let interpreter = Path::new(&line.interpreter);
    check_interpreted_by(path, interpreter, depth)?;
    if interpreter.file_name() == Some(OsStr::new("env"))
        && let Some(program) = env_program(line.argument.as_deref())
    {
        let found = find(&program).map_err(|failure| {
            let line = format_args!("{shown}: its #! line asks for {}", failure.line);
            Refusal { failure: Failure::new(failure.status, line), runs: false }
        })?;
        check_interpreted_by(path, &found, depth)?;
    }
    Ok(())
}

fn check_interpreted_by(script: &Path, interpreter: &Path, depth: usize) -> Result<(), Refusal> {
    let blame = |refusal: Refusal| {
        let why = refusal.failure.line;
        Refusal::new(
            refusal.runs,
            format_args!("{}: its interpreter cannot be used: {why}", script.display()),
        )
    };
    if depth == 0 {
        let line = format!("{}: too many interpreters, each a script itself", script.display());
        return Err(Refusal::new(false, line));
    }
    // The kernel does not search for it: a name without a slash is one in the current directory.
    match runnable(interpreter) {
        Ok(()) => check_interpreted(interpreter, depth - 1).map_err(blame),
        Err(reason) => {
            let why = if reason.missing { "not found".to_string() } else { reason.why };
            Err(blame(Refusal::new(false, format_args!("{}: {why}", interpreter.display()))))
        }
    }
}

/// A `#!` line as the kernel takes it apart: at most one argument, blanks inside it included.
#[derive(Debug, PartialEq, Eq)]
struct Shebang {
    interpreter: OsString,
    argument: Option<OsString>,
}

fn shebang(first: &[u8]) -> Option<Shebang> {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let line = first.strip_prefix(b"#!")?;
    let line = &line[..line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len())];
    let start = line.iter().position(|byte| !blank(byte))?;
    let end = line.iter().rposition(|byte| !blank(byte))? + 1;
    let line = &line[start..end];
    let split = line.iter().position(blank).unwrap_or(line.len());
    let argument = line[split..].iter().position(|byte| !blank(byte)).map(|skip| &line[split + skip..]);
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Some(Shebang { interpreter: owned(&line[..split]), argument: argument.map(owned) })
}

/// The program that `#!/usr/bin/env ARGUMENT` runs. Options and assignments are skipped; `-S` splits the
/// argument.
fn env_program(argument: Option<&OsStr>) -> Option<OsString> {
    let text = argument?.as_bytes();
    let split = text.strip_prefix(b"-S").or_else(|| text.strip_prefix(b"--split-string="));
    let words: Vec<&[u8]> = match split {
        Some(rest) => rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect(),
        None => vec![text],
    };
    let program = words.into_iter().find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    Some(OsString::from_vec(program.to_vec()))
}

fn check_elf(path: &Path) -> Result<(), Refusal> {
    let shown = path.display();
    let refuse = |why: &str| Err(Refusal::new(false, format_args!("{shown}: {why}")));
    let runs = |why: &str| Err(Refusal::new(true, format_args!("{shown}: {why}")));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return refuse(&reason(&error)),
    };
    let data = Data::new(file);
    let ident = match object::FileKind::parse(&data) {
        Ok(object::FileKind::Elf64) => Elf::parse(&data),
        Ok(object::FileKind::Elf32) => return refuse("a 32-bit program, and our library is a 64-bit one"),
        _ => return refuse("its ELF header is damaged"),
    };
    let Ok(file) = ident else { return refuse("its ELF header is damaged") };
    let endian = file.endian();
    let header = file.elf_header();
    if header.e_machine(endian).0 != MACHINE || endian != native_endian() {
        return refuse("built for another kind of processor");
    }
    let interpreter =
        file.elf_program_headers().iter().find_map(|segment| segment.interpreter(endian, &data).ok()?);
    match interpreter {
        None if is_dynamic_loader(&file) => {}
        None => {
            return runs("statically linked: no library can be loaded into it");
        }
        Some(loader) => {
            let loader = Path::new(OsStr::from_bytes(loader));
            let name = loader.file_name().unwrap_or_default().as_bytes();
            if name.starts_with(b"ld-musl") {
                return runs("built for musl, whose dynamic loader takes no library that is made for glibc");
            }
            if !(name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so") || name.starts_with(b"ld.so"))
            {
                let line = format!("its dynamic loader {} is not glibc's", loader.display());
                return refuse(&line);
            }
            if !loader.exists() {
                let line = format!("its dynamic loader {} is not there", loader.display());
                return refuse(&line);
            }
        }
    }
    check_privileges(path)
}

fn native_endian() -> Endianness {
    if cfg!(target_endian = "little") { Endianness::Little } else { Endianness::Big }
}

/// Whether this is glibc's dynamic loader itself, run as a program (`ld.so PROGRAM`): it asks for no loader,
/// and preloads as ever.
fn is_dynamic_loader(file: &Elf<'_>) -> bool {
    dynamic_strings(file, elf::DT_SONAME)
        .first()
        .is_some_and(|name| name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so"))
}

/// The strings that a program's dynamic section has under a tag.
fn dynamic_strings<'data>(file: &Elf<'data>, tag: DynamicTag) -> Vec<&'data [u8]> {
    let strings = || {
        let endian = file.endian();
        let header = file.elf_header();
        let sections = header.sections(endian, file.data()).ok()?;
        let (entries, strings) = sections.dynamic(endian, file.data()).ok()??;
        let strings = sections.strings(endian, file.data(), strings).ok()?;
        let entries = entries.iter().filter(|entry| entry.d_tag(endian) == tag);
        Some(entries.filter_map(|entry| entry.string(endian, strings).ok()).collect())
    };
    strings().unwrap_or_default()
}

/// The first library that the program in this file is linked with and `wanted` is true of, by its name there.
pub(crate) fn needed(path: &Path, wanted: impl Fn(&[u8]) -> bool) -> Option<OsString> {
    let data = elf_file::open(path)?;
    let file = elf_file::parse(&data)?;
    let names = dynamic_strings(&file, elf::DT_NEEDED);
    names.into_iter().find(|name| wanted(name)).map(|name| OsStr::from_bytes(name).to_owned())
}

/// Refuses a program that gains privileges when it starts: the dynamic loader then ignores `LD_PRELOAD`
/// (`AT_SECURE`).
fn check_privileges(path: &Path) -> Result<(), Refusal> {
    let Some(what) = gains_privileges(path) else { return Ok(()) };
    let shown = path.display();
    Err(Refusal::new(true, format_args!("{shown}: {what}: its dynamic loader takes no library of ours")))
}

/// Whether a program gains privileges when we start it, and by what.
pub(crate) fn gains_privileges(path: &Path) -> Option<&'static str> {
    if is_mounted_nosuid(path) {
        return None;
    }
    let meta = std::fs::metadata(path).ok()?;
    // SAFETY: both calls only return a number.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    // A process that may gain no privileges any more keeps its ids.
    // SAFETY: this option takes no pointers; its unused arguments have to be zero.
    let ids_can_change = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } != 1;
    if ids_can_change && meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid {
        return Some("set-user-id");
    }
    // Without the group's x bit the bit means mandatory locking, and changes no group.
    let set_group_id = libc::S_ISGID | libc::S_IXGRP;
    if ids_can_change && meta.mode() & set_group_id == set_group_id && meta.gid() != gid {
        return Some("set-group-id");
    }
    // For root a file's capabilities are no gain. For others the loader is told to beware even where none is
    // gained.
    (uid != 0 && has_capabilities(path)).then_some("given file capabilities")
}

/// Whether set-user-id bits and capabilities have no effect on the file system that the program is on.
fn is_mounted_nosuid(path: &Path) -> bool {
    let path = c_string(path.as_os_str());
    let mut fs = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends in a zero, and the buffer is one `statvfs`, written by the call.
    if unsafe { libc::statvfs(path.as_ptr(), fs.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call succeeded and filled it in; all zeroes would be valid as well.
    unsafe { fs.assume_init() }.f_flag & libc::ST_NOSUID != 0
}

fn has_capabilities(path: &Path) -> bool {
    const NAME: &CStr = c"security.capability";
    let path = c_string(path.as_os_str());
    // SAFETY: both strings end in a zero; a size of 0 asks for the length of the value and writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), NAME.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use super::{Shebang, env_program, find_in, shebang};
    use crate::message::status;

    fn line(text: &str) -> Option<(String, Option<String>)> {
        let plain = |text: OsString| text.into_string().expect("these are UTF-8");
        shebang(text.as_bytes())
            .map(|Shebang { interpreter, argument }| (plain(interpreter), argument.map(plain)))
    }

    #[test]
    fn first_lines_are_taken_apart_as_the_kernel_does() {
        let pair = |a: &str, b: Option<&str>| Some((a.to_string(), b.map(str::to_string)));
        assert_eq!(line("#!/bin/sh\necho"), pair("/bin/sh", None));
        assert_eq!(line("#! \t/bin/sh -e -u \t\n"), pair("/bin/sh", Some("-e -u")));
        assert_eq!(line("#!/bin/sh"), pair("/bin/sh", None));
        assert_eq!(line("#!\n/bin/sh"), None);
        assert_eq!(line("#!   "), None);
        assert_eq!(line("# !/bin/sh"), None);
        assert_eq!(line(""), None);
    }

    #[test]
    fn env_lines_name_their_program() {
        let program =
            |text: &str| env_program(Some(OsStr::new(text))).map(|name| name.into_string().unwrap());
        assert_eq!(program("python3").as_deref(), Some("python3"));
        assert_eq!(program("-S python3 -u").as_deref(), Some("python3"));
        assert_eq!(program("-S -i A=1 B=2 perl -w").as_deref(), Some("perl"));
        // Without -S it is one word, blanks and all: a program of that name.
        assert_eq!(program("python3 -u").as_deref(), Some("python3 -u"));
        assert_eq!(program("-i"), None);
        assert_eq!(env_program(None), None);
    }

    #[test]
    fn the_search_takes_the_first_that_can_run() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a", "b", "c"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("a/tool"), "not for running").unwrap();
        std::fs::write(at("b/tool"), "#!/bin/sh\n").unwrap();
        let mut mode = std::fs::metadata(at("b/tool")).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(at("b/tool"), mode).unwrap();

        let search = |dirs: &[&str]| {
            let path = std::env::join_paths(dirs.iter().map(|name| at(name))).unwrap();
            find_in(OsStr::new("tool"), Some(&path))
        };
        assert_eq!(search(&["c", "a", "b"]).unwrap(), at("b/tool"));
        assert_eq!(search(&["a", "c"]).unwrap_err().status, status::NOT_EXECUTABLE);
        assert_eq!(search(&["c"]).unwrap_err().status, status::NOT_FOUND);
        assert_eq!(find_in(OsStr::new(""), None).unwrap_err().status, status::NOT_FOUND);
        assert_eq!(find_in(at("c").as_os_str(), None).unwrap_err().status, status::NOT_EXECUTABLE);
    }
}
