//! The System V calls on our arrays give the results and error numbers that the kernel gives on its own.

use std::mem::MaybeUninit;
use std::ptr;

use crate::domain::*;
use poundlock_core::semarray::Op;
use poundlock_semarray as semarray;

/// The same calls, on the kernel's arrays or on ours.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Kernel,
    Ours,
}

impl Who {
    fn get(self, key: i32, semaphores: i32, flags: i32) -> Result<i32, i32> {
        match self {
            // SAFETY: three numbers.
            Who::Kernel => checked(unsafe { libc::semget(key, semaphores, flags) }),
            Who::Ours => semarray::get(key, semaphores, flags).map(|id| id.expect("ours")),
        }
    }

    fn op(
        self,
        id: i32,
        operations: *const Op,
        count: usize,
        time: *const libc::timespec,
    ) -> Result<i32, i32> {
        match self {
            Who::Kernel => {
                // SAFETY: pointers that can be read, or that the kernel refuses.
                let done = unsafe { libc::syscall(libc::SYS_semtimedop, id, operations, count, time) };
                checked(done as i32)
            }
            // SAFETY: as above.
            Who::Ours => unsafe { semarray::operate(id, operations, count, time) }.map(|()| 0),
        }
    }

    fn ops(self, id: i32, operations: &[Op]) -> Result<i32, i32> {
        self.op(id, operations.as_ptr(), operations.len(), ptr::null())
    }

    fn ctl(self, id: i32, num: i32, command: i32, argument: usize) -> Result<i32, i32> {
        match self {
            Who::Kernel => {
                // SAFETY: as the tests say.
                let done = unsafe { libc::syscall(libc::SYS_semctl, id, num, command, argument) };
                checked(done as i32)
            }
            Who::Ours => ctl(id, num, command, argument),
        }
    }
}

fn checked(result: i32) -> Result<i32, i32> {
    if result >= 0 { Ok(result) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}

/// Runs the same on both, and compares what they return.
#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(run: impl Fn(Who) -> T) {
    domain();
    assert_eq!(run(Who::Ours), run(Who::Kernel), "ours, and the kernel's");
}

/// A fresh private array with these values, for one `run`.
fn with<T>(who: Who, values: &[u16], run: impl FnOnce(i32) -> T) -> T {
    let id = who.get(libc::IPC_PRIVATE, values.len() as i32, 0o600).unwrap();
    who.ctl(id, 0, libc::SETALL, values.as_ptr().addr()).unwrap();
    let result = run(id);
    let _ = who.ctl(id, 0, libc::IPC_RMID, 0);
    result
}

fn values(who: Who, id: i32) -> Vec<u16> {
    let mut status = status(who, id).unwrap();
    let count = std::mem::take(&mut status.sem_nsems) as usize;
    let mut values = vec![0u16; count];
    who.ctl(id, 0, libc::GETALL, values.as_mut_ptr().addr()).unwrap();
    values
}

fn status(who: Who, id: i32) -> Result<libc::semid_ds, i32> {
    let mut status = MaybeUninit::<libc::semid_ds>::zeroed();
    who.ctl(id, 0, libc::IPC_STAT, status.as_mut_ptr().addr())?;
    // SAFETY: zero bytes are one, and it was written.
    Ok(unsafe { status.assume_init() })
}

const NULL: *const libc::timespec = ptr::null();
/// An address that cannot be accessed.
const BAD: usize = 0x1000;

#[test]
fn keys_are_found_and_made_as_the_kernel_does() {
    let key = key(1);
    same(|who| {
        let first = who.get(key, 3, libc::IPC_CREAT | libc::IPC_EXCL | 0o600);
        let results = [
            first.map(|_| 0),
            who.get(key, 3, libc::IPC_CREAT | libc::IPC_EXCL | 0o600).map(|_| 0),
            who.get(key, 3, libc::IPC_CREAT | 0o600).map(|id| i32::from(Ok(id) == first)),
            who.get(key, 0, 0).map(|id| i32::from(Ok(id) == first)),
            who.get(key, 2, 0o600).map(|id| i32::from(Ok(id) == first)),
            who.get(key, 4, 0o600).map(|_| 0),
            who.ctl(first.unwrap(), 0, libc::IPC_RMID, 0),
            who.get(key, 0, libc::IPC_CREAT | 0o600).map(|_| 0),
        ];
        // The next array of that key is another.
        let second = who.get(key, 1, libc::IPC_CREAT | 0o600).unwrap();
        assert_ne!(Ok(second), first);
        who.ctl(second, 0, libc::IPC_RMID, 0).unwrap();
        results
    });
}

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
    let kernels = Who::Kernel.get(key, 1, libc::IPC_CREAT | 0o600).unwrap();
    assert_eq!(semarray::get(key, 1, libc::IPC_CREAT | 0o600), Ok(None));
    Who::Kernel.ctl(kernels, 0, libc::IPC_RMID, 0).unwrap();
    let ours = semarray::get(key, 1, libc::IPC_CREAT | 0o600).unwrap().unwrap();
    remove(ours);
}

