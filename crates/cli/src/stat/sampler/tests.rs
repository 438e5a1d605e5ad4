//! What the sampler finds in programs whose threads do one thing until standard input ends: so each test
//! waits for what it is to see, however long that takes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use poundlock_testing::{compile_c, preload_library, scratch, until};

use super::series::{Party, Waited, merge};
use super::{Estimate, Ids, Outcome, Process, Sampler, Sleep, Threads, WaitedLock, Whom};

/// The program in this file of `tests/stat`, with the helpers of `tests/dropin`.
macro_rules! source {
    ($name:literal) => {
        concat!(
            "#define _GNU_SOURCE\n",
            include_str!("../../../../../tests/dropin/check.h"),
            include_str!(concat!("../../../../../tests/stat/", $name))
        )
    };
}

/// As many samples are enough to be no accident.
const MANY: u64 = 20;

/// A program that is measured and watched. Killed when dropped.
struct Watched {
    child: Child,
    sampler: Option<Sampler>,
}

impl Watched {
    fn start(source: &str, arguments: &[&str]) -> Watched {
        Watched::start_on("poundlock", source, arguments)
    }

    fn start_on(lock: &str, source: &str, arguments: &[&str]) -> Watched {
        let path: PathBuf = compile_c(source, &[]);
        let dir = scratch().join("figures");
        std::fs::create_dir_all(&dir).expect("a directory for figures");
        let mut cmd = Command::new(path);
        for name in ["POUNDLOCK_RWLOCK", "POUNDLOCK_SEMAPHORES", "POUNDLOCK_IPC_DIR"] {
            cmd.env_remove(name);
        }
        cmd.args(arguments)
            .env("LD_PRELOAD", preload_library())
            .env("POUNDLOCK_LOCK", lock)
            .env("POUNDLOCK_STAT_DIR", &dir)
            .stdin(Stdio::piped());
        let child = cmd.spawn().expect("the program starts");
        let sampler = Sampler::start(&dir, Whom::Processes(vec![child.id()]), Ids::Theirs).expect("a thread");
        Watched { child, sampler: Some(sampler) }
    }

    fn so_far(&self) -> Outcome {
        self.sampler.as_ref().expect("it runs").so_far()
    }

    /// Waits until what was found by then is this.
    #[track_caller]
    fn until(&self, what: &str, is: impl Fn(&Outcome) -> bool) -> Outcome {
        let mut outcome = Outcome::default();
        until(what, || {
            outcome = self.so_far();
            is(&outcome)
        });
        outcome
    }

    /// Lets the program end, and says what was found in all.
    fn finish(mut self) -> Outcome {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it was started");
        assert!(status.success(), "{status}");
        self.sampler.take().expect("it runs").finish()
    }

