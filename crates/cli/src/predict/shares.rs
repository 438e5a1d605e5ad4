//! Work that threads share out among them: parts of one size, each with one lock, in the order in which they
//! were taken.

use poundlock_sim::workload::replay::Step;

/// Fewer acquisitions than this in a part may be chance.
const LEAST: usize = 8;
/// And so may fewer whole parts.
const FEWEST: usize = 4;

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

/// The parts that these threads have taken, if it is such that they do: steps, places and times of each.
pub(super) fn of<'a>(
    lives: impl Iterator<Item = (&'a [Step], &'a [u32], &'a [u64])> + Clone,
) -> Option<Vec<Part<'a>>> {
    let runs: Vec<Vec<Run>> = lives.clone().map(|(steps, ..)| runs(steps)).collect::<Option<_>>()?;
    // What a thread did first and last was cut.
    let whole = || runs.iter().flat_map(|runs| runs.get(1..runs.len().saturating_sub(1)).unwrap_or(&[]));
    let size = whole().map(|run| run.length).min().filter(|size| *size >= LEAST)?;
    if whole().count() < FEWEST || whole().any(|run| run.length % size != 0) {
        return None;
    }
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
    Some(parts)
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

/// These parts one after another, each behind a [`Step::Part`] of this number; some of them if there are more
/// steps than `most`, so that the next would be one like the first.
pub(super) fn in_turn(parts: &[Part<'_>], number: u32, most: usize) -> (Vec<Step>, Vec<u32>) {
    let (mut steps, mut places) = (Vec::new(), Vec::new());
    for (at, part) in parts.iter().enumerate() {
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
        let parts = of(lives.into_iter()).unwrap();
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
    fn others_keep_their_own_work() {
        let is_shared = |lives: &[Vec<Step>]| {
            let places: Vec<u32> = (0..100).collect();
            let wanted: Vec<u64> = (0..100).collect();
            of(lives.iter().map(|life| (&life[..], &places[..], &wanted[..]))).is_some()
        };
        let tens = [(0, 10), (1, 10), (2, 10), (3, 10), (0, 10), (1, 10)];
        assert!(is_shared(&[life(&runs_of(&tens))]));
        assert!(!is_shared(&[life(&runs_of(&tens[..5]))]), "few");
        assert!(!is_shared(&[life(&runs_of(&[(0, 90)]))]), "one lock");
        assert!(!is_shared(&[life(&(0..60).map(|at| at % 4).collect::<Vec<_>>())]), "short");
        let uneven = [&tens[..], &[(2, 11), (3, 10)]].concat();
        assert!(!is_shared(&[life(&runs_of(&uneven))]), "of several sizes");
        let mut nested = life(&runs_of(&tens));
        nested.insert(1, Step::Lock(9));
        assert!(!is_shared(&[nested]), "two at once");
        let mut waits = life(&runs_of(&tens));
        waits.push(Step::Meet(0));
        assert!(!is_shared(&[waits]), "waits for others");
    }
}
