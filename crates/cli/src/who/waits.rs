//! What a thread waits for: told by the system call that it is in, by the functions on its stack, and by what
//! lies in memory where it waits.

use std::rc::Rc;

use serde::Serialize;

use super::ours::Registry;
use crate::observe::calls::{self, Call, FutexWait};
use crate::observe::symbols::{Frame as Named, Space, is_libc};
use crate::remote::unwind::Frame;
use crate::remote::{Memory, Thread};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Mutex,
    /// A readers-writer lock, by a reader.
    RwRead,
    /// The same, by a writer.
    RwWrite,
    Condition,
    Semaphore,
    Barrier,
    /// The end of a thread.
    Join,
    Once,
    Spinlock,
    /// The lock of a stream of stdio.
    Stream,
    /// A lock inside the C library.
    Internal,
    /// A thread's own place to sleep at: it waits to be told.
    Park,
    SemaphoreArray,
    Futex,
}

impl Kind {
    pub(super) fn noun(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::RwRead | Kind::RwWrite => "readers-writer lock",
            Kind::Condition => "condition variable",
            Kind::Semaphore => "semaphore",
            Kind::Barrier => "barrier",
            Kind::Join => "the end of a thread",
            Kind::Once => "pthread_once",
            Kind::Spinlock => "spinlock",
            Kind::Stream => "lock of a stdio stream",
            Kind::Internal => "lock inside the C library",
            Kind::Park => "place where a thread parks",
            Kind::SemaphoreArray => "semaphore array",
            Kind::Futex => "futex",
        }
    }

    /// Whether it is a lock, rather than something that is waited for until it happens.
    pub(super) fn is_lock(self) -> bool {
        matches!(
            self,
            Kind::Mutex
                | Kind::RwRead
                | Kind::RwWrite
                | Kind::Once
                | Kind::Spinlock
                | Kind::Stream
                | Kind::Internal
        )
    }
}

/// Whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Maker {
    Glibc,
    Musl,
    /// Ours, under `poundlock run` or `stat`.
    Poundlock,
    RustStd,
    ParkingLot,
    Go,
    Kernel,
    Unknown,
}

impl Maker {
    #[allow(non_upper_case_globals)]
    pub(super) const Ours: Maker = Maker::Poundlock;

    pub(super) fn adjective(self) -> &'static str {
        match self {
            Maker::Glibc => "glibc's",
            Maker::Musl => "musl's",
            Maker::Poundlock => "Poundlock's",
            Maker::RustStd => "Rust std's",
            Maker::ParkingLot => "parking_lot's",
            Maker::Go => "the Go runtime's",
            Maker::Kernel => "the kernel's",
            Maker::Unknown => "",
        }
    }
}

/// Who holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The thread of this id, as its own process has it.
    Thread(u32),
    /// These threads.
    Threads(Vec<u32>),
    /// So many readers, who are not recorded.
    Readers(u32),
    /// It is free, or about to be.
    Nobody,
    /// A thread that has ended, with its id and name if they are recorded: nobody will release it.
    Ended(Option<(u32, String)>),
    /// It does not say, and why.
    Unknown(&'static str),
    /// It is nothing that is held.
    NotHeld,
}

/// What was found out about a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The object's address; 0 if it was not found.
    pub(super) object: u64,
    /// The word that the thread sleeps on; 0 if there is none.
    pub(super) word: u64,
    pub(super) kind: Kind,
    pub(super) maker: Maker,
    /// Of a condition variable: the mutex that the waiter gave up.
    pub(super) mutex: Option<u64>,
    /// Nothing says what it is, but it looks like that.
    pub(super) looks: bool,
    /// The holder, where the wait itself tells.
    pub(super) told: Option<Holder>,
}

impl Found {
    pub(super) fn new(object: u64, word: u64, kind: Kind, maker: Maker) -> Found {
        Found { object, word, kind, maker, mutex: None, looks: false, told: None }
    }
}

/// The functions of a frame.
pub(super) type Names = Rc<[Named]>;

/// What is needed to find out.
pub(super) struct Finder<'a, M: Memory> {
    pub(super) memory: &'a M,
    pub(super) space: &'a Space<'a>,
    pub(super) registry: Option<Registry>,
    /// The ids of the threads, as their own process has them.
    pub(super) ids: Vec<u32>,
    /// Their thread pointers, as far as known, with their ids.
    pub(super) pointers: Vec<(u64, u32)>,
}

