//! Stacks of copied threads: by the unwind tables of the files (DWARF), by frame pointers where there are
//! none, and where neither leads on, by looking for the next return address.
//!
//! Of a thread that was not stopped only the stack pointer and the program counter are known. Most functions
//! need no more. A function whose frame begins at its frame pointer does, unless a function that it called
//! has saved the register. Its return address is then the first word of the stack that lies behind a call of
//! exactly this function, and its unwind table must lead to the same word (see [`Unwinder::recover`]).

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, SegmentFlags, elf};
use poundlock_statfile::Snapshot;

use super::maps::Maps;
use super::{Memory, Thread};
use crate::elf_file;
use crate::observe::calls::Doing;

#[cfg(target_arch = "x86_64")]
mod native {
    pub(super) use framehop::x86_64::{
        CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as Unwinder,
    };

    pub(super) fn registers(pc: u64, sp: u64, fp: u64, _lr: u64, _highest: u64) -> Registers {
        Registers::new(pc, sp, fp)
    }

    /// Frame pointer of a caller.
    pub(super) fn fp(registers: &Registers) -> u64 {
        registers.bp()
    }

    /// The call that the instruction before `at` may be: how long calls are, and how they begin.
    pub(super) fn after_call(before: &[u8; 7], at: u64) -> Option<super::Call> {
        let [_, _, opcode, distance @ ..] = *before;
        if opcode == 0xe8 {
            let distance = i64::from(i32::from_le_bytes(distance));
            return Some(super::Call::To(at.wrapping_add_signed(distance)));
        }
        // `call *reg`, `call *disp8(reg)`, `call *disp32(reg)` and with an index: the opcode and its second
        // half, which says how long it is.
        let indirect = |length: usize| before[7 - length] == 0xff && (before[8 - length] >> 3) & 7 == 2;
        [2, 3, 4, 6, 7].into_iter().any(indirect).then_some(super::Call::Somewhere)
    }
}

#[cfg(target_arch = "aarch64")]
mod native {
    use framehop::aarch64::PtrAuthMask;
    pub(super) use framehop::aarch64::{
        CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as Unwinder,
    };

    pub(super) fn registers(_pc: u64, sp: u64, fp: u64, lr: u64, highest: u64) -> Registers {
        Registers::new_with_ptr_auth_mask(PtrAuthMask::from_max_known_address(highest), lr, sp, fp)
    }

    pub(super) fn fp(registers: &Registers) -> u64 {
        registers.fp()
    }

    /// `bl` or `blr`.
    pub(super) fn after_call(before: &[u8; 7], at: u64) -> Option<super::Call> {
        let word = u32::from_le_bytes([before[3], before[4], before[5], before[6]]);
        if word & 0xfc00_0000 == 0x9400_0000 {
            let distance = i64::from((word << 6) as i32 >> 6) * 4;
            return Some(super::Call::To(at.wrapping_sub(4).wrapping_add_signed(distance)));
        }
        (word & 0xffff_fc1f == 0xd63f_0000).then_some(super::Call::Somewhere)
    }
}

/// Deeper stacks are cut.
const DEEPEST: usize = 256;
/// As many words are looked at for a return address behind a call of exactly the function,
const SEARCHED_EXACTLY: u64 = 1024;
/// for any that may be one,
const SEARCHED: u64 = 256;
/// and as often in one stack.
const SEARCHES: usize = 8;
/// A call of a function, or of one that jumps to it, goes as near.
const NEAR: u64 = 1 << 16;
/// A frame pointer that is not known: no frame lies there, so that a rule which uses it fails. At 0 a chain
/// of frame pointers would end.
const UNKNOWN: u64 = 8;

/// One function on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The return address; of the innermost one, the byte after the instruction that is about to run, so that
    /// what is before it is always the place.
    pub(crate) at: u64,
    /// Where the stack of its caller begins: what is below, from the frame before on, is the function's own.
    pub(crate) end: u64,
    /// It was found by its looks.
    pub(crate) guessed: bool,
}

