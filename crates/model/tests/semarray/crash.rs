//! Processes that are killed before each of their steps in turn.
//!
//! A scenario leads to a call by the victim, which is killed before its first step, its second, and so on to
//! its last. Afterwards the array must be what it was before the call or what it is after it, with the
//! victim's adjustments applied and its sleepers gone; nobody who could proceed may be left asleep; and no
//! record may be left over. Those who come to the rescue are killed in the same way.

use std::collections::BTreeSet;

use poundlock_core::semarray::{Audit, Scheme};

use crate::model::{Model, Operation};
use crate::rig::{A_WHILE, Call, Reply, Rig, View, operation, undo};
use crate::system::{self, Fault, ProcessNumber, State, ThreadNumber};

/// The process that is killed.
const VICTIM: ProcessNumber = 0;
/// Processes in a scenario, the victim included.
const PROCESSES: usize = 6;
/// The process that does nothing else but look.
const OBSERVER: ProcessNumber = PROCESSES;
/// The one that is killed on coming to the rescue.
const RESCUER: ProcessNumber = PROCESSES + 1;

/// What happens to a victim that sleeps, so that it goes on.
#[derive(Clone, Debug)]
enum Meanwhile {
    Nothing,
    Call(ProcessNumber, Call),
    Interrupt,
    Time(u64),
}

#[derive(Clone, Debug)]
struct Scenario {
    name: &'static str,
    semaphores: usize,
    /// Calls before, of which some may sleep.
    before: Vec<(ProcessNumber, Call)>,
    /// Processes that are killed before, which nobody has seen yet.
    dead: Vec<ProcessNumber>,
    call: Call,
    meanwhile: Meanwhile,
}

/// How others find out that the victim was killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rescue {
    /// Somebody uses the array.
    Use,
    /// Nobody does, but time passes.
    Time,
    /// Somebody is told.
    Reap,
    /// It was not killed, but runs another program, which is the first to use the array.
    Succeed,
    /// Somebody uses the array, and is killed before this step; then somebody else does.
    Killed(u64),
    /// Somebody is told, and is killed before this step; then time passes.
    KilledReaping(u64),
}

/// How a run ended.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The victim's call was over before the step at which it was to be killed.
    Over,
    /// Nobody was killed to the end of what was to be tried.
    NotKilled,
    Checked,
}

/// The array on the machine and in the model, side by side.
struct Course {
    rig: Rig,
    model: Model,
    /// Threads whose calls may sleep, and the survivors among which are asked what they were told.
    threads: Vec<ThreadNumber>,
}

impl Course {
    fn new(scenario: &Scenario, scheme: Scheme) -> Course {
        let rig = Rig::new(scenario.semaphores, scheme);
        for _ in 0..PROCESSES + 2 {
            rig.machine.process();
        }
        let mut course = Course { rig, model: Model::new(scenario.semaphores), threads: Vec::new() };
        for (process, call) in &scenario.before {
            course.call(*process, call);
        }
        for process in &scenario.dead {
            course.rig.machine.kill(*process);
        }
        course
    }

    /// Makes a call that nobody is killed in.
    fn call(&mut self, process: ProcessNumber, call: &Call) {
        let thread = self.rig.call(process, call);
        let expected = call.model(&mut self.model, thread, process, self.rig.machine.clock());
        assert_eq!(self.rig.reply(thread), expected, "what {call:?} gives");
        self.threads.push(thread);
    }

    fn alive(&self, thread: ThreadNumber) -> bool {
        self.rig.machine.state(thread) != State::Killed
    }

    /// Whether this is what became of the array and of those who survived.
    fn fits(&self, model: &Model, view: &Option<View>) -> bool {
        let told = |thread: &ThreadNumber| match self.rig.reply(*thread) {
            Some(Reply::Ended(answer)) => {
                model.answers.get(thread).is_none_or(|expected| *expected == answer)
            }
            Some(Reply::Saw(_)) => true,
            None => !model.answers.contains_key(thread),
        };
        View::fits(view, model) && self.threads.iter().filter(|thread| self.alive(**thread)).all(told)
    }
}

