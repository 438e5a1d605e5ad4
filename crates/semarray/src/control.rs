//! `semctl`.

use core::ffi::c_int;
use core::ptr;

use poundlock_core::semarray::{MOST_VALUE, Settings};

use crate::domain::{self, Domain};
use crate::system::Scratch;
use crate::table::{self, Entered};
use crate::{Errno, config, errno, make, process, rights, user};

/// `struct semid_ds` as 64-bit kernels have it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    key: i32,
    uid: u32,
    gid: u32,
    cuid: u32,
    cgid: u32,
    /// 16 bits and padding in C; the kernel reads and writes 32.
    mode: u32,
    sequence: u16,
    _pad: u16,
    _unused: [u64; 2],
    operated: i64,
    #[cfg(target_arch = "x86_64")]
    _unused_operated: u64,
    changed: i64,
    #[cfg(target_arch = "x86_64")]
    _unused_changed: u64,
    semaphores: u64,
    _unused_end: [u64; 2],
}

const _: () = {
    assert!(size_of::<Status>() == size_of::<libc::semid_ds>());
    assert!(core::mem::offset_of!(Status, operated) == core::mem::offset_of!(libc::semid_ds, sem_otime));
    assert!(core::mem::offset_of!(Status, changed) == core::mem::offset_of!(libc::semid_ds, sem_ctime));
    assert!(core::mem::offset_of!(Status, semaphores) == core::mem::offset_of!(libc::semid_ds, sem_nsems));
    assert!(core::mem::offset_of!(Status, mode) == core::mem::offset_of!(libc::ipc_perm, mode));
    assert!(core::mem::offset_of!(Status, sequence) == core::mem::offset_of!(libc::ipc_perm, __seq));
};

/// `semctl(2)` on an array of ours; `argument` is the fourth argument's bits, a pointer or a value. Of
/// `SEM_STAT` and `SEM_STAT_ANY`, `id` is the array's id, not an index; `IPC_INFO` and `SEM_INFO` tell of the
/// domain.
///
/// # Errors
/// Those of the system call, in its order of checks.
///
/// # Safety
/// What `argument` points to, where the command takes a pointer, may be read or written if it can be.
pub unsafe fn control(id: i32, num: i32, command: c_int, argument: usize) -> Result<c_int, Errno> {
    // A bit of the command asks for the layout that 64-bit programs use anyway.
    const IPC_64: c_int = 0x100;
    if id < 0 {
        return Err(libc::EINVAL);
    }
    match command & !IPC_64 {
        libc::IPC_RMID => make::remove(id).map(|_| 0),
        libc::IPC_SET => {
            // SAFETY: the caller's.
            let status = unsafe { user::read(ptr::with_exposed_provenance::<Status>(argument)) }?;
            set(id, &status)
        }
        libc::IPC_STAT => stat(id, argument, true).map(|()| 0),
        libc::SEM_STAT => stat(id, argument, true).map(|()| id),
        libc::SEM_STAT_ANY => stat(id, argument, false).map(|()| id),
        libc::IPC_INFO => info(argument, false),
        libc::SEM_INFO => info(argument, true),
        libc::GETALL => get_all(id, argument),
        libc::SETALL => set_all(id, argument),
        // The value is an `int`; the other bits may be anything.
        libc::SETVAL => set_value(id, num, argument as c_int),
        command @ (libc::GETVAL | libc::GETPID | libc::GETNCNT | libc::GETZCNT) => get_one(id, num, command),
        _ => Err(libc::EINVAL),
    }
}

/// How many semaphores an array of ours has; never 0.
///
/// # Errors
/// Those of `IPC_STAT`.
pub fn length(id: i32) -> Result<usize, Errno> {
    open_for(id, rights::READ).map(|entered| length_of(&entered))
}

