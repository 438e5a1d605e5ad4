//! Calls on our arrays, where programs that know the kernel's alone cannot look: `tests/dropin/semarray_*.c`
//! are about results and error numbers, and run on the kernel's arrays as well.

use std::ptr;

use crate::domain::*;
use poundlock_semarray as semarray;

#[test]
fn what_others_could_open_is_the_kernels() {
    domain();
    let key = key(2);
    for mode in [0o644, 0o660, 0o601] {
        assert_eq!(semarray::get(key, 1, libc::IPC_CREAT | mode), Ok(None), "{mode:o}");
    }
    assert_eq!(semarray::get(key, 1, 0o600), Ok(None), "a key that nobody has");
    // A private array is ours whatever its mode: its id is only for those that are told.
    let id = semarray::get(libc::IPC_PRIVATE, 1, 0o666).unwrap().unwrap();
    assert!(semarray::is_ours(id));
    remove(id);
    assert!(!semarray::is_ours(id));
    // A key that the kernel has stays the kernel's.
    // SAFETY: three numbers.
    let kernels = unsafe { libc::semget(key, 1, libc::IPC_CREAT | 0o600) };
    assert!(kernels >= 0);
    assert_eq!(semarray::get(key, 1, libc::IPC_CREAT | 0o600), Ok(None));
    // SAFETY: the command takes no more than that.
    assert_eq!(unsafe { libc::semctl(kernels, 0, libc::IPC_RMID) }, 0);
    let ours = semarray::get(key, 1, libc::IPC_CREAT | 0o600).unwrap().unwrap();
    remove(ours);
}

#[test]
fn what_is_listed_is_what_there_is() {
    domain();
    let key = key(4);
    let id = semarray::get(key, 7, libc::IPC_CREAT | 0o600).unwrap().unwrap();
    let find = || {
        let mut found = None;
        semarray::list(|array| {
            if array.id == id {
                found = Some(array);
            }
        });
        found
    };
    let found = find().unwrap();
    assert_eq!(
        (found.settings.key, found.settings.mode, found.semaphores, found.sleepers),
        (key, 0o600, 7, 0)
    );
    // The one that looks does not count.
    assert_eq!(found.processes(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| semop(id, &[op(0, -1, 0)]));
        until("a sleeper is listed", || find().unwrap().sleepers == 1);
        assert_eq!(ctl(id, 0, libc::GETNCNT, 0), Ok(1));
        assert_eq!(ctl(id, 0, libc::GETZCNT, 0), Ok(0));
        semop(id, &[op(0, 1, 0)]).unwrap();
    });
    let report = semarray::remove(id).unwrap();
    assert!(report.free + report.contended > 0 && report.lifetime_ns > 0);
    assert!(find().is_none());
    assert_eq!(semarray::remove(id).err(), Some(libc::EINVAL));
}

/// Set by a handler that ran.
static RAN: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
/// On which the handler operates.
static OTHER: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

extern "C" fn handler(_: i32) {
    use std::sync::atomic::Ordering::SeqCst;
    // Nested: uses a second mark while the interrupted call holds the first.
    let done = semop(OTHER.load(SeqCst), &[op(0, 1, NOWAIT)]).is_ok();
    RAN.fetch_add(i32::from(done), SeqCst);
}

#[test]
fn a_signal_handler_interrupts_a_sleeper_and_may_operate_itself() {
    use std::sync::atomic::Ordering::SeqCst;
    let id = private(1);
    let other = private(1);
    OTHER.store(other, SeqCst);
    for flags in [0, libc::SA_RESTART] {
        // SAFETY: a handler of ours for a signal that nobody else here uses.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, ptr::null_mut()), 0);
        }
        let before = RAN.load(SeqCst);
        std::thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::channel();
            let sleeper = scope.spawn(move || {
                // SAFETY: takes no arguments.
                send.send(unsafe { libc::pthread_self() }).unwrap();
                semop(id, &[op(0, -1, 0)])
            });
            let thread = receive.recv().unwrap();
            until("it sleeps", || ctl(id, 0, libc::GETNCNT, 0) == Ok(1));
            // Again and again: one that comes while it is on its way to sleep does not end that.
            until("it is interrupted", || {
                // SAFETY: a thread that we have not joined.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                sleeper.is_finished()
            });
            assert_eq!(sleeper.join().unwrap(), Err(libc::EINTR), "flags {flags:#x}");
        });
        assert!(RAN.load(SeqCst) > before);
    }
    assert_eq!(value(other, 0), RAN.load(SeqCst));
    assert_eq!(ctl(id, 0, libc::GETNCNT, 0), Ok(0));
    remove(id);
    remove(other);
}

#[test]
fn a_handler_that_is_announced_interrupts_those_that_sleep_already() {
    let id = private(1);
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        // The first looks for both; the second sleeps without end, unless there are such handlers already.
        let sleepers: Vec<_> = (1..=2)
            .map(|number| {
                let send = send.clone();
                let sleeper = scope.spawn(move || {
                    // SAFETY: takes no arguments.
                    send.send(unsafe { libc::pthread_self() }).unwrap();
                    semop(id, &[op(0, -1, 0)])
                });
                let thread = receive.recv().unwrap();
                until("it sleeps", || ctl(id, 0, libc::GETNCNT, 0) == Ok(number));
                (thread, sleeper)
            })
            .collect();
        semarray::handler_installed();
        extern "C" fn nothing(_: i32) {}
        // SAFETY: a handler of ours for a signal that nobody else here uses.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGURG, &action, ptr::null_mut()), 0);
        }
        for (thread, sleeper) in sleepers.into_iter().rev() {
            // Again and again: one that comes while it is on its way to sleep once more does not end that.
            until("it is interrupted", || {
                // SAFETY: a thread that we have not joined.
                unsafe { libc::pthread_kill(thread, libc::SIGURG) };
                sleeper.is_finished()
            });
            assert_eq!(sleeper.join().unwrap(), Err(libc::EINTR));
        }
    });
    assert_eq!(ctl(id, 0, libc::GETNCNT, 0), Ok(0));
    remove(id);
}
