//! The machine does what its description says: each cost is seen where it is due, and nowhere else.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Clock, Deadline, Platform, Split, Until, Waited};
use poundlock_sim::check::calm;
use poundlock_sim::{
    Alone, MICROSECOND, Machine, NANOSECOND, Picoseconds, Settings, Sim, Simulation, U32, now, sleep, work,
};

/// A thread, and the CPU that it stays on.
type Pinned = (u32, Box<dyn FnOnce(&Notes)>);

type Act = fn(&U32);

fn on(cpu: u32, body: impl FnOnce(&Notes) + 'static) -> Pinned {
    (cpu, Box::new(body))
}

/// Runs threads, each on a CPU of its own, and returns what they noted.
fn run(machine: &Machine, threads: Vec<Pinned>) -> Vec<(u32, Picoseconds)> {
    let notes = Rc::new(RefCell::new(Vec::new()));
    let mut simulation = Simulation::new(machine, Settings::default(), 1);
    for (cpu, body) in threads {
        let notes = Notes { cpu, notes: Rc::clone(&notes) };
        simulation.spawn(Some(cpu), move || body(&notes));
    }
    let summary = simulation.run(1_000_000 * MICROSECOND).expect("nobody sleeps for ever");
    assert!(summary.over);
    notes.take()
}

struct Notes {
    cpu: u32,
    notes: Rc<RefCell<Vec<(u32, Picoseconds)>>>,
}

impl Notes {
    /// Notes how long `body` takes.
    fn time(&self, body: impl FnOnce()) {
        let begun = now();
        body();
        self.notes.borrow_mut().push((self.cpu, now() - begun));
    }
}

fn word() -> Rc<Alone<U32>> {
    Rc::default()
}

/// How long an access by CPU 0 takes, in nanoseconds, after others have done theirs one after the other.
fn after(machine: &Machine, before: Vec<(u32, Act)>, access: Act) -> f64 {
    let word = word();
    let mut threads: Vec<Pinned> = Vec::new();
    let last = before.len() as u64 + 1;
    for (turn, (cpu, body)) in before.into_iter().enumerate() {
        let word = Rc::clone(&word);
        threads.push(on(cpu, move |_| {
            work((turn as u64 + 1) * 10 * MICROSECOND);
            body(&word.0);
        }));
    }
    threads.push(on(0, move |notes| {
        work(last * 10 * MICROSECOND);
        notes.time(|| access(&word.0));
    }));
    let notes = run(machine, threads);
    notes[0].1 as f64 / NANOSECOND as f64
}

fn read(word: &U32) {
    word.load(Relaxed);
}

fn write(word: &U32) {
    word.store(1, Relaxed);
}

fn modify(word: &U32) {
    word.fetch_add(1, Relaxed);
}

#[test]
fn an_access_costs_what_the_line_has_been_through() {
    // CPUs 0 and 1 are cores of one socket, 2 and 3 of the other; 4 is the other thread of core 0.
    for (before, access, ns) in [
        // Memory, and then the cache.
        (vec![], read as fn(&U32), 80.0 + 1.5),
        (vec![(4, read as fn(&U32))], read, 1.5),
        (vec![(4, write as fn(&U32))], modify, 1.5 + 8.0),
        // A neighbour's, and a stranger's.
        (vec![(1, write as fn(&U32))], read, 30.0 + 1.5),
        (vec![(2, write as fn(&U32))], read, 100.0 + 1.5),
        (vec![(1, read as fn(&U32))], read, 20.0 + 1.5),
        // To write to what others have: their copies go, the stranger's after an answer, while the line is
        // fetched.
        (vec![(4, read as fn(&U32)), (1, read)], write, 20.0 + 1.5),
        (vec![(4, read as fn(&U32)), (1, read), (2, read)], write, 100.0 + 2.0 * 5.0 + 1.5),
    ] {
        let shape = before.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>();
        assert_eq!(after(&calm(), before, access), ns, "after {shape:?}");
    }
}

/// Three sockets in a row of eight cores each, which are split into quads of two pairs.
const LEVELS: &str = r#"
[[groups]]
name = "pair"
cores = 2
source = "made up"
transfer = { value = 10.0, source = "made up" }
shared = { value = 6.0, source = "made up" }