/// The value of one semaphore, at one moment.
///
/// # Errors
/// Those of `GETVAL`.
pub fn value(id: i32, num: u16) -> Result<u16, Errno> {
    get_one(id, num.into(), libc::GETVAL).map(|value| value as u16)
}

/// The values of all semaphores, at one moment.
///
/// # Errors
/// Those of `GETALL`; EINVAL also if there are not as many.
pub fn values(id: i32, values: &mut [u16]) -> Result<(), Errno> {
    let entered = open_for(id, rights::READ)?;
    if values.len() != length_of(&entered) {
        return Err(libc::EINVAL);
    }
    values.copy_from_slice(snapshot(&entered)?.values());
    Ok(())
}

/// Sets the values of all semaphores, and forgets what was to be undone.
///
/// # Errors
/// Those of `SETALL`; EINVAL also if there are not as many.
pub fn set_values(id: i32, values: &[u16]) -> Result<(), Errno> {
    let entered = open_for(id, rights::ALTER)?;
    if values.len() != length_of(&entered) {
        return Err(libc::EINVAL);
    }
    let mut scratch = Scratch::<u16>::new(length_of(&entered))?;
    scratch.values().copy_from_slice(values);
    replace(&entered, scratch.values())
}

fn open(id: i32) -> Result<Entered, Errno> {
    let domain = domain::get().ok_or(libc::EINVAL)?;
    process::required()?;
    let entered = table::open(domain, id)?;
    if entered.array.is_removed() { Err(libc::EINVAL) } else { Ok(entered) }
}

/// Opens the array and checks the process's rights, afresh, whatever an operation was granted.
fn open_for(id: i32, asked: u32) -> Result<Entered, Errno> {
    let entered = open(id)?;
    if rights::has(&entered.array.settings(), asked) { Ok(entered) } else { Err(libc::EACCES) }
}

fn length_of(entered: &Entered) -> usize {
    entered.array.semaphores() as usize
}

/// The number of an existing semaphore.
fn number(entered: &Entered, num: i32) -> Result<u32, Errno> {
    u32::try_from(num).ok().filter(|num| *num < entered.array.semaphores()).ok_or(libc::EINVAL)
}

fn get_one(id: i32, num: i32, command: c_int) -> Result<c_int, Errno> {
    let entered = open_for(id, rights::READ)?;
    let num = number(&entered, num)?;
    let array = &entered.array;
    match command {
        libc::GETVAL => array.value(num),
        libc::GETPID => array.last_process(num),
        libc::GETNCNT => array.waiting_for_increase(num),
        _ => array.waiting_for_zero(num),
    }
    .map(u32::cast_signed)
    .map_err(errno)
}

fn set_value(id: i32, num: i32, value: c_int) -> Result<c_int, Errno> {
    let value = u32::try_from(value).ok().filter(|value| *value <= MOST_VALUE).ok_or(libc::ERANGE)?;
    let entered = open(id)?;
    let num = number(&entered, num)?;
    if !rights::has(&entered.array.settings(), rights::ALTER) {
        return Err(libc::EACCES);
    }
    entered.array.set_value(num, value).map(|()| 0).map_err(errno)
}

/// All values, not to the caller's memory: nothing may fault under the array's lock.
fn snapshot(entered: &Entered) -> Result<Scratch<u16>, Errno> {
    let mut scratch = Scratch::<u16>::new(length_of(entered))?;
    let values = scratch.values();
    entered
        .array
        .values(|num, value| {
            if let Some(place) = values.get_mut(num as usize) {
                *place = value as u16;
            }
        })
        .map_err(errno)?;
    Ok(scratch)
}

/// Sets all values to these: as many as semaphores, and not in the caller's memory either.
fn replace(entered: &Entered, values: &[u16]) -> Result<(), Errno> {
    if values.iter().any(|value| u32::from(*value) > MOST_VALUE) {
        return Err(libc::ERANGE);
    }
    let set = entered.array.set_values(|num| values.get(num as usize).copied().unwrap_or(0).into());
    set.map_err(errno)
}

