//! Semaphore arrays.

use core::ffi::c_int;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering::AcqRel, Ordering::Acquire};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use poundlock_core::platform::Deadline;
use poundlock_core::semarray::{MOST_VALUE, Op};
use poundlock_semarray as semarray;

use crate::time;

/// A System V key, by which unrelated processes agree on a set; not 0.
///
/// ```
/// use poundlock::Key;
///
/// assert_eq!(Key::new(0), None);
/// let of_file = Key::of_file("/", b'x').unwrap();
/// assert_eq!(of_file, Key::of_file("/", b'x').unwrap());
/// assert!(Key::of_file("/there/is/no/such/file", b'x').is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(i32);

impl Key {
    /// `None` for 0, which is no key.
    pub const fn new(key: i32) -> Option<Key> {
        if key == libc::IPC_PRIVATE { None } else { Some(Key(key)) }
    }

    /// As ftok(3): from an existing file and a letter. Two files may, rarely, have the same key.
    ///
    /// # Errors
    /// The file does not exist, or may not be looked up.
    pub fn of_file(path: impl AsRef<Path>, letter: u8) -> io::Result<Key> {
        let path = std::ffi::CString::new(path.as_ref().as_os_str().as_bytes())?;
        // SAFETY: a string that ends in a zero.
        match unsafe { libc::ftok(path.as_ptr(), letter.into()) } {
            -1 => Err(io::Error::last_os_error()),
            key => Key::new(key).ok_or(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// A change of one semaphore, as a part of a call that makes several at once.
///
/// ```
/// use poundlock::{Operation, SemaphoreSet};
///
/// static FORKS: SemaphoreSet = SemaphoreSet::new(&[1, 1, 1]);
///
/// // Both or none.
/// FORKS.operate(&[Operation::take(0, 1), Operation::take(2, 1)]).unwrap();
/// assert!(!FORKS.try_operate(&[Operation::take(1, 1), Operation::take(2, 1)]).unwrap());
/// assert_eq!(FORKS.values().unwrap(), [0, 1, 0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Operation(Op);

impl Operation {
    /// Waits until the value of the semaphore is at least `count`, and subtracts that.
    ///
    /// # Panics
    /// `count` is above 32,767.
    pub const fn take(semaphore: u16, count: u16) -> Operation {
        assert!(count as u32 <= MOST_VALUE, "a semaphore has no more than 32767 units");
        Operation(Op { num: semaphore, change: -(count as i16), flags: 0 })
    }

    /// Adds to the value of the semaphore.
    ///
    /// # Panics
    /// `count` is above 32,767.
    pub const fn give(semaphore: u16, count: u16) -> Operation {
        assert!(count as u32 <= MOST_VALUE, "a semaphore has no more than 32767 units");
        Operation(Op { num: semaphore, change: count as i16, flags: 0 })
    }

    /// Waits until the value of the semaphore is 0.
    pub const fn wait_for_zero(semaphore: u16) -> Operation {
        Operation(Op { num: semaphore, change: 0, flags: 0 })
    }

    /// Undone when the process ends, however it ends; `SEM_UNDO`. Give back with it what was taken with it.
    pub const fn undone_at_end(self) -> Operation {
        Operation(Op { flags: self.0.flags | Op::UNDO, ..self.0 })
    }
}

/// Semaphores of which several can be taken at once, all or none: System V's arrays, without a system call
/// unless a thread has to wait. docs/SEMARRAY.md says how it works, docs/use/SEMARRAY.md whom it trusts.
///
/// [`SemaphoreSet::new`] makes one for this process, in a constant. The processes of one user share sets with
/// a [`Key`]; programs under `poundlock run` find them by `semget`. They stay until they are removed. Both
/// lie in a directory in `/dev/shm`. Units that were taken with [`Operation::undone_at_end`] come back when
/// the process is killed. A forked child shares its parent's sets, which end with the parent.
///
/// What a thread did before it gave units happens before the return of the call that takes them. Not
/// async-signal-safe. A signal handler does not end a wait.
///
/// ```
/// use poundlock::SemaphoreSet;
///
/// /// Four at a time.
/// static JOBS: SemaphoreSet = SemaphoreSet::new(&[4]);
///
/// std::thread::scope(|scope| {
///     for _ in 0..20 {
///         scope.spawn(|| {
///             let _permit = JOBS.acquire(0, 1).unwrap();
///             assert!(JOBS.value(0).unwrap() < 4);
///         });
///     }
/// });
/// assert_eq!(JOBS.value(0).unwrap(), 4);
/// ```
///
/// # Errors
/// Of all methods that return a [`Result`](io::Result):
///
/// * [`InvalidInput`](io::ErrorKind::InvalidInput) (EINVAL, E2BIG, EFBIG): there is no such semaphore, there
///   are no operations or more than 500, or the set was removed before.
/// * EIDRM: it was removed meanwhile.
/// * ERANGE: a value would get above 32,767.
/// * EACCES, EPERM: it is another user's.
/// * ENOMEM, ENOSPC: there is no memory, or one of the tables is full.
/// * [`Unsupported`](io::ErrorKind::Unsupported): `POUNDLOCK_SEMAPHORES=kernel` forbids it, the kernel has an
///   array with that key, or `/dev/shm` is not to be written to.
pub struct SemaphoreSet {
    /// 0 before it is made.
    id: AtomicI32,
    /// For a set that is made when it is first used.
    initial: &'static [u16],
    shared: bool,
}

impl SemaphoreSet {
    /// A set for the threads of this process, with these values. It is made at its first use, and removed
    /// when it is dropped or the process ends.
    pub const fn new(initial: &'static [u16]) -> SemaphoreSet {
        SemaphoreSet { id: AtomicI32::new(0), initial, shared: false }
    }

    /// The key's set, or a new one with these values, which no process sees before it has them.
    ///
    /// ```
    /// use poundlock::{Key, SemaphoreSet};
    ///
    /// let key = Key::new(std::process::id() as i32).unwrap();
    /// let ours = SemaphoreSet::open_or_create(key, &[4]).unwrap();
    /// let theirs = SemaphoreSet::open(key).unwrap();
    /// let permit = ours.acquire(0, 1).unwrap();
    /// assert_eq!(theirs.value(0).unwrap(), 3);
    /// drop(permit);
    /// theirs.remove().unwrap();
    /// assert!(ours.acquire(0, 1).is_err());
    /// ```
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors); InvalidInput also if there is one with fewer semaphores.
    pub fn open_or_create(key: Key, initial: &[u16]) -> io::Result<SemaphoreSet> {
        SemaphoreSet::keyed(key, initial, libc::IPC_CREAT)
    }

    /// A new set for the key, with these values.
    ///
    /// ```
    /// use poundlock::{Key, SemaphoreSet};
    ///
    /// let key = Key::new(std::process::id() as i32 + 1).unwrap();
    /// let ours = SemaphoreSet::create(key, &[4]).unwrap();
    /// let error = SemaphoreSet::create(key, &[4]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    /// ours.remove().unwrap();
    /// ```
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors); AlreadyExists if the key has a set.
    pub fn create(key: Key, initial: &[u16]) -> io::Result<SemaphoreSet> {
        SemaphoreSet::keyed(key, initial, libc::IPC_CREAT | libc::IPC_EXCL)
    }

    /// The key's set.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors); NotFound if the key has no set.
    pub fn open(key: Key) -> io::Result<SemaphoreSet> {
        SemaphoreSet::keyed(key, &[], 0)
    }

    fn keyed(key: Key, values: &[u16], flags: c_int) -> io::Result<SemaphoreSet> {
        let id = make(key.0, values, flags)?;
        Ok(SemaphoreSet { id: AtomicI32::new(id), initial: &[], shared: true })
    }

    /// The System V id, by which `poundlock ipcs` lists it.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors).
    pub fn id(&self) -> io::Result<i32> {
        match self.id.load(Acquire) {
            0 => self.first_use(),
            id => Ok(id),
        }
    }

    #[cold]
    fn first_use(&self) -> io::Result<i32> {
        let made = make(libc::IPC_PRIVATE, self.initial, 0)?;
        match self.id.compare_exchange(0, made, AcqRel, Acquire) {
            Ok(_) => Ok(made),
            Err(first) => {
                // No other process knows of it.
                let _ = semarray::remove(made);
                Ok(first)
            }
        }
    }

    /// Applies all operations at once, as soon as that is possible.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors). Nothing has been done.
    pub fn operate(&self, operations: &[Operation]) -> io::Result<()> {
        self.operate_before(operations, None).map(drop)
    }

    /// Applies all operations if that is possible without waiting. Returns whether it did.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors). Nothing has been done.
    pub fn try_operate(&self, operations: &[Operation]) -> io::Result<bool> {
        self.operate_for(operations, Duration::ZERO)
    }

    /// Applies all operations as soon as that is possible, and gives up after that long. Returns whether it
    /// did.
    ///
    /// ```
    /// use std::time::Duration;
    /// use poundlock::{Operation, SemaphoreSet};
    ///
    /// static EMPTY: SemaphoreSet = SemaphoreSet::new(&[0]);
    /// assert!(!EMPTY.operate_for(&[Operation::take(0, 1)], Duration::from_millis(1)).unwrap());
    /// ```
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors). Nothing has been done.
    pub fn operate_for(&self, operations: &[Operation], timeout: Duration) -> io::Result<bool> {
        self.operate_before(operations, Some(&time::after(timeout)))
    }

    /// As [`SemaphoreSet::operate_for`], but with a point in time.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors). Nothing has been done.
    pub fn operate_until(&self, operations: &[Operation], timeout: Instant) -> io::Result<bool> {
        self.operate_before(operations, Some(&time::at(timeout)))
    }

    fn operate_before(&self, operations: &[Operation], deadline: Option<&Deadline>) -> io::Result<bool> {
        // SAFETY: an `Operation` is an `Op`.
        let operations = unsafe { &*(ptr::from_ref(operations) as *const [Op]) };
        semarray::operate_until(self.id()?, operations, deadline).map_err(io::Error::from_raw_os_error)
    }

    /// Takes `count` units of a semaphore, which come back when the permit is dropped or the process ends.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors).
    ///
    /// # Panics
    /// `count` is above 32,767.
    pub fn acquire(&self, semaphore: u16, count: u16) -> io::Result<Permit<'_>> {
        self.operate(&[Operation::take(semaphore, count).undone_at_end()])?;
        Ok(Permit { set: self, semaphore, count })
    }

