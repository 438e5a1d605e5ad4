//! Semaphore arrays on simulated machines: nobody is lost, and the source's figures are met.

mod common;

use common::{calm, hurried};
use poundlock_core::semarray::Scheme;
use poundlock_sim::experiment::{Experiment, Work};
use poundlock_sim::model::Model;
use poundlock_sim::published::{Figure, tables};
use poundlock_sim::workload::sembench::{Burns, Sembench};
use poundlock_sim::{Hypervisor, MICROSECOND, Machine, Settings, Simulation};

const SEMBENCH: Sembench = Sembench {
    variant: Scheme::After,
    threads: 40,
    wakes: 16,
    warm_up: 1_000 * MICROSECOND,
    time: 10_000 * MICROSECOND,
    seed: 1,
};

/// A run fails if a wake-up is lost, if a thread goes on that nobody has woken, or if anything is left in the array at the end.
fn run(sembench: Sembench, machine: &Machine) -> Burns {
    sembench.run(machine).unwrap_or_else(|failure| panic!("{sembench:?}: {failure}"))
}

#[test]
fn the_same_seed_comes_to_the_same() {
    for variant in Scheme::ALL {
        // The second one is in the memory of the first.
        let [first, second] = [(); 2].map(|()| run(Sembench { variant, ..SEMBENCH }, &calm()));
        assert_eq!(first, second, "{}", variant.name());
        let other = run(Sembench { variant, seed: 2, ..SEMBENCH }, &calm());
        assert_ne!(first, other, "{}", variant.name());
    }
}

#[test]
fn everybody_gets_on() {
    for variant in Scheme::ALL {
        for (machine, wakes) in [(calm(), 16), (calm(), 1), (hurried(), 3), (calm().part(1, 1).unwrap(), 40)]
        {
            let burns = run(Sembench { variant, wakes, ..SEMBENCH }, &machine);
            assert!(burns.workers.iter().all(|&count| count > 0), "{}: {:?}", variant.name(), burns.workers);
            assert!(burns.main > 0 && burns.held.free > 0, "{}: {burns:?}", variant.name());
        }
    }
}

#[test]
fn many_are_woken_by_several_calls() {
    for variant in Scheme::ALL {
        let burns = run(Sembench { variant, threads: 300, wakes: 150, ..SEMBENCH }, &calm());
        assert!(burns.rate() > 10_000.0, "{}: {burns:?}", variant.name());
    }
}

#[test]
fn a_kernels_array_is_not_slept_for() {
    // Nor is anybody displaced who spins for it, however short the slices are.
    for variant in [Scheme::Before, Scheme::After, Scheme::SharedLine] {
        let burns = run(Sembench { variant, ..SEMBENCH }, &hurried());
        assert!(burns.held.contended > 0 && burns.held.slept == 0, "{}: {:?}", variant.name(), burns.held);
    }
}

#[test]
fn requests_are_served() {
    let burns = run(Sembench { variant: Scheme::Combining, ..SEMBENCH }, &calm());
    assert!(burns.held.served > 0, "{:?}", burns.held);
}

#[test]
fn arrays_work_in_user_space_and_in_guests() {
    let kvm = Hypervisor::known().into_iter().find(|known| known.name() == "kvm").unwrap();
    for variant in Scheme::ALL {
        let sembench = Sembench { variant, ..SEMBENCH };
        let machine = calm();
        // With all CPUs, and all threads on one.
        for cpus in [machine.cpus(), 1] {
            let user_space = Simulation::new(&machine, Settings::DEFAULT, 1);
            let burns = sembench.run_in(user_space, cpus).unwrap();
            assert!(burns.rate() > 10_000.0, "{}: {burns:?}", variant.name());
        }
        let settings = Settings::KERNEL.of_guest(&machine);
        let guest = Simulation::guest(&machine.part(1, 1).unwrap(), &machine, &kvm, false, settings, 1);
        let burns = sembench.run_in(guest, 2).unwrap();
        assert!(burns.rate() > 1_000.0, "{}: {burns:?}", variant.name());
    }
}

#[test]
fn each_workload_has_its_own_locks() {
    let run = |work: &str, lock| {
        let (work, model) = (Work::parse(work).unwrap(), &Model::known());
        let time = 1_000 * MICROSECOND;
        Experiment { machine: &calm(), guest: None, work, model, lock, threads: 4, seed: 1, time }.run()
    };
    for (work, lock, fits) in [("sembench", "mcs", "shared-line"), ("grid", "before", "any-negative")] {
        let line = run(work, lock).unwrap_err();
        assert!(line.contains(lock) && line.contains(fits) && !line.contains('\n'), "{line}");
    }
    for lock in Work::parse("sembench").unwrap().locks() {
        assert!(run("sembench", lock).unwrap().figures[0].value > 0.0, "{lock}");
    }
}

#[test]
fn the_series_ends_the_spinning_as_it_did() {
    let model = Model::known();
    let table = tables().into_iter().find(|table| table.name == "sembench").unwrap();
    let row = table.rows.iter().find(|row| row.label.contains("spinning")).unwrap();
    let ratio = |figure: &Figure| {
        figure.run.run(&model).unwrap().figure(figure.pick).unwrap() / figure.published.unwrap()
    };
    for (when, figure) in [("before", &row.before), ("after", &row.after)] {
        let ratio = ratio(figure);
        assert!((1.0 / 1.5..1.5).contains(&ratio), "{when}: {ratio}");
    }
}
