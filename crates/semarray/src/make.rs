//! `semget`, and the removal of arrays: what changes the registry.

use core::ffi::c_int;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed},
};

use poundlock_core::semarray::{Array, Error, Layout, MOST_VALUE, Report, Scheme, Settings};

use crate::host::Processes;
use poundlock_linux::parts::U32;

use crate::config::{self, Which};
use crate::domain::{self, ArraySlot, Domain, Intent, slot_of};
use crate::table::{self, Entered};
use crate::{Errno, errno, files, process, rights, system};

/// `semget(2)`. `Ok(None)`: the array is not ours to find or to make; ask the kernel.
///
/// # Errors
/// EACCES, EEXIST, EINVAL, ENOMEM and ENOSPC, as the kernel has them.
pub fn get(key: i32, semaphores: i32, flags: i32) -> Result<Option<i32>, Errno> {
    get_with(key, semaphores, flags, New::default())
}

/// What `semget(2)` cannot say of a new array.
#[derive(Clone, Copy, Debug, Default)]
struct New<'a> {
    /// The first values of its semaphores, as many as there are; none: zeroes. No process sees the array
    /// without them.
    values: &'a [u16],
    /// It is removed when the calling process ends: at once if that ends by `exit` with one thread, else as
    /// soon as another process notices.
    kept: bool,
}

/// As [`get`], and says more of the array if it is made.
///
/// # Errors
/// Those of [`get`]; and ERANGE for a value above [`MOST_VALUE`].
fn get_with(key: i32, semaphores: i32, flags: i32, new: New<'_>) -> Result<Option<i32>, Errno> {
    if new.values.iter().any(|value| u32::from(*value) > MOST_VALUE) {
        return Err(libc::ERANGE);
    }
    let choice = config::choice();
    if choice.which == Which::Kernel {
        return Ok(None);
    }
    let Some(domain) = domain::get() else { return Ok(None) };
    let limits = config::limits();
    // The kernel returns EINVAL, or has higher limits than we.
    let Some(semaphores) = u32::try_from(semaphores).ok().filter(|count| *count <= limits.semaphores) else {
        return Ok(None);
    };
    // A process that cannot be in the table leaves everything to the kernel.
    let Some(own) = process::process() else { return Ok(None) };
    let guard = domain.lock()?;
    if key != libc::IPC_PRIVATE {
        let found = domain.registry.arrays().iter().enumerate().find_map(|(slot, array)| {
            let id = array.id(slot)?;
            (array.key.load(Relaxed) == key.cast_unsigned()).then_some(id)
        });
        if let Some(id) = found {
            if flags & libc::IPC_CREAT != 0 && flags & libc::IPC_EXCL != 0 {
                return Err(libc::EEXIST);
            }
            let entered = table::open(domain, id)?;
            if semaphores > entered.array.semaphores() {
                return Err(libc::EINVAL);
            }
            let allowed = rights::has(&entered.array.settings(), flags as u32);
            return if allowed { Ok(Some(id)) } else { Err(libc::EACCES) };
        }
        let private = flags & 0o077 == 0;
        if flags & libc::IPC_CREAT == 0 || !(private || choice.which == Which::All) || kernel_has(key) {
            return Ok(None);
        }
    }
    if semaphores == 0 {
        return Err(libc::EINVAL);
    }
    let (mut arrays, mut in_all) = (0u32, semaphores);
    for (slot, array) in domain.registry.arrays().iter().enumerate() {
        if array.id(slot).is_some() {
            arrays += 1;
            in_all = in_all.saturating_add(array.semaphores.load(Relaxed));
        }
    }
    if arrays >= limits.arrays || in_all > limits.semaphores_in_all {
        return Err(libc::ENOSPC);
    }
    let settings = settings(key, flags as u32 & 0o777);
    let keeper = if new.kept { own.slot + 1 } else { 0 };
    let made = make(domain, &settings, semaphores, choice.scheme, new.values, keeper);
    drop(guard);
    match made {
        Ok(entered) => Ok(Some(entered.id)),
        Err(libc::ENOSPC | libc::ENOMEM | libc::EDQUOT) => Err(libc::ENOMEM),
        // We may not, or have no descriptors for it, or may not write so long a file. The kernel needs none
        // of that.
        Err(_) if key == libc::IPC_PRIVATE => Ok(None),
        Err(libc::EACCES | libc::EPERM | libc::EROFS) => Ok(None),
        Err(_) => Err(libc::ENOMEM),
    }
}

