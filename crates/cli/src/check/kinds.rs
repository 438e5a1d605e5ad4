//! What can be found: names, words and what to do about each.

use crate::message::{Failure, status};

/// A kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Order,
    Deadlock,
    Relock,
    UnlockOther,
    UnlockFree,
    DestroyHeld,
    DestroyWaited,
    FreeHeld,
    FrameGone,
    Uninitialised,
    Destroyed,
    Copied,
    ExitHeld,
    ForkHeld,
    TwoMutexes,
    LoneSignal,
    Handler,
    Blocking,
    HeldLong,
    Reread,
    Nesting,
}

/// When a kind is looked for that `--kind` does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Always,
    /// With `--held-over`.
    HeldOver,
    /// If it is named, or all are.
    Named,
}

/// What there is to say about a kind.
struct About {
    kind: Kind,
    name: &'static str,
    /// In a few words, for `--help` and completion.
    brief: &'static str,
    /// What it is and what comes of it, for SARIF.
    full: &'static str,
    /// What to do.
    advice: &'static str,
    /// Whether it goes wrong each time, or can go wrong.
    level: Level,
    looked: Looked,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Error,
    Warning,
}

const ABOUT: [About; 21] = [
    About {
        kind: Kind::Order,
        name: "order",
        brief: "locks that threads take in orders that contradict each other",
        full: "Threads take the same locks in orders that contradict each other. If they do so at once, each waits \
               for the next, for ever.",
        advice: "lock them in one order everywhere; or take the later one by trylock, and unlock the first if that fails",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::Deadlock,
        name: "deadlock",
        brief: "threads that wait for each other now",
        full: "Each thread waits for something that the next one has to do first. None of them goes on.",
        advice: "lock in one order everywhere; unlock what other threads need before you wait for them",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::Relock,
        name: "relock",
        brief: "a lock taken by the thread that holds it",
        full: "A thread takes a lock that it holds, and the lock is not recursive: the thread waits for itself, for \
               ever.",
        advice: "call a function that expects the lock to be held, or make the lock a recursive one",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::UnlockOther,
        name: "unlock-other",
        brief: "an unlock of a lock that another thread holds",
        full: "A thread unlocks a lock that another thread holds. The holder goes on without its lock, and two threads \
               can be inside at once.",
        advice: "let the thread unlock that locked; for a signal between threads use a semaphore",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::UnlockFree,
        name: "unlock-free",
        brief: "an unlock of a lock that nobody holds",
        full: "A thread unlocks a lock that nobody holds. What the lock does next is undefined.",
        advice: "find the path on which it is unlocked twice, or was never locked",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::DestroyHeld,
        name: "destroy-held",
        brief: "a lock destroyed, or initialised again, while it is held",
        full: "A lock is destroyed, or initialised again, while a thread holds it. What its unlock does then is \
               undefined.",
        advice: "unlock it first, and destroy it when nobody can reach it any more",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::DestroyWaited,
        name: "destroy-waited",
        brief: "a lock, condition variable or barrier destroyed while threads wait for it",
        full: "A lock, a condition variable or a barrier is destroyed while threads wait for it. They may never wake \
               up, or use memory that is gone.",
        advice: "wake the waiters, and wait for them to be gone before you destroy it",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::FreeHeld,
        name: "free-held",
        brief: "memory freed with a lock in it that is held or waited for",
        full: "Memory is given back while a lock in it is held or waited for. The unlock will write to memory that is \
               somebody else's by then.",
        advice: "unlock it, let its waiters go, and destroy it before its memory is freed",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::FrameGone,
        name: "frame-gone",
        brief: "a lock that is held and lay in a function that has returned",
        full: "A lock is held that was a local variable of a function, and the function has returned: other variables \
               take its place.",
        advice: "unlock it before the function returns, or give the lock a longer life",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::Uninitialised,
        name: "uninitialised",
        brief: "use of a lock that was never initialised",
        full: "A lock is used whose bytes are none of a lock: nobody has initialised it.",
        advice: "initialise it, by its function or by its static initialiser, before the first use",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::Destroyed,
        name: "destroyed",
        brief: "use of a lock after its destruction",
        full: "A lock, condition variable or barrier is used after it was destroyed.",
        advice: "destroy it after the last use, or initialise it again before this one",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::Copied,
        name: "copied",
        brief: "use of a lock that was copied while it was locked",
        full: "A lock is used that is a copy of one that was locked. Nobody will ever unlock the copy.",
        advice: "do not copy what has a lock in it; initialise the copy's lock anew",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::ExitHeld,
        name: "exit-held",
        brief: "a thread that ends with a lock held",
        full: "A thread ends while it holds a lock. Nobody can unlock it any more.",
        advice: "unlock on every path out of the thread; for pthread_exit and cancellation push a cleanup handler",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::ForkHeld,
        name: "fork-held",
        brief: "a forked child that takes a lock which a thread of its parent held",
        full: "A forked child takes a lock that another thread of its parent held at the fork. That thread is not in \
               the child, so that the lock stays locked there.",
        advice: "take the lock around the fork by pthread_atfork, or call only exec and _exit in the child",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::TwoMutexes,
        name: "two-mutexes",
        brief: "threads that wait for one condition variable with different mutexes",
        full: "Threads wait for one condition variable with different mutexes at one time. What that does is \
               undefined.",
        advice: "use one mutex with one condition variable",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::LoneSignal,
        name: "lone-signal",
        brief: "a signal by a thread that never had the mutex of the waits",
        full: "A condition variable is signalled by a thread that has never had the mutex with which others wait. What \
               it changed before can be missed by a thread that is about to wait: then the signal is lost.",
        advice: "hold the waiters' mutex while you change what they look at",
        level: Level::Warning,
        looked: Looked::Named,
    },
    About {
        kind: Kind::Handler,
        name: "handler",
        brief: "a lock taken in a signal handler that the interrupted thread may hold",
        full: "A signal handler takes a lock that is elsewhere held with that signal open. If the signal comes in the \
               middle of that, the thread waits for itself, for ever.",
        advice: "block the signal while the lock is held, or let the handler only write to a pipe or post a semaphore",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::Blocking,
        name: "blocking",
        brief: "a lock held across a call that blocks for longer than --held-over",
        full: "A thread sleeps in a call that waits for time, for input or for other threads, and holds a lock \
               meanwhile. Whoever needs the lock waits as long.",
        advice: "move the call out of the critical section",
        level: Level::Warning,
        looked: Looked::HeldOver,
    },
    About {
        kind: Kind::HeldLong,
        name: "held-long",
        brief: "a lock held for longer than --held-over",
        full: "A lock is held for longer than was asked for. Whoever needs it waits as long.",
        advice: "do less in the critical section, or split it",
        level: Level::Warning,
        looked: Looked::HeldOver,
    },
    About {
        kind: Kind::Reread,
        name: "reread",
        brief: "a read lock taken twice where a waiting writer comes between",
        full: "A thread that has a read lock takes it again, and the lock lets a waiting writer go first: if a writer \
               comes between the two, all three wait for each other, for ever.",
        advice: "take the read lock once, or give the lock the kind that prefers readers",
        level: Level::Error,
        looked: Looked::Always,
    },
    About {
        kind: Kind::Nesting,
        name: "nesting",
        brief: "locks of one sort taken inside of each other without an order",
        full: "Locks of one sort are taken inside of each other, now up and now down in addresses, or against the order \
               that the program gave them. Threads that do so with the same two at once wait for each other.",
        advice: "take them by address, or by another order that all threads keep (poundlock_check_order)",
        level: Level::Warning,
        looked: Looked::Named,
    },
];

