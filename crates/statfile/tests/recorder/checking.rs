//! A process under check: what its threads hold, in which order they took it, and what they did wrong.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_statfile::check::{Edge, Event, LockId, Misuse, Mode, Wrong};
use poundlock_statfile::writer::{CallSite, CheckRoom, Host, LockRef, Manner, Options, Wake};
use poundlock_statfile::{Live, LockKind, Log, Logged, layout};

use crate::common::{Lock, NOWHERE, SMALL, at, files, here, host, now, only_file, recording, start};
use crate::processes::{child, told};

/// A small file of a process under check.
pub(crate) const CHECKED: Options =
    Options { check: Some(CheckRoom { edges: 1024, limit: 1 << 20, pairs: 1024, log: 4096 }), ..SMALL };

/// All that the log of the only file in `directory` has.
fn log(directory: &Path) -> Vec<Logged> {
    events(&only_file(directory))
}

fn events(path: &Path) -> Vec<Logged> {
    let live = Live::open(path).expect("a good file");
    let mut all = Vec::new();
    live.events(&mut Log::default(), &mut |event| push(&mut all, event));
    all
}

/// But for the names of threads.
fn push(all: &mut Vec<Logged>, logged: Logged) {
    if !matches!(logged.event, Event::Named(_)) {
        all.push(logged);
    }
}

fn edges(log: &[Logged]) -> Vec<Edge> {
    log.iter()
        .filter_map(|logged| match &logged.event {
            Event::Edge(edge) => Some(edge.clone()),
            _ => None,
        })
        .collect()
}

fn misuses(log: &[Logged]) -> Vec<Misuse> {
    log.iter()
        .filter_map(|logged| match &logged.event {
            Event::Misuse(misuse) => Some(misuse.clone()),
            _ => None,
        })
        .collect()
}

fn take<H: Host>(lock: LockRef<'_>, site: CallSite) {
    H::recorder().acquired(lock, site, Manner::LOCK);
}

fn give<H: Host>(lock: LockRef<'_>) {
    H::recorder().released(lock, NOWHERE);
}

fn id(lock: LockRef<'_>) -> LockId {
    LockId(lock.word.load(Relaxed))
}

/// Takes both, in this order, and gives them back.
fn both<H: Host>(first: LockRef<'_>, second: LockRef<'_>) {
    take::<H>(first, here());
    take::<H>(second, here());
    give::<H>(second);
    give::<H>(first);
}

const READ: Manner = Manner { mode: Mode::Read, ..Manner::LOCK };
const FAIR: Manner = Manner { mode: Mode::FairRead, ..Manner::LOCK };

/// The two views of a readers-writer lock.
#[derive(Default)]
struct RwLock([AtomicU32; 2]);

impl RwLock {
    fn write(&self) -> LockRef<'_> {
        let address = (&raw const self.0).addr() + LockKind::WRITERS;
        LockRef { word: &self.0[1], address, kind: LockKind::RwWriters, writers: None }
    }

    fn read(&self) -> LockRef<'_> {
        let address = (&raw const self.0).addr();
        LockRef { word: &self.0[0], address, kind: LockKind::RwReaders, writers: Some(&self.0[1]) }
    }
}

#[test]
fn an_order_is_logged_once_for_each_thread() {
    recording!(Order: directory, recorder, CHECKED);
    let (a, b) = (Lock::default(), Lock::default());
    for _ in 0..100 {
        both::<Order>(a.seen(), b.seen());
    }
    let first = edges(&log(directory.path()));
    assert_eq!(first.len(), 1);
    let edge = &first[0];
    assert_eq!((edge.from.held.lock, edge.to.held.lock), (id(a.seen()), id(b.seen())));
    assert_eq!((edge.from.class.0, edge.to.class.0), (id(a.seen()).0, id(b.seen()).0));
    assert!(!edge.from.stack.is_empty() && !edge.to.stack.is_empty());
    assert_ne!(edge.from.stack[0], edge.to.stack[0], "two places");
    assert!(edge.guards.is_empty() && !edge.more);
    // The same again is nothing new, another thread is, and so is the other order.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..10).for_each(|_| both::<Order>(a.seen(), b.seen())));
    });
    both::<Order>(b.seen(), a.seen());
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut log = Log::default();
    let mut all = Vec::new();
    live.events(&mut log, &mut |logged| push(&mut all, logged));
    // What has been read is not read again.
    live.events(&mut log, &mut |_| panic!("again"));
    assert_eq!(all.len(), 2, "{all:?}");
    let later = edges(&all);
    assert_ne!(later[0].thread, edge.thread);
    assert_eq!((later[1].from.held.lock, later[1].thread), (id(b.seen()), edge.thread));
    assert!(all[0].moment < all[1].moment && all[0].tid != all[1].tid);
    assert_eq!(all[0].locks[0].address, a.address() as u64);
    let about = live.describe(id(a.seen())).expect("it is known");
    assert_eq!((about.address, about.kind, about.destroyed), (a.address() as u64, LockKind::Mutex, false));
    recorder.destroyed(a.seen(), NOWHERE);
    live.events(&mut log, &mut |logged| assert_eq!(logged.event, Event::Died(id(a.seen()))));
    assert!(live.describe(id(a.seen())).expect("nothing took its place").destroyed);
    assert_eq!(live.unseen(), poundlock_statfile::Unseen::default());
}

