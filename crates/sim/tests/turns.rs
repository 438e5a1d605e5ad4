//! The grid on the simulated machine comes to what can be computed by hand.

use poundlock_sim::check::calm;
use poundlock_sim::workload::Turns;
use poundlock_sim::{MICROSECOND, Machine, Settings, locks};

const TURNS: Turns<'_> = Turns {
    lock: "",
    threads: 1,
    critical: MICROSECOND,
    counts: false,
    think: 3 * MICROSECOND,
    warm_up: 1_000 * MICROSECOND,
    time: 20_000 * MICROSECOND,
    seed: 1,
};

fn throughput(turns: Turns<'_>) -> f64 {
    let measured =
        turns.run(&calm(), Settings::default()).unwrap_or_else(|stuck| panic!("{}: {stuck:?}", turns.lock));
    measured.throughput()
}

#[test]
fn one_thread_is_as_fast_as_its_work() {
    for lock in locks::names() {
        let throughput = throughput(Turns { lock, ..TURNS });
        assert!((240_000.0..=250_500.0).contains(&throughput), "{lock}: {throughput}");
    }
}

#[test]
fn four_cores_keep_the_lock_busy() {
    // 4 us a turn, of which one is inside: four threads want the whole of it. Where nobody spins, or not for
    // as long as a section takes, they sleep and are woken all the time.
    let sleeps = |lock: &&str| ["handoff:none", "glibc", "rust-std"].contains(lock);
    for lock in locks::names().filter(|lock| !sleeps(lock)) {
        let throughput = throughput(Turns { lock, threads: 4, ..TURNS });
        assert!((500_000.0..=1_000_000.0).contains(&throughput), "{lock}: {throughput}");
    }
}

#[test]
fn nobody_starves_among_more_threads_than_cpus() {
    let ours = ["poundlock", "any-negative", "handoff", "qspin-pv"].map(|lock| (lock, 100_000.0));
    let others = ["glibc", "rust-std", "mcs-park", "shfllock"].map(|lock| (lock, 50_000.0));
    for (lock, least) in ours.into_iter().chain(others) {
        let turns = Turns { lock, threads: 32, time: 200_000 * MICROSECOND, ..TURNS };
        let measured = turns.run(&calm(), Settings::default()).unwrap();
        assert!(measured.acquisitions.iter().all(|&count| count > 0), "{lock}: {:?}", measured.acquisitions);
        assert!(measured.throughput() > least, "{lock}: {}", measured.throughput());
    }
}

#[test]
fn a_stampede_of_spinners_moves_the_line_more_often_than_a_queue() {
    let transfers = |lock| {
        let turns = Turns { lock, threads: 8, critical: 2 * MICROSECOND, think: MICROSECOND, ..TURNS };
        let measured = turns.run(&calm(), Settings::default()).unwrap();
        measured.traffic.transfers as f64 / measured.acquisitions.iter().sum::<u64>() as f64
    };
    let (stampede, queue) = (transfers("test-and-set"), transfers("mcs"));
    assert!(stampede > 2.0 * queue, "{stampede} {queue}");
}

/// What the locks of others are known for.
#[test]
fn owners_of_one_node_follow_each_other_where_a_lock_knows_of_nodes() {
    let machine = calm().part(2, 1).unwrap();
    let far = |lock| {
        let turns = Turns { lock, threads: 4, think: 0, time: 5_000 * MICROSECOND, ..TURNS };
        let measured = turns.run(&machine, Settings::default()).unwrap();
        measured.traffic.remote as f64 / measured.acquisitions.iter().sum::<u64>() as f64
    };
    let queue = far("mcs");
    for lock in ["cna", "cohort"] {
        assert!(far(lock) < queue / 4.0, "{lock}: {} {queue}", far(lock));
    }
}

/// Where most threads sleep, those awake are few, and make room for the sleepers after as many turns.
#[test]
fn a_crowd_takes_turns_at_being_awake() {
    for (name, threads) in [("westmere-ex-8s", 640), ("epyc-9654-2s", 768)] {
        let machine = Machine::known().into_iter().find(|machine| machine.name() == name);
        let machine = machine.unwrap_or_else(|| panic!("{name}"));
        let turns = Turns {
            lock: "poundlock",
            threads,
            critical: 5 * MICROSECOND,
            think: 2 * MICROSECOND,
            warm_up: 25_000 * MICROSECOND,
            time: 100_000 * MICROSECOND,
            ..TURNS
        };
        let measured =
            turns.run(&machine, Settings::default()).unwrap_or_else(|stuck| panic!("{name}: {stuck:?}"));
        let all: u64 = measured.acquisitions.iter().sum();
        let squares: u64 = measured.acquisitions.iter().map(|count| count * count).sum();
        let jain = (all * all) as f64 / (squares * u64::from(threads)) as f64;
        assert!(jain > 0.95, "{name}: {jain}");
        // Seven of them are work.
        let used = measured.used as f64 * 0.8 / (all * MICROSECOND) as f64;
        assert!(used < 45.0, "{name}: {used} us each");
    }
}

#[test]
fn the_longest_time_without_a_turn_is_that_of_the_longest_thought_or_wait() {
    let longest = |turns: Turns<'_>| turns.run(&calm(), Settings::default()).unwrap().longest_without;
    // One thread thinks for up to four and a half microseconds, and works for one.
    let alone = longest(Turns { lock: "mcs", ..TURNS });
    assert!((5 * MICROSECOND..6 * MICROSECOND).contains(&alone), "{alone}");
    // In a queue of eight everybody waits for seven others.
    let queued = longest(Turns { lock: "mcs", threads: 8, think: 0, ..TURNS });
    assert!((8 * MICROSECOND..20 * MICROSECOND).contains(&queued), "{queued}");
    // Longer than the run: the others have it among themselves.
    let kept = Turns { lock: "mcs", threads: 2, critical: 50_000 * MICROSECOND, ..TURNS };
    assert_eq!(longest(kept), kept.warm_up + kept.time);
}
