//! The readers-writer lock: exclusion, no lost wake-up, nothing left behind, nobody forgotten; with
//! deadlines, upgrades and downgrades, in forked children, and destroyed by its next owner.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::platform::Atomic;
use poundlock_core::rwlock::{Preference, RawRwLock};
use poundlock_model::{
    Fault, Model, Modelled, Mortal, Operation, Patient, Report, RwLockWords, Settings, World, explore,
    rwlock_words,
};

use crate::adaptive::GHOST;
use crate::scenes::{
    DEADLOCK, LATE, THREE, TWO, UNORDERED, asleep, at_once_or_asleep, caught, each_is_caught, faulty, join,
    sometimes,
};

const FOUR: Settings = Settings { threads: 4, ..TWO };
/// Enough for a look.
const SPINNING: Settings = Settings { spins: 2, ..Settings::DEFAULT };

// In its word.
const WRITER: u32 = 1 << 31;
const UPGRADING: u32 = 1 << 29;
const HEAD_WAITING: u32 = 1 << 28;
const PARKED: u32 = 1 << 27;
const WAKE_IN_FLIGHT: u32 = 1 << 26;
const BIASED: u32 = 1 << 25;
const DRAINING: u32 = 1 << 24;
const READERS: u32 = DRAINING - 1;

/// Places that the models count.
const SHARED: usize = 0;
const RESERVED: usize = 1;
const GAVE_UP: usize = 2;
const UPGRADED: usize = 3;
// Instead of that, where destruction is the subject.
const DESTROYED: usize = 3;
// ... and where the table of readers is.
const BECAME_BIASED: usize = 1;
const DRAINED: usize = 2;
const COUNTED: usize = 3;

const POLICIES: [Preference; 3] =
    [Preference::PhaseFair, Preference::ReaderPreferring, Preference::WriterPreferring];

/// What a thread does with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Reads,
    Writes,
    /// Writes, then reads without leaving.
    Downgrades,
    /// Reads as the one that may write, and leaves.
    Looks,
    /// Reads as the one that may write, and then writes.
    Upgrades,
    /// Reads, and reads again inside: whoever waits.
    ReadsTwice,
}

use Does::*;

/// A lock and what it protects. Two accesses to that which the lock does not order, one of them a write, fail
/// the model.
struct Shelf<P: Modelled> {
    lock: RawRwLock<P>,
    policy: Preference,
    value: UnsafeCell<u32>,
    /// How many have come in, for the model's own use.
    came: Cell<u32>,
}

impl<P: Modelled> Shelf<P> {
    fn new(policy: Preference) -> Rc<Self> {
        Rc::new(Self::unshared(policy))
    }

    fn unshared(policy: Preference) -> Self {
        Shelf { lock: RawRwLock::default(), policy, value: UnsafeCell::new(0), came: Cell::new(0) }
    }

    /// One whose readers enter by the table, until a writer comes.
    fn biased(policy: Preference) -> Rc<Self> {
        let shelf = Self::unshared(policy);
        shelf.words().word.store(BIASED, Relaxed);
        Rc::new(shelf)
    }

    fn words(&self) -> RwLockWords<'_> {
        rwlock_words(&self.lock)
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.value.with(|value| unsafe { *value })
    }

    /// Returns what it was.
    fn write(&self) -> u32 {
        // SAFETY: as in `read`.
        self.value.with_mut(|value| unsafe {
            *value += 1;
            *value - 1
        })
    }

    fn enter(&self, does: Does) {
        match does {
            Reads | ReadsTwice => self.lock.lock_read(self.policy),
            Writes | Downgrades => self.lock.lock_write(self.policy),
            Looks | Upgrades => self.lock.lock_upgradable(self.policy),
        }
    }

    /// Goes in or gives up.
    fn enter_until(&self, does: Does, world: &World) -> bool {
        let entered = match does {
            Reads | ReadsTwice => self.lock.lock_read_until(self.policy, &world.timer(0)),
            Writes | Downgrades => self.lock.lock_write_until(self.policy, &world.timer(0)),
            Looks | Upgrades => self.lock.lock_upgradable_until(self.policy, &world.timer(0)),
        };
        if !entered {
            world.reached(GAVE_UP);
        }
        entered
    }

    /// What one does who is inside, and goes out. Returns how often it wrote.
    fn leave(&self, does: Does) -> u32 {
        let lock = &self.lock;
        match does {
            Reads => {
                self.read();
                lock.unlock_read();
                0
            }
            Writes => {
                self.write();
                lock.unlock_write();
                1
            }
            Downgrades => {
                let before = self.write();
                lock.downgrade();
                assert_eq!(self.read(), before + 1, "somebody wrote in between");
                lock.unlock_read();
                1
            }
            Looks => {
                self.read();
                lock.unlock_upgradable();
                0
            }
            Upgrades => {
                let before = self.read();
                lock.upgrade();
                assert_eq!(self.write(), before, "somebody wrote in between");
                lock.unlock_write();
                1
            }
            ReadsTwice => {
                let before = self.read();
                lock.lock_read(Preference::ReaderPreferring);
                assert_eq!(self.read(), before, "somebody wrote in between");
                lock.unlock_read();
                lock.unlock_read();
                0
            }
        }
    }

    /// Goes in and out. Returns how often it wrote.
    fn pass(&self, does: Does) -> u32 {
        self.enter(does);
        self.leave(does)
    }

    fn passer(self: &Rc<Self>, world: &World, index: u32, does: Does) -> JoinHandle<u32> {
        let shelf = self.clone();
        world.spawn(index, move |_| shelf.pass(does))
    }

    /// Threads from that number on that do this and sleep, in this order. Somebody is inside.
    fn sleepers(self: &Rc<Self>, world: &World, first: u32, all: &[Does]) -> Vec<JoinHandle<u32>> {
        let start = |index| self.passer(world, index, all[(index - first) as usize]);
        world.unexplored(|| asleep(world, first..first + all.len() as u32, start))
    }

    /// At the end, when all threads have been joined.
    fn finish(&self, writes: u32) {
        assert_eq!(self.write(), writes, "a write was lost");
        assert!(self.lock.is_idle(), "something is left in the lock");
    }
}

