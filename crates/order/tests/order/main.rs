//! Random programs, whose order of locks is found in other ways as well.
//!
//! A seed that fails is named. `POUNDLOCK_ORDER_SEEDS=4711` runs that one, `FROM..TO` others than the usual
//! ones.

mod deadlocks;
mod oracle;
mod recorder;

/// The seeds to run: the first ones, this number of them, unless others are asked for.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("POUNDLOCK_ORDER_SEEDS") else { return 0..usual };
    match text.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => text.parse().unwrap()..text.parse::<u64>().unwrap() + 1,
    }
}
