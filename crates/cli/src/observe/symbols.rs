//! From addresses in a process that is gone to functions, lines and variables.
//!
//! An address in a process becomes one in a file by the mapping it lies in: `address - start + offset` is a
//! place in the file, and the file's program headers say which of its own addresses that place has. Debug
//! information and symbol tables speak of the latter.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::Loader;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags, SymbolKind, elf};
use poundlock_statfile::layout::printable;
use poundlock_statfile::{LockKind, Module, Snapshot};

use super::shorten::{self, bare, shorten};
use super::variables::{Declared, Scope, Variables};
use super::words::sleeps_in_go;
use crate::elf_file::{self, Elf};

/// Where distributions put debug information that they ship apart from the program.
const DEBUG_DIR: &str = "/usr/lib/debug";

/// The files that were mapped into the processes of a run. Each is read at most once.
pub(crate) struct Symbols {
    files: RefCell<HashMap<PathBuf, Option<Rc<ElfFile>>>>,
    current_dir: Option<PathBuf>,
}

impl Symbols {
    pub(crate) fn new() -> Self {
        Symbols { files: RefCell::default(), current_dir: std::env::current_dir().ok() }
    }

    /// The addresses of one process.
    pub(crate) fn space<'a>(&'a self, snapshot: &'a Snapshot) -> Space<'a> {
        self.space_of(Cow::Borrowed(snapshot))
    }

    /// As [`Symbols::space`], with the snapshot in it or not.
    pub(crate) fn space_of<'a>(&'a self, snapshot: Cow<'a, Snapshot>) -> Space<'a> {
        Space {
            symbols: self,
            snapshot,
            calls: RefCell::default(),
            images: OnceCell::new(),
            known_variables: RefCell::default(),
            made: OnceCell::new(),
        }
    }

    fn file(&self, path: &str) -> Option<Rc<ElfFile>> {
        let path = Path::new(path);
        let mut files = self.files.borrow_mut();
        if let Some(known) = files.get(path) {
            return known.clone();
        }
        // A path that is none ("[heap]", "/memfd:x (deleted)") cannot be opened, and something else that was
        // mapped, a locale say, is no ELF file.
        let file = ElfFile::open(path).map(Rc::new);
        files.insert(path.to_path_buf(), file.clone());
        file
    }

    /// A source file as it is best shown: relative if it lies below the current directory.
    fn shown_path<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let short = self.current_dir.as_ref().and_then(|dir| Path::new(path).strip_prefix(dir).ok());
        match short {
            Some(short) => short.to_string_lossy(),
            None => Cow::Borrowed(path),
        }
    }

    fn line(&self, file: &str, line: Option<u32>) -> String {
        let file = self.shown_path(file);
        match line {
            Some(line) => format!("{file}:{line}"),
            None => file.into_owned(),
        }
    }
}

/// One function on a stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// `function (file:line)`, or as much of it as is known, with the function's name as people say it.
    pub(crate) text: String,
    /// The same with the function's whole name, without its parameters.
    pub(crate) whole: String,
    /// The function's name alone, as people say it; empty if unknown.
    pub(crate) name: String,
    /// The function's name as demanglers write it, with its parameters; empty if unknown.
    pub(crate) function: String,
    /// The file that was mapped there; empty if none was.
    pub(crate) module: String,
    /// Whether the line is known.
    pub(crate) has_line: bool,
    /// The source file as the debug information names it; empty if unknown.
    pub(crate) file: String,
    /// The line in it; 0 if unknown.
    pub(crate) line: u32,
    /// Whether it is part of the program rather than of a library.
    pub(crate) in_program: bool,
    /// How the program came to the frames that are of interest: the C library that starts a thread, or the
    /// insides of a language's library that were compiled into it (`std::lock_guard`).
    pub(crate) is_plumbing: bool,
}

impl Frame {
    /// A function with the place behind its name.
    fn named(function: String, lambdas: &[Option<String>], place: &str) -> Frame {
        let whole = bare(&function);
        let name = shorten(&whole, shorten::COLUMNS, lambdas);
        let (text, whole) = (format!("{name}{place}"), format!("{whole}{place}"));
        Frame { text, whole, name, function, ..Frame::default() }
    }
}

/// A variable that a lock lies in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Variable {
    /// Its name, as people say it, and the file that defines it: `queue_lock (in server)`.
    pub(crate) name: String,
    /// The same with its whole name.
    pub(crate) whole: String,
    /// `file:line`
    pub(crate) declared_at: Option<String>,
}

/// The address space of one process.
pub(crate) struct Space<'a> {
    symbols: &'a Symbols,
    snapshot: Cow<'a, Snapshot>,
    calls: RefCell<HashMap<u64, Rc<[Frame]>>>,
    images: OnceCell<Vec<Image>>,
    /// By image, variable and offset in an element.
    known_variables: RefCell<HashMap<(u64, u64, u64), Rc<Variable>>>,
    /// Functions that the process has made itself.
    made: OnceCell<Made>,
}

/// Functions that a process has made while it ran, with their names: Java's and others' machines write them for
/// perf, into `/tmp/perf-PID.map`.
struct Made(Vec<Symbol>);

