//! Two small programs in the kernel that tell of futex calls: in place of its own records, which take three
//! to four times as long, as [`docs/OBSERVING.md`] has it.
//!
//! They run at each entry and exit of a system call, and leave all but futex calls of the watched processes
//! alone. At an entry the stack is compared with what is known of the place: of a program counter and a stack
//! pointer, which return addresses lay where. If they are all there, the record is the number that we have
//! given that stack. Else it has a copy of the stack, which we unwind, and we say where its return addresses
//! are.
//!
//! `bpf(2)` takes instructions; they are written here by [`Code`]. Who may not load them, and where the
//! kernel does not take them (before Linux 5.8, in a namespace of process ids), does without.
//!
//! [`docs/OBSERVING.md`]: ../../../../docs/OBSERVING.md

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::perf::{Source, What};
use super::record::{Registers, Sample, Words, word};

/// As many return addresses are compared,
const PLACES: usize = 24;
/// in so much of the stack.
const COMPARED: usize = 2048;
/// As many places are known.
const KNOWN: u32 = 8192;
/// Of a stack that is not known as much is copied: this page and the next one.
const COPIED: usize = 2 * PAGE;
const PAGE: usize = 4096;
/// Return addresses by frame pointers, in bytes.
const CHAIN: usize = 64 * 8;
const RING: usize = 32 << 20;

/// A call that begins: when, who, 0, its number, its arguments, program counter, stack pointer, frame
/// pointer, and what stack it is.
const ENTRY: usize = 14 * 8;
/// If that is not known, what follows: how long the chain is and the stack, and both.
const CHAIN_AT: usize = ENTRY + 16;
const STACK_AT: usize = CHAIN_AT + CHAIN;
const WHOLE: usize = STACK_AT + COPIED;
/// The end of one: when, who, 1, its number, its result.
const EXIT: usize = 5 * 8;
/// Where in both begins what tracepoints have.
const RAW: usize = 16;

/// What is known of a place: the number of the stack, and where which return addresses are.
type Lesson = [u64; 1 + 2 * PLACES];
/// A place: program counter, stack pointer, process.
type Key = [u64; 3];

/// The programs, and what they tell.
pub(super) struct Calls {
    /// Of each place what is known.
    known: OwnedFd,
    lost: OwnedFd,
    lost_before: u64,
    ring: Ring,
    /// Whose calls they tell of. It and the programs are there as long as this.
    _kept: Vec<OwnedFd>,
}

/// One record, by its place in the ring.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) time: u64,
    at: usize,
    length: usize,
}

