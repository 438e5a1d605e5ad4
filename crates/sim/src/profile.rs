//! Which words and which steps of an algorithm need transfers of cache lines, and why.
//!
//! A step is an operation at a place in the source: [`Atomic`](poundlock_core::platform::Atomic)'s operations
//! know their callers. A word is known by its place in the lock or in a thread's record, so that the same
//! word of all records is one; words of a thread's own record and of others' are told apart. Its name is what
//! the sources call it, most often.
//!
//! A load needs a transfer because another core has written to the line; a write, because another core has
//! read it or written to it. The access of the other core that came last is the reason, whichever word of the
//! line it was to.

use core::ops::Range;
use core::panic::Location;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::cache::{LINE, LineId, Traffic};
use crate::machine::Picoseconds;

/// An access's place in its algorithm.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) operation: &'static str,
    pub(crate) at: &'static Location<'static>,
}

/// The objects of a run, besides threads' records: addresses.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The lock.
    pub lock: Range<usize>,
    /// What it protects.
    pub data: Range<usize>,
}

/// Whose a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// The lock's.
    Lock,
    /// The record's of the thread that accesses it.
    Own,
    /// Another thread's record's.
    Another,
    /// What the lock protects.
    Data,
    /// Neither: a table that locks share, or memory that a lock has besides.
    Elsewhere,
}

impl Whose {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Whose::Lock => "lock",
            Whose::Own => "own",
            Whose::Another => "another's",
            Whose::Data => "data",
            Whose::Elsewhere => "elsewhere",
        }
    }
}

/// A word, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Word {
    whose: Whose,
    /// Bytes from the beginning of the lock, the record or the data; of the line, elsewhere.
    offset: usize,
}

/// A word and a step.
struct Entry {
    word: Word,
    step: Step,
    counts: Counts,
    /// How often each entry's access was the reason.
    reasons: FxHashMap<u32, u64>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    accesses: u64,
    transfers: u64,
    remote: u64,
    queued: Picoseconds,
    time: Picoseconds,
}

/// Entries whose access of a line came last.
#[derive(Clone, Copy, Default)]
struct Last {
    /// Of those that wrote.
    wrote: Option<u32>,
    /// Of those that wrote, or needed a transfer.
    had: Option<u32>,
}

/// What is noted in a run.
pub(crate) struct Profile {
    objects: Objects,
    /// The first record, how many there are, and the size of one.
    records: (usize, usize, usize),
    entries: Vec<Entry>,
    names: FxHashMap<(usize, &'static str, Word), u32>,
    lines: Vec<Last>,
}

impl Profile {
    pub(crate) fn new(objects: Objects, records: (usize, usize, usize)) -> Profile {
        Profile { objects, records, entries: Vec::new(), names: FxHashMap::default(), lines: Vec::new() }
    }

    fn word(&self, address: usize, thread: u32) -> Word {
        let Objects { lock, data } = &self.objects;
        let (first, count, size) = self.records;
        if lock.contains(&address) {
            return Word { whose: Whose::Lock, offset: address - lock.start };
        }
        if data.contains(&address) {
            return Word { whose: Whose::Data, offset: address - data.start };
        }
        if (first..first + count * size).contains(&address) {
            let own = (address - first) / size == thread as usize;
            let whose = if own { Whose::Own } else { Whose::Another };
            return Word { whose, offset: (address - first) % size };
        }
        // All that is shared begins a line.
        Word { whose: Whose::Elsewhere, offset: address % LINE }
    }

    /// An access by `thread` has changed the machine's counts from `before` to `after`, and takes `time`.
    pub(crate) fn note(
        &mut self,
        step: Step,
        (address, line): (usize, LineId),
        thread: u32,
        writes: bool,
        (before, after): (Traffic, Traffic),
        time: Picoseconds,
    ) {
        let word = self.word(address, thread);
        // A step is a constant of the program, so it has few addresses.
        let key = (core::ptr::from_ref(step.at).addr(), step.operation, word);
        let entries = &mut self.entries;
        let index = *self.names.entry(key).or_insert_with(|| {
            entries.push(Entry { word, step, counts: Counts::default(), reasons: FxHashMap::default() });
            entries.len() as u32 - 1
        });
        if self.lines.len() <= line as usize {
            self.lines.resize(line as usize + 1, Last::default());
        }
        let last = &mut self.lines[line as usize];
        let Entry { counts, reasons, .. } = &mut self.entries[index as usize];
        let transferred = after.transfers > before.transfers;
        counts.accesses += 1;
        if transferred {
            counts.transfers += 1;
            counts.remote += after.remote - before.remote;
            counts.queued += after.queued - before.queued;
            counts.time += time;
            if let Some(reason) = if writes { last.had } else { last.wrote } {
                *reasons.entry(reason).or_default() += 1;
            }
        }
        if writes {
            last.wrote = Some(index);
        }
        if writes || transferred {
            last.had = Some(index);
        }
    }

