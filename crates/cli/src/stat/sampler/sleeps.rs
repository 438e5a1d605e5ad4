//! Where sleeping threads sleep: their stacks, read while they sleep, and who can end the sleep.
//!
//! A thread that is asleep in a system call does not touch its stack. Its stack pointer and program counter
//! are in `/proc/PID/task/TID/syscall`, and `process_vm_readv` copies the stack behind them. The copy counts
//! if a second look finds the thread in the same call at the same place, and the kernel has not given it a
//! CPU since the first one. Nothing is stopped, and nothing in the program runs for it. A thread that is
//! found in the sleep in which it was found before has the stack that it had then.
//!
//! A sleep of which the kernel says what it is for has a [`Waker`]: whether the program's own threads alone
//! can end it. Which sleeps are waits for work, and which come from within work, [`nested`] tells by the
//! order in which threads were seen in them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use poundlock_statfile::Snapshot;
use serde::Serialize;

use super::outcome::Sleep;
use crate::observe::calls::{self, Call, Doing};
use crate::observe::proc::{self, Sums, Task};
use crate::remote::maps::{Files, Maps};
use crate::remote::process::{self, Live};
use crate::remote::unwind::{Tables, Unwinder};
use crate::remote::{Memory, Stack, Thread};

/// The number of a place among those of its process.
pub(crate) type PlaceId = u32;
/// The place that is not known.
pub(crate) const NO_PLACE: PlaceId = 0;

/// Bytes of a stack that are copied first; and if they do not reach to its end.
const STACK: [usize; 2] = [16 << 10, 512 << 10];
/// Places of one process. Further ones count as not known.
const PLACES: usize = 4096;
/// Stacks are read, and what processes have mapped, as long as that takes no more of a CPU than one part in
/// this many, but for the first milliseconds.
const MAP_SHARE: u64 = 500;
const MAP_NS: u64 = 10_000_000;
/// Beyond that, the stacks of one process are read now and then all the same, so that no program is without:
/// after no less than this time, and as many times what it took.
const EXTRA_NS: u64 = 50_000_000;
const EXTRA_SHARE: u64 = 1000;
/// The mappings are read again no sooner than after this, and twice as long each time that they were the
/// same.
const REMAP_NS: u64 = 20_000_000;
/// What a file descriptor is stays known for this long.
const DESCRIPTOR_NS: u64 = 3_000_000_000;
/// File descriptors of a wait that are looked at, and of processes to find the other ends of pipes.
const DESCRIPTORS: usize = 64;
const ENDS: usize = 8192;
/// The ends of pipes are looked for again after as many times the CPU time that it took.
const PIPE_SHARE: u64 = 1000;

/// Who can end a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Waker {
    /// The program's own threads: a futex, an eventfd, a pipe that the program has the other end of, a child.
    Program,
    /// Others: sockets, terminals, pipes from elsewhere.
    Others,
    /// Signals, which the program's own processes send each other, or others do.
    Signals,
    /// A clock.
    Time,
    /// Not known.
    #[default]
    Unknown,
}

/// Where a thread sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Return addresses, innermost first.
    pub(crate) stack: Arc<[u64]>,
    /// Which of its process's programs the addresses are of.
    pub(crate) program: usize,
}

/// What is known of a sleep besides the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct At {
    pub(super) place: PlaceId,
    pub(super) waker: Waker,
    /// Whether a time limit may end it.
    pub(super) has_limit: bool,
}

/// What is found of one thread's present sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asleep {
    doing: Doing,
    arrivals: u64,
    at: At,
}

/// What all processes share.
#[derive(Default)]
pub(super) struct Shared {
    tables: Tables,
    code: Vec<Code>,
    /// The processes of the program, by our ids.
    pub(super) pids: Vec<u32>,
    /// The ends that the program has of each pipe: one to read from, one to write to.
    pipes: HashMap<String, (bool, bool)>,
    /// When pipes may be looked for again.
    look_again: u64,
    /// The CPU time that mappings and stacks took, from the first one on.
    mapping: Option<(u64, u64)>,
    extra: Extra,
    stack: Vec<u8>,
}

/// Stacks that are read beyond that time.
#[derive(Default)]
struct Extra {
    /// The last look that read some, and the process whose stacks it may read.
    look: (u64, u32),
    /// When the next one may.
    next: u64,
}

/// The code that is mapped into processes, forked ones say, and what unwinds their stacks.
struct Code {
    maps: Maps,
    snapshot: Arc<Snapshot>,
    unwinder: Unwinder,
    /// Keeps the names of files that have none any more.
    files: Arc<Files>,
}

