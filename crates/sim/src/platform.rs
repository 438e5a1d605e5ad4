//! [`Platform`] on the simulated machine.

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;

use poundlock_core::atomic::Atomics;
use poundlock_core::events::Observer;
use poundlock_core::platform::{Clock, Deadline, Platform, Running, Spin, Tunable, Until, Waited};
use poundlock_core::qspin::Halting;
use poundlock_core::qspin::hash::Line;
use poundlock_core::record::{Record, Side};
use poundlock_core::rwlock::readers::{self, Table};
use poundlock_core::tunings::Tunings;
use poundlock_core::{adaptive, poundlock, qspin, rwlock};

use crate::atomic::{U32, Usize};
use crate::engine::{Disturbance, Engine};
use crate::machine::{MICROSECOND, Machine, NANOSECOND, Picoseconds};

/// How the locks learn whether another thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// As in user space: a thread on the CPU that another has published knows that the other does not run.
    Displaced,
    /// As in a kernel: it is known of all threads.
    Exact,
}

/// The platform's settings in a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How a thread learns that another runs.
    pub evidence: Evidence,
    /// The spin budget.
    pub spin: Picoseconds,
    /// Whether mutexes in which no thread has slept are released by a plain store.
    pub plain_release: bool,
    /// By how much at most, in 256ths of it, what the kernel does takes more or less than on average: without
    /// it threads that wake each other can stay in step as they never would.
    pub scatter: u64,
    /// Whether threads are held up in between.
    pub disturbance: Option<Disturbance>,
    /// Constants of the policies.
    pub tunings: Tunings,
}

/// More wake-ups in vain than there are.
const NEVER: u32 = 1 << 30;

impl Default for Settings {
    fn default() -> Self {
        Settings::DEFAULT
    }
}

impl Settings {
    /// As in user space, undisturbed.
    pub const DEFAULT: Settings = Settings {
        evidence: Evidence::Displaced,
        spin: 20 * MICROSECOND,
        plain_release: true,
        scatter: 0,
        disturbance: None,
        tunings: Tunings::USER_SPACE,
    };

    /// As in a kernel: whether an owner runs is known, and spinners go on until another thread is to have
    /// their CPU. No mutex is handed over: the kernels that the sources measured did not do that.
    pub const KERNEL: Settings = Settings {
        evidence: Evidence::Exact,
        // A minute, which is for ever.
        spin: 60_000_000 * MICROSECOND,
        plain_release: false,
        scatter: 0,
        disturbance: None,
        tunings: Tunings {
            poundlock: poundlock::Tuning { handoff_after: NEVER, ..Tunable::USER_SPACE },
            adaptive: adaptive::Tuning { handoff_after: NEVER, ..Tunable::USER_SPACE },
            rwlock: rwlock::Tuning { handoff_after: NEVER, ..Tunable::USER_SPACE },
            qspin: qspin::Tuning { handoff_after: NEVER, ..Tunable::USER_SPACE },
            ..Tunings::USER_SPACE
        },
    };

    /// As in a guest of this machine: Linux's paravirtual locks look 32,768 times before they halt
    /// (`SPIN_THRESHOLD`).
    pub fn of_guest(self, machine: &Machine) -> Settings {
        const LOOKS: u64 = 1 << 15;
        let costs = machine.costs();
        Settings { spin: self.spin.min(LOOKS * (costs.pause + costs.hit)), ..self }
    }

    /// A fresh spin budget, for the calling thread of a simulation.
    pub fn budget(&self) -> Budget {
        let costs = Engine::with(Engine::costs);
        Budget { left: self.spin, turn: costs.pause + costs.hit }
    }
}

/// The platform. Locks of it work in the threads of a [`crate::Simulation`] only.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

/// A spin budget, as a time.
#[derive(Debug)]
pub struct Budget {
    left: Picoseconds,
    turn: Picoseconds,
}

impl Budget {
    /// That many turns.
    pub(crate) fn of_turns(turns: u32) -> Budget {
        let budget = SETTINGS.get().budget();
        Budget { left: budget.turn * u64::from(turns), ..budget }
    }
}

/// What the locks' tuning takes for a turn.
const TURN: Picoseconds = 10 * NANOSECOND;

impl Spin for Budget {
    fn fresh() -> Budget {
        SETTINGS.get().budget()
    }

