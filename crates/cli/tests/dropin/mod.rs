//! What drop-in means: each program of `tests/dropin` is compiled with the system's compiler and run on plain
//! glibc, as the control, and then under `poundlock run` with each lock. It has to end by itself, with status
//! 0 and nothing on standard output, each time. The programs say what they test; only `symbols.c` is told
//! whose symbols to expect.
//!
//! Heavy programs, whose subject does not depend on the algorithm, run with the default lock alone.

mod filters;
pub(crate) use filters::documented as documented_calls;
mod planted;
mod preloaded;
mod program;
mod sanitizers;
mod semarray;
mod symbols;
mod valgrind;

use program::{Locks, Program, compilable};

/// One test a program: it is what fails.
macro_rules! programs {
    ($($name:ident: $source:literal, $locks:ident $(, $method:ident($($argument:expr),*))*;)*) => {$(
        #[test]
        fn $name() {
            if compilable($source) {
                Program::compile($source, &[])$(.$method($($argument),*))*.check(Locks::$locks);
            }
        }
    )*};
}

programs! {
    results_of_every_call_on_every_mutex: "mutex_results.c", All;
    results_at_the_recursion_limit: "recursion_limit.c", All;
    waiters_that_leave_the_queue: "mutex_queue.c", All;
    exclusion_between_every_call: "exclusion.c", All;
    what_glibc_tolerates: "tolerance.c", All;
    results_of_every_call_on_condition_variables: "condvar_results.c", All;
    who_is_woken: "condvar_wake.c", All;
    robust_inheriting_protected_and_shared_objects: "foreign.c", All;
    objects_shared_between_processes: "pshared.c", All;
    semaphores_barriers_joins_and_futexes: "blocking.c", Two;
    c11_locks: "c11.c", All;
    destroyed_by_another_thread: "destroy.c", All, argument("mutex"), argument("300");
    destroyed_while_somebody_waits_with_it: "destroy_waited.c", All;
    cancellation: "cancel.c", All;
    cancellation_beside_a_signal: "cancel_race.c", All;
    cpp_locks_and_exceptions: "cxx_wait.cpp", All;
    cpp_forced_unwinding: "cxx_cancel.cpp", All;
    fork_with_locks_held: "fork_locks.c", All, argument("mutex"), argument("300");
    fork_from_many_threads_at_once: "fork_crowd.c", All;
    spawn_and_exec: "exec.c", Two;
    ends_of_threads_and_of_the_process: "thread_exit.cpp", All;
    signals_and_real_time: "signals.c", All;
    real_time_threads_by_priority: "priorities.c", All;
    real_time_writers_by_priority: "priorities.c", ReadersWriter, argument("writers");
    twenty_thousand_short_threads: "short_threads.c", Default;
    four_thousand_live_threads: "live_threads.c", Two;
    no_memory_beyond_the_objects: "memory.c", Default;
    symbol_versions_of_old: "old_versions.c", Two;
    system_calls_refused_in_mid_life: "sandbox.c", All;
    system_calls_refused_early: "sandbox.c", Default, argument("early");
    nothing_can_be_mapped: "no_memory.c", Two;
    nothing_can_be_mapped_beside_a_spinlock: "no_memory.c", Spin;
    no_more_mappings: "no_memory.c", Default, argument("mappings");
    results_of_every_call_on_spinlocks: "qspin_results.c", Spin;
    spinlocks_shared_with_a_stranger: "qspin_shared.c", Spin;
    spinlocks_destroyed_by_another_thread: "destroy.c", Spin, argument("spinlock");
    fork_with_spinlocks_held: "fork_locks.c", Spin, argument("spinlock");
    five_nested_waits_for_spinlocks: "qspin_nested.c", Spin;
    threads_that_come_and_go_around_a_spinlock: "qspin_threads.c", Spin;
    real_time_threads_at_a_spinlock: "qspin_realtime.c", Crowd;
    far_more_threads_than_cpus_at_a_spinlock: "qspin_crowd.c", Crowd;
    results_of_every_call_on_readers_writer_locks: "rwlock_results.c", ReadersWriter;
    who_comes_into_a_readers_writer_lock: "rwlock_order.c", ByKind;
    exclusion_of_readers_and_writers: "rwlock_exclusion.c", ReadersWriter;
    readers_writer_locks_shared_between_processes: "rwlock_shared.c", ReadersWriter;
    readers_writer_locks_destroyed_by_another_thread: "destroy.c", ReadersWriter, argument("rwlock");
    fork_with_readers_writer_locks_held: "fork_locks.c", ReadersWriter, argument("rwlock");
    cpp_shared_mutexes: "cxx_shared.cpp", ReadersWriter;
}

/// A program, compiled, and what it is given.
#[track_caller]
fn with_arguments(words: &str) -> Program {
    let mut words = words.split(' ');
    let program = Program::compile(words.next().expect("a source"), &[]);
    words.fold(program, Program::argument)
}

/// Counting changes no result: the programs that go through every result, and those where counting has most
/// to follow.
mod counted {
    use super::{Program, compilable, with_arguments};

