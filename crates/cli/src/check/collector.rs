//! Findings as they come: each is told once, unless it is not wanted or is suppressed.

use std::collections::HashMap;
use std::io::Write as _;

use super::finding::{Finding, Stack};
use super::kinds::Wanted;
use super::suppress::Suppressions;
use super::tell::milliseconds;
use super::text;

/// As many findings are told; of further ones there is only the number.
const MOST: usize = 1000;

/// A hold: its process, its thread, its lock and its number.
pub(super) type HoldKey = (u32, u32, u32, u32);

/// All of them.
pub(super) struct Collector {
    wanted: Wanted,
    suppressions: Suppressions,
    /// On standard error as they come.
    live: bool,
    findings: Vec<Finding>,
    /// Positions among the findings; `None` of a suppressed one.
    places: HashMap<String, Option<usize>>,
    /// By the name of the stanza.
    suppressed: Vec<(String, u64)>,
    further: u64,
    /// What may be said later about a finding.
    open: HashMap<HoldKey, String>,
    /// The process in which something was found first.
    process: Option<u32>,
    /// A deadlock was found that counts.
    deadlocked: bool,
}

/// The end of a hold.
pub(super) struct Amendment {
    pub(super) key: HoldKey,
    /// Where it ended.
    pub(super) stack: Stack,
    /// How long it was at least.
    pub(super) for_ns: u64,
}

impl Amendment {
    pub(super) fn key(pid: u32, serial: u32, lock: u32, sequence: u32) -> HoldKey {
        (pid, serial, lock, sequence)
    }
}

impl Collector {
    pub(super) fn new(wanted: Wanted, suppressions: Suppressions, live: bool) -> Self {
        Collector {
            wanted,
            suppressions,
            live,
            findings: Vec::new(),
            places: HashMap::new(),
            suppressed: Vec::new(),
            further: 0,
            open: HashMap::new(),
            process: None,
            deadlocked: false,
        }
    }

    /// Takes a finding in. Whether it is one to be told, new or not.
    pub(super) fn add(&mut self, finding: Finding) -> bool {
        if !self.wanted.has(finding.kind) {
            return false;
        }
        let key = finding.key();
        if let Some(&place) = self.places.get(&key) {
            if let Some(place) = place {
                self.findings[place].count += 1;
            }
            return place.is_some();
        }
        if let Some(name) = self.suppressions.fits(&finding) {
            match self.suppressed.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => *count += 1,
                None => self.suppressed.push((name.to_owned(), 1)),
            }
            self.places.insert(key, None);
            return false;
        }
        if self.findings.len() >= MOST {
            self.further += 1;
            return true;
        }
        self.places.insert(key, Some(self.findings.len()));
        if self.live {
            let first = *self.process.get_or_insert(finding.process.pid);
            let process = (first != finding.process.pid).then(|| {
                format!("{} (process {})", text::program_name(&finding.process.exe), finding.process.pid)
            });
            write(&text::finding(&finding, process.as_deref()));
        }
        self.findings.push(finding);
        true
    }

    /// Takes in several.
    pub(super) fn add_all(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            self.add(finding);
        }
    }

    /// Takes in a finding about a hold that goes on.
    pub(super) fn add_amendable(&mut self, finding: Finding, key: HoldKey) {
        let place = finding.key();
        if self.add(finding) {
            self.open.insert(key, place);
        }
    }

    /// The hold is over.
    pub(super) fn amend(&mut self, amendment: Amendment) {
        let Amendment { key, stack, for_ns } = amendment;
        let place = self.open.remove(&key).and_then(|place| *self.places.get(&place)?);
        let Some(finding) = place.and_then(|place| self.findings.get_mut(place)) else { return };
        // Of several holds that are one finding the first is told.
        if finding.stacks.len() > 1 {
            return;
        }
        let held = format!("held for {} or more", milliseconds(for_ns));
        if self.live {
            write(&format!("{}: {}: {held}; {}\n", text::PREFIX, finding.kind.name(), stack.sentence()));
        }
        finding.notes = vec![held];
        finding.stacks.push(stack);
    }

    /// Threads of a process wait for each other.
    pub(super) fn deadlock(&mut self, finding: Finding) {
        if self.add(finding) {
            self.deadlocked = true;
        }
    }

    /// Whether a deadlock was found that is wanted and not suppressed.
    pub(super) fn is_deadlocked(&self) -> bool {
        self.deadlocked
    }

    /// All findings, what was suppressed, and how many more there were.
    pub(super) fn finish(self) -> (Vec<Finding>, Vec<(String, u64)>, u64) {
        (self.findings, self.suppressed, self.further)
    }
}

/// On standard error. That nobody reads it is no reason to stop.
fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::{frame, order};
    use super::super::kinds::Kind;
    use super::super::suppress::stanza_for;
    use super::*;

    fn collector(list: Option<&str>, suppressions: Suppressions) -> Collector {
        Collector::new(Wanted::parse(list, true).expect("well formed"), suppressions, false)
    }

    #[test]
    fn the_same_twice_is_one_finding_with_a_count() {
        let mut all = collector(None, Suppressions::default());
        assert!(all.add(order("a", "b", "put", "get")));
        assert!(all.add(order("a", "b", "put", "get")));
        assert!(all.add(order("a", "c", "put", "get")));
        let (findings, suppressed, further) = all.finish();
        assert_eq!(findings.iter().map(|finding| finding.count).collect::<Vec<_>>(), [2, 1]);
        assert!(suppressed.is_empty() && further == 0);
    }

    #[test]
    fn what_is_not_wanted_or_is_suppressed_is_not_told() {
        let mut others = collector(Some("-order"), Suppressions::default());
        assert!(!others.add(order("a", "b", "put", "get")));
        assert!(others.finish().0.is_empty());
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), stanza_for(&order("a", "b", "put", "get"))).expect("written");
        let suppressions = Suppressions::read(&[file.path().to_owned()]).expect("well formed");
        let mut all = collector(None, suppressions);
        let mut deadlock = order("a", "b", "put", "get");
        deadlock.kind = Kind::Deadlock;
        assert!(!all.add(order("a", "b", "put", "get")) && !all.is_deadlocked());
        assert!(!all.add(order("a", "b", "put", "get")));
        all.deadlock(deadlock);
        assert!(all.is_deadlocked());
        let (findings, suppressed, _) = all.finish();
        assert!(findings.len() == 1 && findings[0].kind == Kind::Deadlock);
        assert_eq!(suppressed, [("order: a, b".to_owned(), 1)]);
    }

    #[test]
    fn the_end_of_a_hold_is_added_to_it() {
        let mut all = collector(None, Suppressions::default());
        let mut long = order("a", "b", "put", "get");
        long.kind = Kind::HeldLong;
        long.stacks.truncate(1);
        let key = Amendment::key(7, 1, 2, 3);
        all.add_amendable(long, key);
        let stack = Stack {
            thread: None,
            what: "let go of it".to_owned(),
            goes_on: true,
            lock: Some(0),
            frames: vec![frame("put", 12)],
        };
        all.amend(Amendment { key: (7, 1, 2, 4), stack: stack.clone(), for_ns: 9_000_000 });
        all.amend(Amendment { key, stack, for_ns: 12_000_000 });
        let (findings, ..) = all.finish();
        assert_eq!(findings[0].stacks.len(), 2);
        assert_eq!(findings[0].notes, ["held for 12 ms or more"]);
    }
}