impl Made {
    fn of(pid: u32) -> Made {
        let inner = super::proc::inner_pid(pid).unwrap_or(pid);
        let places = [format!("/proc/{pid}/root/tmp/perf-{inner}.map"), format!("/tmp/perf-{pid}.map")];
        // Anybody may put a file there.
        let is_theirs = |path: &String| {
            let owner = std::fs::symlink_metadata(path).ok().filter(|of| of.is_file()).map(|of| of.uid());
            let process = std::fs::metadata(format!("/proc/{pid}")).ok().map(|of| of.uid());
            // SAFETY: takes no arguments.
            owner.is_some() && [process, Some(0), Some(unsafe { libc::geteuid() })].contains(&owner)
        };
        let text = places.iter().find(|path| is_theirs(path)).and_then(|path| std::fs::read(path).ok());
        Made::parse(&String::from_utf8_lossy(&text.unwrap_or_default()))
    }

    fn parse(text: &str) -> Made {
        let line = |line: &str| {
            let (address, rest) = line.split_once(' ')?;
            let (size, name) = rest.split_once(' ')?;
            let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            Some(Symbol { address: number(address)?, size: number(size)?, raw: name.into() })
        };
        let mut all: Vec<Symbol> = text.lines().filter_map(line).collect();
        // Of functions that were made at one place after each other the last one is there.
        all.sort_by_key(|symbol| symbol.address);
        Made(all)
    }

    fn function(&self, address: u64) -> Option<&str> {
        containing(&self.0, address).map(|symbol| &*symbol.raw)
    }
}

/// An ELF file loaded at a place: its addresses plus `bias` are the process's.
struct Image {
    file: Rc<ElfFile>,
    bias: u64,
}

