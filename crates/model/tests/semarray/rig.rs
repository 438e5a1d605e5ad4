//! An array on a simulated machine, its users, and what they are told.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use poundlock_core::semarray::{Array, Error, Layout, Op, Scheme, Settings};

use crate::model::{Answer, Model, Operation};
use crate::system::{self, ProcessNumber, Simulated, State, System, ThreadNumber};

/// Longer than any sleeper goes without looking at the array.
pub(crate) const A_WHILE: u64 = 5_000_000_000;

/// A call, by a thread of some process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Operate(Vec<Operation>, Option<u64>),
    SetValue(usize, i32),
    SetValues(Vec<i32>),
    /// Another owner.
    Set,
    Remove,
    /// All values, at one moment.
    Values,
    Leave,
    Reap(ProcessNumber),
    /// The first call of another program.
    Succeed,
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Ended(Answer),
    Saw(Vec<i32>),
}

/// What can be seen of an array while nobody changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) values: Vec<i32>,
    pub(crate) last: Vec<u32>,
    pub(crate) for_increase: Vec<usize>,
    pub(crate) for_zero: Vec<usize>,
}

impl View {
    /// Whether this is how the model's array looks.
    pub(crate) fn fits(view: &Option<View>, model: &Model) -> bool {
        let Some(view) = view else { return model.removed };
        let last: Vec<u32> = model.last.iter().map(|process| process.map_or(0, system::pid)).collect();
        !model.removed
            && view.values == model.values
            && view.last == last
            && (0..model.values.len()).all(|num| {
                model.waiting(num, false).contains(&view.for_increase[num])
                    && model.waiting(num, true).contains(&view.for_zero[num])
            })
    }
}

pub(crate) fn operation(num: usize, change: i32) -> Operation {
    Operation { num, change, no_wait: false, undo: false }
}

fn op(operation: &Operation) -> Op {
    let flags = if operation.no_wait { Op::NOWAIT } else { 0 } | if operation.undo { Op::UNDO } else { 0 };
    Op { num: operation.num as u16, change: operation.change as i16, flags }
}

fn answer<T>(result: Result<T, Error>) -> Answer {
    match result {
        Ok(_) => Answer::Done,
        Err(Error::TooFar) => Answer::TooFar,
        Err(Error::WouldBlock) => Answer::WouldBlock,
        Err(Error::Removed) => Answer::Removed,
        Err(Error::Interrupted) => Answer::Interrupted,
        Err(Error::Range) => Answer::Range,
        Err(Error::Gone) => Answer::Gone,
        Err(Error::Invalid) => Answer::Invalid,
        Err(Error::NoMemory) => Answer::NoMemory,
        Err(Error::NoSpace) => Answer::NoSpace,
    }
}

impl Call {
    /// The same call of the model. `None`: the thread sleeps.
    pub(crate) fn model(
        &self,
        model: &mut Model,
        thread: ThreadNumber,
        process: ProcessNumber,
        clock: u64,
    ) -> Option<Reply> {
        let present = |model: &Model| if model.removed { Answer::Gone } else { Answer::Done };
        let answer = match self {
            Call::Operate(operations, patience) => {
                model.operate(thread, process, operations, clock, *patience);
                return model.answers.get(&thread).map(|answer| Reply::Ended(*answer));
            }
            Call::SetValue(num, value) => model.set_value(process, *num, *value),
            Call::SetValues(values) => model.set_values(process, values),
            Call::Set => present(model),
            Call::Remove => model.remove(),
            Call::Values if model.removed => Answer::Gone,
            Call::Values => return Some(Reply::Saw(model.values.clone())),
            Call::Leave => {
                // What is given back is not for threads that end with it.
                if model.asleep(process).is_empty() {
                    model.adjust(process);
                }
                Answer::Done
            }
            Call::Succeed => {
                model.asleep(process).into_iter().for_each(|thread| model.lose(thread));
                Answer::Done
            }
            // That it is gone has its effect at its death.
            Call::Reap(_) => Answer::Done,
        };
        Some(Reply::Ended(answer))
    }
}

type Replies = Rc<RefCell<BTreeMap<ThreadNumber, Reply>>>;

/// See the module's documentation.
pub(crate) struct Rig {
    pub(crate) machine: Rc<System>,
    pub(crate) array: Array<'static, Simulated>,
    semaphores: usize,
    replies: Replies,
}

impl Rig {
    /// A new array of zeros, on a new machine.
    pub(crate) fn new(semaphores: usize, variant: Scheme) -> Rig {
        let machine = System::new();
        let layout = Layout::new(semaphores as u32, variant);
        let words = machine.memory(layout.words(), layout.initial());
        let settings = Settings { key: 0, uid: 1, gid: 1, cuid: 1, cgid: 1, mode: 0o600 };
        let array = Array::format(words, semaphores as u32, variant, &settings).expect("it fits");
        Rig { machine, array, semaphores, replies: Rc::default() }
    }