#[test]
fn a_thread_is_named_before_it_is_told_of_and_by_its_last_name() {
    recording!(Called: directory, _, CHECKED);
    let (a, b) = (Lock::default(), Lock::default());
    let body = || {
        both::<Called>(a.seen(), b.seen());
        // SAFETY: a C string.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"late".as_ptr()) };
    };
    std::thread::scope(|scope| {
        let early = std::thread::Builder::new().name("early".to_owned()).spawn_scoped(scope, body);
        // The end of the scope would not wait for what the thread does when it ends.
        early.expect("it starts").join().expect("no panic");
    });
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut all = Vec::new();
    live.events(&mut Log::default(), &mut |logged| all.push(logged));
    let of_edge = edges(&all)[0].thread;
    let its_own: Vec<(&str, bool)> = all
        .iter()
        .filter_map(|logged| match &logged.event {
            Event::Edge(edge) => Some((&*logged.name, edge.thread == of_edge)),
            Event::Named(thread) => Some((&*logged.name, *thread == of_edge)),
            _ => None,
        })
        .collect();
    assert_eq!(its_own, [("early", true), ("late", true)], "{all:?}");
}

#[test]
fn an_order_is_known_before_the_wait() {
    recording!(Before: directory, recorder, CHECKED);
    let (a, b) = (Lock::default(), Lock::default());
    take::<Before>(a.seen(), here());
    let wait = recorder.wait_begin(b.seen(), here(), Manner::LOCK);
    assert_eq!(edges(&log(directory.path())).len(), 1);
    let mut live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut threads = Vec::new();
    live.look(&mut threads);
    let thread = threads[0];
    let shown = thread.wait.expect("it waits");
    assert_eq!(live.lock(shown.tag).expect("a lock").address, b.address() as u64);
    assert_eq!(live.lock_id(shown.tag), id(b.seen()));
    assert!(!live.wait_stack(thread.record).is_empty());
    assert_eq!(live.describe(id(b.seen())).expect("known").waiters, 1);
    // And what it holds.
    let holds = live.holds(thread.record);
    assert_eq!(holds.len(), 1);
    assert_eq!(live.lock_id(holds[0].tag), id(a.seen()));
    assert!(live.still_holds(&holds[0]) && !live.hold_stack(&holds[0]).is_empty());
    assert_eq!(live.describe(id(a.seen())).expect("known").holder, Some(live.serial(thread.record)));
    assert_eq!(live.held_as(holds[0].tag), [Some(holds[0].tag), None]);
    assert!(live.hold(thread.record, holds[0].tag).is_some());
    // A wait that ends either way.
    recorder.abandoned_wait(b.seen(), wait);
    assert_eq!(live.wait(thread.record), None);
    let wait = recorder.wait_begin(b.seen(), here(), Manner::LOCK);
    recorder.acquired_after_wait(b.seen(), wait, here(), Manner::LOCK);
    assert_eq!(live.holds(thread.record).len(), 2);
    assert_eq!(live.describe(id(b.seen())).expect("known").waiters, 0);
    give::<Before>(a.seen());
    assert!(!live.still_holds(&holds[0]));
    give::<Before>(b.seen());
    assert!(live.holds(thread.record).is_empty());
    assert_eq!(edges(&log(directory.path())).len(), 0, "all of it has been read");
}

#[test]
fn a_try_makes_no_edge_but_holds() {
    recording!(Tries: directory, recorder, CHECKED);
    let [a, b, c] = [const { Lock { word: AtomicU32::new(0) } }; 3];
    take::<Tries>(a.seen(), here());
    recorder.acquired(b.seen(), here(), Manner::TRY);
    take::<Tries>(c.seen(), here());
    let found = edges(&log(directory.path()));
    let pairs: Vec<_> = found.iter().map(|edge| (edge.from.held.lock, edge.to.held.lock)).collect();
    assert_eq!(pairs, [(id(a.seen()), id(c.seen())), (id(b.seen()), id(c.seen()))]);
    // Each has the other as a guard.
    assert_eq!(found[0].guards[0].lock, id(b.seen()));
    assert_eq!(found[1].guards[0].lock, id(a.seen()));
}

