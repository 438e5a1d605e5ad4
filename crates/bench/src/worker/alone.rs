//! Time of a lock and an unlock that nobody contends for: what a lock's users could inline is inlined here,
//! and what they call through a pointer is called through a pointer.

use std::ffi::{c_int, c_void};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{PoisonError, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::lock_api::RawRwLock as _;
use poundlock_core::Platform;
use poundlock_core::adaptive::{AnyNegative, Baseline, FewerAtomics, McsQueue, RawAdaptive};
use poundlock_core::handoff::{
    Adaptive, Competitive, Fixed, Handoff, NoSpin, OwnerRunning, RawHandoff, SameCpu,
};
use poundlock_core::node::{LEVELS, NodeId};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::qspin::{Large, Native, Paravirtual, RawSpin, Small, Virtual};
use poundlock_core::rwlock::{Preference, RawRwLock};
use poundlock_linux::Linux;
use poundlock_names::Named;
use poundlock_textbook::Spinlock;
use serde::{Deserialize, Serialize};

use super::drive::Subject;
use super::sample;
use super::symbols::{Call, Kind, Symbols, succeed};
use crate::Summary;
use crate::error::{Error, Result};
use crate::plan::Sample;
use crate::{affinity, clock};

/// What one thread does with a lock that nobody else wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// Lock and unlock; of a readers-writer lock, as a writer.
    LockUnlock,
    /// The same as a reader.
    Read,
    /// Lock and unlock of a lock in which a thread has slept before: it may do less as long as none has.
    Slept,
    /// Lock and unlock while the thread has another lock of that sort.
    Holding,
    /// Lock and unlock once more, of a lock that the thread has.
    Again,
    /// Trylock, of a free one, and unlock.
    Trylock,
    /// Trylock of one that another thread holds.
    TrylockHeld,
    /// The hand-off mutex: unlock with somebody counted who has not queued, so that a token is left; and
    /// trylock, which takes it.
    ByToken,
    /// The hand-off mutex: a waiter is queued, the unlock finds it, hands over and wakes it; it is the thread
    /// itself.
    ThroughQueue,
}

/// A call that cannot fail, as one that returns an error number.
macro_rules! done {
    ($call:expr) => {{
        $call;
        0
    }};
}

/// What is timed: a lock by the name that [`timer`] knows, and what is done with it.
pub(crate) type Timed = (String, Operation);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// What to time, interleaved.
    pub(crate) timed: Vec<Timed>,
    /// Whether a second thread is alive (asleep) meanwhile.
    pub(crate) second_thread: bool,
    /// The CPU to stay on.
    pub(crate) cpu: usize,
    /// Time slices for each.
    pub(crate) slices: u32,
    /// Length of a slice.
    pub(crate) slice_ns: u64,
}

/// Of each that is timed, in order, nanoseconds a pair, the median over the slices; and how many pairs were.
pub(crate) fn run(library: Option<&Path>, task: &Task) -> Result<Vec<Sample>> {
    if task.second_thread {
        start_a_second_thread()?;
    }
    affinity::keep_to(&[task.cpu])?;
    let timers = task.timed.iter().map(|(lock, what)| Ok((lock.as_str(), timer(library, lock, *what)?)));
    let mut timers = timers.collect::<Result<Vec<_>>>()?;
    let timed = take_turns(&mut timers, task.slices, task.slice_ns)?;
    let figures = |(ns, pairs): (Summary, u64)| sample([("ns", ns.median), ("acquisitions", pairs as f64)]);
    Ok(timed.into_iter().map(figures).collect())
}

/// Times what is there, slice by slice in turn. Returns nanoseconds a pair of each, and how many pairs there
/// were.
pub(super) fn take_turns(
    timers: &mut [(&str, Timer)],
    slices: u32,
    slice_ns: u64,
) -> Result<Vec<(Summary, u64)>> {
    let mut lengths = Vec::new();
    for (what, timer) in &mut *timers {
        lengths.push(pairs_in(slice_ns, &mut **timer).or_else(|rc| failed(what, rc))?);
    }
    let mut samples = vec![Vec::with_capacity(slices as usize); timers.len()];
    for _ in 0..slices {
        for (((what, timer), &pairs), samples) in timers.iter_mut().zip(&lengths).zip(&mut samples) {
            let ns = timer(pairs).or_else(|rc| failed(what, rc))?;
            samples.push(ns as f64 / pairs as f64);
        }
    }
    let none = || Error::Failed("there are no slices".to_owned());
    let timed = samples.into_iter().zip(lengths);
    timed
        .map(|(samples, pairs)| Ok((Summary::of(samples).ok_or_else(none)?, pairs * u64::from(slices))))
        .collect()
}

