//! A process that is dead: its core file, made by the kernel or by `gcore`, and the files that it had mapped.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use poundlock_statfile::Snapshot;
use poundlock_statfile::layout::printable;

use super::maps::{Mapping, Maps};
use super::registers::{Registers, WORDS};
use super::{Memory, Stack, Thread};
use crate::message::{Failure, say, status};
use crate::observe::calls::Doing;
use crate::program::{self, reason};

/// As much of a stack is read at most.
const STACK: u64 = 1 << 20;

/// A part of the process's memory that is in the core file.
struct Segment {
    start: u64,
    /// Of what is in the file.
    end: u64,
    /// Of the mapping.
    whole: u64,
    offset: u64,
    writable: bool,
    executable: bool,
}

/// A core file.
pub(crate) struct Core {
    file: File,
    segments: Vec<Segment>,
    /// What was mapped, and the files that are there still: what the core lacks is in those.
    pub(crate) maps: Maps,
    files: HashMap<String, Option<File>>,
    pub(crate) threads: Vec<Thread>,
    /// The program's name, as the kernel cuts it.
    pub(crate) name: String,
    pub(crate) snapshot: Snapshot,
}

/// A note: its kind and its bytes.
type Note = (u32, Vec<u8>);

impl Core {
    /// Reads it. `exe` is where the program's file is now, if not where it was.
    ///
    /// # Errors
    /// In one line, what is wrong with it.
    pub(crate) fn open(path: &Path, exe: Option<&Path>) -> Result<Core, Failure> {
        let shown = path.display();
        let failure = |what: &str| Failure::new(status::OURS, format_args!("{shown}: {what}"));
        let file = File::open(path).map_err(|error| failure(&reason(&error)))?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(failure("no file that can be read"));
        }
        let (segments, notes) = parse(&file).map_err(|what| failure(&what))?;
        if let Some(exe) = exe {
            File::open(exe).map_err(|error| {
                Failure::new(status::OURS, format_args!("{}: {}", exe.display(), reason(&error)))
            })?;
        }
        let mut core = Core {
            file,
            segments,
            maps: Maps::default(),
            files: HashMap::new(),
            threads: Vec::new(),
            name: String::new(),
            snapshot: Snapshot::default(),
        };
        core.read_maps(&notes, exe);
        core.read_threads(&notes);
        if core.threads.is_empty() {
            return Err(failure(
                "no thread is described in it: its beginning is damaged, or it is of another machine",
            ));
        }
        core.warn_of_other_files();
        Ok(core)
    }

    fn read_maps(&mut self, notes: &[Note], exe: Option<&Path>) {
        let mut mappings: Vec<Mapping> = Vec::new();
        if let Some((_, bytes)) = notes.iter().find(|(kind, _)| *kind == NT_FILE) {
            mappings = file_notes(bytes).unwrap_or_default();
        }
        let at = |address: u64| self.segments.iter().find(|s| s.start <= address && address < s.whole);
        for mapping in &mut mappings {
            // gdb leaves out what it finds in files, with its rights.
            let rights = at(mapping.start).map(|segment| (segment.executable, segment.writable));
            (mapping.executable, mapping.writable) = rights.unwrap_or((true, false));
        }
        // What is of no file.
        for segment in &self.segments {
            let known = mappings.iter().any(|of| of.start < segment.whole && segment.start < of.end);
            if !known {
                mappings.push(Mapping {
                    start: segment.start,
                    end: segment.whole,
                    offset: 0,
                    inode: 0,
                    executable: segment.executable,
                    writable: segment.writable,
                    path: String::new(),
                });
            }
        }
        mappings.sort_by_key(|mapping| mapping.start);
        // The program's own file: the one with its program headers.
        let headers = notes.iter().find(|(kind, _)| *kind == NT_AUXV).and_then(|(_, bytes)| {
            let longs = longs(bytes);
            longs.chunks_exact(2).find(|pair| pair[0] == AT_PHDR).map(|pair| pair[1])
        });
        let maps = Maps(mappings);
        let program =
            headers.and_then(|at| maps.at(at)).map(|mapping| mapping.path.clone()).unwrap_or_default();
        let place = |path: &str| match exe {
            Some(exe) if path == program => exe.to_string_lossy().into_owned(),
            _ => path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
        };
        let modules = maps.modules(|mapping| place(&mapping.path));
        let exe = place(&program);
        for path in modules.iter().map(|module| module.path.clone()).chain([exe.clone()]) {
            self.files.entry(path).or_insert_with_key(|path| open_regular(Path::new(path)));
        }
        self.snapshot = Snapshot { exe, modules, ..Snapshot::default() };
        self.maps = maps;
    }

    fn read_threads(&mut self, notes: &[Note]) {
        for (kind, bytes) in notes {
            if *kind == NT_PRPSINFO {
                const PID: usize = 24;
                const NAME: usize = 40;
                let name = bytes.get(NAME..NAME + 16).unwrap_or_default();
                let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                self.name = printable(&name[..end]);
                self.snapshot.pid = word_at(bytes, PID).unwrap_or(0);
            }
            if *kind != NT_PRSTATUS {
                continue;
            }
            const TID: usize = 32;
            const REGISTERS: usize = 112;
            let Some(tid) = word_at(bytes, TID) else { continue };
            let all = longs(bytes.get(REGISTERS..).unwrap_or_default());
            let Some(words) = all.first_chunk::<WORDS>() else { continue };
            #[cfg_attr(target_arch = "x86_64", expect(unused_mut, reason = "its call is among them"))]
            let mut registers = Registers::from_words(words);
            #[cfg(not(target_arch = "x86_64"))]
            {
                registers.call = Registers::again(words, self.word(words[32]));
            }
            let doing = match registers.call {
                Some(call) => Doing::Call { call, sp: registers.sp, pc: registers.pc },
                None => Doing::Running,
            };
            let start = registers.sp.saturating_sub(128) & !7;
            let end = self.segments.iter().find(|s| s.start <= registers.sp && registers.sp < s.end);
            let len = end.map_or(0, |segment| (segment.end - start).min(STACK));
            let mut stack = vec![0; len as usize];
            let len = self.read(start, &mut stack);
            stack.truncate(len);
            self.threads.push(Thread {
                tid,
                inner: tid,
                name: String::new(),
                doing,
                registers: Some(registers),
                stack: Stack { start, bytes: stack },
                stood_ns: 0,
            });
        }
        // It has names of processes only, and its first thread is not always the one of that name.
        let (pid, name) = (self.snapshot.pid, self.name.clone());
        if let Some(main) = self.threads.iter_mut().find(|thread| thread.tid == pid) {
            main.name = name;
        }
    }

    /// Names would be wrong that come from files which are not those that were mapped.
    fn warn_of_other_files(&self) {
        const HEADER: usize = 64;
        for module in self.snapshot.modules.iter().filter(|module| module.offset == 0) {
            let Some(file) = self.files.get(&module.path).and_then(Option::as_ref) else {
                if module.path == self.snapshot.exe {
                    say(format_args!(
                        "{}: not found; name the program's file by --exe, or there are no names",
                        module.path
                    ));
                }
                continue;
            };
            let (mut then, mut now) = ([0; HEADER], [0; HEADER]);
            let there = self.in_core(module.start, &mut then) == HEADER && then.starts_with(b"\x7fELF");
            if there && file.read_exact_at(&mut now, 0).is_ok() && then != now {
                say(format_args!(
                    "{}: not the file that the process had mapped; names may be wrong",
                    module.path
                ));
            }
        }
    }

    fn in_core(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some(segment) = self.segments.iter().find(|s| s.start <= address && address < s.end) else {
            return 0;
        };
        let len = (segment.end - address).min(buffer.len() as u64) as usize;
        let at = segment.offset + (address - segment.start);
        self.file.read_at(&mut buffer[..len], at).unwrap_or(0)
    }

    fn in_file(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some(module) = self.snapshot.module_at(address) else { return 0 };
        let Some(Some(file)) = self.files.get(&module.path) else { return 0 };
        let len = (module.end - address).min(buffer.len() as u64) as usize;
        file.read_at(&mut buffer[..len], module.offset + (address - module.start)).unwrap_or(0)
    }
}

