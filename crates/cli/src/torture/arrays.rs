//! `poundlock torture --semaphores`: what is told to the child whose body is `csrc/arrays.c` in
//! `poundlock-torture`, and what it leaves.

use std::ffi::{OsStr, c_int};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use poundlock_names::{Choice, RwLocks};
use poundlock_semarray::Which;
use poundlock_torture::LANES;
use tempfile::TempDir;

use crate::message::{Failure, status};
use crate::program::reason;
use crate::{library, semaphores};

/// The arrays that are tortured.
pub(super) struct Arrays {
    value: String,
    key: c_int,
    /// Where ours lie; none: the kernel's.
    domain: Option<TempDir>,
}

impl std::fmt::Display for Arrays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.value)
    }
}

impl Arrays {
    /// Those that a value of `--semaphores` names, and the environment for the child.
    pub(super) fn new(value: &str) -> Result<(Self, Vec<library::Change>), Failure> {
        let choice = semaphores::parse(value)?;
        // A thousand keys for each process that may do this at a time, private ones (0) not among them.
        let key = 0x5000_0000 + (std::process::id() as c_int & 0x3_ffff) * 1024;
        if choice.which == Which::Kernel {
            let arrays = Arrays { value: value.to_string(), key, domain: None };
            return Ok((arrays, library::plain_environment()));
        }
        // A domain of its own, so that what a violation leaves behind is nobody's.
        let mut builder = tempfile::Builder::new();
        // Another mode would not be trusted, and everything go to the kernel.
        builder.prefix("poundlock-torture-").permissions(Permissions::from_mode(0o700));
        let domain = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).map_err(|error| {
            Failure::new(status::OURS, format_args!("a directory for the arrays: {}", reason(&error)))
        })?;
        let mut environment = library::environment(Choice::default(), RwLocks::default())?;
        environment.push((OsStr::new(library::SEMAPHORES_VARIABLE), Some(value.into())));
        environment.push((OsStr::new(library::DOMAIN_VARIABLE), Some(domain.path().into())));
        Ok((Arrays { value: value.to_string(), key, domain: Some(domain) }, environment))
    }

    /// The first of the keys of the child.
    pub(super) fn key(&self) -> c_int {
        self.key
    }

    /// Whether no library of ours is needed.
    pub(super) fn are_the_kernels(&self) -> bool {
        self.domain.is_none()
    }

    /// Removes what is left; says what a child that passed should not have left.
    pub(super) fn clear_up(&self, processes: u32) -> Result<(), String> {
        let mut left = 0;
        for key in (0..1 + processes * LANES).map(|n| self.key + n as c_int) {
            // SAFETY: both take numbers only. We are not preloaded into: these are the kernel's.
            unsafe {
                let id = libc::semget(key, 0, 0);
                if id >= 0 && libc::semctl(id, 0, libc::IPC_RMID) == 0 {
                    left += 1;
                }
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(format!("{left} semaphore arrays were left in the kernel")),
        }
    }
}
