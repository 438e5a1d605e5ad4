//! A machine of simulated processes and threads, for semaphore arrays.
//!
//! A thread is a coroutine. It runs until it sleeps or ends, so that histories are deterministic; or, if the
//! machine is given a seed, it may be displaced by another at every access to a shared word. Every access and
//! every call of the kernel counts as a step, and a process can be killed before any step of any of its
//! threads: the coroutines are then never resumed. Nothing unwinds and no destructor runs, as with `kill -9`.
//!
//! Time stands still unless a test lets it pass. Memory must be provided before it is written.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use poundlock_core::Platform;
use poundlock_core::atomic::Atomics;
use poundlock_core::events::Observer;
use poundlock_core::platform::{Atomic, Deadline, Running, Spin, Split, Until, Waited};
use poundlock_core::record::Record;
use poundlock_core::semarray::{Host, Process};

/// Steps of all threads together, without any of them getting anywhere, after which they are taken to be
/// stuck.
const TOO_MANY_STEPS: u64 = 50_000_000;
/// What a simulated thread's stack has room for.
const STACK: usize = 64 * 1024;
/// The wall clock when time begins.
const BEGINNING: u64 = 1_000_000_000;

/// Number of a process; its slot in the table of processes unless it took over another's.
pub(crate) type ProcessNumber = usize;
/// Number of a thread.
pub(crate) type ThreadNumber = usize;

/// Why a thread stopped running.
enum Pause {
    /// So that others may come in between.
    Displaced,
    /// It waits for others without sleeping.
    Waits,
    /// It sleeps.
    Sleeps,
    /// Its process was killed.
    Killed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Ready,
    /// On the word at this address as these bits, until then at the latest.
    Asleep {
        word: usize,
        bits: u32,
        until: u64,
    },
    /// It stands before a step, until it is let go.
    Held,
    Ended,
    Killed,
}

type Body = Coroutine<(), Pause, (), DefaultStack>;
type Within = Yielder<(), Pause>;

struct Thread {
    process: ProcessNumber,
    /// What it is called within its process.
    index: u32,
    body: Option<Body>,
    within: *const Within,
    state: State,
    /// How its last sleep ended.
    waited: Waited,
    /// When it fell asleep, among all sleeps: wake-ups are first-come, first-served.
    order: u64,
}

struct OneProcess {
    slot: u32,
    id: u32,
    alive: bool,
    /// It was seen off: its slot may be given to another.
    reaped: bool,
    /// It runs another program, which has not used the array yet.
    replaced: bool,
    /// Threads of it that are taking a lock over.
    taking_over: u32,
}

impl OneProcess {
    fn new(slot: u32, number: ProcessNumber) -> Self {
        OneProcess { slot, id: pid(number), alive: true, reaped: false, replaced: false, taking_over: 0 }
    }
}

/// Words of shared memory, all zero at first. Those of machines that have gone are used again.
struct Memory {
    words: &'static [Word],
    /// Words before this one are there from the start.
    initial: usize,
    provided: RefCell<Vec<bool>>,
    /// Ranges that were provided.
    ranges: RefCell<Vec<(usize, usize)>>,
    written: RefCell<Vec<u32>>,
}

impl Memory {
    fn new(words: usize) -> Self {
        let words: Vec<Word> = (0..words).map(|_| Word(AtomicU32::new(0))).collect();
        Memory {
            provided: RefCell::new(vec![false; words.len()]),
            words: words.leak(),
            initial: 0,
            ranges: RefCell::default(),
            written: RefCell::default(),
        }
    }

    /// Makes everything zero again.
    fn clean(&self) {
        for at in self.written.borrow_mut().drain(..) {
            self.words[at as usize].0.store(0, Ordering::Relaxed);
        }
        for (begin, end) in self.ranges.borrow_mut().drain(..) {
            self.provided.borrow_mut()[begin..end].fill(false);
        }
    }

    fn place(&self, word: &Word) -> Option<usize> {
        let at =
            core::ptr::from_ref(word).addr().wrapping_sub(self.words.as_ptr().addr()) / size_of::<Word>();
        (at < self.words.len()).then_some(at)
    }
}

