//! The kernel's events: tracepoints opened with `perf_event_open` on threads, and the rings in which their
//! records come, one a CPU.
//!
//! An event of a thread and a CPU goes on in the threads that the thread starts. Events of one CPU share a
//! ring, which the first of them owns. Each event has an id, by which its records name it.
//!
//! Where programs in the kernel tell of the calls ([`super::bpf`]), the events are one a CPU, which tell of
//! mappings and threads alone.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use super::bpf::Calls;
use super::record::{self, Record};
use crate::message::{Failure, status};

/// As much memory is taken for all rings together, less where there are few CPUs,
const RINGS: usize = 128 << 20;
/// and for each of them at most and at least.
const RING: (usize, usize) = (32 << 20, 64 << 10);
/// A record has the innermost bytes of a stack: enough to leave the C library, where frame pointers lead on,
const INNER: u32 = 1024;
/// and as much as is unwound where they do not.
const WHOLE: u32 = 4096;
/// Where frame pointers lead, no further is gone.
const DEEPEST: u16 = 64;

/// What a tracepoint tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Enter,
    Exit,
}

/// What is in a record of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) what: What,
    /// The thread on which it was opened.
    pub(super) tid: u32,
    pub(super) format: u64,
}

/// How stacks come with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    /// The return addresses that frame pointers lead to, and a little of the stack.
    Chain,
    /// More of the stack.
    Stack,
}

/// Bits of the sort of a sample.
pub(super) mod format {
    pub(crate) const TID: u64 = 1 << 1;
    pub(crate) const TIME: u64 = 1 << 2;
    pub(crate) const CALLCHAIN: u64 = 1 << 5;
    pub(crate) const RAW: u64 = 1 << 10;
    pub(crate) const REGS_USER: u64 = 1 << 12;
    pub(crate) const STACK_USER: u64 = 1 << 13;
    pub(crate) const IDENTIFIER: u64 = 1 << 16;
}

/// The registers that come with a stack, in the order of their numbers: where they are in a record.
#[cfg(target_arch = "x86_64")]
pub(super) mod registers {
    pub(crate) const MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;
    pub(crate) const COUNT: usize = 3;
    pub(crate) const FP: usize = 0;
    pub(crate) const SP: usize = 1;
    pub(crate) const PC: usize = 2;
    pub(crate) const LR: Option<usize> = None;
}

#[cfg(target_arch = "aarch64")]
pub(super) mod registers {
    pub(crate) const MASK: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;
    pub(crate) const COUNT: usize = 4;
    pub(crate) const FP: usize = 0;
    pub(crate) const LR: Option<usize> = Some(1);
    pub(crate) const SP: usize = 2;
    pub(crate) const PC: usize = 3;
}

/// `struct perf_event_attr` as of Linux 4.8, which every later kernel takes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    sort: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    read: u64,
    flags: u64,
    watermark: u32,
    breakpoint_sort: u32,
    breakpoint: [u64; 2],
    branches: u64,
    registers: u64,
    stack: u32,
    clock: i32,
    interrupted_registers: u64,
    aux_watermark: u32,
    deepest: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// Bits of [`Attributes::flags`].
mod flag {
    pub(super) const DISABLED: u64 = 1;
    pub(super) const INHERIT: u64 = 1 << 1;
    pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(super) const EXCLUDE_HV: u64 = 1 << 6;
    pub(super) const MMAP: u64 = 1 << 8;
    pub(super) const COMM: u64 = 1 << 9;
    pub(super) const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub(super) const TASK: u64 = 1 << 13;
    pub(super) const WATERMARK: u64 = 1 << 14;
    pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(super) const MMAP2: u64 = 1 << 23;
    pub(super) const COMM_EXEC: u64 = 1 << 24;
    pub(super) const CLOCK: u64 = 1 << 25;
    /// Since Linux 5.13.
    pub(super) const INHERIT_THREAD: u64 = 1 << 35;
}

