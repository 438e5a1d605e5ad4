//! Threads that end, processes that fork, become another program, run out of room, or are killed.
//!
//! What must happen in a process of its own runs in this test binary again: [`child`] starts it at a test
//! that does nothing unless it is told to.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::Duration;

use poundlock_statfile::Snapshot;
use poundlock_statfile::writer::{Host, Manner, Options, Recorder};
use poundlock_testing::{LIMIT, until};

use crate::common::{
    self, Lock, NOWHERE, SMALL, at, contended_pair, files, here, host, of, pair, recording, snapshot, start,
};

const DIRECTORY: &str = "POUNDLOCK_TEST_DIRECTORY";

/// This binary, at the test `name` of this file only, or of another if it names that, told to use `directory`.
pub(crate) fn child(name: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a name"));
    let name = if name.contains("::") { name.to_owned() } else { format!("processes::{name}") };
    command.args(["--exact", "--nocapture", "--test-threads=1"]).arg(name);
    command.env(DIRECTORY, directory).stdout(Stdio::piped());
    let limit_time = || {
        // SAFETY: always succeeds. A child that hangs is ended by the signal; the alarm lasts through `exec`.
        unsafe { libc::alarm(LIMIT as u32) };
        Ok(())
    };
    // SAFETY: `alarm` may be called between fork and exec.
    unsafe { command.pre_exec(limit_time) };
    command
}

/// The directory, in such a child.
pub(crate) fn told() -> Option<std::path::PathBuf> {
    std::env::var_os(DIRECTORY).map(Into::into)
}

fn read_all(directory: &Path) -> Vec<Snapshot> {
    let now = common::now();
    files(directory).iter().map(|file| poundlock_statfile::read(file, now).expect("a good file")).collect()
}

/// Waits for a child of `fork`; a hang fails.
fn wait_for(pid: libc::pid_t) -> i32 {
    let (mut status, mut found) = (0, 0);
    until("the child ends", || {
        // SAFETY: fills our own variable.
        found = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        found != 0
    });
    assert_eq!(found, pid);
    status
}

#[test]
fn short_lived_threads_share_records() {
    // In a process of its own: where other recorders have asked for many keys before, records are not handed
    // on.
    let Some(directory) = told() else {
        let directory = tempfile::tempdir().expect("a directory");
        let name = "short_lived_threads_share_records";
        assert!(child(name, directory.path()).status().expect("it starts").success());
        assert_eq!(files(directory.path()).len(), 1, "it ran");
        return;
    };
    host!(Short);
    start::<Short>(&directory, SMALL);
    let lock = Lock::default();
    for _ in 0..500 {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pair::<Short>(lock.seen());
                    contended_pair::<Short>(lock.seen(), here());
                });
            }
        });
    }
    let found = snapshot(&directory);
    assert_eq!(found.threads, 2000);
    let stats = of(&found, lock.address());
    assert_eq!((stats.acquisitions, stats.contended), (4000, 2000));
    assert!(found.thread_time_ns > stats.wait_total_ns);
    // A thread's record, chunk and sites are four pages. Joining does not wait for the very end of a thread,
    // so a few more than four can be alive at once; 2000 would need 32 MB.
    use std::os::unix::fs::MetadataExt;
    let blocks = std::fs::metadata(common::only_file(&directory)).expect("it is there").blocks();
    assert!(blocks * 512 < 2 << 20, "{blocks} blocks");
}