fn watch<P: Modelled>(world: &World, shelf: &Rc<Shelf<P>>) {
    let word = shelf.words().word;
    world.watch(word, SHARED, |word| word & READERS > 1);
    world.watch(word, RESERVED, |word| word & HEAD_WAITING != 0);
    world.watch_change(word, UPGRADED, |before, after| before & UPGRADING != 0 && after & WRITER != 0);
}

/// The main thread does the first, others the rest, all at once.
fn all_at_once<P: Modelled>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    policy: Preference,
    all: &'static [Does],
) -> Report {
    let name = format!("rwlock: {name}, {policy:?}");
    explore::<P>(&name, preemptions, settings, move |world| {
        let shelf = Shelf::<P>::new(policy);
        watch(world, &shelf);
        let others = (1..).zip(&all[1..]).map(|(index, &does)| shelf.passer(world, index, does)).collect();
        let writes = shelf.pass(all[0]);
        let writes = writes + join(others);
        shelf.finish(writes);
    })
}

/// The main thread writes or reads, the others sleep; it leaves, and does more.
fn in_turn<P: Modelled>(
    name: &str,
    settings: Settings,
    policy: Preference,
    holds: Does,
    asleep: &'static [Does],
    more: &'static [Does],
) -> Report {
    let name = format!("rwlock: {name}, {policy:?}");
    explore::<P>(&name, 2, settings, move |world| {
        let shelf = Shelf::<P>::new(policy);
        watch(world, &shelf);
        shelf.enter(holds);
        let others = shelf.sleepers(world, 1, asleep);
        let mut writes = shelf.leave(holds);
        writes += more.iter().map(|&does| shelf.pass(does)).sum::<u32>();
        writes += join(others);
        shelf.finish(writes);
    })
}

#[test]
fn readers_and_writers() {
    const THREE_SPINNING: Settings = Settings { threads: 3, ..SPINNING };
    for policy in POLICIES {
        let report = all_at_once::<Model>("a reader and a writer", 3, TWO, policy, &[Reads, Writes]);
        assert!(report.sleeps > 0 && report.woken > 0, "{report:?}");
        let all = &[Reads, Writes, Reads];
        let report = all_at_once::<Model>("two readers and a writer", 2, THREE, policy, all);
        assert!(report.sleeps > 0, "{report:?}");
        all_at_once::<Model>("two writers and a reader", 2, THREE, policy, &[Writes, Reads, Writes]);
        all_at_once::<Model>("spinning", 2, SPINNING, policy, &[Reads, Writes]);
        all_at_once::<Patient>("spinning, three", 1, THREE_SPINNING, policy, all);
    }
    let report = all_at_once::<Model>("two writers", 3, TWO, Preference::PhaseFair, &[Writes, Writes]);
    assert!(report.sleeps > 0 && report.woken > 0, "{report:?}");
    all_at_once::<Model>("two writers that spin", 3, SPINNING, Preference::PhaseFair, &[Writes, Writes]);
}

#[test]
fn recursive_readers() {
    for policy in POLICIES {
        all_at_once::<Model>("a recursive reader", 3, TWO, policy, &[ReadsTwice, Writes]);
        all_at_once::<Model>("recursive readers", 1, THREE, policy, &[ReadsTwice, Writes, ReadsTwice]);
    }
}

#[test]
fn downgrading() {
    for policy in POLICIES {
        all_at_once::<Model>("downgrading", 2, THREE, policy, &[Downgrades, Reads, Writes]);
        let report =
            in_turn::<Model>("downgraded to sleepers", THREE, policy, Downgrades, &[Reads, Writes], &[]);
        assert!(report.reached[SHARED] > 0, "nobody came in beside the reader: {report:?}");
    }
}

