//! A recorded stretch of a program's life, again: what each thread did between its locks, on whichever locks
//! and machine.
//!
//! Each thread goes through its steps again and again until the clock stops, so that a short stretch gives a
//! steady rate. Who wakes threads that wait for what is part of the steps; who waits for whom at a lock is
//! not: that is what the replay finds out.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::condvar::RawCondvar;
use poundlock_core::platform::{Atomic, Platform, Until};

use crate::atomic::U32;
use crate::locks::{self, Lock};
use crate::machine::{NANOSECOND, Picoseconds};
use crate::mutexes::{self, Mutex};
use crate::peers::glibc::Glibc;
use crate::peers::glibc_condvar::GlibcCondvar;
use crate::peers::glibc_rwlock::GlibcRwLock;
use crate::platform::Sim;
use crate::rwlocks::RwLock;
use crate::{Alone, Simulation, Stuck, Traffic, now, random, sleep, work};

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for that long.
    Work(Picoseconds),
    /// Is blocked for that long, by something that is not simulated.
    Block(Picoseconds),
    /// Acquires the lock of this number, alone.
    Lock(u32),
    /// Acquires it as one of several readers.
    Read(u32),
    /// Acquires it alone if nobody has it. Else the steps up to its release are left out.
    Try(u32),
    /// Releases it, however it was acquired.
    Unlock(u32),
    /// Lets one thread go on that awaits what has this number, now or later.
    Wake(u32),
    /// Waits until a thread lets it go on: once for each [`Step::Wake`].
    Await {
        /// What it awaits. If nothing, it takes as long as it took.
        what: Option<u32>,
        /// The mutex under which it does, which it holds: that of a condition variable. It is released
        /// meanwhile.
        under: Option<u32>,
        /// How long that took when it was recorded, if it waited.
        took: Picoseconds,
    },
    /// Waits until all threads with such a step have come to it.
    Meet(u32),
    /// Lets those who are ready have its CPU, which takes at least so long.
    Yield(Picoseconds),
    /// Here begins a part of work that threads share out among them: those with this number have the same
    /// steps, and whoever is done with a part takes the next that nobody has taken.
    Part(u32),
}

/// A lock in the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A mutex or spinlock of this name: [`locks::names`]. Readers acquire it alone, too.
    Exclusive(&'a str),
    /// A readers-writer lock of this name: one of ours, or `glibc`, its own.
    Shared(&'a str),
    /// None: nobody waits.
    Gone,
}

/// A lock, or several in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// What each is.
    pub kind: Kind<'a>,
    /// How many there are; each acquisition draws one of them.
    pub number: u32,
}

/// What to run. By default nothing, for no time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replay<'a> {
    /// Each thread's steps.
    pub threads: &'a [Vec<Step>],
    /// When each begins; those for which nothing is said, at once.
    pub begins: &'a [Picoseconds],
    /// The CPU that each begins on; those for which nothing is said, where there are fewest.
    pub cpus: &'a [Option<u32>],
    /// The locks, by number.
    pub locks: &'a [Part<'a>],
    /// How many threads have been let go on before the first step, for each thing that is awaited.
    pub before: &'a [u32],
    /// Before anything is counted.
    pub warm_up: Picoseconds,
    /// How long it is counted for.
    pub time: Picoseconds,
}

/// What became of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Acquisitions, once for each step.
    pub acquisitions: u64,
    /// Those after a wait for a condition variable.
    pub again: u64,
    /// Those that waited.
    pub contended: u64,
    /// How long, together.
    pub waited: Picoseconds,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Each thread's steps that were done while it was counted.
    pub steps: Vec<u64>,
    /// By lock.
    pub waits: Vec<Waits>,
    /// CPU time of all threads, the warm-up included.
    pub used: Picoseconds,
    /// What the cache lines did, the warm-up included.
    pub traffic: Traffic,
}

/// An acquisition that takes longer has waited. The recorder, too, sees a wait only where the first attempt
/// failed.
const AT_ONCE: Picoseconds = 200 * NANOSECOND;

enum Made {
    /// One of our mutexes.
    Mutex(Box<dyn Mutex>),
    Glibc(Box<Alone<Glibc>>),
    Exclusive(Box<dyn Lock>),
    Shared(Box<RwLock>),
    GlibcShared(Box<Alone<GlibcRwLock>>),
    Gone,
}

