//! Mutexes and spinlocks, point by point: alone, passed from hand to hand, contended for, and checked.

use std::ffi::c_int;
use std::hint;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use poundlock_core::Platform;
use poundlock_core::adaptive::{AnyNegative, Baseline, FewerAtomics, McsQueue};
use poundlock_core::handoff::{Adaptive, Competitive, Fixed, NoSpin, OwnerRunning, RawHandoff, SameCpu};
use poundlock_core::node::{LEVELS, NodeId, Waiter};
use poundlock_core::qspin::{self, Native, Paravirtual, Small, Virtual};
use poundlock_linux::Linux;
use poundlock_names::LockName;
use serde::{Deserialize, Serialize};

use super::turns;
use super::uncontended::{Sleeper, Timer, is_asleep, take_turns, timer_of};
use crate::abi::{Abi, CMutex, CSpin, Kind, SpinAbi};
use crate::error::{Error, Result};
use crate::lock::{
    BareCasExchange, BargingType, HandoffType, Lock, QueueSpin, RecursiveHandoff, RustType, TryLock,
};
use crate::misc::Contender;
use crate::stats::Summary;
use crate::{affinity, clock};

/// What one thread does with a lock that nobody else wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Lock and unlock.
    LockUnlock,
    /// Lock and unlock once more, of a lock that the thread has.
    Again,
    /// Trylock, of a free one, and unlock.
    Trylock,
    /// Trylock of one that another thread holds.
    TrylockHeld,
    /// The hand-off mutex: unlock with somebody counted who has not queued, so that a token is left; and trylock, which
    /// takes it.
    ByToken,
    /// The hand-off mutex: a waiter is queued, the unlock finds it, hands over and wakes it; it is the thread itself.
    ThroughQueue,
}

impl Operation {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::LockUnlock => "lock + unlock",
            Self::Again => "lock + unlock, held already",
            Self::Trylock => "trylock + unlock",
            Self::TrylockHeld => "trylock, held by another",
            Self::ByToken => "unlock leaves a token, trylock takes it",
            Self::ThroughQueue => "queue, unlock hands over and wakes, receive",
        }
    }

    /// What is timed of a contender.
    pub(crate) fn of(contender: Contender) -> Vec<Operation> {
        let mut operations = vec![Self::LockUnlock];
        if contender.is_recursive() {
            operations.push(Self::Again);
        }
        if contender.waits() {
            operations.extend([Self::Trylock, Self::TrylockHeld]);
        }
        if contender == Contender::HANDOFF {
            operations.extend([Self::ByToken, Self::ThroughQueue]);
        }
        operations
    }
}

/// What a lock's next owner does when it is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// It set out to lock a microsecond ago.
    JustCame,
    /// It sleeps.
    Asleep,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// One thread, everybody in turn.
    Alone {
        timed: Vec<(Contender, Operation)>,
        /// The CPU to stay on.
        cpu: usize,
        /// Time slices for each.
        slices: u32,
        /// Length of a slice.
        slice_ns: u64,
    },
    /// Two threads that pass the lock to and fro.
    Pass {
        contender: Contender,
        next: Next,
        /// A CPU for each.
        cpus: [usize; 2],
        duration_ns: u64,
    },
    /// Threads that increment a counter.
    Increment { contender: Contender, turns: turns::Task },
    /// The same, but each yields its CPU inside, and looks whether anybody else was there.
    Check { contender: Contender, turns: turns::Task },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Nanoseconds a pair: the median over the slices and their spread.
    Alone(Vec<(Contender, Operation, Summary)>),
    Pass(Passes),
    Turns(turns::Answer),
}

/// Times of passing a lock on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Passes {
    /// From before the unlock to the end of the next owner's lock.
    pub(crate) pass_ns: Summary,
    /// The unlock alone.
    pub(crate) unlock_ns: Summary,
}

pub(crate) fn run(task: &Task) -> Result<Answer> {
    match task {
        Task::Alone { timed, cpu, slices, slice_ns } => {
            let sleeper = Sleeper::start()?;
            affinity::keep_to(&[*cpu])?;
            let mut timers = timed
                .iter()
                .map(|&(contender, operation)| Ok(((contender, operation), timer(contender, operation)?)))
                .collect::<Result<Vec<_>>>()?;
            let (results, _) =
                take_turns(&mut timers, |(contender, _)| contender.name(), *slices, *slice_ns)?;
            sleeper.stop()?;
            Ok(Answer::Alone(results.into_iter().map(|((who, what), ns)| (who, what, ns)).collect()))
        }
        Task::Pass { contender, next, cpus, duration_ns } => {
            if *next == Next::Asleep && !contender.sleeps() {
                return Err(Error::Options("nobody sleeps in a spinlock".to_owned()));
            }
            with_lock(*contender, Pass { next: *next, cpus: *cpus, duration_ns: *duration_ns })
                .map(Answer::Pass)
        }
        Task::Increment { contender, turns } => {
            finished(*contender, with_lock(*contender, Increment(turns))?)
        }
        Task::Check { contender, turns } => finished(*contender, with_lock(*contender, Check(turns))?),
    }
}

