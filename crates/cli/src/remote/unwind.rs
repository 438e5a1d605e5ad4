//! Stacks of copied threads: by the unwind tables of the files (DWARF), by frame pointers where there are
//! none, and where neither leads on, by looking for the next return address.

use std::collections::HashMap;
use std::path::Path;

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
/// As many words are looked at for a return address,
const SEARCHED: u64 = 256;
/// and as often in one stack.
const SEARCHES: usize = 8;
/// A call of a function, or of one that jumps to it, goes as near.
const NEAR: u64 = 1 << 16;

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

/// What unwinds the stacks of a process.
pub(crate) struct Unwinder {
    inner: native::Unwinder<Vec<u8>>,
    cache: native::Cache,
}

impl Unwinder {
    /// Of a process with these files.
    pub(crate) fn new(snapshot: &Snapshot, maps: &Maps) -> Self {
        let mut inner = native::Unwinder::new();
        let mut files: HashMap<&str, Option<ElfFile>> = HashMap::new();
        for module in &snapshot.modules {
            if !maps.is_code(module.start) {
                continue;
            }
            let file = files.entry(&module.path).or_insert_with(|| ElfFile::open(Path::new(&module.path)));
            let Some(file) = file else { continue };
            let Some(bias) = file.bias(module.start, module.offset) else { continue };
            let base = file.sections.base_svma.wrapping_add(bias);
            inner.add_module(Module::new(
                module.path.clone(),
                module.start..module.end,
                base,
                file.sections.clone(),
            ));
        }
        Unwinder { inner, cache: native::Cache::new() }
    }

    /// The stack of a thread, innermost first. Empty if nothing is known of it.
    pub(crate) fn stack(&mut self, thread: &Thread, maps: &Maps, memory: &impl Memory) -> Vec<Frame> {
        let (pc, sp, fp, lr) = match (&thread.registers, &thread.doing) {
            (Some(registers), _) => (registers.pc, registers.sp, registers.fp, registers.lr),
            (None, Doing::Call { sp, pc, .. } | Doing::Outside { sp, pc }) => (*pc, *sp, 0, 0),
            _ => return Vec::new(),
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
                Ok(None) if frames.len() > 1 => break,
                _ if searches < SEARCHES && frames.len() < 12 => {
                    searches += 1;
                    let found = search(maps, address.address(), before, thread, memory);
                    let Some((at, place)) = found else { break };
                    // Functions that keep a frame pointer have their caller's beside the return address.
                    let kept = || thread.stack.long(place.wrapping_sub(8)).filter(|&fp| is_frame(fp, place));
                    let fp = Some(native::fp(&registers)).filter(|&fp| fp > place).or_else(kept).unwrap_or(0);
                    registers = native::registers(at, place + 8, fp, at, self.inner.max_known_code_address());
                    (at, true)
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
        frames
    }
}

/// The next word that looks like a return address of the function at `pc`, and where it is.
fn search(maps: &Maps, pc: u64, from: u64, thread: &Thread, memory: &impl Memory) -> Option<(u64, u64)> {
    let path = |at: u64| maps.at(at.wrapping_sub(1)).map(|mapping| &mapping.path);
    (0..SEARCHED).map(|n| (from & !7) + n * 8).find_map(|place| {
        let at = thread.stack.long(place)?;
        if !maps.is_code(at.wrapping_sub(1)) {
            return None;
        }
        let mut before = [0; 7];
        let len = memory.read(at.wrapping_sub(7), &mut before);
        let after = if len == 7 { native::after_call(&before, at) } else { None };
        match after? {
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
    sections: ExplicitModuleSectionInfo<Vec<u8>>,
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
            section.uncompressed_data().ok().map(|bytes| bytes.into_owned()).filter(|bytes| !bytes.is_empty())
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