#[test]
fn guards_are_what_is_held_longest() {
    recording!(Guards: directory, _, CHECKED);
    let locks: Vec<Lock> = (0..12).map(|_| Lock::default()).collect();
    for lock in &locks {
        take::<Guards>(lock.seen(), here());
    }
    let found = edges(&log(directory.path()));
    assert_eq!(found.len(), 11 * 12 / 2);
    let last = found.last().expect("many");
    assert_eq!((last.from.held.lock, last.to.held.lock), (id(locks[10].seen()), id(locks[11].seen())));
    assert!(last.more);
    let guards: Vec<LockId> = last.guards.iter().map(|guard| guard.lock).collect();
    assert_eq!(guards, locks[..8].iter().map(|lock| id(lock.seen())).collect::<Vec<_>>());
}

#[test]
fn locks_of_one_call_are_one_class() {
    recording!(Classes: directory, recorder, CHECKED);
    let (left, right): (Vec<Lock>, Vec<Lock>) = (0..100).map(|_| Default::default()).unzip();
    let (lefts, rights) = (here(), here());
    left.iter().for_each(|lock| recorder.created(lock.seen(), lefts));
    right.iter().for_each(|lock| recorder.created(lock.seen(), rights));
    for (left, right) in left.iter().zip(&right) {
        both::<Classes>(left.seen(), right.seen());
    }
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut found = Vec::new();
    live.events(&mut Log::default(), &mut |logged| found.push(logged));
    let found = edges(&found);
    // So much is evidence enough.
    assert_eq!(found.len(), layout::EVIDENCE as usize);
    assert!(found.iter().all(|edge| edge.from.class == found[0].from.class));
    assert_eq!(live.class_stack(found[0].from.class)[0], lefts.pc as u64);
    assert_eq!(live.class_stack(found[0].to.class)[0], rights.pc as u64);
    // But another thread is more.
    std::thread::scope(|scope| {
        scope.spawn(|| both::<Classes>(left[99].seen(), right[99].seen()));
    });
    assert_eq!(edges(&log(directory.path())).len(), 1);
    // And so is another guard.
    let outer = Lock::default();
    take::<Classes>(outer.seen(), here());
    both::<Classes>(left[98].seen(), right[98].seen());
    let found = edges(&log(directory.path()));
    assert!(found.iter().any(|edge| edge.from.class == live_class(&live, &left[98])), "{found:?}");
}

fn live_class(live: &Live, lock: &Lock) -> poundlock_statfile::check::ClassKey {
    live.describe(id(lock.seen())).expect("it is known").class
}

#[test]
fn readers_are_told_apart_from_writers() {
    recording!(Readers: directory, recorder, CHECKED);
    let (rw, mutex) = (RwLock::default(), Lock::default());
    recorder.acquired(rw.read(), here(), READ);
    take::<Readers>(mutex.seen(), here());
    give::<Readers>(mutex.seen());
    give::<Readers>(rw.read());
    take::<Readers>(rw.write(), here());
    take::<Readers>(mutex.seen(), here());
    give::<Readers>(mutex.seen());
    give::<Readers>(rw.write());
    let all = log(directory.path());
    let modes: Vec<Mode> = edges(&all).iter().map(|edge| edge.from.held.mode).collect();
    assert_eq!(modes, [Mode::Read, Mode::Exclusive]);
    assert!(edges(&all).iter().all(|edge| edge.from.held.lock == LockId(rw.0[1].load(Relaxed))));
    // The object's address, and a writer who held nothing.
    assert_eq!(all[0].locks[0].address, (&raw const rw.0).addr() as u64);
    let wrote = |logged: &&Logged| matches!(logged.event, Event::Wrote { .. });
    assert_eq!(all.iter().filter(wrote).count(), 1);
    // To read again is fine unless a writer that waits keeps readers out.
    recorder.acquired(rw.read(), here(), READ);
    recorder.acquired(rw.read(), here(), READ);
    let mut live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut threads = Vec::new();
    live.look(&mut threads);
    let holds = live.holds(threads[0].record);
    assert_eq!((holds.len(), holds[0].depth, holds[0].mode), (1, 2, Mode::Read));
    assert_eq!(live.describe(live.lock_id(holds[0].tag)).expect("known").readers, 2);
    give::<Readers>(rw.read());
    give::<Readers>(rw.read());
    assert_eq!(live.describe(LockId(rw.0[1].load(Relaxed))).expect("known").readers, 0);
    recorder.acquired(rw.read(), here(), FAIR);
    recorder.acquired(rw.read(), here(), FAIR);
    assert_eq!(misuses(&log(directory.path()))[0].what, Wrong::Reread);
}

