//! The barging mutex: exclusion, no lost wake-up, nothing left behind; with condition variables, in forked children, and destroyed by
//! its next owner.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::condvar::{Outcome, RawCondvar};
use poundlock_core::platform::Atomic;
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::waiting::Failure;
use poundlock_model::{
    BargingWords, Fault, Model, Modelled, Mortal, Operation, Patient, Report, Settings, World, barging_words,
    explore,
};

use crate::common::{DEADLOCK, LATE, UNORDERED, asleep, at_once_or_asleep, caught, faulty};

/// Nobody spins, so that few preemptions reach far.
const TWO: Settings = Settings { spins: 0, ..Settings::DEFAULT };
const THREE: Settings = Settings { threads: 3, ..TWO };
/// Enough for a look.
const SPINNING: Settings = Settings { spins: 3, ..Settings::DEFAULT };

// In its state.
const LOCKED: u32 = 1;
const AWAKE: u32 = 2;
const SLEEPERS: u32 = 4;
const OVERDUE: u32 = 1 << 31;
/// In its hint of the owner: handed to a sleeper that has not woken.
const HANDED_OVER: u32 = 0x0fff;

/// In its hint of the owner: what naps have found, with its highest bit inverted.
const GAPS: u32 = 0xf << 28;
/// A trial has begun.
const IN_DOUBT: u32 = (6 ^ 8) << 28;

/// Places that the models count.
const HAND_OVER: usize = 0;
const WENT_OVERDUE: usize = 1;
const PASSED: usize = 2;
const GAVE_UP: usize = 3;
// Instead of these, where stints or naps are the subject.
const RELIEVED: usize = 1;
const DOUBTED: usize = 1;
const FOUND_FREE: usize = 2;
const FOUND_HELD: usize = 3;

/// A mutex and what it protects. Two accesses to that which the mutex does not order fail the model.
struct Barged<P: Modelled> {
    mutex: RawPoundlock<P>,
    value: UnsafeCell<u32>,
}

impl<P: Modelled> Barged<P> {
    fn new() -> Rc<Self> {
        Rc::new(Self::unshared())
    }

    fn unshared() -> Self {
        Barged { mutex: RawPoundlock::default(), value: UnsafeCell::new(0) }
    }

    fn words(&self) -> BargingWords<'_> {
        barging_words(&self.mutex)
    }

    /// The critical section. Returns how many there were before.
    fn section(&self) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.value.with_mut(|value| unsafe {
            *value += 1;
            *value - 1
        })
    }

    fn pass(&self) {
        self.mutex.lock();
        self.section();
        self.mutex.unlock();
    }

    fn passer(self: &Rc<Self>, world: &World, index: u32) -> JoinHandle<()> {
        let barged = self.clone();
        world.spawn(index, move |_| barged.pass())
    }

    /// Threads with these numbers that sleep for it, in this order. Somebody holds it.
    fn sleepers(self: &Rc<Self>, world: &World, numbers: std::ops::Range<u32>) -> Vec<JoinHandle<()>> {
        asleep(world, numbers, |index| self.passer(world, index))
    }

    /// At the end, when all threads have been joined.
    fn finish(&self, sections: u32) {
        assert_eq!(self.section(), sections, "an entry was lost");
        assert!(self.mutex.is_idle(), "something is left in the mutex");
    }
}

fn watch<P: Modelled>(world: &World, barged: &Rc<Barged<P>>) {
    let words = barged.words();
    world.watch(words.owner, HAND_OVER, |owner| owner & HANDED_OVER == HANDED_OVER);
    world.watch(words.state, WENT_OVERDUE, |state| state & OVERDUE != 0);
    world.watch(words.state, PASSED, |state| state & (LOCKED | AWAKE | SLEEPERS) == AWAKE | SLEEPERS);
}

/// As many threads lock as the settings say, `times` times each.
fn lockers<P: Modelled>(name: &str, preemptions: usize, settings: Settings, times: u32) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let barged = Barged::<P>::new();
        watch(world, &barged);
        let threads = settings.threads as u32;
        let others: Vec<_> = (1..threads)
            .map(|index| {
                let barged = barged.clone();
                world.spawn(index, move |_| (0..times).for_each(|_| barged.pass()))
            })
            .collect();
        (0..times).for_each(|_| barged.pass());
        for other in others {
            other.join().unwrap();
        }
        barged.finish(threads * times);
    })
}

