//! The nodes of the machine's memory, and the one that the calling thread runs on.
//!
//! Which nodes there are is read from sysfs, once: those with a CPU that the process may use. Their numbers
//! may have gaps, so the locks get a node's place among them. The node of the calling thread is a word of its
//! area of restartable sequences, which Linux 6.3 and later keep current; elsewhere `getcpu` says it, from
//! the vDSO where the architecture has it there.
//!
//! `POUNDLOCK_NODES=n` in the environment makes [`init`] pretend that there are `n` nodes, to which CPUs
//! belong in turn; `POUNDLOCK_CPUS=n`, that there are `n` CPUs. So the paths for larger machines can be
//! tried, and tested, on a small one; and with one node, a large machine goes without them.

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use core::{fmt, mem, ptr};

use crate::cpu::{self, CpuSet};
use crate::futex::keeping_errno;
use crate::tls::words;

/// Linux has no higher numbers of nodes (`MAX_NUMNODES`, at most 2^10).
const LIMIT: u32 = 1024;
const WORDS: usize = LIMIT as usize / 64;

/// Numbers of nodes.
type Ids = [u64; WORDS];

const ROOT: &CStr = c"/sys/devices/system/node";

/// The nodes' numbers, a bit each; written before [`COUNT`].
static IDS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// How many there are; 0 before it is known.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// How many there are said to be by the environment, if it does.
static PRETENDED: AtomicU32 = AtomicU32::new(0);
/// How many CPUs there are; 0 before it is known.
static CPUS: AtomicU32 = AtomicU32::new(0);
/// Whether the area of restartable sequences has a node in it.
static IN_AREA: AtomicBool = AtomicBool::new(false);
/// The C library's `getcpu`; null if there is none.
static GETCPU: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Examines the machine, and the environment. The first call enters the dynamic linker and reads files; make
/// it at start-up rather than under a lock. Without it the first use reads the files only.
pub(crate) fn init() {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if LOOKED.swap(true, Relaxed) {
        return;
    }
    // Looked up rather than linked, because glibc before 2.29 does not have it.
    // SAFETY: the name ends in a zero; the lookup has no other precondition.
    GETCPU.store(unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getcpu".as_ptr()) }, Relaxed);
    if let Some(nodes) = said(c"POUNDLOCK_NODES").filter(|nodes| (1..=LIMIT).contains(nodes))
        && COUNT.compare_exchange(0, nodes, Relaxed, Relaxed).is_ok()
    {
        PRETENDED.store(nodes, Relaxed);
    }
    if let Some(cpus) = said(c"POUNDLOCK_CPUS") {
        let _ = CPUS.compare_exchange(0, cpus, Relaxed, Relaxed);
    }
    let _ = (nodes(), cpus());
}

/// What the environment says, if it is a number.
fn said(name: &CStr) -> Option<u32> {
    // SAFETY: the name ends in a zero. The result is a string of the environment, which programs that change
    // the environment change later than this.
    let said = unsafe {
        let said = libc::getenv(name.as_ptr());
        if said.is_null() { None } else { CStr::from_ptr(said).to_str().ok() }
    };
    said?.parse().ok()
}

/// The area of restartable sequences is registered, and glibc has this much of it in use (`__rseq_size`).
pub(crate) fn use_area(size: u32) {
    /// What the kernel keeps current, in bytes of the area: Linux 6.3.
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    // Before glibc 2.40 the size is that of the whole area, 32, whatever the kernel fills in; since then it
    // is 20 where the kernel says nothing of what it fills in. SAFETY: a look at the auxiliary vector.
    let filled = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    let end = AREA_NODE + mem::size_of::<u32>();
    IN_AREA.store(size as usize >= end && filled as usize >= end, Relaxed);
}

/// See [`poundlock_core::Platform::cpus`]. Async-signal-safe.
pub(crate) fn cpus() -> u32 {
    let known = CPUS.load(Relaxed);
    if known != 0 {
        return known;
    }
    let counted = u32::try_from(cpu::allowed()).unwrap_or(u32::MAX).max(1);
    CPUS.compare_exchange(0, counted, Relaxed, Relaxed).err().unwrap_or(counted)
}

/// See [`poundlock_core::Platform::nodes`]. Async-signal-safe.
#[inline]
pub(crate) fn nodes() -> u32 {
    // Acquire: partner of the release in `examine`.
    match COUNT.load(Acquire) {
        0 => examine(),
        known => known,
    }
}

#[cold]
fn examine() -> u32 {
    let ids = read(ROOT, &cpu::affinity());
    // Two threads that examine at once find the same, unless the process is being moved to other CPUs. Then
    // places are taken among the nodes of both, and no answer is beyond the count.
    for (known, ids) in IDS.iter().zip(ids) {
        known.fetch_or(ids, Relaxed);
    }
    let count = count(&ids).max(1);
    COUNT.compare_exchange(0, count, Release, Acquire).err().unwrap_or(count)
}

/// See [`poundlock_core::Platform::node`]. Async-signal-safe.
pub(crate) fn current() -> u32 {
    let count = nodes();
    if count == 1 {
        return 0;
    }
    let pretended = PRETENDED.load(Relaxed);
    if pretended != 0 {
        let (cpu, _) = getcpu();
        return cpu % pretended;
    }
    let id = if IN_AREA.load(Relaxed) { in_area(words().rseq.load(Relaxed)) } else { getcpu().1 };
    place(id, |word| IDS[word].load(Relaxed)).min(count - 1)
}

/// How many of the numbers are below this one.
fn place(id: u32, ids: impl Fn(usize) -> u64) -> u32 {
    let id = id.min(LIMIT - 1) as usize;
    let whole: u32 = (0..id / 64).map(|word| ids(word).count_ones()).sum();
    whole + (ids(id / 64) & ((1 << (id % 64)) - 1)).count_ones()
}

fn count(ids: &Ids) -> u32 {
    ids.iter().map(|word| word.count_ones()).sum()
}

/// The calling thread's CPU and node, by the C library or the kernel; zeros if neither knows.
fn getcpu() -> (u32, u32) {
    let (mut cpu, mut node): (c_uint, c_uint) = (0, 0);
    let known = GETCPU.load(Relaxed);
    let _ = keeping_errno(|| {
        if known.is_null() {
            let nothing = ptr::null::<c_void>();
            // SAFETY: writes the two words; the third parameter is unused since Linux 2.6.24.
            return unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, nothing) };
        }
        // SAFETY: the C library's function of that name and type.
        let ask: unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> c_int = unsafe { mem::transmute(known) };
        // SAFETY: writes the two words.
        unsafe { ask(&raw mut cpu, &raw mut node) }.into()
    });
    (cpu, node)
}

