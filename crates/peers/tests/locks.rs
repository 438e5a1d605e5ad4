//! Every lock that is there does what a lock has to do, through the functions that are measured.
//!
//! A package that is not installed is reported on standard error and its locks are passed over; with
//! `POUNDLOCK_REAL=require` in the environment the test fails.

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Once, mpsc};
use std::thread;
use std::time::Duration;

use poundlock_core::qspin::Form;
use poundlock_core::rwlock::Preference;
use poundlock_names::LockName;
use poundlock_names::Named;
use poundlock_peers::{Absent, Calls, EMPTY, Instance, Node, Peer, rw};
use poundlock_testing::{LIMIT, asleep};

/// Runs `body`, and ends the whole process with what it was about if it does not come to an end. A thread
/// that waits for a lock cannot be stopped in any other way.
fn limited<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let runner = thread::spawn(move || {
        let result = body();
        // Nobody listens only if the process is about to end.
        let _ = tell.send(());
        result
    });
    if told.recv_timeout(Duration::from_secs(LIMIT)) == Err(mpsc::RecvTimeoutError::Timeout) {
        let _ = writeln!(std::io::stderr(), "{what}: hangs, after {LIMIT} seconds");
        std::process::abort();
    }
    runner.join().unwrap_or_else(|problem| std::panic::resume_unwind(problem))
}

/// The mutexes and spinlocks that are there.
#[track_caller]
fn present() -> Vec<Peer> {
    there(poundlock_peers::all())
}

/// The readers-writer locks that are there and exclude.
#[track_caller]
fn rw_locks() -> Vec<Peer<rw::Calls>> {
    there(rw::all()).into_iter().filter(|peer| peer.name != EMPTY).collect()
}

#[track_caller]
fn there<C>(all: Vec<Result<Peer<C>, Absent>>) -> Vec<Peer<C>> {
    let (mut present, mut absent) = (vec![], vec![]);
    for peer in all {
        match peer {
            Ok(peer) => present.push(peer),
            Err(missing) => absent.push(missing.to_string()),
        }
    }
    if !absent.is_empty() {
        let absent = absent.join("\n");
        assert!(
            std::env::var_os("POUNDLOCK_REAL").is_none_or(|value| value != "require"),
            "POUNDLOCK_REAL=require, and\n{absent}"
        );
        static SAID: Once = Once::new();
        // Not eprintln!: the test harness would keep the lines to itself.
        SAID.call_once(|| _ = writeln!(std::io::stderr(), "SKIPPED: {absent}"));
    }
    present
}

/// The locks that exclude, those of readers and writers as a writer has them.
#[track_caller]
fn locks() -> Vec<Peer> {
    let plain = present().into_iter().filter(|peer| peer.name != EMPTY);
    plain.chain(rw_locks().into_iter().map(|peer| side(&peer, peer.calls.write))).collect()
}

/// A readers-writer lock as a mutex.
fn side(peer: &Peer<rw::Calls>, calls: Calls) -> Peer {
    let Peer { name, description, ref origin, ours, spins, .. } = *peer;
    Peer { name, description, origin: origin.clone(), ours, spins, calls }
}

/// A lock and what it protects: two words on lines of their own, which a thread makes unequal for a moment.
struct Guarded {
    lock: Instance,
    counts: UnsafeCell<[Alone; 2]>,
}

#[repr(align(128))]
#[derive(Clone, Copy, Default)]
struct Alone(u64);

// SAFETY: `counts` is accessed under the lock only. If the lock does not exclude, the tests fail.
unsafe impl Sync for Guarded {}
// SAFETY: numbers may be read by any thread.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new(calls: &Calls) -> Guarded {
        Guarded { lock: Instance::new(calls), counts: UnsafeCell::default() }
    }

    /// Whether both counts are equal, and stay as they are, under the lock as a reader has it.
    fn look(&self, calls: &Calls, node: &Node, linger: u32) -> bool {
        // SAFETY: lock and node are made for these functions and live; the thread unlocks what it locked.
        // Nobody writes the counts meanwhile, if the lock excludes; the reads are volatile, so that the
        // compiler leaves them in their order.
        unsafe {
            (calls.lock)(self.lock.as_ptr(), node.as_ptr());
            let counts = self.counts.get().cast::<u64>();
            let other = counts.byte_add(size_of::<Alone>());
            let first = counts.read_volatile();
            for _ in 0..linger {
                std::hint::spin_loop();
            }
            let equal = (other.read_volatile(), counts.read_volatile()) == (first, first);
            (calls.unlock)(self.lock.as_ptr(), node.as_ptr());
            equal
        }
    }

    /// Adds one to both counts, under the lock; false if they were not equal then.
    fn add(&self, calls: &Calls, node: &Node, linger: u32) -> bool {
        // SAFETY: lock and node are made for these functions and live; the thread unlocks what it locked. The
        // counts are this thread's between the two, and volatile, so that the compiler leaves all accesses in
        // their order.
        unsafe {
            (calls.lock)(self.lock.as_ptr(), node.as_ptr());
            let counts = self.counts.get().cast::<u64>();
            let other = counts.byte_add(size_of::<Alone>());
            let (first, second) = (counts.read_volatile(), other.read_volatile());
            counts.write_volatile(first + 1);
            for _ in 0..linger {
                std::hint::spin_loop();
            }
            other.write_volatile(second + 1);
            (calls.unlock)(self.lock.as_ptr(), node.as_ptr());
            first == second
        }
    }

    fn counts(&mut self) -> [u64; 2] {
        self.counts.get_mut().map(|count| count.0)
    }
}