#[test]
fn condition_variables_are_in_the_order_too() {
    recording!(Conditions: directory, recorder, CHECKED);
    let (mutex, outer) = (Lock::default(), Lock::default());
    let word = AtomicU32::new(0);
    let condition = LockRef { kind: LockKind::Condition, ..at(&word, 0x9000) };
    // Nobody knows its mutex yet.
    take::<Conditions>(outer.seen(), here());
    recorder.wakes(condition, Wake::One, here());
    assert!(log(directory.path()).is_empty());
    take::<Conditions>(mutex.seen(), here());
    recorder.waits_with(condition, mutex.seen(), here());
    give::<Conditions>(mutex.seen());
    let pairs = |log: &[Logged]| -> Vec<_> {
        edges(log).iter().map(|edge| (edge.from.held.lock, edge.to.held.lock)).collect()
    };
    // Before the wait is over.
    let (a, m, c) = (id(outer.seen()), id(mutex.seen()), id(condition));
    assert_eq!(pairs(&log(directory.path())), [(a, m), (a, c)]);
    recorder.unblocked(poundlock_statfile::writer::Ended::Done);
    take::<Conditions>(mutex.seen(), here());
    recorder.woken_with(condition, mutex.seen(), poundlock_statfile::writer::Ended::Done);
    recorder.wakes(condition, Wake::All, here());
    let all = log(directory.path());
    let signals = |log: &[Logged]| -> Vec<Vec<LockId>> {
        log.iter()
            .filter_map(|logged| match &logged.event {
                Event::Signalled { lock, held } => {
                    assert_eq!(*lock, c);
                    Some(held.iter().map(|held| held.lock).collect())
                }
                _ => None,
            })
            .collect()
    };
    assert_eq!(signals(&all), [vec![a]]);
    let found = edges(&all);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].from.held.lock, found[0].to.held.lock), (c, a));
    assert_eq!(found[0].from.held.mode, Mode::Condition);
    assert!(found[0].guards.is_empty(), "the mutex was taken later");
    // Another one signals it without that lock: so no waiter needs a thread that has it.
    std::thread::scope(|scope| {
        scope.spawn(|| recorder.wakes(condition, Wake::One, here()));
    });
    assert_eq!(signals(&log(directory.path())), [vec![]]);
    recorder.wakes(condition, Wake::All, here());
    give::<Conditions>(mutex.seen());
    let another = Lock::default();
    take::<Conditions>(another.seen(), here());
    log(directory.path());
    recorder.wakes(condition, Wake::All, here());
    assert!(log(directory.path()).is_empty());
}

#[test]
fn misuse_is_found_once_for_each_place() {
    recording!(Misused: directory, recorder, CHECKED);
    let lock = Lock::default();
    recorder.created(lock.seen(), here());
    let (first, second) = (here(), here());
    take::<Misused>(lock.seen(), first);
    for _ in 0..3 {
        drop(recorder.wait_begin(lock.seen(), second, Manner::LOCK));
        drop(recorder.wait_begin(lock.seen(), second, Manner { allows: true, ..Manner::LOCK }));
    }
    let found = misuses(&log(directory.path()));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].what, found[0].lock), (Wrong::Relock, Some(id(lock.seen()))));
    assert_eq!((found[0].stack[0], found[0].other_stack[0]), (second.pc as u64, first.pc as u64));
    assert_eq!(found[0].other_thread, Some(found[0].thread));
    // By another thread, which then is not believed to have had it.
    std::thread::scope(|scope| {
        scope.spawn(|| recorder.released(lock.seen(), here()));
    });
    let found = misuses(&log(directory.path()));
    assert_eq!((found.len(), found[0].what), (1, Wrong::UnlockOther));
    assert_eq!(found[0].other_stack[0], first.pc as u64);
    let other = Lock::default();
    take::<Misused>(other.seen(), here());
    assert!(log(directory.path()).is_empty(), "it has been dropped from the list");
    give::<Misused>(other.seen());
    recorder.released_free(other.seen(), here());
    assert_eq!(misuses(&log(directory.path()))[0].what, Wrong::UnlockFree);
    // Destroyed, and initialised again, while it is held.
    take::<Misused>(other.seen(), here());
    recorder.destroyed(other.seen(), here());
    assert_eq!(misuses(&log(directory.path()))[0].what, Wrong::DestroyHeld);
    recorder.created(other.seen(), here());
    take::<Misused>(other.seen(), here());
    recorder.created(other.seen(), here());
    assert_eq!(misuses(&log(directory.path()))[0].what, Wrong::DestroyHeld);
    // What nobody knows anything of is no misuse.
    give::<Misused>(Lock::default().seen());
    give::<Misused>(other.seen());
    assert!(misuses(&log(directory.path())).is_empty());
}

#[test]
fn the_end_of_a_hold_is_told_if_asked() {
    recording!(Watched: directory, recorder, CHECKED);
    let lock = Lock::default();
    take::<Watched>(lock.seen(), here());
    let mut live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut threads = Vec::new();
    live.look(&mut threads);
    let holds = live.holds(threads[0].record);
    assert!(live.watch(&holds[0]));
    recorder.released(lock.seen(), here());
    let found = misuses(&log(directory.path()));
    assert_eq!((found[0].what, found[0].number), (Wrong::LetGo, holds[0].sequence.into()));
    // The next hold in that place is another one.
    take::<Watched>(lock.seen(), here());
    assert!(live.watch(&holds[0]));
    give::<Watched>(lock.seen());
    assert!(log(directory.path()).is_empty());
}

