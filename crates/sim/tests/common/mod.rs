//! A machine for tests: two sockets, two cores each, with two threads a core. Its numbers are round, and of no real machine.

use poundlock_sim::Machine;

/// With time slices so short that threads are preempted in the middle of everything.
#[allow(dead_code, reason = "each test binary compiles this module for itself and uses a part of it")]
pub(crate) fn hurried() -> Machine {
    machine(20_000, 2_000)
}

/// With time slices as they are.
#[allow(dead_code, reason = "each test binary compiles this module for itself and uses a part of it")]
pub(crate) fn calm() -> Machine {
    machine(6_000_000, 750_000)
}

fn machine(latency: u64, granularity: u64) -> Machine {
    let figures = |figures: &[(&str, f64)]| -> String {
        figures
            .iter()
            .map(|(name, value)| format!("{name} = {{ value = {value}, source = \"made up\" }}\n"))
            .collect()
    };
    let costs = figures(&[
        ("hit", 1.5),
        ("atomic", 8.0),
        ("transfer", 30.0),
        ("shared", 20.0),
        ("remote", 100.0),
        ("hop", 50.0),
        ("memory", 80.0),
        ("invalidation", 5.0),
        ("load_share", 64.0),
        ("forwarding", 5.0),
        ("pause", 10.0),
        ("sibling", 160.0),
    ]);
    let scheduler = figures(&[
        ("switch", 1_500.0),
        ("syscall", 200.0),
        ("wake", 1_000.0),
        ("wake_latency", 3_000.0),
        ("migration", 2_000.0),
        ("latency", latency as f64),
        ("granularity", granularity as f64),
        ("wakeup_granularity", granularity as f64),
    ]);
    let text = format!(
        "name = \"test\"\nabout = \"for tests\"\nsource = \"made up\"\nsockets = 2\ncores_a_socket = 2\nthreads_a_core = 2\n\
         [costs]\n{costs}\n[scheduler]\n{scheduler}"
    );
    Machine::parse(&text).expect("a description")
}