#[test]
fn upgrading() {
    for policy in POLICIES {
        let report = all_at_once::<Model>("upgrading beside a reader", 3, TWO, policy, &[Upgrades, Reads]);
        assert!(report.reached[UPGRADED] > 0 && report.woken > 0, "{report:?}");
        all_at_once::<Model>("two that upgrade", 3, TWO, policy, &[Upgrades, Upgrades]);
        all_at_once::<Model>("upgrading and writing", 2, THREE, policy, &[Upgrades, Writes, Reads]);
        all_at_once::<Model>("upgrading, looking, reading", 1, THREE, policy, &[Upgrades, Looks, Reads]);
        all_at_once::<Model>("upgrading and spinning", 2, SPINNING, policy, &[Upgrades, Reads]);
        // One that may upgrade, and leaves.
        all_at_once::<Model>("looking", 2, THREE, policy, &[Looks, Upgrades, Writes]);
    }
    // Who may upgrade can enter beside the reader that is about to wake it.
    all_at_once::<Model>("called as it enters", 2, THREE, Preference::PhaseFair, &[Looks, Looks, Reads]);
}

/// Whoever waits to become the writer sees readers leave only.
#[test]
fn no_reader_passes_an_upgrade() {
    const CAME_IN: usize = SHARED;
    for policy in [Preference::PhaseFair, Preference::WriterPreferring] {
        let name = format!("rwlock: passing an upgrade, {policy:?}");
        let report = explore::<Model>(&name, 2, THREE, move |world| {
            let shelf = Shelf::<Model>::new(policy);
            let word = shelf.words().word;
            world
                .watch_change(word, UPGRADED, |before, after| before & UPGRADING != 0 && after & WRITER != 0);
            world.watch_change(word, CAME_IN, |before, after| {
                before & UPGRADING != 0 && after & READERS > before & READERS
            });
            shelf.enter(Reads);
            let mut others = shelf.sleepers(world, 1, &[Upgrades]);
            others.push(shelf.passer(world, 2, Reads));
            shelf.leave(Reads);
            shelf.finish(join(others));
        });
        assert!(report.reached[UPGRADED] == report.executions, "{report:?}");
        assert_eq!(report.reached[CAME_IN], 0, "{report:?}");
    }
}

#[test]
fn sleepers_in_turn() {
    for policy in POLICIES {
        for holds in [Reads, Writes] {
            let asleep: &[Does] = if holds == Reads { &[Writes, Writes] } else { &[Reads, Writes] };
            let report = in_turn::<Model>("in turn", THREE, policy, holds, asleep, &[Writes]);
            assert!(report.woken > 0, "{report:?}");
        }
    }
}

#[test]
fn many_sleepers() {
    for policy in POLICIES {
        let report = in_turn::<Patient>("many sleepers", FOUR, policy, Writes, &[Reads, Writes, Reads], &[]);
        assert!(report.woken > 0, "{report:?}");
        // The first reader comes in before the writer, the other after it.
        assert_eq!(report.reached[SHARED] > 0, policy != Preference::WriterPreferring, "{report:?}");
    }
}

/// Who was woken in vain keeps others out.
#[test]
fn reserved() {
    let more = &[Writes, Writes];
    for (policy, asleep) in [(Preference::ReaderPreferring, &[Writes]), (Preference::PhaseFair, &[Reads])] {
        let report = in_turn::<Model>("reserved", TWO, policy, Writes, asleep, more);
        assert!(report.reached[RESERVED] > 0, "{report:?}");
    }
}

#[test]
fn displaced_and_restless() {
    // All run on one CPU: whoever waits displaces the writer, and knows it.
    let displaced = Settings { threads: 3, tags: [1; 5], ..SPINNING };
    let restless = Settings { restless: 2, ..TWO };
    for policy in POLICIES {
        let report = all_at_once::<Patient>("displaced", 1, displaced, policy, &[Writes, Reads, Writes]);
        assert!(report.sleeps > 0);
        all_at_once::<Model>("restless", 2, restless, policy, &[Reads, Writes]);
        all_at_once::<Model>("restless, upgrading", 2, restless, policy, &[Reads, Upgrades]);
    }
}

/// The two that follow the main thread are ordinary; the one after them is a real-time thread.
const URGENT_LAST: Settings = Settings { priorities: [0, 0, 0, 5, 0], ..FOUR };
/// Of two that follow the main thread, the second is a real-time thread.
const URGENT_SECOND: Settings = Settings { priorities: [0, 0, 5, 0, 0], ..THREE };

#[test]
fn a_real_time_thread_comes() {
    for policy in POLICIES {
        for all in [&[Writes, Writes, Writes], &[Reads, Writes, Upgrades], &[Writes, Reads, Reads]] {
            all_at_once::<Model>("a real-time thread comes", 1, URGENT_SECOND, policy, all);
        }
        let restless = Settings { restless: 1, ..URGENT_SECOND };
        all_at_once::<Patient>("a restless real-time thread", 1, restless, policy, &[Writes, Writes, Writes]);
    }
}

