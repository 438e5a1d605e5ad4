//! PostgreSQL whose clients all update one row: its locks of rows are its own, its backends sleep for them in
//! `epoll_wait`, and `pg_stat_activity` says so.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{LIMIT, expect_status, find, need, need_file, poundlock, start, stderr, until};

/// A program of the server's package, which distributions keep out of the path.
fn of_server(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let places = versions.map(|version| version.path().join("bin").join(name));
    need_file(name, find(name).into_iter().chain(places), "postgresql")
}

/// The words that run a program as one that is not root, as this server wants it.
fn as_its_user(program: &Path) -> Vec<OsString> {
    // SAFETY: geteuid takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let words = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"];
    let words = words.into_iter().filter(|_| is_root).map(OsString::from);
    words.chain([program.into()]).collect()
}

fn command(program: &Path, args: &[&str]) -> Command {
    let words = as_its_user(program);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(args);
    command
}

#[test]
fn stat_names_where_backends_wait_for_a_row() {
    let (Some(initdb), Some(postgres)) = (of_server("initdb"), of_server("postgres")) else { return };
    let Some(pgbench) = need("pgbench", "postgresql-contrib") else { return };
    let Some(psql) = need("psql", "postgresql-client") else { return };
    let dir = TempDir::new().expect("a temporary directory can be made");
    let place = dir.path().to_str().expect("the path is text");
    let data = format!("{place}/data");
    if as_its_user(&psql).len() > 1 {
        let owned = Command::new("chown").args(["postgres", place]).status().expect("chown runs");
        assert!(owned.success());
    }
    let made = command(&initdb, &["-D", &data, "-A", "trust", "--no-sync"]).output().expect("initdb runs");
    expect_status(&made, 0);
    // One client at a time has the row and sleeps: the others wait for the row, however loaded the machine
    // is.
    let hot = format!("{place}/hot.sql");
    let script = "begin;\nupdate pgbench_branches set bbalance = bbalance + 1 where bid = 1;\n\
        select pg_sleep(0.05);\ncommit;\n";
    std::fs::write(&hot, script).expect("written");

    let mut cmd = poundlock();
    cmd.env("COLUMNS", "1000").args(["stat", "--"]).args(as_its_user(&postgres));
    let server = start(cmd.args(["-D", &data, "-k", place, "-h", "", "-F"]).stdin(Stdio::null()));
    let ask = |question: &str| {
        let output =
            command(&psql, &["-h", place, "-d", "postgres", "-Atc", question]).output().expect("psql runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    until("the server answers", || ask("select 1").is_some());
    let prepared = command(&pgbench, &["-h", place, "-i", "-q", "postgres"]).output().expect("pgbench runs");
    expect_status(&prepared, 0);
    let load = ["-h", place, "-n", "-c", "12", "-f", &hot, "-T", "100000", "postgres"];
    let load = start(command(&pgbench, &load).stdin(Stdio::null()));
    // The truth by the server's own accounting first, and then reports until one has a stack of those waits.
    let waits = "select count(*) from pg_stat_activity where wait_event in ('transactionid', 'tuple')";
    let waiting = || ask(waits).and_then(|count| count.trim().parse::<u32>().ok()).unwrap_or(0);
    until("clients wait for the row", || waiting() >= 8);
    let finding = "asleep in epoll_wait() at WaitEventSetWait";
    let named = |text: &str| {
        let first = text.lines().find(|line| line.starts_with("* ")).unwrap_or_default().to_owned();
        first.contains(finding) && first.contains("< ProcSleep")
    };
    let mut reports = 0;
    until("waits for the row are reported", || {
        server.kill(libc::SIGUSR2);
        until("there is a report more", || {
            server.errors_so_far().matches("poundlock stat: ").count() > reports
        });
        let text = server.errors_so_far();
        reports = text.matches("poundlock stat: ").count();
        text.rsplit("poundlock stat: ").next().is_some_and(named)
    });
    load.kill(libc::SIGTERM);
    let _ = load.finish(LIMIT);
    server.kill(libc::SIGINT);
    let output = server.finish(LIMIT);
    expect_status(&output, 0);
    let text = stderr(&output);
    let last = text.rsplit("poundlock stat: ").next().expect("the report at the end");
    assert!(named(last) && !last.contains("locks are not what this program waits for"), "{text}");
}