#[test]
fn numbers_out_of_bounds_are_left_to_the_kernel() {
    domain();
    assert_eq!(semarray::get(libc::IPC_PRIVATE, -1, 0o600), Ok(None));
    assert_eq!(semarray::get(libc::IPC_PRIVATE, 32_001, 0o600), Ok(None));
    assert_eq!(semarray::get(libc::IPC_PRIVATE, 0, 0o600), Err(libc::EINVAL));
    let id = semarray::get(libc::IPC_PRIVATE, 32_000, 0o600).unwrap().unwrap();
    let large: Vec<u16> = (0..32_000u16).collect();
    ctl(id, 0, libc::SETALL, large.as_ptr().addr()).unwrap();
    assert_eq!(values(Who::Ours, id), large);
    semop(id, &[op(31_999, -31_999, 0), op(31_999, 0, 0)]).unwrap();
    remove(id);
}

#[test]
fn operations_apply_all_or_none() {
    same(|who| {
        with(who, &[2, 0, 5], |id| {
            let results = [
                who.ops(id, &[op(0, -2, 0), op(1, 3, 0)]),
                who.ops(id, &[op(0, 1, 0), op(1, -4, NOWAIT)]),
                who.ops(id, &[op(1, -3, 0), op(1, 0, 0), op(2, 1, 0)]),
                who.ops(id, &[op(1, 1, 0), op(1, 0, NOWAIT)]),
                who.ops(id, &[op(2, 0, NOWAIT)]),
                who.ops(id, &[op(2, 32_767, 0)]),
                who.ops(id, &[op(3, 1, 0)]),
                who.ops(id, &[op(2, -1, 0), op(u16::MAX, 1, NOWAIT)]),
            ];
            (results, values(who, id))
        })
    });
}

