//! Threads of another process, running, hung or dead: their registers, memory, files and stacks.
//!
//! A live process is read as it runs ([`process`]); each of its threads stands still for some microseconds
//! while its registers and its stack are copied ([`stop`]), and all else is done afterwards. Of a dead one
//! there is the core file ([`core`]). Either way a [`Memory`] and copies of threads come out, of which
//! [`unwind`] makes stacks.

pub(crate) mod core;
pub(crate) mod maps;
pub(crate) mod process;
pub(crate) mod registers;
pub(crate) mod stop;
pub(crate) mod unwind;

use crate::observe::calls::{Call, Doing};

/// The memory of another process.
pub(crate) trait Memory {
    /// Fills as much of the buffer as there is from `address` on, and says how much.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// The 32-bit word at an address.
    fn word(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (self.read(address, &mut bytes) == 4).then(|| u32::from_ne_bytes(bytes))
    }

    /// The 64-bit word at an address.
    fn long(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then(|| u64::from_ne_bytes(bytes))
    }
}

/// A part of a stack as it was, innermost end first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stack {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Stack {
    /// The word at an address.
    pub(crate) fn long(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// Where it ends.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// One thread at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    /// Its id, as this process sees it.
    pub(crate) tid: u32,
    /// Its id as its own process sees it: another one in a container.
    pub(crate) inner: u32,
    /// Its name; empty if unknown.
    pub(crate) name: String,
    /// What the kernel says that it does.
    pub(crate) doing: Doing,
    /// All its registers, if they could be had without harm: see [`stop`].
    pub(crate) registers: Option<registers::Registers>,
    pub(crate) stack: Stack,
    /// For how long it stood still.
    pub(crate) stood_ns: u64,
}

impl Thread {
    /// Where its stack begins; 0 if unknown.
    pub(crate) fn sp(&self) -> u64 {
        match (&self.registers, &self.doing) {
            (Some(registers), _) => registers.sp,
            (None, Doing::Call { sp, .. } | Doing::Outside { sp, .. }) => *sp,
            _ => 0,
        }
    }

    /// The call that it is in.
    pub(crate) fn call(&self) -> Option<&Call> {
        match &self.doing {
            Doing::Call { call, .. } => Some(call),
            _ => None,
        }
    }
}
