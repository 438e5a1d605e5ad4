//! The default mutex: exclusion, no lost wake-up, nothing left behind; with condition variables, in forked
//! children, and destroyed by its next owner.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use poundlock_core::condvar::{Outcome, RawCondvar};
use poundlock_core::platform::Atomic;
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::waiting::Failure;
use poundlock_model::{
    Fault, Model, Modelled, Mortal, Operation, Patient, PoundlockWords, Report, Settings, World, explore,
    poundlock_words,
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
const BYPASS_BOUND: u32 = 1 << 31;
/// In its hint of the owner: handed to a sleeper that has not woken.
const HANDED_OVER: u32 = 0x0fff;

/// In its hint of the owner: what timed parks have found, with its highest bit inverted.
const GAPS: u32 = 0xf << 28;
/// A trial has begun.
const IN_DOUBT: u32 = (6 ^ 8) << 28;

/// Places that the models count.
const HAND_OVER: usize = 0;
const REACHED_BOUND: usize = 1;
const PASSED: usize = 2;
const GAVE_UP: usize = 3;
// Instead of these, where slices or timed parks are the subject.
const RELIEVED: usize = 1;
const DOUBTED: usize = 1;
const FOUND_FREE: usize = 2;
const FOUND_HELD: usize = 3;

/// A mutex and what it protects. Two accesses to that which the mutex does not order fail the model.
struct Guarded<P: Modelled> {
    mutex: RawPoundlock<P>,
    value: UnsafeCell<u32>,
}

impl<P: Modelled> Guarded<P> {
    fn new() -> Rc<Self> {
        Rc::new(Self::unshared())
    }

    fn unshared() -> Self {
        Guarded { mutex: RawPoundlock::default(), value: UnsafeCell::new(0) }
    }

    fn words(&self) -> PoundlockWords<'_> {
        poundlock_words(&self.mutex)
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
        let guarded = self.clone();
        world.spawn(index, move |_| guarded.pass())
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

fn watch<P: Modelled>(world: &World, guarded: &Rc<Guarded<P>>) {
    let words = guarded.words();
    world.watch(words.owner, HAND_OVER, |owner| owner & HANDED_OVER == HANDED_OVER);
    world.watch(words.state, REACHED_BOUND, |state| state & BYPASS_BOUND != 0);
    world.watch(words.state, PASSED, |state| state & (LOCKED | AWAKE | SLEEPERS) == AWAKE | SLEEPERS);
}

/// As many threads lock as the settings say, `times` times each.
fn lockers<P: Modelled>(name: &str, preemptions: usize, settings: Settings, times: u32) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<P>::new();
        watch(world, &guarded);
        let threads = settings.threads as u32;
        let others: Vec<_> = (1..threads)
            .map(|index| {
                let guarded = guarded.clone();
                world.spawn(index, move |_| (0..times).for_each(|_| guarded.pass()))
            })
            .collect();
        (0..times).for_each(|_| guarded.pass());
        for other in others {
            other.join().unwrap();
        }
        guarded.finish(threads * times);
    })
}

/// The main thread holds the mutex and the others sleep; it unlocks, and locks so many times more.
fn woken_in_turn<P: Modelled>(name: &str, preemptions: usize, settings: Settings, more: u32) -> Report {
    explore::<P>(name, preemptions, settings, move |world| {
        let guarded = Guarded::<P>::new();
        watch(world, &guarded);
        let others = world.unexplored(|| {
            guarded.mutex.lock();
            guarded.sleepers(world, 1..settings.threads as u32)
        });
        let waiters = others.len() as u32;
        guarded.section();
        guarded.mutex.unlock();
        (0..more).for_each(|_| guarded.pass());
        for other in others {
            other.join().unwrap();
        }
        guarded.finish(1 + more + waiters);
    })
}

/// The main thread holds the mutex; another comes and waits while it unlocks.
fn against_an_unlock<P: Modelled>(name: &str, settings: Settings) -> Report {
    explore::<P>(name, 2, settings, |world| {
        let guarded = Guarded::<P>::new();
        guarded.mutex.lock();
        let other = guarded.passer(world, 1);
        guarded.section();
        guarded.mutex.unlock();
        other.join().unwrap();
        guarded.finish(2);
    })
}

