//! What the threads of a case do, and what they watch while they do it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use poundlock_core::condvar::{Outcome, RawCondvar};
use poundlock_core::platform::{Clock, Deadline, Platform};
use poundlock_core::qspin::Halting;
use poundlock_core::queue::Front;
use poundlock_core::rwlock::Preference;

use super::adversary::Place;
use super::{Case, Found, Promise, Report, Scene, Subject, Wait};
use crate::atomic::U32;
use crate::engine::Engine;
use crate::locks::Lock;
use crate::machine::{MICROSECOND, NANOSECOND, Picoseconds};
use crate::mutexes::{Mutex, Woken, never};
use crate::platform::Sim;
use crate::rwlocks::RwLock;
use crate::{Alone, Simulation, now, random, set_priority, work};

/// What all threads share.
pub(super) struct Stage {
    subject: Subject,
    promise: Promise,
    scene: Scene,
    threads: u32,
    priorities: u32,
    sections: u32,
    inside: Picoseconds,
    pub(super) found: RefCell<Option<Found>>,
    /// The thread in its section that keeps others out.
    within: Cell<Option<u32>>,
    /// The threads in their sections that share.
    sharing: RefCell<Vec<u32>>,
    /// Threads that have not ended.
    left: Cell<u32>,
    /// When threads called, acquired and released the lock, each in order.
    calls: RefCell<Vec<Picoseconds>>,
    acquisitions: RefCell<Vec<Picoseconds>>,
    releases: RefCell<Vec<Picoseconds>>,
    /// When the last one was, and after how many accesses.
    end: Cell<(Picoseconds, u64)>,
    longest_wait: Cell<Picoseconds>,
    most_passed: Cell<u32>,
    at_sides: Cell<u64>,
    /// In [`Scene::Crowd`]: how often the threads that do not press have still to come; and since when one of
    /// them waits, and after how many acquisitions.
    shy: Cell<u32>,
    waiting: RefCell<Vec<(u32, Picoseconds, usize)>>,
    /// After this many acquisitions and this much time a turn should have come, if it was promised.
    bound: Option<(usize, Picoseconds)>,
    /// How often others may acquire it while a waiter sleeps (the bypass bound), if that is promised; and how
    /// often they have in each thread's wait.
    most_bypassed: Option<u64>,
    bypassed: RefCell<Vec<u64>>,
    store: Store,
}

/// What a thread does with a readers-writer lock; the other locks have one operation.
#[derive(Clone, Copy)]
enum Visit {
    Any,
    Reads,
    Writes,
}

/// What producers and consumers share.
#[derive(Default)]
struct Store {
    /// How many things there is room for.
    most: u32,
    made: Cell<u32>,
    taken: Cell<u32>,
    room: Alone<RawCondvar<Sim>>,
    goods: Alone<RawCondvar<Sim>>,
}

fn me() -> u32 {
    Engine::with(Engine::current)
}

fn draw(range: std::ops::Range<u64>) -> u64 {
    random(|random| random.u64(range))
}

fn one_in(count: u64) -> bool {
    draw(0..count) == 0
}

/// Whether the caller has the mutex by a side's place.
fn stands_at_a_side() -> bool {
    Front::is_at_a_side(Sim::record(me()), U32::peek)
}

/// That long from now.
fn after(time: Picoseconds) -> Deadline {
    let nanoseconds = (now() + time) / NANOSECOND;
    Deadline {
        clock: Clock::Monotonic,
        seconds: (nanoseconds / 1_000_000_000) as i64,
        nanoseconds: (nanoseconds % 1_000_000_000) as u32,
    }
}

/// How many turns of others, and how much time, are too much for a waiter that is promised a turn: if all
/// others are before it, for each of them all goes wrong that the lock admits, and scheduler and adversary do
/// their worst.
fn bound(case: &Case<'_>, promised: bool) -> Option<(usize, Picoseconds)> {
    let tuning = case.settings.tunings.adaptive;
    let services = u64::from(case.threads * (tuning.handoff_after + 2));
    let passes = u64::from(tuning.bypasses_before_wake + 100);
    let time = 500 * MICROSECOND + 2 * case.machine.scheduler().latency + passes * case.inside;
    promised.then_some(((services * passes) as usize, services * time))
}