/// The main thread holds the mutex and the others sleep; it unlocks, and locks so many times more.
fn woken_in_turn<P: Modelled>(name: &str, preemptions: usize, settings: Settings, more: u32) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let barged = Barged::<P>::new();
        watch(world, &barged);
        let others = world.unexplored(|| {
            barged.mutex.lock();
            barged.sleepers(world, 1..settings.threads as u32)
        });
        let waiters = others.len() as u32;
        barged.section();
        barged.mutex.unlock();
        (0..more).for_each(|_| barged.pass());
        for other in others {
            other.join().unwrap();
        }
        barged.finish(1 + more + waiters);
    })
}

/// The main thread holds the mutex; another comes and waits while it unlocks.
fn against_an_unlock<P: Modelled>(name: &str, settings: Settings) -> Report {
    explore::<P>(name, 2, settings, |world| {
        let barged = Barged::<P>::new();
        barged.mutex.lock();
        let other = barged.passer(world, 1);
        barged.section();
        barged.mutex.unlock();
        other.join().unwrap();
        barged.finish(2);
    })
}

#[test]
fn an_unlock() {
    assert!(against_an_unlock::<Model>("barging: an unlock", TWO).sleeps > 0);
}

#[test]
fn two_threads() {
    let report = lockers::<Model>("barging: two threads", 3, TWO, 1);
    assert!(report.sleeps > 0 && report.woken > 0);
}

/// The last of the sleepers goes before the first, and is woken whoever is awake.
#[test]
fn a_real_time_thread() {
    let settings = Settings { priorities: [0, 0, 5, 0, 0], ..THREE };
    for more in 0..2 {
        let report = woken_in_turn::<Model>("barging: a real-time thread is woken", 2, settings, more);
        assert!(report.woken > 0, "{report:?}");
    }
    lockers::<Model>("barging: a real-time thread", 2, settings, 1);
    lockers::<Patient>("barging: a real-time thread, patient", 1, settings, 2);
}

#[test]
fn two_threads_that_spin() {
    lockers::<Model>("barging: two threads that spin", 3, SPINNING, 1);
}

#[test]
fn two_threads_twice() {
    let report = lockers::<Model>("barging: two threads twice", 2, TWO, 2);
    assert!(report.sleeps > 0);
    lockers::<Patient>("barging: two threads twice, spinning", 2, SPINNING, 2);
}

/// Whoever has spun for it tries what not to spin is like, and the next waiter naps.
#[test]
fn trials_and_naps() {
    let settings = Settings { spins: 1, ..SPINNING };
    let report = explore::<Model>("barging: trials and naps", 2, settings, |world| {
        let barged = Barged::<Model>::new();
        let owner = barged.words().owner;
        world.watch(owner, DOUBTED, |owner| owner & GAPS == IN_DOUBT);
        world.watch(owner, FOUND_FREE, |owner| owner >> 28 ^ 8 == 15);
        let other = barged.clone();
        let other = world.spawn(1, move |_| (0..2).for_each(|_| other.pass()));
        (0..2).for_each(|_| barged.pass());
        other.join().unwrap();
        barged.finish(4);
    });
    assert!(report.reached[DOUBTED] > 0 && report.reached[FOUND_FREE] > 0, "{report:?}");
}

/// Who napped and found the mutex held asks for it, while another comes.
#[test]
fn asked_for() {
    let settings = Settings { threads: 3, ..SPINNING };
    let report = explore::<Model>("barging: asked for", 2, settings, |world| {
        let barged = Barged::<Model>::new();
        let owner = barged.words().owner;
        owner.store(IN_DOUBT, Relaxed);
        world.watch(owner, HAND_OVER, |owner| owner & HANDED_OVER == HANDED_OVER);
        world.watch(owner, FOUND_HELD, |owner| owner >> 28 ^ 8 == 5);
        let napper = world.unexplored(|| {
            barged.mutex.lock();
            let napper = barged.passer(world, 1);
            world.await_sleep(1);
            napper
        });
        let other = barged.passer(world, 2);
        barged.section();
        barged.mutex.unlock();
        napper.join().unwrap();
        other.join().unwrap();
        barged.finish(3);
    });
    assert!(report.reached[HAND_OVER] > 0 && report.reached[FOUND_HELD] > 0, "{report:?}");
}

