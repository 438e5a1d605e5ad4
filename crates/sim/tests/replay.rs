//! What threads were seen to do is done again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;

use poundlock_sim::workload::replay::{Kind, Part, Replay, Replayed, Step};
use poundlock_sim::{
    Disturbance, GlibcRwLock, MICROSECOND, Machine, NANOSECOND, Settings, Simulation, Stuck, random, work,
};

const LOCKED: [Step; 3] = [Step::Lock(0), Step::Work(MICROSECOND), Step::Unlock(0)];

fn replayed(threads: &[Vec<Step>], kind: Kind<'_>, number: u32) -> Result<Replayed, Stuck> {
    let machines = Machine::known();
    let machine = machines[0].flat(4);
    let replay = Replay {
        threads,
        locks: &[Part { kind, number }],
        warm_up: 100 * MICROSECOND,
        time: 1000 * MICROSECOND,
        ..Replay::default()
    };
    replay.run_in(Simulation::new(&machine, Settings::DEFAULT, 1))
}

fn done(threads: &[Vec<Step>], kind: Kind<'_>, number: u32) -> Vec<u64> {
    replayed(threads, kind, number).expect("nobody waits for ever").steps
}

/// The system's, and counts what a thread has.
struct Counting;

std::thread_local! {
    static HAS: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: all is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HAS.set(HAS.get() + layout.size().cast_signed());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HAS.set(HAS.get() - layout.size().cast_signed());
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A page of predictions takes hundreds of replays, and a validation ten thousand.
#[test]
fn a_replay_gives_back_what_its_steps_took() {
    let threads = vec![LOCKED.repeat(100_000); 2];
    let again = |times: isize| {
        let before = HAS.get();
        for _ in 0..times {
            replayed(&threads, Kind::Exclusive("glibc"), 1).expect("nobody waits for ever");
        }
        (HAS.get() - before) / times
    };
    again(1);
    let left = again(10);
    assert!(left < 50_000, "{left} bytes are lost with each replay");
}

#[test]
fn a_lock_excludes_and_what_becomes_of_it_does_not() {
    let threads = vec![LOCKED.to_vec(); 4];
    let at_most = 1000;
    let alone = replayed(&threads, Kind::Exclusive("mcs"), 1).expect("nobody waits for ever");
    let waits = alone.waits[0];
    assert!((500..=at_most).contains(&waits.acquisitions), "{waits:?}");
    // Three of the four wait all the time.
    assert!((2.0..3.2).contains(&(waits.waited as f64 / (1000 * MICROSECOND) as f64)), "{waits:?}");
    let gone = replayed(&threads, Kind::Gone, 1).expect("nobody waits for ever").waits[0];
    assert!(gone.acquisitions > 3 * at_most && gone.contended == 0, "{gone:?}");
    let split = replayed(&threads, Kind::Exclusive("mcs"), 64).expect("nobody waits for ever").waits[0];
    assert!(split.acquisitions > 2 * at_most && split.acquisitions < gone.acquisitions, "{split:?}");
    let reads: Vec<Vec<Step>> = vec![vec![Step::Read(0), LOCKED[1], LOCKED[2]]; 4];
    let read = replayed(&reads, Kind::Shared("rw-phase-fair"), 1).expect("nobody waits for ever").waits[0];
    assert!(read.acquisitions > 2 * at_most, "{read:?}");
}

#[test]
fn who_would_not_wait_leaves_out_what_it_would_have_done() {
    // The first holds the lock for all its life but a moment.
    let holds = vec![Step::Lock(0), Step::Work(50 * MICROSECOND), Step::Unlock(0), Step::Work(NANOSECOND)];
    let tries = vec![Step::Try(0), Step::Work(MICROSECOND), Step::Unlock(0), Step::Work(MICROSECOND)];
    let steps = done(&[holds.clone(), tries.clone()], Kind::Exclusive("mcs"), 1);
    let waits = vec![Step::Lock(0), tries[1], tries[2], tries[3]];
    let waiting = done(&[holds, waits], Kind::Exclusive("mcs"), 1);
    assert!(steps[1] > 5 * waiting[1], "{steps:?} {waiting:?}");
}

#[test]
fn a_thread_stays_whole_whatever_it_leaves_out_and_takes_twice() {
    // It releases what it has although it has not got the other one, and takes a lock twice.
    let holds = vec![Step::Lock(1), Step::Work(50 * MICROSECOND), Step::Unlock(1), Step::Work(NANOSECOND)];
    let tries = vec![
        Step::Lock(0),
        Step::Lock(0),
        Step::Try(1),
        Step::Unlock(0),
        Step::Unlock(0),
        Step::Unlock(1),
        Step::Work(MICROSECOND),
    ];
    let machine = Machine::known()[0].flat(4);
    let lock = Part { kind: Kind::Exclusive("mcs"), number: 1 };
    let replay = Replay {
        threads: &[holds, tries.clone(), tries],
        locks: &[lock, lock],
        warm_up: 100 * MICROSECOND,
        time: 1000 * MICROSECOND,
        ..Replay::default()
    };
    let replayed =
        replay.run_in(Simulation::new(&machine, Settings::DEFAULT, 1)).expect("nobody waits for ever");
    assert!(replayed.steps[1] > 1000 && replayed.steps[2] > 1000, "{replayed:?}");
}

#[test]
fn wakes_and_meetings_keep_threads_in_step() {
    let gives = vec![Step::Work(10 * MICROSECOND), Step::Wake(0)];
    let takes = vec![Step::Await { what: Some(0), under: None, took: 0 }, Step::Work(MICROSECOND)];
    let steps = done(&[gives, takes.clone()], Kind::Gone, 1);
    assert!(steps[0].abs_diff(steps[1]) <= 4 && steps[0] > 100, "{steps:?}");
    let slow = vec![Step::Work(10 * MICROSECOND), Step::Meet(0)];
    let fast = vec![Step::Work(MICROSECOND), Step::Meet(0)];
    let steps = done(&[slow, fast.clone(), fast], Kind::Gone, 1);
    assert!(steps[0].abs_diff(steps[1]) <= 2 && steps[0].abs_diff(steps[2]) <= 2, "{steps:?}");
    // Nobody wakes it.
    assert!(replayed(&[takes], Kind::Gone, 1).is_err());
}

/// What one end of a queue does with an item: it needs something of the other, and gives it something.
fn part(work: u64, needs: u32, gives: u32) -> Vec<Step> {
    vec![
        Step::Work(work * MICROSECOND),
        Step::Lock(0),
        Step::Await { what: Some(needs), under: Some(0), took: 0 },
        Step::Wake(gives),
        Step::Unlock(0),
    ]
}

#[test]
fn who_needs_something_waits_for_it_without_the_lock() {
    // A queue of eight: whoever is slower has the other wait.
    // glibc's mutex and condition variables, ours, and a lock that has none.
    for (lock, seed) in ["glibc", "poundlock", "any-negative", "handoff", "mcs"]
        .iter()
        .flat_map(|lock| (0..8).map(move |seed| (lock, seed)))
    {
        let machine = Machine::known()[0].flat(1 + seed as u32 % 4);
        for (makes, uses) in [(1, 10), (10, 1)] {
            let threads = [part(makes, 1, 0), part(uses, 0, 1), part(uses, 0, 1)];
            let replay = Replay {
                threads: &threads,
                locks: &[Part { kind: Kind::Exclusive(lock), number: 1 }],
                before: &[0, 8],
                warm_up: 100 * MICROSECOND,
                time: 10_000 * MICROSECOND,
                ..Replay::default()
            };
            let disturbance = Disturbance {
                seed,
                one_in: 50,
                longest: 5 * MICROSECOND,
                spurious: 10,
                ..Disturbance::default()
            };
            let settings = Settings { scatter: 32, disturbance: Some(disturbance), ..Settings::DEFAULT };
            let replayed =
                replay.run_in(Simulation::new(&machine, settings, seed)).expect("nobody waits for ever");
            let (steps, waits) = (replayed.steps, replayed.waits[0]);
            assert!(
                steps[0].abs_diff(steps[1] + steps[2]) <= 5 * 10 && steps[0] > 20,
                "{lock}, seed {seed}: {steps:?}"
            );
            assert!(
                waits.again > 0 && waits.acquisitions >= steps.iter().sum::<u64>() / 5 - 3,
                "{lock}, seed {seed}: {waits:?}"
            );
        }
    }
}

#[test]
fn a_wait_or_a_signal_that_was_cut_off_at_the_begin_belongs_to_the_mutex() {
    // A queue of eight whose taker waits for each. Where a signal wakes it, it waits for the mutex as well.
    let part = |work, needs, gives| {
        let mut steps = part(work, needs, gives);
        steps.insert(4, Step::Work(20 * MICROSECOND));
        steps
    };
    // It was not seen to acquire the mutex.
    let cut = |part: &[Step], needs, gives| {
        let first = [Step::Await { what: Some(needs), under: None, took: 0 }, Step::Wake(gives)];
        [&first[..], &part.repeat(20)].concat()
    };
    let machine = Machine::known()[0].flat(2);
    for lock in ["poundlock", "any-negative", "handoff"] {
        let waits = |threads: [Vec<Step>; 2]| {
            let replay = Replay {
                threads: &threads,
                locks: &[Part { kind: Kind::Exclusive(lock), number: 1 }],
                before: &[0, 8],
                warm_up: 1000 * MICROSECOND,
                time: 20_000 * MICROSECOND,
                ..Replay::default()
            };
            let simulation = Simulation::new(&machine, Settings::DEFAULT, 1);
            let waits = replay.run_in(simulation).expect("nobody waits for ever").waits[0];
            assert!(waits.again > 100, "{lock}: {waits:?}");
            waits.contended
        };
        let (makes, uses) = (part(100, 1, 0), part(1, 0, 1));
        let whole = waits([makes.clone(), uses.clone()]);
        let cut = waits([cut(&makes, 1, 0), cut(&uses, 0, 1)]);
        assert_eq!((whole, cut), (0, 0), "{lock}: a signal moves who waits to the mutex");
    }
}

fn figures(known: &[(&str, u32)]) -> String {
    let figure =
        |(name, value): &(&str, u32)| format!("{name} = {{ value = {value}, source = \"this test\" }}\n");
    known.iter().map(figure).collect()
}

/// The table `[idle]`, in nanoseconds: 0 but for these.
fn idle(known: &[(&str, u32)]) -> String {
    let names = ["awake", "wake", "wake_latency", "charged", "chance", "queue", "interrupt", "locked"];
    let value = |name: &str| known.iter().find(|(of, _)| *of == name).map_or(0, |(_, value)| *value);
    format!("\n[idle]\n{}", figures(&names.map(|name| (name, value(name)))))
}

fn with_idle(known: &[(&str, u32)]) -> Machine {
    Machine::parse(&(include_str!("../machines/osv-4.toml").to_owned() + &idle(known))).expect("a machine")
}

/// Two threads that work for a microsecond each, wake each other, and wait for that.
fn in_turn() -> [Vec<Step>; 2] {
    let (works, waits) =
        (Step::Work(MICROSECOND), |what| Step::Await { what: Some(what), under: None, took: 0 });
    [vec![works, Step::Wake(0), waits(1)], vec![waits(0), works, Step::Wake(1)]]
}

/// A thread comes to its waker's CPU as long as that is seldom used. Its way out of idleness is use, as far
/// as the thread is charged for it.
#[test]
fn threads_that_are_charged_for_waking_up_are_packed_less() {
    let turns = |charged: u32| {
        let machine = include_str!("../machines/osv-4.toml");
        let text = machine.replace("wake_latency = { value = 600,", "wake_latency = { value = 20000,")
            + &idle(&[("wake", 100), ("charged", charged)])
            + "\n[eevdf]\n"
            + &figures(&[("slice", 1_400_000), ("tick", 4_000_000), ("hot", 500_000), ("pack", 128)]);
        let replay = Replay {
            threads: &in_turn(),
            cpus: &[Some(0), Some(1)],
            warm_up: 200_000 * MICROSECOND,
            time: 100_000 * MICROSECOND,
            ..Replay::default()
        };
        let machine = Machine::parse(&text).expect("a machine");
        let simulation = Simulation::new(&machine, Settings::DEFAULT, 1);
        replay.run_in(simulation).expect("nobody waits for ever").steps[0] / 3
    };
    let (packed, apart) = (turns(0), turns(19_000));
    assert!(packed > 4 * apart && apart > 1000, "{packed} and {apart}");
}

/// A CPU that has just become idle takes as long to run a woken thread as the machine says of it, and only
/// another one charges the thread for its way to it.
#[test]
fn a_cpu_that_is_still_awake_is_another() {
    let machine = |awake: u32, charged: u32| {
        with_idle(&[("awake", awake), ("wake", 100), ("wake_latency", 20_000), ("charged", charged)])
    };
    let replayed = |awake: u32, charged: u32| {
        let replay = Replay {
            threads: &in_turn(),
            warm_up: 100 * MICROSECOND,
            time: 10_000 * MICROSECOND,
            ..Replay::default()
        };
        let simulation = Simulation::new(&machine(awake, charged), Settings::DEFAULT, 1);
        let replayed = replay.run_in(simulation).expect("nobody waits for ever");
        (replayed.steps[0], replayed.used)
    };
    let [(never, free), (always, awake)] = [0, 1_000_000].map(|awake| replayed(awake, 0));
    assert!(never > 4 * always && always > 100, "{never} {always}");
    // A turn is two wake-ups and three steps, and each of those is charged.
    const CHARGED: u32 = 100;
    assert_eq!(replayed(1_000_000, CHARGED), (always, awake));
    let (turns, more) = replayed(0, CHARGED);
    let charged = (more - free) as f64 / (turns as f64 / 3.0) / MICROSECOND as f64 * 1000.0;
    assert!(
        turns == never && (charged / f64::from(2 * CHARGED) - 1.0).abs() < 0.05,
        "{turns} {never} {charged}"
    );
}

/// A waker has the queue of a busy CPU locked until its interrupt has come there: who computes goes on, and
/// who yields waits for that.
#[test]
fn a_cpu_whose_queue_is_locked_runs_nobody_else() {
    const TURN: u64 = 100 * MICROSECOND;
    const TURNS: u64 = 100;
    let gives = vec![Step::Work(TURN), Step::Wake(0)];
    let takes = vec![Step::Await { what: Some(0), under: None, took: 0 }];
    let steps = |locked: u32, beside: &[Step]| {
        let machine = with_idle(&[("interrupt", 20_000), ("locked", locked)]).flat(2);
        let replay = Replay {
            threads: &[gives.clone(), takes.clone(), beside.to_vec()],
            cpus: &[Some(0), Some(1), Some(1)],
            time: TURNS * TURN,
            ..Replay::default()
        };
        replay.run_in(Simulation::new(&machine, Settings::DEFAULT, 1)).expect("nobody waits for ever").steps
    };
    let computes = [Step::Work(MICROSECOND)];
    assert_eq!(steps(0, &computes), steps(30_000, &computes));
    let yields = [Step::Work(MICROSECOND), Step::Yield(0)];
    let [free, locked] = [0, 30_000].map(|locked| steps(locked, &yields));
    assert!(locked[1].abs_diff(free[1]) <= TURNS / 20 && free[1] > TURNS / 2, "{free:?} {locked:?}");
    let (a_yield, lost) = (TURNS * TURN / (free[2] / 2), (free[2] - locked[2]) / 2);
    let a_turn = lost * a_yield / free[1] / MICROSECOND;
    assert!((20..=31).contains(&a_turn), "{a_turn} us lost in each turn: {free:?} {locked:?}");
}

#[test]
fn who_yields_lets_others_have_the_cpu() {
    let yields = vec![Step::Work(MICROSECOND), Step::Yield(0)];
    let works = vec![Step::Work(MICROSECOND)];
    let machine = Machine::known()[0].flat(1);
    let replay = Replay { threads: &[yields, works], time: 20_000 * MICROSECOND, ..Replay::default() };
    let steps = replay.run_in(Simulation::new(&machine, Settings::DEFAULT, 1)).expect("nobody waits").steps;
    assert!(steps[0] > 0 && steps[1] > 5 * steps[0], "{steps:?}");
}

/// Two threads that yield to each other all the time take twice as long where the kernel does; those of
/// another CPU do not.
#[test]
fn a_slow_kernel_is_that_of_its_cpu() {
    let yields = vec![Step::Yield(0)];
    let machine = Machine::known()[0].flat(2);
    let replay = Replay {
        threads: &[yields.clone(), yields.clone(), yields.clone(), yields],
        cpus: &[Some(0), Some(0), Some(1), Some(1)],
        time: 20_000 * MICROSECOND,
        ..Replay::default()
    };
    let mut simulation = Simulation::new(&machine, Settings::DEFAULT, 1);
    simulation.slow_kernel(&[256, 512]);
    let steps = replay.run_in(simulation).expect("nobody waits").steps;
    let times = (steps[0] + steps[1]) as f64 / (steps[2] + steps[3]) as f64;
    assert!((times - 2.0).abs() < 0.1, "{steps:?}");
}

/// Two threads that wake each other on two slow CPUs are slowed by two fifths of that: most of it is the way
/// to the other CPU.
#[test]
fn a_slow_cpu_is_woken_nearly_as_soon() {
    let text = include_str!("../machines/osv-4.toml");
    let text = text.replace("wake_latency = { value = 600,", "wake_latency = { value = 50000,");
    let machine = Machine::parse(&text).expect("a machine");
    let turns = |slow: u64| {
        let replay = Replay {
            threads: &in_turn(),
            cpus: &[Some(0), Some(1)],
            time: 20_000 * MICROSECOND,
            ..Replay::default()
        };
        let mut simulation = Simulation::new(&machine, Settings::DEFAULT, 1);
        simulation.slow_kernel(&[slow, slow]);
        replay.run_in(simulation).expect("nobody waits for ever").steps[0] as f64
    };
    let share = turns(256) / turns(512);
    assert!((share - 1.4).abs() < 0.05, "{share}");
}

/// Interrupts take a third of the time of threads that give each other their CPU, and nothing of the
/// program's own work, which has them in it.
#[test]
fn interrupts_come_where_the_kernel_works() {
    let machine = include_str!("../machines/osv-4.toml").to_owned();
    let interrupts = figures(&[("every", 100_000), ("takes", 50_000)]);
    let steps = [machine.clone(), machine + "\n[interrupts]\n" + &interrupts].map(|text| {
        let machine = Machine::parse(&text).expect("a machine").flat(2);
        let replay = Replay {
            threads: &[vec![Step::Yield(0)], vec![Step::Yield(0)], vec![Step::Work(MICROSECOND)]],
            cpus: &[Some(0), Some(0), Some(1)],
            time: 100_000 * MICROSECOND,
            ..Replay::default()
        };
        let settings = Settings { scatter: 32, ..Settings::DEFAULT };
        replay.run_in(Simulation::new(&machine, settings, 1)).expect("nobody waits").steps
    });
    let share = steps[1][0] as f64 / steps[0][0] as f64;
    assert!((share * 1.5 - 1.0).abs() < 0.1 && steps[0][2] == steps[1][2], "{steps:?}");
}

/// Writers are alone and nobody sleeps for ever, on fewer CPUs than threads.
#[test]
fn writers_are_alone_and_all_get_their_turn() {
    const EACH: u32 = 100;
    for seed in 0..40 {
        let machine = Machine::known()[0].flat(1 + seed as u32 % 4);
        let mut simulation = Simulation::new(&machine, Settings::DEFAULT, seed);
        let lock = Rc::new(GlibcRwLock::default());
        let inside = Rc::new(Cell::new(0_i32));
        let done = Rc::new(Cell::new(0));
        for _ in 0..6 {
            let (lock, inside, done) = (Rc::clone(&lock), Rc::clone(&inside), Rc::clone(&done));
            simulation.spawn(None, move || {
                for _ in 0..EACH {
                    let time = random(|random| random.u64(1..MICROSECOND));
                    if random(|random| random.u8(..10)) < 4 {
                        lock.write();
                        assert_eq!(inside.replace(-1), 0, "not alone, with seed {seed}");
                        work(time);
                        assert_eq!(inside.replace(0), -1, "not alone, with seed {seed}");
                        lock.unlock_write();
                    } else {
                        lock.read();
                        assert!(inside.replace(inside.get() + 1) >= 0, "beside a writer, with seed {seed}");
                        work(time);
                        assert!(inside.replace(inside.get() - 1) > 0, "beside a writer, with seed {seed}");
                        lock.unlock_read();
                    }
                    work(time / 2);
                    done.set(done.get() + 1);
                }
            });
        }
        // Long enough for all, if none sleeps for ever.
        let ended = simulation.run(1_000_000 * MICROSECOND);
        assert!(ended.is_ok() && done.get() == 6 * EACH, "{} done with seed {seed}", done.get());
    }
}
