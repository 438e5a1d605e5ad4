//! Names for the addresses of one process.

use poundlock_statfile::LockKind;

use crate::observe::shorten::{self, shorten};
use crate::observe::symbols::{Frame, Space, file_name};

use super::feed::Described;
use super::finding::{Lock, is_making_line, line, making_line};

/// The names of a process.
pub(super) struct Naming<'a> {
    space: Space<'a>,
    /// ` (in server)`, which is left out of names.
    in_program: String,
}

/// What a lock is called.
pub(super) fn kind_name(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex => "mutex",
        LockKind::Spinlock => "spinlock",
        LockKind::RwReaders | LockKind::RwWriters => "readers-writer lock",
        LockKind::Condition => "condition variable",
        LockKind::Barrier => "barrier",
        LockKind::Semaphore => "semaphore",
        LockKind::Join => "end of a thread",
        LockKind::SharedMutex => "process-shared mutex",
        LockKind::RobustMutex => "robust mutex",
        LockKind::PriorityMutex => "priority-inheriting mutex",
        LockKind::Futex => "futex",
        LockKind::Array => "semaphore of an array",
        LockKind::SharedRwReaders | LockKind::SharedRwWriters => "process-shared readers-writer lock",
        LockKind::Recycled | LockKind::Overflow => "lock",
    }
}

/// `mutexes`, `barriers`
fn several(kind: &str) -> String {
    if kind.ends_with('x') { format!("{kind}es") } else { format!("{kind}s") }
}

impl<'a> Naming<'a> {
    pub(super) fn new(space: Space<'a>, exe: &str) -> Self {
        Naming { space, in_program: format!(" (in {})", file_name(exe)) }
    }

    /// A stack in names.
    pub(super) fn frames(&self, stack: &[u64]) -> Vec<Frame> {
        stack.iter().flat_map(|&address| self.space.call(address).to_vec()).collect()
    }

    /// As much of a stack that made a lock as has its [`making_line`]. What lies outside is not looked up: the files
    /// in which the lines of a system's libraries are may be large.
    pub(super) fn making(&self, stack: &[u64]) -> Vec<Frame> {
        let mut frames = Vec::new();
        for &address in stack {
            frames.extend_from_slice(&self.space.call(address));
            if frames.iter().any(is_making_line) {
                break;
            }
        }
        frames
    }

    /// A lock, as far as it is known. `made` is the stack of the call that initialised it, `taken` that of one that
    /// took it.
    pub(super) fn lock(&self, described: Option<&Described>, made: &[u64], taken: &[u64]) -> Lock {
        let lock_kind = described.map_or(LockKind::Overflow, |lock| lock.kind);
        let kind = if described.is_some() { kind_name(lock_kind) } else { "lock" };
        let address = described.map_or(0, |lock| lock.address);
        let made = described.map(|lock| &lock.created_at[..]).filter(|made| !made.is_empty()).unwrap_or(made);
        let made = self.frames(made);
        let lock = |name: String, class: String, declared_at: String| Lock {
            name,
            class,
            kind: kind.to_owned(),
            address,
            declared_at,
            made: made.clone(),
        };
        if lock_kind == LockKind::Array {
            let (id, number) = LockKind::of_array(address);
            let name = format!("semaphore {number} of array {id}");
            return Lock {
                address: 0,
                ..lock(name, format!("semaphore {number} of an array"), String::new())
            };
        }
        if let Some(variable) = self.space.variable(address).filter(|_| address != 0) {
            let class =
                self.space.variables(address).map_or_else(|| variable.name.clone(), |all| all.name.clone());
            return lock(
                self.plain(&variable.name),
                self.plain(&class),
                variable.declared_at.unwrap_or_default(),
            );
        }
        let taken_at = self.frames(taken);
        let line = line(&taken_at);
        let member = line.and_then(|line| self.space.member(taken, line, lock_kind));
        if let Some(member) = member {
            let member = shorten(&member, shorten::COLUMNS, &[]);
            return lock(member.clone(), member, String::new());
        }
        if let Some(line) = making_line(&made) {
            let class = format!("the {} made in {}", several(kind), line.text);
            return lock(format!("the {kind} made in {}", line.text), class, String::new());
        }
        let taken = |kind: &str| {
            line.map_or_else(|| kind.to_owned(), |line| format!("the {kind} taken in {}", line.text))
        };
        let class = taken(&several(kind));
        if address == 0 {
            return lock(taken(kind), class, String::new());
        }
        lock(format!("the {kind} at {address:#x}"), class, String::new())
    }

    fn plain(&self, name: &str) -> String {
        name.strip_suffix(&self.in_program).unwrap_or(name).to_owned()
    }
}

/// Makes the names of different locks different: those of one sort that have no names of their own are numbered.
pub(super) fn tell_apart(locks: &mut [Lock]) {
    for at in 0..locks.len() {
        let same: Vec<usize> =
            (at..locks.len()).filter(|&other| locks[other].name == locks[at].name).collect();
        if same.len() > 1 {
            for (n, &which) in same.iter().enumerate() {
                locks[which].name = format!("{} #{}", locks[which].name, n + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::order;
    use super::{several, tell_apart};

    #[test]
    fn kinds_have_plurals() {
        assert_eq!(["mutex", "readers-writer lock"].map(several), ["mutexes", "readers-writer locks"]);
    }

    #[test]
    fn locks_of_one_name_are_numbered() {
        let mut locks = [order("a", "b", "f", "g").locks, order("a", "c", "f", "g").locks].concat();
        tell_apart(&mut locks);
        let names: Vec<&str> = locks.iter().map(|lock| lock.name.as_str()).collect();
        assert_eq!(names, ["a #1", "b", "a #2", "c"]);
    }
}
