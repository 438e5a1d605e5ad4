//! Threads that wait for a lock of Rust's std, and sum up by themselves how long. Argument: how often each takes
//! it.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

static BUSY: Mutex<u64> = Mutex::new(0);

fn work(rounds: u32) -> u128 {
    let mut sum = 0;
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut held = BUSY.lock().unwrap();
        sum += begin.elapsed().as_nanos();
        thread::sleep(Duration::from_millis(1));
        *held += 1;
    }
    sum
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).expect("how often");
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(move || work(rounds))).collect();
    println!("{}", threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u128>());
}
