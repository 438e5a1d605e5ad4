//! Who waited for locks, and who had them, over time: in pieces of time of one length, which doubles when
//! there are too many of them.

use std::collections::HashMap;
use std::sync::Arc;

/// Pieces at most; beyond that each two neighbours become one.
pub(super) const PIECES: usize = 240;
/// The first length of a piece: some five looks.
const FIRST_NS: u64 = 20_000_000;
/// Locks of one piece: of more, those with least waiting are left out.
const LOCKS: usize = 64;
/// Waiters and holders of one lock in one piece.
const PARTIES: usize = 8;

/// The name of main threads.
pub(crate) const MAIN: &str = "main thread";

/// A lock: process, start of its file, and address.
pub(crate) type Key = (u32, u64, u64);

/// All pieces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Series {
    /// `CLOCK_MONOTONIC` at the beginning of the first one, in nanoseconds.
    pub(crate) began: u64,
    /// How long each is, in nanoseconds.
    pub(crate) length: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The part of it for which looks stand, in nanoseconds.
    pub(crate) watched: u64,
    /// The locks that somebody was seen waiting for.
    pub(crate) locks: HashMap<Key, Waited>,
}

/// A lock while others wait for it; nanoseconds of the waiters' time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Waited {
    /// All of them.
    pub(crate) ns: u64,
    /// Those who waited.
    pub(crate) waiters: Vec<Party>,
    /// Those who had it meanwhile.
    pub(crate) holders: Vec<Party>,
    /// While nobody had it. What is left of `ns` is not known.
    pub(crate) nobody: u64,
}

/// Threads of one name that did one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Party {
    /// The name, with `*` for digits; of main threads [`MAIN`]. Empty if unknown.
    pub(crate) name: Arc<str>,
    /// The thread; 0 if there were several.
    pub(crate) tid: u32,
    /// The return address of the call that acquired the lock; 0 if unknown, and for those who wait.
    pub(crate) site: u64,
    /// How long, in nanoseconds of the waiters' time.
    pub(crate) ns: u64,
}

/// Who has a lock.
pub(super) enum Holder {
    /// The thread of this id, since a call that returns to this address.
    Thread(u32, u64),
    /// A thread that has ended: its name, its id, and where it took the lock.
    Ended(String, u32, u64),
    Nobody,
    Unknown,
}

impl Series {
    pub(super) fn new(began: u64) -> Series {
        Series { began, length: FIRST_NS, pieces: Vec::new() }
    }

    /// Calls `each` with the pieces that the time from `from` to `to` is part of, and with how much of it.
    fn each(&mut self, from: u64, to: u64, mut each: impl FnMut(&mut Piece, u64)) {
        let (from, to) = (from.saturating_sub(self.began), to.saturating_sub(self.began));
        while to > self.length * PIECES as u64 {
            self.double();
        }
        let mut at = from;
        while at < to {
            let index = (at / self.length) as usize;
            let end = to.min((index as u64 + 1) * self.length);
            if index >= self.pieces.len() {
                self.pieces.resize_with(index + 1, Piece::default);
            }
            each(&mut self.pieces[index], end - at);
            at = end;
        }
    }

    fn double(&mut self) {
        self.length *= 2;
        let mut pieces = std::mem::take(&mut self.pieces).into_iter();
        while let Some(mut piece) = pieces.next() {
            if let Some(next) = pieces.next() {
                piece.watched += next.watched;
                for (key, waited) in next.locks {
                    piece.locks.entry(key).or_default().merge(&waited);
                }
                piece.leave_out();
            }
            self.pieces.push(piece);
        }
    }

    /// A look stands for this time.
    pub(super) fn watched(&mut self, from: u64, to: u64) {
        self.each(from, to, |piece, ns| {
            piece.watched += ns;
            piece.leave_out();
        });
    }

    /// In this time threads were seen waiting for a lock: `seen` is for one nanosecond of each waiter, of
    /// which there are `times` as many.
    pub(super) fn add(&mut self, (from, to): (u64, u64), key: Key, seen: &Waited, times: f64) {
        self.each(from, to, |piece, ns| {
            let factor = times * ns as f64;
            let scaled = |ns: u64| (ns as f64 * factor) as u64;
            let parties = |of: &[Party]| -> Vec<Party> {
                of.iter().map(|party| Party { ns: scaled(party.ns), ..party.clone() }).collect()
            };
            piece.locks.entry(key).or_default().merge(&Waited {
                ns: scaled(seen.ns),
                waiters: parties(&seen.waiters),
                holders: parties(&seen.holders),
                nobody: scaled(seen.nobody),
            });
        });
    }
}

