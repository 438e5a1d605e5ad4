//! A finding in words: what is left when names have taken the place of addresses.

use crate::observe::symbols::Frame;
use crate::observe::words::{acquires, makes_locks};

use super::kinds::Kind;

/// Something that is wrong, or can go wrong.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// One sentence, for somebody who has never heard of it.
    pub(super) headline: String,
    pub(super) process: Process,
    /// The locks that it is about.
    pub(super) locks: Vec<Lock>,
    /// Who did what, and where.
    pub(super) stacks: Vec<Stack>,
    /// What else there is to say.
    pub(super) notes: Vec<String>,
    /// What to do about it.
    pub(super) advice: &'static str,
    /// How often it was found.
    pub(super) count: u64,
    /// Since the start of the run.
    pub(super) at_ns: u64,
}

/// Where it was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) exe: String,
}

/// A lock.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    /// What people call it.
    pub(super) name: String,
    /// What people call all of its sort: `table[].lock`.
    pub(super) class: String,
    /// `mutex`, ...
    pub(super) kind: String,
    /// 0 if unknown.
    pub(super) address: u64,
    /// Where its variable is declared; empty if it is none, or nobody knows.
    pub(super) declared_at: String,
    /// Where it was initialised; empty if unknown.
    pub(super) made: Vec<Frame>,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Thread {
    pub(super) tid: u32,
    /// Empty if unknown.
    pub(super) name: String,
    pub(super) is_main: bool,
}

/// Something that a thread did at a place.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    pub(super) thread: Option<Thread>,
    /// What: `took log_lock`, `while it held cache_lock, taken`. The place comes behind it.
    pub(super) what: String,
    /// It goes on what the stack before it says: the same thread at the same time.
    pub(super) goes_on: bool,
    /// Which of the locks.
    pub(super) lock: Option<usize>,
    /// Innermost first; empty if unknown.
    pub(super) frames: Vec<Frame>,
}

impl Thread {
    /// One that was gone before anybody could look at it.
    pub(super) fn unknown() -> Self {
        Thread { tid: 0, name: String::new(), is_main: false }
    }

    /// How it is named in a sentence.
    pub(super) fn in_words(&self) -> String {
        match (self.is_main, self.name.as_str()) {
            (_, "") if self.tid == 0 => "a thread that has ended".to_owned(),
            (true, _) => format!("the main thread ({})", self.tid),
            (false, "") => format!("thread {}", self.tid),
            (false, name) => format!("thread {name} ({})", self.tid),
        }
    }
}

/// The frames that are of interest; all of them where none is.
pub(super) fn interesting(frames: &[Frame]) -> Vec<&Frame> {
    let own: Vec<&Frame> = frames.iter().filter(|frame| !frame.is_plumbing).collect();
    if own.is_empty() { frames.iter().collect() } else { own }
}

/// The innermost frame of interest that is no wrapper of a lock function: the line to look at.
pub(super) fn line(frames: &[Frame]) -> Option<&Frame> {
    let frames = interesting(frames);
    frames.iter().find(|frame| !acquires(&frame.function)).or(frames.first()).copied()
}

/// Whether it is the line of a stack that made a lock, if no frame inside of it is.
pub(super) fn is_making_line(frame: &Frame) -> bool {
    !frame.is_plumbing && !makes_locks(&frame.function)
}

/// The same of a stack that made a lock.
pub(super) fn making_line(frames: &[Frame]) -> Option<&Frame> {
    let frames = interesting(frames);
    frames.iter().find(|frame| !makes_locks(&frame.function)).or(frames.first()).copied()
}

impl Stack {
    /// ` at f (f.c:12)`, or nothing.
    pub(super) fn at(&self) -> String {
        line(&self.frames).map_or(String::new(), |frame| format!(" at {}", frame.text))
    }

    /// The whole of it in a sentence.
    pub(super) fn sentence(&self) -> String {
        let who =
            self.thread.as_ref().filter(|_| !self.goes_on).map_or(String::new(), |t| t.in_words() + " ");
        format!("{who}{}{}", self.what, self.at())
    }
}

impl Finding {
    /// One of which there is nothing else to say yet.
    pub(super) fn new(kind: Kind, at_ns: u64) -> Self {
        Finding {
            kind,
            headline: String::new(),
            process: Process::default(),
            locks: Vec::new(),
            stacks: Vec::new(),
            notes: Vec::new(),
            advice: kind.advice(),
            count: 1,
            at_ns,
        }
    }

    /// What makes two findings one: their kind, the sorts of their locks, and the lines.
    pub(super) fn key(&self) -> String {
        let mut classes: Vec<&str> = self.locks.iter().map(|lock| lock.class.as_str()).collect();
        classes.sort_unstable();
        let mut lines: Vec<&str> = self
            .stacks
            .iter()
            .filter_map(|stack| line(&stack.frames))
            .map(|frame| frame.whole.as_str())
            .collect();
        lines.sort_unstable();
        format!("{}\n{}\n{}", self.kind.name(), classes.join("\n"), lines.join("\n"))
    }