impl Memory for Core {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.wrapping_add(done as u64);
            let rest = &mut buffer[done..];
            let len = match self.in_core(at, rest) {
                0 => self.in_file(at, rest),
                len => len,
            };
            if len == 0 {
                break;
            }
            done += len;
        }
        done
    }
}

const NT_PRSTATUS: u32 = elf::NT_PRSTATUS.0;
const NT_PRPSINFO: u32 = elf::NT_PRPSINFO.0;
const NT_AUXV: u32 = elf::NT_AUXV.0;
const NT_FILE: u32 = elf::NT_FILE.0;
const AT_PHDR: u64 = 3;

fn open_regular(path: &Path) -> Option<File> {
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    File::open(PathBuf::from(path)).ok()
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn longs(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect()
}

/// The parts of memory and the notes of a core file of this sort of machine.
fn parse(file: &File) -> Result<(Vec<Segment>, Vec<Note>), String> {
    let data = object::ReadCache::new(file);
    let not_one = || "not a core file: make one by `gcore PID`".to_owned();
    let header = elf::FileHeader64::<Endianness>::parse(&data).map_err(|_| not_one())?;
    let endian = header.endian().map_err(|_| not_one())?;
    if header.e_type(endian) != elf::ET_CORE {
        return Err(not_one());
    }
    if header.e_machine(endian).0 != program::MACHINE {
        return Err("a core file of another sort of machine: look at it on one of that sort".to_owned());
    }
    let damaged = |error: object::Error| format!("a damaged core file ({error})");
    let mut segments = Vec::new();
    let mut notes = Vec::new();
    for program in header.program_headers(endian, &data).map_err(damaged)? {
        if program.p_type(endian) == elf::PT_LOAD {
            let flags = program.p_flags(endian);
            let start = program.p_vaddr(endian);
            // What is behind `p_filesz` was left out of the core.
            segments.push(Segment {
                start,
                end: start.saturating_add(program.p_filesz(endian)),
                whole: start.saturating_add(program.p_memsz(endian)),
                offset: program.p_offset(endian),
                writable: flags.contains(elf::PF_W),
                executable: flags.contains(elf::PF_X),
            });
        }
        let Some(found) = program.notes(endian, &data).map_err(damaged)? else { continue };
        for note in found {
            let note = note.map_err(damaged)?;
            let name = note.name();
            if name == b"CORE" || name == b"LINUX" {
                notes.push((note.n_type(endian).0, note.desc().to_vec()));
            }
        }
    }
    segments.sort_by_key(|segment| segment.start);
    Ok((segments, notes))
}

/// What `NT_FILE` says: how many, the size of a page, three numbers for each, and then the paths.
fn file_notes(bytes: &[u8]) -> Option<Vec<Mapping>> {
    let numbers = longs(bytes);
    let count = usize::try_from(*numbers.first()?).ok().filter(|&count| count < numbers.len() / 3)?;
    let page = *numbers.get(1)?;
    let paths = bytes.get(16 + count.checked_mul(24)?..)?;
    let mut paths = paths.split(|&byte| byte == 0).map(|path| String::from_utf8_lossy(path).into_owned());
    let mapping = |of: &[u64]| {
        Some(Mapping {
            start: of[0],
            end: of[1],
            offset: of[2].checked_mul(page)?,
            executable: false,
            writable: false,
            inode: 0,
            path: paths.next()?,
        })
    };
    numbers.get(2..2 + count * 3)?.chunks_exact(3).map(mapping).collect()
}
