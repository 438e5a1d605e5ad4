//! Random histories: what processes and threads were told, and what the array holds, must be what the plain
//! model of System V semaphores gives.
//!
//! A step of a history is a few calls at once, whose threads are displaced at random between any two
//! accesses; processes are killed between steps and in the middle of calls. The model takes calls one after
//! another, so what may be is what comes of any order of them. All that may be is kept, and everything that
//! is seen narrows it down.

use std::collections::BTreeSet;

use poundlock_core::semarray::Scheme;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::model::{LARGEST, Model, Operation, Sleeper};
use crate::rig::{A_WHILE, Call, Reply, Rig, View};
use crate::system::{self, Fault, ProcessNumber, State, ThreadNumber};

/// Processes at a time.
const PROCESSES: usize = 3;
/// Threads that each of them has.
const THREADS: usize = 2;
/// Shorter than any sleeper is certain to look at the array.
const SHORT: u64 = 10_000_000;
/// Passes in the third while.
const LONG: u64 = 2 * A_WHILE + 2_000_000_000;

impl core::fmt::Debug for Step {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Step::Calls(calls, seed) => write!(f, "calls {calls:?} shuffled by {seed}"),
            Step::Killed(calls, seed, process, step, own) => {
                let whose = if *own { "its own" } else { "all" };
                write!(
                    f,
                    "calls {calls:?} shuffled by {seed}, process {process} killed at step {step} of {whose}"
                )
            }
            Step::Kill(process, look, slot) => write!(f, "kill {process}, look {look}, reuse {slot}"),
            Step::Interrupt(seat) => write!(f, "interrupt {seat}"),
            Step::Pass => write!(f, "pass"),
        }
    }
}

#[derive(Clone)]
enum Step {
    /// Calls by the threads in these seats, at once if there are several. Numbers of semaphores are taken
    /// modulo how many there are.
    Calls(Vec<(usize, Call)>, u64),
    /// And a process is killed after so many steps: of its own, or of all.
    Killed(Vec<(usize, Call)>, u64, usize, u64, bool),
    /// A process is killed; then somebody looks, or time passes first. Another one takes its place; perhaps
    /// in its slot of the table.
    Kill(usize, bool, bool),
    Interrupt(usize),
    Pass,
}

#[derive(Clone, Debug)]
struct History {
    semaphores: usize,
    steps: Vec<Step>,
}

fn change() -> impl Strategy<Value = i32> + Clone {
    prop_oneof![
        8 => -2..=2,
        1 => -5..=5,
        1 => prop::sample::select(vec![LARGEST, -LARGEST, -LARGEST - 1, LARGEST - 1, 20_000, -20_000]),
    ]
}

fn operate() -> impl Strategy<Value = Call> {
    let operation = (0..4_usize, change(), prop::bool::weighted(0.15), prop::bool::weighted(0.4))
        .prop_map(|(num, change, no_wait, undo)| Operation { num, change, no_wait, undo });
    let operations = prop_oneof![
        5 => vec(operation.clone(), 1),
        3 => vec(operation.clone(), 2..=4),
        1 => vec(operation, 5..=12),
    ];
    let patience = prop_oneof![
        5 => Just(None),
        1 => Just(Some(SHORT)),
        1 => Just(Some(LONG)),
        1 => Just(Some(0)),
    ];
    (operations, patience).prop_map(|(operations, patience)| Call::Operate(operations, patience))
}

