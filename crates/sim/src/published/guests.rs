//! The tables of paravirtual spinlocks: building a kernel in guests.

use super::{Comparison, Row, Run, Table, compared, number};
use crate::experiment::{Guest, Work, pick};
use crate::machine::{MICROSECOND, Picoseconds};

/// Simulated time that is counted.
const TIME: Picoseconds = 1_000_000 * MICROSECOND;

fn build(row: &Row) -> Option<Comparison> {
    let (hypervisor, machine) = (&row["hypervisor"], &row["vm"]);
    let vcpus = number(row, "vcpus")? as u32;
    let placement = &row["placement"];
    let run = |lock| Run {
        // Its sockets have ten cores; four of each were active.
        machine: "westmere-ex-8x4",
        sockets: 8,
        threads_a_core: 1,
        guest: Some(Guest {
            hypervisor: hypervisor.clone(),
            vcpus,
            pinned: placement.starts_with("numa_pinned"),
        }),
        work: Work::Jobs { profile: "kernel-build-4.0".to_owned(), mix: "make".to_owned() },
        threads: vcpus,
        lock,
        time: TIME,
    };
    Some(Comparison::of(
        format!("{hypervisor} {machine}, {vcpus} virtual CPUs, {}", placement.replace('_', " ")),
        pick::SECONDS,
        run,
        (number(row, "pv_ticket_seconds"), "ticket-pv"),
        (number(row, "pv_qspinlock_seconds"), "qspin-pv"),
    ))
}

/// Its tables.
pub(super) fn tables() -> Vec<Table> {
    vec![Table {
        name: "pvqspinlock_kernel_build",
        about: "building a kernel in guests on 32 CPUs: \
            the paravirtual queue spinlock in place of the paravirtual ticket lock",
        unit: "seconds",
        fitted: true,
        rows: compared(include_str!("../../reference/pvqspinlock_kernel_build.csv"), build),
    }]
}