fn failed<T>(what: &str, rc: c_int) -> Result<T> {
    succeed(rc, &format!("{what} failed"))?;
    Err(Error::Failed(format!("{what} failed")))
}

/// Times a number of pairs; returns nanoseconds, or what a call returned that should return 0.
pub(super) type Timer = Box<dyn FnMut(u64) -> std::result::Result<u64, c_int>>;

/// The timer of two calls, which share what a thread keeps from the lock to the unlock.
pub(super) fn timer_of<K: Default + 'static>(
    lock: impl Fn(&mut K) -> c_int + Copy + 'static,
    unlock: impl Fn(&mut K) -> c_int + Copy + 'static,
) -> Timer {
    Box::new(move |pairs| time(lock, unlock, pairs))
}

/// The loop. Compiled once for each kind of lock, and the same for all.
#[inline(never)]
fn time<K: Default>(
    lock: impl Fn(&mut K) -> c_int,
    unlock: impl Fn(&mut K) -> c_int,
    pairs: u64,
) -> std::result::Result<u64, c_int> {
    let mut rc = 0;
    let mut kept = K::default();
    let start = clock::now_ns();
    for _ in 0..pairs {
        rc |= lock(&mut kept);
        critical_section();
        rc |= unlock(&mut kept);
    }
    let ns = clock::now_ns() - start;
    if rc == 0 { Ok(ns) } else { Err(rc) }
}

/// A critical section of no instructions, which the compiler must take for one that reads and writes memory.
#[inline(always)]
fn critical_section() {
    // SAFETY: there is no instruction in it.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) }
}

/// How many pairs fill a slice; warms the code up on the way.
fn pairs_in(
    slice_ns: u64,
    timer: &mut dyn FnMut(u64) -> std::result::Result<u64, c_int>,
) -> std::result::Result<u64, c_int> {
    let mut pairs = 1000;
    loop {
        let ns = timer(pairs)?.max(1);
        if ns >= slice_ns / 2 {
            return Ok((pairs as f64 * slice_ns as f64 / ns as f64).max(1000.0) as u64);
        }
        pairs *= 2;
    }
}

/// A lock in lines of its own, of which the compiler does not know which it is. It lives as long as the
/// process.
fn leak<T>(lock: T) -> &'static T {
    #[repr(align(128))]
    struct Line<T>(T);
    // Else the first thread that has to wait would find out about the machine.
    poundlock_linux::init();
    black_box(&Box::leak(Box::new(Line(lock))).0)
}

#[inline(always)]
fn tried(acquired: bool) -> c_int {
    if acquired { 0 } else { libc::EBUSY }
}

#[inline(always)]
fn swapped(word: &AtomicU32) -> c_int {
    tried(word.compare_exchange(0, 1, Acquire, Relaxed).is_ok())
}

/// What is done with a lock, given how it is locked, tried and unlocked.
fn timed(
    what: Operation,
    lock: impl Fn() -> c_int + Copy + Send + 'static,
    trylock: impl Fn() -> c_int + Copy + 'static,
    unlock: impl Fn() -> c_int + Copy + Send + 'static,
) -> Result<Timer> {
    match what {
        Operation::Slept => let_a_thread_sleep_in(&lock, &unlock)?,
        Operation::Again => succeed(lock(), "locking failed")?,
        Operation::TrylockHeld => hold(&lock)?,
        _ => {}
    }
    match what {
        Operation::LockUnlock | Operation::Slept | Operation::Again | Operation::Read => {
            Ok(timer_of(move |(): &mut ()| lock(), move |()| unlock()))
        }
        Operation::Trylock => Ok(timer_of(move |(): &mut ()| trylock(), move |()| unlock())),
        Operation::TrylockHeld => {
            let refused = move |(): &mut ()| if trylock() == libc::EBUSY { 0 } else { libc::EINVAL };
            Ok(timer_of(refused, |()| 0))
        }
        Operation::Holding | Operation::ByToken | Operation::ThroughQueue => {
            Err(Error::Failed("only the hand-off mutex is handed over".to_owned()))
        }
    }
}