impl Space<'_> {
    /// The function that a return address goes back to, preceded by those that were inlined into it there.
    pub(crate) fn call(&self, return_address: u64) -> Rc<[Frame]> {
        if let Some(known) = self.calls.borrow().get(&return_address) {
            return known.clone();
        }
        let frames: Rc<[Frame]> = self.resolve(return_address).into();
        self.calls.borrow_mut().insert(return_address, frames.clone());
        frames
    }

    fn resolve(&self, return_address: u64) -> Vec<Frame> {
        // The call is the instruction before. Its last byte will do: a call that never returns may be the
        // last instruction of its function, and what follows another one.
        let address = return_address.wrapping_sub(1);
        let unnamed = |text: String, module: &str, in_program: bool| Frame {
            whole: text.clone(),
            text,
            module: module.to_owned(),
            in_program,
            ..Frame::default()
        };
        let Some(module) = self.code_at(address) else {
            let made = self.made.get_or_init(|| Made::of(self.snapshot.pid));
            let Some(name) = made.function(address) else {
                return vec![unnamed(format!("{return_address:#x}"), "", false)];
            };
            let said = shorten(name, shorten::COLUMNS, &[]);
            return vec![Frame {
                text: said.clone(),
                name: said,
                function: name.to_owned(),
                ..unnamed(name.to_owned(), "", true)
            }];
        };
        let name = file_name(&module.path);
        let in_program = self.is_program(module);
        let offset = address - module.start + module.offset;
        // Our own library is as little of interest as those.
        let is_libc = is_runtime(&name) || name == crate::library::FILE_NAME;
        let Some((file, vaddr)) =
            self.symbols.file(&module.path).and_then(|file| file.code_at(offset).map(|vaddr| (file, vaddr)))
        else {
            return vec![unnamed(format!("{name}+{:#x}", offset + 1), &name, in_program)];
        };
        let mut frames: Vec<Frame> = file
            .functions(vaddr)
            .into_iter()
            .map(|function| {
                let is_plumbing = is_libc
                    || function.name == "_start"
                    || is_of_our_crate(&function.name)
                    || function.file.as_deref().is_some_and(is_source_of_our_crate)
                    || sleeps_in_go(&function.name)
                    || function.file.as_deref().is_some_and(is_of_the_system);
                let shown = function.file.as_ref().map(|file| self.symbols.line(file, function.line));
                let has_line = shown.is_some();
                let shown = shown.unwrap_or_else(|| format!("in {name}"));
                let named = Frame::named(function.name, &function.lambdas, &format!(" ({shown})"));
                let (file, line) = (function.file.unwrap_or_default(), function.line.unwrap_or(0));
                let module = name.clone();
                Frame { has_line, file, line, is_plumbing, module, in_program, ..named }
            })
            .collect();
        if frames.is_empty() {
            let symbol = file.symbol(vaddr);
            let Some(symbol) = symbol else {
                frames.push(Frame {
                    is_plumbing: is_libc,
                    ..unnamed(format!("{name}+{:#x}", vaddr + 1), &name, in_program)
                });
                return frames;
            };
            let place = format!("+{:#x} (in {name})", vaddr + 1 - symbol.address);
            let named = Frame::named(symbol.name(), &[], &place);
            let is_plumbing = is_libc
                || named.function == "_start"
                || is_of_our_crate(&named.function)
                || is_of_a_standard_library(&named.function);
            frames.push(Frame { is_plumbing, module: name, in_program, ..named });
        }
        frames
    }

    /// The function that a return address goes back to by the table of symbols, which costs less than debug
    /// information, and the file that it is in; each is empty if unknown.
    pub(crate) fn symbol(&self, return_address: u64) -> (String, String) {
        let address = return_address.wrapping_sub(1);
        let Some(module) = self.code_at(address) else { return Default::default() };
        let offset = address - module.start + module.offset;
        let file = self.symbols.file(&module.path);
        let name = file.and_then(|file| file.symbol(file.code_at(offset)?).map(Symbol::name));
        (name.unwrap_or_default(), file_name(&module.path))
    }

    /// The file with the code at `address`. What a program maps as data, or makes and runs, is none: its own
    /// statistics file, shared memory, a `memfd` that a just-in-time compiler fills.
    fn code_at(&self, address: u64) -> Option<&Module> {
        let module = self.snapshot.module_at(address)?;
        let path = module.path.strip_suffix(" (deleted)").unwrap_or(&module.path);
        let in_memory = ["/memfd:", "/dev/", "/SYSV", "/anon_hugepage", "//anon"];
        let may_be = path.starts_with('/') && !in_memory.iter().any(|start| path.starts_with(start));
        // A file that is gone, or in another root, may have been code; one that is there says so itself.
        let is_code = || self.symbols.file(&module.path).is_some() || !Path::new(&module.path).is_file();
        (may_be && super::place::numbers_of(Path::new(path)).is_none() && is_code()).then_some(module)
    }

    fn is_program(&self, module: &Module) -> bool {
        let exe = Path::new(&self.snapshot.exe);
        let path = Path::new(&module.path);
        path == exe || exe.canonicalize().is_ok_and(|exe| path == exe)
    }

    /// The variable that `address` lies in, if it lies in the data of a loaded file.
    pub(crate) fn variable(&self, address: u64) -> Option<Variable> {
        let (image, vaddr) = self.image_at(address)?;
        let in_file = file_name(&image.file.path);
        let Some(symbol) = image.file.data_symbol(vaddr) else {
            let name = format!("{in_file}+{vaddr:#x}");
            return Some(Variable { whole: name.clone(), name, declared_at: None });
        };
        let offset = vaddr - symbol.address;
        let declared = image.file.declared(symbol.address, offset);
        let member = declared.as_ref().and_then(|declared| declared.member.clone());
        let member =
            member.unwrap_or_else(|| if offset == 0 { String::new() } else { format!("+{offset:#x}") });
        let declared_at = declared.map(|declared| self.symbols.line(&declared.file, Some(declared.line)));
        let (whole, rest) = (symbol.name(), format!("{member} (in {in_file})"));
        let name = format!("{}{rest}", shorten(&whole, shorten::COLUMNS, &[]));
        Some(Variable { name, whole: whole + &rest, declared_at })
    }

    /// The variable as [`Space::variable`] names it, but that all elements of an array are one:
    /// `table[].lock`. Each is looked up once.
    pub(crate) fn variables(&self, address: u64) -> Option<Rc<Variable>> {
        let (image, vaddr) = self.image_at(address)?;
        // What is no variable of its own is known by its file alone.
        let (start, offset) = match image.file.data_symbol(vaddr) {
            Some(symbol) => {
                let offset = vaddr - symbol.address;
                let size = image.file.element_size(symbol.address, symbol.size);
                (symbol.address, size.map_or(0, |size| offset % size))
            }
            None => (vaddr, 0),
        };
        let key = (image.bias, start, offset);
        if let Some(known) = self.known_variables.borrow().get(&key) {
            return Some(known.clone());
        }
        let mut found = self.variable(image.bias.wrapping_add(start).wrapping_add(offset))?;
        let several = image.file.data_symbol(vaddr).is_some_and(|symbol| {
            image.file.element_size(symbol.address, symbol.size).is_none_or(|size| size < symbol.size)
        });
        if several {
            found.name = without_indices(&found.name);
            found.whole = without_indices(&found.whole);
        }
        let found = Rc::new(found);
        self.known_variables.borrow_mut().insert(key, found.clone());
        Some(found)
    }

    /// The member that is locked at a line of a stack: that of the class whose method it is, if the class has
    /// one lock of the kind; or the only one that the function can get at. `app::Store<long>::lock`, whole.
    pub(crate) fn member(&self, stack: &[u64], line: &Frame, kind: LockKind) -> Option<String> {
        let images = self.images.get_or_init(|| self.find_images());
        let image = images.iter().find(|image| file_name(&image.file.path) == line.module)?;
        let variables = image.file.variables()?;
        let is_line = |frame: &Frame| (&frame.whole, &frame.text) == (&line.whole, &line.text);
        let at = stack.iter().find(|&&at| self.call(at).iter().any(is_line));
        let vaddr = at.and_then(|at| at.checked_sub(1)?.checked_sub(image.bias));
        let of_scope = || {
            let frames = self.call(*at?);
            let scopes = variables.scopes_at(vaddr?)?;
            let depth = frames.iter().position(is_line).filter(|_| scopes.len() == frames.len())?;
            variables.lock_of_scope(&scopes[depth], kind)
        };
        let of_class = || {
            let path = bare(&line.function);
            let class = class_of(&path)?;
            Some(format!("{class}::{}", variables.lock_of(class, kind)?))
        };
        of_scope().or_else(of_class).or_else(|| variables.locked_in(vaddr?, kind))
    }

    fn image_at(&self, address: u64) -> Option<(&Image, u64)> {
        let images = self.images.get_or_init(|| self.find_images());
        images.iter().find_map(|image| {
            let vaddr = address.checked_sub(image.bias)?;
            image.file.holds_data(vaddr).then_some((image, vaddr))
        })
    }

    /// Where the files are loaded. Needed for variables only: most of them (.bss) lie in memory that is no
    /// longer part of the file's mappings, so that mapping and program header have to be matched first.
    fn find_images(&self) -> Vec<Image> {
        let mut paths: Vec<&str> = self.snapshot.modules.iter().map(|module| module.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut images = Vec::new();
        for path in paths {
            let Some(file) = self.symbols.file(path) else { continue };
            // A mapping may fit more than one program header, as two of them can share a page of the file.
            // The place that explains most mappings is the right one; of a file loaded twice there are two
            // such places.
            let mut votes: HashMap<u64, usize> = HashMap::new();
            for module in self.snapshot.modules.iter().filter(|module| module.path == path) {
                for segment in &file.segments {
                    if let Some(bias) = segment.bias_if_mapped_by(module) {
                        *votes.entry(bias).or_default() += 1;
                    }
                }
            }
            let most = votes.values().copied().max().unwrap_or(0);
            let mut biases: Vec<u64> =
                votes.into_iter().filter(|&(_, n)| n == most).map(|(bias, _)| bias).collect();
            biases.sort_unstable();
            images.extend(biases.into_iter().map(|bias| Image { file: file.clone(), bias }));
        }
        images
    }
}

