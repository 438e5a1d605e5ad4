//! Who had the locks of a class, and who waited, over the time of a run: what looks at the threads found
//! (`sampler::series`), by class, with names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::class::{Class, Figures};
use super::names::{NO_STACK, Names, StackId};
use super::report::opposite;
use super::sampler::{Key, MAIN, Outcome, Party, Waited};

/// Classes that are shown, and their least share of all waiting.
const CLASSES: usize = 8;
const SMALL: u64 = 200;
/// Parties of a class that are told apart.
const PARTIES: usize = 6;
/// Pieces of time in which somebody waited: of fewer there is nothing to see.
const FEWEST: usize = 3;

/// Where the acquisitions were of those that looks found holding locks: by process, start of its file, and
/// return address.
pub(super) type Places = HashMap<Key, StackId>;

/// The names that threads had in the end, by process and thread: a thread that gave itself another name has
/// that one from the start.
type LastNames = HashMap<(u32, u32), Arc<str>>;

/// All classes that somebody was seen waiting for, most waiting first.
#[derive(Default, Serialize)]
pub(super) struct Timeline {
    /// How often the threads were looked at.
    pub(super) looks: u64,
    /// How long a piece of time is. The first one begins with the run, or when the delay was over.
    pub(super) piece_ns: u64,
    /// For how much of each piece looks stand.
    pub(super) watched_ns: Vec<u64>,
    pub(super) classes: Vec<Row>,
}

/// A class. All is in nanoseconds of the waiters' time for each piece. Looks say when threads waited, and for
/// whom; of the whole run the parts of the waiting are those that the recorder measured, as in the table.
#[derive(Serialize)]
pub(super) struct Row {
    /// Which one of the report's classes.
    pub(super) class: usize,
    pub(super) waiting_ns: Vec<u64>,
    pub(super) waiters: Vec<Share>,
    /// Who had it meanwhile.
    pub(super) holders: Vec<Share>,
    /// While nobody had it: it was on its way. What is left over is not known, or of those with least.
    pub(super) nobody_ns: Vec<u64>,
}

/// The part of some threads in it.
#[derive(Clone, Serialize)]
pub(super) struct Share {
    /// Threads, in words.
    pub(super) threads: String,
    /// Where they acquired it; empty if unknown, and for those who wait.
    pub(super) at: String,
    pub(super) ns: Vec<u64>,
}