/// A lock that Rust programs inline.
macro_rules! inlined {
    ($what:expr, $make:expr, |$l:ident| $lock:expr, $trylock:expr, $unlock:expr) => {{
        let $l = leak($make);
        timed($what, move || $lock, move || $trylock, move || $unlock)
    }};
}

/// A lock with guards.
macro_rules! guarded {
    ($what:expr, $make:expr) => {
        inlined!($what, $make, |l| done!(std::mem::forget(l.lock())), tried(false), {
            // SAFETY: this thread locked it, and the guard is forgotten.
            done!(unsafe { l.force_unlock() })
        })
    };
}

/// One of ours that is told a policy each time.
macro_rules! with_policy {
    ($what:expr, $make:expr, $policy:ty, $($unlock:tt)+) => {
        inlined!($what, $make, |l| done!(l.lock::<$policy>()), tried(l.try_lock()), done!(l.$($unlock)+))
    };
}

/// A form of the queue spinlock in a layout.
macro_rules! spinning {
    ($what:expr, $layout:ty, $form:ty) => {
        inlined!(
            $what,
            RawSpin::<Linux, $layout>::new(),
            |l| done!(l.lock::<$form>()),
            tried(l.try_lock::<$form>()),
            done!(l.unlock::<$form>())
        )
    };
}

/// A readers-writer lock that Rust programs inline; `$kept` is what a thread keeps.
macro_rules! sharing {
    ($what:expr, $make:expr, |$l:ident, $kept:ident: $type:ty|
     $read:expr, $unread:expr, $write:expr, $unwrite:expr) => {{
        let $l = leak($make);
        Ok(match $what {
            Operation::Read => timer_of(move |$kept: &mut $type| $read, move |$kept: &mut $type| $unread),
            _ => timer_of(move |$kept: &mut $type| $write, move |$kept: &mut $type| $unwrite),
        })
    }};
}

/// A textbook spinlock, with its token.
fn textbook<S: Spinlock + 'static>() -> Result<Timer> {
    let lock = leak(S::default());
    Ok(timer_of(
        move |token: &mut Option<S::Token>| {
            *token = Some(lock.lock());
            0
        },
        move |token| match token.take() {
            Some(token) => done!(lock.unlock(token)),
            None => libc::EPERM,
        },
    ))
}

