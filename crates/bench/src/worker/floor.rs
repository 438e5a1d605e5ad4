//! What no lock can undercut on this machine, and what the driver adds to every lock.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use poundlock_core::Platform;
use poundlock_core::platform::{Atomic, Until};
use poundlock_linux::Linux;
use poundlock_statfile::speed;
use serde::{Deserialize, Serialize};

use super::alone::{Timer, bare_timer, take_turns, timer_of};
use super::drive::{self, Inside, Subject};
use super::gate::Alone;
use crate::Summary;
use crate::affinity;
use crate::error::{Error, Result};
use crate::grid::result::{Floors, IdleCpus, Interrupts, SleepWake, Transfer, Wake};
use crate::{Usage, clock};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The CPUs in use; the last is for what needs one only.
    pub(crate) cpus: Vec<usize>,
    /// The pairs among them between which a cache line goes to and fro.
    pub(crate) pairs: Vec<(usize, usize)>,
    /// Slices of each measurement.
    pub(crate) slices: u32,
    /// The length of a slice.
    pub(crate) slice_ns: u64,
}

pub(crate) fn run(task: &Task) -> Result<Floors> {
    let Some(&cpu) = task.cpus.last() else {
        return Err(Error::Failed("there is no CPU to run on".to_owned()));
    };
    let (driver_ns, timing_ns) = driver(task, cpu)?;
    let pair = |&(from, to): &(usize, usize)| Ok(Transfer { from, to, ns: transfer(task, from, to)? });
    let line_transfer_ns = task.pairs.iter().map(pair).collect::<Result<_>>()?;
    let other = task.cpus.iter().find(|&&other| other != cpu);
    let (switch, turn_ns) = switch(task, cpu)?;
    let futex_sleep_wake_ns = SleepWake {
        same_cpu: sleep_wake(task, cpu, cpu)?,
        other_cpu: other.map(|&other| sleep_wake(task, cpu, other)).transpose()?,
        nobody: nobody(task)?,
        switch,
        turn_ns,
        queues: queues(cpu)?,
        other: other.map(|&other| wake(task, [cpu, other], LATE_NS, Beside::Nothing)).transpose()?,
        preempts: wake(task, [cpu, cpu], LATE_NS, Beside::Nothing)?.runs,
        idle: other.map(|&other| idle_cpus(task, [cpu, other])).transpose()?,
    };
    // Last, because it keeps this thread to a CPU.
    affinity::keep_to(&[cpu])?;
    // It depends on the load, as an unlock does on the lock.
    let word: &'static Alone<AtomicU64> = Box::leak(Box::default());
    let load = move |seen: &mut u64| {
        *seen = word.0.load(Relaxed);
        0
    };
    let store = move |seen: &mut u64| {
        word.0.store(seen.wrapping_add(1), Relaxed);
        0
    };
    let pause = |_: &mut u64| {
        core::hint::spin_loop();
        0
    };
    let mut timers: Vec<(&str, Timer)> = vec![
        ("compare-and-swap + exchange", bare_timer("cas+exchange")?),
        ("compare-and-swap + store", bare_timer("cas+store")?),
        ("load + store", timer_of(load, store)),
        ("pause", timer_of(pause, |_| 0)),
    ];
    let bare = take_turns(&mut timers, task.slices, task.slice_ns)?;
    let &[(bare_cas_ns, _), (bare_cas_store_ns, _), (bare_load_store_ns, _), (pause_ns, _)] = bare.as_slice()
    else {
        return Err(Error::Failed("bare atomics: no figure".to_owned()));
    };
    Ok(Floors {
        interrupts: interrupts(),
        bare_cas_ns,
        bare_cas_store_ns,
        bare_load_store_ns,
        pause_ns,
        line_transfer_ns,
        futex_sleep_wake_ns,
        driver_ns,
        timing_ns,
    })
}

