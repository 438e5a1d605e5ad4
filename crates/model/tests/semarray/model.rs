//! What System V semaphores do, one step after another: a plain model, without locks, memory or crashes in
//! the middle of things. It follows semop(2), semctl(2) and what Linux does where these are silent.

use core::ops::RangeInclusive;
use std::collections::BTreeMap;

/// The largest value of a semaphore.
pub(crate) const LARGEST: i32 = 32_767;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    Done,
    TooFar,
    WouldBlock,
    Removed,
    Interrupted,
    Range,
    Gone,
    Invalid,
    NoMemory,
    NoSpace,
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    pub(crate) num: usize,
    pub(crate) change: i32,
    pub(crate) no_wait: bool,
    pub(crate) undo: bool,
}

impl core::fmt::Debug for Operation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Operation { num, change, no_wait, undo } = self;
        let no_wait = if *no_wait { " at once" } else { "" };
        write!(f, "{num}: {change:+}{no_wait}{}", if *undo { " undo" } else { "" })
    }
}

/// A thread that sleeps in an operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sleeper {
    pub(crate) thread: usize,
    pub(crate) process: usize,
    pub(crate) operations: Vec<Operation>,
    pub(crate) deadline: Option<u64>,
}

/// What comes of trying some operations.
enum Verdict {
    /// They can be applied: the values and the process's adjustments that result.
    Proceeds(Vec<i32>, Vec<i32>),
    /// The operation of this index has to wait.
    Blocks(usize),
    Fails(Answer),
}

/// An array. Processes and threads are named by numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Model {
    pub(crate) values: Vec<i32>,
    /// The process that used each semaphore last.
    pub(crate) last: Vec<Option<usize>>,
    adjustments: BTreeMap<usize, Vec<i32>>,
    /// In the order of their coming.
    pub(crate) sleepers: Vec<Sleeper>,
    /// What the calls of threads that have returned gave, until it is taken.
    pub(crate) answers: BTreeMap<usize, Answer>,
    pub(crate) removed: bool,
}

impl core::fmt::Debug for Model {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Model { values, last, adjustments, sleepers, answers, removed } = self;
        write!(
            f,
            "values {values:?}, last used by {last:?}, adjustments {adjustments:?}, answers {answers:?}"
        )?;
        for Sleeper { thread, process, operations, deadline } in sleepers {
            write!(f, ", thread {thread} of {process} sleeps until {deadline:?} for {operations:?}")?;
        }
        if *removed { write!(f, ", removed") } else { Ok(()) }
    }
}

impl Model {
    pub(crate) fn new(semaphores: usize) -> Self {
        Model {
            values: vec![0; semaphores],
            last: vec![None; semaphores],
            adjustments: BTreeMap::new(),
            sleepers: Vec::new(),
            answers: BTreeMap::new(),
            removed: false,
        }
    }

    /// Tries operations one after another, as if nobody looked meanwhile.
    fn try_out(&self, process: usize, operations: &[Operation]) -> Verdict {
        let mut values = self.values.clone();
        let mut adjustments =
            self.adjustments.get(&process).cloned().unwrap_or_else(|| vec![0; values.len()]);
        for (index, operation) in operations.iter().enumerate() {
            let value = values[operation.num] + operation.change;
            if value < 0 || (operation.change == 0 && value != 0) {
                return if operation.no_wait {
                    Verdict::Fails(Answer::WouldBlock)
                } else {
                    Verdict::Blocks(index)
                };
            }
            if value > LARGEST {
                return Verdict::Fails(Answer::Range);
            }
            if operation.undo {
                let adjustment = adjustments[operation.num] - operation.change;
                if !(-LARGEST - 1..=LARGEST).contains(&adjustment) {
                    return Verdict::Fails(Answer::Range);
                }
                adjustments[operation.num] = adjustment;
            }
            values[operation.num] = value;
        }
        Verdict::Proceeds(values, adjustments)
    }

    fn apply(&mut self, process: usize, operations: &[Operation], values: Vec<i32>, adjustments: Vec<i32>) {
        self.values = values;
        if operations.iter().any(|operation| operation.undo) {
            self.adjustments.insert(process, adjustments);
        }
        for operation in operations {
            self.last[operation.num] = Some(process);
        }
    }

    /// Lets those sleepers go on who can. Of those that change something, the first that can, and then the
    /// first again. Those that only wait for zero see every state that there is in between.
    fn update(&mut self) {
        loop {
            let changes =
                |sleeper: &Sleeper| sleeper.operations.iter().any(|operation| operation.change != 0);
            let stays = |sleeper: &&Sleeper| {
                matches!(self.try_out(sleeper.process, &sleeper.operations), Verdict::Blocks(_))
            };
            let several = |sleeper: &Sleeper| sleeper.operations.len() > 1;
            // First those that change nothing, of which all can go on that can now: those that wait for one
            // zero, and then, as can be seen by who was last, those that wait for several.
            let next = self
                .sleepers
                .iter()
                .find(|sleeper| !changes(sleeper) && !several(sleeper) && !stays(sleeper))
                .or_else(|| self.sleepers.iter().find(|sleeper| !changes(sleeper) && !stays(sleeper)))
                .or_else(|| self.sleepers.iter().find(|sleeper| changes(sleeper) && !stays(sleeper)));
            let Some(sleeper) = next.cloned() else { return };
            self.sleepers.retain(|other| other.thread != sleeper.thread);
            let answer = match self.try_out(sleeper.process, &sleeper.operations) {
                Verdict::Proceeds(values, adjustments) => {
                    self.apply(sleeper.process, &sleeper.operations, values, adjustments);
                    Answer::Done
                }
                Verdict::Fails(answer) => answer,
                Verdict::Blocks(_) => unreachable!("it was just found that it does not"),
            };
            self.answers.insert(sleeper.thread, answer);
        }
    }

