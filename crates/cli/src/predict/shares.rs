//! Work that threads share out among them: parts of one size, each with one lock, in the order in which they
//! were taken.

use std::collections::BTreeMap;

use poundlock_sim::workload::replay::Step;

/// Fewer acquisitions than this in a part may be chance.
const LEAST: usize = 8;
/// And so may fewer whole parts.
const FEWEST: usize = 4;
/// Locks come in turn if at least this number of ten parts have the lock that follows that of the part before
/// most often.
const IN_TURN: usize = 7;

/// A part: when it was taken, its lock, its steps, and where its acquisitions were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    wanted: u64,
    lock: u32,
    steps: &'a [Step],
    places: &'a [u32],
}

/// Of one thread, acquisitions one after another of one lock.
struct Run {
    lock: u32,
    /// The first one's number in the thread's life.
    first: usize,
    length: usize,
}

/// Of each thread, what is between the first run and the last: those were cut.
fn whole(runs: &[Vec<Run>]) -> impl Iterator<Item = &Run> {
    runs.iter().flat_map(|runs| runs.get(1..runs.len().saturating_sub(1)).unwrap_or(&[]))
}

/// How many acquisitions the parts have that the threads of a role take, if it is such that they do: by its
/// threads of each stretch. Those in which they do other things, too, say nothing.
pub(super) fn size<'a>(stretches: impl Iterator<Item: Iterator<Item = &'a [Step]>>) -> Option<usize> {
    let runs: Vec<Vec<Run>> = stretches.filter_map(all_runs).flatten().collect();
    let size = whole(&runs).map(|run| run.length).min().filter(|size| *size >= LEAST)?;
    let is_part = |run: &Run| run.length.is_multiple_of(size);
    (whole(&runs).count() >= FEWEST && whole(&runs).all(is_part)).then_some(size)
}

/// The parts of this size that these threads of a stretch have taken, with steps, places and times of each,
/// if they do nothing else.
pub(super) fn of<'a>(
    lives: impl Iterator<Item = (&'a [Step], &'a [u32], &'a [u64])> + Clone,
    size: usize,
) -> Option<Vec<Part<'a>>> {
    let runs = all_runs(lives.clone().map(|(steps, ..)| steps))?;
    let mut parts = Vec::new();
    for ((steps, places, wanted), runs) in lives.zip(&runs) {
        // A part begins where the one before it has released its lock.
        let ends: Vec<usize> =
            (1..=steps.len()).filter(|&end| matches!(steps[end - 1], Step::Unlock(_))).collect();
        let begin = |acquisition: usize| if acquisition == 0 { 0 } else { ends[acquisition - 1] };
        for (at, run) in runs.iter().enumerate() {
            let first = run.first + if at == 0 { run.length % size } else { 0 };
            for first in (first..=(run.first + run.length).saturating_sub(size)).step_by(size) {
                parts.push(Part {
                    wanted: wanted[first],
                    lock: run.lock,
                    steps: &steps[begin(first)..ends[first + size - 1]],
                    places: &places[first..first + size],
                });
            }
        }
    }
    parts.sort_by_key(|part| part.wanted);
    (!parts.is_empty()).then_some(parts)
}

/// Those of each thread; nothing if one of them does more.
fn all_runs<'a>(threads: impl Iterator<Item = &'a [Step]>) -> Option<Vec<Vec<Run>>> {
    threads.map(runs).collect()
}

/// Nothing if the thread does more than use one lock at a time, or only ever one.
fn runs(steps: &[Step]) -> Option<Vec<Run>> {
    let (mut runs, mut number, mut held): (Vec<Run>, usize, bool) = (Vec::new(), 0, false);
    for step in steps {
        match *step {
            Step::Lock(lock) if !held => {
                held = true;
                match runs.last_mut().filter(|run| run.lock == lock) {
                    Some(run) => run.length += 1,
                    None => runs.push(Run { lock, first: number, length: 1 }),
                }
                number += 1;
            }
            Step::Unlock(_) if held => held = false,
            Step::Work(_) | Step::Yield(_) | Step::Block(_) => {}
            _ => return None,
        }
    }
    (!held).then_some(runs)
}

