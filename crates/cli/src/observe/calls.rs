//! The system calls that threads sleep in: what `/proc/PID/task/TID/syscall` says of them, what they wait for,
//! and what they are called.

use std::io;

/// What a wait for a futex is called that the file knows.
pub(crate) const FUTEX: &str = "futex";

/// The name of call number `number`; one that the table does not have is named by its number.
pub(crate) fn name(number: libc::c_long) -> String {
    let call = usize::try_from(number).ok().and_then(syscalls::Sysno::new);
    call.map_or_else(|| format!("system call {number}"), |call| call.name().to_owned())
}

/// A call and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: libc::c_long,
    pub(crate) arguments: [u64; 6],
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// On a CPU, or ready for one.
    Running,
    /// In a call, asleep.
    Call { call: Call, sp: u64, pc: u64 },
    /// Asleep outside of a call: it is stopped, or waits for a page.
    Outside { sp: u64, pc: u64 },
    /// It has ended.
    Gone,
}

/// What a thread does now.
///
/// # Errors
/// If the kernel does not say it to us.
pub(crate) fn doing(pid: u32, tid: u32) -> io::Result<Doing> {
    match std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(line) => Ok(parse(&line)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => {
            let gone = std::fs::metadata(format!("/proc/{pid}/task/{tid}")).is_err();
            // A kernel without this file (CONFIG_HAVE_ARCH_TRACEHOOK) says nothing of any thread.
            if gone || error.raw_os_error() == Some(libc::ESRCH) { Ok(Doing::Gone) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// Reads the line of a thread.
pub(crate) fn parse(line: &str) -> Doing {
    let mut words = line.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<libc::c_long>().ok()) else {
        return Doing::Running;
    };
    let mut values = words.map_while(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let mut value = || values.next().unwrap_or(0);
    if number < 0 {
        let (sp, pc) = (value(), value());
        // A thread without either has no memory any more.
        return if (sp, pc) == (0, 0) { Doing::Gone } else { Doing::Outside { sp, pc } };
    }
    let arguments = std::array::from_fn(|_| value());
    Doing::Call { call: Call { number, arguments }, sp: value(), pc: value() }
}

/// Calls that newer architectures are without: numbers that are none stand for those there.
#[cfg(target_arch = "x86_64")]
mod older {
    pub(crate) const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_wait;
    pub(crate) const POLL: libc::c_long = libc::SYS_poll;
    pub(crate) const SELECT: libc::c_long = libc::SYS_select;
    pub(crate) const PAUSE: libc::c_long = libc::SYS_pause;
}
#[cfg(not(target_arch = "x86_64"))]
mod older {
    pub(crate) const EPOLL_WAIT: libc::c_long = -1;
    pub(crate) const POLL: libc::c_long = -2;
    pub(crate) const SELECT: libc::c_long = -3;
    pub(crate) const PAUSE: libc::c_long = -4;
}
pub(crate) use older::{EPOLL_WAIT, PAUSE, POLL, SELECT};

/// `futex_waitv`, which not every version of `libc` has: the same on all architectures.
pub(crate) const FUTEX_WAITV: libc::c_long = 449;
/// `futex_wait`, likewise.
pub(crate) const FUTEX_WAIT: libc::c_long = 455;

/// What a thread that waits for a futex says in its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FutexWait {
    /// The word's address.
    pub(crate) word: u64,
    /// What it is to be as long as the thread waits. Not of a [`FutexWait::inherits`] one.
    pub(crate) expected: u32,
    /// It is a mutex of the kernel's protocol for inherited priorities: the word has the owner's thread id.
    pub(crate) inherits: bool,
}

impl Call {
    /// The futex that is waited for.
    pub(crate) fn futex(&self) -> Option<FutexWait> {
        let [first, operation, third, ..] = self.arguments;
        let operation = operation as libc::c_int;
        let command = operation & libc::FUTEX_CMD_MASK;
        const LOCK_PI2: libc::c_int = 13;
        let wait = |inherits| FutexWait { word: first, expected: third as u32, inherits };
        let plain = command == libc::FUTEX_WAIT || command == libc::FUTEX_WAIT_BITSET;
        match self.number {
            libc::SYS_futex if plain => Some(wait(false)),
            libc::SYS_futex if command == libc::FUTEX_LOCK_PI || command == LOCK_PI2 => Some(wait(true)),
            // It waits for the first word first, and is then put to the mutex.
            libc::SYS_futex if command == libc::FUTEX_WAIT_REQUEUE_PI => Some(wait(false)),
            FUTEX_WAIT => Some(FutexWait { word: first, expected: operation as u32, inherits: false }),
            // The kernel goes on with a call that had a time limit under another number; the registers are
            // those of the call. Of the calls that do so, only a wait for a futex has a private operation.
            libc::SYS_restart_syscall => {
                let private = operation & libc::FUTEX_PRIVATE_FLAG != 0 && operation < 0x200;
                (private && plain && first > 0xffff && first.is_multiple_of(4)).then(|| wait(false))
            }
            _ => None,
        }
    }

    /// Whether it waits for futexes, for one or for several.
    pub(crate) fn waits_for_futex(&self) -> bool {
        self.number == FUTEX_WAITV || self.futex().is_some()
    }

    /// Whether waits for locks, conditions and semaphores sleep in it. In any other call a thread does
    /// something else, though it may be about to wait, or have waited just before.
    pub(crate) fn may_be_a_wait(&self) -> bool {
        matches!(
            self.number,
            libc::SYS_futex
                | FUTEX_WAITV
                | FUTEX_WAIT
                | libc::SYS_restart_syscall
                | libc::SYS_nanosleep
                | libc::SYS_clock_nanosleep
                | libc::SYS_sched_yield
                | libc::SYS_semop
                | libc::SYS_semtimedop
        )
    }

    /// Whether it may end by a time limit of its own. Unknown calls may.
    pub(crate) fn has_limit(&self) -> bool {
        let [_, _, third, fourth, ..] = self.arguments;
        match self.number {
            libc::SYS_futex => fourth != 0,
            libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_wait4 | libc::SYS_waitid => false,
            libc::SYS_ppoll => third != 0,
            POLL => (third as i32) >= 0,
            EPOLL_WAIT | libc::SYS_epoll_pwait => (fourth as i32) >= 0,
            _ => true,
        }
    }

    /// Whether the kernel goes on with it after the thread stood still, so that the program never sees it.
    ///
    /// The others end with `EINTR`, as after a stop by a signal: signal(7), "Interruption of system calls and
    /// library functions by stop signals". `socket` says whether a file descriptor's reads and writes may
    /// have a time limit of their own, with which they end so, too.
    pub(crate) fn goes_on(&self, socket: impl Fn(u64) -> bool) -> bool {
        let command = self.arguments[1] as libc::c_int & libc::FUTEX_CMD_MASK;
        match self.number {
            libc::SYS_futex => command != libc::FUTEX_WAIT_REQUEUE_PI,
            FUTEX_WAITV
            | FUTEX_WAIT
            | libc::SYS_restart_syscall
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_ppoll
            | libc::SYS_pselect6
            | libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_rt_sigsuspend
            | libc::SYS_flock => true,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll | libc::SYS_select | libc::SYS_pause => true,
            libc::SYS_read | libc::SYS_write | libc::SYS_readv | libc::SYS_writev => {
                !socket(self.arguments[0])
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_its_name_and_unknown_ones_a_number() {
        for (number, known) in [
            (libc::SYS_read, "read"),
            (libc::SYS_mkdirat, "mkdirat"),
            (libc::SYS_fsync, "fsync"),
            (libc::SYS_futex, FUTEX),
            (libc::SYS_io_uring_enter, "io_uring_enter"),
        ] {
            assert_eq!(name(number), known);
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!((name(84), name(libc::SYS_rmdir)), ("rmdir".to_owned(), "rmdir".to_owned()));
        assert_eq!(name(1 << 20), "system call 1048576");
    }

    #[test]
    fn lines_are_read_with_all_that_they_have() {
        let line = "202 0x55aa00 0x189 0x2 0x0 0x0 0xffffffff 0x7ffe 0x7f21\n";
        let Doing::Call { call, sp, pc } = parse(line) else { panic!("no call") };
        assert_eq!((call.number, sp, pc), (202, 0x7ffe, 0x7f21));
        assert_eq!(call.arguments, [0x55_aa00, 0x189, 2, 0, 0, 0xffff_ffff]);
        assert_eq!(parse("running\n"), Doing::Running);
        assert_eq!(parse("-1 0x7ffe 0x7f21\n"), Doing::Outside { sp: 0x7ffe, pc: 0x7f21 });
        assert_eq!(parse("-1 0x0 0x0\n"), Doing::Gone);
    }

    #[test]
    fn waits_for_futexes_are_known_and_wakes_are_none() {
        let call = |operation: libc::c_int| Call {
            number: libc::SYS_futex,
            arguments: [0x1_0000, operation as u64, 2, 0, 0, 0],
        };
        let wait = call(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG).futex();
        assert_eq!(wait, Some(FutexWait { word: 0x1_0000, expected: 2, inherits: false }));
        assert!(call(libc::FUTEX_LOCK_PI).futex().is_some_and(|wait| wait.inherits));
        assert_eq!(call(libc::FUTEX_WAKE).futex(), None);
        assert!(call(libc::FUTEX_WAIT_BITSET).waits_for_futex() && !call(libc::FUTEX_WAKE).waits_for_futex());
        assert!(!Call { number: libc::SYS_read, ..call(libc::FUTEX_WAIT) }.waits_for_futex());
        let again = |operation: u64| Call {
            number: libc::SYS_restart_syscall,
            arguments: [0x1_0000, operation, 2, 0, 0, 0],
        };
        assert!(again(0x189).futex().is_some() && again(0).futex().is_none());
        assert!(again(0x7ffe_1234_5680).futex().is_none(), "the second argument of nanosleep is an address");
    }

    #[test]
    fn what_ends_with_an_error_after_a_stop_is_left_alone() {
        let call = |number| Call { number, arguments: [0; 6] };
        assert!(!call(libc::SYS_epoll_pwait).goes_on(|_| false) && !call(libc::SYS_semop).goes_on(|_| false));
        assert!(call(libc::SYS_read).goes_on(|_| false) && !call(libc::SYS_read).goes_on(|_| true));
        assert!(call(libc::SYS_clock_nanosleep).goes_on(|_| false));
    }
}
