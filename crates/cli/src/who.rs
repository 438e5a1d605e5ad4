//! `poundlock who`: of a process that hangs, or of its core file: who waits for what, and who holds it.

mod json;
mod ours;
mod picture;
mod record;
mod text;
pub(crate) mod waits;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use picture::{Picture, Source};
use record::Record;
use text::Text;

use crate::message::{Failure, say};
use crate::observe::calls::{self, Doing};
use crate::observe::file::Output;
use crate::observe::place::is_alive;
use crate::observe::proc::{descendants, name_of, read_text};
use crate::observe::symbols::file_name;
use crate::output;
use crate::remote::core::Core;
use crate::remote::maps::Files;
use crate::remote::process::{self, Live};
use crate::stat::duration;

/// What to look at.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The processes, each by itself
    #[arg(
        value_name = "PID",
        value_parser = clap::value_parser!(u32).range(1..=i32::MAX as i64),
        required_unless_present = "core",
        conflicts_with = "core"
    )]
    pid: Vec<u32>,
    /// Look at all processes that they started as well, and those that these started
    #[arg(long, requires = "pid")]
    tree: bool,
    /// Look at a core file rather than at a process
    #[arg(long, value_name = "FILE")]
    core: Option<PathBuf>,
    /// The program that the core file is of, if it is not where it was
    #[arg(long, value_name = "FILE", requires = "core", conflicts_with = "pid")]
    exe: Option<PathBuf>,
    /// Show all threads, and all of their stacks
    #[arg(long)]
    all: bool,
    /// Write it to this file, as JSON; `-` is standard output, which has nothing else then
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn main(args: Args) -> ExitCode {
    match who(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

/// Where the picture is from.
pub(crate) struct Origin {
    pid: Option<u32>,
    program: String,
    /// Of a live process: how long the look took, and the longest that a thread stood still.
    looked: Option<(u64, u64)>,
    stopped: usize,
    threads: usize,
    core: Option<PathBuf>,
}

/// What is said of a holder that has ended.
const GONE: &str = "has ended: nobody will release it";

/// Whether the owner of a lock in this process has ended.
pub(crate) fn has_ended(pid: u32, owner: u32) -> bool {
    matches!(calls::doing(pid, owner), Ok(Doing::Gone)) && elsewhere(pid, owner) == GONE
}

/// What is to be said of an owner that is no living thread of the process.
fn elsewhere(pid: u32, owner: u32) -> String {
    let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if namespace(pid) != namespace(std::process::id()) {
        return "is of another process of its container, or has ended".to_owned();
    }
    let status = read_text(format!("/proc/{owner}/status")).unwrap_or_default();
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:")).map(str::trim);
    let name = status.lines().find_map(|line| line.strip_prefix("Name:")).map(str::trim);
    match (leader, name) {
        (Some(leader), Some(name)) if leader != pid.to_string() => format!("is of process {leader} ({name})"),
        _ => GONE.to_owned(),
    }
}

impl Origin {
    /// Whether a thread that holds something, and is none of those that were looked at, has ended.
    fn has_ended(&self, id: u32) -> bool {
        self.elsewhere(id) == GONE
    }

    fn pid(&self) -> Option<u32> {
        self.pid
    }

    fn program(&self) -> &str {
        &self.program
    }

    fn looked(&self) -> Option<(u64, u64)> {
        self.looked
    }

    fn title(&self) -> String {
        let process = self.pid.map_or("a process".to_owned(), |pid| format!("process {pid}"));
        let name = if self.program.is_empty() { String::new() } else { format!(" ({})", self.program) };
        match &self.core {
            Some(core) => format!("{}, {process}{name}", core.display()),
            None => format!("{process}{name}"),
        }
    }

    /// How long the process stood still.
    fn stood(&self) -> String {
        let Some((wall, longest)) = self.looked else {
            return "as it was when the core file was made".to_owned();
        };
        let left = self.threads - self.stopped;
        let left = match left {
            0 => String::new(),
            n => format!("; {} not stopped", if n == 1 { "1 was".to_owned() } else { format!("{n} were") }),
        };
        format!(
            "threads stood still one after the other, each for at most {}; {} from the first to the last{left}",
            duration(longest),
            duration(wall)
        )
    }

    /// What is to be said of an owner that is no thread of the process.
    fn elsewhere(&self, id: u32) -> String {
        match (self.pid, &self.core) {
            // All of its threads that live were looked at.
            (Some(pid), None) => elsewhere(pid, id),
            _ => "is not in the core file: it had ended, or is of another process".to_owned(),
        }
    }
}

/// Looks at all that were named. Of several processes each has its own status; that of the last failure is
/// passed on.
fn who(args: &Args) -> Result<u8, Failure> {
    // Before anything is stopped is the time to find that the answer cannot be written.
    let json = args.json.as_deref().map(Output::open).transpose()?;
    let mut looks = Vec::new();
    let mut code = 0;
    // The shape of the JSON is that of the question, whatever there is to be seen.
    let several = args.tree || args.pid.len() > 1;
    if let Some(core) = &args.core {
        let begun = Instant::now();
        let (picture, origin) = of_core(core, args.exe.as_deref())?;
        looks.push((picture, origin, begun.elapsed()));
    }
    for pid in processes_of(args) {
        let begun = Instant::now();
        match of_process(pid) {
            Ok((picture, origin)) => looks.push((picture, origin, begun.elapsed())),
            Err(failure) if !several => return Err(failure),
            // A child that has ended meanwhile was not asked for.
            Err(_) if !args.pid.contains(&pid) && !is_alive(pid) => {}
            Err(failure) => {
                say(&failure.line);
                code = failure.status;
            }
        }
    }
    let texts: Vec<Text> =
        looks.iter().map(|(picture, origin, _)| Text { picture, origin, all: args.all }).collect();
    if !args.json.as_deref().is_some_and(output::is_standard) {
        let written: Vec<String> = texts.iter().map(Text::write).collect();
        output::print(&written.join("\n"))?;
    }
    let Some(json) = json else { return Ok(code) };
    let mut documents = Vec::new();
    for (text, (picture, origin, took)) in texts.iter().zip(&looks) {
        let sentences = picture.cycles.iter().map(|cycle| text.cycle(cycle)).collect();
        documents.push(json::Document::of(picture, origin, took.as_nanos() as u64, sentences));
    }
    json.write(|to| {
        match &documents[..] {
            [one] if !several => serde_json::to_writer_pretty(&mut *to, one)?,
            _ => serde_json::to_writer_pretty(&mut *to, &json::Several::of(&documents))?,
        }
        writeln!(to)
    })?;
    Ok(code)
}

/// The processes to look at, each once.
fn processes_of(args: &Args) -> Vec<u32> {
    let below = |&pid: &u32| if args.tree { descendants(pid) } else { Vec::new() };
    let all = args.pid.iter().flat_map(|pid| std::iter::once(*pid).chain(below(pid)));
    let mut known = HashSet::new();
    all.filter(|pid| *pid != std::process::id() && known.insert(*pid)).collect()
}

fn of_process(pid: u32) -> Result<(Picture, Origin), Failure> {
    process::check(pid)?;
    let memory = Live::new(pid);
    let look = process::look(pid, &memory)?;
    let maps = process::maps(pid)?;
    let mut files = Files::of(pid);
    let snapshot = files.describe(&maps);
    let inner = crate::observe::proc::inner_pid(pid).unwrap_or(pid);
    let place = |at: u64| snapshot.module_at(at).map(|module| module.path.clone());
    let record = Record::find(&maps, inner, place);
    let source = Source { snapshot: &snapshot, maps: &maps, threads: &look.threads, pid: Some(pid), record };
    let picture = picture::draw(&source, &memory);
    let origin = Origin {
        pid: Some(pid),
        program: file_name(snapshot.exe.strip_suffix(" (deleted)").unwrap_or(&snapshot.exe)),
        looked: Some((look.wall_ns, look.threads.iter().map(|thread| thread.stood_ns).max().unwrap_or(0))),
        stopped: look.threads.iter().filter(|thread| thread.registers.is_some()).count(),
        threads: look.threads.len(),
        core: None,
    };
    Ok((picture, origin))
}

fn of_core(path: &std::path::Path, exe: Option<&std::path::Path>) -> Result<(Picture, Origin), Failure> {
    let core = Core::open(path, exe)?;
    let source = Source {
        snapshot: &core.snapshot,
        maps: &core.maps,
        threads: &core.threads,
        pid: None,
        record: None,
    };
    let picture = picture::draw(&source, &core);
    let program =
        if core.snapshot.exe.is_empty() { core.name.clone() } else { file_name(&core.snapshot.exe) };
    let origin = Origin {
        pid: Some(core.snapshot.pid).filter(|pid| *pid != 0),
        program,
        looked: None,
        stopped: 0,
        threads: core.threads.len(),
        core: Some(path.to_owned()),
    };
    Ok((picture, origin))
}

/// The processes that can be asked about, with their names: for shells.
pub(crate) fn processes() -> Vec<(u32, String)> {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: takes no arguments.
    let ours = unsafe { libc::geteuid() };
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let of = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let owner = entry.metadata().ok()?.uid();
        // The kernel's own threads have no program.
        let has_program = std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| !line.is_empty());
        let mine = (ours == 0 || owner == ours) && pid != std::process::id() && has_program;
        mine.then(|| (pid, name_of(pid)))
    };
    let mut found: Vec<(u32, String)> = entries.flatten().filter_map(of).collect();
    found.sort_unstable();
    found
}
