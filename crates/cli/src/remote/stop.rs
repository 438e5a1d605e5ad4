//! Stops one thread for as long as it takes to copy its registers and its stack.
//!
//! The thread is seized, interrupted, copied and let go; no other thread stands still meanwhile, and no code
//! of ours ever runs in the process. If this process is killed in between, the kernel lets the thread go,
//! with a stop that was still to come: nothing here asks it to do otherwise (`PTRACE_O_EXITKILL`).
//!
//! A thread that stands still leaves the system call that it is in, and the kernel makes the call again.
//! Some calls are not made again but end with `EINTR` ([`Call::goes_on`]): a thread that is in one of those
//! is not stopped. Of it there are the stack pointer and the program counter, which the kernel tells, and so
//! the stack. Between that question and the stop a running thread may enter such a call: then the stopped
//! thread's registers say so, and are set to make the call once more, unless a signal of its own ended it.
//!
//! [`Call::goes_on`]: crate::observe::calls::Call::goes_on

use std::io;
use std::time::{Duration, Instant};

use super::registers::{Registers, WORDS, made_again};
use super::{Memory, Stack};
use crate::observe::calls::{self, Doing};
use crate::observe::proc::read_text;

/// As much of a stack is copied at most.
const STACK: usize = 128 << 10;
/// Below the stack pointer, where leaf functions may keep things.
const RED_ZONE: u64 = 128;
/// A thread that is not to be had after so long sleeps in a way that nothing interrupts.
const PATIENCE: Duration = Duration::from_secs(2);

/// A copy of a thread.
pub(crate) struct Copied {
    pub(crate) doing: Doing,
    pub(crate) registers: Option<Registers>,
    pub(crate) stack: Stack,
    /// For how long it stood still at most: from the order to stand still to the one to go on.
    pub(crate) stood_ns: u64,
}

