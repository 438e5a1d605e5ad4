//! Which files are mapped where, so that addresses in the report can be named after the process is gone.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::clock;
use super::map::Map;
use super::sys;

/// The first pause between scans in ticks, about 10 ms; it doubles while scans find nothing new (an address
/// in code compiled at run time, or a lock on the heap, lies in no file).
const PAUSE: u64 = 1 << 24;
/// The longest, a few seconds.
const LONGEST: u64 = 1 << 33;

/// An address that the report will want to name.
pub(super) fn want(map: Map, address: u64) {
    if map.header().scan_wanted.load(Relaxed) == 0 && !known(map, address) {
        map.header().scan_wanted.store(1, Relaxed);
    }
}

fn known(map: Map, address: u64) -> bool {
    (0..map.header().next_module.load(Acquire)).rev().filter_map(|number| map.module(number)).any(|module| {
        module.ready.load(Acquire) == 1
            && module.start.load(Relaxed) <= address
            && address < module.end.load(Relaxed)
    })
}

/// Scans if somebody wants it and the last scan is long enough ago.
#[inline]
pub(super) fn scan_sometimes(map: Map, now: u64) {
    let header = map.header();
    if header.scan_wanted.load(Relaxed) != 0
        && now.wrapping_sub(header.scanned.load(Relaxed)) > header.scan_pause.load(Relaxed)
    {
        scan(map);
    }
}

/// Scans if somebody wants it: what is wanted may be gone soon.
pub(super) fn scan_now(map: Map) {
    if map.header().scan_wanted.load(Relaxed) != 0 {
        scan(map);
    }
}

/// A file is about to be unmapped: from now on, what is known of its addresses may be wrong.
#[cold]
pub(super) fn closes(map: Map) {
    scan_now(map);
    map.header().scan_wanted.store(1, Relaxed);
}

/// Reads `/proc/self/maps` and appends what is not known yet. One thread at a time; others do not wait.
#[cold]
pub(super) fn scan(map: Map) {
    let header = map.header();
    if header.scan_busy.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return;
    }
    header.scan_wanted.store(0, Relaxed);
    let before = header.next_module.load(Relaxed);
    // SAFETY: `scan_busy` is ours, and with it the buffer.
    unsafe { scan_exclusively(map) };
    let pause = if header.next_module.load(Relaxed) == before {
        (header.scan_pause.load(Relaxed) * 2).clamp(PAUSE, LONGEST)
    } else {
        PAUSE
    };
    header.scan_pause.store(pause, Relaxed);
    header.scanned.store(clock::ticks(header.clock.load(Relaxed)), Relaxed);
    header.scan_busy.store(0, Release);
}

/// # Safety
/// The caller holds `scan_busy`.
unsafe fn scan_exclusively(map: Map) {
    let Ok(file) = sys::Fd::open(c"/proc/self/maps", libc::O_RDONLY) else { return };
    let header = map.header();
    let (buffer, capacity) = (header.scan_buffer.pointer(), header.scan_buffer.capacity());
    let mut filled = 0;
    // The number of the module that ended the line before, for what follows it without a gap.
    let mut previous = None;
    loop {
        // SAFETY: the part of the buffer behind what is filled; it is ours.
        match unsafe { file.read(buffer.add(filled), capacity - filled) } {
            Ok(n) if n > 0 => filled += n,
            _ => return,
        }
        // SAFETY: filled, and ours.
        let text = unsafe { core::slice::from_raw_parts(buffer, filled) };
        let mut used = 0;
        while let Some(len) = text[used..].iter().position(|byte| *byte == b'\n') {
            previous = Line::parse(&text[used..used + len]).and_then(|line| add(map, &line, previous));
            used += len + 1;
        }
        if used == 0 && filled == capacity {
            // A line longer than the buffer: no path that we could keep. Its rest parses as nothing.
            used = filled;
        }
        // SAFETY: both within the buffer, which is ours; they may overlap.
        unsafe { core::ptr::copy(buffer.add(used), buffer, filled - used) };
        filled -= used;
    }
}