/// Others sleep; the real-time thread comes as the main thread leaves.
#[test]
fn a_real_time_thread_comes_among_sleepers() {
    let all = [
        (Writes, [Writes, Writes], Writes),
        (Writes, [Reads, Looks], Upgrades),
        (Writes, [Reads, Writes], Reads),
        (Reads, [Writes, Writes], Looks),
    ];
    for policy in POLICIES {
        for (holds, sleep, comes) in all {
            let name = format!("rwlock: {comes:?} comes urgently, {holds:?}, {sleep:?}, {policy:?}");
            explore::<Model>(&name, 1, URGENT_LAST, move |world| {
                let shelf = Shelf::<Model>::new(policy);
                shelf.enter(holds);
                let mut others = shelf.sleepers(world, 1, &sleep);
                others.push(shelf.passer(world, 3, comes));
                let writes = shelf.leave(holds);
                shelf.finish(writes + join(others));
            });
        }
    }
}

/// PRIORITY: once both sleep, the more urgent one is first, whoever came first and however they got in each
/// other's way.
#[test]
fn the_more_urgent_one_is_first() {
    let cases = [
        // The first sleep of a writer that is fair ends by itself.
        (Preference::PhaseFair, Reads),
        (Preference::ReaderPreferring, Writes),
        (Preference::WriterPreferring, Writes),
        (Preference::WriterPreferring, Looks),
    ];
    for (policy, does) in cases {
        more_urgent_first(URGENT_SECOND, policy, does);
    }
}

const LESS_URGENT_FIRST: &str = "the less urgent one was first";

fn more_urgent_first(settings: Settings, policy: Preference, does: Does) {
    let name = format!("rwlock: the more urgent one, {does:?}, {policy:?}");
    explore::<Patient>(&name, 3, settings, move |world| {
        let shelf = Shelf::<Patient>::new(policy);
        let first = Rc::new(Cell::new(0));
        shelf.enter(Writes);
        let noted = first.clone();
        world.watch_change(shelf.words().word, SHARED, move |before, after| {
            let came_in = after & READERS > before & READERS || after & !before & WRITER != 0;
            if came_in && noted.get() == 0 {
                noted.set(World::present().index());
            }
            came_in
        });
        let others = vec![shelf.passer(world, 1, does), shelf.passer(world, 2, does)];
        // The second may be woken by the first, to be the head, but not the other way round.
        [2, 1, 2].into_iter().for_each(|index| world.await_sleep(index));
        shelf.lock.unlock_write();
        let writes = join(others);
        assert_eq!(first.get(), 2, "{LESS_URGENT_FIRST}");
        shelf.finish(writes);
    });
}

#[test]
fn without_a_record() {
    let settings = Settings { unregistered: 2, ..TWO };
    for all in [&[Reads, Writes], &[Writes, Reads], &[Reads, Upgrades], &[Upgrades, Reads]] {
        all_at_once::<Model>("without a record", 2, settings, Preference::PhaseFair, all);
    }
}

/// Does it if that is possible at once. Returns how often it wrote.
fn at_once(world: &World, entered: bool, leave: impl FnOnce() -> u32) -> u32 {
    if entered {
        return leave();
    }
    world.reached(GAVE_UP);
    0
}

#[test]
fn trying() {
    for policy in POLICIES {
        // A small one, so that all of it is explored.
        let report = explore::<Model>(&format!("rwlock: trying to read, {policy:?}"), 3, TWO, move |world| {
            let shelf = Shelf::<Model>::new(policy);
            let other = shelf.passer(world, 1, Writes);
            at_once(world, shelf.lock.try_lock_read(policy), || shelf.leave(Reads));
            shelf.finish(other.join().unwrap());
        });
        sometimes(report, GAVE_UP);
        explore::<Model>(&format!("rwlock: trying, {policy:?}"), 3, TWO, move |world| {
            let shelf = Shelf::<Model>::new(policy);
            let lock = &shelf.lock;
            let other = shelf.passer(world, 1, Writes);
            let mut writes = at_once(world, lock.try_lock_read(policy), || shelf.leave(Reads));
            writes += at_once(world, lock.try_lock_upgradable(), || {
                let upgraded = lock.try_upgrade();
                if upgraded {
                    shelf.write();
                    lock.downgrade_to_upgradable();
                    shelf.read();
                }
                lock.downgrade_upgradable();
                shelf.leave(Reads);
                u32::from(upgraded)
            });
            writes += at_once(world, lock.try_lock_write(), || shelf.leave(Writes));
            shelf.finish(writes + other.join().unwrap());
        });
    }
}