/// SERVICE of [`poundlock_core::poundlock`], in numbers: how often others acquire the mutex while a waiter is
/// in its list.
fn bypass_bound(case: &Case<'_>) -> u64 {
    let tuning = case.settings.tunings.poundlock;
    let stays = u64::from(tuning.handoff_after) + 1;
    let services_a_stay = u64::from(case.threads - 1) * stays + 1;
    let acquisitions_a_service = (1 << tuning.releases_before_wake) + 2;
    stays * services_a_stay * acquisitions_a_service
}

impl Stage {
    pub(super) fn new(case: &Case<'_>, subject: Subject, promise: Promise) -> Stage {
        Stage {
            subject,
            promise,
            scene: case.scene,
            threads: case.threads,
            priorities: case.priorities,
            sections: case.sections,
            inside: case.inside,
            found: RefCell::default(),
            within: Cell::default(),
            sharing: RefCell::default(),
            left: Cell::new(case.threads),
            calls: RefCell::default(),
            acquisitions: RefCell::default(),
            releases: RefCell::default(),
            end: Cell::default(),
            longest_wait: Cell::default(),
            most_passed: Cell::default(),
            at_sides: Cell::default(),
            shy: Cell::new(case.sections * case.threads.div_ceil(4)),
            waiting: RefCell::default(),
            bound: bound(case, promise.turn),
            most_bypassed: promise.bypass.then(|| bypass_bound(case)),
            bypassed: RefCell::new(vec![0; case.threads as usize]),
            store: Store { most: 1 + case.sections % 2, ..Store::default() },
        }
    }

    /// Starts the threads.
    pub(super) fn enter(self: &Rc<Stage>, simulation: &mut Simulation) {
        for number in 0..self.threads {
            let stage = Rc::clone(self);
            simulation.spawn(None, move || {
                set_priority(stage.priority(number));
                stage.play(number);
                stage.ends();
            });
        }
    }

    /// The priority of a thread. A crowd that never ends is ordinary, so that others have their turns.
    fn priority(&self, number: u32) -> u32 {
        let presses = self.scene == Scene::Crowd && number >= self.threads.div_ceil(4);
        if presses { 0 } else { self.priorities - 1 - number % self.priorities }
    }

    /// Threads that have not ended.
    pub(super) fn left(&self) -> u32 {
        self.left.get()
    }

    /// How it went.
    pub(super) fn report(&self) -> Report {
        let (time, accesses) = self.end.get();
        Report {
            sections: self.acquisitions.borrow().len() as u64,
            longest_wait: self.longest_wait.get(),
            most_passed: self.most_passed.get(),
            at_sides: self.at_sides.get(),
            time,
            accesses,
        }
    }

    /// Something is wrong, and the run ends.
    fn finds(&self, found: Found) {
        self.found.borrow_mut().get_or_insert(found);
        Engine::with(Engine::stop);
    }

    fn play(&self, number: u32) {
        let mutex = match &self.subject {
            Subject::Mutex(mutex) => Some(&**mutex),
            _ => None,
        };
        match (self.scene, mutex) {
            (Scene::Deadlines, Some(mutex)) => (0..self.sections).for_each(|_| self.hurried(mutex)),
            (Scene::Store, Some(mutex)) if number.is_multiple_of(2) => self.produce(mutex),
            (Scene::Store, Some(mutex)) => self.consume(mutex),
            (Scene::Crowd, _) if number >= self.threads.div_ceil(4) => self.press(),
            (Scene::Crowd, _) => (0..self.sections).for_each(|_| self.wait_for_the_crowd()),
            _ => (0..self.sections).for_each(|_| {
                self.pass(Visit::Any);
                self.idle();
            }),
        }
    }

    /// A thread has ended. The last one looks for what is left.
    fn ends(&self) {
        self.left.set(self.left.get() - 1);
        if self.left.get() > 0 {
            return;
        }
        self.end.set((now(), Engine::with(Engine::traffic).accesses));
        if !self.subject.is_free() || !self.store.room.0.is_idle() || !self.store.goods.0.is_idle() {
            self.finds(Found::Left);
        }
        if let Some(thread) = (0..self.threads).find(|&thread| !Sim::record(thread).is_at_rest()) {
            self.finds(Found::Kept(thread));
        }
        if Sim::lock_hash().is_some_and(|lines| lines.iter().any(|line| !line.is_empty())) {
            self.finds(Found::Hashed);
        }
    }