    macro_rules! programs {
        ($($name:ident: $words:literal;)*) => {$(
            #[test]
            fn $name() {
                if compilable($words.split(' ').next().expect("a source")) {
                    with_arguments($words).check_counted();
                }
            }
        )*};
    }

    programs! {
        mutexes: "mutex_results.c";
        recursion: "recursion_limit.c";
        condition_variables: "condvar_results.c";
        tolerance: "tolerance.c";
        foreign: "foreign.c";
        blocking: "blocking.c";
        c11: "c11.c";
        cancel: "cancel.c";
        destroy_waited: "destroy_waited.c";
        cxx_cancel: "cxx_cancel.cpp";
        cxx_wait: "cxx_wait.cpp";
        exclusion: "exclusion.c";
        destroy_mutex: "destroy.c mutex 300";
        destroy_spinlock: "destroy.c spinlock 300";
        destroy_rwlock: "destroy.c rwlock 60";
        fork_mutex: "fork_locks.c mutex 300";
        fork_rwlock: "fork_locks.c rwlock";
        fork_crowd: "fork_crowd.c";
        exec: "exec.c";
        short_threads: "short_threads.c";
        thread_exit: "thread_exit.cpp";
        spinlocks: "qspin_results.c";
        qspin_nested: "qspin_nested.c";
        rwlocks: "rwlock_results.c";
        rwlock_order: "rwlock_order.c";
        rwlock_exclusion: "rwlock_exclusion.c";
        rwlock_shared: "rwlock_shared.c";
        cxx_shared: "cxx_shared.cpp";
    }

    #[test]
    fn early() {
        Program::link("early.c", &[], "early_lib", &[]).check_counted();
    }

    #[test]
    fn in_malloc() {
        Program::link("malloc_user.c", &["-Wl,--no-as-needed"], "malloc_lib", &[]).check_counted();
    }
}

/// glibc registers no restartable sequences if it is told so, and leaves them to the program.
#[test]
fn without_restartable_sequences() {
    let sources = [
        "exclusion.c",
        "mutex_queue.c",
        "condvar_wake.c",
        "destroy.c mutex",
        "destroy.c spinlock",
        "fork_locks.c mutex 300",
        "qspin_crowd.c",
        "rwlock_exclusion.c",
    ];
    for source in sources {
        let program = with_arguments(source);
        let locks = if source == "qspin_crowd.c" { Locks::Crowd } else { Locks::Default };
        program.environment("GLIBC_TUNABLES", "glibc.pthread.rseq=0").check_ours(locks);
    }
}

/// On a kernel that lacks what is newer than Linux 4.14. It does not wipe the page by which a forked child knows
/// that it is one: a child of `fork` is told, whatever the lock.
#[test]
fn a_kernel_of_old() {
    let program = Program::compile("fork_locks.c", &[]);
    let old = Program::compile("old_kernel.c", &[]).argument(program.executable());
    ["mutex", "100", "told"].into_iter().fold(old, Program::argument).check(Locks::Two);
    for source in ["exclusion.c", "condvar_wake.c", "rwlock_exclusion.c"] {
        let program = Program::compile(source, &[]);
        Program::compile("old_kernel.c", &[]).argument(program.executable()).check_ours(Locks::Default);
    }
}

/// With `-fexceptions` cleanup handlers are run by the unwinder, frame by frame, rather than by long jumps.
#[test]
fn cancellation_with_exceptions() {
    Program::compile("cancel.c", &["-fexceptions"]).check(Locks::All);
}

#[test]
fn dlopened_libraries() {
    let program = Program::compile("dlopen.c", &[]).library("dlopen_lib", &[]);
    let directory = program.directory();
    program.argument(&directory).check(Locks::Two);
}

#[test]
fn dlopened_library_bound_to_its_own_dependencies() {
    let program = Program::compile("dlopen.c", &[]).library("dlopen_lib", &[]);
    let directory = program.directory();
    program.argument(&directory).argument("deepbind").check(Locks::Two);
}

#[test]
fn locks_before_our_constructor() {
    for flags in [&[][..], &["-Wl,-z,initfirst"]] {
        Program::link("early.c", &[], "early_lib", flags).check(Locks::Two);
    }
}

#[test]
fn allocator_that_locks_linked() {
    Program::link("malloc_user.c", &["-Wl,--no-as-needed"], "malloc_lib", &[]).check(Locks::Two);
}

#[test]
fn allocator_that_takes_spinlocks() {
    let program = Program::compile("malloc_user.c", &[]).library("malloc_lib", &["-DSPIN"]);
    let library = program.library_path("malloc_lib");
    program.environment("LD_PRELOAD", library).check(Locks::Crowd);
}

/// The allocator is preloaded by the user: it is under the command itself too, and behind our library in the
/// program.
#[test]
fn allocator_that_locks_preloaded() {
    let program = Program::compile("malloc_user.c", &[]).library("malloc_lib", &[]);
    let library = program.library_path("malloc_lib");
    program.environment("LD_PRELOAD", library).check(Locks::Two);
}