/// Copies thread `tid` of process `pid`. `None` if it has ended.
///
/// # Errors
/// If we may not.
pub(crate) fn copy(pid: u32, tid: u32, memory: &impl Memory) -> io::Result<Option<Copied>> {
    let doing = calls::doing(pid, tid)?;
    let socket = |fd: u64| {
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{}", fd as i32));
        link.is_ok_and(|to| {
            let to = to.to_string_lossy().into_owned();
            to.starts_with("socket:") || to.starts_with("anon_inode:")
        })
    };
    let (may_stop, sp) = match &doing {
        Doing::Gone => return Ok(None),
        Doing::Running => (true, 0),
        Doing::Call { call, sp, .. } => (call.goes_on(socket), *sp),
        Doing::Outside { sp, .. } => (true, *sp),
    };
    if may_stop && !sleeps_for_good(pid, tid) {
        match Seized::new(tid) {
            Ok(seized) => {
                if let Some((registers, stack, stood_ns)) = seized.copy(pid, memory)? {
                    return Ok(Some(Copied { doing, registers: Some(registers), stack, stood_ns }));
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
        if matches!(calls::doing(pid, tid)?, Doing::Gone) {
            return Ok(None);
        }
    }
    Ok(Some(Copied { doing, registers: None, stack: stack_from(sp, memory), stood_ns: 0 }))
}

/// Whether it is in state `D`: no order reaches it.
fn sleeps_for_good(pid: u32, tid: u32) -> bool {
    let stat = read_text(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
}

fn stack_from(sp: u64, memory: &impl Memory) -> Stack {
    if sp == 0 {
        return Stack::default();
    }
    let start = sp.saturating_sub(RED_ZONE) & !7;
    let mut bytes = vec![0; STACK];
    let mut len = memory.read(start, &mut bytes);
    let mut from = start;
    if len == 0 {
        // The red zone may reach out of the mapping.
        from = sp & !7;
        len = memory.read(from, &mut bytes);
    }
    bytes.truncate(len);
    bytes.shrink_to_fit();
    Stack { start: from, bytes }
}

/// A thread that we trace; let go when this is dropped.
struct Seized {
    tid: libc::pid_t,
    /// What it is let go with: a signal that was about to reach it.
    signal: libc::c_int,
}

impl Seized {
    fn new(tid: u32) -> io::Result<Seized> {
        let tid = tid as libc::pid_t;
        request(libc::PTRACE_SEIZE, tid, 0, 0)?;
        Ok(Seized { tid, signal: 0 })
    }

    /// Its registers and stack, and for how long it stood still. `None` if it ended, or does not stop.
    fn copy(mut self, pid: u32, memory: &impl Memory) -> io::Result<Option<(Registers, Stack, u64)>> {
        let begun = Instant::now();
        match request(libc::PTRACE_INTERRUPT, self.tid, 0, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            other => other?,
        }
        if !self.wait(begun) {
            return Ok(None);
        }
        let Some(words) = self.words() else { return Ok(None) };
        #[cfg_attr(target_arch = "x86_64", expect(unused_mut, reason = "its call is among the registers"))]
        let mut registers = Registers::from_words(&words);
        #[cfg(not(target_arch = "x86_64"))]
        {
            registers.call = Registers::again(&words, memory.word(words[32]));
            registers.thread_pointer = self.thread_pointer();
        }
        let stack = stack_from(registers.sp, memory);
        if let Some(again) = made_again(&words)
            && self.signal == 0
            && !signal_is_due(pid, self.tid)
        {
            self.set_words(&again);
        }
        drop(self);
        Ok(Some((registers, stack, begun.elapsed().as_nanos() as u64)))
    }

    /// Waits until it stands still.
    fn wait(&mut self, begun: Instant) -> bool {
        let mut looks = 0u32;
        loop {
            let mut status = 0;
            // SAFETY: writes one word.
            let found = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if found == self.tid {
                if !libc::WIFSTOPPED(status) {
                    return false;
                }
                // A stop of any other sort is one for a signal, which is delivered as the thread goes on.
                if status >> 16 != libc::PTRACE_EVENT_STOP {
                    self.signal = libc::WSTOPSIG(status);
                }
                return true;
            }
            if found < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return false;
            }
            if begun.elapsed() > PATIENCE {
                return false;
            }
            looks += 1;
            if looks < 100 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    fn words(&self) -> Option<[u64; WORDS]> {
        let mut words = [0; WORDS];
        let mut area =
            libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of::<[u64; WORDS]>() };
        request(libc::PTRACE_GETREGSET, self.tid, NT_PRSTATUS, (&raw mut area) as usize).ok()?;
        // A program of 32 bits has fewer.
        (area.iov_len == size_of::<[u64; WORDS]>()).then_some(words)
    }

    /// Which is not among the others.
    #[cfg(not(target_arch = "x86_64"))]
    fn thread_pointer(&self) -> Option<u64> {
        const NT_ARM_TLS: usize = 0x401;
        let mut pointer = [0u64; 2];
        let mut area = libc::iovec { iov_base: pointer.as_mut_ptr().cast(), iov_len: size_of::<[u64; 2]>() };
        request(libc::PTRACE_GETREGSET, self.tid, NT_ARM_TLS, (&raw mut area) as usize).ok()?;
        (area.iov_len >= 8).then_some(pointer[0])
    }

    fn set_words(&self, words: &[u64; WORDS]) {
        let mut words = *words;
        let mut area =
            libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of::<[u64; WORDS]>() };
        // In vain, the program sees an `EINTR` that it might see at any time.
        let _ = request(libc::PTRACE_SETREGSET, self.tid, NT_PRSTATUS, (&raw mut area) as usize);
    }
}

impl Drop for Seized {
    fn drop(&mut self) {
        // One that does not stand still stays traced until we end, and is let go then.
        let _ = request(libc::PTRACE_DETACH, self.tid, 0, self.signal as usize);
    }
}

const NT_PRSTATUS: usize = 1;

fn request(what: libc::c_uint, tid: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests that are made here change nothing of this process but the area that `data` points
    // to, which the caller owns.
    let result = unsafe { libc::ptrace(what, tid, address as *mut libc::c_void, data as *mut libc::c_void) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a signal waits for the thread that it does not block.
fn signal_is_due(pid: u32, tid: libc::pid_t) -> bool {
    let status = read_text(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
}