/// Threads that add under a lock, each many times; whether they ever met, and the counts.
fn contend(calls: Calls, threads: u32, rounds: u32) -> (bool, [u64; 2]) {
    share(rw::Calls { write: calls, read_lock: calls.lock, read_unlock: calls.unlock }, threads, rounds, 1)
}

/// The same where only one turn in `writes` adds, and the others look; whether anybody saw what he should
/// not, and the counts.
fn share(calls: rw::Calls, threads: u32, rounds: u32, writes: u32) -> (bool, [u64; 2]) {
    let (calls, reads) = (calls.write, calls.read());
    let guarded = Arc::new(Guarded::new(&calls));
    let arrived = Arc::new(AtomicU32::new(0));
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let (guarded, arrived) = (Arc::clone(&guarded), Arc::clone(&arrived));
            thread::spawn(move || {
                let node = Node::new(&calls);
                let turn = |round: u32, linger| match round % writes {
                    0 => guarded.add(&calls, &node, linger),
                    _ => guarded.look(&reads, &node, linger),
                };
                arrived.fetch_add(1, Relaxed);
                while arrived.load(Relaxed) < threads {
                    thread::yield_now();
                }
                (0..rounds).fold(true, |equal, round| {
                    // Now and then long enough for the others to come and wait, and to be preempted
                    // themselves.
                    let linger = if round % 64 == 0 { 2_000 } else { 10 };
                    turn(round, linger) && equal
                })
            })
        })
        .collect();
    let equal: Vec<bool> = running.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut guarded = Arc::into_inner(guarded).expect("all threads have ended");
    (!equal.contains(&false), guarded.counts())
}

#[test]
fn names_are_unique_and_found_and_ours_are_all_there() {
    let names = poundlock_peers::names();
    let all = poundlock_peers::all();
    listed(&names, &all, poundlock_peers::find);

    let mutexes = LockName::ALL.into_iter().filter(|&lock| lock != LockName::Glibc).map(LockName::name);
    let ours: Vec<_> = mutexes.chain(Form::ALL.into_iter().map(Form::name)).collect();
    let found: Vec<_> = all.iter().flatten().filter(|peer| peer.ours).map(|peer| peer.name).collect();
    assert_eq!(found, ours);

    let all = rw::all();
    listed(&rw::names(), &all, rw::find);
    let found: Vec<_> = all.iter().flatten().filter(|peer| peer.ours).map(|peer| peer.name).collect();
    assert_eq!(found, Preference::ALL.map(Preference::name));
}

/// Each name is there once, and leads to its lock or to why that is absent.
#[track_caller]
fn listed<C>(
    names: &[&str],
    all: &[Result<Peer<C>, Absent>],
    find: impl Fn(&str) -> Option<Result<Peer<C>, Absent>>,
) {
    let unique: HashSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    assert_eq!(all.len(), names.len());
    for (peer, name) in all.iter().zip(names) {
        assert_eq!(peer.as_ref().map_or_else(|absent| absent.name, |peer| peer.name), *name);
        let found = find(name).expect("it is listed");
        assert_eq!(found.is_ok(), peer.is_ok());
    }
    assert!(find("nonesuch").is_none());
}

#[test]
fn those_that_need_no_package_are_there() {
    for name in [EMPTY, "glibc", "glibc-adaptive", "glibc-spin", "std"] {
        let peer = poundlock_peers::find(name).expect("it is listed").expect("it is always there");
        assert!(!peer.origin.is_empty());
    }
    for name in [EMPTY, "glibc", "glibc-writers", "std"] {
        assert!(rw::find(name).expect("it is listed").is_ok(), "{name}");
    }
}

