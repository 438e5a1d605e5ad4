//! The threads, the clock and the events of one run.
//!
//! Threads are coroutines of one operating-system thread, and simulated time belongs to all of them: a
//! thread's step that lasts until some moment completes at once if nothing else happens before; otherwise
//! earlier events come first. So all accesses to memory happen one after the other, in the order of their
//! times, and a run is the same whenever its seed and its machine are.
//!
//! An access takes effect when it is done. Those of one line that need a transfer are done in the order in
//! which they were begun ([`crate::cache`]), so no thread sees a value that is older than one it could know
//! of.
//!
//! # Spinning
//!
//! A thread that only looks at lines to which no thread writes does nothing that others could notice. After
//! two rounds of a wait loop that loaded the same lines, all from its own cache, and found nothing new, it
//! sleeps through the rounds to come until one of the lines is written or its patience ends. It wakes at the
//! round at which it would have found out, and is charged for all of them. Without that, 80 cores that spin
//! would cost a hundred million accesses a simulated second each.

use core::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use poundlock_core::platform::Waited;
use rustc_hash::FxHashMap;

use crate::cache::{Access, LineId, Lines, Outcome, Traffic};
pub use crate::check::Disturbance;
use crate::check::{Adversary, Blow, How, Place, Since};
use crate::hypervisor::Host;
use crate::machine::{Costs, Interrupts, MICROSECOND, Machine, Picoseconds};
use crate::profile::{Profile, Step};
use crate::scheduler::{Cpus, Placed};

/// What a thread's stack may grow to.
const STACK: usize = 64 << 10;

type Body = Coroutine<(), (), (), DefaultStack>;
type Within = Yielder<(), ()>;

/// A wait loop that looks at more lines than these is not slept through.
const WATCHED: usize = 4;

/// The number of a thread in its run.
pub(crate) type ThreadId = u32;

/// What a thread looked at in a round of a wait loop.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Round {
    lines: [(LineId, u32); WATCHED],
    len: usize,
    /// It did something else too.
    busy: bool,
}

impl Round {
    fn note(&mut self, line: LineId, version: u32) {
        for &seen in &self.lines[..self.len] {
            if seen == (line, version) {
                return;
            }
        }
        if self.len < WATCHED {
            self.lines[self.len] = (line, version);
            self.len += 1;
        } else {
            self.busy = true;
        }
    }
}

/// Rounds that are slept through.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    since: Picoseconds,
    round: Picoseconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Wants a CPU.
    Ready,
    /// Has one.
    Running,
    /// Sleeps.
    Blocked,
    /// Has come to its end.
    Done,
}

/// What becomes of an access if the thread loses its CPU in the middle of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accessing {
    /// There is none.
    No,
    /// The thread completes it first.
    Completes,
    /// It waits for its line and has not had its effect. As a CPU takes an interrupt, it is begun again.
    Fetches,
    /// It is to be begun again.
    Anew,
}

impl Accessing {
    /// Whether the thread keeps its CPU until it is done.
    pub(crate) fn completes(self) -> bool {
        self == Accessing::Completes
    }
}

pub(crate) struct Thread {
    body: Option<Body>,
    within: *const Within,
    pub(crate) state: State,
    /// The one that its pending events carry; older ones are void.
    pub(crate) token: u64,
    /// While it runs: when its current step is done.
    pub(crate) done_at: Picoseconds,
    /// While it does not run: how much of that step is left.
    pub(crate) left: Picoseconds,
    /// The access that it is in the middle of.
    pub(crate) accessing: Accessing,
    /// Its CPU was to be given away meanwhile.
    preempted: bool,
    /// The priority with which locks queue it; the scheduler ignores it.
    priority: u32,
    /// It must not sleep: it halts its virtual CPU instead.
    atomic: bool,
    /// It has.
    pub(crate) halted: bool,
    /// How often it has asked to keep its CPU until it sleeps or withdraws that.
    kept: u32,
    /// When it got its CPU.
    begun: Picoseconds,
    /// Until when its time is accounted for.
    pub(crate) since: Picoseconds,
    before: Round,
    round: Round,
    pub(crate) watch: Option<Watch>,
    /// How long it did not run while it watched.
    pub(crate) missed: Picoseconds,
    /// Until when the host's own threads have its CPU.
    pub(crate) stolen_until: Picoseconds,
    pub(crate) stopped: Picoseconds,
    /// The word that it sleeps for.
    word: Option<usize>,
    /// It is on its way to sleep for it, and still has its CPU.
    leaves: bool,
    waited: Waited,
    used: Picoseconds,
}

impl Thread {
    /// It loses its CPU, with so much of its step left. An access that has not had its effect is begun again.
    pub(crate) fn stops(&mut self, now: Picoseconds, left: Picoseconds) {
        self.left = left;
        if self.accessing != Accessing::No {
            self.accessing = Accessing::Anew;
            self.left = 0;
        }
        self.token += 1;
        self.stopped = now;
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The thread's step is done.
    Goes(ThreadId, u64),
    /// A sleep has timed out.
    Timer(ThreadId, u64),
    /// Another thread may have the CPU.
    Slice(u32),
    /// Another virtual CPU may have the real one.
    HostSlice(u32),
    /// The host's own threads want a real CPU.
    Stolen(u32),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: Picoseconds,
    /// Of events at one moment, the first to be announced comes first. No two have the same.
    number: u64,
    what: What,
}

impl Event {
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.number)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// What became of a thread that is to go on.
enum Woken {
    /// An idle CPU has been told to run it.
    Idle,
    /// An idle CPU that looked for work runs it.
    AwakeIdle,
    /// It is in the queue of a busy CPU, which has been told to run it at once.
    Told,
    /// It is in the queue of a CPU.
    Queued,
}

/// A thread that goes to sleep has left its CPU after this part of a switch. One that is woken before goes on
/// then, as nothing has happened.
const LEAVING: u64 = 8;

/// The fifths of what slows a CPU's kernel that slow its way to another CPU, too: most of that is the
/// hypervisor's. On a Xeon where yields took 1.6 times as long, as another thread had a part of the core,
/// wake-ups took 1.24.
const REACHES: u64 = 2;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// All threads that have not ended sleep, and no thread will wake them: these.
    Asleep(Vec<u32>),
}

