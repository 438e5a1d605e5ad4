//! No call escapes: not to a symbol that the library forgot, not to a version that it does not answer to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use poundlock_testing::glibc_versions;

use super::program::{Program, compilable, expect_silent_success, of_threads};
use crate::support::{LIMIT, expect_status, poundlock, preload_library, run_limited};

/// Whether calls of this name work on the state of a mutex, a spinlock, a readers-writer lock or a condition
/// variable, rather than on attributes; or on a System V semaphore array.
fn is_ours_to_answer(name: &str) -> bool {
    let plain = name.trim_start_matches('_');
    if ["semget", "semop", "semtimedop", "semctl"].contains(&plain) {
        return true;
    }
    let family = ["pthread_mutex_", "pthread_cond_", "pthread_spin_", "pthread_rwlock_", "mtx_", "cnd_"]
        .iter()
        .any(|family| plain.starts_with(family));
    // They ask for the kind alone, which our objects keep where glibc has it, and end with EINVAL for every
    // mutex that is not glibc's own business: tested by results.
    let by_kind = ["pthread_mutex_consistent", "pthread_mutex_consistent_np"].contains(&plain)
        || plain.ends_with("prioceiling");
    family && !by_kind
}

/// The functions that a shared object defines for others, without their versions.
fn defined(object: &Path) -> BTreeSet<String> {
    let mut cmd = Command::new("nm");
    cmd.args(["--dynamic", "--defined-only"]).arg(object);
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let text = String::from_utf8(output.stdout).expect("symbols are ASCII");
    let name = |line: &str| Some(line.split(' ').nth(2)?.split('@').next()?.to_string());
    text.lines().filter_map(name).collect()
}

/// Whatever glibc the library was built with, it loads with each from 2.28 on.
#[test]
fn no_version_of_glibc_after_2_28_is_asked_for() {
    let versions = glibc_versions(preload_library());
    assert!(versions.len() > 2, "{versions:?}");
    assert!(versions.last() <= Some(&vec![2, 28]), "{versions:?}");
}

/// What each cache line of code costs, no lock can win back: docs/notebook/POUNDLOCK.md. Of a lock the whole
/// function lies in one, of an unlock in two; those for a process of one thread in one each, after the first.
#[test]
#[cfg(target_arch = "x86_64")]
fn fast_paths_fit_cache_lines() {
    let mut cmd = Command::new("nm");
    cmd.args(["--print-size", "--defined-only"]).arg(preload_library());
    let output = run_limited(&mut cmd, LIMIT);
    expect_status(&output, 0);
    let text = String::from_utf8(output.stdout).expect("symbols are ASCII");
    for (name, most) in [
        ("pthread_mutex_lock", 1),
        ("pthread_mutex_trylock", 2),
        ("pthread_mutex_unlock", 2),
        ("lock_unusual", 1),
        ("unlock_unusual", 1),
        ("pthread_spin_lock", 1),
        ("pthread_spin_unlock", 1),
    ] {
        // Where a name is mangled, its length comes before it.
        let mangled = format!("5mutex{}{name}17h", name.len());
        let symbol = text.lines().find_map(|line| {
            let [address, size, _, symbol] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
            let number = |hex| usize::from_str_radix(hex, 16).expect("nm prints hexadecimal numbers");
            (symbol == name || symbol.contains(&mangled)).then(|| (number(address), number(size)))
        });
        let (address, size) = symbol.unwrap_or_else(|| panic!("no {name} with a size:\n{text}"));
        let lines = (address + size).div_ceil(64) - address / 64;
        assert!(size > 0 && lines <= most, "{name} has {size} bytes at {address:#x}: {lines} cache lines");
    }
}

/// The C library of this test binary, which is every program's here: before glibc 2.34 a file of its own has
/// the threads.
fn libc_paths() -> BTreeSet<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let paths = maps.lines().filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])));
    let is_glibc = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ["libc.so.6", "libc-2", "libpthread"].iter().any(|begin| name.starts_with(begin))
    };
    paths.filter(is_glibc).collect()
}

#[test]
fn every_name_that_glibc_has_is_exported() {
    let glibc: BTreeSet<_> =
        libc_paths().iter().flat_map(|path| defined(path)).filter(|name| is_ours_to_answer(name)).collect();
    assert!(glibc.len() >= 53, "glibc's list was not understood: {glibc:?}");
    let ours: BTreeSet<_> =
        defined(preload_library()).into_iter().filter(|name| is_ours_to_answer(name)).collect();
    let missing: Vec<_> = glibc.difference(&ours).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    let unknown: Vec<_> = ours.difference(&glibc).collect();
    assert!(unknown.is_empty(), "exported, but glibc knows no such thing: {unknown:?}");
}

