//! Servers and their clients, which are threads of ours.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::known::{part, write};
use super::words;
use crate::clock;
use crate::error::{Error, Result};
use crate::launch::Killed;

/// How long a server may take to listen, to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
const CLIENTS: usize = 8;
/// A set and a get, each.
const EXCHANGES: usize = 5000;
const PAGES: usize = 1000;
const PAGE: usize = 700;

/// A server.
pub(super) struct Service {
    argv: Vec<OsString>,
    at: At,
    /// What each client asks for.
    requests: usize,
}

enum At {
    /// memcached, at a socket in its directory.
    Socket(&'static str),
    /// An HTTP server.
    Port(SocketAddr),
}

impl Service {
    /// Threads that answer eight connections.
    pub(super) fn memcached(program: OsString, threads: usize, share: f64) -> Service {
        let mut argv = vec![program];
        argv.extend(words(&["-s", "socket", "-t", &threads.to_string(), "-m", "64"]));
        // SAFETY: takes nothing and cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            argv.extend(words(&["-u", "root"])); // who must be told that it is meant
        }
        Service { argv, at: At::Socket("socket"), requests: part(EXCHANGES, share) }
    }

    /// Two processes of 16 threads, which take connections from a queue; a connection for each request.
    pub(super) fn apache(program: OsString, directory: &Path, share: f64) -> Result<Service> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(Error::system("cannot bind a port on loopback"))?;
        // The server's children may run as another user.
        let readable = fs::set_permissions(directory, fs::Permissions::from_mode(0o755));
        readable.map_err(Error::system("cannot let others read a directory of ours"))?;
        write(&directory.join("page"), [b'x'; PAGE])?;
        let (modules, shown) = ("/usr/lib/apache2/modules", directory.display());
        let config = format!(
            "LoadModule mpm_event_module {modules}/mod_mpm_event.so\nLoadModule authz_core_module \
                {modules}/mod_authz_core.so\n\
             Listen {address}\nServerRoot {shown}\nServerName localhost\nPidFile \
             {shown}/pid\nDefaultRuntimeDir {shown}\n\
             User #65534\nGroup #65534\nDocumentRoot {shown}\nErrorLog {shown}/error.log\nKeepAlive Off\n\
             StartServers 2\nServerLimit 2\nThreadsPerChild 16\nThreadLimit 16\nMaxRequestWorkers \
             32\nMinSpareThreads 1\n\
             MaxSpareThreads 32\n"
        );
        let file = directory.join("apache.conf");
        write(&file, config)?;
        let mut argv = vec![program];
        argv.extend(words(&["-D", "FOREGROUND", "-f"]));
        argv.push(file.into_os_string());
        Ok(Service { argv, at: At::Port(address), requests: part(PAGES, share) })
    }
}

/// Milliseconds from the first request of the clients to the last answer.
pub(super) fn answers(
    service: &Service,
    directory: &Path,
    start: &dyn Fn(&[OsString]) -> Command,
) -> Result<f64> {
    let mut command = start(&service.argv);
    command.current_dir(directory).stderr(std::process::Stdio::null());
    let mut server = Killed(command.spawn().map_err(Error::system("cannot start it"))?);
    let ms = match service.at {
        At::Socket(name) => {
            let path = directory.join(name);
            until_it_listens(&mut server, || UnixStream::connect(&path))?;
            all_clients(|me| {
                let stream = UnixStream::connect(&path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                set_and_get(stream, me, service.requests)
            })?
        }
        At::Port(address) => {
            until_it_listens(&mut server, || TcpStream::connect(address))?;
            all_clients(|_| (0..service.requests).try_for_each(|_| get_page(address)))?
        }
    };
    end(&mut server)?;
    Ok(ms)
}

/// Waits until a connection succeeds.
fn until_it_listens<S>(server: &mut Killed, connect: impl Fn() -> io::Result<S>) -> Result<()> {
    let begin = Instant::now();
    while let Err(error) = connect() {
        let ended = server.0.try_wait().map_err(Error::system("cannot wait for it"))?;
        if let Some(status) = ended {
            return Err(Error::Failed(format!("it ended before it listened ({status})")));
        }
        if begin.elapsed() > PATIENCE {
            return Err(Error::System { what: "it does not listen".to_owned(), source: error });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn all_clients(client: impl Fn(usize) -> io::Result<()> + Sync) -> Result<f64> {
    let begin = clock::now_ns();
    thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..CLIENTS).map(|me| scope.spawn(move || client(me))).collect();
        clients.into_iter().try_for_each(|client| match client.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
    .map_err(Error::system("a client got no answer, or the wrong one"))?;
    Ok((clock::now_ns() - begin) as f64 / 1e6)
}

fn expect(right: bool) -> io::Result<()> {
    if right { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Stores values at memcached and reads them back.
fn set_and_get(mut to: UnixStream, me: usize, exchanges: usize) -> io::Result<()> {
    let mut from = BufReader::new(to.try_clone()?);
    let mut line = String::new();
    let mut next = move || {
        line.clear();
        from.read_line(&mut line)?;
        Ok::<_, io::Error>(line.trim_end().to_owned())
    };
    for exchange in 0..exchanges {
        let (key, value) = (format!("{me}.{}", exchange % 50), format!("{exchange:016}"));
        to.write_all(format!("set {key} 0 0 16\r\n{value}\r\n").as_bytes())?;
        expect(next()? == "STORED")?;
        to.write_all(format!("get {key}\r\n").as_bytes())?;
        expect(next()? == format!("VALUE {key} 0 16") && next()? == value && next()? == "END")?;
    }
    Ok(())
}

fn get_page(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /page HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    expect(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(&[b'x'; PAGE]))
}

/// As a service manager ends it.
fn end(server: &mut Killed) -> Result<()> {
    // SAFETY: takes two numbers; the process is our child and has not been waited for.
    unsafe { libc::kill(server.0.id() as libc::pid_t, libc::SIGTERM) };
    let begin = Instant::now();
    loop {
        match server.0.try_wait().map_err(Error::system("cannot wait for it"))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(Error::Failed(format!("it did not succeed ({status})"))),
            None if begin.elapsed() > PATIENCE => {
                return Err(Error::Failed("it does not end when it is asked to".to_owned()));
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
}
