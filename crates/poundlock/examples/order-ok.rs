//! As `order`, but that both threads take the two locks in the same order.
//!
//! ```console
//! $ cargo build -p poundlock --features stats --example order-ok
//! $ poundlock check -- target/debug/examples/order-ok
//! ```

use std::thread;

use poundlock::{Mutex, RwLock};

static TOTAL: Mutex<u64> = Mutex::new(0);
static NAMES: RwLock<Vec<&str>> = RwLock::new(Vec::new());

fn enter(name: &'static str) {
    let mut names = NAMES.write();
    names.push(name);
    *TOTAL.lock() += 1;
}

fn average() -> u64 {
    let names = NAMES.read();
    let total = TOTAL.lock();
    *total / names.len() as u64
}

fn main() {
    thread::spawn(|| enter("first")).join().expect("it does not panic");
    let average = thread::spawn(average).join().expect("it does not panic");
    println!("{average}");
}
