//! Six threads share a `std::sync::Mutex`. Each thread times its own waits and prints their sum at the end.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

#[inline(never)]
fn book(ledger: &Mutex<Vec<u64>>) -> Duration {
    let begin = Instant::now();
    let mut balances = ledger.lock().unwrap();
    let waited = begin.elapsed();
    for balance in balances.iter_mut() {
        *balance = balance.wrapping_mul(31).wrapping_add(7);
    }
    waited
}

fn main() {
    let seconds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let ledger = Arc::new(Mutex::new(vec![1; 200_000]));
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let tellers: Vec<_> = (0..6)
        .map(|number| {
            let ledger = ledger.clone();
            let work = move || {
                let mut waited = Duration::ZERO;
                while Instant::now() < end {
                    waited += book(&ledger);
                }
                (waited, begin.elapsed())
            };
            thread::Builder::new().name(format!("teller-{number}")).spawn(work).unwrap()
        })
        .collect();
    let (mut waited, mut lived) = (Duration::ZERO, Duration::ZERO);
    for teller in tellers {
        let (one, life) = teller.join().unwrap();
        (waited, lived) = (waited + one, lived + life);
    }
    println!("waited for the ledger: {waited:.2?} of {lived:.2?} thread time");
}