/// Who waits for a mutex sleeps, and is to be woken; who waits for a spinlock may need many time slices yet.
fn finished(contender: Contender, answer: turns::Answer) -> Result<Answer> {
    if answer.unfinished > 0 && contender.sleeps() {
        return Err(Error::Options(format!("{} threads do not come to their ends", answer.unfinished)));
    }
    Ok(Answer::Turns(answer))
}

/// What is done with a lock, of whatever type.
trait Use {
    type Output;

    fn with<L: TryLock + Send + 'static>(self, lock: L) -> Result<Self::Output>;
}

/// Uses a new lock of a contender.
fn with_lock<U: Use>(contender: Contender, user: U) -> Result<U::Output> {
    match contender {
        Contender::Bare => user.with(BareCasExchange::default()),
        Contender::Glibc => user.with(CMutex::new(Abi::glibc()?, Kind::Default)?),
        Contender::GlibcAdaptive => user.with(CMutex::new(Abi::glibc()?, Kind::Adaptive)?),
        Contender::GlibcRecursive => user.with(CMutex::new(Abi::glibc()?, Kind::Recursive)?),
        Contender::PthreadSpin => user.with(CSpin::new(SpinAbi::glibc()?)?),
        Contender::Mutex(mutex) => match mutex.lock() {
            LockName::Poundlock => user.with(BargingType::default()),
            LockName::Baseline => user.with(RustType::<Baseline>::default()),
            LockName::FewerAtomics => user.with(RustType::<FewerAtomics>::default()),
            LockName::McsQueue => user.with(RustType::<McsQueue>::default()),
            LockName::AnyNegative => user.with(RustType::<AnyNegative>::default()),
            LockName::Handoff => user.with(HandoffType::<Usual>::default()),
            LockName::HandoffNone => user.with(HandoffType::<NoSpin>::default()),
            LockName::HandoffCompetitive => user.with(HandoffType::<Competitive>::default()),
            LockName::HandoffOwnerRunning => user.with(HandoffType::<OwnerRunning>::default()),
            LockName::HandoffSameCpu => user.with(HandoffType::<SameCpu>::default()),
            LockName::HandoffAdaptive => user.with(HandoffType::<Adaptive>::default()),
            LockName::Glibc => user.with(CMutex::new(Abi::glibc()?, Kind::Default)?),
        },
        Contender::Recursive => user.with(RecursiveHandoff::<Usual>::default()),
        Contender::Spin(qspin::Form::Native) => user.with(QueueSpin::<Native, Small>::default()),
        Contender::Spin(qspin::Form::Virtual) => user.with(QueueSpin::<Virtual, Small>::default()),
        Contender::Spin(qspin::Form::Paravirtual) => user.with(QueueSpin::<Paravirtual, Small>::default()),
    }
}

/// The policy of [`LockName::Handoff`].
type Usual = Fixed;

fn timer(contender: Contender, operation: Operation) -> Result<Timer> {
    match (operation, contender) {
        (Operation::LockUnlock, _) => with_lock(contender, Time),
        (Operation::Trylock, _) => with_lock(contender, TimeTrying),
        (Operation::TrylockHeld, _) => with_lock(contender, TimeRefusals),
        (Operation::Again, Contender::GlibcRecursive) => {
            Again::timer(CMutex::new(Abi::glibc()?, Kind::Recursive)?)
        }
        (Operation::Again, Contender::Recursive) => Again::timer(RecursiveHandoff::<Usual>::default()),
        (Operation::ByToken, Contender::HANDOFF) => Ok(timer_of(ByToken::new())),
        (Operation::ThroughQueue, Contender::HANDOFF) => ThroughQueue::new().map(timer_of),
        _ => Err(Error::Options(format!("{contender} knows no '{}'", operation.words()))),
    }
}

struct Time;

impl Use for Time {
    type Output = Timer;

