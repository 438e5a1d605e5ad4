//! Two threads take two locks in opposite orders. They do not meet here: the second one begins when the first one
//! has ended. On another day each has its first lock and waits for that of the other, for ever.
//!
//! ```console
//! $ cargo build -p poundlock --features stats --example order
//! $ poundlock check -- target/debug/examples/order
//! ```

use std::thread;

use poundlock::{Mutex, RwLock};

static TOTAL: Mutex<u64> = Mutex::new(0);
static NAMES: RwLock<Vec<&str>> = RwLock::new(Vec::new());

fn enter(name: &'static str) {
    let mut names = NAMES.write(); // named
    names.push(name);
    *TOTAL.lock() += 1; // named
}

fn average() -> u64 {
    let total = TOTAL.lock(); // named
    *total / NAMES.read().len() as u64 // named
}

fn main() {
    thread::spawn(|| enter("first")).join().expect("it does not panic");
    let average = thread::spawn(average).join().expect("it does not panic");
    println!("{average}");
}