pub(crate) struct Inner {
    machine: Machine,
    /// The hypervisor, if the machine's CPUs are virtual.
    pub(crate) host: Option<Host>,
    pub(crate) now: Picoseconds,
    events: BinaryHeap<Reverse<Event>>,
    /// One more, which does not come next: it takes the place of the one that does.
    later: Option<Event>,
    numbers: u64,
    lines: Lines,
    pub(crate) threads: Vec<Thread>,
    pub(crate) cpus: Cpus,
    futexes: FxHashMap<usize, VecDeque<ThreadId>>,
    current: ThreadId,
    running: bool,
    /// The clock stops here.
    end: Picoseconds,
    /// How long a pause takes, and when a host takes a CPU.
    pub(crate) jitter: fastrand::Rng,
    /// By how much at most, in 256ths, calls and switches take more or less than they do on average.
    scatter: u64,
    /// How long what a CPU's kernel does takes there, in 256ths, by number; as long as ever where nothing is
    /// said.
    slow: Vec<u64>,
    /// Until when no thread of a CPU gives it to another, by number: a thread of another CPU wakes one of its
    /// own at once.
    locked: Vec<Picoseconds>,
    adversary: Option<Adversary>,
    profile: Option<Box<Profile>>,
}

/// See the module's documentation.
pub(crate) struct Engine {
    inner: RefCell<Inner>,
    within: Cell<*const Within>,
}

