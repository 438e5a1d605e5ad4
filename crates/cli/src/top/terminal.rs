//! The terminal while the screen is up, and how it is left as it was, whatever ends us.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use ratatui_core::layout::Rect;
use ratatui_core::terminal::{Frame, Terminal};
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::KeyEvent;

use super::keys::Keys;

/// The other screen, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// And back.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// What ends a process by a fault of its own.
const FATAL: [libc::c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// The terminal whose screen is ours; -1 while none is.
static HELD: AtomicI32 = AtomicI32::new(-1);

/// How it was before: written while `HELD` is -1, by the one thread that draws.
static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

struct Before(UnsafeCell<MaybeUninit<libc::termios>>);

// SAFETY: written before HELD is set, and read only by who has taken HELD away.
unsafe impl Sync for Before {}

/// Leaves the terminal as it was, if it is not so already. For signal handlers as well: it calls `write` and
/// `tcsetattr` alone.
fn restore() {
    let fd = HELD.swap(-1, SeqCst);
    if fd < 0 {
        return;
    }
    // SAFETY: the bytes are there; BEFORE was filled in before HELD was set, and all zeroes are a `termios`.
    unsafe {
        libc::write(fd, LEAVE.as_ptr().cast(), LEAVE.len());
        libc::tcsetattr(fd, libc::TCSANOW, (*BEFORE.0.get()).as_ptr());
    }
}

extern "C" fn dies(signal: libc::c_int) {
    restore();
    // SAFETY: takes a number. The signal has its default action again, and is not blocked.
    unsafe { libc::raise(signal) };
}

/// A terminal that is drawn on.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<File>>>,
    keys: Keys,
    fd: libc::c_int,
    /// The size of what was drawn.
    drawn: (u16, u16),
    faults: Vec<(libc::c_int, libc::sigaction)>,
}

impl Screen {
    /// Takes the terminal that `stream` is.
    pub(super) fn enter(stream: BorrowedFd) -> io::Result<Screen> {
        let file = File::from(stream.try_clone_to_owned()?);
        let fd = file.as_raw_fd();
        // Whether there is anything that keys come from, before anything is changed.
        let keys = Keys::open()?;
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, file)))?;
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        let mut screen = Screen { terminal, keys, fd, drawn: (0, 0), faults: Vec::new() };
        screen.take()?;
        Ok(screen)
    }

    fn take(&mut self) -> io::Result<()> {
        // SAFETY: nobody else uses BEFORE while HELD is -1; the call fills in a `termios`.
        let mut raw = unsafe {
            let before = &mut *BEFORE.0.get();
            if libc::tcgetattr(self.fd, before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            before.assume_init()
        };
        HELD.store(self.fd, SeqCst);
        for signal in FATAL {
            let mut before = MaybeUninit::zeroed();
            // SAFETY: zeroes are an action, whose handler takes a signal and calls what handlers may call.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = dies as extern "C" fn(libc::c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const action, before.as_mut_ptr());
                self.faults.push((signal, before.assume_init()));
            }
        }
        // SAFETY: changes and passes on the `termios` that the kernel filled in.
        unsafe {
            libc::cfmakeraw(&raw mut raw);
            // Nobody waits in a `read` for keys that somebody else has read.
            (raw.c_cc[libc::VMIN], raw.c_cc[libc::VTIME]) = (0, 0);
            libc::tcsetattr(self.fd, libc::TCSANOW, &raw const raw);
        }
        let backend = self.terminal.backend_mut();
        backend.write_all(ENTER)?;
        io::Write::flush(backend)?;
        self.clear()
    }

    fn leave(&mut self) {
        restore();
        for (signal, before) in self.faults.drain(..) {
            // SAFETY: the action is the one that the kernel gave us.
            unsafe { libc::sigaction(signal, &raw const before, std::ptr::null_mut()) };
        }
    }

    /// Stops as Ctrl-Z stops what does not read it as a key, with the terminal as it was; returns when the shell
    /// has us go on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.leave();
        // SAFETY: takes two numbers: our own process group, as the terminal does.
        unsafe { libc::kill(0, libc::SIGTSTP) };
        self.take()
    }

    /// Draws.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        let drawn = self.terminal.draw(draw)?;
        self.drawn = (drawn.area.width, drawn.area.height);
        Ok(())
    }

    /// The keys that were pressed.
    pub(super) fn keys(&mut self) -> io::Result<Vec<KeyEvent>> {
        self.keys.read()
    }

    /// Everything anew, whatever others have written there.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // `Terminal::clear` would ask the terminal where its cursor is, and wait for an answer among the keys.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Whether it is of another size than what was drawn.
    pub(super) fn has_changed(&self) -> bool {
        // SAFETY: the terminal lives as long as this.
        let terminal = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let now = terminal_size::terminal_size_of(terminal);
        now.is_some_and(|(width, height)| (width.0, height.0) != self.drawn)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}