/// The main thread is inside. Thread 1 sleeps and may give up, the others sleep for as long as it takes. Its
/// end comes before the main thread leaves or after.
fn giving_up<P: Modelled>(
    name: &str,
    settings: Settings,
    policy: Preference,
    [holds, impatient]: [Does; 2],
    patient: &'static [Does],
    after: bool,
) {
    let name = format!("rwlock: {name}, {policy:?}");
    let report = explore::<P>(&name, 2, settings, move |world| {
        let shelf = Shelf::<P>::new(policy);
        shelf.enter(holds);
        let waiting = shelf.clone();
        let wait = move |world: &World| match impatient {
            Upgrades => {
                waiting.enter(Upgrades);
                let upgraded = waiting.lock.upgrade_until(&world.timer(0));
                if !upgraded {
                    world.reached(GAVE_UP);
                }
                waiting.leave(if upgraded { Writes } else { Looks })
            }
            _ if waiting.enter_until(impatient, world) => waiting.leave(impatient),
            _ => 0,
        };
        let mut others = world.unexplored(|| {
            let first = world.spawn(1, wait);
            world.await_sleep(1);
            vec![first]
        });
        others.extend(shelf.sleepers(world, 2, patient));
        if !after {
            world.expire(0);
        }
        loom::thread::yield_now();
        let writes = shelf.leave(holds);
        if after {
            world.expire(0);
        }
        shelf.finish(writes + join(others));
    });
    assert!(after || report.reached[GAVE_UP] > 0, "nobody gave up: {report:?}");
    assert!(!after || report.reached[GAVE_UP] < report.executions, "everybody gave up");
}

#[test]
fn times_out() {
    for policy in POLICIES {
        for both in [[Writes, Reads], [Writes, Writes], [Reads, Writes], [Writes, Looks], [Reads, Upgrades]] {
            giving_up::<Model>("times out", TWO, policy, both, &[], false);
            giving_up::<Model>("times out after the other left", TWO, policy, both, &[], true);
        }
    }
}

/// A reader waits behind a writer for a lock that readers hold: when the writer gives up it comes in.
#[test]
fn times_out_before_another() {
    let times_out = |name, policy, both, other, after| {
        giving_up::<Model>(&format!("times out before {name}"), THREE, policy, both, other, after);
    };
    for policy in [Preference::PhaseFair, Preference::WriterPreferring] {
        times_out("a writer", policy, [Reads, Writes], &[Writes], false);
        times_out("a reader", policy, [Writes, Writes], &[Reads], false);
        times_out("a reader, called", policy, [Writes, Reads], &[Reads], true);
    }
    times_out("one behind the bar", Preference::WriterPreferring, [Reads, Writes], &[Reads], false);
    // Who gives an upgrade up lets those in that waited because of it.
    times_out("a reader, upgrading", Preference::PhaseFair, [Reads, Upgrades], &[Reads], false);
}

// Destroyed by whoever is the last to come in, if that is a writer: all others have left by then, but may not
// have returned.

fn destroyed_by_the_last<P: Modelled>(
    name: &str,
    settings: Settings,
    all: &'static [Does],
    settled: bool,
) -> Report {
    destroyed_from::<P>(0, name, settings, all, settled)
}

fn destroyed_from<P: Modelled>(
    word: u32,
    name: &str,
    settings: Settings,
    all: &'static [Does],
    settled: bool,
) -> Report {
    let name = format!("rwlock: {name}, {word:#x}");
    explore::<P>(&name, 2, settings, move |world| {
        let shelf = Mortal::new(world, Shelf::<P>::unshared(Preference::PhaseFair));
        shelf.words().word.store(word, Relaxed);
        let work = move |shelf: &Mortal<Shelf<P>>, does: Does, inside: bool| {
            if !inside {
                shelf.enter(does);
            }
            shelf.came.set(shelf.came.get() + 1);
            let last = does != Reads && shelf.came.get() == all.len() as u32;
            shelf.leave(does);
            if last {
                World::present().reached(DESTROYED);
                shelf.destroy();
            }
        };
        let start = |index: u32| {
            let shelf = shelf.clone();
            world.spawn(index, move |_: &World| work(&shelf, all[index as usize], false))
        };
        let hold = settled.then_some(|| shelf.enter(all[0]));
        let others = at_once_or_asleep(world, 1..all.len() as u32, hold, start);
        work(&shelf, all[0], settled);
        for other in others {
            other.join().unwrap();
        }
    })
}

#[test]
fn destroyed() {
    let ways: [&[Does]; 5] = [
        &[Reads, Writes],
        &[Writes, Writes],
        &[Reads, Writes, Reads],
        &[Writes, Reads, Writes],
        &[Reads, Downgrades],
    ];
    for all in ways {
        let settings = Settings { threads: all.len(), ..TWO };
        for settled in [false, true] {
            // Readers do not wait for a reader.
            if settled && all[0] == Reads && all[1..].contains(&Reads) {
                continue;
            }
            for word in [0, BIASED] {
                let report = destroyed_from::<Model>(word, "destroyed", settings, all, settled);
                // The first executions of three threads at a biased one do not come to that.
                let few = word != 0 && all.len() > 2;
                assert!(few || report.reached[DESTROYED] > 0, "{all:?}: {report:?}");
            }
        }
    }
    destroyed_by_the_last::<Model>("destroyed, spinning", SPINNING, &[Reads, Writes], false);
}