/// Only the innermost functions tell; of `pthread_once` those that may lie between it and its own futex call.
const INNER: usize = 14;
const ONCE: usize = 3;

/// glibc: `FUTEX_TID_MASK`.
const TID: u32 = 0x3fff_ffff;
/// glibc's mutexes: offsets and bits.
const OWNER: u64 = 8;
const KIND: u64 = 16;
const ROBUST: u32 = 0x10;
const INHERITS: u32 = 0x20;
/// glibc's readers-writer locks.
const PHASE_WORD: u64 = 8;
const WRITERS_WORD: u64 = 12;
const WRITER: u64 = 24;

impl<M: Memory> Finder<'_, M> {
    /// What a thread with this stack waits for. `None` if it does not wait for other threads.
    pub(super) fn wait(&self, thread: &Thread, frames: &[Frame]) -> Option<Found> {
        let call = thread.call()?;
        if matches!(call.number, libc::SYS_semop | libc::SYS_semtimedop) {
            return Some(Found {
                told: Some(Holder::Unknown("the kernel does not say who took a semaphore")),
                ..Found::new(call.arguments[0], 0, Kind::SemaphoreArray, Maker::Kernel)
            });
        }
        let futex = call.futex().or_else(|| self.first_of_many(call))?;
        let functions: Vec<Names> =
            frames.iter().take(INNER).map(|frame| self.space.call(frame.at)).collect();
        let own = self.ours(&futex, thread, frames);
        own.or_else(|| self.joined(&futex, thread))
            .or_else(|| self.by_function(&futex, thread, frames, &functions))
            .or_else(|| self.by_looks(&futex, &functions))
            .or_else(|| {
                let why = Holder::Unknown("only its own program knows who holds it");
                Some(Found {
                    told: Some(why),
                    ..Found::new(futex.word, futex.word, Kind::Futex, Maker::Unknown)
                })
            })
    }

    /// Of a wait for several futexes, the first.
    fn first_of_many(&self, call: &Call) -> Option<FutexWait> {
        if call.number != calls::FUTEX_WAITV {
            return None;
        }
        let (expected, word) =
            (self.memory.long(call.arguments[0])?, self.memory.long(call.arguments[0] + 8)?);
        Some(FutexWait { word, expected: expected as u32, inherits: false })
    }

    fn ours(&self, futex: &FutexWait, thread: &Thread, frames: &[Frame]) -> Option<Found> {
        let registry = self.registry.as_ref()?;
        // Of our library's frames and the caller's.
        let is_library = |frame: &&Frame| {
            self.space.call(frame.at).last().is_some_and(|named| named.module.starts_with("libpoundlock"))
        };
        let library = frames.iter().rposition(|frame| is_library(&frame)).unwrap_or(0);
        // What our library keeps on the stack itself is no lock.
        let own = thread.sp()..frames.get(library).map_or(0, |frame| frame.end);
        registry.wait(futex.word, &candidates(thread, frames, library + 1), &own, self.memory)
    }

    /// The kernel clears a word of a thread, its id, as it ends; who joins waits for that.
    fn joined(&self, futex: &FutexWait, thread: &Thread) -> Option<Found> {
        let id = futex.expected;
        // Locks have small numbers in their words.
        const SMALL: u32 = 8;
        if futex.inherits || id == thread.inner || id < SMALL || !self.ids.contains(&id) {
            return None;
        }
        let of_it = |&&(pointer, of): &&(u64, u32)| of == id && futex.word.abs_diff(pointer) < 0x1000;
        // In the thread's own descriptor; or what is not known must at least say the same.
        let known = self.pointers.iter().any(|(_, of)| *of == id);
        let here = self.pointers.iter().any(|pointer| of_it(&pointer));
        let says = self.memory.word(futex.word) == Some(id);
        (if known { here } else { says }).then(|| Found {
            told: Some(Holder::Thread(id)),
            ..Found::new(futex.word, futex.word, Kind::Join, Maker::Glibc)
        })
    }

    fn by_function(
        &self,
        futex: &FutexWait,
        thread: &Thread,
        frames: &[Frame],
        functions: &[Names],
    ) -> Option<Found> {
        let word = futex.word;
        let new = |object: u64, kind, maker| Some(Found::new(object, word, kind, maker));
        let of_musl = functions.iter().flat_map(|names| names.iter()).any(|named| {
            named.module.contains("musl") || matches!(bare(&named.function), "timedwait_cp" | "timedwait")
        });
        for (depth, names) in functions.iter().enumerate() {
            for named in names.iter() {
                let Some(said) = said_by(&named.function, futex.expected, of_musl) else { continue };
                // What runs once may wait for anything: it is not for the end of that that this thread waits.
                if said.kind == Kind::Once && said.maker == Maker::Glibc && depth > ONCE {
                    continue;
                }
                return match (said.maker, said.kind) {
                    // What is waited for is noted beside the word, which is the thread's own.
                    (Maker::ParkingLot, kind) => {
                        let key = self.parked_for(word, kind, thread, frames, depth);
                        new(key.unwrap_or(0), kind, said.maker)
                    }
                    (Maker::Glibc, Kind::Condition) => Some(self.condition(word, thread, frames, depth)),
                    (Maker::Glibc, Kind::Internal) => Some(self.stream(word)),
                    (maker, kind) => new(word.wrapping_sub(said.before), kind, maker),
                };
            }
        }
        None
    }

    /// The condition variable and its mutex: glibc's wait keeps their addresses side by side, for the case
    /// that the thread is cancelled. The word is in the condition variable; or it is the mutex, which a
    /// waiter that was signalled takes again.
    fn condition(&self, word: u64, thread: &Thread, frames: &[Frame], depth: usize) -> Found {
        // Where its groups count their signals, in all versions since 2.25.
        const WORDS: std::ops::RangeInclusive<u64> = 32..=44;
        const SIZE: u64 = 48;
        let from = thread.sp() & !7;
        let to = frames.get(depth).map_or(from, |frame| frame.end);
        let pair = (from..to).step_by(8).find_map(|at| {
            let (cond, mutex) = (thread.stack.long(at)?, thread.stack.long(at + 8)?);
            let is_cond = cond != 0 && WORDS.contains(&word.wrapping_sub(cond));
            let apart = mutex >= cond.wrapping_add(SIZE) || cond >= mutex.wrapping_add(40);
            let fits = |mutex: u64| self.memory.word(mutex + KIND).is_some_and(|kind| kind < 0x400);
            let plausible = mutex > 0xffff && mutex.is_multiple_of(4) && apart && fits(mutex);
            let again = mutex == word && cond > 0xffff && cond.is_multiple_of(4) && apart && fits(mutex);
            ((is_cond && plausible) || again).then_some((cond, mutex))
        });
        match pair {
            Some((_, mutex)) if mutex == word => Found::new(mutex, word, Kind::Mutex, Maker::Glibc),
            Some((cond, mutex)) => {
                Found { mutex: Some(mutex), ..Found::new(cond, word, Kind::Condition, Maker::Glibc) }
            }
            None => {
                // A register may have it where the pair is not to be found.
                let near = candidates(thread, frames, depth);
                let cond = near.into_iter().find(|&at| WORDS.contains(&word.wrapping_sub(at)) && at % 8 == 0);
                Found::new(cond.unwrap_or(0), word, Kind::Condition, Maker::Glibc)
            }
        }
    }

    /// A lock of the C library's own. That of a stream has its owner's thread pointer behind it.
    fn stream(&self, word: u64) -> Found {
        let owner = self.memory.long(word + 8).filter(|&owner| owner != 0);
        let owner = owner.and_then(|owner| self.pointers.iter().find(|(pointer, _)| *pointer == owner));
        match owner {
            Some((_, id)) => Found {
                told: Some(Holder::Thread(*id)),
                ..Found::new(word, word, Kind::Stream, Maker::Glibc)
            },
            None => Found::new(word, word, Kind::Internal, Maker::Glibc),
        }
    }

    /// The lock that a thread of parking_lot parks for: among the words around its own, one that is also on
    /// the stack, and that is the address of a lock which says that threads are parked.
    fn parked_for(
        &self,
        word: u64,
        kind: Kind,
        thread: &Thread,
        frames: &[Frame],
        depth: usize,
    ) -> Option<u64> {
        const AROUND: u64 = 64;
        // Of a readers-writer lock, bit 0: readers and writers; bit 1, and the next address: a writer that
        // waits for readers.
        let (parked, exact) = match kind {
            Kind::Mutex => (2, u64::MAX),
            Kind::RwRead | Kind::RwWrite => (3, !3),
            _ => (u8::MAX, u64::MAX),
        };
        let on_stack = addresses(thread, frames, depth + 1);
        let from = word.saturating_sub(AROUND) & !7;
        (from..from + 2 * AROUND).step_by(8).find_map(|at| {
            let key = self.memory.long(at)? & exact;
            let mut state = [0];
            let fits = key > 0xffff
                && key.abs_diff(word) > 2 * AROUND
                && on_stack.contains(&key)
                && self.memory.read(key, &mut state) == 1
                && state[0] & parked != 0;
            fits.then_some(key)
        })
    }

    /// Where no function has a name: what lies there looks like a mutex, a semaphore or a stream of glibc.
    fn by_looks(&self, futex: &FutexWait, functions: &[Names]) -> Option<Found> {
        let innermost = functions.first()?.first()?;
        let is_libc = is_libc(&innermost.module);
        // In a static program the C library's functions are the program's.
        let nameless =
            functions.iter().take(3).all(|names| names.iter().all(|named| named.function.is_empty()));
        let is_wait = bare(&innermost.function) == "lll_lock_wait";
        if !(is_libc || nameless || is_wait || futex.inherits) {
            return None;
        }
        let word = futex.word;
        let looks = |kind| Some(Found { looks: true, ..Found::new(word, word, kind, Maker::Glibc) });
        let now = self.memory.word(word)?;
        let kind = self.memory.word(word + KIND).unwrap_or(u32::MAX);
        if futex.inherits {
            return Some(Found::new(word, word, Kind::Mutex, Maker::Glibc));
        }
        let stream = self.stream(word);
        if futex.expected == 2 && stream.kind == Kind::Stream {
            return Some(Found { looks: true, ..stream });
        }
        let owner = self.memory.word(word + OWNER).unwrap_or(0);
        let is_mutex = futex.expected == 2 && kind < 0x400 && self.ids.contains(&owner);
        let is_robust = kind & ROBUST != 0 && kind < 0x400 && self.ids.contains(&(now & TID));
        if is_mutex || is_robust {
            return looks(Kind::Mutex);
        }
        // How many wait, and whether processes share it.
        let waiters = self.memory.word(word + 4)?;
        let private = self.memory.word(word + 8)?;
        let is_semaphore = now == 0 && futex.expected == 0 && waiters > 0 && matches!(private, 0 | 128);
        if is_semaphore && (waiters as usize) <= self.ids.len() {
            return looks(Kind::Semaphore);
        }
        None
    }

    /// Who holds what is waited for, now.
    pub(super) fn holder(&self, found: &Found) -> Holder {
        const LANGUAGE: &str = "a lock of the language does not say who holds it";
        if let Some(told) = &found.told {
            return told.clone();
        }
        if found.maker == Maker::Poundlock {
            let registry = self.registry.as_ref();
            return registry
                .map_or(Holder::NotHeld, |registry| registry.holder(found.kind, found.object, self.memory));
        }
        let at = |offset: u64| self.memory.word(found.object.wrapping_add(offset)).unwrap_or(0);
        match (found.maker, found.kind) {
            (Maker::Glibc, Kind::Mutex) => {
                let owner = owner_in_glibc(self.memory, found.kind, found.object);
                owner.map_or(Holder::Nobody, Holder::Thread)
            }
            (Maker::Glibc, Kind::RwRead | Kind::RwWrite) => {
                let readers = at(0);
                // Bit 0: it is the writers' turn.
                match (owner_in_glibc(self.memory, found.kind, found.object), readers >> 3) {
                    (Some(writer), _) => Holder::Thread(writer),
                    (None, 0) => Holder::Nobody,
                    (None, _) if readers & 1 != 0 => Holder::Nobody,
                    (None, count) => Holder::Readers(count),
                }
            }
            (Maker::Musl, Kind::Mutex) => {
                // The type is the first word; a plain one does not say whose it is.
                if at(0) & 3 == 0 {
                    return Holder::Unknown("a plain mutex of musl does not say who holds it");
                }
                match at(4) & TID {
                    0 => Holder::Nobody,
                    owner => Holder::Thread(owner),
                }
            }
            (Maker::Musl, Kind::RwRead | Kind::RwWrite) => match at(0) & 0x7fff_ffff {
                0 => Holder::Nobody,
                0x7fff_ffff => Holder::Unknown("a writer, whom musl does not record"),
                readers => Holder::Readers(readers),
            },
            (Maker::RustStd, Kind::RwRead | Kind::RwWrite) => {
                const MASK: u32 = (1 << 30) - 1;
                match at(0) & MASK {
                    0 => Holder::Nobody,
                    MASK => Holder::Unknown("a writer, whom Rust's std does not record"),
                    readers => Holder::Readers(readers),
                }
            }
            (Maker::RustStd | Maker::ParkingLot, kind) if kind.is_lock() => Holder::Unknown(LANGUAGE),
            (Maker::Unknown, _) | (_, Kind::Internal | Kind::Once | Kind::Spinlock) => {
                Holder::Unknown("it does not say who holds it")
            }
            _ => Holder::NotHeld,
        }
    }
}

