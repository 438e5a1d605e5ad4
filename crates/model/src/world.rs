//! What surrounds the threads of one execution: the sleepers and the timers of the kernel, the memory that
//! may die, and the planted fault.
//!
//! loom runs all threads of an execution as coroutines of one operating-system thread and switches only on
//! entering one of its own operations. So plain cells can hold this state, provided that every access that
//! another thread's could change comes right after an operation on a loom object which both perform
//! ([`World::enter`]): loom's partial-order reduction sees conflicts on its own objects only.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::rc::Rc;

use loom::sync::atomic::AtomicU32;
use loom::thread::{JoinHandle, Thread};
use poundlock_core::events::Event;
use poundlock_core::platform::{Atomic as _, Clock, Deadline, Waited};

use crate::atomic::{Operation, U32};

/// Threads a model may have, the main one included: loom's limit.
pub const THREADS: usize = loom::MAX_THREADS;

/// Something planted for a model to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The `n`th wake-up of an execution, from 0, is lost.
    LoseWake(u32),
    /// A wait compares the word, and falls asleep a step later.
    TornWait,
    /// No operation releases.
    WeakRelease,
    /// No operation acquires.
    WeakAcquire,
    /// This operation is relaxed, whatever was asked for.
    Weaken(Operation),
    /// A fence does not make a release start over.
    Unfenced,
    /// Who is to look now and then relies on its wake-up.
    Unlooked,
    /// Each thread's `n`th failing compare-and-swap, from 0, reports success.
    Lie(u32),
    /// After each store that releases, the word is read once more.
    TouchAfterRelease,
    /// Stores, or bitwise read-modify-writes, with this operand are left out; or compare-and-swaps of this
    /// new value, which are reported as if they had been made.
    Omit(Operation, u32),
    /// Stores of this value come later: when the thread next wakes somebody up.
    Late(u32),
    /// This operation, a swap or a compare-and-swap, is a load and then a store.
    Torn(Operation),
}

/// How a model's world is furnished.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many threads there are, the main one included.
    pub threads: usize,
    /// Turns in a spin budget.
    pub spins: u32,
    /// The tag that each thread publishes. A thread knows that who published its own tag does not run.
    pub tags: [u32; THREADS],
    /// How urgent each thread is.
    pub priorities: [u32; THREADS],
    /// The node of memory that each thread runs on at first.
    pub nodes: [u32; THREADS],
    /// How many places in the default mutex's queue each node has.
    pub sides: u32,
    /// How many of each thread's waits return at once, for no reason.
    pub restless: u32,
    /// The number that distinguishes this process from its parent.
    pub epoch: u32,
    /// Whether a mutex in which nobody has slept is released by a plain store.
    pub plain_release: bool,
    /// Whether fences are refused, so that a plain release may come late and sleepers look now and then.
    pub refused: bool,
    /// Threads that have no record, as a bit set: they may not queue.
    pub unregistered: u32,
    /// Whether there is a lock hash. It has one line, so that all locks collide.
    pub hash: bool,
    /// The process that each thread belongs to, for semaphore arrays.
    pub processes: [u32; THREADS],
    /// Whether processes are killed and time passes, so that threads look for that.
    pub mortal: bool,
    /// How many CPUs there are. With two or more the default mutex goes along its queue.
    pub cpus: u32,
    /// What is wrong.
    pub fault: Fault,
}

impl Settings {
    /// Two threads, a spin budget of one turn, no evidence who runs, no faults.
    pub const DEFAULT: Settings = Settings {
        threads: 2,
        spins: 1,
        tags: [0; THREADS],
        priorities: [0; THREADS],
        nodes: [0; THREADS],
        sides: 0,
        restless: 0,
        epoch: 0,
        plain_release: false,
        refused: false,
        unregistered: 0,
        hash: true,
        processes: [0; THREADS],
        mortal: false,
        cpus: 1,
        fault: Fault::None,
    };
}

