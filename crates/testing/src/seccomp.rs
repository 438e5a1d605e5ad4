//! Filters of system calls.

use std::mem::offset_of;

/// What a filtered call comes to.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// It fails with this error number.
    Error(i32),
    /// It raises `SIGSYS` in its thread.
    Trap,
}

/// One system call that is not to be made, or not with one value of one argument.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Its number.
    pub call: libc::c_long,
    /// An argument's index, the value that the lower half is compared with, and whether equal ones are
    /// filtered, or all others.
    pub argument: Option<(usize, u32, bool)>,
    /// What becomes of it.
    pub answer: Answer,
}

impl Filter {
    /// Sets the filter for the calling thread and those that it starts; with `everybody`, for all threads of
    /// the process. Nobody can take it away.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn install(self, everybody: bool) -> std::io::Result<()> {
        let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let equal = |k, jt, jf| libc::sock_filter { jt, jf, ..statement(libc::BPF_JMP | libc::BPF_JEQ, k) };
        let load = |offset: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
        let (index, value, if_equal) = self.argument.unwrap_or((0, 0, true));
        let answer = match self.answer {
            Answer::Error(number) => libc::SECCOMP_RET_ERRNO | number as u32,
            Answer::Trap => libc::SECCOMP_RET_TRAP,
        };
        let [hit, miss] = match (self.argument, if_equal) {
            (None, _) => [0, 0],
            (Some(_), true) => [0, 1],
            (Some(_), false) => [1, 0],
        };
        let mut filter = [
            load(offset_of!(libc::seccomp_data, nr)),
            equal(self.call as u32, 0, 3),
            load(offset_of!(libc::seccomp_data, args) + index * size_of::<u64>()),
            equal(value, hit, miss),
            statement(libc::BPF_RET, answer),
            statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        let flags = if everybody { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
        // SAFETY: the first call takes numbers. The second reads the program, which outlives it, and whose
        // loads are within the data.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}
