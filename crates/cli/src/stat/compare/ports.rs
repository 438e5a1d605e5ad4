//! The ports on which processes listen, and when another process may listen on them again.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// A port of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Port {
    pub(super) number: u16,
    /// Whether its socket has `SO_REUSEADDR`. Without, connections that have just ended keep the port.
    reuses: bool,
}

/// The kernel's numbers of states of TCP.
const LISTENS: &str = "0A";
/// Flag of a socket of the file system's that listens.
const ACCEPTS: u32 = 1 << 16;

/// A line of `/proc/net/tcp`: the local port, the state, the inode.
fn tcp_line(line: &str) -> Option<(u16, &str, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (_, port) = words.nth(1)?.rsplit_once(':')?;
    let (state, inode) = (words.nth(1)?, words.nth(5)?);
    Some((u16::from_str_radix(port, 16).ok()?, state, inode.parse().ok()?))
}

/// A line of `/proc/net/unix`: the inode of a socket that listens.
fn unix_line(line: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
    let inode = words.nth(2)?.parse().ok()?;
    (flags & ACCEPTS != 0).then_some(inode)
}

fn tables(of: &str) -> String {
    let read = |name| std::fs::read_to_string(format!("{of}/net/{name}")).unwrap_or_default();
    read("tcp") + &read("tcp6")
}

/// Whether one of the processes listens, and the ports of TCP on which.
pub(super) fn listening(pids: &[u32]) -> (bool, Vec<Port>) {
    let (mut listens, mut ports) = (false, Vec::new());
    for pid in pids {
        let process = format!("/proc/{pid}");
        let table = tables(&process);
        let tcp = table.lines().filter_map(tcp_line).filter(|(_, state, _)| *state == LISTENS);
        let tcp: HashMap<u64, u16> = tcp.map(|(port, _, inode)| (inode, port)).collect();
        let unix = std::fs::read_to_string(format!("{process}/net/unix")).unwrap_or_default();
        let unix: Vec<u64> = unix.lines().filter_map(unix_line).collect();
        for entry in std::fs::read_dir(format!("{process}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let inode = target.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']'));
            let Some(inode) = inode.and_then(|inode| inode.parse().ok()) else { continue };
            let number = tcp.get(&inode);
            listens |= number.is_some() || unix.contains(&inode);
            let fd = entry.file_name().to_str().and_then(|fd| fd.parse().ok());
            if let (Some(&number), Some(fd)) = (number, fd) {
                ports.push(Port { number, reuses: reuses(*pid, fd).unwrap_or(true) });
            }
        }
    }
    (listens, ports)
}

/// Whether a socket of another process has `SO_REUSEADDR`.
fn reuses(pid: u32, fd: i32) -> Option<bool> {
    let opened = |number: libc::c_long| {
        // SAFETY: the kernel has just given us this descriptor; nobody else has it.
        (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number as i32) })
    };
    // SAFETY: the calls take numbers.
    let process = opened(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: as above.
    let socket = opened(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })?;
    let (mut value, mut len) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: writes one number of the length that it is told.
    let got = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, value, &raw mut len)
    };
    (got == 0).then_some(value != 0)
}

/// Those on which nobody can listen yet.
pub(super) fn taken(ports: &[Port]) -> Vec<u16> {
    still_taken(ports, &tables("/proc/self"))
}

fn still_taken(ports: &[Port], table: &str) -> Vec<u16> {
    let lines: Vec<_> = table.lines().filter_map(tcp_line).collect();
    let taken = |port: &&Port| {
        lines.iter().any(|(number, state, _)| *number == port.number && (*state == LISTENS || !port.reuses))
    };
    ports.iter().filter(taken).map(|port| port.number).collect()
}

#[cfg(test)]
mod tests {
    use super::{Port, listening, still_taken};

    #[test]
    fn a_port_is_free_when_a_server_like_the_last_one_can_have_it() {
        let line = |port: &str, state: &str| {
            format!(
                "0: 0100007F:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 77 1\n"
            )
        };
        let (strict, reuses) = (Port { number: 80, reuses: false }, Port { number: 80, reuses: true });
        for (state, with, without) in [("0A", true, true), ("06", true, false)] {
            let table = line("0050", state) + &line("0051", "0A");
            assert_eq!(still_taken(&[strict], &table).is_empty(), !with, "{state}");
            assert_eq!(still_taken(&[reuses], &table).is_empty(), !without, "{state}");
        }
    }

    #[test]
    fn a_listener_of_ours_is_found_with_its_port() {
        let us = std::process::id();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let number = listener.local_addr().expect("bound").port();
        let (listens, ports) = listening(&[us]);
        let found = ports.iter().find(|port| port.number == number);
        // The standard library sets it.
        assert!(listens && found.is_some_and(|port| port.reuses), "{ports:?}");
    }
}