/// What the loop of the grid costs around a lock that does nothing, and what it shows as the wait for it.
fn driver(task: &Task, cpu: usize) -> Result<(Summary, Summary)> {
    let empty = drive::Task {
        lock: Subject::Peer(poundlock_peers::EMPTY.into()),
        threads: 1,
        inside: Inside::Work { steps: 0 },
        think_steps: 0,
        vary: true,
        warm_up_ns: task.slice_ns,
        throughput_ns: task.slice_ns * 4,
        latency_ns: task.slice_ns * 4,
        cpus: vec![cpu],
        pin: true,
        hogs: false,
        drain_ns: None,
        finish: false,
        probe: false,
    };
    let here = affinity::allowed()?;
    let samples = (0..task.slices).map(|_| drive::run(None, &empty)).collect::<Result<Vec<_>>>()?;
    affinity::keep_to(&here)?;
    let none = || Error::Failed("the driver: no figure".to_owned());
    let of = |name: &str| Summary::of(samples.iter().map(|sample| sample[name]));
    let (pair, wait) = (of("ns"), of("waits.p50_ns"));
    Ok((pair.ok_or_else(none)?, wait.ok_or_else(none)?))
}

/// Has two threads answer each other, each kept on its CPU. Returns what each slice took a round trip; `call`
/// is given whose turn a thread waits for and passes the turn on.
fn round_trips(
    task: &Task,
    cpus: [usize; 2],
    trips: u64,
    call: impl Fn(u32) + Sync,
    mut keep: impl FnMut(&dyn Fn() -> f64) -> Option<f64>,
) -> Result<Option<Summary>> {
    let (call, total) = (&call, u64::from(task.slices) * trips);
    let answers = move || {
        let kept = affinity::keep_to(&[cpus[1]]);
        // It answers wherever it runs, or the other would wait for ever.
        (0..total).for_each(|_| call(1));
        kept
    };
    let asks = || {
        let slice = || {
            let start = clock::now_ns();
            (0..trips).for_each(|_| call(0));
            (clock::now_ns() - start) as f64 / trips as f64
        };
        (0..task.slices).filter_map(|_| keep(&slice)).collect::<Vec<f64>>()
    };
    let (samples, ()) = together(cpus[0], asks, answers)?;
    Ok(Summary::of(samples))
}

/// Runs the one here, kept to a CPU, and the other in a thread of its own meanwhile.
fn together<T, U: Send>(
    cpu: usize,
    here: impl FnOnce() -> T,
    there: impl FnOnce() -> Result<U> + Send,
) -> Result<(T, U)> {
    let before = affinity::allowed()?;
    thread::scope(|scope| {
        let other = thread::Builder::new()
            .spawn_scoped(scope, there)
            .map_err(Error::system("cannot start a thread"))?;
        let kept = affinity::keep_to(&[cpu]);
        let one = here();
        affinity::keep_to(&before)?;
        let other = other.join().map_err(|_| died())??;
        kept?;
        Ok((one, other))
    })
}

fn died() -> Error {
    Error::Failed("a thread died".to_owned())
}

/// A cache line to another CPU: half of a round trip between two threads that only look at it.
fn transfer(task: &Task, from: usize, to: usize) -> Result<Summary> {
    let line = Alone(AtomicU64::new(0));
    // Whose turn it is. The first to answer is the other one: whoever waits for turn 0 gives turn 1 first.
    let call = |me: u32| {
        let (mine, theirs) = (u64::from(me), u64::from(1 - me));
        if me == 0 {
            line.0.store(theirs, Release);
            while line.0.load(Acquire) != mine {}
        } else {
            while line.0.load(Acquire) != mine {}
            line.0.store(theirs, Release);
        }
    };
    // Near 200 ns a trip.
    let trips = (task.slice_ns / 200).max(10);
    let summary = round_trips(task, [from, to], trips, call, |slice| Some(slice()))?;
    summary
        .map(|trip| trip.scaled(0.5))
        .ok_or_else(|| Error::Failed("a cache line's way: no figure".to_owned()))
}