impl Calls {
    /// Has the kernel tell of the calls of these processes, with chains or without. `None` if it does not.
    pub(super) fn start(pids: &[u32], chains: bool) -> Option<Calls> {
        // Programs know processes by the ids of the first namespace.
        const FIRST: &str = "pid:[4026531836]";
        let here = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == FIRST);
        if !cfg!(target_arch = "x86_64") || !here {
            return None;
        }
        Calls::try_start(pids, chains).ok()
    }

    fn try_start(pids: &[u32], chains: bool) -> io::Result<Calls> {
        const HASH: u32 = 1;
        const ARRAY: u32 = 2;
        const ARRAY_BY_CPU: u32 = 6;
        const HASH_OF_THE_LATEST: u32 = 9;
        const RING_BUFFER: u32 = 27;
        let watched = map(HASH, 4, 4, pids.len().max(1) as u32)?;
        for pid in pids {
            update(&watched, &[u64::from(*pid)], &[1])?;
        }
        let known = map(HASH_OF_THE_LATEST, size_of::<Key>(), size_of::<Lesson>(), KNOWN)?;
        let room = map(ARRAY_BY_CPU, 4, COMPARED, 1)?;
        let lost = map(ARRAY, 4, 8, 1)?;
        let buffer = map(RING_BUFFER, 0, 0, RING as u32)?;
        let maps = Maps { watched: &watched, known: &known, room: &room, lost: &lost, ring: &buffer };
        let mut kept = Vec::new();
        let programs = [(c"sys_enter", entry(&maps, chains)), (c"sys_exit", exit(&maps))];
        for (place, code) in programs {
            const LOAD: libc::c_long = 5;
            const OPEN: libc::c_long = 17;
            const RAW_TRACEPOINT: u64 = 17;
            let code = code.0;
            // As all of this, by one of its licences; the kernel lends these helpers to no others.
            let license = c"Dual MIT/GPL";
            let words = [
                RAW_TRACEPOINT | (code.len() as u64) << 32,
                code.as_ptr().addr() as u64,
                license.as_ptr().addr() as u64,
            ];
            let program = made(bpf(LOAD, &words)?);
            kept.push(made(bpf(OPEN, &[place.as_ptr().addr() as u64, program.as_raw_fd() as u64])?));
            kept.push(program);
        }
        kept.extend([watched, room]);
        Ok(Calls { known, lost, lost_before: 0, ring: Ring::new(buffer)?, _kept: kept })
    }

    /// What has come and is no younger than `until`, in the order of their times. It is there until
    /// [`Calls::taken`].
    pub(super) fn batch(&mut self, until: u64) -> Vec<Call> {
        self.ring.batch(until)
    }

    /// All of the batch is.
    pub(super) fn taken(&mut self) {
        self.ring.taken();
    }

    /// As a tracepoint's.
    pub(super) fn sample(&self, call: Call) -> Sample<'_> {
        let record = self.ring.bytes(call.at, call.length);
        let at = |n: usize| word(record, 8 * n).unwrap_or(0);
        let (pid, tid) = ((at(1) >> 32) as u32, at(1) as u32);
        let enters = at(2) == 0;
        let what = if enters { What::Enter } else { What::Exit };
        let part = |from: usize, length: u64| {
            record.get(from..).map_or(&[][..], |rest| &rest[..rest.len().min(length as usize)])
        };
        Sample {
            source: Source { what, tid, format: 0 },
            pid,
            tid,
            time: at(0),
            raw: &record[RAW..],
            known: if enters { at(13) } else { 0 },
            chain: Words::new(part(CHAIN_AT, at(14))),
            registers: enters.then(|| Registers { pc: at(10), sp: at(11), fp: at(12), lr: 0 }),
            stack: part(STACK_AT, at(15)),
        }
    }

    /// How many records found no room since this was asked last.
    pub(super) fn lost(&mut self) -> u64 {
        let mut now = [0];
        // Without an answer nothing is new.
        let _ = look_up(&self.lost, &[0], &mut now);
        now[0] - std::mem::replace(&mut self.lost_before, now[0])
    }

    /// Of calls by this process from here, with these return addresses so far above the stack pointer, the
    /// stack is `number`, from now on. Without addresses: is not known.
    pub(super) fn learn(&self, pid: u32, (pc, sp): (u64, u64), number: u64, places: &[(u32, u64)]) {
        let key: Key = [pc, sp, pid.into()];
        let Some(first) = places.first().filter(|_| can_learn(places)) else {
            // If it is not there, that is as well.
            let _ = delete(&self.known, &key);
            return;
        };
        let mut lesson: Lesson = [0; 1 + 2 * PLACES];
        lesson[0] = number;
        for n in 0..PLACES {
            let (distance, address) = places.get(n).unwrap_or(first);
            (lesson[1 + 2 * n], lesson[2 + 2 * n]) = (u64::from(*distance), *address);
        }
        // Without room it is unwound again.
        let _ = update(&self.known, &key, &lesson);
    }
}

/// Whether the programs can compare all of these return addresses, as far away as they are.
pub(super) fn can_learn(places: &[(u32, u64)]) -> bool {
    let near = |&(distance, _): &(u32, u64)| distance as usize <= COMPARED - 8 && distance % 8 == 0;
    (1..=PLACES).contains(&places.len()) && places.iter().all(near)
}

/// The buffer that all CPUs write to. What it holds lies in one piece: the kernel maps it twice in a row.
struct Ring {
    /// A page in which we say how far we have read, one in which the kernel says how far it has written, and
    /// the records.
    base: *mut u8,
    read: u64,
    batch_end: u64,
    _map: OwnedFd,
}

const RING_MAPPED: usize = 2 * PAGE + 2 * RING;