fn get_all(id: i32, argument: usize) -> Result<c_int, Errno> {
    let mut scratch = snapshot(&open_for(id, rights::READ)?)?;
    let values = scratch.values();
    if !user::writable(argument, size_of_val(values)) {
        return Err(libc::EFAULT);
    }
    // SAFETY: writable, and the caller's to be written. As bytes, for it may be unaligned.
    unsafe {
        let to = ptr::with_exposed_provenance_mut::<u8>(argument);
        ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), to, size_of_val(values));
    }
    Ok(0)
}

fn set_all(id: i32, argument: usize) -> Result<c_int, Errno> {
    let entered = open_for(id, rights::ALTER)?;
    let mut scratch = Scratch::<u16>::new(length_of(&entered))?;
    let values = scratch.values();
    if !user::readable(argument, size_of_val(values)) {
        return Err(libc::EFAULT);
    }
    // SAFETY: readable. As bytes, for it may be unaligned.
    unsafe {
        let from = ptr::with_exposed_provenance::<u8>(argument);
        ptr::copy_nonoverlapping(from, values.as_mut_ptr().cast::<u8>(), size_of_val(values));
    }
    replace(&entered, values).map(|()| 0)
}

fn set(id: i32, status: &Status) -> Result<c_int, Errno> {
    /// No process's number.
    const NONE: u32 = u32::MAX;
    let entered = open(id)?;
    if !rights::owns(&entered.array.settings()) {
        return Err(libc::EPERM);
    }
    if status.uid == NONE || status.gid == NONE {
        return Err(libc::EINVAL);
    }
    entered.array.set(status.uid, status.gid, status.mode & 0o777).map(|()| 0).map_err(errno)
}

fn stat(id: i32, argument: usize, ask: bool) -> Result<(), Errno> {
    let entered = if ask { open_for(id, rights::READ)? } else { open_for(id, 0)? };
    let Settings { key, uid, gid, cuid, cgid, mode } = entered.array.settings();
    let times = entered.array.times();
    let status = Status {
        key,
        uid,
        gid,
        cuid,
        cgid,
        mode,
        // As in the kernel's ids, what is above the slot.
        sequence: (id >> domain::SLOT_BITS) as u16,
        _pad: 0,
        _unused: [0; 2],
        operated: times.operated as i64,
        #[cfg(target_arch = "x86_64")]
        _unused_operated: 0,
        changed: times.changed as i64,
        #[cfg(target_arch = "x86_64")]
        _unused_changed: 0,
        semaphores: entered.array.semaphores().into(),
        _unused_end: [0; 2],
    };
    drop(entered);
    // SAFETY: the caller's.
    unsafe { user::write(ptr::with_exposed_provenance_mut(argument), &status) }
}

fn info(argument: usize, usage: bool) -> Result<c_int, Errno> {
    let domain: &'static Domain = domain::get().ok_or(libc::EINVAL)?;
    let limits = config::limits();
    let (arrays, semaphores, highest) = make::in_use(domain);
    let number = |number: u32| number.min(i32::MAX as u32) as c_int;
    let in_all = number(limits.semaphores_in_all);
    let value = MOST_VALUE as c_int;
    /// The kernel's size of an undo structure, which no program uses.
    const UNDO_SIZE: c_int = 20;
    let info = libc::seminfo {
        semmap: in_all,
        semmni: number(limits.arrays),
        semmns: in_all,
        semmnu: in_all,
        semmsl: number(limits.semaphores),
        semopm: number(limits.operations),
        semume: number(limits.operations),
        semusz: if usage { number(arrays) } else { UNDO_SIZE },
        semvmx: value,
        semaem: if usage { number(semaphores) } else { value },
    };
    // SAFETY: the caller's.
    unsafe { user::write(ptr::with_exposed_provenance_mut(argument), &info) }?;
    Ok(number(highest))
}