impl Piece {
    /// Keeps those with most waiting.
    fn leave_out(&mut self) {
        if self.locks.len() > 2 * LOCKS {
            let mut all: Vec<(Key, Waited)> = self.locks.drain().collect();
            all.sort_by_key(|(key, waited)| (std::cmp::Reverse(waited.ns), *key));
            all.truncate(LOCKS);
            self.locks.extend(all);
        }
    }
}

impl Waited {
    pub(crate) fn merge(&mut self, other: &Waited) {
        self.ns += other.ns;
        self.nobody += other.nobody;
        merge(&mut self.waiters, &other.waiters);
        merge(&mut self.holders, &other.holders);
    }
}

/// Adds up those of one name and place. Of too many the last ones, who came latest and least, are left out.
pub(super) fn merge(to: &mut Vec<Party>, from: &[Party]) {
    for party in from {
        match to.iter_mut().find(|known| known.site == party.site && known.name == party.name) {
            Some(known) => {
                known.ns += party.ns;
                known.tid = if known.tid == party.tid { party.tid } else { 0 };
            }
            None => to.push(party.clone()),
        }
    }
    if to.len() > PARTIES {
        to.sort_by_key(|party| std::cmp::Reverse(party.ns));
        to.truncate(PARTIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn party(name: &str, tid: u32, site: u64, ns: u64) -> Party {
        Party { name: name.into(), tid, site, ns }
    }

    /// A wait of two threads, for one that holds the lock.
    fn seen() -> Waited {
        Waited {
            ns: 2,
            waiters: vec![party("worker-*", 3, 0, 1), party("main", 1, 0, 1)],
            holders: vec![party("worker-*", 4, 0x10, 2)],
            nobody: 0,
        }
    }

    #[test]
    fn however_long_it_takes_there_are_no_more_pieces_and_the_sums_stay() {
        let mut series = Series::new(5 * MS);
        let key = (7, 1, 8);
        for n in 0..10_000 {
            let (from, to) = (5 * MS + n * 30 * MS, 5 * MS + (n + 1) * 30 * MS);
            series.watched(from, to);
            series.add((from, to), key, &seen(), 1.0);
        }
        assert!(series.pieces.len() <= PIECES && series.pieces.len() > PIECES / 2, "{}", series.pieces.len());
        let all = 10_000 * 30 * MS;
        assert!(series.pieces.iter().all(|piece| piece.watched <= series.length));
        assert_eq!(series.pieces.iter().map(|piece| piece.watched).sum::<u64>(), all);
        let sum = |of: &dyn Fn(&Waited) -> u64| series.pieces.iter().map(|p| of(&p.locks[&key])).sum::<u64>();
        assert_eq!(sum(&|waited| waited.ns), 2 * all);
        assert_eq!(sum(&|waited| waited.holders[0].ns), 2 * all);
        assert_eq!(series.pieces[0].locks[&key].waiters.len(), 2);
    }

    #[test]
    fn a_look_after_a_long_pause_is_shared_out_and_stands_for_all_waiters() {
        let mut series = Series::new(0);
        series.add((10 * MS, 50 * MS), (7, 1, 8), &seen(), 3.0);
        let ns: Vec<u64> = series.pieces.iter().map(|piece| piece.locks[&(7, 1, 8)].ns / MS).collect();
        assert_eq!(ns, [60, 120, 60]);
    }

    #[test]
    fn several_threads_of_one_name_are_one_party_and_those_with_least_are_left_out() {
        let mut parties = vec![party("worker-*", 3, 0x10, 5)];
        merge(&mut parties, &[party("worker-*", 3, 0x10, 5)]);
        assert_eq!(parties, [party("worker-*", 3, 0x10, 10)]);
        merge(&mut parties, &[party("worker-*", 4, 0x10, 5), party("worker-*", 4, 0x20, 1)]);
        assert_eq!(parties, [party("worker-*", 0, 0x10, 15), party("worker-*", 4, 0x20, 1)]);
        let many: Vec<Party> = (0..20).map(|site| party("other", 5, site, 2)).collect();
        merge(&mut parties, &many);
        assert_eq!((parties.len(), parties[0].ns), (PARTIES, 15));

        let mut piece = Piece::default();
        for address in 0..3 * LOCKS as u64 {
            piece.locks.insert((7, 1, address), Waited { ns: address, ..Waited::default() });
        }
        piece.leave_out();
        assert_eq!(piece.locks.len(), LOCKS);
        assert!(piece.locks.keys().all(|(.., address)| *address >= 2 * LOCKS as u64));
    }
}
