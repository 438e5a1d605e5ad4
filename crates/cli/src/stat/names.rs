//! Stacks with names in place of addresses, each once, whichever process they come from.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::class::Sort;
use super::symbols::{Frame, Space};

/// The number of a frame.
pub(super) type FrameId = u32;
/// The number of a stack.
pub(super) type StackId = u32;

/// The stack of which nothing is known.
pub(super) const NO_STACK: StackId = 0;

/// All frames and stacks of a run.
pub(super) struct Names {
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
pub(super) struct Known {
    /// By where the process's figures have a stack, which stays there as long as this.
    stacks: HashMap<*const u64, (Arc<[u64]>, StackId)>,
    calls: HashMap<u64, StackId>,
    /// See [`super::class::Grouping`].
    pub(super) places: HashMap<Sort, usize>,
}

impl Names {
    pub(super) fn new() -> Self {
        let none: Box<[FrameId]> = Box::default();
        Names {
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            stacks: vec![Stack::default()],
            stack_ids: HashMap::from([(none, NO_STACK)]),
        }
    }

    /// The stack of these return addresses in a process.
    pub(super) fn stack(&mut self, addresses: &Arc<[u64]>, space: &Space, known: &mut Known) -> StackId {
        if addresses.is_empty() {
            return NO_STACK;
        }
        if let Some(&(_, stack)) = known.stacks.get(&addresses.as_ptr()) {
            return stack;
        }
        let stack = self.named(addresses, space);
        known.stacks.insert(addresses.as_ptr(), (Arc::clone(addresses), stack));
        stack
    }

    /// The stack of this return address alone.
    pub(super) fn call(&mut self, address: u64, space: &Space, known: &mut Known) -> StackId {
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
        if let Some(&id) = self.frame_ids.get(&frame.text) {
            return id;
        }
        let id = self.frames.len() as FrameId;
        self.frames.push(frame.clone());
        self.frame_ids.insert(frame.text.clone(), id);
        id
    }

    pub(super) fn frame_of(&self, id: FrameId) -> &Frame {
        &self.frames[id as usize]
    }

    pub(super) fn text(&self, id: FrameId) -> &str {
        &self.frame_of(id).text
    }

    pub(super) fn frames(&self, stack: StackId) -> &[FrameId] {
        &self.stacks[stack as usize].frames
    }

    /// All frames of a stack in words, innermost first.
    pub(super) fn texts(&self, stack: StackId) -> Vec<String> {
        self.frames(stack).iter().map(|&id| self.text(id).to_owned()).collect()
    }

    /// The same, as JSON.
    pub(super) fn json(&self, stack: StackId) -> &RawValue {
        let json = || serde_json::value::to_raw_value(&self.texts(stack)).expect("a list of strings");
        self.stacks[stack as usize].json.get_or_init(json)
    }

    /// The frames that are of interest; all of them where none is.
    pub(super) fn interesting(&self, stack: StackId) -> Vec<FrameId> {
        let all = self.frames(stack);
        let own: Vec<FrameId> = all.iter().copied().filter(|&id| !self.frame_of(id).is_plumbing).collect();
        if own.is_empty() { all.to_vec() } else { own }
    }

    /// The innermost frame of interest that is no wrapper of a lock function: the line to look at.
    pub(super) fn line_of(&self, stack: StackId) -> Option<FrameId> {
        let line = || {
            let frames = self.interesting(stack);
            let own = frames.iter().find(|&&id| !wraps(&self.frame_of(id).function, &ACQUIRING));
            own.or(frames.first()).copied()
        };
        *self.stacks[stack as usize].line.get_or_init(line)
    }

    /// All stacks, as JSON, by their numbers.
    pub(super) fn all_json(&self) -> impl Iterator<Item = &RawValue> {
        (0..self.stacks.len() as StackId).map(|stack| self.json(stack))
    }

    /// The innermost frame of interest.
    pub(super) fn first_of(&self, stack: StackId) -> Option<FrameId> {
        let frames = self.frames(stack);
        frames.iter().find(|&&id| !self.frame_of(id).is_plumbing).or(frames.first()).copied()
    }

    /// The line to look at of a hold, and what happened there. Of one that was taken in a wrapper, of which
    /// the caller is not known, it is where it ended.
    pub(super) fn line_of_holder(
        &self,
        acquired: StackId,
        released: StackId,
    ) -> Option<(&'static str, FrameId)> {
        let wrapper = |id: &FrameId| wraps(&self.frame_of(*id).function, &ACQUIRING);
        let taken = self.line_of(acquired);
        let ended = || self.line_of(released).filter(|id| !wrapper(id)).map(|id| ("let go of it", id));
        taken
            .filter(|id| !wrapper(id))
            .map(|id| ("took it", id))
            .or_else(ended)
            .or_else(|| taken.or_else(|| self.line_of(released)).map(|id| ("took it", id)))
    }