std::thread_local! {
    static CURRENT: Cell<*const Engine> = const { Cell::new(core::ptr::null()) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

impl Engine {
    pub(crate) fn new(machine: &Machine, host: Option<Host>, disturbance: Option<Disturbance>) -> Engine {
        // Of a virtual CPU the hypervisor says when it runs: by the completely fair one.
        let eevdf = machine.eevdf().filter(|_| host.is_none());
        Engine {
            inner: RefCell::new(Inner {
                machine: machine.clone(),
                host,
                now: 0,
                events: BinaryHeap::new(),
                later: None,
                numbers: 0,
                lines: Lines::new(disturbance.and_then(|how| how.slow)),
                threads: Vec::new(),
                cpus: Cpus::new(machine, eevdf),
                futexes: FxHashMap::default(),
                current: 0,
                running: false,
                end: Picoseconds::MAX,
                jitter: fastrand::Rng::with_seed(1),
                scatter: 0,
                slow: Vec::new(),
                locked: vec![0; machine.cpus()],
                adversary: disturbance.map(Adversary::new),
                profile: None,
            }),
            within: Cell::new(core::ptr::null()),
        }
    }

    /// Runs `body` on the engine that runs on this operating-system thread; `None` if none does.
    pub(crate) fn try_with<R>(body: impl FnOnce(&Engine) -> R) -> Option<R> {
        let engine = CURRENT.get();
        // SAFETY: set by `run` for as long as it lasts, and the engine outlives that.
        (!engine.is_null()).then(|| body(unsafe { &*engine }))
    }

    /// As [`Engine::try_with`].
    ///
    /// # Panics
    /// If no engine does.
    pub(crate) fn with<R>(body: impl FnOnce(&Engine) -> R) -> R {
        match Engine::try_with(body) {
            Some(result) => result,
            None => panic!("a simulated lock is used outside a simulation"),
        }
    }

    /// A new thread, which is ready at once. `only`: the CPU that it may run on; `first`: the one that it
    /// begins on.
    pub(crate) fn spawn(
        &self,
        only: Option<u32>,
        first: Option<u32>,
        body: impl FnOnce() + 'static,
    ) -> ThreadId {
        let stack = STACKS
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| DefaultStack::new(STACK).expect("memory for a stack"));
        let mut inner = self.inner.borrow_mut();
        let id = inner.threads.len() as ThreadId;
        let body = Coroutine::with_stack(stack, move |within: &Within, ()| {
            Engine::with(|engine| {
                engine.within.set(within);
                engine.inner.borrow_mut().threads[id as usize].within = within;
            });
            body();
        });
        inner.threads.push(Thread {
            body: Some(body),
            within: core::ptr::null(),
            state: State::Ready,
            token: 0,
            done_at: 0,
            left: 0,
            accessing: Accessing::No,
            preempted: false,
            priority: 0,
            atomic: false,
            halted: false,
            kept: 0,
            begun: 0,
            since: 0,
            before: Round::default(),
            round: Round::default(),
            watch: None,
            missed: 0,
            stolen_until: 0,
            stopped: 0,
            word: None,
            leaves: false,
            waited: Waited::Woken,
            used: 0,
        });
        inner.cpus.add(id, only, first);
        inner.ready(id);
        id
    }

    /// Decides how long a pause takes, and the like; and how much that varies for calls and switches, in
    /// 256ths.
    pub(crate) fn set_jitter(&self, random: fastrand::Rng, scatter: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.jitter = random;
        inner.scatter = scatter;
    }

    /// Calls and switches take that long on the CPUs of these numbers, in 256ths.
    pub(crate) fn set_slow(&self, slow: &[u64]) {
        self.inner.borrow_mut().slow = slow.to_vec();
    }

    /// From now on each access is noted in it.
    pub(crate) fn set_profile(&self, profile: Profile) {
        self.inner.borrow_mut().profile = Some(Box::new(profile));
    }

    /// What was noted.
    pub(crate) fn take_profile(&self) -> Option<Box<Profile>> {
        self.inner.borrow_mut().profile.take()
    }

    /// Runs until all threads have ended, or the clock reaches `end`.
    ///
    /// # Errors
    /// If no thread can go on.
    pub(crate) fn run(&self, end: Picoseconds) -> Result<(), Stuck> {
        let mut inner = self.inner.borrow_mut();
        inner.end = end;
        for cpu in 0..inner.host.as_ref().map_or(0, |host| host.machine().cpus()) {
            inner.announce_theft(cpu as u32);
        }
        drop(inner);
        let outer = CURRENT.replace(self);
        let result = self.turn();
        CURRENT.set(outer);
        result
    }

    fn turn(&self) -> Result<(), Stuck> {
        loop {
            let mut inner = self.inner.borrow_mut();
            let Some(event) = inner.next_event() else {
                let asleep: Vec<_> = (0..inner.threads.len() as u32)
                    .filter(|&id| inner.threads[id as usize].state != State::Done)
                    .collect();
                let busy = |&id: &u32| {
                    let thread = &inner.threads[id as usize];
                    thread.state == State::Running && !thread.halted
                };
                // A thread whose event would come after the end: see `goes`.
                if asleep.iter().any(busy) {
                    inner.now = inner.end;
                    return Ok(());
                }
                return if asleep.is_empty() { Ok(()) } else { Err(Stuck::Asleep(asleep)) };
            };
            if event.at >= inner.end {
                inner.now = inner.end;
                return Ok(());
            }
            inner.now = event.at;
            let Some(id) = inner.happen(event.what) else { continue };
            inner.current = id;
            inner.running = true;
            let thread = &mut inner.threads[id as usize];
            self.within.set(thread.within);
            let Some(mut body) = thread.body.take() else { continue };
            drop(inner);
            let result = body.resume(());
            let mut inner = self.inner.borrow_mut();
            inner.running = false;
            match result {
                CoroutineResult::Yield(()) => inner.threads[id as usize].body = Some(body),
                CoroutineResult::Return(()) => {
                    STACKS.with_borrow_mut(|stacks| stacks.push(body.into_stack()));
                    inner.leave_cpu(id, State::Done);
                }
            }
        }
    }

    fn suspend(&self) {
        // SAFETY: the coroutine that runs set it, or the engine as it resumed it, and it lies on its stack.
        unsafe { &*self.within.get() }.suspend(());
    }

    /// The caller is busy until `done`.
    fn until(&self, done: Picoseconds) {
        let mut inner = self.inner.borrow_mut();
        if inner.comes_next(done) {
            inner.now = done;
            return;
        }
        let id = inner.current;
        inner.goes_later(id, done);
        drop(inner);
        self.suspend();
    }

    /// An access to the word at this address; returns when it has its effect.
    pub(crate) fn access(&self, address: usize, access: Access, narrow: bool, step: Step) {
        loop {
            let mut inner = self.inner.borrow_mut();
            if !inner.running {
                // Before the threads are: no time passes.
                return;
            }
            if inner.wants_attention() {
                drop(inner);
                self.attend();
                inner = self.inner.borrow_mut();
            }
            let Outcome { done, hit } = inner.access(address, access, narrow, step);
            if inner.comes_next(done) {
                inner.now = done;
                return;
            }
            let id = inner.current as usize;
            // A store waits for its line in the store buffer, and is complete.
            let waits = !hit && access != Access::Store;
            inner.threads[id].accessing = if waits { Accessing::Fetches } else { Accessing::Completes };
            drop(inner);
            self.until(done);
            let accessing = &mut self.inner.borrow_mut().threads[id].accessing;
            if core::mem::replace(accessing, Accessing::No) != Accessing::Anew {
                return;
            }
        }
    }

    /// What happens to a thread between two accesses.
    #[cold]
    fn attend(&self) {
        let mut inner = self.inner.borrow_mut();
        let id = inner.current;
        if let Some(blow) = inner.adversary.as_mut().and_then(|adversary| adversary.blow(id)) {
            drop(inner);
            self.suffer(blow);
            inner = self.inner.borrow_mut();
        }
        if inner.leaves_iron(id) {
            drop(inner);
            self.suspend();
            inner = self.inner.borrow_mut();
        }
        let thread = &mut inner.threads[id as usize];
        if thread.kept == 0 && core::mem::take(&mut thread.preempted) {
            inner.expire(id);
            drop(inner);
            self.suspend();
        }
    }

    /// The adversary strikes the caller.
    fn suffer(&self, blow: Blow) {
        let mut inner = self.inner.borrow_mut();
        let (id, now) = (inner.current, inner.now);
        let thread = &mut inner.threads[id as usize];
        thread.round.busy = true;
        let keeps = thread.kept > 0;
        match blow {
            Blow::Hold(How::Leaves, time) if !keeps => {
                self.sleep(inner, Some(now + time));
            }
            Blow::Hold(How::Yields, _) if !keeps => self.yields(inner),
            Blow::Hold(_, time) => {
                drop(inner);
                self.until(now + time);
            }
            Blow::End => {
                drop(inner);
                self.stop();
            }
        }
    }

    /// The caller is at a place where it may hurt to be held up.
    pub(crate) fn reach(&self, place: Place) {
        let mut inner = self.inner.borrow_mut();
        let blow = inner.adversary.as_mut().and_then(|adversary| adversary.reaches(place));
        drop(inner);
        if let Some(blow) = blow {
            self.suffer(blow);
        }
    }

    /// Since when the caller has waited, since the last call. Known in disturbed runs only.
    pub(crate) fn since(&self) -> Since {
        let mut inner = self.inner.borrow_mut();
        let id = inner.current;
        inner.adversary.as_mut().map_or(Since::default(), |adversary| adversary.since(id))
    }

    /// The run ends here. Does not return.
    pub(crate) fn stop(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.end = inner.now;
        let now = inner.now;
        drop(inner);
        self.until(now);
    }

    /// The caller does something else for that long, more slowly if another thread runs on its core.
    pub(crate) fn work(&self, time: Picoseconds) {
        // The other may come or go.
        const PIECE: Picoseconds = 20 * MICROSECOND;
        let most = if self.inner.borrow().iron().has_siblings() { PIECE } else { Picoseconds::MAX };
        let mut left = time;
        while left > 0 {
            let piece = left.min(most);
            left -= piece;
            let mut inner = self.inner.borrow_mut();
            if inner.is_due() {
                drop(inner);
                self.attend();
                inner = self.inner.borrow_mut();
            }
            let id = inner.current as usize;
            inner.threads[id].round.busy = true;
            let slow = inner.sibling_is_busy(id as u32);
            let takes = if slow { piece * 256 / inner.iron().costs().sibling } else { piece };
            let done = inner.now + takes;
            drop(inner);
            self.until(done);
        }
    }

    /// One turn of a wait loop, or at most that many turns that would find nothing new.
    pub(crate) fn pause(&self, most: u32) {
        let mut inner = self.inner.borrow_mut();
        if inner.wants_attention() {
            drop(inner);
            self.attend();
            inner = self.inner.borrow_mut();
        }
        let &Costs { pause, hit, .. } = inner.iron().costs();
        let id = inner.current as usize;
        let thread = &mut inner.threads[id];
        let round = core::mem::take(&mut thread.round);
        let before = core::mem::replace(&mut thread.before, round);
        let seen = &round.lines[..round.len];
        let idle = most > 1
            && !round.busy
            && round.len > 0
            && round == before
            && seen.iter().all(|&(line, version)| inner.lines.version(line) == version);
        if !idle {
            // Not always the same, so that spinners do not take turns in step for ever.
            let done = inner.now + pause * (192 + inner.jitter.u64(..=128)) / 256;
            drop(inner);
            self.until(done);
            return;
        }
        let takes = pause + hit * round.len as u64;
        for &(line, _) in seen {
            inner.lines.watch(line, id as u32);
        }
        let since = inner.now;
        if let Some(adversary) = &mut inner.adversary {
            adversary.waits(id as u32, false, since);
        }
        inner.threads[id].watch = Some(Watch { since, round: takes });
        inner.threads[id].missed = 0;
        inner.goes(id as u32, since + takes * u64::from(most));
        drop(inner);
        self.suspend();
        let mut inner = self.inner.borrow_mut();
        inner.threads[id].watch = None;
        for &(line, _) in seen {
            inner.lines.forget(line, id as u32);
        }
        if inner.adversary.is_some()
            && seen.iter().any(|&(line, version)| inner.lines.version(line) != version)
        {
            drop(inner);
            self.reach(Place::Saw);
        }
    }

    /// A system call's way into the kernel and back, for a thread that is not there yet.
    pub(crate) fn enter(&self) {
        self.call(1);
    }

    /// This part of it.
    fn call(&self, part: u64) {
        let mut inner = self.inner.borrow_mut();
        let thread = &inner.threads[inner.current as usize];
        let takes = match &inner.host {
            Some(host) if thread.atomic => host.halt(),
            _ if thread.kept > 0 => 0,
            _ => {
                let takes = inner.machine.scheduler().syscall / part;
                let cpu = inner.cpus.of(inner.current);
                inner.scattered(cpu, takes)
            }
        };
        drop(inner);
        if takes > 0 {
            self.spend(takes);
        }
    }

    /// Sleeps while the word at `address` is as `holds` says.
    pub(crate) fn wait(
        &self,
        address: usize,
        holds: impl Fn() -> bool,
        until: Option<Picoseconds>,
    ) -> Waited {
        self.reach(Place::Sleeps);
        self.call(2);
        if !holds() {
            self.call(2);
            return Waited::Woken;
        }
        let mut inner = self.inner.borrow_mut();
        let (id, now) = (inner.current, inner.now);
        if until.is_some_and(|until| until <= now) {
            return Waited::TimedOut;
        }
        let mut early = None;
        if let Some(adversary) = &mut inner.adversary {
            adversary.waits(id, true, now);
            early = adversary.wakes_up().map(|after| now + after);
        }
        inner.futexes.entry(address).or_default().push_back(id);
        inner.threads[id as usize].word = Some(address);
        if inner.threads[id as usize].atomic && inner.host.is_some() {
            return self.halt(inner, until);
        }
        let leaving = inner.machine.scheduler().switch / LEAVING;
        let cpu = inner.cpus.of(id);
        let leaving = now.max(inner.locked[cpu as usize]) + inner.scattered(cpu, leaving);
        inner.threads[id as usize].leaves = true;
        drop(inner);
        self.until(leaving);
        inner = self.inner.borrow_mut();
        let thread = &mut inner.threads[id as usize];
        if !core::mem::take(&mut thread.leaves) {
            drop(inner);
            self.reach(Place::Woken);
            return Waited::Woken;
        }
        let early = early.filter(|&early| until.is_none_or(|until| early < until));
        let waited = self.sleep(inner, early.or(until));
        self.reach(Place::Woken);
        match waited {
            Waited::TimedOut if early.is_some() => Waited::Woken,
            waited => waited,
        }
    }

    /// The caller's virtual CPU gives its real one back, and the caller stays its thread.
    fn halt(&self, mut inner: core::cell::RefMut<'_, Inner>, until: Option<Picoseconds>) -> Waited {
        let id = inner.current;
        inner.halts(id);
        if let Some(until) = until {
            let token = inner.threads[id as usize].token;
            inner.announce(until, What::Timer(id, token));
        }
        drop(inner);
        self.suspend();
        self.inner.borrow().threads[id as usize].waited
    }

    /// Sleeps for that long.
    pub(crate) fn park_for(&self, time: Picoseconds) {
        self.enter();
        let inner = self.inner.borrow_mut();
        let until = inner.now + time;
        self.sleep(inner, Some(until));
    }

    fn sleep(&self, mut inner: core::cell::RefMut<'_, Inner>, until: Option<Picoseconds>) -> Waited {
        let id = inner.current;
        inner.leave_cpu(id, State::Blocked);
        if let Some(until) = until {
            let token = inner.threads[id as usize].token;
            inner.announce(until, What::Timer(id, token));
        }
        drop(inner);
        self.suspend();
        self.inner.borrow().threads[id as usize].waited
    }

    /// Wakes up to `count` threads that sleep for the word at `address`.
    pub(crate) fn wake(&self, address: usize, count: u32) {
        let scheduler = *self.inner.borrow().machine.scheduler();
        self.reach(Place::Wakes);
        self.enter();
        for _ in 0..count {
            let mut inner = self.inner.borrow_mut();
            let Some(id) = inner.futexes.get_mut(&address).and_then(VecDeque::pop_front) else { return };
            let thread = &mut inner.threads[id as usize];
            thread.word = None;
            thread.waited = Waited::Woken;
            let takes = if core::mem::take(&mut thread.leaves) {
                0
            } else if thread.halted {
                inner.unhalts(id)
            } else {
                let cpu = inner.cpus.of(inner.current);
                match (inner.ready(id), inner.machine.idle().copied()) {
                    (Woken::AwakeIdle, Some(idle)) => inner.by_chance(idle.wake),
                    (Woken::Queued, Some(idle)) => inner.scattered(cpu, idle.queue),
                    (Woken::Told, _) | (Woken::Queued, None) => inner.reaches(cpu, scheduler.wake),
                    _ => inner.reaches(cpu, scheduler.wake) + inner.machine.interrupt(),
                }
            };
            drop(inner);
            self.spend(takes);
        }
    }

    /// The caller's CPU may run another thread.
    pub(crate) fn yield_now(&self) {
        self.enter();
        self.yields(self.inner.borrow_mut());
    }

    fn yields(&self, mut inner: core::cell::RefMut<'_, Inner>) {
        let id = inner.current;
        if inner.yields(id) {
            drop(inner);
            self.suspend();
        }
    }

    /// The caller keeps its CPU from now on, unless it sleeps. For example, it is in the kernel.
    pub(crate) fn keep(&self) {
        let mut inner = self.inner.borrow_mut();
        let id = inner.current as usize;
        inner.threads[id].kept += 1;
    }

    /// Withdraws [`Engine::keep`]'s request.
    pub(crate) fn unkeep(&self) {
        let mut inner = self.inner.borrow_mut();
        let id = inner.current as usize;
        inner.threads[id].kept -= 1;
        if inner.is_due() {
            drop(inner);
            self.attend();
        }
    }

    /// From now on the caller must not sleep, or may again.
    pub(crate) fn set_atomic(&self, atomic: bool) {
        let mut inner = self.inner.borrow_mut();
        let id = inner.current as usize;
        inner.threads[id].atomic = atomic;
    }

    /// Whether another thread is to have the caller's CPU, which it keeps. A kernel asks this before it goes
    /// on spinning, unless it must not sleep.
    pub(crate) fn is_wanted(&self) -> bool {
        let inner = self.inner.borrow();
        let thread = &inner.threads[inner.current as usize];
        thread.kept > 0 && thread.preempted && !thread.atomic
    }

    /// The caller is in the kernel for that long.
    pub(crate) fn spend(&self, time: Picoseconds) {
        let mut inner = self.inner.borrow_mut();
        let id = inner.current as usize;
        inner.threads[id].round.busy = true;
        let done = inner.now + time;
        drop(inner);
        self.until(done);
    }

    /// The time.
    pub(crate) fn now(&self) -> Picoseconds {
        self.inner.borrow().now
    }

    /// The thread that runs.
    pub(crate) fn current(&self) -> ThreadId {
        self.inner.borrow().current
    }

    /// The priority with which locks queue it.
    pub(crate) fn priority(&self) -> u32 {
        let inner = self.inner.borrow();
        inner.threads[inner.current as usize].priority
    }

    /// See [`crate::set_priority`].
    pub(crate) fn set_priority(&self, priority: u32) {
        let mut inner = self.inner.borrow_mut();
        let current = inner.current as usize;
        inner.threads[current].priority = priority;
    }

    /// The CPU that it runs on.
    pub(crate) fn cpu(&self) -> u32 {
        let inner = self.inner.borrow();
        inner.cpus.of(inner.current)
    }

    /// The node that it runs on, as locks ask for it.
    pub(crate) fn node(&self) -> usize {
        let inner = self.inner.borrow();
        inner.machine.node_of(inner.cpus.of(inner.current)) as usize
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.inner.borrow().machine.nodes() as usize
    }

    /// All CPUs.
    pub(crate) fn machine_cpus(&self) -> usize {
        self.inner.borrow().machine.cpus()
    }

    /// Whether a thread has a CPU at this moment.
    pub(crate) fn runs(&self, id: ThreadId) -> bool {
        self.inner.borrow().threads.get(id as usize).is_some_and(|thread| thread.state == State::Running)
    }

    /// How much CPU time a thread has had.
    pub(crate) fn used(&self, id: ThreadId) -> Picoseconds {
        let inner = self.inner.borrow();
        let thread = &inner.threads[id as usize];
        let runs = thread.state == State::Running && inner.is_on_iron(inner.cpus.of(id));
        thread.used + if runs { inner.now.saturating_sub(thread.since) } else { 0 }
    }

    /// Whether all threads have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.inner.borrow().threads.iter().all(|thread| thread.state == State::Done)
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.inner.borrow().lines.traffic
    }

    pub(crate) fn costs(&self) -> crate::machine::Costs {
        *self.inner.borrow().iron().costs()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for thread in &mut self.inner.get_mut().threads {
            if let Some(mut body) = thread.body.take() {
                // SAFETY: nothing on that stack will be used again. What it owned is leaked; nothing outside
                // points into it.
                unsafe { body.force_reset() };
                STACKS.with_borrow_mut(|stacks| stacks.push(body.into_stack()));
            }
        }
    }
}

