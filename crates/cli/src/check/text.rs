//! Findings for people.

use std::fmt::Write as _;

use poundlock_names::LockName;

use crate::observe::symbols::file_name;
use crate::output::{counted, quoted};

use super::finding::{Finding, Lock, Stack, interesting, making_line};
use super::kinds::Kind;
use super::report::Report;
use super::suppress;

/// What each line about a finding begins with, so that it can be told from what the program prints.
pub(super) const PREFIX: &str = "poundlock check";

/// As many frames of a stack are shown: the JSON has all.
const FRAMES: usize = 12;
/// As many stacks, of a cycle of many threads.
const STACKS: usize = 24;

/// A finding, as it is found.
pub(super) fn finding(finding: &Finding, process: Option<&str>) -> String {
    let mut text = format!("{PREFIX}: {}: {}\n", finding.kind.name(), finding.headline);
    if let Some(process) = process {
        let _ = writeln!(text, "  in {process}");
    }
    for stack in finding.stacks.iter().take(STACKS) {
        // The end of a thread is no place.
        write_stack(&mut text, stack, finding.kind != Kind::ExitHeld);
    }
    if finding.stacks.len() > STACKS {
        let more = counted((finding.stacks.len() - STACKS) as u64, "more stack");
        let _ = writeln!(text, "  and {more}");
    }
    for lock in &finding.locks {
        let _ = writeln!(text, "  {}", about(lock));
    }
    for note in &finding.notes {
        let _ = writeln!(text, "  {note}");
    }
    let _ = writeln!(text, "  to do: {}", finding.advice);
    text
}

fn write_stack(text: &mut String, stack: &Stack, has_place: bool) {
    let indent = if stack.goes_on { "    " } else { "  " };
    let who = stack.thread.as_ref().filter(|_| !stack.goes_on);
    let who = who.map_or(String::new(), |thread| thread.in_words() + " ");
    let frames = interesting(&stack.frames);
    let place = if frames.is_empty() && has_place { " (where is not known)" } else { "" };
    let _ = writeln!(text, "{indent}{who}{}{place}", stack.what);
    for (n, frame) in frames.iter().take(FRAMES).enumerate() {
        let _ = writeln!(text, "      {} {}", if n == 0 { "at" } else { "by" }, frame.text);
    }
    if frames.len() > FRAMES {
        let _ = writeln!(text, "      and {}", counted((frames.len() - FRAMES) as u64, "more function"));
    }
}

/// `log_lock: mutex, declared at a.c:4`
fn about(lock: &Lock) -> String {
    let mut text = format!("{}: {}", lock.name, lock.kind);
    if !lock.declared_at.is_empty() {
        let _ = write!(text, ", declared at {}", lock.declared_at);
    }
    if let Some(line) = making_line(&lock.made) {
        let _ = write!(text, ", initialised at {}", line.text);
    }
    if lock.address != 0 {
        let _ = write!(text, ", at address {:#x}", lock.address);
    }
    text
}

/// Each finding in a line, and what was not seen.
pub(super) fn summary(report: &Report) -> String {
    let seen = &report.seen;
    let mut text = String::new();
    let processes = counted(seen.processes, "process");
    let kinds: Vec<String> =
        report.by_kind().iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
    let found = match report.findings.len() as u64 {
        0 if report.is_blind() => {
            "no verdict: some locks are not checked; nothing found among the others".to_owned()
        }
        // Semaphore arrays have no record of their own; they are followed where they are ours.
        0 if seen.locks == 0 && report.lock == LockName::Glibc.name() => {
            "no verdict: no lock that can be checked was used".to_owned()
        }
        0 => "nothing found".to_owned(),
        count => counted(count, "finding"),
    };
    let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
    let gaps = report.no_room.verdict().map_or(String::new(), |gaps| format!("; {gaps}"));
    let _ = writeln!(text, "{PREFIX}: {found} in {processes}{kinds}{gaps}");
    for (n, finding) in report.findings.iter().enumerate() {
        let times = if finding.count > 1 { format!(" ({} times)", finding.count) } else { String::new() };
        let mut lines = finding.lines();
        if lines.len() > STACKS {
            lines.truncate(STACKS);
            lines.push("...");
        }
        let places = if lines.is_empty() { String::new() } else { format!(" [{}]", lines.join(", ")) };
        let _ = writeln!(text, "  {}. {}{times}: {}{places}", n + 1, finding.kind.name(), finding.headline);
    }
    if report.suppressed() > 0 {
        let by: Vec<String> =
            report.suppressed.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        let _ =
            writeln!(text, "  suppressed: {}: {}", counted(report.suppressed(), "finding"), by.join(", "));
    }
    let _ = writeln!(
        text,
        "  looked at: {}; {} that are taken inside of each other, in {} of two locks",
        counted(seen.threads, "thread"),
        counted(seen.nested_locks, "lock"),
        counted(seen.orders, "order"),
    );
    for blind in &report.blind {
        let command = report.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "  not checked: {}; {}", blind.in_words(), blind.way(&command));
    }
    for line in &report.unseen {
        let _ = writeln!(text, "  not seen: {line}");
    }
    for line in report.no_room.in_words() {
        let _ = writeln!(text, "  not seen: {line}");
    }
    text
}

/// Stanzas that suppress them all.
pub(super) fn stanzas(report: &Report) -> String {
    report.findings.iter().map(suppress::stanza_for).collect()
}

/// The name of a program.
pub(super) fn program_name(exe: &str) -> String {
    if exe.is_empty() { "?".to_owned() } else { file_name(exe) }
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::order;
    use super::*;

    #[test]
    fn a_finding_names_threads_locks_and_both_stacks() {
        let text = finding(&order("cache", "log", "put", "get"), Some("server (process 7)"));
        assert_eq!(
            text,
            "poundlock check: order: cache and log are taken in both orders\n  in server (process 7)\n  \
             thread worker (8) took log\n      at put (a.c:10)\n      by main (a.c:99)\n    \
             while it held cache, taken\n      at put (a.c:9)\n      by main (a.c:99)\n  \
             thread worker (9) took cache\n      at get (a.c:20)\n      by main (a.c:99)\n    \
             while it held log, taken\n      at get (a.c:19)\n      by main (a.c:99)\n  \
             cache: mutex, declared at a.c:1, at address 0x1000\n  log: mutex, declared at a.c:1, at address 0x1000\n  \
             to do: lock them in one order everywhere; or take the later one by trylock, and unlock the first if \
             that fails\n"
        );
    }

    #[test]
    fn the_end_has_a_line_for_each_finding_and_what_was_not_seen() {
        let mut report = Report { findings: vec![order("cache", "log", "put", "get")], ..Report::default() };
        report.findings[0].count = 3;
        report.seen.processes = 1;
        report.suppressed.push(("known".to_owned(), 2));
        report.no_room.holds = 4;
        let text = summary(&report);
        for words in [
            "poundlock check: 1 finding in 1 process: 1 order; findings can be missing: 4 holds found no room in a thread's list\n",
            "  1. order (3 times): cache and log are taken in both orders [put (a.c:10), get (a.c:20)]\n  suppressed",
            "  suppressed: 2 findings: known (2)\n",
            "  not seen: 4 holds found no room",
        ] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        assert!(summary(&Report::default()).starts_with("poundlock check: nothing found in 0 processes\n"));
    }
}
