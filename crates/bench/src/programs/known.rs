//! The programs: those that the tests run, with enough to do for a figure.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::served::Service;
use super::words;
use crate::error::{Error, Result};

/// A program that there is work for.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// Executables without which there is no measurement.
    pub(super) needs: &'static [&'static str],
    /// Debian's package with the last of them.
    pub(super) package: &'static str,
    /// Lays out its files in a directory of its own, for this share of its usual work.
    pub(super) prepare: fn(&Path, f64) -> Result<Work>,
}

/// That share of a number, and one at least.
pub(super) fn part(usual: usize, share: f64) -> usize {
    ((usual as f64 * share) as usize).max(1)
}

/// What a program does.
pub(super) enum Work {
    /// A command that ends by itself.
    Command(Vec<OsString>),
    /// Answers to clients.
    Served(Service),
}

const SYSBENCH_THREADS: Known =
    Known { name: "sysbench-threads", needs: &["sysbench"], package: "sysbench", prepare: sysbench_threads };
const MEMCACHED: Known =
    Known { name: "memcached", needs: &["memcached"], package: "memcached", prepare: memcached };

const XZ: Known = Known { name: "xz", needs: &["xz"], package: "xz-utils", prepare: xz };
const JAVAC: Known =
    Known { name: "javac", needs: &["javac"], package: "default-jdk-headless", prepare: javac };

pub(super) const ALL: &[Known] = &[
    XZ,
    Known { name: "python", needs: &["python3"], package: "python3", prepare: python },
    SYSBENCH_THREADS,
    Known { name: "sysbench-mutex", needs: &["sysbench"], package: "sysbench", prepare: sysbench_mutex },
    Known { name: "stress-ng", needs: &["stress-ng"], package: "stress-ng", prepare: stress_ng },
    MEMCACHED,
    Known { name: "apache", needs: &["apache2"], package: "apache2", prepare: apache },
    JAVAC,
    Known { name: "java", needs: &["javac", "java"], package: "default-jdk-headless", prepare: java },
];

/// What shows the cost of statistics: programs that take locks often.
pub(super) const COUNTED: &[Known] = &[
    Known { name: "logtally", needs: &["cc"], package: "gcc", prepare: logtally },
    SYSBENCH_THREADS,
    MEMCACHED,
    Known { name: "locks", needs: &["cc"], package: "gcc", prepare: locks },
];

/// What shows the cost of checks.
pub(super) const CHECKED: &[Known] = &[SYSBENCH_THREADS, MEMCACHED, XZ, JAVAC];

/// Where an executable is. The distribution's directories first: in PATH may lie a shell script that chooses
/// between versions, and the measurement is about the program. Servers lie where PATH does not lead.
pub(super) fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ["/usr/bin", "/usr/sbin"]
        .map(PathBuf::from)
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

pub(super) fn write(file: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    fs::write(file, contents).map_err(Error::system(format!("cannot write {}", file.display())))
}

pub(super) fn program(name: &str) -> OsString {
    installed(name).map_or_else(|| name.into(), PathBuf::into_os_string)
}

/// A program and its arguments.
pub(super) fn line(name: &str, arguments: &[&str]) -> Vec<OsString> {
    let mut argv = vec![program(name)];
    argv.extend(words(arguments));
    argv
}

/// A C program, from its source.
pub(super) fn compiled(directory: &Path, name: &str, source: &str, options: &[&str]) -> Result<OsString> {
    let (file, built) = (directory.join(name).with_extension("c"), directory.join(name));
    write(&file, source)?;
    let mut cc = Command::new(program("cc"));
    cc.args(["-O2", "-g", "-pthread"]).args(options).arg("-o").arg(&built).arg(file);
    super::to_its_end(cc.stdout(Stdio::null()).stderr(Stdio::piped()), false)?;
    Ok(built.into_os_string())
}

/// Eight threads that enter the lines of a log into one report and 16 parts of another.
fn logtally(directory: &Path, share: f64) -> Result<Work> {
    let source = include_str!("../../../../examples/logtally/logtally.c");
    let mut argv = vec![compiled(directory, "logtally", source, &[])?];
    argv.extend(words(&["8", &part(400_000, share).to_string()]));
    Ok(Work::Command(argv))
}

/// Four threads that take some of 100,000 locks at random, with nothing inside.
fn locks(directory: &Path, share: f64) -> Result<Work> {
    let mut argv = vec![compiled(directory, "locks", include_str!("locks.c"), &[])?];
    argv.extend(words(&["100000", "4", &part(5_000_000, share).to_string()]));
    Ok(Work::Command(argv))
}

