//! From calls to waits: when each began and ended and how, who ended it, and whether in vain.
//!
//! A wait is a call that waits, from its entry to its exit. Who ended it is the thread whose wake-up came
//! first among those, for the same word, that had woken fewer than they say: the kernel wakes waiters in the
//! order of their coming. A waiter that was woken and waits for the same again at once was woken in vain.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::stacks::StackId;

/// A thread that waits again so soon after it was woken has found nothing to do.
pub(super) const AT_ONCE_NS: u64 = 10_000;
/// As many wake-ups of a word are kept whose waiters have not been seen to go on,
const WAKES: usize = 64;
/// and words to which waiters were moved.
const MOVES: usize = 16;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// `expected` is what the word was to be.
    Wait {
        word: u64,
        expected: u32,
        inherits: bool,
    },
    /// Wakes as many at most; moves others to another word.
    Wake {
        word: u64,
        also: Option<u64>,
        moved_to: Option<u64>,
    },
    Other,
}

const WAITV: u32 = crate::observe::calls::FUTEX_WAITV as u32;
const WAIT: u32 = crate::observe::calls::FUTEX_WAIT as u32;
/// `futex_wake` and `futex_requeue`, likewise.
const WAKE: u32 = 454;
const REQUEUE: u32 = 456;

impl Call {
    /// From the number of a call and its arguments. Of one that waits for several words the first is `first`.
    pub(super) fn of(
        number: u32,
        arguments: &[u64; 6],
        first: impl FnOnce(u64) -> Option<(u64, u32)>,
    ) -> Call {
        let [word, operation, third, _, second, _] = *arguments;
        match number {
            WAIT => Call::Wait { word, expected: operation as u32, inherits: false },
            WAKE => Call::Wake { word, also: None, moved_to: None },
            WAITV | REQUEUE => match (number, first(word)) {
                (WAITV, Some((word, expected))) => Call::Wait { word, expected, inherits: false },
                (REQUEUE, Some((word, _))) => Call::Wake { word, also: None, moved_to: None },
                _ => Call::Other,
            },
            _ => {
                const LOCK_PI2: libc::c_int = 13;
                let expected = third as u32;
                match operation as libc::c_int & libc::FUTEX_CMD_MASK {
                    libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAIT_REQUEUE_PI => {
                        Call::Wait { word, expected, inherits: false }
                    }
                    libc::FUTEX_LOCK_PI | LOCK_PI2 => Call::Wait { word, expected, inherits: true },
                    libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET | libc::FUTEX_UNLOCK_PI => {
                        Call::Wake { word, also: None, moved_to: None }
                    }
                    libc::FUTEX_WAKE_OP => Call::Wake { word, also: Some(second), moved_to: None },
                    libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_CMP_REQUEUE_PI => {
                        Call::Wake { word, also: None, moved_to: Some(second) }
                    }
                    _ => Call::Other,
                }
            }
        }
    }
}

/// A call, or the end of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) time: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) what: Happened,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Happened {
    /// `object`: the lock, where its word is not in it; 0 if it is not known so.
    Enter {
        call: Call,
        stack: StackId,
        object: u64,
    },
    Exit {
        result: i64,
    },
    /// The thread has ended.
    Ended,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Woken,
    TimedOut,
    Interrupted,
}

/// Where, and for what: waits that are counted as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    /// The word, or the object, where that is known to be another.
    pub(super) word: u64,
    pub(super) own_object: bool,
    pub(super) stack: StackId,
    pub(super) sort: Sort,
}

/// What the call itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Sort {
    /// What the word was to be, as far as small numbers tell: see [`Sort::BEYOND`].
    pub(super) expected: u8,
    pub(super) inherits: bool,
}

impl Sort {
    /// A number that is not told apart from others.
    pub(super) const BEYOND: u8 = u8::MAX;

    fn of(expected: u32, inherits: bool) -> Sort {
        let expected = if inherits { 0 } else { u8::try_from(expected).unwrap_or(Sort::BEYOND) };
        // Counters take all values.
        Sort { expected: if expected > 3 { Sort::BEYOND } else { expected }, inherits }
    }
}

