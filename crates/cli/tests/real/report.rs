//! The report of `poundlock stat --json`, read and held against what must be true of every report.

use std::path::Path;

use serde_json::Value;

pub(crate) struct Report {
    pub(crate) threads: u64,
    pub(crate) acquisitions: u64,
    /// Of these, of spinlocks.
    pub(crate) spins: u64,
    pub(crate) contended: u64,
    /// Every frame with a name, of every site of every lock.
    pub(crate) frames: Vec<String>,
    /// Semaphore arrays of ours that were used.
    pub(crate) arrays: usize,
}

impl Report {
    /// Reads the report on `command` under `lock` and checks what holds whatever the program is.
    #[track_caller]
    pub(crate) fn read(path: &Path, command: &[String], lock: &str) -> Report {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"));

        let words: Vec<&str> = array(&json["command"]).iter().map(string).collect();
        assert_eq!(words, command, "the report is on another command");
        assert_eq!(string(&json["lock"]), lock, "the report is on another lock");
        assert!(number(&json["wall_ns"]) > 0, "no time passed");

        let mut report = Report {
            threads: number(&json["locking_threads"]),
            acquisitions: 0,
            spins: 0,
            contended: 0,
            frames: Vec::new(),
            arrays: array(&json["arrays"]).len(),
        };
        for lock in array(&json["locks"]) {
            report.check_lock(lock, array(&json["stacks"]));
        }
        assert!(report.acquisitions > 0, "no lock was ever taken:\n{text}");
        report
    }

    #[track_caller]
    fn check_lock(&mut self, lock: &Value, stacks: &[Value]) {
        let acquisitions = number(&lock["acquisitions"]);
        let contended = number(&lock["contended"]);
        assert!(string(&lock["address"]).starts_with("0x"), "{lock:#}");
        match string(&lock["kind"]) {
            "mutex" | "mutex, process-shared" | "mutex, robust" | "mutex, priority-inheriting" => {}
            kind if kind.starts_with("readers-writer lock, ") => {}
            "spinlock" => self.spins += acquisitions,
            // What threads wait for beside locks.
            "condition variable" | "barrier" | "semaphore" | "end of a thread" | "futex" => return,
            kind => panic!("a lock of the kind {kind:?}: {lock:#}"),
        }
        assert!(contended <= acquisitions, "more waits than acquisitions: {lock:#}");
        let (total, max) = (number(&lock["wait_ns"]["total"]), number(&lock["wait_ns"]["max"]));
        assert!(max <= total, "the longest wait is longer than all together: {lock:#}");

        let mut at_sites = 0;
        for site in array(&lock["sites"]) {
            at_sites += number(&site["contended"]);
            let stack: Vec<&str> =
                array(&stacks[number(&site["stack"]) as usize]).iter().map(string).collect();
            // Farther out may be code that a virtual machine made at run time: a number is all there is to
            // say of it.
            assert!(stack.first().is_some_and(|frame| is_name(frame)), "a site without a name: {lock:#}");
            self.frames.extend(stack.into_iter().filter(|frame| is_name(frame)).map(str::to_owned));
        }
        assert!(at_sites <= contended, "the sites waited more often than their lock: {lock:#}");
        self.acquisitions += acquisitions;
        self.contended += contended;
    }

    /// Checks that at least so many threads used a lock.
    #[track_caller]
    pub(crate) fn expect_threads(&self, at_least: u64) {
        assert!(self.threads >= at_least, "{} threads reported, {at_least} used locks", self.threads);
    }

    /// Checks that somebody waited, and that it is said where.
    #[track_caller]
    pub(crate) fn expect_contention(&self) {
        assert!(self.contended > 0, "{} acquisitions and none contended", self.acquisitions);
        assert!(!self.frames.is_empty(), "{} waits and no site", self.contended);
    }
}

/// Whether a frame says more than an address.
fn is_name(frame: &str) -> bool {
    !frame.is_empty() && (!frame.starts_with("0x") || frame.contains(' '))
}

#[track_caller]
fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("not an array: {value}"))
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a count: {value}"))
}

#[track_caller]
fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}"))
}