#[test]
fn no_word_names_two_locks() {
    recording!(Reborn: directory, recorder, Options { recycle_after: 0, locks: 256, ..CHECKED });
    let word = AtomicU32::new(0);
    let lock = at(&word, 0x4000);
    let outer = Lock::default();
    take::<Reborn>(outer.seen(), here());
    let mut seen = HashSet::new();
    // More often than a slot has generations.
    for round in 0..5000 {
        if round % 2 == 0 {
            recorder.created(lock, here())
        } else {
            word.store(0, Relaxed)
        }
        take::<Reborn>(lock, here());
        give::<Reborn>(lock);
        assert!(seen.insert(word.load(Relaxed)), "round {round}");
        if round % 3 == 0 {
            recorder.destroyed(lock, NOWHERE);
        }
    }
    assert!(seen.len() == 5000);
}

#[test]
fn lists_grow_and_have_holes() {
    recording!(Lists: directory, _, CHECKED);
    let locks: Vec<Lock> = (0..300).map(|_| Lock::default()).collect();
    let mut live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut threads = Vec::new();
    let mut held = |expected: &HashSet<LockId>| {
        live.look(&mut threads);
        let holds = live.holds(threads[0].record);
        let now: HashSet<LockId> = holds.iter().map(|hold| live.lock_id(hold.tag)).collect();
        assert_eq!(&now, expected);
        assert_eq!(holds.len(), expected.len());
    };
    let mut expected = HashSet::new();
    for (n, lock) in locks.iter().enumerate() {
        take::<Lists>(lock.seen(), NOWHERE);
        expected.insert(id(lock.seen()));
        // Not the last one, so that there are holes.
        if n % 3 == 2 {
            give::<Lists>(locks[n - 1].seen());
            expected.remove(&id(locks[n - 1].seen()));
        }
    }
    held(&expected);
    for lock in locks.iter().rev() {
        give::<Lists>(lock.seen());
    }
    held(&HashSet::new());
    // Hand over hand.
    take::<Lists>(locks[0].seen(), NOWHERE);
    for pair in locks.windows(2) {
        take::<Lists>(pair[1].seen(), NOWHERE);
        give::<Lists>(pair[0].seen());
    }
    held(&HashSet::from([id(locks[299].seen())]));
}

#[test]
fn what_finds_no_room_is_said() {
    const LIMIT: usize = 200;
    let room = CheckRoom { edges: 16, limit: LIMIT as u32, pairs: 16, log: 512 };
    let tiny = Options { locks: 40, check: Some(room), ..CHECKED };
    recording!(Tiny: directory, _, tiny);
    let locks: Vec<Lock> = (0..60).map(|_| Lock::default()).collect();
    for first in &locks {
        for second in &locks {
            if first.address() != second.address() {
                both::<Tiny>(first.seen(), second.seen());
            }
        }
    }
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    let unseen = live.unseen();
    assert!(unseen.locks >= 20, "{unseen:?}");
    // Each of the others once: 38 locks have a place.
    assert_eq!((unseen.orders, unseen.pairs, unseen.events), (38 * 37 - LIMIT as u64, 0, 0), "{unseen:?}");
    let mut all = Vec::new();
    let mut log = Log::default();
    live.events(&mut log, &mut |logged| push(&mut all, logged));
    assert_eq!(edges(&all).len(), LIMIT, "the tables have grown, from 16 on");
    // What is in the table stays known; what is not finds no room again, nor does it fill the log.
    let known: HashSet<_> = edges(&all).iter().map(|edge| (edge.from.held.lock, edge.to.held.lock)).collect();
    assert_eq!(known.len(), LIMIT);
    let mut again = 0;
    for first in &locks[..38] {
        for second in &locks[..38] {
            if first.address() != second.address() {
                both::<Tiny>(first.seen(), second.seen());
                again += u64::from(!known.contains(&(id(first.seen()), id(second.seen()))));
            }
        }
    }
    live.events(&mut log, &mut |logged| panic!("{logged:?}"));
    assert_eq!(live.unseen().orders, unseen.orders + again);
    // A finding is none of them.
    Tiny::recorder().released_free(locks[0].seen(), here());
    live.events(&mut log, &mut |logged| push(&mut all, logged));
    assert_eq!(misuses(&all).len(), 1);
}

