//! The environment's settings for semaphore arrays, read once: `POUNDLOCK_SEMAPHORES` and
//! `POUNDLOCK_IPC_DIR`; and the kernel's limits.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use poundlock_core::semarray::{MOST_OPERATIONS, MOST_SEMAPHORES, Scheme};

use crate::domain::ARRAYS;
use crate::system;

/// Which arrays are ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// Arrays that no other user can open.
    #[default]
    Ours,
    /// All.
    All,
    /// None.
    Kernel,
}

impl Which {
    const EVERY: [Which; 3] = [Which::Ours, Which::All, Which::Kernel];

    /// The name by which people choose it.
    pub const fn name(self) -> &'static str {
        match self {
            Which::Ours => "ours",
            Which::All => "all",
            Which::Kernel => "kernel",
        }
    }
}

/// What `POUNDLOCK_SEMAPHORES` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Which arrays are ours.
    pub which: Which,
    /// How new ones of ours work.
    pub scheme: Scheme,
}

/// Reads a choice as users write it: `ours`, `all` or `kernel`, then perhaps a comma and a scheme. `None` if
/// it is invalid. A choice without a scheme has the default one.
///
/// ```
/// use poundlock_core::semarray::Scheme;
/// use poundlock_semarray::{Which, choose};
///
/// let choice = choose("all,before").unwrap();
/// assert_eq!((choice.which, choice.scheme), (Which::All, Scheme::Before));
/// assert_eq!(choose("ours").unwrap().scheme, Scheme::After);
/// assert!(choose("everything").is_none());
/// ```
pub fn choose(text: &str) -> Option<Choice> {
    let (which, scheme) = match text.split_once(',') {
        Some((which, scheme)) => (which, Scheme::parse(scheme)?),
        None => (text, Scheme::default()),
    };
    let which = Which::EVERY.into_iter().find(|known| known.name() == which)?;
    Some(Choice { which, scheme })
}

/// The choice: 0 before it is read, else 1 + 16 * which + scheme.
static CHOICE: AtomicU32 = AtomicU32::new(0);

/// The choice of this process. An environment that says nothing, or nothing that is known, means the default.
pub fn choice() -> Choice {
    let known = CHOICE.load(Relaxed);
    if known != 0 {
        return unpack(known);
    }
    let said = environment(c"POUNDLOCK_SEMAPHORES");
    let choice = said.and_then(|text| text.to_str().ok()).and_then(choose).unwrap_or_default();
    // A thread that reads it at the same time reads the same.
    CHOICE.store(pack(choice), Relaxed);
    choice
}

/// Overrules the environment, for arrays that this process makes from now on.
pub fn configure(choice: Choice) {
    CHOICE.store(pack(choice), Relaxed);
}

fn pack(choice: Choice) -> u32 {
    1 + 16 * choice.which as u32 + choice.scheme as u32
}

fn unpack(known: u32) -> Choice {
    let at = |index: u32| index as usize;
    Choice {
        which: Which::EVERY.get(at((known - 1) / 16)).copied().unwrap_or_default(),
        scheme: Scheme::ALL.get(at((known - 1) % 16)).copied().unwrap_or_default(),
    }
}

unsafe extern "C" {
    /// glibc's: null in a program that runs with another's rights.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// A variable of the environment. Nothing in a program with more rights than its caller, which wrote the
/// environment.
pub(crate) fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a string that ends in a zero. The result is the process's environment, which lives on; a
    // program must not change this variable while it is read for the first time, as with any `getenv`.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// Limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Semaphores in an array.
    pub(crate) semaphores: u32,
    /// Semaphores in all arrays.
    pub(crate) semaphores_in_all: u32,
    /// Operations in a call.
    pub(crate) operations: u32,
    /// Arrays.
    pub(crate) arrays: u32,
}

const OURS: Limits = Limits {
    semaphores: MOST_SEMAPHORES,
    semaphores_in_all: u32::MAX,
    operations: MOST_OPERATIONS as u32,
    arrays: ARRAYS as u32,
};

/// Every call needs this one: operations in a call. 0 before it is known.
static OPERATIONS: AtomicU32 = AtomicU32::new(0);
/// Semaphores in an array, and arrays.
static ARRAY_LIMITS: AtomicU64 = AtomicU64::new(0);
static IN_ALL: AtomicU32 = AtomicU32::new(0);

/// How many operations a call may have.
#[inline]
pub(crate) fn operations() -> u32 {
    match OPERATIONS.load(Relaxed) {
        0 => limits().operations,
        known => known,
    }
}

/// The kernel's limits when this process first asked, and ours where they are lower.
pub(crate) fn limits() -> Limits {
    let known = OPERATIONS.load(Acquire);
    if known != 0 {
        let arrays = ARRAY_LIMITS.load(Relaxed);
        return Limits {
            semaphores: (arrays >> 32) as u32,
            semaphores_in_all: IN_ALL.load(Relaxed),
            operations: known,
            arrays: arrays as u32,
        };
    }
    let mut buffer = [0; 128];
    let limits = match system::read_file(c"/proc/sys/kernel/sem", &mut buffer) {
        Ok(text) => parse(text),
        Err(_) => OURS,
    };
    ARRAY_LIMITS.store(u64::from(limits.semaphores) << 32 | u64::from(limits.arrays), Relaxed);
    IN_ALL.store(limits.semaphores_in_all, Relaxed);
    // Release: a thread that sees it sees the others.
    OPERATIONS.store(limits.operations, Release);
    limits
}

/// `SEMMSL SEMMNS SEMOPM SEMMNI`.
fn parse(text: &[u8]) -> Limits {
    let mut numbers = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(system::number);
    let mut next = |ours: u32| match numbers.next().flatten() {
        // No value may be 0 here: 0 means "not known" above, and a limit of 0 means that the kernel keeps all
        // arrays.
        Some(number) => u32::try_from(number).unwrap_or(u32::MAX).clamp(1, ours),
        None => ours,
    };
    Limits {
        semaphores: next(OURS.semaphores),
        semaphores_in_all: next(OURS.semaphores_in_all),
        operations: next(OURS.operations),
        arrays: next(OURS.arrays),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_kept_whole() {
        for which in Which::EVERY {
            for scheme in Scheme::ALL {
                let choice = Choice { which, scheme };
                assert_eq!(unpack(pack(choice)), choice);
            }
        }
    }

    #[test]
    fn choices_are_read_as_written() {
        assert_eq!(choose("kernel").map(|choice| choice.which), Some(Which::Kernel));
        assert_eq!(choose("ours,combining").map(|choice| choice.scheme), Some(Scheme::Combining));
        for wrong in ["", "Ours", "ours,", "ours,never", "after", "ours,after,before"] {
            assert_eq!(choose(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_kernels_limits_are_capped_by_ours() {
        assert_eq!(
            parse(b"32000\t1024000000\t500\t32000\n"),
            Limits { semaphores: 32000, semaphores_in_all: 1_024_000_000, operations: 500, arrays: 32000 }
        );
        assert_eq!(
            parse(b"100000 99999999999 1000 100000\n"),
            Limits { semaphores: 32000, semaphores_in_all: u32::MAX, operations: 500, arrays: 32768 }
        );
        assert_eq!(parse(b"250 32000 32 128").operations, 32);
        assert_eq!(parse(b""), OURS);
        assert_eq!(parse(b"250 x"), Limits { semaphores: 250, ..OURS });
    }

    #[test]
    fn limits_are_read_once() {
        let first = limits();
        assert_eq!(limits(), first);
        assert_eq!(operations(), first.operations);
        assert!(first.operations <= 500);
    }
}
