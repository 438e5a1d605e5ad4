//! The report as one HTML page that needs nothing else: no network, no fonts, no script. What is behind a
//! figure is in its tool tip, which the browser shows.

mod flame;
mod spread;
mod time;

use maud::{Markup, html};
use poundlock_measure::page::{STYLE, document};

use super::class::Class;
use super::diagnosis::Finding;
use super::report::{Report, ratio, side};
use super::text::{average, beyond, command_line, duration, percent, ran_on};
use super::threads::{self, Role};
use crate::output::counted;

const OURS: &str = include_str!("page.css");
/// The page may ask nobody for anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Rows of the table, and locks that are taken apart.
const ROWS: usize = 100;
const APART: usize = 12;
/// Classes below this share of the threads' time are not.
const SMALL: f64 = 0.001;

/// The page.
pub(super) fn html(report: &Report, diagnosis: &[Finding]) -> String {
    let command = command_line(&report.about.command);
    let is_seen = report.about.futexes.is_some();
    let times = report.sampled.as_ref().map(|sampled| threads::lines(sampled, report.sees_futexes()));
    let times = times.unwrap_or_default();
    let body = html! {
        header {
            h1 { "What " code { (command) } " waits for" }
            @for line in report.opening() { p.lead { (line) } }
            dl.facts {
                @for line in ran_on(report) {
                    @let (what, rest) = line.split_once(": ").unwrap_or(("", &line));
                    dt { (what[..1.min(what.len())].to_uppercase()) (what.get(1..).unwrap_or_default()) }
                    dd { (rest) }
                }
                dt { "Run" }
                dd {
                    (duration(report.about.wall_ns)) " wall time, " (counted(report.threads, "thread")) ", "
                    (counted(report.processes.len() as u64, "process")) ", " (report.about.ending)
                }
            }
            @if let Some(busy) = &report.about.busy {
                div.notice role="note" { p { (busy) } }
            }
            @if report.inside.matters() {
                div.notice role="note" {
                    @for line in report.inside.write(&report.about.when()) { p { (line) } }
                }
            }
            @if !diagnosis.is_empty() {
                div.notice role="note" { ul { @for finding in diagnosis { li { (finding.text) } } } }
            }
            @if let Some(line) = report.inside.in_short(&report.about.when()) { p { (line) } }
        }
        main {
            (waits(report))
            @if let Some(view) = &report.beside { (waits(view)) }
            @if report.sleeps.iter().any(|row| !row.is_counted(is_seen)) {
                section aria-labelledby="sleeps" {
                    h2 id="sleeps" { "Where threads slept" }
                    p.soft {
                        "By samples of their stacks, from the line that sleeps outwards. What the tables above count \
                         is left out"
                        @if report.beside.is_some() { ", but for what is seen from outside" }
                        ". Widths are times."
                    }
                    (flame::sleeps(report, false))
                    (flame::sleeps(report, true))
                }
            }
            @if !report.roles.is_empty() {
                section aria-labelledby="threads" { h2 id="threads" { "Threads" } (roles(&report.roles)) }
            }
            @if let Some((first, rest)) = times.split_first() {
                section aria-labelledby="times" {
                    h2 id="times" { "Where the time of the threads went" }
                    p.soft { (first.trim_start_matches(threads::HEADING).trim_end_matches(':')) }
                    pre { @for line in rest { (line) "\n" } }
                }
            }
        }
        footer { p { "Made by " code { "poundlock stat" } " " (env!("CARGO_PKG_VERSION")) "." } }
    };
    document(&format!("What {command} waits for"), POLICY, &[STYLE, OURS], &body)
}

/// The tables of what threads waited for, and the pictures of what matters of it. Those of the futex view
/// beside the library say in their headings that they are its.
fn waits(report: &Report) -> Markup {
    let locks: Vec<&Class> = report.locks().collect();
    let others: Vec<&Class> = report.others().filter(|class| class.figures.contended > 0).collect();
    let apart: Vec<&Class> = report
        .classes
        .iter()
        .filter(|class| report.time.matters(class.figures.wait_ns, SMALL))
        .take(APART)
        .collect();
    let beside = report.about.beside_library;
    let (before, behind) = if beside { ("beside-", ", seen from outside") } else { ("", "") };
    let id = |name: &str| format!("{before}{name}");
    let is_seen = report.about.futexes.is_some();
    html! {
        @if beside { @for line in ran_on(report) { p.soft { (line) } } }
        @if !locks.is_empty() {
            section aria-labelledby=(id("locks")) {
                h2 id=(id("locks")) { "Locks" (behind) }
                (classes(report, &locks, true))
            }
        }
        @if !others.is_empty() {
            section aria-labelledby=(id("others")) {
                h2 id=(id("others")) { "Other waits" (behind) }
                (classes(report, &others, false))
            }
        }
        @if report.sampled.is_some() && !is_seen && !locks.is_empty() {
            section aria-labelledby="time" {
                h2 id="time" { "Who waited, and when" }
                (time::picture(report))
            }
        }
        @if !apart.is_empty() {
            section aria-labelledby=(id("stacks")) {
                h2 id=(id("stacks")) { "Who waited, and for whom" (behind) }
                p.soft {
                    "The bar in the middle is a lock; above it is who waited, from the line that waits outwards; "
                    @if is_seen {
                        "below it is who woke the waiters."
                    } @else {
                        "below it is who made others wait, from the line that took the lock outwards (of a \
                         readers-writer lock for readers and writers, whoever waited)."
                    }
                    " Widths are times."
                }
                @for class in &apart { (flame::picture(report, class)) }
            }
            section aria-labelledby=(id("spreads")) {
                h2 id=(id("spreads")) { "How long waits and holds took" (behind) }
                @for class in &apart { (spread::both(class)) }
            }
        }
    }
}