/// Four threads that take blocks from a queue, in turn of words and of noise, and give them to one writer in
/// order.
fn xz(directory: &Path, share: f64) -> Result<Work> {
    const BLOCK: usize = 256 << 10;
    let blocks = part(128, share);
    let mut random = SmallRng::seed_from_u64(1);
    let mut data = Vec::with_capacity((blocks + 1) * BLOCK);
    for block in 1..=blocks {
        while data.len() < block * BLOCK {
            let bits: u64 = random.random();
            if block % 2 == 0 {
                data.extend(bits.to_le_bytes());
            } else {
                data.extend([&b"lock "[..], b"unlock ", b"wait ", b"wake\n"][(bits >> 62) as usize]);
            }
        }
    }
    let file = directory.join("data");
    write(&file, data)?;
    let mut argv = line("xz", &["-T4", "-1", "--block-size=256KiB", "--stdout"]);
    argv.push(file.into_os_string());
    Ok(Work::Command(argv))
}

/// Eight threads with locks, conditions, queues, pools and barriers: the same work each time.
fn python(directory: &Path, _: f64) -> Result<Work> {
    let file = directory.join("threads.py");
    write(&file, include_str!("../../../../tests/real/threads.py"))?;
    Ok(Work::Command(vec![program("python3"), file.into_os_string()]))
}

/// Eight threads that hold one of four mutexes over calls of `sched_yield`.
fn sysbench_threads(_: &Path, share: f64) -> Result<Work> {
    let events = format!("--events={}", part(6000, share));
    let options = ["threads", "--threads=8", "--time=0", &events, "--thread-yields=100"];
    Ok(Work::Command(line("sysbench", &[&options[..], &["--thread-locks=4", "run"]].concat())))
}

/// Eight threads that take 200,000 short locks each, spread over eight mutexes.
fn sysbench_mutex(_: &Path, share: f64) -> Result<Work> {
    let locks = format!("--mutex-locks={}", part(200_000, share));
    let options = ["mutex", "--threads=8", "--time=0", "--mutex-num=8", &locks];
    Ok(Work::Command(line("sysbench", &[&options[..], &["--mutex-loops=100", "run"]].concat())))
}

/// Eight threads at one mutex, which change between real-time priorities while they hold it, where they may.
/// It fails if the first has done all before the start of the second, from whose creator it may keep the CPU
/// for the most of a second, until Linux gives one that is not real-time its part: not less than takes
/// longer.
fn stress_ng(directory: &Path, share: f64) -> Result<Work> {
    let operations = part(800_000, share).max(800_000).to_string();
    let mut argv = line("stress-ng", &["--mutex", "1", "--mutex-procs", "8", "--mutex-ops", &operations]);
    argv.extend(words(&["--timeout", "0", "--temp-path"]));
    argv.push(directory.into());
    Ok(Work::Command(argv))
}

fn memcached(_: &Path, share: f64) -> Result<Work> {
    Ok(Work::Served(Service::memcached(program("memcached"), 4, share)))
}

fn apache(directory: &Path, share: f64) -> Result<Work> {
    Ok(Work::Served(Service::apache(program("apache2"), directory, share)?))
}

/// A small program of several classes.
fn sources(directory: &Path) -> Result<Vec<OsString>> {
    let sources = [
        ("Account.java", include_str!("../../../../tests/real/java/bank/Account.java")),
        ("Journal.java", include_str!("../../../../tests/real/java/bank/Journal.java")),
        ("Main.java", include_str!("../../../../tests/real/java/bank/Main.java")),
    ];
    let place = |(name, text): (&str, &str)| {
        let file = directory.join(name);
        write(&file, text)?;
        Ok(file.into_os_string())
    };
    sources.into_iter().map(place).collect()
}

/// The compiler: a virtual machine that starts, with its collector and compiler threads. The same work each
/// time, as that of the next.
fn javac(directory: &Path, _: f64) -> Result<Work> {
    let mut argv = line("javac", &["-J-Xmx256m", "-d"]);
    argv.push(directory.into());
    argv.extend(sources(directory)?);
    Ok(Work::Command(argv))
}

/// 500 threads that move money.
fn java(directory: &Path, share: f64) -> Result<Work> {
    let Work::Command(compile) = javac(directory, share)? else { unreachable!("it ends by itself") };
    super::to_its_end(
        Command::new(&compile[0]).args(&compile[1..]).stdout(Stdio::null()).stderr(Stdio::piped()),
        false,
    )?;
    let mut argv = line("java", &["-Xmx256m", "-XX:+UseG1GC", "-XX:ParallelGCThreads=4", "-cp"]);
    argv.extend([directory.into(), "bank.Main".into()]);
    Ok(Work::Command(argv))
}
