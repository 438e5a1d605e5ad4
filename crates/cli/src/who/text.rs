//! The picture in words.

use std::collections::HashMap;
use std::fmt::Write;

use super::Origin;
use super::picture::{Lock, Picture, Seen};
use super::waits::{Holder, Kind};
use crate::output::counted;

/// As many names stand in a line.
const NAMES: usize = 6;
/// As many frames of a stack are shown, unless all are asked for.
const FRAMES: usize = 12;
/// As many groups of threads that wait for no lock have a line, where others wait for locks.
const IDLE: usize = 4;

/// What to write.
pub(super) struct Text<'a> {
    pub(super) picture: &'a Picture,
    pub(super) origin: &'a Origin,
    /// All threads, and all of their stacks.
    pub(super) all: bool,
}

impl Text<'_> {
    pub(super) fn write(&self) -> String {
        let mut text = String::new();
        let picture = self.picture;
        let waiting = picture.threads.iter().filter(|thread| self.wants_lock(thread)).count();
        let others = picture.threads.iter().filter(|thread| thread.waits.is_some()).count() - waiting;
        let count = |n: usize, what: &str| counted(n as u64, what);
        let mut push = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        push(format!(
            "{}: {}, of which {} for locks and {} for conditions, semaphores or ends of threads",
            self.origin.title(),
            count(picture.threads.len(), "thread"),
            if waiting == 1 { "1 waits".to_owned() } else { format!("{waiting} wait") },
            others,
        ));
        push(self.origin.stood());
        for cycle in &picture.cycles {
            push(String::new());
            push(self.cycle(cycle));
        }
        let monitors = picture.threads.iter().filter(|thread| self.enters_monitor(thread)).count();
        let ended = picture.threads.iter().filter(|thread| self.waits_for_ended(thread)).count();
        if ended > 0 {
            let waits = match ended {
                1 => "waits for a lock of a thread that has ended: nobody will release the lock",
                _ => "wait for locks of threads that have ended: nobody will release the locks",
            };
            push(format!("ended holder: {} {waits}", count(ended, "thread")));
        } else if picture.cycles.is_empty() && monitors > 0 {
            push(format!(
                "{} for monitors of Java's, whose holders the virtual machine alone knows: a deadlock of theirs shows in \
                 `jstack {}`",
                if monitors == 1 { "1 thread waits".to_owned() } else { format!("{monitors} threads wait") },
                self.origin.pid().map_or("PID".to_owned(), |pid| pid.to_string())
            ));
        } else if picture.cycles.is_empty() && waiting > 0 {
            let moved = picture.threads.iter().filter(|thread| self.waits_for_lock(thread));
            let moved = moved.filter(|thread| thread.waits.as_ref().is_some_and(|wait| !wait.steady)).count();
            push(match moved {
                0 => "no deadlock among holders that are known".to_owned(),
                moved => format!(
                    "no deadlock among holders that are known; {} went on while we looked, so this is work",
                    count(moved, "wait")
                ),
            });
        }
        let mut shown = vec![false; picture.threads.len()];
        let groups = self.groups();
        // Beside threads that wait for locks, those that wait for work have a line, unless they hold such a
        // lock.
        let in_cycle = |index: usize| picture.cycles.iter().any(|cycle| cycle.contains(&index));
        let is_idle = |group: &&Vec<usize>| {
            let idles = |&index: &usize| {
                let thread = &picture.threads[index];
                !self.wants_lock(thread) && thread.holds.is_empty() && !in_cycle(index)
            };
            waiting > 0 && !self.all && group.iter().all(idles)
        };
        let (idle, told): (Vec<_>, Vec<_>) = groups.iter().partition(is_idle);
        for group in told {
            push(String::new());
            self.group(group, &mut shown, &mut push);
        }
        self.idle(&idle, &mut shown, &mut push);
        self.rest(&shown, &mut push);
        let notes = self.notes();
        if !notes.is_empty() {
            push(String::new());
        }
        notes.into_iter().for_each(push);
        text
    }

    fn waits_for_lock(&self, thread: &Seen) -> bool {
        thread.waits.as_ref().is_some_and(|wait| wait.kind.is_lock())
    }

    /// Whether it waits for a lock whose holder is known to have ended. A record knows that of a moving
    /// thread, too.
    fn waits_for_ended(&self, thread: &Seen) -> bool {
        thread.waits.as_ref().is_some_and(|wait| match &self.picture.locks[wait.lock].holder {
            Holder::Ended(Some(_)) => true,
            Holder::Ended(None) => wait.steady,
            Holder::Thread(id) => {
                let is_there = self.picture.threads.iter().any(|thread| thread.inner == *id);
                wait.steady && !is_there && wait.kind != Kind::Join && self.origin.has_ended(*id)
            }
            _ => false,
        })
    }

    /// Whether a thread waits for a lock, a monitor of Java's among them: to the C library that is a
    /// condition variable.
    fn wants_lock(&self, thread: &Seen) -> bool {
        self.waits_for_lock(thread) || self.enters_monitor(thread)
    }

    fn enters_monitor(&self, thread: &Seen) -> bool {
        let enters = |frame: &String| {
            frame.starts_with("ObjectMonitor::enter") || frame.starts_with("ObjectMonitor::Enter")
        };
        self.picture.languages.java && thread.waits.is_some() && thread.stack.iter().any(enters)
    }

    pub(super) fn who(&self, index: usize) -> String {
        let thread = &self.picture.threads[index];
        match thread.name.as_str() {
            "" => format!("thread {}", thread.tid),
            name => format!("{name} ({})", thread.tid),
        }
    }

    /// The cycle in one sentence, each thread once.
    pub(super) fn cycle(&self, cycle: &[usize]) -> String {
        let lock = |index: usize| {
            let wait = self.picture.threads[index].waits.as_ref();
            wait.map(|wait| &self.picture.locks[wait.lock])
        };
        let name = |of: Option<&Lock>| of.map_or_else(|| "a lock".to_owned(), |lock| lock.name.clone());
        let part = |(place, &index): (usize, &usize)| {
            let before = cycle[(place + cycle.len() - 1) % cycle.len()];
            let line = self.picture.threads[index].line.as_str();
            let line = if line.is_empty() { String::new() } else { format!(" in {line}") };
            let has = match lock(before) {
                // The one before waits for this thread's end.
                Some(of) if of.kind == Kind::Join => String::new(),
                of => format!(" holds {},", name(of)),
            };
            format!("{}{has} waits for {}{line}", self.who(index), name(lock(index)))
        };
        let parts: Vec<String> = cycle.iter().enumerate().map(part).collect();
        match cycle {
            [one] => {
                let line = &self.picture.threads[*one].line;
                let line = if line.is_empty() { String::new() } else { format!(" in {line}") };
                format!(
                    "deadlock: {} holds {} and waits for it again{line}",
                    self.who(*one),
                    name(lock(*one))
                )
            }
            _ => format!("deadlock: {}", parts.join("; ")),
        }
    }

    /// Threads that wait for the same from the same place: those in cycles first, then locks, most waiters
    /// first.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut places: HashMap<(usize, Kind, &[String], bool), usize> = HashMap::new();
        for (index, thread) in self.picture.threads.iter().enumerate() {
            let Some(wait) = &thread.waits else { continue };
            // Each parks at a place of its own, which says nothing.
            let lock = if wait.kind == Kind::Park { usize::MAX } else { wait.lock };
            let key = (lock, wait.kind, &*thread.stack, wait.steady);
            match places.get(&key) {
                Some(&place) => groups[place].push(index),
                None => {
                    places.insert(key, groups.len());
                    groups.push(vec![index]);
                }
            }
        }
        let in_cycle = |index: usize| self.picture.cycles.iter().any(|cycle| cycle.contains(&index));
        groups.sort_by_key(|group| {
            let first = group[0];
            let is_lock = self.wants_lock(&self.picture.threads[first]);
            (!in_cycle(first), !is_lock, std::cmp::Reverse(group.len()))
        });
        groups
    }

    /// Threads that wait for no lock, a line a group.
    fn idle(&self, groups: &[&Vec<usize>], shown: &mut [bool], push: &mut impl FnMut(String)) {
        groups.iter().for_each(|group| group.iter().for_each(|&index| shown[index] = true));
        let shown = groups.len().min(IDLE);
        if shown > 0 {
            push(String::new());
        }
        for group in &groups[..shown] {
            let line = self.picture.threads[group[0]].line.as_str();
            let line = if line.is_empty() { String::new() } else { format!(" in {line}") };
            push(self.head(group) + &line);
        }
        let rest: usize = groups[shown..].iter().map(|group| group.len()).sum();
        match (rest, shown) {
            (0, 0) => {}
            (0, _) => push("  (--all shows their stacks)".to_owned()),
            _ => push(format!(
                "and {} for conditions, semaphores or work (--all shows them)",
                if rest == 1 {
                    "1 more thread waits".to_owned()
                } else {
                    format!("{rest} more threads wait")
                }
            )),
        }
    }

    /// Who waits for what.
    fn head(&self, group: &[usize]) -> String {
        let thread = &self.picture.threads[group[0]];
        let Some(wait) = &thread.waits else { return String::new() };
        let lock = &self.picture.locks[wait.lock];
        let names: Vec<String> = group.iter().take(NAMES).map(|&index| self.who(index)).collect();
        let mut head = names.join(", ");
        if group.len() > NAMES {
            let _ = write!(head, " and {} more", group.len() - NAMES);
        }
        let verb = if group.len() == 1 { "waits" } else { "wait" };
        let monitor = if self.enters_monitor(thread) { "a monitor of Java's, by " } else { "" };
        let _ = write!(head, " {verb} for {monitor}{}", self.described(lock, wait.kind));
        if let Some(mutex) = wait.mutex {
            let mutex = &self.picture.locks[mutex];
            let _ = write!(head, ", under {}{}", mutex.name, self.held(mutex, &[], true));
        }
        head + &self.held(lock, &wait.held_by, wait.steady)
    }

    fn group(&self, group: &[usize], shown: &mut [bool], push: &mut impl FnMut(String)) {
        group.iter().for_each(|&index| shown[index] = true);
        let thread = &self.picture.threads[group[0]];
        let Some(wait) = &thread.waits else { return };
        let lock = &self.picture.locks[wait.lock];
        push(self.head(group));
        self.stack(thread, push);
        for &by in &wait.held_by {
            let holder = &self.picture.threads[by];
            let what = match &holder.waits {
                // Its stack is where its own wait is shown.
                Some(wait) => format!("waits for {}: see there", self.picture.locks[wait.lock].name),
                None => format!("is {}", holder.state),
            };
            let taken = lock.taken_at.as_ref().map_or(String::new(), |at| format!(", taken in {at}"));
            let role = if wait.kind == Kind::Join { "is waited for" } else { "holds it" };
            let again = shown[by] && holder.waits.is_none();
            push(format!(
                "  {} {role}{taken}, and {what}{}",
                self.who(by),
                if again { ": see above" } else { "" }
            ));
            if holder.waits.is_none() && !again {
                shown[by] = true;
                self.stack(holder, push);
            }
        }
    }

    /// A lock with what it is.
    fn described(&self, lock: &Lock, kind: Kind) -> String {
        if matches!(kind, Kind::Join | Kind::SemaphoreArray) {
            return lock.name.clone();
        }
        let side = match kind {
            Kind::RwRead => ", to read",
            Kind::RwWrite => ", to write",
            _ => "",
        };
        let looks = if lock.looks { "it looks like " } else { "" };
        let whose = lock.maker.adjective();
        let what = match (whose, kind.noun()) {
            ("", noun) => format!("a {noun}"),
            (whose, noun) => format!("{whose} {noun}"),
        };
        let declared = lock.declared_at.as_ref().map_or(String::new(), |at| format!(", {at}"));
        // It may have no name but what it is.
        format!("{} ({looks}{what}{side}{declared})", lock.name)
    }

    fn held(&self, lock: &Lock, held_by: &[usize], steady: bool) -> String {
        if lock.kind == Kind::Join {
            return String::new();
        }
        if !steady && !matches!(lock.holder, Holder::Ended(Some(_))) {
            return "; it went on while we looked".to_owned();
        }
        match &lock.holder {
            Holder::Thread(_) | Holder::Threads(_) if !held_by.is_empty() => {
                let names: Vec<String> = held_by.iter().take(NAMES).map(|&by| self.who(by)).collect();
                let more = held_by.len().saturating_sub(NAMES);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!(", held by {}{more}", names.join(", "))
            }
            Holder::Thread(id) => match self.picture.threads.iter().position(|thread| thread.inner == *id) {
                Some(by) => format!(", held by {}", self.who(by)),
                None => format!(", held by thread {id}, which {}", self.origin.elsewhere(*id)),
            },
            Holder::Threads(_) | Holder::NotHeld => String::new(),
            Holder::Readers(1) => ", held by 1 reader, who is not recorded".to_owned(),
            Holder::Readers(n) => format!(", held by {n} readers, who are not recorded"),
            Holder::Nobody => ", which is free at this moment".to_owned(),
            Holder::Ended(thread) => {
                let thread = thread.as_ref().map_or_else(
                    || "a thread that".to_owned(),
                    |(tid, name)| match name.as_str() {
                        "" => format!("thread {tid}, which"),
                        name => format!("{name} ({tid}), which"),
                    },
                );
                let taken =
                    lock.taken_at.as_ref().map_or(String::new(), |at| format!(" took it in {at} and"));
                format!(", held by {thread}{taken} has ended: nobody will release it")
            }
            Holder::Unknown(why) => format!("; {why}"),
        }
    }

    fn stack(&self, thread: &Seen, push: &mut impl FnMut(String)) {
        let most = if self.all { usize::MAX } else { FRAMES };
        let mut frames = &thread.stack[..];
        if let Some((count, called)) = thread.folded.as_ref().filter(|_| !self.all) {
            push(format!("      in {called}"));
            frames = &frames[*count..];
        }
        for frame in frames.iter().take(most) {
            push(format!("      {frame}"));
        }
        if frames.len() > most {
            push(format!("      and {}: --all", counted((frames.len() - most) as u64, "more frame")));
        }
        if thread.stack.is_empty() {
            push("      its stack could not be read".to_owned());
        }
    }

    /// Threads that were not shown.
    fn rest(&self, shown: &[bool], push: &mut impl FnMut(String)) {
        let rest: Vec<usize> = (0..shown.len()).filter(|&index| !shown[index]).collect();
        if rest.is_empty() {
            return;
        }
        push(String::new());
        if self.all {
            for index in rest {
                let thread = &self.picture.threads[index];
                push(format!("{} is {}", self.who(index), thread.state));
                self.stack(thread, push);
            }
            return;
        }
        let mut states: Vec<(&str, usize)> = Vec::new();
        for &index in &rest {
            let state = self.picture.threads[index].state.as_str();
            match states.iter_mut().find(|(of, _)| *of == state) {
                Some((_, count)) => *count += 1,
                None => states.push((state, 1)),
            }
        }
        states.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        push(format!("the others: {} (--all shows them)", states.join(", ")));
    }

    /// What is not seen, and where it is.
    fn notes(&self) -> Vec<String> {
        let picture = self.picture;
        let mut notes = Vec::new();
        if picture.languages.go {
            notes.push(
                "note: Go keeps goroutines that wait for its locks off the threads: `kill -QUIT PID`, which ends \
                 it, or net/http/pprof's /debug/pprof/goroutine?debug=2 show them"
                    .to_owned(),
            );
        }
        if picture.languages.java {
            let pid = self.origin.pid().map_or("PID".to_owned(), |pid| pid.to_string());
            notes.push(format!(
                "note: Java's monitors and the names of its methods are known to the virtual machine alone: \
                 `jstack {pid}`"
            ));
        }
        if picture.has_library
            && !picture.has_record
            && picture.threads.iter().any(|t| self.waits_for_lock(t))
        {
            notes.push("note: under `poundlock stat` the holders of all locks are recorded".to_owned());
        }
        let guessed =
            picture.threads.iter().filter(|thread| thread.guessed > 0 && thread.waits.is_some()).count();
        if guessed > 0 {
            notes.push(format!(
                "note: the stacks of {} lead through code without unwind tables; some frames were found by \
                 their looks",
                counted(guessed as u64, "thread")
            ));
        }
        notes
    }
}
