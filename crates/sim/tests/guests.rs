//! Virtual CPUs on real ones.

use poundlock_sim::check::calm;
use poundlock_sim::workload::Turns;
use poundlock_sim::{
    Hypervisor, MICROSECOND, Machine, Settings, Simulation, atomically, in_kernel, locks, work,
};

const TURNS: Turns<'_> = Turns {
    lock: "mcs",
    threads: 4,
    critical: MICROSECOND,
    counts: false,
    think: 40 * MICROSECOND,
    warm_up: 2_000 * MICROSECOND,
    time: 200_000 * MICROSECOND,
    seed: 1,
};

fn hypervisor(name: &str) -> Hypervisor {
    Hypervisor::known().into_iter().find(|known| known.name() == name).expect("it is part of Poundlock")
}

/// Throughput of a guest with the test machine's eight CPUs, on `sockets` of them.
fn throughput(turns: Turns<'_>, sockets: u32, pinned: bool) -> f64 {
    let (guest, host) = (calm(), calm().part(sockets, 2).unwrap());
    let simulation = Simulation::guest(&guest, &host, &hypervisor("kvm"), pinned, Settings::DEFAULT, 1);
    turns.run_in(simulation).unwrap().throughput()
}

#[test]
fn with_a_real_cpu_each_a_guest_is_as_fast_as_a_machine() {
    let bare = TURNS.run(&calm(), Settings::DEFAULT).unwrap().throughput();
    for pinned in [true, false] {
        let guest = throughput(TURNS, 2, pinned);
        assert!((0.9..1.1).contains(&(guest / bare)), "{guest} {bare}");
    }
}

#[test]
fn half_as_many_real_cpus_do_half_as_much() {
    let turns = Turns { lock: "any-negative", threads: 8, think: 200 * MICROSECOND, ..TURNS };
    let (whole, half) = (throughput(turns, 2, false), throughput(turns, 1, false));
    assert!((0.35..0.65).contains(&(half / whole)), "{half} {whole}");
}

#[test]
fn every_lock_gets_on_in_a_crowded_guest() {
    for lock in locks::names() {
        let turns = Turns { lock, threads: 12, think: 3 * MICROSECOND, time: 80_000 * MICROSECOND, ..TURNS };
        let throughput = throughput(turns, 1, false);
        assert!(throughput > 100.0, "{lock}: {throughput}");
    }
}

/// Threads of a guest's kernel that take a spinlock, which they must not sleep in.
fn spinlock_in_a_guest(lock: &str, host: &Machine, hypervisor: &Hypervisor) -> u64 {
    use std::cell::Cell;
    use std::rc::Rc;
    let mut simulation = Simulation::guest(&calm(), host, hypervisor, false, Settings::KERNEL, 1);
    let shared = Rc::new((locks::make(lock).unwrap(), Cell::new(0)));
    for _ in 0..16 {
        let shared = Rc::clone(&shared);
        simulation.spawn(None, move || {
            loop {
                in_kernel(|| {
                    atomically(|| shared.0.lock());
                    work(2 * MICROSECOND);
                    shared.1.set(shared.1.get() + 1);
                    atomically(|| shared.0.unlock());
                });
                work(20 * MICROSECOND);
            }
        });
    }
    simulation.run(400_000 * MICROSECOND).unwrap();
    shared.1.get()
}

#[test]
fn halting_waiters_leave_the_cpus_to_a_preempted_holder() {
    let host = calm().part(1, 2).unwrap();
    for name in ["kvm", "xen"] {
        let hypervisor = hypervisor(name);
        let halting = spinlock_in_a_guest("qspin-pv", &host, &hypervisor);
        let spinning = spinlock_in_a_guest("qspin", &host, &hypervisor);
        assert!(halting > 2 * spinning, "{name}: {halting} {spinning}");
    }
}

#[test]
fn a_seed_fixes_a_guest_too() {
    let turns = Turns { lock: "poundlock", threads: 12, ..TURNS };
    let run = || {
        let (guest, host) = (calm(), calm().part(1, 2).unwrap());
        let simulation = Simulation::guest(&guest, &host, &hypervisor("xen"), false, Settings::DEFAULT, 5);
        turns.run_in(simulation).unwrap()
    };
    assert_eq!(run(), run());
}
