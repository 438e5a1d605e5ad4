//! The report for a human reader.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use poundlock_names::LockName;
use poundlock_statfile::LockKind;

use super::Args;
use super::class::{Class, HolderFigures, SiteFigures};
use super::diagnosis::Finding;
use super::holders;
use super::inside::is_alarm;
use super::lost::cell;
use super::names::{FrameId, Names, StackId};
use super::report::{RanOn, Report, ratio, several_processes, side};
use super::sleeps::Row as SleepRow;
use super::threads;
use crate::output::{counted, quoted};

/// Lines that wrap are indented by so much.
const INDENT: usize = 4;
/// The narrowest that a report gets: narrower terminals wrap it.
const NARROWEST: usize = 60;
/// A name gets a line of its own where less than this is left beside the figures.
const NAME: usize = 24;
/// As many characters of the command are shown.
const COMMAND: usize = 400;
/// As many places and holders of a class are shown: further ones are in the JSON.
const PLACES: usize = 3;
/// As many rows of locks that nobody waited for, where there are few others.
const UNWAITED: usize = 3;
/// Classes below this share of the threads' time are not taken apart.
const SMALL: f64 = 0.005;

/// How to write.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) columns: usize,
    pub(super) colour: bool,
    /// Rows of the tables, and classes that are taken apart.
    pub(super) shown: usize,
    /// What happened in the slow paths of our locks, too.
    pub(super) events: bool,
    pub(super) length: Length,
}

/// How much of a report is written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Length {
    /// Findings and the table of locks.
    Short,
    /// As much as a screen has room for, with a line that names the rest.
    Screen,
    All,
}

/// Lines of a report at [`Length::Screen`].
const SCREEN: usize = 40;

impl Style {
    /// For standard error, by the options: who asks for more rows, or for more of each, wants to see them.
    pub(super) fn of(args: &Args) -> Style {
        let (columns, colour) = Style::of_standard_error();
        let shown = if args.top == 0 { usize::MAX } else { args.top };
        let length = match args.short {
            true => Length::Short,
            false if args.long || args.each || args.events || args.top != DEFAULT_SHOWN => Length::All,
            false => Length::Screen,
        };
        Style { columns, colour, shown, events: args.events, length }
    }

    /// The same for a file, which has room for all.
    pub(super) fn in_a_file(self) -> Style {
        let length = if self.length == Length::Short { Length::Short } else { Length::All };
        Style { columns: FILE_COLUMNS, colour: false, length, ..self }
    }

    /// The width of the terminal that standard error is, or what `COLUMNS` says, and colours if they are
    /// welcome there; of a file 110 columns without.
    fn of_standard_error() -> (usize, bool) {
        let said = |name| std::env::var_os(name).filter(|value: &std::ffi::OsString| !value.is_empty());
        let terminal =
            terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| usize::from(width.0));
        let told = || said("COLUMNS")?.to_str()?.parse().ok().filter(|&columns: &usize| columns > 0);
        let columns = terminal.filter(|&columns| columns > 0).or_else(told).unwrap_or(FILE_COLUMNS);
        let dumb = said("TERM").is_none_or(|term| term == "dumb");
        (columns, std::io::stderr().is_terminal() && !dumb && said("NO_COLOR").is_none())
    }
}

/// The width of a report in a file.
pub(super) const FILE_COLUMNS: usize = 110;

/// The report.
pub(super) fn text(report: &Report, diagnosis: &[Finding], style: Style) -> String {
    let style = Style { columns: style.columns.max(NARROWEST), ..style };
    let mut page = Page { text: String::new(), style, parts: Vec::new() };
    // Writing to a String cannot fail.
    let _ = page.report(report, diagnosis);
    page.fitted()
}

struct Page {
    text: String,
    style: Style,
    /// Where each part begins.
    parts: Vec<(Part, usize)>,
}

/// A part of a report, in the order in which they are wanted where there is little room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Title, share, findings and the table of locks: always there.
    Head,
    /// What was seen from outside beside the library, and its table of locks.
    Beside,
    Times,
    /// Those of the lock that was waited for longest,
    Places,
    Others,
    /// and of further ones.
    MorePlaces,
    Arrays,
    Events,
    Notes,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Head => "rows",
            Part::Beside => "what was seen from outside",
            Part::Times => "where the time of the threads went",
            Part::Places | Part::MorePlaces => "where threads waited and for whom",
            Part::Others => "other waits",
            Part::Arrays => "semaphore arrays",
            Part::Events => "events",
            Part::Notes => "notes",
        }
    }
}