/// The thread that a lock of glibc's names as its owner: mutexes of all kinds do, readers-writer locks name
/// the writer. The id is the one in the process's own namespace.
pub(crate) fn owner_in_glibc(memory: &impl Memory, kind: Kind, object: u64) -> Option<u32> {
    let at = |offset: u64| memory.word(object.wrapping_add(offset)).unwrap_or(0);
    let owner = match kind {
        Kind::Mutex => match (at(0), at(KIND)) {
            (0, _) => 0,
            (lock, kind) if kind & (ROBUST | INHERITS) != 0 => lock & TID,
            _ => at(OWNER),
        },
        Kind::RwRead | Kind::RwWrite => at(WRITER),
        _ => 0,
    };
    (owner != 0).then_some(owner)
}

/// Numbers in a thread's registers and in the frames of its first functions that may be addresses.
fn addresses(thread: &Thread, frames: &[Frame], functions: usize) -> Vec<u64> {
    let from = thread.sp() & !7;
    let to = frames.get(functions.min(frames.len().saturating_sub(1))).map_or(from, |frame| frame.end);
    let kept = thread.registers.iter().flat_map(|registers| registers.kept.iter().copied());
    let words = (from..to.min(thread.stack.end())).step_by(8).filter_map(|at| thread.stack.long(at));
    kept.chain(words).filter(|&at| at > 0xffff).collect()
}