impl Inner {
    fn wants_attention(&mut self) -> bool {
        let id = self.current;
        self.adversary.as_mut().is_some_and(|adversary| adversary.steps(id)) || self.is_due()
    }

    /// Whether the current thread's CPU is to be given away.
    fn is_due(&self) -> bool {
        let thread = &self.threads[self.current as usize];
        (thread.preempted && thread.kept == 0) || self.iron_is_wanted(self.current)
    }

    /// Takes the event that comes next.
    fn next_event(&mut self) -> Option<Event> {
        let Some(later) = self.later.take() else {
            return self.events.pop().map(|Reverse(event)| event);
        };
        match self.events.peek_mut() {
            Some(mut first) if first.0 < later => Some(core::mem::replace(&mut first.0, later)),
            _ => Some(later),
        }
    }

    /// As [`Inner::goes`], for a thread that suspends itself at once.
    fn goes_later(&mut self, id: ThreadId, done: Picoseconds) {
        let thread = &mut self.threads[id as usize];
        thread.token += 1;
        thread.done_at = done;
        if done < self.end {
            self.numbers += 1;
            let what = What::Goes(id, thread.token);
            self.later = Some(Event { at: done, number: self.numbers, what });
        }
    }

    pub(crate) fn announce(&mut self, at: Picoseconds, what: What) {
        self.numbers += 1;
        self.events.push(Reverse(Event { at, number: self.numbers, what }));
    }

