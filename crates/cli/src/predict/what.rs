//! Questions: what a recorded program would do if something were otherwise.

use std::fmt;

use poundlock_sim::Picoseconds;
use poundlock_sim::workload::replay::{Kind, Part, Step};

use super::steps::Lives;

/// What becomes of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nobody waits for it.
    Gone,
    /// All that is done with it held takes half the time.
    Half,
    /// There are several; each acquisition takes one of them.
    Split(u32),
    /// Those who acquire it at these places share it: `FILE:LINE`, as the page shows them. Everywhere, if
    /// there is none.
    ReadersWriter(Vec<String>),
    /// It is another lock.
    Is(&'static str),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Gone => f.write_str("gone"),
            Change::Half => f.write_str("half as long inside"),
            Change::Split(parts) => write!(f, "split in {parts}"),
            Change::ReadersWriter(lines) if lines.is_empty() => {
                f.write_str("readers-writer, if all only read")
            }
            Change::ReadersWriter(lines) => write!(f, "readers-writer, read at {}", lines.join(", ")),
            Change::Is(name) => write!(f, "is {name}"),
        }
    }
}

impl Change {
    /// As it is typed: `gone`, `half`, `split N`, `rw`, `rw LINE,..`, `is LOCK`.
    pub(super) fn parse(text: &str) -> Option<Change> {
        let mut words = text.split_whitespace();
        let change = match (words.next()?, words.next()) {
            ("gone", None) => Change::Gone,
            ("half", None) => Change::Half,
            ("rw", None) => Change::ReadersWriter(Vec::new()),
            ("rw", Some(lines)) => Change::ReadersWriter(lines.split(',').map(str::to_owned).collect()),
            ("split", Some(parts)) => {
                Change::Split(parts.parse().ok().filter(|parts| (2..=1024).contains(parts))?)
            }
            ("is", Some(name)) => Change::Is(crate::sim::lock(name).ok()?),
            _ => return None,
        };
        words.next().is_none().then_some(change)
    }
}

/// The locks of a replay, by number, and the steps.
#[derive(Clone)]
pub(super) struct World {
    pub(super) lives: Lives,
    pub(super) locks: Vec<Part<'static>>,
    /// What a readers-writer lock in the place of another would be.
    shared: Kind<'static>,
}

impl World {
    /// The program as it was, with these locks for mutexes, spinlocks and readers-writer locks.
    pub(super) fn new(lives: &Lives, kind: impl Fn(u32) -> Kind<'static>, shared: Kind<'static>) -> World {
        let locks = lives.locks.iter().map(|&lock| Part { kind: kind(lock), number: 1 }).collect();
        World { lives: lives.clone(), locks, shared }
    }

    /// The same with a change to these locks; whether a place is one of the lines that were named is for
    /// `is_at` to say.
    pub(super) fn change(&mut self, locks: &[u32], change: &Change, is_at: impl Fn(u32, &[String]) -> bool) {
        for &lock in locks {
            let part = &mut self.locks[lock as usize];
            match change {
                Change::Gone => part.kind = Kind::Gone,
                Change::Split(parts) => part.number = *parts,
                Change::ReadersWriter(_) => part.kind = self.shared,
                Change::Is(name) => part.kind = Kind::Exclusive(name),
                Change::Half => {}
            }
        }
        match change {
            Change::Half => self.lives.threads.iter_mut().for_each(|steps| halve(steps, locks)),
            Change::ReadersWriter(lines) => {
                let lives = &mut self.lives;
                for (steps, places) in lives.threads.iter_mut().zip(&lives.places) {
                    let mut places = places.iter();
                    for step in steps {
                        let (Step::Lock(lock) | Step::Read(lock) | Step::Try(lock)) = *step else { continue };
                        let place = places.next().copied().unwrap_or(0);
                        if locks.contains(&lock) && (lines.is_empty() || is_at(place, lines)) {
                            *step = Step::Read(lock);
                        }
                    }
                }
            }
            Change::Gone | Change::Split(_) | Change::Is(_) => {}
        }
    }

    /// So many threads with the first role: the last ones are left out, or all are there several times in
    /// turn.
    pub(super) fn resize(&mut self, wanted: usize) {
        let lives = &mut self.lives;
        let members: Vec<usize> = lives.members(0).collect();
        for _ in members.len()..wanted {
            lives.add_like(0);
        }
        for &thread in members.iter().skip(wanted) {
            lives.threads[thread].clear();
        }
    }

    /// Where each acquisition costs so much more, half of it with the lock held.
    pub(super) fn measured(&mut self, cost: Picoseconds) {
        let half = Step::Work(cost / 2);
        for steps in self.lives.threads.iter_mut().filter(|_| cost > 0) {
            let dearer = steps.iter().flat_map(|step| match step {
                Step::Lock(_) | Step::Read(_) | Step::Try(_) => vec![half, *step, half],
                step => vec![*step],
            });
            *steps = dearer.collect();
        }
    }