/// A stack as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unwound {
    /// Innermost first. Empty if nothing is known.
    pub(crate) frames: Vec<Frame>,
    /// Whether the outermost function is among them.
    pub(crate) is_whole: bool,
}

/// The unwind tables of files, each read once for all processes that have it mapped.
#[derive(Default)]
pub(crate) struct Tables(HashMap<String, Option<Arc<ElfFile>>>);

impl Tables {
    fn file(&mut self, path: &str) -> Option<Arc<ElfFile>> {
        if let Some(known) = self.0.get(path) {
            return known.clone();
        }
        let file = ElfFile::open(Path::new(path)).map(Arc::new);
        self.0.insert(path.to_owned(), file.clone());
        file
    }
}

/// Code of a file at its place in the process.
struct Code {
    place: Range<u64>,
    bias: u64,
    file: Arc<ElfFile>,
}

/// What unwinds the stacks of a process.
pub(crate) struct Unwinder {
    inner: native::Unwinder<Arc<[u8]>>,
    cache: native::Cache,
    code: Vec<Code>,
    /// How far from the stack pointer the return address lay that [`Unwinder::recover`] found, by place in
    /// the function: it seldom lies elsewhere the next time.
    distances: HashMap<u64, u64>,
}

impl Unwinder {
    /// Of a process with these files.
    pub(crate) fn new(snapshot: &Snapshot, maps: &Maps, tables: &mut Tables) -> Self {
        let mut inner = native::Unwinder::new();
        let mut code = Vec::new();
        for module in &snapshot.modules {
            if !maps.is_code(module.start) {
                continue;
            }
            let Some(file) = tables.file(&module.path) else { continue };
            let Some(bias) = file.bias(module.start, module.offset) else { continue };
            let base = file.sections.base_svma.wrapping_add(bias);
            inner.add_module(Module::new(
                module.path.clone(),
                module.start..module.end,
                base,
                file.sections.clone(),
            ));
            code.push(Code { place: module.start..module.end, bias, file });
        }
        Unwinder { inner, cache: native::Cache::new(), code, distances: HashMap::new() }
    }

    /// The stack of a thread.
    pub(crate) fn stack(&mut self, thread: &Thread, maps: &Maps, memory: &impl Memory) -> Unwound {
        let (pc, sp, fp, lr) = match (&thread.registers, &thread.doing) {
            (Some(registers), _) => (registers.pc, registers.sp, registers.fp, registers.lr),
            (None, Doing::Call { sp, pc, .. } | Doing::Outside { sp, pc }) => (*pc, *sp, UNKNOWN, 0),
            _ => return Unwound::default(),
        };
        let mut registers = native::registers(pc, sp, fp, lr, self.inner.max_known_code_address());
        // Where a frame may be whose inner one is at `place`.
        let is_frame = |fp: u64, place: u64| {
            let caller = || thread.stack.long(fp.wrapping_add(8));
            fp > place && fp.is_multiple_of(16) && caller().is_some_and(|at| maps.is_code(at.wrapping_sub(1)))
        };
        let mut frames = vec![Frame { at: pc + 1, end: sp, guessed: false }];
        let mut address = FrameAddress::from_instruction_pointer(pc);
        let mut searches = 0;
        let mut is_whole = false;
        while frames.len() < DEEPEST {
            let mut read = |at: u64| thread.stack.long(at).ok_or(());
            let before = registers.sp();
            let next = self.inner.unwind_frame(address, &mut registers, &mut self.cache, &mut read);
            let sp = registers.sp();
            let (at, guessed) = match next {
                // A leaf function need not have touched the stack.
                Ok(Some(at)) if (sp > before || frames.len() == 1) && maps.is_code(at.wrapping_sub(1)) => {
                    (at, false)
                }
                // The outermost function, if it was one that can be.
                Ok(None) if frames.len() > 1 => {
                    is_whole = true;
                    break;
                }
                _ if searches < SEARCHES => {
                    searches += 1;
                    if let Some((at, found)) = self.recover(address, before, thread, maps, memory) {
                        registers = found;
                        (at, false)
                    } else {
                        let found = search(maps, address.address(), before, thread, memory);
                        let Some((at, place)) = found.filter(|_| frames.len() < 12) else { break };
                        // Functions that keep a frame pointer have their caller's beside the return address.
                        let kept =
                            || thread.stack.long(place.wrapping_sub(8)).filter(|&fp| is_frame(fp, place));
                        let fp = Some(native::fp(&registers)).filter(|&fp| fp > place).or_else(kept);
                        let highest = self.inner.max_known_code_address();
                        registers = native::registers(at, place + 8, fp.unwrap_or(UNKNOWN), at, highest);
                        (at, true)
                    }
                }
                _ => break,
            };
            if let Some(last) = frames.last_mut() {
                last.end = registers.sp();
            }
            frames.push(Frame { at, end: registers.sp(), guessed });
            let Some(next) = FrameAddress::from_return_address(at) else { break };
            address = next;
        }
        Unwound { frames, is_whole }
    }