#[test]
fn locks_used_at_the_very_end_of_a_thread_count() {
    host!(AtEnd);
    static LOCK: AtomicU32 = AtomicU32::new(0);
    static CALLS: AtomicU32 = AtomicU32::new(0);
    static KEY: AtomicU32 = AtomicU32::new(0);
    const ADDRESS: usize = 0x7000;

    extern "C" fn last_rites(round: *mut libc::c_void) {
        CALLS.fetch_add(1, Relaxed);
        pair::<AtEnd>(at(&LOCK, ADDRESS));
        contended_pair::<AtEnd>(at(&LOCK, ADDRESS), here());
        // Again, for as many rounds as there are: also after the recorder has let the thread go.
        let key = KEY.load(Relaxed);
        // SAFETY: our key.
        unsafe { libc::pthread_setspecific(key, round) };
    }

    let directory = tempfile::tempdir().expect("a directory");
    start::<AtEnd>(directory.path(), SMALL);
    let mut key = 0;
    // SAFETY: fills our own variable.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(last_rites)) }, 0);
    KEY.store(key, Relaxed);
    for used_before in [true, false] {
        let body = move || {
            if used_before {
                pair::<AtEnd>(at(&LOCK, ADDRESS));
            }
            // SAFETY: our key, and any value.
            unsafe { libc::pthread_setspecific(key, (&raw const LOCK).cast()) };
        };
        thread::spawn(body).join().expect("no panic");
    }
    let found = snapshot(directory.path());
    let calls = u64::from(CALLS.load(Relaxed));
    assert!(calls >= 6, "several rounds for each thread: {calls}");
    let stats = of(&found, ADDRESS);
    assert_eq!((stats.acquisitions, stats.contended), (1 + 2 * calls, calls));
    assert_eq!((found.threads, found.lost_events), (2, 0));
}

#[test]
fn many_live_threads() {
    const THREADS: usize = 500;
    recording!(Live: directory, _);
    let lock = Lock::default();
    let barrier = Barrier::new(THREADS + 1);
    let mut all_alive = None;
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let body = || {
                pair::<Live>(lock.seen());
                barrier.wait();
                barrier.wait();
                pair::<Live>(lock.seen());
            };
            thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, body).expect("a thread");
        }
        barrier.wait();
        all_alive = Some(snapshot(directory.path()));
        barrier.wait();
    });
    let check = |found: &Snapshot, acquisitions| {
        assert_eq!((found.threads, of(found, lock.address()).acquisitions), (THREADS as u32, acquisitions));
    };
    check(&all_alive.expect("taken"), THREADS as u64);
    check(&snapshot(directory.path()), 2 * THREADS as u64);
}