/// What is mapped into a process.
struct Mapped {
    /// Which of [`Shared::code`].
    code: usize,
    memory: Live,
    read_at: u64,
    pause: u64,
}

/// The sleeps of one process.
#[derive(Default)]
pub(super) struct Sleeps {
    mapped: Option<Mapped>,
    /// The programs that the process was, each with the files that it had mapped.
    programs: Vec<Arc<Snapshot>>,
    places: Vec<Place>,
    ids: HashMap<Place, PlaceId>,
    /// Places of which a thread was seen in one, and in the other next.
    steps: HashSet<(PlaceId, PlaceId)>,
    /// Places at which threads wait for work, if they wait for that at all.
    for_work: HashSet<PlaceId>,
    descriptors: HashMap<u64, (Waker, u64)>,
    /// Keeps the names of files that have none any more.
    files: Vec<Arc<Files>>,
}

impl Sleeps {
    /// Where a thread sleeps that does this, in the process `pid`; not known if it goes on meanwhile.
    pub(super) fn place(
        &mut self,
        (pid, tid): (u32, u32),
        task: &Task,
        (doing, sums): (Doing, Sums),
        asleep: &mut Option<Asleep>,
        shared: &mut Shared,
        now: u64,
    ) -> At {
        let known = asleep.filter(|before| {
            (before.doing, before.arrivals) == (doing, sums.arrivals) && sums.delay.is_some()
        });
        if let Some(known) = known {
            return known.at;
        }
        let before = asleep.take().map_or(NO_PLACE, |before| before.at.place);
        let (sp, pc, call) = match doing {
            Doing::Call { call, sp, pc } => (sp, pc, Some(call)),
            Doing::Outside { sp, pc } => (sp, pc, None),
            Doing::Running | Doing::Gone => return At::default(),
        };
        let is_stale = |mapped: &Mapped| {
            let is_code = shared.code[mapped.code].maps.is_code(pc);
            !is_code && now >= mapped.read_at.saturating_add(mapped.pause)
        };
        if self.mapped.as_ref().is_none_or(is_stale) {
            self.map(pid, shared, now);
        }
        let waker = call.map_or(Waker::Unknown, |call| self.waker(pid, &call, shared, now));
        let at = At { place: NO_PLACE, waker, has_limit: call.is_none_or(|call| call.has_limit()) };
        let still = || {
            task.look_closely().1 == doing && task.sums().is_some_and(|after| after.arrivals == sums.arrivals)
        };
        if shared.is_over_budget(pid, now) {
            return at;
        }
        let before_stack = cost();
        let mapping = shared.mapping_ns();
        let mut place = NO_PLACE;
        for attempt in 0..2 {
            let Some(mapped) = &mut self.mapped else { break };
            let mut is_whole = false;
            for size in STACK {
                let stack = copy(&mapped.memory, sp, size, std::mem::take(&mut shared.stack));
                if !still() {
                    shared.stack = stack.bytes;
                    return at;
                }
                let is_cut = stack.bytes.len() == size;
                let thread = Thread {
                    tid,
                    inner: tid,
                    name: String::new(),
                    doing,
                    registers: None,
                    stack,
                    stood_ns: 0,
                };
                let Code { maps, unwinder, .. } = &mut shared.code[mapped.code];
                let found = unwinder.stack(&thread, maps, &mapped.memory);
                shared.stack = thread.stack.bytes;
                is_whole = found.is_whole;
                if is_whole || !is_cut || size == STACK[1] {
                    let frames: Arc<[u64]> = found.frames.iter().map(|frame| frame.at).collect();
                    place = self.intern(frames);
                    break;
                }
            }
            // A library may have been loaded since.
            let mapped = self.mapped.as_ref().map(|mapped| mapped.read_at.saturating_add(mapped.pause));
            if is_whole
                || attempt > 0
                || mapped.is_none_or(|again| now < again)
                || !self.map(pid, shared, now)
            {
                break;
            }
        }
        let mapping = shared.mapping_ns() - mapping;
        shared.spend(now, cost().saturating_sub(before_stack).saturating_sub(mapping));
        if place != NO_PLACE {
            if before != NO_PLACE && before != place {
                self.steps.insert((before, place));
            }
            *asleep = Some(Asleep { doing, arrivals: sums.arrivals, at: At { place, ..at } });
        }
        At { place, ..at }
    }