/// A sleep in a futex and its wake-up, between two threads of which each sleeps until it is its turn. On one
/// CPU the woken thread may run at once, and the waker finds its turn come before it sleeps; so it is real
/// sleeps that count. Slices in which there were hardly any are left out.
fn sleep_wake(task: &Task, here: usize, there: usize) -> Result<Summary> {
    let word = Alone(<Linux as poundlock_core::atomic::Atomics>::U32::new(0));
    let pass = |to: u32| {
        word.0.store(to, Release);
        Linux::wake(&word.0, 1);
    };
    let await_turn = |me: u32| {
        loop {
            let turn = word.0.load(Acquire);
            if turn == me {
                return;
            }
            _ = black_box(Linux::wait(&word.0, turn, Until::Woken));
        }
    };
    let call = |me: u32| {
        if me == 0 {
            pass(1);
            await_turn(0);
        } else {
            await_turn(1);
            pass(0);
        }
    };
    // Near 10 us a trip.
    let trips = (task.slice_ns / 10_000).max(10);
    // Both threads' sleeps; this process has no others that do anything.
    let keep = |slice: &dyn Fn() -> f64| {
        let before = Usage::of_this_process();
        let ns = slice();
        let slept = Usage::of_this_process().since(&before).voluntary_switches;
        (slept as f64 >= 0.9 * trips as f64).then(|| ns * trips as f64 / slept as f64)
    };
    let summary = round_trips(task, [here, there], trips, call, keep)?;
    summary.ok_or_else(|| {
        Error::Failed(format!(
            "threads on CPUs {here} and {there} find each other awake: too many others run"
        ))
    })
}

/// A call to wake threads where none sleeps.
fn nobody(task: &Task) -> Result<Summary> {
    let word = Alone(<Linux as poundlock_core::atomic::Atomics>::U32::new(0));
    // Near 200 ns a call.
    let calls = (task.slice_ns / 200).max(10);
    let slice = || {
        let start = clock::now_ns();
        (0..calls).for_each(|_| Linux::wake(&word.0, 1));
        (clock::now_ns() - start) as f64 / calls as f64
    };
    Summary::of((0..task.slices).map(|_| slice()))
        .ok_or_else(|| Error::Failed("a call that wakes nobody: no figure".to_owned()))
}

/// From one thread to the next, of two that give their CPU away all the time; and how long a turn of
/// arithmetic took beside the slice whose figure is the median.
fn switch(task: &Task, cpu: usize) -> Result<(Summary, f64)> {
    /// Two threads of which one has had much more of the CPU than the other do not take turns until that is
    /// made up for: others do.
    const PAIRS: u32 = 5;
    // Near 4 us a trip.
    let trips = (task.slice_ns / 4000).max(10);
    let mut slices = Vec::new();
    let mut summary = None;
    for _ in 0..PAIRS {
        let keep = |slice: &dyn Fn() -> f64| {
            let turn = turn_ns();
            let before = Usage::of_this_process();
            let ns = slice();
            let switches = Usage::of_this_process().since(&before).involuntary_switches;
            let turn = f64::midpoint(turn, turn_ns());
            let ns = (switches as f64 >= trips as f64).then(|| ns * trips as f64 / switches as f64)?;
            slices.push((ns, turn));
            Some(ns)
        };
        summary = round_trips(task, [cpu, cpu], trips, |_| Linux::yield_now(), keep)?;
        if summary.is_some() {
            break;
        }
    }
    let none = || Error::Failed("threads that yield do not switch: no figure".to_owned());
    let summary = summary.ok_or_else(none)?;
    slices.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (_, turn) = slices[slices.len() / 2];
    Ok((summary, turn))
}

