//! The records in the rings, as the kernel's `perf_event_open(2)` describes them.

use rustc_hash::FxHashMap;

use super::perf::{Source, format, registers};
use crate::remote::maps::Mapping;

/// One of them.
#[derive(Debug)]
pub(super) enum Record<'r> {
    Sample(Sample<'r>),
    /// How many had no room.
    Lost(u64),
    Mapped {
        pid: u32,
        mapping: Mapping,
    },
    /// A thread has another name; or its process is another program.
    Named {
        pid: u32,
        exec: bool,
        time: u64,
    },
    Started {
        pid: u32,
        tid: u32,
        parent: u32,
        time: u64,
    },
    Ended {
        pid: u32,
        tid: u32,
        time: u64,
    },
    Other,
}

/// A system call.
#[derive(Debug)]
pub(super) struct Sample<'r> {
    pub(super) source: Source,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) time: u64,
    /// What the tracepoint says.
    pub(super) raw: &'r [u8],
    /// The number that its stack was given by us; 0 if it is not known.
    pub(super) known: u64,
    /// Return addresses by frame pointers; the program counter comes first.
    pub(super) chain: Words<'r>,
    /// Of a call that begins.
    pub(super) registers: Option<Registers>,
    /// From the stack pointer on.
    pub(super) stack: &'r [u8],
}

/// Those from which a stack is unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    pub(super) lr: u64,
}

/// Words, wherever they lie.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Words<'r>(&'r [u8]);

impl<'r> Words<'r> {
    pub(super) fn new(bytes: &'r [u8]) -> Words<'r> {
        Words(bytes)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u64> + 'r {
        self.0.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
    }
}

/// The word at a place, if it is there.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
/// Of a name: it comes with another program.
const EXECUTED: u16 = 1 << 13;
/// From here on an entry of a chain says what those behind it are.
const MARKS: u64 = (-4096i64) as u64;
/// What follows in a record that is no sample: thread, time, id.
const TRAILER: usize = 24;

/// Where in a record of this sort and length its time is.
pub(super) fn time_at(sort: u32, length: usize) -> usize {
    if sort == SAMPLE { 8 + 16 } else { length.saturating_sub(TRAILER - 8) & !7 }
}

/// Reads a record. `None` if it is cut, or of an event that is not ours.
pub(super) fn parse<'r>(sources: &FxHashMap<u64, Source>, record: &'r [u8]) -> Option<Record<'r>> {
    let sort = half(record, 0)?;
    let misc = u16::from_ne_bytes([record[4], record[5]]);
    let body = &record[8..];
    if sort == SAMPLE {
        return sample(sources, body).map(Record::Sample);
    }
    let time = || word(body, body.len().checked_sub(TRAILER - 8)?);
    Some(match sort {
        LOST => Record::Lost(word(body, 8)?),
        COMM => Record::Named { pid: half(body, 0)?, exec: misc & EXECUTED != 0, time: time()? },
        FORK => Record::Started {
            pid: half(body, 0)?,
            parent: half(body, 4)?,
            tid: half(body, 8)?,
            time: time()?,
        },
        EXIT => Record::Ended { pid: half(body, 0)?, tid: half(body, 8)?, time: time()? },
        MMAP2 => {
            let (start, length) = (word(body, 8)?, word(body, 16)?);
            let rights = half(body, 56)?;
            let name = body.get(64..body.len().checked_sub(TRAILER)?)?;
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let right = |of: libc::c_int| rights & of as u32 != 0;
            let mapping = Mapping {
                start,
                end: start.wrapping_add(length),
                offset: word(body, 24)?,
                executable: right(libc::PROT_EXEC),
                writable: right(libc::PROT_WRITE),
                inode: word(body, 40)?,
                path: String::from_utf8_lossy(name).into_owned(),
            };
            Record::Mapped { pid: half(body, 0)?, mapping }
        }
        _ => Record::Other,
    })
}