/// As [`get`], for programs that link with us: an array for this user alone, and none of the kernel's. A new
/// one has these values before any process sees it. Without a key it is removed when the calling process
/// ends: at once if that ends by `exit` with one thread, else as soon as another process notices. Adjustments
/// are undone at once when the process ends by `exit`.
///
/// # Errors
/// Those of [`get`]; ERANGE for a value above [`MOST_VALUE`]; ENOENT if there is none and none is to be made,
/// ENOSYS if it cannot be ours.
pub fn find_or_make(key: i32, flags: i32, values: &[u16]) -> Result<i32, Errno> {
    let count = i32::try_from(values.len()).map_err(|_| libc::EINVAL)?;
    let new = New { values, kept: key == libc::IPC_PRIVATE };
    match get_with(key, count, flags & !0o777 | 0o600, new)? {
        Some(id) => {
            end_at_exit();
            Ok(id)
        }
        None if flags & libc::IPC_CREAT == 0 && key != libc::IPC_PRIVATE => Err(libc::ENOENT),
        None => Err(libc::ENOSYS),
    }
}

/// Whether the kernel has an array of that key already.
fn kernel_has(key: i32) -> bool {
    // Asks for no rights, and makes nothing.
    matches!(system::kernels_semget(key, 0, 0), Ok(_) | Err(libc::EACCES | libc::EPERM))
}

/// The rights of a new array of the calling process's.
fn settings(key: i32, mode: u32) -> Settings {
    let (uid, gid) = (system::user(), system::group());
    Settings { key, uid, gid, cuid: uid, cgid: gid, mode }
}

/// Makes an array. Under the registry's lock.
fn make(
    domain: &'static Domain,
    settings: &Settings,
    semaphores: u32,
    scheme: Scheme,
    values: &[u16],
    keeper: u32,
) -> Result<Entered, c_int> {
    let registry = domain.registry;
    let (slot, array) = free_slot(domain)?;
    let path = domain.array_path(slot);
    let layout = Layout::new(semaphores, scheme);

    registry.intend(Intent::Make(slot));
    let word = size_of::<U32>();
    // Under its own name from the start: only a slow process that means the previous array opens it before it
    // is published, and that one finds it too short, or not whole, or the wrong array.
    let made =
        files::create(path.get()?, layout.words() * word, layout.initial() * word).and_then(|mapped| {
            // SAFETY: the view goes before the mapping.
            let words = unsafe { mapped.words() };
            let made = Array::<Processes>::format(words, semaphores, scheme, settings).ok_or(libc::EINVAL)?;
            if !values.is_empty() {
                let value = |num| values.get(num as usize).copied().unwrap_or(0).into();
                made.set_values(value).map_err(errno)?;
            }
            Ok(mapped)
        });
    let entered = made.and_then(|mapped| table::put(array.next_id(slot), mapped));
    match entered {
        Ok(entered) => {
            array.key.store(settings.key.cast_unsigned(), Relaxed);
            array.semaphores.store(semaphores, Relaxed);
            array.keeper.store(keeper, Relaxed);
            array.publish();
            registry.next_array.store(slot as u32 + 1, Relaxed);
            registry.intend(Intent::None);
            Ok(entered)
        }
        Err(error) => {
            unmake(domain, slot);
            registry.intend(Intent::None);
            Err(error)
        }
    }
}

/// A free array slot, the next after the one that was last made: an id comes back as late as possible. Under
/// the lock.
fn free_slot(domain: &'static Domain) -> Result<(usize, &'static ArraySlot), c_int> {
    let registry = domain.registry;
    let slots = registry.arrays();
    let first = registry.next_array.load(Relaxed) as usize;
    let free = |slot: &usize| slots.get(*slot).is_some_and(|array| array.id(*slot).is_none());
    // Among the slots up to the sixteenth that was ever used, or all: few files' names, and few places to
    // look.
    let found = (first..slots.len()).chain(0..first.min(slots.len())).find(free);
    match found {
        Some(slot) if slots.len() >= 16 => slots.get(slot).map(|array| (slot, array)).ok_or(libc::ENOSPC),
        _ => registry.another_array().or_else(|error| {
            let slot = found.ok_or(error)?;
            slots.get(slot).map(|array| (slot, array)).ok_or(error)
        }),
    }
}

