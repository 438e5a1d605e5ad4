//! The preload library: where it is, and the environment that brings it into a program.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use poundlock_names::{Choice, RwLocks};

use crate::message::{Failure, status};
use crate::program::{self, reason};

/// The library's file name.
pub(crate) const FILE_NAME: &str = "libpoundlock_preload.so";

/// Names a library other than the one that belongs to this command.
const PATH_VARIABLE: &str = "POUNDLOCK_PRELOAD_LIB";

/// Tells the library which lock to use.
pub(crate) const LOCK_VARIABLE: &str = "POUNDLOCK_LOCK";

/// Tells it whose readers-writer locks are, and who comes next in ours.
pub(crate) const RWLOCK_VARIABLE: &str = "POUNDLOCK_RWLOCK";

/// Tells it which semaphore arrays are ours.
pub(crate) const SEMAPHORES_VARIABLE: &str = "POUNDLOCK_SEMAPHORES";

/// Tells it where they lie.
pub(crate) const DOMAIN_VARIABLE: &str = "POUNDLOCK_IPC_DIR";

/// Turns statistics on, and tells the library where to leave them.
pub(crate) const STAT_VARIABLE: &str = "POUNDLOCK_STAT_DIR";

/// The same for those who preload the library by hand.
pub(crate) const STATS_VARIABLE: &str = "POUNDLOCK_STATS";

/// Beside one of them: has the library check the use of locks rather than measure it. `1`, and what is wanted
/// beyond that, with commas.
pub(crate) const CHECK_VARIABLE: &str = "POUNDLOCK_CHECK";

/// What the dynamic loader reads.
const LD_PRELOAD: &str = "LD_PRELOAD";

/// A change to the environment: a new value, or none for a variable to remove.
pub(crate) type Change = (&'static OsStr, Option<OsString>);

/// The changes to the environment that run a program on `locks` and `rwlocks`.
pub(crate) fn environment(locks: Choice, rwlocks: RwLocks) -> Result<Vec<Change>, Failure> {
    environment_of(None, locks, rwlocks)
}

/// As [`environment`], for the program in this file.
pub(crate) fn environment_for(
    program: &Path,
    locks: Choice,
    rwlocks: RwLocks,
) -> Result<Vec<Change>, Failure> {
    environment_of(program::needed(program, is_thread_sanitizer), locks, rwlocks)
}

fn environment_of(
    sanitizer: Option<OsString>,
    locks: Choice,
    rwlocks: RwLocks,
) -> Result<Vec<Change>, Failure> {
    let library = find()?;
    let inherited = std::env::var_os(LD_PRELOAD);
    Ok(vec![
        (OsStr::new(LD_PRELOAD), Some(prepended(&library, sanitizer.as_deref(), inherited.as_deref()))),
        (OsStr::new(LOCK_VARIABLE), Some(locks.to_string().into())),
        (OsStr::new(RWLOCK_VARIABLE), Some(rwlocks.name().into())),
    ])
}

/// The changes to the environment that run a program on its own locks, even if we run on ours.
pub(crate) fn plain_environment() -> Vec<Change> {
    let mut changes = vec![(OsStr::new(LOCK_VARIABLE), None), (OsStr::new(RWLOCK_VARIABLE), None)];
    if let Some(inherited) = std::env::var_os(LD_PRELOAD) {
        let others = without_ours(&inherited);
        if others != inherited {
            changes.push((OsStr::new(LD_PRELOAD), Some(others).filter(|others| !others.is_empty())));
        }
    }
    changes
}

/// The library's path, absolute: the command may change its directory. One that cannot stand in LD_PRELOAD
/// gets a link.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let ours = |line: std::fmt::Arguments| Failure::new(status::OURS, line);
    let path = if let Some(named) = std::env::var_os(PATH_VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        named
            .canonicalize()
            .map_err(|error| ours(format_args!("{PATH_VARIABLE}: {}: {}", named.display(), reason(&error))))?
    } else {
        let exe = std::env::current_exe().and_then(|exe| exe.canonicalize());
        let exe = exe.map_err(|error| ours(format_args!("where this command lies: {}", reason(&error))))?;
        let dir = exe.parent().unwrap_or(Path::new("/"));
        // As built, from a tarball, from a package. A command that was installed alone carries it.
        let triplet = format!("../lib/{}-linux-gnu/poundlock", std::env::consts::ARCH);
        let beside = ["", "../lib/poundlock", &triplet].map(|place| dir.join(place).join(FILE_NAME));
        match beside.iter().find_map(|path| path.canonicalize().ok()) {
            Some(path) => path,
            None => return carried(dir),
        }
    };
    if is_listable(&path) { Ok(path) } else { linked(&path) }
}

#[cfg(feature = "carry")]
fn carried(_: &Path) -> Result<PathBuf, Failure> {
    crate::carried::find(is_listable).map_err(|refused| {
        let line = format_args!(
            "there is no place for {FILE_NAME} ({refused}): name a directory of yours in XDG_CACHE_HOME, or the \
             library in {PATH_VARIABLE}"
        );
        Failure::new(status::OURS, line)
    })
}

#[cfg(not(feature = "carry"))]
fn carried(dir: &Path) -> Result<PathBuf, Failure> {
    Err(Failure::new(
        status::OURS,
        format_args!(
            "{FILE_NAME} is neither in {} nor in ../lib/poundlock beside it: build it or set {PATH_VARIABLE}",
            dir.display()
        ),
    ))
}

/// The directory of a link to the library, if its own path cannot stand in LD_PRELOAD.
static LINK: Mutex<Option<TempDir>> = Mutex::new(None);

