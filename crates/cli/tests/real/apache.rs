//! Apache with `mpm_event`: two forked processes of 16 threads, which take connections from a queue under a
//! mutex and a condition variable, and a graceful stop. And with `mpm_prefork`: processes that come and go,
//! and take turns at the listening sockets under a System V semaphore ([`prefork`]), which their parent made,
//! and as root gave to another user.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::real::every_way;
use crate::real::how::{Finished, How};
use crate::real::semarray::Arrays;
use crate::support::LIMIT;
use crate::support::need;

const MODULES: &str = "/usr/lib/apache2/modules";
const CLIENTS: usize = 16;
/// Sizes of the pages: within one packet, of many, and sent as a file.
const PAGES: [usize; 5] = [1, 700, 5_000, 66_000, 300_000];

/// Two processes of 16 threads.
const EVENT: &str = "\
StartServers 2
ServerLimit 2
ThreadsPerChild 16
ThreadLimit 16
MaxRequestWorkers 32
MinSpareThreads 1
MaxSpareThreads 32
MaxKeepAliveRequests 40
";

/// Requests of each client of those.
const MANY: usize = 150;

/// Processes of which each serves few connections. (Their parent starts others once a second.)
const PREFORK: &str = "\
Mutex sysvsem
StartServers 12
ServerLimit 24
MaxRequestWorkers 24
MinSpareServers 8
MaxSpareServers 12
MaxConnectionsPerChild 7
MaxKeepAliveRequests 10
";
/// Requests of each client of those, which are more than the first processes serve.
const FEW: usize = 60;

fn serve(how: How) {
    let finished = serve_with(how, "mpm_event", EVENT, MANY, None);
    if let Some(report) = finished.and_then(|finished| finished.report) {
        // In each process 16 workers, the listener, and the main thread.
        report.expect_threads(2 * 18);
        assert!(report.acquisitions >= (CLIENTS * MANY) as u64, "only {} acquisitions", report.acquisitions);
    }
}

pub(crate) fn prefork(how: How, arrays: &Arrays) {
    let Some(finished) = serve_with(how, "mpm_prefork", PREFORK, FEW, Some(arrays)) else { return };
    arrays.expect_used(&finished);
}

/// Runs the server, gets its pages, and stops it. `None`: there is no Apache.
fn serve_with(
    how: How,
    mpm: &str,
    settings: &str,
    count: usize,
    arrays: Option<&Arrays>,
) -> Option<Finished> {
    let apache = need("apache2", "apache2")?;
    let dir = TempDir::new().expect("a temporary directory can be made");
    // Two sockets: with one alone, no turns need be taken.
    let addresses = [free_address(), free_address()];
    let pages = &PAGES.map(page);
    lay_out(dir.path(), addresses, pages, mpm, settings);

    let config = dir.path().join("apache.conf");
    let launch = how
        .launch(&apache, &["-D".as_ref(), "FOREGROUND".as_ref(), "-f".as_ref(), config.as_os_str()])
        .current_dir(dir.path());
    let launch = match arrays {
        Some(arrays) => arrays.choose(launch),
        None => launch,
    };
    let mut server = launch.start();
    for address in addresses {
        server.wait_until("a connection to apache2", || TcpStream::connect(address).ok());
    }

    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|me| scope.spawn(move || request_pages(me, addresses[me % 2], pages, count)))
            .collect();
        for client in clients {
            client.join().expect("a client failed; its message is above");
        }
    });

    // A graceful stop: the server answers what it has begun, its children end their threads and exit.
    let master = fs::read_to_string(dir.path().join("pid")).expect("apache2 wrote its process id");
    let master = master.trim().parse().expect("a process id");
    // SAFETY: kill takes two numbers; the process is our descendant and alive until it gets this signal.
    assert_eq!(unsafe { libc::kill(master, libc::SIGWINCH) }, 0, "kill: {}", std::io::Error::last_os_error());
    let finished = server.finish();
    assert_eq!(finished.text(), "");

    let log = fs::read_to_string(dir.path().join("access.log")).expect("apache2 wrote an access log");
    // Apache rouses its own idle processes by connections that ask for OPTIONS.
    let requests: Vec<_> = log.lines().filter(|line| !line.starts_with("OPTIONS ")).collect();
    let answered = requests.iter().filter(|line| **line == "GET 200").count();
    assert_eq!((answered, requests.len()), (CLIENTS * count, CLIENTS * count), "requests in the log");
    let errors = fs::read_to_string(dir.path().join("error.log")).expect("apache2 wrote an error log");
    for bad in ["exit signal", ":alert]", ":crit]", ":emerg]", ":error]"] {
        assert!(!errors.contains(bad), "{errors}");
    }
    Some(finished)
}