#[test]
fn the_order_of_checks_is_the_kernels() {
    let good = [op(0, 1, 0)];
    let many = [op(0, 0, 0); 501];
    let time = |seconds, nanoseconds| libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let pointer: *const Op = good.as_ptr();
    let wild: *const Op = ptr::without_provenance(BAD);
    let wild_time: *const libc::timespec = ptr::without_provenance(BAD);
    same(|who| {
        with(who, &[0, 0], |id| {
            vec![
                who.op(id, pointer, 0, NULL),
                who.op(id, wild, 0, NULL),
                who.op(id, many.as_ptr(), 500, NULL),
                who.op(id, many.as_ptr(), 501, NULL),
                who.op(id, wild, 501, NULL),
                who.op(id, wild, usize::MAX, wild_time),
                who.op(id, wild, 1, NULL),
                who.op(id, ptr::null(), 1, NULL),
                who.op(id, ptr::without_provenance(usize::MAX - 4), 1, NULL),
                who.op(id, wild, 1, wild_time),
                who.op(id, wild, 1, &time(-1, 0)),
                who.op(id, pointer, 1, &time(-1, 0)),
                who.op(id, pointer, 1, &time(0, -1)),
                who.op(id, pointer, 1, &time(0, 1_000_000_000)),
                who.op(id, [op(9, 1, 0)].as_ptr(), 1, &time(0, 1_000_000_000)),
                who.op(id, [op(1, -1, 0)].as_ptr(), 1, &time(0, 1_000_000)),
                who.op(id, [op(1, -1, NOWAIT)].as_ptr(), 1, &time(i64::MAX, 999_999_999)),
                who.op(id, pointer, 1, &time(i64::MAX, 999_999_999)),
                who.ctl(id, -1, libc::GETVAL, 0),
                who.ctl(id, 2, libc::GETVAL, 0),
                who.ctl(id, 2, libc::GETPID, 0),
                who.ctl(id, 2, libc::GETNCNT, 0),
                who.ctl(id, 2, libc::GETZCNT, 0),
                who.ctl(id, 2, libc::SETVAL, 1),
                who.ctl(id, 2, libc::SETVAL, 40_000),
                who.ctl(id, 0, libc::SETVAL, 32_768),
                who.ctl(id, 0, libc::SETVAL, usize::MAX),
                who.ctl(id, 0, libc::SETVAL, 32_767),
                who.ctl(id, 0, libc::GETVAL, 0),
                who.ctl(id, 0, libc::GETALL, BAD),
                who.ctl(id, 0, libc::SETALL, BAD),
                who.ctl(id, 0, libc::SETALL, 0),
                who.ctl(id, 0, libc::SETALL, [1u16, 32_768].as_ptr().addr()),
                who.ctl(id, 0, libc::IPC_STAT, BAD),
                who.ctl(id, 0, libc::IPC_SET, BAD),
                who.ctl(id, 0, 99, 0),
                who.ctl(id, 0, -1, 0),
                who.ctl(id, 0, libc::IPC_RMID, 0),
                who.ctl(id, 0, libc::IPC_RMID, 0),
                who.ctl(id, 0, libc::GETVAL, 0),
                who.ctl(id, 0, libc::SETVAL, 40_000),
                who.ctl(id, 0, libc::SETALL, BAD),
                who.ctl(id, 0, libc::IPC_SET, BAD),
                who.op(id, pointer, 1, NULL),
            ]
        })
    });
    assert_eq!(Who::Ours.op(-1, pointer, 1, NULL), Who::Kernel.op(-1, pointer, 1, NULL));
    assert_eq!(Who::Ours.ctl(-1, 0, libc::GETVAL, 0), Who::Kernel.ctl(-1, 0, libc::GETVAL, 0));
}

#[test]
fn operations_at_the_end_of_a_page_are_read_to_their_end() {
    // SAFETY: a new mapping of two pages, the second without access.
    let end = unsafe {
        let (anonymous, both) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        let memory = libc::mmap(ptr::null_mut(), 8192, both, anonymous, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(memory.byte_add(4096), 4096, libc::PROT_NONE), 0);
        memory.byte_add(4096).cast::<Op>()
    };
    // SAFETY: the last three operations of the page.
    unsafe {
        let first = end.sub(3);
        for index in 0..3 {
            first.add(index).write(op(0, 1, 0));
        }
    }
    same(|who| {
        with(who, &[0], |id| {
            // SAFETY: computes addresses.
            let at = |before: usize, bytes: usize| unsafe { end.sub(before).byte_sub(bytes) };
            let results = [
                who.op(id, at(3, 0), 3, NULL),
                who.op(id, at(3, 0), 4, NULL),
                who.op(id, at(1, 0), 1, NULL),
                who.op(id, at(0, 0), 1, NULL),
                who.op(id, at(0, 2), 1, NULL),
            ];
            assert_eq!(values(who, id), [4]);
            results
        })
    });
}

#[test]
fn values_processes_and_times_are_told() {
    let process = std::process::id() as i32;
    for who in [Who::Kernel, Who::Ours] {
        domain();
        let id = who.get(libc::IPC_PRIVATE, 3, 0o640).unwrap();
        let fresh = status(who, id).unwrap();
        assert_eq!((fresh.sem_otime, fresh.sem_nsems), (0, 3));
        assert!(fresh.sem_ctime > 1_600_000_000);
        assert_eq!((fresh.sem_perm.__key, fresh.sem_perm.mode & 0o777), (0, 0o640));
        // SAFETY: take no arguments.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let perm = &fresh.sem_perm;
        assert_eq!((perm.uid, perm.gid, perm.cuid, perm.cgid), (user, group, user, group));
        assert_eq!(who.ctl(id, 1, libc::GETPID, 0), Ok(0));
        who.ops(id, &[op(1, 7, 0)]).unwrap();
        assert_eq!(who.ctl(id, 1, libc::GETVAL, 0), Ok(7));
        assert_eq!(who.ctl(id, 1, libc::GETPID, 0), Ok(process));
        assert_eq!(who.ctl(id, 0, libc::GETPID, 0), Ok(0));
        assert!(status(who, id).unwrap().sem_otime >= fresh.sem_ctime - 1);
        who.ctl(id, 0, libc::IPC_RMID, 0).unwrap();
    }
}