// Forks.

/// The parent's waiters are not in the child, whatever they left: two threads of the child come to the lock,
/// one of which may be inside already.
fn forked(name: &str, all: [Does; 2], held: bool, word: u32, wait_lock: u32) {
    let settings = Settings { epoch: 7, ..TWO };
    let name = format!("rwlock: {name}, {all:?}");
    let report = explore::<Model>(&name, 2, settings, move |world| {
        let shelf = Shelf::<Model>::new(Preference::WriterPreferring);
        if held {
            shelf.enter(Writes);
        }
        let words = shelf.words();
        words.word.store(word | if held { WRITER } else { 0 }, Relaxed);
        words.head.store(GHOST, Relaxed);
        words.readers.store(GHOST + 4, Relaxed);
        words.writers.store(GHOST, Relaxed);
        words.wait_lock.store(wait_lock, Relaxed);
        let other = shelf.passer(world, 1, all[1]);
        let writes = if held { shelf.leave(Writes) } else { shelf.pass(all[0]) };
        let writes = writes + other.join().unwrap();
        if words.wait_lock.peek() & 0xff != settings.epoch {
            // Nobody had to wait, so nobody looked at what is there.
            assert_eq!(shelf.write(), writes);
            return;
        }
        world.reached(0);
        shelf.finish(writes);
    });
    assert!(report.reached[0] > 0 && report.woken > 0, "{report:?}");
}

#[test]
fn in_a_forked_child() {
    const LOCKED: u32 = 3 << 30;
    for all in [[Reads, Writes], [Writes, Reads], [Writes, Writes]] {
        for held in [false, true] {
            forked("forked, asleep", all, held, PARKED, 3);
            forked("forked, reserved", all, held, HEAD_WAITING, 3);
            forked("forked, reserved and asleep", all, held, HEAD_WAITING | PARKED, LOCKED | 3);
        }
    }
}

// The table of readers.

/// As [`watch`], of what happens to the table: a drain, one that found readers, and a bias that comes.
fn watch_table<P: Modelled>(world: &World, shelf: &Rc<Shelf<P>>) {
    let word = shelf.words().word;
    world.watch_change(word, DRAINED, |before, after| after & !before & DRAINING != 0);
    world.watch_change(word, COUNTED, |before, after| {
        before & after & DRAINING != 0 && after & READERS > before & READERS
    });
    world.watch_change(word, BECAME_BIASED, |before, after| after & !before & BIASED != 0);
}

/// As [`all_at_once`], of a lock that is biased towards readers.
fn all_at_a_biased_one<P: Modelled>(
    name: &str,
    preemptions: usize,
    settings: Settings,
    policy: Preference,
    all: &'static [Does],
) -> Report {
    let name = format!("rwlock: biased, {name}, {all:?}, {policy:?}");
    explore::<P>(&name, preemptions, settings, move |world| {
        let shelf = Shelf::<P>::biased(policy);
        watch_table(world, &shelf);
        let others = (1..).zip(&all[1..]).map(|(index, &does)| shelf.passer(world, index, does)).collect();
        let writes = shelf.pass(all[0]);
        let writes = writes + join(others);
        shelf.finish(writes);
    })
}

#[test]
fn biased_readers_and_writers() {
    for policy in POLICIES {
        let report = all_at_a_biased_one::<Model>("at once", 3, TWO, policy, &[Reads, Writes]);
        assert!(report.reached[DRAINED] == report.executions, "{report:?}");
        assert!(report.reached[COUNTED] > 0 && report.woken > 0, "{report:?}");
        for all in [&[Reads, Writes, Reads], &[Writes, Reads, Writes], &[Reads, Looks, Writes]] {
            all_at_a_biased_one::<Model>("at once", 2, THREE, policy, all);
        }
        let pairs: [&[Does]; 5] = [
            &[ReadsTwice, Writes],
            &[Writes, Writes],
            &[Downgrades, Reads],
            &[Upgrades, Reads],
            &[Looks, Writes],
        ];
        for all in pairs {
            all_at_a_biased_one::<Model>("at once", 2, TWO, policy, all);
        }
        all_at_a_biased_one::<Patient>("spinning", 2, SPINNING, policy, &[Reads, Writes]);
    }
}