/// Forks; `in_child` runs in the child, which then ends at once.
fn fork<H: Host>(in_child: impl FnOnce(&'static Recorder<H>)) {
    // SAFETY: the child does only what `in_child` does, and that is the recorder's calls, which are made for
    // it.
    match unsafe { libc::fork() } {
        0 => {
            H::recorder().fork_child();
            in_child(H::recorder());
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        pid => assert_eq!(wait_for(pid), 0),
    }
}

#[test]
fn a_forked_child_has_a_file_of_its_own() {
    recording!(Forked: directory, recorder);
    let lock = Lock::default();
    let waited = Lock::default();
    let gone = Lock::default();
    let site = here();
    recorder.created(lock.seen(), site);
    recorder.created(gone.seen(), site);
    pair::<Forked>(lock.seen());
    contended_pair::<Forked>(waited.seen(), site);
    let held = Lock::default();
    recorder.acquired(held.seen(), NOWHERE, Manner::LOCK);
    recorder.destroyed(gone.seen(), NOWHERE);
    let word = lock.word.load(Relaxed);
    fork::<Forked>(|recorder| {
        for _ in 0..10 {
            pair::<Forked>(lock.seen());
        }
        contended_pair::<Forked>(waited.seen(), site);
        recorder.released(held.seen(), common::NOWHERE);
        pair::<Forked>(held.seen());
        // The slot came along, so the word is still good.
        assert_eq!(lock.word.load(Relaxed), word);
        fork::<Forked>(|recorder| {
            pair::<Forked>(lock.seen());
            recorder.finish();
        });
        recorder.finish();
    });
    recorder.released(held.seen(), common::NOWHERE);
    pair::<Forked>(lock.seen());

    let all = read_all(directory.path());
    assert_eq!(all.len(), 3);
    let mine = |found: &&Snapshot| found.pid == std::process::id();
    let parent = all.iter().find(mine).expect("the parent's");
    assert_eq!((parent.threads, of(parent, lock.address()).acquisitions), (1, 2));
    assert_eq!(of(parent, waited.address()).contended, 1);
    let mut children: Vec<&Snapshot> = all.iter().filter(|found| !mine(found)).collect();
    children.sort_by_key(|found| found.locks.len());
    let [grandchild, child] = children[..] else { panic!("two children") };
    for found in [child, grandchild] {
        assert_eq!((found.exe.as_str(), found.lock.as_str(), found.threads), (&*parent.exe, "test-lock", 1));
        let stats = of(found, lock.address());
        assert_eq!(stats.created_at, of(parent, lock.address()).created_at);
        assert_eq!(stats.contended, 0);
        assert!(found.module_at(stats.created_at[0]).is_some());
    }
    assert_eq!(of(grandchild, lock.address()).acquisitions, 1);
    assert_eq!(of(child, lock.address()).acquisitions, 10);
    let stats = of(child, waited.address());
    assert_eq!((stats.acquisitions, stats.contended, stats.sites[0].contended), (1, 1, 1));
    assert_eq!(of(child, held.address()).acquisitions, 1);
}

/// As by `_Fork`, or the system call: no handler is called in the child.
#[test]
fn a_child_forked_behind_our_back_is_noticed() {
    recording!(Behind: directory, _);
    let lock = Lock::default();
    pair::<Behind>(lock.seen());
    let pid = {
        let (stack, no_pointer) = (0usize, 0usize);
        // SAFETY: a fork; the child does only what a forked child may.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, stack, no_pointer, no_pointer, no_pointer) }
    };
    if pid == 0 {
        contended_pair::<Behind>(lock.seen(), here());
        pair::<Behind>(lock.seen());
        Behind::recorder().finish();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    assert_eq!(wait_for(pid as libc::pid_t), 0);
    pair::<Behind>(lock.seen());
    let all = read_all(directory.path());
    assert_eq!(all.len(), 2);
    for found in &all {
        let stats = of(found, lock.address());
        let waits = u64::from(found.pid == pid as u32);
        assert_eq!((stats.acquisitions, stats.contended, found.threads), (2, waits, 1));
    }
}

/// The child copies the lock table at its first event. Until then the parent may have destroyed locks that
/// live on in the child.
#[test]
fn a_lock_that_the_parent_destroyed_lives_on_in_the_child() {
    recording!(Outlived: directory, recorder, Options { recycle_after: 0, ..SMALL });
    let lock = Lock::default();
    recorder.created(lock.seen(), here());
    // Page shared with the child: 1 once the lock is destroyed.
    // SAFETY: a new mapping, large enough and zero.
    let destroyed = unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast::<AtomicU32>()
    };
    // SAFETY: the child does only what a forked child may.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        recorder.fork_child();
        while destroyed.load(Relaxed) == 0 {
            // SAFETY: always succeeds.
            unsafe { libc::sched_yield() };
        }
        pair::<Outlived>(lock.seen());
        // These would take its slot.
        for n in 0..10 {
            let word = AtomicU32::new(0);
            recorder.created(at(&word, 0x10_0000 + 64 * n), here());
            pair::<Outlived>(at(&word, 0x10_0000 + 64 * n));
        }
        pair::<Outlived>(lock.seen());
        recorder.finish();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    recorder.destroyed(lock.seen(), NOWHERE);
    destroyed.store(1, Relaxed);
    assert_eq!(wait_for(pid), 0);
    let all = read_all(directory.path());
    let child = all.iter().find(|found| found.pid == pid as u32).expect("the child's");
    assert_eq!(of(child, lock.address()).acquisitions, 2);
    assert_eq!(child.locks.len(), 11);
}

#[test]
fn a_forked_child_that_uses_no_lock_makes_no_file() {
    recording!(Quiet: directory, _);
    pair::<Quiet>(Lock::default().seen());
    fork::<Quiet>(|recorder| recorder.finish());
    assert_eq!(files(directory.path()).len(), 1);
}

#[test]
fn threads_of_a_forked_child_share_its_file() {
    let Some(directory) = told() else {
        let directory = tempfile::tempdir().expect("a directory");
        let status = child("threads_of_a_forked_child_share_its_file", directory.path()).status();
        assert!(status.expect("it starts").success());
        let all = read_all(directory.path());
        let child = all.iter().find(|found| found.threads == 4).expect("the forked child's");
        assert_eq!((all.len(), of(child, 0x5000).acquisitions), (2, 4000));
        return;
    };
    host!(Together);
    static WORD: AtomicU32 = AtomicU32::new(0);
    start::<Together>(&directory, SMALL);
    pair::<Together>(at(&WORD, 0x5000));
    // All four find that there is no file yet.
    fork::<Together>(|_| {
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..1000 {
                        pair::<Together>(at(&WORD, 0x5000));
                    }
                });
            }
        });
    });
}