#[test]
fn owner_and_mode_are_set_and_the_key_stays() {
    let key = key(3);
    same(|who| {
        let id = who.get(key, 1, libc::IPC_CREAT | 0o600).unwrap();
        let mut new = status(who, id).unwrap();
        new.sem_perm.uid = 12;
        new.sem_perm.gid = 34;
        new.sem_perm.cuid = 56;
        new.sem_perm.mode = 0o7751;
        new.sem_perm.__key = 78;
        let set = who.ctl(id, 0, libc::IPC_SET, ptr::from_ref(&new).addr());
        let after = status(who, id).unwrap().sem_perm;
        let mut nobody = new;
        nobody.sem_perm.uid = u32::MAX;
        let refused = who.ctl(id, 0, libc::IPC_SET, ptr::from_ref(&nobody).addr());
        who.ctl(id, 0, libc::IPC_RMID, 0).unwrap();
        (set, refused, after.uid, after.gid, after.cuid, after.mode & 0o777, after.__key == key)
    });
}

#[test]
fn the_domain_tells_its_limits_and_its_use() {
    let id = private(5);
    let ask = |command| {
        let mut info = MaybeUninit::<libc::seminfo>::zeroed();
        let highest = ctl(id, 0, command, info.as_mut_ptr().addr()).unwrap();
        // SAFETY: zero bytes are one, and it was written.
        (highest, unsafe { info.assume_init() })
    };
    let mut kernel = MaybeUninit::<libc::seminfo>::zeroed();
    Who::Kernel.ctl(0, 0, libc::IPC_INFO, kernel.as_mut_ptr().addr()).unwrap();
    // SAFETY: as above.
    let kernel = unsafe { kernel.assume_init() };
    let (highest, limits) = ask(libc::IPC_INFO);
    assert!(highest >= 0);
    assert_eq!(limits.semopm, kernel.semopm.min(500));
    assert_eq!(limits.semmsl, kernel.semmsl.min(32_000));
    assert_eq!((limits.semvmx, limits.semaem), (kernel.semvmx, kernel.semaem));
    let (_, used) = ask(libc::SEM_INFO);
    assert!(used.semusz >= 1 && used.semaem >= 5, "{} arrays, {} semaphores", used.semusz, used.semaem);
    let mut seen = MaybeUninit::<libc::semid_ds>::zeroed();
    assert_eq!(ctl(id, 0, libc::SEM_STAT, seen.as_mut_ptr().addr()), Ok(id));
    assert_eq!(ctl(id, 0, libc::SEM_STAT_ANY, seen.as_mut_ptr().addr()), Ok(id));
    remove(id);
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

#[test]
fn a_removal_wakes_sleepers_with_eidrm() {
    let id = private(2);
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = [op(0, -1, 0), op(1, -1, UNDO)]
            .into_iter()
            .map(|operation| scope.spawn(move || semop(id, &[operation])))
            .collect();
        until("both sleep", || {
            ctl(id, 0, libc::GETNCNT, 0).unwrap() + ctl(id, 1, libc::GETNCNT, 0).unwrap() == 2
        });
        remove(id);
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap(), Err(libc::EIDRM));
        }
    });
}

#[test]
fn a_time_limit_passes_and_a_wake_up_comes_before_it() {
    let id = private(1);
    assert_eq!(semtimedop(id, &[op(0, -1, 0)], 20), Err(libc::EAGAIN));
    assert_eq!(semtimedop(id, &[op(0, -1, 0)], 0), Err(libc::EAGAIN));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| semtimedop(id, &[op(0, -1, 0)], 1000 * LIMIT as i64));
        until("it sleeps", || ctl(id, 0, libc::GETNCNT, 0) == Ok(1));
        semop(id, &[op(0, 1, 0)]).unwrap();
        assert_eq!(sleeper.join().unwrap(), Ok(()));
    });
    remove(id);
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
        poundlock_semarray::handler_installed();
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