const TRACEPOINT: u32 = 2;
/// An event that never happens by itself.
const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;
/// As much memory has a CPU for what is none of a call.
const OTHER_RECORDS: usize = 1 << 20;
const SET_OUTPUT: libc::c_ulong = 0x2405;
const GET_ID: libc::c_ulong = 0x8008_2407;
const CLOEXEC: libc::c_ulong = 8;

/// The system calls that are watched. The first one is there in every kernel. The others need not be, and
/// only Wine makes them: elsewhere they would cost each context switch something for nothing.
const CALLS: [&str; 5] = ["futex", "futex_waitv", "futex_wait", "futex_wake", "futex_requeue"];

/// The numbers of the tracepoints.
pub(super) struct Tracepoints(Vec<(What, u64)>);

impl Tracepoints {
    /// Those of all calls, or of the one that nearly all programs make.
    ///
    /// # Errors
    /// If the kernel has none, or does not show them to us.
    pub(super) fn find(all: bool) -> Result<Tracepoints, Failure> {
        let others = if all { &CALLS[1..] } else { &[] };
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for place in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            match Tracepoints::below(place, others) {
                Ok(found) => return Ok(found),
                Err(_) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(other) => error = other,
            }
        }
        // Not every machine mounts it. Whoever may do that needs no place for it.
        if error.kind() == io::ErrorKind::NotFound
            && let Ok(mounted) = nowhere()
            && let Ok(found) = Tracepoints::below(&format!("/proc/self/fd/{}", mounted.as_raw_fd()), others)
        {
            return Ok(found);
        }
        Err(Failure::new(status::OURS, no_tracepoints(&error)))
    }

    /// Those of this tracefs.
    fn below(place: &str, others: &[&str]) -> io::Result<Tracepoints> {
        let id = |name: String| -> io::Result<u64> {
            let file = Path::new(place).join("events/syscalls").join(name).join("id");
            std::fs::read_to_string(file)?.trim().parse().map_err(io::Error::other)
        };
        let both = |call: &str| {
            let (enter, exit) = (id(format!("sys_enter_{call}"))?, id(format!("sys_exit_{call}"))?);
            Ok([(What::Enter, enter), (What::Exit, exit)])
        };
        let futex: io::Result<_> = both(CALLS[0]);
        let mut found = futex?.to_vec();
        found.extend(others.iter().filter_map(|call| both(call).ok()).flatten());
        Ok(Tracepoints(found))
    }
}

/// A tracefs that is mounted nowhere, and ends with its descriptor (Linux 5.2).
fn nowhere() -> io::Result<OwnedFd> {
    const CREATE: libc::c_ulong = 6;
    let checked =
        |result: libc::c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    let own = |result: libc::c_long| {
        // SAFETY: the kernel has just opened it for us.
        checked(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    };
    // SAFETY: the name ends with a zero byte; 1 is FSOPEN_CLOEXEC.
    let system = own(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), 1_u32) })?;
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes neither a key nor a value.
    checked(unsafe { libc::syscall(libc::SYS_fsconfig, system.as_raw_fd(), CREATE, nothing, nothing, 0) })?;
    // SAFETY: takes numbers alone; 1 is FSMOUNT_CLOEXEC.
    own(unsafe { libc::syscall(libc::SYS_fsmount, system.as_raw_fd(), 1_u32, 0_u32) })
}