impl Made {
    fn new(kind: Kind<'_>) -> Option<Made> {
        Some(match kind {
            Kind::Exclusive("glibc") => Made::Glibc(Box::default()),
            Kind::Exclusive(name) => match mutexes::make(name) {
                Some(mutex) => Made::Mutex(mutex),
                None => Made::Exclusive(locks::make(name)?),
            },
            Kind::Shared("glibc") => Made::GlibcShared(Box::default()),
            Kind::Shared(name) => Made::Shared(Box::new(RwLock::make(name)?)),
            Kind::Gone => Made::Gone,
        })
    }

    fn acquire(&self, reads: bool) {
        match self {
            Made::Mutex(lock) => lock.lock(),
            Made::Glibc(lock) => lock.lock(),
            Made::Exclusive(lock) => lock.lock(),
            Made::Shared(lock) => {
                if reads {
                    lock.read(None);
                } else {
                    lock.write(None);
                }
            }
            Made::GlibcShared(lock) if reads => lock.0.read(),
            Made::GlibcShared(lock) => lock.0.write(),
            Made::Gone => (),
        }
    }

    fn release(&self, reads: bool) {
        match self {
            Made::Mutex(lock) => lock.unlock(),
            Made::Glibc(lock) => lock.unlock(),
            Made::Exclusive(lock) => lock.unlock(),
            Made::Shared(lock) if reads => lock.raw().unlock_read(),
            Made::Shared(lock) => lock.raw().unlock_write(),
            Made::GlibcShared(lock) if reads => lock.0.unlock_read(),
            Made::GlibcShared(lock) => lock.0.unlock_write(),
            Made::Gone => (),
        }
    }
}

/// Where threads wait for each other.
struct Meeting {
    /// How often all have come.
    round: Alone<U32>,
    come: Cell<u32>,
    all: u32,
}

impl Meeting {
    fn meet(&self) {
        let round = self.round.0.load(Relaxed);
        self.come.set(self.come.get() + 1);
        if self.come.get() == self.all {
            self.come.set(0);
            self.round.0.store(round.wrapping_add(1), Relaxed);
            Sim::wake(&self.round.0, u32::MAX);
            return;
        }
        while self.round.0.load(Relaxed) == round {
            Sim::wait(&self.round.0, round, Until::Woken);
        }
    }
}

/// Where threads sleep until one lets them go on.
enum Room {
    /// A condition variable of ours, whose waiters use our mutexes.
    Ours(Alone<RawCondvar<Sim>>),
    /// glibc's, whose waiters use glibc's mutexes.
    Glibc(Alone<GlibcCondvar>),
    /// A futex that counts who was let go on, and how many sleep.
    Bare(Alone<U32>, Cell<u32>),
}

/// What threads let each other go on with.
struct Wakes {
    /// How many may go on. The program knows that from its own data, which its work looks at.
    left: Cell<u32>,
    room: Room,
    /// Under which all sleep there, unless it is bare.
    mutex: Option<u32>,
}

impl Wakes {
    /// One more may go on, and does not know yet.
    fn post(&self) {
        self.left.set(self.left.get() + 1);
    }

    fn signal(&self) {
        match &self.room {
            Room::Ours(condvar) => condvar.0.signal(),
            Room::Glibc(condvar) => condvar.0.signal(),
            Room::Bare(word, sleepers) => {
                word.0.fetch_add(1, Relaxed);
                // Who wakes nobody does not call the kernel.
                if sleepers.get() > 0 {
                    Sim::wake(&word.0, 1);
                }
            }
        }
    }

    /// Returns when the caller may go on, which then is one less that may. `under`: what it holds, and
    /// whether as a reader. `again` is told whenever it has acquired that again, and since when it wanted to.
    fn take(&self, under: Option<(&Made, bool)>, again: impl Fn(Picoseconds)) {
        while self.left.get() == 0 {
            again(self.sleep(under));
        }
        self.left.set(self.left.get() - 1);
    }

