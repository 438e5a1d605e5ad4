//! Nodes that the environment makes up, on a machine that may have one.

use poundlock_core::platform::Platform;
use poundlock_core::qspin::Form;
use poundlock_linux::{Linux, machine};
use poundlock_testing::elsewhere;

fn keep_to(cpu: usize) {
    // SAFETY: zero bytes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: a number of a CPU that the kernel gave us, below the set's size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: reads the set.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }, 0);
}

/// CPUs belong to made-up nodes in turn, and a thread that moves changes its node.
#[test]
fn nodes_that_the_environment_makes_up() {
    if elsewhere() {
        return;
    }
    // SAFETY: no other thread of this process reads the environment.
    unsafe { std::env::set_var("POUNDLOCK_NODES", "2") };
    poundlock_linux::init();
    assert_eq!(Linux::nodes(), 2);
    assert!(!Linux::sides().is_empty() && Linux::sides().len() % 2 == 0);
    assert_eq!(machine::spinlock(), Form::ParavirtualNuma);
    // SAFETY: zero bytes are an empty set.
    let mut all: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes the set.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&all), &mut all) }, 0);
    let mut seen = 0;
    for cpu in 0..libc::CPU_SETSIZE as usize {
        // SAFETY: the number is below the set's size.
        if unsafe { libc::CPU_ISSET(cpu, &all) } {
            keep_to(cpu);
            assert_eq!(Linux::node(), cpu as u32 % 2);
            seen += 1;
        }
    }
    assert_eq!(Linux::cpus(), seen);
}