/// The class of a method, by its demangled name: what comes before the last `::` that is in no brackets.
fn class_of(function: &str) -> Option<&str> {
    let mut depth = 0i32;
    let mut last = None;
    for (at, c) in function.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth == 0 => break,
            ':' if depth == 0 && function[at..].starts_with("::") => last = Some(at),
            _ => {}
        }
    }
    last.map(|at| &function[..at]).filter(|class| !class.is_empty())
}

/// A variable's name with the indices of its elements left out.
fn without_indices(name: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in name.chars() {
        inside = (inside || c == '[') && c != ']';
        if !inside || c == '[' {
            text.push(c);
        }
    }
    text
}

pub(crate) fn file_name(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    printable(path.file_name().unwrap_or(path.as_os_str()).as_bytes())
}

/// Whether a file of this name is glibc's: before 2.34 threads are a library of their own, and names have the version.
pub(crate) fn is_libc(name: &str) -> bool {
    name.starts_with("libc.so") || name.starts_with("libc-2.") || name.starts_with("libpthread")
}

/// Whether a file of this name is a library that programs of a language have by themselves.
fn is_runtime(name: &str) -> bool {
    const NAMES: [&str; 7] =
        ["libstdc++.so", "libc++.so", "libc++abi.so", "libgcc_s.so", "ld-linux", "ld-musl", "libc.musl"];
    is_libc(name) || NAMES.iter().any(|start| name.starts_with(start))
}

/// Whether a function, of which no source is known, is one of C++'s or Rust's standard library.
fn is_of_a_standard_library(function: &str) -> bool {
    let path = bare(function);
    let path = path.trim_start_matches(['<', '&']);
    ["std::", "core::", "alloc::", "__gnu_cxx::", "__gthread_"].iter().any(|start| path.starts_with(start))
}

/// How many frames at the top of a stack are of such libraries, and the function of them that the program
/// called: of the C library, where one was, `pthread_mutex_lock`. `None` if no frames are, or all.
pub(crate) fn folded(frames: &[&Frame]) -> Option<(usize, String)> {
    let count = frames.iter().take_while(|frame| frame.is_plumbing).count();
    let top = frames.get(..count).filter(|top| !top.is_empty() && top.len() < frames.len())?;
    let named = || top.iter().rev().filter(|frame| !frame.name.is_empty());
    // Rust's library calls the kernel by this one.
    let of_c = named().find(|frame| {
        (is_libc(&frame.module) || frame.module == crate::library::FILE_NAME) && frame.name != "syscall"
    });
    let name = &of_c.or_else(|| named().next())?.name;
    let said = name.split('@').next().unwrap_or(name).trim_start_matches('_').trim_start_matches("GI_");
    let said = match said.trim_start_matches('_') {
        "pthread_clockjoin_ex" => "pthread_join",
        said => said,
    };
    Some((count, said.to_owned()))
}

/// What of the crate `poundlock` is compiled into a program that takes its locks.
const MODULES: [&str; 6] = ["condvar", "mutex", "raw", "reentrant", "rwlock", "spin"];

/// Whether a function is one of the crate `poundlock`, by which a lock is acquired, or of `lock_api`, whose types are
/// around ours.
fn is_of_our_crate(function: &str) -> bool {
    let path = function.trim_start_matches(['<', '&']);
    path.starts_with("lock_api::")
        || path.strip_prefix("poundlock::").is_some_and(|rest| {
            rest.starts_with("stats::Slot")
                || MODULES
                    .iter()
                    .any(|module| rest.strip_prefix(module).is_some_and(|rest| rest.starts_with("::")))
        })
}

/// The same by its source: debug information that has no more than lines has no paths of functions.
fn is_source_of_our_crate(file: &str) -> bool {
    let is_version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let is = |part: &str, name: &str| {
        part.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-').is_some_and(is_version))
    };
    let mut parts = file.rsplit('/');
    let module = parts.next().and_then(|name| name.strip_suffix(".rs"));
    let (Some(module), Some("src"), Some(package)) = (module, parts.next(), parts.next()) else {
        return false;
    };
    is(package, "lock_api") || (is(package, "poundlock") && (module == "stats" || MODULES.contains(&module)))
}

/// Whether a source file belongs to the compiler or to the system rather than to the program.
fn is_of_the_system(path: &str) -> bool {
    // Crates of locks are the inside of those, as a language's library is.
    const INSIDES: [&str; 6] = [
        "/library/std/src/",
        "/library/core/src/",
        "/library/alloc/src/",
        "/lock_api-",
        "/parking_lot-",
        "/parking_lot_core-",
    ];
    ["/usr/include/", "/usr/lib/gcc/", "/usr/lib/llvm", "/rustc/"].iter().any(|dir| path.starts_with(dir))
        || INSIDES.iter().any(|dir| path.contains(dir))
}

