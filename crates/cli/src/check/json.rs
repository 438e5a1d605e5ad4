//! Findings as JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::blind::Blind;
use super::finding::{self, Finding};
use super::kinds::Kind;
use super::report::{NoRoom, Report, Seen};
use super::suppress;

/// Grows when a reader of the one before would go wrong.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'r> {
    version: u32,
    command: &'r [String],
    lock: &'r str,
    rwlock: &'r str,
    ending: &'r str,
    wall_ns: u64,
    /// No finding can be missing for want of room: see `unseen`.
    complete: bool,
    /// The program was ended because of a deadlock.
    ended_by_check: bool,
    findings: Vec<One<'r>>,
    /// How many findings of each kind.
    kinds: serde_json::Map<String, serde_json::Value>,
    /// How many findings suppressions have left out, and by which stanza.
    suppressed: u64,
    suppressed_by: Vec<Suppressed<'r>>,
    seen: Seen,
    unseen: Unseen<'r>,
}

#[derive(Serialize)]
struct Suppressed<'r> {
    name: &'r str,
    count: u64,
}

#[derive(Serialize)]
struct Unseen<'r> {
    #[serde(flatten)]
    no_room: NoRoom,
    /// Processes whose locks are not all checked.
    locks_of: &'r [Blind],
    notes: &'r [String],
}

#[derive(Serialize)]
struct One<'r> {
    kind: &'static str,
    headline: &'r str,
    advice: &'static str,
    /// How often it was found.
    count: u64,
    /// When first, after the start of the run.
    at_ns: u64,
    process: Process<'r>,
    locks: Vec<Lock<'r>>,
    threads: Vec<Thread<'r>>,
    stacks: Vec<Stack<'r>>,
    notes: &'r [String],
    fingerprint: String,
    /// A stanza that suppresses it.
    suppression: String,
}

#[derive(Serialize)]
struct Process<'r> {
    pid: u32,
    exe: &'r str,
}

#[derive(Serialize)]
struct Lock<'r> {
    name: &'r str,
    class: &'r str,
    kind: &'r str,
    address: u64,
    declared_at: &'r str,
    made: Vec<&'r str>,
}

#[derive(Serialize)]
struct Thread<'r> {
    name: &'r str,
    tid: u32,
    main: bool,
}

#[derive(Serialize)]
struct Stack<'r> {
    what: &'r str,
    thread: Option<Thread<'r>>,
    /// The name of the lock.
    lock: Option<&'r str>,
    /// Innermost first.
    frames: Vec<&'r str>,
}

impl<'r> Thread<'r> {
    fn of(thread: &'r finding::Thread) -> Self {
        Thread { name: &thread.name, tid: thread.tid, main: thread.is_main }
    }
}

impl<'r> One<'r> {
    fn of(finding: &'r Finding) -> Self {
        let lock = |lock: &'r finding::Lock| Lock {
            name: &lock.name,
            class: &lock.class,
            kind: &lock.kind,
            address: lock.address,
            declared_at: &lock.declared_at,
            made: lock.made.iter().map(|frame| frame.whole.as_str()).collect(),
        };
        let stack = |stack: &'r finding::Stack| Stack {
            what: &stack.what,
            thread: stack.thread.as_ref().map(Thread::of),
            lock: stack.lock.and_then(|lock| finding.locks.get(lock)).map(|lock| lock.name.as_str()),
            frames: stack.frames.iter().map(|frame| frame.whole.as_str()).collect(),
        };
        One {
            kind: finding.kind.name(),
            headline: &finding.headline,
            advice: finding.advice,
            count: finding.count,
            at_ns: finding.at_ns,
            process: Process { pid: finding.process.pid, exe: &finding.process.exe },
            locks: finding.locks.iter().map(lock).collect(),
            threads: finding.threads().into_iter().map(Thread::of).collect(),
            stacks: finding.stacks.iter().map(stack).collect(),
            notes: &finding.notes,
            fingerprint: finding.fingerprint(),
            suppression: suppress::stanza_for(finding),
        }
    }
}

/// Writes all of it.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let kinds =
        report.by_kind().into_iter().map(|(kind, count): (Kind, u64)| (kind.name().to_owned(), count.into()));
    let document = Document {
        version: VERSION,
        command: &report.command,
        lock: &report.lock,
        rwlock: &report.rwlock,
        ending: &report.ending,
        wall_ns: report.wall_ns,
        complete: report.no_room.verdict().is_none(),
        ended_by_check: report.ended_it,
        findings: report.findings.iter().map(One::of).collect(),
        kinds: kinds.collect(),
        suppressed: report.suppressed(),
        suppressed_by: report
            .suppressed
            .iter()
            .map(|(name, count)| Suppressed { name, count: *count })
            .collect(),
        seen: report.seen,
        unseen: Unseen { no_room: report.no_room, locks_of: &report.blind, notes: &report.unseen },
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::order;
    use super::*;

    #[test]
    fn it_has_what_the_text_has() {
        let report = Report { findings: vec![order("cache", "log", "put", "get")], ..Report::default() };
        let mut bytes = Vec::new();
        write(&report, &mut bytes).expect("to memory");
        let document: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(document["version"], 1);
        let one = &document["findings"][0];
        assert_eq!(one["kind"], "order");
        assert_eq!(one["locks"][1]["name"], "log");
        assert_eq!(one["stacks"][3]["frames"], serde_json::json!(["get (a.c:19)", "main (a.c:99)"]));
        assert_eq!(one["stacks"][3]["lock"], "log");
        assert_eq!(one["threads"].as_array().map(Vec::len), Some(2));
        assert_eq!(document["kinds"], serde_json::json!({"order": 1}));
        assert!(one["suppression"].as_str().is_some_and(|text| text.starts_with("{\n")));
    }
}