/// All that may be if these processes die, in any order, after some calls. If the victim runs another
/// program, it loses its sleepers only.
fn deaths(model: &Model, processes: &[ProcessNumber], rescue: Rescue) -> BTreeSet<Model> {
    if processes.is_empty() {
        return BTreeSet::from([model.clone()]);
    }
    let mut all = BTreeSet::new();
    for process in processes {
        let mut model = model.clone();
        end(&mut model, *process, rescue);
        let others: Vec<_> = processes.iter().copied().filter(|other| other != process).collect();
        all.extend(deaths(&model, &others, rescue));
    }
    all
}

fn end(model: &mut Model, process: ProcessNumber, rescue: Rescue) {
    if process == VICTIM && rescue == Rescue::Succeed {
        Call::Succeed.model(model, 0, VICTIM, 0);
    } else {
        model.end(process);
    }
}

/// All that may be when the victim is killed in its call: it happened or it did not, and the dead were found
/// before it or after.
fn possible(
    model: &Model,
    dead: &[ProcessNumber],
    rescue: Rescue,
    call: impl Fn(&mut Model),
) -> BTreeSet<Model> {
    let mut with_victim = dead.to_vec();
    with_victim.push(VICTIM);
    let mut all = deaths(model, &with_victim, rescue);
    // Some of its other threads may have been killed before this one came so far.
    let asleep = model.asleep(VICTIM);
    for some in 0..1 << asleep.len() {
        let mut model = model.clone();
        asleep
            .iter()
            .enumerate()
            .filter(|(at, _)| some >> at & 1 != 0)
            .for_each(|(_, thread)| model.lose(*thread));
        let model = &model;
        for before in deaths(model, dead, rescue) {
            let mut after = before.clone();
            call(&mut after);
            end(&mut after, VICTIM, rescue);
            all.insert(after);
        }
        let mut first = model.clone();
        call(&mut first);
        all.extend(deaths(&first, &with_victim, rescue));
    }
    all
}

fn run(scenario: &Scenario, scheme: Scheme, step: u64, without: Option<usize>, rescue: Rescue) -> Outcome {
    let mut course = Course::new(scenario, scheme);
    let machine = course.rig.machine.clone();
    let before = course.model.clone();
    match without {
        None if rescue == Rescue::Succeed => machine.succeed_at(VICTIM, step),
        None => machine.kill_at(VICTIM, step),
        Some(nth) => machine.kill_without(VICTIM, step, nth),
    }
    let thread = course.rig.call(VICTIM, &scenario.call);
    let clock = machine.clock();
    let called = |model: &mut Model| {
        scenario.call.model(model, thread, VICTIM, clock);
    };
    let mut all = possible(&before, &scenario.dead, rescue, called);
    if matches!(machine.state(thread), State::Asleep { .. }) {
        // It goes on, and is killed then.
        let mut slept = deaths(&before, &scenario.dead, rescue).pop_first().expect("there is one");
        called(&mut slept);
        match &scenario.meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Call(process, call) => {
                let other = course.rig.call(*process, call);
                course.threads.push(other);
                call.model(&mut slept, other, *process, machine.clock());
            }
            Meanwhile::Interrupt => {
                machine.interrupt(thread);
                machine.settle();
                slept.interrupt(thread);
            }
            Meanwhile::Time(time) => {
                machine.pass(*time);
                slept.pass(machine.clock());
            }
        }
        end(&mut slept, VICTIM, rescue);
        all = BTreeSet::from([slept]);
    }
    let over = machine.state(thread) != State::Killed;
    if over {
        // The last step of all: it was killed when it had returned, or as it sleeps.
        if !matches!(machine.state(thread), State::Asleep { .. }) {
            assert!(matches!(machine.state(thread), State::Ended), "the call does not return");
        }
        if without.is_some() {
            return Outcome::Over;
        }
        if rescue == Rescue::Succeed { machine.end_threads(VICTIM) } else { machine.kill(VICTIM) }
    } else if without.is_some() && !machine.did_without() {
        return Outcome::NotKilled;
    }

    let mut rescued = true;
    match rescue {
        Rescue::Use => {}
        Rescue::Time => machine.pass(A_WHILE),
        Rescue::Reap => {
            course.rig.now(OBSERVER, &Call::Reap(VICTIM));
        }
        Rescue::Succeed => {
            course.rig.now(VICTIM, &Call::Succeed);
        }
        Rescue::Killed(step) => {
            machine.kill_at(RESCUER, step);
            course.rig.call(RESCUER, &Call::Values);
            rescued = !machine.is_alive(RESCUER);
        }
        Rescue::KilledReaping(step) => {
            machine.kill_at(RESCUER, step);
            course.rig.call(RESCUER, &Call::Reap(VICTIM));
            rescued = !machine.is_alive(RESCUER);
            machine.pass(A_WHILE);
        }
    }
    machine.disarm();
    // Before anything else can happen.
    let view = course.rig.view(OBSERVER);
    machine.pass(A_WHILE);
    for model in std::mem::take(&mut all) {
        let mut model = model;
        model.pass(machine.clock());
        all.insert(model);
    }
    let later = course.rig.view(OBSERVER);
    assert_eq!(view, later, "whoever uses the array first does not see what it will be");
    let found = all.iter().find(|model| course.fits(model, &view));
    let Some(found) = found else {
        let told: Vec<_> = course.threads.iter().map(|thread| (*thread, course.rig.reply(*thread))).collect();
        panic!("the array is\n{view:?}\n{told:?}\nbut may be one of\n{all:#?}");
    };
    course.model = found.clone();
    course.audit();

    // Whoever sleeps can still be woken, and nothing is left in the end.
    if !course.model.removed {
        course.call(OBSERVER, &Call::SetValues(vec![9; scenario.semaphores]));
        course.check();
        course.call(OBSERVER, &Call::SetValues(vec![0; scenario.semaphores]));
        course.check();
    }
    course.finish();
    match (over, rescued) {
        (true, _) => Outcome::Over,
        (_, false) => Outcome::NotKilled,
        _ => Outcome::Checked,
    }
}

