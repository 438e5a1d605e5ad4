//! Files of checked processes that are damaged, or cut short: whatever is in them, they are read to their end.

use std::cell::Cell;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use poundlock_statfile::writer::{CallSite, CheckRoom, Ended, Host, LockRef, Manner, Options, Recorder};
use poundlock_statfile::{LockKind, layout};

use crate::observe::symbols::Symbols;

use super::collector::Collector;
use super::finding::Finding;
use super::kinds::{Kind, Wanted};
use super::process::Process;
use super::suppress::Suppressions;
use super::watcher::Settings;

/// The recorder of a process under check, in this one.
struct Checked;

static RECORDER: Recorder<Checked> = Recorder::new();

thread_local! {
    static WORD: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
}

// SAFETY: a plain thread-local cell without a destructor, null at first.
unsafe impl Host for Checked {
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

/// As small as can be: all of it is written anew in each round that changes much of it.
const SMALL: Options = Options {
    sizes: &[4 << 20],
    locks: 256,
    stacks: 64,
    modules: 512,
    arrays: 64,
    check: Some(CheckRoom { edges: 128, limit: 1 << 20, pairs: 128, log: 256 }),
    ..Options::DEFAULT
};

/// Two orders, misuse, and threads that hold locks and wait.
fn sample(directory: &Path) -> Vec<u8> {
    let name = CString::new(directory.as_os_str().as_bytes()).expect("no zero");
    assert!(RECORDER.init(&name, b"lock", b"rwlock", SMALL));
    let words: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
    let lock = |n: usize| {
        let word = &words[n];
        LockRef { word, address: std::ptr::from_ref(word).addr(), kind: LockKind::Mutex, writers: None }
    };
    let nowhere = CallSite::at(0);
    let take = |n| RECORDER.acquired(lock(n), nowhere, Manner::LOCK);
    let give = |n| RECORDER.released(lock(n), nowhere);
    let both = |first, second| {
        take(first);
        take(second);
        give(second);
        give(first);
    };
    let (waits, wait) = (std::sync::Barrier::new(3), std::sync::Barrier::new(3));
    std::thread::scope(|scope| {
        scope.spawn(|| both(0, 1)).join().expect("no panic");
        scope.spawn(|| both(1, 0)).join().expect("no panic");
        // One ends with a lock, and a lock is destroyed that another one holds.
        scope.spawn(|| take(2)).join().expect("no panic");
        scope.spawn(|| RECORDER.destroyed(lock(2), nowhere)).join().expect("no panic");
        for (first, second) in [(3, 4), (4, 3)] {
            let (waits, wait, lock) = (&waits, &wait, &lock);
            scope.spawn(move || {
                take(first);
                let begun = RECORDER.wait_begin(lock(second), nowhere, Manner::LOCK);
                waits.wait();
                wait.wait();
                drop(begun);
                give(first);
            });
        }
        take(5);
        RECORDER.blocks(LockRef { kind: LockKind::Condition, ..lock(6) }, nowhere);
        waits.wait();
        let files: Vec<_> = std::fs::read_dir(directory).expect("it is there").collect();
        let path = files.into_iter().next().expect("a file").expect("an entry").path();
        let bytes = std::fs::read(path).expect("it can be read");
        wait.wait();
        RECORDER.unblocked(Ended::Done);
        give(5);
        bytes
    })
}

/// What a process leaves comes to these findings; `None` if it is told that the file is none.
fn follow(path: &Path, symbols: &Symbols) -> Option<(Vec<Finding>, bool)> {
    let wanted = Wanted::parse(Some("all"), true).expect("well formed");
    let mut collector = Collector::new(wanted, Suppressions::default(), false);
    let held_over_ns = Some(1_000_000);
    let settings = Settings { dir: path.to_owned(), held_over_ns, guard_sets: 64, ends: false, begin_ns: 0 };
    // Whatever the process is in the file, it is none that runs.
    let mut process = Process::open(path, 0, |_| u32::MAX / 2, 64).ok().flatten()?;
    for round in 1..5 {
        process.follow(false, round * 100_000_000, &settings, symbols, &mut collector);
    }
    process.follow(true, 1_000_000_000, &settings, symbols, &mut collector);
    let _ = process.sums();
    let whole = process.is_whole();
    Some((collector.finish().0, whole))
}

/// Numbers that are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

#[test]
fn damage_and_cuts_never_panic() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = sample(directory.path());
    let path = directory.path().join("damaged");
    let symbols = Symbols::new();
    let anew = |len: usize| std::fs::write(&path, &bytes[..len]).expect("it can be written");

    anew(bytes.len());
    let (findings, whole) = follow(&path, &symbols).expect("a good file");
    let kinds: Vec<Kind> = findings.iter().map(|finding| finding.kind).collect();
    for kind in [Kind::Order, Kind::ExitHeld, Kind::Deadlock] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert!(whole);

    // Where there is anything: damage to a hole that nothing leads to would test nothing.
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let last = used.last().copied().unwrap_or(0);
    for len in (0..=last).step_by(last / 40 + 1) {
        anew(len);
        assert!(follow(&path, &symbols).is_none_or(|(found, _)| found.len() <= findings.len()), "{len}");
    }

    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut readable = 0;
    for round in 0..400 {
        anew(bytes.len());
        let file = std::fs::File::options().write(true).open(&path).expect("it is there");
        for _ in 0..1 + round % 8 {
            // A third of it in the header, on which all else hangs.
            let at = match random.below(3) {
                0 => layout::HEADER_OFFSET as usize + random.below(400),
                _ => used[random.below(used.len())],
            };
            let byte = [0, 0xff, 1, 0x80, random.below(256) as u8][random.below(5)];
            file.write_all_at(&[byte], at as u64).expect("it can be written");
        }
        readable += u32::from(follow(&path, &symbols).is_some());
    }
    assert!((50..400).contains(&readable), "both outcomes were met: {readable}");
}

/// One that is cut short while it is followed says so, and loses nothing that was found.
#[test]
fn a_file_that_is_cut_short_meanwhile_is_told_from_a_whole_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cut");
    let file = std::fs::File::create(&path).expect("it can be made");
    let mut page = vec![0; (layout::HEADER_OFFSET + layout::HEADER_SIZE) as usize];
    page[..8].copy_from_slice(&layout::MAGIC);
    page[8..12].copy_from_slice(&layout::VERSION.to_ne_bytes());
    page[layout::HEADER_OFFSET as usize] = 1;
    file.write_all_at(&page, 0).expect("it can be written");
    let process = Process::open(&path, 0, |pid| pid, 64).expect("it can be read").expect("it is finished");
    assert!(process.is_whole());
    file.set_len(4096).expect("it can be cut");
    assert!(!process.is_whole());
}