/// The configuration, and the pages as files.
fn lay_out(dir: &Path, addresses: [SocketAddrV4; 2], pages: &[Vec<u8>], mpm: &str, settings: &str) {
    // The server's children may run as another user.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("our own directory");
    let htdocs = dir.join("htdocs");
    fs::create_dir(&htdocs).expect("a directory can be made in ours");
    for (i, page) in pages.iter().enumerate() {
        fs::write(htdocs.join(i.to_string()), page).expect("a page can be written");
    }
    let mut config = String::new();
    for module in [mpm, "authz_core"] {
        writeln!(config, "LoadModule {module}_module {MODULES}/mod_{module}.so").expect("a String grows");
    }
    for address in addresses {
        writeln!(config, "Listen {address}").expect("a String grows");
    }
    let dir = dir.display();
    write!(
        config,
        "ServerRoot {dir}
ServerName localhost
PidFile {dir}/pid
DefaultRuntimeDir {dir}
User #65534
Group #65534
DocumentRoot {dir}/htdocs
ErrorLog {dir}/error.log
LogFormat \"%m %>s\" status
CustomLog {dir}/access.log status
KeepAlive On
{settings}"
    )
    .expect("a String grows");
    fs::write(dir.to_string() + "/apache.conf", config).expect("the configuration can be written");
}

/// A loopback address of this test's own, out of the 16 million there are, and a free port of it.
fn free_address() -> SocketAddrV4 {
    static SERIAL: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, high, low, SERIAL.fetch_add(1, Ordering::Relaxed));
    let listener = TcpListener::bind((host, 0)).expect("a port can be bound on loopback");
    let port = listener.local_addr().expect("the listener has an address").port();
    SocketAddrV4::new(host, port)
}

/// Bytes that no other page has at the same place.
fn page(size: usize) -> Vec<u8> {
    let mut x = size as u64;
    (0..size)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 56) as u8
        })
        .collect()
}

/// One client: requests on a connection that is kept for as long as the server allows, each answer compared.
fn request_pages(me: usize, address: SocketAddrV4, pages: &[Vec<u8>], count: usize) {
    let mut kept = None;
    for i in 0..count {
        let which = (me + i) % pages.len();
        // A server short of threads may close a connection between two requests: then a new one must do.
        let (stream, headers, body) = kept
            .take()
            .and_then(|stream| request(stream, which))
            .or_else(|| request(connect(address), which))
            .expect("an answer on a new connection");
        assert!(body == pages[which], "page {which} came with other bytes");
        if headers.get("connection").map(String::as_str) != Some("close") {
            kept = Some(stream);
        }
    }
}

fn connect(address: SocketAddrV4) -> Stream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(LIMIT))).expect("a read may be limited");
    BufReader::new(stream)
}

type Stream = BufReader<TcpStream>;
type Headers = HashMap<String, String>;

/// Requests a page. `None` if the connection was closed before the first byte of an answer.
fn request(mut stream: Stream, which: usize) -> Option<(Stream, Headers, Vec<u8>)> {
    // In one write: each of several would wait for the acknowledgement of the one before.
    let request = format!("GET /{which} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).ok()?;
    let mut line = String::new();
    match stream.read_line(&mut line) {
        Ok(0) => return None,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
        result => result.expect("a status line"),
    };
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    let mut headers = HashMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_ascii_lowercase());
    }
    let size = headers["content-length"].parse().expect("a length");
    let mut body = vec![0; size];
    stream.read_exact(&mut body).expect("a body");
    Some((stream, headers, body))
}

every_way!(serve);