/// A writer sleeps until the reader leaves that came by the table; others come meanwhile.
#[test]
fn a_reader_in_the_table_leaves() {
    for policy in POLICIES {
        for sleeps in [&[Writes][..], &[Upgrades], &[Writes, Writes]] {
            let settings = Settings { threads: sleeps.len() + 2, ..TWO };
            let name = format!("rwlock: biased, leaving, {sleeps:?}, {policy:?}");
            let report = explore::<Model>(&name, 1, settings, move |world| {
                let shelf = Shelf::<Model>::biased(policy);
                watch_table(world, &shelf);
                shelf.enter(Reads);
                assert_eq!(shelf.words().word.peek(), BIASED, "it is not in the table");
                assert!(shelf.lock.is_locked() && !shelf.lock.is_idle());
                let mut others = shelf.sleepers(world, 1, sleeps);
                others.push(shelf.passer(world, sleeps.len() as u32 + 1, Reads));
                let writes = shelf.leave(Reads);
                shelf.finish(writes + join(others));
            });
            assert!(report.reached[COUNTED] == report.executions && report.woken > 0, "{report:?}");
        }
    }
}

/// A reader may leave for another, as a guard that is sent to another thread does.
#[test]
fn another_leaves() {
    for all in [[Reads, Writes], [Writes, Reads]] {
        explore::<Model>(&format!("rwlock: biased, left by another, {all:?}"), 2, THREE, move |world| {
            // A reader enters while a writer waits for the one that leaves last.
            let shelf = Shelf::<Model>::biased(Preference::ReaderPreferring);
            shelf.enter(Reads);
            let others = vec![shelf.passer(world, 2, all[0])];
            let leaving = shelf.clone();
            let leaver = world.spawn(1, move |_: &World| {
                let mut writes = 0;
                if all[1] == Reads {
                    // Its own, and then another's: either may be the one that it takes first.
                    writes += leaving.pass(Reads);
                }
                writes + leaving.leave(Reads)
            });
            let mut writes = leaver.join().unwrap();
            writes += shelf.pass(all[1]);
            shelf.finish(writes + join(others));
        });
    }
}

/// Readers that meet at the word go to the table.
#[test]
fn readers_meet() {
    let report = explore::<Model>("rwlock: readers meet, transient", 3, TWO, |world| {
        let shelf = Shelf::<Model>::new(Preference::PhaseFair);
        watch_table(world, &shelf);
        let again = shelf.clone();
        let other = world.spawn(1, move |_: &World| again.pass(Reads) + again.pass(Reads));
        shelf.pass(Reads);
        shelf.pass(Reads);
        other.join().unwrap();
        shelf.finish(shelf.pass(Writes));
    });
    assert!(report.reached[BECAME_BIASED] > 0 && report.reached[DRAINED] > 0, "{report:?}");
}

/// Whoever only tries gets in if nobody is inside, however the lock is biased.
#[test]
fn trying_a_biased_one() {
    let report = explore::<Model>("rwlock: biased, trying", 3, TWO, |world| {
        let shelf = Shelf::<Model>::biased(Preference::PhaseFair);
        let other = shelf.passer(world, 1, Reads);
        let writes = at_once(world, shelf.lock.try_lock_write(), || shelf.leave(Writes));
        other.join().unwrap();
        for does in [Reads, Writes, Looks] {
            shelf.words().word.fetch_or(BIASED, Relaxed);
            let entered = match does {
                Writes => shelf.lock.try_lock_write(),
                Looks => shelf.lock.try_lock_upgradable(),
                _ => shelf.lock.try_lock_read(Preference::PhaseFair),
            };
            assert!(entered, "nobody is inside: {does:?}");
            assert!(!shelf.lock.try_lock_write(), "{does:?} does not exclude");
            match does {
                Writes => shelf.lock.unlock_write(),
                Looks => shelf.lock.unlock_upgradable(),
                _ => shelf.lock.unlock_read(),
            }
        }
        shelf.finish(writes);
    });
    sometimes(report, GAVE_UP);
}

#[test]
fn a_biased_one_is_given_up() {
    for policy in POLICIES {
        for after in [false, true] {
            let name = format!("rwlock: biased, times out, {after}, {policy:?}");
            explore::<Model>(&name, 2, TWO, move |world| {
                let shelf = Shelf::<Model>::biased(policy);
                shelf.enter(Reads);
                let waiting = shelf.clone();
                let other = world.spawn(1, move |world: &World| {
                    if waiting.enter_until(Writes, world) { waiting.leave(Writes) } else { 0 }
                });
                if !after {
                    world.expire(0);
                }
                shelf.leave(Reads);
                if after {
                    world.expire(0);
                }
                shelf.finish(other.join().unwrap());
            });
        }
    }
}

/// Whoever drained the table in the parent is not in the child.
#[test]
fn drained_in_a_forked_child() {
    let settings = Settings { epoch: 7, ..TWO };
    for all in [[Reads, Writes], [Writes, Reads], [Writes, Writes]] {
        let name = format!("rwlock: forked, draining, {all:?}");
        let report = explore::<Model>(&name, 2, settings, move |world| {
            let shelf = Shelf::<Model>::new(Preference::PhaseFair);
            watch_table(world, &shelf);
            let words = shelf.words();
            words.word.store(DRAINING | PARKED, Relaxed);
            words.head.store(GHOST, Relaxed);
            words.writers.store(GHOST, Relaxed);
            words.wait_lock.store(3, Relaxed);
            let other = shelf.passer(world, 1, all[1]);
            let writes = shelf.pass(all[0]) + other.join().unwrap();
            shelf.finish(writes);
        });
        assert!(report.reached[DRAINED] > 0, "{report:?}");
    }
}

