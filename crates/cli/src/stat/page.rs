//! The report as one HTML page that needs nothing else: no network, no fonts, no script. What is behind a
//! figure is in its tool tip, which the browser shows.

mod flame;
mod spread;
mod time;

use maud::{Markup, html};
use poundlock_bench::page::{STYLE, document};

use super::class::Class;
use super::diagnosis::Finding;
use super::report::{Report, ratio, side};
use super::text::{average, command_line, duration, percent, ran_on};
use super::threads::{self, Role};
use crate::output::counted;

const OURS: &str = include_str!("page.css");
/// The page may ask nobody for anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Rows of the table, and locks that are taken apart.
const ROWS: usize = 100;
const APART: usize = 12;
/// The page.
pub(super) fn html(report: &Report, diagnosis: &[Finding]) -> String {
    let command = command_line(&report.about.command);
    let lost = percent(ratio(report.wait_ns(), report.busy_ns));
    let locks: Vec<&Class> = report.locks().collect();
    let others: Vec<&Class> = report.others().filter(|class| class.figures.contended > 0).collect();
    let apart: Vec<&Class> =
        report.classes.iter().filter(|class| class.figures.wait_ns > 0).take(APART).collect();
    let times = report.sampled.as_ref().map(threads::lines).unwrap_or_default();
    let body = html! {
        header {
            h1 { "What " code { (command) } " waits for" }
            p.lead {
                "Waiting for locks took " (duration(report.wait_ns())) ": " (lost) " of the threads' time, "
                (duration(report.busy_ns)) " together."
            }
            dl.facts {
                @for line in ran_on(report) {
                    dt { "Locks measured" }
                    dd { (line.trim_start_matches("locks measured: ")) }
                }
                dt { "Run" }
                dd {
                    (duration(report.about.wall_ns)) " wall time, " (counted(report.threads, "thread")) ", "
                    (counted(report.processes.len() as u64, "process")) ", " (report.about.ending)
                }
            }
            @if report.inside.matters() {
                div.notice role="note" {
                    @for line in report.inside.write(&report.about.when()) { p { (line) } }
                }
            }
            @if !diagnosis.is_empty() {
                div.notice role="note" { ul { @for finding in diagnosis { li { (finding.text) } } } }
            }
        }
        main {
            section aria-labelledby="locks" {
                h2 id="locks" { "Locks" }
                @if locks.is_empty() {
                    p { "No lock that is counted was used." }
                } @else {
                    (table(report, &locks))
                }
            }
            @if !others.is_empty() {
                section aria-labelledby="others" { h2 id="others" { "Other waits" } (table(report, &others)) }
            }
            @if !apart.is_empty() {
                section aria-labelledby="time" {
                    h2 id="time" { "Who waited, and when" }
                    (time::picture(report))
                }
                section aria-labelledby="stacks" {
                    h2 id="stacks" { "Who waited, and for whom" }
                    p.soft {
                        "The bar in the middle is a lock; above it is who waited, from the line that waits \
                         outwards; below it is who made others wait, from the line that took the lock outwards. \
                         Widths are times."
                    }
                    @for class in &apart { (flame::picture(report, class)) }
                }
                section aria-labelledby="spreads" {
                    h2 id="spreads" { "How long waits and holds took" }
                    @for class in &apart { (spread::both(class)) }
                }
            }
            @if !report.roles.is_empty() {
                section aria-labelledby="threads" { h2 id="threads" { "Threads" } (roles(&report.roles)) }
            }
            @if let Some((first, rest)) = times.split_first() {
                section aria-labelledby="times" {
                    h2 id="times" { "Where the time of the threads went" }
                    p.soft { (first) }
                    pre { @for line in rest { (line) "\n" } }
                }
            }
        }
        footer { p { "Made by " code { "poundlock stat" } " " (env!("CARGO_PKG_VERSION")) "." } }
    };
    document(&format!("What {command} waits for"), POLICY, &[STYLE, OURS], &body)
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

fn table(report: &Report, classes: &[&Class]) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr {
                    th.n scope="col" { "lost" } th scope="col" { span hidden { "share" } }
                    th.n scope="col" { "wait" } th.n scope="col" { "waits" } th.n scope="col" { "average" }
                    th.n scope="col" { "longest" } th.n scope="col" { "acquired" } th.n scope="col" { "held" }
                    th scope="col" { "what" }
                } }
                tbody {
                    @for class in classes.iter().take(ROWS) {
                        @let figures = &class.figures;
                        @let share = report.share(figures);
                        tr {
                            td.n { (percent(share)) }
                            td {
                                svg.share viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
                                    rect width=(format!("{:.1}", (share * 100.0).min(100.0))) height="10" {}
                                }
                            }
                            td.n { (duration(figures.wait_ns)) }
                            td.n { (figures.contended) }
                            td.n { (average(figures.wait_ns, figures.contended)) }
                            td.n { (duration(figures.wait_max_ns)) }
                            td.n { (figures.acquisitions) }
                            td.n { (average(figures.hold_ns, figures.acquisitions)) }
                            td { (title(class)) br; small { (class.kind) @if !class.at.is_empty() { ", " (class.at) } } }
                        }
                    }
                }
            }
        }
        @if classes.len() > ROWS { p.soft { "and " (classes.len() - ROWS) " more" } }
    }
}

/// A share of a picture's width.
fn percent_of(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}

/// Where the time of threads went, by their names.
fn roles(roles: &[Role]) -> Markup {
    let share = |ns: u64, role: &Role| percent(ratio(ns, role.lived_ns));
    html! {
        p.soft {
            "By name, of all processes of a program. Shares are of the time that they were seen to live; waits \
             for locks are counted, each."
        }
        div.scroll {
            table {
                thead { tr {
                    th scope="col" { "threads" } th.n scope="col" { "lived" } th.n scope="col" { "running" }
                    th.n scope="col" { "ready" } th.n scope="col" { "for locks" } th.n scope="col" { "for conditions" }
                    th.n scope="col" { "in calls" } th.n scope="col" { "idle" } th.n scope="col" { "waits for locks" }
                    th.n scope="col" { "these took" } th.n scope="col" { "of one thread" }
                } }
                tbody {
                    @for role in roles {
                        tr {
                            td { (role.threads) " " (role.name) br; small { (role.program) } }
                            td.n { (duration(role.lived_ns)) }
                            td.n { (share(role.running_ns, role)) }
                            td.n { (role.ready_ns.map_or_else(|| "-".to_owned(), |ns| share(ns, role))) }
                            td.n { (share(role.locks_ns, role)) }
                            td.n { (share(role.conditions_ns, role)) }
                            td.n { (share(role.elsewhere_ns, role)) }
                            td.n { (share(role.idle_ns, role)) }
                            td.n { (role.lock_waits) }
                            td.n { (duration(role.lock_wait_ns)) }
                            td.n { (role.most.first().map_or_else(|| "-".to_owned(), |one| duration(one.lock_wait_ns))) }
                        }
                    }
                }
            }
        }
    }
}
