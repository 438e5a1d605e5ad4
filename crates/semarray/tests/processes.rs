//! Semaphore arrays across processes: forks, execs, ends, and users.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

use crate::domain::*;
use poundlock_semarray as semarray;

#[test]
fn an_orderly_end_undoes_at_once_and_a_child_does_not_inherit() {
    let id = private(2);
    ctl(id, 0, libc::SETVAL, 10).unwrap();
    // Of processes with one thread.
    let child = Child::new(|| {
        if semop(id, &[op(0, -4, UNDO)]).is_err() {
            return 1;
        }
        // A child's end undoes what the child did, not what its parent did.
        let inner = Child::new(|| {
            let done = semop(id, &[op(0, -1, UNDO)]);
            semarray::end();
            let undone = value(id, 0);
            semarray::end();
            i32::from(done.is_err() || undone != 6)
        });
        if inner.wait() != 0 || value(id, 0) != 6 {
            return 2;
        }
        semarray::end();
        i32::from(value(id, 0) != 10) * 3
    });
    assert_eq!(child.wait(), 0);
    // Of one with more, only its death.
    semop(id, &[op(0, -4, UNDO)]).unwrap();
    semarray::end();
    assert_eq!(value(id, 0), 6);
    semop(id, &[op(0, 4, UNDO)]).unwrap();
    remove(id);
}

#[test]
fn a_child_of_a_process_with_threads_can_do_everything() {
    let id = private(1);
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while stop.load(SeqCst) == 0 {
                    semop(id, &[op(0, 1, 0)]).unwrap();
                    semop(id, &[op(0, -1, 0)]).unwrap();
                    remove(private(1));
                }
            });
        }
        for _ in 0..200 {
            let child = Child::new(|| {
                let Ok(Some(own)) = semarray::get(libc::IPC_PRIVATE, 1, 0o600) else { return 1 };
                let done = semop(own, &[op(0, 1, UNDO)]).is_ok()
                    && semop(id, &[op(0, 1, 0)]).is_ok()
                    && semop(id, &[op(0, -1, 0)]).is_ok()
                    && semarray::remove(own).is_ok();
                i32::from(!done)
            });
            assert_eq!(child.wait(), 0);
        }
        stop.store(1, SeqCst);
    });
    assert_eq!(value(id, 0), 0);
    remove(id);
}

#[test]
fn a_process_that_changes_its_user_goes_on_with_what_it_has() {
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return; // Only root can become somebody else.
    }
    const NOBODY: u32 = 65534;
    let (id, given_away) = (private(1), private(1));
    // SAFETY: zero bytes are one.
    let mut status: libc::semid_ds = unsafe { std::mem::zeroed() };
    ctl(given_away, 0, libc::IPC_STAT, (&raw mut status).addr()).unwrap();
    status.sem_perm.uid = NOBODY;
    semop(id, &[op(0, 2, 0)]).unwrap();
    let removable = private(1);
    let child = Child::new(|| {
        // SAFETY: numbers.
        if unsafe { libc::setgroups(0, std::ptr::null()) | libc::setgid(NOBODY) | libc::setuid(NOBODY) } != 0
        {
            return 1;
        }
        // It was granted this before.
        if semop(id, &[op(0, -1, UNDO)]).is_err() {
            return 2;
        }
        // Whoever controls is asked afresh.
        if ctl(id, 0, libc::GETVAL, 0) != Err(libc::EACCES)
            || ctl(id, 0, libc::IPC_RMID, 0) != Err(libc::EPERM)
        {
            return 3;
        }
        // Never used before, and not its own; then given to it.
        if semop(given_away, &[op(0, 1, 0)]) != Err(libc::EACCES) {
            return 4;
        }
        if semop(id, &[op(0, -1, 0)]).is_err() {
            return 5;
        }
        until("it is given to us", || semop(given_away, &[op(0, 1, 0)]).is_ok());
        // A key's array it cannot make, nor a private one: it is the kernel's.
        i32::from(semarray::get(libc::IPC_PRIVATE, 1, 0o600) != Ok(None)) * 6
    });
    until("it has used its own", || value(id, 0) == 0);
    ctl(given_away, 0, libc::IPC_SET, (&raw const status).addr()).unwrap();
    assert_eq!(child.wait(), 0);
    assert_eq!(value(given_away, 0), 1);
    assert_eq!(value(id, 0), 1, "undone");
    for id in [id, given_away, removable] {
        remove(id);
    }
}