/// SERVICE 3: a newcomer that naps in vain does not go before a sleeper that was there before.
#[test]
fn a_newcomer_that_naps() {
    let settings = Settings { threads: 3, ..SPINNING };
    let report = explore::<Model>("barging: a newcomer that naps", 2, settings, |world| {
        let barged = Barged::<Model>::new();
        let words = barged.words();
        world.watch(words.state, PASSED, |state| {
            state & (LOCKED | AWAKE | SLEEPERS) == LOCKED | AWAKE | SLEEPERS
        });
        let sleeper = world.unexplored(|| {
            barged.mutex.lock();
            barged.sleepers(world, 1..2)
        });
        let first = words.head.peek();
        let newcomer = barged.passer(world, 2);
        // If it has begun to spin by then, it naps.
        words.owner.store(IN_DOUBT, Relaxed);
        world.await_sleep(2);
        assert_eq!(words.head.peek(), first, "overtaken in the list");
        barged.section();
        barged.mutex.unlock();
        sleeper.into_iter().chain([newcomer]).for_each(|thread| thread.join().unwrap());
        barged.finish(3);
    });
    assert!(report.reached[PASSED] > 0, "{report:?}");
}

#[test]
fn three_threads() {
    let report = lockers::<Model>("barging: three threads", 2, THREE, 1);
    assert!(report.sleeps > 0);
    lockers::<Model>("barging: three threads that spin", 1, Settings { threads: 3, ..SPINNING }, 1);
}

/// All run on one CPU: whoever waits displaces the owner, and knows it.
#[test]
fn displaced() {
    let settings = Settings { threads: 3, tags: [1; 5], ..TWO };
    assert!(lockers::<Patient>("barging: displaced", 1, settings, 1).sleeps > 0);
    lockers::<Patient>("barging: displaced, with patience", 1, Settings { spins: 1, ..settings }, 1);
}

#[test]
fn restless() {
    lockers::<Model>("barging: restless", 2, Settings { restless: 2, ..TWO }, 1);
}

#[test]
fn polling() {
    lockers::<Model>("barging: polling", 2, Settings { unregistered: 2, ..TWO }, 1);
}

#[test]
fn first_sleep() {
    let report = lockers::<Model>("barging: first sleep", 2, Settings { plain_release: true, ..TWO }, 1);
    assert!(report.restarted > 0);
    // A plain release wipes out what a spinner believes.
    let spinning = Settings { plain_release: true, ..SPINNING };
    lockers::<Model>("barging: first sleep, spinning", 2, spinning, 2);
}

/// Expulsions are refused, so a plain release may come after the first sleeper and wipe out that it sleeps.
/// It looks now and then.
const REFUSED: Settings = Settings { plain_release: true, refused: true, ..TWO };

#[test]
fn an_fence_that_is_refused() {
    let report = lockers::<Model>("barging: a refused fence", 3, REFUSED, 1);
    assert!(report.timed_waits > 0);
    lockers::<Model>("barging: a refused fence, three", 1, Settings { threads: 3, ..REFUSED }, 1);
    lockers::<Model>("barging: a refused fence, twice", 2, REFUSED, 2);
}

#[test]
fn barging_in_turn() {
    let report = woken_in_turn::<Model>("barging: in turn", 2, THREE, 2);
    assert!(report.woken > 0 && report.reached[PASSED] > 0, "{report:?}");
}

/// Who was woken in vain is handed the mutex, before another that waits.
#[test]
fn hand_over() {
    let report = explore::<Model>("barging: hand-over", 2, THREE, |world| {
        let barged = Barged::<Model>::new();
        watch(world, &barged);
        let others = world.unexplored(|| {
            barged.mutex.lock();
            let others = barged.sleepers(world, 1..3);
            barged.mutex.unlock();
            barged.mutex.lock();
            world.await_sleep(1);
            others
        });
        barged.section();
        barged.mutex.unlock();
        barged.pass();
        for other in others {
            other.join().unwrap();
        }
        barged.finish(4);
    });
    assert!(report.reached[HAND_OVER] > 0, "{report:?}");
}

#[test]
fn barging_without_end() {
    let report = woken_in_turn::<Patient>("barging: in vain", 2, THREE, 1);
    assert_eq!(report.reached[HAND_OVER], 0);
}

/// The main thread has used it while others slept: one of them is woken beside the one that is awake, and it makes room.
fn relief(settings: Settings) -> Report {
    explore::<Patient>("barging: relieved", 2, settings, |world| {
        let barged = Barged::<Patient>::new();
        let all = LOCKED | AWAKE | SLEEPERS;
        world.watch_change(barged.words().state, RELIEVED, move |before, after| {
            before & (all | OVERDUE) == all && after & all == LOCKED | AWAKE
        });
        let others = world.unexplored(|| {
            barged.mutex.lock();
            let others = barged.sleepers(world, 1..3);
            // Its stint begins, and the first sleeper is woken.
            barged.mutex.unlock();
            barged.mutex.lock();
            others
        });
        barged.section();
        barged.mutex.unlock();
        barged.pass();
        for other in others {
            other.join().unwrap();
        }
        barged.finish(4);
    })
}