    /// Notes that a sleep at a place is one in which threads wait for work.
    pub(super) fn is_for_work(&mut self, at: At, what: &Sleep) {
        if at.place != NO_PLACE && at.waker != Waker::Time && (what.is_idling() || what.is_input(at.waker)) {
            self.for_work.insert(at.place);
        }
    }

    /// Reads what is mapped. False if that is as before.
    fn map(&mut self, pid: u32, shared: &mut Shared, now: u64) -> bool {
        if shared.is_over_budget(pid, now) {
            return false;
        }
        let before = cost();
        let mapped = self.map_now(pid, shared, now);
        shared.spend(now, cost().saturating_sub(before));
        mapped
    }

    fn map_now(&mut self, pid: u32, shared: &mut Shared, now: u64) -> bool {
        let Ok(mut maps) = process::maps(pid) else { return false };
        maps.0.retain(|mapping| mapping.executable);
        if let Some(mapped) = self.mapped.as_mut().filter(|mapped| shared.code[mapped.code].maps == maps) {
            (mapped.read_at, mapped.pause) = (now, mapped.pause.saturating_mul(2));
            return false;
        }
        let known = shared.code.iter().rposition(|code| code.maps == maps);
        let code = known.unwrap_or_else(|| {
            let mut files = Files::of(pid);
            let snapshot = Arc::new(files.describe(&maps));
            let unwinder = Unwinder::new(&snapshot, &maps, &mut shared.tables);
            shared.code.push(Code { maps, snapshot, unwinder, files: Arc::new(files) });
            shared.code.len() - 1
        });
        let Code { snapshot, files, .. } = &shared.code[code];
        self.files.push(files.clone());
        let pause = self.mapped.as_ref().map_or(REMAP_NS, |mapped| mapped.pause.saturating_mul(2));
        self.mapped = Some(Mapped { code, memory: Live::new(pid), read_at: now, pause });
        // What was there before and is there still keeps its addresses.
        match self.programs.last_mut() {
            Some(last) if last.modules.iter().all(|module| snapshot.modules.contains(module)) => {
                *last = snapshot.clone();
            }
            _ => self.programs.push(snapshot.clone()),
        }
        true
    }

    fn intern(&mut self, stack: Arc<[u64]>) -> PlaceId {
        let place = Place { stack, program: self.programs.len() - 1 };
        if let Some(&known) = self.ids.get(&place) {
            return known;
        }
        if self.places.len() >= PLACES || place.stack.is_empty() {
            return NO_PLACE;
        }
        self.places.push(place.clone());
        let id = self.places.len() as PlaceId;
        self.ids.insert(place, id);
        id
    }