/// See the module's documentation.
pub(crate) struct System {
    processes: RefCell<Vec<OneProcess>>,
    threads: RefCell<Vec<Thread>>,
    /// The thread that runs; none: the test itself.
    running: Cell<Option<ThreadNumber>>,
    running_process: Cell<ProcessNumber>,
    within: Cell<*const Within>,
    memory: RefCell<Option<Memory>>,
    /// Time since the beginning, in nanoseconds.
    clock: Cell<u64>,
    sleeps: Cell<u64>,
    /// The process that will be killed, and how many more steps it takes.
    armed: Cell<Option<(ProcessNumber, u64)>>,
    /// The process that will be killed, whoever runs then, and how many more steps there are of all.
    doomed: Cell<Option<(ProcessNumber, u64)>>,
    /// Of its stores, those that the compiler may have put after the next one, with what was there: none of
    /// them is ordered before a later release. The last release itself may come after what follows it, if
    /// that is relaxed.
    recent: RefCell<Vec<(*const Word, u32)>>,
    /// Which of those did not come to pass when the process was killed, counted from the latest.
    undone: Cell<Option<usize>>,
    /// Whether there was such a one.
    was_undone: Cell<bool>,
    /// How many steps were taken: by each process if asked for, and by all.
    steps: Cell<u64>,
    /// How many there may be before everybody sleeps.
    limit: Cell<u64>,
    /// The thread that is held up, and after how many more steps.
    held: Cell<Option<(ThreadNumber, u64)>>,
    /// Of the next thread of the process to be chosen, so that threads are displaced at random; 0: never.
    seed: Cell<u64>,
    /// How many steps there are from one displacement to the next, at most.
    slice: Cell<u64>,
    left: Cell<u64>,
    /// What is wrong with it.
    fault: Fault,
    /// Whether the process that will be killed runs another program instead.
    succeeds: Cell<bool>,
}

/// Something planted for the tests to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nobody is ever found dead.
    Immortal,
    /// Everybody is taken to be dead, but for whoever asks.
    TakenForDead,
    /// Wake-ups are lost.
    Deaf,
    /// This word keeps its value, whatever is stored.
    Frozen(usize),
    /// No store keeps its place.
    Unordered,
}

/// Makes all machines of the calling thread faulty, until it is told otherwise.
pub(crate) fn plant(fault: Fault) {
    FAULT.set(fault);
}