    // One thread and the lock.

    /// About to acquire it. Returns the time, and the number of acquisitions so far.
    fn calls(&self) -> (Picoseconds, usize) {
        self.calls.borrow_mut().push(now());
        self.bypassed.borrow_mut()[me() as usize] = 0;
        Engine::with(Engine::since);
        (now(), self.acquisitions.borrow().len())
    }

    /// It has been acquired.
    fn acquired(&self, called: (Picoseconds, usize)) {
        self.enters();
        self.counts(called);
    }

    /// As [`Stage::acquired`], for the checker's questions about the wait.
    fn counts(&self, (begun, before): (Picoseconds, usize)) {
        let since = Engine::with(Engine::since);
        let acquisitions = self.acquisitions.borrow().len();
        let passed = acquisitions - before;
        self.longest_wait.set(self.longest_wait.get().max(now() - begun));
        self.most_passed.set(self.most_passed.get().max(passed as u32));
        self.at_sides.set(self.at_sides.get() + u64::from(stands_at_a_side()));
        let queued = match self.promise.ordered {
            None => None,
            Some(Wait::Asleep) => since.sleeps,
            Some(Wait::Spinning) => since.waits,
        };
        if let Some(queued) = queued {
            let until = |times: &RefCell<Vec<Picoseconds>>, also: bool| {
                times.borrow().partition_point(|&time| time < queued || also && time == queued)
            };
            let passed = acquisitions - until(&self.acquisitions, true);
            // Without itself. A thread that gave up may come back to its place.
            let there = match self.scene {
                Scene::Deadlines => self.threads as usize - 1,
                _ => until(&self.calls, true) - until(&self.releases, false) - 1,
            };
            let is_most_urgent = Sim::priority() + 1 == self.priorities;
            if passed > there && is_most_urgent {
                self.finds(Found::Overtaken { thread: me(), passed: passed as u32, there: there as u32 });
            }
        }
        self.acquisitions.borrow_mut().push(now());
    }

    fn released(&self) {
        self.releases.borrow_mut().push(now());
    }

    fn enters(&self) {
        let others = self.within.replace(Some(me())).or(self.sharing.borrow().first().copied());
        if let Some(other) = others {
            self.finds(Found::Overlap(other, me()));
        }
        if let Some(bound) = self.most_bypassed {
            self.passes_sleepers(bound);
        }
    }

    /// The caller has acquired it, perhaps past others that sleep.
    fn passes_sleepers(&self, bound: u64) {
        let mut bypassed = self.bypassed.borrow_mut();
        bypassed[me() as usize] = 0;
        for (thread, passed) in bypassed.iter_mut().enumerate() {
            let thread = thread as u32;
            let is_most_urgent = self.priority(thread) + 1 == self.priorities;
            if thread == me() || !is_most_urgent || !Sim::record(thread).is_asleep(U32::peek) {
                continue;
            }
            *passed += 1;
            if *passed > bound {
                self.finds(Found::Bypassed { thread, passed: *passed, bound });
            }
        }
    }

    fn shares(&self) {
        self.sharing.borrow_mut().push(me());
        if let Some(other) = self.within.get() {
            self.finds(Found::Overlap(other, me()));
        }
    }

    /// One of its shares.
    fn shares_no_more(&self) {
        let mut sharing = self.sharing.borrow_mut();
        if let Some(place) = sharing.iter().position(|&thread| thread == me()) {
            sharing.swap_remove(place);
        }
    }

    fn leaves(&self) {
        self.within.set(None);
    }

    /// Zero, too: sections that are over before others notice.
    fn section(&self) {
        self.stays();
        self.leaves();
    }

    fn stays(&self) {
        Engine::with(|engine| engine.reach(Place::Inside));
        work(draw(0..4) * self.inside / 3);
    }

    fn idle(&self) {
        work(draw(0..4) * 500 * NANOSECOND);
    }