/// Whether both addresses lie in the mapping that is the calling thread's stack: the one of its thread-local
/// memory, as the C library makes them, or the process's.
#[cold]
pub(super) fn is_own_stack(sp: u64, address: u64) -> bool {
    let Ok(file) = sys::Fd::open(c"/proc/self/maps", libc::O_RDONLY) else { return false };
    // SAFETY: always succeeds. What it names lies in the thread's own memory.
    let thread = unsafe { libc::pthread_self() as u64 };
    let mut buffer = [0u8; 1024];
    let mut filled = 0;
    loop {
        // SAFETY: the part of our own buffer behind what is filled.
        match unsafe { file.read(buffer.as_mut_ptr().add(filled), buffer.len() - filled) } {
            Ok(n) if n > 0 => filled += n,
            _ => return false,
        }
        let mut used = 0;
        while let Some(len) = buffer[used..filled].iter().position(|byte| *byte == b'\n') {
            let line = Line::parse(&buffer[used..used + len]);
            used += len + 1;
            if let Some(line) = line.filter(|line| (line.start..line.end).contains(&sp)) {
                let within = |address: u64| (line.start..line.end).contains(&address);
                return within(address) && (within(thread) || line.path == b"[stack]");
            }
        }
        if used == 0 && filled == buffer.len() {
            // A line longer than the buffer. Its rest parses as nothing.
            used = filled;
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
}

/// A line of `/proc/self/maps`.
struct Line<'a> {
    start: u64,
    end: u64,
    writable: bool,
    offset: u64,
    path: &'a [u8],
}

impl<'a> Line<'a> {
    /// `start-end perms offset dev inode   path`
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let mut rest = line;
        let mut field = || {
            let len = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
            let (field, tail) = rest.split_at(len);
            rest = tail.trim_ascii_start();
            field
        };
        let (range, permissions, offset) = (field(), field(), field());
        field();
        field();
        let dash = range.iter().position(|byte| *byte == b'-')?;
        Some(Line {
            start: hex(&range[..dash])?,
            end: hex(&range[dash + 1..])?,
            writable: *permissions.get(1)? == b'w',
            offset: hex(offset)?,
            path: rest,
        })
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |n, digit| Some(n << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

/// Adds the mapping, unless it is known or no file's. Memory without a name right behind a file's data is
/// taken for its uninitialised data, and extends it. Returns the module's number.
fn add(map: Map, line: &Line<'_>, previous: Option<u32>) -> Option<u32> {
    let header = map.header();
    if line.path.is_empty() && line.writable {
        let data = map.module(previous?)?;
        if data.end.load(Relaxed) == line.start {
            data.end.store(line.end, Relaxed);
        }
        return None;
    }
    if !line.path.starts_with(b"/") || line.start == map.base() as u64 {
        return None;
    }
    let count = header.next_module.load(Relaxed);
    let is_this = |number: &u32| {
        map.module(*number).is_some_and(|module| {
            // SAFETY: written before the slot was counted, not changed since.
            let path = unsafe {
                core::slice::from_raw_parts(module.path.pointer(), module.path_len.load(Relaxed) as usize)
            };
            module.start.load(Relaxed) == line.start
                && module.end.load(Relaxed) >= line.end
                && module.offset.load(Relaxed) == line.offset
                && line.path.starts_with(path)
        })
    };
    if let Some(known) = (0..count).rev().find(is_this) {
        return Some(known);
    }
    let slot = map.module(count).filter(|_| map.back_module(count))?;
    let len = line.path.len().min(slot.path.capacity());
    slot.start.store(line.start, Relaxed);
    slot.end.store(line.end, Relaxed);
    slot.offset.store(line.offset, Relaxed);
    slot.path_len.store(len as u32, Relaxed);
    // SAFETY: nobody else looks at a slot beyond the count.
    unsafe { core::ptr::copy_nonoverlapping(line.path.as_ptr(), slot.path.pointer(), len) };
    // Release: counted and ready only once it is whole.
    slot.ready.store(1, Release);
    header.next_module.store(count + 1, Release);
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn lines_of_the_memory_map() {
        let line =
            b"7f12a000-7f12c000 rw-p 0001f000 103:02 1234567                    /opt/a b/lib c.so (deleted)";
        let line = Line::parse(line).expect("a good line");
        assert_eq!(
            (line.start, line.end, line.offset, line.writable),
            (0x7f12_a000, 0x7f12_c000, 0x1f000, true)
        );
        assert_eq!(line.path, b"/opt/a b/lib c.so (deleted)");
        let line = Line::parse(b"7ffd1000-ffffffffff601000 r-xp 00000000 00:00 0 ").expect("a good line");
        assert_eq!((line.end, line.writable, line.path), (0xffff_ffff_ff60_1000, false, &b""[..]));
        let broken: [&[u8]; 5] =
            [b"", b" ", b"/path of a line cut in two", b"12-zz rw-p 0 0:0 0", b"-1 rw-p 0 0:0 0 /x"];
        assert!(broken.iter().all(|line| Line::parse(line).is_none()));
    }
}