/// A part of the file that is loaded.
struct Segment {
    file_offset: u64,
    file_size: u64,
    address: u64,
    memory_size: u64,
    executable: bool,
    writable: bool,
}

const PAGE: u64 = 4096;

impl Segment {
    /// Where the file is loaded, if `module` is a mapping of this segment.
    fn bias_if_mapped_by(&self, module: &Module) -> Option<u64> {
        let first = self.file_offset & !(PAGE - 1);
        let end = self.file_offset + self.file_size;
        (first..end).contains(&module.offset).then(|| {
            let address = self.address.wrapping_sub(self.file_offset).wrapping_add(module.offset);
            module.start.wrapping_sub(address)
        })
    }
}

/// A function at an address.
struct Function {
    name: String,
    /// The places of the lambdas in its name.
    lambdas: Vec<Option<String>>,
    file: Option<String>,
    line: Option<u32>,
}

/// A symbol table's entry.
#[derive(Debug)]
struct Symbol {
    address: u64,
    size: u64,
    /// The name as the file has it.
    raw: Box<str>,
}

impl Symbol {
    fn name(&self) -> String {
        readable(&self.raw)
    }
}

/// One ELF file, with its debug information, which may be in another.
struct ElfFile {
    path: PathBuf,
    /// The separate file of debug information, and the one that several of them share.
    debug_path: Option<PathBuf>,
    shared_debug_path: Option<PathBuf>,
    has_lines: bool,
    segments: Vec<Segment>,
    loader: OnceCell<Option<Loader>>,
    /// Functions and variables, each by address.
    symbols: OnceCell<[Vec<Symbol>; 2]>,
    variables: OnceCell<Option<Variables>>,
    /// By address.
    element_sizes: RefCell<HashMap<u64, Option<u64>>>,
}

impl ElfFile {
    fn open(path: &Path) -> Option<Self> {
        // Opened without waiting: a mapped path may by now be a pipe.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let data = elf_file::open(path)?;
        let file = elf_file::parse(&data)?;
        let segments = file.segments().filter_map(|segment| {
            let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { return None };
            let (file_offset, file_size) = segment.file_range();
            Some(Segment {
                file_offset,
                file_size,
                address: segment.address(),
                memory_size: segment.size(),
                executable: p_flags.contains(elf::PF_X),
                writable: p_flags.contains(elf::PF_W),
            })
        });
        let segments = segments.collect();
        let has_lines = has_section(&file, ".debug_info");
        let debug_path =
            if has_lines { None } else { file.build_id().ok().flatten().and_then(separate_debug_file) };
        let shared_debug_path = shared_debug_file(debug_path.as_deref().unwrap_or(path));
        Some(ElfFile {
            path: path.to_path_buf(),
            debug_path,
            shared_debug_path,
            has_lines,
            segments,
            loader: OnceCell::new(),
            symbols: OnceCell::new(),
            variables: OnceCell::new(),
            element_sizes: RefCell::default(),
        })
    }