    fn kill(mut self) -> Outcome {
        self.child.kill().expect("it was started");
        self.child.wait().expect("it was started");
        self.sampler.take().expect("it runs").finish()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read() -> Sleep {
    Sleep::Call("read".to_string())
}

fn only(outcome: &Outcome) -> &Process {
    assert_eq!(outcome.processes.len(), 1, "{:#?}", outcome.processes);
    &outcome.processes[0]
}

/// The lock that is waited for, if it is one.
fn the_lock(outcome: &Outcome) -> Option<&WaitedLock> {
    match &*outcome.locks {
        [lock] => Some(lock),
        _ => None,
    }
}

/// Threads in the graph that sleep in this, by how many wait and how many hold.
fn inside(outcome: &Outcome, asleep: &Sleep) -> (usize, usize) {
    let threads = || outcome.graph.threads.iter().filter(|thread| thread.asleep.as_ref() == Some(asleep));
    (
        threads().filter(|thread| thread.waits_for.is_some()).count(),
        threads().filter(|thread| !thread.holds.is_empty()).count(),
    )
}

#[test]
fn a_holder_asleep_in_a_call_is_named_with_it() {
    for lock in ["poundlock", "glibc"] {
        let watched = Watched::start_on(lock, source!("holder.c"), &["read"]);
        let outcome = watched.until("the holder was seen in read", |outcome| {
            let seen = |lock: &WaitedLock| lock.holder.asleep.get(&read()).is_some_and(|s| s.samples >= MANY);
            the_lock(outcome).is_some_and(seen)
                && outcome.total.asleep(&Sleep::Lock).samples >= MANY
                && inside(outcome, &Sleep::Lock).0 == 3
        });
        assert_eq!(inside(&outcome, &read()), (0, 1), "{:#?}", outcome.graph);
        assert!(outcome.graph.cycles.is_empty(), "{:#?}", outcome.graph);
        let process = only(&outcome);
        assert!(process.measured && process.alive && process.hidden.is_empty(), "{process:#?}");
        let found = the_lock(&outcome).expect("there is one");
        assert_eq!((&*found.kind, found.chain, &found.holder), ("mutex", 1, &found.end), "{found:#?}");
        // Who had it, and who waited, is known by the time as well.
        let pieces = || outcome.series.pieces.iter().flat_map(|piece| piece.locks.values());
        assert!(outcome.series.pieces.iter().any(|piece| piece.watched > 0));
        let parties = |of: fn(&Waited) -> &Vec<Party>| {
            let mut all = Vec::new();
            pieces().for_each(|waited| merge(&mut all, of(waited)));
            all
        };
        let [holder] = &parties(|waited| &waited.holders)[..] else { panic!("{:#?}", outcome.series) };
        assert!(holder.site != 0 && holder.tid != 0 && holder.tid != process.pid, "{holder:#?}");
        let waiters = parties(|waited| &waited.waiters);
        assert!(waiters.iter().all(|party| party.name == holder.name && party.tid == 0), "{waiters:#?}");

        let outcome = watched.finish();
        let process = only(&outcome);
        // The main thread waits for the others to end.
        assert_eq!((process.seen, process.alive), (5, false), "{process:#?}");
        assert!(process.times.running_ns > 0 && process.times.lived_ns > 0, "{process:#?}");
        assert!(outcome.graph.threads.is_empty(), "{:#?}", outcome.graph);
    }
}

#[test]
fn a_holder_that_computes_runs() {
    let watched = Watched::start(source!("holder.c"), &["run"]);
    // Few samples: on a machine with much else to do it has a CPU rarely.
    let outcome = watched.until("the holder was seen running", |outcome| {
        the_lock(outcome).is_some_and(|lock| lock.holder.running.samples >= 3)
    });
    let lock = the_lock(&outcome).expect("there is one");
    assert!(lock.holder.asleep.is_empty(), "{lock:#?}");
    watched.finish();
}

#[test]
fn a_holder_without_a_cpu_is_told_from_one_that_runs() {
    let watched = Watched::start(source!("holder.c"), &["preempted"]);
    // It has a CPU for three of a thousand milliseconds, where another thread runs with a weight of 1024.
    let outcome = watched.until("the holder was seen ready", |outcome| {
        the_lock(outcome).is_some_and(|lock| lock.holder.ready.samples >= MANY)
    });
    let lock = the_lock(&outcome).expect("there is one");
    assert!(lock.holder.ready.ns > lock.holder.running.ns, "{lock:#?}");
    watched.finish();
}

#[test]
fn a_chain_of_holders_is_followed_to_its_end() {
    let watched = Watched::start(source!("chain.c"), &["3", "chain"]);
    let outcome =
        watched.until("all three locks were seen waited for, and the first one's chain", |outcome| {
            let whole = |lock: &WaitedLock| {
                lock.chain == 3
                    && lock.end.asleep.get(&read()).is_some_and(|sleep| sleep.samples >= MANY)
                    && lock.holder.waiting.samples >= MANY
            };
            outcome.locks.len() == 3 && outcome.locks.iter().any(whole)
        });
    let of_length = |length| {
        let found: Vec<&WaitedLock> = outcome.locks.iter().filter(|lock| lock.chain == length).collect();
        assert_eq!(found.len(), 1, "{length}: {:#?}", outcome.locks);
        found[0]
    };
    let (first, second, last) = (of_length(3), of_length(2), of_length(1));
    assert!(first.behind.keys().eq([&second.address]), "{first:#?} {second:#?}");
    assert!(second.behind.keys().eq([&last.address]), "{second:#?} {last:#?}");
    assert!(last.behind.is_empty() && last.holder.asleep.contains_key(&read()), "{last:#?}");
    assert!(outcome.graph.cycles.is_empty(), "{:#?}", outcome.graph);
    watched.finish();
}

#[test]
fn a_deadlock_is_a_cycle_while_it_lasts_and_after_its_end() {
    for count in [1, 2, 3] {
        let watched = Watched::start(source!("chain.c"), &[&count.to_string(), "cycle"]);
        let outcome = watched.until("the cycle was seen", |outcome| {
            !outcome.graph.cycles.is_empty()
                && outcome.locks.iter().filter(|lock| lock.end.cycle.samples >= 3).count() == count
        });
        let check = |outcome: &Outcome| {
            let [cycle] = &*outcome.graph.cycles else { panic!("{:#?}", outcome.graph) };
            assert_eq!(cycle.len(), count, "{:#?}", outcome.graph);
            for (place, &thread) in cycle.iter().enumerate() {
                let next = &outcome.graph.threads[cycle[(place + 1) % count]];
                let wanted = outcome.graph.threads[thread].waits_for.as_ref().expect("each waits");
                assert!(wanted.for_ns > 0, "{:#?}", outcome.graph);
                assert!(next.holds.iter().any(|held| held.address == wanted.address), "{:#?}", outcome.graph);
            }
        };
        check(&outcome);
        assert!(outcome.graph.threads.iter().all(|thread| !thread.name.is_empty() && thread.tid != 0));
        check(&watched.kill());
    }
}

#[test]
fn holders_of_readers_writer_locks_are_found_on_the_other_side() {
    for (who, kind) in
        [("writer", "readers-writer lock, writers"), ("reader", "readers-writer lock, readers")]
    {
        let watched = Watched::start(source!("rwlock_holder.c"), &[who]);
        let outcome = watched.until("the holder was seen in read", |outcome| {
            let seen = |lock: &WaitedLock| lock.holder.asleep.get(&read()).is_some_and(|s| s.samples >= MANY);
            the_lock(outcome).is_some_and(seen)
        });
        assert_eq!(the_lock(&outcome).map(|lock| &*lock.kind), Some(kind), "{outcome:#?}");
        watched.finish();
    }
}

#[test]
fn futexes_of_others_are_counted_as_such() {
    let watched = Watched::start(source!("futexes.c"), &[]);
    let outcome = watched.until("three threads were seen in futexes", |outcome| {
        outcome.total.foreign_futex().samples >= 3 * MANY
    });
    assert!(outcome.locks.is_empty() && outcome.total.locks().samples == 0, "{outcome:#?}");
    assert_eq!(only(&outcome).times.foreign_futex(), outcome.total.foreign_futex());
    watched.finish();
}

#[test]
fn a_call_that_signals_and_waits_is_told_from_a_lock_of_others() {
    let watched = Watched::start_on("glibc", source!("futexes.c"), &["signal"]);
    let is_seen = |outcome: &Outcome| {
        let seen = |sleeps: &BTreeMap<Sleep, Estimate>| {
            sleeps.get(&Sleep::Signal).is_some_and(|s| s.samples >= MANY)
        };
        the_lock(outcome).is_some_and(|lock| seen(&lock.holder.asleep)) && seen(&outcome.total.asleep)
    };
    // While threads start, one may wait for the C library inside its own first function.
    watched.until("the threads have started", is_seen);
    watched.sampler.as_ref().expect("it runs").begin_anew();
    let outcome = watched.until("the holder was seen inside the call", is_seen);
    assert_eq!(outcome.total.foreign_futex().samples, 0, "{outcome:#?}");
    watched.finish();
}

#[test]
fn a_pool_without_work_is_idle_and_nothing_is_lost() {
    let watched = Watched::start(source!("pool.c"), &[]);
    let of_pool = |outcome: &Outcome, of: &dyn Fn(&Threads) -> u64| {
        let pool = |process: &Process| process.threads.iter().find(|of| of.name == "worker-*").map(of);
        outcome.processes.first().and_then(pool).unwrap_or(0)
    };
    watched.until("all four workers wait", |outcome| {
        of_pool(outcome, &|threads| threads.seen) == 4
            && of_pool(outcome, &|threads| threads.times.idle.get(&Sleep::Condition).map_or(0, |s| s.samples))
                >= 4 * MANY
    });
    // From here on nobody does anything.
    watched.sampler.as_ref().expect("it runs").begin_anew();
    let outcome = watched.until("they were seen idle", |outcome| {
        outcome.total.idle.get(&Sleep::Condition).is_some_and(|sleep| sleep.samples >= 4 * MANY)
            && outcome.total.idle.get(&read()).is_some_and(|sleep| sleep.samples > 0)
    });
    let total = &outcome.total;
    assert_eq!(total.asleep(&Sleep::Condition).samples, 0, "{total:#?}");
    assert!(total.busy_ns() <= total.lived_ns - total.idle_ns(), "{total:#?}");
    assert_eq!(total.locks().ns, 0, "{total:#?}");
    watched.finish();
}

#[test]
fn a_child_that_is_not_measured_is_watched_all_the_same() {
    let watched = Watched::start(source!("launcher.c"), &[]);
    let outcome = watched.until("the child was seen in read", |outcome| {
        // It reads what nobody of the program writes.
        let reads = |process: &Process| process.times.idle.get(&read()).is_some_and(|s| s.samples >= MANY);
        let is_it = |process: &Process| process.name == "cat" && reads(process);
        outcome.processes.iter().any(is_it)
    });
    let child = outcome.processes.iter().find(|process| process.name == "cat").expect("it is there");
    assert!(!child.measured && child.exe.ends_with("cat"), "{child:#?}");
    assert_eq!(child.parent, watched.child.id(), "{child:#?}");
    watched.finish();
}

/// All wait for each other, and that is known still when somebody has ended them.
#[test]
fn a_program_in_which_every_thread_waits_for_another_one_is_stuck() {
    let source = include_str!("../../../../../tests/stat/sleeps.c");
    let include = |name: &str, text: &str| (format!("#include \"{name}\"\n"), text.to_owned());
    let (line, text) = include("work.h", include_str!("../../../../../tests/stat/work.h"));
    let watched = Watched::start(&source.replace(&line, &text), &["stuck"]);
    let outcome = watched.until("it is stuck", |outcome| outcome.stuck.is_some());
    let check = |outcome: &Outcome| {
        let stuck = outcome.stuck.as_ref().expect("it is stuck");
        let all: Vec<&Sleep> = stuck.threads.iter().map(|thread| &thread.what).collect();
        assert_eq!(all, [&Sleep::Join, &Sleep::Condition], "{stuck:#?}");
        assert!(stuck.threads.iter().all(|thread| thread.place > 0), "{stuck:#?}");
    };
    check(&outcome);
    check(&watched.kill());
}