/// Those that locks of C may have.
fn candidates(thread: &Thread, frames: &[Frame], functions: usize) -> Vec<u64> {
    let mut all = addresses(thread, frames, functions);
    all.retain(|at| at.is_multiple_of(4));
    all.dedup();
    all
}

/// A function's name without what libraries put around it.
fn bare(function: &str) -> &str {
    let name = function.split('@').next().unwrap_or_default().trim_start_matches('_');
    // What the library calls itself by.
    let name = name.strip_prefix("GI_").map_or(name, |name| name.trim_start_matches('_'));
    let end = [".part.", ".constprop.", ".isra.", ".cold"].iter().filter_map(|part| name.find(part)).min();
    &name[..end.unwrap_or(name.len())]
}

/// What the name of a function says of the futex that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) kind: Kind,
    pub(crate) maker: Maker,
    /// So far before the word the object begins, where both are in one.
    pub(crate) before: u64,
}

/// What the function says that waits, if it is one of a language's or of the C library's. `expected` is what
/// the word was to be.
pub(crate) fn said_by(function: &str, expected: u32, of_musl: bool) -> Option<Said> {
    let by_language = |(kind, maker, before)| Said { kind, maker, before };
    by_language_of(function).map(by_language).or_else(|| {
        let kind = known(bare(function))?;
        let (maker, before) = match (of_musl, kind) {
            (true, Kind::Mutex) => (Maker::Musl, 4),
            (true, _) => (Maker::Musl, 0),
            (_, Kind::RwRead) if expected == 3 => (Maker::Glibc, PHASE_WORD),
            (_, Kind::RwWrite) if expected == 3 => (Maker::Glibc, WRITERS_WORD),
            (_, Kind::RwWrite) => (Maker::Glibc, PHASE_WORD),
            // `current_round` comes behind `in`.
            (_, Kind::Barrier) => (Maker::Glibc, 4),
            _ => (Maker::Glibc, 0),
        };
        Some(Said { kind, maker, before })
    })
}

