//! The language runtime that a program brings along, told by its file, and what of that runtime's locks shows
//! from outside.
//!
//! A runtime that parks its own tasks, or whose locks are no pthread locks, needs another command than the
//! one that was asked for. Each runtime says here what is not seen and which command shows it, so that `stat`
//! and `check` say the same.

use std::path::Path;

use object::read::elf::ProgramHeader as _;
use object::{Object as _, ObjectSection as _};

use super::proc::read_text;
use crate::elf_file;
use crate::program;

/// A language runtime whose locks are not pthread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Runtime {
    Go,
    Java,
    Rust,
}

/// The first bytes of the build information that Go's linker writes into each program, stripped or not.
const GO_BUILD_INFO: &[u8] = b"\xff Go buildinf:";
/// The build information begins at a multiple of this many bytes,
const GO_ALIGNMENT: usize = 16;
/// within this many bytes of a writable segment.
const GO_REACH: u64 = 1 << 20;

impl Runtime {
    /// The runtime of the program in a file.
    pub(crate) fn of_file(path: &Path) -> Option<Runtime> {
        let data = elf_file::open(path)?;
        let file = elf_file::parse(&data)?;
        if file.section_by_name(".go.buildinfo").is_some() || has_go_build_info(&file) {
            return Some(Runtime::Go);
        }
        let java = |name: &[u8]| [&b"libjli.so"[..], b"libjvm.so"].iter().any(|part| name.starts_with(part));
        if program::needed(path, java).is_some() {
            return Some(Runtime::Java);
        }
        // Compilers sign their work there.
        let comment = file.section_by_name(".comment").and_then(|section| section.uncompressed_data().ok());
        let is_rust = comment.is_some_and(|text| text.windows(5).any(|part| part == b"rustc"));
        is_rust.then_some(Runtime::Rust)
    }

    /// The runtime of a running process: that of its program, or of a virtual machine that it has loaded.
    pub(crate) fn of_process(pid: u32) -> Option<Runtime> {
        let maps = read_text(format!("/proc/{pid}/maps")).unwrap_or_default();
        if maps.contains("/libjvm.so") {
            return Some(Runtime::Java);
        }
        Runtime::of_file(Path::new(&format!("/proc/{pid}/exe")))
    }

    /// Which of the runtime's waits no futex call shows, and what shows them; `None` if futex calls show all.
    /// Begins with a verb: the program's name comes before.
    pub(crate) fn beyond_futexes(self) -> Option<&'static str> {
        match self {
            Runtime::Go => Some(
                "is written in Go, whose runtime parks goroutines by itself: a goroutine that waits for a sync.Mutex, a \
                 channel or a WaitGroup makes no futex call, so those waits are not seen here. Go's mutex profile has \
                 them: call runtime.SetMutexProfileFraction(1), serve net/http/pprof, and run `go tool pprof \
                 http://HOST:PORT/debug/pprof/mutex` (`go test -mutexprofile FILE` in tests)",
            ),
            Runtime::Java | Runtime::Rust => None,
        }
    }

    /// The locks of the runtime that pthread calls do not show, in words.
    pub(crate) fn own_locks(self) -> &'static str {
        match self {
            Runtime::Go => "Go's mutexes and channels",
            Runtime::Java => "Java's monitors and java.util.concurrent's locks",
            Runtime::Rust => "the locks of Rust's std and of crates",
        }
    }
}

/// Whether a writable segment has Go's build information: headers of sections may be stripped.
fn has_go_build_info(file: &elf_file::Elf<'_>) -> bool {
    let endian = file.endian();
    let writable = file.elf_program_headers().iter().filter(|segment| {
        segment.p_type(endian) == object::elf::PT_LOAD && segment.p_flags(endian).0 & object::elf::PF_W.0 != 0
    });
    writable.into_iter().any(|segment| {
        let (from, size) = segment.file_range(endian);
        let bytes = object::ReadRef::read_bytes_at(file.data(), from, size.min(GO_REACH)).unwrap_or_default();
        bytes.chunks(GO_ALIGNMENT).any(|chunk| chunk.starts_with(GO_BUILD_INFO))
    })
}

#[cfg(test)]
mod tests {
    use super::Runtime;

    #[test]
    fn a_program_is_known_by_what_its_linker_left_in_it() {
        let own = std::env::current_exe().expect("it runs");
        assert_eq!(Runtime::of_file(&own), Some(Runtime::Rust));
        assert_eq!(Runtime::of_process(std::process::id()), Some(Runtime::Rust));
        assert_eq!(Runtime::of_file(std::path::Path::new("/bin/sh")), None);
        assert_eq!(Runtime::of_file(std::path::Path::new("/etc/passwd")), None);
    }
}