impl Kind {
    fn about(self) -> &'static About {
        &ABOUT[self as usize]
    }

    /// Its name, everywhere.
    pub(crate) fn name(self) -> &'static str {
        self.about().name
    }

    pub(super) fn brief(self) -> &'static str {
        self.about().brief
    }

    pub(super) fn full(self) -> &'static str {
        self.about().full
    }

    pub(super) fn advice(self) -> &'static str {
        self.about().advice
    }

    pub(super) fn level(self) -> Level {
        self.about().level
    }

    pub(super) fn all() -> impl Iterator<Item = Kind> {
        ABOUT.iter().map(|about| about.kind)
    }

    pub(super) fn of_name(name: &str) -> Option<Kind> {
        Kind::all().find(|kind| kind.name() == name)
    }
}

/// Advice on findings for which that on their kind does not fit.
pub(super) mod advice {
    /// Locks of one sort, taken in both orders.
    pub(in crate::check) const ONE_SORT: &str =
        "lock two of one sort in a fixed order, as by address; in C++ both at once by std::scoped_lock";
    /// A wait for a condition variable with other locks held.
    pub(in crate::check) const HELD_IN_WAIT: &str =
        "unlock all but the wait's own mutex before the wait; or signal without those locks";
    /// Every thread waits, one of them for a condition variable.
    pub(in crate::check) const LOST_SIGNAL: &str = "change the condition with the mutex held, then signal; wait in a loop that looks at the condition before each \
         wait: a signal that comes before the wait is lost";
    /// Every thread waits, one of them at a barrier, none for a condition variable.
    pub(in crate::check) const BARRIER: &str =
        "initialise the barrier with the number of threads that come to it, and let each of them come";
    /// A lock that a thread waits for while it has it, and that cannot be recursive.
    pub(in crate::check) const NOT_RECURSIVE: &str =
        "call a function that expects the lock to be held; a lock of this kind cannot be recursive";
    /// A reader that waits to write.
    pub(in crate::check) const UPGRADE: &str = "unlock before you take the same lock to write, and look again at what you have read; or write from the start";
    /// A thread that waits for a semaphore of an array.
    pub(in crate::check) const ARRAY: &str =
        "take several semaphores by one call, or in one order; give back what others need before you wait";
    /// Locks taken against the numbers that the program gave them.
    pub(in crate::check) const AGAINST_NUMBERS: &str =
        "lock them with growing numbers, or give them other numbers (poundlock_check_order)";
}