#[test]
fn a_process_that_is_killed_leaves_its_figures() {
    if let Some(directory) = told() {
        return work_until_killed(&directory);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut child =
        child("a_process_that_is_killed_leaves_its_figures", directory.path()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // What it has printed when it dies, it had counted.
    let progress = lines.by_ref().map_while(Result::ok).find_map(|line| {
        line.strip_prefix("done ").and_then(|count| count.parse::<u64>().ok()).filter(|count| *count > 20_000)
    });
    child.kill().expect("it can be killed");
    assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGKILL));
    let progress = progress.expect("it came that far");

    let found = snapshot(directory.path());
    assert_eq!((found.pid, found.threads, found.locks.len()), (child.id(), 5, 3));
    let busy = of(&found, 0x1000);
    assert!(busy.acquisitions >= progress, "{} of {progress}", busy.acquisitions);
    assert!(busy.acquisitions < 1 << 40 && busy.contended <= busy.acquisitions + 4);
    assert_eq!(of(&found, 0x2000).acquisitions, 1);
    // The thread that was waiting when it happened.
    let stuck = of(&found, 0x3000);
    assert_eq!((stuck.acquisitions, stuck.contended, stuck.sites.len()), (0, 1, 1));
    assert!(stuck.wait_total_ns > 0 && found.thread_time_ns >= stuck.wait_total_ns);
}