    fn spin(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        let most = (self.left / self.turn).clamp(1, u64::from(u32::MAX)) as u32;
        let begun = Engine::with(Engine::now);
        Engine::with(|engine| engine.pause(most));
        self.left = self.left.saturating_sub(Engine::with(Engine::now) - begun);
        // A kernel's spinner stops when another thread is to have its CPU. User space does not know that.
        !Engine::with(Engine::is_wanted)
    }

    fn pass(&mut self, turns: u32) -> bool {
        // As on Linux: whole pauses, and a long one stands for several turns.
        let pause = Engine::with(Engine::costs).pause;
        let stride = (pause + TURN / 2) / TURN;
        let turns = u64::from(turns);
        let time = if stride > 1 { turns.div_ceil(stride) * pause } else { turns * TURN };
        let passed = time.min(self.left);
        self.left -= passed;
        Engine::with(|engine| engine.work(passed));
        passed == time
    }

    fn cut(&mut self, of_256: u32) {
        self.left = self.left / 256 * u64::from(of_256);
    }
}

/// Lines of the table of readers: as on Linux.
const READERS: usize = 512;

/// What all threads of a run share.
struct Memory {
    records: Box<[Record<Sim>]>,
    hash: Box<[Line<Sim>]>,
    sides: Box<[Side<Sim>]>,
    readers: Box<Table<Sim>>,
}

impl Memory {
    fn new(threads: usize) -> Memory {
        // Four nodes each, and four entries a line: as many lines as threads would do; as on Linux, four
        // times as many.
        let lines = (4 * threads).max(4);
        Memory {
            records: (0..threads).map(|_| Record::default()).collect(),
            sides: (0..32 * 16).map(|_| Side::default()).collect(),
            hash: (0..lines).map(|_| Line::default()).collect(),
            readers: Box::<Table<Sim, [readers::Line<Sim>; READERS]>>::default(),
        }
    }

    /// As new, where it is.
    fn reset(&mut self) {
        self.records.fill_with(Record::default);
        self.sides.fill_with(Side::default);
        self.hash.fill_with(Line::default);
        self.readers.clear();
    }
}

std::thread_local! {
    static SETTINGS: Cell<Settings> = const { Cell::new(Settings::DEFAULT) };
    /// Memory that no run uses. It is never freed: a lock may be left that points into it.
    static SPARE: RefCell<Vec<NonNull<Memory>>> = const { RefCell::new(Vec::new()) };
    static MEMORY: Cell<Option<NonNull<Memory>>> = const { Cell::new(None) };
}

/// Makes the records of a run with that many threads.
pub(crate) fn prepare(settings: Settings, threads: usize) {
    SETTINGS.set(settings);
    let memory = SPARE.with_borrow_mut(|spare| {
        // SAFETY: it is never freed, and only a run's end writes to it as a whole, when nobody else has it.
        let fits = |memory: &NonNull<Memory>| unsafe { memory.as_ref() }.records.len() >= threads;
        let at = spare.iter().position(fits)?;
        Some(spare.swap_remove(at))
    });
    let memory =
        memory.unwrap_or_else(|| Box::leak(Box::new(Memory::new(threads.next_power_of_two()))).into());
    MEMORY.set(Some(memory));
}

/// Gives them back: no thread of the run goes on. `clean`: nor is any in a queue.
pub(crate) fn finish(clean: bool) {
    let Some(mut memory) = MEMORY.take() else { return };
    if clean {
        // SAFETY: as in `prepare`.
        let memory = unsafe { memory.as_ref() };
        memory.records.iter().for_each(Record::renew);
        memory.readers.clear();
    } else {
        // SAFETY: it is never freed, and who had it in the run is suspended for ever.
        unsafe { memory.as_mut() }.reset();
    }
    SPARE.with_borrow_mut(|spare| spare.push(memory));
}

/// Where the records of the run are: the first one's address, how many there are, and the size of one.
pub(crate) fn records() -> (usize, usize, usize) {
    let records = &memory().records;
    (records.as_ptr().addr(), records.len(), size_of::<Record<Sim>>())
}

/// How a thread learns that another runs.
pub(crate) fn evidence() -> Evidence {
    SETTINGS.get().evidence
}

fn current() -> Option<&'static Memory> {
    // SAFETY: it is never freed, and only the run's end writes to it as a whole.
    MEMORY.get().map(|memory| unsafe { memory.as_ref() })
}

fn memory() -> &'static Memory {
    match current() {
        Some(memory) => memory,
        None => panic!("a simulated lock is used outside a simulation"),
    }
}

