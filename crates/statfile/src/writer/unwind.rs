//! Walks the calling thread's stack, by rules that are kept.
//!
//! How to go from a frame to the one outside of it follows from the return address alone: the unwind tables
//! of its file (`.eh_frame`) say where the frame ends, counted from the stack pointer or the frame pointer,
//! and where it keeps its caller's frame pointer. libgcc searches and reads these tables anew for each frame
//! of each stack. Here the answer is kept by the return address, so that a frame that was met before costs a
//! few loads.
//!
//! Most frames are of this plain form. A walk that comes to another one (signal handlers, stacks that a
//! function has aligned) gives up, and libgcc does it. On other processors than x86-64 it does all of it.
//!
//! An address whose file was unloaded may become one of another file. So a rule counts only where the
//! instruction before the return address, the call, is what it was when the rule was made.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How many rules are kept: each at the place that its address hashes to, until another one takes it.
const RULES: usize = 1 << 14;

/// `.bss`, of which the kernel provides what is used.
static KEPT: [Kept; RULES] = [const { Kept { pc: AtomicU64::new(0), rule: AtomicU64::new(0) } }; RULES];

/// Threads write to one at any time. What they leave mixed up is not recognised: see [`check`].
#[repr(C, align(16))]
struct Kept {
    pc: AtomicU64,
    /// A [`Rule`] in the lower half, and [`check`] in the upper one.
    rule: AtomicU64,
}

/// How a frame is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The outermost frame, or one whose code has no tables.
    End,
    /// Not by such a rule.
    Other,
    Frame {
        /// It ends this number of words above the frame pointer; else above the stack pointer.
        by_frame_pointer: bool,
        words: u32,
        /// The caller's frame pointer lies this number of words below that end. 0: nowhere, it is still in
        /// its register.
        saved: u32,
    },
}

const SAVED_BITS: u32 = 6;

impl Rule {
    fn packed(self) -> u32 {
        match self {
            Rule::End => 0,
            Rule::Other => 1,
            Rule::Frame { by_frame_pointer, words, saved } => {
                2 | u32::from(by_frame_pointer) | saved << 2 | words << (2 + SAVED_BITS)
            }
        }
    }

    fn unpacked(bits: u32) -> Rule {
        match bits & 3 {
            0 => Rule::End,
            1 => Rule::Other,
            sort => Rule::Frame {
                by_frame_pointer: sort == 3,
                words: bits >> (2 + SAVED_BITS),
                saved: bits >> 2 & ((1 << SAVED_BITS) - 1),
            },
        }
    }
}

/// Calls `each` with the return address into each frame of this thread outside of the caller, and the stack
/// pointer there, innermost first, until it says that it is enough. Whether it came to that, or to the
/// outermost frame.
#[inline(never)]
pub(super) fn walk(mut each: impl FnMut(u64, usize) -> bool) -> bool {
    let (mut pc, mut sp, mut fp): (u64, usize, usize);
    // SAFETY: reads registers. They are those of one place in this function, whose frame the tables know.
    unsafe {
        core::arch::asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            "mov {fp}, rbp",
            pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp,
            options(nomem, nostack, preserves_flags),
        );
    }
    loop {
        let (by_frame_pointer, words, saved) = match rule(pc) {
            Rule::End => return true,
            Rule::Other => return false,
            Rule::Frame { by_frame_pointer, words, saved } => (by_frame_pointer, words, saved),
        };
        let base = if by_frame_pointer { fp } else { sp };
        let end = base.wrapping_add(8 * words as usize);
        if end <= sp || !end.is_multiple_of(8) {
            return false;
        }
        // SAFETY: within a frame of this thread, if the tables are right, as libgcc takes them to be.
        // Volatile, as it belongs to functions that the compiler knows nothing of.
        unsafe {
            pc = ((end - 8) as *const u64).read_volatile();
            if saved != 0 {
                fp = ((end - 8 * saved as usize) as *const usize).read_volatile();
            }
        }
        sp = end;
        if !each(pc, sp) || pc == 0 {
            return true;
        }
    }
}