/// Why the tracepoints are not there, and what to do.
fn no_tracepoints(error: &io::Error) -> String {
    let mounted = || Path::new("/sys/kernel/tracing/events").exists();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            // SAFETY: takes no arguments.
            let group = unsafe { libc::getegid() };
            format!(
                "the kernel's tracepoints may not be read: run this with sudo, or let your group read them: sudo mount \
                 -o remount,mode=750,gid={group} /sys/kernel/tracing"
            )
        }
        _ if is_root() && !mounted() => {
            "there is no tracefs here: mount -t tracefs tracefs /sys/kernel/tracing; in a container: docker run \
             -v /sys/kernel/tracing:/sys/kernel/tracing:ro --cap-add=PERFMON --cap-add=SYS_PTRACE"
                .to_owned()
        }
        _ if !mounted() => {
            "there is no tracefs that you may read: run this with sudo, or have it mounted: sudo mount -t tracefs \
             -o mode=750,gid=$(id -g) tracefs /sys/kernel/tracing"
                .to_owned()
        }
        _ => "this kernel has no tracepoints of system calls (CONFIG_FTRACE_SYSCALLS): futex calls cannot be seen"
            .to_owned(),
    }
}

/// Whether we are.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Which threads' events are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// This thread's child's, from its `exec` on, and its children's.
    Child,
    /// That one's, and those of the threads that it starts.
    Thread(u32),
}

/// All events, and their rings.
pub(super) struct Perf {
    tracepoints: Tracepoints,
    copying: Copying,
    cpus: Vec<i32>,
    /// By CPU. The owner of a ring comes first.
    rings: Vec<Option<Ring>>,
    events: FxHashMap<u32, Vec<OwnedFd>>,
    sources: FxHashMap<u64, Source>,
    /// Whether the kernel knows events that threads inherit and processes do not.
    threads_alone: bool,
    /// What tells of the calls instead.
    pub(super) calls: Option<Calls>,
}

impl Perf {
    /// `all`: of all calls that wait for futexes.
    pub(super) fn new(copying: Copying, all: bool) -> Result<Perf, Failure> {
        let tracepoints = Tracepoints::find(all)?;
        let cpus = online();
        raise_file_limit();
        Ok(Perf {
            tracepoints,
            copying,
            rings: cpus.iter().map(|_| None).collect(),
            cpus,
            events: FxHashMap::default(),
            sources: FxHashMap::default(),
            threads_alone: true,
            calls: None,
        })
    }

    /// A thread has ended; another one may get its id. Its events are kept: they may own rings, and its
    /// threads go on with them.
    pub(super) fn ended(&mut self, tid: u32) {
        if let Some(events) = self.events.remove(&tid) {
            self.events.entry(0).or_default().extend(events);
        }
    }