#[test]
fn tables_are_sound_and_origins_have_versions() {
    for peer in present().into_iter().chain(locks()) {
        let calls = peer.calls;
        assert!(calls.size > 0 && calls.size % calls.align == 0, "{}: {} bytes", peer.name, calls.size);
        assert!(calls.align.is_power_of_two() && calls.align <= 4096, "{}: {}", peer.name, calls.align);
        assert!(calls.node <= 4096, "{}: {}", peer.name, calls.node);
        assert!(!peer.description.is_empty() && !peer.description.contains('\n'));
        if peer.name != EMPTY {
            // A build of one's own has a place instead of a version.
            let telling = |c: char| c.is_ascii_digit() || c == '/';
            assert!(peer.origin.contains(telling), "{}: {}", peer.name, peer.origin);
            assert!(!peer.origin.contains("unknown"), "{}: {}", peer.name, peer.origin);
        }
    }
}

/// Every lock keeps to the memory that it asked for, lock and node alike, through its whole life.
#[test]
fn nobody_writes_beside_the_lock_or_the_node() {
    const MARK: u8 = 0xa5;
    const MARGIN: usize = 256;

    /// Memory of a size and alignment, between margins full of marks. At an odd multiple of the alignment, so
    /// that a lock that counts on more than it asks for finds out.
    struct Fenced {
        bytes: Vec<u8>,
        start: usize,
        size: usize,
    }

    impl Fenced {
        fn new(size: usize, align: usize) -> Fenced {
            let mut bytes = vec![MARK; size + 2 * MARGIN + 4 * align];
            let address = bytes.as_ptr().addr() + MARGIN;
            let mut start = MARGIN + address.next_multiple_of(align) - address;
            if ((bytes.as_ptr().addr() + start) / align).is_multiple_of(2) {
                start += align;
            }
            bytes[start..start + size].fill(0);
            Fenced { bytes, start, size }
        }

        fn pointer(&mut self) -> *mut std::ffi::c_void {
            self.bytes[self.start..].as_mut_ptr().cast()
        }

        fn intact(&self) -> bool {
            let (before, rest) = self.bytes.split_at(self.start);
            before.iter().chain(&rest[self.size..]).all(|&byte| byte == MARK)
        }
    }

    let readers = rw_locks().into_iter().map(|peer| side(&peer, peer.calls.read()));
    for peer in locks().into_iter().chain(readers) {
        let calls = peer.calls;
        let (name, intact) = (peer.name, move || {
            let mut lock = Fenced::new(calls.size, calls.align);
            let mut node = Fenced::new(calls.node, 64);
            let (own, place) = (lock.pointer(), node.pointer());
            // SAFETY: memory as the table asks for it, used by one thread.
            unsafe {
                (calls.init)(own);
                for _ in 0..100 {
                    (calls.lock)(own, place);
                    (calls.unlock)(own, place);
                }
                (calls.destroy)(own);
            }
            lock.intact() && node.intact()
        });
        assert!(limited(name, intact), "{name} writes beside what it asked for");
    }
}

/// How often each of the threads takes a lock. Those that only spin pass in order at the pace of time slices
/// where there are more threads than CPUs; and there are, as other tests run beside this one.
fn rounds(spins: bool, threads: u32) -> u32 {
    let cpus = thread::available_parallelism().map_or(1, usize::from) as u32;
    match (spins, threads > cpus) {
        (false, _) => 20_000,
        (true, false) => 2_000,
        (true, true) => 300,
    }
}

#[test]
fn every_lock_excludes() {
    for peer in locks() {
        let (name, calls) = (peer.name, peer.calls);
        for threads in [2, 4] {
            let rounds = rounds(peer.spins, threads);
            let (equal, counts) = limited(name, move || contend(calls, threads, rounds));
            let total = u64::from(threads) * u64::from(rounds);
            assert!(equal, "{name}: two of {threads} threads were in at once");
            assert_eq!(counts, [total; 2], "{name}, {threads} threads: additions were lost");
        }
    }
}

/// Writers exclude everybody, and readers see what a writer has finished.
#[test]
fn every_readers_writer_lock_keeps_readers_and_writers_apart() {
    for peer in rw_locks() {
        let (name, calls) = (peer.name, peer.calls);
        for threads in [2, 3, 4] {
            let rounds = rounds(peer.spins, threads);
            let (sound, counts) = limited(name, move || share(calls, threads, rounds, 4));
            let total = u64::from(threads) * u64::from(rounds.div_ceil(4));
            assert!(sound, "{name}: somebody of {threads} threads was in beside a writer");
            assert_eq!(counts, [total; 2], "{name}, {threads} threads: additions were lost");
        }
    }
}

/// One reader comes in while another is inside.
#[test]
fn readers_share() {
    for peer in rw_locks() {
        let (name, calls) = (peer.name, peer.calls.read());
        limited(name, move || {
            let guarded = Arc::new(Guarded::new(&calls));
            let node = Node::new(&calls);
            // SAFETY: lock and node live, and this thread unlocks what it locked.
            unsafe { (calls.lock)(guarded.lock.as_ptr(), node.as_ptr()) };
            let other = thread::spawn({
                let guarded = Arc::clone(&guarded);
                move || guarded.look(&calls, &Node::new(&calls), 0)
            });
            assert!(other.join().unwrap());
            // SAFETY: as above.
            unsafe { (calls.unlock)(guarded.lock.as_ptr(), node.as_ptr()) };
        });
    }
}