/// What interrupts the calling thread, which does nothing but look at the clock. Another thread that has its
/// CPU meanwhile is no interrupt.
fn interrupts() -> Option<Interrupts> {
    const TIME_NS: u64 = 100_000_000;
    const LONG_NS: u64 = 10_000;
    let mut taken = Vec::new();
    let begun = clock::now_ns();
    let (mut last, mut before) = (begun, Usage::of_this_thread());
    while last - begun < TIME_NS {
        let now = clock::now_ns();
        if now - last > LONG_NS {
            let used = Usage::of_this_thread();
            if used.since(&before).involuntary_switches == 0 {
                taken.push((now - last) as f64);
            }
            before = used;
            last = clock::now_ns();
        } else {
            last = now;
        }
    }
    let a_second = taken.len() as f64 * 1e9 / (last - begun) as f64;
    Some(Interrupts { a_second, takes_ns: Summary::of(taken)? })
}

/// A turn of [`speed::compute`]: the least of some.
fn turn_ns() -> f64 {
    const TURNS: u32 = 1000;
    let once = |_| {
        let start = clock::now_ns();
        speed::compute(TURNS);
        (clock::now_ns() - start) as f64 / f64::from(TURNS)
    };
    (0..5).map(once).fold(f64::INFINITY, f64::min)
}

/// A CPU that has had nothing to do for so long sleeps, and one for so long not yet.
const LATE_NS: u64 = 20_000;
const AWAKE_NS: [u64; 2] = [2500, 4000];

/// What another thread does on the CPU of a thread that sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// There is none.
    Nothing,
    Computes,
    Yields,
}

/// A call that wakes a thread which has slept for that long, and how long after its begin the thread runs.
/// The CPUs are the waker's and the sleeper's.
fn wake(task: &Task, [here, there]: [usize; 2], slept_ns: u64, beside: Beside) -> Result<Wake> {
    let woken = wakes(task, [here, there], slept_ns, beside)?;
    let summary = |of: fn(&Woken) -> f64| Summary::of(woken.iter().map(of)).ok_or_else(no_wake);
    Ok(Wake { call: summary(|woken| woken.call)?, runs: summary(|woken| woken.runs)? })
}

fn no_wake() -> Error {
    Error::Failed("a wake-up: no figure".to_owned())
}

/// Turns of a thread that sleeps until another one wants its next.
struct Turns {
    wanted: Alone<<Linux as poundlock_core::atomic::Atomics>::U32>,
    done: Alone<<Linux as poundlock_core::atomic::Atomics>::U32>,
}

impl Turns {
    fn new() -> Turns {
        let [wanted, done] = [(); 2].map(|()| Alone(<Linux as poundlock_core::atomic::Atomics>::U32::new(0)));
        Turns { wanted, done }
    }

    /// Sleeps until this turn is wanted.
    fn sleep(&self, turn: u32) {
        while self.wanted.0.load(Acquire) == turn {
            _ = Linux::wait(&self.wanted.0, turn, Until::Woken);
        }
    }

    fn finish(&self, turn: u32) {
        self.done.0.store(turn + 1, Release);
    }

    /// Whether all turns before this one are done.
    fn has_come_to(&self, turn: u32) -> bool {
        self.done.0.load(Acquire) == turn
    }

    /// Wants this turn, and wakes who sleeps until it is wanted.
    fn wake(&self, turn: u32) {
        self.wanted.0.store(turn + 1, Release);
        Linux::wake(&self.wanted.0, 1);
    }
}

/// The CPU time of the calling thread since it last asked, in nanoseconds, if it has slept since: it was not
/// woken on its way to sleep.
fn has_slept(before: &mut Usage) -> Option<f64> {
    let now = Usage::of_this_thread();
    let used = now.since(&std::mem::replace(before, now));
    (used.voluntary_switches > 0).then_some(used.cpu_ns as f64)
}

/// A wake-up of a thread that slept, in nanoseconds: the call,
struct Woken {
    call: f64,
    /// how long after its begin the thread ran,
    runs: f64,
    /// and the thread's CPU time since the one before.
    used: f64,
}

