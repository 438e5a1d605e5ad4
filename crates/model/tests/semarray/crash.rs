//! Processes that are killed before each of their steps in turn.
//!
//! A scenario leads to a call by the victim, which is killed before its first step, its second, and so on to
//! its last. Afterwards the array must be what it was before the call or what it is after it, with the
//! victim's adjustments applied and its sleepers gone; nobody who could proceed may be left asleep; and no
//! record may be left over. Those who come to the rescue are killed in the same way.

use std::collections::BTreeSet;

use poundlock_core::semarray::{Audit, Scheme};

use crate::model::{Model, Operation};
use crate::rig::{A_WHILE, Call, Rig, View};
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
    fn new(scenario: &Scenario, variant: Scheme) -> Course {
        let rig = Rig::new(scenario.semaphores, variant);
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
        let told = |thread: &ThreadNumber| !self.alive(*thread) || self.rig.was_told(model, *thread);
        View::fits(view, model) && self.threads.iter().all(told)
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

fn run(scenario: &Scenario, variant: Scheme, step: u64, without: Option<usize>, rescue: Rescue) -> Outcome {
    let mut course = Course::new(scenario, variant);
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
    fn check(&self) -> Audit {
        let view = self.rig.view(OBSERVER);
        assert!(self.fits(&self.model, &view), "the array is {view:?}, but should be {:#?}", self.model);
        self.audit()
    }

    fn audit(&self) -> Audit {
        self.rig.array.audit().unwrap_or_else(|wrong| panic!("{wrong}"))
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
        let left = self.check();
        assert!(left.is_empty(), "records are left over: {left:?}");
    }
}

/// Kills the victim before each of its steps, with each way to the rescue.
fn every_step(scenario: &Scenario, variant: Scheme) -> (u64, u64) {
    let mut runs = 0;
    let mut steps = 0;
    for rescue in [Rescue::Use, Rescue::Time, Rescue::Reap, Rescue::Succeed] {
        steps = (0..)
            .find(|step| {
                runs += 1;
                noted(scenario, variant, *step, None, rescue) == Outcome::Over
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

/// [`run`], which is told of if a check fails.
fn noted(scenario: &Scenario, variant: Scheme, step: u64, without: Option<usize>, rescue: Rescue) -> Outcome {
    NOTED.with_borrow_mut(|noted| {
        use core::fmt::Write as _;
        noted.clear();
        let _ = write!(
            noted,
            "{:?} ({}), killed before step {step}, without {without:?}, then {rescue:?}",
            scenario.name,
            variant.name()
        );
    });
    run(scenario, variant, step, without, rescue)
}

/// One scenario a line: its name, what happens before, the victim's call, and what happens while that sleeps.
///
/// `1: 0-1 2+3u` is a call by process 1 that takes one from semaphore 0 and gives 3 to semaphore 2, to be
/// undone; `=0` waits for zero, and `n` must not wait. `1 dies`: nobody has seen it yet. The other words are
/// at [`call`] and [`meanwhile`].
const SCENARIOS: &str = "
    give | | 0+2
    take | 1: 0+2 | 0-1
    zero already | | 0=0
    several | 1: 1+3 | 0+1 1-2 2+3 0-1
    none of several | 1: 1+3 | 0+1 1-2 2-3n
    out of range | 1: 0+32767 | 1+1 0+1

    first adjustment | | 0+2u
    another adjustment | 0: 0+2u | 1+2u
    same adjustment | 0: 0+2u | 0+3u
    no more adjustments | 0: 0+2u | 0-2u
    adjustments among others' | 1: 0+2u; 2: 0+2u; 0: 1+1u; 3: 0+3u | 1-1u 0-1u 2+2u
    an adjustment that wakes | 0: 0+2; 0: 0-2u; 1: 0-1 | 1+1

    wake one | 1: 0-1 | 0+1
    wake one who adjusts | 1: 0-1u | 0+1
    wake several | 1: 0-1; 2: 0-2; 3: 0-1u; 4: 0-1 | 0+3u
    wake at several | 1: 0-1; 2: 1-1; 3: 2-1; 4: 2-1 | 2+1 1+1 0+1
    wake a second one | 1: 0-3; 2: 0-2; 3: 0-2 | 0+2
    wake for zero | 1: 0+1; 2: 0=0; 3: 0=0; 4: 1=0 | 0-1
    wake for zero in passing | 1: 0-1; 2: 1+1; 3: 0=0 | 0+1
    a thread of its own | 0: 0-1u; 1: 0-1; 0: 1-1 | 0+2 1+1

    wake several things | 1: 0+1; 2: 0-1 1-1 | 1+1
    wake a chain | 1: 0-1 1+1; 2: 1-1u 2+1u; 3: 2-1; 4: 2=0 1=0 0=0; 5: 0=0 | 0+1
    wake in the order of coming | 1: 0-2; 2: 0-1 1-1; 3: 0-1; 4: 1-1 | 0+2 1+1
    wake an earlier one again | 1: 0-2; 2: 1-1 0+1; 3: 1-1 | 1+1 0+1
    wake one who finds no room | 1: 0-1 1+32767; 2: 0-1; 3: 1+1 | 0+1
    wake one with many operations | 1: 0+1 1+1 2+1 0+1 1+1 2+1 0+1 1+1 2+1 2-4 | 2+1

    sleep | | 0-1 | 1: 0+1
    sleep and adjust | | 0-1u | 1: 0+2
    sleep behind others | 1: 0-1; 2: 0-2 | 0-3 | 1: 0+6
    sleep for zero | 1: 0+1 | 0=0 | 1: 0-1
    sleep for several things | 1: 0-1; 2: 1-1 2-1 | 0-1u 1-1u 2+2u | 1: 0+2 1+1
    sleep for several zeros | 1: 1+1 2+1 | 0=0 1=0 2=0 | 1: 1-1 2-1
    sleep with many operations | | 0+1 1+1 2+1 0+1 1+1 2+1 0+1 1+1 2+1 2-4 | 1: 2+1
    sleep in vain | 1: 0+1u | 0-2u within 30000000 | pass 2000000000
    be interrupted | 1: 0-2 | 0-1 1-1 | interrupt
    sleep, and it is removed | 1: 0-1 | 0-1 | 1: remove
    sleep for good | 1: 0+1u | 0-2

    set one | 1: 0+1u; 0: 0+1u; 0: 1+1u; 2: 0-4; 3: 0=0 | set 0 4
    set one to zero | 1: 0+1u; 3: 0=0; 2: 0-4 | set 0 0
    set all | 1: 0+1u; 0: 0+1u 1+2u 2+1u; 2: 0-4; 3: 1-3 2-3; 4: 2=0 | set-all 5 3 3
    set the owner | 0: 0+1u; 1: 0-2 | set-owner
    remove | 0: 0+1u; 1: 0-2; 2: 0-2 1-1; 3: 0=0; 0: 0-3 | remove

    leave | 1: 1+1; 0: 0+1u 1-1u; 2: 0=0; 3: 1-1 | leave
    find one dead | 1: 0+2u 1+1u; 2: 0=0; 3: 1=0; 1 dies | 2+1
    find two dead | 1: 0+3; 1: 0-2u; 2: 0-1u; 3: 0-2; 4: 0-1; 1 dies; 2 dies | 2+1
    between two adjustments a sleeper could proceed | 2: 0+1; 1: 0-1u 1+1u; 3: 0-1 1-1; 1 dies | 2+1
    reap one | 1: 0+2u 1+1u; 1: 2-1; 2: 0=0; 1 dies | reap 1
    pass over the dead | 1: 0-1; 2: 0-1; 1: 0-1 1-1; 1 dies | 0+1
    pass over the dead among several | 1: 0-1 1-1; 2: 0-1u 1-1u; 3: 0-1; 1 dies | 1+1 0+1
    remove among the dead | 1: 0+1u; 1: 0-2; 2: 0-2; 1 dies | remove
    set among the dead | 1: 0+1u; 1: 1-2; 2: 1-1; 1 dies | set-all 1 1 1
";

fn scenarios() -> Vec<Scenario> {
    SCENARIOS.lines().map(str::trim).filter(|line| !line.is_empty()).map(scenario).collect()
}

fn scenario(line: &'static str) -> Scenario {
    let mut parts = line.split('|').map(str::trim);
    let mut part = || parts.next().unwrap_or_default();
    let (name, before, call_of_victim, meanwhile_text) = (part(), part(), part(), part());
    let mut scenario = Scenario {
        name,
        semaphores: 3,
        before: vec![],
        dead: vec![],
        call: call(call_of_victim),
        meanwhile: meanwhile(meanwhile_text),
    };
    for event in before.split(';').map(str::trim).filter(|event| !event.is_empty()) {
        match event.strip_suffix(" dies") {
            Some(process) => scenario.dead.push(number(process)),
            None => scenario.before.push(call_by(event)),
        }
    }
    scenario
}

fn number<T: core::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("'{text}' is no number"))
}

fn meanwhile(text: &str) -> Meanwhile {
    match text.strip_prefix("pass ") {
        Some(time) => Meanwhile::Time(number(time)),
        None if text.is_empty() => Meanwhile::Nothing,
        None if text == "interrupt" => Meanwhile::Interrupt,
        None => {
            let (process, call) = call_by(text);
            Meanwhile::Call(process, call)
        }
    }
}

fn call_by(text: &str) -> (ProcessNumber, Call) {
    let (process, made) = text.split_once(": ").expect("a process and its call");
    (number(process), call(made))
}

fn call(text: &str) -> Call {
    let mut words = text.split(' ');
    let mut values = text.split(' ').skip(1).map(number);
    match words.next().unwrap_or_default() {
        "set" => Call::SetValue(values.next().expect("which") as usize, values.next().expect("to what")),
        "set-all" => Call::SetValues(values.collect()),
        "set-owner" => Call::Set,
        "remove" => Call::Remove,
        "leave" => Call::Leave,
        "reap" => Call::Reap(values.next().expect("whom") as usize),
        _ => {
            let (operations, patience) = match text.split_once(" within ") {
                Some((operations, patience)) => (operations, Some(number(patience))),
                None => (text, None),
            };
            Call::Operate(operations.split(' ').map(one_operation).collect(), patience)
        }
    }
}

fn one_operation(text: &str) -> Operation {
    let (change, undo, no_wait) =
        (text.trim_end_matches(['u', 'n']), text.ends_with('u'), text.ends_with('n'));
    let (num, change) = change.split_at(change.find(['+', '-', '=']).expect("a sign"));
    Operation { num: number(num), change: number(change.trim_start_matches('=')), no_wait, undo }
}

/// The victim alone is killed.
fn one_death(variant: Scheme) {
    let _sayer = Sayer;
    let (mut steps, mut runs) = (0, 0);
    for scenario in scenarios() {
        let (of_this, runs_of_this) = every_step(&scenario, variant);
        steps += of_this;
        runs += runs_of_this;
    }
    println!("{}: killed before each of {steps} steps, {runs} runs", variant.name());
}

/// Kills each scenario's victim before each of its steps, in the `way` of each of the `numbers` for that
/// step, until one finds nothing left to try. Returns how many runs there were.
fn every_way<N: Iterator<Item = u64>>(
    variant: Scheme,
    numbers: impl Fn(u64) -> N,
    way: impl Fn(u64) -> (Option<usize>, Rescue),
) -> u64 {
    let mut runs = 0;
    for scenario in scenarios() {
        let over = |step: &u64| {
            let mut ended = numbers(*step).map(|number| {
                let (without, rescue) = way(number);
                runs += 1;
                noted(&scenario, variant, *step, without, rescue)
            });
            ended.find(|outcome| *outcome != Outcome::Checked) == Some(Outcome::Over)
        };
        (0..).find(over);
    }
    runs
}

/// And whoever comes to the rescue. Of every victim's step and every rescuer's step one in so many
/// combinations, and every step of each.
fn two_deaths(variant: Scheme, one_in: u64) {
    let _sayer = Sayer;
    let of = |kind: u64| move |step: u64| ((step + kind) % one_in..).step_by(one_in as usize);
    let runs = every_way(variant, of(0), |step| (None, Rescue::Killed(step)))
        + every_way(variant, of(1), |step| (None, Rescue::KilledReaping(step)));
    println!("{}: and those who came to the rescue, {runs} runs", variant.name());
}

/// A killed process's last stores are missing, as far as the orderings allow the compiler to have moved them.
fn missing_stores(variant: Scheme) {
    let _sayer = Sayer;
    let runs = every_way(variant, |_| 0.., |nth| (Some(nth as usize), Rescue::Use));
    println!("{}: without a store, {runs} runs", variant.name());
}

/// The greatest calls fill the journal most.
fn greatest(variant: Scheme) {
    let _sayer = Sayer;
    let each = |change: &dyn Fn(usize) -> (usize, i32)| {
        let undone = |(num, change)| Operation { num, change, no_wait: false, undo: true };
        Call::Operate((0..500).map(change).map(undone).collect(), None)
    };
    let plain = |name, semaphores, before: Option<(ProcessNumber, Call)>, call| {
        let before = before.into_iter().collect();
        Scenario { name, semaphores, before, dead: vec![], call, meanwhile: Meanwhile::Nothing }
    };
    let up_and_down = |at: usize| (0, if at.is_multiple_of(2) { 1 } else { -1 });
    let all_but_one = |at| (at, if at == 499 { -1 } else { 1 });
    let scenarios = [
        plain("500 semaphores", 500, Some((1, call("7-1"))), each(&|at| (at, 1))),
        plain("500, no adjustments left", 500, Some((0, each(&|at| (at, 2)))), each(&|at| (at, -2))),
        plain("500 times one semaphore", 1, Some((1, call("0-1"))), each(&up_and_down)),
        plain("500 semaphores for a sleeper", 500, Some((1, each(&all_but_one))), call("499+1")),
    ];
    let mut runs = 0;
    for scenario in &scenarios {
        let over = |step: &u64| {
            runs += 1;
            noted(scenario, variant, *step, None, Rescue::Use) == Outcome::Over
        };
        (0..).step_by(41).find(over);
    }
    println!("{}: the greatest calls, {runs} runs", variant.name());
}

macro_rules! for_each_variant {
    ($($module:ident $variant:ident $one_in:literal,)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn one_is_killed() {
                one_death(Scheme::$variant);
            }

            #[test]
            fn the_rescuer_is_killed() {
                two_deaths(Scheme::$variant, $one_in);
            }

            #[test]
            fn in_the_greatest_calls() {
                greatest(Scheme::$variant);
            }

            #[test]
            fn the_last_stores_are_missing() {
                missing_stores(Scheme::$variant);
            }
        }
    )*};
}

for_each_variant! {
    after After 48,
    before Before 192,
    combining Combining 192,
    shared_line SharedLine 192,
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
    caught(Fault::Frozen(Audit::LEAVING), || two_deaths(Scheme::After, 48));
}

#[test]
fn a_death_that_nobody_sees() {
    caught(Fault::Immortal, || one_death(Scheme::After));
}

#[test]
fn stores_in_any_order() {
    caught(Fault::Unordered, || missing_stores(Scheme::After));
}