impl Course {
    fn check(&self) {
        let view = self.rig.view(OBSERVER);
        assert!(self.fits(&self.model, &view), "the array is {view:?}, but should be {:#?}", self.model);
        self.audit();
    }

    fn audit(&self) {
        if let Err(wrong) = self.rig.array.audit() {
            panic!("{wrong}");
        }
    }

    /// Everybody ends; nothing is left.
    fn finish(&mut self) {
        for process in 0..PROCESSES {
            if self.rig.machine.is_alive(process) {
                self.rig.machine.kill(process);
                self.model.end(process);
            }
        }
        for process in 0..PROCESSES + 2 {
            if !self.rig.machine.is_alive(process) {
                self.rig.now(OBSERVER, &Call::Reap(process));
            }
        }
        self.check();
        let left = self.rig.array.audit().expect("it was just whole");
        assert!(left.is_empty(), "records are left over: {left:?}");
    }
}

/// Kills the victim before each of its steps, with each way to the rescue.
fn every_step(scenario: &Scenario, scheme: Scheme) -> (u64, u64) {
    let mut runs = 0;
    let mut steps = 0;
    for rescue in [Rescue::Use, Rescue::Time, Rescue::Reap, Rescue::Succeed] {
        steps = (0..)
            .find(|step| {
                runs += 1;
                note(scenario, scheme, *step, None, rescue);
                run(scenario, scheme, *step, None, rescue) == Outcome::Over
            })
            .expect("it ends");
        assert!(steps > 0, "{}: the victim takes no step", scenario.name);
    }
    (steps, runs)
}

std::thread_local! {
    static NOTED: core::cell::RefCell<String> = const { core::cell::RefCell::new(String::new()) };
}

/// Says where it was, if a check fails.
struct Sayer;

impl Drop for Sayer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            NOTED.with_borrow(|noted| eprintln!("this was {noted}"));
        }
    }
}

