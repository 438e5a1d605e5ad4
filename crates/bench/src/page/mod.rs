//! The results of a run of the [grid](crate::grid) as one HTML page that needs nothing else: no network, no
//! fonts, no library. It reads in both colour schemes, on a telephone, and by ear; behind every plot lies its
//! table.
//!
//! | part | shows |
//! | --- | --- |
//! | `summary` | targets, the heat map against the best of the others, and each of them |
//! | `curves` | throughput, waits, CPU time and fairness over numbers of threads |
//! | `scenarios` | the other kinds of work, as bars |
//! | `floors` | what no lock can undercut, and what the driver adds |
//! | `people` | who took part, and who could not |
//!
//! Contenders are chosen, and views switched, by the style sheet alone (`:has`). The script adds what the
//! pointer is at, and no more. Every word goes through `maud`, which escapes it: names and messages come from
//! files.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::grid::compare::{Figure, Results};
use crate::grid::report;
use crate::report::Limit;
use crate::stats::Summary;

mod curves;
mod floors;
mod look;
mod people;
mod plot;
mod quantity;
mod scenarios;
mod summary;
#[cfg(test)]
mod tests;

use people::People;
use quantity::Quantity;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// The page may ask nobody for anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Names in a list of what is missing.
const MISSING_NAMES: usize = 12;

/// The page.
pub fn html(results: &Results) -> String {
    let people = People::of(results);
    let parts = [
        ("targets", "Targets", summary::targets(results)),
        ("heat", "Against the best at each point", summary::heat_map(results)),
        ("each", "Against each", summary::against_each(results, &people)),
        ("throughput", "Throughput", curves::throughput(results, &people)),
        ("waits", "Waits", curves::waits(results, &people)),
        ("cpu", "CPU time and switches", curves::cpu(results, &people)),
        ("fairness", "Fairness", curves::fairness(results, &people)),
        ("scenarios", "Other work", scenarios::bars(results, &people)),
        ("floors", "Floors", floors::floors(results, &people)),
        ("failures", "Failures", Some(failures(results))),
        ("locks", "Locks", Some(people.table(results))),
        ("method", "Method", Some(method(results))),
    ];
    let parts: Vec<_> =
        parts.into_iter().filter_map(|(id, heading, content)| Some((id, heading, content?))).collect();
    // The choice of locks stands above the parts that it acts on, and stays in sight as long as they are.
    let chosen = ["throughput", "waits", "cpu", "fairness", "scenarios"];
    let first = parts.iter().position(|(id, ..)| chosen.contains(id)).unwrap_or(parts.len());
    let (before, rest) = parts.split_at(first);
    let (among, after) = rest.split_at(rest.iter().filter(|(id, ..)| chosen.contains(id)).count());
    let title = format!("{} beside the locks that people use", results.run.ours);
    let body = html! {
        header {
            h1 { (title) }
            (lead(results))
            (facts(results))
            (notices(results))
            nav aria-label="Parts of this page" {
                ul { @for (id, heading, _) in &parts { li { a href={ "#" (id) } { (heading) } } } }
            }
        }
        main {
            (sections(before))
            @if !among.is_empty() { div { (people.pieces()) (people.choice()) (sections(among)) } }
            (sections(after))
        }
        footer { p { "Made by " code { "poundlock bench report" } " of " (results.run.machine.commit) "." } }
        script { (PreEscaped(SCRIPT)) }
    };
    document(&title, POLICY, &[STYLE, &people.rules()], &body)
}