/// The timer of a lock by its name, of which `library:` and `glibc:` are followed by a kind of pthread lock,
/// and `rw:` by a readers-writer lock.
fn timer(library: Option<&Path>, name: &str, what: Operation) -> Result<Timer> {
    if what == Operation::Holding {
        // One that is held, and stays so with all that belongs to it; and one to be timed.
        std::mem::forget(timer(library, name, Operation::Again)?);
        return timer(library, name, Operation::LockUnlock);
    }
    if let Some(of) = name.strip_prefix("glibc:") {
        return pthread(Symbols::of(None, kind(of)?)?, what);
    }
    if let Some(of) = name.strip_prefix("library:") {
        return pthread(Symbols::of(library, kind(of)?)?, what);
    }
    if let Some(of) = name.strip_prefix("rw:") {
        return reading_or_writing(of, what);
    }
    if let Some(floor) = Symbols::floor(name) {
        return pthread(floor, what);
    }
    match (name, what) {
        ("handoff", Operation::ByToken) => return Ok(by_token()),
        ("handoff", Operation::ThroughQueue) => return through_queue(),
        _ => {}
    }
    match name {
        "cas+exchange" => {
            inlined!(what, AtomicU32::new(0), |l| swapped(l), swapped(l), (l.swap(0, Release) != 1) as c_int)
        }
        "cas+store" => {
            inlined!(what, AtomicU32::new(0), |l| swapped(l), swapped(l), done!(l.store(0, Release)))
        }
        // The result is used, lest the compiler choose an instruction without one.
        "atomic-add" => {
            inlined!(what, AtomicU64::new(0), |l| (black_box(l.fetch_add(1, AcqRel)), 0).1, 0, {
                _ = l;
                0
            })
        }
        // SAFETY: every x86-64 CPU has the instruction, and Linux lets user space use it.
        #[cfg(target_arch = "x86_64")]
        "time-stamp" => timed(what, || (black_box(unsafe { core::arch::x86_64::_rdtsc() }), 0).1, || 0, || 0),
        "empty-loop" => timed(what, || 0, || 0, || 0),
        "c-library" => pthread(Symbols::of_c_library("mutex")?, what),
        "c-recursive" => pthread(Symbols::of_c_library("recursive_mutex")?, what),
        "crate-mutex" => guarded!(what, poundlock::Mutex::new(0_u64)),
        "parking-lot-mutex" => guarded!(what, parking_lot::Mutex::new(0_u64)),
        "poundlock" => inlined!(
            what,
            RawPoundlock::<Linux>::new(),
            |l| done!(l.lock()),
            tried(l.try_lock()),
            done!(l.unlock())
        ),
        "baseline" => with_policy!(what, RawAdaptive::<Linux>::new(), Baseline, unlock::<Baseline>()),
        "fewer-atomics" => {
            with_policy!(what, RawAdaptive::<Linux>::new(), FewerAtomics, unlock::<FewerAtomics>())
        }
        "mcs-queue" => with_policy!(what, RawAdaptive::<Linux>::new(), McsQueue, unlock::<McsQueue>()),
        "any-negative" => {
            with_policy!(what, RawAdaptive::<Linux>::new(), AnyNegative, unlock::<AnyNegative>())
        }
        "handoff" => with_policy!(what, RawHandoff::<Linux>::new(), Fixed, unlock()),
        "handoff:none" => with_policy!(what, RawHandoff::<Linux>::new(), NoSpin, unlock()),
        "handoff:competitive" => with_policy!(what, RawHandoff::<Linux>::new(), Competitive, unlock()),
        "handoff:owner-running" => with_policy!(what, RawHandoff::<Linux>::new(), OwnerRunning, unlock()),
        "handoff:same-cpu" => with_policy!(what, RawHandoff::<Linux>::new(), SameCpu, unlock()),
        "handoff:adaptive" => with_policy!(what, RawHandoff::<Linux>::new(), Adaptive, unlock()),
        "handoff-recursive" => with_policy!(what, Handoff::<Linux>::new(), Fixed, unlock()),
        "qspin" => spinning!(what, Small, Native),
        "qspin-virt" => spinning!(what, Small, Virtual),
        "qspin-pv" => spinning!(what, Small, Paravirtual),
        "qspin-large" => spinning!(what, Large, Native),
        "qspin-pv-large" => spinning!(what, Large, Paravirtual),
        "ticket" => textbook::<poundlock_textbook::Ticket<Linux>>(),
        "test-and-set" => textbook::<poundlock_textbook::TestAndSet<Linux>>(),
        "back-off" => textbook::<poundlock_textbook::BackOff<Linux>>(),
        "mcs" => textbook::<poundlock_textbook::Mcs<Linux>>(),
        _ => Err(Error::Failed(format!("no lock is called '{name}'"))),
    }
}

/// The timer of a floor.
pub(super) fn bare_timer(name: &str) -> Result<Timer> {
    timer(None, name, Operation::LockUnlock)
}

fn kind(name: &str) -> Result<Kind> {
    Ok(match name {
        "mutex" => Kind::Mutex,
        "adaptive" => Kind::Adaptive,
        "recursive" => Kind::Recursive,
        "spin" => Kind::Spin,
        "readers" => Kind::Readers,
        "writers" => Kind::Writers,
        _ => return Err(Error::Failed(format!("no kind of lock is called '{name}'"))),
    })
}

fn pthread(symbols: Symbols, what: Operation) -> Result<Timer> {
    let address = symbols.make()? as usize;
    // SAFETY: the lock lives as long as the process; whoever is timed unlocks what it locked.
    let call = move |function: Call| unsafe { function(address as *mut c_void) };
    let lock = if what == Operation::Read { symbols.read } else { symbols.lock };
    timed(what, move || call(lock), move || call(symbols.trylock), move || call(symbols.unlock))
}