/// Where the area has the node: after the CPU twice, the sequence in progress, and flags.
const AREA_NODE: usize = 20;

/// The node in the calling thread's area. In a thread for which the area is not registered it stays 0.
#[inline(always)]
fn in_area(offset: isize) -> u32 {
    let node: u32;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `offset` is `__rseq_offset`, so the word lies in this thread's area, which has 32 bytes at
    // least, and which the kernel keeps current.
    unsafe {
        core::arch::asm!(
            "mov {node:e}, dword ptr fs:[{offset} + {at}]",
            offset = in(reg) offset,
            at = const AREA_NODE,
            node = out(reg) node,
            options(readonly, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "mrs {tp}, tpidr_el0",
            "add {tp}, {tp}, {offset}",
            "ldr {node:w}, [{tp}, #{at}]",
            tp = out(reg) _,
            offset = in(reg) offset,
            at = const AREA_NODE,
            node = out(reg) node,
            options(readonly, nostack, preserves_flags),
        );
    }
    node
}

/// The nodes below this directory that have one of these CPUs. None if it is not there.
fn read(root: &CStr, cpus: &CpuSet) -> Ids {
    let mut ids = [0; WORDS];
    each_range(&Path::of(root, format_args!("has_cpu")), |from, to| {
        for id in from..=to.min(LIMIT - 1) {
            let mut usable = false;
            each_range(&Path::of(root, format_args!("node{id}/cpulist")), |first, last| {
                usable |= cpus.has_any(first, last);
            });
            if usable {
                ids[id as usize / 64] |= 1 << (id % 64);
            }
        }
    });
    ids
}

/// A path without a heap.
struct Path {
    bytes: [u8; 256],
    length: usize,
}

impl Path {
    fn of(directory: &CStr, name: fmt::Arguments<'_>) -> Path {
        let mut path = Path { bytes: [0; 256], length: 0 };
        path.append(directory.to_bytes());
        path.append(b"/");
        // What does not fit is left out, and then there is no such file.
        let _ = fmt::write(&mut path, name);
        path
    }

    fn append(&mut self, more: &[u8]) {
        // The last byte stays zero.
        let room = self.bytes.len() - 1 - self.length;
        let more = &more[..more.len().min(room)];
        self.bytes[self.length..][..more.len()].copy_from_slice(more);
        self.length += more.len();
    }
}

impl fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text.as_bytes());
        Ok(())
    }
}