#[test]
fn relieved() {
    for settings in [THREE, Settings { threads: 3, ..SPINNING }] {
        let report = relief(settings);
        assert!(report.reached[RELIEVED] > 0, "{report:?}");
    }
}

/// A newcomer passes a sleeper over, which makes the next unlock wake that beside it.
#[test]
fn overdue() {
    let settings = Settings { threads: 4, ..SPINNING };
    let report = explore::<Model>("barging: overdue", 1, settings, |world| {
        let barged = Barged::<Model>::new();
        watch(world, &barged);
        let sleepers = world.unexplored(|| {
            barged.mutex.lock();
            barged.sleepers(world, 1..3)
        });
        let spinner = barged.passer(world, 3);
        loom::thread::yield_now();
        barged.section();
        barged.mutex.unlock();
        spinner.join().unwrap();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        barged.finish(4);
    });
    assert!(report.reached[WENT_OVERDUE] > 0 && report.reached[PASSED] > 0, "{report:?}");
}

#[test]
fn try_lock() {
    let report = explore::<Model>("barging: try", 3, TWO, |world| {
        let barged = Barged::<Model>::new();
        let other = world.spawn(1, {
            let barged = barged.clone();
            move |world: &World| {
                if !barged.mutex.try_lock() {
                    world.reached(GAVE_UP);
                    return 0;
                }
                barged.section();
                barged.mutex.unlock();
                1
            }
        });
        barged.pass();
        let tried = other.join().unwrap();
        barged.finish(1 + tried);
    });
    assert!(report.reached[GAVE_UP] > 0 && report.reached[GAVE_UP] < report.executions);
}

/// The main thread holds the mutex. Thread 1 sleeps and may give up, the others sleep for as long as it takes. Its end
/// comes before the unlock or after it, or a handler runs instead.
fn giving_up<P: Modelled>(name: &str, settings: Settings, after: bool, interrupted: bool) {
    let report = explore::<P>(name, 2, settings, move |world| {
        let barged = Barged::<P>::new();
        watch(world, &barged);
        let (impatient, patient) = world.unexplored(|| {
            barged.mutex.lock();
            let impatient = world.spawn(1, {
                let barged = barged.clone();
                move |world: &World| {
                    let result = if interrupted {
                        barged.mutex.lock_interruptible()
                    } else {
                        barged.mutex.lock_until(&world.timer(0))
                    };
                    match result {
                        Ok(()) => {
                            barged.section();
                            barged.mutex.unlock();
                            1
                        }
                        Err(why) => {
                            let ended = if interrupted { Failure::Interrupted } else { Failure::TimedOut };
                            assert_eq!(why, ended);
                            world.reached(GAVE_UP);
                            0
                        }
                    }
                }
            });
            world.await_sleep(1);
            let patient = barged.sleepers(world, 2..settings.threads as u32);
            (impatient, patient)
        });
        if interrupted {
            world.interrupt(1);
        } else if !after {
            world.expire(0);
        }
        loom::thread::yield_now();
        barged.section();
        barged.mutex.unlock();
        if after && !interrupted {
            world.expire(0);
        }
        let waiters = patient.len() as u32;
        let got = impatient.join().unwrap();
        for other in patient {
            other.join().unwrap();
        }
        barged.finish(1 + waiters + got);
    });
    assert!(after || report.reached[GAVE_UP] > 0, "nobody gave up: {report:?}");
    assert!(report.reached[GAVE_UP] < report.executions, "everybody gave up");
}

#[test]
fn times_out() {
    giving_up::<Model>("barging: times out", TWO, false, false);
    giving_up::<Model>("barging: times out after the unlock", TWO, true, false);
}

#[test]
fn times_out_before_another() {
    giving_up::<Patient>("barging: times out before another", THREE, false, false);
    giving_up::<Model>("barging: times out, woken, before another", THREE, true, false);
}

#[test]
fn interrupted_before_another() {
    giving_up::<Model>("barging: interrupted before another", THREE, false, true);
}

// Destroyed by whoever acquires it last.