/// How the frame that a call returns to at `pc` is left.
#[inline(always)]
fn rule(pc: u64) -> Rule {
    let kept = &KEPT[place(pc)];
    let rule = kept.rule.load(Acquire);
    // SAFETY: as for `check`.
    if kept.pc.load(Relaxed) == pc && rule >> 32 == u64::from(unsafe { check(pc) }) {
        return Rule::unpacked(rule as u32);
    }
    make(kept, pc)
}

#[inline(always)]
fn place(pc: u64) -> usize {
    (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RULES.ilog2())) as usize
}

/// What has to be the same for a rule to count: of the address, and of the instruction before it.
///
/// # Safety
/// There is code at `pc`, to which a call returns.
#[inline(always)]
unsafe fn check(pc: u64) -> u32 {
    const PAGE: u64 = 4096;
    // What lies before the page of the address may be no memory.
    let code = if pc % PAGE < 4 {
        0
    } else {
        // SAFETY: the caller vouches for it.
        unsafe { ((pc - 4) as *const u32).read_unaligned() }
    };
    code ^ (pc.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

#[cold]
#[inline(never)]
fn make(kept: &Kept, pc: u64) -> Rule {
    if pc < 4096 {
        return Rule::End;
    }
    let rule = read(pc);
    kept.pc.store(pc, Relaxed);
    // SAFETY: the return address of a frame, below the outermost one.
    let check = unsafe { check(pc) };
    // Release: after the address.
    kept.rule.store(u64::from(check) << 32 | u64::from(rule.packed()), Release);
    rule
}

/// From the tables.
fn read(pc: u64) -> Rule {
    /// What the kernel returns to from a signal handler: `mov $15, %rax; syscall`.
    const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let mut bases = Bases { text: ptr::null(), data: ptr::null(), function: ptr::null() };
    // SAFETY: fills our own variable.
    let entry = unsafe { _Unwind_Find_FDE((pc - 1) as *const c_void, &raw mut bases) };
    if entry.is_null() {
        let code = pc as *const u8;
        // SAFETY: code, which libgcc looks at as well.
        let signal = (0..SIGNAL_RETURN.len()).all(|n| unsafe { code.add(n).read() } == SIGNAL_RETURN[n]);
        return if signal { Rule::Other } else { Rule::End };
    }
    // SAFETY: an entry of a table that is in use.
    unsafe { table::read(entry.cast(), bases.function as u64, pc - 1) }.unwrap_or(Rule::Other)
}

/// libgcc's `struct dwarf_eh_bases`.
#[repr(C)]
struct Bases {
    text: *const c_void,
    data: *const c_void,
    function: *const c_void,
}

#[link(name = "gcc_s")]
unsafe extern "C" {
    /// The entry of the unwind tables for the function that this address lies in, and where that begins.
    fn _Unwind_Find_FDE(pc: *const c_void, bases: *mut Bases) -> *const c_void;
}

/// `.eh_frame`: the format is DWARF's, as the Linux Standard Base has changed it.
mod table {
    use super::{Rule, SAVED_BITS};

    /// DWARF's numbers of registers.
    const FRAME_POINTER: u64 = 6;
    const STACK_POINTER: u64 = 7;
    const RETURN_ADDRESS: u64 = 16;
    /// The frame's end is what an expression says.
    const BY_EXPRESSION: u64 = u64::MAX;

    struct Bytes<'a>(&'a [u8]);

    impl<'a> Bytes<'a> {
        fn take(&mut self, len: usize) -> Option<&'a [u8]> {
            let (taken, rest) = self.0.split_at_checked(len)?;
            self.0 = rest;
            Some(taken)
        }

        fn byte(&mut self) -> Option<u8> {
            self.take(1).map(|taken| taken[0])
        }

        /// A number of this many bytes.
        fn number(&mut self, len: usize) -> Option<u64> {
            Some(self.take(len)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        }

        /// A number in groups of seven bits, and how many bits they are.
        fn groups(&mut self) -> Option<(u64, u32)> {
            let (mut number, mut bits) = (0, 0);
            loop {
                let byte = self.byte()?;
                if bits < 64 {
                    number |= u64::from(byte & 0x7f) << bits;
                }
                bits += 7;
                if byte & 0x80 == 0 {
                    return Some((number, bits));
                }
            }
        }

        fn unsigned(&mut self) -> Option<u64> {
            self.groups().map(|(number, _)| number)
        }

        fn signed(&mut self) -> Option<i64> {
            let (number, bits) = self.groups()?;
            let unused = 64u32.saturating_sub(bits);
            Some((number << unused) as i64 >> unused)
        }

        fn block(&mut self) -> Option<&'a [u8]> {
            let len = self.unsigned()?;
            self.take(usize::try_from(len).ok()?)
        }
    }

    /// What is in a register of the caller.
    #[derive(Clone, Copy, PartialEq)]
    enum Register {
        /// What is in it here.
        Kept,
        /// What lies so far from the frame's end.
        At(i64),
        /// Nothing: there is no caller.
        Lost,
        Other,
    }

    #[derive(Clone, Copy)]
    struct Row {
        base: u64,
        offset: i64,
        frame_pointer: Register,
        return_address: Register,
    }

    impl Row {
        fn set(&mut self, register: u64, to: Register) {
            match register {
                FRAME_POINTER => self.frame_pointer = to,
                RETURN_ADDRESS => self.return_address = to,
                _ => {}
            }
        }

        fn restore(&mut self, register: u64, first: &Row) {
            match register {
                FRAME_POINTER => self.frame_pointer = first.frame_pointer,
                RETURN_ADDRESS => self.return_address = first.return_address,
                _ => {}
            }
        }

        fn rule(&self) -> Option<Rule> {
            if self.return_address == Register::Lost {
                return Some(Rule::End);
            }
            if self.return_address != Register::At(-8) || self.offset <= 0 || self.offset % 8 != 0 {
                return None;
            }
            let by_frame_pointer = match self.base {
                STACK_POINTER => false,
                FRAME_POINTER => true,
                _ => return None,
            };
            let saved = match self.frame_pointer {
                Register::Kept => 0,
                Register::At(offset) if offset < 0 && offset % 8 == 0 => offset / -8,
                _ => return None,
            };
            let (words, saved) = (u32::try_from(self.offset / 8).ok()?, u32::try_from(saved).ok()?);
            let fits = words >> (u32::BITS - SAVED_BITS - 2) == 0 && saved >> SAVED_BITS == 0;
            fits.then_some(Rule::Frame { by_frame_pointer, words, saved })
        }
    }

    /// What functions of one sort have in common.
    struct Common<'a> {
        code_unit: u64,
        data_unit: i64,
        /// How addresses are written.
        encoding: u8,
        sized: bool,
        instructions: &'a [u8],
    }

    /// How many bytes an address takes that is written like this.
    fn size_of(encoding: u8) -> Option<usize> {
        match encoding & 0x7f {
            // Aligned.
            0x50 => None,
            encoding => match encoding & 0x07 {
                0 | 4 => Some(8),
                2 => Some(2),
                3 => Some(4),
                _ => None,
            },
        }
    }

    fn common(mut bytes: Bytes<'_>) -> Option<Common<'_>> {
        bytes.number(4)?;
        let version = bytes.byte()?;
        let end = bytes.0.iter().position(|byte| *byte == 0)?;
        let letters = bytes.take(end + 1)?;
        let (code_unit, data_unit) = (bytes.unsigned()?, bytes.signed()?);
        let return_address = match version {
            1 => u64::from(bytes.byte()?),
            3 => bytes.unsigned()?,
            _ => return None,
        };
        if return_address != RETURN_ADDRESS {
            return None;
        }
        let (mut encoding, sized) = (0, letters[0] == b'z');
        if sized {
            let mut values = Bytes(bytes.block()?);
            for letter in &letters[1..end] {
                match letter {
                    b'R' => encoding = values.byte()?,
                    b'L' => {
                        values.byte()?;
                    }
                    b'P' => {
                        let size = size_of(values.byte()?)?;
                        values.take(size)?;
                    }
                    // A signal handler's frame, and what is not known.
                    _ => return None,
                }
            }
        } else if end != 0 {
            return None;
        }
        Some(Common { code_unit, data_unit, encoding, sized, instructions: bytes.0 })
    }

    /// What follows the length at `at`.
    ///
    /// # Safety
    /// There is an entry of such a table, which stays meanwhile.
    unsafe fn entry<'a>(at: *const u8) -> Option<Bytes<'a>> {
        // SAFETY: an entry begins with its length.
        let len = unsafe { at.cast::<u32>().read_unaligned() };
        // SAFETY: as many bytes follow.
        (len < 0xffff_fff0).then(|| Bytes(unsafe { core::slice::from_raw_parts(at.add(4), len as usize) }))
    }

    /// How the frame of the function that begins at `start` is left at `pc`. `None` if by no such rule.
    ///
    /// # Safety
    /// `at` is the function's entry in such a table, which stays meanwhile.
    pub(super) unsafe fn read(at: *const u8, start: u64, pc: u64) -> Option<Rule> {
        // SAFETY: the caller vouches for it.
        let mut bytes = unsafe { entry(at) }?;
        // Backward from here.
        let distance = bytes.number(4)? as usize;
        // SAFETY: where the entry says that there is one.
        let common = common(unsafe { entry(at.add(4).wrapping_sub(distance)) }?)?;
        bytes.take(2 * size_of(common.encoding)?)?;
        if common.sized {
            bytes.block()?;
        }
        let begin = Row {
            base: BY_EXPRESSION,
            offset: 0,
            frame_pointer: Register::Kept,
            return_address: Register::Kept,
        };
        let first = follow(&common, Bytes(common.instructions), begin, begin, 0..=u64::MAX)?;
        follow(&common, bytes, first, first, start..=pc)?.rule()
    }

    /// What the row has become where the instructions come to the end of the range.
    fn follow(
        common: &Common<'_>,
        mut bytes: Bytes<'_>,
        first: Row,
        mut row: Row,
        range: core::ops::RangeInclusive<u64>,
    ) -> Option<Row> {
        let mut place = *range.start();
        let mut remembered = [row; 4];
        let mut depth = 0;
        while let Some(code) = bytes.byte() {
            let low = u64::from(code & 0x3f);
            let data = |units: i64| Register::At(units.wrapping_mul(common.data_unit));
            let mut further = None;
            match (code & 0xc0, code & 0x3f) {
                (0x40, _) => further = Some(low),
                (0x80, _) => row.set(low, data(bytes.unsigned()? as i64)),
                (0xc0, _) => row.restore(low, &first),
                (_, 0x00) => {}
                (_, 0x02) => further = Some(bytes.number(1)?),
                (_, 0x03) => further = Some(bytes.number(2)?),
                (_, 0x04) => further = Some(bytes.number(4)?),
                (_, 0x05) => row.set(bytes.unsigned()?, data(bytes.unsigned()? as i64)),
                (_, 0x06) => row.restore(bytes.unsigned()?, &first),
                (_, 0x07) => row.set(bytes.unsigned()?, Register::Lost),
                (_, 0x08) => row.set(bytes.unsigned()?, Register::Kept),
                (_, 0x09) => {
                    row.set(bytes.unsigned()?, Register::Other);
                    bytes.unsigned()?;
                }
                (_, 0x0a) => {
                    *remembered.get_mut(depth)? = row;
                    depth += 1;
                }
                (_, 0x0b) => {
                    depth = depth.checked_sub(1)?;
                    row = remembered[depth];
                }
                (_, 0x0c) => (row.base, row.offset) = (bytes.unsigned()?, bytes.unsigned()? as i64),
                (_, 0x0d) => row.base = bytes.unsigned()?,
                (_, 0x0e) => row.offset = bytes.unsigned()? as i64,
                (_, 0x0f) => {
                    bytes.block()?;
                    row.base = BY_EXPRESSION;
                }
                (_, 0x10 | 0x16) => {
                    row.set(bytes.unsigned()?, Register::Other);
                    bytes.block()?;
                }
                (_, 0x11) => row.set(bytes.unsigned()?, data(bytes.signed()?)),
                (_, 0x12) => {
                    (row.base, row.offset) =
                        (bytes.unsigned()?, bytes.signed()?.wrapping_mul(common.data_unit));
                }
                (_, 0x13) => row.offset = bytes.signed()?.wrapping_mul(common.data_unit),
                // How many bytes of arguments a call has pushed.
                (_, 0x2e) => {
                    bytes.unsigned()?;
                }
                _ => return None,
            }
            if let Some(units) = further {
                place = place.checked_add(units.checked_mul(common.code_unit)?)?;
                if place > *range.end() {
                    break;
                }
            }
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stacks::{_Unwind_Backtrace, _Unwind_GetCFA, _Unwind_GetIP};
    use super::*;
    use core::ffi::c_int;

    unsafe extern "C" fn note(context: *mut c_void, frames: *mut c_void) -> c_int {
        // SAFETY: what `compare` passes.
        let frames = unsafe { &mut *frames.cast::<Vec<(u64, usize)>>() };
        // SAFETY: the unwinder's own.
        frames.push(unsafe { (_Unwind_GetIP(context) as u64, _Unwind_GetCFA(context)) });
        0
    }

    /// Both walk from here; the frames outside of this one have to be the same. How many there are.
    #[inline(never)]
    fn compare() -> usize {
        let (mut ours, mut libgcc) = (Vec::new(), Vec::new());
        let walked = walk(|pc, sp| {
            ours.push((pc, sp));
            true
        });
        // SAFETY: a function of this kind, and what it expects.
        unsafe { _Unwind_Backtrace(note, (&raw mut libgcc).cast()) };
        assert!(walked, "not to the end: {ours:x?}");
        assert!(ours.len() > 1);
        // It says so where there is no further one.
        libgcc.retain(|(pc, _)| *pc != 0);
        assert_eq!(ours[1..], libgcc[1..]);
        ours.len()
    }

    #[inline(never)]
    fn deep(depth: usize, work: &mut dyn FnMut() -> usize) -> usize {
        let mut room = [depth; 700];
        core::hint::black_box(&mut room);
        let frames = if depth == 0 { work() } else { deep(depth - 1, work) };
        frames + usize::from(core::hint::black_box(&room)[depth] != depth)
    }

    extern "C" fn in_order(_: *const c_void, _: *const c_void) -> c_int {
        compare();
        0
    }

    #[test]
    fn frames_are_those_that_libgcc_finds() {
        let outside = compare();
        // As they are made, and as they are kept.
        for _ in 0..2 {
            assert!(deep(20, &mut compare) - outside >= 20);
            // Through C.
            let mut numbers = [3u8, 1, 2];
            // SAFETY: sorts three bytes.
            unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 3, 1, Some(in_order)) };
            std::thread::spawn(compare).join().unwrap();
        }
    }

    #[test]
    fn a_rule_of_other_code_does_not_count() {
        let mut places = Vec::new();
        assert!(walk(|pc, _| {
            places.push(pc);
            true
        }));
        for &pc in &places {
            let kept = &KEPT[place(pc)];
            kept.pc.store(pc, Relaxed);
            // SAFETY: return addresses of this thread.
            let other = u64::from(!unsafe { check(pc) });
            kept.rule.store(other << 32 | u64::from(Rule::End.packed()), Relaxed);
        }
        compare();
    }

    #[test]
    fn rules_are_packed() {
        let frame = |by_frame_pointer, words, saved| Rule::Frame { by_frame_pointer, words, saved };
        for rule in [Rule::End, Rule::Other, frame(false, 1, 0), frame(true, (1 << 24) - 1, 63)] {
            assert_eq!(Rule::unpacked(rule.packed()), rule);
        }
    }
}