impl Page {
    fn report(&mut self, report: &Report, diagnosis: &[Finding]) -> std::fmt::Result {
        let style = self.style;
        self.text.push('\n');
        if report.inside.matters() {
            for line in report.inside.write(&report.about.when()) {
                let line = if is_alarm(&line) { self.alarm(&line) } else { line };
                self.wrap("", &line);
            }
            self.text.push('\n');
        }
        let command: String = command_line(&report.about.command);
        let title = match command.char_indices().nth(COMMAND) {
            Some((end, _)) => format!("poundlock stat: {}...", &command[..end]),
            None => format!("poundlock stat: {command}"),
        };
        let title = self.strong(&title);
        writeln!(self.text, "{title}")?;
        for line in ran_on(report) {
            self.wrap("", &line);
        }
        let facts = format!(
            "{} wall time, {}, {}, {}",
            duration(report.about.wall_ns),
            counted(report.threads, "thread"),
            counted(report.processes.len() as u64, "process"),
            report.about.ending
        );
        self.wrap("", &facts);
        if let Some(busy) = &report.about.busy {
            self.wrap("", busy);
        }
        self.text.push('\n');
        for line in report.opening() {
            let line = self.strong(&line);
            self.wrap("", &line);
        }
        for finding in diagnosis {
            let line = format!("* {}", finding.text);
            self.wrap("", &line);
        }
        if let Some(line) = report.inside.in_short(&report.about.when()) {
            self.wrap("", &line);
        }
        if report.locks().next().is_some() {
            self.locks(report)?;
        }
        self.part(Part::Others);
        self.others(report)?;
        self.beside(report)?;
        self.part(Part::Times);
        self.times(report)?;
        self.sleeps(report);
        self.part(Part::Notes);
        if report.locks().next().is_none() && !report.sees_futexes() {
            self.text.push('\n');
            self.wrap(
                "",
                "never counted: locks that a language or a library makes of atomic instructions, or of futex \
                 calls that do not go through syscall() (Go's; Poundlock's own without the feature `stats`), \
                 and programs without our library",
            );
        }
        self.part(Part::Arrays);
        report.arrays.write(&mut self.text, style.shown)?;
        self.part(Part::Events);
        if style.events {
            report.events.write(&mut self.text)?;
        }
        self.part(Part::Notes);
        self.next_step(report)
    }

    /// What is written from here on belongs to this part.
    fn part(&mut self, part: Part) {
        self.parts.push((part, self.text.len()));
    }