/// The figures of a [`Place`].
#[derive(Clone, Debug, Default)]
pub(super) struct Waited {
    /// Each call counts.
    pub(super) calls: u64,
    pub(super) ns: u64,
    pub(super) max_ns: u64,
    pub(super) timeouts: u64,
    /// Calls that followed at once on a wake-up for the same,
    pub(super) again: u64,
    /// how long it took until they followed,
    pub(super) between_ns: u64,
    /// and the longest from the first of such calls to the end of the last.
    pub(super) max_with_again_ns: u64,
    /// By power of two of nanoseconds.
    pub(super) buckets: Vec<u64>,
    /// By the stack that woke: how often, and how long the woken had waited.
    pub(super) woken_by: FxHashMap<StackId, (u64, u64)>,
    /// By thread: how often and how long.
    pub(super) threads: FxHashMap<u32, (u64, u64)>,
}

impl Waited {
    fn add(&mut self, tid: u32, ns: u64, ending: Option<Ending>, chain_ns: u64) {
        self.calls += 1;
        self.ns += ns;
        self.max_ns = self.max_ns.max(ns);
        self.max_with_again_ns = self.max_with_again_ns.max(chain_ns);
        self.timeouts += u64::from(ending == Some(Ending::TimedOut));
        // A wait that goes on has no length yet.
        if ending.is_some() {
            let bucket = ns.max(1).ilog2() as usize;
            self.buckets.resize(self.buckets.len().max(bucket + 1), 0);
            self.buckets[bucket] += 1;
        }
        let thread = self.threads.entry(tid).or_default();
        thread.0 += 1;
        thread.1 += ns;
    }
}

/// A wait that goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) place: Place,
    word: u64,
    pub(super) since: u64,
    /// When the first of the calls began that followed each other at once.
    chain_since: u64,
}

/// A thread, as far as its calls are concerned.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    pid: u32,
    waiting: Option<Waiting>,
    /// What it waited for last, or waits for.
    last: Option<Place>,
    /// The word whose waiters it is about to wake.
    wakes: Option<u64>,
    /// The wait that ended with a wake-up, if no call has followed: what for, when, and when it began.
    woken: Option<(u64, u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Wake {
    by: u32,
    time: u64,
    /// When the call ended, and how many it woke: unknown at first.
    end: u64,
    woke: u32,
    seen: u32,
    stack: StackId,
}

/// What is known of the words of all processes.
#[derive(Default)]
pub(super) struct Waits {
    threads: FxHashMap<u32, Thread>,
    wakes: FxHashMap<(u32, u64), VecDeque<Wake>>,
    moves: FxHashMap<(u32, u64), VecDeque<u64>>,
    /// By process.
    pub(super) places: FxHashMap<u32, FxHashMap<Place, Waited>>,
    pub(super) totals: Totals,
}

/// All calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) calls: u64,
    /// Those that slept, and have ended.
    pub(super) waits: u64,
    pub(super) wakes: u64,
    /// Those that were to sleep and found another number in the word.
    pub(super) not_slept: u64,
}

impl Waits {
    /// Takes in what happened next.
    pub(super) fn add(&mut self, event: Event) {
        let Event { time, pid, tid, what } = event;
        match what {
            Happened::Enter { call, stack, object } => self.enter(time, pid, tid, call, (stack, object)),
            Happened::Exit { result } => self.exit(time, tid, result),
            Happened::Ended => {
                self.threads.remove(&tid);
            }
        }
    }