impl Default for Settings {
    fn default() -> Self {
        Settings::DEFAULT
    }
}

/// What happened in all executions of a model, so that a model can show that it reached what it is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Executions.
    pub executions: u64,
    /// Waits that fell asleep.
    pub sleeps: u64,
    /// Sleepers that were woken.
    pub woken: u64,
    /// Waits that a deadline ended.
    pub timed_out: u64,
    /// Sleeps that a signal handler ended.
    pub interrupted: u64,
    /// Waits that looked now and then instead of relying on a wake-up.
    pub timed_waits: u64,
    /// Plain releases that had to start over.
    pub restarted: u64,
    /// Whatever the model counts with [`World::reached`].
    pub reached: [u64; 18],
    /// The events that the locks counted.
    pub events: Events,
}

/// How often each lock event happened.
#[derive(Clone, Copy)]
pub struct Events([u64; Event::ALL.len()]);

impl Default for Events {
    fn default() -> Self {
        Events([0; Event::ALL.len()])
    }
}

impl core::ops::Index<Event> for Events {
    type Output = u64;
    fn index(&self, event: Event) -> &u64 {
        &self.0[event as usize]
    }
}

impl core::fmt::Debug for Events {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let happened = Event::ALL.iter().filter(|event| self[**event] != 0);
        f.debug_map().entries(happened.map(|event| (event.name(), self[*event]))).finish()
    }
}

/// A thread in [`wait`](World::wait).
struct Sleeper {
    word: usize,
    /// As which it can be woken.
    bits: u32,
    thread: u32,
    timer: Option<usize>,
    /// When it wakes by itself, in a wait on memory that processes share.
    until: u64,
    handle: Thread,
    ended: Cell<Option<Waited>>,
}

/// How far a thread is in [`World::release`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Releasing {
    #[default]
    No,
    /// Between the look and the store.
    Looked,
    /// To look again.
    Restarts,
}

/// Memory that will be destroyed while the model runs.
pub(crate) struct Plot {
    begin: usize,
    end: usize,
    dead: Cell<bool>,
    /// Read by each access, written by the destroyer: loom reports an access that is not ordered before the
    /// destruction, whether or not it came first in this execution.
    token: loom::cell::UnsafeCell<()>,
}

impl Plot {
    pub(crate) fn touch(&self) {
        self.token.with(|_| ());
    }

    pub(crate) fn inspect(&self) {
        assert!(!self.dead.get(), "late touch: the lock was destroyed before this access");
    }
}

/// See the module's documentation.
pub struct World {
    settings: Settings,
    /// The object whose operations stand for the kernel's state.
    kernel: AtomicU32,
    sleepers: RefCell<Vec<Rc<Sleeper>>>,
    expired: Cell<u32>,
    wakes: Cell<u32>,
    restless: [Cell<u32>; THREADS],
    failures: [Cell<u32>; THREADS],
    /// Each thread's part in [`World::fence`].
    barriers: Vec<AtomicU32>,
    releasing: [Cell<Releasing>; THREADS],
    /// How many [`World::unexplored`] are under way.
    unexplored: Cell<u32>,
    /// The node that each thread runs on.
    nodes: [Cell<u32>; THREADS],
    /// By each thread.
    own_unexplored: [Cell<u32>; THREADS],
    plots: RefCell<Vec<Rc<Plot>>>,
    blind: Cell<Option<(usize, *const U32)>>,
    watched: RefCell<Vec<Watch>>,
    events: Cell<Events>,
    /// Signal handlers that are still to run, and in which thread.
    handlers: RefCell<Vec<(u32, Handler)>>,
    scripts: RefCell<Vec<Script>>,
    /// Stores that [`Fault::Late`] keeps back, and in which thread.
    late: RefCell<Vec<(u32, *const U32, u32)>>,
    /// Nanoseconds, if the world is mortal.
    clock: Cell<u64>,
    /// The processes that were killed, as a bit set.
    dead: AtomicU32,
}