// Planted bugs.

/// A drainer that only looks, and an order that is left out anywhere on the way by the table.
#[test]
fn bugs_of_the_table() {
    const READ_WRITE: &[Does] = &[Reads, Writes];
    let bugs = [
        (TWO, Fault::Omit(Operation::FetchOr, 0), UNORDERED),
        (TWO, Fault::WeakRelease, UNORDERED),
        (TWO, Fault::WeakAcquire, UNORDERED),
        (TWO, Fault::Weaken(Operation::CompareExchange), UNORDERED),
        (TWO, Fault::Weaken(Operation::FetchOr), UNORDERED),
        (TWO, Fault::LoseWake(0), DEADLOCK),
    ];
    each_is_caught(&bugs, |name, settings| {
        all_at_a_biased_one::<Model>(name, 3, settings, Preference::WriterPreferring, READ_WRITE)
    });
}

/// A reader that comes too late and has been counted takes itself for one that is not inside.
#[test]
fn a_reader_that_is_counted_twice() {
    caught(&[DEADLOCK, UNORDERED, "something is left"], || {
        let settings = faulty(TWO, Fault::Lie(0));
        all_at_a_biased_one::<Model>("counted twice", 3, settings, Preference::PhaseFair, &[Reads, Writes])
    });
}

#[test]
fn bugs_that_two_threads_find() {
    let prefers = Preference::WriterPreferring;
    const READ_WRITE: &[Does] = &[Reads, Writes];
    const WRITE: &[Does] = &[Writes, Writes];
    let ways = [READ_WRITE, WRITE, &[Upgrades, Reads], &[Downgrades, Reads]];
    let bugs: [(Fault, &str, &[&'static [Does]]); 5] = [
        (Fault::LoseWake(0), DEADLOCK, &[READ_WRITE, WRITE, &[Reads, Upgrades]]),
        (Fault::WeakRelease, UNORDERED, &ways),
        (Fault::WeakAcquire, UNORDERED, &ways),
        (Fault::Weaken(Operation::CompareExchange), UNORDERED, &[READ_WRITE]),
        // The head falls asleep, and nobody is told.
        (Fault::Omit(Operation::FetchOr, PARKED), DEADLOCK, &[WRITE]),
    ];
    for (fault, why, ways) in bugs {
        for all in ways {
            let bug = [(TWO, fault, why)];
            each_is_caught(&bug, |name, settings| all_at_once::<Model>(name, 2, settings, prefers, all));
        }
    }
    let torn = [(TWO, Fault::TornWait, DEADLOCK)];
    each_is_caught(&torn, |name, settings| all_at_once::<Patient>(name, 2, settings, prefers, READ_WRITE));
}

/// Who comes and who falls asleep do not see each other.
#[test]
fn a_head_that_is_overlooked() {
    caught(&[LESS_URGENT_FIRST], || {
        let settings = faulty(URGENT_SECOND, Fault::Omit(Operation::FetchOr, 0));
        more_urgent_first(settings, Preference::WriterPreferring, Writes);
    });
}

/// The mark of a head that is called goes as it enters, even if it did not take it off when it looked: nobody
/// calls a head that is awake, and only one that is awake enters.
#[test]
fn a_mark_goes_with_the_entry() {
    let settings = faulty(THREE, Fault::Omit(Operation::FetchAnd, !WAKE_IN_FLIGHT));
    for policy in POLICIES {
        all_at_once::<Model>("marked", 2, settings, policy, &[Looks, Looks, Reads]);
    }
}

/// Who gives up does not take it off.
#[test]
fn a_mark_that_is_left() {
    caught(&["something is left"], || {
        let settings = faulty(TWO, Fault::Omit(Operation::FetchAnd, !(HEAD_WAITING | WAKE_IN_FLIGHT)));
        giving_up::<Model>("marked", settings, Preference::ReaderPreferring, [Reads, Writes], &[], false);
    });
}

/// A writer that gives up leaves its reservation behind.
#[test]
fn a_reservation_that_is_left() {
    caught(&[DEADLOCK, "something is left"], || {
        let settings = faulty(TWO, Fault::Omit(Operation::FetchAnd, !(HEAD_WAITING | WAKE_IN_FLIGHT)));
        giving_up::<Model>("left", settings, Preference::WriterPreferring, [Reads, Writes], &[], false);
    });
}

#[test]
fn a_touch_after_the_release() {
    caught(&[LATE, UNORDERED], || {
        let settings = faulty(TWO, Fault::TouchAfterRelease);
        destroyed_by_the_last::<Model>("a late touch", settings, &[Reads, Writes], false)
    });
}
