//! The machine `here`: this one, as far as `poundlock bench floor` can measure what the simulator wants to
//! know.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use poundlock_bench::grid::result::{Floors, Transfer};
use poundlock_sim::Machine;

use crate::message::{Failure, status};

/// How this machine's CPUs are laid out, as far as they may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    sockets: usize,
    cores_a_socket: usize,
    threads_a_core: usize,
}

/// The sockets of CPUs and their cores, as Linux tells them.
fn place(cpu: usize) -> (u32, u32) {
    let number = |file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{file}");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok())
    };
    // Without a topology each CPU is a core of the one socket.
    (number("physical_package_id").unwrap_or(0), number("core_id").unwrap_or(cpu as u32))
}

fn shape(places: &[(u32, u32)]) -> Shape {
    let sockets: BTreeSet<_> = places.iter().map(|place| place.0).collect();
    let cores: BTreeSet<_> = places.iter().collect();
    let sockets = sockets.len().max(1);
    let cores_a_socket = cores.len().div_ceil(sockets).max(1);
    Shape { sockets, cores_a_socket, threads_a_core: places.len().div_ceil(sockets * cores_a_socket).max(1) }
}

/// Nanoseconds for which Linux lets a thread run when others wait: its default, for so many CPUs.
fn slice(cpus: usize) -> f64 {
    700_000.0 * f64::from(1 + cpus.clamp(1, 8).ilog2())
}

/// Whether the kernel schedules by deadlines: 6.6 and later do.
fn has_eevdf() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|text| text.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(6))
}

/// Nanoseconds between the scheduler's looks at what runs.
fn tick() -> f64 {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills our own variable.
    let rc = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    if rc == 0 && resolution.tv_nsec > 0 { resolution.tv_nsec as f64 } else { 4_000_000.0 }
}

