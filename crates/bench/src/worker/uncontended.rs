//! Time of a lock and an unlock that nobody contends for.

use std::ffi::c_int;
use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use poundlock_core::adaptive as mutex;
use poundlock_names::LockName;
use serde::{Deserialize, Serialize};

use crate::abi::{Abi, CMutex, Kind};
use crate::error::{Error, Result};
use crate::lock::{Around, BareCasExchange, BargingType, ByTrylock, Lock, Nothing, OneAtomicAdd, RustType};
use crate::stats::Summary;
use crate::{affinity, clock};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// `lock` and `unlock` of a default mutex, or of an adaptive one where the contender is that.
    LockUnlock,
    /// `trylock` and `unlock` of the same.
    TrylockUnlock,
    /// `lock` and `unlock` of a recursive mutex that is free.
    RecursiveLockUnlock,
    /// `lock` and `unlock` of a mutex in which a thread has slept before: a lock may do less as long as none has.
    SleptLockUnlock,
    /// `lock` and `unlock` of the Rust type of one of our locks, inlined.
    RustBaseline,
    /// The same for `fewer-atomics`.
    RustFewerAtomics,
    /// The same for `mcs-queue`.
    RustMcsQueue,
    /// The same for `any-negative`.
    RustAnyNegative,
    /// The same for `poundlock`.
    RustPoundlock,
    /// `poundlock_mutex_lock` and `poundlock_mutex_unlock` of the C library, if it is there.
    CLibrary,
    /// `poundlock::Mutex`, inlined: the same lock with a value, as the crate has it.
    CrateMutex,
    /// `parking_lot::Mutex`, inlined.
    ParkingLotMutex,
    /// Two calls of empty functions through the same pointers: the driver's share in the above.
    EmptyCalls,
    /// A compare-and-swap and an exchange, each in a function called through the same pointers: the floor of
    /// a mutex of two atomics behind the C ABI.
    BareCalls,
    /// A compare-and-swap and a plain store, likewise: the floor of a mutex of one atomic.
    BareStoreCalls,
    /// A compare-and-swap and an exchange, inlined.
    BareCasExchange,
    /// One atomic addition, inlined.
    AtomicAdd,
    /// One reading of the time stamp counter, inlined.
    TimeStamp,
    /// The loop alone: the driver's share in the inlined ones.
    EmptyLoop,
}

impl Operation {
    /// The Rust type of one of our locks; `None` for glibc.
    pub const fn rust_type(lock: LockName) -> Option<Operation> {
        match lock {
            LockName::Baseline => Some(Self::RustBaseline),
            LockName::FewerAtomics => Some(Self::RustFewerAtomics),
            LockName::McsQueue => Some(Self::RustMcsQueue),
            LockName::AnyNegative => Some(Self::RustAnyNegative),
            LockName::Poundlock => Some(Self::RustPoundlock),
            _ => None,
        }
    }

    /// The operation in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::LockUnlock => "lock + unlock",
            Self::TrylockUnlock => "trylock + unlock",
            Self::RecursiveLockUnlock => "recursive lock + unlock",
            Self::SleptLockUnlock => "lock + unlock, once slept in",
            Self::RustBaseline => "Rust type, baseline",
            Self::RustFewerAtomics => "Rust type, fewer-atomics",
            Self::RustMcsQueue => "Rust type, mcs-queue",
            Self::RustAnyNegative => "Rust type, any-negative",
            Self::RustPoundlock => "Rust type, poundlock",
            Self::CLibrary => "poundlock_mutex_lock + poundlock_mutex_unlock",
            Self::CrateMutex => "poundlock::Mutex",
            Self::ParkingLotMutex => "parking_lot::Mutex",
            Self::EmptyCalls => "two empty calls (driver of the C functions)",
            Self::BareCalls => "two calls: compare-and-swap, exchange",
            Self::BareStoreCalls => "two calls: compare-and-swap, plain store",
            Self::BareCasExchange => "compare-and-swap + exchange",
            Self::AtomicAdd => "one atomic add",
            Self::TimeStamp => "one rdtsc",
            Self::EmptyLoop => "empty loop (driver of the inlined)",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// What to time, interleaved.
    pub(crate) operations: Vec<Operation>,
    /// The kind of mutex behind the plain operations.
    pub(crate) kind: Kind,
    /// Whether a second thread is alive (asleep) meanwhile.
    pub(crate) second_thread: bool,
    /// The CPU to stay on.
    pub(crate) cpu: usize,
    /// Time slices an operation.
    pub(crate) slices: u32,
    /// Length of a slice.
    pub(crate) slice_ns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// For each operation, nanoseconds a pair: the median over the slices and their spread.
    pub(crate) results: Vec<(Operation, Summary)>,
    /// Timed pairs of all operations together.
    pub(crate) acquisitions: u64,
}