/// A readers-writer lock; those of packages are called through pointers.
fn reading_or_writing(name: &str, what: Operation) -> Result<Timer> {
    if let Some(policy) = Preference::parse(name) {
        return match policy {
            Preference::PhaseFair => ours_with::<{ Preference::PhaseFair as usize }>(what),
            Preference::ReaderPreferring => ours_with::<{ Preference::ReaderPreferring as usize }>(what),
            Preference::WriterPreferring => ours_with::<{ Preference::WriterPreferring as usize }>(what),
        };
    }
    match name {
        "add+subtract" => sharing!(
            what,
            AtomicU32::new(0),
            |l, _kept: ()| tried(l.fetch_add(1, Acquire) < 1 << 31),
            tried(l.fetch_sub(1, Release) != 0),
            tried(l.compare_exchange(0, 1 << 31, Acquire, Relaxed).is_ok()),
            done!(l.store(0, Release))
        ),
        "mutex" => timer(None, "poundlock", Operation::LockUnlock),
        "parking_lot" => sharing!(
            what,
            parking_lot::RawRwLock::INIT,
            |l, _kept: ()| done!(l.lock_shared()),
            // SAFETY: this thread locked it as a reader.
            done!(unsafe { l.unlock_shared() }),
            done!(l.lock_exclusive()),
            // SAFETY: this thread locked it as a writer.
            done!(unsafe { l.unlock_exclusive() })
        ),
        "std" => {
            let lock: &'static RwLock<()> = leak(RwLock::new(()));
            Ok(match what {
                Operation::Read => timer_of(
                    move |kept| done!(*kept = Some(lock.read().unwrap_or_else(PoisonError::into_inner))),
                    |kept| tried(kept.take().is_some()),
                ),
                _ => timer_of(
                    move |kept| done!(*kept = Some(lock.write().unwrap_or_else(PoisonError::into_inner))),
                    |kept| tried(kept.take().is_some()),
                ),
            })
        }
        _ => {
            let (calls, _) = Subject::Rw(name.to_owned().into()).calls(None)?;
            let instance = Box::leak(Box::new(poundlock_peers::Instance::new(&calls.write)));
            let (at, node) = (instance.as_ptr() as usize, super::drive::node(&calls.write) as usize);
            let (lock, unlock) = match what {
                Operation::Read => (calls.read_lock, calls.read_unlock),
                _ => (calls.write.lock, calls.write.unlock),
            };
            type Function = unsafe extern "C" fn(*mut c_void, *mut c_void);
            let call = move |function: Function| {
                // SAFETY: lock and node live as long as the process; the thread that is timed unlocks what it
                // locked, with this node.
                unsafe { function(at as *mut c_void, node as *mut c_void) };
                0
            };
            Ok(timer_of(move |(): &mut ()| call(lock), move |()| call(unlock)))
        }
    }
}

fn ours_with<const POLICY: usize>(what: Operation) -> Result<Timer> {
    sharing!(
        what,
        RawRwLock::<Linux>::new(),
        |l, _kept: ()| done!(l.lock_read(Preference::ALL[POLICY])),
        done!(l.unlock_read()),
        done!(l.lock_write(Preference::ALL[POLICY])),
        done!(l.unlock_write())
    )
}

/// A hand-off mutex as it is while some thread has counted itself and gets no further: every unlock leaves
/// the token.
fn by_token() -> Timer {
    // SAFETY: a `RawHandoff` is five 32-bit words, of which all values are valid; the first is the count. If
    // that should change, trylock fails below, and there is no figure.
    let lock = leak(unsafe { std::mem::transmute::<[u32; 5], RawHandoff<Linux>>([2, 0, 0, 0, 0]) });
    // Of the two that are counted one is us, the owner.
    lock.unlock();
    timer_of(move |(): &mut ()| tried(lock.try_lock()), move |()| done!(lock.unlock()))
}

/// A hand-off mutex that the measuring thread has, and passes to itself through the queue.
fn through_queue() -> Result<Timer> {
    let lock = leak(RawHandoff::<Linux>::new());
    lock.lock::<Fixed>();
    // The last of this thread's nodes: the others are for waits inside waits.
    let node = Linux::current().and_then(|index| NodeId::from_raw(index * LEVELS + LEVELS));
    let waiter: poundlock_core::node::Waiter =
        node.ok_or_else(|| Error::Failed("the thread has no record".to_owned()))?.into();
    Ok(timer_of(
        move |(): &mut ()| done!(lock.send_lock(waiter)),
        move |()| {
            lock.unlock();
            done!(lock.receive_lock(waiter))
        },
    ))
}