fn work_until_killed(directory: &Path) {
    host!(Killed);
    static WORDS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
    static DONE: AtomicU64 = AtomicU64::new(0);
    static BEGUN: Barrier = Barrier::new(5);
    start::<Killed>(directory, SMALL);
    for _ in 0..3 {
        thread::spawn(|| {
            pair::<Killed>(at(&WORDS[0], 0x1000));
            BEGUN.wait();
            loop {
                pair::<Killed>(at(&WORDS[0], 0x1000));
                contended_pair::<Killed>(at(&WORDS[0], 0x1000), here());
                DONE.fetch_add(2, Relaxed);
            }
        });
    }
    thread::spawn(|| {
        pair::<Killed>(at(&WORDS[1], 0x2000));
        let wait = Killed::recorder().wait_begin(at(&WORDS[2], 0x3000), here(), Manner::LOCK);
        BEGUN.wait();
        loop {
            thread::park();
            std::hint::black_box(&wait);
        }
    });
    BEGUN.wait();
    contended_pair::<Killed>(at(&WORDS[0], 0x1000), here());
    loop {
        println!("done {}", DONE.load(Relaxed));
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn exec_ends_the_program_before() {
    const STAGE: &str = "POUNDLOCK_TEST_STAGE";
    let name = "exec_ends_the_program_before";
    let Some(directory) = told() else {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(child(name, directory.path()).status().expect("it starts").success());
        let all = read_all(directory.path());
        assert_eq!((all.len(), all[0].pid), (2, all[1].pid));
        // One thread each: its time is that of the program, up to where the next one began.
        let later = poundlock_statfile::read(&files(directory.path())[0], u64::MAX).expect("a good file");
        let lived = all[1].start_ns - all[0].start_ns;
        assert!(later.thread_time_ns <= lived, "{} of {lived}", later.thread_time_ns);
        let waited: u64 = later.locks.iter().map(|lock| lock.wait_total_ns).sum();
        assert!(0 < waited && waited <= lived, "{waited} of {lived}");
        return;
    };
    host!(Executed);
    let recorder = start::<Executed>(&directory, SMALL);
    pair::<Executed>(Lock::default().seen());
    if std::env::var_os(STAGE).is_none() {
        // Ends with the program; without its end on record it would seem to go on.
        std::mem::forget(recorder.wait_begin(Lock::default().seen(), here(), Manner::LOCK));
        panic!("no exec: {}", child(name, &directory).env(STAGE, "second").stdout(Stdio::inherit()).exec());
    }
    recorder.finish();
}

#[test]
fn a_limit_on_file_sizes_is_kept_to() {
    let name = "a_limit_on_file_sizes_is_kept_to";
    if let Some(directory) = told() {
        host!(Limited);
        let path = std::ffi::CString::new(directory.to_str().expect("in UTF-8")).expect("no zero");
        let on = Limited::recorder().init(&path, b"test-lock", b"", Options::DEFAULT);
        let lock = Lock::default();
        contended_pair::<Limited>(lock.seen(), here());
        pair::<Limited>(lock.seen());
        Limited::recorder().created(lock.seen(), here());
        Limited::recorder().destroyed(lock.seen(), NOWHERE);
        println!("recording: {on}");
        return;
    }
    for (limit, fits) in [(512u64 << 20, true), (1 << 20, false)] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = child(name, directory.path());
        let set_limit = move || {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: reads our own variable.
            match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: `setrlimit` may be called between fork and exec.
        unsafe { command.pre_exec(set_limit) };
        let output = command.stderr(Stdio::piped()).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(out.contains(&format!("recording: {fits}")), "{out}");
        // Where it does not fit, an empty file says so.
        let empty = std::fs::metadata(common::only_file(directory.path())).expect("a file").len() == 0;
        assert_eq!(empty, !fits);
        if fits {
            assert_eq!(err, "");
            assert_eq!(snapshot(directory.path()).locks[0].acquisitions, 2);
        } else {
            let directory = directory.path().display();
            let reason = "the limit on file sizes is too low";
            assert_eq!(err, format!("poundlock: no statistics of this process: {directory}: {reason}\n"));
        }
    }
}

/// A timer whose signal interrupts the thread that made it, and no other of this process: the test harness
/// has one that would take it. Ends when it is dropped.
struct Interruptions(libc::timer_t);

impl Interruptions {
    fn of_this_thread(handle: extern "C" fn(libc::c_int)) -> Interruptions {
        let every = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        let times = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the handlers are async-signal-safe: that is what is tested. All calls get our own
        // variables, for which zeroes are a value.
        unsafe {
            let mut timer = std::mem::zeroed();
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGUSR1;
            event.sigev_notify_thread_id = libc::gettid();
            libc::signal(libc::SIGUSR1, handle as *const () as libc::sighandler_t);
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
            assert_eq!(libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()), 0);
            Interruptions(timer)
        }
    }
}

impl Drop for Interruptions {
    fn drop(&mut self) {
        // SAFETY: our timer; a signal that it has sent is handled before the call returns.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// A timer's signal interrupts the recorder everywhere, and its handler uses a lock too.
#[test]
fn a_signal_handler_may_use_locks() {
    let name = "a_signal_handler_may_use_locks";
    let Some(directory) = told() else {
        let directory = tempfile::tempdir().expect("a directory");
        let mut process: Child = child(name, directory.path()).spawn().expect("it starts");
        let mut text = String::new();
        process.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        assert!(process.wait().expect("it ends").success());
        // Behind what the test harness says on the same line.
        let (_, line) = text.lines().find_map(|line| line.split_once("counts ")).expect("it says");
        let counts: Vec<u64> = line.split(' ').map(|count| count.parse().expect("a number")).collect();
        let found = snapshot(directory.path());
        let handler = of(&found, 0x9000);
        // Each signal acquired once without a wait and once with one. Each of the two is counted or lost; a
        // lost wait is lost twice, at its beginning and at its end.
        assert!(handler.acquisitions <= 2 * counts[0]);
        assert!(handler.acquisitions + found.lost_events >= 2 * counts[0], "{found:?}, {counts:?}");
        assert!(handler.acquisitions > 0, "most signals come outside of the slow paths");
        let total: u64 = found.locks.iter().map(|lock| lock.acquisitions).sum();
        assert_eq!(total - handler.acquisitions, counts[1], "the interrupted thread's own are exact");
        return;
    };
    host!(Signals);
    static WORD: AtomicU32 = AtomicU32::new(0);
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handle(_: libc::c_int) {
        pair::<Signals>(at(&WORD, 0x9000));
        contended_pair::<Signals>(at(&WORD, 0x9000), here());
        HANDLED.fetch_add(1, Relaxed);
    }
    let recorder = start::<Signals>(&directory, Options { recycle_after: 100, ..SMALL });
    let worker = thread::spawn(move || {
        let timer = Interruptions::of_this_thread(handle);
        let mut done = 0;
        let site = here();
        while HANDLED.load(Relaxed) < 2000 {
            let word = AtomicU32::new(0);
            let lock = at(&word, 0x10_0000 + 64 * (done as usize % 5000));
            recorder.created(lock, site);
            pair::<Signals>(lock);
            if done % 50 == 0 {
                contended_pair::<Signals>(lock, site);
                done += 1;
            }
            recorder.destroyed(lock, NOWHERE);
            done += 1;
        }
        drop(timer);
        done
    });
    let done: u64 = worker.join().expect("no panic");
    println!("counts {} {done}", HANDLED.load(Relaxed));
}

#[test]
fn a_forked_child_has_events_of_its_own() {
    recording!(Events: directory, recorder);
    for _ in 0..3 {
        recorder.event(7);
    }
    recorder.duration(0, 100);
    fork::<Events>(|recorder| {
        recorder.event(7);
        recorder.finish();
    });
    recorder.event(7);
    let all = read_all(directory.path());
    assert_eq!(all.len(), 2);
    for found in &all {
        let own = found.pid == std::process::id();
        assert_eq!(found.events[7].total, if own { 4 } else { 1 });
        assert_eq!(found.durations[0].count, u64::from(own));
    }
}

#[test]
fn events_in_signal_handlers_are_not_lost() {
    let Some(directory) = told() else {
        let directory = tempfile::tempdir().expect("a directory");
        let output = child("events_in_signal_handlers_are_not_lost", directory.path()).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        let (_, line) = text.lines().find_map(|line| line.split_once("counts ")).expect("it says");
        let counts: Vec<u64> = line.split(' ').map(|count| count.parse().expect("a number")).collect();
        let found = snapshot(directory.path());
        assert_eq!(found.events[1].total, counts[0] + counts[1], "{counts:?}");
        assert_eq!(found.durations[1].count, counts[0] + counts[1], "{counts:?}");
        assert_eq!(found.durations[1].total_ns, 5 * counts[0] + 3 * counts[1], "{counts:?}");
        assert_eq!((found.durations[1].max_ns, found.lost_events), (5, 0));
        return;
    };
    host!(Interrupted);
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handle(_: libc::c_int) {
        Interrupted::recorder().event(1);
        Interrupted::recorder().duration(1, 5);
        HANDLED.fetch_add(1, Relaxed);
    }
    let recorder = start::<Interrupted>(&directory, SMALL);
    let worker = thread::spawn(move || {
        recorder.event(0);
        let timer = Interruptions::of_this_thread(handle);
        let mut done = 0u64;
        while HANDLED.load(Relaxed) < 2000 {
            recorder.event(1);
            recorder.duration(1, 3);
            // Slow paths of the recorder, in the middle of which events still count.
            let word = AtomicU32::new(0);
            recorder.created(at(&word, 0x10_0000), here());
            done += 1;
        }
        drop(timer);
        done
    });
    let done: u64 = worker.join().expect("no panic");
    println!("counts {} {done}", HANDLED.load(Relaxed));
}