impl Ring {
    fn new(map: OwnedFd) -> io::Result<Ring> {
        let fd = map.as_raw_fd();
        let mapped = |at: *mut u8, length: usize, access: i32, flags: i32, offset: usize| {
            let flags = libc::MAP_SHARED | flags;
            // SAFETY: a new mapping; or in place of a part of our own.
            let found = unsafe { libc::mmap(at.cast(), length, access, flags, fd, offset as libc::off_t) };
            if found == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(found.cast::<u8>()) }
        };
        // SAFETY: a new mapping without access, that keeps the room.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), RING_MAPPED, libc::PROT_NONE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast::<u8>();
        let ring = Ring { base, read: 0, batch_end: 0, _map: map };
        mapped(base, PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED, 0)?;
        mapped(base.wrapping_add(PAGE), PAGE + 2 * RING, libc::PROT_READ, libc::MAP_FIXED, PAGE)?;
        Ok(ring)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of a mapping that is there as long as this, changed as a whole only.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }

    fn bytes(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: in the mapping; the kernel writes nothing there before `taken`.
        unsafe { std::slice::from_raw_parts(self.base.add(2 * PAGE + at), length) }
    }

    fn batch(&mut self, until: u64) -> Vec<Call> {
        /// The kernel is still writing it,
        const BUSY: u32 = 1 << 31;
        /// or has given it up.
        const GIVEN_UP: u32 = 1 << 30;
        const HEADER: usize = 8;
        let written = self.word(PAGE).load(Ordering::Acquire);
        let mut batch = Vec::new();
        while self.batch_end < written {
            let at = self.batch_end as usize & (RING - 1);
            // SAFETY: the first half of an aligned word, which the kernel changes as a whole.
            let header = unsafe { &*self.base.add(2 * PAGE + at).cast::<std::sync::atomic::AtomicU32>() };
            // Acquire: what it is about is there.
            let header = header.load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let length = (header & !(BUSY | GIVEN_UP)) as usize;
            if header & GIVEN_UP == 0 {
                let time = word(self.bytes(at + HEADER, length), 0).unwrap_or(0);
                if time > until {
                    break;
                }
                batch.push(Call { time, at: at + HEADER, length });
            }
            self.batch_end += (HEADER + length).next_multiple_of(8) as u64;
        }
        // CPUs reserve their room a little later than they look at the clock.
        batch.sort_by_key(|call| call.time);
        batch
    }

    fn taken(&mut self) {
        self.read = self.batch_end;
        // Release: we have read it.
        self.word(0).store(self.read, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.base.cast(), RING_MAPPED) };
    }
}

