//! Rights, as the kernel judges them for its own arrays. Root may do all.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use poundlock_core::semarray::{Op, Settings};

use poundlock_linux::parts::keeping_errno;

use crate::system;
use crate::table::Mapping;

/// To wait and to look.
pub(crate) const READ: u32 = 4;
/// To change values.
pub(crate) const ALTER: u32 = 2;

/// What the calling process may: [`READ`] and [`ALTER`].
fn granted(settings: &Settings) -> u32 {
    let user = system::user();
    if user == 0 {
        READ | ALTER
    } else if user == settings.uid || user == settings.cuid {
        settings.mode >> 6
    } else if in_group(settings.gid) || in_group(settings.cgid) {
        settings.mode >> 3
    } else {
        settings.mode
    }
}

/// Whether the calling process has the rights that `semget`'s flags ask for, in whichever of the three
/// places.
pub(crate) fn has(settings: &Settings, flags: u32) -> bool {
    let asked = (flags >> 6 | flags >> 3 | flags) & 0o7;
    system::user() == 0 || asked & !granted(settings) == 0
}

/// Whether the calling process may remove the array and change its owner.
pub(crate) fn owns(settings: &Settings) -> bool {
    let user = system::user();
    user == 0 || user == settings.uid || user == settings.cuid
}

fn in_group(group: u32) -> bool {
    /// The kernel's `NGROUPS_MAX`.
    const MOST: usize = 65536;
    // Few at first: most processes have few.
    system::group() == group
        || [128, MOST].into_iter().find_map(|room| groups(room, |groups| groups.contains(&group)))
            == Some(true)
}

/// What `ask` returns of the process's groups; `None` if they are more than that many.
fn groups(room: usize, ask: impl FnOnce(&[u32]) -> bool) -> Option<bool> {
    let mut scratch = system::Scratch::<u32>::new(room).ok()?;
    let groups = scratch.values();
    // SAFETY: writes at most so many.
    let count =
        keeping_errno(|| unsafe { libc::syscall(libc::SYS_getgroups, room, groups.as_mut_ptr()) }).ok()?;
    Some(ask(&groups[..count as usize]))
}

/// Whether the process may apply the operations, or else look at the array ([`READ`]): judged when it first
/// asks, and again when the array's settings have changed since. It keeps its rights when it changes its
/// user, as with an open file. This avoids a system call in each operation.
#[inline(always)]
pub(crate) fn check(mapping: &Mapping, operations: &[Op]) -> Result<(), c_int> {
    let alters = operations.iter().any(|operation| operation.change != 0);
    let asked = if alters { ALTER } else { READ };
    let known = mapping.rights.load(Relaxed);
    if known & asked != 0 && known >> 3 == mapping.array.settings_count() & (u32::MAX >> 3) {
        return Ok(());
    }
    judge(mapping, operations, asked)
}

#[cold]
#[inline(never)]
fn judge(mapping: &Mapping, operations: &[Op], asked: u32) -> Result<(), c_int> {
    let array = &mapping.array;
    // The kernel looks at the numbers first.
    if operations.iter().any(|operation| u32::from(operation.num) >= array.semaphores()) {
        return Err(libc::EFBIG);
    }
    // If the settings change in between, the rights are those of before, and are judged again at the next
    // call.
    let count = array.settings_count();
    let granted = granted(&array.settings()) & (READ | ALTER);
    mapping.rights.store(count << 3 | granted, Relaxed);
    if granted & asked == 0 { Err(libc::EACCES) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: u32 = 65534;

    fn settings(mode: u32) -> Settings {
        Settings { key: 0, uid: 1, gid: 2, cuid: 3, cgid: 4, mode }
    }

    /// Runs `check` in a child with these ids.
    fn as_user(user: u32, group: u32, groups: &[u32], check: impl Fn() -> bool) -> bool {
        let child = crate::testing::Child::new(|| {
            // SAFETY: numbers, and groups of ours.
            let became = unsafe {
                libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
                    && libc::syscall(libc::SYS_setresgid, group, group, group) == 0
                    && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
            };
            if became { i32::from(!check()) } else { 2 }
        });
        let status = child.wait();
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) < 2, "status {status:#x}");
        status == 0
    }

    #[test]
    fn the_class_decides_and_no_other() {
        if system::user() != 0 {
            return; // Only root can be somebody else.
        }
        assert!(has(&settings(0), 0o666), "root may all");
        let owner_only = settings(0o600);
        assert!(as_user(1, 9, &[], || has(&owner_only, 0o600)));
        assert!(as_user(3, 9, &[], || has(&owner_only, 0o600)));
        assert!(as_user(NOBODY, 2, &[], || !has(&owner_only, 0o600) && has(&owner_only, 0)));
        // The group's bits are used for the group even if others have more.
        let odd = settings(0o646);
        assert!(as_user(NOBODY, 9, &[7, 4], || has(&odd, 0o444) && !has(&odd, 0o222)));
        assert!(as_user(NOBODY, 9, &[7], || has(&odd, 0o666)));
        // Any of the three places asks.
        assert!(as_user(1, 9, &[], || !has(&settings(0o400), 0o002)));
        let many: Vec<u32> = (1000..1300).collect();
        assert!(as_user(NOBODY, 9, &many, || has(&Settings { gid: 1299, ..odd }, 0o400)));
        assert!(as_user(NOBODY, 9, &many, || !has(&Settings { gid: 1299, ..odd }, 0o200)));
    }

    #[test]
    fn owners_remove() {
        if system::user() != 0 {
            return;
        }
        let all = settings(0o666);
        assert!(owns(&all));
        assert!(as_user(1, 9, &[], || owns(&all)));
        assert!(as_user(3, 9, &[], || owns(&all)));
        assert!(as_user(NOBODY, 2, &[4], || !owns(&all)));
    }
}