fn sample<'r>(sources: &FxHashMap<u64, Source>, body: &'r [u8]) -> Option<Sample<'r>> {
    let source = *sources.get(&word(body, 0)?)?;
    let (pid, tid, time) = (half(body, 8)?, half(body, 12)?, word(body, 16)?);
    let mut at = 24;
    let mut chain = Words::default();
    if source.format & format::CALLCHAIN != 0 {
        let count = usize::try_from(word(body, at)?).ok()?;
        let mut entries = body.get(at + 8..at + 8 + count.checked_mul(8)?)?;
        at += 8 + entries.len();
        // Which registers it begins with.
        while word(entries, 0).is_some_and(|entry| entry >= MARKS) {
            entries = &entries[8..];
        }
        chain = Words(entries);
    }
    let length = half(body, at)? as usize;
    let raw = body.get(at + 4..at + 4 + length)?;
    at += 4 + length;
    let mut regs = None;
    if source.format & format::REGS_USER != 0 {
        let abi = word(body, at)?;
        at += 8;
        if abi != 0 {
            let of = |index: usize| word(body, at + 8 * index);
            regs = Some(Registers {
                pc: of(registers::PC)?,
                sp: of(registers::SP)?,
                fp: of(registers::FP)?,
                lr: registers::LR.map_or(Some(0), of)?,
            });
            at += 8 * registers::COUNT;
        }
    }
    let mut stack: &[u8] = &[];
    if source.format & format::STACK_USER != 0 {
        let size = usize::try_from(word(body, at)?).ok()?;
        if size > 0 {
            let copied = usize::try_from(word(body, at + 8 + size)?).ok()?;
            stack = body.get(at + 8..at + 8 + copied.min(size))?;
        }
    }
    Some(Sample { source, pid, tid, time, raw, known: 0, chain, registers: regs, stack })
}

#[cfg(test)]
mod tests {
    use super::super::perf::What;
    use super::*;

    fn words(of: &[u64]) -> Vec<u8> {
        of.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn record(sort: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let length = (8 + body.len()) as u16;
        [&sort.to_ne_bytes()[..], &misc.to_ne_bytes(), &length.to_ne_bytes(), body].concat()
    }

    #[test]
    fn samples_have_what_their_event_gives_them() {
        let what = format::IDENTIFIER | format::TID | format::TIME | format::RAW;
        let stack = what | format::CALLCHAIN | format::REGS_USER | format::STACK_USER;
        let source = |format| Source { what: What::Enter, tid: 5, format };
        let sources = FxHashMap::from_iter([(1, source(what)), (2, source(stack))]);
        let ids = |id: u64| words(&[id, (8 << 32) | 7, 1000]);
        // 12 bytes, so that what follows is where it ought to be.
        let raw = [&12u32.to_ne_bytes()[..], b"twelve bytes"].concat();
        let body = [&ids(1)[..], &raw].concat();
        let bytes = record(SAMPLE, 0, &body);
        let Some(Record::Sample(sample)) = parse(&sources, &bytes) else { panic!("no sample") };
        assert_eq!((sample.pid, sample.tid, sample.time, sample.raw), (7, 8, 1000, &b"twelve bytes"[..]));
        assert!(sample.registers.is_none() && sample.stack.is_empty());

        let registers: Vec<u64> = (1..=registers::COUNT as u64).collect();
        let rest = words(&[&[2][..], &registers, &[16, 0xa, 0xb, 8]].concat());
        let chain = words(&[3, (-512i64) as u64, 0x10, 0x20]);
        let body = [&ids(2)[..], &chain, &raw, &rest].concat();
        let bytes = record(SAMPLE, 0, &body);
        let Some(Record::Sample(sample)) = parse(&sources, &bytes) else { panic!("no sample") };
        assert_eq!(sample.chain.iter().collect::<Vec<_>>(), [0x10, 0x20]);
        assert_eq!(sample.registers.map(|registers| registers.fp), Some(1));
        assert_eq!(sample.stack, words(&[0xa]), "only what was copied");
        assert!(parse(&sources, &bytes[..60]).is_none() && parse(&FxHashMap::default(), &bytes).is_none());
    }

    #[test]
    fn mappings_and_threads_are_read() {
        let none = FxHashMap::default();
        let trailer = words(&[(8 << 32) | 7, 1000, 2]);
        let start = words(&[(8 << 32) | 7, 0x4000, 0x1000, 0x2000, 0, 42, 0, 5, 0x2f61_0000_0000_0000]);
        // The name begins where the last of these words does.
        let mut body = start[..64].to_vec();
        body.extend_from_slice(b"/a b\0\0\0\0");
        body.extend_from_slice(&trailer);
        let bytes = record(MMAP2, 0, &body);
        let Some(Record::Mapped { pid: 7, mapping }) = parse(&none, &bytes) else { panic!("no mapping") };
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset, &*mapping.path),
            (0x4000, 0x5000, 0x2000, "/a b")
        );
        assert!(mapping.executable && !mapping.writable && mapping.inode == 42);
        let body = [&words(&[(3 << 32) | 7, (3 << 32) | 9, 999])[..], &trailer].concat();
        let bytes = record(FORK, 0, &body);
        assert!(matches!(
            parse(&none, &bytes),
            Some(Record::Started { pid: 7, parent: 3, tid: 9, time: 1000 })
        ));
        let bytes = record(LOST, 0, &[&words(&[2, 11])[..], &trailer].concat());
        assert!(matches!(parse(&none, &bytes), Some(Record::Lost(11))));
    }
}
