//! Nothing of what arrays take is lost: memory, address space, files, places in the registry; whoever dies,
//! and when.
//!
//! What is counted is the whole process's: each test has one of its own.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst};

use crate::domain::*;
use poundlock_semarray as semarray;
use poundlock_testing::elsewhere;

/// How many mappings of arrays' files this process has.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("/array.") || line.contains("/new")).count()
}

/// The arrays' files in the directory.
fn files() -> BTreeSet<String> {
    let names = std::fs::read_dir(domain()).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).filter(|name| name != "registry").collect()
}

/// The arrays' files that there should be.
fn listed() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    semarray::list(|array| {
        names.insert(format!("array.{}", array.id & 0x7fff));
    });
    names
}

#[test]
fn arrays_that_are_made_and_removed_leave_nothing() {
    if elsewhere() {
        return;
    }
    domain();
    let before = mappings();
    for round in 0..3000 {
        let id = private(1 + round % 3);
        semop(id, &[op(0, 1, UNDO)]).unwrap();
        remove(id);
        assert!(mappings() <= before + 1);
    }
    assert!(files().is_empty());
}

#[test]
fn arrays_that_somebody_else_removes_are_given_back() {
    if elsewhere() {
        return;
    }
    domain();
    let before = mappings();
    let mut most = 0;
    for _ in 0..40 {
        let ids: Vec<i32> = (0..20).map(|_| private(1)).collect();
        for id in &ids {
            semop(*id, &[op(0, 1, 0)]).unwrap();
        }
        let child = Child::new(|| i32::from(!ids.iter().all(|id| semarray::remove(*id).is_ok())));
        assert_eq!(child.wait(), 0);
        for id in &ids {
            assert!(!semarray::is_ours(*id));
            assert_eq!(semop(*id, &[op(0, 1, 0)]), Err(libc::EINVAL));
        }
        most = most.max(mappings() - before);
    }
    assert!(most <= 100, "{most} mappings of arrays that are gone");
    assert!(files().is_empty());
}

#[test]
fn a_mapping_stays_as_long_as_somebody_sleeps_in_it() {
    if elsewhere() {
        return;
    }
    domain();
    let before = mappings();
    let id = private(1);
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = (0..4).map(|_| scope.spawn(|| semop(id, &[op(0, -1, 0)]))).collect();
        until("they sleep", || ctl(id, 0, libc::GETNCNT, 0) == Ok(4));
        // Removed by another process, found and taken out of the table by this one, under the sleepers.
        let child = Child::new(|| i32::from(semarray::remove(id).is_err()));
        for _ in 0..200 {
            remove(private(1));
        }
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap(), Err(libc::EIDRM));
        }
        assert_eq!(child.wait(), 0);
    });
    remove(private(1));
    until("it is unmapped", || {
        remove(private(1));
        mappings() <= before
    });
}

#[test]
fn threads_operate_on_arrays_that_others_remove() {
    if elsewhere() {
        return;
    }
    domain();
    const ARRAYS: usize = 4;
    let ids: [AtomicI32; ARRAYS] = std::array::from_fn(|_| AtomicI32::new(private(2)));
    let stop = AtomicBool::new(false);
    let (done, gone) = (AtomicU32::new(0), AtomicU32::new(0));
    let before = mappings();
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let (ids, stop, done, gone) = (&ids, &stop, &done, &gone);
            scope.spawn(move || {
                let mut turn = thread;
                while !stop.load(SeqCst) {
                    turn += 1;
                    let id = ids[turn % ARRAYS].load(SeqCst);
                    let result = match turn % 3 {
                        0 => semop(id, &[op(0, 1, 0), op(0, -1, 0)]),
                        1 => ctl(id, 1, libc::GETVAL, 0).map(|_| ()),
                        _ => semtimedop(id, &[op(1, -1, 0)], 1),
                    };
                    match result {
                        Ok(()) | Err(libc::EAGAIN) => done.fetch_add(1, SeqCst),
                        Err(libc::EINVAL | libc::EIDRM) => gone.fetch_add(1, SeqCst),
                        Err(other) => panic!("error {other}"),
                    };
                }
            });
        }
        for round in 0..2000 {
            let id = ids[round % ARRAYS].swap(private(2), SeqCst);
            remove(id);
        }
        until("they have met arrays there and gone", || done.load(SeqCst) > 100);
        stop.store(true, SeqCst);
    });
    for id in ids {
        remove(id.into_inner());
    }
    assert!(mappings() <= before);
    assert!(files().is_empty());
}