    /// The address of the code at that place in the file.
    fn code_at(&self, file_offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            segment.executable
                && (segment.file_offset..segment.file_offset + segment.file_size).contains(&file_offset)
        })?;
        Some(file_offset - segment.file_offset + segment.address)
    }

    /// Whether variables can be at that address.
    fn holds_data(&self, vaddr: u64) -> bool {
        self.segments.iter().any(|segment| {
            segment.writable && (segment.address..segment.address + segment.memory_size).contains(&vaddr)
        })
    }

    /// The functions at an address by the debug information, innermost first; none if that says nothing.
    fn functions(&self, vaddr: u64) -> Vec<Function> {
        let loader = self.loader.get_or_init(|| {
            let path = self.debug_path.as_deref().unwrap_or(&self.path);
            (self.has_lines || self.debug_path.is_some()).then_some(())?;
            Loader::new_with_sup(path, self.shared_debug_path.as_deref()).ok()
        });
        let Some(mut frames) = loader.as_ref().and_then(|loader| loader.find_frames(vaddr).ok()) else {
            return Vec::new();
        };
        let mut functions = Vec::new();
        // Those whose names are not whole, or have lambdas in them.
        let mut is_cut = false;
        while let Ok(Some(frame)) = frames.next() {
            let raw = frame.function.as_ref().and_then(|name| name.raw_name().ok());
            let is_cpp = frame.function.as_ref().is_some_and(|name| name.language.is_some_and(is_cpp));
            let name = raw.as_ref().map(|name| readable(name));
            is_cut |= is_cpp
                && raw.is_some_and(|raw| !is_mangled(&raw) || raw.contains("Ul") || raw.contains("$_"));
            let (file, line) = match &frame.location {
                Some(location) => (location.file.map(str::to_string), location.line),
                None => (None, None),
            };
            // Debug information of lines only (-g1) does not name every function; the symbol table does.
            let name = name.or_else(|| self.symbol(vaddr).map(Symbol::name));
            let of_name = |name| Function { name, lambdas: Vec::new(), file, line };
            match name {
                Some(name) => functions.push(of_name(name)),
                None if frame.location.is_some() => functions.push(of_name("??".to_string())),
                None => {}
            }
        }
        if is_cut && let Some(variables) = self.variables() {
            self.add_scopes(&mut functions, variables.scopes_at(vaddr).unwrap_or_default());
        }
        functions
    }

    /// Adds what is known of the scopes of functions: names that have the classes around, and where lambdas
    /// are.
    fn add_scopes(&self, functions: &mut [Function], scopes: Vec<Scope>) {
        if functions.len() != scopes.len() {
            return;
        }
        let Some(variables) = self.variables() else { return };
        for (function, scope) in functions.iter_mut().zip(scopes) {
            if class_of(&bare(&function.name)).is_none()
                && let Some(name) = variables.name_of_scope(&scope)
            {
                function.name = name;
            }
            let count = shorten::lambdas_in(&bare(&function.name));
            if count == 0 {
                continue;
            }
            let mut places = variables.lambdas_of(&scope);
            // Those of arguments that the name leaves out would be at the wrong place.
            if places.len() != count {
                places.dedup();
                places = if let [place] = &places[..] { vec![place.clone(); count] } else { Vec::new() };
            }
            let shown = |(file, line): (String, u32)| Some(format!("{}:{line}", file_name(file)));
            function.lambdas = places.into_iter().map(shown).collect();
        }
    }

    /// The function's entry in the symbol table.
    fn symbol(&self, vaddr: u64) -> Option<&Symbol> {
        containing(&self.symbols()[0], vaddr)
    }

    /// The variable's entry in the symbol table.
    fn data_symbol(&self, vaddr: u64) -> Option<&Symbol> {
        containing(&self.symbols()[1], vaddr)
    }

    fn symbols(&self) -> &[Vec<Symbol>; 2] {
        self.symbols.get_or_init(|| {
            let mut tables = [Vec::new(), Vec::new()];
            for path in [Some(&self.path), self.debug_path.as_ref()].into_iter().flatten() {
                read_symbols(path, &mut tables);
            }
            for table in &mut tables {
                // Of several names for one address the longest extent wins, and then the one without
                // underscores.
                let reserved = |name: &str| name.starts_with('_') && !is_mangled(name);
                table.sort_by(|a, b| {
                    let rank = |s: &Symbol| (s.address, std::cmp::Reverse(s.size), reserved(&s.raw));
                    rank(a).cmp(&rank(b)).then_with(|| a.raw.cmp(&b.raw))
                });
                table.dedup_by_key(|symbol| symbol.address);
            }
            tables
        })
    }

    /// The size of an element of the variable that starts at this address: after as many bytes the next lock
    /// of its sort may come. `None` if nothing tells.
    fn element_size(&self, vaddr: u64, size: u64) -> Option<u64> {
        let variables = self.variables()?;
        let mut sizes = self.element_sizes.borrow_mut();
        let element = *sizes.entry(vaddr).or_insert_with(|| variables.element_size(vaddr));
        Some(element?.clamp(1, size.max(1)))
    }

    /// The declaration of the variable that starts at this address, and the part of it that is `offset`
    /// further on.
    fn declared(&self, vaddr: u64, offset: u64) -> Option<Declared> {
        self.variables()?.declared(vaddr, offset)
    }

    fn variables(&self) -> Option<&Variables> {
        let path = self.debug_path.as_deref().unwrap_or(&self.path);
        self.variables.get_or_init(|| Variables::read(path)).as_ref()
    }
}

/// The entry that covers an address, in a table that is sorted by address.
fn containing(table: &[Symbol], vaddr: u64) -> Option<&Symbol> {
    let index = table.partition_point(|symbol| symbol.address <= vaddr).checked_sub(1)?;
    // An entry inside another (a label, an alias of its end) must not hide the one around it.
    table[..=index].iter().rev().take(4).find(|symbol| vaddr - symbol.address < symbol.size.max(1))
}

fn read_symbols(path: &Path, tables: &mut [Vec<Symbol>; 2]) -> Option<()> {
    // SAFETY: only read, and as bytes. Should somebody shorten the file meanwhile, we end by a signal, as the
    // program that has it mapped does.
    let data = unsafe { memmap2::Mmap::map(&File::open(path).ok()?) }.ok()?;
    let file = elf_file::parse(&*data)?;
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let table = match symbol.kind() {
            SymbolKind::Text => &mut tables[0],
            SymbolKind::Data => &mut tables[1],
            _ => continue,
        };
        if symbol.is_undefined() || symbol.address() == 0 {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        table.push(Symbol { address: symbol.address(), size: symbol.size(), raw: name.into() });
    }
    Some(())
}

/// The name as it stands in the source. Only what is mangled is demangled: a plain `w` or `m` is a C name,
/// though it is also how C++ abbreviates a built-in type.
pub(crate) fn readable(name: &str) -> String {
    if is_mangled(name) {
        addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned()
    } else {
        name.to_string()
    }
}

fn is_cpp(language: gimli::DwLang) -> bool {
    use gimli::{
        DW_LANG_C_plus_plus as CPP, DW_LANG_C_plus_plus_03 as CPP_03, DW_LANG_C_plus_plus_11 as CPP_11,
    };
    use gimli::{
        DW_LANG_C_plus_plus_14 as CPP_14, DW_LANG_C_plus_plus_17 as CPP_17, DW_LANG_C_plus_plus_20 as CPP_20,
    };
    [CPP, CPP_03, CPP_11, CPP_14, CPP_17, CPP_20].contains(&language)
}

fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

fn has_section(file: &Elf<'_>, name: &str) -> bool {
    file.section_by_name(name).is_some()
}

/// Where distributions keep the debug information of the file with this build id.
fn separate_debug_file(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("{DEBUG_DIR}/.build-id/{first:02x}/{rest}.debug"));
    path.is_file().then_some(path)
}