    fn enter(&mut self, time: u64, pid: u32, tid: u32, call: Call, (stack, object): (StackId, u64)) {
        self.totals.calls += 1;
        let thread = self.threads.entry(tid).or_default();
        thread.pid = pid;
        // The end of a call that was lost: its length is not known.
        thread.waiting = None;
        thread.wakes = None;
        let woken = thread.woken.take();
        match call {
            Call::Wait { word, expected, inherits } => {
                let own_object = object != 0;
                let of = if own_object { object } else { word };
                let place = Place { word: of, own_object, stack, sort: Sort::of(expected, inherits) };
                // Condition variables have two words side by side.
                let same = woken
                    .filter(|&(last, end, _)| last & !7 == of & !7 && time.saturating_sub(end) < AT_ONCE_NS);
                let chain_since = same.map_or(time, |(_, _, since)| since);
                thread.waiting = Some(Waiting { place, word, since: time, chain_since });
                thread.last = Some(place);
                if let Some((_, end, _)) = same {
                    let waited = self.places.entry(pid).or_default().entry(place).or_default();
                    waited.again += 1;
                    waited.between_ns += time.saturating_sub(end);
                }
            }
            Call::Wake { word, also, moved_to } => {
                self.totals.wakes += 1;
                thread.wakes = Some(word);
                let wake = Wake { by: tid, time, end: u64::MAX, woke: u32::MAX, seen: 0, stack };
                for word in [Some(word), also].into_iter().flatten() {
                    let wakes = self.wakes.entry((pid, word)).or_default();
                    if wakes.len() == WAKES {
                        wakes.pop_front();
                    }
                    wakes.push_back(wake);
                }
                if let Some(to) = moved_to {
                    let moves = self.moves.entry((pid, word)).or_default();
                    moves.retain(|&other| other != to);
                    if moves.len() == MOVES {
                        moves.pop_front();
                    }
                    moves.push_back(to);
                }
            }
            Call::Other => {}
        }
    }

