//! The stacks of a process, each with a number. A stack is unwound once: where the same functions called each
//! other before, their return addresses lie at the same distances from the stack pointer, and are compared.
//!
//! From the program counter alone follows where the first return address is, unless the function's frame has
//! a variable size; from that one, where the next is, and so on: so stacks are the paths of a tree, and a
//! copied stack is looked up by as many loads as it has functions. (On aarch64 the innermost return addresses
//! may be in registers only: there every stack is unwound.)

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::record::{Registers, Words, word};
use crate::observe::calls::Doing;
use crate::remote::maps::Maps;
use crate::remote::unwind::{Frame, Unwinder};
use crate::remote::{self, Memory, Stack, Thread};

/// The number of a stack in its process.
pub(crate) type StackId = u32;

/// The stack of which nothing is known.
pub(super) const NO_STACK: StackId = 0;

/// As many stacks are told apart in a process, and as many functions of all.
const MOST: usize = 1 << 16;
const MOST_NODES: usize = 1 << 20;
/// Return addresses that come one on the other lie at the same distance, or at few.
const DISTANCES: usize = 4;

/// A copied stack, as the kernel gives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied<'r> {
    pub(super) registers: Registers,
    pub(super) stack: &'r [u8],
    /// Return addresses by frame pointers, from the program counter on; empty without.
    pub(super) chain: Words<'r>,
}

/// What is known of one.
pub(super) struct Known {
    /// Return addresses, innermost first; the first one is the byte after the instruction that waits.
    pub(super) addresses: Arc<[u64]>,
    /// Of a wait for a condition variable of glibc: how far its word is behind its beginning.
    pub(super) condition: Option<u64>,
    /// Where on the stack the address of the lock is, if the word is not in the lock: see
    /// [`Stacks::learn`].
    pub(super) object: Object,
}

/// Where the address of a lock lies that is not its word: from the stack pointer on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Object {
    /// The word is in the lock.
    #[default]
    Word,
    /// At one of these distances; all of them have been it so far.
    Among(Vec<u32>),
    /// It is still to be found.
    Unknown,
}

/// All of them.
pub(super) struct Stacks {
    all: Vec<Known>,
    ids: FxHashMap<Arc<[u64]>, StackId>,
    nodes: Vec<Node>,
    roots: FxHashMap<u64, usize>,
    tail: Vec<u64>,
    /// Where the return addresses were by which the last stack was known again: how far above the stack
    /// pointer.
    places: Vec<(u32, u64)>,
}

/// Stacks by the rest of the chain.
type ByRest = FxHashMap<Box<[u64]>, StackId>;

/// A function on the way from the innermost one outwards.
#[derive(Default)]
struct Node {
    /// By distance of the next return address from the stack pointer.
    next: Vec<(u32, FxHashMap<u64, usize>)>,
    /// If the copy leads no further: how many entries of the chain it has covered, and the stack by the rest.
    ends: Option<(usize, ByRest)>,
}

