//! The data files: machines, hypervisors, profiles, published tables.

use poundlock_sim::experiment::{Experiment, Work};
use poundlock_sim::model::Model;
use poundlock_sim::published::tables;
use poundlock_sim::workload::jobs::Profile;
use poundlock_sim::{Hypervisor, MICROSECOND, Machine};

#[test]
fn every_number_has_a_source() {
    let machines = Machine::known();
    assert_eq!(
        machines.iter().map(Machine::cpus).collect::<Vec<_>>(),
        [160, 32, 120, 512, 384, 224, 96, 4, 4]
    );
    let hypervisors = Hypervisor::known();
    let of_machines = machines.iter().map(|machine| (machine.name(), machine.sources()));
    let of_hypervisors = hypervisors.iter().map(|hypervisor| (hypervisor.name(), hypervisor.sources()));
    for (name, sources) in of_machines.chain(of_hypervisors) {
        for (what, _, source) in sources {
            assert!(source.len() > 5, "{name}: {what}");
        }
    }
}

#[test]
fn every_job_of_every_mix_is_described() {
    for profile in Profile::known() {
        assert_eq!(profile.mixes().count(), if profile.name().starts_with("aim7") { 8 } else { 1 });
        for (name, value) in profile.fitted() {
            assert!(value > 0.0, "{name}");
        }
    }
}

#[test]
fn numbers_are_changed_by_name() {
    let profile = &Profile::known()[0];
    let changed = profile.with("process.pages.times", 12.0);
    let value = |profile: &Profile| {
        profile.fitted().into_iter().find(|(name, _)| name == "process.pages.times").map(|(_, value)| value)
    };
    assert_eq!(value(&changed), Some(12.0));
    assert_ne!(value(profile), Some(12.0));
}

#[test]
fn every_table_has_all_its_lines() {
    let lines: Vec<_> = tables().iter().map(|table| (table.name, table.rows.len())).collect();
    assert_eq!(
        lines,
        [
            ("mutex_high_systime_jpm", 16),
            ("mutex_slowpath_time", 3),
            ("mutex_fewer_atomics_other_workloads", 18),
            ("mutex_fserver_jpm", 16),
            ("mutex_fserver_profile", 4),
            ("mutex_mcs_queue_other_workloads", 18),
            ("qspinlock_high_systime", 4),
            ("qspinlock_contention_time", 4),
            ("qspinlock_numaconnect_compute", 13),
            ("pvqspinlock_kernel_build", 6),
            ("osv_mutex", 2),
            ("sembench", 5),
        ]
    );
    let machines = Machine::known();
    for table in tables() {
        for row in &table.rows {
            for figure in [&row.before, &row.after] {
                let machine = machines.iter().find(|machine| machine.name() == figure.run.machine).unwrap();
                machine.part(figure.run.sockets, figure.run.threads_a_core).unwrap();
                assert!(Work::names().contains(&figure.run.work.name()));
                assert!(
                    figure.published.is_some() || row.change.is_some() || figure.run.threads > 129,
                    "{}",
                    row.label
                );
            }
        }
    }
}

#[test]
fn a_job_takes_as_long_as_it_computes() {
    // One user on one core: nothing to wait for.
    let machines = Machine::known();
    let machine = machines[0].part(1, 1).unwrap();
    let run = |threads| {
        let work = Work::parse("aim7-3.7:short").unwrap();
        let model = &Model::known();
        let time = 2_000_000 * MICROSECOND;
        Experiment { machine: &machine, guest: None, work, model, lock: "mcs-queue", threads, seed: 1, time }
            .run()
            .unwrap()
    };
    let jobs = |threads| run(threads).figures[0].value;
    let (one, ten) = (jobs(1), jobs(10));
    // All of its jobs compute for about three milliseconds.
    assert!((15_000.0..25_000.0).contains(&one), "{one}");
    assert!((8.0..11.0).contains(&(ten / one)), "{ten} {one}");
}
