//! The recorder's clock: the processor's counter where it can be trusted, else `CLOCK_MONOTONIC`.

use core::ffi::c_int;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::map::Map;
#[cfg(target_arch = "x86_64")]
use super::sys;
use crate::layout::CLOCK_COUNTER;
#[cfg(not(target_arch = "aarch64"))]
use crate::layout::CLOCK_NANOSECONDS;

type ReadClock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

static READER: AtomicPtr<()> = AtomicPtr::new(libc::clock_gettime as *mut ());

/// Has this function read clocks from now on, instead of whatever the name `clock_gettime` leads to, which
/// may be a library that shows the program times of its own, and a clock that stands still.
///
/// # Safety
/// The function does what C's does, and stays loaded.
pub unsafe fn read_clocks_by(function: ReadClock) {
    READER.store(function as *mut (), Relaxed);
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(super) fn nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the address of a function of this type, by the initial value and by `read_clocks_by`.
    let read: ReadClock = unsafe { core::mem::transmute(READER.load(Relaxed)) };
    // SAFETY: fills our own variable; with this clock it cannot fail.
    unsafe { read(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cold]
#[inline(never)]
fn nanoseconds_instead() -> u64 {
    nanoseconds()
}

/// Now, in the ticks of `clock`. Never 0.
///
/// The counter is read without a fence: it may be read a few instructions early or late, by less than what a
/// fence costs.
#[inline(always)]
pub(super) fn ticks(clock: u32) -> u64 {
    if clock == CLOCK_COUNTER { counter() } else { nanoseconds_instead() }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it; that it may be used here is what `choose` found out.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets user space read the virtual counter.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    nanoseconds()
}

/// Which clock to use in this process.
#[cfg(target_arch = "x86_64")]
pub(super) fn choose() -> u32 {
    const HIGHEST: u32 = 0x8000_0000;
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    let invariant = cpuid(HIGHEST).0 >= POWER_MANAGEMENT && cpuid(POWER_MANAGEMENT).1 & INVARIANT != 0;
    // A process can forbid itself the instruction; then it ends in SIGSEGV.
    let mut mode: core::ffi::c_int = libc::PR_TSC_ENABLE;
    // SAFETY: fills our own variable.
    unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
    if invariant && mode == libc::PR_TSC_ENABLE && kernel_trusts_counter() {
        CLOCK_COUNTER
    } else {
        CLOCK_NANOSECONDS
    }
}

/// `eax` and `edx` of a leaf.
#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32) -> (u32, u32) {
    let (eax, edx);
    // SAFETY: every x86-64 processor has it; `rbx`, which belongs to the compiler, is put back.
    unsafe {
        core::arch::asm!(
            "mov {rbx:r}, rbx",
            "cpuid",
            "mov rbx, {rbx:r}",
            rbx = out(reg) _,
            inout("eax") leaf => eax,
            inout("ecx") 0 => _,
            out("edx") edx,
            options(nomem, nostack, preserves_flags),
        );
    }
    (eax, edx)
}

/// Whether the kernel itself keeps time by the counter. It knows more than `cpuid`: it compares the counters
/// of the processors, and gives them up for another source when they disagree.
#[cfg(target_arch = "x86_64")]
fn kernel_trusts_counter() -> bool {
    const SOURCE: &core::ffi::CStr = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let Ok(file) = sys::Fd::open(SOURCE, libc::O_RDONLY) else { return true };
    let mut name = [0u8; 32];
    // SAFETY: our own buffer.
    let len = unsafe { file.read(name.as_mut_ptr(), name.len()) }.unwrap_or(0);
    let name = name[..len].trim_ascii();
    name == b"tsc" || name == b"kvm-clock" || name.starts_with(b"hyperv_clocksource_tsc")
}

/// Which clock to use in this process.
#[cfg(target_arch = "aarch64")]
pub(super) fn choose() -> u32 {
    // The architecture's counter is the same on all processors and does not stop.
    CLOCK_COUNTER
}

/// Which clock to use in this process.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn choose() -> u32 {
    CLOCK_NANOSECONDS
}

/// One moment on both clocks: the narrowest of a few tries, since we may be interrupted in between.
pub(super) fn pair(clock: u32) -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..4 {
        let before = ticks(clock);
        let ns = nanoseconds();
        let width = ticks(clock).saturating_sub(before);
        if width < best.0 {
            best = (width, before + width / 2, ns);
        }
    }
    (best.1, best.2)
}

/// How long the first two moments are apart at least: 100 us, against some 20 ns of error in each.
const FIRST_SPAN_NS: u64 = 100_000;

/// The second moment, so that a rate is known from the first event on.
pub(super) fn calibrate_first(map: Map) {
    let header = map.header();
    while nanoseconds() < header.start.ns.load(Relaxed) + FIRST_SPAN_NS {
        core::hint::spin_loop();
    }
    calibrate(map);
}

/// Ticks between later moments: some 30 ms.
const SPAN: u64 = 1 << 26;

/// Keeps the rate current, if it is time to.
#[inline]
pub(super) fn calibrate_sometimes(map: Map, now: u64) {
    let header = map.header();
    let last = header.later_count.load(Relaxed).wrapping_sub(1) % 2;
    if now.wrapping_sub(header.later[last as usize].ticks.load(Relaxed)) > SPAN {
        calibrate(map);
    }
}

/// Nanoseconds, by the rate known so far.
#[inline]
pub(super) fn span(map: Map, ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(map.header().tick_ns.load(Relaxed))) >> 32) as u64
}

/// The reverse.
pub(super) fn ticks_of(map: Map, ns: u64) -> u64 {
    ((u128::from(ns) << 32) / u128::from(map.header().tick_ns.load(Relaxed).max(1))) as u64
}

#[cold]
pub(super) fn calibrate(map: Map) {
    let header = map.header();
    if header.later_busy.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return;
    }
    let (ticks, ns) = pair(header.clock.load(Relaxed));
    let count = header.later_count.load(Relaxed);
    let next = &header.later[(count % 2) as usize];
    next.ticks.store(ticks, Relaxed);
    next.ns.store(ns, Relaxed);
    let passed = ticks.saturating_sub(header.start.ticks.load(Relaxed));
    let passed_ns = ns.saturating_sub(header.start.ns.load(Relaxed));
    if passed > 0 {
        let rate = (u128::from(passed_ns) << 32) / u128::from(passed);
        header.tick_ns.store(rate as u64, Relaxed);
    }
    // Release: the count names the pair only once it is whole.
    header.later_count.store(count.wrapping_add(1), Release);
    header.later_busy.store(0, Release);
}
