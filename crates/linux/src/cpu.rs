//! The CPU that the calling thread runs on, and how many there are for it.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use poundlock_core::poundlock::TAG_LIMIT;

use crate::tls::words;

/// Finds glibc's restartable-sequences area. Before it is called, [`tag`] returns 0.
///
/// The first call enters the dynamic linker; make it at start-up rather than under a lock.
pub fn init() {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if LOOKED.swap(true, Relaxed) {
        return;
    }
    // Looked up rather than linked, because glibc before 2.35 does not have them.
    // SAFETY: the names are strings that end in a zero; the lookup has no other precondition.
    let (offset, size) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>(),
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>(),
        )
    };
    if offset.is_null() || size.is_null() {
        return crate::tls::allow_area_tag(false);
    }
    // SAFETY: glibc's constants of these types.
    let (offset, size) = unsafe { (*offset, *size) };
    use_area(offset, size);
}

/// Uses these as glibc's constants. A size of 0 says that the area was not registered.
pub(crate) fn use_area(offset: isize, size: u32) {
    if size != 0 {
        words().rseq.store(offset, Relaxed);
        crate::node::use_area(size);
        crate::rseq::init();
    }
    crate::tls::allow_area_tag(size != 0 && numbers_are_small());
}

/// Whether every CPU that there may ever be has a number for which a tag has room: the kernel's sets of CPUs
/// have no more bits.
fn numbers_are_small() -> bool {
    ask_affinity(&mut CpuSet::default()).is_some_and(|bytes| 8 * bytes < TAG_LIMIT as usize)
}

/// The CPU's number plus one; 0 if unknown.
#[inline(always)]
pub fn tag() -> u32 {
    crate::tls::rseq_tag()
}

/// How many CPUs the calling thread may use, at least 1.
pub(crate) fn allowed() -> usize {
    affinity().len().max(1)
}

/// A set of CPUs, by their numbers: as many as any kernel has.
pub(crate) struct CpuSet([u64; 1024]);

impl Default for CpuSet {
    fn default() -> Self {
        CpuSet([0; 1024])
    }
}

impl CpuSet {
    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether one of the CPUs from `first` to `last` is in it.
    pub(crate) fn has_any(&self, first: u32, last: u32) -> bool {
        let last = last.min(self.0.len() as u32 * 64 - 1);
        (first..=last).any(|cpu| self.0[cpu as usize / 64] >> (cpu % 64) & 1 != 0)
    }
}

/// The CPUs that the calling thread may use; none if the kernel does not say.
pub(crate) fn affinity() -> CpuSet {
    let mut set = CpuSet::default();
    let _ = ask_affinity(&mut set);
    set
}

/// How many bytes the kernel's sets have, if it says.
fn ask_affinity(set: &mut CpuSet) -> Option<usize> {
    let bytes = crate::futex::keeping_errno(|| {
        // SAFETY: the kernel writes at most the given number of bytes.
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&set.0), set.0.as_mut_ptr()) }
    });
    bytes.ok().and_then(|bytes| usize::try_from(bytes).ok())
}

#[cfg(test)]
mod tests {
    use poundlock_core::poundlock::TAG_LIMIT;

    use super::{CpuSet, allowed, init, tag};
    use crate::tls;

    impl CpuSet {
        pub(crate) fn insert(&mut self, cpu: u32) {
            self.0[cpu as usize / 64] |= 1 << (cpu % 64);
        }
    }

    #[test]
    fn the_tag_names_the_cpu() {
        init();
        // SAFETY: takes no arguments.
        let cpu = |()| unsafe { libc::sched_getcpu() };
        // A migration between the two reads is possible; a hundred in a row are not.
        assert!((0..100).any(|_| tag() as i32 == cpu(()) + 1) || tag() == 0);
    }

    #[test]
    fn the_short_way_to_the_tag_is_the_same() {
        init();
        assert_ne!(tls::process() & tls::AREA, 0);
        assert!((0..100).any(|_| tls::area_tag() == tag()));
        assert!(tls::area_tag() < TAG_LIMIT);
    }

    #[test]
    fn there_is_a_cpu() {
        assert!(allowed() >= 1);
    }
}