fn wakes(task: &Task, [here, there]: [usize; 2], slept_ns: u64, beside: Beside) -> Result<Vec<Woken>> {
    // And when a turn was begun.
    let (all, begun) = (Turns::new(), Alone(AtomicU64::new(0)));
    // Near 30 us a turn.
    let turns = (task.slice_ns / 30_000 * u64::from(task.slices)).max(40) as u32;
    let sleeps = || {
        let kept = affinity::keep_to(&[there]);
        let mut usage = Usage::of_this_thread();
        let turn = |turn: u32| {
            all.sleep(turn);
            let took = clock::now_ns() - begun.0.load(Relaxed);
            let used = has_slept(&mut usage);
            all.finish(turn);
            Some((took as f64, used?))
        };
        let took: Vec<Option<(f64, f64)>> = (0..turns).map(turn).collect();
        kept.map(|()| took)
    };
    let busy = || {
        let kept = affinity::keep_to(&[there]);
        while !all.has_come_to(turns) {
            if beside == Beside::Yields {
                Linux::yield_now();
            } else {
                black_box(clock::now_ns());
            }
        }
        kept
    };
    let turn = |turn: u32| {
        while !all.has_come_to(turn) {}
        let until = clock::now_ns() + slept_ns;
        while clock::now_ns() < until {}
        let start = clock::now_ns();
        begun.0.store(start, Relaxed);
        all.wake(turn);
        (clock::now_ns() - start) as f64
    };
    thread::scope(|scope| {
        let mut other = None;
        let wakes = || {
            let is_busy = beside != Beside::Nothing;
            other = is_busy.then(|| thread::Builder::new().spawn_scoped(scope, busy));
            (0..turns).map(turn).collect::<Vec<f64>>()
        };
        let (calls, runs) = together(here, wakes, sleeps)?;
        if let Some(other) = other {
            let other = other.map_err(Error::system("cannot start a thread"))?;
            other.join().map_err(|_| died())??;
        }
        let woken = |(call, slept): (f64, Option<(f64, f64)>)| {
            let (runs, used) = slept?;
            Some(Woken { call, runs, used })
        };
        Ok(calls.into_iter().zip(runs).filter_map(woken).collect())
    })
}