/// The locks in the order in which they follow each other, if they come in turn: then a part's lock hangs on
/// its number. That of a part which began or ended outside the stretch was not seen, so some come too soon.
fn turn(parts: &[Part<'_>]) -> Option<Vec<u32>> {
    let mut follows: BTreeMap<u32, BTreeMap<u32, usize>> = BTreeMap::new();
    for pair in parts.windows(2) {
        *follows.entry(pair[0].lock).or_default().entry(pair[1].lock).or_default() += 1;
    }
    let most_often = |times: BTreeMap<u32, usize>| Some(times.into_iter().max_by_key(|(_, times)| *times)?.0);
    let next: BTreeMap<u32, u32> =
        follows.into_iter().filter_map(|(lock, times)| Some((lock, most_often(times)?))).collect();
    let mut turn = vec![parts.first()?.lock];
    loop {
        let lock = *next.get(&turn[turn.len() - 1])?;
        if lock == turn[0] {
            break;
        }
        if turn.contains(&lock) {
            return None;
        }
        turn.push(lock);
    }
    let in_turn = parts.windows(2).filter(|pair| next.get(&pair[0].lock) == Some(&pair[1].lock)).count();
    let all = parts.iter().all(|part| turn.contains(&part.lock));
    (all && in_turn * 10 >= (parts.len() - 1) * IN_TURN).then_some(turn)
}

/// These parts in the order in which they were taken; those of each lock in its turn, if locks come in turn.
fn in_order<'a, 'b>(parts: &'b [Part<'a>]) -> Vec<&'b Part<'a>> {
    let Some(turn) = turn(parts) else { return parts.iter().collect() };
    let of = |lock: u32| parts.iter().filter(move |part| part.lock == lock).cycle();
    let mut of: Vec<_> = turn.iter().map(|lock| of(*lock)).collect();
    (0..parts.len().next_multiple_of(turn.len())).filter_map(|at| of[at % turn.len()].next()).collect()
}