    /// All words and steps, those that took most time first.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let names = self.word_names();
        let place = |entry: &Entry| {
            let at = entry.step.at;
            (entry.word.whose, entry.word.offset, entry.step.operation, at.file(), at.line(), at.column())
        };
        // Codegen units may have the same constant at several addresses.
        let mut merged: FxHashMap<_, (Counts, FxHashMap<_, u64>)> = FxHashMap::default();
        for entry in &self.entries {
            let (counts, reasons) = merged.entry(place(entry)).or_default();
            counts.accesses += entry.counts.accesses;
            counts.transfers += entry.counts.transfers;
            counts.remote += entry.counts.remote;
            counts.queued += entry.counts.queued;
            counts.time += entry.counts.time;
            for (&reason, count) in &entry.reasons {
                *reasons.entry(place(&self.entries[reason as usize])).or_default() += count;
            }
        }
        let resolved = |(whose, offset, operation, file, line, _)| {
            let name = names.get(&common(Word { whose, offset }));
            Place {
                whose,
                word: name.map_or_else(|| format!("+{offset}"), |&name| name.to_owned()),
                cache_line: (offset / LINE) as u32,
                operation,
                function: function(file, line),
                file: short(file),
                line,
            }
        };
        let mut rows: Vec<Row> = merged
            .into_iter()
            .map(|(place, (counts, reasons))| Row {
                place: resolved(place),
                accesses: counts.accesses,
                transfers: counts.transfers,
                remote: counts.remote,
                queued: counts.queued,
                time: counts.time,
                reason: reasons
                    .into_iter()
                    .max_by_key(|&(place, count)| (count, place))
                    .map(|(place, count)| (resolved(place), count)),
            })
            .collect();
        rows.sort_by(|a, b| {
            let key = |row: &Row| (row.time, row.transfers, row.accesses);
            key(b).cmp(&key(a)).then_with(|| a.place.cmp(&b.place))
        });
        rows
    }

    /// What the sources call each word: the name that most accesses use. If all that they say is that it is a
    /// word, that of the file which is about it.
    fn word_names(&self) -> FxHashMap<Word, &'static str> {
        let mut uses: FxHashMap<(Word, bool, &str), u64> = FxHashMap::default();
        for entry in &self.entries {
            let at = entry.step.at;
            if let Some(name) = word_name(at.file(), at.line(), at.column()) {
                let says = !matches!(name, "word" | "unless" | "place" | "cell");
                let name = if says { name } else { stem(at.file()) };
                *uses.entry((common(entry.word), says, name)).or_default() += entry.counts.accesses;
            }
        }
        let mut best: FxHashMap<Word, (bool, u64, &str)> = FxHashMap::default();
        for ((word, says, name), count) in uses {
            let best = best.entry(word).or_default();
            *best = (*best).max((says, count, name));
        }
        best.into_iter().map(|(word, (_, _, name))| (word, name)).collect()
    }
}

/// Of a record, whosever it is.
fn common(word: Word) -> Word {
    let whose = if word.whose == Whose::Another { Whose::Own } else { word.whose };
    Word { whose, ..word }
}

/// A file, the lines from which on it has another function than before, and the lines and columns at which it
/// accesses a word: made from the sources by `build.rs`.
type Source = (&'static str, &'static [(u32, &'static str)], &'static [(u32, u32, &'static str)]);

static SOURCES: &[Source] = include!(concat!(env!("OUT_DIR"), "/accesses.rs"));

fn source(file: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|(name, ..)| file.ends_with(name))
}

/// The function that this line is in; empty if unknown.
fn function(file: &str, line: u32) -> &'static str {
    let functions = source(file).map_or(&[][..], |&(_, functions, _)| functions);
    let after = functions.partition_point(|&(from, _)| from <= line);
    after.checked_sub(1).map_or("", |at| functions[at].1)
}

/// What the source calls the word that it accesses there.
fn word_name(file: &str, line: u32, column: u32) -> Option<&'static str> {
    let (.., words) = source(file)?;
    words.iter().find(|word| (word.0, word.1) == (line, column)).map(|word| word.2)
}

/// A file's name: within `core`'s sources, or with its crate.
fn short(file: &'static str) -> &'static str {
    let file = file.rsplit_once("crates/").map_or(file, |(_, name)| name);
    file.strip_prefix("core/src/").unwrap_or(file)
}

fn stem(file: &'static str) -> &'static str {
    let name = file.rsplit_once('/').map_or(file, |(_, name)| name);
    name.strip_suffix(".rs").unwrap_or(name)
}

/// A step that is done to a word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// Whose word it is.
    pub whose: Whose,
    /// What the sources call the word; where it is if they do not.
    pub word: String,
    /// Which cache line of the lock, the record or the data it is in.
    pub cache_line: u32,
    /// What is done to it.
    pub operation: &'static str,
    /// The function that does it; empty if unknown.
    pub function: &'static str,
    /// Its file: within `core`'s sources, or with its crate.
    pub file: &'static str,
    /// Its line there.
    pub line: u32,
}

/// What the accesses of one step to one word needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which step, and which word.
    pub place: Place,
    /// How often.
    pub accesses: u64,
    /// How often that needed a transfer.
    pub transfers: u64,
    /// Transfers from another socket.
    pub remote: u64,
    /// Picoseconds for which transfers waited for others of the same line.
    pub queued: Picoseconds,
    /// Picoseconds that accesses with a transfer took, the wait included.
    pub time: Picoseconds,
    /// The access that most often made the transfers necessary, perhaps to another word of the line, and how
    /// often it did.
    pub reason: Option<(Place, u64)>,
}