    /// Starts a thread that makes a call.
    pub(crate) fn start(&self, process: ProcessNumber, call: &Call) -> ThreadNumber {
        self.start_as(process, None, call)
    }

    /// As [`Rig::start`], as the thread of that index in its process.
    pub(crate) fn start_as(&self, process: ProcessNumber, index: Option<u32>, call: &Call) -> ThreadNumber {
        let (array, call, replies) = (self.array, call.clone(), self.replies.clone());
        let slot = if let Call::Reap(gone) = call { self.machine.slot(gone) } else { 0 };
        let number = Rc::new(core::cell::Cell::new(0));
        let own = number.clone();
        let body = move || {
            let reply = match call {
                Call::Operate(operations, patience) => {
                    let operations: Vec<Op> = operations.iter().map(op).collect();
                    Reply::Ended(answer(array.operate(&operations, patience)))
                }
                Call::SetValue(num, value) => Reply::Ended(answer(array.set_value(num as u32, value as u32))),
                Call::SetValues(values) => {
                    Reply::Ended(answer(array.set_values(|num| values[num as usize] as u32)))
                }
                Call::Set => Reply::Ended(answer(array.set(2, 2, 0o640))),
                Call::Remove => Reply::Ended(answer(array.remove())),
                Call::Values => {
                    let mut seen = Vec::new();
                    match array.values(|_, value| seen.push(value as i32)) {
                        Ok(()) => Reply::Saw(seen),
                        failed => Reply::Ended(answer(failed)),
                    }
                }
                Call::Leave => Reply::Ended(answer(array.leave())),
                Call::Reap(_) => Reply::Ended(answer(array.reap(slot))),
                Call::Succeed => Reply::Ended(answer(array.succeed())),
            };
            replies.borrow_mut().insert(own.get(), reply);
        };
        let thread = match index {
            Some(index) => self.machine.spawn_as(process, index, body),
            None => self.machine.spawn(process, body),
        };
        number.set(thread);
        thread
    }

    /// Makes a call and waits until it has returned, or sleeps.
    pub(crate) fn call(&self, process: ProcessNumber, call: &Call) -> ThreadNumber {
        let thread = self.start(process, call);
        self.machine.settle();
        thread
    }

    /// Makes a call that returns.
    pub(crate) fn now(&self, process: ProcessNumber, call: &Call) -> Reply {
        let thread = self.call(process, call);
        assert_eq!(self.machine.state(thread), State::Ended, "{call:?} does not return");
        self.reply(thread).expect("an answer")
    }

    /// What a thread was told. `None`: it sleeps, or was killed.
    pub(crate) fn reply(&self, thread: ThreadNumber) -> Option<Reply> {
        self.replies.borrow().get(&thread).cloned()
    }

    /// Whether a thread was told what it is told in the model; nothing, if it sleeps there.
    pub(crate) fn was_told(&self, model: &Model, thread: ThreadNumber) -> bool {
        match self.reply(thread) {
            Some(Reply::Ended(answer)) => {
                model.answers.get(&thread).is_none_or(|expected| *expected == answer)
            }
            Some(Reply::Saw(_)) => true,
            None => !model.answers.contains_key(&thread),
        }
    }

    /// Looks, as a process that otherwise does nothing. `None`: the array was removed.
    pub(crate) fn view(&self, observer: ProcessNumber) -> Option<View> {
        let (array, semaphores) = (self.array, self.semaphores);
        let view = Rc::new(RefCell::new(None));
        let into = view.clone();
        let thread = self.machine.spawn(observer, move || {
            let mut values = Vec::new();
            if array.values(|_, value| values.push(value as i32)).is_err() {
                return;
            }
            let each = |what: &dyn Fn(u32) -> Result<u32, Error>| -> Vec<u32> {
                (0..semaphores as u32).map(|num| what(num).expect("the array is there")).collect()
            };
            let count = |what: &dyn Fn(u32) -> Result<u32, Error>| -> Vec<usize> {
                each(what).into_iter().map(|count| count as usize).collect()
            };
            *into.borrow_mut() = Some(View {
                values,
                last: each(&|num| array.last_process(num)),
                for_increase: count(&|num| array.waiting_for_increase(num)),
                for_zero: count(&|num| array.waiting_for_zero(num)),
            });
        });
        self.machine.settle();
        assert_eq!(self.machine.state(thread), State::Ended, "nobody can look at the array");
        view.borrow_mut().take()
    }
}