#[test]
fn an_unlock() {
    assert!(against_an_unlock::<Model>("poundlock: an unlock", TWO).sleeps > 0);
}

#[test]
fn two_threads() {
    let report = lockers::<Model>("poundlock: two threads", 3, TWO, 1);
    assert!(report.sleeps > 0 && report.woken > 0);
}

/// The last of the sleepers goes before the first, and is woken whoever is awake.
#[test]
fn a_real_time_thread() {
    let settings = Settings { priorities: [0, 0, 5, 0, 0], ..THREE };
    for more in 0..2 {
        let report = woken_in_turn::<Model>("poundlock: a real-time thread is woken", 2, settings, more);
        assert!(report.woken > 0, "{report:?}");
    }
    lockers::<Model>("poundlock: a real-time thread", 2, settings, 1);
    lockers::<Patient>("poundlock: a real-time thread, patient", 1, settings, 2);
}

#[test]
fn two_threads_that_spin() {
    lockers::<Model>("poundlock: two threads that spin", 3, SPINNING, 1);
}

#[test]
fn two_threads_twice() {
    let report = lockers::<Model>("poundlock: two threads twice", 2, TWO, 2);
    assert!(report.sleeps > 0);
    lockers::<Patient>("poundlock: two threads twice, spinning", 2, SPINNING, 2);
}

/// Whoever has spun for it tries what not to spin is like, and the next waiter parks for a set time.
#[test]
fn trials_and_naps() {
    let settings = Settings { spins: 1, ..SPINNING };
    let report = explore::<Model>("poundlock: trials and timed parks", 2, settings, |world| {
        let guarded = Guarded::<Model>::new();
        let owner = guarded.words().owner;
        world.watch(owner, DOUBTED, |owner| owner & GAPS == IN_DOUBT);
        world.watch(owner, FOUND_FREE, |owner| owner >> 28 ^ 8 == 15);
        let other = guarded.clone();
        let other = world.spawn(1, move |_| (0..2).for_each(|_| other.pass()));
        (0..2).for_each(|_| guarded.pass());
        other.join().unwrap();
        guarded.finish(4);
    });
    assert!(report.reached[DOUBTED] > 0 && report.reached[FOUND_FREE] > 0, "{report:?}");
}

/// Who parked for a set time and found the mutex held asks for it, while another comes.
#[test]
fn asked_for() {
    let settings = Settings { threads: 3, ..SPINNING };
    let report = explore::<Model>("poundlock: asked for", 2, settings, |world| {
        let guarded = Guarded::<Model>::new();
        let owner = guarded.words().owner;
        owner.store(IN_DOUBT, Relaxed);
        world.watch(owner, HAND_OVER, |owner| owner & HANDED_OVER == HANDED_OVER);
        world.watch(owner, FOUND_HELD, |owner| owner >> 28 ^ 8 == 5);
        let parked = world.unexplored(|| {
            guarded.mutex.lock();
            let parked = guarded.passer(world, 1);
            world.await_sleep(1);
            parked
        });
        let other = guarded.passer(world, 2);
        guarded.section();
        guarded.mutex.unlock();
        parked.join().unwrap();
        other.join().unwrap();
        guarded.finish(3);
    });
    assert!(report.reached[HAND_OVER] > 0 && report.reached[FOUND_HELD] > 0, "{report:?}");
}

/// SERVICE 3: a newcomer that parks in vain for a set time does not go before a sleeper that was there
/// before.
#[test]
fn a_newcomer_that_naps() {
    let settings = Settings { threads: 3, ..SPINNING };
    let report = explore::<Model>("poundlock: a newcomer that parks", 2, settings, |world| {
        let guarded = Guarded::<Model>::new();
        let words = guarded.words();
        world.watch(words.state, PASSED, |state| {
            state & (LOCKED | AWAKE | SLEEPERS) == LOCKED | AWAKE | SLEEPERS
        });
        let sleeper = world.unexplored(|| {
            guarded.mutex.lock();
            guarded.sleepers(world, 1..2)
        });
        let first = words.head.peek();
        let newcomer = guarded.passer(world, 2);
        // If it has begun to spin by then, it parks.
        words.owner.store(IN_DOUBT, Relaxed);
        world.await_sleep(2);
        assert_eq!(words.head.peek(), first, "overtaken in the list");
        guarded.section();
        guarded.mutex.unlock();
        sleeper.into_iter().chain([newcomer]).for_each(|thread| thread.join().unwrap());
        guarded.finish(3);
    });
    assert!(report.reached[PASSED] > 0, "{report:?}");
}