/// What a thread does after some more operations on a word.
struct Script {
    thread: u32,
    word: usize,
    left: u32,
    then: Handler,
}

impl Script {
    /// In place of a word: whichever it is.
    const ANY: usize = 0;
}

/// What a killed thread unwinds with.
struct Killed;

/// What a signal handler or a script does.
type Handler = Box<dyn FnOnce()>;

/// Counts what happens to a word.
struct Watch {
    word: usize,
    place: usize,
    what: Watched,
}

enum Watched {
    /// By the value before and the one after.
    Stored(Box<dyn Fn(u32, u32) -> bool>),
    Slept,
}

std::thread_local! {
    static CURRENT: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
    static STILL: Cell<bool> = const { Cell::new(false) };
    static REPORT: Cell<Report> = Cell::new(Report::default());
}

loom::thread_local! {
    static INDEX: Cell<u32> = Cell::new(0);
}

impl World {
    /// The world of the execution that runs on this operating-system thread.
    ///
    /// # Panics
    /// Outside a model.
    pub(crate) fn current() -> Rc<World> {
        CURRENT.with_borrow(|world| world.clone().expect("a lock is used outside a model"))
    }

    /// The world of the execution that runs, for a script or a handler.
    pub fn present() -> Rc<World> {
        World::current()
    }

    /// A new world for a new execution.
    pub(crate) fn begin(settings: Settings) -> Rc<World> {
        STILL.set(false);
        let world = Rc::new(World {
            settings,
            kernel: AtomicU32::new(0),
            sleepers: RefCell::default(),
            expired: Cell::new(0),
            wakes: Cell::new(0),
            restless: Default::default(),
            failures: Default::default(),
            barriers: if settings.plain_release {
                (0..settings.threads).map(|_| AtomicU32::new(0)).collect()
            } else {
                Vec::new()
            },
            releasing: Default::default(),
            unexplored: Cell::new(0),
            nodes: settings.nodes.map(Cell::new),
            own_unexplored: Default::default(),
            plots: RefCell::default(),
            blind: Cell::new(None),
            watched: RefCell::default(),
            events: Cell::default(),
            handlers: RefCell::default(),
            scripts: RefCell::default(),
            late: RefCell::default(),
            clock: Cell::new(1),
            dead: AtomicU32::new(0),
        });
        CURRENT.set(Some(world.clone()));
        world
    }

    /// The execution is over.
    pub(crate) fn end(&self) {
        assert!(self.sleepers.borrow().is_empty(), "a thread sleeps beyond the model's end");
        assert!(self.handlers.borrow().is_empty(), "a handler did not run");
        self.tally(|report| report.executions += 1);
        CURRENT.set(None);
    }

    pub(crate) fn reset_report() {
        REPORT.set(Report::default());
    }

    pub(crate) fn report() -> Report {
        REPORT.get()
    }

    fn tally(&self, note: impl FnOnce(&mut Report)) {
        let mut report = REPORT.get();
        note(&mut report);
        REPORT.set(report);
    }

    /// How many sleepers were woken, in all executions so far.
    pub fn woken(&self) -> u64 {
        World::report().woken
    }

    /// Counts that the model has come to a place, for [`Report::reached`].
    pub fn reached(&self, place: usize) {
        self.tally(|report| report.reached[place] += 1);
    }

    /// Counts as [`World::reached`] whenever a value is stored in `word` for which `when` holds.
    pub fn watch(&self, word: &U32, place: usize, when: impl Fn(u32) -> bool + 'static) {
        self.watch_change(word, place, move |_, value| when(value));
    }

    /// Counts as [`World::reached`] whenever `word` goes from one value to another for which `when` holds.
    pub fn watch_change<Word>(&self, word: &Word, place: usize, when: impl Fn(u32, u32) -> bool + 'static) {
        let word = core::ptr::from_ref(word).addr();
        self.watched.borrow_mut().push(Watch { word, place, what: Watched::Stored(Box::new(when)) });
    }