fn note(scenario: &Scenario, scheme: Scheme, step: u64, without: Option<usize>, rescue: Rescue) {
    NOTED.with_borrow_mut(|noted| {
        use core::fmt::Write as _;
        noted.clear();
        let _ = write!(
            noted,
            "{:?} ({}), killed before step {step}, without {without:?}, then {rescue:?}",
            scenario.name,
            scheme.name()
        );
    });
}

/// An operation as it is written below: a semaphore, what is added to it, and perhaps `!` (undo) and `~`
/// (does not wait).
fn parse_operation(text: &str) -> Operation {
    let plain = text.trim_end_matches(['!', '~']);
    let (num, change) = plain.split_at(plain.find(['+', '-']).expect("a change"));
    Operation {
        no_wait: text.contains('~'),
        undo: text.contains('!'),
        ..operation(num.parse().expect("a number"), change.parse().expect("a number"))
    }
}

/// A call as it is written below: operations, perhaps with a limit of nanoseconds, or a word for another
/// call.
fn parse_call(text: &str) -> Call {
    let (text, limit) = text.split_once(" for ").map_or((text, None), |(text, limit)| (text, Some(limit)));
    let words: Vec<&str> = text.split(' ').collect();
    let number = |word: &str| word.parse::<i32>().expect("a number");
    match words[0] {
        "set" => Call::SetValue(number(words[1]) as usize, number(words[2])),
        "set-all" => Call::SetValues(words[1..].iter().copied().map(number).collect()),
        "own" => Call::Set,
        "remove" => Call::Remove,
        "leave" => Call::Leave,
        "reap" => Call::Reap(number(words[1]) as ProcessNumber),
        _ => Call::Operate(
            words.into_iter().map(parse_operation).collect(),
            limit.map(|limit| limit.parse().expect("nanoseconds")),
        ),
    }
}

/// Somebody's call: the process, a colon, and the call.
fn parse_others(text: &str) -> (ProcessNumber, Call) {
    let (process, call) = text.split_once(": ").expect("a process and its call");
    (process.parse().expect("a process"), parse_call(call))
}