[[groups]]
name = "quad"
cores = 4
source = "made up"
transfer = { value = 17.0, source = "made up" }
shared = { value = 13.0, source = "made up" }

[costs]"#;

/// What is tested here, with one field written otherwise.
fn deep(field: &str, otherwise: &str) -> Result<Machine, String> {
    let whole = include_str!("../src/check/small.toml")
        .replace("sockets = 2", "sockets = 3\nhops = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]")
        .replace("cores_a_socket = 2", "cores_a_socket = 8")
        .replace("threads_a_core = 2", "threads_a_core = 1")
        .replace("[costs]", LEVELS);
    assert!(whole.contains(field));
    Machine::parse(&whole.replacen(field, otherwise, 1)).map_err(|error| error.to_string())
}

#[test]
fn each_level_of_distance_has_its_costs() {
    let machine = deep("", "").unwrap();
    assert_eq!((machine.cpus(), machine.nodes(), machine.node_of(9)), (24, 3, 1));
    // CPU 1 is of the same pair as CPU 0, 2 of the same quad, 4 of the same socket, 8 of the next, 16 of the
    // one after that.
    for (other, transfer, shared) in
        [(1, 10.0, 6.0), (2, 17.0, 13.0), (4, 30.0, 20.0), (8, 100.0, 100.0), (16, 150.0, 150.0)]
    {
        let after = |before, access| after(&machine, before, access);
        assert_eq!(after(vec![(other, write as fn(&U32))], read), transfer + 1.5, "from {other}");
        assert_eq!(after(vec![(other, write as fn(&U32))], modify), transfer + 1.5 + 8.0, "from {other}");
        // The nearest copy counts.
        let copies = vec![(other, read as fn(&U32)), (16, read)];
        assert_eq!(after(copies, read), shared + 1.5, "from {other}");
        // Its own copy is the nearest, but the other has to answer, unless that one is of the same pair.
        let answered = if other == 1 { 6.0 } else { transfer + 5.0 };
        assert_eq!(after(vec![(0, read as fn(&U32)), (other, read)], write), answered + 1.5, "from {other}");
    }
}

#[test]
fn a_node_is_what_the_description_says() {
    let machine = deep("", "").unwrap();
    for (name, nodes, of) in
        [("socket", 3, [0, 0, 0, 1]), ("quad", 6, [0, 0, 1, 2]), ("pair", 12, [0, 1, 2, 4])]
    {
        let other = machine.with_node(name).unwrap();
        assert_eq!(other.nodes(), nodes);
        assert_eq!([1, 2, 4, 8].map(|cpu| other.node_of(cpu)), of, "{name}");
        let described = deep("threads_a_core", &format!("node = '{name}'\nthreads_a_core")).unwrap();
        assert_eq!((described.node_is(), described.nodes()), (name, nodes));
        // Fewer sockets, fewer nodes.
        assert_eq!(other.part(1, 1).unwrap().nodes(), nodes / 3);
    }
    let seen = Rc::new(RefCell::new((0, 0)));
    let noted = Rc::clone(&seen);
    let other = machine.with_node("quad").unwrap();
    run(&other, vec![on(12, move |_| *noted.borrow_mut() = (Sim::node(), Sim::nodes()))]);
    assert_eq!(*seen.borrow(), (3, 6));
}

#[test]
fn new_threads_spread_over_sockets_then_over_groups() {
    let machine = deep("", "").unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut simulation = Simulation::new(&machine, Settings::default(), 1);
    for _ in 0..6 {
        let seen = Rc::clone(&seen);
        simulation.spawn(None, move || {
            seen.borrow_mut().push(Sim::tag() - 1);
            work(100 * MICROSECOND);
        });
    }
    assert!(simulation.run(1_000 * MICROSECOND).unwrap().over);
    let mut cpus = seen.take();
    cpus.sort_unstable();
    assert_eq!(cpus, [0, 2, 8, 10, 16, 18]);
}