    /// The caller of a function that keeps a frame pointer which is not known: its return address, and the
    /// registers there. The return address lies behind a direct call of the function, which stale words of
    /// earlier calls do not unless the function itself was called earlier, further in; and with the frame
    /// pointer beside it the function's own unwind table leads to the same word.
    fn recover(
        &mut self,
        address: FrameAddress,
        from: u64,
        thread: &Thread,
        maps: &Maps,
        memory: &impl Memory,
    ) -> Option<(u64, native::Registers)> {
        let pc = address.address();
        let code = self.code.iter().find(|code| code.place.contains(&pc))?;
        let start = code.file.start_of(pc.wrapping_sub(code.bias))?.wrapping_add(code.bias);
        let highest = self.inner.max_known_code_address();
        let from = from & !7;
        let last_time = self.distances.get(&pc).map(|distance| from + distance);
        let places = last_time.into_iter().chain((0..SEARCHED_EXACTLY).map(|n| from + n * 8));
        let (place, at, registers) =
            places.filter_map(|place| Some((place, thread.stack.long(place)?))).find_map(|(place, at)| {
                if !maps.is_code(at.wrapping_sub(1)) || call_before(at, memory) != Some(Call::To(start)) {
                    return None;
                }
                let mut registers = native::registers(pc, from, place.wrapping_sub(8), 0, highest);
                let mut read = |at: u64| thread.stack.long(at).ok_or(());
                let next = self.inner.unwind_frame(address, &mut registers, &mut self.cache, &mut read);
                (next == Ok(Some(at)) && registers.sp() == place + 8).then_some((place, at, registers))
            })?;
        self.distances.insert(pc, place - from);
        Some((at, registers))
    }
}

/// The call that the instruction before a return address is.
fn call_before(at: u64, memory: &impl Memory) -> Option<Call> {
    let mut before = [0; 7];
    (memory.read(at.wrapping_sub(7), &mut before) == 7).then(|| native::after_call(&before, at))?
}

/// The next word that looks like a return address of the function at `pc`, and where it is.
fn search(maps: &Maps, pc: u64, from: u64, thread: &Thread, memory: &impl Memory) -> Option<(u64, u64)> {
    let path = |at: u64| maps.at(at.wrapping_sub(1)).map(|mapping| &mapping.path);
    (0..SEARCHED).map(|n| (from & !7) + n * 8).find_map(|place| {
        let at = thread.stack.long(place)?;
        if !maps.is_code(at.wrapping_sub(1)) {
            return None;
        }
        match call_before(at, memory)? {
            // Within a file calls go to their function.
            Call::To(target) if path(at) == path(pc) => (pc.abs_diff(target) < NEAR).then_some((at, place)),
            _ => Some((at, place)),
        }
    })
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Of the function at this address, or a jump to it.
    To(u64),
    /// Of one that a register or a word of memory names.
    Somewhere,
}

/// What is added to the addresses of a file that is loaded.
pub(crate) fn bias(snapshot: &Snapshot, path: &str) -> Option<u64> {
    let file = ElfFile::open(Path::new(path))?;
    let mut modules = snapshot.modules.iter().filter(|module| module.path == path);
    modules.find_map(|module| file.bias(module.start, module.offset))
}

