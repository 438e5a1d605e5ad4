//! Shared objects that are kept inside this library, and loaded when somebody asks for what is in them.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::topology::Topology;
use crate::{Calls, Made, rw};

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

/// The one that every shim with readers-writer locks exports.
type RwEntrance = unsafe extern "C" fn(*const c_char, *mut rw::Calls) -> c_int;

/// What a shared object exports.
#[derive(Clone, Copy)]
struct Loaded {
    entrance: Entrance,
    rw_entrance: Option<RwEntrance>,
}

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

/// A shim, loaded when it is first asked for and never unloaded: threads may hold its locks, or end in its
/// code.
pub(crate) struct Shim {
    built: Built,
    loaded: OnceLock<Result<Loaded, String>>,
}

impl Shim {
    pub(crate) const fn new(built: Built) -> Shim {
        Shim { built, loaded: OnceLock::new() }
    }

    /// The origin and the functions of one of its locks.
    pub(crate) fn peer(&self, name: &CStr) -> Made<Calls> {
        let entrance = self.loaded()?.entrance;
        let mut calls = MaybeUninit::uninit();
        // SAFETY: the function is a shim's. It reads the name and the topology, which lives as long as the
        // program, and fills `calls` in if it returns 0.
        let rc = unsafe { entrance(name.as_ptr(), machine(), calls.as_mut_ptr()) };
        // SAFETY: as above.
        unsafe { self.filled(rc, calls, name) }
    }

    /// The origin and the functions of one of its readers-writer locks.
    pub(crate) fn rw_peer(&self, name: &CStr) -> Made<rw::Calls> {
        let entrance = self.loaded()?.rw_entrance.ok_or("its shim has no readers-writer locks")?;
        let mut calls = MaybeUninit::uninit();
        // SAFETY: the function is a shim's. It reads the name, and fills `calls` in if it returns 0.
        let rc = unsafe { entrance(name.as_ptr(), calls.as_mut_ptr()) };
        // SAFETY: as above.
        unsafe { self.filled(rc, calls, name) }
    }

    fn loaded(&self) -> Result<Loaded, String> {
        let object = self.built.object.map_err(str::to_owned)?;
        self.loaded.get_or_init(|| load(object)).clone().map_err(|problem| {
            format!("{problem} (Debian and Ubuntu: apt-get install {})", self.built.package)
        })
    }