    /// Has programs in the kernel tell of the calls of these processes, if it lets us; else all stays as it
    /// is. To be called before other events are opened.
    pub(super) fn by_programs(&mut self, pids: &[u32]) {
        // Other calls are rare, and the programs know one.
        if self.tracepoints.0.len() > 2 {
            return;
        }
        let attributes = Attributes {
            sort: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: DUMMY,
            sample: format::IDENTIFIER | format::TID | format::TIME,
            flags: flag::WATERMARK
                | flag::SAMPLE_ID_ALL
                | flag::CLOCK
                | flag::MMAP
                | flag::MMAP2
                | flag::COMM
                | flag::COMM_EXEC
                | flag::TASK,
            watermark: u32::MAX / 2,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let rings = || -> io::Result<Vec<(OwnedFd, Ring)>> {
            let one = |&cpu: &i32| {
                let event = open(&attributes, -1, cpu)?;
                let ring = Ring::new(&event, OTHER_RECORDS)?;
                Ok((event, ring))
            };
            self.cpus.iter().map(one).collect()
        };
        let Ok(rings) = rings() else { return };
        self.calls = Calls::start(pids, self.copying == Copying::Chain);
        if self.calls.is_some() {
            let (events, rings): (Vec<OwnedFd>, Vec<Ring>) = rings.into_iter().unzip();
            self.rings = rings.into_iter().map(Some).collect();
            self.events.insert(0, events);
        }
    }

    /// Opens the events of a thread. `false` if it has ended.
    pub(super) fn open(&mut self, whose: Whose) -> io::Result<bool> {
        if self.calls.is_some() {
            return Ok(true);
        }
        let tid = match whose {
            Whose::Child => 0,
            Whose::Thread(tid) => tid,
        };
        let mut opened = Vec::new();
        for at in 0..self.cpus.len() {
            for tracepoint in 0..self.tracepoints.0.len() {
                let (what, id) = self.tracepoints.0[tracepoint];
                match self.one(whose, self.cpus[at], what, id) {
                    Ok((event, format)) => {
                        self.ring(at, &event)?;
                        self.sources.insert(id_of(&event)?, Source { what, tid, format });
                        opened.push(event);
                    }
                    Err(error) => match error.raw_os_error() {
                        Some(libc::ESRCH) => return Ok(false),
                        // The CPU is off by now.
                        Some(libc::ENODEV) => {}
                        _ => return Err(error),
                    },
                }
            }
        }
        self.events.entry(tid).or_default().extend(opened);
        Ok(true)
    }

    fn one(&mut self, whose: Whose, cpu: i32, what: What, id: u64) -> io::Result<(OwnedFd, u64)> {
        let mut sample = format::IDENTIFIER | format::TID | format::TIME | format::RAW;
        if what == What::Enter {
            sample |= format::REGS_USER | format::STACK_USER;
            if self.copying == Copying::Chain {
                sample |= format::CALLCHAIN;
            }
        }
        let mut flags = flag::INHERIT
            | flag::EXCLUDE_KERNEL
            | flag::EXCLUDE_HV
            | flag::WATERMARK
            | flag::SAMPLE_ID_ALL
            | flag::CLOCK;
        if id == self.tracepoints.0[0].1 {
            // One event of each thread tells of all else.
            flags |= flag::MMAP | flag::MMAP2 | flag::COMM | flag::COMM_EXEC | flag::TASK;
        }
        if whose == Whose::Child {
            flags |= flag::DISABLED | flag::ENABLE_ON_EXEC;
        } else if self.threads_alone {
            flags |= flag::INHERIT_THREAD;
        }
        let is_enter = what == What::Enter;
        let attributes = Attributes {
            sort: TRACEPOINT,
            size: size_of::<Attributes>() as u32,
            config: id,
            period: 1,
            sample,
            flags,
            watermark: u32::MAX / 2,
            registers: if is_enter { registers::MASK } else { 0 },
            stack: match (is_enter, self.copying) {
                (false, _) => 0,
                (true, Copying::Chain) => INNER,
                (true, Copying::Stack) => WHOLE,
            },
            clock: libc::CLOCK_MONOTONIC,
            deepest: if sample & format::CALLCHAIN != 0 { DEEPEST } else { 0 },
            ..Attributes::default()
        };
        let pid = match whose {
            Whose::Child => 0,
            Whose::Thread(tid) => tid as libc::pid_t,
        };
        match open(&attributes, pid, cpu) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && flags & flag::INHERIT_THREAD != 0 => {
                self.threads_alone = false;
                let attributes = Attributes { flags: flags & !flag::INHERIT_THREAD, ..attributes };
                open(&attributes, pid, cpu).map(|event| (event, sample))
            }
            opened => opened.map(|event| (event, sample)),
        }
    }

