//! Queue spinlocks in a forked child, whose words speak of threads that do not exist there. Those are the
//! threads from 19 on here: a model fails when it follows such a name, for there is no such record.

use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::Atomic;
use poundlock_core::qspin::{ChosenForm, Layout, Native, Paravirtual, Virtual};
use poundlock_model::{Model, Settings, explore};

use crate::qspin::{LOCKED, SLOW, Spun, TWO, for_each_layout};

/// A child whose parent was not forked itself.
pub(crate) const CHILD: Settings = Settings { spins: 0, epoch: 7, ..TWO };
/// The low byte of a lock that its queue head has reserved.
const RESERVED: u32 = 0xfc;

/// What the other threads of the parent were about when it forked: one was pending, others queued.
pub(crate) fn left<L: Layout>() -> u32 {
    L::PENDING | 77 << L::TAIL.trailing_zeros() | 3 << L::EPOCH.trailing_zeros()
}

/// Two threads of the child come to the lock at once, in which more was left.
pub(crate) fn free<L: Layout, F: ChosenForm>(name: &str, settings: Settings, more: u32) {
    let report = explore::<Model>(name, 3, settings, move |world| {
        let spun = Spun::<Model, L>::new();
        spun.word().store(left::<L>() | more, Relaxed);
        let other = spun.passer::<F>(world, 1, 1);
        spun.pass::<F>();
        other.join().unwrap();
        assert_eq!((spun.word().peek() & L::EPOCH) >> L::EPOCH.trailing_zeros(), settings.epoch);
        spun.finish(2);
    });
    assert!(report.executions > 10);
}

/// The thread that forked holds the lock, and unlocks it while a new thread comes.
fn held<L: Layout, F: ChosenForm>(name: &str, more: u32) {
    explore::<Model>(name, 3, CHILD, move |world| {
        let spun = Spun::<Model, L>::new();
        spun.lock.lock::<F>();
        spun.word().store(left::<L>() | LOCKED | more, Relaxed);
        let other = spun.passer::<F>(world, 1, 1);
        spun.section();
        spun.lock.unlock::<F>();
        spun.pass::<F>();
        other.join().unwrap();
        spun.finish(3);
    });
}

fn native<L: Layout>(name: &str) {
    free::<L, Native>(name, CHILD, 0);
    held::<L, Native>(name, 0);
}

fn in_the_virtual_form<L: Layout>(name: &str) {
    free::<L, Virtual>(name, CHILD, 0);
    held::<L, Virtual>(name, 0);
}

/// The head was halted, or had reserved the lock.
fn paravirtual<L: Layout>(name: &str) {
    for more in [0, L::HALTS | SLOW, L::HALTS | SLOW | 4, L::HALTS | RESERVED] {
        free::<L, Paravirtual>(name, CHILD, more);
        held::<L, Paravirtual>(name, more);
    }
}

for_each_layout!(native, in_the_virtual_form, paravirtual);