/// Linux looks no farther for an idle CPU than the last cache reaches, here: than the pair.
#[test]
fn a_thread_wakes_up_within_its_group() {
    // If both are busy, whichever is free first takes it, though the other pairs idle all the time.
    for (busy, may_go_to, waits) in [(vec![], 0..1, false), (vec![0], 1..2, false), (vec![0, 1], 0..2, true)]
    {
        let mut simulation = Simulation::new(&deep("", "").unwrap(), Settings::default(), 1);
        let seen = Rc::new(RefCell::new((0, 0)));
        let noted = Rc::clone(&seen);
        simulation.spawn(None, move || {
            assert_eq!(Sim::tag(), 1, "the first thread runs on CPU 0");
            sleep(100 * MICROSECOND);
            *noted.borrow_mut() = (Sim::tag() - 1, now());
        });
        for &cpu in &busy {
            simulation.spawn(Some(cpu), || {
                sleep(50 * MICROSECOND);
                work(1_000 * MICROSECOND);
            });
        }
        assert!(simulation.run(100_000 * MICROSECOND).unwrap().over);
        let (cpu, at) = *seen.borrow();
        assert_eq!(
            (may_go_to.contains(&cpu), at > 200 * MICROSECOND),
            (true, waits),
            "{busy:?}: {cpu}, {at}"
        );
    }
}

#[test]
fn a_wrong_description_is_refused_by_the_name_of_its_field() {
    for (field, otherwise, said) in [
        ("cores = 4", "cores = 3", "cores of group 'quad'"),
        ("cores = 4", "cores = 2", "cores of group 'quad'"),
        ("cores = 4", "cores = 8", "cores of group 'quad'"),
        ("cores = 4", "cores = 0", "cores of group 'quad'"),
        ("cores = 2", "cores = 1", "cores of group 'pair'"),
        ("cores_a_socket = 8", "cores_a_socket = 10", "cores of group 'quad'"),
        ("\"quad\"", "\"pair\"", "name of group 'pair'"),
        ("\"quad\"", "\"socket\"", "name of group 'socket'"),
        ("value = 17.0", "value = -1.0", "transfer of group 'quad'"),
        ("value = 13.0", "value = nan", "shared of group 'quad'"),
        ("shared = { value = 13.0, source = \"made up\" }", "", "`shared`"),
        ("cores = 4", "cpus = 4", "`cpus`"),
        ("threads_a_core", "node = \"die\"\nthreads_a_core", "node of machine 'small' cannot be 'die'"),
        ("[0, 1, 2]", "[0, 1]", "hops"),
        ("[0, 1, 2]", "[0, 1, 3]", "hops"),
        ("[0, 1, 2]", "[1, 1, 2]", "hops"),
        ("[0, 1, 2], ", "", "hops"),
    ] {
        let error = deep(field, otherwise).expect_err(otherwise);
        assert!(error.contains(said) && !error.contains('\n'), "{otherwise}: {error}");
    }
}

#[test]
fn a_sibling_sees_a_store_when_it_is_done_and_not_before() {
    let shared = word();
    let (writer, reader) = (Rc::clone(&shared), Rc::clone(&shared));
    let threads = vec![
        on(0, move |_| {
            work(10 * MICROSECOND);
            write(&writer.0);
        }),
        on(4, move |notes| {
            work(10 * MICROSECOND);
            // The line is on its way to the core that both share.
            notes.time(|| assert_eq!(reader.0.load(Relaxed), 1));
        }),
    ];
    let notes = run(&calm(), threads);
    assert!(notes[0].1 > 80 * NANOSECOND, "{notes:?}");
}

#[test]
fn transfers_of_one_line_take_turns() {
    let machine = calm();
    let shared = word();
    let threads = [0, 1, 2, 3].map(|cpu| {
        let word = Rc::clone(&shared);
        on(cpu, move |notes| {
            work(10 * MICROSECOND);
            notes.time(|| modify(&word.0));
        })
    });
    let mut notes = run(&machine, threads.into());
    notes.sort_by_key(|&(_, time)| time);
    let times: Vec<_> = notes.iter().map(|&(_, time)| time / NANOSECOND).collect();
    assert!(times[0] >= 80 && times.windows(2).all(|pair| pair[1] >= pair[0] + 30), "{times:?}");
    assert_eq!(shared.0.peek(), 4);
}

