//! `poundlock stat diff A.json B.json`: two runs side by side, by class of locks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::compare;
use super::json::VERSION;
use super::lost::cell;
use super::text::{duration, percent};
use crate::launch::EXIT_0;
use crate::message::{Failure, status};
use crate::output::print;
use crate::program::reason;

/// Two reports.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The report before, written by `poundlock stat --json`
    before: PathBuf,
    /// The report after
    after: PathBuf,
    /// How many rows to show; 0 for all of them
    #[arg(long, value_name = "N", default_value_t = super::text::DEFAULT_SHOWN)]
    top: usize,
}

#[derive(Deserialize)]
struct Document {
    version: u32,
    command: Vec<String>,
    ran_on: Vec<Locks>,
    ending: String,
    wall_ns: u64,
    wait_ns: u64,
    share: f64,
    classes: Vec<Class>,
}

/// The locks that some of the processes ran on.
#[derive(Deserialize)]
struct Locks {
    mutex: String,
    spinlock: String,
    rwlock: String,
}

impl Document {
    /// The locks of all processes, in words.
    fn locks(&self) -> String {
        let one = |on: &Locks| format!("mutex {}, spinlock {}, rwlock {}", on.mutex, on.spinlock, on.rwlock);
        let mut all: Vec<String> = self.ran_on.iter().map(one).collect();
        all.dedup();
        all.join("; ")
    }
}

#[derive(Deserialize, Default, Clone)]
struct Class {
    name: String,
    /// The name as reports have it.
    #[serde(default)]
    shown: String,
    kind: String,
    locks: u64,
    /// Unknown where futex calls were seen.
    acquisitions: Option<u64>,
    contended: u64,
    wait_ns: Time,
    /// None of what is no lock.
    share: Option<f64>,
}

#[derive(Deserialize, Default, Clone, Copy)]
struct Time {
    total: u64,
}

