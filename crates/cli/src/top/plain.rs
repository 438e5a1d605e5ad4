//! A table an interval, for pipes and files.

use std::fmt::Write as _;

use super::table::{Row, ThreadRow, View};
use crate::output::counted;
use crate::stat::lost::cell;
use crate::stat::report::ratio;
use crate::stat::text::{average, percent};

/// What a printed table has.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Rows, at most.
    pub(super) rows: usize,
    /// Threads rather than locks.
    pub(super) threads: bool,
}

/// One interval.
pub(super) fn table(view: &View, wanted: Wanted) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", headline(view));
    view.stuck.iter().for_each(|line| _ = writeln!(text, "{line}"));
    if wanted.threads {
        let rows: Vec<&ThreadRow> = view.by_thread.iter().collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "{THREADS}");
        }
        for thread in rows.iter().take(wanted.rows) {
            let _ = writeln!(text, "{}", thread_line(thread, view));
        }
        text += &left_out(rows.len(), wanted.rows, "thread");
        return text;
    }
    let busy = |row: &&Row| row.wait_ns > 0 || row.waits > 0;
    let mut rows: Vec<&Row> = view.rows.iter().filter(busy).filter(|row| row.kind.is_acquired()).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.wait_ns, row.waits)));
    let mut others: Vec<&Row> = view.rows.iter().filter(busy).filter(|row| !row.kind.is_acquired()).collect();
    others.sort_by_key(|row| std::cmp::Reverse((row.wait_ns, row.waits)));
    if !rows.is_empty() {
        let _ = writeln!(text, "{LOCKS}  lock");
    }
    for row in rows.iter().take(wanted.rows) {
        let _ = writeln!(text, "{}", row_line(row, view));
    }
    text += &left_out(rows.len(), wanted.rows, "lock");
    if !others.is_empty() {
        let _ = writeln!(text, "{LOCKS}  other wait");
    }
    for row in others.iter().take(wanted.rows) {
        let _ = writeln!(text, "{}", row_line(row, view));
    }
    text += &left_out(others.len(), wanted.rows, "other wait");
    text
}

const LOCKS: &str = "   lost  waiting   waits/s   wait avg   held avg";
const THREADS: &str = "  locks   on CPU    ready   waits/s      tid  thread           doing";

fn row_line(row: &Row, view: &View) -> String {
    let [lost, waiting, waits, wait, held] = cells(row, view);
    let line = if row.line.is_empty() { String::new() } else { format!("; {}", row.line) };
    format!("{lost:>7}  {waiting:>7}  {waits:>8}  {wait:>9}  {held:>9}  {}{line}", row.name)
}

fn thread_line(thread: &ThreadRow, view: &View) -> String {
    let [lost, ran, ready, waits] = thread_cells(thread, view);
    let (tid, name, doing) = (thread.tid, &thread.name, &thread.doing);
    format!("{lost:>7}  {ran:>7}  {ready:>7}  {waits:>8}  {tid:>7}  {name:<15}  {doing}")
        .trim_end()
        .to_owned()
}

fn left_out(all: usize, shown: usize, what: &str) -> String {
    let more = all.saturating_sub(shown);
    if more == 0 {
        String::new()
    } else {
        format!("and {} (--top 0 shows them)\n", counted(more as u64, &format!("more {what}")))
    }
}

/// What is looked at, and how it fares.
pub(super) fn headline(view: &View) -> String {
    let names = match &view.processes[..] {
        [] => "no process".to_owned(),
        [(pid, name)] => format!("{name} ({pid})"),
        [(pid, name), rest @ ..] => format!("{name} ({pid}) and {} more", rest.len()),
    };
    let lost = percent(view.time.lost());
    format!(
        "{:.1} s  {names}: {}, lost {lost} of their time ({:.2} waiting on average)",
        view.since_ns as f64 / 1e9,
        counted(view.threads, "thread"),
        ratio(view.time.lost_ns, view.span_ns)
    )
}

/// What share of the threads' time was lost, threads that waited on average, waits a second, and how long waits
/// took, and holds that others waited for.
pub(super) fn cells(row: &Row, view: &View) -> [String; 5] {
    [
        cell(row.share),
        format!("{:.2}", ratio(row.wait_ns, view.span_ns)),
        a_second(row.waits, view.span_ns),
        average(row.wait_ns, row.waits),
        row.holds.map_or_else(|| "-".to_owned(), |(holds, ns)| average(ns, holds)),
    ]
}

/// Of the time since the last look: lost, on a CPU, ready for one; waits a second.
pub(super) fn thread_cells(thread: &ThreadRow, view: &View) -> [String; 4] {
    let share = |ns: u64| percent(ratio(ns, view.span_ns).min(1.0));
    let known = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), share);
    [
        share(thread.lost_ns),
        known(thread.ran_ns),
        known(thread.ready_ns),
        a_second(thread.waits, view.span_ns),
    ]
}

fn a_second(count: u64, span_ns: u64) -> String {
    let rate = ratio(count, span_ns) * 1e9;
    if rate >= 100.0 || rate == 0.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}