/// A description of this machine, as a file of `machines/` is one.
pub(super) fn description(floors: &Floors, cpus: &[usize]) -> String {
    let places: Vec<_> = cpus.iter().map(|&cpu| place(cpu)).collect();
    let shape = shape(&places);
    let way = |afar: bool| {
        let pair = |transfer: &&Transfer| (place(transfer.from).0 != place(transfer.to).0) == afar;
        let mut ways: Vec<f64> =
            floors.line_transfer_ns.iter().filter(pair).map(|transfer| transfer.ns.median).collect();
        ways.sort_by(f64::total_cmp);
        ways.get(ways.len() / 2).copied()
    };
    let hit = (floors.bare_load_store_ns.median / 2.0).max(0.2);
    let near = way(false).or_else(|| way(true)).unwrap_or(50.0);
    let far = way(true).unwrap_or(near * 2.0);
    // One way is two transfers: the writer takes the reader's copy away, and the reader fetches the new one.
    let (transfer, shared) = (near * 0.6, near * 0.4);
    let futex = &floors.futex_sleep_wake_ns;
    let call = futex.nobody.median;
    let switch = (futex.switch.median - call).max(0.0);
    // Where there is one CPU nobody is woken on another.
    let (wake, runs) =
        futex.other.map_or((switch, 3.0 * switch), |other| (other.call.median - call, other.runs.median));
    let slice = slice(cpus.len());
    // Waiting for a slice to end would take far longer.
    let at_once = futex.preempts.median < slice / 10.0;
    let line = "bench floor: a cache line's way";
    let cfs = "Linux's base slice: 0.7 ms times 1 + log2 of the CPUs, 8 at most";
    let estimate = "an estimate";
    let costs = [
        ("hit", hit, "bench floor: half of a load and a store"),
        (
            "atomic",
            (floors.bare_cas_ns.median / 2.0 - hit).max(0.0),
            "bench floor: half of a compare-and-swap and an exchange",
        ),
        ("transfer", transfer, line),
        ("shared", shared, line),
        ("remote", far * 0.6, line),
        ("hop", 0.0, "not told apart from the first"),
        ("memory", 90.0, estimate),
        ("invalidation", 1.0, estimate),
        ("load_share", 64.0, estimate),
        ("forwarding", 5.0, estimate),
        ("pause", floors.pause_ns.median.max(0.5), "bench floor: a pause in a spin loop"),
        ("sibling", if shape.threads_a_core > 1 { 160.0 } else { 256.0 }, estimate),
    ];
    let scheduler = [
        ("switch", switch, "bench floor: a switch by sched_yield, less a call"),
        ("syscall", call, "bench floor: a futex call that wakes nobody"),
        ("wake", wake.max(0.0), "bench floor: a futex call that wakes, less one that does not"),
        (
            "wake_latency",
            (runs - call - switch).max(0.0),
            "bench floor: from a wake-up until the thread runs on another CPU, less a call and a switch",
        ),
        ("migration", 1_000.0, estimate),
        ("latency", slice, cfs),
        ("granularity", slice, cfs),
        (
            "wakeup_granularity",
            if at_once { 0.0 } else { slice },
            "bench floor: whether a woken thread takes its waker's CPU at once",
        ),
    ];
    let idle = futex.idle.map(|idle| {
        [
            ("awake", 8_000.0, "an estimate: more than the 4 us that bench floor tries"),
            ("wake", (idle.awake_call_ns - call).max(0.0), "bench floor: such a wake-up, less a call"),
            (
                "wake_latency",
                (idle.awake_runs_ns - call - switch).max(0.0),
                "bench floor: until the thread runs, less a call and a switch",
            ),
            (
                "charged",
                idle.charged_ns,
                "bench floor: CPU time of a thread that sleeps and is woken, less what it is on a CPU that \
                 looks for work",
            ),
            ("chance", idle.chance * 256.0, "bench floor: how much sooner than the mean one in ten runs"),
            (
                "queue",
                (futex.queues.min - call).max(0.0),
                "bench floor: the least of a wake-up of a thread that waits for its CPU, less a call",
            ),
            (
                "interrupt",
                if at_once { (idle.busy_runs.median - call - switch).max(0.0) } else { 0.0 },
                "bench floor: until a woken thread runs where another computes, less a call and a switch",
            ),
            (
                "locked",
                if at_once { (idle.yielding_runs.median - call - switch).max(0.0) } else { 0.0 },
                "bench floor: until a woken thread runs where another yields, less a call and a switch",
            ),
        ]
    });
    let interrupts = floors.interrupts.map(|interrupts| {
        let source = "bench floor: interrupts of a thread that computes, of more than 10 us";
        [("every", 1e9 / interrupts.a_second, source), ("takes", interrupts.takes_ns.median, source)]
    });
    let eevdf = has_eevdf().then(|| {
        [
            ("slice", slice, cfs),
            ("tick", tick(), "the resolution of CLOCK_MONOTONIC_COARSE"),
            ("hot", 500_000.0, "Linux's sched_migration_cost_ns"),
            (
                "pack",
                futex.idle.map_or(0.0, |idle| idle.packs_below * 256.0),
                "bench floor: up to where a thread comes to its waker's CPU",
            ),
        ]
    });
    let mut text = format!(
        "name = \"here\"\nabout = \"this machine\"\nsource = \"/sys/devices/system/cpu\"\nsockets = \
            {}\ncores_a_socket = {}\nthreads_a_core = {}\n",
        shape.sockets, shape.cores_a_socket, shape.threads_a_core
    );
    let mut tables = vec![("costs", &costs[..]), ("scheduler", &scheduler[..])];
    tables.extend(idle.as_ref().map(|idle| ("idle", &idle[..])));
    tables.extend(eevdf.as_ref().map(|eevdf| ("eevdf", &eevdf[..])));
    tables.extend(interrupts.as_ref().map(|interrupts| ("interrupts", &interrupts[..])));
    for (table, figures) in tables {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n[{table}]");
        for (name, value, source) in figures {
            let _ = writeln!(text, "{name} = {{ value = {value:.2}, source = \"{source}\" }}");
        }
    }
    text
}

/// The machine itself.
pub(super) fn machine(floors: &Floors, cpus: &[usize]) -> Result<Machine, Failure> {
    Machine::parse(&description(floors, cpus))
        .map_err(|error| Failure::new(status::OURS, format_args!("this machine's floors: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_whole_machines_and_of_parts() {
        let of = |sockets, cores_a_socket, threads_a_core| Shape { sockets, cores_a_socket, threads_a_core };
        assert_eq!(shape(&[(0, 0), (0, 1)]), of(1, 2, 1));
        assert_eq!(shape(&[(0, 0), (0, 1), (0, 0), (0, 1)]), of(1, 2, 2));
        assert_eq!(shape(&[(0, 0), (1, 0), (0, 1), (1, 1)]), of(2, 2, 1));
        // A part of two sockets: three cores of one, one of the other.
        assert_eq!(shape(&[(0, 0), (0, 1), (0, 2), (1, 0)]), of(2, 2, 1));
        assert_eq!(shape(&[]), of(1, 1, 1));
    }
}
