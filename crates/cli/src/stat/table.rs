//! The report for a human reader, on standard error.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use comfy_table::{Cell, CellAlignment, Table, presets};
use poundlock_statfile::LockKind;

use super::report::{Lock, RanOn, Report, ratio, side};
use crate::output::quoted;

/// As many call sites of a lock are shown, and as many frames of each: further ones are in the JSON.
const SITES: usize = 5;
const FRAMES: usize = 8;

/// The widest that the first column gets.
const NAME_WIDTH: usize = 40;

/// Prints the report, with the first `shown` locks.
pub(super) fn print(report: &Report, shown: usize) -> io::Result<()> {
    io::stderr().lock().write_all(text(report, shown).as_bytes())
}

fn text(report: &Report, shown: usize) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_text(&mut text, report, shown);
    text
}

fn write_text(out: &mut String, report: &Report, shown: usize) -> std::fmt::Result {
    writeln!(out, "\npoundlock stat: {}", command_line(&report.command))?;
    writeln!(
        out,
        "{}, {} wall time, {}, {}, {}\n",
        ran_on(report),
        duration(report.wall_ns),
        counted(report.threads, "thread"),
        counted(report.processes as u64, "process"),
        report.ending
    )?;
    if report.locks.is_empty() {
        writeln!(out, "No lock that is counted was used.")?;
    } else {
        write_locks(out, report, shown)?;
    }
    report.uncounted.write(out, report.locks.is_empty())?;
    report.arrays.write(out, shown)?;
    report.events.write(out)
}

/// What the processes ran on; by program where they ran on different locks.
fn ran_on(report: &Report) -> String {
    let several = report.ran_on.len() > 1;
    let one = |on: &RanOn| {
        let mut text = format!("lock {}", on.mutex);
        // Each is of interest where there are any, or where it tells two apart.
        let differ = |name: fn(&RanOn) -> &str| report.ran_on.iter().any(|of| name(of) != name(on));
        if report.has_spinlocks() || differ(|on| on.spinlock) {
            let _ = write!(text, ", spinlock {}", on.spinlock);
        }
        if report.has_rwlocks() || differ(|on| on.rwlock) {
            let _ = write!(text, ", rwlock {}", on.rwlock);
        }
        if several {
            let programs: Vec<&str> = on.programs.iter().map(String::as_str).collect();
            let _ = write!(text, " ({})", programs.join(", "));
        }
        text
    };
    report.ran_on.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn write_locks(out: &mut String, report: &Report, shown: usize) -> std::fmt::Result {
    let several = report.several_processes();
    let shown = shown.min(report.locks.len());
    let (top, rest) = report.locks.split_at(shown);
    writeln!(out, "{}", table(top, several))?;
    if !rest.is_empty() {
        let waited: u64 = rest.iter().map(|lock| lock.wait_ns.total).sum();
        let more = counted(rest.len() as u64, "more lock");
        writeln!(out, "and {more}, waited for {} in all (--top 0 shows them)", duration(waited))?;
    }
    let alive = duration(report.thread_time_ns);
    let threads = counted(report.locking_threads, "thread");
    writeln!(
        out,
        "lost: wait total as a share of the time that the {threads} that used a lock lived, {alive} together"
    )?;
    if report.dropped_locks > 0 {
        let dropped = counted(report.dropped_locks, "lock");
        writeln!(out, "{dropped} found no room in the table and were counted together")?;
    }
    for lock in top.iter().filter(|lock| !lock.sites.is_empty()) {
        write_sites(out, lock, several)?;
    }
    Ok(())
}

fn table(locks: &[Lock], several: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let header = ["lock", "acquired", "contended", "wait", "avg", "max", "hold", "avg", "max", "lost"];
    table.set_header(header.iter().enumerate().map(|(column, text)| aligned(column, (*text).to_string())));
    for lock in locks {
        let cells = [
            wrapped(&description(lock, several)),
            lock.acquisitions.to_string(),
            format!("{} ({})", lock.contended, percent(ratio(lock.contended, lock.acquisitions))),
            duration(lock.wait_ns.total),
            average(lock.wait_ns.total, lock.contended),
            duration(lock.wait_ns.max),
            duration(lock.hold_ns.total),
            average(lock.hold_ns.total, lock.acquisitions),
            duration(lock.hold_ns.max),
            percent(lock.share),
        ];
        table.add_row(cells.into_iter().enumerate().map(|(column, text)| aligned(column, text)));
    }
    for column in 0..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_padding((if column.index == 0 { 0 } else { 2 }, 0));
        }
    }
    table.trim_fmt()
}

fn aligned(column: usize, text: String) -> Cell {
    Cell::new(text).set_alignment(if column == 0 { CellAlignment::Left } else { CellAlignment::Right })
}

/// A lock's name in one line: the variable if it is one, else its address.
fn name(lock: &Lock, several: bool) -> String {
    let mut name = match (&lock.variable, lock.kind) {
        (Some(variable), _) => variable.clone(),
        (None, LockKind::Recycled | LockKind::Overflow) => lock.kind.to_string(),
        (None, _) => format!("{:#x}", lock.address),
    };
    if let Some(side) = side(lock.kind) {
        let _ = write!(name, ", {side}");
    }
    if several {
        let _ = write!(name, " [pid {}]", lock.pid);
    }
    name
}