/// Takes back a half-made array that was not published. Under the lock.
fn unmake(domain: &Domain, slot: usize) {
    let unpublished = domain.registry.arrays().get(slot).is_some_and(|array| array.id(slot).is_none());
    if let (Ok(name), true) = (domain.array_path(slot).get(), unpublished) {
        let _ = system::unlink(name);
    }
}

/// Finishes what the last holder of the registry's lock was doing when it died. Under the lock, of a
/// registered process.
pub(crate) fn repair(domain: &'static Domain) -> Result<(), c_int> {
    match domain.registry.intent() {
        Intent::None => {}
        Intent::Make(slot) => unmake(domain, slot),
        Intent::Remove(slot) => match files::open(domain.array_path(slot).get()?) {
            Ok(mapped) => {
                // SAFETY: the view goes before the mapping.
                let array = Array::<Processes>::open(unsafe { mapped.words() }).ok_or(libc::EINVAL)?;
                match array.remove() {
                    Ok(_) | Err(Error::Gone) => finish_removal(domain, slot),
                    Err(error) => return Err(errno(error)),
                }
            }
            Err(libc::ENOENT) => finish_removal(domain, slot),
            Err(error) => return Err(error),
        },
    }
    domain.registry.intend(Intent::None);
    Ok(())
}

/// The array in that slot was removed: so are its file and its place in the registry. Every step may be
/// repeated.
fn finish_removal(domain: &Domain, slot: usize) {
    if let Ok(name) = domain.array_path(slot).get() {
        // If this process may not, the name goes when the slot is used again.
        let _ = system::unlink(name);
    }
    if let Some(array) = domain.registry.arrays().get(slot) {
        array.withdraw();
    }
}

/// `semctl(id, 0, IPC_RMID)` of an array of ours, with its statistics.
///
/// # Errors
/// EINVAL: it is not there. EPERM: it is another user's.
pub fn remove(id: i32) -> Result<Report, Errno> {
    let domain = domain::get().ok_or(libc::EINVAL)?;
    process::required()?;
    let entered = table::open(domain, id)?;
    if !rights::owns(&entered.array.settings()) {
        return Err(libc::EPERM);
    }
    let guard = domain.lock()?;
    if domain.registry.live(id).is_none() {
        return Err(libc::EINVAL);
    }
    let removed = remove_from(domain, slot_of(id), &entered.array);
    drop(guard);
    let report = removed.map_err(errno)?;
    table::retire(entered);
    Ok(report)
}

/// The end of an array's use by the calling process: removes it if it ends with that process.
///
/// # Errors
/// Those of [`remove`].
pub fn close(id: i32) -> Result<(), Errno> {
    if keeps(id) { remove(id).map(drop) } else { Ok(()) }
}

/// Whether that array is there, and ends with the calling process.
fn keeps(id: i32) -> bool {
    let array = domain::known().and_then(|domain| domain.registry.live(id));
    let own = process::registered().map(|slot| slot + 1);
    array.is_some_and(|array| Some(array.keeper.load(Relaxed)) == own)
}

/// Removes the array in that slot. Under the registry's lock.
fn remove_from(domain: &Domain, slot: usize, array: &Array<'_, Processes>) -> Result<Report, Error> {
    domain.registry.intend(Intent::Remove(slot));
    let removed = array.remove();
    if matches!(removed, Ok(_) | Err(Error::Gone)) {
        finish_removal(domain, slot);
    }
    domain.registry.intend(Intent::None);
    removed
}

/// Removes the arrays that end with a process for whose slot `ended` is true. Under the registry's lock.
pub(crate) fn remove_kept(domain: &'static Domain, ended: impl Fn(u32) -> bool) {
    for (slot, array) in domain.registry.arrays().iter().enumerate() {
        let keeper = array.keeper.load(Relaxed).checked_sub(1);
        if let (Some(id), true) = (array.id(slot), keeper.is_some_and(&ended)) {
            let _ = with_array(domain, slot, id, |array| remove_from(domain, slot, array).is_ok());
        }
    }
}