    fn with<L: TryLock + Send + 'static>(self, lock: L) -> Result<Timer> {
        Ok(timer_of(lock))
    }
}

struct TimeTrying;

impl Use for TimeTrying {
    type Output = Timer;

    fn with<L: TryLock + Send + 'static>(self, lock: L) -> Result<Timer> {
        Ok(timer_of(Trying(lock)))
    }
}

/// Locks by trylock, which must succeed.
struct Trying<L>(L);

impl<L: TryLock> Lock for Trying<L> {
    type Place = L::Place;

    #[inline(always)]
    fn lock(&self, place: &mut Self::Place) -> c_int {
        self.0.try_lock(place)
    }

    #[inline(always)]
    fn unlock(&self, place: &mut Self::Place) -> c_int {
        self.0.unlock(place)
    }
}

struct TimeRefusals;

impl Use for TimeRefusals {
    type Output = Timer;

    fn with<L: TryLock + Send + 'static>(self, lock: L) -> Result<Timer> {
        Ok(timer_of(Refused::new(lock)?))
    }
}

/// A lock that another thread holds: trylock must be refused.
struct Refused<L> {
    lock: Arc<L>,
    end: Option<mpsc::Sender<()>>,
    holder: Option<JoinHandle<c_int>>,
}

impl<L: Lock + Send + 'static> Refused<L> {
    fn new(lock: L) -> Result<Refused<L>> {
        let lock = Arc::new(lock);
        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let held = Arc::clone(&lock);
        // Boxed, so that what it takes to start a thread is compiled once rather than for each lock.
        let hold: Box<dyn FnOnce() -> c_int + Send> = Box::new(move || {
            let mut place = L::Place::default();
            let rc = held.lock(&mut place);
            // Both results say only that the other side is gone, and then this thread is done too.
            _ = tell.send(rc);
            _ = ended.recv();
            held.unlock(&mut place)
        });
        let holder = thread::Builder::new().spawn(hold).map_err(Error::system("cannot start a thread"))?;
        match told.recv() {
            Ok(0) => Ok(Refused { lock, end: Some(end), holder: Some(holder) }),
            _ => Err(Error::Options("a thread could not lock".to_owned())),
        }
    }
}

impl<L> Drop for Refused<L> {
    fn drop(&mut self) {
        self.end = None;
        if let Some(holder) = self.holder.take() {
            _ = holder.join();
        }
    }
}

impl<L: TryLock + Send> Lock for Refused<L> {
    type Place = L::Place;

    #[inline(always)]
    fn lock(&self, place: &mut Self::Place) -> c_int {
        match self.lock.try_lock(place) {
            libc::EBUSY => 0,
            _ => libc::EINVAL,
        }
    }

    #[inline(always)]
    fn unlock(&self, _place: &mut Self::Place) -> c_int {
        0
    }
}

/// A recursive lock that the measuring thread has once already.
struct Again<L: Lock<Place = ()>>(L);

impl<L: Lock<Place = ()> + 'static> Again<L> {
    fn timer(lock: L) -> Result<Timer> {
        match lock.lock(&mut ()) {
            0 => Ok(timer_of(Again(lock))),
            rc => Err(Error::System {
                what: "cannot lock".to_owned(),
                source: std::io::Error::from_raw_os_error(rc),
            }),
        }
    }
}

impl<L: Lock<Place = ()>> Drop for Again<L> {
    fn drop(&mut self) {
        self.0.unlock(&mut ());
    }
}

impl<L: Lock<Place = ()>> Lock for Again<L> {
    type Place = ();

    #[inline(always)]
    fn lock(&self, place: &mut ()) -> c_int {
        self.0.lock(place)
    }

    #[inline(always)]
    fn unlock(&self, place: &mut ()) -> c_int {
        self.0.unlock(place)
    }
}

/// A hand-off mutex as it is while some thread has counted itself and gets no further: every unlock leaves the token.
struct ByToken(HandoffType<Usual>);

impl ByToken {
    fn new() -> ByToken {
        // SAFETY: a `RawHandoff` is five 32-bit words, of which all values are valid; the first is the count. If that should
        // change, trylock fails below, and there is no figure.
        let raw = unsafe { std::mem::transmute::<[u32; 5], RawHandoff<Linux>>([2, 0, 0, 0, 0]) };
        // Of the two that are counted one is us, the owner.
        raw.unlock();
        ByToken(raw.into())
    }
}

impl Lock for ByToken {
    type Place = ();

    #[inline(always)]
    fn lock(&self, place: &mut ()) -> c_int {
        self.0.try_lock(place)
    }