    fn pass(&self, visit: Visit) {
        let lock: &dyn Lock = match &self.subject {
            Subject::Lock(lock) => &**lock,
            Subject::Mutex(mutex) => &**mutex,
            Subject::RwLock(lock) => return self.visit(lock, visit),
        };
        self.patiently(false, |_, begun| {
            lock.lock();
            self.acquired(begun);
            self.section();
            lock.unlock();
            true
        });
    }

    /// Waits, and gives up now and then if it is in a hurry: more and more patiently, or it may never
    /// succeed.
    fn patiently(&self, hurried: bool, visit: impl Fn(Option<&Deadline>, (Picoseconds, usize)) -> bool) {
        for patience in 0.. {
            let begun = self.calls();
            let deadline = hurried.then(|| after((draw(0..30) * MICROSECOND) << patience.min(8)));
            let came = visit(deadline.as_ref(), begun);
            self.released();
            if came {
                return;
            }
            self.expects_the_end_of(deadline.as_ref());
            self.idle();
        }
    }

    // One thread and a lock that readers share.

    fn visit(&self, lock: &RwLock, visit: Visit) {
        let hurried = self.scene == Scene::Deadlines && !one_in(3);
        let does = match visit {
            Visit::Any => draw(0..10),
            // One in sixteen may write.
            Visit::Reads => draw(0..4) + 5 * u64::from(one_in(16)),
            Visit::Writes => 5,
        };
        self.patiently(hurried, |deadline, begun| match does {
            0..5 => self.reads(lock, deadline, begun),
            5..8 => self.writes(lock, deadline, begun),
            _ => self.looks(lock, deadline, begun),
        });
    }

    /// A wait has been given up.
    fn expects_the_end_of(&self, deadline: Option<&Deadline>) {
        if !deadline.is_some_and(Sim::expired) {
            self.finds(Found::Early(me()));
        }
    }

    fn reads(&self, lock: &RwLock, deadline: Option<&Deadline>, begun: (Picoseconds, usize)) -> bool {
        if !lock.read(deadline) {
            return false;
        }
        self.shares();
        self.counts(begun);
        self.stays();
        if one_in(4) {
            // Once more, whatever threads wait.
            lock.raw().lock_read(Preference::ReaderPreferring);
            self.shares();
            self.stays();
            self.shares_no_more();
            lock.raw().unlock_read();
        }
        self.shares_no_more();
        lock.raw().unlock_read();
        true
    }

    fn writes(&self, lock: &RwLock, deadline: Option<&Deadline>, begun: (Picoseconds, usize)) -> bool {
        if !lock.write(deadline) {
            return false;
        }
        self.acquired(begun);
        self.section();
        match draw(0..4) {
            0 => {
                lock.raw().downgrade();
                self.reads_on(lock, false);
            }
            1 => {
                lock.raw().downgrade_to_upgradable();
                self.reads_on(lock, true);
            }
            _ => lock.raw().unlock_write(),
        }
        true
    }

    /// Inside as a reader, whether it may write or not.
    fn reads_on(&self, lock: &RwLock, mut upgradable: bool) {
        self.shares();
        self.stays();
        if upgradable && one_in(2) {
            lock.raw().downgrade_upgradable();
            upgradable = false;
            self.stays();
        }
        self.shares_no_more();
        if upgradable { lock.raw().unlock_upgradable() } else { lock.raw().unlock_read() }
    }

    fn looks(&self, lock: &RwLock, deadline: Option<&Deadline>, begun: (Picoseconds, usize)) -> bool {
        if !lock.look(deadline) {
            return false;
        }
        self.shares();
        self.counts(begun);
        self.stays();
        self.shares_no_more();
        let limit = deadline.map(|_| after(draw(0..60) * MICROSECOND));
        if one_in(3) || !lock.upgrade(limit.as_ref()) {
            self.reads_on(lock, true);
            return true;
        }
        self.enters();
        self.section();
        lock.raw().unlock_write();
        true
    }