/// What unwinding needs of a file.
struct ElfFile {
    /// Address in the file, offset, and size of what is loaded as code.
    code: Vec<(u64, u64, u64)>,
    sections: ExplicitModuleSectionInfo<Arc<[u8]>>,
}

impl ElfFile {
    fn open(path: &Path) -> Option<ElfFile> {
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let data = elf_file::open(path)?;
        let file = elf_file::parse(&data)?;
        let is_code = |flags: &SegmentFlags| match flags {
            SegmentFlags::Elf { p_flags, .. } => p_flags.contains(elf::PF_X),
            _ => false,
        };
        let code = file.segments().filter(|segment| is_code(&segment.flags())).map(|segment| {
            let (offset, size) = segment.file_range();
            (segment.address(), offset, size)
        });
        let code = code.collect();
        let range = |name: &str| {
            file.section_by_name(name).map(|section| section.address()..section.address() + section.size())
        };
        let bytes = |name: &str| {
            let section = file.section_by_name(name)?;
            section.uncompressed_data().ok().map(Arc::from).filter(|bytes: &Arc<[u8]>| !bytes.is_empty())
        };
        let eh_frame = bytes(".eh_frame");
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr").filter(|_| eh_frame.is_some()),
            debug_frame: if eh_frame.is_none() { bytes(".debug_frame") } else { None },
            eh_frame,
            ..ExplicitModuleSectionInfo::default()
        };
        Some(ElfFile { code, sections })
    }

    /// Where the function begins that an address of the file is in: by the sorted table of `.eh_frame_hdr`,
    /// in the form that linkers give it (Linux Standard Base, 10.6.2).
    fn start_of(&self, address: u64) -> Option<u64> {
        const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let place = self.sections.eh_frame_hdr_svma.as_ref()?.start;
        let header = self.sections.eh_frame_hdr.as_deref()?;
        if !header.starts_with(&HEADER) {
            return None;
        }
        let (entries, _) = header.get(12..)?.as_chunks::<8>();
        let start = |entry: &[u8; 8]| {
            let [a, b, c, d, ..] = *entry;
            place.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into())
        };
        let after = entries.partition_point(|entry| start(entry) <= address);
        entries[..after].last().map(start)
    }

    /// What is added to the file's addresses, if a mapping from this offset on is at `start`.
    fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        let of = self.code.iter().find(|(_, at, size)| (at & !(PAGE - 1)..at + size).contains(&offset));
        of.map(|(address, at, _)| start.wrapping_sub(address.wrapping_sub(*at).wrapping_add(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::Call;
    use super::native::after_call;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn calls_are_told_from_other_instructions() {
        assert_eq!(after_call(&[0x90, 0x90, 0xe8, 0xfb, 0xff, 0xff, 0xff], 0x1000), Some(Call::To(0xffb)));
        for before in [
            [0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0], // call *%rax
            [0x90, 0xff, 0x15, 1, 2, 3, 4],             // call *disp32(%rip)
            [0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 8],    // call *8(%rax)
        ] {
            assert_eq!(after_call(&before, 0x1000), Some(Call::Somewhere), "{before:x?}");
        }
        assert_eq!(after_call(&[0x90; 7], 0x1000), None);
        // jmp *%rax
        assert_eq!(after_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0], 0x1000), None);
    }

    #[test]
    #[cfg(target_arch = "aarch64")]
    fn calls_are_told_from_other_instructions() {
        // bl .-4, blr x1, ret
        assert_eq!(after_call(&[0, 0, 0, 0xff, 0xff, 0xff, 0x97], 0x1000), Some(Call::To(0xff8)));
        assert_eq!(after_call(&[0, 0, 0, 0x20, 0x00, 0x3f, 0xd6], 0x1000), Some(Call::Somewhere));
        assert_eq!(after_call(&[0, 0, 0, 0xc0, 0x03, 0x5f, 0xd6], 0x1000), None);
    }
}