/// Another path of a library, by a link that is there until [`remove_link`].
fn linked(library: &Path) -> Result<PathBuf, Failure> {
    let mut link = LINK.lock().unwrap_or_else(PoisonError::into_inner);
    let at = |dir: &TempDir| dir.path().join(FILE_NAME);
    if let Some(dir) = &*link {
        return Ok(at(dir));
    }
    let make = |parent: &Path| -> std::io::Result<TempDir> {
        let dir = tempfile::Builder::new().prefix("poundlock-lib-").tempdir_in(parent)?;
        // A command that becomes another user passes through as well.
        std::fs::set_permissions(&dir, Permissions::from_mode(0o711))?;
        std::os::unix::fs::symlink(library, at(&dir))?;
        Ok(dir)
    };
    let parents = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    let dir = parents
        .iter()
        .filter(|parent| parent.is_absolute() && is_listable(parent))
        .find_map(|parent| make(parent).ok())
        .ok_or_else(|| {
            let line = format_args!(
                "{}: LD_PRELOAD cannot hold a path with a blank, ':' or '$' in it, and no link to it can be \
                 made in /tmp: move the library or set {PATH_VARIABLE}",
                library.display()
            );
            Failure::new(status::OURS, line)
        })?;
    let path = at(&dir);
    *link = Some(dir);
    Ok(path)
}

/// Whether there is a link that [`remove_link`] has to remove.
pub(crate) fn is_linked() -> bool {
    LINK.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// To be called when nothing is started with the library any more.
pub(crate) fn remove_link() {
    drop(LINK.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Whether a path can stand in LD_PRELOAD: nothing in it ends it, or is replaced by the dynamic loader.
fn is_listable(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|&byte| separates(byte) || byte == b'$')
}

/// Whether the dynamic loader, or a program that takes LD_PRELOAD apart, ends a path here.
fn separates(byte: u8) -> bool {
    byte == b':' || byte.is_ascii_whitespace()
}

/// Whether a file is the shared runtime of ThreadSanitizer, gcc's or clang's. It has to come before our
/// library: it takes for a data race what is done under a lock whose calls it does not see.
fn is_thread_sanitizer(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name.starts_with(b"libtsan.so") || name.starts_with(b"libclang_rt.tsan")
}

/// Ours in front: the first library that defines a symbol is the one that is used. Only ThreadSanitizer comes
/// before it, which the program needs or the list has, and passes the calls on.
fn prepended(library: &Path, sanitizer: Option<&OsStr>, inherited: Option<&OsStr>) -> OsString {
    let others = inherited.map(without_ours).unwrap_or_default();
    let in_list = others.as_bytes().split(|&byte| separates(byte)).find(|path| is_thread_sanitizer(path));
    let mut value = OsString::new();
    if let Some(first) = in_list.map(OsStr::from_bytes).or(sanitizer) {
        value.push(first);
        value.push(":");
    }
    value.push(library);
    // A library that is named twice is loaded once, in the first place.
    if !others.is_empty() {
        value.push(":");
        value.push(others);
    }
    value
}

/// The list without any library of ours, which another `poundlock` around this one put there.
fn without_ours(list: &OsStr) -> OsString {
    let is_ours = |path: &[u8]| Path::new(OsStr::from_bytes(path)).file_name() == Some(OsStr::new(FILE_NAME));
    let bytes = list.as_bytes();
    if !bytes.split(|&byte| separates(byte)).any(is_ours) {
        return list.to_owned();
    }
    let others: Vec<&[u8]> =
        bytes.split(|&byte| separates(byte)).filter(|path| !path.is_empty() && !is_ours(path)).collect();
    OsString::from_vec(others.join(&b':'))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::{prepended, without_ours};

    #[test]
    fn ours_comes_first_and_once() {
        let ours = Path::new("/x/libpoundlock_preload.so");
        let list =
            |inherited: &str| prepended(ours, None, Some(OsStr::new(inherited))).into_string().unwrap();
        assert_eq!(prepended(ours, None, None), ours.as_os_str());
        assert_eq!(list(""), "/x/libpoundlock_preload.so");
        assert_eq!(list("liba.so libb.so"), "/x/libpoundlock_preload.so:liba.so libb.so");
        assert_eq!(list("/y/libpoundlock_preload.so:/a/b.so"), "/x/libpoundlock_preload.so:/a/b.so");
        assert_eq!(without_ours(OsStr::new("/y/libpoundlock_preload.so")), "");
        assert_eq!(without_ours(OsStr::new("a b")), "a b");
    }

    #[test]
    fn thread_sanitizer_comes_before_ours() {
        let ours = Path::new("/x/libpoundlock_preload.so");
        let needed = Some(OsStr::new("libtsan.so.2"));
        assert_eq!(prepended(ours, needed, None), "libtsan.so.2:/x/libpoundlock_preload.so");
        assert_eq!(
            prepended(ours, needed, Some(OsStr::new("a.so"))),
            "libtsan.so.2:/x/libpoundlock_preload.so:a.so"
        );
        let listed = Some(OsStr::new("a.so /y/libtsan.so.2"));
        assert_eq!(
            prepended(ours, needed, listed),
            "/y/libtsan.so.2:/x/libpoundlock_preload.so:a.so /y/libtsan.so.2"
        );
        assert_eq!(
            prepended(ours, None, Some(OsStr::new("libclang_rt.tsan-x86_64.so"))),
            "libclang_rt.tsan-x86_64.so:/x/libpoundlock_preload.so:libclang_rt.tsan-x86_64.so"
        );
    }
}