    /// Has the records of an event go to the ring of its CPU.
    fn ring(&mut self, at: usize, event: &OwnedFd) -> io::Result<()> {
        if let Some(ring) = &self.rings[at] {
            // SAFETY: takes two numbers.
            let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, ring.owner) };
            return if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        }
        let mut size = (RINGS / self.cpus.len().max(1)).next_power_of_two().clamp(RING.1, RING.0);
        loop {
            match Ring::new(event, size) {
                Ok(ring) => {
                    self.rings[at] = Some(ring);
                    return Ok(());
                }
                // Users may lock little memory.
                Err(error)
                    if size > RING.1 && matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) =>
                {
                    size /= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Calls `each` with every record that has come and is no younger than `until`, in the order of their
    /// times: what a record means depends on those before it, on whatever CPU they came.
    pub(super) fn drain(&mut self, until: u64, mut each: impl FnMut(Record)) {
        let mut rings: Vec<&mut Ring> = self.rings.iter_mut().flatten().collect();
        rings.iter_mut().for_each(|ring| ring.look());
        let batch = self.calls.as_mut().map(|calls| calls.batch(until)).unwrap_or_default();
        let mut batch = batch.into_iter().peekable();
        loop {
            let next = rings.iter().enumerate().filter_map(|(at, ring)| Some((ring.next?, at))).min();
            let next = next.filter(|(time, _)| *time <= until);
            let call = batch.next_if(|call| next.is_none_or(|(time, _)| call.time < time));
            if let (Some(call), Some(calls)) = (call, &self.calls) {
                each(Record::Sample(calls.sample(call)));
            } else if let Some((_, at)) = next {
                rings[at].take(|bytes| record::parse(&self.sources, bytes).into_iter().for_each(&mut each));
            } else {
                break;
            }
        }
        rings.iter_mut().for_each(|ring| ring.tell());
        if let Some(calls) = &mut self.calls {
            calls.taken();
            let lost = calls.lost();
            if lost > 0 {
                each(Record::Lost(lost));
            }
        }
    }

    /// Why events cannot be opened, and what to do.
    pub(super) fn refused(&self, error: &io::Error) -> Failure {
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        let paranoid: i32 = paranoid.trim().parse().unwrap_or(2);
        let line = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) if is_root() => {
                "the kernel refuses perf_event_open to root here: of a container, docker run --cap-add=PERFMON \
                 --cap-add=SYS_PTRACE (and a seccomp profile that allows the call); or run this on the host"
                    .to_owned()
            }
            Some(libc::EPERM | libc::EACCES) if paranoid > 2 => format!(
                "kernel.perf_event_paranoid is {paranoid}: run this with sudo, or let users watch their own processes: \
                 sudo sysctl kernel.perf_event_paranoid=2"
            ),
            Some(libc::EPERM | libc::EACCES) => {
                "the kernel shows the futex calls of a process to its own user and to root: run this with sudo"
                    .to_owned()
            }
            Some(libc::EMFILE | libc::ENFILE) => format!(
                "each thread needs {} open files here, more than there may be: raise the limit (ulimit -n)",
                self.cpus.len() * self.tracepoints.0.len()
            ),
            Some(libc::ENOSYS) => {
                "the kernel, or a seccomp profile, has no perf_event_open: futex calls cannot be seen".to_owned()
            }
            _ => format!("the kernel's events cannot be opened: {}", crate::program::reason(error)),
        };
        Failure::new(status::OURS, line)
    }
}

fn open(attributes: &Attributes, pid: libc::pid_t, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads as many bytes as the structure says that it has.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(attributes), pid, cpu, -1, CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn id_of(event: &OwnedFd) -> io::Result<u64> {
    let mut id = 0u64;
    // SAFETY: writes one number.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), GET_ID, &raw mut id) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
}

/// The CPUs that are on.
fn online() -> Vec<i32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus: Vec<i32> = ranges(&text).collect();
    if !cpus.is_empty() {
        return cpus;
    }
    // SAFETY: takes a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    (0..i32::try_from(count).unwrap_or(1).max(1)).collect()
}

/// The numbers of a list such as `0-3,8`.
fn ranges(text: &str) -> impl Iterator<Item = i32> {
    text.trim().split(',').flat_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        match (from.parse::<i32>(), to.parse::<i32>()) {
            (Ok(from), Ok(to)) => from..to + 1,
            _ => 0..0,
        }
    })
}