/// The mean but for the twentieth that is most: others had the CPU then.
fn mean(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.truncate(values.len().div_ceil(20) * 19);
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn idle_cpus(task: &Task, cpus: [usize; 2]) -> Result<IdleCpus> {
    let mut awake = Vec::new();
    for slept_ns in AWAKE_NS {
        awake.extend(wakes(task, cpus, slept_ns, Beside::Nothing)?);
    }
    let late = wakes(task, cpus, LATE_NS, Beside::Nothing)?;
    let each = |woken: &[Woken], of: fn(&Woken) -> f64| woken.iter().map(of).collect::<Vec<f64>>();
    let mut runs = each(&awake, |woken| woken.runs);
    runs.sort_by(f64::total_cmp);
    let early = *runs.get(runs.len() / 10).ok_or_else(no_wake)?;
    let awake_runs_ns = mean(runs);
    // A thread that is not to run at once interrupts nobody, and whoever yields next finds it.
    let interrupts = mean(each(&late, |woken| woken.call)) / 2.0;
    let mut beside = wakes(task, cpus, LATE_NS, Beside::Yields)?;
    beside.retain(|woken| woken.call >= interrupts);
    let busy_runs = wake(task, cpus, LATE_NS, Beside::Computes)?.runs;
    let yielding_runs = Summary::of(each(&beside, |woken| woken.runs)).unwrap_or(busy_runs);
    let [used, late] = [&awake, &late].map(|woken| mean(each(woken, |woken| woken.used)));
    Ok(IdleCpus {
        awake_call_ns: mean(each(&awake, |woken| woken.call)),
        awake_runs_ns,
        charged_ns: (late - used).max(0.0),
        chance: (1.0 - early / awake_runs_ns).clamp(0.0, 1.0),
        busy_runs,
        yielding_runs,
        packs_below: packs_below(cpus)?,
    })
}

/// A call that wakes a thread of its CPU which does not run at once: it is one that any other goes before.
fn queues(cpu: usize) -> Result<Summary> {
    const TURNS: u32 = 200;
    let all = Turns::new();
    let sleeps = || {
        let kept = affinity::keep_to(&[cpu]);
        let lowest = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads our own variable. Where it is refused, the figure is too high.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const lowest) };
        let mut usage = Usage::of_this_thread();
        let turn = |turn: u32| {
            all.sleep(turn);
            let has_slept = has_slept(&mut usage).is_some();
            all.finish(turn);
            has_slept
        };
        let slept: Vec<bool> = (0..TURNS).map(turn).collect();
        kept.map(|()| slept)
    };
    let turn = |turn: u32| {
        // It sleeps meanwhile; a turn in which it did not is no figure.
        thread::sleep(PAUSE);
        while !all.has_come_to(turn) {
            thread::sleep(PAUSE);
        }
        let start = clock::now_ns();
        all.wake(turn);
        (clock::now_ns() - start) as f64
    };
    let (calls, slept) = together(cpu, || (0..TURNS).map(turn).collect::<Vec<f64>>(), sleeps)?;
    Summary::of(calls.into_iter().zip(slept).filter_map(|(call, slept)| slept.then_some(call)))
        .ok_or_else(no_wake)
}

/// So long a thread is given to go to sleep.
const PAUSE: Duration = Duration::from_micros(50);

/// How busy a CPU may have been of late at most, as a share of its time, for a thread that is woken there to
/// come there, though its own CPU is idle; 0 where none does. As Linux, it counts what was 32 ms ago by half.
fn packs_below([here, there]: [usize; 2]) -> Result<f64> {
    const TURNS: u32 = 600;
    const PERIOD_NS: u64 = 1_000_000;
    let all = Turns::new();
    let sleeps = || {
        let mut kept = Ok(());
        let mut home = || {
            let moved = affinity::keep_to(&[there]).and_then(|()| affinity::keep_to(&[here, there]));
            kept = std::mem::replace(&mut kept, Ok(())).and(moved);
        };
        home();
        let turn = |turn: u32| {
            all.sleep(turn);
            // SAFETY: takes no arguments.
            let came = unsafe { libc::sched_getcpu() } != there as i32;
            if came {
                home();
            }
            all.finish(turn);
            came
        };
        let came: Vec<bool> = (0..TURNS).map(turn).collect();
        kept.map(|()| came)
    };
    let (mut used, mut then, mut cpu_then) = (0.0, clock::now_ns(), Usage::of_this_thread().cpu_ns);
    // Busier from turn to turn.
    let turn = |turn: u32| {
        let start = clock::now_ns();
        let busy = PERIOD_NS * u64::from(turn) / u64::from(TURNS);
        while clock::now_ns() < start + busy || !all.has_come_to(turn) {
            if !all.has_come_to(turn) {
                Linux::yield_now();
            }
        }
        let (now, cpu_now) = (clock::now_ns(), Usage::of_this_thread().cpu_ns);
        let left = (-((now - then) as f64) / 32e6).exp2();
        let share = (cpu_now - cpu_then) as f64 / (now - then).max(1) as f64;
        used = used * left + share.min(1.0) * (1.0 - left);
        (then, cpu_then) = (now, cpu_now);
        all.wake(turn);
        let end = start + PERIOD_NS;
        let left = Duration::from_nanos(end.saturating_sub(clock::now_ns()));
        if left > PAUSE {
            thread::sleep(left - PAUSE);
        }
        used
    };
    let (used, came) = together(here, || (0..TURNS).map(turn).collect::<Vec<f64>>(), sleeps)?;
    Ok(boundary(used.into_iter().zip(came).collect()))
}