/// Of many locks within each other every order is logged, with those held longest; and a second time none is.
#[test]
fn many_locks_within_each_other() {
    const HELD: usize = 300;
    const ALL: usize = HELD * (HELD - 1) / 2;
    let room = CheckRoom { edges: 1024, limit: 1 << 20, pairs: 64, log: 1 << 16 };
    recording!(Deep: directory, recorder, Options { check: Some(room), ..CHECKED });
    let locks: Vec<Lock> = (0..HELD).map(|_| Lock::default()).collect();
    let site = here();
    locks.iter().for_each(|lock| recorder.created(lock.seen(), site));
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut log = Log::default();
    let mut round = || {
        locks.iter().for_each(|lock| take::<Deep>(lock.seen(), NOWHERE));
        locks.iter().rev().for_each(|lock| give::<Deep>(lock.seen()));
        let mut all = Vec::new();
        live.events(&mut log, &mut |logged| push(&mut all, logged));
        edges(&all)
    };
    let found = round();
    let orders: HashSet<_> = found.iter().map(|edge| (edge.from.held.lock, edge.to.held.lock)).collect();
    assert_eq!((found.len(), orders.len()), (ALL, ALL));
    let place: std::collections::HashMap<_, _> =
        (0..).zip(&locks).map(|(n, lock)| (id(lock.seen()), n)).collect();
    for edge in &found {
        let (from, to): (usize, usize) = (place[&edge.from.held.lock], place[&edge.to.held.lock]);
        let guards: Vec<usize> = edge.guards.iter().map(|guard| place[&guard.lock]).collect();
        let held: Vec<usize> = (0..to).filter(|&n| n != from).collect();
        assert_eq!(guards, held[..held.len().min(layout::GUARDS)], "{from} {to}");
        assert_eq!(edge.more, held.len() > layout::GUARDS);
    }
    assert!(round().is_empty(), "all of it is known");
    assert_eq!(live.unseen().orders, 0);
}

#[test]
fn a_full_log_goes_on_once_it_is_read() {
    const SHORT: Options =
        Options { check: Some(CheckRoom { edges: 1024, limit: 1 << 20, pairs: 1024, log: 16 }), ..CHECKED };
    recording!(Short: directory, _, SHORT);
    let locks: Vec<Lock> = (0..20).map(|_| Lock::default()).collect();
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut log = Log::default();
    let mut moments = Vec::new();
    for (n, second) in locks.iter().enumerate().skip(1) {
        for first in &locks[..n] {
            both::<Short>(first.seen(), second.seen());
        }
        if n % 2 == 1 && n < 10 {
            live.events(&mut log, &mut |logged| moments.push(logged.moment));
        }
    }
    assert_eq!(moments, (0..moments.len() as u64).collect::<Vec<_>>());
    assert!(moments.len() > 32);
    assert!(live.unseen().events > 0);
}

/// A thread that finds the log full waits for a command that reads: nothing is lost, in however small steps
/// that is read.
#[test]
fn a_full_log_waits_for_its_reader() {
    const SHORT: Options =
        Options { check: Some(CheckRoom { edges: 1024, limit: 1 << 20, pairs: 1024, log: 16 }), ..CHECKED };
    recording!(Followed: directory, _, SHORT);
    let locks: Vec<Lock> = (0..40).map(|_| Lock::default()).collect();
    let orders = || (1..locks.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    let mut log = Log::in_steps(5);
    // So that it is known that somebody reads.
    both::<Followed>(locks[1].seen(), locks[0].seen());
    let mut found = Vec::new();
    live.events(&mut log, &mut |event| push(&mut found, event));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for (first, second) in orders() {
                both::<Followed>(locks[first].seen(), locks[second].seen());
            }
        });
        while !writer.is_finished() {
            live.events(&mut log, &mut |event| push(&mut found, event));
        }
    });
    while live.events(&mut log, &mut |event| push(&mut found, event)) {}
    assert_eq!(live.unseen(), poundlock_statfile::Unseen::default());
    assert_eq!(edges(&found).len(), 1 + orders().count());
}