fn destroyed_by_the_last<P: Modelled>(name: &str, settings: Settings, settled: bool) -> Report {
    explore::<P>(name, 2, settings, move |world| {
        let barged = Mortal::new(world, Barged::<P>::unshared());
        let threads = settings.threads as u32;
        let work = move |barged: &Mortal<Barged<P>>, held: bool| {
            if !held {
                barged.mutex.lock();
            }
            let before = barged.section();
            barged.mutex.unlock();
            if before + 1 == threads {
                barged.destroy();
            }
        };
        let start = |index| {
            let barged = barged.clone();
            world.spawn(index, move |_: &World| work(&barged, false))
        };
        let hold = settled.then_some(|| barged.mutex.lock());
        let others = at_once_or_asleep(world, 1..threads, hold, start);
        work(&barged, settled);
        for other in others {
            other.join().unwrap();
        }
    })
}

#[test]
fn destroyed() {
    assert!(destroyed_by_the_last::<Model>("barging: destroyed", TWO, false).woken > 0);
    destroyed_by_the_last::<Model>("barging: destroyed by a spinner", SPINNING, false);
    assert!(destroyed_by_the_last::<Model>("barging: destroyed by a sleeper", THREE, true).woken > 0);
    let plain = Settings { plain_release: true, ..TWO };
    assert!(destroyed_by_the_last::<Model>("barging: destroyed, plain", plain, false).restarted > 0);
}

// Condition variables.

struct Tokens {
    barged: Barged<Model>,
    condvar: RawCondvar<Model>,
    count: UnsafeCell<u32>,
}

impl Tokens {
    /// Under the mutex: changes the number of tokens, returns what it was.
    fn change(&self, by: impl FnOnce(u32) -> u32) -> u32 {
        // SAFETY: loom checks what makes this sound, and fails the model otherwise.
        self.count.with_mut(|count| unsafe {
            let before = *count;
            *count = by(before);
            before
        })
    }

    fn take(&self, world: &World) {
        self.barged.mutex.lock();
        while self.change(|count| count.saturating_sub(1)) == 0 {
            world.reached(PASSED);
            let outcome = self.condvar.wait(&&self.barged.mutex, None, || false);
            assert_eq!(outcome, Outcome::Signalled);
        }
        self.barged.section();
        self.barged.mutex.unlock();
    }
}

/// Gives a token to each of the others, with the mutex held or free as it signals.
fn give_to(name: &str, preemptions: usize, settings: Settings, held: bool, mortal: bool) {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let tokens = Mortal::new(
            world,
            Tokens { barged: Barged::unshared(), condvar: RawCondvar::default(), count: UnsafeCell::new(0) },
        );
        let takers = settings.threads as u32 - 1;
        let start = |index| {
            let tokens = tokens.clone();
            world.spawn(index, move |world: &World| {
                tokens.take(world);
                if mortal && takers == 1 {
                    // Whoever has signalled it may still be on the way out of the mutex that it was moved to.
                    tokens.destroy();
                }
            })
        };
        let others = world.unexplored(|| asleep(world, 1..takers + 1, start));
        tokens.barged.mutex.lock();
        tokens.change(|count| count + takers);
        if held {
            tokens.condvar.broadcast();
            tokens.barged.mutex.unlock();
        } else {
            tokens.barged.mutex.unlock();
            tokens.condvar.broadcast();
        }
        for other in others {
            other.join().unwrap();
        }
        if !mortal {
            tokens.barged.finish(takers);
            assert!(tokens.condvar.is_idle(), "somebody is left in the condition variable");
        }
    });
    assert!(report.reached[PASSED] > 0, "nobody waited");
}

#[test]
fn broadcast_with_the_mutex_held() {
    give_to("barging: broadcast, held", 2, TWO, true, false);
    give_to("barging: broadcast to two, held", 1, THREE, true, false);
}

#[test]
fn broadcast_with_the_mutex_free() {
    give_to("barging: broadcast, free", 2, TWO, false, false);
    give_to("barging: broadcast to two, free", 1, THREE, false, false);
}

#[test]
fn destroyed_by_the_signalled() {
    give_to("barging: destroyed by the signalled", 2, TWO, false, true);
}

// Forks.