/// A request is under way to the owner for half of the time that it takes.
#[test]
fn an_owner_keeps_its_line_until_the_request_arrives() {
    let shared = word();
    let (owner, taker) = (Rc::clone(&shared), Rc::clone(&shared));
    let threads = vec![
        on(0, move |notes| {
            write(&owner.0);
            work(10 * MICROSECOND - now());
            work(2 * NANOSECOND);
            notes.time(|| modify(&owner.0));
            work(100 * NANOSECOND);
            notes.time(|| modify(&owner.0));
        }),
        on(1, move |_| {
            work(10 * MICROSECOND - now());
            modify(&taker.0);
        }),
    ];
    let [(_, soon), (_, late)] = run(&calm(), threads)[..] else { panic!("two notes") };
    assert!(soon < 20 * NANOSECOND && late > 30 * NANOSECOND, "{soon} {late}");
}

/// A core that waits for a line in the middle of a queue does not have it for its sibling either.
#[test]
fn a_sibling_of_a_core_that_waits_for_a_line_waits_as_well() {
    let shared = word();
    let mut threads: Vec<Pinned> = Vec::new();
    for cpu in [0, 1, 2] {
        let word = Rc::clone(&shared);
        threads.push(on(cpu, move |_| {
            work(10 * MICROSECOND);
            modify(&word.0);
        }));
    }
    // All cores have two that work until then: they take as long.
    for cpu in [4, 6] {
        threads.push(on(cpu, |_| work(10 * MICROSECOND)));
    }
    threads.push(on(5, move |notes| {
        work(10 * MICROSECOND + NANOSECOND);
        notes.time(|| assert!(shared.0.load(Relaxed) >= 2, "read before the sibling's access was done"));
    }));
    let notes = run(&calm(), threads);
    assert!(notes[0].1 > 100 * NANOSECOND, "{notes:?}");
}

#[test]
fn a_wide_access_after_a_narrow_store_waits_for_it() {
    let narrow = |word: &U32| {
        word.store(0, Relaxed);
        word.store_low_byte(1, Relaxed);
    };
    let time = |prepare: fn(&U32), access: Act| {
        let word = word();
        let body = move |notes: &Notes| {
            prepare(&word.0);
            notes.time(|| access(&word.0));
        };
        run(&calm(), vec![on(0, body)])[0].1
    };
    assert_eq!(time(narrow, read) - time(write, read), 5 * NANOSECOND);
    assert_eq!(time(narrow, |word| word.store_low_byte(0, Relaxed)), time(write, write));
}

#[test]
fn siblings_slow_each_other_down() {
    let body = |notes: &Notes| notes.time(|| work(100 * MICROSECOND));
    assert_eq!(run(&calm(), vec![on(0, body)]), [(0, 100 * MICROSECOND)]);
    let both = run(&calm(), vec![on(0, body), on(4, body)]);
    // 160 of 256, while the other runs.
    assert!(both.iter().any(|&(_, time)| time == 160 * MICROSECOND), "{both:?}");
    let apart = run(&calm(), vec![on(0, body), on(1, body)]);
    assert_eq!(apart, [(0, 100 * MICROSECOND), (1, 100 * MICROSECOND)]);
}

#[test]
fn threads_of_one_cpu_share_it() {
    let mut simulation = Simulation::new(&calm(), Settings::default(), 1);
    for _ in 0..4 {
        simulation.spawn(Some(0), || work(40_000 * MICROSECOND));
    }
    let summary = simulation.run(40_000 * MICROSECOND).unwrap();
    assert!(!summary.over);
    for used in summary.used {
        let share = used as f64 / (10_000 * MICROSECOND) as f64;
        assert!((0.8..1.2).contains(&share), "{share}");
    }
}