std::thread_local! {
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
    static CURRENT: Cell<*const System> = const { Cell::new(core::ptr::null()) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    static MEMORIES: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

impl Drop for System {
    fn drop(&mut self) {
        CURRENT.set(core::ptr::null());
        for thread in self.threads.get_mut() {
            if let Some(body) = thread.body.take() {
                recycle(body);
            }
        }
        if let Some(memory) = self.memory.take() {
            memory.clean();
            MEMORIES.with_borrow_mut(|memories| memories.push(memory));
        }
    }
}

/// Takes the stack of a thread that will never run again.
fn recycle(mut body: Body) {
    // SAFETY: nothing on that stack will be used again. What it owned is leaked; nothing outside points into
    // it but shared memory, which does so by numbers.
    unsafe { body.force_reset() };
    STACKS.with_borrow_mut(|stacks| stacks.push(body.into_stack()));
}

impl System {
    pub(crate) fn new() -> Rc<System> {
        let machine = Rc::new(System {
            processes: RefCell::default(),
            threads: RefCell::default(),
            running: Cell::new(None),
            running_process: Cell::new(0),
            within: Cell::new(core::ptr::null()),
            memory: RefCell::new(None),
            clock: Cell::new(0),
            sleeps: Cell::new(0),
            armed: Cell::new(None),
            doomed: Cell::new(None),
            recent: RefCell::default(),
            undone: Cell::new(None),
            was_undone: Cell::new(false),
            steps: Cell::new(0),
            limit: Cell::new(0),
            held: Cell::new(None),
            seed: Cell::new(0),
            slice: Cell::new(0),
            left: Cell::new(0),
            fault: FAULT.get(),
            succeeds: Cell::new(false),
        });
        assert!(CURRENT.get().is_null(), "one machine at a time");
        CURRENT.set(Rc::as_ptr(&machine));
        machine
    }

    /// Each access asks for it: `try_with` is inlined, other than `get`.
    #[inline]
    fn current<'a>() -> &'a System {
        let machine = CURRENT.try_with(Cell::get).unwrap_or(core::ptr::null());
        assert!(!machine.is_null(), "an array is used outside its machine");
        // SAFETY: it is there until it takes itself off, when it is dropped, and references do not outlive
        // the call of the platform for which they were made.
        unsafe { &*machine }
    }

    /// Shared memory of so many words, the first of which are there from the start. One for each machine.
    pub(crate) fn memory(&self, words: usize, initial: usize) -> &'static [Word] {
        let mut memory = MEMORIES
            .with_borrow_mut(|memories| {
                let at = memories.iter().position(|memory| memory.words.len() == words)?;
                Some(memories.swap_remove(at))
            })
            .unwrap_or_else(|| Memory::new(words));
        memory.initial = initial;
        let words = memory.words;
        *self.memory.borrow_mut() = Some(memory);
        words
    }

    // Processes and threads.

    /// A new process, in a slot of its own.
    pub(crate) fn process(&self) -> ProcessNumber {
        let mut processes = self.processes.borrow_mut();
        let number = processes.len();
        processes.push(OneProcess::new(number as u32, number));
        number
    }

    /// A new process, in the slot of one that every array has been told is gone.
    pub(crate) fn process_in_place_of(&self, old: ProcessNumber) -> ProcessNumber {
        let mut processes = self.processes.borrow_mut();
        assert!(!processes[old].alive && !processes[old].reaped);
        processes[old].reaped = true;
        let number = processes.len();
        let slot = processes[old].slot;
        processes.push(OneProcess::new(slot, number));
        number
    }

    /// Whether somebody may take the place of a process, or of its program, that is gone: nobody is taking a
    /// lock over.
    pub(crate) fn may_be_followed(&self) -> bool {
        self.processes.borrow().iter().all(|process| !process.alive || process.taking_over == 0)
    }

    /// A process that does not run at the moment goes on with another program, and has not used the array
    /// yet.
    pub(crate) fn replace_program(&self, process: ProcessNumber) {
        self.end_threads(process);
        let process = &mut self.processes.borrow_mut()[process];
        (process.replaced, process.taking_over) = (true, 0);
    }

    /// The new program of a process comes to use the array.
    pub(crate) fn follow_program(&self, process: ProcessNumber) {
        self.processes.borrow_mut()[process].replaced = false;
    }

    pub(crate) fn slot(&self, process: ProcessNumber) -> u32 {
        self.processes.borrow()[process].slot
    }

    pub(crate) fn is_alive(&self, process: ProcessNumber) -> bool {
        self.processes.borrow()[process].alive
    }

    /// Starts a thread. It runs when the machine does.
    pub(crate) fn spawn(&self, process: ProcessNumber, body: impl FnOnce() + 'static) -> ThreadNumber {
        let index = self.threads.borrow().len() as u32;
        self.spawn_as(process, index, body)
    }

    /// As [`System::spawn`], as the thread of that index in its process.
    pub(crate) fn spawn_as(
        &self,
        process: ProcessNumber,
        index: u32,
        body: impl FnOnce() + 'static,
    ) -> ThreadNumber {
        assert!(self.is_alive(process), "a thread of a process that was killed");
        let stack = STACKS
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| DefaultStack::new(STACK).expect("memory for a stack"));
        let mut threads = self.threads.borrow_mut();
        let number = threads.len();
        let body = Coroutine::with_stack(stack, move |within: &Within, ()| {
            System::current().threads.borrow_mut()[number].within = within;
            System::current().within.set(within);
            body();
        });
        threads.push(Thread {
            process,
            index,
            body: Some(body),
            within: core::ptr::null(),
            state: State::Ready,
            waited: Waited::Woken,
            order: 0,
        });
        number
    }

    pub(crate) fn state(&self, thread: ThreadNumber) -> State {
        self.threads.borrow()[thread].state
    }

    pub(crate) fn process_of(&self, thread: ThreadNumber) -> ProcessNumber {
        self.threads.borrow()[thread].process
    }

    /// Kills a process that does not run at the moment, with all its threads.
    pub(crate) fn kill(&self, process: ProcessNumber) {
        self.processes.borrow_mut()[process].alive = false;
        self.end_threads(process);
    }

    /// Ends all threads of a process that does not run at the moment, which goes on with another program.
    pub(crate) fn end_threads(&self, process: ProcessNumber) {
        for thread in self.threads.borrow_mut().iter_mut().filter(|thread| thread.process == process) {
            if thread.state != State::Ended {
                thread.state = State::Killed;
            }
            if let Some(body) = thread.body.take() {
                recycle(body);
            }
        }
        if self.armed.get().is_some_and(|(armed, _)| armed == process) {
            self.armed.set(None);
        }
    }

    /// Holds up the thread that is spawned next, right before its `step`th step, from 0.
    pub(crate) fn hold_next_at(&self, step: u64) {
        self.held.set(Some((self.threads.borrow().len(), step)));
    }

    /// Lets a thread go on that was held up, or is to be.
    pub(crate) fn let_go(&self, thread: ThreadNumber) {
        self.held.set(self.held.get().filter(|(held, _)| *held != thread));
        let state = &mut self.threads.borrow_mut()[thread].state;
        if *state == State::Held {
            *state = State::Ready;
        }
    }

    /// Kills a process right before its `step`th step from now, from 0.
    pub(crate) fn kill_at(&self, process: ProcessNumber, step: u64) {
        self.armed.set(Some((process, step)));
        self.succeeds.set(false);
        self.recent.borrow_mut().clear();
        self.undone.set(None);
        self.was_undone.set(false);
    }

    /// As [`System::kill_at`], but the process goes on with another program.
    pub(crate) fn succeed_at(&self, process: ProcessNumber, step: u64) {
        self.kill_at(process, step);
        self.succeeds.set(true);
    }

    /// As [`System::kill_at`], but without the `nth` of its last stores, from 0 for the latest, of those that
    /// the orderings allow the compiler to put after all that follow.
    pub(crate) fn kill_without(&self, process: ProcessNumber, step: u64, nth: usize) {
        self.kill_at(process, step);
        self.undone.set(Some(nth));
    }

    /// Whether there was such a store.
    pub(crate) fn did_without(&self) -> bool {
        self.was_undone.get()
    }

    /// The process that will be killed has stored, or asked the kernel for something, which is in order.
    fn note(&self, stored: Option<(&Word, Ordering)>) {
        if self.armed.get().is_none_or(|(process, _)| process != self.running_process.get()) {
            return;
        }
        let mut recent = self.recent.borrow_mut();
        match stored {
            None => recent.clear(),
            Some((word, order)) => {
                let releases = matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst);
                if releases && self.fault != Fault::Unordered {
                    recent.clear();
                }
                recent.push((core::ptr::from_ref(word), word.peek()));
            }
        }
    }

    /// Takes back a store, if one is to be.
    fn take_back(&self) {
        let recent = self.recent.borrow();
        let Some(at) = self.undone.get().and_then(|nth| recent.len().checked_sub(nth + 1)) else { return };
        self.was_undone.set(true);
        let (word, before) = recent[at];
        // Stores to one word stay in order.
        if recent[at + 1..].iter().all(|(later, _)| *later != word) {
            // SAFETY: the words of an array are never freed.
            unsafe { &*word }.0.store(before, Ordering::Relaxed);
        }
    }

    /// Kills a process so many steps of all threads from now, whatever its threads are doing then.
    pub(crate) fn kill_after(&self, process: ProcessNumber, steps: u64) {
        self.doomed.set(Some((process, steps)));
    }

    /// Nobody is to be killed any more.
    pub(crate) fn disarm(&self) {
        self.armed.set(None);
        self.doomed.set(None);
    }

    /// From now on threads are displaced at random, after so many steps at most.
    pub(crate) fn shuffle(&self, seed: u64, slice: u64) {
        self.seed.set(seed | 1);
        self.slice.set(slice.max(1));
        self.left.set(self.random(self.slice.get()));
    }

    /// From now on threads run until they wait.
    pub(crate) fn in_order(&self) {
        self.seed.set(0);
    }

    fn random(&self, below: u64) -> u64 {
        let mut seed = self.seed.get();
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        self.seed.set(seed);
        (seed >> 11) % below
    }

    /// Has a signal handler run in a thread that sleeps.
    pub(crate) fn interrupt(&self, thread: ThreadNumber) {
        let thread = &mut self.threads.borrow_mut()[thread];
        if matches!(thread.state, State::Asleep { .. }) {
            thread.state = State::Ready;
            thread.waited = Waited::Interrupted;
        }
    }

    // Running.

    /// Runs until every thread sleeps or has ended.
    pub(crate) fn settle(&self) {
        self.limit.set(self.steps.get() + TOO_MANY_STEPS);
        let mut next = 0;
        loop {
            let ready: Vec<ThreadNumber> = {
                let threads = self.threads.borrow();
                (0..threads.len()).filter(|thread| threads[*thread].state == State::Ready).collect()
            };
            let Some(first) = ready.first() else { return };
            let thread = if self.seed.get() != 0 {
                ready[self.random(ready.len() as u64) as usize]
            } else {
                // The one after the last, so that one which waits for another lets it run.
                *ready.iter().find(|thread| **thread >= next).unwrap_or(first)
            };
            next = thread + 1;
            self.resume(thread);
            assert!(self.steps.get() < self.limit.get(), "the threads get nowhere");
        }
    }

    /// Lets a thread run until it pauses.
    fn resume(&self, number: ThreadNumber) {
        let mut body = {
            let thread = &mut self.threads.borrow_mut()[number];
            self.within.set(thread.within);
            self.running_process.set(thread.process);
            thread.body.take().expect("a thread that is ready has something to do")
        };
        self.running.set(Some(number));
        self.steps.set(self.steps.get() + 1);
        let paused = body.resume(());
        self.running.set(None);
        let process = self.running_process.get();
        let state = match paused {
            CoroutineResult::Return(()) => Some(State::Ended),
            CoroutineResult::Yield(Pause::Killed) => Some(State::Killed),
            CoroutineResult::Yield(Pause::Displaced | Pause::Waits | Pause::Sleeps) => None,
        };
        match state {
            None => self.threads.borrow_mut()[number].body = Some(body),
            Some(state) => {
                self.threads.borrow_mut()[number].state = state;
                recycle(body);
                if state == State::Killed && !self.succeeds.get() {
                    self.kill(process);
                } else if state == State::Killed {
                    self.end_threads(process);
                }
            }
        }
    }

    /// Lets time pass, and everything happen that happens meanwhile.
    pub(crate) fn pass(&self, nanoseconds: u64) {
        let end = self.clock.get() + nanoseconds;
        self.settle();
        loop {
            let first = {
                let threads = self.threads.borrow();
                let due = threads.iter().enumerate().filter_map(|(number, thread)| match thread.state {
                    State::Asleep { until, .. } => Some((until, thread.order, number)),
                    _ => None,
                });
                due.min()
            };
            match first {
                Some((until, _, number)) if until <= end => {
                    self.clock.set(self.clock.get().max(until));
                    let thread = &mut self.threads.borrow_mut()[number];
                    thread.state = State::Ready;
                    thread.waited = Waited::TimedOut;
                }
                _ => break,
            }
            self.settle();
        }
        self.clock.set(end);
    }

    pub(crate) fn clock(&self) -> u64 {
        self.clock.get()
    }

    pub(crate) fn seconds(&self) -> u64 {
        BEGINNING + self.clock.get() / 1_000_000_000
    }

    // What the threads do.

    /// Something that others can see, or a call of the kernel, comes next.
    #[inline]
    fn step(&self) {
        if self.running.get().is_some() {
            self.step_of_thread();
        }
    }

    fn step_of_thread(&self) {
        self.steps.set(self.steps.get() + 1);
        assert!(self.steps.get() < self.limit.get(), "a thread gets nowhere");
        if let Some((process, left)) = self.armed.get()
            && process == self.running_process.get()
        {
            if left == 0 {
                self.armed.set(None);
                self.take_back();
                self.pause(Pause::Killed);
            }
            self.armed.set(Some((process, left - 1)));
        }
        match self.doomed.get() {
            Some((process, 0)) => {
                self.doomed.set(None);
                if process == self.running_process.get() {
                    self.pause(Pause::Killed);
                }
                self.kill(process);
            }
            Some((process, left)) => self.doomed.set(Some((process, left - 1))),
            None => {}
        }
        if let (Some((held, left)), Some(running)) = (self.held.get(), self.running.get())
            && held == running
        {
            self.held.set(left.checked_sub(1).map(|left| (held, left)));
            if left == 0 {
                self.threads.borrow_mut()[running].state = State::Held;
                self.pause(Pause::Displaced);
            }
        }
        if self.seed.get() != 0 {
            match self.left.get() {
                0 => {
                    self.left.set(self.random(self.slice.get()));
                    self.pause(Pause::Displaced);
                }
                left => self.left.set(left - 1),
            }
        }
    }

    fn pause(&self, why: Pause) {
        let killed = matches!(why, Pause::Killed);
        // SAFETY: the coroutine that runs set it, and it lies on its stack.
        unsafe { &*self.within.get() }.suspend(why);
        assert!(!killed, "a dead thread runs");
    }

    /// Waits for others, awake.
    fn wait_awake(&self) {
        self.step();
        if self.running.get().is_some() {
            self.pause(Pause::Waits);
        }
    }

    fn wait_shared(&self, word: &Word, expected: u32, bits: u32, nanoseconds: u64) -> Waited {
        self.step();
        self.note(None);
        let number = self.running.get().expect("the test itself does not sleep");
        if word.0.load(Ordering::Relaxed) != expected {
            return Waited::Woken;
        }
        if nanoseconds == 0 {
            return Waited::TimedOut;
        }
        self.sleeps.set(self.sleeps.get() + 1);
        {
            let thread = &mut self.threads.borrow_mut()[number];
            let until = self.clock.get().saturating_add(nanoseconds);
            thread.state = State::Asleep { word: core::ptr::from_ref(word).addr(), bits, until };
            thread.order = self.sleeps.get();
        }
        self.pause(Pause::Sleeps);
        self.threads.borrow()[number].waited
    }

    fn wake_shared(&self, word: *const Word, count: u32, bits: u32) {
        self.step();
        self.note(None);
        if self.fault == Fault::Deaf {
            return;
        }
        let mut threads = self.threads.borrow_mut();
        let mut asleep: Vec<&mut Thread> = threads
            .iter_mut()
            .filter(|thread| {
                matches!(thread.state, State::Asleep { word: on, bits: as_bits, .. }
                    if on == word.addr() && as_bits & bits != 0)
            })
            .collect();
        asleep.sort_by_key(|thread| thread.order);
        for thread in asleep.into_iter().take(count as usize) {
            thread.state = State::Ready;
            thread.waited = Waited::Woken;
        }
    }

    fn provide(&self, words: &[Word]) -> bool {
        self.step();
        self.note(None);
        let memory = self.memory.borrow();
        let memory = memory.as_ref().expect("there is memory");
        if let Some(first) = words.first() {
            let at = memory.place(first).expect("memory of this array is provided");
            memory.provided.borrow_mut()[at..at + words.len()].fill(true);
            memory.ranges.borrow_mut().push((at, at + words.len()));
        }
        true
    }

    /// A word is about to be written. Returns whether it may.
    fn wrote(&self, word: &Word) -> bool {
        let memory = self.memory.borrow();
        let Some(memory) = memory.as_ref() else { return true };
        let Some(at) = memory.place(word) else { return true };
        assert!(
            at < memory.initial || memory.provided.borrow()[at],
            "word {at} is written, but was not provided"
        );
        memory.written.borrow_mut().push(at as u32);
        self.fault != Fault::Frozen(at)
    }
}