/// A lock's name, address and origin, a line each.
fn description(lock: &Lock, several: bool) -> Vec<String> {
    let mut lines = vec![name(lock, several)];
    // Of mutexes it is not said: most locks are.
    let kind = match lock.kind {
        LockKind::Spinlock => Some("spinlock"),
        LockKind::RwReaders | LockKind::RwWriters => Some("readers-writer lock"),
        LockKind::SharedRwReaders | LockKind::SharedRwWriters => Some("shared readers-writer lock"),
        LockKind::Condition => Some("condition variable"),
        LockKind::Barrier => Some("barrier"),
        LockKind::Semaphore => Some("semaphore"),
        LockKind::Join => Some("join"),
        LockKind::SharedMutex => Some("shared mutex"),
        LockKind::RobustMutex => Some("robust mutex"),
        LockKind::PriorityMutex => Some("priority mutex"),
        LockKind::Futex => Some("futex"),
        LockKind::Mutex | LockKind::Recycled | LockKind::Overflow => None,
    };
    match (&lock.variable, kind) {
        (Some(_), Some(kind)) => lines.push(format!("  {:#x}, a {kind}", lock.address)),
        (Some(_), None) => lines.push(format!("  {:#x}", lock.address)),
        (None, Some(kind)) => lines.push(format!("  a {kind}")),
        (None, None) => {}
    }
    if !lock.created_at.is_empty() {
        lines.push(format!("  {}", lock.created_at));
    }
    lines
}

/// Breaks lines that are too wide, where possible after a blank, a slash or a comma.
fn wrapped(lines: &[String]) -> String {
    let mut broken: Vec<String> = Vec::new();
    for line in lines {
        let mut rest: Vec<char> = line.chars().collect();
        while rest.len() > NAME_WIDTH {
            let fits = &rest[..NAME_WIDTH];
            let at = fits
                .iter()
                .rposition(|c| matches!(c, ' ' | '/' | ',' | ':'))
                .filter(|&at| at > NAME_WIDTH / 3);
            let tail = rest.split_off(at.map_or(NAME_WIDTH, |at| at + 1));
            broken.push(rest.iter().collect());
            rest = "    ".chars().chain(tail).collect();
        }
        broken.push(rest.into_iter().collect());
    }
    broken.join("\n")
}

fn write_sites(out: &mut String, lock: &Lock, several: bool) -> std::fmt::Result {
    let waits = counted(lock.contended, "wait");
    writeln!(out, "\n{}: {} in {waits}", name(lock, several), duration(lock.wait_ns.total))?;
    let total: u64 = lock.sites.iter().map(|site| site.wait_ns).sum();
    for site in lock.sites.iter().take(SITES) {
        let share = percent(ratio(site.wait_ns, total));
        let waits = counted(site.contended, "wait");
        writeln!(out, "  {share:>6}  {} in {waits}, at", duration(site.wait_ns))?;
        let frames = &site.interesting;
        for frame in frames.iter().take(FRAMES) {
            writeln!(out, "          {}", site.stack[*frame])?;
        }
        if frames.len() > FRAMES {
            writeln!(out, "          and {} above", counted((frames.len() - FRAMES) as u64, "frame"))?;
        }
    }
    if lock.sites.len() > SITES {
        writeln!(out, "          and in {}", counted((lock.sites.len() - SITES) as u64, "more place"))?;
    }
    Ok(())
}

pub(super) fn counted(n: u64, what: &str) -> String {
    let ending = match (n, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{n} {what}{ending}")
}

/// The command as it could be typed: quoted where a shell would take it apart.
fn command_line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Three digits and a unit.
pub(super) fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        // Rounded to three digits, 999.6 us would be 1000 us: these limits are where the rounding changes the
        // unit.
        1_000..999_500 => (ns as f64 / 1e3, "us"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

fn average(total: u64, count: u64) -> String {
    total.checked_div(count).map_or_else(|| "-".to_string(), duration)
}

fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent {
        0.0 => "0 %".to_string(),
        p if p < 0.05 => "<0.1 %".to_string(),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::{NAME_WIDTH, command_line, counted, duration, percent, wrapped};

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        let expected = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_996, "10.0 us"),
            (99_960, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (75_000_000_000, "75.0 s"),
            (4_000_000_000_000, "4000 s"),
        ];
        for (ns, text) in expected {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn shares_that_are_small_are_not_nothing() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.0001), "<0.1 %");
        assert_eq!(percent(0.0005), "0.1 %");
        assert_eq!(percent(0.1234), "12.3 %");
    }

    #[test]
    fn numbers_agree_with_their_nouns() {
        assert_eq!(counted(1, "process"), "1 process");
        assert_eq!(counted(2, "process"), "2 processes");
        assert_eq!(counted(0, "thread"), "0 threads");
    }

    #[test]
    fn commands_can_be_typed_again() {
        let words = ["sh", "-c", "a; b", "", "it's"].map(str::to_string);
        assert_eq!(command_line(&words), r"sh -c 'a; b' '' 'it'\''s'");
    }

    #[test]
    fn long_names_are_broken_without_a_loss() {
        let long = "  std::map<int, std::string>::insert (/usr/include/c++/12/bits/stl_map.h:1234), via main \
            (a.cpp:1)";
        let text = wrapped(&[long.to_string()]);
        assert!(
            text.lines().count() > 1 && text.lines().all(|line| line.chars().count() <= NAME_WIDTH),
            "{text}"
        );
        assert_eq!(text.replace("\n    ", ""), long);
    }
}