#[test]
fn a_handler_that_jumps_out_costs_no_safety() {
    if elsewhere() {
        return;
    }
    domain();
    // As after `longjmp`: a call that never returns leaves its mark set, more often than a thread has marks.
    // A thread that ends in the middle of a call, by a cancellation that a handler asked for, does the same.
    let id = private(1);
    for round in 0..8 {
        let sleeper = std::thread::spawn(move || {
            // SAFETY: a handler of ours that ends the thread.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = end_thread as *const () as usize;
                libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
                THREAD.store(libc::syscall(libc::SYS_gettid) as i32, SeqCst);
            }
            let _ = semop(id, &[op(0, -1, 0)]);
        });
        // The others still count: they left no word, and their process lives.
        until("it sleeps", || ctl(id, 0, libc::GETNCNT, 0) == Ok(round + 1) && THREAD.load(SeqCst) != 0);
        let thread = THREAD.swap(0, SeqCst);
        // SAFETY: a thread of ours that sleeps.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
        // It ends without Rust's knowledge.
        until("it has ended", || {
            // SAFETY: asks only.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == -1 }
        });
        std::mem::forget(sleeper);
    }
    remove(id);
    let before = mappings();
    for _ in 0..100 {
        remove(private(1));
    }
    assert!(mappings() <= before + 1);
}

static THREAD: AtomicI32 = AtomicI32::new(0);

extern "C" fn end_thread(_: i32) {
    // SAFETY: ends this thread alone, at once: nothing of its stack is unwound.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

#[test]
fn places_of_processes_that_are_gone_are_used_again() {
    if elsewhere() {
        return;
    }
    domain();
    let id = private(1);
    let registry = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(domain().join("registry")).unwrap().blocks() * 512
    };
    let run = |count: u32| {
        for _ in 0..count {
            let child = Child::new(|| i32::from(semop(id, &[op(0, 1, UNDO)]).is_err()));
            assert_eq!(child.wait(), 0);
        }
    };
    run(200);
    let before = registry();
    run(1500);
    // 64 bytes each would be 96,000 more.
    assert!(registry() <= before + 8192, "{before} bytes, then {}", registry());
    assert_eq!(value(id, 0), 0, "all are undone");
    remove(id);
}

/// Makes, uses and removes arrays for ever, some with a key.
fn churn(first_key: i32, seed: u32) -> i32 {
    let mut random = seed;
    let mut next = move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random >> 16
    };
    loop {
        let key = if next() % 2 == 0 { libc::IPC_PRIVATE } else { first_key + (next() % 4) as i32 };
        let id = match semarray::get(key, 2, libc::IPC_CREAT | 0o600) {
            Ok(Some(id)) => id,
            Ok(None) => return 10,
            Err(error) => return error,
        };
        for _ in 0..next() % 4 {
            match semop(id, &[op(0, 1, UNDO), op(1, 1, 0), op(1, -1, 0)]) {
                Ok(()) | Err(libc::EINVAL | libc::EIDRM) => {}
                Err(error) => return error,
            }
        }
        if next() % 4 != 0 {
            match semarray::remove(id) {
                Ok(_) | Err(libc::EINVAL) => {}
                Err(error) => return error,
            }
        }
    }
}

