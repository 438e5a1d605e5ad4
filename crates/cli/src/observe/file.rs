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
pub(crate) enum Output {
    /// Written beside its final place and moved there when it is complete, so that no reader sees half of it.
    Replace { temporary: NamedTempFile, path: PathBuf },
    /// A pipe or device, which must not be replaced by a file.
    Stream { file: File, path: PathBuf },
    /// What was asked for by `-`: after all that the command prints.
    Standard,
}

impl Output {
    /// Makes sure that a report can be written to `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        Self::try_open(path).map_err(|error| failure(path, &error))
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        if output::is_standard(path) {
            return Ok(Output::Standard);
        }
        // Through a symbolic link it is the file behind it that is replaced.
        let target = match path.canonicalize() {
            Ok(target) => target,
            // A file without a name: of /dev/stdout it is not the link that is to be replaced.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.exists() => {
                let file = OpenOptions::new().write(true).open(path)?;
                return Ok(Output::Stream { file, path: path.to_path_buf() });
            }
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
    pub(crate) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let mut writing = self.start();
        let written = write(&mut writing);
        writing.finish(written)
    }

    /// Begins to write.
    pub(crate) fn start(self) -> Writing {
        Writing(BufWriter::with_capacity(1 << 16, Raw(self)))
    }
}

/// A file that is being written.
pub(crate) struct Writing(BufWriter<Raw>);

impl Writing {
    /// All is there, unless `written` says otherwise.
    pub(crate) fn finish(mut self, written: io::Result<()>) -> Result<(), Failure> {
        let written = written.and_then(|()| self.0.flush());
        let (Raw(output), _) = self.0.into_parts();
        match output {
            Output::Standard => written.map_err(|error| output::refused(&error)),
            Output::Stream { path, .. } => written.map_err(|error| failure(&path, &error)),
            Output::Replace { temporary, path } => {
                written.map_err(|error| failure(&path, &error))?;
                temporary.persist(&path).map_err(|error| failure(&path, &error.error))?;
                Ok(())
            }
        }
    }
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

struct Raw(Output);

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Output::Standard => io::stdout().write(bytes),
            Output::Stream { file, .. } => file.write(bytes),
            Output::Replace { temporary, .. } => temporary.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Output::Standard => io::stdout().flush(),
            Output::Stream { file, .. } => file.flush(),
            Output::Replace { temporary, .. } => temporary.flush(),
        }
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        status::OURS,
        format_args!("the report cannot be written to {}: {}", path.display(), reason(error)),
    )
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use super::Output;

    #[test]
    fn a_file_without_a_name_is_not_given_one() {
        let file = tempfile::tempfile().expect("a file");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert!(matches!(Output::open(Path::new(&path)), Ok(Output::Stream { .. })));
    }
}