    fn sleep(&self, under: Option<(&Made, bool)>) -> Picoseconds {
        match (&self.room, under) {
            (Room::Ours(condvar), Some((Made::Mutex(mutex), _))) => {
                mutex.wait(&condvar.0, None);
                // It was requeued to the mutex: the wait for that is part of the other.
                now()
            }
            (Room::Glibc(condvar), Some((Made::Glibc(mutex), _))) => {
                condvar.0.wait(&mutex.0);
                let woken = now();
                mutex.0.acquire_as_contended();
                woken
            }
            (Room::Bare(word, sleepers), under) => {
                let seen = word.0.load(Relaxed);
                if self.left.get() > 0 {
                    return now();
                }
                if let Some((made, reads)) = under {
                    made.release(reads);
                }
                sleepers.set(sleepers.get() + 1);
                Sim::wait(&word.0, seen, Until::Woken);
                sleepers.set(sleepers.get() - 1);
                let woken = now();
                if let Some((made, reads)) = under {
                    made.acquire(reads);
                }
                woken
            }
            (Room::Ours(_) | Room::Glibc(_), _) => unreachable!("a room is for all who wait in it"),
        }
    }
}

/// What a thread does, as the replay has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Step(Step),
    /// One more may go on with this: a part of a later step.
    Post(u32),
    /// The same, under this mutex, which it does not have.
    PostUnder(u32, u32),
    /// The rest of it.
    Signal(u32),
}

/// A condition changes under its mutex, also where the signal comes after: else the signal could come between
/// a waiter's look and its wait. False in `changes` for what is signalled by a thread that never has its
/// mutex.
fn acts(steps: &[Step], mutex_of: &[Option<u32>], changes: &mut [bool]) -> Vec<Act> {
    let mut acts: Vec<Act> = Vec::with_capacity(steps.len());
    let mut held: Vec<u32> = Vec::new();
    for &step in steps {
        match step {
            Step::Lock(lock) | Step::Read(lock) | Step::Try(lock) => held.push(lock),
            Step::Unlock(lock) => {
                if let Some(at) = held.iter().rposition(|&of| of == lock) {
                    held.remove(at);
                }
            }
            Step::Wake(what) => {
                if let Some(mutex) = mutex_of[what as usize].filter(|mutex| !held.contains(mutex)) {
                    let ends = |act: &Act| *act == Act::Step(Step::Unlock(mutex));
                    if let Some(at) = acts.iter().rposition(ends) {
                        acts.insert(at, Act::Post(what));
                        acts.push(Act::Signal(what));
                        continue;
                    }
                    if steps.contains(&Step::Unlock(mutex)) {
                        // It had it, and was not seen to.
                        acts.extend([Act::PostUnder(what, mutex), Act::Signal(what)]);
                        continue;
                    }
                    changes[what as usize] = false;
                }
            }
            _ => {}
        }
        acts.push(Act::Step(step));
    }
    acts
}

struct Shared {
    /// Each thread's, and where parts of them begin. No thread has them when it suspends itself: what threads
    /// own then is leaked, and these are much.
    acts: RefCell<Vec<(Vec<Act>, Vec<usize>)>>,
    /// Each with how many have it or want it.
    locks: Vec<Vec<(Made, Cell<u32>)>>,
    /// For each thing that is awaited.
    wakes: Vec<Wakes>,
    meetings: Vec<Meeting>,
    /// How many parts have been taken, of each work that is shared out.
    taken: Vec<Cell<usize>>,
    done: Vec<Cell<u64>>,
    waits: Vec<Cell<Waits>>,
    warm_up: Picoseconds,
}

impl Shared {
    /// Which acts the thread does now: all of them, or of work that is shared out the next part.
    fn next(&self, index: usize) -> Range<usize> {
        let (acts, parts) = &self.acts.borrow()[index];
        let Some(Act::Step(Step::Part(work))) = parts.first().map(|&part| acts[part]) else {
            return 0..acts.len();
        };
        let taken = &self.taken[work as usize];
        let part = taken.get() % parts.len();
        taken.set(part + 1);
        parts[part]..parts.get(part + 1).copied().unwrap_or(acts.len())
    }