/// The process number of a process.
pub(crate) fn pid(process: ProcessNumber) -> u32 {
    process as u32 + 1000
}

/// A word of shared memory.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Word(AtomicU32);

impl Word {
    /// Looks at it, which is no step.
    pub(crate) fn peek(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn change(&self, order: Ordering, by: impl FnOnce(u32) -> u32) -> u32 {
        let machine = System::current();
        machine.step();
        let before = self.peek();
        self.put(machine, by(before), order);
        before
    }

    fn put(&self, machine: &System, value: u32, order: Ordering) {
        if machine.wrote(self) {
            machine.note(Some((self, order)));
            self.0.store(value, Ordering::Relaxed);
        }
    }
}

// One thread runs at a time, so that looking and storing are one step; and there is one order of all
// accesses. What weaker orders allow two threads to see is for the models. What they allow the compiler to do
// to the stores of a process that is killed is for `kill_without`.
impl Atomic<u32> for Word {
    fn new(value: u32) -> Self {
        Word(AtomicU32::new(value))
    }
    fn load(&self, _order: Ordering) -> u32 {
        System::current().step();
        self.peek()
    }
    fn store(&self, value: u32, order: Ordering) {
        self.change(order, |_| value);
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.change(order, |_| value)
    }
    fn compare_exchange(&self, current: u32, new: u32, order: Ordering, _: Ordering) -> Result<u32, u32> {
        let machine = System::current();
        machine.step();
        let seen = self.peek();
        if seen != current {
            return Err(seen);
        }
        self.put(machine, new, order);
        Ok(seen)
    }
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.change(order, |before| before.wrapping_add(value))
    }
    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.change(order, |before| before & value)
    }
    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        self.change(order, |before| before | value)
    }
}