/// The search for locks in memory that goes is no longer than the memory is large, nor than there are locks.
/// Memory that is a window of the counters apart from locks is searched in vain, and as quickly.
#[test]
fn a_release_of_memory_costs_what_its_size_and_its_locks_do() {
    recording!(Released: directory, recorder, Options { locks: 8192, ..CHECKED });
    const LOCKS: usize = 4000;
    const APART: usize = 40;
    // Of no other test's: far above what the kernel gives out.
    let base = 0x7100_0000_0000usize;
    let words: Vec<AtomicU32> = (0..LOCKS).map(|_| AtomicU32::new(0)).collect();
    let lock = |n: usize| at(&words[n], base + APART * n);
    for n in 0..LOCKS {
        recorder.created(lock(n), NOWHERE);
    }
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    let gone =
        || (0..LOCKS).filter(|&n| live.describe(id(lock(n))).is_none_or(|lock| lock.destroyed)).count();
    let released = |start: usize, len: usize| recorder.freed(start, start + len, NOWHERE);

    // Terabytes of addresses without a lock.
    assert!(released(base + (1 << 40), 8 << 40) <= LOCKS + 2);
    // Little memory, in which there are none, but where the counters say that there may be.
    let window = 256 << 20;
    for n in 0..1000 {
        assert!(released(base + window + 64 * n, 64) <= 4, "{n}");
    }
    assert_eq!(gone(), 0);
    // One lock.
    assert!(released(base, APART) <= 5);
    assert_eq!(gone(), 1);
    // Half of them, in memory that is full of them; again, with nothing in it any more.
    let half = APART * LOCKS / 2;
    assert!(released(base, half) <= half / 512 + 2 + 4 * LOCKS / 2);
    assert_eq!(gone(), LOCKS / 2);
    assert!(released(base, half) <= half / 512 + 2);
    // What is left, with all that lies behind it.
    assert!(released(base, 1 << 40) <= LOCKS + 2);
    assert_eq!(gone(), LOCKS);
    assert_eq!(live.unseen(), poundlock_statfile::Unseen::default());
}

/// EDGES, by many threads at once: every order that a thread takes is logged by one of the first.
#[test]
fn orders_by_many_threads_are_each_logged() {
    const MANY: Options = Options {
        locks: 4096,
        // Small tables at first, so that threads make their further levels at once.
        check: Some(CheckRoom { edges: 64, limit: 1 << 20, pairs: 32, log: 1 << 15 }),
        ..CHECKED
    };
    recording!(Many: directory, _, MANY);
    const LOCKS: usize = 64;
    const THREADS: usize = 8;
    let locks: Vec<Lock> = (0..LOCKS).map(|_| Lock::default()).collect();
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (locks, barrier) = (&locks, &barrier);
            scope.spawn(move || {
                for round in 0..LOCKS {
                    barrier.wait();
                    // All of them at the same orders at once, from different ends.
                    for step in 0..LOCKS {
                        let step = if thread % 2 == 0 { step } else { LOCKS - 1 - step };
                        let (first, second) = (&locks[round], &locks[step]);
                        if round < step {
                            // No thread holds them alone, which nobody minds here.
                            let (first, second) = (first.seen(), second.seen());
                            Many::recorder().acquired(first, NOWHERE, READ);
                            Many::recorder().acquired(second, NOWHERE, READ);
                            Many::recorder().released(second, NOWHERE);
                            Many::recorder().released(first, NOWHERE);
                        }
                    }
                }
            });
        }
    });
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    assert_eq!(live.unseen(), poundlock_statfile::Unseen::default());
    let found = edges(&log(directory.path()));
    let mut by_order: std::collections::HashMap<_, HashSet<_>> = std::collections::HashMap::new();
    for edge in &found {
        let threads = by_order.entry((edge.from.held.lock, edge.to.held.lock)).or_default();
        assert!(threads.insert(edge.thread), "one thread logs an order once: {edge:?}");
    }
    assert_eq!(by_order.len(), LOCKS * (LOCKS - 1) / 2);
    assert!(by_order.values().all(|threads| threads.len() == 4), "the first four threads are named");
    for lock in &locks {
        let about = live.describe(id(lock.seen())).expect("known");
        assert_eq!((about.readers, about.holder), (0, None));
    }
}

/// Threads that make the same lock's slot at once, of which one wins.
#[test]
fn a_lock_that_many_threads_use_first_is_one_lock() {
    recording!(First: directory, _, Options { locks: 8192, ..CHECKED });
    let barrier = Barrier::new(4);
    let locks: Vec<Lock> = (0..500).map(|_| Lock::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for lock in &locks {
                    barrier.wait();
                    First::recorder().acquired(lock.seen(), NOWHERE, READ);
                    First::recorder().released(lock.seen(), NOWHERE);
                }
            });
        }
    });
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    for lock in &locks {
        let about = live.describe(id(lock.seen())).expect("its word names its slot");
        assert_eq!((about.address, about.readers, about.destroyed), (lock.address() as u64, 0, false));
    }
}

