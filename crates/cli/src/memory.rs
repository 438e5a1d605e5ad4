//! Where there is no memory: a line that says so, and the end with the program's own status. The standard
//! library would abort, and with that lose the program, its status and the way to its figures.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::launch;
use crate::message::status;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The system's, but that it does not return without memory.
struct Allocator;

// SAFETY: what the system's allocator returns, or nothing.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        there(unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        there(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's.
        there(unsafe { System.realloc(block, layout, size) })
    }
}

#[inline]
fn there(block: *mut u8) -> *mut u8 {
    if block.is_null() { exhausted() } else { block }
}

/// A thread has found no memory, and sees to the end of the process.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Where the program's figures are.
static FIGURES: OnceLock<PathBuf> = OnceLock::new();

/// Has the line name the figures, which stay then.
pub(crate) fn keep(figures: &Path) {
    let _ = FIGURES.set(figures.to_owned());
}

/// Ends the process if there was no memory, once the program has ended: what a thread that found none holds,
/// it holds for good.
pub(crate) fn check(code: u8) {
    if EXHAUSTED.load(SeqCst) {
        end(Some(code));
    }
}

/// Allocates nothing, and takes no lock of the standard library's: the caller may hold any.
#[cold]
fn exhausted() -> ! {
    if EXHAUSTED.swap(true, SeqCst) {
        launch::wait_for_the_end();
    }
    let mut line = Line { text: [0; 1024], len: 0 };
    // It is cut off where it is longer.
    let _ = compose(&mut line);
    let _ = line.write_char('\n');
    // SAFETY: the bytes are there.
    unsafe { libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.len) };
    end(launch::outlast())
}

/// The program's status, if it says more than ours.
fn end(code: Option<u8>) -> ! {
    let code = code.filter(|code| *code != 0).unwrap_or(status::OURS);
    // SAFETY: ends the process without a look at anything of it.
    unsafe { libc::_exit(code.into()) }
}

fn compose(line: &mut Line) -> fmt::Result {
    line.write_str("poundlock: there is no memory left")?;
    let mut limited = false;
    for (resource, name) in
        [(libc::RLIMIT_DATA, "data (ulimit -d)"), (libc::RLIMIT_AS, "address space (ulimit -v)")]
    {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
        // SAFETY: the buffer is one `rlimit`.
        unsafe { libc::getrlimit(resource, &raw mut limit) };
        if limit.rlim_cur != libc::RLIM_INFINITY {
            let before = if limited { ", that on" } else { ": the limit on" };
            write!(line, "{before} {name} is {} KiB", limit.rlim_cur >> 10)?;
            limited = true;
        }
    }
    if !limited {
        line.write_str(": the system gives no more (see vm.overcommit_memory)")?;
    }
    match FIGURES.get() {
        Some(figures) => write!(
            line,
            ". The figures stay: `poundlock stat --read {}` reports on them where there is more",
            figures.display()
        ),
        None => Ok(()),
    }
}

struct Line {
    text: [u8; 1024],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The end of the line has room in any case.
        let room = self.text.len() - 1 - self.len;
        let some = text.len().min(if text == "\n" { 1 } else { room });
        self.text[self.len..self.len + some].copy_from_slice(&text.as_bytes()[..some]);
        self.len += some;
        if some == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