impl Split for Word {
    fn store_low_byte(&self, value: u8, order: Ordering) {
        self.change(order, |before| before & !0xff | u32::from(value));
    }
    fn compare_exchange_low_byte(
        &self,
        current: u8,
        new: u8,
        order: Ordering,
        _: Ordering,
    ) -> Result<u8, u8> {
        let seen = self.change(order, |before| {
            if before as u8 == current { before & !0xff | u32::from(new) } else { before }
        });
        if seen as u8 == current { Ok(current) } else { Err(seen as u8) }
    }
    fn store_low_half(&self, value: u16, order: Ordering) {
        self.change(order, |before| before & !0xffff | u32::from(value));
    }
    fn swap_high_half(&self, value: u16, order: Ordering) -> u16 {
        (self.change(order, |before| before & 0xffff | u32::from(value) << 16) >> 16) as u16
    }
}

/// A pointer-sized word. Arrays have none.
#[derive(Debug)]
pub(crate) struct Long(AtomicUsize);

impl Atomic<usize> for Long {
    fn new(value: usize) -> Self {
        Long(AtomicUsize::new(value))
    }
    fn load(&self, order: Ordering) -> usize {
        self.0.load(order)
    }
    fn store(&self, value: usize, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: usize, order: Ordering) -> usize {
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: usize, new: usize, s: Ordering, f: Ordering) -> Result<usize, usize> {
        self.0.compare_exchange(current, new, s, f)
    }
    fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_add(value, order)
    }
    fn fetch_and(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_and(value, order)
    }
    fn fetch_or(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_or(value, order)
    }
}