impl Default for Stacks {
    fn default() -> Self {
        let none: Arc<[u64]> = Arc::new([]);
        let known = Known { addresses: none.clone(), condition: None, object: Object::Word };
        Stacks {
            all: vec![known],
            ids: FxHashMap::from_iter([(none, NO_STACK)]),
            nodes: Vec::new(),
            roots: FxHashMap::default(),
            tail: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl Stacks {
    pub(super) fn get(&self, id: StackId) -> &Known {
        &self.all[id as usize]
    }

    pub(super) fn object_mut(&mut self, id: StackId) -> &mut Object {
        &mut self.all[id as usize].object
    }

    /// How many there are: numbers are given in order.
    pub(super) fn count(&self) -> StackId {
        self.all.len() as StackId
    }

    /// The stack of this copy, if it was there before.
    pub(super) fn seen(&mut self, copied: &Copied) -> Option<StackId> {
        if cfg!(not(target_arch = "x86_64")) {
            return None;
        }
        self.places.clear();
        let mut node = &self.nodes[*self.roots.get(&copied.registers.pc)?];
        'outer: while !node.next.is_empty() {
            for (distance, callers) in &node.next {
                let address = word(copied.stack, *distance as usize);
                if let Some((address, &caller)) =
                    address.and_then(|found| Some((found, callers.get(&found)?)))
                {
                    self.places.push((*distance, address));
                    node = &self.nodes[caller];
                    continue 'outer;
                }
            }
            return None;
        }
        let (covered, ends) = node.ends.as_ref()?;
        self.tail.clear();
        self.tail.extend(copied.chain.iter().skip(*covered));
        if !self.tail.is_empty() {
            // They are not all that tells it from others.
            self.places.clear();
        }
        ends.get(self.tail.as_slice()).copied()
    }

    /// Where the return addresses lie that alone tell the stack that was known again last.
    pub(super) fn places(&self) -> &[(u32, u64)] {
        &self.places
    }

    /// The stack of this copy, unwound, and known again if it is to be. `waits_for` is the word, if the call
    /// waits.
    pub(super) fn add(
        &mut self,
        copied: &Copied,
        (waits_for, known_again): (Option<u64>, bool),
        (unwinder, maps): (&mut Unwinder, &Maps),
        memory: &impl Memory,
    ) -> StackId {
        let Registers { pc, sp, fp, lr } = copied.registers;
        let thread = Thread {
            tid: 0,
            inner: 0,
            name: String::new(),
            doing: Doing::Running,
            registers: Some(remote::registers::Registers {
                pc,
                sp,
                fp,
                lr,
                kept: Vec::new(),
                call: None,
                thread_pointer: None,
            }),
            stack: Stack { start: sp, bytes: copied.stack.to_vec() },
            stood_ns: 0,
        };
        let frames = unwinder.stack(&thread, maps, memory).frames;
        let chain: Vec<u64> = copied.chain.iter().collect();
        let (kept, covered) = meeting(&frames, &chain);
        let frames = &frames[..kept];
        let tail = chain.get(covered..).unwrap_or_default();
        let addresses: Vec<u64> = frames.iter().map(|frame| frame.at).chain(tail.iter().copied()).collect();
        let condition = waits_for.and_then(|word| condition(&thread.stack, frames, word));
        let id = self.number(addresses, condition);
        if cfg!(target_arch = "x86_64") && known_again && !frames.iter().any(|frame| frame.guessed) {
            self.remember(pc, sp, frames, (covered, tail), id);
        }
        id
    }

    /// A stack whose addresses are known.
    pub(super) fn number(&mut self, addresses: Vec<u64>, condition: Option<u64>) -> StackId {
        if let Some(&known) = self.ids.get(addresses.as_slice()) {
            let known_condition = &mut self.all[known as usize].condition;
            *known_condition = known_condition.or(condition);
            return known;
        }
        if self.all.len() >= MOST {
            return NO_STACK;
        }
        let id = self.all.len() as StackId;
        let addresses: Arc<[u64]> = addresses.into();
        self.ids.insert(addresses.clone(), id);
        self.all.push(Known { addresses, condition, object: Object::Word });
        id
    }

    /// Remembers where its return addresses were.
    fn remember(
        &mut self,
        pc: u64,
        sp: u64,
        frames: &[Frame],
        (covered, tail): (usize, &[u64]),
        id: StackId,
    ) {
        if self.nodes.len() + frames.len() > MOST_NODES {
            return;
        }
        let new = |nodes: &mut Vec<Node>| {
            nodes.push(Node::default());
            nodes.len() - 1
        };
        let mut at = *self.roots.entry(pc).or_insert_with(|| new(&mut self.nodes));
        for pair in frames.windows(2) {
            // A call pushes its return address last.
            let Some(distance) = pair[0].end.checked_sub(sp + 8).and_then(|far| u32::try_from(far).ok())
            else {
                return;
            };
            let of = self.nodes[at].next.iter().position(|(known, _)| *known == distance);
            let of = match of {
                Some(of) => of,
                None if self.nodes[at].next.len() == DISTANCES => return,
                None => {
                    self.nodes[at].next.push((distance, FxHashMap::default()));
                    self.nodes[at].next.len() - 1
                }
            };
            at = match self.nodes[at].next[of].1.get(&pair[1].at) {
                Some(&caller) => caller,
                None => {
                    let caller = new(&mut self.nodes);
                    self.nodes[at].next[of].1.insert(pair[1].at, caller);
                    caller
                }
            };
        }
        let ends = self.nodes[at].ends.get_or_insert_with(|| (covered, FxHashMap::default()));
        if ends.0 == covered {
            ends.1.insert(tail.into(), id);
        }
    }

    /// Where on a stack the address of its lock is. The kernel has copied the stack as the wait began, and
    /// `object` was read a little later: it may be another one's by then. So only those places stay that
    /// have been right each time.
    pub(super) fn learn(&mut self, id: StackId, stack: &[u8], object: Option<u64>) {
        let Some(object) = object else { return };
        let is_it = |distance: &u32| word(stack, *distance as usize) == Some(object);
        let places = || (0..stack.len() as u32).step_by(8).filter(is_it).collect::<Vec<u32>>();
        match self.object_mut(id) {
            Object::Word => {}
            Object::Unknown => {
                let found = places();
                if !found.is_empty() {
                    *self.object_mut(id) = Object::Among(found);
                }
            }
            Object::Among(known) => {
                let still: Vec<u32> = known.iter().copied().filter(is_it).collect();
                if !still.is_empty() {
                    *known = still;
                }
            }
        }
    }
}

/// Where frames and chain meet: as many of the frames are kept, and as many entries of the chain are covered
/// by them. Frame pointers lead on where the copy ends; what they skip is in the frames.
fn meeting(frames: &[Frame], chain: &[u64]) -> (usize, usize) {
    if chain.len() < 2 {
        return (frames.len(), chain.len());
    }
    let met = frames.iter().enumerate().skip(1).rev().find_map(|(at, frame)| {
        let covered = chain.iter().skip(1).position(|entry| *entry == frame.at)?;
        Some((at, covered + 2))
    });
    match met {
        // The chain goes on where the frames do not, or further.
        Some((at, covered)) if chain.len() - covered > frames.len() - at - 1 => (at + 1, covered),
        Some(_) => (frames.len(), chain.len()),
        // The copy ended in the frame of the function whose caller the chain has first.
        None => (frames.len(), 1),
    }
}

/// How far behind the beginning of its condition variable a word is: glibc keeps the variable's address and
/// its mutex's side by side on the stack of the waiter.
fn condition(stack: &Stack, frames: &[Frame], futex: u64) -> Option<u64> {
    const WORDS: std::ops::RangeInclusive<u64> = 32..=44;
    let end = frames.get(4).or(frames.last())?.end.min(stack.end());
    (stack.start..end).step_by(8).find_map(|at| {
        let (condition, mutex) = (stack.long(at)?, stack.long(at + 8)?);
        let far = futex.wrapping_sub(condition);
        let apart = mutex.abs_diff(condition) >= 40;
        (WORDS.contains(&far) && mutex > 0xffff && mutex.is_multiple_of(4) && apart).then_some(far & !7)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(at: u64, end: u64) -> Frame {
        Frame { at, end, guessed: false }
    }

    #[test]
    fn frame_pointers_lead_on_where_the_copy_ends() {
        let frames = [frame(0x10, 8), frame(0x20, 16), frame(0x30, 24)];
        // As far as each other.
        assert_eq!(meeting(&frames, &[0xf, 0x20, 0x30]), (3, 3));
        // The chain skips the caller of the C library, and goes on.
        assert_eq!(meeting(&frames, &[0xf, 0x30, 0x40, 0x50]), (3, 2));
        // The copy has all of it.
        assert_eq!(meeting(&frames, &[0xf, 0x20]), (3, 2));
        assert_eq!(meeting(&frames, &[]), (3, 0));
        // The copy ends before they meet.
        assert_eq!(meeting(&frames, &[0xf, 0x40, 0x50]), (3, 1));
        // The frames were lost on the way.
        assert_eq!(meeting(&frames, &[0xf, 0x20, 0x31, 0x40]), (2, 2));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_stack_is_known_again_by_its_return_addresses() {
        let mut stacks = Stacks::default();
        let sp = 0x7000;
        let frames = [frame(0x11, sp + 16), frame(0x20, sp + 32), frame(0x30, sp + 32)];
        let id = stacks.number(vec![0x11, 0x20, 0x30], None);
        stacks.remember(0x10, sp, &frames, (0, &[]), id);
        let copied = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let look = |stacks: &mut Stacks, pc: u64, words: &[u64]| {
            let bytes = copied(words);
            let registers = Registers { pc, sp: 0x9000, fp: 0, lr: 0 };
            stacks.seen(&Copied { registers, stack: &bytes, chain: Words::default() })
        };
        assert_eq!(look(&mut stacks, 0x10, &[7, 0x20, 8, 0x30]), Some(id));
        assert_eq!(look(&mut stacks, 0x10, &[7, 0x20, 8, 0x31]), None, "another caller");
        assert_eq!(look(&mut stacks, 0x10, &[7, 0x20]), None, "too short");
        assert_eq!(look(&mut stacks, 0x12, &[7, 0x20, 8, 0x30]), None);
    }

    #[test]
    fn the_place_of_a_lock_is_the_one_that_was_right_each_time() {
        let mut stacks = Stacks::default();
        let id = stacks.number(vec![1, 2], None);
        let copied = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        stacks.learn(id, &copied(&[5, 6]), Some(5));
        assert_eq!(stacks.get(id).object, Object::Word, "nobody asked");
        *stacks.object_mut(id) = Object::Unknown;
        stacks.learn(id, &copied(&[9, 5, 5]), Some(4));
        assert_eq!(stacks.get(id).object, Object::Unknown);
        stacks.learn(id, &copied(&[9, 5, 5]), Some(5));
        stacks.learn(id, &copied(&[5, 6, 5]), Some(5));
        assert_eq!(stacks.get(id).object, Object::Among(vec![16]));
    }
}