#[test]
fn a_thread_that_loses_its_cpu_while_it_fetches_a_line_has_not_written_to_it() {
    const SLICE: Picoseconds = 1_000 * MICROSECOND;
    const END: Picoseconds = 200_000 * MICROSECOND;
    let mut simulation = Simulation::new(&calm(), Settings::default(), 1);
    let (word, lost) = (word(), Rc::new(RefCell::new((0, 0))));
    // Two share a CPU, and a third one takes the line from them all the time.
    for cpu in [0, 0, 1] {
        let (word, lost) = (Rc::clone(&word), Rc::clone(&lost));
        simulation.spawn(Some(cpu), move || {
            while now() < END {
                let begun = now();
                modify(&word.0);
                let written = now();
                read(&word.0);
                let (before, after) = &mut *lost.borrow_mut();
                *before += u32::from(written - begun > SLICE);
                *after += u32::from(now() - written > SLICE);
            }
        });
    }
    simulation.run(2 * END).expect("nobody sleeps");
    let (before, after) = *lost.borrow();
    assert!(before > 10 && after * 4 < before, "before it had written {before}, after that {after}");
}

#[test]
fn threads_spread_over_idle_cpus() {
    let mut simulation = Simulation::new(&calm(), Settings::default(), 1);
    for _ in 0..4 {
        simulation.spawn(None, || work(1_000 * MICROSECOND));
    }
    let summary = simulation.run(100_000 * MICROSECOND).unwrap();
    assert!(summary.over && summary.time < 1_100 * MICROSECOND, "{summary:?}");
}

#[test]
fn a_sleeper_is_woken_and_a_deadline_ends_a_sleep() {
    let machine = calm();
    let shared = word();
    let (sleeper, waker) = (Rc::clone(&shared), shared);
    let sleeper = on(0, move |notes| {
        notes.time(|| assert_eq!(Sim::wait(&sleeper.0, 0, Until::Woken), Waited::Woken));
        let deadline = Deadline { clock: Clock::Monotonic, seconds: 0, nanoseconds: 500_000 };
        assert_eq!(Sim::wait(&sleeper.0, 1, Until::Deadline(&deadline)), Waited::TimedOut);
        assert!(now() >= 500 * MICROSECOND && now() < 510 * MICROSECOND, "{}", now());
        assert_eq!(Sim::wait(&sleeper.0, 7, Until::Woken), Waited::Woken);
    });
    let waker = on(1, move |_| {
        work(100 * MICROSECOND);
        waker.0.store(1, Relaxed);
        Sim::wake(&raw const waker.0, 1);
    });
    let notes = run(&machine, vec![sleeper, waker]);
    // The wake-up, its latency and a switch.
    assert!((100 * MICROSECOND..115 * MICROSECOND).contains(&notes[0].1), "{notes:?}");
}

#[test]
fn a_spinner_sees_a_store_in_time_and_is_not_simulated_meanwhile() {
    let machine = calm();
    let shared = word();
    let (spinner, writer) = (Rc::clone(&shared), shared);
    let stored = Rc::new(RefCell::new(0));
    let noted_store = Rc::clone(&stored);
    let mut simulation = Simulation::new(&machine, Settings::default(), 1);
    let seen = Rc::new(RefCell::new(0));
    let noted = Rc::clone(&seen);
    simulation.spawn(Some(0), move || {
        let mut budget = Settings { spin: 2_000 * MICROSECOND, ..Settings::default() }.budget();
        while spinner.0.load(Relaxed) == 0 {
            assert!(poundlock_core::platform::Spin::spin(&mut budget));
        }
        *noted.borrow_mut() = now();
    });
    simulation.spawn(Some(1), move || {
        work(1_000 * MICROSECOND);
        writer.0.store(1, Relaxed);
        *noted_store.borrow_mut() = now();
    });
    let summary = simulation.run(10_000 * MICROSECOND).unwrap();
    let late = *seen.borrow() - *stored.borrow();
    assert!(late < 200 * NANOSECOND, "{late} ps");
    assert!(summary.traffic.accesses < 20, "{summary:?}");
    // It spun all the time.
    assert!(summary.used[0] >= 1_000 * MICROSECOND, "{summary:?}");
}

#[test]
fn descriptions_that_make_no_sense_are_refused() {
    assert!(Machine::parse("name = 3").is_err());
    let whole = calm();
    assert!(whole.part(3, 1).unwrap_err().to_string().contains("sockets"));
    let part = whole.part(1, 1).unwrap();
    assert_eq!((part.cpus(), part.cores()), (2, 2));
}