#[test]
fn three_threads() {
    let report = lockers::<Model>("poundlock: three threads", 2, THREE, 1);
    assert!(report.sleeps > 0);
    lockers::<Model>("poundlock: three threads that spin", 1, Settings { threads: 3, ..SPINNING }, 1);
}

/// All run on one CPU: whoever waits displaces the owner, and knows it.
#[test]
fn displaced() {
    let settings = Settings { threads: 3, tags: [1; 5], ..TWO };
    assert!(lockers::<Patient>("poundlock: displaced", 1, settings, 1).sleeps > 0);
    lockers::<Patient>("poundlock: displaced, with patience", 1, Settings { spins: 1, ..settings }, 1);
}

#[test]
fn restless() {
    lockers::<Model>("poundlock: restless", 2, Settings { restless: 2, ..TWO }, 1);
}

#[test]
fn polling() {
    lockers::<Model>("poundlock: polling", 2, Settings { unregistered: 2, ..TWO }, 1);
}

#[test]
fn first_sleep() {
    let report = lockers::<Model>("poundlock: first sleep", 2, Settings { plain_release: true, ..TWO }, 1);
    assert!(report.restarted > 0);
    // A plain release wipes out that a spinner is the designated waker.
    let spinning = Settings { plain_release: true, ..SPINNING };
    lockers::<Model>("poundlock: first sleep, spinning", 2, spinning, 2);
}

/// Fences are refused, so a plain release may come after the first sleeper and wipe out that it sleeps.
/// It looks now and then.
const REFUSED: Settings = Settings { plain_release: true, refused: true, ..TWO };

#[test]
fn an_fence_that_is_refused() {
    let report = lockers::<Model>("poundlock: a refused fence", 3, REFUSED, 1);
    assert!(report.timed_waits > 0);
    lockers::<Model>("poundlock: a refused fence, three", 1, Settings { threads: 3, ..REFUSED }, 1);
    lockers::<Model>("poundlock: a refused fence, twice", 2, REFUSED, 2);
}

#[test]
fn barging_in_turn() {
    let report = woken_in_turn::<Model>("poundlock: in turn", 2, THREE, 2);
    assert!(report.woken > 0 && report.reached[PASSED] > 0, "{report:?}");
}

/// Who was woken in vain is handed the mutex, before another that waits.
#[test]
fn hand_over() {
    let report = explore::<Model>("poundlock: hand-over", 2, THREE, |world| {
        let guarded = Guarded::<Model>::new();
        watch(world, &guarded);
        let others = world.unexplored(|| {
            guarded.mutex.lock();
            let others = guarded.sleepers(world, 1..3);
            guarded.mutex.unlock();
            guarded.mutex.lock();
            world.await_sleep(1);
            others
        });
        guarded.section();
        guarded.mutex.unlock();
        guarded.pass();
        for other in others {
            other.join().unwrap();
        }
        guarded.finish(4);
    });
    assert!(report.reached[HAND_OVER] > 0, "{report:?}");
}

#[test]
fn barging_without_end() {
    let report = woken_in_turn::<Patient>("poundlock: in vain", 2, THREE, 1);
    assert_eq!(report.reached[HAND_OVER], 0);
}

