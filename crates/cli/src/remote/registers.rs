//! The registers of a thread, as `ptrace` and core files have them.

use crate::observe::calls::Call;

/// What is needed of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// The link register, where there is one.
    pub(crate) lr: u64,
    /// What a function may keep while it calls another one.
    pub(crate) kept: Vec<u64>,
    /// The call that was interrupted, if one was.
    pub(crate) call: Option<Call>,
    /// The thread pointer, if it is among them.
    pub(crate) thread_pointer: Option<u64>,
}

/// How many words there are.
pub(crate) const WORDS: usize = if cfg!(target_arch = "x86_64") { 27 } else { 34 };

/// What the kernel has in the register of the result while it goes on with a call, or ends it with `EINTR`.
#[cfg(target_arch = "x86_64")]
const INTERRUPTED: [i64; 5] = [-512, -513, -514, -516, -(libc::EINTR as i64)];

#[cfg(target_arch = "x86_64")]
mod place {
    //! In `user_regs_struct`.
    pub(super) const RBP: usize = 4;
    pub(super) const RAX: usize = 10;
    pub(super) const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];
    pub(super) const ORIG_RAX: usize = 15;
    pub(super) const RIP: usize = 16;
    pub(super) const RSP: usize = 19;
    pub(super) const FS_BASE: usize = 21;
    /// rbx, rbp, r12 to r15.
    pub(super) const KEPT: [usize; 6] = [5, 4, 3, 2, 1, 0];
}

impl Registers {
    /// From the words of the kernel's structure.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn from_words(words: &[u64; WORDS]) -> Registers {
        let in_call = (words[place::ORIG_RAX] as i64) >= 0
            && INTERRUPTED.contains(&i64::from(words[place::RAX] as i32));
        Registers {
            pc: words[place::RIP],
            sp: words[place::RSP],
            fp: words[place::RBP],
            lr: 0,
            kept: place::KEPT.map(|at| words[at]).to_vec(),
            call: in_call.then(|| Call {
                number: words[place::ORIG_RAX] as libc::c_long,
                arguments: place::ARGUMENTS.map(|at| words[at]),
            }),
            thread_pointer: Some(words[place::FS_BASE]),
        }
    }

    /// From the words of the kernel's structure: x0 to x30, sp, pc, pstate. The kernel has set an interrupted
    /// call up to be made again, which [`Registers::again`] tells.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn from_words(words: &[u64; WORDS]) -> Registers {
        Registers {
            pc: words[32],
            sp: words[31],
            fp: words[29],
            lr: words[30],
            kept: words[19..30].to_vec(),
            call: None,
            thread_pointer: None,
        }
    }

    /// The call that the next instruction makes, if that is what it does: so an interrupted call looks where
    /// the kernel has restored its arguments.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn again(words: &[u64; WORDS], instruction: Option<u32>) -> Option<Call> {
        const SVC: u32 = 0xd400_0001;
        (instruction == Some(SVC)).then(|| Call {
            number: words[8] as libc::c_long,
            arguments: std::array::from_fn(|at| words[at]),
        })
    }
}

/// The words with which a call that has ended with `EINTR`, because the thread stood still, is made again.
/// `None` if no call has ended so.
#[cfg(target_arch = "x86_64")]
pub(crate) fn made_again(words: &[u64; WORDS]) -> Option<[u64; WORDS]> {
    /// Of the instruction `syscall`.
    const LENGTH: u64 = 2;
    let ended = words[place::RAX] as i32 == -libc::EINTR && (words[place::ORIG_RAX] as i64) >= 0;
    ended.then(|| {
        let mut again = *words;
        again[place::RAX] = words[place::ORIG_RAX];
        again[place::ORIG_RAX] = u64::MAX;
        again[place::RIP] = words[place::RIP].wrapping_sub(LENGTH);
        again
    })
}

/// The first argument of a call is gone when it has ended.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn made_again(_: &[u64; WORDS]) -> Option<[u64; WORDS]> {
    None
}