    #[inline(always)]
    fn unlock(&self, place: &mut ()) -> c_int {
        self.0.unlock(place)
    }
}

/// A hand-off mutex that the measuring thread has, and passes to itself through the queue.
struct ThroughQueue {
    mutex: HandoffType<Usual>,
    waiter: Waiter,
}

impl ThroughQueue {
    fn new() -> Result<ThroughQueue> {
        let mutex = HandoffType::default();
        mutex.lock(&mut ());
        // The last of this thread's nodes: the others are for waits inside waits.
        let waiter = Linux::current().and_then(|index| NodeId::from_raw(index * LEVELS + LEVELS));
        let waiter = waiter.ok_or_else(|| Error::Options("the thread has no record".to_owned()))?.into();
        Ok(ThroughQueue { mutex, waiter })
    }
}

impl Lock for ThroughQueue {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        self.mutex.0.send_lock(self.waiter);
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        self.mutex.0.unlock();
        self.mutex.0.receive_lock(self.waiter);
        0
    }
}

struct Increment<'a>(&'a turns::Task);

impl Use for Increment<'_> {
    type Output = turns::Answer;

    fn with<L: TryLock + Send + 'static>(self, lock: L) -> Result<turns::Answer> {
        turns::drive(lock, self.0)
    }
}

struct Check<'a>(&'a turns::Task);

impl Use for Check<'_> {
    type Output = turns::Answer;

    fn with<L: TryLock + Send + 'static>(self, lock: L) -> Result<turns::Answer> {
        let inside = Arc::new(Inside::default());
        let answer = turns::drive(Yielding { lock, inside: Arc::clone(&inside) }, self.0);
        if inside.met.load(Relaxed) {
            return Err(Error::Options("the lock does not exclude: two threads met inside".to_owned()));
        }
        answer
    }
}

/// Who is inside.
#[derive(Default)]
#[repr(align(128))]
struct Inside {
    somebody: AtomicBool,
    met: AtomicBool,
}

/// A lock whose owners yield their CPU as soon as they have it, and look who else is there.
struct Yielding<L> {
    lock: L,
    inside: Arc<Inside>,
}

impl<L: Lock> Lock for Yielding<L> {
    type Place = L::Place;

    fn lock(&self, place: &mut Self::Place) -> c_int {
        let rc = self.lock.lock(place);
        if rc == 0 {
            if self.inside.somebody.swap(true, Relaxed) {
                self.inside.met.store(true, Relaxed);
            }
            thread::yield_now();
        }
        rc
    }

    fn unlock(&self, place: &mut Self::Place) -> c_int {
        if !self.inside.somebody.swap(false, Relaxed) {
            self.inside.met.store(true, Relaxed);
        }
        self.lock.unlock(place)
    }
}

struct Pass {
    next: Next,
    cpus: [usize; 2],
    duration_ns: u64,
}

/// How long the next owner has waited when the lock is passed to one that [`Next::JustCame`]: longer than it takes to
/// set out, and far shorter than spinners spin.
const JUST_NS: u64 = 1_000;
/// The fewest passes of one thread, however long they take.
const FEWEST: usize = 10;
/// The most passes of one thread that are kept.
const MOST: usize = 100_000;
/// After this long without a pass something is wrong.
const STUCK_NS: u64 = 20_000_000_000;

impl Use for Pass {
    type Output = Passes;

    fn with<L: TryLock + Send + 'static>(self, lock: L) -> Result<Passes> {
        let shared = Arc::new(Passing {
            lock,
            sides: Default::default(),
            released: Line::default(),
            begun: AtomicBool::new(false),
            end_ns: clock::now_ns() + self.duration_ns,
            ended: AtomicBool::new(false),
            pass: self,
        });
        let threads = [0, 1].map(|side| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().spawn(move || shared.run(side))
        });
        let (mut passes, mut unlocks) = (Vec::new(), Vec::new());
        for thread in threads {
            let thread = thread.map_err(Error::system("cannot start a thread"))?;
            let times = thread.join().map_err(|_| Error::Options("a thread died".to_owned()))??;
            passes.extend(times.passes);
            unlocks.extend(times.unlocks);
        }
        let summary = |times: Vec<u64>| Summary::of(times.into_iter().map(|ns| ns as f64));
        match (summary(passes), summary(unlocks)) {
            (Some(pass_ns), Some(unlock_ns)) => Ok(Passes { pass_ns, unlock_ns }),
            _ => Err(Error::Options("the lock was never passed on".to_owned())),
        }
    }
}