/// What the program sees of the preload library is the interface: nothing of Rust's, or of a helper's, may
/// come before the program's own symbols.
#[test]
fn nothing_else_is_exported() {
    let handlers = [
        "sigaction",
        "signal",
        "bsd_signal",
        "ssignal",
        "sysv_signal",
        "__sysv_signal",
        "sigset",
        "siginterrupt",
    ];
    // What gives memory back, in which a lock may be.
    let memory = ["free", "realloc", "reallocarray", "munmap", "mremap"];
    let others = [
        "pthread_cancel",
        "pthread_create",
        "thrd_create",
        "dlopen",
        "dlclose",
        "dlvsym",
        "syscall",
        "unshare",
        "setns",
        "_exit",
        "_Exit",
    ];
    let blocking = [
        "sem_wait",
        "sem_timedwait",
        "sem_clockwait",
        "sem_init",
        "sem_destroy",
        "sem_trywait",
        "sem_post",
        "pthread_barrier_wait",
        "pthread_barrier_destroy",
        "pthread_join",
        "pthread_timedjoin_np",
        "pthread_clockjoin_np",
        "thrd_join",
    ];
    let process = [
        "setrlimit",
        "setrlimit64",
        "prlimit",
        "prlimit64",
        "chroot",
        "setuid",
        "seteuid",
        "setreuid",
        "setresuid",
    ];
    let scheduling =
        ["pthread_setschedparam", "pthread_setschedprio", "sched_setscheduler", "sched_setparam"];
    let yielding = ["sched_yield", "pthread_yield", "thrd_yield"];
    // What the locks look for that a program is linked with.
    let linked = ["poundlock_statistics", "poundlock_check_order"];
    // What `who` looks for in a process.
    let observed = ["poundlock_layout_1"];
    // What AddressSanitizer looks for.
    let sanitizer = ["__asan_default_options"];
    let wrappers = [
        &handlers[..],
        &memory[..],
        &others[..],
        &blocking[..],
        &scheduling[..],
        &process[..],
        &yielding[..],
        &linked[..],
        &observed[..],
        &sanitizer[..],
    ]
    .concat();
    let others: Vec<_> = defined(preload_library())
        .into_iter()
        .filter(|name| !is_ours_to_answer(name) && !wrappers.contains(&name.as_str()))
        .collect();
    assert!(others.is_empty(), "exported beside the lock calls: {others:?}");
}

#[test]
fn every_way_to_a_symbol_leads_to_one_library() {
    let program = Program::compile("symbols.c", &[]);
    let mut cmd = Command::new(program.executable());
    expect_silent_success("symbols.c on glibc", &run_limited(cmd.args(["libc.so.6", of_threads()]), LIMIT));
    let mut cmd = poundlock();
    cmd.arg("run").arg("--").arg(program.executable()).arg(preload_library().file_name().expect("a file"));
    expect_silent_success("symbols.c under run", &run_limited(&mut cmd, LIMIT));
}

/// The dynamic linker's own account of every binding, in a C and in a C++ program, and in all that they load.
#[test]
fn the_linker_binds_every_object_to_the_library() {
    for source in ["mutex_results.c", "c11.c", "cxx_wait.cpp", "qspin_threads.c", "rwlock_exclusion.c"]
        .into_iter()
        .filter(|source| compilable(source))
    {
        let program = Program::compile(source, &[]);
        let mut cmd = poundlock();
        cmd.args(["run", "--"]).args(["env", "LD_DEBUG=bindings", "LD_BIND_NOW=1"]).arg(program.executable());
        let output = run_limited(&mut cmd, LIMIT);
        assert!(output.status.success(), "{source} failed");
        let text = String::from_utf8_lossy(&output.stderr);
        let mut seen = 0;
        for line in text.lines() {
            // binding file FROM [0] to TO [0]: normal symbol `NAME' [VERSION]
            let Some((from, rest)) =
                line.split_once("binding file ").and_then(|(_, rest)| rest.split_once(" [0] to "))
            else {
                continue;
            };
            let Some((to, symbol)) = rest.split_once(" [0]: normal symbol `") else { continue };
            let name = symbol.split('\'').next().expect("split gives one");
            if !is_ours_to_answer(name) || from.ends_with("libpoundlock_preload.so") {
                continue;
            }
            seen += 1;
            assert!(to.ends_with("libpoundlock_preload.so"), "{from} is bound to {to} for {symbol}");
        }
        assert!(seen >= 5, "{source}: only {seen} bindings were understood");
    }
}