    /// `semop`, by a thread that is not in one. It returns at once, or the thread sleeps.
    pub(crate) fn operate(
        &mut self,
        thread: usize,
        process: usize,
        operations: &[Operation],
        clock: u64,
        patience: Option<u64>,
    ) {
        let deadline = patience.map(|patience| clock + patience);
        let answer = if self.removed {
            Answer::Gone
        } else if operations.iter().any(|operation| operation.num >= self.values.len()) {
            Answer::TooFar
        } else {
            match self.try_out(process, operations) {
                Verdict::Fails(answer) => answer,
                Verdict::Blocks(_) if deadline.is_some_and(|deadline| deadline <= clock) => {
                    Answer::WouldBlock
                }
                Verdict::Blocks(_) => {
                    let operations = operations.to_vec();
                    self.sleepers.push(Sleeper { thread, process, operations, deadline });
                    return;
                }
                Verdict::Proceeds(values, adjustments) => {
                    self.apply(process, operations, values, adjustments);
                    if operations.iter().any(|operation| operation.change != 0) {
                        self.update();
                    }
                    Answer::Done
                }
            }
        };
        self.answers.insert(thread, answer);
    }

    /// `SETVAL`
    pub(crate) fn set_value(&mut self, process: usize, num: usize, value: i32) -> Answer {
        if num >= self.values.len() {
            return Answer::Invalid;
        }
        if !(0..=LARGEST).contains(&value) {
            return Answer::Range;
        }
        if self.removed {
            return Answer::Gone;
        }
        self.values[num] = value;
        self.last[num] = Some(process);
        for adjustments in self.adjustments.values_mut() {
            adjustments[num] = 0;
        }
        self.update();
        Answer::Done
    }

    /// `SETALL`
    pub(crate) fn set_values(&mut self, process: usize, values: &[i32]) -> Answer {
        if self.removed {
            return Answer::Gone;
        }
        if values.iter().any(|value| !(0..=LARGEST).contains(value)) {
            return Answer::Range;
        }
        self.values = values.to_vec();
        self.last.fill(Some(process));
        self.adjustments.clear();
        self.update();
        Answer::Done
    }

    /// `IPC_RMID`
    pub(crate) fn remove(&mut self) -> Answer {
        if self.removed {
            return Answer::Gone;
        }
        self.removed = true;
        for sleeper in core::mem::take(&mut self.sleepers) {
            self.answers.insert(sleeper.thread, Answer::Removed);
        }
        Answer::Done
    }

    /// A thread that sleeps is killed. The others of its process may end a little later.
    pub(crate) fn lose(&mut self, thread: usize) {
        self.sleepers.retain(|sleeper| sleeper.thread != thread);
    }

    /// The threads of a process that sleep.
    pub(crate) fn asleep(&self, process: usize) -> Vec<usize> {
        let own = self.sleepers.iter().filter(|sleeper| sleeper.process == process);
        own.map(|sleeper| sleeper.thread).collect()
    }

    /// A process ends, in whatever way: its sleepers are no more, and its adjustments are applied.
    pub(crate) fn end(&mut self, process: usize) {
        self.sleepers.retain(|sleeper| sleeper.process != process);
        self.adjust(process);
    }

    /// A process's adjustments are applied, and are no more.
    pub(crate) fn adjust(&mut self, process: usize) {
        if self.removed {
            return;
        }
        let Some(adjustments) = self.adjustments.remove(&process) else { return };
        for (num, adjustment) in
            adjustments.into_iter().enumerate().filter(|(_, adjustment)| *adjustment != 0)
        {
            self.values[num] = (self.values[num] + adjustment).clamp(0, LARGEST);
            self.last[num] = Some(process);
        }
        self.update();
    }

    fn wake(&mut self, answer: Answer, which: impl Fn(&Sleeper) -> bool) {
        for sleeper in self.sleepers.iter().filter(|sleeper| which(sleeper)) {
            self.answers.insert(sleeper.thread, answer);
        }
        self.sleepers.retain(|sleeper| !which(sleeper));
    }

    /// A signal handler runs in a thread.
    pub(crate) fn interrupt(&mut self, thread: usize) {
        self.wake(Answer::Interrupted, |sleeper| sleeper.thread == thread);
    }

    /// It has become this late.
    pub(crate) fn pass(&mut self, clock: u64) {
        self.wake(Answer::WouldBlock, |sleeper| sleeper.deadline.is_some_and(|deadline| deadline <= clock));
    }

    /// How many wait for this semaphore to become larger, or zero: at least and at most. Which of several
    /// zeros a sleeper waits for is noted when it is tried, and nobody tries it before one of them is there.
    pub(crate) fn waiting(&self, num: usize, for_zero: bool) -> RangeInclusive<usize> {
        let (mut least, mut most) = (0, 0);
        for sleeper in &self.sleepers {
            let here = |operation: &Operation| operation.num == num && (operation.change == 0) == for_zero;
            if sleeper.operations.len() > 1
                && sleeper.operations.iter().all(|operation| operation.change == 0)
            {
                most += usize::from(sleeper.operations.iter().any(here));
            } else if let Verdict::Blocks(index) = self.try_out(sleeper.process, &sleeper.operations) {
                least += usize::from(here(&sleeper.operations[index]));
                most += usize::from(here(&sleeper.operations[index]));
            }
        }
        least..=most
    }
}