/// The places to find names for, of one process.
pub(super) fn places(outcome: &Outcome, pid: u32, start_ns: u64) -> Vec<Key> {
    let locks = outcome.series.pieces.iter().flat_map(|piece| &piece.locks);
    let of = locks.filter(|(key, _)| (key.0, key.1) == (pid, start_ns));
    let sites = of.flat_map(|(_, waited)| &waited.holders).map(|party| party.site).filter(|&site| site != 0);
    let mut keys: Vec<Key> = sites.map(|site| (pid, start_ns, site)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Timeline {
    pub(super) fn new(outcome: &Outcome, classes: &[Class], names: &Names, places: &Places) -> Self {
        let series = &outcome.series;
        let locks = classes.iter().filter(|class| class.kind.is_acquired());
        let all: u64 = locks.map(|class| class.figures.wait_ns).sum();
        // In a namespace of their own threads have other ids.
        let own = outcome.processes.iter().filter(|process| process.pid == process.outer_pid);
        let last: LastNames = own
            .flat_map(|process| process.names.iter().map(|(tid, name)| ((process.pid, *tid), name.clone())))
            .collect();
        let mut timeline = Timeline {
            looks: outcome.looks,
            piece_ns: series.length,
            watched_ns: series.pieces.iter().map(|piece| piece.watched).collect(),
            classes: Vec::new(),
        };
        for (class, of) in classes.iter().enumerate().filter(|(_, class)| class.kind.is_acquired()) {
            if timeline.classes.len() == CLASSES || of.figures.wait_ns <= all / SMALL {
                break;
            }
            let pieces: Vec<Vec<(&Key, &Waited)>> = series
                .pieces
                .iter()
                .map(|piece| {
                    let locks = piece.locks.iter();
                    locks.filter(|(key, _)| of.addresses.contains(&(key.0, key.2))).collect()
                })
                .collect();
            if pieces.iter().filter(|piece| !piece.is_empty()).count() >= FEWEST {
                let mut row = Row::new(class, &pieces, (names, places), &last);
                // Holders of readers-writer locks are counted with their own side, whoever waits.
                if opposite(of.kind).is_none() {
                    row.fit(&of.figures, names);
                }
                timeline.classes.push(row);
            }
        }
        timeline
    }
}

impl Row {
    fn new(
        class: usize,
        pieces: &[Vec<(&Key, &Waited)>],
        (names, places): (&Names, &Places),
        last: &LastNames,
    ) -> Self {
        let sums = |of: fn(&Waited) -> u64| -> Vec<u64> {
            pieces.iter().map(|piece| piece.iter().map(|(_, waited)| of(waited)).sum()).collect()
        };
        let line = |key: &Key, party: &Party| {
            let stack = places.get(&(key.0, key.1, party.site)).copied().unwrap_or(NO_STACK);
            names.line_of(stack).map_or_else(String::new, |id| names.text(id).to_owned())
        };
        Row {
            class,
            waiting_ns: sums(|waited| waited.ns),
            nobody_ns: sums(|waited| waited.nobody),
            waiters: shares(pieces, |waited| &waited.waiters, |_, _| String::new(), last),
            holders: shares(pieces, |waited| &waited.holders, line, last),
        }
    }
}

impl Row {
    /// Makes the parts of the waiting add up to what the recorder measured: a look that searches for the
    /// holder of a lock held for microseconds often finds none.
    fn fit(&mut self, figures: &Figures, names: &Names) {
        let mut measured: BTreeMap<String, u64> = BTreeMap::new();
        for (&(acquired, _), holder) in &figures.holders {
            let line = names.line_of(acquired).map_or_else(String::new, |id| names.text(id).to_owned());
            *measured.entry(line).or_default() += holder.caused_ns;
        }
        let told = figures.handover_ns + measured.values().sum::<u64>();
        let all = figures.wait_ns.max(told).max(1) as f64;
        let waiting: f64 = self.waiting_ns.iter().map(|&ns| ns as f64).sum();
        let share = |ns: u64| ns as f64 / all * waiting;
        // By line, then nobody, then what is left: what is to be, and what looks say.
        let mut lines: Vec<String> = self.holders.iter().map(|holder| holder.at.clone()).collect();
        lines.sort_unstable();
        lines.dedup();
        let mut wanted: Vec<f64> =
            lines.iter().map(|line| share(measured.get(line).copied().unwrap_or(0))).collect();
        wanted.push(share(figures.handover_ns));
        wanted.push((waiting - wanted.iter().sum::<f64>()).max(0.0));
        let mut parts: Vec<Vec<f64>> = lines.iter().map(|_| vec![0.0; self.waiting_ns.len()]).collect();
        for holder in &self.holders {
            let at = lines.partition_point(|line| *line < holder.at);
            parts[at].iter_mut().zip(&holder.ns).for_each(|(sum, &ns)| *sum += ns as f64);
        }
        parts.push(self.nobody_ns.iter().map(|&ns| ns as f64).collect());
        let seen = parts.clone();
        let rest = |at: usize| self.waiting_ns[at] as f64 - parts.iter().map(|part| part[at]).sum::<f64>();
        parts.push((0..self.waiting_ns.len()).map(|at| rest(at).max(0.0)).collect());
        rake(&mut parts, &wanted, &self.waiting_ns);
        // Threads of one line keep their shares of it.
        for holder in &mut self.holders {
            let at = lines.partition_point(|line| *line < holder.at);
            let of_line = seen[at].iter().sum::<f64>().max(1.0);
            let share = holder.ns.iter().map(|&ns| ns as f64).sum::<f64>() / of_line;
            holder.ns = parts[at].iter().map(|ns| (ns * share) as u64).collect();
        }
        self.nobody_ns = parts[lines.len()].iter().map(|&ns| ns as u64).collect();
        self.holders.sort_by_key(|holder| std::cmp::Reverse(holder.ns.iter().sum::<u64>()));
    }
}

/// Scales a table until its rows add up to `rows` and its columns, nearly, to `columns`: iterative
/// proportional fitting. What is wanted where nothing was seen goes where there is most.
fn rake(table: &mut [Vec<f64>], rows: &[f64], columns: &[u64]) {
    const ROUNDS: usize = 20;
    /// A part of each column that nobody was seen in.
    const UNSEEN: f64 = 0.01;
    for row in table.iter_mut() {
        row.iter_mut().zip(columns).for_each(|(ns, &all)| *ns += UNSEEN * all as f64);
    }
    for _ in 0..ROUNDS {
        for (at, &all) in columns.iter().enumerate() {
            let sum: f64 = table.iter().map(|row| row[at]).sum();
            if sum > 0.0 {
                table.iter_mut().for_each(|row| row[at] *= all as f64 / sum);
            }
        }
        for (row, wanted) in table.iter_mut().zip(rows) {
            let sum: f64 = row.iter().sum();
            if sum > 0.0 {
                row.iter_mut().for_each(|ns| *ns *= wanted / sum);
            }
        }
    }
}

/// Threads by name and line, those with most time first.
fn shares(
    pieces: &[Vec<(&Key, &Waited)>],
    of: fn(&Waited) -> &[Party],
    line: impl Fn(&Key, &Party) -> String,
    last: &LastNames,
) -> Vec<Share> {
    let mut found: BTreeMap<(Arc<str>, String), (u32, Vec<u64>)> = BTreeMap::new();
    for (index, piece) in pieces.iter().enumerate() {
        for (key, waited) in piece {
            for party in of(waited) {
                let new = || (party.tid, vec![0; pieces.len()]);
                let name = last.get(&(key.0, party.tid)).unwrap_or(&party.name).clone();
                let (tid, ns) = found.entry((name, line(key, party))).or_insert_with(new);
                *tid = if *tid == party.tid { *tid } else { 0 };
                ns[index] += party.ns;
            }
        }
    }
    let mut all: Vec<Share> = found
        .into_iter()
        .map(|((name, at), (tid, ns))| Share { threads: threads(&name, tid), at, ns })
        .collect();
    all.sort_by_key(|share| std::cmp::Reverse(share.ns.iter().sum::<u64>()));
    all.truncate(PARTIES);
    all
}

/// What threads of a name are called; `tid` is 0 unless they are one.
fn threads(name: &str, tid: u32) -> String {
    match (name, tid) {
        (MAIN, 0) => "main threads".to_owned(),
        (MAIN, _) => "the main thread".to_owned(),
        ("", 0) => "several threads".to_owned(),
        ("", tid) => format!("thread {tid}"),
        (name, 0) => format!("threads {name}"),
        (name, tid) => format!("thread {tid} ({name})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::class::HolderFigures;

    #[test]
    fn a_thread_has_its_last_name_from_the_start() {
        let key: Key = (1, 2, 3);
        let seen = |name: &str, tid| Waited {
            waiters: vec![Party { name: name.into(), tid, site: 0, ns: 5 }],
            ..Waited::default()
        };
        let (before, after) = (seen("server", 7), seen("worker-*", 7));
        let several = seen("pool-*", 0);
        let pieces = [vec![(&key, &before)], vec![(&key, &after), (&key, &several)]];
        let last = LastNames::from([((1, 7), "worker-*".into())]);
        let shares = shares(&pieces, |waited| &waited.waiters, |_, _| String::new(), &last);
        let said: Vec<_> = shares.iter().map(|share| (&*share.threads, &*share.ns)).collect();
        assert_eq!(said, [("thread 7 (worker-*)", &[5, 5][..]), ("threads pool-*", &[0, 5])]);
    }

    #[test]
    fn parts_over_time_add_up_to_what_was_measured() {
        let share = |threads: &str, ns: [u64; 4]| Share {
            threads: threads.to_owned(),
            at: String::new(),
            ns: ns.into(),
        };
        let mut row = Row {
            class: 0,
            waiting_ns: vec![1000, 4000, 0, 5000],
            waiters: Vec::new(),
            // Two threads that took it at one line; looks missed most of their holds.
            holders: vec![share("a", [300, 0, 0, 900]), share("b", [100, 200, 0, 100])],
            nobody_ns: vec![500, 3800, 0, 3000],
        };
        let mut figures = Figures { wait_ns: 1_000_000, handover_ns: 100_000, ..Figures::default() };
        figures
            .holders
            .insert((NO_STACK, NO_STACK), HolderFigures { caused_ns: 800_000, ..HolderFigures::default() });
        row.fit(&figures, &Names::new());
        let sum = |ns: &[u64]| ns.iter().sum::<u64>();
        assert!(sum(&row.nobody_ns).abs_diff(1000) <= 4, "{:?}", row.nobody_ns);
        let of_line: u64 = row.holders.iter().map(|holder| sum(&holder.ns)).sum();
        assert!(of_line.abs_diff(8000) <= 8, "{of_line}");
        // The threads keep their parts of it, and nobody waits when nobody did.
        assert!(sum(&row.holders[0].ns).abs_diff(6000) <= 8, "{of_line}");
        assert!(row.holders.iter().all(|holder| holder.ns[2] == 0) && row.nobody_ns[2] == 0);
        for (at, &all) in row.waiting_ns.iter().enumerate() {
            let parts: u64 = row.holders.iter().map(|holder| holder.ns[at]).sum::<u64>() + row.nobody_ns[at];
            assert!(parts as f64 <= all as f64 * 1.1, "{at}: {parts} of {all}");
        }
    }
}