/// The tests above can fail.
#[test]
fn what_does_not_exclude_is_found_out() {
    let empty = rw::find(EMPTY).unwrap().unwrap().calls;
    for writes in [1, 4] {
        let found = limited("empty", move || {
            (0..1_000).any(|_| {
                let (equal, counts) = share(empty, 4, 5_000, writes);
                !equal || counts != [20_000 / u64::from(writes); 2]
            })
        });
        assert!(found, "lost additions went unnoticed");
    }
}

/// One node serves many locks of a peer, one after the other and nested in no way, as in a hash table of
/// locks; and locks come and go while the nodes stay.
#[test]
fn a_node_serves_one_lock_after_the_other() {
    const LOCKS: usize = 7;
    const ROUNDS: usize = 700;
    for peer in locks() {
        let (name, calls) = (peer.name, peer.calls);
        let sound = limited(name, move || {
            let nodes: Vec<_> = (0..2).map(|_| Node::new(&calls)).collect();
            (0..3).all(|_| {
                let table: Vec<_> = (0..LOCKS).map(|_| Guarded::new(&calls)).collect();
                let equal = thread::scope(|scope| {
                    let running: Vec<_> = nodes
                        .iter()
                        .enumerate()
                        .map(|(first, node)| {
                            let table = &table;
                            // By reference a node would be shared; each is lent to one thread.
                            let node = Lent(node);
                            scope.spawn(move || {
                                let node = node;
                                (0..ROUNDS)
                                    .all(|round| table[(first + round) % LOCKS].add(&calls, node.0, 50))
                            })
                        })
                        .collect();
                    running.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<bool>>()
                });
                let each = (2 * ROUNDS / LOCKS) as u64;
                !equal.contains(&false) && table.into_iter().all(|mut guarded| guarded.counts() == [each; 2])
            })
        });
        assert!(sound, "{name}");
    }
}

struct Lent<'a>(&'a Node);

// SAFETY: one thread has it at a time.
unsafe impl Send for Lent<'_> {}

/// A lock is free once it is unlocked, for whoever comes, also for threads that end and for nodes that are
/// new.
#[test]
fn a_lock_survives_the_threads_and_nodes_that_used_it() {
    for peer in locks() {
        let (name, calls) = (peer.name, peer.calls);
        let total = limited(name, move || {
            let guarded = Arc::new(Guarded::new(&calls));
            for _ in 0..20 {
                let guarded = Arc::clone(&guarded);
                let thread = thread::spawn(move || {
                    let node = Node::new(&calls);
                    assert!((0..10).all(|_| guarded.add(&calls, &node, 0)));
                });
                thread.join().unwrap();
            }
            Arc::into_inner(guarded).expect("all threads have ended").counts()
        });
        assert_eq!(total, [200; 2], "{name}");
    }
}

/// Whoever waits for a lock that is not said to spin uses no CPU after a while.
#[test]
fn those_that_are_not_said_to_spin_sleep() {
    let alike = locks().into_iter().map(|peer| (peer.name, peer.spins, peer.calls, peer.calls));
    let apart = rw_locks().into_iter().flat_map(|peer| {
        let (write, read) = (peer.calls.write, peer.calls.read());
        [(write, read), (read, write)].map(|(holds, waits)| (peer.name, peer.spins, holds, waits))
    });
    for (name, _, holds, calls) in alike.chain(apart).filter(|(_, spins, ..)| !spins) {
        limited(name, move || {
            let guarded = Arc::new(Guarded::new(&calls));
            let node = Node::new(&calls);
            // SAFETY: lock and node live, and this thread unlocks what it locked.
            unsafe { (holds.lock)(guarded.lock.as_ptr(), node.as_ptr()) };
            let (tell, told) = mpsc::channel();
            let waiter = thread::spawn({
                let guarded = Arc::clone(&guarded);
                move || {
                    // SAFETY: a plain query.
                    tell.send(unsafe { libc::gettid() }).unwrap();
                    guarded.add(&calls, &Node::new(&calls), 0)
                }
            });
            let waiting = told.recv().unwrap();
            // In the end; the limit is on the whole. A spinner that yields is runnable whenever one looks.
            let mut times = 0;
            while times < 20 {
                times = if asleep(waiting) { times + 1 } else { 0 };
                thread::sleep(Duration::from_millis(1));
            }
            // SAFETY: as above.
            unsafe { (holds.unlock)(guarded.lock.as_ptr(), node.as_ptr()) };
            assert!(waiter.join().unwrap());
        });
    }
}