    /// Whether nothing else happens up to this moment, at which the clock still runs.
    fn comes_next(&self, done: Picoseconds) -> bool {
        self.events.peek().is_none_or(|Reverse(event)| event.at > done) && done < self.end
    }

    /// A running thread is busy until `done`.
    pub(crate) fn goes(&mut self, id: ThreadId, done: Picoseconds) {
        let thread = &mut self.threads[id as usize];
        thread.token += 1;
        thread.done_at = done;
        let token = thread.token;
        // A step that ends after the clock has stopped has no event: spinners would fill the queue with
        // theirs.
        if done < self.end {
            self.announce(done, What::Goes(id, token));
        }
    }

    /// Returns the thread that goes on.
    fn happen(&mut self, what: What) -> Option<ThreadId> {
        match what {
            What::Goes(id, token) => (self.threads[id as usize].token == token).then_some(id),
            What::Timer(id, token) => {
                let thread = &mut self.threads[id as usize];
                if thread.token == token && (thread.state == State::Blocked || thread.halted) {
                    thread.waited = Waited::TimedOut;
                    if let Some(word) = thread.word.take()
                        && let Some(queue) = self.futexes.get_mut(&word)
                    {
                        queue.retain(|&other| other != id);
                    }
                    if self.threads[id as usize].halted {
                        self.unhalts(id);
                    } else {
                        self.ready(id);
                    }
                }
                None
            }
            What::HostSlice(cpu) => {
                self.host_slice_ends(cpu);
                None
            }
            What::Stolen(cpu) => {
                self.steals(cpu);
                None
            }
            What::Slice(cpu) => {
                if !self.cpus.slice_ends(cpu, self.now) || !self.ticks(cpu) {
                    return None;
                }
                let id = self.cpus.current(cpu)?;
                let now = self.now;
                if self.cpus.has_eevdf() && self.goes_on(cpu, id) {
                    return None;
                }
                let thread = &mut self.threads[id as usize];
                if thread.accessing.completes() || thread.kept > 0 {
                    thread.preempted = true;
                    if thread.watch.is_some() {
                        // It looks at that, too.
                        self.goes(id, now);
                    }
                } else {
                    self.switch(cpu);
                }
                None
            }
        }
    }