/// Cache lines of its own, adjacent-line prefetching included.
#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

/// A thread that passes the lock on and waits for it in turn.
#[derive(Default)]
struct Side {
    thread: AtomicI32,
    /// Since when it waits; 0 while it does not.
    since: AtomicU64,
}

struct Passing<L> {
    lock: L,
    sides: [Line<Side>; 2],
    /// When the lock was last released. Written by the owner.
    released: Line<AtomicU64>,
    /// Whether the first owner has it.
    begun: AtomicBool,
    end_ns: u64,
    /// Whether the pass under way is the last. Written by the owner.
    ended: AtomicBool,
    pass: Pass,
}

#[derive(Default)]
struct Times {
    passes: Vec<u64>,
    unlocks: Vec<u64>,
}

impl<L: Lock> Passing<L> {
    fn run(&self, side: usize) -> Result<Times> {
        affinity::keep_to(&[self.pass.cpus[side]])?;
        let (own, other) = (&self.sides[side].0, &self.sides[1 - side].0);
        // SAFETY: no arguments, no effect.
        own.thread.store(unsafe { libc::gettid() }, Relaxed);
        let mut times = Times::default();
        let mut place = L::Place::default();
        let mut owner = side == 0;
        if owner {
            succeed(self.lock.lock(&mut place))?;
            self.begun.store(true, Release);
        } else {
            wait_until(|| self.begun.load(Acquire))?;
        }
        loop {
            if owner {
                wait_until(|| other.since.load(Acquire) != 0)?;
                let since = other.since.load(Relaxed);
                let thread = other.thread.load(Relaxed);
                wait_until(|| match self.pass.next {
                    Next::JustCame => clock::now_ns() >= since + JUST_NS,
                    Next::Asleep => is_asleep(thread),
                })?;
                let last = clock::now_ns() >= self.end_ns && times.unlocks.len() >= FEWEST;
                self.ended.store(last, Relaxed);
                let before = clock::now_ns();
                self.released.0.store(before, Relaxed);
                succeed(self.lock.unlock(&mut place))?;
                keep(&mut times.unlocks, clock::now_ns() - before);
                if last {
                    return Ok(times);
                }
                // The other has the lock: nobody competes with it.
                wait_until(|| other.since.load(Acquire) == 0)?;
            }
            own.since.store(clock::now_ns(), Release);
            succeed(self.lock.lock(&mut place))?;
            let acquired = clock::now_ns();
            keep(&mut times.passes, acquired.saturating_sub(self.released.0.load(Relaxed)));
            owner = true;
            let last = self.ended.load(Relaxed);
            own.since.store(0, Release);
            if last {
                succeed(self.lock.unlock(&mut place))?;
                return Ok(times);
            }
        }
    }
}

fn succeed(rc: c_int) -> Result<()> {
    if rc == 0 {
        return Ok(());
    }
    Err(Error::System {
        what: "locking or unlocking failed".to_owned(),
        source: std::io::Error::from_raw_os_error(rc),
    })
}

fn keep(times: &mut Vec<u64>, ns: u64) {
    if times.len() < MOST {
        times.push(ns);
    }
}

