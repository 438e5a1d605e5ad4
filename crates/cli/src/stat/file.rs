//! Where a report is written to.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::message::{Failure, status};
use crate::output;
use crate::program::reason;

/// A file that is known to be writable.
pub(super) enum Output {
    /// Written beside its final place and moved there when it is complete, so that no reader sees half of it.
    Replace { temporary: NamedTempFile, path: PathBuf },
    /// A pipe or device, which must not be replaced by a file.
    Stream { file: File, path: PathBuf },
    /// What was asked for by `-`: after all that the command prints.
    Standard,
}

impl Output {
    /// Makes sure that a report can be written to `path`.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        Self::try_open(path).map_err(|error| failure(path, &error))
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        if output::is_standard(path) {
            return Ok(Output::Standard);
        }
        // Through a symbolic link it is the file behind it that is replaced.
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
            Err(error) => return Err(error),
        };
        match target.metadata() {
            Ok(meta) if meta.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
            Ok(meta) if !meta.is_file() => {
                let file = OpenOptions::new().write(true).open(&target)?;
                return Ok(Output::Stream { file, path: path.to_path_buf() });
            }
            // It would be replaced whatever its mode says; but a file that its owner made read-only is meant
            // to stay.
            Ok(_) => drop(OpenOptions::new().append(true).open(&target)?),
            Err(_) => {}
        }
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = tempfile::Builder::new()
            .prefix(".poundlock-stat-")
            // Less what the umask takes away, as for any new file.
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(dir)?;
        Ok(Output::Replace { temporary, path: target })
    }

    /// Writes what `write` writes, as it comes.
    pub(super) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let whole = |file: &mut dyn Write| {
            let mut buffered = BufWriter::with_capacity(1 << 16, file);
            write(&mut buffered).and_then(|()| buffered.flush())
        };
        match self {
            Output::Standard => whole(&mut io::stdout()).map_err(|error| output::refused(&error)),
            Output::Stream { mut file, path } => whole(&mut file).map_err(|error| failure(&path, &error)),
            Output::Replace { mut temporary, path } => {
                whole(&mut temporary).map_err(|error| failure(&path, &error))?;
                temporary.persist(&path).map_err(|error| failure(&path, &error.error))?;
                Ok(())
            }
        }
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        status::OURS,
        format_args!("the report cannot be written to {}: {}", path.display(), reason(error)),
    )
}