/// The parent's waiters are not in the child, whatever they left: two threads of the child come to the mutex, one of which may hold it
/// already.
fn forked(name: &str, held: bool, state: u32, guard: u32) {
    const GHOST: u32 = 77;
    let settings = Settings { epoch: 7, ..TWO };
    let report = explore::<Model>(name, 2, settings, move |world| {
        let barged = Barged::<Model>::new();
        if held {
            barged.mutex.lock();
        }
        let words = barged.words();
        words.state.store(state | u32::from(held), Relaxed);
        words.tail.store(GHOST, Relaxed);
        words.head.store(GHOST + 1, Relaxed);
        words.guard.store(guard, Relaxed);
        let other = barged.passer(world, 1);
        if held {
            barged.section();
            barged.mutex.unlock();
        } else {
            barged.pass();
        }
        other.join().unwrap();
        if words.guard.peek() & 0xff != settings.epoch {
            // Nobody had to wait, so nobody looked at what is there.
            assert_eq!(barged.section(), 2);
            return;
        }
        world.reached(0);
        barged.finish(2);
    });
    assert!(report.reached[0] > 0 && report.woken > 0, "{report:?}");
}

#[test]
fn in_a_forked_child() {
    const WAIT_LOCK: u32 = 3 << 30;
    const STABLE: u32 = 1 << 29;
    const ASKED: u32 = 1 << 28;
    for held in [false, true] {
        forked("barging: forked, with sleepers", held, SLEEPERS, STABLE | ASKED | 3);
        forked("barging: forked, with one awake", held, SLEEPERS | AWAKE, STABLE | WAIT_LOCK | 3);
        forked("barging: forked, overdue", held, SLEEPERS | AWAKE | OVERDUE, STABLE | 3);
        forked("barging: forked in its first sleep", held, AWAKE, ASKED);
    }
}

// Planted bugs.

#[test]
fn a_lost_wake_up() {
    caught(&[DEADLOCK], || {
        lockers::<Model>("barging: a lost wake-up", 2, faulty(TWO, Fault::LoseWake(0)), 1)
    });
}

#[test]
fn a_relief_that_is_not_woken() {
    caught(&[DEADLOCK], || relief(faulty(THREE, Fault::LoseWake(1))));
}

#[test]
fn a_wait_that_is_not_atomic() {
    caught(&[DEADLOCK], || {
        against_an_unlock::<Patient>("barging: a torn wait", faulty(TWO, Fault::TornWait))
    });
}

#[test]
fn a_plain_release_without_a_fence() {
    let settings = Settings { plain_release: true, ..faulty(TWO, Fault::Unfenced) };
    caught(&[DEADLOCK], || lockers::<Model>("barging: not fenced", 2, settings, 1));
}

#[test]
fn a_refused_fence_and_no_patrol() {
    let settings = faulty(REFUSED, Fault::Unlooked);
    caught(&[DEADLOCK], || lockers::<Model>("barging: refused, no timed wait", 2, settings, 1));
}

#[test]
fn no_release() {
    caught(&[UNORDERED], || lockers::<Model>("barging: no release", 2, faulty(TWO, Fault::WeakRelease), 1));
}

#[test]
fn no_acquire() {
    caught(&[UNORDERED], || lockers::<Model>("barging: no acquire", 2, faulty(TWO, Fault::WeakAcquire), 1));
}

/// The fast path.
#[test]
fn a_relaxed_test_and_set() {
    let settings = faulty(TWO, Fault::Weaken(Operation::FetchOr));
    caught(&[UNORDERED], || lockers::<Model>("barging: a relaxed test-and-set", 2, settings, 1));
}

/// The release, and the waiters' acquisitions.
#[test]
fn a_relaxed_compare_and_swap() {
    let settings = faulty(TWO, Fault::Weaken(Operation::CompareExchange));
    caught(&[UNORDERED], || lockers::<Model>("barging: a relaxed release", 2, settings, 1));
}

/// A waiter goes to sleep and stays the one that is believed to be awake: unlocks wake nobody.
#[test]
fn one_that_sleeps_and_is_believed_awake() {
    caught(&[DEADLOCK], || {
        explore::<Model>("barging: believed awake", 1, TWO, |world| {
            let barged = Barged::<Model>::new();
            let other = world.unexplored(|| {
                barged.mutex.lock();
                let other = barged.passer(world, 1);
                world.await_sleep(1);
                barged.words().state.fetch_or(AWAKE, Relaxed);
                other
            });
            barged.section();
            barged.mutex.unlock();
            other.join().unwrap();
        })
    });
}

#[test]
fn a_touch_after_the_release() {
    caught(&[LATE, UNORDERED], || {
        destroyed_by_the_last::<Model>("barging: a late touch", faulty(TWO, Fault::TouchAfterRelease), false)
    });
}
