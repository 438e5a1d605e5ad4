//! A bounded queue between threads: `cargo run --release -p poundlock --example bounded_queue [PRODUCERS]
//! [CONSUMERS] [ITEMS] [ROOM]`
//!
//! A [`Mutex`] and two [`Condvar`]s, one for each thing that somebody may wait for. Those who are notified
//! are moved to the mutex and not woken before they can have it, so it costs nothing to notify with the mutex
//! held.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use poundlock::{Condvar, Mutex};

/// A queue of limited length; closed once nobody will add to it any more.
struct Queue<T> {
    state: Mutex<State<T>>,
    some: Condvar,
    room: Condvar,
    most: usize,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    fn new(most: usize) -> Self {
        let state = State { items: VecDeque::with_capacity(most), closed: false };
        Queue { state: Mutex::new(state), some: Condvar::new(), room: Condvar::new(), most }
    }

    /// Waits for room. Gives the item back if the queue is closed.
    fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.state.lock();
        self.room.wait_while(&mut state, |state| state.items.len() == self.most && !state.closed);
        if state.closed {
            return Err(item);
        }
        state.items.push_back(item);
        self.some.notify_one();
        Ok(())
    }

    /// Waits for an item; `None` once the queue is closed and empty.
    fn pop(&self) -> Option<T> {
        let mut state = self.state.lock();
        self.some.wait_while(&mut state, |state| state.items.is_empty() && !state.closed);
        let item = state.items.pop_front();
        self.room.notify_one();
        item
    }

    /// As [`Queue::pop`], but waits until that time only.
    fn pop_until(&self, end: Instant) -> Option<T> {
        let mut state = self.state.lock();
        self.some.wait_while_until(&mut state, |state| state.items.is_empty() && !state.closed, end);
        let item = state.items.pop_front();
        self.room.notify_one();
        item
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.some.notify_all();
        self.room.notify_all();
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let producers: u64 = arguments.next().unwrap_or(4);
    let consumers: u64 = arguments.next().unwrap_or(4);
    let items: u64 = arguments.next().unwrap_or(100_000);
    let room = arguments.next().unwrap_or(64) as usize;

    let queue = Queue::new(room);
    assert_eq!(queue.pop_until(Instant::now() + Duration::from_millis(1)), None, "nothing is there yet");
    let (sum, count) = std::thread::scope(|scope| {
        let queue = &queue;
        let producing: Vec<_> = (0..producers)
            .map(|first| {
                scope.spawn(move || {
                    for item in (first..items).step_by(producers as usize) {
                        queue.push(item).expect("open");
                    }
                })
            })
            .collect();
        let consuming: Vec<_> = (0..consumers)
            .map(|_| {
                scope.spawn(move || {
                    std::iter::from_fn(|| queue.pop())
                        .fold((0, 0), |(sum, count), item| (sum + item, count + 1))
                })
            })
            .collect();
        for producer in producing {
            producer.join().expect("no panic");
        }
        queue.close();
        consuming
            .into_iter()
            .map(|consumer| consumer.join().expect("no panic"))
            .fold((0, 0), |(sum, count), (s, c)| (sum + s, count + c))
    });
    assert_eq!(queue.push(0), Err(0), "closed");
    assert_eq!((sum, count), (items * items.saturating_sub(1) / 2, items), "each item comes out once");
    println!(
        "{count} items from {producers} producers to {consumers} consumers through room for {room}: sum {sum}"
    );
}