    /// Counts as [`World::reached`] whenever a thread falls asleep on `word`.
    pub fn watch_sleep(&self, word: &U32, place: usize) {
        let word = core::ptr::from_ref(word).addr();
        self.watched.borrow_mut().push(Watch { word, place, what: Watched::Slept });
    }

    pub(crate) fn stored(&self, address: usize, before: u32, value: u32) {
        for watch in self.watched.borrow().iter().filter(|watch| watch.word == address) {
            if matches!(&watch.what, Watched::Stored(when) if when(before, value)) {
                self.reached(watch.place);
            }
        }
    }

    fn slept(&self, address: usize) {
        self.tally(|report| report.sleeps += 1);
        for watch in self.watched.borrow().iter().filter(|watch| watch.word == address) {
            if matches!(watch.what, Watched::Slept) {
                self.reached(watch.place);
            }
        }
    }

    pub(crate) fn count(&self, event: Event, amount: u64) {
        let more = if event.is_duration() { 1 } else { amount };
        let mut events = self.events.get();
        events.0[event as usize] += more;
        self.events.set(events);
        self.tally(|report| report.events.0[event as usize] += more);
    }

    /// How often it happened in this execution so far.
    pub fn events(&self, event: Event) -> u64 {
        self.events.get()[event]
    }