/// Calls `each` with every array of the domain, whether this process has it mapped or not, until it returns
/// false. Returns false if it did, or an array could not be opened. Under the registry's lock.
pub(crate) fn for_each_array(
    domain: &'static Domain,
    mut each: impl FnMut(&Array<'_, Processes>) -> bool,
) -> bool {
    domain
        .registry
        .arrays()
        .iter()
        .enumerate()
        .all(|(slot, array)| array.id(slot).is_none_or(|id| with_array(domain, slot, id, &mut each)))
}

/// What `act` returns of that array, whether this process has it mapped or not. False if it could not be
/// opened, and is there.
fn with_array(
    domain: &'static Domain,
    slot: usize,
    id: i32,
    act: impl FnOnce(&Array<'_, Processes>) -> bool,
) -> bool {
    if let Some(entered) = table::enter(id) {
        return act(&entered.array);
    }
    let path = domain.array_path(slot);
    match path.get().and_then(files::open) {
        // SAFETY: the view goes before the mapping.
        Ok(mapped) => Array::open(unsafe { mapped.words() }).is_some_and(|array| act(&array)),
        Err(error) => error == libc::ENOENT,
    }
}

/// Registers [`end`] for the process's `exit`, before earlier handlers. Calling it twice is harmless.
pub fn end_at_exit() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    extern "C" fn at_exit() {
        end();
    }
    if !ASKED.swap(true, Relaxed) {
        // SAFETY: a function of ours.
        unsafe { libc::atexit(at_exit) };
    }
}

/// The calling process ends in order: undoes what it did with `SEM_UNDO`, and removes the arrays that end
/// with it.
pub fn end() {
    let Some(domain) = domain::known() else { return };
    // A child of vfork ends in its parent's memory, which says that the parent has registered.
    let Some(own) = process::registered().filter(|slot| process::is_own(domain, *slot)) else { return };
    // Other threads run on until the process is gone, one of them perhaps inside what it took with SEM_UNDO.
    // Then the next process that looks undoes it, as after any other death.
    if !is_last_thread() {
        return;
    }
    if domain.registry.arrays().iter().any(|array| array.keeper.load(Relaxed) == own + 1) {
        let Ok(_guard) = domain.lock() else { return };
        remove_kept(domain, |slot| slot == own);
    }
    if process::inherited() {
        // The program that ran here before an exec may have used others.
        let Ok(_guard) = domain.lock() else { return };
        for_each_array(domain, |array| {
            let _ = array.leave();
            true
        });
    } else {
        table::for_each(domain, |mapping| {
            let _ = mapping.array.leave();
        });
    }
}

/// Whether the process has no other thread. False if in doubt.
pub(crate) fn is_last_thread() -> bool {
    // Two links of any directory, and one for each thread.
    system::status(c"/proc/self/task").is_ok_and(|status| status.st_nlink == 3)
}

/// How many arrays there are, and how many semaphores they have; and the highest slot in use.
pub(crate) fn in_use(domain: &'static Domain) -> (u32, u32, u32) {
    let slots = domain.registry.arrays().iter().enumerate();
    slots.filter(|(slot, array)| array.id(*slot).is_some()).fold(
        (0, 0, 0),
        |(arrays, all, _), (slot, array)| {
            (arrays + 1, all.saturating_add(array.semaphores.load(Acquire)), slot as u32)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Child, domain};
    use poundlock_core::semarray::Op;

    #[test]
    fn an_array_is_made_with_its_values() {
        let (domain, _one) = domain();
        let new = New { values: &[3, 0, 7], kept: false };
        let id = get_with(libc::IPC_PRIVATE, 3, 0o600, new).unwrap().unwrap();
        let array = table::open(domain, id).unwrap();
        assert_eq!([0, 1, 2].map(|num| array.array.value(num).unwrap()), [3, 0, 7]);
        drop(array);
        remove(id).unwrap();
        let new = New { values: &[1 << 15], kept: false };
        assert_eq!(get_with(libc::IPC_PRIVATE, 1, 0o600, new), Err(libc::ERANGE));
    }

    #[test]
    fn an_array_that_is_kept_goes_when_somebody_notices_that_its_maker_is_gone() {
        let (domain, _one) = domain();
        let arrays = || in_use(domain).0;
        let before = arrays();
        let child = Child::new(|| {
            let made = get_with(libc::IPC_PRIVATE, 1, 0o600, New { values: &[1], kept: true });
            i32::from(!matches!(made, Ok(Some(_))))
        });
        assert_eq!(child.wait(), 0, "the child made none");
        assert_eq!(arrays(), before + 1);
        // Whoever reaps is registered: it would do that in the middle, under the lock that it holds.
        process::process().expect("there is room");
        process::reap(domain);
        assert_eq!(arrays(), before);
    }

    /// A process that dies with the registry's lock, after this work.
    fn dies_after(domain: &'static Domain, work: impl FnOnce()) {
        let child = Child::new(|| {
            if process::process().is_some()
                && let Ok(guard) = domain.lock()
            {
                work();
                core::mem::forget(guard);
                // SAFETY: ends the child.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            1
        });
        assert_eq!(child.wait(), libc::SIGKILL);
    }

    fn exists(path: crate::system::Path) -> bool {
        system::status(path.get().unwrap()).is_ok()
    }

    /// Checks that the registry is whole, and that arrays can be made and removed.
    fn usable(domain: &'static Domain) {
        let id = get(libc::IPC_PRIVATE, 1, 0o600).unwrap().unwrap();
        assert_eq!(domain.registry.intent(), Intent::None);
        remove(id).unwrap();
        assert!(!exists(domain.array_path(slot_of(id))));
    }

    const KEY: i32 = 0x0b5e55ed;

    fn keyed() -> i32 {
        get(KEY, 2, libc::IPC_CREAT | 0o600).unwrap().unwrap()
    }

    #[test]
    fn an_array_whose_maker_dies_is_made_or_not() {
        let (domain, _one) = domain();
        usable(domain);
        // After that many steps of `make`.
        for steps in 0..=3 {
            let (slot, array) = {
                let _guard = domain.lock().unwrap();
                free_slot(domain).unwrap()
            };
            let layout = Layout::new(2, Scheme::After);
            let settings = Settings { key: KEY, uid: 0, gid: 0, cuid: 0, cgid: 0, mode: 0o600 };
            let path = domain.array_path(slot);
            dies_after(domain, || {
                domain.registry.intend(Intent::Make(slot));
                let (words, initial) = (layout.words() * 4, layout.initial() * 4);
                if steps >= 1
                    && let Ok(mapped) = files::create(path.get().unwrap_or_default(), words, initial)
                    && steps >= 2
                {
                    // SAFETY: mapped until the child dies.
                    let words = unsafe { mapped.words() };
                    let _ = Array::<Processes>::format(words, 2, Scheme::After, &settings);
                    core::mem::forget(mapped);
                }
                if steps >= 3 {
                    array.key.store(KEY.cast_unsigned(), Relaxed);
                    array.semaphores.store(2, Relaxed);
                    array.publish();
                }
            });
            assert_eq!(exists(path), steps >= 1);
            let found = get(KEY, 0, 0);
            assert_eq!(domain.registry.intent(), Intent::None);
            if steps < 3 {
                assert_eq!(found, Ok(None), "steps {steps}");
                assert!(!exists(path));
            } else {
                let id = found.unwrap().unwrap();
                assert_eq!(Some(id), array.id(slot));
                let up = Op { num: 1, change: 1, flags: 0 };
                // SAFETY: one operation of ours.
                assert_eq!(unsafe { crate::operate(id, &up, 1, core::ptr::null()) }, Ok(()));
                remove(id).unwrap();
            }
            usable(domain);
        }
    }

    #[test]
    fn a_removal_whose_remover_dies_is_finished_and_its_sleepers_told() {
        let (domain, _one) = domain();
        for steps in 0..=3 {
            let id = keyed();
            let slot = slot_of(id);
            let next = std::thread::scope(|scope| {
                let sleeper = scope.spawn(move || {
                    let down = Op { num: 0, change: -1, flags: 0 };
                    // SAFETY: one operation of ours.
                    unsafe { crate::operate(id, &down, 1, core::ptr::null()) }
                });
                let entered = table::open(domain, id).unwrap();
                while entered.array.sleepers() == 0 {
                    std::thread::yield_now();
                }
                drop(entered);
                dies_after(domain, || {
                    domain.registry.intend(Intent::Remove(slot));
                    let path = domain.array_path(slot);
                    if steps >= 1
                        && let Ok(entered) = table::open(domain, id)
                    {
                        let _ = entered.array.remove();
                    }
                    if steps >= 2 {
                        let _ = system::unlink(path.get().unwrap_or_default());
                    }
                    if steps >= 3
                        && let Some(array) = domain.registry.arrays().get(slot)
                    {
                        array.withdraw();
                    }
                });
                assert_eq!(exists(domain.array_path(slot)), steps < 2);
                // The key is another array's from here on.
                let next = keyed();
                assert_ne!(next, id, "steps {steps}");
                assert_eq!(sleeper.join().unwrap(), Err(libc::EIDRM), "steps {steps}");
                next
            });
            assert!(domain.registry.live(id).is_none());
            assert_eq!(remove(id).err(), Some(libc::EINVAL));
            remove(next).unwrap();
            usable(domain);
        }
    }
}