/// Each thread takes some.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls have one `rlimit`.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// The memory in which the kernel leaves the records of one CPU.
struct Ring {
    /// A page that says how far it is filled and read, and behind it the records.
    base: *mut u8,
    length: usize,
    data: usize,
    size: usize,
    /// The event that owns it: it is among the events, which are kept as long as this.
    owner: i32,
    /// How far the kernel has written, how far is read, and what of that the kernel was told.
    head: u64,
    tail: u64,
    told: u64,
    /// The time of the record that is read next, if there is one.
    next: Option<u64>,
    /// A record that goes on at the beginning.
    whole: Vec<u8>,
}

/// Where the page says it.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// So much is read before the kernel is told that it may write there again.
const STEP: u64 = 64 << 10;

impl Ring {
    fn new(event: &OwnedFd, size: usize) -> io::Result<Ring> {
        // SAFETY: takes a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let length = page + size;
        // SAFETY: a new mapping, which touches no other.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring {
            base: base.cast(),
            length,
            data: page,
            size,
            owner: event.as_raw_fd(),
            head: 0,
            tail: 0,
            told: 0,
            next: None,
            whole: Vec::new(),
        })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as this lives, and has aligned words there that the kernel and
        // we access as a whole only.
        unsafe { &*self.base.add(at).cast::<AtomicU64>() }
    }

    /// The bytes from here on, as many as lie in one piece.
    fn bytes(&self, from: u64, length: usize) -> &[u8] {
        let at = from as usize & (self.size - 1);
        // SAFETY: in the mapping; from tail to head, where it is read, the kernel writes nothing.
        unsafe { std::slice::from_raw_parts(self.base.add(self.data + at), length.min(self.size - at)) }
    }

    /// Looks how far the kernel has written.
    fn look(&mut self) {
        // Acquire: the records before it are there. The kernel has a barrier before its store.
        self.head = self.word(HEAD).load(Ordering::Acquire);
        self.next = self.time();
    }

    /// The length of the next record, if it is there.
    fn next_length(&self) -> Option<usize> {
        let there = self.head.wrapping_sub(self.tail);
        if there < 8 {
            return None;
        }
        // Records are of multiples of 8 bytes, so that a header is never in two pieces.
        let header = self.bytes(self.tail, 8);
        let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        (length >= 8 && length as u64 <= there).then_some(length)
    }

    /// The time of the next record, if it is there.
    fn time(&self) -> Option<u64> {
        let length = self.next_length()?;
        let header = self.bytes(self.tail, 8);
        let sort = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let at = self.bytes(self.tail.wrapping_add(super::record::time_at(sort, length) as u64), 8);
        Some(u64::from_ne_bytes(at.try_into().ok()?))
    }

    /// Calls `each` with the next record.
    fn take(&mut self, each: impl FnOnce(&[u8])) {
        let Some(length) = self.next_length() else {
            // It contradicts itself: what is there is given up.
            (self.tail, self.next) = (self.head, None);
            return;
        };
        let part = self.bytes(self.tail, length);
        if part.len() == length {
            each(part);
        } else {
            let first = part.len();
            let mut whole = std::mem::take(&mut self.whole);
            whole.clear();
            whole.extend_from_slice(self.bytes(self.tail, first));
            whole.extend_from_slice(self.bytes(self.tail.wrapping_add(first as u64), length - first));
            each(&whole);
            self.whole = whole;
        }
        self.tail = self.tail.wrapping_add(length as u64);
        self.next = self.time();
        if self.tail.wrapping_sub(self.told) > STEP {
            self.tell();
        }
    }

    /// Tells the kernel what is read.
    fn tell(&mut self) {
        // Release: what we have read there is read.
        self.word(TAIL).store(self.tail, Ordering::Release);
        self.told = self.tail;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

/// Whether a file is open for reading by us: of a program that is about to be started.
pub(super) fn readable(path: &Path) -> Option<File> {
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).ok()
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(ranges("0-3,8\n").collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(ranges("0\n").collect::<Vec<_>>(), [0]);
        assert_eq!(ranges("\n").count(), 0);
    }
}