pub(crate) fn run(abi: Abi, task: &Task) -> Result<Answer> {
    let sleeper = if task.second_thread { Some(Sleeper::start()?) } else { None };
    affinity::keep_to(&[task.cpu])?;
    let mut timers = task
        .operations
        .iter()
        .map(|&operation| Ok((operation, timer(abi, task.kind, operation)?)))
        .collect::<Result<Vec<_>>>()?;

    let (results, acquisitions) =
        take_turns(&mut timers, |operation| operation.words(), task.slices, task.slice_ns)?;
    if let Some(sleeper) = sleeper {
        sleeper.stop()?;
    }
    Ok(Answer { results, acquisitions })
}

/// Times what is there, slice by slice in turn. Returns nanoseconds a pair for each, and how many pairs there were.
pub(crate) fn take_turns<T: Copy>(
    timers: &mut [(T, Timer)],
    name: fn(T) -> &'static str,
    slices: u32,
    slice_ns: u64,
) -> Result<(Vec<(T, Summary)>, u64)> {
    let mut lengths = Vec::new();
    for (what, timer) in &mut *timers {
        lengths.push(pairs_in(slice_ns, &mut **timer).map_err(|rc| failed(name(*what), rc))?);
    }
    let mut samples = vec![Vec::with_capacity(slices as usize); timers.len()];
    for _ in 0..slices {
        for (((what, timer), &pairs), samples) in timers.iter_mut().zip(&lengths).zip(&mut samples) {
            let ns = timer(pairs).map_err(|rc| failed(name(*what), rc))?;
            samples.push(ns as f64 / pairs as f64);
        }
    }
    let results = timers
        .iter()
        .zip(samples)
        .filter_map(|((what, _), samples)| Some((*what, Summary::of(samples)?)))
        .collect();
    Ok((results, lengths.iter().sum::<u64>() * u64::from(slices)))
}

fn failed(what: &str, rc: c_int) -> Error {
    Error::System { what: format!("{what} failed"), source: std::io::Error::from_raw_os_error(rc) }
}

/// Times a number of pairs; returns nanoseconds, or what a call returned that should return 0.
pub(crate) type Timer = Box<dyn FnMut(u64) -> std::result::Result<u64, c_int>>;

/// The timer of a lock.
pub(crate) fn timer_of<L: Lock + 'static>(lock: L) -> Timer {
    Box::new(move |pairs| time(&lock, pairs))
}

fn timer(abi: Abi, kind: Kind, operation: Operation) -> Result<Timer> {
    use timer_of as of;
    Ok(match operation {
        Operation::LockUnlock => of(CMutex::new(abi, kind)?),
        Operation::TrylockUnlock => of(ByTrylock(CMutex::new(abi, kind)?)),
        Operation::RecursiveLockUnlock => of(CMutex::new(abi, Kind::Recursive)?),
        Operation::SleptLockUnlock => {
            let mutex = CMutex::new(abi, kind)?;
            let_a_thread_sleep_in(&mutex)?;
            of(mutex)
        }
        Operation::RustBaseline => of(RustType::<mutex::Baseline>::default()),
        Operation::RustFewerAtomics => of(RustType::<mutex::FewerAtomics>::default()),
        Operation::RustMcsQueue => of(RustType::<mutex::McsQueue>::default()),
        Operation::RustAnyNegative => of(RustType::<mutex::AnyNegative>::default()),
        Operation::RustPoundlock => of(BargingType::default()),
        Operation::CLibrary => of(CMutex::new(Abi::c_library()?, Kind::Default)?),
        Operation::CrateMutex => of(Around::<poundlock::RawMutex>::default()),
        Operation::ParkingLotMutex => of(Around::<parking_lot::RawMutex>::default()),
        Operation::EmptyCalls => of(CMutex::new(Abi::empty(), Kind::Default)?),
        Operation::BareCalls => of(CMutex::new(Abi::bare(), Kind::Default)?),
        Operation::BareStoreCalls => of(CMutex::new(Abi::bare_store(), Kind::Default)?),
        Operation::BareCasExchange => of(BareCasExchange::default()),
        Operation::AtomicAdd => of(OneAtomicAdd::default()),
        #[cfg(target_arch = "x86_64")]
        Operation::TimeStamp => of(crate::lock::OneTimeStamp),
        #[cfg(not(target_arch = "x86_64"))]
        Operation::TimeStamp => return Err(Error::Options("only x86-64 has rdtsc".to_owned())),
        Operation::EmptyLoop => of(Nothing),
    })
}