#[test]
fn processes_that_are_killed_at_any_moment_leave_a_whole_registry() {
    if elsewhere() {
        return;
    }
    domain();
    let first_key = key(40);
    const TOGETHER: usize = 3;
    for round in 0..150u32 {
        let children: Vec<Child> =
            (0..TOGETHER as u32).map(|child| Child::new(|| churn(first_key, round * 31 + child))).collect();
        // For a time that differs, in steps far shorter than an array takes to be made.
        for _ in 0..round * 7 % 50 {
            semtimedop(private_for(round), &[op(0, 0, 0)], 0).unwrap();
        }
        for child in children {
            child.kill();
            let status = child.wait();
            assert!(std::process::ExitStatus::from_raw(status).signal().is_some(), "status {status:#x}");
        }
        // Whatever they were at, this finds it and finishes it.
        let probe =
            semarray::get(first_key + 99, 1, libc::IPC_CREAT | libc::IPC_EXCL | 0o600).unwrap().unwrap();
        semop(probe, &[op(0, 1, 0)]).unwrap();
        remove(probe);
        assert_eq!(files(), listed(), "files, and arrays");
        let mut keys = BTreeSet::new();
        let mut ids = Vec::new();
        semarray::list(|array| {
            assert!(array.settings.key == 0 || keys.insert(array.settings.key), "one array a key");
            ids.push(array.id);
        });
        for id in ids {
            assert_eq!(value(id, 0), 0, "undone");
            assert_eq!(value(id, 1), 0, "all or none");
            remove(id);
        }
        assert!(files().is_empty());
    }
}

/// Something that takes a little time: an array is made, and removed at the next call.
fn private_for(round: u32) -> i32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    let id = private(2 + (round % 5) as i32);
    let last = LAST.swap(id, SeqCst);
    if last != 0 {
        // It may be gone: the rounds remove all.
        let _ = semarray::remove(last);
    }
    id
}

#[test]
fn a_full_file_system_is_an_error_number() {
    if elsewhere() {
        return;
    }
    domain();
    let directory = domain().join("small");
    std::fs::create_dir(&directory).unwrap();
    let small = [("SEM_SMALL", directory.clone().into_os_string())];
    let status = again("sem_memory::child_with_little_room", &small)
        .env("POUNDLOCK_IPC_DIR", &directory)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    std::fs::remove_dir(&directory).unwrap();
}

#[test]
fn child_with_little_room() {
    use std::os::unix::ffi::OsStrExt;
    let Some(directory) = std::env::var_os("SEM_SMALL") else { return };
    let path = std::ffi::CString::new(directory.as_bytes()).unwrap();
    // SAFETY: strings that end in a zero. The mount is this process's alone, and ends with it.
    let mounted = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                c"none".as_ptr(),
                path.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"size=320k,mode=700".as_ptr().cast(),
            ) == 0
    };
    if !mounted {
        eprintln!("no right to mount: not tested");
        return;
    }
    // Until there is no room for another; what there is can be used as far as memory was promised.
    let mut ids = Vec::new();
    let error = loop {
        match semarray::get(libc::IPC_PRIVATE, 100, 0o600) {
            Ok(id) => ids.push(id.expect("ours")),
            Err(error) => break error,
        }
        assert!(ids.len() < 100);
    };
    assert_eq!(error, libc::ENOMEM);
    assert!(ids.len() >= 2, "{} arrays", ids.len());
    for id in &ids {
        semop(*id, &[op(0, 1, 0), op(99, 2, 0)]).unwrap();
        for operations in [&[op(0, 1, UNDO)][..], &[op(5, -1, 0)], &[op(5, -1, 0); 20]] {
            match semtimedop(*id, operations, 1) {
                Ok(()) | Err(libc::ENOMEM | libc::ENOSPC | libc::EAGAIN) => {}
                Err(other) => panic!("error {other}"),
            }
        }
        let values = [3u16; 100];
        match ctl(*id, 0, libc::SETALL, values.as_ptr().addr()) {
            Ok(_) | Err(libc::ENOMEM) => {}
            Err(other) => panic!("error {other}"),
        }
    }
    for id in ids {
        remove(id);
    }
    // There is room again.
    remove(private(100));
}