    /// What an entrance has answered.
    ///
    /// # Safety
    /// `calls` is filled in if `rc` is 0.
    unsafe fn filled<C>(&self, rc: c_int, calls: MaybeUninit<C>, name: &CStr) -> Made<C> {
        if rc != 0 {
            return Err(format!("its shim knows no '{}'", name.to_string_lossy()));
        }
        // SAFETY: by the caller's word.
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
fn load(object: &[u8]) -> Result<Loaded, String> {
    let file = file_of(object).map_err(|error| format!("cannot put it into a file in memory: {error}"))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the object is one that our build script has compiled; its initialisers are the package's.
    let library =
        unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| problem(&error))?;
    // SAFETY: the type is the one that `shims/peer.h` declares.
    let entrance = unsafe { library.get::<Entrance>(c"poundlock_peer".to_bytes_with_nul()) }
        .map_err(|error| problem(&error))?;
    let entrance = *entrance;
    // SAFETY: as above.
    let rw_entrance = unsafe { library.get::<RwEntrance>(c"poundlock_rw_peer".to_bytes_with_nul()) };
    let rw_entrance = rw_entrance.ok().map(|entrance| *entrance);
    std::mem::forget(library);
    // The linker knows libraries by their paths. If this descriptor were closed, the next shim would get its
    // number and with it its path, and be taken for the same library.
    std::mem::forget(file);
    Ok(Loaded { entrance, rw_entrance })
}

/// What the dynamic linker says, in one line.
fn problem(error: &libloading::Error) -> String {
    use std::error::Error;
    let said = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    format!("cannot be loaded: {}", said.lines().next().unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    use std::sync::{Arc, Barrier, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::{Instance, Node, built};

    /// A shared object of this source, compiled with these further arguments.
    fn compile(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> Vec<u8> {
        let (c, object) = (directory.join(format!("{name}.c")), directory.join(format!("lib{name}.so")));
        fs::write(&c, source).unwrap();
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-L"])
            .arg(directory)
            .arg("-o")
            .args([&object, &c])
            .args(arguments)
            .status()
            .expect("a C compiler");
        assert!(status.success());
        fs::read(object).unwrap()
    }

    #[track_caller]
    fn one_line(problem: &str, parts: &[&str]) {
        assert!(!problem.contains('\n'), "{problem}");
        for part in parts {
            assert!(problem.contains(part), "no '{part}' in: {problem}");
        }
    }

    #[test]
    fn what_cannot_be_loaded_says_why_in_one_line() {
        one_line(&load(b"no object").err().unwrap(), &["cannot be loaded"]);
        let directory = tempfile::tempdir().unwrap();
        let other = compile(directory.path(), "other", "int other;", &[]);
        one_line(&load(&other).err().unwrap(), &["cannot be loaded", "poundlock_peer"]);
        compile(directory.path(), "poundlock_gone", "int gone;", &[]);
        let needy = compile(directory.path(), "needy", "int poundlock_peer;", &["-lpoundlock_gone"]);
        fs::remove_file(directory.path().join("libpoundlock_gone.so")).unwrap();
        let gone = "libpoundlock_gone.so";
        one_line(&load(&needy).err().unwrap(), &["cannot be loaded", gone]);

        // And once more, as whoever asks for a lock sees it, each time.
        let shim = Shim::new(Built { object: Ok(needy.leak()), origin: "", package: "libgone-dev" });
        for _ in 0..2 {
            one_line(&shim.peer(c"gone").unwrap_err(), &[gone, "apt-get install libgone-dev"]);
        }
        let shim = Shim::new(Built { object: Err("not built"), origin: "", package: "libgone-dev" });
        assert_eq!(shim.peer(c"gone").unwrap_err(), "not built");
    }

    /// The dynamic linker tells libraries apart by their paths, and these all have none of their own.
    #[test]
    fn each_shim_is_itself() {
        let directory = tempfile::tempdir().unwrap();
        let answers: Vec<_> = (1..=3)
            .map(|answer| {
                let source = format!("int poundlock_peer(void) {{ return {answer}; }}");
                let object = compile(directory.path(), &format!("answer{answer}"), &source, &[]);
                let entrance = load(&object).unwrap().entrance;
                let mut calls = MaybeUninit::uninit();
                // SAFETY: the function takes no notice of its arguments.
                unsafe { entrance(c"".as_ptr(), machine(), calls.as_mut_ptr()) }
            })
            .collect();
        assert_eq!(answers, [1, 2, 3]);
    }

    #[test]
    fn a_shim_knows_no_other_names() {
        for (shim, name) in
            [(built::ABSEIL, c"nsync"), (built::NSYNC, c"abseil"), (built::ONETBB, c"ck"), (built::CK, c"ck")]
        {
            if shim.object.is_ok() {
                let shim = Shim::new(shim);
                for problem in [shim.peer(name).unwrap_err(), shim.rw_peer(name).unwrap_err()] {
                    one_line(&problem, &["knows no", name.to_str().unwrap()]);
                }
            }
        }
    }

    /// On a machine with NUMA nodes the cohort lock has several locks, of which each thread takes one by its
    /// CPU. Here the nodes change all the time under the threads' feet, which must not matter.
    #[test]
    fn cohorts_of_many_nodes_exclude_each_other() {
        const NODES: u32 = 3;
        const THREADS: usize = 2;
        const ROUNDS: u64 = 20_000;
        let Ok(object) = built::CK.object else { return };
        // CPUs beyond the list belong to node 0; those in it to this one, at the time.
        let node_of_cpu: &'static [AtomicU32] =
            (0..4096).map(|_| AtomicU32::new(0)).collect::<Vec<_>>().leak();
        let topology: &'static CTopology = Box::leak(Box::new(CTopology {
            nodes: NODES,
            cpus: node_of_cpu.len() as u32,
            node_of_cpu: node_of_cpu.as_ptr().cast(),
        }));
        // Loaded anew, so that this topology is nobody else's.
        let entrance = load(object).unwrap().entrance;
        let mut calls = MaybeUninit::uninit();
        // SAFETY: as in `Shim::peer`.
        let calls: Calls = unsafe {
            assert_eq!(entrance(c"ck-cohort".as_ptr(), topology, calls.as_mut_ptr()), 0);
            calls.assume_init()
        };
        let one = crate::find("ck-cohort").unwrap().unwrap().calls;
        assert!(calls.size >= one.size + (NODES - machine().nodes) as usize * 2 * 128, "{}", calls.size);

        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let lock = Arc::new(Instance::new(&calls));
            let count = Arc::new(AtomicU64::new(0));
            let end = Arc::new(AtomicBool::new(false));
            let start = Arc::new(Barrier::new(THREADS));
            let mover = thread::spawn({
                let end = Arc::clone(&end);
                move || {
                    // CPUs beside each other are always on different nodes.
                    for shift in (0..NODES).cycle().take_while(|_| !end.load(Relaxed)) {
                        for (cpu, node) in (shift..).zip(node_of_cpu) {
                            node.store(cpu % NODES, Relaxed);
                        }
                        thread::yield_now();
                    }
                }
            });
            let adders: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (lock, count, start) = (Arc::clone(&lock), Arc::clone(&count), Arc::clone(&start));
                    thread::spawn(move || {
                        let node = Node::new(&calls);
                        let own = |call: unsafe extern "C" fn(*mut c_void, *mut c_void)| {
                            // SAFETY: lock and node live; the thread unlocks what it locked.
                            unsafe { call(lock.as_ptr(), node.as_ptr()) }
                        };
                        start.wait();
                        for _ in 0..ROUNDS {
                            own(calls.lock);
                            // Two steps: if two threads are in at once, additions are lost.
                            let seen = count.load(Relaxed);
                            (0..20).for_each(|_| std::hint::spin_loop());
                            count.store(seen + 1, Relaxed);
                            own(calls.unlock);
                        }
                    })
                })
                .collect();
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            end.store(true, Relaxed);
            mover.join().unwrap();
            tell.send(count.load(Relaxed)).unwrap();
        });
        // A thread that spins cannot be stopped: the test ends and leaves it behind.
        let count = told.recv_timeout(Duration::from_secs(240)).expect("it hangs");
        assert_eq!(count, THREADS as u64 * ROUNDS);
    }
}