    /// The files of which frames of interest have functions and no lines.
    pub(super) fn modules_without_lines(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for frame in &self.frames {
            let name = frame.module.as_str();
            if !(name.is_empty() || frame.is_plumbing || frame.has_line || names.contains(&name)) {
                names.push(name);
            }
        }
        names
    }
}

/// Words of which one is in the name of a function that makes locks,
const MAKING: [&str; 9] =
    ["init", "new", "create", "make", "alloc", "allocate", "construct", "ctor", "setup"];
/// or that acquires them.
const ACQUIRING: [&str; 11] = [
    "lock",
    "unlock",
    "acquire",
    "enter",
    "leave",
    "release",
    "rdlock",
    "wrlock",
    "wait",
    "timedlock",
    "down",
];

/// Whether a function makes locks of a kind for others, going by its name.
pub(super) fn makes_locks(function: &str) -> bool {
    wraps(function, &MAKING)
}

/// Whether a function makes objects, going by its name: a constructor, or one that says so.
pub(super) fn makes_objects(function: &str) -> bool {
    let path = without_arguments(function);
    let mut parts = path.rsplit("::");
    let (last, before) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let before = before.split('<').next().unwrap_or_default();
    (!last.is_empty() && last == before) || words(last).iter().any(|word| MAKING.contains(&&**word))
}

/// Whether a function's name says that it does to a lock what one of these verbs says.
fn wraps(function: &str, verbs: &[&str]) -> bool {
    let path = without_arguments(function);
    let mut parts = path.rsplit("::");
    let last = parts.next().unwrap_or_default();
    let words_of_last = words(last);
    let says = words_of_last.iter().any(|word| verbs.contains(&&**word));
    // Of a method it may be the class that is named after a lock; a constructor is named as its class.
    let class = parts.next().unwrap_or_default();
    let is_lock = |words: &[String]| words.iter().any(|word| names_a_lock(word));
    if !class.is_empty() && class == last {
        return verbs.contains(&"ctor") && is_lock(&words_of_last);
    }
    says && (is_lock(&words_of_last) || is_lock(&words(class)))
}

/// The name without its parameters and what is in angle brackets at its end.
fn without_arguments(function: &str) -> &str {
    function.split(['(', ' ']).next().unwrap_or_default()
}

/// A function's name without its parameters and what it returns.
pub(super) fn short(function: &str) -> &str {
    if function.contains("operator") {
        return function;
    }
    let (mut depth, mut start) = (0, 0);
    for (at, c) in function.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ' ' if depth == 0 => start = at + 1,
            '(' if depth == 0 && !function[at..].starts_with("(anonymous") => return &function[start..at],
            _ => {}
        }
    }
    function
}

fn names_a_lock(word: &str) -> bool {
    const WORDS: [&str; 9] = ["rw", "sem", "cond", "cs", "thr", "thread", "sync", "cv", "monitor"];
    WORDS.contains(&word) || is_a_lock(word)
}

fn is_a_lock(word: &str) -> bool {
    const WORDS: [&str; 6] = ["mtx", "lck", "spin", "crit", "latch", "rwl"];
    WORDS.contains(&word)
        || word.contains("mutex")
        || (word.contains("lock") && !word.contains("block") && !word.contains("clock"))
}

/// Whether a type is made to be a lock, going by its name: locks of that type may be anything's.
pub(super) fn is_lock_type(name: &str) -> bool {
    let name = name.split('<').next().unwrap_or_default();
    let last = name.rsplit("::").next().unwrap_or_default();
    words(last).iter().any(|word| is_a_lock(word))
}

/// `rw_pr_init` and `PR_NewLock` in words, small letters all.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("never empty").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::{ACQUIRING, makes_locks, makes_objects, short, wraps};

    #[test]
    fn wrappers_are_known_by_their_names() {
        for name in [
            "rw_pr_init",
            "Lck__New",
            "uv_mutex_init",
            "CRYPTO_THREAD_lock_new",
            "ngx_thread_mutex_create",
            "inline_mysql_prlock_init",
            "PR_NewLock",
            "rocksdb::port::Mutex::Mutex(bool)",
            "apr_thread_mutex_create",
            "os::PlatformMonitor::PlatformMonitor()",
        ] {
            assert!(makes_locks(name), "{name}");
        }
        for name in
            ["sessions_create", "main", "block_init", "MDL_map::init", "Session::Session()", "worker", ""]
        {
            assert!(!makes_locks(name), "{name}");
        }
        assert!(
            makes_objects("Session::Session()") && makes_objects("sessions_create") && !makes_objects("work")
        );
        assert!(makes_objects("app::Store<long>::Store(long)"));
        for name in
            ["uv_mutex_lock", "rocksdb::port::Mutex::Lock()", "inline_mysql_mutex_lock", "sem_wait_all"]
        {
            assert!(wraps(name, &ACQUIRING), "{name}");
        }
        for name in ["queue_take", "block_enter", "wait_for_it", "waiter"] {
            assert!(!wraps(name, &ACQUIRING), "{name}");
        }
    }

    #[test]
    fn names_are_short_without_parameters() {
        for (function, name) in [
            (
                "app::Status app::Table::get<app::Block>(app::Slice const&, bool) const",
                "app::Table::get<app::Block>",
            ),
            ("open_table(THD*, TABLE_LIST*)", "open_table"),
            ("std::map<int, f(int)>::at(int)", "std::map<int, f(int)>::at"),
            ("X::operator()(int)", "X::operator()(int)"),
            ("main", "main"),
        ] {
            assert_eq!(short(function), name);
        }
    }
}