    fn thread(&self, index: usize) {
        // What it holds: the lock's number, which of several it is, and whether it reads.
        let mut held: Vec<(u32, usize, bool)> = Vec::new();
        loop {
            let round = now();
            let mut left_out = None;
            for at in self.next(index) {
                let act = self.acts.borrow()[index].0[at];
                let step = match act {
                    Act::Step(step) => step,
                    Act::Post(what) => {
                        self.wakes[what as usize].post();
                        continue;
                    }
                    Act::PostUnder(what, mutex) => {
                        self.briefly(mutex, |_| self.wakes[what as usize].post());
                        continue;
                    }
                    Act::Signal(what) => {
                        self.wakes[what as usize].signal();
                        self.did(index);
                        continue;
                    }
                };
                if let Some(lock) = left_out {
                    match step {
                        Step::Unlock(this) if this == lock => {
                            left_out = None;
                            continue;
                        }
                        // What it holds beside it it releases, and others go on.
                        Step::Unlock(_) | Step::Wake(_) | Step::Meet(_) => {}
                        _ => continue,
                    }
                }
                match step {
                    Step::Part(_) => continue,
                    Step::Work(time) => work(time),
                    Step::Block(time) => sleep(time),
                    Step::Lock(lock) | Step::Read(lock) | Step::Try(lock) => {
                        // Once more by the thread that has it: a recursive mutex, or a reader.
                        if let Some(&(_, part, reads)) = held.iter().find(|(of, ..)| *of == lock) {
                            held.push((lock, part, reads));
                            continue;
                        }
                        let reads = matches!(step, Step::Read(_));
                        let parts = &self.locks[lock as usize];
                        let part =
                            if parts.len() == 1 { 0 } else { random(|random| random.usize(..parts.len())) };
                        let (made, users) = &parts[part];
                        if matches!(step, Step::Try(_)) && users.get() > 0 && !matches!(made, Made::Gone) {
                            left_out = Some(lock);
                            continue;
                        }
                        users.set(users.get() + 1);
                        let begin = now();
                        made.acquire(reads);
                        self.acquired(lock, begin, false);
                        held.push((lock, part, reads));
                    }
                    Step::Unlock(lock) => {
                        if let Some(at) = held.iter().rposition(|(of, ..)| *of == lock) {
                            let (_, part, reads) = held.remove(at);
                            if held.iter().any(|(of, ..)| *of == lock) {
                                continue;
                            }
                            let (made, users) = &self.locks[lock as usize][part];
                            made.release(reads);
                            users.set(users.get() - 1);
                        }
                    }
                    Step::Wake(what) => {
                        self.wakes[what as usize].post();
                        self.wakes[what as usize].signal();
                    }
                    Step::Await { what: None, under: None, took } => sleep(took),
                    Step::Await { what: Some(what), under: None, .. } => {
                        let wakes = &self.wakes[what as usize];
                        match wakes.mutex {
                            // It was not seen to acquire it, before the stretch began.
                            Some(lock) => self.briefly(lock, |made| wakes.take(Some((made, false)), |_| ())),
                            None => wakes.take(None, |_| ()),
                        }
                    }
                    Step::Await { what, under: Some(lock), took } => {
                        let Some(&(_, part, reads)) = held.iter().find(|(of, ..)| *of == lock) else {
                            continue;
                        };
                        let made = &self.locks[lock as usize][part].0;
                        let again = |begin| self.acquired(lock, begin, true);
                        match what {
                            Some(what) => self.wakes[what as usize].take(Some((made, reads)), again),
                            None => {
                                made.release(reads);
                                sleep(took);
                                let begin = now();
                                made.acquire(reads);
                                again(begin);
                            }
                        }
                    }
                    Step::Meet(place) => self.meetings[place as usize].meet(),
                    Step::Yield(time) => {
                        let done = now() + time;
                        Sim::yield_now();
                        work(done.saturating_sub(now()));
                    }
                }
                self.did(index);
            }
            if now() == round {
                // Steps that take no time would go on for ever at this moment.
                work(NANOSECOND);
            }
        }
    }

    /// With this lock, which the thread was not seen to acquire.
    fn briefly(&self, lock: u32, act: impl FnOnce(&Made)) {
        let (made, users) = &self.locks[lock as usize][0];
        users.set(users.get() + 1);
        made.acquire(false);
        act(made);
        made.release(false);
        users.set(users.get() - 1);
    }

    fn did(&self, index: usize) {
        if now() >= self.warm_up {
            self.done[index].set(self.done[index].get() + 1);
        }
    }

    fn acquired(&self, lock: u32, begin: Picoseconds, again: bool) {
        if begin < self.warm_up {
            return;
        }
        let took = now() - begin;
        let waits = &self.waits[lock as usize];
        let mut sum = waits.get();
        sum.acquisitions += u64::from(!again);
        sum.again += u64::from(again);
        if took > AT_ONCE {
            sum.contended += 1;
            sum.waited += took;
        }
        waits.set(sum);
    }
}

