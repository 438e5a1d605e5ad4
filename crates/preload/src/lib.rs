//! The library that `LD_PRELOAD` puts under an unmodified program: its pthread and C11 mutexes, condition
//! variables, readers-writer locks and spinlocks run on Poundlock's, and its System V semaphore arrays.
//!
//! This crate translates calling conventions and decides nothing about locking. Its state lies in the
//! program's own objects (`object`, `rwlock_object`), that of semaphore arrays in memory that processes
//! share; objects that are not ours (robust, priority-inheriting, priority-protected and process-shared ones,
//! and arrays of the kernel's) go to glibc (`real`) and are never touched.
//!
//! Nothing here allocates, writes to the program's streams, or unwinds. A call may come before the library's
//! constructor, inside `malloc`, or in a forked child.
//!
//! | environment | meaning | | --- | --- | | `POUNDLOCK_LOCK` | the locks to run on: a
//! [`poundlock_names::Choice`]; the defaults if absent or, with a line on standard error, unknown | |
//! `POUNDLOCK_RWLOCK` | the readers-writer locks: a [`RwLocks`](poundlock_names::RwLocks), or its default | |
//! `POUNDLOCK_SEMAPHORES` | whose semaphore arrays are: see `poundlock_semarray` | | `POUNDLOCK_IPC_DIR` |
//! where ours are | | `POUNDLOCK_NODES` | take memory for that many nodes, CPUs in turn: for tests; 1 does
//! without sides | | `POUNDLOCK_CPUS` | pretend that there are so many CPUs: for tests | |
//! `POUNDLOCK_STAT_DIR` | count, and leave the figures in a file there: see `poundlock-statfile` | |
//! `POUNDLOCK_CHECK` | with that: leave no figures, but what `poundlock check` reads; a list of `1`,
//! `semaphores`, `lone-signal`, `nesting`, `orders=N` | | `POUNDLOCK_STATS` | the same for those who preload by hand: an
//! absolute path, made if it is not there |

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_env = "gnu"
)))]
compile_error!(
    "the preload library knows the calling conventions of x86-64 and aarch64 Linux with glibc only"
);

mod abi;
mod arch;
mod block;
mod c11;
mod check;
mod cond;
mod entry;
mod environment;
mod handlers;
mod interrupted;
mod loader;
mod memory;
mod mode;
mod mutex;
mod object;
mod old_glibc;
mod process;
mod real;
mod rwlock;
mod rwlock_object;
mod scheduling;
mod scope;
mod semarray;
mod spin;
mod stat;
mod syscall;
mod thread;

/// Runs as early as the dynamic linker lets it. Everything also works before it has run.
extern "C" fn start() {
    environment::check();
    mode::get();
    real::find_all();
    block::start();
    block::recorded::start();
    block::semaphores::start();
    memory::start();
    syscall::start();
    poundlock_linux::init();
    semarray::start();
    // SAFETY: registers a function that stays loaded: the library is linked so that it cannot be unloaded.
    unsafe { libc::pthread_atfork(Some(will_fork), Some(has_forked), Some(forked)) };
}

/// Before a fork: after the program's own handlers, which may take locks.
extern "C" fn will_fork() {
    if mode::get().counted() {
        stat::RECORDER.will_fork();
    }
}

extern "C" fn has_forked() {
    if mode::get().counted() {
        stat::RECORDER.forked();
    }
}

/// In a forked child, before the program's own handlers for the child if ours was registered first.
extern "C" fn forked() {
    interrupted::forked();
    if mode::get().counted() {
        stat::RECORDER.fork_child();
    }
}

extern "C" fn end() {
    if mode::get().counted() {
        stat::RECORDER.finish();
    }
}

/// What `poundlock who` looks for in the memory of a process: where to find who waits. The name has the
/// number of what it means.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static poundlock_layout_1: &poundlock_linux::registry::Layout = &poundlock_linux::registry::LAYOUT;

/// The dynamic linker calls what it finds in this section.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// ... and in this one.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