fn title(class: &Class) -> String {
    let mut name = class.name.clone();
    if class.figures.locks > 1 {
        name = format!("{} {name}", class.figures.locks);
    }
    if let Some(side) = side(class.kind) {
        name += ", ";
        name += side;
    }
    name
}

/// A table whose rows become blocks where the page is narrow: their cells have their headings with them.
fn table(headings: &[&str], rows: &[(Markup, Vec<Markup>)]) -> Markup {
    html! {
        div.scroll {
            table.rows {
                thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                tbody {
                    @for (name, cells) in rows {
                        tr {
                            th scope="row" { (name) }
                            @for (heading, cell) in headings[1..].iter().zip(cells) {
                                td data-label=(heading) { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Classes of locks; of what is not acquired there is less to say.
fn classes(report: &Report, classes: &[&Class], acquired: bool) -> Markup {
    // Time can be lost for locks alone.
    let mut headings = vec!["what", "lost", "wait", "waits", "wait avg", "wait max"];
    headings.retain(|heading| acquired || *heading != "lost");
    let counted = acquired && report.about.futexes.is_none();
    if counted {
        headings.extend(["acquired", "held avg"]);
    }
    let row = |class: &&Class| {
        let figures = &class.figures;
        let share = report.share(class);
        let name = html! {
            span title=(class.whole.name) { (title(class)) } br; small title=(class.whole.at) { (class.kind) @if !class.at.is_empty() { ", " (class.at) } }
        };
        let lost = share.map(|share| {
            html! {
                (percent(share))
                svg.share width="100%" height="5" aria-hidden="true" {
                    rect width=(percent_of(share)) height="5" {}
                }
            }
        });
        let mut cells: Vec<Markup> = lost.into_iter().collect();
        cells.extend([
            html! { (duration(figures.wait_ns)) },
            html! { (figures.contended) },
            html! { (average(figures.wait_ns, figures.contended)) },
            html! { (duration(figures.wait_max_ns)) },
        ]);
        if counted {
            cells.push(html! { (figures.acquisitions) });
            cells.push(html! { (average(figures.hold_ns, figures.acquisitions)) });
        }
        (name, cells)
    };
    let rows: Vec<_> = classes.iter().take(ROWS).map(row).collect();
    html! {
        (table(&headings, &rows))
        @if classes.len() > ROWS { p.soft { "and " (classes.len() - ROWS) " more" } }
        @if acquired && let Some(line) = beyond(report) { p.soft { (line) } }
    }
}

/// Where the time of threads went, by their names.
fn roles(roles: &[Role]) -> Markup {
    let headings = [
        "threads",
        "lived",
        "running",
        "ready",
        "for locks",
        "for conditions",
        "in calls",
        "idle",
        "waits for locks",
        "these took",
        "of one thread",
    ];
    let row = |role: &Role| {
        let share =
            |ns: u64| if role.lived_ns == 0 { "-".to_owned() } else { percent(ratio(ns, role.lived_ns)) };
        let name = if role.name.is_empty() { "not looked at" } else { &role.name };
        let name = html! {
            @if role.threads > 0 { (role.threads) " " }
            (name) br; small { (role.program) }
        };
        let cells = [
            duration(role.lived_ns),
            share(role.running_ns),
            role.ready_ns.map_or_else(|| "-".to_owned(), share),
            share(role.locks_ns),
            share(role.conditions_ns),
            share(role.elsewhere_ns),
            share(role.idle_ns),
            role.lock_waits.to_string(),
            duration(role.lock_wait_ns),
            role.most.first().map_or_else(|| "-".to_owned(), |one| duration(one.lock_wait_ns)),
        ];
        (name, cells.map(|cell| html! { (cell) }).into())
    };
    let rows: Vec<_> = roles.iter().map(row).collect();
    html! {
        p.soft {
            "By name, of all processes of a program. Shares are of the time that the threads were seen to \
             live, and have an error; waits for locks are counted and timed each: of all threads of the name, \
             and of the one that waited longest."
        }
        (table(&headings, &rows))
    }
}

/// A share of a picture's width.
fn percent_of(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}