fn call() -> impl Strategy<Value = Call> {
    let value =
        || prop_oneof![6 => 0..4, 1 => Just(LARGEST), 1 => prop::sample::select(vec![-1, LARGEST + 1])];
    prop_oneof![
        40 => operate(),
        3 => (0..4_usize, value()).prop_map(|(num, value)| Call::SetValue(num, value)),
        2 => vec(value(), 4).prop_map(Call::SetValues),
        1 => Just(Call::Set),
        1 => Just(Call::Remove),
        3 => Just(Call::Values),
        2 => Just(Call::Leave),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let seat = || 0..PROCESSES * THREADS;
    let together = move || vec((seat(), call()), 1..=3);
    prop_oneof![
        10 => vec((seat(), call()), 1).prop_map(|calls| Step::Calls(calls, 0)),
        4 => (together(), any::<u64>()).prop_map(|(calls, seed)| Step::Calls(calls, seed)),
        4 => (together(), any::<u64>(), 0..PROCESSES, 0..250_u64, any::<bool>())
            .prop_map(|(calls, seed, process, step, own)| Step::Killed(calls, seed, process, step, own)),
        2 => (0..PROCESSES, any::<bool>(), any::<bool>()).prop_map(|(process, look, slot)| Step::Kill(process, look, slot)),
        1 => seat().prop_map(Step::Interrupt),
        1 => Just(Step::Pass),
    ]
}

fn history() -> impl Strategy<Value = History> {
    (1..=4_usize, vec(step(), 1..40)).prop_map(|(semaphores, steps)| History { semaphores, steps })
}

/// Something that happens at one moment.
#[derive(Clone)]
enum Event<'a> {
    Call(ThreadNumber, ProcessNumber, &'a Call, Option<Reply>),
    /// A call by one that was killed, which perhaps did not happen.
    Lost(ThreadNumber, ProcessNumber, &'a Call),
    Death(ProcessNumber),
    /// The death of one of its threads that sleep, which may come before that of one in a call.
    Sleeper(ThreadNumber),
    /// The time is up for those who had little.
    Expiry(u64),
}

/// Everything that these events may make of a state, in any order in which they may come.
fn outcomes(model: &Model, events: &[Event], clock: u64, into: &mut BTreeSet<Model>) {
    if events.is_empty() {
        into.insert(model.clone());
        return;
    }
    for (at, event) in events.iter().enumerate() {
        let mut after = model.clone();
        match event {
            Event::Call(thread, process, call, reply) => {
                let given = call.model(&mut after, *thread, *process, clock);
                // Whoever had to sleep may have been woken later.
                if given.is_some() && given != *reply {
                    continue;
                }
            }
            Event::Lost(thread, process, call) => {
                call.model(&mut after, *thread, *process, clock);
            }
            Event::Death(process) => {
                // Its calls came before, or not at all.
                after.end(*process);
            }
            Event::Sleeper(thread) => after.lose(*thread),
            Event::Expiry(time) => after.pass(*time),
        }
        let rest = events.iter().enumerate().filter(|(other, event)| {
            let lost = matches!((events.get(at), event), (Some(Event::Death(dead)), Event::Lost(_, process, _)) if dead == process);
            *other != at && !lost
        });
        let rest: Vec<Event> = rest.map(|(_, event)| event.clone()).collect();
        outcomes(&after, &rest, clock, into);
    }
}

/// A history as it goes on.
struct Course {
    rig: Rig,
    semaphores: usize,
    /// All that the array may be.
    models: BTreeSet<Model>,
    /// The process in each place.
    processes: [ProcessNumber; PROCESSES],
    /// Who sits in each seat, if he is in a call.
    seats: [Option<ThreadNumber>; PROCESSES * THREADS],
    observer: ProcessNumber,
    dead: Vec<ProcessNumber>,
}

impl Course {
    fn new(semaphores: usize, variant: Scheme) -> Course {
        let rig = Rig::new(semaphores, variant);
        let processes = core::array::from_fn(|_| rig.machine.process());
        let observer = rig.machine.process();
        Course {
            rig,
            semaphores,
            models: BTreeSet::from([Model::new(semaphores)]),
            processes,
            seats: [None; PROCESSES * THREADS],
            observer,
            dead: Vec::new(),
        }
    }

    /// The call as it is made to this array.
    fn fitted(&self, call: &Call) -> Call {
        let mut call = call.clone();
        match &mut call {
            Call::Operate(operations, _) => {
                // A sleeper that only waits for zeros is not tried again when one of them goes, so nobody
                // notices that it stands before one for which it must not wait.
                let zeros = operations.len() > 1 && operations.iter().all(|operation| operation.change == 0);
                for operation in operations {
                    operation.num %= self.semaphores;
                    operation.no_wait &= !zeros;
                }
            }
            Call::SetValue(num, _) => *num %= self.semaphores,
            Call::SetValues(values) => values.truncate(self.semaphores),
            _ => {}
        }
        call
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Calls(requests, seed) => self.calls(requests, *seed, None),
            Step::Killed(requests, seed, process, step, own) => {
                self.calls(requests, *seed, Some((*process, *step, *own)));
            }
            Step::Kill(place, look, slot) => {
                let process = self.processes[*place];
                self.rig.machine.kill(process);
                let expiry = self.rig.machine.clock() + SHORT;
                self.possible(&[Event::Death(process), Event::Expiry(expiry)], *look);
                self.replace(*place, *slot);
            }
            Step::Interrupt(seat) => {
                let Some(thread) = self.seats[*seat] else { return };
                self.rig.machine.interrupt(thread);
                self.rig.machine.settle();
                self.each(|model| model.interrupt(thread));
                self.check();
            }
            Step::Pass => self.pass(),
        }
    }

    fn each(&mut self, change: impl Fn(&mut Model)) {
        let models = std::mem::take(&mut self.models).into_iter().map(|mut model| {
            change(&mut model);
            model
        });
        self.models = models.collect();
    }

    /// These events happened in any order; somebody died among them, which is found out by time unless
    /// somebody looks.
    fn possible(&mut self, events: &[Event], look: bool) {
        let clock = self.rig.machine.clock();
        let mut models = BTreeSet::new();
        for model in &self.models {
            // Without expiries nothing else becomes of it.
            let short = model.sleepers.iter().any(|sleeper| sleeper.deadline == Some(clock + SHORT))
                || events
                    .iter()
                    .any(|event| matches!(event, Event::Call(_, _, Call::Operate(_, Some(SHORT)), _)));
            let events: Vec<Event> =
                events.iter().filter(|event| short || !matches!(event, Event::Expiry(_))).cloned().collect();
            outcomes(model, &events, clock, &mut models);
        }
        self.models = models;
        if look {
            // What somebody sees right away is what is there later.
            self.rig.view(self.observer);
        }
        self.pass();
    }

    fn pass(&mut self) {
        self.rig.machine.pass(A_WHILE);
        let clock = self.rig.machine.clock();
        self.each(|model| model.pass(clock));
        self.check();
    }

    fn calls(&mut self, requests: &[(usize, Call)], seed: u64, kill: Option<(usize, u64, bool)>) {
        let mut calls: Vec<(usize, Call)> = Vec::new();
        for (seat, request) in requests {
            // A process leaves when nothing else of it runs.
            let process = *seat / THREADS;
            let alone = requests.iter().filter(|(other, _)| other / THREADS == process).count() == 1;
            let taken = self.seats[*seat].is_some() || calls.iter().any(|(other, _)| other == seat);
            if !taken && (alone || !matches!(request, Call::Leave)) {
                let mut call = self.fitted(request);
                // A request of one that has no patience may sleep for a moment, as in the kernel: long enough
                // for others to be seen.
                if let Call::Operate(_, patience @ Some(0)) = &mut call
                    && self.rig.array.scheme() == Scheme::Combining
                    && requests.len() > 1
                {
                    *patience = None;
                }
                calls.push((*seat, call));
            }
        }
        let machine = self.rig.machine.clone();
        match kill {
            Some((place, step, true)) => machine.kill_at(self.processes[place], step),
            Some((place, step, false)) => machine.kill_after(self.processes[place], step),
            None => {}
        }
        if calls.len() > 1 {
            machine.shuffle(seed, 1 + seed % 40);
        }
        let mut threads = Vec::new();
        for (seat, call) in &calls {
            let process = self.processes[*seat / THREADS];
            let thread = self.rig.start(process, call);
            self.seats[*seat] = Some(thread);
            threads.push((thread, process, call));
        }
        machine.settle();
        machine.in_order();
        machine.disarm();
        let killed =
            kill.map(|(place, ..)| self.processes[place]).filter(|process| !machine.is_alive(*process));
        if killed.is_some() {
            // Whoever waits for the lock of the dead one finds out after a while, and replies then.
            let models = std::mem::take(&mut self.models);
            machine.pass(SHORT * 5);
            self.models = models;
        }
        let mut events: Vec<Event> = threads
            .iter()
            .map(|(thread, process, call)| match self.rig.reply(*thread) {
                // What it was told died with it, but it happened.
                reply if Some(*process) != killed => Event::Call(*thread, *process, call, reply),
                _ => Event::Lost(*thread, *process, call),
            })
            .collect();
        match killed {
            None => {
                let clock = machine.clock();
                let mut models = BTreeSet::new();
                for model in &self.models {
                    outcomes(model, &events, clock, &mut models);
                }
                self.models = models;
                self.check();
            }
            Some(process) => {
                events.push(Event::Death(process));
                events.push(Event::Expiry(machine.clock()));
                let begun = machine.clock() - 5 * SHORT;
                let mut models = BTreeSet::new();
                for model in &self.models {
                    let mut events = events.clone();
                    events.extend(model.asleep(process).into_iter().map(Event::Sleeper));
                    outcomes(model, &events, begun, &mut models);
                }
                self.models = models;
                self.pass();
                let place = kill.map_or(0, |(place, ..)| place);
                self.replace(place, seed.is_multiple_of(2));
            }
        }
    }

    /// A new process comes in a dead one's place.
    fn replace(&mut self, place: usize, in_its_slot: bool) {
        let dead = self.processes[place];
        for seat in 0..THREADS {
            self.seats[place * THREADS + seat] = None;
        }
        self.processes[place] = if in_its_slot {
            self.rig.now(self.observer, &Call::Reap(dead));
            self.rig.machine.process_in_place_of(dead)
        } else {
            self.dead.push(dead);
            self.rig.machine.process()
        };
    }

    /// Compares what is seen with what may be.
    fn check(&mut self) {
        let machine = self.rig.machine.clone();
        let view = self.rig.view(self.observer);
        let living: Vec<ThreadNumber> = self
            .seats
            .iter()
            .flatten()
            .copied()
            .filter(|thread| machine.is_alive(machine.process_of(*thread)))
            .collect();
        let fits = |model: &Model| {
            View::fits(&view, model)
                && living.iter().all(|thread| {
                    let sleeps = self.rig.reply(*thread).is_none();
                    let asleep = |sleeper: &Sleeper| sleeper.thread == *thread;
                    self.rig.was_told(model, *thread) && (!sleeps || model.sleepers.iter().any(asleep))
                })
        };
        let fitting: BTreeSet<Model> = self.models.iter().filter(|model| fits(model)).cloned().collect();
        assert!(
            !fitting.is_empty(),
            "the array is\n{view:?}\nthreads were told {:?}\nbut it may be one of\n{:#?}",
            living.iter().map(|thread| (*thread, self.rig.reply(*thread))).collect::<Vec<_>>(),
            self.models
        );
        self.models = fitting;
        // What has been told is over.
        for seat in &mut self.seats {
            if seat.is_some_and(|thread| machine.state(thread) == State::Ended) {
                *seat = None;
            }
        }
        self.each(|model| model.answers.clear());
        if let Err(wrong) = self.rig.array.audit() {
            panic!("{wrong}");
        }
    }

    /// One after another the processes end, and nothing is left.
    fn finish(mut self) {
        for place in 0..PROCESSES {
            let process = self.processes[place];
            self.rig.machine.kill(process);
            self.each(|model| model.end(process));
            self.dead.push(process);
            self.check();
        }
        for process in std::mem::take(&mut self.dead) {
            self.rig.now(self.observer, &Call::Reap(process));
        }
        self.check();
        let left = self.rig.array.audit().expect("it was just whole");
        assert!(left.is_empty(), "records are left over: {left:?}");
    }
}

/// How many histories of each variant: set `POUNDLOCK_HISTORIES` for more than these.
fn cases() -> u32 {
    match std::env::var("POUNDLOCK_HISTORIES") {
        Ok(number) => number.parse().expect("POUNDLOCK_HISTORIES is a number"),
        Err(_) => 3_000,
    }
}

fn happen(history: &History, variant: Scheme) {
    let mut course = Course::new(history.semaphores, variant);
    for step in &history.steps {
        course.take(step);
    }
    course.finish();
}

macro_rules! for_each_variant {
    ($($name:ident $variant:ident,)*) => {
        proptest! {
            #![proptest_config(ProptestConfig {
                cases: cases(),
                failure_persistence: None,
                max_shrink_iters: 20_000,
                ..ProptestConfig::default()
            })]

            $(
                #[test]
                fn $name(history in history()) {
                    happen(&history, Scheme::$variant);
                }
            )*
        }
    };
}

for_each_variant! {
    after After,
    before Before,
    combining Combining,
    shared_line SharedLine,
}

/// Whether random histories notice what is wrong.
fn noticed(fault: Fault) {
    system::plant(fault);
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() };
    let found = TestRunner::new(config).run(&history(), |history| {
        happen(&history, Scheme::After);
        Ok(())
    });
    system::plant(Fault::None);
    assert!(found.is_err(), "nobody noticed {fault:?}");
}

#[test]
fn lost_wake_ups() {
    noticed(Fault::Deaf);
}

#[test]
fn the_living_taken_for_dead() {
    noticed(Fault::TakenForDead);
}

#[test]
fn the_dead_taken_for_living() {
    noticed(Fault::Immortal);
}