    /// EEVDF looks at a CPU and its thread. Whether that is to go on.
    fn goes_on(&mut self, cpu: u32, id: ThreadId) -> bool {
        self.charge(id);
        if self.cpus.is_wanted(cpu)
            && let Some(idle) = self.cpus.ticks(cpu, self.now)
        {
            // It looks for what it can take.
            let latency = self.machine.scheduler().wake_latency;
            self.dispatch(idle, latency, self.charged());
        }
        let goes_on = self.cpus.goes_on(cpu, self.now);
        if goes_on && self.cpus.is_wanted(cpu) {
            let at = self.cpus.slice_end(&self.machine, cpu, self.now);
            self.announce_slice(cpu, at);
        }
        goes_on
    }

    fn access(&mut self, address: usize, access: Access, narrow: bool, step: Step) -> Outcome {
        let id = self.current;
        let core = self.core_of(id);
        // Not by a method: the lines change.
        let iron = self.host.as_ref().map_or(&self.machine, Host::machine);
        let line = self.lines.name(address, core, iron);
        let before = self.lines.traffic;
        let outcome = self.lines.access(iron, line, core, access, narrow, self.now);
        if let Some(profile) = &mut self.profile {
            let counts = (before, self.lines.traffic);
            profile.note(step, (address, line), id, access != Access::Load, counts, outcome.done - self.now);
        }
        let version = self.lines.version(line);
        let round = &mut self.threads[id as usize].round;
        if access == Access::Load && outcome.hit {
            round.note(line, version)
        } else {
            round.busy = true
        }
        if access != Access::Load
            && let Some(adversary) = &mut self.adversary
        {
            adversary.writes(id, !self.lines.awakened.is_empty());
        }
        while let Some(other) = self.lines.awakened.pop() {
            self.notice(other, outcome.done);
        }
        outcome
    }