fn moment(deadline: &Deadline) -> Picoseconds {
    // Both clocks begin with the run.
    let _: Clock = deadline.clock;
    let seconds = u64::try_from(deadline.seconds).unwrap_or(0);
    (seconds.saturating_mul(1_000_000_000).saturating_add(deadline.nanoseconds.into()))
        .saturating_mul(NANOSECOND)
}

impl Atomics for Sim {
    type U32 = U32;
    type Usize = Usize;
}

impl Observer for Sim {
    fn now() -> u64 {
        // Arrays are made before the threads are.
        Engine::try_with(Engine::now).unwrap_or(0) / NANOSECOND
    }
}

impl Halting for Sim {
    fn lock_hash() -> Option<&'static [Line<Sim>]> {
        Some(&memory().hash)
    }
}

/// How much longer than asked a wait for so many nanoseconds takes: Linux wakes several at once.
const TIMER_SLACK: Picoseconds = 50 * MICROSECOND;

impl Platform for Sim {
    type Spin = Budget;

    fn tuning<T: Tunable>() -> T {
        SETTINGS.get().tunings.of()
    }

    fn relax() {
        Engine::with(|engine| engine.pause(u32::MAX));
    }

    fn stall(round: u32) {
        const SPINS: u32 = 100;
        if round < SPINS {
            Engine::with(|engine| engine.pause(1));
        } else {
            Self::yield_now();
        }
    }

    fn yield_now() {
        Engine::with(Engine::yield_now);
    }

    fn wait(word: &U32, expected: u32, until: Until<'_>) -> Waited {
        let address = core::ptr::from_ref(word).addr();
        Engine::with(|engine| {
            let until = match until {
                Until::Woken => None,
                Until::Deadline(deadline) => Some(moment(deadline)),
                Until::Nanoseconds(ns) => Some(engine.now() + u64::from(ns) * NANOSECOND + TIMER_SLACK),
            };
            engine.wait(address, || word.peek() == expected, until)
        })
    }

    fn wake(word: *const U32, count: u32) {
        Engine::with(|engine| engine.wake(word.addr(), count));
    }

    fn expired(deadline: &Deadline) -> bool {
        Engine::with(Engine::now) >= moment(deadline)
    }

    fn current() -> Option<u32> {
        Some(Engine::with(Engine::current))
    }

    fn priority() -> u32 {
        Engine::with(Engine::priority)
    }

    fn record(index: u32) -> &'static Record<Sim> {
        &memory().records[index as usize]
    }

    fn tag() -> u32 {
        Engine::with(|engine| match SETTINGS.get().evidence {
            Evidence::Displaced => engine.cpu() + 1,
            Evidence::Exact => engine.current() + 1,
        })
    }

    fn running(tag: u32) -> Running {
        if tag == 0 {
            return Running::Unknown;
        }
        Engine::with(|engine| match SETTINGS.get().evidence {
            Evidence::Displaced if tag == engine.cpu() + 1 => Running::No,
            Evidence::Displaced => Running::Unknown,
            Evidence::Exact if engine.runs(tag - 1) => Running::Yes,
            Evidence::Exact => Running::No,
        })
    }

    fn sides() -> &'static [Side<Sim>] {
        // As on Linux, where several nodes have them.
        if Self::nodes() == 1 { &[] } else { &memory().sides }
    }

    fn cpus() -> u32 {
        Engine::with(|engine| engine.machine_cpus() as u32)
    }

    fn nodes() -> u32 {
        Engine::with(Engine::nodes) as u32
    }

    fn node() -> u32 {
        Engine::with(Engine::node) as u32
    }

    fn readers() -> Option<&'static Table<Sim>> {
        // None outside a run, in which a checker may look at a lock.
        current().map(|memory| &*memory.readers)
    }

    fn epoch() -> u32 {
        0
    }

    fn release(word: &U32, unless: &U32) -> bool {
        use core::sync::atomic::Ordering::Relaxed;

        use poundlock_core::platform::Atomic;
        if !SETTINGS.get().plain_release {
            return false;
        }
        // If the thread was interrupted between the look and the store, it looks again: so the last look
        // counts.
        if unless.load(Relaxed) != 0 {
            return false;
        }
        word.release_unless(unless)
    }

    fn fence() {
        // A message to every CPU, and their answers.
        Engine::with(|engine| engine.spend(5 * MICROSECOND));
    }
}