/// A few turns, in each of which the others run.
#[derive(Debug)]
pub(crate) struct Turns(u32);

impl Spin for Turns {
    fn fresh() -> Turns {
        Turns(3)
    }
    fn spin(&mut self) -> bool {
        System::current().wait_awake();
        self.0 -= u32::from(self.0 > 0);
        self.0 > 0
    }
}

/// The machine as arrays see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simulated;

const NOT_FOR_ARRAYS: &str = "arrays do not ask for this";

impl Atomics for Simulated {
    type U32 = Word;
    type Usize = Long;
}

impl Observer for Simulated {
    fn now() -> u64 {
        System::current().clock()
    }
}

impl Platform for Simulated {
    type Spin = Turns;

    fn relax() {
        System::current().wait_awake();
    }
    fn stall(_round: u32) {
        System::current().wait_awake();
    }
    fn wait(_word: &Word, _expected: u32, _until: Until<'_>) -> Waited {
        unreachable!("{NOT_FOR_ARRAYS}")
    }
    fn wake(_word: *const Word, _count: u32) {
        unreachable!("{NOT_FOR_ARRAYS}")
    }
    fn expired(_deadline: &Deadline) -> bool {
        unreachable!("{NOT_FOR_ARRAYS}")
    }
    fn current() -> Option<u32> {
        let machine = System::current();
        machine.running.get().map(|thread| machine.threads.borrow()[thread].index)
    }
    fn record(_index: u32) -> &'static Record<Self> {
        unreachable!("{NOT_FOR_ARRAYS}")
    }
    fn tag() -> u32 {
        0
    }
    fn running(_tag: u32) -> Running {
        Running::Unknown
    }
    fn epoch() -> u32 {
        0
    }
}