/// The words of the call's structure, of which the rest is zero.
fn bpf(what: libc::c_long, words: &[u64]) -> io::Result<libc::c_long> {
    let mut attributes = [0u64; 16];
    attributes[..words.len()].copy_from_slice(words);
    // SAFETY: the kernel reads as many bytes as there are, and what they lead to: each caller's own.
    let result = unsafe { libc::syscall(libc::SYS_bpf, what, attributes.as_ptr(), size_of_val(&attributes)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn made(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel has just made it for us.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

fn map(sort: u32, key: usize, value: usize, entries: u32) -> io::Result<OwnedFd> {
    const CREATE: libc::c_long = 0;
    let words = [u64::from(sort) | (key as u64) << 32, value as u64 | u64::from(entries) << 32];
    bpf(CREATE, &words).map(made)
}

/// The kernel reads as much of the key, and of the value, as the map was made for: no more than there is.
fn about(what: libc::c_long, map: &OwnedFd, key: &[u64], value: *const u64) -> io::Result<()> {
    bpf(what, &[map.as_raw_fd() as u64, key.as_ptr().addr() as u64, value.addr() as u64]).map(drop)
}

fn update(map: &OwnedFd, key: &[u64], value: &[u64]) -> io::Result<()> {
    about(2, map, key, value.as_ptr())
}

fn delete(map: &OwnedFd, key: &[u64]) -> io::Result<()> {
    about(3, map, key, std::ptr::null())
}

fn look_up(map: &OwnedFd, key: &[u64], value: &mut [u64]) -> io::Result<()> {
    about(1, map, key, value.as_mut_ptr())
}

struct Maps<'m> {
    watched: &'m OwnedFd,
    known: &'m OwnedFd,
    room: &'m OwnedFd,
    lost: &'m OwnedFd,
    ring: &'m OwnedFd,
}

/// Instructions, of eight bytes: the operation, two registers of four bits, an offset, and a number. 0 to 5
/// are for a call's result and arguments and do not outlast it; 10 is the end of 512 bytes of stack.
#[derive(Default)]
struct Code(Vec<u64>);

/// A jump to a place that is not known yet.
struct Jump(usize);

/// The kernel's functions for programs, by their numbers.
#[derive(Clone, Copy)]
enum Helper {
    LookUp = 1,
    Time = 5,
    Who = 14,
    Chain = 67,
    ReadUser = 112,
    ReadKernel = 113,
    Output = 130,
    Reserve = 131,
    Submit = 132,
}

const FRAME: u8 = 10;
/// For the ring: nobody waits for it.
const QUIETLY: i32 = 1;

impl Code {
    fn put(&mut self, operation: u8, to: u8, from: u8, offset: i16, number: i32) {
        let registers = u64::from(to | from << 4) << 8;
        let offset = u64::from(offset.cast_unsigned()) << 16;
        self.0.push(u64::from(operation) | registers | offset | u64::from(number.cast_unsigned()) << 32);
    }

    fn set(&mut self, to: u8, number: i32) {
        self.put(0xb7, to, 0, 0, number);
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, to, from, 0, 0);
    }

    fn add(&mut self, to: u8, number: i32) {
        self.put(0x07, to, 0, 0, number);
    }

    fn add_register(&mut self, to: u8, from: u8) {
        self.put(0x0f, to, from, 0, 0);
    }

    fn subtract(&mut self, to: u8, from: u8) {
        self.put(0x1f, to, from, 0, 0);
    }

    fn and(&mut self, to: u8, mask: i32) {
        self.put(0x57, to, 0, 0, mask);
    }

    fn shift_right(&mut self, to: u8, bits: i32) {
        self.put(0x77, to, 0, 0, bits);
    }

    /// The word that lies so far from where `from` leads.
    fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.put(0x79, to, from, offset, 0);
    }

    fn store(&mut self, to: u8, offset: i16, from: u8) {
        self.put(0x7b, to, from, offset, 0);
    }

    fn store_half(&mut self, to: u8, offset: i16, from: u8) {
        self.put(0x63, to, from, offset, 0);
    }

    fn store_number(&mut self, to: u8, offset: i16, number: i32) {
        self.put(0x7a, to, 0, offset, number);
    }

    /// Where the frame has this.
    fn place(&mut self, to: u8, offset: i16) {
        self.copy(to, FRAME);
        self.add(to, offset.into());
    }

    fn map(&mut self, to: u8, map: &OwnedFd) {
        const OF_A_MAP: u8 = 1;
        self.put(0x18, to, OF_A_MAP, 0, map.as_raw_fd());
        self.put(0, 0, 0, 0, 0);
    }

    fn call(&mut self, helper: Helper) {
        self.put(0x85, 0, 0, 0, helper as i32);
    }

    /// Adds one to the word that `to` leads to, as a whole.
    fn count(&mut self, to: u8) {
        self.set(1, 1);
        self.put(0xdb, to, 1, 0, 0);
    }

    fn jump(&mut self) -> Jump {
        self.put(0x05, 0, 0, 0, 0);
        Jump(self.0.len() - 1)
    }

    fn jump_if(&mut self, register: u8, number: i32) -> Jump {
        self.put(0x15, register, 0, 0, number);
        Jump(self.0.len() - 1)
    }

    fn jump_unless(&mut self, register: u8, number: i32) -> Jump {
        self.put(0x55, register, 0, 0, number);
        Jump(self.0.len() - 1)
    }

    fn jump_unless_same(&mut self, register: u8, other: u8) -> Jump {
        self.put(0x5d, register, other, 0, 0);
        Jump(self.0.len() - 1)
    }

    /// These jumps lead here.
    fn here(&mut self, jumps: impl IntoIterator<Item = Jump>) {
        for Jump(from) in jumps {
            let distance = (self.0.len() - from - 1) as u64;
            self.0[from] |= (distance & 0x7fff) << 16;
        }
    }

    /// The end, without a word to the kernel.
    fn end(&mut self) {
        self.set(0, 0);
        self.put(0x95, 0, 0, 0, 0);
    }

    /// Of calls by watched processes: register 6 is where the tracepoint's two words are, and 7 who it is.
    /// The jump is that of all others.
    fn of_the_watched(&mut self, maps: &Maps, place: i16) -> Jump {
        self.call(Helper::Who);
        self.copy(7, 0);
        self.copy(1, 0);
        self.shift_right(1, 32);
        self.store_half(FRAME, place, 1);
        self.map(1, maps.watched);
        self.place(2, place);
        self.call(Helper::LookUp);
        self.jump_if(0, 0)
    }

    /// What a record in the frame begins with: when, who, what kind, and the number of the call.
    fn begins_record(&mut self, record: i16, kind: i32) {
        self.call(Helper::Time);
        self.store(FRAME, record, 0);
        self.store(FRAME, record + 8, 7);
        self.store_number(FRAME, record + 16, kind);
        self.store_number(FRAME, record + 24, FUTEX);
    }

    /// The record goes to the ring. Register 0 is not 0 if there was no room.
    fn puts_out(&mut self, maps: &Maps, record: i16, length: usize) {
        self.map(1, maps.ring);
        self.place(2, record);
        self.set(3, length as i32);
        self.set(4, QUIETLY);
        self.call(Helper::Output);
    }

    /// If a record did not find room (the jump), that is counted.
    fn counts_lost(&mut self, maps: &Maps, lost: impl IntoIterator<Item = Jump>, place: i16) {
        self.here(lost);
        self.set(1, 0);
        self.store_half(FRAME, place, 1);
        self.map(1, maps.lost);
        self.place(2, place);
        self.call(Helper::LookUp);
        let none = self.jump_if(0, 0);
        self.count(0);
        self.here([none]);
    }
}

/// Where a processor's registers are that the kernel has saved at the call (`struct pt_regs`).
mod saved {
    pub(super) const FP: i16 = 4 * 8;
    pub(super) const NUMBER: i16 = 15 * 8;
    pub(super) const PC: i16 = 16 * 8;
    pub(super) const SEGMENT: i16 = 17 * 8;
    pub(super) const SP: i16 = 19 * 8;
    /// Of the call.
    pub(super) const ARGUMENTS: [i16; 6] = [14 * 8, 13 * 8, 12 * 8, 7 * 8, 9 * 8, 8 * 8];
    /// The segment of programs of 64 bits.
    pub(super) const CODE_64: i32 = 0x33;
}

const FUTEX: i32 = 202;

/// A tracepoint's words: the saved registers, and the number of the call; at the exit its result.
fn entry(maps: &Maps, chains: bool) -> Code {
    const HALF: i16 = -8;
    const SAVED: i16 = -136;
    const RECORD: i16 = SAVED - ENTRY as i16;
    const KEY: i16 = RECORD - 24;
    let kept = |register: i16| SAVED + register - saved::FP;
    let field = |n: i16| RECORD + 8 * n;
    let mut code = Code::default();
    code.copy(6, 1);
    code.load(1, 6, 8);
    let other_call = code.jump_unless(1, FUTEX);
    let other_process = code.of_the_watched(maps, HALF);
    code.place(1, SAVED);
    code.set(2, i32::from(saved::SP + 8 - saved::FP));
    code.load(3, 6, 0);
    code.add(3, saved::FP.into());
    code.call(Helper::ReadKernel);
    code.load(1, FRAME, kept(saved::SEGMENT));
    code.and(1, 0xffff);
    let of_32_bits = code.jump_unless(1, saved::CODE_64);

    code.begins_record(RECORD, 0);
    for (n, argument) in saved::ARGUMENTS.into_iter().enumerate() {
        code.load(1, FRAME, kept(argument));
        code.store(FRAME, field(4 + n as i16), 1);
    }
    for (n, register) in [(10, saved::PC), (11, saved::SP), (12, saved::FP)] {
        code.load(1, FRAME, kept(register));
        code.store(FRAME, field(n), 1);
    }
    code.store_number(FRAME, field(13), 0);

    // The stack, and what is known of the place.
    code.set(1, 0);
    code.store_half(FRAME, HALF, 1);
    code.map(1, maps.room);
    code.place(2, HALF);
    code.call(Helper::LookUp);
    let no_room = code.jump_if(0, 0);
    code.copy(8, 0);
    code.load(9, FRAME, field(11));
    code.copy(1, 8);
    code.set(2, COMPARED as i32);
    code.copy(3, 9);
    code.call(Helper::ReadUser);
    let mut unknown = vec![code.jump_unless(0, 0)];
    code.load(1, FRAME, field(10));
    code.store(FRAME, KEY, 1);
    code.store(FRAME, KEY + 8, 9);
    code.copy(1, 7);
    code.shift_right(1, 32);
    code.store(FRAME, KEY + 16, 1);
    code.map(1, maps.known);
    code.place(2, KEY);
    code.call(Helper::LookUp);
    unknown.push(code.jump_if(0, 0));
    for n in 0..PLACES as i16 {
        code.load(1, 0, 8 + 16 * n);
        code.and(1, COMPARED as i32 - 8);
        code.copy(2, 8);
        code.add_register(2, 1);
        code.load(2, 2, 0);
        code.load(3, 0, 16 + 16 * n);
        unknown.push(code.jump_unless_same(2, 3));
    }
    code.load(1, 0, 0);
    code.store(FRAME, field(13), 1);
    code.puts_out(maps, RECORD, ENTRY);
    let mut lost = vec![code.jump_unless(0, 0)];
    code.end();

    code.here(unknown);
    code.map(1, maps.ring);
    code.set(2, WHOLE as i32);
    code.set(3, 0);
    code.call(Helper::Reserve);
    lost.push(code.jump_if(0, 0));
    code.copy(8, 0);
    for n in 0..ENTRY as i16 / 8 {
        code.load(1, FRAME, field(n));
        code.store(8, 8 * n, 1);
    }
    code.store_number(8, ENTRY as i16, 0);
    code.store_number(8, ENTRY as i16 + 8, 0);
    if chains {
        const OF_THE_PROGRAM: i32 = 1 << 8;
        code.copy(1, 6);
        code.copy(2, 8);
        code.add(2, CHAIN_AT as i32);
        code.set(3, CHAIN as i32);
        code.set(4, OF_THE_PROGRAM);
        code.call(Helper::Chain);
        // Negative if there is none.
        code.put(0xc5, 0, 0, 1, 0);
        code.store(8, ENTRY as i16, 0);
    }
    // To the end of the page, and the next one.
    code.copy(7, 9);
    code.and(7, PAGE as i32 - 1);
    code.set(1, PAGE as i32);
    code.subtract(1, 7);
    code.copy(7, 1);
    code.copy(1, 8);
    code.add(1, STACK_AT as i32);
    code.copy(2, 7);
    code.copy(3, 9);
    code.call(Helper::ReadUser);
    let no_stack = code.jump_unless(0, 0);
    code.store(8, ENTRY as i16 + 8, 7);
    code.copy(1, 8);
    code.add(1, STACK_AT as i32);
    code.add_register(1, 7);
    code.set(2, PAGE as i32);
    code.copy(3, 9);
    code.add_register(3, 7);
    code.call(Helper::ReadUser);
    let no_more = code.jump_unless(0, 0);
    code.add(7, PAGE as i32);
    code.store(8, ENTRY as i16 + 8, 7);
    code.here([no_stack, no_more]);
    code.copy(1, 8);
    code.set(2, QUIETLY);
    code.call(Helper::Submit);
    let done = code.jump();
    code.counts_lost(maps, lost, HALF);
    code.here([other_call, other_process, of_32_bits, no_room, done]);
    code.end();
    code
}

fn exit(maps: &Maps) -> Code {
    const HALF: i16 = -8;
    const SAVED: i16 = -32;
    const RECORD: i16 = SAVED - EXIT as i16;
    let field = |n: i16| RECORD + 8 * n;
    let mut code = Code::default();
    code.copy(6, 1);
    let other_process = code.of_the_watched(maps, HALF);
    code.place(1, SAVED);
    code.set(2, i32::from(saved::SEGMENT + 8 - saved::NUMBER));
    code.load(3, 6, 0);
    code.add(3, saved::NUMBER.into());
    code.call(Helper::ReadKernel);
    code.load(1, FRAME, SAVED);
    let other_call = code.jump_unless(1, FUTEX);
    code.load(1, FRAME, SAVED + saved::SEGMENT - saved::NUMBER);
    code.and(1, 0xffff);
    let of_32_bits = code.jump_unless(1, saved::CODE_64);
    code.begins_record(RECORD, 1);
    code.load(1, 6, 8);
    code.store(FRAME, field(4), 1);
    code.puts_out(maps, RECORD, EXIT);
    let done = code.jump_if(0, 0);
    code.counts_lost(maps, [], HALF);
    code.here([other_process, other_call, of_32_bits, done]);
    code.end();
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_programs_compare_is_near_and_little() {
        assert!(!can_learn(&[]), "nothing tells it from others");
        assert!(can_learn(&[(0, 1), (2040, 2)]));
        assert!(!can_learn(&[(0, 1), (2048, 2)]) && !can_learn(&[(4, 1)]));
        assert!(can_learn(&[(8, 1); PLACES]) && !can_learn(&[(8, 1); PLACES + 1]));
    }

    #[test]
    fn jumps_lead_to_where_they_are_to() {
        let mut code = Code::default();
        let over = code.jump_if(3, 7);
        code.set(0, -1);
        code.here([over]);
        code.end();
        // Operation, registers, offset, number.
        let jump = [0x15, 3, 1, 0, 7, 0, 0, 0];
        assert_eq!(code.0[0].to_le_bytes(), jump);
        assert_eq!(code.0[1].to_le_bytes(), [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    }
}