/// Name, calls before it, the victim's call, and what happens then: processes that are dead already, or what
/// befalls a victim that sleeps.
type Row = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const SCENARIOS: &[Row] = &[
    // Operations that disturb nobody.
    ("give", "", "0+2", ""),
    ("take", "1: 0+2", "0-1", ""),
    ("zero already", "", "0+0", ""),
    ("several", "1: 1+3", "0+1 1-2 2+3 0-1", ""),
    ("none of several", "1: 1+3", "0+1 1-2 2-3~", ""),
    ("out of range", "1: 0+32767", "1+1 0+1", ""),
    // Adjustments.
    ("first adjustment", "", "0+2!", ""),
    ("another adjustment", "0: 0+2!", "1+2!", ""),
    ("same adjustment", "0: 0+2!", "0+3!", ""),
    ("no more adjustments", "0: 0+2!", "0-2!", ""),
    ("adjustments among others'", "1: 0+2!; 2: 0+2!; 0: 1+1!; 3: 0+3!", "1-1! 0-1! 2+2!", ""),
    ("an adjustment that wakes", "0: 0+2; 0: 0-2!; 1: 0-1", "1+1", ""),
    // Waking those who wait for one thing.
    ("wake one", "1: 0-1", "0+1", ""),
    ("wake one who adjusts", "1: 0-1!", "0+1", ""),
    ("wake several", "1: 0-1; 2: 0-2; 3: 0-1!; 4: 0-1", "0+3!", ""),
    ("wake at several", "1: 0-1; 2: 1-1; 3: 2-1; 4: 2-1", "2+1 1+1 0+1", ""),
    ("wake a second one", "1: 0-3; 2: 0-2; 3: 0-2", "0+2", ""),
    ("wake for zero", "1: 0+1; 2: 0+0; 3: 0+0; 4: 1+0", "0-1", ""),
    ("wake for zero in passing", "1: 0-1; 2: 1+1; 3: 0+0", "0+1", ""),
    ("a thread of its own", "0: 0-1!; 1: 0-1; 0: 1-1", "0+2 1+1", ""),
    // Waking those who wait for several things.
    ("wake several things", "1: 0+1; 2: 0-1 1-1", "1+1", ""),
    ("wake a chain", "1: 0-1 1+1; 2: 1-1! 2+1!; 3: 2-1; 4: 2+0 1+0 0+0; 5: 0+0", "0+1", ""),
    ("wake in the order of coming", "1: 0-2; 2: 0-1 1-1; 3: 0-1; 4: 1-1", "0+2 1+1", ""),
    ("wake an earlier one again", "1: 0-2; 2: 1-1 0+1; 3: 1-1", "1+1 0+1", ""),
    ("wake one who finds no room", "1: 0-1 1+32767; 2: 0-1; 3: 1+1", "0+1", ""),
    ("wake one with many operations", "1: 0+1 1+1 2+1 0+1 1+1 2+1 0+1 1+1 2+1 2-4", "2+1", ""),
    // Sleeping.
    ("sleep", "", "0-1", "1: 0+1"),
    ("sleep and adjust", "", "0-1!", "1: 0+2"),
    ("sleep behind others", "1: 0-1; 2: 0-2", "0-3", "1: 0+6"),
    ("sleep for zero", "1: 0+1", "0+0", "1: 0-1"),
    ("sleep for several things", "1: 0-1; 2: 1-1 2-1", "0-1! 1-1! 2+2!", "1: 0+2 1+1"),
    ("sleep for several zeros", "1: 1+1 2+1", "0+0 1+0 2+0", "1: 1-1 2-1"),
    ("sleep with many operations", "", "0+1 1+1 2+1 0+1 1+1 2+1 0+1 1+1 2+1 2-4", "1: 2+1"),
    ("sleep in vain", "1: 0+1!", "0-2! for 30000000", "time 2000000000"),
    ("be interrupted", "1: 0-2", "0-1 1-1", "interrupt"),
    ("sleep, and it is removed", "1: 0-1", "0-1", "1: remove"),
    ("sleep for good", "1: 0+1!", "0-2", ""),
    // Setting.
    ("set one", "1: 0+1!; 0: 0+1!; 0: 1+1!; 2: 0-4; 3: 0+0", "set 0 4", ""),
    ("set one to zero", "1: 0+1!; 3: 0+0; 2: 0-4", "set 0 0", ""),
    ("set all", "1: 0+1!; 0: 0+1! 1+2! 2+1!; 2: 0-4; 3: 1-3 2-3; 4: 2+0", "set-all 5 3 3", ""),
    ("set the owner", "0: 0+1!; 1: 0-2", "own", ""),
    ("remove", "0: 0+1!; 1: 0-2; 2: 0-2 1-1; 3: 0+0; 0: 0-3", "remove", ""),
    // Ends.
    ("leave", "1: 1+1; 0: 0+1! 1-1!; 2: 0+0; 3: 1-1", "leave", ""),
    ("find one dead", "1: 0+2! 1+1!; 2: 0+0; 3: 1+0", "2+1", "dead 1"),
    ("find two dead", "1: 0+3; 1: 0-2!; 2: 0-1!; 3: 0-2; 4: 0-1", "2+1", "dead 1 2"),
    // Between two adjustments it looks as if the sleeper could proceed.
    ("find half an end", "2: 0+1; 1: 0-1! 1+1!; 3: 0-1 1-1", "2+1", "dead 1"),
    ("reap one", "1: 0+2! 1+1!; 1: 2-1; 2: 0+0", "reap 1", "dead 1"),
    ("pass over the dead", "1: 0-1; 2: 0-1; 1: 0-1 1-1", "0+1", "dead 1"),
    ("pass over the dead among several", "1: 0-1 1-1; 2: 0-1! 1-1!; 3: 0-1", "1+1 0+1", "dead 1"),
    ("remove among the dead", "1: 0+1!; 1: 0-2; 2: 0-2", "remove", "dead 1"),
    ("set among the dead", "1: 0+1!; 1: 1-2; 2: 1-1", "set-all 1 1 1", "dead 1"),
];