/// The main thread has used it while others slept: one of them is woken beside the one that is awake, and it
/// makes room.
fn relief(settings: Settings) -> Report {
    explore::<Patient>("poundlock: relieved", 2, settings, |world| {
        let guarded = Guarded::<Patient>::new();
        let all = LOCKED | AWAKE | SLEEPERS;
        world.watch_change(guarded.words().state, RELIEVED, move |before, after| {
            before & (all | BYPASS_BOUND) == all && after & all == LOCKED | AWAKE
        });
        let others = world.unexplored(|| {
            guarded.mutex.lock();
            let others = guarded.sleepers(world, 1..3);
            // Its slice begins, and the first sleeper is woken.
            guarded.mutex.unlock();
            guarded.mutex.lock();
            others
        });
        guarded.section();
        guarded.mutex.unlock();
        guarded.pass();
        for other in others {
            other.join().unwrap();
        }
        guarded.finish(4);
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
fn bypass_bound() {
    let settings = Settings { threads: 4, ..SPINNING };
    let report = explore::<Model>("poundlock: bypass bound", 1, settings, |world| {
        let guarded = Guarded::<Model>::new();
        watch(world, &guarded);
        let sleepers = world.unexplored(|| {
            guarded.mutex.lock();
            guarded.sleepers(world, 1..3)
        });
        let spinner = guarded.passer(world, 3);
        loom::thread::yield_now();
        guarded.section();
        guarded.mutex.unlock();
        spinner.join().unwrap();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        guarded.finish(4);
    });
    assert!(report.reached[REACHED_BOUND] > 0 && report.reached[PASSED] > 0, "{report:?}");
}

#[test]
fn try_lock() {
    let report = explore::<Model>("poundlock: try", 3, TWO, |world| {
        let guarded = Guarded::<Model>::new();
        let other = world.spawn(1, {
            let guarded = guarded.clone();
            move |world: &World| {
                if !guarded.mutex.try_lock() {
                    world.reached(GAVE_UP);
                    return 0;
                }
                guarded.section();
                guarded.mutex.unlock();
                1
            }
        });
        guarded.pass();
        let tried = other.join().unwrap();
        guarded.finish(1 + tried);
    });
    assert!(report.reached[GAVE_UP] > 0 && report.reached[GAVE_UP] < report.executions);
}

/// The main thread holds the mutex. Thread 1 sleeps and may give up, the others sleep for as long as it
/// takes. Its end comes before the unlock or after it, or a handler runs instead.
fn giving_up<P: Modelled>(name: &str, settings: Settings, after: bool, interrupted: bool) {
    let report = explore::<P>(name, 2, settings, move |world| {
        let guarded = Guarded::<P>::new();
        watch(world, &guarded);
        let (impatient, patient) = world.unexplored(|| {
            guarded.mutex.lock();
            let impatient = world.spawn(1, {
                let guarded = guarded.clone();
                move |world: &World| {
                    let result = if interrupted {
                        guarded.mutex.lock_interruptible()
                    } else {
                        guarded.mutex.lock_until(&world.timer(0))
                    };
                    match result {
                        Ok(()) => {
                            guarded.section();
                            guarded.mutex.unlock();
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
            let patient = guarded.sleepers(world, 2..settings.threads as u32);
            (impatient, patient)
        });
        if interrupted {
            world.interrupt(1);
        } else if !after {
            world.expire(0);
        }
        loom::thread::yield_now();
        guarded.section();
        guarded.mutex.unlock();
        if after && !interrupted {
            world.expire(0);
        }
        let waiters = patient.len() as u32;
        let got = impatient.join().unwrap();
        for other in patient {
            other.join().unwrap();
        }
        guarded.finish(1 + waiters + got);
    });
    assert!(after || report.reached[GAVE_UP] > 0, "nobody gave up: {report:?}");
    assert!(report.reached[GAVE_UP] < report.executions, "everybody gave up");
}

#[test]
fn times_out() {
    giving_up::<Model>("poundlock: times out", TWO, false, false);
    giving_up::<Model>("poundlock: times out after the unlock", TWO, true, false);
}

#[test]
fn times_out_before_another() {
    giving_up::<Patient>("poundlock: times out before another", THREE, false, false);
    giving_up::<Model>("poundlock: times out, woken, before another", THREE, true, false);
}

#[test]
fn interrupted_before_another() {
    giving_up::<Model>("poundlock: interrupted before another", THREE, false, true);
}

// Destroyed by whoever acquires it last.

fn destroyed_by_the_last<P: Modelled>(name: &str, settings: Settings, settled: bool) -> Report {
    explore::<P>(name, 2, settings, move |world| {
        let guarded = Mortal::new(world, Guarded::<P>::unshared());
        let threads = settings.threads as u32;
        let work = move |guarded: &Mortal<Guarded<P>>, held: bool| {
            if !held {
                guarded.mutex.lock();
            }
            let before = guarded.section();
            guarded.mutex.unlock();
            if before + 1 == threads {
                guarded.destroy();
            }
        };
        let start = |index| {
            let guarded = guarded.clone();
            world.spawn(index, move |_: &World| work(&guarded, false))
        };
        let hold = settled.then_some(|| guarded.mutex.lock());
        let others = at_once_or_asleep(world, 1..threads, hold, start);
        work(&guarded, settled);
        for other in others {
            other.join().unwrap();
        }
    })
}

#[test]
fn destroyed() {
    assert!(destroyed_by_the_last::<Model>("poundlock: destroyed", TWO, false).woken > 0);
    destroyed_by_the_last::<Model>("poundlock: destroyed by a spinner", SPINNING, false);
    assert!(destroyed_by_the_last::<Model>("poundlock: destroyed by a sleeper", THREE, true).woken > 0);
    let plain = Settings { plain_release: true, ..TWO };
    assert!(destroyed_by_the_last::<Model>("poundlock: destroyed, plain", plain, false).restarted > 0);
}

// Condition variables.

struct Tokens {
    guarded: Guarded<Model>,
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
        self.guarded.mutex.lock();
        while self.change(|count| count.saturating_sub(1)) == 0 {
            world.reached(PASSED);
            let outcome = self.condvar.wait(&&self.guarded.mutex, None, || false);
            assert_eq!(outcome, Outcome::Signalled);
        }
        self.guarded.section();
        self.guarded.mutex.unlock();
    }
}

/// Gives a token to each of the others, with the mutex held or free as it signals.
fn give_to(name: &str, preemptions: usize, settings: Settings, held: bool, mortal: bool) {
    let report = explore::<Model>(name, preemptions, settings, move |world| {
        let tokens = Mortal::new(
            world,
            Tokens {
                guarded: Guarded::unshared(),
                condvar: RawCondvar::default(),
                count: UnsafeCell::new(0),
            },
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
        tokens.guarded.mutex.lock();
        tokens.change(|count| count + takers);
        if held {
            tokens.condvar.broadcast();
            tokens.guarded.mutex.unlock();
        } else {
            tokens.guarded.mutex.unlock();
            tokens.condvar.broadcast();
        }
        for other in others {
            other.join().unwrap();
        }
        if !mortal {
            tokens.guarded.finish(takers);
            assert!(tokens.condvar.is_idle(), "somebody is left in the condition variable");
        }
    });
    assert!(report.reached[PASSED] > 0, "nobody waited");
}

#[test]
fn broadcast_with_the_mutex_held() {
    give_to("poundlock: broadcast, held", 2, TWO, true, false);
    give_to("poundlock: broadcast to two, held", 1, THREE, true, false);
}

#[test]
fn broadcast_with_the_mutex_free() {
    give_to("poundlock: broadcast, free", 2, TWO, false, false);
    give_to("poundlock: broadcast to two, free", 1, THREE, false, false);
}

#[test]
fn destroyed_by_the_signalled() {
    give_to("poundlock: destroyed by the signalled", 2, TWO, false, true);
}

// Forks.

/// The parent's waiters are not in the child, whatever they left: two threads of the child come to the mutex,
/// one of which may hold it already.
fn forked(name: &str, held: bool, state: u32, wait_lock: u32) {
    const GHOST: u32 = 77;
    let settings = Settings { epoch: 7, ..TWO };
    let report = explore::<Model>(name, 2, settings, move |world| {
        let guarded = Guarded::<Model>::new();
        if held {
            guarded.mutex.lock();
        }
        let words = guarded.words();
        words.state.store(state | u32::from(held), Relaxed);
        words.tail.store(GHOST, Relaxed);
        words.head.store(GHOST + 1, Relaxed);
        words.wait_lock.store(wait_lock, Relaxed);
        let other = guarded.passer(world, 1);
        if held {
            guarded.section();
            guarded.mutex.unlock();
        } else {
            guarded.pass();
        }
        other.join().unwrap();
        if words.wait_lock.peek() & 0xff != settings.epoch {
            // Nobody had to wait, so nobody looked at what is there.
            assert_eq!(guarded.section(), 2);
            return;
        }
        world.reached(0);
        guarded.finish(2);
    });
    assert!(report.reached[0] > 0 && report.woken > 0, "{report:?}");
}

#[test]
fn in_a_forked_child() {
    const WAIT_LOCK: u32 = 3 << 30;
    const BIAS_REVOKED: u32 = 1 << 29;
    const REVOKING: u32 = 1 << 28;
    for held in [false, true] {
        forked("poundlock: forked, with sleepers", held, SLEEPERS, BIAS_REVOKED | REVOKING | 3);
        forked("poundlock: forked, with one awake", held, SLEEPERS | AWAKE, BIAS_REVOKED | WAIT_LOCK | 3);
        forked(
            "poundlock: forked, at the bypass bound",
            held,
            SLEEPERS | AWAKE | BYPASS_BOUND,
            BIAS_REVOKED | 3,
        );
        forked("poundlock: forked in its first sleep", held, AWAKE, REVOKING);
    }
}

// Planted bugs.

#[test]
fn a_lost_wake_up() {
    caught(&[DEADLOCK], || {
        lockers::<Model>("poundlock: a lost wake-up", 2, faulty(TWO, Fault::LoseWake(0)), 1)
    });
}

#[test]
fn a_relief_that_is_not_woken() {
    caught(&[DEADLOCK], || relief(faulty(THREE, Fault::LoseWake(1))));
}

#[test]
fn a_wait_that_is_not_atomic() {
    caught(&[DEADLOCK], || {
        against_an_unlock::<Patient>("poundlock: a torn wait", faulty(TWO, Fault::TornWait))
    });
}

#[test]
fn a_plain_release_without_a_fence() {
    let settings = Settings { plain_release: true, ..faulty(TWO, Fault::Unfenced) };
    caught(&[DEADLOCK], || lockers::<Model>("poundlock: not fenced", 2, settings, 1));
}

#[test]
fn a_refused_fence_and_no_patrol() {
    let settings = faulty(REFUSED, Fault::Unlooked);
    caught(&[DEADLOCK], || lockers::<Model>("poundlock: refused, no timed wait", 2, settings, 1));
}

#[test]
fn no_release() {
    caught(&[UNORDERED], || lockers::<Model>("poundlock: no release", 2, faulty(TWO, Fault::WeakRelease), 1));
}

#[test]
fn no_acquire() {
    caught(&[UNORDERED], || lockers::<Model>("poundlock: no acquire", 2, faulty(TWO, Fault::WeakAcquire), 1));
}

/// The fast path.
#[test]
fn a_relaxed_test_and_set() {
    let settings = faulty(TWO, Fault::Weaken(Operation::FetchOr));
    caught(&[UNORDERED], || lockers::<Model>("poundlock: a relaxed test-and-set", 2, settings, 1));
}

/// The release, and the waiters' acquisitions.
#[test]
fn a_relaxed_compare_and_swap() {
    let settings = faulty(TWO, Fault::Weaken(Operation::CompareExchange));
    caught(&[UNORDERED], || lockers::<Model>("poundlock: a relaxed release", 2, settings, 1));
}

/// A waiter goes to sleep and stays the designated waker: unlocks wake nobody.
#[test]
fn a_designated_waker_that_sleeps() {
    caught(&[DEADLOCK], || {
        explore::<Model>("poundlock: designated for good", 1, TWO, |world| {
            let guarded = Guarded::<Model>::new();
            let other = world.unexplored(|| {
                guarded.mutex.lock();
                let other = guarded.passer(world, 1);
                world.await_sleep(1);
                guarded.words().state.fetch_or(AWAKE, Relaxed);
                other
            });
            guarded.section();
            guarded.mutex.unlock();
            other.join().unwrap();
        })
    });
}

#[test]
fn a_touch_after_the_release() {
    caught(&[LATE, UNORDERED], || {
        destroyed_by_the_last::<Model>(
            "poundlock: a late touch",
            faulty(TWO, Fault::TouchAfterRelease),
            false,
        )
    });
}
