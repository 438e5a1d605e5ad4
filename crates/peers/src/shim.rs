//! Shared objects that are kept inside this library, and loaded when somebody asks for what is in them.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::Calls;
use crate::topology::Topology;

/// What the build script has made of a shim.
pub(crate) struct Built {
    /// The shared object, or why there is none.
    pub(crate) object: Result<&'static [u8], &'static str>,
    /// What it was built with, and which version.
    pub(crate) origin: &'static str,
    /// What to install if it cannot be loaded.
    pub(crate) package: &'static str,
}

/// The function that every shim exports: see `shims/peer.h`.
type Entrance = unsafe extern "C" fn(*const c_char, *const CTopology, *mut Calls) -> c_int;

/// A [`Topology`] as C has it.
#[repr(C)]
struct CTopology {
    nodes: u32,
    cpus: u32,
    node_of_cpu: *const u32,
}

// SAFETY: nobody writes what it points to.
unsafe impl Send for CTopology {}
// SAFETY: as above.
unsafe impl Sync for CTopology {}

/// A shim, loaded when it is first asked for and never unloaded: threads may hold its locks, or end in its code.
pub(crate) struct Shim {
    built: Built,
    loaded: OnceLock<Result<Entrance, String>>,
}

impl Shim {
    pub(crate) const fn new(built: Built) -> Shim {
        Shim { built, loaded: OnceLock::new() }
    }

    /// The origin and the functions of one of its locks.
    pub(crate) fn peer(&self, name: &CStr) -> Result<(String, Calls), String> {
        let object = self.built.object.map_err(str::to_owned)?;
        let entrance = self
            .loaded
            .get_or_init(|| load(object))
            .clone()
            .map_err(|problem| format!("{problem}; is {} installed?", self.built.package))?;
        let mut calls = MaybeUninit::<Calls>::uninit();
        // SAFETY: the function is a shim's. It reads the name and the topology, which lives as long as the program, and
        // fills `calls` in if it returns 0.
        let rc = unsafe { entrance(name.as_ptr(), machine(), calls.as_mut_ptr()) };
        if rc != 0 {
            return Err(format!("its shim knows no '{}'", name.to_string_lossy()));
        }
        // SAFETY: it was filled in.
        Ok((self.built.origin.to_owned(), unsafe { calls.assume_init() }))
    }
}

/// The machine's topology, which shims may keep.
fn machine() -> &'static CTopology {
    static MACHINE: OnceLock<CTopology> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let topology = Topology::of_this_machine();
        let node_of_cpu = topology.node_of_cpu.leak();
        CTopology { nodes: topology.nodes, cpus: node_of_cpu.len() as u32, node_of_cpu: node_of_cpu.as_ptr() }
    })
}

/// Loads a shared object from memory.
fn load(object: &[u8]) -> Result<Entrance, String> {
    let file = file_of(object).map_err(|error| format!("cannot put it into a file in memory: {error}"))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the object is one that our build script has compiled; its initialisers are the package's.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| format!("cannot be loaded: {error}"))?;
    // SAFETY: the type is the one that `shims/peer.h` declares.
    let entrance = unsafe { library.get::<Entrance>(c"poundlock_peer".to_bytes_with_nul()) }
        .map_err(|error| format!("cannot be loaded: {error}"))?;
    let entrance = *entrance;
    std::mem::forget(library);
    // The linker knows libraries by their paths. If this descriptor were closed, the next shim would get its number and with
    // it its path, and be taken for the same library.
    std::mem::forget(file);
    Ok(entrance)
}

/// A file without a name, with this content, that ends with the process.
fn file_of(content: &[u8]) -> io::Result<File> {
    let create = |flags| {
        // SAFETY: reads the name.
        let descriptor = unsafe { libc::memfd_create(c"poundlock-peer".as_ptr(), flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        Ok(unsafe { File::from_raw_fd(descriptor) })
    };
    let mut file = match create(libc::MFD_CLOEXEC | libc::MFD_EXEC) {
        // Before Linux 6.3 there was no such flag, and no need for it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => create(libc::MFD_CLOEXEC),
        other => other,
    }?;
    file.write_all(content)?;
    Ok(file)
}