    /// The parts that there is room for, in their order; and what is left out.
    fn fitted(self) -> String {
        let ends = self.parts.iter().skip(1).map(|(_, at)| *at).chain([self.text.len()]);
        let first = self.parts.first().map_or(self.text.len(), |(_, at)| *at);
        let mut parts = vec![(Part::Head, &self.text[..first])];
        parts.extend(self.parts.iter().zip(ends).map(|((part, from), to)| (*part, &self.text[*from..to])));
        let lines = |text: &str| text.lines().count();
        let room = match self.style.length {
            Length::All => return self.text,
            Length::Short => 0,
            Length::Screen if lines(&self.text) <= SCREEN => return self.text,
            Length::Screen => SCREEN - 1,
        };
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|&index| (parts[index].0, index));
        let mut kept = vec![false; parts.len()];
        let mut used = 0;
        for index in order {
            let (part, text) = parts[index];
            let fits = used + lines(text) <= room;
            kept[index] = part == Part::Head || fits;
            used += if kept[index] { lines(text) } else { 0 };
        }
        let mut text: String =
            parts.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(part, _)| part.1).collect();
        if self.style.length == Length::Short {
            return text;
        }
        let mut left: Vec<&str> = Vec::new();
        let of_parts = parts.iter().zip(&kept).filter(|((_, text), kept)| !**kept && !text.is_empty());
        for ((part, _), _) in of_parts {
            if !left.contains(&part.name()) {
                left.push(part.name());
            }
        }
        // A head that is longer than a screen is cut: of very narrow terminals, say.
        if lines(&text) > room {
            let cut = text.match_indices('\n').nth(room - 1).map_or(text.len(), |(at, _)| at + 1);
            text.truncate(cut);
            left.insert(0, Part::Head.name());
        }
        let more = lines(&self.text) - lines(&text);
        let plain = format!("{} left out (--long shows all)", counted(more as u64, "line"));
        let named = format!("{plain}: {}", left.join(", "));
        let last = if visible(&named) <= self.style.columns { named } else { plain };
        text + &last + "\n"
    }

    /// What futex calls show beside the figures of the library.
    fn beside(&mut self, report: &Report) -> std::fmt::Result {
        let Some(view) = &report.beside else { return Ok(()) };
        self.part(Part::Beside);
        self.text.push('\n');
        for line in ran_on(view) {
            self.wrap("", &line);
        }
        if view.locks().next().is_some() {
            self.locks(view)?;
        }
        self.part(Part::Others);
        self.others(view)
    }

    /// The table of locks, and what of it is taken apart.
    fn locks(&mut self, report: &Report) -> std::fmt::Result {
        let all: Vec<&Class> = report.locks().collect();
        let (rows, what): (Vec<&Class>, _) = match &report.each {
            Some(each) => (each.iter().filter(|class| class.kind.is_acquired()).collect(), "lock"),
            None => (all.clone(), "class"),
        };
        let total: usize = match &report.each {
            Some(_) => all.iter().map(|class| class.figures.locks.max(1) as usize).sum(),
            None => rows.len(),
        };
        // Of those that nobody waited for a few are enough.
        let waited = rows.iter().filter(|class| class.figures.contended > 0).count();
        let wanted = match self.style.shown {
            DEFAULT_SHOWN => DEFAULT_SHOWN.min(waited.max(UNWAITED)),
            shown => shown,
        };
        let shown = wanted.min(rows.len());
        let several = report.each.as_ref().is_some_and(|each| several_processes(each));
        let mut table: Vec<Row> = rows[..shown].iter().map(|class| row(report, class, several)).collect();
        self.text.push('\n');
        let mut headings = HEADINGS.to_vec();
        if report.about.futexes.is_some() {
            // What is not seen has no column.
            headings.retain(|heading| !UNSEEN.contains(heading));
            let unseen = |at: &usize| UNSEEN.contains(&HEADINGS[*at]);
            for row in &mut table {
                let cells = std::mem::take(&mut row.cells).into_iter().enumerate();
                row.cells = cells.filter(|(at, _)| !unseen(at)).map(|(_, cell)| cell).collect();
            }
        }
        self.table(&headings, &table)?;
        if total > shown {
            let listed: u64 = rows[..shown].iter().map(|class| class.figures.wait_ns).sum();
            let more = counted((total - shown) as u64, &format!("more {what}"));
            let waited = duration(report.wait_ns().saturating_sub(listed));
            let of = if report.each.is_some() { "" } else { " of locks" };
            let line = format!("and {more}{of}, waited for {waited} in all (--top 0 shows them)");
            self.wrap("", &line);
        }
        if let Some(line) = beyond(report) {
            self.wrap("", &line);
        }
        for class in rows[..shown].iter().filter(|class| !class.figures.sites.is_empty()) {
            if report.time.matters(class.figures.wait_ns, SMALL) || self.style.shown != DEFAULT_SHOWN {
                let is_first = self.parts.is_empty();
                self.part(if is_first { Part::Places } else { Part::MorePlaces });
                self.places(report, class, several);
            }
        }
        Ok(())
    }

    /// Who waited for the locks of a class, and for whom.
    fn places(&mut self, report: &Report, class: &Class, several: bool) {
        let figures = &class.figures;
        let waits = counted(figures.contended, "wait");
        let title = format!("{}: {} in {waits}", title(class, several), duration(figures.wait_ns));
        let title = self.strong(&title);
        self.text.push('\n');
        self.wrap("", &title);
        let sites = by_line(&report.names, figures.sites.iter().map(|(stack, site)| (*stack, *site)));
        let total: u64 = sites.iter().map(|(_, site)| site.wait_ns).sum();
        for (stack, site) in sites.iter().take(PLACES) {
            let line = format!(
                "{} in {}, at {}",
                duration(site.wait_ns),
                counted(site.contended, "wait"),
                chain(&report.names, *stack)
            );
            self.wrap(&lead(site.wait_ns, total), &line);
        }
        if sites.len() > PLACES {
            let more = counted((sites.len() - PLACES) as u64, "more place");
            self.wrap("         ", &format!("and in {more}"));
        }
        if let Some(chain) = holders::sentence(report, class) {
            self.wrap("  ", &chain);
        }
        let causes = report.causes(class);
        // Those that took it at one line are one, wherever they let go of it.
        let mut by_line: BTreeMap<Option<(&str, FrameId)>, HolderFigures> = BTreeMap::new();
        for &((acquired, released), holder) in &causes.holders {
            by_line.entry(report.names.line_of_holder(*acquired, *released)).or_default().add(holder);
        }
        let mut holders: Vec<_> = by_line.into_iter().collect();
        holders.sort_by_key(|(_, holder)| std::cmp::Reverse(holder.caused_ns));
        if holders.is_empty() && !class.kind.may_be_shared() {
            return;
        }
        let of_both = if causes.of_both { " (readers and writers)" } else { "" };
        if report.about.futexes.is_some() {
            return self.wakers(report, &holders, causes.wait_ns, of_both);
        }
        self.wrap("  ", &format!("made to wait by{of_both}"));
        for (line, holder) in holders.iter().take(PLACES) {
            let at = line.map(|(did, id)| format!("{did} at {}", report.names.text(id)));
            let at = at.unwrap_or_else(|| "took it at an unknown place".to_owned());
            let holds = match holder.holds {
                0 => "has not released it".to_owned(),
                n => format!("{} of {} on average", counted(n, "hold"), duration(holder.hold_ns / n)),
            };
            let line = format!("{}: holder {at}, {holds}", duration(holder.caused_ns));
            self.wrap(&lead(holder.caused_ns, causes.wait_ns), &line);
        }
        if causes.handover_ns > 0 {
            let who = match class.kind.may_be_shared() {
                true => "no thread of this process: another one had it, or it was on its way to the next",
                false => "nobody, on its way to the next",
            };
            let line = format!("{}: {who}", duration(causes.handover_ns));
            self.wrap(&lead(causes.handover_ns, causes.wait_ns), &line);
        }
    }

    /// Who woke the waiters: of a lock, whoever released it.
    fn wakers(
        &mut self,
        report: &Report,
        wakers: &[(Option<(&str, FrameId)>, HolderFigures)],
        wait_ns: u64,
        of_both: &str,
    ) {
        self.wrap("  ", &format!("woken by{of_both}"));
        for (line, waker) in wakers.iter().take(PLACES) {
            let at = line.map_or("an unknown place", |(_, id)| report.names.text(id));
            let line = format!("{}: {} at {at}", duration(waker.caused_ns), counted(waker.holds, "wake-up"));
            self.wrap(&lead(waker.caused_ns, wait_ns), &line);
        }
        let told: u64 = wakers.iter().map(|(_, waker)| waker.caused_ns).sum();
        let rest = wait_ns.saturating_sub(told);
        if rest > wait_ns / 100 {
            let line = format!(
                "{}: time limits, and waits whose wake-up was not seen or is to come",
                duration(rest)
            );
            self.wrap(&lead(rest, wait_ns), &line);
        }
    }

    /// What threads waited for that is no lock.
    fn others(&mut self, report: &Report) -> std::fmt::Result {
        // What has no address is summed up for its time alone.
        let is_summed =
            |class: &Class| report.about.futexes.is_some() && class.addresses.iter().all(|at| at.1 == 0);
        let is_row = |class: &&Class| class.figures.contended > 0 && !is_summed(class);
        let mut rows: Vec<&Class> = report.others().filter(is_row).collect();
        if rows.is_empty() {
            return Ok(());
        }
        // Those of threads without work come last.
        rows.sort_by_key(|class| class.figures.is_for_long());
        writeln!(self.text, "\nother waits:")?;
        let shown = self.style.shown.min(rows.len());
        let row = |class: &&Class| Row {
            cells: vec![
                duration(class.figures.wait_ns),
                class.figures.contended.to_string(),
                average(class.figures.wait_ns, class.figures.contended),
                duration(class.figures.wait_max_ns),
            ],
            name: title(class, false),
            notes: [details(&report.names, class), waits_in(report, class)]
                .iter()
                .filter(|part| !part.is_empty())
                .cloned()
                .collect::<Vec<_>>()
                .join("; "),
            alarm: false,
        };
        let table: Vec<Row> = rows[..shown].iter().map(row).collect();
        self.table(&["wait", "waits", "wait avg", "wait max", "what"], &table)?;
        if rows.len() > shown {
            let more = counted((rows.len() - shown) as u64, "more");
            writeln!(self.text, "and {} (--top 0 shows them)", more.trim_end_matches('s'))?;
        }
        Ok(())
    }

    /// Where threads slept that no other table has: those that had something to do first.
    fn sleeps(&mut self, report: &Report) {
        let Some(sampled) = &report.sampled else { return };
        let (is_seen, lived) = (report.about.futexes.is_some(), sampled.total.lived_ns);
        let mut rows: Vec<&SleepRow> = report.sleeps.iter().filter(|row| !row.is_counted(is_seen)).collect();
        rows.retain(|row| self.style.shown != DEFAULT_SHOWN || ratio(row.sum.ns, lived) >= SMALL);
        rows.sort_by_key(|row| row.of.purpose);
        if rows.is_empty() {
            return;
        }
        self.text.push_str("\nwhere threads slept, by samples of their stacks:\n");
        let shown = self.style.shown.min(rows.len());
        for row in &rows[..shown] {
            let line =
                format!("{:>9}  {} ({})", duration(row.sum.ns), row.place(&report.names), row.remark());
            self.wrap_at(20, &lead(row.sum.ns, lived), &line);
        }
        if rows.len() > shown {
            self.wrap(
                "",
                &format!("and {} (--top 0 shows them)", counted((rows.len() - shown) as u64, "more row")),
            );
        }
    }

    /// Where the time of the threads went.
    fn times(&mut self, report: &Report) -> std::fmt::Result {
        let is_seen = report.sees_futexes();
        let lines =
            report.sampled.as_ref().map(|sampled| threads::lines(sampled, is_seen)).unwrap_or_default();
        if !lines.is_empty() {
            self.text.push('\n');
        }
        for line in lines {
            self.wrap("", &line);
        }
        Ok(())
    }

    /// What to do next.
    fn next_step(&mut self, report: &Report) -> std::fmt::Result {
        let without = report.names.modules_without_lines();
        let programs: Vec<&str> = without.iter().copied().filter(|name| !name.contains(".so")).collect();
        if !programs.is_empty() {
            let line = format!(
                "no lines are known of {}: compile with -g, or install the package of debug symbols",
                programs.join(", ")
            );
            self.text.push('\n');
            self.wrap("", &line);
        }
        Ok(())
    }

    /// Figures in columns, the name behind them; below them where little room is left.
    fn table(&mut self, headings: &[&str], rows: &[Row]) -> std::fmt::Result {
        let count = headings.len() - 1;
        let mut widths: Vec<usize> = headings[..count].iter().map(|heading| heading.len()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.len());
            }
        }
        // The last columns are the least wanted.
        let mut kept = count;
        let taken = |kept: usize| widths[..kept].iter().map(|width| width + 2).sum::<usize>();
        while kept > 4 && taken(kept) + NAME > self.style.columns {
            kept -= 1;
        }
        let before = taken(kept);
        let beside = before + NAME <= self.style.columns;
        let line = |cells: &[&str]| {
            let padded: Vec<String> =
                cells.iter().zip(&widths[..kept]).map(|(cell, width)| format!("{cell:>width$}")).collect();
            padded.join("  ")
        };
        let heading = line(&headings[..kept]);
        let heading = if beside { format!("{heading}  {}", headings[count]) } else { heading };
        writeln!(self.text, "{heading}")?;
        for row in rows {
            let cells: Vec<&str> = row.cells.iter().map(String::as_str).collect();
            let figures = line(&cells[..kept]);
            let figures = if row.alarm { self.alarm(&figures) } else { figures };
            let name = self.strong(&row.name);
            let notes = if row.notes.is_empty() { String::new() } else { format!("  {}", row.notes) };
            if beside {
                self.wrap_at(before, &format!("{figures}  "), &format!("{name}{notes}"));
            } else {
                writeln!(self.text, "{figures}")?;
                self.wrap_at(INDENT, "    ", &format!("{name}{notes}"));
            }
        }
        Ok(())
    }

    fn strong(&self, text: &str) -> String {
        self.marked(text, "1")
    }

    fn alarm(&self, text: &str) -> String {
        self.marked(text, "31")
    }

    fn marked(&self, text: &str, how: &str) -> String {
        if self.style.colour { format!("\x1b[{how}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Writes a text that begins behind `lead`, and whose further lines begin a little further than the lead.
    fn wrap(&mut self, lead: &str, text: &str) {
        let indent = if lead.is_empty() { INDENT } else { visible(lead) + 2 };
        self.wrap_at(indent, lead, text);
    }

    /// The same, with further lines at a column.
    fn wrap_at(&mut self, indent: usize, lead: &str, text: &str) {
        let mut line = lead.to_owned();
        let mut used = visible(lead);
        let mut fresh = true;
        for word in text.split(' ') {
            let mut word = word.to_owned();
            let blank = usize::from(!fresh);
            if used + blank + visible(&word) > self.style.columns && !fresh {
                self.text += line.trim_end();
                self.text.push('\n');
                line = " ".repeat(indent);
                used = indent;
                fresh = true;
            }
            if !fresh {
                line.push(' ');
                used += 1;
            }
            // One that fits no line is broken behind a slash, a comma or a colon, if there is one far enough
            // on.
            while used + visible(&word) > self.style.columns && !word.contains('\x1b') {
                let room = self.style.columns.saturating_sub(used).max(8);
                let fits: Vec<char> = word.chars().take(room).collect();
                if fits.len() == word.chars().count() {
                    break;
                }
                let at = fits.iter().rposition(|c| matches!(c, '/' | ',' | ':')).filter(|&at| at > room / 3);
                let at = at.map_or(room, |at| at + 1);
                line.extend(word.chars().take(at));
                self.text += line.trim_end();
                self.text.push('\n');
                line = " ".repeat(indent);
                used = indent;
                word = word.chars().skip(at).collect();
            }
            used += visible(&word);
            line += &word;
            fresh = false;
        }
        self.text += line.trim_end();
        self.text.push('\n');
    }
}

/// A share before a line.
fn lead(part: u64, of: u64) -> String {
    format!("{:>7}  ", percent(ratio(part, of)))
}

/// Columns that a text takes: without what sets colours.
fn visible(text: &str) -> usize {
    let mut columns = 0;
    let mut escaped = false;
    for c in text.chars() {
        match (escaped, c) {
            (false, '\x1b') => escaped = true,
            (false, _) => columns += 1,
            (true, 'm') => escaped = false,
            (true, _) => {}
        }
    }
    columns
}

/// Classes shown unless the user says otherwise.
pub(crate) const DEFAULT_SHOWN: usize = 10;

const HEADINGS: [&str; 8] =
    ["lost", "wait", "waits", "held avg", "wait avg", "wait max", "acquired", "locks"];

/// Those of what futex calls do not tell.
const UNSEEN: [&str; 2] = ["held avg", "acquired"];

/// A row of a table.
struct Row {
    cells: Vec<String>,
    name: String,
    notes: String,
    alarm: bool,
}

fn row(report: &Report, class: &Class, several: bool) -> Row {
    let figures = &class.figures;
    let share = report.share(class);
    Row {
        cells: vec![
            cell(share),
            duration(figures.wait_ns),
            figures.contended.to_string(),
            average(figures.hold_ns, figures.acquisitions),
            average(figures.wait_ns, figures.contended),
            duration(figures.wait_max_ns),
            figures.acquisitions.to_string(),
        ],
        name: title(class, several),
        notes: details(&report.names, class),
        alarm: share.is_some_and(|share| share >= 0.1),
    }
}

/// What a class is called.
pub(crate) fn title(class: &Class, several: bool) -> String {
    let mut name = class.name.clone();
    let figures = &class.figures;
    if figures.locks > 1 {
        let of = if class.origin == "initialised" { "made in " } else { "" };
        name = format!("{} {of}{name}", counted(figures.locks, noun(class.kind)));
    }
    if let Some(side) = side(class.kind) {
        let _ = write!(name, ", {side}");
    }
    if several && class.processes.len() == 1 {
        let _ = write!(name, " [pid {}]", class.processes.first().copied().unwrap_or_default());
    }
    name
}

/// What more there is to say of it: its kind, its line, how uneven its locks are.
fn details(names: &Names, class: &Class) -> String {
    let figures = &class.figures;
    let mut parts = Vec::new();
    if !class.at.is_empty() {
        parts.push(class.at.clone());
    }
    // Of mutexes it is not said: most locks are. Several are called so already.
    let counted_as = figures.locks > 1;
    let is_said = counted_as || class.kind == LockKind::Join;
    if !(is_said || matches!(class.kind, LockKind::Mutex | LockKind::Recycled | LockKind::Overflow)) {
        parts.push(format!("a {}", noun(class.kind)));
    }
    if let Some(call) = signals_in(names, class) {
        parts.push(format!("inside {call}, until threads woken before have left"));
    }
    if figures.waited_locks > 1 {
        let top = percent(ratio(figures.top_wait_ns, figures.wait_ns));
        parts.push(format!("{top} of the wait is for one of {} waited for", figures.waited_locks));
    } else if figures.locks > 1 && figures.waited_locks == 1 {
        parts.push("all of the wait is for one".to_owned());
    }
    if figures.in_vain > 0 {
        // A wait for a lock goes on after a wake-up in vain; for a condition it is another one.
        let all = figures.contended + if class.kind.is_acquired() { figures.in_vain } else { 0 };
        parts.push(format!("woken in vain {} of {all} times", figures.in_vain));
    }
    if figures.timeouts > 0 {
        parts.push(format!("{} timed out", figures.timeouts));
    }
    parts.join("; ")
}

/// The call that signals or destroys a condition variable in which threads wait for this futex, if they do.
fn signals_in(names: &Names, class: &Class) -> Option<&'static str> {
    let (stack, _) = class.figures.longest_site().filter(|_| class.kind == LockKind::Futex)?;
    signalling(names.frames(stack).iter().map(|&id| &*names.frame_of(id).function))
}

/// The call that signals or destroys a condition variable among the innermost functions of a stack, some of
/// which may be inlined into it.
fn signalling<'f>(mut functions: impl Iterator<Item = &'f str>) -> Option<&'static str> {
    const INNERMOST: usize = 8;
    let calls = ["pthread_cond_signal", "pthread_cond_broadcast", "pthread_cond_destroy"];
    let of = |function: &str| {
        let name = function.trim_start_matches('_');
        calls.into_iter().find(|&call| name.strip_prefix(call).is_some_and(|end| !end.starts_with('_')))
    };
    functions.by_ref().take(INNERMOST).find_map(of)
}

