//! Stacks with names in place of addresses, each once, whichever process they come from.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::class::Sort;
use crate::observe::symbols::{Frame, Space};
use crate::observe::words::acquires;

/// The number of a frame.
pub(crate) type FrameId = u32;
/// The number of a stack.
pub(crate) type StackId = u32;

/// The stack of which nothing is known.
pub(crate) const NO_STACK: StackId = 0;

/// All frames and stacks of a run.
pub(crate) struct Names {
    frames: Vec<Frame>,
    frame_ids: HashMap<String, FrameId>,
    stacks: Vec<Stack>,
    stack_ids: HashMap<Box<[FrameId]>, StackId>,
}

/// A stack, and what many ask for.
#[derive(Default)]
struct Stack {
    /// Innermost first.
    frames: Box<[FrameId]>,
    line: OnceCell<Option<FrameId>>,
    json: OnceCell<Box<RawValue>>,
}

/// What is known of one process's stacks and locks.
#[derive(Default)]
pub(crate) struct Known {
    /// By where the process's figures have a stack, which stays there as long as this.
    stacks: HashMap<*const u64, (Arc<[u64]>, StackId)>,
    /// And by what they are, for figures that are read again.
    again: HashMap<Arc<[u64]>, StackId>,
    calls: HashMap<u64, StackId>,
    /// See [`super::class::Grouping`].
    pub(crate) places: HashMap<Sort, usize>,
}

impl Known {
    /// The figures are read again: what they have lies elsewhere from now on.
    pub(crate) fn again(&mut self) {
        self.again.extend(self.stacks.drain().map(|(_, known)| known));
    }
}

impl Names {
    pub(crate) fn new() -> Self {
        let none: Box<[FrameId]> = Box::default();
        Names {
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            stacks: vec![Stack::default()],
            stack_ids: HashMap::from([(none, NO_STACK)]),
        }
    }

    /// The stack of these return addresses in a process.
    pub(crate) fn stack(&mut self, addresses: &Arc<[u64]>, space: &Space, known: &mut Known) -> StackId {
        if addresses.is_empty() {
            return NO_STACK;
        }
        if let Some(&(_, stack)) = known.stacks.get(&addresses.as_ptr()) {
            return stack;
        }
        let stack = known.again.get(addresses).copied().unwrap_or_else(|| self.named(addresses, space));
        known.stacks.insert(addresses.as_ptr(), (Arc::clone(addresses), stack));
        stack
    }

    /// The stack of this return address alone.
    pub(crate) fn call(&mut self, address: u64, space: &Space, known: &mut Known) -> StackId {
        *known.calls.entry(address).or_insert_with(|| self.named(&[address], space))
    }

    fn named(&mut self, addresses: &[u64], space: &Space) -> StackId {
        let mut frames = Vec::new();
        for &address in addresses {
            for frame in space.call(address).iter() {
                frames.push(self.frame(frame));
            }
        }
        let frames = frames.into_boxed_slice();
        let next = self.stacks.len() as StackId;
        let stack = *self.stack_ids.entry(frames.clone()).or_insert(next);
        if stack == next {
            self.stacks.push(Stack { frames, ..Stack::default() });
        }
        stack
    }

    fn frame(&mut self, frame: &Frame) -> FrameId {
        // Compilers give instances of a template for several lambdas one name: their places tell them apart.
        let key = format!("{}\n{}", frame.whole, frame.text);
        if let Some(&id) = self.frame_ids.get(&key) {
            return id;
        }
        let id = self.frames.len() as FrameId;
        self.frames.push(frame.clone());
        self.frame_ids.insert(key, id);
        id
    }

    pub(crate) fn frame_of(&self, id: FrameId) -> &Frame {
        &self.frames[id as usize]
    }

    pub(crate) fn text(&self, id: FrameId) -> &str {
        &self.frame_of(id).text
    }

    /// The text of a frame, with nothing left out.
    pub(crate) fn whole(&self, id: FrameId) -> &str {
        &self.frame_of(id).whole
    }

    pub(crate) fn frames(&self, stack: StackId) -> &[FrameId] {
        &self.stacks[stack as usize].frames
    }

    /// The whole texts of all frames of a stack, innermost first.
    pub(crate) fn texts(&self, stack: StackId) -> Vec<String> {
        self.frames(stack).iter().map(|&id| self.whole(id).to_owned()).collect()
    }

    /// The same, as JSON.
    pub(crate) fn json(&self, stack: StackId) -> &RawValue {
        let json = || serde_json::value::to_raw_value(&self.texts(stack)).expect("a list of strings");
        self.stacks[stack as usize].json.get_or_init(json)
    }

    /// The frames that are of interest; all of them where none is.
    pub(crate) fn interesting(&self, stack: StackId) -> Vec<FrameId> {
        let all = self.frames(stack);
        let own: Vec<FrameId> = all.iter().copied().filter(|&id| !self.frame_of(id).is_plumbing).collect();
        if own.is_empty() { all.to_vec() } else { own }
    }

    /// The innermost frame of interest that is no wrapper of a lock function: the line to look at.
    pub(crate) fn line_of(&self, stack: StackId) -> Option<FrameId> {
        let line = || {
            let frames = self.interesting(stack);
            let own = frames.iter().find(|&&id| !acquires(&self.frame_of(id).function));
            own.or(frames.first()).copied()
        };
        *self.stacks[stack as usize].line.get_or_init(line)
    }

    /// All stacks, as JSON, by their numbers.
    pub(crate) fn all_json(&self) -> impl Iterator<Item = &RawValue> {
        (0..self.stacks.len() as StackId).map(|stack| self.json(stack))
    }

    /// The innermost frame of interest.
    pub(crate) fn first_of(&self, stack: StackId) -> Option<FrameId> {
        let frames = self.frames(stack);
        frames.iter().find(|&&id| !self.frame_of(id).is_plumbing).or(frames.first()).copied()
    }

    /// The line to look at of a hold, and what happened there. Of one that was taken in a wrapper, of which
    /// the caller is not known, it is where it ended.
    pub(crate) fn line_of_holder(
        &self,
        acquired: StackId,
        released: StackId,
    ) -> Option<(&'static str, FrameId)> {
        let wrapper = |id: &FrameId| acquires(&self.frame_of(*id).function);
        let taken = self.line_of(acquired);
        let ended = || self.line_of(released).filter(|id| !wrapper(id)).map(|id| ("let go of it", id));
        taken
            .filter(|id| !wrapper(id))
            .map(|id| ("took it", id))
            .or_else(ended)
            .or_else(|| taken.or_else(|| self.line_of(released)).map(|id| ("took it", id)))
    }

    /// The files whose functions are on stacks of interest, none of them with a line.
    pub(crate) fn modules_without_lines(&self) -> Vec<&str> {
        let mut lines: BTreeMap<&str, bool> = BTreeMap::new();
        for frame in self.frames.iter().filter(|frame| !frame.module.is_empty() && !frame.is_plumbing) {
            *lines.entry(&frame.module).or_default() |= frame.has_line;
        }
        lines.into_iter().filter_map(|(name, has_lines)| (!has_lines).then_some(name)).collect()
    }
}