    fn exit(&mut self, time: u64, tid: u32, result: i64) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let pid = thread.pid;
        if let Some(word) = thread.wakes.take() {
            return self.woke(time, pid, tid, word, result);
        }
        let Some(waiting) = thread.waiting.take() else { return };
        let ending = match result {
            0.. => Ending::Woken,
            _ if result == -i64::from(libc::EAGAIN) => {
                self.totals.not_slept += 1;
                return;
            }
            _ if result == -i64::from(libc::ETIMEDOUT) => Ending::TimedOut,
            _ => Ending::Interrupted,
        };
        if ending == Ending::Woken {
            thread.woken = Some((waiting.place.word, time, waiting.chain_since));
        }
        self.totals.waits += 1;
        let ns = time.saturating_sub(waiting.since);
        let by = if ending == Ending::Woken { self.waker(pid, &waiting, time) } else { None };
        let waited = self.places.entry(pid).or_default().entry(waiting.place).or_default();
        waited.add(tid, ns, Some(ending), time.saturating_sub(waiting.chain_since));
        if let Some(stack) = by {
            let woken = waited.woken_by.entry(stack).or_default();
            woken.0 += 1;
            woken.1 += ns;
        }
    }

    /// The end of a call that wakes.
    fn woke(&mut self, time: u64, pid: u32, tid: u32, word: u64, result: i64) {
        let Some(wakes) = self.wakes.get_mut(&(pid, word)) else { return };
        // Whom a call moved it has not woken, and counts all the same.
        if let Some(wake) = wakes.iter_mut().rev().find(|wake| wake.by == tid && wake.end == u64::MAX) {
            wake.end = time;
            wake.woke = u32::try_from(result).unwrap_or(0);
        }
        wakes.retain(|wake| wake.woke > wake.seen);
        if wakes.is_empty() {
            self.wakes.remove(&(pid, word));
        }
    }

    /// The stack of the wake-up that ended a wait.
    fn waker(&mut self, pid: u32, waiting: &Waiting, time: u64) -> Option<StackId> {
        let moved = self.moves.get(&(pid, waiting.word)).into_iter().flatten();
        let mut words = std::iter::once(waiting.word).chain(moved.copied());
        words.find_map(|word| {
            let wakes = self.wakes.get_mut(&(pid, word))?;
            let fits = |wake: &Wake| wake.time <= time && wake.end >= waiting.since && wake.seen < wake.woke;
            let at = wakes.iter().position(fits)?;
            wakes[at].seen += 1;
            let stack = wakes[at].stack;
            if wakes[at].seen == wakes[at].woke {
                wakes.remove(at);
            }
            if wakes.is_empty() {
                self.wakes.remove(&(pid, word));
            }
            Some(stack)
        })
    }

    /// Waits that go on, with their threads' processes.
    pub(super) fn going_on(&self) -> impl Iterator<Item = (u32, u32, Waiting)> {
        self.threads.iter().filter_map(|(&tid, thread)| Some((thread.pid, tid, thread.waiting?)))
    }

    /// What threads wait for or waited for last, with their processes.
    pub(super) fn last(&self) -> impl Iterator<Item = (u32, u32, Place)> {
        self.threads.iter().filter_map(|(&tid, thread)| Some((thread.pid, tid, thread.last?)))
    }

    /// Adds a wait that goes on to a copy of the figures.
    pub(super) fn count_unended(waited: &mut Waited, tid: u32, waiting: &Waiting, now: u64, from: u64) {
        let since = waiting.since.max(from);
        let chain = now.saturating_sub(waiting.chain_since.max(from));
        waited.add(tid, now.saturating_sub(since), None, chain);
    }

    /// The process is another program: nobody waits there any more.
    pub(super) fn executed(&mut self, pid: u32) {
        self.threads.retain(|_, thread| thread.pid != pid);
        self.wakes.retain(|(of, _), _| *of != pid);
        self.moves.retain(|(of, _), _| *of != pid);
    }

    /// Forgets the figures; waits that go on begin now.
    pub(super) fn begin_anew(&mut self, now: u64) {
        self.places.clear();
        self.totals = Totals::default();
        for waiting in self.threads.values_mut().filter_map(|thread| thread.waiting.as_mut()) {
            waiting.since = now;
            waiting.chain_since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 1;
    const WORD: u64 = 0x1000;

    fn enter(time: u64, tid: u32, call: Call, stack: StackId) -> Event {
        Event { time, pid: PID, tid, what: Happened::Enter { call, stack, object: 0 } }
    }

    fn exit(time: u64, tid: u32, result: i64) -> Event {
        Event { time, pid: PID, tid, what: Happened::Exit { result } }
    }

    fn wait(word: u64) -> Call {
        Call::Wait { word, expected: 2, inherits: false }
    }

    fn wake(word: u64) -> Call {
        Call::Wake { word, also: None, moved_to: None }
    }

    fn place(waits: &Waits, stack: StackId) -> &Waited {
        let mut of = waits.places[&PID].iter().filter(|(place, _)| place.stack == stack);
        of.next().expect("it waited there").1
    }

    #[test]
    fn calls_are_known_by_their_operations() {
        let of = |operation: libc::c_int| {
            Call::of(libc::SYS_futex as u32, &[WORD, operation as u64, 2, 0, 0x2000, 0], |_| None)
        };
        assert_eq!(of(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG), wait(WORD));
        assert_eq!(of(0x189), wait(WORD));
        assert_eq!(of(libc::FUTEX_LOCK_PI), Call::Wait { word: WORD, expected: 2, inherits: true });
        assert_eq!(of(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG), wake(WORD));
        assert_eq!(of(libc::FUTEX_WAKE_OP), Call::Wake { word: WORD, also: Some(0x2000), moved_to: None });
        let moved = Call::Wake { word: WORD, also: None, moved_to: Some(0x2000) };
        assert_eq!(of(libc::FUTEX_CMP_REQUEUE), moved);
        let many = Call::of(WAITV, &[0x3000, 1, 0, 0, 0, 0], |at| (at == 0x3000).then_some((WORD, 2)));
        assert_eq!(many, wait(WORD));
    }

    #[test]
    fn a_wait_lasts_from_entry_to_exit_and_has_the_waker_that_came_first() {
        let mut waits = Waits::default();
        // Two wait; one call wakes one of them, a later one the other.
        for event in [
            enter(100, 2, wait(WORD), 12),
            enter(150, 3, wait(WORD), 13),
            enter(200, 4, wake(WORD), 14),
            // The woken may be seen before the call ends that woke it.
            exit(210, 2, 0),
            exit(220, 4, 1),
            enter(300, 5, wake(WORD), 15),
            exit(310, 5, 1),
            exit(400, 3, 0),
        ] {
            waits.add(event);
        }
        assert_eq!((place(&waits, 12).ns, place(&waits, 13).ns), (110, 250));
        assert_eq!(place(&waits, 12).woken_by, FxHashMap::from_iter([(14, (1, 110))]));
        assert_eq!(place(&waits, 13).woken_by, FxHashMap::from_iter([(15, (1, 250))]));
        assert_eq!(waits.totals, Totals { calls: 4, waits: 2, wakes: 2, not_slept: 0 });
        assert!(waits.wakes.is_empty(), "nothing is kept of wake-ups that are over");
    }

    #[test]
    fn what_did_not_sleep_is_no_wait_and_time_limits_are_told() {
        let mut waits = Waits::default();
        for event in [
            enter(100, 2, wait(WORD), 12),
            exit(101, 2, -i64::from(libc::EAGAIN)),
            enter(200, 2, wait(WORD), 12),
            exit(700, 2, -i64::from(libc::ETIMEDOUT)),
            enter(800, 2, wait(WORD), 12),
            exit(900, 2, -512),
            // An end without a beginning.
            exit(50, 9, 0),
        ] {
            waits.add(event);
        }
        let waited = place(&waits, 12);
        assert_eq!((waited.calls, waited.ns, waited.max_ns, waited.timeouts), (2, 600, 500, 1));
        assert_eq!(waits.totals.not_slept, 1);
        assert_eq!(waited.buckets.iter().sum::<u64>(), 2);
    }

    #[test]
    fn waiting_again_at_once_is_in_vain() {
        let mut waits = Waits::default();
        let mut time = 0;
        let mut round = |waits: &mut Waits, pause: u64| {
            waits.add(enter(time, 2, wait(WORD), 12));
            waits.add(exit(time + 1000, 2, 0));
            time += 1000 + pause;
        };
        round(&mut waits, 100);
        round(&mut waits, AT_ONCE_NS * 2);
        round(&mut waits, 100);
        let waited = place(&waits, 12);
        assert_eq!((waited.calls, waited.again, waited.between_ns), (3, 1, 100));
        assert_eq!((waited.max_ns, waited.max_with_again_ns), (1000, 2100));
        // A wake-up in between: it had the lock.
        waits.add(enter(time, 2, wake(WORD), 13));
        waits.add(exit(time + 10, 2, 0));
        waits.add(enter(time + 20, 2, wait(WORD), 12));
        assert_eq!(place(&waits, 12).again, 1);
    }

    #[test]
    fn waiters_that_are_moved_are_woken_from_there() {
        let mut waits = Waits::default();
        let to = 0x2000;
        for event in [
            enter(100, 2, wait(WORD), 12),
            enter(200, 3, Call::Wake { word: WORD, also: None, moved_to: Some(to) }, 13),
            exit(210, 3, 0),
            enter(300, 4, wake(to), 14),
            exit(310, 4, 1),
            exit(320, 2, 0),
        ] {
            waits.add(event);
        }
        assert_eq!(place(&waits, 12).woken_by, FxHashMap::from_iter([(14, (1, 220))]));
    }

    #[test]
    fn waits_that_go_on_count_until_now() {
        let mut waits = Waits::default();
        waits.add(enter(100, 2, wait(WORD), 12));
        let (pid, tid, waiting) = waits.going_on().next().expect("it waits");
        let mut waited = Waited::default();
        Waits::count_unended(&mut waited, tid, &waiting, 1100, 0);
        assert_eq!((pid, waited.calls, waited.ns), (PID, 1, 1000));
        assert!(waited.buckets.iter().all(|&count| count == 0));
        waits.begin_anew(600);
        let (_, _, waiting) = waits.going_on().next().expect("it waits");
        assert_eq!(waiting.since, 600);
        waits.add(Event { time: 1200, pid: PID, tid, what: Happened::Ended });
        assert_eq!(waits.going_on().count(), 0);
    }
}