    /// 16 hexadecimal digits that stay the same from run to run and do not change when other lines are added above.
    pub(super) fn fingerprint(&self) -> String {
        let mut parts = vec![self.kind.name().to_owned()];
        let name =
            |frame: &Frame| if frame.function.is_empty() { &frame.whole } else { &frame.function }.clone();
        let sort = |lock: &Lock| making_line(&lock.made).map_or_else(|| lock.class.clone(), name);
        let mut classes: Vec<String> = self.locks.iter().map(sort).collect();
        classes.sort_unstable();
        parts.extend(classes);
        let lines = self.stacks.iter().filter_map(|stack| line(&stack.frames));
        let mut functions: Vec<String> = lines.map(name).collect();
        functions.sort_unstable();
        parts.extend(functions);
        // FNV-1a, whose result is the same everywhere.
        let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    /// The threads in it, each once.
    pub(super) fn threads(&self) -> Vec<&Thread> {
        let mut threads: Vec<&Thread> = Vec::new();
        for thread in self.stacks.iter().filter_map(|stack| stack.thread.as_ref()) {
            if !threads.contains(&thread) {
                threads.push(thread);
            }
        }
        threads
    }

    /// The lines to look at, each once: where each thread asked for something, not where it took what it
    /// held.
    pub(super) fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = Vec::new();
        let asked = self.stacks.iter().filter(|stack| !stack.goes_on);
        for frame in asked.filter_map(|stack| line(&stack.frames)) {
            if !lines.contains(&frame.text.as_str()) {
                lines.push(&frame.text);
            }
        }
        lines
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A frame of a program.
    pub(in crate::check) fn frame(function: &str, line: u32) -> Frame {
        let text = if function.is_empty() { "0x1234".to_owned() } else { format!("{function} (a.c:{line})") };
        Frame {
            whole: text.clone(),
            text,
            name: function.to_owned(),
            function: function.to_owned(),
            module: if function.is_empty() { String::new() } else { "program".to_owned() },
            has_line: !function.is_empty(),
            file: if function.is_empty() { String::new() } else { "/src/a.c".to_owned() },
            line,
            in_program: true,
            is_plumbing: false,
        }
    }

    fn lock(name: &str) -> Lock {
        Lock {
            name: name.to_owned(),
            class: name.to_owned(),
            kind: "mutex".to_owned(),
            address: 0x1000,
            declared_at: "a.c:1".to_owned(),
            made: Vec::new(),
        }
    }

    /// Two threads, two locks, both orders.
    pub(in crate::check) fn order(a: &str, b: &str, one: &str, other: &str) -> Finding {
        let thread = |tid| Some(Thread { tid, name: "worker".to_owned(), is_main: false });
        let stack = |tid, what: String, goes_on, lock, function, line| Stack {
            thread: thread(tid),
            what,
            goes_on,
            lock: Some(lock),
            frames: vec![frame(function, line), frame("main", 99)],
        };
        Finding {
            kind: Kind::Order,
            headline: format!("{a} and {b} are taken in both orders"),
            process: Process { pid: 7, exe: "/bin/program".to_owned() },
            locks: vec![lock(a), lock(b)],
            stacks: vec![
                stack(8, format!("took {b}"), false, 1, one, 10),
                stack(8, format!("while it held {a}, taken"), true, 0, one, 9),
                stack(9, format!("took {a}"), false, 0, other, 20),
                stack(9, format!("while it held {b}, taken"), true, 1, other, 19),
            ],
            notes: Vec::new(),
            advice: Kind::Order.advice(),
            count: 1,
            at_ns: 5_000_000,
        }
    }

    #[test]
    fn a_finding_is_one_with_itself_found_the_other_way_round() {
        let mut turned = order("b", "a", "get", "put");
        turned.stacks.rotate_left(2);
        for stack in &mut turned.stacks {
            for frame in &mut stack.frames {
                let line = match (frame.line, &*frame.function) {
                    (10, _) => 20,
                    (9, _) => 19,
                    (20, _) => 10,
                    (19, _) => 9,
                    (other, _) => other,
                };
                *frame = self::frame(&frame.function.clone(), line);
            }
        }
        let one = order("a", "b", "put", "get");
        assert_eq!(one.key(), turned.key());
        assert_eq!(one.fingerprint(), turned.fingerprint());
        assert_ne!(one.key(), order("a", "c", "put", "get").key());
        assert_ne!(one.fingerprint(), order("a", "b", "put", "set").fingerprint());
    }

    #[test]
    fn a_wrapper_is_not_the_line() {
        let frames = [frame("my_mutex_lock", 3), frame("put", 9)];
        assert_eq!(line(&frames).unwrap().text, "put (a.c:9)");
        assert_eq!(
            making_line(&[frame("my_mutex_init", 3), frame("cache_new", 9)]).unwrap().text,
            "cache_new (a.c:9)"
        );
        assert!(line(&[]).is_none());
    }
}
