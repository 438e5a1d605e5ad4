//! Processes that want every CPU all the time, for locks to be measured beside.

use std::io;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity;
use crate::error::{Error, Result};
use crate::work::work;

/// A process on each CPU that does nothing but work. They end with this.
pub(super) struct Hogs(Vec<Hog>);

struct Hog {
    pid: libc::pid_t,
    /// Its CPU time.
    clock: libc::clockid_t,
}

impl Hogs {
    /// No process at all.
    pub(super) fn none() -> Hogs {
        Hogs(Vec::new())
    }

    /// Starts one on each of `cpus` and waits until they are at it. This process must not have other threads
    /// yet.
    pub(super) fn start(cpus: &[usize]) -> Result<Hogs> {
        let mut hogs = Hogs::none();
        for &cpu in cpus {
            hogs.0.push(Hog::start(cpu)?);
        }
        let limit = Instant::now() + Duration::from_secs(10);
        while hogs.0.iter().any(|hog| hog.cpu_ns() == 0) {
            if Instant::now() > limit {
                return Err(Error::Failed("a hog does not get its CPU".to_owned()));
            }
            thread::sleep(Duration::from_micros(500));
        }
        Ok(hogs)
    }

    /// The CPU time that they have used.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.0.iter().map(Hog::cpu_ns).sum()
    }
}

impl Hog {
    fn start(cpu: usize) -> Result<Hog> {
        // SAFETY: plain queries.
        let (parent, pid) = unsafe { (libc::getpid(), libc::fork()) };
        if pid < 0 {
            return Err(Error::system("cannot start a hog")(io::Error::last_os_error()));
        }
        if pid == 0 {
            be_a_hog(parent, cpu);
        }
        // From here on it is ended with the value.
        let mut hog = Hog { pid, clock: libc::CLOCK_MONOTONIC };
        let mut clock = MaybeUninit::uninit();
        // SAFETY: the pointer is to a clock id, which the call fills in if it succeeds.
        let rc = unsafe { libc::clock_getcpuclockid(pid, clock.as_mut_ptr()) };
        if rc != 0 {
            return Err(Error::system("cannot watch a hog")(io::Error::from_raw_os_error(rc)));
        }
        // SAFETY: the call succeeded.
        hog.clock = unsafe { clock.assume_init() };
        Ok(hog)
    }

    fn cpu_ns(&self) -> u64 {
        let mut used = MaybeUninit::<libc::timespec>::zeroed();
        // SAFETY: the pointer is to a timespec, valid when zeroed, which the call fills in if the process is
        // there.
        let used = unsafe {
            libc::clock_gettime(self.clock, used.as_mut_ptr());
            used.assume_init()
        };
        used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // SAFETY: a child that has not been waited for, so that its id is still its own.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The body of the child. It ends with its parent, and holds none of the files on whose end somebody waits.
fn be_a_hog(parent: libc::pid_t, cpu: usize) -> ! {
    // SAFETY: calls without pointers; the standard streams are not used any more.
    let orphan = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for stream in 0..=2 {
            libc::close(stream);
        }
        libc::getppid() != parent
    };
    if orphan || affinity::keep_to(&[cpu]).is_err() {
        // SAFETY: ends this process without running what the parent has registered for its own end.
        unsafe { libc::_exit(1) };
    }
    loop {
        work(1_000_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hogs_use_their_cpus_and_end() {
        let cpus = affinity::allowed().unwrap();
        let hogs = Hogs::start(&cpus).unwrap();
        assert_eq!(hogs.0.len(), cpus.len());
        let ids: Vec<_> = hogs.0.iter().map(|hog| hog.pid).collect();
        let before = hogs.cpu_ns();
        let limit = Instant::now() + Duration::from_secs(60);
        while hogs.cpu_ns() < before + 10_000_000 {
            assert!(Instant::now() < limit, "they do not run");
            thread::sleep(Duration::from_millis(1));
        }
        drop(hogs);
        for id in ids {
            // SAFETY: signal 0 only asks; whoever has the id now is not ours.
            let rc = unsafe { libc::kill(id, 0) };
            assert_eq!((rc, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ESRCH)));
        }
    }
}