    /// A line that a thread watches is written at this moment.
    fn notice(&mut self, id: ThreadId, at: Picoseconds) {
        let on_iron = self.is_on_iron(self.cpus.of(id));
        let thread = &mut self.threads[id as usize];
        let Some(watch) = thread.watch else { return };
        if thread.state != State::Running || !on_iron {
            thread.left = 0;
            return;
        }
        // At the end of the round that it is in by then.
        let begun = watch.since + thread.missed;
        let rounds = at.saturating_sub(begun).div_ceil(watch.round).max(1);
        let then = (begun + rounds * watch.round).max(self.now).max(thread.stolen_until);
        if then < thread.done_at {
            self.goes(id, then);
        }
    }

    // The scheduler's decisions, carried out.

    /// A thread wants a CPU.
    fn ready(&mut self, id: ThreadId) -> Woken {
        let thread = &mut self.threads[id as usize];
        thread.state = State::Ready;
        thread.token += 1;
        let waker = self.running.then(|| self.cpus.of(self.current));
        let cpu = self.cpus.choose(&self.machine, id, waker, self.now);
        if let Some(current) = self.cpus.current(cpu) {
            self.charge(current);
        }
        match self.cpus.place(&self.machine, id, cpu, self.now) {
            Placed::Idle if self.host.is_some() => {
                self.kick(cpu);
                return Woken::Queued;
            }
            Placed::Idle => {
                let since = self.cpus.ends_idle(cpu, self.now);
                let awake = self.machine.idle().filter(|idle| since < idle.awake);
                let woken = if awake.is_some() { Woken::AwakeIdle } else { Woken::Idle };
                let (latency, charged) = match awake {
                    Some(awake) => (awake.wake_latency, 0),
                    None => (self.machine.scheduler().wake_latency, self.charged()),
                };
                let latency = self.by_chance(latency);
                self.dispatch(cpu, latency, charged);
                return woken;
            }
            Placed::Queued => {}
        }
        let Some(current) = self.cpus.current(cpu) else { return Woken::Queued };
        // A CPU that has been told of one thread, and is not there yet, finds the next one with it.
        let comes = self.machine.idle().is_some() && self.threads[current as usize].since > self.now;
        if !comes && self.cpus.preempts(&self.machine, id, current, self.now) {
            let others = self.running && self.cpus.of(self.current) != cpu;
            let idle = self.machine.idle().filter(|_| others);
            let (interrupt, locked) = idle.map_or((0, 0), |idle| (idle.interrupt, idle.locked));
            self.announce_slice(cpu, self.now + interrupt);
            if others {
                self.locked[cpu as usize] = self.now + locked;
                return Woken::Told;
            }
        } else if !self.cpus.has_slice(cpu) {
            let begun = self.threads[current as usize].begun;
            let at = self.cpus.slice_end(&self.machine, cpu, begun).max(self.now);
            self.announce_slice(cpu, at);
        }
        Woken::Queued
    }

    pub(crate) fn announce_slice(&mut self, cpu: u32, at: Picoseconds) {
        if self.cpus.new_slice(cpu, at) {
            self.announce(at, What::Slice(cpu));
        }
    }

    /// The running thread yields. Whether another one is to run: then it suspends itself.
    fn yields(&mut self, id: ThreadId) -> bool {
        self.charge(id);
        let yields = self.cpus.yields(id, self.now);
        if yields {
            self.expire(id);
        }
        yields
    }