/// These parts one after another, each behind a [`Step::Part`] of this number; some of them if there are more
/// steps than `most`, so that the next would be one like the first.
pub(super) fn in_turn(parts: &[Part<'_>], number: u32, most: usize) -> (Vec<Step>, Vec<u32>) {
    let (mut steps, mut places) = (Vec::new(), Vec::new());
    for (at, part) in in_order(parts).into_iter().enumerate() {
        if steps.len() >= most && part.lock == parts[0].lock && at > 0 {
            break;
        }
        steps.push(Step::Part(number));
        steps.extend(part.steps);
        places.extend(part.places);
    }
    (steps, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acquisitions of these locks, each followed by work that tells it from the others.
    fn life(locks: &[u32]) -> Vec<Step> {
        let hold = |(at, &lock): (usize, &u32)| [Step::Lock(lock), Step::Unlock(lock), Step::Work(at as u64)];
        locks.iter().enumerate().flat_map(hold).collect()
    }

    fn runs_of(lengths: &[(u32, usize)]) -> Vec<u32> {
        lengths.iter().flat_map(|&(lock, length)| vec![lock; length]).collect()
    }

    #[test]
    fn parts_are_of_one_size_and_in_the_order_in_which_they_were_taken() {
        // Parts of ten: two threads that take locks 0 to 3 in turn, and are cut at the begin and at the end.
        let one = runs_of(&[(0, 13), (2, 10), (0, 20), (3, 10), (1, 4)]);
        let other = runs_of(&[(1, 5), (3, 10), (1, 10), (2, 10), (0, 10), (2, 7)]);
        let [one_life, other_life] = [&one, &other].map(|locks| life(locks));
        let times = |locks: &[u32], late: u64| -> Vec<u64> {
            (0..locks.len() as u64).map(|at| at * 10 + late).collect()
        };
        let places = |locks: &[u32]| -> Vec<u32> { (0..locks.len() as u32).collect() };
        let lives = [
            (&one_life[..], &places(&one)[..], &times(&one, 0)[..]),
            (&other_life[..], &places(&other)[..], &times(&other, 5)[..]),
        ];
        let size = |lives: &[&[Step]]| size(std::iter::once(lives.iter().copied()));
        assert_eq!(size(&[&one_life, &other_life]), Some(10));
        let parts = of(lives.into_iter(), 10).unwrap();
        let locks: Vec<u32> = parts.iter().map(|part| part.lock).collect();
        // One takes them at 30, 130, 230, 330, 430; the other at 55, 155, 255, 355.
        assert_eq!(locks, [0, 3, 2, 1, 0, 2, 0, 0, 3], "{parts:?}");
        assert!(parts.iter().all(|part| part.places.len() == 10), "{parts:?}");
        assert_eq!(parts[0].steps.first(), Some(&Step::Work(2)), "what comes before a part belongs to it");
        let (steps, places) = in_turn(&parts, 7, 60);
        // Cut before one like the first.
        assert_eq!(steps.iter().filter(|step| **step == Step::Part(7)).count(), 4);
        assert_eq!(places.len(), 40);
    }

    #[test]
    fn locks_that_come_in_turn_keep_their_turn_where_a_part_was_not_seen() {
        let parts = |locks: &[u32]| -> Vec<Part<'static>> {
            let part = |(at, &lock): (usize, &u32)| Part { wanted: at as u64, lock, steps: &[], places: &[] };
            locks.iter().enumerate().map(part).collect()
        };
        let in_order = |locks: &[u32]| -> Vec<(u32, u64)> {
            let parts = parts(locks);
            in_order(&parts).into_iter().map(|part| (part.lock, part.wanted)).collect()
        };
        // One of lock 2 is not seen, and one of lock 1 at the end: the first of its own takes its place.
        let taken = [0, 1, 2, 3, 0, 1, 3, 0, 1, 2, 3, 0];
        let turns: Vec<u32> = (0..12).map(|at| at % 4).collect();
        let ordered = in_order(&taken);
        assert_eq!(ordered.iter().map(|(lock, _)| *lock).collect::<Vec<u32>>(), turns);
        assert_eq!(ordered[8..], [(0, 7), (1, 8), (2, 2), (3, 10)]);
        let by_chance = [0, 2, 1, 1, 3, 0, 3, 2, 0, 1, 2, 2];
        let as_taken: Vec<(u32, u64)> = by_chance.iter().copied().zip(0..).collect();
        assert_eq!(in_order(&by_chance), as_taken);
    }

    #[test]
    fn others_keep_their_own_work() {
        let sized = |stretches: &[Vec<Step>]| size(stretches.iter().map(|life| std::iter::once(&life[..])));
        let is_shared = |stretches: &[Vec<Step>]| sized(stretches).is_some();
        let tens = [(0, 10), (1, 10), (2, 10), (3, 10), (0, 10), (1, 10)];
        assert!(is_shared(&[life(&runs_of(&tens))]));
        let few = life(&runs_of(&tens[..5]));
        assert!(!is_shared(std::slice::from_ref(&few)), "few");
        assert_eq!(sized(&[few.clone(), few]), Some(10), "few in each of two stretches");
        assert!(!is_shared(&[life(&runs_of(&[(0, 90)]))]), "one lock");
        assert!(!is_shared(&[life(&(0..60).map(|at| at % 4).collect::<Vec<_>>())]), "short");
        let uneven = [&tens[..], &[(2, 11), (3, 10)]].concat();
        assert!(!is_shared(&[life(&runs_of(&uneven))]), "of several sizes");
        let mut nested = life(&runs_of(&tens));
        nested.insert(1, Step::Lock(9));
        assert!(!is_shared(std::slice::from_ref(&nested)), "two at once");
        assert!(is_shared(&[nested.clone(), life(&runs_of(&tens))]), "in another stretch");
        let (places, wanted) = ([0; 70], [0; 70]);
        assert_eq!(of(std::iter::once((&nested[..], &places[..], &wanted[..])), 10), None);
        let mut waits = life(&runs_of(&tens));
        waits.push(Step::Meet(0));
        assert!(!is_shared(&[waits]), "waits for others");
    }
}