/// Where threads wait longest for what is no lock, and how they get there.
fn waits_in(report: &Report, class: &Class) -> String {
    match class.figures.longest_site() {
        Some((stack, _)) if is_worth_a_place(report, class) => {
            format!("waiting in {}", chain(&report.names, stack))
        }
        _ => String::new(),
    }
}

/// Whether a wait for what is no lock takes enough of the threads' time for a look at its place.
fn is_worth_a_place(report: &Report, class: &Class) -> bool {
    report.time.matters(class.figures.wait_ns, SMALL) && !class.figures.is_for_long()
}

/// What the row is for which the files of figures had no room.
pub(super) fn beyond(report: &Report) -> Option<String> {
    let name = report.locks().find(|class| class.kind == LockKind::Overflow).map(|class| &class.name)?;
    let locks = counted(report.dropped_locks, "lock");
    let waits = counted(report.dropped_waits, "wait");
    Some(format!(
        "{name}: one row for all that found no room in the files of figures: {locks}, and {waits} of which the lock \
         and the place are not known"
    ))
}

/// What one of a kind is called.
pub(crate) fn noun(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Spinlock => "spinlock",
        LockKind::RwReaders | LockKind::RwWriters => "readers-writer lock",
        LockKind::SharedRwReaders | LockKind::SharedRwWriters => "process-shared readers-writer lock",
        LockKind::Condition => "condition variable",
        LockKind::Barrier => "barrier",
        LockKind::Semaphore => "semaphore",
        LockKind::Join => "join",
        LockKind::SharedMutex => "process-shared mutex",
        LockKind::RobustMutex => "robust mutex",
        LockKind::PriorityMutex => "priority mutex",
        LockKind::Futex => "futex",
        LockKind::Array => "semaphore of an array",
        LockKind::Mutex | LockKind::Recycled | LockKind::Overflow => "lock",
    }
}