    /// The running thread's CPU is given to the next at this moment, if there is one. The thread suspends
    /// itself.
    fn expire(&mut self, id: ThreadId) {
        let cpu = self.cpus.of(id);
        let at = self.now.max(self.locked[cpu as usize]);
        self.announce_slice(cpu, at);
        self.goes(id, at);
    }

    /// Gives a CPU to the next thread, if there is one, and the one that runs there goes to the queue.
    fn switch(&mut self, cpu: u32) {
        let Some(id) = self.cpus.current(cpu) else { return };
        if !self.cpus.is_wanted(cpu) {
            return;
        }
        let now = self.now;
        self.charge(id);
        let thread = &mut self.threads[id as usize];
        thread.state = State::Ready;
        // Not the rest of the switch to it, if that is still under way.
        thread.stops(now, thread.done_at.saturating_sub(now.max(thread.begun)));
        self.cpus.put_back(&self.machine, cpu, now);
        self.locked[cpu as usize] = 0;
        self.dispatch(cpu, 0, 0);
    }

    /// What takes this CPU's kernel that long on average, and longer where the CPU is slow.
    fn scattered(&mut self, cpu: u32, time: Picoseconds) -> Picoseconds {
        self.scattered_by(self.slowness(cpu), time)
    }

    /// The same of what has to reach another CPU: see [`REACHES`].
    fn reaches(&mut self, cpu: u32, time: Picoseconds) -> Picoseconds {
        self.scattered_by((self.slowness(cpu) * REACHES + 256 * (5 - REACHES)) / 5, time)
    }

    /// How long a CPU's kernel takes, in 256ths.
    fn slowness(&self, cpu: u32) -> u64 {
        self.slow.get(cpu as usize).copied().unwrap_or(256)
    }

    /// What takes `slow` 256ths of that long on average.
    fn scattered_by(&mut self, slow: u64, time: Picoseconds) -> Picoseconds {
        let time = time * slow / 256;
        match self.scatter {
            0 => time,
            scatter => {
                time * (256 - scatter + self.jitter.u64(..=2 * scatter)) / 256 + self.interrupted(time)
            }
        }
    }

    /// What interrupts take of the next so much time, by chance.
    fn interrupted(&mut self, time: Picoseconds) -> Picoseconds {
        match self.machine.interrupts() {
            Some(Interrupts { every, takes }) if self.jitter.u64(..every) < time => {
                takes / 2 + self.jitter.u64(..=takes)
            }
            _ => 0,
        }
    }

    /// What idle CPUs take that long for, on average.
    fn by_chance(&mut self, time: Picoseconds) -> Picoseconds {
        let share = self.machine.idle().map_or(0, |idle| idle.chance);
        if share == 0 {
            return time;
        }
        let part = time as f64 * share as f64 / 256.0;
        (time as f64 + part * (-(1.0 - self.jitter.f64()).ln() - 1.0)) as Picoseconds
    }

    /// What a thread is charged for that is woken to a CPU which no longer looks for work.
    fn charged(&self) -> Picoseconds {
        self.machine.idle().map_or(0, |idle| idle.charged)
    }

    /// An idle CPU gets its next thread, which is charged a part of the time until it runs.
    pub(crate) fn dispatch(&mut self, cpu: u32, latency: Picoseconds, charged: Picoseconds) {
        let Some(next) = self.cpus.next(&self.machine, cpu, self.now, latency.saturating_sub(charged)) else {
            self.cpus.becomes_idle(cpu, self.now);
            return;
        };
        self.cpus.ends_idle(cpu, self.now);
        let scheduler = *self.machine.scheduler();
        let now = self.now;
        let takes = self.reaches(cpu, latency) + self.scattered(cpu, scheduler.switch);
        let begin = now + takes + if next.migrated { scheduler.migration } else { 0 };
        let thread = &mut self.threads[next.id as usize];
        thread.state = State::Running;
        thread.begun = begin;
        // A CPU that wakes up does not run yet.
        let idle = self.machine.idle().is_some();
        thread.since = if idle { now + latency.saturating_sub(charged) } else { now };
        if thread.watch.is_some() {
            thread.missed += begin - thread.stopped;
        }
        let done = begin + thread.left;
        thread.left = 0;
        self.goes(next.id, done);
        if self.cpus.is_wanted(cpu) {
            let at = self.cpus.slice_end(&self.machine, cpu, begin);
            self.announce_slice(cpu, at);
        }
    }

    /// A running thread does not want its CPU any more.
    fn leave_cpu(&mut self, id: ThreadId, state: State) {
        self.charge(id);
        let thread = &mut self.threads[id as usize];
        thread.state = state;
        thread.token += 1;
        thread.left = 0;
        thread.preempted = false;
        let cpu = self.cpus.leave(&self.machine, id, state == State::Blocked, self.now);
        self.dispatch(cpu, 0, 0);
        if self.host.is_some() && self.cpus.current(cpu).is_none() {
            self.idles(cpu);
        }
    }

    /// The machine whose caches and cores these are.
    pub(crate) fn iron(&self) -> &Machine {
        self.host.as_ref().map_or(&self.machine, Host::machine)
    }

    pub(crate) fn charge(&mut self, id: ThreadId) {
        if !self.is_on_iron(self.cpus.of(id)) {
            return;
        }
        let thread = &mut self.threads[id as usize];
        let time = self.now.saturating_sub(thread.since);
        thread.used += time;
        thread.since = thread.since.max(self.now);
        self.cpus.charge(id, time, self.now);
    }
}