/// Spins for a while, and then lets others run between two looks.
fn wait_until(mut done: impl FnMut() -> bool) -> Result<()> {
    const LOOKS: u32 = 1_000;
    let mut looks = 0;
    let begin = clock::now_ns();
    while !done() {
        if looks < LOOKS {
            looks += 1;
            hint::spin_loop();
        } else if clock::now_ns() - begin < STUCK_NS {
            thread::yield_now();
        } else {
            return Err(Error::Options("the lock is not passed on".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_cpus() -> [usize; 2] {
        let cpus = affinity::allowed().unwrap();
        [cpus[0], cpus[cpus.len() - 1]]
    }

    fn turns(threads: usize) -> turns::Task {
        turns::Task {
            threads,
            critical_steps: 0,
            think_steps: 0,
            warm_up_ns: 0,
            duration_ns: 5_000_000,
            drain_ns: 60_000_000_000,
            cpus: affinity::allowed().unwrap(),
            pin: false,
            probe: false,
        }
    }

    #[test]
    fn everything_is_timed_alone() {
        let timed: Vec<_> = Contender::all()
            .into_iter()
            .flat_map(|contender| Operation::of(contender).into_iter().map(move |what| (contender, what)))
            .collect();
        for operation in
            [Operation::Again, Operation::TrylockHeld, Operation::ByToken, Operation::ThroughQueue]
        {
            assert!(timed.iter().any(|&(_, what)| what == operation), "{operation:?} is not timed");
        }
        let cpu = affinity::allowed().unwrap()[0];
        let task = Task::Alone { timed: timed.clone(), cpu, slices: 3, slice_ns: 20_000 };
        let Answer::Alone(results) = run(&task).unwrap() else { panic!("another answer") };
        assert_eq!(results.iter().map(|&(who, what, _)| (who, what)).collect::<Vec<_>>(), timed);
        for (who, what, ns) in results {
            assert!(ns.median > 0.0 && ns.n == 3, "{who}, {what:?}: {ns:?}");
        }
    }

    #[test]
    fn what_a_contender_cannot_is_refused() {
        let task = Task::Alone {
            timed: vec![(Contender::Glibc, Operation::ByToken)],
            cpu: affinity::allowed().unwrap()[0],
            slices: 1,
            slice_ns: 1,
        };
        assert!(run(&task).unwrap_err().to_string().contains("glibc knows no"));
        let task =
            Task::Pass { contender: Contender::QSPIN, next: Next::Asleep, cpus: two_cpus(), duration_ns: 1 };
        assert!(run(&task).unwrap_err().to_string().contains("nobody sleeps"));
    }

    #[test]
    fn every_lock_is_passed_on_incremented_under_and_checked() {
        for contender in Contender::all().into_iter().filter(|contender| contender.waits()) {
            for next in [Next::JustCame, Next::Asleep] {
                if next == Next::Asleep && !contender.sleeps() {
                    continue;
                }
                let task = Task::Pass { contender, next, cpus: two_cpus(), duration_ns: 2_000_000 };
                let Answer::Pass(passes) = run(&task).unwrap() else { panic!("another answer") };
                assert!(
                    passes.pass_ns.n > 1 && passes.unlock_ns.n == passes.pass_ns.n,
                    "{contender}: {passes:?}"
                );
                assert!(passes.pass_ns.max > 0.0, "{contender}: {passes:?}");
            }
            for task in
                [Task::Increment { contender, turns: turns(3) }, Task::Check { contender, turns: turns(3) }]
            {
                let Answer::Turns(answer) = run(&task).unwrap() else { panic!("another answer") };
                assert!(answer.counts.iter().sum::<u64>() > 0, "{contender}");
                assert_eq!(answer.unfinished, 0, "{contender}");
            }
        }
    }

    #[test]
    fn a_lock_that_is_taken_is_refused_to_others() {
        let refused = Refused::new(CMutex::new(Abi::glibc().unwrap(), Kind::Default).unwrap()).unwrap();
        assert_eq!(refused.lock(&mut ()), 0);
        let open = Refused::new(Open).unwrap();
        assert_eq!(open.lock(&mut ()), libc::EINVAL, "a trylock that succeeds is no refusal");
    }

    #[test]
    fn a_token_is_left_each_time() {
        let lock = ByToken::new();
        for _ in 0..3 {
            assert_eq!(lock.lock(&mut ()), 0);
            assert_eq!(lock.lock(&mut ()), libc::EBUSY);
            assert_eq!(lock.unlock(&mut ()), 0);
        }
    }

    #[test]
    fn whoever_is_handed_the_lock_through_the_queue_has_it() {
        let lock = ThroughQueue::new().unwrap();
        for _ in 0..3 {
            assert_eq!(lock.lock(&mut ()), 0);
            assert_eq!(lock.mutex.try_lock(&mut ()), libc::EBUSY);
            assert_eq!(lock.unlock(&mut ()), 0);
            assert_eq!(lock.mutex.try_lock(&mut ()), libc::EBUSY);
        }
        assert_eq!(lock.mutex.unlock(&mut ()), 0);
        assert_eq!(lock.mutex.try_lock(&mut ()), 0, "nobody is left in the queue");
    }

    /// No lock at all.
    struct Open;

    impl Lock for Open {
        type Place = ();
        fn lock(&self, (): &mut ()) -> c_int {
            0
        }
        fn unlock(&self, (): &mut ()) -> c_int {
            0
        }
    }

    impl TryLock for Open {
        fn try_lock(&self, (): &mut ()) -> c_int {
            0
        }
    }

    #[test]
    fn the_checker_finds_threads_that_meet() {
        let found = (0..100).any(|_| {
            Check(&turns(4)).with(Open).is_err_and(|error| error.to_string().contains("two threads met"))
        });
        assert!(found, "threads met unnoticed");
    }
}