/// Locks of languages, by the names of their functions; and how far each begins before its word.
fn by_language_of(function: &str) -> Option<(Kind, Maker, u64)> {
    // `<std::sys::sync::mutex::futex::Mutex>::lock_contended`
    let plain = function.replace(['<', '>'], "");
    let has = |part: &str| plain.contains(part);
    let one_of = |all: &[(&str, Kind, u64)], maker| {
        let found = all.iter().find(|(part, ..)| has(part));
        found.map(|&(_, kind, before)| (kind, maker, before))
    };
    const RUST: &[(&str, Kind, u64)] = &[
        ("Mutex::lock_contended", Kind::Mutex, 0),
        ("RwLock::read_contended", Kind::RwRead, 0),
        // The second word is where writers sleep.
        ("RwLock::write_contended", Kind::RwWrite, 4),
        ("Condvar::wait", Kind::Condition, 0),
        ("Once::call", Kind::Once, 0),
        ("Once::wait", Kind::Once, 0),
        ("Parker::park", Kind::Park, 0),
    ];
    const PARKING_LOT: &[(&str, Kind, u64)] = &[
        ("lock_shared_slow", Kind::RwRead, 0),
        ("lock_exclusive_slow", Kind::RwWrite, 0),
        ("lock_upgradable_slow", Kind::RwWrite, 0),
        ("RawRwLock::upgrade_slow", Kind::RwWrite, 0),
        ("RawMutex::lock_slow", Kind::Mutex, 0),
        ("Condvar::wait", Kind::Condition, 0),
        ("Once::call_once_slow", Kind::Once, 0),
    ];
    if matches!(function, "runtime.futex" | "runtime.futex.abi0") {
        return Some((Kind::Park, Maker::Go, 0));
    }
    let of_std = has("std::sys") || has("std::thread::park");
    let of_std = of_std.then(|| one_of(RUST, Maker::RustStd)).flatten();
    of_std.or_else(|| has("parking_lot").then(|| one_of(PARKING_LOT, Maker::ParkingLot)).flatten())
}