/// The loop. Compiled once for each kind of lock, and the same for all.
#[inline(never)]
fn time<L: Lock>(lock: &L, pairs: u64) -> std::result::Result<u64, c_int> {
    let lock = black_box(lock);
    let mut rc = 0;
    let mut place = L::Place::default();
    let start = clock::now_ns();
    for _ in 0..pairs {
        rc |= lock.lock(&mut place);
        critical_section();
        rc |= lock.unlock(&mut place);
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

/// A second thread, alive and asleep in a read.
pub(crate) struct Sleeper {
    end: std::io::PipeWriter,
    thread: thread::JoinHandle<()>,
}

impl Sleeper {
    pub(crate) fn start() -> Result<Sleeper> {
        let (mut reader, end) = std::io::pipe().map_err(Error::system("cannot make a pipe"))?;
        let (send, receive) = mpsc::channel();
        let thread = thread::Builder::new()
            .spawn(move || {
                // SAFETY: no arguments, no effect.
                let id = unsafe { libc::gettid() };
                // Both results say only that the other side is gone, and then this thread is done too.
                _ = send.send(id);
                _ = reader.read(&mut [0]);
            })
            .map_err(Error::system("cannot start a second thread"))?;
        let id = receive.recv().map_err(|_| Error::Options("the second thread died".to_owned()))?;
        // So that it disturbs nothing.
        await_sleep(id)?;
        Ok(Sleeper { end, thread })
    }

    /// Ends the thread; an error if it had ended before, for then there was none during the measurement.
    pub(crate) fn stop(self) -> Result<()> {
        if self.thread.is_finished() {
            return Err(Error::Options("the second thread ended too early".to_owned()));
        }
        drop(self.end);
        self.thread.join().map_err(|_| Error::Options("the second thread died".to_owned()))
    }
}

/// Has a thread wait for `mutex`, asleep, and acquire it. Nobody holds it afterwards.
fn let_a_thread_sleep_in(mutex: &CMutex) -> Result<()> {
    let failed = |rc| if rc == 0 { Ok(()) } else { Err(failed(Operation::SleptLockUnlock.words(), rc)) };
    failed(mutex.lock(&mut ()))?;
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let sleeper = thread::Builder::new()
            .spawn_scoped(scope, move || {
                // SAFETY: no arguments, no effect.
                _ = send.send(unsafe { libc::gettid() });
                // From here on it can sleep in the mutex only.
                mutex.lock(&mut ()) | mutex.unlock(&mut ())
            })
            .map_err(Error::system("cannot start a thread"));
        let asleep = receive
            .recv()
            .map_err(|_| Error::Options("the thread to sleep died".to_owned()))
            .and_then(await_sleep);
        // Whatever went wrong, the thread must get the mutex, or this scope does not end.
        let unlocked = failed(mutex.unlock(&mut ()));
        let slept = failed(sleeper?.join().unwrap_or(libc::EFAULT));
        asleep.and(unlocked).and(slept)
    })
}

/// Waits until the scheduler says that a thread of this process is asleep.
pub(crate) fn await_sleep(thread: libc::pid_t) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(10);
    while !is_asleep(thread) {
        if Instant::now() > limit {
            return Err(Error::Options("a thread does not come to rest".to_owned()));
        }
        thread::yield_now();
    }
    Ok(())
}

pub(crate) fn is_asleep(thread: libc::pid_t) -> bool {
    fs::read_to_string(format!("/proc/self/task/{thread}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_timed() {
        let operations = vec![
            Operation::LockUnlock,
            Operation::TrylockUnlock,
            Operation::RecursiveLockUnlock,
            Operation::SleptLockUnlock,
            Operation::RustAnyNegative,
            Operation::RustPoundlock,
            Operation::CrateMutex,
            Operation::ParkingLotMutex,
            Operation::EmptyCalls,
            Operation::BareCalls,
            Operation::BareStoreCalls,
            Operation::BareCasExchange,
            Operation::AtomicAdd,
            Operation::EmptyLoop,
        ];
        let cpu = affinity::allowed().unwrap()[0];
        let task = Task {
            operations: operations.clone(),
            kind: Kind::Default,
            second_thread: true,
            cpu,
            slices: 3,
            slice_ns: 20_000,
        };
        let answer = run(Abi::glibc().unwrap(), &task).unwrap();
        let names: Vec<_> = answer.results.iter().map(|(operation, _)| *operation).collect();
        assert_eq!(names, operations);
        assert!(answer.acquisitions >= 3 * 1000 * operations.len() as u64);
        for (operation, ns) in &answer.results {
            assert!(ns.median > 0.0 && ns.n == 3, "{operation:?}: {ns:?}");
        }
    }

    #[test]
    fn a_lock_that_fails_gives_no_figure() {
        struct Broken;
        impl Lock for Broken {
            type Place = ();
            fn lock(&self, (): &mut ()) -> c_int {
                libc::EBUSY
            }
            fn unlock(&self, (): &mut ()) -> c_int {
                0
            }
        }
        assert_eq!(time(&Broken, 10), Err(libc::EBUSY));
    }

    #[test]
    fn bare_atomics_exclude() {
        let lock = BareCasExchange::default();
        assert_eq!(lock.lock(&mut ()), 0);
        assert_eq!(lock.lock(&mut ()), libc::EBUSY);
        assert_eq!(lock.unlock(&mut ()), 0);
        assert_eq!(lock.unlock(&mut ()), 1, "it was not locked");
    }
}