    /// Starts thread number `index`; the main thread is number 0.
    pub fn spawn<T: 'static>(&self, index: u32, body: impl FnOnce(&World) -> T + 'static) -> JoinHandle<T> {
        let body: Box<dyn FnOnce(&World) -> T> = Box::new(body);
        loom::thread::spawn(move || {
            INDEX.with(|own| own.set(index));
            body(&World::current())
        })
    }

    /// The calling thread's number.
    pub fn index(&self) -> u32 {
        INDEX.with(Cell::get)
    }

    /// The node that a thread runs on.
    pub fn node_of(&self, thread: u32) -> u32 {
        self.nodes[thread as usize].get()
    }

    /// The calling thread runs on another node from now on: one of those that there are.
    pub fn migrate(&self, node: u32) {
        self.nodes[self.index() as usize].set(node);
    }

    /// How many threads there are, the main one included.
    pub fn threads(&self) -> u32 {
        self.settings.threads as u32
    }

    /// Whether the calling thread has a record.
    pub(crate) fn registered(&self) -> bool {
        self.settings.unregistered & (1 << self.index()) == 0
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn tag(&self) -> u32 {
        self.settings.tags[self.index() as usize]
    }

    /// A step that conflicts with every other such step. Relaxed: the kernel's help orders nothing else.
    fn enter(&self) {
        self.kernel.fetch_add(1, Relaxed);
    }

    /// Looks at the newest values of cells, without a step of the model.
    pub fn still<R>(&self, body: impl FnOnce() -> R) -> R {
        STILL.set(true);
        let result = body();
        STILL.set(false);
        result
    }

    pub(crate) fn is_still() -> bool {
        STILL.get()
    }

    /// Runs `body` without exploring what else could have happened meanwhile.
    pub fn unexplored<R>(&self, body: impl FnOnce() -> R) -> R {
        let depth = self.unexplored.get();
        let own = &self.own_unexplored[self.index() as usize];
        self.unexplored.set(depth + 1);
        own.set(own.get() + 1);
        if depth == 0 {
            loom::stop_exploring();
        }
        let result = body();
        self.unexplored.set(self.unexplored.get() - 1);
        own.set(own.get() - 1);
        if depth == 0 {
            loom::explore();
        }
        result
    }

    /// A point at which any other thread may run.
    pub fn pause(&self) {
        self.enter();
    }

    // Deadlines.

    /// A deadline that passes when [`World::expire`] is called with the same number.
    pub fn timer(&self, number: u32) -> Deadline {
        Deadline { clock: Clock::Monotonic, seconds: i64::from(number), nanoseconds: 0 }
    }

    /// A deadline in the past.
    pub fn past(&self) -> Deadline {
        Deadline { clock: Clock::Monotonic, seconds: -1, nanoseconds: 0 }
    }

    /// Lets the deadlines of a timer pass. Called by a thread of its own, this happens at any moment.
    pub fn expire(&self, number: u32) {
        self.enter();
        self.expired.set(self.expired.get() | 1 << number);
        self.rouse(usize::MAX, Waited::TimedOut, |sleeper| sleeper.timer == Some(number as usize));
    }

    /// Runs a signal handler upon a thread: ends its sleep, if it sleeps.
    pub fn interrupt(&self, thread: u32) {
        self.enter();
        self.rouse(usize::MAX, Waited::Interrupted, |sleeper| sleeper.thread == thread);
    }

    /// Returns when a thread sleeps.
    pub fn await_sleep(&self, thread: u32) {
        loop {
            self.enter();
            if self.sleepers.borrow().iter().any(|sleeper| sleeper.thread == thread) {
                return;
            }
            loom::thread::yield_now();
        }
    }

    /// Returns when the condition, which looks at words by [`U32::peek`], holds. Within [`World::unexplored`]
    /// only.
    pub fn await_until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            self.enter();
            loom::thread::yield_now();
        }
    }

    /// Has a signal handler run in a thread: where it next waits, in whatever way, before it gives up its
    /// CPU. Of several, each runs where the one before it waits.
    pub fn handle(&self, thread: u32, handler: impl FnOnce() + 'static) {
        self.handlers.borrow_mut().push((thread, Box::new(handler)));
    }

    /// Has a thread do something right after its `nth` operation, from 1, on a word.
    pub fn script<Word>(&self, thread: u32, word: &Word, nth: u32, then: impl FnOnce() + 'static) {
        let word = core::ptr::from_ref(word).addr();
        self.scripts.borrow_mut().push(Script { thread, word, left: nth, then: Box::new(then) });
    }

    /// Has a thread do something right after its `nth` operation, from 1, on any word.
    pub fn script_any(&self, thread: u32, nth: u32, then: impl FnOnce() + 'static) {
        self.scripts.borrow_mut().push(Script { thread, word: Script::ANY, left: nth, then: Box::new(then) });
    }

    pub(crate) fn operated(&self, address: usize) {
        let own = self.index();
        let due = {
            let mut scripts = self.scripts.borrow_mut();
            let at = scripts.iter_mut().position(|script| {
                let this = script.thread == own && (script.word == address || script.word == Script::ANY);
                script.left -= u32::from(this);
                this && script.left == 0
            });
            at.map(|at| scripts.remove(at).then)
        };
        if let Some(then) = due {
            then();
        }
    }

    /// How many handlers have not begun.
    pub fn handlers_left(&self) -> usize {
        self.handlers.borrow().len()
    }

    /// The calling thread waits: a handler may run.
    pub(crate) fn waits(&self) {
        let own = self.index();
        let found = {
            let mut handlers = self.handlers.borrow_mut();
            let at = handlers.iter().position(|(thread, _)| *thread == own);
            at.map(|at| handlers.remove(at).1)
        };
        if let Some(handler) = found {
            handler();
        }
    }

    fn has_passed(&self, deadline: &Deadline) -> bool {
        deadline.seconds < 0 || self.expired.get() & (1 << deadline.seconds) != 0
    }

    pub(crate) fn expired(&self, deadline: &Deadline) -> bool {
        self.enter();
        self.has_passed(deadline)
    }

    // Sleeping.

    pub(crate) fn wait(&self, word: &U32, expected: u32, deadline: Option<&Deadline>) -> Waited {
        if self.settings.refused && self.fault() != Fault::Unlooked {
            if deadline.is_some_and(|deadline| self.has_passed(deadline)) {
                self.tally(|report| report.timed_out += 1);
                return Waited::TimedOut;
            }
            return self.wait_for_a_while(word, expected);
        }
        self.wait_until(word, expected, u32::MAX, deadline, u64::MAX)
    }

    fn wait_until(
        &self,
        word: &U32,
        expected: u32,
        bits: u32,
        deadline: Option<&Deadline>,
        until: u64,
    ) -> Waited {
        self.waits();
        let index = self.index() as usize;
        if self.restless[index].get() < self.settings.restless {
            self.restless[index].set(self.restless[index].get() + 1);
            loom::thread::yield_now();
            return Waited::Woken;
        }
        self.enter();
        // From here to the end of the comparison no other thread runs.
        let newest = self.unexplored(|| word.newest());
        if newest != expected {
            return Waited::Woken;
        }
        if self.fault() == Fault::TornWait {
            self.enter();
        }
        if deadline.is_some_and(|deadline| self.has_passed(deadline)) {
            self.tally(|report| report.timed_out += 1);
            return Waited::TimedOut;
        }
        let sleeper = Rc::new(Sleeper {
            word: core::ptr::from_ref(word).addr(),
            bits,
            thread: self.index(),
            timer: deadline.map(|deadline| deadline.seconds as usize),
            until,
            handle: loom::thread::current(),
            ended: Cell::new(None),
        });
        self.sleepers.borrow_mut().push(sleeper.clone());
        self.slept(sleeper.word);
        loop {
            if let Some(ended) = sleeper.ended.get() {
                return ended;
            }
            loom::thread::park();
        }
    }

    /// A wait with a time-out that passes at once.
    pub(crate) fn wait_for_a_while(&self, word: &U32, expected: u32) -> Waited {
        self.tally(|report| report.timed_waits += 1);
        if self.fault() == Fault::Unlooked {
            return self.wait(word, expected, None);
        }
        self.waits();
        loom::thread::yield_now();
        Waited::Woken
    }

    pub(crate) fn wake(&self, word: *const U32, count: u32) {
        self.wake_some(word, count as usize, u32::MAX);
    }

    /// All that sleep as one of these bits.
    pub(crate) fn wake_bits(&self, word: *const U32, bits: u32) {
        self.wake_some(word, usize::MAX, bits);
    }

    fn wake_some(&self, word: *const U32, count: usize, bits: u32) {
        self.keep_promises();
        self.enter();
        let number = self.wakes.get();
        self.wakes.set(number + 1);
        if self.fault() == Fault::LoseWake(number) {
            return;
        }
        self.rouse(count, Waited::Woken, |sleeper| sleeper.word == word.addr() && sleeper.bits & bits != 0);
    }

    /// Calls that wake so far, whether somebody slept or not.
    pub fn wakes(&self) -> u32 {
        self.wakes.get()
    }

    // Processes, and memory that they share.

    /// The calling thread's process.
    pub(crate) fn process(&self) -> u32 {
        self.settings.processes[self.index() as usize]
    }

    /// [`World::wait`] until so many nanoseconds have passed.
    pub(crate) fn wait_shared(&self, word: &U32, expected: u32, bits: u32, nanoseconds: u64) -> Waited {
        self.wait_until(word, expected, bits, None, self.clock.get().saturating_add(nanoseconds))
    }

    /// The time in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        if self.settings.mortal {
            self.enter();
        }
        self.clock.get()
    }

    /// Lets time pass: sleeps in shared memory end whose time is up.
    pub fn pass(&self, nanoseconds: u64) {
        self.enter();
        self.clock.set(self.clock.get() + nanoseconds);
        let clock = self.clock.get();
        self.rouse(usize::MAX, Waited::TimedOut, |sleeper| sleeper.until <= clock);
    }

    /// Lets time pass for as long as somebody sleeps who wakes by himself.
    pub fn pass_until(&self, done: impl Fn() -> bool) {
        loop {
            self.enter();
            if done() {
                return;
            }
            let next = self.sleepers.borrow().iter().map(|sleeper| sleeper.until).min();
            match next {
                Some(until) if until != u64::MAX => self.pass(until.saturating_sub(self.clock.get())),
                _ => {}
            }
            loom::thread::yield_now();
        }
    }

    /// Kills the calling thread, which is in a call that [`World::until_killed`] makes.
    pub fn kill(&self) {
        let own = self.own_unexplored[self.index() as usize].replace(0);
        let depth = self.unexplored.get();
        self.unexplored.set(depth - own);
        if own != 0 && depth == own {
            loom::explore();
        }
        std::panic::resume_unwind(Box::new(Killed));
    }

    /// Calls `body`, and if it is killed there, that is the end of the calling thread's process, of which it
    /// is the only thread. Returns whether it was not.
    ///
    /// Nothing runs on the way out: the locks have no destructors, and cells are not touched while a thread
    /// unwinds.
    ///
    /// # Panics
    /// If `body` does.
    pub fn until_killed(&self, body: impl FnOnce()) -> bool {
        match std::panic::catch_unwind(core::panic::AssertUnwindSafe(body)) {
            Ok(()) => true,
            Err(panic) if panic.is::<Killed>() => {
                // Release: what the process wrote is seen by whoever sees it dead, as with a kernel.
                self.dead.fetch_or(1 << self.process(), Release);
                false
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Whether that process was killed.
    pub(crate) fn gone(&self, process: u32) -> bool {
        // A read-modify-write: the kernel knows what is.
        self.settings.mortal && self.dead.fetch_or(0, Acquire) & 1 << process != 0
    }

    fn rouse(&self, count: usize, how: Waited, which: impl Fn(&Sleeper) -> bool) {
        let mut roused = Vec::new();
        self.sleepers.borrow_mut().retain(|sleeper| {
            let stays = roused.len() >= count || !which(sleeper);
            if !stays {
                roused.push(sleeper.clone());
            }
            stays
        });
        for sleeper in roused {
            self.tally(|report| match how {
                Waited::Woken => report.woken += 1,
                Waited::TimedOut => report.timed_out += 1,
                Waited::Interrupted => report.interrupted += 1,
            });
            sleeper.ended.set(Some(how));
            sleeper.handle.unpark();
        }
    }

    // Releasing without a read-modify-write.

    /// A plain release: a restartable sequence of a look and a store, which others may come between, but no
    /// [`World::fence`].
    pub(crate) fn release(&self, word: &U32, unless: &U32) -> bool {
        if !self.settings.plain_release {
            return false;
        }
        let index = self.index() as usize;
        let (barrier, stage) = (&self.barriers[index], &self.releasing[index]);
        loop {
            // What the one whose fence it was wrote before is there now.
            barrier.fetch_add(1, AcqRel);
            stage.set(Releasing::Looked);
            if unless.load(Relaxed) != 0 {
                stage.set(Releasing::No);
                return false;
            }
            // The last point at which a fence finds us in the sequence: from here to the end of the
            // store no other thread runs. It does not stay in a store
            // buffer, which delays it as a later step of this thread would, for as long as this thread does
            // not read anything but by read-modify-writes before a fence empties the buffer.
            barrier.fetch_add(1, AcqRel);
            if self.fences() && stage.get() == Releasing::Restarts {
                continue;
            }
            self.unexplored(|| {
                word.store_alone(0, Release);
                barrier.fetch_add(1, AcqRel);
            });
            stage.set(Releasing::No);
            return true;
        }
    }

    fn fences(&self) -> bool {
        !self.settings.refused && self.fault() != Fault::Unfenced
    }

    /// Makes the others' restartable sequences start over, with a full barrier in each thread.
    pub(crate) fn fence(&self) {
        if self.settings.refused {
            return;
        }
        let own = self.index() as usize;
        for (index, barrier) in self.barriers.iter().enumerate().filter(|(index, _)| *index != own) {
            barrier.fetch_add(1, AcqRel);
            if self.releasing[index].get() == Releasing::Looked {
                self.releasing[index].set(Releasing::Restarts);
                self.tally(|report| report.restarted += 1);
            }
        }
    }

    // Faults.

    pub(crate) fn fault(&self) -> Fault {
        self.settings.fault
    }

    /// Whether a store is to come later.
    pub(crate) fn keeps_back(&self, word: usize, value: u64) -> bool {
        let Fault::Late(late) = self.fault() else { return false };
        let later = u64::from(late) == value;
        if later {
            self.late.borrow_mut().push((self.index(), word as *const U32, late));
        }
        later
    }

    /// Makes the calling thread's late stores.
    fn keep_promises(&self) {
        let own = self.index();
        let mut due = Vec::new();
        self.late.borrow_mut().retain(|late| {
            let others = late.0 != own;
            if !others {
                due.push(*late);
            }
            others
        });
        for (_, word, value) in due {
            // SAFETY: the models that plant this fault do so with states of nodes, which last until the
            // execution ends.
            unsafe { &*word }.store_alone(value, Release);
        }
    }

    /// Whether an operation with this operand is to be left out.
    pub(crate) fn omits(&self, operation: Operation, operand: u64) -> bool {
        matches!(self.fault(), Fault::Omit(which, value) if which == operation && u64::from(value) == operand)
    }

    /// Whether the failure of a compare-and-swap is to be reported as a success.
    pub(crate) fn lies(&self) -> bool {
        let Fault::Lie(nth) = self.fault() else { return false };
        let failures = &self.failures[self.index() as usize];
        failures.set(failures.get() + 1);
        failures.get() == nth + 1
    }

    /// Plants a fault: loads of `word` see 0 unless the top bit of `unless` is set.
    pub fn make_blind(&self, word: &U32, unless: &U32) {
        self.blind.set(Some((core::ptr::from_ref(word).addr(), unless)));
    }

    pub(crate) fn blind(&self, address: usize) -> bool {
        match self.blind.get() {
            // SAFETY: the models that plant this fault keep the lock of which both words are a part until
            // the execution ends, and the fault ends with the world.
            Some((word, unless)) if word == address => unsafe { &*unless }.peek() >> 31 == 0,
            _ => false,
        }
    }

    // Mortal memory.

    pub(crate) fn reap<T>(&self, thing: &T) -> Rc<Plot> {
        let begin = core::ptr::from_ref(thing).addr();
        let plot = Rc::new(Plot {
            begin,
            end: begin + size_of::<T>(),
            dead: Cell::new(false),
            token: loom::cell::UnsafeCell::new(()),
        });
        self.plots.borrow_mut().push(plot.clone());
        plot
    }

    pub(crate) fn plot(&self, address: usize) -> Option<Rc<Plot>> {
        self.plots.borrow().iter().find(|plot| (plot.begin..plot.end).contains(&address)).cloned()
    }
}

/// Something that is destroyed while the model runs: a destruction that is not ordered after every access to
/// its atomics fails the model. The memory itself lasts until the execution ends.
pub struct Mortal<T> {
    thing: Rc<T>,
    plot: Rc<Plot>,
}

impl<T> Clone for Mortal<T> {
    fn clone(&self) -> Self {
        Mortal { thing: self.thing.clone(), plot: self.plot.clone() }
    }
}

impl<T> Mortal<T> {
    /// Something alive.
    pub fn new(world: &World, thing: T) -> Self {
        let thing = Rc::new(thing);
        let plot = world.reap(&*thing);
        Mortal { thing, plot }
    }

    /// Destroys it.
    pub fn destroy(&self) {
        self.plot.token.with_mut(|_| ());
        self.plot.dead.set(true);
    }
}

impl<T> core::ops::Deref for Mortal<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.thing
    }
}