/// What `dwz` moved out of several files of debug information into one that they share.
fn shared_debug_file(path: &Path) -> Option<PathBuf> {
    let data = elf_file::open(path)?;
    let file = elf_file::parse(&data)?;
    let (name, id) = file.gnu_debugaltlink().ok()??;
    let named = path.parent()?.join(std::ffi::OsStr::from_bytes(name));
    if named.is_file() { Some(named) } else { separate_debug_file(id) }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU64, Ordering};

    use poundlock_statfile::{Module, Snapshot};

    use super::{Segment, Space, Symbol, Symbols, containing, readable};

    #[test]
    fn our_crate_is_known_by_its_functions() {
        for function in [
            "poundlock::stats::Slot::acquire",
            "<poundlock::mutex::RawMutex as lock_api::mutex::RawMutex>::lock",
            "lock_api::mutex::Mutex<R,T>::lock",
            "poundlock::condvar::Condvar::wait",
        ] {
            assert!(super::is_of_our_crate(function), "{function}");
        }
        for function in ["poundlock::stats::waits_for_it", "poundlock::main", "mutex::lock", "order::enter"] {
            assert!(!super::is_of_our_crate(function), "{function}");
        }
        for file in [
            "/r/lock_api-0.4.14/src/mutex.rs",
            "/w/crates/poundlock/src/stats.rs",
            "/r/poundlock-0.1.0/src/raw.rs",
        ] {
            assert!(super::is_source_of_our_crate(file), "{file}");
        }
        for file in [
            "/w/poundlock/src/main.rs",
            "/w/poundlock/tests/stats.rs",
            "/w/poundlock-cache/src/mutex.rs",
            "raw.rs",
        ] {
            assert!(!super::is_source_of_our_crate(file), "{file}");
        }
    }

    #[test]
    fn methods_are_known_by_their_classes() {
        assert_eq!(
            super::class_of("app::Store<std::pair<int, a::b> >::put(app::x)"),
            Some("app::Store<std::pair<int, a::b> >")
        );
        assert_eq!(super::class_of("Session::add(int)"), Some("Session"));
        assert_eq!(super::class_of("main"), None);
        assert_eq!(super::class_of("work(a::b)"), None);
    }

    #[test]
    fn only_mangled_names_are_demangled() {
        assert_eq!(readable("w"), "w");
        assert_eq!(readable("m"), "m");
        assert_eq!(readable("_start"), "_start");
        assert_eq!(readable("_Z3hitv"), "hit()");
        assert_eq!(readable("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
    }

    /// This process, as the library would describe it.
    fn this_process() -> Snapshot {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let modules = maps.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let offset = fields.nth(1)?;
            let path = fields.nth(2)?;
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            Some(Module {
                start: number(start),
                end: number(end),
                offset: number(offset),
                path: path.to_string(),
            })
        });
        let exe = std::env::current_exe().unwrap().to_str().unwrap().to_string();
        Snapshot { exe, modules: modules.collect(), ..Snapshot::default() }
    }

    struct Pair {
        _first: AtomicU64,
        second: AtomicU64,
    }

    /// All zeroes: in .bss, which no mapping of the file covers.
    static PAIRS_IN_BSS: [Pair; 4096] =
        [const { Pair { _first: AtomicU64::new(0), second: AtomicU64::new(0) } }; 4096];
    static VALUE_IN_DATA: AtomicU64 = AtomicU64::new(7);

    #[inline(never)]
    fn probed_function() -> u32 {
        black_box(line!())
    }

    /// The first frame of a return address, and how many frames there are.
    fn first(space: &Space, address: u64) -> (String, usize) {
        let frames = space.call(address);
        (frames[0].text.clone(), frames.len())
    }

    #[test]
    fn an_address_of_code_becomes_function_and_line() {
        let snapshot = this_process();
        let symbols = Symbols::new();
        let space = symbols.space(&snapshot);
        // As a return address its call lies one byte before; here, in the function's first instruction.
        let address = probed_function as *const () as u64 + 1;
        // What is inlined there comes before it.
        let text = space.call(address).last().unwrap().text.clone();
        assert!(text.contains("probed_function") && text.contains("observe/symbols.rs:"), "{text}");
        let line: u32 = text.rsplit_once(':').unwrap().1.trim_end_matches(')').parse().unwrap();
        assert!((line..line + 3).contains(&probed_function()), "{text}");
        assert!(space.call(address)[0].in_program);
        let libc = libc::abs as *const () as u64 + 1;
        let (text, _) = first(&space, libc);
        assert!(text.starts_with("abs") || text.starts_with("libc.so.6+0x"), "{text}");
        assert!(!space.call(libc)[0].in_program);
        assert_eq!(first(&space, 0x10), ("0x10".to_string(), 1));
    }

    #[test]
    fn an_address_of_data_becomes_a_variable() {
        let snapshot = this_process();
        let symbols = Symbols::new();
        let space = symbols.space(&snapshot);
        VALUE_IN_DATA.fetch_add(1, Ordering::Relaxed);
        PAIRS_IN_BSS[3000].second.fetch_add(1, Ordering::Relaxed);
        // Member and declaration depend on how much debug information this test was built with: the tests of
        // the whole command look at those, in programs that they compile themselves.
        let in_data = space.variable((&raw const VALUE_IN_DATA) as u64).unwrap().name;
        assert!(in_data.contains("VALUE_IN_DATA") && in_data.contains(" (in poundlock"), "{in_data}");
        let in_bss = space.variable((&raw const PAIRS_IN_BSS[3000].second) as u64).unwrap().name;
        assert!(in_bss.contains("PAIRS_IN_BSS"), "{in_bss}");
        let on_stack = 0u64;
        assert!(space.variable((&raw const on_stack) as u64).is_none());
        let on_heap = Box::new(0u64);
        assert!(space.variable((&raw const *on_heap) as u64).is_none());
    }

    #[test]
    fn what_is_mapped_and_no_code_is_never_named() {
        let scratch = poundlock_testing::scratch();
        let data = scratch.join("locale-archive");
        std::fs::write(&data, [0; 64]).expect("it can be written");
        let data = data.to_str().expect("a path").to_owned();
        let gone = scratch.join("libgone.so").to_str().expect("a path").to_owned();
        for (path, named) in [
            ("/dev/shm/poundlock-stat-Ab3/22404.0.stat", false),
            ("/tmp/poundlock-stat-Ab3/22404.1.stat (deleted)", false),
            ("/memfd:doublemapper (deleted)", false),
            ("/dev/zero (deleted)", false),
            ("/SYSV00000000 (deleted)", false),
            ("[vdso]", false),
            ("", false),
            (&data, false),
            (&gone, true),
        ] {
            let module = Module { start: 0x1000, end: 0x2000, offset: 0, path: path.to_owned() };
            let snapshot = Snapshot { modules: vec![module], ..Snapshot::default() };
            let symbols = Symbols::new();
            let frames = symbols.space(&snapshot).call(0x1800);
            assert_eq!(!frames[0].module.is_empty(), named, "{path}: {:?}", frames[0]);
            assert_eq!(frames[0].text == "0x1800", !named, "{path}: {:?}", frames[0]);
        }
    }

    #[test]
    fn what_libraries_do_at_the_top_of_a_stack_is_one_frame() {
        let frame = |name: &str, module: &str, is_plumbing: bool| super::Frame {
            name: name.to_owned(),
            module: module.to_owned(),
            is_plumbing,
            ..super::Frame::default()
        };
        let own = frame("app::Cache::get", "app", false);
        for (top, said) in [
            (
                vec![
                    frame("__lll_lock_wait", "libc.so.6", true),
                    frame("___pthread_mutex_lock", "libc.so.6", true),
                    frame("std::mutex::lock", "app", true),
                ],
                "pthread_mutex_lock",
            ),
            (vec![frame("pthread_cond_wait@@GLIBC_2.3.2", "libc.so.6", true)], "pthread_cond_wait"),
            (
                vec![frame("syscall", "libc.so.6", true), frame("Mutex<T>::lock", "app", true)],
                "Mutex<T>::lock",
            ),
            (vec![frame("syscall", "libc.so.6", true)], "syscall"),
            (vec![frame("__pthread_clockjoin_ex", "libc.so.6", true)], "pthread_join"),
        ] {
            let frames: Vec<&super::Frame> = top.iter().chain([&own]).collect();
            assert_eq!(super::folded(&frames), Some((top.len(), said.to_owned())));
            assert_eq!(super::folded(&frames[..top.len()]), None);
        }
        assert_eq!(super::folded(&[&own]), None);
        assert!(super::is_of_a_standard_library("std::mutex::lock()"));
        assert!(super::is_of_a_standard_library("int std::__invoke<int>(int)"));
        assert!(!super::is_of_a_standard_library("app::std_lock(std::mutex&)"));
    }

    fn symbol(address: u64, size: u64, name: &str) -> Symbol {
        Symbol { address, size, raw: name.into() }
    }

    #[test]
    fn functions_that_a_process_has_made_are_named_as_it_says() {
        let made = super::Made::parse("7f10 20 int App.work(int)\n0x7f00 8 Interpreter\nnothing\n");
        assert_eq!(made.function(0x7f2f), Some("int App.work(int)"));
        assert_eq!((made.function(0x7f07), made.function(0x7f08)), (Some("Interpreter"), None));
    }

    #[test]
    fn symbols_cover_their_extent_and_no_more() {
        let table = [symbol(0x100, 0x40, "outer"), symbol(0x110, 0, "label"), symbol(0x200, 8, "next")];
        let name = |vaddr| containing(&table, vaddr).map(|symbol| &*symbol.raw);
        assert_eq!(name(0xff), None);
        assert_eq!(name(0x100), Some("outer"));
        assert_eq!(name(0x110), Some("label"));
        assert_eq!(name(0x13f), Some("outer"));
        assert_eq!(name(0x140), None);
        assert_eq!(name(0x207), Some("next"));
        assert_eq!(name(0x208), None);
    }

    #[test]
    fn a_mapping_tells_where_its_segment_is_loaded() {
        // .data as linkers lay it out: the last bytes of one page in the file, loaded one page further on.
        let data = Segment {
            file_offset: 0x2dd0,
            file_size: 0x260,
            address: 0x3dd0,
            memory_size: 0x5000,
            executable: false,
            writable: true,
        };
        let module = |start, offset| Module { start, end: start + 0x1000, offset, path: String::new() };
        assert_eq!(data.bias_if_mapped_by(&module(0x5555_5555_7000, 0x2000)), Some(0x5555_5555_4000));
        // The second page, which mprotect split off the first.
        assert_eq!(data.bias_if_mapped_by(&module(0x5555_5555_8000, 0x3000)), Some(0x5555_5555_4000));
        assert_eq!(data.bias_if_mapped_by(&module(0x5555_5555_5000, 0x1000)), None);
        assert_eq!(data.bias_if_mapped_by(&module(0x5555_5555_5000, 0x4000)), None);
    }
}