impl Host for Simulated {
    type Platform = Self;
    fn wait_shared(word: &Word, expected: u32, nanoseconds: u64) -> Waited {
        Self::wait_shared_as(word, expected, u32::MAX, nanoseconds)
    }
    fn wait_shared_as(word: &Word, expected: u32, bit: u32, nanoseconds: u64) -> Waited {
        System::current().wait_shared(word, expected, bit, nanoseconds)
    }
    fn interrupts() -> bool {
        true
    }
    fn wake_shared(word: *const Word, count: u32) {
        System::current().wake_shared(word, count, u32::MAX);
    }
    fn wake_shared_as(word: *const Word, bits: u32) {
        System::current().wake_shared(word, u32::MAX, bits);
    }
    const FIRST_RELIANT: u32 = 1;
    const LEAST_DUTY: u32 = 1;
    const MOST_ROUNDS: u32 = 1;
    fn place() -> u32 {
        System::current().running.get().map_or(0, |thread| thread as u32 % 3)
    }
    fn process() -> Option<Process> {
        let machine = System::current();
        machine.running.get()?;
        let number = machine.running_process.get();
        let process = &machine.processes.borrow()[number];
        Some(Process { slot: process.slot, id: process.id })
    }
    fn gone(slot: u32) -> bool {
        let machine = System::current();
        machine.step();
        let processes = machine.processes.borrow();
        let process = processes.iter().rfind(|process| process.slot == slot);
        match machine.fault {
            Fault::Immortal => false,
            Fault::TakenForDead => true,
            _ => process.is_some_and(|process| !process.alive),
        }
    }
    fn owner_died(slot: u32) -> bool {
        let processes = &System::current().processes;
        Self::gone(slot)
            || processes
                .borrow()
                .iter()
                .rfind(|process| process.slot == slot)
                .is_some_and(|process| process.replaced)
    }
    fn taking_over<R>(act: impl FnOnce() -> R) -> R {
        let machine = System::current();
        let number = machine.running_process.get();
        let count = |by: i32| {
            machine.step();
            let count = &mut machine.processes.borrow_mut()[number].taking_over;
            *count = count.checked_add_signed(by).expect("as many have ended as began");
        };
        count(1);
        let result = act();
        count(-1);
        result
    }
    fn seconds() -> u64 {
        System::current().seconds()
    }
    fn provide(memory: &[Word]) -> bool {
        System::current().provide(memory)
    }
}