    /// Who can end this call.
    fn waker(&mut self, pid: u32, call: &Call, shared: &mut Shared, now: u64) -> Waker {
        let [first, second, third, ..] = call.arguments;
        match call.number {
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Waker::Time,
            libc::SYS_wait4 | libc::SYS_waitid => Waker::Program,
            libc::SYS_epoll_pwait | calls::EPOLL_WAIT | libc::SYS_epoll_pwait2 => {
                self.descriptor(pid, first, shared, now)
            }
            libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev => {
                self.descriptor(pid, first, shared, now)
            }
            libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_accept | libc::SYS_accept4 => Waker::Others,
            libc::SYS_ppoll | calls::POLL => {
                let memory = self.mapped.as_ref().map(|mapped| &mapped.memory);
                let mut bytes = vec![0; 8 * (second as usize).min(DESCRIPTORS)];
                let len = memory.map_or(0, |memory| memory.read(first, &mut bytes));
                let fds = bytes[..len]
                    .chunks_exact(8)
                    .map(|entry| i32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]));
                let fds: Vec<u64> = fds.filter(|&fd| fd >= 0).map(|fd| fd as u64).collect();
                self.any_of(pid, &fds, shared, now)
            }
            libc::SYS_pselect6 | calls::SELECT => {
                // Sets of bits: what is to be read and to be written.
                let memory = self.mapped.as_ref().map(|mapped| &mapped.memory);
                let count = first.min(1024);
                let word =
                    |set: u64, n: u64| memory.and_then(|memory| memory.long(set + n / 64 * 8)).unwrap_or(0);
                let is_in = |set: u64, n: u64| set != 0 && word(set, n) >> (n % 64) & 1 == 1;
                let fds: Vec<u64> =
                    (0..count).filter(|&n| is_in(second, n) || is_in(third, n)).take(DESCRIPTORS).collect();
                self.any_of(pid, &fds, shared, now)
            }
            libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait | calls::PAUSE => Waker::Signals,
            _ if call.waits_for_futex() => Waker::Program,
            _ => Waker::Unknown,
        }
    }

    /// Of a wait for several. Without any it is one for a time.
    fn any_of(&mut self, pid: u32, fds: &[u64], shared: &mut Shared, now: u64) -> Waker {
        let mut found = BTreeSet::new();
        for &fd in fds {
            found.insert(self.descriptor(pid, fd, shared, now));
        }
        together(&found).unwrap_or(Waker::Time)
    }

    fn descriptor(&mut self, pid: u32, fd: u64, shared: &mut Shared, now: u64) -> Waker {
        let fd = u64::from(fd as u32);
        if let Some(&(waker, until)) = self.descriptors.get(&fd)
            && now < until
        {
            return waker;
        }
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
        let link = link.to_string_lossy();
        let waker = match &*link {
            "anon_inode:[eventfd]" => Waker::Program,
            "anon_inode:[signalfd]" => Waker::Signals,
            "anon_inode:[timerfd]" => Waker::Time,
            "anon_inode:[eventpoll]" => {
                let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
                let fds: Vec<u64> = watched(&text).take(DESCRIPTORS).collect();
                self.any_of(pid, &fds, shared, now)
            }
            pipe if pipe.starts_with("pipe:") => shared.pipe(pipe, pid, fd, now),
            other
                if other.starts_with("socket:") || other.starts_with("/dev/pts/") || other == "/dev/tty" =>
            {
                Waker::Others
            }
            _ => Waker::Unknown,
        };
        self.descriptors.insert(fd, (waker, now + DESCRIPTOR_NS));
        waker
    }

    /// Nothing more will be seen of the process.
    pub(super) fn close(&mut self) {
        self.mapped = None;
        self.descriptors = HashMap::new();
        self.ids = HashMap::new();
    }

    /// What is known so far goes on counting, but for the order of what was seen.
    pub(super) fn begin_anew(&mut self) {
        self.steps.clear();
    }

    /// The place of this number.
    pub(super) fn at(&self, place: PlaceId) -> Option<&Place> {
        self.places.get((place as usize).checked_sub(1)?)
    }

    pub(super) fn programs(&self) -> &[Arc<Snapshot>] {
        &self.programs
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn files(&self) -> &[Arc<Files>] {
        &self.files
    }
}

impl Shared {
    /// Whether stacks and mappings have taken more of a CPU than they may. Samples go without a stack then.
    fn is_over_budget(&mut self, pid: u32, now: u64) -> bool {
        let (since, taken) = *self.mapping.get_or_insert((now, 0));
        if taken <= MAP_NS + now.saturating_sub(since) / MAP_SHARE {
            return false;
        }
        if now >= self.extra.next {
            self.extra = Extra { look: (now, pid), next: now + EXTRA_NS };
        }
        self.extra.look != (now, pid)
    }

    fn spend(&mut self, now: u64, ns: u64) {
        self.mapping.get_or_insert((now, 0)).1 += ns;
        if self.extra.look.0 == now {
            self.extra.next = self.extra.next.saturating_add(ns.saturating_mul(EXTRA_SHARE));
        }
    }

    /// The CPU time that mappings and stacks took.
    pub(super) fn mapping_ns(&self) -> u64 {
        self.mapping.map_or(0, |(_, taken)| taken)
    }

    /// Looks through the files that the processes have open.
    fn find_pipes(&mut self) {
        self.pipes.clear();
        let open = self
            .pids
            .iter()
            .flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten());
        for entry in open.take(ENDS) {
            let link = std::fs::read_link(entry.path()).unwrap_or_default();
            let link = link.to_string_lossy();
            if link.starts_with("pipe:")
                && let Ok(of) = entry.path().symlink_metadata()
            {
                let mode = of.permissions().mode();
                let ends = self.pipes.entry(link.into_owned()).or_default();
                ends.0 |= mode & 0o400 != 0;
                ends.1 |= mode & 0o200 != 0;
            }
        }
    }

    /// Who can end a wait for this pipe: the program, if it has the other end.
    fn pipe(&mut self, pipe: &str, pid: u32, fd: u64, now: u64) -> Waker {
        if !self.pipes.contains_key(pipe) && now >= self.look_again {
            let before = cost();
            self.find_pipes();
            self.look_again = now + cost().saturating_sub(before).saturating_mul(PIPE_SHARE);
        }
        if !self.pipes.contains_key(pipe) {
            return Waker::Unknown;
        }
        let Ok(own) = std::fs::symlink_metadata(format!("/proc/{pid}/fd/{fd}")) else {
            return Waker::Unknown;
        };
        let (readers, writers) = self.pipes.get(pipe).copied().unwrap_or_default();
        let other = if own.permissions().mode() & 0o400 != 0 { writers } else { readers };
        if other { Waker::Program } else { Waker::Others }
    }
}