/// What a function of the C library waits for: one that is exported, or one inside of it that such a function
/// ends with (`pthread_mutex_clocklock_common`).
fn known(name: &str) -> Option<Kind> {
    const KNOWN: &[(&str, &[&str], Kind)] = &[
        ("pthread_mutex_", &["lock", "timedlock", "clocklock", "cond_lock"], Kind::Mutex),
        ("mtx_", &["lock", "timedlock"], Kind::Mutex),
        ("pthread_rwlock_", &["rdlock", "timedrdlock", "clockrdlock"], Kind::RwRead),
        ("pthread_rwlock_", &["wrlock", "timedwrlock", "clockwrlock"], Kind::RwWrite),
        ("pthread_cond_", &["wait", "timedwait", "clockwait"], Kind::Condition),
        ("cnd_", &["wait", "timedwait"], Kind::Condition),
        ("sem_", &["wait", "timedwait", "clockwait"], Kind::Semaphore),
        ("new_sem_", &["wait"], Kind::Semaphore),
        ("pthread_barrier_", &["wait"], Kind::Barrier),
        ("pthread_", &["join", "timedjoin", "clockjoin"], Kind::Join),
        ("thrd_", &["join"], Kind::Join),
        ("pthread_", &["once"], Kind::Once),
        ("call_", &["once"], Kind::Once),
        ("pthread_spin_", &["lock"], Kind::Spinlock),
        ("lll_lock_", &["wait_private"], Kind::Internal),
        ("", &["flockfile"], Kind::Internal),
    ];
    let is = |rest: &str, verb: &&str| {
        rest.strip_prefix(verb).is_some_and(|end| end.is_empty() || end.starts_with(['_', '.']))
    };
    let found = KNOWN.iter().find(|(object, verbs, _)| {
        name.strip_prefix(object).is_some_and(|rest| verbs.iter().any(|verb| is(rest, verb)))
    });
    found.map(|(.., kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_whatever_their_library_calls_them() {
        for name in ["pthread_mutex_lock", "___pthread_mutex_lock", "__pthread_mutex_lock@@GLIBC_2.2.5"] {
            assert_eq!(known(bare(name)), Some(Kind::Mutex), "{name}");
        }
        for (name, kind) in [
            ("__new_sem_wait_slow64.constprop.0", Kind::Semaphore),
            ("__pthread_mutex_clocklock_common", Kind::Mutex),
            ("__pthread_mutex_lock_full", Kind::Mutex),
            ("__pthread_clockjoin_ex", Kind::Join),
            ("__GI___lll_lock_wait_private", Kind::Internal),
            ("__pthread_rwlock_rdlock_full64", Kind::RwRead),
        ] {
            assert_eq!(known(bare(name)), Some(kind), "{name}");
        }
        for name in ["pthread_mutex_unlock", "pthread_create", "sem_post", "lll_lock_wait", "worker_join", ""]
        {
            assert_eq!(known(bare(name)), None, "{name}");
        }
    }
}
