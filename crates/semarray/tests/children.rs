//! Forked children, and memory that they share with their parent.

pub(crate) use poundlock_testing::{LIMIT, until};

/// A forked child.
pub(crate) struct Child(pub(crate) libc::pid_t);

impl Child {
    /// Runs `work` in a child, which ends with what it returns. The other threads are not there: `work` must
    /// not allocate.
    pub(crate) fn new(work: impl FnOnce() -> i32) -> Child {
        // SAFETY: the child does as said above.
        let process = unsafe { libc::fork() };
        assert!(process >= 0);
        if process == 0 {
            // A child that hangs ends.
            // SAFETY: a number.
            unsafe { libc::alarm(LIMIT as u32) };
            // A panic is not to go on in the child's copy of the tests.
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(1);
            // SAFETY: ends the child, without the parent's handlers.
            unsafe { libc::_exit(status) };
        }
        Child(process)
    }

    pub(crate) fn kill(&self) {
        // SAFETY: our child, which we have not waited for.
        assert_eq!(unsafe { libc::kill(self.0, libc::SIGKILL) }, 0);
    }

    /// Waits for its end; returns its status.
    pub(crate) fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: our child.
        assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
        status
    }

    /// Waits until it has ended, and leaves it a zombie.
    pub(crate) fn wait_zombie(&self) {
        wait_zombie(self.0 as u32);
    }
}

/// Waits until this child of ours has ended, and leaves it a zombie.
pub(crate) fn wait_zombie(child: u32) {
    let mut information = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: our child.
    let waited =
        unsafe { libc::waitid(libc::P_PID, child, information.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
    assert_eq!(waited, 0);
}

/// Sleeps for ever.
pub(crate) fn forever() -> ! {
    loop {
        // SAFETY: takes no arguments.
        unsafe { libc::pause() };
    }
}

/// Zero bytes, which must be a value of the type, that processes share.
pub(crate) fn shared<T>() -> &'static T {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, large and aligned enough for what the tests share.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        &*memory.cast()
    }
}