    /// The steps without anybody who wakes another: all that was waited for takes the time that it took.
    pub(super) fn unpaired(&self) -> Vec<Vec<Step>> {
        let step = |step: &Step| match *step {
            // Perhaps it did not wait.
            Step::Wake(_) | Step::Await { took: 0, .. } => None,
            Step::Await { under, took, .. } => Some(Step::Await { what: None, under, took }),
            step => Some(step),
        };
        self.lives.threads.iter().map(|steps| steps.iter().filter_map(step).collect()).collect()
    }

    /// Beside this number of threads of other programs that only compute, on average.
    pub(super) fn beside(&mut self, others: f64) {
        const TURN: f64 = 1e9;
        let busy = (TURN * others.fract()) as u64;
        for _ in 0..others as usize {
            self.add(vec![Step::Work(TURN as u64)]);
        }
        if busy > 0 {
            self.add(vec![Step::Work(busy), Step::Block(TURN as u64 - busy)]);
        }
    }

    fn add(&mut self, steps: Vec<Step>) {
        self.lives.threads.push(steps);
        self.lives.begins.push(0);
        self.lives.cpus.push(None);
        self.lives.places.push(Vec::new());
        self.lives.roles.push(usize::MAX);
    }
}

/// Work under one of these locks takes half the time.
fn halve(steps: &mut [Step], locks: &[u32]) {
    let mut held = 0;
    for step in steps {
        match step {
            Step::Lock(lock) | Step::Read(lock) | Step::Try(lock) if locks.contains(lock) => held += 1,
            Step::Unlock(lock) if locks.contains(lock) => held -= 1,
            Step::Work(time) | Step::Block(time) if held > 0 => *time /= 2,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_what_they_say() {
        let lines = vec!["a.c:1".to_owned(), "b.c:2".to_owned()];
        for (text, change) in [
            ("gone", Some(Change::Gone)),
            (" half ", Some(Change::Half)),
            ("split 16", Some(Change::Split(16))),
            ("rw", Some(Change::ReadersWriter(Vec::new()))),
            ("rw a.c:1,b.c:2", Some(Change::ReadersWriter(lines))),
            ("is poundlock", Some(Change::Is("poundlock"))),
            ("is nonesuch", None),
            ("split 1", None),
            ("split", None),
            ("gone now", None),
            ("", None),
        ] {
            assert_eq!(Change::parse(text), change, "{text}");
        }
    }

    #[test]
    fn a_world_changes_as_it_is_told() {
        let hold = |lock| [Step::Lock(lock), Step::Work(100), Step::Unlock(lock), Step::Work(100)];
        let lives = Lives {
            threads: vec![[hold(0), hold(1)].concat(), hold(1).to_vec(), hold(1).to_vec()],
            begins: vec![0; 3],
            places: vec![vec![1, 2], vec![2], vec![2]],
            roles: vec![1, 0, 0],
            locks: vec![1, 2],
            ..Lives::default()
        };
        let world = || World::new(&lives, |_| Kind::Exclusive("glibc"), Kind::Shared("glibc"));
        let mut changed = world();
        changed.change(&[1], &Change::Half, |_, _| unreachable!("no lines"));
        assert_eq!(
            changed.lives.threads[0],
            [hold(0), [Step::Lock(1), Step::Work(50), hold(1)[2], hold(1)[3]]].concat()
        );
        let mut changed = world();
        changed.change(&[0, 1], &Change::ReadersWriter(vec!["x".to_owned()]), |place, _| place == 2);
        assert_eq!(
            (changed.lives.threads[0][0], changed.lives.threads[0][4]),
            (Step::Lock(0), Step::Read(1))
        );
        for (wanted, left) in [(1, 2), (2, 3), (5, 6)] {
            let mut sized = world();
            sized.resize(wanted);
            assert_eq!(sized.lives.threads.iter().filter(|steps| !steps.is_empty()).count(), left);
        }
        let mut measured = world();
        measured.measured(50);
        let [lock, unlock] = [0, 2].map(|step| hold(1)[step]);
        let [less, more] = [25, 100].map(Step::Work);
        assert_eq!(measured.lives.threads[1], [less, lock, less, more, unlock, more]);
        assert_eq!(measured.lives.threads[0].len(), 12);
        let mut beside = world();
        beside.beside(1.25);
        assert_eq!(
            beside.lives.threads[3..],
            [vec![Step::Work(1_000_000_000)], vec![Step::Work(250_000_000), Step::Block(750_000_000)]]
        );
    }
}