/// Calls `range` with each range of a file such as `0-3,8,10-11`; with none if it cannot be read.
fn each_range(path: &Path, mut range: impl FnMut(u32, u32)) {
    let file = keeping_errno(|| {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends in a zero.
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.bytes.as_ptr(), flags) }
    });
    let Ok(file) = file else { return };
    let (mut first, mut number) = (None, None::<u32>);
    let mut end = |first: &mut Option<u32>, number: &mut Option<u32>| {
        if let Some(last) = number.take() {
            range(first.take().unwrap_or(last), last);
        }
    };
    let mut part = [0u8; 256];
    loop {
        let count = keeping_errno(|| {
            // SAFETY: the kernel writes at most as many bytes as there are.
            unsafe { libc::syscall(libc::SYS_read, file, part.as_mut_ptr(), part.len()) }
        });
        let Ok(count @ 1..) = count else { break };
        for &byte in &part[..count as usize] {
            match byte {
                b'0'..=b'9' => {
                    let digit = u32::from(byte - b'0');
                    number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit));
                }
                b'-' => first = number.take(),
                _ => end(&mut first, &mut number),
            }
        }
    }
    end(&mut first, &mut number);
    // SAFETY: the file opened above, which nothing else knows.
    let _ = keeping_errno(|| unsafe { libc::syscall(libc::SYS_close, file) });
}

#[cfg(test)]
mod tests {
    use super::{count, cpus, current, getcpu, init, nodes, place, read};
    use crate::cpu::CpuSet;
    use std::ffi::CString;
    use std::fs;

    /// The nodes of a machine whose sysfs says this, for a process that may use these CPUs.
    fn nodes_of(name: &str, has_cpu: &str, lists: &[(u32, &str)], cpus: &[u32]) -> (super::Ids, u32) {
        let root = std::env::temp_dir().join(format!("poundlock-node-{}-{name}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("has_cpu"), has_cpu).unwrap();
        for (id, list) in lists {
            fs::create_dir_all(root.join(format!("node{id}"))).unwrap();
            fs::write(root.join(format!("node{id}/cpulist")), list).unwrap();
        }
        let mut set = CpuSet::default();
        for &cpu in cpus {
            set.insert(cpu);
        }
        let path = CString::new(root.to_str().unwrap()).unwrap();
        let ids = read(&path, &set);
        fs::remove_dir_all(&root).unwrap();
        (ids, count(&ids))
    }

    #[test]
    fn nodes_are_those_with_a_cpu_of_ours() {
        let lists = [(0, "0-3,8-11\n"), (1, "4-7,12-15\n")];
        assert_eq!(nodes_of("both", "0-1\n", &lists, &[3, 4]).1, 2);
        assert_eq!(nodes_of("second", "0-1\n", &lists, &[5, 15]).1, 1);
        assert_eq!(nodes_of("none", "0-1\n", &lists, &[99]).1, 0);
        // A list that is longer than what is read at once.
        let long: Vec<_> = (0..400).map(|cpu| (2 * cpu).to_string()).collect();
        assert_eq!(nodes_of("long", "0\n", &[(0, &long.join(","))], &[798]).1, 1);
    }

    #[test]
    fn numbers_with_gaps_are_made_dense() {
        let lists = [(0, "0\n"), (8, "1\n"), (70, "2\n"), (252, "3\n"), (255, "4\n")];
        let (ids, count) = nodes_of("gaps", "0,8,70,252,255\n", &lists, &[0, 1, 2, 3, 4]);
        assert_eq!(count, 5);
        let of = |id| place(id, |word| ids[word]);
        assert_eq!([of(0), of(8), of(70), of(252), of(255)], [0, 1, 2, 3, 4]);
        // A node that came later has some place among them, or is beyond: `current` bounds it.
        assert_eq!(of(5000), 5);
    }

    #[test]
    fn a_machine_that_says_nothing_has_no_nodes() {
        let mut cpus = CpuSet::default();
        cpus.insert(0);
        assert_eq!(count(&read(c"/nonexistent/poundlock", &cpus)), 0);
    }

    #[test]
    fn the_node_is_one_of_them() {
        init();
        assert!(nodes() >= 1 && cpus() >= 1);
        assert!(current() < nodes());
    }

    /// On a machine with several nodes the two sources agree, migrations aside.
    #[test]
    fn the_area_and_the_kernel_agree() {
        crate::init();
        if super::IN_AREA.load(super::Relaxed) {
            let offset = crate::tls::words().rseq.load(super::Relaxed);
            assert!((0..100).any(|_| super::in_area(offset) == getcpu().1));
        }
    }
}