/// Has another thread take a lock, and keep it to the end of the process.
fn hold(lock: &(impl Fn() -> c_int + Copy + Send + 'static)) -> Result<()> {
    let lock = *lock;
    // Boxed, so that what it takes to start a thread is compiled once rather than for each lock.
    let locked = stay(Box::new(lock))?;
    succeed(locked, "a thread could not lock")
}

/// Starts a thread that stays to the end of the process, asleep. Returns what it did first.
fn stay(first: Box<dyn FnOnce() -> c_int + Send>) -> Result<c_int> {
    let (tell, told) = mpsc::channel();
    let stay = move || {
        _ = tell.send(first());
        loop {
            thread::park();
        }
    };
    thread::Builder::new().spawn(stay).map_err(Error::system("cannot start a thread"))?;
    told.recv().map_err(|_| Error::Failed("a thread died".to_owned()))
}

/// Has a second thread be there, asleep so that it disturbs nothing.
pub(super) fn start_a_second_thread() -> Result<()> {
    // SAFETY: no arguments, no effect.
    await_sleep(stay(Box::new(|| unsafe { libc::gettid() }))?)
}

/// Has a thread wait for a lock, asleep, and acquire it. Nobody holds it afterwards.
fn let_a_thread_sleep_in(
    lock: &(impl Fn() -> c_int + Copy + Send + 'static),
    unlock: &(impl Fn() -> c_int + Copy + Send + 'static),
) -> Result<()> {
    succeed(lock(), "locking failed")?;
    let (send, receive) = mpsc::channel();
    let (lock, unlock) = (*lock, *unlock);
    let sleep: Box<dyn FnOnce() -> c_int + Send> = Box::new(move || {
        // SAFETY: no arguments, no effect.
        _ = send.send(unsafe { libc::gettid() });
        // From here on it can sleep in the lock only.
        lock() | unlock()
    });
    let sleeper = thread::Builder::new().spawn(sleep).map_err(Error::system("cannot start a thread"))?;
    await_sleep(receive.recv().map_err(|_| Error::Failed("the thread to sleep died".to_owned()))?)?;
    succeed(unlock(), "unlocking failed")?;
    succeed(sleeper.join().unwrap_or(libc::EFAULT), "locking failed")
}

/// Waits until the scheduler says that a thread of this process is asleep.
fn await_sleep(thread: libc::pid_t) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(10);
    while !is_asleep(thread) {
        if Instant::now() > limit {
            return Err(Error::Failed("a thread does not come to rest".to_owned()));
        }
        thread::yield_now();
    }
    Ok(())
}

pub(super) fn is_asleep(thread: libc::pid_t) -> bool {
    fs::read_to_string(format!("/proc/self/task/{thread}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_timed() {
        let mut timed: Vec<Timed> = crate::contender::everything_alone();
        timed.retain(|(name, _)| !name.starts_with("library:"));
        assert!(timed.len() > 80, "{timed:?}");
        let cpu = affinity::allowed().unwrap()[0];
        let task = Task { timed, second_thread: true, cpu, slices: 1, slice_ns: 20_000 };
        let answer = run(None, &task).unwrap();
        assert_eq!(answer.len(), task.timed.len());
        for (what, figures) in task.timed.iter().zip(answer) {
            assert!(figures["ns"] > 0.0 && figures["acquisitions"] >= 1000.0, "{what:?}");
        }
    }

    #[test]
    fn a_lock_that_fails_gives_no_figure() {
        let mut broken = timer_of(|(): &mut ()| libc::EBUSY, |()| 0);
        assert_eq!(broken(10), Err(libc::EBUSY));
        // A trylock that succeeds is no refusal.
        let mut open = timed(Operation::TrylockHeld, || 0, || 0, || 0).unwrap();
        assert_eq!(open(1), Err(libc::EINVAL));
        let error = timer(None, "glibc:mutex", Operation::ByToken).err().unwrap().to_string();
        assert!(error.contains("only the hand-off mutex"), "{error}");
    }

    #[test]
    fn floors_exclude_and_tokens_are_left_each_time() {
        for lock in ["cas+exchange", "cas+store"] {
            // The second of two that are not unlocked fails.
            let mut held = timer(None, lock, Operation::TrylockHeld).unwrap();
            assert!(held(3).is_ok(), "{lock}");
        }
        for what in [Operation::ByToken, Operation::ThroughQueue] {
            assert!(timer(None, "handoff", what).unwrap()(3).is_ok(), "{what:?}");
        }
    }
}
