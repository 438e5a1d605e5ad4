//! `memcached` with four worker threads under eight connections of `tests/real/memcached_client.py`.

use std::os::unix::net::UnixStream;

use tempfile::TempDir;

use crate::real::every_way;
use crate::real::how::How;
use crate::support::need;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/real/memcached_client.py");

fn serve(how: How) {
    let Some(memcached) = need("memcached", "memcached") else { return };
    let Some(python) = need("python3", "python3") else { return };
    let dir = TempDir::new().expect("a temporary directory can be made");
    // A relative path: those of sockets are limited to 108 bytes.
    let mut args = vec!["-s", "socket", "-t", "4", "-m", "64"];
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        args.extend(["-u", "root"]); // who must be told that it is meant
    }
    let mut server = how.launch(&memcached, &args).current_dir(dir.path()).start();
    server.wait_until("a connection to memcached", || UnixStream::connect(dir.path().join("socket")).ok());

    // `stat` is to report on the server alone; under `run` the client is one more program on these locks.
    let client_how = match how {
        How::Run(_) => how,
        How::Plain | How::Stat(_) | How::Check(_) => How::Plain,
    };
    let checked = client_how.launch(&python, &[CLIENT, "socket", "8", "24"]).current_dir(dir.path()).finish();
    assert_eq!(checked.text(), "8 connections: 12288 sets, gets and incrs each, all verified\n");
    assert_eq!(checked.stderr, "");

    // As a service manager ends it. It then takes leave with status 0.
    server.signal(libc::SIGTERM);
    let finished = server.finish();
    assert!(["", "Signal handled: Terminated.\n"].contains(&finished.text()), "{}", finished.text());
    if let Some(report) = finished.report {
        report.expect_threads(5); // 4 workers, and the main thread that accepts
        let operations = 3 * 12_288;
        assert!(
            report.acquisitions >= operations,
            "{} acquisitions in {operations} commands",
            report.acquisitions
        );
    }
}

every_way!(serve);