/// The CPU time of this thread.
fn cost() -> u64 {
    proc::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// The file descriptors that an `epoll` watches for anything, from its `fdinfo`.
fn watched(text: &str) -> impl Iterator<Item = u64> {
    text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
        let fd = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        (events & 0x7 != 0).then_some(fd)
    })
}

/// Whoever else can end a wait for several, the program alone cannot.
fn together(found: &BTreeSet<Waker>) -> Option<Waker> {
    let order = [Waker::Others, Waker::Unknown, Waker::Signals, Waker::Program, Waker::Time];
    order.into_iter().find(|waker| found.contains(waker))
}

fn copy(memory: &Live, sp: u64, size: usize, mut bytes: Vec<u8>) -> Stack {
    let start = sp & !7;
    bytes.resize(size, 0);
    let len = memory.read(start, &mut bytes);
    bytes.truncate(len);
    Stack { start, bytes }
}

/// A place of a program: forked processes have the same ones.
type Node<'p> = (usize, &'p [u64]);

/// The places from which threads go back to wait for work further out: sleeps in the midst of work. A thread
/// whose loop sleeps at one place, and that sleeps at another one in between which its loop leads to by more
/// calls, has something to do at the other. Loops are told from what comes once, a start say, by threads that
/// were seen at either place after the other.
pub(super) fn nested<'p>(all: impl Iterator<Item = &'p Sleeps>) -> impl Fn(&Sleeps, PlaceId) -> bool + 'p {
    let mut programs: Vec<&Snapshot> = Vec::new();
    let mut nodes: HashMap<Node<'p>, usize> = HashMap::new();
    let mut edges: Vec<Vec<usize>> = Vec::new();
    let mut for_work: HashSet<usize> = HashSet::new();
    for sleeps in all {
        let numbers: Vec<usize> = sleeps
            .programs
            .iter()
            .map(|program| {
                let same = programs.iter().position(|known| known.modules == program.modules);
                same.unwrap_or_else(|| {
                    programs.push(program);
                    programs.len() - 1
                })
            })
            .collect();
        let mut node = |place: PlaceId| {
            let place = sleeps.at(place)?;
            let next = edges.len();
            let node = *nodes.entry((numbers[place.program], &place.stack)).or_insert(next);
            if node == next {
                edges.push(Vec::new());
            }
            Some(node)
        };
        let steps: Vec<_> = sleeps.steps.iter().filter_map(|&(a, b)| Some((node(a)?, node(b)?))).collect();
        for_work.extend(sleeps.for_work.iter().filter_map(|&place| node(place)));
        steps.into_iter().for_each(|(a, b)| edges[a].push(b));
    }
    let mut back: Vec<Vec<usize>> = vec![Vec::new(); edges.len()];
    for (from, all) in edges.iter().enumerate() {
        all.iter().for_each(|&to| back[to].push(from));
    }
    let mut inner: HashSet<(usize, Vec<u64>)> = HashSet::new();
    for (&(program, home), &start) in nodes.iter().filter(|(_, node)| for_work.contains(node)) {
        let (after, before) = (reached(&edges, start), reached(&back, start));
        for (&(of, stack), &node) in &nodes {
            let common = home.iter().rev().zip(stack.iter().rev()).take_while(|(a, b)| a == b).count();
            if of == program && after[node] && before[node] && home.len() < stack.len() && common > 0 {
                // All that the same call leads to is in the midst of work.
                inner.insert((program, stack.iter().rev().take(common + 1).copied().collect()));
            }
        }
    }
    let programs: Vec<Snapshot> = programs.into_iter().cloned().collect();
    move |sleeps, place| {
        let Some(place) = sleeps.at(place) else { return false };
        let modules = &sleeps.programs[place.program].modules;
        let program = programs.iter().position(|known| known.modules == *modules);
        program.is_some_and(|program| {
            let outermost: Vec<u64> = place.stack.iter().rev().copied().collect();
            (1..=outermost.len()).any(|len| inner.contains(&(program, outermost[..len].to_vec())))
        })
    }
}

/// The nodes that a way leads to from one.
fn reached(edges: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut found = vec![false; edges.len()];
    let mut left = vec![from];
    while let Some(node) = left.pop() {
        if !std::mem::replace(&mut found[node], true) {
            left.extend(&edges[node]);
        }
    }
    found
}
