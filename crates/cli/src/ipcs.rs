//! `poundlock ipcs`: the semaphore arrays that are ours, and what their locks have been through.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::process::ExitCode;

use comfy_table::{Cell, CellAlignment, Table, presets};
use poundlock_semarray::{self as semarray, Listed};
use serde::Serialize;

use crate::message::{Failure, status};
use crate::output::print;
use crate::semaphores::{self, ReportJson, check_domain, online_cpus, report_lines};

/// Which arrays to show, and what of them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show what each array's lock has been through: its lifetime, how often it was taken free and contended,
    /// how long that was waited for, and what share of the CPUs' time went into that; of this array only, if
    /// an id is given
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = ALL, allow_hyphen_values = true)]
    report: Option<String>,
    /// Print JSON: everything there is, reports included
    #[arg(long)]
    json: bool,
}

/// What `--report` without an id stands for.
const ALL: &str = "all";

#[derive(Serialize)]
struct Document {
    arrays: Vec<Array>,
}

#[derive(Serialize)]
struct Array {
    id: i32,
    key: String,
    uid: u32,
    gid: u32,
    cuid: u32,
    cgid: u32,
    mode: String,
    semaphores: u32,
    /// Calls that sleep at it.
    sleepers: u32,
    /// Processes that have it mapped.
    processes: u32,
    variant: &'static str,
    /// In seconds since 1970; 0: never.
    operated: u64,
    changed: u64,
    report: ReportJson,
}

/// Prints the list.
pub(crate) fn main(args: Args) -> ExitCode {
    match ipcs(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn ipcs(args: &Args) -> Result<(), Failure> {
    let wanted = match args.report.as_deref() {
        None | Some(ALL) => None,
        Some(id) => Some(parse_id(id)?),
    };
    check_domain()?;
    let mut arrays: Vec<Listed> = Vec::new();
    semarray::list(|array| {
        if wanted.is_none_or(|id| id == array.id) {
            arrays.push(array);
        }
    });
    if let (Some(id), true) = (wanted, arrays.is_empty()) {
        return Err(Failure::new(status::OURS, format_args!("there is no array {id}: see `poundlock ipcs`")));
    }
    arrays.sort_by_key(|array| array.id);
    let text = if args.json {
        json(&arrays)?
    } else if args.report.is_some() {
        reports(&arrays)
    } else {
        table(&arrays)
    };
    print(&text)
}

/// An id, as it was typed.
pub(crate) fn parse_id(text: &str) -> Result<i32, Failure> {
    text.parse::<i32>().ok().filter(|id| *id >= 0).ok_or_else(|| {
        Failure::new(status::USAGE, format_args!("'{text}' is no id of an array: a number is"))
    })
}

fn json(arrays: &[Listed]) -> Result<String, Failure> {
    let cpus = online_cpus();
    let arrays = arrays.iter().map(|array| Array {
        id: array.id,
        key: semaphores::key(array.settings.key),
        uid: array.settings.uid,
        gid: array.settings.gid,
        cuid: array.settings.cuid,
        cgid: array.settings.cgid,
        mode: format!("{:03o}", array.settings.mode & 0o777),
        semaphores: array.semaphores,
        sleepers: array.sleepers,
        processes: array.processes(),
        variant: array.scheme.name(),
        operated: array.times.operated,
        changed: array.times.changed,
        report: ReportJson::new(&array.report, cpus),
    });
    let mut text = serde_json::to_string_pretty(&Document { arrays: arrays.collect() })
        .map_err(|error| Failure::new(status::OURS, format_args!("the list as JSON: {error}")))?;
    text.push('\n');
    Ok(text)
}

fn reports(arrays: &[Listed]) -> String {
    let cpus = online_cpus();
    let mut text = String::new();
    for array in arrays {
        if !text.is_empty() {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let key = semaphores::key(array.settings.key);
        let _ = writeln!(text, "array {}, key {key}, {}:", array.id, array.scheme.name());
        text += &report_lines(&array.report, cpus);
    }
    text
}

fn table(arrays: &[Listed]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let header = [
        ("id", CellAlignment::Right),
        ("key", CellAlignment::Right),
        ("owner", CellAlignment::Left),
        ("mode", CellAlignment::Right),
        ("semaphores", CellAlignment::Right),
        ("sleepers", CellAlignment::Right),
        ("processes", CellAlignment::Right),
        ("variant", CellAlignment::Left),
        ("operated", CellAlignment::Left),
        ("changed", CellAlignment::Left),
    ];
    table.set_header(header.map(|(name, alignment)| Cell::new(name).set_alignment(alignment)));
    for array in arrays {
        let cells = [
            array.id.to_string(),
            semaphores::key(array.settings.key),
            user(array.settings.uid),
            format!("{:03o}", array.settings.mode & 0o777),
            array.semaphores.to_string(),
            array.sleepers.to_string(),
            array.processes().to_string(),
            array.scheme.name().to_string(),
            moment(array.times.operated),
            moment(array.times.changed),
        ];
        let aligned = |(text, (_, alignment)): (String, (&str, CellAlignment))| {
            Cell::new(text).set_alignment(alignment)
        };
        table.add_row(cells.into_iter().zip(header).map(aligned));
    }
    for column in 0..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_padding((if column.index == 0 { 0 } else { 2 }, 0));
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// The user's name, or the number of one who has none.
fn user(uid: u32) -> String {
    let mut buffer = vec![0; 4096];
    let mut entry = MaybeUninit::<libc::passwd>::zeroed();
    let mut found = std::ptr::null_mut();
    // SAFETY: everything is ours, and as long as it is said to be.
    let rc = unsafe {
        libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    if rc != 0 || found.is_null() {
        return uid.to_string();
    }
    // SAFETY: the entry was filled in, and its name lies in the buffer.
    unsafe { CStr::from_ptr((*found).pw_name) }.to_string_lossy().into_owned()
}

/// Local time; `-` for never.
fn moment(seconds: u64) -> String {
    let Some(seconds) = libc::time_t::try_from(seconds).ok().filter(|seconds| *seconds != 0) else {
        return "-".to_string();
    };
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both are ours.
    if unsafe { libc::localtime_r(&raw const seconds, parts.as_mut_ptr()) }.is_null() {
        return seconds.to_string();
    }
    // SAFETY: filled in by the call.
    let t = unsafe { parts.assume_init() };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        t.tm_year + 1900,
        t.tm_mon + 1,
        t.tm_mday,
        t.tm_hour,
        t.tm_min,
        t.tm_sec
    )
}