    /// As [`SemaphoreSet::acquire`] if that is possible without waiting, else `None`.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors).
    ///
    /// # Panics
    /// `count` is above 32,767.
    pub fn try_acquire(&self, semaphore: u16, count: u16) -> io::Result<Option<Permit<'_>>> {
        self.acquire_for(semaphore, count, Duration::ZERO)
    }

    /// As [`SemaphoreSet::acquire`], or `None` after that long.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors).
    ///
    /// # Panics
    /// `count` is above 32,767.
    pub fn acquire_for(
        &self,
        semaphore: u16,
        count: u16,
        timeout: Duration,
    ) -> io::Result<Option<Permit<'_>>> {
        let taken = self.operate_for(&[Operation::take(semaphore, count).undone_at_end()], timeout)?;
        // Made only now: a permit that is dropped gives.
        Ok(taken.then(|| Permit { set: self, semaphore, count }))
    }

    /// The value of one semaphore, at one moment.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors).
    pub fn value(&self, semaphore: u16) -> io::Result<u16> {
        semarray::value(self.id()?, semaphore).map_err(io::Error::from_raw_os_error)
    }

    /// The values of all semaphores, at one moment.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors).
    pub fn values(&self) -> io::Result<Vec<u16>> {
        let mut values = vec![0u16; self.len()?];
        semarray::values(self.id()?, &mut values).map_err(io::Error::from_raw_os_error)?;
        Ok(values)
    }

    /// Sets all values, and forgets all that was to be undone.
    ///
    /// ```
    /// use poundlock::SemaphoreSet;
    ///
    /// static PAIR: SemaphoreSet = SemaphoreSet::new(&[1, 2]);
    /// PAIR.set_values(&[3, 4]).unwrap();
    /// assert_eq!(PAIR.values().unwrap(), [3, 4]);
    /// assert!(PAIR.set_values(&[3]).is_err());
    /// ```
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors); InvalidInput also if there are not as many values as semaphores.
    pub fn set_values(&self, values: &[u16]) -> io::Result<()> {
        if values.len() != self.len()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not as many values as semaphores"));
        }
        semarray::set_values(self.id()?, values).map_err(io::Error::from_raw_os_error)
    }

    /// How many semaphores there are; never 0.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors).
    #[expect(clippy::len_without_is_empty, reason = "there is no empty set")]
    pub fn len(&self) -> io::Result<usize> {
        semarray::length(self.id()?).map_err(io::Error::from_raw_os_error)
    }

    /// Removes the set, for all processes: threads that wait get an error.
    ///
    /// # Errors
    /// [The type's](SemaphoreSet#errors).
    pub fn remove(&self) -> io::Result<()> {
        semarray::remove(self.id()?).map(drop).map_err(io::Error::from_raw_os_error)
    }
}