#[test]
fn a_forked_child_holds_what_its_thread_held() {
    recording!(Forks: directory, recorder, CHECKED);
    let (a, b, others) = (Lock::default(), Lock::default(), Lock::default());
    recorder.created(a.seen(), here());
    std::thread::scope(|scope| {
        scope.spawn(|| take::<Forks>(others.seen(), here())).join().expect("no panic");
    });
    take::<Forks>(a.seen(), here());
    recorder.will_fork();
    // SAFETY: the child calls the recorder, which may be called there, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        recorder.fork_child();
        take::<Forks>(b.seen(), here());
        give::<Forks>(b.seen());
        give::<Forks>(a.seen());
        // Of a thread that is not there: no misuse to let go of it.
        give::<Forks>(others.seen());
        // Silent: it is not held any more.
        take::<Forks>(b.seen(), here());
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    recorder.forked();
    let mut status = 0;
    poundlock_testing::until("the child ends", || {
        // SAFETY: fills our own variable.
        unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) == pid }
    });
    assert_eq!(status, 0);
    both::<Forks>(a.seen(), b.seen());
    let files = files(directory.path());
    assert_eq!(files.len(), 2);
    let child = files.iter().find(|file| file.to_string_lossy().contains(&format!("/{pid}.")));
    let all = events(child.expect("it has a file"));
    assert_eq!(all.len(), 1, "{all:?}");
    let edge = &edges(&all)[0];
    assert_eq!(edge.from.held.lock, id(a.seen()));
    assert!(!edge.from.stack.is_empty());
    let live = Live::open(child.expect("it has a file")).expect("a good file");
    assert!(!live.class_stack(edge.from.class).is_empty(), "the class is known there too");
}

#[test]
fn a_thread_that_ends_leaves_its_record_empty() {
    recording!(Ends: directory, _, CHECKED);
    let (a, b) = (Lock::default(), Lock::default());
    for _ in 0..20 {
        std::thread::scope(|scope| {
            scope.spawn(|| take::<Ends>(a.seen(), here()));
        });
        a.word.store(0, Relaxed);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| take::<Ends>(b.seen(), here()));
    });
    assert!(edges(&log(directory.path())).is_empty());
}

#[test]
fn figures_of_a_checked_process_are_empty() {
    recording!(Nothing: directory, recorder, CHECKED);
    let lock = Lock::default();
    both::<Nothing>(lock.seen(), Lock::default().seen());
    recorder.finish();
    let found = poundlock_statfile::read(&only_file(directory.path()), now()).expect("a good file");
    assert!(found.locks.is_empty() && !found.modules.is_empty());
    let live = Live::open(&only_file(directory.path())).expect("a good file");
    assert_eq!(live.modules(), found.modules);
    assert_eq!((live.exe(), live.modules_count() as usize), (found.exe, found.modules.len()));
    assert_eq!(live.lock_name(), "test-lock");
}

/// 64 bytes a lock, in all: a million locks of a hundred classes, ten thousand threads one after the other, a
/// hundred thousand orders. In a process of its own, where threads hand on their records.
#[test]
fn a_million_locks_need_64_bytes_each() {
    use std::os::unix::fs::MetadataExt;
    const LOCKS: usize = 1_000_000;
    const CLASSES: usize = 100;
    const THREADS: usize = 10_000;
    const EDGES: usize = 100_000;
    let Some(directory) = told() else {
        let directory = tempfile::tempdir().expect("a directory");
        let name = "checking::a_million_locks_need_64_bytes_each";
        let ended = child(name, directory.path()).status().expect("it starts");
        assert!(ended.success());
        let file = only_file(directory.path());
        let bytes = std::fs::metadata(&file).expect("it is there").blocks() * 512;
        println!("{bytes} bytes, {} a lock", bytes as f64 / LOCKS as f64);
        assert!(bytes <= 64 * LOCKS as u64, "{bytes} bytes");
        let live = Live::open(&file).expect("a good file");
        assert_eq!(live.unseen(), poundlock_statfile::Unseen::default());
        let all = events(&file);
        assert!(edges(&all).len() >= EDGES, "{}", edges(&all).len());
        let threads: HashSet<_> = edges(&all).iter().map(|edge| edge.thread).collect();
        assert!(threads.len() > 9_000, "{} threads", threads.len());
        return;
    };
    host!(Million);
    let recorder =
        start::<Million>(&directory, Options { check: Some(CheckRoom::DEFAULT), ..Options::DEFAULT });
    let words: Vec<AtomicU32> = (0..LOCKS).map(|_| AtomicU32::new(0)).collect();
    let lock = |index: usize| at(&words[index], (1 << 32) + 40 * index);
    for index in 0..LOCKS {
        // A place of its own for each class.
        recorder.created(lock(index), CallSite { pc: 0x1000 + index % CLASSES, sp: 0 });
        take::<Million>(lock(index), NOWHERE);
        give::<Million>(lock(index));
    }
    // Locks of two classes, as many as are evidence of each order.
    let mut orders = (0..CLASSES)
        .flat_map(|from| (from + 1..CLASSES).map(move |to| (from, to)))
        .flat_map(|order| std::iter::repeat_n(order, layout::EVIDENCE as usize).enumerate())
        .take(EDGES);
    for _ in 0..THREADS {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (n, (from, to)) in orders.by_ref().take(EDGES / THREADS) {
                    let (from, to) = (from + CLASSES * n, to + CLASSES * (n + 7 * (from + to)));
                    take::<Million>(lock(from), NOWHERE);
                    take::<Million>(lock(to), NOWHERE);
                    give::<Million>(lock(to));
                    give::<Million>(lock(from));
                }
            });
        });
    }
}