fn scenarios() -> Vec<Scenario> {
    let scenario = |&(name, before, call, then): &Row| {
        let before = before.split("; ").filter(|text| !text.is_empty()).map(parse_others).collect();
        let dead = then.strip_prefix("dead ").into_iter().flat_map(|dead| dead.split(' '));
        let meanwhile = match then.split_once(' ') {
            _ if then.is_empty() => Meanwhile::Nothing,
            None => Meanwhile::Interrupt,
            Some(("dead", _)) => Meanwhile::Nothing,
            Some(("time", time)) => Meanwhile::Time(time.parse().expect("nanoseconds")),
            Some(_) => {
                let (process, call) = parse_others(then);
                Meanwhile::Call(process, call)
            }
        };
        let dead = dead.map(|process| process.parse().expect("a process")).collect();
        Scenario { name, semaphores: 3, before, dead, call: parse_call(call), meanwhile }
    };
    SCENARIOS.iter().map(scenario).collect()
}

/// The victim alone is killed.
fn one_death(scheme: Scheme) {
    let _sayer = Sayer;
    let (mut steps, mut runs) = (0, 0);
    for scenario in scenarios() {
        let (of_this, runs_of_this) = every_step(&scenario, scheme);
        steps += of_this;
        runs += runs_of_this;
    }
    println!("{}: killed before each of {steps} steps, {runs} runs", scheme.name());
}

/// And whoever comes to the rescue. Of every victim's step and every rescuer's step one in so many
/// combinations, and every step of each.
fn two_deaths(scheme: Scheme, one_in: u64) {
    let _sayer = Sayer;
    let mut runs = 0;
    for scenario in scenarios() {
        for (kind, rescue) in [Rescue::Killed as fn(u64) -> Rescue, Rescue::KilledReaping].iter().enumerate()
        {
            let mut over = false;
            let mut step = 0;
            while !over {
                let mut second = (step + kind as u64) % one_in;
                loop {
                    note(&scenario, scheme, step, None, rescue(second));
                    runs += 1;
                    match run(&scenario, scheme, step, None, rescue(second)) {
                        Outcome::Checked => second += one_in,
                        Outcome::NotKilled => break,
                        Outcome::Over => {
                            over = true;
                            break;
                        }
                    }
                }
                step += 1;
            }
        }
    }
    println!("{}: and those who came to the rescue, {runs} runs", scheme.name());
}

/// A killed process's last stores are missing, as far as the orderings allow the compiler to have moved them.
fn missing_stores(scheme: Scheme) {
    let _sayer = Sayer;
    let mut runs = 0;
    for scenario in scenarios() {
        let mut over = false;
        let mut step = 0;
        while !over {
            for nth in 0.. {
                note(&scenario, scheme, step, Some(nth), Rescue::Use);
                runs += 1;
                match run(&scenario, scheme, step, Some(nth), Rescue::Use) {
                    Outcome::Checked => {}
                    Outcome::NotKilled => break,
                    Outcome::Over => {
                        over = true;
                        break;
                    }
                }
            }
            step += 1;
        }
    }
    println!("{}: without a store, {runs} runs", scheme.name());
}

/// The greatest calls fill the journal most.
fn greatest(scheme: Scheme) {
    let _sayer = Sayer;
    let each = |change: &dyn Fn(usize) -> (usize, i32)| {
        Call::Operate((0..500).map(change).map(|(num, change)| undo(num, change)).collect(), None)
    };
    let plain = |name, semaphores, before, call| Scenario {
        name,
        semaphores,
        before,
        dead: vec![],
        call,
        meanwhile: Meanwhile::Nothing,
    };
    let up_and_down = |at: usize| (0, if at.is_multiple_of(2) { 1 } else { -1 });
    let scenarios = [
        plain("500 semaphores", 500, vec![(1, parse_call("7-1"))], each(&|at| (at, 1))),
        plain(
            "500 semaphores, no adjustments left",
            500,
            vec![(0, each(&|at| (at, 2)))],
            each(&|at| (at, -2)),
        ),
        plain("500 times one semaphore", 1, vec![(1, parse_call("0-1"))], each(&up_and_down)),
        plain(
            "500 semaphores for a sleeper",
            500,
            vec![(1, each(&|at| (at, if at == 499 { -1 } else { 1 })))],
            parse_call("499+1"),
        ),
    ];
    let mut runs = 0;
    for scenario in &scenarios {
        let mut step = 0;
        loop {
            note(scenario, scheme, step, None, Rescue::Use);
            runs += 1;
            if run(scenario, scheme, step, None, Rescue::Use) == Outcome::Over {
                break;
            }
            step += 41;
        }
    }
    println!("{}: the greatest calls, {runs} runs", scheme.name());
}

