//! Who comes next in a readers-writer lock: each line of the table in `poundlock_core::rwlock`, with a CPU
//! for each thread.

use std::cell::RefCell;
use std::rc::Rc;

use poundlock_core::rwlock::Preference::{self, PhaseFair, ReaderPreferring, WriterPreferring};
use poundlock_core::rwlock::RawRwLock;
use poundlock_sim::check::calm;
use poundlock_sim::{Alone, Settings, Sim, Simulation, work};

use crate::priorities::{MILLISECOND, deadline, sleep_until};

/// Comes at a time, in milliseconds, and stays for so many.
type Visitor = (u64, Visit, u64);

#[derive(Clone, Copy)]
enum Visit {
    Read(&'static str),
    Write(&'static str),
    /// Gives up at a time, in milliseconds.
    WriteUntil(&'static str, u64),
    /// Enters upgradable, and upgrades after the first half of its stay.
    Upgrade(&'static str),
}
use Visit::{Read, Upgrade, Write, WriteUntil};

/// In which order they enter; who gives up is in brackets.
fn order(policy: Preference, visitors: &[Visitor]) -> String {
    let lock = Rc::new(Alone(RawRwLock::<Sim>::new()));
    let log = Rc::new(RefCell::new(Vec::new()));
    let mut simulation = Simulation::new(&calm(), Settings::default(), 1);
    for (cpu, &(at, visit, stays)) in visitors.iter().enumerate() {
        let (lock, log) = (Rc::clone(&lock), Rc::clone(&log));
        let note = move |text: String| log.borrow_mut().push(text);
        simulation.spawn(Some(cpu as u32), move || {
            let lock = &lock.0;
            sleep_until(at);
            match visit {
                Read(name) => {
                    lock.lock_read(policy);
                    note(name.into());
                    work(stays * MILLISECOND);
                    lock.unlock_read();
                }
                Write(name) => {
                    lock.lock_write(policy);
                    note(name.into());
                    work(stays * MILLISECOND);
                    lock.unlock_write();
                }
                WriteUntil(name, limit) => {
                    assert!(!lock.lock_write_until(policy, &deadline(limit)), "{name} should give up");
                    note(format!("({name})"));
                }
                Upgrade(name) => {
                    lock.lock_upgradable(policy);
                    note(name.into());
                    work(stays * MILLISECOND / 2);
                    lock.upgrade();
                    note(name.to_uppercase());
                    work(stays * MILLISECOND / 2);
                    lock.unlock_write();
                }
            }
        });
    }
    let summary = simulation.run(900 * MILLISECOND).expect("nobody sleeps for ever");
    assert!(summary.over, "{:?}", log.borrow());
    assert!(lock.0.is_idle());
    log.take().join(" ")
}

#[test]
fn after_a_writer() {
    // The first writer of the queue enters after w0, and those who came meanwhile are there when it leaves.
    let visitors = [
        (0, Write("w0"), 100),
        (10, Write("w1"), 100),
        (20, Write("w2"), 10),
        (30, Read("r1"), 10),
        (40, Write("w3"), 10),
        (50, Read("r2"), 10),
    ];
    assert_eq!(order(PhaseFair, &visitors), "w0 w1 r1 r2 w2 w3");
    assert_eq!(order(ReaderPreferring, &visitors), "w0 w1 r1 r2 w2 w3");
    assert_eq!(order(WriterPreferring, &visitors), "w0 w1 w2 w3 r1 r2");
}

#[test]
fn readers_and_writers_in_turn() {
    // Readers that come while one writer is inside and another waits go between the two, and those that come
    // then after the second.
    let visitors = [
        (0, Write("w0"), 100),
        (10, Write("w1"), 100),
        (20, Write("w2"), 100),
        (30, Read("r1"), 100),
        (230, Read("r2"), 10),
        (350, Read("r3"), 10),
    ];
    assert_eq!(order(PhaseFair, &visitors), "w0 w1 r1 w2 r2 r3");
    assert_eq!(order(ReaderPreferring, &visitors), "w0 w1 r1 r2 w2 r3");
    assert_eq!(order(WriterPreferring, &visitors), "w0 w1 w2 r1 r2 r3");
}

#[test]
fn all_readers_that_came_before_a_writer_left_go_before_the_next() {
    // Before it entered, both of them; the first one is the head, and the second follows.
    let visitors = [
        (0, Read("r0"), 100),
        (10, Write("w1"), 100),
        (30, Read("r1"), 50),
        (40, Write("w2"), 10),
        (50, Read("r2"), 10),
    ];
    assert_eq!(order(PhaseFair, &visitors), "r0 w1 r1 r2 w2");
    assert_eq!(order(ReaderPreferring, &visitors), "r0 r1 r2 w1 w2");
    assert_eq!(order(WriterPreferring, &visitors), "r0 w1 w2 r1 r2");
}

#[test]
fn a_reader_that_came_while_one_was_inside_is_of_the_next_phase() {
    // The one inside did not come from the queue, and who would have been next gives up.
    let visitors =
        [(0, Write("w0"), 100), (10, WriteUntil("w1", 50), 0), (20, Write("w2"), 10), (30, Read("r"), 10)];
    assert_eq!(order(PhaseFair, &visitors), "w0 (w1) r w2");
    assert_eq!(order(ReaderPreferring, &visitors), "w0 (w1) r w2");
    assert_eq!(order(WriterPreferring, &visitors), "w0 (w1) w2 r");
}

#[test]
fn a_waiting_writer_keeps_newcomers_out() {
    let visitors = [(0, Read("r0"), 100), (10, Write("w"), 10), (50, Read("r1"), 10)];
    assert_eq!(order(PhaseFair, &visitors), "r0 w r1");
    assert_eq!(order(WriterPreferring, &visitors), "r0 w r1");
    assert_eq!(order(ReaderPreferring, &visitors), "r0 r1 w");
}

#[test]
fn after_one_that_gives_up_a_reader_of_this_phase_waits_for_the_next_writer() {
    let visitors = [
        (0, Read("r0"), 200),
        (10, WriteUntil("w1", 100), 0),
        (50, Read("r1"), 10),
        (60, Write("w2"), 10),
        (150, Read("r2"), 10),
    ];
    assert_eq!(order(PhaseFair, &visitors), "r0 (w1) w2 r1 r2");
    assert_eq!(order(WriterPreferring, &visitors), "r0 (w1) w2 r1 r2");
    assert_eq!(order(ReaderPreferring, &visitors), "r0 r1 (w1) r2 w2");
}

#[test]
fn an_upgrade_keeps_newcomers_out_and_comes_before_everybody() {
    let visitors = [
        (0, Read("r0"), 100),
        (10, Upgrade("u"), 40),
        (20, Read("r1"), 10),
        (50, Read("r2"), 10),
        (60, Write("w"), 10),
    ];
    assert_eq!(order(PhaseFair, &visitors), "r0 u r1 U r2 w");
    assert_eq!(order(WriterPreferring, &visitors), "r0 u r1 U r2 w");
    assert_eq!(order(ReaderPreferring, &visitors), "r0 u r1 r2 U w");
}