/// Sites whose lines to look at are the same as one, with the stack of the longest; most waiting first.
pub(crate) fn by_line(
    names: &Names,
    sites: impl Iterator<Item = (StackId, SiteFigures)>,
) -> Vec<(StackId, SiteFigures)> {
    let mut merged: BTreeMap<String, (StackId, u64, SiteFigures)> = BTreeMap::new();
    for (stack, site) in sites {
        let (_, longest, sum) =
            merged.entry(chain(names, stack)).or_insert((stack, site.wait_ns, SiteFigures::default()));
        *longest = (*longest).max(site.wait_ns);
        sum.add(&site);
    }
    let mut all: Vec<_> = merged.into_values().map(|(stack, _, site)| (stack, site)).collect();
    all.sort_by_key(|(_, site)| std::cmp::Reverse((site.wait_ns, site.contended)));
    all
}

/// The line to look at of a stack, and the functions that led there.
pub(crate) fn chain(names: &Names, stack: StackId) -> String {
    path(names, stack, CALLERS)
}

/// The same with as many functions at most.
pub(super) fn path(names: &Names, stack: StackId, callers: usize) -> String {
    let frames = names.interesting(stack);
    let Some(line) = names.line_of(stack) else { return "an unknown place".to_owned() };
    let at = frames.iter().position(|&id| id == line).unwrap_or(0);
    let mut text = names.text(line).to_owned();
    // Of functions without names those that called them tell more.
    let outer = frames[at + 1..].iter().map(|&id| names.frame_of(id).name.as_str());
    let mut outer: Vec<&str> = outer.map(|name| if name.is_empty() { "?" } else { name }).collect();
    outer.dedup_by(|next, before| *next == "?" && *before == "?");
    let named = outer.iter().enumerate().filter(|(_, name)| **name != "?").map(|(at, _)| at + 1);
    outer.truncate(named.take(callers).last().unwrap_or(0));
    for name in outer {
        let _ = write!(text, " < {name}");
    }
    text
}

