//! The preload library that the command carries, for one that was installed alone.
//!
//! The dynamic loader takes a library by its path, in every process that the program becomes or starts: under
//! other users, with other roots, long after this command has ended. So it has to be a file, and stay. (A
//! file in memory that a descriptor leads to goes with the descriptor, which most daemons close.) It lies in
//! a directory that is ours and that nobody else can write to, and is compared with what is carried before
//! each use, so that nobody can put another in its place.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::library::FILE_NAME;

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libpoundlock_preload.so"));

/// The library's file, written if it is not there: in the first place that will do, of those whose path may
/// be used.
pub(crate) fn find(may_be_used: impl Fn(&Path) -> bool) -> Result<PathBuf, String> {
    // SAFETY: no arguments.
    let user = unsafe { libc::geteuid() };
    let mut refused = Vec::new();
    for place in places(user) {
        if !place.is_absolute() || !may_be_used(&place) {
            continue;
        }
        match put(&place, user, LIBRARY) {
            Ok(path) => return Ok(path),
            Err(error) => refused.push(format!("{}: {error}", place.display())),
        }
    }
    Err(refused.join("; "))
}

/// Where it may lie: in the user's cache. What root starts may become other users, which look into no home.
fn places(user: libc::uid_t) -> Vec<PathBuf> {
    let said = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = |parent: PathBuf| parent.join("poundlock");
    let mut places: Vec<PathBuf> = said("XDG_CACHE_HOME").map(cache).into_iter().collect();
    if user == 0 {
        places.push(cache("/var/cache".into()));
    }
    places.extend(said("HOME").map(|home| cache(home.join(".cache"))));
    let own = format!("poundlock-lib-{user}");
    places.extend([std::env::temp_dir(), "/tmp".into(), "/dev/shm".into()].map(|parent| parent.join(&own)));
    places
}

/// The library's file below a directory, which becomes ours if it is not there.
fn put(place: &Path, user: libc::uid_t, library: &[u8]) -> io::Result<PathBuf> {
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent)?;
    }
    own(place, user)?;
    if is_without_programs(place)? {
        return Err(io::Error::other("mounted noexec"));
    }
    let directory = place.join(env!("POUNDLOCK_CARRIED_AS"));
    own(&directory, user)?;
    let path = directory.join(FILE_NAME);
    if !is_there(&path, user, library) {
        let mut file = tempfile::NamedTempFile::new_in(&directory)?;
        file.write_all(library)?;
        file.as_file().set_permissions(Permissions::from_mode(0o755))?;
        file.persist(&path)?;
    }
    Ok(path)
}

/// Makes sure that a directory is there, that it is ours, and that only we can write to it.
fn own(directory: &Path, user: libc::uid_t) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(directory) {
        // Whatever the umask: other users are to find the library.
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = directory.symlink_metadata()?;
    if !found.is_dir() || !is_ours_alone(&found, user) {
        return Err(io::Error::other("not a directory that only its owner, this user, can write to"));
    }
    Ok(())
}

fn is_ours_alone(found: &Metadata, user: libc::uid_t) -> bool {
    found.uid() == user && found.mode() & 0o022 == 0
}

/// Whether it is there, whole and safe.
fn is_there(path: &Path, user: libc::uid_t, library: &[u8]) -> bool {
    let open = || OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let whole = |mut file: File| {
        let found = file.metadata()?;
        if !found.is_file() || !is_ours_alone(&found, user) {
            return Ok(false);
        }
        // Part by part: memory for all of it takes longer to get than to fill.
        let (mut left, mut part) = (library, [0; 16 << 10]);
        loop {
            let read = file.read(&mut part)?;
            match left.strip_prefix(&part[..read]) {
                Some(rest) if read > 0 => left = rest,
                rest => return Ok(rest.is_some_and(<[u8]>::is_empty)),
            }
        }
    };
    open().and_then(whole).unwrap_or(false)
}

/// Whether the file system lets nothing be run that lies there.
fn is_without_programs(directory: &Path) -> io::Result<bool> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is a C string, and the buffer one `statvfs`.
    if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it in.
    Ok(unsafe { found.assume_init() }.f_flag & libc::ST_NOEXEC != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> libc::uid_t {
        // SAFETY: no arguments.
        unsafe { libc::geteuid() }
    }

    #[test]
    fn it_is_written_once() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("cache/poundlock");
        let path = put(&place, user(), b"library").unwrap();
        assert!(path.ends_with(FILE_NAME));
        assert_eq!(fs::read(&path).unwrap(), b"library");
        let inode = path.metadata().unwrap().ino();
        assert_eq!(put(&place, user(), b"library").unwrap(), path);
        assert_eq!(path.metadata().unwrap().ino(), inode);
        assert_eq!(place.metadata().unwrap().mode() & 0o777, 0o755);
    }

    /// As after a write that was cut short, or by somebody else.
    #[test]
    fn what_is_not_the_library_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("poundlock");
        let path = put(&place, user(), b"library").unwrap();
        for spoil in [
            (|path| fs::write(path, b"another").unwrap()) as fn(&Path),
            |path| fs::write(path, b"").unwrap(),
            |path| fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap(),
            |path| {
                fs::rename(path, path.with_extension("moved")).unwrap();
                std::os::unix::fs::symlink(path.with_extension("moved"), path).unwrap();
            },
        ] {
            spoil(&path);
            assert_eq!(put(&place, user(), b"library").unwrap(), path);
            assert_eq!(fs::read(&path).unwrap(), b"library");
            let found = path.symlink_metadata().unwrap();
            assert!(found.is_file() && found.mode() & 0o777 == 0o755);
        }
    }

    #[test]
    fn a_path_that_cannot_be_used_is_not() {
        assert_eq!(find(|_| false), Err(String::new()));
    }

    #[test]
    fn a_place_that_others_can_write_to_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("poundlock");
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, Permissions::from_mode(0o1777)).unwrap();
        assert!(put(&place, user(), b"library").is_err());
        let link = home.path().join("link");
        std::os::unix::fs::symlink(home.path(), &link).unwrap();
        assert!(put(&link, user(), b"library").is_err());
        // Somebody else's.
        fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        assert!(put(&place, user() + 1, b"library").is_err());
        assert!(put(&place, user(), b"library").is_ok());
    }
}