macro_rules! for_each_scheme {
    ($($module:ident $scheme:ident $one_in:literal,)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn one_is_killed() {
                one_death(Scheme::$scheme);
            }

            #[test]
            fn the_rescuer_is_killed() {
                two_deaths(Scheme::$scheme, $one_in);
            }

            #[test]
            fn in_the_greatest_calls() {
                greatest(Scheme::$scheme);
            }

            #[test]
            fn the_last_stores_are_missing() {
                missing_stores(Scheme::$scheme);
            }
        }
    )*};
}

for_each_scheme! {
    after After 24,
    before Before 96,
    combining Combining 96,
    shared_line SharedLine 96,
}

/// Tests that do not find what is wrong are none.
fn caught(fault: Fault, test: impl FnOnce() + std::panic::UnwindSafe) {
    system::plant(fault);
    let found = std::panic::catch_unwind(test);
    system::plant(Fault::None);
    assert!(found.is_err(), "nobody noticed {fault:?}");
}

#[test]
fn a_journal_without_entries() {
    caught(Fault::Frozen(Audit::JOURNAL_LENGTH), || one_death(Scheme::After));
}

#[test]
fn a_value_that_is_set_by_nobody() {
    caught(Fault::Frozen(Audit::STAGED), || one_death(Scheme::After));
}

#[test]
fn half_of_the_adjustments() {
    caught(Fault::Frozen(Audit::LEAVING), || two_deaths(Scheme::After, 1));
}

#[test]
fn a_death_that_nobody_sees() {
    caught(Fault::Immortal, || one_death(Scheme::After));
}

#[test]
fn stores_in_any_order() {
    caught(Fault::Unordered, || missing_stores(Scheme::After));
}

fn show(call: &Call) -> String {
    match call {
        Call::Operate(ops, time) => {
            let mut words: Vec<String> = ops
                .iter()
                .map(|o| {
                    format!(
                        "{}{:+}{}{}",
                        o.num,
                        o.change,
                        if o.undo { "!" } else { "" },
                        if o.no_wait { "~" } else { "" }
                    )
                })
                .collect();
            if let Some(time) = time {
                words.push(format!("for {time}"));
            }
            words.join(" ")
        }
        Call::SetValue(n, v) => format!("set {n} {v}"),
        Call::SetValues(v) => {
            format!("set-all {}", v.iter().map(|v| v.to_string()).collect::<Vec<_>>().join(" "))
        }
        Call::Set => "own".into(),
        Call::Remove => "remove".into(),
        Call::Leave => "leave".into(),
        Call::Reap(p) => format!("reap {p}"),
        _ => panic!(),
    }
}
#[test]
fn zzz_show() {
    for s in scenarios() {
        let before = s.before.iter().map(|(p, c)| format!("{p}: {}", show(c))).collect::<Vec<_>>().join("; ");
        let mut then = match &s.meanwhile {
            Meanwhile::Nothing => String::new(),
            Meanwhile::Call(p, c) => format!("{p}: {}", show(c)),
            Meanwhile::Interrupt => "interrupt".into(),
            Meanwhile::Time(t) => format!("time {t}"),
        };
        if !s.dead.is_empty() {
            then = format!("dead {}", s.dead.iter().map(|v| v.to_string()).collect::<Vec<_>>().join(" "));
        }
        println!("LINE {:?}, {:?}, {:?}, {:?}", s.name, before, show(&s.call), then);
        println!("DEBUG {s:?}");
    }
}
