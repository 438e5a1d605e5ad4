//! Names of the system calls that threads sleep in.

/// What a wait for a futex is called that the file knows.
pub(crate) const FUTEX: &str = "futex";

/// Pairs of number and name.
macro_rules! calls {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// Calls that may block for long, and that every architecture has.
const CALLS: &[(libc::c_long, &str)] = calls! {
    SYS_accept SYS_accept4 SYS_clock_nanosleep SYS_clone SYS_clone3 SYS_close SYS_connect
    SYS_copy_file_range SYS_epoll_pwait SYS_epoll_pwait2 SYS_execve SYS_exit SYS_exit_group SYS_fadvise64
    SYS_fallocate SYS_fcntl SYS_fdatasync SYS_flock SYS_fstat SYS_fsync SYS_ftruncate SYS_getdents64
    SYS_getrandom SYS_io_getevents  SYS_io_submit SYS_io_uring_enter SYS_ioctl SYS_madvise
    SYS_membarrier SYS_mmap SYS_mprotect SYS_mq_timedreceive SYS_mq_timedsend SYS_mremap SYS_msgrcv
    SYS_msgsnd SYS_msync SYS_munmap SYS_nanosleep SYS_openat SYS_ppoll SYS_pread64 SYS_preadv SYS_preadv2
    SYS_process_vm_readv SYS_pselect6 SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readv SYS_recvfrom
    SYS_recvmmsg SYS_recvmsg SYS_renameat2 SYS_restart_syscall SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_sched_yield SYS_semop SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_splice
    SYS_sync SYS_sync_file_range SYS_syncfs SYS_tee SYS_unlinkat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write
    SYS_writev
};

/// Older ones, which newer architectures are without.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(libc::c_long, &str)] = calls! {
    SYS_epoll_wait SYS_fork SYS_open SYS_pause SYS_poll SYS_rename SYS_select SYS_unlink SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(libc::c_long, &str)] = &[];

/// The name of call number `number`: its number in words if it is none of those that often block.
pub(crate) fn name(number: libc::c_long) -> String {
    let found = CALLS.iter().chain(OLDER).find(|&&(known, _)| known == number);
    match found {
        Some((_, name)) => name.trim_start_matches("SYS_").to_string(),
        None => format!("call {number}"),
    }
}

/// Whether a thread asleep in this call waits for a futex, given its second argument.
pub(crate) fn waits_for_futex(number: libc::c_long, operation: u64) -> bool {
    // Not in every version of `libc`: the same on all architectures.
    const FUTEX_WAITV: libc::c_long = 449;
    const FUTEX_WAIT: libc::c_long = 455;
    const LOCK_PI2: libc::c_int = 13;
    let waits = [
        libc::FUTEX_WAIT,
        libc::FUTEX_WAIT_BITSET,
        libc::FUTEX_LOCK_PI,
        LOCK_PI2,
        libc::FUTEX_WAIT_REQUEUE_PI,
    ];
    match number {
        FUTEX_WAITV | FUTEX_WAIT => true,
        _ if number == libc::SYS_futex => waits.contains(&(operation as libc::c_int & libc::FUTEX_CMD_MASK)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_names_and_unknown_ones_a_number() {
        assert_eq!(name(libc::SYS_read), "read");
        assert_eq!(name(libc::SYS_futex), format!("call {}", libc::SYS_futex));
        assert_eq!(name(1 << 20), "call 1048576");
    }

    #[test]
    fn a_wake_is_no_wait() {
        let private = |operation| (operation | libc::FUTEX_PRIVATE_FLAG) as u64;
        assert!(waits_for_futex(libc::SYS_futex, private(libc::FUTEX_WAIT_BITSET)));
        assert!(waits_for_futex(libc::SYS_futex, libc::FUTEX_LOCK_PI as u64));
        assert!(!waits_for_futex(libc::SYS_futex, private(libc::FUTEX_WAKE)));
        assert!(!waits_for_futex(libc::SYS_read, libc::FUTEX_WAIT as u64));
    }
}