impl Replay<'_> {
    /// Runs it in a simulation that has no threads yet. Threads without a step take no part.
    ///
    /// # Errors
    /// If all threads wait for each other.
    ///
    /// # Panics
    /// If there is no lock of a name, or no lock or thread of a number.
    pub fn run_in(&self, mut simulation: Simulation) -> Result<Replayed, Stuck> {
        let make = |part: &Part<'_>| -> Vec<(Made, Cell<u32>)> {
            let one = || match Made::new(part.kind) {
                Some(made) => (made, Cell::new(0)),
                None => panic!("no lock is called as in {part:?}"),
            };
            (0..part.number.max(1)).map(|_| one()).collect()
        };
        let steps = || self.threads.iter().flatten();
        // They are numbered from 0.
        let how_many = |number: fn(&Step) -> Option<u32>| {
            steps().filter_map(number).max().map_or(0, |number| number + 1)
        };
        let awaited = how_many(|step| match *step {
            Step::Wake(what) => Some(what),
            Step::Await { what, .. } => what,
            _ => None,
        });
        let places = how_many(|step| if let Step::Meet(place) = *step { Some(place) } else { None });
        let works = how_many(|step| if let Step::Part(work) = *step { Some(work) } else { None });
        let meetings = (0..places).map(|place| Meeting {
            round: Alone::default(),
            come: Cell::new(0),
            all: self.threads.iter().filter(|steps| steps.contains(&Step::Meet(place))).count() as u32,
        });
        let meetings = meetings.collect();
        let taken = (0..works).map(|_| Cell::new(0)).collect();
        let locks: Vec<_> = self.locks.iter().map(make).collect();
        // The mutex under which each is awaited, if it always is the same, as far as that was seen.
        let mut mutex_of: Vec<Option<u32>> = vec![None; awaited as usize];
        let mut is_mutex = vec![true; awaited as usize];
        for step in steps() {
            if let Step::Await { what: Some(what), under: Some(under), .. } = *step {
                is_mutex[what as usize] &= *mutex_of[what as usize].get_or_insert(under) == under;
            }
        }
        let acts = self.threads.iter().map(|steps| {
            let acts = acts(steps, &mutex_of, &mut is_mutex);
            let is_part = |at: &usize| matches!(acts[*at], Act::Step(Step::Part(_)));
            let parts = (0..acts.len()).filter(is_part).collect();
            (acts, parts)
        });
        let acts = RefCell::new(acts.collect());
        let room = |what: usize| {
            let mutex = mutex_of[what].filter(|_| is_mutex[what]).map(|mutex| &locks[mutex as usize][0].0);
            match mutex {
                Some(Made::Mutex(_)) => Room::Ours(Alone(RawCondvar::new())),
                Some(Made::Glibc(_)) => Room::Glibc(Alone::default()),
                _ => Room::Bare(Alone::default(), Cell::new(0)),
            }
        };
        let wakes = (0..awaited as usize).map(|what| {
            let room = room(what);
            let mutex = mutex_of[what].filter(|_| !matches!(room, Room::Bare(..)));
            Wakes { left: Cell::new(self.before.get(what).copied().unwrap_or(0)), room, mutex }
        });
        let wakes = wakes.collect();
        let shared = Rc::new(Shared {
            acts,
            locks,
            wakes,
            meetings,
            taken,
            done: self.threads.iter().map(|_| Cell::new(0)).collect(),
            waits: self.locks.iter().map(|_| Cell::default()).collect(),
            warm_up: self.warm_up,
        });
        for index in (0..self.threads.len()).filter(|&index| !self.threads[index].is_empty()) {
            let shared = Rc::clone(&shared);
            let begins = self.begins.get(index).copied().unwrap_or(0);
            let thread = move || {
                if begins > 0 {
                    sleep(begins);
                }
                shared.thread(index);
            };
            match self.cpus.get(index).copied().flatten() {
                Some(first) => simulation.spawn_on(first, thread),
                None => simulation.spawn(None, thread),
            }
        }
        let summary = simulation.run(self.warm_up + self.time);
        shared.acts.take();
        let summary = summary?;
        Ok(Replayed {
            steps: shared.done.iter().map(Cell::get).collect(),
            waits: shared.waits.iter().map(Cell::get).collect(),
            used: summary.used.iter().sum(),
            traffic: summary.traffic,
        })
    }
}