/// A page in both schemes of colours, for wide screens and narrow ones, which needs nothing but itself.
/// `policy` is what it may ask for and run; `styles` are trusted.
pub fn document(title: &str, policy: &str, styles: &[&str], body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { @for style in styles { (PreEscaped(style)) } }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn sections(parts: &[(&str, &str, Markup)]) -> Markup {
    html! {
        @for (id, heading, content) in parts {
            section aria-labelledby=(id) {
                h2 id=(id) { (heading) }
                (content)
            }
        }
    }
}

fn lead(results: &Results) -> Markup {
    let (reached, judged) = results
        .targets()
        .iter()
        .filter_map(|target| target.reached())
        .fold((0, 0), |(reached, judged), this| (reached + usize::from(this), judged + 1));
    let others = results.competitors().count();
    html! {
        p.lead {
            (others) " " (plural(others, "peer")) ", " (results.run.points.len()) " "
            (plural(results.run.points.len(), "point")) ", " (results.run.rounds) " "
            (plural(results.run.rounds, "round")) ", one driver. "
            @if judged > 0 { (reached) " of " (judged) " " (plural(judged, "target")) " reached." }
        }
    }
}

/// The machine's description, and when the run was.
fn facts(results: &Results) -> Markup {
    let run = &results.run;
    let figures = (0..run.points.len()).flat_map(|point| (0..run.peers.len()).map(move |peer| (point, peer)));
    let others =
        Summary::of(figures.flat_map(|(point, peer)| results.rounds(point, peer, Figure::Others)).flatten());
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    html! {
        dl.facts {
            @for (label, value) in run.machine.lines() {
                dt { (label) }
                dd { @if label == "Command" { code { (value) } } @else { (value) } }
            }
            dt { "Begun" }
            dd { (began(run.started)) }
            @if let Some(others) = others {
                dt { "Other processes" }
                dd { (percent(others.median)) " of the CPUs in the median measurement, " (percent(others.max)) " at most" }
            }
        }
    }
}

fn began(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map_or_else(|| "unknown".to_owned(), |time| time.strftime("%-d %B %Y, %H:%M UTC").to_string())
}

/// What the reader must know before any figure: what is missing, and what makes figures worth less.
fn notices(results: &Results) -> Markup {
    let run = &results.run;
    let planned = results.planned();
    let made: Vec<usize> = (0..run.rounds).map(|round| results.made(round)).collect();
    let (all, there) = (planned * run.rounds, made.iter().sum::<usize>());
    let measured = |&point: &usize| {
        (0..run.rounds)
            .any(|round| (0..run.peers.len()).any(|peer| results.outcome(point, peer, round).is_some()))
    };
    let unmeasured: Vec<usize> = (0..run.points.len()).filter(|point| !measured(point)).collect();
    let failures = results.failures().len();
    html! {
        @if there < all || results.floors.is_none() {
            div.notice role="note" {
                p { strong { "This run is not complete. " }
                    (there) " of " (all) " measurements are there. "
                    code { "poundlock bench grid --resume" } " with its directory goes on with it."
                }
                ul {
                    @for (round, made) in made.iter().enumerate().filter(|(_, made)| **made < planned) {
                        li { "Round " (round + 1) ": "
                            @if *made == 0 { "nothing yet" } @else { (made) " of " (planned) " measurements" }
                        }
                    }
                    @if !unmeasured.is_empty() {
                        li { (unmeasured.len()) " " (plural(unmeasured.len(), "point")) " nobody has been measured at: "
                            @for (index, point) in unmeasured.iter().take(MISSING_NAMES).enumerate() {
                                @if index > 0 { "; " }
                                (run.points[*point].name)
                            }
                            @if unmeasured.len() > MISSING_NAMES { "; and " (unmeasured.len() - MISSING_NAMES) " more" }
                        }
                    }
                    @if results.floors.is_none() { li { "The floors have not been measured" } }
                }
            }
        }
        @if failures > 0 {
            div.notice role="note" {
                p { (failures) " " (plural(failures, "measurement")) " gave no figure: "
                    a href="#failures" { "failures" } "." }
            }
        }
        @if !run.machine.optimised {
            div.notice role="note" { p { strong { "The build was not optimised: these figures mean nothing." } } }
        }
    }
}

fn failures(results: &Results) -> Markup {
    const MOST: usize = 1000;
    let failures = results.failures();
    html! {
        @if failures.is_empty() {
            p { "None: every measurement that was made gave its figures." }
        } @else {
            div.scroll {
                table.stack {
                    thead { tr {
                        th.words scope="col" { "Lock" } th.words scope="col" { "Point" }
                        th scope="col" { "Round" } th.words scope="col" { "Why" }
                    } }
                    tbody {
                        @for failure in failures.iter().take(MOST) {
                            tr {
                                th.name scope="row" { (failure.lock) }
                                td.words { (failure.point) }
                                td data-label="Round" { (failure.round + 1) }
                                td.words { (failure.why) }
                            }
                        }
                    }
                }
            }
            @if failures.len() > MOST { p { "And " (failures.len() - MOST) " more." } }
        }
    }
}

fn method(results: &Results) -> Markup {
    html! {
        @for paragraph in report::method(results).split("\n\n") { p { (paragraph) } }
        p {
            "Means of ratios are geometric, and the spread of a mean is that of the rounds’ own means. Jain’s index is 1 if "
            "all threads got the lock equally often, and 1/n if one of n got it always."
        }
    }
}

/// `12.3 M/s` with its spread below, where the rounds differ.
fn with_spread(quantity: Quantity, summary: &Summary) -> Markup {
    html! {
        (quantity.text(summary.median))
        @if summary.n > 1 { small { (quantity.text(summary.min)) "–" (quantity.text(summary.max)) } }
    }
}

/// A ratio, with the smallest and largest of the rounds.
fn ratio_with_spread(value: f64, spread: Option<(f64, f64)>) -> Markup {
    html! {
        (ratio(value))
        @if let Some((least, most)) = spread { small { (ratio(least)) "–" (ratio(most)) } }
    }
}

/// A ratio near 1 needs two places; a large one fewer.
fn ratio(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { Quantity::Plain.text(value) }
}

fn limit_words(limit: Limit) -> String {
    match limit {
        Limit::AtLeast(limit) => format!("at least {limit:.2}"),
        // Of what is counted there is to be none.
        Limit::AtMost(0.0) => "none".to_owned(),
        Limit::AtMost(limit) => format!("at most {limit:.2}"),
    }
}

fn verdict(reached: Option<bool>) -> Markup {
    match reached {
        Some(true) => html! { span.verdict.reached { "✓\u{a0}reached" } },
        Some(false) => html! { span.verdict.missed { "✗\u{a0}missed" } },
        None => html! { span.soft { "not measured" } },
    }
}

fn plural(n: usize, word: &str) -> String {
    if n == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Microseconds as people say them.
fn microseconds(us: f64) -> String {
    format!("{us}\u{a0}µs")
}
