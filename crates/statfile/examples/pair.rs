//! What recording adds to an uncontended lock and unlock: the same compare-and-swap and exchange, with and
//! without it, in turn, the best of many rounds each. And what it adds to a wait at a place that is known
//! already, less the waiting.
//!
//! `cargo run --release -p poundlock-statfile --example pair [LOCKS]`

use std::cell::Cell;
use std::ffi::CString;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use poundlock_statfile::LockKind;
use poundlock_statfile::writer::{CallSite, Host, LockRef, Options, Recorder};

struct Bench;

static RECORDER: Recorder<Bench> = Recorder::new();

thread_local! {
    static WORD: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
}

// SAFETY: a plain thread-local cell, null at first.
unsafe impl Host for Bench {
    fn word() -> *mut u8 {
        WORD.get()
    }
    fn set_word(word: *mut u8) {
        WORD.set(word);
    }
    fn recorder() -> &'static Recorder<Self> {
        &RECORDER
    }
}

/// As large as a `pthread_mutex_t`.
#[derive(Default)]
#[repr(C)]
struct Lock {
    state: AtomicU32,
    stat: AtomicU32,
    _rest: [u64; 4],
}

impl Lock {
    fn seen(&self) -> LockRef<'_> {
        LockRef { word: &self.stat, address: &raw const *self as usize, kind: LockKind::Mutex }
    }
}

/// As an exported function is: not inlined into its caller.
#[inline(never)]
fn lock<const RECORDED: bool>(lock: &Lock) {
    if lock.state.compare_exchange(0, 1, Acquire, Relaxed).is_ok() && RECORDED {
        RECORDER.acquired(lock.seen());
    }
}

#[inline(never)]
fn unlock<const RECORDED: bool>(lock: &Lock) {
    if RECORDED {
        RECORDER.released(lock.seen());
    }
    lock.state.swap(0, Release);
}

/// A wait that is over at once.
#[inline(never)]
fn wait(lock: &Lock) {
    // In this function, and in its frame.
    let (pc, place) = (wait as *const () as usize, black_box(0u8));
    let sp = black_box(&raw const place) as usize & !7;
    let wait = RECORDER.wait_begin(lock.seen(), CallSite { pc, sp });
    RECORDER.acquired_after_wait(lock.seen(), wait);
    RECORDER.released(lock.seen());
}

fn waits(locks: &[Lock]) -> Duration {
    let start = Instant::now();
    for (_, l) in (0..PAIRS).zip(locks.iter().cycle()) {
        wait(black_box(l));
    }
    start.elapsed()
}

/// Short rounds, many of them: the best is one that nothing interrupted.
const PAIRS: u32 = 20_000;

fn round<const RECORDED: bool>(locks: &[Lock]) -> Duration {
    let start = Instant::now();
    for (_, l) in (0..PAIRS).zip(locks.iter().cycle()) {
        lock::<RECORDED>(black_box(l));
        unlock::<RECORDED>(black_box(l));
    }
    start.elapsed()
}

fn main() {
    let count = std::env::args().nth(1).map_or(1, |n| n.parse().expect("a number of locks"));
    let locks: Vec<Lock> = (0..count).map(|_| Lock::default()).collect();
    let directory = std::env::temp_dir().join(format!("poundlock-pair-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let name = CString::new(directory.as_os_str().as_bytes()).expect("a path");
    assert!(RECORDER.init(&name, b"pair", b"", Options::DEFAULT));

    let (mut bare, mut recorded, mut waited) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..1000 {
        bare = bare.min(round::<false>(&locks));
        recorded = recorded.min(round::<true>(&locks));
    }
    for _ in 0..100 {
        waited = waited.min(waits(&locks));
    }
    let ns = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(PAIRS);
    println!("{count} locks: pair {:.1} ns, recorded {:.1} ns", ns(bare), ns(recorded));
    println!(
        "recording adds {:.1} ns; a wait, its acquisition and its release {:.1} ns",
        ns(recorded) - ns(bare),
        ns(waited)
    );
    std::fs::remove_dir_all(&directory).expect("the directory goes");
}