/// The id of a private array of this user.
fn make(key: i32, values: &[u16], flags: c_int) -> io::Result<i32> {
    semarray::find_or_make(key, flags, values).map_err(io::Error::from_raw_os_error)
}

impl Drop for SemaphoreSet {
    fn drop(&mut self) {
        let id = *self.id.get_mut();
        // In a forked child it is the parent's.
        if !self.shared && id != 0 {
            let _ = semarray::close(id);
        }
    }
}

impl fmt::Debug for SemaphoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values().ok();
        f.debug_struct("SemaphoreSet").field("values", &values).finish_non_exhaustive()
    }
}

/// Units of a semaphore, given back when it is dropped.
///
/// ```
/// use poundlock::SemaphoreSet;
///
/// static SEATS: SemaphoreSet = SemaphoreSet::new(&[2]);
///
/// let permit = SEATS.acquire(0, 2).unwrap();
/// assert!(SEATS.try_acquire(0, 1).unwrap().is_none());
/// drop(permit);
/// assert!(SEATS.try_acquire(0, 1).unwrap().is_some());
/// ```
#[derive(Debug)]
#[must_use = "units are given back when the permit is dropped"]
pub struct Permit<'a> {
    set: &'a SemaphoreSet,
    semaphore: u16,
    count: u16,
}

impl Permit<'_> {
    /// Keeps the units: dropping gives none back. They still come back when this process ends.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        // Removed or set anew meanwhile: there is nothing to give back.
        let _ = self.set.operate(&[Operation::give(self.semaphore, self.count).undone_at_end()]);
    }
}
