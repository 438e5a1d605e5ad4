//! What threads do with locks, written down in stretches.

use crate::common::{Lock, NOWHERE, SMALL, host, now, only_file, pair, recording, start};
use poundlock_statfile::writer::{Ended, Manner, Options};
use poundlock_statfile::{What, read_stretches};

#[test]
fn releases_are_looked_at_in_stretches_only() {
    // One chunk is the room for all: there will be one stretch.
    recording!(Stretches: directory, recorder, Options { trace: 1, ..SMALL });
    let lock = Lock::default();
    let pair = || {
        recorder.acquired(lock.seen(), NOWHERE, Manner::LOCK);
        let looked = recorder.released(lock.seen(), NOWHERE);
        if looked {
            recorder.call_ended();
        }
        looked
    };
    let stretch = || {
        let found = read_stretches(&only_file(directory.path())).expect("a good file").stretches;
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().expect("one")
    };
    assert!(pair(), "the first acquisition begins a stretch");
    while now() <= stretch().until_ns {
        pair();
    }
    pair();
    assert_eq!((0..10_000).filter(|_| pair()).count(), 0, "it is over");

    let events = &stretch().threads[0].events;
    // No CPU does six operations in 10 ps.
    let speed = events.iter().find_map(|event| match event.what {
        What::Cpu { on, turn_ps, .. } => Some((on.is_some(), turn_ps)),
        _ => None,
    });
    assert!(
        matches!(speed, Some((true, Some(10..65_536)))),
        "each thread says first where it is, and how fast that is: {speed:?}"
    );
    let of = |what: fn(&What) -> bool| events.iter().filter(|event| what(&event.what)).count();
    let acquired = of(|what| matches!(what, What::Acquired { .. }));
    let released = of(|what| *what == What::Released);
    assert!(released > 0 && acquired.abs_diff(released) <= 1, "{acquired} and {released}");
}

#[test]
fn what_is_acquired_after_a_wait_that_began_a_stretch_is_part_of_it() {
    recording!(Waits: directory, recorder, Options { trace: 64, ..SMALL });
    let (lock, awaited) = (Lock::default(), Lock::default());
    let newest = || {
        let found = read_stretches(&only_file(directory.path())).expect("a good file").stretches;
        found.into_iter().next_back().expect("one has begun")
    };
    let spin_until = |ns: u64| while now() <= ns {};
    pair::<Waits>(lock.seen());
    loop {
        let last = newest();
        spin_until(last.until_ns);
        // Acquisitions that do not look for a stretch for a while.
        (0..100).for_each(|_| pair::<Waits>(lock.seen()));
        // The next one is due.
        spin_until(last.began_ns + 11 * (last.until_ns - last.began_ns));
        recorder.blocks(awaited.seen(), NOWHERE);
        recorder.unblocked(Ended::Done);
        pair::<Waits>(lock.seen());
        let after = now();
        let stretch = newest();
        // If the thread had no CPU meanwhile, it may be over.
        if stretch.began_ns == last.began_ns || after > stretch.until_ns {
            continue;
        }
        let what: Vec<What> = stretch.threads[0].events.iter().map(|event| event.what).collect();
        let woken = what.iter().rposition(|what| matches!(what, What::Unblocked { .. })).expect("a wait");
        let seen: Vec<&What> =
            what[woken..].iter().filter(|what| !matches!(what, What::Ended | What::Cpu { .. })).collect();
        assert!(
            matches!(seen[..], [What::Unblocked { .. }, What::Acquired { .. }, What::Released]),
            "{seen:?} of {what:?}"
        );
        return;
    }
}