#[test]
fn settings_that_change_are_judged_again() {
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let id = private(1);
    // SAFETY: zero bytes are one.
    let mut status: libc::semid_ds = unsafe { std::mem::zeroed() };
    ctl(id, 0, libc::IPC_STAT, (&raw mut status).addr()).unwrap();
    status.sem_perm.mode = 0o606;
    ctl(id, 0, libc::IPC_SET, (&raw const status).addr()).unwrap();
    let step: &AtomicI32 = shared();
    let child = Child::new(|| {
        // SAFETY: numbers.
        if unsafe { libc::setgroups(0, std::ptr::null()) | libc::setgid(7) | libc::setuid(7) } != 0 {
            return 1;
        }
        if semop(id, &[op(0, 1, 0)]).is_err() {
            return 2;
        }
        step.store(1, SeqCst);
        until("its rights are taken", || step.load(SeqCst) == 2);
        if semop(id, &[op(0, 1, 0)]) != Err(libc::EACCES) {
            return 3;
        }
        // It may still wait for zero: but not of a semaphore that there is not.
        if semop(id, &[op(0, 0, NOWAIT)]) != Err(libc::EAGAIN)
            || semop(id, &[op(9, 1, 0)]) != Err(libc::EFBIG)
        {
            return 4;
        }
        0
    });
    until("it has operated", || step.load(SeqCst) == 1);
    status.sem_perm.mode = 0o604;
    ctl(id, 0, libc::IPC_SET, (&raw const status).addr()).unwrap();
    step.store(2, SeqCst);
    assert_eq!(child.wait(), 0);
    remove(id);
}

#[test]
fn a_process_in_another_namespace_leaves_our_arrays_alone() {
    let id = private(1);
    let child = Child::new(|| {
        // SAFETY: a flag.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            return 0; // Not permitted here.
        }
        // Its own number is unchanged; its children are in the new namespace.
        if semop(id, &[op(0, 1, 0)]).is_err() {
            return 1;
        }
        let inner = Child::new(|| {
            i32::from(
                semop(id, &[op(0, 1, 0)]).is_ok() || semarray::get(libc::IPC_PRIVATE, 1, 0o600) != Ok(None),
            )
        });
        inner.wait()
    });
    assert_eq!(child.wait(), 0);
    remove(id);
}

#[test]
fn a_child_that_was_not_forked_through_glibc_is_undone_too() {
    let id = private(2);
    ctl(id, 0, libc::SETVAL, 5).unwrap();
    // SAFETY: a child that makes system calls only, as `fork` but without what glibc does in the child.
    let process = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
    assert!(process >= 0);
    if process == 0 {
        let done = semop(id, &[op(0, -3, UNDO), op(1, 1, 0)]);
        if done.is_err() {
            // SAFETY: ends the child.
            unsafe { libc::_exit(1) };
        }
        forever();
    }
    let child = Child(process);
    semop(id, &[op(1, -1, 0)]).unwrap();
    assert_eq!(value(id, 0), 2);
    child.kill();
    child.wait_zombie();
    assert_eq!(value(id, 0), 5);
    child.wait();
    remove(id);
}

#[test]
fn a_process_without_descriptors_gets_error_numbers_of_semaphores() {
    let (mapped, unmapped) = (private(1), shared::<AtomicI32>());
    // Made by another process, so that this one has not mapped it.
    let maker = Child::new(|| match semarray::get(libc::IPC_PRIVATE, 1, 0o600) {
        Ok(Some(id)) => {
            unmapped.store(id, SeqCst);
            0
        }
        _ => 1,
    });
    assert_eq!(maker.wait(), 0);
    let unmapped = unmapped.load(SeqCst);
    let child = Child::new(|| {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: reads the structure.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) } != 0 {
            return 1;
        }
        // A private array the kernel can make as well; one with a key would be another than ours.
        let made = (
            semarray::get(libc::IPC_PRIVATE, 1, 0o600),
            semarray::get(key(9), 1, libc::IPC_CREAT | 0o600),
            semop(mapped, &[op(0, 1, 0)]),
            semop(unmapped, &[op(0, 1, 0)]),
        );
        let expected = (Ok(None), Err(libc::ENOMEM), Ok(()), Err(libc::ENOMEM));
        i32::from(made != expected) * 2
    });
    assert_eq!(child.wait(), 0);
    assert_eq!(value(mapped, 0), 1);
    remove(mapped);
    remove(unmapped);
}
