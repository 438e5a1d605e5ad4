//! Files that are cut short, torn or damaged.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use poundlock_statfile::writer::{Manner, Options};
use poundlock_statfile::{ArrayEnd, Error, layout, read};

use crate::common::{self, Lock, NOWHERE, SMALL, contended_pair, here, host, pair, start};

/// A small file with some of everything in it, as bytes.
fn sample() -> Vec<u8> {
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    SAMPLE.get_or_init(make_sample).clone()
}

fn make_sample() -> Vec<u8> {
    host!(Sample);
    let directory = tempfile::tempdir().expect("a directory");
    const OPTIONS: Options =
        Options { sizes: &[1 << 20], locks: 128, stacks: 64, modules: 128, recycle_after: 16, ..SMALL };
    let recorder = start::<Sample>(directory.path(), OPTIONS);
    let locks: Vec<Lock> = (0..40).map(|_| Lock::default()).collect();
    let work = || {
        for (n, lock) in locks.iter().enumerate() {
            recorder.created(lock.seen(), here());
            pair::<Sample>(lock.seen());
            if n % 3 == 0 {
                contended_pair::<Sample>(lock.seen(), here());
            }
            if n % 4 == 0 {
                recorder.destroyed(lock.seen(), NOWHERE);
            }
            recorder.event(n);
            recorder.duration(n % 3, 1 << n);
            recorder.array_used(1 + n as u32);
            if n % 5 == 0 {
                let end = ArrayEnd { key: n as i32, semaphores: 1, variant: 1, figures: [n as u64; 12] };
                recorder.array_removed(1 + n as u32, &end);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work).join().expect("no panic");
        scope.spawn(work).join().expect("no panic");
    });
    work();
    std::mem::forget(recorder.wait_begin(locks[1].seen(), here(), Manner::LOCK));
    std::fs::read(common::only_file(directory.path())).expect("it can be read")
}

/// A small generator of numbers: the test is the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

fn in_a_file(bytes: &[u8], path: &Path) {
    std::fs::write(path, bytes).expect("it can be written");
}

#[test]
fn a_file_cut_short_reads_as_far_as_it_goes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("short");
    let bytes = sample();
    in_a_file(&bytes, &path);
    let whole = read(&path, common::now()).expect("a good file");
    assert!(whole.locks.len() > 30 && whole.locks.iter().any(|lock| !lock.sites.is_empty()));
    assert_eq!(whole.arrays.len(), 40);
    let total = |s: &poundlock_statfile::Snapshot| s.locks.iter().map(|l| l.acquisitions).sum::<u64>();
    for len in (0..bytes.len()).step_by(1021).chain([0, 1, 8, 12, 4096, 8191]) {
        in_a_file(&bytes[..len], &path);
        match read(&path, common::now()) {
            Ok(found) => assert!(total(&found) <= total(&whole)),
            // Without the two pages of the header there is nothing to go by.
            Err(Error::NotAStatFile | Error::Version(0)) => assert!(len < 8192, "{len}"),
            Err(error) => panic!("{len}: {error}"),
        }
    }
}

#[test]
fn damage_never_panics() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("damaged");
    let bytes = sample();
    // Where there is anything: damage to a hole that nothing leads to would test nothing.
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    in_a_file(&bytes, &path);
    let file = std::fs::File::options().write(true).open(&path).expect("it is there");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut readable = 0;
    for round in 0..3000 {
        let damage: Vec<(usize, u8)> = (0..1 + round % 8)
            .map(|_| {
                // Half of it in the header, on which all else hangs.
                let at = match random.below(2) {
                    0 => layout::HEADER_OFFSET as usize + random.below(400),
                    _ => used[random.below(used.len())],
                };
                let byte = [0, 0xff, 1, 0x80, random.below(256) as u8][random.below(5)];
                (at, byte)
            })
            .collect();
        for (at, byte) in &damage {
            file.write_all_at(&[*byte], *at as u64).expect("it can be written");
        }
        readable += u32::from(read(&path, common::now()).is_ok());
        for (at, _) in &damage {
            file.write_all_at(&bytes[*at..=*at], *at as u64).expect("it can be written");
        }
    }
    assert!((300..3000).contains(&readable), "both outcomes were met: {readable}");
    assert!(read(&path, common::now()).is_ok(), "the damage was undone");
}

#[test]
fn other_files_are_told_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("other");
    assert!(matches!(read(&path, 0), Err(Error::Io(_))));
    in_a_file(&[7; 10_000], &path);
    assert!(matches!(read(&path, 0), Err(Error::NotAStatFile)));
    let mut bytes = sample();
    bytes[layout::VERSION_OFFSET as usize] = 99;
    in_a_file(&bytes, &path);
    assert!(matches!(read(&path, 0), Err(Error::Version(99))));
}