/// Prints what changed.
pub(super) fn main(args: &Args) -> Result<u8, Failure> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let mut text = String::new();
    let command = |document: &Document| document.command.join(" ");
    text += &format!("before  {}: {}\n", args.before.display(), command(&before));
    text += &format!("after   {}: {}\n", args.after.display(), command(&after));
    let (of_before, of_after) = (before.locks(), after.locks());
    if of_before != of_after {
        text += &format!("DIFFERENT LOCKS: before {of_before}; after {of_after}\n");
    }
    text.push('\n');
    let total = |what: &str, a: u64, b: u64| {
        format!("{what:>12}  {:>8}  {:>8}  {}\n", duration(a), duration(b), change(a, b))
    };
    text += &format!("{:>12}  {:>8}  {:>8}  change of the total\n", "", "before", "after");
    text += &total("wall time", before.wall_ns, after.wall_ns);
    text += &total("waiting", before.wait_ns, after.wait_ns);
    text += &format!("{:>12}  {:>8}  {:>8}\n\n", "lost", percent(before.share), percent(after.share));
    let again = compare::command_line(None, &after.command, after.wall_ns, after.ending == EXIT_0);
    let of_same_command = before.command == after.command;
    let mut rows: BTreeMap<(String, String), (Option<Class>, Option<Class>)> = BTreeMap::new();
    let key = |class: &Class| (class.name.clone(), class.kind.clone());
    for class in before.classes {
        let key = key(&class);
        rows.entry(key).or_default().0 = Some(class);
    }
    for class in after.classes {
        let key = key(&class);
        rows.entry(key).or_default().1 = Some(class);
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    let of = |class: &Option<Class>| class.as_ref().map_or(0, |class| class.wait_ns.total);
    // What changed most comes first.
    rows.sort_by_key(|(_, (a, b))| std::cmp::Reverse(of(a).abs_diff(of(b))));
    let shown = if args.top == 0 { rows.len() } else { args.top.min(rows.len()) };
    text +=
        &format!("{:>15}  {:>17}  {:>17}  {:>8}\n", "lost in all", "wait in all", "waits in all", "wait per");
    text += &format!(
        "{:>7} {:>7}  {:>8} {:>8}  {:>8} {:>8}  {:>8}  locks\n",
        "before", "after", "before", "after", "before", "after", "acquis."
    );
    for ((name, kind), (a, b)) in &rows[..shown] {
        let waits = |class: &Option<Class>| {
            class.as_ref().map_or("-".to_owned(), |class| class.contended.to_string())
        };
        let lost = |class: &Option<Class>| cell(class.as_ref().and_then(|class| class.share));
        let wait = |class: &Option<Class>| {
            class.as_ref().map_or("-".to_owned(), |class| duration(class.wait_ns.total))
        };
        let either = b.as_ref().or(a.as_ref());
        let locks = either.map_or(0, |class| class.locks);
        let name = either.map(|class| &class.shown).filter(|shown| !shown.is_empty()).unwrap_or(name);
        let several = if locks > 1 { format!("{locks} ") } else { String::new() };
        let kind = if kind == "mutex" { String::new() } else { format!(" ({kind})") };
        let what = match (a, b) {
            (Some(a), Some(b)) => per_acquisition(a, b),
            (None, _) => "new".to_owned(),
            (_, None) => "gone".to_owned(),
        };
        text += &format!(
            "{:>7} {:>7}  {:>8} {:>8}  {:>8} {:>8}  {what:>8}  {several}{name}{kind}\n",
            lost(a),
            lost(b),
            wait(a),
            wait(b),
            waits(a),
            waits(b)
        );
    }
    if rows.len() > shown {
        text += &format!("and {} more (--top 0 shows them)\n", rows.len() - shown);
    }
    text += "\nThe last column is the wait per acquisition (per wait, where acquisitions are not seen), after / before; the others are totals of a run.\n";
    text += &match again {
        Some(line) if of_same_command => {
            format!("Two runs do not show how much runs differ. Rounds in turns do: {line}\n")
        }
        _ => "The sides are runs of different commands.\n".to_owned(),
    };
    print(&text)?;
    Ok(0)
}

/// How the wait changed, for as many acquisitions; where these are not known, for as many waits.
fn per_acquisition(a: &Class, b: &Class) -> String {
    let is_known = a.acquisitions.is_some() && b.acquisitions.is_some();
    let count = |class: &Class| class.acquisitions.filter(|_| is_known).unwrap_or(class.contended);
    let each = |class: &Class| class.wait_ns.total as f64 / count(class).max(1) as f64;
    match (each(a), each(b)) {
        (0.0, 0.0) => "same".to_owned(),
        (0.0, _) => "new wait".to_owned(),
        (a, b) => format!("x {:.2}", b / a),
    }
}

fn change(a: u64, b: u64) -> String {
    if a == 0 { String::new() } else { format!("x {:.2}", b as f64 / a as f64) }
}

fn read(path: &Path) -> Result<Document, Failure> {
    let failure = |why: String| Failure::new(status::OURS, format_args!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| failure(reason(&error)))?;
    // Of another version it may not even have the same fields.
    #[derive(Deserialize)]
    struct Version {
        version: Option<u32>,
    }
    let not_ours = |_| failure("no report of `poundlock stat --json`".to_owned());
    let version: Version = serde_json::from_slice(&text).map_err(not_ours)?;
    match version.version {
        Some(VERSION) => {}
        Some(version) => {
            return Err(failure(format!(
                "a report of version {version}; this command reads version {VERSION}"
            )));
        }
        None => {
            return Err(failure(
                "no report of `poundlock stat --json`, or one of an older version".to_owned(),
            ));
        }
    }
    let document: Document = serde_json::from_slice(&text).map_err(not_ours)?;
    debug_assert_eq!(document.version, VERSION);
    Ok(document)
}