/// Functions that are named behind a line.
const CALLERS: usize = 3;

/// Whose locks were measured, of each kind; by program where they ran on different ones.
pub(super) fn ran_on(report: &Report) -> Vec<String> {
    if let Some(events) = &report.about.futexes {
        return super::attached::remarks(events, report.about.way.as_deref());
    }
    let several = report.ran_on.len() > 1;
    let own = LockName::Glibc.name();
    let one = |on: &RanOn| {
        let kinds = [("mutex", on.mutex), ("spinlock", on.spinlock), ("rwlock", on.rwlock)];
        let its = kinds.iter().filter(|(_, name)| *name == own).count();
        let said = kinds.map(|(kind, name)| match (its, name == own) {
            (1..3, true) => format!("{kind} {name} (its own)"),
            _ => format!("{kind} {name}"),
        });
        let mut text = format!("locks measured: {}", said.join(", "));
        match its {
            3 => text += " (the program's own)",
            0 => text += " (Poundlock's, in place of the program's own)",
            _ => {}
        }
        if several {
            let programs: Vec<&str> = on.programs.iter().map(String::as_str).collect();
            let _ = write!(text, ": {}", programs.join(", "));
        }
        text
    };
    report.ran_on.iter().map(one).collect()
}

/// The command as it could be typed: quoted where a shell would take it apart.
pub(super) fn command_line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Three digits and a unit.
pub(crate) fn duration(ns: u64) -> String {
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

pub(crate) fn average(total: u64, count: u64) -> String {
    total.checked_div(count).map_or_else(|| "-".to_string(), duration)
}

pub(crate) fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent {
        0.0 => "0 %".to_string(),
        p if p < 0.05 => "<0.1 %".to_string(),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Length, Page, Part, Style, command_line, duration, percent, signalling, visible};

    /// A page whose parts have so many lines.
    fn page(length: Length, columns: usize, parts: &[(Part, usize)]) -> String {
        let style = Style { columns, colour: false, shown: 10, events: false, length };
        let mut page = Page { text: String::new(), style, parts: Vec::new() };
        for (part, lines) in parts {
            if *part != Part::Head {
                page.part(*part);
            }
            page.text += &format!("{}\n", part.name()).repeat(*lines);
        }
        page.fitted()
    }

    #[test]
    fn a_report_fits_a_screen_and_says_what_it_leaves_out() {
        let parts = [
            (Part::Head, 15),
            (Part::Places, 8),
            (Part::MorePlaces, 8),
            (Part::Others, 8),
            (Part::Times, 7),
            (Part::Notes, 2),
        ];
        let screen = page(Length::Screen, 110, &parts);
        assert_eq!(screen.lines().count(), 39, "{screen}");
        assert_eq!(
            screen.lines().last(),
            Some("10 lines left out (--long shows all): where threads waited and for whom, notes")
        );
        // In their order: what threads waited for stands before where their time went.
        let at = |text: &str| screen.lines().position(|line| line == text);
        assert!(at("other waits") < at("where the time of the threads went"), "{screen}");
        assert!(page(Length::Screen, 60, &parts).ends_with("\n10 lines left out (--long shows all)\n"));
        assert_eq!(page(Length::All, 110, &parts).lines().count(), 48);
        assert_eq!(page(Length::Short, 110, &parts).lines().count(), 15);
        // One that fits is whole; a head that does not is cut.
        assert!(!page(Length::Screen, 110, &parts[..4]).contains("left out"));
        let long = page(Length::Screen, 110, &[(Part::Head, 60), (Part::Times, 3)]);
        assert_eq!(long.lines().count(), 40);
        assert!(
            long.ends_with(
                "24 lines left out (--long shows all): rows, where the time of the threads went\n"
            )
        );
    }

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
    fn a_call_that_signals_is_known_whatever_is_inlined_into_it() {
        let with_lines = [
            "futex_wait",
            "futex_wait_simple",
            "__condvar_quiesce_and_switch_g1",
            "___pthread_cond_broadcast",
            "shop::Queue<int>::put",
        ];
        assert_eq!(signalling(with_lines.into_iter()), Some("pthread_cond_broadcast"));
        let exported = ["pthread_cond_signal@@GLIBC_2.3.2", "notify"];
        assert_eq!(signalling(exported.into_iter()), Some("pthread_cond_signal"));
        assert_eq!(signalling(["", "wait", "pthread_cond_signal_all"].into_iter()), None);
    }

    #[test]
    fn commands_can_be_typed_again() {
        let words = ["sh", "-c", "a; b", "", "it's"].map(str::to_string);
        assert_eq!(command_line(&words), r"sh -c 'a; b' '' 'it'\''s'");
    }

    #[test]
    fn what_is_too_wide_goes_on_in_the_next_line_and_nothing_is_lost() {
        let long = "  3.0 %  std::map<int, std::string>::insert (/usr/include/c++/12/bits/stl_map.h:1234), via \
            main (a.cpp:1) /a/very/long/path/of/a/file/that/has/no/blank/in/it/at/all/and/goes/on/and/on.cpp";
        for columns in [60, 80, 110] {
            let style = Style { columns, colour: true, shown: 10, events: false, length: Length::All };
            let mut page = Page { text: String::new(), style, parts: Vec::new() };
            let strong = page.strong("report.lock");
            page.wrap("  ", &format!("{strong} {long}"));
            assert!(page.text.lines().all(|line| visible(line) <= columns), "{}", page.text);
            let plain = |text: &str| text.replace(char::is_whitespace, "");
            assert_eq!(plain(&page.text), plain(&format!("{strong}{long}")));
        }
    }
}