/// The number below which most are and above which most are not; 0 if there is none.
fn boundary(mut all: Vec<(f64, bool)>) -> f64 {
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let are = all.iter().filter(|(_, is)| *is).count();
    let (mut wrong, mut best) = (are, (are, 0.0));
    for (number, is) in &all {
        wrong = if *is { wrong - 1 } else { wrong + 1 };
        best = if wrong < best.0 { (wrong, *number) } else { best };
    }
    if best.0 * 4 < all.len() { best.1 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_is_where_fewest_are_on_the_wrong_side() {
        let all = |is: fn(u32) -> bool| boundary((0..100).rev().map(|n| (f64::from(n), is(n))).collect());
        assert_eq!(all(|n| n <= 66), 66.0);
        assert_eq!(all(|n| (n <= 66) != (n % 10 == 3)), 66.0, "some are not as they should be");
        assert_eq!(all(|_| false), 0.0);
        assert_eq!(all(|n| n % 2 == 0), 0.0, "there is none");
    }

    #[test]
    fn floors_are_positive_and_in_order() {
        let cpus = affinity::allowed().unwrap();
        let pairs = if cpus.len() > 1 { vec![(cpus[0], cpus[1])] } else { vec![] };
        let task = Task { cpus: cpus.clone(), pairs: pairs.clone(), slices: 5, slice_ns: 200_000 };
        let floors = run(&task).unwrap();
        let futex = floors.futex_sleep_wake_ns;
        let all = [
            floors.bare_cas_ns,
            floors.bare_cas_store_ns,
            floors.bare_load_store_ns,
            floors.pause_ns,
            floors.driver_ns,
            floors.timing_ns,
            futex.same_cpu,
            futex.nobody,
            futex.switch,
        ];
        let transfers = floors.line_transfer_ns.iter().map(|transfer| transfer.ns);
        for summary in all.into_iter().chain(transfers).chain(futex.other_cpu) {
            assert!(summary.min > 0.0 && summary.n >= 1 && summary.n <= 5, "{summary:?}");
        }
        assert!(futex.turn_ns > 0.0, "{futex:?}");
        if let Some(Interrupts { a_second, takes_ns }) = floors.interrupts {
            assert!(a_second > 0.0 && takes_ns.min > 10_000.0, "{floors:?}");
        }
        assert!(futex.queues.min > 0.0 && futex.queues.n >= 1 && futex.queues.n <= 200, "{futex:?}");
        assert_eq!(futex.other_cpu.is_some(), cpus.len() > 1);
        assert_eq!(futex.other.is_some(), cpus.len() > 1);
        assert_eq!(futex.idle.is_some(), cpus.len() > 1);
        if let Some(idle) = futex.idle {
            assert!(idle.awake_call_ns > 0.0 && idle.awake_runs_ns > 0.0, "{idle:?}");
            assert!(idle.charged_ns >= 0.0, "{idle:?}");
            assert!(idle.busy_runs.min > 0.0 && idle.yielding_runs.min > 0.0, "{idle:?}");
            assert!((0.0..=1.0).contains(&idle.packs_below), "{idle:?}");
        }
        if let Some(wake) = futex.other {
            assert!(wake.call.min > 0.0 && wake.runs.min > 0.0, "{wake:?}");
        }
        let measured: Vec<_> = floors.line_transfer_ns.iter().map(|line| (line.from, line.to)).collect();
        assert_eq!(measured, pairs);
        // A system call and a switch against an instruction: nothing that disturbs the machine turns this
        // round.
        assert!(futex.same_cpu.min > floors.bare_load_store_ns.min, "{floors:?}");
        // And this thread may run where it could before, but for what was measured last.
        affinity::keep_to(&cpus).unwrap();
    }
}