    /// Gives up now and then, and comes back.
    fn hurried(&self, mutex: &dyn Mutex) {
        if one_in(3) {
            self.pass(Visit::Any);
            return;
        }
        self.patiently(true, |deadline, begun| {
            let came = deadline.is_some_and(|deadline| mutex.lock_until(deadline));
            if came {
                self.acquired(begun);
                self.section();
                mutex.unlock();
            }
            came
        });
        self.idle();
    }

    // A few threads that come now and then, and a crowd that takes the lock again as soon as it has released
    // it.

    fn press(&self) {
        // Where no turn is promised, the crowd ends at some time.
        let mut patience = if self.bound.is_some() { u32::MAX } else { 10 * self.sections };
        while self.shy.get() > 0 && patience > 0 {
            patience -= 1;
            self.pass(Visit::Reads);
            let Some((most, longest)) = self.bound else { continue };
            let acquisitions = self.acquisitions.borrow().len();
            let starves = |&(_, begun, before): &(u32, Picoseconds, usize)| {
                acquisitions - before > most && now() - begun > longest
            };
            let starved = self.waiting.borrow().iter().copied().find(starves);
            if let Some((thread, begun, before)) = starved {
                let passed = (acquisitions - before) as u32;
                self.finds(Found::Starved { thread, passed, time: now() - begun });
            }
        }
    }

    fn wait_for_the_crowd(&self) {
        work(draw(1..40) * MICROSECOND);
        self.waiting.borrow_mut().push((me(), now(), self.acquisitions.borrow().len()));
        self.pass(Visit::Writes);
        self.waiting.borrow_mut().retain(|&(thread, ..)| thread != me());
        self.shy.set(self.shy.get() - 1);
    }

    // Producers, consumers, and room for a thing or two.

    fn wanted(&self) -> u32 {
        self.sections * self.threads
    }

    fn produce(&self, mutex: &dyn Mutex) {
        let Store { most, made, taken, room, goods } = &self.store;
        let is_full = || made.get() < self.wanted() && made.get() - taken.get() == *most;
        while self.moves(mutex, made, &room.0, is_full, &goods.0) {
            self.idle();
        }
    }

    fn consume(&self, mutex: &dyn Mutex) {
        let Store { made, taken, room, goods, .. } = &self.store;
        let is_empty = || taken.get() < self.wanted() && taken.get() == made.get();
        while self.moves(mutex, taken, &goods.0, is_empty, &room.0) {
            self.idle();
        }
    }

    /// Waits until it can, and adds to `count`. False if `count` is reached, or the thread has lost patience.
    fn moves(
        &self,
        mutex: &dyn Mutex,
        count: &Cell<u32>,
        mine: &RawCondvar<Sim>,
        must_wait: impl Fn() -> bool,
        theirs: &RawCondvar<Sim>,
    ) -> bool {
        let begun = self.calls();
        mutex.lock();
        self.acquired(begun);
        while must_wait() {
            // A thread that leaves has got no signal, or others would lose it. One of each sort stays.
            if self.wait(mutex, mine) == Outcome::TimedOut && me() >= 2 && one_in(2) {
                self.leaves();
                mutex.unlock();
                self.released();
                return false;
            }
        }
        let over = count.get() == self.wanted();
        if !over {
            count.set(count.get() + 1);
        }
        let last = !over && count.get() == self.wanted();
        self.section();
        let signal = || {
            if one_in(16) {
                theirs.broadcast()
            } else {
                theirs.signal()
            }
            if last {
                // Threads that wait here have nothing to do any more.
                mine.broadcast();
            }
        };
        // In either order.
        if one_in(2) {
            signal();
            mutex.unlock();
        } else {
            mutex.unlock();
            signal();
        }
        self.released();
        !over && !last
    }

    fn wait(&self, mutex: &dyn Mutex, condvar: &RawCondvar<Sim>) -> Outcome {
        let deadline = one_in(8).then(|| after(draw(0..60) * MICROSECOND));
        self.leaves();
        let outcome = if one_in(8) {
            condvar.wait(&Woken(mutex), deadline.as_ref(), never)
        } else {
            mutex.wait(condvar, deadline.as_ref())
        };
        self.enters();
        if outcome == Outcome::TimedOut && !deadline.is_some_and(|deadline| Sim::expired(&deadline)) {
            self.finds(Found::Early(me()));
        }
        outcome
    }
}