/// The names of all kinds, each with a few words.
pub(crate) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    Kind::all().map(|kind| (kind.name(), kind.brief()))
}

/// What `--kind` is for.
pub(super) fn help() -> String {
    let names: Vec<&str> = Kind::all().map(Kind::name).collect();
    format!(
        "What to look for, with commas between: `all`, `-NAME` to leave one out, or any of {} [default: all but \
         lone-signal and nesting; blocking and held-long with --held-over]",
        names.join(", ")
    )
}

/// The kinds that are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted(Vec<Kind>);

impl Wanted {
    /// What a list says: names, `all`, and names to leave out with a hyphen in front. A list that begins with
    /// one of those leaves it out of what is looked for without a list.
    pub(super) fn parse(list: Option<&str>, held_over: bool) -> Result<Wanted, Failure> {
        let usual = || {
            let looked = |kind: &Kind| match kind.about().looked {
                Looked::Always => true,
                Looked::HeldOver => held_over,
                Looked::Named => false,
            };
            Kind::all().filter(looked).collect::<Vec<_>>()
        };
        let Some(list) = list else { return Ok(Wanted(usual())) };
        let mut kinds = if list.trim_start().starts_with('-') { usual() } else { Vec::new() };
        for word in list.split(',').map(str::trim) {
            let (out, name) = word.strip_prefix('-').map_or((false, word), |name| (true, name));
            let named: Vec<Kind> = match name {
                "all" => Kind::all().filter(|kind| held_over || !kind.needs_limit()).collect(),
                _ => vec![Kind::of_name(name).ok_or_else(|| unknown(name))?],
            };
            kinds.retain(|kind| !named.contains(kind));
            if !out {
                kinds.extend(named);
            }
        }
        kinds.sort_unstable();
        if let Some(kind) = kinds.iter().find(|kind| kind.needs_limit() && !held_over) {
            let line = format!("--kind {}: say how long a lock may be held, by --held-over MS", kind.name());
            return Err(Failure::new(status::USAGE, line));
        }
        if kinds.is_empty() {
            return Err(Failure::new(
                status::USAGE,
                format_args!("--kind {list}: this leaves nothing to look for"),
            ));
        }
        Ok(Wanted(kinds))
    }

    /// Looks for this one as well.
    pub(super) fn require(&mut self, kind: Kind) {
        if !self.has(kind) {
            self.0.push(kind);
        }
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }
}

impl Kind {
    fn needs_limit(self) -> bool {
        self.about().looked == Looked::HeldOver
    }
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = Kind::all().map(Kind::name).collect();
    let names = names.join(", ");
    Failure::new(
        status::USAGE,
        format_args!("--kind: unknown kind '{name}': choose from all, {names}; -NAME leaves one out"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_kinds() {
        for (place, about) in ABOUT.iter().enumerate() {
            assert_eq!(about.kind as usize, place, "{}", about.name);
            assert_eq!(Kind::of_name(about.name), Some(about.kind));
            assert!(!about.advice.ends_with('.') && about.full.ends_with('.'), "{}", about.name);
        }
    }

    #[test]
    fn lists_name_add_and_leave_out() {
        let parse = |list, held_over| Wanted::parse(list, held_over);
        let usual = parse(None, false).unwrap();
        assert!(usual.has(Kind::Order) && !usual.has(Kind::LoneSignal) && !usual.has(Kind::Blocking));
        assert!(parse(None, true).unwrap().has(Kind::HeldLong));
        assert_eq!(parse(Some("order,relock"), false).unwrap(), Wanted(vec![Kind::Order, Kind::Relock]));
        let without = parse(Some("-order"), false).unwrap();
        assert!(!without.has(Kind::Order) && without.has(Kind::Relock) && !without.has(Kind::Nesting));
        let all = parse(Some("all,-handler"), false).unwrap();
        assert!(all.has(Kind::LoneSignal) && !all.has(Kind::Handler) && !all.has(Kind::Blocking));
        assert!(parse(Some("all"), true).unwrap().has(Kind::Blocking));
    }

    #[test]
    fn what_cannot_be_is_said_in_one_line() {
        for (list, words) in [
            ("nonesuch", "nonesuch"),
            ("order,", "''"),
            ("", "''"),
            ("blocking", "--held-over"),
            ("order,-order", "nothing"),
        ] {
            let failure = Wanted::parse(Some(list), false).expect_err(list);
            assert_eq!(failure.status, 2);
            assert!(failure.line.contains(words) && !failure.line.contains('\n'), "{}", failure.line);
        }
    }
}
