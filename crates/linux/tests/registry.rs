//! Registering a thread while a signal handler does.

use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use poundlock_linux::registry;
use poundlock_testing::{Answer, Filter};

/// An argument of `gettid`, which takes none, that the filter lets pass.
const PASS: u32 = 0x706c_6f63;

static INSIDE: AtomicU32 = AtomicU32::new(0);
static HANDLED: AtomicBool = AtomicBool::new(false);

/// In place of a thread's `gettid`: registers the thread, and returns what it would have.
extern "C" fn in_its_place(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !HANDLED.swap(true, SeqCst) {
        INSIDE.store(registry::identity(), SeqCst);
    }
    // SAFETY: the context of the interrupted call, whose result is in this register.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let thread = libc::syscall(libc::SYS_gettid, PASS);
        #[cfg(target_arch = "x86_64")]
        let result = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
        #[cfg(target_arch = "aarch64")]
        let result = &mut context.uc_mcontext.regs[0];
        *result = thread as _;
    }
}

/// Who asks for its identity in the middle of registering gets the one that the thread has afterwards.
#[test]
fn a_handler_that_registers_the_thread_it_interrupts_gives_it_its_identity() {
    std::thread::spawn(|| {
        // SAFETY: a handler that does what handlers may. It is interrupted by itself once.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = in_its_place as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            assert_eq!(libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()), 0);
        }
        let filter =
            Filter { call: libc::SYS_gettid, argument: Some((0, PASS, false)), answer: Answer::Trap };
        if filter.install(false).is_err() {
            let _ = writeln!(std::io::stderr(), "SKIPPED: needs seccomp");
            return;
        }
        assert_eq!(registry::known_identity(), 0);
        let outside = registry::identity();
        assert!(HANDLED.load(SeqCst), "registering asks for the thread's number");
        assert_eq!(INSIDE.load(SeqCst), outside);
        assert_eq!(registry::identity(), outside);
    })
    .join()
    .expect("no failure");
}
